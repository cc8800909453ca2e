// Device memory whose contents a test knows.
#ifndef TESTS_FILLED_H
#define TESTS_FILLED_H

#include <check.h>

#include "bench.h"

static inline uint8_t *device(Bench *b, uint64_t address) {
    return global_pointer(b->gpu.memory, address);
}

// A device buffer whose byte k is (uint8_t)(7 * k + 1), and marked as written.
static inline uint64_t filled(Bench *b, uint64_t size) {
    uint64_t address = global_alloc(b->gpu.memory, size, MEMORY_DEVICE, NULL);
    ck_assert_uint_ne(address, 0);
    for (uint64_t k = 0; k < size; k++) device(b, address)[k] = (uint8_t)(7 * k + 1);
    global_mark_written(b->gpu.memory, address, size);
    return address;
}

#endif
