// Control flow: branches, calls, the ends of threads, traps.
//
// The handlers only say where lanes go; machine/diverge.c and machine/call.c keep the groups.
#include "softgpu/execute/control.h"

#include "softgpu/check/check.h"
#include "softgpu/execute/form.h"
#include "softgpu/machine/machine.h"

// bra: the lanes whose guard is on jump, the others go on.
static Flow branch(Warp *w, const Insn *i, uint32_t mask) {
    const Branch *b = i->extra;
    if (mask == w->live) { // all there are
        w->pc = b->target;
        return FLOW_JUMP;
    }
    return warp_branch(w, i, b->target, b->join, mask, w->active);
}

static const char *lower_branch(Lowering *l, const Match *m, Insn *i) {
    const PtxOperand *label = &m->ptx->operands[0];
    if (m->ptx->operand_count != 1 || label->kind != OPERAND_LABEL) return "bra takes a label";
    Branch *b = kernel_alloc(l, sizeof *b);
    *b = (Branch){0};
    code_reference(l, label->target, &b->target);
    join_reference(l, &b->join);
    i->extra = b;
    return NULL;
}

// brx.idx: each lane jumps to the entry of the table that its index names.
static Flow branch_table(Warp *w, const Insn *i, uint32_t mask) {
    const Branch *b = i->extra;
    const uint32_t *index = row(w, i->a);
    const Insn *targets[WARP_SIZE];
    for (uint32_t m = mask; m; m &= m - 1) {
        int lane = __builtin_ctz(m);
        if (index[lane] >= b->table_count) {
            finding(w, i, lane, FINDING_OUT_OF_BOUNDS, "keep the index below the number of labels",
                    "brx.idx jumps to entry %u of a table of %u", index[lane], b->table_count);
            return FLOW_FAULT;
        }
        targets[lane] = b->table[index[lane]];
    }
    return warp_branch_table(w, i, targets, b->join, mask);
}

static const char *lower_branch_table(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    if (p->operand_count < 1 || !p->branch_target_count)
        return "brx.idx takes an index and a table";
    const char *why = NULL;
    i->a = source_row(l, &p->operands[0], 32, &why);
    if (why) return why;
    int count = p->branch_target_count;
    Branch *b = kernel_alloc(l, sizeof *b);
    const Insn **table = kernel_alloc(l, (size_t)count * sizeof *table);
    *b = (Branch){.table = table, .table_count = (uint32_t)count};
    for (int k = 0; k < count; k++) code_reference(l, p->branch_targets[k], &table[k]);
    join_reference(l, &b->join);
    i->extra = b;
    return NULL;
}

// The function whose address is `id`, NULL if there is none.
static const CodeFunction *function_at(const Kernel *kernel, uint64_t id) {
    for (int k = 0; id && k < kernel->function_count; k++)
        if (kernel->functions[k].id == id) return &kernel->functions[k];
    return NULL;
}

// An indirect call: the lanes that call the same function as the first one go now. The others stay
// here as a group of their own, and meet them behind the call.
static Flow call_indirect(Warp *w, const Insn *i, uint32_t mask) {
    const uint64_t *address = row(w, i->a);
    int first = __builtin_ctz(mask);
    const CodeFunction *callee = function_at(w->kernel, address[first]);
    if (!callee) {
        finding(w, i, first, FINDING_WRONG_SPACE,
                "call through a pointer that holds the address of a __device__ function of this "
                "program",
                "a call jumps to 0x%llx, where there is no function",
                (unsigned long long)address[first]);
        return FLOW_FAULT;
    }
    uint32_t same = 0;
    for (uint32_t m = mask; m; m &= m - 1)
        if (address[__builtin_ctz(m)] == address[first]) same |= m & -m;
    return warp_call_part(w, i, i->extra, callee, same, mask & ~same);
}

static Flow call(Warp *w, const Insn *i, uint32_t mask) {
    const Call *c = i->extra;
    if (c->builtin) return c->builtin(w, i, mask);
    if (c->callee) return warp_call(w, i, c, c->callee, mask);
    return call_indirect(w, i, mask);
}

static Flow leave(Warp *w, const Insn *i, uint32_t mask) {
    return warp_exit(w, i, mask);
}
static Flow return_(Warp *w, const Insn *i, uint32_t mask) {
    return warp_return(w, i, mask);
}

bool ends_thread(const Insn *i) {
    return i->guard == ROW_NONE && (i->run == leave || i->run == return_);
}

static Flow trap(Warp *w, const Insn *i, uint32_t mask) {
    finding(w, i, __builtin_ctz(mask), FINDING_TRAP,
            "find the condition under which the program stops itself here",
            "the kernel executed trap");
    return FLOW_FAULT;
}

static Flow breakpoint(Warp *w, const Insn *i, uint32_t mask) {
    finding(w, i, __builtin_ctz(mask), FINDING_TRAP, "remove the breakpoint: there is no debugger",
            "the kernel executed brkpt");
    return FLOW_FAULT;
}

Flow trap_unsupported(Warp *w, const Insn *i, uint32_t mask) {
    const char *why = i->extra;
    finding(w, i, __builtin_ctz(mask), FINDING_UNSUPPORTED,
            "softgpu has to learn this instruction; nothing is wrong with the program",
            "softgpu can't execute '%s'%s%s", w->kernel->texts[i->index], why ? ": " : "",
            why ? why : "");
    return FLOW_FAULT;
}

// What ptxas would not have assembled.
Flow trap_target(Warp *w, const Insn *i, uint32_t mask) {
    finding(w, i, __builtin_ctz(mask), FINDING_UNSUPPORTED,
            "build for an architecture that has it, as with nvcc -gencode "
            "arch=compute_90a,code=compute_90a, or keep it behind __CUDA_ARCH__",
            "'%s' would not assemble: %s", w->kernel->texts[i->index], (const char *)i->extra);
    return FLOW_FAULT;
}

// griddepcontrol: a kernel begins when the one before has ended, whatever the launch's attributes,
// so what .wait waits for has happened and is visible: it passes at once, and .launch_dependents
// has nobody to start. Safe for right kernels. A known limit: one that reads what the kernel before
// wrote without .wait reads it complete here, and may not on a GPU.
static Flow nothing(Warp *w, const Insn *i, uint32_t mask) {
    (void)w;
    (void)i;
    (void)mask;
    return FLOW_NEXT;
}

const Form control_forms[] = {
    {.name = "bra",
     .modifiers = "uni?",
     .run = branch,
     .pipe = PIPE_CONTROL,
     .lower = lower_branch},
    {.name = "brx",
     .modifiers = "idx uni?",
     .run = branch_table,
     .pipe = PIPE_CONTROL,
     .lower = lower_branch_table},
    {.name = "call", .modifiers = "uni?", .run = call, .pipe = PIPE_CONTROL, .lower = lower_call},
    {.name = "ret", .modifiers = "uni?", .operands = "", .run = return_, .pipe = PIPE_CONTROL},
    {.name = "exit", .modifiers = "", .operands = "", .run = leave, .pipe = PIPE_CONTROL},
    {.name = "trap", .modifiers = "", .operands = "", .run = trap, .pipe = PIPE_CONTROL},
    {.name = "brkpt", .modifiers = "", .operands = "", .run = breakpoint, .pipe = PIPE_CONTROL},
    {.name = "griddepcontrol",
     .modifiers = "launch_dependents|wait",
     .operands = "",
     .run = nothing,
     .pipe = PIPE_CONTROL},
    {0},
};
