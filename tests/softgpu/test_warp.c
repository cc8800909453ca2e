// Comparisons, and everything that lanes and warps do together: shuffles, votes, barriers.
//
// Comparisons are tested on the bench; the rest by running small kernels on the machine, since it
// takes one to bring lanes together. Each thread of such a kernel leaves one 32-bit result.
#include <stdlib.h>

#include "thread_kernel.h"

#include "softgpu/machine/parts.h"

Suite *suite_warp(void);

// ---- setp: every operator on every type

static const char *const operators[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",
                                        "lo",  "ls",  "hi",  "hs",  "equ", "neu",
                                        "ltu", "leu", "gtu", "geu", "num", "nan"};
enum { OPERATORS = sizeof operators / sizeof *operators };

// How a relates to b: -1, 0, 1, or 2 if they are unordered.
static bool holds(const char *op, int relation) {
    bool unordered = relation == 2;
    if (!strcmp(op, "num")) return !unordered;
    if (!strcmp(op, "nan")) return unordered;
    bool u = strlen(op) == 3;
    if (unordered) return u;
    if (!strncmp(op, "eq", 2)) return relation == 0;
    if (!strncmp(op, "ne", 2)) return relation != 0;
    if (!strncmp(op, "lt", 2) || !strcmp(op, "lo")) return relation < 0;
    if (!strncmp(op, "le", 2) || !strcmp(op, "ls")) return relation <= 0;
    if (!strncmp(op, "gt", 2) || !strcmp(op, "hi")) return relation > 0;
    return relation >= 0;
}

// 's' signed, 'u' unsigned, 'b' bits, 'f' float, 'z' float with .ftz, 'h' half, 'g' bf16
static int relate(char kind, unsigned bytes, uint64_t a, uint64_t b) {
    unsigned spare = 64 - 8 * bytes;
    if (kind == 's') {
        int64_t x = (int64_t)(a << spare), y = (int64_t)(b << spare);
        return x < y ? -1 : x > y;
    }
    if (kind == 'u' || kind == 'b') {
        uint64_t x = a << spare, y = b << spare;
        return x < y ? -1 : x > y;
    }
    double x, y;
    if (kind == 'h') {
        // halves of exponent field 0 to 30: the value by its definition
        x = ldexp((a & 0x3ff) + (a & 0x7c00 ? 1024 : 0),
                  (a & 0x7c00 ? (int)(a >> 10 & 31) : 1) - 25);
        y = ldexp((b & 0x3ff) + (b & 0x7c00 ? 1024 : 0),
                  (b & 0x7c00 ? (int)(b >> 10 & 31) : 1) - 25);
        if ((a & 0x7c00) == 0x7c00) x = a & 0x3ff ? NAN : INFINITY;
        if ((b & 0x7c00) == 0x7c00) y = b & 0x3ff ? NAN : INFINITY;
        if (a & 0x8000) x = -x;
        if (b & 0x8000) y = -y;
    } else if (kind == 'g') {
        x = bits_float((uint32_t)a << 16), y = bits_float((uint32_t)b << 16);
    } else if (bytes == 8) {
        x = bits_double(a), y = bits_double(b);
    } else {
        x = bits_float((uint32_t)a), y = bits_float((uint32_t)b);
    }
    if (kind == 'z' && fabs(x) < 0x1p-126) x = 0;
    if (kind == 'z' && fabs(y) < 0x1p-126) y = 0;
    return x != x || y != y ? 2 : x < y ? -1 : x > y;
}

static const struct {
    const char *type, *operands;
    char kind;
    unsigned bytes;
} setp_types[] = {
    {"s16", "%h1, %h2", 's', 2}, {"u16", "%h1, %h2", 'u', 2},     {"b16", "%h1, %h2", 'b', 2},
    {"s32", "%r1, %r2", 's', 4}, {"u32", "%r1, %r2", 'u', 4},     {"b32", "%r1, %r2", 'b', 4},
    {"s64", "%d1, %d2", 's', 8}, {"u64", "%d1, %d2", 'u', 8},     {"b64", "%d1, %d2", 'b', 8},
    {"f32", "%f1, %f2", 'f', 4}, {"ftz.f32", "%f1, %f2", 'z', 4}, {"f64", "%e1, %e2", 'f', 8},
    {"f16", "%h1, %h2", 'h', 2}, {"bf16", "%h1, %h2", 'g', 2},
};
enum { SETP_TYPES = sizeof setp_types / sizeof *setp_types };

static bool operator_exists(int op, char kind) {
    if (op < 2) return true;             // eq, ne
    if (op < 6) return kind != 'b';      // lt … ge
    if (op < 10) return kind == 'u';     // lo … hs
    return strchr("fzhg", kind) != NULL; // equ … nan
}

START_TEST(comparisons) {
    for (int t = 0; t < SETP_TYPES; t++) {
        char body[4096];
        int length = snprintf(body, sizeof body, "%s", REGISTERS);
        for (int op = 0; op < OPERATORS; op++)
            if (operator_exists(op, setp_types[t].kind))
                length += snprintf(body + length, sizeof body - (size_t)length,
                                   "setp.%s.%s %%p1|%%p2, %s;\n", operators[op], setp_types[t].type,
                                   setp_types[t].operands);
        Bench *b = bench_open(body, 0);
        for (int op = 0; op < OPERATORS; op++) {
            if (!operator_exists(op, setp_types[t].kind)) continue;
            char name[32];
            snprintf(name, sizeof name, "setp.%s.%s", operators[op], setp_types[t].type);
            const Insn *i = bench_insn(b, name);
            unsigned bytes = setp_types[t].bytes;
            for (int round = 0; round < 30; round++) {
                uint32_t want = 0, mask = round % 2 ? FULL_MASK : (uint32_t)noise();
                for (int l = 0; l < 32; l++) {
                    uint64_t x = strchr("fz", setp_types[t].kind) && bytes == 4 ? any_float()
                                                                                : any_integer();
                    uint64_t y = noise() % 4 ? (bytes == 4 ? any_float() : any_integer()) : x;
                    if (setp_types[t].kind == 'h') x &= 0xffff, y &= 0xffff;
                    lane_set(b, i->a, bytes, l, x);
                    lane_set(b, i->b, bytes, l, y);
                    if (holds(operators[op], relate(setp_types[t].kind, bytes, x, y)))
                        want |= 1u << l;
                }
                predicate_set(b, i->d, 0xaaaaaaaa);
                predicate_set(b, i->e, 0x55555555);
                bench_run(b, i, mask);
                ck_assert_msg(predicate_get(b, i->d) == ((want & mask) | (0xaaaaaaaa & ~mask)),
                              "%s", name);
                ck_assert_msg(predicate_get(b, i->e) == ((~want & mask) | (0x55555555 & ~mask)),
                              "%s", name);
            }
        }
        bench_close(b);
    }
}
END_TEST

START_TEST(combined_comparisons) {
    Bench *b = bench_open(REGISTERS
                          "setp.lt.and.s32 %p1|%p2, %r1, 5, %p3; setp.lt.or.s32 %p1|_, %r1, 5, %p3;"
                          "setp.lt.xor.s32 %p3|%p4, %r1, 5, %p3; setp.gt.f16x2 %p1|%p2, %r1, %r2;",
                          0);
    const Insn *code = b->kernel->code;
    const uint32_t less = 0x1f, c = 0x0000ff0f;
    for (int k = 0; k < 3; k++) {
        for (int l = 0; l < 32; l++) lane_set(b, code[k].a, 4, l, (uint64_t)l);
        predicate_set(b, code[k].c, c);
        bench_run(b, &code[k], FULL_MASK);
        uint32_t p = predicate_get(b, code[k].d), q = predicate_get(b, code[k].e);
        ck_assert_uint_eq(p, k == 0 ? less & c : k == 1 ? less | c : less ^ c);
        ck_assert_uint_eq(q, k == 0 ? ~less & c : k == 1 ? ~less | c : ~less ^ c);
    }
    const Insn *pair = bench_insn(b, "setp.gt.f16x2");
    for (int l = 0; l < 32; l++) {
        lane_set(b, pair->a, 4, l, 0x3c00bc00);
        lane_set(b, pair->b, 4, l, l % 2 ? 0xbc003c00 : 0x3c00fc00);
    }
    bench_run(b, pair, FULL_MASK);
    ck_assert_uint_eq(predicate_get(b, pair->d), 0x55555555); // lower halves
    ck_assert_uint_eq(predicate_get(b, pair->e), 0xaaaaaaaa);
    bench_close(b);
}
END_TEST

START_TEST(set_and_select) {
    Bench *b =
        bench_open(REGISTERS "set.lt.u32.s32 %r0, %r1, 3; set.lt.f32.s32 %f0, %r1, 3;"
                             "set.gt.f16x2.f16x2 %r0, %r1, %r2; selp.b64 %d0, %d1, %d2, %p1;"
                             "slct.b32.s32 %r0, %r1, %r2, %r3; slct.b32.f32 %r0, %r1, %r2, %f3;",
                   0);
    const Insn *i = bench_insn(b, "set.lt.u32.s32"), *f = bench_insn(b, "set.lt.f32.s32");
    for (int l = 0; l < 32; l++) lane_set(b, i->a, 4, l, (uint64_t)l);
    bench_run(b, i, FULL_MASK);
    ck_assert_uint_eq(lane_get(b, i->d, 4, 2), 0xffffffff);
    ck_assert_uint_eq(lane_get(b, i->d, 4, 3), 0);
    for (int l = 0; l < 32; l++) lane_set(b, f->a, 4, l, (uint64_t)l);
    bench_run(b, f, FULL_MASK);
    ck_assert_uint_eq(lane_get(b, f->d, 4, 2), 0x3f800000);
    i = bench_insn(b, "set.gt.f16x2.f16x2");
    for (int l = 0; l < 32; l++) lane_set(b, i->a, 4, l, 0x3c000000), lane_set(b, i->b, 4, l, 0);
    bench_run(b, i, FULL_MASK);
    ck_assert_uint_eq(lane_get(b, i->d, 4, 2), 0x3c000000);
    i = bench_insn(b, "selp.b64");
    for (int l = 0; l < 32; l++) lane_set(b, i->a, 8, l, 100), lane_set(b, i->b, 8, l, 200);
    predicate_set(b, i->c, 0xf0);
    bench_run(b, i, FULL_MASK);
    for (int l = 0; l < 32; l++)
        ck_assert_uint_eq(lane_get(b, i->d, 8, l), 0xf0 >> l & 1 ? 100 : 200);
    i = bench_insn(b, "slct.b32.s32"), f = bench_insn(b, "slct.b32.f32");
    for (int k = 0; k < 2; k++, i = f) {
        for (int l = 0; l < 32; l++) lane_set(b, i->a, 4, l, 1), lane_set(b, i->b, 4, l, 2);
        for (int l = 0; l < 32; l++)
            lane_set(b, i->c, 4, l, l == 0 ? 0x80000000 : l == 1 ? 0 : 0x7fc00000);
        bench_run(b, i, FULL_MASK);
        ck_assert_uint_eq(lane_get(b, i->d, 4, 0), k ? 1 : 2); // -0.0 >= 0, INT_MIN < 0
        ck_assert_uint_eq(lane_get(b, i->d, 4, 1), 1);
        ck_assert_uint_eq(lane_get(b, i->d, 4, 2), k ? 2 : 1); // NaN chooses b
    }
    bench_close(b);
}
END_TEST

// ---- shuffles

// By the pseudo-code of PTX ISA 9.7.9.6.
static uint32_t shuffled(const char *mode, int lane, int b, int c, bool *p) {
    int segment = c >> 8 & 31, bound = c & 31;
    int max = (lane & segment) | (bound & ~segment), min = lane & segment, j;
    if (!strcmp(mode, "up"))
        j = lane - b, *p = j >= max;
    else if (!strcmp(mode, "down"))
        j = lane + b, *p = j <= max;
    else if (!strcmp(mode, "bfly"))
        j = lane ^ b, *p = j <= max;
    else
        j = min | (b & ~segment), *p = j <= max;
    return (uint32_t)(*p ? j : lane) * 3;
}

START_TEST(shuffles) {
    static const char *const modes[] = {"up", "down", "bfly", "idx"};
    static const int clamps[][2] = {{0, 31}, {0x1000, 0x101f}, {0x1800, 0x181f}}; // width 32, 16, 8
    for (int m = 0; m < 4; m++)
        for (int width = 0; width < 3; width++) {
            int c = clamps[width][m != 0], by = 1 + 3 * m;
            char body[512];
            snprintf(body, sizeof body,
                     "mul.lo.u32 %%r1, %%t, 3; shfl.sync.%s.b32 %%r2|%%p1, %%r1, %d, %d, -1;"
                     "selp.b32 %%r3, 0x1000, 0, %%p1; add.u32 %%out, %%r2, %%r3;",
                     modes[m], by, c);
            ck_assert_int_eq(run(32, body), 0);
            for (int l = 0; l < 32; l++) {
                bool p;
                uint32_t want = shuffled(modes[m], l, by, c, &p);
                ck_assert_uint_eq(results[l], want + (p ? 0x1000 : 0));
            }
        }
    ck_assert_ptr_null(findings_get(0));
}
END_TEST

// The halves of a warp name masks of their own, together and in different branches.
START_TEST(halves_of_a_warp) {
    ck_assert_int_eq(run(32, "setp.lt.u32 %p1, %t, 16; selp.b32 %r1, 0xffff, 0xffff0000, %p1;"
                             "shfl.sync.bfly.b32 %r2, %t, 1, 31, %r1;"
                             "vote.sync.ballot.b32 %r3, %p1, %r1; add.u32 %out, %r2, %r3;"),
                     0);
    for (uint32_t l = 0; l < 32; l++)
        ck_assert_uint_eq(results[l], (l ^ 1) + (l < 16 ? 0xffff : 0));
    ck_assert_int_eq(run(32, "setp.lt.u32 %p1, %t, 16; @%p1 bra LOW;"
                             "redux.sync.add.u32 %out, %t, 0xffff0000; bra DONE;"
                             "LOW: redux.sync.max.u32 %out, %t, 0xffff; DONE:"),
                     0);
    for (uint32_t l = 0; l < 32; l++) ck_assert_uint_eq(results[l], l < 16 ? 15 : 376);
    ck_assert_ptr_null(findings_get(0));
}
END_TEST

START_TEST(bad_masks) {
    ck_assert_int_ne(run(32, "shfl.sync.idx.b32 %out, %t, 0, 31, 0xff;"), 0);
    expect_finding(FINDING_DIVERGENT, "doesn't name it");
    set_up();
    ck_assert_int_ne(run(32, "setp.lt.u32 %p1, %t, 16; selp.b32 %r1, 0xffffff, 0xffffffff, %p1;"
                             "vote.sync.ballot.b32 %out, %p1, %r1;"),
                     0);
    expect_finding(FINDING_DIVERGENT, "names the lanes");
    set_up();
    // lanes 16 and up never come
    ck_assert_int_ne(run(32, "setp.ge.u32 %p1, %t, 16; mov.b32 %out, 1; @%p1 bra WAIT;"
                             "shfl.sync.idx.b32 %out, %t, 0, 31, -1; bra.uni STORE;"
                             "WAIT: bar.sync 0; bra.uni STORE;"),
                     0);
    expect_finding(FINDING_DIVERGENT, "shfl.sync.idx.b32");
    set_up();
    // reading a lane that has exited: said once, and the run goes on
    run(32, "setp.ge.u32 %p1, %t, 16; @%p1 exit; shfl.sync.idx.b32 %out, %t, 20, 31, 0xffff;");
    expect_finding(FINDING_DIVERGENT, "reads from lane 20");
}
END_TEST

START_TEST(votes) {
    ck_assert_int_eq(
        run(32, "setp.lt.u32 %p1, %t, 5; vote.sync.any.pred %p2, %p1, -1;"
                "vote.sync.all.pred %p3, %p1, -1; vote.sync.uni.pred %p4, %p1, -1;"
                "vote.sync.all.pred %p5, !%p1, 0xffffffff; vote.ballot.sync.b32 %r1, !%p1, -1;"
                "selp.b32 %r2, 1, 0, %p2; selp.b32 %r3, 2, 0, %p3; selp.b32 %r4, 4, 0, %p4;"
                "selp.b32 %r5, 8, 0, %p5; add.u32 %out, %r1, %r2; add.u32 %out, %out, %r3;"
                "add.u32 %out, %out, %r4; add.u32 %out, %out, %r5;"),
        0);
    for (int l = 0; l < 32; l++) ck_assert_uint_eq(results[l], ~0x1fu + 1);
}
END_TEST

START_TEST(matches) {
    ck_assert_int_eq(run(32, "and.b32 %r1, %t, 3; match.any.sync.b32 %out, %r1, -1;"), 0);
    for (uint32_t l = 0; l < 32; l++) ck_assert_uint_eq(results[l], 0x11111111u << l % 4);
    ck_assert_int_eq(run(32, "mov.b64 %d1, 7; match.all.sync.b64 %r1|%p1, %d1, -1;"
                             "selp.b32 %out, %r1, 0, %p1;"),
                     0);
    for (int l = 0; l < 32; l++) ck_assert_uint_eq(results[l], FULL_MASK);
    ck_assert_int_eq(run(32, "match.all.sync.b32 %r1|%p1, %t, -1; selp.b32 %r2, 1, 2, %p1;"
                             "add.u32 %out, %r1, %r2;"),
                     0);
    for (int l = 0; l < 32; l++) ck_assert_uint_eq(results[l], 2);
}
END_TEST

START_TEST(reductions) {
    const struct {
        const char *body;
        uint32_t want;
    } cases[] = {
        {"redux.sync.add.s32 %out, %t, -1;", 496},
        {"sub.s32 %r1, %t, 7; redux.sync.min.s32 %out, %r1, -1;", (uint32_t)-7},
        {"sub.s32 %r1, %t, 7; redux.sync.min.u32 %out, %r1, -1;", 0},
        {"sub.s32 %r1, %t, 7; redux.sync.max.s32 %out, %r1, -1;", 24},
        {"redux.sync.xor.b32 %out, %t, -1;", 0},
        {"redux.sync.or.b32 %out, %t, -1;", 31},
        {"cvt.rn.f32.u32 %f1, %t; neg.f32 %f1, %f1; redux.sync.max.abs.f32 %out, %f1, -1;",
         0x41f80000},
        {"mov.f32 %f1, 0f7FC00000; redux.sync.min.f32 %out, %f1, -1;", 0x7fffffff},
        {"setp.eq.u32 %p1, %t, 4; selp.f32 %f1, 0f7FC00000, 0fBF800000, %p1;"
         "redux.sync.max.f32 %out, %f1, -1;",
         0xbf800000},
        {"setp.eq.u32 %p1, %t, 4; selp.f32 %f1, 0f7FC00000, 0fBF800000, %p1;"
         "redux.sync.max.NaN.f32 %out, %f1, -1;",
         0x7fffffff},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        ck_assert_int_eq(run(32, cases[k].body), 0);
        for (int l = 0; l < 32; l++)
            ck_assert_msg(results[l] == cases[k].want, "%s: %x", cases[k].body, results[l]);
    }
}
END_TEST

START_TEST(active_and_elected) {
    static const char *const body =
        "mov.b32 %out, 0; setp.lt.u32 %p1, %t, 12; @!%p1 bra DONE; activemask.b32 %r1;"
        "elect.sync %r2|%p2, 0xfff; selp.b32 %r3, 0x10000, 0, %p2; shl.b32 %r2, %r2, 20;"
        "add.u32 %out, %r1, %r2; add.u32 %out, %out, %r3; DONE:";
    uint32_t leaders = 0;
    for (int way = 0; way < 12; way++) {
        options.schedule = (uint64_t)way / 2;
        options.strict = way % 2;
        ck_assert_int_eq(run(32, body), 0);
        uint32_t leader = results[0] >> 20;
        leaders |= 1u << leader;
        ck_assert_uint_lt(leader, 12);
        if (options.schedule == 0 || !options.strict) ck_assert_uint_eq(leader, 0);
        for (uint32_t l = 0; l < 32; l++)
            ck_assert_uint_eq(results[l],
                              l < 12 ? 0xfff + (leader << 20) + (l == leader ? 0x10000 : 0) : 0);
    }
    ck_assert(leaders & (leaders - 1)); // not always the same one
}
END_TEST

// bar.warp.sync at different places of the program.
START_TEST(warp_barrier) {
    ck_assert_int_eq(run(32,
                         "setp.lt.u32 %p1, %t, 16; mov.b32 %out, 3; @%p1 bra LOW; bar.warp.sync -1;"
                         "bra DONE; LOW: bar.warp.sync 0xffffffff; mov.b32 %out, 4; DONE:"),
                     0);
    for (int l = 0; l < 32; l++) ck_assert_uint_eq(results[l], l < 16 ? 4 : 3);
}
END_TEST

// ---- barriers

// Warps write shared memory, meet, and read what another wrote. The last warp is not whole.
START_TEST(block_barrier) {
    for (options.schedule = 0; options.schedule < 4; options.schedule++) {
        ck_assert_int_eq(run(240, ".shared .b32 s[240]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1;"
                                  "st.shared.u32 [%r2], %t; bar.sync 0; sub.u32 %r3, 239, %t;"
                                  "mad.lo.u32 %r4, %r3, 4, %r1; ld.shared.u32 %out, [%r4];"
                                  "barrier.sync 0;"),
                         0);
        for (uint32_t t = 0; t < 240; t++) ck_assert_uint_eq(results[t], 239 - t);
    }
    ck_assert_ptr_null(findings_get(0));
}
END_TEST

// A producer warp arrives, consumers wait; a barrier whose number is in a register.
START_TEST(named_barriers) {
    ck_assert_int_eq(run(128,
                         ".shared .b32 s; mov.b32 %r5, 3; setp.lt.u32 %p1, %t, 32; @!%p1 bra WAIT;"
                         "st.shared.u32 [s], 77; bar.arrive %r5, 128; mov.b32 %out, 1; bra DONE;"
                         "WAIT: barrier.sync.aligned %r5, 128; ld.shared.u32 %out, [s]; DONE:"),
                     0);
    for (int t = 0; t < 128; t++) ck_assert_uint_eq(results[t], t < 32 ? 1 : 77);
}
END_TEST

START_TEST(reducing_barriers) {
    ck_assert_int_eq(run(96, "setp.lt.u32 %p1, %t, 40; bar.red.popc.u32 %r1, 1, %p1;"
                             "bar.red.and.pred %p2, 1, 96, %p1; bar.red.or.pred %p3, 1, !%p1;"
                             "selp.b32 %r2, 1000, 0, %p2; selp.b32 %r3, 2000, 0, %p3;"
                             "add.u32 %out, %r1, %r2; add.u32 %out, %out, %r3;"),
                     0);
    for (int t = 0; t < 96; t++) ck_assert_uint_eq(results[t], 2040);
}
END_TEST

// Warps that have exited are not waited for.
START_TEST(barrier_without_the_exited) {
    ck_assert_int_eq(run(128, "mov.b32 %out, 9; setp.ge.u32 %p1, %t, 64; @%p1 exit; bar.sync 0;"),
                     0);
    for (int t = 0; t < 64; t++) ck_assert_uint_eq(results[t], 9);
    ck_assert_uint_eq(results[64], 0xeeeeeeee);
}
END_TEST

// Half of a warp leaves before __syncthreads(): on the chip it works, the letter of PTX forbids it.
START_TEST(exited_lanes_before_a_barrier) {
    const char *body = "mov.b32 %out, 9; and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 1; @%p1 exit; "
                       "bar.sync 0;";
    for (int strict = 0; strict < 2; strict++) {
        set_up();
        options.strict = strict;
        ck_assert_int_eq(run(64, body), 0);
        ck_assert_uint_eq(results[2], 9);
        ck_assert_int_eq(findings_count(), strict);
        expect_finding(FINDING_LINT, "16 lanes of the warp have exited");
    }
    set_up();
    options.strict = true; // lanes that never were don't count, nor warps that left as a whole
    ck_assert_int_eq(run(48, "mov.b32 %out, 9; setp.lt.u32 %p1, %t, 32; @%p1 exit; bar.sync 0;"),
                     0);
    ck_assert_int_eq(findings_count(), 0);
}
END_TEST

START_TEST(bad_barriers) {
    const struct {
        const char *body, *words;
    } cases[] = {
        {"bar.sync 16;", "no barrier 16"},
        {"bar.sync 1, 48;", "not a multiple of 32"},
        {"bar.sync 1, 512;", "the block has 128"},
        {"setp.lt.u32 %p1, %t, 32; selp.b32 %r1, 64, 96, %p1; bar.sync 1, %r1;", "count of"},
        {"and.b32 %r1, %t, 1; bar.sync %r1;", "different barrier numbers"},
        {"setp.lt.u32 %p1, %t, 32; @%p1 bra A; bar.sync 1, 128; bra B; A: bar.red.or.pred %p2, 1, "
         "128, %p1; B:",
         "bar.red"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        set_up();
        ck_assert_int_ne(run(128, cases[k].body), 0);
        expect_finding(FINDING_BARRIER, cases[k].words);
    }
    set_up();
    // lanes of one warp at different barriers
    ck_assert_int_ne(run(32,
                         "mov.b32 %out, 0; setp.lt.u32 %p1, %t, 16; @%p1 bra LOW; bar.sync 1, 32;"
                         "bra.uni STORE; LOW: bar.sync 2, 32; bra.uni STORE;"),
                     0);
    expect_finding(FINDING_DIVERGENT, "bar.sync");
}
END_TEST

// ---- special registers and address spaces

START_TEST(special_registers) {
    const struct {
        const char *body;
        uint32_t first, step; // result of thread t, within warp 1 of 64 threads
    } cases[] = {
        {"mov.u32 %out, %tid.x;", 32, 1},
        {"mov.u32 %out, %laneid;", 0, 1},
        {"mov.u32 %out, %ntid.x;", 64, 0},
        {"mov.u32 %out, %ctaid.y;", 0, 0},
        {"mov.u32 %out, %warpid;", 1, 0},
        {"mov.u32 %out, %nctaid.z;", 1, 0},
        {"mov.u32 %out, %cluster_ctarank;", 0, 0},
        {"mov.u32 %out, %cluster_nctarank;", 1, 0},
        {"mov.u32 %out, WARP_SZ;", 32, 0},
        {"add.u32 %out, %tid.x, 5;", 37, 1},
        {"mov.u64 %d1, %clock64; setp.gt.u64 %p1, %d1, 0; selp.b32 %out, 1, 0, %p1;", 1, 0},
        {"mov.u16 %h1, %ntid.x; cvt.u32.u16 %out, %h1;", 64, 0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        ck_assert_int_eq(run(64, cases[k].body), 0);
        for (uint32_t l = 0; l < 32; l++)
            ck_assert_msg(results[32 + l] == cases[k].first + l * cases[k].step, "%s: %u",
                          cases[k].body, results[32 + l]);
    }
    static const char *const masks[] = {"eq", "le", "lt", "ge", "gt"};
    for (int m = 0; m < 5; m++) {
        char body[64];
        snprintf(body, sizeof body, "mov.u32 %%out, %%lanemask_%s;", masks[m]);
        ck_assert_int_eq(run(32, body), 0);
        for (int l = 0; l < 32; l++) {
            uint32_t want = 0;
            for (int k = 0; k < 32; k++) {
                bool in = m == 0   ? k == l
                          : m == 1 ? k <= l
                          : m == 2 ? k < l
                          : m == 3 ? k >= l
                                   : k > l;
                want |= (uint32_t)in << k;
            }
            ck_assert_uint_eq(results[l], want);
        }
    }
}
END_TEST

START_TEST(address_spaces) {
    ck_assert_int_eq(
        run(32, ".shared .b32 s; .local .b32 v; mov.u64 %d1, s; cvta.shared.u64 %d2, %d1;"
                "st.u32 [%d2], 5; bar.warp.sync -1; cvta.to.shared.u64 %d3, %d2;"
                "ld.shared.u32 %r1, [%d3]; isspacep.shared %p1, %d2; isspacep.global %p2, %d2; "
                "mov.u64 %d4, v;"
                "cvta.local.u64 %d5, %d4; st.u32 [%d5], %t; ld.local.u32 %r2, [v];"
                "isspacep.local %p3, %d5; ld.param.u64 %d6, [result]; isspacep.global %p4, %d6;"
                "selp.b32 %r3, 0x100, 0, %p1; selp.b32 %r4, 0x200, 0, %p2;"
                "selp.b32 %r5, 0x400, 0, %p3; selp.b32 %r6, 0x800, 0, %p4;"
                "or.b32 %out, %r3, %r4; or.b32 %out, %out, %r5; or.b32 %out, %out, %r6;"
                "add.u32 %out, %out, %r1; add.u32 %out, %out, %r2;"),
        0);
    for (uint32_t l = 0; l < 32; l++) ck_assert_uint_eq(results[l], 0xd00 + 5 + l);
}
END_TEST

START_TEST(sleep) {
    ck_assert_int_eq(
        run(64, "mov.u64 %d1, %globaltimer; nanosleep.u32 5000; mov.u64 %d2, %globaltimer;"
                "sub.u64 %d3, %d2, %d1; setp.ge.u64 %p1, %d3, 4900; selp.b32 %out, 1, 0, %p1;"),
        0);
    for (int t = 0; t < 64; t++) ck_assert_uint_eq(results[t], 1);
}
END_TEST

Suite *suite_warp(void) {
    Suite *s = suite_create("warp");
    TCase *t = tcase_create("comparisons");
    tcase_add_test(t, exited_lanes_before_a_barrier);
    tcase_add_test(t, comparisons);
    tcase_add_test(t, combined_comparisons);
    tcase_add_test(t, set_and_select);
    suite_add_tcase(s, t);
    t = tcase_create("lanes");
    tcase_add_checked_fixture(t, set_up, NULL);
    tcase_add_test(t, shuffles);
    tcase_add_test(t, halves_of_a_warp);
    tcase_add_test(t, bad_masks);
    tcase_add_test(t, votes);
    tcase_add_test(t, matches);
    tcase_add_test(t, reductions);
    tcase_add_test(t, active_and_elected);
    tcase_add_test(t, warp_barrier);
    suite_add_tcase(s, t);
    t = tcase_create("barriers");
    tcase_add_checked_fixture(t, set_up, NULL);
    tcase_add_test(t, block_barrier);
    tcase_add_test(t, named_barriers);
    tcase_add_test(t, reducing_barriers);
    tcase_add_test(t, barrier_without_the_exited);
    tcase_add_test(t, bad_barriers);
    suite_add_tcase(s, t);
    t = tcase_create("special");
    tcase_add_checked_fixture(t, set_up, NULL);
    tcase_add_test(t, special_registers);
    tcase_add_test(t, address_spaces);
    tcase_add_test(t, sleep);
    suite_add_tcase(s, t);
    return s;
}
