// Matrix descriptors: their fields, and where the elements of every canonical layout lie, against
// formulae written apart from the emulator's, and against what TMA places where.
#include <check.h>
#include <string.h>

#include "softgpu/execute/descriptor.h"

Suite *suite_descriptor(void);

static SharedOperand operand(uint64_t bits, bool mn_major, int element, int rows, int depth) {
    return (SharedOperand){.descriptor = descriptor_hopper(bits),
                           .mn_major = mn_major,
                           .element = (uint8_t)element,
                           .rows = (uint16_t)rows,
                           .depth = (uint8_t)depth};
}

static uint64_t encode(uint32_t start, uint32_t leading, uint32_t stride, int swizzle_code) {
    return (uint64_t)(start >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
           (uint64_t)swizzle_code << 62;
}

START_TEST(fields) {
    Descriptor d = descriptor_hopper(0x4000004000010840ull);
    ck_assert_uint_eq(d.start, 0x8400);
    ck_assert_uint_eq(d.leading, 16);
    ck_assert_uint_eq(d.stride, 1024);
    ck_assert_int_eq(d.swizzle, SWIZZLE_128B);
    ck_assert(!d.base_offset && !d.reserved);
    d = descriptor_hopper(0x4000004002000840ull);
    ck_assert_uint_eq(d.start, 0x8400);
    ck_assert_uint_eq(d.leading, 8192);
    d = descriptor_hopper(0x0000001000080840ull);
    ck_assert_uint_eq(d.leading, 128);
    ck_assert_uint_eq(d.stride, 256);
    ck_assert_int_eq(d.swizzle, SWIZZLE_NONE);
    ck_assert_int_eq(descriptor_hopper(encode(0, 0, 0, 2)).swizzle, SWIZZLE_64B);
    ck_assert_int_eq(descriptor_hopper(encode(0, 0, 0, 3)).swizzle, SWIZZLE_32B);
}
END_TEST

static const char *fault_of(uint64_t bits) {
    SharedOperand o = operand(bits, false, 2, 64, 16);
    return descriptor_fault(&o);
}

static bool starts_inside(uint64_t bits) {
    SharedOperand o = operand(bits, false, 2, 64, 16);
    return descriptor_starts_inside(&o);
}

// Starts and bits that nothing documents are known; a step of 32 bytes along a line isn't one.
START_TEST(faults) {
    ck_assert_ptr_null(fault_of(encode(0x8400, 16, 1024, 1)));
    for (uint32_t step = 0; step < 128; step += 32)
        ck_assert(!starts_inside(encode(0x8400 + step, 16, 1024, 1)));
    for (uint32_t line = 128; line < 1024; line += 128)
        ck_assert(starts_inside(encode(0x8400 + line, 16, 1024, 1)));
    ck_assert(!starts_inside(encode(0x8600, 16, 512, 2)));
    ck_assert(starts_inside(encode(0x8480, 16, 512, 2)));
    ck_assert(!starts_inside(encode(0x8500, 16, 256, 3)));
    ck_assert(starts_inside(encode(0x8480, 16, 256, 3)));
    ck_assert(!starts_inside(encode(0x8490, 128, 256, 0)));
    for (int bit = 0; bit < 64; bit++) {
        bool field = bit < 14 || (bit >= 16 && bit < 30) || (bit >= 32 && bit < 46) || bit >= 62;
        if (!field) ck_assert_ptr_nonnull(fault_of(1ull << bit));
    }
}
END_TEST

// The byte address of an element: a line of 16 W bytes has W chunks, and chunk x of the line number
// y (from address 0) stands at x ^ (y % W of the right granularity).
static uint32_t formula(uint32_t start, uint32_t leading, uint32_t stride, int w, bool mn_major,
                        int element, int r, int k) {
    int t = 16 / element;
    uint32_t at = start;
    if (!mn_major && w == 1) {
        at += (uint32_t)(r % 8 * 16 + k % t * element) + (uint32_t)(r / 8) * stride +
              (uint32_t)(k / t) * leading;
    } else if (!mn_major) {
        at += (uint32_t)(r % 8 * 16 * w + k * element) + (uint32_t)(r / 8) * stride;
    } else if (w == 1) {
        at += (uint32_t)(r % t * element + k % 8 * 16) + (uint32_t)(r / t) * stride +
              (uint32_t)(k / 8) * leading;
    } else {
        at += (uint32_t)(r % (w * t) * element + k % 8 * 16 * w) +
              (uint32_t)(r / (w * t)) * leading + (uint32_t)(k / 8) * stride;
    }
    uint32_t chunk = at / 16 % 8, line = at / 128 % 8;
    if (w == 8) chunk ^= line;
    if (w == 4) chunk ^= line % 4;
    if (w == 2) chunk ^= line % 2;
    return at / 128 * 128 + chunk * 16 + at % 16;
}

static const struct { int code, w; } modes[] = {{0, 1}, {3, 2}, {2, 4}, {1, 8}};
static const int elements[] = {1, 2, 4};

// Every layout, type and major-ness: all elements, one by one and as chunks.
START_TEST(layouts) {
    for (int m = 0; m < 4; m++)
        for (int e = 0; e < 3; e++)
            for (int mn = 0; mn < 2; mn++) {
                int element = elements[e], t = 16 / element, rows = 128, depth = 32 / element;
                if (mn && element != 2) continue; // K-major only
                uint32_t start = 0x8400 + (mn || m == 0 ? 0 : 32 % (16u * (uint32_t)modes[m].w));
                uint32_t leading = 0x2400, stride = 0x400;
                uint64_t bits = encode(start, leading, stride, modes[m].code);
                SharedOperand o = operand(bits, mn, element, rows, depth);
                ck_assert_ptr_null(descriptor_fault(&o));
                Chunks chunks;
                descriptor_chunks(&o, &chunks);
                ck_assert_int_eq(chunks.count, rows * depth / t);
                ck_assert(descriptor_within(&o, chunks.low, chunks.high));
                ck_assert(!descriptor_within(&o, chunks.low, chunks.high - 1));
                ck_assert(!descriptor_within(&o, chunks.low + 1, chunks.high));
                for (int r = 0; r < rows; r++)
                    for (int k = 0; k < depth; k++) {
                        uint32_t want =
                            formula(start, leading, stride, modes[m].w, mn, element, r, k);
                        ck_assert_uint_eq(descriptor_element(&o, (unsigned)r, (unsigned)k), want);
                        int chunk = mn ? k * (rows / t) + r / t : r * (depth / t) + k / t;
                        uint32_t inside = (uint32_t)((mn ? r % t : k % t) * element);
                        ck_assert_uint_eq(chunks.at[chunk] + inside, want);
                        ck_assert(want >= chunks.low && want < chunks.high);
                    }
            }
}
END_TEST

// A box that TMA loads, W chunks wide, is a K-major operand and, the same bytes, an MN-major one.
START_TEST(as_tma_places) {
    for (int m = 1; m < 4; m++) {
        int w = modes[m].w, wide = 8 * w, lines = 64;
        uint32_t line = 16u * (uint32_t)w, base = 0x8400, box = line * (uint32_t)lines;
        SwizzleMode mode = (SwizzleMode)m;
        for (int r = 0; r < lines; r++)
            for (int x = 0; x < wide; x++) {
                uint32_t placed = swizzle(mode, base + (uint32_t)r * line + 2 * (uint32_t)x);
                // element (row r, k = x), in the step of 16 that it belongs to
                int steps = x / 16;
                uint32_t start = base + 32 * (uint32_t)steps;
                SharedOperand k_major =
                    operand(encode(start, 16, 8 * line, modes[m].code), false, 2, lines, 16);
                ck_assert_ptr_null(descriptor_fault(&k_major));
                ck_assert_uint_eq(descriptor_element(&k_major, (unsigned)r, (unsigned)x % 16),
                                  placed);
                // element (row x, k = r)
                start = base + (uint32_t)(r / 16) * 2 * 8 * line;
                SharedOperand mn_major =
                    operand(encode(start, box, 8 * line, modes[m].code), true, 2, wide, 16);
                ck_assert_ptr_null(descriptor_fault(&mn_major));
                ck_assert_uint_eq(descriptor_element(&mn_major, (unsigned)x, (unsigned)r % 16),
                                  placed);
            }
    }
}
END_TEST

// The golden values of the swizzles.
START_TEST(swizzles) {
    static const struct {
        SwizzleMode mode;
        uint32_t from, to;
    } golden[] = {{SWIZZLE_32B, 0x80, 0x90},    {SWIZZLE_32B, 0x190, 0x180},
                  {SWIZZLE_64B, 0x190, 0x1a0},  {SWIZZLE_64B, 0x3f0, 0x3c0},
                  {SWIZZLE_128B, 0x190, 0x1a0}, {SWIZZLE_128B, 0x2a4, 0x2f4},
                  {SWIZZLE_128B, 0x7c2, 0x7b2}};
    for (size_t k = 0; k < sizeof golden / sizeof *golden; k++)
        ck_assert_uint_eq(swizzle(golden[k].mode, golden[k].from), golden[k].to);
}
END_TEST

Suite *suite_descriptor(void) {
    Suite *s = suite_create("descriptor");
    TCase *tc = tcase_create("descriptor");
    tcase_add_test(tc, fields);
    tcase_add_test(tc, faults);
    tcase_add_test(tc, layouts);
    tcase_add_test(tc, as_tma_places);
    tcase_add_test(tc, swizzles);
    suite_add_tcase(s, tc);
    return s;
}
