// Executable graphs: a copy of a graph that can be launched, and changed a little afterwards.
#include "softgpu/api/graph.h"

#include <stdlib.h>
#include <string.h>

struct CUgraphExec_st {
    Graph *graph; // its own copy
    unsigned long long flags;
};

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                        unsigned long long flags) {
    API_BEGIN();
    if (exec == NULL || !handle_is(graph, HANDLE_GRAPH)) return api_result(cudaErrorInvalidValue);
    struct CUgraphExec_st *e = calloc(1, sizeof *e);
    if (e == NULL) return api_result(cudaErrorMemoryAllocation);
    e->graph = graph_copy(graph);
    e->flags = flags;
    handle_add(e, HANDLE_GRAPH_EXEC);
    *exec = e;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                                 unsigned long long flags) {
    return cudaGraphInstantiate(exec, graph, flags);
}

EXPORT cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *exec, cudaGraph_t graph,
                                                  cudaGraphInstantiateParams *params) {
    if (params == NULL) return api_result(cudaErrorInvalidValue);
    cudaError_t error = cudaGraphInstantiate(exec, graph, params->flags);
    params->result_out = error ? cudaGraphInstantiateError : cudaGraphInstantiateSuccess;
    params->errNode_out = NULL;
    return error;
}
TWIN(cudaGraphInstantiateWithParams, ptsz);

EXPORT cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long *flags) {
    API_BEGIN();
    if (flags == NULL || !handle_is(exec, HANDLE_GRAPH_EXEC))
        return api_result(cudaErrorInvalidValue);
    *flags = exec->flags;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    API_BEGIN();
    if (!handle_is(exec, HANDLE_GRAPH_EXEC)) return api_result(cudaErrorInvalidValue);
    handle_remove(exec);
    graph_free(exec->graph);
    free(exec);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    API_BEGIN();
    struct CUstream_st *s = stream_of(stream);
    if (!handle_is(exec, HANDLE_GRAPH_EXEC) || s == NULL)
        return api_result(s ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
    if (s->capture) {
        Node *node = capture_append(s, NODE_GRAPH);
        node->child = graph_copy(exec->graph);
        handle_add(node->child, HANDLE_GRAPH);
        return cudaSuccess;
    }
    return graph_run(exec->graph);
}
TWIN(cudaGraphLaunch, ptsz);

EXPORT cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    API_BEGIN();
    if (!handle_is(exec, HANDLE_GRAPH_EXEC) || stream_of(stream) == NULL)
        return api_result(cudaErrorInvalidValue);
    return cudaSuccess;
}
TWIN(cudaGraphUpload, ptsz);

// The node of an executable graph that was copied from `node`.
static Node *exec_node(cudaGraphExec_t exec, cudaGraphNode_t node, NodeKind kind) {
    if (!handle_is(exec, HANDLE_GRAPH_EXEC)) return NULL;
    for (int i = 0; i < exec->graph->node_count; i++) {
        Node *n = exec->graph->nodes[i];
        if (n->origin == node && n->kind == kind) return n;
    }
    return NULL;
}

EXPORT cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                    const struct cudaKernelNodeParams *p) {
    API_BEGIN();
    Node *n = exec_node(exec, node, NODE_KERNEL);
    return n ? node_set_kernel(n, p) : api_result(cudaErrorInvalidValue);
}

EXPORT cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                      void *to, const void *from, size_t size,
                                                      enum cudaMemcpyKind kind) {
    API_BEGIN();
    Node *n = exec_node(exec, node, NODE_COPY);
    if (n == NULL) return api_result(cudaErrorInvalidValue);
    Copy copy = {.to = to, .from = from, .width = size, .height = 1, .depth = 1, .kind = kind};
    cudaError_t error = copy_check("cudaGraphExecMemcpyNodeSetParams1D", &copy);
    if (error == cudaSuccess) n->copy = copy;
    return error;
}

EXPORT cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                    const struct cudaMemsetParams *p) {
    API_BEGIN();
    Node *n = exec_node(exec, node, NODE_FILL);
    return n ? node_set_fill(n, p) : api_result(cudaErrorInvalidValue);
}

EXPORT cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                  const struct cudaHostNodeParams *p) {
    API_BEGIN();
    Node *n = exec_node(exec, node, NODE_HOST);
    if (n == NULL || p == NULL || p->fn == NULL) return api_result(cudaErrorInvalidValue);
    n->host = p->fn;
    n->host_data = p->userData;
    return cudaSuccess;
}

// Do two graphs have the same nodes, of the same kinds, with the same dependencies?
static bool same_shape(const Graph *a, const Graph *b) {
    if (a->node_count != b->node_count) return false;
    for (int i = 0; i < a->node_count; i++) {
        const Node *x = a->nodes[i], *y = b->nodes[i];
        if (x->kind != y->kind || x->before_count != y->before_count) return false;
        for (int d = 0; d < x->before_count; d++)
            if (graph_index(a, x->before[d]) != graph_index(b, y->before[d])) return false;
    }
    return true;
}

EXPORT cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                       cudaGraphExecUpdateResultInfo *result) {
    API_BEGIN();
    if (!handle_is(exec, HANDLE_GRAPH_EXEC) || !handle_is(graph, HANDLE_GRAPH))
        return api_result(cudaErrorInvalidValue);
    bool same = same_shape(exec->graph, graph);
    if (result) {
        memset(result, 0, sizeof *result);
        result->result =
            same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
    }
    if (!same) return api_result(cudaErrorGraphExecUpdateFailure);
    graph_free(exec->graph);
    exec->graph = graph_copy(graph);
    return cudaSuccess;
}
