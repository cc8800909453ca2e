// Small PTX modules for the tests of the parser.
#ifndef TESTS_PTX_TEXT_H
#define TESTS_PTX_TEXT_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/ptx/ptx.h"

#define HEAD ".version 9.0\n.target sm_90a\n.address_size 64\n"

// Indexes a module; fails the test if that can't be done.
static inline PtxModule *index_text(const char *text) {
    PtxError error;
    PtxModule *module = ptx_index(text, strlen(text), &error);
    ck_assert_msg(module, "line %u: %s", error.line, error.message);
    return module;
}

// Parses the body of a function of the module.
static inline PtxFunction *parse(PtxModule *module, const char *name) {
    PtxError error;
    PtxFunction *f = ptx_find_function(module, name);
    ck_assert_msg(f, "no function %s", name);
    ck_assert_msg(ptx_parse_function(f, &error), "line %u: %s", error.line, error.message);
    return f;
}

// A module with one kernel `k` around these statements.
static inline PtxModule *wrap(const char *body) {
    size_t size = strlen(body) + 400;
    char *text = malloc(size);
    snprintf(text, size,
             HEAD "\n.visible .entry k(.param .u64 p)\n{\n.reg .pred %%p<9>;\n.reg .b16 %%rs<9>;\n"
                  ".reg .b32 %%r<99>;\n.reg .b64 %%rd<9>;\n.reg .f32 %%f<9>;\n%s\n}\n",
             body);
    PtxModule *module = index_text(text);
    free(text);
    return module;
}

// The first instruction of a kernel around one statement.
static inline const PtxInstruction *one(PtxModule **module, const char *statement) {
    *module = wrap(statement);
    return &parse(*module, "k")->instructions[0];
}

// The name of a register operand.
static inline const char *reg(const PtxModule *module, const PtxOperand *o) {
    ck_assert_int_eq(o->kind, OPERAND_REGISTER);
    return ptx_find_function(module, "k")->registers[o->reg].name;
}

// The message with which parsing k fails.
static inline PtxError failure(const char *body) {
    PtxModule *module = wrap(body);
    PtxError error = {0};
    ck_assert(!ptx_parse_function(ptx_find_function(module, "k"), &error));
    // A failure leaves nothing behind: a second try fails the same way.
    PtxError again = {0};
    ck_assert(!ptx_parse_function(ptx_find_function(module, "k"), &again));
    ck_assert_str_eq(error.message, again.message);
    ptx_free(module);
    return error;
}

#endif
