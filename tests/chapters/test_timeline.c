// Timelines of whole programs: of the launcher's and of ./run's. And what marks of phases cost on a
// GPU: nothing, as ptxas makes the same machine code without them. A few seconds.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "timeline.h"

Suite *suite_timeline(void);

static const char *from_environment(const char *variable, const char *otherwise) {
    const char *value = getenv(variable);
    return value != NULL ? value : otherwise;
}

// Runs tests/programs/phases.cu under the launcher; returns what system() does.
static int run_phases(const char *options) {
    char command[2048];
    static char *launcher, *folder; // from where the test began
    if (launcher == NULL) {
        launcher = realpath(from_environment("TEST_LAUNCHER", "build/softgpu/softgpu"), NULL);
        folder = realpath(from_environment("TEST_PROGRAMS", "build/tests/cuda"), NULL);
        ck_assert(launcher != NULL && folder != NULL);
        enter_folder();
    }
    snprintf(command, sizeof command, "%s %s %s/phases >out 2>err", launcher, options, folder);
    return system(command);
}

// Two launches of five blocks, of which two SMs are traced: three blocks, two, then three and two
// again, or whatever the SMs get; each block's warpgroups go through their phases in order.
START_TEST(program) {
    ck_assert_int_eq(run_phases("--sms 2 --trace phases.json"), 0);
    Timeline t = timeline_read("phases.json");
    tracks_are_ordered(&t);
    ck_assert_int_eq(bars_of(&t, "kernel", "phases"), 2);
    const int blocks = bars_of(&t, "block", NULL), steps = 3;
    ck_assert_int_eq(blocks, 2 * 5);
    ck_assert_int_eq(bars_of(&t, "phase", "fill"), blocks * steps);
    ck_assert_int_eq(bars_of(&t, "phase", "add"), blocks * steps);
    const Bar *first = NULL;
    for (int k = 0; k < t.count && first == NULL; k++)
        if (strcmp(t.bars[k].name, "add") == 0) first = &t.bars[k];
    ck_assert_int_eq(first->warpgroup, 1);
    ck_assert_int_eq(first->warp, 4);
    // The first warpgroup fills while the second waits, and the other way round.
    for (int k = 0; k < t.count; k++) {
        const Bar *bar = &t.bars[k];
        if (strcmp(bar->name, "fill") == 0) ck_assert_int_eq(bar->warpgroup, 0);
        if (strcmp(bar->name, "add") == 0) ck_assert_int_eq(bar->warpgroup, 1);
        if (bar->pid == first->pid && bar->block == first->block && bar->ts < first->ts &&
            strcmp(bar->name, "fill") == 0)
            ck_assert_double_le(bar->end, first->end);
    }
    ck_assert(!file_exists("phases.json.part"));
}
END_TEST

// Of as many SMs as asked for: ten blocks on five SMs, of which two alone have fewer.
START_TEST(more_sms) {
    ck_assert_int_eq(run_phases("--sms 5 --trace two.json"), 0);
    Timeline two = timeline_read("two.json");
    ck_assert_int_eq(run_phases("--sms 5 --trace-sms 5 --trace five.json"), 0);
    Timeline five = timeline_read("five.json");
    ck_assert_int_lt(bars_of(&two, "block", NULL), 10);
    ck_assert_int_eq(bars_of(&five, "block", NULL), 10);
}
END_TEST

// Python reads it too: a strict reader apart from our own.
START_TEST(python_reads_it) {
    ck_assert_int_eq(run_phases("--trace phases.json"), 0);
    ck_assert_int_eq(system("python3 -c \"import json; d = json.load(open('phases.json')); "
                            "assert all(e['ph'] in 'XM' for e in d['traceEvents']); "
                            "assert d['otherData']['clock_ghz'] > 0\""),
                     0);
}
END_TEST

// Refused before anything runs, with status 2: no result is printed.
START_TEST(refused) {
    static const char *const options[][2] = {
        {"--trace no/such/folder.json", "no/such/folder.json"},
        {"--trace /", "give the name of a file"},
        {"--schedule 1 --trace x.json", "SOFTGPU_SCHEDULE"},
        {"--no-timing --trace x.json", "SOFTGPU_TIMING=0"},
        {"--async late --trace x.json", "SOFTGPU_ASYNC"},
    };
    int status = run_phases(options[_i][0]);
    ck_assert_int_eq(status >> 8, 2);
    ck_assert_str_eq(file_text("out"), "");
    ck_assert_ptr_nonnull(strstr(file_text("err"), options[_i][1]));
    ck_assert(!file_exists("x.json"));
}
END_TEST

// ./run traces the timed run of each step, not the checked ones.
START_TEST(chapter) {
    enter_folder();
    Outcome outcome = run_chapter(5, "--steps pingpong,intra-warpgroup --seqlen 512 --heads 1 "
                                     "--head-dim 64 --sms 2 --schedule 0,1 --trace t.json");
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    Timeline t = timeline_read("t.json");
    tracks_are_ordered(&t);
    ck_assert_int_eq(bars_of(&t, "kernel", NULL), 2);
    static const char *const phases[] = {"qk_gemm", "softmax", "pv_gemm", "load", "epilogue"};
    for (int k = 0; k < 5; k++) ck_assert_int_gt(bars_of(&t, "phase", phases[k]), 0);
    ck_assert_int_eq(bars_of(&t, "phase", "qk_gemm"), bars_of(&t, "phase", "pv_gemm"));
}
END_TEST

// The picture is drawn from a trace, and a file that is none is refused in one line. Without
// matplotlib only that is said.
START_TEST(picture) {
    enter_folder();
    Outcome outcome =
        run_chapter(5, "--steps pingpong --seqlen 512 --heads 1 --head-dim 64 --sms 1 "
                       "--trace t.json");
    ck_assert_int_eq(outcome.status, 0);
    char command[4096], venv[2048];
    snprintf(venv, sizeof venv, "%s/../venv/bin/python",
             in_repository(from_environment("TEST_BUILD", "build/d64-128")));
    const char *python = from_environment("PLOT_PYTHON", file_exists(venv) ? venv : "python3");
    const char *script = in_repository("common/plot/timeline.py");
    snprintf(command, sizeof command, "%s %s t.json t.png 2>err", python, script);
    if (system(command) != 0) {
        ck_assert_ptr_nonnull(strstr(file_text("err"), "matplotlib is missing"));
        return;
    }
    ck_assert(file_exists("t.png"));
    snprintf(command, sizeof command, "%s %s t.png u.png 2>err", python, script);
    ck_assert_int_ne(system(command), 0);
    ck_assert_ptr_nonnull(strstr(file_text("err"), "t.png is no timeline of ./run --trace"));
    ck_assert_ptr_null(strstr(file_text("err"), "Traceback"));
    // The tiles of persistent blocks, in a picture of their own.
    outcome = run_chapter(7, "--steps persistent --causal --seqlen 520 --heads 2 --head-dim 64 "
                             "--sms 3 --check none --trace tiles.json");
    ck_assert_int_eq(outcome.status, 0);
    snprintf(command, sizeof command, "%s %s tiles.json tiles.png --tiles 2>err", python, script);
    ck_assert_msg(system(command) == 0 && file_exists("tiles.png"), "%s", file_text("err"));
    // And all thread blocks, beside SMs that have none.
    snprintf(command, sizeof command, "%s %s tiles.json b.png --blocks 9 2>err", python, script);
    ck_assert_msg(system(command) == 0 && file_exists("b.png"), "%s", file_text("err"));
}
END_TEST

// The same bytes with and without marks: code, registers, schedule and all.
START_TEST(machine_code) {
    static const char *const kernels[] = {"pingpong", "intra_warpgroup"};
    char with[512], without[512];
    const char *folder = from_environment("TEST_CUBINS", "build/tests/cubins");
    snprintf(with, sizeof with, "%s/%s.with.cubin", folder, kernels[_i]);
    snprintf(without, sizeof without, "%s/%s.without.cubin", folder, kernels[_i]);
    FILE *a = fopen(with, "rb"), *b = fopen(without, "rb");
    ck_assert_msg(a != NULL && b != NULL, "no %s: make test builds it", with);
    long bytes = 0;
    for (int x = 0; x != EOF; bytes++) {
        x = fgetc(a);
        ck_assert_msg(x == fgetc(b), "%s: byte %ld differs", with, bytes);
    }
    ck_assert_int_gt(bytes, 10000);
    fclose(a);
    fclose(b);
}
END_TEST

Suite *suite_timeline(void) {
    Suite *suite = suite_create("timeline");
    TCase *tests = tcase_create("timeline");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, program);
    tcase_add_test(tests, more_sms);
    tcase_add_test(tests, python_reads_it);
    tcase_add_loop_test(tests, refused, 0, 5);
    tcase_add_test(tests, chapter);
    tcase_add_test(tests, picture);
    tcase_add_loop_test(tests, machine_code, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
