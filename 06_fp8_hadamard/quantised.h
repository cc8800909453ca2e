// Q, K and V in e4m3, as the quantise kernels write them and the attention kernel reads them, and
// where they stand in a step's workspace.
//
// What a number counts: value = e4m3 number × scale of its block. A block is a piece of one head:
// QUERY_BLOCK rows of Q, key_block(head_dim) rows of K or V, all columns. Block b begins at row
// b × its size; the last one may reach past the end.
#ifndef QUANTISED_H
#define QUANTISED_H

#include "device/index.h"
#include "harness/attention.h"

enum { QUERY_BLOCK = 64 }; // query rows: what a warpgroup works on

// Keys of a block: what the attention kernel works on at a time. (The head_dims are 64, 128, 256.)
#define KEY_BLOCK(head_dim) ((head_dim) <= 64 ? 160 : (head_dim) <= 128 ? 224 : 128)
HOST_DEVICE static inline int key_block(int head_dim) {
    return KEY_BLOCK(head_dim);
}

typedef struct {
    uint8_t *q, *k, *v;       // e4m3, (batch, seqlen, heads, head_dim), as the inputs
    float *q_scale;           // (batch, heads, blocks of Q), > 0
    float *k_scale, *v_scale; // (batch, kv_heads, blocks of K), > 0
    uint32_t *largest;        // 3 words for the quantise kernels: the largest of each tensor
} Quantised;

// Blocks of a head of Q, and of K or V.
HOST_DEVICE static inline int64_t query_blocks(const Attention *a) {
    return tiles_of(a->seqlen_q, QUERY_BLOCK);
}
HOST_DEVICE static inline int64_t key_blocks(const Attention *a) {
    return tiles_of(a->seqlen_k, key_block(a->head_dim));
}

// Element of the scales: of block `block` of a head, `blocks` a head.
HOST_DEVICE static inline int64_t scale_offset(int64_t batch, int64_t head, int64_t block,
                                               int64_t heads, int64_t blocks) {
    return (batch * heads + head) * blocks + block;
}

// Takes `bytes` from the front of *memory, and leaves it at a multiple of 256: TMA wants 16.
static inline void *take_bytes(uintptr_t *memory, int64_t bytes) {
    void *taken = (void *)*memory;
    *memory += (uintptr_t)((bytes + 255) / 256 * 256);
    return taken;
}

// Lays the problem's Quantised out from address *memory on, and moves that behind it.
static inline Quantised lay_out_quantised(const Attention *a, uintptr_t *memory) {
    const int64_t q_rows = (int64_t)a->batch * a->heads * a->seqlen_q;
    const int64_t k_rows = (int64_t)a->batch * a->kv_heads * a->seqlen_k;
    const int64_t k_scales = (int64_t)a->batch * a->kv_heads * key_blocks(a);
    Quantised x;
    x.q = (uint8_t *)take_bytes(memory, q_rows * a->head_dim);
    x.k = (uint8_t *)take_bytes(memory, k_rows * a->head_dim);
    x.v = (uint8_t *)take_bytes(memory, k_rows * a->head_dim);
    x.q_scale = (float *)take_bytes(memory, (int64_t)a->batch * a->heads * query_blocks(a) * 4);
    x.k_scale = (float *)take_bytes(memory, k_scales * 4);
    x.v_scale = (float *)take_bytes(memory, k_scales * 4);
    x.largest = (uint32_t *)take_bytes(memory, 3 * sizeof(uint32_t));
    return x;
}

// Bytes of workspace of an fp8 step.
static inline size_t quantised_workspace(const Attention *a) {
    uintptr_t bytes = 0;
    lay_out_quantised(a, &bytes);
    return bytes;
}

// The Quantised in the problem's workspace.
static inline Quantised quantised_of(const Attention *a) {
    uintptr_t memory = (uintptr_t)a->workspace;
    return lay_out_quantised(a, &memory);
}

#endif
