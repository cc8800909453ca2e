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
// When a round changes nothing, there may never be change again: see stuck.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "softgpu/check/check.h"
#include "softgpu/check/findings.h"
#include "softgpu/check/race_global.h"
#include "softgpu/machine/async.h"
#include "softgpu/machine/bulk.h"
#include "softgpu/machine/event.h"
#include "softgpu/machine/global.h"
#include "softgpu/machine/grid.h"
#include "softgpu/machine/parts.h"
#include "softgpu/machine/sample.h"
#include "softgpu/machine/stuck.h"
#include "softgpu/timing/memory_time.h"
#include "softgpu/timing/pace.h"
#include "softgpu/timing/roofline.h"
#include "softgpu/timing/trace.h"
#include "softgpu/timing/traffic.h"

enum {
    QUANTUM = 1 << 14,        // instructions of an SM in a round
    QUANTUM_ALONE = 1 << 16,  // … when no other SM has work
    CLUSTER_SLICE = 256,      // … in a turn among the SMs of a cluster
    CLUSTER_CYCLES = 32,      // … in a timed launch
    WORTH_THREADS = 4000,     // instructions of a round below which one host thread does it all
    QUIET_ROUNDS = 64,        // rounds without change after which warps are watched
    QUIET_TIMED_ROUNDS = 640, // the same for a timed launch, whose rounds are so much shorter
    CACHE_WAYS = 16,
    L1_WAYS = 16,
    L1_LEAST = 16 << 10, // bytes of L1 that shared memory always leaves
    ERROR_LAUNCH_FAILURE = 719,
};

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
    uint64_t work; // instructions of the last round
    Stuck stuck;
    bool failed;
    uint64_t began, cycles;
    MemoryTime memory; // of a timed launch
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
    sum->tensor_flops += c->tensor_flops;
    sum->tensor_cycles += c->tensor_cycles;
    sum->l1_hits += c->l1_hits;
    sum->l1_misses += c->l1_misses;
}

// ---- a round

// Can an SM do something before `until`?
static bool can_run(const Sm *sm, uint64_t until) {
    if (sm->launch->pace) return sm_next_time(sm) < until;
    return sm->ready_count || sm_next_event(sm) < until;
}

// Runs the SMs of a cluster in turns. From schedule 1 on the turns' lengths and who is first are
// drawn from the first SM's random numbers.
static void run_in_turns(Run *r, const SmGroup *group) {
    Sm *sms = &r->gpu->sm[group->first];
    for (uint64_t now = r->now; now < r->end;) {
        int first = 0;
        uint64_t end = now + (r->state.pace ? CLUSTER_CYCLES : CLUSTER_SLICE), next = UINT64_MAX;
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
            uint64_t then = r->state.pace ? sm_next_time(sm) : sm_next_event(sm);
            if (then < next) next = then;
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
    if (r->state.pace) memory_time_serve(&r->memory, r->gpu, r->grid.sms, r->end, &r->l2, &r->hbm);
    for (int s = 0; s < r->grid.sms; s++) {
        Sm *sm = &r->gpu->sm[s];
        global_races_merge(sm);
    }
    for (int s = 0; s < r->grid.sms; s++) {
        Sm *sm = &r->gpu->sm[s];
        findings_merge(sm);
        if (sm->faulted) r->failed = true;
        if (r->state.pace) continue;
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

// ---- rounds

static uint64_t first_event(const Run *r) {
    uint64_t first = UINT64_MAX;
    for (int s = 0; s < r->grid.sms; s++) {
        uint64_t next = sm_next_event(&r->gpu->sm[s]);
        if (next < first) first = next;
    }
    return first;
}

// When something happens next in a timed launch; UINT64_MAX: never.
static uint64_t next_time(const Run *r) {
    uint64_t next = memory_time_next(r->gpu, r->grid.sms);
    for (int s = 0; s < r->grid.sms; s++) {
        uint64_t time = sm_next_time(&r->gpu->sm[s]);
        if (time < next) next = time;
    }
    return next;
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
        r->end = r->now + (r->state.pace     ? PACE_QUANTUM
                           : r->grid.sms > 1 ? QUANTUM
                                             : QUANTUM_ALONE);
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
                r->work += time > r->now ? time - r->now : 0;
                if (time > latest) latest = time;
            }
        }
        bool idle = !r->active_count && !deferred;
        if (r->state.pace) {
            grid_start_ctas(&r->grid); // where blocks have ended: time must not pass them by
            uint64_t next = next_time(r);
            if (idle && next == UINT64_MAX) {
                if (stuck(&r->stuck, r->now, true)) {
                    r->failed = true;
                    return;
                }
                continue;
            }
            r->now = next > r->end && next != UINT64_MAX ? next : r->end;
            if (idle) continue;
        } else if (idle) {
            uint64_t event = first_event(r);
            if (event != UINT64_MAX) {
                r->now = event;
                continue;
            }
        } else {
            r->now = latest < r->end ? latest : r->end;
        }
        if (stuck(&r->stuck, r->now, idle)) {
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
    pace_sm_start(sm);
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
    if (r->state.pace && !r->failed)
        pace_stats(&r->state, r->grid.sms, &r->memory, r->cycles, stats);
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
    r->now = r->began = gpu->now;
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
    r->state.grid = &r->grid;
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
    if (r->state.timing && gpu->settings->async == ASYNC_TIMED && !r->state.schedule)
        r->state.pace = kernel_pace(r->launch.kernel, &gpu->figures);
    if (r->state.pace) memory_time_begin(&r->memory, gpu, r->now);
    keep_or_drop_spares(r);
    global_races_begin(&r->state);
    for (int s = 0; s < r->grid.sms; s++) prepare_sm(r, &gpu->sm[s]);
    trace_launch_begin(gpu, &r->launch, r->grid.sms, r->now);

    uint64_t patience = r->state.pace ? QUIET_TIMED_ROUNDS : QUIET_ROUNDS;
    r->stuck = (Stuck){.state = &r->state,
                       .sms = r->grid.sms,
                       .counters = r->counters,
                       .threads = r->threads,
                       .patience = patience,
                       .quiet_since = r->now};
    run_rounds(r);

    // What the last blocks have left under way, stores mostly, is served too.
    if (r->state.pace && !r->failed)
        memory_time_serve(&r->memory, gpu, r->grid.sms, UINT64_MAX, &r->l2, &r->hbm);
    gpu->now = r->now;
    if (r->state.pace) r->cycles = pace_cycles(gpu, r->grid.sms, r->began);
    if (r->state.pace) memory_time_end(&r->memory);
    if (r->state.sampled) global_sampled(gpu->memory);
    if (r->failed) {
        error = findings_launch_error();
        if (!error) error = ERROR_LAUNCH_FAILURE;
        abandon(r);
    }
    global_races_end(&r->state);
    fill_stats(r, stats);
    trace_launch_end(gpu, &r->launch, stats->time_us);
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
