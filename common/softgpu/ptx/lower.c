// Lowers an entry and all that it calls to decoded code. lowering.h tells how the passes go.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/execute/special.h"
#include "softgpu/ptx/lowering.h"
#include "softgpu/ptx/table.h"

// What ptxas keeps beside the live values of a kernel. With it the estimate lies within about a
// fifth of ptxas's counts for cub's sort, scan and reduction kernels. Used only where the program
// holds no machine code that tells.
enum { REGISTERS_BESIDE = 4, REGISTERS_LEAST = 16, REGISTERS_MOST = 255, REGISTER_FILE = 65536 };

static void *must(void *memory) {
    if (memory) return memory;
    fprintf(stderr, "softgpu: out of memory while decoding PTX\n");
    exit(2);
}

// Makes room for one more element in a growing array; capacity is updated.
void *lowering_grow(void *array, size_t count, void *capacity_int, size_t element) {
    int *capacity = capacity_int;
    if (count < (size_t)*capacity) return array;
    *capacity = *capacity ? 2 * *capacity : 16;
    return must(realloc(array, (size_t)*capacity * element));
}

// ---- functions of the kernel

// The body of a function, added to the kernel if it is new.
Body *body_of(Lowering *l, PtxFunction *f) {
    const uint64_t *known = map_find(&l->body_of, map_key(f));
    if (known) return l->bodies[*known];
    l->bodies =
        lowering_grow(l->bodies, (size_t)l->body_count, &l->body_capacity, sizeof *l->bodies);
    map_set(&l->body_of, map_key(f), (uint64_t)l->body_count);
    Body *body = must(calloc(1, sizeof *body));
    l->bodies[l->body_count++] = body;
    body->ptx = f;
    if (l->failed || !ptx_parse_function(f, l->error)) {
        l->failed = true;
        return body;
    }
    body->graph = flow_graph(f);
    if (!f->is_entry) lay_out_own_regions(l, body);
    lay_out_locals(body);
    return body;
}

static void body_free(Body *body) {
    flow_graph_free(body->graph);
    free(body->accesses);
    assignment_free(&body->rows);
    free(body->regions);
    map_free(&body->region_of);
    map_free(&body->locals);
    for (int c = 0; c < CLASS_COUNT; c++) free(body->scratch[c]);
    free(body->code_of);
    free(body->callees);
    free(body);
}

// Does the current function belong to an entry (so that .param is the kernel's parameter block)?
bool in_entry(Lowering *l) {
    return l->body->ptx->is_entry;
}

// Notes that a register is read or written here.
void note_access(Lowering *l, int reg, bool write) {
    if (!l->surveying) return;
    Body *b = l->body;
    b->accesses = lowering_grow(b->accesses, (size_t)b->access_count, &b->access_capacity,
                                sizeof *b->accesses);
    b->accesses[b->access_count++] = (Access){
        .instruction = l->instruction, .reg = reg, .write = write, .kills = l->ptx->guard < 0};
}

// ---- instructions

// An instruction of the running PTX instruction's guard without anything else.
Insn blank_insn(const Lowering *l) {
    return (Insn){
        .d = ROW_NONE,
        .a = ROW_NONE,
        .b = ROW_NONE,
        .c = ROW_NONE,
        .e = ROW_NONE,
        .guard = l->guard,
        .guard_negated = l->guard != ROW_NONE && l->ptx->guard_negated,
        .index = l->code_count,
    };
}

// Appends an instruction; does nothing in the survey.
void emit_insn(Lowering *l, const Insn *i) {
    if (l->surveying) return;
    if (l->code_count == l->code_capacity) {
        l->code_capacity = l->code_capacity ? 2 * l->code_capacity : 1024;
        size_t n = l->code_capacity;
        l->code = must(realloc(l->code, n * sizeof *l->code));
        l->locations = must(realloc(l->locations, n * sizeof *l->locations));
        l->texts = must(realloc(l->texts, n * sizeof *l->texts));
        l->used = must(realloc(l->used, n * sizeof *l->used));
        l->uses = must(realloc(l->uses, n * sizeof *l->uses));
    }
    l->locations[l->code_count] = l->ptx->location;
    l->texts[l->code_count] = l->ptx->full;
    l->used[l->code_count] = l->ptx->used_bytes;
    l->uses[l->code_count] = (struct KernelUses){.first = (uint32_t)l->touched_count};
    l->code[l->code_count] = *i;
    l->code[l->code_count].index = l->code_count;
    l->code_count++;
}

static void add_reference(Lowering *l, int target, const Insn **slot) {
    if (l->reference_count == l->reference_capacity) {
        l->reference_capacity = l->reference_capacity ? 2 * l->reference_capacity : 256;
        l->references = must(realloc(l->references, l->reference_capacity * sizeof *l->references));
    }
    l->references[l->reference_count++] = (struct Reference){slot, l->body, target};
}

// Instruction `target` of the current function as code: stored at *slot at the end.
void code_reference(Lowering *l, int target, const Insn **slot) {
    if (!l->surveying && target >= 0 && target <= l->body->ptx->instruction_count)
        add_reference(l, target, slot);
}

// The join point of the branch being lowered, stored at *slot at the end; NULL if there is none.
void join_reference(Lowering *l, const Insn **slot) {
    *slot = NULL;
    if (l->surveying || l->instruction >= l->body->ptx->instruction_count) return;
    int join = flow_join(l->body->graph, l->instruction);
    if (join >= 0) add_reference(l, join, slot);
}

// Could this branch lead to an instruction at or before itself?
static bool goes_back(const PtxInstruction *p, int instruction) {
    if (!strcmp(p->opcode, "bra"))
        return p->operand_count > 0 && p->operands[0].kind == OPERAND_LABEL &&
               p->operands[0].target <= instruction;
    if (!strcmp(p->opcode, "brx"))
        for (int t = 0; t < p->branch_target_count; t++)
            if (p->branch_targets[t] <= instruction) return true;
    return false;
}

// An instruction as the form wants it. NULL, or why the form refuses.
static const char *apply_form(Lowering *l, const Match *m, Insn *i) {
    *i = blank_insn(l);
    i->run = m->form->run;
    i->pipe = (uint8_t)m->form->pipe;
    i->flops = m->form->flops;
    i->flags = m->form->flags;
    memcpy(i->choice, m->choice, sizeof i->choice);
    l->operands_done = 0;
    l->pending_count = 0;
    const char *why = m->form->lower ? m->form->lower(l, m, i) : lower_by_pattern(l, m, i);
    if (!why && !i->run) why = "its form has no handler";
    return why;
}

// Lowers l->ptx: the first form that fits and doesn't refuse, or else a trap.
static void lower_instruction(Lowering *l) {
    const PtxInstruction *p = l->ptx;
    Body *body = l->body;
    memset(l->scratch_used, 0, sizeof l->scratch_used);
    l->guard = ROW_NONE;
    if (p->guard >= 0) {
        note_access(l, p->guard, false);
        l->guard = l->surveying ? 0 : body->rows.rows[p->guard];
    }

    uint32_t code_mark = l->code_count;
    int access_mark = body->access_count, touched_mark = l->touched_count;
    size_t reference_mark = l->reference_count;
    const char *why = NULL; // of the form that came furthest
    int furthest = -1;
    Match m;
    Insn i;
    bool done = false;
    const char *foreign = target_fault(l);
    for (int k = foreign ? -1 : form_next(p, -1, &m); k >= 0; k = form_next(p, k, &m)) {
        const char *refused = apply_form(l, &m, &i);
        if (!refused) {
            done = true;
            break;
        }
        if (l->operands_done > furthest) {
            furthest = l->operands_done;
            why = refused;
        }
        l->code_count = code_mark;
        body->access_count = access_mark;
        l->touched_count = touched_mark;
        l->reference_count = reference_mark;
        memset(l->scratch_used, 0, sizeof l->scratch_used);
    }
    if (l->surveying) return;
    if (!done) {
        char text[240];
        if (!why && !foreign) {
            form_match(p, &m, text, sizeof text);
            why = refusal(l, "%s", text);
        }
        i = blank_insn(l);
        i.run = foreign ? trap_target : trap_unsupported;
        i.pipe = PIPE_CONTROL;
        i.extra = foreign ? foreign : why;
    }
    if (goes_back(p, l->instruction)) i.flags |= INSN_BACKWARD;
    emit_insn(l, &i);
    add_uses(l, &i);
}

// Can control get behind the last instruction? The parser adds a return where PTX leaves it away,
// so this is for trees made otherwise.
static bool runs_out(const FlowGraph *graph) {
    for (int b = 0; b < graph->block_count; b++)
        if (graph->blocks[b].runs_out) return true;
    return false;
}

// The return that then stands behind the last instruction.
static const PtxInstruction *implicit_return(Lowering *l, const Body *body) {
    static const PtxLocation nowhere;
    int n = body->ptx->instruction_count;
    PtxInstruction *p = kernel_alloc(l, sizeof *p);
    *p = (PtxInstruction){.opcode = "ret", .full = "ret", .guard = -1, .location = &nowhere};
    if (n) p->location = body->ptx->instructions[n - 1].location;
    return p;
}

// Goes over all instructions of a function.
static void lower_body(Lowering *l, Body *body) {
    int n = body->ptx->instruction_count, end = n + runs_out(body->graph);
    l->body = body;
    if (!l->surveying) body->code_of = must(calloc((size_t)n + 1, sizeof *body->code_of));
    for (l->instruction = 0; l->instruction < end; l->instruction++) {
        int at = l->instruction;
        l->ptx = at < n ? &body->ptx->instructions[at] : implicit_return(l, body);
        if (!l->surveying) body->code_of[at] = l->code_count;
        lower_instruction(l);
        if (l->surveying) continue;
        bool leader = at == n || body->graph->blocks[body->graph->block_of[at]].first == at;
        if (leader) l->code[body->code_of[at]].flags |= INSN_LEADER;
    }
}

// The survey: bodies are added at the end while it runs.
static bool survey(Lowering *l, PtxFunction *entry) {
    l->surveying = true;
    body_of(l, entry);
    for (int b = 0; b < l->body_count && !l->failed; b++) {
        Body *body = l->bodies[b];
        l->body = body;
        for (int v = 0; v < body->ptx->variable_count; v++) {
            const PtxVariable *variable = body->ptx->variables[v];
            if (variable->space == SPACE_SHARED) note_shared(l, variable);
        }
        lower_body(l, body);
    }
    l->surveying = false;
    return !l->failed;
}

// Rows, frames, stack and shared memory: everything between the passes.
static void lay_out(Lowering *l) {
    Kernel *k = l->kernel;
    lay_out_shared(l);
    measure_stack(l);
    k->function_count = l->body_count;
    k->functions = arena_alloc(l->arena, sizeof *k->functions * (size_t)l->body_count);
    for (int b = 0; b < l->body_count; b++) {
        Body *body = l->bodies[b];
        uint32_t begin = body->frame_end; // behind the function's own regions
        extend_in_flight(body);
        assign_rows(body->graph, body->accesses, body->access_count, begin, &body->rows);
        lay_out_call_regions(body);
        body->code = &k->functions[b];
        body->code->ptx = body->ptx;
        body->code->local_size = body->local_size;
        if (b > 0) body->code->id = l->linker->function_id(l->linker, body->ptx);
    }
}

// Registers per thread that machine code would need, by what is live at once.
static uint32_t estimate_registers(const Lowering *l, const PtxFunction *entry) {
    uint32_t peak = 0;
    for (int b = 0; b < l->body_count; b++)
        if (l->bodies[b]->rows.peak > peak) peak = l->bodies[b]->rows.peak;
    uint32_t registers = peak + REGISTERS_BESIDE, most = REGISTERS_MOST;
    const uint32_t *limit = entry->maxntid[0] ? entry->maxntid : entry->reqntid;
    if (entry->maxnreg && entry->maxnreg < most) most = entry->maxnreg;
    if (limit[0]) {
        uint64_t threads =
            (uint64_t)limit[0] * (limit[1] ? limit[1] : 1) * (limit[2] ? limit[2] : 1);
        uint64_t ctas = entry->minnctapersm ? entry->minnctapersm : 1;
        uint64_t share = REGISTER_FILE / ((threads + 31) / 32 * 32 * ctas) / 8 * 8;
        if (share >= REGISTERS_LEAST && share < most) most = (uint32_t)share;
    }
    if (registers > most) registers = most;
    return registers < REGISTERS_LEAST ? REGISTERS_LEAST : registers;
}

// Lists the loads of which only some bytes matter.
static void list_used(Lowering *l) {
    Kernel *k = l->kernel;
    int count = 0;
    for (uint32_t i = 0; i < l->code_count; i++) count += l->used[i] != 0;
    k->used = arena_alloc(l->arena, sizeof *k->used * ((size_t)count + 1));
    for (uint32_t i = 0; i < l->code_count; i++)
        if (l->used[i]) k->used[k->used_count++] = (struct KernelUsed){i, l->used[i]};
}

// Lists the registers that some path reads before anything wrote them.
static void list_unwritten(Lowering *l) {
    Kernel *k = l->kernel;
    int count = 0;
    for (int b = 0; b < l->body_count; b++) count += l->bodies[b]->rows.unwritten_count;
    k->unwritten = arena_alloc(l->arena, sizeof *k->unwritten * ((size_t)count + 1));
    for (int b = 0; b < l->body_count; b++) {
        const Body *body = l->bodies[b];
        for (int i = 0; i < body->rows.unwritten_count; i++) {
            int r = body->rows.unwritten[i];
            k->unwritten[k->unwritten_count++] =
                (struct KernelUnwritten){b, body->rows.rows[r], body->ptx->registers[r].name};
        }
    }
}

// Gives the code its final place and writes all pointers into it.
static void finish(Lowering *l) {
    Kernel *k = l->kernel;
    k->code_count = l->code_count;
    k->code = arena_alloc(l->arena, sizeof *k->code * l->code_count);
    k->locations = arena_alloc(l->arena, sizeof *k->locations * l->code_count);
    k->texts = arena_alloc(l->arena, sizeof *k->texts * l->code_count);
    memcpy(k->code, l->code, sizeof *k->code * l->code_count);
    memcpy(k->locations, l->locations, sizeof *k->locations * l->code_count);
    memcpy(k->texts, l->texts, sizeof *k->texts * l->code_count);
    k->uses = arena_alloc(l->arena, sizeof *k->uses * ((size_t)l->code_count + 1));
    if (l->code_count) memcpy(k->uses, l->uses, sizeof *k->uses * l->code_count);
    Use *touched = arena_alloc(l->arena, sizeof *touched * ((size_t)l->touched_count + 1));
    if (l->touched_count) memcpy(touched, l->touched, sizeof *touched * (size_t)l->touched_count);
    k->touched = touched;
    k->in_flight = flag_in_flight(l);

    for (uint32_t i = 0; i < l->code_count; i++)
        k->shared_scratch |=
            l->code[i].run == read_special && l->code[i].imm == SPECIAL_RESERVED_SMEM_1;

    for (size_t r = 0; r < l->reference_count; r++) {
        const struct Reference *reference = &l->references[r];
        *reference->slot = &k->code[reference->body->code_of[reference->target]];
    }
    for (int b = 0; b < l->body_count; b++) {
        Body *body = l->bodies[b];
        body->code->entry = &k->code[body->code_of[0]];
        body->code->frame_size = (body->frame_end + 63) & ~63u;
    }
    uint8_t *constants = arena_alloc(l->arena, l->constant_size + 64);
    constants += -(uintptr_t)constants & 63;
    if (l->constant_size) memcpy(constants, l->constants, l->constant_size);
    k->constants = constants;
    k->constant_size = l->constant_size;
    size_t count = (size_t)l->shared_constant_count;
    k->shared_constants = arena_alloc(l->arena, sizeof *k->shared_constants * (count + 1));
    if (count)
        memcpy(k->shared_constants, l->shared_constants, sizeof *k->shared_constants * count);
    k->shared_constant_count = l->shared_constant_count;
}

static void lowering_free(Lowering *l) {
    for (int b = 0; b < l->body_count; b++) body_free(l->bodies[b]);
    free(l->bodies);
    map_free(&l->body_of);
    map_free(&l->entry_params);
    map_free(&l->shared_address);
    for (int c = 0; c < CLASS_COUNT; c++) {
        map_free(&l->constant_of[c]);
        map_free(&l->shared_constant_of[c]);
    }
    free(l->shared_constants);
    free(l->code);
    free(l->locations);
    free(l->texts);
    free(l->used);
    free(l->uses);
    free(l->touched);
    free(l->pending);
    free(l->references);
    free(l->constants);
    free(l->shared);
    arena_free(l->scratch);
}

// Lowers an entry and all that it calls; see machine/code.h.
Kernel *kernel_lower(PtxFunction *entry, Linker *linker, uint32_t registers, PtxError *error) {
    Lowering l = {.linker = linker, .error = error, .arena = arena_new(), .scratch = arena_new()};
    Kernel *k = l.kernel = arena_alloc(l.arena, sizeof *k);
    k->arena = l.arena;
    k->name = entry->name;
    k->ptx = entry;
    k->schedule = linker->schedule;
    lay_out_entry_params(&l, entry);
    if (!survey(&l, entry)) {
        lowering_free(&l);
        kernel_free(k);
        return NULL;
    }
    lay_out(&l);
    for (int b = 0; b < l.body_count; b++) lower_body(&l, l.bodies[b]);
    finish(&l);
    list_unwritten(&l);
    list_used(&l);
    k->writes = kernel_writes(k);
    k->registers_estimated = registers == 0;
    k->registers = registers ? registers : estimate_registers(&l, entry);
    lowering_free(&l);
    return k;
}

void kernel_free(Kernel *kernel) {
    if (!kernel) return;
    if (kernel->pace_free) kernel->pace_free(kernel->pace);
    arena_free(kernel->arena);
}
