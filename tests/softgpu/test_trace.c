// Timelines: what the writer makes of spans, and what markers in PTX become.
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../chapters/timeline.h"
#include "softgpu/execute/phase.h"
#include "softgpu/timing/trace.h"
#include "thread_kernel.h"

Suite *suite_trace(void);

static char path[] = "/tmp/softgpu-trace-XXXXXX";

static void make_path(void) {
    strcpy(path + strlen(path) - 6, "XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    unlink(path);
}

// ---- the writer, with a GPU made by hand

enum { SMS = 3, WARPS = 8 };
static Settings settings;
static Gpu gpu;
static Sm sms[SMS];
static Kernel kernel;
static Launch launch;

static void make_gpu(void) {
    make_path();
    settings = (Settings){.trace = path, .trace_sms = TRACE_SMS};
    kernel = (Kernel){.name = "some \"kernel\""};
    launch = (Launch){.kernel = &kernel, .grid = {4, 3, 2}, .block = {256, 1, 1}};
    memset(sms, 0, sizeof sms);
    for (int s = 0; s < SMS; s++) sms[s] = (Sm){.gpu = &gpu, .id = s};
    gpu = (Gpu){.settings = &settings, .sm = sms, .clock_us = 100};
    gpu.figures.sms = SMS;
    gpu.figures.clock_ghz = 2;
    gpu.figures.full_name = "a GPU";
}

static Cta make_cta(Sm *sm, uint64_t linear, Warp warps[WARPS]) {
    Cta cta = {.sm = sm, .linear = linear, .warp_count = WARPS, .warps = warps};
    for (int k = 0; k < WARPS; k++) warps[k] = (Warp){.sm = sm, .id = k};
    return cta;
}

// The bar of that name on a track of that name; fails if there is none.
static const Bar *bar_on(const Timeline *t, const char *track, const char *name) {
    for (int k = 0; k < t->count; k++) {
        const Bar *bar = &t->bars[k];
        if (!strcmp(bar->name, name) && !strcmp(track_name(t, bar->pid, bar->tid), track))
            return bar;
    }
    ck_abort_msg("no %s on %s", name, track);
}

// Two launches: times are in microseconds of the GPU's clock, and in cycles of the launch.
START_TEST(times) {
    Warp warps[WARPS];
    make_gpu();
    trace_launch_begin(&gpu, &launch, SMS, 1000);
    ck_assert(trace_on(&sms[0]) && trace_on(&sms[TRACE_SMS - 1]) && !trace_on(&sms[TRACE_SMS]));
    Cta cta = make_cta(&sms[0], 17, warps);
    for (int k = 0; k < WARPS; k++) warps[k].cta = &cta;
    trace_cta_begin(&cta, 1010);
    trace_phase(&warps[4], "load", 1020);
    trace_wait(&warps[4], STALL_MBARRIER, 1030, 1050);
    trace_phase(&warps[4], "compute", 1060);
    trace_span(&sms[0], TRACE_TENSOR, 0, &warps[5], "wgmma", 1070, 1200);
    trace_span(&sms[0], TRACE_TENSOR, 0, &warps[5], "nothing", 1200, 1200);
    trace_cta_end(&cta, 1300);
    trace_launch_end(&gpu, &launch, 0.5);
    ck_assert(!trace_on(&sms[0]));
    ck_assert_int_ne(access(path, F_OK), 0); // nothing half-written under its name
    gpu.clock_us += 0.5;

    trace_launch_begin(&gpu, &launch, SMS, 5000);
    trace_span(&sms[1], TRACE_MUFU, 3, NULL, "exp", 5100, 5300);
    trace_launch_end(&gpu, &launch, 2);
    trace_finish();

    Timeline t = timeline_read(path);
    tracks_are_ordered(&t);
    ck_assert_int_eq(t.count, 2 + 1 + 3 + 1 + 1);
    ck_assert_int_eq(bars_of(&t, "kernel", "some \"kernel\""), 2);
    const Bar *block = bar_on(&t, "block slot 0", "block (1,1,1)"); // 17 of 4 x 3 x 2
    ck_assert_double_eq(block->begin, 10);
    ck_assert_double_eq(block->end, 300);
    ck_assert_double_eq_tol(block->ts, 100 + 10 / 2e3, 1e-4);
    ck_assert_double_eq_tol(block->dur, 290 / 2e3, 1e-4);
    const Bar *load = bar_on(&t, "warpgroup 1", "load");
    ck_assert_str_eq(load->kind, "phase");
    ck_assert_double_eq(load->begin, 20);
    ck_assert_double_eq(load->end, 60);
    ck_assert(load->block == 17 && load->warpgroup == 1 && load->warp == 4);
    const Bar *wait = bar_on(&t, "warpgroup 1", "mbarrier");
    ck_assert_str_eq(wait->kind, "wait");
    ck_assert_double_eq(wait->begin, 30);
    ck_assert_double_eq(bar_on(&t, "warpgroup 1", "compute")->end, 300); // with its block
    ck_assert_int_eq(bar_on(&t, "tensor cores 0", "wgmma")->warp, 5);
    const Bar *mufu = bar_on(&t, "MUFU 3", "exp");
    ck_assert_str_eq(track_name(&t, mufu->pid, 0), "SM 1");
    ck_assert_double_eq(mufu->begin, 100);
    ck_assert_double_eq_tol(mufu->ts, 100.5 + 100 / 2e3, 1e-4);
    ck_assert_int_eq(mufu->warp, -1);
    unlink(path);
}
END_TEST

// Warps that do as the first of their warpgroup are left out, others are not. A slot is used again.
START_TEST(warps) {
    Warp warps[WARPS], others[WARPS];
    make_gpu();
    trace_launch_begin(&gpu, &launch, 1, 0);
    Cta cta = make_cta(&sms[0], 0, warps), other = make_cta(&sms[0], 1, others);
    for (int k = 0; k < WARPS; k++) warps[k].cta = &cta, others[k].cta = &other;
    trace_cta_begin(&cta, 1);
    trace_cta_begin(&other, 1);
    for (int k = 0; k < 4; k++) {
        trace_phase(&warps[k], "a", 10 + (uint64_t)k);
        trace_phase(&warps[k], "b", 20 + (uint64_t)k);
    }
    trace_wait(&warps[3], STALL_BARRIER, 21, 22);
    trace_phase(&warps[4], "a", 10);
    trace_phase(&warps[6], "c", 10);
    trace_phase(&others[0], "d", 10);
    trace_cta_end(&cta, 30);
    Cta third = make_cta(&sms[0], 2, warps);
    for (int k = 0; k < WARPS; k++) warps[k].cta = &third;
    trace_cta_begin(&third, 40);
    trace_phase(&warps[0], "a", 41);
    trace_cta_end(&third, 50);
    trace_cta_end(&other, 60);
    trace_launch_end(&gpu, &launch, 1);
    trace_finish();

    Timeline t = timeline_read(path);
    tracks_are_ordered(&t);
    ck_assert_int_eq(bars_of(&t, "block", NULL), 3);
    ck_assert_int_eq(bars_of(&t, "wait", NULL), 0);
    ck_assert_int_eq(bars_of(&t, "phase", NULL), 2 + 1 + 1 + 1 + 1);
    ck_assert_double_eq(bar_on(&t, "warpgroup 0", "b")->end, 30);
    bar_on(&t, "warpgroup 1", "a");
    bar_on(&t, "warp 6", "c");
    bar_on(&t, "warpgroup 0 of block slot 1", "d");
    ck_assert_double_eq(bar_on(&t, "block slot 0", "block (2,0,0)")->begin, 40);
    unlink(path);
}
END_TEST

// Bars that overlap go to tracks of their own; a full buffer says what it dropped.
START_TEST(lanes) {
    make_gpu();
    trace_launch_begin(&gpu, &launch, 1, 0);
    trace_span(&sms[0], TRACE_TMA, 0, NULL, "b", 20, 60);
    trace_span(&sms[0], TRACE_TMA, 0, NULL, "a", 10, 50); // in any order
    trace_span(&sms[0], TRACE_TMA, 0, NULL, "c", 50, 70);
    trace_span(&sms[0], TRACE_BARRIER, 5, NULL, "d", 10, 20);
    trace_span(&sms[0], TRACE_BARRIER, 0x410, NULL, "e", 10, 20);
    trace_launch_end(&gpu, &launch, 1);
    trace_launch_begin(&gpu, &launch, 1, 100);
    for (int k = 0; k < TRACE_SPANS_MOST + 7; k++)
        trace_span(&sms[0], TRACE_MUFU, 0, NULL, "exp", 100 + (uint64_t)k, 101 + (uint64_t)k);
    settings.trace = NULL; // pauses: the file goes on when it is named again
    trace_launch_end(&gpu, &launch, 1);
    trace_launch_begin(&gpu, &launch, 1, 200);
    ck_assert(!trace_on(&sms[0]));
    trace_launch_end(&gpu, &launch, 1);
    trace_finish();

    FILE *in = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;
    ck_assert_int_gt(getdelim(&text, &size, 0, in), 0);
    fclose(in);
    ck_assert_ptr_nonnull(strstr(text, "\"dropped_spans\": 7,"));
    const char *const names[] = {"TMA 0", "TMA 1", "barrier 5", "mbarrier 0x410", "MUFU 0"};
    for (int k = 0; k < 5; k++) {
        char quoted[40];
        snprintf(quoted, sizeof quoted, "\"%s\"", names[k]);
        ck_assert_msg(strstr(text, quoted) != NULL, "no track %s", names[k]);
    }
    ck_assert_ptr_null(strstr(text, "\"TMA 2\""));
    free(text);
    unlink(path);
}
END_TEST

// What a unit does without long gaps is one bar; barriers show their phases, the first from the block's begin.
START_TEST(units_and_barriers) {
    Warp warps[WARPS];
    make_gpu();
    trace_launch_begin(&gpu, &launch, 1, 0);
    Cta cta = make_cta(&sms[0], 0, warps);
    for (int k = 0; k < WARPS; k++) warps[k].cta = &cta;
    trace_cta_begin(&cta, 5);
    trace_unit(&warps[1], UNIT_XU, 10, 20);
    trace_unit(&warps[2], UNIT_XU, 12, 22); // another scheduler's
    trace_unit(&warps[1], UNIT_XU, 20, 30);
    trace_unit(&warps[5], UNIT_XU, 30 + TRACE_GAP, 31 + TRACE_GAP); // another warp's
    trace_unit(&warps[1], UNIT_XU, 200, 210);
    trace_unit(&warps[1], UNIT_FMA, 10, 20);
    trace_unit(&warps[1], UNIT_TENSOR, 10, 20);
    trace_barrier(&cta, 1, 10);
    trace_barrier(&cta, 0x400, 15);
    trace_barrier(&cta, 1, 20);
    trace_cta_end(&cta, 50);
    trace_launch_end(&gpu, &launch, 1);
    trace_finish();

    Timeline t = timeline_read(path);
    tracks_are_ordered(&t);
    unlink(path);
    ck_assert_int_eq(bars_of(&t, "mufu", "mufu"), 3);
    const Bar *joined = bar_on(&t, "MUFU 1", "mufu");
    ck_assert(joined->begin == 10 && joined->end == 31 + TRACE_GAP && joined->busy == 21);
    ck_assert_int_eq(bars_of(&t, "tensor", "mma"), 1);
    ck_assert_int_eq(bars_of(&t, "barrier", NULL), 3);
    const Bar *even = bar_on(&t, "barrier 1", "even phase"),
              *odd = bar_on(&t, "barrier 1", "odd phase");
    ck_assert(even->begin == 5 && even->end == 10 && odd->begin == 10 && odd->end == 20);
    ck_assert_double_eq(bar_on(&t, "mbarrier 0x400", "even phase")->end, 15);
}
END_TEST

START_TEST(no_place) {
    ck_assert_str_eq(trace_probe("/no/such/folder/x.json"), strerror(ENOENT));
    ck_assert_ptr_nonnull(trace_probe("/tmp"));
    ck_assert_ptr_null(trace_probe("/dev/null"));
    ck_assert_ptr_null(trace_probe("-"));
    make_path();
    ck_assert_ptr_null(trace_probe(path));
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

// ---- markers

static const char *const marked = "{ .reg .pred phase$first; }\n"
                                  "mov.u32 %out, 7;\n"
                                  "bar.sync 0;\n"
                                  "{\n.reg .pred phase$second;\n}\n"
                                  "add.u32 %out, %out, %t;\n"
                                  "bar.sync 0;\n"
                                  "{ .reg .pred phase$; }\n"
                                  "add.u32 %out, %out, 1;\n";

// Markers compute nothing, count nothing, and are bars of each warpgroup in the timeline.
START_TEST(markers) {
    make_path();
    set_up();
    options.timing = true;
    options.trace = path;
    options.trace_sms = TRACE_SMS;
    ck_assert_int_eq(run(256, marked), 0);
    trace_finish();
    for (uint32_t k = 0; k < 256; k++) ck_assert_uint_eq(results[k], 8 + k);
    KernelStats with = stats;
    Timeline t = timeline_read(path);
    tracks_are_ordered(&t);
    unlink(path);
    ck_assert_int_eq(bars_of(&t, "kernel", NULL), 1);
    ck_assert_int_eq(bars_of(&t, "block", "block (0,0,0)"), 1);
    ck_assert_int_eq(bars_of(&t, "phase", NULL), 2 * 2);
    for (int group = 0; group < 2; group++) {
        char track[32];
        snprintf(track, sizeof track, "warpgroup %d", group);
        const Bar *first = bar_on(&t, track, "first"), *second = bar_on(&t, track, "second");
        ck_assert_double_eq(first->end, second->begin);
        ck_assert_int_eq(first->warpgroup, group);
    }

    char plain[512] = "";
    for (const char *line = marked; *line; line = strchr(line, '\n') + 1)
        if (!strchr("{.}", *line)) strncat(plain, line, strcspn(line, "\n") + 1);
    options.trace = NULL;
    ck_assert_int_eq(run(256, plain), 0);
    for (int p = 0; p < PIPE_COUNT; p++)
        ck_assert_double_eq(with.warp_instructions[p], stats.warp_instructions[p]);
    ck_assert_double_eq(with.time_us, stats.time_us);
}
END_TEST

// Other predicates, and registers of other types, mark nothing.
START_TEST(no_markers) {
    make_path();
    set_up();
    options.timing = true;
    options.trace = path;
    options.trace_sms = TRACE_SMS;
    ck_assert_int_eq(run(32, "{ .reg .pred phase; .reg .pred aphase$x; .reg .b32 phase$y; }\n"
                             "mov.u32 %out, 0;\n"),
                     0);
    trace_finish();
    Timeline t = timeline_read(path);
    unlink(path);
    ck_assert_int_eq(bars_of(&t, "phase", NULL), 0);
    ck_assert_int_eq(bars_of(&t, "block", NULL), 1);
}
END_TEST

Suite *suite_trace(void) {
    Suite *suite = suite_create("trace");
    TCase *tests = tcase_create("trace");
    tcase_add_test(tests, times);
    tcase_add_test(tests, warps);
    tcase_add_test(tests, lanes);
    tcase_add_test(tests, units_and_barriers);
    tcase_add_test(tests, no_place);
    tcase_add_test(tests, markers);
    tcase_add_test(tests, no_markers);
    suite_add_tcase(suite, tests);
    return suite;
}
