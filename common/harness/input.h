// Real data: q.npy, k.npy, v.npy (for a backward pass dout.npy, and dlse.npy if it is there) of a
// folder instead of random tensors.
#ifndef INPUT_H
#define INPUT_H

#include "harness/options.h"

// Reads the files and sets the sizes in `options` that their shapes say. The values are as in the
// files: input_round makes them what the problem's dtype holds.
bool input_read(const char *folder, bool backward, Options *options, Inputs *inputs,
                Message *message);
// Rounds to the dtype; a finite value that overflows it is refused.
bool input_round(const Problem *p, Inputs *inputs, Message *message);

#endif
