// What this program was built as: for which head_dims, and whether it is a learner's exercise.
#ifndef BUILT_H
#define BUILT_H

extern const int built_head_dims[];      // rising, 0 at the end
extern const char *const built_exercise; // the step that FOLDER/exercise.cu stands in for, or NULL
extern const char *const built_exercise_options; // of ./run, with which it is checked

#endif
