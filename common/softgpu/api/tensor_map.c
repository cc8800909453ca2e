// cuTensorMap…: tensor maps for TMA. The rules are in machine/tensor_map.c; a broken one is
// printed, since the code alone (CUDA_ERROR_INVALID_VALUE) tells nobody which of twelve arguments
// is wrong.
#include "softgpu/api/driver.h"
#include "softgpu/machine/tensor_map.h"

// Is there room for a map? The driver wants it aligned to 64 bytes.
static bool takes_map(const char *function, const void *map) {
    if (map && (uintptr_t)map % TENSOR_MAP_ALIGNMENT == 0) return true;
    if (map)
        api_note("%s: tensorMap is at %p; it must be aligned to %d bytes", function, map,
                 TENSOR_MAP_ALIGNMENT);
    else
        api_note("%s: tensorMap is NULL", function);
    return false;
}

EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                       void *address, const cuuint64_t *dims,
                                       const cuuint64_t *strides, const cuuint32_t *box,
                                       const cuuint32_t *element_strides,
                                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                       CUtensorMapL2promotion promotion,
                                       CUtensorMapFloatOOBfill fill) {
    API_ENTER();
    static const char name[] = "cuTensorMapEncodeTiled";
    if (!takes_map(name, map)) return CUDA_ERROR_INVALID_VALUE;
    if (!dims || (!strides && rank > 1) || !box || !element_strides) {
        api_note("%s: %s is NULL", name,
                 !dims              ? "globalDim"
                 : !box             ? "boxDim"
                 : !element_strides ? "elementStrides"
                                    : "globalStrides");
        return CUDA_ERROR_INVALID_VALUE;
    }
    TensorMapArguments arguments = {
        .type = type,
        .rank = rank,
        .interleave = interleave,
        .swizzle = swizzle,
        .promotion = promotion,
        .fill = fill,
        .address = (uint64_t)(uintptr_t)address,
        .dims = (const uint64_t *)dims,
        .strides = (const uint64_t *)strides,
        .box = box,
        .element_strides = element_strides,
    };
    char why[200];
    TensorMapVerdict verdict = tensor_map_encode(&arguments, map, why, sizeof why);
    if (verdict == TENSOR_MAP_FINE) return CUDA_SUCCESS;
    api_note("%s: %s", name, why);
    return verdict == TENSOR_MAP_INVALID ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult cuTensorMapReplaceAddress(CUtensorMap *map, void *address) {
    API_ENTER();
    static const char name[] = "cuTensorMapReplaceAddress";
    if (!takes_map(name, map)) return CUDA_ERROR_INVALID_VALUE;
    char why[200];
    if (tensor_map_replace_address(map, (uint64_t)(uintptr_t)address, why, sizeof why))
        return CUDA_SUCCESS;
    api_note("%s: %s", name, why);
    return CUDA_ERROR_INVALID_VALUE;
}
