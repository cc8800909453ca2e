// Private to timing/trace*.c: spans on their way to the file.
#ifndef SOFTGPU_TRACE_PARTS_H
#define SOFTGPU_TRACE_PARTS_H

#include "softgpu/timing/trace.h"

enum {
    TRACE_WARPS = 32,    // of a block
    TRACE_SLOTS = 32,    // of an SM
    TRACE_BARRIERS = 64, // of a block; of more, those that complete later have no track
    TRACE_UNITS = 2 * 4, // MUFU and tensor cores, by scheduler
};

typedef struct {
    const char *name; // NULL: a block, `linear`
    uint64_t begin, end;
    uint64_t linear; // the block's number in the grid
    uint64_t busy;   // cycles of those between begin and end; 0: all
    uint32_t number;
    int32_t warp; // slot * TRACE_WARPS + warp; -1: nobody's
    uint8_t track;
    bool wait;
} TraceSpan;

typedef struct TraceSm {
    int sm;
    TraceSpan *spans;
    uint32_t count, capacity;
    uint64_t dropped;
    struct TraceSlot {
        const Cta *cta; // NULL: free
        uint64_t linear, begin;
        struct TraceOpen {
            const char *name; // NULL: in no phase
            uint64_t begin;
        } open[TRACE_WARPS];
        struct TraceBarrier {
            uint32_t number;
            uint64_t phases, since; // complete; when the last one was
        } barriers[TRACE_BARRIERS];
        int barrier_count;
    } slots[TRACE_SLOTS];
    uint32_t latest[TRACE_UNITS]; // 1 + a unit's latest span; 0: none
} TraceSm;

// What a launch's spans are written with.
typedef struct {
    const Launch *launch;
    const char *gpu;  // its full name
    double begin_us;  // GPU's clock
    double clock_ghz; // cycles to microseconds
    double time_us;   // of the whole launch
    uint64_t begin;   // SM clock
} TraceLaunch;

// Opens the file under a temporary name beside it. False: it can't be written, errno says why.
bool trace_file_open(const char *path);
const char *trace_file_path(void); // NULL: none is open
// Writes a launch and the spans of its SMs, which it sorts.
void trace_file_launch(const TraceLaunch *launch, TraceSm *const *sms, int count);
// Completes it. False: it can't be written, as it says on stderr, and nothing of it is left.
bool trace_file_close(void);

#endif
