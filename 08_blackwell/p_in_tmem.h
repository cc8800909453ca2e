// P in tensor memory as well.
#ifndef P_IN_TMEM_STEP_H
#define P_IN_TMEM_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step p_in_tmem_step;

#ifdef __cplusplus
}
#endif

#endif
