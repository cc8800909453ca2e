// A map of a row-major fp16 matrix, for the test programs that multiply what TMA brings.
#ifndef PROGRAMS_MATRIX_MAP_H
#define PROGRAMS_MATRIX_MAP_H

#include <cuda_fp16.h>

#include "check.h"
#include "device/tensor_map.h"

// `box_rows` x `box_columns` are copied at a time.
static inline void make_matrix_map(CUtensorMap *map, const char *name, const __half *first,
                                   int rows, int columns, int box_rows, int box_columns,
                                   CUtensorMapSwizzle swizzle) {
    TensorBox tensor = {};
    tensor.name = name;
    tensor.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    tensor.number_bytes = 2;
    tensor.first = first;
    tensor.size[0] = columns;
    tensor.size[1] = rows;
    tensor.size[2] = tensor.size[3] = 1;
    tensor.stride[0] = columns * 2;
    tensor.stride[1] = tensor.stride[2] = (uint64_t)rows * columns * 2;
    tensor.box[0] = box_columns;
    tensor.box[1] = box_rows;
    tensor.box[2] = tensor.box[3] = 1;
    CUDA(make_tensor_map(map, &tensor, swizzle));
}

#endif
