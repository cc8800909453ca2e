// The arithmetic of tcgen05.mma: one operation, for one CTA or both of a pair.
//
// Operands are brought into shape once: A as blocks of 16 rows, a[block][k][16], B as b[k][column],
// numbers of fp32 or of 32-bit integers. Then each panel of 16 rows and 8 columns of D, which
// always are 16 neighbouring lanes of 8 neighbouring columns (tcgen05.h, Accumulator), takes its
// product (tensor.h). With scales for blocks of k, operands are multiplied by theirs first, which
// is exact but where a scale leaves fp32's range; those sum in fp32 under any --numerics.
//
// A sparse A (tcgen05_sparse.c) is brought into the same shape, with zeros where nothing is stored.
// What meets no stored element has no part in a row's sums: where it would be noticed, because B
// has infinities or by --numerics hardware, rows are multiplied one by one, with what they do meet.
//
// In a pair each CTA brings its half of A's rows and of B's columns, and keeps its rows of D.
#include <string.h>

#include "softgpu/check/check.h"
#include "softgpu/check/findings.h"
#include "softgpu/execute/tcgen05.h"
#include "softgpu/execute/tensor.h"
#include "softgpu/timing/traffic.h"

enum { DEPTH_MAX = 128, ROWS_MAX = 128, COLUMNS_MAX = 256, PER_CHUNK_MAX = 32 };

typedef union {
    float f[DEPTH_MAX * COLUMNS_MAX];
    int32_t i[DEPTH_MAX * COLUMNS_MAX];
} Numbers;

typedef struct {
    const TensorOp *op;
    const MmaForm *form;
    MmaShape shape;
    Cta *ctas[2];
    bool by_row; // A is sparse, and B's elements must not meet its zeros
} Product;

// ---- elements

static const Format *format_of(MmaElement e) {
    switch (e) {
    case MMA_F16: return &FORMAT_F16;
    case MMA_BF16: return &FORMAT_BF16;
    case MMA_TF32: return &FORMAT_TF32;
    case MMA_E5M2: return &FORMAT_E5M2;
    case MMA_E2M3: return &FORMAT_E2M3;
    case MMA_E3M2: return &FORMAT_E3M2;
    case MMA_E2M1:
    case MMA_E2M1_PACKED: return &FORMAT_E2M1;
    default: return &FORMAT_E4M3;
    }
}

// Values of the codes of 8 bits and below.
static const float *values_of(MmaElement e) {
    static float table[MMA_S8 + 1][256];
    static _Atomic bool ready[MMA_S8 + 1];
    if (!ready[e]) { // threads that come together write the same
        const Format *f = format_of(e);
        uint32_t codes = 1u << (1 + f->exponent + f->mantissa);
        for (uint32_t c = 0; c < 256; c++) table[e][c] = (float)format_value(c % codes, f);
        ready[e] = true;
    }
    return table[e];
}

// Code number n of 16 bytes of shared memory: smaller ones than 8 bits stand together at the start,
// the rest is padding.
static inline uint32_t small_code(const uint8_t *chunk, MmaElement e, int n) {
    if (e == MMA_E2M1 || e == MMA_E2M1_PACKED) return chunk[n / 2] >> 4 * (n % 2) & 0xf;
    if (e != MMA_E2M3 && e != MMA_E3M2) return chunk[n];
    unsigned at = 6 * (unsigned)n, two = chunk[at / 8] | (unsigned)chunk[at / 8 + 1] << 8;
    return two >> at % 8 & 0x3f;
}

static inline int chunk_elements(MmaElement e) {
    return e == MMA_E2M1_PACKED ? 32 : CHUNK * 8 / mma_bits(e);
}

// The numbers of 16 bytes, in order, as bits of fp32 or integers.
static void decode(MmaElement e, const uint8_t *chunk, uint32_t out[PER_CHUNK_MAX]) {
    uint16_t halves[8];
    switch (e) {
    case MMA_F16:
        memcpy(halves, chunk, CHUNK);
        halves_to_floats((float *)(void *)out, halves, 8);
        return;
    case MMA_BF16:
        memcpy(halves, chunk, CHUNK);
        for (int n = 0; n < 8; n++) out[n] = (uint32_t)halves[n] << 16;
        return;
    case MMA_TF32:
        memcpy(out, chunk, CHUNK);
        for (int n = 0; n < 4; n++) out[n] &= 0xffffe000u; // the unit doesn't look at the rest
        return;
    case MMA_U8:
        for (int n = 0; n < CHUNK; n++) out[n] = chunk[n];
        return;
    case MMA_S8:
        for (int n = 0; n < CHUNK; n++) out[n] = (uint32_t)(int32_t)(int8_t)chunk[n];
        return;
    default: break;
    }
    const float *values = values_of(e);
    for (int n = 0; n < chunk_elements(e); n++)
        out[n] = float_bits(values[small_code(chunk, e, n)]);
}

// Bits of a byte of tensor memory that an element below 8 bits takes: the middle ones, as
// tcgen05.cp puts them there (tcgen05_copy.c). 0: elements fill their bytes.
static inline uint32_t middle_bits(MmaElement e) {
    return e == MMA_E2M1 ? 0x3c : e == MMA_E2M3 || e == MMA_E3M2 ? 0x7e : 0;
}

// The same of 16 bytes of a row of A in tensor memory, where each element below 8 bits has 8.
// Answers whether the bits around them are zeros.
static bool decode_row(MmaElement e, const uint8_t *chunk, uint32_t out[PER_CHUNK_MAX]) {
    uint32_t used = middle_bits(e), around = 0;
    if (!used) {
        decode(e, chunk, out);
        return true;
    }
    const float *values = values_of(e);
    for (int n = 0; n < CHUNK; n++) {
        out[n] = float_bits(values[(chunk[n] & used) >> __builtin_ctz(used)]);
        around |= chunk[n] & ~used;
    }
    return !around;
}

// ---- checks of what is read

static bool checks_init(const Product *p) {
    return p->op->warp->sm->gpu->settings->checks & CHECK_INIT;
}

// Have these lanes of a column been written? `lanes` is a mask of 16.
static bool is_written(const Tmem *t, uint32_t column, int lane, uint32_t lanes) {
    return !(lanes & ~(t->written[column][lane / 32] >> lane % 32));
}

// `what`: D, A, metadata or scales.
static void report_cells(const Product *p, const char *what, uint32_t column, int lane) {
    Warp *w = p->op->warp;
    if (finding_again(w, p->op->insn, FINDING_UNINITIALISED)) return;
    finding(w, p->op->insn, p->op->lane, FINDING_UNINITIALISED,
            *what == 'D' ? "Let the first product of a chain have enable-input-d false."
                         : "Write all of it first (tcgen05.st, tcgen05.cp), and wait for that.",
            "%s tensor memory at column %u, lanes %d to %d, of which nothing has written some "
            "since it was allocated",
            *what == 'D'   ? "adds to D in"
            : *what == 'A' ? "takes A from"
            : *what == 'm' ? "takes metadata from"
                           : "takes scales from",
            column, lane, lane + 15);
}

// ---- operands

// Puts the numbers of an operand in shared memory where they belong: element (r, k) at
// to[k * k_step + r / 16 * block_step + r % 16]; r counts from `first`.
static void load_shared(const Product *p, const Cta *cta, bool is_a, int first, uint32_t *to,
                        int k_step, int block_step) {
    MmaElement e = is_a ? p->shape.a : p->shape.b;
    SharedOperand o = mma_operand(p->form, &p->shape, is_a, is_a ? p->op->mma.a : p->op->mma.b);
    Chunks chunks;
    descriptor_chunks(&o, &chunks);
    // Of a padded chunk only the start counts.
    size_t used = e == MMA_E2M1 ? 8 : e == MMA_E2M3 || e == MMA_E3M2 ? 12 : CHUNK;
    tcgen05_shared_written(p->op, cta, &o, &chunks, used, is_a ? "A" : "B");
    int per = chunk_elements(e), depth = is_a ? p->shape.a_k : p->shape.k;
    int inner = (o.mn_major ? o.rows : depth) / per;
    for (int c = 0; c < chunks.count; c++) {
        uint32_t x[PER_CHUNK_MAX];
        decode(e, cta->shared + chunks.at[c], x);
        // K-major chunks are a row's, others have neighbouring rows at one k.
        int outer = c / inner, at = c % inner * per;
        int r = first + (o.mn_major ? at : outer), k = o.mn_major ? outer : at;
        uint32_t *place = to + k * k_step + r / 16 * block_step + r % 16;
        int step = o.mn_major ? 1 : k_step;
        for (int n = 0; n < per; n++) place[n * step] = x[n];
    }
}

// What of A or the metadata, `columns` from `column` on, must be there in 16 lanes: written, and
// the same in all copies, as each part of the unit takes its own.
static void check_rows(const Product *p, const Cta *cta, const Accumulator *d, const char *what,
                       uint32_t column, int columns, int lane) {
    const Tmem *t = cta->sm->tmem;
    if (!checks_init(p)) return;
    for (uint32_t c = column; c < column + (uint32_t)columns; c++)
        for (int copy = 0; copy < d->copies; copy++) {
            int other = lane + copy * d->fold_lanes;
            if (!is_written(t, c, other, 0xffff)) {
                report_cells(p, what, c, other);
                return;
            }
            if (!memcmp(&t->cell[c][lane], &t->cell[c][other], 16 * sizeof **t->cell)) continue;
            if (finding_again(p->op->warp, p->op->insn, FINDING_TENSOR)) return;
            finding(p->op->warp, p->op->insn, p->op->lane, FINDING_TENSOR,
                    "Write the same rows to all of them.",
                    "takes %s from tensor memory at column %u, of which lanes %d to %d and their "
                    "copy, lanes %d to %d, differ",
                    what, c, lane, lane + 15, other, other + 15);
            return;
        }
}

static void report_padding(const Product *p, uint32_t column, int lane) {
    Warp *w = p->op->warp;
    FindingKind kind = w->sm->gpu->settings->strict ? FINDING_TENSOR : FINDING_LINT;
    if (finding_again(w, p->op->insn, kind)) return;
    finding(
        w, p->op->insn, p->op->lane, kind,
        "Put the number into bits 2-5 (4 bits) or 1-6 (6 bits) of its byte, and zeros around it.",
        "takes A from tensor memory at lane %d, column %u on, where bytes have bits set beside "
        "those in the middle that their numbers take",
        lane, column);
}

// A's rows of a CTA from tensor memory: 16 bytes are four columns.
static void load_tensor(const Product *p, Cta *cta, const Accumulator *d, uint32_t *to) {
    const Tmem *t = tmem_of(cta->sm);
    uint32_t column = tmem_column((uint32_t)p->op->mma.a);
    MmaElement e = p->shape.a;
    int per = chunk_elements(e), depth = p->shape.a_k;
    for (int block = 0; block < d->rows / 16; block++) {
        int lane = d->first + block * d->row_lanes;
        check_rows(p, cta, d, "A", column, 8, lane);
        for (int m = 0; m < 16; m++)
            for (int half = 0; half < 2; half++) {
                uint32_t words[4], x[PER_CHUNK_MAX];
                for (int n = 0; n < 4; n++)
                    words[n] = t->cell[column + 4 * (uint32_t)half + (uint32_t)n][lane + m];
                if (!decode_row(e, (const uint8_t *)words, x))
                    report_padding(p, column + 4 * (uint32_t)half, lane + m);
                for (int n = 0; n < per; n++) to[(block * depth + half * per + n) * 16 + m] = x[n];
            }
    }
}

// The scale of row (or column of B) r for block number `b` of k.
static float scale_of(const Product *p, const Cta *cta, bool is_a, int r, int b) {
    const Tmem *t = cta->sm->tmem;
    uint32_t address = is_a ? p->op->mma.scale_a : p->op->mma.scale_b;
    uint32_t column = tmem_column(address) + (uint32_t)r / 32;
    int shift = 8 * ((is_a ? p->shape.id_a : p->shape.id_b) + b);
    for (int lane = r % 32 / 16 * 16; checks_init(p) && lane < TMEM_LANES; lane += 32)
        if (!is_written(t, column, lane, 0xffff)) report_cells(p, "scales", column, lane);
    uint32_t code = t->cell[column][r % 32] >> shift & 0xff;
    if (!p->shape.scales_e8) return (float)format_value(code & 0x7f, &FORMAT_E4M3);
    return code == 0xff ? bits_float(0x7fffffff) : ldexpf(1, (int)code - 127);
}

static void scale_a(const Product *p, const Cta *cta, int rows, float *a) {
    int depth = p->shape.k, block = p->shape.scale_block;
    for (int r = 0; r < rows; r++)
        for (int b = 0; b < depth / block; b++) {
            float scale = scale_of(p, cta, true, r, b);
            for (int k = b * block; k < (b + 1) * block; k++)
                a[(r / 16 * depth + k) * 16 + r % 16] *= scale;
        }
}
static void scale_b(const Product *p, const Cta *cta, float *b) {
    int block = p->shape.scale_block;
    for (int n = 0; n < p->shape.n; n++)
        for (int k = 0; k < p->shape.k; k += block) {
            float scale = scale_of(p, cta, false, n, k / block);
            for (int i = k; i < k + block; i++) b[i * p->shape.n + n] *= scale;
        }
}

static void negate(float *x, int count) {
    for (int k = 0; k < count; k++) x[k] = -x[k];
}

// ---- D

typedef struct {
    Tmem *tmem;
    uint32_t column;
    int lane;
    uint32_t lanes;         // that are written, of 16
    const Places16 *places; // of a sparse A's elements
} Panel;

// c += a b of a panel, with columns of B `stride` apart.
static void sum_floats(const Product *p, float *c, const float *a, const float *b, int stride,
                       int depth) {
    const MmaShape *s = &p->shape;
    bool hardware = p->op->warp->sm->gpu->settings->numerics == NUMERICS_HARDWARE;
    if (!hardware || p->form->block) {
        tensor_multiply_fast(c, a, b, stride, depth);
        return;
    }
    const TensorModel blackwell = {
        .fraction_bits = 25, .result_bits = 23, .step = depth, .half = s->d == RESULT_F16};
    tensor_multiply_model(c, a, b, stride, depth, format_of(s->a), format_of(s->b), &blackwell);
}

// The same row by row, each with the elements of B that its own meet.
static void sum_rows(const Product *p, const Places16 *places, float *c, const float *a,
                     const float *b) {
    float row_a[DEPTH_MAX / 2 * PANEL_ROWS], columns_b[DEPTH_MAX / 2 * PANEL_COLUMNS];
    float sum[PANEL_ROWS * PANEL_COLUMNS];
    for (int r = 0; r < PANEL_ROWS; r++) {
        sparse_gather(&p->shape, places, r, (const uint32_t *)(const void *)a,
                      (const uint32_t *)(const void *)b, (uint32_t *)(void *)row_a,
                      (uint32_t *)(void *)columns_b);
        memcpy(sum, c, sizeof sum);
        sum_floats(p, sum, row_a, columns_b, PANEL_COLUMNS, p->shape.a_k);
        for (int n = 0; n < PANEL_COLUMNS; n++) c[n * PANEL_ROWS + r] = sum[n * PANEL_ROWS + r];
    }
}

static void multiply_floats(const Product *p, const Panel *d, const float *a, const float *b) {
    float c[PANEL_ROWS * PANEL_COLUMNS];
    bool half = p->shape.d == RESULT_F16;
    for (int n = 0; n < PANEL_COLUMNS; n++) {
        const uint32_t *cell = &d->tmem->cell[d->column + (uint32_t)n][d->lane];
        for (int m = 0; m < PANEL_ROWS; m++)
            c[n * PANEL_ROWS + m] = !p->op->mma.accumulates ? 0
                                    : half                  ? half_to_float((uint16_t)cell[m])
                                                            : bits_float(cell[m]);
    }
    if (p->form->scale && p->op->mma.accumulates)
        for (int k = 0; k < PANEL_ROWS * PANEL_COLUMNS; k++) c[k] = ldexpf(c[k], -p->form->scale);
    if (p->by_row)
        sum_rows(p, d->places, c, a, b);
    else
        sum_floats(p, c, a, b, p->shape.n, p->shape.k);
    for (int n = 0; n < PANEL_COLUMNS; n++) {
        uint32_t *cell = &d->tmem->cell[d->column + (uint32_t)n][d->lane];
        for (int m = 0; m < PANEL_ROWS; m++) {
            float x = c[n * PANEL_ROWS + m];
            uint32_t bits = half ? float_to_half(x) : float_bits(canonical(x));
            if (d->lanes >> m & 1) cell[m] = bits;
        }
    }
}

static void multiply_integers(const Product *p, const Panel *d, const int32_t *a,
                              const int32_t *b) {
    int32_t c[PANEL_ROWS * PANEL_COLUMNS];
    for (int n = 0; n < PANEL_COLUMNS; n++) {
        const uint32_t *cell = &d->tmem->cell[d->column + (uint32_t)n][d->lane];
        for (int m = 0; m < PANEL_ROWS; m++)
            c[n * PANEL_ROWS + m] = p->op->mma.accumulates ? (int32_t)cell[m] : 0;
    }
    tensor_multiply_integers(c, a, b, p->shape.n, p->shape.k, p->shape.saturate);
    for (int n = 0; n < PANEL_COLUMNS; n++) {
        uint32_t *cell = &d->tmem->cell[d->column + (uint32_t)n][d->lane];
        for (int m = 0; m < PANEL_ROWS; m++)
            if (d->lanes >> m & 1) cell[m] = (uint32_t)c[n * PANEL_ROWS + m];
    }
}

static void multiply_panel(const Product *p, const Panel *d, const uint32_t *a, const uint32_t *b) {
    for (uint32_t c = d->column; c < d->column + PANEL_COLUMNS; c++) {
        if (p->op->mma.accumulates && checks_init(p) && !is_written(d->tmem, c, d->lane, d->lanes))
            report_cells(p, "D", c, d->lane);
        d->tmem->written[c][d->lane / 32] |= d->lanes << d->lane % 32;
    }
    if (p->shape.d == RESULT_S32)
        multiply_integers(p, d, (const int32_t *)a, (const int32_t *)b);
    else
        multiply_floats(p, d, (const float *)(const void *)a, (const float *)(const void *)b);
}

static void report_metadata(const Product *p, uint32_t bits, int lane) {
    static const char digits[] = "01";
    Warp *w = p->op->warp;
    if (finding_again(w, p->op->insn, FINDING_TENSOR)) return;
    finding(w, p->op->insn, p->op->lane, FINDING_TENSOR,
            p->form->kind == KIND_TF32
                ? "Of two elements of tf32 the first is 0b0100 and the second 0b1110."
                : "The place of a chunk's first stored element stands in bits 0-1, that of the "
                  "second in bits 2-3: 0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110.",
            "takes 0b%c%c%c%c as a chunk's metadata, which means nothing, in lane %d of tensor "
            "memory",
            digits[bits >> 3 & 1], digits[bits >> 2 & 1], digits[bits >> 1 & 1], digits[bits & 1],
            lane);
}

// Brings a CTA's sparse A into the shape of others. False if its metadata mean nothing.
static bool expand(const Product *p, const Cta *cta, const Accumulator *d, const uint32_t *stored,
                   uint32_t *a, Places16 *places) {
    const MmaShape *s = &p->shape;
    uint32_t column = metadata_first(s, tmem_column(p->op->mma.metadata)), bits;
    for (int block = 0; block < d->rows / 16; block++) {
        int lane = d->first + block * d->row_lanes, at;
        check_rows(p, cta, d, "metadata", column, metadata_columns(p->form), lane);
        if (!metadata_places(p->form, s, cta->sm->tmem, column, lane, &places[block], &bits, &at)) {
            report_metadata(p, bits, at);
            return false;
        }
        sparse_expand(s, &places[block], stored + block * 16 * s->a_k, a + block * 16 * s->k);
    }
    return true;
}

// One CTA's rows.
static void multiply_cta(const Product *p, int which, const Numbers *b) {
    static _Thread_local Numbers a __attribute__((aligned(64)));
    static _Thread_local Numbers stored __attribute__((aligned(64)));
    const MmaForm *f = p->form;
    const MmaShape *s = &p->shape;
    Cta *cta = p->ctas[which];
    uint32_t address = p->op->mma.d;
    Accumulator d = mma_accumulator(f, s, address);
    Places16 places[ROWS_MAX / 16];
    uint32_t *words = (uint32_t *)a.i, *loaded = f->sparse ? (uint32_t *)stored.i : words;
    if (f->a_tensor)
        load_tensor(p, cta, &d, loaded);
    else
        load_shared(p, cta, true, 0, loaded, 16, 16 * s->a_k);
    if (f->sparse && !expand(p, cta, &d, loaded, words, places)) return;
    if (s->negate_a) negate(a.f, d.rows * s->k);
    if (f->block) scale_a(p, cta, d.rows, a.f);
    for (int block = 0; block < d.rows / 16; block++)
        for (int n = 0; n < s->n; n += PANEL_COLUMNS) {
            int lane = d.first + block * d.row_lanes + n / d.fold * d.fold_lanes;
            uint32_t off = 0;
            if (f->disabled_count)
                off = p->op->mma.disabled[(TMEM_LANES * which + lane) / 32] >> lane % 32;
            Panel panel = {.tmem = tmem_of(cta->sm),
                           .column = tmem_column(address) + (uint32_t)(n % d.fold),
                           .lane = lane,
                           .lanes = ~off & 0xffff,
                           .places = &places[block]};
            multiply_panel(p, &panel, words + block * 16 * s->k, (const uint32_t *)b->i + n);
        }
    if (!f->shifts_a) return;
    for (int lane = 0; lane < TMEM_LANES; lane += SHIFT_LANES)
        tmem_shift(cta->sm->tmem, tmem_column((uint32_t)p->op->mma.a), lane);
}

static bool all_finite(const float *x, int count) {
    uint32_t top = 0;
    for (int k = 0; k < count; k++) {
        uint32_t exponent = float_bits(x[k]) & 0x7f800000;
        top = exponent > top ? exponent : top;
    }
    return top < 0x7f800000;
}

// … and its scaled or plain B.
static void multiply_with(Product *p, int which, const Numbers *b) {
    bool hardware = p->op->warp->sm->gpu->settings->numerics == NUMERICS_HARDWARE;
    p->by_row = p->form->sparse && p->shape.d != RESULT_S32 &&
                (hardware || !all_finite(b->f, p->shape.n * p->shape.k));
    multiply_cta(p, which, b);
}

void tcgen05_execute_mma(const TensorOp *op) {
    static _Thread_local Numbers b __attribute__((aligned(64)));
    Product p = {.op = op, .form = op->insn->extra};
    char why[200];
    mma_shape(p.form, op->mma.idesc, &p.shape, why, sizeof why); // checked at the issue
    const MmaShape *s = &p.shape;
    int group = p.form->group;
    // The even rank of a pair has the first rows and columns.
    tcgen05_op_ctas(op, group, p.ctas);
    for (int k = 0; k < group; k++)
        load_shared(&p, p.ctas[k], false, k * s->n / group, (uint32_t *)b.i, s->n, 16);
    if (s->negate_b) negate(b.f, s->n * s->k);
    for (int k = 0; k < group; k++) {
        if (!p.form->block) {
            multiply_with(&p, k, &b);
            continue;
        }
        static _Thread_local Numbers scaled __attribute__((aligned(64)));
        memcpy(&scaled, &b, (size_t)(s->n * s->k) * sizeof *scaled.f);
        scale_b(&p, p.ctas[k], scaled.f);
        multiply_with(&p, k, &scaled);
    }
}
