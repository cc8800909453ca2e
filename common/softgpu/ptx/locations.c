// Source positions: .file, .loc and the names in .debug_str.
//
// nvcc writes the position of inlined code as a chain:
//
//     .loc 1 24 3
//     .loc 1 19 38, function_name $L__info_string1, inlined_at 1 24 3
//     .loc 1 18 38, function_name $L__info_string2, inlined_at 1 19 38
//
// Each .loc names the function its position lies in, and the position that this function was
// inlined at, which an earlier .loc of the same function body gave in its turn. So every .loc is
// remembered by (file, line, column), the newest one counts, and the chain is built from the
// outside inwards.
#include "softgpu/ptx/internal.h"

#include <string.h>

enum { FILES_MAX = 1 << 20, CHAIN_MAX = 64, FIRST_POSITIONS = 256 };
#define STRINGS_MAX (1u << 30)

void parse_file(Parser *parser) {
    Module *module = parser->module;
    Lexer *lexer = &parser->lexer;
    uint64_t number = expect_integer(parser, "a file number");
    if (lexer->token.kind != TOKEN_STRING) parse_fail(parser, "expected a file name in quotes");
    if (number >= FILES_MAX) parse_fail(parser, ".file has an impossible number");
    if (number >= module->file_capacity) {
        uint32_t capacity = number + 64 + module->file_capacity;
        const char **files = arena_alloc(module->arena, sizeof *files * capacity);
        if (module->file_capacity) {
            memcpy(files, module->files, sizeof *files * module->file_capacity);
        }
        module->files = files;
        module->file_capacity = capacity;
    }
    module->files[number] = name_intern(module, lexer->token.begin, lexer->token.length)->text;
    lexer_advance(lexer);
    while (accept_mark(parser, ',')) expect_integer(parser, "a number"); // time stamp, size
}

void parse_debug_strings(Parser *parser) {
    Module *module = parser->module;
    Lexer *lexer = &parser->lexer;
    expect_mark(parser, '{');
    while (!accept_mark(parser, '}')) {
        if (lexer->token.kind == TOKEN_NAME) {
            Name *name = expect_name(parser, "a label");
            expect_mark(parser, ':');
            name->string_offset = module->string_length + 1;
        } else if (accept_text(parser, ".b8")) {
            do {
                if (module->string_length >= STRINGS_MAX)
                    parse_fail(parser, ".debug_str is too large");
                uint8_t byte = expect_integer(parser, "a byte");
                module->strings =
                    grow_array(module->strings, module->string_length, &module->string_capacity, 1);
                module->strings[module->string_length++] = byte;
            } while (accept_mark(parser, ','));
        } else {
            parse_fail(parser, "expected .b8 or a label in .debug_str");
        }
    }
}

// Reads "$L__info_string0+12": the function's name, or NULL when no such string is there.
static const char *parse_function_name(Parser *parser) {
    Module *module = parser->module;
    Name *label = expect_name(parser, "a label in .debug_str");
    uint64_t offset = accept_mark(parser, '+') ? expect_integer(parser, "an offset") : 0;
    if (!label->string_offset) return NULL;
    uint64_t begin = label->string_offset - 1 + offset;
    if (offset > module->string_length || begin >= module->string_length) return NULL;
    const char *text = module->strings + begin;
    size_t length = strnlen(text, module->string_length - begin);
    return name_intern(module, text, length)->text;
}

// The place of a position in the table: where it is, or where it would go.
static Position *position_slot(Position *table, size_t capacity, uint32_t file, uint32_t line,
                               uint32_t column) {
    uint64_t hash = ((uint64_t)file << 40) ^ ((uint64_t)line << 16) ^ column;
    hash *= 0x9e3779b97f4a7c15ull;
    for (size_t i = hash >> 32;; i++) {
        Position *p = &table[i & (capacity - 1)];
        if (!p->location || (p->file == file && p->line == line && p->column == column)) return p;
    }
}

// Doubles the table of positions when it is half full.
static void make_room(Module *module) {
    if (module->position_count * 2 < module->position_capacity) return;
    size_t capacity = module->position_capacity ? module->position_capacity * 2 : FIRST_POSITIONS;
    Position *table = arena_alloc(module->arena, sizeof *table * capacity);
    for (size_t i = 0; i < module->position_capacity; i++) {
        Position *p = &module->positions[i];
        if (p->location) *position_slot(table, capacity, p->file, p->line, p->column) = *p;
    }
    module->positions = table;
    module->position_capacity = capacity;
}

// Makes a frame.
static PtxLocation *new_location(Parser *parser, uint64_t file, uint32_t line) {
    Module *module = parser->module;
    PtxLocation *location = arena_alloc(module->arena, sizeof *location);
    location->file = file < module->file_capacity ? module->files[file] : NULL;
    location->line = line;
    location->ptx_line = parser->lexer.token.line;
    return location;
}

// Reads the three numbers of a position.
static void parse_position(Parser *parser, uint32_t position[3]) {
    for (int i = 0; i < 3; i++) position[i] = expect_integer(parser, "a number");
}

void parse_location(Parser *parser) {
    Module *module = parser->module;
    uint32_t here[3], caller[3];
    parse_position(parser, here);
    PtxLocation *location = new_location(parser, here[0], here[1]);
    uint32_t depth = 1;
    while (accept_mark(parser, ',')) {
        if (accept_text(parser, "function_name")) {
            location->function = parse_function_name(parser);
        } else if (accept_text(parser, "inlined_at")) {
            parse_position(parser, caller);
            make_room(module);
            const Position *p = position_slot(module->positions, module->position_capacity,
                                              caller[0], caller[1], caller[2]);
            bool known = p->location && p->function == parser->number && p->depth < CHAIN_MAX;
            location->inlined_at = known ? p->location : new_location(parser, caller[0], caller[1]);
            depth = known ? p->depth + 1 : 2;
        } else {
            parse_fail(parser, "unknown part of .loc");
        }
    }
    make_room(module);
    Position *p =
        position_slot(module->positions, module->position_capacity, here[0], here[1], here[2]);
    if (!p->location) module->position_count++;
    *p = (Position){here[0], here[1], here[2], location, parser->number, depth};
    parser->location = location;
}

const PtxLocation *location_at(Parser *parser, uint32_t ptx_line) {
    const PtxLocation *last = parser->last, *now = parser->location;
    bool same_source =
        last && (!now || (last->file == now->file && last->line == now->line &&
                          last->function == now->function && last->inlined_at == now->inlined_at));
    if (same_source && last->ptx_line == ptx_line) return last;
    PtxLocation *location = arena_alloc(parser->module->arena, sizeof *location);
    if (now) *location = *now;
    location->ptx_line = ptx_line;
    parser->last = location;
    return location;
}
