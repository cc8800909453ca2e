// The head_dims that this chapter was built with; compiled with the Makefile's -DBUILT_….
#include "harness/built.h"

#include "harness/variants.h"

#define LISTED(head_dim) head_dim,
const int built_head_dims[] = {FOR_EACH_HEAD_DIM(LISTED) 0};
