// The matrix of problems that every step is checked on, for `make test` (a few of each cell) and
// `make test-long` (all).
#ifndef TEST_MATRIX_H
#define TEST_MATRIX_H

#include "program.h"

extern const char *const matrix_dtypes[3];
extern const int matrix_head_dims[2];
// What the chapters are built for: $TEST_HEAD_DIMS, or 64 and 128.
const int *built_head_dims(void);
int built_head_dim_count(void);
// The option --steps … of a chapter's own steps: those that the problem's dtype can have.
const char *steps_of(int chapter, const char *problem);
// How many results of a run are theirs: two a step where the default run has a backward pass, or
// the problem says --backward.
int results_of(int chapter, const char *problem);
// The three (schedule, async) pairs of every problem.
enum { MATRIX_PAIRS = 3 };
extern const char *const matrix_orders[MATRIX_PAIRS];
// Lengths shorter and longer than a tile of 128 keys and of 64 or 128 query rows, and just beside
// them, and what else a problem may have: for the tests of backward passes. Chapter 4's take the
// first seven of each.
enum { GRADIENT_LENGTHS = 9, GRADIENT_EXTRAS = 8 };
extern const char *const gradient_lengths[GRADIENT_LENGTHS];
extern const char *const gradient_extras[GRADIENT_EXTRAS];
// Runs the problem under the three pairs: every step must be ok, exit status 0.
void check_problem(int chapter, const char *problem);
// A step on tensor cores takes no fp32, and says so in a sentence.
void fp32_is_refused(int chapter, const char *step);
// Checks one cell of the chapter's steps, which is dtype (16-bit), head_dim and causal, on each of
// the lengths; masks, grouped heads and caps take turns.
enum { FORWARD_CELLS = 8 };
void check_forward_cell(int chapter, int cell, const char *const lengths[], int count);

#endif
