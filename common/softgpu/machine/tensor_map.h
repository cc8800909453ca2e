// Tensor maps (CUtensorMap): what a tensor in global memory looks like to the copy engine (TMA),
// and which box of it one instruction moves (CUDA driver API, cuTensorMapEncodeTiled; PTX ISA 5.5).
//
// The 128 bytes are opaque to programs, so the format is ours: the fields below, a magic number,
// and a checksum over all of them. So a map that was copied in part, or memory that is no map, is
// known for what it is.
//
// A map that a kernel edits (tensormap.replace) is in general memory until a fence publishes it:
// `edits` counts changes, `released` is the count at the last release. Who has acquired what is
// kept per CTA (machine/bulk.h).
#ifndef SOFTGPU_TENSOR_MAP_H
#define SOFTGPU_TENSOR_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "softgpu/machine/swizzle.h"

enum { TENSOR_RANK_MAX = 5, TENSOR_MAP_BYTES = 128, TENSOR_MAP_ALIGNMENT = 64, BOX_DIM_MAX = 256 };

// The numbers are those of CUtensorMapDataType.
typedef enum {
    TENSOR_U8,
    TENSOR_U16,
    TENSOR_U32,
    TENSOR_S32,
    TENSOR_U64,
    TENSOR_S64,
    TENSOR_F16,
    TENSOR_F32,
    TENSOR_F64,
    TENSOR_BF16,
    TENSOR_F32_FTZ,
    TENSOR_TF32,
    TENSOR_TF32_FTZ,
    TENSOR_16U4_ALIGN8,
    TENSOR_16U4_ALIGN16,
    TENSOR_16U6_ALIGN16,
    TENSOR_TYPES
} TensorType;

// A map as it lies in memory. Dimension 0 is the innermost; it is packed, so strides[k] is the
// distance in bytes between neighbours of dimension k + 1.
typedef struct {
    uint32_t magic, checksum;
    uint8_t rank, type, interleave, swizzle, promotion, fill;
    uint8_t element_strides[TENSOR_RANK_MAX];
    uint8_t reserved[5];
    uint64_t address;
    uint64_t strides[TENSOR_RANK_MAX - 1];
    uint32_t last[TENSOR_RANK_MAX]; // number of elements of each dimension, less 1
    uint16_t box[TENSOR_RANK_MAX];
    uint16_t edits, released;
    uint32_t edit_launch; // the launch in which it was last edited
} TensorMap;
_Static_assert(sizeof(TensorMap) <= TENSOR_MAP_BYTES, "a map must fit in CUtensorMap");

// The arguments of cuTensorMapEncodeTiled.
typedef struct {
    unsigned type, rank, interleave, swizzle, promotion, fill;
    uint64_t address;
    const uint64_t *dims;    // [rank]
    const uint64_t *strides; // [rank - 1]
    const uint32_t *box, *element_strides;
} TensorMapArguments;

typedef enum { TENSOR_MAP_FINE, TENSOR_MAP_INVALID, TENSOR_MAP_NOT_MODELLED } TensorMapVerdict;

// Makes a map of 128 bytes at `to`. If the arguments break a rule, or ask for what softgpu does not
// model, `why` says which rule and which value.
TensorMapVerdict tensor_map_encode(const TensorMapArguments *arguments, void *to, char *why,
                                   size_t why_size);
// Reads 128 bytes as a map. false if they are none, or one that no instruction can use: `why`.
bool tensor_map_read(const void *from, TensorMap *map, char *why, size_t why_size);
// Puts another tensor's address into a map; false with `why`.
bool tensor_map_replace_address(void *map, uint64_t address, char *why, size_t why_size);

// tensormap.replace.tile.FIELD, in the order of the forms in execute/tensor_map.c.
typedef enum {
    MAP_GLOBAL_ADDRESS,
    MAP_RANK, // less 1
    MAP_BOX_DIM,
    MAP_GLOBAL_DIM,
    MAP_GLOBAL_STRIDE,
    MAP_ELEMENT_STRIDE,
    MAP_ELEMENT_TYPE, // codes of their own
    MAP_INTERLEAVE,
    MAP_SWIZZLE_MODE,      // 0 none, 1 32B, 2 64B, 3 128B
    MAP_SWIZZLE_ATOMICITY, // 0 16B, 1 32B, 2 32B with flipped halves, 3 64B
    MAP_FILL_MODE,
} TensorMapField;
// Changes a field of the map in memory and counts it as an edit. Whether all fields together make
// sense is asked when the map is used. `ordinal`: the dimension, for those that have one.
bool tensor_map_edit(void *map, TensorMapField field, unsigned ordinal, uint64_t value,
                     uint32_t launch, char *why, size_t why_size);
// Copies a map from shared memory to `to` and releases it: an edit of what was there.
bool tensor_map_publish(void *to, const void *from, uint32_t launch, char *why, size_t why_size);
// A release fence makes the edits so far visible to those who acquire them.
void tensor_map_release(void *map);

unsigned tensor_element_size(TensorType type); // bytes; 0 for types of less than a byte
const char *tensor_type_name(TensorType type); // "BFLOAT16"

// Elements that a box has along a dimension: every element_strides-th one.
static inline uint32_t tensor_box_count(const TensorMap *map, int dimension) {
    uint32_t step = dimension ? map->element_strides[dimension] : 1;
    return (map->box[dimension] + step - 1) / step;
}
// Bytes of the whole box, those outside the tensor too: what complete_tx counts.
uint64_t tensor_box_bytes(const TensorMap *map);

#endif
