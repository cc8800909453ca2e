// How many SMs of the modelled GPU a timed run simulates.
#ifndef SAMPLE_H
#define SAMPLE_H

#include "harness/run.h"

// Makes the problems' samples fit the device: refuses more SMs than it has, takes all of them for
// all, and makes a chapter's own sample as large as this problem's data need.
bool sample_fit(Run *run, Message *message);

// Does the timed run's share of the L2 not hold what the blocks of one head share? Then *enough is
// the sample whose share does, and *share and *needed say how much is there and how much is needed.
bool sample_too_small(const Run *run, double *share, double *needed, int *enough);

#endif
