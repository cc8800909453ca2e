// A map from addresses to records, for handles and for host functions: a handle that a program
// passes in is looked up, never dereferenced, so a stale or made-up one is an error and no crash.
#ifndef SOFTGPU_POINTER_MAP_H
#define SOFTGPU_POINTER_MAP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    struct PointerEntry {
        const void *key; // NULL: free
        void *value;
        bool deleted;
    } * entries;
    size_t capacity, used; // capacity: a power of two; used counts deleted entries
} PointerMap;

// Stores a value, replacing an older one of the same key. The key must not be NULL.
void pointer_map_put(PointerMap *map, const void *key, void *value);
// The value of a key, or NULL.
void *pointer_map_get(const PointerMap *map, const void *key);
// Removes a key and returns its value, or NULL.
void *pointer_map_take(PointerMap *map, const void *key);

#endif
