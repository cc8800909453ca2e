// Chapter 9, step gqa-packed: all query heads that share a K/V head read the same keys. One
// after the other each fills one row of sixteen; together they fill a tile, and the keys are
// read once.
//
// The kernel is split-kv's. Only the plan says how many heads share a tile.
#include "gqa_packed.h"

#include "plan.h"
#include "split_kv.h"

static const int SPLITS = 8; // as split-kv's

static Plan plan_of(const Attention *a) {
    return make_plan(a, true, SPLITS);
}

static size_t forward_workspace(const Attention *a) {
    return partial_bytes(a, plan_of(a).splits);
}

static cudaError_t forward(const Attention *a) {
    return decode_dense(a, plan_of(a));
}

const Step gqa_packed_step = {
    .chapter = 9,
    .name = "gqa-packed",
    .idea = "the query heads of a K/V head fill one tile, and its keys are read once",
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
