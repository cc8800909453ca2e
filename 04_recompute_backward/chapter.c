// Chapter 4's steps and the problems that it checks and times by default.
#include "harness/chapter.h"
#include "../01_naive/naive.h"
#include "recompute.h"
#include "recompute_tensor_cores.h"
#include "standard.h"
#include "standard_tensor_cores.h"

// Chapter 3 has no backward: its forwards are part of this chapter's own steps.
static const Step *const steps[] = {&naive_step, &standard_step, &standard_tensor_cores_step,
                                    &recompute_step, &recompute_tensor_cores_step};

const Chapter chapter = {
    .number = 4,
    .folder = "04_recompute_backward",
    .title = "recompute backward",
    .gpu = "h100",
    .min_capability = 80,
    .arch_specific = false,
    .has_backward = true,
    .default_backward = true,
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
    // 1280 tiles of 128 keys: nearly five waves of two thread blocks on each of 132 SMs. Eight SMs
    // are simulated, with their share of the L2, 3 MB: the sixteen tiles of a head run side by side,
    // and its Q, dO and sums of dQ, 1 MB, which all of them read, stay in it as in the whole L2. On
    // four SMs a head takes two rounds, and recompute-tensor-cores reads 224 MB, on eight 193.
    .timing = {.batch = 5,
               .heads = 16,
               .kv_heads = 16,
               .seqlen_q = 2048,
               .seqlen_k = 2048,
               .head_dim = 64,
               .dtype = DTYPE_FP16,
               .sample = 8},
};
