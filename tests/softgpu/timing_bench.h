// For tests of traffic and time: a warp on an SM with its caches, and the log of its requests.
#ifndef SOFTGPU_TEST_TIMING_BENCH_H
#define SOFTGPU_TEST_TIMING_BENCH_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/global.h"
#include "softgpu/timing/traffic.h"

// A warp on an SM, with nothing around it that these tests don't need.
typedef struct {
    Settings settings;
    struct GlobalMemory memory;
    Gpu gpu;
    Sm sm;
    Cta cta;
    Warp warp;
    Counters counters;
    Insn insn;
} Bench;

static inline Bench *open_bench(bool with_l1) {
    Bench *b = calloc(1, sizeof *b);
    b->settings.timing = true;
    b->memory = (struct GlobalMemory){.device_base = 1ull << 40,
                                      .device_size = 1ull << 30,
                                      .host_base = 1ull << 41,
                                      .host_size = 1ull << 30};
    uint32_t pages = (uint32_t)(b->memory.device_size / GLOBAL_PAGE);
    b->memory.frames = calloc(pages, sizeof *b->memory.frames);
    for (uint32_t page = 0; page < pages; page++) b->memory.frames[page] = page;
    b->gpu.settings = &b->settings;
    b->gpu.memory = &b->memory;
    b->gpu.figures = *figures_find("h100");
    b->sm.gpu = &b->gpu;
    b->sm.counters = &b->counters;
    b->sm.l1 = with_l1 ? cache_new(32768, 4) : NULL;
    b->cta.sm = &b->sm;
    b->warp.sm = &b->sm;
    b->warp.cta = &b->cta;
    b->warp.local_stride = 64;
    return b;
}

static inline void close_bench(Bench *b) {
    free(b->sm.requests);
    cache_free(b->sm.l1);
    free(b->memory.frames);
    free(b);
}

// Sectors in the log with this kind of write.
static inline int sectors(const Bench *b, int write) {
    int count = 0;
    for (size_t i = 0; i < b->sm.request_count; i++) {
        if (b->sm.requests[i].write == write)
            count += __builtin_popcount(b->sm.requests[i].sectors);
    }
    return count;
}

// Requests that an access of addresses first + lane * stride leaves in the log.
static inline size_t access_global(Bench *b, uint64_t first, int64_t stride, unsigned size,
                                   uint32_t mask, TrafficKind kind) {
    uint64_t address[32];
    for (int lane = 0; lane < 32; lane++) {
        address[lane] = mask >> lane & 1 ? b->memory.device_base + first + lane * stride : ~7ull;
    }
    b->sm.request_count = 0;
    traffic_global(&b->warp, &b->insn, address, size, mask, kind, false);
    return b->sm.request_count;
}

#endif
