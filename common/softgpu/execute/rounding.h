// Doing arithmetic in a rounding mode other than to nearest: the host's own mode is switched around
// a loop over lanes. The barriers keep the compiler from moving the loop's loads and stores, and so
// its arithmetic, out of between.
#ifndef SOFTGPU_ROUNDING_H
#define SOFTGPU_ROUNDING_H

#include <fenv.h>

#include "softgpu/execute/formats.h"

#ifdef __SSE2__
#include <immintrin.h>
typedef unsigned RoundingState;
static inline RoundingState rounding_begin(Rounding r) {
    unsigned old = _mm_getcsr();
    static const unsigned bits[] = {[ROUND_NEAREST] = 0x0000,
                                    [ROUND_DOWN] = 0x2000,
                                    [ROUND_UP] = 0x4000,
                                    [ROUND_ZERO] = 0x6000};
    _mm_setcsr((old & ~0x6000u) | bits[r]);
    __asm__ volatile("" ::: "memory");
    return old;
}
static inline void rounding_end(RoundingState old) {
    __asm__ volatile("" ::: "memory");
    _mm_setcsr(old);
}
#else
typedef int RoundingState;
static inline RoundingState rounding_begin(Rounding r) {
    int old = fegetround();
    static const int modes[] = {[ROUND_NEAREST] = FE_TONEAREST,
                                [ROUND_DOWN] = FE_DOWNWARD,
                                [ROUND_UP] = FE_UPWARD,
                                [ROUND_ZERO] = FE_TOWARDZERO};
    fesetround(modes[r]);
    __asm__ volatile("" ::: "memory");
    return old;
}
static inline void rounding_end(RoundingState old) {
    __asm__ volatile("" ::: "memory");
    fesetround(old);
}
#endif

// The rounding that choice `c` of a group "rn|rz|rm|rp" names; none means to nearest.
static inline Rounding chosen_rounding(unsigned c) {
    static const Rounding roundings[] = {ROUND_NEAREST, ROUND_NEAREST, ROUND_ZERO, ROUND_DOWN,
                                         ROUND_UP};
    return roundings[c];
}

#endif
