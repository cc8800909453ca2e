// Asynchronous copies from global to shared memory (PTX ISA 9.7.9.25.3, from sm_80 on): 16 bytes a
// thread go past the registers, and the thread computes on while they fly.
//
// Rules: both addresses are multiples of 16. From the copy to the wait nobody reads or writes the
// destination, nor writes the source. The wait makes the bytes visible to the thread that copied
// them only, so every hand-over to other threads is: cp_async_wait, then __syncthreads.
#ifndef CP_ASYNC_H
#define CP_ASYNC_H

#include <cuda_runtime.h>

// cp.async (9.7.9.25.3.1). Copies the first `bytes` (0 to 16) and fills the rest of the 16 with
// zeros; with 0 nothing is read, but `from` should still point into the tensor. Past L1 (.cg):
// a tile is read once by an SM, and from shared memory afterwards.
__device__ static inline void cp_async16(void *to_shared, const void *from_global, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(to_shared)),
                 "l"(__cvta_generic_to_global(from_global)), "r"(bytes)
                 : "memory");
}

// The same without zero-fill: all 16 bytes.
__device__ static inline void cp_async16(void *to_shared, const void *from_global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(to_shared)),
                 "l"(__cvta_generic_to_global(from_global))
                 : "memory");
}

// Four bytes, both addresses multiples of 4. (.ca: copies of less than 16 bytes go through L1.)
__device__ static inline void cp_async4(void *to_shared, const void *from_global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(to_shared)),
                 "l"(__cvta_generic_to_global(from_global))
                 : "memory");
}

// cp.async.commit_group (9.7.9.25.3.2). Closes a group: all copies of this thread since the last
// commit. A group without copies counts too, which keeps loops free of special cases.
__device__ static inline void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// cp.async.wait_group (9.7.9.25.3.3). Waits until at most the N newest of this thread's groups are
// under way; groups complete in the order of their commits. N = 0 waits for all.
template <int N> __device__ static inline void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#endif
