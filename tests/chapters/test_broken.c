// What a run says about broken kernels: the steps of tests/chapters/broken, each wrong in its own
// way. Findings end with status 3 and name the source line; wrong results end with 1 and say where.
// About five seconds in all.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

static const char *source(void) {
    return in_repository("tests/chapters/broken/broken.cu");
}

// The number of the line with this comment.
static int line_with(const char *mark) {
    char *text = file_text(source()), *found = strstr(text, mark);
    ck_assert_msg(found != NULL && strstr(found + 1, mark) == NULL, "%s stands there once", mark);
    int line = 1;
    for (const char *c = text; c < found; c++) line += *c == '\n';
    return line;
}

static const struct {
    const char *step, *mark, *kernel;
} findings[] = {
    {"out-of-bounds", "// OUT_OF_BOUNDS", "read_past_the_end"},
    {"barrier", "// DIVIDED", "divided_barrier"},
    {"deadlock", "// DEADLOCK", "waits_for_ever"},
};

START_TEST(finding_ends_with_3_and_the_source_line) {
    enter_folder();
    Outcome o =
        run_program("broken-chapter", "--json - --check-only --steps %s", findings[_i].step);
    Json *json = outcome_json(&o, 3);
    char line[64];
    snprintf(line, sizeof line, "broken.cu:%d", line_with(findings[_i].mark));
    const Json *step = step_named(json, findings[_i].step);
    ck_assert(!json_bool(step, "ok"));
    ck_assert_int_ge(json_count(step, "findings"), 1);
    // In the JSON and in the text for people; kernel, line, and the way out.
    ck_assert_msg(strstr(o.out, findings[_i].kernel) != NULL, "no kernel:\n%s", o.out);
    ck_assert_msg(strstr(o.err, line) != NULL, "no %s:\n%s", line, o.err);
    ck_assert_msg(strstr(o.err, findings[_i].kernel) != NULL, "no kernel:\n%s", o.err);
}
END_TEST

// A step beside a broken one is judged for itself, and a broken one after another is still found: the
// device is usable again. The finding decides the status.
START_TEST(others_run_on_after_a_finding) {
    enter_folder();
    for (int f = 0; f < 3; f++) {
        Outcome o = run_program("broken-chapter", "--json - --check-only --steps %s,right",
                                findings[f].step);
        Json *json = outcome_json(&o, 3);
        const Json *right = step_named(json, "right");
        ck_assert_msg(json_bool(right, "ok") && json_count(right, "findings") == 0, "%s", o.out);
    }
    Outcome o =
        run_program("broken-chapter", "--json - --check-only --steps out-of-bounds,barrier");
    Json *json = outcome_json(&o, 3);
    ck_assert_int_ge(json_count(step_named(json, "out-of-bounds"), "findings"), 1);
    ck_assert_int_ge(json_count(step_named(json, "barrier"), "findings"), 1);
}
END_TEST

// An error from the runtime without a finding is one all the same.
START_TEST(refused_launch_ends_with_3) {
    enter_folder();
    Outcome o = run_program("broken-chapter", "--json - --check-only --steps bad-launch");
    Json *json = outcome_json(&o, 3);
    const Json *step = step_named(json, "bad-launch");
    ck_assert(!json_bool(step, "ok"));
    ck_assert_msg(strstr(json_text(step, "device_error"), "cudaError") != NULL, "%s", o.out);
}
END_TEST

START_TEST(right_step_ends_with_0) {
    enter_folder();
    Outcome o = run_program("broken-chapter", "--json - --check-only --steps right");
    ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 1);
}
END_TEST

static const struct {
    const char *step, *tensor, *count;
    double elements; // of that count
    const char *words[3];
} wrong[] = {
    {"dropped-tile",
     "o",
     "wrong",
     0,
     {"o: wrong in", "first at batch 0, head 0, row 0, column",
      "when keys 64-127 (of 0-135) are left out"}},
    {"wrong-base",
     "lse",
     "wrong",
     272,
     {"lse: wrong in 272 of 272", "1.4427 times", "a logarithm in base 2"}},
    {"nan-row",
     "o",
     "nonfinite",
     128,
     {"first at batch 0, head 0, row 5, column 0: got nan",
      "128 NaN or infinite values on one side only", ""}},
    {"unwritten", "o", "unwritten", 128, {"128 elements were never written", "row 7", ""}},
    {"swapped-heads",
     "o",
     "wrong",
     0,
     {"heads swapped",
      "batch 0, head 0 holds the result of "
      "batch 0, head 1",
      ""}},
};

// f03 is among them: NaN on one side only is wrong.
START_TEST(wrong_results_end_with_1_and_say_where) {
    enter_folder();
    Outcome o = run_program("broken-chapter", "--json - --check-only --steps %s", wrong[_i].step);
    Json *json = outcome_json(&o, 1);
    const Json *step = step_named(json, wrong[_i].step);
    ck_assert(!json_bool(step, "ok"));
    ck_assert_int_eq(json_count(step, "findings"), 0);
    char path[64];
    snprintf(path, sizeof path, "errors.%s.%s", wrong[_i].tensor, wrong[_i].count);
    const double count = json_number(step, path);
    ck_assert_msg(wrong[_i].elements > 0 ? count == wrong[_i].elements : count > 100, "%s: %g",
                  path, count);
    snprintf(path, sizeof path, "errors.%s.report", wrong[_i].tensor);
    const char *report = json_text(step, path);
    for (int w = 0; w < 3; w++) {
        ck_assert_msg(strstr(report, wrong[_i].words[w]) != NULL, "no \"%s\" in:\n%s",
                      wrong[_i].words[w], report);
        ck_assert_msg(strstr(o.err, wrong[_i].words[w]) != NULL, "not on stderr:\n%s", o.err);
    }
}
END_TEST

// A step that is right alone, on a new workspace, and leaves it so that the next launch is wrong (F43).
START_TEST(f43_a_second_launch_on_the_same_workspace) {
    enter_folder();
    Outcome o = run_program("broken-chapter", "--json - --check-only --steps stale-counter");
    ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 1);
    o = run_program("broken-chapter", "--json - --check-only --steps stale-counter --launches 2");
    const Json *step = step_named(outcome_json(&o, 1), "stale-counter");
    ck_assert(!json_bool(step, "ok"));
    ck_assert_double_gt(json_number(step, "errors.o.unwritten"), 1000); // nothing was
    o = run_program("broken-chapter", "--json - --check-only --steps right --launches 3");
    ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 1);
}
END_TEST

// The worst status wins: 3 over 1.
START_TEST(device_errors_outweigh_wrong_results) {
    enter_folder();
    Outcome o = run_program("broken-chapter", "--json - --check-only --steps wrong-base,barrier");
    outcome_json(&o, 3);
    o = run_program("broken-chapter", "--json - --check-only --steps right,wrong-base");
    outcome_json(&o, 1);
}
END_TEST

// Timed runs are no excuse: the same verdicts without --check-only.
START_TEST(timed_runs_are_judged_too) {
    enter_folder();
    Outcome o = run_program("broken-chapter", "--json - --steps wrong-base --seqlen 90");
    outcome_json(&o, 1);
    o = run_program("broken-chapter", "--json - --steps out-of-bounds --seqlen 90");
    outcome_json(&o, 3);
}
END_TEST

Suite *suite_broken(void) {
    Suite *suite = suite_create("chapters: broken kernels");
    TCase *tests = tcase_create("broken");
    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, right_step_ends_with_0);
    tcase_add_loop_test(tests, finding_ends_with_3_and_the_source_line, 0, 3);
    tcase_add_test(tests, others_run_on_after_a_finding);
    tcase_add_test(tests, refused_launch_ends_with_3);
    tcase_add_loop_test(tests, wrong_results_end_with_1_and_say_where, 0, 5);
    tcase_add_test(tests, device_errors_outweigh_wrong_results);
    tcase_add_test(tests, timed_runs_are_judged_too);
    tcase_add_test(tests, f43_a_second_launch_on_the_same_workspace);
    suite_add_tcase(suite, tests);
    return suite;
}
