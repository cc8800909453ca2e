// The tensor core of sm_100: the queue of a CTA, commits, and moves of warps (tcgen05.h).
#include "softgpu/machine/tcgen05.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/check/in_flight.h"
#include "softgpu/check/tmem_race.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/event.h"
#include "softgpu/machine/mbarrier.h"
#include "softgpu/machine/parts.h"
#include "softgpu/machine/tmem.h"
#include "softgpu/timing/pace.h"
#include "softgpu/timing/trace.h"
#include "softgpu/timing/traffic.h"

#define ON_DEMAND UINT64_MAX

static TensorOp *op_at(const Tcgen05 *t, uint64_t n) {
    return &t->ops[n & (t->capacity - 1)];
}

Tcgen05 *tcgen05_of(Cta *cta) {
    if (cta->tcgen05) return cta->tcgen05;
    Tcgen05 *t = cta->tcgen05 = allocate(sizeof *t);
    *t = (Tcgen05){0};
    size_t size = (size_t)cta->warp_count * sizeof *t->warps;
    t->warps = allocate(size);
    memset(t->warps, 0, size);
    return t;
}

bool tcgen05_use_group(Warp *w, const Insn *i, int group) {
    Tcgen05 *t = tcgen05_of(w->cta);
    if (!t->group) t->group = (uint8_t)group;
    if (t->group == group) return true;
    finding(w, i, -1, FINDING_TENSOR, "Give all tcgen05 instructions the same .cta_group.",
            "has .cta_group::%d, and the block has executed a tcgen05 instruction with "
            ".cta_group::%d",
            group, t->group);
    return false;
}

TensorIssuer *tcgen05_issuer(Warp *w, int lane) {
    Tcgen05 *t = tcgen05_of(w->cta);
    for (int k = 0; k < t->issuer_count; k++)
        if (t->issuers[k].warp == w && t->issuers[k].lane == lane) return &t->issuers[k];
    if (t->issuer_count == t->issuer_capacity) {
        t->issuer_capacity = t->issuer_capacity ? 2 * t->issuer_capacity : 4;
        t->issuers = realloc(t->issuers, (size_t)t->issuer_capacity * sizeof *t->issuers);
        if (!t->issuers) abort();
    }
    TensorIssuer *issuer = &t->issuers[t->issuer_count++];
    *issuer = (TensorIssuer){.warp = w, .lane = lane};
    return issuer;
}

// ---- the queue

static void append(Tcgen05 *t, const TensorOp *op) {
    if (t->next - t->first == t->capacity) {
        uint64_t capacity = t->capacity ? 2 * t->capacity : 32;
        TensorOp *ops = allocate(capacity * sizeof *ops);
        for (uint64_t n = t->first; n < t->next; n++) ops[n & (capacity - 1)] = *op_at(t, n);
        free(t->ops);
        t->ops = ops;
        t->capacity = capacity;
    }
    *op_at(t, t->next++) = *op;
}

// The commit's arrivals.
static void arrive(const TensorOp *op) {
    const Cluster *cluster = op->warp->cta->cluster;
    for (int rank = 0; rank < cluster->size; rank++) {
        Cta *cta = cluster->ctas[rank];
        if (!(op->commit.ctas >> rank & 1)) continue;
        if (cta->ended && cta == op->warp->cta) continue; // nobody is left to see it
        if (cta->ended) {
            finding(op->warp, op->insn, op->lane, FINDING_USE_AFTER_FREE,
                    "Let the blocks of the cluster end together (barrier.cluster).",
                    "arrives at an mbarrier of the block with rank %d, which has ended", rank);
            continue;
        }
        tmem_race_committed(&op->agent, cta, op->commit.address);
        if (!mbarrier_async_arrived(op->warp, op->insn, op->lane, cta, op->commit.address))
            op->warp->sm->faulted = true;
    }
}

static void execute(const TensorOp *op) {
    switch (op->kind) {
    case TENSOR_MMA: tcgen05_execute_mma(op); break;
    case TENSOR_COPY: tcgen05_execute_copy(op); break;
    case TENSOR_SHIFT: tcgen05_execute_shift(op); break;
    case TENSOR_COMMIT: arrive(op); break;
    }
    op->warp->sm->changes++;
}

// Executes what is due at `now`, at most up to operation number `end`. Answers whether there was
// any.
static bool run_due(Tcgen05 *t, uint64_t now, uint64_t end) {
    bool any = false;
    while (t->first < end && t->first < t->next && op_at(t, t->first)->due <= now) {
        const TensorOp op = *op_at(t, t->first++);
        execute(&op);
        any = true;
    }
    return any;
}

// The event: `linear` is the CTA's number, as its memory may be another one's by now.
static void come_due(Sm *sm, void *subject, uint64_t linear) {
    (void)subject;
    for (Cta *cta = sm->ctas; cta; cta = cta->next)
        if (cta->linear == linear && !cta->ended && cta->tcgen05) {
            run_due(cta->tcgen05, sm->time, UINT64_MAX);
            return;
        }
}

// ---- when: without a clock

static uint64_t cycles_of(const TensorCost *c) {
    uint64_t wavefronts = c->bytes / 128;
    return c->work > wavefronts ? c->work : wavefronts;
}

// When an operation is over that is issued now.
static uint64_t due_time(Tcgen05 *t, const TensorOp *op) {
    Sm *sm = op->warp->sm;
    uint64_t cycles = cycles_of(&op->cost), latency = op->cost.latency;
    switch (sm->gpu->settings->async) {
    case ASYNC_EARLY: return sm->time;
    case ASYNC_LATE: return ON_DEMAND;
    case ASYNC_RANDOM:
        if (t->busy < sm->time) t->busy = sm->time;
        t->busy += 1 + random_below(&sm->random, (uint32_t)(2 * (cycles + latency) + 1));
        return t->busy;
    case ASYNC_TIMED: break;
    }
    if (t->busy < sm->time) t->busy = sm->time;
    t->busy += cycles;
    return t->busy + latency;
}

// ---- when: in a timed launch

static Sm *peer_of(const TensorOp *op) {
    const Cta *cta = op->warp->cta;
    return cta->tcgen05->group == 2 ? cta->cluster->ctas[cta->cluster_rank ^ 1]->sm : NULL;
}

// Operands take shared memory's bandwidth, from now on. Answers when they are there.
static uint64_t take_operands(Sm *sm, uint64_t bytes, uint64_t end) {
    SmPace *s = sm->pace;
    uint64_t now = sm->time, free = s->shared_free > now ? s->shared_free : now, seen = now;
    free += (bytes + 127) / 128;
    // The longer it takes, the more fills come meanwhile.
    if (free > end) end = free;
    while (seen < end) {
        free += pace_fill_cycles(s, seen, end);
        seen = end;
        if (free > end) end = free;
    }
    s->shared_free = free;
    s->shared_busy += (bytes + 127) / 128;
    return free;
}

static void take_tensor_core(Sm *sm, const TensorOp *op, uint64_t end) {
    sm->pace->tensor_busy += op->cost.work;
    sm->pace->tcgen05_free = end;
}

// The tensor core takes the operation now.
static void begin(Sm *sm, Tcgen05 *t, TensorOp *op) {
    Sm *peer = peer_of(op);
    uint64_t end = sm->time + op->cost.work;
    uint64_t there = take_operands(sm, op->cost.bytes, end);
    if (there > end) end = there;
    there = peer && peer->pace ? take_operands(peer, op->cost.bytes, end) : 0;
    if (there > end) end = there;
    take_tensor_core(sm, op, end);
    if (peer && peer->pace) take_tensor_core(peer, op, end);
    static const char *const names[] = {
        [TENSOR_MMA] = "mma", [TENSOR_COPY] = "copy", [TENSOR_SHIFT] = "shift"};
    if (trace_on(sm)) trace_span(sm, TRACE_TENSOR, 0, op->warp, names[op->kind], sm->time, end);
    op->due = end + op->cost.latency;
    if (t->begun > t->first && op->due < op_at(t, t->begun - 1)->due)
        op->due = op_at(t, t->begun - 1)->due; // in order
    t->begun++;
    event_add(sm, op->due, come_due, sm, op->warp->cta->linear);
}

// Commits behind what has begun need no tensor core.
static void begin_commits(Sm *sm, Cta *cta) {
    Tcgen05 *t = cta->tcgen05;
    uint64_t last = 0;
    if (t->begun < t->first) t->begun = t->first;
    while (t->begun < t->next && op_at(t, t->begun)->kind == TENSOR_COMMIT) {
        if (t->begun > t->first) last = op_at(t, t->begun - 1)->due;
        TensorOp *op = op_at(t, t->begun++);
        op->due = (last > sm->time ? last : sm->time) +
                  (uint64_t)sm->launch->pace->timing->tcgen05_commit;
        event_add(sm, op->due, come_due, sm, cta->linear);
    }
}

static void begin_next(Sm *sm, void *subject, uint64_t data);

// Lets the tensor core take what it can, and comes back when it can take more.
static void begin_all(Sm *sm) {
    for (SmPace *s = sm->pace; !s->tcgen05_waits;) {
        Tcgen05 *t = NULL;
        TensorOp *op = NULL;
        for (Cta *cta = sm->ctas; cta; cta = cta->next) {
            Tcgen05 *of = cta->ended ? NULL : cta->tcgen05;
            if (!of) continue;
            begin_commits(sm, cta);
            if (of->begun == of->next || (op && op->order < op_at(of, of->begun)->order)) continue;
            t = of;
            op = op_at(of, of->begun);
        }
        if (!op) return;
        const Sm *peer = peer_of(op);
        uint64_t start = s->tcgen05_free;
        if (peer && peer->pace && peer->pace->tcgen05_free > start)
            start = peer->pace->tcgen05_free;
        if (start <= sm->time) {
            begin(sm, t, op);
            continue;
        }
        s->tcgen05_waits = true;
        event_add(sm, start, begin_next, sm, 0);
    }
}

static void begin_next(Sm *sm, void *subject, uint64_t data) {
    (void)subject, (void)data;
    if (!sm->pace) return;
    sm->pace->tcgen05_waits = false;
    begin_all(sm);
}

// ---- issue

// Counts what an operation takes.
static void count(Sm *sm, const TensorCost *cost) {
    sm->counters->tensor_flops += cost->flops;
    sm->counters->tensor_cycles += cost->work;
    sm->counters->shared_wavefronts += cost->bytes / 128;
    sm->counters->shared_ideal += cost->bytes / 128;
}

void tcgen05_issue(const TensorOp *op) {
    Warp *w = op->warp;
    Sm *sm = w->sm;
    Tcgen05 *t = tcgen05_of(w->cta);
    TensorIssuer *issuer = tcgen05_issuer(w, op->lane);
    bool waits = op->kind != TENSOR_COMMIT || issuer->last > t->first;
    TensorOp queued = *op;
    w->stores++;
    sm->changes++;
    if (!waits) { // nothing of this thread is under way
        execute(&queued);
        return;
    }
    count(sm, &op->cost);
    if (t->group == 2)
        count(w->cta->cluster->ctas[w->cta->cluster_rank ^ 1]->sm,
              &(TensorCost){.work = op->cost.work, .bytes = op->cost.bytes});
    queued.due = w->pace ? ON_DEMAND : due_time(t, op);
    if (w->pace) queued.order = ++sm->pace->tcgen05_issued;
    if (!w->pace && t->next > t->first && queued.due < op_at(t, t->next - 1)->due)
        queued.due = op_at(t, t->next - 1)->due; // in order
    append(t, &queued);
    if (op->kind != TENSOR_COMMIT) issuer->last = t->next;
    if (w->pace)
        begin_all(sm);
    else if (queued.due <= sm->time)
        run_due(t, sm->time, UINT64_MAX);
    else if (queued.due != ON_DEMAND)
        event_add(sm, queued.due, come_due, sm, w->cta->linear);
}

bool tcgen05_demand(Cta *cta, uint32_t address) {
    const Cluster *cluster = cta->cluster;
    bool any = false;
    if (cta->sm->gpu->settings->async != ASYNC_LATE) return false;
    for (int rank = 0; rank < cluster->size; rank++) {
        Tcgen05 *t = cluster->ctas[rank]->tcgen05;
        if (!t || cluster->ctas[rank]->ended) continue;
        uint64_t end = 0;
        for (uint64_t n = t->first; n < t->next && !end; n++) {
            const TensorOp *op = op_at(t, n);
            if (op->kind == TENSOR_COMMIT && op->commit.address == address &&
                op->commit.ctas >> cta->cluster_rank & 1)
                end = n + 1;
        }
        if (end) any |= run_due(t, ON_DEMAND, end);
    }
    return any;
}

bool tcgen05_land_all(Sm *sm) {
    bool any = false;
    for (Cta *cta = sm->ctas; cta; cta = cta->next)
        if (cta->tcgen05) any |= run_due(cta->tcgen05, ON_DEMAND, UINT64_MAX);
    return any;
}

// ---- moves of warps

static void land(Warp *w, TensorMove *move) {
    if (move->landed) return;
    tcgen05_execute_move(w, move, tcgen05_is_store(move->insn));
    move->landed = true;
    free(move->values);
    move->values = NULL;
}

// Is it put off until its wait?
static bool is_deferred(Warp *w, bool stores) {
    if (!stores && !w->sm->gpu->settings->strict) return false;
    switch (w->sm->gpu->settings->async) {
    case ASYNC_EARLY: return false;
    case ASYNC_RANDOM: return random_below(&w->sm->random, 2);
    case ASYNC_LATE:
    case ASYNC_TIMED: break;
    }
    return true;
}

void tcgen05_move(Warp *w, const Insn *i, uint32_t address, bool stores) {
    TensorWarp *t = &tcgen05_of(w->cta)->warps[w->id];
    if (t->count == t->capacity) {
        t->capacity = t->capacity ? 2 * t->capacity : 8;
        t->moves = realloc(t->moves, (size_t)t->capacity * sizeof *t->moves);
        if (!t->moves) abort();
    }
    TensorMove *move = &t->moves[t->count++];
    *move = (TensorMove){.insn = i, .frame = (uint32_t)(w->frame - w->stack), .address = address};
    if (w->in_flight && !stores) in_flight_load(w, i);
    bool deferred = is_deferred(w, stores);
    // Moves of a warp happen in order.
    for (int k = 0; !deferred && k + 1 < t->count; k++) land(w, &t->moves[k]);
    if (!deferred) {
        land(w, move);
    } else if (stores) {
        move->values = allocate((size_t)i->row_count * WARP_SIZE * 4);
        for (int r = 0; r < i->row_count; r++)
            memcpy(move->values + r * WARP_SIZE, row(w, i->rows[r]), WARP_SIZE * 4);
    }
    if (w->pace) {
        uint64_t *busy = &w->sm->tmem->busy[w->id % 4];
        int halves = 2 * w->sm->launch->pace->timing->tmem_registers;
        if (*busy < w->sm->time) *busy = w->sm->time;
        if (halves) *busy += (uint64_t)((tcgen05_half_registers(i) + halves - 1) / halves);
        t->due = *busy;
    }
    w->stores++;
    w->sm->changes++;
}

Flow tcgen05_wait(Warp *w, bool stores) {
    Tcgen05 *all = w->cta->tcgen05;
    TensorWarp *t = all ? &all->warps[w->id] : NULL;
    bool any = false;
    for (int k = 0; t && k < t->count; k++) any |= tcgen05_is_store(t->moves[k].insn) == stores;
    if (!any) return FLOW_NEXT;
    uint64_t there = w->pace ? t->due + (uint64_t)w->sm->launch->pace->timing->tmem_latency : 0;
    if (there > w->sm->time) {
        warp_block(w, BLOCK_SLEEP, 0, there);
        return FLOW_RETRY;
    }
    int left = 0, last = 0; // what is before the last of those waited for happens now, too
    for (int k = 0; k < t->count; k++)
        if (tcgen05_is_store(t->moves[k].insn) == stores) last = k;
    for (int k = 0; k < t->count; k++) {
        TensorMove *move = &t->moves[k];
        if (k <= last) land(w, move);
        if (tcgen05_is_store(move->insn) != stores) {
            t->moves[left++] = *move;
            continue;
        }
        if (w->in_flight && !stores) in_flight_loaded(w, move);
    }
    t->count = left;
    tmem_race_waited(w, stores);
    w->sm->changes++;
    return FLOW_NEXT;
}

// ---- ends

void tcgen05_warp_exited(Warp *w, const Insn *i) {
    TensorWarp *t = &w->cta->tcgen05->warps[w->id];
    for (int k = 0; k < t->count; k++) {
        const TensorMove *move = &t->moves[k];
        if (!w->sm->faulted && k == 0)
            finding_pair(w, i, -1, FINDING_LINT, move->insn,
                         "Wait for it first (tcgen05.wait::ld, tcgen05.wait::st).",
                         "this warp ends while a tcgen05.%s is in flight",
                         tcgen05_is_store(move->insn) ? "st" : "ld");
        free(t->moves[k].values);
    }
    t->count = 0;
}

void tcgen05_cta_finish(Cta *cta, bool report) {
    Tcgen05 *t = cta->tcgen05;
    if (!t) return;
    bool told = !report || cta->sm->faulted;
    for (; t->first < t->next; t->first++) {
        const TensorOp *op = op_at(t, t->first);
        if (op->kind == TENSOR_COMMIT) {
            if (cta->cluster->size > 1 && !told) arrive(op);
            continue;
        }
        if (!told)
            finding(op->warp, op->insn, op->lane, FINDING_RACE,
                    "Commit it (tcgen05.commit) and wait at that mbarrier before the block ends.",
                    "the block ends while this is in flight");
        told = true;
    }
    for (int k = 0; k < cta->warp_count; k++) {
        for (int n = 0; n < t->warps[k].count; n++) free(t->warps[k].moves[n].values);
        TensorMove *moves = t->warps[k].moves;
        int capacity = t->warps[k].capacity;
        t->warps[k] = (TensorWarp){.moves = moves, .capacity = capacity};
    }
    tmem_cta_end(cta, report && !cta->sm->faulted);
    for (int k = 0; k < t->issuer_count; k++)
        for (int n = 0; n < 2; n++) free(t->issuers[k].reads[n]);
    *t = (Tcgen05){.ops = t->ops,
                   .capacity = t->capacity,
                   .issuers = t->issuers,
                   .issuer_capacity = t->issuer_capacity,
                   .warps = t->warps};
}

void tcgen05_cta_free(Cta *cta) {
    Tcgen05 *t = cta->tcgen05;
    if (!t) return;
    for (int k = 0; k < cta->warp_count; k++) free(t->warps[k].moves);
    free(t->warps);
    free(t->ops);
    free(t->issuers);
    free(t);
    cta->tcgen05 = NULL;
}
