// The CTAs that stand for a grid.
//
// Neighbours share what they read in L2, so the sample is a run of neighbours, as long as the
// largest power of two that it has room for: it then holds whole rows of tiles where it can. Where it
// can't, and a CTA's work grows along the row, as under a causal mask, such a run is too light or too
// heavy. Its mirror image in the grid is then as much too heavy or too light (work that grows
// linearly is met exactly, wherever rows begin), so it is added when the CTAs' work differs.
#include "softgpu/machine/sample.h"

void sample_choose(Sample *s, uint64_t grid, int sample, int sms) {
    *s = (Sample){.grid = grid, .length = grid};
    if (sample >= sms || grid <= (uint64_t)sample) return;
    uint64_t wanted = grid * (uint64_t)sample / (uint64_t)sms;
    if (wanted < (uint64_t)sample) wanted = (uint64_t)sample; // no SM stays empty
    s->length = 1;
    while (2 * s->length <= wanted) s->length *= 2;
    // Not at the very start: blocks there may be special. A place that is a multiple of the length
    // keeps rows of tiles whole.
    s->begin = grid / 2 / s->length * 5 / 8 * s->length;
    s->mirrored = 2 * wanted >= 3 * s->length;
}

// Where the mirror image begins. In a small grid it may meet the run, and starts behind it.
static uint64_t mirror_begin(const Sample *s) {
    uint64_t image = s->grid - s->begin - s->length, end = s->begin + s->length;
    return image > end ? image : end;
}

uint64_t sample_next(const Sample *s, uint64_t next) {
    if (next < s->begin) next = s->begin;
    if (next < s->begin + s->length) return next;
    if (!s->mirrored) return s->grid;
    uint64_t image = mirror_begin(s);
    if (next < image) next = image;
    return next < s->grid - s->begin ? next : s->grid;
}

bool sample_widen(Sample *s, uint64_t least, uint64_t most) {
    if (s->mirrored || s->length == s->grid) return false;
    if (most < least || most - least <= least / 8) return false;
    s->mirrored = true;
    return true;
}

void sample_scale(double factor, uint32_t code_count, Counters *sum, CacheTraffic *l2,
                  CacheTraffic *hbm) {
#define SCALE(x) ((x) = (uint64_t)((double)(x)*factor + 0.5))
    for (uint32_t k = 0; k < code_count; k++) {
        SCALE(sum->executed[k]);
        SCALE(sum->lanes[k]);
    }
    SCALE(sum->shared_wavefronts);
    SCALE(sum->shared_ideal);
    SCALE(sum->tensor_flops);
    SCALE(sum->tensor_cycles);
    SCALE(sum->l1_hits);
    SCALE(sum->l1_misses);
    SCALE(l2->read_bytes);
    SCALE(l2->write_bytes);
    SCALE(hbm->read_bytes);
    SCALE(hbm->write_bytes);
#undef SCALE
}
