// Function bodies: statements and instructions.
//
// What is wrong with the body's structure (blocks, labels, declarations) ends the parse: then no
// instruction's meaning is certain. What is wrong with one instruction stays there: it becomes
// "<unparsed>", with its text, and stops the kernel when it is reached.
#include "softgpu/ptx/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_MAX = 200, OPCODE_MAX = 400 };

void parse_fail(Parser *parser, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    parser->error->line = parser->lexer.token.line;
    vsnprintf(parser->error->message, sizeof parser->error->message, format, arguments);
    va_end(arguments);
    longjmp(parser->failed, 1);
}

bool accept_mark(Parser *parser, char mark) {
    if (!token_is_mark(&parser->lexer, mark)) return false;
    lexer_advance(&parser->lexer);
    return true;
}

bool accept_text(Parser *parser, const char *text) {
    if (!token_is(&parser->lexer, text)) return false;
    lexer_advance(&parser->lexer);
    return true;
}

void expect_mark(Parser *parser, char mark) {
    const Token *token = &parser->lexer.token;
    if (accept_mark(parser, mark)) return;
    if (token->kind == TOKEN_END) parse_fail(parser, "the text ends where '%c' should stand", mark);
    parse_fail(parser, "expected '%c', found '%.*s'", mark,
               token->length < 40 ? (int)token->length : 40, token->begin);
}

Name *expect_name(Parser *parser, const char *what) {
    const Token *token = &parser->lexer.token;
    if (token->kind != TOKEN_NAME) {
        parse_fail(parser, "expected %s, found '%.*s'", what,
                   token->length < 40 ? (int)token->length : 40, token->begin);
    }
    Name *name = name_intern(parser->module, token->begin, token->length);
    lexer_advance(&parser->lexer);
    return name;
}

// Adds an instruction without operands.
static PtxInstruction *add_instruction(Parser *parser, uint32_t line) {
    parser->instructions = grow_array(parser->instructions, parser->instruction_count,
                                      &parser->instruction_capacity, sizeof *parser->instructions);
    PtxInstruction *instruction = &parser->instructions[parser->instruction_count++];
    memset(instruction, 0, sizeof *instruction);
    instruction->guard = -1;
    instruction->location = location_at(parser, line);
    return instruction;
}

// Sets opcode, full text and modifiers.
static bool set_opcode(Parser *parser, PtxInstruction *instruction, Name *full) {
    const Opcode *opcode = name_opcode(parser->module, full);
    if (opcode->modifier_count < 0) return false;
    instruction->opcode = opcode->first;
    instruction->full = full->text;
    instruction->modifiers = opcode->modifiers;
    instruction->modifier_count = opcode->modifier_count;
    return true;
}

// Moves to the ';' that ends this statement, or to the '}' that ends its block.
static void skip_statement(Parser *parser) {
    Lexer *lexer = &parser->lexer;
    for (int depth = 0;; lexer_advance(lexer)) {
        if (lexer->token.kind == TOKEN_END)
            parse_fail(parser, "the text ends inside an instruction");
        if (token_is_mark(lexer, ';') && !depth) return;
        if (token_is_mark(lexer, '{')) depth++;
        if (token_is_mark(lexer, '}') && depth-- == 0) return;
    }
}

// Makes the instruction one that stops the kernel, and shows its text, white space squeezed.
static void make_unparsed(Parser *parser, PtxInstruction *instruction, const char *begin) {
    const PtxLocation *location = instruction->location;
    skip_statement(parser);
    char text[SHOWN_MAX + 4];
    size_t length = 0;
    for (const char *p = begin; p < parser->lexer.token.begin; p++) {
        bool space = (unsigned char)*p <= ' ';
        if (space && (!length || text[length - 1] == ' ')) continue;
        if (length == SHOWN_MAX) {
            memcpy(text + length, "...", 3);
            length += 3;
            break;
        }
        text[length++] = space ? ' ' : *p;
    }
    while (length && text[length - 1] == ' ') length--;
    memset(instruction, 0, sizeof *instruction);
    instruction->guard = -1;
    instruction->location = location;
    instruction->opcode = name_intern(parser->module, "<unparsed>", 10)->text;
    instruction->full = name_intern(parser->module, text, length)->text;
}

// Reads "@p" or "@!p".
static bool parse_guard(Parser *parser, PtxInstruction *instruction) {
    Lexer *lexer = &parser->lexer;
    if (!accept_mark(parser, '@')) return true;
    instruction->guard_negated = accept_mark(parser, '!');
    if (lexer->token.kind != TOKEN_NAME) return false;
    Binding *binding = find_binding(parser, expect_name(parser, "a predicate"));
    if (!binding || binding->kind != BIND_REGISTER || binding->type != TYPE_PRED) return false;
    instruction->guard = binding_register(parser, binding);
    return true;
}

// Reads the parts of an opcode behind its first: usually one run of text, but white space is
// allowed.
static Name *parse_opcode(Parser *parser, const Token *first) {
    Lexer *lexer = &parser->lexer;
    const char *end = first->begin + first->length;
    while (lexer->token.kind == TOKEN_DIRECTIVE && lexer->token.begin == end) {
        end += lexer->token.length;
        lexer_advance(lexer);
    }
    if (lexer->token.kind != TOKEN_DIRECTIVE) {
        return name_intern(parser->module, first->begin, end - first->begin);
    }
    char text[OPCODE_MAX];
    size_t length = end - first->begin;
    if (length > OPCODE_MAX) return NULL;
    memcpy(text, first->begin, length);
    while (lexer->token.kind == TOKEN_DIRECTIVE) {
        if (length + lexer->token.length > OPCODE_MAX) return NULL;
        memcpy(text + length, lexer->token.begin, lexer->token.length);
        length += lexer->token.length;
        lexer_advance(lexer);
    }
    return name_intern(parser->module, text, length);
}

// Reads the operands up to the ';'. Labels stay names; the caller refers to them.
static bool parse_operands(Parser *parser, PtxInstruction *instruction) {
    Lexer *lexer = &parser->lexer;
    bool is_call = !strcmp(instruction->opcode, "call");
    bool is_branch = !strcmp(instruction->opcode, "bra");
    bool is_table_branch = !strcmp(instruction->opcode, "brx");
    parser->stack_count = 0;
    int count = 0;
    if (!token_is_mark(lexer, ';')) {
        do {
            size_t at = parser->stack_count;
            bool is_label = is_branch || (is_table_branch && count == 1);
            if (is_label && lexer->token.kind == TOKEN_NAME) {
                Name *name = expect_name(parser, "a label");
                parser->stack =
                    grow_array(parser->stack, at, &parser->stack_capacity, sizeof *parser->stack);
                PtxOperand *label = &parser->stack[parser->stack_count++];
                *label = (PtxOperand){.kind = OPERAND_LABEL, .reg = -1, .pair = -1, .target = -1};
                label->name = name->text;
            } else if (!parse_operand(parser, is_call, 0)) {
                return false;
            }
            count++;
        } while (accept_mark(parser, ','));
    }
    if (!token_is_mark(lexer, ';')) return false;
    size_t size = sizeof *instruction->operands * parser->stack_count;
    instruction->operand_count = parser->stack_count;
    instruction->operands = arena_alloc(parser->module->arena, size + 1);
    if (size) memcpy(instruction->operands, parser->stack, size);
    return true;
}

// Notes what the instruction says about labels, for when the block ends.
static void refer_to_labels(Parser *parser, PtxInstruction *instruction, uint32_t line) {
    int index = instruction - parser->instructions;
    for (int i = 0; i < instruction->operand_count; i++) {
        PtxOperand *operand = &instruction->operands[i];
        if (operand->kind != OPERAND_LABEL) continue;
        bool is_table = !strcmp(instruction->opcode, "brx");
        add_reference(parser, is_table ? REFER_TABLE : REFER_BRANCH, name_of(operand->name), line,
                      &operand->target, index);
    }
    if (strcmp(instruction->opcode, "call") || instruction->operand_count < 2) return;
    // The last operand of an indirect call names its prototype: a symbol that is not the callee.
    const PtxOperand *last = &instruction->operands[instruction->operand_count - 1];
    const PtxOperand *callee = instruction->operands;
    if (callee->kind == OPERAND_LIST) callee++;
    if (callee == last || callee->kind != OPERAND_REGISTER || last->kind != OPERAND_SYMBOL) return;
    add_reference(parser, REFER_PROTOTYPE, name_of(last->name), line, NULL, index);
}

// Reads an instruction; `first` is its first token, an opcode, or the '@' of its guard.
static void parse_instruction(Parser *parser, const Token *first) {
    PtxInstruction *instruction = add_instruction(parser, first->line);
    instruction->used_bytes = parser->used_bytes;
    parser->used_bytes = 0;
    Lexer *lexer = &parser->lexer;
    Token opcode = *first;
    bool good = true;
    if (first->kind == TOKEN_MARK) { // the guard is still the current token
        good = parse_guard(parser, instruction) && lexer->token.kind == TOKEN_NAME;
        opcode = lexer->token;
        if (good) lexer_advance(lexer);
    }
    Name *full = good ? parse_opcode(parser, &opcode) : NULL;
    good = full && set_opcode(parser, instruction, full) && parse_operands(parser, instruction);
    if (good) {
        refer_to_labels(parser, instruction, first->line);
    } else {
        make_unparsed(parser, instruction, first->begin);
    }
    if (!token_is_mark(lexer, '}')) expect_mark(parser, ';');
}

// Reads what stands behind "name :": a table, a prototype, or nothing, for a plain label.
static void parse_label(Parser *parser, Name *name) {
    Label *label = declare_label(parser, name);
    Lexer *lexer = &parser->lexer;
    if (accept_text(parser, ".branchtargets")) {
        label->is_table = true;
        size_t count = 0;
        Lexer saved = *lexer; // once to count, once to refer
        do {
            expect_name(parser, "a label");
            count++;
        } while (accept_mark(parser, ','));
        *lexer = saved;
        label->table = arena_alloc(parser->module->arena, sizeof *label->table * count);
        label->table_count = count;
        for (size_t i = 0; i < count; i++) {
            uint32_t line = lexer->token.line;
            Name *target = expect_name(parser, "a label");
            add_reference(parser, REFER_TABLE_ENTRY, target, line, &label->table[i], 0);
            accept_mark(parser, ',');
        }
        expect_mark(parser, ';');
    } else if (accept_text(parser, ".calltargets")) {
        label->is_call_table = true;
        do {
            expect_name(parser, "a function");
        } while (accept_mark(parser, ','));
        expect_mark(parser, ';');
    } else if (accept_text(parser, ".callprototype")) {
        Function *prototype = arena_alloc(parser->module->arena, sizeof *prototype);
        PtxFunction *function = &prototype->ptx;
        function->module = &parser->module->ptx;
        function->name = name->text;
        function->is_declaration = true;
        if (token_is_mark(lexer, '(')) {
            parse_parameters(parser, function, &function->returns, &function->return_count);
        }
        expect_name(parser, "_");
        if (token_is_mark(lexer, '(')) {
            parse_parameters(parser, function, &function->params, &function->param_count);
        }
        while (lexer->token.kind == TOKEN_DIRECTIVE) {
            if (token_is(lexer, ".noreturn")) function->no_return = true;
            lexer_advance(lexer);
        }
        expect_mark(parser, ';');
        label->prototype = function;
    }
}

// Kernels mark their phases by declaring a predicate phase$NAME in a block of its own, where nothing
// uses it: ptxas makes nothing of that (common/device/phase.h). Here it becomes an instruction.
void note_phase(Parser *parser, const Name *name) {
    static const char prefix[] = "phase$";
    const size_t length = sizeof prefix - 1;
    if (name->length < length || memcmp(name->text, prefix, length)) return;
    PtxInstruction *marker = add_instruction(parser, parser->lexer.token.line);
    marker->opcode = marker->full = name_intern(parser->module, "<phase>", 7)->text;
    marker->operand_count = 1;
    marker->operands = arena_alloc(parser->module->arena, sizeof *marker->operands);
    *marker->operands = (PtxOperand){.kind = OPERAND_SYMBOL, .reg = -1, .pair = -1, .target = -1};
    marker->operands->name =
        name_intern(parser->module, name->text + length, name->length - length)->text;
}

// Reads the strings of a .pragma. All are hints to the assembler, without effect on the meaning; but
// "used_bytes_mask 0x0fff", before a load, says which of the bytes that it reads matter.
static void parse_pragma(Parser *parser) {
    static const char used_bytes[] = "used_bytes_mask";
    Lexer *lexer = &parser->lexer;
    do {
        if (lexer->token.kind != TOKEN_STRING) parse_fail(parser, "expected a pragma in quotes");
        char text[64];
        snprintf(text, sizeof text, "%.*s", (int)lexer->token.length, lexer->token.begin);
        const char *found = strstr(text, used_bytes);
        if (found) parser->used_bytes = (uint32_t)strtoul(found + strlen(used_bytes), NULL, 0);
        lexer_advance(lexer);
    } while (accept_mark(parser, ','));
    expect_mark(parser, ';');
}

// Reads a declaration or directive; false if the current token is none that a body may hold.
static bool parse_directive(Parser *parser) {
    PtxVariable plain = {0};
    plain.is_extern = accept_text(parser, ".extern");
    if (accept_text(parser, ".loc")) {
        parse_location(parser);
    } else if (accept_text(parser, ".reg")) {
        declare_registers(parser);
    } else if (accept_text(parser, ".param")) {
        parse_variables(parser, SPACE_PARAM, &plain, declare_variable);
    } else if (accept_text(parser, ".shared")) {
        parse_variables(parser, SPACE_SHARED, &plain, declare_variable);
    } else if (accept_text(parser, ".local")) {
        parse_variables(parser, SPACE_LOCAL, &plain, declare_variable);
    } else if (accept_text(parser, ".global")) {
        parse_variables(parser, SPACE_GLOBAL, &plain, declare_variable);
    } else if (accept_text(parser, ".const")) {
        parse_variables(parser, SPACE_CONST, &plain, declare_variable);
    } else if (accept_text(parser, ".pragma")) {
        parse_pragma(parser);
    } else if (accept_text(parser, ".file")) {
        parse_file(parser);
    } else {
        return false;
    }
    return true;
}

// Reads the statements between the braces of the body.
static void parse_body(Parser *parser) {
    Lexer *lexer = &parser->lexer;
    expect_mark(parser, '{');
    while (parser->depth >= 0) {
        Token first = lexer->token;
        if (first.kind == TOKEN_NAME) {
            lexer_advance(lexer);
            if (accept_mark(parser, ':')) {
                parse_label(parser, name_intern(parser->module, first.begin, first.length));
            } else {
                parse_instruction(parser, &first);
            }
        } else if (token_is_mark(lexer, '@')) {
            parse_instruction(parser, &first);
        } else if (accept_mark(parser, '{')) {
            scope_enter(parser);
        } else if (token_is_mark(lexer, '}')) {
            scope_leave(parser);
            lexer_advance(lexer);
        } else if (first.kind == TOKEN_DIRECTIVE) {
            if (!parse_directive(parser)) {
                parse_fail(parser, "unknown directive '%.*s' in '%s'", (int)first.length,
                           first.begin, parser->function->name);
            }
        } else if (!accept_mark(parser, ';')) {
            if (first.kind == TOKEN_END)
                parse_fail(parser, "the body of '%s' never ends", parser->function->name);
            parse_fail(parser, "'%.*s' begins no statement",
                       first.length < 40 ? (int)first.length : 40, first.begin);
        }
    }
}

// Does control never go on behind this instruction?
static bool ends_path(const PtxInstruction *instruction) {
    if (instruction->guard >= 0) return false;
    const char *ends[] = {"ret", "exit", "bra", "brx", "trap"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (!strcmp(instruction->opcode, ends[i])) return true;
    }
    return false;
}

// Declares the parameters and results, which are known in the whole body.
static void declare_parameters(Parser *parser, PtxVariable **list, int count) {
    for (int i = 0; i < count; i++) {
        if (list[i]->space == SPACE_REG) {
            declare_register_parameter(parser, list[i]);
        } else {
            declare_variable(parser, list[i]);
        }
    }
    parser->variable_count = 0; // only what the body declares is listed
}

// Parses the body. false after a failure, which comes here by longjmp.
static bool parse_function(Parser *parser) {
    PtxFunction *function = parser->function;
    const char *text = parser->module->ptx.text;
    parser->depth = 0;
    if (setjmp(parser->failed)) return false;
    lexer_start(&parser->lexer, text + function->text_begin, text + function->text_end,
                ((Function *)function)->body_line);
    declare_parameters(parser, function->returns, function->return_count);
    declare_parameters(parser, function->params, function->param_count);
    // The end of the body returns, where control can get there: a last `ret` makes that explicit.
    parse_body(parser);
    size_t count = parser->instruction_count;
    bool targeted = false;
    for (size_t i = 0; i < parser->reference_count; i++) {
        const Reference *reference = &parser->references[i];
        targeted |= reference->slot && (size_t)*reference->slot == count;
    }
    if (!count || targeted || !ends_path(&parser->instructions[count - 1])) {
        PtxInstruction *ret = add_instruction(parser, parser->lexer.token.line);
        set_opcode(parser, ret, name_intern(parser->module, "ret", 3));
        ret->operands = arena_alloc(parser->module->arena, 1);
    }
    return true;
}

// A copy of `count` elements in the module's arena.
static void *keep(Parser *parser, const void *array, size_t count, size_t element_size) {
    void *copy = arena_alloc(parser->module->arena, count * element_size + 1);
    if (count) memcpy(copy, array, count * element_size);
    return copy;
}

bool ptx_parse_function(PtxFunction *function, PtxError *error) {
    if (function->parsed) return true;
    if (function->is_declaration) {
        *error = (PtxError){.line = function->ptx_line};
        snprintf(error->message, sizeof error->message, "'%.200s' is declared here but has no body",
                 function->name);
        return false;
    }
    Module *module = (Module *)function->module;
    Parser *parser = calloc(1, sizeof *parser);
    if (!parser) {
        *error = (PtxError){.line = function->ptx_line, .message = "out of memory"};
        return false;
    }
    parser->module = module;
    parser->error = error;
    parser->function = function;
    parser->number = ++module->functions_parsed;
    bool good = parse_function(parser);
    if (good) {
        function->register_count = parser->register_count;
        function->registers =
            keep(parser, parser->registers, parser->register_count, sizeof *function->registers);
        function->variable_count = parser->variable_count;
        function->variables =
            keep(parser, parser->variables, parser->variable_count, sizeof *function->variables);
        function->instruction_count = parser->instruction_count;
        function->instructions = keep(parser, parser->instructions, parser->instruction_count,
                                      sizeof *function->instructions);
        function->parsed = true;
    }
    scope_abandon(parser);
    free(parser->references);
    free(parser->stack);
    free(parser->instructions);
    free(parser->registers);
    free(parser->variables);
    free(parser->fixups);
    free(parser);
    return good;
}
