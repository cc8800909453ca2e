// The three standard kernels, with the matrix products from tiles in shared memory.
#ifndef TILED_MATMUL_H
#define TILED_MATMUL_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step tiled_matmul_step;

#ifdef __cplusplus
}
#endif

#endif
