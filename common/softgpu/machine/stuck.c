// Deadlocks and endless loops (stuck.h).
#include "softgpu/machine/stuck.h"

#include "softgpu/check/check.h"
#include "softgpu/check/deadlock.h"
#include "softgpu/execute/special.h"
#include "softgpu/machine/async.h"
#include "softgpu/machine/parts.h"
#include "softgpu/timing/traffic.h"

enum { AWAIT_LIMIT = 1 << 30 }; // SM time, most of a second

Handler read_special; // execute/move.c

static uint64_t count_changes(const Stuck *u) {
    uint64_t sum = u->state->started;
    for (int s = 0; s < u->sms; s++) sum += u->state->gpu->sm[s].changes;
    return sum;
}

static uint64_t count_stores(const Stuck *u) {
    uint64_t sum = 0;
    for (int s = 0; s < u->sms; s++) sum += u->state->gpu->sm[s].stores;
    return sum;
}

// How often a clock has been read so far: who reads clocks sees another time in each loop.
static uint64_t count_clocks(const Stuck *u) {
    const Kernel *kernel = u->state->launch->kernel;
    uint64_t sum = 0;
    for (uint32_t k = 0; k < kernel->code_count; k++) {
        const Insn *i = &kernel->code[k];
        if (i->run != read_special) continue;
        if (i->imm < SPECIAL_CLOCK || i->imm > SPECIAL_GLOBALTIMER_HI) continue;
        if (i->imm >= SPECIAL_ENVREG0 && i->imm <= SPECIAL_ENVREG31) continue;
        for (int t = 0; t < u->threads; t++)
            if (u->counters[t].executed) sum += u->counters[t].executed[k];
    }
    return sum;
}

// Lets lanes that wait for others of their warp go on, everywhere. False if there are none.
static bool release_joins(Stuck *u) {
    bool released = false;
    for (int s = 0; s < u->sms; s++)
        for (Cta *cta = u->state->gpu->sm[s].ctas; cta; cta = cta->next)
            for (int k = 0; k < cta->warp_count; k++)
                if (cta->warps[k].live && joins_release(&cta->warps[k])) {
                    sm_ready(&cta->warps[k]);
                    released = true;
                }
    return released;
}

// Lands the asynchronous copies that only a wait would have landed, everywhere. False if there are
// none.
static bool land_copies(Stuck *u) {
    bool landed = false;
    for (int s = 0; s < u->sms; s++) landed |= async_land_all(&u->state->gpu->sm[s]);
    return landed;
}

// Has every warp that may act been waiting at an mbarrier for so long that it is in vain? Waits
// that read a clock never come back to an earlier state, so only time tells.
static bool await_in_vain(const Stuck *u, uint64_t now) {
    if (now - u->quiet_since < AWAIT_LIMIT) return false;
    for (int s = 0; s < u->sms; s++)
        if (!spin_all_await(&u->state->gpu->sm[s], now - AWAIT_LIMIT / 2)) return false;
    return true;
}

static void watch(Stuck *u, bool on) {
    u->watching = on;
    for (int s = 0; s < u->sms; s++) {
        u->state->gpu->sm[s].watch = on;
        if (on) spin_begin(&u->state->gpu->sm[s]);
    }
}

// Can nobody get on any more? Called after a round; `idle`: nothing could run in it, and no event
// is to come. Reports it if so. A kernel that does nothing but store for long is watched for a round
// now and then: only there stores of what was there already are told from those that change memory.
bool stuck(Stuck *u, uint64_t now, bool idle) {
    if (idle) {
        if (release_joins(u) || land_copies(u)) return false;
        report_deadlock(u->state);
        return true;
    }
    uint64_t changes = count_changes(u);
    if (changes != u->changes) {
        u->changes = changes;
        u->quiet_rounds = 0;
        u->quiet_since = now;
        u->next_watch = u->patience;
        if (u->watching) watch(u, false);
        return false;
    }
    u->quiet_rounds++;
    uint64_t stores = count_stores(u);
    if (stores != u->stores) u->quiet_since = now;
    u->stores = stores;
    if (await_in_vain(u, now)) {
        u->quiet_since = now;
        if (release_joins(u) || land_copies(u)) return false;
        report_spinning(u->state);
        return true;
    }
    if (!u->watching) {
        if (u->quiet_rounds < u->next_watch) return false;
        u->clocks = count_clocks(u);
        u->watch_end = u->quiet_rounds + u->quiet_rounds / 8;
        watch(u, true);
        return false;
    }
    bool all = true;
    for (int s = 0; s < u->sms; s++) {
        if (!spin_all_recur(&u->state->gpu->sm[s])) all = false;
        spin_go_on(&u->state->gpu->sm[s]);
    }
    if (!all) { // watching is slow: a long computation must not pay for it all the time
        if (u->quiet_rounds >= u->watch_end) {
            u->next_watch = 2 * u->quiet_rounds;
            watch(u, false);
        }
        return false;
    }
    watch(u, false);
    if (count_clocks(u) != u->clocks) {
        u->next_watch = 2 * u->quiet_rounds;
        return false;
    }
    u->quiet_rounds = 0;
    u->next_watch = u->patience;
    if (release_joins(u) || land_copies(u)) return false;
    report_spinning(u->state);
    return true;
}
