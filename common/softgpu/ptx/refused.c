// The forms that ptxas 13.0 takes and softgpu doesn't execute, each with the reason that its trap
// gives when an instruction of it is reached. Kept beside the tables of forms so that the README's
// table says both, and so that nobody has to guess whether a form was forgotten or left away.
//
// The modifiers are a set as in execute/form.h. A set that ends in * takes whatever else stands
// there: whole families of which nothing is built. What is neither here nor in the tables of forms
// is refused all the same, with what the nearest forms take.
#include <string.h>

#include "softgpu/ptx/table.h"

#define SPARSE   "sparse products are not built"
#define SMALL    "wmma of 4-bit integers and of single bits is not built; mma's is"
#define IM2COL   "im2col copies are not built"
#define SEVERAL  "addresses that stand for the memory of several GPUs are not built"
#define STACK    "a stack that grows while the thread runs is not built"
#define TEXTURES "textures and surfaces are not built"
#define VIDEO    "video instructions are not built"
#define SCALED   "products of 4-bit and 6-bit floats, and with scales for blocks, are not built"

#define HINT       "L2::cache_hint?"
#define SCOPE      "cta|cluster|gpu|sys? global? "
#define LD_REDUCE  "ld_reduce weak|relaxed|acquire? " SCOPE
#define MULTI_RED  "red relaxed|release? " SCOPE
#define MULTI_HALF "v2|v4|v8? f16|f16x2|bf16|bf16x2"
#define SPARSE_MMA "sp|sp::ordered_metadata sync aligned row col "
#define SMALL_WMMA "sync aligned row|col m8n8k32|m8n8k128 global|shared|shared::cta? "

const RefusedForm refused_forms[] = {
    {"alloca", "u32|u64", STACK},
    {"stackrestore", "u32|u64", STACK},
    {"stacksave", "u32|u64", STACK},

    {"mov", "v4 b16|u16|s16|b32|u32|s32",
     "a special register as a vector is not built; its parts are, as %tid.x"},
    {"fma", "rn oob relu? f16|bf16|f16x2|bf16x2", "the values of oob are not built"},

    {"mma", SPARSE_MMA "m16n8k16|m16n8k32 f16|f32 f16 f16 f16|f32", SPARSE},
    {"mma", SPARSE_MMA "m16n8k16|m16n8k32 f32 bf16 bf16 f32", SPARSE},
    {"mma", SPARSE_MMA "m16n8k8|m16n8k16 f32 tf32 tf32 f32", SPARSE},
    {"mma", SPARSE_MMA "m16n8k64 f16|f32 e4m3|e5m2 e4m3|e5m2 f16|f32", SPARSE},
    {"mma", SPARSE_MMA "m16n8k32|m16n8k64 satfinite? s32 s8|u8 s8|u8 s32", SPARSE},
    {"mma", SPARSE_MMA "m16n8k64|m16n8k128 satfinite? s32 s4|u4 s4|u4 s32", SPARSE},
    {"mma", "kind::f8f6f4|kind::mxf8f6f4|kind::mxf4|kind::mxf4nvf4 *", SCALED},
    {"wgmma", "mma_async sp sync aligned m64n#k32 f16|f32 f16 f16", SPARSE},
    {"wgmma", "mma_async sp sync aligned m64n#k32 f32 bf16 bf16", SPARSE},
    {"wgmma", "mma_async sp sync aligned m64n#k16 f32 tf32 tf32", SPARSE},
    {"wgmma", "mma_async sp sync aligned m64n#k64 f16|f32 e4m3|e5m2 e4m3|e5m2", SPARSE},
    {"wgmma", "mma_async sp sync aligned m64n#k64 satfinite? s32 s8|u8 s8|u8", SPARSE},
    {"wmma", "load a|b " SMALL_WMMA "s4|u4|b1", SMALL},
    {"wmma", "load c " SMALL_WMMA "s32", SMALL},
    {"wmma", "store d " SMALL_WMMA "s32", SMALL},
    {"wmma", "mma sync aligned row col m8n8k32 satfinite? s32 s4 s4 s32", SMALL},
    {"wmma", "mma sync aligned row col m8n8k32 satfinite? s32 u4 u4 s32", SMALL},
    {"wmma", "mma and|xor popc sync aligned row col m8n8k128 s32 b1 b1 s32", SMALL},

    {"cp",
     "async bulk tensor 3d|4d|5d shared::cta|shared::cluster global "
     "im2col|im2col::w|im2col::w::128 mbarrier::complete_tx::bytes multicast::cluster? "
     "cta_group::1|cta_group::2? " HINT,
     IM2COL},
    {"cp", "async bulk tensor 3d|4d|5d global shared::cta im2col_no_offs bulk_group " HINT, IM2COL},
    {"cp",
     "reduce async bulk tensor 3d|4d|5d global shared::cta add|min|max|inc|dec|and|or|xor "
     "im2col_no_offs bulk_group " HINT,
     IM2COL},
    {"cp", "async bulk prefetch tensor 3d|4d|5d L2 global im2col|im2col::w|im2col::w::128 " HINT,
     IM2COL},

    {"multimem", LD_REDUCE "add u32|s32|u64", SEVERAL},
    {"multimem", LD_REDUCE "min|max u32|s32|u64|s64", SEVERAL},
    {"multimem", LD_REDUCE "and|or|xor b32|b64", SEVERAL},
    {"multimem", LD_REDUCE "add v2|v4? f32|f64", SEVERAL},
    {"multimem", LD_REDUCE "add acc::f32? " MULTI_HALF, SEVERAL},
    {"multimem", LD_REDUCE "min|max " MULTI_HALF, SEVERAL},
    {"multimem",
     "st weak|relaxed|release? " SCOPE
     "v2|v4|v8? b32|b64|u32|u64|s32|s64|f32|f64|f16|f16x2|bf16|bf16x2",
     SEVERAL},
    {"multimem", MULTI_RED "add u32|s32|u64", SEVERAL},
    {"multimem", MULTI_RED "min|max u32|s32|u64|s64", SEVERAL},
    {"multimem", MULTI_RED "and|or|xor b32|b64", SEVERAL},
    {"multimem", MULTI_RED "add v2|v4? f32|f64", SEVERAL},
    {"multimem", MULTI_RED "add|min|max " MULTI_HALF, SEVERAL},

    {"istypep", "texref|samplerref|surfref", TEXTURES},
    {"suld", "*", TEXTURES},
    {"suq", "*", TEXTURES},
    {"sured", "*", TEXTURES},
    {"sust", "*", TEXTURES},
    {"tex", "*", TEXTURES},
    {"tld4", "*", TEXTURES},
    {"txq", "*", TEXTURES},

    {"vabsdiff", "*", VIDEO},
    {"vabsdiff2", "*", VIDEO},
    {"vabsdiff4", "*", VIDEO},
    {"vadd", "*", VIDEO},
    {"vadd2", "*", VIDEO},
    {"vadd4", "*", VIDEO},
    {"vavrg2", "*", VIDEO},
    {"vavrg4", "*", VIDEO},
    {"vmad", "*", VIDEO},
    {"vmax", "*", VIDEO},
    {"vmax2", "*", VIDEO},
    {"vmax4", "*", VIDEO},
    {"vmin", "*", VIDEO},
    {"vmin2", "*", VIDEO},
    {"vmin4", "*", VIDEO},
    {"vset", "*", VIDEO},
    {"vset2", "*", VIDEO},
    {"vset4", "*", VIDEO},
    {"vshl", "*", VIDEO},
    {"vshr", "*", VIDEO},
    {"vsub", "*", VIDEO},
    {"vsub2", "*", VIDEO},
    {"vsub4", "*", VIDEO},

    // Of newer architectures than Hopper's.
    {"cvt", "rs *", "stochastic rounding is not built"},
    {"red",
     "async mmio? relaxed|release cta|cluster|gpu|sys global add|min|max|inc|dec|and|or|xor "
     "u32|s32|u64|s64|b32|b64",
     "asynchronous reductions in global memory are not built"},
    {"st",
     "async mmio? relaxed|release|weak? cta|cluster|gpu|sys? global "
     "v2|v4? b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64",
     "asynchronous stores to global memory are not built"},
    {"tcgen05", "ld red *", "loads from tensor memory that reduce (sm_103a) are not built"},
    {0},
};

// Why this instruction is refused, by the first row that takes its name and modifiers; NULL if no
// row does.
const char *refused_why(const PtxInstruction *p) {
    uint8_t choice[16];
    for (const RefusedForm *f = refused_forms; f->name; f++)
        if (!strcmp(f->name, p->opcode) && modifiers_match(f->modifiers, p, choice)) return f->why;
    return NULL;
}
