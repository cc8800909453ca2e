// What mma.sync computes: the model of the tensor cores against numbers worked out by hand and against
// itself in floating point; special values, fp8, integers, tf32. Layouts are in test_matrix.c.
#include "mma_bench.h"

Suite *suite_matrix_arithmetic(void);

// Runs a form on one product row: all rows of A and all columns of B the same.
static double dot(const MmaForm *f, int capability, Numerics numerics, const double *a,
                  const double *b, double c) {
    static Matrices x;
    memset(&x, 0, sizeof x);
    for (int k = 0; k < f->k; k++) {
        for (int r = 0; r < 16; r++) x.a[r][k] = a[k];
        for (int n = 0; n < 8; n++) x.b[k][n] = b[k];
    }
    for (int r = 0; r < 16; r++)
        for (int n = 0; n < 8; n++) x.c[r][n] = c;
    Mma mma = open_mma(f, 0);
    mma.bench->gpu.figures.capability_major = capability;
    mma.bench->settings.numerics = numerics;
    put_matrices(&mma, f, &x);
    bench_run(mma.bench, mma.insn, FULL_MASK);
    get_result(&mma, f, &x);
    bench_close(mma.bench);
    for (int r = 1; r < 16; r++)
        for (int n = 0; n < 8; n++)
            ck_assert(x.d[r][n] == x.d[0][0] || (isnan(x.d[r][n]) && isnan(x.d[0][0])));
    return x.d[0][0];
}

static double ones[64];

START_TEST(model_keeps_its_bits) {
    const MmaForm *f = &forms[0]; // m16n8k16, f16, f32
    for (int k = 0; k < 64; k++) ones[k] = 1;
    // 1 + 2^-n - 1 in the accumulator, a product, and a product of the second step
    for (int n = 23; n <= 27; n++) {
        double a[16] = {0}, b[16] = {0}, tiny = ldexp(1, -n);
        a[0] = 1, b[0] = 1;
        a[1] = ldexp(1, -n / 2), b[1] = ldexp(1, -(n - n / 2));
        ck_assert_double_eq(dot(f, 8, NUMERICS_HARDWARE, a, b, -1), n <= 24 ? tiny : 0);
        ck_assert_double_eq(dot(f, 9, NUMERICS_HARDWARE, a, b, -1), n <= 25 ? tiny : 0);
        // k = 8 belongs to Ampere's second step: by then 1 + 2^-n has been cut to fp32.
        a[8] = -1, b[8] = 1;
        ck_assert_double_eq(dot(f, 8, NUMERICS_HARDWARE, a, b, 0), n <= 23 ? tiny : 0);
        ck_assert_double_eq(dot(f, 9, NUMERICS_HARDWARE, a, b, 0), n <= 25 ? tiny : 0);
    }
    // Toward zero, not to nearest: 1 + 3 * 2^-25 would round up to 1 + 2^-23.
    double a[16] = {1, ldexp(3, -13)}, b[16] = {1, ldexp(1, -12)};
    ck_assert_double_eq(dot(f, 9, NUMERICS_HARDWARE, a, b, 0), 1);
    ck_assert_double_eq(dot(f, 9, NUMERICS_FAST, a, b, 0), 1 + 0x1p-23);
    ck_assert_double_eq(dot(f, 9, NUMERICS_DEFAULT, a, b, 0), 1 + 0x1p-23);
    // Subnormal numbers and zeros count with the format's smallest exponent, here -14 + 15 = 1: the
    // accumulator is lost below 2^(1 - 25).
    double low[16] = {0x1p-24}, high[16] = {0x1p15};
    ck_assert_double_eq(dot(f, 9, NUMERICS_HARDWARE, low, high, 0x1p-25), 0x1p-9);
    ck_assert_double_eq(dot(f, 9, NUMERICS_HARDWARE, low, high, 0x1p-24), 0x1p-9 + 0x1p-24);
    low[0] = 0;
    ck_assert_double_eq(dot(f, 9, NUMERICS_HARDWARE, low, high, 0x1p-25), 0);
    // f16 accumulators round to nearest even.
    const MmaForm *h = &forms[1];
    double c[16] = {0x1p-11, 0x1p-12};
    ck_assert_double_eq(dot(h, 9, NUMERICS_HARDWARE, c, ones, 1), 1 + 0x1p-10);
    c[1] = 0;
    ck_assert_double_eq(dot(h, 9, NUMERICS_HARDWARE, c, ones, 1), 1);
    ck_assert_double_eq(dot(h, 9, NUMERICS_FAST, c, ones, 1), 1);
}
END_TEST

START_TEST(special_values) {
    double inf = HUGE_VAL, nan = NAN;
    double a[16] = {1, 2, 3}, b[16] = {1, 1, 1};
    for (int numerics = NUMERICS_FAST; numerics <= NUMERICS_HARDWARE; numerics++) {
        for (int form = 0; form < 3; form++) {
            const MmaForm *f = &forms[form];
            double x[16] = {inf, 1}, y[16] = {inf, -inf}, z[16] = {nan};
            ck_assert_double_eq(dot(f, 9, numerics, x, b, 5), inf);
            ck_assert(isnan(dot(f, 9, numerics, y, b, 5)));
            ck_assert(isnan(dot(f, 9, numerics, x, b, -inf)));
            ck_assert(isnan(dot(f, 9, numerics, z, b, 0)));
            ck_assert_double_eq(dot(f, 9, numerics, a, b, -inf), -inf);
            double zero[16] = {0};
            ck_assert(isnan(dot(f, 9, numerics, x, zero, 0)));
            ck_assert_double_eq(dot(f, 9, numerics, zero, zero, 0), 0);
        }
        double big[16] = {60000, 60000};
        ck_assert_double_eq(dot(&forms[1], 9, numerics, big, b, 0), inf);
        ck_assert_double_eq(dot(&forms[0], 9, numerics, big, b, 0), 120000);
    }
}
END_TEST

START_TEST(nan_results_are_canonical) {
    static Matrices x;
    memset(&x, 0, sizeof x);
    x.a[0][0] = NAN;
    for (int form = 0; form < 2; form++) {
        Mma mma = open_mma(&forms[form], 0);
        put_matrices(&mma, &forms[form], &x);
        bench_run(mma.bench, mma.insn, FULL_MASK);
        uint64_t d = element_get(mma.bench, mma.insn, 0, 0, bits_of(forms[form].d), 0);
        ck_assert_uint_eq(d, form ? 0x7fff : 0x7fffffff);
        bench_close(mma.bench);
    }
}
END_TEST

// ---- the model against itself in floating point: each term divided by its unit and truncated

static int exponent_of(double x, const Format *f) {
    int e;
    if (x == 0) return 1 - f->bias;
    frexp(x, &e);
    return e - 1 < 1 - f->bias ? 1 - f->bias : e - 1;
}

static double toward_zero(double x) {
    float y = (float)x;
    return fabs((double)y) > fabs(x) ? nextafterf(y, 0) : y;
}

static double model_step(const double *a, const double *b, int from, int to, double c,
                         const Format *fa, const Format *fb, int bits, bool half) {
    int most = exponent_of(c, half ? &FORMAT_F16 : &FORMAT_F32);
    for (int k = from; k < to; k++) {
        int e = exponent_of(a[k], fa) + exponent_of(b[k], fb);
        most = e > most ? e : most;
    }
    double unit = ldexp(1, most - bits), sum = trunc(c / unit);
    for (int k = from; k < to; k++) sum += trunc(a[k] * b[k] / unit);
    if (!half) return toward_zero(sum * unit);
    return format_value(round_to_format(sum * unit, &FORMAT_F16, ROUND_NEAREST, false),
                        &FORMAT_F16);
}

static double random_of(const Format *f) {
    for (;;) {
        uint32_t code = (uint32_t)noise() & ((2u << (f->exponent + f->mantissa)) - 1);
        if (noise() % 8 == 0) code &= (1u << f->mantissa) - 1; // subnormal or zero
        double x = format_value(code, f);
        if (isfinite(x)) return x;
    }
}

START_TEST(model_on_random_numbers) {
    static const struct {
        int form, capability, step, bits;
        const Format *a, *b;
    } cases[] = {
        {0, 8, 8, 24, &FORMAT_F16, &FORMAT_F16},   {0, 9, 16, 25, &FORMAT_F16, &FORMAT_F16},
        {1, 8, 8, 24, &FORMAT_F16, &FORMAT_F16},   {1, 10, 16, 25, &FORMAT_F16, &FORMAT_F16},
        {2, 8, 8, 24, &FORMAT_BF16, &FORMAT_BF16}, {2, 9, 16, 25, &FORMAT_BF16, &FORMAT_BF16},
        {7, 8, 4, 24, &FORMAT_TF32, &FORMAT_TF32}, {7, 9, 8, 25, &FORMAT_TF32, &FORMAT_TF32},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const MmaForm *f = &forms[cases[n].form];
        bool half = !strcmp(f->d, "f16");
        for (int round = 0; round < 40; round++) {
            double a[16], b[16], c;
            for (int k = 0; k < f->k; k++) {
                // bf16 and tf32 reach far; kept where neither fp32 nor the reference overflows
                do a[k] = random_of(cases[n].a);
                while (fabs(a[k]) > 1e15);
                do b[k] = random_of(cases[n].b);
                while (fabs(b[k]) > 1e15);
            }
            c = half ? random_of(&FORMAT_F16) : (float)(random_of(&FORMAT_F16) * 1.2345678);
            double want = c;
            for (int from = 0; from < f->k; from += cases[n].step)
                want = model_step(a, b, from, from + cases[n].step, want, cases[n].a, cases[n].b,
                                  cases[n].bits, half);
            if (!isfinite(want)) continue;
            double got = dot(f, cases[n].capability, NUMERICS_HARDWARE, a, b, c);
            ck_assert_msg(got == want, "case %zu: %a, not %a", n, got, want);
        }
    }
}
END_TEST

// fp8: two f16 products from zero, for k % 4 < 2 and the rest, then one fp32 addition.
START_TEST(fp8_runs_as_f16) {
    for (int form = 8; form <= 10; form++) {
        const MmaForm *f = &forms[form];
        const Format *fa = !strcmp(f->a, "e4m3") ? &FORMAT_E4M3 : &FORMAT_E5M2;
        const Format *fb = !strcmp(f->b, "e4m3") ? &FORMAT_E4M3 : &FORMAT_E5M2;
        bool half = !strcmp(f->d, "f16");
        for (int round = 0; round < 40; round++) {
            double a[32], b[32], first[2][32], second[2][32];
            for (int k = 0; k < f->k; k++) a[k] = random_of(fa), b[k] = random_of(fb);
            int n = 0, m = 0;
            for (int k = 0; k < f->k; k++) {
                if (k % 4 < 2)
                    first[0][n] = a[k], first[1][n++] = b[k];
                else
                    second[0][m] = a[k], second[1][m++] = b[k];
            }
            double c = half ? random_of(&FORMAT_E4M3) : (float)(random_of(fa) * 1.2345678);
            double sum =
                model_step(first[0], first[1], 0, n, 0, &FORMAT_F16, &FORMAT_F16, 25, half);
            sum = model_step(second[0], second[1], 0, m, sum, &FORMAT_F16, &FORMAT_F16, 25, half);
            if (!isfinite(sum)) continue;
            double want =
                half ? format_value(round_to_format(sum + c, &FORMAT_F16, ROUND_NEAREST, false),
                                    &FORMAT_F16)
                     : (float)((float)sum + (float)c);
            if (!isfinite(want)) continue;
            double got = dot(f, 9, NUMERICS_DEFAULT, a, b, c);
            ck_assert_msg(got == want, "%a, not %a", got, want);
        }
    }
}
END_TEST

START_TEST(integers_wrap_or_saturate) {
    double a[32] = {1, 1}, b[32] = {100, 27};
    const MmaForm *wraps = &forms[14], *saturates = &forms[13];
    double most = 2147483647;
    ck_assert_double_eq(dot(saturates, 9, 0, a, b, most - 100), most);
    ck_assert_double_eq(dot(saturates, 9, 0, a, b, most - 127), most);
    ck_assert_double_eq(dot(wraps, 9, 0, a, b, most - 126), -most - 1);
    a[0] = a[1] = -1;
    ck_assert_double_eq(dot(saturates, 9, 0, a, b, -most), -most - 1);
}
END_TEST

// The lowest 13 bits of a tf32 operand don't matter.
START_TEST(tf32_ignores_low_bits) {
    double a[8] = {bits_float(0x3f801fff), bits_float(0x3f803fff)},
           b[8] = {1, bits_float(0x3f801fff)};
    ck_assert_double_eq(dot(&forms[7], 9, NUMERICS_FAST, a, b, 0), 2 + 0x1p-10);
    ck_assert_double_eq(dot(&forms[7], 9, NUMERICS_HARDWARE, a, b, 0), 2 + 0x1p-10);
}
END_TEST

Suite *suite_matrix_arithmetic(void) {
    Suite *s = suite_create("arithmetic of matrix instructions");
    TCase *t = tcase_create("mma");
    tcase_add_test(t, model_keeps_its_bits);
    tcase_add_test(t, special_values);
    tcase_add_test(t, nan_results_are_canonical);
    tcase_add_test(t, model_on_random_numbers);
    tcase_add_test(t, fp8_runs_as_f16);
    tcase_add_test(t, integers_wrap_or_saturate);
    tcase_add_test(t, tf32_ignores_low_bits);
    suite_add_tcase(s, t);
    return s;
}
