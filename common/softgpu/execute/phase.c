// Markers of a kernel's phases (phase.h): the parser makes them of a predicate's declaration.
#include "softgpu/execute/phase.h"

#include "softgpu/execute/form.h"
#include "softgpu/timing/trace.h"

// Insn.extra: the phase's name; NULL: the one before ends and none begins.
Flow phase_marker(Warp *w, const Insn *i, uint32_t mask) {
    (void)mask;
    if (trace_on(w->sm)) trace_phase(w, i->extra, w->sm->time);
    return FLOW_NEXT;
}

static const char *lower_phase(Lowering *l, const Match *m, Insn *i) {
    (void)l;
    const char *name = m->ptx->operands[0].name; // lives as long as the module
    i->extra = name[0] ? name : NULL;
    return NULL;
}

const Form phase_forms[] = {
    {.name = "<phase>",
     .modifiers = "",
     .run = phase_marker,
     .pipe = PIPE_NONE,
     .lower = lower_phase},
    {0},
};
