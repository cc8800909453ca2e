// The PTX front end: modules, their functions, variables and locations; and text that is no PTX.
#include "ptx_text.h"

Suite *suite_ptx_module(void);

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

Suite *suite_ptx_module(void) {
    Suite *suite = suite_create("ptx module");
    TCase *tests = tcase_create("parser");
    tcase_add_test(tests, module_head);
    tcase_add_test(tests, module_refusals);
    tcase_add_test(tests, variables);
    tcase_add_test(tests, functions);
    tcase_add_test(tests, locations);
    tcase_add_test(tests, broken_structure);
    tcase_add_test(tests, a_failure_leaves_no_trace);
    tcase_add_test(tests, hostile_text);
    suite_add_tcase(suite, tests);
    return suite;
}
