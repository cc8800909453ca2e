// Writing .npy files in tests of --input.
#ifndef TEST_WRITE_NPY_H
#define TEST_WRITE_NPY_H

#include <check.h>
#include <stdio.h>

#include "harness/message.h"
#include "harness/npy.h"

// Writes folder/name.npy.
static inline void write_npy(const char *folder, const char *name, NpyType type, int dimensions,
                             const int64_t *shape, const void *elements) {
    char path[64];
    Message message;
    snprintf(path, sizeof path, "%s/%s.npy", folder, name);
    Npy array = {.type = type, .dimensions = dimensions, .count = 1, .elements = (void *)elements};
    for (int d = 0; d < dimensions; d++) array.count *= array.shape[d] = shape[d];
    ck_assert_msg(npy_write(path, &array, &message), "%s", message.text);
}

#endif
