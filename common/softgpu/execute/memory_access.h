// How a warp's addresses become places in the host's memory: shared by every handler that reads or
// writes the modelled memories.
//
// place_…() does all that an access needs beside moving the data: bounds and alignment (check/),
// the record of written bytes (the init check), the traffic (timing/), and the host address of
// each lane. It answers false after recording a finding that ends the launch.
#ifndef SOFTGPU_MEMORY_ACCESS_H
#define SOFTGPU_MEMORY_ACCESS_H

#include "softgpu/check/race_global.h"
#include "softgpu/execute/form.h"
#include "softgpu/machine/global.h"
#include "softgpu/timing/traffic.h"

typedef enum { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC } AccessKind;

// How the lanes' places lie.
typedef enum {
    PLACED_SCATTERED,   // at[lane], for the lanes of the mask
    PLACED_CONSECUTIVE, // lane l at `base + l * bytes`
    PLACED_UNIFORM,     // all lanes at `base`
} Pattern;

typedef struct {
    Pattern pattern;
    uint8_t *base;          // CONSECUTIVE, UNIFORM
    uint8_t *at[WARP_SIZE]; // SCATTERED; see places_spread
} Places;

// What an access is, apart from its addresses.
typedef struct {
    unsigned bytes; // per lane, all elements of a vector: a power of two up to 32
    AccessKind kind;
    bool bypass_l1;  // must not be served by the L1 cache
    bool no_traffic; // constants: a cache of their own
    bool cluster;    // shared memory of the cluster's other CTAs may be meant too
    bool strong;     // volatile, relaxed and above; atomics always are
    bool together;   // a tile's: which lane accesses which bytes of it is left open
    bool narrow;     // strong, and of a scope that no other block is in: .cta, .cluster
    bool updates;    // an atomic, even if only its write counts
    bool copies;     // a cp.async's read, which lasts until it is waited for
    bool blind;      // an atomic whose result nobody gets: red
    uint8_t element; // strong: bytes of a vector's elements, which are accesses of their own
    uint8_t order;   // RaceOrder
} Access;

// Access to global memory (device, managed and pinned) at these addresses.
bool place_global(Warp *w, const Insn *i, const uint64_t address[WARP_SIZE], uint32_t mask,
                  Access access, Places *places);
// To shared memory, addresses with rank bits (machine.h, SHARED_WINDOW).
bool place_shared(Warp *w, const Insn *i, const uint32_t address[WARP_SIZE], uint32_t mask,
                  Access access, Places *places);
// To the threads' local memory, byte offsets.
bool place_local(Warp *w, const Insn *i, const uint32_t offset[WARP_SIZE], uint32_t mask,
                 Access access, Places *places);
// To the kernel's parameter block, byte offsets; reads only.
bool place_param(Warp *w, const Insn *i, const uint64_t offset[WARP_SIZE], uint32_t mask,
                 Access access, Places *places);

// Turns any pattern into at[lane].
void places_spread(Places *places, unsigned bytes);

// The lanes' addresses: base row + offset. A missing base row counts as 0.
void wide_addresses(const Warp *w, const Insn *i, uint64_t address[WARP_SIZE]);
// The same for 32-bit addresses (shared, local). false, with a finding, when a 64-bit base does not
// fit: it is an address of another space.
bool narrow_addresses(Warp *w, const Insn *i, uint32_t mask, uint32_t address[WARP_SIZE]);

// The memory of the CTA that a shared address with rank bits designates, and the address without
// them. NULL when there is no such CTA.
Cta *resolve_shared(const Warp *w, uint32_t address, uint32_t *offset);

// Lanes of `mask` whose generic address lies in each space.
typedef struct {
    uint32_t global, shared, local, param;
} SpaceMasks;
SpaceMasks generic_spaces(const uint64_t address[WARP_SIZE], uint32_t mask);
// Generic addresses in a window as addresses of the space itself.
void window_addresses(const uint64_t address[WARP_SIZE], uint32_t narrow[WARP_SIZE]);

// The host address of `size` bytes at one lane's generic address, NULL if they can't be read.
// Nothing is recorded. For the runtime's own reading: format strings, messages.
const uint8_t *peek_generic(const Warp *w, int lane, uint64_t address, uint64_t size);

#endif
