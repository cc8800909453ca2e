// Reading timelines in tests: files of ./run --trace.
#ifndef TEST_TIMELINE_H
#define TEST_TIMELINE_H

#include "json.h"

enum { TIMELINE_MOST = 1 << 14 };

// A bar. Times in cycles from the launch's begin, those of kernels (no SM) in microseconds.
typedef struct {
    const char *name, *kind; // "softmax", "phase"
    int pid, tid;
    double begin, end, ts, dur;
    int block, warpgroup, warp, busy; // -1: not said
} Bar;

typedef struct {
    Json *json;
    Bar *bars;
    int count;
} Timeline;

// Reads a file, which must be JSON of the format's shape: every event has what its kind needs.
Timeline timeline_read(const char *path);
// The name of a track (of `tid` 0: of the process); fails if it has none.
const char *track_name(const Timeline *t, int pid, int tid);
// Bars of a track stand in order, and each ends before the next begins or lies within the one before
// it. By microseconds, as launches follow each other.
void tracks_are_ordered(const Timeline *t);
// How many bars there are of a kind, and of a name if it isn't NULL.
int bars_of(const Timeline *t, const char *kind, const char *name);

#endif
