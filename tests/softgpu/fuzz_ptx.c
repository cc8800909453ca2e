// Feeds damaged PTX to the front end: fuzz_ptx ITERATIONS SEED FILE…
//
// Every file is a seed; each iteration takes one, damages it in a few places (bytes changed, pieces
// deleted, repeated, swapped with pieces of other files), indexes it, parses all of its functions.
// Meant for a build with -fsanitize=address,undefined: whatever the text, the front end must answer
// with a module or a message. The same arguments always do the same.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/random.h"
#include "softgpu/ptx/ptx.h"

enum { FILES_MAX = 64, LENGTH_MAX = 1 << 20, PIECE_MAX = 200 };

typedef struct {
    char *text;
    size_t length;
} Seed;

// Reads a file.
static Seed read_seed(const char *path) {
    FILE *file = fopen(path, "rb");
    Seed seed = {malloc(LENGTH_MAX), 0};
    if (!file || !seed.text) {
        fprintf(stderr, "fuzz_ptx: can't read %s\n", path);
        exit(2);
    }
    seed.length = fread(seed.text, 1, LENGTH_MAX, file);
    fclose(file);
    return seed;
}

// A number below `limit`.
static size_t below(struct Random *random, size_t limit) {
    return limit ? random_next(random) % limit : 0;
}

// Damages a text in one place.
static size_t damage(struct Random *random, char *text, size_t length, const Seed *other) {
    static const char marks[] = "{}[]()<>,;:=+-*/%!|@~.\"\n0_$%x";
    if (!length) return 0;
    size_t at = below(random, length), piece = 1 + below(random, PIECE_MAX);
    if (piece > length - at) piece = length - at;
    switch (below(random, 6)) {
    case 0: // one byte
        text[at] = (char)random_next(random);
        return length;
    case 1: // one mark
        text[at] = marks[below(random, sizeof marks - 1)];
        return length;
    case 2: // a piece goes
        memmove(text + at, text + at + piece, length - at - piece);
        return length - piece;
    case 3: // a piece comes twice
        if (length + piece > LENGTH_MAX) return length;
        memmove(text + at + piece, text + at, length - at);
        return length + piece;
    case 4: // the end goes
        return below(random, 8) ? length : at;
    default: // a piece of another text
        if (length + piece > LENGTH_MAX || piece > other->length) return length;
        memmove(text + at + piece, text + at, length - at);
        memcpy(text + at, other->text + below(random, other->length - piece + 1), piece);
        return length + piece;
    }
}

int main(int count, char **arguments) {
    if (count < 4 || count - 3 > FILES_MAX) {
        fprintf(stderr, "usage: fuzz_ptx ITERATIONS SEED FILE… (at most %d files)\n", FILES_MAX);
        return 2;
    }
    long iterations = atol(arguments[1]);
    Seed seeds[FILES_MAX];
    int seed_count = count - 3;
    for (int i = 0; i < seed_count; i++) seeds[i] = read_seed(arguments[3 + i]);
    struct Random random;
    random_seed(&random, strtoull(arguments[2], NULL, 0), 0);
    char *text = malloc(LENGTH_MAX);
    if (!text) return 2;
    long modules = 0, functions = 0, failures = 0;
    for (long n = 0; n < iterations; n++) {
        const Seed *seed = &seeds[below(&random, seed_count)];
        size_t length = seed->length;
        memcpy(text, seed->text, length);
        for (size_t k = 1 + below(&random, 6); k; k--) {
            length = damage(&random, text, length, &seeds[below(&random, seed_count)]);
        }
        PtxError error = {0};
        PtxModule *module = ptx_index(text, length, &error);
        if (!module && !error.message[0]) abort(); // a refusal needs a reason
        modules += module != NULL;
        for (int i = 0; module && i < module->function_count; i++) {
            if (module->functions[i]->is_declaration) continue;
            bool good = ptx_parse_function(module->functions[i], &error);
            if (!good && !error.message[0]) abort();
            functions += good;
            failures += !good;
        }
        ptx_free(module);
    }
    printf("%ld texts: %ld indexed; functions: %ld parsed, %ld refused\n", iterations, modules,
           functions, failures);
    for (int i = 0; i < seed_count; i++) free(seeds[i].text);
    free(text);
    return 0;
}
