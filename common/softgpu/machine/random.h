// A small seeded generator (xorshift64*), one per SM, so that schedules repeat exactly.
#ifndef SOFTGPU_RANDOM_H
#define SOFTGPU_RANDOM_H

#include <stdint.h>

struct Random {
    uint64_t state;
};

// Streams with different (seed, stream) pairs are independent for our purposes.
static inline void random_seed(struct Random *r, uint64_t seed, uint64_t stream) {
    uint64_t z =
        seed * 0x9e3779b97f4a7c15ull + stream * 0xd1b54a32d192ed03ull + 0x632be59bd9b4e019ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    r->state = (z ^ (z >> 31)) | 1;
}

static inline uint64_t random_next(struct Random *r) {
    r->state ^= r->state >> 12;
    r->state ^= r->state << 25;
    r->state ^= r->state >> 27;
    return r->state * 0x2545f4914f6cdd1dull;
}

// Uniform in [0, n), n > 0.
static inline uint32_t random_below(struct Random *r, uint32_t n) {
    return (uint32_t)(((random_next(r) >> 32) * n) >> 32);
}

#endif
