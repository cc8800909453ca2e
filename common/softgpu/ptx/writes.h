// Where a kernel's stores to global memory may go (writes.c).
#ifndef SOFTGPU_PTX_WRITES_H
#define SOFTGPU_PTX_WRITES_H

#include "softgpu/ptx/ptx.h"

enum { WRITES_MOST = 60 };

typedef struct {
    bool known;     // if not, anywhere
    bool variables; // to variables of modules
    int count;      // and where these parameters point: their byte offsets in the block
    uint32_t params[WRITES_MOST];
} KernelWrites;

struct Kernel;
// Of a kernel whose parameters are laid out, and whose entry is parsed.
KernelWrites kernel_writes(const struct Kernel *kernel);

#endif
