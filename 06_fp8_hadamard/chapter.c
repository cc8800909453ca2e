// Chapter 6's steps and the problems that it checks and times by default.
#include "harness/chapter.h"
#include "../01_naive/naive.h"
#include "../05_hopper_async/intra_warpgroup.h"
#include "steps.h"

static const Step *const steps[] = {&naive_step,     &intra_warpgroup_step, &per_tensor_step,
                                    &per_block_step, &hadamard_step,        &two_level_step};

// A Hadamard matrix of this kind has a power of 2 of rows.
static const int head_dims[] = {64, 128, 256, 0};

const Chapter chapter = {
    .number = 6,
    .folder = "06_fp8_hadamard",
    .title = "fp8, with outliers spread by a Hadamard transform",
    .gpu = "h100",
    .min_capability = 90,
    .arch_specific = true,
    .head_dims = head_dims,
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
    // Chapter 5's: nearly eight waves of one thread block on each of 132 SMs.
    .timing = {.batch = 4,
               .heads = 16,
               .kv_heads = 16,
               .seqlen_q = 2048,
               .seqlen_k = 2048,
               .head_dim = 128,
               .dtype = DTYPE_FP16,
               .sample = 4},
};
