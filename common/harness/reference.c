// The float64 reference: standard attention with nothing rounded. Also what a comparison needs of
// it: how many rows, and both results together.
#include "harness/rotary.h"

#define REAL         double
#define LANES        8
#define STORED(x, p) ((void)(p), (x))
#define EXP          exp
#define LOG          log
#define TANH         tanh
#include "harness/standard_attention.h"

const double full_flops = 20e9;
enum { SAMPLED_ROWS = 256 };

void reference_attention(const Problem *p, const Inputs *in, const Selection *rows,
                         const Selection *keys, bool backward, Results *results) {
    attend(p, in, rows, keys, backward, 0, results);
}

const double *results_of(const Results *results, TensorName tensor) {
    const double *values[] = {results->o, results->lse, results->dq, results->dk, results->dv};
    return values[tensor];
}

const char *tensor_name(TensorName tensor) {
    static const char *const names[] = {"o", "lse", "dq", "dk", "dv"};
    return names[tensor];
}

int64_t results_count(const Problem *p, const Reference *reference, TensorName tensor) {
    bool of_keys = tensor == TENSOR_DK || tensor == TENSOR_DV;
    const Selection *selection = of_keys ? &reference->keys : &reference->rows;
    int64_t heads = (int64_t)p->batch * (of_keys ? p->kv_heads : p->heads);
    return heads * selection->count * (tensor == TENSOR_LSE ? 1 : p->head_dim);
}

void results_free(Results *results) {
    free(results->o);
    free(results->lse);
    free(results->dq);
    free(results->dk);
    free(results->dv);
    *results = (Results){0};
}

// The truth of one input, the model of what is left of it where it is rounded on the way.
static void compute_both(const Problem *p, const Inputs *exact, const Inputs *model,
                         Reference *reference) {
    const Selection *rows = &reference->rows, *keys = &reference->keys;
    reference_attention(p, exact, rows, keys, reference->backward, &reference->exact);
    model_attention(p, model, rows, keys, reference->backward, &reference->model);
    scatter_measure(p, model, reference);
}

void reference_make(const Problem *p, const Inputs *in, bool backward, Reference *reference) {
    bool sampled = problem_flops(p, backward) > full_flops;
    int64_t rows = sampled ? SAMPLED_ROWS : p->seqlen_q,
            keys = sampled ? SAMPLED_ROWS : p->seqlen_k;
    if (p->cu_seqlens_q != NULL) {
        selection_make_varlen(&reference->rows, p->seqlen_q, rows, p->batch, p->heads,
                              p->cu_seqlens_q, p->seed);
        selection_make_varlen(&reference->keys, p->seqlen_k, keys, p->batch, p->kv_heads,
                              p->cu_seqlens_k, p->seed + 1);
    } else {
        selection_make(&reference->rows, p->seqlen_q, rows, (int64_t)p->batch * p->heads, p->seed);
        selection_make(&reference->keys, p->seqlen_k, keys, (int64_t)p->batch * p->kv_heads,
                       p->seed + 1);
    }
    reference->backward = backward;
    if (p->cache.rotary_dim == 0) {
        compute_both(p, in, in, reference);
        return;
    }
    Inputs exact = rotary_inputs(p, in, false), model = rotary_inputs(p, in, true);
    compute_both(p, &exact, &model, reference);
    rotary_inputs_free(&exact);
    rotary_inputs_free(&model);
}

void reference_free(Reference *reference) {
    selection_free(&reference->rows);
    selection_free(&reference->keys);
    results_free(&reference->exact);
    results_free(&reference->model);
}
