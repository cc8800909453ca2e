// Matrix instructions: where mma.sync's elements live (mma_bench.h), what registers stand for, and what
// is refused. Their arithmetic is in test_matrix_arithmetic.c, ldmatrix and its kin in
// test_matrix_move.c.
#include "mma_bench.h"

Suite *suite_matrix(void);

// Small integers: every way of summing gives the same, so only the layout is tested.
START_TEST(mma_multiplies) {
    const MmaForm *f = &forms[_i];
    static Matrices x;
    for (int numerics = NUMERICS_DEFAULT; numerics <= NUMERICS_HARDWARE; numerics++) {
        Mma mma = open_mma(f, CHECK_SYNC);
        mma.bench->settings.numerics = (Numerics)numerics;
        mma.bench->gpu.figures.capability_major = 8 + _i % 2;
        for (int r = 0; r < 16; r++)
            for (int k = 0; k < 256; k++) x.a[r][k] = small(f->a);
        for (int k = 0; k < 256; k++)
            for (int n = 0; n < 8; n++) x.b[k][n] = small(f->b);
        for (int r = 0; r < 16; r++)
            for (int n = 0; n < 8; n++) x.c[r][n] = small("s8");
        put_matrices(&mma, f, &x);
        ck_assert_int_eq(bench_run(mma.bench, mma.insn, FULL_MASK), FLOW_NEXT);
        get_result(&mma, f, &x);
        for (int r = 0; r < f->m; r++)
            for (int n = 0; n < 8; n++) {
                double want = x.c[r][n];
                for (int k = 0; k < f->k; k++) {
                    if (f->kind != KIND_1)
                        want += x.a[r][k] * x.b[k][n];
                    else if (strstr(f->after, "and"))
                        want += (int)x.a[r][k] & (int)x.b[k][n];
                    else
                        want += (int)x.a[r][k] ^ (int)x.b[k][n];
                }
                ck_assert_msg(x.d[r][n] == want, "row %d column %d: %g, not %g", r, n, x.d[r][n],
                              want);
            }
        ck_assert_int_eq(mma.insn->flops, 2 * f->m * 8 * f->k / 32);
        ck_assert_int_eq(mma.insn->pipe, PIPE_TENSOR);
        bench_close(mma.bench);
    }
}
END_TEST

// The fixed points of the layout, lane 13: one element of A is 1, B tells k, the row tells itself.
START_TEST(golden_positions) {
    static const struct {
        int form, element, row, k;
    } golden[] = {{0, 0, 3, 2},  {0, 1, 3, 3},   {0, 2, 11, 2},  {0, 3, 11, 3},  {0, 4, 3, 10},
                  {0, 5, 3, 11}, {0, 6, 11, 10}, {0, 7, 11, 11}, {13, 9, 3, 21}, {13, 14, 11, 22}};
    static Matrices x;
    for (size_t g = 0; g < sizeof golden / sizeof *golden; g++) {
        const MmaForm *f = &forms[golden[g].form];
        memset(&x, 0, sizeof x);
        for (int k = 0; k < 32; k++)
            for (int n = 0; n < 8; n++) x.b[k][n] = k + 1;
        Mma mma = open_mma(f, 0);
        put_matrices(&mma, f, &x);
        element_set(mma.bench, mma.insn, mma.a_at, golden[g].element, bits_of(f->a), 13,
                    encode(f->a, 1));
        bench_run(mma.bench, mma.insn, FULL_MASK);
        get_result(&mma, f, &x);
        for (int r = 0; r < 16; r++)
            for (int n = 0; n < 8; n++)
                ck_assert_double_eq(x.d[r][n], r == golden[g].row ? golden[g].k + 1 : 0);
        bench_close(mma.bench);
    }
}
END_TEST

// Registers may stand for several operands, and immediates for sources.
START_TEST(shared_registers) {
    const char *text = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32";
    char body[512];
    snprintf(body, sizeof body,
             ".reg .b32 %%x<4>; %s {%%x0, %%x1, %%x2, %%x3}, "
             "{%%x0, %%x1, %%x2, %%x3}, {%%x0, %%x1}, {%%x0, %%x1, %%x2, 0f3f800000};",
             text);
    Bench *b = bench_open(body, 0);
    const Insn *i = bench_insn(b, text);
    for (int r = 0; r < 4; r++)
        for (int l = 0; l < 32; l++) lane_set(b, i->rows[r], 4, l, float_bits(1));
    bench_run(b, i, FULL_MASK);
    for (int r = 0; r < 4; r++)
        for (int l = 0; l < 32; l++)
            ck_assert_uint_eq(lane_get(b, i->rows[r], 4, l), float_bits(9));
    bench_close(b);
}
END_TEST

// ---- Volta's m8n8k4

START_TEST(volta_multiplies) {
    bool a_column = _i & 1, b_column = _i & 2, d_half = _i & 4, c_half = _i & 8;
    if (d_half && !c_half) return; // no such instruction
    char text[96], body[512];
    snprintf(text, sizeof text, "mma.sync.aligned.m8n8k4.%s.%s.%s.f16.f16.%s",
             a_column ? "col" : "row", b_column ? "col" : "row", d_half ? "f16" : "f32",
             c_half ? "f16" : "f32");
    int at = sprintf(body, ".reg .b32 %%d<8>, %%a<2>, %%b<2>, %%c<8>; %s ", text);
    at += list(body + at, "%d", d_half ? 4 : 8);
    at += sprintf(body + at, ", {%%a0, %%a1}, {%%b0, %%b1}, ");
    at += list(body + at, "%c", c_half ? 4 : 8);
    sprintf(body + at, ";");
    Bench *b = bench_open(body, CHECK_SYNC);
    const Insn *i = bench_insn(b, text);
    ck_assert(i->run != trap_unsupported);
    int a_at = d_half ? 4 : 8, b_at = a_at + 2, c_at = b_at + 2;
    double x[4][8][4], y[4][4][8], z[4][8][8];
    for (int q = 0; q < 4; q++)
        for (int r = 0; r < 8; r++) {
            for (int k = 0; k < 4; k++) x[q][r][k] = small("f16"), y[q][k][r] = small("f16");
            for (int n = 0; n < 8; n++) z[q][r][n] = small("f16");
        }
    for (int l = 0; l < 32; l++) {
        int q = (l % 16) / 4, low = l < 16 ? 0 : 4;
        for (int e = 0; e < 4; e++) {
            double a = a_column ? x[q][e % 4 + low][l % 4] : x[q][l % 4 + low][e];
            double bb = b_column ? y[q][e][l % 4 + low] : y[q][l % 4][e + low];
            element_set(b, i, a_at, e, 16, l, encode("f16", a));
            element_set(b, i, b_at, e, 16, l, encode("f16", bb));
        }
        for (int e = 0; e < 8; e++) {
            if (c_half)
                element_set(b, i, c_at, e, 16, l, encode("f16", z[q][l % 4 + low][e]));
            else
                element_set(
                    b, i, c_at, e, 32, l,
                    encode("f32", z[q][(l & 1) + (e & 2) + low][(e & 4) + (l & 2) + (e & 1)]));
        }
    }
    bench_run(b, i, FULL_MASK);
    for (int l = 0; l < 32; l++)
        for (int e = 0; e < 8; e++) {
            int q = (l % 16) / 4, low = l < 16 ? 0 : 4;
            int r = d_half ? l % 4 + low : (l & 1) + (e & 2) + low;
            int n = d_half ? e : (e & 4) + (l & 2) + (e & 1);
            double want = z[q][r][n];
            for (int k = 0; k < 4; k++) want += x[q][r][k] * y[q][k][n];
            uint64_t got = element_get(b, i, 0, e, d_half ? 16 : 32, l);
            ck_assert_double_eq(decode(d_half ? "f16" : "f32", got), want);
        }
    bench_close(b);
}
END_TEST

// ---- refusals and checks

START_TEST(refused_by_name) {
    static const char *const bodies[][3] = {
        {".reg .b32 %r<16>; ", "mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
         " {%r0,%r1}, {%r2,%r3}, {%r4,%r5}, {%r6,%r7}, %r8, 0;"},
        {".reg .b32 %r<16>; ", "mma.sync.aligned.m16n8k16.row.row.f16.f16.f16.f16",
         " {%r0,%r1}, {%r2,%r3,%r4,%r5}, {%r6,%r7}, {%r0,%r1};"},
        {".reg .b32 %r<16>; ", "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
         " {%r0,%r1}, {%r2,%r3}, {%r6,%r7}, {%r0,%r1};"},
        {".reg .b32 %r<16>; ", "wmma.load.a.sync.aligned.row.m8n8k128.b1", " {%r0}, [%r1];"},
    };
    for (size_t k = 0; k < sizeof bodies / sizeof *bodies; k++) {
        char body[512];
        snprintf(body, sizeof body, "%s%s%s", bodies[k][0], bodies[k][1], bodies[k][2]);
        Bench *b = bench_open(body, 0);
        ck_assert(bench_insn(b, bodies[k][1])->run == trap_unsupported);
        bench_close(b);
    }
}
END_TEST

START_TEST(needs_the_whole_warp) {
    Mma mma = open_mma(&forms[0], CHECK_SYNC);
    mma.bench->warp.live = mma.bench->warp.active = 0xffff;
    ck_assert_int_eq(bench_run(mma.bench, mma.insn, 0xffff), FLOW_FAULT);
    const Finding *found;
    ck_assert_int_eq(bench_findings(mma.bench, &found), 1);
    ck_assert_int_eq(found->kind, FINDING_DIVERGENT);
    ck_assert_ptr_nonnull(strstr(found->what, "0x0000ffff"));
    bench_close(mma.bench);
}
END_TEST

Suite *suite_matrix(void) {
    Suite *s = suite_create("matrix instructions");
    TCase *t = tcase_create("mma");
    tcase_add_loop_test(t, mma_multiplies, 0, FORM_COUNT);
    tcase_add_test(t, golden_positions);
    tcase_add_test(t, shared_registers);
    tcase_add_loop_test(t, volta_multiplies, 0, 16);
    tcase_add_test(t, refused_by_name);
    tcase_add_test(t, needs_the_whole_warp);
    suite_add_tcase(s, t);
    return s;
}
