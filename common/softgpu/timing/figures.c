// The figures of the GPUs. Each with its source; where two sources disagree, the comment says which
// one was taken.
//
// The clock. Vendors' peaks assume a boost clock that a GPU can't hold under a heavy load, so
// times are given at one sustained clock, taken from a plain GEMM: its measured rate, divided by
// what the tensor cores do per clock and by the share of the time that they are busy in a good
// GEMM. That share is 0.946, from an A100 that multiplies zeros, which cost too little power to
// throttle it: 295 TFLOP/s of 108 SMs x 2048 FLOP/clk x 1.41 GHz.
//
//   a100  cuBLAS, random data: 258 TFLOP/s / (108 x 2048 x 0.946)     -> 1.23 GHz
//   h100  cuBLAS 8192^3, bf16, normally distributed data: 797.8 TFLOP/s / (132 x 4096 x 0.946)
//         (github.com/pranjalssh/fast.cu, README, H100 SXM)           -> 1.56 GHz
//   h200  the same chip, but its chapter is bound by memory, and so does not throttle: 1.785 GHz, as
//         measured in a bandwidth test (FlashGPU-Sim, job 2119329)
//   b200  1.85 GHz: the lower end of the clocks that SemiAnalysis saw (1.85 to 1.965)
//
// Memory bandwidth is what copies reach, not the data sheet's: h100 3.02 to 3.09 TB/s of 3.35; h200
// 3.99 to 4.10 of 4.8 (FlashGPU-Sim); b200 7.06 to 7.26 of 8 (SemiAnalysis, TMA); a100 the h100's
// share (0.91) of 2.04, and a100-40gb of the 1.555 that its data sheet has. But for its memory that is
// the same chip; FlashAttention's first paper measured on it (section 4.3).
//
// L2 bandwidth: a100 5120 B/clk (A100 whitepaper); h100 7.68 TB/s at 1.5 GHz = 5120 B/clk and b200
// 20.1 TB/s at 1.964 GHz = 10240 B/clk (FlashGPU-Sim's calibrated configurations).
//
// Lanes per clock and SM: CUDA C++ programming guide, "Arithmetic Instructions", by compute
// capability (8.0, 9.0); b200 by the best practices guide 13, 12.1.1, which has the column 10.0:
// what differs there is 128 for min, max and compare. "All other type conversions" are 16 on 8.0 and
// 64 on 9.0; which conversion runs at which rate is in latencies.c. Loads and stores: one warp
// instruction per clock and SM. Tensor cores: the data sheets' dense rates divided by SMs and boost
// clock.
//
// Memory sizes are what nvidia-smi shows. Host copies: PCIe 4.0 (a100) and 5.0 x16, at 80 to 87% of
// the wire's 31.5 and 63 GB/s.
//
// Launch: 3,000 (Accel-Sim) to 5,500 (FlashGPU-Sim) cycles on h100, 5,000 on b200; here 4,250 at
// the h100's clock. GPCs: h100 so that clusters of 8 find 120 of the 132 SMs, as measured; the
// others as even as whole TPCs (2 SMs) allow.
#include "softgpu/timing/figures.h"

#include <stddef.h>
#include <string.h>

#define KB 1024u
#define MB (1024ull * 1024)

// The chip of both A100s, which differ in memory only.
#define A100_CHIP                                                                                  \
    .capability_major = 8, .capability_minor = 0, .sms = 108,                                      \
    .gpc_sizes = {16, 16, 16, 16, 16, 14, 14}, .gpcs = 7, .clock_ghz = 1.23, .boost_ghz = 1.41,    \
    .l2_bytes = 40 * MB, .l2_bytes_per_clk = 5120, .l1_bytes = 192 * KB,                           \
    .shared_per_sm = 164 * KB, .shared_per_cta = 163 * KB, .shared_reserved = 1 * KB,              \
    .registers_per_sm = 65536, .threads_per_sm = 2048, .ctas_per_sm = 32, .fma_lanes = 64,         \
    .alu_lanes = 64, .compare_lanes = 64, .imad_lanes = 64, .fp64_lanes = 32, .mufu_lanes = 16,    \
    .convert_lanes = 16, .lsu_lanes = 32, .shared_bytes_per_clk = 128, .tensor_flops_f16 = 2048,   \
    .tensor_flops_tf32 = 1024, .tensor_flops_fp8 = 0, .tensor_flops_f64 = 128, .launch_us = 2.7,   \
    .pcie_bytes_per_s = 25e9

static const GpuFigures all[] = {
    {
        .name = "a100",
        .full_name = "NVIDIA A100-SXM4-80GB",
        .memory_bytes = 81920 * MB,
        .hbm_bytes_per_s = 1.86e12,
        A100_CHIP,
    },
    {
        .name = "a100-40gb",
        .full_name = "NVIDIA A100-SXM4-40GB",
        .memory_bytes = 40960 * MB,
        .hbm_bytes_per_s = 1.42e12,
        A100_CHIP,
    },
    {
        .name = "h100",
        .full_name = "NVIDIA H100 80GB HBM3",
        .capability_major = 9,
        .capability_minor = 0,
        .sms = 132,
        .gpc_sizes = {18, 18, 18, 16, 16, 16, 16, 14},
        .gpcs = 8,
        .clock_ghz = 1.56,
        .boost_ghz = 1.83,
        .memory_bytes = 81559 * MB,
        .hbm_bytes_per_s = 3.05e12,
        .l2_bytes = 50 * MB,
        .l2_bytes_per_clk = 5120,
        .l1_bytes = 256 * KB,
        .shared_per_sm = 228 * KB,
        .shared_per_cta = 227 * KB,
        .shared_reserved = 1 * KB,
        .registers_per_sm = 65536,
        .threads_per_sm = 2048,
        .ctas_per_sm = 32,
        .fma_lanes = 128,
        .alu_lanes = 64,
        .compare_lanes = 64,
        .imad_lanes = 64,
        .fp64_lanes = 64,
        .mufu_lanes = 16,
        .convert_lanes = 64,
        .lsu_lanes = 32,
        .shared_bytes_per_clk = 128,
        .tensor_flops_f16 = 4096,
        .tensor_flops_tf32 = 2048,
        .tensor_flops_fp8 = 8192,
        .tensor_flops_f64 = 256,
        .launch_us = 2.7,
        .pcie_bytes_per_s = 55e9,
    },
    {
        .name = "h200",
        .full_name = "NVIDIA H200",
        .capability_major = 9,
        .capability_minor = 0,
        .sms = 132,
        .gpc_sizes = {18, 18, 18, 16, 16, 16, 16, 14},
        .gpcs = 8,
        .clock_ghz = 1.785,
        .boost_ghz = 1.83,
        .memory_bytes = 143771 * MB,
        .hbm_bytes_per_s = 4.05e12,
        .l2_bytes = 60 * MB,
        .l2_bytes_per_clk = 5120,
        .l1_bytes = 256 * KB,
        .shared_per_sm = 228 * KB,
        .shared_per_cta = 227 * KB,
        .shared_reserved = 1 * KB,
        .registers_per_sm = 65536,
        .threads_per_sm = 2048,
        .ctas_per_sm = 32,
        .fma_lanes = 128,
        .alu_lanes = 64,
        .compare_lanes = 64,
        .imad_lanes = 64,
        .fp64_lanes = 64,
        .mufu_lanes = 16,
        .convert_lanes = 64,
        .lsu_lanes = 32,
        .shared_bytes_per_clk = 128,
        .tensor_flops_f16 = 4096,
        .tensor_flops_tf32 = 2048,
        .tensor_flops_fp8 = 8192,
        .tensor_flops_f64 = 256,
        .launch_us = 2.7,
        .pcie_bytes_per_s = 55e9,
    },
    {
        .name = "b200",
        .full_name = "NVIDIA B200",
        .capability_major = 10,
        .capability_minor = 0,
        .sms = 148,
        .gpc_sizes = {20, 20, 18, 18, 18, 18, 18, 18},
        .gpcs = 8,
        .clock_ghz = 1.85,
        .boost_ghz = 1.965,
        .memory_bytes = 183359 * MB,
        .hbm_bytes_per_s = 7.16e12,
        .l2_bytes = 126 * MB,
        .l2_bytes_per_clk = 10240,
        .l1_bytes = 256 * KB,
        .shared_per_sm = 228 * KB,
        .shared_per_cta = 227 * KB,
        .shared_reserved = 1 * KB,
        .registers_per_sm = 65536,
        .threads_per_sm = 2048,
        .ctas_per_sm = 32,
        .fma_lanes = 128,
        .alu_lanes = 64,
        .compare_lanes = 128,
        .imad_lanes = 64,
        .fp64_lanes = 64,
        .mufu_lanes = 16,
        .convert_lanes = 64,
        .lsu_lanes = 32,
        .shared_bytes_per_clk = 128,
        .tensor_flops_f16 = 8192,
        .tensor_flops_tf32 = 4096,
        .tensor_flops_fp8 = 16384,
        .tensor_flops_f64 = 128,
        .launch_us = 2.7,
        .pcie_bytes_per_s = 55e9,
    },
};

const GpuFigures *figures_all(int *count) {
    *count = sizeof all / sizeof *all;
    return all;
}

const GpuFigures *figures_find(const char *name) {
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!strcmp(all[i].name, name)) return &all[i];
    }
    return NULL;
}

const GpuFigures *figures_for_sm(int sm) {
    if (sm >= 100) return figures_find("b200");
    return figures_find("h100"); // runs everything up to 9.0
}
