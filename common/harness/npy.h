// NumPy's .npy files, formats 1 and 2: little-endian float16, float32 and int32 arrays in C order.
#ifndef NPY_H
#define NPY_H

#include <stddef.h>
#include <stdint.h>

#include "harness/message.h"

typedef enum { NPY_FLOAT16, NPY_FLOAT32, NPY_INT32 } NpyType;

enum { NPY_MOST_DIMENSIONS = 8 };

typedef struct {
    NpyType type;
    int dimensions;
    int64_t shape[NPY_MOST_DIMENSIONS];
    int64_t count;  // elements: the product of the shape
    void *elements; // count elements of the type; free() it
} Npy;

// Reads a whole file. The message names the file and what is wrong with it.
bool npy_read(const char *path, Npy *array, Message *message);
// The same from memory: `name` stands for the path in messages. What the fuzzer drives.
bool npy_parse(const char *name, const void *bytes, size_t size, Npy *array, Message *message);
// Writes a file (format 1), by a temporary one beside it that is renamed when complete.
bool npy_write(const char *path, const Npy *array, Message *message);
// Element `index` as a float; only of the float types.
float npy_float(const Npy *array, int64_t index);

#endif
