// How a handler is written: a loop over the 32 lanes of rows.
//
// Invariant: a handler writes only the lanes of `mask`. It may compute the others' results, as long
// as computing them can't fail; a warp runs on one host thread, so writing a lane's old value back
// is the same as not writing it. That is what lets the compiler use whole vectors.
//
// A destination row is the same row as a source or disjoint from it, never overlapping in part.
#ifndef SOFTGPU_EXECUTE_H
#define SOFTGPU_EXECUTE_H

// Sums and products round each on its own unless we say fma; and nobody looks at exception flags,
// which frees the compiler to use vectors. Before all inline functions.
#pragma GCC optimize("fp-contract=off", "no-trapping-math")

// The forms' tables leave out fields that are zero.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#include <math.h>
#include <string.h>

#include "softgpu/execute/bit_cast.h"
#include "softgpu/execute/form.h"
#include "softgpu/machine/machine.h"

// Rows are bytes that handlers of different types look at in turn.
typedef uint16_t __attribute__((may_alias)) Lane16;
typedef uint32_t __attribute__((may_alias)) Lane32;
typedef uint64_t __attribute__((may_alias)) Lane64;
typedef int16_t __attribute__((may_alias)) LaneS16;
typedef int32_t __attribute__((may_alias)) LaneS32;
typedef int64_t __attribute__((may_alias)) LaneS64;
typedef float __attribute__((may_alias)) LaneF32;
typedef double __attribute__((may_alias)) LaneF64;
typedef struct __attribute__((may_alias)) {
    uint64_t lo, hi;
} Lane128;

// d[l] = expression, for each lane l of mask. The expression sees `l`.
#define EACH_LANE(T, d, mask, expression)                                                          \
    do {                                                                                           \
        if ((mask) == FULL_MASK) {                                                                 \
            _Pragma("GCC ivdep") for (int l = 0; l < WARP_SIZE; l++)(d)[l] = (T)(expression);      \
        } else {                                                                                   \
            _Pragma("GCC ivdep") for (int l = 0; l < WARP_SIZE; l++)(d)[l] =                       \
                (mask) >> l & 1 ? (T)(expression) : (d)[l];                                        \
        }                                                                                          \
    } while (0)

// Handlers of one, two or three sources of a type each. The expression sees a, b and c.
#define UNARY(name, D, A, expression)                                                              \
    static inline D name##_of(A a) {                                                               \
        return (D)(expression);                                                                    \
    }                                                                                              \
    static Flow name(Warp *w, const Insn *i, uint32_t mask) {                                      \
        D *d = row(w, i->d);                                                                       \
        const A *x = row(w, i->a);                                                                 \
        EACH_LANE(D, d, mask, name##_of(x[l]));                                                    \
        return FLOW_NEXT;                                                                          \
    }
#define BINARY(name, D, A, B, expression)                                                          \
    static inline D name##_of(A a, B b) {                                                          \
        return (D)(expression);                                                                    \
    }                                                                                              \
    static Flow name(Warp *w, const Insn *i, uint32_t mask) {                                      \
        D *d = row(w, i->d);                                                                       \
        const A *x = row(w, i->a);                                                                 \
        const B *y = row(w, i->b);                                                                 \
        EACH_LANE(D, d, mask, name##_of(x[l], y[l]));                                              \
        return FLOW_NEXT;                                                                          \
    }
#define TERNARY(name, D, A, B, C, expression)                                                      \
    static inline D name##_of(A a, B b, C c) {                                                     \
        return (D)(expression);                                                                    \
    }                                                                                              \
    static Flow name(Warp *w, const Insn *i, uint32_t mask) {                                      \
        D *d = row(w, i->d);                                                                       \
        const A *x = row(w, i->a);                                                                 \
        const B *y = row(w, i->b);                                                                 \
        const C *z = row(w, i->c);                                                                 \
        EACH_LANE(D, d, mask, name##_of(x[l], y[l], z[l]));                                        \
        return FLOW_NEXT;                                                                          \
    }

// Writes the lanes of `mask` of a whole row of results. `values` may be the row itself.
static inline void put16(const Warp *w, Row d, const void *values, uint32_t mask) {
    Lane16 *to = row(w, d);
    const Lane16 *from = values;
    EACH_LANE(uint16_t, to, mask, from[l]);
}
static inline void put32(const Warp *w, Row d, const void *values, uint32_t mask) {
    Lane32 *to = row(w, d);
    const Lane32 *from = values;
    EACH_LANE(uint32_t, to, mask, from[l]);
}
static inline void put64(const Warp *w, Row d, const void *values, uint32_t mask) {
    Lane64 *to = row(w, d);
    const Lane64 *from = values;
    EACH_LANE(uint64_t, to, mask, from[l]);
}
static inline void put128(const Warp *w, Row d, const void *values, uint32_t mask) {
    Lane128 *to = row(w, d);
    const Lane128 *from = values;
    for (int l = 0; l < WARP_SIZE; l++)
        if (mask >> l & 1) to[l] = from[l];
}

// Predicates are bit masks. An absent predicate source (ROW_NONE) is asked for by the caller.
static inline uint32_t predicate(const Warp *w, Row p) {
    return *(const Lane32 *)row(w, p);
}
static inline void put_predicate(const Warp *w, Row p, uint32_t value, uint32_t mask) {
    Lane32 *to = row(w, p);
    *to = (*to & ~mask) | (value & mask);
}

// .ftz: a subnormal becomes a zero of its sign.
static inline float flush(float x) {
    uint32_t u = float_bits(x);
    return bits_float((u & 0x7f800000u) ? u : u & 0x80000000u);
}
// Single-precision NaNs have no payload on the GPU: every NaN result is 0x7fffffff.
static inline float canonical(float x) {
    return x != x ? bits_float(0x7fffffffu) : x;
}
// .sat: into [0, 1]; NaN becomes +0, and so does -0.
static inline float saturate(float x) {
    float y = x > 0.0f ? x : 0.0f;
    return y < 1.0f ? y : 1.0f;
}

// The second destination of a pair d|p, a predicate: ROW_NONE if there is none.
static inline Row pair_row(Lowering *l, const PtxOperand *o, const char **why) {
    if (o->pair == -1) return ROW_NONE;
    PtxOperand second = {.kind = OPERAND_REGISTER, .reg = o->pair, .pair = -1};
    if (o->pair == PAIR_SINK) second.kind = OPERAND_SINK;
    return destination_row(l, &second, 1, why);
}

#endif
