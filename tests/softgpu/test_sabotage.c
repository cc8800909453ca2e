// tests/programs/wgmma_pipeline.cu, tcgen05_gemm.cu and tcgen05_pair.cu with one line missing or
// wrong: each must end in a finding about the line that a comment "caught:" there marks, in every
// order, or in the program's own check where the numbers are merely wrong. The variants without a
// fault must have no finding. Thirty seconds.
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "folded.h"

enum { FAILED_CHECK = 1, FOUND = 99, LINES_MAX = 16, NAME_MAX = 40 };

#define SOURCES "tests/programs/"
static const char wgmma[] = "wgmma_pipeline", tcgen05[] = "tcgen05_gemm", pair[] = "tcgen05_pair",
                  attention[] = "tcgen05_attention";

// What the first finding must say besides its line; "" where that depends on the order.
static const struct {
    const char *program, *name;
    int status;
    const char *words;
} sabotages[] = {
    {wgmma, "NO_WAIT", FOUND, "nothing puts the two in order"},
    {wgmma, "WRONG_PARITY", FOUND, ""},
    {wgmma, "EXPECT_TOO_FEW", FOUND, "a bulk copy writes: nothing puts the two in order"},
    {wgmma, "EXPECT_TOO_MANY", FOUND, "it expects 24704 bytes, and 24576 have come"},
    {wgmma, "ARRIVALS_TOO_MANY", FOUND, "1 of 5 arrivals are missing"},
    {wgmma, "ARRIVALS_TOO_FEW", FOUND, ""},
    {wgmma, "WRONG_LEADING_OFFSET", FAILED_CHECK, "expected"},
    {wgmma, "WRONG_STRIDE_OFFSET", FAILED_CHECK, "expected"},
    {wgmma, "WRONG_SWIZZLE", FOUND, "but the tensor copy that wrote shared memory"},
    {wgmma, "MISALIGNED_STAGE", FOUND, "in the middle of the swizzle's pattern"},
    {wgmma, "WRONG_BOX", FOUND, "but the tensor copy that wrote shared memory"},
    {wgmma, "UNSWIZZLED_BOX", FOUND, "but the tensor copy that wrote shared memory"},
    {wgmma, "NO_WGMMA_FENCE", FOUND, "no wgmma.fence"},
    {wgmma, "NO_WGMMA_COMMIT", FOUND, "no wgmma.commit_group"},
    {wgmma, "NO_WGMMA_WAIT", FOUND, "a wgmma may still be reading"},
    {wgmma, "EARLY_RELEASE", FOUND, "a wgmma may still be reading"},
    {wgmma, "NO_EMPTY_WAIT", FOUND, ""},
    {wgmma, "NO_INIT", FOUND, "no mbarrier.init has made one"},
    {wgmma, "NO_INIT_FENCE", FOUND, "no fence.mbarrier_init"},
    {wgmma, "NO_INIT_SYNC", FOUND, ""},
    {wgmma, "NO_PROXY_FENCE", FOUND, "no fence.proxy.async"},
    {wgmma, "NO_STORE_SYNC", FOUND, "nothing puts the two in order"},
    {wgmma, "NO_STORE_WAIT", FOUND, "before this copy is known to have read"},
    {wgmma, "PAIR_EXPECTS_HALF", FOUND, ""},
    {wgmma, "PAIR_RELEASES_ITSELF", FOUND, "nothing puts the two in order"},
    {wgmma, "PAIR_NO_START_SYNC", FOUND, "before any barrier of the cluster"},
    {wgmma, "PAIR_NO_END_SYNC", FOUND, "nothing puts that before the end of that block"},
    {tcgen05, "NO_ALLOC_SYNC", FOUND, ""},
    {tcgen05, "NO_FREE", FOUND, "has not freed 128 columns"},
    {tcgen05, "EARLY_FREE", FOUND, "frees tensor memory"},
    {tcgen05, "ALLOC_TOO_FEW", FOUND, "which the block has not allocated"},
    {tcgen05, "NO_FULL_WAIT", FOUND, ""},
    {tcgen05, "EARLY_RELEASE", FOUND, "nothing puts the two in order"},
    {tcgen05, "FIRST_ACCUMULATES", FOUND, "adds to D in tensor memory"},
    {tcgen05, "RESULT_UNCOMMITTED", FOUND, ""},
    {tcgen05, "NO_RESULT_WAIT", FOUND, ""},
    {tcgen05, "NO_FENCE_AFTER", FOUND, "not with the tcgen05 fences around it"},
    {tcgen05, "NO_LOAD_WAIT", FOUND, "no tcgen05.wait::ld has covered it"},
    {tcgen05, "NO_FENCE_BEFORE", FOUND, "not with the tcgen05 fences around it"},
    {tcgen05, "NO_READ_WAIT", FOUND, "nothing puts the two in order"},
    {tcgen05, "OTHERS_QUARTER", FOUND, "reaches lanes"},
    {tcgen05, "HOPPER_DESCRIPTOR", FOUND, "bits 46-48 are not 0b001"},
    {tcgen05, "WRONG_SWIZZLE", FOUND, "for MN-major operands only"},
    {tcgen05, "WRONG_STRIDE", FAILED_CHECK, "expected"},
    {tcgen05, "WRONG_STEP", FAILED_CHECK, "expected"},
    {tcgen05, "WRONG_M", FOUND, "which nothing has written"},
    {tcgen05, "WRONG_N", FOUND, "which nothing has written"},
    {tcgen05, "WRONG_TYPE", FAILED_CHECK, "expected"},
    {tcgen05, "WRONG_MAJOR", FAILED_CHECK, "expected"},
    {tcgen05, "TWO_ISSUERS", FOUND, ""},
    {pair, "EXPECTS_HALF", FOUND, ""},
    {pair, "FREES_ITSELF", FOUND, "1 of 1 arrivals are missing"},
    {pair, "TELLS_ITSELF", FOUND, ""},
    {pair, "BOTH_ISSUE", FOUND, ""},
    {pair, "SAME_HALF", FAILED_CHECK, "expected"},
    {pair, "OWN_READERS", FOUND, "nothing puts the two in order"},
    {pair, "NO_START_SYNC", FOUND, "without knowing that the other one has started"},
    {pair, "NO_END_SYNC", FOUND, "nothing puts that before the end of that block"},
    {pair, "NO_FENCE_BEFORE", FOUND, "not with the tcgen05 fences around it"},
    {pair, "WRONG_M", FOUND, "which nothing has written"},
};
enum { SABOTAGES = sizeof sabotages / sizeof *sabotages };
static const struct {
    const char *program, *name;
} right[] = {{wgmma, "RIGHT"},
             {wgmma, "PAIR_RIGHT"},
             {tcgen05, "RIGHT"},
             {pair, "RIGHT"},
             {attention, "RIGHT"}};
enum { RIGHT = sizeof right / sizeof *right };

static const char *const orders[] = {
    "--schedule 0",
    "--schedule 1 --async early",
    "--schedule 2 --async late",
    "--schedule 3 --async random",
};
enum { ORDERS = sizeof orders / sizeof *orders };

static char output[1 << 16];

// Runs a variant, strictly; returns its status.
static int run(const char *program, const char *variant, const char *order) {
    const char *launcher = getenv("TEST_LAUNCHER"), *programs = getenv("TEST_PROGRAMS");
    ck_assert_msg(launcher != NULL && programs != NULL, "`make test` sets what this needs");
    char command[2048];
    snprintf(command, sizeof command, "%s --strict %s %s/%s %s 2>&1", launcher, order, programs,
             program, variant);
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
static int marked_lines(const char *program, const char *name, int lines[LINES_MAX]) {
    char text[256];
    snprintf(text, sizeof text, SOURCES "%s.cu", program);
    FILE *source = fopen(text, "r");
    ck_assert_msg(source != NULL, "%s is not there", text);
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
    const char *program = sabotages[_i / ORDERS].program, *name = sabotages[_i / ORDERS].name;
    const char *order = orders[_i % ORDERS];
    int lines[LINES_MAX], count = marked_lines(program, name, lines);
    ck_assert_msg(count > 0, "no line is marked for %s", name);
    int status = run(program, name, order);
    ck_assert_msg(status == sabotages[_i / ORDERS].status, "%s %s: status %d\n%s", order, name,
                  status, output);
    keep_first_finding();
    ck_assert_msg(says(output, sabotages[_i / ORDERS].words), "%s %s: other words:\n%s", order,
                  name, output);
    bool found = false;
    for (int k = 0; k < count; k++) {
        char place[80];
        size_t length =
            (size_t)snprintf(place, sizeof place, SOURCES "%s.cu:%d", program, lines[k]);
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
    const char *name = right[_i % RIGHT].name;
    snprintf(order, sizeof order, "--schedule %d --async %s", _i / (4 * RIGHT),
             async[_i / RIGHT % 4]);
    int status = run(right[_i % RIGHT].program, name, order);
    ck_assert_msg(status == 0 && strstr(output, "softgpu") == NULL, "%s %s: status %d\n%s", order,
                  name, status, output);
}
END_TEST

// The programs have no sabotage that this file doesn't run.
START_TEST(all_are_listed) {
    const char *const programs[] = {wgmma, tcgen05, pair};
    int listed = 0;
    for (int k = 0; k < 3; k++) {
        char text[256], name[NAME_MAX];
        snprintf(text, sizeof text, SOURCES "%s.cu", programs[k]);
        FILE *source = fopen(text, "r");
        ck_assert_msg(source != NULL, "%s is not there", text);
        while (fgets(text, sizeof text, source))
            listed += sscanf(text, " X(%39[A-Z_]) ", name) == 1;
        fclose(source);
    }
    ck_assert_int_eq(listed, SABOTAGES + RIGHT - 1); // tcgen05_attention has no list
}
END_TEST

Suite *suite_sabotage(void);
Suite *suite_sabotage(void) {
    Suite *suite = suite_create("softgpu: sabotaged pipelines");
    TCase *tests = tcase_create("sabotage");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, all_are_listed);
    tcase_add_loop_test(tests, is_right, 0, 16 * RIGHT);
    tcase_add_loop_test(tests, is_caught, 0, SABOTAGES * ORDERS);
    suite_add_tcase(suite, tests);
    return suite;
}
