// Chapter 8, step one-cta: the backward, its products on the tensor core of one SM.
#ifndef ONE_CTA_H
#define ONE_CTA_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step one_cta_step;

#ifdef __cplusplus
}
#endif

#endif
