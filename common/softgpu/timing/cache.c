// Set-associative caches: tags only, the bytes are in memory all along.
//
// A set is an array of entries, the one used last in front: so finding a line again is quick,
// and the last entry is the one to replace. An entry packs the line's number with the state of
// its four sectors: slot << 60 | (number + 1) << 8 | valid << 4 | dirty; number + 1 = 0 is an empty
// entry, which has no slot yet: the first line of a set gets the last slot, and so on downwards, so
// that a cache that nobody has used is memory that nobody has touched. A sector that is dirty but not valid has been written in part: which of its bytes, the
// entry's slot in `written` says. It is fetched only if somebody reads it before the rest is written.
#include <stdlib.h>
#include <string.h>

#include "softgpu/timing/traffic.h"

enum { LINE = 128, SECTOR = 32 };

struct Cache {
    uint32_t sets;
    int ways;
    uint64_t used;     // entries that hold a line
    uint64_t inverse;  // of `sets`, times 2^64, rounded up
    uint64_t *entries; // [sets][ways]
    struct Written {
        uint32_t bytes[LINE / SECTOR]; // bit per byte of a sector that was written in part
    } * written;                       // [sets][slots]; NULL until a write in part comes
};

enum { WAYS_MOST = 16 }; // slots are 4 bits
#define LINE_OF(entry) ((entry) << 4 >> 12)
#define SLOT_OF(entry) ((entry) >> 60)

Cache *cache_new(uint64_t bytes, int ways) {
    Cache *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->ways = ways < WAYS_MOST ? ways : WAYS_MOST;
    ways = c->ways;
    c->sets = bytes / LINE / ways;
    c->inverse = c->sets > 1 ? ~0ull / c->sets + 1 : 0;
    c->entries = calloc((size_t)c->sets * ways + 1, sizeof *c->entries);
    if (!c->entries) abort();
    return c;
}

void cache_free(Cache *c) {
    if (c) {
        free(c->entries);
        free(c->written);
    }
    free(c);
}

uint64_t cache_used(const Cache *c) {
    return c->used;
}

void cache_invalidate(Cache *c) {
    if (c->used) memset(c->entries, 0, (size_t)c->sets * c->ways * sizeof *c->entries);
    c->used = 0;
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

// The bytes of the sectors of the line in this entry that were written in part.
static uint32_t *written_of(const Cache *c, const uint64_t *set, uint64_t entry) {
    return c->written[(size_t)(set - c->entries) + SLOT_OF(entry)].bytes;
}

// Brings the entry of a line to the front of its set and returns it there. If the line is not in
// the set, the last entry makes room and *evicted is what it was.
static uint64_t *touch(Cache *c, uint64_t line, uint64_t *evicted) {
    uint64_t *set = set_of(c, line);
    if (LINE_OF(set[0]) == line + 1) return set; // most often
    int at = 1;
    while (at < c->ways && LINE_OF(set[at]) != line + 1) at++;
    uint64_t entry;
    if (at < c->ways) {
        entry = set[at];
    } else {
        at = c->ways - 1;
        *evicted = set[at];
        uint64_t slot = SLOT_OF(set[at]);
        if (!LINE_OF(set[at])) { // then the slots of the lines in front are those above
            c->used++;
            slot = at;
            for (const uint64_t *e = set; LINE_OF(*e); e++) slot--;
        }
        entry = slot << 60 | (line + 1) << 8;
        if (c->written) memset(written_of(c, set, entry), 0, sizeof(struct Written));
    }
    memmove(set + 1, set, at * sizeof *set);
    set[0] = entry;
    return set;
}

// What an entry that makes room sends to memory. A sector written in part is read first: memory
// with error correction is written in whole sectors.
static void write_back(uint64_t evicted, CacheTraffic *hbm) {
    unsigned dirty = evicted & 0xf, valid = evicted >> 4 & 0xf;
    hbm->write_bytes += SECTOR * __builtin_popcount(dirty);
    hbm->read_bytes += SECTOR * __builtin_popcount(dirty & ~valid);
}

void cache_l2_access(Cache *c, uint64_t line, uint8_t sectors, uint8_t write, CacheTraffic *hbm) {
    if (!c->sets) { // no cache at all: everything crosses to memory
        unsigned bytes = SECTOR * __builtin_popcount(sectors);
        if (write != 1) hbm->read_bytes += bytes;
        if (write) hbm->write_bytes += bytes;
        return;
    }
    uint64_t evicted = 0;
    uint64_t *entry = touch(c, line, &evicted);
    write_back(evicted, hbm);
    unsigned missing = sectors & ~(*entry >> 4) & 0xf;
    if (write != 1) hbm->read_bytes += SECTOR * __builtin_popcount(missing);
    *entry |= (uint64_t)sectors << 4;
    if (write) *entry |= sectors;
}

void cache_l2_write_part(Cache *c, uint64_t line, int sector, uint32_t bytes, CacheTraffic *hbm) {
    if (!c->sets) {
        cache_l2_access(c, line, (uint8_t)(1u << sector), 2, hbm);
        return;
    }
    if (!c->written) {
        c->written = calloc((size_t)c->sets * c->ways, sizeof *c->written);
        if (!c->written) abort();
    }
    uint64_t evicted = 0;
    uint64_t *entry = touch(c, line, &evicted);
    write_back(evicted, hbm);
    *entry |= 1u << sector;
    if (*entry >> (4 + sector) & 1) return;
    uint32_t *written = &written_of(c, entry, *entry)[sector];
    *written |= bytes;
    if (*written == UINT32_MAX) *entry |= 1u << (4 + sector);
}

uint8_t cache_l1_read(Cache *c, uint64_t line, uint8_t sectors) {
    if (!c->sets) return sectors;
    uint64_t evicted;
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
        if (LINE_OF(set[at]) != line + 1) continue;
        uint64_t entry = set[at];
        memmove(set + 1, set, at * sizeof *set);
        set[0] = entry;
        return;
    }
}
