// Chapter 8, step flexible: its kernel with a cap of the scores.
#include "flexible.h"

#define FORWARD_KERNEL flexible_softcap
#define FLEXIBLE       true
#define SCORE_MOD      SCORE_SOFTCAP
static const bool EMULATED = true;
static const bool LAZY = true;
static const bool PERSISTENT = true;
static const bool SOFTMAX = true;
#include "forward.h"

cudaError_t forward_softcap(const Attention *a) {
    return forward(a);
}
