// mbarrier: the state and its limits, arrivals and waits of all forms, asynchronous arrivals, and
// what is found out about misuse and deadlock.
#include "thread_kernel.h"

#include "softgpu/machine/mbarrier.h"

Suite *suite_mbarrier(void);

// Two mbarriers at b and b + 8, made by thread 0 for COUNT arrivals; %r0 is the first one's
// address.
#define WITH_COUNT(count)                                                                          \
    ".shared .align 8 .b8 b[64]; mov.u32 %r0, b; setp.eq.u32 %p7, %t, 0;\n"                        \
    "@%p7 mbarrier.init.shared.b64 [%r0], " count ";"                                              \
    "@%p7 mbarrier.init.shared::cta.b64 [b+8], " count "; bar.sync 0; mov.u32 %out, 0;\n"
// Waits for the phase of a token or a parity, with a label of its own.
#define WAIT_TOKEN(label, at, token)                                                               \
    label ": mbarrier.test_wait.shared.b64 %p0, [" at "], " token "; @!%p0 bra " label ";\n"
#define WAIT_PARITY(label, at, parity)                                                             \
    label ": mbarrier.try_wait.parity.shared::cta.b64 %p0, [" at "], " parity ";"                  \
          "@!%p0 bra " label ";\n"

// ---- the word

START_TEST(packing) {
    const MbarrierState states[] = {
        {1, 1, 0, 0},
        {MBARRIER_COUNT_MAX, MBARRIER_COUNT_MAX, MBARRIER_COUNT_MAX, 7},
        {0, 12, -MBARRIER_COUNT_MAX, 1},
        {3, 0, -1, 6},
    };
    for (int k = 0; k < 4; k++) {
        MbarrierState s = mbarrier_unpack(mbarrier_pack(&states[k]));
        ck_assert_uint_eq(s.pending, states[k].pending);
        ck_assert_uint_eq(s.expected, states[k].expected);
        ck_assert_int_eq(s.tx, states[k].tx);
        ck_assert_uint_eq(s.phase, states[k].phase);
    }
}
END_TEST

// ---- right kernels, under every schedule and order of completion

static uint32_t seven(uint32_t t) {
    (void)t;
    return 7;
}
static uint32_t opposite(uint32_t t) {
    return 63 - t + 100;
}
static uint32_t twenty_rounds(uint32_t t) {
    return 20 * (63 - t);
}
static uint32_t pending(uint32_t t) {
    return t == 0 ? 5 : t == 1 ? 1 : 9;
}

// Source and destination of the copies: 4 bytes a thread.
#define COPY                                                                                       \
    ".shared .align 16 .b8 s[1024]; mov.u32 %r1, s; mad.lo.u32 %r1, %t, 4, %r1;"                   \
    "ld.param.u64 %d0, [result]; mad.wide.u32 %d1, %t, 4, %d0; add.u64 %d1, %d1, 1024;"            \
    "xor.b32 %r2, %t, 63; mad.lo.u32 %r2, %r2, 4, s; add.u32 %r3, %t, 100;"                        \
    "st.global.u32 [%d1], %r3; cp.async.ca.shared.global [%r1], [%d1], 4;\n"

static const struct {
    const char *body;
    uint32_t (*expected)(uint32_t t);
    uint32_t threads;
} right[] = {
    // all arrive and wait with their tokens
    {WITH_COUNT("64") ".shared .b32 s[64]; mov.u32 %r1, s; mad.lo.u32 %r1, %t, 4, %r1;"
                      "add.u32 %r2, %t, 100; st.shared.u32 [%r1], %r2;"
                      "mbarrier.arrive.shared.b64 %d0, [%r0];\n" WAIT_TOKEN(
                          "W", "%r0", "%d0") "xor.b32 %r2, %t, 63; mov.u32 %r3, s; mad.lo.u32 %r3, "
                                             "%r2, 4, %r3; ld.shared.u32 %out, [%r3];",
     opposite, 64},
    // 20 phases, parities; two barriers keep writers and readers apart
    {WITH_COUNT(
         "64") ".shared .b32 s[64]; mov.u32 %r1, s; mad.lo.u32 %r1, %t, 4, %r1;"
               "xor.b32 %r2, %t, 63; mov.u32 %r3, s; mad.lo.u32 %r3, %r2, 4, %r3;"
               "mov.u32 %r4, 0;\n"
               "LOOP: and.b32 %r5, %r4, 1; st.shared.u32 [%r1], %t;"
               "mbarrier.arrive.shared.b64 _, [%r0];\n" WAIT_PARITY(
                   "W", "%r0",
                   "%r5") "ld.shared.u32 %r6, [%r3]; add.u32 %out, %out, %r6;"
                          "mbarrier.arrive.release.cta.shared::cta.b64 %d0, [%r0+8];\n" WAIT_PARITY(
                              "V", "%r0+8", "%r5") "add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 20; "
                                                   "@%p1 bra LOOP;",
     twenty_rounds, 64},
    // generic addresses, noComplete, counts, pending_count
    {WITH_COUNT("9") "cvt.u64.u32 %d1, %r0; cvta.shared.u64 %d1, %d1; mov.u64 %d0, 0;"
                     "setp.eq.u32 %p1, %t, 1; setp.eq.u32 %p2, %t, 2;"
                     "@%p2 mbarrier.arrive.noComplete.b64 %d0, [%d1], 4; bar.sync 0;"
                     "@%p7 mbarrier.arrive.noComplete.release.cta.shared.b64 %d0, [%r0], 4;"
                     "bar.sync 0; @%p1 mbarrier.arrive.b64 %d0, [%d1];"
                     "mbarrier.pending_count.b64 %out, %d0;",
     pending, 3},
    // a count and bytes: the phase is over when both have come; expect_tx after complete_tx too
    {WITH_COUNT("2") "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r0], 100;"
                     "mbarrier.test_wait.parity.shared.b64 %p0, [%r0], 0; selp.u32 %r1, 16, 0, %p0;"
                     "mbarrier.arrive.expect_tx.shared::cta.b64 %d0, [%r0], 150;"
                     "mbarrier.test_wait.parity.shared.b64 %p0, [%r0], 0; selp.u32 %r2, 32, 0, %p0;"
                     "mbarrier.arrive.shared::cta.b64 %d0, [%r0], 1;"
                     "mbarrier.test_wait.parity.shared.b64 %p0, [%r0], 0; selp.u32 %r3, 64, 0, %p0;"
                     "mbarrier.complete_tx.shared::cta.b64 [%r0], 50;"
                     "mbarrier.test_wait.parity.shared.b64 %p0, [%r0], 0; selp.u32 %r4, 7, 0, %p0;"
                     "or.b32 %r1, %r1, %r2; or.b32 %r3, %r3, %r4; or.b32 %out, %r1, %r3;",
     seven, 1},
    // a fresh barrier: the phase before the first counts as over
    {WITH_COUNT("1") "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [%r0], 0, 100;"
                     "mov.u32 %out, 7; @%p1 mov.u32 %out, 8;\n" WAIT_PARITY("W", "%r0", "1"),
     seven, 1},
    // half of the threads drop out, the rest goes on
    {WITH_COUNT("64") "setp.ge.u32 %p1, %t, 32; @%p1 bra LEAVE;"
                      "mbarrier.arrive.shared.b64 %d0, [%r0];\n" WAIT_TOKEN(
                          "W", "%r0", "%d0") "mbarrier.arrive.shared.b64 %d0, "
                                             "[%r0];\n" WAIT_TOKEN("V", "%r0",
                                                                   "%d0") "bra.uni END;\nLEAVE: "
                                                                          "mbarrier.arrive_drop."
                                                                          "shared.b64 _, "
                                                                          "[%r0];\nEND: mov.u32 "
                                                                          "%out, 7;",
     seven, 64},
    // invalidated and made anew, with plain use in between
    {WITH_COUNT("64") "mbarrier.arrive.shared.b64 %d0, [%r0];\n" WAIT_TOKEN(
         "W", "%r0", "%d0") "bar.sync 0; @%p7 mbarrier.inval.shared.b64 [%r0]; bar.sync 0; @%p7 "
                            "st.shared.u32 [%r0], %t;"
                            "bar.sync 0; @%p7 mbarrier.init.shared.b64 [%r0], 64; bar.sync 0;"
                            "mbarrier.arrive.shared.b64 %d0, [%r0];\n" WAIT_TOKEN(
                                "V", "%r0", "%d0") "mov.u32 %out, 7;",
     seven, 64},
    // copies tracked by an mbarrier: .noinc is one of the expected arrivals
    {WITH_COUNT("64") COPY "cp.async.mbarrier.arrive.noinc.shared.b64 [%r0];\n" WAIT_PARITY(
         "W", "%r0", "0") "ld.shared.u32 %out, [%r2];",
     opposite, 64},
    // the other form adds itself, so everybody arrives as well
    {WITH_COUNT("64") COPY "cp.async.mbarrier.arrive.shared::cta.b64 [%r0];"
                           "mbarrier.arrive.shared.b64 %d2, [%r0];\n" WAIT_TOKEN(
                               "W", "%r0", "%d2") "ld.shared.u32 %out, [%r2];",
     opposite, 64},
    // no copy is under way: arrives at once; and copies in several groups, waited for by one phase
    {WITH_COUNT("64") "cp.async.mbarrier.arrive.noinc.shared.b64 [%r0];\n" WAIT_PARITY("W", "%r0",
                                                                                       "0") COPY
     "cp.async.commit_group; cp.async.ca.shared.global [%r1+512], [%d1], 4;"
     "cp.async.mbarrier.arrive.noinc.shared.b64 [%r0];\n" WAIT_PARITY(
         "V", "%r0", "1") "ld.shared.u32 %out, [%r2+512];",
     opposite, 64},
    // lanes of one warp: one waits for the other, whichever side of the branch runs first
    {WITH_COUNT("1") "setp.eq.u32 %p1, %t, 3; @%p1 bra ARRIVE;\n" WAIT_PARITY(
         "W", "%r0",
         "0") "bra.uni END;\nARRIVE: mbarrier.arrive.shared.b64 _, [%r0];\nEND: mov.u32 %out, 7;",
     seven, 32},
};
enum { RIGHT = sizeof right / sizeof *right, WAYS = 4 * 3 };

START_TEST(right_barriers) {
    static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};
    int way = _i / RIGHT, k = _i % RIGHT;
    options.async = orders[way % 4];
    options.schedule = (uint64_t)(way / 4);
    options.checks = CHECK_MEM | CHECK_RACE | CHECK_SYNC | (k == 0 ? CHECK_INIT : 0);
    options.strict = true;
    ck_assert_int_eq(run(right[k].threads, right[k].body), 0);
    const Finding *f = findings_get(0);
    ck_assert_msg(f == NULL, "a finding: %s", f ? f->what : "");
    for (uint32_t t = 0; t < right[k].threads; t++)
        ck_assert_msg(results[t] == right[k].expected(t), "thread %u: %u", t, results[t]);
}
END_TEST

// try_wait may be false though the phase is over; test_wait may not. Schedule 0 has no whims.
START_TEST(spurious_answers) {
    const char *body =
        WITH_COUNT("1") "mov.u32 %r1, 0;\n"
                        "LOOP: mbarrier.try_wait.parity.shared.b64 %p0, [%r0], 1;"
                        "@!%p0 add.u32 %out, %out, 1;"
                        "mbarrier.test_wait.parity.shared.b64 %p0, [%r0], 1;"
                        "@!%p0 add.u32 %out, %out, 1000;"
                        "add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 100; @%p1 bra LOOP;";
    options.schedule = (uint64_t)_i;
    ck_assert_int_eq(run(1, body), 0);
    if (_i == 0) ck_assert_uint_eq(results[0], 0);
    if (_i > 0) ck_assert_uint_gt(results[0], 0);
    ck_assert_uint_lt(results[0], 50);
}
END_TEST

// ---- misuse

static const struct {
    const char *body;
    const char *words;
    FindingKind kind;
    int code; // when strict
} broken[] = {
    {WITH_COUNT("2") "mbarrier.arrive.shared::cta.b64 %d0, [%r0], 3;",
     "arrives 3 times at the mbarrier at 0x400, which waits for 2 more arrivals", FINDING_BARRIER,
     719},
    {WITH_COUNT("2") "mbarrier.arrive.shared::cta.b64 %d0, [%r0], 0;", "arrives 0 times",
     FINDING_BARRIER, 719},
    {WITH_COUNT("2") "mbarrier.arrive.noComplete.shared.b64 %d0, [%r0], 2;",
     "would complete its phase", FINDING_BARRIER, 719},
    {WITH_COUNT("2") "mbarrier.arrive.shared.b64 %d0, [%r0+16];", "there is no mbarrier at 0x410",
     FINDING_BARRIER, 719},
    {WITH_COUNT("2") "mbarrier.test_wait.parity.shared.b64 %p0, [%r0+24], 0;",
     "there is no mbarrier", FINDING_BARRIER, 719},
    {WITH_COUNT("2") "mbarrier.inval.shared.b64 [%r0]; mbarrier.arrive.shared.b64 %d0, [%r0];",
     "there is no mbarrier", FINDING_BARRIER, 719},
    {WITH_COUNT("0") "", "can't expect 0 arrivals", FINDING_BARRIER, 719},
    {WITH_COUNT("1048576") "", "can't expect 1048576 arrivals", FINDING_BARRIER, 719},
    {WITH_COUNT("2") "mbarrier.init.shared.b64 [%r0], 2;", "a live mbarrier at 0x400 already",
     FINDING_BARRIER, 719},
    {WITH_COUNT("2") "st.shared.u32 [%r0+4], %t;", "writes 4 bytes of shared memory at a live",
     FINDING_BARRIER, 719},
    {WITH_COUNT("2") "ld.shared.u64 %d0, [%r0];", "reads 8 bytes of shared memory at a live",
     FINDING_BARRIER, 719},
    {WITH_COUNT("2") "mbarrier.expect_tx.shared.b64 [%r0], 1048575;"
                     "mbarrier.expect_tx.shared.b64 [%r0], 1;",
     "would be 1048576", FINDING_BARRIER, 719},
    {WITH_COUNT("1") "mbarrier.arrive.shared.b64 %d0, [%r0]; mbarrier.arrive.shared.b64 %d1, [%r0];"
                     "mbarrier.test_wait.shared.b64 %p0, [%r0], %d0;",
     "2 phases have completed", FINDING_BARRIER, 719},
    {WITH_COUNT("1") "mbarrier.arrive_drop.shared.b64 %d0, [%r0];"
                     "mbarrier.arrive.shared.b64 %d0, [%r0];",
     "waits for 0 more arrivals (of 0)", FINDING_BARRIER, 719},
    {WITH_COUNT("1") "mbarrier.arrive.shared.b64 %d0, [%r0+4];", "multiple of 8",
     FINDING_MISALIGNED, 716},
    {WITH_COUNT("1") "mbarrier.arrive.shared.b64 %d0, [%r0+65536];", "shared memory",
     FINDING_OUT_OF_BOUNDS, 700},
    {WITH_COUNT("1") "ld.param.u64 %d1, [result]; mbarrier.arrive.b64 %d0, [%d1];",
     "no address of shared memory", FINDING_WRONG_SPACE, 717},
    // bytes that an mbarrier tracks are no one's before its phase completes
    {WITH_COUNT("2") COPY
     "cp.async.mbarrier.arrive.noinc.shared.b64 [%r0];"
     "ld.shared.u32 %out, [%r1]; mbarrier.arrive.shared.b64 _, [%r0];\n" WAIT_PARITY("W", "%r0",
                                                                                     "0"),
     "has not been waited for", FINDING_RACE, 0},
};
enum { BROKEN = sizeof broken / sizeof *broken };

START_TEST(misuse) {
    options.strict = true;
    ck_assert_int_eq(run(1, broken[_i].body), broken[_i].code);
    expect_finding(broken[_i].kind, broken[_i].words);
}
END_TEST

// What programs are known to do and get away with is a note when not strict: initialising twice,
// and plain use of the memory afterwards, which ends the object.
START_TEST(lenient) {
    const char *body = WITH_COUNT("1") "mbarrier.init.shared.b64 [%r0], 1;"
                                       "mbarrier.arrive.shared.b64 %d0, [%r0];"
                                       "st.shared.u64 [%r0], 5; ld.shared.u32 %out, [%r0];";
    ck_assert_int_eq(run(1, body), 0);
    ck_assert_uint_eq(results[0], 5);
    for (int k = 0; k < 2; k++) {
        ck_assert_ptr_nonnull(findings_get(k));
        ck_assert_int_eq(findings_get(k)->kind, FINDING_LINT);
        ck_assert(findings_get(k)->note);
    }
    ck_assert_ptr_null(findings_get(2));
}
END_TEST

// ---- deadlock: the report names the object, its phase and what is missing

static const char *const dead[] = {
    WITH_COUNT("65") "mbarrier.arrive.shared.b64 %d0, [%r0];\n" WAIT_TOKEN("W", "%r0", "%d0"),
    // the loop reads a clock and sleeps, as libraries' loops do
    WITH_COUNT("65") "mbarrier.arrive.shared.b64 %d0, [%r0];\n"
                     "W: mbarrier.test_wait.shared.b64 %p0, [%r0], %d0; mov.u64 %d1, %globaltimer;"
                     "nanosleep.u32 1000000; @!%p0 bra W;",
    // or works: wherever the warps are in it, what they wait for is named
    WITH_COUNT("65") "mbarrier.arrive.shared.b64 %d0, [%r0]; mov.u32 %r3, 0;\n"
                     "W: mbarrier.test_wait.shared.b64 %p0, [%r0], %d0; xor.b32 %r3, %r3, 1;"
                     "xor.b32 %r4, %r3, 2; xor.b32 %r4, %r4, 3; xor.b32 %r4, %r4, 5; @!%p0 bra W;",
};

START_TEST(deadlock) {
    options.async = _i % 2 ? ASYNC_LATE : ASYNC_TIMED;
    options.schedule = (uint64_t)(_i / 6);
    ck_assert_int_eq(run(64, dead[_i / 2 % 3]), 719);
    expect_finding(FINDING_DEADLOCK, "mbarrier at 0x400, phase 0 (parity 0): 1 of 65 arrivals are "
                                     "missing");
    const char *what = findings_get(0)->what;
    ck_assert_msg(strstr(what, "warps 0-1 wait in mbarrier.test_wait.shared.b64") != NULL, "%s",
                  what);
    ck_assert_msg(strstr(what, "round a loop") == NULL, "%s", what);
    ck_assert_msg(strstr(what, "the last arrival was mbarrier.arrive.shared.b64") != NULL, "%s",
                  what);
}
END_TEST

Suite *suite_mbarrier(void) {
    Suite *suite = suite_create("mbarrier");
    TCase *tests = tcase_create("mbarrier");
    tcase_add_checked_fixture(tests, set_up, NULL);
    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, packing);
    tcase_add_loop_test(tests, right_barriers, 0, RIGHT * WAYS);
    tcase_add_loop_test(tests, spurious_answers, 0, 3);
    tcase_add_loop_test(tests, misuse, 0, BROKEN);
    tcase_add_test(tests, lenient);
    tcase_add_loop_test(tests, deadlock, 0, 18);
    suite_add_tcase(suite, tests);
    return suite;
}
