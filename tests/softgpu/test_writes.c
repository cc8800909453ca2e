// Where a kernel's stores may go (ptx/writes.c), by its parameters: it may name too much, but not
// too little.
#include "lanes.h"

#include "softgpu/machine/global.h"
#include "softgpu/ptx/link.h"

Suite *suite_writes(void);

enum { NOWHERE = -1, ANYWHERE = -2, VARIABLES = -3 };

// %d0, %d1: the parameters a and b; s holds 64-bit fields at the offsets 16, 24, …
static const struct {
    const char *body;
    int places[3]; // offsets of parameters, ended by 0 unless first (a's); or one of the above
} cases[] = {
    {"ld.global.u32 %r1, [%d0];", {NOWHERE}},
    {"st.global.u32 [%d0], 1;", {0}},
    {"st.global.u32 [%d1+64], 1;", {8}},
    {"st.u32 [%d0], 1; st.global.u8 [%d1], 1;", {0, 8}},
    {"ld.param.u64 %d2, [s+8]; st.global.u32 [%d2], 1;", {24}},
    {"ld.param.v2.u64 {%d2, %d3}, [s]; st.global.u32 [%d3], 1;", {24}},
    {"mov.b64 %d2, s; add.s64 %d2, %d2, 0; ld.param.u64 %d3, [%d2+8]; st.global.u32 [%d3], 1;",
     {ANYWHERE}}, // %d2 has two definitions
    {"mov.b64 %d2, s; add.s64 %d4, %d2, 8; ld.param.u64 %d3, [%d4+8]; st.global.u32 [%d3], 1;",
     {32}},
    // what is added may be a pointer, too
    {"mad.wide.u32 %d2, %r1, 4, %d1; st.global.u32 [%d2], 1;", {8}},
    {"sub.s64 %d2, %d0, %d1; add.s64 %d3, %d2, %d1; st.global.u32 [%d3], 1;", {0, 8}},
    {"selp.b64 %d2, %d0, %d1, %p0; st.global.u32 [%d2], 1;", {0, 8}},
    {"@%p0 mov.u64 %d0, %d1; st.global.u32 [%d0], 1;", {0, 8}},
    // in a loop, behind the store
    {"L: st.global.u32 [%d0], 1; mov.u64 %d0, %d2; mov.u64 %d2, %d1; @%p0 bra L;", {0, 8}},
    // an index from memory is no pointer, a pointer from memory points anywhere
    {"ld.global.u32 %r1, [%d0]; mad.wide.u32 %d2, %r1, 4, %d1; st.global.u32 [%d2], 1;", {8}},
    {"ld.global.u64 %d2, [%d0]; st.global.u32 [%d2], 1;", {ANYWHERE}},
    {"ld.shared.u64 %d2, [%r1]; add.s64 %d2, %d2, %d0; st.global.u32 [%d2], 1;", {ANYWHERE}},
    {"ld.local.u64 %d2, [%r1]; st.u32 [%d2], 1;", {ANYWHERE}},
    {"atom.global.exch.b64 %d2, [%d0], %d1; st.global.u32 [%d2], 1;", {ANYWHERE}},
    {"ld.global.v2.u32 {%r1, %r2}, [%d0]; mov.b64 %d2, {%r1, %r2}; st.global.u32 [%d2], 1;",
     {ANYWHERE}},
    {"ld.param.v2.u32 {%r1, %r2}, [a]; mov.b64 %d2, {%r1, %r2}; st.global.u32 [%d2], 1;",
     {ANYWHERE}},
    {"ld.global.u32 %r1, [%d0]; ld.global.u32 %r2, [%d0+4]; cvt.u64.u32 %d2, %r1;"
     "cvt.u64.u32 %d3, %r2; shl.b64 %d3, %d3, 32; or.b64 %d2, %d2, %d3; st.u32 [%d2], 1;",
     {ANYWHERE}},
    {"mov.b64 {%r1, %r2}, %d1; shfl.sync.idx.b32 %r3, %r1, 0, 31, -1; mov.b64 %d2, {%r3, %r2};"
     "st.global.u32 [%d2], 1;",
     {8}},
    // other instructions that write
    {"red.global.add.u32 [%d0], 1; atom.global.add.u32 %r1, [%d1], 1;", {0, 8}},
    {"cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], 16;", {8}},
    {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d1], [%r1], 16;", {8}},
    {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], 16, [%r2];",
     {NOWHERE}},
    {"cp.async.ca.shared.global [%r1], [%d1], 16;", {NOWHERE}},
    {"cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%d0, {%r1}], [%r2];", {ANYWHERE}},
    {"cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], "
     "[%d0, {%r2}], [%r3];",
     {NOWHERE}},
    {"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%d1], {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7};",
     {8}},
    // elsewhere
    {"st.shared.u32 [%r1], 1; st.local.u32 [%r1], 1; red.shared.add.u32 [%r1], 1;", {NOWHERE}},
    {"mov.u64 %d2, g; st.global.u32 [%d2], 1;", {VARIABLES}},
    {"st.global.u32 [g+4], 1;", {VARIABLES}},
    {"st.global.u32 [4096], 1;", {ANYWHERE}},
    {"call f, (%d0);", {ANYWHERE}},
};
enum { CASES = sizeof cases / sizeof *cases };

START_TEST(places) {
    char text[4096];
    snprintf(text, sizeof text,
             ".version 9.0\n.target sm_100a\n.address_size 64\n.global .u32 g[4];\n"
             ".func f(.param .u64 to) { ret; }\n"
             ".visible .entry k(.param .u64 a, .param .u64 b, .param .align 8 .b8 s[32])\n{\n%s"
             "ld.param.u64 %%d0, [a]; ld.param.u64 %%d1, [b];\n%s\nret;\n}\n",
             REGISTERS, cases[_i].body);
    PtxError error = {0};
    PtxModule *module = ptx_index(text, strlen(text), &error);
    ck_assert_msg(module != NULL, "line %u: %s", error.line, error.message);
    Program *program = program_new();
    ck_assert(program_add(program, module, &error));
    struct GlobalMemory *memory = global_new(1 << 20, false);
    ck_assert(program_place(program, memory, &error));
    Kernel *kernel =
        kernel_lower(program_function(program, "k"), program_linker(program), 0, &error);
    ck_assert_msg(kernel != NULL, "line %u: %s", error.line, error.message);
    const KernelWrites *w = &kernel->writes;
    const int *expected = cases[_i].places;
    ck_assert_msg(w->known == (expected[0] != ANYWHERE), "known: %d\n%s", w->known, cases[_i].body);
    ck_assert_msg(w->variables == (expected[0] == VARIABLES), "%s", cases[_i].body);
    int count = 0;
    for (int k = 0; k < 3 && expected[0] >= 0 && (k == 0 || expected[k]); k++, count++)
        ck_assert_msg(k < w->count && w->params[k] == (uint32_t)expected[k], "place %d\n%s", k,
                      cases[_i].body);
    if (w->known) ck_assert_msg(w->count == count, "%d places\n%s", w->count, cases[_i].body);
    kernel_free(kernel);
    program_free(program);
    global_delete(memory);
}
END_TEST

Suite *suite_writes(void) {
    Suite *suite = suite_create("where a kernel writes");
    TCase *tests = tcase_create("writes");
    tcase_add_loop_test(tests, places, 0, CASES);
    suite_add_tcase(suite, tests);
    return suite;
}
