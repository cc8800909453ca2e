// A floating-point number's bits, and back.
#ifndef SOFTGPU_BIT_CAST_H
#define SOFTGPU_BIT_CAST_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
static inline float bits_float(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}
static inline uint64_t double_bits(double x) {
    uint64_t u;
    memcpy(&u, &x, 8);
    return u;
}
static inline double bits_double(uint64_t u) {
    double x;
    memcpy(&x, &u, 8);
    return x;
}

#endif
