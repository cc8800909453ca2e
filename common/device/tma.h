// TMA: one thread starts a copy of a whole box of a tensor between global and shared memory, and a
// unit of the SM computes the addresses (PTX ISA 9.7.9.27).
//
// A tensor map (tensor_map.h) says where the tensor lies and how large the box is; the instruction
// says where the box stands: a coordinate a dimension, innermost first, in elements. What of the
// box lies outside of the tensor comes as zeros, and is not stored.
//
// Rules: one thread (elect.h). Shared addresses are multiples of 128, of 1024 with the 128-byte
// swizzle (512 with 64 bytes). The map is a __grid_constant__ parameter of the kernel.
//
// Loads complete at an mbarrier, which must have been told to expect the bytes of the whole box,
// also of those that fall outside. Stores and reductions complete in groups of the thread that
// started them: commit, then wait.
#ifndef TMA_H
#define TMA_H

#include <cuda.h>

#include "device/mbarrier.h"

// Where a swizzled box keeps the 16-byte piece `piece` of its line `line`, a line being 128, 64 or
// 32 bytes: the place in the same line. The pattern repeats every 8 lines, and begins where addresses
// are multiples of 8 lines.
template <int LINE> __device__ static inline int swizzled_place(int line, int piece) {
    static_assert(LINE == 128 || LINE == 64 || LINE == 32, "TMA's swizzles");
    return piece ^ (LINE == 128 ? line % 8 : LINE == 64 ? line / 2 % 4 : line / 4 % 2);
}

// prefetch.tensormap (9.7.9.15). Fetches the map into the SM, before the first copy needs it.
__device__ static inline void tma_prefetch_map(const CUtensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// cp.async.bulk.tensor, global → shared (9.7.9.27.1.2).
__device__ static inline void tma_load_2d(void *to_smem, const CUtensorMap *map, uint64_t *barrier,
                                          int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to_smem)),
                 "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y)
                 : "memory");
}

__device__ static inline void tma_load_3d(void *to_smem, const CUtensorMap *map, uint64_t *barrier,
                                          int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to_smem)),
                 "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

__device__ static inline void tma_load_4d(void *to_smem, const CUtensorMap *map, uint64_t *barrier,
                                          int x, int y, int z, int w) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to_smem)),
                 "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

// cp.async.bulk.tensor, shared → global (9.7.9.27.1.2). The numbers in shared memory have been
// written with ordinary instructions: their writers call fence_proxy_async, then meet the thread
// that stores.
__device__ static inline void tma_store_4d(const CUtensorMap *map, const void *from_smem, int x,
                                           int y, int z, int w) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "
                 "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(shared_address(from_smem)), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

// cp.reduce.async.bulk.tensor: the same, but adds to what stands in the tensor (9.7.9.27.1.3).
__device__ static inline void tma_add_4d(const CUtensorMap *map, const void *from_smem, int x,
                                         int y, int z, int w) {
    asm volatile("cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group "
                 "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(shared_address(from_smem)), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

// Copies without a map: `bytes` in a row, a multiple of 16, both addresses too. cp.async.bulk
// (9.7.9.25.4.1), global → shared.
__device__ static inline void bulk_load(void *to_smem, const void *from_global, uint32_t bytes,
                                        uint64_t *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(to_smem)),
                 "l"(__cvta_generic_to_global(from_global)), "r"(bytes),
                 "r"(shared_address(barrier))
                 : "memory");
}

// cp.reduce.async.bulk (9.7.9.25.4.2): adds fp32 numbers of shared memory to those in global
// memory.
__device__ static inline void bulk_add_fp32(float *to_global, const float *from_smem,
                                            uint32_t bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                     __cvta_generic_to_global(to_global)),
                 "r"(shared_address(from_smem)), "r"(bytes)
                 : "memory");
}

// cp.async.bulk.commit_group (9.7.9.27.2.1). Closes a group: this thread's stores and additions
// since the last commit.
__device__ static inline void tma_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// cp.async.bulk.wait_group (9.7.9.27.2.2). Waits until at most the N newest groups of this thread
// have not yet read their shared memory, which may then be written again (or given up: no block
// ends before).
template <int N> __device__ static inline void tma_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

// The same, until they have also written.
template <int N> __device__ static inline void tma_wait_written() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

#endif
