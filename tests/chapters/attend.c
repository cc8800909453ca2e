// Attention worked out by the tests themselves.
#include "attend.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fill(Array *a, unsigned seed) {
    unsigned state = seed * 2654435761u + 12345;
    for (long i = 0; i < a->count; i++) {
        state = state * 1664525u + 1013904223u;
        a->values[i] = (float)((int)(state >> 27) - 16) / 8;
    }
}

void fill_with(Array *a, float value) {
    for (long i = 0; i < a->count; i++) a->values[i] = value;
}

Case case_make(int batch, int heads, int kv_heads, long seqlen_q, long seqlen_k, int head_dim) {
    Case c = {.q = array_make(batch, seqlen_q, heads, head_dim, true),
              .k = array_make(batch, seqlen_k, kv_heads, head_dim, true),
              .v = array_make(batch, seqlen_k, kv_heads, head_dim, true),
              .left = -1,
              .right = -1};
    fill(&c.q, 1);
    fill(&c.k, 2);
    fill(&c.v, 3);
    return c;
}

static bool sees(const Case *c, long i, long j) {
    long distance = j - (i + c->k.shape[1] - c->q.shape[1]); // of the key, after the query
    if (c->causal && distance > 0) return false;
    if (c->left >= 0 && distance < -c->left) return false;
    return c->causal || c->right < 0 || distance <= c->right;
}

long keys_seen(const Case *c, long i) {
    long count = 0;
    for (long j = 0; j < c->k.shape[1]; j++) count += sees(c, i, j);
    return count;
}

Answer answer_of(const Case *c, StepName step) {
    char more[400];
    int used = snprintf(more, sizeof more, "--dtype %s", c->dtype != NULL ? c->dtype : "fp16");
    if (c->causal) used += snprintf(more + used, sizeof more - (size_t)used, " --causal");
    if (c->left >= 0 || c->right >= 0)
        used += snprintf(more + used, sizeof more - (size_t)used, " --window %ld,%ld", c->left,
                         c->right);
    if (c->softcap > 0)
        used += snprintf(more + used, sizeof more - (size_t)used, " --softcap %g", c->softcap);
    if (c->scale != 0)
        used += snprintf(more + used, sizeof more - (size_t)used, " --scale %.9g", c->scale);
    if (c->options != NULL) snprintf(more + used, sizeof more - (size_t)used, " %s", c->options);
    if (!file_exists("in")) ck_assert_int_eq(system("mkdir in"), 0);
    array_write("in/q.npy", &c->q);
    array_write("in/k.npy", &c->k);
    array_write("in/v.npy", &c->v);
    ck_assert_int_eq(system("rm -rf out"), 0);
    Outcome o = run_chapter(
        step.chapter, "--input in --save out --check-only --json - --steps %s %s", step.name, more);
    const Json *json = outcome_json(&o, 0);
    ck_assert_int_eq(every_step_is_ok(&o, json), 1);
    Answer answer = {array_read("out/o.npy"), array_read("out/lse.npy"), json};
    const Array *out = &answer.o, *lse = &answer.lse;
    ck_assert_int_eq(out->dimensions, 4);
    ck_assert_int_eq(lse->dimensions, 3);
    ck_assert_mem_eq(out->shape, c->q.shape, sizeof out->shape);
    ck_assert(lse->shape[0] == c->q.shape[0] && lse->shape[1] == c->q.shape[2] &&
              lse->shape[2] == c->q.shape[1]);
    return answer;
}

static void near(const char *what, long row, double got, double expected, double tolerance) {
    bool same = isinf(expected) ? got == expected
                                : fabs(got - expected) <= tolerance * (1 + fabs(expected));
    ck_assert_msg(same, "%s, row %ld: %.9g, expected %.9g", what, row, got, expected);
}

void answer_is_attention(const Case *c, const Answer *answer, double tolerance) {
    const long *shape = c->q.shape, d = shape[3], seqlen_k = c->k.shape[1];
    const double scale = c->scale != 0 ? c->scale : 1 / sqrt((double)d);
    double *weight = calloc((size_t)seqlen_k + 1, sizeof *weight);
    for (long b = 0; b < shape[0]; b++)
        for (long h = 0; h < shape[2]; h++)
            for (long i = 0; i < shape[1]; i++) {
                const long kv = h / (shape[2] / c->k.shape[2]); // neighbours share
                const float *q = c->q.values + at(&c->q, b, i, h, 0);
                double largest = -INFINITY, sum = 0;
                for (long j = 0; j < seqlen_k; j++) {
                    weight[j] = -INFINITY;
                    if (!sees(c, i, j)) continue;
                    const float *k = c->k.values + at(&c->k, b, j, kv, 0);
                    double product = 0;
                    for (long x = 0; x < d; x++) product += (double)q[x] * (double)k[x];
                    weight[j] = product * scale;
                    if (c->softcap > 0) weight[j] = c->softcap * tanh(weight[j] / c->softcap);
                    if (weight[j] > largest) largest = weight[j];
                }
                for (long j = 0; j < seqlen_k; j++) {
                    weight[j] = isinf(weight[j]) ? 0 : exp(weight[j] - largest);
                    sum += weight[j];
                }
                near("lse", i, (double)answer->lse.values[(b * shape[2] + h) * shape[1] + i],
                     sum > 0 ? largest + log(sum) : -INFINITY, tolerance);
                for (long x = 0; x < d; x++) {
                    double expected = 0;
                    for (long j = 0; j < seqlen_k; j++)
                        expected += weight[j] * (double)c->v.values[at(&c->v, b, j, kv, x)];
                    if (sum > 0) expected /= sum;
                    near("o", i, (double)answer->o.values[at(&answer->o, b, i, h, x)], expected,
                         tolerance);
                }
            }
    free(weight);
}

void all_steps_give_attention(const Case *c, double tolerance) {
    for (int s = 0; s < own_step_count; s++) {
        if (own_steps[s].tensor_cores && c->dtype != NULL && strcmp(c->dtype, "fp32") == 0)
            continue;
        Answer answer = answer_of(c, own_steps[s]);
        answer_is_attention(c, &answer, tolerance);
    }
}
