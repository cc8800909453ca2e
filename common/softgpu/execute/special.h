// The special registers of PTX (PTX ISA 10) as one enumeration.
//
// Lowering never lets a special register reach an instruction's handler: it puts a hidden
// instruction before it, whose handler is `read_special` (execute/move.c), which writes the value
// into a row:
//
//     Insn.d     the row;  Insn.size = bytes of an element: 2, 4 or 8, or 0 for a predicate row
//     Insn.imm   the enum SpecialRegister
//
// Values wider than the row are cut, narrower ones zero-extended.
#ifndef SOFTGPU_SPECIAL_H
#define SOFTGPU_SPECIAL_H

#include <stdbool.h>

// Groups of three (.x .y .z) and of numbers are consecutive, so that handlers can subtract.
typedef enum {
    SPECIAL_TID_X,
    SPECIAL_TID_Y,
    SPECIAL_TID_Z,
    SPECIAL_NTID_X,
    SPECIAL_NTID_Y,
    SPECIAL_NTID_Z,
    SPECIAL_CTAID_X,
    SPECIAL_CTAID_Y,
    SPECIAL_CTAID_Z,
    SPECIAL_NCTAID_X,
    SPECIAL_NCTAID_Y,
    SPECIAL_NCTAID_Z,
    SPECIAL_CLUSTERID_X,
    SPECIAL_CLUSTERID_Y,
    SPECIAL_CLUSTERID_Z,
    SPECIAL_NCLUSTERID_X,
    SPECIAL_NCLUSTERID_Y,
    SPECIAL_NCLUSTERID_Z,
    SPECIAL_CLUSTER_CTAID_X,
    SPECIAL_CLUSTER_CTAID_Y,
    SPECIAL_CLUSTER_CTAID_Z,
    SPECIAL_CLUSTER_NCTAID_X,
    SPECIAL_CLUSTER_NCTAID_Y,
    SPECIAL_CLUSTER_NCTAID_Z,
    SPECIAL_CLUSTER_CTARANK,
    SPECIAL_CLUSTER_NCTARANK,
    SPECIAL_IS_EXPLICIT_CLUSTER, // a predicate
    SPECIAL_LANEID,
    SPECIAL_WARPID,
    SPECIAL_NWARPID,
    SPECIAL_SMID,
    SPECIAL_NSMID,
    SPECIAL_GRIDID, // 64 bits
    SPECIAL_LANEMASK_EQ,
    SPECIAL_LANEMASK_LE,
    SPECIAL_LANEMASK_LT,
    SPECIAL_LANEMASK_GE,
    SPECIAL_LANEMASK_GT,
    SPECIAL_CLOCK,
    SPECIAL_CLOCK_HI,
    SPECIAL_CLOCK64, // 64 bits
    SPECIAL_PM0,
    SPECIAL_PM7 = SPECIAL_PM0 + 7,
    SPECIAL_PM0_64,
    SPECIAL_PM7_64 = SPECIAL_PM0_64 + 7, // 64 bits
    SPECIAL_ENVREG0,
    SPECIAL_ENVREG31 = SPECIAL_ENVREG0 + 31,
    SPECIAL_GLOBALTIMER, // 64 bits
    SPECIAL_GLOBALTIMER_LO,
    SPECIAL_GLOBALTIMER_HI,
    SPECIAL_RESERVED_SMEM_BEGIN,
    SPECIAL_RESERVED_SMEM_END,
    SPECIAL_RESERVED_SMEM_CAP,
    SPECIAL_RESERVED_SMEM_0,
    SPECIAL_RESERVED_SMEM_1,
    SPECIAL_TOTAL_SMEM_SIZE,
    SPECIAL_AGGR_SMEM_SIZE,
    SPECIAL_DYNAMIC_SMEM_SIZE,
    SPECIAL_CURRENT_GRAPH_EXEC, // 64 bits
    SPECIAL_WARP_SZ,            // lowering makes it the constant 32
    SPECIAL_COUNT,
} SpecialRegister;

// Does it tell the time?
static inline bool special_is_clock(SpecialRegister s) {
    return (s >= SPECIAL_CLOCK && s <= SPECIAL_PM7_64) ||
           (s >= SPECIAL_GLOBALTIMER && s <= SPECIAL_GLOBALTIMER_HI);
}

// The special register that a PTX name ("%tid.x", "WARP_SZ") means, -1 if there is none.
int special_from_name(const char *name);

#endif
