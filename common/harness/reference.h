// Attention on the CPU, twice: in float64 (the truth that steps are compared with) and as the
// frameworks' standard attention computes it (the yardstick for how far off a step may be).
#ifndef REFERENCE_H
#define REFERENCE_H

#include "harness/message.h"
#include "harness/problem.h"

typedef enum { TENSOR_O, TENSOR_LSE, TENSOR_DQ, TENSOR_DK, TENSOR_DV, TENSOR_COUNT } TensorName;

const char *tensor_name(TensorName tensor);

// Results for the selected rows and keys: o and dq are [batch*heads][rows.count][head_dim], lse is
// [batch*heads][rows.count], dk and dv are [batch*kv_heads][keys.count][head_dim]. Rows that a
// sequence doesn't have, since others of the batch are longer, are NaN: nothing is compared there.
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
// The same in another order of operations, numbered from 1 on.
void model_variant(const Problem *p, const Inputs *in, const Selection *rows, const Selection *keys,
                   bool backward, uint64_t variant, Results *results);
void results_free(Results *results);
const double *results_of(const Results *results, TensorName tensor); // NULL: not there

// How far the errors of right fp32 sums scatter: one sum's error is a matter of luck where few
// scores decide. One right result in 10,000 exceeds these (scatter.c).
typedef struct {
    double max, rms;
} Scatter;

// Above this many FLOPs only some rows are computed: 20 GFLOP.
extern const double full_flops;

// Both sides of a comparison, for a problem: everything, or above 20 GFLOP 256 rows per head.
typedef struct {
    Selection rows, keys;
    Results exact, model;
    Scatter scatter[TENSOR_COUNT]; // zeros: not measured, the model alone counts
    bool backward;
} Reference;

void reference_make(const Problem *p, const Inputs *in, bool backward, Reference *reference);
// The values of a tensor in reference->exact, or in reference->model.
int64_t results_count(const Problem *p, const Reference *reference, TensorName tensor);
// False: scores or results are too large for the dtype, the message says which (overflow.c).
bool reference_fits(const Problem *p, const Reference *reference, Message *message);
// Fills reference->scatter, once exact and model stand.
void scatter_measure(const Problem *p, const Inputs *in, Reference *reference);
void reference_free(Reference *reference);

#endif
