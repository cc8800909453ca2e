// Chapter 8's steps and the problems that it checks and times by default.
#include "harness/chapter.h"
#include "../01_naive/naive.h"
#include "../03_online_softmax/cp_async.h"
#include "../04_recompute_backward/recompute_tensor_cores.h"
#include "counters.h"
#include "exp2_emulation.h"
#include "flexible.h"
#include "gemm_only.h"
#include "lazy_rescale.h"
#include "one_cta.h"
#include "p_in_tmem.h"
#include "persistent_lpt.h"
#include "pingpong.h"
#include "tcgen05.h"
#include "two_cta.h"

static const int head_dims[] = {64, 128, 0};

// Blackwell has no wgmma: before its own steps stands FlashAttention-2, chapter 3's last, and before
// those of the backward chapter 4's last.
static const Step *const steps[] = {&naive_step,        &cp_async_step,
                                    &tcgen05_step,      &p_in_tmem_step,
                                    &pingpong_step,     &exp2_emulation_step,
                                    &lazy_rescale_step, &persistent_lpt_step,
                                    &flexible_step,     &recompute_tensor_cores_step,
                                    &one_cta_step,      &two_cta_step,
                                    &gemm_only_step};

const Chapter chapter = {
    .number = 8,
    .folder = "08_blackwell",
    .title = "Blackwell: tensor memory, and exponentials",
    .gpu = "b200",
    .min_capability = 100,
    .arch_specific = true,
    .head_dims = head_dims,
    .has_mods = true,
    .has_backward = true,
    .default_backward = false,
    .backward_apart = true,
    .steps = steps,
    .step_count = sizeof steps / sizeof steps[0],
    // Blocks that share out the work can't be sampled, so the GPU is smaller: a whole one of 4 SMs.
    .sms = 4,
    // Lengths that no tile divides.
    .check = {.batch = 1,
              .heads = 2,
              .kv_heads = 2,
              .seqlen_q = 397,
              .seqlen_k = 397,
              .head_dim = 64,
              .dtype = DTYPE_BF16},
    // 32 tiles of 256 query rows: eight for each SM.
    .timing = {.batch = 1,
               .heads = 4,
               .kv_heads = 4,
               .seqlen_q = 2048,
               .seqlen_k = 2048,
               .head_dim = 128,
               .dtype = DTYPE_BF16},
    .remark = say_counts,
};
