// Small right kernels whose blocks, warps or lanes hand data on through global memory, or in other
// unusual ways: lock-free, by flags, counters, locks and rings. bugs.h has their bugs: lines
// without which each is a race. Every line that bugs.h names stands here once. Run with
// SEEDED_BUG=0, all of them are right, and their results are checked.
#include <cooperative_groups.h>

#include "programs/check.h"
#include "device/cluster.h"
#include "device/cp_async.h"
#include "device/mbarrier.h"
#include "device/named_barrier.h"
#include "device/proxy.h"
#include "device/tma.h"

enum { THREADS = 128, WARPS = THREADS / 32, BLOCKS = 12, COUNT = BLOCKS * THREADS };

__device__ static int load_acquire(const int *flag) {
    int value;
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}
__device__ static int load_relaxed(const int *flag) {
    int value;
    asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}
__device__ static void store_release(int *flag, int value) {
    asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ static void store_release_block(int *flag, int value) {
    asm volatile("st.release.cta.global.b32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ static void store_relaxed(int *flag, int value) {
    asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

// An mbarrier of this block, which others of the cluster arrive at.
__device__ static void wait_in_cluster(uint64_t *barrier, uint32_t parity) {
    asm volatile("{ .reg .pred p;\n"
                 "WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra WAIT; }" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}
__device__ static void arrive_in(uint32_t rank, uint64_t *barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                     cluster_address(barrier, rank))
                 : "memory");
}
__device__ static void store_in(uint32_t rank, int *to, int value) {
    asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(cluster_address(to, rank)), "r"(value)
                 : "memory");
}
__device__ static void send_to(uint32_t rank, int *to, int value, uint64_t *barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                     cluster_address(to, rank)),
                 "r"(value), "r"(cluster_address(barrier, rank))
                 : "memory");
}
__device__ static void arrive_behind_copies(uint64_t *barrier) {
    asm volatile(
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
        : "memory");
}
__device__ static void bulk_store(float *to, const float *from_smem, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                     __cvta_generic_to_global(to)),
                 "r"(shared_address(from_smem)), "r"(bytes)
                 : "memory");
}

// ---- reductions

// Each block leaves a part; the last one to have done so sums them up.
__global__ void last_block(const int *in, int *parts, unsigned *done, int *out) {
    __shared__ bool last;
    const int t = threadIdx.x;
    parts[blockIdx.x * THREADS + t] = 2 * in[blockIdx.x * THREADS + t]; // its part
    __syncthreads(); // the block's part → the thread that counts
    if (t == 0) {
        __threadfence(); // the part, before the count
        last = atomicAdd(done, 1) == gridDim.x - 1;
        __threadfence(); // the others' parts, behind their counts
    }
    __syncthreads(); // who is last, and what it knows → all threads
    if (!last) return;
    int sum = 0;
    for (int b = 0; b < (int)gridDim.x; b++) sum += parts[b * THREADS + t]; // all parts
    out[t] = sum;
}

// How often each value occurs, over all blocks.
__global__ void histogram(const int *in, int *bins) {
    atomicAdd(&bins[in[blockIdx.x * THREADS + threadIdx.x] % 16], 1); // any block's bin
}

// ---- barriers of the whole grid

// By a counter that only grows: sum, then difference of neighbours, over and over.
__global__ void grid_barrier(int *a, int *b, unsigned *arrived, int rounds) {
    const int i = blockIdx.x * THREADS + threadIdx.x, n = gridDim.x * THREADS;
    for (int round = 0; round < rounds; round++) {
        const int *from = round % 2 ? b : a;
        int *to = round % 2 ? a : b;
        to[i] = from[i] + from[(i + 1) % n]; // reads a neighbour block's number
        __syncthreads();                     // all numbers of the block → the thread that arrives
        if (threadIdx.x == 0) {
            __threadfence(); // the numbers, before the arrival
            atomicAdd(arrived, 1);
            while (*(volatile unsigned *)arrived < (round + 1) * gridDim.x) continue;
            __threadfence(); // the others' numbers, behind their arrivals
        }
        __syncthreads(); // → all threads of the block
    }
}

__global__ void cooperative(int *a, int *b) {
    const int i = blockIdx.x * THREADS + threadIdx.x, n = gridDim.x * THREADS;
    b[i] = a[i];
    cooperative_groups::this_grid().sync(); // b is there
    a[i] = b[(i + THREADS) % n];            // the next block's
}

// ---- flags and turns

// A prefix sum with decoupled look-back: each block's sum, and its prefix once it has that.
__global__ void look_back(const int *in, int *out, int *sums, int *prefixes, int *states) {
    __shared__ int before, sum;
    const int t = threadIdx.x, at = blockIdx.x;
    if (t == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, in[at * THREADS + t]);
    __syncthreads();
    if (t == 0) {
        sums[at] = sum;
        if (at > 0) {
            __threadfence(); // the sum, before its state
            store_relaxed(&states[at], 1);
        }
        int all = 0;
        for (int k = at - 1; k >= 0;) {
            const int state = load_relaxed(&states[k]);
            if (state == 0) continue;
            __threadfence();                           // behind the state
            all += state == 2 ? prefixes[k] : sums[k]; // what is there of block k
            k = state == 2 ? -1 : k - 1;
        }
        before = all;
        prefixes[at] = all + sum;
        __threadfence(); // the prefix, before its state
        store_relaxed(&states[at], 2);
    }
    __syncthreads();
    out[at * THREADS + t] = before;
}

// Each block waits for the one before it and adds to its row: sums in a fixed order.
__global__ void turns(const int *in, int *row, int *turn) {
    const int t = threadIdx.x;
    if (t == 0)
        while (load_acquire(turn) != (int)blockIdx.x) continue;
    __syncthreads();                                    // its turn → all threads
    row[t] = row[t] / 2 + in[blockIdx.x * THREADS + t]; // in turn
    __syncthreads();                                    // all have added
    if (t == 0) store_release(turn, blockIdx.x + 1);    // the next one's
}

// A block hands rows to the next one, there and back.
__global__ void ping_pong(int *row, int *flag, int rounds) {
    const int t = threadIdx.x, me = blockIdx.x;
    for (int round = me; round < rounds; round += 2) {
        if (t == 0) {
            while (*(volatile int *)flag != round) continue; // the other is done
            __threadfence();                                 // behind the flag
        }
        __syncthreads();                               // the flag → all threads
        row[t] = row[THREADS + (t + 1) % THREADS] + 1; // what the other one wrote last
        __syncthreads();                               // all have read
        row[THREADS + t] = row[t];
        __syncthreads(); // all numbers → the thread that tells
        if (t == 0) {
            __threadfence(); // the numbers, before the flag
            *(volatile int *)flag = round + 1;
        }
    }
}

// ---- locks and queues

__global__ void ticket_lock(unsigned *next, unsigned *serving, int *guarded) {
    if (threadIdx.x % 32 != 0) return;
    const unsigned ticket = atomicAdd(next, 1);
    while (*(volatile unsigned *)serving != ticket) continue;
    __threadfence();                    // what the one before has done
    *guarded = *guarded * 3 % 1000 + 1; // one at a time
    __threadfence();                    // before the next ticket
    atomicAdd(serving, 1);
}

// Blocks take rows from a counter until there is none left.
__global__ void work_queue(const int *in, int *out, unsigned *next, int rows) {
    __shared__ unsigned row;
    for (;;) {
        __syncthreads();                                // all have read the last row's number
        if (threadIdx.x == 0) row = atomicAdd(next, 1); // a row of its own
        __syncthreads();
        if (row >= (unsigned)rows) return;
        out[row * THREADS + threadIdx.x] = in[row * THREADS + threadIdx.x] + 1; // the row
    }
}

// ---- one block's warps and lanes, through global memory

// Sums of warps in steps that only bar.warp.sync keeps apart.
__global__ void warp_steps(const int *in, int *scratch, int *out) {
    const int t = threadIdx.x, lane = t % 32;
    scratch[t] = in[t];
    __syncwarp(); // → the lanes
    for (int half = 16; half > 0; half /= 2) {
        if (lane < half) scratch[t] += scratch[t + half];
        __syncwarp(); // this step → the next one
    }
    if (lane == 0) out[t / 32] = scratch[t];
}

// Two warps fill a row of global memory, two take it; a named barrier each way.
__global__ void relay(const int *in, int *scratch, int *out) {
    const int t = threadIdx.x % 64;
    for (int round = 0; round < 4; round++) {
        if (threadIdx.x < 64) {
            if (round > 0) named_barrier_sync(2, THREADS); // has been taken
            scratch[t] = in[t] + round;
            named_barrier_arrive(1, THREADS);
        } else {
            named_barrier_sync(1, THREADS); // has been filled
            out[round * 64 + t] = scratch[63 - t];
            if (round < 3) named_barrier_arrive(2, THREADS);
        }
    }
}

// cp.async that arrives by itself at an mbarrier.
__global__ void copy_arrives(const int4 *in, int4 *out) {
    __shared__ int4 s[THREADS];
    __shared__ uint64_t full;
    const int t = threadIdx.x;
    if (t == 0) mbarrier_init(&full, THREADS);
    __syncthreads();
    cp_async16(&s[t], &in[t]);
    arrive_behind_copies(&full); // when its copy has landed
    mbarrier_wait(&full, 0);     // all copies
    out[t] = s[THREADS - 1 - t];
}

// ---- clusters

// A lock-free pipeline: the first block writes into a ring in the second one's shared memory, and
// mbarriers, one in each block, say that a stage is full, or empty again.
__global__ void __cluster_dims__(2, 1, 1) cluster_pipeline(const int *in, int *out, int tiles) {
    __shared__ int ring[2][THREADS];
    __shared__ uint64_t full[2], empty[2];
    const int t = threadIdx.x;
    const uint32_t rank = cluster_rank(), other = rank ^ 1;
    if (t == 0) {
        for (int k = 0; k < 2; k++) {
            mbarrier_init(&full[k], THREADS);
            mbarrier_init(&empty[k], THREADS);
        }
        fence_mbarrier_init();
    }
    cluster_sync();
    for (int tile = 0; tile < tiles; tile++) {
        const int k = tile % 2, parity = tile / 2 % 2;
        if (rank == 0) {
            if (tile >= 2) wait_in_cluster(&empty[k], parity ^ 1); // the stage has been read
            store_in(other, &ring[k][t], in[tile * THREADS + t]);  // into the other block's ring
            arrive_in(other, &full[k]);
        } else {
            wait_in_cluster(&full[k], parity);                  // the stage is full
            out[tile * THREADS + t] = ring[k][THREADS - 1 - t]; // out of the ring
            arrive_in(other, &empty[k]);
        }
    }
    cluster_sync();
}

// A ring of blocks: each sends its number to the next one, by st.async, round and round.
__global__ void __cluster_dims__(4, 1, 1) async_ring(const int *in, int *out) {
    __shared__ __align__(16) int inbox[4];
    __shared__ uint64_t arrived[4];
    const uint32_t next = (cluster_rank() + 1) % 4;
    if (threadIdx.x == 0) {
        for (int k = 0; k < 4; k++) mbarrier_init(&arrived[k], 1);
        fence_mbarrier_init();
    }
    cluster_sync();
    if (threadIdx.x == 0) {
        int sum = in[blockIdx.x];
        for (int k = 0; k < 3; k++) {
            mbarrier_arrive_expect(&arrived[k], sizeof(int));
            send_to(next, &inbox[k], sum, &arrived[k]);
            mbarrier_wait(&arrived[k], 0);   // the number from the block before
            sum = in[blockIdx.x] + inbox[k]; // has come
        }
        out[blockIdx.x] = sum;
    }
    cluster_sync();
}

// ---- bulk copies

// A block writes a row by TMA, tells the others so, and they load it by TMA.
__global__ void store_then_load(const float *in, float *row, int *flag, float *out) {
    __shared__ __align__(128) float s[THREADS];
    __shared__ uint64_t full;
    const int t = threadIdx.x;
    if (t == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init();
    }
    s[t] = in[t];
    fence_proxy_async();
    __syncthreads();
    if (blockIdx.x == 0) {
        if (t != 0) return;
        bulk_store(row, s, sizeof s); // the row
        tma_commit();
        tma_wait_written<0>(); // it is in global memory
        __threadfence();
        store_relaxed(flag, 1);
        return;
    }
    if (t == 0) {
        while (load_acquire(flag) == 0) continue; // until it is there
        mbarrier_arrive_expect(&full, sizeof s);
        bulk_load(s, row, sizeof s, &full); // the row, by TMA
    }
    mbarrier_wait(&full, 0);
    out[(blockIdx.x - 1) * THREADS + t] = s[t];
}

// A block writes a row with plain stores and loads it by TMA.
__global__ void write_then_load(const float *in, float *row, float *out) {
    __shared__ __align__(128) float s[THREADS];
    __shared__ uint64_t full;
    const int t = threadIdx.x;
    if (t == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    row[blockIdx.x * THREADS + t] = in[t]; // through the generic proxy
    fence_proxy_async_global();            // → TMA
    __syncthreads();                       // all numbers, before the thread that loads
    if (t == 0) {
        mbarrier_arrive_expect(&full, sizeof s);
        bulk_load(s, row + blockIdx.x * THREADS, sizeof s, &full); // what all have written
    }
    mbarrier_wait(&full, 0);
    out[blockIdx.x * THREADS + t] = s[THREADS - 1 - t];
}

// ---- the host

static int *numbers(int count) {
    int *device, *host = (int *)malloc(count * sizeof *host);
    for (int k = 0; k < count; k++) host[k] = k;
    CUDA(cudaMalloc(&device, count * sizeof *device));
    CUDA(cudaMemcpy(device, host, count * sizeof *host, cudaMemcpyHostToDevice));
    free(host);
    return device;
}

static int *zeros(int count) {
    int *device;
    CUDA(cudaMalloc(&device, count * sizeof *device));
    CUDA(cudaMemset(device, 0, count * sizeof *device));
    return device;
}

static int result(const int *device, int at) {
    int value;
    CUDA(cudaMemcpy(&value, device + at, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

static void reductions(const int *in) {
    int *out = zeros(COUNT), *bins = zeros(16);
    last_block<<<BLOCKS, THREADS>>>(in, zeros(COUNT), (unsigned *)zeros(1), out);
    EXPECT(result(out, 1) == 2 * (BLOCKS + THREADS * BLOCKS * (BLOCKS - 1) / 2));
    histogram<<<BLOCKS, THREADS>>>(in, bins);
    EXPECT(result(bins, 3) == COUNT / 16);
}

static void grids() {
    int *a = numbers(COUNT), *b = zeros(COUNT);
    grid_barrier<<<BLOCKS, THREADS>>>(a, b, (unsigned *)zeros(1), 3);
    EXPECT(result(b, 0) == 0 + 3 * 1 + 3 * 2 + 3);
    void *arguments[] = {&a, &b};
    a = numbers(COUNT);
    CUDA(cudaLaunchCooperativeKernel((void *)cooperative, BLOCKS, THREADS, arguments, 0, 0));
    EXPECT(result(a, 0) == THREADS);
}

static void flags(const int *in) {
    int *out = zeros(COUNT), *row = zeros(2 * THREADS);
    look_back<<<BLOCKS, THREADS>>>(in, out, zeros(BLOCKS), zeros(BLOCKS), zeros(BLOCKS));
    EXPECT(result(out, 2 * THREADS) == 2 * THREADS * (2 * THREADS - 1) / 2);
    turns<<<2, THREADS>>>(in, row, zeros(1));
    EXPECT(result(row, 0) == THREADS);
    row = zeros(2 * THREADS);
    ping_pong<<<2, THREADS>>>(row, zeros(1), 8);
    EXPECT(result(row, 5) == 8);
}

static void queues(const int *in) {
    int *guarded = zeros(1), *out = zeros(COUNT), expected = 0;
    ticket_lock<<<BLOCKS, THREADS>>>((unsigned *)zeros(1), (unsigned *)zeros(1), guarded);
    for (int k = 0; k < BLOCKS * WARPS; k++) expected = expected * 3 % 1000 + 1;
    EXPECT(result(guarded, 0) == expected);
    work_queue<<<5, THREADS>>>(in, out, (unsigned *)zeros(1), BLOCKS);
    EXPECT(result(out, COUNT - 1) == COUNT);
}

static void warps(const int *in) {
    int *out = zeros(4 * THREADS);
    warp_steps<<<1, THREADS>>>(in, zeros(THREADS), out);
    EXPECT(result(out, 0) == 496);
    relay<<<1, THREADS>>>(in, zeros(64), out);
    EXPECT(result(out, 64) == 64);
    copy_arrives<<<1, THREADS>>>((const int4 *)in, (int4 *)out);
    EXPECT(result(out, 0) == 4 * (THREADS - 1));
}

static void clusters(const int *in) {
    int *out = zeros(COUNT);
    cluster_pipeline<<<2, THREADS>>>(in, out, 6);
    EXPECT(result(out, THREADS) == 2 * THREADS - 1);
    async_ring<<<4, 32>>>(in, out);
    EXPECT(result(out, 2) == 0 + 1 + 2 + 3);
}

static void copies(const int *in) {
    float *out = (float *)zeros(COUNT), *row = (float *)zeros(COUNT);
    store_then_load<<<4, THREADS>>>((const float *)in, row, zeros(1), out);
    EXPECT(result((int *)out, 2 * THREADS + 7) == 7);
    write_then_load<<<4, THREADS>>>((const float *)in, row, out);
    EXPECT(result((int *)out, THREADS) == THREADS - 1);
}

int main() {
    const int *in = numbers(COUNT);
    reductions(in);
    grids();
    flags(in);
    queues(in);
    warps(in);
    clusters(in);
    copies(in);
    CUDA(cudaDeviceSynchronize());
    return 0;
}
