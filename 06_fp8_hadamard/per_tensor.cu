// Chapter 6, step per-tensor: Q, K and V become e4m3, half the bytes and twice the products in the
// same time. One scale for each of the three tensors: its largest number becomes 448, and one outlier
// takes bits from all others.
#include "fp8_attention.h"
#include "quantise.h"
#include "steps.h"

static cudaError_t forward(const Attention *a) {
    const cudaError_t error = quantise_per_tensor(a);
    if (error != cudaSuccess) return error;
    const Quantised x = quantised_of(a);
    return fp8_attention(a, &x);
}

const Step per_tensor_step = {
    .chapter = 6,
    .name = "per-tensor",
    .idea = "e4m3 products take half the time; one scale each for Q, K and V",
    .exhibit = false,
    .refuses = fp8_refuses,
    .forward_workspace = quantised_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
    .fp8 = &per_tensor_rounding,
};
