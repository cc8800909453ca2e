// What tests of arithmetic need beyond the bench: rows as arrays, interesting and random operands,
// and the exact comparison that says whether a rounded result is the right one.
#ifndef SOFTGPU_TEST_LANES_H
#define SOFTGPU_TEST_LANES_H

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdint.h>
#include <string.h>

#include "softgpu/execute/bit_cast.h"
#include "bench.h"

#define REGISTERS                                                                                  \
    ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .f32 %f<8>; "       \
    ".reg .f64 %e<8>; .reg .b128 %q<4>;\n"

static inline uint64_t lane_get(Bench *b, Row r, unsigned width, int lane) {
    uint64_t value = 0;
    memcpy(&value, (uint8_t *)row(&b->warp, r) + (size_t)lane * width, width);
    return value;
}
// Only rows of registers can be set; an immediate stays what it is.
static inline void lane_set(Bench *b, Row r, unsigned width, int lane, uint64_t value) {
    ck_assert(!(r & ROW_CONSTANT));
    memcpy((uint8_t *)row(&b->warp, r) + (size_t)lane * width, &value, width);
}
static inline uint32_t predicate_get(Bench *b, Row r) {
    return (uint32_t)lane_get(b, r, 4, 0);
}
static inline void predicate_set(Bench *b, Row r, uint32_t value) {
    lane_set(b, r, 4, 0, value);
}

static inline uint64_t noise(void) {
    static struct Random random = {0x1234567};
    return random_next(&random);
}

// Integers that break things, between random ones of all magnitudes.
static inline uint64_t any_integer(void) {
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     31,
                                     32,
                                     63,
                                     64,
                                     127,
                                     128,
                                     255,
                                     0x7fff,
                                     0x8000,
                                     0xffff,
                                     0x7fffffff,
                                     0x80000000,
                                     0xffffffff,
                                     0x7fffffffffffffff,
                                     0x8000000000000000,
                                     0xffffffffffffffff};
    uint64_t r = noise();
    if (r % 4 == 0) return edges[(r >> 8) % (sizeof edges / sizeof *edges)];
    return noise() >> (r >> 8) % 64;
}

// Floats: zeros, subnormals, extremes, infinities, NaN, and random patterns.
static inline uint32_t any_float(void) {
    static const uint32_t edges[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff,
                                     0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                     0x7fc00000, 0x3f800000, 0xbf800000, 0x3f7fffff, 0x4b800001};
    uint64_t r = noise();
    if (r % 4 == 0) return edges[(r >> 8) % (sizeof edges / sizeof *edges)];
    return (uint32_t)noise();
}

#endif
