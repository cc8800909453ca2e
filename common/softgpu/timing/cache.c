// Set-associative caches: tags only, the bytes are in memory all along.
//
// A set is an array of entries, the one used last in front: so finding a line again is quick,
// and the last entry is the one to replace. An entry packs the line's number with the state of
// its four sectors: number << 8 | valid << 4 | dirty; 0 is an empty entry.
#include <stdlib.h>
#include <string.h>

#include "softgpu/timing/traffic.h"

enum { LINE = 128, SECTOR = 32 };

struct Cache {
    uint32_t sets;
    int ways;
    uint64_t inverse;  // of `sets`, times 2^64, rounded up
    uint64_t *entries; // [sets][ways]
};

Cache *cache_new(uint64_t bytes, int ways) {
    Cache *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->ways = ways;
    c->sets = bytes / LINE / ways;
    c->inverse = c->sets > 1 ? ~0ull / c->sets + 1 : 0;
    c->entries = calloc((size_t)c->sets * ways + 1, sizeof *c->entries);
    if (!c->entries) abort();
    return c;
}

void cache_free(Cache *c) {
    if (c) free(c->entries);
    free(c);
}

void cache_invalidate(Cache *c) {
    memset(c->entries, 0, (size_t)c->sets * c->ways * sizeof *c->entries);
}

// The set of a line. Neighbouring lines go to neighbouring sets, so that a buffer fills all sets
// alike; each run of as many lines as there are sets begins at a different one, so that strides
// don't meet.
static uint64_t *set_of(const Cache *c, uint64_t line) {
    // line / sets by a multiplication, which may give one too many; a division takes much longer.
    uint64_t run = c->sets > 1 ? (unsigned __int128)line * c->inverse >> 64 : line;
    run -= run * c->sets > line;
    uint64_t first = line - run * c->sets;
    uint64_t shift = (run * 0x9e3779b97f4a7c15ull >> 32) * c->sets >> 32;
    uint64_t set = first + shift < c->sets ? first + shift : first + shift - c->sets;
    return c->entries + set * c->ways;
}

// Brings the entry of a line to the front of its set and returns its state bits there. If the
// line is not in the set, the last entry makes room and *evicted says which of its sectors were
// dirty.
static uint64_t *touch(const Cache *c, uint64_t line, unsigned *evicted) {
    uint64_t *set = set_of(c, line);
    if (set[0] >> 8 == line + 1) return set; // most often
    int at = 1;
    while (at < c->ways && set[at] >> 8 != line + 1) at++;
    uint64_t entry = (line + 1) << 8;
    if (at < c->ways) {
        entry = set[at];
    } else {
        at = c->ways - 1;
        *evicted = set[at] & 0xf;
    }
    memmove(set + 1, set, at * sizeof *set);
    set[0] = entry;
    return set;
}

void cache_l2_access(Cache *c, uint64_t line, uint8_t sectors, uint8_t write, CacheTraffic *hbm) {
    if (!c->sets) { // no cache at all: everything crosses to memory
        unsigned bytes = SECTOR * __builtin_popcount(sectors);
        if (write != 1) hbm->read_bytes += bytes;
        if (write) hbm->write_bytes += bytes;
        return;
    }
    unsigned evicted = 0;
    uint64_t *entry = touch(c, line, &evicted);
    unsigned missing = sectors & ~(*entry >> 4) & 0xf;
    hbm->write_bytes += SECTOR * __builtin_popcount(evicted);
    if (write != 1) hbm->read_bytes += SECTOR * __builtin_popcount(missing);
    *entry |= (uint64_t)sectors << 4;
    if (write) *entry |= sectors;
}

uint8_t cache_l1_read(Cache *c, uint64_t line, uint8_t sectors) {
    if (!c->sets) return sectors;
    unsigned evicted = 0;
    uint64_t *entry = touch(c, line, &evicted);
    unsigned missing = sectors & ~(*entry >> 4) & 0xf;
    *entry |= (uint64_t)sectors << 4;
    return missing;
}

void cache_l1_write(Cache *c, uint64_t line, uint8_t sectors) {
    (void)sectors; // a line that is there takes the bytes; one that is not stays away
    if (!c->sets) return;
    uint64_t *set = set_of(c, line);
    for (int at = 0; at < c->ways; at++) {
        if (set[at] >> 8 != line + 1) continue;
        uint64_t entry = set[at];
        memmove(set + 1, set, at * sizeof *set);
        set[0] = entry;
        return;
    }
}
