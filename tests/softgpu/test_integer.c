// Integer and bit handlers against models in 128-bit integers, bit by bit where PTX says it so.
#include "lanes.h"

Suite *suite_integer(void);

typedef __int128 Wide;
typedef unsigned __int128 UWide;

enum { ROUNDS = 60 };

// ---- integers: a, b, c are sign- or zero-extended from the type; the result is cut to its width

typedef UWide IntegerModel(Wide a, Wide b, Wide c);
#define MODEL(name, expression)                                                                    \
    static UWide name(Wide a, Wide b, Wide c) {                                                    \
        (void)a, (void)b, (void)c;                                                                 \
        return (UWide)(expression);                                                                \
    }
MODEL(m_add, a + b)
MODEL(m_sub, a - b)
MODEL(m_mul, a *b)
MODEL(m_mad, (UWide)(a *b) + (UWide)c)
MODEL(m_hi16, a *b >> 16)
MODEL(m_hi32, a *b >> 32)
MODEL(m_madhi32, (a * b >> 32) + c)
MODEL(m_min, a < b ? a : b)
MODEL(m_max, a > b ? a : b)
MODEL(m_sad, c + (a > b ? a - b : b - a))
MODEL(m_div, b == 0 ? -1 : a / b)
MODEL(m_rem, b == 0 ? -1 : a % b)
MODEL(m_abs, a < 0 ? -a : a)
MODEL(m_neg, -a)
MODEL(m_and, a &b)
MODEL(m_or, a | b)
MODEL(m_xor, a ^ b)
MODEL(m_not, ~a)
MODEL(m_cnot, a == 0)
MODEL(m_shl, b >= 64 ? 0 : (UWide)a << b)
MODEL(m_shr, a >> (b > 100 ? 100 : b))
MODEL(m_relumax, (a > b ? a : b) < 0 ? 0 : a > b ? a : b)
static UWide m_hi64u(Wide a, Wide b, Wide c) {
    (void)c;
    return ((UWide)a * (UWide)b) >> 64; // both below 2^64
}
static UWide m_mul24lo(Wide a, Wide b, Wide c) {
    return (UWide)((a & 0xffffff) * (b & 0xffffff)) + (UWide)c;
}
static UWide m_popc(Wide a, Wide b, Wide c) {
    (void)b, (void)c;
    int n = 0;
    for (; a; a >>= 1) n += (int)(a & 1);
    return (UWide)n;
}
static UWide m_clz32(Wide a, Wide b, Wide c) {
    (void)b, (void)c;
    int n = 0;
    while (n < 32 && !(a >> (31 - n) & 1)) n++;
    return (UWide)n;
}
static UWide m_clz64(Wide a, Wide b, Wide c) {
    (void)b, (void)c;
    int n = 0;
    while (n < 64 && !(a >> (63 - n) & 1)) n++;
    return (UWide)n;
}
static UWide m_brev(Wide a, Wide b, Wide c) {
    (void)b, (void)c;
    UWide r = 0;
    for (int k = 0; k < 32; k++) r |= (UWide)(a >> k & 1) << (31 - k);
    return r;
}
static UWide m_bfind(Wide a, Wide b, Wide c) {
    (void)b, (void)c;
    for (int k = 63; k >= 0; k--)
        if ((a >> k & 1) != (a < 0)) return (UWide)k;
    return ~(UWide)0;
}
// bfe as PTX ISA 9.7.1.18 writes it, bit by bit.
static UWide bfe_model(Wide a, Wide b, Wide c, int msb, bool is_signed) {
    int position = (int)(b & 0xff), length = (int)(c & 0xff);
    int sign = !is_signed || length == 0
                   ? 0
                   : (int)(a >> (position + length - 1 < msb ? position + length - 1 : msb) & 1);
    UWide d = 0;
    for (int k = 0; k <= msb; k++) {
        int bit = k < length && position + k <= msb ? (int)(a >> (position + k) & 1) : sign;
        d |= (UWide)bit << k;
    }
    return d;
}
static UWide m_bfe_u32(Wide a, Wide b, Wide c) {
    return bfe_model(a, b, c, 31, false);
}
static UWide m_bfe_s32(Wide a, Wide b, Wide c) {
    return bfe_model(a, b, c, 31, true);
}
static UWide m_bfe_s64(Wide a, Wide b, Wide c) {
    return bfe_model(a, b, c, 63, true);
}
static UWide m_shf_l_wrap(Wide a, Wide b, Wide c) {
    int n = (int)(c & 31);
    return (UWide)((b << n) | (n ? a >> (32 - n) : 0));
}
static UWide m_shf_r_clamp(Wide a, Wide b, Wide c) {
    int n = c < 32 ? (int)c : 32;
    return (UWide)(((b << 32) | a) >> n);
}
static UWide m_bmsk(Wide a, Wide b, Wide c) {
    (void)c;
    UWide r = 0;
    for (int k = 0; k < 32; k++) r |= (UWide)(k >= a && k < a + b) << k;
    return r;
}
static UWide m_prmt(Wide a, Wide b, Wide c) {
    UWide r = 0;
    uint8_t bytes[8];
    for (int k = 0; k < 4; k++)
        bytes[k] = (uint8_t)(a >> 8 * k), bytes[4 + k] = (uint8_t)(b >> 8 * k);
    for (int k = 0; k < 4; k++) {
        int selector = (int)(c >> 4 * k & 15);
        uint8_t byte = bytes[selector & 7];
        if (selector & 8) byte = (int8_t)byte < 0 ? 0xff : 0;
        r |= (UWide)byte << 8 * k;
    }
    return r;
}
static UWide m_lop3(Wide a, Wide b, Wide c) { // the table 0xca: a ? b : c
    return (UWide)((a & b) | (~a & c));
}
static UWide m_dp4a(Wide a, Wide b, Wide c) {
    for (int k = 0; k < 4; k++) c += (int8_t)(a >> 8 * k) * (int)(uint8_t)(b >> 8 * k);
    return (UWide)c;
}
static UWide m_sat_add(Wide a, Wide b, Wide c) {
    (void)c;
    return (UWide)(a + b > INT32_MAX ? INT32_MAX : a + b < INT32_MIN ? INT32_MIN : a + b);
}
static UWide m_add16x2(Wide a, Wide b, Wide c) {
    (void)c;
    return (UWide)(((a + b) & 0xffff) | ((((a >> 16) + (b >> 16)) & 0xffff) << 16));
}
static UWide m_fns(Wide a, Wide b, Wide c) {
    int32_t n = (int32_t)c;
    if (b > 31) return ~(UWide)0;
    if (n == 0) return a >> b & 1 ? (UWide)b : ~(UWide)0;
    int seen = 0;
    for (int k = (int)b; k >= 0 && k<32; k += n> 0 ? 1 : -1)
        if (a >> k & 1 && ++seen == (n > 0 ? n : -(int64_t)n)) return (UWide)k;
    return ~(UWide)0;
}

static const struct IntegerCase {
    const char *name, *operands;
    unsigned bytes[4]; // of d, a, b, c
    bool is_signed;
    IntegerModel *model;
} integer_cases[] = {
    {"add.s32", "%r0, %r1, %r2", {4, 4, 4}, true, m_add},
    {"add.u64", "%d0, %d1, %d2", {8, 8, 8}, false, m_add},
    {"add.s16", "%h0, %h1, %h2", {2, 2, 2}, true, m_add},
    {"add.sat.s32", "%r0, %r1, %r2", {4, 4, 4}, true, m_sat_add},
    {"add.u16x2", "%r0, %r1, %r2", {4, 4, 4}, false, m_add16x2},
    {"sub.u32", "%r0, %r1, %r2", {4, 4, 4}, false, m_sub},
    {"sub.s64", "%d0, %d1, %d2", {8, 8, 8}, true, m_sub},
    {"mul.lo.s32", "%r0, %r1, %r2", {4, 4, 4}, true, m_mul},
    {"mul.lo.u64", "%d0, %d1, %d2", {8, 8, 8}, false, m_mul},
    {"mul.lo.u16", "%h0, %h1, %h2", {2, 2, 2}, false, m_mul},
    {"mul.hi.s16", "%h0, %h1, %h2", {2, 2, 2}, true, m_hi16},
    {"mul.hi.u16", "%h0, %h1, %h2", {2, 2, 2}, false, m_hi16},
    {"mul.hi.s32", "%r0, %r1, %r2", {4, 4, 4}, true, m_hi32},
    {"mul.hi.u32", "%r0, %r1, %r2", {4, 4, 4}, false, m_hi32},
    {"mul.hi.u64", "%d0, %d1, %d2", {8, 8, 8}, false, m_hi64u},
    {"mul.wide.s32", "%d0, %r1, %r2", {8, 4, 4}, true, m_mul},
    {"mul.wide.u32", "%d0, %r1, %r2", {8, 4, 4}, false, m_mul},
    {"mul.wide.s16", "%r0, %h1, %h2", {4, 2, 2}, true, m_mul},
    {"mul.wide.u16", "%r0, %h1, %h2", {4, 2, 2}, false, m_mul},
    {"mad.lo.s32", "%r0, %r1, %r2, %r3", {4, 4, 4, 4}, true, m_mad},
    {"mad.hi.s32", "%r0, %r1, %r2, %r3", {4, 4, 4, 4}, true, m_madhi32},
    {"mad.wide.u32", "%d0, %r1, %r2, %d3", {8, 4, 4, 8}, false, m_mad},
    {"mad.wide.s16", "%r0, %h1, %h2, %r3", {4, 2, 2, 4}, true, m_mad},
    {"mad24.lo.u32", "%r0, %r1, %r2, %r3", {4, 4, 4, 4}, false, m_mul24lo},
    {"sad.s32", "%r0, %r1, %r2, %r3", {4, 4, 4, 4}, true, m_sad},
    {"sad.u64", "%d0, %d1, %d2, %d3", {8, 8, 8, 8}, false, m_sad},
    {"sad.s16", "%h0, %h1, %h2, %h3", {2, 2, 2, 2}, true, m_sad},
    {"div.s32", "%r0, %r1, %r2", {4, 4, 4}, true, m_div},
    {"div.u32", "%r0, %r1, %r2", {4, 4, 4}, false, m_div},
    {"div.s64", "%d0, %d1, %d2", {8, 8, 8}, true, m_div},
    {"div.u16", "%h0, %h1, %h2", {2, 2, 2}, false, m_div},
    {"div.s16", "%h0, %h1, %h2", {2, 2, 2}, true, m_div},
    {"rem.s32", "%r0, %r1, %r2", {4, 4, 4}, true, m_rem},
    {"rem.u64", "%d0, %d1, %d2", {8, 8, 8}, false, m_rem},
    {"rem.s64", "%d0, %d1, %d2", {8, 8, 8}, true, m_rem},
    {"min.s32", "%r0, %r1, %r2", {4, 4, 4}, true, m_min},
    {"max.u32", "%r0, %r1, %r2", {4, 4, 4}, false, m_max},
    {"max.s64", "%d0, %d1, %d2", {8, 8, 8}, true, m_max},
    {"min.u16", "%h0, %h1, %h2", {2, 2, 2}, false, m_min},
    {"max.relu.s32", "%r0, %r1, %r2", {4, 4, 4}, true, m_relumax},
    {"abs.s32", "%r0, %r1", {4, 4}, true, m_abs},
    {"neg.s16", "%h0, %h1", {2, 2}, true, m_neg},
    {"neg.s64", "%d0, %d1", {8, 8}, true, m_neg},
    {"and.b32", "%r0, %r1, %r2", {4, 4, 4}, false, m_and},
    {"or.b64", "%d0, %d1, %d2", {8, 8, 8}, false, m_or},
    {"xor.b16", "%h0, %h1, %h2", {2, 2, 2}, false, m_xor},
    {"not.b32", "%r0, %r1", {4, 4}, false, m_not},
    {"cnot.b64", "%d0, %d1", {8, 8}, false, m_cnot},
    {"shl.b32", "%r0, %r1, %r2", {4, 4, 4}, false, m_shl},
    {"shl.b64", "%d0, %d1, %r2", {8, 8, 4}, false, m_shl},
    {"shl.b16", "%h0, %h1, %r2", {2, 2, 4}, false, m_shl},
    {"shr.u32", "%r0, %r1, %r2", {4, 4, 4}, false, m_shr},
    {"shr.u64", "%d0, %d1, %r2", {8, 8, 4}, false, m_shr},
    {"shr.u16", "%h0, %h1, %r2", {2, 2, 4}, false, m_shr},
    {"popc.b32", "%r0, %r1", {4, 4}, false, m_popc},
    {"popc.b64", "%r0, %d1", {4, 8}, false, m_popc},
    {"clz.b32", "%r0, %r1", {4, 4}, false, m_clz32},
    {"clz.b64", "%r0, %d1", {4, 8}, false, m_clz64},
    {"brev.b32", "%r0, %r1", {4, 4}, false, m_brev},
    {"bfind.u32", "%r0, %r1", {4, 4}, false, m_bfind},
    {"bfind.s32", "%r0, %r1", {4, 4}, true, m_bfind},
    {"bfind.s64", "%r0, %d1", {4, 8}, true, m_bfind},
    {"bfe.u32", "%r0, %r1, %r2, %r3", {4, 4, 4, 4}, false, m_bfe_u32},
    {"bfe.s32", "%r0, %r1, %r2, %r3", {4, 4, 4, 4}, false, m_bfe_s32},
    {"bfe.s64", "%d0, %d1, %r2, %r3", {8, 8, 4, 4}, false, m_bfe_s64},
    {"shf.l.wrap.b32", "%r0, %r1, %r2, %r3", {4, 4, 4, 4}, false, m_shf_l_wrap},
    {"shf.r.clamp.b32", "%r0, %r1, %r2, %r3", {4, 4, 4, 4}, false, m_shf_r_clamp},
    {"bmsk.clamp.b32", "%r0, %r1, %r2", {4, 4, 4}, false, m_bmsk},
    {"prmt.b32", "%r0, %r1, %r2, %r3", {4, 4, 4, 4}, false, m_prmt},
    {"lop3.b32", "%r0, %r1, %r2, %r3, 0xca", {4, 4, 4, 4}, false, m_lop3},
    {"dp4a.s32.u32", "%r0, %r1, %r2, %r3", {4, 4, 4, 4}, false, m_dp4a},
    {"fns.b32", "%r0, %r1, %r2, %r3", {4, 4, 4, 4}, false, m_fns},
};
enum { INTEGER_CASES = sizeof integer_cases / sizeof *integer_cases };

static Wide extended(uint64_t value, unsigned bytes, bool is_signed) {
    unsigned spare = 64 - 8 * bytes;
    if (!bytes) return 0;
    return is_signed ? (Wide)((int64_t)(value << spare) >> spare) : (Wide)(value << spare >> spare);
}

static void check_integers(const struct IntegerCase *c) {
    char body[512];
    snprintf(body, sizeof body, "%s%s %s;", REGISTERS, c->name, c->operands);
    Bench *b = bench_open(body, 0);
    const Insn *i = bench_insn(b, c->name);
    const Row rows[4] = {i->d, i->a, i->b, i->c};
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t in[4][32];
        uint32_t mask = round % 3 ? FULL_MASK : (uint32_t)noise() | 1;
        for (int k = 0; k < 4; k++)
            for (int l = 0; l < 32; l++) {
                in[k][l] = any_integer();
                if (k >= 2 && noise() % 2) in[k][l] %= 70; // shift counts, positions
                if (c->bytes[k]) lane_set(b, rows[k], c->bytes[k], l, in[k][l]);
            }
        ck_assert_int_eq(bench_run(b, i, mask), FLOW_NEXT);
        for (int l = 0; l < 32; l++) {
            UWide want = c->model(extended(in[1][l], c->bytes[1], c->is_signed),
                                  extended(in[2][l], c->bytes[2], c->is_signed),
                                  extended(in[3][l], c->bytes[3], c->is_signed));
            if (!(mask >> l & 1)) want = in[0][l];
            uint64_t cut = c->bytes[0] == 8 ? ~0ull : (1ull << 8 * c->bytes[0]) - 1;
            ck_assert_msg(lane_get(b, i->d, c->bytes[0], l) == ((uint64_t)want & cut),
                          "%s of %llx %llx %llx is %llx, not %llx", c->name, (long long)in[1][l],
                          (long long)in[2][l], (long long)in[3][l],
                          (long long)lane_get(b, i->d, c->bytes[0], l), (long long)(want & cut));
        }
    }
    bench_close(b);
}
START_TEST(integers) {
    for (int k = 0; k < INTEGER_CASES; k++) check_integers(&integer_cases[k]);
}
END_TEST

// Arithmetic shifts, on negative numbers and counts past the width.
START_TEST(arithmetic_shifts) {
    Bench *b = bench_open(REGISTERS "shr.s32 %r0, %r1, %r2; shr.s64 %d0, %d1, %r2; "
                                    "shr.s16 %h0, %h1, %r2;",
                          0);
    const struct {
        const char *name;
        unsigned bytes;
    } kinds[] = {{"shr.s32", 4}, {"shr.s64", 8}, {"shr.s16", 2}};
    for (int k = 0; k < 3; k++) {
        const Insn *i = bench_insn(b, kinds[k].name);
        for (uint64_t count = 0; count < 80; count++) {
            uint64_t a[32];
            for (int l = 0; l < 32; l++) {
                lane_set(b, i->a, kinds[k].bytes, l, a[l] = any_integer());
                lane_set(b, i->b, 4, l, count);
            }
            bench_run(b, i, FULL_MASK);
            for (int l = 0; l < 32; l++) {
                Wide want = extended(a[l], kinds[k].bytes, true) >> count;
                ck_assert(extended(lane_get(b, i->d, kinds[k].bytes, l), kinds[k].bytes, true) ==
                          want);
            }
        }
    }
    bench_close(b);
}
END_TEST

// 64-bit sums, differences and products of 128 bits made of 32-bit pieces through the carry.
START_TEST(carries) {
    Bench *b =
        bench_open(REGISTERS "add.cc.u32 %r0, %r1, %r2; addc.u32 %r3, %r4, %r5;"
                             "sub.cc.u32 %r0, %r1, %r2; subc.u32 %r3, %r4, %r5;"
                             "mad.lo.cc.u32 %r0, %r1, %r2, %r6; madc.hi.u32 %r3, %r4, %r5, %r7;",
                   0);
    static const char *const names[3][2] = {
        {"add.cc.u32", "addc.u32"}, {"sub.cc.u32", "subc.u32"}, {"mad.lo.cc.u32", "madc.hi.u32"}};
    for (int op = 0; op < 3; op++) {
        const Insn *lower = bench_insn(b, names[op][0]), *upper = bench_insn(b, names[op][1]);
        for (int round = 0; round < ROUNDS; round++) {
            uint64_t x[32], y[32], low[32];
            uint32_t mask = round % 2 ? FULL_MASK : (uint32_t)noise();
            b->warp.carry = (uint32_t)noise();
            uint32_t carry = b->warp.carry;
            for (int l = 0; l < 32; l++) {
                x[l] = any_integer(), y[l] = any_integer();
                lane_set(b, lower->a, 4, l, x[l] & 0xffffffff);
                lane_set(b, lower->b, 4, l, y[l] & 0xffffffff);
                if (op == 2) lane_set(b, lower->c, 4, l, x[l] >> 32);
            }
            bench_run(b, lower, mask);
            ck_assert_uint_eq(b->warp.carry & ~mask, carry & ~mask);
            for (int l = 0; l < 32; l++) low[l] = lane_get(b, lower->d, 4, l);
            for (int l = 0; l < 32; l++) {
                lane_set(b, upper->a, 4, l, op == 2 ? x[l] & 0xffffffff : x[l] >> 32);
                lane_set(b, upper->b, 4, l, op == 2 ? y[l] & 0xffffffff : y[l] >> 32);
                if (op == 2) lane_set(b, upper->c, 4, l, 0);
            }
            bench_run(b, upper, mask);
            for (int l = 0; l < 32; l++) {
                if (!(mask >> l & 1)) continue;
                uint64_t want = op == 0 ? x[l] + y[l]
                                : op == 1
                                    ? x[l] - y[l]
                                    : (x[l] & 0xffffffff) * (y[l] & 0xffffffff) + (x[l] >> 32);
                ck_assert_uint_eq(lane_get(b, upper->d, 4, l) << 32 | low[l], want);
            }
        }
    }
    bench_close(b);
}
END_TEST

// A subtraction leaves what the chip's a + ~b + 1 does: 1 where nothing was borrowed. nvcc's
// division of 128 bits reads it by addc.
START_TEST(borrow_read_by_addc) {
    Bench *b = bench_open(REGISTERS "sub.cc.u32 %r0, %r1, %r2; subc.cc.u32 %r3, %r4, %r5;"
                                    "addc.u32 %r6, %r7, %r7;",
                          0);
    const Insn *lower = bench_insn(b, "sub.cc.u32"), *upper = bench_insn(b, "subc.cc.u32"),
               *read = bench_insn(b, "addc.u32");
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t x[32], y[32];
        for (int l = 0; l < 32; l++) {
            x[l] = any_integer(), y[l] = round % 3 ? any_integer() : x[l] + (uint64_t)(l % 3) - 1;
            lane_set(b, lower->a, 4, l, x[l] & 0xffffffff);
            lane_set(b, lower->b, 4, l, y[l] & 0xffffffff);
        }
        bench_run(b, lower, FULL_MASK);
        for (int l = 0; l < 32; l++) {
            lane_set(b, upper->a, 4, l, x[l] >> 32);
            lane_set(b, upper->b, 4, l, y[l] >> 32);
        }
        bench_run(b, upper, FULL_MASK);
        for (int l = 0; l < 32; l++) lane_set(b, read->a, 4, l, 0);
        bench_run(b, read, FULL_MASK);
        for (int l = 0; l < 32; l++) ck_assert_uint_eq(lane_get(b, read->d, 4, l), x[l] >= y[l]);
    }
    bench_close(b);
}
END_TEST

Suite *suite_integer(void) {
    Suite *s = suite_create("integer");
    TCase *t = tcase_create("integers");
    tcase_add_test(t, integers);
    tcase_add_test(t, arithmetic_shifts);
    tcase_add_test(t, carries);
    tcase_add_test(t, borrow_read_by_addc);
    suite_add_tcase(s, t);
    return s;
}
