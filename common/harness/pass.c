// One step on one problem. Every run of a kernel writes into poisoned outputs, and what the last
// timed run left is checked like what the first one did.
#include "harness/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/buffer.h"
#include "harness/cache.h"
#include "harness/cache_buffers.h"
#include "harness/convert.h"
#include "harness/mods.h"
#include "harness/npy.h"

enum { WARM_UP_RUNS = 3, FEWEST_RUNS = 5, MOST_RUNS = 50 };
static const double enough_us = 500e3; // of timed runs

// The inputs' order in Tensors.
enum { INPUT_Q, INPUT_K, INPUT_V, INPUT_SINK, INPUT_DOUT, INPUT_DLSE, INPUT_COUNT };

typedef struct {
    Buffer input[INPUT_COUNT], cu_seqlens_q, cu_seqlens_k, documents, output[TENSOR_COUNT],
        workspace;
    CacheBuffers cache;
    cudaStream_t stream;
    cudaEvent_t start, stop;
    Attention attention;
} Tensors;

static size_t tensor_bytes(const Problem *p, TensorName tensor) {
    return (size_t)tensor_elements(p, tensor) * dtype_size(tensor_dtype(p, tensor));
}

// The bytes of an input: those of the output of the same shape, if there is one.
static size_t input_bytes(const Problem *p, int input) {
    if (input == INPUT_SINK) return p->has_sink ? (size_t)p->heads * sizeof(float) : 0;
    if (p->cache.there && (input == INPUT_K || input == INPUT_V)) return cache_bytes(p);
    if (input == INPUT_DLSE) return tensor_bytes(p, TENSOR_LSE);
    return tensor_bytes(p, input == INPUT_Q || input == INPUT_DOUT ? TENSOR_O : TENSOR_DK);
}

static bool tensor_wanted(TensorName tensor, bool backward) {
    return backward || tensor == TENSOR_O || tensor == TENSOR_LSE;
}

// The problem without its memory, as `refuses` and the workspace functions take it.
static Attention attention_of(const Problem *p) {
    Attention a = {.dtype = p->fp8 ? DTYPE_FP8 : p->dtype,
                   .batch = p->batch,
                   .heads = p->heads,
                   .kv_heads = p->kv_heads,
                   .seqlen_q = p->seqlen_q,
                   .seqlen_k = p->seqlen_k,
                   .head_dim = p->built_head_dim,
                   .softmax_scale = p->scale,
                   .softcap = p->softcap,
                   .score_mod = p->score_mod,
                   .score_number = (float)p->score_number,
                   .mask_mod = p->mask_mod,
                   .mask_number = (int)p->mask_number,
                   .window_left = p->window_left,
                   .window_right = p->window_right,
                   .deterministic = p->deterministic,
                   .varlen = p->cu_seqlens_q != NULL,
                   .has_sink = p->has_sink,
                   .total_q = total_queries(p),
                   .total_k = total_keys(p)};
    cache_describe(p, &a);
    return a;
}

static size_t workspace_bytes(const Step *step, const Attention *a, bool backward) {
    size_t bytes = step->forward_workspace != NULL ? step->forward_workspace(a) : 0;
    if (!backward || step->backward_workspace == NULL) return bytes;
    size_t more = step->backward_workspace(a);
    return more > bytes ? more : bytes;
}

// What the host can still give, in bytes; 0 = unknown.
static double host_memory(void) {
    FILE *stream = fopen("/proc/meminfo", "r");
    char line[128];
    double kilobytes = 0;
    while (stream != NULL && fgets(line, sizeof line, stream) != NULL) {
        if (sscanf(line, "MemAvailable: %lf", &kilobytes) == 1) break;
    }
    if (stream != NULL) fclose(stream);
    return kilobytes * 1024;
}

bool pass_refused(const Chapter *chapter, const Step *step, const Problem *asked,
                  const Device *device, bool backward, char *reason, size_t size) {
    Problem own = cache_for_step(asked, step);
    const Problem *p = &own;
    Attention a = attention_of(p);
    reason[0] = 0;
    if (backward && step->backward == NULL) {
        snprintf(reason, size, "no backward pass");
        return true;
    }
    if (a.varlen && !step->varlen) {
        snprintf(reason, size,
                 "sequences of one length only; variable lengths: naive, and chapter 7's steps");
        return true;
    }
    if (a.has_sink && !step->sinks) {
        snprintf(reason, size,
                 "no attention sinks; naive, chapter 7's steps and chapter 9's have them");
        return true;
    }
    if (a.cache && !step->cache) {
        snprintf(reason, size,
                 "no cache: it reads keys that stand one after the other, as many in each "
                 "sequence; naive and chapter 9's steps read a cache");
        return true;
    }
    if ((a.score_mod != SCORE_NONE || a.mask_mod != MASK_NONE) && !step->mods) {
        snprintf(reason, size,
                 "no score mods and no mask mods; chapter 8's step flexible has them");
        return true;
    }
    if (step->whole_gpu && p->sample != 0 && device->softgpu != NULL) {
        int at = snprintf(reason, size,
                          "its blocks share out all tiles, so a sample of them does too much or "
                          "too little; use --sample 0");
        if (chapter->sms > 0)
            snprintf(reason + at, size - (size_t)at, ", or --sms %d for a smaller GPU",
                     chapter->sms);
        return true;
    }
    const char *refusal = step->refuses != NULL ? step->refuses(&a, backward) : NULL;
    if (refusal != NULL) {
        snprintf(reason, size, "%s", refusal);
        return true;
    }
    double bytes = (double)workspace_bytes(step, &a, backward) + (double)cache_beside_bytes(p);
    for (int i = 0; i <= (backward ? INPUT_DOUT : INPUT_SINK); i++)
        bytes += (double)input_bytes(p, i);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        if (tensor_wanted((TensorName)t, backward)) bytes += (double)tensor_bytes(p, (TensorName)t);
    }
    size_t unused = 0, total = 0;
    if (cudaMemGetInfo(&unused, &total) == cudaSuccess && bytes > (double)unused) {
        snprintf(reason, size, "needs %.1f GB of device memory; %.1f GB are free", bytes * 1e-9,
                 (double)unused * 1e-9);
        return true;
    }
    // softgpu's device memory is this machine's, its bookkeeping a quarter on top; a sample of SMs
    // touches only its share.
    double host = host_memory();
    if (device->softgpu != NULL && p->sample == 0 && host > 0 && bytes * 1.25 > host) {
        snprintf(reason, size, "needs %.1f GB of memory on softgpu; this machine has %.1f GB free",
                 bytes * 1.25e-9, host * 1e-9);
        return true;
    }
    return false;
}

// Adds what softgpu found since the last call to the result.
static void collect_findings(const Pass *pass, StepResult *result) {
    if (pass->device->softgpu == NULL) return;
    const char *found = pass->device->softgpu->findings_json();
    const char *open = found != NULL ? strchr(found, '[') : NULL;
    const char *close = found != NULL ? strrchr(found, ']') : NULL;
    if (open == NULL || close == NULL) return;
    open++;
    open += strspn(open, " \n\t");
    if (open >= close) return;
    size_t before = result->findings != NULL ? strlen(result->findings) - 1 : 0; // without its ]
    size_t length = (size_t)(close - open);
    char *joined = allocate((int64_t)(before + length + 4));
    if (before > 0) memcpy(joined, result->findings, before);
    joined[before] = before > 0 ? ',' : '[';
    memcpy(joined + before + 1, open, length);
    strcpy(joined + before + 1 + length, "]");
    free(result->findings);
    result->findings = joined;
}

// True if the call went well; else notes the error and makes the device usable again.
static bool fine(const Pass *pass, StepResult *result, cudaError_t error, const char *doing) {
    if (error == cudaSuccess) return true;
    if (result->error[0] == 0) {
        snprintf(result->error, sizeof result->error, "%s: %s (%s)", doing, cudaGetErrorName(error),
                 cudaGetErrorString(error));
    }
    collect_findings(pass, result);
    cudaGetLastError();
    if (pass->device->softgpu != NULL) {
        pass->device->softgpu->reset_device();
    } else if (cudaDeviceSynchronize() != cudaSuccess) {
        cudaDeviceReset(); // a fault on a GPU ends its context
    }
    return false;
}

// Pads head_dim with zeros, converts, and copies to the device, without the padding of sequences
// that are shorter than others of their batch.
static cudaError_t upload(const Problem *p, const Buffer *buffer, const float *values,
                          bool of_keys) {
    size_t size = dtype_size(p->dtype), row = (size_t)p->built_head_dim * size;
    int64_t heads = of_keys ? p->kv_heads : p->heads, seqlen = of_keys ? p->seqlen_k : p->seqlen_q;
    char *padded = allocate((int64_t)buffer->bytes);
    memset(padded, 0, buffer->bytes);
    for (int64_t b = 0; b < p->batch; b++) {
        int64_t rows = heads * (of_keys ? key_length(p, b) : query_length(p, b));
        int64_t to = heads * (of_keys ? first_key(p, b) : first_query(p, b));
        const float *from = values + b * seqlen * heads * p->head_dim;
        for (int64_t r = 0; r < rows; r++) {
            store_as_dtype(padded + (size_t)(to + r) * row, from + r * p->head_dim, p->head_dim,
                           p->dtype);
        }
    }
    cudaError_t error = buffer_upload(buffer, padded);
    free(padded);
    return error;
}

// cu_seqlens on the device.
static cudaError_t upload_lengths(const Problem *p, const Device *device, const int *cu_seqlens,
                                  Buffer *buffer) {
    size_t bytes = ((size_t)p->batch + 1) * sizeof *cu_seqlens;
    cudaError_t error = buffer_make(buffer, bytes, device->guards, false);
    return error == cudaSuccess ? buffer_upload(buffer, cu_seqlens) : error;
}

// The document that each key is in, on the device.
static cudaError_t upload_documents(const Problem *p, const Device *device, Buffer *buffer) {
    const int64_t keys = p->batch * p->seqlen_k;
    cudaError_t error = buffer_make(buffer, (size_t)keys * sizeof(int), device->guards, false);
    if (error != cudaSuccess) return error;
    int *documents = allocate(keys * (int64_t)sizeof *documents);
    for (int64_t i = 0; i < keys; i++)
        documents[i] = document_of(p, i / p->seqlen_k, i % p->seqlen_k);
    error = buffer_upload(buffer, documents);
    free(documents);
    return error;
}

static void tensors_free(Tensors *t) {
    for (int i = 0; i < INPUT_COUNT; i++) buffer_free(&t->input[i]);
    buffer_free(&t->cu_seqlens_q);
    buffer_free(&t->cu_seqlens_k);
    buffer_free(&t->documents);
    cache_free(&t->cache);
    for (int i = 0; i < TENSOR_COUNT; i++) buffer_free(&t->output[i]);
    buffer_free(&t->workspace);
    if (t->start != NULL) cudaEventDestroy(t->start);
    if (t->stop != NULL) cudaEventDestroy(t->stop);
    if (t->stream != NULL) cudaStreamDestroy(t->stream);
}

static cudaError_t tensors_make(const Pass *pass, Tensors *t) {
    const Problem *p = pass->p;
    const Device *device = pass->device;
    bool backward = pass->backward != NULL;
    const Inputs *in = pass->in;
    const float *values[INPUT_COUNT] = {in->q, in->k, in->v, in->sink, in->dout, in->dlse};
    *t = (Tensors){.attention = attention_of(p)};
    Attention *a = &t->attention;
    cudaError_t error = cudaStreamCreate(&t->stream);
    if (error == cudaSuccess) error = cudaEventCreate(&t->start);
    if (error == cudaSuccess) error = cudaEventCreate(&t->stop);
    for (int i = 0; i < INPUT_COUNT && error == cudaSuccess; i++) {
        if (values[i] == NULL || (i >= INPUT_DOUT && !backward)) continue;
        error = buffer_make(&t->input[i], input_bytes(p, i), device->guards, false);
        if (error != cudaSuccess) break;
        bool of_keys = i == INPUT_K || i == INPUT_V;
        if (of_keys && p->cache.there) continue; // cache_upload fills it
        error = i == INPUT_DLSE || i == INPUT_SINK ? buffer_upload(&t->input[i], values[i])
                                                   : upload(p, &t->input[i], values[i], of_keys);
    }
    if (error == cudaSuccess)
        error = cache_upload(p, in, device, &t->input[INPUT_K], &t->input[INPUT_V], &t->cache, a);
    if (a->varlen && error == cudaSuccess)
        error = upload_lengths(p, device, p->cu_seqlens_q, &t->cu_seqlens_q);
    if (a->varlen && error == cudaSuccess)
        error = upload_lengths(p, device, p->cu_seqlens_k, &t->cu_seqlens_k);
    if (a->mask_mod == MASK_DOCUMENT && error == cudaSuccess)
        error = upload_documents(p, device, &t->documents);
    for (int i = 0; i < TENSOR_COUNT && error == cudaSuccess; i++) {
        if (!tensor_wanted((TensorName)i, backward)) continue;
        error = buffer_make(&t->output[i], tensor_bytes(p, (TensorName)i), device->guards, true);
    }
    if (error == cudaSuccess) {
        size_t bytes = workspace_bytes(pass->step, a, backward);
        error = buffer_make(&t->workspace, bytes, device->guards, device->poisoned_workspace);
    }
    a->q = t->input[INPUT_Q].data;
    a->k = t->input[INPUT_K].data;
    a->v = t->input[INPUT_V].data;
    a->dout = t->input[INPUT_DOUT].data;
    a->sink = (const float *)t->input[INPUT_SINK].data;
    a->cu_seqlens_q = (const int *)t->cu_seqlens_q.data;
    a->cu_seqlens_k = (const int *)t->cu_seqlens_k.data;
    a->documents = (const int *)t->documents.data;
    a->dlse = (const float *)t->input[INPUT_DLSE].data;
    a->o = t->output[TENSOR_O].data;
    a->lse = (float *)t->output[TENSOR_LSE].data;
    a->dq = t->output[TENSOR_DQ].data;
    a->dk = t->output[TENSOR_DK].data;
    a->dv = t->output[TENSOR_DV].data;
    a->workspace = t->workspace.data;
    a->stream = t->stream;
    return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}

// Launches once between two events and waits.
static cudaError_t launch(const Pass *pass, Tensors *t, bool backward, double *us) {
    float ms = 0;
    cudaError_t error = cudaEventRecord(t->start, t->stream);
    if (error == cudaSuccess) {
        error = backward ? pass->step->backward(&t->attention) : pass->step->forward(&t->attention);
    }
    if (error == cudaSuccess) error = cudaGetLastError();
    if (error == cudaSuccess) error = cudaEventRecord(t->stop, t->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(t->stream);
    if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, t->start, t->stop);
    *us = ms * 1e3;
    return error;
}

// What the step computes once for all launches, and how long that takes.
static cudaError_t prepare(const Pass *pass, Tensors *t, double *us) {
    float ms = 0;
    cudaError_t error = cudaEventRecord(t->start, t->stream);
    if (error == cudaSuccess) error = pass->step->prepare(&t->attention);
    if (error == cudaSuccess) error = cudaEventRecord(t->stop, t->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(t->stream);
    if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, t->start, t->stop);
    *us = ms * 1e3;
    return error;
}

// The outputs of a pass: forward o and lse, backward the gradients.
static bool output_of_pass(int tensor, bool backward) {
    return backward == (tensor != TENSOR_O && tensor != TENSOR_LSE);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Median of several runs, each with a cold L2 and poisoned outputs.
static cudaError_t time_on_gpu(const Pass *pass, Tensors *t, bool backward, double *median) {
    double times[MOST_RUNS], sum = 0, us;
    int runs = 0;
    Buffer flush;
    cudaError_t error = buffer_make(&flush, 2 * pass->device->l2_bytes, false, false);
    for (int i = 0; i < WARM_UP_RUNS && error == cudaSuccess; i++) {
        error = launch(pass, t, backward, &us);
    }
    while (error == cudaSuccess && runs < MOST_RUNS && (runs < FEWEST_RUNS || sum < enough_us)) {
        for (int i = 0; i < TENSOR_COUNT && error == cudaSuccess; i++) {
            if (output_of_pass(i, backward)) error = buffer_poison(&t->output[i]);
        }
        if (error == cudaSuccess) error = buffer_poison(&flush);
        if (error == cudaSuccess) error = cudaDeviceSynchronize();
        if (error == cudaSuccess) error = launch(pass, t, backward, &us);
        times[runs++] = us;
        sum += us;
    }
    buffer_free(&flush);
    if (error != cudaSuccess) return error;
    qsort(times, (size_t)runs, sizeof *times, compare_doubles);
    *median = runs % 2 == 1 ? times[runs / 2] : (times[runs / 2 - 1] + times[runs / 2]) / 2;
    return cudaSuccess;
}

// Keeps the worse of two checks of a tensor.
static void merge_check(TensorCheck *into, const TensorCheck *check) {
    bool worse = !into->measured || (into->ok && !check->ok) ||
                 (into->ok == check->ok && check->max > into->max);
    if (worse) *into = *check;
}

static void save_tensor(const Pass *pass, TensorName tensor, const void *bytes, StepResult *r) {
    const Problem *p = pass->p;
    bool of_keys = tensor == TENSOR_DK || tensor == TENSOR_DV;
    int heads = of_keys ? p->kv_heads : p->heads;
    int64_t rows = of_keys ? total_keys(p) : total_queries(p);
    int columns = tensor == TENSOR_LSE ? 1 : p->head_dim;
    Dtype dtype = tensor_dtype(p, tensor);
    Npy array = {.type = dtype == DTYPE_FP16 ? NPY_FLOAT16 : NPY_FLOAT32,
                 .count = rows * heads * columns};
    if (p->cu_seqlens_q == NULL) array.shape[array.dimensions++] = p->batch;
    if (p->cu_seqlens_q == NULL) rows = of_keys ? p->seqlen_k : p->seqlen_q;
    array.shape[array.dimensions++] = tensor == TENSOR_LSE ? heads : rows;
    array.shape[array.dimensions++] = tensor == TENSOR_LSE ? rows : heads;
    if (tensor != TENSOR_LSE) array.shape[array.dimensions++] = columns;
    size_t size = array.type == NPY_FLOAT16 ? 2 : 4;
    char *elements = allocate(array.count * (int64_t)size);
    int stored = tensor == TENSOR_LSE ? 1 : p->built_head_dim;
    for (int64_t i = 0; i < array.count; i++) {
        float value = load_dtype(bytes, i / columns * stored + i % columns, dtype);
        store_as_dtype(elements + (size_t)i * size, &value, 1, size == 2 ? DTYPE_FP16 : DTYPE_FP32);
    }
    array.elements = elements;
    char path[4096];
    Message message;
    snprintf(path, sizeof path, "%.4000s/%s.npy", pass->save, tensor_name(tensor));
    if (!npy_write(path, &array, &message) && r->error[0] == 0) {
        snprintf(r->error, sizeof r->error, "%.500s", message.text);
    }
    free(elements);
}

// Looks at what a step appended to the cache, and that it left the rest as it was. False: the
// device failed.
static bool check_cache(const Pass *pass, const Tensors *t, StepResult *result) {
    const Problem *p = pass->p;
    bool right = true;
    if (p->cache.new_keys == 0 || pass->reference == NULL) return true;
    for (int i = INPUT_K; i <= INPUT_V && right; i++) {
        void *bytes = allocate((int64_t)t->input[i].bytes);
        if (!fine(pass, result, buffer_download(&t->input[i], bytes), "reading the cache")) {
            free(bytes);
            return false;
        }
        right = cache_right(p, t->cache.table, pass->in, i == INPUT_V, bytes, result->cache_report,
                            sizeof result->cache_report);
        free(bytes);
    }
    return true;
}

// Downloads the pass's outputs, checks them, and looks at every guard.
static bool check_outputs(const Pass *pass, Tensors *t, bool backward, StepResult *result) {
    bool guards = true, ok = true;
    for (int i = 0; i < TENSOR_COUNT; i++) {
        if (!output_of_pass(i, backward)) continue;
        void *bytes = allocate((int64_t)t->output[i].bytes);
        if (!fine(pass, result, buffer_download(&t->output[i], bytes), "reading the outputs")) {
            free(bytes);
            return false;
        }
        if (pass->reference != NULL) {
            TensorCheck check;
            check_tensor(pass->p, pass->in, pass->reference, (TensorName)i, bytes, &check);
            ok = ok && check.ok;
            merge_check(&result->tensors[i], &check);
        }
        if (pass->save != NULL) save_tensor(pass, (TensorName)i, bytes, result);
        free(bytes);
    }
    if (!backward && !check_cache(pass, t, result)) return false;
    Buffer *buffers[INPUT_COUNT + TENSOR_COUNT + CACHE_BUFFERS + 4];
    int count = 0;
    for (int i = 0; i < INPUT_COUNT; i++) buffers[count++] = &t->input[i];
    buffers[count++] = &t->cu_seqlens_q;
    buffers[count++] = &t->cu_seqlens_k;
    buffers[count++] = &t->documents;
    for (int i = 0; i < TENSOR_COUNT; i++) buffers[count++] = &t->output[i];
    for (int i = 0; i < CACHE_BUFFERS; i++) buffers[count++] = &t->cache.part[i];
    buffers[count++] = &t->workspace;
    for (int i = 0; i < count; i++) {
        bool stand;
        if (!fine(pass, result, buffer_guards(buffers[i], &stand), "reading the guards"))
            return false;
        guards = guards && stand;
    }
    if (!guards) result->overrun = true;
    if (result->cache_report[0] != 0) ok = false;
    if (pass->reference != NULL || !guards) {
        result->ok = result->ok == 0 || !ok || !guards ? 0 : 1;
    }
    return true;
}

// One more launch, on the workspace as the one before left it and into poisoned outputs; its check.
static bool launch_again(const Pass *pass, Tensors *t, bool backward, StepResult *result) {
    cudaError_t error = cudaSuccess;
    double us;
    for (int i = 0; i < TENSOR_COUNT && error == cudaSuccess; i++) {
        if (output_of_pass(i, backward)) error = buffer_poison(&t->output[i]);
    }
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error == cudaSuccess) error = launch(pass, t, backward, &us);
    if (!fine(pass, result, error, "a later launch")) return false;
    collect_findings(pass, result);
    return check_outputs(pass, t, backward, result);
}

// Forward or backward: the first run, its check, the timing, the check after.
static bool run_pass(const Pass *pass, Tensors *t, bool backward) {
    StepResult *result = backward ? pass->backward : pass->forward;
    const SoftgpuInterface *softgpu = pass->device->softgpu;
    double us;
    bool traced = softgpu != NULL && pass->timed && pass->trace != NULL;
    if (!backward && pass->step->prepare != NULL) {
        if (!fine(pass, result, prepare(pass, t, &us), "preparing")) return false;
        if (pass->timed) result->prepare_us = us;
        collect_findings(pass, result);
    }
    if (softgpu != NULL) softgpu->stats_reset();
    if (traced) softgpu->set("trace", pass->trace);
    cudaError_t error = launch(pass, t, backward, &us);
    if (traced) softgpu->set("trace", NULL);
    if (!fine(pass, result, error, backward ? "backward" : "forward")) return false;
    collect_findings(pass, result);
    const bool whole = softgpu == NULL || pass->p->sample == 0;
    if (!backward && whole && pass->chapter->remark != NULL)
        pass->chapter->remark(pass->step, &t->attention, result->remark, sizeof result->remark);
    if (pass->timed) {
        result->workspace_bytes = (double)t->workspace.bytes;
        result->flops = problem_flops(pass->p, backward);
        if (softgpu != NULL) {
            softgpu->stats(&result->stats);
            result->has_stats = true;
            result->hbm_read_bytes = result->stats.hbm_read_bytes;
            result->hbm_write_bytes = result->stats.hbm_write_bytes;
            result->l2_read_bytes = result->stats.l2_read_bytes;
            result->time_us = result->stats.kernels > 0 ? us : NAN; // no queries: nothing ran
        }
    }
    bool sampled = softgpu != NULL && pass->p->sample != 0;
    if (!sampled && !check_outputs(pass, t, backward, result)) return false;
    for (int64_t i = 1; i < pass->launches && !sampled; i++)
        if (!launch_again(pass, t, backward, result)) return false;
    if (!pass->timed || softgpu != NULL) return true;
    if (!fine(pass, result, time_on_gpu(pass, t, backward, &result->time_us), "timing"))
        return false;
    return check_outputs(pass, t, backward, result);
}

void pass_run(const Pass *pass) {
    Tensors t;
    bool made = fine(pass, pass->forward, tensors_make(pass, &t), "allocating");
    bool done = made && run_pass(pass, &t, false);
    if (done && pass->backward != NULL) run_pass(pass, &t, true);
    if (!done && pass->backward != NULL) {
        snprintf(pass->backward->error, sizeof pass->backward->error,
                 "not run: the forward pass failed");
    }
    tensors_free(&t);
    cudaGetLastError();
}
