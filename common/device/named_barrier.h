// Named barriers: 16 a block, number 0 is __syncthreads (PTX ISA 9.7.13.1). Some threads wait,
// others only pass by: a sync and an arrive count the same, and the barrier opens when `threads` of
// them in all are there. `threads` is a multiple of 32 and the same at every call on a number.
#ifndef NAMED_BARRIER_H
#define NAMED_BARRIER_H

// barrier.sync. Waits; what all who came here did before is visible afterwards.
__device__ static inline void named_barrier_sync(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// barrier.arrive. Goes on at once; what this thread did before becomes visible to those who wait.
__device__ static inline void named_barrier_arrive(int number, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

#endif
