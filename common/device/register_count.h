// Moves registers from one warpgroup to another (setmaxnreg, PTX ISA 9.7.19.5).
//
// All threads start with the same count. A producer that only starts copies gives most of its away,
// and those who compute take them. Rules: all warps of a warpgroup execute it; the count is a
// multiple of 8 from 24 to 256; taking waits until others have given. The kernel must be compiled
// for a fixed number of threads: __launch_bounds__(threads, 1), else ptxas ignores it (C7508).
#ifndef REGISTER_COUNT_H
#define REGISTER_COUNT_H

// Down to REGISTERS a thread.
template <int REGISTERS> __device__ static inline void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Up to REGISTERS a thread; the new ones hold nothing yet.
template <int REGISTERS> __device__ static inline void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

#endif
