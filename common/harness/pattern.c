// A guess at what went wrong in a wrong output. Each hypothesis is a small test against the numbers
// (is it another head's result? a constant multiple? what one gets without these keys?), and only
// one that explains what it looks at to within the limit is said.
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check.h"
#include "harness/convert.h"
#include "harness/mods.h"

typedef struct {
    const Mismatch *m;
    const Selection *selection;
    const double *exact;
    Dtype dtype;
    int heads, columns;
    int64_t head_count; // over all batches
    // Per (head, selected row): is any of its elements wrong?
    unsigned char *wrong;
    int64_t wrong_rows, first_head, first_r;
    char *report;
    size_t size;
} Guess;

static void say(Guess *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(Guess *g, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    size_t used = strlen(g->report);
    vsnprintf(g->report + used, g->size - used, format, arguments);
    va_end(arguments);
}

static int64_t rows_of_head(const Guess *g, int64_t head) {
    return tensor_rows(g->m->p, g->m->tensor, head / g->heads);
}

// A sequence that is shorter than others of its batch doesn't have all of the selection's rows.
static bool row_exists(const Guess *g, int64_t head, int64_t r) {
    return selection_row(g->selection, head, r) < rows_of_head(g, head);
}

static const double *exact_row(const Guess *g, int64_t head, int64_t r) {
    return g->exact + (head * g->selection->count + r) * g->columns;
}

static double got(const Guess *g, int64_t head, int64_t r, int c) {
    int64_t row = selection_row(g->selection, head, r);
    int64_t at =
        tensor_index(g->m->p, g->m->tensor, head / g->heads, (int)(head % g->heads), row, c);
    return load_dtype(g->m->bytes, at, g->dtype);
}

// Does the row hold these values (each within the limit)?
static bool row_is(const Guess *g, int64_t head, int64_t r, const double *values) {
    for (int c = 0; c < g->columns; c++) {
        if (!(fabs(got(g, head, r, c) - values[c]) <= g->m->limit)) return false;
    }
    return true;
}

// A row that tells: not everything in it is near zero, so that "holds the values of" means something.
static bool row_tells(const Guess *g, const double *values) {
    int large = 0;
    for (int c = 0; c < g->columns; c++) large += fabs(values[c]) > 4 * g->m->limit;
    return large * 2 > g->columns;
}

static void mark_wrong_rows(Guess *g) {
    int64_t count = g->selection->count;
    for (int64_t head = 0; head < g->head_count; head++) {
        for (int64_t r = 0; r < count; r++) {
            const double *exact = exact_row(g, head, r);
            bool wrong = false;
            for (int c = 0; c < g->columns && row_exists(g, head, r) && !wrong; c++) {
                double value = got(g, head, r, c);
                bool same = isfinite(exact[c])
                                ? fabs(value - exact[c]) <= g->m->limit
                                : value == exact[c] || (isnan(value) && isnan(exact[c]));
                wrong = !same;
            }
            g->wrong[head * count + r] = wrong;
            if (!wrong) continue;
            if (g->wrong_rows++ > 0) continue;
            g->first_head = head;
            g->first_r = r;
        }
    }
}

// All wrong values the same: zeros, or a constant.
static bool guess_constant(Guess *g) {
    double value = got(g, g->first_head, g->first_r, 0);
    int64_t count = g->selection->count, elements = 0;
    for (int64_t i = 0; i < g->head_count * count; i++) {
        if (!g->wrong[i]) continue;
        for (int c = 0; c < g->columns; c++, elements++) {
            double other = got(g, i / count, i % count, c);
            if (!(other == value || (isnan(other) && isnan(value)))) return false;
        }
    }
    if (elements < 2 || isnan(value)) return false; // NaN: counted above
    say(g, "  all of the wrong rows hold %g\n", value);
    return true;
}

// A constant multiple of the right values.
static bool guess_factor(Guess *g) {
    int64_t count = g->selection->count, elements = 0;
    double product = 0, square = 0;
    for (int64_t i = 0; i < g->head_count * count; i++) {
        const double *exact = exact_row(g, i / count, i % count);
        for (int c = 0; g->wrong[i] && c < g->columns; c++) {
            if (!isfinite(exact[c])) continue;
            product += got(g, i / count, i % count, c) * exact[c];
            square += exact[c] * exact[c];
            elements++;
        }
    }
    double factor = product / square;
    if (elements < 4 || !isfinite(factor) || fabs(factor - 1) < 1e-3) return false;
    for (int64_t i = 0; i < g->head_count * count; i++) {
        const double *exact = exact_row(g, i / count, i % count);
        for (int c = 0; g->wrong[i] && c < g->columns; c++) {
            double allowed = 2 * g->m->limit + 1e-3 * fabs(exact[c]);
            if (isfinite(exact[c]) &&
                !(fabs(got(g, i / count, i % count, c) - factor * exact[c]) <= allowed)) {
                return false;
            }
        }
    }
    const char *hint = "";
    if (fabs(factor - M_LOG2E) < 2e-3) hint = ": log2(e), a logarithm in base 2";
    if (fabs(factor - M_LN2) < 2e-3) hint = ": ln 2, a logarithm scaled once too often";
    say(g, "  the wrong rows are %.4f times what they should be%s\n", factor, hint);
    return true;
}

// Another head's result, or another row's. One number a row, as lse has, fits some row by chance.
static bool guess_exchange(Guess *g) {
    if (g->columns < 2) return false;
    int64_t head = g->first_head, r = g->first_r;
    for (int64_t other = 0; other < g->head_count && g->selection->chosen == NULL; other++) {
        if (!row_exists(g, other, r)) continue;
        const double *values = exact_row(g, other, r);
        if (other == head || !row_tells(g, values) || !row_is(g, head, r, values)) continue;
        bool back = row_is(g, other, r, exact_row(g, head, r));
        say(g, "  batch %lld, head %lld holds the result of batch %lld, head %lld%s\n",
            (long long)(head / g->heads), (long long)(head % g->heads),
            (long long)(other / g->heads), (long long)(other % g->heads),
            back ? " and the other way round: heads swapped" : "");
        return true;
    }
    for (int64_t other = 0; other < g->selection->count; other++) {
        const double *values = exact_row(g, head, other);
        if (other == r || !row_tells(g, values) || !row_is(g, head, r, values)) continue;
        say(g, "  row %lld holds the result of row %lld: rows permuted\n",
            (long long)selection_row(g->selection, head, r),
            (long long)selection_row(g->selection, head, other));
        return true;
    }
    return false;
}

// What the first wrong row of o would be without some of its keys, or without the scores. The sums
// of tiles of 16 keys are kept, so that dropping a stretch is a subtraction.
typedef struct {
    int64_t from, to, tiles;
    int columns;
    double sink_weight; // of the row's sink; 0: there is none
    double *weight;     // [tiles]
    double *values;     // [tiles][columns]
    double *mean;       // [columns]: every key counted alike
} KeyTiles;
enum { KEYS_PER_TILE = 16 };

static void sum_tiles(const Guess *g, KeyTiles *t) {
    const Problem *p = g->m->p;
    const Inputs *in = g->m->in;
    int64_t batch = g->first_head / p->heads;
    int head = (int)(g->first_head % p->heads), kv = head / (p->heads / p->kv_heads);
    int64_t row = selection_row(g->selection, g->first_head, g->first_r);
    double lse = g->m->reference->exact.lse[g->first_head * g->selection->count + g->first_r];
    int d = p->head_dim;
    visible_keys(p, batch, row, &t->from, &t->to);
    t->sink_weight = in->sink != NULL ? exp(in->sink[head] - lse) : 0;
    t->columns = d;
    t->tiles = p->seqlen_k / KEYS_PER_TILE + 1;
    t->weight = allocate(t->tiles * 8);
    t->values = allocate(t->tiles * d * 8);
    t->mean = allocate(d * 8);
    memset(t->weight, 0, (size_t)t->tiles * 8);
    memset(t->values, 0, (size_t)(t->tiles * d * 8));
    memset(t->mean, 0, (size_t)d * 8);
    const float *q = in->q + ((batch * p->seqlen_q + row) * p->heads + head) * d;
    for (int64_t j = t->from; j < t->to; j++) {
        int64_t at = ((batch * p->seqlen_k + j) * p->kv_heads + kv) * d;
        double s = 0;
        for (int c = 0; c < d; c++) s += (double)q[c] * in->k[at + c];
        s *= p->scale;
        if (score_cap(p) > 0) s = score_cap(p) * tanh(s / score_cap(p));
        s -= alibi_slope(p, head) * (double)llabs(row + p->seqlen_k - p->seqlen_q - j);
        double weight = exp(s - lse);
        t->weight[j / KEYS_PER_TILE] += weight;
        for (int c = 0; c < d; c++) {
            t->values[j / KEYS_PER_TILE * d + c] += weight * in->v[at + c];
            t->mean[c] += in->v[at + c] / (double)(t->to - t->from);
        }
    }
}

// Is the row what one gets without the keys of tiles first … end-1?
static bool row_without(const Guess *g, const KeyTiles *t, int64_t first, int64_t end) {
    double weight = t->sink_weight, values[256] = {0};
    for (int64_t tile = 0; tile < t->tiles; tile++) {
        if (tile >= first && tile < end) continue;
        weight += t->weight[tile];
        for (int c = 0; c < t->columns; c++) values[c] += t->values[tile * t->columns + c];
    }
    if (!(weight > 0)) return false;
    for (int c = 0; c < t->columns; c++) values[c] /= weight;
    return row_is(g, g->first_head, g->first_r, values);
}

static bool say_without(Guess *g, const KeyTiles *t, int64_t first, int64_t end) {
    int64_t from = first * KEYS_PER_TILE, to = end * KEYS_PER_TILE;
    if (from < t->from) from = t->from;
    if (to > t->to) to = t->to;
    if (from >= to || !row_without(g, t, first, end)) return false;
    say(g, "  row %lld is what comes out when keys %lld-%lld (of %lld-%lld) are left out\n",
        (long long)selection_row(g->selection, g->first_head, g->first_r), (long long)from,
        (long long)to - 1, (long long)t->from, (long long)t->to - 1);
    return true;
}

static bool guess_keys(Guess *g) {
    if (g->m->tensor != TENSOR_O) return false;
    KeyTiles t;
    sum_tiles(g, &t);
    bool found = false;
    if (t.to - t.from > 1 && row_is(g, g->first_head, g->first_r, t.mean)) {
        say(g, "  every key counts alike there: the scores QKᵀ have no effect\n");
        found = true;
    }
    if (!found && t.sink_weight > 0) {
        double sink_weight = t.sink_weight;
        t.sink_weight = 0;
        found = row_without(g, &t, 0, 0);
        if (found) say(g, "  that is what comes out when the sink is not counted\n");
        t.sink_weight = sink_weight;
    }
    // One tile of 16 … 256 keys; everything from a tile on; everything before one.
    int64_t first = t.from / KEYS_PER_TILE, last = (t.to + KEYS_PER_TILE - 1) / KEYS_PER_TILE;
    for (int64_t span = 1; span <= 16 && !found; span *= 2) {
        for (int64_t tile = first / span * span; tile < last && !found; tile += span) {
            if (span * KEYS_PER_TILE > t.to - t.from) break;
            found = say_without(g, &t, tile, tile + span);
        }
    }
    int64_t step = (last - first) / 256 + 1;
    for (int64_t tile = first + 1; tile < last && !found; tile += step) {
        found = say_without(g, &t, tile, last) || say_without(g, &t, first, tile);
    }
    free(t.weight);
    free(t.values);
    free(t.mean);
    return found;
}

// The stretch of rows: the last partial tile, whole tiles, every row.
static void guess_rows(Guess *g) {
    int64_t count = g->selection->count, low = -1, high = -1, heads_wrong = 0, in_first = 0;
    bool contiguous = true, last_tile_only = true;
    for (int64_t head = 0; head < g->head_count; head++) {
        bool any = false;
        int64_t last_tile = rows_of_head(g, head) / 64 * 64;
        if (last_tile == 0 || last_tile == rows_of_head(g, head)) last_tile = INT64_MAX;
        for (int64_t r = 0; r < count; r++) {
            if (!g->wrong[head * count + r]) continue;
            any = true;
            int64_t row = selection_row(g->selection, head, r);
            if (row < last_tile) last_tile_only = false;
            if (head != g->first_head) continue;
            if (low < 0) low = row;
            if (high >= 0 && r > 0 && !g->wrong[head * count + r - 1]) contiguous = false;
            high = row;
            in_first++;
        }
        heads_wrong += any;
    }
    const char *rows = g->m->tensor == TENSOR_DK || g->m->tensor == TENSOR_DV ? "keys" : "rows";
    char heads[64];
    if (heads_wrong == g->head_count && heads_wrong > 1)
        snprintf(heads, sizeof heads, "every head");
    else if (heads_wrong > 1) {
        snprintf(heads, sizeof heads, "head %lld and %lld more",
                 (long long)(g->first_head % g->heads), (long long)heads_wrong - 1);
    } else
        snprintf(heads, sizeof heads, "head %lld", (long long)(g->first_head % g->heads));

    if (last_tile_only) {
        say(g, "  only in the last, partial tile: %s %lld-%lld of %s\n", rows, (long long)low,
            (long long)high, heads);
        return;
    }
    int64_t existing = 0;
    for (int64_t r = 0; r < count; r++) existing += row_exists(g, g->first_head, r);
    if (in_first == existing && existing > 1) {
        say(g, "  in all %s of %s\n", g->selection->chosen != NULL ? "sampled rows" : rows, heads);
        return;
    }
    say(g, "  %s %lld-%lld of %s", rows, (long long)low, (long long)high, heads);
    if (!contiguous) say(g, ", not all of them (%lld)", (long long)in_first);
    for (int64_t tile = 256; tile >= 16 && contiguous && g->selection->chosen == NULL; tile /= 2) {
        bool whole = low % tile == 0 && (high + 1) % tile == 0 && high + 1 - low >= tile;
        if (!whole) continue;
        int64_t tiles = (high + 1 - low) / tile;
        if (tiles == 1)
            say(g, ": one %lld-row tile", (long long)tile);
        else
            say(g, ": %lld whole %lld-row tiles", (long long)tiles, (long long)tile);
        break;
    }
    say(g, "\n");
}

void guess_pattern(const Mismatch *m, char *report, size_t size) {
    const Results *exact = &m->reference->exact;
    const double *values[] = {exact->o, exact->lse, exact->dq, exact->dk, exact->dv};
    bool keys = m->tensor == TENSOR_DK || m->tensor == TENSOR_DV;
    Guess g = {.m = m,
               .selection = keys ? &m->reference->keys : &m->reference->rows,
               .exact = values[m->tensor],
               .dtype = tensor_dtype(m->p, m->tensor),
               .heads = keys ? m->p->kv_heads : m->p->heads,
               .columns = m->tensor == TENSOR_LSE ? 1 : m->p->head_dim,
               .report = report,
               .size = size};
    report[0] = 0;
    g.head_count = (int64_t)m->p->batch * g.heads;
    g.wrong = allocate(g.head_count * g.selection->count);
    mark_wrong_rows(&g);
    if (g.wrong_rows > 0) {
        guess_rows(&g);
        if (!guess_constant(&g) && !guess_factor(&g)) {
            if (!guess_exchange(&g)) guess_keys(&g);
        }
    }
    free(g.wrong);
}
