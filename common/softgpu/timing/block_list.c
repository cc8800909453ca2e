// The list schedule of a block: one warp alone on its scheduler.
//
// Segment after segment, cycle after cycle: of the instructions whose operands are there and whose
// unit is free, the one with the longest way to the end issues. A node's machine instructions
// follow each other as its stages demand; they are scheduled one by one, so that others fit in
// between.
#include <stdlib.h>
#include <string.h>

#include "softgpu/timing/block_parts.h"

// A node on its way: which machine instruction is next, and from when on.
typedef struct {
    uint32_t node, ready, height;
    uint8_t stage;
    uint16_t done; // of the stage
} Task;

// A heap of tasks, the least by `before` on top.
typedef struct {
    Task *tasks;
    uint32_t count, capacity;
    bool (*before)(const Task *, const Task *);
} Heap;

static bool earlier(const Task *a, const Task *b) {
    return a->ready != b->ready ? a->ready < b->ready : a->node < b->node;
}
static bool higher(const Task *a, const Task *b) {
    return a->height != b->height ? a->height > b->height : a->node < b->node;
}

static void swap(Task *a, Task *b) {
    Task other = *a;
    *a = *b;
    *b = other;
}

static void push(BlockGraph *g, Heap *h, const Task *task) {
    h->tasks = block_grow(g, h->tasks, h->count, &h->capacity, sizeof *h->tasks);
    if (g->failed) return;
    uint32_t at = h->count++;
    h->tasks[at] = *task;
    for (; at && h->before(&h->tasks[at], &h->tasks[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&h->tasks[at], &h->tasks[(at - 1) / 2]);
}

static Task pop(Heap *h) {
    Task top = h->tasks[0];
    h->tasks[0] = h->tasks[--h->count];
    for (uint32_t at = 0;;) {
        uint32_t best = at, child = 2 * at + 1;
        for (uint32_t c = child; c < child + 2 && c < h->count; c++)
            if (h->before(&h->tasks[c], &h->tasks[best])) best = c;
        if (best == at) return top;
        swap(&h->tasks[at], &h->tasks[best]);
        at = best;
    }
}

typedef struct {
    BlockGraph *g;
    Heap coming;               // tasks whose operands aren't there yet
    Heap ready[UNIT_COUNT];    // those that only wait for their unit and the issue slot
    uint32_t free[UNIT_COUNT]; // from when on
    uint32_t now, last_result;
    uint32_t left; // nodes of the segment that have not ended
    Segment *segment;
    uint32_t segment_number, segment_start;
} List;

static uint32_t interval_of(const BlockGraph *g, const Expansion *e, const Stage *s) {
    if (e->interval && (s->op == OP_MMA || s->op == OP_MATRIX)) return e->interval;
    return g->timing->op[s->op].interval;
}

static uint32_t count_of(const Expansion *e, const Stage *s) {
    return s->op == OP_MMA && e->repeat > s->count ? e->repeat : s->count;
}

static void begin(List *l, uint32_t node);

// The node's last machine instruction has issued (or it has none): its successors come nearer.
static void end_node(List *l, uint32_t node, uint32_t issued) {
    BlockGraph *g = l->g;
    Node *n = &g->nodes[node];
    l->left--;
    uint32_t result = issued + result_latency(g, &n->expansion);
    if (result > l->last_result) l->last_result = result;
    for (int e = n->first_edge; e >= 0; e = g->edges[e].next) {
        Node *to = &g->nodes[g->edges[e].to];
        uint32_t ready = issued + g->edges[e].latency;
        if (ready > to->ready) to->ready = ready;
        if (!--to->waiting && to->segment == l->segment_number) begin(l, g->edges[e].to);
    }
}

// All that a node depends on is scheduled.
static void begin(List *l, uint32_t node) {
    Node *n = &l->g->nodes[node];
    if (n->ready < l->segment_start) n->ready = l->segment_start;
    n->at = n->ready - l->segment_start;
    if (!n->expansion.stage_count) {
        end_node(l, node, n->ready);
        return;
    }
    push(l->g, &l->coming, &(Task){node, n->ready, n->height, 0, 0});
}

// Can the unit take an instruction now? An IMAD needs the FMA unit as well.
static bool unit_free(const List *l, int unit) {
    if (unit == UNIT_ISSUE) return true;
    if (unit == UNIT_IMAD && l->free[UNIT_FMA] > l->now) return false;
    return l->free[unit] <= l->now;
}

// Registers that a kind of machine instruction reads, as a rule.
static const uint8_t register_reads[OP_COUNT] = {
    [OP_FMA] = 3,  [OP_FMA2] = 6,    [OP_HALF] = 3,   [OP_IMAD] = 3, [OP_IMAD_HI] = 3,
    [OP_ALU] = 2,  [OP_COMPARE] = 2, [OP_FP64] = 6,   [OP_MUFU] = 1, [OP_CONVERT] = 1,
    [OP_VOTE] = 1, [OP_SHUFFLE] = 2, [OP_REDUX] = 1,  [OP_LOAD] = 1, [OP_STORE] = 2,
    [OP_MMA] = 8,  [OP_MATRIX] = 1,  [OP_ATOMIC] = 2, [OP_COPY] = 2, [OP_SYNCS] = 2,
};

// Issues the next machine instruction of a task.
static void issue(List *l, Task task) {
    BlockGraph *g = l->g;
    Node *n = &g->nodes[task.node];
    const Expansion *e = &n->expansion;
    const Stage *s = &e->stages[task.stage];
    const OpTime *op = &g->timing->op[s->op];
    uint32_t interval = interval_of(g, e, s);
    if (!task.stage && !task.done) n->at = l->now - l->segment_start;
    l->segment->issue++;
    l->segment->busy[op->unit] += op->shared ? op->shared : interval;
    l->segment->reads += register_reads[s->op];
    l->free[op->unit] = l->now + interval;
    if (op->unit == UNIT_IMAD) {
        uint32_t besides = (uint32_t)g->timing->imad_takes_fma;
        l->segment->busy[UNIT_FMA] += besides;
        l->free[UNIT_FMA] = l->now + besides;
    }
    task.ready = l->now + 1;
    if (++task.done == count_of(e, s)) {
        task.done = 0;
        if (++task.stage == e->stage_count) {
            end_node(l, task.node, l->now);
            return;
        }
        if (op->latency) task.ready = l->now + op->latency;
        if (task.ready == l->now) task.ready++;
    }
    push(g, &l->coming, &task);
}

// The unit of a task's next machine instruction.
static int unit_of(const List *l, const Task *task) {
    const Expansion *e = &l->g->nodes[task->node].expansion;
    return l->g->timing->op[e->stages[task->stage].op].unit;
}

// One cycle: issues at most one machine instruction, and goes on to the next cycle in which one
// can.
static void step(List *l) {
    while (l->coming.count && l->coming.tasks[0].ready <= l->now) {
        Task task = pop(&l->coming);
        push(l->g, &l->ready[unit_of(l, &task)], &task);
        if (l->g->failed) return;
    }
    int best = -1;
    uint32_t next = l->coming.count ? l->coming.tasks[0].ready : UINT32_MAX;
    for (int u = 0; u < UNIT_COUNT; u++) {
        if (!l->ready[u].count) continue;
        if (!unit_free(l, u)) {
            uint32_t then = l->free[u];
            if (u == UNIT_IMAD && l->free[UNIT_FMA] > then) then = l->free[UNIT_FMA];
            if (then < next) next = then;
        } else if (best < 0 || higher(&l->ready[u].tasks[0], &l->ready[best].tasks[0])) {
            best = u;
        }
    }
    if (best < 0) {
        l->g->failed |= next == UINT32_MAX; // a circle of dependences: a mistake of block_graph.c
        l->now = next;
        return;
    }
    issue(l, pop(&l->ready[best]));
    l->now++;
}

// Schedules one segment; times of the nodes run on through all segments.
static void list_segment(List *l, const uint32_t *nodes, uint32_t count) {
    l->segment_start = l->now;
    l->left = count;
    // Only those that wait for nobody: the others begin when their last predecessor ends.
    for (uint32_t k = 0; k < count; k++) l->g->nodes[nodes[k]].at = UINT32_MAX;
    for (uint32_t k = 0; k < count && !l->g->failed; k++) {
        Node *n = &l->g->nodes[nodes[k]];
        if (!n->waiting && n->at == UINT32_MAX) begin(l, nodes[k]);
    }
    while (l->left && !l->g->failed) step(l);
    l->segment->length = l->now - l->segment_start;
    l->segment->drain = l->last_result > l->now ? l->last_result - l->now : 0;
}

// What a load's latency counts for when instructions are ranked: early, before all else.
enum { LOAD_RANK = 100, FIRST_RANK = 1 << 30 };

// The longest way from each node to the end of the block. Edges lead forward.
static void rank(BlockGraph *g) {
    for (uint32_t n = g->count; n-- > 0;) {
        Node *node = &g->nodes[n];
        uint32_t own = 0, behind = 0;
        for (int s = 0; s < node->expansion.stage_count; s++) {
            const Stage *stage = &node->expansion.stages[s];
            own += count_of(&node->expansion, stage) - 1;
            if (s + 1 < node->expansion.stage_count) own += g->timing->op[stage->op].latency;
        }
        if (node->expansion.wait == WAIT_RESULT) own += LOAD_RANK;
        for (int e = node->first_edge; e >= 0; e = g->edges[e].next) {
            uint32_t way = g->edges[e].latency + g->nodes[g->edges[e].to].height;
            if (way > behind) behind = way;
        }
        node->height = own + (behind ? behind : result_latency(g, &node->expansion));
        // A segment begins with the instruction that waits.
        if (node->expansion.wait == WAIT_HERE || node->expansion.wait == WAIT_QUEUE)
            node->height += FIRST_RANK;
    }
}

void block_list(BlockGraph *g) {
    rank(g);
    List l = {.g = g, .coming = {.before = earlier}};
    for (int u = 0; u < UNIT_COUNT; u++) l.ready[u].before = higher;
    // The nodes by segment.
    uint32_t *first = calloc(g->segment_count + 1, sizeof *first);
    uint32_t *nodes = calloc(g->count + 1, sizeof *nodes);
    g->failed |= !first || !nodes;
    for (uint32_t n = 0; n < g->count && !g->failed; n++) first[g->nodes[n].segment + 1]++;
    for (uint32_t s = 0; s < g->segment_count && !g->failed; s++) first[s + 1] += first[s];
    for (uint32_t n = 0; n < g->count && !g->failed; n++)
        nodes[first[g->nodes[n].segment]++] = n; // now first[s] is the end of s
    for (uint32_t s = 0, at = 0; s < g->segment_count && !g->failed; s++) {
        l.segment = &g->segments[s];
        l.segment_number = s;
        list_segment(&l, nodes + at, first[s] - at);
        at = first[s];
    }
    free(first);
    free(nodes);
    free(l.coming.tasks);
    for (int u = 0; u < UNIT_COUNT; u++) free(l.ready[u].tasks);
}
