// The PTX front end: what it makes of the text of modules and functions.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/ptx/ptx.h"

Suite *suite_ptx_parser(void);

#define HEAD ".version 9.0\n.target sm_90a\n.address_size 64\n"

// Indexes a module; fails the test if that can't be done.
static PtxModule *index_text(const char *text) {
    PtxError error;
    PtxModule *module = ptx_index(text, strlen(text), &error);
    ck_assert_msg(module, "line %u: %s", error.line, error.message);
    return module;
}

// Parses the body of a function of the module.
static PtxFunction *parse(PtxModule *module, const char *name) {
    PtxError error;
    PtxFunction *f = ptx_find_function(module, name);
    ck_assert_msg(f, "no function %s", name);
    ck_assert_msg(ptx_parse_function(f, &error), "line %u: %s", error.line, error.message);
    return f;
}

// A module with one kernel `k` around these statements.
static PtxModule *wrap(const char *body) {
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
static const PtxInstruction *one(PtxModule **module, const char *statement) {
    *module = wrap(statement);
    return &parse(*module, "k")->instructions[0];
}

// The name of a register operand.
static const char *reg(const PtxModule *module, const PtxOperand *o) {
    ck_assert_int_eq(o->kind, OPERAND_REGISTER);
    return ptx_find_function(module, "k")->registers[o->reg].name;
}

// The message with which parsing k fails.
static PtxError failure(const char *body) {
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

START_TEST(module_head) {
    PtxModule *m = index_text("// c\n" HEAD ".visible .entry k() { ret; }\0\0\0");
    ck_assert_int_eq(m->version, 90);
    ck_assert_int_eq(m->target_sm, 90);
    ck_assert_int_eq(m->target_suffix, 'a');
    ck_assert_int_eq(m->function_count, 1);
    ck_assert_uint_eq(m->functions[0]->ptx_line, 5);
    ptx_free(m);
    m = index_text(".version 8.8\n.target sm_80, debug\n.address_size 64\n");
    ck_assert_int_eq(m->version, 88);
    ck_assert_int_eq(m->target_sm, 80);
    ck_assert_int_eq(m->target_suffix, 0);
    ptx_free(m);
}
END_TEST

START_TEST(module_refusals) {
    static const struct {
        const char *text, *part;
        uint32_t line;
    } cases[] = {
        {"", "begins with .version", 1},
        {"hello", "begins with .version", 1},
        {".version 9.0\n", "no .target", 2},
        {".version 9.0\n.target sm_90\n.address_size 32\n", "64-bit", 4},
        {HEAD ".visible .entry k()\n{ ret;\n", "never ends", 5},
        {HEAD ".global .b32 x;\n.global .b32 x;\n", "defined twice", 5},
        {HEAD ".entry k() { }\n.entry k() { }\n", "defined twice", 6},
        {HEAD ".global .b8 x[2] = {1, 2, 3};", "too many values", 4},
        {HEAD ".global .b32 x = {{1}};", "too many braces", 4},
        {HEAD ".global .b32 x = 0xFF(y);", "one byte", 4},
        {HEAD ".global .b16 x = y;", "can't hold an address", 4},
        {HEAD ".global .b8 x[99999999999][99999999999];", "too large", 4},
        {HEAD ".entry k() .frobnicate 3 { }", "unknown directive '.frobnicate'", 4},
        {HEAD ".frobnicate 3;", "begins no declaration", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PtxError error;
        PtxModule *m = ptx_index(cases[i].text, strlen(cases[i].text), &error);
        ck_assert_msg(!m, "case %zu was accepted", i);
        ck_assert_msg(strstr(error.message, cases[i].part), "case %zu: %s", i, error.message);
        ck_assert_msg(error.line == cases[i].line, "case %zu: line %u", i, error.line);
    }
}
END_TEST

START_TEST(variables) {
    PtxModule *m = index_text(
        HEAD ".visible .func foo();\n"
             ".global .align 8 .u64 table[5] = {0, -1, generic(data)+20, foo, data-4};\n"
             ".global .align 4 .b8 data[16] = {1, 2, 0xFF, 010, 0b11, 255U};\n"
             ".const .align 8 .f64 half = 0d3FE0000000000000;\n"
             ".const .f32 third[2] = {0f3EAAAAAB, 0.25};\n"
             ".global .attribute(.managed) .align 4 .u32 managed_one = 5;\n"
             ".extern .shared .align 16 .b8 dynamic[];\n"
             ".visible .global .v4 .f32 quad = {1.0, 2.0, 3.0, 4.0};\n"
             ".global .s32 rows[2][3] = {{1, 2}, {4}};\n"
             ".global .u16 open[] = {7, 8, 9};\n"
             ".global .b8 bytes[4] = {0xFF(data), 0xFF00(data), 0xFF0000(generic(data)), 4};\n"
             ".global .u32 sum = (1 << 4) + 2 * 3 - (7 % 4) + (3 > 2 ? 100 : 200);\n"
             ".weak .global .b32 $weak$0;\n");
    PtxVariable *t = ptx_find_variable(m, "table");
    ck_assert_int_eq(t->type, TYPE_U64);
    ck_assert_uint_eq(t->size, 40);
    ck_assert_uint_eq(t->count, 5);
    ck_assert_int_eq(t->fixup_count, 3);
    int64_t minus;
    memcpy(&minus, t->data + 8, 8);
    ck_assert_int_eq(minus, -1);
    ck_assert_uint_eq(t->fixups[0].offset, 16);
    ck_assert_int_eq(t->fixups[0].addend, 20);
    ck_assert(t->fixups[0].generic);
    ck_assert_ptr_eq(t->fixups[0].variable, ptx_find_variable(m, "data"));
    ck_assert_ptr_eq(t->fixups[1].function, ptx_find_function(m, "foo"));
    ck_assert_int_eq(t->fixups[2].addend, -4);
    ck_assert(!t->fixups[2].generic);
    static const uint8_t data[16] = {1, 2, 255, 8, 3, 255};
    ck_assert_mem_eq(ptx_find_variable(m, "data")->data, data, 16);
    double half;
    memcpy(&half, ptx_find_variable(m, "half")->data, 8);
    ck_assert_double_eq(half, 0.5);
    ck_assert_int_eq(ptx_find_variable(m, "half")->space, SPACE_CONST);
    float third[2];
    memcpy(third, ptx_find_variable(m, "third")->data, 8);
    ck_assert_float_eq(third[0], 1.0f / 3);
    ck_assert_float_eq(third[1], 0.25f);
    ck_assert(ptx_find_variable(m, "managed_one")->is_managed);
    ck_assert(!t->is_managed);
    PtxVariable *dynamic = ptx_find_variable(m, "dynamic");
    ck_assert(dynamic->is_extern);
    ck_assert_uint_eq(dynamic->count, 0);
    ck_assert_uint_eq(dynamic->align, 16);
    ck_assert_int_eq(dynamic->space, SPACE_SHARED);
    PtxVariable *quad = ptx_find_variable(m, "quad");
    ck_assert_uint_eq(quad->size, 16);
    ck_assert_uint_eq(quad->align, 16);
    ck_assert(quad->is_visible);
    float four[4];
    memcpy(four, quad->data, 16);
    ck_assert_float_eq(four[3], 4);
    static const int32_t rows[6] = {1, 2, 0, 4, 0, 0};
    ck_assert_mem_eq(ptx_find_variable(m, "rows")->data, rows, sizeof rows);
    PtxVariable *open = ptx_find_variable(m, "open");
    ck_assert_uint_eq(open->count, 3);
    ck_assert_uint_eq(open->data[4], 9);
    PtxVariable *bytes = ptx_find_variable(m, "bytes");
    ck_assert_int_eq(bytes->fixup_count, 3);
    ck_assert_uint_eq(bytes->fixups[1].shift, 8);
    ck_assert_uint_eq(bytes->fixups[2].shift, 16);
    ck_assert_uint_eq(bytes->fixups[2].size, 1);
    ck_assert_uint_eq(bytes->data[3], 4);
    uint32_t sum;
    memcpy(&sum, ptx_find_variable(m, "sum")->data, 4);
    ck_assert_uint_eq(sum, 16 + 6 - 3 + 100);
    ck_assert(ptx_find_variable(m, "$weak$0")->is_weak);
    ck_assert_ptr_null(ptx_find_variable(m, "$weak$0")->data);
    ck_assert_ptr_null(ptx_find_variable(m, "nothing"));
    ptx_free(m);
}
END_TEST

START_TEST(functions) {
    PtxModule *m = index_text(
        HEAD
        ".func (.param .b32 func_retval0) helper(.param .b64 a, .param .align 8 .b8 b[24])\n;\n"
        ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 g);\n"
        ".extern .func stop() .noreturn;\n"
        ".visible .entry k(\n"
        ".param .u64 .ptr .global .align 1 k_0,\n.param .align 128 .b8 k_1[128]\n)\n"
        ".maxntid 256, 1, 1\n.minnctapersm 2\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n"
        "{ /* } */ ret; // }\n}\n"
        ".visible .entry l(.param .u32 a) .reqntid 64 .maxnreg 40 .maxclusterrank 8\n"
        ".blocksareclusters .pragma \"x\"; { .pragma \"a } b\"; exit; } // }\n"
        ".func (.param .b32 func_retval0) helper(.param .b64 a, .param .align 8 .b8 b[24])\n"
        "{ st.param.b32 [func_retval0], 1; ret; }\n"
        ".visible .func other(.param .b64 a, .param .align 8 .b8 b[24]);\n"
        ".alias other, helper;\n");
    PtxFunction *k = ptx_find_function(m, "k");
    ck_assert(k->is_entry && k->is_visible && !k->is_declaration);
    ck_assert_uint_eq(k->maxntid[0], 256);
    ck_assert_uint_eq(k->maxntid[2], 1);
    ck_assert_uint_eq(k->minnctapersm, 2);
    ck_assert(k->explicit_cluster && !k->blocks_are_clusters);
    ck_assert_uint_eq(k->reqnctapercluster[0], 2);
    ck_assert_int_eq(k->param_count, 2);
    ck_assert_uint_eq(k->params[0]->size, 8);
    ck_assert_uint_eq(k->params[0]->align, 8); // .align 1 is about what it points at
    ck_assert_uint_eq(k->params[1]->size, 128);
    ck_assert_uint_eq(k->params[1]->align, 128);
    ck_assert_ptr_eq(k->params[0]->owner, k);
    ck_assert_int_eq(m->text[k->text_begin], '{');
    ck_assert_int_eq(m->text[k->text_end - 1], '}');
    ck_assert_int_eq(parse(m, "k")->instruction_count, 1);
    PtxFunction *l = parse(m, "l");
    ck_assert_uint_eq(l->reqntid[0], 64);
    ck_assert_uint_eq(l->reqntid[1], 1);
    ck_assert_uint_eq(l->maxnreg, 40);
    ck_assert_uint_eq(l->maxclusterrank, 8);
    ck_assert(l->blocks_are_clusters);
    ck_assert_int_eq(l->instruction_count, 1);
    PtxFunction *helper = parse(m, "helper");
    ck_assert(!helper->is_declaration && !helper->is_entry);
    ck_assert_int_eq(helper->return_count, 1);
    ck_assert_ptr_eq(helper->instructions[0].operands[0].elements[0].variable, helper->returns[0]);
    ck_assert(ptx_find_function(m, "stop")->no_return);
    ck_assert(ptx_find_function(m, "vprintf")->is_declaration);
    PtxError error;
    ck_assert(!ptx_parse_function(ptx_find_function(m, "vprintf"), &error));
    ck_assert_int_eq(parse(m, "other")->instruction_count, 2);
    ck_assert_int_eq(m->function_count, 6);
    ptx_free(m);
}
END_TEST

START_TEST(opcode_and_modifiers) {
    PtxModule *m;
    const PtxInstruction *i = one(&m, "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier"
                                      "::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];");
    ck_assert_str_eq(i->opcode, "cp");
    static const char *const expected[] = {"async",
                                           "bulk",
                                           "tensor",
                                           "2d",
                                           "shared::cluster",
                                           "global",
                                           "mbarrier::complete_tx::bytes"};
    ck_assert_int_eq(i->modifier_count, 7);
    for (int k = 0; k < 7; k++) ck_assert_str_eq(i->modifiers[k], expected[k]);
    ck_assert_int_eq(i->operand_count, 3);
    const PtxOperand *tensor = &i->operands[1];
    ck_assert_int_eq(tensor->kind, OPERAND_ADDRESS);
    ck_assert_int_eq(tensor->count, 2);
    ck_assert_str_eq(reg(m, &tensor->elements[0]), "%rd1");
    ck_assert_int_eq(tensor->elements[1].kind, OPERAND_VECTOR);
    ck_assert_int_eq(tensor->elements[1].count, 2);
    ptx_free(m);
    // The opcode may touch its operand; white space may stand between its parts.
    i = one(&m, "tcgen05.ld.sync.aligned.32x32b.x2.b32{%r1,_},[%r2];");
    ck_assert_str_eq(i->full, "tcgen05.ld.sync.aligned.32x32b.x2.b32");
    ck_assert_int_eq(i->operands[0].elements[1].kind, OPERAND_SINK);
    ptx_free(m);
    i = one(&m, "add\n  .rn .f32 %f1, %f2, %f3;");
    ck_assert_str_eq(i->full, "add.rn.f32");
    ck_assert_int_eq(i->modifier_count, 2);
    ptx_free(m);
}
END_TEST

START_TEST(operands) {
    PtxModule *m;
    const PtxInstruction *i = one(&m, "foo %r1, -1, 0x8000000000000000, 017, 0b101, 7U, WARP_SZ, "
                                      "%tid.x, %clock64, _, 0f3F800000, 0d3FF0000000000000, 1.5, "
                                      "-0f3F800000, (3 + 4) * 2, !(0), 1e3;");
    ck_assert_int_eq(i->operand_count, 0); // (3+4)*2 needs parentheses: not an operand
    ck_assert_str_eq(i->opcode, "<unparsed>");
    ptx_free(m);
    i = one(&m, "foo %r1, -1, 0x8000000000000000, 017, 0b101, 7U, WARP_SZ, %tid.x, %clock64, _, "
                "0f3F800000, 0d3FF0000000000000, 1.5, -0f3F800000, ((3 + 4) * 2), !(0), 1e3;");
    ck_assert_str_eq(i->opcode, "foo");
    ck_assert_int_eq(i->operand_count, 17);
    const PtxOperand *o = i->operands;
    ck_assert_str_eq(reg(m, &o[0]), "%r1");
    ck_assert_int_eq((int64_t)o[1].bits, -1);
    ck_assert_uint_eq(o[2].bits, 1ull << 63);
    ck_assert_uint_eq(o[3].bits, 15);
    ck_assert_uint_eq(o[4].bits, 5);
    ck_assert_uint_eq(o[5].bits, 7);
    ck_assert_int_eq(o[6].kind, OPERAND_SPECIAL);
    ck_assert_str_eq(o[6].name, "WARP_SZ");
    ck_assert_int_eq(o[7].kind, OPERAND_SPECIAL);
    ck_assert_str_eq(o[7].name, "%tid.x");
    ck_assert_str_eq(o[8].name, "%clock64");
    ck_assert_int_eq(o[9].kind, OPERAND_SINK);
    ck_assert_int_eq(o[10].kind, OPERAND_FLOAT);
    ck_assert_int_eq(o[10].float_bits, 32);
    ck_assert_uint_eq(o[10].bits, 0x3f800000);
    ck_assert_int_eq(o[11].float_bits, 64);
    ck_assert_uint_eq(o[11].bits, 0x3ff0000000000000);
    ck_assert_uint_eq(o[12].bits, 0x3ff8000000000000);
    ck_assert_uint_eq(o[13].bits, 0xbf800000);
    ck_assert_uint_eq(o[14].bits, 14);
    ck_assert_uint_eq(o[15].bits, 1);
    ck_assert_uint_eq(o[16].bits, 0x408f400000000000); // 1000.0
    for (int k = 0; k < 17; k++) ck_assert_int_eq(o[k].pair, -1);
    ptx_free(m);
}
END_TEST

START_TEST(addresses_and_pairs) {
    PtxModule *m = wrap(".shared .align 4 .b8 s[64];\n.local .b8 d[8];\n"
                        "ld.shared.u32 %r1, [s+12];\n"
                        "ld.global.u32 %r1, [%rd1+-8];\n"
                        "ld.global.u32 %r1, [%rd1 + 4 + 4];\n"
                        "ld.shared.u32 %r1, [64];\n"
                        "mov.u32 %r1, s+4;\n"
                        "ld.param.u64 %rd1, [p];\n"
                        "shfl.sync.idx.b32 %r1|%p1, %r2, 0, 31, -1;\n"
                        "elect.sync _|%p2, 0xffffffff;\n"
                        "elect.sync %r3|_, -1;\n"
                        "@!%p3 mov.b64 {%r1, %r2}, %rd1;\n"
                        "@%p4 selp.b32 %r1, 1, 0, !%p5;\n"
                        "mov.u64 %rd1, outside;\n"
                        "ret;");
    const PtxFunction *f = parse(m, "k");
    const PtxInstruction *i = f->instructions;
    ck_assert_int_eq(f->variable_count, 2);
    ck_assert_int_eq(i[0].operands[1].offset, 12);
    ck_assert_str_eq(i[0].operands[1].elements[0].variable->name, "s");
    ck_assert_ptr_eq(i[0].operands[1].elements[0].variable->owner, f);
    ck_assert_int_eq(i[0].operands[1].elements[0].offset, 0);
    ck_assert_int_eq(i[1].operands[1].offset, -8);
    ck_assert_int_eq(i[2].operands[1].offset, 8);
    ck_assert_int_eq(i[3].operands[1].elements[0].kind, OPERAND_INTEGER);
    ck_assert_uint_eq(i[3].operands[1].elements[0].bits, 64);
    ck_assert_int_eq(i[4].operands[1].kind, OPERAND_SYMBOL);
    ck_assert_int_eq(i[4].operands[1].offset, 4);
    ck_assert_ptr_eq(i[5].operands[1].elements[0].variable, f->params[0]);
    ck_assert_str_eq(f->registers[i[6].operands[0].pair].name, "%p1");
    ck_assert_int_eq(i[7].operands[0].kind, OPERAND_SINK);
    ck_assert_str_eq(f->registers[i[7].operands[0].pair].name, "%p2");
    ck_assert_int_eq(i[8].operands[0].pair, PAIR_SINK);
    ck_assert(i[9].guard_negated);
    ck_assert_str_eq(f->registers[i[9].guard].name, "%p3");
    ck_assert_int_eq(i[9].operands[0].kind, OPERAND_VECTOR);
    ck_assert(!i[10].guard_negated && i[10].operands[3].negated);
    ck_assert_int_eq(i[11].operands[1].kind, OPERAND_SYMBOL);
    ck_assert_ptr_null(i[11].operands[1].variable);
    ck_assert_ptr_null(i[11].operands[1].function);
    ck_assert_int_eq(i[12].guard, -1);
    ptx_free(m);
}
END_TEST

START_TEST(scopes) {
    // Inline assembly: the same names twice, labels before they stand, one used from inside.
    PtxModule *m =
        wrap("{ .reg .pred P1; LAB: setp.eq.u32 P1, %r1, 0; @P1 bra DONE; bra LAB; DONE: }\n"
             "{ .reg .pred P1; LAB: setp.eq.u32 P1, %r1, 0; @P1 bra DONE; bra LAB; DONE: }\n"
             "{ bra OUT; { .reg .b32 %r<2>; mov.u32 %r1, 1; mov.u32 %r2, 2; } }\n"
             "mov.u32 %r1, 3;\n"
             "OUT: { OUT: bra OUT; }\n"
             "ret;");
    const PtxFunction *f = parse(m, "k");
    const PtxInstruction *i = f->instructions;
    ck_assert_int_eq(i[1].operands[0].target, 3);
    ck_assert_int_eq(i[2].operands[0].target, 0);
    ck_assert_int_eq(i[4].operands[0].target, 6);
    ck_assert_int_eq(i[5].operands[0].target, 3);
    ck_assert_int_ne(i[1].guard, i[4].guard);
    ck_assert_str_eq(f->registers[i[1].guard].name, "P1");
    ck_assert_str_eq(f->registers[i[4].guard].name, "P1#2");
    ck_assert_int_eq(i[6].operands[0].target, 10); // the OUT outside
    ck_assert_int_eq(i[10].operands[0].target, 10);
    int outer = i[0].operands[1].reg, inner = i[7].operands[0].reg;
    ck_assert_int_ne(outer, inner); // %r<2> hides %r1 …
    ck_assert_int_eq(i[9].operands[0].reg, outer);
    ck_assert_str_eq(f->registers[i[8].operands[0].reg].name, "%r2"); // … but not %r2
    ck_assert_int_eq(f->registers[i[1].guard].type, TYPE_PRED);
    ptx_free(m);
}
END_TEST

START_TEST(vector_registers) {
    PtxModule *m = wrap(".reg .v4 .f32 v;\nmov.f32 %f1, v.z;\nld.global.v4.f32 v, [%rd1];\n"
                        "mov.f32 %f2, %f1.x;");
    const PtxFunction *f = parse(m, "k");
    const PtxInstruction *i = f->instructions;
    ck_assert_str_eq(f->registers[i[0].operands[1].reg].name, "v.z");
    ck_assert_int_eq(i[1].operands[0].count, 4);
    ck_assert_int_eq(i[1].operands[0].elements[2].reg, i[0].operands[1].reg);
    ck_assert_str_eq(i[2].opcode, "<unparsed>"); // %f1 has no components
    ptx_free(m);
}
END_TEST

START_TEST(calls) {
    PtxModule *m = index_text(
        HEAD ".func (.param .b32 r) g(.param .b32 a);\n"
             ".visible .entry k()\n{\n.reg .b64 %rd<3>;\n.reg .b32 %r<3>;\n"
             "{ .param .b32 param0; st.param.b32 [param0+0], %r1; .param .b32 retval0;\n"
             "call.uni (retval0), \ng, \n(\nparam0\n);\n}\n"
             "{ .param .b32 param0; .param .b32 retval0;\n"
             "proto : .callprototype (.param .b32 _) _ (.param .b32 _, .param .align 4 .b8 _[8]);\n"
             "call (retval0), %rd1, (param0), proto; }\n"
             "call g;\n"
             "ret; }\n");
    const PtxInstruction *i = parse(m, "k")->instructions;
    ck_assert_int_eq(i[1].operand_count, 3);
    ck_assert_int_eq(i[1].operands[0].kind, OPERAND_LIST);
    ck_assert_str_eq(i[1].operands[0].elements[0].variable->name, "retval0");
    ck_assert_ptr_eq(i[1].operands[1].function, ptx_find_function(m, "g"));
    ck_assert_int_eq(i[1].operands[2].count, 1);
    ck_assert_ptr_null(i[1].prototype);
    ck_assert_int_eq(i[2].operands[1].kind, OPERAND_REGISTER);
    ck_assert_ptr_nonnull(i[2].prototype);
    ck_assert_int_eq(i[2].prototype->return_count, 1);
    ck_assert_int_eq(i[2].prototype->param_count, 2);
    ck_assert_uint_eq(i[2].prototype->params[1]->size, 8);
    ck_assert_int_eq(i[3].operand_count, 1);
    ck_assert_int_eq(ptx_find_function(m, "k")->variable_count, 4);
    ptx_free(m);
}
END_TEST

START_TEST(branch_tables) {
    PtxModule *m = wrap("table: .branchtargets A, B, A;\nbrx.idx %r1, table;\nA: nop;\nB: ret;");
    const PtxInstruction *i = parse(m, "k")->instructions;
    ck_assert_int_eq(i[0].branch_target_count, 3);
    ck_assert_int_eq(i[0].branch_targets[0], 1);
    ck_assert_int_eq(i[0].branch_targets[1], 2);
    ck_assert_int_eq(i[0].branch_targets[2], 1);
    ck_assert_int_eq(i[0].operands[1].kind, OPERAND_LABEL);
    ptx_free(m);
}
END_TEST

START_TEST(the_end_returns) {
    PtxModule *m = wrap("@%p1 bra END;\nmov.u32 %r1, 1;\nret;\nEND:");
    const PtxFunction *f = parse(m, "k");
    ck_assert_int_eq(f->instruction_count, 4);
    ck_assert_int_eq(f->instructions[0].operands[0].target, 3);
    ck_assert_str_eq(f->instructions[3].opcode, "ret");
    ptx_free(m);
    m = wrap("mov.u32 %r1, 1;");
    ck_assert_int_eq(parse(m, "k")->instruction_count, 2);
    ptx_free(m);
    m = wrap("@%p1 ret;");
    ck_assert_int_eq(parse(m, "k")->instruction_count, 2);
    ptx_free(m);
    m = wrap("ret;\n$L__func_end0:");
    ck_assert_int_eq(parse(m, "k")->instruction_count, 1);
    ptx_free(m);
}
END_TEST

START_TEST(locations) {
    PtxModule *m =
        index_text(HEAD ".visible .entry k()\n{\n.reg .f32 %f<3>;\n"
                        "mov.f32 %f1, %f2;\n"
                        ".loc\t1 24 3\n"
                        ".loc\t1 19 38, function_name $L__info_string0, inlined_at 1 24 3\n"
                        ".loc\t2 7 1, function_name $L__info_string1, inlined_at 1 19 38\n"
                        "add.f32 %f1, %f1, %f2;\n"
                        ".loc\t1 30 2\n"
                        ".loc\t1 8 1, function_name $L__info_string0+1, inlined_at 9 9 9\n"
                        "mul.f32 %f1, %f1, %f2; sub.f32 %f1, %f1, %f2;\n"
                        "ret;\n}\n"
                        ".visible .entry l()\n{\n.loc 2 7 1, function_name $L__nothing, inlined_at "
                        "1 19 38\nret;\n}\n"
                        ".file 1 \"/a/kernel.cu\"\n.file 2 \"/a/inner.h\", 12, 34\n"
                        ".section .debug_abbrev\n{\n.b8 1,2\n.b64 foo\n}\n"
                        ".section .debug_str\n{\n$L__info_string0:\n.b8 "
                        "95,102,0\n$L__info_string1:\n.b8 103\n.b8 0\n}\n");
    const PtxInstruction *i = parse(m, "k")->instructions;
    ck_assert_ptr_null(i[0].location->file);
    ck_assert_uint_eq(i[0].location->line, 0);
    ck_assert_uint_eq(i[0].location->ptx_line, 7);
    const PtxLocation *l = i[1].location;
    ck_assert_str_eq(l->file, "/a/inner.h");
    ck_assert_uint_eq(l->line, 7);
    ck_assert_str_eq(l->function, "g");
    ck_assert_uint_eq(l->ptx_line, 11);
    l = l->inlined_at;
    ck_assert_str_eq(l->file, "/a/kernel.cu");
    ck_assert_uint_eq(l->line, 19);
    ck_assert_str_eq(l->function, "_f");
    l = l->inlined_at;
    ck_assert_uint_eq(l->line, 24);
    ck_assert_ptr_null(l->function);
    ck_assert_ptr_null(l->inlined_at);
    l = i[2].location;
    ck_assert_uint_eq(l->line, 8);
    ck_assert_str_eq(l->function, "f");        // +1 into the string
    ck_assert_uint_eq(l->inlined_at->line, 9); // never seen: a frame of its own
    ck_assert_ptr_null(l->inlined_at->inlined_at);
    ck_assert_ptr_eq(i[3].location, l); // the same line
    ck_assert_uint_eq(i[4].location->line, 8);
    ck_assert_uint_eq(i[4].location->ptx_line, 15);
    l = parse(m, "l")->instructions[0].location; // positions of k are forgotten
    ck_assert_ptr_null(l->function);
    ck_assert_uint_eq(l->inlined_at->line, 19);
    ck_assert_ptr_null(l->inlined_at->inlined_at);
    ptx_free(m);
}
END_TEST

// Forms of many families, as compilers and inline assembly write them: none may stay unparsed.
START_TEST(forms_of_all_kinds) {
    static const char *const forms[] = {
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1,%f2,%f3,%f4}, %rd1, %rd2, %p1, "
        "1, -1, 0, 1;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, "
        "%r4}, %rd2, 1, 1, 1, 1;",
        "wgmma.wait_group.sync.aligned 0;",
        "tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale [%r1], %rd1, %rd2, %r2, [%r3], [%r4], "
        "%p1;",
        "tcgen05.mma.cta_group::1.kind::f16 [%r1], [%r2], %rd2, %r3, {%r4, %r5, %r6, %r7}, %p1;",
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
        "[%r1], %rs1;",
        "tcgen05.cp.cta_group::1.128x256b [%r1], %rd1;",
        "tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {%r1, %r2}, [%r3], 16;",
        "tcgen05.wait::ld.sync.aligned;",
        "tcgen05.fence::before_thread_sync;",
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], "
        "[%rd1, {%r2, %r3, %r4}], [%r5], {%rs1};",
        "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes "
        "[%r1], [%rd1, {%r2, %r3, %r4, %r5, %r6}], [%r7];",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.add.f32 [%rd1], [%r1], "
        "%r2, %rd2;",
        "cp.async.bulk.prefetch.tensor.3d.L2.global [%rd1, {%r1, %r2, %r3}];",
        "cp.async.ca.shared.global.L2::128B [%r1+16], [%rd1+-32], 16, %r2;",
        "cp.async.cg.shared.global [%r1], [%rd1], 16, 0;",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%r1], {%f1, %f2, %f3, %f4}, "
        "[%r2];",
        "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;",
        "tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd2;",
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [%r1], %r2, 0x989680;",
        "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r1], 4096;",
        "mbarrier.arrive.shared.b64 %rd1, [%r1];",
        "mapa.shared::cluster.u32 %r1, %r2, 1;",
        "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r1, %r2, %r3, _}, %q;",
        "mov.b128 %q, {%rd1, %rd2};",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%f1,%f2,%f3,%f4},{%r1,%r2,%r3,%r4},{%r5,%r6},{%f1,%f2,%f3,%f4};",
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0 "
        "{%f1,%f2,%f3,%f4},{%r1,%r2,%r3,%r4},{%r5,%r6},{%f1,%f2,%f3,%f4},{%r1},{0,1},{%r2},{0,1};",
        "ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16 {%r1,%r2,%r3,%r4},[%r5+64];",
        "ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1], %rd2;",
        "ld.global.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,_}, [%rd1];",
        "atom.global.add.noftz.v2.f16x2 {%r1,%r2}, [%rd1], {%r3,%r4};",
        "red.async.relaxed.cluster.global.mbarrier::complete_tx::bytes.add.u32 [%r1], %r2, [%r3];",
        "setp.lt.and.s32 %p1|%p2, %r1, 5, !%p3;",
        "match.all.sync.b32 %r1|%p1, %r2, 0xffffffff;",
        "createpolicy.fractional.L2::evict_first.b64 %rd1, 0.5;",
        "createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %rd1, [%rd2], 1024, %r1;",
        "setmaxnreg.inc.sync.aligned.u32 240;",
        "bar.red.popc.u32 %r1, 0, 128, !%p1;",
        "nanosleep.u32 20;",
        "prefetch.tensormap [%rd1];",
        "applypriority.global.L2::evict_normal [%rd1], 128;",
        "griddepcontrol.wait;",
        "lop3.b32 %r1, %r2, %r3, %r4, 0xC0;",
        "isspacep.shared %p1, %rd1;",
        "mov.b32 {%rs1, _}, %r1;",
        "mov.u32 %r1, %dynamic_smem_size;",
        "slct.f32.s32 %f1, %f2, 0f00000000, %r1;",
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char body[600];
        snprintf(body, sizeof body, ".reg .b128 %%q;\n@%%p1 %s", forms[i]);
        PtxModule *m = wrap(body);
        const PtxInstruction *first = &parse(m, "k")->instructions[0];
        ck_assert_msg(strcmp(first->opcode, "<unparsed>"), "unparsed: %s", forms[i]);
        ck_assert_int_ge(first->guard, 0);
        ck_assert(!strncmp(first->full, forms[i], strlen(first->full)));
        ptx_free(m);
    }
}
END_TEST

START_TEST(unparsed_instructions) {
    PtxModule *m =
        wrap("mov.u32 %r1, 1;\nweird   [%r1 + %r2], ??? ;\n@nothing add.u32 %r1, %r1, 1;\n"
             "{ strange }\nmov.u32 %r2, 2;\nret;");
    const PtxFunction *f = parse(m, "k");
    const PtxInstruction *i = f->instructions;
    ck_assert_int_eq(f->instruction_count, 6);
    ck_assert_str_eq(i[0].opcode, "mov");
    ck_assert_str_eq(i[1].opcode, "<unparsed>");
    ck_assert_str_eq(i[1].full, "weird [%r1 + %r2], ???");
    ck_assert_uint_eq(i[1].location->ptx_line, 13);
    ck_assert_str_eq(i[2].opcode, "<unparsed>"); // a guard that is no predicate
    ck_assert_int_eq(i[2].guard, -1);
    ck_assert_str_eq(i[3].full, "strange");
    ck_assert_str_eq(i[4].opcode, "mov");
    ptx_free(m);
}
END_TEST

START_TEST(broken_structure) {
    static const struct {
        const char *body, *part;
        uint32_t line;
    } cases[] = {
        {"bra NOWHERE;\nret;", "label 'NOWHERE' does not exist", 12},
        {"A: nop;\nA: nop;", "label 'A' stands twice", 13},
        {"{ INNER: nop; }\nbra INNER;", "label 'INNER' does not exist", 13},
        {".reg .b32 x;\n.reg .b64 x;", "'x' is declared twice", 13},
        {".reg .b33 x;", "expected a type", 12},
        {".shared .b8 x[16;", "expected ']'", 12},
        {"\n.frob 3;", "unknown directive '.frob'", 13},
        {"A: nop;\nbrx.idx %r1, A;", "not what this instruction needs", 13},
        {"mov.u32 %r1, 1; ] ", "']' begins no statement", 12},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PtxError error = failure(cases[i].body);
        ck_assert_msg(strstr(error.message, cases[i].part), "case %zu: %s", i, error.message);
        ck_assert_msg(error.line == cases[i].line, "case %zu: line %u", i, error.line);
    }
}
END_TEST

START_TEST(a_failure_leaves_no_trace) {
    PtxModule *m = index_text(
        HEAD
        ".entry bad() { .reg .b32 x; .reg .b32 %r<9>; A: { .reg .b32 y; bra LATER; mov.u32 x, y;\n"
        " .reg .b33 z; } }\n"
        ".entry good() { mov.u32 x, %r1; { mov.u32 y, 1; } LATER: bra LATER; }\n");
    PtxError error;
    ck_assert(!ptx_parse_function(ptx_find_function(m, "bad"), &error));
    const PtxFunction *good = parse(m, "good");
    const PtxInstruction *i = good->instructions;
    ck_assert_int_eq(good->register_count, 0);
    ck_assert_int_eq(i[0].operands[0].kind, OPERAND_SYMBOL);
    ck_assert_int_eq(i[0].operands[1].kind, OPERAND_SPECIAL);
    ck_assert_int_eq(i[1].operands[0].kind, OPERAND_SYMBOL);
    ck_assert_int_eq(i[2].operands[0].target, 2);
    ptx_free(m);
}
END_TEST

// A thousand of anything that nests or repeats must neither crash nor take long.
START_TEST(hostile_text) {
    enum { N = 100000 };
    static const struct {
        const char *before, *again, *between, *close, *after;
    } cases[] = {
        {HEAD ".entry k() {", "{", "", "}", "}"},
        {HEAD ".entry k() { mov.u32 a, ", "{", "1", "}", "; ret; }"},
        {HEAD ".entry k() { mov.u32 a, ", "(", "1", ")", "; ret; }"},
        {HEAD ".global .b32 x = ", "(", "1", ")", ";"},
        {HEAD ".global .b32 x = ", "-", "1", "", ";"},
        {HEAD ".global .b32 x[2] = ", "{", "1", "}", ";"},
        {HEAD ".entry k() {", "bra L;", "L:", "", "ret; }"},
        {HEAD ".entry k() {", ".loc 1 1 1, inlined_at 1 1 1\n", "ret;", "", "}"},
        {HEAD ".entry k() {", ".reg .b32 %r<4000000000>; {", "", "}", "ret; }"},
        {HEAD ".entry k() { add", ".x", " a;", "", " ret; }"},
    };
    char *text = malloc(N * 64 + 1000);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *p = stpcpy(text, cases[i].before);
        for (int n = 0; n < N; n++) p = stpcpy(p, cases[i].again);
        p = stpcpy(p, cases[i].between);
        for (int n = 0; n < N; n++) p = stpcpy(p, cases[i].close);
        p = stpcpy(p, cases[i].after);
        PtxError error = {0};
        PtxModule *m = ptx_index(text, p - text, &error);
        if (!m) {
            ck_assert_int_ne(error.message[0], 0);
            continue;
        }
        PtxFunction *k = ptx_find_function(m, "k");
        if (k && !ptx_parse_function(k, &error)) ck_assert_int_ne(error.message[0], 0);
        ptx_free(m);
    }
    free(text);
}
END_TEST

Suite *suite_ptx_parser(void) {
    Suite *suite = suite_create("ptx parser");
    TCase *tests = tcase_create("parser");
    tcase_add_test(tests, module_head);
    tcase_add_test(tests, module_refusals);
    tcase_add_test(tests, variables);
    tcase_add_test(tests, functions);
    tcase_add_test(tests, opcode_and_modifiers);
    tcase_add_test(tests, operands);
    tcase_add_test(tests, addresses_and_pairs);
    tcase_add_test(tests, scopes);
    tcase_add_test(tests, vector_registers);
    tcase_add_test(tests, calls);
    tcase_add_test(tests, branch_tables);
    tcase_add_test(tests, the_end_returns);
    tcase_add_test(tests, locations);
    tcase_add_test(tests, forms_of_all_kinds);
    tcase_add_test(tests, unparsed_instructions);
    tcase_add_test(tests, broken_structure);
    tcase_add_test(tests, a_failure_leaves_no_trace);
    tcase_add_test(tests, hostile_text);
    suite_add_tcase(suite, tests);
    return suite;
}
