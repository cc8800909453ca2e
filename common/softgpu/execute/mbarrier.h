// The addresses of mbarrier objects, for every instruction that names one.
#ifndef SOFTGPU_EXECUTE_MBARRIER_H
#define SOFTGPU_EXECUTE_MBARRIER_H

#include "softgpu/machine/machine.h"

// The lanes' addresses, base row + offset, as shared addresses of the warp's own CTA without rank
// bits; checked for bounds and alignment. `generic`: the instruction names no state space. false
// after a finding.
bool mbarrier_addresses(Warp *w, const Insn *i, uint32_t mask, bool generic,
                        uint32_t address[WARP_SIZE]);

#endif
