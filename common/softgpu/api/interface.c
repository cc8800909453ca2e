// What softgpu offers beside the CUDA API (softgpu.h): settings, sums of counters, findings; and
// what happens at the end of the process.
#include "softgpu/softgpu.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "softgpu/api/api.h"
#include "softgpu/api/launcher.h"
#include "softgpu/check/findings.h"
#include "softgpu/report/findings.h"
#include "softgpu/report/stats.h"
#include "softgpu/timing/trace.h"
#include "softgpu/timing/traffic.h"

// What the timing model says of the kernels since the last reset: shares times cycles, summed.
typedef struct {
    double all, unit[UNIT_COUNT], tensor, shared, l2, hbm, stall[STALL_COUNT];
} ModelCycles;

static SoftgpuStats sums;
// Busy times, in microseconds (roofline); interface_stats makes fractions of them.
static double pipe_us[PIPE_COUNT], hbm_us, l2_us, shared_us;
// Busy times, in cycles (timing model).
static ModelCycles busy_cycles;
static int findings_at_reset;

// The page that the launcher shares with the program, or NULL: there is none.
static LauncherPage *launcher_page(void) {
    static LauncherPage *page;
    static bool looked;
    const char *fd = getenv("SOFTGPU_LAUNCHER");
    if (looked || fd == NULL) return page;
    looked = true;
    void *found = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(fd), 0);
    return page = found == MAP_FAILED ? NULL : found;
}

// Tells the launcher how many errors were found, so that it knows even when the program aborts.
static void tell_launcher(void) {
    static int told;
    LauncherPage *page = launcher_page();
    int found = findings_count();
    if (page && found > told) atomic_fetch_add(&page->found, found - told);
    told = found;
}

static void add_model_cycles(const KernelStats *k) {
    ModelCycles *sum = &busy_cycles;
    sum->all += k->cycles;
    for (int u = 0; u < UNIT_COUNT; u++) sum->unit[u] += k->cycles * k->unit_busy[u];
    sum->tensor += k->cycles * k->tensor_busy;
    sum->shared += k->cycles * k->shared_busy;
    sum->l2 += k->cycles * k->l2_busy;
    sum->hbm += k->cycles * k->hbm_busy;
    for (int s = 0; s < STALL_COUNT; s++) sum->stall[s] += k->cycles * k->stall[s];
}

void stats_add(const KernelStats *k) {
    sums.kernels++;
    sums.time_us += k->time_us;
    sums.hbm_read_bytes += k->hbm_read_bytes;
    sums.hbm_write_bytes += k->hbm_write_bytes;
    sums.l2_read_bytes += k->l2_read_bytes;
    sums.flops += k->flops_f32 + k->flops_f64 + k->flops_tensor;
    sums.shared_wavefronts += k->shared_wavefronts;
    sums.shared_ideal_wavefronts += k->shared_ideal_wavefronts;
    sums.host_seconds += k->host_seconds;
    for (int p = 0; p < PIPE_COUNT; p++) {
        pipe_us[p] += k->pipe_us[p];
        sums.pipe_cycles[p] += k->pipe_cycles[p];
        sums.thread_instructions += k->thread_instructions[p];
        sums.warp_instructions += k->warp_instructions[p];
    }
    hbm_us += k->hbm_us;
    l2_us += k->l2_us;
    shared_us += k->shared_us;
    sums.shared_cycles += k->shared_cycles;
    sums.load_cycles += k->load_cycles;
    add_model_cycles(k);
    sums.sms_simulated = k->sms_simulated;
    sums.sms_total = k->sms_total;
    if (api.gpu->settings->stats) stats_record(k);
    tell_launcher();
}

void stats_add_copy(double microseconds) {
    sums.time_us += microseconds;
}

// ---- the interface

// Which settings belong to the GPU's making and can't change afterwards.
static bool is_fixed(const char *name) {
    return !strcmp(name, "gpu") || !strcmp(name, "sms");
}

// "report-file" → SOFTGPU_REPORT_FILE
static void variable_name(char *out, size_t size, const char *name) {
    snprintf(out, size, "SOFTGPU_%s", name);
    for (char *c = out; *c; c++) *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

static int interface_set(const char *name, const char *value) {
    API_ENTER();
    if (name == NULL || (api.gpu && is_fixed(name))) return -1;
    char variable[64];
    variable_name(variable, sizeof variable, name);
    const char *before = getenv(variable);
    char *kept = before ? strdup(before) : NULL;
    if (value)
        setenv(variable, value, 1);
    else
        unsetenv(variable);
    Settings settings;
    const char *problem = settings_read(&settings);
    if (problem == NULL && api.gpu && settings.sample > api.gpu->figures.sms)
        problem = "more SMs than the GPU has";
    if (problem == NULL && api.gpu) {
        *gpu_settings() = settings;
        findings_configure(&settings);
        const GpuFigures *plain = figures_find(api.gpu->figures.name);
        api.gpu->figures.clock_ghz =
            settings.clock_ghz > 0 || plain == NULL ? settings.clock_ghz : plain->clock_ghz;
    }
    if (problem && kept)
        setenv(variable, kept, 1);
    else if (problem)
        unsetenv(variable);
    free(kept);
    return problem ? -1 : 0;
}

static void interface_stats_reset(void) {
    API_ENTER();
    sums = (SoftgpuStats){0};
    memset(pipe_us, 0, sizeof pipe_us);
    hbm_us = l2_us = shared_us = 0;
    busy_cycles = (ModelCycles){0};
    // What is measured from here on must not depend on what ran before: neither on lines that are
    // in the L2 already nor on dirty ones that still have to leave it.
    if (api.gpu && api.gpu->l2) cache_invalidate(api.gpu->l2);
    for (int side = 0; side < 2; side++)
        if (api.gpu && api.gpu->near[side]) cache_invalidate(api.gpu->near[side]);
    findings_at_reset = findings_count();
}

// Where the model has timed kernels, its shares take the place of the roofline's.
static void share_model_cycles(SoftgpuStats *stats) {
    const ModelCycles *sum = &busy_cycles;
    if (!(sum->all > 0)) return;
    stats->cycles = sum->all;
    for (int u = 0; u < UNIT_COUNT; u++) stats->unit_busy[u] = sum->unit[u] / sum->all;
    stats->tensor_busy = sum->tensor / sum->all;
    stats->shared_busy = sum->shared / sum->all;
    stats->l2_busy = sum->l2 / sum->all;
    stats->hbm_busy = sum->hbm / sum->all;
    for (int s = 0; s < STALL_COUNT; s++) stats->stall[s] = sum->stall[s] / sum->all;
}

#define SLOTS(array) (int)(sizeof(array) / sizeof *(array))

static void interface_stats(SoftgpuStats *stats) {
    API_ENTER();
    _Static_assert(SLOTS(stats->busy) >= PIPE_COUNT, "a slot for each pipe");
    _Static_assert(SLOTS(stats->pipe_cycles) >= PIPE_COUNT, "a slot for each pipe");
    _Static_assert(SLOTS(stats->unit_busy) >= UNIT_COUNT, "a slot for each unit");
    _Static_assert(SLOTS(stats->stall) >= STALL_COUNT, "a slot for each reason");
    *stats = sums;
    double all = sums.time_us > 0 ? sums.time_us : 1;
    for (int p = 0; p < PIPE_COUNT; p++) stats->busy[p] = pipe_us[p] / all;
    stats->hbm_busy = hbm_us / all;
    stats->l2_busy = l2_us / all;
    stats->shared_busy = shared_us / all;
    share_model_cycles(stats);
    stats->findings = findings_count() - findings_at_reset;
}

static const char *interface_gpu_name(void) {
    API_ENTER();
    return api_gpu()->figures.name;
}

static const char *interface_gpu_full_name(void) {
    API_ENTER();
    return api_gpu()->figures.full_name;
}

static int interface_gpu_sms(void) {
    API_ENTER();
    const GpuFigures *figures = &api_gpu()->figures, *whole = figures_find(figures->name);
    return whole != NULL ? whole->sms : figures->sms;
}

static double interface_clock_ghz(void) {
    API_ENTER();
    return api_gpu()->figures.clock_ghz;
}

static const char *interface_findings_json(void) {
    API_ENTER();
    return findings_json();
}

// Orders of warps and completions other than the hardware's are not timed cycle by cycle.
static const char *interface_time_kind(void) {
    API_ENTER();
    const Settings *s = gpu_settings();
    return s->timing && s->async == ASYNC_TIMED && s->schedule == 0 ? "modelled" : "roofline";
}

// Writes what is written at the end, once. The launcher learns of a failure: the program's own status
// is settled when its end is the occasion.
static int interface_finish(void) {
    static bool done, failed;
    if (api.gpu != NULL && !done) {
        done = true;
        failed = !findings_finish(api.gpu->settings);
        failed = !trace_finish() || failed;
        LauncherPage *page = launcher_page();
        if (failed && page != NULL) atomic_store(&page->unwritten, 1);
    }
    return failed ? -1 : 0;
}

static void interface_reset_device(void) {
    API_ENTER();
    api.sticky = cudaSuccess;
    api_forget_error();
}

EXPORT const SoftgpuInterface *softgpu_interface(void) {
    static const SoftgpuInterface interface = {
        .set = interface_set,
        .stats_reset = interface_stats_reset,
        .stats = interface_stats,
        .gpu_name = interface_gpu_name,
        .gpu_full_name = interface_gpu_full_name,
        .gpu_sms = interface_gpu_sms,
        .clock_ghz = interface_clock_ghz,
        .findings_json = interface_findings_json,
        .time_kind = interface_time_kind,
        .reset_device = interface_reset_device,
        .finish = interface_finish,
    };
    return &interface;
}

// At exit, or when the program ends by exit(): what remains to be reported.
__attribute__((destructor)) static void finish(void) {
    if (api.gpu == NULL) return;
    fflush(stdout); // the report stands after the program's own output
    stats_print(&api.gpu->figures);
    interface_finish();
    tell_launcher();
    fflush(stderr);
}
