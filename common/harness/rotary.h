// The rotary embedding on the host: pairs of columns, turned by an angle that grows with the
// position (attention.h says which pairs and positions).
#ifndef ROTARY_H
#define ROTARY_H

#include "harness/problem.h"

// Positions that the tables need.
int64_t rotary_positions(const Problem *p);
// The tables, (positions, rotary_dim / 2) each: cos and sin of position / 10000^(2c / rotary_dim).
void rotary_tables(const Problem *p, float *cosines, float *sines);
// Turns one row of head_dim numbers as at a position; in double, so that only the tables round.
void rotary_turn(const Problem *p, int64_t position, const float *from, double *to);
// The position of query row i of sequence b: each its own if the mask depends on the row, else all
// at the end of what the cache holds.
int64_t query_position(const Problem *p, int64_t b, int64_t i);
// The inputs that attention sees: q turned, and rounded to the dtype if `rounded`; the new keys turned
// and rounded, as the cache holds them (what it holds is checked by itself). All else is that of `in`.
Inputs rotary_inputs(const Problem *p, const Inputs *in, bool rounded);
void rotary_inputs_free(Inputs *turned);

#endif
