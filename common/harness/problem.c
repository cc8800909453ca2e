// One attention problem on the host: counting its work, making its data.
#include "harness/problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cache.h"
#include "harness/convert.h"
#include "harness/parallel.h"
#include "harness/random.h"

// The random streams of a seed.
enum { STREAM_Q, STREAM_K, STREAM_V, STREAM_DOUT, STREAM_ROWS };
static const uint64_t stream_sink = UINT64_C(1) << 63; // above those of the rows

void *allocate(int64_t bytes) {
    void *memory = bytes < 0 ? NULL : malloc(bytes > 0 ? (size_t)bytes : 1);
    if (memory == NULL) {
        fprintf(stderr, "run: no memory for %lld bytes; try a smaller problem\n", (long long)bytes);
        exit(2);
    }
    return memory;
}

const char *problem_dtype(const Problem *p) {
    return p->fp8 ? "fp8" : dtype_name(p->dtype);
}

int64_t unmasked_pairs(const Problem *p, int64_t b) {
    int64_t pairs = 0;
    for (int64_t i = 0; i < query_length(p, b); i++) {
        int64_t from, to;
        visible_keys(p, b, i, &from, &to);
        pairs += to - from;
    }
    return pairs;
}

double problem_flops(const Problem *p, bool backward) {
    double pairs = 0;
    bool alike = p->cu_seqlens_q == NULL && p->cache.seqlens == NULL &&
                 p->mask_mod != MASK_DOCUMENT; // each sequence is cut otherwise
    for (int64_t b = 0; !alike && b < p->batch; b++) pairs += (double)unmasked_pairs(p, b);
    if (alike) pairs = (double)p->batch * (double)unmasked_pairs(p, 0);
    double forward = 4.0 * p->heads * pairs * (double)p->head_dim;
    return backward ? 2.5 * forward : forward;
}

double problem_bytes(const Problem *p) {
    double size = (double)dtype_size(p->dtype), cached = p->cache.fp8 ? 1 : size;
    double queries = (double)total_queries(p) * p->heads, keys = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        int64_t from = 0, to = 0, first = key_length(p, b), end = 0;
        for (int64_t i = 0; i < query_length(p, b); i++) { // both ends grow with the row
            visible_keys(p, b, i, &from, &to);
            if (to > from && from < first) first = from;
            if (to > end) end = to;
        }
        if (end > first) keys += (double)(end - first) * p->kv_heads;
    }
    return 2 * keys * cached * p->head_dim + queries * (2 * size * p->head_dim + sizeof(float));
}

int64_t query_elements(const Problem *p) {
    return (int64_t)p->batch * p->seqlen_q * p->heads * p->head_dim;
}

int64_t key_elements(const Problem *p) {
    return (int64_t)p->batch * p->seqlen_k * p->kv_heads * p->head_dim;
}

typedef struct {
    float *values;
    Dtype dtype;
    int64_t count;
} Rounding;

enum { CHUNK = 1 << 16 };

static void round_chunk(void *context, int worker, int64_t chunk) {
    (void)worker;
    const Rounding *r = context;
    int64_t end = (chunk + 1) * CHUNK < r->count ? (chunk + 1) * CHUNK : r->count;
    for (int64_t i = chunk * CHUNK; i < end; i++) {
        r->values[i] = round_to_dtype(r->values[i], r->dtype);
    }
}

// One tensor of normal values that the dtype can hold.
static float *random_tensor(const Problem *p, int64_t count, uint64_t stream) {
    float *values = allocate(count * (int64_t)sizeof *values);
    random_normal(values, count, p->seed, stream);
    Rounding rounding = {values, p->dtype, count};
    parallel_for((count + CHUNK - 1) / CHUNK, round_chunk, &rounding);
    return values;
}

static float *random_sinks(const Problem *p) {
    float *sink = allocate(p->heads * (int64_t)sizeof *sink);
    random_normal(sink, p->heads, p->seed, stream_sink);
    for (int h = 0; h < p->heads; h++) sink[h] += logf((float)(p->seqlen_k + 1));
    return sink;
}

void inputs_random(const Problem *p, bool backward, Inputs *inputs) {
    *inputs = (Inputs){0};
    inputs->q = random_tensor(p, query_elements(p), STREAM_Q);
    inputs->k = random_tensor(p, key_elements(p), STREAM_K);
    inputs->v = random_tensor(p, key_elements(p), STREAM_V);
    if (p->cache.fp8) cache_quantise(p, inputs);
    inputs->dout = backward ? random_tensor(p, query_elements(p), STREAM_DOUT) : NULL;
    if (p->has_sink) inputs->sink = random_sinks(p);
}

void inputs_free(Inputs *inputs) {
    free(inputs->q);
    free(inputs->k);
    free(inputs->v);
    free(inputs->dout);
    free(inputs->dlse);
    free(inputs->sink);
    free(inputs->k_scale);
    free(inputs->v_scale);
    free(inputs->cu_seqlens_q);
    free(inputs->cu_seqlens_k);
    free(inputs->cache_seqlens);
    free(inputs->block_table);
    *inputs = (Inputs){0};
}

static int compare_rows(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// `count` of the first `length` rows, in rising order; `taken` has room for a mark on each row.
static void choose_rows(int64_t *rows, unsigned char *taken, int64_t length, int64_t count,
                        int64_t head, uint64_t seed) {
    int64_t made = 0;
    memset(taken, 0, (size_t)length);
    // A quarter goes to the ends and to both sides of tile edges at every power of two.
    int64_t wanted[] = {0, length - 1, length / 64 * 64, length / 128 * 128, 63, 64, 127, 128};
    for (size_t w = 0; w < sizeof wanted / sizeof *wanted && made < count; w++) {
        int64_t row = wanted[w];
        if (row < 0 || row >= length || taken[row]) continue;
        taken[row] = 1;
        rows[made++] = row;
    }
    for (int64_t draw = 0; made < count; draw++) {
        uint64_t bits = random_bits(seed, STREAM_ROWS + (uint64_t)head, (uint64_t)draw);
        int64_t row = (int64_t)(bits % (uint64_t)length);
        if (draw < count / 4) row = row / 64 * 64 - (int64_t)(bits >> 63);
        if (row < 0 || taken[row]) continue;
        taken[row] = 1;
        rows[made++] = row;
    }
    qsort(rows, (size_t)count, sizeof *rows, compare_rows);
}

void selection_make(Selection *s, int64_t length, int64_t count, int64_t heads, uint64_t seed) {
    *s = (Selection){length, length, NULL};
    if (count >= length) return;
    s->count = count;
    s->chosen = allocate(heads * count * (int64_t)sizeof *s->chosen);
    unsigned char *taken = allocate(length);
    for (int64_t head = 0; head < heads; head++) {
        choose_rows(s->chosen + head * count, taken, length, count, head, seed);
    }
    free(taken);
}

void selection_make_varlen(Selection *s, int64_t length, int64_t count, int64_t batch,
                           int64_t heads, const int *cu_seqlens, uint64_t seed) {
    *s = (Selection){length, length, NULL};
    if (count >= length) return;
    s->count = count;
    s->chosen = allocate(batch * heads * count * (int64_t)sizeof *s->chosen);
    unsigned char *taken = allocate(length);
    for (int64_t head = 0; head < batch * heads; head++) {
        int64_t rows = cu_seqlens[head / heads + 1] - cu_seqlens[head / heads];
        int64_t *chosen = s->chosen + head * count;
        if (rows > count) choose_rows(chosen, taken, rows, count, head, seed);
        for (int64_t r = 0; rows <= count && r < count; r++) chosen[r] = r;
    }
    free(taken);
}

void selection_free(Selection *s) {
    free(s->chosen);
    s->chosen = NULL;
}
