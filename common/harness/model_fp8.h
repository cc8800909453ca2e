// What rounding to e4m3 costs: attention as a step in fp8 computes it, on the CPU.
#ifndef MODEL_FP8_H
#define MODEL_FP8_H

#include "harness/reference.h"

// o and lse of the selected rows, with everything rounded as `fp8` says.
void model_fp8(const Problem *p, const Inputs *in, const Selection *rows, const Fp8 *fp8,
               Results *results);

// What a step in fp8 is compared with: the exact results, except that an output is NaN or
// infinite where the model's is (a number that is not finite has become NaN, and so has what it
// meets; a sum has overflowed), and limits from the model. Shares the selections of `base`, which must outlive it; freed by
// reference_fp8_free.
void reference_fp8(const Problem *p, const Inputs *in, const Reference *base, const Fp8 *fp8,
                   Reference *reference);
void reference_fp8_free(Reference *reference);

#endif
