// The SM's part of the pace (pace.h): tickets, and room for CTAs.
#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/cluster.h"
#include "softgpu/machine/parts.h"
#include "softgpu/timing/pace_parts.h"
#include "softgpu/timing/tensor_time.h"

// ---- tickets

uint32_t ticket_new(Sm *sm, TicketDone *done, void *subject, uint64_t data) {
    SmPace *s = sm->pace;
    uint32_t n = s->ticket_free;
    if (n) {
        s->ticket_free = s->tickets[n].next;
    } else {
        if (!s->ticket_count) s->ticket_count = 1; // 0 is none
        if (s->ticket_count >= s->ticket_capacity) {
            s->ticket_capacity = s->ticket_capacity ? 2 * s->ticket_capacity : 256;
            s->tickets = realloc(s->tickets, s->ticket_capacity * sizeof *s->tickets);
            if (!s->tickets) abort();
        }
        n = s->ticket_count++;
    }
    s->tickets[n] = (Ticket){.done = done, .subject = subject, .data = data, .outstanding = 1};
    return n;
}

void ticket_served(Sm *sm, uint32_t ticket, uint64_t ready) {
    SmPace *s = sm->pace;
    Ticket *t = &s->tickets[ticket];
    if (ready > t->ready) t->ready = ready;
    if (--t->outstanding) return;
    Ticket copy = *t;
    t->next = s->ticket_free;
    s->ticket_free = ticket;
    if (copy.done) copy.done(sm, copy.subject, copy.data, copy.ready);
}

void ticket_close(Sm *sm, uint32_t ticket, uint64_t ready) {
    ticket_served(sm, ticket, ready);
}

// ---- requests

// Sends a line to L2 at `time`, for a ticket or for nobody.
static void send(Sm *sm, const L2Request *line, uint64_t time, uint32_t ticket) {
    L2Request *q = traffic_request(sm);
    *q = *line;
    q->time = time;
    q->ticket = ticket;
    if (ticket) sm->pace->tickets[ticket].outstanding++;
}

void pace_send(Warp *w, const PaceOp *op, uint64_t time, uint32_t ticket) {
    const WarpPace *p = w->pace;
    for (uint32_t k = 0; k < op->lines; k++)
        send(w->sm, &p->lines[op->first_line + k], time, ticket);
}

// The engine takes the lines one after the other, at the rate of the SM's port to L2.
void pace_send_bulk(Warp *w, TicketDone *done, void *subject, uint64_t data, uint64_t peer_bytes) {
    Sm *sm = w->sm;
    SmPace *s = sm->pace;
    WarpPace *p = w->pace;
    PaceOp *op = p->op_count ? &p->ops[p->op_count - 1] : NULL;
    if (op && (op->insn != p->current->index || op->done)) op = NULL;
    const GpuTiming *t = sm->launch->pace->timing;
    uint32_t gap = 128 / (uint32_t)t->l2_port_bytes;
    uint64_t begin = s->tma_free > p->now ? s->tma_free : p->now;
    uint32_t ticket = ticket_new(sm, done, subject, data), lines = op ? op->lines : 0;
    for (uint32_t k = 0; k < lines; k++)
        send(sm, &p->lines[op->first_line + k], begin + k * gap, ticket);
    s->tma_free = begin + (lines ? lines : 1) * gap;
    s->tma_busy += (lines ? lines : 1) * gap;
    if (op) op->lines = 0; // the CTAs of a multicast share what was read once
    uint64_t ready = s->tma_free;
    if (peer_bytes) {
        if (s->cluster_free < (double)begin) s->cluster_free = (double)begin;
        s->cluster_free += (double)peer_bytes / t->cluster_copy_bytes;
        ready = (uint64_t)s->cluster_free + (uint64_t)t->cluster_one_way;
    }
    ticket_close(sm, ticket, ready);
}

uint64_t pace_bulk_read(const Sm *sm, uint64_t bytes) {
    const GpuTiming *t = sm->launch->pace->timing;
    uint64_t begin = sm->pace->tma_free > sm->time ? sm->pace->tma_free : sm->time;
    return begin + bytes / (uint64_t)t->l2_port_bytes + (uint64_t)t->store_visible;
}

// A bulk copy's bytes trickle in over hundreds of cycles. They are work of shared memory's; whom they
// delay are the products, which read operands at nearly its rate (pace_fill).
void pace_bulk_shared(Sm *sm, uint64_t bytes) {
    if (sm->pace) sm->pace->shared_busy += (bytes + 127) / 128;
}

// They come as fast as the SM's port to L2 carries them. What L2 or HBM delays comes more slowly,
// but then in all less time is taken from products; and so it is for the other CTAs of a multicast,
// whose fills are not counted.
void pace_fill(Sm *sm, uint64_t end, uint64_t bytes) {
    SmPace *s = sm->pace;
    uint64_t length = bytes / (uint64_t)sm->launch->pace->timing->l2_port_bytes;
    if (length == 0 || length > end) return;
    s->fills[s->fill_next++ % FILLS] = (Fill){end - length, end, bytes};
}

uint64_t pace_fill_cycles(const SmPace *s, uint64_t from, uint64_t to) {
    uint64_t bytes = 0;
    for (int k = 0; k < FILLS; k++) {
        const Fill *fill = &s->fills[k];
        uint64_t begin = fill->begin > from ? fill->begin : from;
        uint64_t end = fill->end < to ? fill->end : to;
        if (begin < end) bytes += fill->bytes * (end - begin) / (fill->end - fill->begin);
    }
    return bytes / 128;
}

// ---- CTAs

uint64_t pace_cta_start(Sm *sm) {
    SmPace *s = sm->pace;
    const GpuTiming *t = sm->launch->pace->timing;
    uint64_t time = sm->time;
    if (s->vacated_count) {
        time = s->vacated[s->vacated_first] + (uint64_t)t->cta_replace;
        s->vacated_first = (s->vacated_first + 1) % 64;
        s->vacated_count--;
    } else {
        time += s->started * (uint64_t)t->cta_interval;
    }
    s->started++;
    return time;
}

void pace_start_together(struct Cluster *cluster) {
    uint64_t latest = 0;
    for (int rank = 0; rank < cluster->size; rank++) {
        uint64_t now = cluster->ctas[rank]->warps[0].pace->now;
        if (now > latest) latest = now;
    }
    for (int rank = 0; rank < cluster->size; rank++) {
        Cta *cta = cluster->ctas[rank];
        if (cta->warps[0].pace->now == latest) continue;
        for (int k = 0; k < cta->warp_count; k++) {
            pace_warp_start(&cta->warps[k], latest);
            ready_moved(&cta->warps[k]);
        }
    }
}

void pace_cta_end(Sm *sm) {
    SmPace *s = sm->pace;
    if (!s) return;
    if (sm->time > s->last_end) s->last_end = sm->time;
    if (s->vacated_count == 64) {
        s->vacated_first = (s->vacated_first + 1) % 64;
        s->vacated_count--;
    }
    s->vacated[(s->vacated_first + s->vacated_count++) % 64] = sm->time;
}

void pace_sm_start(Sm *sm) {
    SmPace *s = sm->pace;
    if (!sm->launch->pace) {
        pace_sm_free(sm);
        return;
    }
    if (!s) {
        s = sm->pace = calloc(1, sizeof *s);
        if (!s) abort();
    }
    Ticket *tickets = s->tickets;
    uint32_t capacity = s->ticket_capacity;
    struct TensorQueue *tensor = s->tensor;
    ReadyClock *clocks = s->clocks;
    int clock_capacity = s->clock_capacity;
    *s = (SmPace){.tickets = tickets,
                  .ticket_capacity = capacity,
                  .tensor = tensor,
                  .clocks = clocks,
                  .clock_capacity = clock_capacity};
    s->last_end = s->last_answer = sm->time;
    tensor_queue_start(sm);
}

void pace_sm_free(Sm *sm) {
    if (!sm->pace) return;
    free(sm->pace->tickets);
    free(sm->pace->clocks);
    free(sm->pace->tensor);
    free(sm->pace);
    sm->pace = NULL;
}
