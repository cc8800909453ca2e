// Chapter 8, step two-cta: the backward on pairs of SMs.
#ifndef TWO_CTA_H
#define TWO_CTA_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step two_cta_step;

#ifdef __cplusplus
}
#endif

#endif
