// The race check of global memory (race_global.h): a launch, its logs, what is entered.
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/check/race_global_parts.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/parts.h"

// An access that waits for the end of the round.
typedef struct {
    uint64_t low, high, begin;
    Warp *w;
    const Insn *insn;
    const struct GlobalCluster *cluster;
    uint32_t clock, mask;
    uint32_t knows; // where in the log's words: entries, with PASSED or not, SEEN, PASSED
    uint16_t thread;
    uint8_t kind, flags, size;
    bool write, quiet, observes;
} GlobalRecord;

// Of an SM: those of the clusters whose first block it runs.
struct GlobalLog {
    GlobalRecord *records;
    size_t count, capacity;
    uint32_t *words;
    size_t word_count, word_capacity;
    uint32_t epoch; // counts the rounds, from 1 on
};

static void *resized(void *old, size_t size) {
    void *p = realloc(old, size);
    if (!p) abort();
    return p;
}

// ---- a launch and its clusters

// Lists the allocations that the kernel may write.
static void list_written(struct GlobalRaces *g, const Launch *launch) {
    const KernelWrites *writes = &launch->kernel->writes;
    struct GlobalMemory *m = g->launch->gpu->memory;
    if (!writes->known) return;
    g->written = calloc((size_t)writes->count + 1, sizeof *g->written);
    if (!g->written) abort();
    for (int k = 0; k < writes->count; k++) {
        uint64_t pointer;
        memcpy(&pointer, (const uint8_t *)launch->params + writes->params[k], sizeof pointer);
        const Allocation *a = global_find(m, pointer);
        if (!a) a = global_find(m, pointer - 1); // the end of an array
        if (a) g->written[g->written_count++] = a;
        if (a || pointer < 1ull << 32 || pointer >> 47) continue; // or a number: no memory is there
        free(g->written);
        g->written = NULL;
        return;
    }
}

bool race_writes(const LaunchState *launch, const Allocation *a) {
    const struct GlobalRaces *g = launch->races;
    if (!g || !g->written) return true;
    if (a->kind == MEMORY_MODULE && launch->launch->kernel->writes.variables) return true;
    for (int k = 0; k < g->written_count; k++)
        if (g->written[k] == a) return true;
    return false;
}

void global_races_begin(LaunchState *launch) {
    launch->races = NULL;
    for (int s = 0; s < launch->gpu->figures.sms; s++) {
        struct GlobalLog *log = launch->gpu->sm[s].global_log;
        if (log) log->count = log->word_count = 0; // of a launch that failed
    }
    if (!(launch->checks & CHECK_RACE)) return;
    struct GlobalRaces *g = allocate(sizeof *g);
    memset(g, 0, sizeof *g);
    g->launch = launch;
    global_order_begin(g, launch->grid_size);
    list_written(g, launch->launch);
    launch->races = g;
}

void global_races_end(LaunchState *launch) {
    struct GlobalRaces *g = launch->races;
    if (!g) return;
    for (struct GlobalCluster *c = g->clusters, *next; c; c = next) {
        next = c->next;
        for (int k = 0; k < c->slot_count; k++) free(c->slots[k].trees);
        free(c->slots);
        free(c);
    }
    global_shadow_free(g);
    global_order_free(g);
    free(g->written);
    free(g);
    launch->races = NULL;
}

void global_cluster_start(Race *r, Cta *leader) {
    struct GlobalRaces *g = leader->launch->races;
    r->info = NULL;
    r->global_scratch = 0;
    r->bulk_count = 0;
    r->sm = leader->sm;
    if (!g) return;
    struct GlobalCluster *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->number = (uint32_t)leader->linear;
    c->next = g->clusters;
    g->clusters = r->info = c;
}

// ---- logs

void global_races_free(Sm *sm) {
    struct GlobalLog *log = sm->global_log;
    if (!log) return;
    free(log->records);
    free(log->words);
    free(log);
    sm->global_log = NULL;
}

static struct GlobalLog *log_of(Race *r) {
    if (r->sm->global_log) return r->sm->global_log;
    struct GlobalLog *log = resized(NULL, sizeof *log);
    *log = (struct GlobalLog){.epoch = 1};
    return r->sm->global_log = log;
}

// Where the log has what is known; of the warp's last access, if that is still so.
static uint32_t keep_knowledge(struct GlobalLog *log, Race *r, uint16_t t, Knowledge k) {
    struct RaceThread *thread = &r->thread[t];
    uint32_t used = (uint32_t)r->used, bytes = used * (uint32_t)sizeof *log->words;
    const uint32_t *seen = race_vector(r, k, SEEN), *passed = race_vector(r, k, PASSED);
    if (thread->kept_epoch == log->epoch) {
        const uint32_t *kept = &log->words[thread->kept];
        if (kept[0] == used && kept[1] == r->fenced && !memcmp(kept + 2, seen, bytes) &&
            (!r->fenced || !memcmp(kept + 2 + used, passed, bytes)))
            return thread->kept;
    }
    size_t size = 2 + 2 * (size_t)used;
    if (log->word_count + size > log->word_capacity) {
        log->word_capacity = 2 * (log->word_capacity + size);
        log->words = resized(log->words, log->word_capacity * sizeof *log->words);
    }
    uint32_t *words = &log->words[log->word_count];
    words[0] = used;
    words[1] = r->fenced;
    memcpy(words + 2, seen, bytes);
    if (r->fenced) memcpy(words + 2 + used, passed, bytes);
    thread->kept = (uint32_t)log->word_count;
    thread->kept_epoch = log->epoch;
    log->word_count += 2 + (size_t)used * (1 + r->fenced);
    return thread->kept;
}

void global_races_merge(Sm *sm) {
    struct GlobalLog *log = sm->global_log;
    if (!log || !log->count) return;
    for (size_t k = 0; k < log->count; k++) {
        const GlobalRecord *record = &log->records[k];
        const uint32_t *knows = &log->words[record->knows];
        GlobalAccess a = {.races = sm->launch->races,
                          .w = record->w,
                          .insn = record->insn,
                          .cluster = record->cluster,
                          .node = {.cluster = record->cluster->number,
                                   .clock = record->clock,
                                   .insn = record->insn->index,
                                   .thread = record->thread,
                                   .kind = record->kind,
                                   .flags = record->flags},
                          .write = record->write,
                          .quiet = record->quiet,
                          .observes = record->observes,
                          .seen = knows + 2,
                          .passed = knows[1] ? knows + 2 + knows[0] : NULL,
                          .used = knows[0],
                          .mask = record->mask,
                          .size = record->size,
                          .begin = record->begin};
        global_enter(&a, record->low, record->high);
    }
    log->count = log->word_count = 0;
    log->epoch++;
}

// ---- entering

// One instruction's accesses.
typedef struct {
    Race *race;
    Warp *w;
    const Insn *insn;
    Knowledge knows;
    uint32_t clock;
    uint16_t thread;
    uint8_t kind, flags;
    bool write, quiet, observes;
    uint32_t mask, size; // whose bytes, as GlobalAccess
    uint64_t begin;
} Entry;

static void enter(const Entry *e, uint64_t low, uint64_t high) {
    Race *r = e->race;
    Sm *sm = e->w->sm;
    if (sm->launch->many_sms && !sm->serial) {
        struct GlobalLog *log = log_of(r);
        if (log->count == log->capacity) {
            log->capacity = log->capacity ? 2 * log->capacity : 256;
            log->records = resized(log->records, log->capacity * sizeof *log->records);
        }
        uint32_t knows = keep_knowledge(log, r, race_thread(e->w), e->knows);
        log->records[log->count++] = (GlobalRecord){.low = low,
                                                    .high = high,
                                                    .begin = e->begin,
                                                    .w = e->w,
                                                    .insn = e->insn,
                                                    .cluster = r->info,
                                                    .clock = e->clock,
                                                    .mask = e->mask,
                                                    .knows = knows,
                                                    .thread = e->thread,
                                                    .kind = e->kind,
                                                    .flags = e->flags,
                                                    .size = (uint8_t)e->size,
                                                    .write = e->write,
                                                    .quiet = e->quiet,
                                                    .observes = e->observes};
        return;
    }
    GlobalAccess a = {.races = sm->launch->races,
                      .w = e->w,
                      .insn = e->insn,
                      .cluster = r->info,
                      .node = {.cluster = r->info->number,
                               .clock = e->clock,
                               .insn = e->insn->index,
                               .thread = e->thread,
                               .kind = e->kind,
                               .flags = e->flags},
                      .write = e->write,
                      .quiet = e->quiet,
                      .observes = e->observes,
                      .seen = race_vector(r, e->knows, SEEN),
                      .passed = r->fenced ? race_vector(r, e->knows, PASSED) : NULL,
                      .used = (uint32_t)r->used,
                      .mask = e->mask,
                      .size = e->size,
                      .begin = e->begin};
    global_enter(&a, low, high);
}

// ---- generic accesses

enum { WINDOW_BITS = 31 };

// Where the lanes' offsets count from (race_log.c has 32 bits for them): the same for neighbours.
// NULL if the lanes are too far apart.
static RaceCta *window_of(Race *r, const uint64_t address[WARP_SIZE], uint32_t mask) {
    uint64_t base = address[__builtin_ctz(mask)] >> WINDOW_BITS << WINDOW_BITS, far = 0;
    for (int l = 0; l < WARP_SIZE; l++) far |= (address[l] - base) & -(uint64_t)(mask >> l & 1);
    if (far >> WINDOW_BITS) return NULL;
    for (RaceCta *c = r->windows; c; c = c->next)
        if (c->base == base) return c;
    RaceCta *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->race = r;
    c->base = base;
    c->next = r->windows;
    return r->windows = c;
}

static bool is_write(RaceAccess access) {
    return access != RACE_READ && access != RACE_STRONG_READ && access != RACE_TILE_READ;
}

// Has another lane of the warp accessed these bytes, and this one doesn't know? (Findings.)
static void check_lanes(const Entry *e, RaceCta *window, const uint32_t offset[WARP_SIZE],
                        uint32_t mask, bool tile) {
    Race *r = e->race;
    uint16_t t = race_thread(e->w); // e->thread may stand for its copies
    const LaneLog *log = &r->logs[r->thread_capacity + t];
    if (log->first == log->next || !(e->write || log->written)) return;
    RacePass pass = {.race = r,
                     .cta = window,
                     .w = e->w,
                     .insn = e->insn,
                     .knowledge = e->knows,
                     .node = {.thread = t,
                              .flags = e->flags & GLOBAL_STRONG ? NODE_STRONG : 0,
                              .clock = r->thread[t].clock,
                              .insn = e->insn->index},
                     .write = e->write,
                     .lane = -1,
                     .offset = offset,
                     .size = e->size,
                     .mask = mask};
    pass.vectors[SEEN] = race_vector(r, e->knows, SEEN);
    if (log->ring[(log->next - 1) % log->capacity].clock > pass.vectors[SEEN][t])
        log_check(&pass, tile);
}

// `ranges`: of these lanes, or NULL.
static void enter_lanes(Entry e, RaceCta *window, const uint64_t address[WARP_SIZE],
                        const uint32_t offset[WARP_SIZE], uint32_t mask, const Ranges *ranges,
                        bool tile) {
    Ranges own;
    if (window) check_lanes(&e, window, offset, mask, tile);
    if (!ranges) {
        ranges_of(&own, address, e.size, mask);
        ranges = &own;
    }
    uint32_t rest = mask, lanes = (uint32_t)__builtin_popcount(mask);
    for (int k = 0; k < ranges->count; k++) {
        const Range *range = &ranges->range[k];
        e.begin = range->begin;
        // Ranges are in the order of lanes: one is of all, or each has one.
        e.mask = ranges->count == 1 ? mask : (uint32_t)ranges->count == lanes ? rest & -rest : 0;
        rest &= rest - 1;
        enter(&e, range->begin, range->begin + range->bytes);
    }
}

void race_global(Warp *w, const Insn *i, const uint64_t address[WARP_SIZE], const Ranges *ranges,
                 unsigned size, uint32_t mask, GlobalKind kind) {
    Race *r = race_of(w);
    if (!r->info) return;
    uint16_t t = race_thread(w);
    const struct RaceThread *thread = &r->thread[t];
    bool strong = kind.access >= RACE_STRONG_READ && kind.access <= RACE_ATOMIC;
    bool tile = kind.access >= RACE_TILE_READ;
    RaceCta *window = window_of(r, address, mask);
    if (kind.copies && !r->thread[t].copy_entry) r->thread[t].copy_entry = slot_for_others(r);
    LaneAccess a = {.cta = window,
                    .insn = i,
                    .clock = thread->clock,
                    .rows = mask,
                    .mask = mask,
                    .size = size,
                    .write = is_write(kind.access),
                    .strong = strong,
                    .tile = tile};
    uint32_t low = ~0u, high = 0;
    for (int l = 0; l < WARP_SIZE; l++) {
        uint32_t offset = (uint32_t)(address[l] - (window ? window->base : 0));
        uint32_t off = (mask >> l & 1) - 1u; // of a lane that takes no part: all ones
        a.offset[l] = offset;
        low = (offset | off) < low ? offset : low;
        high = (offset & ~off) > high ? offset : high;
    }
    a.low = low;
    a.high = high + size;
    Entry e = {.race = r,
               .w = w,
               .insn = i,
               .knows = t,
               .clock = thread->clock,
               .thread = t,
               .flags = (uint8_t)((strong ? GLOBAL_STRONG : 0) |
                                  (strong && kind.narrow ? GLOBAL_NARROW : 0)),
               .write = a.write,
               .observes = kind.access == RACE_ATOMIC && !kind.blind,
               .size = size};
    if (kind.copies) {
        e.thread = thread->copy_entry;
        e.clock = ++r->thread[t].copies;
        e.kind = RACE_CP_ASYNC;
    }
    uint32_t rest = mask;
    for (int k = 0; !tile && k < thread->class_count && rest; k++) {
        uint32_t part = rest & thread->classes[k].mask;
        if (!part) continue;
        e.knows = thread->classes[k].knowledge;
        enter_lanes(e, window, address, a.offset, part, NULL, tile);
        rest &= ~part;
    }
    e.knows = t;
    if (rest) enter_lanes(e, window, address, a.offset, rest, rest == mask ? ranges : NULL, tile);
    if (window) {
        if (tile) a.mask = w->live;
        log_add(&r->logs[r->thread_capacity + t], &a);
    }
    if (strong && !kind.updates)
        race_global_flag(w, address, size, a.write ? 0 : mask, a.write ? mask : 0, kind);
}

uint32_t race_copies(const Warp *w) {
    return race_on(w) ? race_of(w)->thread[race_thread(w)].copies : 0;
}

void race_copies_read(Warp *w, uint32_t lanes, uint32_t copies) {
    if (!race_on(w) || !copies) return;
    Race *r = race_of(w);
    uint16_t entry = r->thread[race_thread(w)].copy_entry;
    if (entry) lanes_learn(r, w, lanes, entry, copies);
}

void global_enter_again(Race *r, Warp *w, const LaneAccess *a, uint32_t lanes, bool fenced) {
    uint64_t address[WARP_SIZE];
    Ranges ranges;
    for (int l = 0; l < WARP_SIZE; l++) address[l] = a->cta->base + a->offset[l];
    ranges_of(&ranges, address, a->size, lanes);
    Entry e = {.race = r,
               .w = w,
               .insn = a->insn,
               .knows = race_thread(w),
               .clock = a->clock,
               .thread = race_thread(w),
               .flags = (uint8_t)((a->strong ? GLOBAL_STRONG : 0) | (fenced ? GLOBAL_FENCED : 0)),
               .write = a->write,
               .quiet = true};
    for (int k = 0; k < ranges.count; k++)
        enter(&e, ranges.range[k].begin, ranges.range[k].begin + ranges.range[k].bytes);
}

// ---- bulk copies

// What other lanes of its warp have done is for the issuing lane to know, too.
static void check_issuer(const Entry *e, int lane, uint64_t address, uint64_t bytes) {
    Race *r = e->race;
    uint16_t t = race_thread(e->w);
    uint64_t all[WARP_SIZE];
    for (int l = 0; l < WARP_SIZE; l++) all[l] = address;
    const LaneLog *log = &r->logs[r->thread_capacity + t];
    if (log->first == log->next) return;
    RaceCta *window = window_of(r, all, 1);
    uint32_t offset = (uint32_t)(address - window->base);
    RacePass pass = {.race = r,
                     .cta = window,
                     .w = e->w,
                     .insn = e->insn,
                     .knowledge = e->knows,
                     .node = {.thread = e->thread, .kind = e->kind, .clock = e->clock},
                     .write = e->write,
                     .lane = lane};
    pass.vectors[SEEN] = race_vector(r, e->knows, SEEN);
    const LaneAccess *earlier = log_meets(&pass, offset, offset + (uint32_t)bytes);
    if (!earlier) return;
    char where[200];
    global_place(e->w, address, where, sizeof where);
    finding_pair(
        e->w, e->insn, lane, FINDING_RACE, earlier->insn,
        "Let the lanes of the warp meet (__syncwarp, bar.warp.sync, or a barrier) between the two: "
        "that they execute together orders nothing in memory.",
        "%s %s, which other lanes of its warp %s: nothing puts the two in order",
        e->write ? "writes to" : "reads", where, earlier->write ? "write" : "read");
}

void race_agent_global(const RaceAgent *agent, uint64_t address, uint64_t bytes) {
    if (!agent_is(agent) || !bytes || !agent->race->info) return;
    Warp *w = agent->issuers[0];
    const Allocation *a = global_find(w->sm->gpu->memory, address);
    if (a && !race_writes(w->sm->launch, a)) return;
    Entry e = {.race = agent->race,
               .w = w,
               .insn = agent->insn,
               .knows = lane_knowledge(agent->race, race_thread(w), agent->lane),
               .clock = agent->clock,
               .thread = agent->thread,
               .kind = (uint8_t)agent->kind,
               .flags = GLOBAL_ASYNC};
    check_issuer(&e, agent->lane, address, bytes);
    enter(&e, address, address + bytes);
}

// The entry that stands for what a lane's bulk stores write: its clock counts their groups.
static uint16_t bulk_entry(Race *r, uint16_t t, int lane, bool make) {
    for (int k = 0; k < r->bulk_count; k++)
        if (r->bulk[k].thread == t && r->bulk[k].lane == lane) return r->bulk[k].entry;
    if (!make) return 0;
    if (r->bulk_count == r->bulk_capacity) {
        r->bulk_capacity = r->bulk_capacity ? 2 * r->bulk_capacity : 8;
        r->bulk = resized(r->bulk, (size_t)r->bulk_capacity * sizeof *r->bulk);
    }
    uint16_t entry = slot_for_others(r);
    r->bulk[r->bulk_count++] = (struct RaceBulk){t, entry, lane};
    return entry;
}

void race_bulk_store(Warp *w, const Insn *i, int lane, uint32_t group, uint64_t address,
                     uint64_t bytes, bool reduces) {
    Race *r = race_of(w);
    if (!bytes || !r->info) return;
    uint16_t entry = bulk_entry(r, race_thread(w), lane, true);
    Entry e = {.race = r,
               .w = w,
               .insn = i,
               .knows = lane_knowledge(r, race_thread(w), lane),
               .clock = group + 1,
               .thread = entry,
               .kind = (uint8_t)(reduces ? RACE_TMA_REDUCE : RACE_TMA_STORE),
               .flags = (uint8_t)(GLOBAL_ASYNC | (reduces ? GLOBAL_STRONG : 0)),
               .write = true};
    check_issuer(&e, lane, address, bytes);
    enter(&e, address, address + bytes);
}

void race_bulk_written(Warp *w, int lane, uint32_t group) {
    Race *r = race_of(w);
    uint16_t entry = bulk_entry(r, race_thread(w), lane, false);
    if (entry) lanes_learn(r, w, 1u << lane, entry, group);
}
