// Global memory: latencies of L2 and HBM by pointer chases, bandwidths by kernels over the whole
// GPU, atomics, and what launching costs.
#include "caches.h"

#include <vector>

#include "device/cp_async.h"

// ---- pointer chases

// A power of two of lines in a ring, in an order without pattern: each holds the next's address.
static void **ring_of_lines(size_t lines) {
    const size_t words = LINE / sizeof(void *);
    uint8_t *ring;
    CUDA(cudaMalloc(&ring, lines * LINE));
    std::vector<uint8_t *> next(lines * words);
    // x → 5 x + 1 (mod a power of two) visits every line; scattered, so that no stride is seen.
    size_t x = 0;
    const auto place = [&](size_t line) { return (line * 40503u) % lines; };
    for (size_t k = 0; k < lines; k++) {
        const size_t then = (5 * x + 1) % lines;
        next[place(x) * words] = ring + place(then) * LINE;
        x = then;
    }
    CUDA(cudaMemcpy(ring, next.data(), lines * LINE, cudaMemcpyHostToDevice));
    return (void **)ring;
}

__global__ void chase(Span *spans, void **first, int steps) {
    void *x = first;
    const uint64_t begin = clock_now();
#pragma unroll 1
    for (int k = 0; k < steps; k += 32)
#pragma unroll
        for (int i = 0; i < 32; i++) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(x)::"memory");
    const bool odd = (uintptr_t)x % LINE != 0; // waits for the last one
    const uint64_t end = clock_now();
    spans[0].begin = begin;
    spans[0].end = odd ? begin : end;
}

static double chase_cycles(void **ring, int steps) {
    chase<<<1, 1>>>(spans_on_device(), ring, steps);
    return elapsed(1) / steps;
}

enum { STEPS = 1024 };

// Lines that are in L2; at most `part` of it is in use.
static double l2_latency(double part) {
    size_t lines = STEPS;
    while (2 * lines * LINE <= part * device().l2CacheSize) lines *= 2;
    void **ring = ring_of_lines(lines);
    flush_l2();
    touch_all(ring, lines * LINE);
    chase_cycles(ring, (int)lines); // as published chases do, which go round and round
    const double cycles = chase_cycles(ring, STEPS);
    CUDA(cudaFree(ring));
    return cycles;
}

static double l2_near_latency() {
    return l2_latency(0.1);
}

// So much of L2 that a line is held in one of its halves only.
static double l2_far_latency() {
    return l2_latency(0.9);
}

// Lines that are nowhere but in memory.
static double dram_latency() {
    void **ring = ring_of_lines(STEPS);
    flush_l2();
    const double cycles = chase_cycles(ring, STEPS);
    CUDA(cudaFree(ring));
    return cycles;
}

// ---- bandwidths: the time of twice the work less that of once

enum { THREADS = 512, DEPTH = 4 }; // DEPTH: 16-byte pieces of a thread under way

__global__ void read_all(const uint8_t *from, size_t pieces) {
    const size_t step = (size_t)gridDim.x * THREADS;
    uint32_t sum = 0;
    for (size_t k = (size_t)blockIdx.x * THREADS + threadIdx.x; k < pieces; k += step * DEPTH) {
        Piece piece[DEPTH];
#pragma unroll
        for (int i = 0; i < DEPTH; i++)
            piece[i] = load_piece(from + 16 * (k + i * step < pieces ? k + i * step : k));
#pragma unroll
        for (int i = 0; i < DEPTH; i++) use_piece(&sum, piece[i]);
    }
}

// The same into shared memory, by cp.async; two groups of copies are under way.
__global__ void copy_in_all(const uint8_t *from, size_t pieces) {
    __shared__ __align__(16) uint8_t smem[2][DEPTH][THREADS][16];
    const size_t step = (size_t)gridDim.x * THREADS;
    int stage = 0;
    for (size_t k = (size_t)blockIdx.x * THREADS + threadIdx.x; k < pieces; k += step * DEPTH) {
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            const size_t piece = k + i * step < pieces ? k + i * step : k;
            cp_async16(smem[stage][i][threadIdx.x], from + 16 * piece);
        }
        cp_async_commit();
        cp_async_wait<1>();
        stage ^= 1;
    }
    cp_async_wait<0>();
}

__global__ void copy_all(uint8_t *to, const uint8_t *from, size_t pieces) {
    const size_t step = (size_t)gridDim.x * THREADS;
    for (size_t k = (size_t)blockIdx.x * THREADS + threadIdx.x; k < pieces; k += step * DEPTH) {
        uint4 piece[DEPTH];
#pragma unroll
        for (int i = 0; i < DEPTH; i++)
            if (k + i * step < pieces) piece[i] = __ldcg((const uint4 *)from + k + i * step);
#pragma unroll
        for (int i = 0; i < DEPTH; i++)
            if (k + i * step < pieces) ((uint4 *)to)[k + i * step] = piece[i];
    }
}

static int grid_of(int blocks_per_sm) {
    return device().multiProcessorCount * blocks_per_sm;
}
enum {
    READERS = 4,
    COPIERS = 2
}; // blocks an SM: all threads it holds, and what shared memory holds

// Seconds that a kernel takes to read `bytes` that are in memory only.
template <void (*KERNEL)(const uint8_t *, size_t)>
static double read_seconds(size_t bytes, int blocks) {
    void *from;
    CUDA(cudaMalloc(&from, bytes));
    CUDA(cudaMemset(from, 0, bytes));
    flush_l2();
    Stopwatch watch = start();
    KERNEL<<<blocks, THREADS>>>((const uint8_t *)from, bytes / 16);
    const double seconds = stop(watch);
    CUDA(cudaFree(from));
    return seconds;
}

// Of the whole GPU, bytes a second.
template <void (*KERNEL)(const uint8_t *, size_t)> static double read_rate(int blocks) {
    const size_t unit = (size_t)grid_of(COPIERS) * THREADS * 16 * DEPTH, less = 4 * unit;
    return 2.0 * less /
           (read_seconds<KERNEL>(3 * less, blocks) - read_seconds<KERNEL>(less, blocks));
}

static double hbm_read_tb() {
    return read_rate<read_all>(grid_of(READERS)) * 1e-12;
}
static double hbm_copy_in_tb() {
    return read_rate<copy_in_all>(grid_of(COPIERS)) * 1e-12;
}

// Bytes for a cycle of the SMs' clock.
static double hbm_read_cycle() {
    return read_rate<read_all>(grid_of(READERS)) / clock_rate();
}
static double hbm_copy_in_cycle() {
    return read_rate<copy_in_all>(grid_of(COPIERS)) / clock_rate();
}

// Read and written, counted together. What is copied is much more than L2 holds, else some of what
// is written stays there.
static double copy_seconds(size_t bytes) {
    uint8_t *from, *to;
    CUDA(cudaMalloc(&from, bytes));
    CUDA(cudaMalloc(&to, bytes));
    CUDA(cudaMemset(from, 0, bytes));
    // The first copy leaves L2 full of lines to be written, as the second finds it and leaves it.
    copy_all<<<grid_of(READERS), THREADS>>>(to, from, bytes / 16);
    CUDA(cudaDeviceSynchronize());
    Stopwatch watch = start();
    copy_all<<<grid_of(READERS), THREADS>>>(to, from, bytes / 16);
    const double seconds = stop(watch);
    CUDA(cudaFree(from));
    CUDA(cudaFree(to));
    return seconds;
}

static double hbm_copy_tb() {
    const size_t less = (size_t)device().l2CacheSize / LINE * LINE;
    return 2.0 * less / (copy_seconds(2 * less) - copy_seconds(less)) * 1e-12;
}

// What is in L2 is read again and again, each block from another place.
__global__ void read_l2(const uint8_t *from, uint32_t pieces, int turns) {
    const uint32_t start = blockIdx.x * (pieces / gridDim.x) / THREADS * THREADS;
    uint32_t sum = 0;
    for (int turn = 0; turn < turns; turn++) {
        const uint32_t k = start + turn * DEPTH * THREADS + threadIdx.x;
        Piece piece[DEPTH];
#pragma unroll
        for (int i = 0; i < DEPTH; i++)
            piece[i] = load_piece(from + 16ull * ((k + i * THREADS) % pieces));
#pragma unroll
        for (int i = 0; i < DEPTH; i++) use_piece(&sum, piece[i]);
    }
}

static double l2_read_cycle() {
    const uint32_t pieces = 1 << 18; // 4 MiB
    uint8_t *from;
    CUDA(cudaMalloc(&from, 16 * pieces));
    CUDA(cudaMemset(from, 0, 16 * pieces));
    touch_all(from, 16 * pieces);
    double seconds[2];
    for (int k = 0; k < 2; k++) {
        Stopwatch watch = start();
        read_l2<<<grid_of(READERS), THREADS>>>(from, pieces, k ? 8 : 24);
        seconds[k] = stop(watch);
    }
    CUDA(cudaFree(from));
    const double bytes = 16.0 * grid_of(READERS) * THREADS * DEPTH * 16;
    return bytes / (seconds[0] - seconds[1]) / clock_rate();
}

// ---- atomics

// One warp, each lane its own word; the result is needed for the next.
__global__ void chain_atomics(Span *spans, uint32_t *words, int count) {
    uint32_t x = 0;
    const uint64_t begin = clock_now();
#pragma unroll 1
    for (int k = 0; k < count; k++)
        asm volatile("atom.global.add.u32 %0, [%1], %0;"
                     : "+r"(x)
                     : "l"(__cvta_generic_to_global(words + threadIdx.x))
                     : "memory");
    const bool never = x == 0xdeadbeef;
    const uint64_t end = clock_now();
    if (threadIdx.x == 0) spans[0].begin = begin, spans[0].end = never ? begin : end;
}

static double atomic_latency() {
    uint32_t *words;
    CUDA(cudaMalloc(&words, 128));
    CUDA(cudaMemset(words, 0, 128));
    chain_atomics<<<1, 32>>>(spans_on_device(), words, 96);
    const double more = elapsed(1);
    chain_atomics<<<1, 32>>>(spans_on_device(), words, 32);
    return (more - elapsed(1)) / 64;
}

// Every warp adds to the words of its place, `apart` warps to a place; without a result.
__global__ void add_all(uint32_t *words, int places, int count) {
    const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    uint32_t *mine = words + warp % places * 32 + (places > 1 ? threadIdx.x % 32 : 0);
    for (int k = 0; k < count; k++)
        asm volatile("red.global.add.u32 [%0], 1;" ::"l"(__cvta_generic_to_global(mine))
                     : "memory");
}

// Cycles of the GPU for a warp's addition.
static double add_cycles(int places) {
    uint32_t *words;
    const int blocks = device().multiProcessorCount, warps = blocks * 8;
    CUDA(cudaMalloc(&words, (size_t)warps * 128));
    CUDA(cudaMemset(words, 0, (size_t)warps * 128));
    double seconds[2];
    for (int k = 0; k < 2; k++) {
        Stopwatch watch = start();
        add_all<<<blocks, 256>>>(words, places ? places : warps, k ? 8 : 24);
        seconds[k] = stop(watch);
    }
    CUDA(cudaFree(words));
    return (seconds[0] - seconds[1]) * clock_rate() / (16.0 * warps);
}

static double add_one_word_cycles() {
    return add_cycles(1);
}
static double add_own_words_cycles() {
    return add_cycles(0);
}

// ---- launching

__global__ void nothing() {}

static double launch_cycles() {
    nothing<<<1, 32>>>();
    Stopwatch watch = start();
    nothing<<<1, 32>>>();
    return stop(watch) * clock_rate();
}

// Blocks that fill an SM's shared memory, one after the other.
static double block_replacement() {
    const int smem = (int)device().sharedMemPerBlockOptin, sms = device().multiProcessorCount;
    CUDA(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
    double seconds[2];
    for (int k = 0; k < 2; k++) {
        Stopwatch watch = start();
        nothing<<<sms *(k ? 2 : 6), 128, smem>>>();
        seconds[k] = stop(watch);
    }
    return (seconds[0] - seconds[1]) * clock_rate() / 4;
}

static const Bench benches[] = {
    {"l2_near_latency", l2_near_latency, "cycles"},
    {"l2_far_latency", l2_far_latency, "cycles"},
    {"dram_latency", dram_latency, "cycles"},
    {"atomic_latency", atomic_latency, "cycles"},
    {"hbm_read_tb", hbm_read_tb, "TB/s"},
    {"hbm_read_cycle", hbm_read_cycle, "B/cycle"},
    {"hbm_copy_in_tb", hbm_copy_in_tb, "TB/s"},
    {"hbm_copy_in_cycle", hbm_copy_in_cycle, "B/cycle"},
    {"hbm_copy_tb", hbm_copy_tb, "TB/s"},
    {"l2_read_cycle", l2_read_cycle, "B/cycle"},
    {"add_one_word_cycles", add_one_word_cycles, "cycles"},
    {"add_own_words_cycles", add_own_words_cycles, "cycles"},
    {"launch_cycles", launch_cycles, "cycles"},
    {"block_replacement", block_replacement, "cycles"},
};

int main(int argc, char **argv) {
    return ANSWER(argc, argv, benches);
}
