// Private to check/definedness.c and check/propagate.c: how undefined values are kept.
#ifndef SOFTGPU_UNDEFINED_H
#define SOFTGPU_UNDEFINED_H

#include "softgpu/check/definedness.h"

struct UndefinedRow {
    uint32_t lanes;
    uint32_t origin; // of the last of them that became undefined: index in origins
};
// A load that read unwritten memory. `some`: of a lane's vector, other elements were written, as
// when a struct is copied with its padding.
struct UndefinedOrigin {
    const Insn *insn;
    uint64_t address;
    Space space;
    bool some;
};
struct Definedness {
    struct UndefinedRow *rows; // by offset in the warp's stack, / 4
    size_t capacity;
    struct UndefinedRow carry; // of add.cc and its kin
    struct UndefinedOrigin *origins;
    uint32_t origin_count, origin_capacity;
    uint32_t stored; // origin of the undefined value last stored to local memory, + 1
};

// The entry at an offset of the stack; of a row (no constant) of the running frame.
struct UndefinedRow *undefined_at(Warp *w, size_t offset);
static inline struct UndefinedRow *undefined_row(Warp *w, Row r) {
    return undefined_at(w, (size_t)(w->frame - w->stack) + r);
}
// Of `lanes`, those of `undefined` become so, the others defined.
void undefined_set(Warp *w, struct UndefinedRow *at, uint32_t lanes, uint32_t undefined,
                   uint32_t origin);
// A finding: `i` uses the value in `lanes`. They count as defined from here on.
void undefined_report(Warp *w, const Insn *i, struct UndefinedRow *at, uint32_t lanes,
                      FindingKind kind, const char *use);

#endif
