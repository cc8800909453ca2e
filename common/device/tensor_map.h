// Tensor maps: what TMA must know about a tensor, made on the host and passed to a kernel as a
// __grid_constant__ parameter (CUDA driver API, "Tensor Map Object Management").
//
// Invariant: a map that a function here returned cudaSuccess for describes a box that TMA can copy;
// everything else is said on stderr and returns cudaErrorInvalidValue.
#ifndef TENSOR_MAP_H
#define TENSOR_MAP_H

#include <stdio.h>

#include <cuda.h>
#include <cuda_runtime.h>

// The driver's encoder. Asked for by name, so that nobody has to link the driver library.
typedef CUresult (*EncodeTiled)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static inline EncodeTiled tensor_map_encoder() {
    static EncodeTiled encoder = NULL;
    if (encoder) return encoder;
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                               12000, cudaEnableDefault, &result);
    if (error == cudaSuccess && result == cudaDriverEntryPointSuccess)
        encoder = (EncodeTiled)function;
    return encoder;
}

static const int TENSOR_MAP_RANK = 4;

// A tensor of rank 4 and the box that is copied at a time. Dimensions are innermost first.
typedef struct {
    const char *name; // for messages
    CUtensorMapDataType type;
    int number_bytes;
    const void *first;
    uint64_t size[4];   // numbers
    uint64_t stride[3]; // bytes from one index to the next, of dimensions 1 … 3
    uint32_t box[4];    // numbers
} TensorBox;

// The swizzle whose span is the box's innermost dimension, or none.
static inline CUtensorMapSwizzle swizzle_of(uint32_t line_bytes) {
    if (line_bytes == 128) return CU_TENSOR_MAP_SWIZZLE_128B;
    if (line_bytes == 64) return CU_TENSOR_MAP_SWIZZLE_64B;
    return CU_TENSOR_MAP_SWIZZLE_NONE;
}

// Makes the map. What of a box lies outside of the tensor is read as zeros.
static inline cudaError_t make_tensor_map(CUtensorMap *map, const TensorBox *tensor,
                                          CUtensorMapSwizzle swizzle) {
    const EncodeTiled encode = tensor_map_encoder();
    if (!encode) {
        fprintf(stderr,
                "%s: this driver has no cuTensorMapEncodeTiled; TMA needs CUDA 12 or newer\n",
                tensor->name);
        return cudaErrorNotSupported;
    }
    const cuuint32_t every[4] = {1, 1, 1, 1};
    const CUresult result =
        encode(map, tensor->type, TENSOR_MAP_RANK, (void *)tensor->first, tensor->size,
               tensor->stride, tensor->box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS) return cudaSuccess;
    fprintf(
        stderr,
        "%s: the driver refuses a tensor map (CUresult %d) of %llu x %llu x %llu x %llu numbers "
        "of %d bytes at %p, strides %llu, %llu, %llu bytes, boxes of %u x %u x %u x %u\n"
        "  rules: address and strides are multiples of 16, strides below 2^40, sizes 1 to 2^32, "
        "boxes 1 to 256, a box's line %d bytes at most with this swizzle\n",
        tensor->name, (int)result, (unsigned long long)tensor->size[0],
        (unsigned long long)tensor->size[1], (unsigned long long)tensor->size[2],
        (unsigned long long)tensor->size[3], tensor->number_bytes, tensor->first,
        (unsigned long long)tensor->stride[0], (unsigned long long)tensor->stride[1],
        (unsigned long long)tensor->stride[2], tensor->box[0], tensor->box[1], tensor->box[2],
        tensor->box[3],
        swizzle == CU_TENSOR_MAP_SWIZZLE_128B  ? 128
        : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                                               : 256 * tensor->number_bytes);
    return cudaErrorInvalidValue;
}

// A (batch, seqlen, heads, head_dim) tensor as dimensions head_dim, seqlen, heads, batch: a box is
// `rows` rows of `columns` columns of one head, so rows past the last come as zeros, never from the
// next batch, and are not stored.
static inline TensorBox head_box(const char *name, const void *first, CUtensorMapDataType type,
                                 int number_bytes, int64_t batch, int64_t seqlen, int64_t heads,
                                 int64_t head_dim, int rows, int columns) {
    TensorBox tensor;
    const uint64_t row_bytes = (uint64_t)(head_dim * number_bytes);
    tensor.name = name;
    tensor.type = type;
    tensor.number_bytes = number_bytes;
    tensor.first = first;
    tensor.size[0] = (uint64_t)head_dim;
    tensor.size[1] = (uint64_t)seqlen;
    tensor.size[2] = (uint64_t)heads;
    tensor.size[3] = (uint64_t)batch;
    tensor.stride[0] = row_bytes * (uint64_t)heads;
    tensor.stride[1] = row_bytes;
    tensor.stride[2] = row_bytes * (uint64_t)heads * (uint64_t)seqlen;
    tensor.box[0] = (uint32_t)columns;
    tensor.box[1] = (uint32_t)rows;
    tensor.box[2] = tensor.box[3] = 1;
    return tensor;
}

// The map of such a tensor, swizzled where the box's lines are 128 or 64 bytes.
static inline cudaError_t make_head_map(CUtensorMap *map, const char *name, const void *first,
                                        CUtensorMapDataType type, int number_bytes, int64_t batch,
                                        int64_t seqlen, int64_t heads, int64_t head_dim, int rows,
                                        int columns) {
    const TensorBox tensor =
        head_box(name, first, type, number_bytes, batch, seqlen, heads, head_dim, rows, columns);
    return make_tensor_map(map, &tensor, swizzle_of((uint32_t)(columns * number_bytes)));
}

#endif
