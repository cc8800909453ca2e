// Which CTAs of a grid run when only some of the GPU's SMs are simulated.
#ifndef SOFTGPU_SAMPLE_H
#define SOFTGPU_SAMPLE_H

#include "softgpu/machine/machine.h"
#include "softgpu/timing/traffic.h"

typedef struct {
    uint64_t grid;          // CTAs
    uint64_t begin, length; // a run of neighbours, in the first half of the grid
    bool mirrored;          // … and the run as far from the grid's end as that one from its start
} Sample;

// All CTAs if `sample` SMs are all `sms` of them, else about the grid's share of that many.
void sample_choose(Sample *s, uint64_t grid, int sample, int sms);

// The first CTA from `next` on that runs; `grid` if there is none.
uint64_t sample_next(const Sample *s, uint64_t next);

// After the sample has run: does it need its mirror image too? `least` and `most`: instructions of
// the CTAs with the fewest and the most. If so it is added, and sample_next finds more.
bool sample_widen(Sample *s, uint64_t least, uint64_t most);

// What the sample did stands for the whole grid, `factor` times as large.
void sample_scale(double factor, uint32_t code_count, Counters *sum, CacheTraffic *l2,
                  CacheTraffic *hbm);

#endif
