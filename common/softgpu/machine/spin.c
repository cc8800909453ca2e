// Is everybody only spinning?
//
// If no warp changes memory, a warp that comes back to a state in which it was before (the same
// program counters, masks and registers at the same backward branch) will do so for ever, provided
// that each of its groups has had its turn in between: one that has not may be on its way to a
// store. A store of what is there already is no change. Brent's way of finding cycles needs one
// remembered state per warp. Warps that read a clock are not judged by this (run.c): they will see
// another time.
#include "softgpu/machine/parts.h"

#include <string.h>

enum { STEPS = 6 }; // states of a group that are looked at in a round: they cost time

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
    return hash ^ hash >> 29;
}

uint64_t warp_hash(const Warp *w) {
    uint64_t hash = mix(w->live, w->carry);
    for (int slot = 0; slot < WARP_SIZE; slot++) {
        const Group *g = &w->groups[slot];
        if (!g->mask) continue;
        bool runs = slot == w->current;
        hash = mix(hash, (uint64_t)(uintptr_t)(runs ? w->pc : g->pc));
        hash = mix(hash, (uint64_t)(runs ? w->active : g->mask) << 8 | g->state);
    }
    for (const Join *j = w->joins; j; j = j->next) hash = mix(hash, j->arrived);
    for (const Frame *f = w->frames; f; f = f->next) {
        uint32_t size = f->function->frame_size;
        hash = mix(hash, f->offset);
        for (uint32_t at = 0; at + 8 <= size; at += 8) {
            uint64_t word;
            memcpy(&word, f->rows + at, 8);
            hash = mix(hash, word);
        }
    }
    return hash;
}

// Is a group one that might still do something: not stopped at a barrier or for its own lanes?
static bool group_may_act(const Group *g) {
    if (!g->mask || g->state == GROUP_PARKED) return false;
    return g->state != GROUP_BLOCKED || g->block == BLOCK_SLEEP;
}

static bool may_act(const Warp *w) {
    for (int slot = 0; slot < WARP_SIZE; slot++)
        if (group_may_act(&w->groups[slot])) return true;
    return false;
}

// Have all groups that may act come to a backward branch since the state was remembered? Their
// states being the same as then, each of them has gone round.
static bool all_ran(const Warp *w) {
    for (int slot = 0; slot < WARP_SIZE; slot++) {
        const Group *g = &w->groups[slot];
        if (group_may_act(g) && !(g->mask & w->spin.ran)) return false;
    }
    return true;
}

void spin_record(Warp *w, const Insn *i) {
    struct SpinRecord *r = &w->spin;
    r->ran |= w->active;
    if (r->recurs || r->left == 0) return;
    r->left--;
    uint64_t hash = warp_hash(w);
    if (r->steps && r->pc == i && r->hash == hash && all_ran(w)) {
        r->recurs = true;
        return;
    }
    // Remembered anew after 1, 2, 4, 8, … branches, so that any period fits in some day.
    if ((r->steps & (r->steps + 1)) == 0) {
        r->pc = i;
        r->hash = hash;
        r->ran = 0;
    }
    r->steps++;
}

void spin_go_on(Sm *sm) {
    for (Cta *cta = sm->ctas; cta; cta = cta->next)
        for (int k = 0; k < cta->warp_count; k++)
            cta->warps[k].spin.left = STEPS * cta->warps[k].group_count;
}

void spin_begin(Sm *sm) {
    sm->watch = true;
    for (Cta *cta = sm->ctas; cta; cta = cta->next)
        for (int k = 0; k < cta->warp_count; k++) cta->warps[k].spin = (struct SpinRecord){0};
    spin_go_on(sm);
}

bool spin_all_recur(const Sm *sm) {
    for (const Cta *cta = sm->ctas; cta; cta = cta->next)
        for (int k = 0; k < cta->warp_count; k++) {
            const Warp *w = &cta->warps[k];
            if (w->live && may_act(w) && !w->spin.recurs) return false;
        }
    return true;
}

bool spin_all_await(const Sm *sm, uint64_t time) {
    for (const Cta *cta = sm->ctas; cta; cta = cta->next)
        for (int k = 0; k < cta->warp_count; k++) {
            const Warp *w = &cta->warps[k];
            if (w->live && may_act(w) && w->waited_at < time) return false;
        }
    return true;
}
