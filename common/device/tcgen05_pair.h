// The tensor cores of two SMs as one (tcgen05, .cta_group::2): a pair of blocks, ranks 0 and 1 of a
// cluster, multiplies with twice the rows. tcgen05.h says what is the same.
//
//   D   M is split: rows 0 … M/2 - 1 lie in block 0's tensor memory, the others in block 1's.
//       M 256: a lane a row. M 128: row m of a block's 64 in lane m for the first half of the
//       columns, in lane m + 64 for the second
//   A   each block has the rows of its part of D, in shared or in tensor memory
//   B   each block has half of its N, in shared memory: what the other one reads, too
//
// Both blocks' shared memory is read at the same addresses. A thread of block 0 issues the products
// for both; all tcgen05 instructions of a kernel have one cta_group.
//
// Rules: the pair meets (cluster_sync) before it allocates, and before a block ends. A commit may
// arrive in both blocks. Who has been told by the other block waits with mbarrier_wait_cluster.
#ifndef TCGEN05_PAIR_H
#define TCGEN05_PAIR_H

#include "device/cluster.h"
#include "device/tcgen05.h"
#include "device/tma.h"

// tcgen05.alloc (9.7.16.7.1), by a whole warp of each block.
template <int COLUMNS> __device__ static inline void tmem_alloc_pair(uint32_t *address_smem) {
    asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                     shared_address(address_smem)),
                 "n"(COLUMNS)
                 : "memory");
}

// tcgen05.dealloc, by a whole warp of each block, when nobody of the pair accesses them any more.
template <int COLUMNS> __device__ static inline void tmem_free_pair(uint32_t address) {
    asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(address),
                 "n"(COLUMNS)
                 : "memory");
}

// tcgen05.relinquish_alloc_permit: the blocks won't allocate any more.
__device__ static inline void tmem_relinquish_pair() {
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::: "memory");
}

// tcgen05.commit (9.7.16.12.1): one arrival in each block when all that this thread has issued so
// far is done.
__device__ static inline void tcgen05_commit_pair(uint64_t *barrier) {
    asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster."
                 "multicast::cluster.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "h"((uint16_t)3)
                 : "memory");
}

// tcgen05.mma (9.7.16.10.9.1), both operands in shared memory. D = A B, plus D if `accumulates`.
__device__ static inline void tensor_multiply_pair(uint32_t d, uint64_t a, uint64_t b,
                                                   uint32_t instruction, bool accumulates) {
    asm volatile("{\n\t"
                 ".reg .pred accumulates;\n\t"
                 "setp.ne.b32 accumulates, %4, 0;\n\t"
                 "tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, accumulates;\n\t"
                 "}" ::"r"(d),
                 "l"(a), "l"(b), "r"(instruction), "r"((uint32_t)accumulates)
                 : "memory");
}

// The same with A in tensor memory: two numbers to a column.
__device__ static inline void tensor_multiply_from_pair(uint32_t d, uint32_t a, uint64_t b,
                                                        uint32_t instruction, bool accumulates) {
    asm volatile("{\n\t"
                 ".reg .pred accumulates;\n\t"
                 "setp.ne.b32 accumulates, %4, 0;\n\t"
                 "tcgen05.mma.cta_group::2.kind::f16 [%0], [%1], %2, %3, accumulates;\n\t"
                 "}" ::"r"(d),
                 "r"(a), "l"(b), "r"(instruction), "r"((uint32_t)accumulates)
                 : "memory");
}

// cp.async.bulk.tensor, global → shared (9.7.9.27.1.2): the box comes to this block, and its bytes
// count at the barrier of block 0, which expects those of both blocks.
__device__ static inline void tma_load_4d_pair(void *to_smem, const CUtensorMap *map,
                                               uint64_t *barrier, int x, int y, int z, int w) {
    asm volatile("cp.async.bulk.tensor.4d.cta_group::2.shared::cluster.global.tile."
                 "mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(
                     shared_address(to_smem)),
                 "l"(map), "r"(cluster_address(barrier, 0)), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

#endif
