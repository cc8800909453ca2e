// Chapter 3's tensor-core steps: right at the edges and on real input under every order, free of bank
// conflicts from `swizzled` on, and reading each input from HBM once. (Lengths, types and masks are
// test_matrix's.) About half a minute.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

#define STEPS "mma-sync,swizzled,cp-async"
static const char *const steps[] = {"mma-sync", "swizzled", "cp-async"};

// One problem under three orders: all three steps ok.
static void check_steps(const char *problem) {
    for (int i = 0; i < MATRIX_PAIRS; i++) {
        Outcome run = run_chapter(3, "--check-only --json - --steps " STEPS " %s %s",
                                  matrix_orders[i], problem);
        ck_assert_int_eq(every_step_is_ok(&run, outcome_json(&run, 0)), 3);
    }
}

// No key, no query, one of each; scales that can't be folded into the exponent as they are.
START_TEST(edges) {
    static const char *const problems[] = {
        "--seqlen-q 40 --seqlen-k 0",
        "--seqlen-q 0 --seqlen-k 40",
        "--seqlen-q 300 --seqlen-k 1",
        "--seqlen-q 1 --seqlen-k 300",
        "--seqlen-q 300 --seqlen-k 40 --causal",
        "--seqlen 129 --scale 0 --causal",
        "--seqlen 129 --scale -1 --causal",
        "--seqlen 129 --scale -2 --softcap 5",
        "--seqlen 129 --scale 300",
        "--seqlen-q 191 --seqlen-k 70 --softcap 1000000", // tanh of next to nothing, times a lot
    };
    enter_folder();
    check_steps(problems[_i]);
}
END_TEST

START_TEST(real_input) {
    enter_folder();
    char problem[600];
    snprintf(problem, sizeof problem, "--input %s%s", in_repository("tests/data/minilm_layer0"),
             _i ? " --causal" : "");
    check_steps(problem);
}
END_TEST

// The order of copies and warps never changes a bit.
START_TEST(orders_give_the_same_bits) {
    enter_folder();
    Array o[MATRIX_PAIRS], lse[MATRIX_PAIRS];
    for (int i = 0; i < MATRIX_PAIRS; i++) {
        Outcome run =
            run_chapter(3, "--check-only --json - --save out --steps %s %s --seqlen 300 --causal",
                        steps[_i], matrix_orders[i]);
        every_step_is_ok(&run, outcome_json(&run, 0));
        o[i] = array_read("out/o.npy");
        lse[i] = array_read("out/lse.npy");
        arrays_are_equal(&o[0], &o[i]);
        arrays_are_equal(&lse[0], &lse[i]);
    }
}
END_TEST

// How many wavefronts of shared memory an access took, in units of what it would without conflicts,
// from softgpu's table of kernels.
static double bank_conflicts(const char *step, int head_dim) {
    setenv("SOFTGPU_STATS", "1", 1);
    Outcome run = run_chapter(
        3, "--check-only --json - --steps %s --heads 1 --seqlen 200 --head-dim %d", step, head_dim);
    every_step_is_ok(&run, outcome_json(&run, 0));
    const char *text = strstr(run.err, "shared wavefronts");
    ck_assert_msg(text != NULL, "no shared wavefronts in: %s", run.err);
    double wavefronts, factor;
    ck_assert_int_eq(sscanf(text, "shared wavefronts %lf (%lf x", &wavefronts, &factor), 2);
    ck_assert_double_gt(wavefronts, 0);
    return factor;
}

START_TEST(bank_conflicts_end_with_the_swizzle) {
    enter_folder();
    const int head_dim = matrix_head_dims[_i];
    ck_assert_double_gt(bank_conflicts("mma-sync", head_dim), 4);
    ck_assert_double_eq(bank_conflicts("swizzled", head_dim), 1);
    ck_assert_double_eq(bank_conflicts("cp-async", head_dim), 1);
}
END_TEST

START_TEST(hbm_bytes_are_near_the_ideal) {
    enter_folder();
    forward_reads_inputs_once(3, "cp-async", matrix_head_dims[_i]);
}
END_TEST

// A number behind a word of softgpu's table of kernels.
static double statistic(const Outcome *run, const char *word) {
    const char *at = strstr(run->err, word);
    double value;
    ck_assert_msg(at != NULL && sscanf(at + strlen(word), "%lf", &value) == 1, "no %s in: %s", word,
                  run->err);
    return value;
}

// Seconds of CPU that a step's emulation takes on one thread, with the checks off.
static double emulation_seconds(const char *step, const char *how, double *memory) {
    Outcome run = run_chapter(3,
                              "--json - --steps %s --batch 1 --heads 4 --seqlen 2048 --head-dim "
                              "128 --check none --threads 1%s",
                              step, how);
    every_step_is_ok(&run, outcome_json(&run, 0));
    const double seconds = statistic(&run, " s, CPU ");
    ck_assert_double_le(seconds, statistic(&run, "\n  host ") + 0.1);
    *memory = statistic(&run, "at its peak (softgpu, data, reference): ");
    ck_assert_ptr_nonnull(strstr(run.err, "peak memory of the process (the program and softgpu) "));
    return seconds;
}

// What emulation may cost: four seconds of one core, so that the promise holds on a busy machine as
// well, and a gigabyte. The reference's memory counts too.
START_TEST(emulation_is_fast_and_small) {
    enter_folder();
    setenv("SOFTGPU_STATS", "1", 1);
    double memory, seconds = emulation_seconds(steps[_i], "", &memory);
    ck_assert_msg(seconds > 0 && seconds < 4, "%s: %g s of CPU", steps[_i], seconds);
    ck_assert_msg(memory > 10 && memory < 1000, "%s: %g MB", steps[_i], memory);
    // Most of it is the time model: no more than four times what emulation takes without one.
    double bare = emulation_seconds(steps[_i], " --async early", &memory);
    ck_assert_msg(seconds < 4 * bare, "%s: %g s of CPU, %g without the time model", steps[_i],
                  seconds, bare);
}
END_TEST

START_TEST(fp32_is_refused_in_a_sentence) {
    enter_folder();
    fp32_is_refused(3, steps[_i]);
}
END_TEST

Suite *suite_tensor_cores(void);
Suite *suite_tensor_cores(void) {
    Suite *suite = suite_create("chapter 3's tensor-core steps");
    TCase *tests = tcase_create("steps");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, edges, 0, 10);
    tcase_add_loop_test(tests, real_input, 0, 2);
    tcase_add_loop_test(tests, orders_give_the_same_bits, 0, 3);
    tcase_add_loop_test(tests, bank_conflicts_end_with_the_swizzle, 0, 2);
    tcase_add_loop_test(tests, hbm_bytes_are_near_the_ideal, 0, 2);
    tcase_add_loop_test(tests, emulation_is_fast_and_small, 0, 3);
    tcase_add_loop_test(tests, fp32_is_refused_in_a_sentence, 0, 3);
    suite_add_tcase(suite, tests);
    return suite;
}
