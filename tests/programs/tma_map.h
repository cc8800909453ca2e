// What the TMA programs share: tensor maps of matrices of floats.
#ifndef PROGRAMS_TMA_MAP_H
#define PROGRAMS_TMA_MAP_H

#include "check.h"

#include <cuda.h>

// A map of rows x columns floats, a box of box_rows x box_columns.
static inline CUtensorMap matrix_map(float *matrix, int rows, int columns, int box_rows,
                                     int box_columns, CUtensorMapSwizzle swizzle) {
    static PFN_cuTensorMapEncodeTiled_v12000 encode;
    cudaDriverEntryPointQueryResult found;
    CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000,
                                          cudaEnableDefault, &found));
    EXPECT(found == cudaDriverEntryPointSuccess);
    CUtensorMap map;
    cuuint64_t dims[] = {(cuuint64_t)columns, (cuuint64_t)rows};
    cuuint64_t strides[] = {(cuuint64_t)columns * sizeof(float)};
    cuuint32_t box[] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows}, steps[] = {1, 1};
    CUresult error = encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, matrix, dims, strides, box,
                            steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                            CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    EXPECT(error == CUDA_SUCCESS);
    return map;
}

#endif
