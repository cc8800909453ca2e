// Chapter 9's steps: a cache of keys and values, ragged, in pages, and appended to; splits and how
// they are merged. Every run compares all outputs with the float64 reference, and after an append the
// whole cache; tails of the cache are NaN, and the block table holds nonsense where it isn't used.
// Numbers are those of the list of edge cases.
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attend.h"
#include "matrix.h"

// The steps that split keys; the chapter's others are naive, and prefill-kernel.
static const char *const splitting[] = {"split-kv", "gqa-packed", "auto-split", "cluster-combine",
                                        "paged-kv"};
enum { SPLITTING = sizeof splitting / sizeof *splitting };
static const char all_splitting[] = "split-kv,gqa-packed,auto-split,cluster-combine,paged-kv";
static const char pages[] = "naive,cluster-combine,paged-kv"; // those that take pages and new keys

// Every step named is right on the problem.
static void right(const char *steps, const char *problem) {
    Outcome o = run_chapter(9, "--check-only --json - --steps %s %s", steps, problem);
    Json *json = outcome_json(&o, 0);
    int wanted = 1;
    for (const char *c = steps; *c != 0; c++) wanted += *c == ',';
    ck_assert_int_eq(every_step_is_ok(&o, json), wanted);
    json_free(json);
    free(o.out);
    free(o.err);
}

// What a step makes of a problem; it must be right.
static Answer answer_to(const char *step, const char *problem) {
    Outcome o = run_chapter(9, "--check-only --json - --save out --steps %s %s", step, problem);
    const Json *json = outcome_json(&o, 0);
    every_step_is_ok(&o, json);
    return (Answer){array_read("out/o.npy"), array_read("out/lse.npy"), json};
}

static void same_answers(const Answer *a, const Answer *b) {
    arrays_are_equal(&a->o, &b->o);
    arrays_are_equal(&a->lse, &b->lse);
}

// ---- sizes

// One to sixteen query tokens, around tiles of 16 and 64 rows; contexts around blocks of keys.
START_TEST(tokens_and_contexts) {
    static const int tokens[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, 33};
    static const int contexts[] = {1, 2, 31, 32, 33, 63, 64, 65, 127, 129, 200, 513};
    static const char *const heads[] = {"--heads 1", "--heads 4 --kv-heads 1",
                                        "--heads 6 --kv-heads 2", "--heads 8 --kv-heads 8"};
    char problem[200];
    enter_folder();
    for (int c = 0; c < 12; c++) {
        const int n = tokens[(_i + c) % 10];
        snprintf(problem, sizeof problem,
                 "--seqlen-q %d --seqlen-k %d %s --head-dim %d --dtype %s --splits %d%s", n,
                 contexts[c], heads[(_i + c) % 4], matrix_head_dims[(_i + c) % 2],
                 matrix_dtypes[1 + _i % 2], 1 + (c * 3 + _i) % 7, c % 3 ? " --causal" : "");
        right(all_splitting, problem);
    }
}
END_TEST

START_TEST(every_head_dim) {
    char problem[200];
    enter_folder();
    snprintf(problem, sizeof problem,
             "--cache-seqlens 150,0,70 --seqlen-q 2 --heads 4 --kv-heads 2 --head-dim %d --causal",
             built_head_dims()[_i]);
    right(all_splitting, problem);
    snprintf(problem, sizeof problem,
             "--cache-seqlens 150,0,70 --seqlen-q 20 --heads 4 --kv-heads 1 --head-dim %d",
             built_head_dims()[_i] - 8);
    right(all_splitting, problem);
}
END_TEST

// Every step, under the three pairs of orders.
START_TEST(orders) {
    static const char *const problems[] = {
        "--cache-seqlens 300,0,1,129 --seqlen-q 3 --heads 4 --kv-heads 2 --causal --splits 4",
        "--cache-seqlens 70,200 --seqlen-q 1 --heads 8 --kv-heads 1 --splits 3 --sink --softcap 5",
        "--batch 2 --seqlen-k 190 --seqlen-q 9 --heads 4 --kv-heads 2 --window 100,-1 --splits 2"};
    char problem[300];
    enter_folder();
    for (int p = 0; p < MATRIX_PAIRS; p++) {
        snprintf(problem, sizeof problem, "%s %s", problems[_i], matrix_orders[p]);
        right(all_splitting, problem);
    }
}
END_TEST

// Neither the order of warps nor that of asynchronous work changes a bit: eight schedules, each with
// every order of completion.
START_TEST(same_bits_under_every_order) {
    static const char problem[] =
        "--cache-seqlens 300,0,65 --seqlen-q 2 --heads 4 --kv-heads 2 --splits 3";
    static const char *const completions[] = {"early", "late", "random"};
    char ordered[200];
    Answer first = {0};
    enter_folder();
    for (int s = 0; s < 3 * 9; s++) {
        snprintf(ordered, sizeof ordered, "%s --schedule %d --async %s", problem, s / 3,
                 completions[s % 3]);
        Answer a = answer_to(splitting[_i], ordered);
        if (s == 0) first = a;
        same_answers(&first, &a);
    }
}
END_TEST

// ---- masks

// A window of W keys is (W - 1, 0): row i of the last rows sees W keys, and no other.
START_TEST(f7_window_counts_keys) {
    enter_folder();
    for (int window = 1; window <= 65; window += 16) {
        Case c = case_make(1, 2, 1, 3, 150, 64);
        c.left = window - 1;
        c.right = 0;
        c.scale = 1e-6; // all keys alike: o is the mean of the values seen
        for (int i = 0; i < 3; i++) ck_assert_int_eq(keys_seen(&c, i), window);
        Answer a = answer_of(&c, (StepName){9, splitting[_i], true});
        answer_is_attention(&c, &a, 2e-3);
    }
}
END_TEST

// Decoding with a window, from a cache, is the last rows of the whole computed again.
START_TEST(f50_windows_count_from_the_caches_end) {
    static const int tokens[] = {1, 3, 17};
    enter_folder();
    for (int n = 0; n < 3; n++) {
        Case whole = case_make(1, 4, 2, 180, 180, 64), last = whole;
        whole.left = last.left = 70;
        whole.right = last.right = 0;
        last.q = array_make(1, tokens[n], 4, 64, true);
        memcpy(last.q.values, whole.q.values + (180 - tokens[n]) * 4 * 64,
               (size_t)last.q.count * sizeof(float));
        Answer all = answer_of(&whole, (StepName){1, "naive", false});
        Answer part = answer_of(&last, (StepName){9, splitting[_i], true});
        answer_is_attention(&last, &part, 4e-3);
        for (long i = 0; i < part.o.count; i++) {
            const float wanted = all.o.values[(180 - tokens[n]) * 4 * 64 + i];
            ck_assert_float_eq_tol(part.o.values[i], wanted, 4e-3f);
        }
    }
}
END_TEST

// ---- splits

// More splits than blocks of keys: those that get none leave nothing behind, and nobody reads it.
// (softgpu knows memory that nothing wrote.)
START_TEST(f23_empty_splits) {
    enter_folder();
    right(all_splitting, "--cache-seqlens 1,0,70,200 --heads 2 --kv-heads 1 --splits 16");
    right("split-kv,gqa-packed,auto-split,paged-kv",
          "--cache-seqlens 1,0,70,200 --heads 2 --kv-heads 1 --splits 128 --seqlen-q 2 --causal");
    right("split-kv,gqa-packed,auto-split,paged-kv",
          "--seqlen-k 300 --seqlen-q 2 --splits 100 --window 20,0 --heads 2");
    right("split-kv,gqa-packed,auto-split,paged-kv",
          "--cache-seqlens 0,0 --heads 2 --splits 5 --sink"); // the sink counts once
}
END_TEST

// Every number of splits, and of splits by itself nothing changes but rounding: o within that of two
// fp16 numbers, lse within 1e-5 (F40).
START_TEST(f24_f40_every_number_of_splits) {
    enter_folder();
    const bool in_cluster = strcmp(splitting[_i], "cluster-combine") == 0;
    Answer first = {0};
    char problem[200];
    for (int splits = 1; splits <= (in_cluster ? 8 : 13); splits++) {
        snprintf(problem, sizeof problem,
                 "--seqlen-k 600 --seqlen-q 2 --heads 4 --kv-heads 2 --causal --splits %d", splits);
        Answer a = answer_to(splitting[_i], problem);
        if (splits == 1) first = a;
        for (long i = 0; i < a.o.count; i++)
            ck_assert_float_eq_tol(a.o.values[i], first.o.values[i], 1e-3f);
        for (long i = 0; i < a.lse.count; i++)
            ck_assert_float_eq_tol(a.lse.values[i], first.lse.values[i], 1e-5f);
    }
}
END_TEST

// An empty sequence writes its own rows of lse only.
START_TEST(f32_neighbours_of_an_empty_sequence) {
    enter_folder();
    Answer a = answer_to(splitting[_i], "--cache-seqlens 70,0,200,0 --seqlen-q 3 --heads 4 "
                                        "--kv-heads 2 --splits 3");
    ck_assert_int_eq(a.lse.count, 4 * 4 * 3);
    for (int i = 0; i < 48; i++)
        ck_assert(i / 12 % 2 == 1 ? a.lse.values[i] == -INFINITY : isfinite(a.lse.values[i]));
    for (long i = 0; i < a.o.count; i++)
        if (i / (3 * 4 * 64) % 2 == 1) ck_assert(a.o.values[i] == 0);
}
END_TEST

// More sequences than gridDim.y has room for, in the steps' kernels and in the one that merges: a
// sample of the SMs shows that both are launched. (All outputs: f37_every_batch in `make test-long`.)
START_TEST(f37_more_than_65535_sequences) {
    enter_folder();
    Outcome o = run_chapter(9, "--steps split-kv,paged-kv --batch 65537 --heads 1 --seqlen-q 1 "
                               "--seqlen-k 70 --head-dim 64 --splits 2 --sample 1 --json -");
    Json *json = outcome_json(&o, 0);
    for (int s = 0; s < 5; s += 4) {
        const Json *step = step_named(json, splitting[s]);
        ck_assert(json_is_null(step, "device_error") && json_is_null(step, "refused"));
        ck_assert_double_gt(json_number(step, "workspace_bytes"), 65537 * 2 * 64 * 4); // it merges
        ck_assert_double_gt(json_number(step, "time_us"), 0);
    }
}
END_TEST

// The rows of the splits' lse and those of the merge are the same ones, with several heads of a K/V
// head and several tokens (o of each head is its own).
START_TEST(f41_rows_of_the_merge) {
    enter_folder();
    right(all_splitting, "--cache-seqlens 200,90 --seqlen-q 5 --heads 6 --kv-heads 2 --splits 3");
    right(all_splitting, "--cache-seqlens 200,90 --seqlen-q 2 --heads 24 --kv-heads 1 --splits 2");
}
END_TEST

// Everything with everything.
START_TEST(f42_combinations) {
    static const char *const extras[] = {"",
                                         " --causal",
                                         " --window 40,0 --softcap 5",
                                         " --causal --sink",
                                         " --window 64,64 --sink",
                                         " --softcap 3 --scale -0.2"};
    static const int page_sizes[] = {1, 3, 16, 64, 256};
    char problem[300];
    enter_folder();
    for (int e = 0; e < 6; e++) {
        const int n = e + _i;
        snprintf(problem, sizeof problem,
                 "--cache-seqlens 0,%d,1,190 --seqlen-q %d --heads 4 --kv-heads %d --head-dim %d "
                 "--dtype %s --splits %d%s",
                 60 + n, 1 + n % 5, 1 << n % 3, matrix_head_dims[n % 2], matrix_dtypes[1 + n % 2],
                 1 + n % 4, extras[e]);
        right(all_splitting, problem);
        char paged[400];
        snprintf(paged, sizeof paged, "%s --page-size %d", problem, page_sizes[n % 5]);
        right(pages, paged);
    }
}
END_TEST

// What a launch left in the workspace can't matter to the next: none expects anything there. With
// softgpu's check of unwritten memory, and without it on a workspace full of NaN.
START_TEST(f43_a_dirty_workspace) {
    enter_folder();
    right(all_splitting, "--cache-seqlens 300,20 --seqlen-q 2 --heads 4 --kv-heads 2 --splits 4 "
                         "--check init");
    right(all_splitting, "--cache-seqlens 300,20 --seqlen-q 2 --heads 4 --kv-heads 2 --splits 4 "
                         "--check none");
}
END_TEST

// Nor does a second launch depend on the first one's partial results, counters or new keys: it is right
// on the workspace as that left it. (A step whose second launch is wrong: test_broken.)
START_TEST(f43_two_launches_on_one_workspace) {
    static const char *const problems[] = {
        "--cache-seqlens 300,0,20 --seqlen-q 2 --heads 4 --kv-heads 2 --splits 4",
        "--cache-seqlens 300,0,20 --heads 2 --splits 9 --causal --async random --schedule 3"};
    enter_folder();
    for (int p = 0; p < 2; p++) {
        right("prefill-kernel,split-kv,gqa-packed,auto-split,cluster-combine,paged-kv --launches 2",
              problems[p]);
    }
    right("cluster-combine,paged-kv --launches 3",
          "--cache-seqlens 300,0,20 --heads 4 --kv-heads 2 --splits 4 --page-size 16 --append 2 "
          "--seqlen-q 2 --causal --rotary 32");
}
END_TEST

// ---- a sequence's result is its own

// A cache in files: sequence b has lengths[b] of `room` keys.
static void write_cache(const Case *c, const int *lengths) {
    char header[128];
    ck_assert_int_eq(system("rm -rf in && mkdir in"), 0);
    array_write("in/q.npy", &c->q);
    array_write("in/k.npy", &c->k);
    array_write("in/v.npy", &c->v);
    snprintf(header, sizeof header, "{'descr': '<i4', 'fortran_order': False, 'shape': (%ld,), }",
             c->q.shape[0]);
    FILE *stream = fopen("in/cache_seqlens.npy", "wb");
    ck_assert_ptr_nonnull(stream);
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, stream);
    fprintf(stream, "%-117s\n", header);
    fwrite(lengths, sizeof *lengths, (size_t)c->q.shape[0], stream);
    ck_assert_int_eq(fclose(stream), 0);
}

// Sequence b's part of both.
static void same_sequence(const Answer *x, const Answer *y, long b) {
    const long o = x->o.count / x->o.shape[0], lse = x->lse.count / x->lse.shape[0];
    ck_assert_int_eq(memcmp(x->o.values + b * o, y->o.values + b * o, (size_t)o * 4), 0);
    ck_assert_int_eq(memcmp(x->lse.values + b * lse, y->lse.values + b * lse, (size_t)lse * 4), 0);
}

// With a fixed number of splits a sequence's bits don't depend on how long another one is (F44), nor
// on what it holds (F46).
START_TEST(f44_f46_others_change_nothing) {
    static const int lengths[][3] = {{100, 40, 333}, {100, 700, 333}, {100, 0, 333}};
    Answer first = {0};
    enter_folder();
    for (int l = 0; l < 3; l++) {
        Case c = case_make(3, 4, 2, 2, 720, 64);
        const long sequence = 720 * 2 * 64;
        for (long i = sequence; l == 2 && i < 2 * sequence; i++) c.k.values[i] = 1.5f;
        write_cache(&c, lengths[l]);
        Answer a = answer_to(splitting[_i], "--input in --splits 4 --causal");
        if (l == 0) first = a;
        same_sequence(&first, &a, 0);
        same_sequence(&first, &a, 2);
    }
}
END_TEST

// One token after another, and all at once: the same bits, when keys aren't split. Lengths around
// blocks of keys.
START_TEST(f45_decode_is_prefill) {
    enter_folder();
    for (int n = 61; n <= 197; n += 34) {
        enum { ROWS = 7 };
        Case c = case_make(1, 2, 1, ROWS, n, 64);
        const int whole = n;
        write_cache(&c, &whole);
        Answer all = answer_to(splitting[_i], "--input in --splits 1 --causal");
        for (int row = 0; row < ROWS; row += 3) {
            Case one = c;
            const int seen = n - ROWS + 1 + row;
            one.q = array_make(1, 1, 2, 64, true);
            memcpy(one.q.values, c.q.values + row * 2 * 64, 2 * 64 * sizeof(float));
            write_cache(&one, &seen);
            Answer a = answer_to(splitting[_i], "--input in --splits 1 --causal");
            ck_assert_int_eq(memcmp(a.o.values, all.o.values + row * 2 * 64, 2 * 64 * 4), 0);
            for (int h = 0; h < 2; h++)
                ck_assert(a.lse.values[h] == all.lse.values[h * ROWS + row]);
        }
    }
}
END_TEST

// The number of splits comes from the keys that are there, not from the room for them.
START_TEST(f51_the_room_is_no_length) {
    static const int rooms[] = {1210, 5000};
    static const int lengths[] = {1200};
    double workspace[2];
    Answer answers[2];
    enter_folder();
    for (int r = 0; r < 2; r++) {
        Case c = case_make(1, 4, 1, 1, rooms[r], 64);
        fill(&c.k, 1);
        fill(&c.v, 2);
        write_cache(&c, lengths);
        Outcome o = run_chapter(9, "--input in --save out --json - --steps auto-split --sms 8");
        Json *json = outcome_json(&o, 0);
        every_step_is_ok(&o, json);
        workspace[r] = json_number(step_named(json, "auto-split"), "workspace_bytes");
        answers[r] = (Answer){array_read("out/o.npy"), array_read("out/lse.npy"), json};
    }
    ck_assert_double_gt(workspace[0], 0); // it splits
    ck_assert_double_eq(workspace[0], workspace[1]);
    same_answers(&answers[0], &answers[1]);
}
END_TEST

// Numbers of query heads that no tile divides.
START_TEST(f52_heads_of_a_group) {
    static const int groups[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16};
    static const int tokens[] = {1, 2, 3, 5, 17, 64, 127};
    char problem[200];
    enter_folder();
    for (int t = 0; t < 7; t++) {
        snprintf(problem, sizeof problem,
                 "--seqlen-q %d --seqlen-k %d --heads %d --kv-heads %d --splits %d%s", tokens[t],
                 tokens[t] + 70 * (t % 2), groups[_i] * (1 + t % 2), 1 + t % 2, 1 + t % 3,
                 t % 3 ? " --causal" : "");
        right("gqa-packed,paged-kv", problem);
    }
}
END_TEST

// ---- pages

// Pages smaller and larger than a block of keys, shuffled: the bits are those of a cache in a row.
START_TEST(pages_change_no_bit) {
    static const int page_sizes[] = {1, 16, 64, 256, 5, 100};
    static const char problem[] =
        "--cache-seqlens 300,0,65 --seqlen-q 3 --heads 4 --kv-heads 2 --causal --splits 2";
    char paged[200];
    enter_folder();
    Answer row = answer_to("gqa-packed", problem);
    snprintf(paged, sizeof paged, "%s --page-size %d --seed 0", problem, page_sizes[_i]);
    Answer a = answer_to("paged-kv", paged);
    same_answers(&row, &a);
}
END_TEST

// Entries of the table behind a sequence's last page are nonsense (-1, 2^31 - 1, one too many), in
// every run here; a table that is wrong where it is used never reaches the GPU.
START_TEST(f47_bad_tables) {
    static const struct {
        const char *shape;
        int table[4], length;
        const char *words;
    } files[] = {
        {"(1, 4)", {0, 1, 2, 3}, 100, "100 keys, and its cache room for 64; lengths beyond"},
        {"(1, 4)", {0, 4, 2, 3}, 64, "page 4 of sequence 0 (column 1) is not one of the 4 pages"},
        {"(1, 4)", {0, 1, -1, 3}, 64, "page -1 of sequence 0 (column 2)"},
        {"(1, 4)", {0, 1, 2, 1}, 64, "page 1 belongs to sequence 0 (column 1) and to"},
    };
    char header[128];
    enter_folder();
    Case c = case_make(1, 2, 1, 1, 16, 64);
    c.k = array_make(4, 16, 1, 64, true);
    c.v = array_make(4, 16, 1, 64, true);
    for (int f = 0; f < 5; f++) { // the last is right
        const int length = f < 4 ? files[f].length : 33;
        static const int good[] = {2, 0, 3, -9};
        write_cache(&c, &length);
        snprintf(header, sizeof header, "{'descr': '<i4', 'fortran_order': False, 'shape': %s, }",
                 "(1, 4)");
        FILE *stream = fopen("in/block_table.npy", "wb");
        ck_assert_ptr_nonnull(stream);
        fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, stream);
        fprintf(stream, "%-117s\n", header);
        fwrite(f < 4 ? files[f].table : good, sizeof(int), 4, stream);
        ck_assert_int_eq(fclose(stream), 0);
        Outcome o = run_chapter(9, "--input in --check-only --json - --steps %s", pages);
        if (f == 4) {
            ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 3);
            continue;
        }
        ck_assert_int_eq(o.status, 2);
        ck_assert_msg(strstr(o.err, files[f].words) != NULL, "%s", o.err);
    }
}
END_TEST

// Keys and values of one byte, with a scale for each sequence and head.
START_TEST(fp8_caches) {
    static const char *const problems[] = {
        "--cache-seqlens 300,0,65 --seqlen-q 3 --heads 4 --kv-heads 2 --causal --splits 2",
        "--batch 2 --seqlen-k 130 --seqlen-q 1 --heads 8 --kv-heads 1 --dtype bf16 --sink",
        "--cache-seqlens 100,7 --seqlen-q 17 --heads 2 --window 30,0 --softcap 5 --head-dim 128"};
    static const int page_sizes[] = {1, 16, 64};
    char problem[300];
    enter_folder();
    for (int p = 0; p < 3; p++) {
        snprintf(problem, sizeof problem, "%s --fp8-cache --page-size %d", problems[_i],
                 page_sizes[p]);
        right("paged-kv", problem);
    }
}
END_TEST

// ---- new keys

// The positions of queries: without a mask that depends on the row they are all the same. (What the
// harness expects is the definition; test_cache has it.)
START_TEST(f48_rotary_without_a_mask) {
    enter_folder();
    right(pages, "--cache-seqlens 100,0 --append 3 --seqlen-q 3 --rotary 64 --page-size 16 "
                 "--heads 4 --kv-heads 2");
    right(pages, "--cache-seqlens 100,0 --append 3 --seqlen-q 3 --rotary 64 --causal "
                 "--page-size 16 --heads 4 --kv-heads 2");
}
END_TEST

// One new token, two, five; with a rotary embedding of all columns, some, or none; pages that the
// new keys fill, begin, and cross.
START_TEST(f49_append) {
    static const int tokens[] = {1, 2, 5};
    static const char *const rotary[] = {"", " --rotary 64", " --rotary 32 --rotary-interleaved"};
    static const int page_sizes[] = {1, 4, 16};
    char problem[300];
    enter_folder();
    for (int n = 0; n < 3; n++) {
        snprintf(problem, sizeof problem,
                 "--cache-seqlens 0,15,16,70 --append %d --seqlen-q %d --causal --page-size %d "
                 "--heads 4 --kv-heads 2 --dtype %s%s",
                 tokens[n], tokens[n], page_sizes[(n + _i) % 3], matrix_dtypes[1 + n % 2],
                 rotary[_i]);
        right(pages, problem);
    }
}
END_TEST

Suite *suite_decode(void);
Suite *suite_decode(void) {
    Suite *suite = suite_create("chapter 9: decoding");
    TCase *sizes = tcase_create("sizes");
    tcase_set_timeout(sizes, 600);
    tcase_add_loop_test(sizes, tokens_and_contexts, 0, 4);
    tcase_add_loop_test(sizes, every_head_dim, 0, built_head_dim_count());
    tcase_add_loop_test(sizes, orders, 0, 3);
    tcase_add_loop_test(sizes, same_bits_under_every_order, 0, SPLITTING);
    suite_add_tcase(suite, sizes);
    TCase *edges = tcase_create("edge cases");
    tcase_set_timeout(edges, 600);
    tcase_add_loop_test(edges, f7_window_counts_keys, 0, SPLITTING);
    tcase_add_test(edges, f23_empty_splits);
    tcase_add_loop_test(edges, f24_f40_every_number_of_splits, 0, SPLITTING);
    tcase_add_loop_test(edges, f32_neighbours_of_an_empty_sequence, 0, SPLITTING);
    tcase_add_test(edges, f37_more_than_65535_sequences);
    tcase_add_test(edges, f41_rows_of_the_merge);
    tcase_add_loop_test(edges, f42_combinations, 0, 5);
    tcase_add_test(edges, f43_a_dirty_workspace);
    tcase_add_test(edges, f43_two_launches_on_one_workspace);
    tcase_add_loop_test(edges, f44_f46_others_change_nothing, 0, SPLITTING);
    tcase_add_loop_test(edges, f45_decode_is_prefill, 0, SPLITTING);
    tcase_add_test(edges, f47_bad_tables);
    tcase_add_test(edges, f48_rotary_without_a_mask);
    tcase_add_loop_test(edges, f49_append, 0, 3);
    tcase_add_loop_test(edges, f50_windows_count_from_the_caches_end, 0, SPLITTING);
    tcase_add_test(edges, f51_the_room_is_no_length);
    tcase_add_loop_test(edges, f52_heads_of_a_group, 0, 10);
    tcase_add_loop_test(edges, pages_change_no_bit, 0, 6);
    tcase_add_loop_test(edges, fp8_caches, 0, 3);
    suite_add_tcase(suite, edges);
    return suite;
}
