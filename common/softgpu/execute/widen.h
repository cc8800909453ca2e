// Elements of matrices in registers of 32 bits, widened to numbers, sixteen lanes at a time.
#ifndef SOFTGPU_WIDEN_H
#define SOFTGPU_WIDEN_H

#include "softgpu/execute/formats.h"
#include "softgpu/execute/fragment.h"

// Vectors wider than the machine's are passed in memory; they don't leave a file.
#pragma GCC diagnostic ignored "-Wpsabi"

typedef uint32_t Sixteen __attribute__((vector_size(64)));
typedef Sixteen __attribute__((may_alias, aligned(4))) LaneSixteen;

// Element `p` of each register as a number: fp32, or a 32-bit integer for the integer types.
static inline __attribute__((always_inline)) Sixteen widen(Element type, int p, Sixteen bits) {
    Sixteen out;
    float x[16];
    switch (type) {
    case ELEMENT_F16:
#ifdef __AVX512F__
        bits >>= 16 * p;
        return (Sixteen)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)bits));
#else
        for (int l = 0; l < 16; l++) x[l] = half_to_float((uint16_t)(bits[l] >> 16 * p));
        break;
#endif
    case ELEMENT_BF16: return p ? bits & 0xffff0000u : bits << 16;
    case ELEMENT_TF32: return bits & 0xffffe000u; // the unit doesn't look at the lowest bits
    case ELEMENT_E5M2:                            // the upper byte of an f16
        bits = (bits >> 8 * p & 0xff) << 8;
        for (int l = 0; l < 16; l++) x[l] = half_to_float((uint16_t)bits[l]);
        break;
    case ELEMENT_E4M3: {
        bits = bits >> 8 * p & 0xff;
        Sixteen magnitude = bits & 0x7f, scaled;
        for (int l = 0; l < 16; l++) x[l] = bits_float(magnitude[l] << 20) * 0x1p120f;
        memcpy(&scaled, x, sizeof scaled);
        Sixteen is_nan = (Sixteen)(magnitude == 0x7f);
        return (scaled & ~is_nan) | (is_nan & 0x7fffffffu) | (bits & 0x80) << 24;
    }
    case ELEMENT_U8: return bits >> 8 * p & 0xff;
    case ELEMENT_U4: return bits >> 4 * p & 0xf;
    case ELEMENT_S8: return ((bits >> 8 * p & 0xff) ^ 0x80) - 0x80;
    case ELEMENT_S4: return ((bits >> 4 * p & 0xf) ^ 8) - 8;
    default: return bits;
    }
    memcpy(&out, x, sizeof out);
    return out;
}

// Registers of 32 bits hold that many elements here: single bits stay words.
static inline int unpacked_elements(Element type) {
    return type == ELEMENT_B1 ? 1 : elements_packed(type);
}

// NaNs of results are all the same one.
static inline Sixteen canonical_all(Sixteen x) {
    Sixteen is_nan = (Sixteen)((x & 0x7fffffffu) > 0x7f800000u);
    return (x & ~is_nan) | (is_nan & 0x7fffffffu);
}

// ---- by the tensor cores' model

static inline const Format *element_format(Element e) {
    switch (e) {
    case ELEMENT_F16: return &FORMAT_F16;
    case ELEMENT_BF16: return &FORMAT_BF16;
    case ELEMENT_TF32: return &FORMAT_TF32;
    case ELEMENT_E5M2: return &FORMAT_E5M2;
    default: return &FORMAT_E4M3;
    }
}

static inline bool element_is_fp8(Element e) {
    return e == ELEMENT_E4M3 || e == ELEMENT_E5M2;
}

// Do products of these floating-point elements run by the tensor cores' model?
static inline bool runs_by_model(const Warp *w, Element e) {
    Numerics numerics = w->sm->gpu->settings->numerics;
    return numerics == NUMERICS_HARDWARE || (numerics == NUMERICS_DEFAULT && element_is_fp8(e));
}

#endif
