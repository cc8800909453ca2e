// A warp's playback (pace.h).
#include "softgpu/timing/pace.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/parts.h"
#include "softgpu/timing/pace_parts.h"
#include "softgpu/timing/trace.h"

enum {
    CHUNK = 32, // cycles that a warp reserves its units for in one go
    QUEUE = 64, // cycles of work of shared memory, or of the SM's units, that may wait
};

// ---- begin and end

void pace_warp_start(Warp *w, uint64_t time) {
    const KernelPace *k = w->sm->launch->pace;
    WarpPace *p = w->pace;
    if (!p) {
        p = w->pace = calloc(1, sizeof *p);
        if (!p) abort();
    }
    if (p->ready_count < k->result_rows + 1) {
        p->ready_count = k->result_rows + 1;
        p->ready = realloc(p->ready, p->ready_count * sizeof *p->ready);
        if (!p->ready) abort();
    }
    memset(p->ready, 0, p->ready_count * sizeof *p->ready);
    p->now = p->drained = p->born = p->since = time;
    p->order = time << 8 | (uint64_t)(w->id & 255);
    p->block = UINT32_MAX;
    p->playing = p->parked = p->entered = p->blocked = p->watched = false;
    p->epoch++;
    p->scheduler = w->id % 4;
    p->extra = 0;
    p->stored_far = p->stored_shared = 0;
    p->op_count = p->first_op = p->line_count = 0;
    p->next_place = UINT64_MAX;
}

void pace_warp_free(Warp *w) {
    if (!w->pace) return;
    free(w->pace->ready);
    free(w->pace->ops);
    free(w->pace->lines);
    free(w->pace);
    w->pace = NULL;
}

// ---- what a part leaves behind

// A place in the playback, as a number that grows with it.
static uint64_t place_of(uint32_t segment, uint32_t offset) {
    return (uint64_t)segment << 32 | offset;
}

static PaceOp *new_op(WarpPace *p, const KernelPace *k, const Insn *i) {
    if (p->op_count == p->op_capacity) {
        p->op_capacity = p->op_capacity ? 2 * p->op_capacity : 64;
        p->ops = realloc(p->ops, p->op_capacity * sizeof *p->ops);
        if (!p->ops) abort();
    }
    const Slot *slot = &k->schedule->slots[i->index];
    const BlockSchedule *b = &k->schedule->blocks[k->schedule->block_of[i->index]];
    PaceOp *op = &p->ops[p->op_count++];
    *op = (PaceOp){.insn = i->index,
                   .segment = b->first_segment + slot->segment,
                   .at = slot->at,
                   .first_line = p->line_count};
    uint64_t place = place_of(op->segment, op->at);
    if (place < p->next_place) p->next_place = place;
    return op;
}

void pace_op(Warp *w, const Insn *i) {
    new_op(w->pace, w->sm->launch->pace, i);
    w->pace->current = i;
}

// The operation of the running instruction.
static PaceOp *current_op(Warp *w) {
    WarpPace *p = w->pace;
    const Insn *i = p->current;
    if (p->op_count && p->ops[p->op_count - 1].insn == i->index && !p->ops[p->op_count - 1].done)
        return &p->ops[p->op_count - 1];
    return new_op(p, w->sm->launch->pace, i);
}

void pace_line(Warp *w, uint64_t line, unsigned sectors, unsigned write, uint32_t bytes) {
    WarpPace *p = w->pace;
    PaceOp *op = current_op(w);
    if (p->line_count == p->line_capacity) {
        p->line_capacity = p->line_capacity ? 2 * p->line_capacity : 256;
        p->lines = realloc(p->lines, p->line_capacity * sizeof *p->lines);
        if (!p->lines) abort();
    }
    p->lines[p->line_count++] = (L2Request){
        .line = line, .sectors = (uint8_t)sectors, .write = (uint8_t)write, .bytes = bytes};
    op->lines++;
}

void pace_l1_hit(Warp *w) {
    current_op(w)->l1 = true;
}

void pace_shared(Warp *w, unsigned wavefronts) {
    PaceOp *op = current_op(w);
    op->shared = true;
    op->wavefronts += wavefronts;
}

void pace_remote(Warp *w, Sm *peer, int bytes) {
    PaceOp *op = current_op(w);
    op->remote += (uint32_t)bytes;
    op->peer = peer;
}

void pace_copy(Warp *w, void *copy, uint64_t generation) {
    PaceOp *op = current_op(w);
    op->copy = copy;
    op->generation = generation;
}

// ---- waits

// Why the warp waits at the instruction that has blocked it.
static Stall reason(const Warp *w) {
    const char *text = w->kernel->texts ? w->kernel->texts[w->pace->current->index] : NULL;
    if (!text) return STALL_OTHER;
    if (!strncmp(text, "wgmma", 5)) return STALL_WGMMA;
    if (!strncmp(text, "mbarrier", 8)) return STALL_MBARRIER;
    if (!strncmp(text, "bar", 3)) return STALL_BARRIER;
    if (!strncmp(text, "tcgen05", 7)) return STALL_MEMORY; // waits for loads and stores
    if (!strncmp(text, "cp.", 3)) return STALL_COPY;
    return STALL_OTHER;
}

void pace_blocked(Warp *w) {
    WarpPace *p = w->pace;
    p->blocked = true;
    p->since = p->now;
    p->why = reason(w);
}

void pace_put_off(Warp *w, const Insn *i, Flow flow) {
    WarpPace *p = w->pace;
    uint32_t after = w->sm->launch->pace->after[i->index];
    if (flow == FLOW_WAIT) p->extra = after;
    if (flow == FLOW_YIELD) p->now += after;
    if (flow != FLOW_RETRY && flow != FLOW_DEFER) return;
    if (!p->op_count || p->ops[p->op_count - 1].insn != i->index) return;
    const PaceOp *op = &p->ops[p->op_count - 1];
    if (!op->done && !op->lines && !op->shared) p->op_count--;
}

void pace_woken(Warp *w) {
    WarpPace *p = w->pace;
    if (!p->blocked) return;
    p->blocked = false;
    if (w->sm->time > p->now) p->now = w->sm->time;
    w->sm->pace->stall[p->why] += p->now - p->since;
    if (trace_on(w->sm)) trace_wait(w, p->why, p->since, p->now);
    p->now += p->extra;
    p->extra = 0;
    if (w->status == WARP_READY) ready_moved(w);
}

uint64_t pace_admit(Warp *w, uint64_t last) {
    WarpPace *p = w->pace;
    uint64_t first = last + (uint64_t)w->sm->launch->pace->timing->barrier_interval;
    if (last && first > p->now) p->now = first;
    if (p->now > w->sm->time) w->sm->time = p->now;
    return p->now;
}

// ---- parts

void pace_begin_part(Warp *w, const Insn *i) {
    const KernelSchedule *s = w->sm->launch->pace->schedule;
    WarpPace *p = w->pace;
    uint32_t block = s->block_of[i->index];
    const KernelPace *k = w->sm->launch->pace;
    if (k->stops[i->index] & PACE_FENCE && p->stored_far) {
        uint64_t arrived = p->stored_far + (uint64_t)k->timing->cluster_fence;
        if (arrived > p->now) p->now = arrived;
        p->stored_far = 0;
    }
    if (k->stops[i->index] & PACE_PROXY && p->stored_shared) {
        uint64_t performed = p->stored_shared + (uint64_t)k->timing->shared_store;
        if (performed > p->now) p->now = performed;
        p->stored_shared = 0;
    }
    if (p->block == block && i->index == p->to_insn) return;
    const BlockSchedule *b = &s->blocks[block];
    p->block = block;
    p->segment = b->first_segment;
    p->offset = 0;
    p->entered = false;
    if (i->index != b->first) { // lanes that come back in its middle
        p->segment += s->slots[i->index].segment;
        p->offset = s->slots[i->index].at;
    }
}

void pace_end_part(Warp *w, const Insn *next) {
    const KernelSchedule *s = w->sm->launch->pace->schedule;
    WarpPace *p = w->pace;
    const BlockSchedule *b = &s->blocks[p->block];
    p->playing = true;
    p->to_insn = next ? next->index : UINT32_MAX;
    if (next && s->block_of[next->index] == p->block && !(next->flags & INSN_LEADER)) {
        p->to_segment = b->first_segment + s->slots[next->index].segment;
        p->to_offset = s->slots[next->index].at;
        return;
    }
    p->to_segment = b->first_segment + b->segment_count;
    p->to_offset = 0;
}

// ---- memory

// When the result of a load is there, or that it isn't known yet.
static void answer(WarpPace *p, const KernelPace *k, uint32_t insn, uint64_t ready) {
    p->ready[k->load_numbers[insn]] = ready;
    for (uint32_t n = k->loads[insn]; n < k->loads[insn + 1]; n++) p->ready[k->results[n]] = ready;
}

// A load's lines are there.
static void load_done(Sm *sm, void *subject, uint64_t data, uint64_t ready) {
    Warp *w = subject;
    const KernelPace *k = sm->launch->pace;
    WarpPace *p = w->pace;
    uint32_t insn = (uint32_t)data;
    if (!p || !w->live || p->epoch != data >> 32) return;
    answer(p, k, insn, ready);
    if (!p->parked) return;
    p->parked = false;
    sm_ready(w);
}

// An access to a peer's shared memory takes this SM's way to others, more slowly when the peer is
// itself at others' (their clocks may differ by a round). Returns when it begins.
static double cluster_begin(SmPace *s, const SmPace *peer, uint32_t bytes, double rate, double time,
                            const GpuTiming *t) {
    if (peer && peer->cluster_free + PACE_QUANTUM > time && peer->cluster_free > 0 &&
        rate > t->cluster_both_bytes)
        rate = t->cluster_both_bytes;
    double begin = s->cluster_free > time ? s->cluster_free : time;
    s->cluster_free = begin + bytes / rate;
    return begin;
}

// An operation leaves the warp at `time`. Returns how much longer the warp is kept.
static uint64_t leave(Warp *w, PaceOp *op, uint64_t time) {
    Sm *sm = w->sm;
    SmPace *s = sm->pace;
    WarpPace *p = w->pace;
    const KernelPace *k = sm->launch->pace;
    const GpuTiming *t = k->timing;
    uint64_t ready = time + (uint64_t)t->shared_load, kept = 0;
    op->done = true;
    if (op->remote) {
        double rate =
            k->stops[op->insn] & PACE_LOAD ? t->cluster_load_bytes : t->cluster_store_bytes;
        double begin = cluster_begin(s, op->peer->pace, op->remote, rate, (double)time, t);
        ready = (uint64_t)begin + (uint64_t)t->cluster_load;
        if (s->cluster_free > (double)(time + QUEUE))
            kept = (uint64_t)s->cluster_free - time - QUEUE;
        if (!(k->stops[op->insn] & PACE_LOAD)) p->stored_far = time;
    } else if (op->shared) {
        uint64_t begin = s->shared_free > time ? s->shared_free : time;
        s->shared_free = begin + op->wavefronts;
        s->shared_busy += op->wavefronts;
        ready = s->shared_free + (uint64_t)t->shared_load - 1;
        if (t->shared_store && !(k->stops[op->insn] & PACE_LOAD)) p->stored_shared = s->shared_free;
        if (begin > time + QUEUE) kept = begin - time - QUEUE;
    } else if (op->l1 && !op->lines) {
        ready = time + (uint64_t)t->local_hit;
    }
    bool load = k->stops[op->insn] & PACE_LOAD;
    if (op->copy) {
        uint32_t ticket = ticket_new(sm, async_copy_done, op->copy, op->generation);
        pace_send(w, op, time, ticket);
        ticket_close(sm, ticket, op->lines ? time : time + (uint64_t)t->local_hit);
    } else if (op->lines) {
        uint32_t ticket =
            load ? ticket_new(sm, load_done, w, (uint64_t)p->epoch << 32 | op->insn) : TICKET_NONE;
        if (load) answer(p, k, op->insn, PACE_UNKNOWN);
        pace_send(w, op, time, ticket);
        if (load) ticket_close(sm, ticket, op->l1 ? time + (uint64_t)t->local_hit : time);
    } else if (load) {
        answer(p, k, op->insn, ready);
    }
    return kept;
}

// Lets the operations go that stand before (segment, offset); `end`: where the clock stands there.
static void leave_until(Warp *w, uint32_t segment, uint32_t offset, uint64_t end) {
    WarpPace *p = w->pace;
    uint64_t kept = 0, place = place_of(segment, offset), next = UINT64_MAX;
    if (place <= p->next_place) return; // none stands there yet
    while (p->first_op < p->op_count && p->ops[p->first_op].done) p->first_op++;
    for (uint32_t n = p->first_op; n < p->op_count; n++) {
        PaceOp *op = &p->ops[n];
        if (op->done) continue;
        uint64_t at = place_of(op->segment, op->at);
        if (at >= place) {
            if (at < next) next = at;
            continue;
        }
        uint64_t back = op->segment == segment ? offset - op->at : 0;
        uint64_t held = leave(w, op, end > back ? end - back : end);
        if (held > kept) kept = held;
    }
    p->next_place = next;
    p->now += kept;
    w->sm->pace->stall[STALL_PIPE] += kept;
    if (next == UINT64_MAX) p->op_count = p->first_op = p->line_count = 0;
}

// ---- chunks

// Is all there that the segment waits for? Else the warp is parked.
static bool enter(Warp *w, const Segment *g) {
    const KernelPace *k = w->sm->launch->pace;
    WarpPace *p = w->pace;
    uint64_t ready = p->now;
    for (uint32_t n = 0; n < g->row_count; n++) {
        // A row may have been loaded again since: in its block each load has its own answer.
        const WaitedRow *waited = &k->schedule->rows[g->first_row + n];
        bool here = waited->from != LOAD_ELSEWHERE && k->stops[waited->from] & PACE_LOAD;
        uint64_t row = p->ready[here ? k->load_numbers[waited->from] : k->rows[g->first_row + n]];
        if (row == PACE_UNKNOWN) {
            p->parked = true;
            return false;
        }
        if (row > ready) ready = row;
    }
    w->sm->pace->stall[STALL_MEMORY] += ready - p->now;
    p->now = ready;
    p->entered = true;
    return true;
}

static inline uint32_t share(uint32_t all, uint32_t from, uint32_t to, uint32_t length) {
    return (uint32_t)((uint64_t)all * to / length - (uint64_t)all * from / length);
}

// When the scheduler's tensor cores are free, if the cycles [from, to) of a segment need them: who has
// them keeps them. The other units change hands from one instruction to the next; a chunk's share
// of them is queued.
static uint64_t free_time(const Warp *w, const Segment *g, uint32_t from, uint32_t to) {
    if (!g->busy[UNIT_TENSOR] || !share(g->busy[UNIT_TENSOR], from, to, g->length)) return 0;
    return w->sm->pace->free[w->pace->scheduler][UNIT_TENSOR];
}

// The units' work of the cycles [from, to) of a segment; returns when it is done.
static uint64_t reserve(Warp *w, const Segment *g, uint32_t from, uint32_t to) {
    SmPace *s = w->sm->pace;
    WarpPace *p = w->pace;
    uint64_t now = p->now, end = now + (to - from);
    uint32_t length = g->length ? g->length : 1;
    uint32_t issue = share(g->issue, from, to, length);
    uint64_t *free = &s->free[p->scheduler][UNIT_ISSUE];
    *free = (*free > now ? *free : now) + issue;
    if (*free > end) end = *free;
    s->issued += issue;
    s->busy[UNIT_ISSUE] += issue;
    for (int u = UNIT_ISSUE + 1; u < UNIT_COUNT; u++) {
        if (!g->busy[u]) continue;
        uint32_t busy = share(g->busy[u], from, to, length);
        free = &s->free[u < UNIT_FIRST_SHARED ? p->scheduler : 0][u];
        *free = (*free > now ? *free : now) + busy;
        // What the SM's units have to do is queued; the queues are short.
        uint64_t until = u < UNIT_FIRST_SHARED ? end : end + QUEUE;
        if (*free > until) end += *free - until;
        s->busy[u] += busy;
        if (trace_on(w->sm)) trace_unit(w, (Unit)u, *free - busy, *free);
    }
    // Products read their accumulators from the same register files (tensor_time.c).
    const GpuTiming *t = w->sm->launch->pace->timing;
    if (t->register_pressure && s->products) {
        uint64_t reads = share(g->reads, from, to, length) * 128ull;
        if (s->registers_free < now) s->registers_free = now;
        s->registers_free += reads / (uint64_t)t->register_read_bytes;
        if (s->registers_free > end + QUEUE) end = s->registers_free - QUEUE;
    }
    s->stall[STALL_PIPE] += end - now - (to - from);
    s->stall[STALL_DEPENDENCY] += to - from > issue ? to - from - issue : 0;
    return end;
}

bool pace_play(Warp *w) {
    const KernelSchedule *s = w->sm->launch->pace->schedule;
    WarpPace *p = w->pace;
    const BlockSchedule *b = &s->blocks[p->block];
    uint32_t end_segment = b->first_segment + b->segment_count;
    if (p->segment > p->to_segment || (p->segment == p->to_segment && p->offset >= p->to_offset)) {
        // Come to where the next part begins; what it waits for must be there.
        if (p->segment == p->to_segment && p->segment < end_segment && !p->offset && !p->entered &&
            !enter(w, &s->segments[p->segment]))
            return true;
        if (p->to_segment == end_segment) {
            leave_until(w, end_segment, 0, p->now);
            p->block = UINT32_MAX;
        }
        p->playing = false;
        return false;
    }
    const Segment *g = &s->segments[p->segment];
    if (!p->entered && !p->offset) {
        uint64_t before = p->now;
        // Until what it waits for is there others go first: units are given out in order of time.
        if (!enter(w, g) || p->now > before) return true;
    }
    uint32_t to = p->segment == p->to_segment ? p->to_offset : g->length;
    if (to > p->offset + CHUNK) to = p->offset + CHUNK;
    if (to > p->offset) {
        uint64_t free = free_time(w, g, p->offset, to);
        if (free > p->now) { // another warp has them: it is asked again who goes first then
            w->sm->pace->stall[STALL_PIPE] += free - p->now;
            p->now = free;
            return true;
        }
        w->sm->pace->last[p->scheduler] = w;
        p->now = reserve(w, g, p->offset, to);
        p->offset = to;
        leave_until(w, p->segment, to, p->now);
    }
    if (p->segment != p->to_segment && p->offset >= g->length) {
        leave_until(w, p->segment, UINT32_MAX, p->now);
        // What an earlier block has left under way is there now.
        if (p->drained > p->now) {
            w->sm->pace->stall[STALL_DEPENDENCY] += p->drained - p->now;
            p->now = p->drained;
        }
        if (p->segment + 1 == end_segment) p->drained = p->now + g->drain;
        p->segment++;
        p->offset = 0;
        p->entered = false;
    }
    return true;
}
