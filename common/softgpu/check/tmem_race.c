// Who accesses which cells of tensor memory, and in what order (tmem_race.h).
#include "softgpu/check/tmem_race.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/check/race_parts.h"
#include "softgpu/execute/descriptor.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/mbarrier.h"
#include "softgpu/machine/parts.h"

enum { READS = 3, REPORTED = 64, CHUNK_WORDS = (1 << 18) / CHUNK / 64 };

typedef struct {
    uint16_t thread;
    uint8_t access; // TmemAccess
    uint32_t clock; // 0: nobody
    uint64_t chain; // of a product; of a copy: TensorIssuer.issues, its thread << 32 | clock
    const Insn *insn;
} Stamp;
typedef struct {
    Stamp write, reads[READS];
} Granule;

struct TmemShadow {
    Granule granule[TMEM_COLUMNS][TMEM_GROUPS];
    uint64_t epoch; // accesses entered so far
    struct {
        const Insn *insn, *other;
    } reported[REPORTED];
};

void tmem_shadow_clear(Tmem *m, uint32_t column, uint32_t columns) {
    if (m->shadow) memset(m->shadow->granule[column], 0, columns * sizeof *m->shadow->granule);
}

void tmem_shadow_free(Tmem *m) {
    free(m->shadow);
    m->shadow = NULL;
}

static struct TmemShadow *shadow_of(Cta *cta) {
    Tmem *m = tmem_of(cta->sm);
    if (m->shadow) return m->shadow;
    m->shadow = allocate(sizeof *m->shadow);
    memset(m->shadow, 0, sizeof *m->shadow);
    m->shadow->epoch = 1; // 0 is none
    return m->shadow;
}

// ---- agents

static void agent_prepare(RaceAgent *a, Warp *w, int lane, const Insn *i) {
    if (agent_is(a)) return;
    *a = race_agent_open(w, i, lane, RACE_TCGEN05);
    a->race->tensor = true;
}

// What it does from now on is something else.
static void agent_next(RaceAgent *a) {
    a->clock = ++slot_of(a->race, a->thread)->last;
}

// Of a lane; -1: what all lanes of the warp know.
static uint32_t *vector_of(const Warp *w, int lane, RaceVector v) {
    Race *r = race_of(w);
    return race_vector(r, lane_knowledge(r, race_thread(w), lane), v);
}

static void raise_to(uint32_t *entry, uint32_t clock) {
    if (*entry < clock) *entry = clock;
}

// ---- may it follow?

typedef struct {
    Warp *w;
    int lane; // -1: the whole warp
    struct TmemShadow *shadow;
    const uint32_t *known, *seen;
    uint32_t column, group; // where
    Stamp stamp;
    bool writes, frees;
} Pass;

static bool is_copy(uint8_t access) {
    return access == TMEM_COPY || access == TMEM_COPY_SPREAD;
}
static bool is_product(uint8_t access) {
    return access == TMEM_ACCUMULATE || access == TMEM_OPERAND || access == TMEM_SHIFT_A;
}

// Accesses of one queue that its pipe keeps in order.
static bool is_piped(const Pass *p, const Stamp *earlier) {
    uint8_t now = p->stamp.access, then = earlier->access;
    if (is_product(now) && is_copy(then) &&
        p->known[earlier->chain >> 32] >= (uint32_t)earlier->chain)
        return true;
    if (p->stamp.thread != earlier->thread) return false;
    bool chained = p->stamp.chain == earlier->chain;
    switch ((TmemAccess)now) {
    case TMEM_ACCUMULATE:
        return then == TMEM_OPERAND || is_copy(then) || then == TMEM_SHIFT ||
               (is_product(then) && chained);
    case TMEM_OPERAND:
        return is_copy(then) || then == TMEM_SHIFT || (then == TMEM_SHIFT_A && chained);
    case TMEM_SHIFT_A:
        return then == TMEM_SHIFT || then == TMEM_OPERAND || (then == TMEM_SHIFT_A && chained);
    case TMEM_SHIFT: return is_product(then);
    case TMEM_COPY_SPREAD: return then == TMEM_SHIFT;
    default: return false;
    }
}

// Has a product of this thread, which the shift comes behind, read the cells since they were last
// written? That it may has been asked: then so may the shift.
static bool is_behind_reader(const Pass *p, const Granule *g) {
    if (p->stamp.access != TMEM_SHIFT && p->stamp.access != TMEM_SHIFT_A) return false;
    for (int k = 0; k < READS; k++) {
        const Stamp *r = &g->reads[k];
        if (r->clock && r->access == TMEM_OPERAND && is_piped(p, r)) return true;
    }
    return false;
}

static const char *name_of(uint8_t access) {
    switch ((TmemAccess)access) {
    case TMEM_LOAD: return "a tcgen05.ld";
    case TMEM_STORE: return "a tcgen05.st";
    case TMEM_ACCUMULATE:
    case TMEM_OPERAND:
    case TMEM_SHIFT_A: return "a tcgen05.mma";
    case TMEM_SHIFT: return "a tcgen05.shift";
    case TMEM_COPY:
    case TMEM_COPY_SPREAD: return "a tcgen05.cp";
    }
    return "";
}

static const char *mend_of(const Pass *p, const Stamp *e, bool unfenced) {
    static const char *const both =
        "Put tcgen05.fence::before_thread_sync in front of the arrival (a commit does that by "
        "itself), and tcgen05.fence::after_thread_sync behind the wait.";
    if (unfenced) return both;
    switch ((TmemAccess)e->access) {
    case TMEM_LOAD:
        return "Let the reader execute tcgen05.wait::ld, then tcgen05.fence::before_thread_sync "
               "and arrive at a barrier; wait there, then tcgen05.fence::after_thread_sync.";
    case TMEM_STORE:
        return "Let the writer execute tcgen05.wait::st, then tcgen05.fence::before_thread_sync "
               "and arrive at a barrier; wait there, then tcgen05.fence::after_thread_sync.";
    default: break;
    }
    return p->stamp.thread == e->thread
               ? "Commit the earlier one to an mbarrier and wait for it: only products of one "
                 "shape on the same D, a product behind a copy or a shift, and a shift behind a "
                 "product follow each other without."
               : "Let its thread commit it (tcgen05.commit) to an mbarrier; wait there, then "
                 "tcgen05.fence::after_thread_sync.";
}

static void report(const Pass *p, const Stamp *e, bool earlier_writes, bool unfenced) {
    Warp *w = p->w;
    uint32_t k = (p->stamp.insn->index * 31 + e->insn->index * 7) % REPORTED;
    if (p->shadow->reported[k].insn == p->stamp.insn && p->shadow->reported[k].other == e->insn)
        return;
    p->shadow->reported[k].insn = p->stamp.insn;
    p->shadow->reported[k].other = e->insn;
    bool strict = w->sm->gpu->settings->strict;
    finding_pair(w, p->stamp.insn, p->lane, !unfenced || strict ? FINDING_RACE : FINDING_LINT,
                 e->insn, mend_of(p, e, unfenced),
                 "%s tensor memory at column %u, lane %u, which %s %s: %s",
                 p->frees    ? "frees"
                 : p->writes ? "writes to"
                             : "reads",
                 p->column, 16 * p->group, name_of(e->access),
                 earlier_writes ? "writes" : "may still be reading",
                 unfenced ? "a barrier puts the two in order, but not with the tcgen05 fences "
                            "around it"
                          : "nothing puts the two in order");
}

// Asks, and records a finding. Freeing needs no fences.
static void ask(const Pass *p, const Stamp *e, bool earlier_writes) {
    if (!e->clock || p->known[e->thread] >= e->clock || is_piped(p, e)) return;
    bool seen = p->seen[e->thread] >= e->clock;
    if (!seen || !p->frees) report(p, e, earlier_writes, seen);
}

// A read enters: in place of one that it knows of, or of its own.
static void add_read(const Pass *p, Granule *g) {
    int at = 0;
    for (int k = 0; k < READS; k++) {
        const Stamp *r = &g->reads[k];
        if (!r->clock || r->thread == p->stamp.thread || p->known[r->thread] >= r->clock) {
            at = k;
            break;
        }
    }
    g->reads[at] = p->stamp;
}

static void enter(Pass *p, uint32_t column, uint32_t columns, uint32_t groups) {
    p->shadow->epoch++;
    for (uint32_t c = column; c < column + columns; c++) {
        for (uint32_t rest = groups; rest; rest &= rest - 1) {
            p->column = c;
            p->group = (uint32_t)__builtin_ctz(rest);
            Granule *g = &p->shadow->granule[c][p->group];
            if (!is_behind_reader(p, g)) ask(p, &g->write, true);
            if (!p->writes) {
                add_read(p, g);
                continue;
            }
            for (int k = 0; k < READS; k++) ask(p, &g->reads[k], false);
            memset(g->reads, 0, sizeof g->reads);
            g->write = p->stamp;
        }
    }
}

static Pass pass_of(Warp *w, const Insn *i, int lane, Cta *cta, const RaceAgent *a,
                    TmemAccess access) {
    return (Pass){
        .w = w,
        .lane = lane,
        .shadow = shadow_of(cta),
        .known = vector_of(w, lane, KNOWN),
        .seen = vector_of(w, lane, SEEN),
        .stamp = {.thread = a->thread, .access = (uint8_t)access, .clock = a->clock, .insn = i},
        .writes = access != TMEM_LOAD && access != TMEM_OPERAND};
}

// ---- the queue of a thread

void tmem_race_issue(TensorIssuer *s, const Insn *i, Cta *cta, uint32_t column, uint32_t columns,
                     uint32_t groups, TmemAccess access, uint64_t chain) {
    if (!race_on(s->warp)) return;
    agent_prepare(&s->agent, s->warp, s->lane, i);
    agent_prepare(&s->issues, s->warp, s->lane, i);
    Pass p = pass_of(s->warp, i, s->lane, cta, &s->agent, access);
    p.stamp.chain =
        is_copy((uint8_t)access) ? (uint64_t)s->issues.thread << 32 | s->issues.clock : chain;
    s->used = true;
    if (!s->first) s->first = i;
    // The next product of a chain, with nothing but its operands in between: all is entered
    // already.
    uint64_t *epoch = &s->chain_epoch[cta != s->warp->cta];
    bool follows = *epoch == p.shadow->epoch;
    if (access == TMEM_ACCUMULATE && follows && s->chain == chain) return;
    enter(&p, column, columns, groups);
    if (access == TMEM_ACCUMULATE) s->chain = chain;
    if (access == TMEM_ACCUMULATE || (access == TMEM_OPERAND && follows)) *epoch = p.shadow->epoch;
}

void tmem_race_operand(TensorIssuer *s, const Insn *i, int which, const uint32_t *at, int count) {
    if (!race_on(s->warp)) return;
    agent_prepare(&s->agent, s->warp, s->lane, i);
    s->used = true;
    if (!s->first) s->first = i;
    s->has_read = true;
    if (!s->reads[which]) {
        s->reads[which] = allocate((CHUNK_WORDS + 1) * sizeof *s->reads[which]);
        memset(s->reads[which], 0, (CHUNK_WORDS + 1) * sizeof *s->reads[which]);
    }
    for (int k = 0; k < count; k++) {
        uint32_t chunk = at[k] / CHUNK;
        if (chunk < CHUNK_WORDS * 64) s->reads[which][chunk / 64] |= 1ull << chunk % 64;
    }
}

// Enters the runs of chunks that have been read.
static void enter_reads(RaceAgent *a, Cta *cta, const uint64_t *chunks) {
    uint32_t begin = 0;
    bool inside = false;
    for (uint32_t word = 0; word <= CHUNK_WORDS; word++) {
        if (chunks[word] == (inside ? ~0ull : 0)) continue;
        for (uint32_t bit = 0; bit < 64; bit++) {
            bool is_set = chunks[word] >> bit & 1;
            if (is_set == inside) continue;
            uint32_t at = (word * 64 + bit) * CHUNK;
            if (inside) race_agent_access(a, cta, begin, at, RACE_READ);
            begin = at;
            inside = is_set;
        }
    }
}

// Enters what the thread's operations have read of shared memory lately.
static void flush(TensorIssuer *s) {
    Warp *w = s->warp;
    if (!s->has_read) return;
    s->has_read = false;
    race_agent_issue(&s->agent, &w, 1, s->first);
    for (int which = 0; which < 2; which++) {
        if (!s->reads[which]) continue;
        enter_reads(&s->agent, which ? w->cta->cluster->ctas[w->cta->cluster_rank ^ 1] : w->cta,
                    s->reads[which]);
        memset(s->reads[which], 0, CHUNK_WORDS * sizeof *s->reads[which]);
    }
    s->first = NULL;
}

void tmem_race_flush(Warp *w) {
    Tcgen05 *t = w->cta->tcgen05;
    for (int k = 0; t && k < t->issuer_count; k++)
        if (t->issuers[k].warp == w) flush(&t->issuers[k]);
}

RaceAgent tmem_race_commit(TensorIssuer *s, const Insn *i) {
    if (!race_on(s->warp)) return (RaceAgent){0};
    agent_prepare(&s->agent, s->warp, s->lane, i);
    flush(s);
    s->first = NULL;
    s->chain = s->chain_epoch[0] = s->chain_epoch[1] = 0;
    RaceAgent covered = s->agent;
    if (s->used)
        agent_next(&s->agent);
    else
        covered.clock--; // what an earlier one has covered
    s->used = false;
    return covered;
}

void tmem_race_commit_to(Warp *w, int lane, Cta *cta, uint32_t address) {
    const Mbarrier *b = race_on(w) ? mbarrier_find(cta, address) : NULL;
    if (!b || !b->race) return;
    Race *r = race_of(w);
    uint16_t t = race_thread(w);
    Knowledge pending = r->mbarriers[b->race].pending;
    uint32_t own[VECTORS];
    for (int v = 0; v < VECTORS; v++) own[v] = race_vector(r, pending, (RaceVector)v)[t];
    knowledge_join(r, pending, lane_knowledge(r, t, lane));
    for (int v = 0; v < VECTORS; v++) race_vector(r, pending, (RaceVector)v)[t] = own[v];
    const uint32_t *known = vector_of(w, lane, KNOWN);
    uint32_t *sent = race_vector(r, pending, SENT);
    for (int k = 0; k < r->used; k++) raise_to(&sent[k], known[k]);
}

void tmem_race_committed(const RaceAgent *a, Cta *cta, uint32_t address) {
    if (!agent_is(a)) return;
    race_agent_to_mbarrier(a, cta, address);
    const Mbarrier *b = mbarrier_find(cta, address);
    if (!b || !b->race) return;
    Knowledge pending = a->race->mbarriers[b->race].pending;
    raise_to(race_vector(a->race, pending, SENT) + a->thread, a->clock);
}

// ---- loads and stores of a warp

void tmem_race_move(Warp *w, const Insn *i, uint32_t column, uint32_t columns, uint32_t groups,
                    bool stores) {
    if (!race_on(w)) return;
    TensorWarp *t = &tcgen05_of(w->cta)->warps[w->id];
    RaceAgent *a = stores ? &t->stores : &t->loads;
    agent_prepare(a, w, -1, i);
    *(stores ? &t->stored : &t->loaded) = true;
    Pass p = pass_of(w, i, -1, w->cta, a, stores ? TMEM_STORE : TMEM_LOAD);
    enter(&p, column, columns, groups);
}

void tmem_race_waited(Warp *w, bool stores) {
    TensorWarp *t = &w->cta->tcgen05->warps[w->id];
    RaceAgent *a = stores ? &t->stores : &t->loads;
    bool *used = stores ? &t->stored : &t->loaded;
    if (!race_on(w) || !agent_is(a) || !*used) return;
    lanes_learn_in(a->race, w, FULL_MASK, KNOWN, a->thread, a->clock);
    lanes_learn(a->race, w, FULL_MASK, a->thread, a->clock);
    agent_next(a);
    *used = false;
}

// ---- fences

void tmem_race_fence_before(Warp *w, uint32_t lanes) {
    if (!race_on(w) || !race_of(w)->tensor) return;
    lanes_raise(race_of(w), w, lanes, SENT, KNOWN);
    Tcgen05 *t = w->cta->tcgen05;
    for (int k = 0; t && k < t->issuer_count; k++) {
        TensorIssuer *s = &t->issuers[k];
        RaceAgent *issues = &s->issues;
        if (s->warp != w || !(lanes >> s->lane & 1) || !agent_is(issues)) continue;
        lanes_learn_in(race_of(w), w, 1u << s->lane, SENT, issues->thread, issues->clock);
        agent_next(issues);
    }
}

void tmem_race_relaxed(Warp *w, int lane, uint32_t to) {
    Race *r = race_of(w);
    if (!r->tensor) return;
    const uint32_t *sent = vector_of(w, lane, SENT), *known = vector_of(w, lane, KNOWN);
    uint32_t *to_sent = race_vector(r, to, SENT), *to_seen = race_vector(r, to, SEEN);
    for (int k = 0; k < r->used; k++) {
        raise_to(&to_sent[k], sent[k]);
        raise_to(&to_seen[k], known[k]);
    }
}

void tmem_race_relaxed_arrival(Warp *w, int lane, Cta *cta, uint32_t address) {
    const Mbarrier *b = race_on(w) ? mbarrier_find(cta, address) : NULL;
    if (b && b->race) tmem_race_relaxed(w, lane, race_of(w)->mbarriers[b->race].pending);
}

void tmem_race_fence_after(Warp *w, uint32_t lanes) {
    if (!race_on(w) || !race_of(w)->tensor) return;
    Race *r = race_of(w);
    lanes_raise(r, w, lanes, KNOWN, SENT);
    Knowledge relaxed = r->thread[race_thread(w)].acquirable.knows;
    for (int e = 0; relaxed && e < r->used; e++) {
        uint32_t sent = race_vector(r, relaxed, SENT)[e];
        for (uint32_t rest = sent ? lanes : 0; rest; rest &= rest - 1)
            if (vector_of(w, __builtin_ctz(rest), KNOWN)[e] < sent) {
                lanes_learn_in(r, w, lanes, KNOWN, (uint16_t)e, sent);
                break;
            }
    }
}

void tmem_race_release(Warp *w, const Insn *i, uint32_t column, uint32_t columns) {
    if (!race_on(w) || !w->sm->tmem->shadow || !race_of(w)->tensor) return;
    const RaceAgent nobody = {0};
    Pass p = pass_of(w, i, -1, w->cta, &nobody, TMEM_STORE);
    p.frees = true;
    enter(&p, column, columns, (1u << TMEM_GROUPS) - 1);
    tmem_shadow_clear(w->sm->tmem, column, columns);
}
