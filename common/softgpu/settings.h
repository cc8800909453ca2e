// What the person asked for: the SOFTGPU_* environment (the launcher and ./run turn their options
// into it, so there is one way in).
#ifndef SOFTGPU_SETTINGS_H
#define SOFTGPU_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM } AsyncOrder;
typedef enum { NUMERICS_DEFAULT, NUMERICS_FAST, NUMERICS_HARDWARE } Numerics;

enum { CHECK_MEM = 1, CHECK_INIT = 2, CHECK_RACE = 4, CHECK_SYNC = 8 };

typedef struct {
    const char *gpu;   // SOFTGPU_GPU: a100, a100-40gb, h100, h200, b200; NULL = by the program
    unsigned checks;   // SOFTGPU_CHECK: CHECK_… bits
    uint64_t schedule; // SOFTGPU_SCHEDULE
    AsyncOrder async;  // SOFTGPU_ASYNC
    Numerics numerics; // SOFTGPU_NUMERICS
    double clock_ghz;  // SOFTGPU_CLOCK; 0 = the GPU's sustained clock
    int sms;           // SOFTGPU_SMS; 0 = all
    int sample;        // SOFTGPU_SAMPLE; 0 = all
    int threads;       // SOFTGPU_THREADS; host threads, default: cores
    bool strict;       // SOFTGPU_STRICT
    bool timing;       // SOFTGPU_TIMING=0 (--no-timing): no caches, no time
    bool stats;        // SOFTGPU_STATS: counters per kernel on stderr at exit
    bool report_json;  // SOFTGPU_REPORT=json; report_file: SOFTGPU_REPORT_FILE, NULL = stderr
    const char *report_file;
    const char *trace; // SOFTGPU_TRACE: the timeline's file; NULL: none
    int trace_sms;     // SOFTGPU_TRACE_SMS: how many SMs are in it
} Settings;

// Reads the environment. Returns NULL and fills *settings, or a message that names the variable and
// the mend ("SOFTGPU_GPU=h101: unknown GPU; one of a100, a100-40gb, h100, h200, b200").
const char *settings_read(Settings *settings);

#endif
