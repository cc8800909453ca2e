// Steps that run on the CPU. The right one is plain attention with its loops in the open, forward
// and backward, on the kernels' own memory layout.
#include "fake_steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/convert.h"

void fake_fault(cudaError_t error);

static int launches;
void fake_steps_reset(void) {
    launches = 0;
}

static double at(const void *tensor, const Attention *a, int64_t seqlen, int heads, int64_t b,
                 int64_t row, int h, int c) {
    return load_dtype(tensor, ((b * seqlen + row) * heads + h) * a->head_dim + c, a->dtype);
}

static void put(void *tensor, const Attention *a, int64_t index, double value) {
    float f = (float)value;
    store_as_dtype((char *)tensor + (size_t)index * dtype_size(a->dtype), &f, 1, a->dtype);
}

static bool sees(const Attention *a, int64_t i, int64_t j) {
    int64_t middle = i + a->seqlen_k - a->seqlen_q;
    return (a->window_left < 0 || j >= middle - a->window_left) &&
           (a->window_right < 0 || j <= middle + a->window_right);
}

// The scores of one row, capped, masked ones -inf; returns their maximum.
static double row_scores(const Attention *a, int64_t b, int h, int64_t i, double *s) {
    int kv = h / (a->heads / a->kv_heads);
    double maximum = -INFINITY;
    for (int64_t j = 0; j < a->seqlen_k; j++) {
        s[j] = -INFINITY;
        if (!sees(a, i, j)) continue;
        double dot = 0;
        for (int c = 0; c < a->head_dim; c++) {
            dot += at(a->q, a, a->seqlen_q, a->heads, b, i, h, c) *
                   at(a->k, a, a->seqlen_k, a->kv_heads, b, j, kv, c);
        }
        s[j] = a->softmax_scale * dot;
        if (a->softcap > 0) s[j] = a->softcap * tanh(s[j] / a->softcap);
        maximum = fmax(maximum, s[j]);
    }
    return maximum;
}

static cudaError_t right_forward(const Attention *a) {
    double *s = malloc(((size_t)a->seqlen_k + 1) * sizeof *s), o[256];
    for (int64_t b = 0; b < a->batch; b++) {
        for (int h = 0; h < a->heads; h++) {
            int kv = h / (a->heads / a->kv_heads);
            for (int64_t i = 0; i < a->seqlen_q; i++) {
                double maximum = row_scores(a, b, h, i, s), sum = 0;
                memset(o, 0, sizeof o);
                for (int64_t j = 0; j < a->seqlen_k; j++) {
                    if (s[j] == -INFINITY) continue;
                    double weight = exp(s[j] - maximum);
                    sum += weight;
                    for (int c = 0; c < a->head_dim; c++) {
                        o[c] += weight * at(a->v, a, a->seqlen_k, a->kv_heads, b, j, kv, c);
                    }
                }
                int64_t row = ((b * a->seqlen_q + i) * a->heads + h) * a->head_dim;
                for (int c = 0; c < a->head_dim; c++)
                    put(a->o, a, row + c, sum > 0 ? o[c] / sum : 0);
                a->lse[(b * a->heads + h) * a->seqlen_q + i] =
                    sum > 0 ? (float)(maximum + log(sum)) : -INFINITY;
            }
        }
    }
    free(s);
    return cudaSuccess;
}

static cudaError_t right_backward(const Attention *a) {
    int d = a->head_dim, group = a->heads / a->kv_heads;
    size_t keys = (size_t)(a->batch * a->seqlen_k * a->kv_heads * d);
    double *s = malloc(((size_t)a->seqlen_k + 1) * sizeof *s);
    double *dk = calloc(keys + 1, sizeof *dk), *dv = calloc(keys + 1, sizeof *dv), dq[256];
    for (int64_t b = 0; b < a->batch; b++) {
        for (int h = 0; h < a->heads; h++) {
            for (int64_t i = 0; i < a->seqlen_q; i++) {
                row_scores(a, b, h, i, s);
                double lse = a->lse[(b * a->heads + h) * a->seqlen_q + i], delta = 0;
                for (int c = 0; c < d; c++) {
                    delta += at(a->dout, a, a->seqlen_q, a->heads, b, i, h, c) *
                             at(a->o, a, a->seqlen_q, a->heads, b, i, h, c);
                }
                memset(dq, 0, sizeof dq);
                for (int64_t j = 0; j < a->seqlen_k; j++) {
                    if (s[j] == -INFINITY) continue;
                    double p = exp(s[j] - lse), dp = 0;
                    int64_t key = ((b * a->seqlen_k + j) * a->kv_heads + h / group) * d;
                    for (int c = 0; c < d; c++) {
                        double dout = at(a->dout, a, a->seqlen_q, a->heads, b, i, h, c);
                        dp += dout * load_dtype(a->v, key + c, a->dtype);
                        dv[key + c] += p * dout;
                    }
                    double ds = p * (dp - delta) * a->softmax_scale;
                    if (a->softcap > 0) ds *= 1 - s[j] * s[j] / (a->softcap * a->softcap);
                    for (int c = 0; c < d; c++) {
                        dq[c] += ds * load_dtype(a->k, key + c, a->dtype);
                        dk[key + c] += ds * at(a->q, a, a->seqlen_q, a->heads, b, i, h, c);
                    }
                }
                int64_t row = ((b * a->seqlen_q + i) * a->heads + h) * d;
                for (int c = 0; c < d; c++) put(a->dq, a, row + c, dq[c]);
            }
        }
    }
    for (size_t k = 0; k < keys; k++) {
        put(a->dk, a, (int64_t)k, dk[k]);
        put(a->dv, a, (int64_t)k, dv[k]);
    }
    free(s);
    free(dk);
    free(dv);
    return cudaSuccess;
}

static size_t scores_workspace(const Attention *a) {
    return (size_t)(a->batch * a->heads * a->seqlen_q * a->seqlen_k) * dtype_size(a->dtype);
}
static size_t no_workspace(const Attention *a) {
    (void)a;
    return 0;
}

// Counts every key the same: wrong by design.
static cudaError_t mean_forward(const Attention *a) {
    Attention flat = *a;
    flat.softmax_scale = 0;
    return right_forward(&flat);
}

static cudaError_t forward_wrong_when_timed(const Attention *a) {
    return launches++ == 0 ? right_forward(a) : mean_forward(a);
}

// Leaves the last row of the last head as it was.
static cudaError_t forward_unwritten(const Attention *a) {
    size_t row = (size_t)a->head_dim * dtype_size(a->dtype);
    size_t last = (size_t)((a->batch * a->seqlen_q * a->heads - 1)) * row;
    char *kept = malloc(row);
    memcpy(kept, (char *)a->o + last, row);
    right_forward(a);
    memcpy((char *)a->o + last, kept, row);
    free(kept);
    return cudaSuccess;
}

static cudaError_t forward_faults(const Attention *a) {
    (void)a;
    fake_fault(cudaErrorIllegalAddress);
    return cudaErrorIllegalAddress;
}

static cudaError_t forward_overruns(const Attention *a) {
    right_forward(a);
    int64_t behind = a->batch * a->seqlen_q * a->heads * a->head_dim;
    put((void *)a->o, a, behind, 1.0);
    return cudaSuccess;
}

static const char *always_refuses(const Attention *a, bool backward) {
    (void)a;
    (void)backward;
    return "this step can do nothing; use naive";
}

const Step fake_naive = {1,
                         "naive",
                         "the right one",
                         false,
                         NULL,
                         scores_workspace,
                         right_forward,
                         no_workspace,
                         right_backward,
                         NULL};
const Step fake_exhibit = {
    2, "first-attempt", "every key alike", true, NULL, NULL, mean_forward, NULL, NULL, NULL};
const Step fake_wrong_when_timed = {2,    "wrong-when-timed",       "right once", false, NULL,
                                    NULL, forward_wrong_when_timed, NULL,         NULL,  NULL};
const Step fake_unwritten = {
    2, "unwritten", "one row missing", false, NULL, NULL, forward_unwritten, NULL, NULL, NULL};
const Step fake_faults = {
    2, "faults", "an illegal address", false, NULL, NULL, forward_faults, NULL, NULL, NULL};
const Step fake_overruns = {
    2, "overruns", "writes past the end", false, NULL, NULL, forward_overruns, NULL, NULL, NULL};
const Step fake_refuses = {2,    "refuses",     "never runs", false, always_refuses,
                           NULL, right_forward, NULL,         NULL,  NULL};
const Step fake_forward_only = {
    2, "forward-only", "no gradients", false, NULL, no_workspace, right_forward, NULL, NULL, NULL};
