// Matrix descriptors: where the elements of an operand of wgmma (and tcgen05.mma) lie in shared
// memory (PTX ISA 9.7.15.5.1).
//
// A row r is a row of A or a column of B; k runs along the summed dimension. The unit of every
// layout is a chunk of 16 bytes, T elements. With W = 2, 4, 8 chunks in a swizzled line (32, 64,
// 128 bytes) and LBO, SBO the leading and stride byte offsets, chunks lie at `start` +
//
//     K-major, swizzled     (r % 8) 16 W + (r / 8) SBO + (k / T) 16
//     K-major, plain        (r % 8) 16   + (r / 8) SBO + (k / T) LBO
//     MN-major, swizzled    (r / T % W) 16 + (r / T / W) LBO + (k % 8) 16 W + (k / 8) SBO
//     MN-major, plain       (r / T) SBO + (k % 8) 16 + (k / 8) LBO
//     128B, atoms of 32B    (MN-major only) as swizzled with W = 8, but 4 k where there are 8
//
// and the swizzle then XORs bits of that absolute address, so that TMA and wgmma agree without
// knowing where a tile begins. K-major chunks hold T values of k of one row, MN-major ones T rows
// at one k.
#ifndef SOFTGPU_DESCRIPTOR_H
#define SOFTGPU_DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "softgpu/machine/swizzle.h"

enum { CHUNK = 16, CHUNKS_MAX = 1024 }; // bytes; chunks of an operand: 256 rows of 64 bytes

typedef struct {
    uint32_t start;           // byte address in shared memory, without rank bits
    uint32_t leading, stride; // LBO and SBO, bytes
    uint8_t base_offset;
    uint8_t swizzle;   // SwizzleMode: none, 32B, 64B, 128B, or 128B with atoms of 32B
    uint64_t reserved; // bits that must be zero and aren't
} Descriptor;

// The fields of a descriptor of sm_90's wgmma.
Descriptor descriptor_hopper(uint64_t bits);
// Of one of sm_100's tcgen05 (PTX ISA 9.7.16.4.1). Bits 46-48, 52 and unknown codes of the swizzle
// (bits 61-63) are the caller's to check.
Descriptor descriptor_blackwell(uint64_t bits);

// The part of an operand that one instruction reads.
typedef struct {
    Descriptor descriptor;
    bool mn_major;
    uint8_t element; // bytes; 1 also for single bits, eight of which count as one
    uint16_t rows;   // of A, or columns of B: a multiple of 8
    uint8_t depth;   // k, in elements
} SharedOperand;

// Why this descriptor can't be told what it means, as "the … " of a sentence, or NULL: reserved
// bits, a base offset. PTX's wording leaves open what those do.
const char *descriptor_fault(const SharedOperand *o);
// Does it start in the middle of the swizzle's pattern? PTX asks for a base offset then; CUTLASS
// and others leave it 0 behind TMA's swizzle, which looks at addresses, too, and are right.
bool descriptor_starts_inside(const SharedOperand *o);

// The byte address of an element.
uint32_t descriptor_element(const SharedOperand *o, unsigned r, unsigned k);

// The addresses of all chunks that the instruction reads, in this order, and their bounds:
//
//     K-major     [r][k / T]
//     MN-major    [k][r / T]
//
// Returns how many there are, at most CHUNKS_MAX.
typedef struct {
    uint32_t at[CHUNKS_MAX];
    int count;
    uint32_t low, high; // all lie in [low, high)
} Chunks;
void descriptor_chunks(const SharedOperand *o, Chunks *chunks);
// Do all of them lie in [low, high)? Mostly answered without working them out.
bool descriptor_within(const SharedOperand *o, uint32_t low, uint32_t high);

#endif
