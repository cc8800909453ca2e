// Which tile comes when: the order in which the thread blocks of chapter 7 take the tiles of query
// rows, as plain integers that the host fills and both sides read. No CUDA is needed to include it.
//
// A TileOrder gives each tile of each head of each sequence one place 0 … places - 1, and tile_of
// turns a place back into the tile: every tile exactly once, for any shape. Places are 64-bit, and
// nothing is ever divided by zero.
//
//   in order        tiles fastest, then heads, then sequences
//   longest first   (LPT) the longest tiles of all heads, then the next longest, …: a short tile
//                   that comes late leaves nobody waiting
//   L2 order        the same for a section of heads at a time: as many as have K and V in the L2
//                   together. Sections follow each other; the last may be narrower.
//
// A section, four heads wide, of a causal mask's five tiles a head, the longest first:
//
//             head 0  1  2  3
//   tile 4       │ 0  1  2  3
//   tile 3       │ 4  5  6  7          within a section heads go fastest, so that neighbours read
//     …          │ …                   other heads' longest tiles, and their K and V stay
//   tile 0       │16 17 18 19
//
// In order is a section of one head; longest first is one section of all heads. Where all tiles are
// equally long nothing is to be sorted: every order is then in order, which shares K and V best.
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include <stddef.h>

#include "device/index.h"
#include "device/mask.h"

// In order; longest first; longest first within sections that fit in the L2.
typedef enum { ORDER_AS_IT_COMES, ORDER_LONGEST_FIRST, ORDER_L2 } OrderKind;

// Which tiles of a head are the longest: that is, see most keys.
typedef enum { ALL_EQUAL, LAST_IS_LONGEST, FIRST_IS_LONGEST } LongestTile;

// A tile of query rows.
typedef struct {
    int batch, head, tile;
} TileWork;

// One sequence of a batch of several lengths. Its places begin at first_tile * heads and end where
// the next entry's begin.
typedef struct {
    int64_t first_tile; // of one head: how many the entries before have
    int sequence;       // its place in the batch
    int section;        // heads at a time
} SequenceEntry;

typedef struct {
    int heads;
    int backwards;          // the last tile first
    int64_t tiles;          // of one head; of several lengths: 0
    int64_t places;         // of several lengths: places_of(order) reads it from the entries
    int64_t section;        // heads at a time, counted through the batch
    int64_t section_places; // of a whole section
    int64_t whole_sections; // of that width
    int64_t rest;           // heads of the narrower section after them, or 1 where there is none
    int sequences;          // entries, without the last one
    const SequenceEntry *entries; // sequences + 1; NULL where all sequences are equally long
} TileOrder;

typedef struct {
    int64_t quotient, remainder;
} Division;

// a / b for a >= 0 and b > 0. A GPU divides 64-bit numbers with a hundred instructions and more
// registers than a producer has, so there both must be below 2^32: a launch has fewer places.
HOST_DEVICE static inline Division divide(int64_t a, int64_t b) {
    Division d;
#ifdef __CUDA_ARCH__
    d.quotient = (uint32_t)a / (uint32_t)b;
    d.remainder = (uint32_t)a - (uint32_t)d.quotient * (uint32_t)b;
#else
    d.quotient = a / b;
    d.remainder = a % b;
#endif
    return d;
}

// Keys that a tile of `rows` query rows walks over.
HOST_DEVICE static inline int64_t keys_of_tile(int64_t tile, int64_t rows, int64_t seqlen_q,
                                               int64_t seqlen_k, int64_t window_left,
                                               int64_t window_right) {
    const int64_t first = tile * rows;
    const int64_t end = seqlen_q - first < rows ? seqlen_q : first + rows;
    const KeyRange keys =
        keys_seen_by_any(first, end - 1, seqlen_q, seqlen_k, window_left, window_right);
    return keys.end > keys.begin ? keys.end - keys.begin : 0;
}

// Blocks of `keys` keys that the tile walks over, as the kernel counts them: from a whole block on.
HOST_DEVICE static inline int64_t key_blocks_of_tile(int64_t tile, int64_t rows, int64_t keys,
                                                     int64_t seqlen_q, int64_t seqlen_k,
                                                     int64_t window_left, int64_t window_right) {
    const int64_t first = tile * rows;
    const int64_t end = seqlen_q - first < rows ? seqlen_q : first + rows;
    const KeyRange any =
        keys_seen_by_any(first, end - 1, seqlen_q, seqlen_k, window_left, window_right);
    const int64_t first_key = any.begin / keys * keys;
    return any.end > first_key ? tiles_of(any.end - first_key, keys) : 0;
}

// Without a limit to the right, or to the left, the longest tile is at an end. With both limits the
// tiles in the middle are equally long and those at the ends are the shortest.
HOST_DEVICE static inline LongestTile longest_tile(int64_t window_left, int64_t window_right) {
    if (window_right >= 0) return LAST_IS_LONGEST;
    return window_left >= 0 ? FIRST_IS_LONGEST : ALL_EQUAL;
}

// Query heads whose K and V, kv_head_bytes for each head of them, are in l2_bytes together: a power
// of two of K/V heads, at least one, times the query heads that share each. `heads` > 0.
HOST_DEVICE static inline int64_t heads_in_l2(int64_t heads, int64_t kv_heads,
                                              int64_t kv_head_bytes, int64_t l2_bytes) {
    int64_t fit = 1;
    // Not fit * 2 * bytes <= l2_bytes: that product may overflow. No bytes at all fit always.
    while (fit < kv_heads && kv_head_bytes <= l2_bytes / (2 * fit)) fit *= 2;
    return fit * (heads / kv_heads);
}

// How much of the L2 a section's K and V may take: FlashAttention-3's 32 MB of an H100's 50. What Q
// and O pass through, and the section that comes next, need the rest.
HOST_DEVICE static inline int64_t l2_budget(int64_t l2_bytes) {
    return l2_bytes / 50 * 32;
}

// The order of a batch of equally long sequences. tiles: of one head; kv_head_bytes: K and V of one
// head of one sequence; l2_bytes: what they may take (l2_budget). Any number may be 0.
HOST_DEVICE static inline TileOrder make_tile_order(OrderKind kind, int batch, int heads,
                                                    int kv_heads, int64_t tiles,
                                                    int64_t kv_head_bytes, int64_t l2_bytes,
                                                    LongestTile longest) {
    const int64_t all = (int64_t)batch * heads;
    TileOrder order = {0};
    order.heads = heads;
    order.sequences = batch;
    order.tiles = tiles;
    order.places = all * tiles;
    order.section = order.rest = order.section_places = 1;
    if (order.places == 0) return order; // no place is ever asked for
    if (longest != ALL_EQUAL && kind == ORDER_LONGEST_FIRST) order.section = all;
    if (longest != ALL_EQUAL && kind == ORDER_L2) {
        // Sections go on through the batch: all of its K/V heads count.
        order.section = heads_in_l2(all, (int64_t)batch * kv_heads, kv_head_bytes, l2_bytes);
        if (order.section > all) order.section = all;
    }
    order.backwards = kind != ORDER_AS_IT_COMES && longest == LAST_IS_LONGEST;
    order.section_places = order.section * tiles;
    order.whole_sections = all / order.section;
    if (all % order.section > 0) order.rest = all % order.section;
    return order;
}

// The tile at a place of one section. `tiles` of a head, `width` heads; gives the head within it.
HOST_DEVICE static inline TileWork tile_in_section(int64_t place, int64_t tiles, int64_t width,
                                                   int backwards) {
    // exercise 1: begin
    const Division d = divide(place, width);
    TileWork work = {0};
    work.head = (int)d.remainder;
    work.tile = (int)(backwards ? tiles - 1 - d.quotient : d.quotient);
    return work;
    // exercise 1: end
}

// The entry that a place belongs to: the last that begins at or before it and has tiles.
HOST_DEVICE static inline int entry_of(const TileOrder *order, int64_t tile) {
    int low = 0, high = order->sequences; // entries[low].first_tile <= tile < entries[high]'s
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (order->entries[middle].first_tile <= tile)
            low = middle;
        else
            high = middle;
    }
    return low;
}

HOST_DEVICE static inline TileWork tile_of_entry(const TileOrder *order, int64_t place) {
    const int e = entry_of(order, divide(place, order->heads).quotient);
    const SequenceEntry entry = order->entries[e];
    const int64_t tiles = order->entries[e + 1].first_tile - entry.first_tile;
    const Division section = divide(place - entry.first_tile * order->heads, entry.section * tiles);
    const int64_t first_head = section.quotient * entry.section;
    const int64_t left = order->heads - first_head;
    TileWork work = tile_in_section(section.remainder, tiles,
                                    left < entry.section ? left : entry.section, order->backwards);
    work.head += (int)first_head;
    work.batch = entry.sequence;
    return work;
}

// How many places there are.
HOST_DEVICE static inline int64_t places_of(const TileOrder *order) {
    if (order->entries == NULL) return order->places;
    return order->entries[order->sequences].first_tile * order->heads;
}

// The tile at a place, 0 <= place < places_of(order).
HOST_DEVICE static inline TileWork tile_of(const TileOrder *order, int64_t place) {
    if (order->entries != NULL) return tile_of_entry(order, place);
    const Division section = divide(place, order->section_places);
    TileWork work = tile_in_section(
        section.remainder, order->tiles,
        section.quotient < order->whole_sections ? order->section : order->rest, order->backwards);
    const Division head = divide(section.quotient * order->section + work.head, order->heads);
    work.head = (int)head.remainder;
    work.batch = (int)head.quotient;
    return work;
}

// ---- several lengths: the entries are made from the lengths, on either side

// What sorts a sequence: its tiles, and the keys that its longest tile sees.
typedef struct {
    int64_t tiles, longest;
} SequenceSize;

// Sequences are sorted in chunks of as many, so that the work grows with the batch, not its square.
enum { SORTED_SEQUENCES = 1024 };

HOST_DEVICE static inline SequenceSize size_of_sequence(int64_t rows, int64_t seqlen_q,
                                                        int64_t seqlen_k, int64_t window_left,
                                                        int64_t window_right) {
    SequenceSize size = {0, 0};
    size.tiles = tiles_of(seqlen_q, rows);
    if (size.tiles == 0) return size;
    const int64_t first = keys_of_tile(0, rows, seqlen_q, seqlen_k, window_left, window_right);
    const int64_t last =
        keys_of_tile(size.tiles - 1, rows, seqlen_q, seqlen_k, window_left, window_right);
    size.longest = first > last ? first : last;
    return size;
}

// Where a sequence comes in its chunk: after `before` others, which have `tiles` tiles together.
typedef struct {
    int before;
    int64_t tiles, all_tiles; // all_tiles: of the whole chunk
} SequencePlace;

// Sequence i of a chunk of `count`. `sort`: those with the longest tiles come first, and equal ones
// as they come; else all as they come. Each i is a loop over the chunk: one thread each, no
// barriers.
HOST_DEVICE static inline SequencePlace place_of_sequence(const SequenceSize *sizes, int count,
                                                          int i, int sort) {
    SequencePlace place = {0, 0, 0};
    for (int j = 0; j < count; j++) {
        const int64_t longer = sort ? sizes[j].longest - sizes[i].longest : 0;
        if (longer > 0 || (longer == 0 && j < i)) {
            place.before++;
            place.tiles += sizes[j].tiles;
        }
        place.all_tiles += sizes[j].tiles;
    }
    return place;
}

// Heads at a time of one sequence, as make_tile_order's section, but never of two sequences.
HOST_DEVICE static inline int section_of_sequence(OrderKind kind, int heads, int kv_heads,
                                                  int64_t kv_head_bytes, int64_t l2_bytes,
                                                  LongestTile longest) {
    if (longest == ALL_EQUAL || kind == ORDER_AS_IT_COMES) return 1;
    if (kind == ORDER_LONGEST_FIRST) return heads;
    const int64_t section = heads_in_l2(heads, kv_heads, kv_head_bytes, l2_bytes);
    return (int)(section < heads ? section : heads);
}

// The order of a batch whose entries (sequences + 1 of them) are in memory that tile_of can read.
HOST_DEVICE static inline TileOrder make_entries_order(OrderKind kind, int sequences, int heads,
                                                       const SequenceEntry *entries,
                                                       LongestTile longest) {
    TileOrder order = {0};
    order.heads = heads;
    order.sequences = sequences;
    order.entries = entries;
    order.section = order.section_places = order.rest = 1;
    order.backwards = kind != ORDER_AS_IT_COMES && longest == LAST_IS_LONGEST;
    return order;
}

#endif
