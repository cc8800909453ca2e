// The operand [map, …] of TMA instructions.
#ifndef SOFTGPU_EXECUTE_TENSOR_MAP_H
#define SOFTGPU_EXECUTE_TENSOR_MAP_H

#include "softgpu/machine/machine.h"
#include "softgpu/machine/tensor_map.h"

// Reads the tensor map at a generic address, for one lane. false after a finding: it lies where TMA
// can't read it, is no map, or its edits have not been published.
bool tensor_map_operand(Warp *w, const Insn *i, int lane, uint64_t address, TensorMap *map);

#endif
