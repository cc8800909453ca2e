// Operands of instructions: how registers, immediates, special registers and symbols become rows.
// These are the services that execute/form.h offers to lower hooks.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/execute/special.h"
#include "softgpu/ptx/lowering.h"
#include "softgpu/ptx/table.h"

// A formatted reason that lives as long as the kernel (or the survey).
const char *refusal(Lowering *l, const char *format, ...) {
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    char *copy = kernel_alloc(l, strlen(text) + 1);
    return strcpy(copy, text);
}

void *kernel_alloc(Lowering *l, size_t size) {
    return arena_alloc(l->surveying ? l->scratch : l->arena, size ? size : 1);
}

// The class whose lanes are `width` bits wide; CLASS_COUNT if there is none.
static RowClass class_of_width(int width) {
    if (width == 8) return CLASS_16;
    RowClass c = CLASS_PREDICATE;
    while (c < CLASS_COUNT && class_width(c) != (unsigned)width) c++;
    return c;
}

// Width in bits of a register operand: 1 (predicate), 16, 32, 64, 128; 0 if it is no register.
int operand_width(Lowering *l, const PtxOperand *o) {
    if (o->kind != OPERAND_REGISTER) return 0;
    return (int)class_width(row_class(l->body->ptx->registers[o->reg].type));
}

// ---- rows that lowering makes itself

// A row of the frame that only the running instruction uses.
static Row scratch_row(Lowering *l, RowClass class) {
    if (l->surveying) return 0;
    Body *body = l->body;
    uint32_t n = l->scratch_used[class]++;
    if (n == body->scratch_count[class]) {
        body->scratch[class] = realloc(body->scratch[class], (n + 1) * sizeof(Row));
        if (!body->scratch[class]) {
            fprintf(stderr, "softgpu: out of memory while decoding PTX\n");
            exit(2);
        }
        body->scratch[class][n] = body->frame_end;
        body->frame_end += (class_bytes(class) + 63) & ~63u;
        body->scratch_count[class]++;
    }
    return body->scratch[class][n];
}

// Writes a value into all lanes of a row.
static void fill_row(uint8_t *row, uint64_t value, RowClass class) {
    if (class == CLASS_PREDICATE) {
        memset(row, value ? 0xff : 0, 4);
        return;
    }
    size_t bytes = class_width(class) / 8;
    for (size_t lane = 0; lane < 32; lane++) memcpy(row + lane * bytes, &value, bytes);
}

// A constant row of a class, looked up in `rows` by its value.
static Row constant_in(Lowering *l, Map *rows, uint64_t value, RowClass class) {
    uint64_t *known = map_find(rows, value);
    if (known) return ROW_CONSTANT | (Row)*known;

    uint32_t offset = l->constant_size, size = (class_bytes(class) + 63) & ~63u;
    if (offset + size > l->constant_capacity) {
        uint32_t capacity = l->constant_capacity ? 2 * l->constant_capacity : 16384;
        l->constants = realloc(l->constants, capacity);
        if (!l->constants) {
            fprintf(stderr, "softgpu: out of memory while decoding PTX\n");
            exit(2);
        }
        l->constant_capacity = capacity;
    }
    memset(l->constants + offset, 0, size);
    fill_row(l->constants + offset, value, class);
    l->constant_size += size;
    map_set(rows, value, offset);
    return ROW_CONSTANT | offset;
}

// A constant row: `value` in all 32 lanes. width 1, 16, 32, 64.
Row constant_row(Lowering *l, uint64_t value, int width) {
    if (l->surveying) return ROW_CONSTANT;
    RowClass class = class_of_width(width);
    if (class >= CLASS_128) return ROW_NONE;
    if (class == CLASS_PREDICATE)
        value = value != 0;
    else if (class != CLASS_64)
        value &= (1ull << class_width(class)) - 1;
    return constant_in(l, &l->constant_of[class], value, class);
}

// A row with an address of shared memory, of 32 or 64 bits. A row of its own, whatever constants
// have the same value: in a cluster it differs from CTA to CTA.
static Row shared_row(Lowering *l, uint64_t address, int width) {
    if (l->surveying) return ROW_CONSTANT;
    RowClass class = class_of_width(width);
    uint32_t size = l->constant_size;
    Row row = constant_in(l, &l->shared_constant_of[class], address, class);
    if (size == l->constant_size) return row; // known
    l->shared_constants = lowering_grow(l->shared_constants, (size_t)l->shared_constant_count,
                                        &l->shared_constant_capacity, sizeof *l->shared_constants);
    l->shared_constants[l->shared_constant_count++] =
        (struct KernelSharedConstant){row & ~ROW_CONSTANT, (uint32_t)width / 8};
    return row;
}

// Puts a hidden instruction before the running one; returns the row that it fills.
static Row hidden(Lowering *l, Handler *run, uint64_t imm, int width) {
    RowClass class = class_of_width(width);
    Insn i = blank_insn(l);
    i.run = run;
    i.imm = imm;
    i.d = scratch_row(l, class);
    i.size = (uint8_t)(class_width(class) / 8);
    emit_insn(l, &i);
    add_use(l, i.d, USE_WRITE);
    return i.d;
}

static Row special_row(Lowering *l, const PtxOperand *o, int width, const char **why) {
    int special = special_from_name(o->name);
    if (special < 0) {
        *why = refusal(l, "there is no special register %s", o->name);
        return ROW_NONE;
    }
    if ((special == SPECIAL_IS_EXPLICIT_CLUSTER) != (width == 1) || width > 64) {
        *why = refusal(l, "%s can't be read as %d bits", o->name, width);
        return ROW_NONE;
    }
    if (special == SPECIAL_WARP_SZ) return constant_row(l, 32, width);
    return hidden(l, read_special, (uint64_t)special, width);
}

// !p: a hidden not.pred in front.
static Row negated_row(Lowering *l, Row predicate, const char **why) {
    static const char *const modifiers[] = {"pred"};
    static PtxOperand operands[2] = {{.kind = OPERAND_REGISTER, .pair = -1},
                                     {.kind = OPERAND_REGISTER, .pair = -1}};
    static const PtxInstruction not_pred = {.opcode = "not",
                                            .full = "not.pred",
                                            .modifiers = modifiers,
                                            .modifier_count = 1,
                                            .guard = -1,
                                            .operand_count = 2,
                                            .operands = operands};
    Match m;
    if (form_next(&not_pred, -1, &m) < 0 || !m.form->run) {
        *why = "there is no form of 'not.pred', which a negated predicate needs";
        return ROW_NONE;
    }
    Insn i = blank_insn(l);
    i.run = m.form->run;
    memcpy(i.choice, m.choice, sizeof i.choice);
    i.d = scratch_row(l, CLASS_PREDICATE);
    i.a = predicate;
    emit_insn(l, &i);
    add_use(l, i.a, USE_READ);
    add_use(l, i.d, USE_WRITE);
    return i.d;
}

// ---- sources and destinations

static Row register_row(Lowering *l, int reg, int width, bool write, const char **why) {
    const PtxRegister *r = &l->body->ptx->registers[reg];
    RowClass class = row_class(r->type);
    if (class != class_of_width(width)) {
        *why = refusal(l, "%s is %u bits wide where %d are needed", r->name, class_width(class),
                       width);
        return ROW_NONE;
    }
    note_access(l, reg, write);
    if (l->surveying) return 0;
    note_use(l, l->body->rows.rows[reg], write);
    return l->body->rows.rows[reg];
}

// The bits of a floating-point literal at another width.
static Row float_row(Lowering *l, const PtxOperand *o, int width, const char **why) {
    if (width == o->float_bits) return constant_row(l, o->bits, width);
    if (width == 32) {
        double wide;
        memcpy(&wide, &o->bits, sizeof wide);
        float value = (float)wide;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        return constant_row(l, bits, 32);
    }
    if (width == 64) {
        float value;
        memcpy(&value, &o->bits, sizeof value);
        double wide = value;
        uint64_t bits;
        memcpy(&bits, &wide, sizeof bits);
        return constant_row(l, bits, 64);
    }
    *why = refusal(l, "a floating-point literal can't stand for %d bits", width);
    return ROW_NONE;
}

static Row symbol_row(Lowering *l, const PtxOperand *o, int width, const char **why) {
    if (width != 32 && width != 64) {
        *why = refusal(l, "the address of '%s' doesn't fit %d bits", o->name, width);
        return ROW_NONE;
    }
    uint64_t address;
    Space space;
    if (symbol_address(l, o, &address, &space)) {
        if (space == SPACE_LOCAL) return hidden(l, local_address, address, width);
        if (space == SPACE_SHARED) return shared_row(l, address, width);
        return constant_row(l, address, width);
    }
    if (resolve_variable(l, o)) {
        *why = refusal(l, "the address of '%s' can't be taken here", o->name);
        return ROW_NONE;
    }
    PtxFunction *f = l->linker->function(l->linker, l->body->ptx->module, o->name);
    if (!f) f = o->function;
    if (f)
        return constant_row(l, l->linker->function_id(l->linker, f) + (uint64_t)o->offset, width);
    *why = refusal(l, "no module of this program defines '%s'", o->name);
    return ROW_NONE;
}

// Row of an operand read as `width` bits; see form.h.
Row source_row(Lowering *l, const PtxOperand *o, int width, const char **why) {
    switch (o->kind) {
    case OPERAND_REGISTER: {
        Row row = register_row(l, o->reg, width, false, why);
        return o->negated && row != ROW_NONE ? negated_row(l, row, why) : row;
    }
    case OPERAND_SPECIAL: return special_row(l, o, width, why);
    case OPERAND_INTEGER:
        if (width > 64) break;
        return constant_row(l, o->bits, width);
    case OPERAND_FLOAT: return float_row(l, o, width, why);
    case OPERAND_SYMBOL: return symbol_row(l, o, width, why);
    default: break;
    }
    *why = refusal(l, "an operand of this kind can't be read as %d bits", width);
    return ROW_NONE;
}

// Row of a destination register; a sink gets a scratch row.
Row destination_row(Lowering *l, const PtxOperand *o, int width, const char **why) {
    if (o->kind == OPERAND_SINK) {
        RowClass class = class_of_width(width);
        if (class < CLASS_COUNT) return scratch_row(l, class);
    }
    if (o->kind == OPERAND_REGISTER) return register_row(l, o->reg, width, true, why);
    *why = "the destination is not a register";
    return ROW_NONE;
}

// Base row and offset of an address operand; see form.h.
const char *address_operand(Lowering *l, const PtxOperand *o, Insn *i) {
    if (o->kind != OPERAND_ADDRESS || o->count < 1) return "an address is needed here";
    const PtxOperand *base = &o->elements[0];
    const char *why = NULL;
    int width = 64;
    i->imm = (uint64_t)o->offset;
    if (base->kind == OPERAND_REGISTER) {
        width = operand_width(l, base);
        if (width != 32 && width != 64)
            return refusal(l, "the address register is %d bits wide", width);
    }
    if (base->kind == OPERAND_SYMBOL) {
        const PtxVariable *v = resolve_variable(l, base);
        if (v && v->space == SPACE_SHARED) width = 32;
    }
    l->in_address = true;
    i->a = source_row(l, base, width, &why);
    l->in_address = false;
    if (i->a == ROW_NONE) return why;
    if (width == 64) i->flags |= INSN_WIDE_BASE;
    return NULL;
}

// ---- operand patterns

// The bits that the last modifier of an instruction, its type, names: "u32" → 32; 0 if none.
static int type_bits(const PtxInstruction *p) {
    if (!p->modifier_count) return 0;
    const char *type = p->modifiers[p->modifier_count - 1];
    while (*type && (*type < '0' || *type > '9')) type++;
    return atoi(type);
}

// A vector or a single register into Insn.rows.
static const char *vector_operand(Lowering *l, const PtxOperand *o, bool write, Insn *i) {
    const PtxOperand *elements = o->kind == OPERAND_VECTOR ? o->elements : o;
    int count = o->kind == OPERAND_VECTOR ? o->count : 1;
    int least = type_bits(l->ptx);
    const char *why = NULL;
    Row *rows = kernel_alloc(l, sizeof(Row) * (size_t)count);
    for (int e = 0; e < count; e++) {
        int width = operand_width(l, &elements[e]);
        if (!width) width = least < 16 ? 16 : least;
        if (width < least)
            return refusal(l, "element %d of the vector is %d bits wide, less than the type", e + 1,
                           width);
        rows[e] = write ? destination_row(l, &elements[e], width, &why)
                        : source_row(l, &elements[e], width, &why);
        if (rows[e] == ROW_NONE) return why;
    }
    i->rows = rows;
    i->row_count = (uint16_t)count;
    return NULL;
}

static const char *pattern_operand(Lowering *l, const OperandPattern *pattern, const PtxOperand *o,
                                   bool first, Insn *i) {
    const char *why = NULL;
    Row *field;
    switch (pattern->field) {
    case 'm': return address_operand(l, o, i);
    case 'v': return vector_operand(l, o, first, i);
    case 'i': i->imm = o->bits; return NULL;
    case 'd':
        i->d = destination_row(l, o, pattern->width, &why);
        if (i->d == ROW_NONE) return why;
        if (o->pair < 0) return NULL;
        i->e = register_row(l, o->pair, 1, true, &why);
        return i->e == ROW_NONE ? why : NULL;
    case 'a': field = &i->a; break;
    case 'b': field = &i->b; break;
    case 'c': field = &i->c; break;
    default: field = &i->e;
    }
    *field = source_row(l, o, pattern->width, &why);
    return *field == ROW_NONE ? why : NULL;
}

// Lowers by the form's operand pattern. NULL, or why it can't be.
const char *lower_by_pattern(Lowering *l, const Match *m, Insn *i) {
    OperandPattern pattern;
    const char *operands = m->form->operands ? m->form->operands : "";
    int total = 0, optional = 0, used = 0;
    for (const char *s = operands; (s = next_operand(s, &pattern)); total++)
        optional += pattern.optional;
    int spare = m->ptx->operand_count - (total - optional);
    for (const char *s = operands; (s = next_operand(s, &pattern));) {
        if (pattern.optional && spare-- <= 0) continue;
        const char *why = pattern_operand(l, &pattern, &m->ptx->operands[used], used == 0, i);
        if (why) return why;
        l->operands_done = ++used;
    }
    return NULL;
}
