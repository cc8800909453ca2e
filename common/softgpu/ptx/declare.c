// Declarations of variables and parameters, the same inside and outside functions.
#include "softgpu/ptx/internal.h"

#include <stdio.h>
#include <string.h>

enum { DIMENSIONS_MAX = 8, RANGE_MAX = 4096, ALIGN_MAX = 1 << 20 };

static const struct {
    const char *text;
    Type type;
    uint8_t size;
} types[] = {
    {".pred", TYPE_PRED, 0}, {".b8", TYPE_B8, 1},         {".b16", TYPE_B16, 2},
    {".b32", TYPE_B32, 4},   {".b64", TYPE_B64, 8},       {".b128", TYPE_B128, 16},
    {".u8", TYPE_U8, 1},     {".u16", TYPE_U16, 2},       {".u32", TYPE_U32, 4},
    {".u64", TYPE_U64, 8},   {".s8", TYPE_S8, 1},         {".s16", TYPE_S16, 2},
    {".s32", TYPE_S32, 4},   {".s64", TYPE_S64, 8},       {".f16", TYPE_F16, 2},
    {".f32", TYPE_F32, 4},   {".f64", TYPE_F64, 8},       {".f16x2", TYPE_F16X2, 4},
    {".bf16", TYPE_BF16, 2}, {".bf16x2", TYPE_BF16X2, 4},
};

unsigned type_size(Type type) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].type == type) return types[i].size;
    }
    return 0;
}

bool type_from_token(const Token *token, Type *type) {
    if (token->kind != TOKEN_DIRECTIVE) return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strlen(types[i].text) != token->length) continue;
        if (memcmp(types[i].text, token->begin, token->length)) continue;
        *type = types[i].type;
        return true;
    }
    return false;
}

Type expect_type(Parser *parser) {
    Type type = TYPE_NONE;
    if (!type_from_token(&parser->lexer.token, &type)) {
        parse_fail(parser, "expected a type such as .b32, found '%.*s'",
                   (int)parser->lexer.token.length, parser->lexer.token.begin);
    }
    lexer_advance(&parser->lexer);
    return type;
}

// Reads ".align 16".
static uint32_t expect_alignment(Parser *parser) {
    uint64_t align = expect_integer(parser, "an alignment");
    if (!align || align > ALIGN_MAX || (align & (align - 1))) {
        parse_fail(parser, "%llu is no alignment", (unsigned long long)align);
    }
    return align;
}

typedef struct {
    Type type;
    unsigned vector;
    uint32_t align; // 0: that of the type
    bool managed;
} TypePart;

// Reads the attributes and the type that stand before the names.
static TypePart parse_type_part(Parser *parser) {
    TypePart part = {.vector = 1};
    Lexer *lexer = &parser->lexer;
    while (lexer->token.kind == TOKEN_DIRECTIVE) {
        if (accept_text(parser, ".align")) {
            part.align = expect_alignment(parser);
        } else if (accept_text(parser, ".attribute")) {
            expect_mark(parser, '(');
            for (int depth = 1; depth; lexer_advance(lexer)) {
                if (lexer->token.kind == TOKEN_END) parse_fail(parser, "unfinished .attribute");
                if (token_is(lexer, ".managed")) part.managed = true;
                depth += token_is_mark(lexer, '(') - token_is_mark(lexer, ')');
            }
        } else if (accept_text(parser, ".v2")) {
            part.vector = 2;
        } else if (accept_text(parser, ".v4")) {
            part.vector = 4;
        } else if (accept_text(parser, ".v8")) {
            part.vector = 8;
        } else if (accept_text(parser, ".ptr")) { // about the pointer's target: no use for it here
            while (token_is(lexer, ".global") || token_is(lexer, ".shared") ||
                   token_is(lexer, ".const") || token_is(lexer, ".local") ||
                   token_is(lexer, ".param")) {
                lexer_advance(lexer);
            }
            if (accept_text(parser, ".align")) expect_alignment(parser);
        } else {
            part.type = expect_type(parser);
        }
    }
    if (!part.type) parse_fail(parser, "this declaration has no type");
    return part;
}

// a * b, or failure: no real variable is that large.
static uint64_t multiply(Parser *parser, uint64_t a, uint64_t b) {
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product) || product > 1ull << 48) {
        parse_fail(parser, "this variable is too large");
    }
    return product;
}

// Makes a variable of that type; its size is still that of one element.
static PtxVariable *new_variable(Parser *parser, const char *name, Space space,
                                 const TypePart *part) {
    PtxVariable *variable = arena_alloc(parser->module->arena, sizeof *variable);
    unsigned size = type_size(part->type) * part->vector;
    variable->name = name;
    variable->space = space;
    variable->type = part->type;
    variable->align = part->align ? part->align : size ? size : 1;
    variable->count = 1;
    variable->size = size;
    variable->is_managed = part->managed;
    variable->owner = parser->function;
    return variable;
}

// Reads "[2][3]" and "= {…}" behind a variable's name.
static void parse_dimensions(Parser *parser, PtxVariable *variable, const TypePart *part) {
    uint64_t dimensions[DIMENSIONS_MAX + 1];
    int levels = 0;
    bool open = false; // x[]: the initialiser says how many, or the launch
    while (accept_mark(parser, '[')) {
        if (levels == DIMENSIONS_MAX)
            parse_fail(parser, "'%s' has too many dimensions", variable->name);
        if (!levels && accept_mark(parser, ']')) {
            open = true;
            dimensions[levels++] = 0;
            continue;
        }
        Constant size;
        if (!parse_constant(parser, &size) || size.is_float)
            parse_fail(parser, "expected an array size");
        dimensions[levels++] = size.bits;
        expect_mark(parser, ']');
    }
    bool initialised = accept_mark(parser, '=');
    if (open && initialised) {
        uint64_t per_part = 1;
        for (int i = 1; i < levels; i++) per_part = multiply(parser, per_part, dimensions[i]);
        uint64_t values = count_values(parser);
        dimensions[0] = levels > 1 && per_part ? (values + per_part - 1) / per_part : values;
    }
    for (int i = 0; i < levels; i++) {
        variable->count = multiply(parser, variable->count, dimensions[i]);
    }
    variable->size = multiply(parser, variable->size, variable->count);
    if (!initialised) return;
    if (part->vector > 1) dimensions[levels++] = part->vector;
    parse_initialiser(parser, variable, dimensions, levels);
}

void parse_variables(Parser *parser, Space space, const PtxVariable *linkage, Declared *declared) {
    TypePart part = parse_type_part(parser);
    if (!type_size(part.type)) parse_fail(parser, "a variable can't be a predicate");
    do {
        Name *name = expect_name(parser, "a variable's name");
        PtxVariable *variable = new_variable(parser, name->text, space, &part);
        variable->is_extern = linkage->is_extern;
        variable->is_visible = linkage->is_visible;
        variable->is_weak = linkage->is_weak;
        if (accept_mark(parser, '<')) { // x<4>: x0, x1, x2, x3
            uint64_t count = expect_integer(parser, "a count");
            expect_mark(parser, '>');
            if (count > RANGE_MAX) parse_fail(parser, "%s<…>: too many", name->text);
            for (uint64_t i = 0; i < count; i++) {
                char text[300];
                int length =
                    snprintf(text, sizeof text, "%.200s%llu", name->text, (unsigned long long)i);
                Name *one = name_intern(parser->module, text, length);
                PtxVariable *copy = arena_alloc(parser->module->arena, sizeof *copy);
                *copy = *variable;
                copy->name = one->text;
                declared(parser, copy);
            }
            continue;
        }
        parse_dimensions(parser, variable, &part);
        declared(parser, variable);
    } while (accept_mark(parser, ','));
    expect_mark(parser, ';');
}

void parse_parameters(Parser *parser, PtxFunction *owner, PtxVariable ***list, int *count) {
    PtxFunction *outer = parser->function;
    parser->function = owner;
    size_t first = parser->variable_count; // above those of the function's body, if there are any
    expect_mark(parser, '(');
    if (!accept_mark(parser, ')')) {
        do {
            Space space = SPACE_PARAM;
            if (accept_text(parser, ".reg")) {
                space = SPACE_REG;
            } else if (!accept_text(parser, ".param")) {
                parse_fail(parser, "expected .param");
            }
            TypePart part = parse_type_part(parser);
            Name *name = expect_name(parser, "a parameter's name");
            PtxVariable *variable = new_variable(parser, name->text, space, &part);
            if (space == SPACE_PARAM && !variable->size)
                parse_fail(parser, "a parameter needs a size");
            parse_dimensions(parser, variable, &part);
            parser->variables = grow_array(parser->variables, parser->variable_count,
                                           &parser->variable_capacity, sizeof *parser->variables);
            parser->variables[parser->variable_count++] = variable;
        } while (accept_mark(parser, ','));
        expect_mark(parser, ')');
    }
    *count = parser->variable_count - first;
    *list = arena_alloc(parser->module->arena, sizeof **list * (*count + 1));
    if (*count) memcpy(*list, parser->variables + first, sizeof **list * *count);
    parser->variable_count = first;
    parser->function = outer;
}
