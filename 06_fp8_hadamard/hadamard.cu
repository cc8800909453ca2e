// Chapter 6, step hadamard: rows of Q and K are rotated before they are quantised, all by the same
// random signs and Hadamard matrix. Their products stay what they were, and an outlier is spread over
// its whole row. FlashAttention-3's incoherent processing.
#include "fp8_attention.h"
#include "quantise.h"
#include "steps.h"

static cudaError_t forward(const Attention *a) {
    const cudaError_t error = quantise_hadamard(a);
    if (error != cudaSuccess) return error;
    const Quantised x = quantised_of(a);
    return fp8_attention(a, &x);
}

const Step hadamard_step = {
    .chapter = 6,
    .name = "hadamard",
    .idea = "Q and K are rotated first, which spreads outliers and leaves Q Kᵀ",
    .exhibit = false,
    .refuses = fp8_refuses,
    .forward_workspace = quantised_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
    .fp8 = &hadamard_rounding,
};
