// Control flow, liveness and rows of single functions. What is expected is worked out by hand, or
// by a second, slower way on random programs.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/random.h"
#include "softgpu/ptx/flow.h"
#include "softgpu/ptx/registers.h"

#define HEAD ".version 9.0\n.target sm_80\n.address_size 64\n"
#define REGISTERS                                                                                  \
    ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .b64 %d<20>;\n"

static PtxError error;

static PtxModule *module_of(const char *text) {
    PtxModule *m = ptx_index(text, strlen(text), &error);
    ck_assert_msg(m != NULL, "line %u: %s", error.line, error.message);
    return m;
}

static PtxFunction *function_of(PtxModule *m, const char *name) {
    PtxFunction *f = ptx_find_function(m, name);
    ck_assert_ptr_nonnull(f);
    ck_assert_msg(ptx_parse_function(f, &error), "line %u: %s", error.line, error.message);
    return f;
}

// ---- control flow

// The join of the branch at `instruction` of an entry, or function, with this body.
static PtxModule *flow_module;
static FlowGraph *flow_of(const char *kind, const char *body) {
    char text[4000];
    snprintf(text, sizeof text, HEAD "%s f()\n{\n%s%s\n}\n", kind, REGISTERS, body);
    flow_module = module_of(text);
    return flow_graph(function_of(flow_module, "f"));
}

static void flow_done(FlowGraph *g) {
    flow_graph_free(g);
    ptx_free(flow_module);
}

START_TEST(join_of_if_and_else) {
    FlowGraph *g = flow_of(".entry", "@%p1 bra ELSE;"         // 0
                                     "mov.b32 %r1, 1;"        // 1
                                     "bra END;"               // 2
                                     "ELSE: mov.b32 %r1, 2;"  // 3
                                     "END: mov.b32 %r2, %r1;" // 4
                                     "ret;");                 // 5
    ck_assert_int_eq(g->block_count, 4);
    ck_assert_int_eq(flow_join(g, 0), 4);
    ck_assert_int_eq(flow_join(g, 2), 4);
    ck_assert_int_eq(flow_join(g, 5), -1);
    flow_done(g);
}
END_TEST

START_TEST(join_of_loops) {
    FlowGraph *g = flow_of(".entry", "OUTER: mov.b32 %r1, 0;"      // 0
                                     "INNER: add.s32 %r1, %r1, 1;" // 1
                                     "@%p1 bra SKIP;"              // 2
                                     "add.s32 %r2, %r2, 1;"        // 3
                                     "SKIP: @%p2 bra INNER;"       // 4
                                     "@%p3 bra OUTER;"             // 5
                                     "ret;");                      // 6
    ck_assert_int_eq(flow_join(g, 2), 4);
    ck_assert_int_eq(flow_join(g, 4), 5);
    ck_assert_int_eq(flow_join(g, 5), 6);
    flow_done(g);
}
END_TEST

START_TEST(join_of_switch) {
    FlowGraph *g = flow_of(".entry", "T: .branchtargets A, B, C;"
                                     "brx.idx %r1, T;"             // 0
                                     "A: mov.b32 %r2, 1; bra END;" // 1 2
                                     "B: mov.b32 %r2, 2;"          // 3, falls into C
                                     "C: mov.b32 %r3, 3;"          // 4
                                     "END: ret;");                 // 5
    ck_assert_int_eq(g->blocks[0].successor_count, 3);
    ck_assert_int_eq(flow_join(g, 0), 5);
    flow_done(g);
}
END_TEST

START_TEST(join_of_irreducible_loop) {
    FlowGraph *g = flow_of(".entry", "@%p1 bra B;"          // 0: into the middle of a loop
                                     "A: mov.b32 %r1, 1;"   // 1
                                     "@%p2 bra END;"        // 2
                                     "B: mov.b32 %r2, 1;"   // 3
                                     "@%p3 bra A;"          // 4
                                     "END: mov.b32 %r3, 1;" // 5
                                     "ret;");               // 6
    ck_assert_int_eq(flow_join(g, 0), 5);
    ck_assert_int_eq(flow_join(g, 2), 5);
    ck_assert_int_eq(flow_join(g, 4), 5);
    flow_done(g);
}
END_TEST

START_TEST(lanes_that_die_are_not_waited_for) {
    // In a kernel an early return is an exit: the others go on together behind the branch.
    const char *body = "@%p1 bra WORK;"       // 0
                       "ret;"                 // 1
                       "WORK: @%p2 bra ELSE;" // 2
                       "@%p3 bra BAD;"        // 3
                       "mov.b32 %r1, 1;"      // 4
                       "bra END;"             // 5
                       "BAD: trap;"           // 6
                       "ELSE: @%p4 exit;"     // 7
                       "mov.b32 %r1, 2;"      // 8
                       "END: ret;";           // 9
    FlowGraph *g = flow_of(".entry", body);
    ck_assert_int_eq(flow_join(g, 0), 2);
    ck_assert_int_eq(flow_join(g, 2), 9);
    ck_assert_int_eq(flow_join(g, 3), 4);
    ck_assert_int_eq(flow_join(g, 7), 8);
    flow_done(g);
    // In a function the lanes that return meet the others in the caller.
    g = flow_of(".func", body);
    ck_assert_int_eq(flow_join(g, 0), -1);
    ck_assert_int_eq(flow_join(g, 2), 9);
    flow_done(g);
}
END_TEST

START_TEST(flow_without_an_end) {
    FlowGraph *g = flow_of(".entry", "@%p1 bra LOOP;"       // 0
                                     "@%p2 bra X;"          // 1
                                     "mov.b32 %r1, 1;"      // 2
                                     "X: trap;"             // 3
                                     "LOOP: @%p3 bra NEXT;" // 4
                                     "mov.b32 %r1, 2;"      // 5
                                     "NEXT: bra LOOP;");    // 6
    ck_assert_int_eq(flow_join(g, 1), 3);
    ck_assert_int_eq(flow_join(g, 4), 6);
    flow_done(g);
}
END_TEST

// ---- rows

// The accesses of functions made of mov, add, setp and bra: the first operand is written.
static int accesses_of(const PtxFunction *f, Access *accesses) {
    int count = 0;
    for (int i = 0; i < f->instruction_count; i++) {
        const PtxInstruction *p = &f->instructions[i];
        if (p->guard >= 0) accesses[count++] = (Access){i, p->guard, false, false};
        for (int o = 0; o < p->operand_count; o++)
            if (p->operands[o].kind == OPERAND_REGISTER)
                accesses[count++] = (Access){i, p->operands[o].reg, o == 0, p->guard < 0};
    }
    return count;
}

static int register_of(const PtxFunction *f, const char *name) {
    for (int r = 0; r < f->register_count; r++)
        if (!strcmp(f->registers[r].name, name)) return r;
    ck_abort_msg("no register %s", name);
    return -1;
}

START_TEST(values_share_rows) {
    FlowGraph *g = flow_of(".entry", "mov.b32 %r1, 1;"      // 0
                                     "add.s32 %r2, %r1, 1;" // 1: r1 dies
                                     "add.s32 %r3, %r2, 1;" // 2: r2 dies
                                     "add.s32 %r4, %r3, 1;" // 3
                                     "mov.b64 %d1, 1;"      // 4
                                     "ret;");
    Access accesses[64];
    Assignment a;
    assign_rows(g, accesses, accesses_of(g->function, accesses), 128, &a);
    Row r1 = a.rows[register_of(g->function, "%r1")], r2 = a.rows[register_of(g->function, "%r2")],
        r3 = a.rows[register_of(g->function, "%r3")];
    ck_assert_uint_eq(a.slots[CLASS_32], 2);
    ck_assert_uint_ne(r1, r2); // source and destination of one instruction
    ck_assert_uint_ne(r2, r3);
    ck_assert_uint_eq(r1, r3);
    ck_assert_uint_eq(a.slots[CLASS_64], 1);
    ck_assert_uint_eq(a.slots[CLASS_PREDICATE], 0);
    ck_assert_uint_ge(r1, 128);
    ck_assert_uint_eq(a.end, 128 + 2 * 128 + 256);
    ck_assert_uint_eq(a.peak, 2);
    ck_assert_int_eq(a.unwritten_count, 0);
    assignment_free(&a);
    flow_done(g);
}
END_TEST

START_TEST(values_live_around_loops) {
    // r1 is written before the loop and read in it: it lives to the loop's end.
    FlowGraph *g = flow_of(".entry", "mov.b32 %r1, 1;"            // 0
                                     "LOOP: add.s32 %r2, %r1, 1;" // 1
                                     "mov.b32 %r3, %r2;"          // 2
                                     "@%p1 bra LOOP;"             // 3
                                     "mov.b32 %r4, 1;"            // 4
                                     "ret;");
    Access accesses[64];
    Assignment a;
    assign_rows(g, accesses, accesses_of(g->function, accesses), 0, &a);
    int r1 = register_of(g->function, "%r1"), p1 = register_of(g->function, "%p1");
    ck_assert_int_eq(a.first[r1], 0);
    ck_assert_int_eq(a.last[r1], 3);
    // p1 is read but never written.
    ck_assert_int_eq(a.unwritten_count, 1);
    ck_assert_int_eq(a.unwritten[0], p1);
    assignment_free(&a);
    flow_done(g);
}
END_TEST

START_TEST(guarded_writes_keep_the_old_value) {
    FlowGraph *g = flow_of(".entry", "setp.eq.s32 %p1, 1, 1;" // 0
                                     "mov.b32 %r1, 1;"        // 1
                                     "mov.b32 %r2, 2;"        // 2
                                     "mov.b32 %r3, %r2;"      // 3
                                     "@%p1 mov.b32 %r1, 3;"   // 4: not a kill
                                     "mov.b32 %r4, %r1;"      // 5
                                     "@%p1 mov.b32 %r5, 3;"   // 6
                                     "mov.b32 %r4, %r5;"      // 7: may be unwritten
                                     "ret;");
    Access accesses[64];
    Assignment a;
    assign_rows(g, accesses, accesses_of(g->function, accesses), 0, &a);
    int r1 = register_of(g->function, "%r1"), r5 = register_of(g->function, "%r5");
    ck_assert_int_eq(a.first[r1], 1);
    ck_assert_int_eq(a.last[r1], 5);
    ck_assert_int_eq(a.unwritten_count, 1);
    ck_assert_int_eq(a.unwritten[0], r5);
    ck_assert_int_eq(a.first[r5], 0);
    assignment_free(&a);
    flow_done(g);
}
END_TEST

// Writes a random function into `text`.
static void random_body(struct Random *random, char *text, size_t size) {
    size_t used = 0;
    int lines = 20 + (int)random_below(random, 40);
    for (int i = 0; i < lines && used + 200 < size; i++) {
        uint32_t what = random_below(random, 10);
        used += (size_t)sprintf(text + used, "L%d: ", i);
        unsigned d = random_below(random, 15), a = random_below(random, 15),
                 b = random_below(random, 15), p = random_below(random, 5);
        if (what == 0)
            used += (size_t)sprintf(text + used, "setp.lt.s32 %%p%u, %%r%u, %%r%u;\n", p, a, b);
        else if (what <= 2)
            used += (size_t)sprintf(text + used, "@%%p%u bra L%d;\n", p,
                                    (int)random_below(random, (uint32_t)lines));
        else if (what == 3)
            used += (size_t)sprintf(text + used, "@%%p%u mov.b32 %%r%u, %%r%u;\n", p, d, a);
        else if (what == 4)
            used += (size_t)sprintf(text + used, "mov.b64 %%d%u, %%d%u;\n", d, a);
        else
            used += (size_t)sprintf(text + used, "add.s32 %%r%u, %%r%u, %%r%u;\n", d, a, b);
    }
    sprintf(text + used, "ret;");
}

// Walks through the function at random, and keeps for each row which register wrote it last: a
// register that was written on this path must find its own value.
static void walk(const FlowGraph *g, const Assignment *a, struct Random *random) {
    const PtxFunction *f = g->function;
    int *owner = malloc(sizeof(int) * (a->end + 1));
    bool *written = calloc((size_t)f->register_count, 1);
    memset(owner, -1, sizeof(int) * (a->end + 1));
    for (int i = 0, steps = 0; i < f->instruction_count && steps < 400; steps++) {
        const PtxInstruction *p = &f->instructions[i];
        bool runs = p->guard < 0 || random_below(random, 2);
        if (p->guard >= 0 && written[p->guard])
            ck_assert_int_eq(owner[a->rows[p->guard]], p->guard);
        if (!strcmp(p->opcode, "ret")) break;
        if (!strcmp(p->opcode, "bra")) {
            i = runs ? p->operands[0].target : i + 1;
            continue;
        }
        for (int o = 1; o < p->operand_count; o++) {
            int r = p->operands[o].reg;
            if (p->operands[o].kind == OPERAND_REGISTER && written[r])
                ck_assert_int_eq(owner[a->rows[r]], r);
        }
        // Even a write that nobody reads must not hit a value that is still needed.
        if (runs) {
            owner[a->rows[p->operands[0].reg]] = p->operands[0].reg;
            written[p->operands[0].reg] = true;
        }
        i++;
    }
    free(owner);
    free(written);
}

// Can `to` be reached from `from` without passing `without`?
static bool reaches(const FlowGraph *g, int from, int to, int without, bool *seen) {
    if (from == without || seen[from]) return false;
    if (from == to) return true;
    seen[from] = true;
    for (int s = 0; s < g->blocks[from].successor_count; s++)
        if (reaches(g, g->blocks[from].successors[s], to, without, seen)) return true;
    return false;
}

static bool reaches_end(const FlowGraph *g, int from, int without) {
    bool seen[200] = {0};
    ck_assert_int_le(g->block_count, 200);
    return reaches(g, from, g->block_count - 1, without, seen);
}

// Joins by their definition: of the blocks without which there is no way to the end, the first.
static void check_joins(const FlowGraph *g) {
    int end = g->block_count - 1;
    for (int b = 0; b < end; b++) {
        if (!reaches_end(g, b, -1)) continue;
        int nearest = -1;
        for (int d = 0; d <= end; d++) {
            if (d == b || (d != end && reaches_end(g, b, d))) continue; // not on all ways
            bool seen[200] = {0};
            // Nearer than what was found: what was found is reached from it.
            if (nearest == -1 ||
                (d != end && reaches(g, d, nearest, -1, seen) && !reaches_end(g, d, nearest)))
                nearest = d;
        }
        ck_assert_int_eq(g->blocks[b].join, nearest);
    }
}

START_TEST(random_programs) {
    struct Random random;
    random_seed(&random, 7, 0);
    uint32_t slots = 0, registers = 0;
    for (int n = 0; n < 300; n++) {
        static char body[20000];
        random_body(&random, body, sizeof body);
        char text[24000];
        snprintf(text, sizeof text, HEAD ".entry f()\n{\n%s%s\n}\n", REGISTERS, body);
        PtxModule *m = module_of(text);
        FlowGraph *g = flow_graph(function_of(m, "f"));
        check_joins(g);
        Access accesses[512];
        Assignment a;
        assign_rows(g, accesses, accesses_of(g->function, accesses), 0, &a);
        for (int k = 0; k < 20; k++) walk(g, &a, &random);
        slots += a.slots[CLASS_32];
        for (int r = 0; r < g->function->register_count; r++)
            registers +=
                a.rows[r] != ROW_NONE && row_class(g->function->registers[r].type) == CLASS_32;
        assignment_free(&a);
        flow_graph_free(g);
        ptx_free(m);
    }
    ck_assert_uint_lt(slots, registers); // something was shared
}
END_TEST

Suite *suite_flow(void) {
    Suite *s = suite_create("flow");
    TCase *t = tcase_create("flow");
    tcase_add_test(t, join_of_if_and_else);
    tcase_add_test(t, join_of_loops);
    tcase_add_test(t, join_of_switch);
    tcase_add_test(t, join_of_irreducible_loop);
    tcase_add_test(t, lanes_that_die_are_not_waited_for);
    tcase_add_test(t, flow_without_an_end);
    suite_add_tcase(s, t);
    t = tcase_create("rows");
    tcase_add_test(t, values_share_rows);
    tcase_add_test(t, values_live_around_loops);
    tcase_add_test(t, guarded_writes_keep_the_old_value);
    tcase_add_test(t, random_programs);
    suite_add_tcase(s, t);
    return s;
}
