// cp.async: what is copied, when waits let go, and what is found out about copies that nobody waits
// for. Kernels run under every order of completion, which must make no difference to right ones.
#include "thread_kernel.h"

Suite *suite_cp_async(void);

// Each thread has 16 bytes at source %d1, the words 4 t + 1 to 4 t + 4, and 16 bytes of shared
// memory at %r1; %r2 is where the opposite thread has them. THREADS must be the block's size.
#define THREADS 64
#define SET_UP                                                                                     \
    ".shared .align 16 .b8 s[4096];\n"                                                             \
    "ld.param.u64 %d0, [result]; mad.wide.u32 %d1, %t, 16, %d0;\n"                                 \
    "mad.lo.u32 %r3, %t, 4, 1; add.u32 %r4, %r3, 1; add.u32 %r5, %r3, 2; add.u32 %r6, %r3, 3;\n"   \
    "st.global.v4.u32 [%d1], {%r3, %r4, %r5, %r6};\n"                                              \
    "mov.u32 %r0, s; mad.lo.u32 %r1, %t, 16, %r0; xor.b32 %r2, %t, 63; mad.lo.u32 %r2, %r2, 16, "  \
    "%r0;\n"
// The last word of the opposite thread's 16 bytes.
#define TAKE "bar.sync 0; ld.shared.u32 %out, [%r2 + 12]; bar.sync 0;\n"

static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};
enum { ORDERS = 4, SCHEDULES = 3, WAYS = ORDERS * SCHEDULES };

// Chooses one of the WAYS.
static void choose(int way) {
    options.async = orders[way % ORDERS];
    options.schedule = (uint64_t)(way / ORDERS);
    options.checks = CHECK_MEM | CHECK_INIT | CHECK_RACE | CHECK_SYNC;
}

// Right kernels, and the result that thread t leaves.
static uint32_t opposite_last(uint32_t t) {
    return 4 * (63 - t) + 4;
}
static uint32_t sum_of_four(uint32_t t) {
    return 4 * (4 * (63 - t) + 1) + 6;
}
static uint32_t zero_filled(uint32_t t) {
    uint32_t words[4] = {4 * t + 1, 4 * t + 2, 4 * t + 3, 4 * t + 4};
    uint8_t bytes[16];
    memcpy(bytes, words, 16);
    memset(bytes + t % 17, 0, 16 - t % 17);
    memcpy(words, bytes, 16);
    return words[0] + words[1] + words[2] + words[3];
}
static uint32_t ignored_when_odd(uint32_t t) {
    return t % 2 ? 0 : 4 * t + 4;
}
static uint32_t two_words(uint32_t t) {
    return 4 * t + 1 + 4 * t + 2;
}

#define SUM_OF(address)                                                                            \
    "ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [" address "]; add.u32 %r3, %r3, %r4;"                 \
    "add.u32 %r5, %r5, %r6; add.u32 %out, %r3, %r5; bar.sync 0;\n"

static const struct {
    const char *body;
    uint32_t (*expected)(uint32_t t);
} right[] = {
    {SET_UP "cp.async.cg.shared.global [%r1], [%d1], 16; cp.async.commit_group;"
            "cp.async.wait_group 0;" TAKE,
     opposite_last},
    {SET_UP "cp.async.ca.shared::cta.global.L2::128B [%r1], [%d1], 16, 16; cp.async.wait_all;" TAKE,
     opposite_last},
    // 4 and 8 bytes, an address with an offset, a policy
    {SET_UP
     "createpolicy.fractional.L2::evict_last.b64 %d5, 1.0;"
     "cp.async.ca.shared.global [%r1], [%d1], 4;"
     "cp.async.ca.shared.global.L2::cache_hint [%r1+4], [%d1+4], 4, 4, %d5;"
     "cp.async.ca.shared.global [%r1+8], [%d1+8], 8; cp.async.wait_all; bar.sync 0;" SUM_OF("%r2"),
     sum_of_four},
    {SET_UP "rem.u32 %r7, %t, 17; cp.async.cg.shared.global [%r1], [%d1], 16, %r7;"
            "cp.async.wait_all; bar.sync 0;" SUM_OF("%r1"),
     zero_filled},
    // nothing is read with src-size 0, so the address may be anything
    {SET_UP "and.b32 %r7, %t, 1; setp.ne.u32 %p0, %r7, 0; mov.u64 %d2, 16; "
            "@!%p0 mov.u64 %d2, %d1; cp.async.cg.shared.global [%r1], [%d2], 16, %p0;"
            "cp.async.wait_all; ld.shared.u32 %out, [%r1 + 12]; bar.sync 0;",
     ignored_when_odd},
    // the older of two groups is ready while the newer one flies
    {SET_UP "cp.async.ca.shared.global [%r1], [%d1], 8; cp.async.commit_group;"
            "cp.async.ca.shared.global [%r1+8], [%d1+8], 8; cp.async.commit_group;"
            "cp.async.wait_group 1; ld.shared.v2.u32 {%r3, %r4}, [%r1]; add.u32 %out, %r3, %r4;"
            "cp.async.wait_group 0; bar.sync 0;",
     two_words},
    // empty groups count as groups
    {SET_UP "cp.async.cg.shared.global [%r1], [%d1], 16; cp.async.commit_group;"
            "cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 2;" TAKE,
     opposite_last},
    // each thread waits for its own groups: odd threads commit twice
    {SET_UP "cp.async.cg.shared.global [%r1], [%d1], 16; cp.async.commit_group;"
            "and.b32 %r7, %t, 1; setp.ne.u32 %p0, %r7, 0; @%p0 bra ODD; cp.async.wait_group 0;"
            "bra.uni BOTH; ODD: cp.async.commit_group; cp.async.wait_group 1; BOTH:" TAKE,
     opposite_last},
    // groups complete in order: the same bytes twice, the newer group stays
    {SET_UP "cp.async.ca.shared.global [%r1+12], [%d1], 4; cp.async.commit_group;"
            "cp.async.ca.shared.global [%r1+12], [%d1+12], 4; cp.async.commit_group;"
            "cp.async.wait_group 0;" TAKE,
     opposite_last},
    // a ring of two buffers, refilled behind a barrier
    {SET_UP
     "mov.u32 %r7, 0; cp.async.cg.shared.global [%r1], [%d1], 16; cp.async.commit_group;\n"
     "LOOP: add.u32 %r7, %r7, 1; and.b32 %r3, %r7, 1; mad.lo.u32 %r4, %r3, 1024, %r1;"
     "cp.async.cg.shared.global [%r4], [%d1], 16; cp.async.commit_group;"
     "cp.async.wait_group 1; bar.sync 0; xor.b32 %r3, %r3, 1; mad.lo.u32 %r5, %r3, 1024, %r2;"
     "ld.shared.u32 %out, [%r5 + 12]; bar.sync 0; setp.lt.u32 %p0, %r7, 9; @%p0 bra LOOP;"
     "cp.async.wait_all; bar.sync 0;",
     opposite_last},
};
enum { RIGHT = sizeof right / sizeof *right };

START_TEST(right_copies) {
    choose(_i / RIGHT);
    ck_assert_int_eq(run(THREADS, right[_i % RIGHT].body), 0);
    const Finding *f = findings_get(0);
    ck_assert_msg(f == NULL, "a finding: %s", f ? f->what : "");
    for (uint32_t t = 0; t < THREADS; t++)
        ck_assert_msg(results[t] == right[_i % RIGHT].expected(t), "thread %u: %u", t, results[t]);
}
END_TEST

// ---- copies are asynchronous: the source is read when the copy lands

// Each thread changes its source twice behind the issue, and does `between` in the meantime.
#define COPY_CHANGING(between)                                                                     \
    SET_UP "cp.async.cg.shared.global [%r1], [%d1], 16; cp.async.commit_group;"                    \
           "mov.u32 %r3, 1000; st.global.u32 [%d1], %r3;" between                                  \
           "mov.u32 %r3, 2000; st.global.u32 [%d1], %r3; cp.async.wait_group 0;"                   \
           "ld.shared.u32 %out, [%r1]; bar.sync 0;"
#define LONG_LOOP                                                                                  \
    "mov.u32 %r7, 0; WORK: add.u32 %r7, %r7, 1; setp.lt.u32 %p0, %r7, 2000; @%p0 bra WORK;"

// What thread 5 finds, whose source was 21.
static uint32_t copied_word(AsyncOrder order, const char *body) {
    set_up();
    options.async = order;
    options.checks = CHECK_MEM;
    ck_assert_int_eq(run(32, body), 0);
    return results[5];
}

START_TEST(source_is_read_at_landing) {
    ck_assert_uint_eq(copied_word(ASYNC_EARLY, COPY_CHANGING("")), 21);
    ck_assert_uint_eq(copied_word(ASYNC_EARLY, COPY_CHANGING(LONG_LOOP)), 21);
    ck_assert_uint_eq(copied_word(ASYNC_TIMED, COPY_CHANGING("")), 2000);
    ck_assert_uint_eq(copied_word(ASYNC_TIMED, COPY_CHANGING(LONG_LOOP)), 1000);
    ck_assert_uint_eq(copied_word(ASYNC_LATE, COPY_CHANGING(LONG_LOOP)), 2000);
    // At random, but within 3 latencies, which is far less than the loop takes.
    ck_assert_uint_lt(copied_word(ASYNC_RANDOM, COPY_CHANGING(LONG_LOOP)), 2000);
}
END_TEST

// In which order the copies of a group land is left to the seed: both orders occur.
START_TEST(random_orders) {
    const char *body =
        SET_UP "cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.ca.shared.global [%r1+4], "
               "[%d1+4], 4;"
               "mov.u32 %out, 0; mov.u32 %r7, 0; st.shared.u32 [%r1+2048], %r7;\n"
               "LOOP: ld.shared.v2.u32 {%r3, %r4}, [%r1]; setp.eq.u32 %p0, %r3, 1;"
               "setp.eq.u32 %p1, %r4, 2; and.pred %p2, %p0, %p1; @%p2 bra DONE;"
               "@%p0 mov.u32 %out, 1; @%p1 mov.u32 %out, 2;\n"
               "add.u32 %r7, %r7, 1; setp.lt.u32 %p3, %r7, 4000; @%p3 bra LOOP;\n"
               "DONE: cp.async.wait_all;";
    bool seen[3] = {false, false, false};
    for (uint64_t schedule = 1; schedule < 12; schedule++) {
        set_up();
        options.async = ASYNC_RANDOM;
        options.schedule = schedule;
        options.checks = CHECK_MEM;
        ck_assert_int_eq(run(1, body), 0);
        ck_assert_uint_lt(results[0], 3);
        seen[results[0]] = true;
    }
    ck_assert(seen[1] && seen[2]);
}
END_TEST

// A copy that lands while its warp sleeps at the wait takes SM time, and nobody spins for it.
START_TEST(waiting_takes_time) {
    const char *body = SET_UP "mov.u32 %r3, %clock; cp.async.cg.shared.global [%r1], [%d1], 16;"
                              "cp.async.wait_all; mov.u32 %r4, %clock; sub.u32 %out, %r4, %r3;";
    options.async = ASYNC_TIMED;
    ck_assert_int_eq(run(32, body), 0);
    ck_assert_uint_ge(results[0], 500);
    ck_assert_uint_le(results[0], 700);
    set_up();
    options.async = ASYNC_EARLY;
    ck_assert_int_eq(run(32, body), 0);
    ck_assert_uint_le(results[0], 50);
}
END_TEST

// ---- what is found

typedef struct {
    const char *body;
    FindingKind kind;
    const char *words;
    int code;
} Broken;
static const Broken broken[] = {
    {SET_UP "cp.async.cg.shared.global [%r1], [%d1], 16; cp.async.commit_group;"
            "cp.async.wait_group 1;" TAKE,
     FINDING_RACE, "reads 4 bytes of shared memory", 0},
    {SET_UP "cp.async.cg.shared.global [%r1], [%d1], 16; cp.async.commit_group;" TAKE, FINDING_RACE,
     "has not been waited for", 0},
    // not committed: in no group
    {SET_UP "cp.async.cg.shared.global [%r1], [%d1], 16; cp.async.wait_group 0;" TAKE, FINDING_RACE,
     "has not been waited for", 0},
    // only odd threads commit the second copy: in the others the first is the newest group
    {SET_UP "and.b32 %r7, %t, 1; setp.eq.u32 %p1, %r7, 1; cp.async.ca.shared.global [%r1], [%d1], "
            "8; cp.async.commit_group; cp.async.ca.shared.global [%r1+8], [%d1+8], 8;"
            "@%p1 cp.async.commit_group; cp.async.wait_group 1; @!%p1 ld.shared.u32 %out, [%r1];"
            "cp.async.wait_all;",
     FINDING_RACE, "has not been waited for", 0},
    // the same bytes in two groups: still closed when only the older one is over
    {SET_UP "cp.async.ca.shared.global [%r1+12], [%d1], 4; cp.async.commit_group;"
            "cp.async.ca.shared.global [%r1+12], [%d1+12], 4; cp.async.commit_group;"
            "cp.async.wait_group 1; ld.shared.u32 %out, [%r1+12]; cp.async.wait_all;",
     FINDING_RACE, "has not been waited for", 0},
    // only even threads wait
    {SET_UP "cp.async.cg.shared.global [%r1], [%d1], 16; and.b32 %r7, %t, 1; setp.eq.u32 %p0, %r7, "
            "0; @%p0 cp.async.wait_all;" TAKE,
     FINDING_RACE, "that a cp.async of thread", 0},
    {SET_UP "cp.async.cg.shared.global [%r1], [%d1], 16; st.shared.u32 [%r1+8], %t;"
            "cp.async.wait_all;",
     FINDING_RACE, "writes 4 bytes of shared memory", 0},
    {SET_UP "cp.async.cg.shared.global [%r1], [%d1], 16; atom.shared.add.u32 %r3, [%r1+8], %t;"
            "cp.async.wait_all;",
     FINDING_RACE, "writes 4 bytes of shared memory", 0},
    {SET_UP "cp.async.cg.shared.global [%r1], [%d1], 16; mov.u32 %r3, 77; st.global.u32 [%d1+8], "
            "%r3; cp.async.wait_all;",
     FINDING_RACE, "the source of this copy was written", 0},
    // two threads copy different bytes to the same place
    {SET_UP "cp.async.cg.shared.global [%r0], [%d1], 16; cp.async.wait_all;"
            "cp.async.cg.shared.global [%r1], [%d1], 16; bar.sync 0;"
            "cp.async.cg.shared.global [%r2], [%d1], 16; cp.async.wait_all;",
     FINDING_RACE, "which bytes stay is left open", 0},
    {SET_UP "cp.async.cg.shared.global [%r1], [%d1+4], 16;", FINDING_MISALIGNED, "multiple of 16",
     716},
    {SET_UP "cp.async.cg.shared.global [%r1], [%d1+4], 16, 12;", FINDING_MISALIGNED,
     "multiple of 16", 716},
    {SET_UP "cp.async.cg.shared.global [%r1+8], [%d1], 16;", FINDING_MISALIGNED, "shared", 716},
    {SET_UP "cp.async.cg.shared.global [%r1+4096], [%d1], 16;", FINDING_OUT_OF_BOUNDS,
     "shared memory", 700},
    {SET_UP "cp.async.cg.shared.global [%r1], [%d1+4096], 16;", FINDING_OUT_OF_BOUNDS,
     "global memory", 700},
    {SET_UP "cp.async.cg.shared.global [%r1], [%d1+4096], 16, 3;", FINDING_OUT_OF_BOUNDS,
     "global memory", 700},
    {SET_UP "cp.async.ca.shared.global [%r1], [%d1], 4, 5;", FINDING_OUT_OF_BOUNDS, "src-size 5",
     700},
    {SET_UP "cvta.shared.u64 %d2, %d1; mov.u64 %d2, s; cvta.shared.u64 %d2, %d2;"
            "cp.async.cg.shared.global [%r1], [%d2], 16;",
     FINDING_WRONG_SPACE, "shared memory", 717},
    {SET_UP "cp.async.cg.shared.global [%r1], [%d1], 8;", FINDING_UNSUPPORTED, "cp.async.cg 16",
     719},
};
enum { BROKEN = sizeof broken / sizeof *broken };

START_TEST(broken_copies) {
    const Broken *b = &broken[_i % BROKEN];
    options.async = orders[_i / BROKEN];
    ck_assert_int_eq(run(THREADS, b->body), b->code);
    expect_finding(b->kind, b->words);
}
END_TEST

// The finding names the copy, too.
START_TEST(finding_names_the_copy) {
    run(THREADS, broken[0].body);
    const Finding *f = findings_get(0);
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(f->other);
    ck_assert_msg(strstr(f->other, "cp.async.cg.shared.global") != NULL, "%s", f->other);
    ck_assert_str_eq(f->text, "ld.shared.u32");
}
END_TEST

// Nobody waits: a note, and an error when strict.
START_TEST(exit_with_copies) {
    const char *body = SET_UP "cp.async.cg.shared.global [%r1], [%d1], 16; mov.u32 %out, 7;";
    options.strict = _i % 2;
    options.async = orders[_i / 2];
    ck_assert_int_eq(run(THREADS, body), 0);
    ck_assert_uint_eq(results[63], 7);
    expect_finding(FINDING_LINT, "the block ends before this copy");
    ck_assert_int_eq(findings_get(0)->note, !options.strict);
}
END_TEST

// Without the sync check nothing of it is found, and right copies are right.
START_TEST(unchecked) {
    options.checks = 0;
    options.async = orders[_i];
    ck_assert_int_eq(run(THREADS, broken[0].body), 0);
    ck_assert_ptr_null(findings_get(0));
    ck_assert_int_eq(run(THREADS, right[0].body), 0);
    for (uint32_t t = 0; t < THREADS; t++) ck_assert_uint_eq(results[t], opposite_last(t));
}
END_TEST

// ---- traffic

// .ca goes through L1: what is copied twice is fetched from L2 once. .cg goes past it.
#define COPY_TWICE(cache)                                                                          \
    SET_UP "bar.sync 0; cp.async." cache ".shared.global [%r1], [%d1], 16; cp.async.wait_all;"     \
           "bar.sync 0; cp.async." cache ".shared.global [%r1], [%d1], 16; cp.async.wait_all;"     \
           "mov.u32 %out, 0;"
START_TEST(traffic_of_copies) {
    options.timing = true;
    ck_assert_int_eq(run(THREADS, _i ? COPY_TWICE("cg") : COPY_TWICE("ca")), 0);
    ck_assert_double_eq(stats.l2_read_bytes, _i ? 2048 : 1024);
    // 1 KB is written twice: 8 wavefronts each
    ck_assert_double_eq(stats.shared_wavefronts, 16);
    ck_assert_double_eq(stats.shared_ideal_wavefronts, 16);
}
END_TEST

Suite *suite_cp_async(void) {
    Suite *suite = suite_create("cp_async");
    TCase *tests = tcase_create("cp_async");
    tcase_add_checked_fixture(tests, set_up, NULL);
    tcase_add_loop_test(tests, right_copies, 0, RIGHT * WAYS);
    tcase_add_test(tests, source_is_read_at_landing);
    tcase_add_test(tests, random_orders);
    tcase_add_test(tests, waiting_takes_time);
    tcase_add_loop_test(tests, broken_copies, 0, BROKEN * ORDERS);
    tcase_add_test(tests, finding_names_the_copy);
    tcase_add_loop_test(tests, exit_with_copies, 0, 2 * ORDERS);
    tcase_add_loop_test(tests, unchecked, 0, ORDERS);
    tcase_add_loop_test(tests, traffic_of_copies, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
