// A quick answer for lanes that keep to themselves (race_log.c).
//
// A kernel whose lanes each work in a part of shared memory of their own, as with a histogram for
// each thread, meets its own accesses all the time, and nothing ever puts the lanes in order. So the
// log is also kept by places: which lane has written and read a granule of 4 bytes, or that several
// have. Only where another lane than the one that now comes has been there, the log itself is asked.
//
// The table is filled when the first such question comes, so kernels whose lanes meet don't pay.
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/race_parts.h"

enum { SLOTS = 1 << 14, SLOTS_GLOBAL = 1 << 11, NONE = -1, SEVERAL = WARP_SIZE };

struct LaneOwner {
    uint32_t key, epoch; // of another epoch: free
    int8_t writer, reader;
};

void owners_reset(LaneLog *log) {
    log->owned_to = log->next;
    log->owner_count = 0;
    log->owner_epoch++;
}

// A power of two up to 2^14.
static uint32_t slots_of(const LaneLog *log) {
    return log->global ? SLOTS_GLOBAL : SLOTS;
}

// The slot of a granule, which may be free.
static struct LaneOwner *find(const LaneLog *log, uint32_t key) {
    uint32_t slots = slots_of(log), k = key * 0x9e3779b1u >> 18 & (slots - 1);
    while (log->owners[k].epoch == log->owner_epoch && log->owners[k].key != key)
        k = (k + 1) & (slots - 1);
    return &log->owners[k];
}

// Two places of global memory may share a key: then lanes only seem to meet.
static uint32_t key_of(const RaceCta *c, uint32_t granule) {
    if (!c->cta) return (uint32_t)(c->base >> 31) * 0x9e3779b1u ^ granule;
    return c->cta->cluster_rank << 24 | granule;
}

static void enter(LaneLog *log, const LaneAccess *a, int lane) {
    uint32_t first = a->offset[lane] / 4, last = (a->offset[lane] + a->size - 1) / 4;
    int8_t who = (int8_t)(a->tile ? SEVERAL : lane);
    for (uint32_t g = first; g <= last; g++) {
        uint32_t key = key_of(a->cta, g);
        struct LaneOwner *o = find(log, key);
        if (o->epoch != log->owner_epoch) {
            *o = (struct LaneOwner){key, log->owner_epoch, NONE, NONE};
            log->owner_count++;
        }
        int8_t *owner = a->write ? &o->writer : &o->reader;
        *owner = *owner == NONE || *owner == who ? who : SEVERAL;
    }
}

// Brings the table up to date with the log. False if it is full.
static bool update(LaneLog *log) {
    if (!log->owners) {
        log->owners = calloc(slots_of(log), sizeof *log->owners);
        if (!log->owners) abort();
        log->owner_epoch = 1;
    }
    if ((int32_t)(log->first - log->owned_to) > 0) log->owned_to = log->first;
    for (; log->owned_to != log->next; log->owned_to++) {
        const LaneAccess *a = &log->ring[log->owned_to % log->capacity];
        uint32_t granules = WARP_SIZE * (a->size / 4 + 2);
        if (log->owner_count + granules > slots_of(log) / 2) return false;
        for (uint32_t rest = a->mask ? a->rows : 0; rest; rest &= rest - 1)
            enter(log, a, __builtin_ctz(rest));
    }
    return true;
}

bool owners_apart(const RacePass *p) {
    LaneLog *log = log_of_pass(p);
    if (!update(log)) return false;
    for (uint32_t rest = p->mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        uint32_t first = p->offset[lane] / 4, last = (p->offset[lane] + p->size - 1) / 4;
        for (uint32_t g = first; g <= last; g++) {
            const struct LaneOwner *o = find(log, key_of(p->cta, g));
            if (o->epoch != log->owner_epoch) continue;
            if (o->writer != NONE && o->writer != lane) return false;
            if (p->write && o->reader != NONE && o->reader != lane) return false;
        }
    }
    return true;
}
