// mbarriers: objects of 8 bytes in shared memory that threads and asynchronous copies arrive at,
// and threads wait for (PTX ISA 9.7.13.15).
//
// A barrier goes through phases. A phase ends when the arrivals that it was made for are there, and
// all bytes that were announced to it; then the next begins by itself. A waiter names the phase by
// its parity: 0 for the first, 1 for the second, 0 for the third, …
//
//   mbarrier_wait(b, p) goes on once the newest phase of parity p is over. On a fresh barrier
//   parity 1 counts as over, so that who waits for "empty" needs no first arrival.
//
// Rules: one thread makes them, then fence_mbarrier_init (proxy.h), then all threads meet. A waiter
// may be at most one phase behind. What a thread wrote or read before it arrives happens before
// what the waiters do next.
#ifndef MBARRIER_H
#define MBARRIER_H

#include <stdint.h>

// A shared address as instructions take it: 32 bits.
__device__ static inline uint32_t shared_address(const void *smem) {
    return (uint32_t)__cvta_generic_to_shared(smem);
}

// mbarrier.init (9.7.13.15.9). Each phase takes `arrivals` arrivals.
__device__ static inline void mbarrier_init(uint64_t *barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}

// mbarrier.arrive (9.7.13.15.13). One arrival; releases what the thread did before.
__device__ static inline void mbarrier_arrive(uint64_t *barrier) {
    asm volatile(
        "mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
        : "memory");
}

// The same by those lanes of a warp for which it is true; no branch.
__device__ static inline void mbarrier_arrive_if(bool arrives, uint64_t *barrier) {
    asm volatile("{\n\t"
                 ".reg .pred arrives;\n\t"
                 "setp.ne.b32 arrives, %0, 0;\n\t"
                 "@arrives mbarrier.arrive.release.cta.shared::cta.b64 _, [%1];\n\t"
                 "}" ::"r"((int)arrives),
                 "r"(shared_address(barrier))
                 : "memory");
}

// mbarrier.arrive.expect_tx (9.7.13.15.13). Announces bytes that copies will bring, and arrives:
// the phase can't end before they are all there.
__device__ static inline void mbarrier_arrive_expect(uint64_t *barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

// mbarrier.try_wait (9.7.13.15.16). Is the newest phase of this parity over? May sleep a while
// before it says no, and may say no at any time: ask again.
__device__ static inline bool mbarrier_try_wait(uint64_t *barrier, uint32_t parity) {
    uint32_t over;
    asm volatile("{\n\t"
                 ".reg .pred over;\n\t"
                 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 over, [%1], %2;\n\t"
                 "selp.b32 %0, 1, 0, over;\n\t"
                 "}"
                 : "=r"(over)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
    return over;
}

// Waits for the phase; then sees what those who arrived did before, and the bytes that came. Every
// thread that reads them waits itself.
__device__ static inline void mbarrier_wait(uint64_t *barrier, uint32_t parity) {
    while (!mbarrier_try_wait(barrier, parity)) {
    }
}

#endif
