// Attention as a step in fp8 computes it, for its limits: the model of the 16-bit dtypes (model.c)
// rounds S and P where standard attention stores them; here is rounded
//   - Q, K and V: e4m3 number × scale, the scale a block's (or tensor's) largest magnitude / 448, of
//     the finite numbers. Inf and NaN become NaN. With a sign function Q and K are transformed first;
//   - P: 2^8 e^(score - maximum), relative to the maximum of the blocks so far, which are taken from
//     the last down. The denominator sums what was rounded;
//   - the sums of both products, as Hopper's tensor cores do: 32 products at a time are cut to 13
//     bits below the largest of them and of the sum so far, and so is the new sum (multiply_step).
//
// Masked keys are left out, not multiplied by zero.
#include "harness/model_fp8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/convert.h"
#include "harness/parallel.h"

// Rounding must not be kept from vectors for the sake of floating-point exceptions: nobody asks.
#pragma GCC optimize("no-trapping-math")

enum {
    STEP = 32,          // products that the tensor cores sum at once
    ROWS_PER_ITEM = 64, // rows that a thread takes at a time
    MOST_COLUMNS = 256, // head_dim
    MOST_KEYS = 256,    // of a block
    FRACTION_BITS = 13, // of the tensor cores' sums
    CUT_BITS = 0x3ff,   // what they leave of fp32's fraction as zeros: 23 - 13 bits
};
static const float largest_e4m3 = 448, smallest_scale = 0x1p-60f, weight_factor = 256;

// A tensor (batch, seqlen, heads, columns) in e4m3.
typedef struct {
    int64_t seqlen, blocks, block;
    int heads, columns; // columns: the built head_dim
    uint8_t *numbers;
    float *scales; // [batch][heads][blocks]
} Fp8Tensor;

// A row's columns, with zeros behind head_dim, as x or as x D H / √columns.
static void take_row(const Problem *p, const Fp8 *fp8, const float *from, bool transform,
                     float *x) {
    int columns = p->built_head_dim;
    for (int c = 0; c < columns; c++) x[c] = c < p->head_dim ? from[c] : 0;
    if (!transform || fp8->sign == NULL) return;
    for (int c = 0; c < columns; c++) x[c] *= (float)fp8->sign(columns, c);
    for (int stride = 1; stride < columns; stride *= 2) {
        for (int c = 0; c < columns; c++) {
            if (c & stride) continue;
            float u = x[c], v = x[c + stride];
            x[c] = u + v;
            x[c + stride] = u - v;
        }
    }
    float norm = 1 / sqrtf((float)columns);
    for (int c = 0; c < columns; c++) x[c] *= norm;
}

typedef struct {
    const Problem *p;
    const Fp8 *fp8;
    const float *from;
    bool transform;
    float given_scale; // 0: each block has its own
    Fp8Tensor *to;
    float *largest; // a block; NULL: the numbers are wanted
} Quantising;

// Visits one block: finds its largest magnitude, or writes its numbers and its scale.
static void quantise_block(void *context, int worker, int64_t index) {
    (void)worker;
    Quantising *q = context;
    Fp8Tensor *t = q->to;
    int64_t block = index % t->blocks, of_all = index / t->blocks;
    int64_t batch = of_all / t->heads, head = of_all % t->heads;
    int64_t first = block * t->block,
            end = first + t->block < t->seqlen ? first + t->block : t->seqlen;
    float x[MOST_COLUMNS], largest = 0;
    bool find = q->largest != NULL || q->given_scale == 0;
    for (int64_t r = first; r < end && find; r++) {
        int64_t row = (batch * t->seqlen + r) * t->heads + head;
        take_row(q->p, q->fp8, q->from + row * q->p->head_dim, q->transform, x);
        for (int c = 0; c < t->columns; c++) {
            if (isfinite(x[c]) && fabsf(x[c]) > largest) largest = fabsf(x[c]);
        }
    }
    if (q->largest != NULL) {
        q->largest[index] = largest;
        return;
    }
    float scale = largest == 0 ? 1 : fmaxf(largest / largest_e4m3, smallest_scale);
    if (q->given_scale > 0) scale = q->given_scale;
    t->scales[index] = scale;
    for (int64_t r = first; r < end; r++) {
        int64_t row = (batch * t->seqlen + r) * t->heads + head;
        take_row(q->p, q->fp8, q->from + row * q->p->head_dim, q->transform, x);
        for (int c = 0; c < t->columns; c++) {
            float value = isfinite(x[c]) ? x[c] / scale : NAN;
            t->numbers[row * t->columns + c] = e4m3_from_float(value);
        }
    }
}

static Fp8Tensor quantise_tensor(const Problem *p, const Fp8 *fp8, const float *from,
                                 int64_t seqlen, int heads, int block, bool transform) {
    Fp8Tensor t = {.seqlen = seqlen,
                   .block = block,
                   .blocks = (seqlen + block - 1) / block,
                   .heads = heads,
                   .columns = p->built_head_dim};
    int64_t count = (int64_t)p->batch * heads * t.blocks;
    t.numbers = allocate((int64_t)p->batch * seqlen * heads * t.columns);
    t.scales = allocate(count * (int64_t)sizeof *t.scales);
    Quantising q = {.p = p, .fp8 = fp8, .from = from, .transform = transform, .to = &t};
    if (fp8->per_tensor) {
        q.largest = allocate(count * (int64_t)sizeof *q.largest);
        parallel_for(count, quantise_block, &q);
        float largest = 0;
        for (int64_t i = 0; i < count; i++) largest = fmaxf(largest, q.largest[i]);
        free(q.largest);
        q.largest = NULL;
        q.given_scale = largest == 0 ? 1 : fmaxf(largest / largest_e4m3, smallest_scale);
    }
    parallel_for(count, quantise_block, &q);
    return t;
}

static void fp8_tensor_free(Fp8Tensor *t) {
    free(t->numbers);
    free(t->scales);
}

// e4m3 numbers as floats, and the powers of two of their exponents, which is what the tensor cores
// align by: a number is significand × power with a significand below 2. Subnormals and zeros have
// the least exponent.
typedef struct {
    float value[256], power[256];
} Decoding;

static void decoding_make(Decoding *d) {
    for (int bits = 0; bits < 256; bits++) {
        int exponent = bits >> 3 & 15;
        d->value[bits] = float_from_e4m3((uint8_t)bits);
        d->power[bits] = ldexpf(1, (exponent == 0 ? 1 : exponent) - 7);
    }
}

// One operand of a product: [sum][count] numbers, of whose rows `sum` are multiplied and added.
typedef struct {
    float value[MOST_COLUMNS > MOST_KEYS ? MOST_COLUMNS : MOST_KEYS][MOST_KEYS];
    float power[MOST_COLUMNS > MOST_KEYS ? MOST_COLUMNS : MOST_KEYS][MOST_KEYS];
} Operand;

// sum[c] += Σ left[k] · right[first + k][c] for the STEP k, as the tensor cores do: every product
// and the old sum are cut to FRACTION_BITS below the largest exponent of them all, then added
// exactly, and the new sum is cut to FRACTION_BITS. (All in whole multiples of that last bit, which
// are below 2^21: fp32 adds them exactly.) A sum that is infinite stays so, or becomes NaN.
static void multiply_step(float *restrict sum, int count, const float *left,
                          const float *left_power, const Operand *right, int first) {
    union {
        float value[MOST_KEYS];
        uint32_t bits[MOST_KEYS];
    } total, largest;
    float units[MOST_KEYS], infinite[MOST_KEYS];
    for (int c = 0; c < count; c++) {
        infinite[c] = fabsf(sum[c]) == INFINITY ? sum[c] : 0;
        sum[c] = infinite[c] != 0 ? 0 : sum[c];
    }
    for (int c = 0; c < count; c++) largest.value[c] = sum[c];
    for (int c = 0; c < count; c++) largest.bits[c] &= 0x7f800000;
    for (int k = 0; k < STEP; k++) {
        const float *power = right->power[first + k];
        if (left[k] == 0) continue;
        for (int c = 0; c < count; c++) {
            float exponent = left_power[k] * power[c];
            largest.value[c] = exponent > largest.value[c] ? exponent : largest.value[c];
        }
    }
    for (int c = 0; c < count; c++) {
        largest.value[c] = largest.value[c] > 0x1p-60f ? largest.value[c] : 0x1p-60f;
        units[c] = (float)(1 << FRACTION_BITS) / largest.value[c];
        total.value[c] = truncf(sum[c] * units[c]);
    }
    for (int k = 0; k < STEP; k++) {
        const float *value = right->value[first + k];
        if (left[k] == 0) continue;
        for (int c = 0; c < count; c++) total.value[c] += truncf(left[k] * value[c] * units[c]);
    }
    for (int c = 0; c < count; c++) total.value[c] /= units[c];
    for (int c = 0; c < count; c++) total.bits[c] &= ~(uint32_t)CUT_BITS;
    for (int c = 0; c < count; c++) sum[c] = total.value[c] + infinite[c];
}

// One row of queries on its way over the blocks.
typedef struct {
    int64_t from, to; // the keys that it sees
    float q[MOST_COLUMNS], q_power[MOST_COLUMNS], q_scale;
    float row_max, row_sum, unit; // unit: what o counts, the v scale of the block before
    float o[MOST_COLUMNS];
} Row;

typedef struct {
    const Problem *p;
    const Fp8 *fp8;
    const float *sink; // a head; NULL: there are none
    const Selection *rows;
    Results *results;
    Fp8Tensor q, k, v;
    Decoding decoding;
    int64_t items; // a head
} Model;

static void take_operand(const Model *m, const Fp8Tensor *t, int64_t batch, int head, int64_t first,
                         int keys, bool across, Operand *operand) {
    for (int j = 0; j < keys; j++) {
        const uint8_t *row =
            t->numbers + ((batch * t->seqlen + first + j) * t->heads + head) * t->columns;
        for (int c = 0; c < t->columns; c++) {
            float *value = across ? &operand->value[c][j] : &operand->value[j][c];
            float *power = across ? &operand->power[c][j] : &operand->power[j][c];
            *value = m->decoding.value[row[c]];
            *power = m->decoding.power[row[c]];
        }
    }
    for (int j = keys; j < MOST_KEYS && !across; j++) { // a step of P V may reach past the last key
        memset(operand->value[j], 0, sizeof operand->value[j]);
        for (int c = 0; c < t->columns; c++) operand->power[j][c] = 0;
    }
}

static float power_of(const Model *m, float value) {
    return m->decoding.power[e4m3_from_float(value)];
}

// The softmax's and P V's part of a block: keys first … first + keys - 1, with scores[] of them all.
static void add_block(const Model *m, Row *r, int64_t first, int keys, float *scores,
                      const Operand *v, float v_scale) {
    float weights[MOST_KEYS] = {0}, powers[MOST_KEYS] = {0}, own[MOST_COLUMNS] = {0};
    int begin = (int)(r->from > first ? r->from - first : 0);
    int end = (int)(r->to < first + keys ? r->to - first : keys), columns = m->v.columns;
    float new_max = r->row_max, sum = 0;
    for (int j = begin; j < end; j++) {
        if (m->p->softcap > 0) scores[j] = m->p->softcap * tanhf(scores[j] / m->p->softcap);
        if (scores[j] > new_max) new_max = scores[j];
    }
    float base = new_max == -INFINITY ? 0 : new_max;
    for (int j = begin; j < end; j++) {
        float weight = weight_factor * expf(scores[j] - base);
        weights[j] = float_from_e4m3(e4m3_from_float(weight));
        sum += weights[j];
        powers[j] = power_of(m, weights[j]);
    }
    float rescale = expf(r->row_max - base);
    r->row_sum = r->row_sum * rescale + sum;
    r->row_max = new_max;
    for (int c = 0; c < columns; c++) r->o[c] *= rescale * (r->unit / v_scale);
    r->unit = v_scale;
    float *into = m->fp8->two_level ? own : r->o;
    for (int step = 0; step < keys; step += STEP) {
        multiply_step(into, columns, weights + step, powers + step, v, step);
    }
    if (m->fp8->two_level) {
        for (int c = 0; c < columns; c++) r->o[c] += own[c];
    }
}

static void row_begin(const Model *m, int64_t head_of_all, int64_t row, Row *r) {
    const Problem *p = m->p;
    int64_t batch = head_of_all / p->heads, head = head_of_all % p->heads;
    const uint8_t *q =
        m->q.numbers + ((batch * p->seqlen_q + row) * p->heads + head) * m->q.columns;
    memset(r, 0, sizeof *r);
    visible_keys(p, batch, row, &r->from, &r->to);
    for (int c = 0; c < m->q.columns; c++) {
        r->q[c] = m->decoding.value[q[c]];
        r->q_power[c] = m->decoding.power[q[c]];
    }
    r->q_scale = m->q.scales[head_of_all * m->q.blocks + row / m->q.block];
    r->row_max = m->sink != NULL ? m->sink[head] : -INFINITY; // a key of this score and no value
    r->row_sum = m->sink != NULL ? weight_factor : 0;
    r->unit = 1;
}

static void row_end(const Model *m, int64_t slot, const Row *r) {
    const Problem *p = m->p;
    float factor = r->row_sum == 0 ? 0 : r->unit / r->row_sum;
    for (int c = 0; c < p->head_dim; c++) {
        m->results->o[slot * p->head_dim + c] = round_to_dtype(r->o[c] * factor, p->dtype);
    }
    bool sees = r->to > r->from || m->sink != NULL;
    m->results->lse[slot] = sees ? r->row_max + logf(r->row_sum / weight_factor) : -INFINITY;
}

// Up to ROWS_PER_ITEM selected rows of one head, over all blocks of keys that any of them sees.
static void attend_rows(void *context, int worker, int64_t item) {
    (void)worker;
    const Model *m = context;
    const Problem *p = m->p;
    int64_t head_of_all = item / m->items, first_row = item % m->items * ROWS_PER_ITEM;
    int64_t left = m->rows->count - first_row, batch = head_of_all / p->heads;
    int count = (int)(left < ROWS_PER_ITEM ? left : ROWS_PER_ITEM);
    int kv_head = (int)(head_of_all % p->heads) / (p->heads / p->kv_heads);
    Row *row = allocate(ROWS_PER_ITEM * (int64_t)sizeof *row);
    Operand *k = allocate(sizeof *k), *v = allocate(sizeof *v);
    for (int r = 0; r < count; r++) {
        row_begin(m, head_of_all, selection_row(m->rows, head_of_all, first_row + r), &row[r]);
    }
    for (int64_t block = m->k.blocks - 1; block >= 0; block--) {
        int64_t first = block * m->k.block, of_all = batch * p->kv_heads + kv_head;
        int keys = (int)(first + m->k.block < p->seqlen_k ? m->k.block : p->seqlen_k - first);
        float k_scale = m->k.scales[of_all * m->k.blocks + block];
        float v_scale = m->v.scales[of_all * m->v.blocks + block];
        bool taken = false;
        for (int r = 0; r < count; r++) {
            if (row[r].to <= first || row[r].from >= first + keys) continue;
            if (!taken) take_operand(m, &m->k, batch, kv_head, first, keys, true, k);
            if (!taken) take_operand(m, &m->v, batch, kv_head, first, keys, false, v);
            taken = true;
            float scores[MOST_KEYS] = {0};
            for (int c = 0; c < m->k.columns; c += STEP) {
                multiply_step(scores, keys, row[r].q + c, row[r].q_power + c, k, c);
            }
            for (int j = 0; j < keys; j++) scores[j] *= row[r].q_scale * k_scale * p->scale;
            add_block(m, &row[r], first, keys, scores, v, v_scale);
        }
    }
    for (int r = 0; r < count; r++) {
        row_end(m, head_of_all * m->rows->count + first_row + r, &row[r]);
    }
    free(row);
    free(k);
    free(v);
}

void model_fp8(const Problem *p, const Inputs *in, const Selection *rows, const Fp8 *fp8,
               Results *results) {
    int64_t heads = (int64_t)p->batch * p->heads, values = heads * rows->count;
    int keys = fp8->key_block(p->built_head_dim);
    *results = (Results){0};
    results->o = allocate(values * p->head_dim * (int64_t)sizeof(double));
    results->lse = allocate(values * (int64_t)sizeof(double));
    Model m = {.p = p, .fp8 = fp8, .sink = in->sink, .rows = rows, .results = results};
    decoding_make(&m.decoding);
    m.q = quantise_tensor(p, fp8, in->q, p->seqlen_q, p->heads, fp8->query_block, true);
    m.k = quantise_tensor(p, fp8, in->k, p->seqlen_k, p->kv_heads, keys, true);
    m.v = quantise_tensor(p, fp8, in->v, p->seqlen_k, p->kv_heads, keys, false);
    m.items = (rows->count + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM;
    parallel_for(heads * m.items, attend_rows, &m);
    fp8_tensor_free(&m.q);
    fp8_tensor_free(&m.k);
    fp8_tensor_free(&m.v);
}

// A copy of `exact`, NaN or infinite where `model` is.
static double *spoiled(const double *exact, const double *model, int64_t count) {
    double *copy = allocate(count * (int64_t)sizeof *copy);
    for (int64_t i = 0; i < count; i++) copy[i] = isfinite(model[i]) ? exact[i] : model[i];
    return copy;
}

void reference_fp8(const Problem *p, const Inputs *in, const Reference *base, const Fp8 *fp8,
                   Reference *reference) {
    *reference = *base;
    reference->backward = false;
    model_fp8(p, in, &base->rows, fp8, &reference->model);
    int64_t outputs = results_count(p, base, TENSOR_O), rows = results_count(p, base, TENSOR_LSE);
    reference->exact = (Results){0};
    reference->exact.o = spoiled(base->exact.o, reference->model.o, outputs);
    reference->exact.lse = spoiled(base->exact.lse, reference->model.lse, rows);
    for (int t = 0; t < TENSOR_COUNT; t++) reference->scatter[t] = (Scatter){0};
}

void reference_fp8_free(Reference *reference) {
    results_free(&reference->exact);
    results_free(&reference->model);
}
