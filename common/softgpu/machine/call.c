// Calls: frames on a warp's stack of rows, and the threads' local memory that comes with them.
//
// A frame lies above all live frames of the warp, because groups at different depths have rows of
// different widths there. Lanes that call the same function from the same rows share the callee's
// rows: each lane owns its column. Every call makes a join behind itself, so that lanes that return
// one by one come together again.
#include "softgpu/machine/parts.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/check/definedness.h"

enum {
    RETURN_BYTES = 16, // stack that a call takes beside the function's own variables
    POISON = 0xff,     // registers that nothing has written: NaN, and -1
};

static Frame *frame_new(Warp *w) {
    Frame *f = w->sm->spare_frames;
    if (f)
        w->sm->spare_frames = f->next;
    else
        f = allocate(sizeof *f);
    f->next = w->frames;
    w->frames = f;
    return f;
}

static void frame_free(Warp *w, Frame *f) {
    Frame **link = &w->frames;
    while (*link != f) link = &(*link)->next;
    *link = f->next;
    f->next = w->sm->spare_frames;
    w->sm->spare_frames = f;
}

// Makes the stack at least `size` bytes, and moves what stands on it.
static void stack_reserve(Warp *w, size_t size) {
    if (size <= w->stack_size) return;
    size_t bigger = size + size / 2;
    bigger = (bigger + 63) & ~(size_t)63;
    uint8_t *stack = allocate(bigger);
    if (w->stack) memcpy(stack, w->stack, w->stack_size);
    free(w->stack);
    w->stack = stack;
    w->stack_size = bigger;
    for (Frame *f = w->frames; f; f = f->next) f->rows = stack + f->offset;
}

// Makes every thread's local memory at least `size` bytes. Local addresses are offsets and stay.
static void local_reserve(Warp *w, uint32_t size) {
    if (size <= w->local_stride) return;
    uint32_t old = w->local_stride, stride = (size + 15) & ~15u;
    uint8_t *local = allocate((size_t)stride * WARP_SIZE);
    uint8_t *written = w->sm->launch->checks & CHECK_INIT ? allocate(stride * WARP_SIZE / 8) : NULL;
    if (written) memset(written, 0, stride * WARP_SIZE / 8);
    for (uint32_t lane = 0; lane < WARP_SIZE; lane++) {
        if (!old) break;
        memcpy(local + (size_t)lane * stride, w->local + (size_t)lane * old, old);
        if (written && w->local_written)
            memcpy(written + lane * stride / 8, (uint8_t *)w->local_written + lane * old / 8,
                   old / 8);
    }
    free(w->local);
    free(w->local_written);
    w->local = local;
    w->local_written = (uint64_t *)(void *)written;
    w->local_stride = stride;
}

void frames_start(Warp *w) {
    const CodeFunction *entry = &w->kernel->functions[0];
    stack_reserve(w, entry->frame_size + 64);
    if (w->sm->launch->checks & CHECK_INIT) memset(w->stack, POISON, entry->frame_size);
    local_reserve(w, w->kernel->local_size);
    if (w->local_written) memset(w->local_written, 0, (size_t)w->local_stride * WARP_SIZE / 8);
    Frame *f = frame_new(w);
    *f = (Frame){.rows = w->stack, .function = entry, .lanes = w->exists};
}

void frames_leave(Warp *w, Frame *frame, uint32_t lanes) {
    for (Frame *f = frame, *caller; f; f = caller) {
        caller = f->caller;
        f->lanes &= ~lanes;
        if (!f->lanes) frame_free(w, f);
    }
}

void frames_drop(Warp *w) {
    while (w->frames) frame_free(w, w->frames);
    while (w->joins) {
        Join *j = w->joins;
        w->joins = j->next;
        j->next = w->sm->spare_joins;
        w->sm->spare_joins = j;
    }
}

// The frame for a call from `caller`: rows that other lanes of the same caller already use for the
// same function, or new ones above all others.
static Frame *frame_push(Warp *w, const CodeFunction *callee, Frame *caller) {
    size_t top = 0;
    const Frame *shared = NULL;
    for (const Frame *f = w->frames; f; f = f->next) {
        size_t end = f->offset + f->function->frame_size;
        if (end > top) top = end;
        if (f->function == callee && f->caller && f->caller->offset == caller->offset) shared = f;
    }
    size_t offset = shared ? shared->offset : (top + 63) & ~(size_t)63;
    stack_reserve(w, offset + callee->frame_size + 64);
    if (!shared && w->sm->launch->checks & CHECK_INIT)
        memset(w->stack + offset, POISON, callee->frame_size);
    Frame *f = frame_new(w);
    *f = (Frame){.rows = w->stack + offset,
                 .function = callee,
                 .local_base = caller->local_base + caller->function->local_size,
                 .caller = caller,
                 .depth = caller->depth + 1,
                 .offset = offset,
                 .next = f->next};
    return f;
}

// Does the stack that a call needs fit? Only recursion can use more than lowering has counted.
static bool stack_fits(Warp *w, const Insn *i, const CodeFunction *callee, const Frame *caller,
                       uint32_t mask) {
    if (!w->kernel->recursive) return true;
    uint64_t limit = w->kernel->local_size + w->sm->gpu->stack_limit;
    uint64_t used = (uint64_t)caller->local_base + caller->function->local_size +
                    callee->local_size + (uint64_t)RETURN_BYTES * (caller->depth + 1);
    if (used <= limit) return true;
    finding(w, i, __builtin_ctz(mask), FINDING_STACK_OVERFLOW,
            "end the recursion earlier, or raise cudaLimitStackSize with cudaDeviceSetLimit",
            "call number %u of a recursion needs %llu bytes of stack; each thread has %llu",
            caller->depth + 1, (unsigned long long)used, (unsigned long long)limit);
    return false;
}

// Copies a parameter or result of the lanes of `mask` between two frames.
static void copy_argument(uint8_t *to, const uint8_t *from, const struct CallArgument *a,
                          uint32_t mask) {
    for (; mask; mask &= mask - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(mask);
        memcpy(to + a->to + lane * a->to_stride, from + a->from + lane * a->from_stride, a->size);
    }
}

Flow warp_call(Warp *w, const Insn *i, const Call *call, const CodeFunction *callee,
               uint32_t mask) {
    return warp_call_part(w, i, call, callee, mask, 0);
}

Flow warp_call_part(Warp *w, const Insn *i, const Call *call, const CodeFunction *callee,
                    uint32_t mask, uint32_t later) {
    Group *g = &w->groups[w->current];
    Frame *caller = g->frame;
    if (!stack_fits(w, i, callee, caller, mask)) return FLOW_FAULT;
    Join *j = join_make(w, i + 1);
    // Lanes that the guard switches off are behind the call already.
    j->arrived |= w->active & ~mask & ~later;
    if (later) group_add(w, i, later, j, caller);
    w->active = g->mask = mask;
    Frame *f = frame_push(w, callee, caller);
    f->return_to = i + 1;
    f->call = call;
    f->lanes = mask;
    local_reserve(w, f->local_base + callee->local_size);
    for (int n = 0; n < call->argument_count; n++)
        copy_argument(f->rows, caller->rows, &call->arguments[n], mask);
    if (w->undefined_rows) definedness_call(w, call, caller->offset, f->offset, mask);
    g->join = j;
    g->frame = f;
    w->frame = f->rows;
    w->pc = callee->entry;
    group_update_stop(w);
    return FLOW_JUMP;
}

Flow warp_return(Warp *w, const Insn *i, uint32_t mask) {
    Group *g = &w->groups[w->current];
    Frame *f = g->frame;
    if (!f->caller) return warp_exit(w, i, mask);
    uint32_t stay = w->active & ~mask;
    // Lanes that return don't come to joins within the function.
    Join *behind = g->join;
    while (behind && behind->frame == f) behind = behind->outer;
    Join *inside = g->join;
    if (stay) group_add(w, i + 1, stay, inside, f);
    w->active = g->mask = mask;
    g->join = behind;
    joins_leave(w, inside, behind, mask);
    if (f->call->result.size) copy_argument(f->caller->rows, f->rows, &f->call->result, mask);
    if (w->undefined_rows) definedness_return(w, f, mask);
    g->frame = f->caller;
    w->pc = f->return_to;
    f->lanes &= ~mask;
    if (!f->lanes) frame_free(w, f);
    w->frame = g->frame->rows;
    group_update_stop(w);
    return FLOW_JUMP;
}
