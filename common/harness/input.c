// Real data from .npy files, with every disagreement between their shapes named.
#include "harness/input.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness/convert.h"
#include "harness/npy.h"

static const char sides[] = "(batch, seqlen, heads, head_dim)";

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

static bool same_shape(const int64_t a[4], const int64_t b[4]) {
    return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

static bool shapes_agree(const char *folder, int64_t q[4], int64_t k[4], int64_t v[4],
                         const int64_t *dout, Message *message) {
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
    if (q[0] != k[0]) {
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
    snprintf(path, sizeof path, "%.4000s/dlse.npy", folder);
    if (access(path, F_OK) != 0) return true;
    in->dlse = read_tensor(folder, "dlse", 3, "(batch, heads, seqlen_q)", shape, message);
    if (in->dlse == NULL) return false;
    if (shape[0] == q[0] && shape[1] == q[2] && shape[2] == q[1]) return true;
    return refuse(message, "%s: the shape must be (batch, heads, seqlen_q) of q.npy", path);
}

// Reads dout.npy, which only a backward pass asks for: who has none should hear why it is wanted.
static float *read_dout(const char *folder, int64_t shape[4], Message *message) {
    char path[4096];
    snprintf(path, sizeof path, "%.4000s/dout.npy", folder);
    if (access(path, F_OK) == 0) return read_tensor(folder, "dout", 4, sides, shape, message);
    (void)refuse(message,
                 "%s: not there; the backward pass takes o's gradient from it, shaped like "
                 "q.npy",
                 path);
    return NULL;
}

bool input_read(const char *folder, bool backward, Options *o, Inputs *in, Message *message) {
    int64_t q[4], k[4], v[4], dout[4];
    *in = (Inputs){0};
    in->q = read_tensor(folder, "q", 4, sides, q, message);
    if (in->q != NULL) in->k = read_tensor(folder, "k", 4, sides, k, message);
    if (in->k != NULL) in->v = read_tensor(folder, "v", 4, sides, v, message);
    if (in->v != NULL && backward) in->dout = read_dout(folder, dout, message);
    bool complete = in->v != NULL && (!backward || in->dout != NULL);
    if (!complete || !shapes_agree(folder, q, k, v, backward ? dout : NULL, message) ||
        (backward && !read_dlse(folder, q, in, message))) {
        inputs_free(in);
        return false;
    }
    o->batch = q[0];
    o->seqlen_q = q[1];
    o->seqlen_k = k[1];
    o->heads = q[2];
    o->kv_heads = k[2];
    o->head_dim = q[3];
    return true;
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
