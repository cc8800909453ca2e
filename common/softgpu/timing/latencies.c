// The times of the GPUs, with their sources. What is measured or follows from the machine code
// stands first; a value that is only a fit, or taken from the nearest generation, says so in its
// line as (fit) or (as h100).
//
// Sources
//   [PG]   CUDA C++ programming guide, "Arithmetic Instructions" (lanes per clock and SM)
//   [BPG]  CUDA C++ best practices guide 13, 12.1.1, the same table with 10.0 (as quoted elsewhere)
//   [SASS] ptxas 13.0.88's own schedules for sm_80, sm_90a, sm_100a: machine instructions of fixed
//          latency carry stall counts, so a chain of dependent ones spells out their latency, and
//          independent ones on one unit its interval. Chains of 24 and 56, difference / 32. The
//          hardware doesn't interlock these, so the counts can't be too low.
//   [NAK]  Mesa's compiler, scheduling tables that NVIDIA provided, sm_80 and sm_100: which machine
//          instruction is of which class ("coupled ALU", "FMA", "dual ALU", "decoupled")
//   [HPM]  HPMLL/NVIDIA-Hopper-Benchmark, logs of A100 and H800 PCIe (and arXiv 2501.12084)
//   [H1]   "CUDA Performance Study, H100 SXM5" (public repository, pointer chases at 1.98 GHz)
//   [FG]   FlashGPU-Sim, calibrated configurations SM90_H100 and SM100_B200, and its notes on H200
//   [AI]   markdewing/AI_kernels (GH200 and B200)
//   [SA]   SemiAnalysis, B200 microbenchmarks (csv)
//   [SD]   cicuvc/nvidia-sass-document, notes/sm100: probes of a B200 in machine code and in PTX
//
// Fixed latencies [SASS]
//                                   sm_80  sm_90a  sm_100a
//   FFMA FADD FMUL IMAD                4      4       4
//   LOP3 SHF PRMT F2FP FMNMX FSEL      4      4       4
//   from one side to the other         5      5       5
//   HFMA2                              8      8       4     (sm_80, sm_90: two half pipes in turn)
//   IMAD.HI, 64-bit IMAD.WIDE          6      6       6     interval 4
//   DFMA                               6      8       8
//   setp to selp                       5      5       5
//   setp to guard or branch           13     13      13
//   HMMA.16816, same accumulator      24     24      20
//   HMMA.16816, independent            8      6       8     interval; 16 x 8 x 16 x 2 FLOP
//   DMMA.8x8x4, same accumulator      18     16      16
//   MUFU, POPC, independent            8      8       8     interval
// So mma.sync reaches 4 x 4096 / 8 = 2048 FLOP/clk and SM on a100 (all of its peak), 4 x 4096 / 6 =
// 2731 on h100 (2/3 of wgmma's 4096: the lecture's share) and 2048 on b200 (1/4 of tcgen05's).
//
// Intervals by lanes [PG]: a warp on L lanes an SM holds its scheduler's unit for 128 / L cycles.
// The guide's 64 "all other type conversions" of 9.0 hold for packed conversions and I2FP, which
// are ALU instructions [NAK, SASS]; F2I, F2F and FRND stay on the XU at 16, as they have a
// scoreboard, like MUFU. min, max and compares: 128 lanes on 10.0 [BPG; "dual ALU" in NAK].
// IMAD: 64 lanes everywhere [PG]; it runs on FMA lanes [NAK]: all of a100's, half of the others'
// (Nsight Compute's pipelines fmaheavy and fmalite).
// F2FP, the packing conversion of the softmax's P: an ALU instruction [NAK], so 64 lanes of two
// results; [FG] found the same interval of 2 on sm_120. A reading of [PG] in FlashMLA's notes (16
// results a clock from f32 to bf16 on 9.0) would make it 8 times slower.
#include "softgpu/timing/latencies.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

// What is the same on all four: machine instructions that only take an issue slot, and the LSU.
#define COMMON_OPS                                                                                 \
    [OP_VOTE] = {UNIT_ALU, 2, 12},          /* 64 lanes [PG]; setp to vote to use is 17 [SASS] */  \
        [OP_SPECIAL] = {UNIT_LSU, 1, 20},   /* (fit) */                                            \
        [OP_UNIFORM] = {UNIT_ISSUE, 1, 12}, /* to the scalar side and back: (fit) */               \
        [OP_SHUFFLE] = {UNIT_LSU, 1, 24},   /* 32 lanes [PG]; latency (fit) */                     \
        [OP_LOAD] = {UNIT_LSU, 1, 0}, /* one warp instruction a clock and SM, plus conflicts */    \
        [OP_STORE] = {UNIT_LSU, 1, 0},                                                             \
    [OP_MATRIX] = {UNIT_LSU, 1, 0},     /* 128 bytes of shared memory a clock and matrix */        \
        [OP_ATOMIC] = {UNIT_LSU, 2, 0}, /* (fit) */                                                \
        [OP_COPY] = {UNIT_LSU, 7, 0,                                                               \
                     4}, /* [FG] 7 between two of a warp; 512 bytes at 128 a clock */              \
        [OP_SYNCS] = {UNIT_LSU, 1, 0}, [OP_MMA] = {UNIT_TENSOR, 8, 0}, /* mma_interval() */        \
        [OP_WGMMA] = {UNIT_ISSUE, 1, 0},                                                           \
    [OP_BULK] = {UNIT_TMA, 32, 0}, /* [FG] H100 microbenchmark: elect + bulk every 32 to 33 */     \
        [OP_BARRIER] = {UNIT_ISSUE, 2, 0}, /* [FG] admission interval 2 */                         \
        [OP_FENCE] = {UNIT_ISSUE, 1, 6},   /* [SASS] stall counts 6 to 13 */                       \
        [OP_BRANCH] = {UNIT_ISSUE, 1, 0}

static const GpuTiming all[] = {
    {
        .name = "a100",
        .op = {COMMON_OPS, [OP_FMA] = {UNIT_FMA, 2, 4}, // 64 lanes [PG]
               [OP_FMA2] = {UNIT_FMA, 4, 4},            // not there: two FFMA
               [OP_HALF] = {UNIT_HALF, 1, 8},           // 256 results [PG]: 128 lanes of two
               [OP_IMAD] = {UNIT_IMAD, 2, 4}, [OP_IMAD_HI] = {UNIT_IMAD, 4, 6},
               [OP_ALU] = {UNIT_ALU, 2, 4}, [OP_COMPARE] = {UNIT_ALU, 2, 4},
               [OP_FP64] = {UNIT_FP64, 4, 6},   // 32 lanes [PG]
               [OP_MUFU] = {UNIT_XU, 8, 19},    // 16 lanes [PG]; latency (as h100)
               [OP_CONVERT] = {UNIT_XU, 8, 14}, // 16 lanes [PG]; latency (fit)
               [OP_REDUX] = {UNIT_LSU, 2, 24}}, // 16 lanes [PG]; latency (fit)
        .imad_takes_fma = 2,
        .other_side = 1,
        .mufu_other = 19, // (as ex2)
        .guard = 13,
        .mma_latency = 24,
        .mma_f64_latency = 18,
        .mma_share = 1,

        .shared_load = 29,     // (as h100)
        .shared_atomic = 40,   // (fit)
        .local_hit = 33,       // [HPM] log: 32.7
        .l2_near = 203,        // [HPM] log, to 18 MB
        .l2_far = 398,         // [HPM] log, from 25 MB
        .l2_near_bytes = 20e6, // half of 40 MB: the log's step
        .l2_partitions = 2,
        .l2_port_bytes = 64,   // (fit) as the roofline has it
        .dram = 545,           // [HPM] log: 518 to 566
        .constant_miss = 80,   // (fit)
        .atomic_l2 = 230,      // (fit) a near load and the way through the atomic unit
        .atomic_same_word = 1, // (fit) one a clock at the word's slice

        // No TMA, clusters, wgmma, mbarrier hardware beyond arrive and test: never read.
        .tma_latency = 104,
        .tma_gap = 33,
        .tma_in_flight = 384 * 128,
        .store_visible = 200,
        .copy_commit = 7,
        .copy_wait = 5,
        .loads_in_flight = 384, // (as h100)
        .cluster_load = 181,
        .cluster_load_far = 206,
        .cluster_one_way = 78,
        .cluster_load_bytes = 19.9,
        .cluster_store_bytes = 18.9,
        .cluster_copy_bytes = 21.3,
        .cluster_both_bytes = 15.4,
        .cluster_fence = 660,
        .wgmma_issue = 17,
        .wgmma_tail = 66,
        .wgmma_tail_registers = 64,
        .wgmma_queue = 2,
        .wgmma_register_bytes = 512,
        .register_read_bytes = 1024,
        .register_pressure = true,

        .mbarrier_arrive = 29, // (as h100)
        .mbarrier_try_wait = 32,
        .barrier_interval = 2, // (as h100)
        .barrier_release = 15,
        .cluster_barrier = 190,
        .branch = 10, // (as h100)

        .launch_cycles = 3000, // (as h100)
        .cta_replace = 1200,   // (as b200)
        .cta_interval = 20,    // (as h100)
    },
    {
        .name = "h100",
        .op = {COMMON_OPS, [OP_FMA] = {UNIT_FMA, 1, 4},                     // 128 lanes [PG]
               [OP_FMA2] = {UNIT_FMA, 2, 4}, [OP_HALF] = {UNIT_HALF, 1, 8}, // 256 results [PG]
               [OP_IMAD] = {UNIT_IMAD, 2, 4}, [OP_IMAD_HI] = {UNIT_IMAD, 4, 6},
               [OP_ALU] = {UNIT_ALU, 2, 4},                                    // 64 lanes [PG]
               [OP_COMPARE] = {UNIT_ALU, 2, 4}, [OP_FP64] = {UNIT_FP64, 2, 8}, // 64 lanes [PG]
               [OP_MUFU] = {UNIT_XU, 8, 19},    // 16 lanes [PG]; ex2 chain measured: 18.91
               [OP_CONVERT] = {UNIT_XU, 8, 14}, // latency (fit)
               [OP_REDUX] = {UNIT_LSU, 2, 24}}, // latency (fit)
        .imad_takes_fma = 1,
        .other_side = 1,
        .mufu_other = 19, // (as ex2)
        .guard = 13,
        .mma_latency = 24, // [SASS]; 22 [FG], 24 (Accel-Sim)
        .mma_f64_latency = 16,
        .mma_share = 2.0 / 3,

        .shared_load = 29,     // [H1] 28.6, [FG] 29
        .shared_atomic = 40,   // (fit)
        .local_hit = 40,       // [H1] 40.2, [FG] 39 to 41; 32 on H800 [HPM]
        .l2_near = 262,        // [H1] 259.9, [HPM] 264 to 18 MB
        .l2_far = 410,         // [FG] 260 + 150
        .l2_near_bytes = 25e6, // half of 50 MB; [HPM]: the step begins between 18 and 26
        .l2_partitions = 2,
        .l2_port_bytes = 64,   // (fit) as the roofline has it
        .dram = 628,           // [HPM] 600 to 656, and TMA's 703 to 761 less 104; 570 in [H1]
        .constant_miss = 80,   // (fit)
        .atomic_l2 = 290,      // (fit) a near load and the way through the atomic unit
        .atomic_same_word = 1, // (fit)

        .tma_latency = 104,         // [HPM] 365 to 369 where a load takes 264
        .tma_gap = 33,              // [FG] 32 to 33
        .tma_in_flight = 384 * 128, // [FG] (fit)
        .store_visible = 200,       // (fit)
        .copy_commit = 7,
        .copy_wait = 5,
        .loads_in_flight = 384,     // [FG] (fit)
        .cluster_load = 181,        // [HPM] cluster of 2
        .cluster_load_far = 206,    // [HPM] 201 to 213
        .cluster_one_way = 78,      // [HPM] (181 - 33) / 2 and a little
        .cluster_load_bytes = 19.9, // (as h200)
        .cluster_store_bytes = 18.9,
        .cluster_copy_bytes = 21.3,
        .cluster_both_bytes = 15.4,
        .cluster_fence = 660,
        .wgmma_issue = 17, // [FG]
        .wgmma_tail = 66,  // [FG] H100 SXM microbenchmark
        .wgmma_tail_registers = 64,
        .wgmma_queue = 2, // (fit) the depth at which a pingpong barrier gains what the paper says
        .wgmma_register_bytes = 512, // [FG] (fit)
        .register_read_bytes = 1024,
        .register_pressure = true,

        .mbarrier_arrive = 29,   // [FG]
        .mbarrier_try_wait = 32, // [FG]
        .barrier_interval = 2,   // [FG]
        .barrier_release = 15,   // [FG]
        .cluster_barrier = 190,  // (fit) a round trip to another SM
        .branch = 10,            // (fit) taken branch of a warp alone

        .launch_cycles = 4250, // between 3,000 (Accel-Sim) and 5,500 [FG]
        .cta_replace = 1200,   // (as b200)
        .cta_interval = 20,    // (fit)
    },
    {
        .name = "h200",
        .op = {COMMON_OPS, // all as h100: the same SM
               [OP_FMA] = {UNIT_FMA, 1, 4}, [OP_FMA2] = {UNIT_FMA, 2, 4},
               [OP_HALF] = {UNIT_HALF, 1, 8}, [OP_IMAD] = {UNIT_IMAD, 2, 4},
               [OP_IMAD_HI] = {UNIT_IMAD, 4, 6}, [OP_ALU] = {UNIT_ALU, 2, 4},
               [OP_COMPARE] = {UNIT_ALU, 2, 4}, [OP_FP64] = {UNIT_FP64, 2, 8},
               [OP_MUFU] = {UNIT_XU, 8, 19}, [OP_CONVERT] = {UNIT_XU, 8, 14},
               [OP_REDUX] = {UNIT_LSU, 2, 24}},
        .imad_takes_fma = 1,
        .other_side = 1,
        .mufu_other = 19, // (as ex2)
        .guard = 13,
        .mma_latency = 24,
        .mma_f64_latency = 16,
        .mma_share = 2.0 / 3,

        .shared_load = 37,     // [AI], the address's arithmetic in it; the same SM as h100's
        .shared_atomic = 48,   // (fit)
        .local_hit = 40,       // [AI]
        .l2_near = 281,        // [AI]
        .l2_far = 431,         // [FG] + 150
        .l2_near_bytes = 30e6, // half of 60 MB
        .l2_partitions = 2,
        .l2_port_bytes = 64,   // (fit) as the roofline has it
        .dram = 690,           // [AI] GH200
        .constant_miss = 80,   // (fit)
        .atomic_l2 = 310,      // (fit)
        .atomic_same_word = 1, // (fit)

        .tma_latency = 104, // (as h100)
        .tma_gap = 33,
        .tma_in_flight = 384 * 128,
        .store_visible = 200,
        .copy_commit = 7,
        .copy_wait = 5,
        .loads_in_flight = 384,
        .cluster_load = 193,     // [FG] H200
        .cluster_load_far = 218, // (as h100: + 25)
        .cluster_one_way = 78,
        .cluster_load_bytes = 19.9, // [FG] H200 (seanzw dsm_bw), and the next three
        .cluster_store_bytes = 18.9,
        .cluster_copy_bytes = 21.3,
        .cluster_both_bytes = 15.4,
        .cluster_fence = 660, // [FG] about
        .wgmma_issue = 17,
        .wgmma_tail = 66,
        .wgmma_tail_registers = 64,
        .wgmma_queue = 2,
        .wgmma_register_bytes = 512,
        .register_read_bytes = 1024,
        .register_pressure = true,

        .mbarrier_arrive = 29, // (as h100)
        .mbarrier_try_wait = 32,
        .barrier_interval = 2,
        .barrier_release = 15,
        .cluster_barrier = 190,
        .branch = 10,

        .launch_cycles = 3000, // [FG] H200
        .cta_replace = 1200,   // (as b200)
        .cta_interval = 20,
    },
    {
        .name = "b200",
        .op = {COMMON_OPS, [OP_FMA] = {UNIT_FMA, 1, 4}, // 128 lanes [BPG]
               [OP_FMA2] = {UNIT_FMA, 2, 4},  // initiation 2: saves issue slots, not FLOPs [FG]
               [OP_HALF] = {UNIT_HALF, 1, 4}, // 256 results (as h100)
               [OP_IMAD] = {UNIT_IMAD, 2, 4}, [OP_IMAD_HI] = {UNIT_IMAD, 4, 6},
               [OP_ALU] = {UNIT_ALU, 2, 4},     // (as h100)
               [OP_COMPARE] = {UNIT_ALU, 1, 4}, // min, max, compare: 128 lanes [BPG]
               [OP_FP64] = {UNIT_FP64, 2, 8},   // 64 lanes [BPG]
               [OP_MUFU] = {UNIT_XU, 8, 18},    // [FG] ex2 chain 18
               [OP_CONVERT] = {UNIT_XU, 8, 14}, // latency (fit)
               [OP_REDUX] = {UNIT_LSU, 2, 24}}, // latency (fit)
        .imad_takes_fma = 1,
        .other_side = 1,
        .mufu_other = 28, // [FG] MUFU other than ex2
        .guard = 13,
        .mma_latency = 20,
        .mma_f64_latency = 16,
        .mma_share = 0.25,

        .shared_load = 29,     // [FG] 19 and its pipeline: (as h100)
        .shared_store = 29,    // (fit) as long as a load
        .shared_atomic = 40,   // (fit)
        .local_hit = 40,       // [AI]
        .l2_near = 295,        // [AI]
        .l2_far = 595,         // [SA] die to die + 300
        .l2_near_bytes = 63e6, // (fit) half of 126 MB
        .l2_partitions = 2,
        .l2_port_bytes = 72,   // (fit) 10,234 bytes a clock for 148 SMs are 69.2
        .dram = 860,           // [AI]
        .constant_miss = 80,   // (fit)
        .atomic_l2 = 325,      // (fit)
        .atomic_same_word = 1, // (fit)

        .tma_latency = 104,         // (as h100)
        .tma_gap = 33,              // [FG] as H100's
        .tma_in_flight = 3200 * 32, // [FG] (fit): bandwidth times delay; 64 KB saturate HBM [SA]
        .store_visible = 200,       // (as h100)
        .copy_commit = 7,
        .copy_wait = 5,
        .loads_in_flight = 384,
        .cluster_load = 193, // (as h200)
        .cluster_load_far = 218,
        .cluster_one_way = 78,
        .cluster_load_bytes = 19.9,
        .cluster_store_bytes = 18.9,
        .cluster_copy_bytes = 21.3,
        .cluster_both_bytes = 15.4,
        .cluster_fence = 660,
        .wgmma_issue = 17, // there is no wgmma on b200
        .wgmma_tail = 66,
        .wgmma_tail_registers = 64,
        .wgmma_queue = 2,
        .wgmma_register_bytes = 512,
        .register_read_bytes = 1024,
        .register_pressure = true,
        // [SA] 136 + N/2 and so on, (fit) exact for most N; commit about 12.
        .tcgen05_tail = {{136, 120, 104}, {170, 165, 146}},
        .tcgen05_commit = 12,
        .tcgen05_ends = 75,  // (fit) so that the sum comes out
        .tmem_latency = 10,  // [SD] (fit) to groups of four and eight loads with a wait behind each
        .tmem_registers = 2, // [SD] 256 bytes a clock and quarter, loads and stores together

        .mbarrier_arrive = 29,   // [FG]
        .mbarrier_try_wait = 32, // [FG]
        .barrier_interval = 2,   // (as h100)
        .barrier_release = 24,   // [FG] arrive 18, visible to waiters 24
        .cluster_barrier = 190,  // (as h100)
        .branch = 10,            // (as h100)

        .launch_cycles = 5000, // [FG]
        .cta_replace = 1200,   // [FG]
        .cta_interval = 20,    // (as h100)
    },
};

const GpuTiming *timing_of(const char *gpu_name) {
    const size_t chip = strcspn(gpu_name, "-"); // behind it stands which memory the board has
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strlen(all[i].name) == chip && !strncmp(all[i].name, gpu_name, chip)) return &all[i];
    }
    return timing_of("h100");
}

// Dense FLOPs per clock and SM of the tensor cores; f16's where a GPU has no rate of the kind.
static double tensor_rate(const GpuFigures *f, RateKind kind) {
    switch (kind) {
    case RATE_TF32: return f->tensor_flops_tf32;
    case RATE_FP8: return f->tensor_flops_fp8 ? f->tensor_flops_fp8 : f->tensor_flops_f16;
    case RATE_INT8: return 2 * f->tensor_flops_f16;
    case RATE_F64: return f->tensor_flops_f64;
    default: return f->tensor_flops_f16;
    }
}

// The f64 rate is that of DMMA, which is a mma.sync: no share is lost.
int mma_interval(const GpuTiming *t, const GpuFigures *f, RateKind kind, double flops) {
    double share = kind == RATE_F64 ? 1 : t->mma_share;
    double cycles = flops / (tensor_rate(f, kind) / 4 * share);
    return cycles < 1 ? 1 : (int)lrint(cycles);
}

int wgmma_cycles(const GpuFigures *f, RateKind kind, int n, int k) {
    return (int)lrint(2.0 * 64 * n * k / tensor_rate(f, kind));
}

const char *unit_name(Unit unit) {
    static const char *const names[UNIT_COUNT] = {"issue", "fma", "imad",   "half", "alu",
                                                  "fp64",  "xu",  "tensor", "lsu",  "tma"};
    return names[unit];
}
