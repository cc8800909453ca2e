// Steps that run on the CPU. The right one is plain attention with its loops in the open, forward
// and backward, on the kernels' own memory layout.
#include "fake_steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/convert.h"

const Device fake_gpu = {.name = "fake",
                         .full_name = "fake",
                         .capability = 90,
                         .sms = 132,
                         .clock_ghz = 1,
                         .l2_bytes = 1 << 16,
                         .guards = true,
                         .poisoned_workspace = true};

void fake_fault(cudaError_t error);

static int launches;
void fake_steps_reset(void) {
    launches = 0;
}

// A sequence of the batch: how many rows it has, and where they begin.
typedef struct {
    int64_t queries, keys, first_query, first_key;
} Sequence;

static Sequence sequence_of(const Attention *a, int64_t b) {
    if (a->cache) {
        return (Sequence){a->seqlen_q, a->cache_seqlens[b] + a->new_keys, b * a->seqlen_q, 0};
    }
    if (!a->varlen) {
        return (Sequence){a->seqlen_q, a->seqlen_k, b * a->seqlen_q, b * a->seqlen_k};
    }
    return (Sequence){a->cu_seqlens_q[b + 1] - a->cu_seqlens_q[b],
                      a->cu_seqlens_k[b + 1] - a->cu_seqlens_k[b], a->cu_seqlens_q[b],
                      a->cu_seqlens_k[b]};
}

// The row of k and v where key j stands.
static int64_t key_row(const Attention *a, const Sequence *q, int64_t b, int64_t j) {
    if (!a->cache) return q->first_key + j;
    if (a->page_size == 0) return b * a->cache_rows + j;
    return (int64_t)a->block_table[b * a->table_columns + j / a->page_size] * a->page_size +
           j % a->page_size;
}

// Writes the new keys into the cache.
static void append(const Attention *a) {
    size_t row = (size_t)(a->kv_heads * a->head_dim) * dtype_size(a->dtype);
    for (int64_t b = 0; b < a->batch; b++) {
        for (int64_t j = 0; j < a->new_keys; j++) {
            size_t from = (size_t)(b * a->new_keys + j) * row;
            size_t to = (size_t)key_row(a, NULL, b, a->cache_seqlens[b] + j) * row;
            memcpy((char *)a->k_cache + to, (const char *)a->k_new + from, row);
            memcpy((char *)a->v_cache + to, (const char *)a->v_new + from, row);
        }
    }
}

static int64_t lse_place(const Attention *a, const Sequence *q, int64_t b, int h, int64_t i) {
    if (a->varlen) return h * a->total_q + q->first_query + i;
    return (b * a->heads + h) * a->seqlen_q + i;
}

static double at(const void *tensor, const Attention *a, int heads, int64_t row, int h, int c) {
    return load_dtype(tensor, (row * heads + h) * a->head_dim + c, a->dtype);
}

static void put(void *tensor, const Attention *a, int64_t index, double value) {
    float f = (float)value;
    store_as_dtype((char *)tensor + (size_t)index * dtype_size(a->dtype), &f, 1, a->dtype);
}

static bool sees(const Attention *a, const Sequence *q, int64_t i, int64_t j) {
    int64_t middle = i + q->keys - q->queries;
    return (a->window_left < 0 || j >= middle - a->window_left) &&
           (a->window_right < 0 || j <= middle + a->window_right);
}

// The scores of one row, capped, masked ones -inf; returns their maximum, and the sink's.
static double row_scores(const Attention *a, const Sequence *q, int64_t b, int h, int64_t i,
                         double *s) {
    int kv = h / (a->heads / a->kv_heads);
    double maximum = a->has_sink ? (double)a->sink[h] : -INFINITY;
    for (int64_t j = 0; j < q->keys; j++) {
        s[j] = -INFINITY;
        if (!sees(a, q, i, j)) continue;
        double dot = 0;
        for (int c = 0; c < a->head_dim; c++) {
            dot += at(a->q, a, a->heads, q->first_query + i, h, c) *
                   at(a->k, a, a->kv_heads, key_row(a, q, b, j), kv, c);
        }
        s[j] = a->softmax_scale * dot;
        if (a->softcap > 0) s[j] = a->softcap * tanh(s[j] / a->softcap);
        maximum = fmax(maximum, s[j]);
    }
    return maximum;
}

static cudaError_t right_forward(const Attention *a) {
    double *s = malloc(((size_t)a->seqlen_k + 1) * sizeof *s), o[256];
    if (a->new_keys > 0) append(a);
    for (int64_t b = 0; b < a->batch; b++) {
        const Sequence q = sequence_of(a, b);
        for (int h = 0; h < a->heads; h++) {
            int kv = h / (a->heads / a->kv_heads);
            for (int64_t i = 0; i < q.queries; i++) {
                double maximum = row_scores(a, &q, b, h, i, s);
                double sum = a->has_sink ? exp(a->sink[h] - maximum) : 0;
                memset(o, 0, sizeof o);
                for (int64_t j = 0; j < q.keys; j++) {
                    if (s[j] == -INFINITY) continue;
                    double weight = exp(s[j] - maximum);
                    sum += weight;
                    for (int c = 0; c < a->head_dim; c++) {
                        o[c] += weight * at(a->v, a, a->kv_heads, key_row(a, &q, b, j), kv, c);
                    }
                }
                int64_t row = ((q.first_query + i) * a->heads + h) * a->head_dim;
                for (int c = 0; c < a->head_dim; c++)
                    put(a->o, a, row + c, sum > 0 ? o[c] / sum : 0);
                a->lse[lse_place(a, &q, b, h, i)] =
                    sum > 0 ? (float)(maximum + log(sum)) : -INFINITY;
            }
        }
    }
    free(s);
    return cudaSuccess;
}

static cudaError_t right_backward(const Attention *a) {
    int d = a->head_dim, group = a->heads / a->kv_heads;
    size_t keys = (size_t)(a->total_k * a->kv_heads * d);
    double *s = malloc(((size_t)a->seqlen_k + 1) * sizeof *s);
    double *dk = calloc(keys + 1, sizeof *dk), *dv = calloc(keys + 1, sizeof *dv), dq[256];
    for (int64_t b = 0; b < a->batch; b++) {
        const Sequence q = sequence_of(a, b);
        for (int h = 0; h < a->heads; h++) {
            for (int64_t i = 0; i < q.queries; i++) {
                int64_t query = q.first_query + i;
                row_scores(a, &q, b, h, i, s);
                double lse = a->lse[lse_place(a, &q, b, h, i)], delta = 0;
                for (int c = 0; c < d; c++) {
                    delta +=
                        at(a->dout, a, a->heads, query, h, c) * at(a->o, a, a->heads, query, h, c);
                }
                memset(dq, 0, sizeof dq);
                for (int64_t j = 0; j < q.keys; j++) {
                    if (s[j] == -INFINITY) continue;
                    double p = exp(s[j] - lse), dp = 0;
                    int64_t key = ((q.first_key + j) * a->kv_heads + h / group) * d;
                    for (int c = 0; c < d; c++) {
                        double dout = at(a->dout, a, a->heads, query, h, c);
                        dp += dout * load_dtype(a->v, key + c, a->dtype);
                        dv[key + c] += p * dout;
                    }
                    double ds = p * (dp - delta) * a->softmax_scale;
                    if (a->softcap > 0) ds *= 1 - s[j] * s[j] / (a->softcap * a->softcap);
                    for (int c = 0; c < d; c++) {
                        dq[c] += ds * load_dtype(a->k, key + c, a->dtype);
                        dk[key + c] += ds * at(a->q, a, a->heads, query, h, c);
                    }
                }
                int64_t row = (query * a->heads + h) * d;
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
    size_t last = (size_t)(a->total_q * a->heads - 1) * row;
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
    int64_t behind = a->total_q * a->heads * a->head_dim;
    put((void *)a->o, a, behind, 1.0);
    return cudaSuccess;
}

static const char *always_refuses(const Attention *a, bool backward) {
    (void)a;
    (void)backward;
    return "this step can do nothing; use naive";
}

const Step fake_naive = {.chapter = 1,
                         .name = "naive",
                         .idea = "the right one",
                         .forward_workspace = scores_workspace,
                         .forward = right_forward,
                         .backward_workspace = no_workspace,
                         .backward = right_backward,
                         .varlen = true,
                         .sinks = true,
                         .cache = true};
const Step fake_exhibit = {.chapter = 2,
                           .name = "first-attempt",
                           .idea = "every key alike",
                           .exhibit = true,
                           .forward = mean_forward};
const Step fake_wrong_when_timed = {.chapter = 2,
                                    .name = "wrong-when-timed",
                                    .idea = "right once",
                                    .forward = forward_wrong_when_timed};
const Step fake_unwritten = {.chapter = 2,
                             .name = "unwritten",
                             .idea = "one row missing",
                             .forward = forward_unwritten,
                             .varlen = true,
                             .cache = true};
const Step fake_faults = {
    .chapter = 2, .name = "faults", .idea = "an illegal address", .forward = forward_faults};
const Step fake_overruns = {.chapter = 2,
                            .name = "overruns",
                            .idea = "writes past the end",
                            .forward = forward_overruns,
                            .varlen = true,
                            .cache = true};
const Step fake_refuses = {.chapter = 2,
                           .name = "refuses",
                           .idea = "never runs",
                           .refuses = always_refuses,
                           .forward = right_forward};
const Step fake_forward_only = {.chapter = 2,
                                .name = "forward-only",
                                .idea = "no gradients",
                                .forward_workspace = no_workspace,
                                .forward = right_forward};
