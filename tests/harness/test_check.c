// The checker can't be fooled: each way in which a public repository's checker once was, and some
// more, is refused, and the report says what happened. The right outputs pass.
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check.h"
#include "harness/convert.h"

// A problem with its data, its reference, and an output that a test spoils.
typedef struct {
    Problem p;
    Inputs in;
    Reference reference;
    char *o;
    float *lse;
    TensorCheck check;
} Case;

static Problem usual(void) {
    return (Problem){.dtype = DTYPE_FP16,
                     .batch = 1,
                     .heads = 2,
                     .kv_heads = 2,
                     .seqlen_q = 200,
                     .seqlen_k = 256,
                     .head_dim = 32,
                     .built_head_dim = 64,
                     .window_left = -1,
                     .window_right = -1,
                     .scale = 0.17677669f,
                     .seed = 11};
}

// Writes results into the device's layout, as a kernel with these values would.
static void store_results(Case *t, const Results *from) {
    const Problem *p = &t->p;
    memset(t->o, 0, (size_t)tensor_elements(p, TENSOR_O) * dtype_size(p->dtype));
    for (int head = 0; head < p->batch * p->heads; head++) {
        for (int64_t i = 0; i < p->seqlen_q; i++) {
            int64_t row = head * p->seqlen_q + i;
            int64_t at = tensor_index(p, TENSOR_O, head / p->heads, head % p->heads, i, 0);
            for (int c = 0; c < p->head_dim; c++) {
                float value = (float)from->o[row * p->head_dim + c];
                store_as_dtype(t->o + (size_t)(at + c) * dtype_size(p->dtype), &value, 1, p->dtype);
            }
            t->lse[row] = (float)from->lse[row];
        }
    }
}

static Case *make_case(Problem p) {
    Case *t = calloc(1, sizeof *t);
    t->p = p;
    inputs_random(&p, false, &t->in);
    reference_make(&t->p, &t->in, false, &t->reference);
    t->o = malloc((size_t)tensor_elements(&p, TENSOR_O) * dtype_size(p.dtype) + 1);
    t->lse = malloc((size_t)tensor_elements(&p, TENSOR_LSE) * sizeof(float) + 1);
    store_results(t, &t->reference.exact);
    return t;
}

static void free_case(Case *t) {
    inputs_free(&t->in);
    reference_free(&t->reference);
    free(t->o);
    free(t->lse);
    free(t);
}

static uint16_t *o_at(Case *t, int head, int64_t row, int column) {
    return (uint16_t *)t->o + tensor_index(&t->p, TENSOR_O, 0, head, row, column);
}

static void expect_right(Case *t) {
    check_tensor(&t->p, &t->in, &t->reference, TENSOR_O, t->o, &t->check);
    ck_assert_msg(t->check.ok, "%s", t->check.report);
    check_tensor(&t->p, &t->in, &t->reference, TENSOR_LSE, t->lse, &t->check);
    ck_assert_msg(t->check.ok, "%s", t->check.report);
}

// Wrong, with these words in the report.
static void expect_wrong(Case *t, TensorName tensor, const char *words) {
    const void *bytes = tensor == TENSOR_O ? (void *)t->o : (void *)t->lse;
    check_tensor(&t->p, &t->in, &t->reference, tensor, bytes, &t->check);
    ck_assert_msg(!t->check.ok, "accepted; should say: %s", words);
    ck_assert_msg(strstr(t->check.report, words) != NULL, "want: %s\n%s", words, t->check.report);
}

// Recomputes the output for a problem that differs from the case's.
static void compute_as(Case *t, const Problem *other, const Inputs *in) {
    Selection rows = {other->seqlen_q, other->seqlen_q, NULL};
    Selection keys = {other->seqlen_k, other->seqlen_k, NULL};
    Results results;
    reference_attention(other, in, &rows, &keys, false, &results);
    store_results(t, &results);
    results_free(&results);
}

START_TEST(right_outputs_pass) {
    static const Dtype dtypes[] = {DTYPE_FP32, DTYPE_FP16, DTYPE_BF16};
    for (int d = 0; d < 3; d++) {
        for (int causal = 0; causal < 2; causal++) {
            Problem p = usual();
            p.dtype = dtypes[d];
            if (causal) p.window_right = 0, p.seqlen_k = 150; // and 50 rows without a key
            Case *t = make_case(p);
            expect_right(t);
            store_results(t, &t->reference.model);
            expect_right(t);
            free_case(t);
        }
    }
}
END_TEST

START_TEST(a_nan_and_an_infinity) {
    Case *t = make_case(usual());
    *o_at(t, 1, 77, 3) = 0x7e00;
    expect_wrong(t, TENSOR_O, "wrong in 1 of 12800");
    ck_assert_int_eq(t->check.nonfinite, 1);
    ck_assert_ptr_nonnull(strstr(t->check.report, "head 1, row 77, column 3"));
    *o_at(t, 1, 77, 3) = 0xfc00;
    expect_wrong(t, TENSOR_O, "NaN or infinite");
    store_results(t, &t->reference.exact);
    t->lse[9] = NAN;
    expect_wrong(t, TENSOR_LSE, "wrong in 1 of 400");
    free_case(t);
}
END_TEST

// A NaN in the reference doesn't excuse a finite output, nor the other way round.
START_TEST(a_nan_in_the_reference) {
    Case *t = make_case(usual());
    reference_free(&t->reference);
    t->in.q[0] = NAN; // row 0 of head 0
    reference_make(&t->p, &t->in, false, &t->reference);
    expect_wrong(t, TENSOR_O, "wrong in 32 of 12800");
    store_results(t, &t->reference.exact);
    check_tensor(&t->p, &t->in, &t->reference, TENSOR_O, t->o, &t->check);
    ck_assert_msg(t->check.ok, "%s", t->check.report);
    free_case(t);
}
END_TEST

START_TEST(constants_and_zeros) {
    Case *t = make_case(usual());
    int64_t elements = tensor_elements(&t->p, TENSOR_O);
    memset(t->o, 0, (size_t)elements * 2);
    expect_wrong(t, TENSOR_O, "all of the wrong rows hold 0");
    for (int i = 0; i < 2 * 200; i++) {
        for (int c = 0; c < 32; c++) *o_at(t, i / 200, i % 200, c) = half_from_float(0.25f);
    }
    expect_wrong(t, TENSOR_O, "all of the wrong rows hold 0.25");
    for (int64_t i = 0; i < 400; i++) t->lse[i] = 5;
    expect_wrong(t, TENSOR_LSE, "hold 5");
    free_case(t);
}
END_TEST

START_TEST(half_of_the_keys_unread) {
    Case *t = make_case(usual());
    Problem half = t->p;
    half.seqlen_k /= 2;
    compute_as(t, &half, &t->in);
    expect_wrong(t, TENSOR_O, "keys 128-255 (of 0-255) are left out");
    expect_wrong(t, TENSOR_LSE, "wrong in");
    free_case(t);
}
END_TEST

START_TEST(scores_skipped) {
    Case *t = make_case(usual());
    Problem flat = t->p;
    flat.scale = 0;
    compute_as(t, &flat, &t->in);
    expect_wrong(t, TENSOR_O, "the scores QKᵀ have no effect");
    free_case(t);
}
END_TEST

// Outputs shrink like 1/√N: a fixed tolerance doesn't see one tile of 16384 keys.
START_TEST(one_tile_dropped_of_16384_keys) {
    Problem p = usual();
    p.heads = p.kv_heads = 1;
    p.seqlen_q = 64;
    p.seqlen_k = 16384;
    Case *t = make_case(p);
    expect_right(t);
    Inputs fewer = t->in;
    int64_t tile = 64 * p.head_dim, from = 8192 * p.head_dim, rest = key_elements(&p) - from - tile;
    fewer.k = malloc((size_t)key_elements(&p) * sizeof(float));
    fewer.v = malloc((size_t)key_elements(&p) * sizeof(float));
    memcpy(fewer.k, t->in.k, (size_t)from * sizeof(float));
    memcpy(fewer.v, t->in.v, (size_t)from * sizeof(float));
    memcpy(fewer.k + from, t->in.k + from + tile, (size_t)rest * sizeof(float));
    memcpy(fewer.v + from, t->in.v + from + tile, (size_t)rest * sizeof(float));
    p.seqlen_k -= 64;
    compute_as(t, &p, &fewer);
    expect_wrong(t, TENSOR_O, "keys 8192-8255");
    free(fewer.k);
    free(fewer.v);
    free_case(t);
}
END_TEST

START_TEST(heads_swapped_and_rows_permuted) {
    Case *t = make_case(usual());
    uint16_t row[32];
    for (int64_t i = 0; i < t->p.seqlen_q; i++) {
        memcpy(row, o_at(t, 0, i, 0), sizeof row);
        memcpy(o_at(t, 0, i, 0), o_at(t, 1, i, 0), sizeof row);
        memcpy(o_at(t, 1, i, 0), row, sizeof row);
    }
    expect_wrong(t, TENSOR_O, "heads swapped");
    store_results(t, &t->reference.exact);
    memcpy(row, o_at(t, 0, 5, 0), sizeof row);
    memcpy(o_at(t, 0, 5, 0), o_at(t, 0, 6, 0), sizeof row);
    memcpy(o_at(t, 0, 6, 0), row, sizeof row);
    expect_wrong(t, TENSOR_O, "row 5 holds the result of row 6: rows permuted");
    free_case(t);
}
END_TEST

START_TEST(unwritten_elements) {
    Case *t = make_case(usual());
    memset(o_at(t, 1, 199, 31), POISON, 2);
    expect_wrong(t, TENSOR_O, "1 elements were never written");
    store_results(t, &t->reference.exact);
    memset(o_at(t, 0, 3, 40), POISON, 2); // in the padding of head_dim
    expect_wrong(t, TENSOR_O, "never written");
    store_results(t, &t->reference.exact);
    memset(&t->lse[399], POISON, 4);
    expect_wrong(t, TENSOR_LSE, "never written");
    store_results(t, &t->reference.exact);
    *o_at(t, 0, 3, 40) = 0x3c00;
    expect_wrong(t, TENSOR_O, "zero padding behind head_dim 32");
    free_case(t);
}
END_TEST

START_TEST(lse_in_base_two) {
    Case *t = make_case(usual());
    for (int64_t i = 0; i < 400; i++) t->lse[i] *= (float)M_LOG2E;
    expect_wrong(t, TENSOR_LSE, "log2(e), a logarithm in base 2");
    free_case(t);
}
END_TEST

START_TEST(tiles_of_rows) {
    Case *t = make_case(usual());
    for (int64_t i = 64; i < 128; i++) {
        for (int c = 0; c < 32; c++) *o_at(t, 1, i, c) ^= 0x8000;
    }
    expect_wrong(t, TENSOR_O, "rows 64-127 of head 1: one 64-row tile");
    ck_assert_ptr_nonnull(strstr(t->check.report, "-1.0000 times"));
    store_results(t, &t->reference.exact);
    for (int64_t i = 192; i < 200; i++) {
        for (int c = 0; c < 32; c++) *o_at(t, 0, i, c) = *o_at(t, 1, i, 31 - c);
    }
    expect_wrong(t, TENSOR_O, "only in the last, partial tile: rows 192-199 of head 0");
    free_case(t);
}
END_TEST

// Rows without a key: o = 0 and lse = -inf, nothing else.
START_TEST(rows_without_keys) {
    Problem p = usual();
    p.window_right = 0;
    p.seqlen_k = 100; // rows 0-99 see nothing
    Case *t = make_case(p);
    expect_right(t);
    *o_at(t, 0, 50, 0) = half_from_float(0.01f);
    expect_wrong(t, TENSOR_O, "row 50");
    store_results(t, &t->reference.exact);
    t->lse[50] = INFINITY;
    expect_wrong(t, TENSOR_LSE, "row 50");
    t->lse[50] = -1e30f;
    expect_wrong(t, TENSOR_LSE, "row 50");
    free_case(t);
}
END_TEST

// No element beyond the limit, and still worse than standard attention: the rms rule.
START_TEST(sloppy_everywhere) {
    Case *t = make_case(usual());
    check_tensor(&t->p, &t->in, &t->reference, TENSOR_O, t->o, &t->check);
    double amplitude = 0.7 * t->check.limit;
    for (int i = 0; i < 400; i++) {
        for (int c = 0; c < 32; c++) {
            double exact = t->reference.exact.o[i * 32 + c];
            float value = (float)(exact + (c % 2 == 0 ? amplitude : -amplitude));
            store_as_dtype(o_at(t, i / 200, i % 200, c), &value, 1, DTYPE_FP16);
        }
    }
    expect_wrong(t, TENSOR_O, "rms error");
    ck_assert_int_eq(t->check.wrong, 0);
    free_case(t);
}
END_TEST

// Of a large problem some rows are compared; the others must still be written, without NaN.
START_TEST(sampled_rows) {
    Case *t = make_case(usual());
    reference_free(&t->reference);
    selection_make(&t->reference.rows, 200, 20, 2, 3);
    t->reference.keys = (Selection){256, 256, NULL};
    reference_attention(&t->p, &t->in, &t->reference.rows, &t->reference.keys, false,
                        &t->reference.exact);
    model_attention(&t->p, &t->in, &t->reference.rows, &t->reference.keys, false,
                    &t->reference.model);
    expect_right(t);
    int64_t sampled = selection_row(&t->reference.rows, 1, 7), other = 0;
    for (int64_t r = 0; r < 20; r++) other += selection_row(&t->reference.rows, 0, r) == other;
    uint16_t kept = *o_at(t, 1, sampled, 2);
    *o_at(t, 1, sampled, 2) = half_from_float(9);
    expect_wrong(t, TENSOR_O, "wrong in 1 of 1280");
    *o_at(t, 1, sampled, 2) = kept;
    kept = *o_at(t, 0, other, 0);
    *o_at(t, 0, other, 0) = 0x7e00;
    expect_wrong(t, TENSOR_O, "NaN or infinite");
    memset(o_at(t, 0, other, 0), POISON, 2);
    expect_wrong(t, TENSOR_O, "never written");
    *o_at(t, 0, other, 0) = kept;
    expect_right(t);
    free_case(t);
}
END_TEST

// fp16 scores beyond 65504 overflow in standard attention: its limits must not become NaN.
START_TEST(model_overflow_keeps_limits) {
    Problem p = usual();
    Case *t = make_case(p);
    reference_free(&t->reference);
    t->p.scale = -20000; // scores of up to about ±2e6
    reference_make(&t->p, &t->in, false, &t->reference);
    store_results(t, &t->reference.exact);
    check_tensor(&t->p, &t->in, &t->reference, TENSOR_O, t->o, &t->check);
    ck_assert_msg(t->check.ok, "%s", t->check.report);
    ck_assert(isfinite(t->check.limit));
    memset(t->o, 0, (size_t)tensor_elements(&t->p, TENSOR_O) * 2);
    expect_wrong(t, TENSOR_O, "hold 0");
    free_case(t);
}
END_TEST

Suite *suite_check(void);
Suite *suite_check(void) {
    Suite *suite = suite_create("harness: checker");
    TCase *all = tcase_create("checker");
    tcase_add_test(all, right_outputs_pass);
    tcase_add_test(all, a_nan_and_an_infinity);
    tcase_add_test(all, a_nan_in_the_reference);
    tcase_add_test(all, constants_and_zeros);
    tcase_add_test(all, half_of_the_keys_unread);
    tcase_add_test(all, scores_skipped);
    tcase_add_test(all, one_tile_dropped_of_16384_keys);
    tcase_add_test(all, heads_swapped_and_rows_permuted);
    tcase_add_test(all, unwritten_elements);
    tcase_add_test(all, lse_in_base_two);
    tcase_add_test(all, tiles_of_rows);
    tcase_add_test(all, rows_without_keys);
    tcase_add_test(all, sloppy_everywhere);
    tcase_add_test(all, sampled_rows);
    tcase_add_test(all, model_overflow_keeps_limits);
    suite_add_tcase(suite, all);
    return suite;
}
