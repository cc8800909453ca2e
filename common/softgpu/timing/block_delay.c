// Loads from shared memory that ptxas does not hoist to the block's begin.
//
// Of a long unrolled loop all loads could go first, for nothing stands in their way; but each would
// hold registers until its use. In machine code they stand where their latency is just hidden: the
// fragments of the next products are loaded between the products of now. So a load from shared
// memory moves to the last segment from which the work up to its first use is as long as AHEAD
// times its latency. Loads from global memory take so much longer that they stay where they are.
#include <stdlib.h>

#include "softgpu/timing/block_parts.h"

enum { AHEAD = 2 }; // ptxas leaves room for some bank conflicts and other warps' loads

static bool is_shared_load(const Node *n) {
    if (n->expansion.wait != WAIT_RESULT || n->first_use == UINT32_MAX) return false;
    return text_is(n->text, "ldmatrix") || (text_is(n->text, "ld") && text_has(n->text, "shared"));
}

// Cycles that a node keeps a warp's scheduler or its busiest unit, roughly.
static uint32_t work_of(const BlockGraph *g, const Node *n) {
    const Expansion *e = &n->expansion;
    uint32_t sum = 0;
    for (int s = 0; s < e->stage_count; s++) {
        uint32_t count = e->stages[s].op == OP_MMA && e->repeat ? e->repeat : e->stages[s].count;
        uint32_t interval = e->interval ? e->interval : g->timing->op[e->stages[s].op].interval;
        sum += count * (interval ? interval : 1);
    }
    return sum;
}

// The last segment that a load may be in, for those that must stand behind it.
static uint32_t last_for(const BlockGraph *g, uint32_t node, uint32_t first_use_segment) {
    uint32_t last = first_use_segment - 1;
    for (int e = g->nodes[node].first_edge; e >= 0; e = g->edges[e].next) {
        uint32_t segment = g->nodes[g->edges[e].to].segment;
        if (segment < last) last = segment;
    }
    uint32_t insn = g->nodes[node].insn->index;
    for (uint32_t s = g->nodes[node].segment + 1; s <= last; s++) {
        const Segment *segment = &g->segments[s];
        bool hard = segment->wait == WAIT_HERE || segment->wait == WAIT_QUEUE;
        if (hard && segment->insn > insn) return s - 1;
    }
    return last;
}

void block_delay(BlockGraph *g) {
    if (g->segment_count < 3) return;
    uint32_t *before = calloc(g->segment_count + 1, sizeof *before); // work in segments below
    if (!before) {
        g->failed = true;
        return;
    }
    for (uint32_t n = 0; n < g->count; n++)
        if (!is_shared_load(&g->nodes[n]))
            before[g->nodes[n].segment + 1] += work_of(g, &g->nodes[n]);
    for (uint32_t s = 0; s < g->segment_count; s++) before[s + 1] += before[s];
    uint32_t ahead = AHEAD * (uint32_t)g->timing->shared_load;
    for (uint32_t n = g->count; n-- > 0;) {
        Node *node = &g->nodes[n];
        if (!is_shared_load(node)) continue;
        uint32_t use = g->nodes[node->first_use].segment;
        if (use <= node->segment + 1) continue;
        uint32_t last = last_for(g, n, use), to = node->segment;
        while (to < last && before[use] - before[to + 2] >= ahead && to + 2 <= use) to++;
        node->segment = to;
    }
    free(before);
}
