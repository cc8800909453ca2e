// The cache of keys and values that decoding reads: what the options ask for, where each key stands,
// and what the device's copy holds before and after a step.
#ifndef CACHE_H
#define CACHE_H

#include "harness/options.h"

// Reads --cache-seqlens's list, "1000,0,37": the keys that each sequence has in the cache. False: the
// message says what is wrong.
bool cache_read_lengths(const char *text, Options *options, Message *message);
// Once all options are read: the batch and the keys are --cache-seqlens's alone. False: others say
// them too.
bool cache_lengths_fit(Options *options, Message *message);
// Takes the keys in the cache of each sequence, and with them the batch and seqlen_k. The array must
// outlive the options, and the problems made of them.
void cache_set_lengths(Options *options, const int *seqlens, int64_t sequences);

// The cache that the options ask for, of a problem whose sizes stand. False: it can't be.
bool cache_make(const Options *options, Problem *p, Message *message);

// The problem as a step gets it: with the step's pages, if it wants some and the problem has none.
Problem cache_for_step(const Problem *p, const Step *step);

// Keys of sequence b in the cache before the step.
int64_t cached_keys(const Problem *p, int64_t b);
// Rows of k, and of v, on the device.
int64_t cache_rows(const Problem *p);
// Places of the block table that the keys of a sequence take; the rest of its row means nothing.
int64_t table_places(const Problem *p, int64_t keys);
// The block table, (batch, table_columns): the given one, or each page somewhere, by the seed, and
// nonsense behind a sequence's last page. NULL without pages; free() it.
int *cache_table(const Problem *p);
// Is every page that a sequence uses one of the pool's, and no one else's? False: the message says
// which is not, and `where` names what was read.
bool cache_table_right(const Problem *p, const int *table, const char *where, Message *message);
// The row of k and v on the device where key j of sequence b stands.
int64_t cache_row(const Problem *p, const int *table, int64_t b, int64_t j);

// Rounds k and v to e4m3 with a scale for each sequence and head, which it makes.
void cache_quantise(const Problem *p, Inputs *in);
// The device's k (or v) before the step: cache_rows rows of built_head_dim numbers, poison where no
// key is.
void cache_fill(const Problem *p, const int *table, const float *values, const float *scale,
                void *bytes);
size_t cache_element(const Problem *p); // bytes of a number in it

// Looks at the device's k (or v) after a step: the new keys must be there (turned, if it is k and
// there is a rotary embedding), and nothing else may have changed. False: `report` says what did.
bool cache_right(const Problem *p, const int *table, const Inputs *in, bool of_values,
                 const void *bytes, char *report, size_t size);

#endif
