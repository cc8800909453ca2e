// Where may a kernel's stores to global memory go? By the pointers that it gets as parameters.
//
// What nothing writes, nobody races for: the race check doesn't follow reads of such allocations
// (check/race_global.c), and inputs are most of what kernels read. So the answer may name too much,
// and must not name too little.
//
// Each register has the *origins* of all that may flow into it: a set of parameters, over the whole
// function, whatever the order of its instructions. A 64-bit value that is loaded from memory may
// point anywhere; a 32-bit one is no pointer, but may be half of one: TAINTED, and ANYWHERE once
// two halves are put together.
#include "softgpu/machine/code.h"

#include <stdlib.h>

#define TAINTED   (1ull << 61)
#define VARIABLES (1ull << 62)
#define ANYWHERE  (1ull << 63)

typedef uint64_t Origins;
enum { NONE = -1, MANY = -2 };

typedef struct {
    const Kernel *kernel;
    const PtxFunction *entry;     // its own
    uint32_t params[WRITES_MOST]; // offsets of those that are loaded: bit k of Origins
    int param_count;
    Origins *origins; // by registers
    int *definition;  // … the one instruction that defines them; MANY, or NONE
    bool changed;
} Survey;

static bool is_any(const char *word, const char *const *list) {
    for (; *list; list++)
        if (!strcmp(word, *list)) return true;
    return false;
}

static unsigned width_of(const Survey *s, const PtxOperand *o) {
    return o->kind == OPERAND_REGISTER ? type_size(s->entry->registers[o->reg].type) : 0;
}

// ---- operands

static Origins origins_of(const Survey *s, const PtxOperand *o) {
    Origins all = 0;
    switch (o->kind) {
    case OPERAND_REGISTER: return s->origins[o->reg];
    case OPERAND_SYMBOL:
        if (!o->variable) return o->function ? 0 : VARIABLES;
        return o->variable->space == SPACE_GLOBAL || o->variable->space == SPACE_CONST ? VARIABLES
                                                                                       : 0;
    case OPERAND_ADDRESS: return origins_of(s, &o->elements[0]);
    case OPERAND_VECTOR:
        for (int k = 0; k < o->count; k++) all |= origins_of(s, &o->elements[k]);
        return all;
    default: return 0;
    }
}

static void add_to_register(Survey *s, int reg, Origins add) {
    if (!(add & ~s->origins[reg])) return;
    s->origins[reg] |= add;
    s->changed = true;
}

static void add_to(Survey *s, const PtxOperand *o, Origins add) {
    if (o->kind == OPERAND_VECTOR)
        for (int k = 0; k < o->count; k++) add_to(s, &o->elements[k], add);
    if (o->kind != OPERAND_REGISTER) return;
    add_to_register(s, o->reg, add);
    if (o->pair >= 0) add_to_register(s, o->pair, add);
}

// What is loaded from memory.
static void add_loaded(Survey *s, const PtxOperand *o) {
    if (o->kind == OPERAND_VECTOR)
        for (int k = 0; k < o->count; k++) add_loaded(s, &o->elements[k]);
    else
        add_to(s, o, width_of(s, o) >= 8 ? ANYWHERE : TAINTED);
}

// ---- instructions

static Origins param_origin(Survey *s, uint32_t offset) {
    int k = 0;
    while (k < s->param_count && s->params[k] != offset) k++;
    if (k == WRITES_MOST) return ANYWHERE;
    if (k == s->param_count) s->params[s->param_count++] = offset;
    return 1ull << k;
}

// Is this an address in the kernel's parameter block, and which? `o`: a symbol, or a register that
// one chain of mov and add makes of one.
static bool param_address(const Survey *s, const PtxOperand *o, uint32_t *offset) {
    if (o->kind == OPERAND_SYMBOL) {
        int n = 0;
        while (n < s->entry->param_count && s->entry->params[n] != o->variable) n++;
        if (n == s->entry->param_count) return false;
        *offset = s->kernel->params[n].offset + (uint32_t)o->offset;
        return true;
    }
    if (o->kind != OPERAND_REGISTER || s->definition[o->reg] < 0) return false;
    const PtxInstruction *p = &s->entry->instructions[s->definition[o->reg]];
    if (!strcmp(p->opcode, "mov") && p->operand_count == 2)
        return param_address(s, &p->operands[1], offset);
    if (strcmp(p->opcode, "add") || p->operand_count != 3 ||
        p->operands[2].kind != OPERAND_INTEGER || !param_address(s, &p->operands[1], offset))
        return false;
    *offset += (uint32_t)p->operands[2].bits;
    return true;
}

// ld.param of the kernel's own parameters. False if it is another load.
static bool load_param(Survey *s, const PtxInstruction *p) {
    const PtxOperand *to = &p->operands[0], *from = &p->operands[1];
    uint32_t offset;
    if (p->operand_count < 2 || !ptx_has_modifier(p, "param") || from->kind != OPERAND_ADDRESS ||
        !param_address(s, &from->elements[0], &offset))
        return false;
    offset += (uint32_t)from->offset;
    const PtxOperand *each = to->kind == OPERAND_VECTOR ? to->elements : to;
    int count = to->kind == OPERAND_VECTOR ? to->count : 1;
    for (int k = 0; k < count; k++) {
        unsigned width = width_of(s, &each[k]);
        if (width > 8) return false;
        add_to(s, &each[k], width == 8 ? param_origin(s, offset) : TAINTED);
        offset += width;
    }
    return true;
}

// Could this make a pointer of two halves?
static bool joins_halves(const PtxInstruction *p) {
    static const char *const words[] = {"prmt", "bfi", "shf", NULL};
    if (is_any(p->opcode, words)) return true;
    if (!strcmp(p->opcode, "mov"))
        return p->operand_count == 2 && p->operands[1].kind == OPERAND_VECTOR;
    if (!strcmp(p->opcode, "shl"))
        return p->operand_count == 3 &&
               (p->operands[2].kind != OPERAND_INTEGER || p->operands[2].bits >= 32);
    return false;
}

static void flow_through(Survey *s, const PtxInstruction *p) {
    static const char *const silent[] = {"st", "red", "bra", "ret", "exit", "bar", NULL};
    static const char *const loads[] = {"ld", "ldu", "atom", "ldmatrix", "tcgen05", NULL};
    if (p->operand_count == 0 || is_any(p->opcode, silent)) return;
    const PtxOperand *to = &p->operands[0];
    bool is_load =
        is_any(p->opcode, loads) || (!strcmp(p->opcode, "wmma") && ptx_has_modifier(p, "load"));
    if (is_load) {
        if (strcmp(p->opcode, "ld") || !load_param(s, p)) add_loaded(s, to);
        return;
    }
    Origins all = 0;
    for (int k = 1; k < p->operand_count; k++) all |= origins_of(s, &p->operands[k]);
    if (all & TAINTED && joins_halves(p) && width_of(s, to) >= 8) all |= ANYWHERE;
    add_to(s, to, all);
}

// The first space that a copy's name says: where it writes.
static Space first_space(const PtxInstruction *p) {
    for (int k = 0; k < p->modifier_count; k++) {
        if (!strcmp(p->modifiers[k], "global")) return SPACE_GLOBAL;
        if (!strncmp(p->modifiers[k], "shared", 6)) return SPACE_SHARED;
        if (!strcmp(p->modifiers[k], "local")) return SPACE_LOCAL;
        if (!strncmp(p->modifiers[k], "param", 5)) return SPACE_PARAM;
    }
    return SPACE_NONE;
}

// Origins of the places in global memory that an instruction may write.
static Origins written_by(const Survey *s, const PtxInstruction *p) {
    static const char *const harmless[] = {
        "ld",   "ldu",   "ldmatrix", "prefetch", "prefetchu", "isspacep", "mbarrier",
        "mapa", "fence", "tcgen05",  "wgmma",    "stmatrix",  "tex",      "tld4",
        "suld", "cvta",  "membar",   "bra",      "brx",       NULL};
    static const char *const quiet_calls[] = {"vprintf", "__assertfail", NULL};
    if (is_any(p->opcode, harmless)) return 0;
    if (!strcmp(p->opcode, "call")) {
        for (int k = 0; k < p->operand_count; k++)
            if (p->operands[k].kind == OPERAND_SYMBOL && is_any(p->operands[k].name, quiet_calls))
                return 0;
        return ANYWHERE;
    }
    const PtxOperand *address = NULL;
    for (int k = p->operand_count - 1; k >= 0; k--)
        if (p->operands[k].kind == OPERAND_ADDRESS) address = &p->operands[k];
    if (!address) return 0;
    Space space = first_space(p);
    if (space == SPACE_SHARED || space == SPACE_LOCAL || space == SPACE_PARAM) return 0;
    if (!strcmp(p->opcode, "wmma") && ptx_has_modifier(p, "load")) return 0;
    if (ptx_has_modifier(p, "tensor")) return ANYWHERE; // where its map says
    Origins origins = origins_of(s, address);
    if (!(origins & ~TAINTED) && (space == SPACE_GLOBAL || origins)) return ANYWHERE;
    return origins & ~TAINTED;
}

static void define(Survey *s, const PtxOperand *o, int at) {
    if (o->kind == OPERAND_VECTOR)
        for (int k = 0; k < o->count; k++) define(s, &o->elements[k], at);
    if (o->kind == OPERAND_REGISTER)
        s->definition[o->reg] = s->definition[o->reg] == NONE ? at : MANY;
}

KernelWrites kernel_writes(const Kernel *kernel) {
    const PtxFunction *entry = kernel->ptx;
    Survey s = {.entry = entry,
                .kernel = kernel,
                .origins = calloc((size_t)entry->register_count + 1, sizeof *s.origins),
                .definition = calloc((size_t)entry->register_count + 1, sizeof *s.definition)};
    KernelWrites w = {0};
    if (!s.origins || !s.definition) abort();
    for (int r = 0; r < entry->register_count; r++) s.definition[r] = NONE;
    for (int i = 0; i < entry->instruction_count; i++)
        if (entry->instructions[i].operand_count)
            define(&s, &entry->instructions[i].operands[0], i);
    do {
        s.changed = false;
        for (int i = 0; i < entry->instruction_count; i++)
            flow_through(&s, &entry->instructions[i]);
    } while (s.changed);
    Origins written = 0;
    for (int i = 0; i < entry->instruction_count; i++)
        written |= written_by(&s, &entry->instructions[i]);
    w.known = !(written & ANYWHERE);
    w.variables = written & VARIABLES;
    for (int k = 0; k < s.param_count; k++)
        if (written >> k & 1) w.params[w.count++] = s.params[k];
    free(s.origins);
    free(s.definition);
    return w;
}
