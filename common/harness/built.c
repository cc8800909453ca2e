// The head_dims that this chapter was built with, and whether a learner's exercise stands in for one of
// its steps; compiled with the Makefile's -DBUILT_…, -DEXERCISE_STEP and -DEXERCISE_OPTIONS.
#include "harness/built.h"

#include <stddef.h>

#include "harness/variants.h"

#define LISTED(head_dim) head_dim,
const int built_head_dims[] = {FOR_EACH_HEAD_DIM(LISTED) 0};

#ifndef EXERCISE_STEP
#define EXERCISE_STEP NULL
#endif
const char *const built_exercise = EXERCISE_STEP;

#ifndef EXERCISE_OPTIONS
#define EXERCISE_OPTIONS ""
#endif
const char *const built_exercise_options = EXERCISE_OPTIONS;
