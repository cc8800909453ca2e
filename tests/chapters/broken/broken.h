// The steps of the broken chapter.
#ifndef BROKEN_H
#define BROKEN_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step step_right, step_dropped_tile, step_wrong_base, step_nan_row, step_unwritten,
    step_swapped_heads, step_out_of_bounds, step_barrier, step_deadlock, step_bad_launch,
    step_stale_counter;

#ifdef __cplusplus
}
#endif

#endif
