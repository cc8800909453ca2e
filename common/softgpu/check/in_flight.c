// Marks on the registers of wgmma (in_flight.h).
//
// A row's mark is found by its place in the warp's stack. `fences` counts wgmma.fence from 1 on; a
// row with that number in `touched` has been touched since the latest.
#include "softgpu/check/in_flight.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/check/tmem_race.h"
#include "softgpu/check/undefined.h"
#include "softgpu/execute/wgmma.h"
#include "softgpu/machine/parts.h"

enum { UNIT = 64 }; // rows of 32 bits begin at multiples of it

typedef struct {
    uint16_t d, a; // operations in flight of which the row is part of D, of A
    bool written;  // ever
    uint32_t touched;
    const Insn *by;
    const Insn *load; // a tcgen05.ld that brings it, until its wait
    uint64_t latest;  // operation of whose D it is part, while d isn't 0
} Mark;

struct InFlight {
    Mark *marks;
    size_t capacity;
    uint32_t fences;
    bool fenced; // there has been one
};

void in_flight_start(Warp *w) {
    struct InFlight *f = w->in_flight;
    if (!w->kernel->in_flight || !(w->sm->gpu->settings->checks & CHECK_SYNC)) {
        in_flight_free(w);
        return;
    }
    if (!f) {
        f = w->in_flight = allocate(sizeof *f);
        *f = (struct InFlight){0};
    }
    if (f->capacity) memset(f->marks, 0, f->capacity * sizeof *f->marks);
    f->fences = 1;
    f->fenced = false;
}

void in_flight_free(Warp *w) {
    if (!w->in_flight) return;
    free(w->in_flight->marks);
    free(w->in_flight);
    w->in_flight = NULL;
}

// Makes room for the stack as it is now.
static void reserve(const Warp *w) {
    struct InFlight *f = w->in_flight;
    size_t need = w->stack_size / UNIT + 1;
    if (need <= f->capacity) return;
    Mark *marks = allocate(need * sizeof *marks);
    memset(marks, 0, need * sizeof *marks);
    if (f->capacity) memcpy(marks, f->marks, f->capacity * sizeof *marks);
    free(f->marks);
    f->marks = marks;
    f->capacity = need;
}

static inline Mark *mark_at(const Warp *w, size_t offset) {
    if (offset / UNIT >= w->in_flight->capacity) reserve(w);
    return &w->in_flight->marks[offset / UNIT];
}

// ---- other instructions

// Is the row at this place of the stack among these of an operation?
static bool holds(const Row *rows, int count, uint32_t frame, size_t offset) {
    for (int k = 0; k < count; k++)
        if (frame + rows[k] == offset) return true;
    return false;
}

// Does an instruction read a row of the running frame?
static bool reads(const Warp *w, const Insn *i, Row r) {
    const struct KernelUses *uses = &w->kernel->uses[i->index];
    for (uint32_t k = uses->first; k < uses->first + uses->count; k++)
        if ((w->kernel->touched[k] & ~(Use)USE_KINDS) == r &&
            (w->kernel->touched[k] & USE_KINDS) != USE_WRITE)
            return true;
    return false;
}

// Records that `i` touches the row, which is one of an operation in flight.
static void report_touch(Warp *w, const Insn *i, size_t offset, bool writes) {
    const Warpgroup *g = wgmma_group(w);
    int me = w->id % WARPGROUP;
    for (uint64_t n = g->warp[me].waited; n < g->warp[me].issued; n++) {
        const WgmmaOp *op = wgmma_op(g, n);
        const WgmmaForm *f = wgmma_form(op->insn);
        bool in_d = holds(op->insn->rows, f->d_count, op->frame[me], offset);
        bool in_a = holds(op->insn->rows + f->d_count, f->a_count, op->frame[me], offset);
        if (!in_d && !in_a) continue;
        bool committed = wgmma_committed(g, w, n);
        finding_pair(
            w, i, -1, FINDING_RACE, op->insn,
            committed
                ? "Put wgmma.wait_group between them, with a number that covers its group; in "
                  "CUDA C also tie the registers to it, so that the compiler can't move uses "
                  "in front of it."
                : "Put wgmma.commit_group behind the last wgmma.mma_async, and then a "
                  "wgmma.wait_group that covers that group.",
            "%s a register of %s of the other instruction, which is still in flight: %s",
            !writes || (in_d && reads(w, i, (Row)(offset - (size_t)(w->frame - w->stack))))
                ? "reads"
                : "writes",
            in_d ? "the accumulator D" : "A",
            committed ? "no wait has covered its group"
                      : "it was never committed to a group, so no wait covers it");
        return;
    }
}

// The same for a register that a tcgen05.ld is still to bring. A GPU waits for the load then, and
// programs count on it: unless strict that is as good as the wait.
static void report_load(Warp *w, const Insn *i, Mark *m, bool writes) {
    bool strict = w->sm->gpu->settings->strict;
    FindingKind kind = strict ? FINDING_RACE : FINDING_LINT;
    const Insn *load = m->load;
    m->load = NULL;
    if (!strict) tmem_race_waited(w, false);
    if (finding_again(w, i, kind)) return;
    finding_pair(w, i, -1, kind, load,
                 "Put tcgen05.wait::ld between them; in CUDA C also tie the registers to it, so "
                 "that the compiler can't move uses in front of it.",
                 "%s a register of the other instruction, which is still in flight: no "
                 "tcgen05.wait::ld has covered it",
                 writes ? "writes" : "reads");
}

void in_flight_touch(Warp *w, const Insn *i, uint32_t mask) {
    (void)mask;
    const struct KernelUses *uses = &w->kernel->uses[i->index];
    const Use *touched = w->kernel->touched + uses->first;
    size_t frame = (size_t)(w->frame - w->stack);
    uint32_t fences = w->in_flight->fences;
    bool strict = w->sm->gpu->settings->strict;
    for (int k = 0; k < uses->count; k++) {
        Row r = touched[k] & ~(Use)USE_KINDS;
        if (r & ROW_CONSTANT || r % UNIT) continue;
        bool writes = (touched[k] & USE_KINDS) == USE_WRITE;
        Mark *m = mark_at(w, frame + r);
        if (m->load) report_load(w, i, m, writes);
        if ((m->d || (writes && m->a)) && !finding_again(w, i, FINDING_RACE))
            report_touch(w, i, frame + r, writes);
        if (!writes && !strict) continue;
        m->touched = fences;
        m->by = i;
        m->written |= writes;
    }
}

// ---- wgmma itself

void in_flight_fence(Warp *w) {
    if (!w->in_flight) return;
    w->in_flight->fences++;
    w->in_flight->fenced = true;
}

// Do two operations of a warp add to the same D in the same shape?
static bool is_chain(const WgmmaOp *op, const WgmmaOp *earlier, int me) {
    const WgmmaForm *f = wgmma_form(op->insn), *e = wgmma_form(earlier->insn);
    return e->n == f->n && e->k == f->k && e->d == f->d && op->frame[me] == earlier->frame[me] &&
           !memcmp(op->insn->rows, earlier->insn->rows, f->d_count * sizeof(Row));
}

// Records that operation n needs registers that an earlier one has in flight.
static void report_overlap(Warp *w, const Warpgroup *g, uint64_t n) {
    int me = w->id % WARPGROUP;
    const WgmmaOp *op = wgmma_op(g, n);
    const WgmmaForm *f = wgmma_form(op->insn);
    const Row *rows = op->insn->rows;
    for (uint64_t k = n; k-- > g->warp[me].waited;) {
        const WgmmaOp *earlier = wgmma_op(g, k);
        const WgmmaForm *e = wgmma_form(earlier->insn);
        const Row *theirs = earlier->insn->rows;
        uint32_t frame = earlier->frame[me];
        bool meets_d = false, meets_a = false, from_d = false;
        for (int r = 0; r < f->d_count; r++) {
            meets_d |= holds(theirs, e->d_count, frame, op->frame[me] + rows[r]);
            meets_a |= holds(theirs + e->d_count, e->a_count, frame, op->frame[me] + rows[r]);
        }
        for (int r = f->d_count; r < f->d_count + f->a_count; r++)
            from_d |= holds(theirs, e->d_count, frame, op->frame[me] + rows[r]);
        meets_d &= !is_chain(op, earlier, me);
        if (!meets_d && !meets_a && !from_d) continue;
        finding_pair(w, op->insn, -1, FINDING_RACE, earlier->insn,
                     "Wait for the earlier one first (wgmma.wait_group).",
                     from_d ? "takes A from registers into which the other instruction, still in "
                              "flight, puts its D"
                     : meets_d
                         ? "adds to registers of the other instruction's D, which is still in "
                           "flight, and has another shape or order of registers: only products of "
                           "one shape on the same D follow each other without a wait"
                         : "puts D into registers from which the other instruction, still in "
                           "flight, takes its A");
        return;
    }
}

// A register was touched since the last fence. By the letter undefined, though compilers put moves
// of constants there.
static void report_unfenced(Warp *w, const Insn *i, Mark *m, bool is_d) {
    finding_pair(
        w, i, -1, w->sm->gpu->settings->strict ? FINDING_RACE : FINDING_LINT, m->by,
        "Put wgmma.fence between them; in CUDA C also tie the registers to it, so that the "
        "compiler can't move their last writes behind it.",
        "uses a register %s that the other instruction has touched, with no wgmma.fence in "
        "between",
        is_d ? "of the accumulator D" : "of A");
    m->touched = 0;
}

void in_flight_issue(Warp *w, const Warpgroup *g, uint64_t n) {
    struct InFlight *flight = w->in_flight;
    const WgmmaOp *op = wgmma_op(g, n);
    const WgmmaForm *f = wgmma_form(op->insn);
    const Row *rows = op->insn->rows;
    uint32_t frame = op->frame[w->id % WARPGROUP];
    if (!flight->fenced)
        finding(w, op->insn, -1, FINDING_RACE, "Put wgmma.fence before the first of a batch.",
                "no wgmma.fence has ordered the registers' earlier uses before it");
    bool overlaps = false, unfenced = false, unwritten = false;
    const Mark *first = mark_at(w, frame + rows[0]);
    uint64_t chain = first->d ? first->latest : n; // the operation that goes before on the same D
    for (int k = 0; k < f->d_count + f->a_count; k++) {
        bool is_d = k < f->d_count;
        Mark *m = mark_at(w, frame + rows[k]);
        overlaps |= is_d ? m->a || (m->d ? m->latest : n) != chain : m->d != 0;
        if (flight->fenced && m->touched == flight->fences && !unfenced) {
            report_unfenced(w, op->insn, m, is_d);
            unfenced = true;
        }
        unwritten |= is_d && op->accumulates && !m->written;
        if (w->undefined_rows && !is_d && definedness_lanes(w, rows[k]))
            undefined_report(w, op->insn, undefined_row(w, rows[k]), definedness_lanes(w, rows[k]),
                             FINDING_UNINITIALISED, "multiplies");
    }
    if (unwritten)
        finding(w, op->insn, -1, FINDING_UNINITIALISED,
                "Pass scale-d = 0 to the first product of a chain, or set D to zero before.",
                "adds to an accumulator D that nothing has written (scale-d is true)");
    if (chain != n) overlaps |= !is_chain(op, wgmma_op(g, chain), w->id % WARPGROUP);
    if (overlaps) report_overlap(w, g, n);
    for (int k = 0; k < f->d_count + f->a_count; k++) {
        Mark *m = mark_at(w, frame + rows[k]);
        if (k < f->d_count) {
            m->d++;
            m->latest = n;
            m->written = true;
        } else {
            m->a++;
        }
    }
}

void in_flight_release(Warp *w, const Warpgroup *g, uint64_t n) {
    const WgmmaOp *op = wgmma_op(g, n);
    const WgmmaForm *f = wgmma_form(op->insn);
    uint32_t frame = op->frame[w->id % WARPGROUP];
    for (int k = 0; k < f->d_count + f->a_count; k++) {
        Mark *m = mark_at(w, frame + op->insn->rows[k]);
        if (k < f->d_count)
            m->d--;
        else
            m->a--;
    }
}

// ---- tcgen05.ld

void in_flight_load(Warp *w, const Insn *i) {
    size_t frame = (size_t)(w->frame - w->stack);
    for (int k = 0; k < i->row_count; k++) mark_at(w, frame + i->rows[k])->load = i;
}

void in_flight_loaded(Warp *w, const TensorMove *move) {
    for (int k = 0; k < move->insn->row_count; k++)
        mark_at(w, move->frame + move->insn->rows[k])->load = NULL;
}
