// tcgen05.ld and .st: every shape and count, element by element, against the tables of the PTX ISA
// written down once more; packing; who may reach which lanes; allocation.
#include "tensor_kernel.h"

Suite *suite_tcgen05_move(void);

typedef struct {
    const char *shape;
    int registers; // for .x1
    int columns;   // of .x1
    int most;
} Shape;
static const Shape shapes[] = {
    {"32x32b", 1, 1, 128}, {"16x64b", 1, 2, 128},   {"16x128b", 2, 4, 64},
    {"16x256b", 4, 8, 32}, {"16x32bx2", 1, 1, 128},
};
enum { SHAPES = 5, COUNTS = 8, SECOND = 40 };

// Row and column (of `columns` of 32 bits, or packed ones of 16) of register j of a lane, as PTX's
// figures have it: quads of lanes share a row of the fragments of 16 rows.
static void place(int shape, int j, int lane, int second, int *row, int *column) {
    int quad = lane / 4, in_quad = lane % 4;
    switch (shape) {
    case 0: *row = lane, *column = j; return;
    case 1: // lanes 0, 2 of a quad: the upper 8 rows; 1, 3: the lower
        *row = quad + (in_quad % 2 ? 8 : 0);
        *column = 2 * j + (in_quad >= 2);
        return;
    case 2: *row = quad + (j % 2 ? 8 : 0), *column = j / 2 * 4 + in_quad; return;
    case 3:
        *row = quad + (j % 4 >= 2 ? 8 : 0);
        *column = j / 4 * 8 + in_quad * 2 + j % 2;
        return;
    default: *row = lane % 16, *column = lane < 16 ? j : second + j; return;
    }
}

static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};

static uint32_t pattern(int lane, int column) {
    return (uint32_t)(lane * 977 + column * 131071 + 12345);
}

// All of 256 columns, by stores of 32x32b. (Its map is checked in `stores`.)
#define PREFILL                                                                                    \
    "mov.u32 %r10, 0; PRE: mad.lo.u32 %r11, %t, 977, 12345; mad.lo.u32 %r11, %r10, 131071, %r11;"  \
    "add.u32 %r12, %own, %r10; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12], {%r11};\n"            \
    "add.u32 %r10, %r10, 1; setp.lt.u32 %p0, %r10, 320; @%p0 bra PRE;\n" WAIT_ST

// One shape and count: loads, from the first lanes or (half) from the 17th on.
static void check_load(int shape, int count, bool packed, int half) {
    char body[9000], name[60];
    const Shape *s = &shapes[shape];
    int n = count * s->registers;
    snprintf(name, sizeof name, "%s.x%d%s", s->shape, count, packed ? ".pack::16b" : "");
    snprintf(body, sizeof body, "%stcgen05.ld.sync.aligned.%s.b32 %s, [%%own + %d]%s;\n" WAIT_LD,
             PREFILL, name, registers(0, n), half * (16 << 16) + 3, shape == 4 ? ", 40" : "");
    memset(in, 0, sizeof in);
    ck_assert_int_eq(run_tensor(n, body), 0);
    expect_nothing(name);
    for (int t = 0; t < THREADS; t++)
        for (int j = 0; j < n; j++) {
            int row, column;
            place(shape, j, t % 32, 0, &row, &column);
            row += t / 32 * 32 + 16 * half;
            int second = shape == 4 && t % 32 >= 16 ? SECOND : 0;
            uint32_t want;
            if (packed)
                want = (pattern(row, 2 * column + second + 3) & 0xffff) |
                       pattern(row, 2 * column + second + 4) << 16;
            else
                want = pattern(row, column + second + 3);
            ck_assert_msg(out[0][t][j] == want, "%s, thread %d, register %d: %08x, not %08x", name,
                          t, j, out[0][t][j], want);
        }
}

START_TEST(loads) {
    for (int k = 0; k < COUNTS; k++) {
        set_up();
        options.async = orders[k % 4];
        if (1 << k > shapes[_i].most) continue;
        check_load(_i, 1 << k, false, _i == 0 ? 0 : k % 2);
        int wide = (_i == 4 ? SECOND : 0) + 2 * (shapes[_i].columns << k);
        if (wide <= 300) check_load(_i, 1 << k, true, 0);
    }
}
END_TEST

static void check_store(int shape, int count, bool packed, int half) {
    char body[9000], name[60];
    const Shape *s = &shapes[shape];
    int n = count * s->registers;
    snprintf(name, sizeof name, "%s.x%d%s", s->shape, count, packed ? ".unpack::16b" : "");
    snprintf(body, sizeof body, "tcgen05.st.sync.aligned.%s.b32 [%%own + %d]%s, %s;\n" WAIT_ST,
             name, half * (16 << 16) + 5, shape == 4 ? ", 200" : "", registers(0, n));
    for (int t = 0; t < THREADS; t++)
        for (int j = 0; j < n; j++) in[0][t][j] = (uint32_t)(t << 20 | j << 4 | 0x8001);
    ck_assert_int_eq(run_tensor(n, body), 0);
    expect_nothing(name);
    static bool mine[TMEM_COLUMNS][TMEM_LANES];
    memset(mine, 0, sizeof mine);
    for (int t = 0; t < THREADS; t++)
        for (int j = 0; j < n; j++) {
            int row, column;
            place(shape, j, t % 32, 0, &row, &column);
            row += t / 32 * 32 + 16 * half;
            int first = 5 + (shape == 4 && t % 32 >= 16 ? 200 : 0);
            for (int part = 0; part < (packed ? 2 : 1); part++) {
                int c = first + (packed ? 2 * column + part : column);
                uint32_t want = packed ? in[0][t][j] >> 16 * part & 0xffff : in[0][t][j];
                uint32_t got = packed ? cells[0][c][row] & 0xffff : cells[0][c][row];
                ck_assert_msg(got == want, "%s, thread %d, register %d: %08x, not %08x", name, t, j,
                              got, want);
                ck_assert_msg(!mine[c][row], "%s: two registers at lane %d, column %d", name, row,
                              c);
                mine[c][row] = true;
            }
        }
    // Nothing else has been written.
    for (int c = 0; c < TMEM_COLUMNS; c++)
        for (int l = 0; l < TMEM_LANES; l++)
            ck_assert_msg((written[0][c][l / 32] >> l % 32 & 1) == mine[c][l],
                          "%s: lane %d, column %d", name, l, c);
}

START_TEST(stores) {
    for (int k = 0; k < COUNTS; k++) {
        set_up();
        options.async = orders[k % 4];
        if (1 << k > shapes[_i].most) continue;
        check_store(_i, 1 << k, false, _i == 0 ? 0 : k % 2);
        if ((shapes[_i].columns << k) * 2 <= (_i == 4 ? 200 : 500))
            check_store(_i, 1 << k, true, 0);
    }
}
END_TEST

// A load of one shape is none of another that brings as many registers, nor one that packs, begins
// a column or 16 lanes further, or has its second half elsewhere.
typedef struct {
    int shape, lane, column, second;
    bool packed;
} Load;

static uint32_t loaded(const Load *l, int t, int j) {
    int row, column;
    place(l->shape, j, t % 32, 0, &row, &column);
    row += t / 32 * 32 + l->lane;
    int first = l->column + (l->shape == 4 && t % 32 >= 16 ? l->second : 0);
    if (!l->packed) return pattern(row, column + first);
    return (pattern(row, 2 * column + first) & 0xffff) | pattern(row, 2 * column + first + 1) << 16;
}

static bool is_load(const Load *l, int n) {
    for (int t = 0; t < THREADS; t++)
        for (int j = 0; j < n; j++)
            if (out[0][t][j] != loaded(l, t, j)) return false;
    return true;
}

START_TEST(loads_differ) {
    enum { N = 4 };
    char body[4000];
    const Load right = {_i, 0, 3, SECOND, false};
    set_up();
    snprintf(body, sizeof body, "%stcgen05.ld.sync.aligned.%s.x%d.b32 %s, [%%own + 3]%s;\n" WAIT_LD,
             PREFILL, shapes[_i].shape, N / shapes[_i].registers, registers(0, N),
             _i == 4 ? ", 40" : "");
    memset(in, 0, sizeof in);
    ck_assert_int_eq(run_tensor(N, body), 0);
    expect_nothing(shapes[_i].shape);
    ck_assert(is_load(&right, N));
    for (int shape = 0; shape < SHAPES; shape++)
        for (int change = 0; change < 6; change++) {
            Load wrong = right;
            wrong.shape = shape;
            if (change == 1) wrong.column++;
            if (change == 2) wrong.column--;
            if (change == 3) wrong.lane += 16;
            if (change == 4) wrong.packed = true;
            if (change == 5) wrong.second++;
            bool same = shape == _i && (change == 0 || (change == 5 && shape != 4));
            ck_assert_msg(is_load(&wrong, N) == same, "%s is a load of %s, change %d",
                          shapes[_i].shape, shapes[shape].shape, change);
        }
}
END_TEST

// What a copy of another shape, or from elsewhere, would have brought is not what one brings: the
// lanes and columns that it writes, or what stands there, tell them apart.
START_TEST(copies_differ) {
    static uint32_t first_cells[TMEM_COLUMNS][TMEM_LANES], first_written[TMEM_COLUMNS][4];
    static const char *const copies[] = {"128x256b",
                                         "128x128b",
                                         "4x256b",
                                         "64x128b.warpx2::02_13",
                                         "64x128b.warpx2::01_23",
                                         "32x128b.warpx4",
                                         "32x128b.warpx4.b8x16.b4x16_p64",
                                         "32x128b.warpx4.b8x16.b6x16_p32"};
    enum { COPIES = sizeof copies / sizeof *copies };
    const uint64_t right = describe(SMEM, 0, false);
    for (int k = 0; k < IMAGE; k++) image[0][k] = (uint8_t)(k * 37 + k / 256 * 11);
    for (int other = 0; other < COPIES + 9; other++) {
        char body[1000];
        uint64_t wrong = right;
        if (other >= COPIES) {
            static const int bits[] = {0, 16, 32, 46, 49, 52, 53, 61, 62};
            wrong += 1ull << bits[other - COPIES]; // start, LBO, SBO, and what isn't a number
        }
        set_up();
        operand[0] = other == 0 ? right : wrong;
        snprintf(body, sizeof body, "@%%one tcgen05.cp.cta_group::1.%s [%%tm], %%a;\n%s",
                 copies[other == 0 || other >= COPIES ? _i
                        : other == _i                 ? 0
                                                      : other],
                 COMMIT("0") AWAIT("W", "0", "0"));
        run_tensor(1, body);
        if (other == 0) {
            expect_nothing(copies[_i]);
            memcpy(first_cells, cells[0], sizeof first_cells);
            memcpy(first_written, written[0], sizeof first_written);
            continue;
        }
        // One piece of 16 bytes in a row, and no more than 8 rows: then LBO, SBO don't count.
        bool one_piece = _i != 0 && _i != 2, eight_rows = _i == 2;
        bool may = (other == COPIES + 1 && one_piece) || (other == COPIES + 2 && eight_rows);
        bool same = !memcmp(first_written, written[0], sizeof first_written);
        for (int c = 0; c < 8 && same; c++)
            for (int l = 0; l < TMEM_LANES; l++)
                if (first_written[c][l / 32] >> l % 32 & 1)
                    same &= first_cells[c][l] == cells[0][c][l];
        ck_assert_msg(may == (same && !findings_get(0)), "%s, change %d", copies[_i], other);
    }
}
END_TEST

// ---- what may not be done

#define ALLOC(n, at)                                                                               \
    "@%p6 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [bar+" at "], " n ";\n"
#define FREE(n)                                                                                    \
    "bar.sync 0; ld.shared.u32 %tm, [bar+64]; @%p6 "                                               \
    "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, " n ";\n"
#define LOAD  "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%x0}, "
#define STORE "tcgen05.st.sync.aligned.32x32b.x1.b32 "
#define TM    "bar.sync 0; ld.shared.u32 %tm, [bar+64];\n"

static const struct {
    int columns;
    const char *body;
    FindingKind kind;
    const char *words; // NULL: no finding
} cases[] = {
    {0, ALLOC("64", "64") FREE("64"), 0, NULL},
    {0,
     ALLOC("64", "64") ALLOC("32", "68")
         FREE("64") "ld.shared.u32 %tm, [bar+68]; @%p6 "
                    "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, 32;\n"
                    "@%p6 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;",
     0, NULL},
    {0, ALLOC("64", "64"), FINDING_TENSOR, "has not freed 64 columns"},
    {0, "mov.u32 %r10, 48;" ALLOC("%r10", "64"), FINDING_TENSOR, "allocates 48 columns"},
    {0, "mov.u32 %r10, %t;" ALLOC("%r10", "64"), FINDING_DIVERGENT, "number of columns differs"},
    {0, ALLOC("32", "64") ALLOC("64", "68"), FINDING_LINT, "must not grow"},
    {0,
     ALLOC("32", "64") "@%p6 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ALLOC(
         "32", "68"),
     FINDING_TENSOR, "given up its permit"},
    {0, ALLOC("64", "64") FREE("32"), FINDING_TENSOR, "of another size"},
    {0, ALLOC("64", "64") FREE("64") FREE("64"), FINDING_TENSOR, "no allocation"},
    {0,
     ALLOC("64", "64") TM "ld.shared.u32 %tm, [bar+64]; add.u32 %tm, %tm, 32;"
                          "@%p6 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, 32;",
     FINDING_TENSOR, "no allocation"},
    {0, ALLOC("512", "64") ALLOC("32", "68"), FINDING_DEADLOCK, "columns of tensor memory"},
    {0, ALLOC("64", "64") "ld.shared.u32 %tm, [bar+64];" FREE("64"), FINDING_RACE,
     "nothing puts the two in order"},
    // lanes and columns
    {64, STORE "[%own], {%t};" WAIT_ST LOAD "[%own];" WAIT_LD, 0, NULL},
    {64, STORE "[%tm], {%t};" WAIT_ST, FINDING_TENSOR, "memory from lane 0 on: warp"},
    {64, "add.u32 %r10, %own, 1048576;" STORE "[%r10], {%t};" WAIT_ST, FINDING_TENSOR,
     "all of them with .32x32b"},
    {64, "add.u32 %r10, %own, 524288; tcgen05.st.sync.aligned.16x64b.x1.b32 [%r10], {%t};" WAIT_ST,
     FINDING_TENSOR, "from the first or the 17th on"},
    {64, STORE "[%own + 64], {%t};" WAIT_ST, FINDING_OUT_OF_BOUNDS, "has not allocated"},
    {64, "tcgen05.st.sync.aligned.16x256b.x1.b32 [%own + 57], {%t, %t, %t, %t};" WAIT_ST,
     FINDING_OUT_OF_BOUNDS, "columns"},
    {64, "add.u32 %r10, %own, %t;" STORE "[%r10], {%t};" WAIT_ST, FINDING_DIVERGENT,
     "address differs"},
    {64, LOAD "[%own];" WAIT_LD, FINDING_UNINITIALISED, "nothing has written"},
    // waits
    {64, STORE "[%own], {%t};" WAIT_ST LOAD "[%own]; add.u32 %x0, %x0, 1;" WAIT_LD, FINDING_RACE,
     "still in flight"},
    {64, STORE "[%own], {%t};" WAIT_ST LOAD "[%own]; mov.u32 %x0, 1;" WAIT_LD, FINDING_RACE,
     "writes a register"},
    {64, STORE "[%own], {%t};" LOAD "[%own];" WAIT_ST WAIT_LD, FINDING_RACE, "a tcgen05.st writes"},
    {64, STORE "[%own], {%t};" WAIT_ST LOAD "[%own];" STORE "[%own], {%t};" WAIT_ST WAIT_LD,
     FINDING_RACE, "may still be reading"},
    {64, STORE "[%own], {%t};" WAIT_ST LOAD "[%own];" WAIT_LD STORE "[%own], {%t};" WAIT_ST, 0,
     NULL},
    {64,
     STORE "[%own], {%t};" WAIT_ST "setp.lt.u32 %p1, %t, 7; @%p1 bra SOME;" LOAD "[%own];" WAIT_LD
           "SOME:",
     FINDING_DIVERGENT, "wait"},
};
enum { CASES = sizeof cases / sizeof *cases };

START_TEST(one_case) {
    for (int way = 0; way < 8; way++) {
        set_up();
        options.async = orders[way % 4];
        options.schedule = (uint64_t)(way / 4);
        columns = cases[_i].columns;
        run_tensor(1, cases[_i].body);
        char name[30];
        snprintf(name, sizeof name, "case %d, way %d", _i, way);
        if (!cases[_i].words)
            expect_nothing(name);
        else
            expect_finding(cases[_i].kind, cases[_i].words);
    }
}
END_TEST

// Blocks of one SM share its columns: who finds too few waits until another block has freed some.
START_TEST(blocks_share) {
    for (int way = 0; way < 8; way++) {
        set_up();
        options.sms = 1;
        options.checks &= ~CHECK_RACE; // all write their results to one place
        options.async = orders[way % 4];
        options.schedule = (uint64_t)(way / 4);
        options.timing = way == 0;
        clusters = 7;
        columns = 256;
        int error = run_tensor(1, STORE "[%own + 255], {%t};" WAIT_ST LOAD "[%own + 255];" WAIT_LD
                                        "setp.ne.u32 %p1, %x0, %t; @%p1 trap;");
        expect_nothing("blocks_share");
        ck_assert_int_eq(error, 0);
    }
}
END_TEST

// ---- tcgen05.cp

static const struct {
    const char *shape;
    int rows, bytes;
} copies[] = {{"128x256b", 128, 32},
              {"128x128b", 128, 16},
              {"4x256b", 4, 32},
              {"64x128b.warpx2::02_13", 64, 16},
              {"64x128b.warpx2::01_23", 64, 16},
              {"32x128b.warpx4", 32, 16}};

// The row of the source that comes to a lane, -1 if none.
static int source_row_of(int shape, int lane) {
    switch (shape) {
    case 2: return lane % 32 ? -1 : lane / 32;
    case 3: return lane % 64;                  // 0-31, 64-95: rows 0-31
    case 4: return lane / 64 * 32 + lane % 32; // 0-63: rows 0-31
    case 5: return lane % 32;
    default: return lane;
    }
}

START_TEST(copied) {
    for (int code = 0; code < 2; code++) {
        char body[1000];
        set_up();
        options.async = orders[(_i + code) % 4];
        for (int k = 0; k < IMAGE; k++) image[0][k] = (uint8_t)(k * 37 + k / 256 * 11);
        operand[0] = describe(SMEM, code ? 2 : 0, false);
        snprintf(body, sizeof body,
                 "add.u32 %%r0, %%tm, 40; @%%one tcgen05.cp.cta_group::1.%s [%%r0], %%a;\n%s",
                 copies[_i].shape, COMMIT("0") AWAIT("W", "0", "0"));
        ck_assert_int_eq(run_tensor(1, body), 0);
        expect_nothing(copies[_i].shape);
        for (int c = 0; c < TMEM_COLUMNS; c++)
            for (int l = 0; l < TMEM_LANES; l++) {
                int row = source_row_of(_i, l), at = 4 * (c - 40), bit;
                bool here = row >= 0 && at >= 0 && at < copies[_i].bytes;
                ck_assert_msg((written[0][c][l / 32] >> l % 32 & 1) == here, "%s: lane %d, %d",
                              copies[_i].shape, l, c);
                if (!here) continue;
                uint32_t want, from = address_of(SMEM, code ? 2 : 0, false, 8, row, at, &bit);
                memcpy(&want, &image[0][from - SMEM], 4);
                ck_assert_msg(cells[0][c][l] == want, "%s: lane %d, column %d: %08x, not %08x",
                              copies[_i].shape, l, c, cells[0][c][l], want);
            }
    }
}
END_TEST

Suite *suite_tcgen05_move(void) {
    Suite *suite = suite_create("tcgen05_move");
    TCase *tests = tcase_create("tcgen05_move");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, loads, 0, SHAPES);
    tcase_add_loop_test(tests, stores, 0, SHAPES);
    tcase_add_loop_test(tests, loads_differ, 0, SHAPES);
    tcase_add_loop_test(tests, copies_differ, 0, 8);
    tcase_add_loop_test(tests, one_case, 0, CASES);
    tcase_add_test(tests, blocks_share);
    tcase_add_loop_test(tests, copied, 0, sizeof copies / sizeof *copies);
    suite_add_tcase(suite, tests);
    return suite;
}
