// Matrix products of a warp: mma.sync, and the arithmetic of wmma.mma (PTX ISA 9.7.14).
//
// A handler unpacks all operands into the panels of tensor.h, multiplies, and packs the results; so
// registers that stand for several operands do no harm. Layouts: fragment.h.
#include "softgpu/check/check.h"
#include "softgpu/execute/formats.h"
#include "softgpu/execute/fragment.h"
#include "softgpu/execute/tensor.h"
#include "softgpu/execute/widen.h"

enum { DEPTH_MAX = 64, BLOCKS_MAX = 4 };

// ---- between registers and panels

// 32 lanes in two vectors; and so transposed that lane 4 g + t stands at place 8 t + g.
typedef struct {
    Sixteen half[2]; // t = 0, 1 and t = 2, 3
} Lanes;

static inline Lanes transpose_in(const void *row) {
    const LaneSixteen *v = row;
    return (Lanes){
        {__builtin_shuffle(v[0], v[1],
                           (Sixteen){0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29}),
         __builtin_shuffle(v[0], v[1],
                           (Sixteen){2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31})}};
}

static inline Lanes transpose_out(Lanes x) {
    return (Lanes){
        {__builtin_shuffle(x.half[0], x.half[1],
                           (Sixteen){0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27}),
         __builtin_shuffle(x.half[0], x.half[1],
                           (Sixteen){4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31})}};
}

// The lower and the upper eight of two vectors.
static inline Sixteen lower(Sixteen x, Sixteen y) {
    return __builtin_shuffle(x, y,
                             (Sixteen){0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23});
}
static inline Sixteen upper(Sixteen x, Sixteen y) {
    return __builtin_shuffle(
        x, y, (Sixteen){8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31});
}

// What the lanes with this t hold for rows 0 to 7 and, in another register, for rows 8 to 15.
// Panels are written and read in whole columns: loads of what two stores wrote would have to wait.
static inline Sixteen whole_column(Lanes x, Lanes y, int t) {
    return t % 2 ? upper(x.half[t / 2], y.half[t / 2]) : lower(x.half[t / 2], y.half[t / 2]);
}

// Which k element p of a register is, if the register is the `group`th in k among `depth` elements.
// Types of 8 bits come in the order in which they are added, see multiply_block.
static inline int depth_at(Element type, int group, int p, int depth) {
    if (type == ELEMENT_E4M3 || type == ELEMENT_E5M2)
        return depth / 2 * (p / 2) + 2 * group + p % 2;
    return unpacked_elements(type) * group + p;
}

// Unpacks the registers of a block of A into a[k][16]. With 8 rows the others are zeros.
static inline __attribute__((always_inline)) void unpack_a(Element type, uint32_t *a, const Warp *w,
                                                           const Row *rows, int count, int halves) {
    int packed = unpacked_elements(type), depth = 4 * packed * count / halves;
    for (int r = 0; r < count; r += halves) {
        Lanes low = transpose_in(row(w, rows[r])), high = {{{0}, {0}}};
        if (halves == 2) high = transpose_in(row(w, rows[r + 1]));
        for (int t = 0; t < 4; t++) {
            Sixteen bits = whole_column(low, high, t);
            for (int p = 0; p < packed; p++) {
                Sixteen values = widen(type, p, bits);
                int k = depth_at(type, 4 * (r / halves) + t, p, depth);
                memcpy(a + k * PANEL_ROWS, &values, sizeof values);
            }
        }
    }
}

// Unpacks the registers of a block of B into b[k][8].
static inline __attribute__((always_inline)) void unpack_b(Element type, uint32_t *b, const Warp *w,
                                                           const Row *rows, int count) {
    int packed = unpacked_elements(type), depth = 4 * packed * count;
    for (int r = 0; r < count; r++) {
        Lanes lanes = transpose_in(row(w, rows[r]));
        for (int t = 0; t < 4; t++)
            for (int p = 0; p < packed; p++) {
                Sixteen values = widen(type, p, lanes.half[t / 2]);
                memcpy(b + depth_at(type, 4 * r + t, p, depth) * PANEL_COLUMNS,
                       (uint32_t *)&values + 8 * (t % 2), 4 * PANEL_COLUMNS);
            }
    }
}

// Unpacks a block of A (to[k][16]) or of B (to[k][8]); one copy of the loops for each type.
static void unpack(Role role, Element type, void *to, const Warp *w, const Row *rows, int count,
                   int halves) {
#define TYPE(e)                                                                                    \
    case e:                                                                                        \
        if (role == ROLE_A)                                                                        \
            unpack_a(e, to, w, rows, count, halves);                                               \
        else                                                                                       \
            unpack_b(e, to, w, rows, count);                                                       \
        break;
    switch (type) {
        TYPE(ELEMENT_F16)
        TYPE(ELEMENT_BF16)
        TYPE(ELEMENT_TF32)
        TYPE(ELEMENT_E4M3)
        TYPE(ELEMENT_E5M2)
        TYPE(ELEMENT_S8)
        TYPE(ELEMENT_U8)
        TYPE(ELEMENT_S4)
        TYPE(ELEMENT_U4)
        TYPE(ELEMENT_B1)
    default: break;
    }
#undef TYPE
}

// Unpacks a block of C into c[8][16].
static void unpack_c(Element type, void *c, const Warp *w, const Row *rows, int halves) {
    Lanes none = {{{0}, {0}}};
    int second = type == ELEMENT_F16 ? 1 : 2; // the register of rows 8 to 15
    for (int odd = 0; odd < 2; odd++) {
        int r = type == ELEMENT_F16 ? 0 : odd;
        Lanes low = transpose_in(row(w, rows[r]));
        Lanes high = halves == 2 ? transpose_in(row(w, rows[r + second])) : none;
        for (int t = 0; t < 4; t++) {
            Sixteen column = whole_column(low, high, t);
            if (type == ELEMENT_F16) column = widen(ELEMENT_F16, odd, column);
            memcpy((uint32_t *)c + (2 * t + odd) * PANEL_ROWS, &column, sizeof column);
        }
    }
}

// Columns odd, odd + 2, odd + 4, odd + 6 of eight rows, as transpose_out wants them.
static inline Lanes gather_columns(const void *c, int odd, int half) {
    const LaneSixteen *columns = (const LaneSixteen *)c + odd;
    if (half) return (Lanes){{upper(columns[0], columns[2]), upper(columns[4], columns[6])}};
    return (Lanes){{lower(columns[0], columns[2]), lower(columns[4], columns[6])}};
}

// Rounds two vectors of floats to f16, in pairs.
static inline Lanes pack_halves(Lanes low, Lanes high) {
    Lanes out;
    for (int h = 0; h < 2; h++) {
        float x[16], y[16];
        uint32_t packed[16];
        memcpy(x, &low.half[h], sizeof x);
        memcpy(y, &high.half[h], sizeof y);
        for (int l = 0; l < 16; l++)
            packed[l] = float_to_half(x[l]) | (uint32_t)float_to_half(y[l]) << 16;
        memcpy(&out.half[h], packed, sizeof packed);
    }
    return out;
}

// Packs c[8][16] into the registers of a block of D.
static void pack_d(Element type, const void *c, const Warp *w, const Row *rows, int count,
                   uint32_t all) {
    for (int r = 0; r < count; r++) {
        Lanes lanes;
        if (type == ELEMENT_F16) {
            lanes = pack_halves(gather_columns(c, 0, r), gather_columns(c, 1, r));
        } else {
            lanes = gather_columns(c, r % 2, r / 2);
            if (type == ELEMENT_F32)
                for (int h = 0; h < 2; h++) lanes.half[h] = canonical_all(lanes.half[h]);
        }
        lanes = transpose_out(lanes);
        put32(w, rows[r], &lanes, all);
    }
}

// ---- arithmetic

// The model of the modelled GPU's tensor cores for an instruction that takes `depth` products.
static TensorModel model_of(const Warp *w, const MatrixOp *op, int depth) {
    int major = w->sm->gpu->figures.capability_major;
    TensorModel model = {.result_bits = 23, .step = depth, .half = op->d == ELEMENT_F16};
    model.fraction_bits = major >= 9 ? 25 : major == 8 ? 24 : 23;
    int most = op->a == ELEMENT_TF32 ? 4 : 8;
    if (major <= 8 && model.step > most) model.step = most;
    return model;
}

// Blocks of 16 x 8 with floating-point accumulators, by the model or not.
//
// fp8: no GPU from compute capability 9.0 on has an fp8 unit for mma.sync. ptxas widens the
// operands to f16 and uses two f16 instructions that start from zero, the first for the elements
// with k % 4 < 2, the second for the others, and adds the old accumulator last, with one rounding.
static void multiply_block(const Warp *w, const MatrixOp *op, float *c, const float *a,
                           const float *b) {
    int depth = op->shape.k;
    if (!runs_by_model(w, op->a)) {
        tensor_multiply_fast(c, a, b, PANEL_COLUMNS, depth);
        return;
    }
    const Format *a_format = element_format(op->a), *b_format = element_format(op->b);
    if (!element_is_fp8(op->a)) {
        TensorModel model = model_of(w, op, depth);
        tensor_multiply_model(c, a, b, PANEL_COLUMNS, depth, a_format, b_format, &model);
        return;
    }
    TensorModel model = model_of(w, op, depth / 2);
    float sum[PANEL_COLUMNS * PANEL_ROWS] = {0};
    tensor_multiply_model(sum, a, b, PANEL_COLUMNS, depth, &FORMAT_F16, &FORMAT_F16, &model);
    for (int k = 0; k < PANEL_COLUMNS * PANEL_ROWS; k++) c[k] += sum[k];
}

typedef union {
    float f[DEPTH_MAX * PANEL_ROWS];
    int32_t s[DEPTH_MAX * PANEL_ROWS];
} __attribute__((aligned(64))) PanelA;
typedef union {
    float f[DEPTH_MAX * PANEL_COLUMNS];
    int32_t s[DEPTH_MAX * PANEL_COLUMNS];
} __attribute__((aligned(64))) PanelB;
typedef union {
    float f[PANEL_COLUMNS * PANEL_ROWS];
    int32_t s[PANEL_COLUMNS * PANEL_ROWS];
} __attribute__((aligned(64))) PanelC;

static void multiply_any_block(const Warp *w, const MatrixOp *op, PanelC *c, const PanelA *a,
                               const PanelB *b) {
    if (op->d != ELEMENT_S32)
        multiply_block(w, op, c->f, a->f, b->f);
    else if (op->a == ELEMENT_B1)
        tensor_multiply_bits(c->s, a->s, b->s, PANEL_COLUMNS, op->shape.k / 32, op->and);
    else
        tensor_multiply_integers(c->s, a->s, b->s, PANEL_COLUMNS, op->shape.k, op->saturate);
}

Flow multiply_matrices(Warp *w, const Insn *i, uint32_t mask) {
    const MatrixOp *op = i->extra;
    uint32_t all;
    Flow flow = gather_warp(w, i, mask, &all);
    if (flow != FLOW_NEXT) return flow;

    int mb = row_blocks(op->shape), nb = column_blocks(op->shape), halves = row_halves(op->shape);
    int a_count = fragment_registers(ROLE_A, op->shape, op->a) / mb;
    int b_count = fragment_registers(ROLE_B, op->shape, op->b) / nb;
    int c_count = fragment_registers(ROLE_C, op->shape, op->c) / (mb * nb);
    int d_count = fragment_registers(ROLE_C, op->shape, op->d) / (mb * nb);
    PanelA a;
    PanelB b[BLOCKS_MAX];
    PanelC c[BLOCKS_MAX];
    for (int n = 0; n < nb; n++)
        unpack(ROLE_B, op->b, b[n].s, w, i->rows + op->b_at + n * b_count, b_count, 1);
    for (int m = 0; m < mb; m++) {
        unpack(ROLE_A, op->a, a.s, w, i->rows + op->a_at + m * a_count, a_count, halves);
        for (int n = 0; n < nb; n++) {
            int block = m * nb + n;
            unpack_c(op->c, c[block].s, w, i->rows + op->c_at + block * c_count, halves);
            multiply_any_block(w, op, &c[block], &a, &b[n]);
        }
    }
    for (int block = 0; block < mb * nb; block++)
        pack_d(op->d, c[block].s, w, i->rows + op->d_at + block * d_count, d_count, all);
    return FLOW_NEXT;
}

// ---- fp64

// The same in 64-bit registers; always one block.
Flow multiply_doubles(Warp *w, const Insn *i, uint32_t mask) {
    const MatrixOp *op = i->extra;
    uint32_t all;
    Flow flow = gather_warp(w, i, mask, &all);
    if (flow != FLOW_NEXT) return flow;
    enum { DEPTH = 16 };
    double a[DEPTH * PANEL_ROWS] = {0}, b[DEPTH * PANEL_COLUMNS];
    double c[PANEL_COLUMNS * PANEL_ROWS] = {0}, d[WARP_SIZE];
    for (int r = 0; r < fragment_registers(ROLE_A, op->shape, ELEMENT_F64); r++)
        for (int l = 0; l < WARP_SIZE; l++) {
            Place at = fragment_place(ROLE_A, op->shape, ELEMENT_F64, r, l);
            a[at.column * PANEL_ROWS + at.row] = ((LaneF64 *)row(w, i->rows[op->a_at + r]))[l];
        }
    for (int r = 0; r < fragment_registers(ROLE_B, op->shape, ELEMENT_F64); r++)
        for (int l = 0; l < WARP_SIZE; l++) {
            Place at = fragment_place(ROLE_B, op->shape, ELEMENT_F64, r, l);
            b[at.row * PANEL_COLUMNS + at.column] = ((LaneF64 *)row(w, i->rows[op->b_at + r]))[l];
        }
    int count = fragment_registers(ROLE_C, op->shape, ELEMENT_F64);
    for (int r = 0; r < count; r++)
        for (int l = 0; l < WARP_SIZE; l++) {
            Place at = fragment_place(ROLE_C, op->shape, ELEMENT_F64, r, l);
            c[at.column * PANEL_ROWS + at.row] = ((LaneF64 *)row(w, i->rows[op->c_at + r]))[l];
        }
    tensor_multiply_doubles(c, a, b, PANEL_COLUMNS, op->shape.k);
    for (int r = 0; r < count; r++) {
        for (int l = 0; l < WARP_SIZE; l++) {
            Place at = fragment_place(ROLE_C, op->shape, ELEMENT_F64, r, l);
            d[l] = c[at.column * PANEL_ROWS + at.row];
        }
        put64(w, i->rows[op->d_at + r], d, all);
    }
    return FLOW_NEXT;
}

// ---- Volta's m8n8k4: four products, each of eight lanes

enum { VOLTA_K = 4, VOLTA_PRODUCTS = 4 };

// The product that a lane belongs to, and its place among the eight lanes.
static inline int volta_product(int lane) {
    return lane / 4 % 4;
}
static inline int volta_place(int lane) {
    return lane % 4 + (lane < 16 ? 0 : 4);
}

static inline float f16_element(const Warp *w, const Row *rows, int element, int lane) {
    uint32_t bits = ((Lane32 *)row(w, rows[element / 2]))[lane];
    return half_to_float((uint16_t)(bits >> 16 * (element % 2)));
}

// Row and column of an accumulator's element.
static inline Place volta_accumulator(Element type, int element, int lane) {
    if (type == ELEMENT_F16) return (Place){volta_place(lane), element};
    return (Place){(lane & 1) + (element & 2) + (lane < 16 ? 0 : 4),
                   (element & 4) + (lane & 2) + (element & 1)};
}

static Flow multiply_volta(Warp *w, const Insn *i, uint32_t mask) {
    const MatrixOp *op = i->extra;
    bool a_column = i->choice[2] == 2, b_column = i->choice[3] == 2;
    uint32_t all;
    Flow flow = gather_warp(w, i, mask, &all);
    if (flow != FLOW_NEXT) return flow;
    float a[VOLTA_PRODUCTS][VOLTA_K * PANEL_ROWS] = {0};
    float b[VOLTA_PRODUCTS][VOLTA_K * PANEL_COLUMNS];
    float c[VOLTA_PRODUCTS][PANEL_COLUMNS * PANEL_ROWS] = {0};
    for (int l = 0; l < WARP_SIZE; l++) {
        int q = volta_product(l), place = volta_place(l), high = l < 16 ? 0 : 4;
        for (int e = 0; e < 4; e++) {
            float x = f16_element(w, i->rows + op->a_at, e, l);
            float y = f16_element(w, i->rows + op->b_at, e, l);
            a[q][a_column ? l % 4 * PANEL_ROWS + high + e : e * PANEL_ROWS + place] = x;
            b[q][b_column ? e * PANEL_COLUMNS + place : l % 4 * PANEL_COLUMNS + high + e] = y;
        }
        for (int e = 0; e < 8; e++) {
            Place at = volta_accumulator(op->c, e, l);
            c[q][at.column * PANEL_ROWS + at.row] =
                op->c == ELEMENT_F16 ? f16_element(w, i->rows + op->c_at, e, l)
                                     : ((LaneF32 *)row(w, i->rows[op->c_at + e]))[l];
        }
    }
    for (int q = 0; q < VOLTA_PRODUCTS; q++) multiply_block(w, op, c[q], a[q], b[q]);
    for (int r = 0; r < (op->d == ELEMENT_F16 ? 4 : 8); r++) {
        uint32_t d[WARP_SIZE];
        for (int l = 0; l < WARP_SIZE; l++) {
            float value[2];
            for (int p = 0; p < 2; p++) {
                Place at = volta_accumulator(op->d, op->d == ELEMENT_F16 ? 2 * r + p : r, l);
                value[p] = c[volta_product(l)][at.column * PANEL_ROWS + at.row];
            }
            d[l] = op->d == ELEMENT_F16
                       ? float_to_half(value[0]) | (uint32_t)float_to_half(value[1]) << 16
                       : float_bits(canonical(value[0]));
        }
        put32(w, i->rows[op->d_at + r], d, all);
    }
    return FLOW_NEXT;
}

// ---- lowering

// The shape and the four types, in the order written.
static void read_wording(const PtxInstruction *p, MatrixOp *op) {
    Element *next[] = {&op->d, &op->a, &op->b, &op->c};
    int types = 0;
    for (int k = 0; k < p->modifier_count; k++) {
        const char *m = p->modifiers[k];
        Element e = element_named(m);
        if (e && types < 4) *next[types++] = e;
        shape_named(m, &op->shape);
        op->saturate |= !strcmp(m, "satfinite");
        op->and |= !strcmp(m, "and");
    }
}

static const char *lower_mma(Lowering *l, const Match *m, Insn *i) {
    MatrixOp *op = kernel_alloc(l, sizeof *op);
    *op = (MatrixOp){0};
    read_wording(m->ptx, op);
    bool volta = op->a == ELEMENT_F16 && op->shape.k == VOLTA_K;
    bool doubles = op->a == ELEMENT_F64;
    if (op->d != op->c && !(volta && op->d == ELEMENT_F32))
        return "the types of the accumulators C and D must be the same";
    MatrixShape s = op->shape;
    int count[4] = {fragment_registers(ROLE_C, s, op->d), fragment_registers(ROLE_A, s, op->a),
                    fragment_registers(ROLE_B, s, op->b), fragment_registers(ROLE_C, s, op->c)};
    if (volta) {
        count[0] = op->d == ELEMENT_F16 ? 4 : 8;
        count[1] = count[2] = 2;
        count[3] = op->c == ELEMENT_F16 ? 4 : 8;
    }
    uint8_t *at[4] = {&op->d_at, &op->a_at, &op->b_at, &op->c_at};
    int total = count[0] + count[1] + count[2] + count[3], used = 0;
    Row *rows = kernel_alloc(l, (size_t)total * sizeof *rows);
    for (int k = 0; k < 4; k++) {
        const char *why = fragment_rows(l, &m->ptx->operands[k], count[k], doubles ? 64 : 32,
                                        k == 0, rows + used);
        if (why) return why;
        *at[k] = (uint8_t)used;
        used += count[k];
    }
    i->rows = rows;
    i->row_count = (uint16_t)total;
    i->extra = op;
    i->run = volta ? multiply_volta : doubles ? multiply_doubles : multiply_matrices;
    int products = volta ? VOLTA_PRODUCTS : 1;
    i->flops = (uint16_t)(2 * s.m * s.n * s.k * products / WARP_SIZE);
    return NULL;
}

#define MMA(shapes, layouts, types)                                                                \
    {                                                                                              \
        .name = "mma", .modifiers = "sync aligned " layouts " " shapes " " types,                  \
        .operands = "v v v v", .pipe = PIPE_TENSOR, .flags = INSN_ALIGNED, .lower = lower_mma      \
    }

const Form matrix_forms[] = {
    MMA("m16n8k8|m16n8k16", "row col", "f16|f32 f16 f16 f16|f32"),
    MMA("m16n8k8|m16n8k16", "row col", "f32 bf16 bf16 f32"),
    MMA("m16n8k4|m16n8k8", "row col", "f32 tf32 tf32 f32"),
    MMA("m16n8k16|m16n8k32", "row col", "f16|f32 e4m3|e5m2 e4m3|e5m2 f16|f32"),
    MMA("m8n8k16|m16n8k16|m16n8k32", "row col", "satfinite? s32 s8|u8 s8|u8 s32"),
    MMA("m8n8k32|m16n8k32|m16n8k64", "row col", "satfinite? s32 s4|u4 s4|u4 s32"),
    MMA("m8n8k128|m16n8k128|m16n8k256", "row col", "s32 b1 b1 s32 and|xor popc"),
    MMA("m8n8k4|m16n8k4|m16n8k8|m16n8k16", "row col", "rn? f64 f64 f64 f64"),
    MMA("m8n8k4", "row|col row|col", "f16|f32 f16 f16 f16|f32"),
    {0},
};
