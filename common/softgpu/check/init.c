// The init check: reads of memory that nothing wrote.
//
// Global memory has one bit a byte in GlobalMemory.written, local memory one bit a byte in
// Warp.local_written, shared memory one byte a byte in Cta.shared_written. "Never written" is a
// state of its own, not a value, so no data can hide it.
//
// A read that finds no written byte is a finding. One that finds some is too, for global and
// shared memory, when strict; but working programs copy structs with their padding, so otherwise
// it is only a note. In local memory, where the compiler keeps structs as it likes, it is neither.
#include <string.h>

#include "softgpu/check/bits.h"
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
    if (!m->written) return;
    // First all lanes without branches: an aligned access has its bits in one word.
    const BitWord *words = (const BitWord *)m->written;
    uint64_t bits = (1ull << size) - 1, missing = 0;
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
        if (offset >= m->device_size || bits_all(m->written, offset, size)) continue;
        report_global(w, i, lane, address[lane], size);
        return;
    }
}

void init_shared_written(Warp *w, const uint32_t address[32], unsigned size, uint32_t mask) {
    uint8_t *written = w->cta->shared_written;
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
    uint64_t missing = 0;
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
            missing |= marks ^ ones;
        }
    }
    return !missing;
}

void init_shared_read(Warp *w, const Insn *i, const uint32_t address[32], unsigned size,
                      uint32_t mask) {
    const uint8_t *written = w->cta->shared_written;
    if (!written || lanes_marked(written, address, size, mask)) return;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        uint32_t a = address[lane];
        if (lanes_marked(written, address, size, 1u << lane)) continue;
        bool part = memchr(written + a, 1, size);
        FindingKind kind = kind_of(w, part);
        if (finding_again(w, i, kind)) return;
        uint32_t dynamic = w->kernel->shared_dynamic;
        bool in_dynamic =
            w->sm->launch->launch && w->sm->launch->launch->dynamic_shared && a >= dynamic;
        finding(w, i, lane, kind,
                "Write it first: a tile's edges and padding too, if they are read.",
                "reads %u bytes of shared memory at 0x%x (byte %u of the %s shared memory); %s",
                size, a, in_dynamic ? a - dynamic : a - w->kernel->shared_base,
                in_dynamic ? "dynamic" : "static",
                part ? "nothing has written some of them" : "nothing has written them");
        return;
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
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        if (bits_any(w->local_written, (uint64_t)lane * w->local_stride + offset[lane], size))
            continue;
        if (finding_again(w, i, FINDING_UNINITIALISED)) return;
        finding(w, i, lane, FINDING_UNINITIALISED, "Give the variable a value first.",
                "reads %u bytes at offset %u of its local memory that nothing has written", size,
                offset[lane]);
        return;
    }
}
