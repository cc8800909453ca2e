// Cluster launch control: blocks that take the work of others do all of the grid's, each part once,
// under all schedules; and what is found out about wrong ones.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/machine/global.h"
#include "softgpu/machine/machine.h"
#include "softgpu/ptx/link.h"

Suite *suite_launch_control(void);

enum { GRID_X = 60, GRID_Y = 6, TILES = GRID_X * GRID_Y };

static Settings options;
static uint32_t done[2 * TILES]; // how often each block's work was done; which blocks were launched

// The loop of a persistent block. %x, %y: the tile; the wrong kernels replace parts of it.
#define EXPECT "@%one mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [bar], 16;\n"
#define TRY    "@%lead clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
#define ONE    ".b128 [answer], [bar];\n"
#define ALL    ".multicast::cluster::all.b128 [answer], [bar];\n"
#define WORK                                                                                       \
    "mad.lo.u32 %r0, %y, 60, %x; mad.wide.u32 %d0, %r0, 4, %out; @%one atom.global.add.u32 %r1, "  \
    "[%d0], 1;\n"
#define WAIT                                                                                       \
    "W: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p0, [bar], %phase; @!%p0 bra W;\n"   \
    "xor.b32 %phase, %phase, 1;\n"
#define QUERY                                                                                      \
    "ld.shared.v2.b64 {%d1, %d2}, [answer]; mov.b128 %q, {%d1, %d2};\n"                            \
    "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q;\n"                           \
    "@%p1 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%x, %y, %r2, %r3}, %q;\n" \
    "@%p1 clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %y, %q;\n"                 \
    "@%p1 add.u32 %x, %x, %rank;\n"
#define FENCE "fence.proxy.async.shared::cta;\n"
#define MEET  "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
#define AGAIN "@%p1 bra LOOP;\n"

// Runs it on few SMs, as clusters of so many blocks. Returns the launch's error.
static int run(int cluster, const char *body) {
    static char text[8000];
    int length = snprintf(
        text, sizeof text,
        ".version 9.0\n.target sm_100a\n.address_size 64\n"
        ".visible .entry k(.param .u64 out)\n{\n"
        ".shared .align 16 .b8 answer[16]; .shared .align 8 .b8 bar[8];\n"
        ".reg .b32 %%t, %%x, %%y, %%rank, %%phase, %%r<4>; .reg .b64 %%out, %%d<4>; .reg .b128 "
        "%%q; .reg .pred %%one, %%lead, %%p<3>;\n"
        "mov.u32 %%t, %%tid.x; mov.u32 %%x, %%ctaid.x; mov.u32 %%y, %%ctaid.y; mov.u32 %%rank, "
        "%%cluster_ctarank; mov.u32 %%phase, 0; ld.param.u64 %%out, [out];\n"
        "setp.eq.u32 %%one, %%t, 0; setp.eq.and.u32 %%lead, %%rank, 0, %%one;\n"
        "@%%one mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;\n" MEET
        "mad.lo.u32 %%r0, %%y, 60, %%x; mad.wide.u32 %%d0, %%r0, 4, %%out;\n"
        "@%%one st.global.u32 [%%d0 + 1440], 1;\nLOOP:\n%s" MEET "ret;\n}\n",
        body);
    ck_assert_int_lt(length, (int)sizeof text);
    PtxError error = {0};
    PtxModule *module = ptx_index(text, (size_t)length, &error);
    ck_assert_msg(module != NULL, "line %u: %s", error.line, error.message);
    Program *program = program_new();
    ck_assert(program_add(program, module, &error));
    Gpu *gpu = gpu_new(&options, figures_find("b200"));
    ck_assert(program_place(program, gpu->memory, &error));
    Kernel *kernel =
        kernel_lower(program_function(program, "k"), program_linker(program), 32, &error);
    ck_assert_msg(kernel != NULL, "line %u: %s", error.line, error.message);
    uint64_t out = global_alloc(gpu->memory, sizeof done, MEMORY_DEVICE, NULL);
    memset(global_pointer(gpu->memory, out), 0, sizeof done);
    global_mark_written(gpu->memory, out, sizeof done);
    Launch launch = {.kernel = kernel,
                     .grid = {GRID_X, GRID_Y, 1},
                     .block = {64, 1, 1},
                     .cluster = {(uint32_t)cluster, 1, 1},
                     .params = &out};
    KernelStats stats;
    int code = gpu_launch(gpu, &launch, &stats);
    memcpy(done, global_pointer(gpu->memory, out), sizeof done);
    kernel_free(kernel);
    program_free(program);
    gpu_delete(gpu);
    return code;
}

static void set_up(void) {
    memset(&options, 0, sizeof options);
    options.threads = 1;
    options.sms = 4;
    options.report_json = true;
    options.checks = CHECK_MEM | CHECK_INIT | CHECK_SYNC | CHECK_RACE;
    options.strict = true;
    findings_reset();
}

static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};

START_TEST(all_work_once) {
    int cluster = _i % 2 + 1, way = _i / 2, launched = 0;
    set_up();
    options.timing = way == 0;
    options.threads = way % 2 + 1;
    options.async = orders[way % 4];
    options.schedule = (uint64_t)(way / 4);
    ck_assert_int_eq(run(cluster, cluster == 1 ? EXPECT TRY ONE WORK WAIT QUERY FENCE MEET AGAIN
                                               : EXPECT TRY ALL WORK WAIT QUERY FENCE MEET AGAIN),
                     0);
    const Finding *f = findings_get(0);
    ck_assert_msg(!f, "a finding: %s", f ? f->what : "");
    for (int k = 0; k < TILES; k++) {
        ck_assert_msg(done[k] == 1, "tile %d was done %u times", k, done[k]);
        launched += (int)done[TILES + k];
    }
    // Most of the grid was taken, not launched: 4 SMs hold 32 blocks each.
    ck_assert_int_ge(launched, cluster);
    ck_assert_int_le(launched, 4 * 32 + (way / 4 ? 100 : 0));
}
END_TEST

static const struct {
    const char *body;
    FindingKind kind;
    const char *words;
} wrong[] = {
    {EXPECT TRY ONE WORK QUERY FENCE MEET WAIT AGAIN, FINDING_RACE,
     "nothing puts the two in order"},
    {EXPECT TRY ONE WORK WAIT QUERY MEET AGAIN, FINDING_RACE, "no fence.proxy.async"},
    {EXPECT TRY ONE WORK WAIT QUERY FENCE MEET AGAIN EXPECT TRY ONE WAIT "W2: bra.uni OVER; OVER:",
     FINDING_LINT, "after it has been told that none is left"},
    {"@%one mbarrier.arrive.shared::cta.b64 _, [bar];\n" TRY ONE WORK WAIT QUERY FENCE MEET AGAIN,
     FINDING_RACE, "nothing puts the two in order"},
    {EXPECT "@%one clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
            ".b128 [answer + 8], [bar];\n" WORK,
     FINDING_MISALIGNED, ""},
};

START_TEST(wrong_use) {
    for (int way = 0; way < 4; way++) {
        set_up();
        options.sms = 1; // some wait in vain, which is found by their spinning
        options.async = orders[way];
        char body[3000];
        strcpy(body, wrong[_i].body);
        char *second = strstr(body, "W2:");
        if (second) { // the second wait needs a label of its own
            char *label = NULL;
            for (char *at = body; (at = strstr(at, "W: ")) && at < second; at += 3) label = at;
            label[0] = 'V';
            memcpy(strstr(label, "bra W;"), "bra V;", 6);
        }
        run(1, body);
        bool found = false;
        const Finding *f;
        for (int k = 0; (f = findings_get(k)); k++)
            found |= f->kind == wrong[_i].kind && strstr(f->what, wrong[_i].words);
        f = findings_get(0);
        ck_assert_msg(found, "case %d, way %d: %s", _i, way, f ? f->what : "no finding");
    }
}
END_TEST

Suite *suite_launch_control(void) {
    Suite *suite = suite_create("launch_control");
    TCase *tests = tcase_create("launch_control");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, all_work_once, 0, 24);
    tcase_add_loop_test(tests, wrong_use, 0, sizeof wrong / sizeof *wrong);
    suite_add_tcase(suite, tests);
    return suite;
}
