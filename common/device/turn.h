// Thread blocks that do something one after the other: each waits until a counter in global memory
// says that it is its turn, and sets it to the next one's when done.
//
// Deadlock is avoided by the caller: who is waited for must already be running (or have run).
#ifndef TURN_H
#define TURN_H

#include <cuda_runtime.h>

// Waits for the turn. All threads of the block come here; afterwards they see all that the blocks
// before wrote before they ended their turns. (ld.acquire: PTX ISA 9.7.9.8.)
__device__ static inline void turn_wait(const unsigned *counter, unsigned turn) {
    if (threadIdx.x == 0) {
        unsigned now;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(now)
                         : "l"(__cvta_generic_to_global(counter))
                         : "memory");
        } while (now != turn);
    }
    __syncthreads(); // what thread 0 has acquired → all threads
}

// Ends the turn: what any thread of the block wrote before becomes visible to the next block.
// (st.release: PTX ISA 9.7.9.11.)
__device__ static inline void turn_end(unsigned *counter, unsigned turn) {
    __syncthreads(); // every thread's writes → thread 0, whose release covers them
    if (threadIdx.x == 0)
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(counter)),
                     "r"(turn + 1)
                     : "memory");
}

#endif
