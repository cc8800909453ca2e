// Maps with one bit per byte of memory: bit (offset & 7) of map[offset >> 3].
//
// Host threads that run different SMs may set bits of one word at once. A bit never goes back to 0
// while kernels run (except in a warp's own maps), so words are changed by an atomic OR, and only
// when a bit is missing; full words are simply stored.
#ifndef SOFTGPU_BITS_H
#define SOFTGPU_BITS_H

#include <stdbool.h>
#include <stdint.h>

typedef uint64_t __attribute__((may_alias)) BitWord;

// The bits of word `word` that lie in [from, to).
static inline uint64_t bits_window(uint64_t word, uint64_t from, uint64_t to) {
    uint64_t start = word * 64, bits = ~0ull;
    if (from > start) bits &= ~0ull << (from - start);
    if (to < start + 64) bits &= ~0ull >> (start + 64 - to);
    return bits;
}

// Are all bits of [from, from + count) set? count > 0.
static inline bool bits_all(const void *map, uint64_t from, uint64_t count) {
    const BitWord *words = map;
    uint64_t first = from / 64, last = (from + count - 1) / 64;
    uint64_t bits = ~0ull << from % 64, end = ~0ull >> (63 - (from + count - 1) % 64);
    uint64_t missing = 0;
    for (uint64_t word = first; word < last; word++) {
        missing |= ~__atomic_load_n(&words[word], __ATOMIC_RELAXED) & bits;
        bits = ~0ull;
    }
    missing |= ~__atomic_load_n(&words[last], __ATOMIC_RELAXED) & bits & end;
    return !missing;
}

// Is any bit of [from, from + count) set? count > 0.
static inline bool bits_any(const void *map, uint64_t from, uint64_t count) {
    const BitWord *words = map;
    uint64_t to = from + count;
    for (uint64_t word = from / 64; word <= (to - 1) / 64; word++)
        if (__atomic_load_n(&words[word], __ATOMIC_RELAXED) & bits_window(word, from, to))
            return true;
    return false;
}

// Sets the bits of [from, from + count). count > 0.
static inline void bits_set(void *map, uint64_t from, uint64_t count) {
    BitWord *words = map;
    uint64_t to = from + count;
    for (uint64_t word = from / 64; word <= (to - 1) / 64; word++) {
        uint64_t bits = bits_window(word, from, to);
        uint64_t old = __atomic_load_n(&words[word], __ATOMIC_RELAXED);
        if ((old & bits) == bits) continue;
        if (bits == ~0ull)
            __atomic_store_n(&words[word], bits, __ATOMIC_RELAXED);
        else
            __atomic_fetch_or(&words[word], bits, __ATOMIC_RELAXED);
    }
}

// Clears the bits of [from, from + count). Only for maps of one host thread. count > 0.
static inline void bits_clear(void *map, uint64_t from, uint64_t count) {
    BitWord *words = map;
    uint64_t to = from + count;
    for (uint64_t word = from / 64; word <= (to - 1) / 64; word++)
        words[word] &= ~bits_window(word, from, to);
}

#endif
