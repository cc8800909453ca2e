// The last accesses to every byte of a CTA's shared memory (race_parts.h).
//
// Per granule of 4 bytes there are two numbers of nodes: the last write, and the accesses that have
// read since, a set that is a list through RaceNode.parent. Neighbours that were accessed alike
// carry the same numbers, so that a question about a tile is mostly one comparison per granule.
// Nodes are never changed, and a node's parent is older than the node; when there are too many,
// those that no granule leads to any more are dropped (collect).
//
// Reads of parts of a granule are told apart by the bytes in the nodes. Where writes are of parts,
// the granule is split, and each byte has numbers of its own.
//
// A set holds the reads that a later write has to know of. A read that the new reader knows of is
// left out: who knows of the new one knows of that too. But where the async proxy takes part, a
// generic read stays until a proxy fence stands behind it.
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/race_parts.h"
#include "softgpu/machine/parts.h"

enum { NODES_FIRST = 4096, BLOCK = 16 };

// ---- memory of nodes

void shadow_reset(RaceCta *c) {
    uint32_t granules = (c->cta->shared_size + 3) / 4;
    if (c->allocated < granules) {
        free(c->last);
        c->allocated = granules;
        c->last = allocate(granules * sizeof *c->last);
    }
    c->granules = granules;
    memset(c->last, 0, granules * sizeof *c->last);
}

static void mark(const Race *r, uint8_t *live, uint32_t id) {
    for (; id && !live[id]; id = r->nodes[id].parent) live[id] = 1;
}

// Marks (to == NULL) or renames all numbers of nodes in the shadows.
static void visit(Race *r, uint8_t *live, const uint32_t *to) {
    for (int k = 0; k < r->cta_count; k++) {
        RaceCta *c = r->ctas[k];
        uint64_t before = 0, renamed = 0;
        for (uint32_t g = 0; g < c->granules; g++) {
            uint64_t last = c->last[g];
            uint32_t write = write_in(last), reads = reads_in(last);
            if (!(write & RACE_SPLIT)) {
                bool same = last == before;
                before = last;
                if (!to && !same) {
                    mark(r, live, write);
                    mark(r, live, reads);
                } else if (to) {
                    if (!same) renamed = granule(to[write], to[reads]);
                    c->last[g] = renamed;
                }
                continue;
            }
            RaceBytes *b = &r->bytes[write & ~RACE_SPLIT];
            for (int n = 0; n < 4; n++) {
                if (!to) {
                    mark(r, live, b->write[n]);
                    mark(r, live, b->reads[n]);
                } else {
                    b->write[n] = to[b->write[n]];
                    b->reads[n] = to[b->reads[n]];
                }
            }
        }
    }
}

static void *resized(void *old, size_t size) {
    void *p = realloc(old, size);
    if (!p) abort();
    return p;
}

// Drops nodes that no granule leads to.
static void collect(Race *r) {
    uint8_t *live = calloc(r->node_count, 1);
    uint32_t *to = calloc(r->node_count, sizeof *to), count = 1;
    if (!live || !to) abort();
    visit(r, live, NULL);
    for (uint32_t id = 1; id < r->node_count; id++) {
        if (!live[id]) continue;
        RaceNode node = r->nodes[id];
        node.parent = to[node.parent];
        to[id] = count;
        r->nodes[count++] = node;
    }
    visit(r, live, to);
    r->node_count = count;
    free(live);
    free(to);
    memset(r->memo, 0, sizeof r->memo);
    for (int t = 0; t < r->threads; t++) memset(r->thread[t].recent, 0, sizeof r->thread[t].recent);
}

static uint32_t add_node(Race *r, RaceNode node) {
    if (r->node_count == r->node_capacity) {
        r->node_capacity = r->node_capacity ? 2 * r->node_capacity : NODES_FIRST;
        r->nodes = resized(r->nodes, r->node_capacity * sizeof *r->nodes);
        if (!r->node_count) r->nodes[r->node_count++] = (RaceNode){0};
    }
    r->nodes[r->node_count] = node;
    return r->node_count++;
}

void race_begin(RacePass *pass) {
    Race *r = pass->race;
    if (r->node_count + r->node_count / 4 >= r->node_capacity && r->node_count) {
        collect(r);
        if (r->node_count > r->node_capacity / 2) {
            r->node_capacity *= 2;
            r->nodes = resized(r->nodes, r->node_capacity * sizeof *r->nodes);
        }
    }
    for (int v = 0; v < VECTORS; v++)
        pass->vectors[v] = race_vector(r, pass->knowledge, (RaceVector)v);
    memset(pass->ids, 0, sizeof pass->ids);
}

// The number of the pass's node for these bytes.
static uint32_t number_of(RacePass *pass, unsigned bytes) {
    if (pass->ids[bytes]) return pass->ids[bytes];
    Race *r = pass->race;
    RaceNode n = pass->node;
    n.flags |= (uint8_t)(bytes << NODE_BYTES);
    // Loops come again, and agents with many ranges; these are kept with the issuing warp's.
    RaceRecent *recent =
        &r->thread[race_thread(pass->w)].recent[(n.insn ^ n.kind ^ bytes) % RACE_RECENT];
    if (!(recent->node && recent->insn == n.insn && recent->clock == n.clock &&
          recent->flags == n.flags && r->nodes[recent->node].thread == n.thread))
        *recent = (RaceRecent){n.insn, n.clock, add_node(r, n), n.flags};
    return pass->ids[bytes] = recent->node;
}

// ---- may this access follow that one?

static inline bool is_seen(const RacePass *p, const RaceNode *n) {
    return n->clock <= p->vectors[SEEN][n->thread];
}

static inline bool is_published(const RacePass *p, const RaceNode *n) {
    return n->flags & NODE_FENCED || n->clock <= p->vectors[PUBLISHED][n->thread];
}

// An access by the issuing warp itself?
static inline bool is_own(const RacePass *p, const RaceNode *n) {
    return n->kind == RACE_NO_AGENT && n->thread == race_thread(p->w);
}

// Something that not all who now access [low, high) know of. What the same warp has done is a
// question of lanes: for warps it is asked when the pass has ended (log_check).
static RaceVerdict judge_unseen(RacePass *p, const RaceNode *earlier, uint32_t low, uint32_t high) {
    if (earlier->flags & p->node.flags & NODE_STRONG) return VERDICT_ORDERED;
    if (!is_own(p, earlier)) return VERDICT_RACE;
    if (p->node.kind == RACE_NO_AGENT) {
        p->unmet = true;
        return VERDICT_ORDERED;
    }
    return p->alone && !log_meets(p, low, high) ? VERDICT_ORDERED : VERDICT_RACE;
}

static inline RaceVerdict judge(RacePass *p, const RaceNode *earlier, uint32_t low, uint32_t high) {
    if (!is_seen(p, earlier)) {
        RaceVerdict verdict = judge_unseen(p, earlier, low, high);
        if (verdict || p->node.kind == RACE_NO_AGENT || !is_own(p, earlier)) return verdict;
    }
    if (!(p->node.flags & NODE_ASYNC_PROXY) || earlier->kind != RACE_NO_AGENT ||
        is_published(p, earlier))
        return VERDICT_ORDERED;
    return earlier->clock <= p->vectors[PASSED][earlier->thread] ? VERDICT_FORMAL
                                                                 : VERDICT_UNFENCED;
}

// All bytes of [low, high) were written alike.
static inline void check_write(RacePass *p, uint32_t low, uint32_t high, uint32_t earlier) {
    if (earlier == p->fine || p->quiet) return;
    const RaceNode *node = &p->race->nodes[earlier];
    RaceVerdict verdict = judge(p, node, low, high);
    if (verdict)
        report_race(p, low, node, true, verdict);
    else if (p->node.kind == RACE_NO_AGENT || !is_own(p, node))
        p->fine = earlier; // whatever the bytes
}

// All granules of [low, high) were read alike; `bytes` are those of each that are written.
static void check_reads(RacePass *p, uint32_t low, uint32_t high, uint32_t set, unsigned bytes) {
    if (p->quiet) return;
    while (set) {
        const RaceNode *node = &p->race->nodes[set];
        bool meets = node->flags >> NODE_BYTES & bytes;
        RaceVerdict verdict = meets ? judge(p, node, low, high) : VERDICT_ORDERED;
        if (verdict) report_race(p, low, node, false, verdict);
        set = node->parent;
    }
}

// ---- sets of reads

// Is this read covered by the new one, for all that will be asked?
static bool is_covered(const RacePass *p, const RaceNode *n, unsigned bytes) {
    const RaceNode *mine = &p->node;
    bool own = mine->kind == RACE_NO_AGENT && is_own(p, n);
    if (!own && !is_seen(p, n)) return false;
    if (n->flags >> NODE_BYTES & ~bytes) return false;
    if (mine->flags & ~n->flags & NODE_STRONG) return false; // the new one excuses more
    if (!p->race->proxies || n->kind != RACE_NO_AGENT || n->thread == mine->thread) return true;
    return is_published(p, n);
}

// The set without what is covered.
static uint32_t prune(RacePass *p, uint32_t set, unsigned bytes) {
    if (!set) return 0;
    RaceNode node = p->race->nodes[set];
    uint32_t rest = prune(p, node.parent, bytes);
    if (is_covered(p, &node, bytes)) return rest;
    if (rest == node.parent) return set;
    node.parent = rest;
    return add_node(p->race, node);
}

// Does the set have this read, or one that stands for it?
static bool has_read(const RacePass *p, uint32_t set, unsigned bytes) {
    const RaceNode *mine = &p->node;
    for (const RaceNode *n; set; set = n->parent) {
        n = &p->race->nodes[set];
        if (n->thread == mine->thread && n->clock == mine->clock &&
            !(n->flags & ~mine->flags & NODE_STRONG) && !(bytes & ~(n->flags >> NODE_BYTES)))
            return true;
    }
    return false;
}

static uint32_t add_to_set(RacePass *p, uint32_t set, unsigned bytes) {
    uint32_t id = number_of(p, bytes);
    if (!set) return id;
    Race *r = p->race;
    uint32_t hash = (set * 0x9e3779b1u ^ id * 0x85ebca6bu) >> 24;
    if (r->memo[hash].set == set && r->memo[hash].node == id) return r->memo[hash].result;
    uint32_t result = set;
    if (!has_read(p, set, bytes)) {
        uint32_t rest = prune(p, set, bytes);
        result = id;
        if (rest) {
            RaceNode node = r->nodes[id];
            node.parent = rest;
            result = add_node(r, node);
        }
    }
    r->memo[hash].set = set;
    r->memo[hash].node = id;
    r->memo[hash].result = result;
    return result;
}

// The set with the new read, of these bytes.
static inline uint32_t add_read(RacePass *p, uint32_t set, unsigned bytes) {
    if (set == p->set && bytes == p->bytes) return p->result;
    p->set = set;
    p->bytes = bytes;
    return p->result = add_to_set(p, set, bytes);
}

// ---- single bytes

static uint32_t bytes_new(Race *r) {
    if (r->bytes_free) {
        uint32_t k = r->bytes_free - 1;
        r->bytes_free = r->bytes[k].write[0];
        return k;
    }
    if (r->bytes_count == r->bytes_capacity) {
        r->bytes_capacity = r->bytes_capacity ? 2 * r->bytes_capacity : 256;
        r->bytes = resized(r->bytes, r->bytes_capacity * sizeof *r->bytes);
    }
    return r->bytes_count++;
}

// The granule's bytes are alike again.
static void unite(RacePass *p, uint32_t g, uint32_t write, uint32_t reads) {
    Race *r = p->race;
    uint32_t k = write_in(p->cta->last[g]) & ~RACE_SPLIT;
    r->bytes[k].write[0] = r->bytes_free;
    r->bytes_free = k + 1;
    p->cta->last[g] = granule(write, reads);
}

// Bytes [from, to) of granule g.
static void enter_bytes(RacePass *p, uint32_t g, unsigned from, unsigned to) {
    Race *r = p->race;
    RaceCta *c = p->cta;
    unsigned bytes = ((1u << to) - 1) & ~((1u << from) - 1);
    uint32_t id = p->write ? number_of(p, ALL_BYTES) : 0;
    uint64_t last = c->last[g];
    if (!(write_in(last) & RACE_SPLIT)) {
        uint32_t write = write_in(last), reads = reads_in(last);
        if (p->write && write == id && !reads) return;
        if (!p->write) {
            check_write(p, 4 * g + from, 4 * g + to, write);
            c->last[g] = granule(write, add_read(p, reads, bytes));
            return;
        }
        uint32_t k = bytes_new(r);
        for (int n = 0; n < 4; n++) {
            r->bytes[k].write[n] = write;
            r->bytes[k].reads[n] = reads;
        }
        c->last[g] = k | RACE_SPLIT;
    }
    RaceBytes *b = &r->bytes[write_in(c->last[g]) & ~RACE_SPLIT];
    for (unsigned n = from; n < to; n++) {
        uint32_t write = b->write[n], reads = b->reads[n];
        check_write(p, 4 * g + n, 4 * g + n + 1, write);
        if (!p->write) {
            b->reads[n] = add_read(p, reads, bytes);
            continue;
        }
        check_reads(p, 4 * g + n, 4 * g + n + 1, reads, 1u << n);
        b->write[n] = id;
        b->reads[n] = 0;
    }
    uint32_t differ = 0;
    for (int n = 1; n < 4; n++) differ |= (b->write[n] ^ b->write[0]) | (b->reads[n] ^ b->reads[0]);
    if (!differ) unite(p, g, b->write[0], b->reads[0]);
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

static void enter_granules(RacePass *p, uint32_t g, uint32_t end) {
    RaceCta *c = p->cta;
    uint32_t id = p->write ? number_of(p, ALL_BYTES) : 0;
    uint64_t *at = c->last + g, *stop = c->last + end;
    while (at < stop) {
        uint64_t last = *at;
        uint32_t write = write_in(last), reads = reads_in(last);
        uint32_t byte = 4 * (uint32_t)(at - c->last);
        if (write & RACE_SPLIT) {
            enter_bytes(p, (uint32_t)(at++ - c->last), 0, 4);
            continue;
        }
        uint64_t *to = run_end(at, stop);
        uint32_t byte_end = 4 * (uint32_t)(to - c->last);
        check_write(p, byte, byte_end, write);
        if (p->write && reads) check_reads(p, byte, byte_end, reads, ALL_BYTES);
        uint64_t next = p->write ? granule(id, 0) : granule(write, add_read(p, reads, ALL_BYTES));
        if (next == last)
            at = to;
        else
            while (at < to) *at++ = next;
    }
}

void race_enter(RacePass *p, uint32_t low, uint32_t high) {
    uint32_t first = low / 4, last = (high - 1) / 4;
    unsigned from = low % 4, to = (high - 1) % 4 + 1;
    if (first == last && (from || to < 4)) {
        enter_bytes(p, first, from, to);
        return;
    }
    if (from) enter_bytes(p, first++, from, 4);
    if (to < 4) enter_bytes(p, last--, 0, to);
    enter_granules(p, first, last + 1);
}
