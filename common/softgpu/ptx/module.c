// The index of a module: its directives, variables and functions. Bodies are skipped here.
#include "softgpu/ptx/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Adds a variable of the module. A definition takes the place of declarations before it.
static void add_variable(Parser *parser, PtxVariable *variable) {
    Module *module = parser->module;
    Name *name = name_of(variable->name);
    PtxVariable *old = name->variable;
    if (old && old->is_extern) { // uses refer to the old one already
        bool visible = old->is_visible | variable->is_visible, weak = old->is_weak;
        if (variable->is_extern && !variable->size) return;
        *old = *variable;
        old->is_visible = visible;
        old->is_weak |= weak;
        return;
    }
    if (old && variable->is_extern) return;
    if (old) parse_fail(parser, "the variable '%s' is defined twice", variable->name);
    name->variable = variable;
    module->ptx.variables = grow_array(module->ptx.variables, module->ptx.variable_count,
                                       &module->variable_capacity, sizeof *module->ptx.variables);
    module->ptx.variables[module->ptx.variable_count++] = variable;
}

// Reads up to three numbers, "128, 1, 1"; what is missing is 1.
static void parse_triple(Parser *parser, uint32_t triple[3]) {
    triple[0] = triple[1] = triple[2] = 1;
    for (int i = 0; i < 3; i++) {
        triple[i] = expect_integer(parser, "a number");
        if (!accept_mark(parser, ',')) break;
    }
}

// Reads the performance directives between a function's parameters and its body.
static void parse_function_directives(Parser *parser, PtxFunction *function) {
    Lexer *lexer = &parser->lexer;
    while (lexer->token.kind == TOKEN_DIRECTIVE) {
        uint32_t ignored[3];
        if (accept_text(parser, ".maxntid")) {
            parse_triple(parser, function->maxntid);
        } else if (accept_text(parser, ".reqntid")) {
            parse_triple(parser, function->reqntid);
        } else if (accept_text(parser, ".reqnctapercluster")) {
            parse_triple(parser, function->reqnctapercluster);
        } else if (accept_text(parser, ".minnctapersm")) {
            function->minnctapersm = expect_integer(parser, "a number");
        } else if (accept_text(parser, ".maxnctapersm")) {
            parse_triple(parser, ignored);
        } else if (accept_text(parser, ".maxnreg")) {
            function->maxnreg = expect_integer(parser, "a number");
        } else if (accept_text(parser, ".maxclusterrank")) {
            function->maxclusterrank = expect_integer(parser, "a number");
        } else if (accept_text(parser, ".explicitcluster")) {
            function->explicit_cluster = true;
        } else if (accept_text(parser, ".blocksareclusters")) {
            function->blocks_are_clusters = true;
        } else if (accept_text(parser, ".noreturn")) {
            function->no_return = true;
        } else if (accept_text(parser, ".abi_preserve") ||
                   accept_text(parser, ".abi_preserve_control")) {
            expect_integer(parser, "a number");
        } else if (accept_text(parser, ".pragma")) {
            do {
                if (lexer->token.kind != TOKEN_STRING)
                    parse_fail(parser, "expected a pragma in quotes");
                lexer_advance(lexer);
            } while (accept_mark(parser, ','));
            expect_mark(parser, ';');
        } else {
            parse_fail(parser, "unknown directive '%.*s' of the function '%s'",
                       (int)lexer->token.length, lexer->token.begin, function->name);
        }
    }
}

// The function of this name: a new one, or the one that was declared or used before.
static PtxFunction *find_or_add_function(Parser *parser, Name *name) {
    if (name->function) return name->function;
    Module *module = parser->module;
    Function *function = arena_alloc(module->arena, sizeof *function);
    function->ptx.module = &module->ptx;
    function->ptx.name = name->text;
    function->ptx.is_declaration = true;
    name->function = &function->ptx;
    module->ptx.functions = grow_array(module->ptx.functions, module->ptx.function_count,
                                       &module->function_capacity, sizeof *module->ptx.functions);
    module->ptx.functions[module->ptx.function_count++] = &function->ptx;
    return &function->ptx;
}

// Reads a function behind .entry or .func, its body only to its end.
static void parse_function_head(Parser *parser, bool is_entry, const PtxVariable *linkage) {
    Lexer *lexer = &parser->lexer;
    Function *head = arena_alloc(parser->module->arena, sizeof *head); // becomes the function's
    PtxFunction *f = &head->ptx;
    f->ptx_line = lexer->token.line;
    if (accept_text(parser, ".attribute")) { // .unified( , ): of no use here
        expect_mark(parser, '(');
        for (int depth = 1; depth; lexer_advance(lexer)) {
            if (lexer->token.kind == TOKEN_END) parse_fail(parser, "unfinished .attribute");
            depth += token_is_mark(lexer, '(') - token_is_mark(lexer, ')');
        }
    }
    f->is_entry = is_entry;
    f->is_visible = linkage->is_visible;
    f->is_weak = linkage->is_weak;
    f->module = &parser->module->ptx;
    // Parameters belong to the function that the name stands for, which is known only behind them.
    PtxVariable **returns = NULL;
    int return_count = 0;
    if (token_is_mark(lexer, '(')) parse_parameters(parser, f, &returns, &return_count);
    Name *name = expect_name(parser, "a function's name");
    f->name = name->text;
    f->returns = returns;
    f->return_count = return_count;
    if (token_is_mark(lexer, '(')) parse_parameters(parser, f, &f->params, &f->param_count);
    parse_function_directives(parser, f);
    PtxFunction *function = find_or_add_function(parser, name);
    if (!token_is_mark(lexer, '{')) {
        expect_mark(parser, ';');
        f->is_declaration = true;
    } else {
        f->text_begin = lexer->token.begin - parser->module->ptx.text;
        head->body_line = lexer->token.line;
        if (!lexer_skip_block(lexer)) parse_fail(parser, "the body of '%s' never ends", f->name);
        f->text_end = lexer->block_end - parser->module->ptx.text;
    }
    if (f->is_declaration && function->params) return; // said before
    if (!function->is_declaration) {
        parse_fail(parser, "the function '%s' is defined twice", f->name);
    }
    f->is_visible |= function->is_visible;
    f->is_weak |= function->is_weak;
    f->no_return |= function->no_return;
    for (int i = 0; i < f->return_count; i++) f->returns[i]->owner = function;
    for (int i = 0; i < f->param_count; i++) f->params[i]->owner = function;
    *(Function *)function = *head;
}

// Reads ".alias a, b;": a is another name of the function b.
static void parse_alias(Parser *parser) {
    Name *alias = expect_name(parser, "a function's name");
    expect_mark(parser, ',');
    Name *target = expect_name(parser, "a function's name");
    expect_mark(parser, ';');
    if (!target->function || target->function->is_declaration) {
        parse_fail(parser, ".alias: the function '%s' has no body", target->text);
    }
    PtxFunction *function = find_or_add_function(parser, alias);
    if (!function->is_declaration)
        parse_fail(parser, "the function '%s' is defined twice", alias->text);
    bool visible = function->is_visible, weak = function->is_weak;
    *(Function *)function = *(Function *)target->function;
    function->name = alias->text;
    function->is_visible = visible;
    function->is_weak = weak;
}

// Reads ".target sm_90a, debug".
static void parse_target(Parser *parser) {
    Module *module = parser->module;
    do {
        Name *name = expect_name(parser, "a target");
        int sm = 0;
        char suffix = 0;
        if (!strncmp(name->text, "sm_", 3) && sscanf(name->text, "sm_%6d%c", &sm, &suffix) >= 1) {
            module->ptx.target_sm = sm;
            module->ptx.target_suffix = suffix;
        }
    } while (accept_mark(parser, ','));
    if (!module->ptx.target_sm) parse_fail(parser, ".target names no sm_NN");
}

// Reads ".version 9.0".
static void parse_version(Parser *parser) {
    Lexer *lexer = &parser->lexer;
    int major = 0, minor = 0;
    char text[16];
    snprintf(text, sizeof text, "%.*s", (int)(lexer->token.length < 15 ? lexer->token.length : 15),
             lexer->token.begin);
    if (lexer->token.kind != TOKEN_FLOAT || sscanf(text, "%4d.%4d", &major, &minor) != 2) {
        parse_fail(parser, "expected a version such as 9.0");
    }
    parser->module->ptx.version = 10 * major + minor;
    lexer_advance(lexer);
}

// Reads a section behind .section: only the names of inlined functions are of interest.
static void parse_section(Parser *parser) {
    Lexer *lexer = &parser->lexer;
    bool strings = token_is(lexer, ".debug_str");
    if (lexer->token.kind != TOKEN_DIRECTIVE && lexer->token.kind != TOKEN_NAME) {
        parse_fail(parser, "expected a section's name");
    }
    lexer_advance(lexer);
    if (!token_is_mark(lexer, '{')) parse_fail(parser, "expected the '{' of a section");
    if (strings) {
        parse_debug_strings(parser);
    } else if (!lexer_skip_block(lexer)) {
        parse_fail(parser, "this section never ends");
    }
}

// Reads one statement of the module.
static void parse_statement(Parser *parser) {
    Lexer *lexer = &parser->lexer;
    PtxVariable linkage = {0};
    for (;;) {
        if (accept_text(parser, ".extern")) {
            linkage.is_extern = true;
        } else if (accept_text(parser, ".visible")) {
            linkage.is_visible = true;
        } else if (accept_text(parser, ".weak") || accept_text(parser, ".common")) {
            linkage.is_weak = linkage.is_visible = true;
        } else {
            break;
        }
    }
    if (accept_text(parser, ".entry")) {
        parse_function_head(parser, true, &linkage);
    } else if (accept_text(parser, ".func")) {
        parse_function_head(parser, false, &linkage);
    } else if (accept_text(parser, ".global")) {
        parse_variables(parser, SPACE_GLOBAL, &linkage, add_variable);
    } else if (accept_text(parser, ".const")) {
        parse_variables(parser, SPACE_CONST, &linkage, add_variable);
    } else if (accept_text(parser, ".shared")) {
        parse_variables(parser, SPACE_SHARED, &linkage, add_variable);
    } else if (accept_text(parser, ".local")) {
        parse_variables(parser, SPACE_LOCAL, &linkage, add_variable);
    } else if (accept_text(parser, ".alias")) {
        parse_alias(parser);
    } else if (accept_text(parser, ".file")) {
        parse_file(parser);
    } else if (accept_text(parser, ".section")) {
        parse_section(parser);
    } else if (accept_text(parser, ".version")) {
        parse_version(parser);
    } else if (accept_text(parser, ".target")) {
        parse_target(parser);
    } else if (accept_text(parser, ".address_size")) {
        if (expect_integer(parser, "64") != 64)
            parse_fail(parser, "only 64-bit addresses are supported");
    } else if (accept_text(parser, ".pragma")) {
        while (lexer->token.kind == TOKEN_STRING || token_is_mark(lexer, ',')) lexer_advance(lexer);
        expect_mark(parser, ';');
    } else if (accept_text(parser, ".loc")) {
        parse_location(parser);
    } else if (!accept_mark(parser, ';')) {
        parse_fail(parser, "'%.*s' begins no declaration",
                   lexer->token.length < 40 ? (int)lexer->token.length : 40, lexer->token.begin);
    }
}

// Gives initialisers the variables and functions that their symbols name.
static void resolve_fixups(Module *module) {
    for (int i = 0; i < module->ptx.variable_count; i++) {
        PtxVariable *variable = module->ptx.variables[i];
        for (int k = 0; k < variable->fixup_count; k++) {
            const Name *name = name_of(variable->fixups[k].symbol);
            variable->fixups[k].variable = name->variable;
            variable->fixups[k].function = name->variable ? NULL : name->function;
        }
    }
}

// Reads the whole module. false after a failure, which comes here by longjmp.
static bool parse_module(Parser *parser) {
    Module *module = parser->module;
    if (setjmp(parser->failed)) return false;
    lexer_start(&parser->lexer, module->ptx.text, module->ptx.text + module->ptx.length, 1);
    if (!token_is(&parser->lexer, ".version")) parse_fail(parser, "PTX begins with .version");
    while (parser->lexer.token.kind != TOKEN_END) parse_statement(parser);
    if (!module->ptx.target_sm) parse_fail(parser, "this PTX has no .target");
    resolve_fixups(module);
    return true;
}

PtxModule *ptx_index(const char *text, size_t length, PtxError *error) {
    *error = (PtxError){0};
    while (length && !text[length - 1]) length--; // padding
    Arena *arena = arena_new();
    Module *module = arena_alloc(arena, sizeof *module);
    Parser *parser = calloc(1, sizeof *parser);
    char *copy = malloc(length + 1);
    module->arena = arena;
    module->ptx.arena = arena;
    module->ptx.text = copy;
    module->ptx.length = length;
    bool good = false;
    if (parser && copy) {
        memcpy(copy, text, length);
        copy[length] = 0;
        parser->module = module;
        parser->error = error;
        parser->depth = -1;
        good = parse_module(parser);
        free(parser->variables);
        free(parser->fixups);
    } else {
        snprintf(error->message, sizeof error->message, "out of memory");
    }
    free(parser);
    if (good) return &module->ptx;
    ptx_free(&module->ptx);
    return NULL;
}

PtxFunction *ptx_find_function(const PtxModule *module, const char *name) {
    Name *known = name_find((const Module *)module, name, strlen(name));
    return known ? known->function : NULL;
}

PtxVariable *ptx_find_variable(const PtxModule *module, const char *name) {
    Name *known = name_find((const Module *)module, name, strlen(name));
    return known ? known->variable : NULL;
}

void ptx_free(PtxModule *ptx) {
    if (!ptx) return;
    Module *module = (Module *)ptx;
    names_free(module);
    free(module->strings);
    free(module->ptx.variables);
    free(module->ptx.functions);
    free((char *)module->ptx.text);
    arena_free(module->arena); // the module itself lies there
}
