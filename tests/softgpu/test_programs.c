// Whole programs through the launcher: those of tests/programs, built by nvcc -cudart shared into
// $TEST_PROGRAMS (default build/tests/programs), run by $TEST_LAUNCHER (build/softgpu/softgpu).
#include <check.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "folded.h"

static const char *programs(void) {
    const char *folder = getenv("TEST_PROGRAMS");
    return folder ? folder : "build/tests/programs";
}

static const char *launcher(void) {
    const char *path = getenv("TEST_LAUNCHER");
    return path ? path : "build/softgpu/softgpu";
}

static char output[1 << 16]; // of the last command, both streams

// Runs a shell command and returns its exit status.
static int run(const char *command) {
    char both[4096];
    snprintf(both, sizeof both, "{ %s; } 2>&1", command);
    FILE *pipe = popen(both, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t n = fread(output, 1, sizeof output - 1, pipe);
    output[n] = 0;
    int status = pclose(pipe);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

// Runs the launcher with options, then a program of ours.
static int softgpu(const char *options, const char *program) {
    char command[2048];
    snprintf(command, sizeof command, "%s %s %s/%s", launcher(), options, programs(), program);
    return run(command);
}

static const char *const right[] = {
    "reduction",    "histogram",    "bitonic_sort",    "transpose",         "calls",
    "print",        "grid_sync",    "streams",         "variables",         "big_shared",
    "tensor_cores", "big_tiles",    "pipeline",        "discarded",         "locks",
    "wgmma_gemm",   "tma_add",      "race_ring",       "cluster_histogram", "cluster_ring",
    "quantise",     "parted_lanes", "exp2_polynomial",
};
enum { RIGHT = sizeof right / sizeof *right };

// Runs of each right program: 2, or as many schedules as $TEST_SCHEDULES says (make test-long).
static int orders(void) {
    const char *text = getenv("TEST_SCHEDULES");
    return text ? atoi(text) : 2;
}

// Every right program ends with 0 and has no finding, in ordinary order and in jittered ones.
START_TEST(right_programs) {
    static const char *const async[] = {"early", "late", "random"};
    char options[80] = "";
    int order = _i / RIGHT;
    if (order == 1) strcpy(options, "--schedule 5 --threads 2");
    if (order > 1)
        snprintf(options, sizeof options, "--schedule %d --async %s", order, async[order % 3]);
    int status = softgpu(options, right[_i % RIGHT]);
    ck_assert_msg(status == 0, "%s %s: status %d\n%s", options, right[_i % RIGHT], status, output);
}
END_TEST

// The result and all that is printed don't depend on the number of host threads.
START_TEST(threads_change_nothing) {
    static char first[sizeof output];
    ck_assert_int_eq(softgpu("--threads 1 --schedule 2", "print"), 0);
    strcpy(first, output);
    ck_assert_int_eq(softgpu("--threads 4 --schedule 2", "print"), 0);
    ck_assert_str_eq(first, output);
    ck_assert(strstr(output, "thread 2:  1.00|2   |00a2|hello|c|1099511627776%\n") != NULL);
}
END_TEST

// The lines that tell the modelled time, of the last command.
static void keep_times(char *times, size_t size) {
    *times = 0;
    for (char *line = strstr(output, "  time "); line; line = strstr(line + 1, "\n  time ")) {
        size_t length = strcspn(line + 1, "\n") + 1, used = strlen(times);
        ck_assert_uint_lt(used + length, size);
        memcpy(times + used, line, length);
        times[used + length] = 0;
    }
}

// Modelled times are those of the program, whatever runs it: any number of host threads, any day.
START_TEST(modelled_times_repeat) {
    static const char *const programs[] = {"wgmma_gemm", "cluster_ring", "pipeline", "histogram"};
    static char first[4096], times[4096];
    ck_assert_int_eq(softgpu("--stats --threads 1", programs[_i]), 0);
    keep_times(first, sizeof first);
    ck_assert_msg(strstr(first, "(modelled)") != NULL, "%s", output);
    for (int n = 1; n <= 3; n++) {
        char options[40];
        snprintf(options, sizeof options, "--stats --threads %d", n);
        ck_assert_int_eq(softgpu(options, programs[_i]), 0);
        keep_times(times, sizeof times);
        ck_assert_str_eq(times, first);
    }
}
END_TEST

// Blocks of a cluster begin when there is room for all of them; what a block has stored when it ends
// is counted to its last byte; and a sample of a grid that is smaller than the GPU takes a block's
// time, not a share of it.
START_TEST(begins_and_ends) {
    static char whole[4096], sampled[4096];
    ck_assert_msg(softgpu("--threads 1", "cluster_times starts") == 0, "%s", output);
    ck_assert_int_eq(softgpu("--stats --threads 1", "cluster_times stores"), 0);
    ck_assert_msg(strstr(output, "L2 read 0 B  written 3.28 MB") != NULL, "%s", output);
    ck_assert_int_eq(softgpu("--stats --threads 1", "cluster_times few"), 0);
    keep_times(whole, sizeof whole);
    ck_assert_int_eq(softgpu("--stats --threads 1 --sample 3", "cluster_times few"), 0);
    keep_times(sampled, sizeof sampled);
    double all = 0, some = 0;
    ck_assert_int_eq(sscanf(whole, "  time %lf us", &all), 1);
    ck_assert_int_eq(sscanf(sampled, "  time %lf us", &some), 1);
    ck_assert_double_gt(all, 10);
    ck_assert_double_eq_tol(some, all, 0.01 * all);
}
END_TEST

static const struct {
    const char *program, *line, *words;
} broken[] = {
    {"broken_bounds", "broken_bounds.cu:5", "the 4000-byte allocation #1"},
    {"broken_rows", "broken_rows.cu:6", "right behind the end of the 51200-byte allocation #1"},
    {"broken_barrier", "broken_barrier.cu:7", "diver"},
    {"broken_deadlock", "broken_deadlock.cu:7", "deadlock"},
    {"broken_uninitialised", "broken_uninitialised.cu:9", "ld.shared.u32 at "},
    {"broken_printf", "broken_printf.cu:8", "prints a value"},
    {"broken_cp_async", "broken_cp_async.cu:13", "cp.async.cg.shared.global at"},
    {"race_barrier", "race_barrier.cu:9", "race_barrier.cu:8"},
    {"race_ring early", "race_ring.cu:29", "race_ring.cu:38"},
    {"tma_short_expect", "tma_short_expect.cu:21", "it expects 512 bytes, and 2048 have come"},
    {"tma_unfenced", "tma_unfenced.cu:14", "no fence.proxy.async"},
    {"tma_unaligned", "tma_unaligned.cu:17", "past a multiple of 128"},
    {"tma_host_map", "tma_host_map.cu:17", "thread's local memory"},
    {"cluster_exits", "cluster_exits.cu:15", "block (1,0,0), which has exited"},
};
enum { BROKEN = sizeof broken / sizeof *broken };

START_TEST(broken_programs) {
    int status = softgpu(_i < BROKEN ? "" : "--async late", broken[_i % BROKEN].program);
    ck_assert_msg(status == 99, "%s: status %d\n%s", broken[_i % BROKEN].program, status, output);
    ck_assert_msg(strstr(output, broken[_i % BROKEN].line) != NULL, "no line:\n%s", output);
    ck_assert_msg(says(output, broken[_i % BROKEN].words), "other words:\n%s", output);
    ck_assert_msg(strstr(output, "error found") != NULL, "no summary:\n%s", output);
}
END_TEST

// What a GPU does in its favour most of the time is an error in a strict run.
START_TEST(strict_programs) {
    ck_assert_int_eq(softgpu("--strict", "cluster_unmet"), 99);
    ck_assert_msg(says(output, "before any barrier of the cluster"), "%s", output);
    ck_assert_msg(strstr(output, "cluster_unmet.cu:12") != NULL, "no line:\n%s", output);
}
END_TEST

// PTX for sm_90a runs on a GPU of capability 9.0 only; portable PTX on all that are newer.
START_TEST(other_gpus) {
    static const char *const others[] = {"--gpu b200", "--gpu a100"};
    for (int k = 0; k < 2; k++) {
        ck_assert_msg(softgpu(others[k], "wgmma_gemm") != 0, "%s", output);
        ck_assert_msg(strstr(output, "it holds: compute_90a. Build it with -gencode") != NULL, "%s",
                      output);
    }
    ck_assert_msg(softgpu("--gpu h200", "wgmma_gemm") == 0, "%s", output);
    ck_assert_msg(softgpu("--gpu b200", "reduction") == 0, "%s", output);
}
END_TEST

// Killing the launcher, as a timeout may, ends the program too.
START_TEST(killed_launcher) {
    char command[2048];
    snprintf(command, sizeof command,
             "file=$(mktemp); %s sh -c 'echo $$; exec sleep 20' >$file & launcher=$!\n"
             "while [ ! -s $file ]; do sleep 0.05; done\n"
             "read program <$file; rm $file; kill -0 $program || exit 7\n"
             "kill -9 $launcher; sleep 0.5\n"
             "[ ! -d /proc/$program ] || grep -q '^State:.Z' /proc/$program/status",
             launcher());
    ck_assert_msg(run(command) == 0, "%s", output);
}
END_TEST

// A refused call is explained; whether it was meant is the program's to say.
START_TEST(refused_calls_are_no_errors) {
    ck_assert_msg(softgpu("--strict", "misuse") == 0, "%s", output);
    ck_assert(strstr(output, "softgpu: cudaMemcpy: the destination ") != NULL);
    ck_assert(strstr(output, "it was freed before") != NULL);
    ck_assert(strstr(output, "memory that was freed") != NULL);
    ck_assert(strstr(output, "every misuse was refused") != NULL);
}
END_TEST

// That a warp only spins is seen after a few turns: 128 times the lock, some 200 instructions each.
START_TEST(contended_locks_are_quick) {
    ck_assert_int_eq(softgpu("--stats --threads 1", "locks"), 0);
    const char *text = strstr(output, "warp instructions ");
    double instructions;
    ck_assert(text != NULL && sscanf(text, "warp instructions %lf", &instructions) == 1);
    ck_assert_double_gt(instructions, 128 * 10);
    ck_assert_double_lt(instructions, 50000);
}
END_TEST

START_TEST(json_report) {
    ck_assert_int_eq(softgpu("--report json", "broken_bounds"), 99);
    ck_assert_msg(strstr(output, "\"out-of-bounds\"") != NULL, "no JSON:\n%s", output);
}
END_TEST

static const char *const usage[][2] = {
    {"--no-such-option x", "--no-such-option"},
    {"", "no program given"},
    {"--gpu", "--gpu needs a value"},
    {"no-such-program", "no-such-program: No such file"},
    {"/tmp", "/tmp is a directory"},
    {"/etc/passwd", "not executable"},
};

// Bad usage: one line, exit status 2.
START_TEST(bad_usage) {
    char command[512];
    snprintf(command, sizeof command, "%s %s", launcher(), usage[_i][0]);
    ck_assert_int_eq(run(command), 2);
    ck_assert_msg(strstr(output, usage[_i][1]) != NULL, "%s", output);
    ck_assert_ptr_eq(strchr(output, '\n'), output + strlen(output) - 1);
}
END_TEST

START_TEST(bad_values) {
    ck_assert_int_eq(softgpu("--gpu h101", "reduction"), 2);
    ck_assert(strstr(output, "h101") && strstr(output, "h100"));
    ck_assert_int_eq(softgpu("--sms none", "reduction"), 2);
    ck_assert(strstr(output, "SOFTGPU_SMS"));
    ck_assert_int_eq(softgpu("--sample 500", "reduction"), 2);
    ck_assert_str_eq(output, "softgpu: SOFTGPU_SAMPLE=500: the modelled GPU (h100) has 132 SMs\n");
    ck_assert_int_eq(softgpu("--sms 4 --sample 5", "reduction"), 2);
    ck_assert_int_eq(softgpu("--gpu a100 --sms 109", "reduction"), 2);
}
END_TEST

// A program's own status comes through, and so does its death by a signal.
START_TEST(other_statuses) {
    char command[512];
    snprintf(command, sizeof command, "%s sh -c 'exit 7'", launcher());
    ck_assert_int_eq(run(command), 7);
    snprintf(command, sizeof command, "%s sh -c 'kill -TERM $$'", launcher());
    ck_assert_int_eq(run(command), 128 + 15);
    snprintf(command, sizeof command, "%s --help", launcher());
    ck_assert_int_eq(run(command), 0);
    ck_assert(strstr(output, "--schedule") != NULL);
}
END_TEST

// Whatever the toolkit's runtime exports exists in ours: lazy binding never fails.
START_TEST(exports_are_complete) {
    char command[1024], library[512];
    snprintf(library, sizeof library, "%s", launcher());
    ck_assert_ptr_nonnull(strrchr(library, '/'));
    strcpy(strrchr(library, '/'), "/lib/libcudart.so.13");
    const char *toolkit = getenv("TEST_CUDART");
    if (toolkit == NULL) toolkit = "/usr/local/cuda/lib64/libcudart.so.13";
    snprintf(command, sizeof command,
             "d=$(mktemp -d); names() { nm -D --defined-only $1 | "
             "sed -n 's/.* T \\([a-zA-Z_0-9]*\\).*/\\1/p' | sort -u; }; "
             "names %s > $d/toolkit; names %s > $d/ours; "
             "comm -23 $d/toolkit $d/ours; wc -l < $d/toolkit; rm -r $d",
             toolkit, library);
    run(command);
    ck_assert_msg(atoi(output) > 400, "missing:\n%s", output); // only the count is left
}
END_TEST

// A function of the runtime or the driver; most take fewer arguments.
typedef long Function(long, long, long, long, long, long, long, long, long, long, long, long);

// Calls one function of libcudart with nothing but zeros, then with a pointer to zeros in front, in
// a process of its own. Returns false if that dies.
static bool survives(const char *library, const char *name) {
    pid_t child = fork();
    if (child == 0) {
        static long zeros[1024];
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        void *handle = dlopen(library, RTLD_NOW);
        Function *function = handle ? (Function *)(uintptr_t)dlsym(handle, name) : NULL;
        if (!function) _exit(1);
        alarm(20);
        function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        function((long)(uintptr_t)&zeros[512], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        _exit(0);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// A block that gets many items goes through its loops often: with all SMs each has one or two.
START_TEST(quantise_on_few_sms) {
    ck_assert_int_eq(softgpu("--no-timing --sms 2", "quantise"), 0);
}
END_TEST

// No function dies of missing arguments and handles that are none.
START_TEST(empty_calls) {
    char command[1024], library[512];
    snprintf(library, sizeof library, "%s", launcher());
    ck_assert_ptr_nonnull(strrchr(library, '/'));
    strcpy(strrchr(library, '/'), "/lib/libcudart.so.13");
    snprintf(command, sizeof command,
             "nm -D --defined-only %s | sed -n 's/.* [TW] \\(cu[a-zA-Z_0-9]*\\).*/\\1/p' | sort -u",
             library);
    ck_assert_int_eq(run(command), 0);
    int count = 0;
    for (char *name = strtok(output, "\n"); name; name = strtok(NULL, "\n"), count++) {
        if (!strcmp(name, "cudaCreateChannelDesc")) continue; // returns a struct by reference
        ck_assert_msg(survives(library, name), "%s", name);
    }
    ck_assert_int_gt(count, 600);
}
END_TEST

Suite *suite_programs(void) {
    Suite *suite = suite_create("programs");
    TCase *tests = tcase_create("launcher");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, right_programs, 0, orders() * RIGHT);
    tcase_add_loop_test(tests, broken_programs, 0, 2 * BROKEN);
    tcase_add_test(tests, threads_change_nothing);
    tcase_add_loop_test(tests, modelled_times_repeat, 0, 4);
    tcase_add_test(tests, begins_and_ends);
    tcase_add_test(tests, strict_programs);
    tcase_add_test(tests, other_gpus);
    tcase_add_test(tests, refused_calls_are_no_errors);
    tcase_add_test(tests, killed_launcher);
    tcase_add_test(tests, quantise_on_few_sms);
    tcase_add_test(tests, contended_locks_are_quick);
    tcase_add_test(tests, json_report);
    tcase_add_loop_test(tests, bad_usage, 0, sizeof usage / sizeof *usage);
    tcase_add_test(tests, bad_values);
    tcase_add_test(tests, other_statuses);
    tcase_add_test(tests, exports_are_complete);
    tcase_add_test(tests, empty_calls);
    suite_add_tcase(suite, tests);
    return suite;
}
