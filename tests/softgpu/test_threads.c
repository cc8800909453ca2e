// The number of host threads changes nothing: neither findings, nor results, nor counters.
#include <stdlib.h>

#include "lanes.h"

#include "softgpu/check/findings.h"
#include "softgpu/machine/global.h"
#include "softgpu/machine/machine.h"
#include "softgpu/ptx/link.h"

Suite *suite_threads(void);

enum { BLOCKS = 24, THREADS = 64, WORDS = BLOCKS * THREADS };

// All that a run leaves behind, as text: what is compared.
static char *run(const char *body, uint32_t cluster, int threads, uint64_t schedule) {
    Settings options = {.threads = threads, .schedule = schedule, .report_json = true};
    options.checks = CHECK_MEM | CHECK_INIT | CHECK_SYNC | CHECK_RACE;
    options.timing = true;
    findings_reset();
    char text[8192];
    int length = snprintf(
        text, sizeof text,
        ".version 9.0\n.target sm_90a\n.address_size 64\n"
        ".visible .entry k(.param .u64 result)\n{\n.reg .b32 %%t, %%b, %%out, %%rank;"
        ".reg .b64 %%to<3>;\n%s.shared .align 16 .b8 s[2048];\n"
        "mov.u32 %%t, %%tid.x; mov.u32 %%b, %%ctaid.x; mov.u32 %%rank, %%cluster_ctarank;\n"
        "mov.u32 %%out, 0; ld.param.u64 %%to0, [result];\n%s\n"
        "mad.lo.u32 %%r6, %%b, 64, %%t; mad.wide.u32 %%to1, %%r6, 4, %%to0;\n"
        "st.global.u32 [%%to1], %%out;\nret;\n}\n",
        REGISTERS, body);
    PtxError error = {0};
    PtxModule *module = ptx_index(text, (size_t)length, &error);
    ck_assert_msg(module != NULL, "line %u: %s", error.line, error.message);
    Program *program = program_new();
    ck_assert(program_add(program, module, &error));
    Gpu *gpu = gpu_new(&options, figures_find("h100"));
    ck_assert(program_place(program, gpu->memory, &error));
    Kernel *kernel =
        kernel_lower(program_function(program, "k"), program_linker(program), 32, &error);
    ck_assert_msg(kernel != NULL, "line %u: %s", error.line, error.message);
    uint64_t out = global_alloc(gpu->memory, 4 * (WORDS + 64), MEMORY_DEVICE, NULL);
    uint32_t *words = (uint32_t *)global_pointer(gpu->memory, out);
    memset(words, 0, 4 * (WORDS + 64));
    global_mark_written(gpu->memory, out, 4 * (WORDS + 64));
    Launch launch = {.kernel = kernel,
                     .grid = {BLOCKS, 1, 1},
                     .block = {THREADS, 1, 1},
                     .cluster = {cluster, 1, 1},
                     .params = &out};
    KernelStats stats = {0};
    int code = gpu_launch(gpu, &launch, &stats);

    char *told = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&told, &size);
    fprintf(to, "code %d\n", code);
    const Finding *f;
    for (int k = 0; (f = findings_get(k)); k++)
        fprintf(to, "%s: %s (%s) block %u thread %u warp %d line %u other %s, %llu times\n",
                finding_slug(f->kind), f->what, f->text, f->block[0], f->thread[0], f->warp,
                f->ptx_line, f->other ? f->other : "none", (unsigned long long)f->count);
    for (int p = 0; p < PIPE_COUNT; p++)
        fprintf(to, "%d: %.17g %.17g %.17g\n", p, stats.warp_instructions[p],
                stats.thread_instructions[p], stats.pipe_us[p]);
    fprintf(to, "%.17g %.17g %.17g %.17g %.17g %.17g %.17g\n", stats.hbm_read_bytes,
            stats.hbm_write_bytes, stats.l2_read_bytes, stats.l2_write_bytes,
            stats.shared_wavefronts, stats.shared_ideal_wavefronts, stats.time_us);
    for (int k = 0; k < WORDS + 64; k++) fprintf(to, "%x ", words[k]);
    fclose(to);
    kernel_free(kernel);
    program_free(program);
    gpu_delete(gpu);
    return told;
}

#define SYNC  "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
#define WORD  "mad.lo.u32 %r0, %t, 4, s; xor.b32 %r2, %t, 63; mad.lo.u32 %r2, %r2, 4, s;\n"
#define PEER  "xor.b32 %r1, %rank, 1; mapa.shared::cluster.u32 %r3, %r0, %r1;\n"
#define COUNT "atom.global.add.u32 %r4, [%to0+6144], 1;\n"

static const struct {
    const char *body, *finding; // NULL: none
    uint32_t cluster;
} programs[] = {
    // Every block races; those of odd numbers at another line too.
    {WORD "st.shared.u32 [%r0], %t;\nld.shared.u32 %out, [%r2];\nand.b32 %r4, %b, 1;\n"
          "setp.eq.u32 %p0, %r4, 0; @%p0 bra EVEN;\nst.shared.u32 [%r2], %b;\nEVEN: bar.sync 0;\n",
     "which warp", 1},
    // A block here and there, by what atomics tell in the order of events.
    {WORD COUNT "and.b32 %r4, %b, 7; setp.ne.u32 %p0, %r4, 3;\nst.shared.u32 [%r0], %t;\n"
                "@%p0 bar.sync 0;\nld.shared.u32 %out, [%r2]; mov.u32 %out, %r4;\n",
     "which warp", 1},
    // Clusters: right, and with races between peers.
    {WORD PEER "st.shared.u32 [%r0], %t;\n" SYNC "ld.shared::cluster.u32 %out, [%r3];\n" COUNT SYNC,
     NULL, 2},
    {WORD PEER SYNC "st.shared.u32 [%r0], %t;\nld.shared::cluster.u32 %out, [%r3];\n" SYNC,
     "shared memory", 4},
    // Something in another block's memory that is past its end.
    {WORD PEER SYNC "setp.eq.u32 %p0, %b, 17; @!%p0 bra OTHERS;\n"
                    "st.shared::cluster.u32 [%r3+4194304], %t;\nOTHERS:" SYNC,
     "", 2},
    // Global memory: blocks of all SMs write and read one word; some of them in turns.
    {"and.b32 %r4, %b, 3; setp.eq.u32 %p0, %r4, 1;\n@%p0 st.global.u32 [%to0+6160], 7;\n"
     "@!%p0 ld.global.u32 %r5, [%to0+6160];\n" COUNT "@!%p0 st.global.u32 [%to0+6164], 7;\n",
     "of block", 1},
    {"setp.gt.u32 %p0, %t, 0; @%p0 bra OUT;\n"
     "TURN: ld.acquire.gpu.global.u32 %r3, [%to0+6160]; setp.lt.u32 %p1, %r3, %b; @%p1 bra TURN;\n"
     "ld.global.u32 %r4, [%to0+6164]; add.u32 %r4, %r4, %b; st.global.u32 [%to0+6164], %r4;\n"
     "mov.u32 %out, %r4; add.u32 %r3, %b, 1; st.release.gpu.global.u32 [%to0+6160], %r3;\nOUT:",
     NULL, 1},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

START_TEST(all_the_same) {
    for (uint64_t schedule = 0; schedule < 3; schedule++) {
        char *one = run(programs[_i].body, programs[_i].cluster, 1, schedule);
        const Finding *f = findings_get(0);
        ck_assert_msg((f != NULL) == (programs[_i].finding != NULL), "%s", one);
        if (f) ck_assert_msg(strstr(f->what, programs[_i].finding) != NULL, "%s", f->what);
        for (int threads = 2; threads <= 4; threads *= 2) {
            char *many = run(programs[_i].body, programs[_i].cluster, threads, schedule);
            ck_assert_msg(!strcmp(one, many), "schedule %d, 1 thread:\n%s\n\n%d threads:\n%s",
                          (int)schedule, one, threads, many);
            free(many);
        }
        free(one);
    }
}
END_TEST

Suite *suite_threads(void) {
    Suite *suite = suite_create("threads");
    TCase *tests = tcase_create("host threads");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, all_the_same, 0, PROGRAMS);
    suite_add_tcase(suite, tests);
    return suite;
}
