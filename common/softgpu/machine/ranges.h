// The bytes that a warp's access touches, as ranges: what the lanes read or write is mostly a few
// unbroken runs, and what has to be known about bytes (which lines, which are written) is then
// asked once a run, not once a lane.
#ifndef SOFTGPU_RANGES_H
#define SOFTGPU_RANGES_H

#include <stdint.h>

// Every byte of [begin, begin + bytes) is touched; in the order of the lanes. Ranges may overlap.
typedef struct {
    uint64_t begin;
    uint64_t bytes;
} Range;
typedef struct {
    int count;
    Range range[32];
} Ranges;

// The ranges of `size` bytes at each of the addresses of `mask`, which is not 0. Lanes follow each
// other in a range as long as each begins where the one before begins or ends.
void ranges_of(Ranges *ranges, const uint64_t address[32], unsigned size, uint32_t mask);

#endif
