// How far the errors of right fp32 sums scatter.
//
// The model computes a problem once, so its error is one throw of the dice: a sum of head_dim
// products in fp32 is off by what the order of its additions makes it. Over many rows luck evens
// out. But one score's error moves a whole row of outputs, and where few rows count (a window of
// two keys, scores so large that the largest takes all) a few scores make the whole error, and a
// sum as good as the model's may have several times its error. So the model is computed again and
// again, each time in another order of operations, all of them as good:
//   - the columns of head_dim in another order, and with them the sums Q Kᵀ, dO Vᵀ, rowsum(dO∘O);
//   - a row's sum of exponentials from another key on;
//   - P of the backward pass from lse, as everything does that doesn't keep P.
//
// The sum of squared errors is near c times a χ² of n degrees of freedom, c and n from its mean
// and its variance over the variants; its quantile is Wilson and Hilferty's. The largest error's
// square is taken for another one. Where many scores count, the quantile is near the mean, and the
// factors that the limits have anyway are larger: the limits stay the model's.
//
// In fp16 and bf16 nothing is measured: there the model's errors are those of rounding S and P to
// the dtype, which falls on the same values in any order of the sums.

#include <math.h>
#include <stdlib.h>

#include "harness/random.h"
#include "harness/reference.h"

enum { FEWEST_VARIANTS = 8, MOST_VARIANTS = 32 };
static const double usual_flops = 2e9; // for all variants together, if that makes enough of them
static const double normal_quantile = 3.719; // of a normal distribution: one in 10,000 lies above

// The mean and the variance of something, from its values' sums.
typedef struct {
    double sum, squares;
} Moments;

typedef struct {
    Moments largest; // error² of the worst output
    Moments energy;  // Σ error²
    int64_t finite;  // outputs that have an error
} Errors;

static void add_value(Moments *moments, double value) {
    moments->sum += value;
    moments->squares += value * value;
}

// Column order[c] of `from` becomes column c.
static float *permuted(const float *from, int64_t elements, int columns, const int *order) {
    if (from == NULL) return NULL;
    float *to = allocate(elements * (int64_t)sizeof *to);
    for (int64_t i = 0; i < elements; i += columns) {
        for (int c = 0; c < columns; c++) to[i + c] = from[i + order[c]];
    }
    return to;
}

// A shuffle, by Fisher and Yates.
static void shuffle(int *order, int count, uint64_t seed) {
    for (int c = 0; c < count; c++) order[c] = c;
    for (int c = count - 1; c > 0; c--) {
        int other = (int)(random_bits(seed, 1, (uint64_t)c) % (uint64_t)(c + 1)), kept = order[c];
        order[c] = order[other];
        order[other] = kept;
    }
}

// Adds a variant's errors; its columns are in another order than the reference's.
static void add_errors(const Problem *p, const Reference *reference, const Results *variant,
                       TensorName tensor, const int *order, Errors *errors) {
    const double *exact = results_of(&reference->exact, tensor), *got = results_of(variant, tensor);
    int64_t count = results_count(p, reference, tensor);
    int columns = tensor == TENSOR_LSE ? 1 : p->head_dim;
    double energy = 0, largest = 0;
    errors->finite = 0;
    for (int64_t i = 0; i < count; i += columns) {
        for (int c = 0; c < columns; c++) {
            double wanted = exact[i + (columns == 1 ? 0 : order[c])];
            double error = fabs(got[i + c] - wanted);
            if (!isfinite(error)) continue;
            if (error > largest) largest = error;
            energy += error * error;
            errors->finite++;
        }
    }
    add_value(&errors->energy, energy);
    add_value(&errors->largest, largest * largest);
}

// What one value in 10,000 exceeds.
static double high_value(const Moments *moments, int count) {
    double mean = moments->sum / count;
    double variance = (moments->squares - moments->sum * mean) / (count - 1);
    if (!(mean > 0)) return 0;
    double freedom = variance > 0 ? 2 * mean * mean / variance : INFINITY;
    if (freedom < 1) freedom = 1; // a single score's error has one
    double part = 2 / (9 * freedom), root = 1 - part + normal_quantile * sqrt(part);
    return mean * root * root * root;
}

// How many variants the problem gets; 0: too large, or its dtype needs none.
static int variants_of(const Problem *p, bool backward) {
    double flops = problem_flops(p, false) + (backward ? problem_flops(p, true) : 0);
    if (p->dtype != DTYPE_FP32 || flops * FEWEST_VARIANTS > full_flops) return 0;
    double affordable = usual_flops / (flops + 1);
    if (affordable > MOST_VARIANTS) return MOST_VARIANTS;
    return affordable < FEWEST_VARIANTS ? FEWEST_VARIANTS : (int)affordable;
}

void scatter_measure(const Problem *p, const Inputs *in, Reference *reference) {
    int variants = variants_of(p, reference->backward);
    int *order = allocate(p->head_dim * (int64_t)sizeof *order);
    Errors errors[TENSOR_COUNT] = {0};
    for (int v = 1; v <= variants; v++) {
        shuffle(order, p->head_dim, (uint64_t)v);
        int64_t queries = query_elements(p), keys = key_elements(p);
        Inputs shuffled = {.q = permuted(in->q, queries, p->head_dim, order),
                           .k = permuted(in->k, keys, p->head_dim, order),
                           .v = permuted(in->v, keys, p->head_dim, order),
                           .dout = permuted(in->dout, queries, p->head_dim, order),
                           .dlse = in->dlse,
                           .sink = in->sink};
        Results variant;
        model_variant(p, &shuffled, &reference->rows, &reference->keys, reference->backward,
                      (uint64_t)v, &variant);
        for (int t = 0; t < TENSOR_COUNT; t++) {
            if (results_of(&variant, (TensorName)t) == NULL) continue;
            add_errors(p, reference, &variant, (TensorName)t, order, &errors[t]);
        }
        results_free(&variant);
        shuffled.dlse = shuffled.sink = NULL; // they are the caller's
        inputs_free(&shuffled);
    }
    free(order);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        reference->scatter[t] = (Scatter){0};
        if (errors[t].finite == 0) continue;
        reference->scatter[t].max = sqrt(high_value(&errors[t].largest, variants));
        double energy = high_value(&errors[t].energy, variants);
        reference->scatter[t].rms = sqrt(energy / (double)errors[t].finite);
    }
}
