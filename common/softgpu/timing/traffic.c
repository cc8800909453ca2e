// What the accesses of a warp cost.
//
// Global memory: the lanes' addresses are gathered into lines of 128 bytes and sectors of 32;
// each line is one request to L1, and what misses there goes to the log of L2 requests. Shared
// memory: an access takes as many wavefronts as the busiest of the 32 banks has different words
// to deliver.
//
// Lines are numbered by where they lie in the memory chips, not by host addresses, which differ from
// run to run: so the same program always meets the same cache sets.
#include "softgpu/timing/traffic.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/global.h"
#include "softgpu/timing/pace_parts.h"

enum { LINE = 128, SECTOR = 32, REQUESTS_FIRST = 1024 };
#define HOST_LINES  (1ull << 48) // line numbers of managed and pinned memory start here
#define LOCAL_LINES (1ull << 49) // and those of local memory here

// What the lanes touch of one line: a bit per sector, and, where it matters if sectors are filled,
// per byte.
typedef struct {
    uint64_t line;
    uint64_t low, high; // bytes 0…63, 64…127
    uint32_t sectors;
} Touched;

// Line number and byte of an address.
static uint64_t line_of(const struct GlobalMemory *m, uint64_t address) {
    uint64_t offset = address - m->device_base;
    if (offset < m->device_size) return global_physical(m, offset) / LINE;
    return HOST_LINES + (address - m->host_base) / LINE;
}

// Where the bytes from `address` to `end` leave its page, whose lines follow each other.
static inline uint64_t page_end(const struct GlobalMemory *m, uint64_t address, uint64_t end) {
    uint64_t left = GLOBAL_PAGE - (address - m->device_base) % GLOBAL_PAGE;
    return left < end - address ? address + left : end;
}

L2Request *traffic_request(Sm *sm) {
    if (sm->request_count == sm->request_capacity) {
        sm->request_capacity = sm->request_capacity ? 2 * sm->request_capacity : REQUESTS_FIRST;
        sm->requests = realloc(sm->requests, sm->request_capacity * sizeof *sm->requests);
        if (!sm->requests) abort();
    }
    return &sm->requests[sm->request_count++];
}

// Logs a request to L2, to be applied when the round ends; in a timed launch it leaves when the
// warp's playback comes to it.
static void request(Warp *w, uint64_t line, unsigned sectors, unsigned write, uint32_t bytes) {
    if (!sectors) return;
    if (w->pace) {
        pace_line(w, line, sectors, write, bytes);
        return;
    }
    *traffic_request(w->sm) = (L2Request){
        .line = line, .time = w->sm->time, .sectors = sectors, .write = write, .bytes = bytes};
}

// The bits [from, to) of 64.
static uint64_t bits_between(unsigned from, unsigned to) {
    return from < to ? (~0ull << from) & (~0ull >> (64 - to)) : 0;
}

// Marks the bytes [from, to) of a line as touched.
static inline void mark(Touched *t, unsigned from, unsigned to, bool bytes) {
    t->sectors |= (2u << (to - 1) / SECTOR) - (1u << from / SECTOR);
    if (!bytes) return;
    t->low |= bits_between(from, to < 64 ? to : 64);
    t->high |= bits_between(from > 64 ? from - 64 : 0, to > 64 ? to - 64 : 0);
}

// The touched bytes of a sector.
static uint32_t bytes_of(const Touched *t, int sector) {
    return (uint32_t)((sector < 2 ? t->low : t->high) >> (sector % 2 * SECTOR));
}

// The sectors of which all bytes are touched.
static unsigned full_sectors(const Touched *t) {
    unsigned full = 0;
    for (int sector = 0; sector < LINE / SECTOR; sector++)
        full |= (unsigned)(bytes_of(t, sector) == UINT32_MAX) << sector;
    return full;
}

// Counts one line of an access. Sectors written in part are requests of their own.
static void touch_line(Warp *w, const Touched *t, TrafficKind kind, bool bypass_l1) {
    Sm *sm = w->sm;
    if (kind == TRAFFIC_ATOMIC) {
        request(w, t->line, t->sectors, 3, 0);
    } else if (kind == TRAFFIC_WRITE) {
        unsigned full = full_sectors(t);
        if (sm->l1) cache_l1_write(sm->l1, t->line, t->sectors);
        request(w, t->line, full, 1, 0);
        for (unsigned part = t->sectors & ~full; part; part &= part - 1) {
            int sector = __builtin_ctz(part);
            request(w, t->line, 1u << sector, 2, bytes_of(t, sector));
        }
    } else {
        unsigned missed =
            bypass_l1 || !sm->l1 ? t->sectors : cache_l1_read(sm->l1, t->line, t->sectors);
        sm->counters->l1_misses += __builtin_popcount(missed);
        sm->counters->l1_hits += __builtin_popcount(t->sectors & ~missed);
        if (w->pace && missed != t->sectors) pace_l1_hit(w);
        request(w, t->line, missed, 0, 0);
    }
}

// The lines that an access touches, in the order met.
typedef struct {
    int count, last;
    uint64_t highest;
    Touched touched[2 * WARP_SIZE]; // a range that begins and ends within lines touches one more
} Lines;

// The entry of a line.
static inline Touched *find_line(Lines *lines, uint64_t line) {
    Touched *touched = lines->touched;
    if (!lines->count || line > lines->highest) { // ascending addresses need no search
        lines->highest = line;
        lines->last = lines->count++;
    } else if (touched[lines->last].line == line) {
        return &touched[lines->last];
    } else {
        for (lines->last = 0; lines->last < lines->count; lines->last++)
            if (touched[lines->last].line == line) return &touched[lines->last];
        lines->count++;
    }
    touched[lines->last] = (Touched){.line = line};
    return &touched[lines->last];
}

// Adds `count` bytes from byte `at` of a line on, which may lead into the lines behind it.
static inline void add_bytes(Lines *lines, uint64_t line, unsigned at, uint64_t count, bool bytes) {
    for (uint64_t end = at + count; end;) {
        mark(find_line(lines, line++), at, end < LINE ? (unsigned)end : LINE, bytes);
        end -= end < LINE ? end : LINE;
        at = 0;
    }
}

static void touch_lines(Warp *w, const Lines *lines, TrafficKind kind, bool bypass_l1) {
    for (int k = 0; k < lines->count; k++) touch_line(w, &lines->touched[k], kind, bypass_l1);
}

void traffic_ranges(Warp *w, const Ranges *ranges, TrafficKind kind, bool bypass_l1) {
    const struct GlobalMemory *m = w->sm->gpu->memory;
    Lines lines;
    lines.count = 0;
    for (int k = 0; k < ranges->count; k++) {
        uint64_t at = ranges->range[k].begin, end = at + ranges->range[k].bytes;
        for (uint64_t next; at < end; at = next) {
            next = page_end(m, at, end);
            add_bytes(&lines, line_of(m, at), at % LINE, next - at, kind == TRAFFIC_WRITE);
        }
    }
    touch_lines(w, &lines, kind, bypass_l1);
}

// A part of a bulk copy's bytes inside a page.
static void touch_bulk(Warp *w, uint64_t address, uint64_t bytes, TrafficKind kind) {
    uint64_t line = line_of(w->sm->gpu->memory, address);
    unsigned at = address % LINE;
    for (uint64_t end = at + bytes; end; line++) {
        Touched t = {.line = line};
        unsigned to = end < LINE ? (unsigned)end : LINE;
        mark(&t, at, to, kind == TRAFFIC_WRITE);
        if (kind == TRAFFIC_PREFETCH)
            request(w, line, t.sectors, 4, 0);
        else
            touch_line(w, &t, kind, true);
        end -= to;
        at = 0;
    }
}

void traffic_bulk(Warp *w, uint64_t address, uint64_t bytes, TrafficKind kind) {
    const Gpu *gpu = w->sm->gpu;
    if (!gpu->settings->timing) return;
    uint64_t end = address + bytes;
    for (uint64_t next; address < end; address = next) {
        next = page_end(gpu->memory, address, end);
        touch_bulk(w, address, next - address, kind);
    }
}

void traffic_global(Warp *w, const Insn *i, const uint64_t address[32], unsigned size,
                    uint32_t mask, TrafficKind kind, bool bypass_l1) {
    (void)i;
    if (!w->sm->gpu->settings->timing || !mask) return;
    Ranges ranges;
    ranges_of(&ranges, address, size, mask);
    traffic_ranges(w, &ranges, kind, bypass_l1);
}

// The line where a warp's local memory begins. Which lines a warp has must not depend on the host:
// so they follow from the SM and from the CTA's place among those that the SM can hold.
static uint64_t local_lines(const Warp *w) {
    uint64_t lines_per_warp = (uint64_t)w->local_stride * WARP_SIZE / LINE;
    uint64_t slot = w->cta->linear / w->sm->gpu->figures.sms % w->sm->gpu->figures.ctas_per_sm;
    return LOCAL_LINES + ((w->sm->id * 64ull + slot) * 32 + w->id) * lines_per_warp;
}

void traffic_local(Warp *w, const Insn *i, const uint32_t offset[32], unsigned size, uint32_t mask,
                   TrafficKind kind) {
    (void)i;
    if (!w->sm->gpu->settings->timing || !mask) return;
    uint64_t base = local_lines(w);
    unsigned part = size < 4 ? size : 4; // words of 4 bytes alternate between the lanes
    for (unsigned done = 0; done < size; done += part) {
        Lines lines;
        lines.count = 0;
        for (uint32_t rest = mask; rest; rest &= rest - 1) {
            unsigned lane = (unsigned)__builtin_ctz(rest);
            uint32_t byte = offset[lane] + done;
            add_bytes(&lines, base + byte / 4, lane * 4 + byte % 4, part, kind == TRAFFIC_WRITE);
        }
        touch_lines(w, &lines, kind, false);
    }
}

void traffic_bulk_shared(Sm *sm, uint64_t bytes) {
    if (!sm->gpu->settings->timing) return;
    uint64_t wavefronts = (bytes + LINE - 1) / LINE;
    sm->counters->shared_wavefronts += wavefronts;
    sm->counters->shared_ideal += wavefronts;
    pace_bulk_shared(sm, bytes);
}
