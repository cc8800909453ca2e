// The roofline's arithmetic.
//
// The SM with the most CTAs decides: a grid of 133 CTAs on 132 SMs takes as long as one of 264. So
// an SM's share of the work is that of ceil(grid / SMs) CTAs, not 1 / SMs of the whole.
#include "softgpu/timing/roofline.h"

#include <math.h>
#include <string.h>

enum { SCHEDULERS = 4, L2_PORT = 64 }; // warp instructions, and bytes from L2, per clock and SM

static const char *const pipe_names[PIPE_COUNT] = {
    [PIPE_NONE] = "none",       [PIPE_FMA] = "fma",         [PIPE_ALU] = "alu",
    [PIPE_IMAD] = "imad",       [PIPE_FP64] = "fp64",       [PIPE_MUFU] = "mufu",
    [PIPE_CONVERT] = "convert", [PIPE_LSU] = "lsu",         [PIPE_TENSOR] = "tensor",
    [PIPE_TMA] = "tma",         [PIPE_CONTROL] = "control",
};

const char *pipe_name(Pipe pipe) {
    return pipe_names[pipe];
}

// Lanes that a pipe serves per clock and SM; 0 where it has no such rate.
static double lanes_per_clock(const GpuFigures *f, Pipe pipe) {
    switch (pipe) {
    case PIPE_FMA: return f->fma_lanes;
    case PIPE_ALU: return f->alu_lanes;
    case PIPE_IMAD: return f->imad_lanes;
    case PIPE_FP64: return f->fp64_lanes;
    case PIPE_MUFU: return f->mufu_lanes;
    case PIPE_CONVERT: return f->convert_lanes;
    case PIPE_LSU: return f->lsu_lanes;
    default: return 0;
    }
}

// FLOPs per clock and SM of a matrix instruction, by the types in its name.
static double tensor_rate(const GpuFigures *f, const char *text) {
    if (strstr(text, ".f64")) return f->tensor_flops_f64;
    if (strstr(text, ".tf32")) return f->tensor_flops_tf32;
    if (strstr(text, ".s8") || strstr(text, ".u8")) return 2 * f->tensor_flops_f16;
    if (!strncmp(text, "mma.", 4)) return f->tensor_flops_f16; // fp8 too: runs as f16 (mma.c)
    if (f->tensor_flops_fp8 &&
        (strstr(text, ".e4m3") || strstr(text, ".e5m2") || strstr(text, "f8f6f4"))) {
        return f->tensor_flops_fp8;
    }
    return f->tensor_flops_f16;
}

// Sums the counters of the instructions by pipe. cycles: of all SMs together.
static void sum_instructions(const Kernel *kernel, const GpuFigures *f, const Counters *sum,
                             KernelStats *stats, double cycles[PIPE_COUNT]) {
    for (uint32_t k = 0; k < kernel->code_count; k++) {
        const Insn *i = &kernel->code[k];
        double warps = sum->executed[k], lanes = sum->lanes[k];
        if (!warps || i->pipe == PIPE_NONE) continue;
        stats->warp_instructions[i->pipe] += warps;
        stats->thread_instructions[i->pipe] += lanes;
        if (i->pipe == PIPE_TENSOR) {
            // A matrix instruction is the warp's: it works at full width whatever the mask.
            double flops = warps * WARP_SIZE * i->flops;
            const char *text = kernel->texts && kernel->texts[k] ? kernel->texts[k] : "";
            double rate = tensor_rate(f, text);
            stats->flops_tensor += flops;
            if (rate) cycles[PIPE_TENSOR] += flops / rate;
            continue;
        }
        if (i->pipe == PIPE_FP64) {
            stats->flops_f64 += lanes * i->flops;
        } else {
            stats->flops_f32 += lanes * i->flops;
        }
        double rate = lanes_per_clock(f, i->pipe);
        if (rate) cycles[i->pipe] += warps * WARP_SIZE / rate;
    }
}

// Takes a unit's time as the kernel's if it is the longest.
static void bound_by(KernelStats *stats, double *longest, double us, const char *name) {
    if (us <= *longest) return;
    *longest = us;
    stats->bound = name;
}

void roofline(const Launch *launch, const Gpu *gpu, const Counters *sum, const CacheTraffic *hbm,
              KernelStats *stats) {
    const GpuFigures *f = &gpu->figures;
    const Kernel *kernel = launch->kernel;
    stats->kernel = kernel->name;
    memcpy(stats->grid, launch->grid, sizeof stats->grid);
    memcpy(stats->block, launch->block, sizeof stats->block);
    stats->registers = kernel->registers;
    stats->shared_bytes = kernel->shared_static + launch->dynamic_shared;
    stats->sms_total = f->sms;
    stats->hbm_read_bytes = hbm->read_bytes;
    stats->hbm_write_bytes = hbm->write_bytes;
    stats->shared_wavefronts = sum->shared_wavefronts;
    stats->shared_ideal_wavefronts = sum->shared_ideal;

    double cycles[PIPE_COUNT] = {0};
    sum_instructions(kernel, f, sum, stats, cycles);
    stats->flops_tensor += (double)sum->tensor_flops;
    cycles[PIPE_TENSOR] += (double)sum->tensor_cycles;

    // From the cycles of all SMs to microseconds of the busiest one.
    double grid = (double)launch->grid[0] * launch->grid[1] * launch->grid[2];
    double share = grid > 0 ? ceil(grid / f->sms) / grid : 1;
    double us_per_clock = 1e-3 / f->clock_ghz, per_sm = share * us_per_clock;
    double longest = 0, issued = 0;
    stats->bound = "launch";
    memcpy(stats->pipe_cycles, cycles, sizeof cycles);
    stats->shared_cycles = sum->shared_wavefronts * 128.0 / f->shared_bytes_per_clk;
    stats->load_cycles = stats->l2_read_bytes / L2_PORT;
    for (int p = 0; p < PIPE_COUNT; p++) {
        stats->pipe_us[p] = cycles[p] * per_sm;
        issued += stats->warp_instructions[p];
        bound_by(stats, &longest, stats->pipe_us[p], pipe_names[p]);
    }
    stats->issue_us = issued / SCHEDULERS * per_sm;
    bound_by(stats, &longest, stats->issue_us, "issue");
    stats->shared_us = stats->shared_cycles * per_sm;
    bound_by(stats, &longest, stats->shared_us, "shared");
    double l2_bytes = stats->l2_read_bytes + stats->l2_write_bytes;
    double l2_whole = l2_bytes / f->l2_bytes_per_clk * us_per_clock;
    stats->l2_us = fmax(l2_whole, l2_bytes / L2_PORT * per_sm);
    bound_by(stats, &longest, stats->l2_us, "l2");
    stats->hbm_us = (hbm->read_bytes + hbm->write_bytes) / f->hbm_bytes_per_s * 1e6;
    bound_by(stats, &longest, stats->hbm_us, "hbm");
    if (longest < f->launch_us) stats->bound = "launch";
    stats->time_us = gpu->settings->timing ? f->launch_us + longest : 0;
}
