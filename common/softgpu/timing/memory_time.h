// The time of what all SMs share: L2 and HBM (pace.h).
//
// Servers in a row, each with a rate: a request takes its bytes of L2's rate, what misses takes its
// bytes of HBM's, and the answer its bytes of the port of the SM that asked. Each starts a request
// when it has come and the one before is done; latencies come on top. Of SMs that aren't simulated
// the share of the rates is taken away.
#ifndef SOFTGPU_MEMORY_TIME_H
#define SOFTGPU_MEMORY_TIME_H

#include "softgpu/machine/machine.h"
#include "softgpu/timing/traffic.h"

typedef struct {
    double l2_bytes_per_clk, hbm_bytes_per_clk, port_bytes_per_clk; // of the simulated SMs
    uint64_t begin;           // of the launch; the times below count from it
    double l2_free, hbm_free; // when each can begin the next request
    double *port_free;        // per SM
    double l2_busy, hbm_busy; // cycles
    double near_lines;        // lines in L2 up to which all are near
    double atomic_free[1024]; // by line: when the next atomic on it can begin
    struct Ordered *order;    // requests of a round, being sorted
    size_t order_capacity;
} MemoryTime;

void memory_time_begin(MemoryTime *m, Gpu *gpu, uint64_t now);
void memory_time_end(MemoryTime *m);
// Serves the requests of the first `sms` SMs that leave before `end`, in the order of time; the
// others stay. Bytes are added to *l2 and *hbm.
void memory_time_serve(MemoryTime *m, Gpu *gpu, int sms, uint64_t end, CacheTraffic *l2,
                       CacheTraffic *hbm);
// When the first request that has stayed leaves; UINT64_MAX: there is none.
uint64_t memory_time_next(const Gpu *gpu, int sms);

// ---- pace_stats.c

// Cycles of a timed launch on `sms` SMs, from its start to the last block's end and the last answer.
uint64_t pace_cycles(const Gpu *gpu, int sms, uint64_t began);
// What it has found: the time, how busy units were, what warps waited for.
void pace_stats(const LaunchState *launch, int sms, const MemoryTime *memory, uint64_t cycles,
                KernelStats *stats);

#endif
