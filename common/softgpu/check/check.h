// The sanitizer's questions, asked by handlers; and how findings are recorded.
//
// A check that fails records a finding and returns false; the handler then returns FLOW_FAULT (mem)
// or goes on (init). Findings are recorded per SM and merged in order, so that they are the same
// for any number of host threads; each distinct (kind, line, other line) is kept once, with a
// count.
#ifndef SOFTGPU_CHECK_H
#define SOFTGPU_CHECK_H

#include "softgpu/machine/machine.h"

typedef enum {
    FINDING_OUT_OF_BOUNDS,
    FINDING_MISALIGNED,
    FINDING_WRONG_SPACE,
    FINDING_USE_AFTER_FREE,
    FINDING_STACK_OVERFLOW,
    FINDING_UNINITIALISED,
    FINDING_RACE,
    FINDING_DIVERGENT, // .aligned or .sync instruction that not all lanes reach
    FINDING_BARRIER,   // counts that don't match, invalid barrier
    FINDING_DEADLOCK,
    FINDING_UNSUPPORTED, // an instruction that softgpu doesn't know was reached
    FINDING_TRAP,        // trap, brkpt
    FINDING_ASSERT,      // device assert
    FINDING_LAUNCH,      // impossible launch
    FINDING_BULK,        // operands of a bulk copy that can't be
    FINDING_TENSOR,      // what tcgen05 instructions may not do
    FINDING_LINT,        // strict only; otherwise a note
    FINDING_NOTE,        // always a note: legal, and mostly not what was meant
} FindingKind;

// Records a finding about the instruction `i` of lane `lane` (-1: the whole warp). `what` is the
// sentence of fact, `mend` what to do (may be NULL). Printf-like; both are copied.
void finding(Warp *w, const Insn *i, int lane, FindingKind kind, const char *mend, const char *what,
             ...) __attribute__((format(printf, 6, 7)));
// The cudaError code that a fatal finding of this kind leaves behind.
int finding_error(FindingKind kind);

// May the lanes of `mask` access `size` bytes at these generic/global addresses? Checks alignment,
// bounds per allocation, constness. (With CHECK_MEM off only that the address is mapped at all, so
// that the emulator itself can't crash; then a fault is reported as error 700 without detail.)
bool check_global(Warp *w, const Insn *i, const uint64_t address[32], unsigned size, uint32_t mask,
                  bool write);
// The same for shared addresses without rank bits (offsets in the CTA's memory).
bool check_shared(Warp *w, const Insn *i, const uint32_t address[32], unsigned size, uint32_t mask,
                  bool write);
// The CTA of the warp's cluster in whose memory a shared address lies, and the address without rank
// bits. NULL after a finding: there is no such CTA, or it has exited.
Cta *check_peer(Warp *w, const Insn *i, int lane, uint32_t address, uint32_t *offset);
bool check_local(Warp *w, const Insn *i, const uint32_t offset[32], unsigned size, uint32_t mask,
                 bool write);
// Ranges of any length and alignment, of bulk copies and matrix operands. `lane`: who is named in
// findings. Shared memory: that of `cta`, offsets without rank bits.
bool check_global_range(Warp *w, const Insn *i, int lane, uint64_t address, uint64_t size,
                        bool write);
// Is the range known to lie in one allocation? Records nothing.
bool check_global_range_quick(const Warp *w, uint64_t address, uint64_t size, bool write);
bool check_shared_range(Warp *w, const Insn *i, int lane, const Cta *cta, uint32_t offset,
                        uint32_t size, bool write);

// The init check: marks after a write, asks before a read. Reading bytes that nothing wrote is
// recorded once per line, or, of shared and local memory unless strict, makes the load's register
// undefined (definedness.h); the run goes on.
void init_global_written(Warp *w, const uint64_t address[32], unsigned size, uint32_t mask);
void init_global_read(Warp *w, const Insn *i, const uint64_t address[32], unsigned size,
                      uint32_t mask);
// Of the shared memory of `cta`, the warp's own or a peer's; addresses without rank bits.
void init_shared_written(Cta *cta, const uint32_t address[32], unsigned size, uint32_t mask);
void init_shared_read(Warp *w, const Insn *i, const Cta *cta, const uint32_t address[32],
                      unsigned size, uint32_t mask);
void init_local_written(Warp *w, const uint32_t offset[32], unsigned size, uint32_t mask);
void init_local_read(Warp *w, const Insn *i, const uint32_t offset[32], unsigned size,
                     uint32_t mask);

// The mark of a byte of shared memory that is written: 1; or, if a tensor copy wrote it with a
// swizzle (machine/swizzle.h; none is one too), the mode besides, which any other write takes away.
enum { MARK_WRITTEN = 1, MARK_SWIZZLE = 2 };
static inline uint8_t swizzle_mark(unsigned mode) {
    return (uint8_t)(MARK_WRITTEN | (mode + 1) * MARK_SWIZZLE);
}

// The init check of ranges. Has all of a range of shared memory been written? (True without the
// check.) And the finding of a range of global memory of which not all has been; false, and nothing
// is recorded, if it has, or nobody can know.
bool init_shared_range(const Cta *cta, uint32_t offset, uint32_t size);
bool init_global_range(Warp *w, const Insn *i, int lane, uint64_t address, uint64_t size);

// Nothing can run any more: records who waits for what, at which line (check/deadlock.c).
void report_deadlock(LaunchState *launch);

#endif
