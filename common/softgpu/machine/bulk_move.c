// Moving the bytes of bulk copies (bulk_move.h).
//
// Rows that lie in the tensor as a whole, almost all of them, move as chunks of 16 bytes, whose
// place in shared memory the swizzle changes; nothing is done per element.
#include "softgpu/machine/bulk_move.h"

#include <string.h>

#include "softgpu/check/bits.h"
#include "softgpu/check/check.h"
#include "softgpu/check/findings.h"
#include "softgpu/machine/global.h"

enum { CHUNK = 16, LINE = 128, ROW_MAX = BOX_DIM_MAX * 8, GATHERED = 4 };

// ---- the rows of a box

// The steps i of a dimension, of `count` of `stride` elements from `coordinate` on, that lie
// inside: [first, end).
static void find_inside(int32_t coordinate, uint32_t stride, uint32_t count, uint32_t last,
                        uint32_t *first, uint32_t *end) {
    int64_t before = coordinate < 0 ? (-(int64_t)coordinate + stride - 1) / stride : 0;
    int64_t left = (int64_t)last - coordinate;
    int64_t stop = left < 0 ? 0 : left / stride + 1;
    if (stop > count) stop = count;
    if (before > stop) before = stop;
    *first = (uint32_t)before;
    *end = (uint32_t)stop;
}

void box_begin(Box *box, const BulkMove *move) {
    const TensorMap *map = &move->map;
    *box = (Box){.move = move};
    for (int d = 0; d < TENSOR_RANK_MAX; d++) box->count[d] = 1;
    if (!move->tensor) return;
    for (int d = 0; d < map->rank; d++) box->count[d] = tensor_box_count(map, d);
    if (move->rows) box->count[1] = GATHERED;
    box->element = tensor_element_size(map->type);
    find_inside(move->coordinates[0], 1, box->count[0], map->last[0], &box->first, &box->end);
}

// The coordinate of the current row in dimension d >= 1.
static int64_t row_coordinate(const Box *box, int d) {
    const BulkMove *move = box->move;
    if (move->rows) return move->coordinates[1 + box->at[1]];
    return (int64_t)move->coordinates[d] + (int64_t)box->at[d] * move->map.element_strides[d];
}

// Goes on to the next row.
static void step(Box *box) {
    for (int d = 1; d < TENSOR_RANK_MAX; d++) {
        if (++box->at[d] < box->count[d]) return;
        box->at[d] = 0;
    }
    box->done = true;
}

bool box_next(Box *box, BoxRow *row) {
    const BulkMove *move = box->move;
    if (box->done) return false;
    if (!move->tensor) {
        *row = (BoxRow){.address = move->global, .bytes = move->bytes, .inside = move->bytes};
        box->done = true;
        return true;
    }
    const TensorMap *map = &move->map;
    uint64_t address =
        map->address + (uint64_t)(move->coordinates[0] + (int64_t)box->first) * box->element;
    bool inside = box->end > box->first;
    for (int d = 1; d < map->rank; d++) {
        int64_t x = row_coordinate(box, d);
        inside &= (uint64_t)x <= map->last[d]; // a negative one is larger
        address += (uint64_t)x * map->strides[d - 1];
    }
    *row = (BoxRow){.address = address,
                    .offset = box->offset,
                    .bytes = box->count[0] * box->element,
                    .before = box->first * box->element,
                    .inside = inside ? (box->end - box->first) * box->element : 0};
    box->offset += row->bytes;
    step(box);
    return true;
}

// The same for four rows, which can lie anywhere.
static bool rows_envelope(const BulkMove *move, uint64_t *low, uint64_t *high) {
    Box box;
    BoxRow row;
    bool any = false;
    for (box_begin(&box, move); box_next(&box, &row);) {
        if (!row.inside) continue;
        uint64_t end = row.address + row.inside;
        if (!any || row.address < *low) *low = row.address;
        if (!any || end > *high) *high = end;
        any = true;
    }
    return any;
}

bool box_envelope(const BulkMove *move, uint64_t *low, uint64_t *high) {
    const TensorMap *map = &move->map;
    *low = move->global;
    *high = move->global + move->bytes;
    if (!move->tensor) return move->bytes != 0;
    if (move->rows) return rows_envelope(move, low, high);
    *low = *high = map->address;
    for (int d = 0; d < map->rank; d++) {
        uint32_t step = d ? map->element_strides[d] : 1, first, end;
        uint64_t stride = d ? map->strides[d - 1] : tensor_element_size(map->type);
        int64_t from = move->coordinates[d];
        find_inside(move->coordinates[d], step, tensor_box_count(map, d), map->last[d], &first,
                    &end);
        if (first == end) return false;
        *low += (uint64_t)(from + (int64_t)first * step) * stride;
        *high += (uint64_t)(from + (int64_t)(end - 1) * step) * stride;
    }
    *high += tensor_element_size(map->type);
    return true;
}

uint32_t bulk_footprint(const BulkMove *move) {
    if (!move->tensor || !move->map.swizzle) return move->bytes;
    uint32_t end = move->shared + move->bytes;
    return (end + LINE - 1) / LINE * LINE - move->shared;
}

// ---- swizzled rows

static SwizzleMode mode_of(const BulkMove *move) {
    return move->tensor ? move->map.swizzle : SWIZZLE_NONE;
}

// What is XORed to addresses is the same all along a line of 128 bytes: no mode looks at lower
// bits. So a row is copied in pieces of chunks, with the line's bits.

// Copies `bytes` from plain memory to the shared memory `to` (byte x at to[x]) from address `at`
// on.
static void scatter(uint8_t *to, uint32_t at, const uint8_t *from, uint32_t bytes,
                    SwizzleMode mode) {
    if (mode == SWIZZLE_NONE) {
        memcpy(to + at, from, bytes);
        return;
    }
    for (uint32_t end = at + bytes; at < end;) {
        uint32_t stop = at / LINE * LINE + LINE, bits = swizzle_bits(mode, at);
        if (stop > end) stop = end;
        for (; at % CHUNK == 0 && at + CHUNK <= stop; at += CHUNK, from += CHUNK)
            memcpy(to + (at ^ bits), from, CHUNK);
        for (; at < stop && (at % CHUNK || at + CHUNK > stop); at++) to[at ^ bits] = *from++;
    }
}

// The opposite.
static void gather(uint8_t *to, const uint8_t *from, uint32_t at, uint32_t bytes,
                   SwizzleMode mode) {
    if (mode == SWIZZLE_NONE) {
        memcpy(to, from + at, bytes);
        return;
    }
    for (uint32_t end = at + bytes; at < end;) {
        uint32_t stop = at / LINE * LINE + LINE, bits = swizzle_bits(mode, at);
        if (stop > end) stop = end;
        for (; at % CHUNK == 0 && at + CHUNK <= stop; at += CHUNK, to += CHUNK)
            memcpy(to, from + (at ^ bits), CHUNK);
        for (; at < stop && (at % CHUNK || at + CHUNK > stop); at++) *to++ = from[at ^ bits];
    }
}

// ---- loads

// What stands where the box leaves the tensor: zeros, or the NaN of the type.
static void fill(uint8_t *shared, uint32_t at, uint32_t bytes, const TensorMap *map) {
    if (!bytes) return;
    static const uint64_t nan64 = 0x7fffffffffffffffull;
    uint8_t pattern[ROW_MAX] = {0};
    unsigned element = tensor_element_size(map->type);
    for (uint32_t k = 0; map->fill && k < bytes; k += element) {
        memcpy(pattern + k, &nan64, element); // the low bytes: all ones
        pattern[k + element - 1] = 0x7f;
    }
    scatter(shared, at, pattern, bytes, map->swizzle);
}

// What loads of type TFLOAT32 do to each element: it is rounded to 10 bits of mantissa, ties to
// even; infinities and NaNs stay as they are.
static uint32_t round_tf32(uint32_t x) {
    if ((x & 0x7f800000) == 0x7f800000) return x;
    return (x + 0xfff + (x >> 13 & 1)) & ~0x1fffu;
}

// Loads the part of a row that lies inside of a tensor whose elements are rounded on the way.
static void scatter_rounded(uint8_t *to, uint32_t at, const uint8_t *from, uint32_t bytes,
                            SwizzleMode mode) {
    uint32_t rounded[ROW_MAX / sizeof(uint32_t)];
    memcpy(rounded, from, bytes);
    for (uint32_t k = 0; k < bytes / sizeof *rounded; k++) rounded[k] = round_tf32(rounded[k]);
    scatter(to, at, (const uint8_t *)rounded, bytes, mode);
}

// The marks of a row that has come from global memory: its bytes are written where the source's
// are. When strict, an unwritten source is a finding at the copy, as for cp.async.
static void mark_row(Warp *w, const Insn *i, int lane, const BulkMove *move, const BoxRow *row) {
    const struct GlobalMemory *m = w->sm->gpu->memory;
    uint64_t from = row->address - m->device_base;
    if (!m->written || from >= m->device_size || bits_all(m->written, from, row->inside)) return;
    if (w->sm->gpu->settings->strict) {
        init_global_range(w, i, lane, row->address, row->inside);
        return;
    }
    const Allocation *a = global_find((struct GlobalMemory *)m, row->address);
    if (w->sm->launch->sampled || (a && a->sampled)) return;
    uint32_t at = move->shared + row->offset + row->before;
    for (uint32_t k = 0; k < row->inside; k++)
        if (!bits_any(m->written, from + k, 1))
            move->cta->shared_written[swizzle(mode_of(move), at + k)] = 0;
}

void bulk_load(Warp *w, const Insn *i, int lane, const BulkMove *move) {
    const struct GlobalMemory *m = w->sm->gpu->memory;
    Cta *cta = move->cta;
    SwizzleMode mode = mode_of(move);
    bool rounds = move->tensor && move->map.type == TENSOR_TF32;
    bool marks = cta->shared_written && w->sm->gpu->settings->checks & CHECK_INIT;
    if (marks)
        memset(cta->shared_written + move->shared, move->tensor ? swizzle_mark(mode) : MARK_WRITTEN,
               bulk_footprint(move));
    Box box;
    BoxRow row;
    for (box_begin(&box, move); box_next(&box, &row);) {
        uint32_t at = move->shared + row.offset, behind = row.before + row.inside;
        if (!row.inside) {
            fill(cta->shared, at, row.bytes, &move->map);
            continue;
        }
        const uint8_t *from = global_pointer(m, row.address);
        if (rounds)
            scatter_rounded(cta->shared, at + row.before, from, row.inside, mode);
        else
            scatter(cta->shared, at + row.before, from, row.inside, mode);
        if (row.inside != row.bytes) {
            fill(cta->shared, at, row.before, &move->map);
            fill(cta->shared, at + behind, row.bytes - behind, &move->map);
        }
        if (marks) mark_row(w, i, lane, move, &row);
    }
}

// ---- copies to a peer

void bulk_peer(Warp *w, const Insn *i, int lane, const BulkMove *move) {
    Cta *to = move->cta, *from = move->source;
    if (move->kind == BULK_PEER_REDUCE) {
        if (!init_shared_range(to, move->shared, move->bytes) &&
            !finding_again(w, i, FINDING_UNINITIALISED))
            finding(w, i, lane, FINDING_UNINITIALISED, "Give the destination a value first.",
                    "reduces into %u bytes of shared memory at 0x%x, of which nothing has written "
                    "some",
                    move->bytes, move->shared);
        reduce(move->reduction, move->type, to->shared + move->shared,
               from->shared + move->source_offset, move->bytes);
        return;
    }
    memmove(to->shared + move->shared, from->shared + move->source_offset, move->bytes);
    if (to->shared_written && from->shared_written)
        memmove(to->shared_written + move->shared, from->shared_written + move->source_offset,
                move->bytes);
}

// ---- stores

// Has the part of a row that will be stored been written?
static bool row_written(const BulkMove *move, const BoxRow *row) {
    uint32_t at = move->shared + row->offset + row->before;
    SwizzleMode mode = mode_of(move);
    if (mode == SWIZZLE_NONE && !move->masked) return init_shared_range(move->cta, at, row->inside);
    for (uint32_t done = 0; done < row->inside;) {
        uint32_t piece = CHUNK - (at + done) % CHUNK;
        if (piece > row->inside - done) piece = row->inside - done;
        uint32_t place = swizzle(mode, at + done);
        for (uint32_t k = 0; move->masked && k < piece; k++)
            if (move->byte_mask >> k & 1 && !init_shared_range(move->cta, place + k, 1))
                return false;
        if (!move->masked && !init_shared_range(move->cta, place, piece)) return false;
        done += piece;
    }
    return true;
}

void bulk_check_source(Warp *w, const Insn *i, int lane, const BulkMove *move) {
    if (!(w->sm->gpu->settings->checks & CHECK_INIT) || !move->cta->shared_written) return;
    Box box;
    BoxRow row;
    for (box_begin(&box, move); box_next(&box, &row);) {
        if (!row.inside || row_written(move, &row)) continue;
        if (finding_again(w, i, FINDING_UNINITIALISED)) return;
        finding(w, i, lane, FINDING_UNINITIALISED,
                "Write the whole tile first, or store a smaller box.",
                "stores %u bytes of shared memory at 0x%x (a row %u bytes into the tile), some of "
                "which nothing has written",
                row.inside, move->shared + row.offset + row.before, row.offset);
        return;
    }
}

// Stores the bytes of a row that .cp_mask chooses.
static void store_masked(struct GlobalMemory *m, const BulkMove *move, const uint8_t *image) {
    uint8_t *to = global_pointer(m, move->global);
    bool device = move->global - m->device_base < m->device_size;
    for (uint32_t k = 0; k < move->bytes; k++) {
        if (!(move->byte_mask >> k % CHUNK & 1)) continue;
        to[k] = image[move->shared + k];
        if (m->written && device) bits_set(m->written, move->global + k - m->device_base, 1);
    }
}

void bulk_store(struct GlobalMemory *m, const BulkMove *move, const uint8_t *image) {
    if (move->masked) {
        store_masked(m, move, image);
        return;
    }
    SwizzleMode mode = mode_of(move);
    Box box;
    BoxRow row;
    for (box_begin(&box, move); box_next(&box, &row);) {
        if (!row.inside) continue;
        uint32_t at = move->shared + row.offset + row.before;
        uint8_t *to = global_pointer(m, row.address);
        if (move->kind == BULK_STORE) {
            gather(to, image, at, row.inside, mode);
        } else if (mode == SWIZZLE_NONE) {
            reduce(move->reduction, move->type, to, image + at, row.inside);
        } else {
            uint8_t plain[ROW_MAX];
            gather(plain, image, at, row.inside, mode);
            reduce(move->reduction, move->type, to, plain, row.inside);
        }
        uint64_t offset = row.address - m->device_base;
        if (m->written && offset < m->device_size) bits_set(m->written, offset, row.inside);
    }
}
