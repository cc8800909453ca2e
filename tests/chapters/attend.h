// Attention worked out by the tests themselves: the formula, key by key, in double. It shares
// nothing with the harness's reference, so the two check each other.
#ifndef TEST_ATTEND_H
#define TEST_ATTEND_H

#include "program.h"

typedef struct {
    Array q, k, v;       // (batch, seqlen, heads, head_dim)
    bool causal;         //
    long left, right;    // of the window; -1 = no limit
    double scale;        // 0: 1/sqrt(head_dim)
    double softcap;      // 0: none
    const char *dtype;   // NULL: fp16
    const char *options; // more, for the command line; NULL: none
} Case;

// Values that every dtype holds exactly: multiples of 1/8 in [-2, 2), scattered by seed.
void fill(Array *array, unsigned seed);
void fill_with(Array *array, float value);
// q, k, v of these sizes, filled from a seed.
Case case_make(int batch, int heads, int kv_heads, long seqlen_q, long seqlen_k, int head_dim);

static inline long at(const Array *a, long batch, long row, long head, long column) {
    return ((batch * a->shape[1] + row) * a->shape[2] + head) * a->shape[3] + column;
}

// What one of the chapters' steps makes of the case: o and lse, read back from --save.
typedef struct {
    Array o, lse;     // lse: (batch, heads, seqlen_q)
    const Json *json; // what the run said
} Answer;
// Runs it with --input and --save; the run must end with status 0 and its own verdict ok.
Answer answer_of(const Case *c, StepName step);
// Compares with the formula: |difference| <= tolerance · (1 + |value|); infinities must be equal.
void answer_is_attention(const Case *c, const Answer *answer, double tolerance);
// The two together, for all of the chapters' steps that have the dtype.
void all_steps_give_attention(const Case *c, double tolerance);

// How many keys row i sees, by the definition.
long keys_seen(const Case *c, long i);

#endif
