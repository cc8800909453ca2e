// Private to the race check: its state, and how its files divide the work.
//
//   race.c         a cluster's state comes and goes; accesses, agents
//   race_clock.c   who knows what: vector clocks
//   race_lanes.c   … and which lanes of a warp know it
//   race_log.c     what lanes have done since they last met: order inside a warp
//   race_owner.c   … by places, for lanes that keep to themselves
//   race_sync.c    what barriers, mbarriers, fences and flags pass on
//   race_exit.c    accesses to a CTA that may have ended
//   race_shadow.c  the last accesses to every byte, and the question whether a new one may follow
//   race_report.c  the words of findings
//
// Entries of a vector ("threads"): first all warps of the cluster, by rank and warp; behind them
// *slots*, which stand for agents and for mbarriers. A slot serves one agent after another: it is
// free again once the issuer of the next one knows of all that it stood for, so that knowing of the
// next implies knowing of those. An mbarrier's slot counts: 1 initialised, 2 and fenced
// (fence.mbarrier_init), 2 + n after n phases, on top of what the slot counted before.
//
// Invariant: vectors may move in memory when a slot is added or a Knowledge is made; so pointers
// into them are fetched anew after either.
#ifndef SOFTGPU_RACE_PARTS_H
#define SOFTGPU_RACE_PARTS_H

#include "softgpu/check/race.h"

enum {
    RACE_SLOTS = 1024,
    RACE_MEMOS = 256,
    RACE_RECENT = 8,
    RACE_REPORTED = 64,
    RACE_LOGGED = 128,
    RACE_LOGGED_GLOBAL = 32, // of global memory
    RACE_ACQUISITIONS = 3    // ways to acquire (race_global_parts.h)
};

// An access, and at the same time the first of a set of accesses: it and those of `parent`. Number
// 0 is nobody: its clock 0 is known to all.
typedef struct {
    uint16_t thread;
    uint8_t kind;  // RaceAgentKind, RACE_NO_AGENT for generic accesses of a warp
    uint8_t flags; // NODE_…
    uint32_t clock;
    uint32_t insn;
    uint32_t parent;
} RaceNode;
// NODE_FENCED: its lanes have executed a proxy fence behind it (where its clock doesn't tell).
enum { NODE_STRONG = 1, NODE_ASYNC_PROXY = 2, NODE_COPY = 4, NODE_FENCED = 8 };
// … and, in a set of a granule, which of its 4 bytes were read: a bit each, from here on.
enum { NODE_BYTES = 4, ALL_BYTES = 15 };

// What is known somewhere (race.h): a number; its three vectors lie one behind the other. Warps'
// are 0 to threads - 1.
typedef uint32_t Knowledge;
typedef enum { SEEN, PUBLISHED, PASSED, SENT, KNOWN, VECTORS } RaceVector; // two of tmem_race.h

// The two numbers of a granule.
static inline uint64_t granule(uint32_t write, uint32_t reads) {
    return write | (uint64_t)reads << 32;
}
static inline uint32_t write_in(uint64_t granule) {
    return (uint32_t)granule;
}
static inline uint32_t reads_in(uint64_t granule) {
    return (uint32_t)(granule >> 32);
}

// A granule of 4 bytes of which not all bytes have had the same accesses.
typedef struct {
    uint32_t write[4], reads[4];
} RaceBytes;
#define RACE_SPLIT 0x80000000u

typedef struct {
    uint32_t last; // the highest clock it has given out
    uint32_t open; // agents that are under way
    bool mbarrier;
} RaceSlot;

typedef struct {
    uint16_t thread; // its slot
    uint32_t base;   // of what the slot counts
    int owner;       // the warp that initialised it
    const Insn *init;
    Knowledge pending, completed; // what arrivals have released; up to the last completed phase
    bool live, fenced;
} RaceMbarrier;

// Knowledge that strong accesses have left at a word of shared memory.
typedef struct {
    uint32_t word; // offset / 4 + 1; 0: empty
    Knowledge knowledge;
} RaceFlag;

// Lanes of a warp that know more than what all of its lanes do.
typedef struct {
    uint32_t mask;
    Knowledge knowledge;
} RaceClass;

// An access of lanes to shared memory, kept for as long as not all lanes of the warp know of it.
typedef struct {
    const RaceCta *cta;
    const Insn *insn;
    uint32_t clock;
    uint32_t order;            // counts the accesses of the warp
    uint32_t rows;             // lanes whose `offset` is one of an access
    uint32_t mask;             // whose access it is; of a tile's all, for any may have made any
    uint32_t released, fenced; // … and have released, put a proxy fence behind it
    uint32_t low, high, size;  // all bytes lie in [low, high); of each lane
    bool write, strong, copy, tile;
    uint32_t offset[WARP_SIZE];
} LaneAccess;

// The last accesses of a warp: those numbered first to next - 1, in a ring.
typedef struct {
    LaneAccess *ring;
    uint32_t capacity, first, next;
    bool global;
    uint32_t released_to, fenced_to; // all lanes have released (fenced) those before this one
    uint32_t unreleased, unfenced;   // lanes that may have others
    uint32_t order;                  // of the last access
    bool written;                    // some access since the last reset is a write
    uint32_t (*knows)[WARP_SIZE];    // [i][j]: lane i knows of lane j's up to this order; or NULL
    struct LaneOwner *owners;        // race_owner.c: a table by places, or NULL
    uint32_t owner_count, owner_epoch, owned_to;
} LaneLog;

// What a warp is about to enter, lately made nodes.
typedef struct {
    uint32_t insn, clock, node;
    uint8_t flags;
} RaceRecent;

// The last access of a thread of the clock to a CTA that isn't its own.
typedef struct {
    Warp *w; // who issued it
    const Insn *insn;
    uint32_t clock; // 0: none
} RaceReach;

// What fences of these lanes have released; or what these lanes have read relaxed, and acquire by a
// fence.
typedef struct {
    Knowledge knows; // 0: nothing yet
    uint32_t lanes;
} RaceHeld;

struct RaceCta {
    Race *race;
    Cta *cta; // NULL: a window of global memory, from `base` on (race_global.c)
    uint64_t base;
    RaceCta *next; // window
    Race *own;     // serves as `race` if the CTA is its cluster's first
    int first;     // thread of warp 0
    uint32_t granules;
    // Per granule: the last write, and in the high half the accesses that have read since, a set.
    uint64_t *last;
    size_t allocated;                       // granules
    Knowledge bars[NAMED_BARRIERS], exited; // 0: none yet
    RaceFlag *flags;
    uint32_t flag_count, flag_capacity;
    RaceReach *reach; // by threads
    uint32_t reach_count, reach_capacity;
};

struct Race {
    const Kernel *kernel;
    uint64_t generation; // counts the clusters that this memory has served
    int threads;         // warps
    int used;            // entries of vectors in use
    int stride;          // … and allocated, a multiple of 16
    uint32_t *vectors;
    uint32_t knowledge_count, knowledge_capacity;
    bool fenced;  // some proxy fence has been executed: PUBLISHED and PASSED aren't all 0
    bool proxies; // … or an async-proxy agent opened
    bool flagged; // some strong access or fence has released
    bool tensor;  // tensor memory has been accessed: SENT and KNOWN aren't all 0
    RaceSlot *slots;
    int slot_count, slot_capacity;
    RaceMbarrier *mbarriers; // [0] isn't used
    uint32_t mbarrier_count, mbarrier_capacity;
    struct RaceThread {
        uint32_t clock;
        RaceHeld released, acquirable;
        RaceHeld released_wide, acquirable_wide; // … by fences that reach other clusters
        int slots[RACE_ACQUISITIONS];            // race_global_order.c: 1 + their number
        uint16_t fence_entry, seen_entry;        // … 0: none yet
        uint16_t copy_entry;                     // stands for the reads of its cp.async; 0: none
        uint32_t copies;                         // … whose clock counts them
        uint32_t kept, kept_epoch;               // race_global.c
        RaceRecent recent[RACE_RECENT];
        int class_count;
        RaceClass classes[WARP_SIZE]; // disjoint; the knowledge stays behind class_count, for reuse
    } * thread;
    LaneLog *logs; // of each warp; from thread_capacity on, of its accesses to global memory
    int thread_capacity;
    struct GlobalCluster *info; // race_global_parts.h; NULL: global memory isn't followed
    Sm *sm;                     // of the first CTA
    Knowledge global_scratch;
    RaceCta *windows;
    struct RaceBulk {
        uint16_t thread, entry;
        int lane;
    } * bulk; // race_global.c
    int bulk_count, bulk_capacity;
    Knowledge cluster_pending, cluster_completed;
    Knowledge meeting; // scratch: what several issuers all know
    RaceNode *nodes;
    uint32_t node_count, node_capacity;
    struct {
        uint32_t set, node, result;
    } memo[RACE_MEMOS];
    RaceBytes *bytes;
    uint32_t bytes_count, bytes_capacity, bytes_free; // free: 1 + the first of the list
    RaceCta *ctas[CLUSTER_MAX];
    int cta_count;
    struct {
        const Insn *insn;
        uint32_t other, verdict;
    } reported[RACE_REPORTED];
};

static inline uint32_t *race_vector(const Race *r, Knowledge k, RaceVector v) {
    return r->vectors + ((size_t)k * VECTORS + v) * (size_t)r->stride;
}
static inline uint16_t race_thread(const Warp *w) {
    return (uint16_t)(w->cta->race->first + w->id);
}
static inline bool agent_is(const RaceAgent *a) {
    return a->kind && a->generation == a->race->generation;
}
static inline Race *race_of(const Warp *w) {
    return w->cta->race->race;
}

// ---- race_clock.c

// Vectors that aren't all 0: those below this one.
static inline int race_vectors(const Race *r) {
    return r->tensor ? VECTORS : r->fenced ? PASSED + 1 : 1;
}
// All forgotten; vectors for so many warps.
void clocks_reset(Race *r, int threads);
Knowledge knowledge_new(Race *r);
void knowledge_join(Race *r, Knowledge to, Knowledge from);
void knowledge_clear(Race *r, Knowledge k);
// What all of these warps know.
void knowledge_meet(Race *r, Knowledge to, Warp *const *warps, int count);
void knowledge_copy(Race *r, Knowledge to, Knowledge from);
// Is all that `k` knows known to `of`?
bool knowledge_within(const Race *r, Knowledge k, Knowledge of);
// A slot's entry in the vectors: for an agent that somebody opens who knows `by`; for an mbarrier.
uint16_t slot_for_agent(Race *r, Knowledge by);
uint16_t slot_for_mbarrier(Race *r);
// An entry that is nobody else's.
uint16_t slot_for_others(Race *r);
static inline RaceSlot *slot_of(Race *r, uint16_t thread) {
    return &r->slots[thread - r->threads];
}

// ---- race_lanes.c

static inline bool is_whole(const Warp *w, uint32_t lanes) {
    return !(w->live & ~lanes);
}
// What this lane knows; for -1 what all lanes of the warp do.
Knowledge lane_knowledge(const Race *r, uint16_t thread, int lane);
// The lanes learn of what `from` knows; of an entry of a vector up to this clock.
void lanes_acquire(Race *r, Warp *w, uint32_t lanes, Knowledge from);
void lanes_learn(Race *r, Warp *w, uint32_t lanes, uint16_t entry, uint32_t clock);
// The same for a vector other than SEEN.
void lanes_learn_in(Race *r, Warp *w, uint32_t lanes, RaceVector v, uint16_t entry, uint32_t clock);
// What each of these lanes has in the vector `from` goes into its vector `to`, too.
void lanes_raise(Race *r, Warp *w, uint32_t lanes, RaceVector to, RaceVector from);
// What any lane of the warp knows of an entry.
uint32_t warp_knows(const Race *r, uint16_t thread, uint16_t entry);
// What the lanes know and have done goes into `to`. lanes_released follows, once for all that one
// instruction releases.
void lanes_publish(Race *r, Warp *w, uint32_t lanes, Knowledge to);
void lanes_released(Race *r, Warp *w, uint32_t lanes);
void lanes_release(Race *r, Warp *w, uint32_t lanes, Knowledge to); // both
// A proxy fence of these lanes; of shared memory, or of global memory only.
void lanes_fenced(Race *r, Warp *w, uint32_t lanes, bool shared);

// ---- race_log.c

void log_reset(LaneLog *log);
void log_add(LaneLog *log, const LaneAccess *a);
// These lanes have met: each knows of what the others had done.
void log_met(LaneLog *log, uint32_t lanes);
// The lanes of `log` release, or fence: what other lanes have done, and they don't know of, is
// entered once more, as done at the warp's clock, which comes behind that.
void log_settle(Race *r, Warp *w, uint32_t lanes, bool fences);

// ---- race_sync.c

// Those of the lanes from `address` on that name the same one as the first of them.
static inline uint32_t lanes_at_first(const uint64_t address[WARP_SIZE], uint32_t lanes) {
    uint64_t first = address[__builtin_ctz(lanes)];
    uint32_t same = 0;
    for (int l = 0; l < WARP_SIZE; l++) same |= (uint32_t)(address[l] == first) << l;
    return same & lanes;
}
// The lanes of `lanes` have read relaxed: what they find there, a fence of theirs acquires.
RaceHeld *race_hold(Race *r, RaceHeld *held, uint32_t lanes);
// What of these lanes a fence acquires. By PTX's letter each of its own reads.
uint32_t race_held_by(const Warp *w, uint32_t lanes, const RaceHeld *held);
// The order that a strong access of the lanes of `mask` brings.
void race_flag(Warp *w, RaceCta *c, const uint32_t offset[WARP_SIZE], uint32_t mask, bool reads,
               bool writes, RaceOrder order);

// ---- race_shadow.c

// What may be wrong with an access, from harmless to grave.
typedef enum {
    VERDICT_ORDERED,
    VERDICT_FORMAL,   // a proxy fence only of another thread
    VERDICT_UNFENCED, // no proxy fence
    VERDICT_RACE,
} RaceVerdict;

// One instruction's accesses, while they are entered.
typedef struct {
    Race *race;
    RaceCta *cta;
    Warp *w;
    const Insn *insn;
    Knowledge knowledge;
    const uint32_t *vectors[VECTORS]; // … its vectors, from race_begin on
    RaceNode node;                    // what is entered, apart from its bytes
    uint32_t ids[16];                 // … its numbers by bytes, once they are made
    bool write, quiet;
    bool unmet;                  // meets something that the same warp did, and not all lanes know
    int lane;                    // whose: of an agent, the issuer; -1: of the whole warp
    bool alone;                  // of an agent: one warp has issued it, `w`
    uint32_t fine;               // a write that has been found to be ordered before
    uint32_t set, bytes, result; // what add_read made last
    // Of a warp's access; NULL of an agent's.
    const uint32_t *offset;
    unsigned size;
    uint32_t mask;
} RacePass;

// Of the pass's warp, for the memory that it accesses.
static inline LaneLog *log_of_pass(const RacePass *p) {
    return &p->race->logs[race_thread(p->w) + (p->cta->cta ? 0 : p->race->thread_capacity)];
}

// Makes room for what one pass enters.
void race_begin(RacePass *pass);
// Enters an access to [low, high).
void race_enter(RacePass *pass, uint32_t low, uint32_t high);
// Enters the bytes that lanes touch.
void race_enter_lanes(RacePass *pass, const uint32_t offset[WARP_SIZE], unsigned size,
                      uint32_t mask);
// Of a pass that is `unmet`: reports the first lanes between which order is missing. `tile`: nobody
// knows which lane touches which bytes.
void log_check(RacePass *pass, bool tile);
// Of an agent's: where a lane other than the issuer has touched [low, high), and the issuer doesn't
// know; NULL: nowhere.
const LaneAccess *log_meets(const RacePass *pass, uint32_t low, uint32_t high);
void shadow_reset(RaceCta *c);

// ---- race_owner.c

void owners_reset(LaneLog *log);
// Has no lane of the warp been where another one now goes? False: perhaps one has.
bool owners_apart(const RacePass *pass);

// ---- race_exit.c

// The thread, behind which is this warp, accesses the CTA, which isn't the warp's own.
void race_reached(RaceCta *c, Warp *w, const Insn *i, uint16_t thread, uint32_t clock);
void race_reach_reset(RaceCta *c);
// The CTA's last warp has exited: findings for accesses that it need not have waited for.
void race_reach_end(RaceCta *c);

// ---- race_report.c

// An access of `pass` to the bytes at `at` follows `earlier`, and may not.
void report_race(RacePass *pass, uint32_t at, const RaceNode *earlier, bool earlier_writes,
                 RaceVerdict verdict);
// Lane `lane` (-1: any) follows another lane of its warp, `other` (-1: any).
void report_lanes(RacePass *pass, uint32_t at, int lane, int other, const LaneAccess *earlier);
void report_init(Warp *w, const Insn *i, int lane, const Cta *cta, uint32_t address,
                 const RaceMbarrier *b, bool fence);
void report_skipped(Warp *w, const Insn *i, int lane, uint32_t address, uint64_t known,
                    uint64_t completed);

#endif
