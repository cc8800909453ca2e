// Reductions of bulk copies and of red.async (PTX ISA 9.7.9.25.4.2, 9.7.13.7).
//
// f32 sums flush subnormals, those of f16 and bf16 don't (.noftz); a NaN loses against a number in
// min and max.
#include <math.h>
#include <string.h>

#include "softgpu/execute/formats.h"
#include "softgpu/machine/reduction.h"

typedef uint16_t __attribute__((may_alias, aligned(1))) Any16;
typedef uint32_t __attribute__((may_alias, aligned(1))) Any32;
typedef uint64_t __attribute__((may_alias, aligned(1))) Any64;

const char *reduction_name(Reduction reduction) {
    static const char *const names[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};
    return names[reduction];
}

bool reduction_exists(Reduction reduction, TensorType type, bool shared) {
    bool whole32 = type == TENSOR_U32 || type == TENSOR_S32;
    bool whole64 = type == TENSOR_U64 || type == TENSOR_S64;
    bool half = type == TENSOR_F16 || type == TENSOR_BF16;
    switch (reduction) {
    case REDUCE_ADD:
        return whole32 || whole64 ||
               (!shared && (half || type == TENSOR_F32 || type == TENSOR_F64));
    case REDUCE_MIN:
    case REDUCE_MAX: return whole32 || (!shared && (whole64 || half));
    case REDUCE_INC:
    case REDUCE_DEC: return type == TENSOR_U32;
    case REDUCE_AND:
    case REDUCE_OR:
    case REDUCE_XOR: return whole32 || (!shared && whole64);
    }
    return false;
}

// A subnormal becomes a zero of its sign.
static inline float flushed(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (!(bits & 0x7f800000)) bits &= 0x80000000;
    memcpy(&x, &bits, 4);
    return x;
}

static void add_f32(uint8_t *to, const uint8_t *from, uint32_t bytes) {
    for (uint32_t k = 0; k < bytes; k += 4) {
        float a, b;
        memcpy(&a, to + k, 4);
        memcpy(&b, from + k, 4);
        float sum = flushed(flushed(a) + flushed(b));
        uint32_t bits;
        memcpy(&bits, &sum, 4);
        if ((bits & 0x7fffffff) > 0x7f800000) bits = 0x7fffffff;
        memcpy(to + k, &bits, 4);
    }
}

static void add_f64(uint8_t *to, const uint8_t *from, uint32_t bytes) {
    for (uint32_t k = 0; k < bytes; k += 8) {
        double a, b;
        memcpy(&a, to + k, 8);
        memcpy(&b, from + k, 8);
        a += b;
        memcpy(to + k, &a, 8);
    }
}

static uint16_t combine_half(Reduction reduction, bool bf16, uint16_t old, uint16_t operand) {
    float a = bf16 ? bf16_to_float(old) : half_to_float(old);
    float b = bf16 ? bf16_to_float(operand) : half_to_float(operand);
    // Rounded to float and then to half is the same as rounded once (see execute/atomic.c).
    if (reduction == REDUCE_ADD) return bf16 ? float_to_bf16(a + b) : float_to_half(a + b);
    if (isnan(a) && isnan(b)) return 0x7fff;
    if (isnan(a)) return operand;
    if (isnan(b)) return old;
    bool less = a < b || (a == b && signbit(a));
    return less == (reduction == REDUCE_MIN) ? old : operand;
}

static void reduce_halves(Reduction reduction, bool bf16, uint8_t *to, const uint8_t *from,
                          uint32_t bytes) {
    Any16 *t = (Any16 *)to;
    const Any16 *f = (const Any16 *)from;
    for (uint32_t k = 0; k < bytes / 2; k++) t[k] = combine_half(reduction, bf16, t[k], f[k]);
}

static uint32_t combine32(Reduction reduction, bool is_signed, uint32_t old, uint32_t operand) {
    bool less = is_signed ? (int32_t)old < (int32_t)operand : old < operand;
    switch (reduction) {
    case REDUCE_ADD: return old + operand;
    case REDUCE_MIN: return less ? old : operand;
    case REDUCE_MAX: return less ? operand : old;
    case REDUCE_INC: return old >= operand ? 0 : old + 1;
    case REDUCE_DEC: return old == 0 || old > operand ? operand : old - 1;
    case REDUCE_AND: return old & operand;
    case REDUCE_OR: return old | operand;
    case REDUCE_XOR: return old ^ operand;
    }
    return old;
}

static uint64_t combine64(Reduction reduction, bool is_signed, uint64_t old, uint64_t operand) {
    bool less = is_signed ? (int64_t)old < (int64_t)operand : old < operand;
    switch (reduction) {
    case REDUCE_ADD: return old + operand;
    case REDUCE_MIN: return less ? old : operand;
    case REDUCE_MAX: return less ? operand : old;
    case REDUCE_AND: return old & operand;
    case REDUCE_OR: return old | operand;
    case REDUCE_XOR: return old ^ operand;
    default: return old; // reduction_exists has no inc and dec of 64 bits
    }
}

void reduce(Reduction reduction, TensorType type, uint8_t *to, const uint8_t *from,
            uint32_t bytes) {
    if (type == TENSOR_F32) {
        add_f32(to, from, bytes);
    } else if (type == TENSOR_F64) {
        add_f64(to, from, bytes);
    } else if (type == TENSOR_F16 || type == TENSOR_BF16) {
        reduce_halves(reduction, type == TENSOR_BF16, to, from, bytes);
    } else if (tensor_element_size(type) == 8) {
        Any64 *t = (Any64 *)to;
        const Any64 *f = (const Any64 *)from;
        bool is_signed = type == TENSOR_S64;
        for (uint32_t k = 0; k < bytes / 8; k++) t[k] = combine64(reduction, is_signed, t[k], f[k]);
    } else {
        Any32 *t = (Any32 *)to;
        const Any32 *f = (const Any32 *)from;
        bool is_signed = type == TENSOR_S32;
        for (uint32_t k = 0; k < bytes / 4; k++) t[k] = combine32(reduction, is_signed, t[k], f[k]);
    }
}
