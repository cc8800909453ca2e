// A cache of keys and values: what the options make of it, where its keys stand, what a run says of
// steps that read or write it wrongly. On a runtime that executes on the CPU (fake_runtime.c).
#include <check.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_steps.h"
#include "harness/cache.h"
#include "harness/check.h"
#include "harness/convert.h"
#include "harness/random.h"
#include "harness/report.h"
#include "harness/rotary.h"
#include "harness/run.h"

// ---- steps that are wrong in what they do to the cache

static cudaError_t forgets_to_append(const Attention *a) {
    size_t room = (size_t)(a->batch * a->cache_rows * a->kv_heads * a->head_dim) * 2;
    void *k = malloc(room), *v = malloc(room);
    memcpy(k, a->k, room);
    memcpy(v, a->v, room);
    Attention copy = *a;
    copy.k = copy.k_cache = k;
    copy.v = copy.v_cache = v;
    cudaError_t error = fake_naive.forward(&copy);
    free(k);
    free(v);
    return error;
}

static cudaError_t changes_an_old_key(const Attention *a) {
    cudaError_t error = fake_naive.forward(a);
    ((uint16_t *)a->v_cache)[a->head_dim + 3] ^= 1; // of key 0, head 1
    return error;
}

static cudaError_t writes_behind_the_last(const Attention *a) {
    cudaError_t error = fake_naive.forward(a);
    size_t row = (size_t)(a->kv_heads * a->head_dim);
    ((uint16_t *)a->k_cache)[(size_t)(a->cache_seqlens[0] + a->new_keys) * row] = 0;
    return error;
}

static cudaError_t reads_one_too_many(const Attention *a) {
    int longer[8];
    Attention copy = *a;
    for (int b = 0; b < a->batch; b++) longer[b] = a->cache_seqlens[b] + 1;
    copy.cache_seqlens = longer;
    return fake_naive.forward(&copy);
}

#define STEP(function)                                                                             \
    { .chapter = 9, .name = #function, .forward = function, .cache = true }
static const Step no_append = STEP(forgets_to_append), old_key = STEP(changes_an_old_key),
                  behind = STEP(writes_behind_the_last), too_many = STEP(reads_one_too_many),
                  paged = {.chapter = 9,
                           .name = "paged",
                           .forward = forgets_to_append, // never called with the wrong kind
                           .cache = true,
                           .page_size = 4};

static const Step *const steps[] = {&fake_naive, &fake_forward_only, &no_append, &old_key,
                                    &behind,     &too_many,          &paged};
enum { STEPS = sizeof steps / sizeof *steps };
static const Chapter with = {.number = 9,
                             .title = "test",
                             .gpu = "h200",
                             .min_capability = 80,
                             .has_sinks = true,
                             .has_cache = true,
                             .memory_bound = true,
                             .steps = steps,
                             .step_count = STEPS,
                             .check = {1, 2, 1, 3, 63, 64, DTYPE_FP16, false, 0}};
static const Chapter without = {.number = 3, .title = "test", .gpu = "h100", .steps = steps};
static const int built[] = {64, 0};
static Options options;
static Run run;
static bool chosen[STEPS];

static bool read_line(const char *line, const Chapter *chapter, Message *message) {
    static char words[256];
    char *argv[16] = {"run"};
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    return options_read(argc, argv, chapter, &options, message);
}

static Problem problem_of(const char *line) {
    Problem p;
    Message message = {""};
    ck_assert_msg(read_line(line, &with, &message), "%s", message.text);
    ck_assert_msg(problem_make(&options, &with, &with.check, built, &p, &message), "%s",
                  message.text);
    return p;
}

// ---- options

START_TEST(lengths_make_a_cache) {
    Problem p = problem_of("--cache-seqlens 5,0,30 --append 2 --seqlen-q 2 --heads 4 --causal");
    ck_assert(p.cache.there && options_size_given(&options));
    ck_assert_int_eq(p.batch, 3);
    ck_assert_int_eq(p.seqlen_k, 32);
    ck_assert(p.cache.rows > 32); // the room is never just what is used
    ck_assert_int_eq(key_length(&p, 0), 7);
    ck_assert_int_eq(key_length(&p, 1), 2);
    ck_assert_int_eq(cached_keys(&p, 1), 0);
    ck_assert_int_eq(total_keys(&p), 7 + 2 + 32);
    // Pairs of a causal block of two rows: all keys, less one for the first row.
    ck_assert_double_eq(problem_flops(&p, false), 4.0 * 4 * (13 + 3 + 63) * 64);
}
END_TEST

START_TEST(equal_lengths_make_one_too) {
    Problem p = problem_of("--batch 2 --seqlen-k 20 --page-size 8 --append 3");
    ck_assert_ptr_null(p.cache.seqlens);
    ck_assert_int_eq(key_length(&p, 1), 20);
    ck_assert_int_eq(cached_keys(&p, 1), 17);
    ck_assert_int_eq(p.cache.table_columns, 4);
    ck_assert_int_eq(p.cache.rows, 32);
    ck_assert(p.cache.pages > 6);
    p = problem_of("--splits 3");
    ck_assert(!p.cache.there);
    ck_assert_int_eq(p.splits, 3);
}
END_TEST

START_TEST(bad_options_are_refused) {
    static const char *const lines[][2] = {
        {"--cache-seqlens ,", "--cache-seqlens ,: give the keys"},
        {"--cache-seqlens 5,", "give the keys"},
        {"--cache-seqlens 5,-1", "give the keys"},
        {"--cache-seqlens 5,3x", "give the keys"},
        {"--cache-seqlens 2147483648", "give the keys"},
        {"--cache-seqlens 5,3 --batch 2", "says the batch"},
        {"--cache-seqlens 5,3 --seqlen-k 9", "says the batch"},
        {"--cache-seqlens 5,3 --seqlen 9", "says the batch"},
        {"--cache-seqlens 5,3 --sweep batch=1,2", "says the batch"},
        {"--page-size 0", "--page-size 0: give a whole number"},
        {"--splits 0", "--splits 0: give a whole number"},
        {"--append -1", "--append -1: give a whole number"},
        {"--append 21 --seqlen-k 20", "--seqlen-k 20 counts the new keys too"},
        {"--cache-seqlens 2147483647 --append 1", "2^31 - 1 keys"},
        {"--rotary 8", "give --append N too"},
        {"--rotary 7 --append 1", "an even number"},
        {"--rotary 66 --append 1", "up to head_dim, 64"},
        {"--rotary-interleaved --append 1", "give it"},
        {"--fp8-cache --append 1", "without --append"},
        {"--fp8-cache --dtype fp32", "fp16 or bf16"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        Message message = {""};
        Problem p;
        ck_assert_msg(!read_line(lines[i][0], &with, &message) ||
                          !problem_make(&options, &with, &with.check, built, &p, &message),
                      "accepted: %s", lines[i][0]);
        ck_assert_msg(strstr(message.text, lines[i][1]) != NULL, "%s: %s", lines[i][0],
                      message.text);
    }
}
END_TEST

START_TEST(other_chapters_have_none) {
    static const char *const lines[] = {"--cache-seqlens 5", "--page-size 4", "--append 1",
                                        "--rotary 8",        "--fp8-cache",   "--splits 2"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        Message message = {""};
        ck_assert(!read_line(lines[i], &without, &message));
        ck_assert_ptr_nonnull(strstr(message.text, "it comes with chapter 9"));
    }
    Message message = {""};
    ck_assert(!read_line("--sweep splits=1,2", &without, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "--sweep splits: can sweep"));
    ck_assert(read_line("--sweep splits=1,2", &with, &message));
    ck_assert(!options_size_given(&options));
}
END_TEST

// ---- where keys stand

// Every page belongs to one place, in no order, and what no sequence uses is no page.
START_TEST(the_table_is_shuffled) {
    Problem p = problem_of("--cache-seqlens 65,0,16,1000 --page-size 16 --seed 5");
    int *table = cache_table(&p), in_order = 0, used = 0;
    Message message = {""};
    ck_assert(cache_table_right(&p, table, "x", &message));
    for (int64_t b = 0; b < p.batch; b++) {
        for (int64_t n = 0; n < p.cache.table_columns; n++) {
            int page = table[b * p.cache.table_columns + n];
            if (n >= table_places(&p, key_length(&p, b))) {
                ck_assert(page < 0 || page >= p.cache.pages);
                continue;
            }
            used++;
            in_order += page == used;
        }
    }
    ck_assert_int_eq(used, 5 + 0 + 1 + 63);
    ck_assert(in_order < used / 4);
    int *again = cache_table(&p);
    size_t size = (size_t)(p.batch * p.cache.table_columns) * sizeof *table;
    ck_assert_int_eq(memcmp(table, again, size), 0);
    p.seed = 6;
    free(again);
    again = cache_table(&p);
    ck_assert_int_ne(memcmp(table, again, size), 0);
    free(table);
    free(again);
}
END_TEST

// F47: ids out of range, negative, and pages that two sequences share.
START_TEST(f47_bad_tables_are_refused) {
    Problem p = problem_of("--cache-seqlens 20,9 --page-size 8");
    const int columns = p.cache.table_columns;
    static const struct {
        int place, page;
        const char *words;
    } changes[] = {{0, 99, "page 99 of sequence 0 (column 0) is not one of the"},
                   {1, -1, "page -1 of sequence 0 (column 1)"},
                   {4, INT_MAX, "page 2147483647 of sequence 1 (column 0)"},
                   {5, 0, "belongs to sequence"}};
    ck_assert_int_eq(columns, 4);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        Message message = {""};
        int *table = cache_table(&p);
        table[changes[i].place] = i == 3 ? table[2] : changes[i].page;
        ck_assert(!cache_table_right(&p, table, "x", &message));
        ck_assert_msg(strstr(message.text, changes[i].words) != NULL, "%s", message.text);
        ck_assert_ptr_nonnull(strstr(message.text, "x/block_table.npy"));
        free(table);
    }
    // What stands behind a sequence's last page is nobody's business.
    int *table = cache_table(&p);
    Message message = {""};
    table[3] = table[0];
    ck_assert_msg(cache_table_right(&p, table, "x", &message), "%s", message.text);
    free(table);
}
END_TEST

// Each key's numbers stand where the table says; all else is poison (F15), the new keys too.
START_TEST(the_rest_is_poison) {
    static const char *const lines[] = {"--cache-seqlens 5,0,30 --append 2 --kv-heads 2 --heads 2",
                                        "--cache-seqlens 5,0,30 --page-size 4 --append 2",
                                        "--cache-seqlens 9,3 --page-size 1 --dtype bf16"};
    for (int l = 0; l < 3; l++) {
        Problem p = problem_of(lines[l]);
        Inputs in;
        inputs_random(&p, false, &in);
        int *table = cache_table(&p);
        int64_t row = p.kv_heads * p.head_dim, numbers = cache_rows(&p) * row, poison = 0;
        void *bytes = malloc((size_t)numbers * 2);
        cache_fill(&p, table, in.v, NULL, bytes);
        for (int64_t b = 0; b < p.batch; b++) {
            for (int64_t j = 0; j < cached_keys(&p, b); j++) {
                for (int64_t c = 0; c < row; c++) {
                    float got = load_dtype(bytes, cache_row(&p, table, b, j) * row + c, p.dtype);
                    ck_assert_float_eq(got, in.v[(b * p.seqlen_k + j) * row + c]);
                }
            }
        }
        for (int64_t i = 0; i < numbers; i++) poison += isnan(load_dtype(bytes, i, p.dtype));
        ck_assert_int_eq(poison, numbers - (total_keys(&p) - p.batch * p.cache.new_keys) * row);
        free(bytes);
        free(table);
        inputs_free(&in);
    }
}
END_TEST

// ---- fp8

START_TEST(numbers_of_an_fp8_cache) {
    Problem p = problem_of("--cache-seqlens 50,20 --kv-heads 2 --heads 4 --fp8-cache");
    Inputs in;
    inputs_random(&p, false, &in);
    size_t row = (size_t)(p.kv_heads * p.head_dim);
    char *bytes = malloc((size_t)cache_rows(&p) * row);
    cache_fill(&p, NULL, in.k, in.k_scale, bytes);
    for (int64_t b = 0; b < p.batch; b++) {
        for (int h = 0; h < p.kv_heads; h++) {
            float scale = in.k_scale[b * p.kv_heads + h], largest = 0;
            for (int64_t j = 0; j < key_length(&p, b); j++) {
                for (int c = 0; c < p.head_dim; c++) {
                    size_t at = (size_t)cache_row(&p, NULL, b, j) * row + (size_t)(h * 64 + c);
                    float stored = float_from_e4m3((uint8_t)bytes[at]);
                    ck_assert_float_eq(stored * scale,
                                       in.k[((b * p.seqlen_k + j) * p.kv_heads + h) * 64 + c]);
                    largest = fmaxf(largest, fabsf(stored));
                }
            }
            ck_assert(largest > 100); // the scale uses the range
        }
    }
    ck_assert_float_ne(in.k_scale[0], in.k_scale[1]);
    free(bytes);
    inputs_free(&in);
}
END_TEST

// ---- the rotary embedding

static double dot_of_turned(const Problem *p, int64_t i, int64_t j, const float *x,
                            const float *y) {
    double a[256], b[256], dot = 0;
    rotary_turn(p, i, x, a);
    rotary_turn(p, j, y, b);
    for (int c = 0; c < p->head_dim; c++) dot += a[c] * b[c];
    return dot;
}

// What it is for: a score depends on how far apart two positions are, not on where they are. And
// columns behind rotary_dim stay.
START_TEST(only_distances_count) {
    static const char *const lines[] = {"--append 1 --rotary 64", "--append 1 --rotary 32",
                                        "--append 1 --rotary 32 --rotary-interleaved"};
    float x[64], y[64];
    random_normal(x, 64, 1, 2);
    random_normal(y, 64, 1, 3);
    for (int l = 0; l < 3; l++) {
        Problem p = problem_of(lines[l]);
        double near = dot_of_turned(&p, 5, 2, x, y), turned[64];
        ck_assert_double_eq_tol(dot_of_turned(&p, 1005, 1002, x, y), near, 1e-4);
        ck_assert(fabs(dot_of_turned(&p, 1005, 902, x, y) - near) > 1e-2);
        rotary_turn(&p, 77, x, turned);
        for (int c = p.cache.rotary_dim; c < 64; c++) ck_assert_double_eq(turned[c], x[c]);
        rotary_turn(&p, 0, x, turned);
        for (int c = 0; c < 64; c++) ck_assert_double_eq(turned[c], x[c]);
    }
    // Pair 1 of 32 columns, by hand: angle 1 / 10000^(2/32).
    Problem p = problem_of("--append 1 --rotary 32 --rotary-interleaved");
    double angle = pow(10000, -2.0 / 32), turned[64];
    rotary_turn(&p, 1, x, turned);
    ck_assert_double_eq_tol(turned[2], x[2] * cos(angle) - x[3] * sin(angle), 1e-6);
    ck_assert_double_eq_tol(turned[3], x[2] * sin(angle) + x[3] * cos(angle), 1e-6);
    p.cache.rotary_interleaved = false;
    rotary_turn(&p, 1, x, turned);
    ck_assert_double_eq_tol(turned[1], x[1] * cos(angle) - x[17] * sin(angle), 1e-6);
    ck_assert_double_eq_tol(turned[17], x[1] * sin(angle) + x[17] * cos(angle), 1e-6);
}
END_TEST

// F48: without a mask that depends on the row, all query rows stand at the cache's end.
START_TEST(f48_positions_of_queries) {
    Problem p = problem_of("--cache-seqlens 50,20 --append 3 --seqlen-q 3 --rotary 8");
    for (int i = 0; i < 3; i++) ck_assert_int_eq(query_position(&p, 1, i), 20);
    p = problem_of("--cache-seqlens 50,20 --append 3 --seqlen-q 3 --rotary 8 --causal");
    for (int i = 0; i < 3; i++) ck_assert_int_eq(query_position(&p, 1, i), 20 + i);
    p = problem_of("--cache-seqlens 50,20 --append 3 --seqlen-q 3 --rotary 8 --window 9,-1");
    for (int i = 0; i < 3; i++) ck_assert_int_eq(query_position(&p, 0, i), 50 + i);
    ck_assert_int_eq(rotary_positions(&p), 53);
    Inputs in;
    inputs_random(&p, false, &in);
    Inputs turned = rotary_inputs(&p, &in, false);
    double row[64];
    rotary_turn(&p, 52, in.q + 2 * 2 * 64, row); // sequence 0, row 2, head 0
    for (int c = 0; c < 64; c++) ck_assert_float_eq(turned.q[2 * 2 * 64 + c], (float)row[c]);
    rotary_turn(&p, 21, in.k + (53 + 21) * 64,
                row); // sequence 1, its second new key, as it is stored
    for (int c = 0; c < 64; c++)
        ck_assert_float_eq(turned.k[(53 + 21) * 64 + c], round_to_dtype((float)row[c], p.dtype));
    ck_assert_int_eq(memcmp(turned.k, in.k, 50 * 64 * sizeof(float)), 0); // old keys stay
    rotary_inputs_free(&turned);
    inputs_free(&in);
}
END_TEST

// ---- the reference, and what the metric counts

// F46: each sequence of a batch is as if it were alone.
START_TEST(f46_sequences_are_alone) {
    Problem p = problem_of("--cache-seqlens 40,0,17 --seqlen-q 3 --causal --heads 4 --kv-heads 2");
    Inputs in;
    Reference all;
    inputs_random(&p, false, &in);
    reference_make(&p, &in, false, &all);
    for (int b = 0; b < 3; b++) {
        Problem one = p;
        Inputs part = {
            .q = in.q + b * 3 * 4 * 64, .k = in.k + b * 40 * 2 * 64, .v = in.v + b * 40 * 2 * 64};
        Reference alone;
        one.batch = 1;
        one.seqlen_k = key_length(&p, b);
        one.cache = (Cache){0};
        reference_make(&one, &part, false, &alone);
        ck_assert_int_eq(memcmp(alone.exact.o, all.exact.o + b * 4 * 3 * 64, 4 * 3 * 64 * 8), 0);
        for (int i = 0; i < 12; i++) ck_assert(alone.exact.lse[i] == all.exact.lse[b * 12 + i]);
        reference_free(&alone);
    }
    reference_free(&all);
    inputs_free(&in);
}
END_TEST

START_TEST(bytes_that_must_be_moved) {
    Problem p = problem_of("--cache-seqlens 40,0,17 --seqlen-q 3 --heads 4 --kv-heads 2");
    double queries = 3.0 * 3 * 4 * (2 * 2 * 64 + 4);
    ck_assert_double_eq(problem_bytes(&p), 2.0 * 57 * 2 * 2 * 64 + queries);
    p = problem_of("--cache-seqlens 40,0,17 --seqlen-q 3 --heads 4 --kv-heads 2 --fp8-cache");
    ck_assert_double_eq(problem_bytes(&p), 2.0 * 57 * 2 * 64 + queries);
    // Three rows that see 10 keys before theirs: 12 of them, or all 17 less what nobody sees.
    p = problem_of("--cache-seqlens 40,0,17 --seqlen-q 3 --heads 4 --kv-heads 2 --window 9,0");
    ck_assert_double_eq(problem_bytes(&p), 2.0 * 24 * 2 * 2 * 64 + queries);
}
END_TEST

// ---- runs

static bool run_on(const Device *device, const char *line, const char *step_list,
                   Message *message) {
    fake_steps_reset();
    ck_assert_msg(read_line(line, &with, message), "%s", message->text);
    run = (Run){.chapter = &with, .options = &options, .device = device, .chosen = chosen};
    run.same = true;
    ck_assert(steps_choose(&with, step_list, false, chosen, message));
    ck_assert_msg(problem_make(&options, &with, &with.check, built, &run.checked, message), "%s",
                  message->text);
    run.timed = run.checked;
    return run_steps(&run, message);
}

static bool run_line(const char *line, const char *step_list, Message *message) {
    return run_on(&fake_gpu, line, step_list, message);
}

START_TEST(a_right_step_passes) {
    static const char *const lines[] = {
        "--cache-seqlens 40,0,17 --seqlen-q 3 --heads 4 --kv-heads 2 --sink",
        "--cache-seqlens 40,0,17 --seqlen-q 3 --causal --page-size 16",
        "--cache-seqlens 40,0,17 --append 3 --seqlen-q 3 --causal --page-size 3 --heads 2",
        "--cache-seqlens 40,0,1 --append 1 --dtype bf16 --window 5,0",
        "--cache-seqlens 0,0 --page-size 16",
        "--batch 2 --seqlen-k 30 --append 30 --dtype fp32 --head-dim 40",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        Message message;
        ck_assert_msg(run_line(lines[i], "naive", &message), "%s", message.text);
        ck_assert_msg(run.results[0].ok == 1, "%s: %s %s", lines[i],
                      run.results[0].tensors[TENSOR_O].report, run.results[0].cache_report);
        ck_assert_int_eq(run.status, 0);
        run_free(&run);
    }
}
END_TEST

START_TEST(wrong_ones_do_not) {
    static const char *const wrong[][2] = {
        {"forgets_to_append", "cache's k: key 20 of sequence 0, head 0, is not what was to be"},
        {"changes_an_old_key", "cache's v: row 0 of head 1 has changed"},
        {"writes_behind_the_last", "cache's k: row 22 of head 0 has changed"},
    };
    for (int w = 0; w < 3; w++) {
        Message message;
        ck_assert(run_line("--cache-seqlens 20,9 --append 2 --seqlen-q 2 --heads 2 --kv-heads 2",
                           wrong[w][0], &message));
        ck_assert_int_eq(run.results[0].ok, 0);
        ck_assert(run.results[0].tensors[TENSOR_O].ok); // nothing else is wrong
        ck_assert_msg(strstr(run.results[0].cache_report, wrong[w][1]) != NULL, "%s",
                      run.results[0].cache_report);
        ck_assert_int_eq(run.status, 1);
        char *text;
        size_t size;
        FILE *stream = open_memstream(&text, &size);
        print_table(stream, &run);
        fclose(stream);
        ck_assert_ptr_nonnull(strstr(text, run.results[0].cache_report));
        free(text);
        run_free(&run);
    }
    Message message;
    ck_assert(run_line("--cache-seqlens 20,9", "reads_one_too_many", &message));
    ck_assert(run.results[0].tensors[TENSOR_O].wrong > 0); // the tail is NaN
    ck_assert_int_eq(run.status, 1);
    run_free(&run);
}
END_TEST

START_TEST(others_are_not_asked) {
    Message message;
    ck_assert(run_line("--cache-seqlens 9,4", "naive,forward-only", &message));
    ck_assert_ptr_nonnull(strstr(run.results[1].refused, "no cache"));
    ck_assert_ptr_nonnull(strstr(run.results[1].refused, "chapter 9"));
    ck_assert_int_eq(run.results[0].ok, 1);
    run_free(&run);
}
END_TEST

// A step that wants pages gets them where nobody says otherwise, and others don't.
START_TEST(a_steps_own_pages) {
    Problem p = problem_of("--seqlen-k 30");
    Problem own = cache_for_step(&p, &paged);
    ck_assert(!p.cache.there && own.cache.there);
    ck_assert_int_eq(own.cache.page_size, 4);
    ck_assert_int_eq(own.cache.table_columns, 9);
    ck_assert_int_eq(key_length(&own, 0), 30);
    own = cache_for_step(&p, &fake_naive);
    ck_assert(!own.cache.there);
    p = problem_of("--seqlen-k 30 --page-size 7");
    own = cache_for_step(&p, &paged);
    ck_assert_int_eq(own.cache.page_size, 7);
}
END_TEST

START_TEST(results_say_what_was_asked) {
    Message message;
    Device device = fake_gpu;
    char *text;
    size_t size;
    device.hbm_bytes_per_s = 1e9;
    ck_assert(run_on(&device, "--cache-seqlens 9,0 --append 2 --page-size 4 --splits 3", "naive",
                     &message));
    const StepResult *r = &run.results[0];
    ck_assert_double_eq_tol(r->hbm_fraction, problem_bytes(&run.timed) / (r->time_us * 1e3), 1e-9);
    FILE *stream = open_memstream(&text, &size);
    write_json(stream, &run);
    fclose(stream);
    ck_assert_ptr_nonnull(strstr(text,
                                 "\"splits\": 3, \"cache\": {\"seqlens\": [9, 0], \"rows\": 16, "
                                 "\"page_size\": 4, \"pages\": 7, \"new_keys\": 2, "));
    ck_assert_ptr_nonnull(strstr(text, "\"hbm_fraction\": 0."));
    free(text);
    stream = open_memstream(&text, &size);
    print_table(stream, &run);
    fclose(stream);
    ck_assert_ptr_nonnull(strstr(text, "% HBM"));
    ck_assert_ptr_nonnull(strstr(text, "3 splits · 7 pages of 4 keys · 2 new keys"));
    free(text);
    run_free(&run);
}
END_TEST

Suite *suite_cache(void);
Suite *suite_cache(void) {
    Suite *suite = suite_create("harness: a cache of keys and values");
    TCase *asked = tcase_create("options");
    tcase_add_test(asked, lengths_make_a_cache);
    tcase_add_test(asked, equal_lengths_make_one_too);
    tcase_add_test(asked, bad_options_are_refused);
    tcase_add_test(asked, other_chapters_have_none);
    TCase *contents = tcase_create("contents");
    tcase_add_test(contents, the_table_is_shuffled);
    tcase_add_test(contents, f47_bad_tables_are_refused);
    tcase_add_test(contents, the_rest_is_poison);
    tcase_add_test(contents, numbers_of_an_fp8_cache);
    tcase_add_test(contents, only_distances_count);
    tcase_add_test(contents, f48_positions_of_queries);
    TCase *runs = tcase_create("runs");
    tcase_add_test(runs, f46_sequences_are_alone);
    tcase_add_test(runs, bytes_that_must_be_moved);
    tcase_add_test(runs, a_right_step_passes);
    tcase_add_test(runs, wrong_ones_do_not);
    tcase_add_test(runs, others_are_not_asked);
    tcase_add_test(runs, a_steps_own_pages);
    tcase_add_test(runs, results_say_what_was_asked);
    suite_add_tcase(suite, asked);
    suite_add_tcase(suite, contents);
    suite_add_tcase(suite, runs);
    return suite;
}
