// Attention on the CPU, twice: in float64 (the truth that steps are compared with) and as the
// frameworks' standard attention computes it (the yardstick for how far off a step may be).
#ifndef REFERENCE_H
#define REFERENCE_H

#include "harness/problem.h"

// Results for the selected rows and keys: o and dq are [batch*heads][rows.count][head_dim], lse is
// [batch*heads][rows.count], dk and dv are [batch*kv_heads][keys.count][head_dim].
typedef struct {
    double *o, *lse;
    double *dq, *dk, *dv; // NULL without a backward pass
} Results;

// Exact but for float64's rounding.
void reference_attention(const Problem *p, const Inputs *in, const Selection *rows,
                         const Selection *keys, bool backward, Results *results);
// S, P, O (and dP, dS, dQ, dK, dV) rounded to the dtype where standard attention stores them; sums
// in fp32, one after the other.
void model_attention(const Problem *p, const Inputs *in, const Selection *rows,
                     const Selection *keys, bool backward, Results *results);
void results_free(Results *results);

// Both sides of a comparison, for a problem: everything, or above 20 GFLOP 256 rows per head.
typedef struct {
    Selection rows, keys;
    Results exact, model;
    bool backward;
} Reference;

void reference_make(const Problem *p, const Inputs *in, bool backward, Reference *reference);
void reference_free(Reference *reference);

#endif
