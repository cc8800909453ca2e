// wgmma: products of all types, shapes, layouts and sources of operands, register maps,
// accumulation, the arithmetic of the hardware, and right programs under all orders of completion.
// What is found out about wrong ones: test_wgmma_rules.c.
#include "wgmma_kernel.h"

#include "softgpu/execute/descriptor.h"
#include "softgpu/execute/formats.h"

Suite *suite_wgmma(void);

typedef struct {
    const char *a, *b, *d;
    int n, k;
    int a_code, b_code; // swizzles; a_code -1: A from registers
    bool a_mn, b_mn;
    int scale_a, scale_b; // 0: 1
    const char *options;  // more modifiers: "satfinite.", ".and.popc"
} Product;

enum { A_AT = SMEM, B_AT = SMEM + 0x4000 };

static int bits_of(const char *type) {
    if (!strcmp(type, "b1")) return 1;
    if (strstr(type, "e4m3") || strstr(type, "e5m2") || strstr(type, "8")) return 8;
    return !strcmp(type, "tf32") || !strcmp(type, "f32") || !strcmp(type, "s32") ? 32 : 16;
}

// The code of a small whole number.
static uint32_t code_of(const char *type, int value) {
    float x = (float)value;
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (!strcmp(type, "bf16")) return bits >> 16;
    if (!strcmp(type, "f16")) return round_to_format(value, &FORMAT_F16, ROUND_NEAREST, false);
    if (!strcmp(type, "e4m3")) return round_to_format(value, &FORMAT_E4M3, ROUND_NEAREST, true);
    if (!strcmp(type, "e5m2")) return round_to_format(value, &FORMAT_E5M2, ROUND_NEAREST, true);
    if (bits_of(type) == 8) return (uint32_t)value & 0xff;
    return !strcmp(type, "s32") || !strcmp(type, "b1") ? (uint32_t)value : bits;
}

static int number_of(const char *type, int x, int y, int salt) {
    int value = (x * 7 + y * 5 + x * y + 3 * salt) % 9;
    if (!strcmp(type, "b1")) return value & 1;
    return strcmp(type, "u8") ? value - 4 : value;
}

static const int chunks_of_line[] = {1, 8, 4, 2}; // by the code of the swizzle

// A descriptor for an operand at `start`, with room for all rows.
static uint64_t lay_out(uint32_t start, int code, bool mn) {
    uint32_t line = 16u * (uint32_t)chunks_of_line[code];
    if (code == 0) return mn ? descriptor(start, 128, 256, 0) : descriptor(start, 128, 256, 0);
    if (mn) return descriptor(start, 16 * line, 8 * line, code);
    return descriptor(start, 16, 8 * line, code);
}

// Puts element (r, k) of an operand into the image.
static void put(uint64_t desc, bool mn, const char *type, int rows, int depth, int r, int k,
                int value) {
    int bits = bits_of(type), bytes = bits < 8 ? 1 : bits / 8;
    int unit = bits < 8 ? k / 8 : k;
    SharedOperand o = {.descriptor = descriptor_hopper(desc),
                       .mn_major = mn,
                       .element = (uint8_t)bytes,
                       .rows = (uint16_t)rows,
                       .depth = (uint8_t)(bits < 8 ? depth / 8 : depth)};
    uint8_t *to = image + descriptor_element(&o, (unsigned)r, (unsigned)unit) - SMEM;
    uint32_t code = code_of(type, value);
    if (bits < 8)
        *to = (uint8_t)((*to & ~(1 << k % 8)) | code << k % 8);
    else
        memcpy(to, &code, (size_t)bytes);
}

static int a_value(const Product *p, int row, int k) {
    return number_of(p->a, row, k, 1);
}
static int b_value(const Product *p, int column, int k) {
    return number_of(p->b, k, column, 2);
}
static int c_value(int row, int column) {
    return (row * 3 + column * 11) % 17 - 8;
}

static int d_registers(const Product *p) {
    return p->n / 2 / (strcmp(p->d, "f16") ? 1 : 2);
}

// Row and column of element e (0 or 1: of f16's pairs) in register r of a thread.
static void place_d(const Product *p, int thread, int r, int e, int *row, int *column) {
    int g = thread % 32 / 4, t = thread % 4, w = thread / 32;
    if (!strcmp(p->d, "f16")) {
        *row = 16 * w + g + 8 * (r % 2);
        *column = 8 * (r / 2) + 2 * t + e;
    } else {
        *row = 16 * w + g + 8 * (r / 2 % 2);
        *column = 8 * (r / 4) + 2 * t + r % 2;
    }
}

static void fill(const Product *p) {
    memset(image, 0xff, sizeof image); // NaNs
    memset(in, 0, sizeof in);
    int packed = bits_of(p->a) == 1 ? 32 : 32 / bits_of(p->a), count = d_registers(p);
    desc_a = p->a_code < 0 ? 0 : lay_out(A_AT, p->a_code, p->a_mn);
    desc_b = lay_out(B_AT, p->b_code, p->b_mn);
    for (int k = 0; k < p->k; k++) {
        for (int row = 0; row < 64 && p->a_code >= 0; row++)
            put(desc_a, p->a_mn, p->a, 64, p->k, row, k, a_value(p, row, k));
        for (int column = 0; column < p->n; column++)
            put(desc_b, p->b_mn, p->b, p->n, p->k, column, k, b_value(p, column, k));
    }
    for (int thread = 0; thread < THREADS; thread++) {
        int g = thread % 32 / 4, t = thread % 4, w = thread / 32;
        for (int r = 0; r < 4; r++)
            for (int e = 0; e < packed; e++) {
                int row = 16 * w + g + 8 * (r % 2), k = packed * (t + 4 * (r / 2)) + e;
                in[thread][count + r] |= code_of(p->a, a_value(p, row, k)) << e * (32 / packed);
            }
        for (int r = 0; r < count; r++)
            for (int e = 0; e < (strcmp(p->d, "f16") ? 1 : 2); e++) {
                int row, column;
                place_d(p, thread, r, e, &row, &column);
                in[thread][r] |= code_of(p->d, c_value(row, column)) << 16 * e;
            }
    }
}

// One mma_async of the product with D in registers from 0 on, A behind.
static const char *mma(const Product *p, const char *scale_d) {
    static char text[4][6000];
    static int next;
    char *to = text[next = (next + 1) % 4], immediates[64] = "";
    int length = 0;
    if (strcmp(p->d, "s32"))
        length = sprintf(immediates, ", %d, %d", p->scale_a ? p->scale_a : 1,
                         p->scale_b ? p->scale_b : 1);
    if (bits_of(p->a) == 16 && p->a_code >= 0)
        sprintf(immediates + length, ", %d, %d", p->a_mn, p->b_mn);
    else if (bits_of(p->a) == 16)
        sprintf(immediates + length, ", %d", p->b_mn);
    const char *more = p->options ? p->options : "";
    sprintf(to, "wgmma.mma_async.sync.aligned.m64n%dk%d%s.%s.%s.%s%s %s, %s, %%desc_b, %s%s;", p->n,
            p->k, strstr(more, "sat") ? more : "", p->d, p->a, p->b,
            strstr(more, "and") ? more : "", registers(0, d_registers(p)),
            p->a_code < 0 ? registers(d_registers(p), 4) : "%desc_a", scale_d, immediates);
    return to;
}

#define FENCE    "wgmma.fence.sync.aligned;\n"
#define COMMIT   "\nwgmma.commit_group.sync.aligned;\n"
#define WAIT(n)  "wgmma.wait_group.sync.aligned " #n ";\n"
#define AND_WAIT COMMIT WAIT(0)

// All of D must be C times `with_c` plus `times` A B.
static void expect_product(const Product *p, int with_c, int times) {
    int sign = (p->scale_a < 0) != (p->scale_b < 0) ? -1 : 1;
    for (int thread = 0; thread < THREADS; thread++)
        for (int r = 0; r < d_registers(p); r++)
            for (int e = 0; e < (strcmp(p->d, "f16") ? 1 : 2); e++) {
                int row, column, sum = 0;
                place_d(p, thread, r, e, &row, &column);
                for (int k = 0; k < p->k; k++) sum += a_value(p, row, k) * b_value(p, column, k);
                uint32_t want = code_of(p->d, with_c * c_value(row, column) + times * sign * sum);
                uint32_t got = out[thread][r];
                if (!strcmp(p->d, "f16")) got = got >> 16 * e & 0xffff;
                if (strcmp(p->d, "s32") && !(want & 0x7fffffff) && !(got & 0x7fffffff)) continue;
                ck_assert_msg(got == want, "m64n%dk%d.%s.%s.%s (%d, %d): %08x, not %08x", p->n,
                              p->k, p->d, p->a, p->b, row, column, got, want);
            }
}

static void run_product(const Product *p, const char *body, int with_c, int times) {
    fill(p);
    int error = run_wgmma(d_registers(p) + 4, body);
    expect_nothing();
    ck_assert_int_eq(error, 0);
    expect_product(p, with_c, times);
}

static const Product products[] = {
    // types, A from shared memory or registers
    {"f16", "f16", "f32", 16, 16, 1, 1, 0, 0, 0, 0, NULL},
    {"f16", "f16", "f32", 24, 16, -1, 1, 0, 0, 0, 0, NULL},
    {"f16", "f16", "f16", 40, 16, 1, 1, 0, 0, 0, 0, NULL},
    {"f16", "f16", "f16", 64, 16, -1, 2, 0, 1, 0, 0, NULL},
    {"bf16", "bf16", "f32", 8, 16, 1, 1, 0, 0, 0, 0, NULL},
    {"bf16", "bf16", "f32", 8, 16, -1, 1, 0, 0, 0, 0, NULL},
    {"tf32", "tf32", "f32", 56, 8, 1, 1, 0, 0, 0, 0, NULL},
    {"tf32", "tf32", "f32", 8, 8, -1, 2, 0, 0, 0, 0, NULL},
    {"e4m3", "e5m2", "f32", 32, 32, 1, 1, 0, 0, 0, 0, NULL},
    {"e5m2", "e4m3", "f16", 24, 32, -1, 3, 0, 0, 0, 0, NULL},
    {"e4m3", "e4m3", "f32", 256, 32, 2, 1, 0, 0, 0, 0, NULL},
    {"s8", "s8", "s32", 24, 32, 1, 1, 0, 0, 0, 0, NULL},
    {"u8", "s8", "s32", 48, 32, -1, 1, 0, 0, 0, 0, NULL},
    {"s8", "u8", "s32", 8, 32, 0, 0, 0, 0, 0, 0, ".satfinite"},
    {"b1", "b1", "s32", 16, 256, 1, 1, 0, 0, 0, 0, ".and.popc"},
    {"b1", "b1", "s32", 8, 256, -1, 2, 0, 0, 0, 0, ".and.popc"},
    // layouts
    {"bf16", "bf16", "f32", 64, 16, 0, 0, 0, 0, 0, 0, NULL},
    {"bf16", "bf16", "f32", 64, 16, 3, 3, 0, 0, 0, 0, NULL},
    {"bf16", "bf16", "f32", 64, 16, 2, 2, 0, 0, 0, 0, NULL},
    {"bf16", "bf16", "f32", 64, 16, 0, 0, 1, 1, 0, 0, NULL},
    {"bf16", "bf16", "f32", 64, 16, 3, 3, 1, 1, 0, 0, NULL},
    {"f16", "f16", "f32", 64, 16, 2, 2, 1, 1, 0, 0, NULL},
    {"bf16", "bf16", "f32", 128, 16, 1, 1, 1, 1, 0, 0, NULL},
    {"bf16", "bf16", "f32", 128, 16, -1, 1, 0, 1, 0, 0, NULL},
    {"f16", "f16", "f32", 8, 16, 1, 1, 1, 0, 0, 0, NULL},
    // sizes and signs
    {"bf16", "bf16", "f32", 256, 16, 1, 1, 0, 0, 0, 0, NULL},
    {"bf16", "bf16", "f32", 256, 16, -1, 1, 0, 1, 0, 0, NULL},
    {"f16", "f16", "f32", 104, 16, 1, 1, 0, 0, -1, 1, NULL},
    {"f16", "f16", "f32", 88, 16, -1, 1, 0, 0, 1, -1, NULL},
    {"tf32", "tf32", "f32", 16, 8, 1, 1, 0, 0, -1, -1, NULL},
};
enum { PRODUCTS = sizeof products / sizeof *products };

// D = A B with scale-d false, D = A B + C with it true; also by the tensor cores' model.
START_TEST(all_products) {
    const Product *p = &products[_i];
    char body[8000];
    snprintf(body, sizeof body, FENCE "%s" AND_WAIT, mma(p, "%off"));
    run_product(p, body, 0, 1);
    snprintf(body, sizeof body, FENCE "%s" AND_WAIT, mma(p, "%on"));
    run_product(p, body, 1, 1);
    options.numerics = NUMERICS_HARDWARE;
    run_product(p, body, 1, 1);
    options.numerics = NUMERICS_FAST;
    options.checks = 0;
    run_product(p, body, 1, 1);
}
END_TEST

// Integers wrap, or stop at the limits; scale-d may be a number.
START_TEST(integer_limits) {
    Product p = {"u8", "u8", "s32", 8, 32, -1, 1, 0, 0, 0, 0, NULL};
    for (int saturates = 0; saturates < 2; saturates++) {
        p.options = saturates ? ".satfinite" : NULL;
        fill(&p);
        memset(image, 255, sizeof image);
        for (int thread = 0; thread < THREADS; thread++) {
            for (int r = 0; r < 4; r++) in[thread][r] = 0x7fffffff, in[thread][4 + r] = 0xffffffff;
        }
        char body[2000];
        snprintf(body, sizeof body, FENCE "%s" AND_WAIT, mma(&p, "1"));
        ck_assert_int_eq(run_wgmma(8, body), 0);
        expect_nothing();
        uint32_t sum = 32u * 255 * 255;
        for (int thread = 0; thread < THREADS; thread++)
            for (int r = 0; r < 4; r++)
                ck_assert_uint_eq(out[thread][r], saturates ? 0x7fffffff : 0x7fffffff + sum);
    }
}
END_TEST

static float result(int thread, int r) {
    float x;
    memcpy(&x, &out[thread][r], 4);
    return x;
}

// One row's products are 1 and 2^-14; Hopper's fp8 unit keeps 13 bits, and so by default do we.
START_TEST(fp8_precision) {
    static const Numerics numerics[] = {NUMERICS_DEFAULT, NUMERICS_HARDWARE, NUMERICS_FAST};
    const Product p = {"e4m3", "e4m3", "f32", 8, 32, 1, 1, 0, 0, 0, 0, NULL};
    char body[2000];
    snprintf(body, sizeof body, FENCE "%s" AND_WAIT, mma(&p, "%off"));
    for (int k = 0; k < 3; k++) {
        fill(&p);
        memset(image, 0, sizeof image);
        image[A_AT - SMEM] = image[B_AT - SMEM] = 0x38;         // 1
        image[A_AT - SMEM + 1] = image[B_AT - SMEM + 1] = 0x04; // 2^-7
        options.numerics = numerics[k];
        ck_assert_int_eq(run_wgmma(8, body), 0);
        ck_assert_float_eq(result(0, 0), k == 2 ? 1 + 0x1p-14f : 1);
        // Twice 2^-14: each is lost for itself.
        image[A_AT - SMEM + 2] = image[B_AT - SMEM + 2] = 0x04;
        ck_assert_int_eq(run_wgmma(8, body), 0);
        ck_assert_float_eq(result(0, 0), k == 2 ? 1 + 0x1p-13f : 1);
        // 1 + 1 + 2^-13: nothing is cut before the sum, whose last bit is.
        image[A_AT - SMEM + 1] = image[B_AT - SMEM + 1] = 0x38;
        image[A_AT - SMEM + 2] = 0x08; // 2^-6
        image[B_AT - SMEM + 2] = 0x04; // 2^-7
        ck_assert_int_eq(run_wgmma(8, body), 0);
        ck_assert_float_eq(result(0, 0), k == 2 ? 2 + 0x1p-13f : 2);
    }
}
END_TEST

// Products of f16 as Hopper sums them: cut toward zero at 25 bits below the largest.
START_TEST(f16_precision) {
    const Product p = {"f16", "f16", "f32", 8, 16, 1, 1, 0, 0, 0, 0, NULL};
    char body[2000];
    snprintf(body, sizeof body, FENCE "%s" AND_WAIT, mma(&p, "%off"));
    for (int hardware = 0; hardware < 2; hardware++) {
        fill(&p);
        memset(image, 0, sizeof image);
        // 1 + 15 times 2^-26: lost one by one, not by rounding the exact sum or sums of fp32.
        uint16_t one = 0x3c00, small = 0x0800; // 2^-13
        for (int k = 0; k < 16; k++) {
            memcpy(image + A_AT - SMEM + 2 * k, k ? &small : &one, 2);
            memcpy(image + B_AT - SMEM + 2 * k, k ? &small : &one, 2);
        }
        options.numerics = hardware ? NUMERICS_HARDWARE : NUMERICS_FAST;
        ck_assert_int_eq(run_wgmma(8, body), 0);
        ck_assert_float_eq(result(0, 0), 1);
        // with the small ones first, fp32 sums keep them
        uint16_t swap;
        for (int which = 0; which < 2; which++) {
            uint8_t *row = image + (which ? B_AT : A_AT) - SMEM;
            memcpy(&swap, row, 2);
            memcpy(row, row + 30, 2);
            memcpy(row + 30, &swap, 2);
        }
        ck_assert_int_eq(run_wgmma(8, body), 0);
        ck_assert_float_eq(result(0, 0), hardware ? 1 : 1 + 0x1p-22f);
    }
}
END_TEST

// NaNs all look the same, infinities multiply.
START_TEST(special_values) {
    const Product p = {"bf16", "bf16", "f32", 8, 16, 1, 1, 0, 0, 0, 0, NULL};
    char body[2000];
    snprintf(body, sizeof body, FENCE "%s" AND_WAIT, mma(&p, "%off"));
    for (int numerics = NUMERICS_FAST; numerics <= NUMERICS_HARDWARE; numerics++) {
        fill(&p);
        memset(image, 0, sizeof image);
        uint16_t infinity = 0x7f80, nan = 0xffc1, one = 0x3f80;
        memcpy(image + A_AT - SMEM, &infinity, 2);       // row 0
        memcpy(image + A_AT - SMEM + 128 + 16, &nan, 2); // row 1 (line 1: chunk 0 stands at 1)
        memcpy(image + B_AT - SMEM, &one, 2);            // column 0
        options.numerics = (Numerics)numerics;
        ck_assert_int_eq(run_wgmma(8, body), 0);
        ck_assert_uint_eq(out[0][0], 0x7f800000);
        ck_assert_uint_eq(out[0][1], 0x7fffffff); // inf * 0
        ck_assert_uint_eq(out[4][0], 0x7fffffff);
    }
}
END_TEST

// ---- right programs in every order of completion

static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};
enum { ORDERS = 4, SCHEDULES = 4 };

static void choose(int way) {
    options.async = orders[way % ORDERS];
    options.schedule = (uint64_t)(way / ORDERS);
}

// Chains on one accumulator, over several groups; waits that leave the newest group out.
START_TEST(chains) {
    const Product p = {"bf16", "bf16", "f32", 64, 16, 1, 1, 0, 1, 0, 0, NULL};
    char body[16000];
    choose(_i);
    snprintf(body, sizeof body, FENCE "%s\n%s" COMMIT "%s" COMMIT WAIT(1) "%s\n%s" COMMIT WAIT(0),
             mma(&p, "%on"), mma(&p, "%on"), mma(&p, "%on"), mma(&p, "%on"), "");
    // the wait for one group covers the first two products only: the chain goes on all the same
    run_product(&p, body, 1, 4);
}
END_TEST

// Two accumulators in flight: the first is waited for and used while the second is computed. Then A
// comes from registers that are overwritten once its group has been waited for.
START_TEST(two_accumulators) {
    const Product p = {"f16", "f16", "f32", 8, 16, -1, 1, 0, 0, 0, 0, NULL};
    char body[16000];
    choose(_i);
    snprintf(body, sizeof body,
             FENCE
             "%s" COMMIT // D in %%x0-3, A in %%x4-7
             "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%%r8, %%r9, %%r10, %%r11}, "
             "{%%x4, %%x5, %%x6, %%x7}, %%desc_b, %%off, 1, 1, 0;" COMMIT WAIT(
                 1) "mov.b32 %%r12, %%x0; mov.b32 %%r13, %%x1; mov.b32 %%r14, %%x2; mov.b32 %%r15, "
                    "%%x3;\n" WAIT(
                        0) "mov.b32 %%x4, 0; mov.b32 %%x5, 0; mov.b32 %%x6, 0; mov.b32 %%x7, 0;\n"
                           "add.f32 %%x0, %%r12, %%r8; add.f32 %%x1, %%r13, %%r9; add.f32 %%x2, "
                           "%%r14, %%r10;"
                           "add.f32 %%x3, %%r15, %%r11;\n",
             mma(&p, "%on"));
    run_product(&p, body, 1, 2);
}
END_TEST

// Registers that nobody names any more stay A's until the wait: the last use of %r8 to %r11 is the
// product, and other values live and die before the wait.
START_TEST(operands_stay_alive) {
    const Product p = {"f16", "f16", "f32", 8, 16, -1, 1, 0, 0, 0, 0, NULL};
    char body[16000];
    choose(_i);
    int length = snprintf(
        body, sizeof body,
        "mov.b32 %%r8, %%x4; mov.b32 %%r9, %%x5; mov.b32 %%r10, %%x6; mov.b32 %%r11, %%x7;\n" FENCE
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%%x0, %%x1, %%x2, %%x3}, "
        "{%%r8, %%r9, %%r10, %%r11}, %%desc_b, %%on, 1, 1, 0;" COMMIT ".reg .b32 %%z<40>;\n");
    for (int k = 0; k < 40; k++)
        length += snprintf(body + length, sizeof body - (size_t)length, "add.u32 %%z%d, %%t, %d;\n",
                           k, k);
    length += snprintf(body + length, sizeof body - (size_t)length, WAIT(0));
    for (int k = 0; k < 40; k++)
        length += snprintf(body + length, sizeof body - (size_t)length,
                           "add.u32 %%x4, %%x4, %%z%d;\n", k);
    run_product(&p, body, 1, 1);
}
END_TEST

// A loop with a group in flight around its back edge.
START_TEST(around_a_loop) {
    const Product p = {"bf16", "bf16", "f32", 16, 16, 1, 1, 0, 0, 0, 0, NULL};
    char body[16000];
    choose(_i);
    snprintf(body, sizeof body,
             "mov.u32 %%r8, 0;\nLOOP:\n" FENCE "%s" COMMIT WAIT(
                 1) "add.u32 %%r8, %%r8, 1; setp.lt.u32 %%p1, %%r8, 5; @%%p1 bra LOOP;\n" WAIT(0),
             mma(&p, "%on"));
    run_product(&p, body, 1, 5);
}
END_TEST

// The four warps come late, one after the other.
START_TEST(staggered_warps) {
    const Product p = {"bf16", "bf16", "f32", 16, 16, 1, 1, 0, 0, 0, 0, NULL};
    char body[16000];
    choose(_i);
    snprintf(body, sizeof body,
             "shr.u32 %%r8, %%t, 5; mul.lo.u32 %%r8, %%r8, 700;\n"
             "SPIN: setp.eq.u32 %%p1, %%r8, 0; @%%p1 bra DONE; sub.u32 %%r8, %%r8, 1; bra SPIN;\n"
             "DONE:\n" FENCE "%s\n%s" AND_WAIT,
             mma(&p, "%off"), mma(&p, "%on"));
    run_product(&p, body, 0, 2);
}
END_TEST

// What the counters say of one product.
START_TEST(counters) {
    const Product p = {"bf16", "bf16", "f32", 128, 16, 1, 1, 0, 0, 0, 0, NULL};
    char body[8000];
    snprintf(body, sizeof body, FENCE "%s" AND_WAIT, mma(&p, "%off"));
    options.timing = true;
    run_product(&p, body, 0, 1);
    ck_assert_double_eq(stats.flops_tensor, 2.0 * 64 * 128 * 16);
    ck_assert_double_eq(stats.warp_instructions[PIPE_TENSOR], 4);
}
END_TEST

// ---- what isn't taken

START_TEST(refused) {
    static const char *const texts[] = {
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%x0, %x1, %x2, %x3}, %desc_a, "
        "%desc_b, %r0, 0, %on, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%x0, %x1, %x2, %x3}, %desc_a, %desc_b, "
        "%on, 2, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%x0, %x1, %x2}, %desc_a, %desc_b, %on, "
        "1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%x0, %x1, %x2, %x3}, %desc_a, "
        "%desc_b, %on, 1, 1, 0, 1;",
        "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 {%x0, %x1, %x2, %x3}, %desc_a, %desc_b, "
        "%on;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16 {%x0, %x1}, %desc_a, %desc_b, %on, 1, "
        "1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16 {%x0, %x1}, %desc_a, %desc_b, %on, "
        "1, "
        "1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8xk16.f32.bf16.bf16 {%x0, %x1}, %desc_a, %desc_b, %on, "
        "1, "
        "1, 0, 0;",
    };
    static const char *const reasons[] = {
        "sparse products", "are 1 or -1", "not as many registers", "takes D, A, B, scale-d",
        "in steps of 16",  "no form",     "in steps of 8",         "m64n8xk16"};
    ck_assert_int_eq(run_wgmma(8, texts[_i]), 719);
    expect_finding(FINDING_UNSUPPORTED, reasons[_i]);
}
END_TEST

Suite *suite_wgmma(void) {
    Suite *s = suite_create("wgmma");
    TCase *tc = tcase_create("products");
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_loop_test(tc, all_products, 0, PRODUCTS);
    tcase_add_test(tc, integer_limits);
    tcase_add_test(tc, fp8_precision);
    tcase_add_test(tc, f16_precision);
    tcase_add_test(tc, special_values);
    tcase_add_test(tc, counters);
    tcase_add_loop_test(tc, refused, 0, 8);
    suite_add_tcase(s, tc);
    tc = tcase_create("orders");
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_loop_test(tc, chains, 0, ORDERS * SCHEDULES);
    tcase_add_loop_test(tc, two_accumulators, 0, ORDERS * SCHEDULES);
    tcase_add_loop_test(tc, operands_stay_alive, 0, ORDERS * SCHEDULES);
    tcase_add_loop_test(tc, around_a_loop, 0, ORDERS * SCHEDULES);
    tcase_add_loop_test(tc, staggered_warps, 0, ORDERS * SCHEDULES);
    suite_add_tcase(s, tc);
    return s;
}
