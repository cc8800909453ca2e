// tests/programs/wgmma_pipeline.cu with one line missing or wrong: each must end in a finding about
// the line that a comment "caught:" there marks, in every order, or in the program's own check
// where the numbers are merely wrong. The two variants without a fault must have no finding. Ten
// seconds.
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "folded.h"

#define SOURCE "tests/programs/wgmma_pipeline.cu"
enum { FAILED_CHECK = 1, FOUND = 99, LINES_MAX = 16, NAME_MAX = 40 };

// What the first finding must say besides its line; "" where that depends on the order.
static const struct {
    const char *name;
    int status;
    const char *words;
} sabotages[] = {
    {"NO_WAIT", FOUND, "nothing puts the two in order"},
    {"WRONG_PARITY", FOUND, ""},
    {"EXPECT_TOO_FEW", FOUND, "a bulk copy writes: nothing puts the two in order"},
    {"EXPECT_TOO_MANY", FOUND, "it expects 24704 bytes, and 24576 have come"},
    {"ARRIVALS_TOO_MANY", FOUND, "1 of 5 arrivals are missing"},
    {"ARRIVALS_TOO_FEW", FOUND, ""},
    {"WRONG_LEADING_OFFSET", FAILED_CHECK, "expected"},
    {"WRONG_STRIDE_OFFSET", FAILED_CHECK, "expected"},
    {"WRONG_SWIZZLE", FOUND, "but the tensor copy that wrote shared memory"},
    {"MISALIGNED_STAGE", FOUND, "in the middle of the swizzle's pattern"},
    {"WRONG_BOX", FOUND, "but the tensor copy that wrote shared memory"},
    {"UNSWIZZLED_BOX", FOUND, "but the tensor copy that wrote shared memory"},
    {"NO_WGMMA_FENCE", FOUND, "no wgmma.fence"},
    {"NO_WGMMA_COMMIT", FOUND, "no wgmma.commit_group"},
    {"NO_WGMMA_WAIT", FOUND, "a wgmma may still be reading"},
    {"EARLY_RELEASE", FOUND, "a wgmma may still be reading"},
    {"NO_EMPTY_WAIT", FOUND, ""},
    {"NO_INIT", FOUND, "no mbarrier.init has made one"},
    {"NO_INIT_FENCE", FOUND, "no fence.mbarrier_init"},
    {"NO_INIT_SYNC", FOUND, ""},
    {"NO_PROXY_FENCE", FOUND, "no fence.proxy.async"},
    {"NO_STORE_SYNC", FOUND, "nothing puts the two in order"},
    {"NO_STORE_WAIT", FOUND, "before this copy is known to have read"},
    {"PAIR_EXPECTS_HALF", FOUND, ""},
    {"PAIR_RELEASES_ITSELF", FOUND, "nothing puts the two in order"},
    {"PAIR_NO_START_SYNC", FOUND, "before any barrier of the cluster"},
    {"PAIR_NO_END_SYNC", FOUND, "nothing puts that before the end of that block"},
};
enum { SABOTAGES = sizeof sabotages / sizeof *sabotages };
static const char *const right[] = {"RIGHT", "PAIR_RIGHT"};

static const char *const orders[] = {
    "--schedule 0",
    "--schedule 1 --async early",
    "--schedule 2 --async late",
    "--schedule 3 --async random",
};
enum { ORDERS = sizeof orders / sizeof *orders };

static char output[1 << 16];

// Runs a variant, strictly; returns its status.
static int run(const char *variant, const char *order) {
    const char *launcher = getenv("TEST_LAUNCHER"), *programs = getenv("TEST_PROGRAMS");
    ck_assert_msg(launcher != NULL && programs != NULL, "`make test` sets what this needs");
    char command[2048];
    snprintf(command, sizeof command, "%s --strict %s %s/wgmma_pipeline %s 2>&1", launcher, order,
             programs, variant);
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

// Is this word among those of the text?
static bool has_word(const char *text, const char *word) {
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += length) {
        bool begins = at == text || strchr(" (", at[-1]) != NULL;
        if (begins && strchr(" )\n", at[length]) != NULL) return true;
    }
    return false;
}

// The numbers of the lines that the marks name for this sabotage, and how many there are.
static int marked_lines(const char *name, int lines[LINES_MAX]) {
    FILE *source = fopen(SOURCE, "r");
    ck_assert_msg(source != NULL, SOURCE " is not there");
    char text[256];
    int count = 0;
    bool marks = false, named = false;
    for (int line = 1; fgets(text, sizeof text, source); line++) {
        const char *start = text + strspn(text, " ");
        if (strncmp(start, "// caught:", 10) == 0) {
            marks = true;
        } else if (marks && strncmp(start, "//", 2) != 0) {
            ck_assert_int_lt(count, LINES_MAX);
            if (named) lines[count++] = line;
            marks = named = false;
        }
        named |= marks && has_word(start, name);
    }
    fclose(source);
    return count;
}

// Ends the text behind its first finding, if there is one.
static void keep_first_finding(void) {
    char *first = strstr(output, "softgpu: ");
    char *second = first != NULL ? strstr(first, "\nsoftgpu: ") : NULL;
    if (second != NULL) *second = 0;
}

START_TEST(is_caught) {
    const char *name = sabotages[_i / ORDERS].name, *order = orders[_i % ORDERS];
    int lines[LINES_MAX], count = marked_lines(name, lines);
    ck_assert_msg(count > 0, "no line is marked for %s", name);
    int status = run(name, order);
    ck_assert_msg(status == sabotages[_i / ORDERS].status, "%s %s: status %d\n%s", order, name,
                  status, output);
    keep_first_finding();
    ck_assert_msg(says(output, sabotages[_i / ORDERS].words), "%s %s: other words:\n%s", order,
                  name, output);
    bool found = false;
    for (int k = 0; k < count; k++) {
        char place[80];
        size_t length = (size_t)snprintf(place, sizeof place, SOURCE ":%d", lines[k]);
        const char *at = strstr(output, place);
        found |= at != NULL && (at[length] < '0' || at[length] > '9');
    }
    ck_assert_msg(found, "%s %s: no line is one of those marked (%d, …):\n%s", order, name,
                  lines[0], output);
}
END_TEST

START_TEST(is_right) {
    static const char *const async[] = {"timed", "early", "late", "random"};
    char order[64];
    const char *name = right[_i % 2];
    snprintf(order, sizeof order, "--schedule %d --async %s", _i / 8, async[_i / 2 % 4]);
    int status = run(name, order);
    ck_assert_msg(status == 0 && strstr(output, "softgpu") == NULL, "%s %s: status %d\n%s", order,
                  name, status, output);
}
END_TEST

// The program has no sabotage that this file doesn't run.
START_TEST(all_are_listed) {
    FILE *source = fopen(SOURCE, "r");
    ck_assert_msg(source != NULL, SOURCE " is not there");
    char text[256], name[NAME_MAX];
    int listed = 0;
    while (fgets(text, sizeof text, source)) listed += sscanf(text, " X(%39[A-Z_]) ", name) == 1;
    fclose(source);
    ck_assert_int_eq(listed, SABOTAGES + 2);
}
END_TEST

Suite *suite_sabotage(void);
Suite *suite_sabotage(void) {
    Suite *suite = suite_create("softgpu: sabotaged pipelines");
    TCase *tests = tcase_create("sabotage");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, all_are_listed);
    tcase_add_loop_test(tests, is_right, 0, 32);
    tcase_add_loop_test(tests, is_caught, 0, SABOTAGES * ORDERS);
    suite_add_tcase(suite, tests);
    return suite;
}
