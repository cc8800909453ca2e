// A map from addresses to records: open addressing with linear probing. Invariant: at least a
// quarter of the entries is free, so every probe ends.
#include "softgpu/api/pointer_map.h"

#include <stdint.h>
#include <stdlib.h>

// Spreads an address over the table; the low bits of addresses are mostly zero.
static size_t slot_of(const void *key, size_t capacity) {
    uint64_t x = (uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15ull;
    return (size_t)(x >> 20) & (capacity - 1);
}

// The entry that holds a key, or NULL.
static struct PointerEntry *find(const PointerMap *map, const void *key) {
    if (map->capacity == 0 || key == NULL) return NULL;
    for (size_t i = slot_of(key, map->capacity);; i = (i + 1) & (map->capacity - 1)) {
        struct PointerEntry *e = &map->entries[i];
        if (e->key == NULL) return NULL;
        if (e->key == key && !e->deleted) return e;
    }
}

// Doubles the table, dropping deleted entries.
static void grow(PointerMap *map) {
    PointerMap old = *map;
    map->capacity = old.capacity ? old.capacity * 2 : 64;
    map->used = 0;
    map->entries = calloc(map->capacity, sizeof *map->entries);
    if (map->entries == NULL) abort();
    for (size_t i = 0; i < old.capacity; i++)
        if (old.entries[i].key && !old.entries[i].deleted)
            pointer_map_put(map, old.entries[i].key, old.entries[i].value);
    free(old.entries);
}

void pointer_map_put(PointerMap *map, const void *key, void *value) {
    struct PointerEntry *e = find(map, key);
    if (e) {
        e->value = value;
        return;
    }
    if (map->used * 4 >= map->capacity * 3) grow(map);
    size_t i = slot_of(key, map->capacity);
    while (map->entries[i].key) i = (i + 1) & (map->capacity - 1);
    map->entries[i] = (struct PointerEntry){.key = key, .value = value};
    map->used++;
}

void *pointer_map_get(const PointerMap *map, const void *key) {
    struct PointerEntry *e = find(map, key);
    return e ? e->value : NULL;
}

void *pointer_map_take(PointerMap *map, const void *key) {
    struct PointerEntry *e = find(map, key);
    if (e == NULL) return NULL;
    e->deleted = true;
    return e->value;
}
