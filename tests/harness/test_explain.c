// --explain and the JSON beside it: shares of the timing model, and "n/a" or null without it.
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/report.h"
#include "softgpu/machine/code.h"
#include "softgpu/timing/activity.h"

static const Step first = {.name = "naive", .chapter = 1},
                  second = {.name = "pingpong", .chapter = 5};
static const Chapter test_chapter = {.number = 5, .title = "test"};
static const SoftgpuInterface interface; // never called: it is enough that softgpu is there
static Device device;
static Options options;
static Run run;

// A run of two steps: the first timed by the roofline alone, the second by the model.
static void make_run(void) {
    device = (Device){.softgpu = &interface,
                      .name = "h100",
                      .full_name = "a modelled GPU",
                      .clock_ghz = 1.56,
                      .sms = 132};
    options = (Options){.explain = true};
    run = (Run){.chapter = &test_chapter,
                .options = &options,
                .device = &device,
                .time_kind = "modelled",
                .same = true,
                .count = 2};
    run.results[0] =
        (StepResult){.step = &first, .number = 1, .ok = 1, .time_us = 10, .has_stats = true};
    run.results[1] = run.results[0];
    run.results[1].step = &second;
    SoftgpuStats *roofline = &run.results[0].stats, *model = &run.results[1].stats;
    roofline->busy[PIPE_ALU] = 0.83;
    roofline->busy[PIPE_CONVERT] = 0.46;
    model->busy[PIPE_ALU] = 0.99; // the model's share is told, not this
    model->cycles = 123456;
    model->unit_busy[UNIT_ALU] = 0.31;
    model->unit_busy[UNIT_XU] = 0.57;
    model->unit_busy[UNIT_TMA] = 0.02;
    model->tensor_busy = 0.73;
    model->shared_busy = 0.61;
    model->hbm_busy = 0.05;
    model->stall[STALL_BARRIER] = 0.11;
    model->stall[STALL_MBARRIER] = 0.07;
    model->stall[STALL_WGMMA] = 0.22;
    model->stall[STALL_DEPENDENCY] = 0.13;
    model->pipe_cycles[PIPE_TENSOR] = 4096;
    model->pipe_cycles[PIPE_MUFU] = 2048;
    model->shared_cycles = 3000;
    model->load_cycles = 500;
}

static char *printed(void (*print)(FILE *, const Run *)) {
    static char *text; // of the stream's, not of this call's
    static size_t size;
    FILE *stream = open_memstream(&text, &size);
    print(stream, &run);
    fclose(stream);
    return text;
}

// The words of the line that begins with `name`, after it, in one string with single spaces.
static void words_of(const char *text, const char *table, const char *name, char *words) {
    const char *line = strstr(text, table);
    ck_assert_msg(line != NULL, "no %s in:\n%s", table, text);
    line = strstr(line, name);
    ck_assert_msg(line != NULL, "no line of %s in:\n%s", name, text);
    line += strlen(name);
    size_t length = 0;
    for (; *line != '\n' && *line != 0; line++) {
        if (*line != ' ')
            words[length++] = *line;
        else if (length > 0 && words[length - 1] != ' ')
            words[length++] = ' ';
    }
    words[length] = 0;
}

START_TEST(shares_are_the_models) {
    make_run();
    ck_assert(!model_timed(&run.results[0]));
    ck_assert(model_timed(&run.results[1]));
    const StepResult *r = &run.results[1];
    for (int u = 0; u < BUSY_UNITS; u++) {
        const char *name = busy_unit_name(u);
        double share = busy_share(r, u);
        if (strcmp(name, "ALU") == 0) ck_assert_double_eq(share, 0.31);
        if (strcmp(name, "MUFU") == 0) ck_assert_double_eq(share, 0.57);
        if (strcmp(name, "tensor") == 0) ck_assert_double_eq(share, 0.73);
        if (strcmp(name, "conversion") == 0) ck_assert(isnan(share)); // MUFU's unit has it
    }
    ck_assert_double_eq_tol(issue_share(r), 1 - 0.11 - 0.07 - 0.22 - 0.13, 1e-12);
    ck_assert(isnan(issue_share(&run.results[0])) && isnan(wait_share(&run.results[0], 0)));
    ck_assert(busy_known(&run.results[0]) && busy_known(r));
}
END_TEST

START_TEST(explanation_prints_both_tables) {
    char words[256];
    make_run();
    char *text = printed(print_explanation);
    ck_assert_ptr_nonnull(strstr(text, "modelled for a modelled GPU at 1.56 GHz"));
    words_of(text, "units busy, % of the cycles", "5 pingpong", words);
    ck_assert_str_eq(words, "123456 73 57 0 31 0 0 61 2 0 5");
    words_of(text, "warps, % of their cycles", "5 pingpong", words);
    ck_assert_str_eq(words, "47 11 7 22 0 0 13 0 0");
    // What the model did not time is not told from the roofline.
    words_of(text, "units busy, % of the cycles", "1 naive", words);
    ck_assert_str_eq(words, "n/a n/a n/a n/a n/a n/a n/a n/a n/a n/a n/a");
    words_of(text, "warps, % of their cycles", "1 naive", words);
    ck_assert_str_eq(words, "n/a n/a n/a n/a n/a n/a n/a n/a n/a");
    ck_assert_ptr_nonnull(strstr(text, "n/a: not timed by softgpu's timing model"));
    free(text);
    run.results[0].stats.cycles = 2.5e6;
    text = printed(print_explanation);
    words_of(text, "units busy, % of the cycles", "1 naive", words);
    ck_assert_str_eq(words, "2.50 M 0 0 0 0 0 0 0 0 0 0");
    ck_assert_ptr_null(strstr(text, "n/a"));
    free(text);
}
END_TEST

// A person's table has it only when asked.
START_TEST(table_explains_when_asked) {
    make_run();
    char *text = printed(print_table);
    ck_assert_ptr_nonnull(strstr(text, "where the time went"));
    free(text);
    options.explain = false;
    text = printed(print_table);
    ck_assert_ptr_null(strstr(text, "where the time went"));
    free(text);
}
END_TEST

START_TEST(json_tells_cycles_and_waits) {
    make_run();
    char *text = printed(write_json), *pingpong = strstr(text, "\"name\": \"pingpong\"");
    ck_assert_ptr_nonnull(pingpong);
    char *naive = strndup(text, (size_t)(pingpong - text));
    ck_assert_ptr_nonnull(strstr(naive, "\"cycles\": null, \"waits\": null, \"work_cycles\": {"));
    ck_assert_ptr_nonnull(strstr(naive, "\"ALU\": 0.83"));
    ck_assert_ptr_nonnull(strstr(naive, "\"conversion\": 0.46"));
    ck_assert_ptr_nonnull(strstr(pingpong,
                                 "\"cycles\": 123456, \"waits\": {\"issue\": 0.47, "
                                 "\"barrier\": 0.11, \"mbarrier\": 0.07, \"wgmma\": 0.22, "
                                 "\"memory\": 0, \"copy\": 0, \"dependency\": 0.13, "
                                 "\"pipe full\": 0, \"other\": 0}"));
    ck_assert_ptr_nonnull(strstr(pingpong, "\"work_cycles\": {\"tensor\": 4096, \"MUFU\": 2048, "
                                           "\"FMA\": 0, \"ALU\": 0, \"shared\": 3000, "
                                           "\"load\": 500}"));
    ck_assert_ptr_nonnull(strstr(pingpong, "\"conversion\": null"));
    free(naive);
    free(text);
    // On a GPU nothing of this is known.
    run.results[1].has_stats = false;
    text = printed(write_json);
    pingpong = strstr(text, "\"name\": \"pingpong\"");
    ck_assert_ptr_nonnull(strstr(
        pingpong, "\"busy\": null, \"cycles\": null, \"waits\": null, \"work_cycles\": null"));
    free(text);
}
END_TEST

Suite *suite_explain(void);
Suite *suite_explain(void) {
    Suite *suite = suite_create("harness: explain");
    TCase *all = tcase_create("explain");
    tcase_add_test(all, shares_are_the_models);
    tcase_add_test(all, explanation_prints_both_tables);
    tcase_add_test(all, table_explains_when_asked);
    tcase_add_test(all, json_tells_cycles_and_waits);
    suite_add_tcase(suite, all);
    return suite;
}
