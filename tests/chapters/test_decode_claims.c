// What chapter 9 is for, and what its steps refuse. (Right results: test_decode.) Half a minute.
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "program.h"

// One token after 128k, on a quarter of an H200 with its share of 32 heads and 8 K/V heads: nine
// tenths of the bandwidth that copies reach, seven times chapter 7's kernel; and packing reads the
// keys of four heads once, so a third of the bytes at most goes from the L2 to the SMs.
START_TEST(a_token_after_128k) {
    enter_folder();
    Outcome o = run_chapter(9, "--steps prefill-kernel,split-kv,gqa-packed,auto-split --json - "
                               "--batch 1 --heads 8 --kv-heads 2 --seqlen-q 1 --seqlen-k 131072 "
                               "--head-dim 128 --sms 33 --check none");
    Json *json = outcome_json(&o, 0);
    ck_assert_int_eq(every_step_is_ok(&o, json), 4);
    const Json *best = step_named(json, "auto-split");
    ck_assert_double_ge(json_number(best, "hbm_fraction"), 0.9);
    ck_assert_double_le(json_number(best, "hbm_fraction"), 1);
    const Json *prefill = step_named(json, "prefill-kernel");
    ck_assert_double_ge(json_number(prefill, "time_us"), 7 * json_number(best, "time_us"));
    ck_assert_double_ge(json_number(step_named(json, "split-kv"), "l2_read_bytes"),
                        3 * json_number(step_named(json, "gqa-packed"), "l2_read_bytes"));
}
END_TEST

START_TEST(refusals) {
    static const char *const lines[][3] = {
        {"split-kv", "--page-size 16", "paged-kv"},
        {"auto-split", "--append 1 --seqlen-k 20", "paged-kv"},
        {"prefill-kernel", "--page-size 16", "paged-kv"},
        {"paged-kv", "--dtype fp32 --seqlen-k 9", "--dtype fp16 or bf16"},
        {"split-kv", "--splits 129", "--splits"},
        {"naive", "--fp8-cache", "chapter 9's steps read them"},
    };
    enter_folder();
    for (int l = 0; l < 6; l++) {
        Outcome o = run_chapter(9, "--steps %s %s --check-only", lines[l][0], lines[l][1]);
        ck_assert_int_eq(o.status, 2);
        ck_assert_msg(strstr(o.err, lines[l][2]) != NULL, "%s", o.err);
    }
}
END_TEST

// On few SMs no GPC has room for a large cluster: that is known before the launch. The number of
// splits that the step chooses itself always fits, and so does the number that the sentence names.
START_TEST(clusters_that_fit_nowhere) {
    enter_folder();
    Outcome o = run_chapter(9, "--steps cluster-combine --sms 3 --cache-seqlens 16 --splits 16 "
                               "--seqlen-q 1 --head-dim 64");
    ck_assert_int_eq(o.status, 2);
    ck_assert_str_eq(o.err,
                     "run: 16 splits are a cluster of 16 thread blocks, and no GPC of this GPU "
                     "has room for it; use --splits up to 6, or another step\n");
    for (int splits = 0; splits <= 6; splits += 6) {
        char option[32] = "";
        if (splits > 0) snprintf(option, sizeof option, " --splits %d", splits);
        o = run_chapter(9,
                        "--steps cluster-combine --sms 3 --cache-seqlens 900 --seqlen-q 1 "
                        "--head-dim 64 --check-only --json -%s",
                        option);
        ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 1);
    }
}
END_TEST

// Without queries there is nothing to launch, and a time of 0 would be one that nobody measured.
START_TEST(no_queries_no_time) {
    enter_folder();
    Outcome o = run_chapter(9, "--steps naive,split-kv,cluster-combine --seqlen-q 0 --seqlen-k 40 "
                               "--sms 2 --head-dim 64 --json -");
    const Json *json = outcome_json(&o, 0);
    ck_assert_int_eq(every_step_is_ok(&o, json), 3);
    for (int s = 0; s < 3; s++) {
        char path[40];
        snprintf(path, sizeof path, "steps.%d.time_us", s);
        ck_assert(json_is_null(json, path));
    }
}
END_TEST

Suite *suite_decode_claims(void);
Suite *suite_decode_claims(void) {
    Suite *suite = suite_create("chapter 9: what decoding gains");
    TCase *claims = tcase_create("claims");
    tcase_set_timeout(claims, 600);
    tcase_add_test(claims, a_token_after_128k);
    tcase_add_test(claims, refusals);
    tcase_add_test(claims, clusters_that_fit_nowhere);
    tcase_add_test(claims, no_queries_no_time);
    suite_add_tcase(suite, claims);
    return suite;
}
