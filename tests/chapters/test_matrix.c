// Chapters × dtypes × head_dims × causal or not; in each cell every length, with head groups,
// windows and softcap taking turns. About a minute and a half in all on two cores.
#include <check.h>
#include <stdio.h>

#include "matrix.h"

static const char *const lengths[] = {
    "--seqlen 1",
    "--seqlen 63",
    "--seqlen 65",
    "--seqlen 127",
    "--seqlen 200",
    "--seqlen-q 65 --seqlen-k 200",
    "--seqlen-q 200 --seqlen-k 65",
};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static const char *const extras[] = {
    "--heads 2",
    "--heads 4 --kv-heads 2",
    "--heads 2 --window 16,0",
    "--heads 3 --kv-heads 1 --softcap 5",
    "--heads 2 --window 33,7",
    "--heads 2 --kv-heads 1 --window 0,40 --softcap 2",
};
enum { EXTRAS = sizeof extras / sizeof *extras };

enum { CELLS = 3 * 3 * 2 * 2 };

// Cell i: chapter, dtype, head_dim, causal.
START_TEST(every_length) {
    char problem[300];
    const int chapter = _i % 3 + 1;
    enter_folder();
    for (int l = 0; l < LENGTHS; l++) {
        snprintf(problem, sizeof problem, "--batch %d --dtype %s --head-dim %d %s %s%s", 1 + l % 2,
                 matrix_dtypes[_i / 3 % 3], matrix_head_dims[_i / 9 % 2], lengths[l],
                 extras[(l + _i / 3) % EXTRAS], _i / 18 ? " --causal" : "");
        check_problem(chapter, problem);
    }
}
END_TEST

// Chapter 1's standard backward pass: dQ, dK and dV.
START_TEST(backward) {
    char problem[300];
    enter_folder();
    for (int l = 0; l < LENGTHS; l++) {
        snprintf(problem, sizeof problem, "--backward --batch %d --dtype %s --head-dim %d %s %s%s",
                 1 + l % 2, matrix_dtypes[_i % 3], matrix_head_dims[_i / 3 % 2], lengths[l],
                 extras[(l + _i) % EXTRAS], _i / 6 ? " --causal" : "");
        check_problem(1, problem);
    }
}
END_TEST

// Schedules change the order, never the numbers: the outputs are the same bits.
START_TEST(schedules_give_the_same_bits) {
    enter_folder();
    const StepName step = own_steps[_i];
    Array o[3], lse[3];
    static const char *const orders[] = {"--schedule 0 --async early", "--schedule 11 --async late",
                                         "--schedule 5 --async random"};
    for (int r = 0; r < 3; r++) {
        Outcome run =
            run_chapter(step.chapter,
                        "--check-only --json - --save out --steps %s %s --batch 1 --heads 2 "
                        "--seqlen 150 --head-dim 64 --causal",
                        step.name, orders[r]);
        every_step_is_ok(&run, outcome_json(&run, 0));
        o[r] = array_read("out/o.npy");
        lse[r] = array_read("out/lse.npy");
        arrays_are_equal(&o[0], &o[r]);
        arrays_are_equal(&lse[0], &lse[r]);
    }
}
END_TEST

Suite *suite_matrix(void) {
    Suite *suite = suite_create("chapters: matrix");
    TCase *tests = tcase_create("matrix");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, every_length, 0, CELLS);
    tcase_add_loop_test(tests, backward, 0, 12);
    tcase_add_loop_test(tests, schedules_give_the_same_bits, 0, own_step_count);
    suite_add_tcase(suite, tests);
    return suite;
}
