// Scopes of a function's body: which register, variable or label a name means.
//
// Inline assembly repeats names ("{ .reg .pred p; LAB_WAIT: … }"), so a name has a stack of
// meanings, the innermost first, and each scope a list of what it declared, undone when it ends.
// Labels may be used before they stand: uses are collected and resolved when a scope ends, first
// those made inside it, to the labels declared in it; what is left belongs to a scope further
// out.
#include "softgpu/ptx/internal.h"

#include <stdio.h>
#include <string.h>

void scope_enter(Parser *parser) {
    if (parser->depth + 1 >= SCOPES_MAX) parse_fail(parser, "blocks are nested too deeply");
    Scope *scope = &parser->scopes[++parser->depth];
    memset(scope, 0, sizeof *scope);
    scope->first_reference = parser->reference_count;
}

// Adds a binding to the scope at `depth` and makes it the name's meaning.
static Binding *bind(Parser *parser, BindingKind kind, Name *name, int depth) {
    Scope *scope = &parser->scopes[depth];
    Binding *binding = arena_alloc(parser->module->arena, sizeof *binding);
    binding->kind = kind;
    binding->name = name;
    binding->depth = depth;
    binding->reg = -1;
    binding->outer = name->binding;
    binding->in_scope = scope->bindings;
    scope->bindings = binding;
    name->binding = binding;
    return binding;
}

// Refuses a second declaration of a name in one scope.
static void check_new(Parser *parser, const Name *name) {
    if (name->binding && name->binding->depth == parser->depth) {
        parse_fail(parser, "'%s' is declared twice in one block", name->text);
    }
}

void declare_variable(Parser *parser, PtxVariable *variable) {
    Name *name = name_of(variable->name);
    check_new(parser, name);
    bind(parser, BIND_VARIABLE, name, parser->depth)->variable = variable;
    parser->variables = grow_array(parser->variables, parser->variable_count,
                                   &parser->variable_capacity, sizeof *parser->variables);
    parser->variables[parser->variable_count++] = variable;
}

void declare_register_parameter(Parser *parser, PtxVariable *variable) {
    Name *name = name_of(variable->name);
    check_new(parser, name);
    bind(parser, BIND_REGISTER, name, parser->depth)->type = variable->type;
}

// Declares name.x, name.y, … behind the vector register `name`.
static void declare_vector(Parser *parser, Name *name, Type type, int width) {
    Binding *vector = bind(parser, BIND_VECTOR, name, parser->depth);
    vector->width = width;
    vector->elements = arena_alloc(parser->module->arena, sizeof *vector->elements * width);
    for (int i = 0; i < width; i++) {
        char text[300];
        int length = snprintf(text, sizeof text, "%.280s.%c", name->text, "xyzw"[i]);
        vector->elements[i] = (Binding){.kind = BIND_REGISTER, .depth = parser->depth, .reg = -1};
        vector->elements[i].name = name_intern(parser->module, text, length);
        vector->elements[i].type = type;
    }
}

// Declares the registers prefix0 … prefix(count-1).
static void declare_range(Parser *parser, Name *prefix, Type type, uint64_t count) {
    Scope *scope = &parser->scopes[parser->depth];
    for (Range *range = prefix->range; range && range->depth == parser->depth;
         range = range->outer) {
        parse_fail(parser, "%s<…> is declared twice in one block", prefix->text);
    }
    if (prefix->text[prefix->length - 1] >= '0' && prefix->text[prefix->length - 1] <= '9') {
        parse_fail(parser, "%s<…>: a range whose name ends in a digit is not supported",
                   prefix->text);
    }
    Range *range = arena_alloc(parser->module->arena, sizeof *range);
    *range = (Range){.prefix = prefix, .type = type, .count = count, .depth = parser->depth};
    range->outer = prefix->range;
    range->in_scope = scope->ranges;
    scope->ranges = range;
    prefix->range = range;
}

void declare_registers(Parser *parser) {
    int width = 1;
    if (accept_text(parser, ".v2")) {
        width = 2;
    } else if (accept_text(parser, ".v4")) {
        width = 4;
    }
    Type type = expect_type(parser);
    do {
        Name *name = expect_name(parser, "a register's name");
        if (accept_mark(parser, '<')) {
            uint64_t count = expect_integer(parser, "a count");
            expect_mark(parser, '>');
            if (width > 1) parse_fail(parser, "ranges of vector registers are not supported");
            declare_range(parser, name, type, count);
            continue;
        }
        check_new(parser, name);
        if (width > 1) {
            declare_vector(parser, name, type, width);
        } else {
            bind(parser, BIND_REGISTER, name, parser->depth)->type = type;
            if (type == TYPE_PRED) note_phase(parser, name);
        }
    } while (accept_mark(parser, ','));
    expect_mark(parser, ';');
}

Binding *find_binding(Parser *parser, Name *name) {
    Binding *binding = name->binding;
    if (!name->split) name_split(parser->module, name);
    if (!name->prefix) return binding;
    for (Range *range = name->prefix->range; range; range = range->outer) {
        if (binding && binding->depth >= range->depth) return binding;
        if (name->number >= range->count) continue;
        binding = bind(parser, BIND_REGISTER, name, range->depth);
        binding->type = range->type;
        return binding;
    }
    return binding;
}

// The index of the register that a binding stands for; it comes into being with its first use.
int binding_register(Parser *parser, Binding *binding) {
    if (binding->reg >= 0) return binding->reg;
    Name *name = binding->name;
    if (name->registers_of != parser->number) {
        name->registers_of = parser->number;
        name->registers = 0;
    }
    const char *unique = name->text;
    if (name->registers) { // the same name in another scope: p#2
        char *text = arena_alloc(parser->module->arena, name->length + 16);
        snprintf(text, name->length + 16, "%s#%u", name->text, name->registers + 1);
        unique = text;
    }
    name->registers++;
    parser->registers = grow_array(parser->registers, parser->register_count,
                                   &parser->register_capacity, sizeof *parser->registers);
    parser->registers[parser->register_count] = (PtxRegister){unique, binding->type};
    return binding->reg = parser->register_count++;
}

Label *declare_label(Parser *parser, Name *name) {
    if (name->label && name->label->depth == parser->depth) {
        parse_fail(parser, "the label '%s' stands twice in one block", name->text);
    }
    Scope *scope = &parser->scopes[parser->depth];
    Label *label = arena_alloc(parser->module->arena, sizeof *label);
    label->name = name;
    label->index = parser->instruction_count;
    label->depth = parser->depth;
    label->outer = name->label;
    label->in_scope = scope->labels;
    scope->labels = label;
    name->label = label;
    return label;
}

void add_reference(Parser *parser, int kind, Name *name, uint32_t line, int *slot,
                   int instruction) {
    parser->references = grow_array(parser->references, parser->reference_count,
                                    &parser->reference_capacity, sizeof *parser->references);
    Reference *reference = &parser->references[parser->reference_count++];
    *reference = (Reference){.kind = kind, .name = name, .line = line, .slot = slot};
    reference->instruction = instruction;
    reference->previous = name->reference;
    name->reference = parser->reference_count;
}

// Gives one use of a label its meaning.
static void resolve(Parser *parser, const Reference *reference, const Label *label) {
    bool is_code = !label->is_table && !label->is_call_table && !label->prototype;
    PtxInstruction *instruction = &parser->instructions[reference->instruction];
    switch (reference->kind) {
    case REFER_BRANCH:
    case REFER_TABLE_ENTRY:
        if (is_code) {
            *reference->slot = label->index;
            return;
        }
        break;
    case REFER_TABLE:
        if (label->is_table) {
            instruction->branch_targets = label->table;
            instruction->branch_target_count = label->table_count;
            return;
        }
        break;
    case REFER_PROTOTYPE:
        if (label->prototype || label->is_call_table) {
            instruction->prototype = label->prototype;
            return;
        }
        break;
    }
    parser->lexer.token.line = reference->line;
    parse_fail(parser, "'%s' is not what this instruction needs there", reference->name->text);
}

// Takes back what a scope declared.
static void undo(Scope *scope) {
    for (Binding *b = scope->bindings; b; b = b->in_scope) b->name->binding = b->outer;
    for (Range *range = scope->ranges; range; range = range->in_scope) {
        range->prefix->range = range->outer;
    }
    for (Label *label = scope->labels; label; label = label->in_scope) {
        label->name->label = label->outer;
    }
}

void scope_leave(Parser *parser) {
    Scope *scope = &parser->scopes[parser->depth];
    for (Label *label = scope->labels; label; label = label->in_scope) {
        Name *name = label->name;
        while (name->reference > scope->first_reference) {
            const Reference *reference = &parser->references[name->reference - 1];
            resolve(parser, reference, label);
            name->reference = reference->previous;
        }
    }
    undo(scope);
    if (parser->depth-- > 0) return;
    for (size_t i = 0; i < parser->reference_count; i++) {
        const Reference *reference = &parser->references[i];
        if (!reference->name->reference) continue;
        parser->lexer.token.line = reference->line;
        parser->depth = 0; // scope_abandon finds nothing left to undo
        memset(scope, 0, sizeof *scope);
        parse_fail(parser, "the label '%s' does not exist", reference->name->text);
    }
}

void scope_abandon(Parser *parser) {
    while (parser->depth >= 0) undo(&parser->scopes[parser->depth--]);
    for (size_t i = 0; i < parser->reference_count; i++) {
        parser->references[i].name->reference = 0;
    }
}
