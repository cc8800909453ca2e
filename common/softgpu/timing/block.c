// The schedules of a kernel's blocks.
#include "softgpu/timing/block.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/timing/block_parts.h"

// ---- what the whole kernel tells: how many rows there are, and which of them loads write

static void widen(BlockGraph *g, uint32_t node, Row row, int kind) {
    (void)node, (void)kind;
    if (row / 4 >= g->row_limit) g->row_limit = row / 4 + 1;
}

static void note_loaded(BlockGraph *g, uint32_t node, Row row, int kind) {
    if (kind == USE_WRITE && g->nodes[node].expansion.wait == WAIT_RESULT) g->loaded[row / 4] = 1;
}

static bool survey(BlockGraph *g) {
    const Kernel *k = g->kernel;
    Node one = {0};
    g->nodes = &one;
    for (uint32_t i = 0; i < k->code_count; i++) {
        one.insn = &k->code[i];
        each_use(g, 0, widen);
    }
    size_t rows = g->row_limit ? g->row_limit : 1;
    g->writer = calloc(rows, sizeof *g->writer);
    g->writer_stamp = calloc(rows, sizeof *g->writer_stamp);
    g->pending_key = calloc(rows, sizeof *g->pending_key);
    g->pending_stamp = calloc(rows, sizeof *g->pending_stamp);
    g->loaded = calloc(rows, 1);
    bool ok = g->writer && g->writer_stamp && g->pending_key && g->pending_stamp && g->loaded;
    for (uint32_t i = 0; i < k->code_count && ok; i++) {
        one.insn = &k->code[i];
        const char *text = k->texts && k->texts[i] ? k->texts[i] : "";
        one.expansion = expand(one.insn, text, g->figures, g->timing);
        each_use(g, 0, note_loaded);
    }
    g->nodes = NULL;
    return ok;
}

// ---- blocks

// Schedules the block [first, first + count) and appends it.
static void add_block(KernelSchedule *s, BlockGraph *g, uint32_t first, uint32_t count) {
    block_graph(g, first, count);
    if (!g->failed) block_list(g);
    if (g->failed) return;
    BlockSchedule *b = &s->blocks[s->block_count];
    *b = (BlockSchedule){.first = first,
                         .count = count,
                         .first_segment = s->segment_count,
                         .segment_count = g->segment_count};
    size_t segments = s->segment_count + g->segment_count;
    Segment *grown = realloc(s->segments, (segments + 1) * sizeof *grown);
    if (!grown) {
        g->failed = true;
        return;
    }
    s->segments = grown;
    for (uint32_t n = 0; n < g->segment_count; n++) {
        s->segments[s->segment_count++] = g->segments[n];
        b->issue += g->segments[n].issue;
        b->length += g->segments[n].length;
    }
    for (uint32_t n = 0; n < count; n++) {
        s->slots[first + n] = (Slot){g->nodes[n].segment, g->nodes[n].at};
        s->block_of[first + n] = s->block_count;
    }
    s->block_count++;
}

static void graph_free(BlockGraph *g) {
    free(g->nodes);
    free(g->edges);
    free(g->segments);
    free(g->rows);
    free(g->writer);
    free(g->writer_stamp);
    free(g->pending_key);
    free(g->pending_stamp);
    free(g->loaded);
}

KernelSchedule *kernel_schedule(const Kernel *kernel, const GpuFigures *f, const GpuTiming *t) {
    uint32_t count = kernel->code_count;
    KernelSchedule *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    BlockGraph g = {.kernel = kernel, .figures = f, .timing = t};
    s->blocks = calloc(count + 1, sizeof *s->blocks);
    s->block_of = calloc(count + 1, sizeof *s->block_of);
    s->slots = calloc(count + 1, sizeof *s->slots);
    g.failed = !s->blocks || !s->block_of || !s->slots || !survey(&g);
    for (uint32_t first = 0, end; first < count && !g.failed; first = end) {
        end = first + 1;
        while (end < count && !(kernel->code[end].flags & INSN_LEADER)) end++;
        add_block(s, &g, first, end - first);
    }
    s->rows = g.rows;
    s->row_count = g.row_count;
    g.rows = NULL;
    bool failed = g.failed;
    graph_free(&g);
    if (!failed) return s;
    kernel_schedule_free(s);
    return NULL;
}

void kernel_schedule_free(KernelSchedule *s) {
    if (!s) return;
    free(s->blocks);
    free(s->block_of);
    free(s->slots);
    free(s->segments);
    free(s->rows);
    free(s);
}
