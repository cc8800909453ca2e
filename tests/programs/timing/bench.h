// What the timing programs share: how a kernel takes the time, and how a program answers.
//
// They are microbenchmarks as one runs them on a GPU: each measures one figure and prints it,
//   PROGRAM            all of the program's figures, a line each: "fma_latency 4.0 cycles"
//   PROGRAM fma_rate   that one
// tests/softgpu/test_timing_figures.c holds them against published figures.
//
// A figure is a difference: the same kernel with more and with less of the work. What both have in
// common (reading the clock, filling the pipe, draining it) falls out. Inside a kernel the work
// runs twice, and the second time counts: then the instructions are in the cache.
#ifndef TIMING_BENCH_H
#define TIMING_BENCH_H

#include "../check.h"

#include <cstdint>
#include <cstring>

// When a warp began and ended, by the clock of its SM.
typedef struct {
    uint64_t begin, end;
} Span;

__device__ static inline uint64_t clock_now() {
    uint64_t cycles;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
    return cycles;
}

// A warp's place in the list of spans.
__device__ static inline int warp_number() {
    return (blockIdx.x * blockDim.x + threadIdx.x) / 32;
}

enum { SPANS = 64 }; // warps of the largest measured group

// Where the kernels write: made once, and zeros at first.
static inline Span *spans_on_device() {
    static Span *spans;
    if (!spans) {
        CUDA(cudaMalloc(&spans, SPANS * sizeof *spans));
        CUDA(cudaMemset(spans, 0, SPANS * sizeof *spans));
    }
    return spans;
}

// Cycles from the first warp's begin to the last one's end, of the kernel that ran last.
static inline double elapsed(int warps) {
    Span spans[SPANS];
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(spans, spans_on_device(), warps * sizeof *spans, cudaMemcpyDeviceToHost));
    uint64_t begin = spans[0].begin, end = spans[0].end;
    for (int w = 1; w < warps; w++) {
        if (spans[w].begin < begin) begin = spans[w].begin;
        if (spans[w].end > end) end = spans[w].end;
    }
    return (double)(end - begin);
}

// ---- whole kernels, by events

typedef struct {
    cudaEvent_t begin, end;
} Stopwatch;

static inline Stopwatch start() {
    Stopwatch watch;
    CUDA(cudaEventCreate(&watch.begin));
    CUDA(cudaEventCreate(&watch.end));
    CUDA(cudaEventRecord(watch.begin));
    return watch;
}

// Seconds since start().
static inline double stop(Stopwatch watch) {
    float ms;
    CUDA(cudaGetLastError());
    CUDA(cudaEventRecord(watch.end));
    CUDA(cudaEventSynchronize(watch.end));
    CUDA(cudaEventElapsedTime(&ms, watch.begin, watch.end));
    CUDA(cudaEventDestroy(watch.begin));
    CUDA(cudaEventDestroy(watch.end));
    return ms * 1e-3;
}

__global__ static void both_clocks(uint64_t *out, int steps) {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    const uint64_t cycles = clock_now();
    float x = 1;
    for (int k = 0; k < steps; k++) asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x));
    out[0] = clock_now() - cycles;
    uint64_t ns_after;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns_after)::"memory");
    out[1] = ns_after - ns;
}

// The clock of the SMs in Hz, as they run, not the one in the data sheet.
static inline double clock_rate() {
    static double hz;
    if (hz) return hz;
    uint64_t *out, both[2];
    CUDA(cudaMalloc(&out, sizeof both));
    both_clocks<<<1, 32>>>(out, 20000);
    CUDA(cudaMemcpy(both, out, sizeof both, cudaMemcpyDeviceToHost));
    CUDA(cudaFree(out));
    EXPECT(both[1] > 0);
    return hz = (double)both[0] / (double)both[1] * 1e9;
}

static inline cudaDeviceProp device() {
    cudaDeviceProp properties;
    CUDA(cudaGetDeviceProperties(&properties, 0));
    return properties;
}

// ---- the program

typedef struct {
    const char *name;
    double (*measure)();
    const char *unit;
} Bench;

// Prints the figures asked for. A name that is none of them is an error.
static inline int answer(int argc, char **argv, const Bench *benches, int count) {
    int printed = 0;
    for (int b = 0; b < count; b++) {
        if (argc > 1 && strcmp(argv[1], benches[b].name) != 0) continue;
        printf("%s %.6g %s\n", benches[b].name, benches[b].measure(), benches[b].unit);
        printed++;
    }
    if (!printed) printf("no figure is called %s\n", argc > 1 ? argv[1] : "so");
    return printed ? 0 : 1;
}

#define ANSWER(argc, argv, benches)                                                                \
    answer(argc, argv, benches, (int)(sizeof benches / sizeof *benches))

#endif
