// What synchronisation passes on (race.h): barriers, mbarriers, fences, flags in shared memory.
//
// Each synchronisation object has a Knowledge into which those who arrive release theirs, and from
// which those who wait acquire it.
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/race_parts.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/mbarrier.h"

// ---- named barriers

void race_bar_arrive(Warp *w, int number) {
    if (!race_on(w)) return;
    RaceCta *c = w->cta->race;
    if (!c->bars[number]) c->bars[number] = knowledge_new(c->race);
    knowledge_release(c->race, w, c->bars[number]);
}

void race_bar_wait(Warp *w, int number, bool whole) {
    if (!race_on(w)) return;
    RaceCta *c = w->cta->race;
    if (c->bars[number]) knowledge_join(c->race, race_thread(w), c->bars[number]);
    // Warps that have exited count as arrived.
    if (whole && c->exited) knowledge_join(c->race, race_thread(w), c->exited);
}

void race_bar_complete(Cta *cta, int number) {
    RaceCta *c = cta->race;
    if (c && c->bars[number]) knowledge_clear(c->race, c->bars[number]);
}

void race_warp_exited(Warp *w) {
    if (!race_on(w)) return;
    RaceCta *c = w->cta->race;
    if (!c->exited) c->exited = knowledge_new(c->race);
    knowledge_release(c->race, w, c->exited);
    if (w->cta->live_warps == 0) race_reach_end(c);
}

// ---- barriers of the cluster

void race_cluster_arrive(Warp *w, bool release) {
    if (!race_on(w)) return;
    Race *r = race_of(w);
    if (!r->cluster_pending) {
        r->cluster_pending = knowledge_new(r);
        r->cluster_completed = knowledge_new(r);
    }
    if (release) {
        knowledge_release(r, w, r->cluster_pending);
        return;
    }
    // fence.mbarrier_init and a relaxed arrival release what the fence is about, and no more; so
    // does any fence.
    const uint32_t *seen = race_vector(r, race_thread(w), SEEN);
    uint32_t *pending = race_vector(r, r->cluster_pending, SEEN);
    for (uint32_t k = 1; k < r->mbarrier_count; k++) {
        const RaceMbarrier *b = &r->mbarriers[k];
        if (b->live && b->fenced && b->owner == race_thread(w) &&
            pending[b->thread] < seen[b->thread])
            pending[b->thread] = seen[b->thread];
    }
    Knowledge released = r->thread[race_thread(w)].released;
    if (released) knowledge_join(r, r->cluster_pending, released);
}

void race_cluster_complete(Cta *cta) {
    if (!cta->race) return;
    Race *r = cta->race->race;
    if (!r->cluster_pending) return;
    knowledge_join(r, r->cluster_completed, r->cluster_pending);
    for (int k = 0; k < r->cta_count; k++)
        if (r->ctas[k]->exited) knowledge_join(r, r->cluster_completed, r->ctas[k]->exited);
}

void race_cluster_wait(Warp *w) {
    if (!race_on(w)) return;
    Race *r = race_of(w);
    if (r->cluster_completed) knowledge_join(r, race_thread(w), r->cluster_completed);
}

// ---- fences

void race_proxy_fence(Warp *w) {
    if (!race_on(w)) return;
    Race *r = race_of(w);
    uint16_t t = race_thread(w);
    r->fenced = r->proxies = true;
    const uint32_t *seen = race_vector(r, t, SEEN);
    race_vector(r, t, PUBLISHED)[t] = seen[t];
    memcpy(race_vector(r, t, PASSED), seen, (size_t)r->used * sizeof *seen);
    clock_up(r, t);
    race_mbarrier_init_fence(w); // it does for that, too
}

void race_mbarrier_init_fence(Warp *w) {
    if (!race_on(w)) return;
    Race *r = race_of(w);
    uint32_t *seen = race_vector(r, race_thread(w), SEEN);
    for (uint32_t k = 1; k < r->mbarrier_count; k++) {
        RaceMbarrier *b = &r->mbarriers[k];
        if (!b->live || b->owner != race_thread(w)) continue;
        b->fenced = true;
        if (seen[b->thread] < b->base + 2) seen[b->thread] = b->base + 2;
    }
}

void race_fence(Warp *w, bool acquires, bool releases) {
    if (!race_on(w)) return;
    Race *r = race_of(w);
    uint16_t t = race_thread(w);
    if (acquires && r->thread[t].acquirable) knowledge_join(r, t, r->thread[t].acquirable);
    if (!releases) return;
    if (!r->thread[t].released) r->thread[t].released = knowledge_new(r);
    knowledge_release(r, w, r->thread[t].released);
    r->flagged = true;
}

// ---- flags: strong accesses to words of shared memory

static RaceFlag *find_flag(RaceCta *c, uint32_t word) {
    if (!c->flag_capacity) return NULL;
    uint32_t k = word * 0x9e3779b1u % c->flag_capacity;
    while (c->flags[k].word && c->flags[k].word != word) k = (k + 1) % c->flag_capacity;
    return &c->flags[k];
}

static RaceFlag *add_flag(RaceCta *c, uint32_t word) {
    RaceFlag *f = find_flag(c, word);
    if (f && f->word) return f;
    if (2 * c->flag_count >= c->flag_capacity) {
        RaceFlag *old = c->flags;
        uint32_t capacity = c->flag_capacity;
        c->flag_capacity = capacity ? 2 * capacity : 16;
        c->flags = calloc(c->flag_capacity, sizeof *c->flags);
        if (!c->flags) abort();
        for (uint32_t k = 0; k < capacity; k++)
            if (old[k].word) *find_flag(c, old[k].word) = old[k];
        free(old);
        f = find_flag(c, word);
    }
    c->flag_count++;
    *f = (RaceFlag){word, knowledge_new(c->race)};
    return f;
}

// What the warp finds at a flag: at once, or, relaxed, once it executes a fence.
static void take_flag(Warp *w, const RaceFlag *f, bool acquires) {
    Race *r = race_of(w);
    uint16_t t = race_thread(w);
    if (acquires) {
        knowledge_join(r, t, f->knowledge);
        return;
    }
    Knowledge from = f->knowledge;
    if (!r->thread[t].acquirable) r->thread[t].acquirable = knowledge_new(r);
    knowledge_join(r, r->thread[t].acquirable, from);
}

void race_flag(Warp *w, RaceCta *c, const uint32_t offset[WARP_SIZE], uint32_t mask, bool reads,
               bool writes, RaceOrder order) {
    Race *r = c->race;
    uint16_t t = race_thread(w);
    bool acquires = order == RACE_ACQUIRE || order == RACE_ACQ_REL;
    bool releases = order == RACE_RELEASE || order == RACE_ACQ_REL;
    r->flagged |= releases;
    if (!r->flagged) return; // nobody has released anything
    uint32_t last = 0;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        uint32_t word = offset[__builtin_ctz(rest)] / 4 + 1;
        if (word == last) continue;
        last = word;
        RaceFlag *f = reads ? find_flag(c, word) : NULL;
        if (f && f->word) take_flag(w, f, acquires);
        if (!writes) continue;
        Knowledge from = releases ? t : r->thread[t].released;
        if (!releases && !from) continue;
        Knowledge to = add_flag(c, word)->knowledge;
        knowledge_join(r, to, from);
    }
    if (writes && releases) clock_up(r, t);
}

// ---- mbarriers

static RaceMbarrier *object_at(const Cta *cta, uint32_t address) {
    if (!cta->race) return NULL;
    const Mbarrier *b = mbarrier_find(cta, address);
    return b && b->race ? &cta->race->race->mbarriers[b->race] : NULL;
}

static uint32_t object_new(Race *r) {
    uint32_t k = 1;
    while (k < r->mbarrier_count && r->mbarriers[k].live) k++;
    if (k < r->mbarrier_count) return k;
    if (k >= r->mbarrier_capacity) {
        r->mbarrier_capacity = r->mbarrier_capacity ? 2 * r->mbarrier_capacity : 16;
        r->mbarriers = realloc(r->mbarriers, r->mbarrier_capacity * sizeof *r->mbarriers);
        if (!r->mbarriers) abort();
    }
    r->mbarrier_count = k + 1;
    r->mbarriers[k] = (RaceMbarrier){.pending = knowledge_new(r), .completed = knowledge_new(r)};
    return k;
}

// mbarrier.init and inval write the object's bytes.
static void write_object(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address) {
    uint32_t offset[WARP_SIZE];
    for (int l = 0; l < WARP_SIZE; l++) offset[l] = address;
    race_shared(w, i, cta, offset, 8, 1u << lane, RACE_WRITE, RACE_RELAXED);
}

uint32_t race_mbarrier_init(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address,
                            uint32_t object) {
    if (!race_on(w)) return 0;
    Race *r = race_of(w);
    race_mbarrier_end(cta, object);
    write_object(w, i, lane, cta, address);
    uint16_t thread = slot_for_mbarrier(r);
    uint32_t k = object_new(r);
    RaceMbarrier *b = &r->mbarriers[k];
    RaceSlot *slot = slot_of(r, thread);
    knowledge_clear(r, b->pending);
    knowledge_clear(r, b->completed);
    *b = (RaceMbarrier){.thread = thread,
                        .base = slot->last,
                        .owner = race_thread(w),
                        .init = i,
                        .pending = b->pending,
                        .completed = b->completed,
                        .live = true};
    slot->last = b->base + 2;
    race_vector(r, race_thread(w), SEEN)[thread] = b->base + 1;
    return k;
}

void race_mbarrier_end(Cta *cta, uint32_t object) {
    if (!cta->race || !object) return;
    Race *r = cta->race->race;
    RaceMbarrier *b = &r->mbarriers[object];
    b->live = false;
    slot_of(r, b->thread)->open = 0;
}

void race_mbarrier_use(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address,
                       bool asynchronous) {
    RaceMbarrier *b = race_on(w) ? object_at(cta, address) : NULL;
    if (!b) return;
    Race *r = race_of(w);
    uint16_t t = race_thread(w);
    uint32_t *known = race_vector(r, t, SEEN), seen = known[b->thread];
    bool far = asynchronous || cta != w->cta;
    if (cta != w->cta && !asynchronous) race_reached(cta->race, w, i, t, known[t]);
    if (seen >= b->base + 1u + far) return;
    report_init(w, i, lane, cta, address, b, seen == b->base + 1);
    known[b->thread] = b->base + 2; // once is enough
}

void race_mbarrier_arrive(Warp *w, Cta *cta, uint32_t address) {
    RaceMbarrier *b = race_on(w) ? object_at(cta, address) : NULL;
    if (b) knowledge_release(race_of(w), w, b->pending);
}

void race_mbarrier_complete(Cta *cta, uint32_t object, uint64_t phases) {
    if (!cta->race || !object) return;
    Race *r = cta->race->race;
    RaceMbarrier *b = &r->mbarriers[object];
    uint32_t count = b->base + 2 + (uint32_t)phases;
    slot_of(r, b->thread)->last = count;
    race_vector(r, b->pending, SEEN)[b->thread] = count;
    knowledge_join(r, b->completed, b->pending);
}

void race_mbarrier_wait(Warp *w, const Insn *i, int lane, Cta *cta, uint32_t address,
                        bool by_parity, bool completed, bool acquires) {
    RaceMbarrier *b = race_on(w) ? object_at(cta, address) : NULL;
    if (!b) return;
    Race *r = race_of(w);
    uint16_t t = race_thread(w);
    uint32_t seen = race_vector(r, t, SEEN)[b->thread], start = b->base + 2;
    uint64_t known = seen > start ? seen - start : 0, phases = slot_of(r, b->thread)->last - start;
    if (by_parity && phases > known + 1) {
        report_skipped(w, i, lane, address, known, phases);
        race_vector(r, t, SEEN)[b->thread] = start + (uint32_t)phases;
    }
    if (!completed) return;
    if (acquires) {
        knowledge_join(r, t, b->completed);
        return;
    }
    // A relaxed wait learns of the phase; what it orders, a fence makes known.
    if (seen < start + phases) race_vector(r, t, SEEN)[b->thread] = start + (uint32_t)phases;
    Knowledge from = b->completed;
    if (!r->thread[t].acquirable) r->thread[t].acquirable = knowledge_new(r);
    knowledge_join(r, r->thread[t].acquirable, from);
}

void race_agent_to_mbarrier(const RaceAgent *a, Cta *cta, uint32_t address) {
    RaceMbarrier *b = agent_is(a) ? object_at(cta, address) : NULL;
    if (!b) return;
    uint32_t *pending = race_vector(a->race, b->pending, SEEN) + a->thread;
    if (*pending < a->clock) *pending = a->clock;
}

// ---- cp.async.mbarrier.arrive

uint32_t race_async_arrive(Warp *w) {
    if (!race_on(w)) return 0;
    Race *r = race_of(w);
    uint32_t stamp = race_vector(r, race_thread(w), SEEN)[race_thread(w)];
    clock_up(r, race_thread(w));
    return stamp;
}

void race_async_arrived(Warp *w, Cta *cta, uint32_t address, uint32_t stamp) {
    RaceMbarrier *b = race_on(w) ? object_at(cta, address) : NULL;
    if (!b) return;
    uint32_t *pending = race_vector(race_of(w), b->pending, SEEN) + race_thread(w);
    if (*pending < stamp) *pending = stamp;
}
