// The schedules of basic blocks, and the expansion table that they rest on. Kernels made by hand
// whose cycles can be counted on paper, PTX snippets, and counts of machine instructions that were
// read from ptxas's code.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/machine.h"
#include "softgpu/ptx/link.h"
#include "softgpu/timing/block.h"

Suite *suite_block(void);

// ---- kernels made by hand: row n is R(n), predicate n is P(n)

enum { CODE_MAX = 256, FIRST_PREDICATE = 128 * 64 };
#define R(n) ((Row)(128 * (n)))
#define P(n) ((Row)(FIRST_PREDICATE + 4 * (n)))

static Insn code[CODE_MAX];
static const char *texts[CODE_MAX];
static Kernel kernel;
static const GpuFigures *figures;
static const GpuTiming *timing;
static KernelSchedule *schedule;

static void on(const char *gpu) {
    figures = figures_find(gpu);
    timing = timing_of(gpu);
    memset(code, 0, sizeof code);
    kernel = (Kernel){.name = "test", .code = code, .texts = texts};
}

static Insn *emit(const char *text, Pipe pipe, Row d, Row a, Row b, Row c) {
    uint32_t k = kernel.code_count++;
    ck_assert_uint_lt(k, CODE_MAX);
    texts[k] = text;
    code[k] = (Insn){.d = d,
                     .a = a,
                     .b = b,
                     .c = c,
                     .e = ROW_NONE,
                     .guard = ROW_NONE,
                     .index = k,
                     .pipe = (uint8_t)pipe,
                     .flags = k ? 0 : INSN_LEADER};
    return &code[k];
}

static const BlockSchedule *plan(void) {
    kernel_schedule_free(schedule);
    schedule = kernel_schedule(&kernel, figures, timing);
    ck_assert_ptr_nonnull(schedule);
    return &schedule->blocks[0];
}

static const Segment *segment(uint32_t n) {
    ck_assert_uint_lt(n, schedule->segment_count);
    return &schedule->segments[n];
}

static void emit_fma(Row d, Row a) {
    emit("fma.rn.f32", PIPE_FMA, d, a, R(60), R(61));
}

// n dependent FMAs take 4 cycles each: the last issues at 4 (n - 1), its result is there at 4 n.
START_TEST(a_chain_takes_its_latency) {
    on("h100");
    for (int n = 0; n < 20; n++) emit_fma(R(0), R(0));
    const BlockSchedule *b = plan();
    ck_assert_uint_eq(b->length, 4 * 19 + 1);
    ck_assert_uint_eq(b->length + segment(0)->drain, 4 * 20);
    ck_assert_uint_eq(b->issue, 20);
    ck_assert_uint_eq(segment(0)->busy[UNIT_FMA], 20);
}
END_TEST

// Independent ones go at the pipe's rate: 1 a cycle on 32 lanes of a scheduler, 1/2 on 16.
START_TEST(independent_instructions_take_their_interval) {
    static const struct {
        const char *gpu, *text;
        Unit unit;
        int interval;
    } cases[] = {{"h100", "fma.rn.f32", UNIT_FMA, 1},        {"a100", "fma.rn.f32", UNIT_FMA, 2},
                 {"h100", "max.f32", UNIT_ALU, 2},           {"b200", "max.f32", UNIT_ALU, 1},
                 {"h100", "ex2.approx.ftz.f32", UNIT_XU, 8}, {"b200", "fma.rn.f32x2", UNIT_FMA, 2},
                 {"h100", "cvt.rn.f16x2.f32", UNIT_ALU, 2},  {"h100", "mad.lo.s32", UNIT_IMAD, 2},
                 {"a100", "fma.rn.f64", UNIT_FP64, 4},       {"h100", "fma.rn.f64", UNIT_FP64, 2},
                 {"a100", "cvt.rzi.s32.f32", UNIT_XU, 8},    {"h100", "mul.hi.u32", UNIT_IMAD, 4}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        on(cases[c].gpu);
        for (int n = 0; n < 32; n++) emit(cases[c].text, PIPE_ALU, R(n), R(62), R(60), R(61));
        const BlockSchedule *b = plan();
        ck_assert_msg(b->length == 31u * (uint32_t)cases[c].interval + 1, "%s on %s: %u cycles",
                      cases[c].text, cases[c].gpu, b->length);
        ck_assert_uint_eq(segment(0)->busy[cases[c].unit], 32u * (uint32_t)cases[c].interval);
    }
}
END_TEST

// 4 exponentials hold the XU for 32 cycles; 28 FMAs find their slots between them.
START_TEST(units_work_side_by_side) {
    on("h100");
    for (int n = 0; n < 28; n++) emit_fma(R(n), R(62));
    for (int n = 0; n < 4; n++)
        emit("ex2.approx.ftz.f32", PIPE_MUFU, R(40 + n), R(62), ROW_NONE, ROW_NONE);
    const BlockSchedule *b = plan();
    ck_assert_uint_eq(b->issue, 32);
    ck_assert_uint_eq(b->length, 32); // one a cycle: nothing waits
    ck_assert_uint_eq(segment(0)->busy[UNIT_XU], 32);

    // Though the text puts the exponentials last, they begin early.
    ck_assert_uint_lt(schedule->slots[28].at, 4);
    ck_assert_uint_le(schedule->slots[31].at, 28);

    // Half of the FMAs: now the XU is what lasts.
    on("h100");
    for (int n = 0; n < 4; n++)
        emit("ex2.approx.ftz.f32", PIPE_MUFU, R(40 + n), R(62), ROW_NONE, ROW_NONE);
    for (int n = 0; n < 14; n++) emit_fma(R(n), R(62));
    b = plan();
    ck_assert_uint_eq(b->length, 25); // at 0, 8, 16, 24
    ck_assert_uint_eq(segment(0)->drain, 18);
}
END_TEST

// On h100 an IMAD holds half of the FMA lanes for two cycles: as much as one FMA. On a100 all.
START_TEST(integer_products_share_the_fma_lanes) {
    on("h100");
    for (int n = 0; n < 8; n++) emit("mad.lo.s32", PIPE_IMAD, R(n), R(62), R(60), R(61));
    for (int n = 8; n < 16; n++) emit_fma(R(n), R(62));
    ck_assert_uint_eq(plan()->length, 16);
    ck_assert_uint_eq(segment(0)->busy[UNIT_FMA], 16);
    on("a100");
    for (int n = 0; n < 8; n++) emit("mad.lo.s32", PIPE_IMAD, R(n), R(62), R(60), R(61));
    for (int n = 8; n < 16; n++) emit_fma(R(n), R(62));
    ck_assert_uint_eq(plan()->length, 31);
    ck_assert_uint_eq(segment(0)->busy[UNIT_FMA], 32);
}
END_TEST

// From the FMA side to the ALU's takes 5 cycles; setp to a guard 13; setp to selp 5.
START_TEST(latencies_between_pipes) {
    on("h100");
    emit_fma(R(0), R(1));
    emit("max.f32", PIPE_ALU, R(2), R(0), R(60), ROW_NONE);
    plan();
    ck_assert_uint_eq(schedule->slots[1].at, 5);
    on("h100");
    emit("setp.lt.f32", PIPE_ALU, P(0), R(0), R(1), ROW_NONE);
    emit("selp.f32", PIPE_ALU, R(2), R(3), R(4), P(0));
    emit("add.f32", PIPE_FMA, R(5), R(6), R(7), ROW_NONE)->guard = P(0);
    plan();
    ck_assert_uint_eq(schedule->slots[1].at, 5);
    ck_assert_uint_eq(schedule->slots[2].at, 13);
}
END_TEST

// The result of a load is waited for at its first use; what doesn't need it goes before.
START_TEST(loads_cut_at_their_first_use) {
    on("h100");
    emit("ld.shared.f32", PIPE_LSU, R(0), R(50), ROW_NONE, ROW_NONE);
    emit("ld.shared.f32", PIPE_LSU, R(1), R(50), ROW_NONE, ROW_NONE);
    emit_fma(R(2), R(0));  // needs the first
    emit_fma(R(3), R(62)); // needs none
    emit_fma(R(4), R(1));  // needs the second
    emit_fma(R(5), R(2));  // the first, by another
    const BlockSchedule *b = plan();
    ck_assert_uint_eq(b->segment_count, 3);
    ck_assert_uint_eq(schedule->slots[0].segment, 0);
    ck_assert_uint_eq(schedule->slots[1].segment, 0);
    ck_assert_uint_eq(schedule->slots[3].segment, 0);
    ck_assert_uint_eq(schedule->slots[2].segment, 1);
    ck_assert_uint_eq(schedule->slots[5].segment, 1);
    ck_assert_uint_eq(schedule->slots[4].segment, 2);
    ck_assert_uint_eq(segment(1)->wait, WAIT_RESULT);
    ck_assert_uint_eq(segment(1)->row_count, 1);
    ck_assert_uint_eq(schedule->rows[segment(1)->first_row].row, R(0));
    ck_assert_uint_eq(schedule->rows[segment(2)->first_row].row, R(1));
    ck_assert_uint_eq(segment(0)->issue, 3);
}
END_TEST

// A load after a store to the same space stays behind it, one from another space doesn't.
START_TEST(memory_keeps_its_order) {
    on("h100");
    emit("ld.global.f32", PIPE_LSU, R(0), R(50), ROW_NONE, ROW_NONE);
    emit("st.shared.f32", PIPE_LSU, ROW_NONE, R(51), R(0), ROW_NONE);
    emit("ld.shared.f32", PIPE_LSU, R(1), R(52), ROW_NONE, ROW_NONE);
    emit("ld.global.f32", PIPE_LSU, R(2), R(53), ROW_NONE, ROW_NONE);
    const BlockSchedule *b = plan();
    ck_assert_uint_eq(b->segment_count, 2);
    ck_assert_uint_eq(schedule->slots[1].segment, 1); // waits for the first load
    ck_assert_uint_eq(schedule->slots[2].segment, 1);
    ck_assert_uint_gt(schedule->slots[2].at, schedule->slots[1].at);
    ck_assert_uint_eq(schedule->slots[3].segment, 0);
}
END_TEST

// Nothing moves across a barrier; a branch comes last.
START_TEST(barriers_and_branches_stand) {
    on("h100");
    emit_fma(R(0), R(1));
    emit("bar.sync", PIPE_CONTROL, ROW_NONE, ROW_NONE, ROW_NONE, ROW_NONE);
    emit_fma(R(2), R(3));
    emit("setp.lt.s32", PIPE_ALU, P(0), R(4), R(5), ROW_NONE);
    emit("bra", PIPE_CONTROL, ROW_NONE, ROW_NONE, ROW_NONE, ROW_NONE)->guard = P(0);
    const BlockSchedule *b = plan();
    ck_assert_uint_eq(b->segment_count, 2);
    ck_assert_uint_eq(segment(1)->wait, WAIT_HERE);
    ck_assert_uint_eq(segment(1)->insn, 1);
    ck_assert_uint_eq(schedule->slots[1].at, 0);
    ck_assert_uint_eq(schedule->slots[2].segment, 1);
    ck_assert_uint_ge(schedule->slots[4].at, schedule->slots[3].at + 13);
    ck_assert_uint_eq(segment(1)->length, schedule->slots[4].at + 1);
}
END_TEST

// A software pipeline: the values that the block before (itself) loaded are waited for where they
// are first read, behind the loads for the next round.
START_TEST(pending_rows_are_waited_for) {
    on("h100");
    emit_fma(R(2), R(0));
    emit("ld.shared.f32", PIPE_LSU, R(0), R(50), ROW_NONE, ROW_NONE);
    emit_fma(R(3), R(62));
    emit("bra", PIPE_CONTROL, ROW_NONE, ROW_NONE, ROW_NONE, ROW_NONE);
    const BlockSchedule *b = plan();
    ck_assert_uint_eq(b->segment_count, 2);
    ck_assert_uint_eq(schedule->slots[0].segment, 1);
    ck_assert_uint_eq(schedule->rows[segment(1)->first_row].row, R(0));
    ck_assert_uint_eq(schedule->slots[1].segment, 0);
    ck_assert_uint_eq(schedule->slots[2].segment, 0);
}
END_TEST

// mma.sync: a chain into one accumulator at its latency, others at the tensor core's interval.
START_TEST(products_of_a_warp) {
    static const struct {
        const char *gpu;
        uint32_t interval, latency;
    } cases[] = {{"a100", 8, 24}, {"h100", 6, 24}, {"h200", 6, 24}, {"b200", 8, 20}};
    const char *text = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
    for (size_t c = 0; c < 4; c++) {
        on(cases[c].gpu);
        for (int n = 0; n < 10; n++)
            emit(text, PIPE_TENSOR, R(n), R(60), R(61), R(n))->flops = 4096 / 32;
        ck_assert_uint_eq(plan()->length, 9 * cases[c].interval + 1);
        ck_assert_uint_eq(segment(0)->busy[UNIT_TENSOR], 10 * cases[c].interval);
        on(cases[c].gpu);
        for (int n = 0; n < 10; n++)
            emit(text, PIPE_TENSOR, R(0), R(60), R(61), R(0))->flops = 4096 / 32;
        ck_assert_uint_eq(plan()->length, 9 * cases[c].latency + 1);
    }
}
END_TEST

// Two loads from an address that is still on its way: both wait for the address, not for each
// other.
START_TEST(pending_addresses) {
    on("h100");
    emit("ld.shared.u32", PIPE_LSU, R(0), R(50), ROW_NONE, ROW_NONE);
    emit("ld.shared.u32", PIPE_LSU, R(1), R(50), ROW_NONE, ROW_NONE);
    emit("ld.global.u32", PIPE_LSU, R(50), R(51), ROW_NONE, ROW_NONE);
    const BlockSchedule *b = plan();
    ck_assert_uint_eq(b->segment_count, 2);
    ck_assert_uint_eq(schedule->slots[0].segment, 1);
    ck_assert_uint_eq(schedule->slots[1].segment, 1);
    ck_assert_uint_eq(schedule->slots[2].segment, 0);
    ck_assert_uint_eq(segment(1)->row_count, 1);
    ck_assert_uint_eq(schedule->rows[segment(1)->first_row].row, R(50));
}
END_TEST

// Products of a warpgroup and bulk copies leave in order, each where its queue may hold the warp.
START_TEST(queues_cut_too) {
    on("h100");
    emit_fma(R(0), R(1));
    for (int n = 0; n < 3; n++)
        emit("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", PIPE_TENSOR, R(10 + n), R(40),
             R(41), ROW_NONE);
    emit("wgmma.commit_group.sync.aligned", PIPE_CONTROL, ROW_NONE, ROW_NONE, ROW_NONE, ROW_NONE);
    emit_fma(R(2), R(3));
    emit("wgmma.wait_group.sync.aligned", PIPE_CONTROL, ROW_NONE, ROW_NONE, ROW_NONE, ROW_NONE);
    emit_fma(R(4), R(10));
    const BlockSchedule *b = plan();
    ck_assert_uint_eq(b->segment_count, 5);
    for (uint32_t s = 1; s < 4; s++) {
        ck_assert_uint_eq(segment(s)->wait, WAIT_QUEUE);
        ck_assert_uint_eq(segment(s)->insn, s);
        ck_assert_uint_eq(schedule->slots[s].at, 0);
    }
    ck_assert_uint_eq(schedule->slots[5].segment, 3);
    ck_assert_uint_eq(segment(4)->wait, WAIT_HERE);
    ck_assert_uint_eq(schedule->slots[7].segment, 4);
}
END_TEST

// ---- PTX

static PtxError error;

// Schedules a kernel of these statements for a GPU; %f and %r hold unknown values.
static const BlockSchedule *plan_ptx(const char *gpu, const char *body) {
    static struct GlobalMemory *memory;
    if (!memory) memory = global_new(1 << 24, true);
    char text[8000];
    snprintf(
        text, sizeof text,
        ".version 9.0\n.target sm_100a\n.address_size 64\n"
        ".visible .entry k(.param .u64 p)\n{\n.reg .pred %%p<9>; .reg .b16 %%h<9>;\n"
        ".reg .b32 %%r<20>; .reg .f32 %%f<20>; .reg .f64 %%d<9>; .reg .b64 %%l<20>;\n%s\nret;\n}\n",
        body);
    PtxModule *module = ptx_index(text, strlen(text), &error);
    ck_assert_msg(module != NULL, "%s", error.message);
    Program *program = program_new();
    ck_assert_msg(program_add(program, module, &error), "%s", error.message);
    ck_assert_msg(program_place(program, memory, &error), "%s", error.message);
    Kernel *k = kernel_lower(program_function(program, "k"), program_linker(program), 0, &error);
    ck_assert_msg(k != NULL, "%s", error.message);
    figures = figures_find(gpu);
    timing = timing_of(gpu);
    kernel_schedule_free(schedule);
    schedule = kernel_schedule(k, figures, timing);
    ck_assert_ptr_nonnull(schedule);
    kernel_free(k);
    program_free(program);
    return &schedule->blocks[0];
}

// What ptxas makes of one instruction (sm_80, sm_90a, sm_100a): counts read from machine code. One
// more for the ret.
START_TEST(machine_instructions_by_gpu) {
    static const struct {
        const char *ptx;
        uint32_t a100, h100, b200;
    } cases[] = {
        {"ex2.approx.ftz.f32 %f0, %f1;", 1, 1, 1},
        {"ex2.approx.f32 %f0, %f1;", 4, 4, 4}, // FSETP, MUFU, 2 FMUL
        {"rcp.approx.ftz.f32 %f0, %f1;", 1, 1, 1},
        {"rsqrt.approx.f32 %f0, %f1;", 4, 4, 4},
        {"sin.approx.f32 %f0, %f1;", 2, 2, 2},
        {"rcp.rn.f32 %f0, %f1;", 10, 10, 10},
        {"div.rn.f32 %f0, %f1, %f2;", 10, 10, 10},
        {"cvt.rn.f16x2.f32 %r0, %f1, %f2;", 1, 1, 1},
        {"cvt.rn.bf16x2.f32 %r0, %f1, %f2;", 1, 1, 1},
        {"cvt.f32.f16 %f0, %h1;", 1, 1, 1},
        {"cvt.rzi.s32.f32 %r0, %f1;", 1, 1, 1},
        {"add.s64 %l0, %l1, %l2;", 2, 2, 2},
        {"mul.lo.s64 %l0, %l1, %l2;", 4, 4, 4},
        {"min.s64 %l0, %l1, %l2;", 4, 4, 4},
        {"shl.b64 %l0, %l1, %r2;", 2, 2, 2},
        {"and.b64 %l0, %l1, %l2;", 2, 2, 2},
        {"setp.lt.s64 %p0, %l1, %l2;", 2, 2, 2},
        {"clz.b32 %r0, %r1;", 2, 2, 2},
        {"bfe.u32 %r0, %r1, %r2, %r3;", 4, 4, 4},
        {"bfe.u32 %r0, %r1, 4, 8;", 2, 2, 2},
        {"ex2.approx.f16x2 %r0, %r1;", 2, 2, 2},
        {"div.full.f32 %f0, %f1, %f2;", 8, 8, 8},
        {"div.u32 %r0, %r1, %r2;", 18, 18, 18},
        {"rem.s32 %r0, %r1, %r2;", 21, 21, 21},
        {"div.u64 %l0, %l1, %l2;", 70, 70, 70},
        {"neg.f32 %f0, %f1;", 0, 0, 0},
        {"mov.b32 %r0, %r1;", 0, 0, 0},
        {"cvta.to.global.u64 %l0, %l1;", 0, 0, 0},
        {"cvt.u64.u32 %l0, %r1;", 0, 0, 0},
        {"cvt.u32.u64 %r0, %l1;", 0, 0, 0},
        {"mov.b64 {%r0, %r1}, %l1;", 0, 0, 0},
        {"mov.u32 %r0, %tid.x;", 1, 1, 1}, // S2R; the mov renames
        {"fma.rn.f32x2 %l0, %l1, %l2, %l3;", 1, 1, 1},
        // Merged: IADD3, IMAD, LEA, LOP3, IMAD.WIDE; FMNMX3 on b200, VIMNMX3 from h100 on.
        {"add.s32 %r0, %r1, %r2; add.s32 %r4, %r0, %r3;", 1, 1, 1},
        {"mul.lo.s32 %r0, %r1, %r2; add.s32 %r4, %r0, %r3;", 1, 1, 1},
        {"shl.b32 %r0, %r1, 4; add.s32 %r4, %r0, %r3;", 1, 1, 1},
        {"and.b32 %r0, %r1, %r2; xor.b32 %r4, %r0, %r3;", 1, 1, 1},
        {"mul.wide.s32 %l0, %r1, 4; add.s64 %l1, %l0, %l2;", 1, 1, 1},
        {"max.f32 %f0, %f1, %f2; max.f32 %f4, %f0, %f3;", 2, 2, 1},
        {"min.s32 %r0, %r1, %r2; min.s32 %r4, %r0, %r3;", 2, 1, 1},
        // A result that two read is not merged.
        {"add.s32 %r0, %r1, %r2; add.s32 %r4, %r0, %r3; add.s32 %r5, %r0, %r3;", 3, 3, 3},
        // An offset is the access's.
        {"add.s64 %l0, %l1, 64; ld.global.f32 %f0, [%l0];", 1, 1, 1},
        {"setp.lt.f32 %p0, %f1, %f2; setp.gt.s32 %p1, %r1, %r2; and.pred %p2, %p0, %p1; "
         "selp.f32 %f0, %f1, %f2, %p2;",
         3, 3, 3},
        {"cvt.rn.f32.s32 %f0, %r1;", 1, 1, 1},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const char *ptx = cases[c].ptx;
        uint32_t got[] = {plan_ptx("a100", ptx)->issue - 1, plan_ptx("h100", ptx)->issue - 1,
                          plan_ptx("b200", ptx)->issue - 1};
        ck_assert_msg(got[0] == cases[c].a100 && got[1] == cases[c].h100 && got[2] == cases[c].b200,
                      "%s: %u %u %u", ptx, got[0], got[1], got[2]);
    }
}
END_TEST

// ex2.approx without ftz in a chain: compare, guarded scaling, MUFU, guarded scaling.
START_TEST(an_expansion_is_a_chain) {
    const BlockSchedule *b = plan_ptx("h100", "ex2.approx.f32 %f0, %f1;");
    // FSETP at 0, FMUL at 4, MUFU at 8, FMUL at 27; the ret comes in between.
    ck_assert_uint_eq(b->length, 28 + 1);
    ck_assert_uint_eq(segment(0)->busy[UNIT_XU], 8);
    ck_assert_uint_eq(segment(0)->busy[UNIT_FMA], 2);
}
END_TEST

// Every row of the table can be found: opcodes are sorted, and no row stands behind one that takes
// all that it takes.
START_TEST(the_table_is_in_order) {
    for (int r = 0; r < expansion_row_count; r++) {
        const ExpansionRow *row = &expansion_rows[r];
        if (r)
            ck_assert_msg(strcmp(expansion_rows[r - 1].opcode, row->opcode) <= 0, "%s",
                          row->opcode);
        char text[128] = "";
        snprintf(text, sizeof text, "%s", row->opcode);
        const char *word = row->words;
        while (*word) {
            size_t length = strcspn(word, " ");
            if (*word != '!')
                snprintf(text + strlen(text), sizeof text - strlen(text), ".%.*s", (int)length,
                         word);
            word += length + (word[length] == ' ');
        }
        const ExpansionRow *found = expansion_row(text, 100);
        ck_assert_msg(found == row, "'%s' finds the row of '%s %s'", text,
                      found ? found->opcode : "none", found ? found->words : "");
    }
    ck_assert_ptr_null(expansion_row("no.such.f32", 90));
    ck_assert_ptr_null(expansion_row("ad.f32", 90));
    ck_assert_str_eq(expansion_row("cvt.rn.f32.s32", 90)->words, "rn f32 s32");
    ck_assert_str_eq(expansion_row("cvt.rn.f32.s32", 80)->words, "f32");
}
END_TEST

// A big unrolled block is scheduled fast: 6,000 instructions within a blink.
START_TEST(large_blocks_are_no_burden) {
    enum { MANY = 6000 };
    Insn *many = calloc(MANY, sizeof *many);
    const char **names = calloc(MANY, sizeof *names);
    on("h100");
    for (uint32_t n = 0; n < MANY; n++) {
        bool load = n % 10 == 0;
        names[n] = load ? "ld.shared.f32" : "fma.rn.f32";
        many[n] = (Insn){.d = load ? R(n / 10 % 8) : R(8 + n % 40),
                         .a = load ? R(60) : R(n / 10 % 8),
                         .b = ROW_NONE,
                         .c = load ? ROW_NONE : R(8 + n % 40),
                         .e = ROW_NONE,
                         .guard = ROW_NONE,
                         .index = n,
                         .pipe = load ? PIPE_LSU : PIPE_FMA};
    }
    kernel.code = many;
    kernel.texts = names;
    kernel.code_count = MANY;
    const BlockSchedule *b = plan();
    ck_assert_uint_eq(b->issue, MANY);
    ck_assert_uint_ge(b->length, MANY);
    free(many);
    free(names);
}
END_TEST

// ---- figures

// What must hold of any GPU, and the single values that the sources give.
START_TEST(times_make_sense) {
    static const char *const names[] = {"a100", "h100", "h200", "b200"};
    for (size_t n = 0; n < 4; n++) {
        const GpuTiming *t = timing_of(names[n]);
        const GpuFigures *f = figures_find(names[n]);
        ck_assert_str_eq(t->name, names[n]);
        // The units' intervals are 128 / lanes of the guide's table.
        ck_assert_int_eq(t->op[OP_FMA].interval, (int)(128 / f->fma_lanes));
        ck_assert_int_eq(t->op[OP_ALU].interval, (int)(128 / f->alu_lanes));
        ck_assert_int_eq(t->op[OP_IMAD].interval, (int)(128 / f->imad_lanes));
        ck_assert_int_eq(t->op[OP_FP64].interval, (int)(128 / f->fp64_lanes));
        ck_assert_int_eq(t->op[OP_MUFU].interval, (int)(128 / f->mufu_lanes));
        ck_assert_int_eq(t->op[OP_COMPARE].interval, (int)(128 / f->compare_lanes));
        ck_assert_int_eq(t->op[OP_FMA].latency, 4);
        ck_assert_int_lt(t->shared_load, t->l2_near);
        ck_assert_int_lt(t->l2_near, t->l2_far);
        ck_assert_int_lt(t->l2_far, t->dram);
        ck_assert_double_lt(t->l2_near_bytes, (double)f->l2_bytes);
        for (int op = 0; op < OP_COUNT; op++) ck_assert_int_ge(t->op[op].interval, 1);
    }
    ck_assert_ptr_eq(timing_of("test"), timing_of("h100"));
    ck_assert_ptr_eq(timing_of("a100-40gb"), timing_of("a100"));
    ck_assert_ptr_eq(timing_of("a100x"), timing_of("h100"));
}
END_TEST

// wgmma m64n256k16 in f16 takes 128 cycles, m64n128k16 64; fp8 half per k. mma.sync on h100 reaches
// 2/3 of that rate, on a100 all of the tensor cores' and on b200 a quarter.
START_TEST(tensor_rates) {
    const GpuFigures *h100 = figures_find("h100"), *a100 = figures_find("a100"),
                     *b200 = figures_find("b200");
    ck_assert_int_eq(wgmma_cycles(h100, RATE_F16, 256, 16), 128);
    ck_assert_int_eq(wgmma_cycles(h100, RATE_F16, 128, 16), 64);
    ck_assert_int_eq(wgmma_cycles(h100, RATE_TF32, 256, 8), 128);
    ck_assert_int_eq(wgmma_cycles(h100, RATE_FP8, 256, 32), 128);
    ck_assert_int_eq(mma_interval(timing_of("a100"), a100, RATE_F16, 4096), 8);
    ck_assert_int_eq(mma_interval(timing_of("a100"), a100, RATE_TF32, 2048), 8);
    ck_assert_int_eq(mma_interval(timing_of("a100"), a100, RATE_F64, 512), 16);
    ck_assert_int_eq(mma_interval(timing_of("h100"), h100, RATE_F16, 4096), 6);
    ck_assert_int_eq(mma_interval(timing_of("b200"), b200, RATE_F16, 4096), 8);
}
END_TEST

Suite *suite_block(void) {
    Suite *s = suite_create("block");
    TCase *t = tcase_create("block");
    tcase_add_test(t, a_chain_takes_its_latency);
    tcase_add_test(t, independent_instructions_take_their_interval);
    tcase_add_test(t, units_work_side_by_side);
    tcase_add_test(t, integer_products_share_the_fma_lanes);
    tcase_add_test(t, latencies_between_pipes);
    tcase_add_test(t, loads_cut_at_their_first_use);
    tcase_add_test(t, memory_keeps_its_order);
    tcase_add_test(t, barriers_and_branches_stand);
    tcase_add_test(t, pending_rows_are_waited_for);
    tcase_add_test(t, pending_addresses);
    tcase_add_test(t, queues_cut_too);
    tcase_add_test(t, products_of_a_warp);
    tcase_add_test(t, machine_instructions_by_gpu);
    tcase_add_test(t, an_expansion_is_a_chain);
    tcase_add_test(t, the_table_is_in_order);
    tcase_add_test(t, large_blocks_are_no_burden);
    tcase_add_test(t, times_make_sense);
    tcase_add_test(t, tensor_rates);
    suite_add_tcase(s, t);
    return s;
}
