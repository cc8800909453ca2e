// Chapter 5's steps and the problems that it checks and times by default.
#include "harness/chapter.h"
#include "../01_naive/naive.h"
#include "../04_recompute_backward/recompute_tensor_cores.h"
#include "gemm_only.h"
#include "intra_warpgroup.h"
#include "pingpong.h"
#include "tma_ring.h"
#include "warp_specialised.h"
#include "wgmma.h"

// Chapter 4's last step is FlashAttention-2: chapter 3's cp-async with the backward to it.
static const Step *const steps[] = {&naive_step,
                                    &recompute_tensor_cores_step,
                                    &wgmma_step,
                                    &tma_ring_step,
                                    &warp_specialised_step,
                                    &pingpong_step,
                                    &intra_warpgroup_step,
                                    &gemm_only_step};

const Chapter chapter = {
    .number = 5,
    .folder = "05_hopper_async",
    .title = "Hopper: asynchronous copies and products",
    .gpu = "h100",
    .min_capability = 90,
    .arch_specific = true,
    .has_backward = true,
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
    // 1024 tiles of 128 query rows: nearly eight waves of one thread block on each of 132 SMs. The
    // L2 share of four SMs holds a head's K and V, as the whole L2 does.
    .timing = {.batch = 4,
               .heads = 16,
               .kv_heads = 16,
               .seqlen_q = 2048,
               .seqlen_k = 2048,
               .head_dim = 128,
               .dtype = DTYPE_FP16,
               .sample = 4},
};
