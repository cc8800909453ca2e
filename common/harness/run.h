// Running a chapter's steps: each is checked on one problem and timed on another (or the same).
#ifndef RUN_H
#define RUN_H

#include "harness/check.h"
#include "harness/device.h"
#include "harness/options.h"

// One pass of one step. What was not measured is NAN (or -1 for `ok`).
typedef struct {
    const Step *step;
    int number; // as --steps takes it
    bool backward;
    char refused[512];                 // why it did not run; "" = it ran
    char error[512];                   // the device's error; "" = none
    bool overrun;                      // guard bytes around a buffer did not stand
    char cache_report[256];            // what is wrong with the cache after it; "" = nothing
    char remark[320];                  // what the step has counted; "" = nothing
    double prepare_us;                 // of what it computes once for all launches; NAN: nothing
    char *findings;                    // softgpu's, a JSON array; NULL = none
    int ok;                            // 1 right, 0 wrong, -1 unknown (not checked)
    TensorCheck tensors[TENSOR_COUNT]; // the worst of all schedules
    double time_us, flops, tflops, peak_fraction;
    double hbm_fraction; // of the HBM's bandwidth, of the bytes that no step can do without
    double hbm_read_bytes, hbm_write_bytes, l2_read_bytes, workspace_bytes;
    double speedup_over_naive, speedup_over_previous;
    bool has_stats;
    SoftgpuStats stats; // of the timed run
} StepResult;

enum { MOST_RESULTS = 64 };

typedef struct Run {
    const Chapter *chapter;
    const Options *options;
    const Device *device;
    Problem checked, timed;
    bool same; // both problems are one
    bool backward;
    const bool *chosen; // which of the chapter's steps
    const char *time_kind;
    Inputs saved_inputs; // given by --input: taken instead of random data; q NULL = none
    StepResult results[MOST_RESULTS];
    int count;
    int status; // what ./run would exit with: 0, 1 or 3
    // NULL, or what run_steps calls whenever the results before `end` have all their numbers.
    void (*show)(const struct Run *run, int end, void *to);
    void *show_to;
} Run;

// Marks the steps of a list ("2,two-pass" or "all"; NULL = all): exhibits only when named.
bool steps_choose(const Chapter *chapter, const char *list, bool backward, bool *chosen,
                  Message *message);

// Finds out which steps can run and fills `results` with what is left to measure; run_steps calls
// it. False: none can, the message says why.
bool run_plan(Run *run, Message *message);
// Runs them all and fills results and status. False (exit 2): nothing ran, the message says why.
bool run_steps(Run *run, Message *message);
void run_free(Run *run);

#endif
