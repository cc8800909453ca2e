// Attention steps that are wrong in one way each, so that the tests can see what a chapter's run says
// about them. Three do what the sanitizer must find; the others come out wrong.
#include <math_constants.h>

#include "broken.h"
#include "device/index.h"

typedef enum { RIGHT, DROPPED_TILE, WRONG_BASE, NAN_ROW, UNWRITTEN, SWAPPED_HEADS } Fault;

// A query row of one head, one thread a column; fp32 and head_dim 64 alone.
__device__ static inline void attend_row(const Attention &a, Fault fault, uint32_t row) {
    const BlockWork work = block_work(row, a.seqlen_q, a.heads);
    const int head = fault == SWAPPED_HEADS ? a.heads - 1 - work.head : work.head;
    const float *q = (const float *)a.q +
                     row_offset(work.batch, work.tile, head, a.seqlen_q, a.heads, a.head_dim);
    float o = 0, sum = 0;
    for (int64_t j = 0; j < a.seqlen_k; j++) {
        if (fault == DROPPED_TILE && j >= 64 && j < 128) continue;
        const int64_t key = row_offset(work.batch, j, head, a.seqlen_k, a.heads, a.head_dim);
        float score = 0;
        for (int c = 0; c < a.head_dim; c++) score += q[c] * ((const float *)a.k)[key + c];
        const float weight = expf(score * a.softmax_scale);
        sum += weight;
        o += weight * ((const float *)a.v)[key + threadIdx.x];
    }
    o /= sum;
    if (fault == NAN_ROW && work.tile == 5) o = CUDART_NAN_F;
    if (fault == UNWRITTEN && work.tile == 7) return;
    ((float *)a.o)[row_offset(work.batch, work.tile, work.head, a.seqlen_q, a.heads, a.head_dim) +
                   threadIdx.x] = o;
    if (threadIdx.x == 0)
        a.lse[vector_offset(work.batch, work.head, work.tile, a.heads, a.seqlen_q)] =
            fault == WRONG_BASE ? log2f(sum) : logf(sum);
}

__global__ void row_attention(const Attention a, Fault fault) {
    attend_row(a, fault, blockIdx.x);
}

// Blocks take their rows from a counter in the workspace.
__global__ void counted_rows(const Attention a, uint32_t rows) {
    __shared__ uint32_t row;
    if (threadIdx.x == 0) row = atomicAdd((uint32_t *)a.workspace, 1);
    __syncthreads(); // thread 0's row → all threads
    if (row < rows) attend_row(a, RIGHT, row);
}

__global__ void read_past_the_end(const Attention a) {
    const int64_t end = (int64_t)a.batch * a.seqlen_k * a.heads * a.head_dim;
    a.lse[threadIdx.x] = ((const float *)a.k)[end + threadIdx.x]; // OUT_OF_BOUNDS
}

// Half of a warp waits at one barrier, half at another.
__global__ void divided_barrier(const Attention a) {
    if (threadIdx.x < 16) {
        a.lse[threadIdx.x] = 1;
        __syncthreads(); // DIVIDED
        a.lse[threadIdx.x] += a.lse[31 - threadIdx.x];
    } else {
        a.lse[threadIdx.x] = 2;
        __syncthreads();
        a.lse[threadIdx.x] *= 3;
    }
}

// Warp 0 waits for a flag that nobody sets.
__global__ void waits_for_ever(const Attention a) {
    __shared__ volatile int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        while (flag == 0) { // DEADLOCK
        }
        a.lse[0] = 0;
    }
}

static cudaError_t run_rows(const Attention *a, Fault fault) {
    row_attention<<<(unsigned)(a->batch * a->heads * a->seqlen_q), a->head_dim, 0, a->stream>>>(
        *a, fault);
    return cudaGetLastError();
}

static cudaError_t right(const Attention *a) {
    return run_rows(a, RIGHT);
}
static cudaError_t dropped_tile(const Attention *a) {
    return run_rows(a, DROPPED_TILE);
}
static cudaError_t wrong_base(const Attention *a) {
    return run_rows(a, WRONG_BASE);
}
static cudaError_t nan_row(const Attention *a) {
    return run_rows(a, NAN_ROW);
}
static cudaError_t unwritten(const Attention *a) {
    return run_rows(a, UNWRITTEN);
}
static cudaError_t swapped_heads(const Attention *a) {
    return run_rows(a, SWAPPED_HEADS);
}

static cudaError_t out_of_bounds(const Attention *a) {
    read_past_the_end<<<1, 32, 0, a->stream>>>(*a);
    return cudaGetLastError();
}

static cudaError_t barrier(const Attention *a) {
    divided_barrier<<<1, 32, 0, a->stream>>>(*a);
    return cudaGetLastError();
}

static cudaError_t deadlock(const Attention *a) {
    waits_for_ever<<<1, 64, 0, a->stream>>>(*a);
    return cudaGetLastError();
}

// Sets the counter of a workspace that it hasn't seen, and never again.
static cudaError_t stale_counter(const Attention *a) {
    static const void *seen;
    const uint32_t rows = (uint32_t)(a->batch * a->heads * a->seqlen_q);
    if (a->workspace != seen) cudaMemsetAsync(a->workspace, 0, sizeof(uint32_t), a->stream);
    seen = a->workspace;
    counted_rows<<<rows, a->head_dim, 0, a->stream>>>(*a, rows);
    return cudaGetLastError();
}

static size_t counter_bytes(const Attention *) {
    return sizeof(uint32_t);
}

// A launch that no GPU takes: more threads than a block holds.
static cudaError_t bad_launch(const Attention *a) {
    row_attention<<<1, 2048, 0, a->stream>>>(*a, RIGHT);
    return cudaGetLastError();
}

static const char *refuses(const Attention *a, bool backward) {
    if (backward || a->dtype != DTYPE_FP32 || a->head_dim != 64) return "fp32, head_dim 64 only";
    return NULL;
}

#define STEP(variable, words, function)                                                            \
    const Step variable = {9, words, words, false, refuses, NULL, function, NULL, NULL, NULL}

STEP(step_right, "right", right);
STEP(step_dropped_tile, "dropped-tile", dropped_tile);
STEP(step_wrong_base, "wrong-base", wrong_base);
STEP(step_nan_row, "nan-row", nan_row);
STEP(step_unwritten, "unwritten", unwritten);
STEP(step_swapped_heads, "swapped-heads", swapped_heads);
STEP(step_out_of_bounds, "out-of-bounds", out_of_bounds);
STEP(step_barrier, "barrier", barrier);
STEP(step_deadlock, "deadlock", deadlock);
STEP(step_bad_launch, "bad-launch", bad_launch);
const Step step_stale_counter = {
    9,   "stale-counter", "stale-counter", false, refuses, counter_bytes, stale_counter, NULL, NULL,
    NULL};
