// What softgpu's libcudart offers beside the CUDA runtime API. A program never links these: it asks
// the loader for them (dlsym) and finds nothing where a real runtime answers.
#ifndef SOFTGPU_H
#define SOFTGPU_H

#include <stddef.h>
#include <stdint.h>

// Sums over the kernels (and copies) since softgpu_stats_reset.
typedef struct {
    double time_us; // modelled
    double hbm_read_bytes, hbm_write_bytes, l2_read_bytes;
    double flops; // all units
    double thread_instructions, warp_instructions;
    double host_seconds; // emulation itself
    double shared_wavefronts, shared_ideal_wavefronts;
    double busy[12]; // fraction of the time that each pipe (machine/code.h) was busy
    double hbm_busy, l2_busy, shared_busy;
    uint64_t kernels;
    int sms_simulated, sms_total;
    int findings; // errors reported
    // What the work alone takes at the units' full rates, in cycles of all SMs together: by pipe,
    // of shared memory, and of what comes from L2 (TMA, cp.async or loads) at the SMs' ports.
    double pipe_cycles[12], shared_cycles, load_cycles;
    // By the timing model; cycles is 0 when it timed nothing, and then so is the rest.
    double cycles;        // of the SMs' clock, sum of the kernels
    double unit_busy[12]; // shares of the cycles, averages of the SMs: Unit of timing/latencies.h
    double tensor_busy;   // mma.sync and wgmma together; beside it hbm_busy, l2_busy, shared_busy
    double stall[8];      // shares of the resident warps' cycles: Stall of machine/machine.h
} SoftgpuStats;

typedef struct {
    // Sets an option by its long name without dashes ("schedule", "sample", "check", "async", …), as
    // the environment does; takes effect at the next launch. Returns 0, or -1 if it can't be
    // changed any more or the value is bad. "gpu" and "sms" only before the first CUDA call.
    int (*set)(const char *name, const char *value);
    void (*stats_reset)(void);
    void (*stats)(SoftgpuStats *stats);
    // The modelled GPU: "h100", and its full name.
    const char *(*gpu_name)(void);
    const char *(*gpu_full_name)(void);
    int (*gpu_sms)(void); // of the whole GPU, however few are modelled
    double (*clock_ghz)(void);
    // Findings since the last call as a JSON array; owned by softgpu, valid until the next call.
    const char *(*findings_json)(void);
    const char *(*time_kind)(void); // "roofline" or "modelled"
    // Clears the sticky error that a finding left, so that the next step can run.
    void (*reset_device)(void);
    // Completes the files that are else completed when the process ends: the timeline and the report
    // of findings. (Until then they stand beside their places as FILE.PID.part.) Returns 0, or -1 if
    // one can't be written: a line on standard error says which, and nothing of it is left.
    int (*finish)(void);
} SoftgpuInterface;

// Symbol name: "softgpu_interface"; type: const SoftgpuInterface *(*)(void).
#define SOFTGPU_INTERFACE_SYMBOL "softgpu_interface"

#endif
