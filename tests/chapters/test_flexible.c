// Chapter 8's step flexible: every score mod with every mask mod, under every order; masks that other
// options know, too, bit for bit; what the block mask counts; edge cases of the list; and that blocks
// that nobody sees cost nothing.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

static const char *const scores[] = {"none", "alibi", "softcap:3"};
static const char *const masks[] = {"none",       "causal",      "window:70",    "window:0",
                                    "document:4", "document:30", "prefix-lm:65", "prefix-lm:200"};
enum { SCORES = 3, MASKS = 8 };

static void run_is_right(const char *problem) {
    for (int p = 0; p < MATRIX_PAIRS; p++) {
        Outcome run = run_chapter(8, "--check-only --json - --steps flexible %s %s",
                                  matrix_orders[p], problem);
        ck_assert_int_eq(every_step_is_ok(&run, outcome_json(&run, 0)), 1);
    }
}

// Cell i: a score mod and a mask mod; lengths, dtypes, heads and the other options take turns.
START_TEST(every_mod) {
    static const char *const lengths[] = {"--seqlen 257 --heads 2",
                                          "--seqlen-q 130 --seqlen-k 390 --heads 2 --batch 2",
                                          "--seqlen-q 300 --seqlen-k 129 --heads 4 --kv-heads 2",
                                          "--seqlen 200 --causal --heads 3 --kv-heads 1",
                                          "--seqlen-q 65 --seqlen-k 400 --window 90,30 --heads 2"};
    const int score = _i % SCORES, mask = _i / SCORES;
    char problem[300];
    enter_folder();
    for (int l = 0; l < in_full(5, 2); l++) {
        snprintf(problem, sizeof problem,
                 "--sms %d --score-mod %s --mask-mod %s --dtype %s --head-dim %d %s", 1 + l % 2,
                 scores[score], masks[mask], matrix_dtypes[1 + (_i + l) % 2],
                 matrix_head_dims[(_i / 2 + l) % 2], lengths[(_i + l) % 5]);
        run_is_right(problem);
    }
}
END_TEST

// No key, no query, one of each; scales beyond the short ways of the score mods.
START_TEST(edges) {
    static const char *const problems[] = {
        "--heads 3 --seqlen-q 40 --seqlen-k 0 --mask-mod document",
        "--heads 3 --seqlen-q 0 --seqlen-k 40 --mask-mod causal",
        "--heads 3 --seqlen-q 300 --seqlen-k 1 --mask-mod prefix-lm:1 --score-mod alibi",
        "--heads 3 --seqlen-q 1 --seqlen-k 300 --mask-mod window:5 --score-mod softcap:1",
        "--heads 1 --seqlen 193 --scale 0 --score-mod softcap --mask-mod causal",
        "--heads 1 --seqlen 193 --scale -2 --score-mod softcap:5",
        "--heads 5 --seqlen 193 --scale -0.3 --score-mod alibi",
        "--heads 1 --seqlen 193 --scale 5 --score-mod softcap:1000000",
        "--heads 2 --seqlen 150 --softcap 2 --mask-mod document:3",
    };
    char problem[200];
    enter_folder();
    snprintf(problem, sizeof problem, "--sms 2 --head-dim 64 %s", problems[_i]);
    run_is_right(problem);
}
END_TEST

static Array output_of(const char *file, const char *step, const char *options) {
    Outcome run = run_chapter(8,
                              "--check-only --json - --save out --sms 2 --heads 2 --seqlen-q 300 "
                              "--seqlen-k 420 --head-dim 64 --steps %s %s",
                              step, options);
    ck_assert_int_eq(every_step_is_ok(&run, outcome_json(&run, 0)), 1);
    return array_read(file);
}

// Masks that are the same, said in two ways: the same lists, the same bits.
START_TEST(masks_said_in_two_ways) {
    static const char *const same[][2] = {
        {"--mask-mod causal", "--causal"},
        {"--mask-mod window:100", "--window 100,0"},
        {"--mask-mod prefix-lm:0", "--mask-mod causal"},
        {"--mask-mod prefix-lm:420", "--mask-mod none"},
        {"--mask-mod document:1", "--mask-mod none"},
        {"--mask-mod causal --window 40,-1", "--mask-mod window:40"},
    };
    static const char *const files[] = {"out/o.npy", "out/lse.npy"};
    enter_folder();
    for (int f = 0; f < 2; f++) {
        Array a = output_of(files[f], "flexible", same[_i][0]);
        Array b = output_of(files[f], "flexible", same[_i][1]);
        arrays_are_equal(&a, &b);
    }
}
END_TEST

// Without a mod the lists hold what persistent-lpt visits, in its order: the same bits.
START_TEST(without_mods_it_is_the_step_before) {
    static const char *const files[] = {"out/o.npy", "out/lse.npy"};
    enter_folder();
    for (int f = 0; f < 2; f++) {
        Array a = output_of(files[f], "persistent-lpt", "--seed 2");
        Array b = output_of(files[f], "flexible", "--seed 2");
        arrays_are_equal(&a, &b);
    }
}
END_TEST

static const char *remark_of(const char *options) {
    Outcome run =
        run_chapter(8, "--check-only --json - --steps flexible --head-dim 64 %s", options);
    const Json *json = outcome_json(&run, 0);
    every_step_is_ok(&run, json);
    return json_text(step_named(json, "flexible"), "remark");
}

// F70: the lists are of the forward's own blocks, 256 rows by 128 keys: what they hold can be counted
// by hand, and so can which blocks are partial.
START_TEST(f70_the_lists_are_of_the_forwards_blocks) {
    static const char *const counts[][2] = {
        // pairs of tiles see 2, 4, 6, 8 blocks, of which the last two are cut
        {"--seqlen 1024 --mask-mod causal",
         "visits 20 of 32 blocks of 256 rows × 128 keys (62.5%), "
         "asks the mask again in 8 of them"},
        // 1024 keys, the last block cut by the end of the keys
        {"--seqlen-q 256 --seqlen-k 1000", "visits 8 of 8 blocks of 256 rows × 128 keys (100.0%), "
                                           "asks the mask again in 1 of them"},
        // rows 0-255 see 256 keys; rows 256-511 from key 156 on: blocks 1, 2, 3, all cut
        {"--seqlen 512 --mask-mod window:100", "visits 5 of 8 blocks of 256 rows × 128 keys (62.5%)"
                                               ", asks the mask again in 5 of them"},
        // the first 384 keys are everybody's
        {"--seqlen 512 --mask-mod prefix-lm:384", "visits 7 of 8 blocks of 256 rows × 128 keys "
                                                  "(87.5%), asks the mask again in 1 of them"},
    };
    enter_folder();
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        char options[200];
        snprintf(options, sizeof options, "--sms 1 --heads 1 %s", counts[c][0]);
        const char *remark = remark_of(options);
        ck_assert_msg(strncmp(remark, counts[c][1], strlen(counts[c][1])) == 0, "%s: %s",
                      counts[c][0], remark);
    }
}
END_TEST

// F75: pairs of tiles that see no block follow each other, before, between and behind others: every
// role counts the same blocks, none too.
START_TEST(f75_pairs_without_blocks) {
    static const char *const problems[] = {
        "--heads 2 --seqlen-q 1100 --seqlen-k 200 --mask-mod causal",
        "--heads 3 --seqlen-q 900 --seqlen-k 130 --mask-mod document:3 --score-mod alibi",
        "--heads 2 --seqlen-q 1000 --seqlen-k 300 --mask-mod window:10 --batch 2",
        "--heads 3 --seqlen-q 600 --seqlen-k 0 --mask-mod prefix-lm",
    };
    enter_folder();
    for (int sms = 1; sms <= 2; sms++) {
        char problem[300];
        snprintf(problem, sizeof problem, "--schedule 1,2,3 --sms %d --head-dim 64 %s", sms,
                 problems[_i]);
        for (int a = 0; a < 3; a++) {
            static const char *const async[] = {"early", "late", "random"};
            Outcome run = run_chapter(8, "--check-only --json - --steps flexible --async %s %s",
                                      async[a], problem);
            ck_assert_int_eq(every_step_is_ok(&run, outcome_json(&run, 0)), 1);
        }
    }
}
END_TEST

// F76: each launch finds the mask, which was made once, and a counter that begins anew, on every path.
// (Nothing overlaps with the kernels before it: what a launch needs comes before it in its stream.)
START_TEST(f76_what_launches_need_is_there) {
    enter_folder();
    Outcome run = run_chapter(8, "--check-only --json - --steps flexible --launches 3 --sms 2 "
                                 "--heads 3 --seqlen 500 --mask-mod document:3 --head-dim 64");
    ck_assert_int_eq(every_step_is_ok(&run, outcome_json(&run, 0)), 1);
}
END_TEST

START_TEST(refuses_in_a_sentence) {
    static const char *const lines[][2] = {
        {"--steps persistent-lpt --mask-mod causal", "chapter 8's step flexible has them"},
        {"--steps naive,tcgen05 --score-mod alibi", "chapter 8's step flexible has them"},
        {"--steps flexible --mask-mod causal --sample 2", "use --sample 0"},
        {"--steps flexible --mask-mod blocks", "--mask-mod blocks: one of none, causal"},
        {"--steps flexible --score-mod alibi --softcap 3", "only one of them"},
    };
    enter_folder();
    for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
        Outcome run = run_chapter(8, "--seqlen 10 %s", lines[l][0]);
        ck_assert_int_eq(run.status, 2);
        ck_assert_msg(strstr(run.err, lines[l][1]) != NULL, "%s: %s", lines[l][0], run.err);
    }
    fp32_is_refused(8, "flexible");
}
END_TEST

// ---- times, modelled

static double flexible_cycles(const char *options) {
    Outcome run = run_chapter(8, "--json - --check none --steps flexible %s", options);
    const Json *json = outcome_json(&run, 0);
    every_step_is_ok(&run, json);
    return json_number(step_named(json, "flexible"), "cycles");
}

static double cycles_with(const char *problem, const char *mods) {
    char options[200];
    snprintf(options, sizeof options, "%s %s", problem, mods);
    return flexible_cycles(options);
}

// A bias that is computed costs little, and no byte of HBM: within a fifth of none.
START_TEST(alibi_costs_little) {
    const char *problem = "--sms 2 --heads 2 --seqlen 1024 --head-dim 128";
    enter_folder();
    const double none = cycles_with(problem, ""), alibi = cycles_with(problem, "--score-mod alibi");
    ck_assert_msg(alibi < 1.2 * none, "%g cycles without, %g with", none, alibi);
}
END_TEST

// Blocks that nobody sees aren't visited: a causal mask takes at most 1/1.7 of the dense time, a
// window of 1024 keys of 8192 at most a quarter. A K/V head fits in the L2 of 8 SMs.
START_TEST(blocks_that_nobody_sees_cost_nothing) {
    const char *problem = "--sms 8 --heads 1 --seqlen 8192 --head-dim 128";
    enter_folder();
    const double dense = cycles_with(problem, "");
    const double causal = cycles_with(problem, "--mask-mod causal");
    const double window = cycles_with(problem, "--mask-mod window:1024");
    ck_assert_msg(dense > 1.7 * causal, "%g cycles dense, %g causal", dense, causal);
    ck_assert_msg(dense > 4 * window, "%g cycles dense, %g in a window", dense, window);
}
END_TEST

Suite *suite_flexible(void);
Suite *suite_flexible(void) {
    Suite *suite = suite_create("chapter 8: flexible");
    TCase *tests = tcase_create("flexible");
    tcase_set_timeout(tests, 240);
    tcase_add_loop_test(tests, every_mod, 0, SCORES * MASKS);
    tcase_add_loop_test(tests, edges, 0, 9);
    tcase_add_loop_test(tests, masks_said_in_two_ways, 0, 6);
    tcase_add_test(tests, without_mods_it_is_the_step_before);
    tcase_add_test(tests, f70_the_lists_are_of_the_forwards_blocks);
    tcase_add_loop_test(tests, f75_pairs_without_blocks, 0, 4);
    tcase_add_test(tests, f76_what_launches_need_is_there);
    tcase_add_test(tests, refuses_in_a_sentence);
    suite_add_tcase(suite, tests);
    TCase *times = tcase_create("times");
    tcase_set_timeout(times, 900); // half a minute where nothing runs beside it
    tcase_add_test(times, alibi_costs_little);
    tcase_add_test(times, blocks_that_nobody_sees_cost_nothing);
    suite_add_tcase(suite, times);
    return suite;
}
