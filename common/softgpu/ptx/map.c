// A hash map with open addressing.
#include <stdio.h>
#include <stdlib.h>

#include "softgpu/ptx/map.h"

static size_t place(const Map *map, uint64_t key) {
    uint64_t h = key * 0x9e3779b97f4a7c15ull;
    size_t i = (size_t)(h ^ h >> 32) & (map->capacity - 1);
    while (map->slots[i].used && map->slots[i].key != key) i = (i + 1) & (map->capacity - 1);
    return i;
}

// The value of a key, or NULL. Valid until the next map_set.
uint64_t *map_find(const Map *map, uint64_t key) {
    if (!map->capacity) return NULL;
    struct MapSlot *slot = &map->slots[place(map, key)];
    return slot->used ? &slot->value : NULL;
}

// Doubles the table.
static void grow(Map *map) {
    Map bigger = {.capacity = map->capacity ? 2 * map->capacity : 64, .count = map->count};
    bigger.slots = calloc(bigger.capacity, sizeof *bigger.slots);
    if (!bigger.slots) {
        fprintf(stderr, "softgpu: out of memory while decoding PTX\n");
        exit(2);
    }
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].used) bigger.slots[place(&bigger, map->slots[i].key)] = map->slots[i];
    free(map->slots);
    *map = bigger;
}

void map_set(Map *map, uint64_t key, uint64_t value) {
    if (4 * (map->count + 1) > 3 * map->capacity) grow(map);
    struct MapSlot *slot = &map->slots[place(map, key)];
    map->count += !slot->used;
    *slot = (struct MapSlot){key, value, true};
}

void map_free(Map *map) {
    free(map->slots);
    *map = (Map){0};
}
