// The syntax tree of a PTX module, and how to get one.
//
//   text ──ptx_index──► PtxModule (variables parsed, functions only located)
//                          │
//                          └──ptx_parse_function──► body of one function
//
// Real programs hold hundreds of thousands of lines, so a module is indexed once and a function's
// body is parsed when a kernel that needs it is first launched. Everything that a module owns
// lives in its arena and is released by ptx_free.
#ifndef SOFTGPU_PTX_H
#define SOFTGPU_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum {
    SPACE_NONE, // no state space named: a generic address
    SPACE_REG,
    SPACE_CONST,
    SPACE_GLOBAL,
    SPACE_LOCAL,
    SPACE_PARAM, // parameters of an entry, or of a call
    SPACE_SHARED,
    SPACE_TENSOR, // tensor memory (tcgen05)
} Space;

// A fundamental PTX type (PTX ISA 5.2).
typedef enum {
    TYPE_NONE,
    TYPE_PRED,
    TYPE_B8,
    TYPE_B16,
    TYPE_B32,
    TYPE_B64,
    TYPE_B128,
    TYPE_U8,
    TYPE_U16,
    TYPE_U32,
    TYPE_U64,
    TYPE_S8,
    TYPE_S16,
    TYPE_S32,
    TYPE_S64,
    TYPE_F16,
    TYPE_F16X2,
    TYPE_BF16,
    TYPE_BF16X2,
    TYPE_F32,
    TYPE_F64,
} Type;

// Size of a type in bytes; 0 for TYPE_NONE and TYPE_PRED.
unsigned type_size(Type type);

// One frame of a source position. `inlined_at` leads outwards, from the innermost inlined function
// to the function of the kernel itself.
typedef struct PtxLocation PtxLocation;
// Each PTX line has records of its own: compare file and line, not pointers.
struct PtxLocation {
    const char *file;     // path as nvcc wrote it, or NULL where the program has no -lineinfo
    const char *function; // mangled name of the inlined function, or NULL
    uint32_t line;        // in `file`; 0 = unknown
    uint32_t ptx_line;    // in the PTX text: what to show when there is nothing else
    const PtxLocation *inlined_at;
};

typedef struct PtxOperand PtxOperand;
typedef struct PtxInstruction PtxInstruction;
typedef struct PtxVariable PtxVariable;
typedef struct PtxFunction PtxFunction;
typedef struct PtxModule PtxModule;

typedef enum {
    OPERAND_SINK,     // _
    OPERAND_REGISTER, // register
    OPERAND_SPECIAL,  // name: %tid.x, %clock64, WARP_SZ, …
    OPERAND_INTEGER,  // bits: an integer literal, two's complement
    OPERAND_FLOAT,    // bits: float_bits = 32 (0f…) or 64 (0d… and decimals)
    OPERAND_SYMBOL,   // variable, or function; plus offset
    OPERAND_LABEL,    // target: an index into the function's instructions
    OPERAND_ADDRESS,  // [base + offset]; base is elements[0]; elements[1] = the {…} of a tensor
    OPERAND_VECTOR,   // {a, b, …}: elements
    OPERAND_LIST,     // (a, b, …): the parameter lists of call
} OperandKind;

struct PtxOperand {
    OperandKind kind;
    bool negated;          // !p of a predicate; -x of a symbol never occurs
    uint8_t float_bits;    // OPERAND_FLOAT
    int reg;               // OPERAND_REGISTER: index into PtxFunction.registers
    int pair;              // register after '|' (d|p), -1 if none, PAIR_SINK for d|_
    uint64_t bits;         // OPERAND_INTEGER, OPERAND_FLOAT
    int64_t offset;        // OPERAND_SYMBOL, OPERAND_ADDRESS
    int target;            // OPERAND_LABEL
    const char *name;      // the text of a symbol, special register or label; always set for those
    PtxVariable *variable; // OPERAND_SYMBOL: resolved variable (function scope first), or NULL
    PtxFunction *function; // OPERAND_SYMBOL: resolved function of this module, or NULL.
                           // Both NULL: not in this module; the linker looks `name` up elsewhere
    int count;             // elements of ADDRESS, VECTOR, LIST
    PtxOperand *elements;
};
enum { PAIR_SINK = -2 };

// Operands stand as they were written. So a call has: an optional LIST of results; the callee, a
// SYMBOL or a REGISTER; an optional LIST of arguments; for indirect calls a SYMBOL that names the
// .callprototype (see `prototype`) or .calltargets. brx.idx has its index and a LABEL (target -1)
// that names the .branchtargets; see `branch_targets`.

struct PtxInstruction {
    const char *opcode;           // first part: "ld". Interned: compare pointers or strcmp
    const char *full;             // as written: "ld.global.nc.v4.u32". Interned
    const char *const *modifiers; // parts after the dots, in the order written, e.g. "shared::cta"
    int modifier_count;
    int guard;          // predicate register of @p, -1 if none
    bool guard_negated; // @!p
    int operand_count;
    PtxOperand *operands;
    const PtxLocation *location;
    const int *branch_targets; // brx.idx: instruction indices of its .branchtargets
    int branch_target_count;
    const PtxFunction *prototype; // indirect call: its .callprototype (parameters only)
    uint32_t used_bytes; // a load's .pragma "used_bytes_mask": a bit per byte that matters; 0 = all
};

// A module variable, a function's variable, or a parameter.
struct PtxVariable {
    const char *name;
    Space space;
    Type type;      // element type
    uint32_t align; // bytes
    uint64_t count; // elements; 1 for scalars; 0 for extern arrays without a size (dynamic shared)
    uint64_t size;  // bytes = count * vector * type_size
    bool is_extern, is_visible, is_managed, is_weak;
    PtxFunction *owner; // function that declares it, or NULL for a module variable
    // Initialiser: `data` (size bytes; NULL = zeros), then address fix-ups applied over it.
    uint8_t *data;
    int fixup_count;
    struct PtxFixup {
        uint64_t offset; // byte offset within the variable
        uint8_t size;    // bytes of the address that are stored: 8 or 4, or 1 with a mask
        uint8_t shift;   // 0xFF(sym) masks: store (address >> shift) & 0xff
        bool generic;    // generic(sym): the generic address; the same here, global is generic
        const char *symbol;
        int64_t addend;
        PtxVariable *variable;
        PtxFunction *function;
    } * fixups;
};

typedef struct {
    const char *name; // "%r7", unique within the function after scopes are resolved
    Type type;
} PtxRegister;

struct PtxFunction {
    PtxModule *module;
    const char *name;
    bool is_entry, is_declaration, is_visible, is_weak, no_return;
    uint32_t ptx_line;           // line of the directive
    size_t text_begin, text_end; // its body in the module's text, braces included
    int return_count, param_count;
    PtxVariable **returns, **params;

    // Performance directives; 0 = absent.
    uint32_t maxntid[3], reqntid[3], reqnctapercluster[3];
    uint32_t minnctapersm, maxnreg, maxclusterrank;
    bool explicit_cluster, blocks_are_clusters;

    // Filled by ptx_parse_function.
    bool parsed;
    int register_count;
    PtxRegister *registers;
    int variable_count;
    PtxVariable **variables; // .shared, .local, .param declared inside, all scopes
    int instruction_count;
    PtxInstruction *instructions;
};

struct PtxModule {
    const char *text; // owned copy, NUL-terminated
    size_t length;
    int version;        // 10 * major + minor: 90
    int target_sm;      // 80, 90, 100
    char target_suffix; // 'a', 'f', or 0
    int variable_count;
    PtxVariable **variables;
    int function_count;
    PtxFunction **functions;
    void *arena; // private
};

static inline bool ptx_has_modifier(const PtxInstruction *p, const char *modifier) {
    for (int k = 0; k < p->modifier_count; k++)
        if (!strcmp(p->modifiers[k], modifier)) return true;
    return false;
}

// Why parsing failed, for a person. `line` counts from 1 in the PTX text.
typedef struct {
    uint32_t line;
    char message[240];
} PtxError;

// The functions below change the module, so one thread at a time may use a module.

// Indexes a module's text (copied). NULL and *error on malformed text.
PtxModule *ptx_index(const char *text, size_t length, PtxError *error);

// Parses a function's body if that has not been done. An instruction whose operands can't be parsed
// is not an error: it becomes the opcode "<unparsed>" with the text in `full`, and traps when
// reached. false and *error only when the body's structure (scopes, labels, declarations) is broken.
bool ptx_parse_function(PtxFunction *function, PtxError *error);

PtxFunction *ptx_find_function(const PtxModule *module, const char *name);
PtxVariable *ptx_find_variable(const PtxModule *module, const char *name);

void ptx_free(PtxModule *module);

#endif
