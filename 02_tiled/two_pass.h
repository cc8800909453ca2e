// Fused attention in two passes over the keys: softmax's maximum and sum, then the output.
#ifndef TWO_PASS_H
#define TWO_PASS_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step two_pass_step;

#ifdef __cplusplus
}
#endif

#endif
