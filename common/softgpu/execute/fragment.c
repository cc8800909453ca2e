// Layouts of fragments, and what lowering and running matrix instructions have in common.
#include "softgpu/execute/fragment.h"

#include <stdio.h>

#include "softgpu/check/check.h"

bool shape_named(const char *name, MatrixShape *shape) {
    int end = 0;
    return sscanf(name, "m%dn%dk%d%n", &shape->m, &shape->n, &shape->k, &end) == 3 && !name[end];
}

Place fragment_place(Role role, MatrixShape s, Element e, int reg, int lane) {
    int g = lane / 4, t = lane % 4, packed = elements_packed(e), halves = row_halves(s);
    if (role == ROLE_A) {
        int block = fragment_registers(ROLE_A, s, e) / row_blocks(s), r = reg % block;
        return (Place){16 * (reg / block) + 8 * (r % halves) + g, packed * (4 * (r / halves) + t)};
    }
    if (role == ROLE_B) {
        int block = fragment_registers(ROLE_B, s, e) / column_blocks(s);
        return (Place){packed * (4 * (reg % block) + t), 8 * (reg / block) + g};
    }
    // Registers of f16 hold two neighbours in a row, others one of them.
    int pair = 2 / packed, block = halves * pair, r = reg % block;
    int row = 16 * (reg / block / column_blocks(s)) + 8 * (r / pair) + g;
    return (Place){row, 8 * (reg / block % column_blocks(s)) + 2 * t + r % pair};
}

const char *fragment_rows(Lowering *l, const PtxOperand *o, int count, int width, bool destination,
                          Row *rows) {
    const PtxOperand *elements = o->kind == OPERAND_VECTOR ? o->elements : o;
    if ((o->kind == OPERAND_VECTOR ? o->count : 1) != count)
        return "a fragment has not as many registers as its shape and type ask for";
    for (int k = 0; k < count; k++) {
        const char *why = NULL;
        rows[k] = destination ? destination_row(l, &elements[k], width, &why)
                              : source_row(l, &elements[k], width, &why);
        if (rows[k] == ROW_NONE) return why;
    }
    return NULL;
}

Flow gather_warp(Warp *w, const Insn *i, uint32_t mask, uint32_t *all) {
    if (!warp_gather(w, i, mask, FULL_MASK, all)) return FLOW_RETRY;
    if (*all == FULL_MASK || !(w->sm->gpu->settings->checks & CHECK_SYNC)) return FLOW_NEXT;
    finding(w, i, -1, FINDING_DIVERGENT,
            "let whole warps execute it: a block size that is a multiple of 32, and no lane that "
            "has returned",
            "%s needs all 32 lanes of the warp, but only the lanes 0x%08x are there",
            w->kernel->texts[i->index], *all);
    return FLOW_FAULT;
}
