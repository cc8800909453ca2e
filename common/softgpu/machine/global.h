// Device memory: one reserved address range, allocations in it, and which bytes were ever written.
//
// A device address is not a host address: the range that device addresses lie in is reserved but
// never mapped, so host code that dereferences one faults as it would beside a GPU. The bytes live
// at a constant distance. Managed and pinned host memory lies in a second range where both are the
// same. Nothing is committed until it is touched.
#ifndef SOFTGPU_GLOBAL_H
#define SOFTGPU_GLOBAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    MEMORY_DEVICE,     // cudaMalloc
    MEMORY_MANAGED,    // cudaMallocManaged, __managed__
    MEMORY_PINNED,     // cudaMallocHost
    MEMORY_MODULE,     // a __device__ variable
    MEMORY_CONSTANT,   // a __constant__ variable: kernels may not write it
    MEMORY_HEAP,       // malloc in a kernel
    MEMORY_REGISTERED, // the program's own memory, made known with cudaHostRegister
} MemoryKind;

typedef struct Allocation {
    uint64_t address;
    uint64_t size; // as asked for; bytes past it are out of bounds
    MemoryKind kind;
    const char *name; // of a variable, or NULL
    uint64_t serial;  // counts allocations: to name them in findings
    bool freed;       // kept for a while so that a use after free can say so
    bool sampled;     // lived while only some blocks of a grid ran: who knows what is written
} Allocation;

struct GlobalMemory {
    uint64_t device_base, device_size; // addresses
    uint8_t *device_bytes;             // where the byte at device_base lives
    uint64_t host_base, host_size;     // managed and pinned: address == pointer
    uint8_t *written; // one bit per byte of the device range, NULL when not checked
    uint32_t *frames; // which page of the memory chips holds each page of the device range
    // private to global.c
    struct GlobalState *state;
};

// `device_size`: the memory of the modelled GPU. The range of addresses is larger, for the gaps
// between allocations, or smaller where the system does not lend that many. The first call also
// reserves the windows of machine.h. NULL if the system lends nothing at all.
struct GlobalMemory *global_new(uint64_t device_size, bool track_written);
void global_delete(struct GlobalMemory *m);

// Allocates (256-byte aligned, at least 256 bytes of forbidden space between neighbours; the bytes
// count as never written for MEMORY_DEVICE and MEMORY_HEAP, as zeros for the others). 0 when the
// memory of the modelled GPU is used up.
uint64_t global_alloc(struct GlobalMemory *m, uint64_t size, MemoryKind kind, const char *name);
// false if `address` is not the start of a live allocation.
bool global_free(struct GlobalMemory *m, uint64_t address);
// Makes host memory known as memory that kernels can reach, at its own address. false if it overlaps
// what is known already.
bool global_register(struct GlobalMemory *m, uint64_t address, uint64_t size);
// The opposite; the memory stays as it is. false if `address` is no start of registered memory.
bool global_unregister(struct GlobalMemory *m, uint64_t address);
// Only some blocks of a grid have run: the live allocations' unwritten bytes mean nothing any more.
void global_sampled(struct GlobalMemory *m);
// The live allocation that holds `address`, or NULL. Threads may ask at the same time, but not
// while another one allocates or frees.
const Allocation *global_find(struct GlobalMemory *m, uint64_t address);
// For a message: the allocation, live or lately freed, that holds `address`, else the nearest;
// NULL. A freed one that held the address comes before a live one that does not.
const Allocation *global_nearest(struct GlobalMemory *m, uint64_t address);
void global_usage(struct GlobalMemory *m, uint64_t *used, uint64_t *peak, uint64_t *total);

// The host pointer to a device or managed/pinned address; no check.
static inline uint8_t *global_pointer(const struct GlobalMemory *m, uint64_t address) {
    uint64_t offset = address - m->device_base;
    return offset < m->device_size ? m->device_bytes + offset : (uint8_t *)(uintptr_t)address;
}

// Where in the memory chips the byte `offset` of the device range lies: what caches go by. Addresses
// of freed memory aren't used again, its pages are; so a program that frees what it allocated meets
// the same cache sets the next time.
#define GLOBAL_PAGE 65536u
static inline uint64_t global_physical(const struct GlobalMemory *m, uint64_t offset) {
    return (uint64_t)m->frames[offset / GLOBAL_PAGE] * GLOBAL_PAGE + offset % GLOBAL_PAGE;
}

// Marks bytes as written (memcpy and memset from the host, stores); asks whether all were.
void global_mark_written(struct GlobalMemory *m, uint64_t address, uint64_t size);
bool global_all_written(const struct GlobalMemory *m, uint64_t address, uint64_t size);

#endif
