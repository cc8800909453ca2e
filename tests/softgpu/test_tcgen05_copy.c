// tcgen05.cp that unpacks, tcgen05.shift, tcgen05.mma with .ashift: every cell of tensor memory.
// What may follow what: test_tcgen05_order.c; copies that don't unpack: test_tcgen05_move.c.
#include "tensor_product.h"

Suite *suite_tcgen05_copy(void);

// ---- tcgen05.cp

static const struct {
    const char *shape;
    int rows, bytes;
    int first[4]; // row of the source in the first lane of each quarter; 4x256b: the only one
} copies[] = {{"128x256b", 128, 32, {0, 32, 64, 96}},
              {"128x128b", 128, 16, {0, 32, 64, 96}},
              {"4x256b", 4, 32, {0, 1, 2, 3}},
              {"64x128b.warpx2::02_13", 64, 16, {0, 32, 0, 32}},
              {"64x128b.warpx2::01_23", 64, 16, {0, 0, 32, 32}},
              {"32x128b.warpx4", 32, 16, {0, 0, 0, 0}}};

// The number `n` of the 16 that are packed at the start of 16 bytes, bit by bit.
static uint32_t packed(const uint8_t *piece, int bits, int n) {
    uint32_t number = 0;
    for (int b = 0; b < bits; b++) {
        int at = n * bits + b;
        number |= (uint32_t)(piece[at / 8] >> at % 8 & 1) << b;
    }
    return number;
}

static void check_copy(int shape, int bits, int code, int group) {
    char body[1000];
    set_up();
    options.async = orders[(shape + bits + code) % 4];
    blocks = group;
    for (int k = 0; k < IMAGE; k++)
        for (int block = 0; block < BLOCKS; block++)
            image[block][k] = (uint8_t)(k * 37 + k / 256 * 11 + block * 101);
    operand[0] = describe(SMEM, code, false);
    snprintf(body, sizeof body,
             "add.u32 %%r0, %%tm, 40; @%%lead tcgen05.cp.cta_group::%d.%s.b8x16.%s [%%r0], %%a;\n"
             "mov.b16 %%h0, %d; @%%lead tcgen05.commit.cta_group::%d.mbarrier::arrive::one."
             "shared::cluster.multicast::cluster.b64 [bar], %%h0;\n%s",
             group, copies[shape].shape, bits == 4 ? "b4x16_p64" : "b6x16_p32", group == 2 ? 3 : 1,
             group, AWAIT("W", "0", "0"));
    ck_assert_int_eq(run_tensor(1, body), 0);
    expect_nothing(copies[shape].shape);
    for (int block = 0; block < group; block++)
        for (int c = 0; c < TMEM_COLUMNS; c++)
            for (int l = 0; l < TMEM_LANES; l++) {
                int at = 4 * (c - 40), bit, row = copies[shape].first[l / 32] + l % 32;
                bool here = at >= 0 && at < copies[shape].bytes && (shape != 2 || l % 32 == 0);
                ck_assert_msg((written[block][c][l / 32] >> l % 32 & 1) == here, "%s: lane %d, %d",
                              copies[shape].shape, l, c);
                uint32_t want = 0;
                for (int n = 0; n < 4 && here; n++) {
                    uint32_t from = address_of(SMEM, code, false, 8, row, at / 16 * 16, &bit);
                    uint32_t number = packed(&image[block][from - SMEM], bits, at % 16 + n);
                    want |= number << (bits == 4 ? 2 : 1) << 8 * n; // in the middle of its byte
                }
                ck_assert_msg(!here || cells[block][c][l] == want,
                              "%s of %d bits: lane %d, column %d: %08x, not %08x",
                              copies[shape].shape, bits, l, c, cells[block][c][l], want);
            }
}

START_TEST(unpacked) {
    for (int bits = 4; bits <= 6; bits += 2)
        for (int code = 0; code <= 2; code += 2) check_copy(_i, bits, code, 1);
    check_copy(_i, _i % 2 ? 4 : 6, 2, 2);
}
END_TEST

// What a copy unpacks is what a product takes.
START_TEST(copied_a) {
    static const char *const types[] = {"e2m1", "e2m3", "e3m2"};
    Product p = {"f8f6f4", types[_i], "e4m3", "f32", 128, 32, 1, 0, 0, 2,
                 2,        0,         0,      0,     0,   0,  0, 0, 0, 0};
    char text[1000], why[200];
    set_up();
    fill(&p);
    snprintf(text, sizeof text, "@%%one tcgen05.cp.cta_group::1.128x256b.b8x16.%s [%%r10], %%a;\n",
             _i ? "b6x16_p32" : "b4x16_p64");
    p.a_tensor = true;
    run_product(&p, text, mma(&p, "%off"));
    expect_nothing(p.a);
    ck_assert_msg(is_product(&p, 1, why), "%s", why);
}
END_TEST

// Numbers that stand elsewhere in their bytes are told of.
START_TEST(not_in_the_middle) {
    static const struct {
        const char *type;
        uint32_t wrong;
    } bytes[] = {{"e2m1", 0x01}, {"e2m1", 0x40}, {"e3m2", 0x01}, {"e2m3", 0x80}};
    Product p = {
        "f8f6f4", bytes[_i].type, "e4m3", "f32", 128, 32, 1, 0, 1, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    set_up();
    fill(&p);
    in[0][77][5] |= bytes[_i].wrong << 16;
    run_product(&p, mma(&p, "%off"), "");
    expect_finding(FINDING_TENSOR, "at lane 77, column 260 on, where bytes have bits set");
}
END_TEST

// Of a piece with padding only the numbers must have been written.
START_TEST(padding) {
    static const struct {
        const char *format;
        int written; // bytes of each 16
        bool complete;
    } pieces[] = {{".b8x16.b4x16_p64", 8, true},
                  {".b8x16.b6x16_p32", 12, true},
                  {".b8x16.b6x16_p32", 8, false},
                  {"", 12, false}};
    char body[1000];
    set_up();
    // Four rows of two pieces at bar + 512, 64 bytes apart.
    operand[0] = (uint64_t)(SMEM - 512) >> 4 | 4ull << 16 | 16ull << 32 | 1ull << 46;
    snprintf(body, sizeof body,
             "setp.lt.u32 %%p1, %%t, 8; mad.lo.u32 %%r0, %%t, 16, 512; mov.u32 %%r1, bar;\n"
             "add.u32 %%r0, %%r0, %%r1; @%%p1 st.shared.v2.u32 [%%r0], {%%t, %%t};\n"
             "mov.u32 %%r3, %d; setp.eq.and.u32 %%p1, %%r3, 12, %%p1;\n"
             "@%%p1 st.shared.u32 [%%r0 + 8], %%t; fence.proxy.async; bar.sync 0;\n"
             "@%%one tcgen05.cp.cta_group::1.4x256b%s [%%tm], %%a;\n%s",
             pieces[_i].written, pieces[_i].format, COMMIT("0") AWAIT("W", "0", "0"));
    run_tensor(1, body);
    if (pieces[_i].complete)
        expect_nothing(pieces[_i].format);
    else
        expect_finding(FINDING_UNINITIALISED, "reads its source from shared memory");
}
END_TEST

// ---- tcgen05.shift

enum { COLUMNS = 16, FIRST = 3 }; // written, and shifted from there on

// 16 columns, from the registers, and to the other threads.
#define STORED                                                                                     \
    "tcgen05.st.sync.aligned.32x32b.x16.b32 [%%own], %s;\n" WAIT_ST BEFORE                         \
    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n" AFTER

START_TEST(shifted) {
    for (int way = 0; way < 8; way++) {
        int quarter = way % 4, group = 1 + way / 4;
        char body[3000];
        set_up();
        options.async = orders[(way + _i) % 4];
        options.timing = _i && options.async == ASYNC_TIMED;
        blocks = group;
        for (int block = 0; block < group; block++)
            for (int t = 0; t < THREADS; t++)
                for (int c = 0; c < COLUMNS; c++)
                    in[block][t][c] = (uint32_t)(block << 20 | t << 8 | c);
        snprintf(body, sizeof body,
                 STORED "add.u32 %%r0, %%tm, %d; @%%lead tcgen05.shift.down.cta_group::%d [%%r0];\n"
                        "mov.b16 %%h0, %d; @%%lead tcgen05.commit.cta_group::%d.mbarrier::arrive::"
                        "one.shared::cluster.multicast::cluster.b64 [bar], %%h0;\n%s",
                 registers(0, COLUMNS), quarter * (32 << 16) + FIRST, group, group == 2 ? 3 : 1,
                 group, AWAIT("W", "0", "0"));
        ck_assert_int_eq(run_tensor(COLUMNS, body), 0);
        expect_nothing("shift");
        for (int block = 0; block < group; block++)
            for (int c = 0; c < COLUMNS; c++)
                for (int l = 0; l < TMEM_LANES; l++) {
                    // 31 rows of 32 bytes: the last of the quarter stays.
                    bool moves = l / 32 == quarter && c >= FIRST && c < FIRST + 8 && l % 32 < 31;
                    uint32_t want = in[block][l + moves][c];
                    ck_assert_msg(cells[block][c][l] == want,
                                  "block %d, lane %d, column %d: %08x, not %08x", block, l, c,
                                  cells[block][c][l], want);
                }
    }
}
END_TEST

// What nothing has written moves, too.
START_TEST(undefined_moves) {
    set_up();
    run_tensor(
        1, "tcgen05.st.sync.aligned.16x32bx2.x8.b32 [%own], 8, {%t, %t, %t, %t, %t, %t, %t, "
           "%t};\n" WAIT_ST SYNC "@%one tcgen05.shift.cta_group::1.down [%tm];\n" COMMIT("0") AWAIT(
               "W", "0",
               "0") "tcgen05.ld.sync.aligned.16x64b.x4.b32 {%r0, %r1, %r2, %r3}, [%own];" WAIT_LD);
    expect_finding(FINDING_UNINITIALISED, "loads tensor memory at lane 15, column 0");
    for (int c = 0; c < 16; c++)
        for (int q = 0; q < 4; q++)
            ck_assert_uint_eq(written[0][c][q], q == 0 && c < 8 ? 0x7fff : 0xffff);
}
END_TEST

// ---- .ashift

static const Product moving[] = {
    {"f16.ashift", "f16", "f16", "f32", 128, 64, 1, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"tf32.ashift", "tf32", "tf32", "f32", 128, 16, 1, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"i8.ashift.collector::a::lastuse",
     "s8",
     "s8",
     "s32",
     128,
     16,
     1,
     0,
     1,
     0,
     2,
     0,
     0,
     0,
     0,
     0,
     0,
     0,
     0,
     0},
    {"f16.ashift", "bf16", "bf16", "f32", 256, 64, 2, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    {"f16.ashift", "f16", "f16", "f32", 128, 64, 2, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0},
};
enum { MOVING = sizeof moving / sizeof *moving };

// Twice in a row: the product takes A as it was, and leaves it moved.
START_TEST(ashift) {
    const Product *p = &moving[_i];
    for (int way = 0; way < 4; way++) {
        set_up();
        options.async = orders[way];
        fill(p);
        ck_assert_int_eq(run_product(p, mma(p, "%off"), mma(p, "%on")), 0);
        expect_nothing(p->kind);
        for (int m = 0; m < p->m; m++)
            for (int n = 0; n < p->n; n++) {
                int block, lane, column, moved = m % 32 == 31 ? m : m + 1;
                place_d(p, m, n, &block, &lane, &column);
                uint32_t want = code_of(p->d, sum_of(p, m, n) + sum_of(p, moved, n));
                uint32_t got = cells[block][column][lane];
                ck_assert_msg(got == want || !((got | want) << 1), "%s (%d, %d): %08x, not %08x",
                              p->kind, m, n, got, want);
            }
        for (int block = 0; block < p->group; block++)
            for (int c = 0; c < 8; c++)
                for (int l = 0; l < TMEM_LANES; l++) {
                    int from = l % 32 < 30 ? l + 2 : l / 32 * 32 + 31;
                    ck_assert_uint_eq(cells[block][A_COLUMN + c][l], in[block][from][c]);
                }
    }
}
END_TEST

Suite *suite_tcgen05_copy(void) {
    Suite *suite = suite_create("tcgen05_copy");
    TCase *tests = tcase_create("tcgen05_copy");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, unpacked, 0, sizeof copies / sizeof *copies);
    tcase_add_loop_test(tests, copied_a, 0, 3);
    tcase_add_loop_test(tests, not_in_the_middle, 0, 4);
    tcase_add_loop_test(tests, padding, 0, 4);
    tcase_add_loop_test(tests, shifted, 0, 2);
    tcase_add_test(tests, undefined_moves);
    tcase_add_loop_test(tests, ashift, 0, MOVING);
    suite_add_tcase(suite, tests);
    return suite;
}
