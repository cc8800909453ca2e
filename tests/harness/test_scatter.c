// How far right fp32 results scatter, and what the dtype can't hold: where a few scores make the
// whole error, a right sum with less luck than the model's passes; what is wrong still doesn't; and
// ordinary problems keep the limits that the model gives them.
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check.h"
#include "harness/convert.h"

// Two keys a row, scores of up to 30 behind a cap: few rows have two weights that both count.
static Problem few_scores(uint64_t seed) {
    return (Problem){.dtype = DTYPE_FP32,
                     .batch = 1,
                     .heads = 3,
                     .kv_heads = 3,
                     .seqlen_q = 31,
                     .seqlen_k = 177,
                     .head_dim = 40,
                     .built_head_dim = 40,
                     .window_left = 1,
                     .window_right = 0,
                     .scale = 8,
                     .softcap = 30,
                     .seed = seed};
}

static Problem ordinary(Dtype dtype) {
    return (Problem){.dtype = dtype,
                     .batch = 1,
                     .heads = 2,
                     .kv_heads = 2,
                     .seqlen_q = 256,
                     .seqlen_k = 256,
                     .head_dim = 64,
                     .built_head_dim = 64,
                     .window_left = -1,
                     .window_right = -1,
                     .scale = 0.125f,
                     .seed = 4};
}

// Attention in fp32 as a kernel may do it: products fused into the sum and taken from the last
// column to the first. It shares no line with the model.
static float *another_sum(const Problem *p, const Inputs *in, float scale) {
    const int d = p->head_dim;
    float *o = calloc((size_t)query_elements(p), sizeof *o);
    float *weight = calloc((size_t)p->seqlen_k, sizeof *weight);
    for (int h = 0; h < p->heads; h++) {
        for (int64_t i = 0; i < p->seqlen_q; i++) {
            int64_t from, to;
            visible_keys(p, 0, i, &from, &to);
            const float *q = in->q + (i * p->heads + h) * d;
            float maximum = -INFINITY, sum = 0;
            for (int64_t j = from; j < to; j++) {
                const float *k = in->k + (j * p->heads + h) * d;
                float dot = 0;
                for (int c = d - 1; c >= 0; c--) dot = fmaf(q[c], k[c], dot);
                weight[j] = scale * dot;
                if (p->softcap > 0) weight[j] = p->softcap * tanhf(weight[j] / p->softcap);
                maximum = fmaxf(maximum, weight[j]);
            }
            for (int64_t j = from; j < to; j++) sum += weight[j] = expf(weight[j] - maximum);
            for (int c = 0; c < d; c++) {
                float total = 0;
                for (int64_t j = from; j < to; j++) {
                    total = fmaf(weight[j], in->v[(j * p->heads + h) * d + c], total);
                }
                o[(i * p->heads + h) * d + c] = to > from ? total / sum : 0;
            }
        }
    }
    free(weight);
    return o;
}

// Checks an output of `scale` on the problem; true if it passes.
static bool passes(const Problem *p, float scale, TensorCheck *check) {
    Inputs in;
    Reference reference;
    inputs_random(p, false, &in);
    reference_make(p, &in, false, &reference);
    float *o = another_sum(p, &in, scale);
    check_tensor(p, &in, &reference, TENSOR_O, o, check);
    free(o);
    reference_free(&reference);
    inputs_free(&in);
    return check->ok;
}

enum { SEEDS = 40 };

// Of these some are beyond the limit that the model alone would give: its sum had more luck.
START_TEST(a_right_sum_with_less_luck_passes) {
    int beyond_model = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        Problem p = few_scores((uint64_t)seed);
        TensorCheck check;
        ck_assert_msg(passes(&p, p.scale, &check), "seed %d: %s", seed, check.report);
        beyond_model += check.rms > 1.3 * check.model_rms;
    }
    ck_assert_int_ge(beyond_model, 3);
}
END_TEST

// A score off by 1e-5 of itself, 80 times what fp32 makes of it, is seen on the same problems.
START_TEST(scores_slightly_off_do_not) {
    for (int seed = 0; seed < SEEDS; seed++) {
        Problem p = few_scores((uint64_t)seed);
        TensorCheck check;
        ck_assert_msg(!passes(&p, p.scale * 1.00002f, &check), "seed %d: %g of %g", seed, check.rms,
                      check.rms_limit);
    }
}
END_TEST

// The limits of ordinary problems are the model's; those of fp32 to three percent (1e-9 stands for the
// rule's part of an ulp).
START_TEST(ordinary_limits_stay) {
    for (Dtype dtype = DTYPE_FP32; dtype <= DTYPE_BF16; dtype++) {
        Problem p = ordinary(dtype);
        TensorCheck check;
        if (dtype == DTYPE_FP32) {
            ck_assert(passes(&p, p.scale, &check));
            double limit = 2 * check.model_max + 1e-5, rms_limit = 1.2 * check.model_rms;
            ck_assert(check.limit >= limit && check.limit <= 1.03 * limit);
            ck_assert(check.rms_limit >= rms_limit && check.rms_limit <= 1.03 * rms_limit + 1e-9);
            continue;
        }
        Inputs in;
        Reference reference;
        inputs_random(&p, true, &in);
        reference_make(&p, &in, true, &reference);
        for (int t = 0; t < TENSOR_COUNT; t++) {
            ck_assert(reference.scatter[t].max == 0 && reference.scatter[t].rms == 0);
        }
        reference_free(&reference);
        inputs_free(&in);
    }
}
END_TEST

// A variant is the same attention: its results differ from the model's by rounding alone, and do
// differ.
START_TEST(variants_are_the_same_attention) {
    Problem p = ordinary(DTYPE_FP32);
    p.seqlen_q = 40;
    Inputs in;
    Reference reference;
    Results variant;
    inputs_random(&p, true, &in);
    reference_make(&p, &in, true, &reference);
    model_variant(&p, &in, &reference.rows, &reference.keys, true, 5, &variant);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        const double *model = results_of(&reference.model, (TensorName)t);
        const double *other = results_of(&variant, (TensorName)t);
        double largest = 0;
        for (int64_t i = 0; i < results_count(&p, &reference, (TensorName)t); i++) {
            largest = fmax(largest, fabs(model[i] - other[i]));
        }
        ck_assert_msg(largest > 0 && largest < 1e-5, "%s: %g", tensor_name((TensorName)t), largest);
        ck_assert_double_gt(reference.scatter[t].max, 0);
        ck_assert_double_gt(reference.scatter[t].rms, 0);
        ck_assert_double_lt(reference.scatter[t].rms, 1e-6);
    }
    results_free(&variant);
    reference_free(&reference);
    inputs_free(&in);
}
END_TEST

static bool fits(Problem p, float k_factor, float v_factor, Message *message) {
    Inputs in;
    Reference reference;
    inputs_random(&p, true, &in);
    for (int64_t i = 0; i < key_elements(&p); i++) {
        in.k[i] = round_to_dtype(in.k[i] * k_factor, p.dtype);
        in.v[i] = round_to_dtype(in.v[i] * v_factor, p.dtype);
    }
    reference_make(&p, &in, true, &reference);
    bool fit = reference_fits(&p, &reference, message);
    reference_free(&reference);
    inputs_free(&in);
    return fit;
}

// What standard attention can't compute in its dtype is refused, with what is too large and the
// mend; what it can, large or not, isn't.
START_TEST(overflow_is_refused) {
    static const struct {
        Dtype dtype;
        float scale, softcap, k_factor, v_factor;
        const char *words; // NULL: fits
    } cases[] = {
        {DTYPE_FP16, 0.125f, 0, 1, 1, NULL},
        {DTYPE_FP16, 1000, 0, 1, 1, NULL},
        {DTYPE_FP16, 1e4f, 0, 1, 1, "--scale 10000: scores reach"},
        {DTYPE_FP16, -2e4f, 0, 1, 1, "in fp16 (at most 65504)"},
        {DTYPE_FP16, 1e4f, 50, 1, 1, NULL}, // the cap comes first
        {DTYPE_FP16, 1, 0, 6e4f / 5, 1, "--scale 1: scores reach"},
        {DTYPE_FP16, 1, 0, 1, 1e4f, "--dtype fp16: dq reaches"},
        {DTYPE_BF16, 1e4f, 0, 1, 1, NULL},
        {DTYPE_BF16, 1e6f, 0, 1, 1, NULL},
        {DTYPE_BF16, 1e9f, 0, 1, 1, "too coarse in fp32"},
        {DTYPE_BF16, -1e9f, 0, 1, 1, "too coarse in fp32"},
        {DTYPE_FP32, 1e9f, 0, 1, 1, NULL},
        {DTYPE_FP32, 1e4f, 0, 1, 1, NULL},
        {DTYPE_FP32, 1e38f, 0, 1, 1, "in fp32 (at most 3.40282e+38)"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        Problem p = ordinary(cases[c].dtype);
        Message message = {""};
        p.scale = cases[c].scale;
        p.softcap = cases[c].softcap;
        bool fit = fits(p, cases[c].k_factor, cases[c].v_factor, &message);
        ck_assert_msg(fit == (cases[c].words == NULL), "case %zu: %s", c, message.text);
        if (!fit) ck_assert_msg(strstr(message.text, cases[c].words), "%s", message.text);
    }
}
END_TEST

Suite *suite_scatter(void);
Suite *suite_scatter(void) {
    Suite *suite = suite_create("harness: scatter and overflow");
    TCase *all = tcase_create("scatter");
    tcase_add_test(all, a_right_sum_with_less_luck_passes);
    tcase_add_test(all, scores_slightly_off_do_not);
    tcase_add_test(all, ordinary_limits_stay);
    tcase_add_test(all, variants_are_the_same_attention);
    tcase_add_test(all, overflow_is_refused);
    suite_add_tcase(suite, all);
    return suite;
}
