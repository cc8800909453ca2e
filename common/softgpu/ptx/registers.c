// Assigns the virtual registers of a function to rows of its frame.
//
// A register is live from each place that writes it to the places that may read that value, along
// all paths of the control flow graph. Its live range here is the hull: from the first to the last
// instruction in the text where it is live. Registers of one class whose hulls don't meet share a
// row (linear scan). Liveness per thread is enough, though a warp's lanes may stand at different
// places: each lane has its own column of a row, and rows of one class have the same columns.
//
// An instruction's destinations count as live together with its sources, so that a handler may
// write before it has read all: only what the program itself named twice shares a row.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/ptx/registers.h"

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (memory) return memory;
    fprintf(stderr, "softgpu: out of memory while decoding PTX\n");
    exit(2);
}

RowClass row_class(Type type) {
    if (type == TYPE_PRED) return CLASS_PREDICATE;
    switch (type_size(type)) {
    case 1:
    case 2: return CLASS_16;
    case 8: return CLASS_64;
    case 16: return CLASS_128;
    default: return CLASS_32;
    }
}

unsigned class_width(RowClass class) {
    return (const unsigned[]){1, 16, 32, 64, 128}[class];
}
unsigned class_bytes(RowClass class) {
    return (const unsigned[]){4, 64, 128, 256, 512}[class];
}

// ---- live ranges

typedef struct {
    const FlowGraph *graph;
    Assignment *result;
    int *killed;  // per block: the register (plus one) that it was last seen to write for all lanes
    int *visited; // per block: the register (plus one) known to be live at its end
    int *work;
} Liveness;

static void extend(Assignment *a, int reg, int instruction) {
    if (instruction < a->first[reg]) a->first[reg] = instruction;
    if (instruction > a->last[reg]) a->last[reg] = instruction;
}

// The register is live where `block` begins: so it is at the end of all blocks before it, up to
// those that write it.
static void live_into(Liveness *l, int reg, int block, bool *from_entry) {
    const Block *blocks = l->graph->blocks;
    int depth = 0;
    l->work[depth++] = block;
    while (depth > 0) {
        int b = l->work[--depth];
        extend(l->result, reg, blocks[b].first);
        if (b == 0) *from_entry = true;
        for (int i = 0; i < blocks[b].predecessor_count; i++) {
            int p = blocks[b].predecessors[i];
            if (l->visited[p] == reg + 1) continue;
            l->visited[p] = reg + 1;
            extend(l->result, reg, blocks[p].end - 1);
            if (l->killed[p] != reg + 1) l->work[depth++] = p;
        }
    }
}

// The live range of one register from its accesses, which are in the order of the text.
static void find_range(Liveness *l, int reg, const Access *const *accesses, int count,
                       bool *from_entry) {
    const int *block_of = l->graph->block_of;
    for (int i = 0; i < count; i++) {
        extend(l->result, reg, accesses[i]->instruction);
        if (accesses[i]->write && accesses[i]->kills)
            l->killed[block_of[accesses[i]->instruction]] = reg + 1;
    }
    // In each block it counts what comes first: a read, or a write to all lanes.
    for (int i = 0; i < count;) {
        int block = block_of[accesses[i]->instruction];
        bool read = false, written = false;
        for (; i < count && block_of[accesses[i]->instruction] == block; i++) {
            // An instruction reads its sources before it writes.
            int here = accesses[i]->instruction;
            bool kills = false;
            for (; i < count && accesses[i]->instruction == here; i++) {
                if (!accesses[i]->write && !written) read = true;
                if (accesses[i]->write && accesses[i]->kills) kills = true;
            }
            i--;
            written |= kills;
        }
        if (read) live_into(l, reg, block, from_entry);
    }
}

// ---- linear scan

typedef struct {
    int last; // the heap's key: where the register that holds the slot dies
    uint32_t slot;
} Holder;

typedef struct {
    Holder *heap;
    int held;
    uint32_t *idle; // slots to use again
    int idle_count;
    uint32_t slots;
} Pool;

static void heap_push(Pool *pool, Holder holder) {
    int i = pool->held++;
    for (; i > 0 && pool->heap[(i - 1) / 2].last > holder.last; i = (i - 1) / 2)
        pool->heap[i] = pool->heap[(i - 1) / 2];
    pool->heap[i] = holder;
}

static Holder heap_pop(Pool *pool) {
    Holder top = pool->heap[0], moved = pool->heap[--pool->held];
    int i = 0;
    for (;;) {
        int child = 2 * i + 1;
        if (child >= pool->held) break;
        if (child + 1 < pool->held && pool->heap[child + 1].last < pool->heap[child].last) child++;
        if (pool->heap[child].last >= moved.last) break;
        pool->heap[i] = pool->heap[child];
        i = child;
    }
    pool->heap[i] = moved;
    return top;
}

// Gives back the slots of registers that died before `instruction`.
static void expire(Pool *pool, int instruction) {
    while (pool->held > 0 && pool->heap[0].last < instruction)
        pool->idle[pool->idle_count++] = heap_pop(pool).slot;
}

static uint32_t take_slot(Pool *pool, int last) {
    uint32_t slot = pool->idle_count ? pool->idle[--pool->idle_count] : pool->slots++;
    heap_push(pool, (Holder){last, slot});
    return slot;
}

// 32-bit registers that the slots in use stand for; predicates have their own file.
static uint32_t pressure(const Pool pools[CLASS_COUNT]) {
    return (uint32_t)(pools[CLASS_16].held + pools[CLASS_32].held + 2 * pools[CLASS_64].held +
                      4 * pools[CLASS_128].held);
}

// Gives each register with a live range a slot of its class.
static void scan(const PtxFunction *f, Assignment *a, uint32_t *slot_of) {
    int n = f->register_count, instructions = f->instruction_count;
    // Registers by the start of their range: a counting sort.
    int *start = allocate((size_t)instructions + 2, sizeof(int));
    int *sorted = allocate((size_t)n, sizeof(int));
    for (int r = 0; r < n; r++)
        if (a->first[r] <= a->last[r]) start[a->first[r] + 1]++;
    for (int i = 0; i <= instructions; i++) start[i + 1] += start[i];
    int used = start[instructions + 1];
    for (int r = 0; r < n; r++)
        if (a->first[r] <= a->last[r]) sorted[start[a->first[r]]++] = r;

    Pool pools[CLASS_COUNT] = {0};
    for (int c = 0; c < CLASS_COUNT; c++) {
        pools[c].heap = allocate((size_t)n, sizeof(Holder));
        pools[c].idle = allocate((size_t)n, sizeof(uint32_t));
    }
    for (int i = 0; i < used; i++) {
        int r = sorted[i];
        for (int c = 0; c < CLASS_COUNT; c++) expire(&pools[c], a->first[r]);
        slot_of[r] = take_slot(&pools[row_class(f->registers[r].type)], a->last[r]);
        uint32_t now = pressure(pools);
        if (now > a->peak) a->peak = now;
    }
    for (int c = 0; c < CLASS_COUNT; c++) {
        a->slots[c] = pools[c].slots;
        free(pools[c].heap);
        free(pools[c].idle);
    }
    free(start);
    free(sorted);
}

// ---- all of it

// Sorts accesses by register, keeping their order; offsets[r] is where those of register r begin.
static const Access **by_register(const Access *accesses, int count, int registers, int *offsets) {
    const Access **sorted = allocate((size_t)count, sizeof *sorted);
    for (int i = 0; i < count; i++) offsets[accesses[i].reg + 1]++;
    for (int r = 0; r < registers; r++) offsets[r + 1] += offsets[r];
    int *fill = allocate((size_t)registers, sizeof(int));
    for (int i = 0; i < count; i++) {
        int r = accesses[i].reg;
        sorted[offsets[r] + fill[r]++] = &accesses[i];
    }
    free(fill);
    return sorted;
}

// Assigns rows from frame offset `begin` (multiple of 64) on.
void assign_rows(const FlowGraph *graph, const Access *accesses, int access_count, uint32_t begin,
                 Assignment *result) {
    const PtxFunction *f = graph->function;
    size_t n = (size_t)f->register_count, blocks = (size_t)graph->block_count;
    *result = (Assignment){
        .rows = allocate(n, sizeof(Row)),
        .unwritten = allocate(n, sizeof(int)),
        .first = allocate(n, sizeof(int)),
        .last = allocate(n, sizeof(int)),
    };
    for (size_t r = 0; r < n; r++) {
        result->first[r] = f->instruction_count;
        result->last[r] = -1;
    }

    int *offsets = allocate(n + 1, sizeof(int));
    const Access **sorted = by_register(accesses, access_count, (int)n, offsets);
    Liveness l = {graph, result, allocate(blocks, sizeof(int)), allocate(blocks, sizeof(int)),
                  allocate(blocks + 1, sizeof(int))};
    for (int r = 0; r < (int)n; r++) {
        bool from_entry = false;
        find_range(&l, r, sorted + offsets[r], offsets[r + 1] - offsets[r], &from_entry);
        if (from_entry) result->unwritten[result->unwritten_count++] = r;
    }
    free(l.killed);
    free(l.visited);
    free(l.work);
    free(sorted);
    free(offsets);

    uint32_t *slot_of = allocate(n, sizeof(uint32_t));
    scan(f, result, slot_of);
    uint32_t base[CLASS_COUNT], end = begin;
    for (int c = 0; c < CLASS_COUNT; c++) {
        base[c] = end;
        end = (end + result->slots[c] * class_bytes(c) + 63) & ~63u;
    }
    for (size_t r = 0; r < n; r++) {
        RowClass c = row_class(f->registers[r].type);
        bool used = result->first[r] <= result->last[r];
        result->rows[r] = used ? base[c] + slot_of[r] * class_bytes(c) : ROW_NONE;
    }
    result->end = end;
    free(slot_of);
}

void assignment_free(Assignment *a) {
    free(a->rows);
    free(a->unwritten);
    free(a->first);
    free(a->last);
    *a = (Assignment){0};
}
