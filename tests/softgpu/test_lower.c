// Lowering of whole kernels: operands, branches, calls, shared memory, linking. The programs are
// PTX text; what is expected is worked out by hand.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/execute/form.h"
#include "softgpu/execute/special.h"
#include "softgpu/machine/machine.h"
#include "softgpu/ptx/link.h"

#define HEAD ".version 9.0\n.target sm_80\n.address_size 64\n"
#define REGISTERS                                                                                  \
    ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .b64 %d<20>;\n"

static PtxError error;

static PtxModule *module_of(const char *text) {
    PtxModule *m = ptx_index(text, strlen(text), &error);
    ck_assert_msg(m != NULL, "line %u: %s", error.line, error.message);
    return m;
}

typedef struct {
    Program *program;
    Kernel *kernel;
} Lowered;

static struct GlobalMemory *memory(void) {
    static struct GlobalMemory *m;
    if (!m) m = global_new(1 << 24, true);
    ck_assert_ptr_nonnull(m);
    return m;
}

// Linker.usual_alignment for what follows.
static bool usual_alignment;

static Lowered lower_modules(const char *const texts[], int count, const char *entry,
                             uint64_t schedule) {
    Lowered l = {.program = program_new()};
    for (int i = 0; i < count; i++)
        ck_assert_msg(program_add(l.program, module_of(texts[i]), &error), "%s", error.message);
    ck_assert_msg(program_place(l.program, memory(), &error), "%s", error.message);
    program_linker(l.program)->schedule = schedule;
    program_linker(l.program)->usual_alignment = usual_alignment;
    PtxFunction *f = program_function(l.program, entry);
    ck_assert_ptr_nonnull(f);
    l.kernel = kernel_lower(f, program_linker(l.program), 0, &error);
    ck_assert_msg(l.kernel != NULL, "%s", error.message);
    return l;
}

static Lowered lower(const char *declarations, const char *params, const char *body) {
    char text[8000];
    snprintf(text, sizeof text, HEAD "%s\n.visible .entry k(%s)\n{\n%s%s\n}\n", declarations,
             params, REGISTERS, body);
    const char *texts[] = {text};
    return lower_modules(texts, 1, "k", 0);
}

static void lowered_free(Lowered l) {
    kernel_free(l.kernel);
    program_free(l.program);
}

// The n-th instruction (from 0) whose full opcode is `text`.
static const Insn *find(const Kernel *k, const char *text, int n) {
    for (uint32_t i = 0; i < k->code_count; i++)
        if (!strcmp(k->texts[i], text) && n-- == 0) {
            if (k->code[i].run == trap_unsupported)
                ck_abort_msg("%s: %s", text, (const char *)k->code[i].extra);
            return &k->code[i];
        }
    ck_abort_msg("no instruction %s", text);
    return NULL;
}

// The value of lane 31 of a constant row of 32 or 64 bits.
static uint64_t constant(const Kernel *k, Row row, int width) {
    ck_assert_msg(row & ROW_CONSTANT, "row %u is not constant", row);
    const uint8_t *at = k->constants + (row & ~ROW_CONSTANT);
    if (width == 32) return ((const uint32_t *)(const void *)at)[31];
    return ((const uint64_t *)(const void *)at)[31];
}

START_TEST(immediates_become_rows) {
    Lowered l = lower("", "",
                      "add.s32 %r1, %r1, -2; add.s32 %r2, %r1, -2; add.f32 %f1, %f1, 0f3F800000;"
                      "add.f32 %f2, %f1, 0d4000000000000000; add.s64 %d1, %d1, -1; ret;");
    const Kernel *k = l.kernel;
    ck_assert_uint_eq(constant(k, find(k, "add.s32", 0)->b, 32), 0xfffffffeu);
    ck_assert_uint_eq(find(k, "add.s32", 0)->b, find(k, "add.s32", 1)->b);
    ck_assert_uint_eq(constant(k, find(k, "add.f32", 0)->b, 32), 0x3f800000u);
    ck_assert_uint_eq(constant(k, find(k, "add.f32", 1)->b, 32), 0x40000000u);
    ck_assert_uint_eq(constant(k, find(k, "add.s64", 0)->b, 64), ~0ull);
    ck_assert_uint_eq((uintptr_t)k->constants % 64, 0);
    lowered_free(l);
}
END_TEST

START_TEST(special_registers_are_read_in_front) {
    Lowered l = lower(
        "", "",
        "setp.eq.s32 %p1, %r1, 0; @!%p1 mov.b32 %r2, %ctaid.y; add.s32 %r3, %r2, WARP_SZ; ret;");
    const Kernel *k = l.kernel;
    const Insn *read = find(k, "mov.b32", 0), *move = read + 1;
    ck_assert(read->run == read_special);
    ck_assert_uint_eq(read->imm, SPECIAL_CTAID_Y);
    ck_assert_uint_eq(read->size, 4);
    ck_assert_uint_eq(read->guard, move->guard);
    ck_assert(read->guard_negated && move->guard_negated);
    ck_assert_uint_eq(move->a, read->d);
    ck_assert_uint_ne(move->d, read->d);
    ck_assert_uint_eq(constant(k, find(k, "add.s32", 0)->b, 32), 32);
    lowered_free(l);
}
END_TEST

START_TEST(unknown_instructions_trap_with_a_reason) {
    Lowered l = lower("", "", "frobnicate.b32 %r1, %r2; add.s32 %r1, %d1, %r2; ret;");
    const Kernel *k = l.kernel;
    ck_assert(k->code[0].run == trap_unsupported);
    ck_assert_str_eq(k->code[0].extra, "there is no form of 'frobnicate'");
    ck_assert_str_eq(k->texts[0], "frobnicate.b32");
    ck_assert(k->code[1].run == trap_unsupported);
    ck_assert_str_eq(k->code[1].extra, "%d1 is 64 bits wide where 32 are needed");
    ck_assert_str_eq(k->texts[2], "ret");
    lowered_free(l);
}
END_TEST

START_TEST(branches_point_to_code) {
    Lowered l = lower("", "",
                      "L: mov.b32 %r1, %tid.x; setp.eq.s32 %p1, %r1, 0; @%p1 bra L; @%p1 bra END; "
                      "add.s32 %r2, %r2, 1; END: ret;");
    const Kernel *k = l.kernel;
    const Insn *back = find(k, "bra", 0), *forth = find(k, "bra", 1);
    const Branch *b = back->extra;
    ck_assert_ptr_eq(b->target, &k->code[0]); // the hidden read of %tid.x
    ck_assert_ptr_eq(b->join, forth);
    ck_assert(back->flags & INSN_BACKWARD);
    b = forth->extra;
    ck_assert_ptr_eq(b->target, find(k, "ret", 0));
    ck_assert_ptr_eq(b->join, find(k, "ret", 0));
    ck_assert(!(forth->flags & INSN_BACKWARD));
    ck_assert(k->code[0].flags & INSN_LEADER);
    ck_assert(forth->flags & INSN_LEADER);
    ck_assert(!(back->flags & INSN_LEADER));
    ck_assert_ptr_eq(k->functions[0].entry, k->code);
    for (uint32_t i = 0; i < k->code_count; i++) ck_assert_uint_eq(k->code[i].index, i);
    lowered_free(l);
}
END_TEST

START_TEST(parameter_block) {
    Lowered l = lower("", ".param .u8 a, .param .u64 b, .param .align 16 .b8 c[20], .param .u16 d",
                      "ld.param.u64 %d1, [b]; mov.b64 %d2, c; ret;");
    const Kernel *k = l.kernel;
    ck_assert_int_eq(k->param_count, 4);
    const uint32_t offsets[] = {0, 8, 16, 36}, sizes[] = {1, 8, 20, 2};
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_eq(k->params[i].offset, offsets[i]);
        ck_assert_uint_eq(k->params[i].size, sizes[i]);
    }
    ck_assert_uint_eq(k->param_size, 38);
    ck_assert_uint_eq(constant(k, find(k, "mov.b64", 0)->a, 64), 16);
    lowered_free(l);
}
END_TEST

#define CALLEE                                                                                     \
    ".func (.param .b32 out) callee(.param .b64 x, .param .align 4 .b8 y[20])\n{ " REGISTERS       \
    ".local .align 8 .b8 depot[24];\n"                                                             \
    "ld.param.b64 %d1, [x]; ld.param.b32 %r1, [y+16]; mov.b64 %d2, depot;"                         \
    "st.param.b32 [out], %r1; ret; }\n"

START_TEST(calls_pass_parameters) {
    Lowered l = lower(CALLEE, "",
                      ".local .align 4 .b8 mine[4];\n"
                      "{ .param .b64 a; .param .align 4 .b8 b[20]; .param .b32 r;\n"
                      "st.param.b64 [a], %d1; st.param.b32 [b+4], %r1;\n"
                      "call.uni (r), callee, (a, b);\n ld.param.b32 %r2, [r]; }\n"
                      "{ .param .b64 a; .param .align 4 .b8 b[20]; .param .b32 r;\n"
                      "st.param.b64 [a], %d1; st.param.b32 [b+4], %r1;\n"
                      "call.uni (r), callee, (a, b);\n ld.param.b32 %r2, [r]; }\n ret;");
    const Kernel *k = l.kernel;
    ck_assert_int_eq(k->function_count, 2);
    const CodeFunction *f = &k->functions[1];
    ck_assert_str_eq(f->ptx->name, "callee");
    const Insn *insn = find(k, "call.uni", 0);
    const Call *call = insn->extra, *second = find(k, "call.uni", 1)->extra;
    ck_assert_ptr_eq(call->callee, f);
    ck_assert_int_eq(call->argument_count, 2);
    // The callee's frame: out at 0 (stride 16), x at 512 (16), y at 1024 (32).
    ck_assert_uint_eq(call->result.from, 0);
    ck_assert_uint_eq(call->result.from_stride, 16);
    ck_assert_uint_eq(call->result.size, 4);
    ck_assert_uint_eq(call->arguments[0].to, 512);
    ck_assert_uint_eq(call->arguments[0].to_stride, 16);
    ck_assert_uint_eq(call->arguments[0].size, 8);
    ck_assert_uint_eq(call->arguments[1].to, 1024);
    ck_assert_uint_eq(call->arguments[1].to_stride, 32);
    ck_assert_uint_eq(call->arguments[1].size, 20);
    // Both calls use the same places of the caller's frame, which don't overlap.
    ck_assert_uint_eq(call->arguments[1].from, second->arguments[1].from);
    ck_assert_uint_ne(call->arguments[0].from, call->result.to);
    ck_assert_uint_le(call->arguments[1].from + 32 * 32, k->functions[0].frame_size);
    ck_assert_uint_eq(f->frame_size % 64, 0);
    ck_assert_uint_gt(f->frame_size, 1024 + 32 * 32);
    // Stacks: 16 of the kernel, 32 of the callee.
    ck_assert_uint_eq(k->functions[0].local_size, 16);
    ck_assert_uint_eq(f->local_size, 32);
    ck_assert_uint_eq(k->local_size, 48);
    ck_assert(!k->recursive);
    // The address of a local variable depends on the frame.
    const Insn *local = find(k, "mov.b64", 0);
    ck_assert(local->run == local_address);
    ck_assert_uint_eq(local->imm, 0);
    ck_assert_uint_eq(local->size, 8);
    lowered_free(l);
}
END_TEST

START_TEST(a_call_that_does_not_fit_traps) {
    Lowered l =
        lower(CALLEE ".extern .func nowhere();\n.extern .func (.param .b32 r) vprintf(.param .b64 "
                     "f, .param .b64 a);",
              "",
              "{ .param .b32 a; .param .align 4 .b8 b[20]; .param .b32 r;\n"
              "st.param.b32 [a], %r1; st.param.b32 [b], %r1; call.uni (r), callee, (a, b); }\n"
              "call.uni nowhere;\n"
              "{ .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %d1;"
              "st.param.b64 [b], %d1; call.uni (r), vprintf, (a, b); }\n ret;");
    const Kernel *k = l.kernel;
    int traps = 0;
    for (uint32_t i = 0; i < k->code_count; i++) {
        if (strcmp(k->texts[i], "call.uni")) continue;
        const char *why = k->code[i].extra;
        if (traps == 0) {
            ck_assert(k->code[i].run == trap_unsupported);
            ck_assert_str_eq(why, "argument 1 of a call is 4 bytes where 'callee' has 8");
        } else if (traps == 1) {
            ck_assert(k->code[i].run == trap_unsupported);
            ck_assert_str_eq(why, "no module of this program defines the function 'nowhere'");
        } else {
            const Call *call = k->code[i].extra;
            ck_assert(call->builtin == builtin_vprintf);
            ck_assert_int_eq(call->argument_count, 2);
            ck_assert_uint_eq(call->result.size, 4);
        }
        traps++;
    }
    ck_assert_int_eq(traps, 3);
    lowered_free(l);
}
END_TEST

START_TEST(indirect_calls_and_recursion) {
    Lowered l = lower(".func (.param .b32 r) one(.param .b32 x) { st.param.b32 [r], 1; ret; }\n"
                      ".func (.param .b32 r) two(.param .b32 x) { st.param.b32 [r], 2; ret; }\n"
                      ".func never() { ret; }\n"
                      ".global .align 8 .u64 table[2] = {one, 0};\n",
                      "",
                      "mov.b64 %d1, two; { .param .b32 a; .param .b32 r; st.param.b32 [a], 1;\n"
                      "P: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
                      "call (r), %d1, (a), P; } ret;");
    const Kernel *k = l.kernel;
    ck_assert(k->recursive);
    ck_assert_int_eq(k->function_count, 3);
    const Call *call = find(k, "call", 0)->extra;
    ck_assert_ptr_null(call->callee);
    ck_assert_uint_eq(call->arguments[0].to, 512);
    uint64_t two = constant(k, find(k, "mov.b64", 0)->a, 64), one = 0;
    uint64_t size, address = program_variable_address(l.program, "table", &size);
    ck_assert_uint_eq(size, 16);
    memcpy(&one, global_pointer(memory(), address), 8);
    ck_assert_uint_ne(one, two);
    int found = 0;
    for (int f = 1; f < 3; f++) found += k->functions[f].id == one || k->functions[f].id == two;
    ck_assert_int_eq(found, 2);
    lowered_free(l);

    l = lower(".func again() { call.uni again; ret; }", "", "call.uni again; ret;");
    ck_assert(l.kernel->recursive);
    ck_assert_int_eq(l.kernel->function_count, 2);
    lowered_free(l);
}
END_TEST

START_TEST(shared_memory_layout) {
    const char *text = HEAD ".extern .shared .align 64 .b8 dynamic[];\n"
                            ".shared .align 4 .b8 first[20];\n.shared .align 4 .b8 unused[100];\n"
                            ".entry k() {\n" REGISTERS ".shared .align 32 .b8 second[8];\n"
                            "mov.b32 %r1, first; ld.shared.b32 %r2, [second+4];\n"
                            "mov.b32 %r3, dynamic; ret; }\n";
    Lowered l = lower_modules(&text, 1, "k", 0);
    const Kernel *k = l.kernel;
    uint64_t first = constant(k, find(k, "mov.b32", 0)->a, 32);
    const Insn *load = find(k, "ld.shared.b32", 0);
    uint64_t second = constant(k, load->a, 32);
    ck_assert_uint_eq(load->imm, 4);
    ck_assert(!(load->flags & INSN_WIDE_BASE));
    uint64_t dynamic = constant(k, find(k, "mov.b32", 1)->a, 32);
    ck_assert_uint_eq(k->shared_base, SHARED_RESERVED);
    ck_assert_uint_eq(dynamic, k->shared_dynamic);
    ck_assert_uint_eq(first % 4, 0);
    ck_assert_uint_eq(second % 32, 0);
    ck_assert_uint_eq(dynamic % 64, 0);
    ck_assert(first >= k->shared_base && second >= k->shared_base);
    ck_assert(first + 20 <= second || second + 8 <= first);
    ck_assert_uint_ge(dynamic, k->shared_base + k->shared_static);
    ck_assert_uint_lt(k->shared_static, 100); // what the kernel doesn't use takes no room
    lowered_free(l);

    uint64_t bases = 0;
    for (uint64_t schedule = 1; schedule < 9; schedule++) {
        l = lower_modules(&text, 1, "k", schedule);
        ck_assert_uint_eq(l.kernel->shared_base % 128, 64); // aligned to 64, no better
        ck_assert_uint_eq(l.kernel->shared_dynamic % 128, 64);
        ck_assert_uint_ge(l.kernel->shared_base, SHARED_RESERVED);
        ck_assert_uint_eq(l.kernel->schedule, schedule);
        bases |= 1ull << (l.kernel->shared_base / 128 % 64);
        lowered_free(l);
    }
    ck_assert_msg(bases & (bases - 1), "all schedules place shared memory alike");

    l = lower_modules(&text, 1, "k", 0);
    uint32_t behind = l.kernel->shared_dynamic - l.kernel->shared_base;
    lowered_free(l);
    bases = 0;
    usual_alignment = true;
    for (uint64_t schedule = 0; schedule < 9; schedule++) {
        l = lower_modules(&text, 1, "k", schedule);
        ck_assert_uint_eq(l.kernel->shared_base % 1024, 0);
        ck_assert_uint_eq(l.kernel->shared_dynamic - l.kernel->shared_base, behind);
        bases |= 1ull << (l.kernel->shared_base / 1024 % 64);
        lowered_free(l);
    }
    usual_alignment = false;
    ck_assert_msg(bases & (bases - 1), "all schedules place shared memory alike");
}
END_TEST

START_TEST(modules_are_linked_by_name) {
    const char *texts[] = {
        HEAD ".extern .global .align 4 .b8 data[8];\n.extern .func helper();\n"
             ".weak .global .align 4 .u32 common = 1;\n.global .align 4 .u32 own = 3;\n"
             ".visible .entry k() {\n" REGISTERS "mov.b64 %d1, data; mov.b64 %d2, common;\n"
             "mov.b64 %d3, own; call.uni helper; ret; }\n",
        HEAD ".visible .global .align 4 .b8 data[8] = {1, 2, 3};\n.global .align 4 .u32 own = 4;\n"
             ".visible .global .align 4 .u32 common = 2;\n.global .align 8 .u64 pointer = data+4;\n"
             ".visible .func helper() { ret; }\n",
    };
    Lowered l = lower_modules(texts, 2, "k", 0);
    const Kernel *k = l.kernel;
    uint64_t size = 0, data = program_variable_address(l.program, "data", &size);
    ck_assert_uint_eq(size, 8);
    ck_assert_uint_ne(data, 0);
    ck_assert_uint_eq(constant(k, find(k, "mov.b64", 0)->a, 64), data);
    ck_assert_int_eq(global_pointer(memory(), data)[2], 3);
    ck_assert_int_eq(global_pointer(memory(), data)[3], 0);
    uint32_t value;
    memcpy(&value, global_pointer(memory(), constant(k, find(k, "mov.b64", 1)->a, 64)), 4);
    ck_assert_uint_eq(value, 2); // the strong definition
    memcpy(&value, global_pointer(memory(), constant(k, find(k, "mov.b64", 2)->a, 64)), 4);
    ck_assert_uint_eq(value, 3); // the module's own
    uint64_t pointer;
    memcpy(&pointer, global_pointer(memory(), program_variable_address(l.program, "pointer", NULL)),
           8);
    ck_assert_uint_eq(pointer, data + 4);
    ck_assert_int_eq(k->function_count, 2);
    ck_assert(global_all_written(memory(), data, 8));
    lowered_free(l);
    ck_assert(!global_free(memory(), data)); // gone with the program

    Program *p = program_new();
    const char *twice = HEAD ".visible .global .u32 x = 1;\n";
    ck_assert(program_add(p, module_of(twice), &error));
    ck_assert(!program_add(p, module_of(twice), &error));
    ck_assert_str_eq(error.message, "two modules define the variable 'x'");
    program_free(p);
}
END_TEST

START_TEST(undefined_symbols_trap_where_they_are_used) {
    Lowered l = lower(".extern .global .u32 missing;", "", "mov.b64 %d1, missing; ret;");
    ck_assert(l.kernel->code[0].run == trap_unsupported);
    ck_assert_str_eq(l.kernel->code[0].extra, "no module of this program defines 'missing'");
    lowered_free(l);
}
END_TEST

START_TEST(register_counts) {
    Lowered l = lower("", "", "mov.b32 %r1, 1; ret;");
    ck_assert(l.kernel->registers_estimated);
    ck_assert_uint_eq(l.kernel->registers, 16);
    Kernel *k = kernel_lower((PtxFunction *)l.kernel->ptx, program_linker(l.program), 40, &error);
    ck_assert_uint_eq(k->registers, 40);
    ck_assert(!k->registers_estimated);
    kernel_free(k);
    lowered_free(l);
}
END_TEST

START_TEST(code_runs_to_a_return) {
    // PTX may leave the last ret away.
    Lowered l = lower("", "", "@%p1 bra END; mov.b32 %r1, 1; END:");
    const Kernel *k = l.kernel;
    ck_assert_str_eq(k->texts[k->code_count - 1], "ret");
    const Branch *b = find(k, "bra", 0)->extra;
    ck_assert_ptr_eq(b->target, &k->code[k->code_count - 1]);
    ck_assert_ptr_eq(b->join, b->target);
    ck_assert_int_eq(k->unwritten_count, 1);
    ck_assert_str_eq(k->unwritten[0].name, "%p1");
    lowered_free(l);
}
END_TEST

START_TEST(trees_without_a_return) {
    // Not from the parser: control runs out of the function's end.
    PtxModule *m = module_of(HEAD);
    PtxOperand label = {.kind = OPERAND_LABEL, .pair = -1, .target = 1};
    PtxInstruction branch = {
        .opcode = "bra", .full = "bra", .guard = -1, .operand_count = 1, .operands = &label};
    PtxFunction f = {.module = m,
                     .name = "f",
                     .is_entry = true,
                     .parsed = true,
                     .instruction_count = 1,
                     .instructions = &branch};
    Program *p = program_new();
    ck_assert(program_add(p, m, &error));
    Kernel *k = kernel_lower(&f, program_linker(p), 0, &error);
    ck_assert_msg(k != NULL, "%s", error.message);
    ck_assert_uint_eq(k->code_count, 2);
    ck_assert_str_eq(k->texts[1], "ret");
    ck_assert_ptr_eq(((const Branch *)k->code[0].extra)->target, &k->code[1]);
    kernel_free(k);
    f.instruction_count = 0;
    k = kernel_lower(&f, program_linker(p), 0, &error);
    ck_assert_uint_eq(k->code_count, 1);
    ck_assert_ptr_eq(k->functions[0].entry, k->code);
    kernel_free(k);
    program_free(p);
}
END_TEST

Suite *suite_lower(void) {
    Suite *s = suite_create("lower");
    TCase *t = tcase_create("kernels");
    tcase_add_test(t, immediates_become_rows);
    tcase_add_test(t, special_registers_are_read_in_front);
    tcase_add_test(t, unknown_instructions_trap_with_a_reason);
    tcase_add_test(t, branches_point_to_code);
    tcase_add_test(t, parameter_block);
    tcase_add_test(t, calls_pass_parameters);
    tcase_add_test(t, a_call_that_does_not_fit_traps);
    tcase_add_test(t, indirect_calls_and_recursion);
    tcase_add_test(t, shared_memory_layout);
    tcase_add_test(t, modules_are_linked_by_name);
    tcase_add_test(t, undefined_symbols_trap_where_they_are_used);
    tcase_add_test(t, register_counts);
    tcase_add_test(t, code_runs_to_a_return);
    tcase_add_test(t, trees_without_a_return);
    suite_add_tcase(s, t);
    return s;
}
