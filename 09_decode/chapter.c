// Chapter 9's steps and the problems that it checks and times by default.
#include "harness/chapter.h"
#include "../01_naive/naive.h"
#include "auto_split.h"
#include "cluster_combine.h"
#include "gqa_packed.h"
#include "paged_kv.h"
#include "prefill_kernel.h"
#include "split_kv.h"

// prefill-kernel is chapter 7's last step: the step before the first one here.
static const Step *const steps[] = {&naive_step,          &prefill_kernel_step, &split_kv_step,
                                    &gqa_packed_step,     &auto_split_step,     &paged_kv_step,
                                    &cluster_combine_step};

const Chapter chapter = {
    .number = 9,
    .folder = "09_decode",
    .title = "decoding",
    .gpu = "h200",
    .min_capability = 90,
    .arch_specific = true,
    .has_backward = false,
    .default_backward = false,
    .has_varlen = false,
    .has_sinks = true,
    .has_cache = true,
    .memory_bound = true,
    .steps = steps,
    .step_count = sizeof steps / sizeof steps[0],
    // A length that no tile divides, and four query heads of each K/V head.
    .check = {.batch = 2,
              .heads = 8,
              .kv_heads = 2,
              .seqlen_q = 3,
              .seqlen_k = 1003,
              .head_dim = 64,
              .dtype = DTYPE_FP16},
    // A quarter of an H200, with a quarter of its L2 and its bandwidth, and a quarter of the heads of
    // Llama 3's 8B model: as many heads for each SM as there, and the same times.
    .sms = 33,
    // One new token after 128k.
    .timing = {.batch = 1,
               .heads = 8,
               .kv_heads = 2,
               .seqlen_q = 1,
               .seqlen_k = 131072,
               .head_dim = 128,
               .dtype = DTYPE_FP16},
};
