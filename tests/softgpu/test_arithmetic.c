// Float handlers: IEEE arithmetic against exact comparisons in 113-bit floats, special values, and
// approximate functions against libm in double.
#include "lanes.h"

Suite *suite_arithmetic(void);

typedef __float128 Exact; // 113 bits: holds sums and products of the floats that we test exactly

enum { ROUNDS = 60 };

// ---- IEEE arithmetic: a result is right if no other float lies nearer in the mode's direction

typedef enum { OP_ADD, OP_SUB, OP_MUL, OP_FMA, OP_DIV, OP_RCP, OP_SQRT } FloatOp;

// The sign of (exact result - x), computed without rounding for operands of moderate exponents.
static int beyond(FloatOp op, Exact a, Exact b, Exact c, Exact x) {
    Exact d = 0;
    switch (op) {
    case OP_ADD: d = a + b - x; break;
    case OP_SUB: d = a - b - x; break;
    case OP_MUL: d = a * b - x; break;
    case OP_FMA: d = a * b + c - x; break;
    case OP_DIV: d = b > 0 ? a - b * x : b * x - a; break;
    case OP_RCP: d = a > 0 ? 1 - a * x : a * x - 1; break;
    case OP_SQRT: d = a - x * x; break;
    }
    return (d > 0) - (d < 0);
}

// mode: n, z, m or p. `up`, `down`: the floats next to r.
static bool well_rounded(FloatOp op, char mode, Exact a, Exact b, Exact c, Exact down, Exact r,
                         Exact up, bool even) {
    int sign = beyond(op, a, b, c, 0), at = beyond(op, a, b, c, r);
    if (mode == 'z') mode = sign < 0 ? 'p' : 'm';
    if (mode == 'm') return at >= 0 && beyond(op, a, b, c, up) < 0;
    if (mode == 'p') return at <= 0 && beyond(op, a, b, c, down) > 0;
    int above = beyond(op, a, b, c, (r + up) / 2), below = beyond(op, a, b, c, (r + down) / 2);
    return even ? above <= 0 && below >= 0 : above < 0 && below > 0;
}

static const struct FloatCase {
    const char *name;
    FloatOp op;
    char mode;
    bool is_double;
} float_cases[] = {
    {"add.f32", OP_ADD, 'n', 0},        {"add.rz.f32", OP_ADD, 'z', 0},
    {"add.rm.f32", OP_ADD, 'm', 0},     {"add.rp.f32", OP_ADD, 'p', 0},
    {"sub.f32", OP_SUB, 'n', 0},        {"sub.rz.f32", OP_SUB, 'z', 0},
    {"mul.rn.f32", OP_MUL, 'n', 0},     {"mul.rm.f32", OP_MUL, 'm', 0},
    {"fma.rn.f32", OP_FMA, 'n', 0},     {"fma.rz.f32", OP_FMA, 'z', 0},
    {"fma.rm.f32", OP_FMA, 'm', 0},     {"fma.rp.f32", OP_FMA, 'p', 0},
    {"div.rn.f32", OP_DIV, 'n', 0},     {"div.rz.f32", OP_DIV, 'z', 0},
    {"div.rp.f32", OP_DIV, 'p', 0},     {"rcp.rn.f32", OP_RCP, 'n', 0},
    {"rcp.rm.f32", OP_RCP, 'm', 0},     {"sqrt.rn.f32", OP_SQRT, 'n', 0},
    {"sqrt.rz.f32", OP_SQRT, 'z', 0},   {"sqrt.rp.f32", OP_SQRT, 'p', 0},
    {"add.f64", OP_ADD, 'n', 1},        {"add.rz.f64", OP_ADD, 'z', 1},
    {"mul.f64", OP_MUL, 'n', 1},        {"mul.rp.f64", OP_MUL, 'p', 1},
    {"fma.rn.ftz.f32", OP_FMA, 'n', 0}, {"add.ftz.f32", OP_ADD, 'n', 0},
    {"mul.rz.ftz.f32", OP_MUL, 'z', 0}, {"div.rn.ftz.f32", OP_DIV, 'n', 0},
};
enum { FLOAT_CASES = sizeof float_cases / sizeof *float_cases };

// Magnitudes around 1 so that exact values fit 113 bits: 2^±15 for f32, 2^±3 for f64. Some are
// short, to meet ties and exact results.
static uint64_t moderate(bool is_double, bool positive) {
    uint64_t r = noise();
    uint64_t sign = positive ? 0 : r & 1;
    if (is_double) {
        uint64_t fraction = noise() >> 12;
        if (r & 2) fraction &= ~0ull << 40;
        return sign << 63 | (1020 + (r >> 8) % 7) << 52 | (fraction & 0xfffffffffffffull);
    }
    uint64_t fraction = noise() & 0x7fffff;
    if (r & 2) fraction &= ~0ull << 14;
    return sign << 31 | (112 + (r >> 8) % 31) << 23 | fraction;
}

static void check_floats(const struct FloatCase *c) {
    int sources = c->op == OP_FMA ? 3 : c->op >= OP_RCP ? 1 : 2;
    char body[512];
    static const char *const lists[2][4] = {
        {"", "%f0, %f1", "%f0, %f1, %f2", "%f0, %f1, %f2, %f3"},
        {"", "%e0, %e1", "%e0, %e1, %e2", "%e0, %e1, %e2, %e3"}};
    snprintf(body, sizeof body, "%s%s %s;", REGISTERS, c->name, lists[c->is_double][sources]);
    Bench *b = bench_open(body, 0);
    const Insn *i = bench_insn(b, c->name);
    unsigned bytes = c->is_double ? 8 : 4;
    const Row rows[3] = {i->a, i->b, i->c};
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t in[3][32] = {{0}};
        for (int k = 0; k < sources; k++)
            for (int l = 0; l < 32; l++)
                lane_set(b, rows[k], bytes, l, in[k][l] = moderate(c->is_double, c->op == OP_SQRT));
        bench_run(b, i, FULL_MASK);
        for (int l = 0; l < 32; l++) {
            uint64_t bits = lane_get(b, i->d, bytes, l);
            Exact x[3], r, up, down;
            for (int k = 0; k < 3; k++)
                x[k] = c->is_double ? (Exact)bits_double(in[k][l])
                                    : (Exact)bits_float((uint32_t)in[k][l]);
            if (c->is_double) {
                r = bits_double(bits);
                up = nextafter(bits_double(bits), INFINITY),
                down = nextafter(bits_double(bits), -INFINITY);
            } else {
                r = bits_float((uint32_t)bits);
                up = nextafterf(bits_float((uint32_t)bits), INFINITY);
                down = nextafterf(bits_float((uint32_t)bits), -INFINITY);
            }
            if (r == 0) {
                ck_assert(beyond(c->op, x[0], x[1], x[2], 0) == 0);
                continue;
            }
            ck_assert_msg(well_rounded(c->op, c->mode, x[0], x[1], x[2], down, r, up, !(bits & 1)),
                          "%s of %a %a %a is %a", c->name, (double)x[0], (double)x[1], (double)x[2],
                          (double)r);
        }
    }
    bench_close(b);
}
START_TEST(floats) {
    for (int k = 0; k < FLOAT_CASES; k++) check_floats(&float_cases[k]);
}
END_TEST

// One instruction on given bits: what the special cases must be.
static const struct BitCase {
    const char *name, *operands;
    uint32_t a, b, c, want;
} bit_cases[] = {
    // NaN results have no payload
    {"add.f32", "%r0, %r1, %r2", 0x7fc01234, 0x3f800000, 0, 0x7fffffff},
    {"add.f32", "%r0, %r1, %r2", 0x7f800000, 0xff800000, 0, 0x7fffffff},
    {"mul.f32", "%r0, %r1, %r2", 0x7f800000, 0, 0, 0x7fffffff},
    {"fma.rn.f32", "%r0, %r1, %r2, %r3", 0x7f800000, 0x80000000, 0x3f800000, 0x7fffffff},
    {"sqrt.rn.f32", "%r0, %r1", 0xbf800000, 0, 0, 0x7fffffff},
    // subnormals are kept, or flushed to a zero of their sign on the way in and out
    {"add.f32", "%r0, %r1, %r2", 0x80000001, 0x80000002, 0, 0x80000003},
    {"add.ftz.f32", "%r0, %r1, %r2", 0x80000001, 0x80000002, 0, 0x80000000},
    {"mul.ftz.f32", "%r0, %r1, %r2", 0x00800000, 0xbf000000, 0, 0x80000000},
    {"mul.f32", "%r0, %r1, %r2", 0x00800000, 0xbf000000, 0, 0x80400000},
    {"fma.rn.ftz.f32", "%r0, %r1, %r2, %r3", 0x007fffff, 0x7f000000, 0, 0},
    {"mul.rz.f32", "%r0, %r1, %r2", 0x7f7fffff, 0x40000000, 0, 0x7f7fffff},
    {"mul.rp.f32", "%r0, %r1, %r2", 0xff7fffff, 0x40000000, 0, 0xff7fffff},
    {"mul.rm.f32", "%r0, %r1, %r2", 0xff7fffff, 0x40000000, 0, 0xff800000},
    {"add.sat.f32", "%r0, %r1, %r2", 0x3f800000, 0x3f800000, 0, 0x3f800000},
    {"add.sat.f32", "%r0, %r1, %r2", 0xbf800000, 0x80000000, 0, 0},
    {"fma.rn.sat.f32", "%r0, %r1, %r2, %r3", 0x7fc00000, 0, 0, 0},
    {"abs.f32", "%r0, %r1", 0xbf800000, 0, 0, 0x3f800000},
    {"neg.ftz.f32", "%r0, %r1", 0x00000001, 0, 0, 0x80000000},
    {"copysign.f32", "%r0, %r1, %r2", 0x80000000, 0x40000000, 0, 0xc0000000},
    // minimum and maximum
    {"max.f32", "%r0, %r1, %r2", 0x7fc00000, 0xbf800000, 0, 0xbf800000},
    {"max.f32", "%r0, %r1, %r2", 0xbf800000, 0x7fc00000, 0, 0xbf800000},
    {"max.f32", "%r0, %r1, %r2", 0x7fc00000, 0xffc00000, 0, 0x7fffffff},
    {"max.NaN.f32", "%r0, %r1, %r2", 0x3f800000, 0xffc00000, 0, 0x7fffffff},
    {"max.f32", "%r0, %r1, %r2", 0x80000000, 0, 0, 0},
    {"max.f32", "%r0, %r1, %r2", 0, 0x80000000, 0, 0},
    {"min.f32", "%r0, %r1, %r2", 0, 0x80000000, 0, 0x80000000},
    {"min.f32", "%r0, %r1, %r2", 0xff800000, 0x7f800000, 0, 0xff800000},
    {"max.f32", "%r0, %r1, %r2, %r3", 0x3f800000, 0x40000000, 0x40400000, 0x40400000},
    {"min.abs.f32", "%r0, %r1, %r2, %r3", 0xbf800000, 0xc0000000, 0x40400000, 0x3f800000},
    {"max.xorsign.abs.f32", "%r0, %r1, %r2", 0xc0000000, 0x3f800000, 0, 0xc0000000},
    {"min.xorsign.abs.f32", "%r0, %r1, %r2", 0xc0000000, 0xbf800000, 0, 0x3f800000},
    {"min.ftz.f32", "%r0, %r1, %r2", 0x00000001, 0x3f800000, 0, 0},
    // approximate functions at their ends
    {"ex2.approx.f32", "%r0, %r1", 0xff800000, 0, 0, 0},
    {"ex2.approx.f32", "%r0, %r1", 0x7f800000, 0, 0, 0x7f800000},
    {"ex2.approx.f32", "%r0, %r1", 0x7fc00001, 0, 0, 0x7fffffff},
    {"ex2.approx.f32", "%r0, %r1", 0x80000000, 0, 0, 0x3f800000},
    {"ex2.approx.f32", "%r0, %r1", 0x40400000, 0, 0, 0x41000000},
    {"ex2.approx.f32", "%r0, %r1", 0xc3150000, 0, 0, 0x00000001}, // 2^-149
    {"ex2.approx.ftz.f32", "%r0, %r1", 0xc2fe0000, 0, 0, 0},      // 2^-127
    {"lg2.approx.f32", "%r0, %r1", 0, 0, 0, 0xff800000},
    {"lg2.approx.f32", "%r0, %r1", 0xbf800000, 0, 0, 0x7fffffff},
    {"lg2.approx.f32", "%r0, %r1", 0x7f800000, 0, 0, 0x7f800000},
    {"lg2.approx.f32", "%r0, %r1", 0x41000000, 0, 0, 0x40400000},
    {"lg2.approx.f32", "%r0, %r1", 0x00000001, 0, 0, 0xc3150000},
    {"lg2.approx.ftz.f32", "%r0, %r1", 0x00000001, 0, 0, 0xff800000},
    {"rcp.approx.ftz.f32", "%r0, %r1", 0x80000001, 0, 0, 0xff800000},
    {"rcp.approx.f32", "%r0, %r1", 0xff800000, 0, 0, 0x80000000},
    {"rsqrt.approx.f32", "%r0, %r1", 0x80000000, 0, 0, 0xff800000},
    {"rsqrt.approx.f32", "%r0, %r1", 0xbf800000, 0, 0, 0x7fffffff},
    {"div.approx.f32", "%r0, %r1, %r2", 0x3f800000, 0x7f000001, 0, 0},
    {"div.approx.f32", "%r0, %r1, %r2", 0x7f800000, 0x7f000001, 0, 0x7fffffff},
    {"div.full.f32", "%r0, %r1, %r2", 0x7f000000, 0x7f000000, 0, 0x3f800000},
    {"tanh.approx.f32", "%r0, %r1", 0x7f800000, 0, 0, 0x3f800000},
    // bits
    {"szext.clamp.s32", "%r0, %r1, %r2", 0x00000080, 8, 0, 0xffffff80},
    {"szext.wrap.u32", "%r0, %r1, %r2", 0x12345678, 40, 0, 0x78},
    {"prmt.b32.f4e", "%r0, %r1, %r2, %r3", 0x33221100, 0x77665544, 1, 0x44332211},
    {"prmt.b32.b4e", "%r0, %r1, %r2, %r3", 0x33221100, 0x77665544, 1, 0x66770011},
    {"prmt.b32.rc16", "%r0, %r1, %r2, %r3", 0x33221100, 0, 1, 0x33223322},
    {"bfind.shiftamt.u32", "%r0, %r1", 0x00010000, 0, 0, 15},
    {"bfi.b32", "%r0, %r1, %r2, 8, 4", 0xffffffff, 0, 0, 0x00000f00},
    {"bfi.b32", "%r0, %r1, %r2, 0, 32", 0x12345678, 0xffffffff, 0, 0x12345678},
    {"dp2a.hi.s32.s32", "%r0, %r1, %r2, %r3", 0x0002ffff, 0x05ff0000, 10, 21},
    {"min.relu.s16x2", "%r0, %r1, %r2", 0x0005ffff, 0x0003fffe, 0, 0x00030000},
};
enum { BIT_CASES = sizeof bit_cases / sizeof *bit_cases };

static void check_bits(const struct BitCase *c) {
    char body[512];
    snprintf(body, sizeof body, "%s%s %s;", REGISTERS, c->name, c->operands);
    Bench *b = bench_open(body, 0);
    const Insn *i = bench_insn(b, c->name);
    for (int l = 0; l < 32; l++) {
        lane_set(b, i->a, 4, l, c->a);
        if (i->b != ROW_NONE && !(i->b & ROW_CONSTANT)) lane_set(b, i->b, 4, l, c->b);
        if (i->c != ROW_NONE && !(i->c & ROW_CONSTANT)) lane_set(b, i->c, 4, l, c->c);
    }
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_NEXT);
    for (int l = 0; l < 32; l++)
        ck_assert_msg(lane_get(b, i->d, 4, l) == c->want, "%s of %08x %08x %08x is %08x, not %08x",
                      c->name, c->a, c->b, c->c, (unsigned)lane_get(b, i->d, 4, l), c->want);
    bench_close(b);
}
START_TEST(special_values) {
    for (int k = 0; k < BIT_CASES; k++) check_bits(&bit_cases[k]);
}
END_TEST

// ---- approximate functions: the error bounds of the PTX ISA

static double f_exp2(double x) {
    return exp2(x);
}
static double f_lg2(double x) {
    return log2(x);
}
static double f_rcp(double x) {
    return 1 / x;
}
static double f_rsqrt(double x) {
    return 1 / sqrt(x);
}
static double f_sqrt(double x) {
    return sqrt(x);
}
static double f_sin(double x) {
    return sin(x);
}
static double f_cos(double x) {
    return cos(x);
}
static double f_tanh(double x) {
    return tanh(x);
}
static const struct Approximation {
    const char *name;
    double (*exact)(double);
    double from, to;
    double relative, absolute; // either may be met
} approximations[] = {
    {"ex2.approx.f32", f_exp2, -126, 127.9, 0x1p-22, 0},
    {"ex2.approx.ftz.f32", f_exp2, -20, 20, 0x1p-22, 0},
    {"lg2.approx.f32", f_lg2, 0.5, 2, 0, 0x1p-22},
    {"lg2.approx.ftz.f32", f_lg2, 2, 1e30, 0x1p-22, 0},
    {"lg2.approx.f32", f_lg2, 1e-30, 0.5, 0x1p-22, 0},
    {"rcp.approx.f32", f_rcp, -1e30, 1e30, 0x1p-23, 0},
    {"rcp.approx.ftz.f32", f_rcp, 1e-30, 3, 0x1p-23, 0},
    {"rsqrt.approx.f32", f_rsqrt, 1e-30, 1e30, 0x1.2p-23, 0},
    {"rsqrt.approx.ftz.f32", f_rsqrt, 0.1, 10, 0x1.2p-23, 0},
    {"sqrt.approx.f32", f_sqrt, 0, 1e30, 0x1p-23, 0},
    {"sin.approx.f32", f_sin, -3.2, 3.2, 0, 0x1p-20},
    {"cos.approx.ftz.f32", f_cos, -3.2, 3.2, 0, 0x1p-20},
    {"tanh.approx.f32", f_tanh, -9, 9, 0x1p-11, 0},
};
enum { APPROXIMATIONS = sizeof approximations / sizeof *approximations };

static void check_approximation(const struct Approximation *a) {
    char body[512];
    snprintf(body, sizeof body, "%s%s %%f0, %%f1;", REGISTERS, a->name);
    Bench *b = bench_open(body, 0);
    const Insn *i = bench_insn(b, a->name);
    for (int round = 0; round < 300; round++) {
        float x[32];
        for (int l = 0; l < 32; l++) {
            double t = (double)noise() / 0x1p64;
            bool geometric = a->from > 0 && noise() % 2;
            x[l] = (float)(geometric ? a->from * pow(a->to / a->from, t)
                                     : a->from + (a->to - a->from) * t);
            lane_set(b, i->a, 4, l, float_bits(x[l]));
        }
        bench_run(b, i, FULL_MASK);
        for (int l = 0; l < 32; l++) {
            double want = a->exact(x[l]), got = bits_float((uint32_t)lane_get(b, i->d, 4, l));
            double error = fabs(got - want);
            ck_assert_msg(error <= a->absolute || error <= a->relative * fabs(want),
                          "%s of %a is %a, not %a", a->name, x[l], got, want);
        }
    }
    bench_close(b);
}
START_TEST(approximate_functions) {
    for (int k = 0; k < APPROXIMATIONS; k++) check_approximation(&approximations[k]);
}
END_TEST

START_TEST(approximate_doubles) {
    Bench *b =
        bench_open(REGISTERS "rcp.approx.ftz.f64 %e0, %e1; rsqrt.approx.ftz.f64 %e0, %e1;", 0);
    const Insn *rcp = bench_insn(b, "rcp.approx.ftz.f64");
    const Insn *rsqrt = bench_insn(b, "rsqrt.approx.ftz.f64");
    for (int round = 0; round < 100; round++) {
        double x = exp2((double)(noise() % 200) - 100) * (1 + (double)noise() / 0x1p64);
        for (int l = 0; l < 32; l++) lane_set(b, rcp->a, 8, l, double_bits(x));
        bench_run(b, rcp, FULL_MASK);
        uint64_t r = lane_get(b, rcp->d, 8, 5);
        ck_assert_uint_eq((uint32_t)r, 0);
        ck_assert(fabs(bits_double(r) * x - 1) < 0x1p-19);
        for (int l = 0; l < 32; l++) lane_set(b, rsqrt->a, 8, l, double_bits(x));
        bench_run(b, rsqrt, FULL_MASK);
        ck_assert(fabs(bits_double(lane_get(b, rsqrt->d, 8, 5)) * sqrt(x) - 1) < 0x1p-19);
    }
    bench_close(b);
}
END_TEST

// ---- f32x2 is two f32, and mixed precision widens

START_TEST(packed_floats) {
    Bench *b =
        bench_open(REGISTERS "fma.rn.f32x2 %d0, %d1, %d2, %d3; add.rm.ftz.f32x2 %d0, %d1, %d2;"
                             "fma.rn.f32.bf16 %f0, %h1, %h2, %f3; add.f32.f16 %f0, %h1, %f2;",
                   0);
    const Insn *fma2 = bench_insn(b, "fma.rn.f32x2"), *mixed = bench_insn(b, "fma.rn.f32.bf16");
    const Insn *add = bench_insn(b, "add.f32.f16"), *down = bench_insn(b, "add.rm.ftz.f32x2");
    const Row rows[3] = {fma2->a, fma2->b, fma2->c};
    for (int l = 0; l < 32; l++)
        for (int k = 0; k < 3; k++)
            lane_set(b, rows[k], 8, l,
                     (uint64_t)float_bits((float)(l + k)) << 32 |
                         float_bits((float)(l * k) + 0.5f));
    bench_run(b, fma2, 0x0000ffff);
    for (int l = 0; l < 16; l++) {
        uint64_t d = lane_get(b, fma2->d, 8, l);
        ck_assert(bits_float((uint32_t)(d >> 32)) == (float)(l * (l + 1) + l + 2));
        ck_assert(bits_float((uint32_t)d) == 0.5f * ((float)l + 0.5f) + (float)(2 * l) + 0.5f);
    }
    for (int l = 0; l < 32; l++) {
        lane_set(b, down->a, 8, l, (uint64_t)0x3f800000 << 32 | 1);
        lane_set(b, down->b, 8, l, (uint64_t)0xb0000000 << 32 | 0);
    }
    bench_run(b, down, FULL_MASK);
    ck_assert_uint_eq(lane_get(b, down->d, 8, 9), (uint64_t)0x3f7fffff << 32 | 0);
    for (int l = 0; l < 32; l++) {
        lane_set(b, mixed->a, 2, l, 0x4000); // 2
        lane_set(b, mixed->b, 2, l, 0xbf80); // -1
        lane_set(b, mixed->c, 4, l, float_bits((float)l));
    }
    bench_run(b, mixed, FULL_MASK);
    ck_assert(bits_float((uint32_t)lane_get(b, mixed->d, 4, 7)) == 5.0f);
    for (int l = 0; l < 32; l++) {
        lane_set(b, add->a, 2, l, 0x3c00); // 1
        lane_set(b, add->b, 4, l, float_bits((float)l));
    }
    bench_run(b, add, FULL_MASK);
    ck_assert(bits_float((uint32_t)lane_get(b, add->d, 4, 7)) == 8.0f);
    bench_close(b);
}
END_TEST

Suite *suite_arithmetic(void) {
    Suite *s = suite_create("arithmetic");
    TCase *t = tcase_create("floats");
    tcase_add_test(t, floats);
    tcase_add_test(t, special_values);
    tcase_add_test(t, approximate_functions);
    tcase_add_test(t, approximate_doubles);
    tcase_add_test(t, packed_floats);
    suite_add_tcase(s, t);
    return s;
}
