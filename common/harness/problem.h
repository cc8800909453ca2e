// One attention problem on the host: sizes, mask, data. No CUDA call here.
#ifndef PROBLEM_H
#define PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/attention.h"

// The cache of keys and values that decoding reads, and appends to (attention.h says what is what).
typedef struct {
    bool there;
    const int *seqlens;      // batch: keys in it before the step; NULL: seqlen_k - new_keys each
    int64_t rows;            // room of a sequence
    int page_size, pages;    // 0: no pages
    const int *table;        // (batch, table_columns); NULL: shuffled by the seed (cache_table)
    int table_columns;       // of a sequence
    int new_keys;            // the last of each sequence's keys, which the step appends
    int rotary_dim;          // 0: no rotary embedding
    bool rotary_interleaved; // neighbours are a pair, else the two halves' columns
    bool fp8;                // its numbers are e4m3, with a scale for each sequence and head
} Cache;

typedef struct {
    Dtype dtype; // of the tensors
    bool fp8;    // --dtype fp8: of e4m3 numbers made of bf16 tensors
    int batch, heads, kv_heads;
    int64_t seqlen_q, seqlen_k; // varlen, cache: the largest of the batch
    int head_dim;               // the true one: of the host's data, of the scale, of the FLOPs
    int built_head_dim;         // of the device's buffers: the smallest built variant that holds it
    int64_t window_left, window_right; // -1 = unlimited; causal has window_right = 0
    bool causal;                       // as asked, for headings
    bool deterministic;                // the backward pass sums in a fixed order
    float scale, softcap;
    ScoreMod score_mod; // harness/mods.h
    MaskMod mask_mod;   // beside causal and the window
    double score_number;
    int64_t mask_number;
    uint64_t seed;
    int sample; // SMs simulated on softgpu; 0 = all
    bool has_sink;
    // Varlen: where the rows of each sequence begin on the device, and at the end their number. The
    // host's tensors are padded to the largest lengths. NULL: all sequences are equally long.
    const int *cu_seqlens_q, *cu_seqlens_k;
    Cache cache;
    int splits; // of the keys, as asked for; 0: a step's own choice
} Problem;

// Values rounded to the problem's dtype, held as floats: (batch, seqlen, heads, head_dim), the true
// head_dim. dout is NULL when there is no backward pass; dlse, fp32 (batch, heads, seqlen_q), when
// the loss doesn't depend on lse. sink has a number for each query head, or is NULL. What stands in
// the padding of a shorter sequence is never read. Of a cache these are all keys, the new ones too,
// before the rotary embedding; k_scale and v_scale, (batch, kv_heads), are there if it holds e4m3.
typedef struct {
    float *q, *k, *v, *dout, *dlse, *sink, *k_scale, *v_scale;
    int *cu_seqlens_q, *cu_seqlens_k; // from files: what the problem then points to
    int *cache_seqlens, *block_table; // likewise
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

// Rows of a sequence of the batch, and where on the device they begin.
static inline int64_t query_length(const Problem *p, int64_t b) {
    return p->cu_seqlens_q == NULL ? p->seqlen_q : p->cu_seqlens_q[b + 1] - p->cu_seqlens_q[b];
}

static inline int64_t key_length(const Problem *p, int64_t b) {
    if (p->cache.seqlens != NULL) return p->cache.seqlens[b] + p->cache.new_keys;
    return p->cu_seqlens_k == NULL ? p->seqlen_k : p->cu_seqlens_k[b + 1] - p->cu_seqlens_k[b];
}

static inline int64_t first_query(const Problem *p, int64_t b) {
    return p->cu_seqlens_q == NULL ? b * p->seqlen_q : p->cu_seqlens_q[b];
}

static inline int64_t first_key(const Problem *p, int64_t b) {
    return p->cu_seqlens_k == NULL ? b * p->seqlen_k : p->cu_seqlens_k[b];
}

// Rows of q, and of k, of all sequences together.
static inline int64_t total_queries(const Problem *p) {
    return first_query(p, p->batch);
}

static inline int64_t total_keys(const Problem *p) {
    int64_t total = 0;
    if (p->cache.seqlens == NULL) return first_key(p, p->batch);
    for (int64_t b = 0; b < p->batch; b++) total += key_length(p, b);
    return total;
}

// What a mask mod leaves of these ranges (mods.c).
void mask_mod_keys(const Problem *p, int64_t b, int64_t i, int64_t *from, int64_t *to);
void mask_mod_rows(const Problem *p, int64_t b, int64_t j, int64_t *from, int64_t *to);

// The keys that query row i of sequence b sees: *from <= j < *to (none: *from == *to).
static inline void visible_keys(const Problem *p, int64_t b, int64_t i, int64_t *from,
                                int64_t *to) {
    int64_t queries = query_length(p, b), keys = key_length(p, b);
    int64_t diagonal = i + keys - queries; // the bottom right corner is aligned
    int64_t first = p->window_left < 0 ? 0 : diagonal - p->window_left;
    int64_t end = p->window_right < 0 ? keys : diagonal + p->window_right + 1;
    *from = first < 0 ? 0 : first;
    *to = end > keys ? keys : end;
    if (*to <= *from || i >= queries) *from = *to = 0;
    if (p->mask_mod != MASK_NONE) mask_mod_keys(p, b, i, from, to);
}

// The query rows that see key j of sequence b: *from <= i < *to. The same rule, solved for i.
static inline void visible_rows(const Problem *p, int64_t b, int64_t j, int64_t *from,
                                int64_t *to) {
    int64_t queries = query_length(p, b), keys = key_length(p, b);
    int64_t diagonal = j - (keys - queries);
    int64_t first = p->window_right < 0 ? 0 : diagonal - p->window_right;
    int64_t end = p->window_left < 0 ? queries : diagonal + p->window_left + 1;
    *from = first < 0 ? 0 : first;
    *to = end > queries ? queries : end;
    if (*to <= *from || j >= keys) *from = *to = 0;
    if (p->mask_mod != MASK_NONE) mask_mod_rows(p, b, j, from, to);
}

// (query, key) pairs that the mask leaves, in one head of sequence b.
int64_t unmasked_pairs(const Problem *p, int64_t b);
// What was asked for: fp8, or the dtype's name.
const char *problem_dtype(const Problem *p);
// Floating-point operations as the papers count them: 4 · heads · pairs · head_dim, the
// pairs of all sequences, and 2.5 times that for the backward pass.
double problem_flops(const Problem *p, bool backward);
// Bytes that a forward pass can't do without: the keys and values that some row sees, and q, o, lse,
// each once.
double problem_bytes(const Problem *p);

int64_t query_elements(const Problem *p); // of q, o, dout, dq, on the host
int64_t key_elements(const Problem *p);   // of k, v, dk, dv, on the host

// Seeded normal data, rounded to the dtype. Sinks are fp32: normal, around the logarithm of the
// number of keys, so that a sink weighs about what all of them do.
void inputs_random(const Problem *p, bool backward, Inputs *inputs);
void inputs_free(Inputs *inputs);

// All `length` rows, or if count < length, that many: the first, the last, tile edges, the rest
// drawn by seed.
void selection_make(Selection *s, int64_t length, int64_t count, int64_t heads, uint64_t seed);
// The same where sequence b of the batch has the rows cu_seqlens[b] … cu_seqlens[b + 1] - 1 and
// `length` is the largest length: one with fewer than `count` rows gets some behind its end.
void selection_make_varlen(Selection *s, int64_t length, int64_t count, int64_t batch,
                           int64_t heads, const int *cu_seqlens, uint64_t seed);
void selection_free(Selection *s);

// malloc that ends the program with a clear line when there is no memory.
void *allocate(int64_t bytes);

#endif
