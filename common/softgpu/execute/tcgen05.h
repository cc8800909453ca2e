// What a tcgen05 instruction is made of, in Insn.extra (PTX ISA 9.7.16).
#ifndef SOFTGPU_EXECUTE_TCGEN05_H
#define SOFTGPU_EXECUTE_TCGEN05_H

#include "softgpu/execute/descriptor.h"
#include "softgpu/execute/execute.h"
#include "softgpu/machine/tcgen05.h"
#include "softgpu/machine/tmem.h"

// ---- tcgen05.ld, .st: registers in Insn.rows, the address in Insn.a and .imm

typedef enum { MOVE_32X32B, MOVE_16X64B, MOVE_16X128B, MOVE_16X256B, MOVE_16X32BX2 } MoveShape;
typedef struct {
    MoveShape shape;
    uint16_t repeat; // .x1 to .x128
    bool packed;     // .pack::16b, .unpack::16b: a register holds the low halves of two columns
    bool stores;
    uint32_t second;         // 16x32bx2: columns from the first half to the second
    uint32_t reach;          // columns from the first to the last one touched, and it
    uint16_t half_registers; // that it takes the time of, at the port
} MoveForm;

// Where register j of a lane lies: lanes above the address's, and columns, in units that .pack::16b
// doubles. (16x32bx2's second half is beside that.)
typedef struct {
    uint32_t lane, column;
} MovePlace;
MovePlace move_place(MoveShape shape, int j, int lane);

extern Handler tcgen05_load;

// ---- tcgen05.mma

typedef enum {
    KIND_F16,
    KIND_TF32,
    KIND_F8F6F4,
    KIND_I8,
    KIND_MXF8F6F4,
    KIND_MXF4,
    KIND_MXF4NVF4,
} MmaKind;

// Types of elements of A and B.
typedef enum {
    MMA_F16,
    MMA_BF16,
    MMA_TF32,
    MMA_E4M3,
    MMA_E5M2,
    MMA_E2M3,
    MMA_E3M2,
    MMA_E2M1,        // one in 8 bits
    MMA_E2M1_PACKED, // two in 8 bits
    MMA_U8,
    MMA_S8,
} MmaElement;
typedef enum { RESULT_F16, RESULT_F32, RESULT_S32 } MmaResult;

typedef struct {
    Row row;
    uint32_t offset;
} TensorAddress; // an operand [row + offset]; row ROW_NONE: the operand is absent

typedef struct {
    MmaKind kind;
    uint8_t group;   // of CTAs: 1 or 2
    bool a_tensor;   // A lies in tensor memory
    bool stationary; // .ws
    uint8_t block;   // elements of K that share a scale; 0: no scales
    uint8_t scale;   // D counts 2^-scale times
    TensorAddress d, a, scale_a, scale_b;
    Row a_descriptor, b_descriptor, instruction, enable, zero_mask;
    bool enabled;           // enable-input-d is the number 1, if `enable` is absent
    uint8_t disabled_count; // registers of disable-output-lane
    Row disabled[8];
} MmaForm;

// An instruction descriptor, decoded.
typedef struct {
    int m, n, k;
    MmaElement a, b;
    MmaResult d;
    bool negate_a, negate_b, a_mn_major, b_mn_major, saturate;
    bool scales_e8;     // UE8M0, else UE4M3
    uint8_t id_a, id_b; // which byte of a scale's column is the first
} MmaShape;

// Decodes it. False, and why, in one sentence, if a field can't be what it is.
bool mma_shape(const MmaForm *f, uint32_t bits, MmaShape *s, char *why, size_t size);

static inline int mma_bits(MmaElement e) { // in shared memory, of a place
    return e <= MMA_BF16 ? 16 : e == MMA_TF32 ? 32 : e == MMA_E2M1_PACKED ? 4 : 8;
}

// How an accumulator lies in tensor memory, for a CTA: rows of 16 stay together.
typedef struct {
    int rows;       // of this CTA
    int row_lanes;  // from 16 rows to the next 16: lanes
    int fold;       // columns behind which it goes on
    int fold_lanes; // … so many lanes further
    int first;      // lane
} Accumulator;
Accumulator mma_accumulator(const MmaForm *f, const MmaShape *s, uint32_t address);

// The part of a CTA's shared memory that A or B takes.
SharedOperand mma_operand(const MmaForm *f, const MmaShape *s, bool is_a, uint64_t descriptor);

// tcgen05.cp
typedef struct {
    uint8_t group;
    uint8_t rows;      // of the source
    uint8_t row_bytes; // 16 or 32
    uint8_t copies;    // warpx2 02_13: 1, 01_23: 2; warpx4: 4; else 0
    bool spread;       // 4x256b: a row for each 32 lanes
    TensorAddress to;
    Row from;
} CopyForm;
// Lane of row r of the source in its copy number c, or -1 if there is no such copy.
int copy_lane(const CopyForm *f, int r, int c);
SharedOperand copy_operand(const CopyForm *f, uint64_t descriptor);

// ---- execute/tcgen05_check.c: false after a finding

// The value of a register that all lanes of the warp share.
bool tcgen05_uniform(Warp *w, const Insn *i, uint32_t all, const uint32_t *lanes, const char *what,
                     uint32_t *value);
// Are these columns of tensor memory the CTA's?
bool tcgen05_columns(Warp *w, const Insn *i, int lane, const Cta *cta, uint32_t address,
                     uint32_t columns, const char *what);
// Is this descriptor one, and its part of shared memory the CTA's?
bool tcgen05_descriptor(Warp *w, const Insn *i, int lane, const Cta *cta, const SharedOperand *o,
                        uint64_t bits, const char *what);

#endif
