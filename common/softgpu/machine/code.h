// Decoded code: what lowering makes of PTX and what the machine executes.
//
// The unit of work is the warp. A register is a *row* of 32 lanes, stored at its natural width:
//
//   class        row            lane i
//   predicate      4 bytes      bit i of a uint32_t
//   8, 16 bits    64 bytes      uint16_t[32]  (8-bit values live in 16-bit rows)
//   32 bits      128 bytes      uint32_t[32]
//   64 bits      256 bytes      uint64_t[32]
//   128 bits     512 bytes      struct {uint64_t lo, hi}[32]
//
// Rows live in the warp's current frame; immediates are rows too (the value 32 times), in the
// kernel's constant pool, so that handlers read every operand the same way. Rows of different
// classes never overlap, so lanes of diverged groups can't disturb each other.
#ifndef SOFTGPU_CODE_H
#define SOFTGPU_CODE_H

#include "softgpu/ptx/writes.h"

typedef struct Warp Warp;
typedef struct Insn Insn;

// A reference to a row: byte offset in the frame, or, with ROW_CONSTANT set, in the constant pool.
// Offsets are multiples of 64, those of predicates multiples of 4.
typedef uint32_t Row;
#define ROW_CONSTANT 0x80000000u
#define ROW_NONE     0x7fffffffu // operand absent

// What the warp does after an instruction.
typedef enum {
    FLOW_NEXT,  // go on with the following instruction
    FLOW_JUMP,  // the handler has set the warp's pc (or switched its group)
    FLOW_RETRY, // could not run now: the running group was blocked; run the same instruction again
    FLOW_WAIT,  // done, but the running group was blocked: go on with the following one when woken
    FLOW_YIELD, // done; let another warp (or group) run first: polls, nanosleep
    FLOW_DEFER, // touches what other SMs see: run it again in the serial phase (machine.h)
    FLOW_FAULT, // a finding that ends the launch has been recorded
} Flow;

// `mask`: the lanes that execute (active and not switched off by the guard); never 0.
typedef Flow Handler(Warp *w, const Insn *i, uint32_t mask);

// The pipe that an instruction occupies. Order is that of the tables in timing/.
typedef enum {
    PIPE_NONE, // bookkeeping: labels, markers, nop
    PIPE_FMA,  // f32 add, mul, fma (and f16x2)
    PIPE_ALU,  // integer, logic, compare, select, min/max, move
    PIPE_IMAD, // integer multiply
    PIPE_FP64,
    PIPE_MUFU,    // ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh
    PIPE_CONVERT, // cvt
    PIPE_LSU,     // loads, stores, atomics, shuffles, ldmatrix
    PIPE_TENSOR,  // mma.sync, wgmma, tcgen05.mma
    PIPE_TMA,     // bulk copies
    PIPE_CONTROL, // branches, barriers, fences
    PIPE_COUNT,
} Pipe;

// One decoded instruction. Which fields mean what is the form's business (execute/form.h); the
// usual use: d = destination, a b c e = sources, imm = address offset or immediate.
struct Insn {
    Handler *run;
    Row d, a, b, c, e;
    Row guard; // predicate row or ROW_NONE
    uint64_t imm;
    const Row *rows;   // vector operands, operand lists: row_count references
    const void *extra; // decoded side data of the rarer forms (owned by the kernel's arena)
    uint32_t index;    // position in Kernel.code
    uint16_t row_count;
    bool guard_negated;
    uint8_t pipe;      // Pipe
    uint8_t size;      // element size in bytes of loads, stores, atomics
    uint8_t space;     // Space of memory operations
    uint8_t flags;     // INSN_…
    uint8_t choice[5]; // the form's modifier choices, see form.h
    uint32_t flops;    // floating-point operations per lane, for the counters
};
enum {
    INSN_ALIGNED = 1,    // .aligned: all live lanes of the warp must execute it together
    INSN_LEADER = 2,     // starts a basic block
    INSN_BACKWARD = 4,   // a branch that may go backwards: a point to yield
    INSN_POLL = 8,       // reads memory as a wait loop does (volatile, relaxed, acquire, try_wait)
    INSN_WIDE_BASE = 16, // address base row is 64 bits wide (else 32)
    INSN_ANYWHERE = 32,  // bar.warp.sync, barrier.sync: lanes that wait for each other may stand at
                         // different ones
};

// Where a group of lanes that a branch split comes together again: `pc` is the branch's immediate
// post-dominator, NULL when the paths only meet at the function's end.
typedef struct {
    const Insn *target; // bra: where taken lanes go
    const Insn *join;
    const Insn *const *table; // brx.idx: targets
    uint32_t table_count;
} Branch;

// A function in a kernel's code.
typedef struct {
    const PtxFunction *ptx;
    const Insn *entry;
    uint32_t frame_size; // bytes of rows + .param storage, multiple of 64
    uint32_t local_size; // bytes of .local storage per thread, multiple of 16
    uint64_t id;         // the value of its address (function pointers); 0 if never taken
} CodeFunction;

// A call, in Insn.extra. Parameters are bytes in lane-major storage inside frames:
// lane l of a region at offset o with stride s starts at frame + o + l * s.
typedef struct {
    const CodeFunction *callee; // NULL: indirect, Insn.a is the 64-bit row with the function's id
    Handler *builtin;           // vprintf, malloc, free, __assertfail: run instead of a callee
    int argument_count;
    struct CallArgument {
        uint32_t from, from_stride, to, to_stride, size;
    } * arguments;
    struct CallArgument result; // `from` the callee's frame `to` the caller's; size 0 if none
    // Indirect calls: `to` offsets are those of any function with this prototype; every function
    // lays out its parameters first, in order, from frame offset 0, so they agree.
} Call;

// What an instruction does with undefined values (check/definedness.h).
typedef enum {
    USES_PLAIN,       // its results are undefined where a source is
    USES_SELECT,      // selp: only the chosen source counts
    USES_AND,         // and: a defined 0 decides
    USES_OR,          // or: a defined "all ones" decides
    USES_MULTIPLY,    // integer mul, mad: a defined 0 decides the product
    USES_COMPARE_AND, // setp.and: a defined false predicate decides
    USES_COMPARE_OR,
    // From here on a guard must be defined.
    USES_MATRIX, // results count as defined
    USES_LOAD,
    USES_LOAD_PARAM, // .param storage of calls, in the frame: imm is region | byte << 32
    USES_STORE,
    USES_STORE_PARAM,
    USES_ATOMIC,
    USES_EXCHANGE, // atom.exch: what it finds only goes into its result
    USES_SYNC,     // barriers, copies, ends of threads: all that they read must be defined
    USES_SHUFFLE,
    USES_GATHER, // vote, match, redux
    USES_BRANCH,
    USES_CALL,
} UsesRule;
// A register that an instruction reads or writes: its row, with one of these in the low bits.
typedef uint32_t Use;
enum { USE_READ, USE_WRITE, USE_ADDRESS, USE_KINDS = 3 };
enum { USES_CARRY_IN = 1, USES_CARRY_OUT = 2 };

// A kernel made ready to run on the modelled GPU, with every function that it can reach.
typedef struct Kernel {
    const char *name; // mangled
    const PtxFunction *ptx;
    Insn *code;
    uint32_t code_count;
    const PtxLocation **locations; // per instruction
    const char **texts;            // per instruction: the full opcode, for reports
    const uint8_t *constants;      // constant pool, 64-byte aligned
    uint32_t constant_size;
    CodeFunction *functions; // functions[0] is the entry
    int function_count;

    // Resources.
    uint32_t registers; // per thread, as the machine code has it, or estimated
    bool registers_estimated;
    uint32_t shared_static;  // bytes of static shared memory
    uint32_t shared_base;    // first usable shared address (0x400; jittered by the schedule)
    uint32_t shared_dynamic; // shared address where dynamic shared memory starts
    bool shared_scratch;     // it asks where the system's shared memory is, and may use it
    uint32_t local_size;     // bytes of stack per thread that the static call graph needs
    bool recursive;          // a cycle or an indirect call: local_size is only a start
    uint32_t param_size;     // bytes of the entry's parameter block
    int param_count;
    struct KernelParam {
        uint32_t offset, size;
    } * params;

    KernelWrites writes; // where its stores to global memory may go
    uint64_t schedule;   // Linker.schedule when it was lowered
    // Registers that some path reads before anything wrote them, per function.
    struct KernelUnwritten {
        int function;
        Row row;
        const char *name;
    } * unwritten;
    int unwritten_count;
    // Loads of which not all bytes matter (.pragma "used_bytes_mask"), in the order of the code.
    struct KernelUsed {
        uint32_t index, bytes;
    } * used;
    int used_count;
    // What instruction i reads and writes: touched[uses[i].first] and the count - 1 behind it.
    // NULL in kernels made by hand.
    struct KernelUses {
        uint32_t first;
        uint16_t count;
        uint8_t rule, width, carry;
    } * uses;
    const Use *touched;
    // Per instruction: does it touch a register of some wgmma.mma_async? NULL if there is none.
    const uint8_t *in_flight;

    // Constant rows that hold addresses of shared memory: in a cluster, other than the first CTA's
    // have a rank to carry. `width`: bytes of a lane, 4 or 8.
    struct KernelSharedConstant {
        uint32_t offset, width;
    } * shared_constants;
    int shared_constant_count;

    void *arena;
    void *pace; // what timing/pace_kernel.c knows of it, and how that is freed
    void (*pace_free)(void *);
} Kernel;

// ---- lowering (ptx/lower.c)

// How lowering learns what lies outside the function: addresses of variables and functions.
// Implemented by ptx/link.c; a test may bring its own.
typedef struct Linker Linker;
struct Linker {
    // The variable or function that `name` means in `module`; definitions in sibling modules count.
    const PtxVariable *(*variable)(Linker *, const PtxModule *, const char *name);
    PtxFunction *(*function)(Linker *, const PtxModule *, const char *name);
    // Device address of a .global or .const variable.
    uint64_t (*address)(Linker *, const PtxVariable *);
    // Value of a function's address (non-zero, the same for the life of the program).
    uint64_t (*function_id)(Linker *, const PtxFunction *);
    // Calls `visit` for each function whose address is taken anywhere in the linked modules.
    void (*each_taken)(Linker *, void (*visit)(void *context, PtxFunction *), void *context);
    // Settings.schedule: other than 0 moves shared memory to an address that is aligned as declared
    // and no better. To be set before kernel_lower; a kernel keeps the one it was lowered for.
    uint64_t schedule;
    // Under all schedules shared memory starts at a multiple of 1024, and what stands in it follows
    // as closely as its alignment allows: as on GPUs, and programs count on it (CUTLASS declares no
    // alignment for what TMA and wgmma use).
    bool usual_alignment;
};

// Lowers an entry and all that it calls. NULL and *error when the PTX is broken; an instruction
// that has no form is not an error (it traps, by name, when reached). `registers` is the count from
// the cubin, 0 if unknown.
Kernel *kernel_lower(PtxFunction *entry, Linker *linker, uint32_t registers, PtxError *error);
void kernel_free(Kernel *kernel);

#endif
