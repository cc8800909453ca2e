// Longest first, a section of heads at a time.
#ifndef L2_ORDER_STEP_H
#define L2_ORDER_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step l2_order_step;

#ifdef __cplusplus
}
#endif

#endif
