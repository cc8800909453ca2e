// SOFTGPU_STATS: what each kernel did, as a table on stderr when the program ends.
#ifndef SOFTGPU_STATS_H
#define SOFTGPU_STATS_H

#include "softgpu/machine/machine.h"

// Adds a launch to the table; launches of one kernel share an entry. Not thread-safe.
void stats_record(const KernelStats *launch);
// Prints the table, if anything was recorded, and forgets it.
void stats_print(const GpuFigures *figures);

#endif
