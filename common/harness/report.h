// What a run tells: the table for people, JSON and CSV for programs, the picture.
#ifndef REPORT_H
#define REPORT_H

#include "harness/run.h"

// The table for people: headings, a row for each step, mismatches and remarks (table.c).
typedef struct {
    FILE *to;
    int shown; // of the run's results, from the first on; 0: nor are the headings
} Table;

// Prints the rows of the forward pass up to the result before `end`, at once.
void table_rows(Table *table, const Run *run, int end);
// All that is still to print.
void table_end(Table *table, const Run *run);
// All of it, of a run that has ended.
void print_table(FILE *to, const Run *run);
// The steps with their numbers and ideas, for --list (table.c).
void print_list(FILE *to, const Chapter *chapter);

// How busy the units of the modelled GPU were, for steps that softgpu timed (busy.c).
enum { BUSY_UNITS = 14 };
const char *busy_unit_name(int unit);
// Of the time, 0 … 1. NAN: a unit that the roofline, or the timing model, does not have.
double busy_share(const StepResult *r, int unit);
bool busy_known(const StepResult *r);

// How long the step's work alone takes each unit at its full rate, in cycles of all SMs together
// (busy.c). NAN on a GPU.
enum { WORK_UNITS = 6 };
const char *work_unit_name(int unit);
double work_cycles(const StepResult *r, int unit);

// What the resident warps' cycles went to, shares of 0 … 1: issuing, or waiting for a reason
// (busy.c). NAN where the timing model did not time the step.
enum { WAIT_REASONS = 8 };
bool model_timed(const StepResult *r);
const char *wait_name(int reason);
double wait_share(const StepResult *r, int reason);
double issue_share(const StepResult *r);

// The two tables of --explain (explain.c).
void print_explanation(FILE *to, const Run *run);

// One object (json.c).
void write_json(FILE *to, const Run *run);
// A line of names, and a line for each step (csv.c).
void write_csv_header(FILE *to);
void write_csv(FILE *to, const Run *run);

// Draws `csv` into `png` by common/plot/`script`. False: the message says why there is no picture.
bool draw_plot(const char *script, const char *csv, const char *png, Message *message);

// Text in `width` columns, to the left or the right; counts characters, not bytes.
void print_padded(FILE *to, const char *text, int width, bool right);

#endif
