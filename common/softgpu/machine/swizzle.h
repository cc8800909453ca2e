// Shared-memory swizzles (PTX ISA 5.5.3 and 9.7.14.5.1): which address bits are exchanged with
// which. They work on the absolute shared address (rank bits aside), not on an offset in the tile,
// so a tile that doesn't start on a multiple of its pattern sees it shifted.
//
//   mode             bits changed     by bits    repeats every
//   32B              4                7          256 bytes
//   64B              4-5              7-8        512
//   128B             4-6              7-9        1024
//   128B, atom 32B   5-6              7-8        512
//   128B, atom 64B   6                7          256
//
// Every mode is its own inverse, and keeps 16-byte chunks together.
#ifndef SOFTGPU_SWIZZLE_H
#define SOFTGPU_SWIZZLE_H

#include <stdint.h>

// The numbers are those of CUtensorMapSwizzle.
typedef enum {
    SWIZZLE_NONE,
    SWIZZLE_32B,
    SWIZZLE_64B,
    SWIZZLE_128B,
    SWIZZLE_128B_ATOM_32B,
    SWIZZLE_128B_ATOM_32B_FLIP_8B, // not modelled: see swizzle_known
    SWIZZLE_128B_ATOM_64B,
    SWIZZLE_MODES
} SwizzleMode;

// What is XORed to the address.
static inline uint32_t swizzle_bits(SwizzleMode mode, uint32_t address) {
    switch (mode) {
    case SWIZZLE_32B: return address >> 3 & 0x10;
    case SWIZZLE_64B: return address >> 3 & 0x30;
    case SWIZZLE_128B: return address >> 3 & 0x70;
    case SWIZZLE_128B_ATOM_32B: return address >> 2 & 0x60;
    case SWIZZLE_128B_ATOM_64B: return address >> 1 & 0x40;
    default: return 0;
    }
}

// Where the byte at `address` of the plain layout lies.
static inline uint32_t swizzle(SwizzleMode mode, uint32_t address) {
    return address ^ swizzle_bits(mode, address);
}

// Bytes of a row that the pattern spans: the longest inner dimension of a box.
static inline uint32_t swizzle_span(SwizzleMode mode) {
    static const uint16_t span[SWIZZLE_MODES] = {0, 32, 64, 128, 128, 128, 128};
    return span[mode];
}

// Bytes after which the pattern repeats: the alignment at which a tile begins with it.
static inline uint32_t swizzle_period(SwizzleMode mode) {
    static const uint16_t period[SWIZZLE_MODES] = {16, 256, 512, 1024, 512, 512, 256};
    return period[mode];
}

// Which half the FLIP_8B mode exchanges on which lines is documented nowhere that can be read.
static inline int swizzle_known(SwizzleMode mode) {
    return (unsigned)mode < SWIZZLE_MODES && mode != SWIZZLE_128B_ATOM_32B_FLIP_8B;
}

#endif
