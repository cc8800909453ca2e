// Which lanes of a warp know what (race.h).
//
// The vectors of a warp's thread say what all of its lanes know. Lanes that have learnt more, as the
// one that waits at an mbarrier for the others, are a class with vectors of its own, until the warp
// meets again (bar.warp.sync, a barrier of all its lanes).
//
// A warp's own entry in its vectors is the clock up to which each lane knows of all that the others
// have done; what a lane itself has done it knows, of course: race_log.c tells lanes apart.
//
// Invariant: classes are disjoint, and each knows what the warp knows.
//
// Products of tcgen05 read shared memory by what their lane knew when it issued them: before a warp
// learns something, those that it has issued are entered (tmem_race_flush).
#include <string.h>

#include "softgpu/check/race_parts.h"
#include "softgpu/check/tmem_race.h"

static struct RaceThread *thread_of(const Race *r, uint16_t t) {
    return &r->thread[t];
}

static uint32_t *seen_by(const Race *r, Knowledge k) {
    return race_vector(r, k, SEEN);
}

Knowledge lane_knowledge(const Race *r, uint16_t t, int lane) {
    const struct RaceThread *thread = thread_of(r, t);
    for (int k = 0; lane >= 0 && k < thread->class_count; k++)
        if (thread->classes[k].mask >> lane & 1) return thread->classes[k].knowledge;
    return t;
}

uint32_t warp_knows(const Race *r, uint16_t t, uint16_t entry) {
    const struct RaceThread *thread = thread_of(r, t);
    uint32_t most = seen_by(r, t)[entry];
    for (int k = 0; k < thread->class_count; k++) {
        uint32_t clock = seen_by(r, thread->classes[k].knowledge)[entry];
        most = clock > most ? clock : most;
    }
    return most;
}

// ---- classes

static void add_class(Race *r, uint16_t t, uint32_t mask, Knowledge knows) {
    struct RaceThread *thread = thread_of(r, t);
    RaceClass *c = &thread->classes[thread->class_count++];
    if (!c->knowledge) c->knowledge = knowledge_new(r);
    c->mask = mask;
    knowledge_copy(r, c->knowledge, knows);
}

// The last class takes its place; the knowledge is kept for a later one.
static void drop_class(struct RaceThread *thread, int k) {
    RaceClass dropped = thread->classes[k];
    thread->classes[k] = thread->classes[--thread->class_count];
    thread->classes[thread->class_count] = dropped;
}

// Makes these lanes the union of classes.
static void split(Race *r, const Warp *w, uint32_t lanes) {
    uint16_t t = race_thread(w);
    struct RaceThread *thread = thread_of(r, t);
    uint32_t rest = lanes & w->live;
    for (int k = 0, count = thread->class_count; k < count; k++) {
        RaceClass *c = &thread->classes[k];
        uint32_t inside = c->mask & lanes, outside = c->mask & ~lanes;
        rest &= ~c->mask;
        if (!inside || !outside) continue;
        c->mask = inside;
        add_class(r, t, outside, c->knowledge);
    }
    if (rest) add_class(r, t, rest, t);
}

// A log has served if all lanes know of what is in it.
static void forget(Race *r, uint16_t t) {
    for (int k = 0; k < 2; k++) {
        LaneLog *log = &r->logs[t + k * r->thread_capacity];
        if (log->first == log->next) continue;
        if (log->ring[(log->next - 1) % log->capacity].clock <= seen_by(r, t)[t]) log_reset(log);
    }
}

// Where every lane is in a class, what all classes know the warp knows; classes that know no more
// than that end.
static void settle(Race *r, const Warp *w) {
    uint16_t t = race_thread(w);
    struct RaceThread *thread = thread_of(r, t);
    uint32_t all = 0;
    for (int k = thread->class_count - 1; k >= 0; k--)
        if (!(thread->classes[k].mask & w->live)) drop_class(thread, k); // they have exited
    for (int k = 0; k < thread->class_count; k++) all |= thread->classes[k].mask;
    if (all && is_whole(w, all)) {
        for (int v = 0; v < race_vectors(r); v++) {
            uint32_t *to = race_vector(r, t, (RaceVector)v);
            for (int e = 0; e < r->used; e++) {
                uint32_t least = ~0u;
                for (int k = 0; k < thread->class_count; k++) {
                    uint32_t clock = race_vector(r, thread->classes[k].knowledge, (RaceVector)v)[e];
                    least = clock < least ? clock : least;
                }
                to[e] = least > to[e] ? least : to[e];
            }
        }
    }
    for (int k = thread->class_count - 1; k >= 0; k--)
        if (knowledge_within(r, thread->classes[k].knowledge, t)) drop_class(thread, k);
    forget(r, t);
}

void lanes_acquire(Race *r, Warp *w, uint32_t lanes, Knowledge from) {
    uint16_t t = race_thread(w);
    struct RaceThread *thread = thread_of(r, t);
    bool whole = is_whole(w, lanes);
    tmem_race_flush(w);
    if (whole)
        knowledge_join(r, t, from);
    else
        split(r, w, lanes);
    for (int k = 0; k < thread->class_count; k++)
        if (whole || thread->classes[k].mask & lanes)
            knowledge_join(r, thread->classes[k].knowledge, from);
    if (thread->class_count)
        settle(r, w);
    else
        forget(r, t);
}

void lanes_learn_in(Race *r, Warp *w, uint32_t lanes, RaceVector v, uint16_t entry,
                    uint32_t clock) {
    uint16_t t = race_thread(w);
    struct RaceThread *thread = thread_of(r, t);
    bool whole = is_whole(w, lanes);
    tmem_race_flush(w);
    if (!whole) split(r, w, lanes);
    uint32_t *has = race_vector(r, t, v);
    if (whole && has[entry] < clock) has[entry] = clock;
    for (int k = 0; k < thread->class_count; k++) {
        has = race_vector(r, thread->classes[k].knowledge, v);
        if ((whole || thread->classes[k].mask & lanes) && has[entry] < clock) has[entry] = clock;
    }
    if (!whole) settle(r, w);
}

void lanes_learn(Race *r, Warp *w, uint32_t lanes, uint16_t entry, uint32_t clock) {
    lanes_learn_in(r, w, lanes, SEEN, entry, clock);
}

// Answers whether that changes anything; does it if `now`.
static bool raise_vector(Race *r, Knowledge k, RaceVector to, RaceVector from, bool now) {
    const uint32_t *f = race_vector(r, k, from);
    uint32_t *t = race_vector(r, k, to), more = 0;
    for (int e = 0; e < r->used; e++) more |= f[e] > t[e];
    for (int e = 0; now && more && e < r->used; e++) t[e] = f[e] > t[e] ? f[e] : t[e];
    return more;
}

void lanes_raise(Race *r, Warp *w, uint32_t lanes, RaceVector to, RaceVector from) {
    uint16_t t = race_thread(w);
    struct RaceThread *thread = thread_of(r, t);
    if (is_whole(w, lanes)) {
        raise_vector(r, t, to, from, true);
        for (int k = 0; k < thread->class_count; k++)
            raise_vector(r, thread->classes[k].knowledge, to, from, true);
        return;
    }
    bool more = false;
    uint32_t rest = lanes & w->live;
    for (int k = 0; k < thread->class_count; k++) {
        const RaceClass *c = &thread->classes[k];
        if (c->mask & lanes) more |= raise_vector(r, c->knowledge, to, from, false);
        rest &= ~c->mask;
    }
    if (rest) more |= raise_vector(r, t, to, from, false);
    if (!more) return;
    split(r, w, lanes);
    for (int k = 0; k < thread->class_count; k++)
        if (thread->classes[k].mask & lanes)
            raise_vector(r, thread->classes[k].knowledge, to, from, true);
    settle(r, w);
}

// ---- what lanes release

void lanes_publish(Race *r, Warp *w, uint32_t lanes, Knowledge to) {
    uint16_t t = race_thread(w);
    const struct RaceThread *thread = thread_of(r, t);
    bool any = false;
    for (int k = 0; k < thread->class_count; k++) {
        if (!(thread->classes[k].mask & lanes)) continue;
        knowledge_join(r, to, thread->classes[k].knowledge);
        any = true;
    }
    if (!any) knowledge_join(r, to, t);
    seen_by(r, to)[t] = thread->clock;
}

void lanes_released(Race *r, Warp *w, uint32_t lanes) {
    thread_of(r, race_thread(w))->clock++;
    log_settle(r, w, lanes, false);
}

void lanes_release(Race *r, Warp *w, uint32_t lanes, Knowledge to) {
    lanes_publish(r, w, lanes, to);
    lanes_released(r, w, lanes);
}

static void fence_knowledge(Race *r, Knowledge k, uint16_t t, uint32_t clock, bool shared) {
    const uint32_t *seen = seen_by(r, k);
    memcpy(race_vector(r, k, PASSED), seen, (size_t)r->used * sizeof *seen);
    race_vector(r, k, PASSED)[t] = clock;
    if (shared) race_vector(r, k, PUBLISHED)[t] = clock;
}

// Whose fence it is, of a warp's lanes, is told for what they have done, not for what they know.
void lanes_fenced(Race *r, Warp *w, uint32_t lanes, bool shared) {
    uint16_t t = race_thread(w);
    struct RaceThread *thread = thread_of(r, t);
    tmem_race_flush(w);
    r->fenced = r->proxies = true;
    fence_knowledge(r, t, t, thread->clock, shared);
    for (int k = 0; k < thread->class_count; k++)
        fence_knowledge(r, thread->classes[k].knowledge, t, thread->clock, shared);
    thread->clock++;
    log_settle(r, w, lanes, true);
}

// ---- bar.warp.sync

// Lanes of one warp tell each other all, fences of tcgen05 included.
static void join_lanes(Race *r, Knowledge to, Knowledge from) {
    knowledge_join(r, to, from);
    if (!r->tensor) return;
    const uint32_t *known = race_vector(r, from, KNOWN);
    uint32_t *k = race_vector(r, to, KNOWN);
    for (int e = 0; e < r->used; e++) k[e] = known[e] > k[e] ? known[e] : k[e];
}

// The whole warp has met.
static void met(Race *r, uint16_t t) {
    struct RaceThread *thread = thread_of(r, t);
    LaneLog *log = &r->logs[t], *global = log + r->thread_capacity;
    for (int k = 0; k < thread->class_count; k++) join_lanes(r, t, thread->classes[k].knowledge);
    thread->class_count = 0;
    if (log->first == log->next && global->first == global->next) return;
    seen_by(r, t)[t] = thread->clock++;
    log_reset(log);
    log_reset(global);
}

// Each of the lanes learns what any of them knows.
static void share(Race *r, Warp *w, uint32_t lanes) {
    uint16_t t = race_thread(w);
    struct RaceThread *thread = thread_of(r, t);
    uint32_t known = 0;
    for (int k = 0; k < thread->class_count; k++) known |= thread->classes[k].mask & lanes;
    if (!known) return;
    tmem_race_flush(w);
    split(r, w, lanes);
    int first = -1;
    for (int k = 0; k < thread->class_count; k++) {
        RaceClass *c = &thread->classes[k];
        if (!(c->mask & lanes)) continue;
        if (first < 0) {
            first = k;
            continue;
        }
        join_lanes(r, thread->classes[first].knowledge, c->knowledge);
        thread->classes[first].mask |= c->mask;
        drop_class(thread, k--);
    }
    settle(r, w);
}

void race_warp_sync(Warp *w, uint32_t lanes) {
    if (!race_on(w)) return;
    Race *r = race_of(w);
    uint16_t t = race_thread(w);
    if (is_whole(w, lanes)) {
        tmem_race_flush(w);
        met(r, t);
        return;
    }
    log_met(&r->logs[t], lanes);
    log_met(&r->logs[r->thread_capacity + t], lanes);
    share(r, w, lanes);
}

void race_warp_exchange(Warp *w, uint32_t lanes) {
    if (!race_on(w) || w->sm->gpu->settings->strict) return;
    share(race_of(w), w, lanes);
}
