// What a wgmma.mma_async is made of, in Insn.extra; its rows of D and then of A, if A comes from
// registers, in Insn.rows. A and B in shared memory are described by the rows Insn.a and .b,
// scale-d is Insn.c.
#ifndef SOFTGPU_EXECUTE_WGMMA_H
#define SOFTGPU_EXECUTE_WGMMA_H

#include "softgpu/execute/descriptor.h"
#include "softgpu/execute/fragment.h"
#include "softgpu/machine/wgmma.h"

typedef struct {
    int n, k;        // as in the name of the shape
    Element a, b, d; // types
    bool a_shared, a_mn_major, b_mn_major;
    bool negate; // one of A and B, not both
    bool saturate;
    uint16_t d_count, a_count; // rows
} WgmmaForm;

static inline const WgmmaForm *wgmma_form(const Insn *i) {
    return i->extra;
}

// The operand that a descriptor names.
static inline SharedOperand wgmma_operand(const WgmmaForm *f, bool is_a, uint64_t descriptor) {
    int element = element_bits(is_a ? f->a : f->b) / 8;
    return (SharedOperand){.descriptor = descriptor_hopper(descriptor),
                           .mn_major = is_a ? f->a_mn_major : f->b_mn_major,
                           .element = (uint8_t)(element ? element : 1),
                           .rows = is_a ? 64 : (uint16_t)f->n,
                           .depth = (uint8_t)(element ? f->k : f->k / 8)};
}

extern Handler wgmma_mma_async;

#endif
