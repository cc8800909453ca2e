// Hopper's asynchronous machinery: mbarriers, bulk copies (TMA), other blocks' shared memory.
#include "caches.h"

#include "device/mbarrier.h"
#include "device/proxy.h"
#include "device/tma.h"

// ---- mbarriers, one thread or two warps of a block

// Asks COUNT times for a phase that is over; what the answer is used for is not timed.
template <int COUNT> __global__ void ask_for_what_is_over(Span *spans) {
    __shared__ uint64_t barrier;
    mbarrier_init(&barrier, 1);
    fence_mbarrier_init();
    Span span = {};
#pragma unroll 1
    for (int round = 0; round < 2; round++) {
        span.begin = clock_now();
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            asm volatile(
                "{\n\t.reg .pred over;\n\t"
                "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 over, [%0], 1;\n\t}" ::"r"(
                    shared_address(&barrier))
                : "memory");
        span.end = clock_now();
    }
    spans[0] = span;
}

static double mbarrier_try() {
    ask_for_what_is_over<48><<<1, 1>>>(spans_on_device());
    const double more = elapsed(1);
    ask_for_what_is_over<16><<<1, 1>>>(spans_on_device());
    return (more - elapsed(1)) / 32;
}

// A thread arrives (announcing no bytes), and waits for the phase that ends by that.
__global__ void arrive_and_wait(Span *spans, int count) {
    __shared__ uint64_t barrier;
    mbarrier_init(&barrier, 1);
    fence_mbarrier_init();
    const uint64_t begin = clock_now();
    for (int k = 0; k < count; k++) {
        mbarrier_arrive_expect(&barrier, 0);
        mbarrier_wait(&barrier, k & 1);
    }
    spans[0].end = clock_now();
    spans[0].begin = begin;
}

static double mbarrier_own() {
    arrive_and_wait<<<1, 1>>>(spans_on_device(), 96);
    const double more = elapsed(1);
    arrive_and_wait<<<1, 1>>>(spans_on_device(), 32);
    return (more - elapsed(1)) / 64;
}

// Two warps hand the turn to each other and back.
__global__ void turns(Span *spans, int count) {
    __shared__ uint64_t barriers[2];
    if (threadIdx.x == 0) {
        mbarrier_init(&barriers[0], 1);
        mbarrier_init(&barriers[1], 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x % 32 != 0) return;
    const int me = threadIdx.x / 32;
    Span span;
    span.begin = clock_now();
    for (int k = 0; k < count; k++) {
        if (me == 0) mbarrier_arrive(&barriers[1]);
        mbarrier_wait(&barriers[me], k & 1);
        if (me == 1) mbarrier_arrive(&barriers[0]);
    }
    span.end = clock_now();
    if (me == 0) spans[0] = span;
}

static double mbarrier_round_trip() {
    turns<<<1, 64>>>(spans_on_device(), 96);
    const double more = elapsed(1);
    turns<<<1, 64>>>(spans_on_device(), 32);
    return (more - elapsed(1)) / 64;
}

// ---- bulk copies

static const uint32_t COPY_BYTES = 128, COPIES = 64;

// COPIES copies of a line, one after the other; the last SPAN's time is the mean.
__global__ void load_lines(Span *spans, const uint8_t *from, int rounds) {
    __shared__ __align__(128) uint8_t smem[COPY_BYTES];
    __shared__ uint64_t full;
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    uint32_t parity = 0;
    for (int round = 0; round < rounds; round++) {
        const uint64_t begin = clock_now();
        for (uint32_t k = 0; k < COPIES; k++, parity ^= 1) {
            mbarrier_arrive_expect(&full, COPY_BYTES);
            bulk_load(smem, from + k * COPY_BYTES, COPY_BYTES, &full);
            mbarrier_wait(&full, parity);
        }
        spans[0].begin = begin;
        spans[0].end = clock_now();
    }
}

static double load_cycles(int rounds) {
    static uint8_t *from;
    if (!from) CUDA(cudaMalloc(&from, COPIES * COPY_BYTES));
    CUDA(cudaMemset(from, 0, COPIES * COPY_BYTES));
    flush_l2();
    load_lines<<<1, 1>>>(spans_on_device(), from, rounds);
    return elapsed(1) / COPIES;
}

// From the copy's start until the waiter goes on; the line is in L2, or in memory only.
static double bulk_l2_latency() {
    return load_cycles(2);
}
static double bulk_dram_latency() {
    return load_cycles(1);
}

// COUNT copies on their way; only their start is timed.
template <int COUNT> __global__ void start_copies(Span *spans, const uint8_t *from) {
    __shared__ __align__(128) uint8_t smem[64 * 16];
    __shared__ uint64_t full;
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    Span span = {};
#pragma unroll 1
    for (int round = 0; round < 2; round++) {
        mbarrier_arrive_expect(&full, COUNT * 16);
        span.begin = clock_now();
#pragma unroll
        for (int k = 0; k < COUNT; k++) bulk_load(smem + 16 * k, from, 16, &full);
        span.end = clock_now();
        mbarrier_wait(&full, round);
    }
    spans[0] = span;
}

static double bulk_issue() {
    uint8_t *from;
    CUDA(cudaMalloc(&from, 128));
    CUDA(cudaMemset(from, 0, 128));
    start_copies<48><<<1, 1>>>(spans_on_device(), from);
    const double more = elapsed(1);
    start_copies<16><<<1, 1>>>(spans_on_device(), from);
    return (more - elapsed(1)) / 32;
}

// Every block streams its part in pieces of STAGE_BYTES, STAGES of them under way.
enum { STAGES = 8, STAGE_BYTES = 16 * 1024 };

__global__ void stream_in(const uint8_t *from, int pieces) {
    extern __shared__ __align__(128) uint8_t stages[];
    __shared__ uint64_t full[STAGES];
    if (threadIdx.x != 0) return;
    for (int s = 0; s < STAGES; s++) mbarrier_init(&full[s], 1);
    fence_mbarrier_init();
    for (int k = 0; k < pieces + STAGES; k++) {
        const int s = k % STAGES;
        if (k >= STAGES) mbarrier_wait(&full[s], (k / STAGES - 1) & 1);
        if (k >= pieces) continue;
        mbarrier_arrive_expect(&full[s], STAGE_BYTES);
        bulk_load(stages + s * STAGE_BYTES,
                  from + ((size_t)k * gridDim.x + blockIdx.x) * STAGE_BYTES, STAGE_BYTES, &full[s]);
    }
}

static double stream_seconds(int pieces) {
    const int blocks = device().multiProcessorCount;
    const size_t bytes = (size_t)pieces * blocks * STAGE_BYTES;
    uint8_t *from;
    CUDA(cudaFuncSetAttribute(stream_in, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              STAGES * STAGE_BYTES));
    CUDA(cudaMalloc(&from, bytes));
    CUDA(cudaMemset(from, 0, bytes));
    flush_l2();
    Stopwatch watch = start();
    stream_in<<<blocks, 32, STAGES * STAGE_BYTES>>>(from, pieces);
    const double seconds = stop(watch);
    CUDA(cudaFree(from));
    return seconds;
}

// Of the whole GPU from memory, bytes a second.
static double stream_rate() {
    const double bytes = 16.0 * STAGE_BYTES * device().multiProcessorCount;
    return bytes / (stream_seconds(32) - stream_seconds(16));
}
static double hbm_bulk_tb() {
    return stream_rate() * 1e-12;
}
static double hbm_bulk_cycle() {
    return stream_rate() / clock_rate();
}

// ---- other blocks' shared memory

__device__ static uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ static void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ static uint32_t in_block(uint32_t address, uint32_t rank) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

// Starts a kernel as one cluster of `blocks`, each with an SM for itself.
template <typename... Parameters, typename... Arguments>
static void run_cluster(void (*kernel)(Parameters...), int blocks, int threads, int smem,
                        Arguments... arguments) {
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = blocks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = smem;
    config.attrs = &cluster;
    config.numAttrs = 1;
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
    CUDA(cudaLaunchKernelEx(&config, kernel, arguments...));
}

static const int ALONE = 120 * 1024; // bytes of shared memory: two such blocks don't fit on an SM

// A word of block `of` that holds its own address in the cluster; block 0 follows it.
template <int COUNT> __global__ void chase_remote(Span *spans, uint32_t of) {
    extern __shared__ __align__(16) uint32_t word[];
    uint32_t x = in_block(shared_address(word), of);
    if (threadIdx.x == 0)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared_address(word)), "r"(x));
    cluster_sync();
    Span span = {};
    if (cluster_rank() == 0)
#pragma unroll 1
        for (int round = 0; round < 2; round++) {
            span.begin = clock_now();
#pragma unroll
            for (int k = 0; k < COUNT; k++)
                asm volatile("ld.shared::cluster.u32 %0, [%0];" : "+r"(x)::"memory");
            span.end = clock_now();
        }
    cluster_sync();
    if (blockIdx.x == 0) spans[0] = span;
}

static double remote_load(int blocks, uint32_t of) {
    run_cluster(chase_remote<48>, blocks, 1, ALONE, spans_on_device(), of);
    const double more = elapsed(1);
    run_cluster(chase_remote<16>, blocks, 1, ALONE, spans_on_device(), of);
    return (more - elapsed(1)) / 32;
}

static double remote_load_latency() {
    return remote_load(2, 1);
}

// From block 0 of a cluster of 8 to the others.
static double remote_load_mean() {
    double sum = 0;
    for (int of = 1; of < 8; of++) sum += remote_load(8, of);
    return sum / 7;
}

// Block 0 of two moves TILE bytes from (or to) the other one, by 512 threads or by bulk copies; with
// `both`, the other one does so too. The time of TURNS such moves less that of one. Bulk copies of
// one tile come to a place of their own each.
enum { REMOTE_THREADS = 512, TILE = 24 * 1024, PIECE = 8 * 1024, TURNS = 3 };
enum Move { LOADS, STORES, COPIES_OUT };

template <Move MOVE> __global__ void move_remote(Span *spans, int turns, bool both) {
    extern __shared__ __align__(128) uint8_t smem[];
    __shared__ uint64_t full;
    const uint32_t rank = cluster_rank(), here = shared_address(smem);
    const uint32_t there = in_block(here + (MOVE == COPIES_OUT ? TILE : 0), rank ^ 1);
    for (int k = threadIdx.x; k < TILE / 4; k += REMOTE_THREADS) ((uint32_t *)smem)[k] = 0;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init();
        if (MOVE == COPIES_OUT && (both || rank == 1)) mbarrier_arrive_expect(&full, turns * TILE);
    }
    fence_proxy_async();
    cluster_sync();
    Span span = {};
    span.begin = clock_now();
    if (both || rank == 0) {
        if (MOVE == COPIES_OUT && threadIdx.x == 0)
            for (int at = 0; at < turns * TILE; at += PIECE)
                asm volatile(
                    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                    "[%0], [%1], %2, [%3];" ::"r"(there + at),
                    "r"(here + at % TILE), "r"(PIECE),
                    "r"(in_block(shared_address(&full), rank ^ 1))
                    : "memory");
        uint32_t sum = 0;
        if (MOVE != COPIES_OUT)
#pragma unroll 4
            for (int at = 16 * threadIdx.x; at < turns * TILE; at += 16 * REMOTE_THREADS) {
                uint32_t a = 0, b = 0, c = 0, d = 0;
                if (MOVE == LOADS) {
                    asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                                 : "r"(there + at % TILE)
                                 : "memory");
                    asm volatile("xor.b32 %0, %0, %1;" : "+r"(sum) : "r"(a));
                } else {
                    asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(
                                     there + at % TILE),
                                 "r"(0)
                                 : "memory");
                }
            }
    }
    if (MOVE == COPIES_OUT && (both || rank == 1)) mbarrier_wait(&full, 0);
    if (MOVE == STORES) cluster_sync(); // until they have arrived
    span.end = clock_now();
    cluster_sync();
    const uint32_t timed = MOVE == COPIES_OUT ? 1 : 0; // who sees the end
    if (rank == timed && threadIdx.x % 32 == 0) spans[threadIdx.x / 32] = span;
}

template <Move MOVE> static double remote_rate(bool both) {
    double cycles[2];
    for (int k = 0; k < 2; k++) {
        run_cluster(move_remote<MOVE>, 2, REMOTE_THREADS, ALONE, spans_on_device(), k ? 1 : TURNS,
                    both);
        cycles[k] = elapsed(REMOTE_THREADS / 32);
    }
    return (TURNS - 1.0) * TILE / (cycles[0] - cycles[1]);
}

static double remote_load_rate() {
    return remote_rate<LOADS>(false);
}
static double remote_load_rate_both() {
    return remote_rate<LOADS>(true);
}
static double remote_store_rate() {
    return remote_rate<STORES>(false);
}
static double remote_copy_rate() {
    return remote_rate<COPIES_OUT>(false);
}

// A store to another block, and a fence behind which the cluster sees it.
template <int COUNT> __global__ void store_and_fence(Span *spans) {
    extern __shared__ __align__(16) uint32_t word[];
    const uint32_t there = in_block(shared_address(word), 1);
    cluster_sync();
    Span span = {};
    if (cluster_rank() == 0)
#pragma unroll 1
        for (int round = 0; round < 2; round++) {
            span.begin = clock_now();
#pragma unroll
            for (int k = 0; k < COUNT; k++) {
                asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(k) : "memory");
                asm volatile("fence.acq_rel.cluster;" ::: "memory");
            }
            span.end = clock_now();
        }
    cluster_sync();
    if (blockIdx.x == 0) spans[0] = span;
}

static double remote_store_fence() {
    run_cluster(store_and_fence<24>, 2, 1, ALONE, spans_on_device());
    const double more = elapsed(1);
    run_cluster(store_and_fence<8>, 2, 1, ALONE, spans_on_device());
    return (more - elapsed(1)) / 16;
}

// Both blocks meet, again and again.
__global__ void meet(Span *spans, int count) {
    Span span;
    span.begin = clock_now();
    for (int k = 0; k < count; k++) cluster_sync();
    span.end = clock_now();
    if (blockIdx.x == 0 && threadIdx.x == 0) spans[0] = span;
}

static double cluster_barrier() {
    run_cluster(meet, 2, 32, ALONE, spans_on_device(), 48);
    const double more = elapsed(1);
    run_cluster(meet, 2, 32, ALONE, spans_on_device(), 16);
    return (more - elapsed(1)) / 32;
}

// ---- how many SMs clusters of 8 find

static double cluster_8_sms() {
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = 8;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(8 * device().multiProcessorCount);
    config.blockDim = dim3(32);
    config.dynamicSmemBytes = ALONE;
    config.attrs = &cluster;
    config.numAttrs = 1;
    int clusters;
    CUDA(cudaFuncSetAttribute(meet, cudaFuncAttributeMaxDynamicSharedMemorySize, ALONE));
    CUDA(cudaOccupancyMaxActiveClusters(&clusters, meet, &config));
    return 8.0 * clusters;
}

static const Bench benches[] = {
    {"mbarrier_try", mbarrier_try, "cycles"},
    {"mbarrier_own", mbarrier_own, "cycles"},
    {"mbarrier_round_trip", mbarrier_round_trip, "cycles"},
    {"bulk_l2_latency", bulk_l2_latency, "cycles"},
    {"bulk_dram_latency", bulk_dram_latency, "cycles"},
    {"bulk_issue", bulk_issue, "cycles"},
    {"hbm_bulk_tb", hbm_bulk_tb, "TB/s"},
    {"hbm_bulk_cycle", hbm_bulk_cycle, "B/cycle"},
    {"remote_load_latency", remote_load_latency, "cycles"},
    {"remote_load_mean", remote_load_mean, "cycles"},
    {"remote_load_rate", remote_load_rate, "B/cycle"},
    {"remote_load_rate_both", remote_load_rate_both, "B/cycle"},
    {"remote_store_rate", remote_store_rate, "B/cycle"},
    {"remote_copy_rate", remote_copy_rate, "B/cycle"},
    {"remote_store_fence", remote_store_fence, "cycles"},
    {"cluster_barrier", cluster_barrier, "cycles"},
    {"cluster_8_sms", cluster_8_sms, "SMs"},
};

int main(int argc, char **argv) {
    return ANSWER(argc, argv, benches);
}
