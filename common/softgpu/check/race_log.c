// What lanes of a warp have done to shared memory since they last met, and order inside the warp
// (race.h).
//
// The shadow (race_shadow.c) keeps warps, not lanes: neighbouring lanes' accesses are one there, and
// most of the time that is all that is asked. Only where a warp meets its own access, and not all
// of its lanes know of that yet, the log tells which lanes it was.
//
// It serves a second purpose. The shadow's clocks are a warp's, and a release makes known what
// happened up to a clock. So when only some lanes release (or fence), what the others have done, and
// these lanes don't know of, is entered in the shadow again, as done behind the release.
//
// The log keeps the last accesses; what is older counts as known. Two stores by one instruction, or
// by the same one executed for different lanes, don't race with each other: all lanes that store
// one value is common, and legal.
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/race_global_parts.h"

enum { FIRST_CAPACITY = 16, NOBODY = -2 };

static LaneAccess *at(const LaneLog *log, uint32_t number) {
    return &log->ring[number % log->capacity];
}

void log_reset(LaneLog *log) {
    log->first = log->released_to = log->fenced_to = log->next;
    log->unreleased = log->unfenced = 0;
    log->written = false;
    owners_reset(log);
}

// All capacities are powers of two, so numbers may wrap around.
static void grow(LaneLog *log) {
    uint32_t capacity = log->capacity ? 2 * log->capacity : FIRST_CAPACITY;
    LaneAccess *ring = malloc(capacity * sizeof *ring);
    if (!ring) abort();
    for (uint32_t n = log->first; n != log->next; n++) ring[n % capacity] = *at(log, n);
    free(log->ring);
    log->ring = ring;
    log->capacity = capacity;
}

static void append(LaneLog *log, const LaneAccess *a) {
    if (log->next - log->first == log->capacity) {
        if (log->capacity < (log->global ? RACE_LOGGED_GLOBAL : RACE_LOGGED))
            grow(log);
        else
            log->first++;
    }
    *at(log, log->next++) = *a;
    log->unreleased |= a->mask;
    log->unfenced |= a->mask;
    log->written |= a->write;
}

void log_add(LaneLog *log, const LaneAccess *a) {
    append(log, a);
    at(log, log->next - 1)->order = ++log->order;
}

void log_met(LaneLog *log, uint32_t lanes) {
    if (log->first == log->next) return;
    if (!log->knows) {
        log->knows = calloc(WARP_SIZE, sizeof *log->knows);
        if (!log->knows) abort();
    }
    uint32_t together[WARP_SIZE] = {0};
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        const uint32_t *knows = log->knows[__builtin_ctz(rest)];
        for (int j = 0; j < WARP_SIZE; j++)
            together[j] = knows[j] > together[j] ? knows[j] : together[j];
    }
    for (int j = 0; j < WARP_SIZE; j++)
        if (lanes >> j & 1) together[j] = log->order;
    for (uint32_t rest = lanes; rest; rest &= rest - 1)
        memcpy(log->knows[__builtin_ctz(rest)], together, sizeof together);
}

// ---- releases and fences of some lanes

// The lanes whose access is known to some of these.
static uint32_t known_to(const LaneLog *log, const LaneAccess *a, uint32_t lanes) {
    uint32_t known = a->mask & lanes;
    if (!log->knows) return known;
    for (uint32_t others = a->mask & ~lanes; others; others &= others - 1) {
        int j = __builtin_ctz(others);
        for (uint32_t rest = lanes; rest; rest &= rest - 1)
            if (a->order <= log->knows[__builtin_ctz(rest)][j]) known |= 1u << j;
    }
    return known;
}

// Enters an access again, as it now stands.
static void enter_again(Race *r, Warp *w, const LaneAccess *a) {
    uint16_t t = race_thread(w);
    uint8_t flags = (uint8_t)((a->strong ? NODE_STRONG : 0) | (a->copy ? NODE_COPY : 0));
    RacePass pass = {.race = r,
                     .cta = (RaceCta *)a->cta,
                     .w = w,
                     .insn = a->insn,
                     .knowledge = t,
                     .node = {.thread = t, .clock = a->clock, .insn = a->insn->index},
                     .write = a->write,
                     .quiet = true,
                     .lane = -1};
    uint32_t fenced = a->tile ? (a->fenced == a->mask ? a->rows : 0) : a->fenced;
    for (int k = 0; k < 2; k++) {
        uint32_t part = a->rows & (k ? fenced : ~fenced);
        if (!a->cta->cta) {
            if (part) global_enter_again(r, w, a, part, k);
            continue;
        }
        pass.node.flags = flags | (k ? NODE_FENCED : 0);
        if (part) race_enter_lanes(&pass, a->offset, a->size, part);
    }
}

static void settle(Race *r, Warp *w, LaneLog *log, uint32_t lanes, bool fences) {
    uint32_t *open = fences ? &log->unfenced : &log->unreleased;
    if (log->first == log->next) return;
    if (!(*open & ~lanes)) {
        *open = 0;
        *(fences ? &log->fenced_to : &log->released_to) = log->next;
        return;
    }
    uint32_t from = log->first, fenced_to = log->fenced_to;
    if ((int32_t)(log->released_to - from) > 0) from = log->released_to;
    if (fences && (int32_t)(fenced_to - from) > 0) from = fenced_to;
    for (uint32_t n = from, end = log->next; n != end; n++) {
        if ((int32_t)(n - log->first) < 0) continue; // has made room for others
        LaneAccess *a = at(log, n);
        uint32_t known = known_to(log, a, lanes), others = a->mask & ~known & ~a->released;
        uint32_t fenced = (int32_t)(n - fenced_to) < 0 ? a->mask : a->fenced;
        if (fences) others &= ~fenced;
        if (others && a->tile) others = a->mask;
        if (fences)
            a->fenced = fenced | (a->mask & lanes);
        else if (!others || !a->tile)
            a->released |= known;
        if (!others) continue;
        LaneAccess again = *a;
        again.mask = others;
        again.rows = a->tile ? a->rows : others;
        again.released = 0;
        again.fenced = fenced & others;
        again.clock = r->thread[race_thread(w)].clock;
        a->mask &= ~others;
        if (!a->tile) a->rows = a->mask;
        append(log, &again);
        enter_again(r, w, &again);
    }
    *open &= ~lanes;
}

void log_settle(Race *r, Warp *w, uint32_t lanes, bool fences) {
    uint16_t t = race_thread(w);
    settle(r, w, &r->logs[t], lanes, fences);
    settle(r, w, &r->logs[r->thread_capacity + t], lanes, fences);
}

// ---- is order missing inside the warp?

// The lanes whose bytes meet [low, high).
static uint32_t touching(const LaneAccess *a, uint32_t low, uint32_t high) {
    uint32_t hit = 0, window = high - low + a->size - 1, start = low - a->size + 1;
    for (int l = 0; l < WARP_SIZE; l++) hit |= (uint32_t)(a->offset[l] - start < window) << l;
    return hit & a->rows;
}

// Those of the lanes that didn't access just the bytes at `offset`.
static uint32_t elsewhere(const LaneAccess *a, uint32_t lanes, uint32_t offset) {
    uint32_t other = 0;
    for (int l = 0; l < WARP_SIZE; l++) other |= (uint32_t)(a->offset[l] != offset) << l;
    return other & lanes;
}

// A lane whose access to these bytes `lane` doesn't know of; -1: of a tile, or NOBODY.
static int unknown_lane(const LaneLog *log, const LaneAccess *a, int lane, uint32_t low,
                        uint32_t high) {
    uint32_t hit = touching(a, low, high);
    if (!hit) return NOBODY;
    uint32_t others = a->tile ? a->mask : hit;
    if (lane >= 0) {
        if (!a->tile && hit >> lane & 1) others = elsewhere(a, hit, a->offset[lane]);
        others &= ~(1u << lane);
        for (uint32_t rest = log->knows ? others : 0; rest; rest &= rest - 1) {
            int j = __builtin_ctz(rest);
            if (a->order <= log->knows[lane][j]) others &= ~(1u << j);
        }
    }
    if (!others) return NOBODY;
    return a->tile ? -1 : __builtin_ctz(others);
}

// Has `lane` executed this instruction, too, for the same bytes as lane `j`?
static bool has_done_so_too(const LaneLog *log, const LaneAccess *other, int j, int lane) {
    if (lane < 0 || j < 0) return false;
    for (uint32_t n = log->next; n != log->first; n--) {
        const LaneAccess *a = at(log, n - 1);
        if (a->insn == other->insn && a->rows >> lane & 1 && a->offset[lane] == other->offset[j])
            return true;
    }
    return false;
}

// May an access of the pass follow this one at all, in any order of lanes?
static bool is_harmless(const RacePass *p, const LaneAccess *a) {
    bool strong = p->node.flags & NODE_STRONG;
    return !a->mask || a->cta != p->cta || !(a->write || p->write) || (a->strong && strong);
}

// Does each lane access what it accessed then?
static bool is_alike(const RacePass *p, const LaneAccess *a) {
    if (a->tile || a->size != p->size || p->mask & ~a->rows) return false;
    uint32_t differ = 0;
    for (int l = 0; l < WARP_SIZE; l++)
        differ |= (a->offset[l] ^ p->offset[l]) & -(p->mask >> l & 1);
    return !differ;
}

void log_check(RacePass *p, bool tile) {
    const LaneLog *log = log_of_pass(p);
    // The short log of global memory is searched before its table by places is made: mostly in vain.
    bool asks = !tile && log->global;
    if (!tile && !asks && owners_apart(p)) return;
    uint32_t known = p->vectors[SEEN][race_thread(p->w)], lowest = ~0u, highest = 0;
    for (uint32_t rest = p->mask; rest; rest &= rest - 1) {
        uint32_t low = p->offset[__builtin_ctz(rest)];
        lowest = low < lowest ? low : lowest;
        highest = low + p->size > highest ? low + p->size : highest;
    }
    for (uint32_t n = log->next; n != log->first; n--) {
        const LaneAccess *a = at(log, n - 1);
        if (a->clock <= known) return; // and so are those before it
        if (is_harmless(p, a) || a->high <= lowest || a->low >= highest) continue;
        if (a->write && p->write && a->insn == p->insn) continue;
        if (!tile && is_alike(p, a)) continue;
        if (asks && owners_apart(p)) return;
        asks = false;
        for (uint32_t rest = p->mask; rest; rest &= rest - 1) {
            int l = __builtin_ctz(rest), lane = tile ? -1 : l;
            uint32_t low = p->offset[l], high = low + p->size;
            int other = unknown_lane(log, a, lane, low, high);
            if (other == NOBODY || has_done_so_too(log, a, other, lane)) continue;
            report_lanes(p, low, lane, other, a);
            return;
        }
    }
}

const LaneAccess *log_meets(const RacePass *p, uint32_t low, uint32_t high) {
    const LaneLog *log = log_of_pass(p);
    uint32_t known = p->vectors[SEEN][race_thread(p->w)];
    for (uint32_t n = log->next; n != log->first; n--) {
        const LaneAccess *a = at(log, n - 1);
        if (a->clock <= known) return NULL;
        if (is_harmless(p, a) || a->high <= low || a->low >= high) continue;
        if (unknown_lane(log, a, p->lane, low, high) != NOBODY) return a;
    }
    return NULL;
}
