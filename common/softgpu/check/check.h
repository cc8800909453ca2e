// The sanitizer's questions, asked by handlers; and how findings are recorded.
//
// A check that fails records a finding and returns false; the handler then returns FLOW_FAULT (mem)
// or goes on (init). Findings are recorded per SM and merged in order, so that they are the same
// for any number of host threads; each distinct (kind, line, other line) is kept once, with a count.
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
    FINDING_LINT,        // strict only; otherwise a note
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
bool check_local(Warp *w, const Insn *i, const uint32_t offset[32], unsigned size, uint32_t mask,
                 bool write);

// The init check: marks after a write, asks before a read. Reading bytes that nothing wrote is
// recorded once per line, or, of shared and local memory unless strict, makes the load's register
// undefined (definedness.h); the run goes on.
void init_global_written(Warp *w, const uint64_t address[32], unsigned size, uint32_t mask);
void init_global_read(Warp *w, const Insn *i, const uint64_t address[32], unsigned size,
                      uint32_t mask);
void init_shared_written(Warp *w, const uint32_t address[32], unsigned size, uint32_t mask);
void init_shared_read(Warp *w, const Insn *i, const uint32_t address[32], unsigned size,
                      uint32_t mask);
void init_local_written(Warp *w, const uint32_t offset[32], unsigned size, uint32_t mask);
void init_local_read(Warp *w, const Insn *i, const uint32_t offset[32], unsigned size,
                     uint32_t mask);

// Nothing can run any more: records who waits for what, at which line (check/deadlock.c).
void report_deadlock(LaunchState *launch);

#endif
