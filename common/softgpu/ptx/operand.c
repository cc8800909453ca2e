// Operands of instructions.
#include "softgpu/ptx/internal.h"

#include <string.h>

enum { NESTING_MAX = 8 };

// Puts an operand on the stack and returns its place: an index, as the stack may move.
static size_t push(Parser *parser, OperandKind kind) {
    parser->stack = grow_array(parser->stack, parser->stack_count, &parser->stack_capacity,
                               sizeof *parser->stack);
    PtxOperand *operand = &parser->stack[parser->stack_count];
    memset(operand, 0, sizeof *operand);
    operand->kind = kind;
    operand->reg = -1;
    operand->pair = -1;
    operand->target = -1;
    return parser->stack_count++;
}

// Moves what lies on the stack above operand `at` into its elements.
static void gather_elements(Parser *parser, size_t at) {
    PtxOperand *operand = &parser->stack[at];
    operand->count = parser->stack_count - at - 1;
    size_t size = sizeof *operand * operand->count;
    operand->elements = arena_alloc(parser->module->arena, size + 1);
    if (size) memcpy(operand->elements, operand + 1, size);
    parser->stack_count = at + 1;
}

// Reads operands up to `close` as the elements of an operand of this kind.
static bool parse_elements(Parser *parser, OperandKind kind, char close, bool is_call,
                           int nesting) {
    size_t at = push(parser, kind);
    lexer_advance(&parser->lexer);
    while (!accept_mark(parser, close)) {
        if (!parse_operand(parser, is_call, nesting + 1)) return false;
        if (accept_mark(parser, ',')) continue;
        if (!accept_mark(parser, close)) return false;
        break;
    }
    gather_elements(parser, at);
    return true;
}

// Reads "+8", "+-8", "-8", any number of them. Adds them to *offset.
static bool parse_offset(Parser *parser, int64_t *offset) {
    for (;;) {
        bool minus = token_is_mark(&parser->lexer, '-');
        if (!minus && !token_is_mark(&parser->lexer, '+')) return true;
        lexer_advance(&parser->lexer);
        Constant value;
        if (!parse_constant_primary(parser, &value) || value.is_float) return false;
        *offset = minus ? (uint64_t)*offset - value.bits : (uint64_t)*offset + value.bits;
    }
}

// Reads [base], [base+offset], [base, {…}].
static bool parse_address(Parser *parser, int nesting) {
    size_t at = push(parser, OPERAND_ADDRESS);
    lexer_advance(&parser->lexer);
    if (!parse_operand(parser, false, nesting + 1)) return false;
    PtxOperand *base = &parser->stack[at + 1];
    int64_t offset = 0;
    if (base->kind == OPERAND_SYMBOL) { // sym+4: the offset is the address's
        offset = base->offset;
        base->offset = 0;
    } else if (base->kind != OPERAND_REGISTER && base->kind != OPERAND_INTEGER) {
        return false;
    }
    if (!parse_offset(parser, &offset)) return false;
    parser->stack[at].offset = offset;
    while (accept_mark(parser, ',')) {
        if (!parse_operand(parser, false, nesting + 1)) return false;
    }
    if (!accept_mark(parser, ']')) return false;
    gather_elements(parser, at);
    return true;
}

// Pushes a register, or the registers of a vector.
static void push_binding(Parser *parser, Binding *binding) {
    if (binding->kind == BIND_REGISTER) {
        size_t at = push(parser, OPERAND_REGISTER);
        parser->stack[at].reg = binding_register(parser, binding);
        return;
    }
    size_t at = push(parser, OPERAND_VECTOR);
    for (int i = 0; i < binding->width; i++) push_binding(parser, &binding->elements[i]);
    gather_elements(parser, at);
}

// Reads a name: register, special register, symbol, _.
static bool parse_name(Parser *parser) {
    Lexer *lexer = &parser->lexer;
    const char *begin = lexer->token.begin;
    size_t length = lexer->token.length;
    if (length == 1 && *begin == '_') {
        push(parser, OPERAND_SINK);
        lexer_advance(lexer);
        return true;
    }
    Module *module = parser->module;
    Name *name = name_intern(module, begin, length);
    Binding *binding = find_binding(parser, name);
    lexer_advance(lexer);
    if (lexer->token.kind == TOKEN_DIRECTIVE && lexer->token.begin == begin + length) {
        const char *component = lexer->token.begin;
        length += lexer->token.length;
        lexer_advance(lexer);
        if (binding) { // name.x of a vector register
            if (binding->kind != BIND_VECTOR || length != name->length + 2u) return false;
            static const char letters[] = "xyzw";
            const char *letter = memchr(letters, component[1], binding->width);
            if (!letter) return false;
            push_binding(parser, &binding->elements[letter - letters]);
            return true;
        }
        name = name_intern(module, begin, length);
    }
    if (binding && binding->kind != BIND_VARIABLE) {
        push_binding(parser, binding);
        return true;
    }
    bool special = !binding && (*begin == '%' || !strcmp(name->text, "WARP_SZ"));
    size_t at = push(parser, special ? OPERAND_SPECIAL : OPERAND_SYMBOL);
    PtxOperand *operand = &parser->stack[at];
    operand->name = name->text;
    if (special) return true;
    operand->variable = binding ? binding->variable : name->variable;
    operand->function = operand->variable ? NULL : name->function;
    int64_t offset = 0;
    if (!parse_offset(parser, &offset)) return false;
    operand->offset = offset;
    return true;
}

// Reads "|q" behind an operand.
static bool parse_pair(Parser *parser, size_t at) {
    if (!accept_mark(parser, '|')) return true;
    Lexer *lexer = &parser->lexer;
    if (lexer->token.kind != TOKEN_NAME) return false;
    if (token_is(lexer, "_")) {
        parser->stack[at].pair = PAIR_SINK;
    } else {
        Name *name = name_intern(parser->module, lexer->token.begin, lexer->token.length);
        Binding *binding = find_binding(parser, name);
        if (!binding || binding->kind != BIND_REGISTER) return false;
        parser->stack[at].pair = binding_register(parser, binding);
    }
    lexer_advance(lexer);
    return true;
}

bool parse_operand(Parser *parser, bool is_call, int nesting) {
    Lexer *lexer = &parser->lexer;
    if (nesting > NESTING_MAX) return false;
    size_t at = parser->stack_count;
    if (token_is_mark(lexer, '[')) return parse_address(parser, nesting);
    if (token_is_mark(lexer, '{')) {
        if (!parse_elements(parser, OPERAND_VECTOR, '}', is_call, nesting)) return false;
        return parse_pair(parser, at);
    }
    if (is_call && token_is_mark(lexer, '(')) {
        return parse_elements(parser, OPERAND_LIST, ')', is_call, nesting);
    }
    if (lexer->token.kind == TOKEN_NAME) return parse_name(parser) && parse_pair(parser, at);
    if (token_is_mark(lexer, '!')) { // !p, or a constant expression
        Lexer saved = *lexer;
        lexer_advance(lexer);
        if (lexer->token.kind == TOKEN_NAME && !token_is(lexer, "WARP_SZ")) {
            if (!parse_name(parser)) return false;
            parser->stack[at].negated = true;
            return parser->stack[at].kind == OPERAND_REGISTER;
        }
        *lexer = saved;
    }
    Constant value;
    if (!parse_constant_primary(parser, &value)) return false;
    push(parser, value.is_float ? OPERAND_FLOAT : OPERAND_INTEGER);
    parser->stack[at].float_bits = value.float_bits;
    parser->stack[at].bits = value.bits;
    return true;
}
