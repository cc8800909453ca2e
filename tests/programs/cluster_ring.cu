// Blocks of a cluster hand values round a ring by st.async and red.async, told by mbarriers of the
// receiver; remote arrivals say when a slot is free again. Warpgroups trade registers meanwhile.
#include "check.h"

enum { RANKS = 4, ROUNDS = 6, THREADS = 256 };

__device__ static unsigned shared_address(const void *pointer) {
    return (unsigned)__cvta_generic_to_shared(pointer);
}

__device__ static unsigned in_block(unsigned address, unsigned rank) {
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

__device__ static void wait_for(unsigned barrier, unsigned parity) {
    asm volatile("{\n.reg .pred done;\nAGAIN:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra AGAIN;\n}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

__global__ void __cluster_dims__(RANKS, 1, 1) __launch_bounds__(THREADS, 2) ring(unsigned *out) {
    __shared__ __align__(16) unsigned slot[4], total;
    __shared__ __align__(8) unsigned long long full, free_, sum;
    unsigned rank, next, previous;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    next = (rank + 1) % RANKS;
    previous = (rank + RANKS - 1) % RANKS;
    const unsigned full_at = shared_address(&full), free_at = shared_address(&free_);
    const unsigned sum_at = shared_address(&sum);
    if (threadIdx.x == 0) {
        total = 0;
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full_at));
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(free_at));
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(sum_at));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sum_at),
                     "r"(4 * RANKS));
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
    if (threadIdx.x / 128 == 1) { // the second warpgroup takes what the first gives
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    }
    if (threadIdx.x == 0) {
        unsigned a = rank, b = 100 * rank;
        for (int k = 0; k < ROUNDS; k++) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(full_at));
            // The receiver's slot is free: it said so after the last round.
            if (k) wait_for(free_at, (k - 1) & 1);
            asm volatile(
                "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
                "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(in_block(shared_address(slot), next)),
                "r"(a), "r"(b), "r"(k), "r"(rank), "r"(in_block(full_at, next))
                : "memory");
            wait_for(full_at, k & 1);
            a = slot[0] + 1;
            b = slot[1] + 2;
            if (slot[2] != k || slot[3] != previous) asm volatile("trap;");
            asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                             in_block(free_at, previous))
                         : "memory");
        }
        for (unsigned r = 0; r < RANKS; r++)
            asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"
                         ".add.u32 [%0], %1, [%2];" ::"r"(in_block(shared_address(&total), r)),
                         "r"(a), "r"(in_block(sum_at, r))
                         : "memory");
        wait_for(sum_at, 0);
        out[3 * rank] = a;
        out[3 * rank + 1] = b;
        out[3 * rank + 2] = total;
    }
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

int main() {
    unsigned *out, got[3 * RANKS];
    CUDA(cudaMalloc(&out, sizeof got));
    ring<<<RANKS, THREADS>>>(out);
    CUDA(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
    unsigned total = 0;
    for (int r = 0; r < RANKS; r++) total += got[3 * r];
    for (int r = 0; r < RANKS; r++) {
        unsigned from = (r + RANKS * ROUNDS - ROUNDS) % RANKS;
        EXPECT(got[3 * r] == from + ROUNDS);
        EXPECT(got[3 * r + 1] == 100 * from + 2 * ROUNDS);
        EXPECT(got[3 * r + 2] == total);
    }
    printf("the ring closes\n");
    return 0;
}
