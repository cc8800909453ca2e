// A launch, from its first CTA to its last: rounds.
//
// A round: start CTAs where there is room; let every SM run on its own for a quantum, SMs spread
// over host threads (the parallel phase); then, on one thread, apply the SMs' L2 requests and
// findings in SM order, and run the instructions that were deferred, in (time, SM, warp) order (the
// serial phase). Which thread runs an SM changes nothing that the SM can see.
//
// What the threads take is groups of SMs: those of a cluster run in turns of a few instructions, as
// its CTAs reach each other's shared memory. Without clusters each SM is a group.
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
#include "softgpu/machine/bulk.h"
#include "softgpu/machine/event.h"
#include "softgpu/machine/global.h"
#include "softgpu/machine/grid.h"
#include "softgpu/machine/parts.h"
#include "softgpu/machine/sample.h"
#include "softgpu/timing/roofline.h"
#include "softgpu/timing/traffic.h"

enum {
    QUANTUM = 1 << 14,       // instructions of an SM in a round
    QUANTUM_ALONE = 1 << 16, // … when no other SM has work
    CLUSTER_SLICE = 256,     // … in a turn among the SMs of a cluster
    WORTH_THREADS = 4000,    // instructions of a round below which one host thread does it all
    QUIET_ROUNDS = 64,       // rounds without change after which warps are watched
    CACHE_WAYS = 16,
    L1_WAYS = 16,
    AWAIT_LIMIT = 1 << 30, // SM time, most of a second
    L1_LEAST = 16 << 10,   // bytes of L1 that shared memory always leaves
    ERROR_LAUNCH_FAILURE = 719,
};

Handler read_special; // execute/move.c

typedef struct {
    LaunchState state;
    Launch launch;
    Gpu *gpu;
    Grid grid;
    uint64_t now, end; // of the round
    int threads;
    Counters *counters; // per host thread; arrays NULL until used
    CacheTraffic l2, hbm;
    SmGroup **active; // groups with something to do in this round
    int active_count;
    uint64_t work;                                         // instructions of the last round
    uint64_t changes, quiet_rounds, next_watch, watch_end; // for stuck()
    uint64_t stores, quiet_since;
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

// ---- a round

// Can an SM do something before `until`?
static bool can_run(const Sm *sm, uint64_t until) {
    return sm->ready_count || sm_next_event(sm) < until;
}

// Runs the SMs of a cluster in turns. From schedule 1 on the turns' lengths and who is first are
// drawn from the first SM's random numbers.
static void run_in_turns(Run *r, const SmGroup *group) {
    Sm *sms = &r->gpu->sm[group->first];
    for (uint64_t now = r->now; now < r->end;) {
        int first = 0;
        uint64_t end = now + CLUSTER_SLICE, next = UINT64_MAX;
        if (r->state.schedule) {
            first = (int)random_below(&sms->random, (uint32_t)group->count);
            end = now + 1 + random_below(&sms->random, 2 * CLUSTER_SLICE);
        }
        if (end > r->end) end = r->end;
        bool ran = false;
        for (int k = 0; k < group->count; k++) {
            Sm *sm = &sms[(first + k) % group->count];
            if (sm->time < now) sm->time = now;
            if (can_run(sm, end)) {
                sm_run(sm, end);
                if (sm->faulted) return;
                ran = true;
            }
            if (sm_next_event(sm) < next) next = sm_next_event(sm);
        }
        now = ran || next < end ? end : next;
    }
}

static void run_one(void *context, int index, int thread) {
    Run *r = context;
    const SmGroup *group = r->active[index];
    Sm *sm = &r->gpu->sm[group->first];
    for (int k = 0; k < group->count; k++) sm[k].counters = thread_counters(r, thread);
    if (group->count == 1)
        sm_run(sm, r->end);
    else
        run_in_turns(r, group);
}

// Finds the groups of SMs that can do something before the round ends.
static void find_active(Run *r) {
    r->active_count = 0;
    for (int g = 0; g < r->grid.group_count; g++) {
        SmGroup *group = &r->grid.groups[g];
        bool active = false;
        for (int k = 0; k < group->count; k++) {
            Sm *sm = &r->gpu->sm[group->first + k];
            if (sm->time < r->now) sm->time = r->now;
            active |= can_run(sm, r->end);
        }
        if (active) r->active[r->active_count++] = group;
    }
}

// Applies what the SMs left behind, in SM order.
static void merge(Run *r) {
    for (int s = 0; s < r->grid.sms; s++) {
        Sm *sm = &r->gpu->sm[s];
        findings_merge(sm);
        if (sm->faulted) r->failed = true;
        for (size_t k = 0; k < sm->request_count; k++) {
            const L2Request *q = &sm->requests[k];
            uint64_t bytes = 32 * (uint64_t)__builtin_popcount(q->sectors);
            bool prefetch = q->write == 4; // goes no further than L2
            if (q->write != 1 && q->write != 2 && !prefetch) r->l2.read_bytes += bytes;
            if (q->write && !prefetch) r->l2.write_bytes += bytes;
            if (q->write == 2)
                cache_l2_write_part(r->gpu->l2, q->line, __builtin_ctz(q->sectors), q->bytes,
                                    &r->hbm);
            else
                cache_l2_access(r->gpu->l2, q->line, q->sectors, prefetch ? 0 : q->write, &r->hbm);
        }
        sm->request_count = 0;
    }
}

// The serial phase: merges the SMs' lists of deferred instructions by (time, SM).
static uint64_t run_deferred(Run *r) {
    Sm *heap[1024];
    int at[1024], count = 0;
    uint64_t ran = 0;
    for (int s = 0; s < r->grid.sms; s++) {
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
    for (int s = 0; s < r->grid.sms; s++) r->gpu->sm[s].deferred_count = 0;
    return ran;
}

// ---- when nothing changes

static uint64_t count_changes(const Run *r) {
    uint64_t sum = r->state.started;
    for (int s = 0; s < r->grid.sms; s++) sum += r->gpu->sm[s].changes;
    return sum;
}

static uint64_t count_stores(const Run *r) {
    uint64_t sum = 0;
    for (int s = 0; s < r->grid.sms; s++) sum += r->gpu->sm[s].stores;
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
    for (int s = 0; s < r->grid.sms; s++)
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
    for (int s = 0; s < r->grid.sms; s++) landed |= async_land_all(&r->gpu->sm[s]);
    return landed;
}

// Has every warp that may act been waiting at an mbarrier for so long that it is in vain? Waits
// that read a clock never come back to an earlier state, so only time tells.
static bool await_in_vain(const Run *r) {
    if (r->now - r->quiet_since < AWAIT_LIMIT) return false;
    for (int s = 0; s < r->grid.sms; s++)
        if (!spin_all_await(&r->gpu->sm[s], r->now - AWAIT_LIMIT / 2)) return false;
    return true;
}

static void watch(Run *r, bool on) {
    r->watching = on;
    for (int s = 0; s < r->grid.sms; s++) {
        r->gpu->sm[s].watch = on;
        if (on) spin_begin(&r->gpu->sm[s]);
    }
}

// Can nobody get on any more? Called after a round; `idle`: nothing could run in it, and no event
// is to come. Reports it if so. A kernel that does nothing but store for long is watched for a round
// now and then: only there stores of what was there already are told from those that change memory.
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
    uint64_t stores = count_stores(r);
    if (stores != r->stores) r->quiet_since = r->now;
    r->stores = stores;
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
    for (int s = 0; s < r->grid.sms; s++) {
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
    for (int s = 0; s < r->grid.sms; s++) {
        uint64_t next = sm_next_event(&r->gpu->sm[s]);
        if (next < first) first = next;
    }
    return first;
}

static bool all_done(Run *r) {
    if (grid_goes_on(&r->grid)) return false;
    for (int s = 0; s < r->grid.sms; s++)
        if (r->gpu->sm[s].resident) return false;
    return true;
}

// All CTAs of a sample have run. If they differ in their work it gets more of them.
static bool widen_sample(Run *r) {
    uint64_t least = UINT64_MAX, most = 0;
    for (int s = 0; s < r->grid.sms; s++) {
        const Sm *sm = &r->gpu->sm[s];
        if (sm->work_least < least) least = sm->work_least;
        if (sm->work_most > most) most = sm->work_most;
    }
    return sample_widen(&r->grid.sample, least, most);
}

static void run_rounds(Run *r) {
    for (;;) {
        grid_start_ctas(&r->grid);
        if (all_done(r)) {
            if (!widen_sample(r)) return;
            continue;
        }
        r->end = r->now + (r->grid.sms > 1 ? QUANTUM : QUANTUM_ALONE);
        find_active(r);
        int threads = r->work < WORTH_THREADS ? 1 : r->threads;
        workers_run(threads, r->active_count, run_one, r);
        merge(r);
        for (int s = 0; s < r->grid.sms; s++) bulk_apply(&r->gpu->sm[s]);
        uint64_t deferred = run_deferred(r);
        if (deferred) merge(r);
        if (r->failed) return;

        // Time goes on to the round's end if an SM came so far, else to where the latest one
        // stands, or, when all only wait, to the next event.
        uint64_t latest = r->now;
        r->work = 0;
        for (int k = 0; k < r->active_count; k++) {
            const SmGroup *group = r->active[k];
            for (int n = 0; n < group->count; n++) {
                uint64_t time = r->gpu->sm[group->first + n].time;
                r->work += time - r->now;
                if (time > latest) latest = time;
            }
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
    uint64_t shared = (uint64_t)r->grid.capacity * (r->launch.kernel->shared_static +
                                                    r->launch.dynamic_shared + f->shared_reserved);
    return f->l1_bytes > shared + L1_LEAST ? (f->l1_bytes - shared) / 4096 * 4096 : L1_LEAST;
}

static void prepare_sm(Run *r, Sm *sm) {
    sm->launch = &r->state;
    sm->time = r->now;
    sm->serial = sm->watch = sm->faulted = false;
    sm->changes = sm->stores = sm->finished = 0;
    sm->work_least = UINT64_MAX;
    sm->work_most = 0;
    sm->ready_count = sm->ready_next = sm->deferred_count = 0;
    sm->request_count = 0;
    sm->counters = NULL;
    events_clear(sm);
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

static void fill_stats(Run *r, KernelStats *stats) {
    const Launch *l = &r->launch;
    Counters *sum = thread_counters(r, 0);
    for (int t = 1; t < r->threads; t++) add_counters(sum, &r->counters[t], l->kernel->code_count);
    if (r->grid.sample.length != r->grid.sample.grid && r->state.started) {
        double factor = (double)r->state.grid_size / (double)r->state.started;
        sample_scale(factor, l->kernel->code_count, sum, &r->l2, &r->hbm);
    }
    stats->l2_read_bytes = (double)r->l2.read_bytes;
    stats->l2_write_bytes = (double)r->l2.write_bytes;
    stats->ctas_per_sm = (uint32_t)r->grid.capacity;
    stats->sms_simulated = r->gpu->sample;
    roofline(l, r->gpu, sum, &r->hbm, stats);
}

// Empties the SMs after a launch that failed. CTAs of a cluster refer to each other, so all come to
// their end before any is freed.
static void abandon(Run *r) {
    for (int s = 0; s < r->grid.sms; s++) {
        Sm *sm = &r->gpu->sm[s];
        events_clear(sm);
        bulk_forget(sm);
        for (Cta *cta = sm->ctas; cta; cta = cta->next) cta_end(cta);
    }
    for (int s = 0; s < r->grid.sms; s++) ctas_drop(&r->gpu->sm[s]);
}

static double seconds_on(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// A run of the launch, and what its statistics say of it beforehand.
static Run *run_new(Gpu *gpu, const Launch *launch, KernelStats *stats) {
    const Settings *settings = gpu->settings;
    const Kernel *kernel = launch->kernel;
    Run *r = allocate(sizeof *r);
    memset(r, 0, sizeof *r);
    r->gpu = gpu;
    r->launch = *launch;
    for (int d = 0; d < 3; d++)
        if (!r->launch.cluster[d]) r->launch.cluster[d] = 1;
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
        .registers = registers_at_entry(kernel),
    };
    r->grid = (Grid){.gpu = gpu, .launch = &r->launch, .state = &r->state};
    memset(stats, 0, sizeof *stats);
    stats->kernel = kernel->name;
    memcpy(stats->grid, launch->grid, sizeof stats->grid);
    memcpy(stats->block, launch->block, sizeof stats->block);
    stats->registers = kernel->registers;
    stats->shared_bytes = kernel->shared_static + launch->dynamic_shared;
    stats->sms_total = gpu->figures.sms;
    return r;
}

// Runs all of the grid, which has been checked. Returns the error code, 0 if all is well.
static int run_grid(Run *r, KernelStats *stats) {
    Gpu *gpu = r->gpu;
    int error = 0;
    grid_begin(&r->grid);
    r->counters = calloc((size_t)r->threads, sizeof *r->counters);
    r->active = calloc((size_t)r->grid.group_count, sizeof *r->active);
    r->state.defers = calloc(r->launch.kernel->code_count, sizeof *r->state.defers);
    if (!r->counters || !r->active || !r->state.defers) abort();
    prepare_grid_barrier(r);
    if (r->state.timing) prepare_l2(gpu);
    keep_or_drop_spares(r);
    for (int s = 0; s < r->grid.sms; s++) prepare_sm(r, &gpu->sm[s]);

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
    grid_end(&r->grid);
    free(r->state.defers);
    return error;
}

int gpu_launch(Gpu *gpu, const Launch *launch, KernelStats *stats) {
    double begin = seconds_on(CLOCK_MONOTONIC), begin_cpu = seconds_on(CLOCK_PROCESS_CPUTIME_ID);
    findings_configure(gpu->settings);
    findings_begin_launch();
    Run *r = run_new(gpu, launch, stats);
    int error = grid_check(&r->grid);
    if (!error) error = run_grid(r, stats);
    stats->host_seconds = seconds_on(CLOCK_MONOTONIC) - begin;
    stats->cpu_seconds = seconds_on(CLOCK_PROCESS_CPUTIME_ID) - begin_cpu;
    stats->finding_count = findings_launch_count();
    gpu->clock_us += stats->time_us;
    findings_end_launch();
    free(r);
    return error;
}
