// What a chapter must show: real input, the course's ordinary problem in time, the savings in HBM
// traffic, the same numbers every time. About a minute and a half in all on two cores.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

// Q, K and V of a real transformer: layer 0 has outlier channels, layer 5 hasn't.
START_TEST(real_input) {
    const int chapter = _i / 2 + 1;
    if (_i % 2 != chapter % 2 && in_full(0, 1)) return; // one layer for each chapter
    enter_folder();
    Outcome o = run_chapter(
        chapter, "--check-only --json - --input %s",
        in_repository(_i % 2 ? "tests/data/minilm_layer5" : "tests/data/minilm_layer0"));
    Json *json = outcome_json(&o, 0);
    ck_assert_int_ge(every_step_is_ok(&o, json), chapter == 1 ? 1 : 3);
    ck_assert(json_number(json, "problem.seqlen_q") == 389);
    ck_assert(json_number(json, "problem.heads") == 12);
    ck_assert(json_number(json, "problem.head_dim") == 32);
    ck_assert(json_number(json, "problem.built_head_dim") == 64);
}
END_TEST

// The errors of chapter 1's kernel are those of the rounding model, to 10%.
static void naive_is_the_model(const Json *json) {
    const Json *naive = step_named(json, "naive");
    static const char *const errors[] = {"errors.o", "errors.lse"};
    for (int t = 0; t < 2; t++) {
        const Json *e = json_at(naive, errors[t]);
        double max = json_number(e, "max"), model_max = json_number(e, "model_max");
        double rms = json_number(e, "rms"), model_rms = json_number(e, "model_rms");
        ck_assert_msg(max >= 0.9 * model_max && max <= 1.1 * model_max, "%s: max %g, model %g",
                      errors[t], max, model_max);
        ck_assert_msg(rms >= 0.9 * model_rms && rms <= 1.1 * model_rms, "%s: rms %g, model %g",
                      errors[t], rms, model_rms);
        ck_assert(model_max > 0 && model_rms > 0);
    }
}

// The promise is 30 s on two cores. What is counted is CPU seconds: other tests run beside, and the
// runner gives softgpu one thread, so alone on a machine a run takes no longer than that.
START_TEST(ordinary_problem_in_time) {
    enter_folder();
    const int chapter = _i / 2 + 1;
    Outcome o = run_chapter(chapter,
                            "--json - --batch 1 --heads 4 --seqlen 1024 --head-dim 64 "
                            "--dtype fp16%s",
                            _i % 2 ? " --causal" : "");
    Json *json = outcome_json(&o, 0);
    ck_assert_int_ge(every_step_is_ok(&o, json), chapter == 1 ? 1 : 3);
    naive_is_the_model(json);
    ck_assert_msg(o.cpu_seconds < 30, "%.1f s of CPU, %.1f s in all", o.cpu_seconds, o.seconds);
    for (const Json *s = json_at(json, "steps")->first; s != NULL; s = s->next) {
        ck_assert(json_number(s, "time_us") > 0);
        ck_assert_str_eq(json_text(s, "time_kind"), "modelled");
        // Where its cycles went: shares that make sense, and add up.
        ck_assert(json_number(s, "cycles") > 1000);
        double waits = 0;
        for (const Json *w = json_at(s, "waits")->first; w != NULL; w = w->next) waits += w->number;
        ck_assert_msg(waits > 0.999 && waits < 1.001, "%s: warps did %g of their cycles",
                      json_text(s, "name"), waits);
        for (const Json *b = json_at(s, "busy")->first; b != NULL; b = b->next)
            ck_assert_msg(b->kind == JSON_NULL || (b->number >= 0 && b->number <= 1.001),
                          "%s: a unit is busy %g of the time", json_text(s, "name"), b->number);
        ck_assert(json_number(s, "busy.issue") > 0);
        ck_assert(json_number(s, "work_cycles.MUFU") > 0);
        double pairs = _i % 2 ? 1024.0 * 1025 / 2 : 1024.0 * 1024;
        ck_assert(json_number(s, "flops") == 4 * 4 * 64 * pairs);
    }
    // The results for people too: a table on stderr, a CSV with a line for each step.
    ck_assert_msg(strstr(o.err, "naive") != NULL, "no table:\n%s", o.err);
    char name[64];
    snprintf(name, sizeof name, "results/chapter-%d.csv", chapter);
    int lines = 0;
    for (const char *c = file_text(name); *c != 0; c++) lines += *c == '\n';
    ck_assert_int_eq(lines, 1 + json_count(json, "steps"));
}
END_TEST

static double traffic(const Json *step) {
    return json_number(step, "hbm_read_bytes") + json_number(step, "hbm_write_bytes");
}

// On a GPU of 8 SMs with its share of the L2: S and P go to HBM and back, unless they never exist.
START_TEST(online_softmax_saves_hbm_traffic) {
    enter_folder();
    Outcome o = run_chapter(3, "--json - --batch 2 --heads 8 --seqlen 1024 --head-dim 64 --sms 8");
    Json *json = outcome_json(&o, 0);
    ck_assert_int_ge(every_step_is_ok(&o, json), 4);
    const Json *naive = step_named(json, "naive"), *once = step_named(json, "normalise-once");
    ck_assert_msg(traffic(naive) >= 8 * traffic(once), "%g and %g bytes", traffic(naive),
                  traffic(once));
    // Q, K, V are read and O written at least once; S and P are 2 · 16 · 1024² · 2 bytes.
    ck_assert(json_number(once, "hbm_read_bytes") >= 3 * 2.0 * 16 * 1024 * 64);
    ck_assert(json_number(naive, "workspace_bytes") == 2 * 2.0 * 16 * 1024 * 1024);
    ck_assert(json_number(once, "workspace_bytes") == 0);
    ck_assert_msg(strstr(o.err, "workspace") != NULL && strstr(o.err, "67.1 MB") != NULL,
                  "no workspace in the table:\n%s", o.err);
}
END_TEST

// A wrong step that is known to be wrong: measurably so, and it changes no status.
START_TEST(exhibit_fails_and_does_not_count) {
    enter_folder();
    Outcome o = run_chapter(2, "--check-only --json - --steps naive,first-attempt --seqlen 300 "
                               "--heads 2");
    Json *json = outcome_json(&o, 0);
    const Json *exhibit = step_named(json, "first-attempt");
    ck_assert(json_bool(exhibit, "exhibit") && !json_bool(exhibit, "ok"));
    ck_assert(json_number(exhibit, "errors.o.max") > 10 * json_number(exhibit, "errors.o.limit"));
    ck_assert(json_number(exhibit, "errors.o.wrong") > 100);
    ck_assert(json_count(exhibit, "findings") == 0 && json_is_null(exhibit, "device_error"));
    ck_assert(json_bool(step_named(json, "naive"), "ok"));
    // All steps are everything but exhibits.
    o = run_chapter(2, "--check-only --json - --steps all --seqlen 65 --heads 1");
    json = outcome_json(&o, 0);
    ck_assert_int_eq(every_step_is_ok(&o, json), 3);
    for (const Json *s = json_at(json, "steps")->first; s != NULL; s = s->next)
        ck_assert(!json_bool(s, "exhibit"));
}
END_TEST

// The same run twice, and with one host thread and with two: the same JSON.
START_TEST(runs_repeat) {
    char difference[200];
    enter_folder();
    const int chapter = _i + 1;
    static const char *const threads[] = {"", " --threads 1", " --threads 2"};
    Json *first = NULL;
    for (int t = 0; t < 3; t++) {
        Outcome o = run_chapter(chapter,
                                "--json - --batch 2 --heads 4 --kv-heads 2 --seqlen 150 "
                                "--schedule 3%s%s",
                                chapter == 1 ? " --backward" : "", threads[t]);
        Json *json = outcome_json(&o, 0);
        every_step_is_ok(&o, json);
        if (first == NULL) first = json;
        ck_assert_msg(json_same(first, json, difference, sizeof difference), "%s: %s", o.command,
                      difference);
    }
}
END_TEST

// A step's modelled time is its own: the same alone and behind other steps. In small problems it is
// the buffers' places in memory that could show (two-pass), and the clock that stands at 0 when the
// first kernel begins (lpt).
static const struct {
    int chapter;
    const char *before, *step, *problem;
} in_line[] = {{3, "mma-sync,swizzled", "cp-async", "--batch 2 --heads 8 --seqlen 1024 --sms 4"},
               {5, "pingpong", "intra-warpgroup", "--batch 2 --heads 8 --seqlen 1024 --sms 4"},
               {3, "naive", "two-pass", "--heads 3 --seqlen 133 --sms 2"},
               {7, "naive", "lpt", "--heads 2 --seqlen 133 --sms 2 --causal"}};

START_TEST(steps_before_change_no_time) {
    const int chapter = in_line[_i].chapter;
    const char *before = in_line[_i].before, *step = in_line[_i].step;
    const char *problem = in_line[_i].problem;
    enter_folder();
    Outcome o = run_chapter(chapter, "--json - --check none %s --steps %s", problem, step);
    const Json *alone = step_named(outcome_json(&o, 0), step);
    o = run_chapter(chapter, "--json - --check none %s --steps %s,%s", problem, before, step);
    const Json *behind = step_named(outcome_json(&o, 0), step);
    static const char *const names[] = {"cycles", "time_us", "hbm_read_bytes", "hbm_write_bytes"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double first = json_number(alone, names[i]), second = json_number(behind, names[i]);
        ck_assert_msg(first == second, "%s: %s is %.10g alone and %.10g behind %s", step, names[i],
                      first, second, before);
    }
    ck_assert_double_gt(cycles_of(outcome_json(&o, 0), step), 0);
}
END_TEST

// The default run: a check problem, and a timing problem whose outputs are sampled.
START_TEST(default_run_has_two_problems) {
    enter_folder();
    Outcome o = run_chapter(_i + 1, "--json -");
    Json *json = outcome_json(&o, 0);
    every_step_is_ok(&o, json);
    ck_assert(json_number(json, "problem.seqlen_q") < json_number(json, "timed_problem.seqlen_q"));
    ck_assert(json_number(json, "problem.sample") == 0);
    ck_assert(json_number(json, "timed_problem.sample") > 0);
    for (const Json *s = json_at(json, "steps")->first; s != NULL; s = s->next)
        ck_assert(json_number(s, "time_us") > 0);
}
END_TEST

// A sweep runs each value; each run has its own problem.
START_TEST(sweep) {
    enter_folder();
    Outcome o = run_chapter(3, "--json - --check-only --heads 1 --sweep seqlen=31,64,97");
    Json *json = outcome_json(&o, 0);
    static const int lengths[] = {31, 64, 97};
    ck_assert_int_eq(json_count(json, "runs"), 3);
    char path[32];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "runs.%d", i);
        const Json *run = json_at(json, path);
        ck_assert(json_number(run, "problem.seqlen_q") == lengths[i]);
        ck_assert_int_ge(every_step_is_ok(&o, run), 4);
    }
}
END_TEST

Suite *suite_runs(void) {
    Suite *suite = suite_create("chapters: what they must show");
    TCase *tests = tcase_create("runs");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, real_input, 0, 6);
    tcase_add_loop_test(tests, ordinary_problem_in_time, 0, 6);
    tcase_add_test(tests, online_softmax_saves_hbm_traffic);
    tcase_add_test(tests, exhibit_fails_and_does_not_count);
    tcase_add_loop_test(tests, runs_repeat, 0, 3);
    tcase_add_loop_test(tests, steps_before_change_no_time, 0, sizeof in_line / sizeof in_line[0]);
    tcase_add_loop_test(tests, default_run_has_two_problems, 0, 3);
    tcase_add_test(tests, sweep);
    suite_add_tcase(suite, tests);
    return suite;
}
