// Problems that numbers can't hold. Standard attention stores its scores in the dtype; where they
// are too large for it (a --scale of 10000 in fp16), it has infinities and NaN for results, and so
// no error that a limit could come from. And a result beyond the dtype's largest value can't be
// written by any step. And fused steps compute exponents as score * log2(e) - maximum with one rounding
// of each, in fp32, where beyond 2^27 a step is 16: then a weight that is 1 can come out as 2^8, and
// soon as infinity. All of these are slips of the problem, not mistakes of a step.

#include <math.h>

#include "harness/convert.h"
#include "harness/reference.h"

static bool refuse_scores(const Problem *p, double lse, Message *message) {
    const char *mend = p->dtype == DTYPE_FP16 ? ", or --dtype bf16 or fp32" : "";
    return refuse(message,
                  "--scale %g: scores reach %.2g, and standard attention, which the limits come "
                  "from, keeps them in %s (at most %.6g); use a smaller scale or smaller inputs%s",
                  (double)p->scale, fabs(lse), dtype_name(p->dtype), dtype_largest(p->dtype), mend);
}

#define LARGEST_EXPONENT 0x1p27

static bool exponents_are_coarse(const Problem *p, double lse) {
    return p->dtype != DTYPE_FP32 && fabs(lse) > LARGEST_EXPONENT * M_LN2;
}

static bool refuse_exponents(const Problem *p, double lse, Message *message) {
    return refuse(
        message,
        "--scale %g: scores reach %.2g; beyond %.2g their exponents are too coarse in fp32 for "
        "a fused softmax; use a smaller scale or smaller inputs",
        (double)p->scale, fabs(lse), LARGEST_EXPONENT * M_LN2);
}

bool reference_fits(const Problem *p, const Reference *reference, Message *message) {
    const double *lse = reference->exact.lse, *model_lse = reference->model.lse;
    int64_t rows = results_count(p, reference, TENSOR_LSE);
    for (int64_t i = 0; i < rows; i++) {
        // Where all scores of a row are too far below zero instead, the fused steps still are right.
        bool overflows = !isfinite(model_lse[i]) && lse[i] > 0;
        if (isfinite(lse[i]) && overflows) return refuse_scores(p, lse[i], message);
        if (isfinite(lse[i]) && exponents_are_coarse(p, lse[i]))
            return refuse_exponents(p, lse[i], message);
    }
    for (int t = 0; t < TENSOR_COUNT; t++) {
        const double *exact = results_of(&reference->exact, (TensorName)t);
        const double *model = results_of(&reference->model, (TensorName)t);
        if (exact == NULL || t == TENSOR_LSE) continue; // lse is fp32 whatever the dtype
        for (int64_t i = 0; i < results_count(p, reference, (TensorName)t); i++) {
            if (!isfinite(exact[i]) || isfinite(model[i])) continue;
            if (fabs(exact[i]) <= dtype_largest(p->dtype)) continue;
            return refuse(message,
                          "--dtype %s: %s reaches %.2g, and %s holds at most %.6g; use a smaller "
                          "scale or smaller inputs",
                          dtype_name(p->dtype), tensor_name((TensorName)t), exact[i],
                          dtype_name(p->dtype), dtype_largest(p->dtype));
        }
    }
    return true;
}
