// Batches of sequences of varying lengths, and attention sinks, on the steps that take them: chapter
// 1's naive, and all of chapter 7's. Each sequence is compared with the formula, worked out here, and
// with the same step's result for it alone. Numbers are those of the list of edge cases.
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attend.h"

static const StepName takers[] = {{1, "naive", false},
                                  {7, "persistent", true},
                                  {7, "overlapped-epilogue", true},
                                  {7, "lpt", true},
                                  {7, "l2-order", true}};
enum { TAKERS = sizeof takers / sizeof *takers, NAIVE = 0, MOST_SEQUENCES = 16 };

// A batch: its sequences, each a case of its own with a batch of one, of equal masks.
typedef struct {
    int count;
    Case sequence[MOST_SEQUENCES];
} Batch;

static Batch batch_make(int count, const long (*lengths)[2], int heads, int kv_heads,
                        int head_dim) {
    Batch batch = {.count = count};
    for (int b = 0; b < count; b++) {
        Case *c = &batch.sequence[b];
        *c = case_make(1, heads, kv_heads, lengths[b][0], lengths[b][1], head_dim);
        fill(&c->q, 10 + 3 * (unsigned)b);
        fill(&c->k, 11 + 3 * (unsigned)b);
        fill(&c->v, 12 + 3 * (unsigned)b);
    }
    return batch;
}

// ---- files

enum { TENSOR_Q, TENSOR_K, TENSOR_V };

static const Array *tensor_of(const Case *c, int tensor) {
    return tensor == TENSOR_Q ? &c->q : tensor == TENSOR_K ? &c->k : &c->v;
}

static void write_rows(const Batch *batch, int tensor, const char *path) {
    const Array *first = tensor_of(&batch->sequence[0], tensor);
    Array all = {.dimensions = 3, .shape = {0, first->shape[2], first->shape[3]}, .half = true};
    for (int b = 0; b < batch->count; b++) {
        all.shape[0] += tensor_of(&batch->sequence[b], tensor)->shape[1];
        all.count += tensor_of(&batch->sequence[b], tensor)->count;
    }
    all.values = calloc((size_t)all.count + 1, sizeof(float));
    long used = 0;
    for (int b = 0; b < batch->count; b++) {
        const Array *a = tensor_of(&batch->sequence[b], tensor);
        memcpy(all.values + used, a->values, (size_t)a->count * sizeof(float));
        used += a->count;
    }
    array_write(path, &all);
    free(all.values);
}

// Where the sequences begin, as NumPy's int32.
static void write_starts(const Batch *batch, int tensor, const char *path) {
    char header[128];
    int start = 0;
    snprintf(header, sizeof header, "{'descr': '<i4', 'fortran_order': False, 'shape': (%d,), }",
             batch->count + 1);
    FILE *stream = fopen(path, "wb");
    ck_assert_ptr_nonnull(stream);
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, stream);
    fprintf(stream, "%-117s\n", header);
    for (int b = 0; b <= batch->count; b++) {
        fwrite(&start, sizeof start, 1, stream);
        if (b < batch->count) start += (int)tensor_of(&batch->sequence[b], tensor)->shape[1];
    }
    ck_assert_int_eq(fclose(stream), 0);
}

static void write_batch(const Batch *batch) {
    ck_assert_int_eq(system("rm -rf in out && mkdir in"), 0);
    write_rows(batch, TENSOR_Q, "in/q.npy");
    write_rows(batch, TENSOR_K, "in/k.npy");
    write_rows(batch, TENSOR_V, "in/v.npy");
    write_starts(batch, TENSOR_Q, "in/cu_seqlens_q.npy");
    write_starts(batch, TENSOR_K, "in/cu_seqlens_k.npy");
}

// Rows first … of a tensor (all rows, heads, head_dim), as (1, rows, heads, head_dim).
static Array rows_of(const Array *all, long first, long rows) {
    Array part = array_make(1, rows, all->shape[1], all->shape[2], all->half);
    memcpy(part.values, all->values + first * all->shape[1] * all->shape[2],
           (size_t)part.count * sizeof(float));
    return part;
}

// Those of lse, (heads, all rows), as (1, heads, rows).
static Array lse_of(const Array *all, long first, long rows) {
    Array part = {
        .dimensions = 3, .shape = {1, all->shape[0], rows}, .count = all->shape[0] * rows};
    part.values = calloc((size_t)part.count + 1, sizeof(float));
    for (long h = 0; h < all->shape[0]; h++) {
        memcpy(part.values + h * rows, all->values + h * all->shape[1] + first,
               (size_t)rows * sizeof(float));
    }
    return part;
}

// Runs the batch, and gives each sequence its rows. The run's own verdict must be ok.
static void answers_of(const Batch *batch, StepName step, const char *options,
                       Answer answers[MOST_SEQUENCES]) {
    const Case *any = &batch->sequence[0];
    char mask[64] = "";
    if (any->causal) strcpy(mask, " --causal");
    if (any->left >= 0 || any->right >= 0)
        snprintf(mask, sizeof mask, " --window %ld,%ld", any->left, any->right);
    write_batch(batch);
    Outcome o =
        run_chapter(step.chapter, "--input in --save out --check-only --json - --steps %s%s%s",
                    step.name, mask, options);
    ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 1);
    Array out = array_read("out/o.npy"), lse = array_read("out/lse.npy");
    ck_assert(out.dimensions == 3 && lse.dimensions == 2 && lse.shape[0] == out.shape[1]);
    long first = 0;
    for (int b = 0; b < batch->count; b++) {
        const long rows = batch->sequence[b].q.shape[1];
        answers[b] = (Answer){.o = rows_of(&out, first, rows), .lse = lse_of(&lse, first, rows)};
        first += rows;
    }
    ck_assert(first == out.shape[0] && first == lse.shape[1]);
}

static void batch_is_attention(const Batch *batch, StepName step, const char *options) {
    Answer answers[MOST_SEQUENCES];
    answers_of(batch, step, options, answers);
    for (int b = 0; b < batch->count; b++)
        answer_is_attention(&batch->sequence[b], &answers[b], 4e-3);
}

static void set_masks(Batch *batch, bool causal, long left, long right) {
    for (int b = 0; b < batch->count; b++) {
        batch->sequence[b].causal = causal;
        batch->sequence[b].left = left;
        batch->sequence[b].right = right;
    }
}

// ---- the edge cases

// Keys without queries, queries without keys, neither, in the midst of others.
START_TEST(f26_sequences_without_keys) {
    static const long lengths[][2] = {{5, 0}, {70, 65}, {0, 0}, {0, 9}, {3, 0}, {66, 130}, {2, 0}};
    enter_folder();
    Batch batch = batch_make(7, lengths, 2, 1, 64);
    batch_is_attention(&batch, takers[_i], "");
    set_masks(&batch, true, -1, -1);
    batch_is_attention(&batch, takers[_i], "");
}
END_TEST

// An eighth of the lengths of the report, which a GPU is needed for.
START_TEST(f27_first_and_last_without_queries) {
    static const long lengths[][2] = {{0, 317}, {151, 218}, {105, 105}, {0, 384}};
    enter_folder();
    Batch batch = batch_make(4, lengths, 2, 2, 64);
    batch_is_attention(&batch, takers[_i], "");
}
END_TEST

// At most one query: a case that shortcuts for decoding get wrong where some have none.
START_TEST(f28_one_query_or_none) {
    static const long lengths[][2] = {{0, 7}, {1, 130}, {0, 0}, {1, 65}};
    enter_folder();
    Batch batch = batch_make(4, lengths, 4, 1, 64);
    batch_is_attention(&batch, takers[_i], "");
    set_masks(&batch, true, -1, -1);
    batch_is_attention(&batch, takers[_i], "");
}
END_TEST

START_TEST(f30_two_empty_then_a_long_one) {
    static const long lengths[][2] = {{0, 0}, {0, 1}, {1023, 2044}};
    enter_folder();
    Batch batch = batch_make(3, lengths, 1, 1, 64);
    set_masks(&batch, true, -1, -1);
    batch_is_attention(&batch, takers[_i], "");
}
END_TEST

// All lengths around those of tiles, rows and keys, in one batch.
START_TEST(f22_lengths_around_tiles) {
    static const long lengths[][2] = {{1, 1},     {129, 2},   {2, 129},   {63, 64},
                                      {64, 63},   {65, 65},   {127, 193}, {128, 128},
                                      {191, 129}, {192, 192}, {193, 127}, {3, 3}};
    enter_folder();
    Batch batch = batch_make(12, lengths, 2, 1, 64);
    batch_is_attention(&batch, takers[_i], "");
    set_masks(&batch, false, 40, 10);
    batch_is_attention(&batch, takers[_i], "");
}
END_TEST

// The last tile of a sequence must not write over the first rows of the next (77), nor a short one a
// prefix of its own (86): each sequence comes out as when it is alone, bit for bit.
START_TEST(f77_f86_each_as_if_alone) {
    static const long lengths[][2] = {{1, 200}, {130, 70}, {2, 150}, {65, 65}, {3, 1}};
    static const int head_dims[] = {64, 128};
    enter_folder();
    for (int d = 0; d < 2; d++) {
        Batch batch = batch_make(5, lengths, 2, 1, head_dims[d]);
        Answer answers[MOST_SEQUENCES];
        set_masks(&batch, true, -1, -1);
        answers_of(&batch, takers[_i], "", answers);
        ck_assert_int_eq(system("rm -rf in"), 0);
        for (int b = 0; b < batch.count; b++) {
            Answer alone = answer_of(&batch.sequence[b], takers[_i]);
            arrays_are_equal(&alone.o, &answers[b].o);
            arrays_are_equal(&alone.lse, &answers[b].lse);
        }
    }
}
END_TEST

// What stands in one sequence is none of the others' business: not in the columns of their last
// tiles of keys, where P is 0 and 0 · NaN would be NaN, nor in the rows of their last tiles of
// queries (15, 16, 46).
START_TEST(f15_f16_the_others_may_hold_anything) {
    static const long lengths[][2] = {{40, 33}, {70, 90}, {5, 60}, {9, 17}};
    enter_folder();
    for (int causal = 0; causal < 2; causal++) {
        Batch batch = batch_make(4, lengths, 2, 2, 64);
        Answer before[MOST_SEQUENCES], after[MOST_SEQUENCES];
        set_masks(&batch, causal == 1, -1, -1);
        answers_of(&batch, takers[_i], "", before);
        for (int b = 1; b < 4; b += 2) {
            fill_with(&batch.sequence[b].q, NAN);
            fill_with(&batch.sequence[b].k, INFINITY);
            fill_with(&batch.sequence[b].v, NAN);
        }
        answers_of(&batch, takers[_i], "", after);
        for (int b = 0; b < 4; b += 2) {
            arrays_are_equal(&before[b].o, &after[b].o);
            arrays_are_equal(&before[b].lse, &after[b].lse);
        }
    }
}
END_TEST

// Whatever the order of warps and copies, the same bits.
START_TEST(any_order_gives_the_same) {
    static const long lengths[][2] = {{130, 150}, {0, 3}, {1, 70}, {65, 0}};
    static const char *const orders[] = {" --schedule 1", " --async late", " --async random"};
    enter_folder();
    Batch batch = batch_make(4, lengths, 4, 2, 64);
    Answer first[MOST_SEQUENCES], other[MOST_SEQUENCES];
    set_masks(&batch, true, -1, -1);
    answers_of(&batch, takers[_i], "", first);
    for (int o = 0; o < 3; o++) {
        answers_of(&batch, takers[_i], orders[o], other);
        for (int b = 0; b < 4; b++) {
            arrays_are_equal(&first[b].o, &other[b].o);
            arrays_are_equal(&first[b].lse, &other[b].lse);
        }
    }
}
END_TEST

// ---- sinks

// With a sink of score s, a row of lse L keeps e^L / (e^L + e^s) of its o, and lse is
// log(e^L + e^s): from what the step gives without it.
START_TEST(a_sink_takes_its_share) {
    static const long lengths[][2] = {{70, 65}, {5, 0}, {33, 9}, {1, 130}};
    static const float sinks[] = {0.5f, -3, 8, -40};
    enter_folder();
    Batch batch = batch_make(4, lengths, 4, 2, 64);
    Answer without[MOST_SEQUENCES], with[MOST_SEQUENCES];
    set_masks(&batch, true, -1, -1);
    answers_of(&batch, takers[_i], "", without);
    Array sink = {.dimensions = 1, .shape = {4}, .count = 4, .values = (float *)sinks};
    write_batch(&batch);
    Outcome plain = run_chapter(takers[_i].chapter, "--input in --sink --check-only --steps %s",
                                takers[_i].name);
    ck_assert_int_eq(plain.status, 2); // asked for, and not there
    ck_assert_ptr_nonnull(strstr(plain.err, "in/sink.npy"));
    ck_assert_int_eq(system("mkdir -p kept"), 0);
    array_write("kept/sink.npy", &sink);
    // answers_of makes the folder anew: the file is put there by hand.
    write_batch(&batch);
    ck_assert_int_eq(system("cp kept/sink.npy in/"), 0);
    Outcome o = run_chapter(takers[_i].chapter,
                            "--input in --save out --check-only --json - --steps %s --causal",
                            takers[_i].name);
    ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 1);
    Array out = array_read("out/o.npy"), lse = array_read("out/lse.npy");
    long first = 0;
    for (int b = 0; b < 4; b++) {
        const long rows = batch.sequence[b].q.shape[1];
        with[b] = (Answer){.o = rows_of(&out, first, rows), .lse = lse_of(&lse, first, rows)};
        first += rows;
        for (long h = 0; h < 4; h++) {
            for (long i = 0; i < rows; i++) {
                const double old = (double)without[b].lse.values[h * rows + i];
                const double s = (double)sinks[h], top = fmax(old, s);
                const double sum = exp(old - top) + exp(s - top);
                const double got = (double)with[b].lse.values[h * rows + i];
                ck_assert_msg(fabs(got - (top + log(sum))) < 2e-3, "lse %g, not %g", got,
                              top + log(sum));
                for (long x = 0; x < 64; x++) {
                    const double share = exp(old - top) / sum;
                    const long place = at(&with[b].o, 0, i, h, x);
                    ck_assert_double_eq_tol((double)with[b].o.values[place],
                                            share * (double)without[b].o.values[place], 4e-3);
                }
            }
        }
    }
}
END_TEST

// lse is the sink itself, to the bit: sink log2(e) ln 2 would be rounded twice, and more than the
// limit of the rms error lets through where many rows see no key. Heads of four sizes of sinks.
START_TEST(a_row_without_keys_has_its_sink_for_lse) {
    static const struct {
        int chapter;
        const char *options;
    } runs[] = {{1, "--steps naive"},
                {7, "--steps persistent,overlapped-epilogue,lpt,l2-order"},
                {7, "--steps l2-order --dtype fp8"},
                {9, "--steps prefill-kernel,split-kv,gqa-packed,auto-split,paged-kv"},
                {9, "--steps split-kv,paged-kv,cluster-combine --splits 3"}};
    static const float sinks[] = {1.557f, -3.443f, 0.407f, -31.593f};
    for (int h = 0; h < 4; h++) // each comes back another from base 2
        ck_assert(fmaf(sinks[h] * 1.442695041f, 0.6931471806f, 0) != sinks[h]);
    enum { ROWS = 40, KEYS = 9, HIDDEN = ROWS - KEYS };
    enter_folder();
    Case c = case_make(1, 4, 2, ROWS, KEYS, 64);
    fill(&c.q, 10);
    fill(&c.k, 11);
    fill(&c.v, 12);
    Array sink = {.dimensions = 1, .shape = {4}, .count = 4, .values = (float *)sinks};
    ck_assert_int_eq(system("mkdir in"), 0);
    array_write("in/q.npy", &c.q);
    array_write("in/k.npy", &c.k);
    array_write("in/v.npy", &c.v);
    array_write("in/sink.npy", &sink);
    // Each step by itself: --save keeps the last one's.
    char options[200];
    snprintf(options, sizeof options, "%s", runs[_i].options);
    char *names = strchr(options, ' ') + 1, *rest = names + strcspn(names, " ");
    if (*rest != 0) *rest++ = 0;
    for (char *name = strtok(names, ","); name != NULL; name = strtok(NULL, ",")) {
        Outcome o = run_chapter(runs[_i].chapter,
                                "--input in --save out --check-only --json - --causal --sms 2 "
                                "--steps %s%s%s",
                                name, *rest != 0 ? " " : "", rest);
        ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 1);
        Array lse = array_read("out/lse.npy");
        for (int h = 0; h < 4; h++)
            for (int i = 0; i < HIDDEN; i++)
                ck_assert_msg(lse.values[h * ROWS + i] == sinks[h], "%s: lse %.9g, not %.9g", name,
                              (double)lse.values[h * ROWS + i], (double)sinks[h]);
    }
}
END_TEST

// Equal lengths, random sinks, all that goes with them.
START_TEST(sinks_go_with_the_rest) {
    enter_folder();
    Outcome o = run_chapter(takers[_i].chapter,
                            "--sink --check-only --json - --steps %s --batch 2 --heads 4 "
                            "--kv-heads 2 --seqlen-q 70 --seqlen-k 50 --causal --softcap 4 "
                            "--dtype bf16 --head-dim 64",
                            takers[_i].name);
    const Json *json = outcome_json(&o, 0);
    ck_assert_int_eq(every_step_is_ok(&o, json), 1);
    ck_assert(json_bool(json, "problem.sink"));
    ck_assert(json_is_null(json, "problem.varlen"));
}
END_TEST

// ---- gradients, which naive has

// 18: more rows than keys, causal, inputs three times as large: finite, and 0 where nothing is seen.
START_TEST(f18_gradients_of_hidden_rows) {
    static const long lengths[][2] = {{76, 1}, {34, 1}, {146, 1}};
    enter_folder();
    Batch batch = batch_make(3, lengths, 2, 2, 64);
    for (int b = 0; b < 3; b++) {
        for (int t = TENSOR_Q; t <= TENSOR_V; t++) {
            Array *a = (Array *)tensor_of(&batch.sequence[b], t);
            for (long i = 0; i < a->count; i++) a->values[i] *= 3;
        }
    }
    write_batch(&batch);
    ck_assert_int_eq(system("cp in/q.npy in/dout.npy"), 0);
    Outcome o = run_chapter(1, "--input in --save out --check-only --json - --backward --causal "
                               "--dtype fp32"); // fp16 would round dP, and not D: dQ near 0
    ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 2);
    Array dq = array_read("out/dq.npy"), dv = array_read("out/dv.npy");
    // Only the last row of each sequence sees its key, whose weight is 1: dQ = 0, and dV = dO.
    for (long i = 0; i < dq.count; i++) ck_assert(dq.values[i] == 0);
    static const long last[] = {75, 109, 255};
    Array dout = array_read("in/dout.npy");
    for (long b = 0; b < 3; b++)
        ck_assert_mem_eq(dv.values + b * 128, dout.values + last[b] * 128, 128 * sizeof(float));
}
END_TEST

// 27 and 30: keys that no query is there for have gradients of exactly 0.
START_TEST(f27_f30_gradients_of_unseen_keys) {
    static const long lengths[][2] = {{0, 37}, {30, 21}, {0, 1}, {9, 12}};
    enter_folder();
    Batch batch = batch_make(4, lengths, 2, 1, 64);
    write_batch(&batch);
    ck_assert_int_eq(system("cp in/q.npy in/dout.npy"), 0);
    Outcome o = run_chapter(1, "--input in --save out --check-only --json - --backward");
    ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 2);
    Array dk = array_read("out/dk.npy"), dv = array_read("out/dv.npy");
    ck_assert_int_eq(dk.shape[0], 71);
    for (long row = 0; row < 71; row++) {
        const bool unseen = row < 37 || row == 58;
        bool zero = true;
        for (long c = 0; c < 64; c++)
            zero = zero && dk.values[row * 64 + c] == 0 && dv.values[row * 64 + c] == 0;
        ck_assert_int_eq(zero, unseen);
    }
}
END_TEST

// ---- what is refused

// 17 and 31: lengths that the tensors don't have. The largest length is nobody's to say.
START_TEST(f17_f31_lengths_that_do_not_fit) {
    static const long lengths[][2] = {{5, 6}, {7, 8}};
    enter_folder();
    Batch batch = batch_make(2, lengths, 1, 1, 64), longer = batch_make(2, lengths, 1, 1, 64);
    longer.sequence[1] = case_make(1, 1, 1, 9, 8, 64);
    write_batch(&batch);
    write_rows(&longer, TENSOR_Q, "in/q.npy");
    Outcome o =
        run_chapter(takers[_i].chapter, "--input in --check-only --steps %s", takers[_i].name);
    ck_assert_int_eq(o.status, 2);
    ck_assert_ptr_nonnull(strstr(o.err, "cu_seqlens_q.npy: ends at 12, and q.npy has 14 rows"));
    write_starts(&longer, TENSOR_Q, "in/cu_seqlens_q.npy");
    o = run_chapter(takers[_i].chapter, "--input in --check-only --json - --steps %s",
                    takers[_i].name);
    const Json *json = outcome_json(&o, 0);
    ck_assert_double_eq(json_number(json, "problem.seqlen_q"), 9);
    ck_assert_double_eq(json_number(json, "problem.varlen.1.0"), 9);
}
END_TEST

// Chapters without such steps say which have them, and write nothing; so do steps of chapter 7's run
// that can't.
START_TEST(others_say_which_chapter_can) {
    static const struct {
        int chapter;
        const char *arguments, *words;
    } lines[] = {
        {2, "--sink", "run: --sink: chapter 2 does not have it; chapters 1, 7 and 9 do\n"},
        {3, "--sink", "run: --sink: chapter 3 does not have it; chapters 1, 7 and 9 do\n"},
        {3, "--varlen 5,6",
         "run: --varlen: chapter 3's steps take sequences of one length; "
         "chapters 1 and 7 take any\n"},
        {3, "--input in",
         "run: --input in: cu_seqlens_q.npy: chapter 3's steps take sequences of "
         "one length; chapters 1 and 7 take any\n"},
    };
    static const long lengths[][2] = {{5, 6}, {7, 8}};
    enter_folder();
    Batch batch = batch_make(2, lengths, 1, 1, 64);
    write_batch(&batch);
    for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
        Outcome o = run_chapter(lines[l].chapter, "%s", lines[l].arguments);
        ck_assert_int_eq(o.status, 2);
        ck_assert_str_eq(o.err, lines[l].words);
        ck_assert_str_eq(o.out, "");
        ck_assert(!file_exists("results"));
    }
    Outcome o = run_chapter(7, "--varlen 5 --check-only --json - --steps naive,intra-warpgroup "
                               "--dtype bf16 --head-dim 64");
    const Json *json = outcome_json(&o, 0);
    ck_assert(json_bool(json, "steps.0.ok"));
    ck_assert_str_eq(
        json_text(json, "steps.1.refused"),
        "sequences of one length only; variable lengths: naive, and chapter 7's steps");
}
END_TEST

Suite *suite_varlen(void);
Suite *suite_varlen(void) {
    Suite *suite = suite_create("variable lengths and sinks");
    TCase *lengths = tcase_create("lengths");
    tcase_add_loop_test(lengths, f26_sequences_without_keys, 0, TAKERS);
    tcase_add_loop_test(lengths, f27_first_and_last_without_queries, 0, TAKERS);
    tcase_add_loop_test(lengths, f28_one_query_or_none, 0, TAKERS);
    tcase_add_loop_test(lengths, f30_two_empty_then_a_long_one, 0, TAKERS);
    tcase_add_loop_test(lengths, f22_lengths_around_tiles, 0, TAKERS);
    tcase_add_loop_test(lengths, f77_f86_each_as_if_alone, 0, TAKERS);
    tcase_add_loop_test(lengths, f15_f16_the_others_may_hold_anything, 0, TAKERS);
    tcase_add_loop_test(lengths, any_order_gives_the_same, 0, TAKERS);
    TCase *sinks = tcase_create("sinks");
    tcase_add_loop_test(sinks, a_sink_takes_its_share, 0, TAKERS);
    tcase_add_loop_test(sinks, a_row_without_keys_has_its_sink_for_lse, 0, 5);
    tcase_add_loop_test(sinks, sinks_go_with_the_rest, 0, TAKERS);
    TCase *gradients = tcase_create("gradients");
    tcase_add_test(gradients, f18_gradients_of_hidden_rows);
    tcase_add_test(gradients, f27_f30_gradients_of_unseen_keys);
    TCase *refused = tcase_create("refused");
    tcase_add_loop_test(refused, f17_f31_lengths_that_do_not_fit, 0, TAKERS);
    tcase_add_test(refused, others_say_which_chapter_can);
    suite_add_tcase(suite, lengths);
    suite_add_tcase(suite, sinks);
    suite_add_tcase(suite, gradients);
    suite_add_tcase(suite, refused);
    return suite;
}
