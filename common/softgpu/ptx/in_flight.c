// Registers of wgmma.mma_async, and of tcgen05.ld, while it is in flight: they are in use until a
// wgmma.wait_group (tcgen05.wait::ld) that covers it, although no instruction in between names
// them. So their live ranges reach to every such wait; else another register could get their row,
// and be overwritten.
//
// And for the check of these registers (check/in_flight.h): the instructions that touch a row that
// is an operand of some mma_async of the function.
#include <stdlib.h>
#include <string.h>

#include "softgpu/execute/tcgen05.h"
#include "softgpu/execute/wgmma.h"
#include "softgpu/ptx/lowering.h"

enum {
    COMMITS_MAX = 8, // commits that a way is followed apart for; more count as that many
    ROW_UNIT = 64,   // rows of 32 bits begin at multiples of it
};

typedef enum { NO_WGMMA, MMA_ASYNC, COMMIT, WAIT, LOAD, LOAD_WAIT } WgmmaKind;

static WgmmaKind kind_of(const PtxInstruction *p) {
    if (!strcmp(p->opcode, "tcgen05"))
        return ptx_has_modifier(p, "ld")         ? LOAD
               : ptx_has_modifier(p, "wait::ld") ? LOAD_WAIT
                                                 : NO_WGMMA;
    if (strcmp(p->opcode, "wgmma")) return NO_WGMMA;
    if (ptx_has_modifier(p, "mma_async")) return MMA_ASYNC;
    if (ptx_has_modifier(p, "commit_group")) return COMMIT;
    return ptx_has_modifier(p, "wait_group") ? WAIT : NO_WGMMA;
}

// Ways through the function from one mma_async to the waits that cover it.
typedef struct {
    Body *body;
    WgmmaKind kind; // MMA_ASYNC or LOAD, which every wait::ld covers
    bool *seen;     // [block][commits]
    int *work;      // such states that are still to be followed
    int *waits;     // instructions that cover it
    int wait_count;
    Access *reads; // to be added
    int read_count, read_capacity;
} Walk;

static void add_wait(Walk *walk, int at) {
    for (int k = 0; k < walk->wait_count; k++)
        if (walk->waits[k] == at) return;
    walk->waits[walk->wait_count++] = at;
}

// Goes on from an instruction, with this many commits behind, to the end of its block or to a wait
// that covers the mma_async. Notes where the block leads.
static int follow(Walk *walk, int at, int commits, int depth) {
    const PtxFunction *f = walk->body->ptx;
    const FlowGraph *graph = walk->body->graph;
    const Block *block = &graph->blocks[graph->block_of[at]];
    for (; at < block->end; at++) {
        const PtxInstruction *p = &f->instructions[at];
        WgmmaKind kind = kind_of(p);
        if (walk->kind == LOAD) {
            if (kind != LOAD_WAIT) continue;
            add_wait(walk, at);
            return depth;
        }
        if (kind == COMMIT && commits < COMMITS_MAX) commits++;
        if (kind != WAIT || !p->operand_count) continue;
        // The newest groups may be left out; with few commits behind, this one is among them.
        if (p->operands[0].bits >= (uint64_t)commits) continue;
        add_wait(walk, at);
        return depth;
    }
    if (!block->successor_count) add_wait(walk, block->end - 1); // to the function's end, then
    for (int s = 0; s < block->successor_count; s++) {
        int next = block->successors[s] * (COMMITS_MAX + 1) + commits;
        if (walk->seen[next]) continue;
        walk->seen[next] = true;
        walk->work[depth++] = next;
    }
    return depth;
}

// The first access of an instruction: they are in order.
static int first_access(const Body *b, int instruction) {
    int low = 0, high = b->access_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (b->accesses[middle].instruction < instruction)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Adds reads of the instruction's registers of 32 bits at the waits that cover it.
static void add_reads(Walk *walk, int at) {
    const Body *b = walk->body;
    const PtxFunction *f = b->ptx;
    for (int k = first_access(b, at); k < b->access_count; k++) {
        const Access *access = &b->accesses[k];
        if (access->instruction != at) return;
        // D is among what is read, too; tcgen05.ld only writes it.
        if ((access->write && walk->kind != LOAD) ||
            row_class(f->registers[access->reg].type) != CLASS_32)
            continue;
        for (int wait = 0; wait < walk->wait_count; wait++) {
            walk->reads = lowering_grow(walk->reads, (size_t)walk->read_count, &walk->read_capacity,
                                        sizeof *walk->reads);
            walk->reads[walk->read_count++] =
                (Access){.instruction = walk->waits[wait], .reg = access->reg};
        }
    }
}

static int by_instruction(const void *a, const void *b) {
    const Access *x = a, *y = b;
    if (x->instruction != y->instruction) return x->instruction < y->instruction ? -1 : 1;
    if (x->reg != y->reg) return x->reg < y->reg ? -1 : 1;
    return (int)x->write - (int)y->write;
}

// Puts the added accesses among the others.
static void merge_reads(Walk *walk) {
    Body *b = walk->body;
    size_t total = (size_t)b->access_count + (size_t)walk->read_count;
    Access *all = malloc((total + 1) * sizeof *all);
    if (!all) abort();
    memcpy(all, b->accesses, (size_t)b->access_count * sizeof *all);
    if (walk->read_count)
        memcpy(all + b->access_count, walk->reads, (size_t)walk->read_count * sizeof *all);
    qsort(all, total, sizeof *all, by_instruction);
    free(b->accesses);
    b->accesses = all;
    b->access_count = (int)total;
    b->access_capacity = (int)total;
}

void extend_in_flight(Body *body) {
    const PtxFunction *f = body->ptx;
    const FlowGraph *graph = body->graph;
    size_t states = (size_t)graph->block_count * (COMMITS_MAX + 1);
    Walk walk = {.body = body};
    for (int at = 0; at < f->instruction_count; at++) {
        walk.kind = kind_of(&f->instructions[at]);
        if (walk.kind != MMA_ASYNC && walk.kind != LOAD) continue;
        if (!walk.seen) {
            walk.seen = calloc(states, sizeof *walk.seen);
            walk.work = calloc(states, sizeof *walk.work);
            walk.waits = calloc((size_t)f->instruction_count, sizeof *walk.waits);
            if (!walk.seen || !walk.waits || !walk.work) abort();
        }
        memset(walk.seen, 0, states * sizeof *walk.seen);
        walk.wait_count = 0;
        int depth = follow(&walk, at + 1, 0, 0);
        while (depth > 0) {
            int state = walk.work[--depth];
            int first = graph->blocks[state / (COMMITS_MAX + 1)].first;
            depth = follow(&walk, first, state % (COMMITS_MAX + 1), depth);
        }
        add_reads(&walk, at);
    }
    if (walk.read_count) merge_reads(&walk);
    free(walk.seen);
    free(walk.work);
    free(walk.waits);
    free(walk.reads);
}

// ---- which instructions touch such registers

const uint8_t *flag_in_flight(Lowering *l) {
    uint8_t *flags = NULL;
    for (int b = 0; b < l->body_count; b++) {
        const Body *body = l->bodies[b];
        uint32_t begin = body->code_of[0];
        uint32_t end = b + 1 < l->body_count ? l->bodies[b + 1]->code_of[0] : l->code_count;
        bool *operand = NULL; // by row
        for (uint32_t i = begin; i < end; i++) {
            const Insn *insn = &l->code[i];
            if (insn->run != wgmma_mma_async && insn->run != tcgen05_load) continue;
            if (!operand) operand = calloc(body->frame_end / ROW_UNIT + 1, sizeof *operand);
            if (!flags) {
                flags = arena_alloc(l->arena, l->code_count + 1);
                memset(flags, 0, l->code_count + 1);
            }
            if (!operand) abort();
            for (int k = 0; k < insn->row_count; k++) operand[insn->rows[k] / ROW_UNIT] = true;
        }
        for (uint32_t i = begin; operand && i < end; i++) {
            const struct KernelUses *uses = &l->uses[i];
            for (uint32_t k = uses->first; k < uses->first + uses->count; k++) {
                Row r = l->touched[k] & ~(Row)USE_KINDS;
                if (!(r & ROW_CONSTANT) && r % ROW_UNIT == 0 && operand[r / ROW_UNIT])
                    flags[i] = l->code[i].run != wgmma_mma_async;
            }
        }
        free(operand);
    }
    return flags;
}
