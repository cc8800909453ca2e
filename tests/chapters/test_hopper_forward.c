// Chapter 5's forward steps: right on every kind of problem under every order, free of bank
// conflicts, each input read from HBM once; and two edge cases of their own. Half a minute. (Masks,
// sizes and equal bits under all orders: these steps are among the own_steps of the other suites.)
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attend.h"
#include "matrix.h"

static const char *const steps[] = {"wgmma", "tma-ring", "warp-specialised", "pingpong",
                                    "intra-warpgroup"};
enum { STEPS = sizeof steps / sizeof *steps };

// Cell i: dtype, head_dim, causal; each with every length, the other options taking turns. A warp
// group takes 64 rows, a block 128 or 192, a tile of keys 128 or 176.
START_TEST(every_length) {
    static const char *const lengths[] = {
        "--seqlen 1",
        "--seqlen 63",
        "--seqlen 65",
        "--seqlen 127",
        "--seqlen 200",
        "--seqlen-q 65 --seqlen-k 200",
        "--seqlen-q 200 --seqlen-k 65",
        "--seqlen-q 193 --seqlen-k 530",
    };
    enter_folder();
    check_forward_cell(5, _i, lengths, sizeof lengths / sizeof *lengths);
}
END_TEST

// No key, no query, one of each; scales that can't be folded into the exponent as they are.
START_TEST(edges) {
    static const char *const problems[] = {
        "--seqlen-q 40 --seqlen-k 0",
        "--seqlen-q 0 --seqlen-k 40",
        "--seqlen-q 300 --seqlen-k 1",
        "--seqlen-q 1 --seqlen-k 400",
        "--seqlen-q 300 --seqlen-k 40 --causal",
        "--seqlen 193 --scale 0 --causal",
        "--seqlen 193 --scale -1 --causal",
        "--seqlen 193 --scale -2 --softcap 5",
        "--seqlen 193 --scale 300",
    };
    enter_folder();
    check_problem(5, problems[_i]);
}
END_TEST

START_TEST(real_input) {
    enter_folder();
    char problem[600];
    snprintf(problem, sizeof problem, "--input %s%s",
             in_repository(_i / 2 ? "tests/data/minilm_layer5" : "tests/data/minilm_layer0"),
             _i % 2 ? " --causal" : "");
    check_problem(5, problem);
}
END_TEST

// A number from softgpu's table of the step's kernel: behind these words, and then behind those.
static double statistic(const char *step, const char *options, const char *before,
                        const char *then) {
    setenv("SOFTGPU_STATS", "1", 1);
    Outcome run =
        run_chapter(5, "--check-only --json - --steps %s --heads 1 --seqlen 200 %s", step, options);
    every_step_is_ok(&run, outcome_json(&run, 0));
    const char *text = strstr(run.err, before);
    ck_assert_msg(text != NULL, "no \"%s\" in: %s", before, run.err);
    text = strstr(text + strlen(before), then);
    ck_assert_ptr_nonnull(text);
    return strtod(text + strlen(then), NULL);
}

// F38: tiles and stages are chosen by what fits. For each head_dim that is built, with a mask and
// without, a block's shared memory and one of the GPU's blocks are there. (The build checks the
// same; test_sizes checks the older steps on smaller GPUs.)
START_TEST(f38_tiles_fit_in_shared_memory) {
    enter_folder();
    for (int s = 0; s < STEPS; s++)
        for (int masked = 0; masked < 2; masked++) {
            char options[100];
            snprintf(options, sizeof options, "--head-dim %d%s", built_head_dims()[_i],
                     masked ? " --causal" : "");
            const double bytes = statistic(steps[s], options, "  shared ", "");
            ck_assert_msg(bytes > 48 * 1024 && bytes <= 227 * 1024, "%s %s: %g bytes", steps[s],
                          options, bytes);
            ck_assert_double_ge(statistic(steps[s], options, "blocks per SM ", ""), 1);
        }
}
END_TEST

// F81: few queries, many keys, heads in groups: launches failed there, now and then.
START_TEST(f81_few_queries_and_many_keys) {
    static const char *const orders[] = {"--schedule 0", "--schedule 1,2,3 --async random"};
    enter_folder();
    Outcome run = run_chapter(5,
                              "--check-only --json - --steps %s --batch 1 --heads 16 --kv-heads 4 "
                              "--seqlen-q 64 --seqlen-k %d --head-dim %d %s",
                              steps_of(5, ""), _i ? 2048 : 8192, _i ? 64 : 128, orders[_i]);
    ck_assert_int_eq(every_step_is_ok(&run, outcome_json(&run, 0)), STEPS);
}
END_TEST

// As many wavefronts of shared memory as it takes without conflicts.
START_TEST(no_bank_conflicts) {
    enter_folder();
    for (int h = 0; h < 2; h++) {
        char options[40];
        snprintf(options, sizeof options, "--head-dim %d", matrix_head_dims[h]);
        ck_assert_double_eq(statistic(steps[_i], options, "shared wavefronts ", "("), 1);
    }
}
END_TEST

START_TEST(hbm_bytes_are_near_the_ideal) {
    enter_folder();
    forward_reads_inputs_once(5, "intra-warpgroup", matrix_head_dims[_i]);
}
END_TEST

START_TEST(fp32_is_refused_in_a_sentence) {
    enter_folder();
    fp32_is_refused(5, steps[_i]);
}
END_TEST

START_TEST(an_older_gpu_is_refused) {
    enter_folder();
    Outcome run = run_chapter(5, "--steps wgmma --seqlen 10 --gpu a100");
    ck_assert_int_eq(run.status, 2);
    ck_assert_ptr_nonnull(strstr(run.err, "needs compute capability 9.0"));
}
END_TEST

Suite *suite_hopper_forward(void);
Suite *suite_hopper_forward(void) {
    Suite *suite = suite_create("chapter 5's forward steps");
    TCase *tests = tcase_create("steps");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, every_length, 0, FORWARD_CELLS);
    tcase_add_loop_test(tests, edges, 0, 9);
    tcase_add_loop_test(tests, real_input, 0, 4);
    tcase_add_loop_test(tests, f38_tiles_fit_in_shared_memory, 0, built_head_dim_count());
    tcase_add_loop_test(tests, f81_few_queries_and_many_keys, 0, 2);
    tcase_add_loop_test(tests, no_bank_conflicts, 0, STEPS);
    tcase_add_loop_test(tests, hbm_bytes_are_near_the_ideal, 0, 2);
    tcase_add_loop_test(tests, fp32_is_refused_in_a_sentence, 0, STEPS);
    tcase_add_test(tests, an_older_gpu_is_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
