// --predict: what a person thinks before a run, and beside it what came out.
#ifndef PREDICT_H
#define PREDICT_H

#include "harness/run.h"

typedef struct {
    bool asked;
    const Step *step; // the one that gains most over the step before it
    double factor;    // how many times faster it is
} Prediction;

// Asks on `to` for the step and the factor, and reads a line for each from `from`; what can't be an
// answer is asked for again. False (exit 2): too few steps, or the answers end; the message says
// which.
bool prediction_ask(Prediction *prediction, const Chapter *chapter, const bool *chosen,
                    bool backward, FILE *from, FILE *to, Message *message);
// The prediction, and what the run says; nothing if it wasn't asked for.
void prediction_print(FILE *to, const Prediction *prediction, const Run *run);

#endif
