// A chapter of broken steps, for the tests alone: it is built like the others, and its run must
// tell what is wrong.
#include "broken.h"
#include "harness/chapter.h"

static const Step *const steps[] = {
    &step_right,     &step_dropped_tile,  &step_wrong_base,    &step_nan_row,
    &step_unwritten, &step_swapped_heads, &step_out_of_bounds, &step_barrier,
    &step_deadlock,  &step_bad_launch,    &step_stale_counter,
};

#define PROBLEM                                                                                    \
    {                                                                                              \
        .batch = 1, .heads = 2, .kv_heads = 2, .seqlen_q = 136, .seqlen_k = 136, .head_dim = 64,   \
        .dtype = DTYPE_FP32                                                                        \
    }

const Chapter chapter = {
    .number = 9,
    .folder = "tests/chapters/broken",
    .title = "broken",
    .gpu = "h100",
    .min_capability = 80,
    .steps = steps,
    .step_count = sizeof steps / sizeof steps[0],
    .check = PROBLEM,
    .timing = PROBLEM,
};
