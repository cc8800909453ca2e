// What a bulk copy moves, and the moving: boxes of tensors row by row (PTX ISA 5.5.1, tiled mode).
//
// With c the coordinates, i the place in the box, s the element strides and e the element's size:
//
//     element      x[d] = c[d] + i[d] s[d], inside the tensor if 0 <= x[d] < dim[d] for all d
//     global       address + x[0] e + sum over d >= 1 of x[d] stride[d - 1]       (modulo 2^64)
//     shared       swizzle(start + e (i[0] + n[0] (i[1] + n[1] (…)))), n[d] = tensor_box_count
//
// Elements outside of the tensor come as zeros or NaNs; they are not stored. Only those inside have
// to lie in memory, so a map's address may lie anywhere.
#ifndef SOFTGPU_BULK_MOVE_H
#define SOFTGPU_BULK_MOVE_H

#include "softgpu/machine/machine.h"
#include "softgpu/machine/reduction.h"
#include "softgpu/machine/tensor_map.h"

typedef enum {
    BULK_LOAD,        // global → shared, signals an mbarrier
    BULK_STORE,       // shared → global, in a group
    BULK_REDUCE,      // likewise, combined with what is there
    BULK_PEER,        // shared → shared of a CTA of the cluster, signals an mbarrier there
    BULK_PEER_REDUCE, // likewise, combined with what is there
    BULK_PREFETCH,    // global → L2
} BulkKind;

typedef struct {
    BulkKind kind;
    bool tensor; // a box of `map`; else `bytes` bytes at `global`
    bool rows;   // tile::gather4, tile::scatter4: four rows, coordinates column, row, row, row, row
    bool masked; // .cp_mask: of each 16 bytes only those of `byte_mask` are written
    uint8_t reduction, type; // Reduction; TensorType
    uint16_t byte_mask;
    uint32_t bytes;   // of the shared memory at `shared`: those of the whole box
    uint32_t shared;  // without rank bits
    Cta *cta;         // where `shared` is: the destination, or, of stores, the source
    Cta *barrier_cta; // the mbarrier to be signalled, NULL if there is none
    uint32_t barrier;
    Cta *source; // BULK_PEER…: where it copies from
    uint32_t source_offset;
    uint64_t global;
    TensorMap map;
    int32_t coordinates[TENSOR_RANK_MAX];
} BulkMove;

// A row of the box: what lies side by side in global memory.
typedef struct {
    uint64_t address; // of the first byte inside of the tensor
    uint32_t offset;  // of the row's first byte from BulkMove.shared, before swizzling
    uint32_t bytes;   // of the row
    uint32_t before;  // bytes of it that lie outside, in front of `inside` bytes that lie inside
    uint32_t inside;  // 0: none does
} BoxRow;
typedef struct {
    const BulkMove *move;
    uint32_t count[TENSOR_RANK_MAX], at[TENSOR_RANK_MAX];
    uint32_t element, offset;
    uint64_t address;    // of coordinate[0] = 0 in this row
    uint32_t first, end; // elements of a row that lie inside, as far as dimension 0 goes
    bool done;
} Box;
void box_begin(Box *box, const BulkMove *move);
bool box_next(Box *box, BoxRow *row);
// A range [low, high) that holds all elements of the box that lie inside (high < low if it wraps);
// false if none does.
bool box_envelope(const BulkMove *move, uint64_t *low, uint64_t *high);

// Bytes at the end of `bytes` that a swizzle may reach beyond them.
uint32_t bulk_footprint(const BulkMove *move);

// The moving. `image`: where the source's shared memory is found instead: byte x of it at image[x].
// `w`, `i`, `lane`: who findings are about (unwritten bytes).
void bulk_load(Warp *w, const Insn *i, int lane, const BulkMove *move);
void bulk_peer(Warp *w, const Insn *i, int lane, const BulkMove *move);
// Asks, before a source is read, whether all of it that will be moved has been written.
void bulk_check_source(Warp *w, const Insn *i, int lane, const BulkMove *move);
void bulk_store(struct GlobalMemory *m, const BulkMove *move, const uint8_t *image);

#endif
