// The command line and the problems that it makes.
#include <check.h>
#include <math.h>
#include <string.h>

#include "fake_steps.h"
#include "harness/options.h"
#include "harness/run.h"

static const Step *const steps[] = {&fake_naive, &fake_exhibit, &fake_forward_only};
static const Chapter test_chapter = {.number = 2,
                                     .folder = "02_tiled",
                                     .title = "test",
                                     .gpu = "h100",
                                     .min_capability = 80,
                                     .has_backward = true,
                                     .steps = steps,
                                     .step_count = 3,
                                     .check = {1, 4, 2, 300, 310, 64, DTYPE_FP16, false, 0},
                                     .timing = {2, 8, 8, 4096, 4096, 128, DTYPE_FP16, false, 4}};
static const int built[] = {64, 128, 0};

static bool read_line(const char *line, Options *options, Message *message) {
    static char words[512];
    char *argv[32] = {"run"};
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    return options_read(argc, argv, &test_chapter, options, message);
}

static bool make(const char *line, Problem *p, Message *message) {
    Options o;
    return read_line(line, &o, message) &&
           problem_make(&o, &test_chapter, &test_chapter.check, built, p, message);
}

// One line that names the option and what to do.
START_TEST(bad_usage_is_refused) {
    static const char *const lines[][2] = {
        {"--nonsense", "--nonsense"},
        {"seqlen 5", "seqlen"},
        {"--seqlen", "needs a value"},
        {"--causal=yes", "takes no value"},
        {"--seqlen 0", "--seqlen 0: nothing to compute; give a whole number from 1 to"},
        {"--seqlen 0", "for an empty side --seqlen-q 0 or --seqlen-k 0"},
        {"--sweep seqlen=64,0", "--seqlen 0: nothing to compute"},
        {"--seqlen -5", "from 1"},
        {"--seqlen 12x", "whole number"},
        {"--seqlen 99999999999999999999", "whole number"},
        {"--seqlen 2147483648", "2147483647"},
        {"--seqlen-q -1", "from 0"},
        {"--batch 0", "from 1"},
        {"--heads 0", "from 1"},
        {"--heads 6 --kv-heads 4", "multiple"},
        {"--heads 2 --kv-heads 4", "multiple"},
        {"--head-dim 60", "multiple of 8"},
        {"--head-dim 264", "up to 256"},
        {"--head-dim 136", "make chapter-2 HEAD_DIMS=\"64 128 192\""},
        {"--head-dim 256", "make chapter-2 HEAD_DIMS=\"64 128 256\""},
        {"--dtype fp64", "--dtype"},
        {"--dtype fp8", "chapters 6 and 7"},
        {"--window 5", "--window"},
        {"--window 5,", "--window"},
        {"--window -2,0", "-1"},
        {"--window 0,-7", "-1"},
        {"--window a,b", "--window"},
        {"--softcap -1", "--softcap"},
        {"--softcap nan", "--softcap"},
        {"--scale inf", "--scale"},
        {"--scale 1e60", "--scale"},
        {"--seed -1", "--seed"},
        {"--schedule 1,,2", "--schedule"},
        {"--device tpu", "--device"},
        {"--gpu v100", "--gpu"},
        {"--check mem,foo", "--check"},
        {"--check races", "--check"},
        {"--async sometimes", "--async"},
        {"--numerics exact", "--numerics"},
        {"--clock -1", "--clock"},
        {"--sms 0", "--sms"},
        {"--threads zero", "--threads"},
        {"--sample -1", "--sample"},
        {"--sweep seqlen", "--sweep"},
        {"--sweep dtype=1", "can sweep"},
        {"--sweep seqlen=1,0", "from 1"},
        {"--input x --seqlen 5", "--input"},
        {"--json - --csv -", "standard output"},
        {"--strict --no-strict", "only one"},
        {"--splits 4", "chapter 9"},
        {"--deterministic", "chapter 4"},
        {"--explain --check-only", "--explain: needs times"},
        {"--sample few", "--sample few"},
        {"--launches 0", "--launches 0"},
        {"--trace x --check-only", "--trace: with --check-only"},
        {"--stats=1", "takes no value"},
        {"--batch 2147483647 --heads 2147483647", "too many"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        Problem p;
        Message message = {""};
        ck_assert_msg(!make(lines[i][0], &p, &message), "accepted: %s", lines[i][0]);
        ck_assert_msg(strstr(message.text, lines[i][1]) != NULL, "%s: %s", lines[i][0],
                      message.text);
        ck_assert_msg(strchr(message.text, '\n') == NULL, "%s: more than one line", lines[i][0]);
    }
}
END_TEST

START_TEST(sizes_and_defaults) {
    Problem p;
    Message message;
    ck_assert(make("", &p, &message));
    ck_assert_int_eq(p.heads, 4);
    ck_assert_int_eq(p.kv_heads, 2);
    ck_assert_int_eq(p.seqlen_k, 310);
    ck_assert_float_eq(p.scale, 0.125f);
    ck_assert(
        make("--seqlen=77 --heads 8 --head-dim 72 --batch=3 --causal --dtype bf16", &p, &message));
    ck_assert_int_eq(p.seqlen_q, 77);
    ck_assert_int_eq(p.seqlen_k, 77);
    ck_assert_int_eq(p.kv_heads, 8); // as many as query heads unless said
    ck_assert_int_eq(p.head_dim, 72);
    ck_assert_int_eq(p.built_head_dim, 128);
    ck_assert_float_eq(p.scale, (float)(1 / sqrt(72.0))); // of the true head_dim
    ck_assert_int_eq(p.window_right, 0);
    ck_assert_int_eq(p.window_left, -1);
    ck_assert_int_eq(p.dtype, DTYPE_BF16);
    ck_assert(make("--seqlen-q 0 --seqlen-k 0 --scale 0 --softcap 0", &p, &message));
    ck_assert_float_eq(p.scale, 0);
    ck_assert(make("--window -1,-1", &p, &message));
    ck_assert_int_eq(unmasked_pairs(&p, 0), 300 * 310);
    ck_assert(make("--seqlen 64 --window 9,0", &p, &message)); // row i sees min(i + 1, 10) keys
    ck_assert_int_eq(unmasked_pairs(&p, 0), 55 + 54 * 10);
}
END_TEST

// Where a chapter has it, fp8 is what is computed of bf16 tensors.
START_TEST(fp8_is_of_bf16) {
    Chapter later = test_chapter;
    later.number = 7;
    Options o;
    Problem p;
    Message message = {""};
    ck_assert(read_line("--dtype fp8", &o, &message));
    ck_assert(problem_make(&o, &later, &later.check, built, &p, &message));
    ck_assert(p.fp8);
    ck_assert_int_eq(p.dtype, DTYPE_BF16);
    ck_assert_str_eq(problem_dtype(&p), "fp8");
    ck_assert(read_line("--dtype bf16", &o, &message));
    ck_assert(problem_make(&o, &later, &later.check, built, &p, &message));
    ck_assert(!p.fp8);
    ck_assert_str_eq(problem_dtype(&p), "bf16");
}
END_TEST

START_TEST(flops_are_of_the_unmasked_pairs) {
    Problem p;
    Message message;
    ck_assert(make("--batch 2 --heads 3 --seqlen 100 --head-dim 64", &p, &message));
    ck_assert_double_eq(problem_flops(&p, false), 4.0 * 2 * 3 * 100 * 100 * 64);
    ck_assert_double_eq(problem_flops(&p, true), 10.0 * 2 * 3 * 100 * 100 * 64);
    ck_assert(make("--batch 2 --heads 3 --seqlen 100 --head-dim 64 --causal", &p, &message));
    ck_assert_double_eq(problem_flops(&p, false), 4.0 * 2 * 3 * 5050 * 64);
}
END_TEST

START_TEST(two_problems_unless_a_size_is_given) {
    Options o;
    Message message;
    Problem p;
    ck_assert(read_line("--causal --dtype fp32 --seed 5", &o, &message));
    ck_assert(!options_size_given(&o));
    ck_assert(problem_make(&o, &test_chapter, &test_chapter.timing, built, &p, &message));
    ck_assert_int_eq(p.seqlen_q, 4096);
    ck_assert_int_eq(p.sample, 4);
    ck_assert_int_eq(p.seed, 5);
    ck_assert(read_line("--seqlen-k 9", &o, &message));
    ck_assert(options_size_given(&o));
    ck_assert(problem_make(&o, &test_chapter, &test_chapter.timing, built, &p, &message));
    ck_assert_int_eq(p.sample, 0);
}
END_TEST

START_TEST(lists) {
    Options o;
    Message message;
    ck_assert(
        read_line("--sweep seqlen-k=0,7,512 --schedule 0,3,18446744073709551615", &o, &message));
    ck_assert_str_eq(o.sweep, "seqlen-k");
    ck_assert_int_eq(o.swept_count, 3);
    ck_assert_int_eq(o.swept[2], 512);
    ck_assert_int_eq(o.schedule_count, 3);
    ck_assert(o.schedules[2] == UINT64_MAX);

    bool chosen[3];
    ck_assert(steps_choose(&test_chapter, NULL, false, chosen, &message));
    ck_assert(chosen[0] && !chosen[1] && chosen[2]); // an exhibit runs only when named
    ck_assert(steps_choose(&test_chapter, "2,forward-only", false, chosen, &message));
    ck_assert(!chosen[0] && chosen[1] && chosen[2]);
    ck_assert(steps_choose(&test_chapter, "all,first-attempt", false, chosen, &message));
    ck_assert(chosen[0] && chosen[1] && chosen[2]);
    ck_assert(!steps_choose(&test_chapter, "4", false, chosen, &message));
    ck_assert(!steps_choose(&test_chapter, "0", false, chosen, &message));
    ck_assert(!steps_choose(&test_chapter, "naive,", false, chosen, &message));
    ck_assert(!steps_choose(&test_chapter, "naiv", false, chosen, &message));
}
END_TEST

Suite *suite_options(void);
Suite *suite_options(void) {
    Suite *suite = suite_create("harness: options");
    TCase *all = tcase_create("options");
    tcase_add_test(all, bad_usage_is_refused);
    tcase_add_test(all, sizes_and_defaults);
    tcase_add_test(all, fp8_is_of_bf16);
    tcase_add_test(all, flops_are_of_the_unmasked_pairs);
    tcase_add_test(all, two_problems_unless_a_size_is_given);
    tcase_add_test(all, lists);
    suite_add_tcase(suite, all);
    return suite;
}
