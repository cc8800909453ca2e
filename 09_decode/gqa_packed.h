// The query heads of a K/V head in one tile.
#ifndef GQA_PACKED_STEP_H
#define GQA_PACKED_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step gqa_packed_step;

#ifdef __cplusplus
}
#endif

#endif
