// tcgen05.mma.sp: sparse products of all kinds, shapes and sources of A, element by element; what
// their metadata may be and where they lie; what doesn't meet an element of A; time. Dense ones:
// test_tcgen05_mma.c.
#include "tensor_product.h"

Suite *suite_tcgen05_sparse(void);

// In the order of Product; what is 0 is left out.
static const Product products[] = {
    // kinds, and which column of the pair
    {"f16", "f16", "f16", "f32", 128, 64, 1, .a_code = 2, .b_code = 2, .sparse = true},
    {"f16", "bf16", "f16", "f32", 128, 256, 1, .a_code = 2, .b_code = 4, .sparse = true,
     .selector = 1},
    {"f16", "f16", "f16", "f16", 64, 24, 1, .a_code = 4, .sparse = true},
    {"tf32", "tf32", "tf32", "f32", 128, 48, 1, .a_code = 2, .b_code = 2, .sparse = true},
    {"tf32", "tf32", "tf32", "f32", 64, 16, 1, .a_code = 6, .sparse = true, .selector = 1},
    {"f8f6f4", "e4m3", "e5m2", "f32", 128, 32, 1, .a_code = 2, .b_code = 2, .sparse = true},
    {"f8f6f4", "e2m3", "e2m1", "f32", 64, 32, 1, .sparse = true},
    {"i8", "s8", "u8", "s32", 128, 48, 1, .a_code = 2, .b_code = 4, .sparse = true},
    // the layouts of operands
    {"f16", "f16", "bf16", "f32", 128, 64, 1, .a_code = 2, .b_code = 2, .a_mn = true, .b_mn = true,
     .sparse = true},
    {"f16", "f16", "bf16", "f32", 128, 64, 1, .a_mn = true, .b_mn = true, .sparse = true,
     .selector = 1},
    {"tf32", "tf32", "tf32", "f32", 128, 32, 1, .a_code = 1, .b_code = 1, .a_mn = true,
     .b_mn = true, .sparse = true},
    {"f8f6f4", "e4m3", "e4m3", "f32", 128, 128, 1, .a_code = 2, .b_code = 2, .a_mn = true,
     .b_mn = true, .sparse = true},
    {"f16", "f16", "f16", "f32", 128, 16, 1, .a_code = 2, .b_code = 2, .negate = 1, .sparse = true},
    // A in tensor memory
    {"f16", "bf16", "bf16", "f32", 128, 64, 1, .a_tensor = true, .b_code = 2, .b_mn = true,
     .sparse = true},
    {"f16", "f16", "f16", "f32", 64, 64, 1, .a_tensor = true, .b_code = 2, .sparse = true,
     .selector = 1},
    {"tf32", "tf32", "tf32", "f32", 128, 16, 1, .a_tensor = true, .b_code = 2, .sparse = true,
     .selector = 1},
    {"f8f6f4", "e3m2", "e2m1", "f32", 64, 16, 1, .a_tensor = true, .b_code = 2, .sparse = true},
    {"i8", "s8", "s8", "s32", 128, 16, 1, .a_tensor = true, .b_code = 2, .sparse = true},
    // .ws
    {"f16", "f16", "f16", "f32", 32, 64, 1, .ws = true, .a_code = 2, .b_code = 2, .sparse = true,
     .selector = 1},
    {"f16", "f16", "f16", "f32", 64, 128, 1, .ws = true, .a_tensor = true, .b_code = 2,
     .sparse = true},
    {"tf32", "tf32", "tf32", "f32", 32, 128, 1, .ws = true, .a_code = 2, .b_code = 2,
     .sparse = true},
    {"f8f6f4", "e5m2", "e4m3", "f32", 64, 64, 1, .ws = true, .a_code = 2, .b_code = 2,
     .sparse = true},
    {"i8", "s8", "s8", "s32", 128, 64, 1, .ws = true, .a_code = 2, .b_code = 2, .sparse = true},
    // pairs
    {"f16", "bf16", "bf16", "f32", 256, 128, 2, .a_code = 2, .b_code = 2, .sparse = true,
     .selector = 1},
    {"f16", "f16", "f16", "f32", 128, 64, 2, .a_code = 2, .b_code = 2, .sparse = true},
    {"f16", "f16", "f16", "f32", 128, 64, 2, .a_tensor = true, .b_code = 2, .sparse = true,
     .selector = 1},
    {"tf32", "tf32", "tf32", "f32", 256, 32, 2, .a_tensor = true, .b_code = 2, .sparse = true},
    {"f8f6f4", "e4m3", "e4m3", "f32", 128, 64, 2, .a_code = 2, .b_code = 4, .sparse = true},
    {"i8", "s8", "s8", "s32", 256, 64, 2, .a_code = 2, .b_code = 2, .sparse = true},
    // scales: one for twice as many elements of k
    {"mxf8f6f4.block_scale.scale_vec::1X", "e4m3", "e5m2", "f32", 128, 64, 1, .a_code = 2,
     .b_code = 2, .block = 64, .id_a = 1, .id_b = 3, .e8 = true, .sparse = true},
    {"mxf8f6f4.block_scale", "e3m2", "e2m1", "f32", 256, 64, 2, .a_tensor = true, .b_code = 2,
     .block = 64, .id_a = 2, .e8 = true, .sparse = true},
    {"mxf4.block_scale.scale_vec::2X", "e2m1p", "e2m1p", "f32", 128, 64, 1, .a_code = 2,
     .b_code = 2, .block = 64, .id_a = 2, .e8 = true, .sparse = true},
    {"mxf4nvf4.block_scale.scale_vec::4X", "e2m1p", "e2m1p", "f32", 128, 128, 1, .a_code = 2,
     .b_code = 4, .block = 32, .sparse = true},
    {"mxf4nvf4.block_scale.block16", "e2m1p", "e2m1p", "f32", 256, 32, 2, .a_tensor = true,
     .b_code = 2, .block = 32, .e8 = true, .sparse = true},
};
enum { PRODUCTS = sizeof products / sizeof *products };

START_TEST(one_product) {
    check_product(&products[_i], _i);
}
END_TEST

// ---- what no element of A meets

// Infinities and NaNs in B count only where an element of A is stored.
START_TEST(unmet) {
    const Product *p = &products[0]; // f16, K = 32, B K-major with 128B swizzle
    static const uint32_t special[] = {0x7c00, 0xfc00, 0x7e00};
    for (int hardware = 0; hardware < 2; hardware++) {
        set_up();
        options.numerics = hardware ? NUMERICS_HARDWARE : NUMERICS_FAST;
        fill(p);
        int bit;
        for (int n = 0; n < 3; n++) { // column n has one at k = 5 n
            uint32_t at = address_of(B_AT, p->b_code, p->b_mn, 16, n, 5 * n, &bit) - SMEM;
            image[0][at] = (uint8_t)special[n];
            image[0][at + 1] = (uint8_t)(special[n] >> 8);
        }
        run_product(p, mma(p, "%off"), "");
        expect_nothing("unmet");
        int met = 0, unmet = 0;
        for (int m = 0; m < p->m; m++)
            for (int n = 0; n < p->n; n++) {
                int a = 0;
                bool is_met = false;
                for (int at = 0; at < stored_of(p) && n < 3; at++)
                    if (place_of(p, m, at) == 5 * n) is_met = true, a = a_stored(p, m, at);
                uint32_t got = cells[0][n][m], want;
                if (is_met) {
                    bool nan = n == 2 || a == 0; // 0 times infinity
                    want = nan ? 0x7fffffff : (a > 0) == (n == 0) ? 0x7f800000 : 0xff800000;
                    met++;
                } else {
                    // What the usual number at that place would have added isn't there, either.
                    want = code_of("f32", sum_of(p, m, n));
                    unmet += n < 3;
                }
                ck_assert_msg(got == want || !((got | want) << 1), "(%d, %d): %08x, not %08x", m, n,
                              got, want);
            }
        ck_assert_int_gt(met, 50);
        ck_assert_int_gt(unmet, 50);
    }
}
END_TEST

// ---- metadata

// Of the 16 values of 4 bits those that mean something are taken, the others found.
START_TEST(chunk_bits) {
    static const struct {
        int product;
        uint32_t meaningful; // a bit for each value
    } kinds[] = {{0, 1 << 0x4 | 1 << 0x8 | 1 << 0xc | 1 << 0x9 | 1 << 0xd | 1 << 0x6 | 1 << 0xe},
                 {3, 1 << 0x4 | 1 << 0xe},
                 {5, 1 << 0x4 | 1 << 0x8 | 1 << 0xc | 1 << 0x9 | 1 << 0xd | 1 << 0x6 | 1 << 0xe},
                 {31, 1 << 0x4 | 1 << 0x8 | 1 << 0xc | 1 << 0x9 | 1 << 0xd | 1 << 0x6 | 1 << 0xe}};
    const Product *p = &products[kinds[_i].product];
    char why[200];
    for (uint32_t bits = 0; bits < 16; bits++) {
        set_up();
        fill(p);
        uint32_t *word = &in[0][70][20], old = *word >> 4 & 0xf;
        *word = (*word & ~0xf0u) | bits << 4;
        run_product(p, mma(p, "%off"), "");
        if (!(kinds[_i].meaningful >> bits & 1)) {
            expect_finding(FINDING_TENSOR, "which means nothing, in lane 70");
            continue;
        }
        expect_nothing(p->kind);
        ck_assert_msg(is_product(p, 1, why) == (bits == old), "%s: bits %x in place of %x", p->kind,
                      bits, old);
    }
}
END_TEST

// No bit of the metadata is without a meaning.
START_TEST(metadata_bits) {
    static const int kinds[] = {0, 1, 3, 5, 31};
    const Product *p = &products[kinds[_i]];
    int columns = bits_of(p->a) >= 16 ? 1 : 2;
    for (int bit = 0; bit < 32 * columns; bit++) {
        set_up();
        fill(p);
        // In some rows at once: an element that is 0 may stand anywhere.
        for (int t = 32; t < 64; t++) in[0][t][20 + p->selector + bit / 32] ^= 1u << bit % 32;
        ck_assert_msg(!is_silent(p), "%s: bit %d of the metadata", p->kind, bit);
    }
}
END_TEST

#define META(at)   "add.u32 %r13, %tm, " at ";\n"
#define HALF_UP(r) "add.u32 " r ", " r ", 0x100000;\n"

// Where metadata may lie.
static const struct {
    int product;
    const char *before;
    FindingKind kind;
    const char *words;
} places[] = {
    {0, META("331"), FINDING_TENSOR, "takes its metadata from column 331"},
    {5, META("331"), FINDING_TENSOR, "takes its metadata from column 331"},
    {0, META("340"), FINDING_UNINITIALISED, "takes metadata from tensor memory at column 340"},
    {5, META("328"), FINDING_UNINITIALISED, "takes metadata from tensor memory at column 328"},
    {0, META("512"), FINDING_OUT_OF_BOUNDS, "takes metadata from columns 512 to 512"},
    {5, META("600"), FINDING_OUT_OF_BOUNDS, "takes metadata from columns 600 to 601"},
    {0, HALF_UP("%r13"), FINDING_TENSOR, "the metadata begins at lane 16"},
    {4, HALF_UP("%r13"), FINDING_TENSOR, "the metadata begins at lane 16 of tensor memory and D"},
    {14, HALF_UP("%r10"), FINDING_TENSOR, "A begins at lane 16 of tensor memory and D at lane 0"},
    {24, HALF_UP("%r13"), FINDING_TENSOR, "the metadata begins at lane 16 of tensor memory and D"},
    {29, HALF_UP("%r11"), FINDING_TENSOR, "the scales of A begins at lane 16"},
};

START_TEST(wrong_place) {
    const Product *p = &products[places[_i].product];
    char text[2000];
    set_up();
    fill(p);
    snprintf(text, sizeof text, "%s%s", places[_i].before, mma(p, "%off"));
    run_product(p, text, "");
    expect_finding(places[_i].kind, places[_i].words);
}
END_TEST

// All in the other half of the lanes. D, A and metadata move by 16 lanes; the rest stays.
START_TEST(upper_half) {
    const Product *p = &products[_i ? 25 : 14];
    char text[2000], why[200];
    set_up();
    fill(p);
    for (int block = 0; block < p->group; block++)
        for (int t = 0; t < THREADS; t += 32)
            for (int l = 0; l < 16; l++) {
                memcpy(in[block][t + 16 + l], in[block][t + l], sizeof in[block][t]);
                memset(in[block][t + l], 0xff, sizeof in[block][t]);
            }
    snprintf(text, sizeof text,
             HALF_UP("%%r10") HALF_UP("%%r13") HALF_UP("%%tm") "%s" //
                                                               "sub.u32 %%tm, %%tm, 0x100000;\n",
             mma(p, "%off"));
    run_product(p, text, "");
    expect_nothing("upper half");
    for (int block = 0; block < p->group; block++)
        for (int c = 0; c < A_COLUMN; c++) {
            for (int l = 0; l < TMEM_LANES; l++)
                if (l % 32 < 16) cells[block][c][l] = cells[block][c][l + 16];
            for (int k = 0; k < TMEM_LANES / 32; k++) written[block][c][k] >>= 16;
        }
    ck_assert_msg(is_product(p, 1, why), "%s", why);
}
END_TEST

// .ws has copies of A and metadata for each part of the unit: they must be the same.
START_TEST(copies_differ) {
    const Product *p = &products[19];
    static const struct {
        int lane, word;
        const char *words;
    } at[] = {{70, 3, "takes A from tensor memory at column 259"},
              {90, 20, "takes metadata from tensor memory at column 330"}};
    set_up();
    fill(p);
    in[0][at[_i].lane][at[_i].word] ^= 1u << 20;
    run_product(p, mma(p, "%off"), "");
    expect_finding(FINDING_TENSOR, at[_i].words);
}
END_TEST

// ---- descriptors

static const struct {
    int product;
    uint32_t set, clear; // bits of the instruction descriptor
    const char *words;
} wrong[] = {
    {0, 0, 4, "bit 2 (sparse) is 0"},
    {0, 2, 0, "what 2 and 3 select is not known"},
    {3, 3, 0, "what 2 and 3 select is not known"},
    {5, 1, 0, "which only f16 and tf32 have"},
    {7, 2, 0, "which only f16 and tf32 have"},
    {29, 1, 0, "which only f16 and tf32 have"},
    {19, 256u / 8 << 17, 63 << 17, "and with .sp no more"},
    {30, 8u << 24, 31u << 24, "with scales and a sparse A .cta_group::2 has 256"},
};

START_TEST(wrong_instruction) {
    const Product *p = &products[wrong[_i].product];
    set_up();
    fill(p);
    number[0] = (number[0] & ~wrong[_i].clear) | wrong[_i].set;
    run_product(p, mma(p, "%off"), "");
    expect_finding(FINDING_TENSOR, wrong[_i].words);
}
END_TEST

// Of B 64 bytes of k are taken, which a line of 32 hasn't.
START_TEST(narrow_line) {
    Product p = products[0];
    p.b_code = 6;
    set_up();
    fill(&p);
    run_product(&p, mma(&p, "%off"), "");
    expect_finding(FINDING_TENSOR, "takes 64 bytes of k of each column of B");
}
END_TEST

// ---- time

// Twice the K in the time of a dense one, if B comes in time: N = 64 with A in tensor memory takes
// 32 cycles, which is what 4 KiB of B take, too; N = 256 with A and B in shared memory 20 KiB, 160.
START_TEST(rate) {
    static const struct { int product, cycles; } rates[] = {{13, 32}, {1, 160}};
    const Product *p = &products[rates[_i].product];
    double many = product_cycles(p, 120), each = (many - product_cycles(p, 40)) / 80;
    ck_assert_msg(each > rates[_i].cycles - 1 && each < rates[_i].cycles + 1,
                  "%s M %d N %d: %.1f cycles, not %d", p->kind, p->m, p->n, each, rates[_i].cycles);
    ck_assert_double_eq(stats.flops_tensor, 40 * 2.0 * p->m * p->n * stored_of(p));
}
END_TEST

Suite *suite_tcgen05_sparse(void) {
    Suite *suite = suite_create("tcgen05_sparse");
    TCase *tests = tcase_create("tcgen05_sparse");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, one_product, 0, PRODUCTS);
    tcase_add_test(tests, unmet);
    tcase_add_loop_test(tests, chunk_bits, 0, 4);
    tcase_add_loop_test(tests, metadata_bits, 0, 5);
    tcase_add_loop_test(tests, wrong_place, 0, sizeof places / sizeof *places);
    tcase_add_loop_test(tests, upper_half, 0, 2);
    tcase_add_loop_test(tests, copies_differ, 0, 2);
    tcase_add_loop_test(tests, wrong_instruction, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(tests, narrow_line);
    tcase_add_loop_test(tests, rate, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
