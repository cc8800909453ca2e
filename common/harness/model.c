// The rounding model: the same standard attention in fp32, with every matrix that standard
// attention keeps in memory rounded to the input's dtype. Its distance from the reference is what
// rounding alone costs, and so the measure of what a step may be off.
#include "harness/convert.h"

#define REAL         float
#define LANES        16
#define STORED(x, p) round_to_dtype((x), (p)->dtype)
#define EXP          expf
#define LOG          logf
#define TANH         tanhf
#include "harness/standard_attention.h"

void model_attention(const Problem *p, const Inputs *in, const Selection *rows,
                     const Selection *keys, bool backward, Results *results) {
    attend(p, in, rows, keys, backward, 0, results);
}

void model_variant(const Problem *p, const Inputs *in, const Selection *rows, const Selection *keys,
                   bool backward, uint64_t variant, Results *results) {
    attend(p, in, rows, keys, backward, variant, results);
}
