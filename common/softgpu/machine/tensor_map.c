// Making, reading and editing tensor maps (tensor_map.h).
#include "softgpu/machine/tensor_map.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef unsigned long long ull;

enum { MAGIC = 0x70616d74, INTERLEAVE_32B = 2, ELEMENT_STRIDE_MAX = 8, FILL_NAN = 1 };
#define DIM_MAX    (1ull << 32)
#define STRIDE_END (1ull << 40)

static const struct {
    const char *name;
    uint8_t size;
    bool is_float;
} types[TENSOR_TYPES] = {
    {"UINT8", 1, false},         {"UINT16", 2, false},       {"UINT32", 4, false},
    {"INT32", 4, false},         {"UINT64", 8, false},       {"INT64", 8, false},
    {"FLOAT16", 2, true},        {"FLOAT32", 4, true},       {"FLOAT64", 8, true},
    {"BFLOAT16", 2, true},       {"FLOAT32_FTZ", 4, true},   {"TFLOAT32", 4, true},
    {"TFLOAT32_FTZ", 4, true},   {"16U4_ALIGN8B", 0, false}, {"16U4_ALIGN16B", 0, false},
    {"16U6_ALIGN16B", 0, false},
};

unsigned tensor_element_size(TensorType type) {
    return type < TENSOR_TYPES ? types[type].size : 0;
}

const char *tensor_type_name(TensorType type) {
    return type < TENSOR_TYPES ? types[type].name : "?";
}

uint64_t tensor_box_bytes(const TensorMap *map) {
    uint64_t bytes = tensor_element_size(map->type);
    for (int d = 0; d < map->rank; d++) bytes *= tensor_box_count(map, d);
    return bytes;
}

// ---- the opaque form

// FNV-1a over all bytes, with the field itself as zero.
static uint32_t checksum(const TensorMap *map) {
    TensorMap m = *map;
    m.checksum = 0;
    const uint8_t *bytes = (const uint8_t *)&m;
    uint32_t sum = 2166136261u;
    for (size_t k = 0; k < sizeof m; k++) sum = (sum ^ bytes[k]) * 16777619u;
    return sum;
}

static void put(void *to, const TensorMap *map) {
    TensorMap m = *map;
    m.checksum = checksum(&m);
    memset(to, 0, TENSOR_MAP_BYTES);
    memcpy(to, &m, sizeof m);
}

// ---- rules

// Writes a refusal.
__attribute__((format(printf, 3, 4))) static bool refuse(char *why, size_t size, const char *format,
                                                         ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, size, format, arguments);
    va_end(arguments);
    return false;
}

static bool is_align16(unsigned type) {
    return type == TENSOR_16U4_ALIGN16 || type == TENSOR_16U6_ALIGN16;
}

// What the enumerations allow.
static bool check_codes(const TensorMapArguments *a, char *why, size_t size) {
    if (a->type >= TENSOR_TYPES)
        return refuse(why, size, "tensorDataType is %u; the types are 0 to %d", a->type,
                      TENSOR_TYPES - 1);
    if (a->rank < 1 || a->rank > TENSOR_RANK_MAX)
        return refuse(why, size, "tensorRank is %u; it must be 1 to %d", a->rank, TENSOR_RANK_MAX);
    if (a->interleave > INTERLEAVE_32B)
        return refuse(why, size, "interleave is %u; it must be 0 to 2", a->interleave);
    if (a->interleave && a->rank < 3)
        return refuse(why, size, "tensorRank is %u; an interleaved layout needs at least 3",
                      a->rank);
    if (a->swizzle >= SWIZZLE_MODES)
        return refuse(why, size, "swizzle is %u; the modes are 0 to %d", a->swizzle,
                      SWIZZLE_MODES - 1);
    if (a->promotion > 3)
        return refuse(why, size, "l2Promotion is %u; it must be 0 to 3", a->promotion);
    if (a->fill > FILL_NAN) return refuse(why, size, "oobFill is %u; it must be 0 or 1", a->fill);
    if (a->fill && !types[a->type].is_float)
        return refuse(why, size, "oobFill asks for NaN; the type %s has none", types[a->type].name);
    return true;
}

// Where the tensor lies.
static bool check_tensor(const TensorMapArguments *a, char *why, size_t size) {
    bool wide = a->interleave == INTERLEAVE_32B || is_align16(a->type);
    unsigned alignment = wide ? 32 : 16;
    if (a->address % alignment)
        return refuse(why, size, "globalAddress is 0x%llx; it must be a multiple of %u",
                      (ull)a->address, alignment);
    for (unsigned d = 0; d < a->rank; d++)
        if (a->dims[d] < 1 || a->dims[d] > DIM_MAX)
            return refuse(why, size, "globalDim[%u] is %llu; it must be 1 to 2^32", d,
                          (ull)a->dims[d]);
    unsigned pack = is_align16(a->type) ? 128 : a->type == TENSOR_16U4_ALIGN8 ? 2 : 1;
    if (a->dims[0] % pack)
        return refuse(why, size, "globalDim[0] is %llu; with type %s it must be a multiple of %u",
                      (ull)a->dims[0], types[a->type].name, pack);
    for (unsigned d = 0; d + 1 < a->rank; d++) {
        if (a->strides[d] % alignment)
            return refuse(why, size, "globalStrides[%u] is %llu bytes; it must be a multiple of %u",
                          d, (ull)a->strides[d], alignment);
        if (a->strides[d] >= STRIDE_END)
            return refuse(why, size, "globalStrides[%u] is %llu bytes; it must be below 2^40", d,
                          (ull)a->strides[d]);
    }
    return true;
}

// What one instruction moves.
static bool check_box(const TensorMapArguments *a, char *why, size_t size) {
    for (unsigned d = 0; d < a->rank; d++) {
        if (a->box[d] < 1 || a->box[d] > BOX_DIM_MAX)
            return refuse(why, size, "boxDim[%u] is %u; it must be 1 to %d", d, a->box[d],
                          BOX_DIM_MAX);
        bool ignored = d == 0 && !a->interleave;
        if (!ignored && (a->element_strides[d] < 1 || a->element_strides[d] > ELEMENT_STRIDE_MAX))
            return refuse(why, size, "elementStrides[%u] is %u; it must be 1 to %d", d,
                          a->element_strides[d], ELEMENT_STRIDE_MAX);
    }
    if (is_align16(a->type) && a->box[0] != 128)
        return refuse(why, size, "boxDim[0] is %u; with type %s it must be 128", a->box[0],
                      types[a->type].name);
    if (a->interleave) {
        if (a->interleave == INTERLEAVE_32B && a->swizzle != SWIZZLE_32B)
            return refuse(why, size, "swizzle is %u; interleave 32B needs SWIZZLE_32B", a->swizzle);
        return true;
    }
    unsigned element = types[a->type].size;
    unsigned inner = element ? a->box[0] * element : a->box[0] / 2;
    if (inner % 16)
        return refuse(why, size,
                      "boxDim[0] is %u, so the inner dimension has %u bytes; they must be a "
                      "multiple of 16",
                      a->box[0], inner);
    if (a->swizzle && inner > swizzle_span(a->swizzle))
        return refuse(why, size,
                      "boxDim[0] is %u, so the inner dimension has %u bytes; this swizzle spans "
                      "%u",
                      a->box[0], inner, swizzle_span(a->swizzle));
    return true;
}

// What the driver takes and softgpu does not model.
static bool check_modelled(const TensorMapArguments *a, char *why, size_t size) {
    if (a->interleave)
        return refuse(why, size, "softgpu does not model interleaved layouts (interleave %u)",
                      a->interleave);
    if (a->type == TENSOR_F32_FTZ || a->type >= TENSOR_TF32_FTZ)
        return refuse(why, size, "softgpu does not model the conversions of type %s",
                      types[a->type].name);
    if (!swizzle_known(a->swizzle))
        return refuse(why, size, "softgpu does not model the swizzle 128B_ATOM_32B_FLIP_8B");
    return true;
}

static bool check_rules(const TensorMapArguments *a, char *why, size_t size) {
    return check_codes(a, why, size) && check_tensor(a, why, size) && check_box(a, why, size);
}

TensorMapVerdict tensor_map_encode(const TensorMapArguments *a, void *to, char *why, size_t size) {
    if (!check_rules(a, why, size)) return TENSOR_MAP_INVALID;
    if (!check_modelled(a, why, size)) return TENSOR_MAP_NOT_MODELLED;
    TensorMap m = {.magic = MAGIC,
                   .rank = (uint8_t)a->rank,
                   .type = (uint8_t)a->type,
                   .interleave = (uint8_t)a->interleave,
                   .swizzle = (uint8_t)a->swizzle,
                   .promotion = (uint8_t)a->promotion,
                   .fill = (uint8_t)a->fill,
                   .address = a->address};
    for (unsigned d = 0; d < a->rank; d++) {
        m.last[d] = (uint32_t)(a->dims[d] - 1);
        m.box[d] = (uint16_t)a->box[d];
        m.element_strides[d] = d ? (uint8_t)a->element_strides[d] : 1;
        if (d) m.strides[d - 1] = a->strides[d - 1];
    }
    put(to, &m);
    return TENSOR_MAP_FINE;
}

// Is it a map of ours?
static bool read_raw(const void *from, TensorMap *m, char *why, size_t size) {
    memcpy(m, from, sizeof *m);
    if (m->magic != MAGIC)
        return refuse(why, size,
                      "they hold no tensor map: cuTensorMapEncodeTiled has not made "
                      "these 128 bytes");
    if (m->checksum != checksum(m))
        return refuse(why, size, "they hold a damaged tensor map: something has written into it");
    return true;
}

bool tensor_map_read(const void *from, TensorMap *m, char *why, size_t size) {
    if (!read_raw(from, m, why, size)) return false;
    if (!m->edits) return true; // as it was encoded
    uint64_t dims[TENSOR_RANK_MAX];
    uint32_t box[TENSOR_RANK_MAX], steps[TENSOR_RANK_MAX];
    for (int d = 0; d < TENSOR_RANK_MAX; d++) {
        dims[d] = (uint64_t)m->last[d] + 1;
        box[d] = m->box[d];
        steps[d] = m->element_strides[d];
    }
    TensorMapArguments a = {.type = m->type,
                            .rank = m->rank,
                            .interleave = m->interleave,
                            .swizzle = m->swizzle,
                            .promotion = m->promotion,
                            .fill = m->fill,
                            .address = m->address,
                            .dims = dims,
                            .strides = m->strides,
                            .box = box,
                            .element_strides = steps};
    char rule[200];
    if (check_rules(&a, rule, sizeof rule) && check_modelled(&a, rule, sizeof rule)) return true;
    return refuse(why, size, "they hold a tensor map that tensormap.replace has made unusable: %s",
                  rule);
}

bool tensor_map_replace_address(void *map, uint64_t address, char *why, size_t size) {
    TensorMap m;
    if (!read_raw(map, &m, why, size)) return false;
    if (address % 16)
        return refuse(why, size, "globalAddress is 0x%llx; it must be a multiple of 16",
                      (ull)address);
    m.address = address;
    put(map, &m);
    return true;
}

// ---- edits by kernels

// The codes of tensormap.replace.tile.elemtype.
static const uint8_t element_types[] = {
    TENSOR_U8,  TENSOR_U16,     TENSOR_U32, TENSOR_S32,  TENSOR_U64,  TENSOR_S64,      TENSOR_F16,
    TENSOR_F32, TENSOR_F32_FTZ, TENSOR_F64, TENSOR_BF16, TENSOR_TF32, TENSOR_TF32_FTZ,
};

// The atomicity of a mode: 0 16 bytes, 1 32, 2 32 flipped, 3 64.
static unsigned atomicity_of(unsigned swizzle) {
    return swizzle > SWIZZLE_128B ? swizzle - SWIZZLE_128B : 0;
}

static bool edit_swizzle(TensorMap *m, unsigned mode, unsigned atomicity, char *why, size_t size) {
    if (mode > 3) return refuse(why, size, "%u is no swizzle mode (0 to 3)", mode);
    if (atomicity > 3) return refuse(why, size, "%u is no swizzle atomicity (0 to 3)", atomicity);
    m->swizzle = (uint8_t)(mode == SWIZZLE_128B ? SWIZZLE_128B + atomicity : mode);
    return true;
}

static bool edit(TensorMap *m, TensorMapField field, unsigned at, uint64_t value, char *why,
                 size_t size) {
    unsigned dimensions = field == MAP_GLOBAL_STRIDE ? TENSOR_RANK_MAX - 1 : TENSOR_RANK_MAX;
    bool has_ordinal = field >= MAP_BOX_DIM && field <= MAP_ELEMENT_STRIDE;
    if (has_ordinal && at >= dimensions)
        return refuse(why, size, "%u is no dimension (0 to %u)", at, dimensions - 1);
    unsigned mode = m->swizzle > SWIZZLE_128B ? SWIZZLE_128B : m->swizzle;
    switch (field) {
    case MAP_GLOBAL_ADDRESS: m->address = value; return true;
    case MAP_RANK: m->rank = (uint8_t)(value < TENSOR_RANK_MAX ? value + 1 : 0); return true;
    case MAP_BOX_DIM: m->box[at] = (uint16_t)(value > UINT16_MAX ? 0 : value); return true;
    case MAP_GLOBAL_DIM:
        if (!value) return refuse(why, size, "a dimension of 0 elements is not allowed");
        m->last[at] = (uint32_t)value - 1;
        return true;
    case MAP_GLOBAL_STRIDE: m->strides[at] = value; return true;
    case MAP_ELEMENT_STRIDE:
        m->element_strides[at] = (uint8_t)(value > UINT8_MAX ? 0 : value);
        return true;
    case MAP_ELEMENT_TYPE:
        if (value >= sizeof element_types)
            return refuse(why, size, "softgpu does not model the element type %llu", (ull)value);
        m->type = element_types[value];
        return true;
    case MAP_INTERLEAVE: m->interleave = (uint8_t)(value > UINT8_MAX ? 255 : value); return true;
    case MAP_SWIZZLE_MODE:
        return edit_swizzle(m, (unsigned)value, atomicity_of(m->swizzle), why, size);
    case MAP_SWIZZLE_ATOMICITY: return edit_swizzle(m, mode, (unsigned)value, why, size);
    case MAP_FILL_MODE: m->fill = (uint8_t)(value > UINT8_MAX ? 255 : value); return true;
    }
    return refuse(why, size, "there is no such field");
}

bool tensor_map_edit(void *map, TensorMapField field, unsigned ordinal, uint64_t value,
                     uint32_t launch, char *why, size_t size) {
    TensorMap m;
    if (!read_raw(map, &m, why, size) || !edit(&m, field, ordinal, value, why, size)) return false;
    m.edits = m.edits == UINT16_MAX ? 1 : m.edits + 1;
    m.edit_launch = launch;
    put(map, &m);
    return true;
}

void tensor_map_release(void *map) {
    TensorMap m;
    char why[8];
    if (!read_raw(map, &m, why, sizeof why)) return;
    m.released = m.edits;
    put(map, &m);
}

bool tensor_map_publish(void *to, const void *from, uint32_t launch, char *why, size_t size) {
    TensorMap m, old;
    char unused[200];
    if (!read_raw(from, &m, why, size)) return false;
    uint16_t edits = read_raw(to, &old, unused, sizeof unused) ? old.edits : 0;
    m.edits = m.released = edits == UINT16_MAX ? 1 : edits + 1;
    m.edit_launch = launch;
    put(to, &m);
    return true;
}
