// Tensor memory (TMEM) of an SM of sm_100 (PTX ISA 9.7.16.2): 128 lanes of 512 columns of 32 bits,
// beside registers and shared memory. An address is lane << 16 | column.
//
// A warp of a CTA allocates columns, all 128 lanes of them, in units of 32: a power of two from 32
// to 512. While too few are free the warp is blocked: another CTA of the SM may hold them. With
// .cta_group::2 a warp of each CTA of a pair (ranks that differ in bit 0) allocates, both get the
// same columns of their SMs, and each waits for the other. All of it must be freed before a CTA
// ends. What a fresh allocation holds is undefined: no cell of it counts as written.
//
// Invariant: owner[u] is the CTA that has unit u, and the same bit is set in its Tcgen05.units.
#ifndef SOFTGPU_TMEM_H
#define SOFTGPU_TMEM_H

#include "softgpu/machine/machine.h"

enum { TMEM_LANES = 128, TMEM_COLUMNS = 512, TMEM_UNIT = 32, TMEM_UNITS = 16 };

typedef struct Tmem {
    uint32_t cell[TMEM_COLUMNS][TMEM_LANES];
    uint32_t written[TMEM_COLUMNS][TMEM_LANES / 32]; // a bit for each lane
    Cta *owner[TMEM_UNITS];
    uint8_t length[TMEM_UNITS]; // units of the allocation that begins here, 0: none does
    uint64_t busy[4];           // timed: until when loads and stores keep each quarter's port
    struct TmemShadow *shadow;  // of the race check (check/tmem_race.h), or NULL
} Tmem;

// The SM's, made at the first use.
Tmem *tmem_of(Sm *sm);
void tmem_free(Sm *sm);

// A GPU looks at 7 bits of the lane, and programs for pairs of CTAs count on it: the second one's
// are lanes 128 to 255 to them.
static inline uint32_t tmem_lane(uint32_t address) {
    return address >> 16 & (TMEM_LANES - 1);
}
static inline uint32_t tmem_column(uint32_t address) {
    return address & 0xffff;
}

// Allocates `columns` for the warp's CTA (of both CTAs of the pair if `group` is 2). FLOW_NEXT and
// *column, or FLOW_RETRY when the running group was blocked, or FLOW_FAULT after a finding.
Flow tmem_allocate(Warp *w, const Insn *i, int group, uint32_t columns, uint32_t *column);
// Frees an allocation. False after a finding: there is none of so many columns at this address.
bool tmem_release(Warp *w, const Insn *i, int group, uint32_t address, uint32_t columns);
// The CTA ends: what it has not freed is a finding, if `report`, and is freed.
void tmem_cta_end(Cta *cta, bool report);

// Does the CTA own columns [column, column + columns)?
bool tmem_owned(const Cta *cta, uint32_t column, uint32_t columns);
// Free columns of the SM, for reports.
uint32_t tmem_free_columns(const Sm *sm);

#endif
