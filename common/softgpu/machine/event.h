// What will happen on an SM at a known time: the end of a sleep, the completion of an asynchronous
// operation. A binary heap per SM, ordered by (time, order of addition), so that equal times keep
// their order.
#ifndef SOFTGPU_EVENT_H
#define SOFTGPU_EVENT_H

#include "softgpu/machine/machine.h"

typedef void EventRun(Sm *sm, void *subject, uint64_t data);

// Calls run(sm, subject, data) when the SM's time has come to `time`.
void event_add(Sm *sm, uint64_t time, EventRun *run, void *subject, uint64_t data);
// Runs all events that are due.
void events_run(Sm *sm);
// Time of the next one; UINT64_MAX if there is none.
uint64_t events_next(const Sm *sm);
// Forgets all (the launch has failed), or frees the queue.
void events_clear(Sm *sm);
void events_free(Sm *sm);

#endif
