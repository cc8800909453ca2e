// Bad usage and bad input: one clear line on stderr that names the option or file, exit status 2,
// and nothing written. About fifteen seconds in all.
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "program.h"

// One line "run: …" with these words, nothing on standard output, exit status 2.
static void refuses(const Outcome *o, const char *words) {
    ck_assert_msg(o->status == 2, "%s: status %d\n%s%s", o->command, o->status, o->out, o->err);
    ck_assert_msg(o->out[0] == 0, "%s: standard output has: %s", o->command, o->out);
    ck_assert_msg(strncmp(o->err, "run: ", 5) == 0, "%s: %s", o->command, o->err);
    const char *end = strchr(o->err, '\n');
    ck_assert_msg(end != NULL && end[1] == 0, "%s: not one line:\n%s", o->command, o->err);
    ck_assert_msg(strlen(o->err) < 250, "%s: a long line: %s", o->command, o->err);
    ck_assert_msg(strstr(o->err, words) != NULL, "%s: no \"%s\" in: %s", o->command, words, o->err);
}

static const struct {
    const char *arguments, *words;
} usage[] = {
    {"--no-such-option", "--no-such-option: unknown option"},
    {"--seqlens 5", "--seqlens: unknown option"},
    {"--se 5", "--se: unknown option"},
    {"-x", "-x: not an option"},
    {"1024", "1024: not an option"},
    {"--", "--: not an option"},
    {"--seqlen", "--seqlen needs a value"},
    {"--causal=yes", "--causal takes no value"},
    {"--batch 0", "--batch 0: "},
    {"--batch -1", "--batch -1: "},
    {"--heads 0", "--heads 0: "},
    {"--heads -4", "--heads -4: "},
    {"--kv-heads 0", "--kv-heads 0: "},
    {"--seqlen 0", "--seqlen 0: "},
    {"--seqlen -5", "--seqlen -5: "},
    {"--seqlen-q -1", "--seqlen-q -1: "},
    {"--seqlen-k -1", "--seqlen-k -1: "},
    {"--head-dim 0", "--head-dim 0: "},
    {"--head-dim -64", "--head-dim -64: "},
    {"--seqlen 12x", "--seqlen 12x: "},
    {"--seqlen 1e3", "--seqlen 1e3: "},
    {"--seqlen 1.5", "--seqlen 1.5: "},
    {"--seqlen=", "--seqlen : "},
    {"--seqlen 2147483648", "--seqlen 2147483648: "},
    {"--seqlen 99999999999999999999", "--seqlen 99999999999999999999: "},
    {"--batch 2147483647 --heads 2147483647 --seqlen 2147483647", "too many"},
    {"--seqlen 2000000000", "use a smaller --batch, --heads or --seqlen"},
    {"--heads 6 --kv-heads 4", "--heads 6 --kv-heads 4: "},
    {"--heads 2 --kv-heads 4", "--heads 2 --kv-heads 4: "},
    {"--head-dim 63", "--head-dim 63: give a multiple of 8 up to 256"},
    {"--head-dim 512", "--head-dim 512: give a multiple of 8 up to 256"},
    {"--dtype fp64", "--dtype fp64: "},
    {"--dtype fp8", "--dtype fp8: chapters 6 and 7 compute in fp8"},
    {"--window 5", "--window 5: "},
    {"--window -5,10", "--window -5,10: "},
    {"--window 1,2,3", "--window 1,2,3: "},
    {"--window a,b", "--window a,b: "},
    {"--softcap -1", "--softcap -1: "},
    {"--softcap nan", "--softcap nan: "},
    {"--softcap 1e400", "--softcap 1e400: "},
    {"--scale inf", "--scale inf: "},
    {"--scale 1e300", "--scale"},
    {"--scale 10000 --check-only", "--scale 10000: scores reach"},
    {"--scale 1e38 --dtype fp32 --check-only", "in fp32 (at most 3.40282e+38)"},
    {"--seed x", "--seed x: "},
    {"--seed -1", "--seed -1: "},
    {"--steps nonsense", "--steps nonsense: "},
    {"--steps naive,nonsense", "--steps nonsense: "},
    {"--steps 0", "--steps 0: "},
    {"--steps 99", "--steps 99: "},
    {"--steps ,", "--steps"},
    {"--gpu nonsense", "--gpu nonsense: one of a100 a100-40gb h100 h200 b200"},
    {"--gpu H100", "--gpu H100: one of a100 a100-40gb h100 h200 b200"},
    {"--device moon", "--device moon: one of auto, gpu, softgpu"},
    {"--device gpu", "--device gpu: "},
    {"--sms 0", "--sms 0: "},
    {"--sms many", "--sms many: "},
    {"--sample -1", "--sample -1: "},
    {"--sample 500", "--sample 500: the modelled GPU has 132 SMs"},
    {"--sms 8 --sample 9", "--sample 9: the modelled GPU has 8 SMs"},
    {"--clock 0", "--clock 0: "},
    {"--clock fast", "--clock fast: "},
    {"--clock 1e9", "--clock 1e9: "},
    {"--schedule x", "--schedule x: "},
    {"--schedule 1,,2", "--schedule : "},
    {"--check memory", "--check memory: "},
    {"--check races", "--check races: "},
    {"--async sometimes", "--async sometimes: "},
    {"--numerics exact", "--numerics exact: "},
    {"--threads 0", "--threads 0: "},
    {"--threads -1", "--threads -1: "},
    {"--threads 1025", "--threads 1025: "},
    {"--sms 1025", "--sms 1025: "},
    {"--sample 1025", "--sample 1025: "},
    {"--strict --no-strict", "--strict and --no-strict"},
    {"--sweep seqlen", "--sweep seqlen: "},
    {"--sweep nonsense=1,2", "--sweep nonsense: "},
    {"--sweep seqlen=1,0", "0: "},
    {"--sweep seqlen=64,2000000000", "use a smaller --batch, --heads or --seqlen"},
    {"--sweep head-dim=64,63", "--head-dim 63: "},
    {"--deterministic", "--deterministic: "},
    {"--head-dim-v 64", "--head-dim-v: "},
    {"--splits 4", "--splits: "},
    {"--page-size 64", "--page-size: "},
    {"--score-mod alibi", "--score-mod: "},
    {"--mask-mod doc", "--mask-mod: "},
    {"--schedule-study", "--schedule-study: "},
    {"--study-cycles 500,2900", "--study-cycles: "},
    {"--explain --check-only", "--explain: needs times"},
    {"--predict --check-only", "--predict: needs the times of one run; leave --check-only out"},
    {"--predict --sweep seqlen=64,128", "--predict: needs the times of one run; leave --sweep out"},
    {"--predict --steps naive", "--predict: there is nothing to compare"},
    {"--json - --csv -", "--json - and --csv -"},
    {"--plot -", "--plot -: "},
    {"--json nowhere/at/all.json", "nowhere/at/all.json"},
    {"--csv nowhere/at/all.csv", "nowhere/at/all.csv"},
    {"--plot nowhere/at/all.png", "nowhere/at/all.png"},
    {"--plot x.png --check-only",
     "--plot: a picture is of times, and with --check-only nothing is"},
    {"--trace x.json --check-only",
     "--trace: with --check-only nothing is timed; leave one of them out"},
    {"--trace x.json --async late",
     "--trace: with --async nothing is timed; leave one of them out"},
    {"--trace no/such/x.json", "can't write no/such/x.json: No such file or directory"},
    {"--report nowhere/at/all.json", "nowhere/at/all.json"},
    {"--save nowhere/at/all", "nowhere/at/all"},
    {"--json /", "/ is a folder"},
    {"--save /dev/null", "/dev/null"},
    {"--input nowhere", "nowhere/q.npy"},
    {"--input nowhere --seqlen 5", "--input: the files say the sizes"},
};
enum { USAGE = sizeof usage / sizeof *usage };

// What the folder and results/ hold, with contents.
static char *listing(void) {
    ck_assert_int_eq(system("for f in $(find . | sort); do echo $f; test -d $f || cksum $f; done "
                            "> /tmp/chapter-test-listing.$PPID"),
                     0);
    char path[64];
    snprintf(path, sizeof path, "/tmp/chapter-test-listing.%ld", (long)getpid());
    char *text = file_text(path);
    unlink(path);
    return text;
}

// Each chapter in turn. Results of an earlier run stay as they are.
START_TEST(bad_usage) {
    enter_folder();
    ck_assert_int_eq(mkdir("results", 0755), 0);
    write_text("results/chapter-1.csv", "an earlier run's\n");
    write_text("results/chapter-1.png", "an earlier run's picture\n");
    char *before = listing();
    for (int chapter = 1; chapter <= 3; chapter += 2) {
        Outcome o = run_chapter(chapter, "%s", usage[_i].arguments);
        refuses(&o, usage[_i].words);
        ck_assert_str_eq(listing(), before);
    }
}
END_TEST

// In an empty folder not even results/ appears.
START_TEST(nothing_is_left_behind) {
    static const char *const arguments[] = {
        "--seqlen 0",        "--gpu nonsense",         "--input nowhere",
        "--steps nonsense",  "--heads 3 --kv-heads 2", "--json nowhere/a.json",
        "--save nowhere/a/b"};
    enter_folder();
    char *before = listing();
    Outcome o = run_chapter(2, "%s", arguments[_i]);
    ck_assert_int_eq(o.status, 2);
    ck_assert_str_eq(listing(), before);
}
END_TEST

START_TEST(backward_where_there_is_none) {
    enter_folder();
    static const int chapters[] = {2, 3, 7};
    for (int c = 0; c < 3; c++) {
        Outcome o = run_chapter(chapters[c], "--backward");
        refuses(&o, "no backward pass; chapters 1, 4, 5 and 8 do");
    }
    ck_assert(!file_exists("results"));
}
END_TEST

// The command that builds the variant, exactly. (The tests' build has 64 and 128.)
START_TEST(head_dim_that_is_not_built) {
    enter_folder();
    for (int chapter = 1; chapter <= 3; chapter++) {
        char command[64];
        Outcome o = run_chapter(chapter, "--head-dim 192");
        snprintf(command, sizeof command, "make chapter-%d HEAD_DIMS=\"64 128 192\"\n", chapter);
        refuses(&o, command);
        o = run_chapter(chapter, "--head-dim 200");
        snprintf(command, sizeof command, "make chapter-%d HEAD_DIMS=\"64 128 256\"\n", chapter);
        refuses(&o, command);
    }
}
END_TEST

START_TEST(results_that_is_no_folder) {
    enter_folder();
    write_text("results", "a file\n");
    Outcome o = run_chapter(1, "--seqlen 16");
    refuses(&o, "results");
    ck_assert_str_eq(file_text("results"), "a file\n");
}
END_TEST

// Root may write everywhere, so the folder is one that nobody can write: /proc.
START_TEST(folders_that_cannot_be_written) {
    enter_folder();
    Outcome o = run_chapter(1, "--seqlen 16 --csv /proc/no.csv --plot /proc/no.png");
    refuses(&o, "/proc/no.csv");
    o = run_chapter(1, "--seqlen 16 --save /proc/no");
    refuses(&o, "/proc/no");
    o = run_chapter(1, "--seqlen 16 --json /proc/no.json");
    refuses(&o, "/proc/no.json");
}
END_TEST

// ---- .npy files, one of them bad

static void good_input(void) {
    Array a = array_make(1, 16, 2, 64, true);
    ck_assert_int_eq(mkdir("in", 0755), 0);
    array_write("in/q.npy", &a);
    array_write("in/k.npy", &a);
    array_write("in/v.npy", &a);
    array_write("in/dout.npy", &a);
}

static void write_shape(const char *path, long a, long b, long c, long d) {
    Array array = array_make(a, b, c, d, true);
    array_write(path, &array);
}

// Replaces a word in the header by one of the same length.
static void edit_header(const char *path, const char *word, const char *other) {
    char start[128];
    FILE *stream = fopen(path, "r+b");
    ck_assert_int_eq(fread(start, 1, sizeof start, stream), sizeof start);
    for (size_t i = 10; i + strlen(word) < sizeof start; i++) {
        if (memcmp(start + i, word, strlen(word)) != 0) continue;
        fseek(stream, (long)i, SEEK_SET);
        fputs(other, stream);
        fclose(stream);
        return;
    }
    ck_abort_msg("no %s in the header", word);
}

enum { FILE_CASES = 17 };

static const char *damage(int which) {
    switch (which) {
    case 0: unlink("in/q.npy"); return "in/q.npy";
    case 1: unlink("in/v.npy"); return "in/v.npy";
    case 2: ck_assert_int_eq(truncate("in/k.npy", 1000), 0); return "in/k.npy";
    case 3: ck_assert_int_eq(truncate("in/k.npy", 60), 0); return "in/k.npy";
    case 4: write_text("in/q.npy", ""); return "in/q.npy";
    case 5: write_text("in/q.npy", "this is text, not an array of numbers\n"); return "in/q.npy";
    case 6: write_shape("in/v.npy", 1, 17, 2, 64); return "k.npy and v.npy differ in shape";
    case 7:
        write_shape("in/k.npy", 2, 16, 2, 64);
        write_shape("in/v.npy", 2, 16, 2, 64);
        return "q.npy has batch 1, k.npy 2";
    case 8:
        write_shape("in/k.npy", 1, 16, 2, 32);
        write_shape("in/v.npy", 1, 16, 2, 32);
        return "head_dim";
    case 9:
        write_shape("in/k.npy", 1, 16, 3, 64);
        write_shape("in/v.npy", 1, 16, 3, 64);
        return "2 query heads are no multiple of 3";
    case 10: edit_header("in/k.npy", "'<f2'", "'<f8'"); return "in/k.npy";
    case 11: edit_header("in/k.npy", "'<f2'", "'>f2'"); return "in/k.npy";
    case 12: edit_header("in/q.npy", "False", "True "); return "in/q.npy";
    case 13: edit_header("in/q.npy", "(1, 16, 2, 64)", "(1, 16, 128)  "); return "3 dimensions";
    case 14: edit_header("in/q.npy", "16", "99"); return "in/q.npy";
    case 15: edit_header("in/q.npy", "'<f2'", "'<i4'"); return "in/q.npy";
    default:
        unlink("in/q.npy");
        ck_assert_int_eq(mkdir("in/q.npy", 0755), 0);
        return "in/q.npy";
    }
}

START_TEST(bad_files) {
    enter_folder();
    good_input();
    const char *words = damage(_i);
    char *before = listing();
    Outcome o = run_chapter(1 + _i % 3, "--input in --json - --save out");
    refuses(&o, words);
    ck_assert_str_eq(listing(), before);
}
END_TEST

START_TEST(bad_gradient_files) {
    enter_folder();
    good_input();
    write_shape("in/dout.npy", 1, 16, 1, 64);
    Outcome o = run_chapter(1, "--input in --backward");
    refuses(&o, "dout.npy and q.npy differ in shape");
    unlink("in/dout.npy");
    o = run_chapter(1, "--input in --backward");
    refuses(&o, "in/dout.npy: not there; the backward pass takes");
    ck_assert(!file_exists("results"));
}
END_TEST

START_TEST(values_that_overflow_the_dtype) {
    enter_folder();
    good_input();
    Array a = array_make(1, 16, 2, 64, false);
    a.values[77] = 70000;
    array_write("in/v.npy", &a);
    Outcome o = run_chapter(1, "--input in");
    refuses(&o, "v.npy: 70000 overflows fp16");
    o = run_chapter(1, "--input in --dtype fp32 --check-only --json -");
    every_step_is_ok(&o, outcome_json(&o, 0));
}
END_TEST

// The environment's settings of softgpu are read as strictly.
START_TEST(bad_environment) {
    static const char *const settings[][2] = {{"SOFTGPU_SMS", "none"},
                                              {"SOFTGPU_SAMPLE", "x"},
                                              {"SOFTGPU_THREADS", "-3"},
                                              {"SOFTGPU_SAMPLE", "500"}};
    enter_folder();
    setenv(settings[_i][0], settings[_i][1], 1);
    Outcome o = run_chapter(1, "--seqlen 16 --check-only");
    unsetenv(settings[_i][0]);
    ck_assert_msg(o.status == 2, "status %d\n%s", o.status, o.err);
    ck_assert_msg(strstr(o.err, settings[_i][0]) != NULL, "%s", o.err);
}
END_TEST

START_TEST(help_and_list) {
    enter_folder();
    for (int chapter = 1; chapter <= 3; chapter++) {
        Outcome o = run_chapter(chapter, "--help");
        ck_assert(o.status == 0 && o.err[0] == 0 && strstr(o.out, "--schedule") != NULL);
        o = run_chapter(chapter, "--list");
        ck_assert(o.status == 0 && o.err[0] == 0 && strstr(o.out, "naive") != NULL);
        for (int s = 0; s < own_step_count; s++)
            if (own_steps[s].chapter == chapter)
                ck_assert(strstr(o.out, own_steps[s].name) != NULL);
    }
    ck_assert(!file_exists("results"));
}
END_TEST

Suite *suite_usage(void) {
    Suite *suite = suite_create("chapters: bad usage and input");
    TCase *tests = tcase_create("usage");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, bad_usage, 0, USAGE);
    tcase_add_loop_test(tests, nothing_is_left_behind, 0, 7);
    tcase_add_test(tests, backward_where_there_is_none);
    tcase_add_test(tests, head_dim_that_is_not_built);
    tcase_add_test(tests, results_that_is_no_folder);
    tcase_add_test(tests, folders_that_cannot_be_written);
    tcase_add_loop_test(tests, bad_files, 0, FILE_CASES);
    tcase_add_test(tests, bad_gradient_files);
    tcase_add_test(tests, values_that_overflow_the_dtype);
    tcase_add_loop_test(tests, bad_environment, 0, 4);
    tcase_add_test(tests, help_and_list);
    suite_add_tcase(suite, tests);
    return suite;
}
