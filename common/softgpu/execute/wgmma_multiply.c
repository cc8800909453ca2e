// The arithmetic of wgmma.mma_async: one operation, for all four warps of a warpgroup.
//
// Accumulators are never rearranged. A vector is (a part of) a row of registers as it is, lane
// 4 g + t, and so are the operands brought into shape for it:
//
//     d[4 j + 2 h + c], lane (g, t)   D[8 h + g][8 j + 2 t + c] of the warp's 16 rows
//     a[k][h], lane (g, t)            A[8 h + g][k], the same for all t
//     b[j][k][c], element t           B[k][8 j + 2 t + c], the same for all g: 4 numbers
//
// so that d += a b is one multiply-add of vectors, B being loaded as 4 numbers repeated. All types
// fill 32 bytes of k: two chunks of a row, or four registers of A, which hold the same bits.
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/execute/execute.h"
#include "softgpu/execute/tensor.h"
#include "softgpu/execute/wgmma.h"
#include "softgpu/execute/widen.h"
#include "softgpu/timing/traffic.h"

enum {
    DEPTH_MAX = 32,
    COLUMNS_MAX = 256,
    BLOCKS_MAX = COLUMNS_MAX / 8, // of 8 columns
    A_REGISTERS = 4,
    WARP_ROWS = 16,
};

// The widest vector of 32-bit numbers that the machine has.
#ifdef __AVX512F__
enum { LANES = 16 };
#elif defined __AVX__
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef int32_t IntVector __attribute__((vector_size(4 * LANES)));
typedef uint32_t Four __attribute__((vector_size(16), aligned(4), may_alias));

enum { VECTORS = 2 * WARP_SIZE / LANES }; // of a[k]: 2 rows of registers

// The operands in shape, as bits of fp32 or of 32-bit integers.
typedef uint32_t PanelA[DEPTH_MAX][2][WARP_SIZE];
typedef uint32_t PanelB[BLOCKS_MAX][DEPTH_MAX][2][4];
typedef struct {
    PanelA a[WARPGROUP];
    PanelB b;
} __attribute__((aligned(64))) Operands;

// ---- A

// Widens a row of registers of A, rows 8 h … 8 h + 7 at `group` of k, for all t.
static inline __attribute__((always_inline)) void expand_a(Element type, PanelA a,
                                                           const uint32_t *lanes, int h, int group,
                                                           uint32_t sign) {
    int packed = unpacked_elements(type);
    for (int half = 0; half < 2; half++) {
        Sixteen bits = *(const LaneSixteen *)(lanes + 16 * half);
        for (int p = 0; p < packed; p++) {
            Sixteen x = widen(type, p, bits) ^ sign;
            int k = packed * 4 * group + p;
            uint32_t *to = &a[k][h][16 * half];
            size_t next = (size_t)packed * 2 * WARP_SIZE; // from t to t + 1
#define SPREAD(t)                                                                                  \
    *(LaneSixteen *)(to + next * (t)) =                                                            \
        __builtin_shuffle(x, (Sixteen){t, t, t, t, 4 + t, 4 + t, 4 + t, 4 + t, 8 + t, 8 + t,       \
                                       8 + t, 8 + t, 12 + t, 12 + t, 12 + t, 12 + t})
            SPREAD(0);
            SPREAD(1);
            SPREAD(2);
            SPREAD(3);
#undef SPREAD
        }
    }
}

// Brings a warp's rows of A from shared memory into the form that registers have.
static void fetch_a(const WgmmaForm *f, const uint8_t *shared, const Chunks *chunks, int warp,
                    uint32_t registers[A_REGISTERS][WARP_SIZE]) {
    if (!f->a_mn_major) { // a chunk holds what four lanes hold of a row
        for (int r = 0; r < A_REGISTERS; r++)
            for (int g = 0; g < 8; g++) {
                int row = WARP_ROWS * warp + 8 * (r & 1) + g;
                memcpy(&registers[r][4 * g], shared + chunks->at[2 * row + (r >> 1)], CHUNK);
            }
        return;
    }
    // Chunks are 8 rows at one k; a register holds two k of a row.
    for (int r = 0; r < A_REGISTERS; r++)
        for (int t = 0; t < 4; t++) {
            int k = 2 * t + 8 * (r >> 1), block = 2 * warp + (r & 1);
            uint16_t low[8], high[8];
            memcpy(low, shared + chunks->at[8 * k + block], CHUNK);
            memcpy(high, shared + chunks->at[8 * (k + 1) + block], CHUNK);
            for (int g = 0; g < 8; g++) registers[r][4 * g + t] = low[g] | (uint32_t)high[g] << 16;
        }
}

static inline __attribute__((always_inline)) void load_a_of(Element type, const Warpgroup *g,
                                                            const WgmmaOp *op, const Chunks *chunks,
                                                            Operands *to) {
    const WgmmaForm *f = wgmma_form(op->insn);
    // Negating one factor of each product; NaNs keep theirs, all of them mean the same.
    uint32_t sign = f->negate ? 0x80000000u : 0;
    for (int warp = 0; warp < WARPGROUP; warp++) {
        const Warp *w = &g->warps[warp];
        uint32_t fetched[A_REGISTERS][WARP_SIZE];
        if (f->a_shared) fetch_a(f, w->cta->shared, chunks, warp, fetched);
        for (int r = 0; r < A_REGISTERS; r++) {
            const void *lanes = f->a_shared
                                    ? (const void *)fetched[r]
                                    : w->stack + op->frame[warp] + op->insn->rows[f->d_count + r];
            expand_a(type, to->a[warp], lanes, r & 1, r >> 1, sign);
        }
    }
}

// ---- B

// K-major: the chunks of columns 8 j + c, + 2, + 4, + 6 hold four words each, word i of them k =
// packed i, …; so the words are exchanged across.
static inline __attribute__((always_inline)) void expand_b_rows(Element type, Operands *to,
                                                                const uint8_t *shared,
                                                                const Chunks *chunks, int columns) {
    int packed = unpacked_elements(type);
    for (int j = 0; j < columns / 8; j++)
        for (int c = 0; c < 2; c++)
            for (int q = 0; q < 2; q++) {
                uint32_t words[16] __attribute__((aligned(64)));
                for (int t = 0; t < 4; t++)
                    memcpy(&words[4 * t], shared + chunks->at[2 * (8 * j + c + 2 * t) + q], CHUNK);
                Sixteen x = *(const LaneSixteen *)words;
                x = __builtin_shuffle(
                    x, (Sixteen){0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15});
                for (int p = 0; p < packed; p++) {
                    Sixteen values = widen(type, p, x);
                    const Four *four = (const Four *)&values;
                    for (int i = 0; i < 4; i++)
                        *(Four *)to->b[j][packed * (4 * q + i) + p][c] = four[i];
                }
            }
}

// MN-major, 16-bit types: the chunk at (k, j) holds columns 8 j to 8 j + 7; word t two of them.
static inline __attribute__((always_inline)) void expand_b_columns(Element type, Operands *to,
                                                                   const uint8_t *shared,
                                                                   const Chunks *chunks,
                                                                   int columns, int depth) {
    int blocks = columns / 8;
    for (int j = 0; j < blocks; j++)
        for (int k = 0; k < depth; k += 4) {
            uint32_t words[16] __attribute__((aligned(64)));
            for (int y = 0; y < 4; y++)
                memcpy(&words[4 * y], shared + chunks->at[(k + y) * blocks + j], CHUNK);
            Sixteen x = *(const LaneSixteen *)words;
            for (int c = 0; c < 2; c++) {
                Sixteen values = widen(type, c, x);
                const Four *four = (const Four *)&values;
                for (int y = 0; y < 4; y++) *(Four *)to->b[j][k + y][c] = four[y];
            }
        }
}

static inline __attribute__((always_inline)) void load_b_of(Element type, const Warpgroup *g,
                                                            const WgmmaOp *op, const Chunks *chunks,
                                                            Operands *to) {
    const WgmmaForm *f = wgmma_form(op->insn);
    const uint8_t *shared = g->warps->cta->shared;
    if (f->b_mn_major)
        expand_b_columns(type, to, shared, chunks, f->n, f->k);
    else
        expand_b_rows(type, to, shared, chunks, f->n);
}

// One copy of the loops for each type.
static void load_a(const Warpgroup *g, const WgmmaOp *op, const Chunks *chunks, Operands *to) {
#define TYPE(e)                                                                                    \
    case e: load_a_of(e, g, op, chunks, to); break;
    switch (wgmma_form(op->insn)->a) {
        TYPE(ELEMENT_F16)
        TYPE(ELEMENT_BF16)
        TYPE(ELEMENT_TF32)
        TYPE(ELEMENT_E4M3)
        TYPE(ELEMENT_E5M2)
        TYPE(ELEMENT_S8)
        TYPE(ELEMENT_U8)
        TYPE(ELEMENT_B1)
    default: break;
    }
#undef TYPE
}
static void load_b(const Warpgroup *g, const WgmmaOp *op, const Chunks *chunks, Operands *to) {
#define TYPE(e)                                                                                    \
    case e: load_b_of(e, g, op, chunks, to); break;
    switch (wgmma_form(op->insn)->b) {
        TYPE(ELEMENT_F16)
        TYPE(ELEMENT_BF16)
        TYPE(ELEMENT_TF32)
        TYPE(ELEMENT_E4M3)
        TYPE(ELEMENT_E5M2)
        TYPE(ELEMENT_S8)
        TYPE(ELEMENT_U8)
        TYPE(ELEMENT_B1)
    default: break;
    }
#undef TYPE
}

// ---- products

// 4 numbers, repeated.
static inline Vector repeat(const uint32_t *four) {
#if defined __AVX512F__
    return (Vector)_mm512_broadcast_f32x4(_mm_loadu_ps((const float *)four));
#elif defined __AVX__
    return (Vector)_mm256_broadcast_ps((const __m128 *)four);
#else
    Vector v;
    memcpy(&v, four, sizeof v);
    return v;
#endif
}

// x * y + z, rounded once.
static inline Vector fused(Vector x, Vector y, Vector z) {
#if defined __AVX512F__
    return (Vector)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
#elif defined __FMA__ && defined __AVX__
    return (Vector)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
#else
    for (int l = 0; l < LANES; l++) z[l] = fmaf(x[l], y[l], z[l]);
    return z;
#endif
}

static inline Vector load_vector(const uint32_t *from) {
    Vector v;
    memcpy(&v, from, sizeof v);
    return v;
}

// The same NaN for all.
static inline Vector canonical_vector(Vector x) {
    IntVector is_nan = (IntVector)(x != x);
    return (Vector)(((IntVector)x & ~is_nan) | (is_nan & 0x7fffffff));
}

// Blocks of 8 columns, `count` of them (1 or 2), for one warp: d is the rows of registers of the
// blocks, 4 each, in the order 4 j + 2 h + c. With `fresh` they count as zero.
static inline __attribute__((always_inline)) void multiply_blocks(
    int count, uint32_t *const d[8], const PanelA a, const uint32_t (*b)[DEPTH_MAX][2][4],
    int depth, bool fresh) {
    enum { TOGETHER = 4 }; // vectors of a: with 2 blocks, 16 sums
    for (int first = 0; first < VECTORS; first += TOGETHER) {
        Vector sum[4][TOGETHER];
        for (int n = 0; n < 2 * count; n++)
            for (int v = 0; v < TOGETHER; v++) {
                int lane = (first + v) * LANES, h = lane / WARP_SIZE;
                const uint32_t *from = d[4 * (n / 2) + 2 * h + n % 2] + lane % WARP_SIZE;
                sum[n][v] = fresh ? (Vector){0} : load_vector(from);
            }
        for (int k = 0; k < depth; k++) {
            Vector x[TOGETHER];
            for (int v = 0; v < TOGETHER; v++) x[v] = load_vector(a[k][0] + (first + v) * LANES);
            for (int n = 0; n < 2 * count; n++) {
                Vector y = repeat(b[n / 2][k][n % 2]);
                for (int v = 0; v < TOGETHER; v++) sum[n][v] = fused(x[v], y, sum[n][v]);
            }
        }
        for (int n = 0; n < 2 * count; n++)
            for (int v = 0; v < TOGETHER; v++) {
                int lane = (first + v) * LANES, h = lane / WARP_SIZE;
                Vector result = canonical_vector(sum[n][v]);
                memcpy(d[4 * (n / 2) + 2 * h + n % 2] + lane % WARP_SIZE, &result, sizeof result);
            }
    }
}

static void multiply_fast(int count, uint32_t *const d[8], const PanelA a,
                          const uint32_t (*b)[DEPTH_MAX][2][4], int depth, bool fresh) {
    if (count == 2 && depth == 16)
        multiply_blocks(2, d, a, b, 16, fresh);
    else if (count == 2)
        multiply_blocks(2, d, a, b, depth, fresh);
    else
        multiply_blocks(1, d, a, b, depth, fresh);
}

// A block of integers: modulo 2^32, or limited at the end.
static void multiply_integers(const WgmmaForm *f, uint32_t *const d[4], const PanelA a,
                              const uint32_t b[DEPTH_MAX][2][4], int depth, bool fresh) {
    for (int n = 0; n < 4; n++) { // 2 h + c
        int32_t sum[WARP_SIZE] = {0};
        for (int k = 0; k < depth; k++) {
            const uint32_t *x = a[k][n / 2], *y = b[k][n % 2];
            if (f->a == ELEMENT_B1)
                for (int l = 0; l < WARP_SIZE; l++) sum[l] += __builtin_popcount(x[l] & y[l % 4]);
            else
                for (int l = 0; l < WARP_SIZE; l++) sum[l] += (int32_t)x[l] * (int32_t)y[l % 4];
        }
        for (int l = 0; l < WARP_SIZE; l++) {
            int64_t whole = sum[l] + (fresh ? 0 : (int64_t)(int32_t)d[n][l]);
            if (f->saturate && whole > INT32_MAX) whole = INT32_MAX;
            if (f->saturate && whole < INT32_MIN) whole = INT32_MIN;
            d[n][l] = (uint32_t)(uint64_t)whole;
        }
    }
}

// ---- products by the tensor cores' model

// A block of 8 columns for one warp. Hopper sums an instruction's products in one step; its fp8
// unit keeps 13 bits of fraction.
static void multiply_model(const WgmmaForm *f, uint32_t *const d[4], const PanelA a,
                           const uint32_t b[DEPTH_MAX][2][4], int depth, bool fresh) {
    float x[DEPTH_MAX * PANEL_ROWS], y[DEPTH_MAX * PANEL_COLUMNS], c[PANEL_ROWS * PANEL_COLUMNS];
    for (int k = 0; k < depth; k++) {
        for (int m = 0; m < PANEL_ROWS; m++)
            x[k * PANEL_ROWS + m] = bits_float(a[k][m / 8][4 * (m % 8)]);
        for (int n = 0; n < PANEL_COLUMNS; n++)
            y[k * PANEL_COLUMNS + n] = bits_float(b[k][n % 2][n / 2]);
    }
    for (int n = 0; n < PANEL_COLUMNS; n++)
        for (int m = 0; m < PANEL_ROWS; m++)
            c[n * PANEL_ROWS + m] =
                fresh ? 0 : bits_float(d[2 * (m / 8) + n % 2][4 * (m % 8) + n / 2]);
    bool fp8 = element_is_fp8(f->a);
    TensorModel model = {.fraction_bits = fp8 ? 13 : 25,
                         .result_bits = fp8 ? 13 : 23,
                         .step = depth,
                         .half = f->d == ELEMENT_F16};
    tensor_multiply_model(c, x, y, PANEL_COLUMNS, depth, element_format(f->a), element_format(f->b),
                          &model);
    for (int n = 0; n < PANEL_COLUMNS; n++)
        for (int m = 0; m < PANEL_ROWS; m++)
            d[2 * (m / 8) + n % 2][4 * (m % 8) + n / 2] =
                float_bits(canonical(c[n * PANEL_ROWS + m]));
}

// ---- a warp's part

typedef uint32_t Unpacked[8][WARP_SIZE] __attribute__((aligned(64)));

// f16 accumulators hold two columns in a register: into, and from, the order of fp32 ones.
static void unpack_halves(uint32_t *const *rows, int blocks, Unpacked to) {
    for (int j = 0; j < blocks; j++)
        for (int n = 0; n < 4; n++)
            for (int half = 0; half < 2; half++) {
                Sixteen bits = *(const LaneSixteen *)(rows[2 * j + n / 2] + 16 * half);
                *(LaneSixteen *)(to[4 * j + n] + 16 * half) = widen(ELEMENT_F16, n % 2, bits);
            }
}
static void pack_halves(uint32_t *const *rows, int blocks, Unpacked from) {
    for (int j = 0; j < blocks; j++)
        for (int h = 0; h < 2; h++)
            for (int l = 0; l < WARP_SIZE; l++)
                rows[2 * j + h][l] = float_to_half(bits_float(from[4 * j + 2 * h][l])) |
                                     (uint32_t)float_to_half(bits_float(from[4 * j + 2 * h + 1][l]))
                                         << 16;
}

static void multiply_warp(const Warpgroup *g, const WgmmaOp *op, const Operands *o, int warp) {
    const WgmmaForm *f = wgmma_form(op->insn);
    const Warp *w = &g->warps[warp];
    int depth = 8 * unpacked_elements(f->a), per_block = f->d == ELEMENT_F16 ? 2 : 4;
    bool fresh = !op->accumulates, integers = f->d == ELEMENT_S32;
    bool model = !integers && runs_by_model(w, f->a);
    for (int j = 0; j < f->n / 8; j += 2) {
        int count = j + 1 < f->n / 8 ? 2 : 1;
        uint32_t *rows[8], *d[8];
        Unpacked unpacked;
        for (int r = 0; r < per_block * count; r++)
            rows[r] = (uint32_t *)(w->stack + op->frame[warp] + op->insn->rows[per_block * j + r]);
        memcpy(d, rows, sizeof d);
        if (f->d == ELEMENT_F16) {
            if (!fresh) unpack_halves(rows, count, unpacked);
            for (int r = 0; r < 4 * count; r++) d[r] = unpacked[r];
        }
        for (int k = 0; k < count && (model || integers); k++) {
            if (model)
                multiply_model(f, d + 4 * k, o->a[warp], o->b[j + k], depth, fresh);
            else
                multiply_integers(f, d + 4 * k, o->a[warp], o->b[j + k], depth, fresh);
        }
        if (!model && !integers) multiply_fast(count, d, o->a[warp], &o->b[j], depth, fresh);
        if (f->d == ELEMENT_F16) pack_halves(rows, count, unpacked);
    }
}

// ---- checks of what is read

static const char *const swizzle_names[SWIZZLE_MODES] = {
    "none", "32B", "64B", "128B", "128B with atoms of 32B", "", "128B with atoms of 64B"};

// Records an operand of which something wasn't written.
static void report_unwritten(const Warpgroup *g, const WgmmaOp *op, const Chunks *chunks,
                             bool is_a) {
    const uint8_t *written = g->warps->cta->shared_written;
    if (finding_again(g->warps, op->insn, FINDING_UNINITIALISED)) return;
    int k = 0;
    while (!memchr(written + chunks->at[k], 0, CHUNK)) k++;
    const uint8_t *zero = memchr(written + chunks->at[k], 0, CHUNK);
    Descriptor d = descriptor_hopper(is_a ? op->a : op->b);
    finding(
        g->warps, op->insn, -1, FINDING_UNINITIALISED,
        "Write the whole tile first, zeros where it has no numbers; if it is written, look at the "
        "descriptor: bytes / 16, LBO and SBO in their places, the swizzle as the writer's.",
        "reads %c from shared memory at 0x%x, which nothing has written; the descriptor says "
        "start 0x%x, LBO %u bytes, SBO %u bytes, swizzle %s",
        is_a ? 'A' : 'B', (uint32_t)(zero - written), d.start, d.leading, d.stride,
        swizzle_names[d.swizzle]);
}

// Records an operand that a tensor copy has put there with another swizzle.
static void report_swizzle(const Warpgroup *g, const WgmmaOp *op, const Chunks *chunks, bool is_a) {
    const uint8_t *written = g->warps->cta->shared_written;
    if (finding_again(g->warps, op->insn, FINDING_LINT)) return;
    Descriptor d = descriptor_hopper(is_a ? op->a : op->b);
    int k = 0;
    uint8_t mark = MARK_WRITTEN;
    for (; mark == MARK_WRITTEN || mark == swizzle_mark(d.swizzle); k++)
        mark = written[chunks->at[k]];
    finding(
        g->warps, op->insn, -1, FINDING_LINT,
        "Give the tensor map and the descriptor (bits 62-63: 1 is 128B, 2 is 64B, 3 is 32B) the "
        "same swizzle.",
        "reads %c with swizzle %s, but the tensor copy that wrote shared memory at 0x%x had "
        "swizzle %s: the 16-byte pieces of the tile lie in other places",
        is_a ? 'A' : 'B', swizzle_names[d.swizzle], chunks->at[k - 1],
        swizzle_names[mark / MARK_SWIZZLE - 1]);
}

// Asks the marks of what an operand reads (check/check.h): was all of it written, and, where tensor
// copies did it, with the descriptor's swizzle?
static void check_written(const Warpgroup *g, const WgmmaOp *op, const Chunks *chunks, bool is_a) {
    const uint8_t *written = g->warps->cta->shared_written;
    const uint64_t ones = 0x0101010101010101ull;
    const uint8_t own = swizzle_mark(descriptor_hopper(is_a ? op->a : op->b).swizzle);
    uint64_t missing = 0;
    unsigned others = 0;
    for (int k = 0; k < chunks->count; k++) {
        uint64_t marks[2];
        memcpy(marks, written + chunks->at[k], CHUNK);
        missing |= ~(marks[0] & marks[1]) & ones;
        uint8_t first = (uint8_t)marks[0];
        others |= (first > MARK_WRITTEN) & (first != own);
    }
    if (missing) report_unwritten(g, op, chunks, is_a);
    if (others) report_swizzle(g, op, chunks, is_a);
}

// ---- all of it

// Operands cross from shared memory at 128 bytes a clock.
static void count_traffic(const Warpgroup *g, const WgmmaOp *op) {
    const WgmmaForm *f = wgmma_form(op->insn);
    if (!g->warps->sm->launch->timing) return;
    struct Counters *counters = g->warps->sm->counters;
    uint64_t bytes = 2 * CHUNK * (uint64_t)(f->n + (f->a_shared ? 64 : 0));
    counters->shared_wavefronts += bytes / 128;
    counters->shared_ideal += bytes / 128;
}

int wgmma_columns(const WgmmaOp *op) {
    return wgmma_form(op->insn)->n;
}

// Whatever the element type, K is 32 bytes of them.
uint32_t wgmma_operand_bytes(const WgmmaOp *op, bool *registers) {
    const WgmmaForm *f = wgmma_form(op->insn);
    *registers = !f->a_shared;
    return 32 * (uint32_t)(f->n + (f->a_shared ? 64 : 0));
}

void wgmma_execute(const Warpgroup *g, const WgmmaOp *op) {
    const WgmmaForm *f = wgmma_form(op->insn);
    SharedOperand a = wgmma_operand(f, true, op->a), b = wgmma_operand(f, false, op->b);
    bool checked = g->warps->cta->shared_written != NULL;
    Operands operands;
    Chunks chunks;
    if (f->a_shared) descriptor_chunks(&a, &chunks);
    if (f->a_shared && checked) check_written(g, op, &chunks, true);
    load_a(g, op, &chunks, &operands);
    descriptor_chunks(&b, &chunks);
    if (checked) check_written(g, op, &chunks, false);
    load_b(g, op, &chunks, &operands);
    count_traffic(g, op);
    for (int warp = 0; warp < WARPGROUP; warp++) multiply_warp(g, op, &operands, warp);
}
