// Constant expressions (PTX ISA 4.5) and initialisers of variables.
#include "softgpu/ptx/internal.h"

#include <string.h>

enum { NESTING_MAX = 64, DIMENSIONS_MAX = 8 };
#define INITIALISER_MAX (1ull << 30) // bytes of all initialisers of a module

static bool parse_level(Parser *parser, int lowest, int nesting, Constant *value);

// An integer constant.
static Constant integer(uint64_t bits) {
    return (Constant){.bits = bits};
}

// A constant as a double, whatever it is.
static double as_double(const Constant *value) {
    if (!value->is_float) return (double)(int64_t)value->bits;
    if (value->float_bits == 32) {
        float narrow;
        uint32_t bits = value->bits;
        memcpy(&narrow, &bits, sizeof narrow);
        return narrow;
    }
    double wide;
    memcpy(&wide, &value->bits, sizeof wide);
    return wide;
}

// Reads a literal, WARP_SZ, a parenthesised expression, or one of these behind a sign.
static bool parse_primary(Parser *parser, int nesting, Constant *value) {
    Lexer *lexer = &parser->lexer;
    if (nesting > NESTING_MAX) return false;
    if (lexer->token.kind == TOKEN_INTEGER || lexer->token.kind == TOKEN_FLOAT) {
        value->is_float = lexer->token.kind == TOKEN_FLOAT;
        value->float_bits = value->is_float ? lexer->token.float_bits : 0;
        value->bits = lexer->token.bits;
        lexer_advance(lexer);
        return true;
    }
    if (accept_text(parser, "WARP_SZ")) {
        *value = integer(32);
        return true;
    }
    if (accept_mark(parser, '-')) {
        if (!parse_primary(parser, nesting + 1, value)) return false;
        if (value->is_float) {
            value->bits ^= 1ull << (value->float_bits - 1);
        } else {
            value->bits = -value->bits;
        }
        return true;
    }
    if (accept_mark(parser, '+')) return parse_primary(parser, nesting + 1, value);
    if (accept_mark(parser, '~')) {
        if (!parse_primary(parser, nesting + 1, value) || value->is_float) return false;
        value->bits = ~value->bits;
        return true;
    }
    if (accept_mark(parser, '!')) {
        if (!parse_primary(parser, nesting + 1, value) || value->is_float) return false;
        value->bits = !value->bits;
        return true;
    }
    if (!accept_mark(parser, '(')) return false;
    if (accept_text(parser, ".s64") ||
        accept_text(parser, ".u64")) { // a cast: all integers are 64 bits here
        return accept_mark(parser, ')') && parse_primary(parser, nesting + 1, value);
    }
    return parse_level(parser, 0, nesting + 1, value) && accept_mark(parser, ')');
}

// The binary operators, by how loosely they bind.
static const struct Operator {
    char text[3];
    int level;
} operators[] = {{"||", 1}, {"&&", 2}, {"==", 6}, {"!=", 6}, {"<<", 8}, {">>", 8},
                 {"<=", 7}, {">=", 7}, {"|", 3},  {"^", 4},  {"&", 5},  {"<", 7},
                 {">", 7},  {"+", 9},  {"-", 9},  {"*", 10}, {"/", 10}, {"%", 10}};

// The operator at the current token, if it binds at least as tightly as `lowest`. Moves behind it.
static const struct Operator *accept_operator(Parser *parser, int lowest) {
    Lexer *lexer = &parser->lexer;
    if (lexer->token.kind != TOKEN_MARK) return NULL;
    const char *text = lexer->token.begin;
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        const struct Operator *entry = &operators[i];
        if (text[0] != entry->text[0] || (entry->text[1] && text[1] != entry->text[1])) continue;
        if (entry->level < lowest) return NULL;
        lexer_advance(lexer);
        if (entry->text[1]) lexer_advance(lexer);
        return entry;
    }
    return NULL;
}

// left op right. false for what has no value (a division by zero, a float shifted).
static bool apply(const char *op, Constant *left, const Constant *right) {
    int64_t a = left->bits, b = right->bits;
    if (left->is_float || right->is_float) {
        double x = as_double(left), y = as_double(right), result;
        if (!strcmp(op, "+")) {
            result = x + y;
        } else if (!strcmp(op, "-")) {
            result = x - y;
        } else if (!strcmp(op, "*")) {
            result = x * y;
        } else if (!strcmp(op, "/")) {
            result = x / y;
        } else {
            return false;
        }
        *left = (Constant){.is_float = true, .float_bits = 64};
        memcpy(&left->bits, &result, sizeof result);
        return true;
    }
    if (op[0] == '/' || op[0] == '%') {
        if (!b || (b == -1 && a == INT64_MIN)) return false;
        left->bits = op[0] == '/' ? a / b : a % b;
        return true;
    }
    if (!strcmp(op, "<<")) {
        left->bits = (uint64_t)b < 64 ? left->bits << b : 0;
    } else if (!strcmp(op, ">>")) {
        left->bits = a >> ((uint64_t)b < 64 ? b : 63);
    } else if (!strcmp(op, "||")) {
        left->bits = a || b;
    } else if (!strcmp(op, "&&")) {
        left->bits = a && b;
    } else if (!strcmp(op, "==")) {
        left->bits = a == b;
    } else if (!strcmp(op, "!=")) {
        left->bits = a != b;
    } else if (!strcmp(op, "<=")) {
        left->bits = a <= b;
    } else if (!strcmp(op, ">=")) {
        left->bits = a >= b;
    } else {
        switch (op[0]) {
        case '|': left->bits |= right->bits; break;
        case '^': left->bits ^= right->bits; break;
        case '&': left->bits &= right->bits; break;
        case '<': left->bits = a < b; break;
        case '>': left->bits = a > b; break;
        case '+': left->bits += right->bits; break;
        case '-': left->bits -= right->bits; break;
        case '*': left->bits *= right->bits; break;
        default: return false;
        }
    }
    return true;
}

// Reads an expression of operators that bind at least as tightly as `lowest`.
static bool parse_level(Parser *parser, int lowest, int nesting, Constant *value) {
    if (nesting > NESTING_MAX || !parse_primary(parser, nesting + 1, value)) return false;
    const struct Operator *entry;
    while ((entry = accept_operator(parser, lowest))) {
        Constant right;
        if (!parse_level(parser, entry->level + 1, nesting + 1, &right)) return false;
        if (!apply(entry->text, value, &right)) return false;
    }
    if (lowest > 0 || !accept_mark(parser, '?')) return true;
    Constant yes, no;
    if (!parse_level(parser, 0, nesting + 1, &yes) || !accept_mark(parser, ':')) return false;
    if (!parse_level(parser, 0, nesting + 1, &no)) return false;
    *value = value->bits ? yes : no;
    return true;
}

bool parse_constant(Parser *parser, Constant *value) {
    return parse_level(parser, 0, 0, value);
}

bool parse_constant_primary(Parser *parser, Constant *value) {
    return parse_primary(parser, 0, value);
}

uint64_t expect_integer(Parser *parser, const char *what) {
    Constant value;
    if (!parse_constant_primary(parser, &value) || value.is_float)
        parse_fail(parser, "expected %s", what);
    return value.bits;
}

// ---- initialisers

typedef struct {
    PtxVariable *variable;
    uint64_t dimensions[DIMENSIONS_MAX];
    int levels;
    unsigned element_size;
} Initialiser;

// Where the bytes of the variable's initialiser are collected; zeros at first.
static uint8_t *initial_bytes(Parser *parser, PtxVariable *variable) {
    if (variable->data) return variable->data;
    Module *module = parser->module;
    if (variable->size > INITIALISER_MAX - module->data_bytes) {
        parse_fail(parser, "the initialiser of '%s' is too large", variable->name);
    }
    module->data_bytes += variable->size;
    variable->data = arena_alloc(module->arena, variable->size);
    return variable->data;
}

// Stores a number as element `index`, converted to the variable's type.
static void store_constant(Parser *parser, const Initialiser *init, uint64_t index,
                           const Constant *value) {
    PtxVariable *variable = init->variable;
    uint64_t bits = value->bits;
    if (variable->type == TYPE_F64) {
        double wide = as_double(value);
        memcpy(&bits, &wide, sizeof wide);
    } else if (variable->type == TYPE_F32) {
        float narrow = as_double(value);
        uint32_t narrow_bits;
        memcpy(&narrow_bits, &narrow, sizeof narrow);
        bits = value->is_float && value->float_bits == 32 ? value->bits : narrow_bits;
    } else if (value->is_float && value->float_bits != init->element_size * 8) {
        parse_fail(parser, "'%s' holds integers, its initialiser a floating-point number",
                   variable->name);
    }
    unsigned size = init->element_size < 8 ? init->element_size : 8;
    if (bits) memcpy(initial_bytes(parser, variable) + index * init->element_size, &bits, size);
}

// Records that element `index` holds the address of a symbol.
static void store_symbol(Parser *parser, Initialiser *init, uint64_t index, uint64_t mask,
                         bool generic, Name *name, int64_t addend) {
    PtxVariable *variable = init->variable;
    parser->fixups = grow_array(parser->fixups, parser->fixup_count, &parser->fixup_capacity,
                                sizeof *parser->fixups);
    struct PtxFixup *fixup = &parser->fixups[parser->fixup_count++];
    memset(fixup, 0, sizeof *fixup);
    fixup->offset = index * init->element_size;
    fixup->size = init->element_size;
    fixup->generic = generic;
    fixup->symbol = name->text;
    fixup->addend = addend;
    if (mask) {
        fixup->size = 1;
        fixup->shift = __builtin_ctzll(mask);
        if (mask >> fixup->shift != 0xff || init->element_size != 1) {
            parse_fail(parser, "the mask 0x%llx of '%s' is not one byte", (unsigned long long)mask,
                       name->text);
        }
    } else if (fixup->size != 8 && fixup->size != 4) {
        parse_fail(parser, "%u bytes of '%s' can't hold an address", init->element_size,
                   variable->name);
    }
}

// Reads sym, sym+4, sym-4 behind an optional mask and generic( ).
static void parse_symbol_element(Parser *parser, Initialiser *init, uint64_t index, uint64_t mask) {
    bool generic = accept_text(parser, "generic");
    int parentheses = generic;
    if (generic) expect_mark(parser, '(');
    Name *name = expect_name(parser, "a symbol");
    int64_t addend = 0;
    for (;;) {
        if (accept_mark(parser, '+')) {
            addend = (uint64_t)addend + expect_integer(parser, "an offset");
        } else if (accept_mark(parser, '-')) {
            addend = (uint64_t)addend - expect_integer(parser, "an offset");
        } else if (parentheses && accept_mark(parser, ')')) {
            parentheses = 0;
        } else {
            break;
        }
    }
    if (parentheses) expect_mark(parser, ')');
    store_symbol(parser, init, index, mask, generic, name, addend);
}

// Reads one value into element `index`.
static void parse_element(Parser *parser, Initialiser *init, uint64_t index) {
    Lexer *lexer = &parser->lexer;
    if (lexer->token.kind == TOKEN_NAME && !token_is(lexer, "WARP_SZ")) {
        parse_symbol_element(parser, init, index, 0);
        return;
    }
    Constant value;
    if (!parse_constant(parser, &value)) parse_fail(parser, "expected a value in the initialiser");
    if (!value.is_float && value.bits && accept_mark(parser, '(')) { // 0xFF00(sym)
        parse_symbol_element(parser, init, index, value.bits);
        expect_mark(parser, ')');
        return;
    }
    store_constant(parser, init, index, &value);
}

// Reads what fills the array of dimensions[level…] that begins at element `first`.
static void parse_aggregate(Parser *parser, Initialiser *init, int level, uint64_t first) {
    uint64_t limit = 1, stride = 1; // elements of this array, and of one of its parts
    for (int i = level; i < init->levels; i++) limit *= init->dimensions[i];
    if (level < init->levels && init->dimensions[level]) stride = limit / init->dimensions[level];
    expect_mark(parser, '{');
    uint64_t at = 0;
    while (!accept_mark(parser, '}')) {
        if (at >= limit) parse_fail(parser, "too many values for '%s'", init->variable->name);
        if (token_is_mark(&parser->lexer, '{')) {
            if (level >= init->levels) {
                parse_fail(parser, "too many braces in the initialiser of '%s'",
                           init->variable->name);
            }
            parse_aggregate(parser, init, level + 1, first + at);
            at += stride;
        } else {
            parse_element(parser, init, first + at++);
        }
        if (!accept_mark(parser, ',')) {
            expect_mark(parser, '}');
            break;
        }
    }
}

void parse_initialiser(Parser *parser, PtxVariable *variable, const uint64_t *dimensions,
                       int count) {
    Initialiser init = {.variable = variable, .element_size = type_size(variable->type)};
    memcpy(init.dimensions, dimensions, count * sizeof *dimensions);
    init.levels = count;
    if (!init.element_size) parse_fail(parser, "'%s' can't have an initialiser", variable->name);
    parser->fixup_count = 0;
    if (token_is_mark(&parser->lexer, '{')) {
        parse_aggregate(parser, &init, 0, 0);
    } else {
        parse_element(parser, &init, 0);
    }
    if (!parser->fixup_count) return;
    size_t size = parser->fixup_count * sizeof *parser->fixups;
    variable->fixup_count = parser->fixup_count;
    variable->fixups = arena_alloc(parser->module->arena, size);
    memcpy(variable->fixups, parser->fixups, size);
}

// Counts the values between the braces at the current token, which stays where it is.
uint64_t count_values(Parser *parser) {
    Lexer saved = parser->lexer;
    Lexer *lexer = &parser->lexer;
    uint64_t count = 0;
    int depth = 0;
    bool value = false;
    do {
        if (lexer->token.kind == TOKEN_END) parse_fail(parser, "this initialiser never ends");
        bool deeper = token_is_mark(lexer, '{') || token_is_mark(lexer, '(');
        bool closes = token_is_mark(lexer, '}') || token_is_mark(lexer, ')');
        if (deeper) {
            value |= depth++ > 0;
        } else if (closes) {
            depth--;
        } else if (token_is_mark(lexer, ',') && depth == 1) {
            count++;
            value = false;
        } else {
            value = true;
        }
        lexer_advance(lexer);
    } while (depth > 0);
    parser->lexer = saved;
    return count + value;
}
