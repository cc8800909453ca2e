// Query rows and keys of chapter 7's tiles, for kernels and for who only counts them. Plain C.
//
//   head_dim   query rows   keys
//   64         192          128
//   96         192          112
//   128        128          176; 128 with a mask
//   192        128          112
//   256        128          80
#ifndef TILE_SIZES_H
#define TILE_SIZES_H

// Warpgroups that compute; each takes 64 query rows.
#define FORWARD_WARPGROUPS(head_dim) ((head_dim) <= 96 ? 3 : 2)
#define FORWARD_ROWS(head_dim)       (FORWARD_WARPGROUPS(head_dim) * 64)

// Keys of a tile. `masked`: a mask takes keys from many tiles, as causal does.
#define FORWARD_KEYS(head_dim, masked)                                                             \
    ((head_dim) <= 64    ? 128                                                                     \
     : (head_dim) <= 96  ? 112                                                                     \
     : (head_dim) <= 128 ? ((masked) ? 128 : 176)                                                  \
     : (head_dim) <= 192 ? 112                                                                     \
                         : 80)

#endif
