// Chapter 8's steps: right on every kind of problem under every order; edge cases of their own; and
// what the lesson says of their times holds. (Masks, sizes and equal bits under all orders: two of
// these steps, one of each kernel, are among the own_steps of the other suites.)
//
// The last step's blocks stay and take one pair of tiles after the other, so the GPU must be small:
// --sms 2, or as few as make a block loop.
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "matrix.h"

static const char *const steps[] = {"tcgen05",        "p-in-tmem",    "pingpong",
                                    "exp2-emulation", "lazy-rescale", "persistent-lpt"};
enum { STEPS = sizeof steps / sizeof *steps };

// Cell i: dtype, head_dim, causal; each with every length, the other options taking turns. A tile is
// 128 rows, a block of the later steps has two; a block of keys is 128.
START_TEST(every_length) {
    static const char *const lengths[] = {
        "--seqlen 1",
        "--seqlen 129",
        "--seqlen-q 65 --seqlen-k 200",
        "--seqlen-q 257 --seqlen-k 65",
        "--seqlen-q 193 --seqlen-k 386",
    };
    static const char *const extras[] = {
        "--heads 2",
        "--heads 4 --kv-heads 2",
        "--heads 2 --window 16,0",
        "--heads 3 --kv-heads 1 --softcap 5",
        "--heads 2 --window 33,7",
        "--heads 2 --kv-heads 1 --window 0,40 --softcap 2",
    };
    enter_folder();
    for (int l = 0; l < 5; l++) {
        char problem[300];
        snprintf(problem, sizeof problem, "--sms %d --batch %d --dtype %s --head-dim %d %s %s%s",
                 1 + l % 2, 1 + l % 2, matrix_dtypes[1 + _i % 2], matrix_head_dims[_i / 2 % 2],
                 lengths[l], extras[(l + _i) % 6], _i / 4 ? " --causal" : "");
        check_problem(8, problem);
    }
}
END_TEST

// No key, no query, one of each; scales that can't be folded into the exponent as they are.
START_TEST(edges) {
    static const char *const problems[] = {
        "--heads 3 --seqlen-q 40 --seqlen-k 0",
        "--heads 3 --seqlen-q 0 --seqlen-k 40",
        "--heads 3 --seqlen-q 300 --seqlen-k 1",
        "--heads 3 --seqlen-q 1 --seqlen-k 300",
        "--heads 1 --seqlen 193 --scale 0 --causal",
        "--heads 1 --seqlen 193 --scale -2 --softcap 5",
        "--heads 1 --seqlen 193 --scale 300",
    };
    char problem[200];
    enter_folder();
    snprintf(problem, sizeof problem, "--sms 2 --head-dim 64 %s", problems[_i]);
    check_problem(8, problem);
}
END_TEST

// Runs steps under many orders of warps and of what is asynchronous.
static void under_many_orders(const char *which, int results, const char *problem) {
    static const char *const async[] = {"early", "late", "random"};
    for (int a = 0; a < 3; a++) {
        Outcome run = run_chapter(8, "--check-only --json - --steps %s --async %s %s", which,
                                  async[a], problem);
        ck_assert_int_eq(every_step_is_ok(&run, outcome_json(&run, 0)), results);
    }
}

// F74: the tensor core reads what softmax and correction have written to tensor memory, and a warp
// frees it behind their last loads: several blocks of keys, so that each hand-off comes again.
START_TEST(f74_tensor_memory_is_handed_over) {
    enter_folder();
    under_many_orders(
        steps_of(8, ""), STEPS,
        "--schedule 1,2 --sms 1 --heads 2 --seqlen-q 130 --seqlen-k 400 --head-dim 64");
}
END_TEST

// F75: tiles without keys follow each other in one block, before, between and behind others: every
// role counts the same work.
START_TEST(f75_tiles_without_keys) {
    static const char *const problems[] = {
        "--heads 2 --seqlen-q 1100 --seqlen-k 200 --causal",
        "--heads 3 --seqlen-q 700 --seqlen-k 40 --causal",
        "--heads 3 --seqlen-q 600 --seqlen-k 0",
    };
    char problem[200];
    enter_folder();
    for (int sms = 1; sms <= 2; sms++) {
        snprintf(problem, sizeof problem, "--schedule 1,2,3 --sms %d --head-dim 64 %s", sms,
                 problems[_i]);
        under_many_orders("pingpong,persistent-lpt", 2, problem);
    }
}
END_TEST

// F80: any role may be late by any time, and the numbers that the softmax leaves for the correction
// are still its own: rows whose maxima grow at every block, more than lazy-rescale lets pass. The
// delays are softgpu's: from --schedule 1 on it draws, by the seed, which warp goes on, so that each
// role is now ahead of the others, now behind; --async late and random hold back each copy, product
// and store to tensor memory until somebody waits for it, or as long as is drawn.
START_TEST(f80_any_role_may_be_late) {
    enter_folder();
    under_many_orders("pingpong,lazy-rescale,persistent-lpt", 3,
                      "--schedule 1,2,3,4 --sms 1 --heads 2 --seqlen-q 129 --seqlen-k 650 "
                      "--head-dim 64 --scale 3 --causal");
}
END_TEST

// More blocks than pairs of tiles: those that find nothing to do end.
START_TEST(fewer_tiles_than_sms) {
    enter_folder();
    check_problem(8, "--sms 20 --heads 2 --seqlen 250 --causal --head-dim 64");
}
END_TEST

// F43: the counter begins anew with each launch, whatever the workspace held.
START_TEST(f43_the_counter_begins_anew) {
    enter_folder();
    Outcome run = run_chapter(8, "--check-only --json - --steps persistent-lpt --sms 2 --heads 3 "
                                 "--seqlen 300 --causal --head-dim 64 --schedule 0,0,0");
    ck_assert_int_eq(every_step_is_ok(&run, outcome_json(&run, 0)), 1);
}
END_TEST

// A pair's numbers don't depend on who computes it when, nor on which step's blocks do.
START_TEST(blocks_that_stay_give_the_same_bits) {
    Array o[3], lse[3];
    enter_folder();
    for (int r = 0; r < 3; r++) {
        Outcome run = run_chapter(8,
                                  "--check-only --json - --save out --steps %s --sms %d --heads 3 "
                                  "--seqlen 410 --head-dim 64 --causal",
                                  r == 0 ? "lazy-rescale" : "persistent-lpt", 1 + r);
        every_step_is_ok(&run, outcome_json(&run, 0));
        o[r] = array_read("out/o.npy");
        lse[r] = array_read("out/lse.npy");
        arrays_are_equal(&o[0], &o[r]);
        arrays_are_equal(&lse[0], &lse[r]);
    }
}
END_TEST

START_TEST(refuses_in_a_sentence) {
    static const char *const lines[][2] = {
        {"--steps pingpong --dtype fp8", "chapters 6 and 7 have --dtype fp8"},
        {"--steps persistent-lpt --seqlen 2048 --sample 2", "use --sample 0"},
        {"--steps tcgen05 --gpu h100", "needs compute capability 10.0"},
        {"--steps tcgen05 --varlen 5,7", "--varlen"},
        {"--steps tcgen05 --head-dim 136", "chapter 8's kernels go up to 128"},
    };
    enter_folder();
    for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
        Outcome run = run_chapter(8, "--seqlen 10 %s", lines[l][0]);
        ck_assert_int_eq(run.status, 2);
        ck_assert_msg(strstr(run.err, lines[l][1]) != NULL, "%s: %s", lines[l][0], run.err);
    }
    for (int s = 0; s < STEPS; s++) fp32_is_refused(8, steps[s]);
}
END_TEST

// The exhibit is wrong, says so, and is no failure.
START_TEST(gemm_only_is_wrong) {
    enter_folder();
    Outcome run =
        run_chapter(8, "--check-only --json - --steps gemm-only --heads 1 --seqlen 130 --sms 1");
    ck_assert(!json_bool(step_named(outcome_json(&run, 0), "gemm-only"), "ok"));
}
END_TEST

// ---- times, modelled

// The ladder: every step of the second kernel is faster than the one before, and the products alone
// are the ceiling. Also where a block has 64 blocks of keys, and what persistence saves once a pair of
// tiles is little beside them; an L2 of 8 SMs' share holds all K and V, as the whole GPU's would.
START_TEST(ladder_in_order) {
    static const char *const ladder[] = {"tcgen05",      "pingpong",       "exp2-emulation",
                                         "lazy-rescale", "persistent-lpt", "gemm-only"};
    static const char *const problems[] = {
        "--sms 2 --heads 2 --seqlen 1024 --head-dim 128",
        "--sms 8 --heads 1 --seqlen-q 4096 --seqlen-k 8192 --head-dim 128 --check none"};
    enter_folder();
    Outcome run = run_chapter(8,
                              "--json - %s --steps %spingpong,exp2-emulation,lazy-rescale,"
                              "persistent-lpt,gemm-only",
                              problems[_i], _i == 0 ? "tcgen05," : "");
    const Json *json = outcome_json(&run, 0);
    for (int s = _i == 0 ? 1 : 2; s < 6; s++)
        ck_assert_msg(cycles_of(json, ladder[s]) < cycles_of(json, ladder[s - 1]),
                      "%s: %g cycles; %s: %g", ladder[s - 1], cycles_of(json, ladder[s - 1]),
                      ladder[s], cycles_of(json, ladder[s]));
}
END_TEST

Suite *suite_blackwell(void);
Suite *suite_blackwell(void) {
    Suite *suite = suite_create("chapter 8's steps");
    TCase *tests = tcase_create("steps");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, every_length, 0, 8);
    tcase_add_loop_test(tests, edges, 0, 7);
    tcase_add_test(tests, f74_tensor_memory_is_handed_over);
    tcase_add_loop_test(tests, f75_tiles_without_keys, 0, 3);
    tcase_add_test(tests, f80_any_role_may_be_late);
    tcase_add_test(tests, fewer_tiles_than_sms);
    tcase_add_test(tests, f43_the_counter_begins_anew);
    tcase_add_test(tests, blocks_that_stay_give_the_same_bits);
    tcase_add_test(tests, refuses_in_a_sentence);
    tcase_add_test(tests, gemm_only_is_wrong);
    tcase_add_loop_test(tests, ladder_in_order, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
