// Endless loops: those in which nothing changes any more are ended and reported; those that get on,
// however slowly, or wait for somebody who does, never are.
#include "thread_kernel.h"

Suite *suite_spin(void);

// %p1: thread of warp 0. Words of shared memory at s (0) and s + 4 (0).
#define SET_UP                                                                                     \
    ".shared .align 8 .b8 s[8]; setp.lt.u32 %p1, %t, 32; setp.eq.u32 %p7, %t, 0;"                  \
    "mov.u32 %r1, 7; mov.u32 %r2, 0; mov.u32 %out, 0; ld.param.u64 %d0, [result];"                 \
    "@%p7 st.shared.v2.u32 [s], {0, 0}; bar.sync 0;\n"
// Warp 1 computes for longer than it takes to call a warp stuck, then sets s + 4.
#define COMPUTE                                                                                    \
    "@%p1 bra L; C: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 1000000; @%p2 bra C;"               \
    "st.volatile.shared.u32 [s+4], %r2; mov.u32 %out, %r2; bra STORE;\n"
// Loops until s + 4 is set.
#define UNTIL_SET "ld.volatile.shared.u32 %out, [s+4]; setp.eq.u32 %p2, %out, 0; @%p2 bra L;\n"

typedef struct {
    const char *body;
    uint32_t threads, blocks;
    uint32_t result; // of all threads
} Case;

static const Case endless[] = {
    {"L: st.shared.u32 [s], %r1; bra L;", 64, 1, 0},
    {"L: st.global.u32 [%d0], %r1; bra L;", 64, 1, 0},
    {"L: st.global.u32 [%d0], %r1; bra L;", 64, 4, 0},
    {"L: st.volatile.global.u32 [%d0], %r1; bra L;", 64, 4, 0}, // in the serial phase
    // values that come round again
    {"L: add.u32 %r2, %r2, 1; and.b32 %r2, %r2, 3; st.shared.u32 [s], %r1; bra L;", 32, 1, 0},
    {"L: st.shared.u32 [s], %r1;" UNTIL_SET, 64, 1, 0},
    // each lane in its own loop
    {"and.b32 %r2, %t, 1; setp.eq.u32 %p2, %r2, 0; @%p2 bra M; L: st.shared.u32 [s], %r1; bra L;"
     "M: st.shared.u32 [s+4], %r1; bra M;",
     32, 1, 0},
    {NULL, 0, 0, 0},
};

static const Case right[] = {
    // bounded, with the counter in a register, and in memory alone
    {"L: st.shared.u32 [s], %r1; add.u32 %out, %out, 1; setp.lt.u32 %p2, %out, 1000000; @%p2 bra "
     "L;",
     32, 1, 1000000},
    {"L: ld.shared.u32 %r2, [s]; add.u32 %r2, %r2, 1; st.shared.u32 [s], %r2;"
     "setp.lt.u32 %p2, %r2, 1000000; mov.u32 %r2, 0; @%p2 bra L; ld.shared.u32 %out, [s];",
     32, 1, 1000000},
    // stores the same, or to and fro, until the other warp has done
    {COMPUTE "L: st.shared.u32 [s], %r1;" UNTIL_SET, 64, 1, 1000000},
    {COMPUTE "L: st.shared.u32 [s], %r1; st.shared.u32 [s], 0;" UNTIL_SET, 64, 1, 1000000},
    // until some time has gone by
    {"mov.u64 %d1, %clock64; L: st.shared.u32 [s], %r1; mov.u64 %d2, %clock64;"
     "sub.u64 %d2, %d2, %d1; setp.lt.u64 %p2, %d2, 5000000; @%p2 bra L; mov.u32 %out, 5;",
     32, 1, 5},
    {NULL, 0, 0, 0},
};

static int run_case(const Case *c) {
    char text[4096];
    snprintf(text, sizeof text, "%s%s", SET_UP, c->body);
    blocks = c->blocks;
    findings_reset();
    return run(c->threads, text);
}

START_TEST(nothing_changes) {
    for (const Case *c = endless; c->body; c++)
        for (options.schedule = 0; options.schedule < 3; options.schedule++) {
            ck_assert_msg(run_case(c) == 719, "schedule %d: %s", (int)options.schedule, c->body);
            ck_assert_int_eq(findings_count(), 1);
            const Finding *f = findings_get(0);
            ck_assert_int_eq(f->kind, FINDING_DEADLOCK);
            ck_assert_ptr_nonnull(strstr(f->what, "nothing changes any more"));
        }
}
END_TEST

START_TEST(something_changes) {
    for (const Case *c = right; c->body; c++)
        for (options.schedule = 0; options.schedule < 3; options.schedule++) {
            ck_assert_msg(run_case(c) == 0, "schedule %d: %s", (int)options.schedule, c->body);
            ck_assert_int_eq(findings_count(), 0);
            for (uint32_t t = 0; t < c->threads; t++) ck_assert_uint_eq(results[t], c->result);
        }
}
END_TEST

Suite *suite_spin(void) {
    Suite *suite = suite_create("spin");
    TCase *c = tcase_create("spin");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, set_up, NULL);
    tcase_add_test(c, nothing_changes);
    tcase_add_test(c, something_changes);
    suite_add_tcase(suite, c);
    return suite;
}
