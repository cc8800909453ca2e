// Private to ptx/: a hash map from 64-bit keys (or pointers) to 64-bit values. Keys are only added.
#ifndef SOFTGPU_MAP_H
#define SOFTGPU_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    struct MapSlot {
        uint64_t key, value;
        bool used;
    } * slots;
    size_t capacity, count; // capacity: 0 or a power of two
} Map;

// The value of a key, or NULL. Valid until the next map_set.
uint64_t *map_find(const Map *map, uint64_t key);
void map_set(Map *map, uint64_t key, uint64_t value);
void map_free(Map *map);

static inline uint64_t map_key(const void *pointer) {
    return (uint64_t)(uintptr_t)pointer;
}

#endif
