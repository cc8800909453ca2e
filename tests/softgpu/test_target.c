// A module's .target and its instructions: what ptxas would not assemble is refused when it is
// reached, and nothing else is.
#include "lanes.h"

#include "softgpu/check/findings.h"
#include "softgpu/machine/machine.h"
#include "softgpu/ptx/link.h"

Suite *suite_target(void);

// Which of these targets take the instruction, as ptxas 13.0 answers.
static const char *const targets[] = {"80", "90", "90a", "100", "100a", "100f", "120a"};
enum { TARGETS = sizeof targets / sizeof *targets };
static const struct {
    const char *instruction, *taken; // one character a target: x or -
} cases[] = {
    {"clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r0], "
     "[%r1];",
     "---xxxx"},
    {"clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::"
     "cluster::all.b128 [%r0], [%r1];",
     "----xxx"},
    {"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 32;", "----xx-"},
    {"tcgen05.alloc.cta_group::2.sync.aligned.b32 [%d0], %r1;", "----xx-"},
    {"tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r0, %r1, %r2, %r3}, [%r4];", "----xx-"},
    {"tcgen05.st.sync.aligned.16x32bx2.x2.unpack::16b.b32 [%r0], 8, {%r1, %r2};", "----xx-"},
    {"tcgen05.wait::ld.sync.aligned;", "----xx-"},
    {"tcgen05.fence::after_thread_sync;", "----xx-"},
    {"tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
     "[%r0], %h0;",
     "----xx-"},
    {"tcgen05.mma.cta_group::1.kind::f16 [%r0], %d0, %d1, %r1, {%r3, %r4, %r5, %r6}, %p0, 15;",
     "----xx-"},
    {"tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [%r0], %d0, %d1, %r1, "
     "[%r2], [%r3], %p0;",
     "----x--"},
    {"tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 [%r0], %d0, %d1, %r1, [%r2], "
     "[%r3], %p0;",
     "----xx-"},
    {"tcgen05.mma.cta_group::1.kind::i8 [%r0], %d0, %d1, %r1, %p0;", "----x--"},
    {"tcgen05.mma.ws.cta_group::1.kind::tf32.collector::b3::use [%r0], [%r2], %d1, %r1, %p0, %d2;",
     "----xx-"},
    {"tcgen05.cp.cta_group::2.64x128b.warpx2::02_13 [%r0], %d0;", "----xx-"},
    {"tcgen05.cp.cta_group::1.32x128b.warpx4.b8x16.b4x16_p64 [%r0], %d0;", "----xx-"},
    {"tcgen05.shift.cta_group::1.down [%r0];", "----x--"},
    {"tcgen05.mma.cta_group::1.kind::f16.ashift [%r0], [%r2], %d1, %r1, %p0;", "----xx-"},
    {"tcgen05.mma.cta_group::1.kind::f16.ashift.collector::a::lastuse [%r0], [%r2], %d1, %r1, %p0;",
     "----xx-"},
    {"tcgen05.mma.sp.cta_group::1.kind::f16 [%r0], %d0, %d1, [%r2], %r1, {%r3, %r4, %r5, %r6}, "
     "%p0, 3;",
     "----xx-"},
    {"tcgen05.mma.sp.cta_group::2.kind::tf32.ashift [%r0], [%r3], %d1, [%r2], %r1, %p0;",
     "----xx-"},
    {"tcgen05.mma.sp.cta_group::1.kind::i8 [%r0], %d0, %d1, [%r2], %r1, %p0;", "----x--"},
    {"tcgen05.mma.sp.cta_group::1.kind::mxf8f6f4.block_scale [%r0], %d0, %d1, [%r2], %r1, [%r3], "
     "[%r4], %p0;",
     "----xx-"},
    {"tcgen05.mma.sp.cta_group::1.kind::mxf4.block_scale [%r0], %d0, %d1, [%r2], %r1, [%r3], "
     "[%r4], %p0;",
     "----x--"},
    {"tcgen05.mma.sp.cta_group::1.kind::mxf4nvf4.block_scale.block16 [%r0], %d0, %d1, [%r2], %r1, "
     "[%r3], [%r4], %p0;",
     "----x--"},
    {"tcgen05.mma.ws.sp.cta_group::1.kind::tf32.collector::b1::fill [%r0], [%r3], %d1, [%r2], %r1, "
     "%p0, %d2;",
     "----xx-"},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, "
     "%r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};",
     "xxxxxxx"},
    {"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, "
     "%r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};",
     "-xxxxxx"},
    {"cvt.rn.satfinite.e4m3x2.f32 %h0, %f1, %f0;", "-xxxxxx"},
    {"cvt.rna.tf32.f32 %r0, %f0;", "xxxxxxx"},
    {"cvt.rn.tf32.f32 %r0, %f0;", "-xxxxxx"},
    {"cvt.rn.bf16.f32 %h0, %f0;", "xxxxxxx"},
    {"cvt.f32.bf16 %f0, %h0;", "xxxxxxx"},
    {"cvt.rn.bf16.s32 %h0, %r0;", "-xxxxxx"},
    {"fma.rn.bf16x2 %r0, %r1, %r2, %r3;", "xxxxxxx"},
    {"add.rn.bf16x2 %r0, %r1, %r2;", "-xxxxxx"},
    {"setp.eq.bf16 %p0, %h1, %h2;", "-xxxxxx"},
    {"ex2.approx.f16x2 %r0, %r1;", "xxxxxxx"},
    {"ex2.approx.ftz.bf16x2 %r0, %r1;", "-xxxxxx"},
    {"max.f32 %f0, %f1, %f2;", "xxxxxxx"},
    {"max.f32 %f0, %f1, %f2, %f3;", "---xxxx"},
    {"fma.rn.ftz.f32x2 %d0, %d1, %d2, %d3;", "---xxxx"},
    {"ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%d0];", "xxxxxxx"},
    {"ld.global.v4.b64 {%d0, %d1, %d2, %d3}, [%d4];", "---xxxx"},
    {"ld.global.v8.b32 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%d4];", "---xxxx"},
    {"red.global.add.f32 [%d0], %f0;", "xxxxxxx"},
    {"red.global.add.v4.f32 [%d0], {%f0, %f1, %f2, %f3};", "-xxxxxx"},
    {"atom.global.add.noftz.f16x2 %r0, [%d0], %r1;", "xxxxxxx"},
    {"red.global.add.noftz.bf16x2 [%d0], %r0;", "-xxxxxx"},
    {"ld.shared::cta.u32 %r0, [%r1];", "xxxxxxx"},
    {"ld.shared::cluster.u32 %r0, [%r1];", "-xxxxxx"},
    {"ld.acquire.gpu.global.u32 %r0, [%d0];", "xxxxxxx"},
    {"ld.acquire.cluster.global.u32 %r0, [%d0];", "-xxxxxx"},
    {"fence.acq_rel.gpu;", "xxxxxxx"},
    {"fence.acq_rel.cluster;", "-xxxxxx"},
    {"fence.proxy.alias;", "xxxxxxx"},
    {"fence.proxy.async.shared::cta;", "-xxxxxx"},
    {"fence.mbarrier_init.release.cluster;", "-xxxxxx"},
    {"ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%r0, %r1, %r2, %r3}, [%r4];", "xxxxxxx"},
    {"ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [%r4];", "----xxx"},
    {"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r4], {%r0, %r1, %r2, %r3};", "-xxxxxx"},
    {"stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r4], {%r0};", "----xxx"},
    {"cp.async.cg.shared.global [%r0], [%d0], 16;", "xxxxxxx"},
    {"cp.async.bulk.commit_group;", "-xxxxxx"},
    {"cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r4], [%d5, "
     "{%r0, %r1}], [%r5];",
     "-xxxxxx"},
    {"cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r4], "
     "[%d5, {%r0, %r1, %r2, %r3, %r6}], [%r5];",
     "---xxxx"},
    {"cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes "
     "[%r4], [%d5, {%r0, %r1, %r2, %r3, %r6}], [%r5];",
     "----xx-"},
    {"cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes "
     "[%r4], [%d5, {%r0, %r1}], [%r5];",
     "----xx-"},
    {"mbarrier.arrive.shared::cta.b64 %d0, [%r0];", "xxxxxxx"},
    {"mbarrier.arrive.shared::cta.b64 %d0, [%r0], 2;", "-xxxxxx"},
    {"mbarrier.arrive.noComplete.shared::cta.b64 %d0, [%r0], 2;", "xxxxxxx"},
    {"mbarrier.test_wait.parity.shared::cta.b64 %p0, [%r0], %r1;", "xxxxxxx"},
    {"mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r0], %r1;", "-xxxxxx"},
    {"mapa.shared::cluster.u32 %r0, %r1, %r2;", "-xxxxxx"},
    {"barrier.cluster.arrive.aligned;", "-xxxxxx"},
    {"st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r0], %r3, [%r2];", "-xxxxxx"},
    {"elect.sync %r0|%p0, 0xffffffff;", "-xxxxxx"},
    {"griddepcontrol.wait;", "-xxxxxx"},
    {"mov.b32 %r0, %cluster_ctarank;", "-xxxxxx"},
    {"mov.b32 %r0, %laneid;", "xxxxxxx"},
    {"setmaxnreg.dec.sync.aligned.u32 24;", "--x-xxx"},
    {"tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r4], %d1;", "--x-xxx"},
    {"tensormap.replace.tile.swizzle_atomicity.global.b1024.b32 [%d0], 0;", "----xxx"},
    {"prefetch.tensormap [%d5];", "-xxxxxx"},
    {"wgmma.fence.sync.aligned;", "--x----"},
    {"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d0, %d1, %p0, 1, "
     "1, 0, 1;",
     "--x----"},
};
enum { CASES = sizeof cases / sizeof *cases };

// The same of forms that softgpu refuses, and what their traps say.
static const struct {
    const char *instruction, *taken, *why;
} refused[] = {
    {"alloca.u64 %d0, %d1, 16;", "xxxxxxx", "a stack that grows while the thread runs"},
    {"stackrestore.u64 %d0;", "xxxxxxx", "a stack that grows while the thread runs"},
    {"mov.v4.u32 {%r0, %r1, %r2, %r3}, %tid;", "xxxxxxx", "its parts are, as %tid.x"},
    {"fma.rn.oob.relu.f16x2 %r0, %r1, %r2, %r3;", "-xxxxxx", "the values of oob"},
    {"mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, "
     "%r3}, {%r4, %r5, %r6, %r7}, {%f0, %f1, %f2, %f3}, %r8, 0;",
     "xxxxxxx", "sparse products are not built"},
    {"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32 {%f0, %f1, %f2, %f3}, {%r0, "
     "%r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};",
     "------x", "products of 4-bit and 6-bit floats"},
    {"wmma.mma.and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r0, %r1}, {%r2}, {%r3}, "
     "{%r0, %r1};",
     "xxxxxxx", "wmma of 4-bit integers and of single bits"},
    {"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d0, %d1, %r8, "
     "0, %p0, 1, 1, 0, 0;",
     "--x----", "sparse products are not built"},
    {"cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r4], "
     "[%d5, {%r0, %r1, %r2}], [%r5], {%h0};",
     "-xxxxxx", "im2col copies are not built"},
    {"cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.im2col_no_offs.bulk_group [%d5, {%r0, "
     "%r1, %r2}], [%r4];",
     "-xxxxxx", "im2col copies are not built"},
    {"multimem.ld_reduce.relaxed.gpu.global.add.v4.f32 {%f0, %f1, %f2, %f3}, [%d1];", "-xxxxxx",
     "the memory of several GPUs"},
    {"multimem.st.b32 [%d1], %r0;", "-xxxxxx", "the memory of several GPUs"},
    {"multimem.red.global.min.v2.f16x2 [%d1], {%r0, %r1};", "-xxxxxx",
     "the memory of several GPUs"},
    {"tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%d0, {%f4, %f5}];", "xxxxxxx",
     "textures and surfaces"},
    {"sust.b.2d.b32.trap [%d0, {%r1, %r2}], %r3;", "xxxxxxx", "textures and surfaces"},
    {"vadd4.s32.s32.s32 %r0, %r1, %r2, %r3;", "xxxxxxx", "video instructions"},
    {"st.async.release.gpu.global.b32 [%d0], %r1;", "---xxxx", "asynchronous stores to global"},
    {"red.async.release.gpu.global.add.u32 [%d0], %r1;", "---xxxx",
     "asynchronous reductions in global"},
};
enum { REFUSED = sizeof refused / sizeof *refused };

// A kernel for a target: the instruction, reached or not.
static Kernel *lower(Program *program, const char *target, const char *guard,
                     const char *instruction) {
    char text[4096];
    int length = snprintf(text, sizeof text,
                          ".version 9.0\n.target sm_%s\n.address_size 64\n"
                          ".visible .entry k()\n{\n%smov.u32 %%r0, 0; setp.ne.u32 %%p7, %%r0, 0;\n"
                          "%s%s\nret;\n}\n",
                          target, REGISTERS, guard, instruction);
    PtxError error = {0};
    PtxModule *module = ptx_index(text, (size_t)length, &error);
    ck_assert_msg(module != NULL, "line %u: %s", error.line, error.message);
    ck_assert(program_add(program, module, &error));
    Kernel *kernel =
        kernel_lower(program_function(program, "k"), program_linker(program), 32, &error);
    ck_assert_msg(kernel != NULL, "%s: line %u: %s", instruction, error.line, error.message);
    return kernel;
}

START_TEST(every_target) {
    for (int t = 0; t < TARGETS; t++) {
        Program *program = program_new();
        Kernel *kernel = lower(program, targets[t], "", cases[_i].instruction);
        bool taken = true;
        for (uint32_t k = 0; k < kernel->code_count; k++) {
            taken &= kernel->code[k].run != trap_target;
            ck_assert_msg(kernel->code[k].run != trap_unsupported, "%s: %s", cases[_i].instruction,
                          (const char *)kernel->code[k].extra);
        }
        ck_assert_msg(taken == (cases[_i].taken[t] == 'x'), "sm_%s %s: %s", targets[t],
                      taken ? "takes" : "refuses", cases[_i].instruction);
        kernel_free(kernel);
        program_free(program);
    }
}
END_TEST

// What softgpu refuses by name, it refuses where the target has it, and tells why.
START_TEST(refused_by_name) {
    for (int t = 0; t < TARGETS; t++) {
        Program *program = program_new();
        Kernel *kernel = lower(program, targets[t], "", refused[_i].instruction);
        const char *why = NULL;
        bool taken = true;
        for (uint32_t k = 0; k < kernel->code_count; k++) {
            taken &= kernel->code[k].run != trap_target;
            if (kernel->code[k].run == trap_unsupported) why = kernel->code[k].extra;
        }
        ck_assert_msg(taken == (refused[_i].taken[t] == 'x'), "sm_%s %s: %s", targets[t],
                      taken ? "takes" : "refuses", refused[_i].instruction);
        ck_assert_msg(!taken || (why && strstr(why, refused[_i].why)), "%s: %s",
                      refused[_i].instruction, why ? why : "is not refused");
        kernel_free(kernel);
        program_free(program);
    }
}
END_TEST

// Runs it; the code of the launch.
static int run(const char *target, const char *guard, const char *instruction) {
    Settings options = {.threads = 1, .report_json = true, .checks = CHECK_SYNC};
    findings_reset();
    Program *program = program_new();
    Gpu *gpu = gpu_new(&options, figures_find("h100"));
    Kernel *kernel = lower(program, target, guard, instruction);
    Launch launch = {
        .kernel = kernel, .grid = {1, 1, 1}, .block = {128, 1, 1}, .cluster = {1, 1, 1}};
    int code = gpu_launch(gpu, &launch, &(KernelStats){0});
    kernel_free(kernel);
    program_free(program);
    gpu_delete(gpu);
    return code;
}

// Only what is reached is refused, and the words say what to build.
START_TEST(when_reached) {
    ck_assert_int_eq(run("80", "@%p7 ", "elect.sync %r0|%p0, 0xffffffff;"), 0);
    ck_assert_int_eq(run("90", "", "wgmma.fence.sync.aligned;"), 719);
    const Finding *f = findings_get(0);
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(f->kind, FINDING_UNSUPPORTED);
    ck_assert_str_eq(f->what, "'wgmma.fence.sync.aligned' would not assemble: it needs .target "
                              "sm_90a, and this module's is sm_90");
    ck_assert_int_eq(run("90a", "", "wgmma.fence.sync.aligned;"), 0);
    ck_assert_int_eq(run("80", "", "griddepcontrol.wait;"), 719);
    ck_assert_ptr_nonnull(strstr(findings_get(0)->what, "sm_90 or newer, and this module's is "
                                                        "sm_80"));
}
END_TEST

Suite *suite_target(void) {
    Suite *suite = suite_create("target");
    TCase *tests = tcase_create("targets");
    tcase_set_timeout(tests, 30);
    tcase_add_loop_test(tests, every_target, 0, CASES);
    tcase_add_loop_test(tests, refused_by_name, 0, REFUSED);
    tcase_add_test(tests, when_reached);
    suite_add_tcase(suite, tests);
    return suite;
}
