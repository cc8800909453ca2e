// Between float and the kernels' element types. The conversions are written out on the bits so that
// they are the same on every host and compiler; rounding is to nearest, ties to even.
#include "harness/convert.h"

#include <math.h>
#include <string.h>

const char *dtype_name(Dtype dtype) {
    static const char *const names[] = {"fp32", "fp16", "bf16", "fp8"};
    return names[dtype];
}

size_t dtype_size(Dtype dtype) {
    static const size_t sizes[] = {4, 2, 2, 1};
    return sizes[dtype];
}

int dtype_mantissa_bits(Dtype dtype) {
    static const int bits[] = {23, 10, 7, 3};
    return bits[dtype];
}

double dtype_largest(Dtype dtype) {
    static const double largest[] = {0x1.fffffep127, 65504.0, 0x1.fep127, 448.0};
    return largest[dtype];
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint16_t half_from_float(float value) {
    uint32_t bits = bits_of(value);
    uint16_t sign = (bits >> 16) & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7fff;  // NaN, as the hardware writes it
    if (magnitude >= 0x477ff000) return sign | 0x7c00; // rounds to 65536: infinity
    if (magnitude < 0x38800000) {
        // Subnormal in half precision: adding 0.5 makes the float adder round at 2^-24.
        float shifted = float_of(magnitude) + 0.5f;
        return sign | (uint16_t)(bits_of(shifted) - bits_of(0.5f));
    }
    // Rebias the exponent (127 to 15) and round 13 bits away.
    uint32_t odd = (magnitude >> 13) & 1;
    return sign | (uint16_t)((magnitude - (112u << 23) + 0xfff + odd) >> 13);
}

float float_from_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t magnitude = half & 0x7fff;
    if (magnitude >= 0x7c00) return float_of(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    if (magnitude < 0x400) {
        float value = (float)magnitude * 0x1p-24f;
        return float_of(sign | bits_of(value));
    }
    return float_of(sign | ((magnitude << 13) + (112u << 23)));
}

uint16_t bfloat16_from_float(float value) {
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    uint32_t odd = (bits >> 16) & 1;
    return (uint16_t)((bits + 0x7fff + odd) >> 16);
}

float float_from_bfloat16(uint16_t bits) {
    return float_of((uint32_t)bits << 16);
}

uint8_t e4m3_from_float(float value) {
    uint32_t bits = bits_of(value);
    uint8_t sign = (bits >> 24) & 0x80;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7f;
    if (magnitude >= bits_of(448.0f)) return sign | 0x7e;
    if (magnitude < bits_of(0x1p-6f)) {
        // Subnormal: adding 2^14 makes the float adder round at 2^-9.
        float shifted = float_of(magnitude) + 0x1p14f;
        return sign | (uint8_t)(bits_of(shifted) - bits_of(0x1p14f));
    }
    uint32_t odd = (magnitude >> 20) & 1;
    return sign | (uint8_t)((magnitude - (120u << 23) + 0x7ffff + odd) >> 20);
}

float float_from_e4m3(uint8_t bits) {
    int exponent = (bits >> 3) & 15, mantissa = bits & 7;
    float magnitude =
        exponent == 0 ? ldexpf((float)mantissa, -9) : ldexpf((float)(8 + mantissa), exponent - 10);
    if ((bits & 0x7f) == 0x7f) magnitude = NAN;
    return bits & 0x80 ? -magnitude : magnitude;
}

float round_to_dtype(float value, Dtype dtype) {
    switch (dtype) {
    case DTYPE_FP16: return float_from_half(half_from_float(value));
    case DTYPE_BF16: return float_from_bfloat16(bfloat16_from_float(value));
    case DTYPE_FP8: return float_from_e4m3(e4m3_from_float(value));
    default: return value;
    }
}

void store_as_dtype(void *to, const float *from, int64_t count, Dtype dtype) {
    switch (dtype) {
    case DTYPE_FP32: memcpy(to, from, (size_t)count * sizeof *from); return;
    case DTYPE_FP16:
        for (int64_t i = 0; i < count; i++) ((uint16_t *)to)[i] = half_from_float(from[i]);
        return;
    case DTYPE_BF16:
        for (int64_t i = 0; i < count; i++) ((uint16_t *)to)[i] = bfloat16_from_float(from[i]);
        return;
    case DTYPE_FP8:
        for (int64_t i = 0; i < count; i++) ((uint8_t *)to)[i] = e4m3_from_float(from[i]);
        return;
    }
}

float load_dtype(const void *from, int64_t index, Dtype dtype) {
    switch (dtype) {
    case DTYPE_FP16: return float_from_half(((const uint16_t *)from)[index]);
    case DTYPE_BF16: return float_from_bfloat16(((const uint16_t *)from)[index]);
    case DTYPE_FP8: return float_from_e4m3(((const uint8_t *)from)[index]);
    default: return ((const float *)from)[index];
    }
}

double half_ulp(double value, Dtype dtype) {
    static const int smallest_exponent[] = {-126, -14, -126, -6};
    int exponent = smallest_exponent[dtype];
    if (value != 0 && isfinite(value) && ilogb(value) > exponent) exponent = ilogb(value);
    return ldexp(0.5, exponent - dtype_mantissa_bits(dtype));
}
