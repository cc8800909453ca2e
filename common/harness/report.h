// What a run tells: the table for people, JSON and CSV for programs, the picture.
#ifndef REPORT_H
#define REPORT_H

#include "harness/run.h"

// Headings, a row for each step, mismatches and remarks (table.c).
void print_table(FILE *to, const Run *run);
// The steps with their numbers and ideas, for --list (table.c).
void print_list(FILE *to, const Chapter *chapter);

// How busy the units of the modelled GPU were, for steps that softgpu timed (busy.c).
enum { BUSY_UNITS = 12 };
const char *busy_unit_name(int unit);
double busy_share(const StepResult *r, int unit); // of the time, 0 … 1
bool busy_known(const StepResult *r);

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
