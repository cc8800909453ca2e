// What is known of a warp's undefined values, and what is found out about their use
// (definedness.h). The rules by which instructions pass them on are in propagate.c.
//
// Each row of the warp's stack has an entry at its offset / 4; .param storage has one for each byte
// of the variable, from that of its first byte on (a variable of b bytes takes 32 b of the frame,
// so there is room).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/bits.h"
#include "softgpu/check/findings.h"
#include "softgpu/check/undefined.h"

static const char *const MEND = "Write that memory first, or don't use what is read from it.";

// Records a use of an undefined value.
static void report(Warp *w, const Insn *i, int lane, FindingKind kind, const char *use,
                   const struct UndefinedOrigin *o) {
    finding_pair(w, i, lane, kind, o->insn, MEND,
                 "%s a value that was never written: the other instruction read it from %s memory, "
                 "first at 0x%llx",
                 use, o->space == SPACE_LOCAL ? "its local" : "shared",
                 (unsigned long long)o->address);
}

bool definedness_follows(const Warp *w, const Insn *i) {
    const Kernel *k = w->kernel;
    if (w->sm->gpu->settings->strict || !k || !k->uses) return false;
    return k->uses[i->index].rule == USES_LOAD || k->uses[i->index].rule == USES_EXCHANGE;
}

// ---- entries

// Makes room for the stack as it is now.
static void reserve(Warp *w) {
    struct Definedness *d = w->undefined;
    size_t need = w->stack_size / 4;
    if (d && need <= d->capacity) return;
    struct UndefinedRow *rows = calloc(need, sizeof *rows);
    if (!d) d = w->undefined = calloc(1, sizeof *d);
    if (!d || !rows) {
        fprintf(stderr, "softgpu: out of memory while following undefined values\n");
        abort();
    }
    if (d->capacity) memcpy(rows, d->rows, d->capacity * sizeof *rows);
    free(d->rows);
    d->rows = rows;
    d->capacity = need;
}

struct UndefinedRow *undefined_at(Warp *w, size_t offset) {
    if (!w->undefined || offset / 4 >= w->undefined->capacity) reserve(w);
    return &w->undefined->rows[offset / 4];
}

void undefined_set(Warp *w, struct UndefinedRow *at, uint32_t lanes, uint32_t undefined,
                   uint32_t origin) {
    uint32_t now = (at->lanes & ~lanes) | (undefined & lanes);
    if (now == at->lanes && !(undefined & lanes)) return;
    w->undefined_rows += (uint32_t)(now != 0) - (uint32_t)(at->lanes != 0);
    at->lanes = now;
    if (undefined & lanes) at->origin = origin;
}

uint32_t definedness_lanes(const Warp *w, Row r) {
    if (r & ROW_CONSTANT || r == ROW_NONE || !w->undefined) return 0;
    size_t at = (size_t)(w->frame - w->stack + r) / 4;
    return at < w->undefined->capacity ? w->undefined->rows[at].lanes : 0;
}

void definedness_start(Warp *w) {
    struct Definedness *d = w->undefined;
    if (!d) return;
    if (w->undefined_rows) memset(d->rows, 0, d->capacity * sizeof *d->rows);
    w->undefined_rows = 0;
    d->carry = (struct UndefinedRow){0};
    d->origin_count = 0;
    d->stored = 0;
}

void definedness_free(Warp *w) {
    if (!w->undefined) return;
    free(w->undefined->rows);
    free(w->undefined->origins);
    free(w->undefined);
    w->undefined = NULL;
}

// ---- origins

// The number of the origin "this load", which is new or known.
static uint32_t origin_of(Warp *w, const Insn *i, Space space, uint64_t address, bool some) {
    struct Definedness *d = w->undefined;
    for (uint32_t k = 0; k < d->origin_count; k++)
        if (d->origins[k].insn == i && d->origins[k].some == some) return k;
    if (d->origin_count == d->origin_capacity) {
        d->origin_capacity = d->origin_capacity ? 2 * d->origin_capacity : 8;
        d->origins = realloc(d->origins, d->origin_capacity * sizeof *d->origins);
        if (!d->origins) abort();
    }
    d->origins[d->origin_count] = (struct UndefinedOrigin){i, address, space, some};
    return d->origin_count++;
}

void definedness_load(Warp *w, const Insn *i, const uint32_t lanes[LOAD_ELEMENTS], Space space,
                      uint64_t address, uint32_t some) {
    reserve(w);
    const struct KernelUses *uses = &w->kernel->uses[i->index];
    uint32_t before = w->undefined_rows;
    for (int k = 0; k < i->row_count && k < LOAD_ELEMENTS; k++) {
        if (!lanes[k]) continue;
        bool kept = false; // else the destination is a sink
        for (uint32_t u = uses->first; u < uses->first + uses->count; u++)
            kept |= w->kernel->touched[u] == (i->rows[k] | USE_WRITE);
        if (!kept) continue;
        uint32_t in_part = lanes[k] & some, wholly = lanes[k] & ~some;
        struct UndefinedRow *at = undefined_row(w, i->rows[k]);
        if (in_part) undefined_set(w, at, in_part, in_part, origin_of(w, i, space, address, true));
        if (wholly) undefined_set(w, at, wholly, wholly, origin_of(w, i, space, address, false));
    }
    // The ordinary loop looks at `stop` before each instruction: there it learns of this.
    if (!before && w->undefined_rows) w->stop = i + 1;
}

// ---- findings

void undefined_report(Warp *w, const Insn *i, struct UndefinedRow *at, uint32_t lanes,
                      FindingKind kind, const char *use) {
    report(w, i, __builtin_ctz(lanes), kind, use, &w->undefined->origins[at->origin]);
    undefined_set(w, at, lanes, 0, 0);
}

void definedness_printed(Warp *w, const Insn *i, int lane, uint64_t offset, unsigned size) {
    if (!w->local_written || offset + size > w->local_stride) return;
    if (bits_any(w->local_written, (uint64_t)lane * w->local_stride + offset, size)) return;
    const struct Definedness *d = w->undefined;
    if (!d || !d->stored) return; // strict, or an argument that the format asks for in vain
    report(w, i, lane, FINDING_UNINITIALISED, "prints", &d->origins[d->stored - 1]);
}
