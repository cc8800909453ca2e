// Chapter 9, step paged-kv: nobody knows how long an answer will be, so caches that stand in a
// row waste the room they keep free. In pages a sequence takes room as it grows, and a block
// table says where its keys are. For a kernel that copies 16 bytes at a time that is one
// look-up a row, made a block of keys ahead. New keys are appended first, by a kernel of their
// own.
#include "paged_kv.h"

#define DECODE_KERNEL paged_kv
#define PAGED         true
#define CLUSTER       0
#define CACHE_FP8     1
#include "decode.h"

#include "append.h"

static const char *refuses(const Attention *a, bool backward) {
    if (a->kv_dtype != a->dtype && a->head_dim % 64 != 0)
        return "an e4m3 cache's rows are copied in pieces of 64 bytes; use --head-dim 64, 128, 192 "
               "or "
               "256 for --fp8-cache";
    return refuses_paged(a, backward);
}

static Plan plan_of(const Attention *a) {
    return make_plan(a, true, splits_chosen(a, MAX_SPLITS));
}

static size_t forward_workspace(const Attention *a) {
    return partial_bytes(a, plan_of(a).splits);
}

static cudaError_t forward(const Attention *a) {
    const cudaError_t error = launch_append(a);
    return error == cudaSuccess ? decode(a, plan_of(a)) : error;
}

const Step paged_kv_step = {
    .chapter = 9,
    .name = "paged-kv",
    .idea = "a cache in pages: a block table says where each sequence's keys are",
    .exhibit = false,
    .refuses = refuses,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
    .varlen = false,
    .sinks = true,
    .cache = true,
    .page_size = 16,
};
