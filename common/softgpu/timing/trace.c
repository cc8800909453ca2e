// Gathers spans while a launch runs (trace.h).
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "softgpu/timing/trace_parts.h"

// Launches come one after the other, and there is one file.
static TraceSm *traced[TRACE_SMS_MOST]; // made when first needed
static int traced_count;
static uint64_t launch_begin; // SM clock

// ---- spans

static void add(TraceSm *t, TraceSpan span) {
    if (span.begin >= span.end) return;
    if (t->count == TRACE_SPANS_MOST) {
        t->dropped++;
        return;
    }
    if (t->count == t->capacity) {
        uint32_t larger = t->capacity ? 2 * t->capacity : 1024;
        TraceSpan *grown = realloc(t->spans, larger * sizeof *grown);
        if (!grown) {
            t->dropped++;
            return;
        }
        t->spans = grown;
        t->capacity = larger;
    }
    t->spans[t->count++] = span;
}

// The slot of a block on its SM; NULL if it came when there was none free.
static struct TraceSlot *slot_of(const Cta *cta) {
    TraceSm *t = cta->sm->trace;
    for (int s = 0; s < TRACE_SLOTS; s++)
        if (t->slots[s].cta == cta) return &t->slots[s];
    return NULL;
}

// Of which warp, block and slot a span is. False if the block has no slot.
static bool set_warp(TraceSpan *span, const Warp *w) {
    const struct TraceSlot *slot = slot_of(w->cta);
    if (!slot) return false;
    span->linear = slot->linear;
    span->warp = (int32_t)(slot - w->sm->trace->slots) * TRACE_WARPS + w->id;
    return true;
}

void trace_span(Sm *sm, TraceTrack track, uint32_t number, const Warp *by, const char *name,
                uint64_t begin, uint64_t end) {
    TraceSpan span = {.name = name,
                      .begin = begin,
                      .end = end,
                      .number = number,
                      .warp = -1,
                      .track = (uint8_t)track};
    if (by) set_warp(&span, by);
    add(sm->trace, span);
}

void trace_unit(const Warp *w, Unit unit, uint64_t begin, uint64_t end) {
    TraceSm *t = w->sm->trace;
    if (unit != UNIT_XU && unit != UNIT_TENSOR) return;
    uint32_t scheduler = (uint32_t)w->id % 4;
    uint32_t *latest = &t->latest[(unit == UNIT_TENSOR ? 4 : 0) + scheduler];
    TraceSpan *before = *latest ? &t->spans[*latest - 1] : NULL;
    if (before && begin <= before->end + TRACE_GAP) {
        before->busy += end - begin;
        if (end > before->end) before->end = end;
        return;
    }
    uint32_t count = t->count;
    add(t, (TraceSpan){.name = unit == UNIT_XU ? "mufu" : "mma",
                       .begin = begin,
                       .end = end,
                       .busy = end - begin,
                       .number = scheduler,
                       .warp = -1,
                       .track = unit == UNIT_XU ? TRACE_MUFU : TRACE_TENSOR});
    if (t->count > count) *latest = t->count;
}

void trace_barrier(const Cta *cta, uint32_t number, uint64_t now) {
    static const char *const names[] = {"even phase", "odd phase"};
    struct TraceSlot *slot = slot_of(cta);
    if (!slot) return;
    struct TraceBarrier *b = slot->barriers, *end = b + slot->barrier_count;
    while (b < end && b->number != number) b++;
    if (b == end) {
        if (slot->barrier_count == TRACE_BARRIERS) return;
        slot->barrier_count++;
        *b = (struct TraceBarrier){.number = number, .since = slot->begin};
    }
    add(cta->sm->trace,
        (TraceSpan){.name = names[b->phases % 2],
                    .begin = b->since,
                    .end = now,
                    .number = (uint32_t)(slot - cta->sm->trace->slots) << 24 | number,
                    .warp = -1,
                    .track = TRACE_BARRIER});
    b->phases++;
    b->since = now;
}

void trace_wait(const Warp *w, Stall why, uint64_t begin, uint64_t end) {
    static const char *const names[STALL_COUNT] = {
        [STALL_BARRIER] = "barrier", [STALL_MBARRIER] = "mbarrier",
        [STALL_WGMMA] = "wgmma",     [STALL_MEMORY] = "memory",
        [STALL_COPY] = "copy",       [STALL_PIPE] = "pipe",
        [STALL_OTHER] = "other",     [STALL_DEPENDENCY] = "dependency",
    };
    TraceSpan span = {
        .name = names[why], .begin = begin, .end = end, .track = TRACE_WARP, .wait = true};
    if (!set_warp(&span, w)) return;
    span.number = (uint32_t)span.warp;
    add(w->sm->trace, span);
}

void trace_phase(const Warp *w, const char *name, uint64_t now) {
    struct TraceSlot *slot = slot_of(w->cta);
    if (!slot || w->id >= TRACE_WARPS) return;
    struct TraceOpen *open = &slot->open[w->id];
    TraceSpan span = {.name = open->name, .begin = open->begin, .end = now, .track = TRACE_WARP};
    if (open->name && set_warp(&span, w)) {
        span.number = (uint32_t)span.warp;
        add(w->sm->trace, span);
    }
    *open = (struct TraceOpen){name, now};
}

void trace_cta_begin(const Cta *cta, uint64_t now) {
    TraceSm *t = cta->sm->trace;
    for (int s = 0; s < TRACE_SLOTS; s++) {
        if (t->slots[s].cta) continue;
        t->slots[s] = (struct TraceSlot){.cta = cta, .linear = cta->linear, .begin = now};
        return;
    }
}

void trace_cta_end(const Cta *cta, uint64_t now) {
    struct TraceSlot *slot = slot_of(cta);
    if (!slot) return;
    for (int k = 0; k < cta->warp_count; k++) trace_phase(&cta->warps[k], NULL, now);
    add(cta->sm->trace, (TraceSpan){.begin = slot->begin,
                                    .end = now,
                                    .linear = slot->linear,
                                    .number = (uint32_t)(slot - cta->sm->trace->slots),
                                    .warp = -1,
                                    .track = TRACE_CTA});
    slot->cta = NULL;
}

// ---- launches

// Makes the settings' file the one that is written. False if it can't be.
static bool choose_file(const char *path) {
    const char *open = trace_file_path();
    if (open && !strcmp(open, path)) return true;
    trace_file_close();
    if (trace_file_open(path)) return true;
    fprintf(stderr, "softgpu: can't write the timeline to %s: %s\n", path, strerror(errno));
    return false;
}

void trace_launch_begin(Gpu *gpu, const Launch *launch, int sms, uint64_t now) {
    (void)launch;
    const char *path = gpu->settings->trace;
    traced_count = 0;
    for (int s = 0; s < gpu->figures.sms; s++) gpu->sm[s].trace = NULL;
    if (!path || !choose_file(path)) return;
    traced_count = sms < gpu->settings->trace_sms ? sms : gpu->settings->trace_sms;
    launch_begin = now;
    for (int s = 0; s < traced_count; s++) {
        TraceSm *t = traced[s];
        if (!t) t = traced[s] = calloc(1, sizeof *t);
        if (!t) abort();
        t->sm = gpu->sm[s].id;
        t->count = 0;
        t->dropped = 0;
        memset(t->latest, 0, sizeof t->latest);
        memset(t->slots, 0, sizeof t->slots);
        gpu->sm[s].trace = t;
    }
}

void trace_launch_end(Gpu *gpu, const Launch *launch, double time_us) {
    if (!traced_count) return;
    TraceLaunch l = {.launch = launch,
                     .gpu = gpu->figures.full_name,
                     .begin_us = gpu->clock_us,
                     .clock_ghz = gpu->figures.clock_ghz,
                     .time_us = time_us,
                     .begin = launch_begin};
    trace_file_launch(&l, traced, traced_count);
    for (int s = 0; s < traced_count; s++) gpu->sm[s].trace = NULL;
    traced_count = 0;
}

bool trace_finish(void) {
    bool written = trace_file_close();
    for (int s = 0; s < TRACE_SMS_MOST; s++) {
        if (traced[s]) free(traced[s]->spans);
        free(traced[s]);
        traced[s] = NULL;
    }
    return written;
}

const char *trace_probe(const char *path) {
    struct stat status;
    if (!strcmp(path, "-")) return NULL;
    bool exists = stat(path, &status) == 0;
    if (exists && S_ISDIR(status.st_mode)) return "it is a folder; give the name of a file";
    if (exists && !S_ISREG(status.st_mode)) return access(path, W_OK) == 0 ? NULL : strerror(errno);
    if (strlen(path) > 4000) return "the name is too long";
    char probe[4096];
    snprintf(probe, sizeof probe, "%s.%ld.probe", path, (long)getpid());
    FILE *file = fopen(probe, "w");
    if (!file) return strerror(errno);
    fclose(file);
    unlink(probe);
    return NULL;
}
