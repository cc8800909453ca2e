// Chapter 7's steps and the problems that it checks and times by default.
#include "harness/chapter.h"
#include "../01_naive/naive.h"
#include "../03_online_softmax/cp_async.h"
#include "../05_hopper_async/intra_warpgroup.h"
#include "../05_hopper_async/pingpong.h"
#include "../05_hopper_async/tma_ring.h"
#include "../05_hopper_async/warp_specialised.h"
#include "../05_hopper_async/wgmma.h"
#include "l2_order.h"
#include "lpt.h"
#include "overlapped_epilogue.h"
#include "persistent.h"
#include "schedule_report.h"

// From FlashAttention-2 (chapter 3's cp-async) to the whole of FlashAttention-3.
static const Step *const steps[] = {&naive_step,
                                    &cp_async_step,
                                    &wgmma_step,
                                    &tma_ring_step,
                                    &warp_specialised_step,
                                    &pingpong_step,
                                    &intra_warpgroup_step,
                                    &persistent_step,
                                    &overlapped_epilogue_step,
                                    &lpt_step,
                                    &l2_order_step};

const Chapter chapter = {
    .number = 7,
    .folder = "07_persistent_lpt",
    .title = "persistent kernels, longest first",
    .gpu = "h100",
    .min_capability = 90,
    .arch_specific = true,
    .has_backward = false,
    .default_backward = false,
    .steps = steps,
    .step_count = sizeof steps / sizeof steps[0],
    .has_varlen = true,
    .has_sinks = true,
    .study = schedule_report,
    // Blocks that share out the work can't be sampled, so the GPU is smaller: a whole one of 12 SMs,
    // an eleventh of an H100, with an eleventh of its L2 and its bandwidth.
    .sms = 12,
    // Lengths that no tile divides; two or three tiles a block.
    .check = {.batch = 1,
              .heads = 10,
              .kv_heads = 10,
              .seqlen_q = 397,
              .seqlen_k = 397,
              .head_dim = 64,
              .dtype = DTYPE_FP16},
    // 96 tiles of 128 query rows: eight for each SM, as nearly chapter 5's 1024 on 132 SMs.
    .timing = {.batch = 1,
               .heads = 6,
               .kv_heads = 6,
               .seqlen_q = 2048,
               .seqlen_k = 2048,
               .head_dim = 128,
               .dtype = DTYPE_FP16},
};
