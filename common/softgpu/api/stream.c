// Streams, events and capture. Work runs at once, inside the call that asks for it, so streams only
// matter in two ways: an event records the modelled clock, and a stream that is being captured
// records its work as a graph instead of running it.
#include "softgpu/api/api.h"

#include <stdlib.h>
#include <string.h>

// A capture: the graph being recorded, and the nodes that each stream's next work follows. Work is
// appended in the order of the calls, which is an order in which it may run.
struct Capture {
    struct CUgraph_st *graph;
    struct CUstream_st *origin;
    unsigned long long id;
    bool graph_is_the_programs; // cudaStreamBeginCaptureToGraph
    struct CaptureBranch {
        struct CUstream_st *stream;
        NodeSet after;
    } * branches;
    int branch_count;
};

static struct CUstream_st legacy_stream = {.id = 1}, thread_stream = {.id = 2};
static unsigned long long next_stream = 3, next_capture = 1;

struct CUstream_st *stream_of(cudaStream_t stream) {
    if (stream == NULL || stream == cudaStreamLegacy) return &legacy_stream;
    if (stream == cudaStreamPerThread) return &thread_stream;
    return handle_is(stream, HANDLE_STREAM) ? stream : NULL;
}

// ---- capture

// The place of a stream in its capture; made if the stream joins now.
static struct CaptureBranch *branch_of(Capture *capture, struct CUstream_st *stream) {
    for (int i = 0; i < capture->branch_count; i++)
        if (capture->branches[i].stream == stream) return &capture->branches[i];
    capture->branches =
        realloc(capture->branches, (size_t)(capture->branch_count + 1) * sizeof *capture->branches);
    if (capture->branches == NULL) abort();
    struct CaptureBranch *branch = &capture->branches[capture->branch_count++];
    *branch = (struct CaptureBranch){.stream = stream};
    stream->capture = capture;
    return branch;
}

// Adds a node to a set, unless it is in it.
static void set_add(NodeSet *set, struct CUgraphNode_st *node) {
    for (int i = 0; i < set->count; i++)
        if (set->nodes[i] == node) return;
    set->nodes = realloc(set->nodes, (size_t)(set->count + 1) * sizeof *set->nodes);
    if (set->nodes == NULL) abort();
    set->nodes[set->count++] = node;
}

static void set_add_all(NodeSet *set, struct CUgraphNode_st *const *nodes, size_t count) {
    for (size_t i = 0; i < count; i++) set_add(set, nodes[i]);
}

struct CUgraphNode_st *capture_append(struct CUstream_st *stream, NodeKind kind) {
    NodeSet *after = &branch_of(stream->capture, stream)->after;
    struct CUgraphNode_st *node =
        graph_append(stream->capture->graph, kind, after->nodes, (size_t)after->count);
    after->count = 0;
    set_add(after, node);
    return node;
}

static cudaError_t begin_capture(cudaStream_t stream, struct CUgraph_st *graph) {
    struct CUstream_st *s = stream_of(stream);
    if (s == NULL) return api_result(cudaErrorInvalidResourceHandle);
    if (s == &legacy_stream)
        return api_explain(cudaErrorStreamCaptureUnsupported,
                           "the default stream can't be captured: make one with cudaStreamCreate");
    if (s->capture) return api_result(cudaErrorIllegalState);
    Capture *capture = calloc(1, sizeof *capture);
    if (capture == NULL) abort();
    capture->graph_is_the_programs = graph != NULL;
    capture->graph = graph ? graph : calloc(1, sizeof *graph);
    if (capture->graph == NULL) abort();
    capture->origin = s;
    capture->id = next_capture++;
    branch_of(capture, s);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    API_BEGIN();
    (void)mode;
    return begin_capture(stream, NULL);
}
TWIN(cudaStreamBeginCapture, ptsz);

EXPORT cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                                 const cudaGraphNode_t *before,
                                                 const cudaGraphEdgeData *edges, size_t count,
                                                 enum cudaStreamCaptureMode mode) {
    API_BEGIN();
    (void)edges, (void)mode;
    if (!handle_is(graph, HANDLE_GRAPH)) return api_result(cudaErrorInvalidValue);
    for (size_t i = 0; i < count; i++)
        if (before == NULL || !handle_is(before[i], HANDLE_GRAPH_NODE))
            return api_result(cudaErrorInvalidValue);
    cudaError_t error = begin_capture(stream, graph);
    if (error) return error;
    struct CUstream_st *s = stream_of(stream);
    set_add_all(&branch_of(s->capture, s)->after, before, count);
    return cudaSuccess;
}
TWIN(cudaStreamBeginCaptureToGraph, ptsz);

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    API_BEGIN();
    struct CUstream_st *s = stream_of(stream);
    if (s == NULL) return api_result(cudaErrorInvalidResourceHandle);
    Capture *capture = s->capture;
    if (capture == NULL) return api_result(cudaErrorIllegalState);
    if (capture->origin != s) return api_result(cudaErrorStreamCaptureUnmatched);
    for (int i = 0; i < capture->branch_count; i++) {
        capture->branches[i].stream->capture = NULL;
        free(capture->branches[i].after.nodes);
    }
    if (!capture->graph_is_the_programs) handle_add(capture->graph, HANDLE_GRAPH);
    if (graph) *graph = capture->graph;
    free(capture->branches); // the capture stays: events may still name it
    capture->branches = NULL;
    capture->branch_count = 0;
    return cudaSuccess;
}
TWIN(cudaStreamEndCapture, ptsz);

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                         enum cudaStreamCaptureStatus *status) {
    API_BEGIN();
    struct CUstream_st *s = stream_of(stream);
    if (s == NULL || status == NULL)
        return api_result(s ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
    *status = s->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
TWIN(cudaStreamIsCapturing, ptsz);

EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                            enum cudaStreamCaptureStatus *status,
                                            unsigned long long *id, cudaGraph_t *graph,
                                            const cudaGraphNode_t **dependencies,
                                            const cudaGraphEdgeData **edges, size_t *count) {
    API_BEGIN();
    struct CUstream_st *s = stream_of(stream);
    if (s == NULL || status == NULL)
        return api_result(s ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
    *status = s->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    const NodeSet *after = s->capture ? &branch_of(s->capture, s)->after : NULL;
    if (id) *id = s->capture ? s->capture->id : 0;
    if (graph) *graph = s->capture ? s->capture->graph : NULL;
    if (dependencies) *dependencies = after && after->count ? after->nodes : NULL;
    if (edges) *edges = NULL;
    if (count) *count = after ? (size_t)after->count : 0;
    return cudaSuccess;
}
TWIN(cudaStreamGetCaptureInfo, ptsz);

EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    static _Thread_local enum cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
    if (mode == NULL) return api_result(cudaErrorInvalidValue);
    enum cudaStreamCaptureMode old = current;
    current = *mode;
    *mode = old;
    return cudaSuccess;
}

// ---- streams

EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
                                                int priority) {
    API_BEGIN();
    if (stream == NULL || flags > cudaStreamNonBlocking) return api_result(cudaErrorInvalidValue);
    struct CUstream_st *s = calloc(1, sizeof *s);
    if (s == NULL) return api_result(cudaErrorMemoryAllocation);
    *s = (struct CUstream_st){.flags = flags, .priority = priority, .id = next_stream++};
    handle_add(s, HANDLE_STREAM);
    *stream = s;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    API_BEGIN();
    if (!handle_is(stream, HANDLE_STREAM)) return api_result(cudaErrorInvalidResourceHandle);
    if (stream->capture) return api_result(cudaErrorStreamCaptureUnsupported);
    handle_remove(stream);
    free(stream);
    return cudaSuccess;
}

// Work is done when its call returns, so a stream is always idle.
static cudaError_t wait_for(cudaStream_t stream) {
    struct CUstream_st *s = stream_of(stream);
    if (s == NULL) return api_result(cudaErrorInvalidResourceHandle);
    return s->capture ? api_result(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    API_BEGIN();
    return wait_for(stream);
}
TWIN(cudaStreamSynchronize, ptsz);

EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) {
    API_BEGIN();
    return wait_for(stream);
}
TWIN(cudaStreamQuery, ptsz);

// The three questions about a stream differ in one field.
#define STREAM_QUESTION(name, type, field)                                                         \
    EXPORT cudaError_t name(cudaStream_t stream, type *answer) {                                   \
        API_BEGIN();                                                                               \
        struct CUstream_st *s = stream_of(stream);                                                 \
        if (s == NULL || answer == NULL)                                                           \
            return api_result(s ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);         \
        *answer = (type)(field);                                                                   \
        return cudaSuccess;                                                                        \
    }                                                                                              \
    TWIN(name, ptsz)
STREAM_QUESTION(cudaStreamGetFlags, unsigned, s->flags);
STREAM_QUESTION(cudaStreamGetPriority, int, s->priority);
STREAM_QUESTION(cudaStreamGetId, unsigned long long, s->id);
STREAM_QUESTION(cudaStreamGetDevice, int, 0);

EXPORT cudaError_t cudaStreamCopyAttributes(cudaStream_t to, cudaStream_t from) {
    API_BEGIN();
    if (stream_of(to) == NULL || stream_of(from) == NULL)
        return api_result(cudaErrorInvalidResourceHandle);
    return cudaSuccess;
}
TWIN(cudaStreamCopyAttributes, ptsz);

// Stream attributes are hints (L2 windows, spinning or not): accepted, without effect.
EXPORT cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID id,
                                          const cudaStreamAttrValue *value) {
    API_BEGIN();
    (void)id;
    struct CUstream_st *s = stream_of(stream);
    if (s == NULL || value == NULL)
        return api_result(s ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
    return cudaSuccess;
}
TWIN(cudaStreamSetAttribute, ptsz);

EXPORT cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaStreamAttrID id,
                                          cudaStreamAttrValue *value) {
    API_BEGIN();
    (void)id;
    struct CUstream_st *s = stream_of(stream);
    if (s == NULL || value == NULL)
        return api_result(s ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
    memset(value, 0, sizeof *value);
    return cudaSuccess;
}
TWIN(cudaStreamGetAttribute, ptsz);

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    API_BEGIN();
    struct CUstream_st *s = stream_of(stream);
    if (s == NULL || function == NULL)
        return api_result(s ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
    if (s->capture) {
        struct CUgraphNode_st *node = capture_append(s, NODE_HOST);
        node->host = function;
        node->host_data = data;
        return cudaSuccess;
    }
    function(data);
    return cudaSuccess;
}
TWIN(cudaLaunchHostFunc, ptsz);

EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
                                         void *data, unsigned flags) {
    API_BEGIN();
    cudaError_t error = wait_for(stream);
    if (error || callback == NULL || flags != 0)
        return error ? error : api_result(cudaErrorInvalidValue);
    callback(stream, cudaSuccess, data);
    return cudaSuccess;
}
TWIN(cudaStreamAddCallback, ptsz);

// ---- events

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    API_BEGIN();
    if (event == NULL) return api_result(cudaErrorInvalidValue);
    struct CUevent_st *e = calloc(1, sizeof *e);
    if (e == NULL) return api_result(cudaErrorMemoryAllocation);
    e->flags = flags;
    handle_add(e, HANDLE_EVENT);
    *event = e;
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
    API_BEGIN();
    if (!handle_is(event, HANDLE_EVENT)) return api_result(cudaErrorInvalidResourceHandle);
    handle_remove(event);
    free(event->after.nodes);
    free(event);
    return cudaSuccess;
}

void event_record_now(struct CUevent_st *event) {
    event->recorded = true;
    event->capture = NULL;
    event->at_us = api_gpu()->clock_us;
}

EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                            unsigned flags) {
    API_BEGIN();
    struct CUstream_st *s = stream_of(stream);
    if (!handle_is(event, HANDLE_EVENT) || s == NULL)
        return api_result(cudaErrorInvalidResourceHandle);
    if (s->capture == NULL) {
        event_record_now(event);
        return cudaSuccess;
    }
    if (flags & cudaEventRecordExternal) capture_append(s, NODE_RECORD)->event = event;
    event->capture = s->capture;
    const NodeSet *after = &branch_of(s->capture, s)->after;
    event->after.count = 0;
    set_add_all(&event->after, after->nodes, (size_t)after->count);
    return cudaSuccess;
}
TWIN(cudaEventRecordWithFlags, ptsz);

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, 0);
}
TWIN(cudaEventRecord, ptsz);

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    API_BEGIN();
    if (!handle_is(event, HANDLE_EVENT)) return api_result(cudaErrorInvalidResourceHandle);
    return event->capture ? api_result(cudaErrorCapturedEvent) : cudaSuccess;
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
    return cudaEventSynchronize(event);
}

EXPORT cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    API_BEGIN();
    if (milliseconds == NULL) return api_result(cudaErrorInvalidValue);
    if (!handle_is(start, HANDLE_EVENT) || !handle_is(end, HANDLE_EVENT) || !start->recorded ||
        !end->recorded || (start->flags | end->flags) & cudaEventDisableTiming)
        return api_result(cudaErrorInvalidResourceHandle);
    *milliseconds = (float)((end->at_us - start->at_us) / 1e3);
    return cudaSuccess;
}

// Outside of a capture there is nothing to wait for. In one, the waiting stream joins the capture
// that the event was recorded in, after the work that the event follows.
EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    API_BEGIN();
    struct CUstream_st *s = stream_of(stream);
    if (s == NULL || !handle_is(event, HANDLE_EVENT))
        return api_result(cudaErrorInvalidResourceHandle);
    if (s->capture && flags & cudaEventWaitExternal) {
        capture_append(s, NODE_WAIT)->event = event;
        return cudaSuccess;
    }
    Capture *capture = event->capture;
    if (capture == NULL || capture->branch_count == 0)
        return s->capture ? api_result(cudaErrorStreamCaptureIsolation) : cudaSuccess;
    if (s->capture && s->capture != capture) return api_result(cudaErrorStreamCaptureMerge);
    set_add_all(&branch_of(capture, s)->after, event->after.nodes, (size_t)event->after.count);
    return cudaSuccess;
}
TWIN(cudaStreamWaitEvent, ptsz);
