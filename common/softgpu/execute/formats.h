// Floating-point formats below 64 bits, and rounding to them. All of it is exact arithmetic on
// bits: one rounding, to nearest even or in the direction asked for, subnormals included.
#ifndef SOFTGPU_FORMATS_H
#define SOFTGPU_FORMATS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

// What to do with the part of a number that its format can't hold.
typedef enum {
    ROUND_NEAREST, // to nearest, ties to even (rn)
    ROUND_ZERO,    // rz
    ROUND_DOWN,    // rm: towards -inf
    ROUND_UP,      // rp: towards +inf
    ROUND_AWAY,    // rna: to nearest, ties away from zero
} Rounding;

// How a format spends its bits: 1 sign, `exponent` bits with `bias`, `mantissa` bits.
typedef struct {
    uint8_t exponent, mantissa;
    int16_t bias;
    bool has_infinity;   // the largest exponent means infinity and NaN
    bool has_nan;        // else every code is a number
    uint32_t max_finite; // code of the largest finite number, without sign
    uint32_t nan;        // the canonical NaN
} Format;

static const Format FORMAT_F16 = {5, 10, 15, true, true, 0x7bff, 0x7fff};
static const Format FORMAT_BF16 = {8, 7, 127, true, true, 0x7f7f, 0x7fff};
static const Format FORMAT_TF32 = {8, 10, 127, true, true, 0x3fbff, 0x3ffff};
static const Format FORMAT_F32 = {8, 23, 127, true, true, 0x7f7fffff, 0x7fffffff};
static const Format FORMAT_E5M2 = {5, 2, 15, true, true, 0x7b, 0x7f};
static const Format FORMAT_E4M3 = {4, 3, 7, false, true, 0x7e, 0x7f};
static const Format FORMAT_E3M2 = {3, 2, 3, false, false, 0x1f, 0x1f};
static const Format FORMAT_E2M3 = {2, 3, 1, false, false, 0x1f, 0x1f};
static const Format FORMAT_E2M1 = {2, 1, 1, false, false, 0x7, 0x7};

// Rounds x to a format. `finite`: what is too large becomes the largest finite number (.satfinite);
// else infinity (or NaN where the format has none).
static inline uint32_t round_to_format(double x, const Format *f, Rounding rounding, bool finite) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    bool negative = bits >> 63;
    uint32_t sign = (uint32_t)negative << (f->exponent + f->mantissa);
    uint32_t infinity = f->has_infinity ? f->max_finite + 1 : f->nan;
    int exponent = (int)(bits >> 52 & 0x7ff);
    uint64_t fraction = bits & 0xfffffffffffffull;

    if (exponent == 0x7ff && fraction) return f->has_nan ? f->nan : f->max_finite;
    if (exponent == 0x7ff) {
        if (finite) return sign | f->max_finite;
        return f->has_infinity ? sign | infinity : f->nan;
    }
    if (exponent == 0 && fraction == 0) return sign;

    // significand * 2^(scale - 52), 1 <= significand / 2^52 < 2 (subnormal doubles are far below
    // any format here: they act as a tiny number whose bits all are cut off)
    uint64_t significand = fraction | (exponent ? 1ull << 52 : 0);
    int scale = exponent ? exponent - 1023 : -1022;
    int lowest = 1 - f->bias; // exponent of the smallest normal number
    int cut = 52 - f->mantissa;
    if (scale < lowest) cut += lowest - scale;
    uint64_t kept, rest, half;
    if (cut > 62) {
        kept = 0, rest = 1, half = 2; // less than half of the smallest number
    } else {
        kept = significand >> cut;
        rest = significand & ((1ull << cut) - 1);
        half = 1ull << (cut - 1);
    }
    bool up = false;
    switch (rounding) {
    case ROUND_NEAREST: up = rest > half || (rest == half && (kept & 1)); break;
    case ROUND_ZERO: break;
    case ROUND_DOWN: up = rest && negative; break;
    case ROUND_UP: up = rest && !negative; break;
    case ROUND_AWAY: up = rest >= half; break;
    }
    kept += up;
    // Adding the exponent lets a carry out of the mantissa step it.
    int biased = scale < lowest ? 0 : scale + f->bias - 1;
    uint64_t code = ((uint64_t)biased << f->mantissa) + kept;
    if (code > f->max_finite) {
        bool towards_zero = rounding == ROUND_ZERO || (rounding == ROUND_DOWN && !negative) ||
                            (rounding == ROUND_UP && negative);
        if (finite || towards_zero || !f->has_nan) return sign | f->max_finite;
        return f->has_infinity ? sign | infinity : f->nan;
    }
    return sign | (uint32_t)code;
}

// The value of a code; every format's values are doubles. NaN for the format's NaNs.
static inline double format_value(uint32_t code, const Format *f) {
    int bits = f->exponent + f->mantissa;
    bool negative = code >> bits & 1;
    uint32_t magnitude = code & ((1u << bits) - 1);
    if (magnitude > f->max_finite) {
        if (f->has_infinity && magnitude == f->max_finite + 1)
            return negative ? -__builtin_inf() : __builtin_inf();
        return __builtin_nan("");
    }
    uint32_t mantissa = magnitude & ((1u << f->mantissa) - 1);
    int exponent = (int)(magnitude >> f->mantissa);
    if (exponent)
        mantissa |= 1u << f->mantissa;
    else
        exponent = 1;
    int power = exponent - f->bias - f->mantissa; // within the range of normal doubles
    uint64_t scale_bits = (uint64_t)(power + 1023) << 52;
    double scale, value;
    memcpy(&scale, &scale_bits, 8);
    value = (double)mantissa * scale;
    return negative ? -value : value;
}

// ---- f16 and bf16, quick. NaNs: canonical when narrowed, their payload kept when widened.

static inline float bf16_to_float(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static inline uint16_t float_to_bf16(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
}

// Works without a branch, so that loops over lanes become vectors.
static inline float half_to_float(uint16_t h) {
    uint32_t magnitude = h & 0x7fffu;
    // as an f32 with a wrong bias; a multiplication by 2^112 puts it right, subnormals too
    uint32_t u = magnitude << 13, scale_bits = (uint32_t)(127 + 112) << 23;
    float x, scale;
    memcpy(&x, &u, 4);
    memcpy(&scale, &scale_bits, 4);
    x *= scale;
    memcpy(&u, &x, 4);
    if (magnitude >= 0x7c00) u = 0x7f800000u | (magnitude & 0x3ffu) << 13;
    u |= (uint32_t)(h & 0x8000u) << 16;
    memcpy(&x, &u, 4);
    return x;
}

static inline uint16_t float_to_half(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    uint32_t magnitude = u & 0x7fffffff, sign = u >> 16 & 0x8000;
    // normal results: rebias, then round to nearest even on the 13 bits that go
    uint32_t normal = magnitude - ((127u - 15u) << 23);
    normal = (normal + 0xfff + (normal >> 13 & 1)) >> 13;
    // subnormal results: adding 0.5 lines the bits up with 2^-24, and the addition rounds
    float m, half = 0.5f;
    memcpy(&m, &magnitude, 4);
    m += half;
    uint32_t small;
    memcpy(&small, &m, 4);
    small -= 0x3f000000;
    uint32_t result = magnitude < 0x38800000 ? small : normal;
    result = magnitude >= 0x477ff000 ? 0x7c00 : result;
    result |= sign;
    return (uint16_t)(magnitude > 0x7f800000 ? 0x7fff : result);
}

// n values at once; n is a multiple of 8.
static inline void halves_to_floats(float *to, const uint16_t *from, int n) {
#ifdef __F16C__
    for (int k = 0; k < n; k += 8)
        _mm256_storeu_ps(to + k, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + k))));
#else
    for (int k = 0; k < n; k++) to[k] = half_to_float(from[k]);
#endif
}
static inline void floats_to_halves(uint16_t *to, const float *from, int n) {
#ifdef __F16C__
    for (int k = 0; k < n; k += 8)
        _mm_storeu_si128((__m128i *)(to + k),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + k), _MM_FROUND_TO_NEAREST_INT));
    for (int k = 0; k < n; k++) to[k] = (to[k] & 0x7fff) > 0x7c00 ? 0x7fff : to[k];
#else
    for (int k = 0; k < n; k++) to[k] = float_to_half(from[k]);
#endif
}

#endif
