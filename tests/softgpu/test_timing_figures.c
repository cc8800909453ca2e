// The timing model against published figures of single instructions and units: each row of
// timing_figures.txt is measured by a program of tests/programs/timing, built into $TEST_PROGRAMS
// (default build/tests/cuda) and run by $TEST_LAUNCHER (build/softgpu/softgpu) on its GPU.
#include <check.h>
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define TABLE "tests/softgpu/timing_figures.txt"
enum { FIGURES_MAX = 400, WORD = 48, COLUMNS = 7 };

// A figure on one GPU.
typedef struct {
    char program[WORD], figure[WORD], gpu[8], source[160];
    double value, tolerance; // tolerance in %
    int part;                // see the table
    int line;                // of the table
} Figure;

static Figure figures[FIGURES_MAX];
static int figure_count;
static char table_error[200]; // what is wrong with the table; empty: nothing

static const struct {
    const char *name;
    int sms;
} gpus[] = {{"a100", 108}, {"h100", 132}, {"h200", 132}, {"b200", 148}};
enum { GPUS = sizeof gpus / sizeof *gpus };

static int sms_of(const char *gpu) {
    for (int g = 0; g < GPUS; g++)
        if (!strcmp(gpus[g].name, gpu)) return gpus[g].sms;
    return 0;
}

// ---- the table

static char *trimmed(char *text) {
    while (isspace((unsigned char)*text)) text++;
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1])) text[--length] = 0;
    return text;
}

static void refuse(int line, const char *why) {
    snprintf(table_error, sizeof table_error, TABLE ":%d: %s", line, why);
}

// Adds the figures of a row, one for each of its GPUs. A row without a value has none.
static void add_row(char *text, int line) {
    char *column[COLUMNS];
    int count = 0;
    for (char *at = text; at && count < COLUMNS; count++) {
        char *bar = strchr(at, '|');
        if (bar && count < COLUMNS - 1) *bar = 0;
        column[count] = trimmed(at);
        at = bar && count < COLUMNS - 1 ? bar + 1 : NULL;
    }
    if (count != COLUMNS) return refuse(line, "a row has seven columns");
    if (!strcmp(column[3], "-")) return;
    Figure f = {.line = line};
    char *end;
    f.value = strtod(column[3], &end);
    if (*end || !(f.value > 0)) return refuse(line, "no value");
    f.tolerance = strtod(column[4], &end);
    if (*end || !(f.tolerance >= 0 && f.tolerance <= 10)) return refuse(line, "no tolerance");
    f.part = atoi(column[5]);
    if (f.part != 0 && f.part != 1 && f.part != 4) return refuse(line, "no part");
    if (!*column[6]) return refuse(line, "a value without a source");
    snprintf(f.program, sizeof f.program, "%s", column[0]);
    snprintf(f.figure, sizeof f.figure, "%s", column[1]);
    snprintf(f.source, sizeof f.source, "%s", column[6]);
    for (char *gpu = strtok(column[2], " "); gpu; gpu = strtok(NULL, " ")) {
        if (!sms_of(gpu)) return refuse(line, "no such GPU");
        if (figure_count == FIGURES_MAX) return refuse(line, "more rows than FIGURES_MAX");
        snprintf(f.gpu, sizeof f.gpu, "%s", gpu);
        figures[figure_count++] = f;
    }
}

static void read_table(void) {
    FILE *file = fopen(TABLE, "r");
    if (!file) return refuse(0, "is not there");
    char text[400];
    for (int line = 1; fgets(text, sizeof text, file); line++) {
        char *row = trimmed(text);
        if (*row && *row != '#') add_row(row, line);
    }
    fclose(file);
}

// ---- a program's answer

static char output[1 << 12];

// Runs a program for one figure; returns what it printed, a number.
static double measured(const Figure *f) {
    const char *launcher = getenv("TEST_LAUNCHER"), *programs = getenv("TEST_PROGRAMS");
    char options[40] = "", command[1024], name[WORD];
    if (f->part != 1) snprintf(options, sizeof options, "--sms %d", sms_of(f->gpu) / 4);
    snprintf(command, sizeof command, "%s --check none --gpu %s %s %s/timing/%s %s 2>&1",
             launcher ? launcher : "build/softgpu/softgpu", f->gpu, options,
             programs ? programs : "build/tests/cuda", f->program, f->figure);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t length = fread(output, 1, sizeof output - 1, pipe);
    output[length] = 0;
    int status = pclose(pipe);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s\nended with status %d:\n%s",
                  command, WEXITSTATUS(status), output);
    double value;
    ck_assert_msg(sscanf(output, "%47s %lf", name, &value) == 2 && !strcmp(name, f->figure),
                  "%s\nprinted something else:\n%s", command, output);
    return f->part == 4 ? 4 * value : value;
}

START_TEST(figure_comes_back) {
    const Figure *f = &figures[_i];
    double value = measured(f), bound = f->value * f->tolerance / 100 + 1e-9;
    ck_assert_msg(fabs(value - f->value) <= bound,
                  "%s on %s: %g; published %g ± %g %% (%s; " TABLE ":%d)", f->figure, f->gpu, value,
                  f->value, f->tolerance, f->source, f->line);
}
END_TEST

// The table can be read, and nothing that it should have is missing.
START_TEST(table_is_whole) {
    ck_assert_msg(!*table_error, "%s", table_error);
    ck_assert_int_gt(figure_count, 100);
    for (int g = 0; g < GPUS; g++) {
        int rows = 0;
        for (int k = 0; k < figure_count; k++) rows += !strcmp(figures[k].gpu, gpus[g].name);
        ck_assert_msg(rows > 20, "%s has only %d rows", gpus[g].name, rows);
    }
}
END_TEST

Suite *suite_timing_figures(void);
Suite *suite_timing_figures(void) {
    Suite *suite = suite_create("softgpu: published figures of instructions and units");
    TCase *tests = tcase_create("timing figures");
    read_table();
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, table_is_whole);
    tcase_add_loop_test(tests, figure_comes_back, 0, figure_count);
    suite_add_tcase(suite, tests);
    return suite;
}
