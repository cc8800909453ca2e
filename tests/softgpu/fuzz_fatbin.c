// Feeds damaged fat binaries and cubins to the reader: fuzz_fatbin ITERATIONS [SEED] [FILE…].
// It passes when nothing crashes; run it under ASan. Seeds are the files given, or small fat
// binaries made here; bytes are flipped, sizes set to extreme values, ends cut off.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/api/fatbin.h"
#include "softgpu/machine/random.h"

enum { SEED_MAX = 1 << 20 };

// Stores a little-endian number in a fat binary that is being made.
static void put(uint8_t *at, uint64_t value, int bytes) {
    memcpy(at, &value, (size_t)bytes);
}

// A fat binary with one PTX entry and one cubin-like entry.
static size_t make_seed(uint8_t *out) {
    static const char text[] = ".version 9.0\n.target sm_80\n.address_size 64\n";
    memset(out, 0, 512);
    put(out, FATBIN_MAGIC, 4);
    put(out + 4, 1, 2);
    put(out + 6, 16, 2);
    put(out + 8, 64 + 48 + 64 + 64, 8);
    uint8_t *e = out + 16;
    put(e, FATBIN_PTX, 2);
    put(e + 4, 64, 4);
    put(e + 8, 48, 8);
    put(e + 0x1c, 80, 4);
    memcpy(e + 64, text, sizeof text);
    e += 64 + 48;
    put(e, FATBIN_CUBIN, 2);
    put(e + 4, 64, 4);
    put(e + 8, 64, 8);
    put(e + 0x1c, 80, 4);
    memcpy(e + 64, "\x7f\x45LF\x02\x01\x01", 7);
    return 16 + 64 + 48 + 64 + 64;
}

static void ignore(void *context, const char *kernel, uint32_t registers) {
    *(size_t *)context += strlen(kernel) + registers;
}

// Everything that the runtime does with a fat binary, short of parsing its PTX.
static size_t read_all(const uint8_t *bytes, size_t size) {
    Fatbin fatbin;
    FatbinError error;
    size_t sum = 0;
    cubin_registers(bytes, size, ignore, &sum);
    if (!fatbin_read(bytes, size, &fatbin, &error)) return sum + strlen(error.message);
    fatbin_choose_ptx(&fatbin, 90);
    fatbin_choose_cubin(&fatbin, 90);
    for (int i = 0; i < fatbin.count; i++) {
        if (fatbin.entries[i].unpacked_size > 64 << 20)
            continue; // a bomb's size is legal; unpacking it here would only cost time
        size_t n;
        uint8_t *unpacked = fatbin_unpack(&fatbin.entries[i], &n, &error);
        if (unpacked && fatbin.entries[i].kind == FATBIN_CUBIN)
            cubin_registers(unpacked, n, ignore, &sum);
        free(unpacked);
        sum += unpacked ? n : 1;
    }
    fatbin_free(&fatbin);
    return sum;
}

// Damages a few places.
static size_t damage(struct Random *r, uint8_t *bytes, size_t size) {
    static const uint64_t extremes[] = {0,          1,          63,         64,
                                        0x7fffffff, 0xffffffff, 1ull << 40, UINT64_MAX};
    for (int n = 1 + (int)random_below(r, 6); n > 0; n--) {
        size_t at = random_below(r, (uint32_t)size);
        switch (random_below(r, 4)) {
        case 0: bytes[at] ^= (uint8_t)(1u << random_below(r, 8)); break;
        case 1: bytes[at] = (uint8_t)random_next(r); break;
        case 2:
            if (size >= 8)
                put(bytes + random_below(r, (uint32_t)(size - 7)), extremes[random_below(r, 8)], 8);
            break;
        case 3:
            if (random_below(r, 4) == 0) size = 1 + random_below(r, (uint32_t)size);
            break;
        }
    }
    return size;
}

int main(int argc, char **argv) {
    long iterations = argc > 1 ? atol(argv[1]) : 10000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    struct Random r;
    random_seed(&r, seed, 0);
    size_t sum = 0, sizes[64] = {0};
    uint8_t *seeds[64];
    int count = 0;
    for (int f = 3; f < argc && count < 63; f++) {
        FILE *file = fopen(argv[f], "rb");
        if (file == NULL) {
            fprintf(stderr, "%s can't be read\n", argv[f]);
            return 2;
        }
        seeds[count] = malloc(SEED_MAX);
        sizes[count] = fread(seeds[count], 1, SEED_MAX, file);
        count += sizes[count] > 0;
        fclose(file);
    }
    seeds[count] = malloc(512);
    sizes[count] = make_seed(seeds[count]);
    count++;
    for (long i = 0; i < iterations; i++) {
        int s = (int)random_below(&r, (uint32_t)count);
        // A block of its own size each time, so that ASan sees a read past its end.
        uint8_t *bytes = malloc(sizes[s]);
        memcpy(bytes, seeds[s], sizes[s]);
        size_t size = damage(&r, bytes, sizes[s]);
        uint8_t *exact = malloc(size);
        memcpy(exact, bytes, size);
        sum += read_all(exact, size);
        free(bytes);
        free(exact);
    }
    printf("%ld damaged fat binaries read (%zu)\n", iterations, sum);
    for (int s = 0; s < count; s++) free(seeds[s]);
    return 0;
}
