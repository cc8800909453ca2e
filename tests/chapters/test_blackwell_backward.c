// Chapter 8's backward: gradients over dtypes, head_dims, masks, lengths and head groups, each in
// another order of warps and of asynchronous operations; the deterministic order bit for bit; rows
// and keys that see nothing; edge cases by name; what the lesson says of its times.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

static const char *const steps[] = {"one-cta", "two-cta"};
enum { STEPS = sizeof steps / sizeof *steps };

// Runs the steps, or one of them, on the problem: forward and backward must be right, without a
// finding.
static void right(const char *step, const char *problem) {
    Outcome o = run_chapter(8, "--backward --check-only --json - --steps %s %s",
                            step != NULL ? step : steps_of(8, "--backward"), problem);
    ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), step != NULL ? 2 : 2 * STEPS);
}

// Cell i: dtype, head_dim, causal or not. Tiles are 128 rows and 128 keys; the extras move against
// the lengths from cell to cell.
START_TEST(every_length) {
    static const char *const lengths[] = {
        "--seqlen 1",
        "--seqlen 129",
        "--seqlen-q 65 --seqlen-k 300",
        "--seqlen-q 270 --seqlen-k 65",
        "--seqlen-q 129 --seqlen-k 258",
    };
    char problem[300];
    enter_folder();
    for (int l = 0; l < 5; l++) {
        snprintf(problem, sizeof problem, "--batch %d --dtype %s --head-dim %d %s %s%s %s",
                 1 + l % 2, matrix_dtypes[1 + _i % 2], matrix_head_dims[_i / 2 % 2], lengths[l],
                 gradient_extras[(l + _i) % GRADIENT_EXTRAS], _i / 4 ? " --causal" : "",
                 matrix_orders[(l + _i) % 3]);
        right(NULL, problem);
    }
}
END_TEST

// No key, no query, one of each; rows without keys, and keys that no row sees; many keys or many
// rows; scales that can't be folded into the exponent as they are.
START_TEST(edges) {
    static const char *const problems[] = {
        "--heads 3 --seqlen-q 40 --seqlen-k 0",
        "--heads 3 --seqlen-q 0 --seqlen-k 40 --deterministic",
        "--heads 3 --seqlen-q 300 --seqlen-k 1",
        "--heads 3 --seqlen-q 1 --seqlen-k 300",
        "--heads 2 --seqlen-q 400 --seqlen-k 20 --causal",
        "--heads 2 --seqlen-q 140 --seqlen-k 20 --window 3,2 --dtype fp16",
        "--heads 2 --seqlen-q 20 --seqlen-k 600 --window 3,2 --deterministic",
        "--heads 1 --seqlen 193 --scale 0 --causal",
        "--heads 1 --seqlen 193 --scale -2 --softcap 5",
        "--heads 1 --seqlen 130 --scale 1 --dtype fp16",
    };
    char problem[200];
    enter_folder();
    snprintf(problem, sizeof problem, "--batch 1 --head-dim 64 %s", problems[_i]);
    right(NULL, problem);
}
END_TEST

// The fixed order gives the same bits in every schedule, also where blocks of keys are skipped and
// with fewer SMs than blocks.
START_TEST(deterministic_is_bit_identical) {
    static const char *const problems[] = {
        "--seqlen-q 150 --seqlen-k 650 --heads 2 --head-dim 128",
        "--seqlen 400 --heads 2 --kv-heads 1 --head-dim 64 --window 20,10 --dtype fp16 --sms 2",
    };
    static const char *const async[] = {"early", "late", "random"};
    enum { RUNS = 4 };
    char problem[300];
    Array first[3];
    enter_folder();
    for (int r = 0; r < RUNS; r++) {
        snprintf(problem, sizeof problem,
                 "--deterministic --save out --batch 1 %s --schedule %d --async %s",
                 problems[_i / STEPS], r, async[r % 3]);
        right(steps[_i % STEPS], problem);
        gradients_are_alike(first, r == 0);
    }
}
END_TEST

// Runs the steps, or one of them, under many orders of warps and of what is asynchronous.
static void under_many_orders(const char *step, const char *problem) {
    static const char *const async[] = {"early", "late", "random"};
    char with_order[300];
    for (int a = 0; a < 3; a++) {
        snprintf(with_order, sizeof with_order, "--async %s %s", async[a], problem);
        right(step, with_order);
    }
}

// F73: what goes wrong with pairs. Bytes of both blocks are expected; commits that arrive in the
// other block when all else is done; the mask of the second block begins 128 keys further; and
// its keys may be beyond the last, all or some.
START_TEST(f73_pairs) {
    static const char *const problems[] = {
        "--seqlen-q 390 --seqlen-k 300 --causal",
        "--seqlen-q 129 --seqlen-k 100 --window 20,3",
    };
    char problem[200];
    enter_folder();
    snprintf(problem, sizeof problem, "--schedule 1,2 --heads 2 --head-dim 64 %s", problems[_i]);
    under_many_orders("two-cta", problem);
}
END_TEST

// F74: the tensor core reads what the compute warps have written to tensor memory, writes where
// they and the reducing warps have read, and a warp frees it behind their last loads: several tiles
// of rows, so that each hand-off comes again.
START_TEST(f74_tensor_memory_is_handed_over) {
    enter_folder();
    under_many_orders(NULL,
                      "--schedule 1,2 --heads 1 --seqlen-q 520 --seqlen-k 130 --head-dim 128");
}
END_TEST

// F75: blocks of keys that no row sees, beside others: every role counts no tile.
START_TEST(f75_blocks_without_rows) {
    enter_folder();
    under_many_orders(NULL, "--schedule 1,2 --sms 2 --heads 2 --seqlen-q 30 --seqlen-k 700 "
                            "--window 200,5 --head-dim 64");
}
END_TEST

// F76: the main kernel needs lse, D and the zeroed sums of the one before it, whichever path it
// takes: a second launch on the workspace of the first, which holds its sums, with blocks that have
// no tiles, in both orders of the additions.
START_TEST(f76_the_kernel_before_is_waited_for) {
    enter_folder();
    right(NULL, "--schedule 1,1,2 --sms 2 --heads 2 --seqlen-q 140 --seqlen-k 300 --window 9,0 "
                "--head-dim 64");
    right(NULL, "--schedule 1,1,2 --sms 2 --heads 2 --seqlen-q 140 --seqlen-k 300 --window 9,0 "
                "--head-dim 64 --deterministic");
}
END_TEST

// F80: any role may be late by any time, and lse and D are still the tile's own.
START_TEST(f80_any_role_may_be_late) {
    enter_folder();
    under_many_orders(NULL, "--schedule 1,2 --heads 2 --kv-heads 1 --seqlen-q 390 --seqlen-k 129 "
                            "--head-dim 64 --scale 2 --causal");
}
END_TEST

START_TEST(refuses_in_a_sentence) {
    static const char *const lines[][2] = {
        {"--dtype fp32", "chapter 4's step recompute has a backward for fp32"},
        {"--dtype fp8", "chapters 6 and 7"},
        {"--gpu h100", "needs compute capability 10.0"},
        {"--head-dim 136", "chapter 8's kernels go up to 128"},
    };
    enter_folder();
    for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
        Outcome run = run_chapter(8, "--backward --steps %s --seqlen 10 %s",
                                  steps_of(8, "--backward"), lines[l][0]);
        ck_assert_int_eq(run.status, 2);
        ck_assert_msg(strstr(run.err, lines[l][1]) != NULL, "%s: %s", lines[l][0], run.err);
    }
    Outcome run = run_chapter(8, "--backward --check-only --seqlen 10 --steps pingpong --sms 1");
    ck_assert(strstr(run.out, "backward not run: pingpong: no backward pass") != NULL);
}
END_TEST

// ---- times, modelled

// Pairs are faster, since their products read less from shared memory; and both leave mma.sync far
// behind.
START_TEST(pairs_read_less_shared_memory) {
    enter_folder();
    Outcome run = run_chapter(8, "--backward --json - --check none --sms 4 --batch 1 --heads 1 "
                                 "--seqlen 1024 --head-dim 128 --steps "
                                 "recompute-tensor-cores,one-cta,two-cta");
    const Json *json = outcome_json(&run, 0);
    // The results are in the order of the steps, forward and backward each.
    double cycles[3], shared[3];
    for (int s = 0; s < 3; s++) {
        char path[100];
        snprintf(path, sizeof path, "steps.%d.cycles", 2 * s + 1);
        cycles[s] = json_number(json, path);
        snprintf(path, sizeof path, "steps.%d.work_cycles.shared", 2 * s + 1);
        shared[s] = json_number(json, path);
    }
    ck_assert_msg(cycles[1] < cycles[0] / 2 && cycles[2] < cycles[1], "%g, %g, %g cycles",
                  cycles[0], cycles[1], cycles[2]);
    ck_assert_msg(shared[2] < 0.9 * shared[1], "%g, %g cycles of shared memory", shared[1],
                  shared[2]);
}
END_TEST

// Without --backward a run has the forward's steps, with it naive and those that have one.
START_TEST(all_steps_of_a_pass) {
    enter_folder();
    Outcome run = run_chapter(8, "--check-only --json - --sms 2 --heads 1 --seqlen 20");
    Json *json = outcome_json(&run, 0);
    ck_assert_int_eq(every_step_is_ok(&run, json), 9);
    for (const Json *s = json_at(json, "steps")->first; s != NULL; s = s->next)
        for (int k = 0; k < STEPS; k++) ck_assert(strcmp(json_text(s, "name"), steps[k]) != 0);
    run = run_chapter(8, "--backward --check-only --json - --sms 2 --heads 1 --seqlen 20");
    ck_assert_int_eq(every_step_is_ok(&run, outcome_json(&run, 0)), 2 * (2 + STEPS));
}
END_TEST

Suite *suite_blackwell_backward(void);
Suite *suite_blackwell_backward(void) {
    Suite *suite = suite_create("chapter 8's backward");
    TCase *tests = tcase_create("blackwell backward");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, every_length, 0, 8);
    tcase_add_loop_test(tests, edges, 0, 10);
    tcase_add_loop_test(tests, deterministic_is_bit_identical, 0, 2 * STEPS);
    tcase_add_loop_test(tests, f73_pairs, 0, 2);
    tcase_add_test(tests, f74_tensor_memory_is_handed_over);
    tcase_add_test(tests, f75_blocks_without_rows);
    tcase_add_test(tests, f76_the_kernel_before_is_waited_for);
    tcase_add_test(tests, f80_any_role_may_be_late);
    tcase_add_test(tests, refuses_in_a_sentence);
    tcase_add_test(tests, all_steps_of_a_pass);
    tcase_add_test(tests, pairs_read_less_shared_memory);
    suite_add_tcase(suite, tests);
    return suite;
}
