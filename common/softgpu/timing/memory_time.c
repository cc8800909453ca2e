// L2 and HBM in a timed launch (memory_time.h).
#include "softgpu/timing/memory_time.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/timing/latencies.h"
#include "softgpu/timing/pace.h"

enum { LINE = 128, SECTOR = 32, NEAR_WAYS = 16 };

struct Ordered {
    uint64_t time;
    uint32_t sm, index;
};

void memory_time_begin(MemoryTime *m, Gpu *gpu, uint64_t now) {
    const GpuFigures *f = &gpu->figures;
    const GpuTiming *t = timing_of(f->name);
    double share = (double)gpu->sample / f->sms;
    // A model of fewer SMs (--sms) has less L2.
    double near = fmin(t->l2_near_bytes, (double)f->l2_bytes / 2) * share;
    memset(m, 0, sizeof *m);
    m->l2_bytes_per_clk = f->l2_bytes_per_clk * share;
    m->hbm_bytes_per_clk = f->hbm_bytes_per_s / (f->clock_ghz * 1e9) * share;
    m->port_bytes_per_clk = t->l2_port_bytes;
    m->begin = now;
    m->near_lines = near / LINE;
    for (int side = 0; side < 2; side++) {
        if (gpu->near[side] && gpu->near_share == gpu->sample) continue;
        cache_free(gpu->near[side]);
        gpu->near[side] = cache_new((uint64_t)near, NEAR_WAYS);
    }
    gpu->near_share = gpu->sample;
    m->port_free = calloc((size_t)f->sms, sizeof *m->port_free);
    if (!m->port_free) abort();
}

void memory_time_end(MemoryTime *m) {
    free(m->port_free);
    free(m->order);
}

static int by_time(const void *a, const void *b) {
    const struct Ordered *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    if (x->sm != y->sm) return x->sm < y->sm ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

// Must the request cross to the other half of L2? A half keeps what its SMs have read, as a cache of
// the whole: while all fits there nothing is far.
static bool is_far(const MemoryTime *m, const Gpu *gpu, const GpuTiming *t, int sm,
                   const L2Request *q) {
    bool miss = cache_l1_read(gpu->near[sm & 1], q->line, q->sectors) != 0;
    return miss && t->l2_partitions > 1 && (double)cache_used(gpu->l2) > m->near_lines;
}

static double later(double a, double b) {
    return a > b ? a : b;
}

// Serves one request; returns when its answer is there, counted from the launch's begin: so the same
// launch takes the same time whatever the clock says.
static double serve(MemoryTime *m, Gpu *gpu, const GpuTiming *t, int sm, const L2Request *q,
                    CacheTraffic *hbm) {
    CacheTraffic moved = {0};
    double bytes = SECTOR * (double)__builtin_popcount(q->sectors);
    if (q->write == 2)
        cache_l2_write_part(gpu->l2, q->line, __builtin_ctz(q->sectors), q->bytes, &moved);
    else
        cache_l2_access(gpu->l2, q->line, q->sectors, q->write == 4 ? 0 : q->write, &moved);
    hbm->read_bytes += moved.read_bytes;
    hbm->write_bytes += moved.write_bytes;

    double come = (double)(q->time - m->begin);
    double begin = later(come, m->l2_free);
    m->l2_free = begin + bytes / m->l2_bytes_per_clk;
    m->l2_busy += bytes / m->l2_bytes_per_clk;
    double latency = is_far(m, gpu, t, sm, q) ? t->l2_far : t->l2_near;
    if (q->write == 3) { // one word's atomics follow each other
        double *free = &m->atomic_free[(q->line * 0x9e3779b97f4a7c15ull) >> 54];
        begin = later(begin, *free);
        *free = begin + t->atomic_same_word;
        latency = t->atomic_l2;
    }
    double crossing = (double)(moved.read_bytes + moved.write_bytes);
    if (crossing > 0) {
        double from = later(begin, m->hbm_free);
        m->hbm_free = from + crossing / m->hbm_bytes_per_clk;
        m->hbm_busy += crossing / m->hbm_bytes_per_clk;
        if (moved.read_bytes && q->write != 1) {
            latency = t->dram;
            begin = from;
        }
        // A write back doesn't keep the request, only those behind it, and not without bound.
        else if (from > begin)
            begin = from;
    }
    double ready = begin + latency;
    double port = later(ready - bytes / m->port_bytes_per_clk, m->port_free[sm]);
    m->port_free[sm] = port + bytes / m->port_bytes_per_clk;
    return later(ready, m->port_free[sm]);
}

void memory_time_serve(MemoryTime *m, Gpu *gpu, int sms, uint64_t end, CacheTraffic *l2,
                       CacheTraffic *hbm) {
    const GpuTiming *t = timing_of(gpu->figures.name);
    size_t count = 0;
    for (int s = 0; s < sms; s++) count += gpu->sm[s].request_count;
    if (!count) return;
    if (count > m->order_capacity) {
        m->order_capacity = 2 * count;
        m->order = realloc(m->order, m->order_capacity * sizeof *m->order);
        if (!m->order) abort();
    }
    count = 0;
    for (int s = 0; s < sms; s++)
        for (size_t k = 0; k < gpu->sm[s].request_count; k++)
            if (gpu->sm[s].requests[k].time < end)
                m->order[count++] =
                    (struct Ordered){gpu->sm[s].requests[k].time, (uint32_t)s, (uint32_t)k};
    qsort(m->order, count, sizeof *m->order, by_time);
    for (size_t k = 0; k < count; k++) {
        Sm *sm = &gpu->sm[m->order[k].sm];
        L2Request *q = &sm->requests[m->order[k].index];
        uint64_t bytes = SECTOR * (uint64_t)__builtin_popcount(q->sectors);
        if (q->write != 1 && q->write != 2 && q->write != 4) l2->read_bytes += bytes;
        if (q->write && q->write != 4) l2->write_bytes += bytes;
        uint64_t ready = m->begin + (uint64_t)(serve(m, gpu, t, sm->id, q, hbm) + 0.5);
        if (ready > sm->pace->last_answer) sm->pace->last_answer = ready;
        uint32_t ticket = q->ticket;
        q->sectors = 0; // served
        if (ticket) ticket_served(sm, ticket, ready);
    }
    for (int s = 0; s < sms; s++) {
        Sm *sm = &gpu->sm[s];
        size_t left = 0;
        for (size_t k = 0; k < sm->request_count; k++)
            if (sm->requests[k].sectors) sm->requests[left++] = sm->requests[k];
        sm->request_count = left;
    }
}

uint64_t memory_time_next(const Gpu *gpu, int sms) {
    uint64_t next = UINT64_MAX;
    for (int s = 0; s < sms; s++)
        for (size_t k = 0; k < gpu->sm[s].request_count; k++)
            if (gpu->sm[s].requests[k].time < next) next = gpu->sm[s].requests[k].time;
    return next;
}
