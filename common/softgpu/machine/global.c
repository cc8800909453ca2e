// Device memory.
//
// Allocations are kept in one array, sorted by address, so that a look-up is a binary search. New
// ones come from fresh addresses as long as there are any: a pointer to freed memory then points at
// nothing, and says so. The last freed ones stay in a second array, to be named in findings; their
// pages go back to the system at once. Only when fresh addresses run out are gaps used again.
#define _GNU_SOURCE
#include "softgpu/machine/global.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "softgpu/machine/machine.h"

enum { GAP = 256, ALIGNMENT = 256, REMEMBERED = 4096 };
#define SMALLEST_RANGE       (1ull << 26) // less address space than this is of no use
#define HOST_RANGE           (1ull << 38)
#define FUNCTION_WINDOW_SIZE 0x1000000ull

// A range of addresses from which allocations are cut.
typedef struct {
    uint64_t base, size;
    uint64_t fresh; // offset of the first byte that was never used
} Arena;

struct GlobalState {
    Arena device, host;
    uint64_t memory_size; // of the modelled GPU
    uint64_t pages;       // of the device range: length of the three tables
    uint64_t used, peak;
    uint64_t serial;
    uint64_t asked;       // live allocations of cudaMalloc
    uint32_t *users;      // allocations in each page of the device range
    uint8_t *frame_taken; // by frame
    uint32_t first_free;  // no frame below is free
    Allocation **live;    // sorted by address
    size_t live_count, live_capacity;
    Allocation *freed[REMEMBERED]; // a ring, in the order of freeing
    uint64_t freed_count;
};

// Frees the record of an allocation.
static void drop(Allocation *a) {
    if (a) free((char *)a->name);
    free(a);
}

// Where the ranges begin if the system lets them: so a program's addresses, and the reports about
// them, are the same in every run. Far from where it puts programs, libraries and stacks itself.
#define DEVICE_HINT  0x300000000000ull
#define BYTES_HINT   0x200000000000ull
#define WRITTEN_HINT 0x280000000000ull
#define HOST_HINT    0x400000000000ull

// Address space without memory behind it, at `hint` if that is free; NULL if the system refuses.
static void *reserve(uint64_t hint, uint64_t size, int protection) {
    void *p = mmap((void *)(uintptr_t)hint, size, protection,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

// Keeps the windows of generic addresses free of host memory, once per process: what a kernel takes
// for a shared address must never be a host pointer.
static void reserve_windows(void) {
    static const struct {
        uint64_t base, size;
    } windows[] = {{SHARED_WINDOW, SHARED_WINDOW_SIZE},
                   {LOCAL_WINDOW, LOCAL_WINDOW_SIZE},
                   {PARAM_WINDOW, PARAM_WINDOW_SIZE},
                   {FUNCTION_WINDOW, FUNCTION_WINDOW_SIZE}};
    static bool done;
    if (done) return;
    done = true;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        void *want = (void *)(uintptr_t)windows[i].base;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        void *got = mmap(want, windows[i].size, PROT_NONE, flags, -1, 0);
        if (got == want || got == MAP_FAILED) continue; // refused: then nothing else gets it either
        munmap(got, windows[i].size);
    }
}

// The pages of the device range.
static uint64_t pages_of(uint64_t size) {
    return (size + GLOBAL_PAGE - 1) / GLOBAL_PAGE;
}

// An allocation begins (or ends, with -1) to use its pages. A page gets the lowest free frame when
// its first allocation comes, and gives it back when the last one goes.
static void use_pages(struct GlobalMemory *m, uint64_t address, uint64_t size, int by) {
    struct GlobalState *state = m->state;
    uint64_t offset = address - m->device_base;
    if (offset >= m->device_size) return;
    for (uint64_t page = offset / GLOBAL_PAGE; page < pages_of(offset + size); page++) {
        if (by > 0 && state->users[page]++ == 0) {
            while (state->frame_taken[state->first_free]) state->first_free++;
            m->frames[page] = state->first_free;
            state->frame_taken[state->first_free++] = 1;
        } else if (by < 0 && --state->users[page] == 0) {
            uint32_t frame = m->frames[page];
            state->frame_taken[frame] = 0;
            if (frame < state->first_free) state->first_free = frame;
        }
    }
}

// Reserves the device range, its bytes and its bit map, all or nothing.
static bool reserve_device(struct GlobalMemory *m, uint64_t size, bool track_written) {
    void *addresses = reserve(DEVICE_HINT, size, PROT_NONE);
    void *bytes = addresses ? reserve(BYTES_HINT, size, PROT_READ | PROT_WRITE) : NULL;
    void *written = NULL;
    if (bytes && track_written) written = reserve(WRITTEN_HINT, size / 8, PROT_READ | PROT_WRITE);
    if (!bytes || (track_written && !written)) {
        if (addresses) munmap(addresses, size);
        if (bytes) munmap(bytes, size);
        return false;
    }
    m->device_base = (uint64_t)(uintptr_t)addresses;
    m->device_size = size;
    m->device_bytes = bytes;
    m->written = written;
    return true;
}

// Gives the device range back.
static void release_device(struct GlobalMemory *m) {
    munmap((void *)(uintptr_t)m->device_base, m->device_size);
    munmap(m->device_bytes, m->device_size);
    if (m->written) munmap(m->written, m->device_size / 8);
}

struct GlobalMemory *global_new(uint64_t device_size, bool track_written) {
    reserve_windows();
    struct GlobalMemory *m = calloc(1, sizeof *m);
    struct GlobalState *state = calloc(1, sizeof *state);
    if (!m || !state) {
        free(m);
        free(state);
        return NULL;
    }
    m->state = state;
    uint64_t page = sysconf(_SC_PAGESIZE);
    uint64_t range = (device_size + device_size / 4 + 16 * page) / page * page;
    uint64_t wanted = range;
    while (!reserve_device(m, range, track_written)) {
        range = range / 2 / page * page;
        if (range >= SMALLEST_RANGE || range * 4 >= wanted) continue;
        free(m);
        free(state);
        return NULL;
    }
    if (range < wanted) { // address space is scarce: leave some of it for host memory
        release_device(m);
        range = range / 2 / page * page;
        if (!reserve_device(m, range, track_written)) {
            free(m);
            free(state);
            return NULL;
        }
    }
    uint64_t host = HOST_RANGE;
    void *host_bytes;
    while (!(host_bytes = reserve(HOST_HINT, host, PROT_READ | PROT_WRITE)) &&
           host > SMALLEST_RANGE)
        host /= 2;
    m->host_base = (uint64_t)(uintptr_t)host_bytes;
    m->host_size = host_bytes ? host : 0;
    state->device = (Arena){m->device_base, m->device_size, GAP};
    state->host = (Arena){m->host_base, m->host_size, host_bytes ? GAP : 0};
    state->memory_size = device_size < range ? device_size : range;
    // As many frames as pages: there is always a free one. Of these tables a small program touches
    // next to nothing, so they are the system's zeros and not calloc's, which may write them all.
    uint64_t pages = state->pages = pages_of(range);
    m->frames = reserve(0, pages * sizeof *m->frames, PROT_READ | PROT_WRITE);
    state->users = reserve(0, pages * sizeof *state->users, PROT_READ | PROT_WRITE);
    state->frame_taken = reserve(0, pages, PROT_READ | PROT_WRITE);
    if (!m->frames || !state->users || !state->frame_taken) abort();
    return m;
}

void global_delete(struct GlobalMemory *m) {
    if (!m) return;
    struct GlobalState *state = m->state;
    for (size_t i = 0; i < state->live_count; i++) drop(state->live[i]);
    for (size_t i = 0; i < REMEMBERED; i++) drop(state->freed[i]);
    free(state->live);
    munmap(state->users, state->pages * sizeof *state->users);
    munmap(state->frame_taken, state->pages);
    munmap(m->frames, state->pages * sizeof *m->frames);
    release_device(m);
    if (m->host_size) munmap((void *)(uintptr_t)m->host_base, m->host_size);
    free(state);
    free(m);
}

// Index of the first live allocation that begins behind `address`.
static size_t first_behind(const struct GlobalState *state, uint64_t address) {
    size_t low = 0, high = state->live_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (state->live[middle]->address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// What an allocation takes of its range, the gap behind it included.
static uint64_t footprint(uint64_t size) {
    if (!size) size = 1;
    return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + GAP;
}

// The first gap between live allocations of the range that is large enough; 0 if there is none.
static uint64_t find_gap(const struct GlobalState *state, const Arena *arena, uint64_t size) {
    uint64_t at = arena->base + GAP;
    for (size_t i = first_behind(state, arena->base); i < state->live_count; i++) {
        const Allocation *a = state->live[i];
        if (a->address - arena->base >= arena->size) break;
        if (a->address - at >= size && a->address >= at) return at;
        at = a->address + footprint(a->size);
    }
    return arena->base + arena->size >= at && arena->base + arena->size - at >= size ? at : 0;
}

// Forgets freed allocations whose addresses are used again.
static void forget(struct GlobalState *state, uint64_t address, uint64_t size) {
    for (size_t i = 0; i < REMEMBERED; i++) {
        Allocation *a = state->freed[i];
        if (!a || a->address >= address + size || a->address + a->size <= address) continue;
        drop(a);
        state->freed[i] = NULL;
    }
}

// Gives whole pages back to the system, which makes them zeros; clears the rest by hand.
static void clear(uint8_t *bytes, uint64_t size) {
    uintptr_t page = sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)bytes, end = begin + size;
    uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
    if (first >= last || madvise((void *)first, last - first, MADV_DONTNEED)) {
        memset(bytes, 0, size);
        return;
    }
    memset(bytes, 0, first - begin);
    memset((void *)last, 0, end - last);
}

// Adds the record of a live allocation.
static bool insert(struct GlobalState *state, uint64_t address, uint64_t size, MemoryKind kind,
                   const char *name) {
    if (state->live_count == state->live_capacity) {
        size_t capacity = state->live_capacity ? 2 * state->live_capacity : 64;
        Allocation **live = realloc(state->live, capacity * sizeof *live);
        if (!live) return false;
        state->live = live;
        state->live_capacity = capacity;
    }
    Allocation *a = calloc(1, sizeof *a);
    if (!a) return false;
    *a = (Allocation){.address = address, .size = size, .kind = kind, .serial = ++state->serial};
    a->name = name ? strdup(name) : NULL;
    size_t at = first_behind(state, address);
    memmove(state->live + at + 1, state->live + at, (state->live_count - at) * sizeof *state->live);
    state->live[at] = a;
    state->live_count++;
    return true;
}

uint64_t global_alloc(struct GlobalMemory *m, uint64_t size, MemoryKind kind, const char *name) {
    struct GlobalState *state = m->state;
    bool on_host = kind == MEMORY_MANAGED || kind == MEMORY_PINNED;
    Arena *arena = on_host ? &state->host : &state->device;
    if (size > arena->size) return 0;
    uint64_t need = footprint(size), takes = on_host ? 0 : need - GAP;
    if (takes > state->memory_size - state->used) return 0;
    // A large one begins with a page, so that its place in its pages is always the same.
    uint64_t fresh = arena->fresh;
    // The first one begins as the first one ever did, and so does the first after all were freed: then
    // whoever asks again for the same has small ones, too, where they stood in their pages before.
    if (kind == MEMORY_DEVICE && state->asked == 0)
        fresh = pages_of(fresh - GAP) * GLOBAL_PAGE + GAP;
    if (size >= GLOBAL_PAGE) fresh = pages_of(fresh) * GLOBAL_PAGE;
    uint64_t address = arena->base + fresh;
    if (fresh <= arena->size && need <= arena->size - fresh) {
        arena->fresh = fresh + need;
    } else {
        address = find_gap(state, arena, need);
        if (!address) return 0;
        forget(state, address, need);
    }
    if (!insert(state, address, size, kind, name)) return 0;
    state->asked += kind == MEMORY_DEVICE;
    state->used += takes;
    if (state->used > state->peak) state->peak = state->used;
    use_pages(m, address, need - GAP, 1);
    // Bytes and marks are zero here: the range is fresh, or was cleared when it was freed.
    if (kind == MEMORY_MODULE || kind == MEMORY_CONSTANT) global_mark_written(m, address, size);
    return address;
}

// Puts an allocation among the remembered ones, in place of the oldest.
static void remember(struct GlobalState *state, Allocation *a) {
    Allocation **slot = &state->freed[state->freed_count++ % REMEMBERED];
    drop(*slot);
    a->freed = true;
    *slot = a;
}

// Takes the allocation that begins at an address out of the live ones; NULL if there is none.
static Allocation *take(struct GlobalState *state, uint64_t address, bool registered) {
    size_t at = first_behind(state, address);
    if (!at || state->live[at - 1]->address != address) return NULL;
    Allocation *a = state->live[at - 1];
    if ((a->kind == MEMORY_REGISTERED) != registered) return NULL;
    memmove(state->live + at - 1, state->live + at, (state->live_count - at) * sizeof *state->live);
    state->live_count--;
    return a;
}

bool global_register(struct GlobalMemory *m, uint64_t address, uint64_t size) {
    struct GlobalState *state = m->state;
    uint64_t end = address + size;
    if (!size || end < address) return false;
    bool in_device = address < m->device_base + m->device_size && end > m->device_base;
    bool in_host = address < m->host_base + m->host_size && end > m->host_base;
    if (in_device || in_host) return false;
    size_t at = first_behind(state, address);
    if (at && address - state->live[at - 1]->address < state->live[at - 1]->size) return false;
    if (at < state->live_count && state->live[at]->address < end) return false;
    forget(state, address, size);
    return insert(state, address, size, MEMORY_REGISTERED, NULL);
}

bool global_unregister(struct GlobalMemory *m, uint64_t address) {
    Allocation *a = take(m->state, address, true);
    if (a) remember(m->state, a);
    return a != NULL;
}

void global_sampled(struct GlobalMemory *m) {
    for (size_t i = 0; i < m->state->live_count; i++) m->state->live[i]->sampled = true;
}

bool global_free(struct GlobalMemory *m, uint64_t address) {
    struct GlobalState *state = m->state;
    Allocation *a = take(state, address, false);
    if (!a) return false;
    uint64_t whole = footprint(a->size) - GAP;
    state->asked -= a->kind == MEMORY_DEVICE;
    clear(global_pointer(m, address), whole);
    uint64_t offset = address - m->device_base;
    if (offset < m->device_size) {
        state->used -= whole;
        use_pages(m, address, whole, -1);
        if (m->written) clear(m->written + offset / 8, whole / 8);
    }
    remember(state, a);
    return true;
}

const Allocation *global_find(struct GlobalMemory *m, uint64_t address) {
    const struct GlobalState *state = m->state;
    size_t at = first_behind(state, address);
    if (!at) return NULL;
    const Allocation *a = state->live[at - 1];
    return address - a->address < a->size ? a : NULL;
}

// How far an address lies from an allocation; 0 inside.
static uint64_t distance(const Allocation *a, uint64_t address) {
    if (address < a->address) return a->address - address;
    return address - a->address < a->size ? 0 : address - (a->address + a->size) + 1;
}

const Allocation *global_nearest(struct GlobalMemory *m, uint64_t address) {
    const struct GlobalState *state = m->state;
    const Allocation *best = NULL;
    size_t at = first_behind(state, address);
    if (at) best = state->live[at - 1];
    if (at < state->live_count) {
        const Allocation *next = state->live[at];
        if (!best || distance(next, address) < distance(best, address)) best = next;
    }
    for (size_t i = 0; i < REMEMBERED; i++) {
        const Allocation *a = state->freed[i];
        if (!a) continue;
        uint64_t far = distance(a, address);
        // Of two freed ones that held the address, the one that was freed last.
        bool later = best && best->freed && !far && a->serial > best->serial;
        if (!best || far < distance(best, address) || (later && !distance(best, address))) best = a;
    }
    return best;
}

void global_usage(struct GlobalMemory *m, uint64_t *used, uint64_t *peak, uint64_t *total) {
    *used = m->state->used;
    *peak = m->state->peak;
    *total = m->state->memory_size;
}

// The bits of `count` bytes from bit `first` of a byte of the map on.
static uint8_t bits(unsigned first, unsigned count) {
    return ((1u << count) - 1) << first;
}

// Kernels mark bytes from several host threads, and eight of them share a byte of the map: so parts
// of a byte are set atomically.
void global_mark_written(struct GlobalMemory *m, uint64_t address, uint64_t size) {
    uint64_t offset = address - m->device_base;
    if (!m->written || offset >= m->device_size) return;
    uint8_t *map = m->written + offset / 8;
    unsigned first = offset % 8;
    if (first) {
        unsigned count = size < 8 - first ? size : 8 - first;
        __atomic_fetch_or(map++, bits(first, count), __ATOMIC_RELAXED);
        size -= count;
    }
    memset(map, 0xff, size / 8);
    if (size % 8) __atomic_fetch_or(map + size / 8, bits(0, size % 8), __ATOMIC_RELAXED);
}

bool global_all_written(const struct GlobalMemory *m, uint64_t address, uint64_t size) {
    uint64_t offset = address - m->device_base;
    if (!m->written || offset >= m->device_size) return true;
    const uint8_t *map = m->written + offset / 8;
    unsigned first = offset % 8;
    if (first && size) {
        unsigned count = size < 8 - first ? size : 8 - first;
        if (~*map++ & bits(first, count)) return false;
        size -= count;
    }
    for (; size >= 64; size -= 64, map += 8) {
        uint64_t word;
        memcpy(&word, map, sizeof word);
        if (word != UINT64_MAX) return false;
    }
    for (; size >= 8; size -= 8, map++) {
        if (*map != 0xff) return false;
    }
    return !size || !(~*map & bits(0, size));
}
