// Running a chapter's program as a person would, and the files that it reads and writes.
#ifndef TEST_PROGRAM_H
#define TEST_PROGRAM_H

#include <stdbool.h>

#include "json.h"

typedef struct {
    int status; // exit status
    double seconds;
    double cpu_seconds; // of its threads together, whatever else the machine does
    char *out, *err;    // what it printed
    char command[1024];
} Outcome;

// Each test calls this first: makes an empty temporary folder and goes there. The end of the test's
// process removes it.
void enter_folder(void);
// A path in the repository, absolute: in_repository("tests/data/minilm_layer0").
const char *in_repository(const char *path);

// A path that the environment names (TEST_LAUNCHER, …), absolute: asked for before enter_folder.
const char *path_of(const char *variable);
// The chapter's program; after enter_folder.
const char *chapter_path(int chapter);

// Runs $TEST_BUILD/NAME/run (chapter-1, …) with arguments separated by single spaces.
Outcome run_program(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
Outcome run_chapter(int chapter, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The JSON of a run with --json -, which must have ended with that status.
Json *outcome_json(const Outcome *outcome, int status);
// Every step ran, is ok, refused nothing, and has no finding and no error; returns how many.
int every_step_is_ok(const Outcome *outcome, const Json *json);
// The step of that name; fails if there is none.
const Json *step_named(const Json *json, const char *name);
// The modelled cycles of the step of that name.
double cycles_of(const Json *json, const char *step);

// Runs a step on 16 heads of 1024 rows: every input byte crosses to HBM once, within 10%, as K and V
// of one head fit in the L2 of a GPU of 4 SMs, and those of all heads don't. What is written may stay
// in L2, but can't be more than the outputs. It needs no workspace.
void forward_reads_inputs_once(int chapter, const char *step_name, int head_dim);

// How many of something: `make test-long` sets TEST_FULL and gets the first number, `make test` the
// second.
int in_full(int full, int otherwise);

bool file_exists(const char *path);
char *file_text(const char *path);
void write_text(const char *path, const char *text);

// NumPy files of float32 or float16, in C order.
typedef struct {
    int dimensions;
    long shape[4], count;
    bool half;
    float *values;
} Array;
Array array_read(const char *path);
void array_write(const char *path, const Array *array);
Array array_make(long a, long b, long c, long d, bool half);
void arrays_are_equal(const Array *a, const Array *b); // bit for bit
// dQ, dK and dV that the last run saved in out/: kept as the first ones, or bit for bit like those.
void gradients_are_alike(Array first[3], bool is_first);

// The chapters' own steps whose default run is a forward pass alone, exhibits apart: those of
// chapters 1 to 3, 5, 7 and 9 (whose prefill-kernel is chapter 7's). Chapter 4's are in test_backward, test_torch and the matrix.
typedef struct {
    int chapter;
    const char *name;
    bool tensor_cores; // fp16 and bf16 only
} StepName;
extern const StepName own_steps[];
extern const int own_step_count;

#endif
