// Chapter 5's backward (step intra-warpgroup): gradients over dtypes, head_dims, masks, lengths and
// head groups, each in another order of warps and of asynchronous operations; the deterministic
// order bit for bit; rows and keys that see nothing; refusals. Half a minute on two cores.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

// Runs the problem: forward and backward must be right, without a finding.
static void right(const char *problem) {
    Outcome o =
        run_chapter(5, "--backward --check-only --json - --steps intra-warpgroup %s", problem);
    ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 2);
}

// Cell i: dtype, head_dim, causal or not. The extras move against the lengths from cell to cell.
START_TEST(every_length) {
    static const char *const dtypes[] = {"fp16", "bf16"};
    char problem[300];
    enter_folder();
    for (int l = 0; l < GRADIENT_LENGTHS; l++) {
        snprintf(problem, sizeof problem, "--batch %d --dtype %s --head-dim %d %s %s%s %s",
                 1 + l % 2, dtypes[_i % 2], _i / 2 % 2 == 0 ? 64 : 128, gradient_lengths[l],
                 gradient_extras[(l + _i) % GRADIENT_EXTRAS], _i / 4 ? " --causal" : "",
                 matrix_orders[(l + _i) % 3]);
        right(problem);
    }
}
END_TEST

// The fixed order gives the same bits in every schedule, also where tiles of keys are skipped.
static const char *const fixed_orders[] = {
    "--seqlen-q 300 --seqlen-k 520 --heads 2 --head-dim 64",
    "--seqlen-q 150 --seqlen-k 400 --heads 4 --kv-heads 2 --head-dim 128 --causal",
    "--seqlen 400 --heads 2 --kv-heads 1 --head-dim 64 --window 20,10 --dtype bf16",
};
enum { FIXED_ORDERS = sizeof fixed_orders / sizeof *fixed_orders, RUNS = 9 };

START_TEST(deterministic_is_bit_identical) {
    static const char *const async[] = {"early", "late", "random"};
    char problem[300];
    Array first[3];
    enter_folder();
    for (int r = 0; r < RUNS; r++) {
        snprintf(problem, sizeof problem,
                 "--deterministic --save out --batch 1 %s --schedule %d --async %s",
                 fixed_orders[_i], r, async[r % 3]);
        right(problem);
        gradients_are_alike(first, r == 0);
    }
}
END_TEST

// A chain of blocks that wait for each other, many more than there are SMs.
START_TEST(turns_with_few_sms) {
    enter_folder();
    right(
        "--sms 4 --deterministic --batch 1 --heads 2 --seqlen-q 260 --seqlen-k 1500 --check none");
}
END_TEST

// Rows that see no key (lse = -inf) have no part, and keys that no row sees get zeros.
START_TEST(rows_and_keys_alone) {
    enter_folder();
    right("--batch 1 --heads 2 --seqlen-q 400 --seqlen-k 20 --causal");
    right("--batch 1 --heads 2 --seqlen-q 140 --seqlen-k 20 --window 3,2 --head-dim 128");
    right("--batch 1 --heads 2 --seqlen-q 20 --seqlen-k 400 --window 3,2 --deterministic");
}
END_TEST

// Q, K and V of a real transformer, padded from head_dim 32, layer 0 with its outlier channels; dO is
// ours.
START_TEST(real_input) {
    char command[600], problem[200];
    enter_folder();
    snprintf(command, sizeof command, "mkdir in && cp %s/*.npy in",
             in_repository(_i / 2 ? "tests/data/minilm_layer5" : "tests/data/minilm_layer0"));
    ck_assert_int_eq(system(command), 0);
    Array q = array_read("in/q.npy");
    ck_assert_int_eq(q.shape[3], 32);
    Array dout = array_make(q.shape[0], q.shape[1], q.shape[2], q.shape[3], false);
    for (long i = 0; i < dout.count; i++) dout.values[i] = (float)(i * 7919 % 2003 - 1001) / 500;
    array_write("in/dout.npy", &dout);
    for (int p = 0; p < MATRIX_PAIRS; p++) {
        snprintf(problem, sizeof problem, "--input in%s %s",
                 _i % 2 ? " --causal --dtype bf16 --deterministic" : "", matrix_orders[p]);
        right(problem);
    }
}
END_TEST

static const struct {
    const char *arguments, *sentence;
} refusals[] = {
    {"--steps intra-warpgroup --dtype fp32", "wgmma multiplies fp16 and bf16"},
    {"--steps intra-warpgroup --dtype fp8", "chapters 6"},
    {"--steps pingpong", "backward not run: pingpong: no backward pass"},
};

START_TEST(refuses) {
    enter_folder();
    Outcome o = run_chapter(5, "--backward --check-only --seqlen 64 %s", refusals[_i].arguments);
    ck_assert_msg(strstr(o.out, refusals[_i].sentence) || strstr(o.err, refusals[_i].sentence),
                  "%s\n%s%s", o.command, o.out, o.err);
}
END_TEST

Suite *suite_hopper_backward(void) {
    Suite *suite = suite_create("chapters: hopper backward");
    TCase *tests = tcase_create("hopper backward");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, every_length, 0, 8);
    tcase_add_loop_test(tests, deterministic_is_bit_identical, 0, FIXED_ORDERS);
    tcase_add_test(tests, turns_with_few_sms);
    tcase_add_test(tests, rows_and_keys_alone);
    tcase_add_loop_test(tests, real_input, 0, 4);
    tcase_add_loop_test(tests, refuses, 0, 3);
    suite_add_tcase(suite, tests);
    return suite;
}
