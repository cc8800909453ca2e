// What ./run and the launcher write: whole or not at all, and at once. A place that can't be written
// is an error, a signal leaves no temporary file, and rows appear as the steps finish. Half a minute.
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

static void pause_a_little(void) {
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

// Of /dev/full every write fails, but only when it is flushed.
START_TEST(a_full_device_is_an_error) {
    static const char *const outputs[] = {"trace", "report", "json", "csv"};
    const char *output = outputs[_i];
    enter_folder();
    Outcome o =
        run_chapter(1, "--device softgpu --sms 1 --heads 1 --seqlen 16 --%s /dev/full", output);
    ck_assert_msg(o.status == 2, "%s: status %d\n%s", o.command, o.status, o.err);
    ck_assert_msg(strstr(o.err, "/dev/full: No space left on device\n") != NULL, "%s", o.err);
    ck_assert_int_eq(system("test -z \"$(find . -name '*.part')\""), 0);
}
END_TEST

START_TEST(a_full_standard_output_is_an_error) {
    enter_folder();
    char command[600];
    snprintf(command, sizeof command,
             "'%s' --device softgpu --sms 1 --heads 1 --seqlen 16 --check-only >/dev/full 2>err",
             chapter_path(1));
    ck_assert_int_eq(WEXITSTATUS(system(command)), 2);
    ck_assert_str_eq(file_text("err"), "run: can't write the table: No space left on device\n");
}
END_TEST

// The launcher's own status is 2, as for a bad option; one that the program has of its own stays.
START_TEST(the_launcher_says_what_it_can_not_write) {
    static const char *const outputs[] = {"--trace /dev/full",
                                          "--report json --report-file /dev/full"};
    const char *launcher = path_of("TEST_LAUNCHER"), *programs = path_of("TEST_PROGRAMS");
    char command[9000];
    enter_folder();
    snprintf(command, sizeof command, "'%.4000s' %s '%.4000s/transpose' >/dev/null 2>err", launcher,
             outputs[_i], programs);
    ck_assert_int_eq(WEXITSTATUS(system(command)), 2);
    ck_assert_ptr_nonnull(strstr(file_text("err"), "/dev/full: No space left on device\n"));
}
END_TEST

// Starts ./run with these words, its standard output in the file `table`.
static pid_t start(int chapter, char *const *words) {
    char *argv[40] = {"run"};
    int count = 1;
    while (words[count - 1] != NULL) argv[count] = words[count - 1], count++;
    pid_t child = fork();
    if (child != 0) return child;
    if (freopen("table", "w", stdout) == NULL || freopen("errors", "w", stderr) == NULL) _exit(126);
    execv(chapter_path(chapter), argv);
    _exit(127);
}

// Waits until the shell's command succeeds; the process must live so long.
static void wait_until(pid_t child, const char *command) {
    while (system(command) != 0) {
        ck_assert_msg(waitpid(child, NULL, WNOHANG) == 0, "it ended before: %s", command);
        pause_a_little();
    }
}

// Signals that end a program: all that it had begun to write is gone, a folder that it made, too, and
// it ends as the signal ends programs.
START_TEST(a_signal_leaves_nothing) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    static char *const words[] = {"--device", "softgpu",  "--json",   "a.json",  "--trace",
                                  "t.json",   "--report", "r.json",   "--heads", "64",
                                  "--seqlen", "2048",     "--sample", "0",       NULL};
    enter_folder();
    pid_t child = start(1, words);
    wait_until(child, "ls a.json.*.part t.json.*.part results/*.part >/dev/null 2>&1");
    ck_assert_int_eq(kill(child, numbers[_i]), 0);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == numbers[_i]);
    ck_assert_int_eq(system("test \"$(ls)\" = \"$(printf 'errors\\ntable')\""), 0);
}
END_TEST

// The first step's row stands in the file while the second still runs.
START_TEST(rows_appear_as_steps_finish) {
    static char *const words[] = {"--device",       "softgpu", "--check", "none",    "--steps",
                                  "naive,two-pass", "--sms",   "1",       "--heads", "8",
                                  "--seqlen",       "1024",    NULL};
    enter_folder();
    pid_t child = start(2, words);
    wait_until(child, "grep -q '1 naive .* ok$' table 2>/dev/null");
    ck_assert_ptr_null(strstr(file_text("table"), "two-pass"));
    ck_assert_int_eq(kill(child, SIGTERM), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

// The heading says how many SMs only if they aren't all that the GPU has.
START_TEST(a_whole_gpu_needs_no_number) {
    static const char *const options[] = {"", "--sms 132 ", "--sms 7 "};
    enter_folder();
    for (int i = 0; i < 3; i++) {
        Outcome o =
            run_chapter(1, "--device softgpu %s--heads 1 --seqlen 16 --check-only", options[i]);
        ck_assert_int_eq(o.status, 0);
        ck_assert_msg((strstr(o.out, " SMs") != NULL) == (i == 2), "%s", o.out);
    }
}
END_TEST

// Every head is a thread block at least: who asks for very many is told that it takes long.
START_TEST(many_blocks_are_announced) {
    enter_folder();
    Outcome o =
        run_chapter(1, "--device softgpu --heads 16384 --seqlen 1 --check-only --check none");
    ck_assert_int_eq(o.status, 0);
    ck_assert_msg(strstr(o.err, "run: 16384 pairs of a sequence and a head") == o.err, "%s", o.err);
    o = run_chapter(1, "--device softgpu --heads 16 --seqlen 1 --check-only --check none");
    ck_assert_str_eq(o.err, "");
}
END_TEST

Suite *suite_outputs(void);
Suite *suite_outputs(void) {
    Suite *suite = suite_create("chapters: outputs");
    TCase *tests = tcase_create("outputs");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, a_full_device_is_an_error, 0, 4);
    tcase_add_test(tests, a_full_standard_output_is_an_error);
    tcase_add_loop_test(tests, the_launcher_says_what_it_can_not_write, 0, 2);
    tcase_add_loop_test(tests, a_signal_leaves_nothing, 0, 3);
    tcase_add_test(tests, rows_appear_as_steps_finish);
    tcase_add_test(tests, a_whole_gpu_needs_no_number);
    tcase_add_test(tests, many_blocks_are_announced);
    suite_add_tcase(suite, tests);
    return suite;
}
