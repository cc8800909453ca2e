// Arithmetic on f16 and bf16 against exact doubles, and its special values.
#include "codes.h"

Suite *suite_half(void);

// ---- 16-bit arithmetic: sums and products against exact doubles

START_TEST(half_arithmetic) {
    const struct {
        const char *name, *operands;
        const Code *f;
        char op;
        bool pair;
    } kinds[] = {
        {"add.f16", "%h0, %h1, %h2", &f16, '+', false},
        {"sub.f16", "%h0, %h1, %h2", &f16, '-', false},
        {"mul.f16", "%h0, %h1, %h2", &f16, '*', false},
        {"fma.rn.f16", "%h0, %h1, %h2, %h3", &f16, 'f', false},
        {"add.f16x2", "%r0, %r1, %r2", &f16, '+', true},
        {"fma.rn.f16x2", "%r0, %r1, %r2, %r3", &f16, 'f', true},
        {"add.bf16", "%h0, %h1, %h2", &bf16, '+', false},
        {"mul.bf16x2", "%r0, %r1, %r2", &bf16, '*', true},
        {"fma.rn.bf16x2", "%r0, %r1, %r2, %r3", &bf16, 'f', true},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const Insn *i;
        Bench *b = open_one(kinds[k].name, kinds[k].operands, &i);
        const Code *f = kinds[k].f;
        int count = kinds[k].pair ? 64 : 32;
        const Row rows[3] = {i->a, i->b, i->c};
        for (int round = 0; round < 400; round++) {
            uint16_t in[3][64], got[64];
            for (int s = 0; s < 3; s++) {
                // bf16: exponents close enough for the exact result to fit a double
                for (int n = 0; n < count; n++)
                    in[s][n] = f == &f16
                                   ? (uint16_t)noise()
                                   : (uint16_t)((noise() & 0x807f) | (122 + noise() % 12) << 7);
                if (rows[s] != ROW_NONE) memcpy(row(&b->warp, rows[s]), in[s], (size_t)count * 2);
            }
            bench_run(b, i, FULL_MASK);
            memcpy(got, row(&b->warp, i->d), (size_t)count * 2);
            for (int n = 0; n < count; n++) {
                bool special = false;
                for (int s = 0; s < 3; s++) special |= (in[s][n] & 0x7fff) >= f->first_special;
                if (special) continue;
                double x = value(f, in[0][n]), y = value(f, in[1][n]), z = value(f, in[2][n]);
                char op = kinds[k].op;
                double exact = op == '+'   ? x + y
                               : op == '-' ? x - y
                               : op == '*' ? x * y
                                           : x * y + z;
                if ((got[n] & 0x7fff) == f->first_special) {
                    double most = value(f, f->first_special - 1);
                    ck_assert(fabs(exact) >= most + (most - value(f, f->first_special - 2)) / 2);
                } else {
                    ck_assert_msg(rounds_to(f, exact, got[n], 'n'), "%s of %04x %04x %04x is %04x",
                                  kinds[k].name, in[0][n], in[1][n], in[2][n], got[n]);
                }
            }
        }
        bench_close(b);
    }
}
END_TEST

// A tie that only the far smaller addend breaks: rounding twice would get it wrong.
START_TEST(half_fma_rounds_once) {
    const Insn *i;
    Bench *b = open_one("fma.rn.bf16", "%h0, %h1, %h2, %h3", &i);
    // 1.0078125 * 1.5 = 1.51171875: the middle of 1.5078125 and 1.515625; c = ±2^-100
    const uint16_t c[2] = {0x0d80, 0x8d80}, want[2] = {0x3fc2, 0x3fc1};
    for (int k = 0; k < 2; k++) {
        for (int l = 0; l < 32; l++) {
            lane_set(b, i->a, 2, l, 0x3f81), lane_set(b, i->b, 2, l, 0x3fc0);
            lane_set(b, i->c, 2, l, c[k]);
        }
        bench_run(b, i, FULL_MASK);
        ck_assert_uint_eq(lane_get(b, i->d, 2, 0), want[k]);
    }
    bench_close(b);
}
END_TEST

// A lane whose numbers are too large for f32 sends the whole warp through double: the other lanes'
// results must not change by it.
START_TEST(half_fma_ways_agree) {
    const Insn *i;
    Bench *b = open_one("fma.rn.bf16", "%h0, %h1, %h2, %h3", &i);
    const Row rows[3] = {i->a, i->b, i->c};
    for (int round = 0; round < 2000; round++) {
        uint16_t in[3][32], plain[32], other[32];
        for (int s = 0; s < 3; s++)
            for (int l = 0; l < 32; l++)
                in[s][l] = (uint16_t)((noise() & 0x807f) | (127 - 40 + noise() % 80) << 7);
        in[0][30] = 0;
        for (int large = 0; large < 2; large++) {
            in[0][31] = in[1][31] = large ? 0x7f00 : 0x3f80; // 2^127 or 1
            for (int s = 0; s < 3; s++) memcpy(row(&b->warp, rows[s]), in[s], sizeof in[s]);
            bench_run(b, i, FULL_MASK);
            memcpy(large ? other : plain, row(&b->warp, i->d), sizeof plain);
        }
        ck_assert_mem_eq(plain, other, 31 * sizeof *plain);
        ck_assert_uint_eq(other[31], 0x7f80);
    }
    bench_close(b);
}
END_TEST

START_TEST(half_special_values) {
    const struct {
        const char *name, *operands;
        uint32_t a, b, c, want;
    } cases[] = {
        {"max.f16x2", "%r0, %r1, %r2", 0x7e003c00, 0xbc00c000, 0, 0xbc003c00},
        {"max.NaN.f16x2", "%r0, %r1, %r2", 0x7e003c00, 0xbc00c000, 0, 0x7fff3c00},
        {"min.bf16x2", "%r0, %r1, %r2", 0x00008000, 0x80000000, 0, 0x80008000},
        {"max.xorsign.abs.f16x2", "%r0, %r1, %r2", 0xc0003c00, 0x3c003c00, 0, 0xc0003c00},
        {"neg.f16x2", "%r0, %r1", 0x3c00bc00, 0, 0, 0xbc003c00},
        {"abs.bf16x2", "%r0, %r1", 0xbf803f80, 0, 0, 0x3f803f80},
        {"neg.ftz.f16x2", "%r0, %r1", 0x00013c00, 0, 0, 0x8000bc00},
        {"add.ftz.f16x2", "%r0, %r1, %r2", 0x00010001, 0x00010400, 0, 0x00000400},
        {"add.sat.f16x2", "%r0, %r1, %r2", 0x3c00bc00, 0x3c000000, 0, 0x3c000000},
        {"fma.rn.relu.f16x2", "%r0, %r1, %r2, %r3", 0x3c003c00, 0x3c00bc00, 0, 0x3c000000},
        {"fma.rn.sat.f16x2", "%r0, %r1, %r2, %r3", 0x40007e00, 0x3c003c00, 0, 0x3c000000},
        {"ex2.approx.f16x2", "%r0, %r1", 0x4000bc00, 0, 0, 0x44003800},
        {"ex2.approx.ftz.bf16x2", "%r0, %r1", 0x4000bf80, 0, 0, 0x40803f00},
        {"tanh.approx.bf16x2", "%r0, %r1", 0x7f80ff80, 0, 0, 0x3f80bf80},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const Insn *i;
        Bench *b = open_one(cases[k].name, cases[k].operands, &i);
        for (int l = 0; l < 32; l++) {
            lane_set(b, i->a, 4, l, cases[k].a);
            if (i->b != ROW_NONE) lane_set(b, i->b, 4, l, cases[k].b);
            if (i->c != ROW_NONE) lane_set(b, i->c, 4, l, cases[k].c);
        }
        bench_run(b, i, FULL_MASK);
        ck_assert_msg(lane_get(b, i->d, 4, 31) == cases[k].want, "%s is %08x, not %08x",
                      cases[k].name, (unsigned)lane_get(b, i->d, 4, 31), cases[k].want);
        bench_close(b);
    }
}
END_TEST

Suite *suite_half(void) {
    Suite *s = suite_create("half");
    TCase *t = tcase_create("halves");
    tcase_add_test(t, half_arithmetic);
    tcase_add_test(t, half_fma_rounds_once);
    tcase_add_test(t, half_fma_ways_agree);
    tcase_add_test(t, half_special_values);
    suite_add_tcase(s, t);
    return s;
}
