// The mem check: bounds, alignment, state space, constness. Called where the quick test of
// execute/memory_access.c has failed: so here time doesn't matter much, and the words do.
//
// With the mem check off an access must still not reach memory that isn't there: it then ends the
// launch as on a GPU, with no more than "illegal address".
#include <stdio.h>

#include "softgpu/check/findings.h"
#include "softgpu/check/race_global.h"
#include "softgpu/machine/global.h"

typedef unsigned long long ull;

static const char *verb(bool write) {
    return write ? "writes" : "reads";
}

// Remembers an allocation for the quick test. Memory from malloc in a kernel may be freed at any
// time by another SM, so it is looked up each time.
static void remember(Sm *sm, uint64_t begin, uint64_t end, const Allocation *a) {
    for (unsigned k = ALLOCATIONS_CACHED - 1; k > 0; k--) sm->cached[k] = sm->cached[k - 1];
    sm->cached[0] = (struct AllocationCache){.begin = begin,
                                             .end = end,
                                             .read_only = a && a->kind == MEMORY_CONSTANT,
                                             .unwritten = a && !race_writes(sm->launch, a)};
}

// Names an allocation: "the 4096-byte allocation #3", "the variable 'table' (400 bytes)".
static void describe_allocation(const Allocation *a, char *text, size_t size) {
    static const char *const kinds[] = {
        [MEMORY_DEVICE] = "allocation",
        [MEMORY_MANAGED] = "managed allocation",
        [MEMORY_PINNED] = "pinned host buffer",
        [MEMORY_MODULE] = "variable",
        [MEMORY_CONSTANT] = "constant",
        [MEMORY_HEAP] = "block from malloc in a kernel",
        [MEMORY_REGISTERED] = "registered host buffer",
    };
    if (a->name)
        snprintf(text, size, "the %s '%s' (%llu bytes)", kinds[a->kind], a->name, (ull)a->size);
    else
        snprintf(text, size, "the %llu-byte %s #%llu", (ull)a->size, kinds[a->kind],
                 (ull)a->serial);
}

// The name of the window that a generic address lies in, or NULL.
static const char *window_name(uint64_t address) {
    if (address - SHARED_WINDOW < SHARED_WINDOW_SIZE) return "shared memory";
    if (address - LOCAL_WINDOW < LOCAL_WINDOW_SIZE) return "a thread's local memory";
    if (address - PARAM_WINDOW < PARAM_WINDOW_SIZE) return "the kernel's parameters";
    if (address >> 28 == FUNCTION_WINDOW >> 28) return "a function";
    return NULL;
}

// Records why no live allocation holds [address, address + size).
static void explain_miss(Warp *w, const Insn *i, int lane, uint64_t address, unsigned size,
                         bool write) {
    struct GlobalMemory *m = w->sm->gpu->memory;
    const char *window = window_name(address);
    if (address < 0x10000) {
        finding(w, i, lane, FINDING_OUT_OF_BOUNDS,
                "Check that the pointer was set, and that cudaMalloc succeeded.",
                "%s %u bytes at address 0x%llx: a null pointer", verb(write), size, (ull)address);
        return;
    }
    if (window) {
        finding(w, i, lane, FINDING_WRONG_SPACE,
                "Use a generic access, or convert the address to the space of the instruction.",
                "%s %u bytes of global memory at 0x%llx, which is an address of %s", verb(write),
                size, (ull)address, window);
        return;
    }
    const Allocation *a = global_nearest(m, address);
    bool device =
        address - m->device_base < m->device_size || address - m->host_base < m->host_size;
    // Beside registered host memory lies host memory that isn't.
    bool beside = a && a->kind == MEMORY_REGISTERED && address - a->address < a->size + 4096;
    if (!a || (!device && !beside)) {
        finding(w, i, lane, FINDING_OUT_OF_BOUNDS,
                "Kernels can't reach the host's memory (malloc, new, the stack): copy it with "
                "cudaMemcpy, or allocate it with cudaMallocManaged.",
                "%s %u bytes at 0x%llx, which is no address of device memory", verb(write), size,
                (ull)address);
        return;
    }
    char name[200];
    describe_allocation(a, name, sizeof name);
    uint64_t end = a->address + a->size;
    if (a->freed && address >= a->address && address < end) {
        finding(w, i, lane, FINDING_USE_AFTER_FREE,
                "Free memory only after the last kernel that uses it has run.",
                "%s %u bytes at 0x%llx, byte %llu of %s, which has been freed", verb(write), size,
                (ull)address, (ull)(address - a->address), name);
        return;
    }
    const char *mend = "Check the index against the size that was allocated.";
    if (address < a->address)
        finding(w, i, lane, FINDING_OUT_OF_BOUNDS, mend,
                "%s %u bytes of global memory at 0x%llx, %llu bytes before the start of %s%s",
                verb(write), size, (ull)address, (ull)(a->address - address), name,
                a->freed ? " (freed)" : "");
    else if (address == end)
        finding(w, i, lane, FINDING_OUT_OF_BOUNDS, mend,
                "%s %u bytes of global memory at 0x%llx, right behind the end of %s%s", verb(write),
                size, (ull)address, name, a->freed ? " (freed)" : "");
    else if (address > end)
        finding(w, i, lane, FINDING_OUT_OF_BOUNDS, mend,
                "%s %u bytes of global memory at 0x%llx, %llu bytes past the end of %s%s",
                verb(write), size, (ull)address, (ull)(address - end), name,
                a->freed ? " (freed)" : "");
    else
        finding(w, i, lane, FINDING_OUT_OF_BOUNDS, mend,
                "%s %u bytes of global memory at 0x%llx; the last %llu of them lie past the end "
                "of %s",
                verb(write), size, (ull)address, (ull)(address + size - end), name);
}

static void explain_misalignment(Warp *w, const Insn *i, int lane, uint64_t address, unsigned size,
                                 bool write, const char *space) {
    finding(w, i, lane, FINDING_MISALIGNED,
            "An access of N bytes needs an address that is a multiple of N: align the buffer or "
            "the row, or use narrower accesses.",
            "%s %u bytes of %s memory at 0x%llx, which is %llu bytes past a multiple of %u",
            verb(write), size, space, (ull)address, (ull)(address & (size - 1)), size);
}

// With the mem check off: what a GPU would say.
static bool without_detail(Warp *w, const Insn *i, int lane, bool misaligned, bool write) {
    finding(w, i, lane, misaligned ? FINDING_MISALIGNED : FINDING_OUT_OF_BOUNDS,
            "Run again with the mem check (SOFTGPU_CHECK=mem) to see what is wrong with it.",
            "%s memory at an illegal address", verb(write));
    return false;
}

// The mem check is off: any address of the device range is memory.
static bool global_lane_mapped(Warp *w, const Insn *i, int lane, uint64_t address, unsigned size,
                               bool write) {
    struct GlobalMemory *m = w->sm->gpu->memory;
    if (address & (size - 1)) return without_detail(w, i, lane, true, write);
    uint64_t offset = address - m->device_base;
    if (offset < m->device_size && size <= m->device_size - offset) {
        remember(w->sm, m->device_base, m->device_base + m->device_size, NULL);
        return true;
    }
    const Allocation *a = global_find(m, address);
    if (!a || a->freed || address < a->address || address - a->address + size > a->size)
        return without_detail(w, i, lane, false, write);
    remember(w->sm, a->address, a->address + a->size, a);
    return true;
}

// May one lane access these bytes?
static bool global_lane_allowed(Warp *w, const Insn *i, int lane, uint64_t address, unsigned size,
                                bool write) {
    const Allocation *a = global_find(w->sm->gpu->memory, address);
    if (!a || a->freed || address < a->address || address - a->address >= a->size ||
        size > a->size - (address - a->address)) {
        explain_miss(w, i, lane, address, size, write);
        return false;
    }
    if (address & (size - 1)) {
        explain_misalignment(w, i, lane, address, size, write, "global");
        return false;
    }
    bool read_only = a->kind == MEMORY_CONSTANT;
    if (write && read_only) {
        finding(w, i, lane, FINDING_WRONG_SPACE,
                "Kernels can only read __constant__ variables; use a __device__ variable.",
                "writes %u bytes at 0x%llx, which is constant memory ('%s')", size, (ull)address,
                a->name ? a->name : "?");
        return false;
    }
    if (a->kind != MEMORY_HEAP) remember(w->sm, a->address, a->address + a->size, a);
    return true;
}

bool check_global(Warp *w, const Insn *i, const uint64_t address[32], unsigned size, uint32_t mask,
                  bool write) {
    Sm *sm = w->sm;
    bool detail = sm->gpu->settings->checks & CHECK_MEM;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        uint64_t a = address[lane];
        const struct AllocationCache *c = &sm->cached[0];
        if (a >= c->begin && a < c->end && size <= c->end - a && !(a & (size - 1)) &&
            !(write && c->read_only))
            continue;
        bool allowed = detail ? global_lane_allowed(w, i, lane, a, size, write)
                              : global_lane_mapped(w, i, lane, a, size, write);
        if (!allowed) return false;
    }
    return true;
}

// Records why an access to shared memory isn't allowed.
static void explain_shared(Warp *w, const Insn *i, int lane, uint32_t offset, unsigned size,
                           bool write) {
    uint32_t end = w->cta->shared_size;
    uint32_t fixed = w->kernel->shared_static;
    uint32_t dynamic = w->sm->launch->launch ? w->sm->launch->launch->dynamic_shared : 0;
    if (offset >> RANK_SHIFT) {
        uint32_t address = offset + (w->cta->cluster_rank << RANK_SHIFT);
        if (check_peer(w, i, lane, address, &(uint32_t){0}))
            finding(w, i, lane, FINDING_WRONG_SPACE, "Use the CTA's own shared memory here.",
                    "%s shared memory of another CTA of the cluster (0x%x), which this "
                    "instruction can't reach",
                    verb(write), address);
        return;
    }
    if (offset < w->kernel->shared_base) {
        finding(w, i, lane, FINDING_OUT_OF_BOUNDS, "Check the index, and that the address was set.",
                "%s %u bytes of shared memory at 0x%x, below the CTA's memory (it begins at 0x%x)",
                verb(write), size, offset, w->kernel->shared_base);
        return;
    }
    const char *mend = dynamic || !fixed
                           ? "Ask for more dynamic shared memory in the launch, or check the index."
                           : "Check the index against the size of the array.";
    if (offset >= end)
        finding(w, i, lane, FINDING_OUT_OF_BOUNDS, mend,
                "%s %u bytes of shared memory at 0x%x, %u bytes past the end (the CTA has %u bytes "
                "of static and %u of dynamic shared memory)",
                verb(write), size, offset, offset - end, fixed, dynamic);
    else
        finding(w, i, lane, FINDING_OUT_OF_BOUNDS, mend,
                "%s %u bytes of shared memory at 0x%x; the last %u lie past the end (the CTA has "
                "%u bytes of static and %u of dynamic shared memory)",
                verb(write), size, offset, offset + size - end, fixed, dynamic);
}

bool check_shared(Warp *w, const Insn *i, const uint32_t address[32], unsigned size, uint32_t mask,
                  bool write) {
    bool detail = w->sm->gpu->settings->checks & CHECK_MEM;
    uint32_t begin = w->kernel->shared_scratch ? SHARED_SCRATCH : SHARED_RESERVED;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        uint32_t a = address[lane];
        bool below = a < begin || (a >= SHARED_RESERVED && a < w->kernel->shared_base);
        bool outside = below || (uint64_t)a + size > w->cta->shared_size;
        bool misaligned = a & (size - 1);
        if (!outside && !misaligned) continue;
        if (!detail) return without_detail(w, i, lane, !outside, write);
        if (outside)
            explain_shared(w, i, lane, a, size, write);
        else
            explain_misalignment(w, i, lane, a, size, write, "shared");
        return false;
    }
    return true;
}

bool check_local(Warp *w, const Insn *i, const uint32_t offset[32], unsigned size, uint32_t mask,
                 bool write) {
    bool detail = w->sm->gpu->settings->checks & CHECK_MEM;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        bool outside = (uint64_t)offset[lane] + size > w->local_stride;
        bool misaligned = offset[lane] & (size - 1);
        if (!outside && !misaligned) continue;
        if (!detail) return without_detail(w, i, lane, !outside, write);
        if (outside)
            finding(w, i, lane, FINDING_OUT_OF_BOUNDS, "Check the index into the local array.",
                    "%s %u bytes at offset %u of its local memory, which has %u bytes a thread",
                    verb(write), size, offset[lane], w->local_stride);
        else
            explain_misalignment(w, i, lane, offset[lane], size, write, "local");
        return false;
    }
    return true;
}

// ---- ranges

bool check_global_range_quick(const Warp *w, uint64_t address, uint64_t size, bool write) {
    for (int k = 0; k < ALLOCATIONS_CACHED; k++) {
        const struct AllocationCache *c = &w->sm->cached[k];
        if (address >= c->begin && address < c->end && size <= c->end - address &&
            !(write && c->read_only))
            return true;
    }
    return false;
}

bool check_global_range(Warp *w, const Insn *i, int lane, uint64_t address, uint64_t size,
                        bool write) {
    Sm *sm = w->sm;
    if (check_global_range_quick(w, address, size, write)) return true;
    bool detail = sm->gpu->settings->checks & CHECK_MEM;
    if (size > UINT32_MAX) size = UINT32_MAX;
    unsigned bytes = (unsigned)size;
    if (detail) {
        const Allocation *a = global_find(sm->gpu->memory, address);
        bool inside = a && !a->freed && address >= a->address && address - a->address < a->size &&
                      size <= a->size - (address - a->address);
        if (!inside) {
            explain_miss(w, i, lane, address, bytes, write);
            return false;
        }
        return global_lane_allowed(w, i, lane, address, 1, write); // constness; remembers it
    }
    return global_lane_mapped(w, i, lane, address, 1, write) &&
           global_lane_mapped(w, i, lane, address + size - 1, 1, write);
}

bool check_shared_range(Warp *w, const Insn *i, int lane, const Cta *cta, uint32_t offset,
                        uint32_t size, bool write) {
    uint32_t begin = w->kernel->shared_base;
    if (offset >= begin && (uint64_t)offset + size <= cta->shared_size) return true;
    if (w->sm->gpu->settings->checks & CHECK_MEM)
        explain_shared(w, i, lane, offset, size, write);
    else
        without_detail(w, i, lane, false, write);
    return false;
}
