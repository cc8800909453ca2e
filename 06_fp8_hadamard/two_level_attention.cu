// The attention kernel of two-level.
#define ATTENTION_KERNEL fp8_attention_two_level_kernel
static const bool TWO_LEVEL = true;
#include "attention.h"

cudaError_t fp8_attention_two_level(const Attention *a, const Quantised *x) {
    return launch(a, x);
}
