// The cache of keys and values that decoding reads, on the host.
#include "harness/cache.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/index.h"
#include "harness/check.h"
#include "harness/convert.h"
#include "harness/random.h"
#include "harness/rotary.h"

static const uint64_t stream_pages = UINT64_C(1) << 62; // of the seed
enum {
    SPARE_ROWS = 7,  // a sequence's room is larger than the longest needs, as in life
    SPARE_PAGES = 3, // and so is the pool
};

// ---- options

bool cache_read_lengths(const char *text, Options *o, Message *message) {
    int64_t sequences = 1, b = 0;
    for (const char *c = text; *c != 0; c++) sequences += *c == ',';
    // Never freed: options are read once, and problems go on pointing here.
    int *seqlens = allocate(sequences * (int64_t)sizeof(int));
    for (const char *rest = text;; rest++, b++) {
        char *end = NULL;
        errno = 0;
        long long keys = *rest >= '0' && *rest <= '9' ? strtoll(rest, &end, 10) : -1;
        if (keys < 0 || errno != 0 || keys > INT_MAX || (*end != ',' && *end != 0)) {
            return refuse(message,
                          "--cache-seqlens %.80s: give the keys in the cache of each sequence, "
                          "between commas: --cache-seqlens 1000,0,37",
                          text);
        }
        seqlens[b] = (int)keys;
        rest = end;
        if (*rest == 0) break;
    }
    o->cache_seqlens = seqlens;
    o->cached_sequences = sequences;
    return true;
}

bool cache_lengths_fit(Options *o, Message *message) {
    bool swept =
        o->sweep != NULL && (strcmp(o->sweep, "batch") == 0 || strcmp(o->sweep, "seqlen") == 0 ||
                             strcmp(o->sweep, "seqlen-k") == 0);
    if (o->batch != NOT_GIVEN || o->seqlen_k != NOT_GIVEN || swept) {
        return refuse(message,
                      "--cache-seqlens: says the batch and the keys; leave out --batch, --seqlen, "
                      "--seqlen-k and a --sweep of them (queries: --seqlen-q)");
    }
    cache_set_lengths(o, o->cache_seqlens, o->cached_sequences);
    return true;
}

void cache_set_lengths(Options *o, const int *seqlens, int64_t sequences) {
    o->cache_seqlens = seqlens;
    o->batch = o->cached_sequences = sequences;
    o->seqlen_k = 0;
    for (int64_t b = 0; b < sequences; b++) {
        if (seqlens[b] > o->seqlen_k) o->seqlen_k = seqlens[b];
    }
}

// ---- the problem

static bool rotary_fits(const Options *o, const Problem *p, Message *message) {
    if (o->rotary_dim == 0 && !o->rotary_interleaved) return true;
    if (o->rotary_dim == 0)
        return refuse(message, "--rotary-interleaved: says how --rotary D pairs columns; give it");
    if (o->rotary_dim % 2 != 0 || o->rotary_dim > p->head_dim) {
        return refuse(message, "--rotary %lld: give an even number of columns up to head_dim, %d",
                      (long long)o->rotary_dim, p->head_dim);
    }
    if (o->new_keys == 0) {
        return refuse(message,
                      "--rotary: turns new keys on their way into the cache, and queries; give "
                      "--append N too");
    }
    return true;
}

// Pages that the keys of all sequences take.
static double pages_used(const Problem *p, int64_t page_size) {
    double pages = 0;
    for (int64_t b = 0; b < p->batch; b++) pages += (double)tiles_of(key_length(p, b), page_size);
    return pages;
}

// A pool with a few more pages than needed, and room for every sequence.
static void make_pages(Problem *p, int page_size) {
    Cache *c = &p->cache;
    c->page_size = page_size;
    c->pages = (int)pages_used(p, page_size) + SPARE_PAGES;
    c->table_columns = (int)tiles_of(p->seqlen_k, page_size) + 1;
    c->rows = (int64_t)page_size * c->table_columns;
}

static bool pages_fit(const Options *o, const Problem *p, Message *message) {
    double pages = pages_used(p, o->page_size) + SPARE_PAGES;
    if (pages <= INT_MAX && (double)p->batch * (double)p->seqlen_k / (double)o->page_size < 0x1p40)
        return true;
    return refuse(message, "--page-size %lld: %.3g pages; a block table counts to 2^31 - 1",
                  (long long)o->page_size, pages);
}

bool cache_make(const Options *o, Problem *p, Message *message) {
    Cache *c = &p->cache;
    p->splits = (int)o->splits;
    if (o->cache_seqlens != NULL) p->seqlen_k = o->seqlen_k + o->new_keys;
    c->there = o->cache_seqlens != NULL || o->page_size > 0 || o->new_keys > 0 || o->fp8_cache;
    if (!rotary_fits(o, p, message)) return false;
    if (!c->there) return true;
    if (p->cu_seqlens_q != NULL)
        return refuse(message, "--varlen: not with a cache, whose lengths --cache-seqlens says");
    if (o->new_keys > p->seqlen_k) {
        return refuse(
            message, "--append %lld: --seqlen-k %lld counts the new keys too; give as many or more",
            (long long)o->new_keys, (long long)p->seqlen_k);
    }
    if (p->seqlen_k > INT_MAX) {
        return refuse(message, "--append %lld: more than 2^31 - 1 keys in all",
                      (long long)o->new_keys);
    }
    if (o->fp8_cache && (o->new_keys > 0 || p->dtype == DTYPE_FP32)) {
        return refuse(message, "--fp8-cache: with fp16 or bf16 queries, and without --append: new "
                               "keys would need a scale of their own");
    }
    c->seqlens = o->cache_seqlens;
    c->new_keys = (int)o->new_keys;
    c->rotary_dim = (int)o->rotary_dim;
    c->rotary_interleaved = o->rotary_interleaved;
    c->fp8 = o->fp8_cache;
    c->rows = o->room > 0 ? o->room : p->seqlen_k + SPARE_ROWS;
    if (o->page_size == 0) return true;
    if (o->block_table == NULL) {
        if (!pages_fit(o, p, message)) return false;
        make_pages(p, (int)o->page_size);
        return true;
    }
    c->page_size = (int)o->page_size;
    c->pages = (int)o->pages;
    c->table = o->block_table;
    c->table_columns = (int)o->table_columns;
    c->rows = (int64_t)c->page_size * c->table_columns;
    return true;
}

Problem cache_for_step(const Problem *p, const Step *step) {
    Problem own = *p;
    if (step->page_size == 0 || p->cache.page_size > 0 || p->cu_seqlens_q != NULL) return own;
    if (pages_used(p, step->page_size) + SPARE_PAGES > INT_MAX) return own;
    own.cache.there = true;
    make_pages(&own, step->page_size);
    return own;
}

int64_t cached_keys(const Problem *p, int64_t b) {
    return key_length(p, b) - p->cache.new_keys;
}

int64_t cache_rows(const Problem *p) {
    const Cache *c = &p->cache;
    return c->page_size > 0 ? (int64_t)c->pages * c->page_size : p->batch * c->rows;
}

int64_t table_places(const Problem *p, int64_t keys) {
    return tiles_of(keys, p->cache.page_size);
}

int64_t cache_row(const Problem *p, const int *table, int64_t b, int64_t j) {
    const Cache *c = &p->cache;
    if (c->page_size == 0) return b * c->rows + j;
    return (int64_t)table[b * c->table_columns + j / c->page_size] * c->page_size +
           j % c->page_size;
}

int *cache_table(const Problem *p) {
    const Cache *c = &p->cache;
    if (c->page_size == 0) return NULL;
    int64_t places = (int64_t)p->batch * c->table_columns;
    int *table = allocate(places * (int64_t)sizeof *table);
    if (c->table != NULL) {
        memcpy(table, c->table, (size_t)places * sizeof *table);
        return table;
    }
    int *pages = allocate(c->pages * (int64_t)sizeof *pages), taken = 0;
    for (int i = 0; i < c->pages; i++) pages[i] = i;
    for (int i = c->pages - 1; i > 0; i--) {
        int other = (int)(random_bits(p->seed, stream_pages, (uint64_t)i) % ((uint64_t)i + 1));
        int page = pages[i];
        pages[i] = pages[other];
        pages[other] = page;
    }
    const int nonsense[] = {-1, INT_MAX, c->pages};
    for (int64_t b = 0; b < p->batch; b++) {
        int64_t used = table_places(p, key_length(p, b));
        for (int64_t n = 0; n < c->table_columns; n++)
            table[b * c->table_columns + n] = n < used ? pages[taken++] : nonsense[n % 3];
    }
    free(pages);
    return table;
}

bool cache_table_right(const Problem *p, const int *table, const char *where, Message *message) {
    const Cache *c = &p->cache;
    int64_t *owner = allocate(c->pages * (int64_t)sizeof *owner); // a place of the table
    bool right = true;
    for (int i = 0; i < c->pages; i++) owner[i] = -1;
    for (int64_t b = 0; b < p->batch && right; b++) {
        int64_t used = table_places(p, key_length(p, b));
        if (used > c->table_columns) {
            right = refuse(message,
                           "%.200s/block_table.npy: sequence %lld has %lld keys, and room for %lld "
                           "in its %d pages of %d; lengths beyond the cache can't be read",
                           where, (long long)b, (long long)key_length(p, b), (long long)c->rows,
                           c->table_columns, c->page_size);
        }
        for (int64_t n = 0; n < used && right; n++) {
            int page = table[b * c->table_columns + n];
            if (page < 0 || page >= c->pages) {
                right = refuse(message,
                               "%.200s/block_table.npy: page %d of sequence %lld (column %lld) is "
                               "not one of the %d pages of k.npy, 0 to %d",
                               where, page, (long long)b, (long long)n, c->pages, c->pages - 1);
            } else if (owner[page] >= 0) {
                right =
                    refuse(message,
                           "%.200s/block_table.npy: page %d belongs to sequence %lld (column "
                           "%lld) and to sequence %lld (column %lld); each page has one owner",
                           where, page, (long long)(owner[page] / c->table_columns),
                           (long long)(owner[page] % c->table_columns), (long long)b, (long long)n);
            } else {
                owner[page] = b * c->table_columns + n;
            }
        }
    }
    free(owner);
    return right;
}

// ---- what it holds

size_t cache_element(const Problem *p) {
    return p->cache.fp8 ? 1 : dtype_size(p->dtype);
}

// One tensor's scales: the largest number of each sequence and head becomes e4m3's largest.
static float *quantise(const Problem *p, float *values) {
    float *scales = allocate((int64_t)p->batch * p->kv_heads * (int64_t)sizeof *scales);
    for (int64_t b = 0; b < p->batch; b++) {
        for (int h = 0; h < p->kv_heads; h++) {
            float largest = 0;
            for (int pass = 0; pass < 2; pass++) {
                float scale = largest > 0 ? largest / (float)dtype_largest(DTYPE_FP8) : 1;
                for (int64_t j = 0; j < p->seqlen_k; j++) {
                    float *row = values + ((b * p->seqlen_k + j) * p->kv_heads + h) * p->head_dim;
                    for (int c = 0; c < p->head_dim; c++) {
                        if (pass == 0)
                            largest = fmaxf(largest, fabsf(row[c]));
                        else
                            row[c] = scale * float_from_e4m3(e4m3_from_float(row[c] / scale));
                    }
                }
                scales[b * p->kv_heads + h] = scale;
            }
        }
    }
    return scales;
}

void cache_quantise(const Problem *p, Inputs *in) {
    in->k_scale = quantise(p, in->k);
    in->v_scale = quantise(p, in->v);
}

// A row of the device's k or v: the numbers, and zeros in the padding of head_dim.
static void store_row(const Problem *p, const float *from, float scale, char *to) {
    size_t element = cache_element(p);
    memset(to, 0, (size_t)p->built_head_dim * element);
    if (!p->cache.fp8) {
        store_as_dtype(to, from, p->head_dim, p->dtype);
        return;
    }
    for (int c = 0; c < p->head_dim; c++) to[c] = (char)e4m3_from_float(from[c] / scale);
}

void cache_fill(const Problem *p, const int *table, const float *values, const float *scale,
                void *bytes) {
    size_t row = (size_t)p->built_head_dim * cache_element(p);
    memset(bytes, POISON, (size_t)(cache_rows(p) * p->kv_heads) * row);
    for (int64_t b = 0; b < p->batch; b++) {
        for (int64_t j = 0; j < cached_keys(p, b); j++) {
            int64_t to = cache_row(p, table, b, j) * p->kv_heads;
            const float *from = values + (b * p->seqlen_k + j) * p->kv_heads * p->head_dim;
            for (int h = 0; h < p->kv_heads; h++) {
                store_row(p, from + h * p->head_dim, scale != NULL ? scale[b * p->kv_heads + h] : 1,
                          (char *)bytes + (size_t)(to + h) * row);
            }
        }
    }
}

// Is a stored new key what it should be? Numbers that were turned may be off by their rounding, of
// fp32 sums to the dtype.
static bool row_right(const Problem *p, const float *from, int64_t position, bool turned,
                      const char *row) {
    double exact[512], largest = 0;
    for (int c = 0; c < p->head_dim; c++) {
        exact[c] = from[c];
        largest = fmax(largest, fabs(exact[c]));
    }
    if (turned) rotary_turn(p, position, from, exact);
    for (int c = 0; c < p->built_head_dim; c++) {
        double got = load_dtype(row, c, p->dtype), wanted = c < p->head_dim ? exact[c] : 0;
        double slack = 0;
        if (turned && c < p->cache.rotary_dim) // both products may be larger than their sum
            slack = half_ulp(wanted, p->dtype) * 1.001 + 0x1p-22 * largest;
        if (isnan(wanted) ? !isnan(got) : !(fabs(got - wanted) <= slack)) return false;
    }
    return true;
}

bool cache_right(const Problem *p, const int *table, const Inputs *in, bool of_values,
                 const void *bytes, char *report, size_t size) {
    const float *values = of_values ? in->v : in->k, *scale = of_values ? in->v_scale : in->k_scale;
    const char *name = of_values ? "v" : "k";
    size_t row = (size_t)p->built_head_dim * cache_element(p), heads = (size_t)p->kv_heads;
    size_t all = (size_t)cache_rows(p) * heads * row;
    char *expected = allocate((int64_t)all);
    bool right = true;
    cache_fill(p, table, values, scale, expected);
    for (int64_t b = 0; b < p->batch && right; b++) {
        for (int64_t j = cached_keys(p, b); j < key_length(p, b) && right; j++) {
            size_t at = (size_t)cache_row(p, table, b, j) * heads * row;
            for (int h = 0; h < p->kv_heads && right; h++, at += row) {
                const float *from =
                    values + ((b * p->seqlen_k + j) * p->kv_heads + h) * p->head_dim;
                bool turned = !of_values && p->cache.rotary_dim > 0;
                right = row_right(p, from, j, turned, (const char *)bytes + at);
                memcpy(expected + at, (const char *)bytes + at, row); // looked at
                if (right) continue;
                snprintf(
                    report, size,
                    "the cache's %s: key %lld of sequence %lld, head %d, is not what was to be "
                    "appended%s",
                    name, (long long)j, (long long)b, h,
                    turned ? " (with its rotary embedding)" : "");
            }
        }
    }
    if (right && memcmp(expected, bytes, all) != 0) {
        size_t first = 0;
        while (expected[first] == ((const char *)bytes)[first]) first++;
        right = false;
        snprintf(report, size, "the cache's %s: row %zu of head %zu has changed, and was not new",
                 name, first / row / heads, first / row % heads);
    }
    free(expected);
    return right;
}
