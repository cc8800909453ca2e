// Chapter 1's steps and the problems that it checks and times by default.
#include "harness/chapter.h"
#include "naive.h"

static const Step *const steps[] = {&naive_step};

const Chapter chapter = {
    .number = 1,
    .folder = "01_naive",
    .title = "naive",
    .gpu = "h100",
    .min_capability = 80,
    .arch_specific = false,
    .has_backward = true,
    .default_backward = false,
    .has_varlen = true,
    .has_sinks = true,
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
