// What groups of wgmma read (operand_reads.h).
//
// The bytes are gathered as runs, since the steps of a product read neighbouring parts of a tile,
// which together are mostly the whole of it.
#include "softgpu/check/operand_reads.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/execute/wgmma.h"
#include "softgpu/machine/parts.h"

enum { WARP_ROWS = 16, ALL_WARPS = (1 << WARPGROUP) - 1 };

typedef struct {
    struct Run {
        uint32_t low, high;
    } * runs;
    int count, capacity;
} Runs;

struct WgmmaReads {
    RaceAgent agent;
    uint64_t group;          // its number + 1; 0: none yet
    const Insn *insn;        // the first of the group
    uint8_t committed;       // by these warps
    uint8_t entered, waited; // their rows of A; whose wait has covered it
    bool entered_b;
    Runs a[WARPGROUP], b;
};

static struct WgmmaReads *reads_of(Warpgroup *g, uint64_t group) {
    if (!g->reads) {
        size_t size = GROUPS_FOLLOWED * sizeof *g->reads;
        g->reads = allocate(size);
        memset(g->reads, 0, size);
    }
    return &g->reads[group % GROUPS_FOLLOWED];
}

static void add_run(Runs *r, uint32_t low, uint32_t high) {
    if (r->count == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 16;
        r->runs = realloc(r->runs, (size_t)r->capacity * sizeof *r->runs);
        if (!r->runs) abort();
    }
    r->runs[r->count++] = (struct Run){low, high};
}

// ---- which bytes: a bit for each chunk that descriptors can name

enum { WORDS = (1 << 19) / CHUNK / 64 };

static void mark(uint64_t *touched, uint32_t address) {
    uint32_t chunk = address / CHUNK;
    if (chunk < WORDS * 64) touched[chunk / 64] |= 1ull << chunk % 64;
}

// Marks what an operation reads of B.
static void mark_b(uint64_t *touched, const WgmmaOp *op) {
    SharedOperand o = wgmma_operand(wgmma_form(op->insn), false, op->b);
    Chunks chunks;
    descriptor_chunks(&o, &chunks);
    for (int k = 0; k < chunks.count; k++) mark(touched, chunks.at[k]);
}

// Marks a warp's rows of A.
static void mark_a(uint64_t *touched, const WgmmaOp *op, int warp) {
    if (!wgmma_form(op->insn)->a_shared) return;
    SharedOperand o = wgmma_operand(wgmma_form(op->insn), true, op->a);
    Chunks chunks;
    descriptor_chunks(&o, &chunks);
    int per_line = o.mn_major ? o.rows * o.element / CHUNK : o.depth * o.element / CHUNK;
    for (int k = 0; k < chunks.count; k++) {
        int row = o.mn_major ? k % per_line * CHUNK / o.element : k / per_line;
        if (row / WARP_ROWS == warp) mark(touched, chunks.at[k]);
    }
}

static void find_runs(Runs *r, const uint64_t *touched) {
    uint32_t begin = 0;
    bool inside = false;
    r->count = 0;
    for (uint32_t word = 0; word <= WORDS; word++) {
        if (touched[word] == (inside ? ~0ull : 0)) continue;
        for (uint32_t bit = 0; bit < 64; bit++) {
            bool is_set = touched[word] >> bit & 1;
            if (is_set == inside) continue;
            if (inside) add_run(r, begin * CHUNK, (word * 64 + bit) * CHUNK);
            begin = word * 64 + bit;
            inside = is_set;
        }
    }
}

// Gathers what operations [from, to) read.
static void gather(struct WgmmaReads *r, const Warpgroup *g, uint64_t from, uint64_t to) {
    bool shared_a = false;
    uint64_t touched[WORDS + 1] = {0};
    for (uint64_t n = from; n < to; n++) {
        mark_b(touched, wgmma_op(g, n));
        shared_a |= wgmma_form(wgmma_op(g, n)->insn)->a_shared;
    }
    find_runs(&r->b, touched);
    for (int k = 0; k < WARPGROUP; k++) {
        r->a[k].count = 0;
        if (!shared_a) continue;
        memset(touched, 0, sizeof touched);
        for (uint64_t n = from; n < to; n++) mark_a(touched, wgmma_op(g, n), k);
        find_runs(&r->a[k], touched);
    }
}

// ---- entering them

static void enter(struct WgmmaReads *r, Cta *cta, const Runs *runs, Warp *const *warps, int count) {
    if (!runs->count) return;
    race_agent_issue(&r->agent, warps, count, r->insn);
    for (int k = 0; k < runs->count; k++)
        race_agent_access(&r->agent, cta, runs->runs[k].low, runs->runs[k].high, RACE_READ);
}

static void enter_a(struct WgmmaReads *r, const Warpgroup *g, int warp) {
    if (r->entered >> warp & 1) return;
    r->entered |= (uint8_t)(1 << warp);
    Warp *w = &g->warps[warp];
    enter(r, w->cta, &r->a[warp], &w, 1);
}

static void enter_b(struct WgmmaReads *r, const Warpgroup *g) {
    if (r->entered_b) return;
    r->entered_b = true;
    Warp *all[WARPGROUP];
    for (int k = 0; k < WARPGROUP; k++) all[k] = &g->warps[k];
    enter(r, g->warps->cta, &r->b, all, WARPGROUP);
}

void operand_reads_committed(Warpgroup *g, Warp *w, uint64_t group, uint64_t from, uint64_t to) {
    if (from == to) return;
    struct WgmmaReads *r = reads_of(g, group);
    int me = w->id % WARPGROUP;
    if (r->group != group + 1) { // the first of the four warps
        race_agent_close(&r->agent);
        r->insn = wgmma_op(g, from)->insn;
        r->agent = race_agent_open(w, r->insn, -1, RACE_WGMMA);
        r->group = group + 1;
        r->committed = r->entered = r->waited = 0;
        r->entered_b = false;
        gather(r, g, from, to);
    }
    r->committed |= (uint8_t)(1 << me);
    enter_a(r, g, me);
    if (r->committed == ALL_WARPS) enter_b(r, g);
}

void operand_reads_waited(Warpgroup *g, Warp *w, uint64_t group) {
    struct WgmmaReads *r = reads_of(g, group);
    if (r->group != group + 1) return;
    for (int k = 0; k < WARPGROUP; k++) enter_a(r, g, k);
    enter_b(r, g);
    race_agent_to_warp(&r->agent, w, FULL_MASK);
    r->waited |= (uint8_t)(1 << w->id % WARPGROUP);
    if (r->waited == ALL_WARPS) race_agent_close(&r->agent);
}

void operand_reads_free(Warpgroup *g) {
    for (int k = 0; g->reads && k < GROUPS_FOLLOWED; k++) {
        for (int warp = 0; warp < WARPGROUP; warp++) free(g->reads[k].a[warp].runs);
        free(g->reads[k].b.runs);
    }
    free(g->reads);
    g->reads = NULL;
}
