// A share of the exponentials on the FMA units.
#ifndef EXP2_EMULATION_STEP_H
#define EXP2_EMULATION_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step exp2_emulation_step;

#ifdef __cplusplus
}
#endif

#endif
