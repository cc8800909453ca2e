// Chapter 9, step auto-split: as many splits as fill this GPU with this problem's tiles
// (heuristic.h). Many sequences fill it without; one sequence of one K/V head needs a split for
// each thread block that it has room for.
#include "auto_split.h"

#include "plan.h"
#include "split_kv.h"

static Plan plan_of(const Attention *a) {
    return make_plan(a, true, splits_chosen(a, MAX_SPLITS));
}

static size_t forward_workspace(const Attention *a) {
    return partial_bytes(a, plan_of(a).splits);
}

static cudaError_t forward(const Attention *a) {
    return decode_dense(a, plan_of(a));
}

const Step auto_split_step = {
    .chapter = 9,
    .name = "auto-split",
    .idea = "the fewest splits that fill the GPU nearly as well as any number can",
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
