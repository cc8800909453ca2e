// Private to the race check of global memory (race_global.h):
//
//   race_global.c         a launch, its logs, what is entered
//   race_global_shadow.c  the last accesses to every byte that is used
//   race_global_order.c   what words of global memory pass on between clusters
//   race_global_report.c  the words of findings
//
// A cluster is known by the number of its first block in the grid. Knowledge of other clusters is a
// *tree*: by their numbers, what of their vectors (race_parts.h) is known. Trees never change, and
// share what they have in common, so that joining two that are alike costs little.
//
// A warp that acquires such a tree gets an entry in its cluster's vectors, whose clock counts how
// often it has; so barriers pass on, lane by lane, that it has, as they pass on everything else.
#ifndef SOFTGPU_RACE_GLOBAL_PARTS_H
#define SOFTGPU_RACE_GLOBAL_PARTS_H

#include "softgpu/check/race_global.h"
#include "softgpu/check/race_parts.h"

enum {
    GLOBAL_PAGE_BITS = 12,
    GLOBAL_GRANULES = 1 << (GLOBAL_PAGE_BITS - 2),
    GLOBAL_READS = 16, // of a page that nothing has been written to
    GLOBAL_SET = 8,    // accesses that are remembered of a granule beside the last write
    GLOBAL_MEMOS = 4096,
    GLOBAL_TOLD = 256,
    TREE_BITS = 5,
    TREE_CHILDREN = 1 << TREE_BITS,
};

// Number of a tree (0: nothing is known), and of a vector in GlobalRaces.words (0: none).
typedef uint32_t Tree;
typedef uint32_t Vector;

// What a warp reads relaxed is pending until a fence makes it known. Unless strict, what it reads
// by an atomic it knows informally: working code leaves that fence out (NVIDIA's
// threadFenceReduction).
typedef enum { ACQUIRED, PENDING, INFORMAL } Acquisition;
_Static_assert(INFORMAL + 1 == RACE_ACQUISITIONS, "as many slots as ways");

// An entry of a cluster's vectors that stands for what one of its warps has acquired of others.
typedef struct {
    uint16_t entry;
    bool informal;
    uint32_t count, capacity;
    Tree *trees; // by clock, from 1 on; each knows what the one before it does
} GlobalSlot;

struct GlobalCluster {
    uint32_t number;
    int slot_count, slot_capacity;
    GlobalSlot *slots;
    struct GlobalCluster *next; // of the launch
};

enum { GLOBAL_STRONG = 1, GLOBAL_ASYNC = 2, GLOBAL_NARROW = 4, GLOBAL_FENCED = 8 };
enum { GLOBAL_BYTES = 4 }; // from this bit on: which bytes of a granule were read

typedef struct {
    uint32_t cluster, clock, insn;
    uint16_t thread;
    uint8_t kind, flags; // RaceAgentKind and GLOBAL_WROTE
} GlobalNode;
// In a set: this one is a write, behind which a strong one came (which doesn't end what was
// before).
enum { GLOBAL_WROTE = 0x80 };
static inline RaceAgentKind global_kind(const GlobalNode *n) {
    return (RaceAgentKind)(n->kind & ~GLOBAL_WROTE);
}

// A page of global memory. While nothing has been written to it only reads are kept, as ranges.
typedef struct GlobalPage {
    uint64_t number;
    uint64_t *last; // as RaceCta.last; NULL: only reads
    uint32_t read_count;
    struct GlobalRead {
        uint32_t node;
        uint16_t low, high; // the last byte
    } reads[GLOBAL_READS];
} GlobalPage;

typedef struct {
    uint64_t word; // address / 4; 0: empty
    Tree wide, narrow;
} GlobalFlag;

struct GlobalRaces {
    LaunchState *launch;
    struct GlobalCluster *clusters;
    // The allocations that the kernel may write; NULL: any (race_writes).
    const Allocation **written;
    int written_count;
    // order
    uint32_t *words; // vectors: entries, with PASSED or not, SEEN, PASSED
    size_t word_count, word_capacity;
    uint32_t (*trees)[TREE_CHILDREN];
    uint32_t tree_count, tree_capacity;
    int levels;
    GlobalFlag *flags;
    uint32_t flag_count, flag_capacity;
    // shadow
    GlobalPage **pages; // a hash table
    uint32_t page_count, page_capacity, shadowed;
    GlobalPage *recent;
    GlobalNode *nodes;
    uint32_t node_count, node_capacity;
    uint32_t (*sets)[GLOBAL_SET];
    uint32_t set_count, set_capacity;
    uint32_t collect_at;
    bool wrote; // some set has a write
    RaceBytes *bytes;
    uint32_t bytes_count, bytes_capacity, bytes_free;
    uint32_t node_memo[GLOBAL_MEMOS];
    struct {
        uint32_t set, node, result;
    } set_memo[GLOBAL_MEMOS];
    struct {
        uint32_t insn, other, cluster, verdict;
    } told[GLOBAL_TOLD];
};

// One access, while it is entered.
typedef struct {
    struct GlobalRaces *races;
    Warp *w; // who makes it, or has issued it
    const Insn *insn;
    const struct GlobalCluster *cluster;
    GlobalNode node; // apart from its bytes
    bool write, quiet;
    bool observes;                 // an atomic that reads
    const uint32_t *seen, *passed; // what is known: `used` entries; passed may be NULL
    uint32_t used;
    // Whose bytes: those of the lanes of `mask`, `size` each, one behind the other from `begin` on;
    // 0: unknown.
    uint32_t mask, size;
    uint64_t begin;
    // private to race_global_shadow.c
    uint32_t ids[16];
    uint32_t fine;
    uint32_t set, bytes, result;
} GlobalAccess;

// ---- race_global_shadow.c

void global_enter(GlobalAccess *a, uint64_t low, uint64_t high);
void global_shadow_free(struct GlobalRaces *g);

// ---- race_global_order.c

// How well does one who has this vector of the access's cluster know of the node, of another
// cluster? `through`: and has a proxy fence been executed in between? *some: it knows something of
// that cluster.
typedef enum { KNOWN_NOT, KNOWN_INFORMALLY, KNOWN_WELL } Knowing;
Knowing global_knows(const GlobalAccess *a, const GlobalNode *n, bool through, bool *some);
// A fence of these lanes that other clusters see.
void global_fence(Warp *w, uint32_t lanes, bool acquires, bool releases);
void global_order_begin(struct GlobalRaces *g, uint64_t clusters);
void global_order_free(struct GlobalRaces *g);

// ---- race_global_report.c

void global_report(GlobalAccess *a, uint64_t at, const GlobalNode *earlier, bool earlier_writes,
                   RaceVerdict verdict);
// What global memory an address is, for a person: "byte 8 of the variable 'x'".
void global_place(const Warp *w, uint64_t address, char *to, size_t size);

// ---- race_global.c

// An access of the log of lanes is entered once more (race_log.c).
void global_enter_again(Race *r, Warp *w, const LaneAccess *a, uint32_t lanes, bool fenced);
// A cluster starts.
void global_cluster_start(Race *r, Cta *leader);

#endif
