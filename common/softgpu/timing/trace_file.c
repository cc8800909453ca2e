// Writes timelines in the trace format of Chrome and Perfetto: a JSON object with a list of events.
//
// An event of kind X is a bar: `ts` and `dur` in microseconds of the modelled clock, on the track
// `tid` of the process `pid`. The GPU with its kernels is process 1, SM n process n + 2, and their
// tracks are numbered as they are met; events of kind M give them names and their order. `args`
// says the same in cycles: `begin`, counted from the launch's begin, and `cycles`.
//
// The file grows launch by launch under a temporary name, and has its own name only when whole.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "softgpu/check/findings.h"
#include "softgpu/timing/trace_parts.h"

enum { GPU_PROCESS = 1, SM_PROCESS = 2, KERNELS = 1 };

// A track of a process: its tid is its place in this list, from 1.
typedef struct {
    int sm;
    uint32_t number;
    uint8_t track, lane;
} Known;

static struct {
    FILE *stream; // NULL: none is open
    char *path, *temporary;
    bool to_stdout, started; // started: an event has been written
    int failed;              // errno of the first write that failed; 0: none has
    Known *known;
    uint32_t known_count, known_capacity;
    uint64_t events, dropped_spans, dropped_launches;
    bool named[1 + SM_PROCESS + TRACE_SMS_MOST]; // processes
    const char *gpu;
    double clock_ghz;
    int sms;       // of the launch with the most of them
    double end_us; // where the last bar so far ends
} file;

// ---- the file

const char *trace_file_path(void) {
    return file.stream ? file.path : NULL;
}

bool trace_file_open(const char *path) {
    struct stat status;
    memset(&file, 0, sizeof file);
    file.to_stdout = !strcmp(path, "-");
    bool replaced = !file.to_stdout && (stat(path, &status) != 0 || S_ISREG(status.st_mode));
    if (file.to_stdout)
        file.stream = tmpfile();
    else if (replaced && asprintf(&file.temporary, "%s.%ld.part", path, (long)getpid()) < 0)
        return false;
    else
        file.stream = fopen(replaced ? file.temporary : path, "w"); // /dev/null, pipes
    if (!file.stream) {
        free(file.temporary);
        file.temporary = NULL;
        return false;
    }
    file.path = strdup(path);
    fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [", file.stream);
    return true;
}

static bool copy_to_stdout(void) {
    char buffer[1 << 14];
    size_t n;
    rewind(file.stream);
    while ((n = fread(buffer, 1, sizeof buffer, file.stream)) > 0)
        if (fwrite(buffer, 1, n, stdout) < n) return false;
    return fflush(stdout) == 0;
}

// Writes out what is waiting, and keeps the reason of the first failure.
static void flush_file(void) {
    bool written = fflush(file.stream) == 0 && !ferror(file.stream);
    if (!written && file.failed == 0) file.failed = errno != 0 ? errno : EIO;
}

static void text(const char *s) {
    fputc('"', file.stream);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(file.stream, "\\%c", c);
        else if (c < 0x20)
            fprintf(file.stream, "\\u%04x", c);
        else
            fputc(c, file.stream);
    }
    fputc('"', file.stream);
}

bool trace_file_close(void) {
    if (!file.stream) return true;
    fputs("\n], \"otherData\": {\"gpu\": ", file.stream);
    text(file.gpu ? file.gpu : "none");
    fprintf(file.stream,
            ", \"clock_ghz\": %.17g, \"traced_sms\": %d, \"dropped_spans\": %llu, "
            "\"dropped_launches\": %llu}}\n",
            file.clock_ghz, file.sms, (unsigned long long)file.dropped_spans,
            (unsigned long long)file.dropped_launches);
    flush_file();
    int failed = file.failed;
    if (!failed && file.to_stdout && !copy_to_stdout()) failed = errno;
    if (fclose(file.stream) != 0 && !failed) failed = errno;
    if (!failed && file.temporary && rename(file.temporary, file.path) != 0) failed = errno;
    if (failed)
        fprintf(stderr, "softgpu: can't write the timeline to %s: %s\n", file.path,
                strerror(failed));
    if (failed && file.temporary) unlink(file.temporary);
    if (!failed && (file.dropped_spans || file.dropped_launches)) {
        fprintf(
            stderr,
            "softgpu: %s is not all of the timeline: %llu spans and %llu launches had no room\n",
            file.path, (unsigned long long)file.dropped_spans,
            (unsigned long long)file.dropped_launches);
    }
    free(file.path);
    free(file.temporary);
    free(file.known);
    memset(&file, 0, sizeof file);
    return !failed;
}

// ---- events

static void begin_event(void) {
    fputs(file.started ? ",\n" : "\n", file.stream);
    file.started = true;
    file.events++;
}

// Names a process or, with a tid, one of its tracks.
static void name_it(const char *kind, int pid, uint32_t tid, const char *name) {
    begin_event();
    fprintf(file.stream,
            "{\"ph\": \"M\", \"name\": \"%s\", \"pid\": %d, \"tid\": %u, \"args\": ", kind, pid,
            tid);
    fputs("{\"name\": ", file.stream);
    text(name);
    fputs("}}", file.stream);
}

static void sort_it(const char *kind, int pid, uint32_t tid, uint32_t index) {
    begin_event();
    fprintf(file.stream,
            "{\"ph\": \"M\", \"name\": \"%s\", \"pid\": %d, \"tid\": %u, "
            "\"args\": {\"sort_index\": %u}}",
            kind, pid, tid, index);
}

// True if the process is new.
static bool name_process(int pid, const char *name) {
    if (file.named[pid]) return false;
    file.named[pid] = true;
    name_it("process_name", pid, 0, name);
    sort_it("process_sort_index", pid, 0, (uint32_t)pid);
    return true;
}

// "warpgroup 1", or "warp 5" where the warps of a warpgroup go ways of their own.
static void name_warp(char *name, size_t size, uint32_t number) {
    uint32_t slot = number / TRACE_WARPS, warp = number % TRACE_WARPS;
    int at = warp % 4 ? snprintf(name, size, "warp %u", warp)
                      : snprintf(name, size, "warpgroup %u", warp / 4);
    if (slot) snprintf(name + at, size - (size_t)at, " of block slot %u", slot);
}

static void name_track(char *name, size_t size, const Known *k) {
    uint32_t place = k->number % (1 << 24);
    switch ((TraceTrack)k->track) {
    case TRACE_CTA: snprintf(name, size, "block slot %u", k->number); break;
    case TRACE_WARP: name_warp(name, size, k->number); break;
    case TRACE_TENSOR: snprintf(name, size, "tensor cores %u", k->number); break;
    case TRACE_MUFU: snprintf(name, size, "MUFU %u", k->number); break;
    case TRACE_TMA: snprintf(name, size, "TMA %u", k->lane); return;
    case TRACE_BARRIER:
        if (place < NAMED_BARRIERS)
            snprintf(name, size, "barrier %u", place);
        else
            snprintf(name, size, "mbarrier 0x%x", place);
        if (k->number >> 24)
            snprintf(name + strlen(name), size - strlen(name), " of block slot %u",
                     k->number >> 24);
        break;
    case TRACE_TRACKS: break;
    }
    if (k->lane) snprintf(name + strlen(name), size - strlen(name), " (%u)", k->lane + 1);
}

// The tid of a track; names it where it is new. 0 when out of memory.
static uint32_t tid_of(int sm, const TraceSpan *span, uint8_t lane) {
    Known wanted = {sm, span->number, span->track, lane};
    for (uint32_t k = 0; k < file.known_count; k++) {
        const Known *known = &file.known[k];
        if (known->sm == sm && known->number == wanted.number && known->track == wanted.track &&
            known->lane == lane)
            return k + 1;
    }
    if (file.known_count == file.known_capacity) {
        uint32_t larger = file.known_capacity ? 2 * file.known_capacity : 64;
        Known *grown = realloc(file.known, larger * sizeof *grown);
        if (!grown) return 0;
        file.known = grown;
        file.known_capacity = larger;
    }
    file.known[file.known_count++] = wanted;
    uint32_t tid = file.known_count;
    char name[64];
    name_track(name, sizeof name, &wanted);
    name_it("thread_name", sm + SM_PROCESS, tid, name);
    // By kind, then by slot and number.
    uint32_t order = (uint32_t)span->track << 27 | (span->number >> 24 & 31) << 22 |
                     (span->number & 0x3ffff) << 4 | (lane & 15);
    sort_it("thread_sort_index", sm + SM_PROCESS, tid, order);
    return tid;
}

// ---- spans

// By track, then as nested spans want it: the earlier first, of two that begin together the longer.
static int compare(const void *a, const void *b) {
    const TraceSpan *x = a, *y = b;
    if (x->track != y->track) return x->track < y->track ? -1 : 1;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end > y->end ? -1 : 1;
    return x->wait - y->wait;
}

// The next phase of a warp in the sorted list, from `at` on; `count` if there is none.
static uint32_t next_phase(const TraceSm *t, uint32_t at, uint32_t number) {
    for (; at < t->count; at++) {
        const TraceSpan *s = &t->spans[at];
        if (s->track > TRACE_WARP || (s->track == TRACE_WARP && s->number > number)) break;
        if (s->track == TRACE_WARP && s->number == number && !s->wait) return at;
    }
    return t->count;
}

// Do two warps go through the same phases, as far as both are known?
static bool same_phases(const TraceSm *t, uint32_t a, uint32_t b) {
    uint32_t x = next_phase(t, 0, a), y = next_phase(t, 0, b);
    if (x == t->count) return y == t->count;
    while (x < t->count && y < t->count) {
        if (strcmp(t->spans[x].name, t->spans[y].name)) return false;
        x = next_phase(t, x + 1, a);
        y = next_phase(t, y + 1, b);
    }
    return true;
}

// Is a warp's track left out? Those are that do as the first warp of their warpgroup does, and
// those without phases of their own.
static bool left_out(const TraceSm *t, uint32_t number) {
    if (number % 4 == 0) return false;
    return next_phase(t, 0, number) == t->count || same_phases(t, number / 4 * 4, number);
}

static double microseconds(const TraceLaunch *l, uint64_t cycles) {
    return (double)cycles * 1e-3 / l->clock_ghz;
}

static void note_end(double us) {
    if (us > file.end_us) file.end_us = us;
}

static void write_span(const TraceLaunch *l, int sm, const TraceSpan *s, uint8_t lane) {
    static const char *const kinds[TRACE_TRACKS] = {"block", "phase", "tensor",
                                                    "mufu",  "tma",   "barrier"};
    uint32_t tid = tid_of(sm, s, lane);
    const uint32_t *grid = l->launch->grid;
    uint64_t begin = s->begin > l->begin ? s->begin - l->begin : 0;
    char block[64];
    snprintf(block, sizeof block, "block (%llu,%llu,%llu)",
             (unsigned long long)(s->linear % grid[0]),
             (unsigned long long)(s->linear / grid[0] % grid[1]),
             (unsigned long long)(s->linear / grid[0] / grid[1]));
    begin_event();
    fputs("{\"ph\": \"X\", \"name\": ", file.stream);
    text(s->name ? s->name : block);
    fprintf(file.stream,
            ", \"cat\": \"%s\", \"pid\": %d, \"tid\": %u, \"ts\": %.4f, \"dur\": %.4f, "
            "\"args\": {\"begin\": %llu, \"cycles\": %llu",
            s->wait ? "wait" : kinds[s->track], sm + SM_PROCESS, tid,
            l->begin_us + microseconds(l, begin), microseconds(l, s->end - s->begin),
            (unsigned long long)begin, (unsigned long long)(s->end - s->begin));
    note_end(l->begin_us + microseconds(l, s->end - l->begin));
    if (s->warp >= 0) {
        int warp = s->warp % TRACE_WARPS;
        fprintf(file.stream, ", \"block\": %llu, \"slot\": %d, \"warpgroup\": %d, \"warp\": %d",
                (unsigned long long)s->linear, s->warp / TRACE_WARPS, warp / 4, warp);
    }
    if (s->busy) fprintf(file.stream, ", \"busy\": %llu", (unsigned long long)s->busy);
    fputs("}}", file.stream);
}

// Writes one (track, number): spans that overlap and don't nest go to lanes side by side.
static void write_track(const TraceLaunch *l, int sm, const TraceSpan *spans, uint32_t count) {
    enum { LANES = 64 };
    uint64_t end[LANES] = {0};
    for (uint32_t k = 0; k < count; k++) {
        uint8_t lane = 0;
        if (spans[k].track != TRACE_WARP) {
            while (lane < LANES - 1 && end[lane] > spans[k].begin) lane++;
            if (spans[k].end > end[lane]) end[lane] = spans[k].end;
        }
        write_span(l, sm, &spans[k], lane);
    }
}

static void write_sm(const TraceLaunch *l, TraceSm *t) {
    char name[32];
    snprintf(name, sizeof name, "SM %d", t->sm);
    name_process(t->sm + SM_PROCESS, name);
    if (t->count) qsort(t->spans, t->count, sizeof *t->spans, compare);
    for (uint32_t first = 0, end; first < t->count; first = end) {
        const TraceSpan *s = &t->spans[first];
        for (end = first + 1; end < t->count; end++)
            if (t->spans[end].track != s->track || t->spans[end].number != s->number) break;
        if (s->track == TRACE_WARP && left_out(t, s->number)) continue;
        write_track(l, t->sm, s, end - first);
    }
}

static void write_kernel(const TraceLaunch *l) {
    const uint32_t *grid = l->launch->grid, *block = l->launch->block;
    if (name_process(GPU_PROCESS, l->gpu)) name_it("thread_name", GPU_PROCESS, KERNELS, "kernels");
    char *name = readable_name(l->launch->kernel->name);
    begin_event();
    fputs("{\"ph\": \"X\", \"name\": ", file.stream);
    text(name);
    free(name);
    fprintf(file.stream,
            ", \"cat\": \"kernel\", \"pid\": %d, \"tid\": %d, \"ts\": %.4f, \"dur\": %.4f, "
            "\"args\": {\"grid\": [%u, %u, %u], \"threads\": [%u, %u, %u]}}",
            GPU_PROCESS, KERNELS, l->begin_us, l->time_us, grid[0], grid[1], grid[2], block[0],
            block[1], block[2]);
}

void trace_file_launch(const TraceLaunch *launch, TraceSm *const *sms, int count) {
    if (!file.stream) return;
    TraceLaunch moved = *launch, *l = &moved;
    // A launch's time need not be that of the traced SMs: yet the next one begins behind them.
    if (l->begin_us < file.end_us) l->begin_us = file.end_us;
    note_end(l->begin_us + l->time_us);
    file.gpu = l->gpu;
    file.clock_ghz = l->clock_ghz;
    if (count > file.sms) file.sms = count;
    uint64_t spans = 0;
    for (int s = 0; s < count; s++) spans += sms[s]->count;
    if (file.events + spans > TRACE_FILE_MOST) {
        file.dropped_launches++;
        return;
    }
    write_kernel(l);
    for (int s = 0; s < count; s++) {
        file.dropped_spans += sms[s]->dropped;
        write_sm(l, sms[s]);
    }
    flush_file();
}
