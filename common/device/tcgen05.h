// The tensor core of Blackwell (sm_100a), and its own memory: tensor memory, 128 lanes of 512
// columns of 32 bits on each SM (PTX ISA 9.7.16). An address is lane << 16 | column.
//
// Who does what:
//   one warp        allocates columns, and frees them before the block ends
//   one thread      issues products (tcgen05.mma) and commits them to an mbarrier, which gets an
//                   arrival when they are done; accumulators lie in tensor memory, and A may
//   every warp      loads and stores the lanes 32 (warp % 4) to 32 (warp % 4) + 31: its quarter
//
// Rules: products, loads and stores are asynchronous. A load's registers are there behind
// tmem_load_wait, a store is done behind tmem_store_wait. Before a thread tells another one about
// either (an arrival, a __syncthreads) it calls tcgen05_fence_before; who has been told (by a wait,
// a __syncthreads) calls tcgen05_fence_after before its next tcgen05 instruction. A commit needs no
// fence in front of it. Between a thread's own products only those on the same accumulator with the
// same shape are in order.
#ifndef TCGEN05_H
#define TCGEN05_H

#include <stdint.h>

#include "device/mbarrier.h"

// tcgen05.alloc (9.7.16.7.1), by a whole warp. Blocks until so many columns (32, 64, … 512) are
// free, and leaves their address in shared memory: for others behind a barrier.
template <int COLUMNS> __device__ static inline void tmem_alloc(uint32_t *address_smem) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                     shared_address(address_smem)),
                 "n"(COLUMNS)
                 : "memory");
}

// tcgen05.dealloc, by a whole warp, when nobody accesses them any more.
template <int COLUMNS> __device__ static inline void tmem_free(uint32_t address) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address),
                 "n"(COLUMNS)
                 : "memory");
}

// tcgen05.relinquish_alloc_permit: the block won't allocate any more.
__device__ static inline void tmem_relinquish() {
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}

// ---- order

__device__ static inline void tcgen05_fence_before() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ static inline void tcgen05_fence_after() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// tcgen05.commit (9.7.16.12.1): one arrival when all that this thread has issued so far is done.
__device__ static inline void tcgen05_commit(uint64_t *barrier) {
    asm volatile(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
            shared_address(barrier))
        : "memory");
}

// ---- products

// Instruction descriptor of kind::f16 (9.7.16.4.2): f16 (or bf16) operands, fp32 accumulators.
// `a_mn` and `b_mn`: whether M or N, not K, is what runs along a line.
__device__ static constexpr uint32_t instruction_f16(bool is_bf16, int m, int n, bool a_mn,
                                                     bool b_mn) {
    return 1u << 4 | (is_bf16 ? 1u << 7 | 1u << 10 : 0u) | (uint32_t)a_mn << 15 |
           (uint32_t)b_mn << 16 | (uint32_t)(n / 8) << 17 | (uint32_t)(m / 16) << 24;
}

// Shared-memory descriptor (9.7.16.4.1) of a tile that TMA has brought with the swizzle of LINE
// bytes (128, 64, 32), at a multiple of 8 lines. Offsets in bytes: K-major tiles have no use for
// the leading one, the stride leads to the next 8 rows; MN-major ones: to the next line's worth of
// MN, and to the next 8 of K.
template <int LINE>
__device__ static inline uint64_t tensor_descriptor(const void *tile, uint32_t leading,
                                                    uint32_t stride) {
    static_assert(LINE == 128 || LINE == 64 || LINE == 32, "a swizzle");
    const uint64_t swizzle = LINE == 128 ? 2 : LINE == 64 ? 4 : 6;
    return (uint64_t)(shared_address(tile) >> 4 & 0x3fff) | (uint64_t)(leading >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32 | 1ull << 46 | swizzle << 61;
}

// tcgen05.mma (9.7.16.10.9.1), both operands in shared memory. D = A B, plus D if `accumulates`.
__device__ static inline void tensor_multiply(uint32_t d, uint64_t a, uint64_t b,
                                              uint32_t instruction, bool accumulates) {
    asm volatile("{\n\t"
                 ".reg .pred accumulates;\n\t"
                 "setp.ne.b32 accumulates, %4, 0;\n\t"
                 "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, accumulates;\n\t"
                 "}" ::"r"(d),
                 "l"(a), "l"(b), "r"(instruction), "r"((uint32_t)accumulates)
                 : "memory");
}

// The same with A in tensor memory: two numbers to a column.
__device__ static inline void tensor_multiply_from(uint32_t d, uint32_t a, uint64_t b,
                                                   uint32_t instruction, bool accumulates) {
    asm volatile("{\n\t"
                 ".reg .pred accumulates;\n\t"
                 "setp.ne.b32 accumulates, %4, 0;\n\t"
                 "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, accumulates;\n\t"
                 "}" ::"r"(d),
                 "r"(a), "l"(b), "r"(instruction), "r"((uint32_t)accumulates)
                 : "memory");
}

// ---- loads and stores of a warp

// The address as warp `warp` of the block uses it.
__device__ static inline uint32_t tmem_quarter(uint32_t address, int warp) {
    return address + ((uint32_t)(warp % 4) << 21);
}

// tcgen05.ld.32x32b.x32 (9.7.16.8.2): 32 columns of the thread's lane. To be followed by
// tmem_load_wait before x is touched.
__device__ static inline void tmem_load(uint32_t (&x)[32], uint32_t address) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
                 "%10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
                 "%26, %27, %28, %29, %30, %31}, [%32];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]), "=r"(x[4]), "=r"(x[5]),
                   "=r"(x[6]), "=r"(x[7]), "=r"(x[8]), "=r"(x[9]), "=r"(x[10]), "=r"(x[11]),
                   "=r"(x[12]), "=r"(x[13]), "=r"(x[14]), "=r"(x[15]), "=r"(x[16]), "=r"(x[17]),
                   "=r"(x[18]), "=r"(x[19]), "=r"(x[20]), "=r"(x[21]), "=r"(x[22]), "=r"(x[23]),
                   "=r"(x[24]), "=r"(x[25]), "=r"(x[26]), "=r"(x[27]), "=r"(x[28]), "=r"(x[29]),
                   "=r"(x[30]), "=r"(x[31])
                 : "r"(address)
                 : "memory");
}

// tcgen05.ld.32x32b.x16.
__device__ static inline void tmem_load(uint32_t (&x)[16], uint32_t address) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
                 "%10, %11, %12, %13, %14, %15}, [%16];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]), "=r"(x[4]), "=r"(x[5]),
                   "=r"(x[6]), "=r"(x[7]), "=r"(x[8]), "=r"(x[9]), "=r"(x[10]), "=r"(x[11]),
                   "=r"(x[12]), "=r"(x[13]), "=r"(x[14]), "=r"(x[15])
                 : "r"(address)
                 : "memory");
}

// tcgen05.wait::ld: all loads of the warp are done.
__device__ static inline void tmem_load_wait() {
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

// Ties registers to the wait in front of it: the compiler knows of no link between the two, and
// would move their uses.
template <int N> __device__ static inline void tmem_loaded(uint32_t (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(x[i])::"memory");
}

// tcgen05.st.32x32b.x32 (9.7.16.8.3): 32 columns of the thread's lane. To be followed by
// tmem_store_wait.
__device__ static inline void tmem_store(uint32_t address, const uint32_t (&x)[32]) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8, "
                 "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
                 "%25, %26, %27, %28, %29, %30, %31, %32};" ::"r"(address),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]),
                 "r"(x[7]), "r"(x[8]), "r"(x[9]), "r"(x[10]), "r"(x[11]), "r"(x[12]), "r"(x[13]),
                 "r"(x[14]), "r"(x[15]), "r"(x[16]), "r"(x[17]), "r"(x[18]), "r"(x[19]), "r"(x[20]),
                 "r"(x[21]), "r"(x[22]), "r"(x[23]), "r"(x[24]), "r"(x[25]), "r"(x[26]), "r"(x[27]),
                 "r"(x[28]), "r"(x[29]), "r"(x[30]), "r"(x[31])
                 : "memory");
}
// tcgen05.st.32x32b.x16.
__device__ static inline void tmem_store(uint32_t address, const uint32_t (&x)[16]) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x16.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8, "
                 "%9, %10, %11, %12, %13, %14, %15, %16};" ::"r"(address),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]),
                 "r"(x[7]), "r"(x[8]), "r"(x[9]), "r"(x[10]), "r"(x[11]), "r"(x[12]), "r"(x[13]),
                 "r"(x[14]), "r"(x[15])
                 : "memory");
}

// tcgen05.wait::st: all stores of the warp are done.
__device__ static inline void tmem_store_wait() {
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}

#endif
