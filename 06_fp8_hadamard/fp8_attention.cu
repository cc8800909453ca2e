// The attention kernel of per-tensor, per-block and hadamard.
#define ATTENTION_KERNEL fp8_attention_kernel
static const bool TWO_LEVEL = false;
#include "attention.h"

cudaError_t fp8_attention(const Attention *a, const Quantised *x) {
    return launch(a, x);
}

const char *fp8_refuses(const Attention *a, bool backward) {
    if (backward)
        return "fp8's backward is beyond this course; chapter 5's intra-warpgroup has one";
    if (a->dtype == DTYPE_FP32)
        return "chapter 6 quantises fp16 and bf16; use --dtype fp16 or bf16";
    if (a->head_dim != 64 && a->head_dim != 128 && a->head_dim != 256)
        return "a Hadamard transform's length is a power of two; use --head-dim 64, 128 or 256";
    if (a->seqlen_q > MAX_ATTENTION_SEQLEN || a->seqlen_k > MAX_ATTENTION_SEQLEN)
        return "TMA's coordinates are 32-bit; use a --seqlen below 2^31 - 256";
    return refuses_on_cuda_cores(a, tiles_of(a->seqlen_q, QUERY_BLOCK) * a->batch * a->heads);
}
