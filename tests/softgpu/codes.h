// The floating-point formats below 32 bits, decoded from their definitions and not with softgpu's
// code, and the question whether a code is a number rounded.
#ifndef SOFTGPU_TEST_CODES_H
#define SOFTGPU_TEST_CODES_H

#include "lanes.h"

// ---- the formats, once more: value of a code by definition

typedef struct {
    int exponent, mantissa, bias;
    uint32_t first_special; // codes from here on (without sign) are infinity or NaN
} Code;
static const Code __attribute__((unused)) f16 = {5, 10, 15, 0x7c00}, bf16 = {8, 7, 127, 0x7f80},
                                          e4m3 = {4, 3, 7, 0x7f}, e5m2 = {5, 2, 15, 0x7c},
                                          e2m1 = {2, 1, 1, 8}, e2m3 = {2, 3, 1, 32},
                                          e3m2 = {3, 2, 3, 32}, tf32_code = {8, 10, 127, 0x3fc00};

static inline double value(const Code *f, uint32_t code) {
    uint32_t sign = code >> (f->exponent + f->mantissa) & 1;
    uint32_t e = code >> f->mantissa & ((1u << f->exponent) - 1);
    uint32_t m = code & ((1u << f->mantissa) - 1);
    double x = e ? ldexp(1 + ldexp(m, -f->mantissa), (int)e - f->bias)
                 : ldexp(ldexp(m, -f->mantissa), 1 - f->bias);
    return sign ? -x : x;
}

// Is `code` x rounded? mode: n nearest even, a nearest away, z, m, p. Only for results that are
// finite: compares with the neighbours of the code.
static inline bool rounds_to(const Code *f, double x, uint32_t code, char mode) {
    uint32_t magnitude = code & ((1u << (f->exponent + f->mantissa)) - 1);
    bool negative = code >> (f->exponent + f->mantissa) & 1;
    if (x != 0 && negative != (x < 0)) return false;
    double a = fabs(x), at = value(f, magnitude);
    double below = magnitude ? value(f, magnitude - 1) : -1;
    bool last = magnitude + 1 == 1u << (f->exponent + f->mantissa); // the format's last code
    double above = last ? 2 * at - below : value(f, magnitude + 1);
    if (mode == 'm') mode = negative ? 'u' : 'z';
    if (mode == 'p') mode = negative ? 'z' : 'u';
    if (mode == 'z') return at <= a && a < above;
    if (mode == 'u') return below < a && a <= at;
    double middle_above = (at + above) / 2, middle_below = magnitude ? (at + below) / 2 : -1;
    if (mode == 'a') return a < middle_above && a >= middle_below;
    bool even = !(magnitude & 1);
    return even ? a <= middle_above && a >= middle_below : a < middle_above && a > middle_below;
}

static inline Bench *open_one(const char *name, const char *operands, const Insn **i) {
    char body[512];
    snprintf(body, sizeof body, "%s%s %s;", REGISTERS, name, operands);
    Bench *b = bench_open(body, 0);
    *i = bench_insn(b, name);
    return b;
}

#endif
