// The corpus of tests/seeded_bugs: each bug must be the first finding of its program, with the right
// kind and line, in every order; and without a bug there is none. $TEST_SEEDED lists the programs
// that were built (make test: some, make test-long: all).
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "../seeded_bugs/bugs.h"

static const char *const orders[] = {
    "",
    "SOFTGPU_SCHEDULE=3 SOFTGPU_ASYNC=random",
    "SOFTGPU_SCHEDULE=5 SOFTGPU_ASYNC=late",
    "SOFTGPU_SCHEDULE=2 SOFTGPU_ASYNC=early",
};
enum { ORDERS = sizeof orders / sizeof *orders, FAILED_DEVICE = 3, FOUND = 99 };

static char output[1 << 16];

static bool is_built(const char *unit) {
    const char *built = getenv("TEST_SEEDED");
    ck_assert_msg(built != NULL, "`make test` sets what this needs");
    size_t length = strlen(unit);
    for (const char *at = built; (at = strstr(at, unit)) != NULL; at += length)
        if (at[length] == ' ' || at[length] == 0) return true;
    return false;
}

// Orders in which each bug is tried: one of them, or all (make test-long).
static bool is_tried(int bug, int order) {
    return getenv("TEST_SCHEDULES") != NULL || order == bug % ORDERS;
}

// Runs a unit's program with a bug (0: none); returns its status.
static int run(const SeededUnit *unit, int bug, const char *order) {
    const char *launcher = getenv("TEST_LAUNCHER"), *programs = getenv("TEST_PROGRAMS");
    ck_assert_msg(launcher != NULL && programs != NULL, "`make test` sets what this needs");
    char program[1024], command[4096];
    snprintf(program, sizeof program, "%s/../seeded/%s/run", programs, unit->name);
    // What ./run passes on comes too late here: the choice of the bug has begun with the device.
    snprintf(command, sizeof command, "env SEEDED_BUG=%d SOFTGPU_STRICT=1 %s %s ", bug,
             unit->environment, order);
    size_t length = strlen(command);
    if (unit->arguments[0])
        snprintf(command + length, sizeof command - length,
                 "%s --device softgpu --check-only --csv %s.csv --heads 2 --kv-heads 2 "
                 "--seqlen 512 --head-dim 64 %s 2>&1",
                 program, program, unit->arguments);
    else
        snprintf(command + length, sizeof command - length, "%s %s 2>&1", launcher, program);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t n = fread(output, 1, sizeof output - 1, pipe);
    output[n] = 0;
    while (fgetc(pipe) != EOF) {
    }
    int status = pclose(pipe);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static const SeededUnit *unit_of(const SeededBug *bug) {
    for (int k = 0; k < UNITS; k++)
        if (!strcmp(units[k].name, bug->unit)) return &units[k];
    ck_abort_msg("no unit %s", bug->unit);
}

// The first finding in the output: from its first line to the next one. NULL: none.
static const char *keep_first_finding(void) {
    char *first = strstr(output, "softgpu: ");
    char *second = first != NULL ? strstr(first, "\nsoftgpu: ") : NULL;
    if (second != NULL) *second = 0;
    return first;
}

static bool has_kind(const SeededBug *bug, const char *finding) {
    finding += strlen("softgpu: ");
    for (int k = 0; k < KINDS_MAX && bug->kinds[k] != NULL; k++)
        if (!strncmp(finding, bug->kinds[k], strlen(bug->kinds[k]))) return true;
    return false;
}

// The number of the line that holds a text: the first one, or the n-th ("text#n").
static int line_of(const char *path, const char *wanted) {
    char text[1000], plain[200];
    snprintf(plain, sizeof plain, "%s", wanted);
    char *mark = strrchr(plain, '#');
    int left = mark != NULL ? atoi(mark + 1) : 1, found = 0;
    if (mark != NULL) *mark = 0;
    FILE *source = fopen(path, "r");
    ck_assert_msg(source != NULL, "%s is not there", path);
    for (int line = 1; found == 0 && fgets(text, sizeof text, source); line++)
        if (strstr(text, plain) != NULL && --left == 0) found = line;
    fclose(source);
    ck_assert_msg(found, "no line of %s is '%s'", path, wanted);
    return found;
}

// Does the finding name one of the bug's lines?
static bool has_place(const SeededBug *bug, const char *finding) {
    const char *path = seeded_path(bug->unit, bug->where);
    bool found = false;
    for (int k = 0; k < PLACES_MAX && bug->at[k] != NULL; k++) {
        char place[240];
        int line = line_of(path, bug->at[k]);
        size_t length = (size_t)snprintf(place, sizeof place, "%s:%d", path, line);
        for (const char *at = finding; (at = strstr(at, place)) != NULL; at += length)
            found |= at[length] < '0' || at[length] > '9';
    }
    return found;
}

START_TEST(bug_is_found) {
    const SeededBug *bug = &bugs[_i];
    const SeededUnit *unit = unit_of(bug);
    if (!is_built(bug->unit)) return;
    for (int order = 0; order < ORDERS; order++) {
        if (!is_tried(_i, order)) continue;
        int status = run(unit, _i + 1, orders[order]);
        int expected = unit->arguments[0] ? FAILED_DEVICE : FOUND;
        ck_assert_msg(status == expected, "bug %d (%s), %s: status %d\n%s", _i + 1, bug->line,
                      orders[order], status, output);
        const char *finding = keep_first_finding();
        ck_assert_msg(finding && has_kind(bug, finding), "bug %d (%s), %s: another kind:\n%s",
                      _i + 1, bug->line, orders[order], output);
        ck_assert_msg(has_place(bug, finding), "bug %d (%s), %s: another line:\n%s", _i + 1,
                      bug->line, orders[order], output);
    }
}
END_TEST

START_TEST(without_bug) {
    const SeededUnit *unit = &units[_i];
    if (!is_built(unit->name)) return;
    for (int order = 0; order < ORDERS; order++) {
        int status = run(unit, 0, orders[order]);
        ck_assert_msg(status == 0 && strstr(output, "softgpu: ") == NULL, "%s, %s: status %d\n%s",
                      unit->name, orders[order], status, output);
    }
}
END_TEST

START_TEST(some_are_built) {
    int built = 0;
    for (int k = 0; k < UNITS; k++) built += is_built(units[k].name);
    ck_assert_int_gt(built, 0);
}
END_TEST

Suite *suite_seeded_bugs(void);
Suite *suite_seeded_bugs(void) {
    Suite *suite = suite_create("softgpu: seeded bugs");
    TCase *tests = tcase_create("seeded bugs");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, some_are_built);
    tcase_add_loop_test(tests, without_bug, 0, UNITS);
    tcase_add_loop_test(tests, bug_is_found, 0, BUGS);
    suite_add_tcase(suite, tests);
    return suite;
}
