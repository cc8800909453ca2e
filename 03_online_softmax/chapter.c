// Chapter 3's steps and the problems that it checks and times by default.
#include "harness/chapter.h"
#include "../01_naive/naive.h"
#include "../02_tiled/two_pass.h"
#include "cp_async.h"
#include "mma_sync.h"
#include "normalise_every_block.h"
#include "normalise_once.h"
#include "swizzled.h"

static const Step *const steps[] = {
    &naive_step,          &two_pass_step, &normalise_every_block_step,
    &normalise_once_step, &mma_sync_step, &swizzled_step,
    &cp_async_step};

const Chapter chapter = {
    .number = 3,
    .folder = "03_online_softmax",
    .title = "online softmax",
    .gpu = "h100",
    .min_capability = 80,
    .arch_specific = false,
    .has_backward = false,
    .default_backward = false,
    .steps = steps,
    .step_count = sizeof steps / sizeof steps[0],
    // Lengths that no tile divides.
    .check = {.batch = 1,
              .heads = 2,
              .kv_heads = 2,
              .seqlen_q = 397,
              .seqlen_k = 397,
              .head_dim = 64,
              .dtype = DTYPE_FP16},
    // 1280 tiles of 128 query rows: nearly five waves of two thread blocks on each of 132 SMs.
    .timing = {.batch = 5,
               .heads = 16,
               .kv_heads = 16,
               .seqlen_q = 2048,
               .seqlen_k = 2048,
               .head_dim = 64,
               .dtype = DTYPE_FP16,
               .sample = 2},
};
