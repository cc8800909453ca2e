// Included before everything else in the units that seed.c has changed: which bug is on.
//
// The number comes from $SEEDED_BUG (0, or unset: none) before main begins. SEEDED(n) hides it from
// the compiler, which would otherwise make a kernel for each bug.
#ifndef SEEDED_H
#define SEEDED_H

#include <cuda_runtime.h>
#include <stdlib.h>

__constant__ int seeded_bug;

__device__ static inline bool seeded_is(int number) {
    int bug;
    asm volatile("mov.b32 %0, %1;" : "=r"(bug) : "r"(seeded_bug));
    return bug == number;
}
#define SEEDED(number) seeded_is(number)

// select.c calls it, once the unit's kernels and variables are registered.
extern "C" void seeded_select(void) {
    const char *text = getenv("SEEDED_BUG");
    const int bug = text ? atoi(text) : 0;
    if (cudaMemcpyToSymbol(seeded_bug, &bug, sizeof bug) != cudaSuccess) abort();
}

#endif
