// The last accesses to every byte of global memory that a launch uses (race_global_parts.h).
//
// As for shared memory (race_shadow.c) there are two numbers for each granule of 4 bytes: the last
// write, a node, and the accesses that have read since, a set; where bytes of a granule were
// written apart, each byte has its own. Sets are small arrays that hold the latest accesses: of the
// same warp only the last one, and never more than GLOBAL_SET.
//
// A plain write, which must be ordered behind all that was before, begins a new set. A strong one
// may be at the same time as other strong ones, so it adds the write before it to the set: who then
// accesses the bytes plainly must know of all of them. But not of those that have been *observed*:
// a strong write is before what comes behind a strong read, or an atomic, that finds it there
// (causality order, its second clause). So one may poll a flag and clear it by a plain store.
//
// Most of what a kernel reads nothing writes. So a page has granules only once it is written to, or
// its reads are too many to keep as ranges and there is room (SHADOWED_MOST).
//
// Nodes and sets never change. When there are many, those that no page leads to are dropped.
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/race_global_parts.h"
#include "softgpu/machine/parts.h"

enum {
    PAGES_FIRST = 1024,
    NODES_FIRST = 4096,
    COLLECT_LEAST = 1 << 20,
    SHADOWED_MOST = 16384, // pages with granules, for reads alone: 128 MiB
    BLOCK = 16
};

static void *resized(void *old, size_t size) {
    void *p = realloc(old, size);
    if (!p) abort();
    return p;
}

// ---- pages

static uint32_t place_of(const struct GlobalRaces *g, uint64_t number) {
    uint32_t k = (uint32_t)(number * 0x9e3779b97f4a7c15ull >> 32) & (g->page_capacity - 1);
    while (g->pages[k] && g->pages[k]->number != number) k = (k + 1) & (g->page_capacity - 1);
    return k;
}

static void more_pages(struct GlobalRaces *g) {
    GlobalPage **old = g->pages;
    uint32_t count = g->page_capacity;
    g->page_capacity = count ? 2 * count : PAGES_FIRST;
    g->pages = calloc(g->page_capacity, sizeof *g->pages);
    if (!g->pages) abort();
    for (uint32_t k = 0; k < count; k++)
        if (old[k]) g->pages[place_of(g, old[k]->number)] = old[k];
    free(old);
}

static GlobalPage *page_at(struct GlobalRaces *g, uint64_t address) {
    uint64_t number = address >> GLOBAL_PAGE_BITS;
    if (g->recent && g->recent->number == number) return g->recent;
    if (2 * g->page_count >= g->page_capacity) more_pages(g);
    GlobalPage **page = &g->pages[place_of(g, number)];
    if (!*page) {
        *page = resized(NULL, sizeof **page);
        (*page)->number = number;
        (*page)->last = NULL;
        (*page)->read_count = 0;
        g->page_count++;
    }
    return g->recent = *page;
}

void global_shadow_free(struct GlobalRaces *g) {
    for (uint32_t k = 0; k < g->page_capacity; k++) {
        if (!g->pages[k]) continue;
        free(g->pages[k]->last);
        free(g->pages[k]);
    }
    free(g->pages);
    free(g->nodes);
    free(g->sets);
    free(g->bytes);
}

// ---- nodes and sets

static uint32_t add_node(struct GlobalRaces *g, GlobalNode node) {
    if (g->node_count == g->node_capacity) {
        g->node_capacity = g->node_capacity ? 2 * g->node_capacity : NODES_FIRST;
        g->nodes = resized(g->nodes, g->node_capacity * sizeof *g->nodes);
        if (!g->node_count) g->nodes[g->node_count++] = (GlobalNode){0}; // nobody
    }
    g->nodes[g->node_count] = node;
    return g->node_count++;
}

static uint32_t add_set(struct GlobalRaces *g, const uint32_t set[GLOBAL_SET]) {
    if (g->set_count == g->set_capacity) {
        g->set_capacity = g->set_capacity ? 2 * g->set_capacity : NODES_FIRST;
        g->sets = resized(g->sets, g->set_capacity * sizeof *g->sets);
        if (!g->set_count) memset(g->sets[g->set_count++], 0, sizeof *g->sets); // nobody
    }
    memcpy(g->sets[g->set_count], set, sizeof *g->sets);
    return g->set_count++;
}

static bool same_node(const GlobalNode *a, const GlobalNode *b) {
    return a->cluster == b->cluster && a->clock == b->clock && a->insn == b->insn &&
           a->thread == b->thread && a->kind == b->kind && a->flags == b->flags;
}

// The number of a node, an old one if it has been asked for lately.
static uint32_t find_node(struct GlobalRaces *g, GlobalNode n) {
    uint32_t hash = (n.cluster * 0x9e3779b1u ^ n.clock * 0x85ebca6bu ^ n.insn * 0xc2b2ae35u ^
                     (n.thread * 16u + n.flags + n.kind) * 0x27d4eb2fu) >>
                    20;
    uint32_t *memo = &g->node_memo[hash % GLOBAL_MEMOS];
    if (!*memo || !same_node(&g->nodes[*memo], &n)) *memo = add_node(g, n);
    return *memo;
}

// The number of the access's node for these bytes of a granule.
static inline uint32_t number_of(GlobalAccess *a, unsigned bytes) {
    if (a->ids[bytes]) return a->ids[bytes];
    GlobalNode n = a->node;
    n.flags |= (uint8_t)(bytes << GLOBAL_BYTES);
    return a->ids[bytes] = find_node(a->races, n);
}

// Is this read of the set covered by the new one, for all that will be asked?
static bool is_covered(const GlobalNode *old, const GlobalNode *new) {
    unsigned strength = GLOBAL_STRONG | GLOBAL_NARROW;
    return old->cluster == new->cluster && old->thread == new->thread &&
           !(old->kind & ~new->kind &GLOBAL_WROTE) && old->clock <= new->clock &&
           !((old->flags ^ new->flags) & strength) &&
           !(old->flags >> GLOBAL_BYTES & ~(new->flags >> GLOBAL_BYTES));
}

static uint32_t add_to_set(struct GlobalRaces *g, uint32_t set, uint32_t id) {
    uint32_t hash = (set * 0x9e3779b1u ^ id * 0x85ebca6bu) >> 20;
    if (g->set_memo[hash].node == id && g->set_memo[hash].set == set)
        return g->set_memo[hash].result;
    uint32_t next[GLOBAL_SET] = {id}, count = 1, result = set;
    const GlobalNode new = g->nodes[id];
    bool has = false;
    // Where there are too many, the strong ones among them go first.
    for (int strong = 0; strong < 2; strong++)
        for (int k = 0; set && k < GLOBAL_SET && g->sets[set][k]; k++) {
            uint32_t old = g->sets[set][k];
            has |= old == id;
            if (old == id || (g->nodes[old].flags & GLOBAL_STRONG) != strong ||
                is_covered(&g->nodes[old], &new))
                continue;
            if (count < GLOBAL_SET) next[count++] = old;
        }
    if (!has) result = add_set(g, next);
    g->set_memo[hash].set = set;
    g->set_memo[hash].node = id;
    g->set_memo[hash].result = result;
    return result;
}

static inline uint32_t add_read(GlobalAccess *a, uint32_t set, unsigned bytes) {
    if (a->result && set == a->set && bytes == a->bytes) return a->result;
    a->set = set;
    a->bytes = bytes;
    return a->result = add_to_set(a->races, set, number_of(a, bytes));
}

// ---- dropping those that no page leads to

typedef struct {
    uint32_t *node, *set; // marks, then new numbers
    bool renames;
} Collection;

static void visit(const Collection *c, uint32_t *node, uint32_t *set) {
    if (c->renames) {
        *node = c->node[*node];
        *set = c->set[*set];
        return;
    }
    c->node[*node] = c->set[*set] = 1;
}

static void visit_page(struct GlobalRaces *g, const Collection *c, GlobalPage *page) {
    uint32_t none = 0;
    for (uint32_t k = 0; k < page->read_count; k++) visit(c, &page->reads[k].node, &none);
    uint64_t before = 0, renamed = 0;
    for (int k = 0; page->last && k < GLOBAL_GRANULES; k++) {
        uint64_t last = page->last[k];
        uint32_t write = write_in(last), reads = reads_in(last);
        if (write & RACE_SPLIT) {
            RaceBytes *b = &g->bytes[write & ~RACE_SPLIT];
            for (int n = 0; n < 4; n++) visit(c, &b->write[n], &b->reads[n]);
            continue;
        }
        if (last != before) {
            visit(c, &write, &reads);
            before = last;
            renamed = granule(write, reads);
        }
        page->last[k] = renamed;
    }
}

static void visit_pages(struct GlobalRaces *g, const Collection *c) {
    for (uint32_t k = 0; k < g->page_capacity; k++)
        if (g->pages[k]) visit_page(g, c, g->pages[k]);
}

static void collect(struct GlobalRaces *g) {
    if (g->node_count + g->set_count < g->collect_at) return;
    Collection c = {calloc(g->node_count + 1, 4), calloc(g->set_count + 1, 4), false};
    if (!c.node || !c.set) abort();
    visit_pages(g, &c);
    for (uint32_t s = 1; s < g->set_count; s++)
        for (int k = 0; c.set[s] && k < GLOBAL_SET; k++) c.node[g->sets[s][k]] = 1;
    uint32_t nodes = g->node_count ? 1 : 0, sets = g->set_count ? 1 : 0;
    for (uint32_t n = 1; n < g->node_count; n++) {
        if (!c.node[n]) continue;
        g->nodes[nodes] = g->nodes[n];
        c.node[n] = nodes++;
    }
    c.node[0] = 0;
    for (uint32_t s = 1; s < g->set_count; s++) {
        if (!c.set[s]) continue;
        for (int k = 0; k < GLOBAL_SET; k++) g->sets[sets][k] = c.node[g->sets[s][k]];
        c.set[s] = sets++;
    }
    c.set[0] = 0;
    c.renames = true;
    visit_pages(g, &c);
    g->node_count = nodes;
    g->set_count = sets;
    uint32_t twice = 2 * (nodes + sets);
    g->collect_at = twice > COLLECT_LEAST ? twice : COLLECT_LEAST;
    memset(g->node_memo, 0, sizeof g->node_memo);
    memset(g->set_memo, 0, sizeof g->set_memo);
    free(c.node);
    free(c.set);
}

// ---- may this access follow that one?

static RaceVerdict judge(const GlobalAccess *a, const GlobalNode *n) {
    if (n->flags & a->node.flags & GLOBAL_STRONG &&
        (n->cluster == a->node.cluster || !((n->flags | a->node.flags) & GLOBAL_NARROW)))
        return VERDICT_ORDERED;
    bool own = n->cluster == a->node.cluster, some;
    // Lanes of the issuing warp are told apart elsewhere (race_log.c).
    RaceAgentKind kind = global_kind(n);
    bool mine = own && kind == RACE_NO_AGENT && n->thread == race_thread(a->w);
    if (own && !mine && (n->thread >= a->used || n->clock > a->seen[n->thread]))
        return VERDICT_RACE;
    Knowing knows = own ? KNOWN_WELL : global_knows(a, n, false, &some);
    if (knows != KNOWN_WELL) return knows == KNOWN_NOT ? VERDICT_RACE : VERDICT_FORMAL;
    if (!(a->node.flags & GLOBAL_ASYNC) || kind != RACE_NO_AGENT || n->flags & GLOBAL_FENCED)
        return VERDICT_ORDERED;
    bool fenced =
        own ? a->passed && n->clock <= a->passed[n->thread] : global_knows(a, n, true, &some) > 0;
    return fenced ? VERDICT_ORDERED : VERDICT_UNFENCED;
}

// Does the access come behind a strong read that has found this write? `set`: what has read since.
static bool is_observed(const GlobalAccess *a, const GlobalNode *write, uint32_t set,
                        unsigned bytes) {
    if (!(write->flags & GLOBAL_STRONG)) return false;
    for (int k = 0; k < GLOBAL_SET && a->races->sets[set][k]; k++) {
        const GlobalNode *n = &a->races->nodes[a->races->sets[set][k]];
        if (n->flags & GLOBAL_STRONG && !(n->kind & GLOBAL_WROTE) &&
            !(bytes & ~(n->flags >> GLOBAL_BYTES)) && judge(a, n) != VERDICT_RACE)
            return true;
    }
    return false;
}

// `set`: what has read the bytes since that write.
static inline void check_write(GlobalAccess *a, uint64_t at, uint32_t earlier, uint32_t set,
                               unsigned bytes) {
    if (!earlier || earlier == a->fine || a->quiet) return;
    const GlobalNode *node = &a->races->nodes[earlier];
    RaceVerdict verdict = judge(a, node);
    if (!verdict)
        a->fine = earlier;
    else if (verdict == VERDICT_UNFENCED || !is_observed(a, node, set, bytes))
        global_report(a, at, node, true, verdict);
}

// `bytes`: those that are accessed, of each granule of which that was the set; a read only cares
// for the writes in it. What the async proxy reads or writes behind a generic read needs the order,
// and no fence.
static void check_set(GlobalAccess *a, uint64_t at, uint32_t set, unsigned bytes) {
    for (int k = 0; !a->quiet && k < GLOBAL_SET && a->races->sets[set][k]; k++) {
        const GlobalNode *node = &a->races->nodes[a->races->sets[set][k]];
        bool wrote = node->kind & GLOBAL_WROTE;
        if (!(node->flags >> GLOBAL_BYTES & bytes) || !(wrote || a->write)) continue;
        RaceVerdict verdict = judge(a, node);
        if (verdict && (wrote || verdict != VERDICT_UNFENCED))
            global_report(a, at, node, wrote, verdict);
    }
}

static inline void check_earlier(GlobalAccess *a, uint64_t at, uint32_t set, unsigned bytes) {
    if (set && (a->write || a->races->wrote)) check_set(a, at, set, bytes);
}

// What of a set stays behind a strong write: no strong reads; strong writes, unless it observes
// them.
static uint32_t kept_of(struct GlobalRaces *g, uint32_t set, bool observes) {
    uint32_t kept[GLOBAL_SET] = {0}, count = 0, gone = 0;
    for (int k = 0; k < GLOBAL_SET && g->sets[set][k]; k++) {
        const GlobalNode *n = &g->nodes[g->sets[set][k]];
        bool goes = n->flags & GLOBAL_STRONG && (observes || !(n->kind & GLOBAL_WROTE));
        gone += goes;
        if (!goes) kept[count++] = g->sets[set][k];
    }
    return !gone ? set : count ? add_set(g, kept) : 0;
}

// The set behind a write that comes behind this one, and this set.
static uint32_t set_behind(GlobalAccess *a, uint32_t write, uint32_t set, unsigned bytes) {
    struct GlobalRaces *g = a->races;
    if (!(a->node.flags & GLOBAL_STRONG)) return 0;
    if (set) set = kept_of(g, set, a->observes);
    const GlobalNode *n = &g->nodes[write];
    if (!write || (n->cluster == a->node.cluster && n->thread == a->node.thread)) return set;
    if (a->observes && n->flags & GLOBAL_STRONG) return set;
    GlobalNode wrote = *n;
    wrote.kind |= GLOBAL_WROTE;
    wrote.flags = (uint8_t)((wrote.flags & 15) | bytes << GLOBAL_BYTES);
    g->wrote = true;
    return add_to_set(g, set, find_node(g, wrote));
}

// ---- single bytes

static uint32_t bytes_new(struct GlobalRaces *g) {
    if (g->bytes_free) {
        uint32_t k = g->bytes_free - 1;
        g->bytes_free = g->bytes[k].write[0];
        return k;
    }
    if (g->bytes_count == g->bytes_capacity) {
        g->bytes_capacity = g->bytes_capacity ? 2 * g->bytes_capacity : 256;
        g->bytes = resized(g->bytes, g->bytes_capacity * sizeof *g->bytes);
    }
    return g->bytes_count++;
}

// Bytes [from, to) of the granule `at`, which begins at this address.
static void enter_bytes(GlobalAccess *a, uint64_t *at, uint64_t address, unsigned from,
                        unsigned to) {
    struct GlobalRaces *g = a->races;
    unsigned bytes = ((1u << to) - 1) & ~((1u << from) - 1);
    uint32_t id = a->write ? number_of(a, ALL_BYTES) : 0;
    uint32_t write = write_in(*at), reads = reads_in(*at);
    if (!(write & RACE_SPLIT)) {
        if (a->write && write == id && !reads) return;
        if (!a->write) {
            check_write(a, address + from, write, reads, bytes);
            check_earlier(a, address + from, reads, bytes);
            *at = granule(write, add_read(a, reads, bytes));
            return;
        }
        uint32_t k = bytes_new(g);
        for (int n = 0; n < 4; n++) {
            g->bytes[k].write[n] = write;
            g->bytes[k].reads[n] = reads;
        }
        *at = k | RACE_SPLIT;
    }
    uint32_t k = write_in(*at) & ~RACE_SPLIT;
    RaceBytes *b = &g->bytes[k];
    for (unsigned n = from; n < to; n++) {
        check_write(a, address + n, b->write[n], b->reads[n], 1u << n);
        check_earlier(a, address + n, b->reads[n], 1u << n);
        if (!a->write) {
            b->reads[n] = add_read(a, b->reads[n], bytes);
            continue;
        }
        b->reads[n] = set_behind(a, b->write[n], b->reads[n], 1u << n);
        b->write[n] = id;
    }
    uint32_t differ = 0;
    for (int n = 1; n < 4; n++) differ |= (b->write[n] ^ b->write[0]) | (b->reads[n] ^ b->reads[0]);
    if (differ) return;
    *at = granule(b->write[0], b->reads[0]);
    b->write[0] = g->bytes_free;
    g->bytes_free = k + 1;
}

// ---- whole granules

// Where the granules that are like the first one, from `at` on, end.
static inline uint64_t *run_end(uint64_t *at, const uint64_t *end) {
    uint64_t first = *at;
    for (; at + BLOCK <= end; at += BLOCK) {
        uint64_t differ = 0;
        for (int k = 0; k < BLOCK; k++) differ |= at[k] ^ first;
        if (differ) break;
    }
    while (at < end && *at == first) at++;
    return at;
}

// Those from `at` on, which begins at this address, to `stop`.
static void enter_granules(GlobalAccess *a, uint64_t *at, const uint64_t *stop, uint64_t address) {
    uint32_t id = a->write ? number_of(a, ALL_BYTES) : 0;
    while (at < stop) {
        uint64_t last = *at;
        uint32_t write = write_in(last), reads = reads_in(last);
        if (write & RACE_SPLIT) {
            enter_bytes(a, at++, address, 0, 4);
            address += 4;
            continue;
        }
        uint64_t *to = run_end(at, stop);
        check_write(a, address, write, reads, ALL_BYTES);
        check_earlier(a, address, reads, ALL_BYTES);
        uint64_t next = a->write ? granule(id, set_behind(a, write, reads, ALL_BYTES))
                                 : granule(write, add_read(a, reads, ALL_BYTES));
        address += 4 * (uint64_t)(to - at);
        if (next == last)
            at = to;
        else
            while (at < to) *at++ = next;
    }
}

// ---- pages that have only been read

// Gives the page granules.
static void shadow(struct GlobalRaces *g, GlobalPage *page) {
    page->last = calloc(GLOBAL_GRANULES, sizeof *page->last);
    if (!page->last) abort();
    g->shadowed++;
    for (uint32_t n = 0; n < page->read_count; n++) {
        const struct GlobalRead *r = &page->reads[n];
        for (uint32_t k = r->low / 4u; k <= r->high / 4u; k++) {
            unsigned bytes = ALL_BYTES;
            if (k == r->low / 4u) bytes &= ALL_BYTES << r->low % 4;
            if (k == r->high / 4u) bytes &= ALL_BYTES >> (3 - r->high % 4);
            GlobalNode node = g->nodes[r->node];
            uint32_t id = r->node;
            if (bytes != ALL_BYTES) {
                node.flags = (uint8_t)((node.flags & 15) | bytes << GLOBAL_BYTES);
                id = add_node(g, node);
            }
            page->last[k] = granule(0, add_to_set(g, reads_in(page->last[k]), id));
        }
    }
    page->read_count = 0;
}

// Keeps a read of [low, high] of the page. False if it needs granules.
static bool keep_read(GlobalAccess *a, GlobalPage *page, uint32_t low, uint32_t high) {
    uint32_t id = number_of(a, ALL_BYTES);
    for (uint32_t n = page->read_count; n-- > 0;) {
        struct GlobalRead *r = &page->reads[n];
        if (r->node == id && low <= r->high + 1u && high + 1 >= r->low) {
            r->low = (uint16_t)(low < r->low ? low : r->low);
            r->high = (uint16_t)(high > r->high ? high : r->high);
            return true;
        }
        if (r->low >= low && r->high <= high &&
            is_covered(&a->races->nodes[r->node], &a->races->nodes[id])) {
            *r = (struct GlobalRead){id, (uint16_t)low, (uint16_t)high};
            return true;
        }
    }
    if (page->read_count == GLOBAL_READS) {
        if (a->races->shadowed < SHADOWED_MOST) return false;
        memmove(page->reads, page->reads + 1, (GLOBAL_READS - 1) * sizeof *page->reads);
        page->read_count--;
    }
    page->reads[page->read_count++] = (struct GlobalRead){id, (uint16_t)low, (uint16_t)high};
    return true;
}

// ---- entering

static void enter_in_page(GlobalAccess *a, GlobalPage *page, uint32_t low, uint32_t high) {
    if (!page->last) {
        if (!a->write && keep_read(a, page, low, high - 1)) return;
        shadow(a->races, page);
    }
    uint64_t base = page->number << GLOBAL_PAGE_BITS;
    uint32_t first = low / 4, last = (high - 1) / 4;
    unsigned from = low % 4, to = (high - 1) % 4 + 1;
    uint64_t *at = page->last;
    if (first == last && (from || to < 4)) {
        enter_bytes(a, at + first, base + 4 * first, from, to);
        return;
    }
    if (from) {
        enter_bytes(a, at + first, base + 4 * first, from, 4);
        first++;
    }
    if (to < 4) {
        enter_bytes(a, at + last, base + 4 * last, 0, to);
        last--;
    }
    enter_granules(a, at + first, at + last + 1, base + 4 * first);
}

void global_enter(GlobalAccess *a, uint64_t low, uint64_t high) {
    const uint64_t size = 1u << GLOBAL_PAGE_BITS;
    collect(a->races);
    memset(a->ids, 0, sizeof a->ids);
    a->fine = a->set = a->bytes = a->result = 0;
    if (!a->races->set_count) add_set(a->races, (uint32_t[GLOBAL_SET]){0});
    while (low < high) {
        uint64_t page = low & -size, end = high < page + size ? high : page + size;
        enter_in_page(a, page_at(a->races, low), (uint32_t)(low - page), (uint32_t)(end - page));
        low = end;
    }
}
