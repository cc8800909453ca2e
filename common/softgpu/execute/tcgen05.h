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
    bool sparse;     // .sp: half of A's elements are there
    bool shifts_a;   // .ashift: A's rows move down behind the product
    uint8_t block;   // elements of K that share a scale; 0: no scales
    uint8_t scale;   // D counts 2^-scale times
    TensorAddress d, a, metadata, scale_a, scale_b;
    Row a_descriptor, b_descriptor, instruction, enable, zero_mask;
    bool enabled;           // enable-input-d is the number 1, if `enable` is absent
    uint8_t disabled_count; // registers of disable-output-lane
    Row disabled[8];
} MmaForm;

// An instruction descriptor, decoded.
typedef struct {
    int m, n, k;
    int a_k; // elements of a row of A that are stored: k, or half of it
    MmaElement a, b;
    MmaResult d;
    bool negate_a, negate_b, a_mn_major, b_mn_major, saturate;
    bool scales_e8;     // UE8M0, else UE4M3
    uint8_t id_a, id_b; // which byte of a scale's column is the first
    uint8_t selector;   // .sp: which column of the pair has the metadata
    int scale_block;    // elements of k that share a scale: twice the form's if A is sparse
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
    int copies;     // of A and its metadata in tensor memory, fold_lanes apart
} Accumulator;
Accumulator mma_accumulator(const MmaForm *f, const MmaShape *s, uint32_t address);

// The part of a CTA's shared memory that A or B takes.
SharedOperand mma_operand(const MmaForm *f, const MmaShape *s, bool is_a, uint64_t descriptor);

// ---- tcgen05.mma.sp (execute/tcgen05_sparse.c)

// The first column of tensor memory that has the metadata, and how many do; `column` is that of the
// address, the first of a pair.
uint32_t metadata_first(const MmaShape *s, uint32_t column);
int metadata_columns(const MmaForm *f);

// Places in k of the elements of 16 rows that are stored: k[row][element].
typedef struct {
    uint8_t k[16][64];
} Places16;
// By the metadata from this column on, of the 16 rows whose first lane this is. False if the bits
// of a chunk mean nothing: *wrong are the first such, in the lane *at.
bool metadata_places(const MmaForm *f, const MmaShape *s, const Tmem *t, uint32_t column, int lane,
                     Places16 *places, uint32_t *wrong, int *at);
// 16 rows of A, stored[element][16], spread to a[k][16] with zeros between.
void sparse_expand(const MmaShape *s, const Places16 *places, const uint32_t *stored, uint32_t *a);
// What row r takes part in, and nothing else: its stored elements row_a[element][16], of which the
// other rows are zero, and the rows of B that they meet, columns_b[element][8].
void sparse_gather(const MmaShape *s, const Places16 *places, int r, const uint32_t *a,
                   const uint32_t *b, uint32_t *row_a, uint32_t *columns_b);

// ---- tcgen05.cp, .shift (execute/tcgen05_copy.c)

enum { SHIFT_COLUMNS = 8, SHIFT_LANES = 32 };
// Moves the rows of 8 columns down: lane r takes what lane r + 1 holds, up to the last of 32, which
// keeps what it has.
void tmem_shift(Tmem *t, uint32_t column, int lane);

typedef struct {
    uint8_t group;
    TensorAddress at;
} ShiftForm;

typedef struct {
    uint8_t group;
    uint8_t rows;      // of the source
    uint8_t row_bytes; // 16 or 32
    uint8_t copies;    // warpx2 02_13: 1, 01_23: 2; warpx4: 4; else 0
    bool spread;       // 4x256b: a row for each 32 lanes
    uint8_t unpack;    // bits of the source's elements that become bytes: 4 or 6; 0: as they are
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
// Has all of an operand in shared memory been written, with the swizzle that it is read with? Of
// each 16 bytes the first `used` count. Reports it once.
void tcgen05_shared_written(const TensorOp *op, const Cta *cta, const SharedOperand *o,
                            const Chunks *chunks, size_t used, const char *what);
// The CTAs that an instruction of this group means: the own one, and the pair's other one.
bool tcgen05_ctas(Warp *w, const Insn *i, int group, Cta *ctas[2]);
// Those of an operation that has been issued, the even rank first.
void tcgen05_op_ctas(const TensorOp *op, int group, Cta *ctas[2]);

// An operand [address]: at the lowering, NULL or what is wrong; and its value in a lane.
const char *tcgen05_address(Lowering *l, const PtxOperand *o, TensorAddress *a);
uint32_t tcgen05_address_at(const Warp *w, const TensorAddress *a, int lane);

#endif
