// From a warp's addresses to places in the host's memory (memory_access.h).
//
// Most accesses are of one kind: all lanes within one allocation, at consecutive or equal
// addresses. That is found out in two vector loops over the lanes, and everything after (bounds,
// written bytes, host addresses) is then a question about one range. The rest goes lane by lane.
#include "softgpu/execute/memory_access.h"

#include <string.h>

#include "softgpu/check/bits.h"
#include "softgpu/check/closed.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/timing/pace.h"

// What can be said about the addresses of the active lanes together.
typedef struct {
    uint64_t low, high; // the accessed bytes lie in [low, high)
    uint64_t any_bits;  // OR of all addresses: tells misalignment
    Pattern pattern;
} Span;

static bool is_active(uint32_t mask, int lane) {
    return mask >> lane & 1;
}

// Sums up addresses; `bytes` is the size of each lane's access. A scattered pattern is summed up by
// the first active lane alone. One macro for both widths, so that the compiler vectorises each.
#define DEFINE_ROW_SPAN(name, type)                                                                \
    static inline Span name(const type address[WARP_SIZE], uint32_t mask, unsigned bytes) {        \
        int first = __builtin_ctz(mask), last = 31 - __builtin_clz(mask);                          \
        unsigned shift = (unsigned)__builtin_ctz(bytes);                                           \
        type start = address[first], base = start - ((type)first << shift);                        \
        type off_stride = 0, off_uniform = 0;                                                      \
        if (mask == FULL_MASK) {                                                                   \
            for (int l = 0; l < WARP_SIZE; l++) {                                                  \
                off_stride |= address[l] ^ (base + ((type)l << shift));                            \
                off_uniform |= address[l] ^ start;                                                 \
            }                                                                                      \
        } else {                                                                                   \
            for (int l = 0; l < WARP_SIZE; l++) {                                                  \
                type active = -((type)mask >> l & 1);                                              \
                off_stride |= (address[l] ^ (base + ((type)l << shift))) & active;                 \
                off_uniform |= (address[l] ^ start) & active;                                      \
            }                                                                                      \
        }                                                                                          \
        uint64_t end = (uint64_t)(off_stride ? start : address[last]) + bytes;                     \
        return (Span){start, end, start,                                                           \
                      !off_stride    ? PLACED_CONSECUTIVE                                          \
                      : !off_uniform ? PLACED_UNIFORM                                              \
                                     : PLACED_SCATTERED};                                          \
    }
DEFINE_ROW_SPAN(row_span_of, uint64_t)
DEFINE_ROW_SPAN(narrow_row_span_of, uint32_t)

// The same, whatever the pattern.
#define DEFINE_SPAN(name, row_span, type)                                                          \
    static inline Span name(const type address[WARP_SIZE], uint32_t mask, unsigned bytes) {        \
        Span span = row_span(address, mask, bytes);                                                \
        if (span.pattern != PLACED_SCATTERED) return span;                                         \
        type start = (type)span.low, low = start, high = start, any = 0;                           \
        if (mask == FULL_MASK) {                                                                   \
            for (int l = 0; l < WARP_SIZE; l++) {                                                  \
                low = address[l] < low ? address[l] : low;                                         \
                high = address[l] > high ? address[l] : high;                                      \
                any |= address[l];                                                                 \
            }                                                                                      \
        } else {                                                                                   \
            for (int l = 0; l < WARP_SIZE; l++) {                                                  \
                /* Lanes that are switched off repeat the first active one's address. */           \
                type active = -((type)mask >> l & 1);                                              \
                type a = (address[l] & active) | (start & ~active);                                \
                low = a < low ? a : low;                                                           \
                high = a > high ? a : high;                                                        \
                any |= a;                                                                          \
            }                                                                                      \
        }                                                                                          \
        return (Span){low, (uint64_t)high + bytes, any, PLACED_SCATTERED};                         \
    }
DEFINE_SPAN(span_of, row_span_of, uint64_t)
DEFINE_SPAN(narrow_span_of, narrow_row_span_of, uint32_t)

// Points `places` at memory whose byte for address `span.low` lives at `start`.
static void places_at(Places *places, const Span *span, uint8_t *start,
                      const uint64_t address[WARP_SIZE], uint32_t mask, unsigned bytes) {
    places->pattern = span->pattern;
    if (span->pattern == PLACED_CONSECUTIVE) {
        places->base = start - (size_t)__builtin_ctz(mask) * bytes;
    } else if (span->pattern == PLACED_UNIFORM) {
        places->base = start;
    } else {
        uintptr_t distance = (uintptr_t)start - span->low;
        for (int l = 0; l < WARP_SIZE; l++) places->at[l] = (uint8_t *)(address[l] + distance);
    }
}

void places_spread(Places *places, unsigned bytes) {
    if (places->pattern == PLACED_SCATTERED) return;
    unsigned stride = places->pattern == PLACED_CONSECUTIVE ? bytes : 0;
    for (int l = 0; l < WARP_SIZE; l++) places->at[l] = places->base + (size_t)l * stride;
    places->pattern = PLACED_SCATTERED;
}

// What the race check calls it.
static RaceAccess race_kind(Access access) {
    bool write = access.kind != ACCESS_READ;
    if (access.kind == ACCESS_ATOMIC) return RACE_ATOMIC;
    if (access.together) return write ? RACE_TILE_WRITE : RACE_TILE_READ;
    if (write) return access.strong ? RACE_STRONG_WRITE : RACE_WRITE;
    return access.strong ? RACE_STRONG_READ : RACE_READ;
}

// ---- global memory

// The cached allocation that holds [low, high) and may be accessed like this, or NULL.
static const struct AllocationCache *cached_allocation(const Sm *sm, uint64_t low, uint64_t high,
                                                       bool write) {
    for (unsigned k = 0; k < ALLOCATIONS_CACHED; k++) {
        const struct AllocationCache *c = &sm->cached[k];
        if (low >= c->begin && high <= c->end && low < high && !(write && c->read_only)) return c;
    }
    return NULL;
}

// The init check of a global access: asks before reads (if `asks`), marks after writes.
static void track_global(Warp *w, const Insn *i, const uint64_t address[WARP_SIZE], uint32_t mask,
                         Access access, const Ranges *ranges, bool asks) {
    struct GlobalMemory *m = w->sm->gpu->memory;
    bool marked = true, device = true;
    for (int k = 0; k < ranges->count; k++) {
        const Range *r = &ranges->range[k];
        uint64_t from = r->begin - m->device_base;
        device &= from < m->device_size && r->bytes <= m->device_size - from;
        marked &= device && (!asks || bits_all(m->written, from, r->bytes));
    }
    if (asks && access.kind != ACCESS_WRITE && !marked)
        init_global_read(w, i, address, access.bytes, mask);
    if (access.kind == ACCESS_READ || (asks && marked)) return;
    if (!device) {
        init_global_written(w, address, access.bytes, mask);
        return;
    }
    for (int k = 0; k < ranges->count; k++)
        bits_set(m->written, ranges->range[k].begin - m->device_base, ranges->range[k].bytes);
}

// What is known of a global access once it is allowed.
typedef struct {
    Span span;
    Ranges ranges;
} Reach;

// Sums up the addresses of a global access.
static inline void reach_of(Reach *reach, const uint64_t address[WARP_SIZE], uint32_t mask,
                            unsigned bytes) {
    Span *span = &reach->span;
    Ranges *ranges = &reach->ranges;
    *span = row_span_of(address, mask, bytes);
    uint64_t size = span->high - span->low;
    // The bytes between two active lanes are unknown: consecutive lanes are only a range if there
    // are none between them that are switched off.
    if (span->pattern == PLACED_UNIFORM || (span->pattern == PLACED_CONSECUTIVE &&
                                            size == (uint64_t)__builtin_popcount(mask) * bytes)) {
        ranges->count = 1;
        ranges->range[0] = (Range){span->low, size};
        return;
    }
    ranges_of(ranges, address, bytes, mask);
    if (span->pattern == PLACED_CONSECUTIVE) return;
    bool wraps = false; // past the end of all addresses: then no allocation holds the span
    for (int k = 0; k < ranges->count; k++) {
        uint64_t begin = ranges->range[k].begin, end = begin + ranges->range[k].bytes;
        span->low = begin < span->low ? begin : span->low;
        span->high = end > span->high ? end : span->high;
        span->any_bits |= begin;
        wraps |= end < begin;
    }
    if (wraps) span->high = 0;
}

bool place_global(Warp *w, const Insn *i, const uint64_t address[WARP_SIZE], uint32_t mask,
                  Access access, Places *places) {
    Sm *sm = w->sm;
    const Settings *settings = sm->gpu->settings;
    struct GlobalMemory *m = sm->gpu->memory;
    bool write = access.kind != ACCESS_READ;
    Reach reach;
    reach_of(&reach, address, mask, access.bytes);
    const Span *span = &reach.span;
    const struct AllocationCache *c = cached_allocation(sm, span->low, span->high, write);
    if (__builtin_expect(!c || span->any_bits & (access.bytes - 1), 0)) {
        if (!check_global(w, i, address, access.bytes, mask, write)) return false;
        c = cached_allocation(sm, span->low, span->high, write);
    }
    if (c) {
        places_at(places, span, global_pointer(m, span->low), address, mask, access.bytes);
    } else {
        places->pattern = PLACED_SCATTERED;
        for (int l = 0; l < WARP_SIZE; l++) places->at[l] = global_pointer(m, address[l]);
    }
    // Writes are marked even while the check is off: it may be on in a later launch.
    bool asks = settings->checks & CHECK_INIT;
    if (m->written && (asks || write))
        track_global(w, i, address, mask, access, &reach.ranges, asks);
    // What nobody writes nobody races for; but who reads a flag may learn something there.
    bool idle = c && (c->read_only || (c->unwritten && !write && !access.strong));
    if (race_on(w) && !idle)
        race_global(w, i, address, &reach.ranges, access.bytes, mask,
                    (GlobalKind){race_kind(access), access.order, access.narrow, access.updates,
                                 access.copies, access.blind, access.element});
    if (settings->timing && !access.no_traffic) {
        static const TrafficKind traffic[] = {TRAFFIC_READ, TRAFFIC_WRITE, TRAFFIC_ATOMIC};
        traffic_ranges(w, &reach.ranges, traffic[access.kind], access.bypass_l1);
    }
    return true;
}

// ---- shared memory

Cta *resolve_shared(const Warp *w, uint32_t address, uint32_t *offset) {
    const Cluster *cluster = w->cta->cluster;
    uint32_t rank = address >> RANK_SHIFT;
    *offset = address & ((1u << RANK_SHIFT) - 1);
    return rank < (uint32_t)cluster->size ? cluster->ctas[rank] : NULL;
}

// Are these `count` marks all 1? count > 0. A read doesn't care what they say besides (check.h),
// and a write has to take it away.
static inline bool all_marked(const uint8_t *marks, uint64_t count, bool write) {
    uint64_t ones = 0x0101010101010101ull, cares = write ? ~0ull : ones, part, missing = 0;
    if (count < 8) {
        for (uint64_t k = 0; k < count; k++) missing |= marks[k] ^ 1u;
        return !(missing & cares);
    }
    for (uint64_t k = 0; k + 8 <= count; k += 8) {
        memcpy(&part, marks + k, 8);
        missing |= part ^ ones;
    }
    memcpy(&part, marks + count - 8, 8);
    return !((missing | (part ^ ones)) & cares);
}

// Are all bytes marked that the lanes touch?
static bool shared_marked(const uint8_t *written, const uint32_t offset[WARP_SIZE], uint32_t mask,
                          unsigned bytes, bool write) {
    uint64_t wide[WARP_SIZE];
    Ranges ranges;
    for (int l = 0; l < WARP_SIZE; l++) wide[l] = offset[l];
    ranges_of(&ranges, wide, bytes, mask);
    for (int k = 0; k < ranges.count; k++)
        if (!all_marked(written + ranges.range[k].begin, ranges.range[k].bytes, write))
            return false;
    return true;
}

// The init check of a shared access.
static void track_shared(Warp *w, const Insn *i, Cta *cta, const uint32_t offset[WARP_SIZE],
                         uint32_t mask, Access access, const Span *span) {
    uint8_t *written = cta->shared_written;
    if (!written) return;
    uint64_t size = span->high - span->low;
    bool quick = span->pattern == PLACED_UNIFORM ||
                 (span->pattern == PLACED_CONSECUTIVE &&
                  size == (uint64_t)__builtin_popcount(mask) * access.bytes);
    bool write = access.kind != ACCESS_READ;
    bool marked = quick ? all_marked(written + span->low, size, write)
                        : shared_marked(written, offset, mask, access.bytes, write);
    if (marked) return; // nothing to ask, nothing to mark
    if (access.kind != ACCESS_WRITE) init_shared_read(w, i, cta, offset, access.bytes, mask);
    if (!write) return;
    if (quick)
        memset(written + span->low, 1, size);
    else
        init_shared_written(cta, offset, access.bytes, mask);
}

// Access to the shared memory of one CTA.
static inline bool place_in(Warp *w, const Insn *i, Cta *cta, const uint32_t offset[WARP_SIZE],
                            uint32_t mask, Access access, Places *places) {
    const Settings *settings = w->sm->gpu->settings;
    Span span = narrow_span_of(offset, mask, access.bytes);
    if (__builtin_expect(span.low < w->kernel->shared_base || span.high > cta->shared_size ||
                             span.any_bits & (access.bytes - 1),
                         0) &&
        !check_shared(w, i, offset, access.bytes, mask, access.kind != ACCESS_READ))
        return false;
    bool write = access.kind != ACCESS_READ, copied = false;
    if (cta->closed && closed_any(cta->closed, span.low, span.high) &&
        !check_closed(w, i, cta, offset, access.bytes, mask, write, &copied))
        return false;
    places->pattern = span.pattern;
    if (span.pattern == PLACED_SCATTERED)
        for (int l = 0; l < WARP_SIZE; l++) places->at[l] = cta->shared + offset[l];
    else if (span.pattern == PLACED_UNIFORM)
        places->base = cta->shared + span.low;
    else
        places->base = cta->shared + span.low - (size_t)__builtin_ctz(mask) * access.bytes;
    if (settings->checks & CHECK_INIT && (write || !copied))
        track_shared(w, i, cta, offset, mask, access, &span);
    if (cta->race)
        race_shared(w, i, cta, offset, access.bytes, mask, race_kind(access), access.order);
    if (settings->timing) {
        static const TrafficKind traffic[] = {TRAFFIC_READ, TRAFFIC_WRITE, TRAFFIC_ATOMIC};
        traffic_shared(w, i, offset, access.bytes, mask, traffic[access.kind]);
        if (w->pace && cta != w->cta)
            pace_remote(w, cta->sm, access.bytes * __builtin_popcount(mask));
    }
    return true;
}

// Lanes that reach several CTAs, or another one: each CTA's lanes together.
static __attribute__((noinline)) bool place_in_cluster(Warp *w, const Insn *i,
                                                       const uint32_t address[WARP_SIZE],
                                                       uint32_t mask, Access access,
                                                       Places *places) {
    places->pattern = PLACED_SCATTERED;
    for (uint32_t rest = mask; rest;) {
        int first = __builtin_ctz(rest);
        uint32_t offset[WARP_SIZE], lanes = 0;
        Cta *cta = check_peer(w, i, first, address[first], &offset[first]);
        if (!cta) return false;
        if (cta != w->cta && !access.cluster) {
            finding(w, i, first, FINDING_WRONG_SPACE,
                    "Use .shared::cluster or a generic address for another CTA's memory.",
                    "uses 0x%x, shared memory of CTA %u of the cluster, in an instruction that "
                    "only reaches the CTA's own (.shared::cta)",
                    address[first], cta->cluster_rank);
            return false;
        }
        for (int l = 0; l < WARP_SIZE; l++) {
            offset[l] = address[l] - (cta->cluster_rank << RANK_SHIFT);
            lanes |= (uint32_t)(offset[l] >> RANK_SHIFT == 0) << l;
        }
        lanes &= rest;
        Places part;
        if (!place_in(w, i, cta, offset, lanes, access, &part)) return false;
        places_spread(&part, access.bytes);
        for (uint32_t m = lanes; m; m &= m - 1)
            places->at[__builtin_ctz(m)] = part.at[__builtin_ctz(m)];
        rest &= ~lanes;
    }
    return true;
}

bool place_shared(Warp *w, const Insn *i, const uint32_t address[WARP_SIZE], uint32_t mask,
                  Access access, Places *places) {
    const Cta *cta = w->cta;
    if (cta->cluster->size == 1) return place_in(w, i, w->cta, address, mask, access, places);
    uint32_t home = cta->cluster_rank << RANK_SHIFT, own[WARP_SIZE], elsewhere = 0;
    for (int l = 0; l < WARP_SIZE; l++) {
        own[l] = address[l] - home;
        elsewhere |= own[l] & -(mask >> l & 1);
    }
    if (elsewhere >> RANK_SHIFT) return place_in_cluster(w, i, address, mask, access, places);
    return place_in(w, i, w->cta, own, mask, access, places);
}

// ---- local memory and parameters

bool place_local(Warp *w, const Insn *i, const uint32_t offset[WARP_SIZE], uint32_t mask,
                 Access access, Places *places) {
    const Settings *settings = w->sm->gpu->settings;
    uint32_t low_bits = 0, outside = 0;
    for (int l = 0; l < WARP_SIZE; l++) {
        uint32_t active = -(mask >> l & 1);
        low_bits |= offset[l] & active;
        outside |= (uint32_t)((uint64_t)offset[l] + access.bytes > w->local_stride) & active;
    }
    bool write = access.kind != ACCESS_READ;
    if (__builtin_expect(outside || low_bits & (access.bytes - 1), 0) &&
        !check_local(w, i, offset, access.bytes, mask, write))
        return false;
    places->pattern = PLACED_SCATTERED;
    for (int l = 0; l < WARP_SIZE; l++)
        places->at[l] = w->local + (size_t)l * w->local_stride + offset[l];
    if (settings->checks & CHECK_INIT && w->local_written) {
        if (access.kind != ACCESS_WRITE) init_local_read(w, i, offset, access.bytes, mask);
        if (write) init_local_written(w, offset, access.bytes, mask);
    }
    if (settings->timing)
        traffic_local(w, i, offset, access.bytes, mask, write ? TRAFFIC_WRITE : TRAFFIC_READ);
    return true;
}

bool place_param(Warp *w, const Insn *i, const uint64_t offset[WARP_SIZE], uint32_t mask,
                 Access access, Places *places) {
    uint64_t size = w->kernel->param_size;
    Span span = span_of(offset, mask, access.bytes);
    int lane = __builtin_ctz(mask);
    if (access.kind != ACCESS_READ) {
        finding(w, i, lane, FINDING_WRONG_SPACE,
                "Copy the parameter to a variable and change that.",
                "writes to the kernel's parameters, which can only be read");
        return false;
    }
    if (span.high > size || span.low >= span.high) {
        while (is_active(mask, lane) && offset[lane] + access.bytes <= size &&
               offset[lane] < offset[lane] + access.bytes && mask >> lane > 1)
            lane += 1 + __builtin_ctz(mask >> (lane + 1));
        finding(w, i, lane, FINDING_OUT_OF_BOUNDS, NULL,
                "reads %u bytes at offset %lld of the kernel's parameters, which have %llu bytes",
                access.bytes, (long long)offset[lane], (unsigned long long)size);
        return false;
    }
    if (span.any_bits & (access.bytes - 1)) {
        finding(w, i, lane, FINDING_MISALIGNED, NULL,
                "reads %u bytes of the kernel's parameters at an offset that is no multiple of %u",
                access.bytes, access.bytes);
        return false;
    }
    uint8_t *params = (uint8_t *)(uintptr_t)w->sm->launch->params;
    places_at(places, &span, params + span.low, offset, mask, access.bytes);
    return true;
}

// ---- addresses

void wide_addresses(const Warp *w, const Insn *i, uint64_t address[WARP_SIZE]) {
    if (i->a == ROW_NONE) {
        for (int l = 0; l < WARP_SIZE; l++) address[l] = i->imm;
    } else if (i->flags & INSN_WIDE_BASE) {
        const uint64_t *base = row(w, i->a);
        for (int l = 0; l < WARP_SIZE; l++) address[l] = base[l] + i->imm;
    } else {
        const uint32_t *base = row(w, i->a);
        for (int l = 0; l < WARP_SIZE; l++) address[l] = (uint32_t)(base[l] + (uint32_t)i->imm);
    }
}

bool narrow_addresses(Warp *w, const Insn *i, uint32_t mask, uint32_t address[WARP_SIZE]) {
    if (i->a == ROW_NONE) { // a variable's, of this CTA
        uint32_t home = i->space == SPACE_LOCAL ? 0 : w->cta->cluster_rank << RANK_SHIFT;
        for (int l = 0; l < WARP_SIZE; l++) address[l] = home + (uint32_t)i->imm;
        return true;
    }
    if (!(i->flags & INSN_WIDE_BASE)) {
        const uint32_t *base = row(w, i->a);
        for (int l = 0; l < WARP_SIZE; l++) address[l] = base[l] + (uint32_t)i->imm;
        return true;
    }
    const uint64_t *base = row(w, i->a);
    uint64_t too_wide = 0;
    for (int l = 0; l < WARP_SIZE; l++) {
        uint64_t a = base[l] + i->imm;
        address[l] = (uint32_t)a;
        too_wide |= (a >> 32) & -((uint64_t)mask >> l & 1);
    }
    if (__builtin_expect(!too_wide, 1)) return true;
    for (int l = 0; l < WARP_SIZE; l++) {
        if (!is_active(mask, l) || !((base[l] + i->imm) >> 32)) continue;
        finding(w, i, l, FINDING_WRONG_SPACE,
                "Convert generic addresses first (cvta.to, __cvta_generic_to_shared).",
                "uses 0x%llx, which is no %s-memory address",
                (unsigned long long)(base[l] + i->imm),
                i->space == SPACE_LOCAL ? "local" : "shared");
        break;
    }
    return false;
}

SpaceMasks generic_spaces(const uint64_t address[WARP_SIZE], uint32_t mask) {
    // All windows lie in the one terabyte from SHARED_WINDOW on; most addresses don't.
    SpaceMasks spaces = {.global = mask};
    uint64_t near = 0;
    for (int l = 0; l < WARP_SIZE; l++)
        near |= -(uint64_t)(address[l] >> 40 == SHARED_WINDOW >> 40);
    if (!near) return spaces;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        uint32_t bit = 1u << l;
        if (address[l] - SHARED_WINDOW < SHARED_WINDOW_SIZE)
            spaces.shared |= bit;
        else if (address[l] - LOCAL_WINDOW < LOCAL_WINDOW_SIZE)
            spaces.local |= bit;
        else if (address[l] - PARAM_WINDOW < PARAM_WINDOW_SIZE)
            spaces.param |= bit;
    }
    spaces.global &= ~(spaces.shared | spaces.local | spaces.param);
    return spaces;
}

void window_addresses(const uint64_t address[WARP_SIZE], uint32_t narrow[WARP_SIZE]) {
    // The windows' starts have no bits below 2^28, their sizes none above 2^29.
    for (int l = 0; l < WARP_SIZE; l++) narrow[l] = (uint32_t)address[l] & (SHARED_WINDOW_SIZE - 1);
}

const uint8_t *peek_generic(const Warp *w, int lane, uint64_t address, uint64_t size) {
    if (address - SHARED_WINDOW < SHARED_WINDOW_SIZE) {
        uint32_t offset;
        const Cta *cta = resolve_shared(w, (uint32_t)(address - SHARED_WINDOW), &offset);
        if (!cta || offset < SHARED_RESERVED || offset + size > cta->shared_size) return NULL;
        return cta->shared + offset;
    }
    if (address - LOCAL_WINDOW < LOCAL_WINDOW_SIZE) {
        uint64_t offset = address - LOCAL_WINDOW;
        if (offset + size > w->local_stride) return NULL;
        return w->local + (size_t)lane * w->local_stride + offset;
    }
    if (address - PARAM_WINDOW < PARAM_WINDOW_SIZE) {
        uint64_t offset = address - PARAM_WINDOW;
        return offset + size > w->kernel->param_size ? NULL : w->sm->launch->params + offset;
    }
    struct GlobalMemory *m = w->sm->gpu->memory;
    const Allocation *a = global_find(m, address);
    if (!a || a->freed || address < a->address || address - a->address + size > a->size)
        return NULL;
    return global_pointer(m, address);
}
