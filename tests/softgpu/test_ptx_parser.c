// The PTX front end: what it makes of the instructions in a body.
#include "ptx_text.h"

Suite *suite_ptx_parser(void);

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

Suite *suite_ptx_parser(void) {
    Suite *suite = suite_create("ptx parser");
    TCase *tests = tcase_create("parser");
    tcase_add_test(tests, opcode_and_modifiers);
    tcase_add_test(tests, operands);
    tcase_add_test(tests, addresses_and_pairs);
    tcase_add_test(tests, scopes);
    tcase_add_test(tests, vector_registers);
    tcase_add_test(tests, calls);
    tcase_add_test(tests, branch_tables);
    tcase_add_test(tests, the_end_returns);
    tcase_add_test(tests, forms_of_all_kinds);
    tcase_add_test(tests, unparsed_instructions);
    suite_add_tcase(suite, tests);
    return suite;
}
