// Throws mutated .npy files at the reader. Nothing is expected of it but an answer: built with
// -fsanitize=address,undefined, a wrong step ends the program.
// usage: fuzz_npy [ITERATIONS [SEED]]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/npy.h"
#include "harness/random.h"

static const char *const headers[] = {
    "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3, 4, 8), }   \n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }\n",
    "{'shape': (), 'descr': '<i4', 'fortran_order': False}",
    "{'descr': '|V2', 'fortran_order': True, 'shape': (1, 2, 3, 4, 5, 6, 7, 8, 9), }",
};

int main(int argc, char **argv) {
    long iterations = argc > 1 ? atol(argv[1]) : 100000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 0, draw = 0;
    long accepted = 0;
    for (long n = 0; n < iterations; n++) {
        unsigned char file[1024];
        const char *header = headers[random_bits(seed, 0, draw++) % 4];
        size_t length = strlen(header), start = n % 2 == 0 ? 10 : 12;
        memset(file, 0, sizeof file);
        memcpy(file, "\x93NUMPY", 6);
        file[6] = start == 10 ? 1 : 2;
        file[8] = (unsigned char)length;
        memcpy(file + start, header, length);
        size_t size = start + length + random_bits(seed, 1, draw) % 450;
        if (random_bits(seed, 2, draw) % 4 == 0)
            size = start + length + 384; // what (2,3,4,8) needs
        int changes = (int)(random_bits(seed, 3, draw) % 6);
        for (int c = 0; c < changes; c++) {
            uint64_t bits = random_bits(seed, 4, draw++);
            size_t at = bits % (start + length);
            // Half of the changes keep to characters that mean something in a header.
            file[at] = bits >> 63 ? (unsigned char)"{}()',: <f24i0129TF"[(bits >> 32) % 19]
                                  : (unsigned char)(bits >> 24);
        }
        if (random_bits(seed, 5, draw++) % 8 == 0) size = random_bits(seed, 6, draw) % (size + 1);
        unsigned char *exact = malloc(size > 0 ? size : 1); // so that a read past the end shows
        memcpy(exact, file, size);
        Npy array;
        Message message;
        if (npy_parse("fuzz", exact, size, &array, &message)) {
            accepted++;
            volatile float sum = 0;
            for (int64_t i = 0; array.type != NPY_INT32 && i < array.count; i++) {
                sum += npy_float(&array, i);
            }
            free(array.elements);
        }
        free(exact);
    }
    printf("fuzz_npy: %ld files, %ld of them accepted\n", iterations, accepted);
    return accepted > 0 ? 0 : 1; // none accepted: the seeds no longer reach the reader's end
}
