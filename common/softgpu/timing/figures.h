// The figures of the GPUs that can be modelled: one set per GPU, each with its source (figures.c).
#ifndef SOFTGPU_FIGURES_H
#define SOFTGPU_FIGURES_H

#include <stdint.h>

typedef struct {
    const char *name;      // "h100"
    const char *full_name; // what cudaGetDeviceProperties says
    int capability_major, capability_minor;
    int sms;
    int gpc_sizes[16], gpcs; // SMs per GPC, for cluster placement
    double clock_ghz;        // the sustained clock that times are given at
    double boost_ghz;        // the datasheet's
    uint64_t memory_bytes;
    double hbm_bytes_per_s; // achievable copy bandwidth
    uint64_t l2_bytes;
    double l2_bytes_per_clk;                                 // whole GPU
    uint32_t l1_bytes;                                       // L1 + shared memory of an SM
    uint32_t shared_per_sm, shared_per_cta, shared_reserved; // bytes
    uint32_t registers_per_sm, threads_per_sm, ctas_per_sm;
    // per clock and SM
    double fma_lanes, alu_lanes, imad_lanes, fp64_lanes, mufu_lanes, convert_lanes, lsu_lanes;
    double compare_lanes; // min, max, setp
    double shared_bytes_per_clk;
    double tensor_flops_f16, tensor_flops_tf32, tensor_flops_fp8, tensor_flops_f64; // dense
    double launch_us;        // fixed cost of a kernel
    double pcie_bytes_per_s; // host copies
} GpuFigures;

// By name ("h100"), or NULL.
const GpuFigures *figures_find(const char *name);
// The GPU to model for a program whose newest usable PTX is for `sm` (90 → h100, 100 → b200, …).
const GpuFigures *figures_for_sm(int sm);
// All of them, `*count` entries.
const GpuFigures *figures_all(int *count);

#endif
