// The init check: reads of memory that nothing wrote.
//
// Global memory has one bit a byte in GlobalMemory.written, local memory one bit a byte in
// Warp.local_written, shared memory one byte a byte in Cta.shared_written (marks: check.h). "Never
// written" is a state of its own, not a value, so no data can hide it.
//
// With a sample of the SMs most blocks never run, so what they would have written counts as
// written: GlobalMemory's allocations remember it (Allocation.sampled).
//
// When strict, a read that finds a byte unwritten is a finding. Otherwise working programs are
// given what they are known to do: they copy structs with their padding (a note); they read more of
// a tile in shared memory than they have filled, and throw it away; and compilers load a local
// variable before they know that it has a value. So what a load reads of shared and local memory is
// followed until it has an effect (definedness.h). What remains is global memory of which nothing
// at all was written, and shared memory that an atomic changes: findings always. A partly written
// word of local memory is never one: the compiler keeps structs there as it likes.
#include <string.h>

#include "softgpu/check/bits.h"
#include "softgpu/check/definedness.h"
#include "softgpu/check/findings.h"
#include "softgpu/machine/global.h"

typedef unsigned long long ull;

void init_global_written(Warp *w, const uint64_t address[32], unsigned size, uint32_t mask) {
    const struct GlobalMemory *m = w->sm->gpu->memory;
    if (!m->written) return;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        uint64_t offset = address[__builtin_ctz(rest)] - m->device_base;
        if (offset >= m->device_size) continue;
        // An aligned access has its bits in one word; mostly they are set already.
        BitWord *word = (BitWord *)m->written + offset / 64;
        uint64_t bits = ((1ull << size) - 1) << offset % 64;
        if (~__atomic_load_n(word, __ATOMIC_RELAXED) & bits)
            __atomic_fetch_or(word, bits, __ATOMIC_RELAXED);
    }
}

// What a read is reported as that finds some written bytes (`part`), or none.
static FindingKind kind_of(const Warp *w, bool part) {
    return part && !w->sm->gpu->settings->strict ? FINDING_LINT : FINDING_UNINITIALISED;
}

// The bytes of a load that matter, a bit each: nvcc widens loads, and says what of them it uses.
static uint64_t used_bytes(const Warp *w, const Insn *i, unsigned size) {
    uint64_t all = (1ull << size) - 1;
    const Kernel *kernel = w->kernel;
    if (!kernel || !kernel->used_count) return all;
    for (int k = 0; k < kernel->used_count; k++)
        if (kernel->used[k].index == i->index) return kernel->used[k].bytes & all;
    return all;
}

// Have the bytes of `bits` at `from` all been written?
static bool used_written(const void *map, uint64_t from, uint64_t bits) {
    for (; bits; bits &= bits - 1)
        if (!bits_all(map, from + (uint64_t)__builtin_ctzll(bits), 1)) return false;
    return true;
}

// Records the read of one lane.
static void report_global(Warp *w, const Insn *i, int lane, uint64_t address, unsigned size) {
    struct GlobalMemory *m = w->sm->gpu->memory;
    bool part = bits_any(m->written, address - m->device_base, size);
    FindingKind kind = kind_of(w, part);
    if (finding_again(w, i, kind)) return;
    const Allocation *a = global_find(m, address);
    finding(w, i, lane, kind,
            part ? "Write all of it first; harmless if the unwritten bytes are a struct's padding."
                 : "Fill the buffer first (cudaMemset, cudaMemcpy, or a kernel that writes all of "
                   "it).",
            "reads %u bytes of global memory at 0x%llx, byte %llu of the %llu-byte allocation "
            "#%llu%s%s; %s",
            size, (ull)address, a ? (ull)(address - a->address) : 0, a ? (ull)a->size : 0,
            a ? (ull)a->serial : 0, a && a->name ? " " : "", a && a->name ? a->name : "",
            part ? "nothing has written some of them" : "nothing has written them");
}

void init_global_read(Warp *w, const Insn *i, const uint64_t address[32], unsigned size,
                      uint32_t mask) {
    const struct GlobalMemory *m = w->sm->gpu->memory;
    if (!m->written || w->sm->launch->sampled) return;
    // First all lanes without branches: an aligned access has its bits in one word.
    const BitWord *words = (const BitWord *)m->written;
    uint64_t bits = used_bytes(w, i, size), missing = 0;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        uint64_t offset = address[__builtin_ctz(rest)] - m->device_base;
        if (offset < m->device_size)
            missing |=
                ~(__atomic_load_n(&words[offset / 64], __ATOMIC_RELAXED) >> offset % 64) & bits;
    }
    if (!missing) return;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        uint64_t offset = address[lane] - m->device_base;
        if (offset >= m->device_size || used_written(m->written, offset, bits)) continue;
        const Allocation *a = global_find((struct GlobalMemory *)m, address[lane]);
        if (a && a->sampled) continue;
        report_global(w, i, lane, address[lane], size);
        return;
    }
}

void init_shared_written(Cta *cta, const uint32_t address[32], unsigned size, uint32_t mask) {
    uint8_t *written = cta->shared_written;
    if (!written) return;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        uint8_t *at = written + address[__builtin_ctz(rest)];
        if (size == 4)
            memset(at, 1, 4);
        else if (size == 16)
            memset(at, 1, 16);
        else
            memset(at, 1, size);
    }
}

// Are `size` bytes at each of the lanes' addresses marked? size: a power of two up to 32.
static bool lanes_marked(const uint8_t *map, const uint32_t address[32], unsigned size,
                         uint32_t mask) {
    const uint64_t ones = 0x0101010101010101ull;
    uint64_t missing = 0; // marks may say more (check.h); the lowest bit says that there is one
    for (unsigned part = 0; part < size; part += 8) {
        for (uint32_t rest = mask; rest; rest &= rest - 1) {
            const uint8_t *at = map + address[__builtin_ctz(rest)] + part;
            uint64_t marks = ones;
            if (size >= 8)
                memcpy(&marks, at, 8);
            else if (size == 4)
                memcpy(&marks, at, 4);
            else if (size == 2)
                memcpy(&marks, at, 2);
            else
                memcpy(&marks, at, 1);
            missing |= ~marks & ones;
        }
    }
    return !missing;
}

// What a load of shared or local memory finds unwritten.
typedef struct {
    uint32_t lanes[LOAD_ELEMENTS]; // per element: those in which no byte that matters is written
    uint32_t any, some;            // lanes of which an element is so; of which only some are
    uint32_t part;                 // lanes of which an element is written in part
    uint64_t address;              // of an element that is unwritten
} Missing;

// Adds one lane's read: a bit of `written` for each byte, and of `used` for each that matters.
static void add_missing(Missing *missing, const Insn *i, uint64_t address, int lane,
                        uint64_t written, uint64_t used, unsigned size) {
    unsigned element = i->size ? i->size : size, count = size / element;
    uint64_t ones = ~0ull >> (64 - element);
    uint32_t bit = 1u << lane;
    bool others = false;
    for (unsigned k = 0; k < count && k < LOAD_ELEMENTS; k++) {
        uint64_t wants = used >> k * element & ones, has = written >> k * element & ones;
        if (wants & has || !wants) {
            others |= wants != 0;
            if (wants & ~has) missing->part |= bit;
            continue;
        }
        if (!missing->any) missing->address = address + k * element;
        missing->lanes[k] |= bit;
        missing->any |= bit;
    }
    if (others && missing->any & bit) missing->some |= bit;
}

// Records a read of shared memory.
static void report_shared(Warp *w, const Insn *i, const Cta *cta, int lane, uint32_t a,
                          unsigned size, FindingKind kind) {
    if (finding_again(w, i, kind)) return;
    bool part = false;
    for (unsigned k = 0; k < size; k++) part |= cta->shared_written[a + k] != 0;
    uint32_t dynamic = w->kernel->shared_dynamic;
    bool in_dynamic =
        w->sm->launch->launch && w->sm->launch->launch->dynamic_shared && a >= dynamic;
    finding(w, i, lane, kind, "Write it first: a tile's edges and padding too, if they are read.",
            "reads %u bytes of shared memory at 0x%x (byte %u of the %s shared memory); %s", size,
            a, in_dynamic ? a - dynamic : a - w->kernel->shared_base,
            in_dynamic ? "dynamic" : "static",
            part ? "nothing has written some of them" : "nothing has written them");
}

// Is this an atomic, whose result always depends on what is there?
static bool is_atomic(const Warp *w, const Insn *i) {
    return w->kernel->uses && w->kernel->uses[i->index].rule == USES_ATOMIC;
}

void init_shared_read(Warp *w, const Insn *i, const Cta *cta, const uint32_t address[32],
                      unsigned size, uint32_t mask) {
    const uint8_t *written = cta->shared_written;
    if (!written || lanes_marked(written, address, size, mask)) return;
    bool follows = definedness_follows(w, i);
    uint64_t used = used_bytes(w, i, size);
    Missing missing = {0};
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        uint32_t a = address[lane];
        uint64_t bits = 0;
        for (unsigned k = 0; k < size; k++) bits |= (uint64_t)(written[a + k] != 0) << k;
        if (!(used & ~bits)) continue;
        if (follows) {
            add_missing(&missing, i, a, lane, bits, used, size);
            continue;
        }
        report_shared(w, i, cta, lane, a, size, kind_of(w, bits || !is_atomic(w, i)));
        return;
    }
    if (missing.any)
        definedness_load(w, i, missing.lanes, SPACE_SHARED, missing.address, missing.some);
    uint32_t part = missing.part & ~missing.any;
    if (part) {
        int lane = __builtin_ctz(part);
        report_shared(w, i, cta, lane, address[lane], size, FINDING_LINT);
    }
}

void init_local_written(Warp *w, const uint32_t offset[32], unsigned size, uint32_t mask) {
    if (!w->local_written) return;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        bits_set(w->local_written, (uint64_t)lane * w->local_stride + offset[lane], size);
    }
}

void init_local_read(Warp *w, const Insn *i, const uint32_t offset[32], unsigned size,
                     uint32_t mask) {
    if (!w->local_written) return;
    bool follows = definedness_follows(w, i);
    Missing missing = {0};
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        uint64_t from = (uint64_t)lane * w->local_stride + offset[lane];
        if (follows && !bits_all(w->local_written, from, size)) {
            uint64_t bits = 0;
            for (unsigned k = 0; k < size; k++)
                bits |= (uint64_t)bits_any(w->local_written, from + k, 1) << k;
            add_missing(&missing, i, offset[lane], lane, bits, used_bytes(w, i, size), size);
        }
        if (follows || bits_any(w->local_written, from, size)) continue;
        FindingKind kind = kind_of(w, true);
        if (finding_again(w, i, kind)) return;
        finding(w, i, lane, kind, "Give the variable a value first.",
                "reads %u bytes at offset %u of its local memory that nothing has written", size,
                offset[lane]);
        return;
    }
    if (missing.any)
        definedness_load(w, i, missing.lanes, SPACE_LOCAL, missing.address, missing.some);
}

// ---- ranges

bool init_shared_range(const Cta *cta, uint32_t offset, uint32_t size) {
    const uint8_t *written = cta->shared_written;
    if (!written) return true;
    uint64_t ones = 0x0101010101010101ull, part, missing = 0;
    uint32_t k = 0;
    for (; k + 8 <= size; k += 8) {
        memcpy(&part, written + offset + k, 8);
        missing |= ~part & ones;
    }
    for (; k < size; k++) missing |= ~written[offset + k] & 1u;
    return !missing;
}

bool init_global_range(Warp *w, const Insn *i, int lane, uint64_t address, uint64_t size) {
    struct GlobalMemory *m = w->sm->gpu->memory;
    if (!m->written || w->sm->launch->sampled || !size) return false;
    uint64_t offset = address - m->device_base;
    if (offset >= m->device_size || bits_all(m->written, offset, size)) return false;
    const Allocation *a = global_find(m, address);
    if (a && a->sampled) return false;
    report_global(w, i, lane, address, (unsigned)size);
    return true;
}
