// Graphs: nodes that a program adds or that a capture records, and launches of copies of them.
//
// Nodes run one after the other in an order that respects their dependencies: each in turn the
// first one, in the order of their making, of which all predecessors have run.
#include "softgpu/api/graph.h"

#include <stdlib.h>
#include <string.h>

Node *graph_append(Graph *graph, NodeKind kind, Node *const *before, size_t count) {
    Node *node = calloc(1, sizeof *node);
    Node **nodes = realloc(graph->nodes, (size_t)(graph->node_count + 1) * sizeof *nodes);
    if (node == NULL || nodes == NULL) abort();
    node->kind = kind;
    node->graph = graph;
    node->before = calloc(count ? count : 1, sizeof *node->before);
    if (node->before == NULL) abort();
    if (count) memcpy(node->before, before, count * sizeof *before);
    node->before_count = (int)count;
    graph->nodes = nodes;
    nodes[graph->node_count++] = node;
    handle_add(node, HANDLE_GRAPH_NODE);
    return node;
}

static void node_free(Node *node);

void graph_free(Graph *graph) {
    for (int i = 0; i < graph->node_count; i++) node_free(graph->nodes[i]);
    free(graph->nodes);
    free(graph);
}

static void node_free(Node *node) {
    handle_remove(node);
    if (node->child) {
        handle_remove(node->child);
        graph_free(node->child);
    }
    free(node->before);
    free(node->parameters);
    free(node);
}

// Copies what a node does (not its place in the graph).
static void copy_work(Node *to, const Node *from) {
    to->kind = from->kind;
    to->launch = from->launch;
    to->copy = from->copy;
    to->fill = from->fill;
    to->host = from->host;
    to->host_data = from->host_data;
    to->event = from->event;
    to->disabled = from->disabled;
    free(to->parameters);
    to->parameters = NULL;
    to->parameters_size = from->parameters_size;
    if (from->parameters) {
        to->parameters = calloc(1, from->parameters_size ? from->parameters_size : 1);
        if (to->parameters == NULL) abort();
        memcpy(to->parameters, from->parameters, from->parameters_size);
    }
    if (from->child) {
        to->child = graph_copy(from->child);
        handle_add(to->child, HANDLE_GRAPH);
    }
}

int graph_index(const Graph *graph, const Node *node) {
    for (int i = 0; i < graph->node_count; i++)
        if (graph->nodes[i] == node) return i;
    return -1;
}

// A deep copy; each node remembers the one it was copied from.
Graph *graph_copy(const Graph *graph) {
    Graph *copy = calloc(1, sizeof *copy);
    if (copy == NULL) abort();
    for (int i = 0; i < graph->node_count; i++) {
        Node *from = graph->nodes[i];
        Node *to = graph_append(copy, from->kind, NULL, 0);
        copy_work(to, from);
        to->origin = from;
    }
    for (int i = 0; i < graph->node_count; i++) {
        const Node *from = graph->nodes[i];
        Node *to = copy->nodes[i];
        free(to->before);
        to->before = calloc((size_t)from->before_count + 1, sizeof *to->before);
        if (to->before == NULL) abort();
        for (int d = 0; d < from->before_count; d++) {
            int at = graph_index(graph, from->before[d]);
            if (at >= 0) to->before[to->before_count++] = copy->nodes[at];
        }
    }
    return copy;
}

// ---- running

static cudaError_t node_run(Node *node) {
    cudaError_t error = cudaSuccess;
    if (node->disabled) return cudaSuccess;
    switch (node->kind) {
    case NODE_KERNEL:
        error = kernel_prepare(node->launch.kernel);
        error = error ? error : launch_check(&node->launch);
        return error ? error : launch_now(&node->launch, node->parameters);
    case NODE_COPY:
        error = copy_check("a graph's copy", &node->copy);
        if (error == cudaSuccess) copy_now(&node->copy);
        return error;
    case NODE_FILL:
        error = fill_check("a graph's memset", &node->fill);
        if (error == cudaSuccess) fill_now(&node->fill);
        return error;
    case NODE_HOST: node->host(node->host_data); return cudaSuccess;
    case NODE_GRAPH: return graph_run(node->child);
    case NODE_RECORD:
        if (!handle_is(node->event, HANDLE_EVENT))
            return api_result(cudaErrorInvalidResourceHandle);
        event_record_now(node->event);
        return cudaSuccess;
    case NODE_EMPTY:
    case NODE_WAIT: return cudaSuccess;
    }
    return cudaSuccess;
}

static bool node_ready(const Node *node) {
    for (int d = 0; d < node->before_count; d++)
        if (!node->before[d]->done) return false;
    return !node->done;
}

cudaError_t graph_run(Graph *graph) {
    for (int i = 0; i < graph->node_count; i++) graph->nodes[i]->done = false;
    for (int left = graph->node_count, at = 0; left > 0;) {
        int tried = 0;
        while (tried < graph->node_count && !node_ready(graph->nodes[at])) {
            at = (at + 1) % graph->node_count;
            tried++;
        }
        if (tried == graph->node_count)
            return api_explain(cudaErrorInvalidValue, "the graph's dependencies form a cycle");
        cudaError_t error = node_run(graph->nodes[at]);
        if (error) return error;
        graph->nodes[at]->done = true;
        left--;
    }
    return cudaSuccess;
}

// ---- making graphs

EXPORT cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags) {
    API_BEGIN();
    if (graph == NULL || flags != 0) return api_result(cudaErrorInvalidValue);
    *graph = calloc(1, sizeof **graph);
    if (*graph == NULL) return api_result(cudaErrorMemoryAllocation);
    handle_add(*graph, HANDLE_GRAPH);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    API_BEGIN();
    if (!handle_is(graph, HANDLE_GRAPH)) return api_result(cudaErrorInvalidValue);
    handle_remove(graph);
    graph_free(graph);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t graph) {
    API_BEGIN();
    if (clone == NULL || !handle_is(graph, HANDLE_GRAPH)) return api_result(cudaErrorInvalidValue);
    *clone = graph_copy(graph);
    handle_add(*clone, HANDLE_GRAPH);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t *node, cudaGraphNode_t original,
                                            cudaGraph_t clone) {
    API_BEGIN();
    if (node == NULL || !handle_is(clone, HANDLE_GRAPH)) return api_result(cudaErrorInvalidValue);
    for (int i = 0; i < clone->node_count; i++) {
        if (clone->nodes[i]->origin == original) {
            *node = clone->nodes[i];
            return cudaSuccess;
        }
    }
    return api_result(cudaErrorInvalidValue);
}

// Checks the arguments that every cudaGraphAdd…Node shares, and appends the node.
static cudaError_t add_node(cudaGraphNode_t *node, cudaGraph_t graph, NodeKind kind,
                            const cudaGraphNode_t *before, size_t count) {
    if (node == NULL || !handle_is(graph, HANDLE_GRAPH) || (count && before == NULL))
        return api_result(cudaErrorInvalidValue);
    for (size_t i = 0; i < count; i++)
        if (!handle_is(before[i], HANDLE_GRAPH_NODE) || before[i]->graph != graph)
            return api_result(cudaErrorInvalidValue);
    *node = graph_append(graph, kind, before, count);
    return cudaSuccess;
}

// Reads what a kernel node is to launch.
cudaError_t node_set_kernel(Node *node, const struct cudaKernelNodeParams *p) {
    if (p == NULL) return api_result(cudaErrorInvalidValue);
    ApiKernel *kernel = kernel_of(p->func);
    if (kernel == NULL) return api_result(cudaErrorInvalidDeviceFunction);
    cudaError_t error = kernel_prepare(kernel);
    if (error) return error;
    if (p->extra)
        return api_explain(cudaErrorNotSupported,
                           "a kernel node with `extra` arguments is not implemented");
    if (kernel->code->param_count && p->kernelParams == NULL)
        return api_result(cudaErrorInvalidValue);
    LaunchRequest old = node->launch;
    node->launch = (LaunchRequest){
        .kernel = kernel,
        .grid = p->gridDim,
        .block = p->blockDim,
        .dynamic_shared = p->sharedMemBytes,
        .cluster = old.cluster,
        .has_cluster = old.has_cluster,
        .cooperative = old.cooperative,
    };
    const uint32_t *c = kernel->code->ptx->reqnctapercluster;
    if (c[0]) {
        node->launch.cluster = (dim3){c[0], c[1] ? c[1] : 1, c[2] ? c[2] : 1};
        node->launch.has_cluster = true;
    }
    free(node->parameters);
    node->parameters = launch_pack(kernel, p->kernelParams);
    node->parameters_size = kernel->code->param_size;
    return cudaSuccess;
}

// Takes back a node whose parameters turned out wrong.
static cudaError_t undo(cudaGraphNode_t *node, cudaError_t error) {
    if (error) {
        (*node)->graph->node_count--;
        node_free(*node);
        *node = NULL;
    }
    return error;
}

EXPORT cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                          const cudaGraphNode_t *before, size_t count,
                                          const struct cudaKernelNodeParams *p) {
    API_BEGIN();
    cudaError_t error = add_node(node, graph, NODE_KERNEL, before, count);
    return error ? error : undo(node, node_set_kernel(*node, p));
}

EXPORT cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                          const cudaGraphNode_t *before, size_t count,
                                          const struct cudaMemcpy3DParms *p) {
    API_BEGIN();
    cudaError_t error = add_node(node, graph, NODE_COPY, before, count);
    return error ? error : undo(node, copy_from_3d("cudaGraphAddMemcpyNode", p, &(*node)->copy));
}

EXPORT cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph,
                                            const cudaGraphNode_t *before, size_t count, void *to,
                                            const void *from, size_t size,
                                            enum cudaMemcpyKind kind) {
    API_BEGIN();
    cudaError_t error = add_node(node, graph, NODE_COPY, before, count);
    if (error) return error;
    (*node)->copy =
        (Copy){.to = to, .from = from, .width = size, .height = 1, .depth = 1, .kind = kind};
    return undo(node, copy_check("cudaGraphAddMemcpyNode1D", &(*node)->copy));
}

// Reads the parameters of a memset node.
cudaError_t node_set_fill(Node *node, const struct cudaMemsetParams *p) {
    if (p == NULL || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4))
        return api_result(cudaErrorInvalidValue);
    node->fill = (Fill){
        .to = p->dst,
        .width = p->width,
        .height = p->height,
        .depth = 1,
        .pitch = p->pitch,
        .element = p->elementSize,
        .value = p->value,
    };
    return fill_check("a graph's memset", &node->fill);
}

EXPORT cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                          const cudaGraphNode_t *before, size_t count,
                                          const struct cudaMemsetParams *p) {
    API_BEGIN();
    cudaError_t error = add_node(node, graph, NODE_FILL, before, count);
    return error ? error : undo(node, node_set_fill(*node, p));
}

EXPORT cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                        const cudaGraphNode_t *before, size_t count,
                                        const struct cudaHostNodeParams *p) {
    API_BEGIN();
    if (p == NULL || p->fn == NULL) return api_result(cudaErrorInvalidValue);
    cudaError_t error = add_node(node, graph, NODE_HOST, before, count);
    if (error) return error;
    (*node)->host = p->fn;
    (*node)->host_data = p->userData;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                         const cudaGraphNode_t *before, size_t count) {
    API_BEGIN();
    return add_node(node, graph, NODE_EMPTY, before, count);
}

EXPORT cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                              const cudaGraphNode_t *before, size_t count,
                                              cudaGraph_t child) {
    API_BEGIN();
    if (!handle_is(child, HANDLE_GRAPH)) return api_result(cudaErrorInvalidValue);
    cudaError_t error = add_node(node, graph, NODE_GRAPH, before, count);
    if (error) return error;
    (*node)->child = graph_copy(child);
    handle_add((*node)->child, HANDLE_GRAPH);
    return cudaSuccess;
}

static cudaError_t add_event_node(cudaGraphNode_t *node, cudaGraph_t graph, NodeKind kind,
                                  const cudaGraphNode_t *before, size_t count, cudaEvent_t event) {
    if (!handle_is(event, HANDLE_EVENT)) return api_result(cudaErrorInvalidResourceHandle);
    cudaError_t error = add_node(node, graph, kind, before, count);
    if (error == cudaSuccess) (*node)->event = event;
    return error;
}

EXPORT cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                               const cudaGraphNode_t *before, size_t count,
                                               cudaEvent_t event) {
    API_BEGIN();
    return add_event_node(node, graph, NODE_RECORD, before, count, event);
}

EXPORT cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                             const cudaGraphNode_t *before, size_t count,
                                             cudaEvent_t event) {
    API_BEGIN();
    return add_event_node(node, graph, NODE_WAIT, before, count, event);
}

EXPORT cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                            const cudaGraphNode_t *to,
                                            const cudaGraphEdgeData *edges, size_t count) {
    API_BEGIN();
    (void)edges;
    if (!handle_is(graph, HANDLE_GRAPH)) return api_result(cudaErrorInvalidValue);
    for (size_t i = 0; i < count; i++) {
        if (graph_index(graph, from[i]) < 0 || graph_index(graph, to[i]) < 0)
            return api_result(cudaErrorInvalidValue);
        Node *node = to[i];
        node->before =
            realloc(node->before, (size_t)(node->before_count + 1) * sizeof *node->before);
        if (node->before == NULL) abort();
        node->before[node->before_count++] = from[i];
    }
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
    API_BEGIN();
    if (!handle_is(node, HANDLE_GRAPH_NODE)) return api_result(cudaErrorInvalidValue);
    Graph *graph = node->graph;
    int at = graph_index(graph, node);
    memmove(&graph->nodes[at], &graph->nodes[at + 1],
            (size_t)(graph->node_count - at - 1) * sizeof *graph->nodes);
    graph->node_count--;
    for (int i = 0; i < graph->node_count; i++) {
        Node *n = graph->nodes[i];
        int kept = 0;
        for (int d = 0; d < n->before_count; d++)
            if (n->before[d] != node) n->before[kept++] = n->before[d];
        n->before_count = kept;
    }
    node_free(node);
    return cudaSuccess;
}

// ---- questions

// Answers the "how many, and which" questions of the API: with no list only the count.
static cudaError_t list_nodes(Node **found, size_t n, cudaGraphNode_t *list, size_t *count) {
    if (count == NULL) return api_result(cudaErrorInvalidValue);
    if (list) {
        for (size_t i = 0; i < *count; i++) list[i] = i < n ? found[i] : NULL;
        n = n < *count ? n : *count;
    }
    *count = n;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    API_BEGIN();
    if (!handle_is(graph, HANDLE_GRAPH)) return api_result(cudaErrorInvalidValue);
    return list_nodes(graph->nodes, (size_t)graph->node_count, nodes, count);
}

EXPORT cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    API_BEGIN();
    if (!handle_is(graph, HANDLE_GRAPH)) return api_result(cudaErrorInvalidValue);
    Node **roots = calloc((size_t)graph->node_count + 1, sizeof *roots);
    if (roots == NULL) abort();
    size_t n = 0;
    for (int i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->before_count == 0) roots[n++] = graph->nodes[i];
    cudaError_t error = list_nodes(roots, n, nodes, count);
    free(roots);
    return error;
}

EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *nodes,
                                                cudaGraphEdgeData *edges, size_t *count) {
    API_BEGIN();
    if (!handle_is(node, HANDLE_GRAPH_NODE)) return api_result(cudaErrorInvalidValue);
    if (edges && count) memset(edges, 0, *count * sizeof *edges);
    return list_nodes(node->before, (size_t)node->before_count, nodes, count);
}

EXPORT cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
                                     cudaGraphEdgeData *edges, size_t *count) {
    API_BEGIN();
    if (!handle_is(graph, HANDLE_GRAPH) || count == NULL) return api_result(cudaErrorInvalidValue);
    size_t n = 0, room = from && to ? *count : 0;
    for (int i = 0; i < graph->node_count; i++) {
        Node *node = graph->nodes[i];
        for (int d = 0; d < node->before_count; d++, n++) {
            if (n >= room) continue;
            from[n] = node->before[d];
            to[n] = node;
            if (edges) memset(&edges[n], 0, sizeof *edges);
        }
    }
    *count = from && to && n > room ? room : n;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type) {
    API_BEGIN();
    static const enum cudaGraphNodeType types[] = {
        [NODE_KERNEL] = cudaGraphNodeTypeKernel,      [NODE_COPY] = cudaGraphNodeTypeMemcpy,
        [NODE_FILL] = cudaGraphNodeTypeMemset,        [NODE_HOST] = cudaGraphNodeTypeHost,
        [NODE_EMPTY] = cudaGraphNodeTypeEmpty,        [NODE_GRAPH] = cudaGraphNodeTypeGraph,
        [NODE_RECORD] = cudaGraphNodeTypeEventRecord, [NODE_WAIT] = cudaGraphNodeTypeWaitEvent,
    };
    if (type == NULL || !handle_is(node, HANDLE_GRAPH_NODE))
        return api_result(cudaErrorInvalidValue);
    *type = types[node->kind];
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
                                                const struct cudaKernelNodeParams *p) {
    API_BEGIN();
    if (!handle_is(node, HANDLE_GRAPH_NODE) || node->kind != NODE_KERNEL)
        return api_result(cudaErrorInvalidValue);
    return node_set_kernel(node, p);
}
