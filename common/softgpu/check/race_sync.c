// What synchronisation passes on (race.h): barriers, mbarriers, fences, flags in shared memory.
//
// Each synchronisation object has a Knowledge into which those who arrive release theirs, and from
// which those who wait acquire it.
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/race_global_parts.h"
#include "softgpu/check/tmem_race.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/mbarrier.h"

// ---- named barriers

void race_bar_arrive(Warp *w, int number) {
    if (!race_on(w)) return;
    RaceCta *c = w->cta->race;
    if (!c->bars[number]) c->bars[number] = knowledge_new(c->race);
    lanes_release(c->race, w, FULL_MASK, c->bars[number]);
}

void race_bar_wait(Warp *w, int number, bool whole) {
    if (!race_on(w)) return;
    RaceCta *c = w->cta->race;
    if (c->bars[number]) lanes_acquire(c->race, w, FULL_MASK, c->bars[number]);
    // Warps that have exited count as arrived.
    if (whole && c->exited) lanes_acquire(c->race, w, FULL_MASK, c->exited);
}

void race_bar_complete(Cta *cta, int number) {
    RaceCta *c = cta->race;
    if (c && c->bars[number]) knowledge_clear(c->race, c->bars[number]);
}

void race_warp_exited(Warp *w) {
    if (!race_on(w)) return;
    RaceCta *c = w->cta->race;
    if (!c->exited) c->exited = knowledge_new(c->race);
    lanes_release(c->race, w, FULL_MASK, c->exited);
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
        lanes_release(r, w, FULL_MASK, r->cluster_pending);
        return;
    }
    // fence.mbarrier_init and a relaxed arrival release what the fence is about, and no more; so
    // does any fence.
    uint32_t *pending = race_vector(r, r->cluster_pending, SEEN);
    for (uint32_t k = 1; k < r->mbarrier_count; k++) {
        const RaceMbarrier *b = &r->mbarriers[k];
        if (!b->live || !b->fenced || b->owner != race_thread(w)) continue;
        uint32_t known = warp_knows(r, race_thread(w), b->thread);
        if (pending[b->thread] < known) pending[b->thread] = known;
    }
    Knowledge released = r->thread[race_thread(w)].released.knows;
    if (released) knowledge_join(r, r->cluster_pending, released);
    tmem_race_relaxed(w, -1, r->cluster_pending);
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
    if (r->cluster_completed) lanes_acquire(r, w, FULL_MASK, r->cluster_completed);
}

// ---- fences

void race_proxy_fence(Warp *w, uint32_t lanes) {
    if (!race_on(w)) return;
    lanes_fenced(race_of(w), w, lanes, true);
    race_mbarrier_init_fence(w); // it does for that, too
}

void race_proxy_fence_global(Warp *w, uint32_t lanes) {
    if (race_on(w)) lanes_fenced(race_of(w), w, lanes, false);
}

void race_mbarrier_init_fence(Warp *w) {
    if (!race_on(w)) return;
    Race *r = race_of(w);
    struct RaceThread *thread = &r->thread[race_thread(w)];
    for (uint32_t n = 1; n < r->mbarrier_count; n++) {
        RaceMbarrier *b = &r->mbarriers[n];
        if (!b->live || b->owner != race_thread(w)) continue;
        b->fenced = true;
        for (int k = -1; k < thread->class_count; k++) {
            Knowledge of = k < 0 ? race_thread(w) : thread->classes[k].knowledge;
            uint32_t *seen = &race_vector(r, of, SEEN)[b->thread];
            if (*seen == b->base + 1) *seen = b->base + 2;
        }
    }
}

RaceHeld *race_hold(Race *r, RaceHeld *held, uint32_t lanes) {
    if (!held->knows) held->knows = knowledge_new(r);
    held->lanes |= lanes;
    return held;
}

uint32_t race_held_by(const Warp *w, uint32_t lanes, const RaceHeld *held) {
    uint32_t own = lanes & held->lanes;
    return own && !w->sm->gpu->settings->strict ? lanes : own;
}

static void acquire_held(Race *r, Warp *w, uint32_t lanes, const RaceHeld *held) {
    uint32_t acquiring = race_held_by(w, lanes, held);
    if (acquiring) lanes_acquire(r, w, acquiring, held->knows);
}

void race_fence(Warp *w, uint32_t lanes, bool acquires, bool releases, bool wide) {
    if (!race_on(w)) return;
    Race *r = race_of(w);
    struct RaceThread *thread = &r->thread[race_thread(w)];
    if (wide) global_fence(w, lanes, acquires, releases);
    if (acquires) acquire_held(r, w, lanes, &thread->acquirable);
    if (acquires && wide) acquire_held(r, w, lanes, &thread->acquirable_wide);
    if (!releases) return;
    lanes_publish(r, w, lanes, race_hold(r, &thread->released, lanes)->knows);
    if (wide) lanes_publish(r, w, lanes, race_hold(r, &thread->released_wide, lanes)->knows);
    lanes_released(r, w, lanes);
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

// What lanes find at a flag: at once, or, relaxed, once they execute a fence.
static void take_flag(Warp *w, uint32_t lanes, const RaceFlag *f, bool acquires) {
    Race *r = race_of(w);
    uint16_t t = race_thread(w);
    Knowledge from = f->knowledge;
    if (acquires) {
        lanes_acquire(r, w, lanes, from);
        return;
    }
    knowledge_join(r, race_hold(r, &r->thread[t].acquirable, lanes)->knows, from);
}

void race_flag(Warp *w, RaceCta *c, const uint32_t offset[WARP_SIZE], uint32_t mask, bool reads,
               bool writes, RaceOrder order) {
    Race *r = c->race;
    uint16_t t = race_thread(w);
    bool acquires = order == RACE_ACQUIRE || order == RACE_ACQ_REL;
    bool releases = order == RACE_RELEASE || order == RACE_ACQ_REL;
    r->flagged |= releases;
    if (!r->flagged) return; // nobody has released anything
    uint64_t words[WARP_SIZE];
    for (int l = 0; l < WARP_SIZE; l++) words[l] = offset[l] / 4 + 1;
    for (uint32_t rest = mask, lanes; rest; rest &= ~lanes) {
        lanes = lanes_at_first(words, rest);
        uint32_t word = (uint32_t)words[__builtin_ctz(rest)];
        RaceFlag *f = reads ? find_flag(c, word) : NULL;
        if (f && f->word) take_flag(w, lanes, f, acquires);
        if (!writes) continue;
        const RaceHeld *released = &r->thread[t].released;
        if (!releases && !(released->lanes & lanes)) continue;
        Knowledge to = add_flag(c, word)->knowledge;
        if (releases)
            lanes_publish(r, w, lanes, to);
        else
            knowledge_join(r, to, released->knows);
    }
    if (writes && releases) lanes_released(r, w, mask);
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
    lanes_learn(r, w, 1u << lane, thread, slot->last - 1);
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
    uint32_t seen = race_vector(r, lane_knowledge(r, t, lane), SEEN)[b->thread];
    bool far = asynchronous || cta != w->cta;
    if (cta != w->cta && !asynchronous) race_reached(cta->race, w, i, t, r->thread[t].clock);
    if (seen >= b->base + 1u + far) return;
    report_init(w, i, lane, cta, address, b, seen == b->base + 1);
    lanes_learn(r, w, FULL_MASK, b->thread, b->base + 2); // once is enough
}

void race_mbarrier_arrive(Warp *w, uint32_t lanes, Cta *cta, uint32_t address) {
    RaceMbarrier *b = race_on(w) ? object_at(cta, address) : NULL;
    if (b) lanes_release(race_of(w), w, lanes, b->pending);
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
                        bool by_parity, uint32_t done, bool acquires) {
    RaceMbarrier *b = race_on(w) ? object_at(cta, address) : NULL;
    if (!b) return;
    Race *r = race_of(w);
    uint16_t t = race_thread(w);
    uint32_t seen = warp_knows(r, t, b->thread), start = b->base + 2;
    uint64_t known = seen > start ? seen - start : 0, phases = slot_of(r, b->thread)->last - start;
    uint16_t entry = b->thread;
    Knowledge from = b->completed;
    if (by_parity && phases > known + 1) {
        report_skipped(w, i, lane, address, known, phases);
        lanes_learn(r, w, FULL_MASK, entry, start + (uint32_t)phases);
    }
    if (!done) return;
    if (acquires) {
        lanes_acquire(r, w, done, from);
        return;
    }
    // A relaxed wait learns of the phase; what it orders, a fence makes known.
    lanes_learn(r, w, FULL_MASK, entry, start + (uint32_t)phases);
    knowledge_join(r, race_hold(r, &r->thread[t].acquirable, done)->knows, from);
}

void race_agent_to_mbarrier(const RaceAgent *a, Cta *cta, uint32_t address) {
    RaceMbarrier *b = agent_is(a) ? object_at(cta, address) : NULL;
    if (!b) return;
    uint32_t *pending = race_vector(a->race, b->pending, SEEN) + a->thread;
    if (*pending < a->clock) *pending = a->clock;
}

// ---- cp.async.mbarrier.arrive

RaceStamp race_async_arrive(Warp *w, uint32_t lanes) {
    if (!race_on(w)) return (RaceStamp){0};
    Race *r = race_of(w);
    const struct RaceThread *thread = &r->thread[race_thread(w)];
    RaceStamp stamp = {thread->clock, thread->copies};
    lanes_released(r, w, lanes);
    return stamp;
}

void race_async_arrived(Warp *w, Cta *cta, uint32_t address, RaceStamp stamp) {
    RaceMbarrier *b = race_on(w) ? object_at(cta, address) : NULL;
    if (!b) return;
    Race *r = race_of(w);
    uint32_t *pending = race_vector(r, b->pending, SEEN);
    uint16_t t = race_thread(w), copies = r->thread[t].copy_entry;
    if (pending[t] < stamp.clock) pending[t] = stamp.clock;
    if (copies && pending[copies] < stamp.copies) pending[copies] = stamp.copies;
}
