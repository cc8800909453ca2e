// Asynchronous copies as programs use them: cp.async by hand, cooperative groups' memcpy_async,
// cuda::barrier, and cuda::pipeline. Each kernel adds 1 to what it is given, tile by tile, and each
// thread takes another thread's elements, so that a hand-over that comes too early is seen.
#include "check.h"

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>

#include "../../common/device/cp_async.h"

namespace cg = cooperative_groups;

// Barriers in shared memory are made by init(), not by constructors.
#pragma nv_diag_suppress static_var_with_dynamic_init

enum { THREADS = 128, TILE = 4 * THREADS, TILES = 9, BLOCKS = 5, TAIL = 3 };
typedef cuda::barrier<cuda::thread_scope_block> Barrier;

// Writes a tile's elements plus 1: those that another thread has brought.
__device__ void put(float *to, const float *tile, int count = TILE) {
    for (int k = 0; k < 4; k++) {
        int e = (TILE - 1) - (threadIdx.x + k * THREADS);
        if (e < count) to[e] = tile[e] + 1;
    }
}

// Two buffers, one group per tile; the last tile is filled up with zeros.
__global__ void by_hand(const float *from, float *to, int count) {
    __shared__ __align__(16) float buffer[2][TILE];
    const int tiles = (count + TILE - 1) / TILE, begin = 4 * threadIdx.x;
    const auto load = [&](int tile) {
        int at = tile * TILE + begin, left = (count - at) * 4;
        if (tile < tiles)
            cp_async16(&buffer[tile % 2][begin], left > 0 ? from + at : from,
                       left <= 0   ? 0
                       : left < 16 ? left
                                   : 16);
        cp_async_commit();
    };
    load(0);
    for (int tile = 0; tile < tiles; tile++) {
        load(tile + 1);
        cp_async_wait<1>();
        __syncthreads();
        put(to + tile * TILE, buffer[tile % 2]);
        __syncthreads();
    }
}

// The primitives of cuda_pipeline.h, 4 and 8 bytes a thread, through L1.
__global__ void by_primitives(const float *from, float *to, int count) {
    __shared__ __align__(16) float buffer[TILE];
    from += (size_t)blockIdx.x * TILES * TILE;
    to += (size_t)blockIdx.x * TILES * TILE;
    for (int tile = 0; tile < count / TILE; tile++) {
        const float *source = from + tile * TILE;
        for (int k = threadIdx.x; k < TILE / 4; k += THREADS)
            __pipeline_memcpy_async(&buffer[2 * k], source + 2 * k, 8);
        for (int k = threadIdx.x; k < TILE / 2; k += THREADS)
            __pipeline_memcpy_async(&buffer[TILE / 2 + k], source + TILE / 2 + k, 4);
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        put(to + tile * TILE, buffer);
        __syncthreads();
    }
}

// cg::memcpy_async, with cg::wait_prior and cg::wait.
__global__ void by_groups(const float *from, float *to, int count) {
    __shared__ __align__(16) float buffer[2][TILE];
    cg::thread_block block = cg::this_thread_block();
    const int tiles = count / TILE;
    cg::memcpy_async(block, buffer[0], from, sizeof buffer[0]);
    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) {
            cg::memcpy_async(block, buffer[(tile + 1) % 2], from + (tile + 1) * TILE,
                             cuda::aligned_size_t<16>(sizeof buffer[0]));
            cg::wait_prior<1>(block);
        } else {
            cg::wait(block);
        }
        put(to + tile * TILE, buffer[tile % 2]);
        block.sync();
    }
}

// cuda::memcpy_async on a cuda::barrier, two stages.
__global__ void by_barrier(const float *from, float *to, int count) {
    __shared__ __align__(16) float buffer[2][TILE];
    __shared__ Barrier full[2];
    cg::thread_block block = cg::this_thread_block();
    if (threadIdx.x < 2) init(&full[threadIdx.x], THREADS);
    __syncthreads();
    const int tiles = count / TILE;
    const auto load = [&](int tile) {
        if (tile < tiles)
            cuda::memcpy_async(block, buffer[tile % 2], from + tile * TILE,
                               cuda::aligned_size_t<16>(sizeof buffer[0]), full[tile % 2]);
    };
    load(0);
    for (int tile = 0; tile < tiles; tile++) {
        load(tile + 1);
        full[tile % 2].arrive_and_wait();
        put(to + tile * TILE, buffer[tile % 2]);
        block.sync();
    }
}

// Half of the warps bring tiles with plain stores, the others use them: two barriers per stage.
__global__ void by_roles(const float *from, float *to, int count) {
    __shared__ float buffer[2][TILE];
    __shared__ Barrier full[2], empty[2];
    if (threadIdx.x < 2) {
        init(&full[threadIdx.x], THREADS);
        init(&empty[threadIdx.x], THREADS);
    }
    __syncthreads();
    const int tiles = count / TILE, half = THREADS / 2, me = threadIdx.x % half;
    if (threadIdx.x < half) {
        for (int tile = 0; tile < tiles; tile++) {
            empty[tile % 2].arrive_and_wait();
            for (int e = me; e < TILE; e += half) buffer[tile % 2][e] = from[tile * TILE + e];
            Barrier::arrival_token token = full[tile % 2].arrive();
            (void)token;
        }
        return;
    }
    (void)empty[0].arrive();
    (void)empty[1].arrive();
    for (int tile = 0; tile < tiles; tile++) {
        full[tile % 2].arrive_and_wait();
        for (int e = TILE - 1 - me; e >= 0; e -= half)
            to[tile * TILE + e] = buffer[tile % 2][e] + 1;
        if (tile + 2 < tiles) (void)empty[tile % 2].arrive();
    }
}

// Threads leave one after the other (arrive_and_drop); the others go on with a smaller barrier.
__global__ void by_leaving(const float *from, float *to, int count) {
    __shared__ float sums[THREADS];
    __shared__ Barrier barrier;
    const int t = threadIdx.x;
    if (t == 0) init(&barrier, THREADS);
    sums[t] = from[t] + 1;
    __syncthreads();
    to[t] = sums[t];
    for (int half = THREADS / 2; half >= 1; half /= 2) {
        if (t >= half) {
            barrier.arrive_and_drop();
            return;
        }
        bool odd = (THREADS / 2 / half == 1 ? 0 : __ffs(THREADS / 2 / half) - 1) & 1;
        (void)barrier.arrive();
        barrier.wait_parity(odd);
        sums[t] += sums[t + half];
    }
    to[THREADS] = sums[0];
}

// cuda::pipeline of a whole block: the shared state counts on two barriers per stage.
__global__ void by_block_pipeline(const float *from, float *to, int count) {
    constexpr int stages = 3;
    __shared__ __align__(16) float buffer[stages][TILE];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    cg::thread_block block = cg::this_thread_block();
    auto pipeline = cuda::make_pipeline(block, &state);
    const int tiles = count / TILE;
    for (int tile = 0, loaded = 0; tile < tiles; tile++) {
        for (; loaded < tiles && loaded < tile + stages; loaded++) {
            pipeline.producer_acquire();
            cuda::memcpy_async(block, buffer[loaded % stages], from + loaded * TILE,
                               cuda::aligned_size_t<16>(sizeof buffer[0]), pipeline);
            pipeline.producer_commit();
        }
        pipeline.consumer_wait();
        put(to + tile * TILE, buffer[tile % stages]);
        pipeline.consumer_release();
    }
}

// The same with one warp as the producer.
__global__ void by_producer_warp(const float *from, float *to, int count) {
    constexpr int stages = 2;
    __shared__ __align__(16) float buffer[stages][TILE];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    cg::thread_block block = cg::this_thread_block();
    const bool produces = threadIdx.x < 32;
    auto pipeline = cuda::make_pipeline(
        block, &state, produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
    const int tiles = count / TILE;
    for (int tile = 0; tile < tiles; tile++) {
        if (produces) {
            pipeline.producer_acquire();
            for (int e = 4 * threadIdx.x; e < TILE; e += 4 * 32)
                cuda::memcpy_async(&buffer[tile % stages][e], from + tile * TILE + e,
                                   cuda::aligned_size_t<16>(16), pipeline);
            pipeline.producer_commit();
        } else {
            pipeline.consumer_wait();
            for (int e = TILE - 1 - (threadIdx.x - 32); e >= 0; e -= THREADS - 32)
                to[tile * TILE + e] = buffer[tile % stages][e] + 1;
            pipeline.consumer_release();
        }
    }
}

// cuda::pipeline of one thread: commit and wait groups.
__global__ void by_thread_pipeline(const float *from, float *to, int count) {
    __shared__ __align__(16) float buffer[2][TILE];
    cuda::pipeline<cuda::thread_scope_thread> pipeline = cuda::make_pipeline();
    const int tiles = count / TILE, begin = 4 * threadIdx.x;
    for (int tile = 0, loaded = 0; tile < tiles; tile++) {
        for (; loaded < tiles && loaded < tile + 2; loaded++) {
            pipeline.producer_acquire();
            cuda::memcpy_async(&buffer[loaded % 2][begin], from + loaded * TILE + begin,
                               cuda::aligned_size_t<16>(16), pipeline);
            pipeline.producer_commit();
        }
        cuda::pipeline_consumer_wait_prior<1>(pipeline);
        if (tile + 1 == tiles) cuda::pipeline_consumer_wait_prior<0>(pipeline);
        __syncthreads();
        put(to + tile * TILE, buffer[tile % 2]);
        __syncthreads();
        pipeline.consumer_release();
    }
}

static float *from, *to, *host;

// Runs a kernel and compares `count` elements.
static void try_kernel(const char *name, void (*kernel)(const float *, float *, int), int blocks,
                       int count) {
    const size_t size = (size_t)BLOCKS * TILES * TILE * sizeof(float);
    CUDA(cudaMemset(to, 0, size));
    kernel<<<blocks, THREADS>>>(from, to, count);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(host, to, size, cudaMemcpyDeviceToHost));
    for (int k = 0; k < blocks * count; k++) {
        if (host[k] == k % 1000 + 1) continue;
        printf("%s: element %d is %g, not %d\n", name, k, host[k], k % 1000 + 1);
        exit(1);
    }
}

int main() {
    const int all = BLOCKS * TILES * TILE, count = TILES * TILE;
    host = (float *)malloc(all * sizeof *host);
    CUDA(cudaMalloc(&from, all * sizeof *from));
    CUDA(cudaMalloc(&to, (all + TILE) * sizeof *to));
    for (int k = 0; k < all; k++) host[k] = k % 1000;
    CUDA(cudaMemcpy(from, host, all * sizeof *from, cudaMemcpyHostToDevice));

    try_kernel("by_hand", by_hand, 1, count);
    try_kernel("by_hand", by_hand, 1, count - TILE + TAIL);
    if (host[count - TILE + TAIL] != 1) {
        printf("by_hand: the tail was not filled with zeros\n");
        return 1;
    }
    try_kernel("by_primitives", by_primitives, BLOCKS, count);
    try_kernel("by_groups", by_groups, 1, count);
    try_kernel("by_barrier", by_barrier, 1, count);
    try_kernel("by_roles", by_roles, 1, count);
    try_kernel("by_leaving", by_leaving, 1, THREADS);
    if (host[THREADS] != THREADS * (THREADS + 1) / 2) {
        printf("by_leaving: the sum is %g\n", host[THREADS]);
        return 1;
    }
    try_kernel("by_block_pipeline", by_block_pipeline, 1, count);
    try_kernel("by_producer_warp", by_producer_warp, 1, count);
    try_kernel("by_thread_pipeline", by_thread_pipeline, 1, count);
    printf("ok\n");
    return 0;
}
