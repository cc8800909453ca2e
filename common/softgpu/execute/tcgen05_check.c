// Operands of tcgen05 instructions: what all lanes must agree on, which tensor memory a CTA may
// touch, which descriptors are none.
#include "softgpu/check/findings.h"
#include "softgpu/execute/tcgen05.h"

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
