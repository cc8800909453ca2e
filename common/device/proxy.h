// Fences between the two ways to shared memory. Threads' loads and stores take one, the generic
// proxy; TMA and wgmma take another, the async proxy, and neither sees by itself what the other has
// done. Where a wait for TMA or wgmma ends, a fence is included; the other direction needs one
// here.
#ifndef PROXY_H
#define PROXY_H

// fence.proxy.async (PTX ISA 9.7.13.4). Who has written (or read) shared memory with ordinary
// instructions calls this, then arrives at a barrier; TMA or wgmma may come after that barrier.
__device__ static inline void fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The same for global memory: between a TMA store or addition and another thread's load, store or
// TMA instruction of the same kernel, beside the release and acquire that order the two.
__device__ static inline void fence_proxy_async_global() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

// fence.mbarrier_init (PTX ISA 9.7.13.4). The thread that made mbarriers calls this before the
// __syncthreads after which others, and TMA, use them.
__device__ static inline void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

#endif
