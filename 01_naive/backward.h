// The standard backward, launched by naive.cu's step.
#ifndef NAIVE_BACKWARD_H
#define NAIVE_BACKWARD_H

#include "harness/attention.h"

cudaError_t naive_backward(const Attention *a);

#endif
