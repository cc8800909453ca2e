// Dependences of a block's instructions, and the segments that they fall into.
//
// Only true dependences count: a row written again is another register to ptxas, which allocates
// its own. Memory keeps its order where two accesses may meet: a store stays behind the loads
// before it, a load behind the stores, in the same space or if one is generic.
#include <stdlib.h>
#include <string.h>

#include "softgpu/timing/block_parts.h"

enum { NO_NODE = -1 };

void *block_grow(BlockGraph *g, void *array, uint32_t count, uint32_t *capacity, size_t element) {
    if (count < *capacity) return array;
    uint32_t larger = *capacity ? 2 * *capacity : 64;
    void *grown = realloc(array, larger * element);
    if (!grown) {
        g->failed = true;
        return array;
    }
    *capacity = larger;
    return grown;
}

// ---- registers

void each_use(BlockGraph *g, uint32_t node, VisitUse *visit) {
    const Kernel *k = g->kernel;
    const Insn *i = g->nodes[node].insn;
    if (i->guard != ROW_NONE) visit(g, node, i->guard, USE_READ);
    if (k->uses) {
        const struct KernelUses *u = &k->uses[i->index];
        for (int n = 0; n < u->count; n++) {
            Use use = k->touched[u->first + (uint32_t)n];
            visit(g, node, use & ~(Use)USE_KINDS, (int)(use & USE_KINDS));
        }
        return;
    }
    // Made by hand: the fields tell. Sources first, as in the lists.
    const Row sources[] = {i->a, i->b, i->c, i->e};
    for (size_t s = 0; s < sizeof sources / sizeof *sources; s++)
        if (sources[s] != ROW_NONE && !(sources[s] & ROW_CONSTANT))
            visit(g, node, sources[s], USE_READ);
    if (i->d != ROW_NONE) visit(g, node, i->d, USE_WRITE);
}

// The node that wrote a row last in this block, or NO_NODE.
static int writer_of(const BlockGraph *g, Row row) {
    uint32_t at = row / 4;
    if (at >= g->row_limit || g->writer_stamp[at] != g->stamp) return NO_NODE;
    return (int)g->writer[at];
}

static void note_writer(BlockGraph *g, uint32_t node, Row row, int kind) {
    if (kind != USE_WRITE || row / 4 >= g->row_limit) return;
    g->writer[row / 4] = node;
    g->writer_stamp[row / 4] = g->stamp;
}

// ---- what ptxas merges

static bool plain(const Node *n) {
    return n->insn->guard == ROW_NONE && !n->merged && !n->absorbs;
}

// An operation on two 32-bit integers of LOP3's kind.
static bool is_logic(const char *text) {
    return (text_is(text, "and") || text_is(text, "or") || text_is(text, "xor")) &&
           text_has(text, "b32");
}
static bool is_add_32(const char *text) {
    bool adds = text_is(text, "add") || text_is(text, "sub");
    return adds && (text_has(text, "s32") || text_has(text, "u32") || text_has(text, "b32"));
}
static bool is_extreme(const char *text) {
    return text_is(text, "max") || text_is(text, "min");
}
static bool by_constant(const Insn *i) {
    return i->b != ROW_NONE && i->b & ROW_CONSTANT;
}

// Does one machine instruction do the work of `producer` and of `text`, which reads its result?
static bool merges(const BlockGraph *g, const Node *producer, const char *text) {
    const char *first = producer->text;
    if (is_add_32(text)) {
        bool left = text_is(text, "add");
        return is_add_32(first) ||                                             // IADD3
               (text_is(first, "mul") && text_has(first, "lo") &&              // IMAD
                (text_has(first, "s32") || text_has(first, "u32"))) ||         //
               (left && text_is(first, "shl") && by_constant(producer->insn)); // LEA
    }
    if (text_is(text, "add") && (text_has(text, "s64") || text_has(text, "u64")))
        return (text_is(first, "mul") && text_has(first, "wide")) || // IMAD.WIDE
               (text_is(first, "shl") && text_has(first, "b64") && by_constant(producer->insn));
    if (is_logic(text)) return is_logic(first); // LOP3
    if (text_is(text, "mov"))                   // F2FP places its half
        return text_is(first, "cvt") && (text_has(first, "f16") || text_has(first, "bf16"));
    if (is_extreme(text)) {
        int capability = g->figures->capability_major;
        bool same = !strcmp(first, text);
        if (text_has(text, "f32")) return same && capability >= 10; // FMNMX3
        if (text_has(text, "s32") || text_has(text, "u32")) return same && capability >= 9;
    }
    return false;
}

static void try_merge(BlockGraph *g, uint32_t node, Row row, int kind) {
    Node *n = &g->nodes[node];
    if (kind != USE_READ || !plain(n)) return;
    int from = writer_of(g, row);
    if (from == NO_NODE) return;
    Node *producer = &g->nodes[from];
    if (producer->readers != 1 || !plain(producer) || !merges(g, producer, n->text)) return;
    producer->absorbs = true;
    n->merged = true;
}

// An address plus a constant goes into the accesses' offset.
static bool is_offset(const Node *n) {
    const Insn *i = n->insn;
    bool adds = text_is(n->text, "add") && !text_has(n->text, "f32") && !text_has(n->text, "f64");
    bool constant = by_constant(i) || (i->a != ROW_NONE && i->a & ROW_CONSTANT);
    return adds && constant && plain(n) && n->readers > 0 && n->readers == n->addresses;
}

// ---- dependences

static void add_edge(BlockGraph *g, uint32_t from, uint32_t to, uint32_t latency) {
    uint32_t capacity = (uint32_t)g->edge_capacity;
    g->edges = block_grow(g, g->edges, (uint32_t)g->edge_count, &capacity, sizeof *g->edges);
    g->edge_capacity = (int)capacity;
    if (g->failed) return;
    g->edges[g->edge_count] = (Edge){to, latency, g->nodes[from].first_edge};
    g->nodes[from].first_edge = g->edge_count++;
    g->nodes[to].waiting++;
}

static const Stage *last_stage(const Expansion *e) {
    return e->stage_count ? &e->stages[e->stage_count - 1] : NULL;
}

uint32_t result_latency(const BlockGraph *g, const Expansion *e) {
    const Stage *s = last_stage(e);
    if (!s || e->wait == WAIT_RESULT) return 0;
    return e->latency ? e->latency : g->timing->op[s->op].latency;
}

// Which side of the SM an operation works on: results change sides a cycle later.
static int side_of(const Stage *s) {
    if (!s) return 0;
    switch (s->op) {
    case OP_FMA:
    case OP_FMA2:
    case OP_HALF:
    case OP_IMAD:
    case OP_IMAD_HI: return 1;
    case OP_ALU:
    case OP_COMPARE: return 2;
    default: return 0;
    }
}

// Cycles from a node's last machine instruction to the first of one that reads its result.
static uint32_t latency_between(const BlockGraph *g, const Node *from, const Node *to, bool guard) {
    uint32_t latency = result_latency(g, &from->expansion);
    if (from->expansion.wait == WAIT_RESULT) return 0; // the segment waits
    if (guard) {
        uint32_t guarded = (uint32_t)g->timing->guard;
        return from->expansion.stage_count ? guarded : guarded - g->timing->op[OP_COMPARE].latency;
    }
    int side = side_of(last_stage(&from->expansion));
    int other = to->expansion.stage_count ? side_of(to->expansion.stages) : 0;
    if (side && other && side != other) latency += (uint32_t)g->timing->other_side;
    if (from->predicate && from->expansion.stage_count) latency++;
    return latency;
}

static void read_edge(BlockGraph *g, uint32_t node, Row row, int kind) {
    if (kind == USE_WRITE) return;
    int from = writer_of(g, row);
    if (from == NO_NODE || from == (int)node) return;
    Node *producer = &g->nodes[from], *n = &g->nodes[node];
    bool guard = row == n->insn->guard && producer->predicate;
    add_edge(g, (uint32_t)from, node, latency_between(g, producer, n, guard));
}

// A guarded instruction keeps what the row held in the other lanes.
static void merge_edge(BlockGraph *g, uint32_t node, Row row, int kind) {
    if (kind == USE_WRITE) read_edge(g, node, row, USE_READ);
}

static void count_reader(BlockGraph *g, uint32_t node, Row row, int kind) {
    if (kind == USE_WRITE) return;
    int from = writer_of(g, row);
    if (from == NO_NODE || from == (int)node) return;
    Node *producer = &g->nodes[from];
    producer->readers++;
    producer->addresses += kind == USE_ADDRESS;
    if (producer->first_use == UINT32_MAX) producer->first_use = node;
}

static bool writes_predicate(const char *text) {
    return text_is(text, "setp") || text_has(text, "pred") || text_is(text, "isspacep") ||
           text_is(text, "testp") || text_is(text, "elect") || text_has(text, "try_wait") ||
           text_has(text, "test_wait");
}

// ---- memory

typedef enum { TOUCHES_NOT, READS, WRITES } Touch;

static Touch touches(const Node *n) {
    if (n->insn->pipe != PIPE_LSU) return TOUCHES_NOT;
    if (text_has(n->text, "nc") || text_is(n->text, "shfl")) return TOUCHES_NOT;
    if (text_has(n->text, "param") || text_has(n->text, "const")) return TOUCHES_NOT;
    if (text_is(n->text, "st") || text_is(n->text, "stmatrix") || text_is(n->text, "red") ||
        text_is(n->text, "atom") || text_is(n->text, "cp") || text_is(n->text, "mbarrier"))
        return WRITES;
    return READS;
}

// 1 shared, 2 global and local, 3 both: generic addresses and copies.
static int places(const Node *n) {
    if (text_is(n->text, "ldmatrix") || text_is(n->text, "stmatrix")) return 1;
    bool shared = text_has(n->text, "shared") || text_has(n->text, "shared::cta") ||
                  text_has(n->text, "shared::cluster");
    bool global = text_has(n->text, "global") || text_has(n->text, "local");
    return shared && !global ? 1 : global && !shared ? 2 : 3;
}

// Keeps accesses behind those before that they must not overtake; the last writer of each place and
// the readers since are enough.
static void order_memory(BlockGraph *g, uint32_t node, int last_write[2], int last_read[2]) {
    Touch touch = touches(&g->nodes[node]);
    if (touch == TOUCHES_NOT) return;
    int where = places(&g->nodes[node]);
    for (int p = 0; p < 2; p++) {
        if (!(where >> p & 1)) continue;
        if (last_write[p] != NO_NODE) add_edge(g, (uint32_t)last_write[p], node, 0);
        if (touch == WRITES) {
            // Reads are ordered among themselves only by their issue: the last one stands for all.
            if (last_read[p] != NO_NODE) add_edge(g, (uint32_t)last_read[p], node, 0);
            last_write[p] = (int)node;
            last_read[p] = NO_NODE;
        } else {
            last_read[p] = (int)node;
        }
    }
}

// ---- segments

// The first waits of each segment are keyed by the number of the instruction that waits; a node's
// key is the largest of those it depends on.
typedef struct {
    uint32_t key;
    WaitedRow row;
} Waited;

typedef struct {
    BlockGraph *g;
    uint32_t *keys; // per node: 0 for none, else 1 + the number of the instruction
    Waited *waited;
    uint32_t waited_count, waited_capacity;
    uint32_t hard; // key of the last instruction at which nothing passes
} Keys;
static _Thread_local Keys *keys_now; // VisitUse has no room for it

static void note_waited(Keys *k, uint32_t key, Row row, uint32_t from) {
    k->waited =
        block_grow(k->g, k->waited, k->waited_count, &k->waited_capacity, sizeof *k->waited);
    if (!k->g->failed) k->waited[k->waited_count++] = (Waited){key, {row, from}};
}

static void raise_key(BlockGraph *g, uint32_t node, Row row, int kind) {
    Keys *k = keys_now;
    if (kind == USE_WRITE && g->nodes[node].insn->guard == ROW_NONE) return;
    uint32_t *mine = &k->keys[node], key = 0;
    int from = writer_of(g, row);
    if (from == (int)node) return;
    if (from != NO_NODE) {
        const Node *producer = &g->nodes[from];
        key = k->keys[from];
        if (producer->expansion.wait == WAIT_RESULT) {
            key = producer->first_use + 1 > key ? producer->first_use + 1 : key;
            if (producer->first_use == node) note_waited(k, node + 1, row, producer->insn->index);
        }
    } else if (row / 4 < g->row_limit && g->loaded[row / 4]) {
        // Perhaps still on its way from another block: its first reader waits.
        if (g->pending_stamp[row / 4] != g->stamp) {
            g->pending_stamp[row / 4] = g->stamp;
            g->pending_key[row / 4] = node + 1;
            note_waited(k, node + 1, row, LOAD_ELSEWHERE);
        }
        key = g->pending_key[row / 4];
    }
    if (key > *mine) *mine = key;
}

static int by_key(const void *a, const void *b) {
    const Waited *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    if (x->row.row != y->row.row) return x->row.row < y->row.row ? -1 : 1;
    return x->row.from < y->row.from ? -1 : x->row.from > y->row.from;
}

static Segment *new_segment(BlockGraph *g) {
    g->segments =
        block_grow(g, g->segments, g->segment_count, &g->segment_capacity, sizeof *g->segments);
    if (g->failed) return NULL;
    Segment *s = &g->segments[g->segment_count++];
    *s = (Segment){.first_row = g->row_count};
    return s;
}

// Makes the segments of the keys in use, in their order, and gives the nodes their numbers.
static void make_segments(BlockGraph *g, Keys *k) {
    uint32_t *number = calloc(g->count + 2, sizeof *number); // by key: 1 + segment
    if (!number) {
        g->failed = true;
        return;
    }
    for (uint32_t n = 0; n < g->count; n++) number[k->keys[n]] = 1;
    if (k->waited_count) qsort(k->waited, k->waited_count, sizeof *k->waited, by_key);
    uint32_t w = 0;
    for (uint32_t key = 0; key <= g->count && !g->failed; key++) {
        if (!number[key]) continue;
        Segment *s = new_segment(g);
        if (!s) break;
        number[key] = g->segment_count;
        while (w < k->waited_count && k->waited[w].key < key) w++;
        if (key) {
            const Node *first = &g->nodes[key - 1];
            WaitKind wait = (WaitKind)first->expansion.wait;
            s->wait = wait == WAIT_HERE || wait == WAIT_QUEUE ? (uint8_t)wait : WAIT_RESULT;
            s->insn = first->insn->index;
        }
        for (; w < k->waited_count && k->waited[w].key == key; w++) {
            if (w && !by_key(&k->waited[w - 1], &k->waited[w])) continue;
            g->rows = block_grow(g, g->rows, g->row_count, &g->row_capacity, sizeof *g->rows);
            if (g->failed) break;
            g->rows[g->row_count++] = k->waited[w].row;
            s->row_count++;
        }
    }
    for (uint32_t n = 0; n < g->count && !g->failed; n++)
        g->nodes[n].segment = number[k->keys[n]] - 1;
    free(number);
}

// Finds what each instruction has to wait for, and cuts the block into segments.
static void cut(BlockGraph *g) {
    Keys k = {.g = g, .keys = calloc(g->count + 1, sizeof *k.keys)};
    if (!k.keys) {
        g->failed = true;
        return;
    }
    keys_now = &k;
    // Keys of the last write to each place, and of it and the reads since.
    uint32_t written[2] = {0, 0}, touched[2] = {0, 0}, largest = 0;
    g->stamp++;
    for (uint32_t n = 0; n < g->count && !g->failed; n++) {
        const Node *node = &g->nodes[n];
        uint32_t *key = &k.keys[n];
        WaitKind wait = (WaitKind)node->expansion.wait;
        *key = k.hard;
        each_use(g, n, raise_key);
        Touch touch = touches(node);
        int where = touch == TOUCHES_NOT ? 0 : places(node);
        for (int p = 0; p < 2; p++) {
            uint32_t before = touch == WRITES ? touched[p] : written[p];
            if (where >> p & 1 && before > *key) *key = before;
        }
        if (wait == WAIT_HERE || wait == WAIT_QUEUE) k.hard = *key = n + 1;
        if (wait == WAIT_CONTROL && largest > *key) *key = largest;
        for (int p = 0; p < 2; p++) {
            if (!(where >> p & 1)) continue;
            if (*key > touched[p]) touched[p] = *key;
            if (touch == WRITES) written[p] = *key;
        }
        if (*key > largest) largest = *key;
        each_use(g, n, note_writer);
    }
    if (!g->failed) make_segments(g, &k);
    keys_now = NULL;
    free(k.keys);
    free(k.waited);
}

// ---- the whole graph

static void open_nodes(BlockGraph *g) {
    while (g->node_capacity < g->count) {
        uint32_t capacity = g->node_capacity ? 2 * g->node_capacity : 256;
        Node *grown = realloc(g->nodes, capacity * sizeof *grown);
        if (!grown) {
            g->failed = true;
            return;
        }
        g->nodes = grown;
        g->node_capacity = capacity;
    }
    for (uint32_t n = 0; n < g->count; n++) {
        const Insn *i = &g->kernel->code[g->first + n];
        const char *text =
            g->kernel->texts && g->kernel->texts[i->index] ? g->kernel->texts[i->index] : "";
        g->nodes[n] = (Node){.insn = i,
                             .text = text,
                             .first_use = UINT32_MAX,
                             .first_edge = NO_NODE,
                             .predicate = writes_predicate(text)};
        g->nodes[n].expansion = expand(i, text, g->figures, g->timing);
    }
}

// Goes over the block in order, with the last writers of all rows at hand.
static void in_order(BlockGraph *g, VisitUse *visit) {
    g->stamp++;
    for (uint32_t n = 0; n < g->count; n++) {
        each_use(g, n, visit);
        each_use(g, n, note_writer);
    }
}

void block_graph(BlockGraph *g, uint32_t first, uint32_t count) {
    g->first = first;
    g->count = count;
    g->edge_count = 0;
    g->segment_count = 0;
    open_nodes(g);
    if (g->failed) return;
    in_order(g, count_reader);
    in_order(g, try_merge);
    for (uint32_t n = 0; n < count; n++) {
        Node *node = &g->nodes[n];
        if (is_offset(node)) node->merged = true;
        if (node->merged) node->expansion.stage_count = 0;
    }
    g->stamp++;
    int last_write[2] = {NO_NODE, NO_NODE}, last_read[2] = {NO_NODE, NO_NODE};
    for (uint32_t n = 0; n < count && !g->failed; n++) {
        each_use(g, n, read_edge);
        if (g->nodes[n].insn->guard != ROW_NONE) each_use(g, n, merge_edge);
        order_memory(g, n, last_write, last_read);
        if (g->nodes[n].expansion.wait == WAIT_CONTROL) // all else stands before it
            for (uint32_t m = 0; m < n && !g->failed; m++) add_edge(g, m, n, 0);
        each_use(g, n, note_writer);
    }
    if (!g->failed) cut(g);
    if (!g->failed) block_delay(g);
}
