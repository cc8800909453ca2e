// Matrix descriptors: their fields and the addresses that they stand for (descriptor.h).
#include "softgpu/execute/descriptor.h"

#include <stddef.h>

enum { FIELD = 0x3fff }; // addresses and offsets: 14 bits, in units of 16 bytes

Descriptor descriptor_hopper(uint64_t bits) {
    static const uint8_t modes[4] = {SWIZZLE_NONE, SWIZZLE_128B, SWIZZLE_64B, SWIZZLE_32B};
    const uint64_t used =
        (uint64_t)FIELD | (uint64_t)FIELD << 16 | (uint64_t)FIELD << 32 | 7ull << 49 | 3ull << 62;
    return (Descriptor){.start = (uint32_t)(bits & FIELD) * CHUNK,
                        .leading = (uint32_t)(bits >> 16 & FIELD) * CHUNK,
                        .stride = (uint32_t)(bits >> 32 & FIELD) * CHUNK,
                        .base_offset = bits >> 49 & 7,
                        .swizzle = modes[bits >> 62],
                        .reserved = bits & ~used};
}

Descriptor descriptor_blackwell(uint64_t bits) {
    static const uint8_t modes[8] = {
        [1] = SWIZZLE_128B_ATOM_32B, [2] = SWIZZLE_128B, [4] = SWIZZLE_64B, [6] = SWIZZLE_32B};
    const uint64_t used = (uint64_t)FIELD | (uint64_t)FIELD << 16 | (uint64_t)FIELD << 32 |
                          63ull << 46 | 1ull << 52 | 7ull << 61;
    return (Descriptor){.start = (uint32_t)(bits & FIELD) * CHUNK,
                        .leading = (uint32_t)(bits >> 16 & FIELD) * CHUNK,
                        .stride = (uint32_t)(bits >> 32 & FIELD) * CHUNK,
                        .base_offset = bits >> 49 & 7,
                        .swizzle = modes[bits >> 61],
                        .reserved = bits & ~used};
}

// Chunks of a swizzled line: the modes are numbered 0 to 3, and 4 for atoms of 32B.
static inline unsigned line_chunks(const Descriptor *d) {
    return d->swizzle == SWIZZLE_128B_ATOM_32B ? 8 : 1u << d->swizzle;
}
// Values of the outer dimension behind which the stride byte offset counts.
static inline unsigned line_group(const Descriptor *d) {
    return d->swizzle == SWIZZLE_128B_ATOM_32B ? 4 : 8;
}

const char *descriptor_fault(const SharedOperand *o) {
    const Descriptor *d = &o->descriptor;
    if (d->reserved) return "bits that must be zero are set (14-15, 30-31, 46-48 or 52-61)";
    if (d->base_offset)
        return "the base offset (bits 49-51) isn't 0; align the tile to its swizzle's pattern "
               "(1024, 512 or 256 bytes for 128B, 64B or 32B) and leave it 0";
    return NULL;
}

bool descriptor_starts_inside(const SharedOperand *o) {
    const Descriptor *d = &o->descriptor;
    return d->swizzle && d->start & (swizzle_period((SwizzleMode)d->swizzle) - 1) & ~127u;
}

// The address of the chunk that element (r, k) lies in.
static inline uint32_t chunk_address(const SharedOperand *o, unsigned r, unsigned k) {
    const Descriptor *d = &o->descriptor;
    unsigned t = CHUNK / o->element, w = line_chunks(d), line = CHUNK * w, q = line_group(d);
    uint32_t at = d->start;
    if (o->mn_major && d->swizzle)
        at += r / t % w * CHUNK + r / t / w * d->leading + k % q * line + k / q * d->stride;
    else if (o->mn_major)
        at += r / t * d->stride + k % 8 * CHUNK + k / 8 * d->leading;
    else
        at += r % 8 * line + r / 8 * d->stride + k / t * (d->swizzle ? CHUNK : d->leading);
    return swizzle((SwizzleMode)d->swizzle, at);
}

uint32_t descriptor_element(const SharedOperand *o, unsigned r, unsigned k) {
    unsigned t = CHUNK / o->element, inside = o->mn_major ? r % t : k % t;
    return chunk_address(o, r, k) + inside * o->element;
}

void descriptor_chunks(const SharedOperand *o, Chunks *chunks) {
    const Descriptor *d = &o->descriptor;
    unsigned t = CHUNK / o->element, w = line_chunks(d), line = CHUNK * w, q = line_group(d);
    unsigned outer = o->mn_major ? o->depth : o->rows;
    unsigned inner = (o->mn_major ? o->rows : o->depth) / t;
    // From one to the next eight along the outer dimension, and along the inner one within a line
    // and from line to line.
    uint32_t eight = o->mn_major && !d->swizzle ? d->leading : d->stride;
    uint32_t step = d->swizzle ? CHUNK : o->mn_major ? d->stride : d->leading;
    uint32_t jump = d->swizzle && o->mn_major ? d->leading : w * step;
    uint32_t along[CHUNKS_MAX], *at = chunks->at;
    for (unsigned y = 0; y < inner; y++) along[y] = y % w * step + y / w * jump;
    for (unsigned x = 0; x < outer; x++) {
        uint32_t begin = d->start + x % q * line + x / q * eight;
        for (unsigned y = 0; y < inner; y++) *at++ = begin + along[y];
    }
    chunks->count = (int)(at - chunks->at);
    uint32_t low = UINT32_MAX, high = 0, mask = swizzle_bits((SwizzleMode)d->swizzle, UINT32_MAX);
    uint32_t shift = d->swizzle == SWIZZLE_128B_ATOM_32B ? 2 : 3;
    for (int k = 0; k < chunks->count; k++) {
        uint32_t a = chunks->at[k];
        a ^= a >> shift & mask;
        low = a < low ? a : low;
        high = a > high ? a : high;
        chunks->at[k] = a;
    }
    chunks->low = low;
    chunks->high = high + CHUNK;
}

bool descriptor_within(const SharedOperand *o, uint32_t low, uint32_t high) {
    const Descriptor *d = &o->descriptor;
    unsigned t = CHUNK / o->element, w = line_chunks(d), q = line_group(d);
    if (d->start < low) return false;
    // All offsets grow along both dimensions; the swizzle stays within 128 bytes.
    uint64_t last = d->start, line = CHUNK * w;
    unsigned r = o->rows - 1u, k = o->depth - 1u;
    if (o->mn_major && d->swizzle)
        last +=
            (w - 1) * CHUNK + r / t / w * (uint64_t)d->leading + (q - 1) * line + k / q * d->stride;
    else if (o->mn_major)
        last += r / t * (uint64_t)d->stride + 7 * CHUNK + k / 8 * (uint64_t)d->leading;
    else
        last += 7 * line + r / 8 * (uint64_t)d->stride +
                k / t * (uint64_t)(d->swizzle ? CHUNK : d->leading);
    if ((last | 127) < high) return true;
    Chunks chunks;
    descriptor_chunks(o, &chunks);
    return chunks.low >= low && chunks.high <= high;
}
