// How busy the units of the modelled GPU were while a step ran: what bounds it, and what idles. The
// timing model's shares where it timed the step (of the cycles), else the roofline's (of its time).
#include "harness/report.h"

#include <math.h>

#include "softgpu/machine/code.h"
#include "softgpu/timing/activity.h"

// What is not a pipe or a unit of the SMs but has a figure of its own.
typedef enum { OWN_NONE, OWN_TENSOR, OWN_SHARED, OWN_L2, OWN_HBM } OwnFigure;

static const struct {
    const char *name;
    int pipe; // the roofline's, or -1
    int unit; // the timing model's, or -1
    OwnFigure own;
} units[BUSY_UNITS] = {
    {"issue", -1, UNIT_ISSUE, OWN_NONE},
    {"FMA", PIPE_FMA, UNIT_FMA, OWN_NONE},
    {"half", -1, UNIT_HALF, OWN_NONE},
    {"ALU", PIPE_ALU, UNIT_ALU, OWN_NONE},
    {"integer multiply", PIPE_IMAD, UNIT_IMAD, OWN_NONE},
    {"FP64", PIPE_FP64, UNIT_FP64, OWN_NONE},
    {"MUFU", PIPE_MUFU, UNIT_XU, OWN_NONE},
    {"conversion", PIPE_CONVERT, -1, OWN_NONE}, // the model's XU converts, too
    {"load/store", PIPE_LSU, UNIT_LSU, OWN_NONE},
    {"tensor", PIPE_TENSOR, -1, OWN_TENSOR},
    {"TMA", PIPE_TMA, UNIT_TMA, OWN_NONE},
    {"shared memory", -1, -1, OWN_SHARED},
    {"L2", -1, -1, OWN_L2},
    {"HBM", -1, -1, OWN_HBM},
};

const char *busy_unit_name(int unit) {
    return units[unit].name;
}

double busy_share(const StepResult *r, int unit) {
    const SoftgpuStats *s = &r->stats;
    const bool modelled = s->cycles > 0;
    switch (units[unit].own) {
    case OWN_TENSOR: return modelled ? s->tensor_busy : s->busy[PIPE_TENSOR];
    case OWN_SHARED: return s->shared_busy;
    case OWN_L2: return s->l2_busy;
    case OWN_HBM: return s->hbm_busy;
    case OWN_NONE: break;
    }
    if (modelled) return units[unit].unit >= 0 ? s->unit_busy[units[unit].unit] : NAN;
    return units[unit].pipe >= 0 ? s->busy[units[unit].pipe] : NAN;
}

bool busy_known(const StepResult *r) {
    double sum = 0;
    for (int u = 0; u < BUSY_UNITS && r->has_stats; u++) {
        if (!isnan(busy_share(r, u))) sum += busy_share(r, u);
    }
    return sum > 0;
}

// ---- what the work alone takes, unit by unit

static const struct {
    const char *name;
    int pipe; // -1: shared memory, -2: loads
} work[WORK_UNITS] = {
    {"tensor", PIPE_TENSOR}, {"MUFU", PIPE_MUFU}, {"FMA", PIPE_FMA},
    {"ALU", PIPE_ALU},       {"shared", -1},      {"load", -2},
};

const char *work_unit_name(int unit) {
    return work[unit].name;
}

double work_cycles(const StepResult *r, int unit) {
    if (!r->has_stats) return NAN;
    if (work[unit].pipe >= 0) return r->stats.pipe_cycles[work[unit].pipe];
    return work[unit].pipe == -1 ? r->stats.shared_cycles : r->stats.load_cycles;
}

// ---- what the warps did meanwhile

static const char *const wait_names[STALL_COUNT] = {
    [STALL_BARRIER] = "barrier", [STALL_MBARRIER] = "mbarrier",
    [STALL_WGMMA] = "wgmma",     [STALL_MEMORY] = "memory",
    [STALL_COPY] = "copy",       [STALL_PIPE] = "pipe full",
    [STALL_OTHER] = "other",     [STALL_DEPENDENCY] = "dependency",
};
_Static_assert((int)WAIT_REASONS == (int)STALL_COUNT, "a column for each reason");

const char *wait_name(int reason) {
    return wait_names[reason];
}

double wait_share(const StepResult *r, int reason) {
    return model_timed(r) ? r->stats.stall[reason] : NAN;
}

double issue_share(const StepResult *r) {
    double waits = 0;
    if (!model_timed(r)) return NAN;
    for (int s = 0; s < STALL_COUNT; s++) waits += r->stats.stall[s];
    return fmax(0, 1 - waits);
}

bool model_timed(const StepResult *r) {
    return r->has_stats && r->stats.cycles > 0;
}
