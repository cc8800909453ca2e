// tcgen05.mma: products of all kinds, shapes, layouts and sources of operands; accumulators element
// by element, by the places that the PTX ISA's figures A to G give; descriptors of which one bit is
// wrong. What may follow what: test_tcgen05_order.c. Sparse ones: test_tcgen05_sparse.c.
#include "tensor_product.h"

Suite *suite_tcgen05_mma(void);

// In the order of Product; what is 0 is left out.
static const Product products[] = {
    // kinds
    {"f16", "f16", "f16", "f32", 128, 64, 1, .a_code = 2, .b_code = 2},
    {"f16", "f16", "f16", "f16", 128, 64, 1, .a_code = 2, .b_code = 2},
    {"f16", "bf16", "bf16", "f32", 128, 256, 1, .a_code = 2, .b_code = 4},
    {"f16", "bf16", "f16", "f32", 64, 8, 1, .ws = false},
    {"tf32", "tf32", "tf32", "f32", 128, 48, 1, .a_code = 2, .b_code = 6},
    {"f8f6f4", "e4m3", "e5m2", "f32", 128, 32, 1, .a_code = 2, .b_code = 2},
    {"f8f6f4", "e5m2", "e4m3", "f16", 64, 24, 1, .a_code = 4},
    {"f8f6f4", "e2m3", "e3m2", "f32", 128, 32, 1, .a_code = 2, .b_code = 2},
    {"f8f6f4", "e2m1", "e4m3", "f32", 128, 32, 1, .b_code = 6},
    {"i8", "s8", "u8", "s32", 128, 48, 1, .a_code = 2, .b_code = 2},
    {"i8", "u8", "s8", "s32", 64, 24, 1, .a_code = 6, .b_code = 2},
    // the layouts of operands
    {"f16", "f16", "bf16", "f32", 128, 128, 1, .a_code = 2, .b_code = 2, .a_mn = true,
     .b_mn = true},
    {"f16", "f16", "bf16", "f32", 64, 64, 1, .a_code = 4, .b_code = 6, .a_mn = true, .b_mn = true},
    {"f16", "f16", "bf16", "f32", 64, 64, 1, .a_mn = true, .b_mn = true},
    {"f8f6f4", "e4m3", "e4m3", "f32", 128, 128, 1, .a_code = 2, .b_code = 4, .a_mn = true,
     .b_mn = true},
    {"tf32", "tf32", "tf32", "f32", 128, 64, 1, .a_code = 1, .b_code = 1, .a_mn = true,
     .b_mn = true},
    {"f16", "f16", "f16", "f32", 128, 16, 1, .a_code = 2, .b_code = 2, .negate = 1},
    {"f16", "f16", "f16", "f32", 128, 16, 1, .a_code = 2, .b_code = 2, .negate = 2},
    // A in tensor memory
    {"f16", "bf16", "bf16", "f32", 128, 64, 1, .a_tensor = true, .b_code = 2, .b_mn = true},
    {"f16", "f16", "f16", "f32", 64, 64, 1, .a_tensor = true, .b_code = 2},
    {"tf32", "tf32", "tf32", "f32", 128, 16, 1, .a_tensor = true, .b_code = 2},
    {"f8f6f4", "e4m3", "e2m1", "f32", 128, 16, 1, .a_tensor = true, .b_code = 2},
    {"f8f6f4", "e2m1", "e5m2", "f32", 128, 16, 1, .a_tensor = true, .b_code = 2},
    {"f8f6f4", "e2m3", "e5m2", "f32", 128, 16, 1, .a_tensor = true, .b_code = 2},
    {"f8f6f4", "e3m2", "e3m2", "f32", 128, 16, 1, .a_tensor = true, .b_code = 2},
    {"i8", "s8", "s8", "s32", 128, 16, 1, .a_tensor = true, .b_code = 2},
    // .ws
    {"f16", "f16", "f16", "f32", 32, 64, 1, .ws = true, .a_code = 2, .b_code = 2},
    {"f16", "f16", "f16", "f32", 64, 128, 1, .ws = true, .a_code = 2, .b_code = 2},
    {"f16", "f16", "f16", "f32", 128, 256, 1, .ws = true, .a_code = 2, .b_code = 2},
    {"f16", "f16", "f16", "f32", 64, 64, 1, .ws = true, .a_tensor = true, .b_code = 2},
    {"i8", "s8", "s8", "s32", 32, 256, 1, .ws = true, .a_code = 2, .b_code = 2},
    // pairs
    {"f16", "bf16", "bf16", "f32", 256, 256, 2, .a_code = 2, .b_code = 2},
    {"f16", "f16", "f16", "f16", 256, 48, 2, .a_code = 4},
    {"f16", "f16", "f16", "f32", 128, 128, 2, .a_code = 2, .b_code = 2, .b_mn = true},
    {"f16", "f16", "f16", "f32", 256, 64, 2, .a_tensor = true, .b_code = 2},
    {"f16", "f16", "f16", "f32", 128, 64, 2, .a_tensor = true, .b_code = 2},
    {"f8f6f4", "e4m3", "e4m3", "f32", 256, 128, 2, .a_code = 2, .b_code = 2},
    {"i8", "s8", "s8", "s32", 128, 64, 2, .a_code = 2, .b_code = 2},
    // scales
    {"mxf8f6f4.block_scale.scale_vec::1X", "e4m3", "e5m2", "f32", 128, 64, 1, .a_code = 2,
     .b_code = 2, .block = 32, .id_a = 1, .id_b = 3, .e8 = true},
    {"mxf8f6f4.block_scale.block32", "e2m1", "e3m2", "f32", 128, 128, 1, .a_code = 2, .b_code = 2,
     .block = 32, .e8 = true},
    {"mxf4.block_scale.scale_vec::2X", "e2m1p", "e2m1p", "f32", 128, 64, 1, .a_code = 2,
     .b_code = 2, .block = 32, .id_a = 2, .e8 = true},
    {"mxf4nvf4.block_scale.scale_vec::4X", "e2m1p", "e2m1p", "f32", 128, 256, 1, .a_code = 2,
     .b_code = 2, .block = 16},
    {"mxf4nvf4.block_scale.block16", "e2m1p", "e2m1p", "f32", 256, 64, 2, .a_code = 2, .b_code = 2,
     .block = 16, .e8 = true},
    {"mxf8f6f4.block_scale", "e4m3", "e4m3", "f32", 256, 128, 2, .a_code = 2, .b_code = 2,
     .block = 32, .e8 = true},
    {"mxf4.block_scale", "e2m1p", "e2m1p", "f32", 128, 32, 1, .a_tensor = true, .b_code = 2,
     .block = 32, .e8 = true},
};
enum { PRODUCTS = sizeof products / sizeof *products };

START_TEST(one_product) {
    check_product(&products[_i], _i);
}
END_TEST

// D counts 2^-3 times; lanes that are switched off keep what they had.
START_TEST(more_operands) {
    const Product *p = &products[0];
    char why[200];
    set_up();
    fill(p);
    ck_assert_int_eq(run_product(p, mma(p, "%off"), mma(p, "1, 3")), 0);
    expect_nothing("scale-input-d");
    ck_assert_msg(is_product(p, 1.125, why), "%s", why);

    set_up();
    fill(p);
    ck_assert_int_eq(
        run_product(p, mma(p, "0"),
                    "mov.u32 %r0, 0; mov.u32 %r1, 0xffff0001; @%lead tcgen05.mma.cta_group::1."
                    "kind::f16 [%tm], %a, %b, %i, {%r0, %r1, %r0, %r0}, %on;\n"),
        0);
    expect_nothing("disable-output-lane");
    for (int lane = 0; lane < 128; lane++)
        for (int n = 0; n < p->n; n++) {
            bool off = lane == 32 || (lane >= 48 && lane < 64);
            uint32_t want = code_of("f32", (off ? 1 : 2) * sum_of(p, lane, n));
            uint32_t got = cells[0][n][lane];
            ck_assert_msg(got == want || !(got << 1 | want << 1), "lane %d, column %d", lane, n);
        }
}
END_TEST

// ---- descriptors of which a bit is wrong

// A without a swizzle, B MN-major with one, so that LBO and SBO count in both.
static const Product bitwise = {"f16", "f16", "f16", "f32", 128, 128, 1, 0, 0, 0,
                                2,     0,     1,     0,     0,   0,   0, 0, 0, 0};

START_TEST(instruction_bits) {
    set_up();
    fill(&bitwise);
    ck_assert(is_silent(&bitwise));
    for (int bit = 0; bit < 32; bit++) {
        set_up();
        fill(&bitwise);
        number[0] ^= 1u << bit;
        ck_assert_msg(!is_silent(&bitwise), "bit %d of the instruction descriptor", bit);
    }
}
END_TEST

START_TEST(descriptor_bits) {
    for (int which = 0; which < 2; which++)
        for (int bit = 0; bit < 64; bit++) {
            set_up();
            fill(&bitwise);
            operand[which] ^= 1ull << bit;
            ck_assert_msg(!is_silent(&bitwise), "bit %d of the descriptor of %c", bit, 'A' + which);
        }
}
END_TEST

// The scales' ids, and what else the descriptors of the other kinds have.
START_TEST(scaled_bits) {
    const Product *p = &products[_i];
    for (int bit = 0; bit < 32; bit++) {
        set_up();
        fill(p);
        number[0] ^= 1u << bit;
        ck_assert_msg(!is_silent(p), "%s: bit %d of the instruction descriptor", p->kind, bit);
    }
}
END_TEST

// ---- what can't be

static const struct {
    int product;
    uint32_t set, clear; // bits of the instruction descriptor
    const char *words;
} wrong[] = {
    {0, 4, 0, "sparsity"},
    {0, 8, 0, "saturate"},
    {0, 2 << 4, 3 << 4, "type of D"},
    {2, 0, 3 << 4, "which bf16 operands can't have"},
    {0, 1 << 6, 0, "bit 6"},
    {0, 2 << 7, 0, "type of A"},
    {4, 0, 7 << 10, "type of B"},
    {18, 1 << 15, 0, "A in tensor memory is K-major"},
    {0, 9 << 17, 63 << 17, "steps of 16"},
    {0, 33u << 17, 63 << 17, "N = 264"},
    {0, 16u << 24, 31u << 24, "M = 256"},
    {0, 1u << 29, 0, "bit 29"},
    {0, 1u << 30, 0, "only .ws has"},
    {9, 1 << 13, 0, "only floats have"},
    {31, 8u << 24, 31u << 24, NULL}, // M = 128 is right, too
    {31, 4u << 24, 31u << 24, "M = 64"},
};

START_TEST(wrong_instruction) {
    const Product *p = &products[wrong[_i].product];
    set_up();
    fill(p);
    number[0] = (number[0] & ~wrong[_i].clear) | wrong[_i].set;
    run_product(p, mma(p, "%off"), "");
    if (!wrong[_i].words)
        expect_nothing(p->kind);
    else if (strstr(wrong[_i].words, "steps of 16"))
        expect_finding(FINDING_LINT, "not all of PTX's texts");
    else
        expect_finding(FINDING_TENSOR, wrong[_i].words);
}
END_TEST

static const struct {
    uint64_t flip; // of A's descriptor
    FindingKind kind;
    const char *words;
} wrong_shared[] = {
    {1ull << 46, FINDING_MISALIGNED, "wgmma's have zeros"},
    {1ull << 52, FINDING_MISALIGNED, "absolute LBO"},
    {1ull << 61, FINDING_MISALIGNED, "no swizzle: 0 none"},
    {1ull << 55, FINDING_MISALIGNED, "must be zero"},
    {1ull << 49, FINDING_MISALIGNED, "base offset"},
    {3ull << 61, FINDING_MISALIGNED, "MN-major operands only"}, // 2 becomes 1
    {0x2000, FINDING_OUT_OF_BOUNDS, "A reaches over shared memory"},
    {0x20ull, FINDING_MISALIGNED, "middle of the"},
};

START_TEST(wrong_descriptor) {
    const Product *p = &products[0];
    set_up();
    fill(p);
    operand[0] ^= wrong_shared[_i].flip;
    run_product(p, mma(p, "%off"), "");
    expect_finding(wrong_shared[_i].kind, wrong_shared[_i].words);
}
END_TEST

// ---- time

static const struct {
    int product;
    int cycles; // between one product and the next: measured on a B200 by SemiAnalysis
} rates[] = {
    {2, 128},  // N = 256
    {0, 48},   // N = 64: A and B cross from shared memory at 128 bytes a cycle
    {18, 32},  // N = 64, A in tensor memory
    {31, 128}, // a pair, M = 256, N = 256
};

START_TEST(rate) {
    const Product *p = &products[rates[_i].product];
    double many = product_cycles(p, 120), each = (many - product_cycles(p, 40)) / 80;
    ck_assert_msg(each > rates[_i].cycles - 1 && each < rates[_i].cycles + 1,
                  "%s M %d N %d: %.1f cycles, not %d", p->kind, p->m, p->n, each, rates[_i].cycles);
    ck_assert_double_eq(stats.flops_tensor, 40 * 2.0 * p->m * p->n * depth_of(p));
}
END_TEST

Suite *suite_tcgen05_mma(void) {
    Suite *suite = suite_create("tcgen05_mma");
    TCase *tests = tcase_create("tcgen05_mma");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, one_product, 0, PRODUCTS);
    tcase_add_test(tests, more_operands);
    tcase_add_loop_test(tests, rate, 0, sizeof rates / sizeof *rates);
    tcase_add_test(tests, instruction_bits);
    tcase_add_test(tests, descriptor_bits);
    tcase_add_loop_test(tests, scaled_bits, PRODUCTS - 7, PRODUCTS - 3);
    tcase_add_loop_test(tests, wrong_instruction, 0, sizeof wrong / sizeof *wrong);
    tcase_add_loop_test(tests, wrong_descriptor, 0, sizeof wrong_shared / sizeof *wrong_shared);
    suite_add_tcase(suite, tests);
    return suite;
}
