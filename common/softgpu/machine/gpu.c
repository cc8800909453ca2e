// The GPU of this process: which one is modelled, its memory, and how many CTAs its SMs hold.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/machine/async.h"
#include "softgpu/machine/event.h"
#include "softgpu/machine/global.h"
#include "softgpu/check/race_global.h"
#include "softgpu/machine/parts.h"
#include "softgpu/machine/remote.h"
#include "softgpu/timing/traffic.h"

enum {
    REGISTER_UNIT = 256, // registers are given to warps in units of so many
    SUB_PARTITIONS = 4,  // an SM's registers are split between its schedulers
    SHARED_UNIT = 128,   // bytes
};

// ---- settings and figures

static Settings settings;
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;
static int chosen_sm = 90;

static void read_settings(void) {
    const char *mistake = settings_read(&settings);
    if (!mistake) return;
    fprintf(stderr, "softgpu: %s\n", mistake);
    exit(2);
}

Settings *gpu_settings(void) {
    pthread_once(&settings_once, read_settings);
    return &settings;
}

void gpu_choose(int sm) {
    chosen_sm = sm;
}

// The figures of the GPU with only `sms` SMs: caches and memory keep their proportion to them.
static void scale_figures(GpuFigures *f, int sms) {
    double share = (double)sms / f->sms;
    f->l2_bytes = (uint64_t)((double)f->l2_bytes * share);
    f->l2_bytes_per_clk *= share;
    f->hbm_bytes_per_s *= share;
    f->sms = sms;
    int left = sms, gpcs = 0;
    for (int g = 0; g < f->gpcs && left; g++, gpcs++) {
        if (f->gpc_sizes[g] > left) f->gpc_sizes[g] = left;
        left -= f->gpc_sizes[g];
    }
    f->gpcs = gpcs;
}

// ---- the GPU

Gpu *gpu_new(const Settings *wanted, const GpuFigures *figures) {
    Gpu *gpu = allocate(sizeof *gpu);
    memset(gpu, 0, sizeof *gpu);
    gpu->settings = wanted;
    findings_configure(wanted);
    gpu->figures = *figures;
    if (wanted->sms > 0 && wanted->sms < figures->sms) scale_figures(&gpu->figures, wanted->sms);
    if (wanted->clock_ghz > 0) gpu->figures.clock_ghz = wanted->clock_ghz;
    gpu->sample = gpu->figures.sms;
    gpu->stack_limit = 1024;
    gpu->memory = global_new(gpu->figures.memory_bytes, wanted->checks & CHECK_INIT);
    size_t size = (size_t)gpu->figures.sms * sizeof *gpu->sm;
    gpu->sm = allocate(size);
    memset(gpu->sm, 0, size);
    for (int s = 0; s < gpu->figures.sms; s++) {
        gpu->sm[s].gpu = gpu;
        gpu->sm[s].id = s;
    }
    return gpu;
}

static void sm_free(Sm *sm) {
    ctas_drop(sm);
    events_free(sm);
    async_free(sm);
    remote_free(sm);
    if (sm->l1) cache_free(sm->l1);
    global_races_free(sm);
    free(sm->requests);
    free(sm->ready);
    free(sm->deferred);
    while (sm->spare_joins) {
        Join *next = sm->spare_joins->next;
        free(sm->spare_joins);
        sm->spare_joins = next;
    }
    while (sm->spare_frames) {
        Frame *next = sm->spare_frames->next;
        free(sm->spare_frames);
        sm->spare_frames = next;
    }
}

void gpu_delete(Gpu *gpu) {
    for (int s = 0; s < gpu->figures.sms; s++) sm_free(&gpu->sm[s]);
    if (gpu->l2) cache_free(gpu->l2);
    for (int side = 0; side < 2; side++) cache_free(gpu->near[side]);
    free(gpu->sm);
    global_delete(gpu->memory);
    free(gpu);
}

static Gpu *the_gpu;
static pthread_once_t gpu_once = PTHREAD_ONCE_INIT;

// Ends the program, status 2, if a variable wants more SMs than the GPU has.
static void refuse_more_sms(const char *variable, int wanted, const char *gpu, int sms) {
    if (wanted <= sms) return;
    fprintf(stderr, "softgpu: %s=%d: the modelled GPU (%s) has %d SMs\n", variable, wanted, gpu,
            sms);
    exit(2);
}

static void make_gpu(void) {
    const Settings *s = gpu_settings();
    const GpuFigures *figures = s->gpu ? figures_find(s->gpu) : figures_for_sm(chosen_sm);
    if (!figures) {
        fprintf(stderr, "softgpu: there is no GPU to model for compute capability %d.%d\n",
                chosen_sm / 10, chosen_sm % 10);
        exit(2);
    }
    refuse_more_sms("SOFTGPU_SMS", s->sms, figures->name, figures->sms);
    int sms = s->sms > 0 ? s->sms : figures->sms;
    refuse_more_sms("SOFTGPU_SAMPLE", s->sample, figures->name, sms);
    the_gpu = gpu_new(s, figures);
}

Gpu *gpu_get(void) {
    pthread_once(&gpu_once, make_gpu);
    return the_gpu;
}

// ---- occupancy

static uint32_t round_up(uint32_t x, uint32_t unit) {
    return (x + unit - 1) / unit * unit;
}

// Says why nothing fits.
static int refuse(char *why, size_t why_size, const char *what, uint32_t wanted, uint32_t limit) {
    if (why && why_size) snprintf(why, why_size, what, wanted, limit);
    return 0;
}

int gpu_occupancy(const GpuFigures *f, const Kernel *kernel, uint32_t block_threads,
                  uint32_t dynamic_shared, char *why, size_t why_size) {
    uint32_t warps = (block_threads + WARP_SIZE - 1) / WARP_SIZE;
    if (!block_threads || block_threads > 1024)
        return refuse(why, why_size, "a block of %u threads can't run: from 1 to %u are allowed",
                      block_threads, 1024);
    uint32_t fit = f->ctas_per_sm;

    uint32_t by_warps = f->threads_per_sm / WARP_SIZE / warps;
    if (by_warps < fit) fit = by_warps;

    uint32_t warp_registers = round_up(kernel->registers * WARP_SIZE, REGISTER_UNIT);
    if (warp_registers) {
        uint32_t per_part = f->registers_per_sm / SUB_PARTITIONS / warp_registers;
        uint32_t by_registers = per_part * SUB_PARTITIONS / warps;
        if (!by_registers)
            return refuse(why, why_size,
                          "the block needs %u registers, and an SM has %u: use smaller blocks, or "
                          "__launch_bounds__ so that the compiler uses fewer",
                          warp_registers * warps, f->registers_per_sm);
        if (by_registers < fit) fit = by_registers;
    }

    uint32_t shared = round_up(kernel->shared_static + dynamic_shared, SHARED_UNIT);
    if (shared > f->shared_per_cta)
        return refuse(why, why_size,
                      "the block needs %u bytes of shared memory, and it can have at most %u: use "
                      "smaller tiles",
                      kernel->shared_static + dynamic_shared, f->shared_per_cta);
    uint32_t by_shared = f->shared_per_sm / (shared + f->shared_reserved);
    return (int)(by_shared < fit ? by_shared : fit);
}
