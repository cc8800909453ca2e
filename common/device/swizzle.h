// Where a tile's numbers stand in shared memory, so that ldmatrix meets no bank conflict.
//
// Shared memory has 32 banks of 4 bytes: 128 bytes side by side lie in different banks, addresses a
// multiple of 128 apart in the same. ldmatrix reads a piece of 16 bytes of 8 rows at a time. Those 8
// pieces must fill the 128 bytes of all banks, however long a row is; writing whole rows must, too.
//
//   rows of 128 bytes (head_dim 64), or a multiple: 8 rows of one piece have one place in common.
//   Piece p of row r stands at p ^ (r % 8): of 8 rows, 8 different places; of a row, all of them.
//
//   rows of 192 bytes (head_dim 96): even rows start at bank 0, odd ones at bank 16, so only 4 of 8
//   rows meet. Piece p of row r stands at p ^ (r / 2 % 4).
//
// Invariant: swizzling moves pieces of 8 numbers inside their row only, and twice the same is none.
#ifndef SWIZZLE_H
#define SWIZZLE_H

#include "device/index.h"

// Among so many numbers side by side a row's pieces change places.
HOST_DEVICE static inline int swizzle_span(int head_dim) {
    return head_dim % 64 == 0 ? 64 : 32;
}

// The place of piece `piece` (8 numbers, 16 bytes) of a row.
HOST_DEVICE static inline int swizzled_piece(int head_dim, int row, int piece) {
    return piece ^ (head_dim % 64 == 0 ? row % 8 : row / 2 % 4);
}

// The number (row, column), the first of a piece, from the tile's first.
HOST_DEVICE static inline int swizzled_offset(int head_dim, int row, int column) {
    return row * head_dim + swizzled_piece(head_dim, row, column / 8) * 8;
}

// The place of the row of an operand that a lane names to ldmatrix, the operand being the tile's
// first; the column is 0 or 8.
HOST_DEVICE static inline int lane_row(int head_dim, int row, int column) {
    return swizzled_offset(head_dim, row, column);
}

// The same `down` rows below and `right` columns on, multiples of 8 and 16. Pieces change places
// inside a span, so whole spans are added. The row's remainder stays the same, and column + right is
// column ^ right, so (column + right) ^ r is (column ^ r) ^ right.
HOST_DEVICE static inline int lane_row_at(int head_dim, int lane, int down, int right) {
    const int span = swizzle_span(head_dim);
    return (lane ^ right % span) + down * head_dim + right / span * span;
}

#endif
