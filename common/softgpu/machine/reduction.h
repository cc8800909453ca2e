// The reductions of bulk copies and of red.async: element by element, as atomics do it
// (execute/reduction.c).
#ifndef SOFTGPU_REDUCTION_H
#define SOFTGPU_REDUCTION_H

#include "softgpu/machine/tensor_map.h"

typedef enum {
    REDUCE_ADD,
    REDUCE_MIN,
    REDUCE_MAX,
    REDUCE_INC,
    REDUCE_DEC,
    REDUCE_AND,
    REDUCE_OR,
    REDUCE_XOR,
} Reduction;

// Does this reduction exist for elements of this type? In shared memory only integers are reduced.
bool reduction_exists(Reduction reduction, TensorType type, bool shared);
// "add"
const char *reduction_name(Reduction reduction);
// to[k] = reduction(to[k], from[k]), for `bytes` bytes of elements.
void reduce(Reduction reduction, TensorType type, uint8_t *to, const uint8_t *from, uint32_t bytes);

#endif
