// Seeded normal data. Element i of tensor t is a function of (seed, t, i) alone, so it is the same
// for any number of threads, and a tensor doesn't change when another one's size does.
#ifndef HARNESS_RANDOM_H
#define HARNESS_RANDOM_H

#include <stdint.h>

// 64 well-mixed bits for a counter.
uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index);
// Fills `to` with standard normal values.
void random_normal(float *to, int64_t count, uint64_t seed, uint64_t stream);

#endif
