// wgmma: what is found out about programs that break its rules, each beside its right twin.
#include "wgmma_kernel.h"

Suite *suite_wgmma_rules(void);

#define MMA(d, a, scale)                                                                           \
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 " d ", " a ", %desc_b, " scale            \
    ", 1, 1, 0, 0;\n"
#define MMA_REGISTERS(d, a, scale)                                                                 \
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 " d ", " a ", %desc_b, " scale            \
    ", 1, 1, 0;\n"
#define D      "{%x0, %x1, %x2, %x3}"
#define OTHER  "{%r8, %r9, %r10, %r11}"
#define A      "{%x4, %x5, %x6, %x7}"
#define FENCE  "wgmma.fence.sync.aligned;\n"
#define COMMIT "wgmma.commit_group.sync.aligned;\n"
#define WAIT   "wgmma.wait_group.sync.aligned 0;\n"
#define WAIT_1 "wgmma.wait_group.sync.aligned 1;\n"
#define PLAIN  MMA(D, "%desc_a", "%on")

static int run_body(const char *body) {
    memset(image, 0, sizeof image);
    desc_a = descriptor(SMEM, 16, 1024, 1);
    desc_b = descriptor(SMEM + 0x4000, 16, 1024, 1);
    return run_wgmma(8, body);
}

// Wrong bodies, and what is said about them.
static const struct {
    const char *body;
    FindingKind kind;
    const char *words;
} wrong[] = {
    // registers in flight
    {FENCE PLAIN COMMIT "add.f32 %x0, %x0, %x0;" WAIT, FINDING_RACE,
     "reads a register of the accumulator D"},
    {FENCE PLAIN COMMIT "mov.b32 %x3, 0;" WAIT, FINDING_RACE,
     "writes a register of the accumulator D"},
    {FENCE PLAIN COMMIT WAIT_1 "mov.b32 %r8, %x1;" WAIT, FINDING_RACE, "no wait has covered"},
    {FENCE MMA_REGISTERS(D, A, "%on") COMMIT "mov.b32 %x5, 0;" WAIT, FINDING_RACE,
     "writes a register of A"},
    {FENCE MMA_REGISTERS(D, "{%x0, %x1, %x2, %x3}", "%on")
         COMMIT MMA_REGISTERS("{%x4, %x5, %x6, %x7}", "{%x0, %x1, %x2, %x3}", "%on") COMMIT WAIT,
     FINDING_RACE, "takes A from registers into which"},
    {FENCE PLAIN "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%x1, %x0, %x2, %x3}, "
                 "%desc_a, %desc_b, %on, 1, 1, 0, 0;" COMMIT WAIT,
     FINDING_RACE, "another shape or order of registers"},
    {FENCE PLAIN
     "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
     "{%x0, %x1, %x2, %x3, %x4, %x5, %x6, %x7}, %desc_a, %desc_b, %on, 1, 1, 0, 0;" COMMIT WAIT,
     FINDING_RACE, "another shape or order of registers"},
    // groups
    {FENCE PLAIN WAIT "mov.b32 %r8, %x1;" COMMIT WAIT, FINDING_LINT, "made part of a group"},
    {FENCE PLAIN COMMIT FENCE PLAIN WAIT "mov.b32 %r8, %x1;" COMMIT WAIT, FINDING_LINT,
     "made part of a group"},
    {FENCE PLAIN COMMIT "exit;", FINDING_RACE, "ends while a wgmma.mma_async is in flight"},
    // fences
    {PLAIN COMMIT WAIT, FINDING_RACE, "no wgmma.fence has ordered"},
    {FENCE PLAIN COMMIT WAIT "mov.b32 %x0, 0;" PLAIN COMMIT WAIT, FINDING_RACE,
     "of the accumulator D that the other instruction has touched"},
    {FENCE PLAIN COMMIT WAIT "mov.b32 %r8, %x0;" PLAIN COMMIT WAIT, FINDING_RACE,
     "of the accumulator D that the other instruction has touched"},
    {FENCE "mov.b32 %x4, 0;" MMA_REGISTERS(D, A, "%on") COMMIT WAIT, FINDING_RACE,
     "of A that the other instruction has touched"},
    // undefined accumulators
    {FENCE MMA(OTHER, "%desc_a", "%on") COMMIT WAIT "mov.b32 %x0, %r8;", FINDING_UNINITIALISED,
     "adds to an accumulator D that nothing has written"},
    // operands that differ
    {"and.b32 %r8, %t, 1; cvt.u64.u32 %d4, %r8; add.u64 %d4, %d4, %desc_a;" FENCE MMA(
         D, "%d4", "%on") COMMIT WAIT,
     FINDING_DIVERGENT, "the descriptor of A differs between the lanes"},
    {"shr.u32 %r8, %t, 5; cvt.u64.u32 %d4, %r8; add.u64 %d4, %d4, %desc_a;" FENCE MMA(
         D, "%d4", "%on") COMMIT WAIT,
     FINDING_DIVERGENT, "the descriptor of A is"},
    {"setp.lt.u32 %p1, %t, 64;" FENCE MMA(D, "%desc_a", "%p1") COMMIT WAIT, FINDING_DIVERGENT,
     "the scale-d is"},
    {"setp.lt.u32 %p1, %t, 16;" FENCE MMA(D, "%desc_a", "%p1") COMMIT WAIT, FINDING_DIVERGENT,
     "scale-d is true in some lanes"},
    // ways that part
    {"setp.lt.u32 %p1, %t, 32;" FENCE "@%p1 bra ONE;" PLAIN "bra ON; ONE:" PLAIN "ON:" COMMIT WAIT,
     FINDING_DIVERGENT, "must execute the same wgmma.mma_async"},
    {"setp.lt.u32 %p1, %t, 32; @%p1 bra ON;" FENCE PLAIN COMMIT WAIT "ON:\n", FINDING_DIVERGENT,
     "ends without the wgmma.mma_async"},
    {"setp.lt.u32 %p1, %t, 16; @%p1 bra ON;" FENCE PLAIN COMMIT WAIT "ON:\n", FINDING_DIVERGENT,
     ""},
    // descriptors
    {"or.b64 %d4, %desc_a, 0x0002000000000000;" FENCE MMA(D, "%d4", "%on") COMMIT WAIT,
     FINDING_MISALIGNED, "the base offset"},
    {"or.b64 %d4, %desc_a, 0x0000400000000000;" FENCE MMA(D, "%d4", "%on") COMMIT WAIT,
     FINDING_MISALIGNED, "bits that must be zero"},
    {"add.u64 %d4, %desc_a, 8;" FENCE MMA(D, "%d4", "%on") COMMIT WAIT, FINDING_MISALIGNED,
     "middle of the swizzle's pattern"},
    {"add.u64 %d4, %desc_a, 0x0000100000000000;" FENCE MMA(D, "%d4", "%on") COMMIT WAIT,
     FINDING_OUT_OF_BOUNDS, "A reaches over shared memory"},
    {"and.b64 %d4, %desc_b, 0xffffffffffffc000;" FENCE
     "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 " D
     ", %desc_a, %d4, %on, 1, 1, 0, 0;" COMMIT WAIT,
     FINDING_OUT_OF_BOUNDS, "B reaches over shared memory"},
};
enum { WRONG = sizeof wrong / sizeof *wrong };

START_TEST(wrong_programs) {
    for (int order = 0; order < 4; order++) {
        findings_reset();
        options.async = (AsyncOrder)order;
        int error = run_body(wrong[_i].body);
        expect_finding(wrong[_i].kind, wrong[_i].words);
        if (finding_error(wrong[_i].kind)) ck_assert_int_eq(error, finding_error(wrong[_i].kind));
    }
}
END_TEST

// With the checks off they run, as far as they can.
START_TEST(unchecked) {
    options.checks = 0;
    run_body(wrong[_i].body);
    const Finding *f = findings_get(0);
    ck_assert(!f || f->kind == FINDING_DIVERGENT || f->kind == FINDING_MISALIGNED ||
              f->kind == FINDING_OUT_OF_BOUNDS || f->kind == FINDING_DEADLOCK);
}
END_TEST

// Right twins: nothing is said.
static const char *const right[] = {
    FENCE PLAIN COMMIT WAIT "add.f32 %x0, %x0, %x0;",
    FENCE PLAIN COMMIT "mov.b32 %r8, 0;" WAIT,
    FENCE MMA_REGISTERS(D, A, "%on") COMMIT "mov.b32 %r9, %x5;" WAIT "mov.b32 %x5, 0;",
    FENCE PLAIN PLAIN COMMIT PLAIN COMMIT WAIT,
    // a chain goes on after a wait without another fence, while nobody touches D
    FENCE PLAIN COMMIT WAIT PLAIN COMMIT WAIT,
    FENCE PLAIN COMMIT WAIT "mov.b32 %x0, 0;" FENCE PLAIN COMMIT WAIT,
    "mov.b32 %x4, 0;" FENCE MMA_REGISTERS(D, A, "%on") COMMIT WAIT,
    FENCE MMA(OTHER, "%desc_a", "%off") COMMIT WAIT "mov.b32 %x0, %r8;",
    // empty groups, and waits for nothing
    COMMIT WAIT COMMIT FENCE PLAIN COMMIT COMMIT WAIT_1 "mov.b32 %r8, %x1;" WAIT,
    // a step of 32 bytes along the line
    "add.u64 %d4, %desc_a, 2;" FENCE MMA(D, "%d4", "%on") COMMIT WAIT,
    // the descriptor comes from one lane
    "shfl.sync.idx.b32 %r8, %t, 0, 31, -1; shr.u32 %r8, %r8, 7; cvt.u64.u32 %d4, %r8;"
    "add.u64 %d4, %d4, %desc_a;" FENCE MMA(D, "%d4", "%on") COMMIT WAIT,
};
enum { RIGHT = sizeof right / sizeof *right };

START_TEST(right_programs) {
    for (int way = 0; way < 12; way++) {
        options.async = (AsyncOrder)(way % 4);
        options.schedule = (uint64_t)(way / 4);
        ck_assert_int_eq(run_body(right[_i]), 0);
        expect_nothing();
    }
}
END_TEST

// Every finding about two instructions names both.
START_TEST(both_lines) {
    run_body(FENCE PLAIN COMMIT "\nadd.f32 %x0, %x0, %x0;" WAIT);
    const Finding *f = findings_get(0);
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(strstr(f->text, "add"));
    ck_assert_msg(f->other && strstr(f->other, "wgmma.mma_async"), "the other: %s", f->other);
    ck_assert_ptr_nonnull(strstr(f->mend, "wgmma.wait_group"));
    findings_reset();
    run_body(FENCE PLAIN "\nadd.f32 %x0, %x0, %x0;" COMMIT WAIT);
    f = findings_get(0);
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(strstr(f->what, "it was never committed"));
    ck_assert_ptr_nonnull(strstr(f->mend, "wgmma.commit_group"));
}
END_TEST

// Operands that nothing has written are found by the init check.
START_TEST(unwritten_operands) {
    image_bytes = 0x4000; // A is written, B isn't
    run_body(FENCE PLAIN COMMIT WAIT);
    expect_finding(FINDING_UNINITIALISED, "reads B from shared memory at 0x4400");
    findings_reset();
    image_bytes = 0;
    run_body(FENCE PLAIN COMMIT WAIT);
    expect_finding(FINDING_UNINITIALISED, "reads A from shared memory at 0x400");
}
END_TEST

// A block of three warps has no warpgroup.
START_TEST(part_of_a_warpgroup) {
    block_threads = 96;
    ck_assert_int_eq(run_body(FENCE PLAIN COMMIT WAIT), 719);
    expect_finding(FINDING_DIVERGENT, "needs the whole warpgroup, warps 0 to 3");
}
END_TEST

// A warp that never comes, and doesn't end either: the others wait for ever, and are told why.
START_TEST(missing_warp) {
    ck_assert_int_eq(run_body("setp.lt.u32 %p1, %t, 32; @%p1 bra ON;" FENCE PLAIN COMMIT WAIT
                              "bar.sync 2, 256; ON: bar.sync 1, 64;\n"),
                     719);
    expect_finding(FINDING_DEADLOCK, "the other warps of the warpgroup");
}
END_TEST

// ---- more in flight than are kept (WGMMA_KEPT)

// A and B are full of ones: each product adds 16.
#define TIMES(n, loop)                                                                             \
    "mov.u32 %r8, 0; " loop ": " PLAIN "add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, " n             \
    "; @%p1 bra " loop ";\n"

static int run_ones(const char *body) {
    for (int k = 0; k < IMAGE; k += 2) image[k] = 0x80, image[k + 1] = 0x3f;
    memset(in, 0, sizeof in);
    desc_a = descriptor(SMEM, 16, 1024, 1);
    desc_b = descriptor(SMEM + 0x4000, 16, 1024, 1);
    findings_reset();
    return run_wgmma(8, body);
}

static const char *const many[] = {
    FENCE TIMES("10000", "L") COMMIT WAIT,
    FENCE TIMES("5000", "L") COMMIT TIMES("5000", "M") COMMIT WAIT_1 WAIT,
    // the other warps are ahead of warp 0, as far as they get
    "setp.ge.u32 %p1, %t, 32; @%p1 bra GO; mov.u32 %r8, 0; SLOW: add.u32 %r8, %r8, 1;"
    "setp.lt.u32 %p1, %r8, 100000; @%p1 bra SLOW; GO:" FENCE TIMES("10000", "L") COMMIT WAIT,
};

// With the race check too.
START_TEST(more_than_are_kept) {
    for (int order = 0; order < 4; order++) {
        options.async = (AsyncOrder)order;
        options.checks |= CHECK_RACE;
        ck_assert_int_eq(run_ones(many[_i]), 0);
        expect_nothing();
        for (int t = 0; t < THREADS; t++)
            for (int k = 0; k < 4; k++) {
                float x;
                memcpy(&x, &out[t][k], sizeof x);
                ck_assert_float_eq(x, 160000);
            }
    }
}
END_TEST

// However many there are, D is not to be touched. (65,536 is where a count of 16 bits begins anew.)
START_TEST(touched_behind_very_many) {
    options.async = ASYNC_LATE;
    run_ones(FENCE TIMES("65536", "L") "add.f32 %x0, %x0, %x0;" COMMIT WAIT);
    expect_finding(FINDING_RACE, "reads a register of the accumulator D");
}
END_TEST

// Warp 0 comes only when the others have issued more than can wait for it.
START_TEST(too_far_ahead) {
#define AHEAD(n)                                                                                   \
    "setp.lt.u32 %p2, %t, 32; @%p2 bar.sync 1, 128;" FENCE TIMES(                                  \
        n, "L") "@!%p2 bar.sync 1, 128;" COMMIT WAIT
    ck_assert_int_eq(run_ones(AHEAD("4096")), 0);
    expect_nothing();
    ck_assert_int_eq(run_ones(AHEAD("4097")), 719);
    expect_finding(FINDING_DEADLOCK, "the other warps of the warpgroup");
}
END_TEST

// Others' programs are told of missing fences, and of tiles that start in the middle of a swizzle's
// pattern, by a note.
START_TEST(imports) {
    options.strict = false;
    ck_assert_int_eq(run_body("add.u64 %d4, %desc_a, 8;" FENCE MMA(D, "%d4", "%on") COMMIT WAIT),
                     0);
    expect_finding(FINDING_LINT, "middle of the swizzle's pattern");
    findings_reset();
    ck_assert_int_eq(run_body(FENCE "mov.b32 %x4, 0;" MMA_REGISTERS(D, A, "%on") COMMIT WAIT), 0);
    expect_finding(FINDING_LINT, "of A that the other instruction has touched");
    findings_reset();
    ck_assert_int_eq(run_body(FENCE PLAIN COMMIT WAIT "mov.b32 %r8, %x0;" PLAIN COMMIT WAIT), 0);
    expect_nothing();
}
END_TEST

// Undefined values are followed in kernels with wgmma as in others: thrown away they are nothing,
// stored or multiplied they are found.
#define UNWRITTEN "ld.shared.u32 %r8, [%r1 + 0xc000]; add.u32 %r9, %r8, 1;"
START_TEST(undefined_values) {
    options.strict = false;
    image_bytes = 0x8000;
    ck_assert_int_eq(run_body(UNWRITTEN "setp.lt.u32 %p1, %t, 7; @%p1 bra LATER; mov.b32 %r9, 0;"
                                        "LATER: mov.b32 %r9, %t;\n" FENCE PLAIN COMMIT WAIT),
                     0);
    expect_nothing();
    run_body(UNWRITTEN FENCE PLAIN COMMIT WAIT "st.global.u32 [%d3], %r9;");
    expect_finding(FINDING_UNINITIALISED, "stores to global memory");
    findings_reset();
    run_body(UNWRITTEN FENCE MMA_REGISTERS(D, "{%r9, %x5, %x6, %x7}", "%on") COMMIT WAIT);
    expect_finding(FINDING_UNINITIALISED, "multiplies");
}
END_TEST

// A by a tensor copy with a swizzle: the descriptor must have the same. Bytes that threads have
// written, or a plain copy, can lie in any.
#define LOAD_A                                                                                     \
    "setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared::cta.b64 [%r1+57344], 1;"                   \
    "fence.mbarrier_init.release.cluster; bar.sync 0; ld.param.u64 %d4, [image];"                  \
    "add.u64 %d5, %d4, 65408; @!%p1 bra AWAIT;"                                                    \
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+57344], 8192;"
#define TENSOR_COPY                                                                                \
    "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r1], "         \
    "[%d5, {0, 0}], [%r1+57344];\n"
#define PLAIN_COPY                                                                                 \
    "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%d4], 8192, "           \
    "[%r1+57344];\n"
#define AWAIT_A                                                                                    \
    "AWAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+57344], 0; @!%p2 bra AWAIT;\n"
// Each thread writes the chunks of a line again, as they are.
#define WRITE_A                                                                                    \
    "mad.lo.u32 %r4, %t, 64, %r1; mov.u32 %r2, 0; AGAIN: ld.shared.u32 %r3, [%r4];"                \
    "st.shared.u32 [%r4], %r3; add.u32 %r4, %r4, 4; add.u32 %r2, %r2, 4; setp.lt.u32 %p3, %r2, "   \
    "64; @%p3 bra AGAIN; fence.proxy.async; bar.sync 0;\n"

START_TEST(swizzles_agree) {
    static uint64_t dims[5] = {64, 64}, strides[4] = {128};
    static uint32_t box[5] = {64, 64}, steps[5] = {1, 1, 1, 1, 1};
    static const struct {
        const char *body;
        int copied, code, width; // of the map; bits 62-63; bytes that the box is wide
        const char *words;
    } cases[] = {
        {LOAD_A TENSOR_COPY AWAIT_A, SWIZZLE_128B, 1, 128, NULL},
        {LOAD_A TENSOR_COPY AWAIT_A, SWIZZLE_64B, 2, 64, NULL},
        {LOAD_A TENSOR_COPY AWAIT_A, SWIZZLE_NONE, 0, 128, NULL},
        {LOAD_A TENSOR_COPY AWAIT_A, SWIZZLE_128B, 2, 128,
         "reads A with swizzle 64B, but the tensor copy that wrote shared memory at 0x400 had "
         "swizzle 128B"},
        {LOAD_A TENSOR_COPY AWAIT_A, SWIZZLE_64B, 1, 64, "had swizzle 64B"},
        {LOAD_A TENSOR_COPY AWAIT_A, SWIZZLE_NONE, 1, 128, "had swizzle none"},
        {LOAD_A TENSOR_COPY AWAIT_A, SWIZZLE_128B, 0, 128, "reads A with swizzle none"},
        {LOAD_A PLAIN_COPY AWAIT_A, SWIZZLE_128B, 2, 128, NULL},
        {LOAD_A TENSOR_COPY AWAIT_A WRITE_A, SWIZZLE_128B, 2, 128, NULL},
        {LOAD_A TENSOR_COPY AWAIT_A WRITE_A, SWIZZLE_NONE, 1, 128, NULL},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    for (int k = 0; k < 2 * CASES; k++) {
        set_up();
        options.strict = k < CASES;
        options.checks |= CHECK_RACE;
        memset(image, 0, sizeof image);
        box[0] = (uint32_t)cases[k % CASES].width / 2;
        box[1] = 8192 / (uint32_t)cases[k % CASES].width;
        dims[1] = box[1];
        map = (TensorMapArguments){.type = TENSOR_BF16,
                                   .rank = 2,
                                   .swizzle = (unsigned)cases[k % CASES].copied,
                                   .dims = dims,
                                   .strides = strides,
                                   .box = box,
                                   .element_strides = steps};
        encode = true;
        int code = cases[k % CASES].code;
        desc_a = descriptor(SMEM, 128, code == 1 ? 1024 : code == 2 ? 512 : 256, code);
        desc_b = descriptor(SMEM + 0x4000, 128, 256, 0);
        char body[4096];
        snprintf(body, sizeof body, "%s%s", cases[k % CASES].body, FENCE PLAIN COMMIT WAIT);
        ck_assert_int_eq(run_wgmma(8, body), 0);
        const Finding *f = findings_get(0);
        const char *words = cases[k % CASES].words;
        ck_assert_msg((f != NULL) == (words != NULL), "case %d: %s", k, f ? f->what : "none");
        if (!words) continue;
        expect_finding(FINDING_LINT, words);
        ck_assert(f->note == !options.strict);
        ck_assert_ptr_null(findings_get(1));
    }
}
END_TEST

Suite *suite_wgmma_rules(void) {
    Suite *s = suite_create("wgmma_rules");
    TCase *tc = tcase_create("rules");
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_loop_test(tc, wrong_programs, 0, WRONG);
    tcase_add_loop_test(tc, unchecked, 0, WRONG);
    tcase_add_loop_test(tc, right_programs, 0, RIGHT);
    tcase_add_loop_test(tc, more_than_are_kept, 0, 3);
    tcase_add_test(tc, touched_behind_very_many);
    tcase_add_test(tc, too_far_ahead);
    tcase_add_test(tc, both_lines);
    tcase_add_test(tc, unwritten_operands);
    tcase_add_test(tc, part_of_a_warpgroup);
    tcase_add_test(tc, missing_warp);
    tcase_add_test(tc, imports);
    tcase_add_test(tc, undefined_values);
    tcase_add_test(tc, swizzles_agree);
    suite_add_tcase(s, tc);
    return s;
}
