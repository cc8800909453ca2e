// What machine instructions ptxas makes of a PTX instruction: the expansion table.
//
// PTX is not what the GPU runs. ex2.approx.f32 without .ftz is four machine instructions, a
// division two dozen, a cvta none. The table (expansion_table.c) was made from counts: kernels of
// one PTX instruction each, compiled by ptxas 13.0 for sm_80, sm_90a and sm_100a and disassembled.
// What ptxas does with several instructions together (an add that goes into a multiply) is
// block.c's business.
//
// An expansion is a chain of stages: the machine instructions of a stage don't depend on each
// other, those of the next need the last of the one before. Of instructions with a rare slow path
// (div.rn, sqrt.rn: denormals, overflow) the usual path counts. No stage at all: ptxas removes it.
#ifndef SOFTGPU_EXPANSION_H
#define SOFTGPU_EXPANSION_H

#include "softgpu/machine/code.h"
#include "softgpu/timing/latencies.h"

enum { STAGES_MAX = 12 };

typedef struct {
    uint8_t op;    // MachineOp
    uint8_t count; // machine instructions; 0 ends the chain
} Stage;

// When a warp may have to wait at an instruction.
typedef enum {
    WAIT_NOT,
    WAIT_RESULT,  // a load: where its result is first used
    WAIT_HERE,    // barrier, mbarrier, wait_group, fence: here, until it is over
    WAIT_QUEUE,   // wgmma, bulk copy: here, while the unit's queue is full
    WAIT_CONTROL, // calls, branches: what follows depends on them
} WaitKind;

typedef struct {
    const Stage *stages; // ended by a count of 0, unless there are STAGES_MAX
    uint8_t stage_count;
    uint8_t wait;      // WaitKind
    uint16_t interval; // of OP_MMA and OP_MATRIX: cycles for each machine instruction; else 0
    uint16_t repeat;   // OP_MMA: machine instructions; else 0: Stage.count holds
    uint16_t latency;  // of its result: OP_MMA, MUFU; else 0: the table's of the last stage holds
} Expansion;

// A row of the table. The first row of an opcode whose words fit is the one.
typedef struct {
    const char *opcode;
    const char *words; // "f32 !ftz": modifiers that must, or must not, be there
    uint8_t since;     // compute capability times ten from which on the row holds (80, 90, 100)
    uint8_t wait;      // WaitKind
    Stage stages[STAGES_MAX];
} ExpansionRow;

extern const ExpansionRow expansion_rows[]; // sorted by opcode
extern const int expansion_row_count;

// Expands an instruction; `text` is its full opcode (Kernel.texts). One that the table doesn't know
// counts as one instruction of its pipe (Insn.pipe).
Expansion expand(const Insn *i, const char *text, const GpuFigures *f, const GpuTiming *t);

// The row of the table for a full opcode, or NULL.
const ExpansionRow *expansion_row(const char *text, int capability);

// Has the full opcode this modifier ("ftz")? The opcode itself doesn't count.
bool text_has(const char *text, const char *word);
// Is this its opcode (the part up to the first dot)?
bool text_is(const char *text, const char *opcode);

#endif
