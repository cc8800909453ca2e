// The race check (race.h): a cluster's state comes and goes with its CTAs; accesses of warps and of
// agents.
#include "softgpu/check/race_global_parts.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/cluster.h"
#include "softgpu/machine/parts.h"
#include "softgpu/machine/ranges.h"

// ---- CTAs

static void free_logs(Race *r) {
    for (int t = 0; t < 2 * r->thread_capacity; t++) {
        free(r->logs[t].ring);
        free(r->logs[t].knows);
        free(r->logs[t].owners);
    }
    free(r->logs);
}

// Makes the state of a new cluster, in the memory of an old one if there is any.
static void race_reset(Race *r, const Cta *cta, int threads) {
    r->kernel = cta->launch->launch->kernel;
    r->generation++;
    clocks_reset(r, threads);
    if (r->thread_capacity < threads) {
        free(r->thread);
        r->thread = allocate((size_t)threads * sizeof *r->thread);
        free_logs(r);
        r->logs = calloc(2 * (size_t)threads, sizeof *r->logs);
        if (!r->logs) abort();
        r->thread_capacity = threads;
        for (int t = threads; t < 2 * threads; t++) r->logs[t].global = true;
    }
    memset(r->thread, 0, (size_t)threads * sizeof *r->thread);
    for (int t = 0; t < threads; t++) {
        r->thread[t].clock = 1;
        log_reset(&r->logs[t]);
        log_reset(&r->logs[r->thread_capacity + t]);
    }
    memset(r->memo, 0, sizeof r->memo);
    memset(r->reported, 0, sizeof r->reported);
    r->mbarrier_count = 1;
    r->cluster_pending = r->cluster_completed = r->meeting = 0;
    r->node_count = r->nodes ? 1 : 0;
    r->bytes_count = r->bytes_free = 0;
    r->cta_count = 0;
}

void race_cta_start(Cta *cta) {
    if (!(cta->launch->checks & CHECK_RACE)) return;
    if (!cta->race) {
        cta->race = allocate(sizeof *cta->race);
        memset(cta->race, 0, sizeof *cta->race);
        cta->race->cta = cta;
    }
    RaceCta *c = cta->race;
    Cta *leader = cta->cluster->ctas[0];
    if (leader == cta) {
        if (!c->own) {
            c->own = allocate(sizeof *c->own);
            memset(c->own, 0, sizeof *c->own);
        }
        c->race = c->own;
        race_reset(c->race, cta, cta->warp_count * cta->cluster->size);
        global_cluster_start(c->race, cta);
    } else {
        c->race = leader->race->race;
    }
    c->first = (int)cta->cluster_rank * cta->warp_count;
    c->race->ctas[c->race->cta_count++] = c;
    memset(c->bars, 0, sizeof c->bars);
    c->exited = 0;
    if (c->flag_count) memset(c->flags, 0, c->flag_capacity * sizeof *c->flags);
    c->flag_count = 0;
    shadow_reset(c);
    race_reach_reset(c);
}

void race_cta_free(Cta *cta) {
    RaceCta *c = cta->race;
    if (!c) return;
    Race *r = c->own;
    if (r) {
        free(r->vectors);
        free(r->slots);
        free(r->mbarriers);
        free(r->thread);
        free_logs(r);
        for (RaceCta *c = r->windows, *next; c; c = next) {
            next = c->next;
            free(c);
        }
        free(r->bulk);
        free(r->nodes);
        free(r->bytes);
        free(r);
    }
    free(c->last);
    free(c->flags);
    free(c->reach);
    free(c);
    cta->race = NULL;
}

// ---- accesses of warps

static bool writes(RaceAccess access) {
    return access != RACE_READ && access != RACE_STRONG_READ && access != RACE_TILE_READ;
}

static RacePass pass_of(Warp *w, const Insn *i, Cta *cta, RaceAccess access) {
    Race *r = race_of(w);
    uint16_t t = race_thread(w);
    bool strong = access >= RACE_STRONG_READ && access <= RACE_ATOMIC;
    return (RacePass){
        .race = r,
        .cta = cta->race,
        .w = w,
        .insn = i,
        .knowledge = t,
        .lane = -1,
        .node = {.thread = t,
                 .flags = strong                ? NODE_STRONG
                          : access == RACE_COPY ? NODE_COPY
                                                : 0,
                 .clock = r->thread[t].clock,
                 .insn = i->index},
        .write = writes(access),
    };
}

void race_enter_lanes(RacePass *pass, const uint32_t offset[WARP_SIZE], unsigned size,
                      uint32_t mask) {
    uint64_t wide[WARP_SIZE];
    Ranges ranges;
    pass->offset = offset;
    pass->size = size;
    pass->mask = mask;
    for (int l = 0; l < WARP_SIZE; l++) wide[l] = offset[l];
    ranges_of(&ranges, wide, size, mask);
    race_begin(pass);
    for (int k = 0; k < ranges.count; k++) {
        uint32_t low = (uint32_t)ranges.range[k].begin;
        race_enter(pass, low, low + (uint32_t)ranges.range[k].bytes);
    }
}

// Keeps the access for as long as not all lanes know of it.
static void log_pass(const RacePass *p, const uint32_t offset[WARP_SIZE], unsigned size,
                     uint32_t mask, RaceAccess access) {
    LaneAccess a = {.cta = p->cta,
                    .insn = p->insn,
                    .clock = p->node.clock,
                    .rows = mask,
                    .mask = mask,
                    .size = size,
                    .write = p->write,
                    .strong = p->node.flags & NODE_STRONG,
                    .copy = p->node.flags & NODE_COPY,
                    .tile = access >= RACE_TILE_READ};
    uint32_t low = ~0u, high = 0, all = mask == FULL_MASK;
    for (int l = 0; l < WARP_SIZE; l++) {
        a.offset[l] = offset[l];
        if (!all && !(mask >> l & 1)) continue;
        low = offset[l] < low ? offset[l] : low;
        high = offset[l] > high ? offset[l] : high;
    }
    a.low = low;
    a.high = high + size;
    if (a.tile) a.mask = p->w->live;
    log_add(&p->race->logs[p->node.thread], &a);
}

void race_shared(Warp *w, const Insn *i, Cta *cta, const uint32_t offset[WARP_SIZE], unsigned size,
                 uint32_t mask, RaceAccess access, RaceOrder order) {
    RacePass pass = pass_of(w, i, cta, access);
    const struct RaceThread *thread = &pass.race->thread[pass.node.thread];
    bool tile = access >= RACE_TILE_READ;
    if (cta != w->cta) race_reached(cta->race, w, i, pass.node.thread, pass.node.clock);
    uint32_t rest = mask;
    for (int k = 0; !tile && k < thread->class_count && rest; k++) {
        uint32_t part = rest & thread->classes[k].mask;
        if (!part) continue;
        RacePass of_class = pass;
        of_class.knowledge = thread->classes[k].knowledge;
        race_enter_lanes(&of_class, offset, size, part);
        if (of_class.unmet) log_check(&of_class, tile);
        rest &= ~part;
    }
    if (rest) {
        race_enter_lanes(&pass, offset, size, rest);
        if (pass.unmet) log_check(&pass, tile);
    }
    log_pass(&pass, offset, size, mask, access);
    if (access < RACE_STRONG_READ || access > RACE_ATOMIC) return;
    race_flag(w, cta->race, offset, mask, access != RACE_STRONG_WRITE, pass.write, order);
}

void race_copy_landed(Warp *w, const Insn *i, const uint32_t offset[WARP_SIZE], unsigned size,
                      uint32_t mask) {
    if (!race_on(w)) return;
    RacePass pass = pass_of(w, i, w->cta, RACE_COPY);
    pass.quiet = true; // others' accesses since the issue are found by closed.h
    race_enter_lanes(&pass, offset, size, mask);
    log_pass(&pass, offset, size, mask, RACE_COPY);
}

// ---- agents

static bool uses_async_proxy(RaceAgentKind kind) {
    return kind != RACE_ST_ASYNC && kind != RACE_RED_ASYNC;
}

RaceAgent race_agent_open(Warp *w, const Insn *i, int lane, RaceAgentKind kind) {
    if (!race_on(w)) return (RaceAgent){0};
    Race *r = race_of(w);
    r->proxies |= uses_async_proxy(kind);
    RaceAgent a = {.kind = kind,
                   .thread = slot_for_agent(r, lane_knowledge(r, race_thread(w), lane)),
                   .lane = lane,
                   .race = r,
                   .generation = r->generation,
                   .insn = i,
                   .issuers = {w},
                   .issuer_count = 1};
    RaceSlot *slot = slot_of(r, a.thread);
    slot->open++;
    a.clock = ++slot->last;
    return a;
}

void race_agent_issue(RaceAgent *a, Warp *const *warps, int count, const Insn *i) {
    if (!agent_is(a)) return;
    a->insn = i;
    a->issuer_count = count;
    memcpy(a->issuers, warps, (size_t)count * sizeof *warps);
    if (count == 1) return;
    if (!a->race->meeting) a->race->meeting = knowledge_new(a->race);
    knowledge_meet(a->race, a->race->meeting, warps, count);
}

void race_agent_access(RaceAgent *a, Cta *cta, uint32_t low, uint32_t high, RaceAccess access) {
    if (!agent_is(a) || low >= high) return;
    Race *r = a->race;
    bool reduces = a->kind == RACE_TMA_REDUCE || a->kind == RACE_RED_ASYNC;
    RacePass pass = {
        .race = r,
        .cta = cta->race,
        .w = a->issuers[0],
        .insn = a->insn,
        .knowledge = a->issuer_count > 1 ? r->meeting
                                         : lane_knowledge(r, race_thread(a->issuers[0]), a->lane),
        .lane = a->lane,
        .alone = a->issuer_count == 1,
        .node = {.thread = a->thread,
                 .kind = (uint8_t)a->kind,
                 .flags = (uint8_t)((uses_async_proxy(a->kind) ? NODE_ASYNC_PROXY : 0) |
                                    (reduces && access == RACE_WRITE ? NODE_STRONG : 0)),
                 .clock = a->clock,
                 .insn = a->insn->index},
        .write = access != RACE_READ,
    };
    if (cta != pass.w->cta) race_reached(cta->race, pass.w, a->insn, a->thread, a->clock);
    race_begin(&pass);
    race_enter(&pass, low, high);
}

void race_agent_to_warp(const RaceAgent *a, Warp *w, uint32_t lanes) {
    if (agent_is(a)) lanes_learn(a->race, w, lanes, a->thread, a->clock);
}

void race_agent_close(RaceAgent *a) {
    if (agent_is(a)) slot_of(a->race, a->thread)->open--;
    a->kind = RACE_NO_AGENT;
}
