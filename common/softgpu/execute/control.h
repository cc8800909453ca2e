// Control flow as other parts see it.
#ifndef SOFTGPU_CONTROL_H
#define SOFTGPU_CONTROL_H

#include "softgpu/machine/machine.h"

// Does every lane that comes to `i`, in an entry function, leave the kernel there?
bool ends_thread(const Insn *i);

// Reports that lanes of the warp have exited, if `i` is .aligned; `all` are those that execute it.
void note_exited(Warp *w, const Insn *i, uint32_t all);

#endif
