// Interned names.
#include "softgpu/ptx/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BUCKETS = 1024, PARTS_MAX = 64 };

// Ends the program: without memory nothing can be said about the program's kernels.
_Noreturn static void out_of_memory(void) {
    fprintf(stderr, "softgpu: out of memory while reading the program's PTX\n");
    exit(2);
}

void *grow_array(void *array, size_t count, size_t *capacity, size_t element_size) {
    if (count < *capacity) return array;
    *capacity = *capacity ? *capacity * 2 : 64;
    array = realloc(array, *capacity * element_size);
    if (!array) out_of_memory();
    return array;
}

// Hash of a text (FNV-1a, with the high bits folded in).
static uint32_t hash_of(const char *text, size_t length) {
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3ull;
    return hash ^ hash >> 32;
}

// Looks in one bucket.
static Name *find_in(Name *name, const char *text, size_t length, uint32_t hash) {
    for (; name; name = name->next) {
        if (name->hash == hash && name->length == length && !memcmp(name->text, text, length))
            break;
    }
    return name;
}

Name *name_find(const Module *module, const char *text, size_t length) {
    if (!module->bucket_count) return NULL;
    uint32_t hash = hash_of(text, length);
    return find_in(module->buckets[hash & (module->bucket_count - 1)], text, length, hash);
}

// Doubles the number of buckets.
static void rehash(Module *module) {
    size_t count = module->bucket_count ? module->bucket_count * 2 : FIRST_BUCKETS;
    Name **buckets = calloc(count, sizeof *buckets);
    if (!buckets && module->buckets) return; // the old ones still work
    if (!buckets) out_of_memory();
    for (size_t i = 0; i < module->bucket_count; i++) {
        for (Name *name = module->buckets[i], *next; name; name = next) {
            next = name->next;
            name->next = buckets[name->hash & (count - 1)];
            buckets[name->hash & (count - 1)] = name;
        }
    }
    free(module->buckets);
    module->buckets = buckets;
    module->bucket_count = count;
}

Name *name_intern(Module *module, const char *text, size_t length) {
    if (module->name_count >= module->bucket_count) rehash(module);
    uint32_t hash = hash_of(text, length);
    Name **bucket = &module->buckets[hash & (module->bucket_count - 1)];
    Name *name = find_in(*bucket, text, length, hash);
    if (name) return name;
    name = arena_alloc(module->arena, sizeof(Name) + length + 1);
    name->hash = hash;
    name->length = length;
    memcpy(name->text, text, length);
    name->next = *bucket;
    *bucket = name;
    module->name_count++;
    return name;
}

Name *name_of(const char *interned) {
    return (Name *)(interned - offsetof(Name, text));
}

void name_split(Module *module, Name *name) {
    if (name->split) return;
    name->split = true;
    size_t digits = 0;
    while (digits < name->length && digits < 18) {
        char c = name->text[name->length - digits - 1];
        if (c < '0' || c > '9') break;
        digits++;
    }
    size_t start = name->length - digits;
    if (!digits || !start || (name->text[start] == '0' && digits > 1)) return;
    name->number = strtoull(name->text + start, NULL, 10);
    name->prefix = name_intern(module, name->text, start);
}

const Opcode *name_opcode(Module *module, Name *name) {
    if (name->opcode) return name->opcode;
    Opcode *opcode = arena_alloc(module->arena, sizeof *opcode);
    const char *parts[PARTS_MAX] = {name->text};
    int count = 0;
    const char *end = name->text + name->length;
    for (const char *p = name->text; p < end && count < PARTS_MAX;) {
        const char *dot = memchr(p, '.', end - p);
        if (!dot) dot = end;
        parts[count++] = name_intern(module, p, dot - p)->text;
        p = dot + 1;
    }
    bool whole = count < PARTS_MAX;
    const char **modifiers = arena_alloc(module->arena, sizeof *modifiers * (count + 1));
    for (int i = 1; i < count; i++) modifiers[i - 1] = parts[i];
    opcode->first = parts[0];
    opcode->modifiers = modifiers;
    opcode->modifier_count = whole ? count - 1 : -1;
    name->opcode = opcode;
    return opcode;
}

void names_free(Module *module) {
    free(module->buckets); // the names themselves lie in the arena
}
