// Score mods and mask mods on the host: their names, the ranges of keys that masks leave beside the
// predicates that define them, and the reference beside three loops.
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_steps.h"
#include "harness/mods.h"
#include "harness/options.h"
#include "harness/reference.h"

static const Step *const steps[] = {&fake_naive};
static const Chapter with = {.number = 8,
                             .title = "test",
                             .gpu = "b200",
                             .min_capability = 80,
                             .has_mods = true,
                             .steps = steps,
                             .step_count = 1,
                             .check = {1, 4, 2, 21, 37, 64, DTYPE_FP16, false, 0}};
static const Chapter without = {
    .number = 3, .title = "test", .gpu = "h100", .steps = steps, .step_count = 1, .check = {0}};
static const int built[] = {64, 0};
static Options options;

static bool read_line(const char *line, const Chapter *chapter, Message *message) {
    static char words[256];
    enum { MOST_WORDS = 32 };
    char *argv[MOST_WORDS] = {"run"};
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
        ck_assert_int_lt(argc, MOST_WORDS);
        argv[argc++] = word;
    }
    return options_read(argc, argv, chapter, &options, message);
}

static Problem problem_of(const char *line) {
    Problem p;
    Message message;
    ck_assert_msg(read_line(line, &with, &message), "%s: %s", line, message.text);
    ck_assert(problem_make(&options, &with, &with.check, built, &p, &message));
    return p;
}

START_TEST(names_and_numbers) {
    char text[64];
    Problem p = problem_of("--seqlen 5");
    ck_assert_int_eq(p.score_mod, SCORE_NONE);
    ck_assert_int_eq(p.mask_mod, MASK_NONE);
    p = problem_of("--score-mod alibi --mask-mod window:17");
    ck_assert_str_eq(score_mod_text(&p, text, sizeof text), "alibi");
    ck_assert_str_eq(mask_mod_text(&p, text, sizeof text), "window:17");
    ck_assert_int_eq(p.mask_number, 17);
    p = problem_of("--score-mod softcap --mask-mod prefix-lm");
    ck_assert_str_eq(score_mod_text(&p, text, sizeof text), "softcap:20");
    ck_assert_str_eq(mask_mod_text(&p, text, sizeof text), "prefix-lm:256");
    p = problem_of("--score-mod softcap:2.5 --mask-mod none");
    ck_assert_double_eq(score_cap(&p), 2.5);
    p = problem_of("--softcap 3 --mask-mod document");
    ck_assert_double_eq(score_cap(&p), 3);
    ck_assert_int_eq(p.mask_number, 8);
}
END_TEST

START_TEST(bad_names_are_refused) {
    static const char *const lines[][2] = {
        {"--score-mod tanh", "--score-mod tanh: one of none, alibi, softcap[:X]"},
        {"--mask-mod doc", "--mask-mod doc: one of none, causal, window[:N], document[:N]"},
        {"--mask-mod windows", "--mask-mod windows: one of"},
        {"--score-mod", "--score-mod needs a value"},
        {"--score-mod alibi:3", "alibi takes no number"},
        {"--mask-mod causal:1", "causal takes no number"},
        {"--mask-mod window:", "give a whole number from 0"},
        {"--mask-mod window:-1", "give a whole number from 0"},
        {"--mask-mod window:1.5", "give a whole number from 0"},
        {"--mask-mod window:9999999999", "give a whole number from 0 to 2147483647"},
        {"--mask-mod document:0", "give a whole number from 1"},
        {"--score-mod softcap:0", "give a number from 1e-06"},
        {"--score-mod softcap:x", "give a number from 1e-06"},
        {"--softcap 5 --score-mod alibi", "--softcap and --score-mod: only one of them"},
    };
    for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
        Message message;
        ck_assert_msg(!read_line(lines[l][0], &with, &message), "%s", lines[l][0]);
        ck_assert_msg(strstr(message.text, lines[l][1]) != NULL, "%s: %s", lines[l][0],
                      message.text);
    }
    Message message;
    ck_assert(!read_line("--score-mod alibi", &without, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "it comes with chapter 8"));
    ck_assert(!read_line("--mask-mod", &without, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "it comes with chapter 8"));
}
END_TEST

// ---- masks: the predicates, as FlexAttention's users write them

static bool sees(const Problem *p, int64_t b, int64_t i, int64_t j) {
    const int64_t position = i + p->seqlen_k - p->seqlen_q, n = p->mask_number;
    if (p->window_left >= 0 && j < position - p->window_left) return false;
    if (p->window_right >= 0 && j > position + p->window_right) return false;
    switch (p->mask_mod) {
    case MASK_NONE: return true;
    case MASK_CAUSAL: return position >= j;
    case MASK_WINDOW: return position >= j && position - j <= n;
    case MASK_PREFIX_LM: return position >= j || j < n;
    case MASK_DOCUMENT: return position >= 0 && document_of(p, b, position) == document_of(p, b, j);
    }
    return false;
}

static const char *const masks[] = {"none",        "causal",       "window:0",    "window:9",
                                    "window:500",  "document:1",   "document:5",  "document:40",
                                    "prefix-lm:0", "prefix-lm:20", "prefix-lm:99"};
static const char *const shapes[] = {"--seqlen 40",
                                     "--seqlen-q 21 --seqlen-k 37",
                                     "--seqlen-q 37 --seqlen-k 21 --batch 3",
                                     "--seqlen-q 1 --seqlen-k 30",
                                     "--seqlen 33 --causal",
                                     "--seqlen-q 30 --seqlen-k 26 --window 7,3"};

START_TEST(ranges_are_what_the_predicates_say) {
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        char line[200];
        snprintf(line, sizeof line, "%s --mask-mod %s --seed 3", shapes[s], masks[_i]);
        const Problem p = problem_of(line);
        int64_t pairs = 0;
        for (int64_t b = 0; b < p.batch; b++) {
            for (int64_t i = 0; i < p.seqlen_q; i++) {
                int64_t from, to;
                visible_keys(&p, b, i, &from, &to);
                for (int64_t j = 0; j < p.seqlen_k; j++) {
                    int64_t first, end;
                    visible_rows(&p, b, j, &first, &end);
                    const bool seen = sees(&p, b, i, j);
                    pairs += seen;
                    ck_assert_msg((from <= j && j < to) == seen, "%s: row %ld, key %ld", line,
                                  (long)i, (long)j);
                    ck_assert_msg((first <= i && i < end) == seen, "%s: key %ld, row %ld", line,
                                  (long)j, (long)i);
                }
            }
        }
        ck_assert_double_eq(problem_flops(&p, false), 4.0 * p.heads * (double)pairs * p.head_dim);
    }
}
END_TEST

// Documents are cut by the seed, otherwise in each sequence, and there are as many as asked for.
START_TEST(documents) {
    const Problem p = problem_of("--seqlen 1000 --batch 2 --mask-mod document:6 --seed 4");
    const Problem other = problem_of("--seqlen 1000 --batch 2 --mask-mod document:6 --seed 5");
    bool same_sequence = true, same_seed = true;
    for (int64_t j = 0; j < 1000; j++) {
        const int document = document_of(&p, 0, j);
        ck_assert(document >= 0 && document < 6);
        if (j > 0) ck_assert_int_ge(document, document_of(&p, 0, j - 1));
        same_sequence = same_sequence && document == document_of(&p, 1, j);
        same_seed = same_seed && document == document_of(&other, 0, j);
    }
    ck_assert_int_eq(document_of(&p, 0, 999), 5);
    ck_assert(!same_sequence && !same_seed);
}
END_TEST

// ---- the reference

static double modified(const Problem *p, int h, int64_t i, int64_t j, double score) {
    const double distance = (double)(i + p->seqlen_k - p->seqlen_q - j);
    if (p->score_mod == SCORE_SOFTCAP) return p->score_number * tanh(score / p->score_number);
    if (p->score_mod == SCORE_NONE) return score;
    return score - pow(2, -8.0 * (h + 1) / p->heads) * fabs(distance);
}

static void row_is_right(const Problem *p, const Inputs *in, const Results *r, int64_t b, int h,
                         int64_t i) {
    const int d = p->head_dim, kv = h / (p->heads / p->kv_heads);
    double o[64] = {0}, sum = 0;
    for (int64_t j = 0; j < p->seqlen_k; j++) {
        if (!sees(p, b, i, j)) continue;
        double score = 0;
        const int64_t row = ((b * p->seqlen_q + i) * p->heads + h) * d;
        const int64_t key = ((b * p->seqlen_k + j) * p->kv_heads + kv) * d;
        for (int c = 0; c < d; c++) score += (double)in->q[row + c] * in->k[key + c];
        const double weight = exp(modified(p, h, i, j, score * p->scale));
        sum += weight;
        for (int c = 0; c < d; c++) o[c] += weight * in->v[key + c];
    }
    const int64_t slot = (b * p->heads + h) * p->seqlen_q + i;
    if (sum == 0) ck_assert(r->lse[slot] == -INFINITY);
    if (sum > 0) ck_assert_double_eq_tol(r->lse[slot], log(sum), 1e-9);
    for (int c = 0; c < d; c++)
        ck_assert_double_eq_tol(r->o[slot * d + c], sum > 0 ? o[c] / sum : 0, 1e-9);
}

START_TEST(the_reference_is_the_formula) {
    static const char *const scores[] = {"none", "alibi", "softcap:2"};
    for (int s = 0; s < 3; s++) {
        char line[200];
        snprintf(line, sizeof line,
                 "--seqlen-q 37 --seqlen-k 33 --batch 2 --heads 4 --kv-heads 2 --head-dim 24 "
                 "--score-mod %s --mask-mod %s",
                 scores[s], masks[_i]);
        const Problem p = problem_of(line);
        Inputs in;
        Results results;
        Selection rows = {p.seqlen_q, p.seqlen_q, NULL}, keys = {p.seqlen_k, p.seqlen_k, NULL};
        inputs_random(&p, false, &in);
        reference_attention(&p, &in, &rows, &keys, false, &results);
        for (int64_t b = 0; b < p.batch; b++)
            for (int h = 0; h < p.heads; h++)
                for (int64_t i = 0; i < p.seqlen_q; i++) row_is_right(&p, &in, &results, b, h, i);
        results_free(&results);
        inputs_free(&in);
    }
}
END_TEST

Suite *suite_mods(void);
Suite *suite_mods(void) {
    const int count = sizeof masks / sizeof *masks;
    Suite *suite = suite_create("score mods and mask mods");
    TCase *tests = tcase_create("mods");
    tcase_add_test(tests, names_and_numbers);
    tcase_add_test(tests, bad_names_are_refused);
    tcase_add_loop_test(tests, ranges_are_what_the_predicates_say, 0, count);
    tcase_add_test(tests, documents);
    tcase_add_loop_test(tests, the_reference_is_the_formula, 0, count);
    suite_add_tcase(suite, tests);
    return suite;
}
