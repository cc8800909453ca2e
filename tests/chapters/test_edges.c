// Edge cases that other implementations met, on all of the chapters' steps: masks and rows without
// keys. Numbers are those of the list of edge cases; what is expected is worked out here. About ten
// seconds in all.
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attend.h"

// Of a problem whose scores are all 0: each row's lse is the logarithm of the number of keys seen,
// and with V = 1 its o is 1, or 0 where it sees none.
static void counts_keys(Case *c) {
    fill_with(&c->q, 0);
    fill_with(&c->v, 1);
    const long rows = c->q.shape[1], heads = c->q.shape[2];
    for (int s = 0; s < own_step_count; s++) {
        Answer answer = answer_of(c, own_steps[s]);
        for (long row = 0; row < answer.lse.count; row++) {
            const long seen = keys_seen(c, row % rows);
            const double lse = (double)answer.lse.values[row];
            const double o =
                (double)answer.o.values[at(&answer.o, 0, row % rows, row / rows % heads, 0)];
            ck_assert_msg(seen > 0 ? fabs(lse - log((double)seen)) < 4e-3 : lse == -INFINITY,
                          "%s, row %ld: lse %g, %ld keys", own_steps[s].name, row, lse, seen);
            ck_assert_msg(seen > 0 ? fabs(o - 1) < 4e-3 : o == 0, "%s, row %ld: o %g, %ld keys",
                          own_steps[s].name, row, o, seen);
        }
    }
}

START_TEST(f01_causal_is_bottom_right_more_queries) {
    enter_folder();
    Case c = case_make(1, 1, 1, 5, 2, 64);
    c.causal = true;
    for (int s = 0; s < own_step_count; s++) {
        Answer a = answer_of(&c, own_steps[s]);
        for (long row = 0; row < 3; row++) {
            ck_assert(a.lse.values[row] == -INFINITY);
            for (long x = 0; x < 64; x++) ck_assert(a.o.values[at(&a.o, 0, row, 0, x)] == 0);
        }
        // Row 3 sees the first key alone: its value, exactly.
        ck_assert_mem_eq(a.o.values + at(&a.o, 0, 3, 0, 0), c.v.values, 64 * sizeof(float));
        answer_is_attention(&c, &a, 4e-3);
    }
}
END_TEST

START_TEST(f01_causal_is_bottom_right_more_keys) {
    enter_folder();
    Case c = case_make(1, 1, 1, 2, 5, 64);
    c.causal = true;
    ck_assert(keys_seen(&c, 0) == 4 && keys_seen(&c, 1) == 5);
    all_steps_give_attention(&c, 4e-3);
    counts_keys(&c);
}
END_TEST

START_TEST(f02_rows_without_keys_give_zero_and_minus_infinity) {
    enter_folder();
    Case c = case_make(2, 2, 1, 150, 70, 64);
    c.causal = true;
    ck_assert(keys_seen(&c, 79) == 0 && keys_seen(&c, 80) == 1);
    all_steps_give_attention(&c, 4e-3);
}
END_TEST

START_TEST(f04_row_without_keys_is_not_the_mean_of_v) {
    enter_folder();
    Case c = case_make(1, 2, 2, 70, 9, 64);
    c.causal = true;
    counts_keys(&c);
}
END_TEST

// Scores of -200,000 in every place: below any finite stand-in for minus infinity.
START_TEST(f05_scores_below_every_sentinel) {
    static const char *const dtypes[] = {"fp32", "bf16", "fp16"};
    enter_folder();
    Case c = case_make(1, 1, 1, 3, 100, 64);
    c.dtype = dtypes[_i];
    fill_with(&c.q, -100);
    fill_with(&c.k, 250);
    for (int s = 0; s < own_step_count; s++) {
        const char *name = own_steps[s].name;
        // Standard attention stores S in fp16, which ends at 65,504: there the fused steps alone.
        bool stored = strcmp(name, "naive") == 0 || strcmp(name, "tiled-matmul") == 0;
        if (stored && _i == 2) continue;
        if (own_steps[s].tensor_cores && _i == 0) continue; // these have no fp32
        Answer a = answer_of(&c, own_steps[s]);
        for (long x = 0; x < 64; x++) {
            double mean = 0;
            for (long j = 0; j < 100; j++) mean += (double)c.v.values[at(&c.v, 0, j, 0, x)] / 100;
            double o = (double)a.o.values[at(&a.o, 0, 2, 0, x)];
            ck_assert_msg(fabs(o - mean) < 8e-3, "%s: %g, not %g", name, o, mean);
        }
        double lse = (double)a.lse.values[2], expected = -200000 + log(100);
        ck_assert_msg(fabs(lse - expected) < (stored && _i == 1 ? 1000 : 0.05), "%s: lse %g", name,
                      lse);
    }
}
END_TEST

START_TEST(f06_window_of_all_earlier_keys_is_causal) {
    enter_folder();
    const long seqlen = 130, lefts[] = {seqlen - 1, seqlen, -1};
    Case causal = case_make(1, 2, 2, seqlen, seqlen, 64);
    causal.causal = true;
    for (int s = 0; s < own_step_count; s++) {
        Answer expected = answer_of(&causal, own_steps[s]);
        for (int l = 0; l < 3; l++) {
            Case window = causal;
            window.causal = false;
            window.left = lefts[l];
            window.right = 0;
            Answer a = answer_of(&window, own_steps[s]);
            arrays_are_equal(&a.o, &expected.o);
            arrays_are_equal(&a.lse, &expected.lse);
        }
    }
}
END_TEST

// One-sided windows, inclusive: window 16,0 sees 17 keys.
START_TEST(f07_window_counts_its_keys) {
    static const long windows[][2] = {{16, 0}, {0, 16}, {0, 0}, {70, 3}, {-1, 5}, {5, -1}};
    enter_folder();
    Case c = case_make(1, 1, 1, 150, 150, 64);
    c.left = windows[_i][0];
    c.right = windows[_i][1];
    if (_i == 0) ck_assert(keys_seen(&c, 100) == 17 && keys_seen(&c, 3) == 4);
    counts_keys(&c);
}
END_TEST

START_TEST(f08_window_of_minus_ones_is_no_window) {
    enter_folder();
    Case c = case_make(1, 2, 2, 70, 130, 64);
    Case window = c;
    window.options = "--window -1,-1";
    for (int s = 0; s < own_step_count; s++) {
        Answer expected = answer_of(&c, own_steps[s]), a = answer_of(&window, own_steps[s]);
        arrays_are_equal(&a.o, &expected.o);
        arrays_are_equal(&a.lse, &expected.lse);
    }
}
END_TEST

// A window side below -1 would mean everything without saying so.
START_TEST(f09_window_sides_below_minus_one_are_refused) {
    static const char *const windows[] = {"-5,10", "10,-2", "-2,-2", "-2147483648,0"};
    enter_folder();
    for (int chapter = 1; chapter <= 3; chapter++) {
        Outcome o = run_chapter(chapter, "--seqlen 32 --window %s", windows[_i]);
        ck_assert_int_eq(o.status, 2);
        ck_assert_msg(strstr(o.err, "--window") != NULL && strstr(o.err, "-1") != NULL, "%s",
                      o.err);
        ck_assert(!file_exists("results"));
    }
}
END_TEST

// Rows whose first key stands in a later block than the tile's first.
START_TEST(f11_first_visible_key_in_a_later_block) {
    enter_folder();
    Case c = case_make(1, 2, 1, 200, 264, 64);
    c.left = 4 - _i * 4;
    c.right = _i * 3;
    c.dtype = "fp32";
    all_steps_give_attention(&c, 1e-5);
    c.dtype = "fp16";
    all_steps_give_attention(&c, 4e-3);
    counts_keys(&c);
}
END_TEST

START_TEST(f11_first_visible_key_in_the_last_block) {
    enter_folder();
    Case c = case_make(1, 1, 1, 64, 200, 128);
    c.left = 0;
    c.causal = true;
    all_steps_give_attention(&c, 4e-3);
}
END_TEST

// Query head h reads K/V head h / 3: V says which.
START_TEST(f13_neighbouring_query_heads_share_a_kv_head) {
    enter_folder();
    Case c = case_make(2, 6, 2, 40, 70, 64);
    for (long i = 0; i < c.v.count; i++) c.v.values[i] = (float)(1 + i / 64 % 2);
    for (int s = 0; s < own_step_count; s++) {
        Answer a = answer_of(&c, own_steps[s]);
        for (long i = 0; i < a.o.count; i++) {
            const double expected = i / 64 % 6 < 3 ? 1 : 2;
            ck_assert_msg(fabs((double)a.o.values[i] - expected) < 4e-3, "%s: head %ld: %g",
                          own_steps[s].name, i / 64 % 6, (double)a.o.values[i]);
        }
        answer_is_attention(&c, &a, 4e-3);
    }
}
END_TEST

Suite *suite_edges(void) {
    Suite *suite = suite_create("chapters: edge cases of masks");
    TCase *tests = tcase_create("masks");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, f01_causal_is_bottom_right_more_queries);
    tcase_add_test(tests, f01_causal_is_bottom_right_more_keys);
    tcase_add_test(tests, f02_rows_without_keys_give_zero_and_minus_infinity);
    tcase_add_test(tests, f04_row_without_keys_is_not_the_mean_of_v);
    tcase_add_loop_test(tests, f05_scores_below_every_sentinel, 0, 3);
    tcase_add_test(tests, f06_window_of_all_earlier_keys_is_causal);
    tcase_add_loop_test(tests, f07_window_counts_its_keys, 0, 6);
    tcase_add_test(tests, f08_window_of_minus_ones_is_no_window);
    tcase_add_loop_test(tests, f09_window_sides_below_minus_one_are_refused, 0, 4);
    tcase_add_loop_test(tests, f11_first_visible_key_in_a_later_block, 0, 2);
    tcase_add_test(tests, f11_first_visible_key_in_the_last_block);
    tcase_add_test(tests, f13_neighbouring_query_heads_share_a_kv_head);
    suite_add_tcase(suite, tests);
    return suite;
}
