// Fragments: how the lanes of a warp hold a matrix in their registers (PTX ISA 9.7.14.5).
//
// All of mma.sync's layouts but one are the same rule. With g = lane / 4 and t = lane % 4, and
// `packed` elements in a register of 32 bits (1 for tf32, f64 and s32, 2 for f16, 4 for s8, …):
//
//     A: register r holds row g, elements k = packed t, packed t + 1, …; with 16 rows, odd registers
//        hold row g + 8; the next (pair of) registers are 4 packed further in k
//     B: the same with columns for rows, 8 of them
//     C: elements 0, 1 are row g, columns 2 t and 2 t + 1; elements 2, 3 row g + 8
//
// The fragments of wmma, whose layout PTX leaves open, are made of such blocks of 16 (or 8) rows and
// 8 columns, block after block. Where a program holds more registers than that takes (f16), the rest
// repeat them.
#ifndef SOFTGPU_FRAGMENT_H
#define SOFTGPU_FRAGMENT_H

#include "softgpu/execute/execute.h"

typedef enum {
    ELEMENT_NONE,
    ELEMENT_F16,
    ELEMENT_BF16,
    ELEMENT_TF32,
    ELEMENT_E4M3,
    ELEMENT_E5M2,
    ELEMENT_S8,
    ELEMENT_U8,
    ELEMENT_S4,
    ELEMENT_U4,
    ELEMENT_B1,
    ELEMENT_F32, // accumulators
    ELEMENT_S32,
    ELEMENT_F64,
} Element;

typedef enum { ROLE_A, ROLE_B, ROLE_C } Role; // C stands for D too

typedef struct {
    int m, n, k;
} MatrixShape;

static inline int element_bits(Element e) {
    static const uint8_t bits[] = {0, 16, 16, 32, 8, 8, 8, 8, 4, 4, 1, 32, 32, 64};
    return bits[e];
}

// The element that a modifier names ("bf16"), or ELEMENT_NONE; and the shape ("m16n8k16"): false if
// it is none.
static inline Element element_named(const char *name) {
    static const char *const names[] = {"",   "f16", "bf16", "tf32", "e4m3", "e5m2", "s8",
                                        "u8", "s4",  "u4",   "b1",   "f32",  "s32",  "f64"};
    for (int e = 1; e <= ELEMENT_F64; e++)
        if (!strcmp(name, names[e])) return (Element)e;
    return ELEMENT_NONE;
}
bool shape_named(const char *name, MatrixShape *shape);

// Elements in a register of 32 bits; f64 has registers of 64.
static inline int elements_packed(Element e) {
    int bits = element_bits(e);
    return bits >= 32 ? 1 : 32 / bits;
}

// Blocks of rows and columns, and 8-row halves of a block.
static inline int row_blocks(MatrixShape s) {
    return s.m > 16 ? s.m / 16 : 1;
}
static inline int column_blocks(MatrixShape s) {
    return s.n / 8;
}
static inline int row_halves(MatrixShape s) {
    return s.m >= 16 ? 2 : 1;
}

// Registers that a lane needs for a fragment.
static inline int fragment_registers(Role role, MatrixShape s, Element e) {
    int elements = role == ROLE_A ? s.m * s.k : role == ROLE_B ? s.k * s.n : s.m * s.n;
    return elements / WARP_SIZE / elements_packed(e);
}

// Row and column of the first element in a register of a lane. The others follow in k (A, B) or in
// the columns (C).
typedef struct {
    int row, column;
} Place;
Place fragment_place(Role role, MatrixShape s, Element e, int reg, int lane);

// The rows of a list of registers, `{…}` or a single one, as sources or destinations. NULL, or why
// it is refused.
const char *fragment_rows(Lowering *l, const PtxOperand *o, int count, int width, bool destination,
                          Row *rows);

// Brings all 32 lanes of the warp together for a matrix instruction. FLOW_NEXT: go on, with lanes
// *all; else what the handler returns.
Flow gather_warp(Warp *w, const Insn *i, uint32_t mask, uint32_t *all);

// What a product is made of, in Insn.extra. The registers of d, a, b and c follow each other in
// Insn.rows.
typedef struct {
    MatrixShape shape;
    Element a, b, c, d;
    uint8_t d_at, a_at, b_at, c_at; // where in Insn.rows they begin
    bool saturate, and;
} MatrixOp;

// D = A B + C (execute/mma.c), for mma and wmma.mma; the second one for f64.
Handler multiply_matrices, multiply_doubles;

#endif
