// Real data from .npy files, with every disagreement between their shapes named.
#include "harness/input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/cache_input.h"
#include "harness/convert.h"
#include "harness/lengths.h"
#include "harness/npy.h"

static const char sides[] = "(batch, seqlen, heads, head_dim)";
static const char packed_sides[] = "(rows of all sequences, heads, head_dim)";

// Reads one tensor of `dimensions` sides, which `side_names` names, as floats.
static float *read_tensor(const char *folder, const char *name, int dimensions,
                          const char *side_names, int64_t *shape, Message *message) {
    char path[4096];
    Npy array;
    if (snprintf(path, sizeof path, "%s/%s.npy", folder, name) >= (int)sizeof path) {
        return refuse(message, "--input %.80s…: name too long", folder), NULL;
    }
    if (!npy_read(path, &array, message)) return NULL;
    float *values = NULL;
    if (array.type == NPY_INT32) {
        (void)refuse(message, "%s: int32 elements; save it as float16 or float32", path);
    } else if (array.dimensions != dimensions) {
        (void)refuse(message, "%s: %d dimensions; the shape must be %s", path, array.dimensions,
                     side_names);
    } else {
        values = allocate(array.count * (int64_t)sizeof *values);
        for (int64_t i = 0; i < array.count; i++) values[i] = npy_float(&array, i);
        for (int d = 0; d < dimensions; d++) shape[d] = array.shape[d];
    }
    free(array.elements);
    return values;
}

static bool is_there(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%.4000s/%s.npy", folder, name);
    return access(path, F_OK) == 0;
}

static bool same_shape(const int64_t a[4], const int64_t b[4]) {
    return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

// Do the shapes go together? Where k and v are a cache, what follows says whether its batch does.
static bool shapes_agree(const char *folder, int64_t q[4], int64_t k[4], int64_t v[4],
                         const int64_t *dout, bool cache, Message *message) {
    static const int64_t largest = 0x7fffffff;
    for (int d = 0; d < 4; d++) {
        bool sequence = d == 1;
        if (q[d] > largest || k[d] > largest || (!sequence && (q[d] < 1 || k[d] < 1))) {
            return refuse(message, "--input %s: a side of q.npy or k.npy is 0 or too large",
                          folder);
        }
    }
    if (!same_shape(k, v))
        return refuse(message, "--input %s: k.npy and v.npy differ in shape", folder);
    if (q[0] != k[0] && !cache) {
        return refuse(message, "--input %s: q.npy has batch %lld, k.npy %lld", folder,
                      (long long)q[0], (long long)k[0]);
    }
    if (q[3] != k[3]) {
        return refuse(message, "--input %s: q.npy has head_dim %lld, k.npy %lld", folder,
                      (long long)q[3], (long long)k[3]);
    }
    if (q[2] % k[2] != 0) {
        return refuse(message, "--input %s: %lld query heads are no multiple of %lld K/V heads",
                      folder, (long long)q[2], (long long)k[2]);
    }
    if (dout != NULL && !same_shape(q, dout)) {
        return refuse(message, "--input %s: dout.npy and q.npy differ in shape", folder);
    }
    return true;
}

// Reads dlse.npy of the folder if there is one; false: it can't be used.
static bool read_dlse(const char *folder, const int64_t q[4], Inputs *in, Message *message) {
    char path[4096];
    int64_t shape[3];
    if (!is_there(folder, "dlse")) return true;
    snprintf(path, sizeof path, "%.4000s/dlse.npy", folder);
    in->dlse = read_tensor(folder, "dlse", 3, "(batch, heads, seqlen_q)", shape, message);
    if (in->dlse == NULL) return false;
    if (shape[0] == q[0] && shape[1] == q[2] && shape[2] == q[1]) return true;
    return refuse(message, "%s: the shape must be (batch, heads, seqlen_q) of q.npy", path);
}

// Reads where the sequences of a tensor of `rows` rows begin. NULL: it can't be used.
static int *read_lengths(const char *folder, const char *name, const char *tensor, int64_t rows,
                         int64_t *sequences, Message *message) {
    char path[4096];
    Npy array;
    snprintf(path, sizeof path, "%.4000s/%s.npy", folder, name);
    if (!npy_read(path, &array, message)) return NULL;
    const int *from = array.elements;
    if (array.type != NPY_INT32 || array.dimensions != 1 || array.count < 2) {
        (void)refuse(message, "%s: must hold int32, one for each sequence and one for the end",
                     path);
        free(array.elements);
        return NULL;
    }
    *sequences = array.count - 1;
    bool right = from[0] == 0;
    for (int64_t b = 0; b < *sequences; b++) right = right && from[b] <= from[b + 1];
    if (!right) {
        (void)refuse(message, "%s: must begin with 0 and never fall", path);
    } else if (from[*sequences] != rows) {
        (void)refuse(message, "%s: ends at %d, and %s.npy has %lld rows; the two must agree", path,
                     from[*sequences], tensor, (long long)rows);
        right = false;
    }
    if (right) return array.elements;
    free(array.elements);
    return NULL;
}

// Reads sink.npy of the folder if there is one, or if --sink asks for it; false: it can't be used.
static bool read_sink(const char *folder, bool asked, int64_t heads, Inputs *in, Message *message) {
    int64_t shape[1];
    if (!asked && !is_there(folder, "sink")) return true;
    in->sink = read_tensor(folder, "sink", 1, "(heads)", shape, message);
    if (in->sink == NULL) return false;
    if (shape[0] == heads) return true;
    return refuse(message, "%s/sink.npy: %lld numbers for the %lld heads of q.npy", folder,
                  (long long)shape[0], (long long)heads);
}

// Reads the tensors; `shape` gets those of q, k, v and dout. In a folder with cu_seqlens they have
// no side for the batch: it is put in front as 1.
static bool read_tensors(const char *folder, bool backward, bool packed, Inputs *in,
                         int64_t shape[4][4], Message *message) {
    float **const to[] = {&in->q, &in->k, &in->v, &in->dout};
    static const char *const names[] = {"q", "k", "v", "dout"};
    for (int t = 0; t < (backward ? 4 : 3); t++) {
        if (t == 3 && !is_there(folder, "dout")) {
            return refuse(message,
                          "%s/dout.npy: not there; the backward pass takes o's gradient from it, "
                          "shaped like q.npy",
                          folder);
        }
        shape[t][0] = 1;
        *to[t] = read_tensor(folder, names[t], packed ? 3 : 4, packed ? packed_sides : sides,
                             shape[t] + packed, message);
        if (*to[t] == NULL) return false;
    }
    return true;
}

// Sequences that stand one after the other → each padded to `seqlen` rows of `row` numbers.
static float *pad_sequences(float *packed, const int *cu_seqlens, int64_t sequences, int64_t seqlen,
                            int64_t row) {
    if (packed == NULL) return NULL;
    float *padded = allocate(sequences * seqlen * row * (int64_t)sizeof *padded);
    memset(padded, 0, (size_t)(sequences * seqlen * row) * sizeof *padded);
    for (int64_t b = 0; b < sequences; b++) {
        memcpy(padded + b * seqlen * row, packed + cu_seqlens[b] * row,
               (size_t)((cu_seqlens[b + 1] - cu_seqlens[b]) * row) * sizeof *padded);
    }
    free(packed);
    return padded;
}

// Where the sequences begin, and with that the batch and its lengths.
static bool take_lengths(const char *folder, const int64_t q[4], const int64_t k[4], Options *o,
                         Inputs *in, Message *message) {
    int64_t sequences[2];
    in->cu_seqlens_q = read_lengths(folder, "cu_seqlens_q", "q", q[1], &sequences[0], message);
    if (in->cu_seqlens_q == NULL) return false;
    in->cu_seqlens_k = read_lengths(folder, "cu_seqlens_k", "k", k[1], &sequences[1], message);
    if (in->cu_seqlens_k == NULL) return false;
    if (sequences[0] != sequences[1]) {
        return refuse(message,
                      "--input %s: cu_seqlens_q.npy has %lld sequences, cu_seqlens_k.npy %lld",
                      folder, (long long)sequences[0], (long long)sequences[1]);
    }
    if (is_there(folder, "dlse")) {
        return refuse(message, "%s/dlse.npy: not with cu_seqlens; leave the file out", folder);
    }
    lengths_set(o, in->cu_seqlens_q, in->cu_seqlens_k, sequences[0]);
    double largest =
        (double)o->batch * (double)(o->seqlen_q > o->seqlen_k ? o->seqlen_q : o->seqlen_k);
    if (largest * (double)(q[2] * q[3]) > 0x1p41) {
        return refuse(message, "--input %s: %lld sequences, padded to the longest, fit no memory",
                      folder, (long long)o->batch);
    }
    in->q = pad_sequences(in->q, in->cu_seqlens_q, o->batch, o->seqlen_q, q[2] * q[3]);
    in->dout = pad_sequences(in->dout, in->cu_seqlens_q, o->batch, o->seqlen_q, q[2] * q[3]);
    in->k = pad_sequences(in->k, in->cu_seqlens_k, o->batch, o->seqlen_k, k[2] * k[3]);
    in->v = pad_sequences(in->v, in->cu_seqlens_k, o->batch, o->seqlen_k, k[2] * k[3]);
    return true;
}

// What input_read reads; what is in `in` when it fails is freed there.
static bool read_all(const char *folder, bool backward, Options *o, Inputs *in, Message *message) {
    int64_t shape[4][4];
    const int64_t *q = shape[0], *k = shape[1];
    bool cache = is_there(folder, "cache_seqlens") || is_there(folder, "block_table");
    bool packed = is_there(folder, "cu_seqlens_q") || is_there(folder, "cu_seqlens_k");
    if (!read_tensors(folder, backward, packed, in, shape, message)) return false;
    if (packed && cache) {
        return refuse(message, "--input %s: cu_seqlens or a cache (cache_seqlens), not both",
                      folder);
    }
    if (!shapes_agree(folder, shape[0], shape[1], shape[2], backward ? shape[3] : NULL, cache,
                      message) ||
        !read_sink(folder, o->sink, q[2], in, message)) {
        return false;
    }
    o->batch = q[0];
    o->seqlen_q = q[1];
    o->seqlen_k = k[1];
    o->heads = q[2];
    o->kv_heads = k[2];
    o->head_dim = q[3];
    o->sink = in->sink != NULL;
    if (packed) return take_lengths(folder, q, k, o, in, message);
    if (cache) return cache_input_read(folder, q, k, o, in, message);
    return !backward || read_dlse(folder, q, in, message);
}

bool input_read(const char *folder, bool backward, Options *o, Inputs *in, Message *message) {
    *in = (Inputs){0};
    if (read_all(folder, backward, o, in, message)) return true;
    inputs_free(in);
    return false;
}

static bool round_tensor(const Problem *p, const char *name, float *values, int64_t count,
                         Message *message) {
    for (int64_t i = 0; values != NULL && i < count; i++) {
        float rounded = round_to_dtype(values[i], p->dtype);
        bool overflows = isfinite(values[i]) &&
                         (!isfinite(rounded) || fabsf(values[i]) > dtype_largest(p->dtype) * 1.01);
        if (overflows) {
            return refuse(message, "%s.npy: %g overflows %s; use --dtype bf16 or fp32", name,
                          values[i], dtype_name(p->dtype));
        }
        values[i] = rounded;
    }
    return true;
}

bool input_round(const Problem *p, Inputs *in, Message *message) {
    return round_tensor(p, "q", in->q, query_elements(p), message) &&
           round_tensor(p, "k", in->k, key_elements(p), message) &&
           round_tensor(p, "v", in->v, key_elements(p), message) &&
           round_tensor(p, "dout", in->dout, query_elements(p), message);
}
