// An exhibit, wrong by design: each block of keys normalised on its own.
#ifndef FIRST_ATTEMPT_H
#define FIRST_ATTEMPT_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step first_attempt_step;

#ifdef __cplusplus
}
#endif

#endif
