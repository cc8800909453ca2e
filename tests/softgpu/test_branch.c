// Where lanes part and meet, in PTX as compilers write it: tables of branches, switches with a way
// out, barriers in branches.
#include "thread_kernel.h"

Suite *suite_branch(void);

// How many lanes stand together here, for every lane of the warp.
#define TOGETHER "activemask.b32 %r7; popc.b32 %r7, %r7;"

// brx.idx: every lane goes its way, and all meet behind it.
#define SWITCH_OF_FOUR                                                                             \
    "and.b32 %r1, %t, 3; mov.b32 %out, 0;\n"                                                       \
    "ways: .branchtargets ZERO, ONE, TWO, ONE;\n"                                                  \
    "brx.idx %r1, ways;\n"                                                                         \
    "ZERO: mov.b32 %out, 100; bra.uni DONE;\n"                                                     \
    "ONE: mov.b32 %out, 200; bra.uni DONE;\n"                                                      \
    "TWO: mov.b32 %out, 300;\n"                                                                    \
    "DONE: " TOGETHER "add.u32 %out, %out, %r7;"

START_TEST(branch_table) {
    static const uint32_t way[] = {100, 200, 300, 200};
    for (options.schedule = 0; options.schedule < 8; options.schedule++) {
        ck_assert_int_eq(run(64, SWITCH_OF_FOUR), 0);
        for (int t = 0; t < 64; t++) ck_assert_uint_eq(results[t], way[t % 4] + 32);
    }
}
END_TEST

// With a guard, in a loop, and with all lanes at one entry.
START_TEST(branch_table_in_a_loop) {
    static const char *const body =
        "mov.b32 %out, 0; mov.b32 %r2, 0;\n"
        "ways: .branchtargets ADD, NEXT;\n"
        "LOOP: and.b32 %r1, %r2, 1; setp.lt.u32 %p1, %t, 16;\n"
        "@%p1 brx.idx %r1, ways;\n"
        "add.u32 %out, %out, 1000; bra NEXT;\n"
        "ADD: add.u32 %out, %out, 1;\n"
        "NEXT: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 10; @%p2 bra LOOP;\n" TOGETHER
        "mad.lo.u32 %out, %r7, 100000, %out;";
    for (options.schedule = 0; options.schedule < 4; options.schedule++) {
        ck_assert_int_eq(run(32, body), 0);
        for (int t = 0; t < 32; t++) ck_assert_uint_eq(results[t], 3200000 + (t < 16 ? 5 : 10000));
    }
}
END_TEST

START_TEST(branch_table_bounds) {
    ck_assert_int_ne(run(32, "mov.b32 %out, 0; ways: .branchtargets A, B; brx.idx %t, ways;"
                             "A: mov.b32 %out, 1; B:"),
                     0);
    expect_finding(FINDING_OUT_OF_BOUNDS, "entry 2 of a table of 2");
}
END_TEST

// A switch, one case of which returns: the others must meet behind it all the same. In a kernel
// whose main end comes last, and in one where the early return stands last in the text.
START_TEST(switch_with_return) {
    static const char *const body[] = {
        "and.b32 %r1, %t, 3; mov.b32 %out, 0;\n"
        "ways: .branchtargets ZERO, OUT, TWO, THREE;\n"
        "brx.idx %r1, ways;\n"
        "ZERO: mov.b32 %out, 100; bra.uni DONE;\n"
        "OUT: ret;\n"
        "TWO: mov.b32 %out, 200; bra.uni DONE;\n"
        "THREE: mov.b32 %out, 300;\n"
        "DONE: " TOGETHER "add.u32 %out, %out, %r7;",

        "and.b32 %r1, %t, 3; mov.b32 %out, 0;\n"
        "setp.eq.u32 %p1, %r1, 0; @%p1 bra ZERO; setp.eq.u32 %p1, %r1, 1; @%p1 bra OUT;\n"
        "setp.eq.u32 %p1, %r1, 2; @%p1 bra TWO;\n"
        "mov.b32 %out, 300; bra.uni DONE;\n"
        "ZERO: mov.b32 %out, 100; bra.uni DONE;\n"
        "TWO: mov.b32 %out, 200; bra.uni DONE;\n"
        "DONE: " TOGETHER "add.u32 %out, %out, %r7; bra.uni STORE;\n"
        "OUT: ret;",
    };
    for (options.schedule = 0; options.schedule < 8; options.schedule++) {
        ck_assert_int_eq(run(32, body[_i]), 0);
        for (uint32_t t = 0; t < 32; t++) {
            uint32_t want = t % 4 == 0 ? 100 : t % 4 == 2 ? 200 : 300;
            ck_assert_uint_eq(results[t], t % 4 == 1 ? 0xeeeeeeee : want + 24);
        }
    }
}
END_TEST

// The same where the early return is the last instruction of the function's text.
START_TEST(return_stands_last) {
    static const char *const body =
        "mov.b32 %out, 5; and.b32 %r1, %t, 3;\n"
        "setp.eq.u32 %p1, %r1, 1; @%p1 bra.uni OUT; setp.eq.u32 %p2, %r1, 2; @%p2 bra TWO;\n"
        "mov.b32 %out, 7; bra.uni DONE;\n"
        "TWO: mov.b32 %out, 9;\n"
        "DONE: " TOGETHER "add.u32 %out, %out, %r7; ld.param.u64 %to0, [result];\n"
        "mad.wide.u32 %to1, %t, 4, %to0; st.global.u32 [%to1], %out; ret;\n"
        "OUT: bra.uni END; // what follows is never reached but by it\n"
        "END: ret;";
    for (options.schedule = 0; options.schedule < 8; options.schedule++) {
        ck_assert_int_eq(run(32, body), 0);
        for (uint32_t t = 0; t < 32; t++)
            ck_assert_uint_eq(results[t], t % 4 == 1 ? 0xeeeeeeee : (t % 4 == 2 ? 9 : 7) + 24);
    }
}
END_TEST

// barrier.sync without .aligned: the lanes of a warp may come to it in different branches.
START_TEST(barrier_in_branches) {
    static const char *const body =
        ".shared .b32 s[64]; mov.u32 %r1, s; mad.lo.u32 %r2, %t, 4, %r1; st.shared.u32 [%r2], %t;\n"
        "and.b32 %r3, %t, 1; setp.eq.u32 %p1, %r3, 0; @%p1 bra EVEN;\n"
        "barrier.sync 1; bra.uni DONE;\n"
        "EVEN: barrier.sync 1, 64;\n"
        "DONE: sub.u32 %r3, 63, %t; mad.lo.u32 %r4, %r3, 4, %r1; ld.shared.u32 %out, "
        "[%r4];\n" TOGETHER "mad.lo.u32 %out, %r7, 1000, %out;";
    options.checks |= CHECK_INIT;
    for (options.schedule = 0; options.schedule < 8; options.schedule++) {
        ck_assert_int_eq(run(64, body), 0);
        for (uint32_t t = 0; t < 64; t++) ck_assert_uint_eq(results[t], 32000 + 63 - t);
    }
    ck_assert_ptr_null(findings_get(0));
}
END_TEST

START_TEST(different_barriers_in_branches) {
    ck_assert_int_ne(run(64, "mov.b32 %out, 0; and.b32 %r3, %t, 1; setp.eq.u32 %p1, %r3, 0;\n"
                             "@%p1 bra EVEN; barrier.sync 1; bra.uni DONE;\n"
                             "EVEN: barrier.sync 2; DONE:"),
                     0);
    expect_finding(FINDING_BARRIER, "barrier 1 for 64 threads");
}
END_TEST

// One .aligned barrier among them: that one all lanes must execute.
START_TEST(aligned_barrier_in_a_branch) {
    ck_assert_int_ne(run(32, "mov.b32 %out, 0; and.b32 %r3, %t, 1; setp.eq.u32 %p1, %r3, 0;\n"
                             "@%p1 bra EVEN; barrier.sync 1; bra.uni DONE;\n"
                             "EVEN: bar.sync 1; DONE:"),
                     0);
    expect_finding(FINDING_DIVERGENT, "bar.sync");
}
END_TEST

Suite *suite_branch(void) {
    Suite *suite = suite_create("branch");
    TCase *tests = tcase_create("branches");
    tcase_add_checked_fixture(tests, set_up, NULL);
    tcase_add_test(tests, branch_table);
    tcase_add_test(tests, branch_table_in_a_loop);
    tcase_add_test(tests, branch_table_bounds);
    tcase_add_loop_test(tests, switch_with_return, 0, 2);
    tcase_add_test(tests, return_stands_last);
    tcase_add_test(tests, barrier_in_branches);
    tcase_add_test(tests, different_barriers_in_branches);
    tcase_add_test(tests, aligned_barrier_in_a_branch);
    suite_add_tcase(suite, tests);
    return suite;
}
