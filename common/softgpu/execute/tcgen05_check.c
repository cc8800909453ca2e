// Operands of tcgen05 instructions: what all lanes must agree on, which CTAs are meant, which
// tensor memory a CTA may touch, which descriptors are none.
#include <string.h>

#include "softgpu/check/check.h"
#include "softgpu/check/findings.h"
#include "softgpu/execute/tcgen05.h"
#include "softgpu/machine/cluster.h"

bool tcgen05_uniform(Warp *w, const Insn *i, uint32_t all, const uint32_t *lanes, const char *what,
                     uint32_t *value) {
    uint32_t differ = 0;
    *value = lanes[__builtin_ctz(all)];
    for (int l = 0; l < WARP_SIZE; l++) differ |= all >> l & 1 ? lanes[l] ^ *value : 0;
    if (!differ || !(w->sm->gpu->settings->checks & CHECK_SYNC)) return true;
    finding(w, i, -1, FINDING_DIVERGENT,
            "Make it from what all threads of the warp share, not from the thread's index.",
            "the %s differs between the lanes of the warp", what);
    return false;
}

bool tcgen05_columns(Warp *w, const Insn *i, int lane, const Cta *cta, uint32_t address,
                     uint32_t columns, const char *what) {
    uint32_t column = tmem_column(address);
    if (address >> 16 >= TMEM_LANES && !finding_again(w, i, FINDING_LINT))
        finding(w, i, lane, FINDING_LINT, "Leave the block's rank out of the address.",
                "addresses lane %u of tensor memory, which has 128 in each block: a GPU takes "
                "lane %u",
                address >> 16, tmem_lane(address));
    if (tmem_owned(cta, column, columns)) return true;
    finding(w, i, lane, FINDING_OUT_OF_BOUNDS,
            "Address tensor memory from what tcgen05.alloc wrote on, and allocate what is needed.",
            "%s columns %u to %u of tensor memory (address 0x%08x), which %s has not allocated",
            what, column, column + columns - 1, address,
            cta == w->cta ? "the block" : "the pair's other block");
    return false;
}

// What is wrong with a descriptor as such, or NULL.
static const char *fault(const SharedOperand *o, uint64_t bits) {
    const Descriptor *d = &o->descriptor;
    if ((bits >> 46 & 7) != 1)
        return "bits 46-48 are not 0b001, as tcgen05's descriptors have them (wgmma's have zeros)";
    if (bits >> 52 & 1) return "bit 52 asks for an absolute LBO, which sm_100 doesn't have";
    if (bits >> 61 == 3 || bits >> 61 == 5 || bits >> 61 == 7)
        return "bits 61-63 are no swizzle: 0 none, 1 128B with atoms of 32B, 2 128B, 4 64B, 6 32B";
    if (d->reserved) return "bits that must be zero are set (14-15, 30-31 or 53-60)";
    if (d->base_offset)
        return "the base offset (bits 49-51) isn't 0; align the tile to its swizzle's pattern "
               "(1024, 512 or 256 bytes for 128B, 64B or 32B) and leave it 0";
    bool atoms = d->swizzle == SWIZZLE_128B_ATOM_32B;
    if (atoms && !o->mn_major) return "128B with atoms of 32B is for MN-major operands only";
    if (!atoms && o->mn_major && o->element == 4)
        return "MN-major tf32 has one swizzle only, 128B with atoms of 32B (bits 61-63 = 1)";
    return NULL;
}

bool tcgen05_descriptor(Warp *w, const Insn *i, int lane, const Cta *cta, const SharedOperand *o,
                        uint64_t bits, const char *what) {
    const char *why = fault(o, bits);
    if (why) {
        finding(w, i, lane, FINDING_MISALIGNED, NULL, "the descriptor of %s, 0x%016llx: %s", what,
                (unsigned long long)bits, why);
        return false;
    }
    bool strict = w->sm->gpu->settings->strict;
    if (descriptor_starts_inside(o) && (strict || !finding_again(w, i, FINDING_LINT))) {
        finding(w, i, lane, strict ? FINDING_MISALIGNED : FINDING_LINT,
                "Align the tile to 1024, 512 or 256 bytes for 128B, 64B or 32B.",
                "the descriptor of %s, 0x%016llx: the start address lies in the middle of the "
                "swizzle's pattern",
                what, (unsigned long long)bits);
        if (strict) return false;
    }
    if (descriptor_within(o, SHARED_RESERVED, cta->shared_size)) return true;
    Chunks chunks;
    descriptor_chunks(o, &chunks);
    const Descriptor *d = &o->descriptor;
    finding(w, i, lane, FINDING_OUT_OF_BOUNDS,
            "Offsets in descriptors are bytes / 16; see which of LBO and SBO goes where for this "
            "layout.",
            "%s reaches over shared memory 0x%x to 0x%x, beyond the block's 0x%x to 0x%x: its "
            "descriptor says %s-major, start 0x%x, LBO %u bytes, SBO %u bytes",
            what, chunks.low, chunks.high - 1, SHARED_RESERVED, cta->shared_size - 1,
            o->mn_major ? "MN" : "K", d->start, d->leading, d->stride);
    return false;
}

void tcgen05_shared_written(const TensorOp *op, const Cta *cta, const SharedOperand *o,
                            const Chunks *chunks, size_t used, const char *what) {
    const uint8_t *written = cta->shared_written;
    Warp *w = op->warp;
    if (!written || !(w->sm->gpu->settings->checks & CHECK_INIT)) return;
    uint8_t own = swizzle_mark(o->descriptor.swizzle);
    for (int k = 0; k < chunks->count; k++) {
        const uint8_t *marks = written + chunks->at[k];
        const uint8_t *zero = memchr(marks, 0, used);
        if (zero) {
            if (finding_again(w, op->insn, FINDING_UNINITIALISED)) return;
            finding(w, op->insn, op->lane, FINDING_UNINITIALISED,
                    "Write the whole tile first, zeros where it has no numbers; if it is written, "
                    "look at the descriptor: bytes / 16, LBO and SBO in their places, the swizzle "
                    "as the writer's.",
                    "reads %s from shared memory at 0x%x%s, which nothing has written; the "
                    "descriptor says start 0x%x, LBO %u bytes, SBO %u bytes",
                    what, (uint32_t)(zero - written),
                    cta == w->cta ? "" : " of the pair's other block", o->descriptor.start,
                    o->descriptor.leading, o->descriptor.stride);
            return;
        }
        if (*marks > MARK_WRITTEN && *marks != own) {
            if (finding_again(w, op->insn, FINDING_LINT)) return;
            finding(w, op->insn, op->lane, FINDING_LINT,
                    "Give the tensor map and the descriptor (bits 61-63) the same swizzle.",
                    "reads %s from shared memory at 0x%x, where the tensor copy that wrote it had "
                    "another swizzle: the 16-byte pieces of the tile lie in other places",
                    what, chunks->at[k]);
            return;
        }
    }
}

bool tcgen05_ctas(Warp *w, const Insn *i, int group, Cta *ctas[2]) {
    if (!tcgen05_use_group(w, i, group)) return false;
    ctas[0] = ctas[1] = w->cta;
    if (group == 1) return true;
    ctas[1] = tcgen05_peer(w, i);
    if (!ctas[1]) return false;
    if (!ctas[1]->ended) return true;
    finding(w, i, -1, FINDING_USE_AFTER_FREE,
            "Let the blocks of the cluster end together (barrier.cluster).",
            "works on both blocks of the pair, of which the other one has ended");
    return false;
}

void tcgen05_op_ctas(const TensorOp *op, int group, Cta *ctas[2]) {
    Cta *own = op->warp->cta;
    for (uint32_t k = 0; k < 2; k++)
        ctas[k] = group == 1 ? own : own->cluster->ctas[(own->cluster_rank & ~1u) + k];
}

const char *tcgen05_address(Lowering *l, const PtxOperand *o, TensorAddress *a) {
    Insn one = {.a = ROW_NONE};
    const char *why = address_operand(l, o, &one);
    if (!why && one.flags & INSN_WIDE_BASE) why = "addresses of tensor memory have 32 bits";
    *a = (TensorAddress){one.a, (uint32_t)one.imm};
    return why;
}

uint32_t tcgen05_address_at(const Warp *w, const TensorAddress *a, int lane) {
    return ((const Lane32 *)row(w, a->row))[lane] + a->offset;
}
