// Shared by graph.c (graphs and their nodes) and graph_exec.c (launching copies of them).
#ifndef SOFTGPU_GRAPH_H
#define SOFTGPU_GRAPH_H

#include "softgpu/api/api.h"

typedef struct CUgraph_st Graph;
typedef struct CUgraphNode_st Node;

// A deep copy; each node remembers the one it was copied from.
Graph *graph_copy(const Graph *graph);
void graph_free(Graph *graph);
// The index of a node, -1 if it is not in the graph.
int graph_index(const Graph *graph, const Node *node);
// Runs all nodes, each after those that it depends on.
cudaError_t graph_run(Graph *graph);
// Reads what a kernel node is to launch, or a memset node to fill.
cudaError_t node_set_kernel(Node *node, const struct cudaKernelNodeParams *p);
cudaError_t node_set_fill(Node *node, const struct cudaMemsetParams *p);

#endif
