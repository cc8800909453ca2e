// Private to ptx/: the state of a lowering, shared by lower.c, rows.c, storage.c and call.c.
//
// Lowering goes over a kernel's functions twice. The *survey* runs every form and hook only to see
// what they touch: registers (for liveness), .param variables, shared variables, callees (which are
// then surveyed too). Between the passes, rows and addresses are assigned. The second pass makes
// the code. In the survey rows are all 0 and what hooks allocate is thrown away.
#ifndef SOFTGPU_LOWERING_H
#define SOFTGPU_LOWERING_H

#include "softgpu/execute/form.h"
#include "softgpu/ptx/arena.h"
#include "softgpu/ptx/flow.h"
#include "softgpu/ptx/map.h"
#include "softgpu/ptx/registers.h"

// Storage of a .param variable in a frame: `stride` bytes for each of 32 lanes.
typedef struct {
    const PtxVariable *variable;
    uint32_t offset, stride;
    int first, last; // instructions that touch it, of those that calls use
} Region;

// A function of the kernel.
typedef struct {
    PtxFunction *ptx;
    CodeFunction *code; // NULL during the survey
    FlowGraph *graph;
    Access *accesses;
    int access_count, access_capacity;
    Assignment rows;

    Region *regions; // the function's own returns and parameters first
    int own_regions, region_count, region_capacity;
    Map region_of; // PtxVariable → index in regions

    Map locals; // PtxVariable → byte offset in the function's .local storage
    uint32_t local_size;
    uint32_t frame_end; // grows while scratch rows are added

    Row *scratch[CLASS_COUNT];
    uint32_t scratch_count[CLASS_COUNT];

    uint32_t *code_of; // per instruction, and for the end: index of its first Insn

    int *callees; // indices of Bodies that it calls by name
    int callee_count, callee_capacity;
    bool calls_any;   // has an indirect call
    uint64_t deepest; // bytes of .local storage of it and the deepest chain of calls from it
    enum { UNSEEN, ON_PATH, DONE } walk; // of that computation
} Body;

struct Lowering {
    Kernel *kernel;
    Linker *linker;
    PtxError *error;
    bool failed;
    bool surveying;
    Arena *arena;   // the kernel's
    Arena *scratch; // thrown away after lowering

    Body **bodies;
    int body_count, body_capacity;
    Map body_of;      // PtxFunction → index in bodies
    Map entry_params; // PtxVariable → byte offset in the parameter block

    // The instruction being lowered.
    Body *body;
    int instruction; // index in body->ptx->instructions
    const PtxInstruction *ptx;
    Row guard;
    uint32_t scratch_used[CLASS_COUNT];
    int operands_done; // by lower_by_pattern, before it refused

    // Code so far.
    Insn *code;
    const PtxLocation **locations;
    const char **texts;
    uint32_t *used; // PtxInstruction.used_bytes
    struct KernelUses *uses;
    uint32_t code_count, code_capacity;
    Use *touched; // of all instructions
    int touched_count, touched_capacity;
    Use *pending; // of the instruction being lowered
    int pending_count, pending_capacity;
    bool in_address; // the operand being lowered is an address

    // Pointers to instructions, written when the code has its final place.
    struct Reference {
        const Insn **slot;
        const Body *body;
        int target;
    } * references;
    size_t reference_count, reference_capacity;

    // Constant rows.
    uint8_t *constants;
    uint32_t constant_size, constant_capacity;
    Map constant_of[CLASS_COUNT];        // value → offset
    Map shared_constant_of[CLASS_COUNT]; // the same for addresses of shared memory
    struct KernelSharedConstant *shared_constants;
    int shared_constant_count, shared_constant_capacity;

    // Shared variables in the order in which they were met.
    const PtxVariable **shared;
    int shared_count, shared_capacity;
    Map shared_address; // PtxVariable → address; the survey sets 0
    uint32_t dynamic_align;
};

// Makes room for one more element in a growing array; capacity is updated.
void *lowering_grow(void *array, size_t count, void *capacity_int, size_t element);
// A formatted reason that lives as long as the kernel (or the survey).
const char *refusal(Lowering *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Appends an instruction; does nothing in the survey.
void emit_insn(Lowering *l, const Insn *i);
// An instruction of the running PTX instruction's guard without anything else.
Insn blank_insn(const Lowering *l);
// Lowers by the form's operand pattern. NULL, or why it can't be.
const char *lower_by_pattern(Lowering *l, const Match *m, Insn *i);

// The body of a function, added to the kernel if it is new.
Body *body_of(Lowering *l, PtxFunction *function);
// Notes that a register is read or written here.
void note_access(Lowering *l, int reg, bool write);

// ---- target.c

// Why the target of the function's module has no such instruction as the one being lowered; NULL if
// it has.
const char *target_fault(Lowering *l);

// ---- uses.c

// Notes that the instruction being lowered reads or writes a row.
void note_use(Lowering *l, Row row, bool write);
// Gives the last instruction emitted a use of its own: for hidden ones.
void add_use(Lowering *l, Row row, int kind);
// Gives it all uses noted, and its rule.
void add_uses(Lowering *l, const Insn *i);

// ---- in_flight.c

// Keeps registers of wgmma.mma_async alive until the waits that cover it. To be called before rows
// are assigned.
void extend_in_flight(Body *body);
// The flags Kernel.in_flight.
const uint8_t *flag_in_flight(Lowering *l);

// ---- storage.c

// The variable that a symbol means, across modules; NULL if no module defines it.
const PtxVariable *resolve_variable(Lowering *l, const PtxOperand *symbol);
// The region of a .param variable in the running function's frame; NULL if it has none there.
Region *region_of(Lowering *l, const PtxVariable *variable);
uint32_t region_stride(uint64_t size);
// Lays out returns and parameters of a function from frame offset 0.
void lay_out_own_regions(Lowering *l, Body *body);
void lay_out_entry_params(Lowering *l, const PtxFunction *entry);
void lay_out_locals(Body *body);
// Notes a shared variable, whose address is known after the survey.
void note_shared(Lowering *l, const PtxVariable *variable);
void lay_out_shared(Lowering *l);
// Gives the call arguments of a body their places behind its rows.
void lay_out_call_regions(Body *body);
// Sets Kernel.local_size and .recursive from the call graph.
void measure_stack(Lowering *l);

#endif
