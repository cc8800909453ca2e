// The wgmma queue (tensor_time.h).
#include "softgpu/timing/tensor_time.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/event.h"
#include "softgpu/machine/parts.h"
#include "softgpu/timing/pace.h"
#include "softgpu/timing/trace.h"

void tensor_queue_start(Sm *sm) {
    SmPace *s = sm->pace;
    if (!s->tensor) s->tensor = allocate(sizeof *s->tensor);
    memset(s->tensor, 0, sizeof *s->tensor);
}

static void begin(Sm *sm);

// A product has left the tensor cores.
static void done(Sm *sm, void *subject, uint64_t generation) {
    Warpgroup *g = subject;
    sm->pace->tensor->running = false;
    g->events--;
    if (g->generation == generation) wgmma_ended(g);
    begin(sm);
}

// Takes the next product, if the tensor cores are free.
static void begin(Sm *sm) {
    TensorQueue *q = sm->pace->tensor;
    SmPace *s = sm->pace;
    if (q->running || !q->count) return;
    if (q->next >= q->count) q->next = 0;
    Warpgroup *g = q->groups[q->next];
    WgmmaOp *op = wgmma_op(g, g->begun++);
    const GpuTiming *t = sm->launch->pace->timing;
    const GpuFigures *f = &sm->gpu->figures;
    bool registers;
    int columns = wgmma_columns(op);
    // All kinds do 64 x N x 32 bytes of products in the same time.
    uint64_t cycles = (uint64_t)wgmma_cycles(f, RATE_F16, columns, 16);
    uint64_t bytes = wgmma_operand_bytes(op, &registers), now = sm->time;
    // The longer it takes, the more fills come meanwhile.
    uint64_t end = now + cycles, free = s->shared_free > now ? s->shared_free : now, seen = now;
    free += (bytes + 127) / 128;
    while (seen < end) {
        free += pace_fill_cycles(s, seen, end);
        seen = end;
        if (free > end) end = free;
    }
    s->shared_free = free;
    s->shared_busy += (bytes + 127) / 128;
    s->products = true;
    if (t->register_pressure) {
        // 64 rows of f32 accumulators, read and written, of which reading shares with the warps'.
        uint64_t reads = 64ull * 4 * (uint64_t)columns;
        if (s->registers_free < now) s->registers_free = now;
        s->registers_free += reads / (uint64_t)t->register_read_bytes;
    }
    s->tensor_busy += cycles;
    if (trace_on(sm)) trace_span(sm, TRACE_TENSOR, 0, g->warps, "wgmma", now, end);
    wgmma_begun(g, op, end + (uint64_t)(registers ? t->wgmma_tail_registers : t->wgmma_tail));
    if (wgmma_has_next(g)) {
        q->next++;
    } else {
        memmove(&q->groups[q->next], &q->groups[q->next + 1],
                (size_t)(--q->count - q->next) * sizeof *q->groups);
    }
    q->running = true;
    g->events++;
    event_add(sm, end, done, g, g->generation);
}

void tensor_queue_push(Sm *sm, Warpgroup *g) {
    TensorQueue *q = sm->pace->tensor;
    int at = 0;
    while (at < q->count && q->groups[at] != g) at++;
    if (at == q->count && q->count < TENSOR_GROUPS) q->groups[q->count++] = g;
    begin(sm);
}

void tensor_queue_forget(Sm *sm, Warpgroup *g) {
    TensorQueue *q = sm->pace ? sm->pace->tensor : NULL;
    if (!q) return;
    for (int k = 0; k < q->count; k++)
        if (q->groups[k] == g) {
            memmove(&q->groups[k], &q->groups[k + 1], (size_t)(--q->count - k) * sizeof *q->groups);
            return;
        }
}
