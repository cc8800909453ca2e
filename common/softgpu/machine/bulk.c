// Bulk copies: issue, landing, groups and waits (bulk.h). What is left at a block's end:
// bulk_end.c.
#include "softgpu/machine/bulk_parts.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/check/race_global.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/event.h"
#include "softgpu/machine/global.h"
#include "softgpu/machine/mbarrier.h"
#include "softgpu/machine/parts.h"
#include "softgpu/timing/pace_parts.h"
#include "softgpu/timing/trace.h"

enum { LATENCY = 700, READ_LATENCY = 300 }; // in SM time: of a copy that misses L2; of a source
// In random order: how many of the writes are slow ones, and how slow; longer than a round takes.
enum { SLOW_ONE_IN = 4, SLOW_LATENCY = 100000 };
#define ON_DEMAND UINT64_MAX
#define UNKNOWN   (UINT64_MAX - 1) // timed: its lines are on their way

static struct BulkPool *pool_of(Sm *sm) {
    if (!sm->bulk) {
        sm->bulk = allocate(sizeof *sm->bulk);
        *sm->bulk = (struct BulkPool){0};
        sm->bulk->last = &sm->bulk->reductions;
    }
    return sm->bulk;
}

BulkCta *bulk_of(Cta *cta) {
    if (!cta->bulk) {
        cta->bulk = allocate(sizeof *cta->bulk);
        *cta->bulk = (BulkCta){0};
    }
    return cta->bulk;
}

static BulkOp *op_new(Sm *sm) {
    struct BulkPool *pool = pool_of(sm);
    BulkOp *op = pool->spare;
    if (op) {
        pool->spare = op->next;
    } else {
        op = allocate(sizeof *op);
        op->kept = NULL;
        op->kept_size = 0;
        op->generation = 0;
    }
    return op;
}

static bool is_outgoing(const BulkOp *op) {
    return op->move.kind == BULK_STORE || op->move.kind == BULK_REDUCE;
}

static bool is_peer(const BulkOp *op) {
    return op->move.kind == BULK_PEER || op->move.kind == BULK_PEER_REDUCE;
}

static BulkOp **list_of(BulkOp *op) {
    BulkCta *bulk = bulk_of(is_outgoing(op) ? op->move.cta : op->move.barrier_cta);
    return is_outgoing(op) ? &bulk->outgoing : &bulk->incoming;
}

static void append(BulkOp *op) {
    BulkOp **link = list_of(op);
    while (*link) link = &(*link)->next;
    op->next = NULL;
    *link = op;
    op->listed = true;
}

void bulk_op_unlist(BulkOp *op) {
    if (!op->listed) return;
    BulkOp **link = list_of(op);
    while (*link != op) link = &(*link)->next;
    *link = op->next;
    op->listed = false;
}

// The operation is over.
void bulk_op_finish(BulkOp *op) {
    bulk_op_unlist(op);
    race_agent_close(&op->agent);
    op->generation++; // events that are still to come mean nothing any more
    struct BulkPool *pool = pool_of(op->warp->sm);
    op->next = pool->spare;
    pool->spare = op;
}

// ---- landing

// A load or a copy to a peer moves its bytes, and the mbarrier learns of it. The operation is over.
void bulk_op_land(BulkOp *op) {
    const BulkMove *move = &op->move;
    Warp *w = op->warp;
    Cta *barrier_cta = move->barrier_cta;
    uint32_t barrier = move->barrier, bytes = move->bytes;
    const Insn *insn = op->insn;
    int lane = op->lane;
    if (move->kind == BULK_LOAD)
        bulk_load(w, insn, lane, move);
    else
        bulk_peer(w, insn, lane, move);
    move->cta->sm->changes++;
    race_agent_to_mbarrier(&op->agent, barrier_cta, barrier);
    bulk_op_finish(op);
    mbarrier_complete_tx(w, insn, lane, barrier_cta, barrier, bytes);
}

// Keeps what an operation's source holds now.
static void keep(BulkOp *op) {
    uint32_t size = bulk_footprint(&op->move);
    if (op->kept_size < size) {
        free(op->kept);
        op->kept = allocate(size);
        op->kept_size = size;
    }
    memcpy(op->kept, op->move.cta->shared + op->move.shared, size);
    op->read = true;
}

static void read_source(BulkOp *op) {
    if (op->read) return;
    bulk_check_source(op->warp, op->insn, op->lane, &op->move);
    keep(op);
    op->warp->sm->changes++;
}

static void written(BulkOp *op) {
    op->written = true;
    op->warp->sm->changes++;
    if (op->awaited) bulk_op_finish(op);
}

// Writes what a store has read, or reads now.
static void write_store(BulkOp *op) {
    struct GlobalMemory *m = op->warp->sm->gpu->memory;
    const BulkMove *move = &op->move;
    const uint8_t *image = op->read ? op->kept - move->shared : move->cta->shared;
    if (!op->read) bulk_check_source(op->warp, op->insn, op->lane, move);
    bulk_store(m, move, image);
    op->read = true;
    written(op);
}

// Reductions are atomics: other SMs see them in the serial phase only.
void bulk_op_write(BulkOp *op) {
    Sm *sm = op->warp->sm;
    if (op->written || op->queued) return;
    if (op->move.kind != BULK_REDUCE || !must_defer(op->warp)) {
        write_store(op);
        return;
    }
    read_source(op);
    struct BulkPool *pool = pool_of(sm);
    op->queued = true;
    op->next_reduction = NULL;
    *pool->last = op;
    pool->last = &op->next_reduction;
}

bool bulk_apply(Sm *sm) {
    struct BulkPool *pool = sm->bulk;
    if (!pool || !pool->reductions) return false;
    for (BulkOp *op = pool->reductions; op;) {
        BulkOp *next = op->next_reduction;
        op->queued = false;
        write_store(op);
        op = next;
    }
    pool->reductions = NULL;
    pool->last = &pool->reductions;
    return true;
}

void bulk_forget(Sm *sm) {
    struct BulkPool *pool = sm->bulk;
    if (!pool) return;
    for (BulkOp *op = pool->reductions, *next; op; op = next) {
        next = op->next_reduction;
        bulk_op_finish(op);
    }
    pool->reductions = NULL;
    pool->last = &pool->reductions;
}

// ---- time

static void come_due(Sm *sm, void *subject, uint64_t generation) {
    BulkOp *op = subject;
    if (op->generation != generation) return;
    if (!is_outgoing(op)) {
        bulk_op_land(op);
        return;
    }
    if (!op->read && op->due > sm->time) {
        read_source(op);
        return;
    }
    if (op->due <= sm->time) bulk_op_write(op);
}

// A timed copy's lines are there, or have been written.
static void lines_done(Sm *sm, void *subject, uint64_t generation, uint64_t ready) {
    BulkOp *op = subject;
    if (op->generation != generation) return;
    const GpuTiming *t = sm->launch->pace->timing;
    op->due = ready + (uint64_t)(is_outgoing(op) ? 0 : pace_landing(t));
    if (op->due < op->read_due && is_outgoing(op)) op->due = op->read_due;
    if (!is_outgoing(op)) pace_fill(sm, ready, op->move.bytes);
    if (trace_on(sm))
        trace_span(sm, TRACE_TMA, 0, op->warp, is_outgoing(op) ? "store" : "load", op->issued,
                   op->due);
    event_add(sm, op->due, come_due, op, op->generation);
    warp_wake(op->warp, BLOCK_MEMORY, 0);
}

static void set_times(BulkOp *op) {
    Sm *sm = op->warp->sm;
    uint64_t now = sm->time;
    if (op->warp->pace) {
        op->due = UNKNOWN;
        op->read_due = is_outgoing(op) ? pace_bulk_read(sm, op->move.bytes) : UNKNOWN;
        return;
    }
    switch (sm->gpu->settings->async) {
    case ASYNC_EARLY: op->read_due = op->due = now; return;
    case ASYNC_LATE: op->read_due = op->due = ON_DEMAND; return;
    case ASYNC_RANDOM:
        op->read_due = now + 1 + random_below(&sm->random, 3 * LATENCY);
        op->due = op->read_due + (is_outgoing(op) ? random_below(&sm->random, 3 * LATENCY) : 0);
        // Some writes take so long that blocks on other SMs get on to what ought to wait for them.
        if (is_outgoing(op) && random_below(&sm->random, SLOW_ONE_IN) == 0)
            op->due += random_below(&sm->random, SLOW_LATENCY);
        return;
    case ASYNC_TIMED: break;
    }
    op->due = now + LATENCY;
    op->read_due = is_outgoing(op) ? now + READ_LATENCY : op->due;
}

// ---- issue

// Tells the race check of bytes of global memory.
static void tell_global(const BulkOp *op, uint64_t address, uint64_t bytes) {
    if (is_outgoing(op))
        race_bulk_store(op->warp, op->insn, op->lane, op->group, address, bytes,
                        op->move.kind == BULK_REDUCE);
    else
        race_agent_global(&op->agent, address, bytes);
}

// Tells the race check what the operation will touch.
static void open_agent(BulkOp *op) {
    static const RaceAgentKind kinds[] = {
        [BULK_LOAD] = RACE_TMA_LOAD,          [BULK_STORE] = RACE_TMA_STORE,
        [BULK_REDUCE] = RACE_TMA_STORE,       [BULK_PEER] = RACE_TMA_LOAD,
        [BULK_PEER_REDUCE] = RACE_TMA_REDUCE,
    };
    const BulkMove *move = &op->move;
    op->agent = (RaceAgent){.kind = RACE_NO_AGENT};
    if (!race_on(op->warp)) return;
    op->agent = race_agent_open(op->warp, op->insn, op->lane, kinds[move->kind]);
    uint32_t end = move->shared + bulk_footprint(move);
    race_agent_access(&op->agent, move->cta, move->shared, end,
                      is_outgoing(op) ? RACE_READ : RACE_WRITE);
    if (move->source)
        race_agent_access(&op->agent, move->source, move->source_offset,
                          move->source_offset + move->bytes, RACE_READ);
    if (is_peer(op) || move->masked) return;
    if (!move->tensor) {
        tell_global(op, move->global, move->bytes);
        return;
    }
    Box box;
    BoxRow row;
    box_begin(&box, move);
    uint64_t from = 0, bytes = 0; // rows that lie side by side are one
    while (box_next(&box, &row)) {
        if (!row.inside) continue;
        if (bytes && row.address == from + bytes) {
            bytes += row.inside;
            continue;
        }
        tell_global(op, from, bytes);
        from = row.address;
        bytes = row.inside;
    }
    tell_global(op, from, bytes);
}

static uint32_t thread_of(const Warp *w, int lane) {
    return (uint32_t)(w->id * WARP_SIZE + lane);
}

static uint32_t *groups_of(Cta *cta) {
    BulkCta *bulk = bulk_of(cta);
    if (!bulk->committed) {
        size_t size = (size_t)cta->warp_count * WARP_SIZE * sizeof *bulk->committed;
        bulk->committed = allocate(size);
        memset(bulk->committed, 0, size);
    }
    return bulk->committed;
}

void bulk_issue(Warp *w, const Insn *i, int lane, const BulkMove *move) {
    Sm *sm = w->sm;
    BulkOp *op = op_new(sm);
    op->insn = i;
    op->warp = w;
    op->lane = lane;
    op->read = op->written = op->awaited = op->queued = false;
    op->move = *move;
    op->group = is_outgoing(op) ? groups_of(w->cta)[thread_of(w, lane)] : 0;
    op->issued = sm->time;
    set_times(op);
    open_agent(op);
    append(op);
    if (w->pace) {
        if (is_outgoing(op)) event_add(sm, op->read_due, come_due, op, op->generation);
        pace_send_bulk(w, lines_done, op, op->generation, is_peer(op) ? move->bytes : 0);
        return;
    }
    if (op->due <= sm->time) {
        come_due(sm, op, op->generation);
        return;
    }
    if (op->due == ON_DEMAND) return;
    if (op->read_due != op->due) event_add(sm, op->read_due, come_due, op, op->generation);
    event_add(sm, op->due, come_due, op, op->generation);
}

// ---- groups

void bulk_commit(Warp *w, uint32_t mask) {
    uint32_t *groups = groups_of(w->cta);
    for (int l = 0; l < WARP_SIZE; l++) groups[thread_of(w, l)] += mask >> l & 1;
}

// Has a wait to cover this operation?
static bool is_awaited(const BulkOp *op, const Warp *w, uint32_t mask, uint32_t newest) {
    if (op->warp != w || !(mask >> op->lane & 1)) return false;
    return w->cta->bulk->committed[thread_of(w, op->lane)] - op->group > newest;
}

static Flow wait(Warp *w, uint32_t mask, uint32_t newest, bool reads) {
    BulkCta *bulk = w->cta->bulk;
    if (!bulk || !bulk->outgoing) return FLOW_NEXT;
    uint64_t now = w->sm->time, until = 0;
    bool defer = false;
    if (w->sm->serial) bulk_apply(w->sm);
    for (BulkOp *op = bulk->outgoing, *next; op; op = next) {
        next = op->next;
        if (!is_awaited(op, w, mask, newest)) continue;
        bool done = reads ? op->read : op->written;
        uint64_t due = reads ? op->read_due : op->due;
        if (!done && due != ON_DEMAND && due > now) {
            until = due > until ? due : until;
            continue;
        }
        if (!done && reads)
            read_source(op);
        else if (!done)
            bulk_op_write(op);
        defer |= !reads && !op->written;
    }
    if (until) {
        warp_block(w, until == UNKNOWN ? BLOCK_MEMORY : BLOCK_SLEEP, 0, until);
        return FLOW_RETRY;
    }
    if (defer) return FLOW_DEFER; // reductions that only the serial phase can apply
    for (BulkOp *op = bulk->outgoing, *next; op; op = next) {
        next = op->next;
        if (op->awaited || !is_awaited(op, w, mask, newest)) continue;
        race_agent_to_warp(&op->agent, w, 1u << op->lane);
        race_agent_close(&op->agent);
        op->awaited = true;
        if (op->written) bulk_op_finish(op);
    }
    return FLOW_NEXT;
}

Flow bulk_wait(Warp *w, uint32_t mask, uint32_t newest, bool reads) {
    Flow flow = wait(w, mask, newest, reads);
    const BulkCta *bulk = w->cta->bulk;
    if (flow != FLOW_NEXT || reads || !race_on(w) || !bulk || !bulk->committed) return flow;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        uint32_t groups = bulk->committed[thread_of(w, lane)];
        if (groups > newest) race_bulk_written(w, lane, groups - newest);
    }
    return flow;
}

// ---- landing on demand

// Lands what signals an mbarrier and waits for a demand, those issued last first.
static bool land_backwards(BulkOp *op, uint32_t address) {
    if (!op) return false;
    bool any = land_backwards(op->next, address);
    if (op->move.barrier != address || op->due != ON_DEMAND) return any;
    bulk_op_land(op);
    return true;
}

bool bulk_demand(Cta *cta, uint32_t address) {
    BulkCta *bulk = cta->bulk;
    if (!bulk || cta->sm->gpu->settings->async != ASYNC_LATE) return false;
    return land_backwards(bulk->incoming, address);
}

bool bulk_land_all(Sm *sm) {
    bool any = false;
    if (sm->gpu->settings->async != ASYNC_LATE) return false;
    for (Cta *cta = sm->ctas; cta; cta = cta->next) {
        BulkCta *bulk = cta->bulk;
        if (!bulk || cta->ended) continue;
        for (BulkOp *op = bulk->incoming, *next; op; op = next) {
            next = op->next;
            bulk_op_land(op);
            any = true;
        }
        for (BulkOp *op = bulk->outgoing, *next; op; op = next) {
            next = op->next;
            if (op->written || op->queued) continue;
            bulk_op_write(op);
            any = true;
        }
    }
    return any;
}
