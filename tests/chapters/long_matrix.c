// The full matrix, for `make test-long CHAPTER=N`: every combination of dtype, head_dim, mask,
// lengths, head groups, window and softcap, each under three (schedule, async) pairs; and one
// problem of each step and dtype under 50 schedules × early, late, random.
//
// It can be stopped and started again: what passed is noted in $TEST_STATE, with the programs'
// checksum in the first line, so that notes of another build don't count.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "matrix.h"

static const char *const lengths[] = {
    "--seqlen 1",
    "--seqlen 63",
    "--seqlen 64",
    "--seqlen 65",
    "--seqlen 127",
    "--seqlen 129",
    "--seqlen 200",
    "--seqlen-q 1 --seqlen-k 129",
    "--seqlen-q 65 --seqlen-k 200",
    "--seqlen-q 200 --seqlen-k 65",
    "--seqlen-q 129 --seqlen-k 1",
};
// Empty sequences, of one row, around tiles; more queries than keys, and fewer.
static const char *const batches[] = {"--varlen 0,1,64,0:7,130:1,65", "--varlen 200:65,3:0,1:129",
                                      "--varlen 1,0,1,1:300", "--varlen 129,127:190,0,192:193"};
static const char *const groups[] = {"--heads 2", "--heads 4 --kv-heads 2",
                                     "--heads 3 --kv-heads 1"};
static const char *const masks[] = {"",
                                    " --causal",
                                    " --window 16,0",
                                    " --window 0,40",
                                    " --window 33,7",
                                    " --causal --window 50,-1"};
static const char *const softcaps[] = {"", " --softcap 5"};
enum {
    LENGTHS = sizeof lengths / sizeof *lengths,
    MASKS = sizeof masks / sizeof *masks,
    DTYPES = 3,
};

static char state_path[4096], *passed; // the file's text at the start

static int chapter_asked(void) {
    const char *text = getenv("TEST_CHAPTER");
    int chapter = text != NULL ? atoi(text) : 0;
    ck_assert_msg(chapter >= 1 && chapter <= 9, "TEST_CHAPTER: 1 to 9");
    return chapter;
}

// FNV-1a over the program and the emulator that it runs on.
static unsigned long checksum(const char *path) {
    unsigned long sum = 14695981039346656037u;
    FILE *stream = fopen(path, "rb");
    ck_assert_msg(stream != NULL, "%s is not there", path);
    for (int c; (c = fgetc(stream)) != EOF;) sum = (sum ^ (unsigned long)c) * 1099511628211u;
    fclose(stream);
    return sum;
}

// Opens the notes, or begins new ones. The first time only: paths may be relative to the folder
// where the test begins.
static void state_open(void) {
    if (passed != NULL) return;
    char program[4096], emulator[4096], first[64];
    const char *build = getenv("TEST_BUILD"), *state = getenv("TEST_STATE");
    ck_assert_msg(build != NULL && state != NULL, "make test-long sets TEST_BUILD and TEST_STATE");
    snprintf(program, sizeof program, "%s/chapter-%d/run", build, chapter_asked());
    snprintf(emulator, sizeof emulator, "%s/../softgpu/lib/libcudart.so.13", build);
    snprintf(first, sizeof first, "%016lx %016lx\n", checksum(program), checksum(emulator));
    ck_assert_ptr_nonnull(realpath(build, program));
    snprintf(state_path, sizeof state_path, "%.4000s", state);
    if (state[0] != '/') {
        char *here = realpath(".", NULL);
        snprintf(state_path, sizeof state_path, "%.2000s/%.2000s", here, state);
    }
    if (file_exists(state_path)) passed = file_text(state_path);
    if (passed != NULL && strncmp(passed, first, strlen(first)) == 0) return;
    passed = first;
    write_text(state_path, first);
    passed = file_text(state_path);
}

static bool is_done(const char *problem) {
    char line[500];
    snprintf(line, sizeof line, "\n%s\n", problem);
    return strstr(passed, line) != NULL;
}

static void note(const char *problem) {
    FILE *stream = fopen(state_path, "ab");
    ck_assert_msg(stream != NULL, "%s can't be written", state_path);
    fprintf(stream, "%s\n", problem);
    ck_assert_int_eq(fclose(stream), 0);
}

static void check_once(int chapter, const char *problem) {
    if (is_done(problem)) return;
    check_problem(chapter, problem);
    note(problem);
}

// Has the chapter this? From chapter 5 on all is for tensor cores only, chapter 5's backward for two
// head_dims, chapter 6's transform for powers of two, chapter 8's tensor memory for two head_dims.
static bool is_offered(int chapter, const char *dtype, int head_dim, const char *pass) {
    if (chapter < 5) return true;
    if (strcmp(dtype, "fp32") == 0) return false;
    if (chapter == 8) return head_dim == 64 || head_dim == 128;
    if (chapter == 6) return *pass == 0 && (head_dim & (head_dim - 1)) == 0;
    return *pass == 0 || head_dim == 64 || head_dim == 128;
}

// A cell: a dtype and a head_dim that is built.
static void every_problem(int cell, const char *pass) {
    char problem[400];
    const int chapter = chapter_asked(), head_dim = built_head_dims()[cell / DTYPES];
    const char *dtype = matrix_dtypes[cell % DTYPES];
    if (!is_offered(chapter, dtype, head_dim, pass)) return;
    state_open();
    enter_folder();
    for (int l = 0; l < LENGTHS; l++)
        for (int m = 0; m < MASKS; m++)
            for (int s = 0; s < 2; s++)
                for (int g = 0; g < 3; g++) {
                    snprintf(problem, sizeof problem,
                             "%s%s--dtype %s --head-dim %d --batch %d %s %s%s%s",
                             chapter == 7 || chapter == 8 ? "--sms 2 " : "", pass, dtype, head_dim,
                             1 + g % 2, lengths[l], groups[g], masks[m], softcaps[s]);
                    check_once(chapter, problem);
                }
}

// Sequences of varying lengths, with sinks and without, where a chapter has them.
START_TEST(varied_lengths) {
    char problem[400];
    const int chapter = chapter_asked(), head_dim = built_head_dims()[_i / DTYPES];
    const char *dtype = matrix_dtypes[_i % DTYPES];
    if ((chapter != 1 && chapter != 7) || !is_offered(chapter, dtype, head_dim, "")) return;
    state_open();
    enter_folder();
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
        for (int m = 0; m < MASKS; m++)
            for (int g = 0; g < 3; g++)
                for (int sink = 0; sink < 2; sink++) {
                    snprintf(problem, sizeof problem, "%s--dtype %s --head-dim %d %s %s%s%s%s",
                             chapter == 1 ? "--backward " : "", dtype, head_dim, batches[b],
                             groups[g], masks[m], softcaps[(m + g) % 2], sink ? " --sink" : "");
                    check_once(chapter, problem);
                }
}
END_TEST

// Caches of ragged lengths: in a row, in pages of every size, and appended to, where a chapter has
// them.
START_TEST(caches) {
    static const char *const kinds[] = {
        "--splits 3",
        "--page-size 1",
        "--page-size 16 --splits 2",
        "--page-size 64 --append 2",
        "--page-size 256 --append 1 --rotary 32",
        "--page-size 5 --append 3 --rotary 64 --rotary-interleaved --splits 4"};
    char problem[400];
    const int chapter = chapter_asked(), head_dim = built_head_dims()[_i / DTYPES];
    const char *dtype = matrix_dtypes[_i % DTYPES];
    if (chapter != 9 || !is_offered(chapter, dtype, head_dim, "")) return;
    state_open();
    enter_folder();
    for (int kind = 0; kind < 6; kind++)
        for (int m = 0; m < MASKS; m++)
            for (int g = 0; g < 3; g++)
                for (int tokens = 1; tokens <= 17; tokens += 8) {
                    snprintf(problem, sizeof problem,
                             "--dtype %s --head-dim %d --cache-seqlens 0,65,1,300 --seqlen-q %d %s "
                             "%s%s%s%s",
                             dtype, head_dim, tokens, kinds[kind], groups[g], masks[m],
                             softcaps[(m + g) % 2], g == 1 ? " --sink" : "");
                    check_once(chapter, problem);
                }
}
END_TEST

// In chapter 4 a run has both passes.
START_TEST(default_passes) {
    every_problem(_i, "");
}
END_TEST

// Chapter 1's backward; chapter 4's in a fixed order; chapter 5's and 8's both ways.
START_TEST(backward) {
    if (chapter_asked() == 1) every_problem(_i, "--backward ");
    if (chapter_asked() == 4) every_problem(_i, "--deterministic ");
    if (chapter_asked() != 5 && chapter_asked() != 8) return;
    every_problem(_i, "--backward ");
    every_problem(_i, "--backward --deterministic ");
}
END_TEST

// Loop: dtype, async.
START_TEST(many_schedules) {
    static const char *const orders[] = {"early", "late", "random"};
    char problem[400], schedules[200] = "0";
    const int chapter = chapter_asked();
    if (!is_offered(chapter, matrix_dtypes[_i / 3], 64, "")) return;
    state_open();
    enter_folder();
    for (int s = 1; s < 50; s++) {
        size_t used = strlen(schedules);
        snprintf(schedules + used, sizeof schedules - used, ",%d", s);
    }
    snprintf(problem, sizeof problem,
             "--dtype %s --async %s --causal --heads 2 --kv-heads 1 --seqlen-q 129 --seqlen-k 150 "
             "--head-dim 64%s",
             matrix_dtypes[_i / 3], orders[_i % 3], chapter == 1 ? " --backward" : "");
    if (is_done(problem)) return;
    Outcome o = run_chapter(chapter, "--check-only --json - --steps %s --schedule %s %s",
                            steps_of(chapter, problem), schedules, problem);
    Json *json = outcome_json(&o, 0);
    ck_assert_int_eq(every_step_is_ok(&o, json), results_of(chapter, problem));
    ck_assert_int_eq(json_count(json, "problem.schedules"), 50);
    note(problem);
}
END_TEST

Suite *suite_long_matrix(void) {
    Suite *suite = suite_create("chapters: the full matrix");
    TCase *tests = tcase_create("long");
    tcase_set_timeout(tests, 3600);
    tcase_add_loop_test(tests, many_schedules, 0, 9);
    const int cells = DTYPES * built_head_dim_count();
    tcase_add_loop_test(tests, default_passes, 0, cells);
    tcase_add_loop_test(tests, backward, 0, cells);
    tcase_add_loop_test(tests, varied_lengths, 0, cells);
    tcase_add_loop_test(tests, caches, 0, cells);
    suite_add_tcase(suite, tests);
    return suite;
}
