// Vector clocks (race.h, race_parts.h).
//
// All vectors lie in one block of memory, `stride` entries each, so that a join is one loop over
// aligned memory. Most kernels never execute a proxy fence; until one does, only SEEN is looked at.
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/race_parts.h"
#include "softgpu/machine/parts.h"

enum { LANES = 16 }; // entries that loops do at once

static int rounded(int entries) {
    return (entries + LANES - 1) / LANES * LANES;
}

static size_t vectors_size(int stride, uint32_t count) {
    return (size_t)stride * count * VECTORS * sizeof(uint32_t);
}

// Moves the vectors to where there is room for `capacity` of `stride` entries.
static void resize(Race *r, int stride, uint32_t capacity) {
    uint32_t *to = allocate(vectors_size(stride, capacity));
    memset(to, 0, vectors_size(stride, capacity));
    for (size_t k = 0; k < (size_t)r->knowledge_count * VECTORS; k++)
        memcpy(to + k * (size_t)stride, r->vectors + k * (size_t)r->stride,
               (size_t)r->stride * sizeof *to);
    free(r->vectors);
    r->vectors = to;
    r->stride = stride;
    r->knowledge_capacity = capacity;
}

void clocks_reset(Race *r, int threads) {
    uint32_t least = (uint32_t)threads + 4;
    r->threads = r->used = threads;
    if (r->stride < rounded(threads) || r->knowledge_capacity < least) {
        r->knowledge_count = 0;
        resize(r, rounded(threads + LANES), least);
    }
    memset(r->vectors, 0, vectors_size(r->stride, r->knowledge_capacity));
    r->knowledge_count = (uint32_t)threads;
    r->slot_count = 0;
    r->fenced = r->proxies = r->flagged = r->tensor = false;
}

Knowledge knowledge_new(Race *r) {
    if (r->knowledge_count == r->knowledge_capacity)
        resize(r, r->stride, 2 * r->knowledge_capacity);
    return r->knowledge_count++;
}

static inline void join(uint32_t *restrict to, const uint32_t *restrict from, int count) {
    for (int k = 0; k < count; k++) to[k] = to[k] > from[k] ? to[k] : from[k];
}

void knowledge_join(Race *r, Knowledge to, Knowledge from) {
    int count = rounded(r->used);
    for (int v = 0; v < (r->fenced ? PASSED + 1 : 1); v++)
        join(race_vector(r, to, (RaceVector)v), race_vector(r, from, (RaceVector)v), count);
    if (r->tensor) join(race_vector(r, to, SENT), race_vector(r, from, SENT), count);
}

void knowledge_clear(Race *r, Knowledge k) {
    memset(race_vector(r, k, SEEN), 0, vectors_size(r->stride, 1));
}

void knowledge_meet(Race *r, Knowledge to, Warp *const *warps, int count) {
    for (int v = 0; v < VECTORS; v++) {
        uint32_t *t = race_vector(r, to, (RaceVector)v);
        memcpy(t, race_vector(r, race_thread(warps[0]), (RaceVector)v), 4 * (size_t)r->stride);
        for (int n = 1; n < count; n++) {
            const uint32_t *f = race_vector(r, race_thread(warps[n]), (RaceVector)v);
            for (int k = 0; k < r->used; k++) t[k] = t[k] < f[k] ? t[k] : f[k];
        }
    }
}

void knowledge_copy(Race *r, Knowledge to, Knowledge from) {
    memcpy(race_vector(r, to, SEEN), race_vector(r, from, SEEN), vectors_size(r->stride, 1));
}

bool knowledge_within(const Race *r, Knowledge k, Knowledge of) {
    uint32_t more = 0;
    for (int v = 0; v < race_vectors(r); v++) {
        const uint32_t *a = race_vector(r, k, (RaceVector)v),
                       *b = race_vector(r, of, (RaceVector)v);
        for (int e = 0; e < r->used; e++) more |= a[e] > b[e];
    }
    return !more;
}

// ---- slots

static uint16_t slot_new(Race *r) {
    if (r->slot_count == r->slot_capacity) {
        r->slot_capacity = r->slot_capacity ? 2 * r->slot_capacity : 16;
        r->slots = realloc(r->slots, (size_t)r->slot_capacity * sizeof *r->slots);
        if (!r->slots) abort();
    }
    if (r->used == r->stride) resize(r, rounded(2 * r->stride), r->knowledge_capacity);
    r->slots[r->slot_count++] = (RaceSlot){0};
    return (uint16_t)r->used++;
}

uint16_t slot_for_agent(Race *r, Knowledge by) {
    const uint32_t *seen = race_vector(r, by, SEEN) + r->threads;
    for (int s = 0; s < r->slot_count; s++) {
        const RaceSlot *slot = &r->slots[s];
        if (!slot->mbarrier && !slot->open && seen[s] >= slot->last)
            return (uint16_t)(r->threads + s);
    }
    if (r->slot_count < RACE_SLOTS) return slot_new(r);
    // Too many that nobody waits for: sharing a slot may hide a race, but never invents one.
    int best = -1;
    for (int s = 0; s < r->slot_count; s++)
        if (!r->slots[s].mbarrier && (best < 0 || r->slots[s].open < r->slots[best].open)) best = s;
    return best < 0 ? slot_new(r) : (uint16_t)(r->threads + best);
}

uint16_t slot_for_others(Race *r) {
    uint16_t thread = slot_new(r);
    *slot_of(r, thread) = (RaceSlot){0, 1, true};
    return thread;
}

uint16_t slot_for_mbarrier(Race *r) {
    uint16_t thread = 0;
    for (int s = 0; s < r->slot_count && !thread; s++)
        if (r->slots[s].mbarrier && !r->slots[s].open) thread = (uint16_t)(r->threads + s);
    if (!thread) thread = slot_new(r);
    *slot_of(r, thread) = (RaceSlot){slot_of(r, thread)->last, 1, true};
    return thread;
}
