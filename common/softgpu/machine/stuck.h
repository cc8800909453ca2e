// When a round changes nothing, there may never be change again: finding out, and saying so.
//
// A round in which nothing could run is a deadlock. One in which warps run and nothing that another
// can see changes is quiet; after so many quiet ones warps are watched: if every warp comes back to
// a state that it has been in, nothing will ever change.
#ifndef SOFTGPU_STUCK_H
#define SOFTGPU_STUCK_H

#include "softgpu/machine/machine.h"

typedef struct {
    LaunchState *state;
    int sms; // of the launch
    const struct Counters *counters;
    int threads;       // entries of `counters`
    uint64_t patience; // quiet rounds after which warps are watched
    // Private: what was counted last, and when.
    uint64_t changes, stores, clocks, quiet_rounds, next_watch, watch_end, quiet_since;
    bool watching;
} Stuck;

// Can nobody get on any more? Called after a round, at SM time `now`; `idle`: nothing could run in
// it, and no event is to come. Reports it if so.
bool stuck(Stuck *u, uint64_t now, bool idle);

#endif
