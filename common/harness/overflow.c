// Problems that the dtype can't hold. Standard attention stores its scores in the dtype; where they
// are too large for it (a --scale of 10000 in fp16), it has infinities and NaN for results, and so
// no error that a limit could come from. And a result beyond the dtype's largest value can't be
// written by any step. Either is a slip of the problem, not a mistake of a step.

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

bool reference_fits(const Problem *p, const Reference *reference, Message *message) {
    const double *lse = reference->exact.lse, *model_lse = reference->model.lse;
    int64_t rows = results_count(p, reference, TENSOR_LSE);
    for (int64_t i = 0; i < rows; i++) {
        // Where all scores of a row are too far below zero instead, the fused steps still are right.
        bool overflows = !isfinite(model_lse[i]) && lse[i] > 0;
        if (isfinite(lse[i]) && overflows) return refuse_scores(p, lse[i], message);
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
