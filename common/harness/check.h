// Is an output right? The tolerance rule, and what a person needs to know when it is not.
//
// A tensor passes when
//   max |got - exact| <= 2 × the model's + 1e-5,
//   rms(got - exact)  <= 1.2 × the model's + 0.3 × half an ulp of its dtype at rms(exact)
//                        (not asked of fewer than 1,024 outputs),
//   (in fp32, where few scores make the whole error, "2 × the model's" and "1.2 × the model's" are
//   at least what one of 10,000 sums as good as the model's exceeds: scatter.c),
//   every element was written, the zero padding of head_dim is zero, and
//   NaN and infinity stand exactly where they stand in the exact result.
#ifndef HARNESS_CHECK_H
#define HARNESS_CHECK_H

#include "harness/message.h"
#include "harness/reference.h"

// The byte that outputs are filled with before a run: a NaN in every floating-point type.
enum { POISON = 0xff };

typedef struct {
    bool measured; // false: this tensor was not checked
    bool ok;
    double max, rms;             // of the errors, where both sides are finite
    double limit, rms_limit;     // rms_limit NAN: not asked
    double model_max, model_rms; // what the limits come from
    int64_t compared, wrong;     // elements; wrong: off by more than `limit`, or one of the below
    int64_t nonfinite;           // NaN or infinity on one side only
    int64_t unwritten;           // still holding the poison
    int64_t padding;             // nonzero in the padding of head_dim
    char report[2048];           // lines for the person when not ok; else ""
} TensorCheck;

// Rows of a tensor in one sequence of the batch.
int64_t tensor_rows(const Problem *p, TensorName tensor, int64_t batch);
// Elements of the device's buffer (the padding of head_dim among them), its type and its bytes.
int64_t tensor_elements(const Problem *p, TensorName tensor);
Dtype tensor_dtype(const Problem *p, TensorName tensor);
// Where element (batch, head, row, column) is in the device's buffer.
int64_t tensor_index(const Problem *p, TensorName tensor, int64_t batch, int head, int64_t row,
                     int column);

// Compares a host copy of the device's buffer with the reference.
void check_tensor(const Problem *p, const Inputs *in, const Reference *reference, TensorName tensor,
                  const void *bytes, TensorCheck *check);

// A guess at what happened, from where the wrong elements are and what they hold: adds lines to
// the report (pattern.c).
typedef struct {
    const Problem *p;
    const Inputs *in;
    const Reference *reference;
    TensorName tensor;
    const void *bytes;
    double limit;
} Mismatch;
void guess_pattern(const Mismatch *mismatch, char *report, size_t size);

#endif
