// Timelines: what the warps and units of the first SMs did when, as a file that chrome://tracing,
// ui.perfetto.dev and common/plot/timeline.py read (Settings.trace names it).
//
// While a launch runs, each traced SM gathers *spans* in a buffer of its own; nothing is locked, as
// one host thread at a time runs an SM. At the end of the launch they are written (trace_file.c),
// one launch after the other by the GPU's clock. Times given here are those of the SM's clock, in
// cycles.
//
// Invariant: the spans of a warp's track nest: a phase ends before the next begins, and what the
// warp waited for lies within a phase or outside all of them. Spans of a unit's track may come in
// any order and overlap; those that do are written as lanes side by side.
#ifndef SOFTGPU_TRACE_H
#define SOFTGPU_TRACE_H

#include "softgpu/machine/machine.h"

enum {
    TRACE_SMS = 2, // the first SMs of a launch, if the settings don't say how many
    TRACE_SMS_MOST = 256,
    TRACE_GAP = 64,
    TRACE_SPANS_MOST = 1 << 17, // of an SM in a launch; the file says how many more there were
    TRACE_FILE_MOST = 1 << 21,  // of all launches; later ones are left out, and the file says so
};

typedef enum {
    TRACE_CTA,    // blocks; number: the slot, from 0, that a block has on its SM
    TRACE_WARP,   // phases and waits; trace_phase and trace_wait
    TRACE_TENSOR, // tensor cores; number: the scheduler (mma.sync), or 0 for the SM's (wgmma)
    TRACE_MUFU,   // exponentials and the like; number: the scheduler
    TRACE_TMA,    // bulk copies, from their issue to their last byte; number: 0
    TRACE_BARRIER, // phases of barriers; number: below 16 a named barrier, else an mbarrier's address
    TRACE_TRACKS,
} TraceTrack;

// Is this SM traced in this launch? To be asked before the others are called.
static inline bool trace_on(const Sm *sm) {
    return sm->trace != NULL;
}

// A unit was busy with `name` from `begin` to `end` (cycles; an empty span is dropped). `by`: the
// warp whose work it was; NULL if it is nobody's. `name` must live as long as the kernel.
void trace_span(Sm *sm, TraceTrack track, uint32_t number, const Warp *by, const char *name,
                uint64_t begin, uint64_t end);
// The warp's scheduler had this unit of its own busy: MUFU and tensor cores have tracks, others are
// dropped. Work with gaps of at most TRACE_GAP cycles, whoever's it is, becomes one bar, whose `busy`
// says how many of its cycles were work. Calls for one scheduler in rising order of time.
void trace_unit(const Warp *w, Unit unit, uint64_t begin, uint64_t end);
// A phase of a barrier is complete, and its next one begins. `number` as TRACE_BARRIER has it.
void trace_barrier(const Cta *cta, uint32_t number, uint64_t now);
// What a warp waited for.
void trace_wait(const Warp *w, Stall why, uint64_t begin, uint64_t end);
// A warp's phase ends, if it is in one, and another begins; NULL: none does.
void trace_phase(const Warp *w, const char *name, uint64_t now);
// A block has come to its SM, or leaves it. Phases of its warps end with it.
void trace_cta_begin(const Cta *cta, uint64_t now);
void trace_cta_end(const Cta *cta, uint64_t now);

// A launch begins on SMs 0 … sms - 1, all of whose clocks stand at `now`; and ends, `time_us`
// modelled microseconds after the GPU's clock (Gpu.clock_us, not advanced yet). On one thread.
void trace_launch_begin(Gpu *gpu, const Launch *launch, int sms, uint64_t now);
void trace_launch_end(Gpu *gpu, const Launch *launch, double time_us);
// Completes the file, at the end of the process. False: it can't be written, as it says on stderr,
// and nothing of it is left.
bool trace_finish(void);

// Can the timeline be written? NULL, or why it can't. "-" is standard output.
const char *trace_probe(const char *path);

#endif
