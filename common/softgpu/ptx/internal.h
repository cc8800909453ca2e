// What the files of the PTX front end share: names, scopes, the parser's state.
//
// Every identifier is interned once per module as a Name, which also carries what the identifier
// means just now: so a look-up is a pointer, not a search. While a function's body is parsed, a
// Name's `binding` is its innermost declaration; leaving a scope puts the outer one back. Between
// two functions all bindings are NULL.
#ifndef SOFTGPU_PTX_INTERNAL_H
#define SOFTGPU_PTX_INTERNAL_H

#include <setjmp.h>

#include "softgpu/ptx/arena.h"
#include "softgpu/ptx/lexer.h"
#include "softgpu/ptx/ptx.h"

typedef struct Name Name;
typedef struct Binding Binding;
typedef struct Range Range;
typedef struct Label Label;
typedef struct Opcode Opcode;
typedef struct Module Module;
typedef struct Parser Parser;

// An opcode cut into its parts, once per distinct text.
struct Opcode {
    const char *first;
    const char *const *modifiers;
    int modifier_count; // -1: more than anything real has
};

struct Name {
    Name *next; // in the bucket
    uint32_t hash, length;
    // Module scope.
    PtxVariable *variable;
    PtxFunction *function;
    uint64_t string_offset; // a label in .debug_str: offset + 1
    // The function being parsed.
    Binding *binding;
    Range *range; // as the prefix of %r<N>
    Label *label;
    uint32_t reference; // newest unresolved reference to a label of this name, + 1
    uint32_t registers; // so named in function number `registers_of`
    uint32_t registers_of;
    // Caches.
    bool split;   // prefix and number are known
    Name *prefix; // "%r" of "%r12", NULL if the name has no number at its end
    uint64_t number;
    const Opcode *opcode;
    char text[];
};

typedef enum { BIND_REGISTER, BIND_VECTOR, BIND_VARIABLE } BindingKind;

// What a name means in a scope.
struct Binding {
    BindingKind kind;
    int depth; // of the scope it belongs to
    Name *name;
    Binding *outer;    // what the name meant outside
    Binding *in_scope; // next of the same scope
    Type type;
    int reg;           // index of the register, -1 until its first use
    int width;         // BIND_VECTOR: elements
    Binding *elements; // BIND_VECTOR: registers name.x …; only reached through the vector
    PtxVariable *variable;
};

// .reg .b32 %r<100>: a hundred registers, which come into being when they are used.
struct Range {
    Name *prefix;
    Type type;
    uint64_t count;
    int depth;
    Range *outer, *in_scope;
};

struct Label {
    Name *name;
    int index; // of the instruction behind it
    int depth;
    Label *outer, *in_scope;
    int *table; // .branchtargets
    int table_count;
    bool is_table, is_call_table;
    const PtxFunction *prototype; // .callprototype
};

typedef struct {
    Binding *bindings;
    Range *ranges;
    Label *labels;
    uint32_t first_reference; // references made before this scope began
} Scope;

// A use of a label, resolved when the innermost scope that declares it ends.
typedef struct {
    enum { REFER_BRANCH, REFER_TABLE_ENTRY, REFER_TABLE, REFER_PROTOTYPE } kind;
    Name *name;
    uint32_t previous; // unresolved reference to the same name, + 1; 0 = none
    uint32_t line;
    int *slot;       // REFER_BRANCH, REFER_TABLE_ENTRY
    int instruction; // REFER_TABLE, REFER_PROTOTYPE
} Reference;

// A position that a .loc directive gave, by (file, line, column): inlined_at names these.
typedef struct {
    uint32_t file, line, column;
    const PtxLocation *location;
    uint32_t function; // number of the function that it is valid in
    uint32_t depth;    // frames
} Position;

struct Module {
    PtxModule ptx; // first: a PtxModule is a Module
    Arena *arena;
    Name **buckets;
    size_t bucket_count, name_count;
    uint32_t functions_parsed;
    uint64_t data_bytes; // of initialisers
    // .file and .debug_str
    const char **files;
    uint32_t file_capacity;
    char *strings;
    size_t string_length, string_capacity;
    Position *positions; // hash table
    size_t position_capacity, position_count;
    size_t variable_capacity, function_capacity;
};

typedef struct {
    PtxFunction ptx; // first
    uint32_t body_line;
    bool has_body;
} Function;

enum { SCOPES_MAX = 256 };

struct Parser {
    Module *module;
    Lexer lexer;
    PtxError *error;
    jmp_buf failed;
    // The function being parsed.
    PtxFunction *function;
    uint32_t number; // of this function, unique in the module
    Scope scopes[SCOPES_MAX];
    int depth;                   // scopes[depth] is the innermost
    const PtxLocation *location; // of the last .loc
    const PtxLocation *last;     // record of the last instruction
    uint32_t used_bytes;         // of a pragma, for the next instruction
    Reference *references;
    size_t reference_count, reference_capacity;
    struct PtxFixup *fixups; // of the initialiser under way
    size_t fixup_count, fixup_capacity;
    PtxOperand *stack; // operands of the instruction under way
    size_t stack_count, stack_capacity;
    PtxInstruction *instructions;
    size_t instruction_count, instruction_capacity;
    PtxRegister *registers;
    size_t register_count, register_capacity;
    PtxVariable **variables;
    size_t variable_count, variable_capacity;
};

// Makes room for one more element behind `count` in a malloc'ed array.
void *grow_array(void *array, size_t count, size_t *capacity, size_t element_size);

// ---- names.c

Name *name_intern(Module *module, const char *text, size_t length);
// Without adding it: NULL if the module doesn't know the name.
Name *name_find(const Module *module, const char *text, size_t length);
Name *name_of(const char *interned);
// Sets prefix and number.
void name_split(Module *module, Name *name);
// The parts of an opcode.
const Opcode *name_opcode(Module *module, Name *name);
void names_free(Module *module);

// ---- parser.c

// Ends parsing with a message about the current token's line.
_Noreturn void parse_fail(Parser *parser, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// The current token must be this mark; moves on.
void expect_mark(Parser *parser, char mark);
bool accept_mark(Parser *parser, char mark);
bool accept_text(Parser *parser, const char *text);
// The current token must be a name; moves on.
Name *expect_name(Parser *parser, const char *what);

// ---- declare.c

bool type_from_token(const Token *token, Type *type);
Type expect_type(Parser *parser);
// Reads ".align 4 .b8 x[128] = {…}, y;" behind its state space; calls `declared` for each variable.
typedef void Declared(Parser *parser, PtxVariable *variable);
void parse_variables(Parser *parser, Space space, const PtxVariable *linkage, Declared *declared);
// Reads "(.param .b64 a, .param .b32 b)".
void parse_parameters(Parser *parser, PtxFunction *owner, PtxVariable ***list, int *count);

// ---- constant.c

typedef struct {
    bool is_float;
    uint8_t float_bits;
    uint64_t bits;
} Constant;
// Reads a constant expression; false, without a message, if there is none.
bool parse_constant(Parser *parser, Constant *value);
bool parse_constant_primary(Parser *parser, Constant *value);
uint64_t expect_integer(Parser *parser, const char *what);
void parse_initialiser(Parser *parser, PtxVariable *variable, const uint64_t *dimensions,
                       int count);
uint64_t count_values(Parser *parser);

// ---- scope.c

void scope_enter(Parser *parser);
void scope_leave(Parser *parser);
// Undoes everything at once, after an error.
void scope_abandon(Parser *parser);
void declare_registers(Parser *parser); // behind .reg
void declare_variable(Parser *parser, PtxVariable *variable);
void declare_register_parameter(Parser *parser, PtxVariable *variable);
Binding *find_binding(Parser *parser, Name *name);
int binding_register(Parser *parser, Binding *binding);
Label *declare_label(Parser *parser, Name *name);
void add_reference(Parser *parser, int kind, Name *name, uint32_t line, int *slot, int instruction);

// ---- parser.c

// A predicate of this name has been declared: if that is how a phase is marked, adds the marker.
void note_phase(Parser *parser, const Name *name);

// ---- operand.c

// Reads an operand and pushes it on parser->stack. false if the text is no operand.
bool parse_operand(Parser *parser, bool is_call, int nesting);

// ---- locations.c

void parse_file(Parser *parser);          // behind .file
void parse_debug_strings(Parser *parser); // at the '{' of .section .debug_str
void parse_location(Parser *parser);      // behind .loc
const PtxLocation *location_at(Parser *parser, uint32_t ptx_line);

#endif
