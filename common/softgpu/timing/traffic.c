// What the accesses of a warp cost.
//
// Global memory: the lanes' addresses are gathered into lines of 128 bytes and sectors of 32;
// each line is one request to L1, and what misses there goes to the log of L2 requests. Shared
// memory: an access takes as many wavefronts as the busiest of the 32 banks has different words
// to deliver.
//
// Lines are numbered from the start of their address range, not by host addresses, which differ
// from run to run: so the same program always meets the same cache sets.
#include "softgpu/timing/traffic.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/global.h"

enum { LINE = 128, SECTOR = 32, REQUESTS_FIRST = 1024 };
#define HOST_LINES  (1ull << 48) // line numbers of managed and pinned memory start here
#define LOCAL_LINES (1ull << 49) // and those of local memory here

// What the lanes touch of one line: a bit per byte.
typedef struct {
    uint64_t line;
    uint64_t low, high; // bytes 0…63, 64…127
} Touched;

// Line number and byte of an address.
static uint64_t line_of(const struct GlobalMemory *m, uint64_t address) {
    uint64_t offset = address - m->device_base;
    if (offset < m->device_size) return offset / LINE;
    return HOST_LINES + (address - m->host_base) / LINE;
}

// Logs a request to L2, to be applied when the round ends.
static void request(Sm *sm, uint64_t line, unsigned sectors, unsigned write) {
    if (!sectors) return;
    if (sm->request_count == sm->request_capacity) {
        sm->request_capacity = sm->request_capacity ? 2 * sm->request_capacity : REQUESTS_FIRST;
        sm->requests = realloc(sm->requests, sm->request_capacity * sizeof *sm->requests);
        if (!sm->requests) abort();
    }
    sm->requests[sm->request_count++] =
        (L2Request){.line = line, .time = sm->time, .sectors = sectors, .write = write};
}

// Counts one line of an access: the sectors that it touches, and those of which it touches all bytes.
static void touch_line(Warp *w, uint64_t line, unsigned sectors, unsigned full, TrafficKind kind,
                       bool bypass_l1) {
    Sm *sm = w->sm;
    if (kind == TRAFFIC_ATOMIC) {
        request(sm, line, sectors, 3);
    } else if (kind == TRAFFIC_WRITE) {
        if (sm->l1) cache_l1_write(sm->l1, line, sectors);
        request(sm, line, full, 1);
        request(sm, line, sectors & ~full, 2);
    } else {
        unsigned missed = bypass_l1 || !sm->l1 ? sectors : cache_l1_read(sm->l1, line, sectors);
        sm->counters->l1_misses += __builtin_popcount(missed);
        sm->counters->l1_hits += __builtin_popcount(sectors & ~missed);
        request(sm, line, missed, 0);
    }
}

// Lanes that touch neighbouring bytes, without a gap, from byte `at` of a line on.
static void touch_range(Warp *w, uint64_t line, unsigned at, unsigned bytes, TrafficKind kind,
                        bool bypass_l1) {
    while (bytes) {
        unsigned end = at + bytes < LINE ? at + bytes : LINE;
        unsigned first = at / SECTOR, last = (end - 1) / SECTOR; // sectors touched
        unsigned sectors = (2u << last) - (1u << first);
        unsigned from = (at + SECTOR - 1) / SECTOR, to = end / SECTOR; // sectors filled: [from, to)
        unsigned full = to > from ? (1u << to) - (1u << from) : 0;
        touch_line(w, line++, sectors, full, kind, bypass_l1);
        bytes -= end - at;
        at = 0;
    }
}

// Marks `size` bytes from byte `at` of a line on as touched.
static void mark(Touched *t, unsigned at, unsigned size) {
    uint64_t bits = size < 64 ? (1ull << size) - 1 : ~0ull;
    if (at >= 64) {
        t->high |= bits << (at - 64);
        return;
    }
    t->low |= bits << at;
    if (at && at + size > 64) t->high |= bits >> (64 - at);
}

// Counts a line whose touched bytes are known one by one.
static void touch_bytes(Warp *w, const Touched *t, TrafficKind kind, bool bypass_l1) {
    unsigned sectors = 0, full = 0;
    for (int sector = 0; sector < LINE / SECTOR; sector++) {
        uint32_t bytes = (sector < 2 ? t->low : t->high) >> (sector % 2 * SECTOR);
        sectors |= (unsigned)(bytes != 0) << sector;
        full |= (unsigned)(bytes == UINT32_MAX) << sector;
    }
    touch_line(w, t->line, sectors, full, kind, bypass_l1);
}

// Lanes with addresses of any kind. `size` is at most 32, and no access crosses a line.
static void touch_scattered(Warp *w, const uint64_t line[32], const uint8_t at[32], unsigned size,
                            uint32_t mask, TrafficKind kind, bool bypass_l1) {
    Touched touched[WARP_SIZE];
    int count = 0, last = 0;
    uint64_t highest = 0;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        if (!count || line[lane] > highest) { // ascending addresses need no search
            highest = line[lane];
            last = count++;
            touched[last] = (Touched){.line = highest};
        } else if (touched[last].line != line[lane]) {
            for (last = 0; last < count && touched[last].line != line[lane];) last++;
            if (last == count) touched[count++] = (Touched){.line = line[lane]};
        }
        mark(&touched[last], at[lane], size);
    }
    for (int i = 0; i < count; i++) touch_bytes(w, &touched[i], kind, bypass_l1);
}

void traffic_global(Warp *w, const Insn *i, const uint64_t address[32], unsigned size,
                    uint32_t mask, TrafficKind kind, bool bypass_l1) {
    (void)i;
    if (!w->sm->gpu->settings->timing || !mask) return;
    const struct GlobalMemory *m = w->sm->gpu->memory;
    if (mask == FULL_MASK) {
        uint64_t first = address[0], stride = 0, same = 0;
        for (int lane = 0; lane < WARP_SIZE; lane++) {
            stride |= address[lane] ^ (first + lane * (uint64_t)size);
            same |= address[lane] ^ first;
        }
        if (!stride || !same) {
            unsigned bytes = stride ? size : size * WARP_SIZE;
            touch_range(w, line_of(m, first), first % LINE, bytes, kind, bypass_l1);
            return;
        }
    }
    uint64_t line[WARP_SIZE];
    uint8_t at[WARP_SIZE];
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        line[lane] = line_of(m, address[lane]);
        at[lane] = address[lane] % LINE;
    }
    touch_scattered(w, line, at, size, mask, kind, bypass_l1);
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
        uint64_t line[WARP_SIZE];
        uint8_t at[WARP_SIZE];
        for (uint32_t rest = mask; rest; rest &= rest - 1) {
            int lane = __builtin_ctz(rest);
            uint32_t byte = offset[lane] + done;
            line[lane] = base + byte / 4;
            at[lane] = lane * 4 + byte % 4;
        }
        touch_scattered(w, line, at, part, mask, kind, false);
    }
}
