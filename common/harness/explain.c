// --explain: where the time of each step went. The first table is about the units (an average of
// the SMs, of the kernels' cycles), the second about the warps (of all resident warps' cycles). Both
// are the timing model's; "n/a" stands where it did not time a step, never a share of a roofline.
#include "harness/report.h"

#include <math.h>
#include <string.h>

enum { NAME_WIDTH = 26, CELL_WIDTH = 32 };

// Units in the order of the lessons' questions: products, exponentials, the rest, data.
static const char *const shown_units[] = {"tensor",     "MUFU",   "FMA", "ALU", "issue",
                                          "load/store", "shared", "TMA", "L2",  "HBM"};
enum { SHOWN_UNITS = sizeof shown_units / sizeof *shown_units };

static int unit_of_name(const char *name) {
    for (int u = 0; u < BUSY_UNITS; u++) {
        if (strncmp(busy_unit_name(u), name, strlen(name)) == 0) return u;
    }
    return -1;
}

static void share_cell(char *cell, double share) {
    if (isnan(share))
        snprintf(cell, CELL_WIDTH, "n/a");
    else
        snprintf(cell, CELL_WIDTH, "%.0f", share * 100);
}

static void cycles_cell(char *cell, const StepResult *r) {
    double cycles = r->stats.cycles;
    if (!model_timed(r))
        snprintf(cell, CELL_WIDTH, "n/a");
    else if (cycles < 1e6)
        snprintf(cell, CELL_WIDTH, "%.0f", cycles);
    else
        snprintf(cell, CELL_WIDTH, "%.2f M", cycles * 1e-6);
}

static void name_cell(char *cell, size_t size, const StepResult *r) {
    snprintf(cell, size, "%d %.40s%s", r->step->chapter, r->step->name,
             r->backward ? " (backward)" : "");
}

// A cell of a row: at least as wide as its column's title.
static void print_cell(FILE *to, const char *text, const char *title) {
    int width = (int)strlen(title);
    fputs("  ", to);
    print_padded(to, text, width > 4 ? width : 4, true);
}

static int name_width(const Run *run) {
    int widest = NAME_WIDTH;
    for (int i = 0; i < run->count; i++) {
        char name[64];
        name_cell(name, sizeof name, &run->results[i]);
        if ((int)strlen(name) > widest) widest = (int)strlen(name);
    }
    return widest;
}

static void print_units(FILE *to, const Run *run, int width) {
    fputs("\n  ", to);
    print_padded(to, "units busy, % of the cycles", width, false);
    print_cell(to, "cycles", "000.00 M");
    for (int k = 0; k < SHOWN_UNITS; k++) print_cell(to, shown_units[k], shown_units[k]);
    fputc('\n', to);
    for (int i = 0; i < run->count; i++) {
        const StepResult *r = &run->results[i];
        char cell[64];
        if (r->refused[0] != 0) continue;
        name_cell(cell, sizeof cell, r);
        fputs("  ", to);
        print_padded(to, cell, width, false);
        cycles_cell(cell, r);
        print_cell(to, cell, "000.00 M");
        for (int k = 0; k < SHOWN_UNITS; k++) {
            share_cell(cell, model_timed(r) ? busy_share(r, unit_of_name(shown_units[k])) : NAN);
            print_cell(to, cell, shown_units[k]);
        }
        fputc('\n', to);
    }
}

static void print_waits(FILE *to, const Run *run, int width) {
    fputs("\n  ", to);
    print_padded(to, "warps, % of their cycles", width, false);
    print_cell(to, "issue", "issue");
    for (int w = 0; w < WAIT_REASONS; w++) print_cell(to, wait_name(w), wait_name(w));
    fputc('\n', to);
    for (int i = 0; i < run->count; i++) {
        const StepResult *r = &run->results[i];
        char cell[64];
        if (r->refused[0] != 0) continue;
        name_cell(cell, sizeof cell, r);
        fputs("  ", to);
        print_padded(to, cell, width, false);
        share_cell(cell, issue_share(r));
        print_cell(to, cell, "issue");
        for (int w = 0; w < WAIT_REASONS; w++) {
            share_cell(cell, wait_share(r, w));
            print_cell(to, cell, wait_name(w));
        }
        fputc('\n', to);
    }
}

void print_explanation(FILE *to, const Run *run) {
    const Device *d = run->device;
    int width = name_width(run), unknown = 0;
    fprintf(to, "\nwhere the time went · ");
    if (d->softgpu == NULL)
        fprintf(to, "times measured on %s", d->full_name);
    else
        fprintf(to, "%s for %s",
                strcmp(run->time_kind, "modelled") == 0 ? "modelled" : "times are a roofline",
                d->full_name);
    if (d->clock_ghz > 0) fprintf(to, " at %.3g GHz", d->clock_ghz);
    fputc('\n', to);
    print_units(to, run, width);
    print_waits(to, run, width);
    for (int i = 0; i < run->count; i++) unknown += !model_timed(&run->results[i]);
    if (unknown > 0) {
        fprintf(
            to,
            "\n  n/a: not timed by softgpu's timing model, so there are no cycles to divide%s\n",
            d->softgpu == NULL ? "; --device softgpu has them" : "");
    }
    fputs("\n  issue: a warp instruction goes out · barrier: for other warps · mbarrier: for data "
          "or a free\n  buffer · wgmma: for products · memory: for a load · copy: for cp.async or "
          "bulk groups ·\n  dependency: for a result of arithmetic · pipe full: its unit, or the "
          "scheduler's issue\n  slot, is taken · other: sleeping, or waiting for registers\n",
          to);
}
