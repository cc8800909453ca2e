// One pass over the keys, the output normalised after every block: the lecture's form.
#ifndef NORMALISE_EVERY_BLOCK_H
#define NORMALISE_EVERY_BLOCK_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step normalise_every_block_step;

#ifdef __cplusplus
}
#endif

#endif
