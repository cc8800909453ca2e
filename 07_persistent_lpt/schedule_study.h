// What a schedule does to a batch of attention tiles, worked out without attention: who computes
// which tile when, how long that takes, and which keys and values pass through the L2.
//
// The model is small enough to follow by hand. A worker (an SM) takes a tile of query rows, spends
// tile_cycles on what every tile costs and block_cycles on each block of keys that its rows see, and
// then takes the next tile. Nothing else is waited for: what caches miss costs no time here.
#ifndef SCHEDULE_STUDY_H
#define SCHEDULE_STUDY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int batch, heads, kv_heads;
    int64_t seqlen_q, seqlen_k;
    int64_t window_left, window_right; // -1: no limit; causal has window_right = 0
    int rows, keys;                    // of a tile, and of a block of keys
    int workers;                       // SMs
    int64_t tile_cycles, block_cycles; // of a tile, and of each block of keys; block_cycles > 0
    int64_t row_bytes; // a row of Q, and of O; a key's K and V have twice that together
    int64_t l2_bytes;
} StudyProblem;

// STUDY_STATIC hands out the tiles before the start: worker w gets places w, w + workers, …. In all
// others the worker that is free first takes the next place, as an atomic counter does it.
typedef enum {
    STUDY_STATIC,        // in order: tiles fastest, then heads, then sequences
    STUDY_IN_ORDER,      // the same order
    STUDY_LONGEST_FIRST, // LPT: the longest tiles of all heads, then the next longest, …
    STUDY_L2_SECTIONS,   // LPT in sections of heads whose K and V fit in the L2 (schedule.h)
    STUDY_BLOCKS,        // rectangles of heads by tiles, as many tiles as workers
    STUDY_Z_CURVE,       // heads by tiles, along a z-curve
    STUDY_SCHEDULES,
} StudySchedule;

const char *study_name(StudySchedule schedule); // "LPT + L2 sections"
const char *study_key(StudySchedule schedule);  // "l2-sections": for files

// One tile's fate.
typedef struct {
    int batch, head, tile;
    int worker;
    int64_t blocks;     // of keys
    int64_t begin, end; // cycles
} StudyTile;

typedef struct {
    int64_t tiles, blocks; // of all
    int64_t work;          // cycles of all tiles together
    int64_t longest;       // cycles of the longest tile
    int64_t makespan;      // when the last worker ends
    int64_t last;          // cycles of the tile that ends then
    // K and V that were read in the time that the longest tile takes, on average over the run
    int64_t working_set;
    int64_t kv_bytes;   // K and V that come from HBM through an L2 that forgets the oldest
    int64_t read_bytes; // and Q
} StudyResult;

// Is the problem small enough? False: *why says what to do. Sizes may be anything from 0.
bool study_possible(const StudyProblem *problem, const char **why);

int64_t study_tiles(const StudyProblem *problem);
// Runs a schedule. tiles: as many as study_tiles says, in the order of their places, or NULL.
StudyResult study_run(const StudyProblem *problem, StudySchedule schedule, StudyTile *tiles);

// No schedule ends earlier than this: all of the work over all workers, or the longest tile.
int64_t study_bound(const StudyProblem *problem, const StudyResult *result);

// Graham's bounds, in cycles. Whenever the worker that is free first takes the next tile, whatever
// the order, nobody is idle before the last tile to end begins, so the makespan is at most
//
//     (work - last) / workers + last  ≤  work / workers + (1 - 1/workers) longest.
//
// Longest first it is at most 4/3 - 1 / (3 workers) times what the best schedule takes.
double graham_any_order(const StudyProblem *problem, const StudyResult *result);
double graham_longest_first(const StudyProblem *problem, int64_t best);

// The lecture's example: two sequences, each with causal tiles of 1, 2, 3 and 4 blocks, on three
// workers. A unit is a block.
StudyProblem lecture_example(void);

#endif
