// One pass over the keys, the output divided by the denominator once, at the end.
#ifndef NORMALISE_ONCE_H
#define NORMALISE_ONCE_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step normalise_once_step;

#ifdef __cplusplus
}
#endif

#endif
