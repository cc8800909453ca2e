// One step on one problem: allocate, poison, launch, check, time, check again.
#ifndef PASS_H
#define PASS_H

#include "harness/run.h"

typedef struct {
    const Device *device;
    const Chapter *chapter; // of the run
    const Step *step;
    const Problem *p;
    const Inputs *in;
    const Reference *reference; // NULL: the outputs are not checked
    bool timed;
    int64_t launches;  // each is checked, all on one workspace
    const char *save;  // folder for the outputs; NULL = none
    const char *trace; // the timeline's file; NULL = none
    // Where things go; `backward` NULL: the forward pass alone. Worst results are merged in.
    StepResult *forward, *backward;
} Pass;

// Why the chapter's step can't do this problem here (into `reason`), or false if it can. Launches
// nothing.
bool pass_refused(const Chapter *chapter, const Step *step, const Problem *p, const Device *device,
                  bool backward, char *reason, size_t size);
void pass_run(const Pass *pass);

#endif
