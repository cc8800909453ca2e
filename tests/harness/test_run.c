// Running steps, on a runtime that executes on the CPU (fake_runtime.c): what is checked, when, and
// what the exit status becomes.
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_steps.h"
#include "harness/npy.h"
#include "harness/report.h"
#include "harness/run.h"

static const Step *const steps[] = {&fake_naive,     &fake_exhibit,     &fake_wrong_when_timed,
                                    &fake_unwritten, &fake_faults,      &fake_overruns,
                                    &fake_refuses,   &fake_forward_only};
static const Chapter test_chapter = {.number = 2,
                                     .title = "test",
                                     .gpu = "h100",
                                     .min_capability = 80,
                                     .has_backward = true,
                                     .steps = steps,
                                     .step_count = 8,
                                     .check = {1, 2, 1, 65, 63, 64, DTYPE_FP16, false, 0}};
static const int built[] = {64, 0};
static Run run;
static Options options;
static bool chosen[8];

// Runs some steps on the chapter's check problem with these options.
static bool run_line(const char *step_list, bool backward, Message *message) {
    char *argv[] = {"run", "--seed=3", "--causal"};
    fake_steps_reset();
    ck_assert(options_read(3, argv, &test_chapter, &options, message));
    run =
        (Run){.chapter = &test_chapter, .options = &options, .device = &fake_gpu, .chosen = chosen};
    run.backward = backward;
    run.same = true;
    ck_assert(steps_choose(&test_chapter, step_list, false, chosen, message));
    ck_assert(
        problem_make(&options, &test_chapter, &test_chapter.check, built, &run.checked, message));
    run.timed = run.checked;
    return run_steps(&run, message);
}

START_TEST(right_step_passes_and_is_timed) {
    Message message;
    ck_assert(run_line("naive", true, &message));
    ck_assert_int_eq(run.status, 0);
    ck_assert_int_eq(run.count, 2);
    for (int i = 0; i < 2; i++) {
        const StepResult *r = &run.results[i];
        ck_assert_int_eq(r->ok, 1);
        ck_assert_int_eq(r->backward, i);
        ck_assert_double_gt(r->time_us, 0);
        ck_assert_double_eq(r->speedup_over_naive, 1);
        ck_assert(isnan(r->speedup_over_previous));
        ck_assert(isnan(r->hbm_read_bytes));
        ck_assert_double_eq(r->workspace_bytes, 2 * 65 * 63 * 2);
        for (int t = 0; t < TENSOR_COUNT; t++) {
            ck_assert_int_eq(r->tensors[t].measured, (t <= TENSOR_LSE) == (i == 0));
        }
    }
    run_free(&run);
}
END_TEST

START_TEST(right_first_run_wrong_timed_runs) {
    Message message;
    ck_assert(run_line("wrong-when-timed", false, &message));
    ck_assert_int_eq(run.results[0].ok, 0);
    ck_assert_int_eq(run.status, 1);
    run_free(&run);
}
END_TEST

START_TEST(unwritten_row_is_wrong) {
    Message message;
    ck_assert(run_line("unwritten", false, &message));
    ck_assert_int_eq(run.status, 1);
    ck_assert_int_eq(run.results[0].tensors[TENSOR_O].unwritten, 64);
    run_free(&run);
}
END_TEST

START_TEST(guard_bytes_must_stand) {
    Message message;
    ck_assert(run_line("overruns", false, &message));
    ck_assert(run.results[0].overrun);
    ck_assert_int_eq(run.results[0].ok, 0);
    ck_assert_int_eq(run.status, 1);
    run_free(&run);
}
END_TEST

// A device error is status 3, and the next step runs.
START_TEST(device_error_ends_one_step) {
    Message message;
    ck_assert(run_line("faults,forward-only", false, &message));
    ck_assert_int_eq(run.status, 3);
    ck_assert_ptr_nonnull(strstr(run.results[0].error, "cudaErrorIllegalAddress"));
    ck_assert_int_eq(run.results[0].ok, -1);
    ck_assert_int_eq(run.results[1].ok, 1);
    run_free(&run);
}
END_TEST

START_TEST(exhibit_is_wrong_and_never_counts) {
    Message message;
    ck_assert(run_line("naive,first-attempt,forward-only", false, &message));
    ck_assert_int_eq(run.results[1].ok, 0);
    ck_assert_int_eq(run.status, 0);
    // The step after an exhibit compares with the one before it.
    double ratio = run.results[0].time_us / run.results[2].time_us;
    ck_assert_double_eq_tol(run.results[2].speedup_over_previous, ratio, 1e-9);
    run_free(&run);
}
END_TEST

START_TEST(refusals) {
    Message message = {""};
    ck_assert(!run_line("refuses", false, &message));
    ck_assert_str_eq(message.text, "this step can do nothing; use naive");
    ck_assert(run_line("naive,refuses,forward-only", true, &message));
    ck_assert_int_eq(run.status, 0);
    ck_assert_int_eq(run.count, 6);
    ck_assert_ptr_nonnull(strstr(run.results[5].refused, "no backward pass"));
    ck_assert_int_eq(run.results[4].ok, 1);
    run_free(&run);
}
END_TEST

// The JSON has no NaN and balanced brackets, the CSV as many fields as names.
START_TEST(reports_are_well_formed) {
    Message message;
    ck_assert(run_line("naive,unwritten,faults,refuses", true, &message));
    char *text;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    write_json(stream, &run);
    fclose(stream);
    int depth = 0;
    bool quoted = false;
    for (const char *c = text; *c != 0; c++) {
        if (*c == '"' && c[-1] != '\\') quoted = !quoted;
        if (quoted) continue;
        ck_assert(*c != 'N' && *c != 'i'); // NaN, inf
        depth += (*c == '{' || *c == '[') - (*c == '}' || *c == ']');
        ck_assert_int_ge(depth, 0);
    }
    ck_assert_int_eq(depth, 0);
    ck_assert_ptr_nonnull(strstr(text, "\"hbm_read_bytes\": null"));
    free(text);

    stream = open_memstream(&text, &size);
    write_csv_header(stream);
    write_csv(stream, &run);
    fclose(stream);
    int names = 0, lines = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"), lines++) {
        int fields = 1;
        for (const char *c = line; *c != 0; c++) fields += *c == ',';
        if (lines == 0) names = fields;
        ck_assert_int_eq(fields, names);
    }
    ck_assert_int_gt(lines, 3);
    free(text);
    run_free(&run);
}
END_TEST

// The table as it stands when a step has ended: its row, with speedups, and none of the next step's.
static void keep_table(const Run *so_far, int end, void *to) {
    Table *table = to;
    table_rows(table, so_far, end);
    fprintf(table->to, "<%d>\n", end);
}

START_TEST(rows_come_as_steps_end) {
    Message message;
    char *text;
    size_t size;
    Table table = {.to = open_memstream(&text, &size)};
    char *argv[] = {"run", "--seed=3"};
    ck_assert(options_read(2, argv, &test_chapter, &options, &message));
    run =
        (Run){.chapter = &test_chapter, .options = &options, .device = &fake_gpu, .chosen = chosen};
    run.same = true;
    run.show = keep_table;
    run.show_to = &table;
    ck_assert(steps_choose(&test_chapter, "naive,refuses,forward-only", false, chosen, &message));
    ck_assert(
        problem_make(&options, &test_chapter, &test_chapter.check, built, &run.checked, &message));
    run.timed = run.checked;
    ck_assert(run_steps(&run, &message));
    table_end(&table, &run);
    ck_assert_int_eq(fclose(table.to), 0);
    // naive's row, then (a refused step's has no moment of its own) the other two.
    const char *first = strstr(text, "<1>\n"), *second = strstr(text, "<3>\n");
    ck_assert_msg(first != NULL && second != NULL, "%s", text);
    const char *naive = strstr(text, " naive "), *last = strstr(text, " forward-only ");
    ck_assert(naive < first && strstr(naive, "1.00×") < first && first < last && last < second);
    ck_assert_ptr_eq(strstr(first, "  step "), NULL); // one heading
    free(text);
    run_free(&run);
}
END_TEST

START_TEST(saves_the_last_step) {
    char folder[] = "/tmp/test_run_XXXXXX", path[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    Message message;
    char *argv[] = {"run", "--save", folder};
    ck_assert(options_read(3, argv, &test_chapter, &options, &message));
    run =
        (Run){.chapter = &test_chapter, .options = &options, .device = &fake_gpu, .chosen = chosen};
    run.same = true;
    ck_assert(steps_choose(&test_chapter, "forward-only,naive", false, chosen, &message));
    ck_assert(
        problem_make(&options, &test_chapter, &test_chapter.check, built, &run.checked, &message));
    run.timed = run.checked;
    ck_assert(run_steps(&run, &message));
    Npy array;
    snprintf(path, sizeof path, "%s/o.npy", folder);
    ck_assert_msg(npy_read(path, &array, &message), "%s", message.text);
    ck_assert_int_eq(array.type, NPY_FLOAT16);
    ck_assert_int_eq(array.dimensions, 4);
    ck_assert_int_eq(array.shape[1], 65);
    ck_assert_int_eq(array.shape[3], 64);
    free(array.elements);
    unlink(path);
    snprintf(path, sizeof path, "%s/lse.npy", folder);
    ck_assert(npy_read(path, &array, &message));
    ck_assert_int_eq(array.shape[1], 2);
    ck_assert_int_eq(array.shape[2], 65);
    free(array.elements);
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
    run_free(&run);
}
END_TEST

Suite *suite_run(void);
Suite *suite_run(void) {
    Suite *suite = suite_create("harness: run");
    TCase *all = tcase_create("run");
    tcase_add_test(all, right_step_passes_and_is_timed);
    tcase_add_test(all, right_first_run_wrong_timed_runs);
    tcase_add_test(all, unwritten_row_is_wrong);
    tcase_add_test(all, guard_bytes_must_stand);
    tcase_add_test(all, device_error_ends_one_step);
    tcase_add_test(all, exhibit_is_wrong_and_never_counts);
    tcase_add_test(all, refusals);
    tcase_add_test(all, reports_are_well_formed);
    tcase_add_test(all, rows_come_as_steps_end);
    tcase_add_test(all, saves_the_last_step);
    suite_add_tcase(suite, all);
    return suite;
}
