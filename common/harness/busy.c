// How busy the units of the modelled GPU were while a step ran: what bounds it, and what idles.
#include "harness/report.h"

#include "softgpu/machine/code.h"

static const struct {
    const char *name;
    int pipe; // -1: not a pipe of the SMs
} units[BUSY_UNITS] = {
    {"FMA", PIPE_FMA},
    {"ALU", PIPE_ALU},
    {"integer multiply", PIPE_IMAD},
    {"FP64", PIPE_FP64},
    {"MUFU", PIPE_MUFU},
    {"conversion", PIPE_CONVERT},
    {"load/store", PIPE_LSU},
    {"tensor", PIPE_TENSOR},
    {"TMA", PIPE_TMA},
    {"shared memory", -1},
    {"L2", -1},
    {"HBM", -1},
};

const char *busy_unit_name(int unit) {
    return units[unit].name;
}

double busy_share(const StepResult *r, int unit) {
    if (units[unit].pipe >= 0) return r->stats.busy[units[unit].pipe];
    return unit == BUSY_UNITS - 3   ? r->stats.shared_busy
           : unit == BUSY_UNITS - 2 ? r->stats.l2_busy
                                    : r->stats.hbm_busy;
}

bool busy_known(const StepResult *r) {
    double sum = 0;
    for (int u = 0; u < BUSY_UNITS && r->has_stats; u++) sum += busy_share(r, u);
    return sum > 0;
}
