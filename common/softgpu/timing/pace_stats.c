// What a timed launch has found, for its statistics (pace.h).
#include "softgpu/timing/memory_time.h"
#include "softgpu/timing/pace.h"

uint64_t pace_cycles(const Gpu *gpu, int sms, uint64_t began) {
    uint64_t last = began;
    for (int s = 0; s < sms; s++) {
        const SmPace *p = gpu->sm[s].pace;
        if (p->last_end > last) last = p->last_end;
        if (p->last_answer > last) last = p->last_answer;
    }
    return last - began;
}

// Adds up the SMs' work and waits, as shares of the cycles.
static void add_sms(const Gpu *gpu, int sms, double cycles, KernelStats *stats) {
    double all = cycles * gpu->sample, resident = 0;
    for (int s = 0; s < sms; s++) {
        const SmPace *p = gpu->sm[s].pace;
        for (int u = 0; u < UNIT_COUNT; u++)
            stats->unit_busy[u] += (double)p->busy[u] / (u < UNIT_FIRST_SHARED ? 4 : 1) / all;
        stats->tensor_busy += (double)p->tensor_busy / all;
        stats->shared_busy += (double)p->shared_busy / all;
        stats->unit_busy[UNIT_TMA] += (double)p->tma_busy / all;
        for (int k = 0; k < STALL_COUNT; k++) resident += (double)p->stall[k];
        resident += (double)p->issued;
    }
    stats->tensor_busy += stats->unit_busy[UNIT_TENSOR];
    for (int s = 0; s < sms && resident > 0; s++)
        for (int k = 0; k < STALL_COUNT; k++)
            stats->stall[k] += (double)gpu->sm[s].pace->stall[k] / resident;
}

static void bound_by(KernelStats *stats, double *most, double busy, const char *name) {
    if (busy <= *most) return;
    *most = busy;
    stats->bound = name;
}

void pace_stats(const LaunchState *launch, int sms, const MemoryTime *memory, uint64_t took,
                KernelStats *stats) {
    const Gpu *gpu = launch->gpu;
    const GpuFigures *f = &gpu->figures;
    double cycles = took ? (double)took : 1, most = 0;
    add_sms(gpu, sms, cycles, stats);
    stats->l2_busy = memory->l2_busy / cycles;
    stats->hbm_busy = memory->hbm_busy / cycles;
    // A sample may hold more or fewer blocks than its SMs' share of the grid. (Where an SM has one
    // block at most, the time is a block's.)
    double share = (double)launch->grid_size * gpu->sample / f->sms;
    bool waves = launch->grid_size > (uint64_t)f->sms;
    double scale = launch->sampled && waves ? share / (double)launch->started : 1;
    stats->cycles = cycles * scale + launch->pace->timing->launch_cycles;
    stats->time_us = stats->cycles / (f->clock_ghz * 1e3);
    stats->bound = "latency";
    for (int u = 0; u < UNIT_COUNT; u++)
        bound_by(stats, &most, stats->unit_busy[u], unit_name((Unit)u));
    bound_by(stats, &most, stats->tensor_busy, "tensor");
    bound_by(stats, &most, stats->shared_busy, "shared");
    bound_by(stats, &most, stats->l2_busy, "l2");
    bound_by(stats, &most, stats->hbm_busy, "hbm");
}
