// The event queue of an SM (event.h).
#include "softgpu/machine/event.h"

#include <stdlib.h>

#include "softgpu/machine/parts.h"

typedef struct {
    uint64_t time, order;
    EventRun *run;
    void *subject;
    uint64_t data;
} Event;

// heap[k] is not later than heap[2k + 1] and heap[2k + 2].
struct EventQueue {
    Event *heap;
    int count, capacity;
    uint64_t added;
};

static bool earlier(const Event *a, const Event *b) {
    return a->time != b->time ? a->time < b->time : a->order < b->order;
}

void event_add(Sm *sm, uint64_t time, EventRun *run, void *subject, uint64_t data) {
    if (!sm->events) {
        sm->events = allocate(sizeof *sm->events);
        *sm->events = (struct EventQueue){0};
    }
    struct EventQueue *q = sm->events;
    if (q->count == q->capacity) {
        q->capacity = q->capacity ? 2 * q->capacity : 64;
        Event *heap = allocate((size_t)q->capacity * sizeof *heap);
        for (int k = 0; k < q->count; k++) heap[k] = q->heap[k];
        free(q->heap);
        q->heap = heap;
    }
    Event event = {time, q->added++, run, subject, data};
    int k = q->count++;
    for (; k && earlier(&event, &q->heap[(k - 1) / 2]); k = (k - 1) / 2)
        q->heap[k] = q->heap[(k - 1) / 2];
    q->heap[k] = event;
}

// Takes the first event off the heap.
static Event take(struct EventQueue *q) {
    Event first = q->heap[0], last = q->heap[--q->count];
    int k = 0;
    for (;;) {
        int child = 2 * k + 1;
        if (child >= q->count) break;
        if (child + 1 < q->count && earlier(&q->heap[child + 1], &q->heap[child])) child++;
        if (!earlier(&q->heap[child], &last)) break;
        q->heap[k] = q->heap[child];
        k = child;
    }
    q->heap[k] = last;
    return first;
}

void events_run(Sm *sm) {
    while (events_next(sm) <= sm->time) {
        Event event = take(sm->events);
        event.run(sm, event.subject, event.data);
    }
}

uint64_t events_next(const Sm *sm) {
    return sm->events && sm->events->count ? sm->events->heap[0].time : UINT64_MAX;
}

void events_clear(Sm *sm) {
    if (sm->events) sm->events->count = 0;
}

void events_free(Sm *sm) {
    if (!sm->events) return;
    free(sm->events->heap);
    free(sm->events);
    sm->events = NULL;
}
