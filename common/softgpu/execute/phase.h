// Markers of a kernel's phases (common/device/phase.h), for the timeline.
#ifndef SOFTGPU_PHASE_H
#define SOFTGPU_PHASE_H

#include "softgpu/machine/code.h"

// The marker's handler. It costs no issue slot (PIPE_NONE), and touches no register.
Handler phase_marker;

// Does a phase begin here? A timed run must know the warp's clock at such an instruction.
static inline bool insn_is_phase(const Insn *i) {
    return i->run == phase_marker;
}

#endif
