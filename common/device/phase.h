// Names for the phases of a kernel, as NVTX names those of a program: PHASE("softmax") says that the
// warp does its softmax from here on, until the next one. `./run --trace FILE` and softgpu's --trace
// show a bar for each.
//
// On a GPU it costs nothing and changes nothing: it becomes the declaration of a predicate in a
// block of its own, where nothing uses it. ptxas makes no instruction of that, and no barrier to its
// scheduling: the machine code is the same with -DNO_PHASES. (nvcc keeps the mark in its place among
// volatile asm; plain arithmetic may move past it.) A name is made of letters, digits and _, as a
// register's is.
#ifndef DEVICE_PHASE_H
#define DEVICE_PHASE_H

#ifdef NO_PHASES
#define PHASE(name)
#else
#define PHASE(name) asm volatile("{ .reg .pred phase$" name "; }")
#endif
#define PHASE_END() PHASE("") // the warp is in no phase

#endif
