// Control flow as other parts see it.
#ifndef SOFTGPU_CONTROL_H
#define SOFTGPU_CONTROL_H

#include "softgpu/machine/code.h"

// Does every lane that comes to `i`, in an entry function, leave the kernel there?
bool ends_thread(const Insn *i);

#endif
