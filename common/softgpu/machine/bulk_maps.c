// Tensor maps that kernels edit (bulk.h): which edits of a map a CTA knows of, and which are its own.
#include <stdlib.h>

#include "softgpu/machine/bulk.h"
#include "softgpu/machine/global.h"
#include "softgpu/machine/parts.h"
#include "softgpu/machine/tensor_map.h"

struct BulkMap {
    uint64_t address;
    uint32_t edits; // that the CTA has acquired
    bool edited;    // by this CTA, and not released yet
};

struct BulkMaps {
    struct BulkMap *list;
    int count, capacity;
};

// The map at an address; NULL if the CTA has had nothing to do with it, unless `make`.
static struct BulkMap *find(Cta *cta, uint64_t address, bool make) {
    struct BulkMaps *maps = cta->bulk_maps;
    for (int k = 0; maps && k < maps->count; k++)
        if (maps->list[k].address == address) return &maps->list[k];
    if (!make) return NULL;
    if (!maps) {
        maps = cta->bulk_maps = allocate(sizeof *maps);
        *maps = (struct BulkMaps){0};
    }
    if (maps->count == maps->capacity) {
        maps->capacity = maps->capacity ? 2 * maps->capacity : 8;
        maps->list = realloc(maps->list, (size_t)maps->capacity * sizeof *maps->list);
        if (!maps->list) abort();
    }
    maps->list[maps->count] = (struct BulkMap){.address = address};
    return &maps->list[maps->count++];
}

void bulk_map_acquired(Cta *cta, uint64_t address, uint32_t edits) {
    find(cta, address, true)->edits = edits;
}

bool bulk_map_known(const Cta *cta, uint64_t address, uint32_t edits) {
    const struct BulkMap *map = find((Cta *)cta, address, false);
    return map && map->edits == edits;
}

void bulk_map_edited(Cta *cta, uint64_t address) {
    find(cta, address, true)->edited = true;
}

void bulk_maps_released(Cta *cta) {
    for (int k = 0; cta->bulk_maps && k < cta->bulk_maps->count; k++) {
        struct BulkMap *map = &cta->bulk_maps->list[k];
        if (map->edited) tensor_map_release(global_pointer(cta->sm->gpu->memory, map->address));
        map->edited = false;
    }
}

void bulk_maps_forget(Cta *cta) {
    if (cta->bulk_maps) cta->bulk_maps->count = 0;
}

void bulk_maps_free(Cta *cta) {
    if (cta->bulk_maps) free(cta->bulk_maps->list);
    free(cta->bulk_maps);
    cta->bulk_maps = NULL;
}
