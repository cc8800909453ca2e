// Memory traffic: what a warp's access costs in wavefronts, cache lines and bytes. Called by the
// handlers of loads, stores and atomics; does nothing when timing is off.
#ifndef SOFTGPU_TRAFFIC_H
#define SOFTGPU_TRAFFIC_H

#include "softgpu/machine/machine.h"
#include "softgpu/machine/ranges.h"

typedef enum { TRAFFIC_READ, TRAFFIC_WRITE, TRAFFIC_ATOMIC, TRAFFIC_PREFETCH } TrafficKind;

// An access of `size` bytes (1…32) per lane of `mask` to global memory. `bypass_l1`: volatile,
// acquire, .cg and the like.
void traffic_global(Warp *w, const Insn *i, const uint64_t address[32], unsigned size,
                    uint32_t mask, TrafficKind kind, bool bypass_l1);
// The same for an access whose bytes are known as ranges; to be called only when timing is on.
void traffic_ranges(Warp *w, const Ranges *ranges, TrafficKind kind, bool bypass_l1);
// A range of any length that a bulk copy moves, past L1; and `bytes` bytes of shared memory of an
// SM of the running cluster that one writes or reads, without bank conflicts.
void traffic_bulk(Warp *w, uint64_t address, uint64_t bytes, TrafficKind kind);
void traffic_bulk_shared(Sm *sm, uint64_t bytes);
// An access of `size` bytes (1…16) per lane to shared memory; counts wavefronts (bank conflicts).
void traffic_shared(Warp *w, const Insn *i, const uint32_t address[32], unsigned size,
                    uint32_t mask, TrafficKind kind);
// Local memory is global memory, interleaved so that equal offsets of a warp's lanes are adjacent.
void traffic_local(Warp *w, const Insn *i, const uint32_t offset[32], unsigned size, uint32_t mask,
                   TrafficKind kind);

// Counters of one host thread; summed at the end of a launch (sums don't depend on the order).
typedef struct Counters {
    uint64_t *executed; // per instruction of the kernel: warps
    uint64_t *lanes;    // per instruction: threads
    uint64_t shared_wavefronts, shared_ideal;
    uint64_t tensor_flops, tensor_cycles; // of tcgen05.mma, whose shape is known when it runs
    uint64_t l1_hits, l1_misses;          // sectors
} Counters;

// ---- caches (timing/cache.c): real tags, 128-byte lines of four 32-byte sectors, LRU in a set.
typedef struct Cache Cache;
typedef struct {
    uint64_t read_bytes, write_bytes; // to and from the next level
} CacheTraffic;

Cache *cache_new(uint64_t bytes, int ways);
void cache_free(Cache *c);
uint64_t cache_used(const Cache *c); // lines that it holds
// Drops everything, dirty lines too, without a word to the next level: L1 between kernels (it is
// write-through), L2 when a new measurement begins.
void cache_invalidate(Cache *c);
// Write-back, write-allocate without fetch for full sectors: the L2. Returns what went to HBM.
// `write` as in L2Request, but not 2.
void cache_l2_access(Cache *c, uint64_t line, uint8_t sectors, uint8_t write, CacheTraffic *hbm);
// A write of some bytes of one sector (a bit each): nothing is fetched for it.
void cache_l2_write_part(Cache *c, uint64_t line, int sector, uint32_t bytes, CacheTraffic *hbm);
// Read-allocate: returns the sectors that missed.
uint8_t cache_l1_read(Cache *c, uint64_t line, uint8_t sectors);
// Write-through, no allocate.
void cache_l1_write(Cache *c, uint64_t line, uint8_t sectors);

#endif
