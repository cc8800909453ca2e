// Private to ptx/: the control flow graph of one function, and where diverged lanes meet again.
#ifndef SOFTGPU_FLOW_H
#define SOFTGPU_FLOW_H

#include "softgpu/ptx/ptx.h"

// A run of instructions that is entered at its start and left at its end only. Calls don't end a
// block: they come back. A guarded ret or exit does, since some lanes go on behind it.
typedef struct {
    int first, end; // instructions [first, end)
    int *successors, *predecessors;
    int successor_count, predecessor_count;
    bool returns;  // ret (of some lanes)
    bool dies;     // exit or trap (of some lanes)
    bool runs_out; // the function's end follows
    int join;      // the block in which lanes that part here meet again; -1: none
} Block;

typedef struct {
    const PtxFunction *function;
    int block_count; // at least 1, in the order of the text; block 0 is the entry
    Block *blocks;
    int *block_of; // per instruction
} FlowGraph;

FlowGraph *flow_graph(const PtxFunction *function);
void flow_graph_free(FlowGraph *graph);

// The instruction at which the lanes that part at `instruction` (which ends a block) meet again;
// -1 when they don't before the function's end.
int flow_join(const FlowGraph *graph, int instruction);

#endif
