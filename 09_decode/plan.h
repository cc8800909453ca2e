// What the host decides before a launch of chapter 9: how the work is shared out, how much
// memory that takes, and what can't be done.
#ifndef PLAN_H
#define PLAN_H

#include "decode_tile.h"
#include "device/dispatch.h"
#include "heuristic.h"
#include "split.h"

// Blocks to give the device at a time. One on each SM keeps enough copies under way; more
// splits would only be more to merge. But the products of 64 rows, or with numbers of 8 bits,
// take about as long as the copies: of two blocks one multiplies while the other waits.
static inline int block_slots(int rows, bool fp8) {
    int device = 0, sms = 1, bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    const int two_blocks = 2 * (LEAST_SHARED_BYTES + 1024); // any tile's, and the system's
    return (rows > 16 || fp8) && bytes >= two_blocks ? 2 * sms : sms;
}

// A launch's shares: splits as asked for with --splits, else as many as given.
static inline Plan make_plan(const Attention *a, bool packed, int splits) {
    Plan plan;
    plan.group = packed ? a->heads / a->kv_heads : 1;
    plan.tiles = (int)packed_tiles(a->seqlen_q, plan.group, decode_rows(a->seqlen_q * plan.group));
    plan.splits = a->splits > 0 ? a->splits : splits;
    return plan;
}

// The number of splits that the heuristic chooses for packed rows.
static inline int splits_chosen(const Attention *a, int max_splits) {
    const Plan plan = make_plan(a, true, 1);
    const int rows = decode_rows(a->seqlen_q * plan.group);
    const bool fp8 = a->kv_dtype == DTYPE_FP8;
    const int64_t keys =
        keys_to_split(a->seqlen_k, a->window_left, a->window_right, rows / plan.group);
    SplitShape shape;
    shape.tiles_per_head = plan.tiles;
    shape.tiles = (int64_t)plan.tiles * a->kv_heads * a->batch;
    shape.key_blocks = tiles_of(keys, DECODE_KEYS(a->head_dim, fp8));
    shape.kv_head_bytes = 2 * a->seqlen_k * a->head_dim * (fp8 ? 1 : 2);
    shape.slots = block_slots(rows, fp8);
    shape.max_splits = max_splits;
    shape.masked = a->window_left >= 0 || a->window_right >= 0;
    return splits_for(&shape);
}

static inline int64_t plan_blocks(const Attention *a, const Plan *plan) {
    return (int64_t)plan->splits * plan->tiles * (a->heads / plan->group) * a->batch;
}

// Splits leave a row of O, its maximum and its sum each, in fp32 (merge.h).
static inline int64_t output_rows(const Attention *a) {
    return (int64_t)a->batch * a->heads * a->seqlen_q;
}

static inline size_t partial_bytes(const Attention *a, int splits) {
    if (splits == 1) return 0;
    return (size_t)output_rows(a) * splits * (a->head_dim + 2) * sizeof(float);
}

// What all of the chapter's own kernels can't do, or NULL.
static inline const char *refuses_decode(const Attention *a, bool backward) {
    if (backward) return "decoding has no backward; chapter 5's step intra-warpgroup has one";
    if (a->dtype == DTYPE_FP32)
        return "mma.sync multiplies fp16 and bf16; use --dtype fp16 or bf16, or chapter 3's step "
               "normalise-once for fp32";
    if (a->seqlen_k > MAX_DECODE_SEQLEN || (a->cache && a->cache_rows > MAX_DECODE_SEQLEN) ||
        a->seqlen_q > MAX_DECODE_SEQLEN / a->heads)
        return "the kernels count keys, and query rows times heads, in 32 bits; use a smaller "
               "--seqlen";
    if (a->splits > MAX_SPLITS) return "128 splits are the most; use a smaller --splits";
    const Plan most = make_plan(a, false, MAX_SPLITS);
    return refuses_on_cuda_cores(a, plan_blocks(a, &most));
}

// The same of the kernels that look rows up: they count all of the cache's in 32 bits.
static inline const char *refuses_paged(const Attention *a, bool backward) {
    const int64_t room = a->cache ? a->cache_rows : a->seqlen_k;
    const int64_t rows = a->page_size > 0 ? (int64_t)a->pages * a->page_size : a->batch * room;
    if (rows > INT32_MAX)
        return "this step counts a cache's rows in 32 bits; use fewer pages, or a smaller --batch "
               "or --seqlen";
    return refuses_decode(a, backward);
}

#endif
