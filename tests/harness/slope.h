// The slope of a loss along one element of the inputs, by a difference: what gradients are held to.
#ifndef SLOPE_H
#define SLOPE_H

#include "harness/problem.h"

typedef double (*Loss)(const Problem *p, const Inputs *in);

// *element is an element of `in`, and is left as it was.
double slope(const Problem *p, const Inputs *in, float *element, Loss loss);

#endif
