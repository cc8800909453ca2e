// One attention problem on the host: sizes, mask, data. No CUDA call here.
#ifndef PROBLEM_H
#define PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/attention.h"

typedef struct {
    Dtype dtype;
    int batch, heads, kv_heads;
    int64_t seqlen_q, seqlen_k;
    int head_dim;       // the true one: of the host's data, of the scale, of the FLOPs
    int built_head_dim; // of the device's buffers: the smallest built variant that holds it
    int64_t window_left, window_right; // -1 = unlimited; causal has window_right = 0
    bool causal;                       // as asked, for headings
    bool deterministic;                // the backward pass sums in a fixed order
    float scale, softcap;
    uint64_t seed;
    int sample; // SMs simulated on softgpu; 0 = all
} Problem;

// Values rounded to the problem's dtype, held as floats: (batch, seqlen, heads, head_dim), the true
// head_dim. dout is NULL when there is no backward pass; dlse, fp32 (batch, heads, seqlen_q), when
// the loss doesn't depend on lse.
typedef struct {
    float *q, *k, *v, *dout, *dlse;
} Inputs;

// Which rows of each head a reference holds: all, or a seeded choice of `count` of `length`, in
// rising order, for each (batch, head).
typedef struct {
    int64_t length, count;
    int64_t *chosen; // [heads of all batches][count]; NULL = all (count == length)
} Selection;

static inline int64_t selection_row(const Selection *s, int64_t head, int64_t r) {
    return s->chosen != NULL ? s->chosen[head * s->count + r] : r;
}

// The keys that query row i sees: *from <= j < *to (none: *from == *to).
static inline void visible_keys(const Problem *p, int64_t i, int64_t *from, int64_t *to) {
    int64_t diagonal = i + p->seqlen_k - p->seqlen_q; // the bottom right corner is aligned
    int64_t first = p->window_left < 0 ? 0 : diagonal - p->window_left;
    int64_t end = p->window_right < 0 ? p->seqlen_k : diagonal + p->window_right + 1;
    *from = first < 0 ? 0 : first;
    *to = end > p->seqlen_k ? p->seqlen_k : end;
    if (*to <= *from) *from = *to = 0;
}

// The query rows that see key j: *from <= i < *to. The same rule, solved for i.
static inline void visible_rows(const Problem *p, int64_t j, int64_t *from, int64_t *to) {
    int64_t diagonal = j - (p->seqlen_k - p->seqlen_q);
    int64_t first = p->window_right < 0 ? 0 : diagonal - p->window_right;
    int64_t end = p->window_left < 0 ? p->seqlen_q : diagonal + p->window_left + 1;
    *from = first < 0 ? 0 : first;
    *to = end > p->seqlen_q ? p->seqlen_q : end;
    if (*to <= *from) *from = *to = 0;
}

// (query, key) pairs that the mask leaves, in one head.
int64_t unmasked_pairs(const Problem *p);
// Floating-point operations as the papers count them: 4 · batch · heads · pairs · head_dim, and 2.5
// times that for the backward pass.
double problem_flops(const Problem *p, bool backward);

int64_t query_elements(const Problem *p); // of q, o, dout, dq
int64_t key_elements(const Problem *p);   // of k, v, dk, dv

// Seeded normal data, rounded to the dtype.
void inputs_random(const Problem *p, bool backward, Inputs *inputs);
void inputs_free(Inputs *inputs);

// All `length` rows, or if count < length, that many: the first, the last, tile edges, the rest
// drawn by seed.
void selection_make(Selection *s, int64_t length, int64_t count, int64_t heads, uint64_t seed);
void selection_free(Selection *s);

// malloc that ends the program with a clear line when there is no memory.
void *allocate(int64_t bytes);

#endif
