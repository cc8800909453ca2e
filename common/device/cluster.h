// Thread blocks of a cluster and each other's shared memory (PTX ISA, sm_90 on): they start
// together, on SMs that are neighbours, and each can read what stands in another's.
//
// An address of this block's shared memory, mapped to rank r, is the same place in block r's.
// It may be read once block r has started and written there, and as long as it has not ended:
// so all blocks meet (cluster_sync) after the writes, and again after the reads.
#ifndef CLUSTER_H
#define CLUSTER_H

#include "device/mbarrier.h"

// %cluster_ctarank (PTX ISA 10.12): this block's rank, 0 … blocks of the cluster - 1.
__device__ static inline uint32_t cluster_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// barrier.cluster (9.7.13.3). All threads of all blocks meet; what they wrote before is seen after.
__device__ static inline void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

// mapa (9.7.9.22). Where `smem` is in the shared memory of block `rank`.
__device__ static inline uint32_t cluster_address(const void *smem, uint32_t rank) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(there)
        : "r"(shared_address(smem)), "r"(rank));
    return there;
}

// ld.shared::cluster (9.7.9.8) of what cluster_address returned.
__device__ static inline float2 cluster_load2(uint32_t address) {
    float2 x;
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                 : "=f"(x.x), "=f"(x.y)
                 : "r"(address)
                 : "memory");
    return x;
}

__device__ static inline float4 cluster_load4(uint32_t address) {
    float4 x;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

// st.shared::cluster (9.7.9.12) to what cluster_address returned.
__device__ static inline void cluster_store(uint32_t address, uint32_t x) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}

// ---- mbarriers that another block arrives at

// mbarrier.arrive (9.7.13.15.13) at the same barrier of block `rank`, by those lanes of a warp for
// which it is true; no branch. Releases what the thread did before.
__device__ static inline void mbarrier_arrive_in_if(bool arrives, uint64_t *barrier,
                                                    uint32_t rank) {
    asm volatile("{\n\t"
                 ".reg .pred arrives;\n\t"
                 "setp.ne.b32 arrives, %0, 0;\n\t"
                 "@arrives mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%1];\n\t"
                 "}" ::"r"((int)arrives),
                 "r"(cluster_address(barrier, rank))
                 : "memory");
}

// Waits for the phase of an own barrier; then sees also what other blocks did before they arrived.
__device__ static inline void mbarrier_wait_cluster(uint64_t *barrier, uint32_t parity) {
    uint32_t over = 0;
    while (!over)
        asm volatile("{\n\t"
                     ".reg .pred over;\n\t"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%1], %2;\n\t"
                     "selp.b32 %0, 1, 0, over;\n\t"
                     "}"
                     : "=r"(over)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
}

// cp.async.bulk (9.7.9.25.4.1), this block's shared memory → the same or another place in block
// `rank`'s, whose barrier counts the bytes: a multiple of 16, both addresses too. The bytes have
// been written with ordinary instructions: their writers call fence_proxy_async, then meet this
// thread.
__device__ static inline void bulk_copy_to(void *to_smem, const void *from_smem, uint32_t bytes,
                                           uint64_t *barrier, uint32_t rank) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(cluster_address(to_smem, rank)),
                 "r"(shared_address(from_smem)), "r"(bytes), "r"(cluster_address(barrier, rank))
                 : "memory");
}

#endif
