// Bank conflicts of shared memory.
//
// Shared memory has 32 banks of 4 bytes, each of which delivers one word per clock. An access of
// up to 4 bytes per lane is one phase; of 8 bytes, two phases of 16 lanes; of 16 bytes, four of
// 8. (So an ldmatrix has a phase for each of its matrices, of eight rows of 16 bytes.) A phase
// takes as many wavefronts as the busiest bank has different words to deliver; lanes that read the
// same word share it. Atomics on one word don't share: they come one after the other.
//
// The count depends only on the distances between the addresses, and a program's accesses repeat
// their patterns: so each thread of the host remembers the patterns that it met last.
#include <string.h>

#include "softgpu/timing/pace.h"
#include "softgpu/timing/traffic.h"

enum { BANKS = 32, PATTERNS = 256 };

typedef struct {
    uint32_t
        distance[WARP_SIZE]; // from the first active lane's word; 0 in lanes that are not active
    uint32_t mask;
    uint8_t size, atomic;
    uint8_t wavefronts; // 0: an empty entry; at most 32
} Pattern;

// Wavefronts of lanes [begin, end) of a pattern.
static unsigned phase(const Pattern *p, int begin, int end) {
    uint32_t word[BANKS], next[BANKS];
    uint8_t head[BANKS], busy[BANKS] = {0};
    memset(head, 0xff, sizeof head);
    unsigned words = p->size < 4 ? 1 : p->size / 4, count = 0, most = 0;
    for (int lane = begin; lane < end; lane++) {
        if (!(p->mask >> lane & 1)) continue;
        for (unsigned k = 0; k < words; k++) {
            uint32_t address = p->distance[lane] / 4 + k;
            unsigned bank = address % BANKS;
            unsigned at = head[bank];
            while (at != 0xff && (word[at] != address || p->atomic)) at = next[at];
            if (at != 0xff) continue; // some lane gets this word already
            word[count] = address;
            next[count] = head[bank];
            head[bank] = count++;
            if (++busy[bank] > most) most = busy[bank];
        }
    }
    return most;
}

// Wavefronts of the whole access.
static unsigned count_wavefronts(const Pattern *p) {
    int phases = p->size <= 4 ? 1 : p->size / 4, lanes = WARP_SIZE / phases;
    unsigned sum = 0;
    for (int k = 0; k < phases; k++) sum += phase(p, k * lanes, (k + 1) * lanes);
    return sum;
}

// Phases with any lane in them: what the access would take without conflicts.
static unsigned ideal(unsigned size, uint32_t mask) {
    unsigned phases = size <= 4 ? 1 : size / 4, lanes = WARP_SIZE / phases, sum = 0;
    if (phases == 1) return 1;
    for (unsigned k = 0; k < phases; k++) {
        sum += (mask >> (k * lanes) & ((1u << lanes) - 1)) != 0;
    }
    return sum;
}

static void count_access(Warp *w, const Insn *i, const uint32_t address[32], unsigned size,
                         uint32_t mask, TrafficKind kind) {
    Counters *counters = w->sm->counters;
    unsigned least = mask == FULL_MASK ? (size <= 4 ? 1 : size / 4) : ideal(size, mask);
    counters->shared_ideal += least;

    // Distances from the first lane's word: moving all addresses moves all banks alike.
    Pattern p;
    uint32_t base = address[__builtin_ctz(mask)] & ~3u, stride = 0, same = 0, mix = 0;
    for (uint32_t lane = 0; lane < WARP_SIZE; lane++) {
        uint32_t distance = address[lane] - base;
        p.distance[lane] = distance;
        stride |= distance ^ lane * size;
        same |= distance;
        mix += distance * (2 * lane + 1);
    }
    if (mask == FULL_MASK && kind != TRAFFIC_ATOMIC && (!stride || !same)) {
        counters->shared_wavefronts += least; // a row, or one word for all
        return;
    }
    if (mask != FULL_MASK) {
        mix = 0;
        for (uint32_t lane = 0; lane < WARP_SIZE; lane++) {
            p.distance[lane] &= -(mask >> lane & 1);
            mix += p.distance[lane] * (2 * lane + 1);
        }
    }
    p.mask = mask;
    p.size = size;
    p.atomic = kind == TRAFFIC_ATOMIC;

    static _Thread_local Pattern patterns[PATTERNS];
    mix = (mix ^ mask ^ i->index) * 0x9e3779b1u;
    Pattern *known = &patterns[mix >> 24];
    uint32_t differs = (known->wavefronts == 0) | (known->mask ^ mask) | (known->size ^ size) |
                       (known->atomic ^ p.atomic);
    for (int lane = 0; lane < WARP_SIZE; lane++)
        differs |= known->distance[lane] ^ p.distance[lane];
    if (differs) {
        p.wavefronts = count_wavefronts(&p);
        *known = p;
    }
    counters->shared_wavefronts += known->wavefronts;
}

void traffic_shared(Warp *w, const Insn *i, const uint32_t address[32], unsigned size,
                    uint32_t mask, TrafficKind kind) {
    if (!w->sm->gpu->settings->timing || !mask) return;
    uint64_t before = w->sm->counters->shared_wavefronts;
    count_access(w, i, address, size, mask, kind);
    if (w->pace) pace_shared(w, (unsigned)(w->sm->counters->shared_wavefronts - before));
}
