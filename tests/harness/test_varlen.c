// Sequences of varying lengths, and attention sinks: the reference, the checker, the options and the
// files. The reference of a batch is that of each sequence alone; a sink is one more key.
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check.h"
#include "harness/convert.h"
#include "harness/reference.h"
#include "slope.h"

// Lengths in an order that nothing sorts, an empty side among them, and both sides empty.
static const int query_starts[] = {0, 21, 21, 22, 22, 29}, key_starts[] = {0, 37, 41, 41, 41, 48};
enum { SEQUENCES = 5 };

static Problem varied(void) {
    return (Problem){.dtype = DTYPE_FP16,
                     .batch = SEQUENCES,
                     .heads = 4,
                     .kv_heads = 2,
                     .seqlen_q = 21,
                     .seqlen_k = 37,
                     .head_dim = 24,
                     .built_head_dim = 64,
                     .window_left = -1,
                     .window_right = -1,
                     .scale = 0.2041241452f,
                     .seed = 7,
                     .cu_seqlens_q = query_starts,
                     .cu_seqlens_k = key_starts};
}

// ---- the reference

// Sequence b's part of a tensor that is padded to `padded` rows.
static float *part_of(const float *tensor, int64_t b, int64_t padded, int64_t rows, int64_t row) {
    float *part = allocate(rows * row * (int64_t)sizeof *part);
    memcpy(part, tensor + b * padded * row, (size_t)(rows * row) * sizeof *part);
    return part;
}

// The same numbers, up to those of rows that only the padding has: these are NaN.
static void same_rows(const double *batch, int64_t padded, const double *alone, int64_t rows,
                      int heads, int columns) {
    for (int h = 0; h < heads; h++) {
        for (int64_t i = 0; i < padded * columns; i++) {
            double value = batch[h * padded * columns + i];
            if (i >= rows * columns)
                ck_assert(isnan(value));
            else
                ck_assert(value == alone[h * rows * columns + i]);
        }
    }
}

static void same_results(const Problem *p, int64_t b, const Problem *one, const Results *batch,
                         const Results *alone) {
    int64_t rows = p->heads * p->seqlen_q * b, keys = p->kv_heads * p->seqlen_k * b;
    int d = p->head_dim;
    same_rows(batch->o + rows * d, p->seqlen_q, alone->o, one->seqlen_q, p->heads, d);
    same_rows(batch->lse + rows, p->seqlen_q, alone->lse, one->seqlen_q, p->heads, 1);
    same_rows(batch->dq + rows * d, p->seqlen_q, alone->dq, one->seqlen_q, p->heads, d);
    same_rows(batch->dk + keys * d, p->seqlen_k, alone->dk, one->seqlen_k, p->kv_heads, d);
    same_rows(batch->dv + keys * d, p->seqlen_k, alone->dv, one->seqlen_k, p->kv_heads, d);
}

static void compare_with_each_alone(Problem p) {
    Inputs in;
    Reference batch, alone;
    inputs_random(&p, true, &in);
    reference_make(&p, &in, true, &batch);
    double pairs = 0;
    for (int64_t b = 0; b < SEQUENCES; b++) {
        Problem one = p;
        one.batch = 1;
        one.cu_seqlens_q = one.cu_seqlens_k = NULL;
        one.seqlen_q = query_starts[b + 1] - query_starts[b];
        one.seqlen_k = key_starts[b + 1] - key_starts[b];
        int64_t query = p.heads * p.head_dim, key = p.kv_heads * p.head_dim;
        Inputs part = {.q = part_of(in.q, b, p.seqlen_q, one.seqlen_q, query),
                       .k = part_of(in.k, b, p.seqlen_k, one.seqlen_k, key),
                       .v = part_of(in.v, b, p.seqlen_k, one.seqlen_k, key),
                       .dout = part_of(in.dout, b, p.seqlen_q, one.seqlen_q, query)};
        if (p.has_sink) part.sink = part_of(in.sink, 0, 0, p.heads, 1);
        reference_make(&one, &part, true, &alone);
        same_results(&p, b, &one, &batch.exact, &alone.exact);
        same_results(&p, b, &one, &batch.model, &alone.model);
        pairs += (double)unmasked_pairs(&one, 0);
        reference_free(&alone);
        inputs_free(&part);
    }
    ck_assert_double_eq(problem_flops(&p, false), 4 * pairs * p.heads * p.head_dim);
    reference_free(&batch);
    inputs_free(&in);
}

START_TEST(a_batch_is_its_sequences) {
    Problem p = varied();
    compare_with_each_alone(p);
    p.window_right = 0;
    compare_with_each_alone(p);
    p.window_left = 5, p.window_right = 2, p.softcap = 3, p.has_sink = true;
    compare_with_each_alone(p);
}
END_TEST

// o, lse and Σ dout · o of one row, where the sink is a key like others, of value 0.
static double with_one_more_key(const Problem *p, const Inputs *in, int64_t b, int h, int64_t i,
                                double *o, double *lse) {
    int d = p->head_dim, kv = h / (p->heads / p->kv_heads);
    const float *q = in->q + ((b * p->seqlen_q + i) * p->heads + h) * d;
    const float *dout = in->dout + ((b * p->seqlen_q + i) * p->heads + h) * d;
    double score[64], maximum = in->sink[h], sum = 0, loss = 0;
    int64_t from, to, keys = 0;
    visible_keys(p, b, i, &from, &to);
    memset(o, 0, (size_t)d * sizeof *o);
    for (int64_t j = from; j < to; j++, keys++) {
        const float *k = in->k + ((b * p->seqlen_k + j) * p->kv_heads + kv) * d;
        double dot = 0;
        for (int c = 0; c < d; c++) dot += (double)q[c] * k[c];
        score[keys] = p->scale * dot;
        maximum = fmax(maximum, score[keys]);
    }
    score[keys++] = in->sink[h];
    for (int64_t n = 0; n < keys; n++) sum += exp(score[n] - maximum);
    for (int64_t j = from; j < to; j++) {
        const float *v = in->v + ((b * p->seqlen_k + j) * p->kv_heads + kv) * d;
        for (int c = 0; c < d; c++) o[c] += exp(score[j - from] - maximum) / sum * v[c];
    }
    for (int c = 0; c < d; c++) loss += o[c] * dout[c];
    *lse = maximum + log(sum);
    return loss;
}

START_TEST(a_sink_is_one_more_key) {
    Problem p = varied();
    p.dtype = DTYPE_FP32;
    p.has_sink = true;
    p.window_right = 0; // and rows of the third sequence see no key
    Inputs in;
    Reference reference;
    inputs_random(&p, true, &in);
    reference_make(&p, &in, true, &reference);
    int64_t rows_alone_with_the_sink = 0;
    for (int64_t b = 0; b < p.batch; b++) {
        for (int h = 0; h < p.heads; h++) {
            for (int64_t i = 0; i < query_length(&p, b); i++) {
                double o[64], lse;
                int64_t from, to, slot = (b * p.heads + h) * p.seqlen_q + i;
                with_one_more_key(&p, &in, b, h, i, o, &lse);
                ck_assert_double_eq_tol(reference.exact.lse[slot], lse, 1e-12);
                for (int c = 0; c < p.head_dim; c++) {
                    double value = reference.exact.o[slot * p.head_dim + c];
                    ck_assert_double_eq_tol(value, o[c], 1e-12);
                }
                visible_keys(&p, b, i, &from, &to);
                if (to > from) continue;
                ck_assert(reference.exact.lse[slot] == in.sink[h]);
                rows_alone_with_the_sink++;
            }
        }
    }
    ck_assert_int_gt(rows_alone_with_the_sink, 0);
    reference_free(&reference);
    inputs_free(&in);
}
END_TEST

static double loss_of(const Problem *p, const Inputs *in) {
    double sum = 0, o[64], lse;
    for (int64_t b = 0; b < p->batch; b++) {
        for (int h = 0; h < p->heads; h++) {
            for (int64_t i = 0; i < query_length(p, b); i++) {
                sum += with_one_more_key(p, in, b, h, i, o, &lse);
            }
        }
    }
    return sum;
}

START_TEST(gradients_beside_a_sink) {
    Problem p = varied();
    p.dtype = DTYPE_FP32;
    p.has_sink = true;
    Inputs in;
    Reference reference;
    inputs_random(&p, true, &in);
    reference_make(&p, &in, true, &reference);
    for (int n = 0; n < 8; n++) {
        int64_t b = n % 2 == 0 ? 0 : 4, i = n * 5 % 7, j = n * 3 % 7;
        int h = n % p.heads, c = n * 5 % p.head_dim, kv = h / 2;
        int64_t row = ((b * p.seqlen_q + i) * p.heads + h) * p.head_dim + c;
        int64_t key = ((b * p.seqlen_k + j) * p.kv_heads + kv) * p.head_dim + c;
        int64_t row_slot = ((b * p.heads + h) * p.seqlen_q + i) * p.head_dim + c;
        int64_t key_slot = ((b * p.kv_heads + kv) * p.seqlen_k + j) * p.head_dim + c;
        const Results *exact = &reference.exact;
        ck_assert_double_eq_tol(exact->dq[row_slot], slope(&p, &in, in.q + row, loss_of), 1e-5);
        ck_assert_double_eq_tol(exact->dk[key_slot], slope(&p, &in, in.k + key, loss_of), 1e-5);
        ck_assert_double_eq_tol(exact->dv[key_slot], slope(&p, &in, in.v + key, loss_of), 1e-5);
    }
    reference_free(&reference);
    inputs_free(&in);
}
END_TEST

// A sink of minus infinity weighs nothing.
START_TEST(no_sink_is_minus_infinity) {
    Problem p = varied();
    p.window_right = 0;
    Inputs in;
    Reference none, infinite;
    inputs_random(&p, true, &in);
    reference_make(&p, &in, true, &none);
    p.has_sink = true;
    in.sink = allocate(p.heads * (int64_t)sizeof *in.sink);
    for (int h = 0; h < p.heads; h++) in.sink[h] = -INFINITY;
    reference_make(&p, &in, true, &infinite);
    size_t rows = (size_t)(p.batch * p.heads * p.seqlen_q) * sizeof(double);
    ck_assert_int_eq(memcmp(none.exact.lse, infinite.exact.lse, rows), 0);
    ck_assert_int_eq(memcmp(none.exact.o, infinite.exact.o, rows * (size_t)p.head_dim), 0);
    ck_assert_int_eq(memcmp(none.model.dq, infinite.model.dq, rows * (size_t)p.head_dim), 0);
    reference_free(&none);
    reference_free(&infinite);
    inputs_free(&in);
}
END_TEST

// Of a large batch some rows of each sequence are computed, the first and the last among them; of a
// short one all.
START_TEST(sampled_rows_are_there) {
    static const int starts[] = {0, 300, 305, 305, 505};
    Selection s;
    selection_make_varlen(&s, 300, 50, 4, 2, starts, 1);
    ck_assert_int_eq(s.count, 50);
    for (int64_t head = 0; head < 8; head++) {
        int64_t length = starts[head / 2 + 1] - starts[head / 2], real = 0;
        for (int64_t r = 0; r < 50; r++) {
            ck_assert(r == 0 || selection_row(&s, head, r) > selection_row(&s, head, r - 1));
            ck_assert_int_lt(selection_row(&s, head, r), 300);
            real += selection_row(&s, head, r) < length;
        }
        ck_assert_int_eq(real, length < 50 ? length : 50);
        if (length == 0) continue;
        ck_assert_int_eq(selection_row(&s, head, 0), 0);
        ck_assert_int_eq(selection_row(&s, head, real - 1), length - 1);
    }
    selection_free(&s);
}
END_TEST

// ---- the checker

typedef struct {
    Problem p;
    Inputs in;
    Reference reference;
    uint16_t *o;
    float *lse;
} Case;

// The reference's results as a kernel would write them, one sequence after the other.
static Case right_outputs(Problem p) {
    Case t = {.p = p};
    inputs_random(&p, false, &t.in);
    reference_make(&p, &t.in, false, &t.reference);
    t.o = allocate(29 * p.heads * p.built_head_dim * (int64_t)sizeof *t.o);
    t.lse = allocate(29 * p.heads * (int64_t)sizeof *t.lse);
    memset(t.o, 0, 29 * (size_t)(p.heads * p.built_head_dim) * sizeof *t.o);
    for (int64_t b = 0; b < p.batch; b++) {
        for (int h = 0; h < p.heads; h++) {
            for (int64_t i = 0; i < query_starts[b + 1] - query_starts[b]; i++) {
                int64_t slot = (b * p.heads + h) * p.seqlen_q + i, row = query_starts[b] + i;
                t.lse[h * 29 + row] = (float)t.reference.exact.lse[slot];
                for (int c = 0; c < p.head_dim; c++) {
                    float value = (float)t.reference.exact.o[slot * p.head_dim + c];
                    t.o[(row * p.heads + h) * p.built_head_dim + c] = half_from_float(value);
                }
            }
        }
    }
    return t;
}

static void free_case(Case *t) {
    inputs_free(&t->in);
    reference_free(&t->reference);
    free(t->o);
    free(t->lse);
}

static TensorCheck checked(const Case *t, TensorName tensor) {
    TensorCheck check;
    const void *bytes = tensor == TENSOR_O ? (const void *)t->o : (const void *)t->lse;
    check_tensor(&t->p, &t->in, &t->reference, tensor, bytes, &check);
    return check;
}

static void says(const TensorCheck *check, const char *words) {
    ck_assert_msg(!check->ok, "accepted; should say: %s", words);
    ck_assert_msg(strstr(check->report, words) != NULL, "want: %s\n%s", words, check->report);
}

START_TEST(every_row_counts_once) {
    Problem p = varied();
    p.window_right = 0;
    Case t = right_outputs(p);
    ck_assert_int_eq(tensor_elements(&p, TENSOR_O), 29 * 4 * 64);
    ck_assert_int_eq(tensor_elements(&p, TENSOR_LSE), 29 * 4);
    ck_assert_int_eq(tensor_elements(&p, TENSOR_DK), 48 * 2 * 64);
    TensorCheck o = checked(&t, TENSOR_O), lse = checked(&t, TENSOR_LSE);
    ck_assert_msg(o.ok && lse.ok, "%s%s", o.report, lse.report);
    ck_assert_int_eq(o.compared, 29 * 4 * 24);
    ck_assert_int_eq(lse.compared, 29 * 4);
    free_case(&t);
}
END_TEST

START_TEST(a_wrong_row_is_named) {
    Case t = right_outputs(varied());
    uint16_t *element = &t.o[((query_starts[4] + 2) * 4 + 3) * 64 + 5], kept = *element;
    *element = half_from_float(9);
    TensorCheck check = checked(&t, TENSOR_O);
    says(&check, "wrong in 1 of 2784");
    says(&check, "first at batch 4, head 3, row 2, column 5");
    memset(element, 0xff, sizeof *element);
    check = checked(&t, TENSOR_O);
    says(&check, "1 elements were never written");
    *element = kept;
    t.lse[3 * 29 + query_starts[4]] += 1;
    check = checked(&t, TENSOR_LSE);
    says(&check, "first at batch 4, head 3, row 0");
    free_case(&t);
}
END_TEST

// The partial tile of one sequence written over the first rows of the next (F77).
START_TEST(the_next_sequence_overwritten) {
    Case t = right_outputs(varied());
    memset(t.o + query_starts[4] * 4 * 64, 0, 3 * 4 * 64 * sizeof *t.o);
    TensorCheck check = checked(&t, TENSOR_O);
    says(&check, "first at batch 4, head 0, row 0");
    says(&check, "rows 0-2 of head 0 and 3 more");
    free_case(&t);
}
END_TEST

// lse where a padded (batch, heads, seqlen_q) tensor has it.
START_TEST(lse_in_the_padded_layout) {
    Case t = right_outputs(varied());
    float *padded = allocate(29 * 4 * (int64_t)sizeof *padded);
    for (int64_t n = 0; n < 29 * 4; n++) padded[n] = t.lse[(n % 4) * 29 + n / 4];
    free(t.lse);
    t.lse = padded;
    TensorCheck check = checked(&t, TENSOR_LSE);
    ck_assert_int_gt(check.wrong, 50);
    free_case(&t);
}
END_TEST

START_TEST(a_forgotten_sink_is_guessed) {
    Problem p = varied();
    p.has_sink = true;
    Case t = right_outputs(p), without = right_outputs(varied());
    TensorCheck check = checked(&t, TENSOR_O);
    ck_assert_msg(check.ok, "%s", check.report);
    memcpy(t.o, without.o, 29 * 4 * 64 * sizeof *t.o);
    memcpy(t.lse, without.lse, 29 * 4 * sizeof *t.lse);
    check = checked(&t, TENSOR_O);
    says(&check, "when the sink is not counted");
    check = checked(&t, TENSOR_LSE);
    ck_assert_int_eq(check.wrong, 29 * 4);
    free_case(&t);
    free_case(&without);
}
END_TEST

Suite *suite_varlen(void);
Suite *suite_varlen(void) {
    Suite *suite = suite_create("harness: variable lengths and sinks");
    TCase *reference = tcase_create("reference");
    tcase_add_test(reference, a_batch_is_its_sequences);
    tcase_add_test(reference, a_sink_is_one_more_key);
    tcase_add_test(reference, gradients_beside_a_sink);
    tcase_add_test(reference, no_sink_is_minus_infinity);
    tcase_add_test(reference, sampled_rows_are_there);
    TCase *checker = tcase_create("checker");
    tcase_add_test(checker, every_row_counts_once);
    tcase_add_test(checker, a_wrong_row_is_named);
    tcase_add_test(checker, the_next_sequence_overwritten);
    tcase_add_test(checker, lse_in_the_padded_layout);
    tcase_add_test(checker, a_forgotten_sink_is_guessed);
    suite_add_tcase(suite, reference);
    suite_add_tcase(suite, checker);
    return suite;
}
