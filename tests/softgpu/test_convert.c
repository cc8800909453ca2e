// Conversions: small formats by brute force over their codes, the plain pairs against C's own.
// And the packing forms of mov.
#include <fenv.h>

#include "codes.h"

Suite *suite_convert(void);

// ---- f16 and bf16 to f32: all 65,536

START_TEST(widening) {
    const Insn *i;
    const struct {
        const char *name;
        const Code *f;
    } kinds[] = {{"cvt.f32.f16", &f16}, {"cvt.f32.bf16", &bf16}};
    for (int k = 0; k < 2; k++) {
        Bench *b = open_one(kinds[k].name, "%f0, %h1", &i);
        for (uint32_t first = 0; first < 65536; first += 32) {
            for (uint32_t l = 0; l < 32; l++) lane_set(b, i->a, 2, (int)l, first + l);
            bench_run(b, i, FULL_MASK);
            for (uint32_t l = 0; l < 32; l++) {
                uint32_t magnitude = (first + l) & 0x7fff;
                float got = bits_float((uint32_t)lane_get(b, i->d, 4, (int)l));
                if (magnitude > kinds[k].f->first_special)
                    ck_assert(got != got);
                else if (magnitude == kinds[k].f->first_special)
                    ck_assert(isinf(got) && !signbit(got) == !((first + l) & 0x8000));
                else {
                    ck_assert(got == (float)value(kinds[k].f, first + l));
                    ck_assert(!signbit(got) == !((first + l) & 0x8000));
                }
            }
        }
        bench_close(b);
    }
}
END_TEST

// ---- f32 to f16, bf16, tf32, in every rounding; near ties above all

static const struct Narrowing {
    const char *name, *operands;
    const Code *f;
    char mode;
    unsigned bytes, shift; // of the destination; where the code begins in it
    uint32_t infinity, nan;
} narrowings[] = {
    {"cvt.rn.f16.f32", "%h0, %f1", &f16, 'n', 2, 0, 0x7c00, 0x7fff},
    {"cvt.rz.f16.f32", "%h0, %f1", &f16, 'z', 2, 0, 0x7c00, 0x7fff},
    {"cvt.rm.f16.f32", "%h0, %f1", &f16, 'm', 2, 0, 0x7c00, 0x7fff},
    {"cvt.rp.f16.f32", "%h0, %f1", &f16, 'p', 2, 0, 0x7c00, 0x7fff},
    {"cvt.rn.bf16.f32", "%h0, %f1", &bf16, 'n', 2, 0, 0x7f80, 0x7fff},
    {"cvt.rz.bf16.f32", "%h0, %f1", &bf16, 'z', 2, 0, 0x7f80, 0x7fff},
    {"cvt.rna.tf32.f32", "%r0, %f1", &tf32_code, 'a', 4, 13, 0x3fc00, 0x3ffff},
    {"cvt.rn.tf32.f32", "%r0, %f1", &tf32_code, 'n', 4, 13, 0x3fc00, 0x3ffff},
    {"cvt.rz.tf32.f32", "%r0, %f1", &tf32_code, 'z', 4, 13, 0x3fc00, 0x3ffff},
};
enum { NARROWINGS = sizeof narrowings / sizeof *narrowings };

// A float that is, or is just beside, a value of the format or the middle of two.
static float near_code(const Code *f) {
    uint32_t code = (uint32_t)noise() % f->first_special;
    double x = value(f, code), next = value(f, code + 1);
    if (code + 1 < f->first_special && noise() % 2) x = (x + next) / 2;
    float y = (float)x;
    switch (noise() % 4) {
    case 0: y = nextafterf(y, INFINITY); break;
    case 1: y = nextafterf(y, 0); break;
    default: break;
    }
    return noise() % 2 ? -y : y;
}

START_TEST(narrowing) {
    for (int k = 0; k < NARROWINGS; k++) {
        const struct Narrowing *n = &narrowings[k];
        const Insn *i;
        Bench *b = open_one(n->name, n->operands, &i);
        uint32_t sign_bit = 1u << (n->f->exponent + n->f->mantissa);
        for (int round = 0; round < 200; round++) {
            float x[32];
            for (int l = 0; l < 32; l++) {
                x[l] = round % 2 ? bits_float(any_float()) : near_code(n->f);
                lane_set(b, i->a, 4, l, float_bits(x[l]));
            }
            bench_run(b, i, FULL_MASK);
            for (int l = 0; l < 32; l++) {
                uint32_t got = (uint32_t)lane_get(b, i->d, n->bytes, l) >> n->shift;
                uint32_t magnitude = got & (sign_bit - 1);
                if (x[l] != x[l]) {
                    ck_assert_uint_eq(got, n->nan);
                } else if (magnitude == n->infinity) {
                    // only what lies beyond the largest number may become infinite
                    double most = value(n->f, n->infinity - 1),
                           step = most - value(n->f, n->infinity - 2);
                    bool away = n->mode == 'n' || n->mode == 'a';
                    ck_assert(isinf(x[l]) || (away ? fabs((double)x[l]) >= most + step / 2
                                                   : n->mode != 'z' && fabs((double)x[l]) > most));
                } else if (magnitude == n->infinity - 1 &&
                           fabs((double)x[l]) > value(n->f, magnitude)) {
                    ck_assert(n->mode == 'z' || n->mode == (x[l] > 0 ? 'm' : 'p') ||
                              rounds_to(n->f, x[l], got, n->mode));
                } else {
                    ck_assert_msg(rounds_to(n->f, x[l], got, n->mode), "%s of %a is %x", n->name,
                                  (double)x[l], got);
                }
            }
        }
        bench_close(b);
    }
}
END_TEST

// The packed forms put a in the upper half; .relu and .satfinite.
START_TEST(packed_pairs) {
    const struct {
        const char *name;
        float a, b;
        uint32_t want;
    } cases[] = {
        {"cvt.rn.f16x2.f32", 1, -2, 0x3c00c000},
        {"cvt.rn.bf16x2.f32", 1, -2, 0x3f80c000},
        {"cvt.rz.f16x2.f32", 1e6f, NAN, 0x7bff7fff},
        {"cvt.rn.f16x2.f32", 1e6f, 1.00048828125f, 0x7c003c00},
        {"cvt.rn.satfinite.f16x2.f32", 1e6f, -1e6f, 0x7bfffbff},
        {"cvt.rn.relu.bf16x2.f32", -1, NAN, 0x00007fff},
        {"cvt.rn.relu.f16x2.f32", -0.0f, 2, 0x00004000},
        {"cvt.rz.relu.satfinite.f16x2.f32", INFINITY, -INFINITY, 0x7bff0000},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const Insn *i;
        Bench *b = open_one(cases[k].name, "%r0, %f1, %f2", &i);
        for (int l = 0; l < 32; l++) {
            lane_set(b, i->a, 4, l, float_bits(cases[k].a));
            lane_set(b, i->b, 4, l, float_bits(cases[k].b));
        }
        bench_run(b, i, FULL_MASK);
        ck_assert_msg(lane_get(b, i->d, 4, 17) == cases[k].want, "%s is %08x, not %08x",
                      cases[k].name, (unsigned)lane_get(b, i->d, 4, 17), cases[k].want);
        bench_close(b);
    }
}
END_TEST

// ---- fp8, fp6, fp4: down from f32 near every code and tie, up again over all codes

static const struct SmallCase {
    const char *down, *up; // up: to f16x2
    const Code *f;
    int bits;
    uint32_t most, nan;
} smalls[] = {
    {"cvt.rn.satfinite.e4m3x2.f32", "cvt.rn.f16x2.e4m3x2", &e4m3, 8, 0x7e, 0x7f},
    {"cvt.rn.satfinite.e5m2x2.f32", "cvt.rn.f16x2.e5m2x2", &e5m2, 8, 0x7b, 0x7f},
    {"cvt.rn.satfinite.e2m3x2.f32", "cvt.rn.f16x2.e2m3x2", &e2m3, 8, 0x1f, 0x1f},
    {"cvt.rn.satfinite.e3m2x2.f32", "cvt.rn.f16x2.e3m2x2", &e3m2, 8, 0x1f, 0x1f},
    {"cvt.rn.satfinite.e2m1x2.f32", NULL, &e2m1, 4, 0x7, 0x7},
};

START_TEST(small_formats) {
    for (size_t k = 0; k < sizeof smalls / sizeof *smalls; k++) {
        const struct SmallCase *s = &smalls[k];
        const Insn *i;
        Bench *b = open_one(s->down, "%h0, %f1, %f2", &i);
        uint32_t sign_bit = 1u << (s->f->exponent + s->f->mantissa);
        for (int round = 0; round < 300; round++) {
            float x[2][32];
            for (int l = 0; l < 32; l++)
                for (int h = 0; h < 2; h++) {
                    x[h][l] = round % 3 ? near_code(s->f) : bits_float(any_float());
                    lane_set(b, h ? i->a : i->b, 4, l, float_bits(x[h][l]));
                }
            bench_run(b, i, FULL_MASK);
            for (int l = 0; l < 32; l++)
                for (int h = 0; h < 2; h++) { // h = 1: a, the upper element
                    uint32_t got = (uint32_t)lane_get(b, i->d, 2, l) >> h * s->bits;
                    got &= (1u << s->bits) - 1;
                    float v = x[h][l];
                    double most = value(s->f, s->most);
                    if (v != v)
                        ck_assert_uint_eq(got, s->nan);
                    else if (fabsf(v) >= most)
                        ck_assert_uint_eq(got, s->most | (v < 0 ? sign_bit : 0));
                    else
                        ck_assert_msg(rounds_to(s->f, v, got, 'n'), "%s of %a is %x", s->down,
                                      (double)v, got);
                }
        }
        bench_close(b);
        if (!s->up) continue;
        b = open_one(s->up, "%r0, %h1", &i);
        for (uint32_t code = 0; code < 2 * sign_bit; code++) {
            for (int l = 0; l < 32; l++) lane_set(b, i->a, 2, l, code << 8 | (code ^ 1));
            bench_run(b, i, FULL_MASK);
            uint32_t upper = (uint32_t)lane_get(b, i->d, 4, 3) >> 16;
            uint32_t lower = (uint32_t)lane_get(b, i->d, 4, 3) & 0xffff;
            if ((code & (sign_bit - 1)) < s->f->first_special && (code & (sign_bit - 1)) <= s->most)
                ck_assert(value(&f16, upper) == value(s->f, code) &&
                          (upper >> 15) == (code >= sign_bit));
            uint32_t other = (code ^ 1) & (sign_bit - 1);
            if (other < s->f->first_special && other <= s->most)
                ck_assert(value(&f16, lower) == value(s->f, code ^ 1));
        }
        // NaN and infinity, where the format has them
        if (s->f == &e5m2 || s->f == &e4m3) {
            for (int l = 0; l < 32; l++) lane_set(b, i->a, 2, l, s->f == &e5m2 ? 0xfc7d : 0xff7f);
            bench_run(b, i, FULL_MASK);
            ck_assert_uint_eq(lane_get(b, i->d, 4, 0), s->f == &e5m2 ? 0xfc007fff : 0x7fff7fff);
        }
        bench_close(b);
    }
}
END_TEST

START_TEST(scale_format) {
    const struct {
        const char *name;
        uint32_t x, want;
    } cases[] = {
        {"cvt.rz.ue8m0x2.f32", 0x3f800000, 127},
        {"cvt.rz.ue8m0x2.f32", 0xbfffffff, 127},
        {"cvt.rp.ue8m0x2.f32", 0x3f800001, 128},
        {"cvt.rp.ue8m0x2.f32", 0x3f800000, 127},
        {"cvt.rp.ue8m0x2.f32", 0x00400000, 0},
        {"cvt.rp.ue8m0x2.f32", 0x00400001, 1},
        {"cvt.rp.ue8m0x2.f32", 0, 0},
        {"cvt.rp.ue8m0x2.f32", 0x7fc00000, 255},
        {"cvt.rp.satfinite.ue8m0x2.f32", 0x7f7fffff, 254},
        {"cvt.rz.satfinite.ue8m0x2.f32", 0x7f800000, 254},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const Insn *i;
        Bench *b = open_one(cases[k].name, "%h0, %f1, %f2", &i);
        for (int l = 0; l < 32; l++) {
            lane_set(b, i->a, 4, l, cases[k].x);
            lane_set(b, i->b, 4, l, 0x40000000);
        }
        bench_run(b, i, FULL_MASK);
        ck_assert_uint_eq(lane_get(b, i->d, 2, 0), cases[k].want << 8 | 128);
        bench_close(b);
    }
    const Insn *i;
    Bench *b = open_one("cvt.rn.bf16x2.ue8m0x2", "%r0, %h1", &i);
    for (uint32_t code = 0; code < 255; code++) {
        for (int l = 0; l < 32; l++) lane_set(b, i->a, 2, l, code << 8 | 127);
        bench_run(b, i, FULL_MASK);
        uint32_t d = (uint32_t)lane_get(b, i->d, 4, 0);
        ck_assert(value(&bf16, d >> 16) == ldexp(1, (int)code - 127) && (d & 0xffff) == 0x3f80);
    }
    bench_close(b);
}
END_TEST

// ---- integers and floats

// What C makes of it, after saturation by hand.
static double rounded(double x, const char *mode) {
    if (strstr(mode, "rni")) return nearbyint(x);
    if (strstr(mode, "rmi")) return floor(x);
    if (strstr(mode, "rpi")) return ceil(x);
    return trunc(x);
}

START_TEST(float_to_integer) {
    const struct {
        const char *name, *operands;
        int bits;
        bool is_signed, is_double;
        unsigned bytes; // of the destination register
    } kinds[] = {
        {"cvt.rzi.s32.f32", "%r0, %f1", 32, true, false, 4},
        {"cvt.rni.s32.f32", "%r0, %f1", 32, true, false, 4},
        {"cvt.rmi.s32.f32", "%r0, %f1", 32, true, false, 4},
        {"cvt.rpi.u32.f32", "%r0, %f1", 32, false, false, 4},
        {"cvt.rzi.u32.f32", "%r0, %f1", 32, false, false, 4},
        {"cvt.rzi.s64.f32", "%d0, %f1", 64, true, false, 8},
        {"cvt.rni.u64.f64", "%d0, %e1", 64, false, true, 8},
        {"cvt.rmi.s64.f64", "%d0, %e1", 64, true, true, 8},
        {"cvt.rzi.s16.f32", "%h0, %f1", 16, true, false, 2},
        {"cvt.rni.s8.f32", "%r0, %f1", 8, true, false, 4},
        {"cvt.rzi.u8.f32", "%h0, %f1", 8, false, false, 2},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const Insn *i;
        Bench *b = open_one(kinds[k].name, kinds[k].operands, &i);
        for (int round = 0; round < 100; round++) {
            double x[32];
            for (int l = 0; l < 32; l++) {
                double scale = ldexp(1, (int)(noise() % 70));
                float f = noise() % 3 ? (float)((double)(int64_t)noise() / 0x1p63 * scale)
                                      : bits_float(any_float());
                if (noise() % 8 == 0) f = (float)(noise() % 9) + 0.5f;
                x[l] = f;
                if (kinds[k].is_double)
                    lane_set(b, i->a, 8, l, double_bits(f));
                else
                    lane_set(b, i->a, 4, l, float_bits(f));
            }
            bench_run(b, i, FULL_MASK);
            for (int l = 0; l < 32; l++) {
                int bits = kinds[k].bits;
                double low = kinds[k].is_signed ? -ldexp(1, bits - 1) : 0;
                double high = kinds[k].is_signed ? ldexp(1, bits - 1) : ldexp(1, bits);
                double y = rounded(x[l], kinds[k].name);
                uint64_t want;
                if (x[l] != x[l])
                    want = bits == 64 ? 1ull << 63 : 0;
                else if (y >= high)
                    want = (kinds[k].is_signed ? 1ull << (bits - 1) : 0) - 1;
                else if (y <= low)
                    want = kinds[k].is_signed ? 0 - (1ull << (bits - 1)) : 0;
                else
                    want = y < 0 ? (uint64_t)(int64_t)y : (uint64_t)y;
                if (!kinds[k].is_signed && bits < 64) want &= (1ull << bits) - 1;
                if (kinds[k].bytes < 8) want &= (1ull << 8 * kinds[k].bytes) - 1;
                ck_assert_msg(lane_get(b, i->d, kinds[k].bytes, l) == want,
                              "%s of %a is %llx, not %llx", kinds[k].name, x[l],
                              (long long)lane_get(b, i->d, kinds[k].bytes, l), (long long)want);
            }
        }
        bench_close(b);
    }
}
END_TEST

static float float_from(int64_t v, bool is_signed) {
    volatile int64_t s = v;
    volatile uint64_t u = (uint64_t)v;
    return is_signed ? (float)s : (float)u;
}
static double double_from(int64_t v, bool is_signed) {
    volatile int64_t s = v;
    volatile uint64_t u = (uint64_t)v;
    return is_signed ? (double)s : (double)u;
}

START_TEST(integer_to_float) {
    const struct {
        const char *name, *operands;
        int mode;
        unsigned bytes;
        bool is_signed, to_double;
    } kinds[] = {
        {"cvt.rn.f32.s32", "%f0, %r1", FE_TONEAREST, 4, true, false},
        {"cvt.rz.f32.s32", "%f0, %r1", FE_TOWARDZERO, 4, true, false},
        {"cvt.rm.f32.s32", "%f0, %r1", FE_DOWNWARD, 4, true, false},
        {"cvt.rp.f32.u32", "%f0, %r1", FE_UPWARD, 4, false, false},
        {"cvt.rn.f32.u32", "%f0, %r1", FE_TONEAREST, 4, false, false},
        {"cvt.rn.f32.s64", "%f0, %d1", FE_TONEAREST, 8, true, false},
        {"cvt.rp.f32.u64", "%f0, %d1", FE_UPWARD, 8, false, false},
        {"cvt.rn.f64.s64", "%e0, %d1", FE_TONEAREST, 8, true, true},
        {"cvt.rz.f64.u64", "%e0, %d1", FE_TOWARDZERO, 8, false, true},
        {"cvt.rn.f64.s32", "%e0, %r1", FE_TONEAREST, 4, true, true},
        {"cvt.rn.f32.s16", "%f0, %h1", FE_TONEAREST, 2, true, false},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const Insn *i;
        Bench *b = open_one(kinds[k].name, kinds[k].operands, &i);
        for (int round = 0; round < 60; round++) {
            int64_t v[32];
            for (int l = 0; l < 32; l++) {
                uint64_t raw = any_integer();
                unsigned spare = 64 - 8 * kinds[k].bytes;
                v[l] = kinds[k].is_signed ? (int64_t)(raw << spare) >> spare
                                          : (int64_t)(raw << spare >> spare);
                lane_set(b, i->a, kinds[k].bytes, l, raw);
            }
            bench_run(b, i, FULL_MASK);
            fesetround(kinds[k].mode);
            for (int l = 0; l < 32; l++) {
                if (kinds[k].to_double)
                    ck_assert(bits_double(lane_get(b, i->d, 8, l)) ==
                              double_from(v[l], kinds[k].is_signed));
                else
                    ck_assert_msg(bits_float((uint32_t)lane_get(b, i->d, 4, l)) ==
                                      float_from(v[l], kinds[k].is_signed),
                                  "%s of %lld", kinds[k].name, (long long)v[l]);
            }
            fesetround(FE_TONEAREST);
        }
        bench_close(b);
    }
}
END_TEST

START_TEST(integer_to_integer) {
    const struct {
        const char *name, *operands;
        unsigned from, to; // bytes of the registers
        uint64_t x, want;
    } cases[] = {
        {"cvt.s64.s32", "%d0, %r1", 4, 8, 0xffffffff, ~0ull},
        {"cvt.u64.u32", "%d0, %r1", 4, 8, 0xffffffff, 0xffffffff},
        {"cvt.u32.u64", "%r0, %d1", 8, 4, 0x123456789abcdef0, 0x9abcdef0},
        {"cvt.u32.u16", "%r0, %h1", 2, 4, 0xffff, 0xffff},
        {"cvt.s32.s16", "%r0, %h1", 2, 4, 0x8000, 0xffff8000},
        {"cvt.u64.u16", "%d0, %h1", 2, 8, 0x8000, 0x8000},
        {"cvt.u16.u32", "%h0, %r1", 4, 2, 0x12345678, 0x5678},
        {"cvt.s16.s8", "%h0, %h1", 2, 2, 0x1280, 0xff80},
        {"cvt.s32.s8", "%r0, %h1", 2, 4, 0x1280, 0xffffff80},
        {"cvt.s32.s8", "%r0, %r1", 4, 4, 0x12345680, 0xffffff80},
        {"cvt.u32.u8", "%r0, %r1", 4, 4, 0x123456ff, 0xff},
        {"cvt.u8.u32", "%h0, %r1", 4, 2, 0x123456ff, 0xff},
        {"cvt.s8.s32", "%r0, %r1", 4, 4, 0x12345680, 0xffffff80},
        {"cvt.sat.s8.s32", "%r0, %r1", 4, 4, 0x12345680, 0x7f},
        {"cvt.sat.u8.s32", "%r0, %r1", 4, 4, 0xffffff00, 0},
        {"cvt.sat.u32.s32", "%r0, %r1", 4, 4, 0x80000000, 0},
        {"cvt.sat.s16.u64", "%h0, %d1", 8, 2, ~0ull, 0x7fff},
        {"cvt.sat.s32.s64", "%r0, %d1", 8, 4, 0x8000000000000000, 0x80000000},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const Insn *i;
        Bench *b = open_one(cases[k].name, cases[k].operands, &i);
        for (int l = 0; l < 32; l++) lane_set(b, i->a, cases[k].from, l, cases[k].x);
        bench_run(b, i, FULL_MASK);
        ck_assert_msg(lane_get(b, i->d, cases[k].to, 9) == cases[k].want, "%s of %llx is %llx",
                      cases[k].name, (long long)cases[k].x,
                      (long long)lane_get(b, i->d, cases[k].to, 9));
        bench_close(b);
    }
}
END_TEST

START_TEST(float_to_float) {
    const struct {
        const char *name, *operands;
        unsigned from, to;
        uint64_t x, want;
    } cases[] = {
        {"cvt.sat.f32.f32", "%f0, %f1", 4, 4, 0x40000000, 0x3f800000},
        {"cvt.sat.f32.f32", "%f0, %f1", 4, 4, 0x7fc00000, 0},
        {"cvt.sat.f32.f32", "%f0, %f1", 4, 4, 0x3e800000, 0x3e800000},
        {"cvt.ftz.sat.f32.f32", "%f0, %f1", 4, 4, 1, 0},
        {"cvt.rni.f32.f32", "%f0, %f1", 4, 4, 0x40200000, 0x40000000}, // 2.5
        {"cvt.rmi.f32.f32", "%f0, %f1", 4, 4, 0xbf000000, 0xbf800000},
        {"cvt.rpi.f32.f32", "%f0, %f1", 4, 4, 0xbf000000, 0x80000000},
        {"cvt.rzi.ftz.f32.f32", "%f0, %f1", 4, 4, 0x4059999a, 0x40400000},
        {"cvt.f64.f32", "%e0, %f1", 4, 8, 1, 0x36a0000000000000},
        {"cvt.ftz.f64.f32", "%e0, %f1", 4, 8, 0x80000001, 0x8000000000000000},
        {"cvt.rn.f32.f64", "%f0, %e1", 8, 4, 0x3ff0000010000000, 0x3f800000},
        {"cvt.rp.f32.f64", "%f0, %e1", 8, 4, 0x3ff0000000000001, 0x3f800001},
        {"cvt.rz.f32.f64", "%f0, %e1", 8, 4, 0x7fe0000000000000, 0x7f7fffff},
        {"cvt.rn.f32.f64", "%f0, %e1", 8, 4, 0x36a0000000000000, 1},
        {"cvt.rn.ftz.f32.f64", "%f0, %e1", 8, 4, 0x36a0000000000000, 0},
        {"cvt.rn.f16.f64", "%h0, %e1", 8, 2, 0x3ff0020000000001, 0x3c01}, // one rounding, not two
        {"cvt.f64.f16", "%e0, %h1", 2, 8, 0x0001, 0x3e70000000000000},
        {"cvt.rn.f16.s32", "%h0, %r1", 4, 2, 70000, 0x7c00},
        {"cvt.rn.bf16.s64", "%h0, %d1", 8, 2, 0x4040000000000001, 0x5e81},
        {"cvt.rni.f16.f16", "%h0, %h1", 2, 2, 0x4100, 0x4000}, // 2.5
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const Insn *i;
        Bench *b = open_one(cases[k].name, cases[k].operands, &i);
        for (int l = 0; l < 32; l++) lane_set(b, i->a, cases[k].from, l, cases[k].x);
        bench_run(b, i, FULL_MASK);
        ck_assert_msg(lane_get(b, i->d, cases[k].to, 9) == cases[k].want, "%s of %llx is %llx",
                      cases[k].name, (long long)cases[k].x,
                      (long long)lane_get(b, i->d, cases[k].to, 9));
        bench_close(b);
    }
}
END_TEST

START_TEST(packed_integers) {
    const Insn *i;
    Bench *b = open_one("cvt.pack.sat.s16.s32", "%r0, %r1, %r2", &i);
    for (int l = 0; l < 32; l++)
        lane_set(b, i->a, 4, l, 70000), lane_set(b, i->b, 4, l, (uint32_t)-70000);
    bench_run(b, i, FULL_MASK);
    ck_assert_uint_eq(lane_get(b, i->d, 4, 0), 0x7fff8000);
    bench_close(b);
    b = open_one("cvt.pack.sat.u8.s32.b32", "%r0, %r1, %r2, %r3", &i);
    for (int l = 0; l < 32; l++) {
        lane_set(b, i->a, 4, l, 300), lane_set(b, i->b, 4, l, (uint32_t)-1);
        lane_set(b, i->c, 4, l, 0x12345678);
    }
    bench_run(b, i, FULL_MASK);
    ck_assert_uint_eq(lane_get(b, i->d, 4, 0), 0x5678ff00);
    bench_close(b);
}
END_TEST

// ---- mov: packing and unpacking

START_TEST(moves) {
    Bench *b = bench_open(REGISTERS "mov.b64 %d0, {%r1, %r2}; mov.b32 {%h0, %h1}, %r3;"
                                    "mov.b64 {_, %r4}, %d1; mov.b128 %q0, {%d2, %d3}; "
                                    "mov.b128 {%d4, %d5}, %q1; mov.b16 %h2, 7;",
                          0);
    const Insn *code = b->kernel->code;
    for (int l = 0; l < 32; l++) {
        lane_set(b, code[0].rows[0], 4, l, 0x11111111),
            lane_set(b, code[0].rows[1], 4, l, (uint64_t)l);
    }
    bench_run(b, &code[0], 0xffff);
    ck_assert_uint_eq(lane_get(b, code[0].d, 8, 5), 5ull << 32 | 0x11111111);
    for (int l = 0; l < 32; l++) lane_set(b, code[1].a, 4, l, 0xabcd1234);
    bench_run(b, &code[1], FULL_MASK);
    ck_assert_uint_eq(lane_get(b, code[1].rows[0], 2, 31), 0x1234);
    ck_assert_uint_eq(lane_get(b, code[1].rows[1], 2, 31), 0xabcd);
    for (int l = 0; l < 32; l++) lane_set(b, code[2].a, 8, l, 0x123456789ull);
    bench_run(b, &code[2], FULL_MASK);
    ck_assert_uint_eq(lane_get(b, code[2].rows[1], 4, 0), 1);
    for (int l = 0; l < 32; l++) {
        lane_set(b, code[3].rows[0], 8, l, 5), lane_set(b, code[3].rows[1], 8, l, 6);
    }
    bench_run(b, &code[3], FULL_MASK);
    ck_assert_uint_eq(lane_get(b, code[3].d, 8, 2 * 7), 5);
    ck_assert_uint_eq(lane_get(b, code[3].d, 8, 2 * 7 + 1), 6);
    for (int l = 0; l < 64; l++) lane_set(b, code[4].a, 8, l, (uint64_t)l);
    bench_run(b, &code[4], FULL_MASK);
    ck_assert_uint_eq(lane_get(b, code[4].rows[0], 8, 9), 18);
    ck_assert_uint_eq(lane_get(b, code[4].rows[1], 8, 9), 19);
    bench_run(b, &code[5], FULL_MASK);
    ck_assert_uint_eq(lane_get(b, code[5].d, 2, 9), 7);
    bench_close(b);
}
END_TEST

Suite *suite_convert(void) {
    Suite *s = suite_create("convert");
    TCase *t = tcase_create("formats");
    tcase_add_test(t, widening);
    tcase_add_test(t, narrowing);
    tcase_add_test(t, packed_pairs);
    tcase_add_test(t, small_formats);
    tcase_add_test(t, scale_format);
    suite_add_tcase(s, t);
    t = tcase_create("scalars");
    tcase_add_test(t, float_to_integer);
    tcase_add_test(t, integer_to_float);
    tcase_add_test(t, integer_to_integer);
    tcase_add_test(t, float_to_float);
    tcase_add_test(t, packed_integers);
    suite_add_tcase(s, t);
    t = tcase_create("moves");
    tcase_add_test(t, moves);
    suite_add_tcase(s, t);
    return s;
}
