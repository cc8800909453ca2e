// Batches of sequences of varying lengths: what --varlen says, and what follows for the sizes.
#ifndef LENGTHS_H
#define LENGTHS_H

#include "harness/options.h"

// Reads --varlen's list, "5,0,3:7": the lengths of the sequences, or queries:keys. Fills cu_seqlens_q
// and _k and `sequences` of the options. False: the message says what is wrong.
bool lengths_read(const char *text, Options *options, Message *message);
// Once all options are read: batch and lengths are --varlen's alone. False: others say them too.
bool lengths_fit(Options *options, Message *message);
// Takes a batch: where each sequence begins, and the end of the last. The arrays must outlive the
// options, and the problems made of them.
void lengths_set(Options *options, const int *cu_seqlens_q, const int *cu_seqlens_k,
                 int64_t sequences);

#endif
