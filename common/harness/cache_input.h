// A cache from files: q.npy (batch, seqlen_q, heads, head_dim), cache_seqlens.npy (batch), and
//
//   without pages   k.npy and v.npy (batch, room, kv_heads, head_dim)
//   with pages      k.npy and v.npy (pages, page_size, kv_heads, head_dim), and block_table.npy
//                   (batch, pages of a sequence)
#ifndef CACHE_INPUT_H
#define CACHE_INPUT_H

#include "harness/options.h"

// The folder has a cache_seqlens.npy, so its k and v, which `in` holds as the files have them, are a
// cache: reads the lengths and the table, sets the problem's sizes, and puts k and v in order, the
// keys of a sequence one after the other. `q` and `k` are the files' shapes. False: lengths beyond
// the cache, a bad block table and the like.
bool cache_input_read(const char *folder, const int64_t q[4], const int64_t k[4], Options *options,
                      Inputs *in, Message *message);

#endif
