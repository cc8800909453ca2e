// The comparisons of all chapters (make compare, feeds, ladder) on tiny problems: what they write is
// complete and follows from the runs, a run that is there is not repeated, a failure is told.
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "program.h"

// Runs a script of common/plot; both of its streams go to `text`. Returns the exit status.
static int script(const char *name, const char *arguments, char **text) {
    char command[1024];
    // No picture: what draws it may be missing here.
    snprintf(command, sizeof command, "PLOT_PYTHON=false python3 %s %s >said 2>&1",
             in_repository(name), arguments);
    int status = system(command);
    *text = file_text("said");
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static const char *variant(void) {
    const char *given = getenv("TEST_BUILD");
    static char path[1024];
    if (given != NULL && given[0] == '/') return given;
    snprintf(path, sizeof path, "%s", in_repository(given != NULL ? given : "build/d64-128"));
    return path;
}

// The step of a list in the JSON; fails if there is none.
static const Json *named(const Json *list, const char *name) {
    const Json *found = NULL;
    for (const Json *s = list->first; s != NULL && found == NULL; s = s->next) {
        if (strcmp(json_text(s, "step"), name) == 0) found = s;
    }
    ck_assert_msg(found != NULL, "no step %s", name);
    return found;
}

START_TEST(compare_is_complete_and_resumes) {
    char arguments[1200], *text;
    enter_folder();
    snprintf(arguments, sizeof arguments,
             "%s 1,2,5 --batch 1 --heads 2 --seqlen 256 --head-dim 64 --sms 2", variant());
    ck_assert_msg(script("common/plot/compare.py", arguments, &text) == 0, "%s", text);
    ck_assert_ptr_nonnull(strstr(text, "forward · fp16 · batch 1 · heads 2 · seqlen 256"));
    ck_assert_ptr_nonnull(strstr(text, "times are "));
    ck_assert_ptr_nonnull(strstr(text, " GHz"));
    Json *json = json_read(file_text("results/compare.json"));
    ck_assert_int_eq(json_count(json, "panels"), 2);
    const Json *forward = json_at(json, "panels.0.steps"),
               *backward = json_at(json, "panels.1.steps");
    const Json *naive = named(forward, "naive"), *two_pass = named(forward, "two-pass");
    ck_assert(json_number(naive, "speedup_over_naive") == 1);
    double ratio = json_number(naive, "time_us") / json_number(two_pass, "time_us");
    ck_assert(fabs(json_number(two_pass, "speedup_over_naive") - ratio) < 1e-9 * ratio);
    ck_assert_str_eq(json_text(two_pass, "ok"), "ok");
    ck_assert_str_eq(json_text(named(forward, "gemm-only"), "ok"), "exhibit");
    ck_assert_str_eq(json_text(named(backward, "intra-warpgroup"), "ok"), "ok");
    for (const Json *s = forward->first; s != NULL; s = s->next) {
        ck_assert_str_ne(json_text(s, "step"), "first-attempt"); // wrong by design: no competitor
        ck_assert(json_number(s, "hbm_read_bytes") > 0);
    }
    int lines = 0;
    for (const char *c = file_text("results/compare.csv"); *c != 0; c++) lines += *c == '\n';
    ck_assert_int_eq(lines,
                     1 + json_count(json, "panels.0.steps") + json_count(json, "panels.1.steps"));

    // All is kept but the run that is lost: the same results again.
    char *before = file_text("results/compare.json");
    ck_assert_int_eq(remove("results/compare/forward-h100-chapter-2-timed.json"), 0);
    ck_assert_int_eq(script("common/plot/compare.py", arguments, &text), 0);
    ck_assert_ptr_nonnull(strstr(text, "forward-h100-chapter-2-timed: chapter-2/run"));
    ck_assert_ptr_null(strstr(text, "forward-h100-chapter-1-timed: chapter-1/run"));
    ck_assert_str_eq(file_text("results/compare.json"), before);
}
END_TEST

// A chapter that fails is named with the mend, costs no other chapter, and makes the status 1.
START_TEST(a_failure_is_told) {
    char arguments[1200], command[2500], *text;
    enter_folder();
    snprintf(command, sizeof command, "mkdir partly && ln -s %s/chapter-1 %s/chapter-2 partly",
             variant(), variant());
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(script("common/plot/compare.py",
                            "partly 1,2,3 --batch 1 --heads 1 --seqlen 64 --head-dim 64 --sms 2",
                            &text),
                     1);
    ck_assert_ptr_nonnull(strstr(text, "chapter 3 is not built: make chapter-3"));
    ck_assert_ptr_nonnull(strstr(text, "2 two-pass"));
    snprintf(arguments, sizeof arguments, "%s 1 --head-dim 65", variant());
    ck_assert_int_eq(script("common/plot/compare.py", arguments, &text), 1);
    ck_assert_ptr_nonnull(strstr(text, "--head-dim 65: give a multiple of 8"));
    ck_assert_ptr_nonnull(strstr(text, "again: "));
}
END_TEST

// An exponential for each score, 16 a cycle; 2 · 2 · head_dim FLOP for it, 4096 a cycle: the ratio is
// 64 / head_dim. Rescaling, 1/l and lse add a little.
START_TEST(feeds_show_the_exponentials) {
    char arguments[1200], *text;
    enter_folder();
    snprintf(arguments, sizeof arguments, "5 64,128=%s", variant());
    ck_assert_msg(script("common/plot/feeds.py", arguments, &text) == 0, "%s", text);
    Json *json = json_read(file_text("results/feeds.json"));
    int seen = 0;
    for (const Json *row = json_at(json, "rows")->first; row != NULL; row = row->next, seen++) {
        double head_dim = json_number(row, "head_dim");
        double ratio = json_number(row, "exponential_over_tensor_percent");
        ck_assert_msg(ratio >= 6400 / head_dim && ratio < 6400 / head_dim * 1.05, "%s: %g %%",
                      json_text(row, "step"), ratio);
        ck_assert(json_number(row, "tensor_cycles") == 16 * head_dim);
        ck_assert(json_number(row, "shared_cycles") > 0 && json_number(row, "load_cycles") > 0);
    }
    ck_assert_int_eq(seen, 10);
}
END_TEST

START_TEST(ladder_has_a_line_for_each_step) {
    char arguments[1200], *text;
    enter_folder();
    snprintf(arguments, sizeof arguments,
             "%s 1,3,5 --lengths 64,128 --head-dim 128 --batch 1 --heads 1 --sms 2 "
             "--steps naive,cp-async,pingpong",
             variant());
    ck_assert_msg(script("common/plot/ladder.py", arguments, &text) == 0, "%s", text);
    ck_assert_ptr_nonnull(strstr(text, "SMs simulated"));
    ck_assert_ptr_nonnull(strstr(text, "5 pingpong"));
    Json *json = json_read(file_text("results/ladder.json"));
    ck_assert_int_eq(json_count(json, "rows"), 6);
    ck_assert(json_number(json, "rows.5.tflops") > 0);
    ck_assert(json_number(json, "rows.5.seqlen") == 128);
    ck_assert_int_eq(json_count(json, "published"), 0); // the papers' problem is another
}
END_TEST

Suite *suite_compare(void);
Suite *suite_compare(void) {
    Suite *suite = suite_create("chapters: compare");
    TCase *all = tcase_create("compare");
    tcase_set_timeout(all, 180);
    tcase_add_test(all, compare_is_complete_and_resumes);
    tcase_add_test(all, a_failure_is_told);
    tcase_add_test(all, feeds_show_the_exponentials);
    tcase_add_test(all, ladder_has_a_line_for_each_step);
    suite_add_tcase(suite, all);
    return suite;
}
