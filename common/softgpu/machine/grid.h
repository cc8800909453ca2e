// The grid of a launch: which of its clusters run (a sample of the SMs runs some of them), on which
// SMs, and when there is room for the next. Without clusters each block is a cluster of its own.
#ifndef SOFTGPU_GRID_H
#define SOFTGPU_GRID_H

#include "softgpu/machine/cluster.h"
#include "softgpu/machine/sample.h"

typedef struct Grid {
    Gpu *gpu;
    const Launch *launch; // no dimension of its cluster is 0
    LaunchState *state;
    int sms;           // that can have work
    int capacity;      // CTAs of an SM
    uint64_t clusters; // of the grid
    Sample sample;     // which clusters run
    uint64_t next;     // cluster to start
    SmGroup *groups;   // of the `sms` SMs
    int group_count;
    uint8_t *constants; // constant pools of the ranks above 0
} Grid;

// Refuses what can't run; else knows `capacity`. Returns the error code, 0 if all is well.
int grid_check(Grid *g);
// Decides where the clusters run.
void grid_begin(Grid *g);
// Is there a cluster that has not been started?
bool grid_goes_on(Grid *g);
// Fills the groups with clusters, one each in turn.
void grid_start_ctas(Grid *g);
// Takes the next cluster that has not been started off the grid: it won't be (cluster launch
// control). False if there is none. In the serial phase, or with one SM.
bool grid_cancel(Grid *g, uint64_t *cluster);
void grid_end(Grid *g);

#endif
