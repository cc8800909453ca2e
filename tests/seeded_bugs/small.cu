// Small right kernels, one idea each, in which bugs.h has its bugs. Every line that bugs.h names
// stands here once. Run with SEEDED_BUG=0, all of them are right, and their results are checked.
#include "programs/check.h"
#include "device/cp_async.h"
#include "device/mbarrier.h"
#include "device/named_barrier.h"
#include "device/proxy.h"
#include "device/tma.h"

enum { THREADS = 128, WARPS = THREADS / 32, COUNT = 4 * THREADS - 5 };

// ---- one block

// A tree over the block's values in shared memory.
__global__ void tree(const int *in, int *out) {
    __shared__ int s[THREADS];
    const int t = threadIdx.x;
    s[t] = in[t];
    __syncthreads(); // all values → all threads
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (t < half) s[t] += s[t + half];
        __syncthreads(); // this level → the next
    }
    if (t == 0) *out = s[0];
}

// Each warp turns its values round.
__global__ void reverse_in_warp(const int *in, int *out) {
    __shared__ int s[THREADS];
    const int t = threadIdx.x;
    s[t] = in[t];
    __syncwarp(); // the warp's values → its lanes
    out[t] = s[t ^ 31];
}

// Sums of 8 lanes each; a tile of lanes meets by itself.
__global__ void tile_sums(const int *in, int *out) {
    __shared__ int s[THREADS];
    const int t = threadIdx.x;
    const unsigned tile = 0xffu << (t % 32 & ~7);
    s[t] = in[t];
    __syncwarp(tile); // eight values → their lanes
    int sum = 0;
    for (int k = 0; k < 8; k++) sum += s[(t & ~7) + k];
    out[t] = sum;
}

// How many values are odd; each warp counts in shared memory.
__global__ void count_odd(const int *in, int *out) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0; // before anybody counts
    __syncthreads();
    if (in[threadIdx.x] % 2) atomicAdd(&count, 1); // many threads, one word
    __syncthreads();                               // all counts → thread 0
    if (threadIdx.x == 0) *out = count;
}

// A ring of two stages, filled by cp.async, two tiles ahead.
__global__ void copy_ring(const int4 *in, int4 *out, int tiles) {
    __shared__ int4 ring[2][THREADS];
    const int t = threadIdx.x;
    for (int tile = 0; tile < 2; tile++) {
        cp_async16(&ring[tile][t], &in[tile * THREADS + t]);
        cp_async_commit();
    }
    for (int tile = 0; tile < tiles; tile++) {
        cp_async_wait<1>(); // this thread's piece of the tile
        __syncthreads();    // all pieces → all threads
        out[tile * THREADS + t] = ring[tile % 2][THREADS - 1 - t];
        __syncthreads(); // the stage has been read
        if (tile + 2 < tiles) cp_async16(&ring[tile % 2][t], &in[(tile + 2) * THREADS + t]);
        cp_async_commit();
    }
}

// Two warps make, two take, by a named barrier each way.
__global__ void hand_over(const int *in, int *out) {
    __shared__ int s[64];
    const int t = threadIdx.x % 64;
    for (int round = 0; round < 4; round++) {
        if (threadIdx.x < 64) {
            if (round > 0) named_barrier_sync(2, THREADS); // taken
            s[t] = in[t] + round;
            named_barrier_arrive(1, THREADS); // made
        } else {
            named_barrier_sync(1, THREADS); // wait for it
            out[round * 64 + t] = s[63 - t];
            if (round < 3) named_barrier_arrive(2, THREADS); // the next may come
        }
    }
}

// ---- mbarriers and bulk copies

__global__ void bulk_sums(const float *in, float *out, int tiles) {
    __shared__ __align__(128) float stage[2][THREADS];
    __shared__ uint64_t full[2], empty[2];
    const int t = threadIdx.x;
    const uint32_t bytes = sizeof stage[0];
    if (t == 0) {
        for (int k = 0; k < 2; k++) {
            mbarrier_init(&full[k], 1);      // one arrival, with the bytes
            mbarrier_init(&empty[k], WARPS); // one for each warp
        }
        fence_mbarrier_init(); // → the copies
    }
    __syncthreads(); // the barriers → all threads
    for (int tile = 0; tile < tiles; tile++) {
        const int k = tile % 2, parity = tile / 2 % 2;
        if (t == 0) {
            mbarrier_wait(&empty[k], parity ^ 1);                      // the stage has been read
            mbarrier_arrive_expect(&full[k], bytes);                   // what is to come
            bulk_load(stage[k], in + tile * THREADS, bytes, &full[k]); // a tile
        }
        __syncwarp();
        mbarrier_wait(&full[k], parity); // the tile → this thread
        out[tile * THREADS + t] = stage[k][t] + stage[k][t ^ 1];
        fence_proxy_async();                         // this thread's reads → the next copy
        __syncwarp();                                // the warp's reads → the lane that arrives
        if (t % 32 == 0) mbarrier_arrive(&empty[k]); // this warp has read it
    }
}

// Thread 0 stores what all have made.
__global__ void bulk_add(const float *in, float *sums) {
    __shared__ __align__(128) float s[THREADS];
    const int t = threadIdx.x;
    s[t] = in[t];
    fence_proxy_async(); // this thread's number → TMA
    __syncthreads();     // all numbers → the thread that stores
    if (t == 0) {
        bulk_add_fp32(sums, s, sizeof s);
        tma_commit();       // a group
        tma_wait_read<0>(); // the numbers have been read
    }
    __syncthreads(); // their place is free
    s[t] = 0;
}

// ---- a cluster

__device__ static void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

__global__ void __cluster_dims__(2, 1, 1) swap_blocks(const int *in, int *out) {
    __shared__ int s[THREADS];
    const int t = threadIdx.x, at = blockIdx.x * THREADS + t;
    cluster_sync(); // the other block has begun
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
                 "st.shared::cluster.u32 [there], %2; }" ::"r"(shared_address(&s[t])),
                 "r"(blockIdx.x ^ 1), "r"(in[at])
                 : "memory");
    cluster_sync(); // both blocks' values → both
    out[at] = s[t];
}

__global__ void __cluster_dims__(2, 1, 1) read_other(const int *in, int *out) {
    __shared__ int s[THREADS];
    const int t = threadIdx.x, at = blockIdx.x * THREADS + t;
    s[t] = in[at];
    cluster_sync();
    int value;
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %1, %2;\n"
                 "ld.shared::cluster.u32 %0, [there]; }"
                 : "=r"(value)
                 : "r"(shared_address(&s[t])), "r"(blockIdx.x ^ 1)
                 : "memory");
    cluster_sync(); // no block ends while the other reads
    out[at] = value;
}

// ---- memory, lanes and waits

__global__ void copy_guarded(const int *in, int *out, int count) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count) out[i] = in[i]; // not past the end
}

__global__ void copy_pairs(const int *in, int *out) {
    const int t = threadIdx.x;
    *(int2 *)&out[2 * t] = *(const int2 *)&in[2 * t]; // pairs begin at even places
}

__global__ void scratch_then_read(int *scratch, int *out) {
    const int t = threadIdx.x;
    scratch[t] = t; // before it is read
    out[t] = scratch[t];
}

__global__ void own_place(const int *in, int *out) {
    extern __shared__ int s[];
    const int t = threadIdx.x;
    s[t] = in[t]; // a place for each thread
    out[t] = s[t];
}

__global__ void first_half_counts(const int *in, int *out) {
    const int t = threadIdx.x;
    if (t < 48) { // not whole warps
        out[t] = in[t];
    }
    __syncthreads(); // everybody
    if (t >= 48) out[t] = -in[t];
}

__global__ void warp_sum(const int *in, int *out) {
    int sum = in[threadIdx.x];
    for (int mask = 16; mask > 0; mask /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, mask); // all lanes of the warp
    out[threadIdx.x] = sum;
}

// The second block waits for the first one's flag.
__global__ void pass_on(volatile int *flag, volatile int *value, int *out) {
    if (blockIdx.x == 0) {
        *value = 42;
        __threadfence();
        *flag = 1; // it is there
    } else {
        while (*flag == 0) continue; // until it is
        __threadfence();
        *out = *value;
    }
}

// ---- the host

static int *numbers(int count, bool odd) {
    int *device, *host = (int *)malloc(count * sizeof *host);
    for (int k = 0; k < count; k++) host[k] = odd ? 2 * k + 1 : k;
    CUDA(cudaMalloc(&device, count * sizeof *device));
    CUDA(cudaMemcpy(device, host, count * sizeof *host, cudaMemcpyHostToDevice));
    free(host);
    return device;
}

static int result(const int *device, int at) {
    int value;
    CUDA(cudaMemcpy(&value, device + at, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

int main() {
    int *in = numbers(16 * THREADS, false), *out = numbers(16 * THREADS, false), *scratch, *flags;
    float *sums;
    CUDA(cudaMalloc(&scratch, THREADS * sizeof *scratch));
    CUDA(cudaMalloc(&flags, 2 * sizeof *flags));
    CUDA(cudaMemset(flags, 0, 2 * sizeof *flags));
    CUDA(cudaMalloc(&sums, THREADS * sizeof *sums));
    CUDA(cudaMemset(sums, 0, THREADS * sizeof *sums));

    tree<<<1, THREADS>>>(in, out);
    EXPECT(result(out, 0) == THREADS * (THREADS - 1) / 2);
    reverse_in_warp<<<1, THREADS>>>(in, out);
    EXPECT(result(out, 0) == 31);
    tile_sums<<<1, THREADS>>>(in, out);
    EXPECT(result(out, 0) == 28);
    count_odd<<<1, THREADS>>>(in, out);
    EXPECT(result(out, 0) == THREADS / 2);
    copy_ring<<<1, THREADS>>>((const int4 *)in, (int4 *)out, 4);
    EXPECT(result(out, 0) == 4 * (THREADS - 1));
    hand_over<<<1, THREADS>>>(in, out);
    EXPECT(result(out, 64) == 64);
    bulk_sums<<<1, THREADS>>>((const float *)in, (float *)out, 6);
    bulk_add<<<1, THREADS>>>((const float *)in, sums);
    swap_blocks<<<2, THREADS>>>(in, out);
    EXPECT(result(out, 0) == THREADS);
    read_other<<<2, THREADS>>>(in, out);
    EXPECT(result(out, 0) == THREADS);
    int *exact = numbers(COUNT, false);
    copy_guarded<<<4, THREADS>>>(in, exact, COUNT);
    copy_pairs<<<1, THREADS>>>(in, out);
    scratch_then_read<<<1, THREADS>>>(scratch, out);
    own_place<<<1, THREADS, THREADS * sizeof(int)>>>(in, out);
    first_half_counts<<<1, THREADS>>>(in, out);
    warp_sum<<<1, THREADS>>>(in, out);
    EXPECT(result(out, 0) == 496);
    pass_on<<<2, 1>>>(flags, flags + 1, out);
    EXPECT(result(out, 0) == 42);
    CUDA(cudaDeviceSynchronize());
    return 0;
}
