// A cache from files. What a kernel would read out of bounds is refused here.
#include "harness/cache_input.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/cache.h"
#include "harness/npy.h"

// Reads int32 numbers of `dimensions` sides. NULL: it can't be used.
static int *read_integers(const char *folder, const char *name, int dimensions,
                          const char *side_names, int64_t *shape, Message *message) {
    char path[4096];
    Npy array;
    snprintf(path, sizeof path, "%.4000s/%s.npy", folder, name);
    if (!npy_read(path, &array, message)) return NULL;
    if (array.type == NPY_INT32 && array.dimensions == dimensions) {
        for (int d = 0; d < dimensions; d++) shape[d] = array.shape[d];
        return array.elements;
    }
    (void)refuse(message, "%s: must hold int32, of shape %s", path, side_names);
    free(array.elements);
    return NULL;
}

static bool has_table(const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%.4000s/block_table.npy", folder);
    return access(path, F_OK) == 0;
}

// Each length must be one, and fit its sequence's room.
static bool lengths_fit_room(const char *folder, const int *seqlens, int64_t batch, int64_t room,
                             Message *message) {
    for (int64_t b = 0; b < batch; b++) {
        if (seqlens[b] < 0) {
            return refuse(message, "%s/cache_seqlens.npy: sequence %lld has %d keys; 0 or more",
                          folder, (long long)b, seqlens[b]);
        }
        if (seqlens[b] > room) {
            return refuse(message,
                          "%s/cache_seqlens.npy: sequence %lld has %d keys, and its cache room for "
                          "%lld; lengths beyond the cache can't be read",
                          folder, (long long)b, seqlens[b], (long long)room);
        }
    }
    return true;
}

// The rows of the files' k (or v) in the order of sequences and keys, padded to the longest.
static float *in_order(const Problem *p, const int *table, float *stored) {
    int64_t row = (int64_t)p->kv_heads * p->head_dim;
    float *ordered = allocate(key_elements(p) * (int64_t)sizeof *ordered);
    memset(ordered, 0, (size_t)key_elements(p) * sizeof *ordered);
    for (int64_t b = 0; b < p->batch; b++) {
        for (int64_t j = 0; j < key_length(p, b); j++) {
            memcpy(ordered + (b * p->seqlen_k + j) * row, stored + cache_row(p, table, b, j) * row,
                   (size_t)row * sizeof *ordered);
        }
    }
    free(stored);
    return ordered;
}

bool cache_input_read(const char *folder, const int64_t q[4], const int64_t k[4], Options *o,
                      Inputs *in, Message *message) {
    int64_t count, table_shape[2] = {0};
    bool pages = has_table(folder);
    if (o->new_keys > 0 || o->page_size > 0 || o->fp8_cache) {
        return refuse(message,
                      "--input %s: its cache is as the files have it; leave out --append, "
                      "--page-size and --fp8-cache",
                      folder);
    }
    in->cache_seqlens = read_integers(folder, "cache_seqlens", 1, "(batch)", &count, message);
    if (in->cache_seqlens == NULL) return false;
    if (count != q[0]) {
        return refuse(message, "%s/cache_seqlens.npy: %lld sequences, and q.npy has %lld", folder,
                      (long long)count, (long long)q[0]);
    }
    if (pages) {
        in->block_table = read_integers(folder, "block_table", 2, "(batch, pages of a sequence)",
                                        table_shape, message);
        if (in->block_table == NULL) return false;
        if (table_shape[0] != q[0]) {
            return refuse(message, "%s/block_table.npy: %lld sequences, and q.npy has %lld", folder,
                          (long long)table_shape[0], (long long)q[0]);
        }
    } else if (k[0] != q[0]) {
        return refuse(message, "--input %s: q.npy has batch %lld, k.npy %lld", folder,
                      (long long)q[0], (long long)k[0]);
    }
    int64_t room = pages ? table_shape[1] * k[1] : k[1];
    if (!lengths_fit_room(folder, in->cache_seqlens, count, room, message)) return false;
    if (pages && k[1] == 0) return refuse(message, "%s/k.npy: pages of no keys", folder);
    cache_set_lengths(o, in->cache_seqlens, count);
    o->page_size = pages ? k[1] : 0;
    o->pages = pages ? k[0] : 0;
    o->table_columns = table_shape[1];
    o->block_table = in->block_table;
    o->room = pages ? 0 : room;

    Problem p = {.batch = (int)count,
                 .kv_heads = (int)k[2],
                 .head_dim = (int)k[3],
                 .seqlen_k = o->seqlen_k,
                 .cache = {.there = true,
                           .seqlens = in->cache_seqlens,
                           .rows = room,
                           .page_size = (int)o->page_size,
                           .pages = (int)o->pages,
                           .table = in->block_table,
                           .table_columns = (int)o->table_columns}};
    if ((double)p.batch * (double)p.seqlen_k * p.kv_heads * p.head_dim > 0x1p41) {
        return refuse(message, "--input %s: %lld sequences, padded to the longest, fit no memory",
                      folder, (long long)count);
    }
    if (pages && !cache_table_right(&p, in->block_table, folder, message)) return false;
    in->k = in_order(&p, in->block_table, in->k);
    in->v = in_order(&p, in->block_table, in->v);
    return true;
}
