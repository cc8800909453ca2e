// Private to timing/block*.c: a block while it is being scheduled.
//
//     block_graph.c   instructions, their expansions and dependences; what ptxas merges; segments
//     block_delay.c   loads from shared memory, nearer to their use
//     block_list.c    the list schedule
//     block.c         kernels
#ifndef SOFTGPU_BLOCK_PARTS_H
#define SOFTGPU_BLOCK_PARTS_H

#include "softgpu/timing/block.h"

// An instruction of the block.
typedef struct {
    const Insn *insn;
    const char *text;
    Expansion expansion;
    uint32_t segment;
    bool merged;        // ptxas does its work in another instruction
    bool absorbs;       // …and this one does another's
    bool predicate;     // its result is a predicate
    int readers;        // of its results, in the block
    int addresses;      // of these: as an address
    uint32_t first_use; // number of its first reader; UINT32_MAX if none
    int waiting;        // instructions that it depends on and that are not scheduled
    uint32_t ready;     // cycle at which what it depends on is there
    uint32_t height;    // cycles from its issue to the end of the block, along the longest way
    uint32_t at;        // cycle of its first issue
    int first_edge;     // its successors: a list in BlockGraph.edges
} Node;

// `to` can be issued `latency` cycles after the last machine instruction of the node that it is
// listed under; 0: it only stands behind it.
typedef struct {
    uint32_t to, latency;
    int next;
} Edge;

typedef struct {
    const Kernel *kernel;
    const GpuFigures *figures;
    const GpuTiming *timing;
    uint32_t first, count; // of the block
    Node *nodes;           // by number: index in the kernel - first
    uint32_t node_capacity;
    Edge *edges;
    int edge_count, edge_capacity;
    // The last writer of each row (by its offset / 4), if its stamp is the block's.
    uint32_t *writer, *writer_stamp, stamp, row_limit;
    // Rows that loads write somewhere in the kernel: they may be pending at the block's entry. Who
    // reads them first in the block, likewise by stamp.
    uint8_t *loaded;
    uint32_t *pending_key, *pending_stamp;
    // The segments of the block, before they are scheduled.
    Segment *segments;
    uint32_t segment_count, segment_capacity;
    WaitedRow *rows; // of the kernel: grows
    uint32_t row_count, row_capacity;
    bool failed; // out of memory
} BlockGraph;

// The registers that an instruction touches: calls visit for each, guard included.
typedef void VisitUse(BlockGraph *g, uint32_t node, Row row, int kind);
void each_use(BlockGraph *g, uint32_t node, VisitUse *visit);

// Cycles from the last machine instruction of an expansion to one that needs its result; 0 for
// loads.
uint32_t result_latency(const BlockGraph *g, const Expansion *e);

// Fills nodes, edges and segments of the block [first, first + count).
void block_graph(BlockGraph *g, uint32_t first, uint32_t count);
// Moves loads from shared memory nearer to their use. In block_delay.c.
void block_delay(BlockGraph *g);
// Fills Node.at and the numbers of the segments.
void block_list(BlockGraph *g);

// Makes room for one more element; sets g->failed and returns NULL if there is none.
void *block_grow(BlockGraph *g, void *array, uint32_t count, uint32_t *capacity, size_t element);

#endif
