// The matrix of problems that every step is checked on, for `make test` (a few of each cell) and
// `make test-long` (all).
#ifndef TEST_MATRIX_H
#define TEST_MATRIX_H

#include "program.h"

extern const char *const matrix_dtypes[3];
extern const int matrix_head_dims[2];
// The options --steps … of a chapter's own steps.
const char *steps_of(int chapter);
// The three (schedule, async) pairs of every problem.
enum { MATRIX_PAIRS = 3 };
// Runs the problem under the three pairs: every step must be ok, exit status 0.
void check_problem(int chapter, const char *problem);

#endif
