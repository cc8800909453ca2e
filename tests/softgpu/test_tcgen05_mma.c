// tcgen05.mma: products of all kinds, shapes, layouts and sources of operands; accumulators element
// by element, by the places that the PTX ISA's figures A to G give; descriptors of which one bit is
// wrong. What may follow what: test_tcgen05_order.c.
#include "tensor_kernel.h"

#include "softgpu/execute/formats.h"

Suite *suite_tcgen05_mma(void);

typedef struct {
    const char *kind; // and its scales: "mxf4.block_scale.scale_vec::2X"
    const char *a, *b, *d;
    int m, n, group;
    bool ws, a_tensor;
    int a_code, b_code; // swizzles, as in bits 61-63
    bool a_mn, b_mn;
    int block;      // elements of k with one scale; 0: none
    int id_a, id_b; // of scales
    bool e8;        // scales are UE8M0
    int negate;     // 1 A, 2 B
} Product;

enum { A_AT = SMEM, B_AT = SMEM + 0x4000, A_COLUMN = 256, SFA_COLUMN = 300, SFB_COLUMN = 310 };

// ---- numbers

static int bits_of(const char *type) {
    if (!strcmp(type, "e2m1p")) return 4;
    if (strstr(type, "16")) return 16;
    return strstr(type, "32") ? 32 : 8;
}

static uint32_t code_of(const char *type, double x) {
    static const struct {
        const char *name;
        const Format *format;
    } formats[] = {{"f16", &FORMAT_F16},   {"bf16", &FORMAT_BF16}, {"e4m3", &FORMAT_E4M3},
                   {"e5m2", &FORMAT_E5M2}, {"e2m3", &FORMAT_E2M3}, {"e3m2", &FORMAT_E3M2},
                   {"e2m1", &FORMAT_E2M1}, {"e2m1p", &FORMAT_E2M1}};
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++)
        if (!strcmp(type, formats[k].name))
            return round_to_format(x, formats[k].format, ROUND_NEAREST, true);
    if (!strcmp(type, "s8") || !strcmp(type, "u8")) return (uint32_t)(int)x & 0xff;
    if (!strcmp(type, "s32")) return (uint32_t)(int)x;
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static uint32_t type_code(const char *type) {
    static const struct {
        const char *name;
        uint32_t code;
    } codes[] = {{"f16", 0},  {"bf16", 1}, {"tf32", 2}, {"e4m3", 0}, {"e5m2", 1}, {"e2m3", 3},
                 {"e3m2", 4}, {"e2m1", 5}, {"u8", 0},   {"s8", 1},   {"e2m1p", 1}};
    for (size_t k = 0; k < sizeof codes / sizeof *codes; k++)
        if (!strcmp(type, codes[k].name)) return codes[k].code;
    return 0;
}

static int depth_of(const Product *p) {
    return 256 / bits_of(p->a); // 32 bytes
}

static int number_at(const char *type, int r, int k, int salt) {
    int x = (r * 7 + k * 5 + r * k + 3 * salt + r / 32) % 5;
    return strcmp(type, "u8") ? x - 2 : x;
}
static int a_at(const Product *p, int m, int k) {
    return number_at(p->a, m, k, 1);
}
static int b_at(const Product *p, int n, int k) {
    return number_at(p->b, n, k, 2);
}
// Scales are 1/2, 1 and 2.
static int scale_log(const Product *p, int r, int k, int salt) {
    return p->block ? (r + r / 32 + k / p->block + salt) % 3 - 1 : 0;
}
static uint32_t scale_code(const Product *p, int log) {
    return p->e8 ? (uint32_t)(127 + log) : (uint32_t)(0x38 + 8 * log);
}

// ---- operands in shared memory

static void put(int block, uint32_t start, int code, bool mn, const char *type, int r, int k,
                int value) {
    int bits = !strcmp(type, "e2m1")                            ? 4
               : !strcmp(type, "e2m3") || !strcmp(type, "e3m2") ? 6
                                                                : bits_of(type);
    int small = !strcmp(type, "e2m1") || bits == 6, bit;
    uint32_t code_bits = code_of(type, value), at;
    if (small) { // packed at the start of 16 bytes that stand for 16 elements
        int inner = mn ? r : k, first = inner / 16 * 16;
        at = address_of(start, code, mn, 8, mn ? first : r, mn ? k : first, &bit);
        bit = inner % 16 * bits;
        at += (uint32_t)bit / 8;
        bit %= 8;
    } else {
        at = address_of(start, code, mn, bits, r, k, &bit);
    }
    ck_assert_uint_lt(at - SMEM + 4, IMAGE);
    uint8_t *to = &image[block][at - SMEM];
    for (int b = 0; b < bits; b++) {
        int n = bit + b;
        to[n / 8] = (uint8_t)((to[n / 8] & ~(1 << n % 8)) | (code_bits >> b & 1) << n % 8);
    }
}

// ---- where things lie in tensor memory

// Of D: block, lane and column.
static void place_d(const Product *p, int m, int n, int *block, int *lane, int *column) {
    *block = 0, *lane = m, *column = n; // D
    if (p->group == 2 && p->m == 256) { // A
        *block = m / 128, *lane = m % 128;
    } else if (p->group == 2) { // B
        *block = m / 64, *lane = m % 64 + 64 * (n / (p->n / 2)), *column = n % (p->n / 2);
    } else if (p->ws && p->m == 64) { // E
        *lane = m + 64 * (n / (p->n / 2)), *column = n % (p->n / 2);
    } else if (p->ws && p->m == 32) { // G
        *lane = m + 32 * (n / (p->n / 4)), *column = n % (p->n / 4);
    } else if (p->m == 64) { // F
        *lane = 32 * (m / 16) + m % 16;
    }
}

// The row of a block's A that stands in a lane, -1 if none.
static int row_in_lane(const Product *p, int lane) {
    int rows = p->m / p->group;
    if (!p->ws && p->group == 1 && p->m == 64)
        return lane % 32 < 16 ? lane / 32 * 16 + lane % 32 : -1;
    return lane % rows;
}

static void fill_tensor(const Product *p) {
    int depth = depth_of(p), bits = bits_of(p->a);
    for (int block = 0; block < p->group; block++)
        for (int t = 0; t < THREADS; t++) {
            uint32_t *words = in[block][t];
            int row = row_in_lane(p, t);
            for (int k = 0; k < depth && row >= 0; k++) {
                uint32_t code = code_of(p->a, a_at(p, block * p->m / p->group + row, k));
                if (!strcmp(p->a, "e2m1")) code <<= 2; // stands in the middle of 8 bits
                words[k * bits / 32] |= code << k * bits % 32;
            }
            for (int j = 0; j < 8; j++)
                for (int b = 0; p->block && b < depth / p->block; b++) {
                    int r = 32 * j + t % 32;
                    uint32_t a =
                        scale_code(p, scale_log(p, block * p->m / p->group + r, b * p->block, 0));
                    uint32_t c = scale_code(p, scale_log(p, r, b * p->block, 1));
                    if (j < 4) words[8 + j] |= a << 8 * (p->id_a + b);
                    words[12 + j] |= c << 8 * (p->id_b + b);
                }
        }
}

static uint32_t instruction_of(const Product *p) {
    uint32_t bits = type_code(p->a) << 7 | type_code(p->b) << 10 | (uint32_t)p->negate << 13 |
                    (uint32_t)p->a_mn << 15 | (uint32_t)p->b_mn << 16 | (uint32_t)p->n >> 3 << 17 |
                    (uint32_t)p->m >> 4 << 24;
    if (p->block)
        return bits | (uint32_t)p->id_b << 4 | (uint32_t)p->id_a << 29 | (uint32_t)p->e8 << 23;
    return bits | (!strcmp(p->d, "f16") ? 0 : !strcmp(p->d, "f32") ? 1 : 2) << 4;
}

static void fill(const Product *p) {
    memset(image, 0xff, sizeof image);
    memset(in, 0, sizeof in);
    operand[0] = describe(A_AT, p->a_code, p->a_mn);
    operand[1] = describe(B_AT, p->b_code, p->b_mn);
    number[0] = instruction_of(p);
    int rows = p->m / p->group, columns_each = p->n / p->group;
    for (int block = 0; block < p->group; block++)
        for (int k = 0; k < depth_of(p); k++) {
            for (int m = 0; m < rows && !p->a_tensor; m++)
                put(block, A_AT, p->a_code, p->a_mn, p->a, m, k, a_at(p, block * rows + m, k));
            for (int n = 0; n < columns_each; n++)
                put(block, B_AT, p->b_code, p->b_mn, p->b, n, k,
                    b_at(p, block * columns_each + n, k));
        }
    fill_tensor(p);
}

// ---- running one

// The product, under a predicate, to be followed by enable-input-d.
static const char *mma(const Product *p, const char *more) {
    static char text[4][400];
    static int next;
    char *to = text[next = (next + 1) % 4];
    sprintf(to, "@%%lead tcgen05.mma%s.cta_group::%d.kind::%s [%%tm], %s, %%b, %%i%s, %s;\n",
            p->ws ? ".ws" : "", p->group, p->kind, p->a_tensor ? "[%r10]" : "%a",
            p->block ? ", [%r11], [%r12]" : "", more);
    return to;
}

// Brings A and scales to tensor memory, and lets thread 0 of the first block go on.
#define BRING                                                                                      \
    "add.u32 %r10, %tm, 256; add.u32 %r11, %tm, 300; add.u32 %r12, %tm, 310;\n"                    \
    "tcgen05.st.sync.aligned.32x32b.x8.b32 [%own + 256], {%x0, %x1, %x2, %x3, %x4, %x5, %x6, "     \
    "%x7};\n"                                                                                      \
    "tcgen05.st.sync.aligned.32x32b.x4.b32 [%own + 300], {%x8, %x9, %x10, %x11};\n"                \
    "tcgen05.st.sync.aligned.32x32b.x8.b32 [%own + 310], {%x12, %x13, %x14, %x15, %x16, %x17, "    \
    "%x18, %x19};\n" WAIT_ST BEFORE                                                                \
    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n" AFTER

static const char *finish(const Product *p) {
    return p->group == 1
               ? COMMIT("0") AWAIT("W", "0", "0")
               : "mov.b16 %h0, 3; @%lead tcgen05.commit.cta_group::2.mbarrier::arrive::one."
                 "shared::cluster.multicast::cluster.b64 [bar], %h0;\n" AWAIT("W", "0", "0");
}

static int run_product(const Product *p, const char *first, const char *second) {
    static char body[1 << 16];
    blocks = p->group;
    snprintf(body, sizeof body, "%s%s%s%s", BRING, first, second, finish(p));
    return run_tensor(20, body);
}

static double sum_of(const Product *p, int m, int n) {
    double sum = 0;
    for (int k = 0; k < depth_of(p); k++) {
        int log = scale_log(p, m, k, 0) + scale_log(p, n, k, 1);
        sum += a_at(p, m, k) * b_at(p, n, k) * (log < 0 ? 1.0 / (1 << -log) : 1 << log);
    }
    return p->negate == 1 || p->negate == 2 ? -sum : sum;
}

// Is D `times` the product everywhere, and nothing else written?
static bool is_product(const Product *p, double times, char *why) {
    static bool mine[BLOCKS][TMEM_COLUMNS][TMEM_LANES];
    memset(mine, 0, sizeof mine);
    for (int m = 0; m < p->m; m++)
        for (int n = 0; n < p->n; n++) {
            int block, lane, column;
            place_d(p, m, n, &block, &lane, &column);
            uint32_t want = code_of(p->d, times * sum_of(p, m, n)),
                     got = cells[block][column][lane];
            if (!strcmp(p->d, "f16")) got &= 0xffff;
            bool zeros = strcmp(p->d, "s32") && !(want & 0x7fff7fff) && !(got & 0x7fff7fff);
            mine[block][column][lane] = true;
            if (got == want || zeros) continue;
            sprintf(why, "%s M %d N %d (%d, %d), block %d, lane %d, column %d: %08x, not %08x",
                    p->kind, p->m, p->n, m, n, block, lane, column, got, want);
            return false;
        }
    for (int block = 0; block < p->group; block++)
        for (int c = 0; c < A_COLUMN; c++)
            for (int l = 0; l < TMEM_LANES; l++)
                if ((written[block][c][l / 32] >> l % 32 & 1) != mine[block][c][l]) {
                    sprintf(why, "%s M %d N %d: written is block %d, lane %d, column %d", p->kind,
                            p->m, p->n, block, l, c);
                    return false;
                }
    return true;
}

// In the order of Product.
static const Product products[] = {
    // kinds
    {"f16", "f16", "f16", "f32", 128, 64, 1, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0},
    {"f16", "f16", "f16", "f16", 128, 64, 1, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0},
    {"f16", "bf16", "bf16", "f32", 128, 256, 1, 0, 0, 2, 4, 0, 0, 0, 0, 0, 0, 0},
    {"f16", "bf16", "f16", "f32", 64, 8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"tf32", "tf32", "tf32", "f32", 128, 48, 1, 0, 0, 2, 6, 0, 0, 0, 0, 0, 0, 0},
    {"f8f6f4", "e4m3", "e5m2", "f32", 128, 32, 1, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0},
    {"f8f6f4", "e5m2", "e4m3", "f16", 64, 24, 1, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0},
    {"f8f6f4", "e2m3", "e3m2", "f32", 128, 32, 1, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0},
    {"f8f6f4", "e2m1", "e4m3", "f32", 128, 32, 1, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0},
    {"i8", "s8", "u8", "s32", 128, 48, 1, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0},
    {"i8", "u8", "s8", "s32", 64, 24, 1, 0, 0, 6, 2, 0, 0, 0, 0, 0, 0, 0},
    // the layouts of operands
    {"f16", "f16", "bf16", "f32", 128, 128, 1, 0, 0, 2, 2, 1, 1, 0, 0, 0, 0, 0},
    {"f16", "f16", "bf16", "f32", 64, 64, 1, 0, 0, 4, 6, 1, 1, 0, 0, 0, 0, 0},
    {"f16", "f16", "bf16", "f32", 64, 64, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0},
    {"f8f6f4", "e4m3", "e4m3", "f32", 128, 128, 1, 0, 0, 2, 4, 1, 1, 0, 0, 0, 0, 0},
    {"tf32", "tf32", "tf32", "f32", 128, 64, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0},
    {"f16", "f16", "f16", "f32", 128, 16, 1, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 1},
    {"f16", "f16", "f16", "f32", 128, 16, 1, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 2},
    // A in tensor memory
    {"f16", "bf16", "bf16", "f32", 128, 64, 1, 0, 1, 0, 2, 0, 1, 0, 0, 0, 0, 0},
    {"f16", "f16", "f16", "f32", 64, 64, 1, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0},
    {"tf32", "tf32", "tf32", "f32", 128, 16, 1, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0},
    {"f8f6f4", "e4m3", "e2m1", "f32", 128, 16, 1, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0},
    {"f8f6f4", "e2m1", "e5m2", "f32", 128, 16, 1, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0},
    {"i8", "s8", "s8", "s32", 128, 16, 1, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0},
    // .ws
    {"f16", "f16", "f16", "f32", 32, 64, 1, 1, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0},
    {"f16", "f16", "f16", "f32", 64, 128, 1, 1, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0},
    {"f16", "f16", "f16", "f32", 128, 256, 1, 1, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0},
    {"f16", "f16", "f16", "f32", 64, 64, 1, 1, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0},
    {"i8", "s8", "s8", "s32", 32, 256, 1, 1, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0},
    // pairs
    {"f16", "bf16", "bf16", "f32", 256, 256, 2, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0},
    {"f16", "f16", "f16", "f16", 256, 48, 2, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0},
    {"f16", "f16", "f16", "f32", 128, 128, 2, 0, 0, 2, 2, 0, 1, 0, 0, 0, 0, 0},
    {"f16", "f16", "f16", "f32", 256, 64, 2, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0},
    {"f16", "f16", "f16", "f32", 128, 64, 2, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0},
    {"f8f6f4", "e4m3", "e4m3", "f32", 256, 128, 2, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0},
    {"i8", "s8", "s8", "s32", 128, 64, 2, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0},
    // scales
    {"mxf8f6f4.block_scale.scale_vec::1X", "e4m3", "e5m2", "f32", 128, 64, 1, 0, 0, 2, 2, 0, 0, 32,
     1, 3, 1, 0},
    {"mxf8f6f4.block_scale.block32", "e2m1", "e3m2", "f32", 128, 128, 1, 0, 0, 2, 2, 0, 0, 32, 0, 0,
     1, 0},
    {"mxf4.block_scale.scale_vec::2X", "e2m1p", "e2m1p", "f32", 128, 64, 1, 0, 0, 2, 2, 0, 0, 32, 2,
     0, 1, 0},
    {"mxf4nvf4.block_scale.scale_vec::4X", "e2m1p", "e2m1p", "f32", 128, 256, 1, 0, 0, 2, 2, 0, 0,
     16, 0, 0, 0, 0},
    {"mxf4nvf4.block_scale.block16", "e2m1p", "e2m1p", "f32", 256, 64, 2, 0, 0, 2, 2, 0, 0, 16, 0,
     0, 1, 0},
    {"mxf8f6f4.block_scale", "e4m3", "e4m3", "f32", 256, 128, 2, 0, 0, 2, 2, 0, 0, 32, 0, 0, 1, 0},
    {"mxf4.block_scale", "e2m1p", "e2m1p", "f32", 128, 32, 1, 0, 1, 0, 2, 0, 0, 32, 0, 0, 1, 0},
};
enum { PRODUCTS = sizeof products / sizeof *products };

static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};

START_TEST(one_product) {
    const Product *p = &products[_i];
    char why[200];
    for (int way = 0; way < 4; way++) {
        set_up();
        options.async = orders[(_i + way) % 4];
        if (way == 1) options.numerics = NUMERICS_HARDWARE;
        if (way == 2) options.checks = 0;
        fill(p);
        // First without what is in D, then on top of it.
        ck_assert_int_eq(run_product(p, mma(p, "%off"), way % 2 ? mma(p, "%on") : ""), 0);
        expect_nothing(p->kind);
        ck_assert_msg(is_product(p, way % 2 ? 2 : 1, why), "%s", why);
    }
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

// Neither a finding, nor anything wrong?
static bool is_silent(const Product *p) {
    char why[200];
    run_product(p, mma(p, "%off"), "");
    return !findings_get(0) && is_product(p, 1, why);
}

// A without a swizzle, B MN-major with one, so that LBO and SBO count in both.
static const Product bitwise = {"f16", "f16", "f16", "f32", 128, 128, 1, 0, 0,
                                0,     2,     0,     1,     0,   0,   0, 0, 0};

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
    {29, 8u << 24, 31u << 24, NULL}, // M = 128 is right, too
    {29, 4u << 24, 31u << 24, "M = 64"},
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
    {29, 128}, // a pair, M = 256, N = 256
};

static double cycles_of(const Product *p, int count) {
    static char many[1 << 15];
    many[0] = 0;
    for (int k = 0; k < count; k++) strcat(many, mma(p, "%off"));
    set_up();
    options.timing = true;
    fill(p);
    run_product(p, many, "");
    expect_nothing(p->kind);
    return stats.cycles;
}

START_TEST(rate) {
    const Product *p = &products[rates[_i].product];
    double many = cycles_of(p, 120), each = (many - cycles_of(p, 40)) / 80;
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
