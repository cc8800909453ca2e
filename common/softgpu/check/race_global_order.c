// Order between clusters: what words of global memory pass on (race_global.h).
//
// A tree has, for the number of a cluster, the vector of that cluster that is known: digit by digit
// of the number, TREE_BITS each. At the lowest level the children are vectors.
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/race_global_parts.h"

static void *resized(void *old, size_t size) {
    void *p = realloc(old, size);
    if (!p) abort();
    return p;
}

// ---- vectors: how many entries, whether PASSED follows, SEEN, PASSED

static Vector vector_begin(struct GlobalRaces *g, uint32_t used, bool passed) {
    size_t size = 2 + used * (size_t)(1 + passed);
    if (g->word_count + size > g->word_capacity) {
        g->word_capacity = 2 * (g->word_capacity + size);
        g->words = resized(g->words, g->word_capacity * sizeof *g->words);
    }
    Vector v = (Vector)g->word_count;
    g->words[v] = used;
    g->words[v + 1] = passed;
    g->word_count += size;
    return v;
}

// Entry `entry` of the vector; of PASSED, if `through`.
static inline uint32_t entry_in(const struct GlobalRaces *g, Vector v, uint32_t entry,
                                bool through) {
    const uint32_t *words = &g->words[v];
    if (entry >= words[0] || (through && !words[1])) return 0;
    return words[2 + entry + (through ? words[0] : 0)];
}

static Vector vector_of(struct GlobalRaces *g, const Race *r, Knowledge k) {
    uint32_t used = (uint32_t)r->used;
    Vector v = vector_begin(g, used, r->fenced);
    memcpy(&g->words[v + 2], race_vector(r, k, SEEN), used * sizeof *g->words);
    if (r->fenced)
        memcpy(&g->words[v + 2 + used], race_vector(r, k, PASSED), used * sizeof *g->words);
    return v;
}

static bool vector_within(const struct GlobalRaces *g, Vector v, Vector of) {
    uint32_t used = g->words[v];
    for (uint32_t e = 0; e < used; e++)
        if (entry_in(g, v, e, false) > entry_in(g, of, e, false) ||
            entry_in(g, v, e, true) > entry_in(g, of, e, true))
            return false;
    return true;
}

static Vector join_vectors(struct GlobalRaces *g, Vector a, Vector b) {
    if (a == b || vector_within(g, b, a)) return a;
    if (vector_within(g, a, b)) return b;
    uint32_t used = g->words[a] > g->words[b] ? g->words[a] : g->words[b];
    bool passed = g->words[a + 1] || g->words[b + 1];
    Vector v = vector_begin(g, used, passed);
    for (int through = 0; through <= passed; through++)
        for (uint32_t e = 0; e < used; e++) {
            uint32_t x = entry_in(g, a, e, through), y = entry_in(g, b, e, through);
            g->words[v + 2 + e + (through ? used : 0)] = x > y ? x : y;
        }
    return v;
}

// ---- trees

static Tree tree_new(struct GlobalRaces *g, const uint32_t children[TREE_CHILDREN]) {
    if (g->tree_count == g->tree_capacity) {
        g->tree_capacity = g->tree_capacity ? 2 * g->tree_capacity : 64;
        g->trees = resized(g->trees, g->tree_capacity * sizeof *g->trees);
    }
    memcpy(g->trees[g->tree_count], children, sizeof *g->trees);
    return g->tree_count++;
}

static Vector tree_find(const struct GlobalRaces *g, Tree t, uint32_t cluster) {
    for (int level = g->levels - 1; t && level >= 0; level--)
        t = g->trees[t][cluster >> TREE_BITS * level & (TREE_CHILDREN - 1)];
    return t;
}

// `level`: of the trees; below level 0 they are vectors.
static Tree join_at(struct GlobalRaces *g, Tree a, Tree b, int level) {
    if (a == b || !b) return a;
    if (!a) return b;
    if (level < 0) return join_vectors(g, a, b);
    uint32_t children[TREE_CHILDREN], not_a = 0, not_b = 0;
    for (int k = 0; k < TREE_CHILDREN; k++) {
        children[k] = join_at(g, g->trees[a][k], g->trees[b][k], level - 1);
        not_a |= children[k] ^ g->trees[a][k];
        not_b |= children[k] ^ g->trees[b][k];
    }
    return !not_a ? a : !not_b ? b : tree_new(g, children);
}

static Tree join(struct GlobalRaces *g, Tree a, Tree b) {
    return join_at(g, a, b, g->levels - 1);
}

// The tree that knows this besides.
static Tree put_at(struct GlobalRaces *g, Tree t, uint32_t cluster, Vector v, int level) {
    if (level < 0) return t ? join_vectors(g, t, v) : v;
    uint32_t children[TREE_CHILDREN] = {0}, k = cluster >> TREE_BITS * level & (TREE_CHILDREN - 1);
    if (t) memcpy(children, g->trees[t], sizeof children);
    uint32_t child = put_at(g, children[k], cluster, v, level - 1);
    if (t && child == children[k]) return t;
    children[k] = child;
    return tree_new(g, children);
}

void global_order_begin(struct GlobalRaces *g, uint64_t blocks) {
    const uint32_t none[TREE_CHILDREN] = {0};
    g->levels = 1;
    while (blocks > 1ull << TREE_BITS * g->levels) g->levels++;
    tree_new(g, none);
    vector_begin(g, 0, false);
}

void global_order_free(struct GlobalRaces *g) {
    free(g->words);
    free(g->trees);
    free(g->flags);
}

// ---- what a cluster knows of others

// The tree of a slot that one has who knows of `clock` of its entry.
static Tree known_tree(const GlobalSlot *s, uint32_t clock) {
    return clock ? s->trees[(clock < s->count ? clock : s->count) - 1] : 0;
}

Knowing global_knows(const GlobalAccess *a, const GlobalNode *n, bool through, bool *some) {
    const struct GlobalRaces *g = a->races;
    Knowing best = KNOWN_NOT;
    *some = false;
    for (int k = 0; k < a->cluster->slot_count; k++) {
        const GlobalSlot *s = &a->cluster->slots[k];
        if (s->entry >= a->used) continue;
        Vector v = tree_find(g, known_tree(s, a->seen[s->entry]), n->cluster);
        *some |= v != 0;
        if (v && n->clock <= entry_in(g, v, n->thread, through)) {
            if (!s->informal) return KNOWN_WELL;
            best = KNOWN_INFORMALLY;
        }
        if (!through || !a->passed) continue;
        // A fence of ours behind what we acquired.
        v = tree_find(g, known_tree(s, a->passed[s->entry]), n->cluster);
        if (v && n->clock <= entry_in(g, v, n->thread, false)) return KNOWN_WELL;
    }
    return best;
}

// All that one knows of other clusters who has this knowledge.
static Tree foreign(struct GlobalRaces *g, const Race *r, Knowledge knows, Tree and) {
    for (int k = 0; k < r->info->slot_count; k++) {
        const GlobalSlot *s = &r->info->slots[k];
        and = join(g, and, known_tree(s, race_vector(r, knows, SEEN)[s->entry]));
    }
    return and;
}

// A warp's slot for what it acquires so.
static GlobalSlot *slot_of_warp(Race *r, uint16_t t, Acquisition way) {
    struct GlobalCluster *c = r->info;
    int *number = &r->thread[t].slots[way]; // + 1
    if (*number) return &c->slots[*number - 1];
    if (c->slot_count == c->slot_capacity) {
        c->slot_capacity = c->slot_capacity ? 2 * c->slot_capacity : 2;
        c->slots = resized(c->slots, (size_t)c->slot_capacity * sizeof *c->slots);
    }
    c->slots[c->slot_count++] =
        (GlobalSlot){.entry = slot_for_others(r), .informal = way == INFORMAL};
    *number = c->slot_count;
    return &c->slots[*number - 1];
}

// Adds to what the slot's warp has acquired. Returns the clock.
static uint32_t slot_learn(struct GlobalRaces *g, GlobalSlot *s, Tree tree) {
    Tree now = known_tree(s, s->count), next = join(g, now, tree);
    if (s->count && next == now) return s->count;
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 4;
        s->trees = resized(s->trees, s->capacity * sizeof *s->trees);
    }
    s->trees[s->count++] = next;
    return s->count;
}

// ---- flags

static GlobalFlag *find_flag(const struct GlobalRaces *g, uint64_t word) {
    if (!g->flag_capacity) return NULL;
    uint32_t k = (uint32_t)(word * 0x9e3779b97f4a7c15ull >> 32) & (g->flag_capacity - 1);
    while (g->flags[k].word && g->flags[k].word != word) k = (k + 1) & (g->flag_capacity - 1);
    return &g->flags[k];
}

static GlobalFlag *add_flag(struct GlobalRaces *g, uint64_t word) {
    GlobalFlag *f = find_flag(g, word);
    if (f && f->word) return f;
    if (2 * g->flag_count >= g->flag_capacity) {
        GlobalFlag *old = g->flags;
        uint32_t capacity = g->flag_capacity;
        g->flag_capacity = capacity ? 2 * capacity : 64;
        g->flags = calloc(g->flag_capacity, sizeof *g->flags);
        if (!g->flags) abort();
        for (uint32_t k = 0; k < capacity; k++)
            if (old[k].word) *find_flag(g, old[k].word) = old[k];
        free(old);
        f = find_flag(g, word);
    }
    g->flag_count++;
    f->word = word;
    return f;
}

// An empty knowledge to work with.
static Knowledge scratch(Race *r) {
    if (!r->global_scratch) r->global_scratch = knowledge_new(r);
    knowledge_clear(r, r->global_scratch);
    return r->global_scratch;
}

// Adds a vector of the cluster itself.
static void add_vector(const struct GlobalRaces *g, const Race *r, Knowledge to, Vector v) {
    uint32_t used = g->words[v];
    for (int through = 0; through < 2; through++) {
        uint32_t *t = race_vector(r, to, through ? PASSED : SEEN);
        for (uint32_t e = 0; e < used; e++) {
            uint32_t clock = entry_in(g, v, e, through);
            t[e] = clock > t[e] ? clock : t[e];
        }
    }
}

// Do these lanes know of this clock of an entry?
static bool lanes_know(const Race *r, uint16_t t, uint32_t lanes, uint16_t entry, uint32_t clock) {
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        Knowledge k = lane_knowledge(r, t, __builtin_ctz(rest));
        if (race_vector(r, k, SEEN)[entry] < clock) return false;
        if (!r->thread[t].class_count) break;
    }
    return true;
}

// ---- fences of others
//
// PTX lets a thread release by its own fence and its own strong write behind that, and acquire by
// its own strong read and its own fence. Working code has all threads execute the fence, and one of
// them, before or behind a barrier, the write or the read. Unless strict, that is as good: what a
// warp has fenced itself, whoever knows of the fence releases by a relaxed write; and what one warp
// has read relaxed, another one that knows of the read acquires by its fence.

static bool is_strict(const Warp *w) {
    return w->sm->gpu->settings->strict;
}

void global_fence(Warp *w, uint32_t lanes, bool acquires, bool releases) {
    Race *r = race_of(w);
    uint16_t t = race_thread(w);
    if (is_strict(w) || !r->info) return;
    for (int u = 0; acquires && r->info->slot_count && u < r->threads; u++) {
        const struct RaceThread *other = &r->thread[u];
        if (!other->seen_entry || u == t) continue;
        uint16_t entry = r->info->slots[other->slots[PENDING] - 1].entry;
        Knowledge k = lane_knowledge(r, t, __builtin_ctz(lanes));
        uint32_t clock = race_vector(r, k, SEEN)[other->seen_entry];
        if (clock) lanes_learn(r, w, lanes, entry, clock);
    }
    if (!releases) return;
    if (!r->thread[t].fence_entry) r->thread[t].fence_entry = slot_for_others(r);
    lanes_learn(r, w, lanes, r->thread[t].fence_entry, r->thread[t].clock);
}

// Do these lanes know of another warp's fence?
static bool knows_fence(const Race *r, uint16_t t, uint32_t lanes) {
    Knowledge k = lane_knowledge(r, t, __builtin_ctz(lanes));
    for (int u = 0; u < r->threads; u++) {
        uint16_t entry = r->thread[u].fence_entry;
        if (entry && u != t && race_vector(r, k, SEEN)[entry]) return true;
    }
    return false;
}

// What other warps have fenced themselves, and these lanes know of, goes into the tree.
static Tree leave_fenced(struct GlobalRaces *g, Warp *w, uint32_t lanes, Tree into) {
    Race *r = race_of(w);
    Knowledge from = lane_knowledge(r, race_thread(w), __builtin_ctz(lanes)), to = scratch(r);
    bool any = false;
    for (int v = SEEN; v <= PASSED; v += PASSED - SEEN)
        for (int u = 0; u < r->threads; u++) {
            if (!r->thread[u].fence_entry) continue;
            uint32_t known = race_vector(r, from, (RaceVector)v)[u];
            uint32_t fenced = race_vector(r, from, SEEN)[r->thread[u].fence_entry];
            race_vector(r, to, (RaceVector)v)[u] = known < fenced ? known : fenced;
            any |= fenced && known;
        }
    return any ? put_at(g, into, r->info->number, vector_of(g, r, to), g->levels - 1) : into;
}

// ---- what a strong access takes and leaves

// These lanes learn what the tree knows.
static void learn_tree(struct GlobalRaces *g, Warp *w, uint32_t lanes, Tree tree, Acquisition way) {
    Race *r = race_of(w);
    uint16_t t = race_thread(w);
    GlobalSlot *s = slot_of_warp(r, t, way);
    uint16_t entry = s->entry;
    uint32_t clock = slot_learn(g, s, tree);
    if (!lanes_know(r, t, lanes, entry, clock)) lanes_learn(r, w, lanes, entry, clock);
}

// What lanes find at a flag: at once, or, relaxed, once they execute a fence. `informal`: an atomic
// of no strict program.
static void take(struct GlobalRaces *g, Warp *w, uint32_t lanes, const GlobalFlag *f, bool acquires,
                 bool narrow, bool informal) {
    Race *r = race_of(w);
    uint16_t t = race_thread(w);
    Vector own = tree_find(g, f->wide, r->info->number);
    Vector near = tree_find(g, f->narrow, r->info->number);
    if (own || near) {
        Knowledge from = scratch(r);
        if (own) add_vector(g, r, from, own);
        if (near) add_vector(g, r, from, near);
        if (acquires || informal) {
            if (r->thread[t].class_count || !knowledge_within(r, from, t))
                lanes_acquire(r, w, lanes, from);
        } else {
            knowledge_join(r, race_hold(r, &r->thread[t].acquirable, lanes)->knows, from);
        }
    }
    if (narrow || !f->wide) return;
    if (acquires) {
        learn_tree(g, w, lanes, f->wide, ACQUIRED);
        return;
    }
    if (informal) learn_tree(g, w, lanes, f->wide, INFORMAL);
    GlobalSlot *s = slot_of_warp(r, t, PENDING);
    uint16_t entry = s->entry;
    uint32_t clock = slot_learn(g, s, f->wide);
    Knowledge acquirable = race_hold(r, &r->thread[t].acquirable_wide, lanes)->knows;
    race_vector(r, acquirable, SEEN)[entry] = clock;
    if (is_strict(w)) return;
    if (!r->thread[t].seen_entry) r->thread[t].seen_entry = slot_for_others(r);
    if (!lanes_know(r, t, lanes, r->thread[t].seen_entry, clock))
        lanes_learn(r, w, lanes, r->thread[t].seen_entry, clock);
}

// What is known goes into a tree.
static Tree publish(struct GlobalRaces *g, const Race *r, Knowledge knows, Tree into) {
    into = foreign(g, r, knows, into);
    return put_at(g, into, r->info->number, vector_of(g, r, knows), g->levels - 1);
}

// A strong write of these lanes to the word; a store, which is no atomic, ends what others released
// there (unless to other bytes of the word, perhaps).
static void leave(struct GlobalRaces *g, Warp *w, uint32_t lanes, uint64_t word, GlobalKind kind,
                  bool releases) {
    Race *r = race_of(w);
    const struct RaceThread *thread = &r->thread[race_thread(w)];
    bool near = thread->released.lanes & lanes;
    bool wide = !kind.narrow && thread->released_wide.lanes & lanes;
    bool fenced = !kind.narrow && !is_strict(w) && knows_fence(r, race_thread(w), lanes);
    GlobalFlag *f = releases || near || fenced ? add_flag(g, word) : find_flag(g, word);
    if (!f || !f->word) return;
    if (!kind.updates && kind.element >= 4) f->wide = f->narrow = 0;
    if (wide) f->wide = publish(g, r, thread->released_wide.knows, f->wide);
    if (fenced) f->wide = leave_fenced(g, w, lanes, f->wide);
    if (near) f->narrow = publish(g, r, thread->released.knows, f->narrow);
    if (!releases) return;
    Knowledge to = scratch(r);
    lanes_publish(r, w, lanes, to);
    Tree *tree = kind.narrow ? &f->narrow : &f->wide;
    *tree = publish(g, r, r->global_scratch, *tree);
}

void race_global_flag(Warp *w, const uint64_t address[WARP_SIZE], unsigned size, uint32_t reads,
                      uint32_t writes, GlobalKind kind) {
    struct GlobalRaces *g = w->sm->launch->races;
    if (!race_of(w)->info) return;
    bool acquires = kind.order == RACE_ACQUIRE || kind.order == RACE_ACQ_REL;
    bool releases = kind.order == RACE_RELEASE || kind.order == RACE_ACQ_REL;
    unsigned step = kind.element > 4 ? kind.element : 4;
    for (uint32_t rest = reads | writes, lanes; rest; rest &= ~lanes) {
        lanes = lanes_at_first(address, rest);
        uint64_t at = address[__builtin_ctz(rest)];
        for (uint64_t word = at / 4; 4 * word < at + size; word += step / 4) {
            GlobalFlag *f = lanes & reads ? find_flag(g, word) : NULL;
            if (f && f->word)
                take(g, w, lanes & reads, f, acquires, kind.narrow, kind.updates && !is_strict(w));
            if (lanes & writes) leave(g, w, lanes & writes, word, kind, releases);
        }
    }
    if (writes && releases) lanes_released(race_of(w), w, writes);
}
