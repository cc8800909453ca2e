// A launch, from its first CTA to its last: rounds.
//
// A round: start CTAs where there is room; let every SM run on its own for a quantum, SMs spread
// over host threads (the parallel phase); then, on one thread, apply the SMs' L2 requests and
// findings in SM order, and run the instructions that were deferred, in (time, SM, warp) order (the
// serial phase). Which thread runs an SM changes nothing that the SM can see.
//
// When a round changes nothing, there may never be change again: see stuck().
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "softgpu/check/check.h"
#include "softgpu/check/deadlock.h"
#include "softgpu/check/findings.h"
#include "softgpu/execute/special.h"
#include "softgpu/machine/async.h"
#include "softgpu/machine/event.h"
#include "softgpu/machine/global.h"
#include "softgpu/machine/parts.h"
#include "softgpu/machine/sample.h"
#include "softgpu/timing/roofline.h"
#include "softgpu/timing/traffic.h"

enum {
    QUANTUM = 1 << 14,       // instructions of an SM in a round
    QUANTUM_ALONE = 1 << 16, // … when no other SM has work
    WORTH_THREADS = 4000,    // instructions of a round below which one host thread does it all
    QUIET_ROUNDS = 64,       // rounds without change after which warps are watched
    CACHE_WAYS = 16,
    L1_WAYS = 16,
    AWAIT_LIMIT = 1 << 30, // SM time, most of a second
    L1_LEAST = 16 << 10,   // bytes of L1 that shared memory always leaves
    ERROR_CONFIGURATION = 9,
    ERROR_RESOURCES = 701,
    ERROR_LAUNCH_FAILURE = 719,
    ERROR_COOPERATIVE_TOO_LARGE = 720,
};

Handler read_special; // execute/move.c

typedef struct {
    LaunchState state;
    Launch launch;
    Gpu *gpu;
    int sms;           // that can have work
    int capacity;      // CTAs of an SM
    Sample sample;     // which CTAs run
    uint64_t next;     // CTA to start
    uint64_t now, end; // of the round
    int threads;
    Counters *counters; // per host thread; arrays NULL until used
    CacheTraffic l2, hbm;
    Sm **active; // SMs with something to do in this round
    int active_count;
    uint64_t work;                                         // instructions of the last round
    uint64_t changes, quiet_rounds, next_watch, watch_end; // for stuck()
    uint64_t quiet_since;
    uint64_t clocks;
    bool watching, failed;
} Run;

// ---- counters

static Counters *thread_counters(Run *r, int thread) {
    Counters *c = &r->counters[thread];
    if (c->executed) return c;
    size_t count = r->launch.kernel->code_count;
    c->executed = calloc(2 * count + 2, sizeof *c->executed);
    if (!c->executed) abort();
    c->lanes = c->executed + count + 1;
    return c;
}

static void add_counters(Counters *sum, const Counters *c, uint32_t code_count) {
    if (!c->executed) return;
    for (uint32_t k = 0; k < code_count; k++) {
        sum->executed[k] += c->executed[k];
        sum->lanes[k] += c->lanes[k];
    }
    sum->shared_wavefronts += c->shared_wavefronts;
    sum->shared_ideal += c->shared_ideal;
    sum->l1_hits += c->l1_hits;
    sum->l1_misses += c->l1_misses;
}

// ---- starting CTAs

// Fills the SMs with CTAs, one each in turn.
static void start_ctas(Run *r) {
    for (bool placed = true; placed;) {
        placed = false;
        for (int s = 0; s < r->sms; s++) {
            uint64_t next = sample_next(&r->sample, r->next);
            if (next == r->state.grid_size) return;
            Sm *sm = &r->gpu->sm[s];
            if (sm->resident >= r->capacity) continue;
            cta_start(sm, next);
            r->next = next + 1;
            r->state.started++;
            placed = true;
        }
    }
}

// ---- a round

static void run_one(void *context, int index, int thread) {
    Run *r = context;
    Sm *sm = r->active[index];
    sm->counters = thread_counters(r, thread);
    sm_run(sm, r->end);
}

// Finds the SMs that can do something before the round ends.
static void find_active(Run *r) {
    r->active_count = 0;
    for (int s = 0; s < r->sms; s++) {
        Sm *sm = &r->gpu->sm[s];
        if (sm->time < r->now) sm->time = r->now;
        if (sm->ready_count || sm_next_event(sm) < r->end) r->active[r->active_count++] = sm;
    }
}

// Applies what the SMs left behind, in SM order.
static void merge(Run *r) {
    for (int s = 0; s < r->sms; s++) {
        Sm *sm = &r->gpu->sm[s];
        findings_merge(sm);
        if (sm->faulted) r->failed = true;
        for (size_t k = 0; k < sm->request_count; k++) {
            const L2Request *q = &sm->requests[k];
            uint64_t bytes = 32 * (uint64_t)__builtin_popcount(q->sectors);
            if (q->write != 1 && q->write != 2) r->l2.read_bytes += bytes;
            if (q->write) r->l2.write_bytes += bytes;
            if (q->write == 2)
                cache_l2_write_part(r->gpu->l2, q->line, __builtin_ctz(q->sectors), q->bytes,
                                    &r->hbm);
            else
                cache_l2_access(r->gpu->l2, q->line, q->sectors, q->write, &r->hbm);
        }
        sm->request_count = 0;
    }
}

// The serial phase: merges the SMs' lists of deferred instructions by (time, SM).
static uint64_t run_deferred(Run *r) {
    Sm *heap[1024];
    int at[1024], count = 0;
    uint64_t ran = 0;
    for (int s = 0; s < r->sms; s++) {
        Sm *sm = &r->gpu->sm[s];
        sm->counters = thread_counters(r, 0);
        at[s] = 0;
        if (sm->deferred_count) heap[count++] = sm;
    }
#define DUE(sm)      ((sm)->deferred[at[(sm)->id]].time)
#define BEFORE(a, b) (DUE(a) != DUE(b) ? DUE(a) < DUE(b) : (a)->id < (b)->id)
    // A binary heap of SMs by their next instruction.
    for (int start = count / 2; start >= 0; start--) {
        for (int k = start, child; (child = 2 * k + 1) < count; k = child) {
            if (child + 1 < count && BEFORE(heap[child + 1], heap[child])) child++;
            if (!BEFORE(heap[child], heap[k])) break;
            Sm *swap = heap[k];
            heap[k] = heap[child];
            heap[child] = swap;
        }
    }
    while (count) {
        Sm *sm = heap[0];
        struct Deferred d = sm->deferred[at[sm->id]++];
        if (!sm->faulted) sm_run_deferred(sm, &d);
        ran++;
        if (at[sm->id] == sm->deferred_count) heap[0] = heap[--count];
        for (int k = 0, child; (child = 2 * k + 1) < count; k = child) {
            if (child + 1 < count && BEFORE(heap[child + 1], heap[child])) child++;
            if (!BEFORE(heap[child], heap[k])) break;
            Sm *swap = heap[k];
            heap[k] = heap[child];
            heap[child] = swap;
        }
    }
#undef DUE
#undef BEFORE
    for (int s = 0; s < r->sms; s++) r->gpu->sm[s].deferred_count = 0;
    return ran;
}

// ---- when nothing changes

static uint64_t count_changes(const Run *r) {
    uint64_t sum = r->state.started;
    for (int s = 0; s < r->sms; s++) sum += r->gpu->sm[s].changes;
    return sum;
}

// How often a clock has been read so far: who reads clocks sees another time in each loop.
static uint64_t count_clocks(const Run *r) {
    const Kernel *kernel = r->launch.kernel;
    uint64_t sum = 0;
    for (uint32_t k = 0; k < kernel->code_count; k++) {
        const Insn *i = &kernel->code[k];
        if (i->run != read_special) continue;
        if (i->imm < SPECIAL_CLOCK || i->imm > SPECIAL_GLOBALTIMER_HI) continue;
        if (i->imm >= SPECIAL_ENVREG0 && i->imm <= SPECIAL_ENVREG31) continue;
        for (int t = 0; t < r->threads; t++)
            if (r->counters[t].executed) sum += r->counters[t].executed[k];
    }
    return sum;
}

// Lets lanes that wait for others of their warp go on, everywhere. False if there are none.
static bool release_joins(Run *r) {
    bool released = false;
    for (int s = 0; s < r->sms; s++)
        for (Cta *cta = r->gpu->sm[s].ctas; cta; cta = cta->next)
            for (int k = 0; k < cta->warp_count; k++)
                if (cta->warps[k].live && joins_release(&cta->warps[k])) {
                    sm_ready(&cta->warps[k]);
                    released = true;
                }
    return released;
}

// Lands the asynchronous copies that only a wait would have landed, everywhere. False if there are
// none.
static bool land_copies(Run *r) {
    bool landed = false;
    for (int s = 0; s < r->sms; s++) landed |= async_land_all(&r->gpu->sm[s]);
    return landed;
}

// Has every warp that may act been waiting at an mbarrier for so long that it is in vain? Waits that
// read a clock never come back to an earlier state, so only time tells.
static bool await_in_vain(const Run *r) {
    if (r->now - r->quiet_since < AWAIT_LIMIT) return false;
    for (int s = 0; s < r->sms; s++)
        if (!spin_all_await(&r->gpu->sm[s], r->now - AWAIT_LIMIT / 2)) return false;
    return true;
}

static void watch(Run *r, bool on) {
    r->watching = on;
    for (int s = 0; s < r->sms; s++) {
        r->gpu->sm[s].watch = on;
        if (on) spin_begin(&r->gpu->sm[s]);
    }
}

// Can nobody get on any more? Called after a round; `idle`: nothing could run in it, and no event
// is to come. Reports it if so.
static bool stuck(Run *r, bool idle) {
    if (idle) {
        if (release_joins(r) || land_copies(r)) return false;
        report_deadlock(&r->state);
        return true;
    }
    uint64_t changes = count_changes(r);
    if (changes != r->changes) {
        r->changes = changes;
        r->quiet_rounds = 0;
        r->quiet_since = r->now;
        r->next_watch = QUIET_ROUNDS;
        if (r->watching) watch(r, false);
        return false;
    }
    r->quiet_rounds++;
    if (await_in_vain(r)) {
        r->quiet_since = r->now;
        if (release_joins(r) || land_copies(r)) return false;
        report_spinning(&r->state);
        return true;
    }
    if (!r->watching) {
        if (r->quiet_rounds < r->next_watch) return false;
        r->clocks = count_clocks(r);
        r->watch_end = r->quiet_rounds + r->quiet_rounds / 8;
        watch(r, true);
        return false;
    }
    bool all = true;
    for (int s = 0; s < r->sms; s++) {
        if (!spin_all_recur(&r->gpu->sm[s])) all = false;
        spin_go_on(&r->gpu->sm[s]);
    }
    if (!all) { // watching is slow: a long computation must not pay for it all the time
        if (r->quiet_rounds >= r->watch_end) {
            r->next_watch = 2 * r->quiet_rounds;
            watch(r, false);
        }
        return false;
    }
    watch(r, false);
    if (count_clocks(r) != r->clocks) {
        r->next_watch = 2 * r->quiet_rounds;
        return false;
    }
    r->quiet_rounds = 0;
    r->next_watch = QUIET_ROUNDS;
    if (release_joins(r) || land_copies(r)) return false;
    report_spinning(&r->state);
    return true;
}

static uint64_t first_event(const Run *r) {
    uint64_t first = UINT64_MAX;
    for (int s = 0; s < r->sms; s++) {
        uint64_t next = sm_next_event(&r->gpu->sm[s]);
        if (next < first) first = next;
    }
    return first;
}

static bool all_done(Run *r) {
    if (sample_next(&r->sample, r->next) < r->state.grid_size) return false;
    for (int s = 0; s < r->sms; s++)
        if (r->gpu->sm[s].resident) return false;
    return true;
}

// All CTAs of a sample have run. If they differ in their work it gets more of them.
static bool widen_sample(Run *r) {
    uint64_t least = UINT64_MAX, most = 0;
    for (int s = 0; s < r->sms; s++) {
        const Sm *sm = &r->gpu->sm[s];
        if (sm->work_least < least) least = sm->work_least;
        if (sm->work_most > most) most = sm->work_most;
    }
    return sample_widen(&r->sample, least, most);
}

static void run_rounds(Run *r) {
    for (;;) {
        start_ctas(r);
        if (all_done(r)) {
            if (!widen_sample(r)) return;
            continue;
        }
        r->end = r->now + (r->sms > 1 ? QUANTUM : QUANTUM_ALONE);
        find_active(r);
        int threads = r->work < WORTH_THREADS ? 1 : r->threads;
        workers_run(threads, r->active_count, run_one, r);
        merge(r);
        uint64_t deferred = run_deferred(r);
        if (deferred) merge(r);
        if (r->failed) return;

        // Time goes on to the round's end if an SM came so far, else to where the latest one
        // stands, or, when all only wait, to the next event.
        uint64_t latest = r->now;
        r->work = 0;
        for (int k = 0; k < r->active_count; k++) {
            uint64_t time = r->active[k]->time;
            r->work += time - r->now;
            if (time > latest) latest = time;
        }
        bool idle = !r->active_count && !deferred;
        if (idle) {
            uint64_t event = first_event(r);
            if (event != UINT64_MAX) {
                r->now = event;
                continue;
            }
        } else {
            r->now = latest < r->end ? latest : r->end;
        }
        if (stuck(r, idle)) {
            r->failed = true;
            return;
        }
    }
}

// ---- before and after

static void prepare_l2(Gpu *gpu) {
    if (gpu->l2 && gpu->l2_share == gpu->sample) return;
    if (gpu->l2) cache_free(gpu->l2);
    uint64_t bytes = gpu->figures.l2_bytes * (uint64_t)gpu->sample / (uint64_t)gpu->figures.sms;
    gpu->l2 = cache_new(bytes, CACHE_WAYS);
    gpu->l2_share = gpu->sample;
}

// L1 is what shared memory leaves of an SM's memory.
static uint64_t l1_size(const Run *r) {
    const GpuFigures *f = &r->gpu->figures;
    uint64_t shared = (uint64_t)r->capacity * (r->launch.kernel->shared_static +
                                               r->launch.dynamic_shared + f->shared_reserved);
    return f->l1_bytes > shared + L1_LEAST ? (f->l1_bytes - shared) / 4096 * 4096 : L1_LEAST;
}

static void prepare_sm(Run *r, Sm *sm) {
    sm->launch = &r->state;
    sm->time = r->now;
    sm->serial = sm->watch = sm->faulted = false;
    sm->changes = sm->finished = 0;
    sm->work_least = UINT64_MAX;
    sm->work_most = 0;
    sm->ready_count = sm->ready_next = sm->deferred_count = 0;
    sm->request_count = 0;
    sm->counters = NULL;
    memset(sm->cached, 0, sizeof sm->cached);
    random_seed(&sm->random, r->state.schedule,
                r->state.id * (uint64_t)r->gpu->figures.sms + (uint64_t)sm->id);
    if (!r->state.timing) return;
    uint64_t bytes = l1_size(r);
    if (sm->l1 && sm->l1_bytes != bytes) {
        cache_free(sm->l1);
        sm->l1 = NULL;
    }
    if (sm->l1) {
        cache_invalidate(sm->l1);
    } else {
        sm->l1 = cache_new(bytes, L1_WAYS);
        sm->l1_bytes = bytes;
    }
}

// Memory of CTAs that ran before can serve again if those of this launch look the same.
static void keep_or_drop_spares(Run *r) {
    const Kernel *kernel = r->launch.kernel;
    struct CtaShape shape = {
        .threads = r->launch.block[0] * r->launch.block[1] * r->launch.block[2],
        .frame = kernel->functions[0].frame_size,
        .local = kernel->recursive ? UINT32_MAX : kernel->local_size,
        .shared = kernel->shared_dynamic + r->launch.dynamic_shared,
        .checks = r->state.checks,
    };
    bool same = !kernel->recursive && !memcmp(&shape, &r->gpu->shape, sizeof shape);
    for (int s = 0; !same && s < r->gpu->figures.sms; s++) ctas_drop(&r->gpu->sm[s]);
    r->gpu->shape = shape;
}

// Memory for grid.sync() of a cooperative launch: {u32 size; u32 barrier}, zero.
static void prepare_grid_barrier(Run *r) {
    Gpu *gpu = r->gpu;
    if (!r->launch.cooperative) return;
    if (!r->launch.cooperative_barrier) {
        if (!gpu->grid_barrier)
            gpu->grid_barrier = global_alloc(gpu->memory, 256, MEMORY_MODULE, "the grid barrier");
        r->launch.cooperative_barrier = gpu->grid_barrier;
    }
    memset(global_pointer(gpu->memory, r->launch.cooperative_barrier), 0, 8);
}

// Refuses what can't run. Returns the error code, 0 if all is well.
static int check_launch(Run *r) {
    const Launch *l = &r->launch;
    const char *name = l->kernel->name;
    const uint32_t *c = l->cluster;
    if ((uint64_t)c[0] * c[1] * c[2] > 1) {
        finding_global(FINDING_LAUNCH, name, "launch it without clusters",
                       "clusters of %u x %u x %u blocks are not built yet", c[0], c[1], c[2]);
        return ERROR_CONFIGURATION;
    }
    char why[200];
    uint32_t threads = l->block[0] * l->block[1] * l->block[2];
    r->capacity =
        gpu_occupancy(&r->gpu->figures, l->kernel, threads, l->dynamic_shared, why, sizeof why);
    if (!r->capacity) {
        finding_global(FINDING_LAUNCH, name, NULL, "%s", why);
        return ERROR_RESOURCES;
    }
    uint64_t room = (uint64_t)r->capacity * (uint64_t)r->gpu->figures.sms;
    if (l->cooperative && r->state.grid_size > room) {
        finding_global(FINDING_LAUNCH, name,
                       "launch at most as many blocks as fit (ask "
                       "cudaOccupancyMaxActiveBlocksPerMultiprocessor)",
                       "a cooperative launch of %llu blocks, but only %llu can run at once",
                       (unsigned long long)r->state.grid_size, (unsigned long long)room);
        return ERROR_COOPERATIVE_TOO_LARGE;
    }
    return 0;
}

static void fill_stats(Run *r, KernelStats *stats) {
    const Launch *l = &r->launch;
    Counters *sum = thread_counters(r, 0);
    for (int t = 1; t < r->threads; t++) add_counters(sum, &r->counters[t], l->kernel->code_count);
    if (r->sample.length != r->sample.grid && r->state.started) {
        double factor = (double)r->state.grid_size / (double)r->state.started;
        sample_scale(factor, l->kernel->code_count, sum, &r->l2, &r->hbm);
    }
    stats->l2_read_bytes = (double)r->l2.read_bytes;
    stats->l2_write_bytes = (double)r->l2.write_bytes;
    stats->ctas_per_sm = (uint32_t)r->capacity;
    stats->sms_simulated = r->gpu->sample;
    roofline(l, r->gpu, sum, &r->hbm, stats);
}

// Empties the SMs after a launch that failed.
static void abandon(Run *r) {
    for (int s = 0; s < r->sms; s++) {
        Sm *sm = &r->gpu->sm[s];
        events_clear(sm);
        ctas_drop(sm);
    }
}

static double seconds_on(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int gpu_launch(Gpu *gpu, const Launch *launch, KernelStats *stats) {
    double begin = seconds_on(CLOCK_MONOTONIC), begin_cpu = seconds_on(CLOCK_PROCESS_CPUTIME_ID);
    findings_configure(gpu->settings);
    findings_begin_launch();
    const Settings *settings = gpu->settings;
    const Kernel *kernel = launch->kernel;

    Run *r = allocate(sizeof *r);
    memset(r, 0, sizeof *r);
    r->gpu = gpu;
    r->launch = *launch;
    r->now = r->quiet_since = gpu->now;
    r->threads = settings->threads > 0 ? settings->threads : 1;
    r->state = (LaunchState){
        .launch = &r->launch,
        .gpu = gpu,
        .params = launch->params,
        .grid_size = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2],
        .id = gpu->launches++,
        .timing = settings->timing,
        .checks = settings->checks,
        .schedule = settings->schedule,
    };
    memset(stats, 0, sizeof *stats);
    stats->kernel = kernel->name;
    memcpy(stats->grid, launch->grid, sizeof stats->grid);
    memcpy(stats->block, launch->block, sizeof stats->block);
    stats->registers = kernel->registers;
    stats->shared_bytes = kernel->shared_static + launch->dynamic_shared;
    stats->sms_total = gpu->figures.sms;

    int error = check_launch(r);
    if (!error) {
        bool samples = settings->sample > 0 && settings->sample < gpu->figures.sms;
        gpu->sample = samples && !launch->cooperative ? settings->sample : gpu->figures.sms;
        r->sms = (uint64_t)gpu->sample < r->state.grid_size ? gpu->sample : (int)r->state.grid_size;
        r->state.many_sms = r->sms > 1;
        r->state.sampled =
            gpu->sample < gpu->figures.sms && r->state.grid_size > (uint64_t)gpu->sample;
        sample_choose(&r->sample, r->state.grid_size, gpu->sample, gpu->figures.sms);
        r->counters = calloc((size_t)r->threads, sizeof *r->counters);
        r->active = calloc((size_t)r->sms, sizeof *r->active);
        r->state.defers = calloc(kernel->code_count, sizeof *r->state.defers);
        if (!r->counters || !r->active || !r->state.defers) abort();
        prepare_grid_barrier(r);
        if (settings->timing) prepare_l2(gpu);
        keep_or_drop_spares(r);
        for (int s = 0; s < r->sms; s++) prepare_sm(r, &gpu->sm[s]);

        run_rounds(r);

        gpu->now = r->now;
        if (r->state.sampled) global_sampled(gpu->memory);
        if (r->failed) {
            error = findings_launch_error();
            if (!error) error = ERROR_LAUNCH_FAILURE;
            abandon(r);
        }
        fill_stats(r, stats);
        for (int t = 0; t < r->threads; t++) free(r->counters[t].executed);
        free(r->counters);
        free(r->active);
        free(r->state.defers);
    }
    stats->host_seconds = seconds_on(CLOCK_MONOTONIC) - begin;
    stats->cpu_seconds = seconds_on(CLOCK_PROCESS_CPUTIME_ID) - begin_cpu;
    stats->finding_count = findings_launch_count();
    gpu->clock_us += stats->time_us;
    findings_end_launch();
    free(r);
    return error;
}
