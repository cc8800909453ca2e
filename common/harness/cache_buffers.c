// The cache on the device.
#include "harness/cache_buffers.h"

#include <stdlib.h>
#include <string.h>

#include "harness/cache.h"
#include "harness/convert.h"
#include "harness/rotary.h"

size_t cache_bytes(const Problem *p) {
    return (size_t)(cache_rows(p) * p->kv_heads * p->built_head_dim) * cache_element(p);
}

void cache_describe(const Problem *p, Attention *a) {
    const Cache *c = &p->cache;
    a->splits = p->splits;
    a->cache = c->there;
    a->cache_rows = c->there ? c->rows : p->seqlen_k;
    a->page_size = c->page_size;
    a->pages = c->pages;
    a->table_columns = c->table_columns;
    a->new_keys = c->new_keys;
    a->rotary_dim = c->rotary_dim;
    a->rotary_interleaved = c->rotary_interleaved;
    a->kv_dtype = c->fp8 ? DTYPE_FP8 : p->dtype;
}

static size_t part_bytes(const Problem *p, int part) {
    const Cache *c = &p->cache;
    size_t batch = (size_t)p->batch;
    if (!c->there) return 0;
    switch (part) {
    case CACHE_SEQLENS: return batch * sizeof(int);
    case CACHE_TABLE: return batch * (size_t)c->table_columns * sizeof(int);
    case CACHE_K_NEW:
    case CACHE_V_NEW:
        return batch * (size_t)(c->new_keys * p->kv_heads * p->built_head_dim) *
               dtype_size(p->dtype);
    case CACHE_COSINES:
    case CACHE_SINES:
        if (c->rotary_dim == 0) return 0;
        return (size_t)rotary_positions(p) * (size_t)(c->rotary_dim / 2) * sizeof(float);
    default: return c->fp8 ? batch * (size_t)p->kv_heads * sizeof(float) : 0;
    }
}

size_t cache_beside_bytes(const Problem *p) {
    size_t bytes = 0;
    for (int part = 0; part < CACHE_BUFFERS; part++) bytes += part_bytes(p, part);
    return bytes;
}

// The new keys (or values) of all sequences, as the device has them.
static void fill_new(const Problem *p, const float *values, char *to) {
    size_t row = (size_t)p->built_head_dim * dtype_size(p->dtype);
    for (int64_t b = 0; b < p->batch; b++) {
        for (int64_t j = cached_keys(p, b); j < key_length(p, b); j++) {
            const float *from = values + (b * p->seqlen_k + j) * p->kv_heads * p->head_dim;
            for (int h = 0; h < p->kv_heads; h++, to += row)
                store_as_dtype(to, from + h * p->head_dim, p->head_dim, p->dtype);
        }
    }
}

static cudaError_t upload_cache(const Problem *p, const int *table, const float *values,
                                const float *scale, const Buffer *buffer) {
    char *bytes = allocate((int64_t)buffer->bytes);
    cache_fill(p, table, values, scale, bytes);
    cudaError_t error = buffer_upload(buffer, bytes);
    free(bytes);
    return error;
}

static cudaError_t upload_part(const Problem *p, const Inputs *in, int part,
                               const CacheBuffers *buffers) {
    const Buffer *buffer = &buffers->part[part];
    float *bytes = calloc(1, buffer->bytes + 1), *other = NULL;
    const void *from = bytes;
    if (bytes == NULL) return cudaErrorMemoryAllocation;
    switch (part) {
    case CACHE_SEQLENS:
        for (int64_t b = 0; b < p->batch; b++) ((int *)bytes)[b] = (int)cached_keys(p, b);
        break;
    case CACHE_TABLE: from = buffers->table; break;
    case CACHE_K_NEW: fill_new(p, in->k, (char *)bytes); break;
    case CACHE_V_NEW: fill_new(p, in->v, (char *)bytes); break;
    case CACHE_COSINES:
    case CACHE_SINES:
        other = allocate((int64_t)buffer->bytes);
        rotary_tables(p, part == CACHE_COSINES ? bytes : other,
                      part == CACHE_COSINES ? other : bytes);
        break;
    case CACHE_K_SCALE: from = in->k_scale; break;
    case CACHE_V_SCALE: from = in->v_scale; break;
    }
    cudaError_t error = buffer_upload(buffer, from);
    free(bytes);
    free(other);
    return error;
}

cudaError_t cache_upload(const Problem *p, const Inputs *in, const Device *device, const Buffer *k,
                         const Buffer *v, CacheBuffers *buffers, Attention *a) {
    if (!p->cache.there) return cudaSuccess;
    buffers->table = cache_table(p);
    cudaError_t error = upload_cache(p, buffers->table, in->k, in->k_scale, k);
    if (error == cudaSuccess) error = upload_cache(p, buffers->table, in->v, in->v_scale, v);
    for (int part = 0; part < CACHE_BUFFERS && error == cudaSuccess; part++) {
        if (part_bytes(p, part) == 0) continue;
        error = buffer_make(&buffers->part[part], part_bytes(p, part), device->guards, false);
        if (error == cudaSuccess) error = upload_part(p, in, part, buffers);
    }
    a->cache_seqlens = (const int *)buffers->part[CACHE_SEQLENS].data;
    a->block_table = (const int *)buffers->part[CACHE_TABLE].data;
    a->k_new = buffers->part[CACHE_K_NEW].data;
    a->v_new = buffers->part[CACHE_V_NEW].data;
    a->rotary_cos = (const float *)buffers->part[CACHE_COSINES].data;
    a->rotary_sin = (const float *)buffers->part[CACHE_SINES].data;
    a->k_scale = (const float *)buffers->part[CACHE_K_SCALE].data;
    a->v_scale = (const float *)buffers->part[CACHE_V_SCALE].data;
    a->k_cache = p->cache.new_keys > 0 ? k->data : NULL;
    a->v_cache = p->cache.new_keys > 0 ? v->data : NULL;
    return error;
}

void cache_free(CacheBuffers *buffers) {
    for (int part = 0; part < CACHE_BUFFERS; part++) buffer_free(&buffers->part[part]);
    free(buffers->table);
    buffers->table = NULL;
}
