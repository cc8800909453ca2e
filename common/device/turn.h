// Thread blocks that do something one after the other: each waits until a counter in global memory
// says that it is its turn, and sets it to the next one's when done.
//
// Deadlock is avoided by the caller: who is waited for must already be running (or have run).
#ifndef TURN_H
#define TURN_H

#include <cuda_runtime.h>

// Waits for the turn; what the blocks before wrote before they ended their turns is visible to this
// thread afterwards. (ld.acquire: PTX ISA 9.7.9.8.)
__device__ static inline void turn_wait_alone(const unsigned *counter, unsigned turn) {
    unsigned now;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(now)
                     : "l"(__cvta_generic_to_global(counter))
                     : "memory");
    } while (now != turn);
}

// Ends the turn: what this thread wrote before becomes visible to the next block. (st.release: PTX
// ISA 9.7.9.11.)
__device__ static inline void turn_end_alone(unsigned *counter, unsigned turn) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(counter)),
                 "r"(turn + 1)
                 : "memory");
}

// The same where the turn is the whole block's: all threads come here.
__device__ static inline void turn_wait(const unsigned *counter, unsigned turn) {
    if (threadIdx.x == 0) turn_wait_alone(counter, turn);
    __syncthreads(); // what thread 0 has acquired → all threads
}

__device__ static inline void turn_end(unsigned *counter, unsigned turn) {
    __syncthreads(); // every thread's writes → thread 0, whose release covers them
    if (threadIdx.x == 0) turn_end_alone(counter, turn);
}

#endif
