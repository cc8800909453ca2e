// Chapter 9, step split-kv: with one query token there is one tile of query rows a head, and a
// few heads leave most SMs idle. So the keys are shared out, too: each thread block takes a
// split of them, and a second kernel merges what they found. This is Flash-Decoding.
#include "split_kv.h"

#define DECODE_KERNEL split_kv
#define PAGED         false
#define CLUSTER       0
#define CACHE_FP8     0
#include "decode.h"

static const int SPLITS = 8; // unless --splits says otherwise: of 32 heads, 256 blocks

cudaError_t decode_dense(const Attention *a, Plan plan) {
    return decode(a, plan);
}

const char *refuses_dense(const Attention *a, bool backward) {
    if (a->page_size > 0)
        return "this step reads caches that stand in a row; use step paged-kv for --page-size";
    if (a->new_keys > 0 || a->rotary_dim > 0)
        return "this step appends no keys; use step paged-kv for --append";
    if (a->kv_dtype != a->dtype)
        return "this step reads keys and values as they are multiplied; use "
               "step paged-kv for caches of fp8";
    return refuses_decode(a, backward);
}

static Plan plan_of(const Attention *a) {
    return make_plan(a, false, SPLITS);
}

static size_t forward_workspace(const Attention *a) {
    return partial_bytes(a, plan_of(a).splits);
}

static cudaError_t forward(const Attention *a) {
    return decode_dense(a, plan_of(a));
}

const Step split_kv_step = {
    .chapter = 9,
    .name = "split-kv",
    .idea = "keys shared out among thread blocks, and a kernel that merges them: Flash-Decoding",
    .exhibit = false,
    .refuses = refuses_dense,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
    .varlen = false,
    .sinks = true,
    .cache = true,
};
