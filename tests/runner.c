// Runs the suites that the Makefile names (-DSUITES='X(memory) X(atomic)'); each test file defines
// `Suite *suite_NAME(void)`. With arguments, only the suites named. Closes on Check's summary line.
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define X(name) Suite *suite_##name(void);
SUITES
#undef X

static const struct {
    const char *name;
    Suite *(*suite)(void);
} suites[] = {
#define X(name) {#name, suite_##name},
    SUITES
#undef X
};

int main(int argc, char **argv) {
    SRunner *runner = srunner_create(NULL);
    int added = 0;
    for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++) {
        bool wanted = argc == 1;
        for (int a = 1; a < argc; a++) wanted |= strcmp(argv[a], suites[i].name) == 0;
        if (!wanted) continue;
        srunner_add_suite(runner, suites[i].suite());
        added++;
    }
    if (added == 0) {
        fprintf(stderr, "%s: no such suite; there are:", argv[0]);
        for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++)
            fprintf(stderr, " %s", suites[i].name);
        fprintf(stderr, "\n");
        return 2;
    }
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
