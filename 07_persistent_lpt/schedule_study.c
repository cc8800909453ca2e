// Simulates schedules: a heap of workers by when they need something next, and an L2 as a list of
// what was used last. Every block of keys that a tile reads is one step of the simulation.
#include "schedule_study.h"

#include <stdio.h>
#include <stdlib.h>

#include "schedule.h"

static const char *const names[STUDY_SCHEDULES][2] = {
    [STUDY_STATIC] = {"static", "static"},
    [STUDY_IN_ORDER] = {"in order", "in-order"},
    [STUDY_LONGEST_FIRST] = {"LPT", "lpt"},
    [STUDY_L2_SECTIONS] = {"LPT, L2 sections", "l2-sections"},
    [STUDY_BLOCKS] = {"LPT, 2D blocks", "2d-blocks"},
    [STUDY_Z_CURVE] = {"LPT, z-curve", "z-curve"},
};

const char *study_name(StudySchedule schedule) {
    return names[schedule][0];
}
const char *study_key(StudySchedule schedule) {
    return names[schedule][1];
}

static int64_t tiles_of_head(const StudyProblem *p) {
    return tiles_of(p->seqlen_q, p->rows);
}
static int64_t all_heads(const StudyProblem *p) {
    return (int64_t)p->batch * p->heads;
}
static int64_t blocks_of_head(const StudyProblem *p) {
    return tiles_of(p->seqlen_k, p->keys);
}

int64_t study_tiles(const StudyProblem *p) {
    return all_heads(p) * tiles_of_head(p);
}

static int64_t blocks_of(const StudyProblem *p, int64_t tile) {
    return key_blocks_of_tile(tile, p->rows, p->keys, p->seqlen_q, p->seqlen_k, p->window_left,
                              p->window_right);
}

static int64_t cycles_of(const StudyProblem *p, int64_t blocks) {
    return p->tile_cycles + blocks * p->block_cycles;
}

static int64_t longest_cycles(const StudyProblem *p) {
    int64_t most = 0;
    for (int64_t tile = 0; tile < tiles_of_head(p); tile++)
        if (blocks_of(p, tile) > most) most = blocks_of(p, tile);
    return cycles_of(p, most);
}

bool study_possible(const StudyProblem *p, const char **why) {
    const double steps = (double)study_tiles(p) * (double)(blocks_of_head(p) + 1);
    *why = "the study walks every block of keys of every tile, and these are more than 2^28; use a "
           "smaller --seqlen, --batch or --heads";
    return steps <= 0x1p28;
}

// ---- orders: which tile has a place

static LongestTile longest_of(const StudyProblem *p) {
    return longest_tile(p->window_left, p->window_right);
}

static TileOrder order_of(const StudyProblem *p, OrderKind kind) {
    return make_tile_order(kind, p->batch, p->heads, p->kv_heads, tiles_of_head(p),
                           p->seqlen_k * 2 * p->row_bytes, l2_budget(p->l2_bytes), longest_of(p));
}

typedef struct {
    int64_t x, y;
} Point;

// Place `place` of a rectangle that is walked in smaller ones: bands of `band` rows from the top; in
// a band, pieces of `piece` columns from the left; in a piece, row by row. The last ones are smaller.
static Point in_blocks(int64_t place, int64_t width, int64_t height, int64_t piece, int64_t band) {
    const int64_t top = place / (band * width) * band;
    const int64_t rows = height - top < band ? height - top : band;
    place -= top * width;
    const int64_t left = place / (piece * rows) * piece;
    const int64_t columns = width - left < piece ? width - left : piece;
    place -= left * rows;
    return (Point){left + place % columns, top + place / columns};
}

// Place `place` of the rectangle along a z-curve: the quarters of a square one after another, each
// in the same way. The square is the smallest of a power of two that holds the rectangle, and what
// is outside of this counts no place.
static Point in_z_curve(int64_t place, int64_t width, int64_t height) {
    Point point = {0, 0};
    int64_t side = 1;
    while (side < width || side < height) side *= 2;
    for (side /= 2; side > 0; side /= 2) {
        for (int quarter = 0; quarter < 4; quarter++) {
            const int64_t left = width < side ? width : side, top = height < side ? height : side;
            const int64_t columns = quarter % 2 ? width - left : left;
            const int64_t rows = quarter / 2 ? height - top : top;
            if (place >= columns * rows) {
                place -= columns * rows;
                continue;
            }
            point.x += quarter % 2 ? left : 0;
            point.y += quarter / 2 ? top : 0;
            width = columns;
            height = rows;
            break;
        }
    }
    return point;
}

static TileWork tile_at(const StudyProblem *p, StudySchedule schedule, const TileOrder *order,
                        int64_t place) {
    if (schedule < STUDY_BLOCKS) return tile_of(order, place);
    const int64_t heads = all_heads(p), tiles = tiles_of_head(p);
    int64_t section = heads_in_l2(heads, (int64_t)p->batch * p->kv_heads,
                                  p->seqlen_k * 2 * p->row_bytes, l2_budget(p->l2_bytes));
    if (section > heads) section = heads;
    const Point point = schedule == STUDY_BLOCKS
                            ? in_blocks(place, heads, tiles, section, tiles_of(p->workers, section))
                            : in_z_curve(place, heads, tiles);
    const bool backwards = longest_of(p) == LAST_IS_LONGEST;
    return (TileWork){.batch = (int)(point.x / p->heads),
                      .head = (int)(point.x % p->heads),
                      .tile = (int)(backwards ? tiles - 1 - point.y : point.y)};
}

// ---- the L2: what was used longest ago makes room

typedef struct {
    int32_t older, newer; // neighbours; itself: not there
} CacheLine;

typedef struct {
    CacheLine *lines; // the last one is the list's head
    int32_t head;
    int64_t free_bytes;
    int64_t line_bytes[2]; // of a block of K and V, of a tile of Q or O
    int64_t first_row_line;
} Cache;

static void *take(int64_t count, size_t size) {
    void *memory = calloc(count > 0 ? (size_t)count : 1, size);
    if (memory != NULL) return memory;
    fprintf(stderr, "run: no memory for %lld bytes; try a smaller problem\n",
            (long long)count * (long long)size);
    exit(2);
}

static Cache make_cache(const StudyProblem *p) {
    Cache c = {.free_bytes = p->l2_bytes};
    c.line_bytes[0] = p->keys * 2 * p->row_bytes;
    c.line_bytes[1] = p->rows * p->row_bytes;
    c.first_row_line = (int64_t)p->batch * p->kv_heads * blocks_of_head(p);
    c.head = (int32_t)(c.first_row_line + 2 * study_tiles(p));
    c.lines = take(c.head + 1, sizeof *c.lines);
    for (int32_t i = 0; i <= c.head; i++) c.lines[i] = (CacheLine){i, i};
    return c;
}

static int64_t bytes_of(const Cache *c, int32_t line) {
    return c->line_bytes[line >= c->first_row_line];
}

static void unlink_line(Cache *c, int32_t line) {
    CacheLine *l = &c->lines[line];
    c->lines[l->older].newer = l->newer;
    c->lines[l->newer].older = l->older;
    l->older = l->newer = line;
}

// Uses a line: returns the bytes that come from below, 0 on a hit.
static int64_t use(Cache *c, int32_t line) {
    const bool hit = c->lines[line].newer != line;
    if (hit)
        unlink_line(c, line);
    else
        c->free_bytes -= bytes_of(c, line);
    const int32_t newest = c->lines[c->head].older;
    c->lines[line] = (CacheLine){.older = newest, .newer = c->head};
    c->lines[newest].newer = c->lines[c->head].older = line;
    while (c->free_bytes < 0) { // a line that is larger than the L2 goes at once
        const int32_t oldest = c->lines[c->head].newer;
        unlink_line(c, oldest);
        c->free_bytes += bytes_of(c, oldest);
    }
    return hit ? 0 : bytes_of(c, line);
}

// ---- workers: a heap by when each goes on, the lower number first among equals

typedef struct {
    int64_t time;
    int number;
    int64_t place, done; // its tile, and how many of the tile's blocks it has read
    StudyTile tile;
    int64_t last_block; // of the tile's keys: they are read from the last down
} Worker;

static bool earlier(const Worker *a, const Worker *b) {
    return a->time != b->time ? a->time < b->time : a->number < b->number;
}

static void sift_down(Worker **heap, int count, int i) {
    for (;;) {
        int least = i;
        for (int child = 2 * i + 1; child <= 2 * i + 2 && child < count; child++)
            if (earlier(heap[child], heap[least])) least = child;
        if (least == i) return;
        Worker *moved = heap[i];
        heap[i] = heap[least];
        heap[least] = moved;
        i = least;
    }
}

// ---- the simulation

typedef struct {
    const StudyProblem *problem;
    StudySchedule schedule;
    TileOrder order;
    Cache cache;
    int64_t tiles, next; // the counter of places
    int64_t *last_used;  // of each block of K and V: when, or -1
    double held;         // bytes · cycles of the working set
    StudyTile *fates;
    StudyResult result;
} Study;

static int64_t kv_head_index(const StudyProblem *p, const StudyTile *t) {
    return (int64_t)t->batch * p->kv_heads + kv_head_of(t->head, p->heads, p->kv_heads);
}

// The worker takes its next tile at w->time. False: none is left for it.
static bool begin_tile(Study *s, Worker *w) {
    const StudyProblem *p = s->problem;
    w->place = s->schedule == STUDY_STATIC && w->place >= 0 ? w->place + p->workers : s->next++;
    if (w->place >= s->tiles) return false;
    const TileWork work = tile_at(p, s->schedule, &s->order, w->place);
    StudyTile *t = &w->tile;
    *t = (StudyTile){.batch = work.batch,
                     .head = work.head,
                     .tile = work.tile,
                     .worker = w->number,
                     .blocks = blocks_of(p, work.tile),
                     .begin = w->time};
    t->end = w->time + cycles_of(p, t->blocks);
    const int64_t first = (int64_t)t->tile * p->rows;
    const int64_t end = p->seqlen_q - first < p->rows ? p->seqlen_q : first + p->rows;
    w->last_block =
        keys_seen_by_any(first, end - 1, p->seqlen_q, p->seqlen_k, p->window_left, p->window_right)
                .begin /
            p->keys +
        t->blocks - 1;
    w->done = 0;

    StudyResult *r = &s->result;
    r->blocks += t->blocks;
    r->work += t->end - t->begin;
    r->read_bytes += use(&s->cache, (int32_t)(s->cache.first_row_line + 2 * w->place));
    return true;
}

static void end_tile(Study *s, const Worker *w) {
    const StudyTile *t = &w->tile;
    use(&s->cache, (int32_t)(s->cache.first_row_line + 2 * w->place + 1)); // O is written
    if (t->end > s->result.makespan) {
        s->result.makespan = t->end;
        s->result.last = t->end - t->begin;
    }
    if (s->fates != NULL) s->fates[w->place] = *t;
}

// A block of K and V is in the working set for as long as the longest tile takes since it was read.
static void hold(Study *s, int64_t line, int64_t now) {
    const int64_t before = s->last_used[line], since = now - before;
    if (before >= 0) s->held += (double)(since < s->result.longest ? since : s->result.longest);
    s->last_used[line] = now;
}

static int64_t mean_working_set(Study *s) {
    for (int64_t line = 0; line < s->cache.first_row_line; line++)
        if (s->last_used[line] >= 0) hold(s, line, s->result.makespan);
    if (s->result.makespan == 0) return 0;
    return (int64_t)(s->held * (double)s->cache.line_bytes[0] / (double)s->result.makespan);
}

// What the worker does at w->time: reads a block of keys, or ends the tile and takes the next.
// False: it has no more work.
static bool go_on(Study *s, Worker *w) {
    const StudyProblem *p = s->problem;
    const StudyTile *t = &w->tile;
    if (w->done < t->blocks) {
        const int64_t line = kv_head_index(p, t) * blocks_of_head(p) + w->last_block - w->done;
        s->result.kv_bytes += use(&s->cache, (int32_t)line);
        hold(s, line, w->time);
        w->done++;
        w->time = w->done < t->blocks ? w->time + p->block_cycles : t->end;
        return true;
    }
    end_tile(s, w);
    if (!begin_tile(s, w)) return false;
    w->time += w->tile.blocks > 0 ? p->tile_cycles : w->tile.end - w->tile.begin;
    return true;
}

StudyResult study_run(const StudyProblem *p, StudySchedule schedule, StudyTile *tiles) {
    static const OrderKind kinds[] = {
        [STUDY_LONGEST_FIRST] = ORDER_LONGEST_FIRST, [STUDY_L2_SECTIONS] = ORDER_L2};
    Study s = {.problem = p, .schedule = schedule, .tiles = study_tiles(p), .fates = tiles};
    if (s.tiles == 0) return s.result;
    s.order = order_of(p, schedule < STUDY_BLOCKS ? kinds[schedule] : ORDER_AS_IT_COMES);
    s.cache = make_cache(p);
    s.last_used = take(s.cache.first_row_line, sizeof *s.last_used);
    for (int64_t line = 0; line < s.cache.first_row_line; line++) s.last_used[line] = -1;
    s.result.tiles = s.tiles;
    s.result.longest = longest_cycles(p);

    Worker *workers = take(p->workers, sizeof *workers), **heap = take(p->workers, sizeof *heap);
    int count = 0;
    for (int n = 0; n < p->workers; n++) {
        workers[n] = (Worker){.number = n, .place = -1};
        if (!begin_tile(&s, &workers[n])) break; // fewer tiles than workers
        workers[n].time = workers[n].tile.blocks > 0 ? p->tile_cycles : workers[n].tile.end;
        heap[count++] = &workers[n];
    }
    for (int i = count / 2; i-- > 0;) sift_down(heap, count, i);
    while (count > 0) {
        if (!go_on(&s, heap[0])) heap[0] = heap[--count];
        sift_down(heap, count, 0);
    }
    s.result.working_set = mean_working_set(&s);
    s.result.read_bytes += s.result.kv_bytes;
    free(workers);
    free(heap);
    free(s.last_used);
    free(s.cache.lines);
    return s.result;
}

// ---- bounds

int64_t study_bound(const StudyProblem *p, const StudyResult *r) {
    const int64_t shared = r->work / p->workers + (r->work % p->workers != 0);
    return shared > r->longest ? shared : r->longest;
}

double graham_any_order(const StudyProblem *p, const StudyResult *r) {
    return (double)r->work / p->workers + (1 - 1.0 / p->workers) * (double)r->longest;
}

double graham_longest_first(const StudyProblem *p, int64_t best) {
    return (4.0 / 3 - 1 / (3.0 * p->workers)) * (double)best;
}

StudyProblem lecture_example(void) {
    return (StudyProblem){.batch = 2,
                          .heads = 1,
                          .kv_heads = 1,
                          .seqlen_q = 512,
                          .seqlen_k = 512,
                          .window_left = -1,
                          .window_right = 0,
                          .rows = 128,
                          .keys = 128,
                          .workers = 3,
                          .block_cycles = 1,
                          .row_bytes = 256,
                          .l2_bytes = 50 << 20};
}
