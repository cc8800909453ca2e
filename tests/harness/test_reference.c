// The float64 reference against a brute-force one that shares no line with it, and its backward
// pass against finite differences; the rounding model against its own definition.
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/convert.h"
#include "harness/parallel.h"
#include "harness/reference.h"
#include "slope.h"

static Problem small_problem(void) {
    return (Problem){.dtype = DTYPE_FP32,
                     .batch = 2,
                     .heads = 4,
                     .kv_heads = 2,
                     .seqlen_q = 21,
                     .seqlen_k = 37,
                     .head_dim = 24,
                     .built_head_dim = 64,
                     .window_left = -1,
                     .window_right = -1,
                     .scale = 0.2041241452f,
                     .seed = 7};
}

// Does row i see key j? Straight from the definition in attention.h.
static bool sees(const Problem *p, int64_t i, int64_t j) {
    int64_t middle = i + p->seqlen_k - p->seqlen_q;
    if (p->window_left >= 0 && j < middle - p->window_left) return false;
    if (p->window_right >= 0 && j > middle + p->window_right) return false;
    return true;
}

static double dot_product(const float *a, const float *b, int n) {
    double sum = 0;
    for (int c = 0; c < n; c++) sum += (double)a[c] * b[c];
    return sum;
}

// o and lse of one row by three loops.
static void brute_force(const Problem *p, const Inputs *in, int b, int h, int64_t i, double *o,
                        double *lse) {
    int d = p->head_dim, kv = h / (p->heads / p->kv_heads);
    const float *q = in->q + ((b * p->seqlen_q + i) * p->heads + h) * d;
    double *score = calloc((size_t)p->seqlen_k + 1, sizeof *score), maximum = -INFINITY, sum = 0;
    for (int64_t j = 0; j < p->seqlen_k; j++) {
        const float *k = in->k + ((b * p->seqlen_k + j) * p->kv_heads + kv) * d;
        score[j] = p->scale * dot_product(q, k, d);
        if (p->softcap > 0) score[j] = p->softcap * tanh(score[j] / p->softcap);
        if (!sees(p, i, j)) score[j] = -INFINITY;
        maximum = fmax(maximum, score[j]);
    }
    memset(o, 0, (size_t)d * sizeof *o);
    for (int64_t j = 0; j < p->seqlen_k; j++) {
        if (!sees(p, i, j)) continue;
        const float *v = in->v + ((b * p->seqlen_k + j) * p->kv_heads + kv) * d;
        double weight = exp(score[j] - maximum);
        sum += weight;
        for (int c = 0; c < d; c++) o[c] += weight * v[c];
    }
    for (int c = 0; c < d && sum > 0; c++) o[c] /= sum;
    *lse = sum > 0 ? maximum + log(sum) : -INFINITY;
    free(score);
}

static void compare_forward(const Problem *p) {
    Inputs in;
    Reference reference;
    inputs_random(p, false, &in);
    reference_make(p, &in, false, &reference);
    double o[256], lse;
    for (int b = 0; b < p->batch; b++) {
        for (int h = 0; h < p->heads; h++) {
            for (int64_t r = 0; r < reference.rows.count; r++) {
                int64_t head = (int64_t)b * p->heads + h;
                int64_t slot = head * reference.rows.count + r;
                brute_force(p, &in, b, h, selection_row(&reference.rows, head, r), o, &lse);
                if (isinf(lse))
                    ck_assert(reference.exact.lse[slot] == lse);
                else
                    ck_assert_double_eq_tol(reference.exact.lse[slot], lse, 1e-12);
                for (int c = 0; c < p->head_dim; c++) {
                    double value = reference.exact.o[slot * p->head_dim + c];
                    ck_assert_double_eq_tol(value, o[c], 1e-12);
                }
            }
        }
    }
    reference_free(&reference);
    inputs_free(&in);
}

START_TEST(forward_is_the_brute_force_one) {
    Problem p = small_problem();
    compare_forward(&p);
    p.softcap = 1.5f;
    compare_forward(&p);
    p.head_dim = 64;
    p.seqlen_q = 1;
    compare_forward(&p);
    p.head_dim = 8;
    p.seqlen_k = 1;
    compare_forward(&p);
}
END_TEST

// Every kind of mask at lengths around the vector width, rows without keys among them.
START_TEST(masks_are_the_definition) {
    static const int64_t windows[][2] = {{-1, 0}, {0, 0},    {3, 0}, {-1, 4},
                                         {5, 2},  {100, -1}, {0, -1}};
    static const int64_t lengths[][2] = {{5, 2},   {2, 5}, {40, 9}, {33, 33},
                                         {17, 64}, {7, 0}, {0, 7}};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            Problem p = small_problem();
            p.window_left = windows[w][0];
            p.window_right = windows[w][1];
            p.seqlen_q = lengths[l][0];
            p.seqlen_k = lengths[l][1];
            compare_forward(&p);
            int64_t pairs = 0;
            for (int64_t i = 0; i < p.seqlen_q; i++) {
                for (int64_t j = 0; j < p.seqlen_k; j++) {
                    int64_t from, to;
                    visible_rows(&p, 0, j, &from, &to);
                    ck_assert_int_eq(sees(&p, i, j), from <= i && i < to);
                    pairs += sees(&p, i, j);
                }
            }
            ck_assert_int_eq(unmasked_pairs(&p, 0), pairs);
        }
    }
}
END_TEST

START_TEST(causal_is_aligned_to_the_bottom_right) {
    Problem p = small_problem();
    p.window_right = 0;
    p.seqlen_q = 5;
    p.seqlen_k = 2;
    int64_t from, to;
    for (int i = 0; i < 5; i++) { // the first three rows see nothing
        visible_keys(&p, 0, i, &from, &to);
        ck_assert_int_eq(to - from, i < 3 ? 0 : i - 2);
    }
    p.seqlen_q = 2;
    p.seqlen_k = 5;
    visible_keys(&p, 0, 0, &from, &to);
    ck_assert_int_eq(to - from, 4);
    visible_keys(&p, 0, 1, &from, &to);
    ck_assert_int_eq(to - from, 5);
}
END_TEST

// A NaN that the mask hides changes nothing; one that a row sees makes the row NaN.
START_TEST(masked_nan_stays_hidden) {
    Problem p = small_problem();
    p.window_right = 0;
    p.seqlen_q = p.seqlen_k = 24;
    p.batch = 1;
    Inputs in;
    inputs_random(&p, false, &in);
    int64_t last = 23 * p.kv_heads * p.head_dim;
    for (int c = 0; c < p.kv_heads * p.head_dim; c++) in.k[last + c] = in.v[last + c] = NAN;
    Reference reference;
    reference_make(&p, &in, false, &reference);
    for (int h = 0; h < p.heads; h++) {
        for (int i = 0; i < 24; i++) {
            double o = reference.exact.o[(h * 24 + i) * p.head_dim];
            ck_assert_int_eq(isnan(o) != 0, i == 23);
            ck_assert_int_eq(isnan(reference.model.o[(h * 24 + i) * p.head_dim]) != 0, i == 23);
        }
    }
    reference_free(&reference);
    inputs_free(&in);
}
END_TEST

// Σ dout · o + Σ dlse · lse, the scalar whose gradients the backward pass is.
static double loss(const Problem *p, const Inputs *in) {
    double sum = 0, o[256], lse;
    for (int b = 0; b < p->batch; b++) {
        for (int h = 0; h < p->heads; h++) {
            for (int64_t i = 0; i < p->seqlen_q; i++) {
                brute_force(p, in, b, h, i, o, &lse);
                const float *dout = in->dout + ((b * p->seqlen_q + i) * p->heads + h) * p->head_dim;
                for (int c = 0; c < p->head_dim; c++) sum += o[c] * dout[c];
                if (in->dlse == NULL || isinf(lse)) continue; // a row of no key has no slope
                sum += lse * in->dlse[((int64_t)b * p->heads + h) * p->seqlen_q + i];
            }
        }
    }
    return sum;
}

static void compare_gradients(const Problem *p, bool with_dlse) {
    Inputs in;
    Reference reference;
    inputs_random(p, true, &in);
    int64_t rows = (int64_t)p->batch * p->heads * p->seqlen_q;
    if (with_dlse) {
        in.dlse = allocate(rows * (int64_t)sizeof *in.dlse);
        for (int64_t r = 0; r < rows; r++) in.dlse[r] = (float)(r * 5 % 17 - 8) / 4;
    }
    reference_make(p, &in, true, &reference);
    int d = p->head_dim;
    for (int n = 0; n < 12; n++) {
        int b = n % p->batch, h = n % p->heads, c = n * 5 % d;
        int64_t i = n * 7 % p->seqlen_q, j = n * 11 % p->seqlen_k;
        int kv = h / (p->heads / p->kv_heads);
        int64_t row = ((b * p->seqlen_q + i) * p->heads + h) * d + c;
        int64_t key = ((b * p->seqlen_k + j) * p->kv_heads + kv) * d + c;
        int64_t row_slot = (((int64_t)b * p->heads + h) * p->seqlen_q + i) * d + c;
        int64_t key_slot = (((int64_t)b * p->kv_heads + kv) * p->seqlen_k + j) * d + c;
        ck_assert_double_eq_tol(reference.exact.dq[row_slot], slope(p, &in, in.q + row, loss),
                                1e-5);
        ck_assert_double_eq_tol(reference.exact.dk[key_slot], slope(p, &in, in.k + key, loss),
                                1e-5);
        ck_assert_double_eq_tol(reference.exact.dv[key_slot], slope(p, &in, in.v + key, loss),
                                1e-5);
    }
    reference_free(&reference);
    inputs_free(&in);
}

static void compare_backward(const Problem *p) {
    compare_gradients(p, false);
    compare_gradients(p, true); // F67
}

START_TEST(backward_is_the_finite_difference) {
    Problem p = small_problem();
    compare_backward(&p);
    p.softcap = 2;
    compare_backward(&p);
    p.window_right = 0;
    p.seqlen_q = 37;
    p.seqlen_k = 30;
    compare_backward(&p);
    p.window_left = 6;
    p.scale = 1;
    compare_backward(&p);
}
END_TEST

// One key: softmax is 1, so dQ = dK = 0 and dV = dO, whatever the values.
START_TEST(gradients_of_one_key) {
    Problem p = small_problem();
    p.batch = p.heads = p.kv_heads = 1;
    p.seqlen_q = p.seqlen_k = 1;
    Inputs in;
    Reference reference;
    inputs_random(&p, true, &in);
    for (int c = 0; c < p.head_dim; c++) in.q[c] *= 3, in.k[c] *= 3;
    reference_make(&p, &in, true, &reference);
    for (int c = 0; c < p.head_dim; c++) {
        ck_assert_double_eq_tol(reference.exact.dq[c], 0, 1e-14);
        ck_assert_double_eq_tol(reference.exact.dk[c], 0, 1e-14);
        ck_assert_double_eq(reference.exact.dv[c], in.dout[c]);
    }
    reference_free(&reference);
    inputs_free(&in);
}
END_TEST

// A sampled reference holds the same numbers as the full one.
START_TEST(sampled_rows_are_rows_of_the_whole) {
    Problem p = small_problem();
    p.seqlen_q = p.seqlen_k = 300;
    p.window_right = 0;
    Inputs in;
    inputs_random(&p, true, &in);
    Selection all = {300, 300, NULL}, rows, keys;
    selection_make(&rows, 300, 50, p.batch * p.heads, 1);
    selection_make(&keys, 300, 40, p.batch * p.kv_heads, 2);
    Results whole, some;
    reference_attention(&p, &in, &all, &all, true, &whole);
    reference_attention(&p, &in, &rows, &keys, true, &some);
    for (int64_t head = 0; head < p.batch * p.heads; head++) {
        ck_assert_int_eq(selection_row(&rows, head, 0), 0);
        ck_assert_int_eq(selection_row(&rows, head, 49), 299);
        for (int64_t r = 0; r < 50; r++) {
            int64_t row = selection_row(&rows, head, r);
            ck_assert(r == 0 || row > selection_row(&rows, head, r - 1));
            for (int c = 0; c < p.head_dim; c++) {
                int64_t full = (head * 300 + row) * p.head_dim + c;
                int64_t sampled = (head * 50 + r) * p.head_dim + c;
                ck_assert_double_eq_tol(some.o[sampled], whole.o[full], 1e-13);
                ck_assert_double_eq_tol(some.dq[sampled], whole.dq[full], 1e-12);
            }
        }
    }
    for (int64_t head = 0; head < p.batch * p.kv_heads; head++) {
        for (int64_t k = 0; k < 40; k++) {
            int64_t full = (head * 300 + selection_row(&keys, head, k)) * p.head_dim;
            for (int c = 0; c < p.head_dim; c++) {
                int64_t sampled = (head * 40 + k) * p.head_dim + c;
                ck_assert_double_eq_tol(some.dk[sampled], whole.dk[full + c], 1e-12);
                ck_assert_double_eq_tol(some.dv[sampled], whole.dv[full + c], 1e-12);
            }
        }
    }
    results_free(&whole);
    results_free(&some);
    selection_free(&rows);
    selection_free(&keys);
    inputs_free(&in);
}
END_TEST

START_TEST(any_number_of_threads_gives_the_same) {
    Problem p = small_problem();
    p.seqlen_q = p.seqlen_k = 150;
    p.dtype = DTYPE_FP16;
    Results first = {0};
    int64_t values = (int64_t)p.batch * p.heads * p.seqlen_q * p.head_dim;
    for (int threads = 1; threads <= 3; threads++) {
        parallel_set_threads(threads);
        Inputs in;
        Reference reference;
        inputs_random(&p, true, &in);
        reference_make(&p, &in, true, &reference);
        if (threads == 1) {
            first = reference.model;
            reference.model = (Results){0};
        } else {
            size_t bytes = (size_t)values * sizeof(double);
            ck_assert_int_eq(memcmp(first.o, reference.model.o, bytes), 0);
            ck_assert_int_eq(memcmp(first.dq, reference.model.dq, bytes), 0);
            ck_assert_int_eq(memcmp(first.dk, reference.model.dk, bytes / 2), 0);
        }
        reference_free(&reference);
        inputs_free(&in);
    }
    parallel_set_threads(0);
    results_free(&first);
}
END_TEST

// The model's definition, in plain loops: S and P rounded, sums in fp32, O rounded.
START_TEST(model_rounds_scores_and_weights) {
    Problem p = small_problem();
    p.dtype = DTYPE_FP16;
    p.window_right = 0;
    Inputs in;
    Reference reference;
    inputs_random(&p, false, &in);
    reference_make(&p, &in, false, &reference);
    int d = p.head_dim;
    for (int64_t i = 0; i < p.seqlen_q; i++) {
        float score[64], maximum = -INFINITY, sum = 0, o[64] = {0};
        int64_t keys = i + p.seqlen_k - p.seqlen_q + 1;
        for (int64_t j = 0; j < keys; j++) {
            float dot = 0;
            for (int c = 0; c < d; c++) {
                dot = fmaf(in.q[i * p.heads * d + c], in.k[j * p.kv_heads * d + c], dot);
            }
            score[j] = round_to_dtype(p.scale * dot, DTYPE_FP16);
            maximum = fmaxf(maximum, score[j]);
        }
        for (int64_t j = 0; j < keys; j++) sum += score[j] = expf(score[j] - maximum);
        for (int64_t j = 0; j < keys; j++) {
            float weight = round_to_dtype(score[j] / sum, DTYPE_FP16);
            for (int c = 0; c < d; c++) o[c] = fmaf(weight, in.v[j * p.kv_heads * d + c], o[c]);
        }
        for (int c = 0; c < d; c++) { // compilers may or may not fuse: one rounding apart at most
            float wanted = round_to_dtype(o[c], DTYPE_FP16);
            ck_assert_double_eq_tol(reference.model.o[i * d + c], wanted,
                                    2 * half_ulp(1, DTYPE_FP16));
        }
        ck_assert_double_eq_tol(reference.model.lse[i], maximum + logf(sum), 1e-5);
    }
    // And it is off the truth by about what fp16's rounding makes, neither nothing nor a lot.
    double largest = 0;
    for (int64_t i = 0; i < 2 * 4 * 21 * 24; i++) {
        largest = fmax(largest, fabs(reference.model.o[i] - reference.exact.o[i]));
    }
    ck_assert_double_gt(largest, 1e-5);
    ck_assert_double_lt(largest, 1e-2);
    reference_free(&reference);
    inputs_free(&in);
}
END_TEST

Suite *suite_reference(void);
Suite *suite_reference(void) {
    Suite *suite = suite_create("harness: reference");
    TCase *forward = tcase_create("forward");
    tcase_add_test(forward, forward_is_the_brute_force_one);
    tcase_add_test(forward, masks_are_the_definition);
    tcase_add_test(forward, causal_is_aligned_to_the_bottom_right);
    tcase_add_test(forward, masked_nan_stays_hidden);
    tcase_add_test(forward, model_rounds_scores_and_weights);
    TCase *backward = tcase_create("backward");
    tcase_add_test(backward, backward_is_the_finite_difference);
    tcase_add_test(backward, gradients_of_one_key);
    tcase_add_test(backward, sampled_rows_are_rows_of_the_whole);
    tcase_add_test(backward, any_number_of_threads_gives_the_same);
    suite_add_tcase(suite, forward);
    suite_add_tcase(suite, backward);
    return suite;
}
