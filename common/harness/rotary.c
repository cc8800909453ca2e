// The rotary embedding on the host, as plainly as its definition.
#include "harness/rotary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cache.h"
#include "harness/convert.h"

static const double base = 10000;

int64_t rotary_positions(const Problem *p) {
    int64_t new_keys = p->cache.new_keys, last = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        int64_t cached = cached_keys(p, b);
        if (cached > last) last = cached;
    }
    return last + (new_keys > p->seqlen_q ? new_keys : p->seqlen_q);
}

static double angle_of(const Problem *p, int64_t position, int c) {
    return (double)position / pow(base, 2.0 * c / p->cache.rotary_dim);
}

void rotary_tables(const Problem *p, float *cosines, float *sines) {
    int pairs = p->cache.rotary_dim / 2;
    for (int64_t position = 0; position < rotary_positions(p); position++) {
        for (int c = 0; c < pairs; c++) {
            cosines[position * pairs + c] = (float)cos(angle_of(p, position, c));
            sines[position * pairs + c] = (float)sin(angle_of(p, position, c));
        }
    }
}

void rotary_turn(const Problem *p, int64_t position, const float *from, double *to) {
    int pairs = p->cache.rotary_dim / 2;
    for (int c = 0; c < p->head_dim; c++) to[c] = from[c];
    for (int c = 0; c < pairs; c++) {
        int first = p->cache.rotary_interleaved ? 2 * c : c;
        int second = p->cache.rotary_interleaved ? 2 * c + 1 : c + pairs;
        double cosine = (float)cos(angle_of(p, position, c)); // as the tables have them
        double sine = (float)sin(angle_of(p, position, c));
        to[first] = from[first] * cosine - from[second] * sine;
        to[second] = from[first] * sine + from[second] * cosine;
    }
}

int64_t query_position(const Problem *p, int64_t b, int64_t i) {
    bool by_row = p->window_left >= 0 || p->window_right >= 0;
    return cached_keys(p, b) + (by_row ? i : 0);
}

// Turns a row in place.
static void turn_row(const Problem *p, int64_t position, bool rounded, float *row) {
    double turned[512];
    rotary_turn(p, position, row, turned);
    for (int c = 0; c < p->head_dim; c++) {
        row[c] = (float)turned[c];
        if (rounded) row[c] = round_to_dtype(row[c], p->dtype);
    }
}

static float *copy_of(const float *values, int64_t count) {
    float *copy = allocate(count * (int64_t)sizeof *copy);
    memcpy(copy, values, (size_t)count * sizeof *copy);
    return copy;
}

Inputs rotary_inputs(const Problem *p, const Inputs *in, bool rounded) {
    Inputs turned = *in;
    turned.q = copy_of(in->q, query_elements(p));
    turned.k = copy_of(in->k, key_elements(p));
    for (int64_t b = 0; b < p->batch; b++) {
        for (int64_t i = 0; i < p->seqlen_q; i++) {
            float *row = turned.q + (b * p->seqlen_q + i) * p->heads * p->head_dim;
            for (int h = 0; h < p->heads; h++)
                turn_row(p, query_position(p, b, i), rounded, row + h * p->head_dim);
        }
        for (int64_t j = cached_keys(p, b); j < key_length(p, b); j++) {
            float *row = turned.k + (b * p->seqlen_k + j) * p->kv_heads * p->head_dim;
            for (int h = 0; h < p->kv_heads; h++) turn_row(p, j, true, row + h * p->head_dim);
        }
    }
    return turned;
}

void rotary_inputs_free(Inputs *turned) {
    free(turned->q);
    free(turned->k);
}
