// Standard attention, written once for two arithmetics. The file that includes this defines
//
//     REAL         double or float
//     LANES        REALs in a 64-byte vector
//     STORED(x,p)  the value that is left of x when standard attention stores it in memory
//     EXP LOG TANH of REAL
//
// and gets attend(). Its `variant` is 0 for the textbook's order of operations; other numbers take
// as good a one: a row's sum starts at another key, and the backward pass has its P from lse.
//
// Queries are taken eight at a time: their scores with all keys are computed and kept, as the
// textbook has it, so there is no online softmax here to share a mistake with.
//
// Masked keys are left out, not multiplied by zero: a NaN behind the mask changes nothing.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/mods.h"
#include "harness/parallel.h"
#include "harness/random.h"
#include "harness/reference.h"

enum {
    GROUP = 8,          // rows that share the loads of a panel
    ROWS_PER_ITEM = 64, // rows that a thread takes at a time
    MOST_COLUMNS = 256 + LANES,
};

typedef REAL Vector __attribute__((vector_size(64), aligned(sizeof(REAL))));

// One head's keys (or values, or queries), as REAL, in the two orders that the products read.
typedef struct {
    int64_t rows;
    REAL *across; // [rows / LANES][columns][LANES]: LANES neighbouring rows side by side
    REAL *plain;  // [rows][stride], zeros behind the columns
    int64_t capacity;
} Panel;

// What one thread works with.
typedef struct {
    Panel left, right;
    int64_t held_head;         // whose panels these are
    REAL *weights, *gradients; // GROUP rows of the scores' length
    int64_t weights_length;
} Scratch;

typedef struct {
    const Problem *p;
    const Inputs *in;
    const Selection *rows, *keys;
    Results *results;
    // Of every row (or of the selected ones, for forward alone): maximum, denominator, rowsum(dO∘O).
    REAL *row_max, *row_sum, *delta;
    bool keep_results; // store o, lse, dq of the rows
    bool backward;
    uint64_t variant;
    Scratch *scratch; // one a thread
} Attend;

static int stride_of(const Problem *p) {
    return (p->head_dim + LANES - 1) / LANES * LANES;
}

// Makes room in a panel.
static void panel_reserve(Panel *panel, const Problem *p, int64_t rows) {
    panel->rows = rows;
    if (panel->capacity >= rows + 1) return;
    free(panel->across);
    free(panel->plain);
    int64_t blocks = (rows + LANES - 1) / LANES + 1;
    int64_t bytes = blocks * LANES * (int64_t)sizeof(REAL);
    panel->across = allocate(bytes * p->head_dim);
    panel->plain = allocate(bytes * stride_of(p));
    panel->capacity = rows + 1;
}

// Fills a panel from head `head` of batch `batch` of a (batch, rows, heads, head_dim) tensor.
static void panel_fill(Panel *panel, const Problem *p, const float *tensor, int64_t batch,
                       int64_t rows, int heads, int head) {
    int columns = p->head_dim, stride = stride_of(p);
    panel_reserve(panel, p, rows);
    int64_t padded = (rows + LANES - 1) / LANES * LANES;
    for (int64_t j = 0; j < padded; j++) {
        const float *from = tensor + ((batch * rows + j) * heads + head) * columns;
        REAL *across = panel->across + j / LANES * LANES * columns + j % LANES;
        REAL *plain = panel->plain + j * stride;
        for (int c = 0; c < stride; c++) plain[c] = j < rows && c < columns ? (REAL)from[c] : 0;
        for (int c = 0; c < columns; c++) across[c * LANES] = plain[c];
    }
}

// out[r][j] = left[r] · panel row j, for j in from … to-1 (and the rest of their vectors).
static void products(const REAL *left, const Panel *panel, int columns, int64_t from, int64_t to,
                     REAL *out, int64_t length) {
    for (int64_t block = from / LANES; block * LANES < to; block++) {
        const REAL *right = panel->across + block * LANES * columns;
        Vector sum[GROUP] = {0};
        for (int c = 0; c < columns; c++) {
            Vector values = *(const Vector *)(right + c * LANES);
#pragma GCC unroll 8
            for (int r = 0; r < GROUP; r++) sum[r] += left[r * columns + c] * values;
        }
#pragma GCC unroll 8
        for (int r = 0; r < GROUP; r++) *(Vector *)(out + r * length + block * LANES) = sum[r];
    }
}

// sum[r] += Σ weights[r][j] · panel row j over j in from[r] … to[r]-1, in rising order of j. `sum`
// is [GROUP][MOST_COLUMNS]. The stretch that all rows share runs for all of them at once.
static void weighted_sums(const REAL *weights, int64_t length, const Panel *panel, int stride,
                          const int64_t *from, const int64_t *to, REAL (*sum)[MOST_COLUMNS]) {
    int64_t first = from[0], end = to[0];
    for (int r = 1; r < GROUP; r++) {
        if (from[r] > first) first = from[r];
        if (to[r] < end) end = to[r];
    }
    if (end < first) first = end = to[0];
    for (int c = 0; c < stride; c += LANES) {
        Vector total[GROUP];
        for (int r = 0; r < GROUP; r++) {
            total[r] = *(Vector *)(sum[r] + c);
            for (int64_t j = from[r]; j < (first < to[r] ? first : to[r]); j++) {
                total[r] += weights[r * length + j] * *(Vector *)(panel->plain + j * stride + c);
            }
        }
        for (int64_t j = first; j < end; j++) {
            Vector values = *(const Vector *)(panel->plain + j * stride + c);
#pragma GCC unroll 8
            for (int r = 0; r < GROUP; r++) total[r] += weights[r * length + j] * values;
        }
        for (int r = 0; r < GROUP; r++) {
            int64_t rest = end > first ? end : first;
            if (rest < from[r]) rest = from[r];
            for (int64_t j = rest; j < to[r]; j++) {
                total[r] += weights[r * length + j] * *(Vector *)(panel->plain + j * stride + c);
            }
            *(Vector *)(sum[r] + c) = total[r];
        }
    }
}

// The stored score of a dot product: scaled, capped, with ALiBi's bias (slope 0: none), rounded.
static REAL score(const Problem *p, REAL dot, REAL slope, int64_t row, int64_t key) {
    REAL s = (REAL)p->scale * dot, cap = (REAL)score_cap(p);
    if (cap > 0) s = cap * TANH(s / cap);
    if (slope > 0) s -= slope * (REAL)llabs(row + p->seqlen_k - p->seqlen_q - key);
    return STORED(s, p);
}

// The sum of a row's exponentials and its sink's, from one of its keys on to the last, and then from
// the first.
static REAL row_total(const Attend *a, const REAL *weights, int64_t row, int64_t from, int64_t to,
                      REAL sink) {
    REAL sum = sink;
    int64_t start = from;
    if (a->variant > 0 && to > from) {
        start += (int64_t)(random_bits(a->variant, 0, (uint64_t)row) % (uint64_t)(to - from));
    }
    for (int64_t j = start; j < to; j++) sum += weights[j];
    for (int64_t j = from; j < start; j++) sum += weights[j];
    return sum;
}

// P once more, for the backward pass, from a stored score and what the forward pass kept of a row.
static REAL weight_again(const Attend *a, REAL stored, REAL row_max, REAL row_sum) {
    if (a->variant == 0) return STORED(EXP(stored - row_max) / row_sum, a->p);
    return STORED(EXP(stored - (row_max + LOG(row_sum))), a->p);
}

// The derivative of the cap at a score.
static REAL cap_slope(const Problem *p, REAL s) {
    if (!(score_cap(p) > 0)) return 1;
    REAL t = s / (REAL)score_cap(p);
    return 1 - t * t;
}

static Scratch *scratch_for(Attend *a, int worker, int64_t length) {
    Scratch *s = &a->scratch[worker];
    int64_t padded = (length + LANES - 1) / LANES * LANES + LANES;
    if (s->weights_length < padded) {
        free(s->weights);
        free(s->gradients);
        s->weights = allocate(GROUP * padded * (int64_t)sizeof(REAL));
        s->gradients = allocate(GROUP * padded * (int64_t)sizeof(REAL));
        s->weights_length = padded;
    }
    return s;
}

// Reads GROUP rows of a query-shaped tensor; rows < 0 are zeros.
static void load_rows(const Problem *p, const float *tensor, int64_t seqlen, int64_t batch,
                      int heads, int head, const int64_t *row, REAL *to) {
    for (int r = 0; r < GROUP; r++) {
        for (int c = 0; c < p->head_dim; c++) {
            const float *from = tensor + ((batch * seqlen + row[r]) * heads + head) * p->head_dim;
            to[r * p->head_dim + c] = row[r] < 0 ? 0 : (REAL)from[c];
        }
    }
}

// The result of a row that its sequence doesn't have.
static void blank_row(double *row, int columns) {
    for (int c = 0; c < columns; c++) row[c] = NAN;
}

// Numbered as the formulas: (1) S = QKᵀ, (2) P = softmax(S), (3) O = PV, and for the backward pass
// (4) D = rowsum(dO∘O), (5) dP = dO Vᵀ, (6) dS = P∘(dP − D), (7) dQ = dS K.
static void attend_group(Attend *a, Scratch *s, int64_t head_of_all, int64_t first_row,
                         int64_t row_count) {
    const Problem *p = a->p;
    int64_t batch = head_of_all / p->heads;
    int head = (int)(head_of_all % p->heads), columns = p->head_dim, stride = stride_of(p);
    int64_t length = s->weights_length, row[GROUP], from[GROUP], to[GROUP], slot[GROUP];
    int64_t first = p->seqlen_k, end = 0;
    for (int r = 0; r < GROUP; r++) {
        row[r] = r < row_count ? selection_row(a->rows, head_of_all, first_row + r) : -1;
        slot[r] = head_of_all * a->rows->count + first_row + r;
        from[r] = to[r] = 0;
        if (row[r] >= 0) visible_keys(p, batch, row[r], &from[r], &to[r]);
        if (to[r] > from[r] && from[r] < first) first = from[r];
        if (to[r] > end) end = to[r];
    }
    REAL left[GROUP * MOST_COLUMNS], sum[GROUP][MOST_COLUMNS], dsum[GROUP][MOST_COLUMNS];
    REAL maximum[GROUP], denominator[GROUP], slope = (REAL)alibi_slope(p, head);

    load_rows(p, a->in->q, p->seqlen_q, batch, p->heads, head, row, left);
    if (first < end) products(left, &s->left, columns, first, end, s->weights, length); // (1)
    for (int r = 0; r < row_count; r++) {                                               // (2)
        REAL *weights = s->weights + r * length;
        REAL sink = a->in->sink != NULL ? (REAL)a->in->sink[head] : -INFINITY;
        maximum[r] = sink;
        for (int64_t j = from[r]; j < to[r]; j++) {
            weights[j] = score(p, weights[j], slope, row[r], j);
            if (weights[j] > maximum[r]) maximum[r] = weights[j];
        }
        if (a->backward && a->keep_results) { // (6) needs the scores beside P
            for (int64_t j = from[r]; j < to[r]; j++) s->gradients[r * length + j] = weights[j];
        }
        for (int64_t j = from[r]; j < to[r]; j++) weights[j] = EXP(weights[j] - maximum[r]);
        REAL sink_weight = sink == -INFINITY ? 0 : EXP(sink - maximum[r]);
        denominator[r] = row_total(a, weights, slot[r], from[r], to[r], sink_weight);
        for (int64_t j = from[r]; j < to[r]; j++) {
            weights[j] = STORED(weights[j] / denominator[r], p);
        }
    }
    memset(sum, 0, sizeof sum);
    weighted_sums(s->weights, length, &s->right, stride, from, to, sum); // (3)
    for (int r = 0; r < row_count; r++) {
        for (int c = 0; c < columns; c++) sum[r][c] = STORED(sum[r][c], p);
        if (a->keep_results && row[r] >= query_length(p, batch)) {
            blank_row(a->results->o + slot[r] * columns, columns);
            blank_row(a->results->lse + slot[r], 1);
        } else if (a->keep_results) {
            for (int c = 0; c < columns; c++) a->results->o[slot[r] * columns + c] = sum[r][c];
            bool sees = to[r] > from[r] || a->in->sink != NULL;
            a->results->lse[slot[r]] = sees ? maximum[r] + LOG(denominator[r]) : -INFINITY;
        }
    }
    if (!a->backward) return;

    REAL delta[GROUP] = {0}; // (4)
    load_rows(p, a->in->dout, p->seqlen_q, batch, p->heads, head, row, left);
    for (int r = 0; r < row_count; r++) {
        for (int c = 0; c < columns; c++) delta[r] += left[r * columns + c] * sum[r][c];
        // ∂lse_i/∂S_ij = P_ij: the gradient of lse, where there is one, enters (6) beside D.
        if (a->in->dlse != NULL) delta[r] -= a->in->dlse[head_of_all * p->seqlen_q + row[r]];
    }
    if (a->delta != NULL) {
        for (int r = 0; r < row_count; r++) {
            a->row_max[slot[r]] = maximum[r];
            a->row_sum[slot[r]] = denominator[r];
            a->delta[slot[r]] = delta[r];
        }
    }
    if (!a->keep_results) return;

    // (5), into its own rows; the scores wait in `gradients`.
    REAL *dp = allocate(GROUP * length * (int64_t)sizeof(REAL));
    if (first < end) products(left, &s->right, columns, first, end, dp, length);
    for (int r = 0; r < row_count; r++) { // (6)
        for (int64_t j = from[r]; j < to[r]; j++) {
            int64_t at = r * length + j;
            REAL stored = s->gradients[at], weight = s->weights[at];
            if (a->variant > 0) weight = weight_again(a, stored, maximum[r], denominator[r]);
            REAL ds = weight * (STORED(dp[at], p) - delta[r]) * cap_slope(p, stored);
            s->gradients[at] = STORED(ds, p);
        }
    }
    free(dp);
    memset(dsum, 0, sizeof dsum);
    weighted_sums(s->gradients, length, &s->left, stride, from, to, dsum); // (7)
    for (int r = 0; r < row_count; r++) {
        for (int c = 0; c < columns; c++) {
            a->results->dq[slot[r] * columns + c] = STORED((REAL)p->scale * dsum[r][c], p);
        }
        if (row[r] >= query_length(p, batch))
            blank_row(a->results->dq + slot[r] * columns, columns);
    }
}

// Some rows of one head. A thread keeps the panels of the K/V head that it met last.
static void attend_rows(void *context, int worker, int64_t item) {
    Attend *a = context;
    const Problem *p = a->p;
    int64_t items = (a->rows->count + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM;
    int64_t head_of_all = item / items, start = item % items * ROWS_PER_ITEM;
    int64_t batch = head_of_all / p->heads;
    int kv_head = (int)(head_of_all % p->heads) / (p->heads / p->kv_heads);
    Scratch *s = scratch_for(a, worker, p->seqlen_k);
    if (s->held_head != batch * p->kv_heads + kv_head) {
        panel_fill(&s->left, p, a->in->k, batch, p->seqlen_k, p->kv_heads, kv_head);
        panel_fill(&s->right, p, a->in->v, batch, p->seqlen_k, p->kv_heads, kv_head);
        s->held_head = batch * p->kv_heads + kv_head;
    }
    int64_t end = start + ROWS_PER_ITEM < a->rows->count ? start + ROWS_PER_ITEM : a->rows->count;
    for (int64_t r = start; r < end; r += GROUP) {
        attend_group(a, s, head_of_all, r, end - r < GROUP ? end - r : GROUP);
    }
}

// Eight keys of one K/V head, against the queries of one head: adds to dV = PᵀdO and dK = dSᵀQ,
// recomputing P from the rows' maxima and denominators. s->left holds Q, s->right dO.
static void attend_keys(Attend *a, Scratch *s, int64_t head_of_all, const int64_t *key,
                        int key_count, REAL (*dk)[MOST_COLUMNS], REAL (*dv)[MOST_COLUMNS]) {
    const Problem *p = a->p;
    int columns = p->head_dim, stride = stride_of(p);
    int64_t batch = head_of_all / p->heads, length = s->weights_length;
    int head = (int)(head_of_all % p->heads), kv_head = head / (p->heads / p->kv_heads);
    REAL slope = (REAL)alibi_slope(p, head);
    int64_t from[GROUP], to[GROUP], first = p->seqlen_q, end = 0;
    for (int r = 0; r < GROUP; r++) {
        from[r] = to[r] = 0;
        if (r < key_count) visible_rows(p, batch, key[r], &from[r], &to[r]);
        if (to[r] > from[r] && from[r] < first) first = from[r];
        if (to[r] > end) end = to[r];
    }
    if (first >= end) return;
    REAL left[GROUP * MOST_COLUMNS];
    load_rows(p, a->in->k, p->seqlen_k, batch, p->kv_heads, kv_head, key, left);
    products(left, &s->left, columns, first, end, s->weights, length); // Sᵀ
    load_rows(p, a->in->v, p->seqlen_k, batch, p->kv_heads, kv_head, key, left);
    products(left, &s->right, columns, first, end, s->gradients, length); // dPᵀ
    for (int r = 0; r < key_count; r++) {
        for (int64_t i = from[r]; i < to[r]; i++) {
            int64_t at = r * length + i, slot = head_of_all * p->seqlen_q + i;
            REAL stored = score(p, s->weights[at], slope, i, key[r]);
            REAL weight = weight_again(a, stored, a->row_max[slot], a->row_sum[slot]);
            REAL dp = STORED(s->gradients[at], p);
            s->weights[at] = weight;
            s->gradients[at] = STORED(weight * (dp - a->delta[slot]) * cap_slope(p, stored), p);
        }
    }
    weighted_sums(s->weights, length, &s->right, stride, from, to, dv);
    weighted_sums(s->gradients, length, &s->left, stride, from, to, dk);
}

// Some keys of one K/V head: sums over the query heads that share it.
static void attend_columns(void *context, int worker, int64_t item) {
    Attend *a = context;
    const Problem *p = a->p;
    enum { KEYS_PER_ITEM = 128 };
    int64_t items = (a->keys->count + KEYS_PER_ITEM - 1) / KEYS_PER_ITEM;
    int64_t kv_of_all = item / items, start = item % items * KEYS_PER_ITEM;
    int64_t batch = kv_of_all / p->kv_heads;
    int group = p->heads / p->kv_heads, kv_head = (int)(kv_of_all % p->kv_heads);
    int64_t end = start + KEYS_PER_ITEM < a->keys->count ? start + KEYS_PER_ITEM : a->keys->count;
    Scratch *s = scratch_for(a, worker, p->seqlen_q);

    REAL(*dk)[MOST_COLUMNS] = allocate(KEYS_PER_ITEM * (int64_t)sizeof *dk);
    REAL(*dv)[MOST_COLUMNS] = allocate(KEYS_PER_ITEM * (int64_t)sizeof *dv);
    memset(dk, 0, KEYS_PER_ITEM * sizeof *dk);
    memset(dv, 0, KEYS_PER_ITEM * sizeof *dv);
    for (int g = 0; g < group; g++) {
        int head = kv_head * group + g;
        panel_fill(&s->left, p, a->in->q, batch, p->seqlen_q, p->heads, head);
        panel_fill(&s->right, p, a->in->dout, batch, p->seqlen_q, p->heads, head);
        for (int64_t k = start; k < end; k += GROUP) {
            int64_t key[GROUP];
            int count = end - k < GROUP ? (int)(end - k) : GROUP;
            for (int r = 0; r < GROUP; r++) {
                key[r] = r < count ? selection_row(a->keys, kv_of_all, k + r) : -1;
            }
            attend_keys(a, s, batch * p->heads + head, key, count, dk + (k - start),
                        dv + (k - start));
        }
    }
    for (int64_t k = start; k < end; k++) {
        int64_t slot = (kv_of_all * a->keys->count + k) * p->head_dim;
        for (int c = 0; c < p->head_dim; c++) {
            a->results->dk[slot + c] = STORED((REAL)p->scale * dk[k - start][c], p);
            a->results->dv[slot + c] = STORED(dv[k - start][c], p);
        }
        if (selection_row(a->keys, kv_of_all, k) < key_length(p, batch)) continue;
        blank_row(a->results->dk + slot, p->head_dim);
        blank_row(a->results->dv + slot, p->head_dim);
    }
    free(dk);
    free(dv);
}

// Scratch space of all threads, holding nobody's panels yet.
static Scratch *scratch_make(void) {
    Scratch *scratch = allocate(parallel_threads() * (int64_t)sizeof *scratch);
    for (int t = 0; t < parallel_threads(); t++) scratch[t] = (Scratch){.held_head = -1};
    return scratch;
}

static void scratch_free(Scratch *scratch) {
    for (int t = 0; t < parallel_threads(); t++) {
        Scratch *s = &scratch[t];
        free(s->left.across);
        free(s->left.plain);
        free(s->right.across);
        free(s->right.plain);
        free(s->weights);
        free(s->gradients);
    }
    free(scratch);
}

static void attend_all_rows(Attend *a) {
    int64_t heads = (int64_t)a->p->batch * a->p->heads;
    int64_t items = (a->rows->count + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM;
    a->scratch = scratch_make();
    parallel_for(heads * items, attend_rows, a);
    scratch_free(a->scratch);
}

// The whole computation: the selected rows forward (and dQ), then the selected keys' gradients,
// which need the statistics of every row.
static void attend(const Problem *p, const Inputs *in, const Selection *rows, const Selection *keys,
                   bool backward, uint64_t variant, Results *results) {
    int64_t heads = (int64_t)p->batch * p->heads, kv_heads = (int64_t)p->batch * p->kv_heads;
    int64_t row_values = heads * rows->count, key_values = kv_heads * keys->count * p->head_dim;
    const int64_t size = sizeof(double);
    *results = (Results){0};
    results->o = allocate(row_values * p->head_dim * size);
    results->lse = allocate(row_values * size);
    Attend a = {.p = p, .in = in, .rows = rows, .keys = keys, .results = results};
    a.backward = backward;
    a.variant = variant;
    a.keep_results = true;
    if (!backward) {
        attend_all_rows(&a);
        return;
    }
    results->dq = allocate(row_values * p->head_dim * size);
    results->dk = allocate(key_values * size);
    results->dv = allocate(key_values * size);
    int64_t statistics = heads * p->seqlen_q * (int64_t)sizeof(REAL);
    a.row_max = allocate(statistics);
    a.row_sum = allocate(statistics);
    a.delta = allocate(statistics);
    if (rows->chosen != NULL) {
        Selection all = {p->seqlen_q, p->seqlen_q, NULL};
        Attend statistics_of_all = a;
        statistics_of_all.rows = &all;
        statistics_of_all.keep_results = false;
        attend_all_rows(&statistics_of_all);
        Attend selected = a;
        selected.delta = NULL;
        attend_all_rows(&selected);
    } else {
        attend_all_rows(&a);
    }
    a.scratch = scratch_make();
    parallel_for(kv_heads * ((keys->count + 127) / 128), attend_columns, &a);
    scratch_free(a.scratch);
    free(a.row_max);
    free(a.row_sum);
    free(a.delta);
}
