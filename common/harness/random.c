// Seeded normal data: a counter hashed to uniform bits, then Box and Muller's transform.
#include "harness/random.h"

#include <math.h>

#include "harness/parallel.h"

enum { CHUNK = 1 << 14 }; // elements to a parallel iteration; even, for pairs share their bits

// The finaliser of the SplitMix64 generator: each input bit flips half of the output bits.
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
    const uint64_t golden = 0x9e3779b97f4a7c15ull;
    return mix(mix(mix(seed + golden) + (stream + 1) * golden) + (index + 1) * golden);
}

typedef struct {
    float *to;
    int64_t count;
    uint64_t seed, stream;
} Fill;

// Fills one chunk, two values at a time.
static void fill_chunk(void *context, int worker, int64_t chunk) {
    (void)worker;
    const Fill *fill = context;
    int64_t end = (chunk + 1) * CHUNK < fill->count ? (chunk + 1) * CHUNK : fill->count;
    for (int64_t i = chunk * CHUNK; i < end; i += 2) {
        uint64_t bits = random_bits(fill->seed, fill->stream, (uint64_t)i);
        double u = ((double)(bits >> 32) + 0.5) * 0x1p-32; // never 0: its logarithm is finite
        double angle = 2 * M_PI * (double)(bits & 0xffffffff) * 0x1p-32;
        double radius = sqrt(-2 * log(u));
        fill->to[i] = (float)(radius * cos(angle));
        if (i + 1 < end) fill->to[i + 1] = (float)(radius * sin(angle));
    }
}

void random_normal(float *to, int64_t count, uint64_t seed, uint64_t stream) {
    Fill fill = {to, count, seed, stream};
    parallel_for((count + CHUNK - 1) / CHUNK, fill_chunk, &fill);
}
