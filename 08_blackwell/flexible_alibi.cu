// Chapter 8, step flexible: its kernel with ALiBi.
#include "flexible.h"

#define FORWARD_KERNEL flexible_alibi
#define FLEXIBLE       true
#define SCORE_MOD      SCORE_ALIBI
static const bool EMULATED = true;
static const bool LAZY = true;
static const bool PERSISTENT = true;
static const bool SOFTMAX = true;
#include "forward.h"

cudaError_t forward_alibi(const Attention *a) {
    return forward(a);
}
