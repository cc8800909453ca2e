// --predict: what a person thinks before a run, and beside it what came out. Who has said a number
// reads the table with other eyes.
//
// Steps are compared as the table's column "÷ previous" does: each with the one before it, of the same
// pass; exhibits don't count. With a backward pass it is the backward that is asked about.
#include "harness/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_LENGTH = 200 };

// Can it be the answer? It is run, no exhibit, and another one stands before it.
static bool can_gain(const Chapter *chapter, const bool *chosen, int s) {
    if (!chosen[s] || chapter->steps[s]->exhibit) return false;
    for (int before = 0; before < s; before++)
        if (chosen[before] && !chapter->steps[before]->exhibit) return true;
    return false;
}

// A line without its end and the spaces around it. False: there is none.
static bool read_answer(char *answer, FILE *from) {
    if (fgets(answer, ANSWER_LENGTH, from) == NULL) return false;
    size_t length = strlen(answer);
    while (length > 0 && strchr(" \t\r\n", answer[length - 1]) != NULL) answer[--length] = 0;
    memmove(answer, answer + strspn(answer, " \t"), length + 1 - strspn(answer, " \t"));
    return true;
}

static const Step *step_of(const char *answer, const Chapter *chapter, const bool *chosen) {
    for (int s = 0; s < chapter->step_count; s++) {
        char number[16];
        snprintf(number, sizeof number, "%d", s + 1);
        if (!can_gain(chapter, chosen, s)) continue;
        if (strcmp(answer, number) == 0 || strcmp(answer, chapter->steps[s]->name) == 0)
            return chapter->steps[s];
    }
    return NULL;
}

// "2", "1.5" and "1.5x" are 2 and 1.5; 0: no number above 0.
static double factor_of(const char *answer) {
    char *end;
    const double factor = strtod(answer, &end);
    if (end == answer || !isfinite(factor) || factor <= 0) return 0;
    const bool whole = *end == 0 || strcmp(end, "x") == 0 || strcmp(end, "×") == 0;
    return whole ? factor : 0;
}

static bool nothing_said(FILE *to, Message *message) {
    fputc('\n', to);
    return refuse(message, "--predict: the answers end; give two lines: a step's number or name, "
                           "and how many times faster it is");
}

bool prediction_ask(Prediction *p, const Chapter *chapter, const bool *chosen, bool backward,
                    FILE *from, FILE *to, Message *message) {
    char answer[ANSWER_LENGTH];
    int candidates = 0;
    *p = (Prediction){.asked = true};
    for (int s = 0; s < chapter->step_count; s++) candidates += can_gain(chapter, chosen, s);
    if (candidates == 0)
        return refuse(message,
                      "--predict: there is nothing to compare; --steps must name two steps "
                      "or more");

    fprintf(to, "Which step gains most over the step before it%s?\n\n",
            backward ? ", in the backward pass" : "");
    for (int s = 0; s < chapter->step_count; s++)
        if (can_gain(chapter, chosen, s))
            fprintf(to, "  %2d  %-22s  %s\n", s + 1, chapter->steps[s]->name,
                    chapter->steps[s]->idea);
    fprintf(to, "\nits number or name: ");
    for (fflush(to); p->step == NULL; fflush(to)) {
        if (!read_answer(answer, from)) return nothing_said(to, message);
        p->step = step_of(answer, chapter, chosen);
        if (p->step == NULL) fprintf(to, "%s: none of these steps; its number or name: ", answer);
    }
    fprintf(to, "how many times faster is it than the step before it? ");
    for (fflush(to); p->factor == 0; fflush(to)) {
        if (!read_answer(answer, from)) return nothing_said(to, message);
        p->factor = factor_of(answer);
        if (p->factor == 0) fprintf(to, "%s: give a number above 0, as 1.5: ", answer);
    }
    fprintf(to, "\n");
    return true;
}

void prediction_print(FILE *to, const Prediction *p, const Run *run) {
    if (!p->asked) return;
    const StepResult *most = NULL, *predicted = NULL;
    for (int i = 0; i < run->count; i++) {
        const StepResult *r = &run->results[i];
        if (r->backward != run->backward || r->step->exhibit || isnan(r->speedup_over_previous))
            continue;
        if (most == NULL || r->speedup_over_previous > most->speedup_over_previous) most = r;
        if (r->step == p->step) predicted = r;
    }
    fprintf(to, "\nyour prediction: %s gains most, %.2f×\n", p->step->name, p->factor);
    if (most == NULL) {
        fprintf(to, "the run:         no step was timed beside another one\n");
        return;
    }
    fprintf(to, "the run:         %s gains most, %.2f×", most->step->name,
            most->speedup_over_previous);
    if (predicted == NULL)
        fprintf(to, "; %s was not timed", p->step->name);
    else if (predicted != most)
        fprintf(to, "; %s gains %.2f×", p->step->name, predicted->speedup_over_previous);
    fputc('\n', to);
}
