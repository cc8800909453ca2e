// How many SMs a timed run simulates: as many as hold what the blocks of one head share.
#include <check.h>
#include <string.h>

#include "harness/sample.h"

static const Chapter test_chapter = {.number = 3,
                                     .title = "test",
                                     .gpu = "h100",
                                     .min_capability = 80,
                                     .check = {1, 2, 2, 397, 397, 64, DTYPE_FP16, false, 0},
                                     .timing = {5, 16, 16, 2048, 2048, 64, DTYPE_FP16, false, 2}};
static const int built[] = {64, 128, 0};
static const SoftgpuInterface interface; // never called: it is enough that softgpu is there
static Device device;
static Options options;
static Run run;

// The run that a command line makes. False: refused.
static bool make(char *line, int sms, bool backward, Message *message) {
    char *argv[16] = {"run"};
    int argc = 1;
    for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }
    ck_assert(options_read(argc, argv, &test_chapter, &options, message));
    // An H100's share for each SM.
    device = (Device){.softgpu = &interface, .sms = sms, .l2_bytes = (size_t)sms * 397187};
    run = (Run){.chapter = &test_chapter, .options = &options, .device = &device};
    run.backward = backward;
    run.same = options_size_given(&options);
    const DefaultProblem *timing = run.same ? &test_chapter.check : &test_chapter.timing;
    ck_assert(problem_make(&options, &test_chapter, timing, built, &run.timed, message));
    run.checked = run.timed;
    if (!run.same) run.checked.sample = 0;
    return sample_fit(&run, message);
}

static const struct {
    const char *line;
    int sms;
    bool backward;
    int sample;
} fits[] = {
    {"", 132, false, 2},             // K and V of a head: 512 KB; two SMs' share: 794 KB
    {"--dtype fp32", 132, false, 4}, // 1 MB, and a quarter more
    {"", 132, true, 4},              // Q, dO and sums of dQ: 1 MB
    {"--dtype fp32", 132, true, 5},
    {"--dtype fp32", 3, false, 2}, // not even all of the L2 holds it: as the chapter says
    {"--sample 1", 132, false, 1}, // asked for is asked for
    {"--sample 132", 132, false, 0},
    {"--sample 0", 132, false, 0},
    {"", 2, false, 0},
    {"", 1, false, 0},
    {"--seqlen 4096 --sample 3", 132, false, 3},
    {"--seqlen 4096", 132, false, 0},
};
enum { FITS = sizeof fits / sizeof *fits };

START_TEST(the_share_holds_a_head) {
    char line[64];
    Message message = {""};
    strcpy(line, fits[_i].line);
    ck_assert(make(line, fits[_i].sms, fits[_i].backward, &message));
    ck_assert_msg(run.timed.sample == fits[_i].sample, "%s on %d SMs: %d", fits[_i].line,
                  fits[_i].sms, run.timed.sample);
    ck_assert_int_eq(run.checked.sample, run.same ? run.timed.sample : 0);
}
END_TEST

START_TEST(more_sms_than_there_are) {
    char line[] = "--sample 133";
    Message message = {""};
    ck_assert(!make(line, 132, false, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "--sample 133: the modelled GPU has 132 SMs"));
}
END_TEST

START_TEST(a_share_that_is_too_small_is_told) {
    double share, needed;
    int enough;
    Message message = {""};
    char small[] = "--batch 5 --heads 16 --seqlen 2048 --head-dim 128 --sample 2";
    ck_assert(make(small, 132, false, &message));
    ck_assert(sample_too_small(&run, &share, &needed, &enough));
    ck_assert_double_eq(share, 2 * 397187);
    ck_assert_double_eq(needed, 2 * 2 * 2048 * 128);
    ck_assert_int_eq(enough, 4);
    char large[] = "--batch 5 --heads 16 --seqlen 2048 --head-dim 128 --sample 4";
    ck_assert(make(large, 132, false, &message));
    ck_assert(!sample_too_small(&run, &share, &needed, &enough));
    char all[] = "--batch 5 --heads 16 --seqlen 2048 --head-dim 128";
    ck_assert(make(all, 132, false, &message));
    ck_assert(!sample_too_small(&run, &share, &needed, &enough));
    char padded[] = "--seqlen 2048 --head-dim 72 --sample 2"; // buffers have 128 columns
    ck_assert(make(padded, 132, false, &message));
    ck_assert(sample_too_small(&run, &share, &needed, &enough));
}
END_TEST

// A few SMs whatever the sizes and the chapter, and as many as the data need.
START_TEST(auto_is_a_few_or_enough) {
    Message message;
    char few[] = "--seqlen 300 --sample auto";
    ck_assert(make(few, 132, false, &message));
    ck_assert_int_eq(run.timed.sample, 4);
    ck_assert_int_eq(run.checked.sample, 4); // both are one
    char enough[] = "--seqlen 16384 --head-dim 128 --sample auto";
    ck_assert(make(enough, 132, false, &message));
    // 1.25 · 2 · 2 · 16384 · 128 bytes over 397187 for each SM
    ck_assert_int_eq(run.timed.sample, 27);
    char default_sizes[] = "--sample auto";
    ck_assert(make(default_sizes, 132, false, &message));
    ck_assert_int_eq(run.timed.sample, 4);
    ck_assert_int_eq(run.checked.sample, 0);
    char all[] = "--seqlen 300 --sample auto";
    ck_assert(make(all, 4, false, &message));
    ck_assert_int_eq(run.timed.sample, 0);
}
END_TEST

Suite *suite_sample(void);
Suite *suite_sample(void) {
    Suite *suite = suite_create("harness: sample");
    TCase *all = tcase_create("sample");
    tcase_add_loop_test(all, the_share_holds_a_head, 0, FITS);
    tcase_add_test(all, auto_is_a_few_or_enough);
    tcase_add_test(all, more_sms_than_there_are);
    tcase_add_test(all, a_share_that_is_too_small_is_told);
    suite_add_tcase(suite, all);
    return suite;
}
