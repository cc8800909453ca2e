// One attention problem on the device: what every step of every chapter gets.
#ifndef ATTENTION_H
#define ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { DTYPE_FP32, DTYPE_FP16, DTYPE_BF16, DTYPE_FP8 } Dtype;

// Flexible attention: functions of scores, and of rows and keys, by name (harness/mods.h).
typedef enum { SCORE_NONE, SCORE_ALIBI, SCORE_SOFTCAP } ScoreMod;
typedef enum { MASK_NONE, MASK_CAUSAL, MASK_WINDOW, MASK_DOCUMENT, MASK_PREFIX_LM } MaskMod;

// Tensors are contiguous, (batch, seqlen, heads, head_dim), element type `dtype`; lse is fp32
// (batch, heads, seqlen_q), the natural logarithm of the sum of exp of the scaled scores, -inf for
// rows that see no key (their o is 0). Query head h reads K/V head h / (heads / kv_heads).
// Masks are aligned to the bottom right: row i sees column j when
//     i + seqlen_k - seqlen_q - window_left <= j <= i + seqlen_k - seqlen_q + window_right,
// a negative window side meaning unlimited; causal is window_right = 0.
//
// Variable lengths (varlen): the sequences of the batch stand one after the other, without padding.
// Sequence b has rows cu_seqlens_q[b] … cu_seqlens_q[b + 1] - 1 of q and o, (total_q, heads,
// head_dim), and rows cu_seqlens_k[b] … of k and v; lse is (heads, total_q). Either number of rows
// may be 0. Its masks are its own: above, i and j count from its first row, and its lengths take the
// places of seqlen_q and seqlen_k, which are the largest of the batch.
//
// DTYPE_FP8, which few steps take: the tensors are bf16, and the step makes e4m3 numbers of them.
//
// Sinks: the softmax of query head h has one more term, of score sink[h] and value 0, which every
// row sees, whatever the mask. lse counts it in: a row that sees no key has lse = sink[h].
//
// A cache (decoding): k and v have room for more keys than a sequence has, and sequence b sees its
// first cache_seqlens[b] + new_keys ones. That number, which may be 0, takes the place of seqlen_k in
// its masks; seqlen_k is the largest of the batch. What stands behind a sequence's last key may be
// anything, NaN too.
//   page_size 0    k and v are (batch, cache_rows, kv_heads, head_dim): sequence b has its own rows.
//   page_size > 0  k and v are (pages, page_size, kv_heads, head_dim), and key j of sequence b is row
//                  j % page_size of page block_table[b * table_columns + j / page_size]. Table entries
//                  behind a sequence's last key may be anything: they must not be read as pages.
// New keys: the last new_keys keys of each sequence are not in the cache yet. They stand in k_new and
// v_new, (batch, new_keys, kv_heads, head_dim), and the step writes them into k_cache and v_cache,
// which are k and v, behind the first cache_seqlens[b], which it leaves as they are.
// Rotary embedding: turns pairs of the first rotary_dim columns of q (for the scores; q itself stays)
// and of k_new (as it is written) by the angles of a position: that of key j is j; that of query row i
// is cache_seqlens[b] + i if there is a window or causal, else cache_seqlens[b] for all rows. Row n of
// rotary_cos and rotary_sin, fp32 (…, rotary_dim / 2), holds position n. A pair is columns 2c and
// 2c + 1 if rotary_interleaved, else c and c + rotary_dim / 2: (x, y) becomes
// (x cos − y sin, x sin + y cos).
typedef struct {
    Dtype dtype;
    int batch, heads, kv_heads;
    int64_t seqlen_q, seqlen_k;
    int head_dim;        // of the buffers, and of the kernel variant: 64, 128, …
    float softmax_scale; // from the true head_dim, 1/sqrt(d), unless --scale says otherwise
    float softcap;       // 0 = none; else score = softcap * tanh(score / softcap)
    int64_t window_left, window_right; // -1 = unlimited; causal has window_right = 0
    const void *q, *k, *v;
    void *o;
    float *lse;
    // shaped like lse, or NULL: what fp32 took off it. A step that wants it sets it to memory of its
    // own before it calls the forward (chapter 4); lse + lse_rest is then good for fp32 gradients.
    float *lse_rest;
    // backward
    const void *dout;
    const float *dlse; // the gradient of lse, shaped like lse; NULL = lse is no part of the loss
    void *dq, *dk, *dv;
    bool deterministic;
    // scratch memory beyond inputs and outputs, as much as the step asked for
    void *workspace;
    cudaStream_t stream;
    bool varlen, has_sink;
    int64_t total_q, total_k;               // rows of q, of k: batch * seqlen unless varlen
    const int *cu_seqlens_q, *cu_seqlens_k; // batch + 1 each, from 0 on, never falling; or NULL
    const float *sink;                      // heads; or NULL. Neither scaled nor capped
    // decoding
    int splits;               // of each sequence's keys, as asked for; 0 = the step's own choice
    bool cache;               // k and v are a cache; never together with varlen
    const int *cache_seqlens; // batch: keys in the cache before the step; NULL without one
    int64_t cache_rows;       // room of a sequence: page_size * table_columns if there are pages
    int page_size, pages;     // keys of a page, pages of k and of v; 0: no pages
    const int *block_table;   // (batch, table_columns), or NULL
    int table_columns;
    int new_keys; // of each sequence, to append; 0 = none
    const void *k_new, *v_new;
    void *k_cache, *v_cache; // k and v, to write new keys to; NULL without new keys
    int rotary_dim;          // 0 = none; else even, at most the true head_dim
    bool rotary_interleaved;
    const float *rotary_cos, *rotary_sin;
    // The numbers of k and v (k_new and v_new have dtype): dtype, or DTYPE_FP8, e4m3, of which each
    // stands for k_scale[b * kv_heads + head] (or v_scale) times itself.
    Dtype kv_dtype;
    const float *k_scale, *v_scale; // NULL unless fp8
    // flexible attention: of the scaled scores; of rows and keys, in addition to the window
    ScoreMod score_mod;
    MaskMod mask_mod;
    float score_number; // what the mod's name is given with, if it takes a number
    int mask_number;
    const int *documents; // (batch, seqlen_k): the document that a key is in; NULL: there are none
} Attention;

// How a step rounds that multiplies e4m3 numbers: the limits of its errors come from a model that
// does the same on the CPU (harness/model_fp8.c).
typedef struct {
    bool per_tensor;                // Q, K and V have one scale each; else one for each block of
    int query_block;                // rows of Q, and for each block of
    int (*key_block)(int head_dim); // keys, which are also what the softmax takes at a time
    // D of the transform x → x D H / √head_dim of Q and K, as -1 and 1; NULL: there is none
    int (*sign)(int head_dim, int column);
    bool two_level; // P V of each block is summed by itself, and then added in fp32
} Fp8;

// A step of a chapter. Functions launch kernels on a->stream and return the launch's error.
typedef struct {
    int chapter;
    const char *name; // as in design.md: "two-pass"
    const char *idea; // one line for --list
    bool exhibit;     // wrong by design: runs only when named, never counts
    // NULL if the step can do this problem; else one sentence that says what it can't and which
    // chapter or option can. Never launches anything.
    const char *(*refuses)(const Attention *a, bool backward);
    size_t (*forward_workspace)(const Attention *a); // bytes
    cudaError_t (*forward)(const Attention *a);
    size_t (*backward_workspace)(const Attention *a); // NULL: no backward
    cudaError_t (*backward)(const Attention *a);      // runs after forward, same workspace kept
    const Fp8 *fp8;                                   // NULL: the step computes in the dtype
    bool varlen, sinks; // can do variable lengths; attention sinks. Others aren't asked to
    bool cache;         // can do a cache; what of it (pages, new keys, fp8) `refuses` says
    bool mods;          // can do score mods and mask mods
    int page_size;  // its cache is in pages of so many keys where nobody says otherwise; 0: isn't
    bool whole_gpu; // its blocks share the work out among themselves: no sample can stand for all
    bool fp8_if_asked; // fp8 says how it rounds with --dtype fp8; else it computes in the dtype
    // What is computed once for all launches on a problem, of its sizes and its mask alone, into the
    // workspace, which launches leave as it is. Timed apart. NULL: nothing.
    cudaError_t (*prepare)(const Attention *a);
} Step;

#ifdef __cplusplus
}
#endif

#endif
