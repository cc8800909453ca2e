// The table of instruction forms: every form that softgpu knows is declared once, beside its
// handler, in one of the execute/*.c files; ptx/table.c gathers the tables and matches
// instructions against them.
//
// A form's `modifiers` is a set, written as groups separated by spaces:
//
//     "rn|rz|rm|rp? ftz? sat? f32"
//
// Each group is a list of alternatives; `?` makes it optional, and # in one stands for a number,
// which is then the business of a `lower` hook. An instruction matches when every
// group without `?` has exactly one of its alternatives among the instruction's modifiers, every
// other group at most one, and no modifier is left over. The order in which the program wrote them
// doesn't matter (real programs write several). A modifier that stands twice (cvt.f32.f32) is given
// to two groups, from left to right in the order written: so types in cvt and mma forms are groups
// of their own. The chosen alternative of group g, counted from 1, 0 for none, is choice[g]
// (groups from the sixth on are only seen by a `lower` hook).
//
// The matcher is greedy: it goes through the groups from left to right, and each takes the earliest
// modifier not yet taken that is one of its alternatives. It never goes back, so a form in which an
// optional group could steal what a later group needs must be written as two forms. Forms of one
// name are tried in the order of the table: the first whose modifiers and operands fit and which
// lowers without a refusal wins, so "d32 a32" and "d64 a64" can stand below each other.
//
// `operands` lists the operands in the order written, separated by spaces:
//
//     d32 a32 b32     rows of 32 bits into Insn.d, .a, .b       widths: p 16 32 64 128
//     d32|p           optional second destination (d|p): into Insn.e
//     a32 of a source may be an immediate, a symbol's address or a special register
//     m               [base + offset]: base row into Insn.a, offset into Insn.imm
//     v               a vector {…} or a single register: rows into Insn.rows (destinations and
//                     sources of ld/st: any width at least the type's)
//                     a vector that stands first is the destination; Insn.row_count = elements
//     i               an integer immediate into Insn.imm
//     ?               after an operand: it may be missing (its field is ROW_NONE)
//
// Forms that need more name a `lower` hook, which gets the instruction and does it all; operands,
// if not NULL, is then only checked for its shape (counts and kinds, not widths).
//
// A hook is called twice for each instruction: once for lowering to learn which registers it reads
// and writes (rows and addresses are not final then, and the instruction is thrown away), and once
// for good. So it must depend on nothing but its arguments, and must name every register that the
// handler touches through source_row and destination_row; one that is read and written through
// both. A destination never shares its row with another operand unless the program wrote the same
// register for both.
#ifndef SOFTGPU_FORM_H
#define SOFTGPU_FORM_H

#include "softgpu/machine/code.h"

typedef struct Lowering Lowering; // private to ptx/lower.c; hooks use the functions below
typedef struct Form Form;

typedef struct {
    const PtxInstruction *ptx;
    const Form *form;
    uint8_t choice[16]; // per modifier group
} Match;

// Fills `i` (zeroed; d…e, guard = ROW_NONE; guard, index, pipe, flags, choice already set).
// Returns NULL, or why this instruction is refused: it then traps with that text when reached.
typedef const char *LowerHook(Lowering *l, const Match *m, Insn *i);

struct Form {
    const char *name;      // "add"
    const char *modifiers; // set, as above
    const char *operands;
    Handler *run; // NULL only with a hook that sets Insn.run
    Pipe pipe;
    uint16_t flops;
    uint8_t flags;    // INSN_ALIGNED, INSN_POLL
    LowerHook *lower; // NULL: by `operands`
};

// Hidden instructions that lowering inserts, and the trap it puts in place of what has no form.
extern Handler read_special;     // execute/move.c; see execute/special.h
extern Handler local_address;    // execute/move.c: d = imm + local_base of the running frame, for
                                 // rows of Insn.size (4 or 8) bytes an element
extern Handler trap_unsupported; // execute/control.c: FINDING_UNSUPPORTED; Insn.extra is the
                                 // reason (a string), Kernel.texts[index] the instruction
extern Handler trap_target;      // the same for one that the module's .target doesn't have
// The device functions that the runtime provides (execute/builtins.c). Insn.extra is the Call: the
// arguments lie in the caller's frame at `from`, the result goes to result.to of the same frame.
extern Handler builtin_vprintf, builtin_malloc, builtin_free, builtin_assertfail;

// The tables, each ended by a form without a name.
extern const Form integer_forms[], bits_forms[], float_forms[], function_forms[], half_forms[],
    compare_forms[], convert_forms[], pack_forms[], move_forms[], memory_forms[], atomic_forms[],
    barrier_forms[], warp_forms[], control_forms[], cp_async_forms[], mbarrier_forms[],
    matrix_forms[], matrix_move_forms[], wmma_forms[], wgmma_forms[], cluster_forms[],
    remote_forms[], register_forms[], bulk_forms[], tensor_map_forms[], phase_forms[],
    tcgen05_forms[], tcgen05_mma_forms[], tcgen05_copy_forms[], launch_control_forms[];

// ---- for lower hooks

// Width in bits of a register operand: 1 (predicate), 16, 32, 64, 128; 0 if it is no register.
int operand_width(Lowering *l, const PtxOperand *o);
// Row of an operand read as `width` bits: a register of exactly that width (ask operand_width first
// where wider ones may stand, as in ld, st and cvt), an immediate (made a constant row; floats are
// converted to the width), a symbol's address, or a special register. !p is negated by a hidden
// instruction in front, so that the row holds what the program means. ROW_NONE and an explanation
// in *why if it can't be.
Row source_row(Lowering *l, const PtxOperand *o, int width, const char **why);
// Row of a destination register; a sink gets a scratch row.
Row destination_row(Lowering *l, const PtxOperand *o, int width, const char **why);
// Base row and offset of an address operand. Registers of 32 or 64 bits, symbols and immediates;
// sets INSN_WIDE_BASE in i->flags, i->a and i->imm.
const char *address_operand(Lowering *l, const PtxOperand *o, Insn *i);
// A constant row: `value` in all 32 lanes. width 1, 16, 32, 64.
Row constant_row(Lowering *l, uint64_t value, int width);
// Memory that lives as long as the kernel.
void *kernel_alloc(Lowering *l, size_t size);
// Address of a variable in its own space (shared: absolute shared address; param of the entry:
// byte offset in the parameter block; local: byte offset in the thread's frame; global, const:
// device address). For .param variables of calls and functions, use param_storage.
bool symbol_address(Lowering *l, const PtxOperand *o, uint64_t *address, Space *space);
// .param storage of the current function (not of an entry): frame offset and lane stride.
bool param_storage(Lowering *l, const PtxOperand *address, uint32_t *offset, uint32_t *stride);
// Instruction `target` (index in the current function) as code, once all is lowered: the pointer is
// stored at *slot at the end.
void code_reference(Lowering *l, int target, const Insn **slot);
// The join point of the branch being lowered, stored at *slot at the end; NULL if there is none.
void join_reference(Lowering *l, const Insn **slot);
// The hook for all forms of `call` (ptx/call.c): fills i->extra with a Call, and i->a for an
// indirect one. The form supplies the handler.
LowerHook lower_call;
// The function being called: adds it to the kernel if it is new. `name` resolves across modules.
const CodeFunction *callee(Lowering *l, const PtxOperand *o, const char **why);
// Lowers every function whose address is taken (for indirect calls) and their frames.
void callee_any(Lowering *l);
// Does the current function belong to an entry (so that .param is the kernel's parameter block)?
bool in_entry(Lowering *l);

// Finds the form of an instruction; NULL and a reason ("no form of 'x' takes .y") if there is none.
const Form *form_match(const PtxInstruction *p, Match *m, char *why, size_t why_size);

#endif
