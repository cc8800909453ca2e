// One lane of a warp (elect.sync, PTX ISA 9.7.13.14). All lanes call it together; it is true in
// one, always the same one for the same mask. ptxas then knows that what follows runs in one lane,
// and needs no loop over lanes around instructions that want one.
#ifndef ELECT_H
#define ELECT_H

#include <stdint.h>

__device__ static inline bool elect_one() {
    uint32_t elected;
    asm volatile("{\n\t"
                 ".reg .pred elected;\n\t"
                 "elect.sync _|elected, 0xffffffff;\n\t"
                 "selp.b32 %0, 1, 0, elected;\n\t"
                 "}"
                 : "=r"(elected)::"memory");
    return elected;
}

#endif
