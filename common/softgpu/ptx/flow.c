// Basic blocks, and the immediate post-dominators that are the join points of branches.
//
// A lane that exits doesn't come to any join, and the others needn't wait for it: so paths that end
// early (a trap, `if (i >= n) return;` in a kernel) are left out where the rest of the function has
// a common way on. That is done by regions. The first region holds the blocks from which the main
// end can be reached; the second those that can only die; further ones those that loop for ever.
// Post-dominators are computed within each region, by the iteration of Cooper, Harvey and Kennedy
// ("A simple, fast dominance algorithm") on the reversed graph, with a virtual end for each region.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/ptx/flow.h"

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (memory) return memory;
    fprintf(stderr, "softgpu: out of memory while decoding PTX\n");
    exit(2);
}

static bool is(const PtxInstruction *p, const char *opcode) {
    return !strcmp(p->opcode, opcode);
}

// Does control leave the straight line at this instruction?
static bool ends_block(const PtxInstruction *p) {
    switch (p->opcode[0]) {
    case 'b': return is(p, "bra") || is(p, "brx");
    case 'r': return is(p, "ret");
    case 'e': return is(p, "exit");
    case 't': return is(p, "trap");
    default: return false;
    }
}

// The labels that an instruction may jump to: its own list, or the one label of bra in *single.
static int targets_of(const PtxInstruction *p, int *single, const int **targets) {
    if (is(p, "brx")) {
        *targets = p->branch_targets;
        return p->branch_target_count;
    }
    if (!is(p, "bra") || p->operand_count < 1 || p->operands[0].kind != OPERAND_LABEL) return 0;
    *single = p->operands[0].target;
    *targets = single;
    return 1;
}

// Cuts the function into blocks.
static void find_blocks(FlowGraph *g) {
    const PtxFunction *f = g->function;
    int n = f->instruction_count;
    uint8_t *leader = allocate((size_t)n + 1, 1);
    leader[0] = 1;
    for (int i = 0; i < n; i++) {
        const PtxInstruction *p = &f->instructions[i];
        if (!ends_block(p)) continue;
        leader[i + 1] = 1;
        int single;
        const int *targets;
        int count = targets_of(p, &single, &targets);
        for (int t = 0; t < count; t++)
            if (targets[t] >= 0 && targets[t] <= n) leader[targets[t]] = 1;
    }
    for (int i = 0; i < n; i++) g->block_count += leader[i];
    if (n == 0) g->block_count = 1;
    g->blocks = allocate((size_t)g->block_count, sizeof *g->blocks);
    g->block_of = allocate((size_t)n + 1, sizeof *g->block_of);
    int b = -1;
    for (int i = 0; i < n; i++) {
        if (leader[i]) g->blocks[++b].first = i;
        g->blocks[b].end = i + 1;
        g->block_of[i] = b;
    }
    free(leader);
}

static void add_successor(FlowGraph *g, Block *block, int instruction) {
    if (instruction < 0) return;
    if (instruction >= g->function->instruction_count) {
        block->runs_out = true;
        return;
    }
    int to = g->block_of[instruction];
    for (int i = 0; i < block->successor_count; i++)
        if (block->successors[i] == to) return;
    block->successors[block->successor_count++] = to;
}

// Links the blocks.
static void find_edges(FlowGraph *g) {
    const PtxFunction *f = g->function;
    for (int b = 0; b < g->block_count; b++) {
        Block *block = &g->blocks[b];
        if (block->first == block->end) { // an empty function
            block->runs_out = true;
            block->successors = allocate(1, sizeof(int));
            continue;
        }
        const PtxInstruction *last = &f->instructions[block->end - 1];
        int single;
        const int *targets;
        int count = targets_of(last, &single, &targets);
        block->successors = allocate((size_t)count + 1, sizeof(int));
        for (int t = 0; t < count; t++) add_successor(g, block, targets[t]);
        block->returns = is(last, "ret");
        block->dies = is(last, "exit") || is(last, "trap");
        if (!ends_block(last) || last->guard >= 0) add_successor(g, block, block->end);
        for (int i = 0; i < block->successor_count; i++)
            g->blocks[block->successors[i]].predecessor_count++;
    }
    for (int b = 0; b < g->block_count; b++) {
        Block *block = &g->blocks[b];
        block->predecessors = allocate((size_t)block->predecessor_count, sizeof(int));
        block->predecessor_count = 0;
    }
    for (int b = 0; b < g->block_count; b++)
        for (int i = 0; i < g->blocks[b].successor_count; i++) {
            Block *to = &g->blocks[g->blocks[b].successors[i]];
            to->predecessors[to->predecessor_count++] = b;
        }
}

// ---- joins

typedef struct {
    FlowGraph *graph;
    int *region;    // per block, from 1; 0 = not yet reached
    bool *root;     // per block: an edge leads from it to its region's virtual end
    int *order;     // blocks in postorder of the reversed graph, one region after the other
    int *position;  // per block: its place in `order`
    int *dominator; // per block: immediate post-dominator; -1 unknown, block_count = virtual end
    int count;
    int *stack, *next; // of the depth-first search
} Joins;

// Visits all unvisited blocks from which `start` can be reached.
static void search(Joins *j, int start, int region) {
    if (j->region[start]) return;
    int depth = 0;
    j->stack[depth++] = start;
    j->region[start] = region;
    j->next[start] = 0;
    while (depth > 0) {
        int b = j->stack[depth - 1];
        const Block *block = &j->graph->blocks[b];
        if (j->next[b] == block->predecessor_count) {
            j->position[b] = j->count;
            j->order[j->count++] = b;
            depth--;
            continue;
        }
        int p = block->predecessors[j->next[b]++];
        if (j->region[p]) continue;
        j->region[p] = region;
        j->next[p] = 0;
        j->stack[depth++] = p;
    }
}

// The nearest common post-dominator of two blocks of a region.
static int intersect(const Joins *j, int a, int b) {
    int end = j->graph->block_count;
    while (a != b) {
        if (a == end || b == end) return end;
        if (j->position[a] < j->position[b])
            a = j->dominator[a];
        else
            b = j->dominator[b];
    }
    return a;
}

// Post-dominators of the blocks order[begin, count), which form one region.
static void solve(Joins *j, int begin) {
    bool changed = true;
    while (changed) {
        changed = false;
        for (int i = j->count - 1; i >= begin; i--) {
            int b = j->order[i];
            const Block *block = &j->graph->blocks[b];
            int found = j->root[b] ? j->graph->block_count : -1;
            for (int s = 0; s < block->successor_count; s++) {
                int to = block->successors[s];
                // Nothing is known yet of later regions; earlier ones can't be reached from here.
                if (j->dominator[to] == -1) continue;
                found = found == -1 ? to : intersect(j, found, to);
            }
            if (found == j->dominator[b]) continue;
            j->dominator[b] = found;
            changed = true;
        }
    }
}

// Is the block one of the function's main ends? In a device function every return is: the lanes
// meet in the caller. In a kernel returning is dying, and only the last way out in the text counts.
static void mark_main_ends(Joins *j) {
    const FlowGraph *g = j->graph;
    bool entry = g->function->is_entry;
    for (int b = g->block_count - 1; b >= 0; b--) {
        const Block *block = &g->blocks[b];
        const PtxInstruction *last =
            block->end > block->first ? &g->function->instructions[block->end - 1] : NULL;
        bool out = block->runs_out || block->returns || (entry && last && is(last, "exit"));
        if (!out) continue;
        // Where only some lanes leave, the others show the way.
        if (entry && block->successor_count > 0 && !block->runs_out) continue;
        j->root[b] = true;
        if (entry) return;
    }
}

static void find_joins(FlowGraph *g) {
    size_t n = (size_t)g->block_count;
    int *numbers = allocate(6 * n, sizeof(int));
    Joins j = {g,           numbers,         allocate(n, sizeof(bool)),
               numbers + n, numbers + 2 * n, numbers + 3 * n,
               0,           numbers + 4 * n, numbers + 5 * n};
    for (size_t b = 0; b < n; b++) j.dominator[b] = -1;

    mark_main_ends(&j);
    int region = 1;
    for (int b = 0; b < g->block_count; b++)
        if (j.root[b]) search(&j, b, region);
    solve(&j, 0);

    int begin = j.count;
    region++;
    for (int b = 0; b < g->block_count; b++) {
        const Block *block = &g->blocks[b];
        if (j.region[b] || !(block->dies || block->returns || block->runs_out)) continue;
        j.root[b] = true;
    }
    for (int b = 0; b < g->block_count; b++)
        if (j.root[b]) search(&j, b, region);
    solve(&j, begin);

    for (int b = g->block_count - 1; b >= 0; b--) { // endless loops
        if (j.region[b]) continue;
        begin = j.count;
        j.root[b] = true;
        search(&j, b, ++region);
        solve(&j, begin);
    }

    for (int b = 0; b < g->block_count; b++) {
        int join = j.dominator[b];
        g->blocks[b].join = join == g->block_count ? -1 : join;
    }
    free(j.root);
    free(numbers);
}

FlowGraph *flow_graph(const PtxFunction *function) {
    FlowGraph *g = allocate(1, sizeof *g);
    g->function = function;
    find_blocks(g);
    find_edges(g);
    find_joins(g);
    return g;
}

void flow_graph_free(FlowGraph *g) {
    if (!g) return;
    for (int b = 0; b < g->block_count; b++) {
        free(g->blocks[b].successors);
        free(g->blocks[b].predecessors);
    }
    free(g->blocks);
    free(g->block_of);
    free(g);
}

// The instruction at which the lanes that part at `instruction` (which ends a block) meet again;
// -1 when they don't before the function's end.
int flow_join(const FlowGraph *g, int instruction) {
    int join = g->blocks[g->block_of[instruction]].join;
    return join < 0 ? -1 : g->blocks[join].first;
}
