// The tolerance rule. Every comparison is written so that a NaN fails it.
#include "harness/check.h"

#include <math.h>
#include <string.h>

#include "harness/convert.h"

static const double max_factor = 2, max_slack = 1e-5, rms_factor = 1.2, rms_slack_half_ulps = 0.3;
enum { FEWEST_FOR_RMS = 1024 };

static bool of_keys(TensorName tensor) {
    return tensor == TENSOR_DK || tensor == TENSOR_DV;
}

static int tensor_heads(const Problem *p, TensorName tensor) {
    return of_keys(tensor) ? p->kv_heads : p->heads;
}

int64_t tensor_rows(const Problem *p, TensorName tensor, int64_t batch) {
    return of_keys(tensor) ? key_length(p, batch) : query_length(p, batch);
}

static int tensor_columns(const Problem *p, TensorName tensor) {
    return tensor == TENSOR_LSE ? 1 : p->head_dim;
}

int64_t tensor_elements(const Problem *p, TensorName tensor) {
    int columns = tensor == TENSOR_LSE ? 1 : p->built_head_dim;
    return (of_keys(tensor) ? total_keys(p) : total_queries(p)) * tensor_heads(p, tensor) * columns;
}

Dtype tensor_dtype(const Problem *p, TensorName tensor) {
    return tensor == TENSOR_LSE ? DTYPE_FP32 : p->dtype;
}

int64_t tensor_index(const Problem *p, TensorName tensor, int64_t batch, int head, int64_t row,
                     int column) {
    int heads = tensor_heads(p, tensor);
    if (tensor == TENSOR_LSE && p->cu_seqlens_q != NULL)
        return head * total_queries(p) + first_query(p, batch) + row;
    if (tensor == TENSOR_LSE) return (batch * heads + head) * p->seqlen_q + row;
    int64_t first = of_keys(tensor) ? first_key(p, batch) : first_query(p, batch);
    return ((first + row) * heads + head) * p->built_head_dim + column;
}

// Is the element still the poison that the buffer was filled with?
static bool is_poison(const void *bytes, int64_t index, Dtype dtype) {
    size_t size = dtype_size(dtype);
    const unsigned char *at = (const unsigned char *)bytes + (size_t)index * size;
    for (size_t b = 0; b < size; b++) {
        if (at[b] != POISON) return false;
    }
    return true;
}

// The limits, from the model's own errors, or those of equally good sums that had less luck. Where
// the model overflowed (in rows that reference_fits() didn't see), its error there is taken to be
// that of the exact result's rounding.
static void set_limits(const double *exact, const double *model, int64_t count, Dtype dtype,
                       const Scatter *scatter, TensorCheck *check) {
    double squares = 0, exact_squares = 0;
    int64_t finite = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(exact[i])) continue;
        double value = isfinite(model[i]) ? model[i] : round_to_dtype((float)exact[i], dtype);
        double error = fabs(value - exact[i]);
        if (error > check->model_max) check->model_max = error;
        squares += error * error;
        exact_squares += exact[i] * exact[i];
        finite++;
    }
    if (finite > 0) check->model_rms = sqrt(squares / (double)finite);
    check->limit = fmax(max_factor * check->model_max, scatter->max) + max_slack;
    check->rms_limit = NAN;
    if (finite >= FEWEST_FOR_RMS) {
        double ulp = half_ulp(sqrt(exact_squares / (double)finite), dtype);
        double rms = fmax(rms_factor * check->model_rms, scatter->rms);
        check->rms_limit = rms + rms_slack_half_ulps * ulp;
    }
}

// Looks at every element, compared or not: was it written, is the padding zero, and is there a NaN
// or infinity where finite inputs can't make one?
static void check_everywhere(const Problem *p, const Selection *selection, TensorName tensor,
                             const void *bytes, bool finite_inputs, TensorCheck *check) {
    Dtype dtype = tensor_dtype(p, tensor);
    int heads = tensor_heads(p, tensor), columns = tensor_columns(p, tensor);
    int stored = tensor == TENSOR_LSE ? 1 : p->built_head_dim;
    for (int64_t b = 0; b < p->batch; b++) {
        for (int h = 0; h < heads; h++) {
            for (int64_t r = 0; r < tensor_rows(p, tensor, b); r++) {
                int64_t first = tensor_index(p, tensor, b, h, r, 0);
                for (int c = 0; c < stored; c++) {
                    if (is_poison(bytes, first + c, dtype)) {
                        check->unwritten++;
                        continue;
                    }
                    float value = load_dtype(bytes, first + c, dtype);
                    if (c >= columns && !(value == 0)) check->padding++;
                    if (c >= columns || selection->chosen == NULL || !finite_inputs) continue;
                    if (isfinite(value)) continue;
                    int64_t from, to;
                    visible_keys(p, b, r, &from, &to);
                    bool expected =
                        tensor == TENSOR_LSE && from == to && !p->has_sink && value == -INFINITY;
                    if (!expected) check->nonfinite++;
                }
            }
        }
    }
}

// True if the comparison finds this element wrong.
static bool element_wrong(double got, double exact, double limit) {
    if (isnan(exact)) return !isnan(got);
    if (isinf(exact)) return !(got == exact);
    return !(fabs(got - exact) <= limit); // a NaN or infinity in `got` fails this
}

static bool all_finite(const float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) return false;
    }
    return true;
}

// The person's lines: what, how many, where first, then the guess.
static void write_report(const Mismatch *m, const int64_t first[4], double got, double exact,
                         TensorCheck *check) {
    size_t size = sizeof check->report;
    char *text = check->report;
    int at = 0;
    const char *name = tensor_name(m->tensor);
    if (check->wrong > 0) {
        const char *row = of_keys(m->tensor) ? "key" : "row";
        at += snprintf(text, size, "%s: wrong in %lld of %lld outputs\n", name,
                       (long long)check->wrong, (long long)check->compared);
        at += snprintf(text + at, size - (size_t)at,
                       "  first at batch %lld, head %lld, %s %lld, column %lld: got %.6g, "
                       "expected %.6g (limit %.1e)\n",
                       (long long)first[0], (long long)first[1], row, (long long)first[2],
                       (long long)first[3], isnan(got) ? NAN : got, exact, check->limit);
    } else if (check->rms > check->rms_limit) {
        at += snprintf(text, size,
                       "%s: no single output is off by more than the limit, but the rms error %.2e "
                       "exceeds %.2e: more is rounded than needs to be\n",
                       name, check->rms, check->rms_limit);
    }
    if (check->unwritten > 0) {
        at += snprintf(text + at, size - (size_t)at, "%s%s: %lld elements were never written\n",
                       at > 0 ? "  " : "", name, (long long)check->unwritten);
    }
    if (check->nonfinite > 0) {
        at += snprintf(text + at, size - (size_t)at,
                       "%s%s: %lld NaN or infinite values on one side only\n", at > 0 ? "  " : "",
                       name, (long long)check->nonfinite);
    }
    if (check->padding > 0) {
        at += snprintf(text + at, size - (size_t)at,
                       "%s%s: %lld elements of the zero padding behind head_dim %d are not zero\n",
                       at > 0 ? "  " : "", name, (long long)check->padding, m->p->head_dim);
    }
    if (check->wrong > 0) guess_pattern(m, text + at, size - (size_t)at);
}

void check_tensor(const Problem *p, const Inputs *in, const Reference *reference, TensorName tensor,
                  const void *bytes, TensorCheck *check) {
    const Selection *selection = of_keys(tensor) ? &reference->keys : &reference->rows;
    const double *exact = results_of(&reference->exact, tensor);
    const double *model = results_of(&reference->model, tensor);
    Dtype dtype = tensor_dtype(p, tensor);
    int heads = tensor_heads(p, tensor), columns = tensor_columns(p, tensor);
    int64_t total = (int64_t)p->batch * heads * selection->count * columns;
    *check = (TensorCheck){.measured = true};
    set_limits(exact, model, total, dtype, &reference->scatter[tensor], check);

    bool finite_inputs = selection->chosen == NULL ||
                         (all_finite(in->q, query_elements(p)) &&
                          all_finite(in->k, key_elements(p)) && all_finite(in->v, key_elements(p)));
    check_everywhere(p, selection, tensor, bytes, finite_inputs, check);

    int64_t first[4] = {0}, both_finite = 0;
    double first_got = 0, first_exact = 0, squares = 0;
    for (int64_t head = 0; head < (int64_t)p->batch * heads; head++) {
        for (int64_t r = 0; r < selection->count; r++) {
            int64_t row = selection_row(selection, head, r);
            if (row >= tensor_rows(p, tensor, head / heads)) continue;
            int64_t at = tensor_index(p, tensor, head / heads, (int)(head % heads), row, 0);
            for (int c = 0; c < columns; c++) {
                double got = load_dtype(bytes, at + c, dtype);
                double wanted = exact[(head * selection->count + r) * columns + c];
                check->compared++;
                if (isfinite(got) && isfinite(wanted)) {
                    double error = fabs(got - wanted);
                    if (error > check->max) check->max = error;
                    squares += error * error;
                    both_finite++;
                }
                if (!element_wrong(got, wanted, check->limit)) continue;
                if (selection->chosen == NULL && !(isfinite(got) && isfinite(wanted)) &&
                    !is_poison(bytes, at + c, dtype)) {
                    check->nonfinite++;
                }
                if (check->wrong++ > 0) continue;
                int64_t place[] = {head / heads, head % heads, row, c};
                memcpy(first, place, sizeof first);
                first_got = got;
                first_exact = wanted;
            }
        }
    }
    if (both_finite > 0) check->rms = sqrt(squares / (double)both_finite);
    bool rms_right = isnan(check->rms_limit) || check->rms <= check->rms_limit;
    check->ok = check->wrong == 0 && check->nonfinite == 0 && check->unwritten == 0 &&
                check->padding == 0 && rms_right;
    if (check->ok) return;
    Mismatch mismatch = {p, in, reference, tensor, bytes, check->limit};
    write_report(&mismatch, first, first_got, first_exact, check);
}
