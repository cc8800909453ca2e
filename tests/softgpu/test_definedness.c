// Undefined values: where reads of unwritten shared and local memory are thrown away, and where
// they have an effect.
#include "softgpu/check/definedness.h"

#include "bench.h"
#include "thread_kernel.h"

Suite *suite_definedness(void);

// %r0 is defined in threads 0 to 15 and undefined in threads 16 to 31, %p0 tells which, %f0 and %d0
// are made of %r0; %r1 is the thread's number, %p1 is false, %p2 true; %r2 is where the shared
// variable's word for this thread is.
#define PRELUDE                                                                                    \
    ".shared .align 16 .b8 s[512]; .local .align 16 .b8 v[64]; .reg .b32 %sa; .reg .b64 %la;\n"    \
    "mov.u32 %sa, s; mov.u64 %la, v; mov.u32 %r1, %t; mov.u32 %out, 1;\n"                          \
    "mad.lo.s32 %r2, %t, 4, %sa; setp.lt.u32 %p0, %t, 16; setp.ne.u32 %p1, %t, %t;\n"              \
    "not.pred %p2, %p1; @%p0 st.shared.u32 [%r2], %t; bar.warp.sync -1;\n"                         \
    "ld.shared.u32 %r0, [%r2]; mov.b32 %f0, %r0; cvt.u64.u32 %d0, %r0;\n"

static int run_checked(const char *body, bool strict) {
    char text[4096];
    set_up();
    options.checks |= CHECK_INIT;
    options.strict = strict;
    findings_configure(&options);
    snprintf(text, sizeof text, "%s%s", PRELUDE, body);
    return run(32, text);
}

// ---- values that are thrown away

static const char *const discarded[] = {
    "",
    "selp.b32 %out, %r0, %r1, %p0;",
    "selp.b32 %out, %r1, %r0, %p2;",
    "@%p0 mov.u32 %out, %r0;",
    "@%p0 bra A; bra STORE; A: mov.u32 %out, %r0;",
    "and.b32 %out, %r0, 0;",
    "or.b32 %out, %r0, -1;",
    "mul.lo.s32 %out, %r0, 0;",
    "mad.lo.s32 %out, %r0, 0, %r1;",
    "setp.gt.u32 %p3, %r0, 5; and.pred %p3, %p3, %p0; selp.b32 %out, 1, 0, %p3;",
    "setp.gt.u32 %p3, %r0, 5; or.pred %p3, %p3, %p2; @%p3 mov.u32 %out, 2;",
    "setp.gt.and.u32 %p3, %r0, 5, %p0; @%p3 bra STORE; mov.u32 %out, 4;",
    "setp.gt.or.u32 %p3, %r0, 5, !%p0; @%p3 bra STORE; mov.u32 %out, 4;",
    "@!%p0 mov.u32 %r0, 7; mov.u32 %out, %r0;",
    "@%p0 st.shared.u32 [%sa + 256], %r0;",
    "st.shared.u32 [%r2 + 256], %r0; ld.shared.u32 %r3, [%r2 + 256]; @%p0 mov.u32 %out, %r3;",
    "st.shared.u32 [%r2], %r0; st.shared.u32 [%r2], 5; ld.shared.u32 %out, [%r2];",
    "shfl.sync.idx.b32 %out, %r0, 3, 31, -1;",
    "shfl.sync.down.b32 %r3, %r0, 8, 31, -1; setp.lt.u32 %p3, %t, 8; @%p3 mov.u32 %out, %r3;",
    // Lane 20 is undefined, the others vote.
    "setp.gt.u32 %p3, %r0, 5; vote.sync.any.pred %p4, %p3, -1; selp.b32 %out, 1, 0, %p4;",
    "setp.eq.u32 %p3, %r0, 5; vote.sync.all.pred %p4, %p3, -1; selp.b32 %out, 1, 0, %p4;",
    "atom.shared.exch.b32 %r3, [%sa + 256], 5; ld.shared.u32 %out, [%sa + 256];",
    "ld.local.u32 %r3, [%la]; selp.b32 %out, %r1, %r3, %p2;",
    "ld.local.u32 %r3, [%la]; st.local.u32 [%la + 4], %r3; st.local.u32 [%la + 4], %r1;\n"
    "ld.local.u32 %out, [%la + 4];",
};
enum { DISCARDED = sizeof discarded / sizeof *discarded };

START_TEST(discarded_values) {
    ck_assert_int_eq(run_checked(discarded[_i], false), 0);
    ck_assert_msg(findings_get(0) == NULL, "%s: %s", discarded[_i], findings_get(0)->what);
    // Strict, the read itself is wrong.
    run_checked(discarded[_i], true);
    expect_finding(FINDING_UNINITIALISED, "bytes of shared memory");
    ck_assert(!findings_get(0)->note);
}
END_TEST

// ---- values that have an effect

static const struct {
    const char *body, *words, *use, *origin;
    unsigned thread; // the first one in which it is undefined
} used[] = {
    {"mov.u32 %out, %r0;", "stores to global memory", "st.global.u32", "ld.shared.u32", 16},
    {"selp.b32 %out, %r1, %r0, %p1;", "stores to global", "st.global.u32", "ld.shared.u32", 16},
    {"setp.gt.u32 %p3, %r0, 5; @%p3 bra STORE;", "decides a branch", "bra", "ld.shared.u32", 16},
    {"setp.gt.u32 %p3, %r0, 5; @!%p3 bra STORE;", "decides a branch", "bra", "ld.shared.u32", 16},
    {"setp.gt.u32 %p3, %r0, 5; @%p3 st.shared.u32 [%r2], 1;", "is switched on or off by",
     "st.shared.u32", "ld.shared.u32", 16},
    {"setp.gt.u32 %p3, %r0, 5; @%p3 exit;", "is switched on or off by", "exit", "ld.shared.u32",
     16},
    {"setp.gt.u32 %p3, %r0, 5; @%p3 mov.u32 %out, 2;", "stores to global", "st.global.u32",
     "ld.shared.u32", 16},
    {"and.b32 %r3, %r0, 60; add.u32 %r3, %r3, %sa; ld.shared.u32 %r4, [%r3];",
     "takes as an address", "ld.shared.u32", "ld.shared.u32", 16},
    {"and.b32 %r3, %r0, 60; add.u32 %r3, %r3, %sa; st.shared.u32 [%r3], 0;", "takes as an address",
     "st.shared.u32", "ld.shared.u32", 16},
    {"red.shared.add.u32 [%sa], %r0;", "atomic operation", "red.shared.add.u32", "ld.shared.u32",
     16},
    {"setp.eq.u32 %p3, %t, 7; @%p3 atom.shared.exch.b32 %out, [%sa + 256], 5;", "stores to global",
     "st.global.u32", "atom.shared.exch.b32", 7},
    {"shfl.sync.idx.b32 %r3, %r1, %r0, 31, -1;", "shuffles by", "shfl.sync.idx.b32",
     "ld.shared.u32", 16},
    {"shfl.sync.down.b32 %out, %r0, 8, 31, -1;", "stores to global", "st.global.u32",
     "ld.shared.u32", 8},
    {"setp.gt.u32 %p3, %r0, 5; vote.sync.ballot.b32 %out, %p3, -1;", "stores to global",
     "st.global.u32", "ld.shared.u32", 0},
    {"redux.sync.add.u32 %out, %r0, -1;", "stores to global", "st.global.u32", "ld.shared.u32", 0},
    {"and.b32 %out, %r0, 1;", "stores to global", "st.global.u32", "ld.shared.u32", 16},
    {"xor.b32 %out, %r0, 1;", "stores to global", "st.global.u32", "ld.shared.u32", 16},
    {"mul.f32 %f1, %f0, 0f00000000; mov.b32 %out, %f1;", "stores to global", "st.global.u32",
     "ld.shared.u32", 16},
    {"shr.u64 %d1, %d0, 3; cvt.u32.u64 %out, %d1;", "stores to global", "st.global.u32",
     "ld.shared.u32", 16},
    {"mov.b64 %d1, {%r1, %r0}; mov.b64 {%r3, %out}, %d1;", "stores to global", "st.global.u32",
     "ld.shared.u32", 16},
    {"add.cc.u32 %r3, %r0, 1; addc.u32 %out, %r1, 0;", "stores to global", "st.global.u32",
     "ld.shared.u32", 16},
    {"cvt.u16.u32 %h0, %r0; cvt.u32.u16 %out, %h0;", "stores to global", "st.global.u32",
     "ld.shared.u32", 16},
    // Through memory: the origin is the load that reads it back.
    {"st.shared.u32 [%r2 + 256], %r0; ld.shared.b32 %out, [%r2 + 256];", "stores to global",
     "st.global.u32", "ld.shared.b32", 16},
    {"st.shared.u32 [%r2], 5; st.shared.u32 [%r2], %r0; ld.shared.b32 %out, [%r2];",
     "stores to global", "st.global.u32", "ld.shared.b32", 16},
    {"cvta.shared.u64 %d1, %d1; cvt.u64.u32 %d1, %r2; cvta.shared.u64 %d1, %d1;\n"
     "st.u32 [%d1 + 256], %r0; ld.u32 %out, [%d1 + 256];",
     "stores to global", "st.global.u32", "ld.u32", 16},
    {"st.local.v2.u32 [%la], {%r1, %r0}; ld.local.v2.u32 {%r3, %out}, [%la];", "stores to global",
     "st.global.u32", "ld.local.v2.u32", 16},
    {"ld.local.u32 %out, [%la + 8];", "its local memory", "st.global.u32", "ld.local.u32", 0},
    // Only lanes that are on count.
    {"setp.gt.u32 %p3, %r0, 5; setp.lt.u32 %p4, %t, 20; @%p4 bra A; bra STORE; A:\n"
     "setp.ge.u32 %p5, %t, 18; @!%p5 bra STORE; @%p3 bra STORE; mov.u32 %out, 3;",
     "decides a branch", "bra", "ld.shared.u32", 18},
};
enum { USED = sizeof used / sizeof *used };

START_TEST(used_values) {
    run_checked(used[_i].body, false);
    expect_finding(FINDING_UNINITIALISED, used[_i].words);
    const Finding *f = findings_get(0);
    ck_assert_str_eq(f->text, used[_i].use);
    ck_assert_ptr_nonnull(f->other);
    ck_assert_msg(!strncmp(f->other, used[_i].origin, strlen(used[_i].origin)) &&
                      f->other[strlen(used[_i].origin)] == ' ',
                  "%s: another origin: %s", used[_i].body, f->other);
    ck_assert_uint_eq(f->thread[0], used[_i].thread);
    ck_assert_int_eq(findings_count(), 1);
}
END_TEST

// What an atomic finds unwritten is wrong at once.
START_TEST(atomic_on_unwritten_memory) {
    run_checked("red.shared.add.u32 [%sa + 256], 1;", false);
    expect_finding(FINDING_UNINITIALISED, "nothing has written them");
}
END_TEST

// A struct's padding that vectors copy along is a note; a value that is stored undefined is not.
START_TEST(padding_is_a_note) {
    static const char *const copies[] = {
        "mov.u32 %r3, 5; st.shared.u32 [%r2 + 128], %r3;\n"
        "setp.eq.u32 %p3, %t, 20; ld.shared.v2.u32 {%r3, %r4}, [%sa + 248];\n"
        "ld.param.u64 %d1, [result]; st.global.v2.u32 [%d1 + 256], {%r3, %r4};",
        "mov.u32 %r3, 5; st.shared.u32 [%r2 + 128], %r3;\n"
        "ld.shared.v2.u32 {%r3, %r4}, [%sa + 256];\n"
        "ld.param.u64 %d1, [result]; st.global.v2.u32 [%d1 + 256], {%r3, %r4};",
    };
    // Word 63 of s (at 252) is the last one written in the first copy: all defined.
    run_checked(copies[0], false);
    ck_assert_ptr_null(findings_get(0));
    run_checked(copies[1], false); // both words unwritten
    expect_finding(FINDING_UNINITIALISED, "stores to global memory");
    run_checked("st.shared.u32 [%sa + 256], 5; ld.shared.v2.u32 {%r3, %r4}, [%sa + 256];\n"
                "ld.param.u64 %d1, [result]; st.global.v2.u32 [%d1 + 256], {%r3, %r4};",
                false);
    expect_finding(FINDING_LINT, "stores to global memory");
    ck_assert(findings_get(0)->note);
    // The same word, on its own.
    run_checked("st.shared.u32 [%sa + 256], 5; ld.shared.v2.u32 {%r3, %out}, [%sa + 256];", false);
    expect_finding(FINDING_UNINITIALISED, "stores to global memory");
}
END_TEST

// A word of which a part is written is followed as defined.
START_TEST(partly_written_words) {
    run_checked("st.shared.u8 [%r2 + 256], %r1; ld.shared.u32 %r3, [%r2 + 256];\n"
                "and.b32 %out, %r3, 255;",
                false);
    expect_finding(FINDING_LINT, "nothing has written some of them");
    ck_assert_int_eq(findings_count(), 0);
}
END_TEST

// Each undefined value is reported once, not at each later use of the same register.
START_TEST(reported_once) {
    run_checked("setp.gt.u32 %p3, %r0, 5; @%p3 bra A; mov.u32 %out, 3; A: @%p3 bra STORE;", false);
    ck_assert_int_eq(findings_count(), 1);
}
END_TEST

// Arguments and results of functions carry it along.
static int run_call(const char *function, const char *body) {
    char text[8192];
    set_up();
    options.checks |= CHECK_INIT;
    findings_configure(&options);
    snprintf(text, sizeof text,
             ".version 9.0\n.target sm_100a\n.address_size 64\n%s\n"
             ".visible .entry k(.param .u64 result)\n{\n.reg .b32 %%t, %%a, %%x, %%out;\n"
             ".reg .b64 %%to<2>; .reg .pred %%p; .shared .align 4 .b8 s[256];\n"
             ".param .b32 one; .param .b32 two; .param .b32 back;\n"
             "mov.u32 %%t, %%tid.x; mov.u32 %%a, s; mad.lo.u32 %%a, %%t, 4, %%a;\n"
             "setp.lt.u32 %%p, %%t, 16; @%%p st.shared.u32 [%%a], %%t; ld.shared.u32 %%x, [%%a];\n"
             "%s\nld.param.u64 %%to0, [result]; mad.wide.u32 %%to1, %%t, 4, %%to0;\n"
             "st.global.u32 [%%to1], %%out; ret;\n}\n",
             function, body);
    PtxError error = {0};
    PtxModule *module = ptx_index(text, strlen(text), &error);
    ck_assert_msg(module != NULL, "line %u: %s", error.line, error.message);
    Program *program = program_new();
    ck_assert(program_add(program, module, &error));
    Gpu *gpu = gpu_new(&options, figures_find("h100"));
    ck_assert(program_place(program, gpu->memory, &error));
    Kernel *kernel =
        kernel_lower(program_function(program, "k"), program_linker(program), 32, &error);
    ck_assert_msg(kernel != NULL, "line %u: %s", error.line, error.message);
    uint64_t out = global_alloc(gpu->memory, 4 * 32, MEMORY_DEVICE, NULL);
    Launch launch = {.kernel = kernel,
                     .grid = {1, 1, 1},
                     .block = {32, 1, 1},
                     .cluster = {1, 1, 1},
                     .params = &out};
    int code = gpu_launch(gpu, &launch, &stats);
    kernel_free(kernel);
    program_free(program);
    gpu_delete(gpu);
    return code;
}

// f(a, b) = p ? b : a, for p = (b is below 100)
#define CHOOSE(p)                                                                                  \
    ".func (.param .b32 r) f(.param .b32 a, .param .b32 b) {\n.reg .b32 %a, %b; .reg .pred %p;\n"  \
    "ld.param.b32 %a, [a]; ld.param.b32 %b, [b]; setp.lt.u32 %p, %b, 100;\n"                       \
    "selp.b32 %a, %b, %a, " p "; st.param.b32 [r], %a; ret;\n}\n"
#define CALL "call (back), f, (one, two); ld.param.b32 %out, [back];"

START_TEST(calls_pass_it_on) {
    ck_assert_int_eq(
        run_call(CHOOSE("%p"), "st.param.b32 [one], %x; st.param.b32 [two], %t; " CALL), 0);
    ck_assert_ptr_null(findings_get(0));
    run_call(CHOOSE("!%p"), "st.param.b32 [one], %x; st.param.b32 [two], %t; " CALL);
    expect_finding(FINDING_UNINITIALISED, "stores to global memory");
    ck_assert_uint_eq(findings_get(0)->thread[0], 16);
    run_call(CHOOSE("%p"), "st.param.b32 [one], %t; st.param.b32 [two], %x; " CALL);
    expect_finding(FINDING_UNINITIALISED, "stores to global memory");
    // A second call with defined arguments uses the same storage.
    run_call(CHOOSE("!%p"), "st.param.b32 [one], %x; st.param.b32 [two], %t; " CALL
                            "st.param.b32 [one], %t; st.param.b32 [two], %t; " CALL);
    ck_assert_ptr_null(findings_get(0));
}
END_TEST

// ---- the machinery

// The first undefined register makes the loop stop right behind the load.
START_TEST(load_marks_its_destinations) {
    Bench *b = bench_open(".reg .b32 %a, %r<4>; ld.shared.v4.u32 {%r0, %r1, _, %r3}, [%a];\n"
                          "st.shared.u32 [%a], %r0; add.u32 %r1, %r3, 1;",
                          CHECK_MEM | CHECK_INIT);
    const Insn *ld = bench_insn(b, "ld.shared.v4.u32"), *st = bench_insn(b, "st.shared.u32");
    bench_stride(b, st, SHARED_RESERVED + 4, 16); // the second word of each lane
    bench_run(b, st, 0xffff);
    bench_stride(b, ld, SHARED_RESERVED, 16);
    bench_run(b, ld, 0xff00ffff);
    ck_assert_int_eq(bench_findings(b, NULL), 0);
    ck_assert_uint_eq(definedness_lanes(&b->warp, ld->rows[0]), 0xff00ffff);
    ck_assert_uint_eq(definedness_lanes(&b->warp, ld->rows[1]), 0xff000000);
    ck_assert_uint_eq(definedness_lanes(&b->warp, ld->rows[3]), 0xff00ffff);
    ck_assert_uint_eq(b->warp.undefined_rows, 3); // the sink keeps nothing
    ck_assert_ptr_eq(b->warp.stop, ld + 1);
    definedness_start(&b->warp);
    ck_assert_uint_eq(b->warp.undefined_rows, 0);
    ck_assert_uint_eq(definedness_lanes(&b->warp, ld->rows[0]), 0);
    bench_close(b);
}
END_TEST

Suite *suite_definedness(void) {
    Suite *s = suite_create("definedness");
    TCase *t = tcase_create("values");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, discarded_values, 0, DISCARDED);
    tcase_add_loop_test(t, used_values, 0, USED);
    tcase_add_test(t, atomic_on_unwritten_memory);
    tcase_add_test(t, padding_is_a_note);
    tcase_add_test(t, partly_written_words);
    tcase_add_test(t, reported_once);
    tcase_add_test(t, calls_pass_it_on);
    tcase_add_test(t, load_marks_its_destinations);
    suite_add_tcase(s, t);
    return s;
}
