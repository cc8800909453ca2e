// Operations between the lanes of a warp (PTX ISA 9.7.9.6, 9.7.13): shfl, vote, match, redux,
// activemask, elect, bar.warp.sync.
//
// A .sync instruction names the lanes that take part in a mask. Lanes may stand together and yet
// name different masks, as the halves of a warp do that work on their own: the mask of each lane
// must hold the lane itself, and all live lanes of a mask must come with the same mask. Every
// handler below therefore works lane by lane on the lane's own mask.
#include "softgpu/check/definedness.h"
#include "softgpu/check/race.h"
#include "softgpu/execute/execute.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

static const char *const MEND_MASK =
    "pass the mask of the lanes that really execute this together, 0xffffffff if all do";

// Do all lanes of `lanes` name the same mask?
static bool name_the_same(const Lane32 *members, uint32_t lanes) {
    uint32_t first = members[__builtin_ctz(lanes)], differs = 0;
    if (lanes == FULL_MASK)
        for (int l = 0; l < WARP_SIZE; l++) differs |= members[l] ^ first;
    else
        for (int l = 0; l < WARP_SIZE; l++) differs |= lanes >> l & 1 ? members[l] ^ first : 0;
    return !differs;
}

// The masks that the lanes name, from row `members`; checks that each holds its own lane.
static bool masks_hold_their_lanes(Warp *w, const Insn *i, uint32_t mask, const Lane32 *members,
                                   uint32_t *named) {
    *named = members[__builtin_ctz(mask)];
    if (!(mask & ~*named) && name_the_same(members, mask)) return true; // most often
    *named = 0;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        *named |= members[l];
        if (members[l] >> l & 1) continue;
        finding(w, i, l, FINDING_DIVERGENT, MEND_MASK,
                "lane %d executes this, but its mask 0x%08x doesn't name it", l, members[l]);
        return false;
    }
    return true;
}

// Tells the race check which lanes exchange values.
static void tell_exchange(Warp *w, const Lane32 *named, uint32_t lanes) {
    for (uint32_t rest = lanes; rest;) {
        uint32_t lane = rest & -rest, together = named[__builtin_ctz(rest)];
        race_warp_exchange(w, together);
        rest &= ~(together | lane);
    }
}

// Brings together the lanes that `members` names. FLOW_NEXT: `*all` lanes execute. Otherwise what
// the handler has to return.
static Flow gather(Warp *w, const Insn *i, uint32_t mask, Row members, uint32_t *all) {
    const Lane32 *named = row(w, members);
    uint32_t need;
    if (!masks_hold_their_lanes(w, i, mask, named, &need)) return FLOW_FAULT;
    if (!warp_gather(w, i, mask, need, all)) return FLOW_RETRY;
    if (race_on(w)) tell_exchange(w, named, *all & w->active);
    if (name_the_same(named, *all)) return FLOW_NEXT;
    for (uint32_t rest = *all; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        for (uint32_t others = named[l] & *all; others; others &= others - 1) {
            int k = __builtin_ctz(others);
            if (named[k] == named[l]) continue;
            finding(w, i, l, FINDING_DIVERGENT, MEND_MASK,
                    "lane %d names the lanes 0x%08x, but lane %d, one of them, names 0x%08x", l,
                    named[l], k, named[k]);
            return FLOW_FAULT;
        }
    }
    return FLOW_NEXT;
}

// The lanes that lane l's instruction speaks of: executing ones of its mask, or, without .sync
// (members = ROW_NONE), all that execute.
static inline uint32_t partners(const Warp *w, Row members, int l, uint32_t all) {
    return members == ROW_NONE ? all : ((const Lane32 *)row(w, members))[l] & all;
}

// ---- shfl: d|p, a, b, c{, members}; members in rows[0]

typedef enum { SHUFFLE_UP = 1, SHUFFLE_DOWN, SHUFFLE_BUTTERFLY, SHUFFLE_INDEX } ShuffleMode;

// The lanes that each lane reads, by the formulas of PTX ISA 9.7.9.6, and in `*in_range` those that
// find one in their segment; others read themselves. Bits 0-4 of c clamp, bits 8-12 say which bits
// of the lane number name the segment.
static void shuffle_sources(ShuffleMode mode, const Lane32 *b, const Lane32 *c, int32_t *j,
                            uint32_t *in_range) {
    int32_t last[WARP_SIZE];
    for (int l = 0; l < WARP_SIZE; l++) {
        int32_t segment = c[l] >> 8 & 31, clamp = c[l] & 31;
        last[l] = (l & segment) | (clamp & ~segment);
    }
    uint32_t in = 0;
    switch (mode) {
    case SHUFFLE_UP:
        for (int l = 0; l < WARP_SIZE; l++) j[l] = l - (int32_t)(b[l] & 31);
        for (int l = 0; l < WARP_SIZE; l++) in |= (uint32_t)(j[l] >= last[l]) << l;
        break;
    case SHUFFLE_DOWN:
        for (int l = 0; l < WARP_SIZE; l++) j[l] = l + (int32_t)(b[l] & 31);
        break;
    case SHUFFLE_BUTTERFLY:
        for (int l = 0; l < WARP_SIZE; l++) j[l] = l ^ (int32_t)(b[l] & 31);
        break;
    case SHUFFLE_INDEX:
        for (int l = 0; l < WARP_SIZE; l++) {
            int32_t segment = c[l] >> 8 & 31;
            j[l] = (l & segment) | ((int32_t)(b[l] & 31) & ~segment);
        }
        break;
    }
    if (mode != SHUFFLE_UP)
        for (int l = 0; l < WARP_SIZE; l++) in |= (uint32_t)(j[l] <= last[l]) << l;
    for (int l = 0; l < WARP_SIZE; l++) j[l] = in >> l & 1 ? j[l] : l;
    *in_range = in;
}

// Where b and c are immediates, lowering works the sources out once, in Insn.extra.
typedef struct {
    int32_t j[WARP_SIZE];
    uint32_t in_range;
} ShuffleSources;

// d[l] = a[j[l]], for j in 0…31.
static inline void permute(uint32_t *restrict d, const Lane32 *a, const int32_t *j) {
#ifdef __AVX512F__
    __m512i low = _mm512_loadu_si512(a), high = _mm512_loadu_si512(a + 16);
    for (int l = 0; l < WARP_SIZE; l += 16)
        _mm512_storeu_si512(d + l, _mm512_permutex2var_epi32(low, _mm512_loadu_si512(j + l), high));
#else
    for (int l = 0; l < WARP_SIZE; l++) d[l] = a[j[l]];
#endif
}

// The lanes whose sources do not execute with them.
static uint32_t sources_missing(const Warp *w, const int32_t *j, uint32_t all, Row members) {
    uint32_t missing[WARP_SIZE], lanes = 0;
    if (members == ROW_NONE) {
        if (all == FULL_MASK) return 0;
        for (int l = 0; l < WARP_SIZE; l++) missing[l] = ~all >> j[l] & 1;
    } else {
        const Lane32 *named = row(w, members);
        for (int l = 0; l < WARP_SIZE; l++) missing[l] = ~(named[l] & all) >> j[l] & 1;
    }
    for (int l = 0; l < WARP_SIZE; l++) lanes |= missing[l] << l;
    return lanes & all;
}

static Flow shuffle(Warp *w, const Insn *i, uint32_t all, Row members) {
    ShuffleSources own;
    const ShuffleSources *sources = i->extra;
    if (!sources) {
        shuffle_sources((ShuffleMode)i->imm, row(w, i->b), row(w, i->c), own.j, &own.in_range);
        sources = &own;
    }
    uint32_t missing = sources_missing(w, sources->j, all, members);
    if (missing) {
        own = *sources;
        for (uint32_t rest = missing; rest; rest &= rest - 1) {
            int l = __builtin_ctz(rest);
            if (w->sm->gpu->settings->checks & CHECK_SYNC)
                finding(w, i, l, FINDING_DIVERGENT,
                        "let the lane that is read take part, or don't read it: the value is "
                        "undefined",
                        "lane %d reads from lane %d, which does not execute this shuffle with it",
                        l, own.j[l]);
            own.j[l] = l;
        }
        sources = &own;
    }
    if (w->undefined_rows) definedness_shuffle(w, i, all, sources->j);
    uint32_t r[WARP_SIZE];
    permute(r, row(w, i->a), sources->j);
    put32(w, i->d, r, all);
    if (i->e != ROW_NONE) put_predicate(w, i->e, sources->in_range, all);
    return FLOW_NEXT;
}
static Flow shfl_sync(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all;
    Flow flow = gather(w, i, mask, i->rows[0], &all);
    return flow == FLOW_NEXT ? shuffle(w, i, all, i->rows[0]) : flow;
}
static Flow shfl(Warp *w, const Insn *i, uint32_t mask) {
    return shuffle(w, i, mask, ROW_NONE);
}

static const char *lower_shuffle(Lowering *l, const Match *m, Insn *i) {
    const PtxOperand *o = m->ptx->operands;
    bool sync = m->choice[1];
    if (m->ptx->operand_count != (sync ? 5 : 4))
        return sync ? "shfl.sync takes d, a, b, c and a mask" : "shfl takes d, a, b and c";
    const char *why = NULL;
    i->d = destination_row(l, &o[0], 32, &why);
    i->e = pair_row(l, &o[0], &why);
    i->a = source_row(l, &o[1], 32, &why);
    i->b = source_row(l, &o[2], 32, &why);
    i->c = source_row(l, &o[3], 32, &why);
    i->imm = m->choice[0];
    i->run = shfl;
    if (o[2].kind == OPERAND_INTEGER && o[3].kind == OPERAND_INTEGER) {
        uint32_t b[WARP_SIZE], c[WARP_SIZE];
        for (int k = 0; k < WARP_SIZE; k++) b[k] = (uint32_t)o[2].bits, c[k] = (uint32_t)o[3].bits;
        ShuffleSources *sources = kernel_alloc(l, sizeof *sources);
        shuffle_sources((ShuffleMode)i->imm, b, c, sources->j, &sources->in_range);
        i->extra = sources;
    }
    if (!sync) return why;
    Row *members = kernel_alloc(l, sizeof *members);
    *members = source_row(l, &o[4], 32, &why);
    i->rows = members;
    i->row_count = 1;
    i->run = shfl_sync;
    return why;
}

// ---- vote: choice[0]: 1 all, 2 any, 3 uni, 4 ballot

static Flow vote_among(Warp *w, const Insn *i, uint32_t all, Row members) {
    uint32_t a = predicate(w, i->a), p = 0, r[WARP_SIZE];
    if (w->undefined_rows)
        definedness_gather(w, i, all, members, i->choice[0] <= 2 ? i->choice[0] : 0);
    for (int l = 0; l < WARP_SIZE; l++) {
        uint32_t among = partners(w, members, l, all), yes = a & among;
        bool result = i->choice[0] == 1   ? yes == among
                      : i->choice[0] == 2 ? yes != 0
                                          : yes == 0 || yes == among;
        p |= (uint32_t)result << l;
        r[l] = yes;
    }
    if (i->choice[0] == 4)
        put32(w, i->d, r, all);
    else
        put_predicate(w, i->d, p, all);
    return FLOW_NEXT;
}
static Flow vote_sync(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all;
    Flow flow = gather(w, i, mask, i->b, &all);
    return flow == FLOW_NEXT ? vote_among(w, i, all, i->b) : flow;
}
static Flow vote(Warp *w, const Insn *i, uint32_t mask) {
    return vote_among(w, i, mask, ROW_NONE);
}

// ---- match

static inline uint64_t value_of(const Warp *w, Row r, int l, bool wide) {
    return wide ? ((const Lane64 *)row(w, r))[l] : ((const Lane32 *)row(w, r))[l];
}
// any: the lanes that hold the same value. all: every lane if all hold the same, else none; p says
// which. choice[0]: 1 any, 2 all; choice[2]: 1 b32, 2 b64.
static Flow match_sync(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all;
    Flow flow = gather(w, i, mask, i->b, &all);
    if (flow != FLOW_NEXT) return flow;
    if (w->undefined_rows) definedness_gather(w, i, all, i->b, 0);
    bool wide = i->choice[2] == 2, any = i->choice[0] == 1;
    uint32_t r[WARP_SIZE] = {0}, p = 0;
    for (uint32_t rest = all; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        uint32_t among = partners(w, i->b, l, all), same = 0;
        for (uint32_t others = among; others; others &= others - 1) {
            int k = __builtin_ctz(others);
            same |= (uint32_t)(value_of(w, i->a, k, wide) == value_of(w, i->a, l, wide)) << k;
        }
        r[l] = any || same == among ? same : 0;
        p |= (uint32_t)(same == among) << l;
    }
    put32(w, i->d, r, all);
    if (i->e != ROW_NONE) put_predicate(w, i->e, p, all);
    return FLOW_NEXT;
}

// ---- redux

typedef uint32_t Combine(uint32_t a, uint32_t b);
static uint32_t add(uint32_t a, uint32_t b) {
    return a + b;
}
static uint32_t and (uint32_t a, uint32_t b) {
    return a & b;
}
static uint32_t or (uint32_t a, uint32_t b) {
    return a | b;
}
static uint32_t xor (uint32_t a, uint32_t b) { return a ^ b; } static uint32_t
    min_u(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}
static uint32_t max_u(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}
static uint32_t min_s(uint32_t a, uint32_t b) {
    return (int32_t)a < (int32_t)b ? a : b;
}
static uint32_t max_s(uint32_t a, uint32_t b) {
    return (int32_t)a > (int32_t)b ? a : b;
}

static bool is_nan(uint32_t x) {
    return (x & 0x7fffffffu) > 0x7f800000u;
}
// Floats as integers in the same order, -0 below +0.
static int32_t order(uint32_t x) {
    return (int32_t)(x ^ (uint32_t)((int32_t)x >> 31) >> 1);
}
static uint32_t float_extreme(uint32_t a, uint32_t b, bool want_max, bool nan_wins) {
    if (is_nan(a) || is_nan(b))
        return nan_wins || (is_nan(a) && is_nan(b)) ? 0x7fffffffu : is_nan(a) ? b : a;
    return (order(a) > order(b)) == want_max ? a : b;
}
static uint32_t min_f(uint32_t a, uint32_t b) {
    return float_extreme(a, b, false, false);
}
static uint32_t max_f(uint32_t a, uint32_t b) {
    return float_extreme(a, b, true, false);
}
static uint32_t min_nan(uint32_t a, uint32_t b) {
    return float_extreme(a, b, false, true);
}
static uint32_t max_nan(uint32_t a, uint32_t b) {
    return float_extreme(a, b, true, true);
}

static Flow reduce(Warp *w, const Insn *i, uint32_t mask, Combine *combine, bool magnitude) {
    uint32_t all;
    Flow flow = gather(w, i, mask, i->b, &all);
    if (flow != FLOW_NEXT) return flow;
    if (w->undefined_rows) definedness_gather(w, i, all, i->b, 0);
    const Lane32 *a = row(w, i->a);
    uint32_t keep = magnitude ? 0x7fffffffu : ~0u, r[WARP_SIZE] = {0}, done = 0;
    for (uint32_t rest = all; rest; rest = all & ~done) {
        uint32_t among = partners(w, i->b, __builtin_ctz(rest), all);
        uint32_t sum = a[__builtin_ctz(among)] & keep;
        for (uint32_t others = among & (among - 1); others; others &= others - 1)
            sum = combine(sum, a[__builtin_ctz(others)] & keep);
        for (uint32_t lanes = among; lanes; lanes &= lanes - 1) r[__builtin_ctz(lanes)] = sum;
        done |= among;
    }
    put32(w, i->d, r, all);
    return FLOW_NEXT;
}
// choice[0]: the operation, in the order of the form.
static Flow redux_b32(Warp *w, const Insn *i, uint32_t mask) {
    static Combine *const operations[] = {NULL, and, or, xor};
    return reduce(w, i, mask, operations[i->choice[0]], false);
}
static Flow redux_u32(Warp *w, const Insn *i, uint32_t mask) {
    static Combine *const operations[] = {NULL, add, min_u, max_u};
    return reduce(w, i, mask, operations[i->choice[0]], false);
}
static Flow redux_s32(Warp *w, const Insn *i, uint32_t mask) {
    static Combine *const operations[] = {NULL, add, min_s, max_s};
    return reduce(w, i, mask, operations[i->choice[0]], false);
}
// choice: [0] min, max; [2] .abs; [3] .NaN
static Flow redux_f32(Warp *w, const Insn *i, uint32_t mask) {
    Combine *combine =
        i->choice[0] == 1 ? (i->choice[3] ? min_nan : min_f) : (i->choice[3] ? max_nan : max_f);
    return reduce(w, i, mask, combine, i->choice[2]);
}

// ---- activemask, elect, bar.warp.sync

static Flow activemask(Warp *w, const Insn *i, uint32_t mask) {
    Lane32 *d = row(w, i->d);
    EACH_LANE(uint32_t, d, mask, mask);
    return FLOW_NEXT;
}

// The leader among `members`: the first lane, as on GPUs, which CUTLASS counts on; if strict, under
// another schedule, any lane, but always the same for the same lanes.
static int leader(const Warp *w, uint32_t members) {
    uint64_t schedule = w->sm->gpu->settings->schedule;
    if (schedule == 0 || !w->sm->gpu->settings->strict) return __builtin_ctz(members);
    struct Random random;
    random_seed(&random, schedule, members);
    uint32_t skip = random_below(&random, (uint32_t)__builtin_popcount(members));
    while (skip--) members &= members - 1;
    return __builtin_ctz(members);
}
// d|p, members: d is the leader's lane, p is true for it alone.
static Flow elect_sync(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all;
    Flow flow = gather(w, i, mask, i->a, &all);
    if (flow != FLOW_NEXT) return flow;
    uint32_t r[WARP_SIZE] = {0}, p = 0;
    for (uint32_t rest = all; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest), elected = leader(w, partners(w, i->a, l, all));
        r[l] = (uint32_t)elected;
        p |= (uint32_t)(l == elected) << l;
    }
    put32(w, i->d, r, all);
    if (i->e != ROW_NONE) put_predicate(w, i->e, p, all);
    return FLOW_NEXT;
}

// Lanes may wait for each other at different bar.warp.sync (INSN_ANYWHERE), so only the masks of
// the lanes that stand here can be looked at.
static Flow bar_warp_sync(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all, need;
    if (!masks_hold_their_lanes(w, i, mask, row(w, i->a), &need)) return FLOW_FAULT;
    if (!warp_gather(w, i, mask, need, &all)) return FLOW_RETRY;
    if (!race_on(w)) return FLOW_NEXT;
    const Lane32 *members = row(w, i->a);
    for (uint32_t rest = all & w->active; rest;) { // those in this frame
        uint32_t lane = rest & -rest, named = members[__builtin_ctz(rest)];
        race_warp_sync(w, named);
        rest &= ~(named | lane);
    }
    return FLOW_NEXT;
}

const Form warp_forms[] = {
    {"shfl", "up|down|bfly|idx sync? b32", NULL, NULL, PIPE_LSU, 0, 0, lower_shuffle},
    {"vote", "all|any|uni sync pred", "dp ap b32", vote_sync, PIPE_ALU},
    {"vote", "all|any|uni pred", "dp ap", vote, PIPE_ALU},
    {"vote", "_|__|___|ballot sync b32", "d32 ap b32", vote_sync, PIPE_ALU},
    {"vote", "_|__|___|ballot b32", "d32 ap", vote, PIPE_ALU},
    {"match", "any sync b32", "d32 a32 b32", match_sync, PIPE_ALU},
    {"match", "any sync _|b64", "d32 a64 b32", match_sync, PIPE_ALU},
    {"match", "_|all sync b32", "d32|p a32 b32", match_sync, PIPE_ALU},
    {"match", "_|all sync _|b64", "d32|p a64 b32", match_sync, PIPE_ALU},
    {"redux", "and|or|xor sync b32", "d32 a32 b32", redux_b32, PIPE_ALU},
    {"redux", "add|min|max sync u32", "d32 a32 b32", redux_u32, PIPE_ALU},
    {"redux", "add|min|max sync s32", "d32 a32 b32", redux_s32, PIPE_ALU},
    {"redux", "min|max sync abs? NaN? f32", "d32 a32 b32", redux_f32, PIPE_ALU},
    {"activemask", "b32", "d32", activemask, PIPE_ALU},
    {"elect", "sync", "d32|p a32", elect_sync, PIPE_ALU},
    {"bar", "warp sync", "a32", bar_warp_sync, PIPE_CONTROL, 0, INSN_ANYWHERE},
    {0},
};
