// The table. What was not measured is a dash, never 0.
#include "harness/report.h"

#include <math.h>
#include <string.h>

#include "harness/convert.h"

enum { CELL = 48 };
static const char *const dash = "—";

static int text_columns(const char *text) {
    int columns = 0;
    for (; *text != 0; text++) columns += (*text & 0xc0) != 0x80; // not a continuation byte
    return columns;
}

void print_padded(FILE *to, const char *text, int width, bool right) {
    int space = width - text_columns(text);
    if (right && space > 0) fprintf(to, "%*s", space, "");
    fputs(text, to);
    if (!right && space > 0) fprintf(to, "%*s", space, "");
}

// Three significant digits, in the unit that suits.
static void scaled(char *cell, double value, double unit, const char *const *units, int count) {
    if (isnan(value)) {
        snprintf(cell, CELL, "%s", dash);
        return;
    }
    int u = 0;
    value /= unit;
    while (u + 1 < count && value >= 999.5) value /= 1000, u++;
    int digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    if (value == 0) digits = 0;
    snprintf(cell, CELL, "%.*f %s", digits, value, units[u]);
}

static void time_cell(char *cell, double us) {
    static const char *const units[] = {"ns", "µs", "ms", "s"};
    scaled(cell, us, 1e-3, units, 4);
}

static void bytes_cell(char *cell, double bytes) {
    static const char *const units[] = {"KB", "MB", "GB", "TB"};
    scaled(cell, bytes, 1e3, units, 4);
}

static void number_cell(char *cell, double value, const char *suffix) {
    if (isnan(value))
        snprintf(cell, CELL, "%s", dash);
    else if (value < 0.095)
        snprintf(cell, CELL, "%.2g%s", value, suffix);
    else if (value < 9.95)
        snprintf(cell, CELL, "%.2f%s", value, suffix);
    else
        snprintf(cell, CELL, "%.1f%s", value, suffix);
}

// The verdict beside the errors.
static const char *verdict(const StepResult *r) {
    if (r->refused[0] != 0) return "not run";
    if (r->error[0] != 0) return "DEVICE ERROR";
    if (r->ok == 0) return r->step->exhibit ? "wrong, as it should be (exhibit)" : "WRONG";
    if (r->findings != NULL) return "FINDINGS";
    if (r->ok < 0) return "not checked";
    return r->step->exhibit ? "ok (exhibit)" : "ok";
}

// The error of the pass: that of o, or the gradient that is nearest to its limit.
static const TensorCheck *decisive(const StepResult *r) {
    const TensorCheck *found = NULL;
    for (int t = 0; t < TENSOR_COUNT; t++) {
        const TensorCheck *c = &r->tensors[t];
        if (!c->measured || t == TENSOR_LSE) continue;
        if (found == NULL || c->max / c->limit > found->max / found->limit) found = c;
    }
    return found;
}

static void error_cell(char *cell, const StepResult *r) {
    const TensorCheck *c = decisive(r);
    if (c == NULL)
        snprintf(cell, CELL, "%s", dash);
    else
        snprintf(cell, CELL, "%.1e (limit %.1e)", c->max, c->limit);
}

static void problem_text(char *text, size_t size, const Problem *p) {
    int at = snprintf(text, size, "batch %d · heads %d", p->batch, p->heads);
    if (p->kv_heads != p->heads) {
        at += snprintf(text + at, size - (size_t)at, " (%d K/V)", p->kv_heads);
    }
    snprintf(text + at, size - (size_t)at, " · seqlen %lld × %lld", (long long)p->seqlen_q,
             (long long)p->seqlen_k);
}

static void print_heading(FILE *to, const Run *run) {
    const Problem *p = &run->checked;
    const Device *d = run->device;
    char text[256];
    fprintf(to, "%02d %s · %s · %s · head_dim %d", run->chapter->number, run->chapter->title,
            run->backward ? "forward and backward" : "forward", dtype_name(p->dtype), p->head_dim);
    if (p->built_head_dim != p->head_dim) fprintf(to, " (padded to %d)", p->built_head_dim);
    if (p->causal) fprintf(to, " · causal");
    if (p->window_left >= 0 || (!p->causal && p->window_right >= 0)) {
        fprintf(to, " · window %lld,%lld", (long long)p->window_left, (long long)p->window_right);
    }
    if (p->softcap > 0) fprintf(to, " · softcap %g", (double)p->softcap);
    if (run->options->input != NULL) fprintf(to, " · input %s", run->options->input);

    problem_text(text, sizeof text, p);
    bool timed = !run->options->check_only;
    fprintf(to, "\n%s: %s", !timed ? "checked" : run->same ? "checked and timed" : "checked", text);
    if (timed && !run->same) {
        problem_text(text, sizeof text, &run->timed);
        fprintf(to, "      timed: %s", text);
    }
    if (timed && d->softgpu != NULL && run->timed.sample != 0) {
        fprintf(to, ", %d of %d SMs simulated", run->timed.sample, d->sms);
    }
    if (d->softgpu != NULL)
        fprintf(to, "\ndevice: softgpu, modelling %s", d->full_name);
    else
        fprintf(to, "\ndevice: %s", d->full_name);
    if (run->options->sms != NULL && d->softgpu != NULL) fprintf(to, " with %d SMs", d->sms);
    if (d->note[0] != 0) fprintf(to, " (%s)", d->note);
    if (timed) {
        fprintf(to, " · times are %s",
                strcmp(run->time_kind, "roofline") == 0 ? "a roofline" : run->time_kind);
        if (d->clock_ghz > 0) fprintf(to, " at %.3g GHz", d->clock_ghz);
    }
    if (run->options->schedule_count > 1 && d->softgpu != NULL) {
        fprintf(to, " · %d schedules", run->options->schedule_count);
    }
    fprintf(to, "\n\n");
}

enum { COLUMNS = 11 };

static void print_rows(FILE *to, const Run *run, bool backward) {
    static const char *const titles[COLUMNS] = {"step",       "time",      "TFLOP/s",   "% peak",
                                                "HBM read",   "written",   "workspace", "÷ naive",
                                                "÷ previous", "max error", ""};
    char cells[MOST_RESULTS + 1][COLUMNS][CELL];
    int rows = 1, widths[COLUMNS] = {0};
    for (int c = 0; c < COLUMNS; c++) snprintf(cells[0][c], CELL, "%s", titles[c]);
    for (int i = 0; i < run->count; i++) {
        const StepResult *r = &run->results[i];
        if (r->backward != backward) continue;
        char(*cell)[CELL] = cells[rows++];
        snprintf(cell[0], CELL, "%d %.32s", r->step->chapter, r->step->name);
        time_cell(cell[1], r->time_us);
        number_cell(cell[2], r->tflops, "");
        number_cell(cell[3], r->peak_fraction * 100, "%");
        bytes_cell(cell[4], r->hbm_read_bytes);
        bytes_cell(cell[5], r->hbm_write_bytes);
        bytes_cell(cell[6], r->workspace_bytes);
        number_cell(cell[7], r->speedup_over_naive, "×");
        number_cell(cell[8], r->speedup_over_previous, "×");
        error_cell(cell[9], r);
        snprintf(cell[10], CELL, "%s", verdict(r));
    }
    for (int i = 0; i < rows; i++) {
        for (int c = 0; c < COLUMNS; c++) {
            int width = text_columns(cells[i][c]);
            if (width > widths[c]) widths[c] = width;
        }
    }
    for (int i = 0; i < rows; i++) {
        for (int c = 0; c < COLUMNS; c++) {
            bool last = c == COLUMNS - 1;
            if (cells[i][c][0] == 0) continue;
            fputs("  ", to);
            print_padded(to, cells[i][c], last ? 0 : widths[c], c > 0 && !last);
        }
        fputc('\n', to);
    }
}

// Errors, refusals and mismatches, in words.
static void print_trouble(FILE *to, const Run *run) {
    for (int i = 0; i < run->count; i++) {
        const StepResult *r = &run->results[i];
        char name[96];
        snprintf(name, sizeof name, "%02d.%d %.40s%s", run->chapter->number, r->number,
                 r->step->name, r->backward ? ", backward" : "");
        if (r->refused[0] != 0) fprintf(to, "\n%s: not run: %s\n", name, r->refused);
        if (r->error[0] != 0) fprintf(to, "\n%s: %s\n", name, r->error);
        if (r->overrun) {
            fprintf(to,
                    "\n%s: bytes outside a buffer were overwritten: look for an index past its "
                    "end\n",
                    name);
        }
        if (r->findings != NULL) fprintf(to, "\n%s: softgpu has findings (see above)\n", name);
        for (int t = 0; t < TENSOR_COUNT; t++) {
            if (!r->tensors[t].measured || r->tensors[t].ok) continue;
            fprintf(to, "\n%s: %s", name, r->tensors[t].report);
        }
    }
}

static bool busy_known(const SoftgpuStats *stats) {
    double sum = stats->shared_busy + stats->l2_busy + stats->hbm_busy;
    for (size_t p = 0; p < sizeof stats->busy / sizeof *stats->busy; p++) sum += stats->busy[p];
    return sum > 0;
}

// A step that is slower than the one before says so; the last step's bottleneck.
static void print_remarks(FILE *to, const Run *run) {
    static const char *const pipes[] = {NULL,     "FMA",  "ALU",        "integer multiply",
                                        "FP64",   "MUFU", "conversion", "load/store",
                                        "tensor", "TMA",  NULL};
    const StepResult *last = NULL;
    bool any = false;
    for (int i = 0; i < run->count; i++) {
        const StepResult *r = &run->results[i];
        if (r->has_stats && !r->step->exhibit) last = r;
        if (!(r->speedup_over_previous < 0.995) || r->step->exhibit) continue;
        fprintf(to, "%s%s%s is %.2f times slower than the step before it\n", any ? "" : "\n",
                r->step->name, r->backward ? " (backward)" : "", 1 / r->speedup_over_previous);
        any = true;
    }
    if (last == NULL || !busy_known(&last->stats)) return;
    fprintf(to, "\nbusy in %s%s:", last->step->name, last->backward ? " (backward)" : "");
    const char *separator = " ";
    for (size_t p = 0; p < sizeof pipes / sizeof *pipes; p++) {
        if (pipes[p] == NULL || !(last->stats.busy[p] >= 0.005)) continue;
        fprintf(to, "%s%s %.0f%%", separator, pipes[p], last->stats.busy[p] * 100);
        separator = ", ";
    }
    fprintf(to, "%sshared memory %.0f%%, L2 %.0f%%, HBM %.0f%%\n", separator,
            last->stats.shared_busy * 100, last->stats.l2_busy * 100, last->stats.hbm_busy * 100);
}

void print_table(FILE *to, const Run *run) {
    print_heading(to, run);
    print_rows(to, run, false);
    if (run->backward) {
        fprintf(to, "\nbackward\n");
        print_rows(to, run, true);
    }
    print_trouble(to, run);
    print_remarks(to, run);
}

void print_list(FILE *to, const Chapter *chapter) {
    for (int s = 0; s < chapter->step_count; s++) {
        const Step *step = chapter->steps[s];
        fprintf(to, "%2d  ", s + 1);
        print_padded(to, step->name, 24, false);
        fprintf(to, "chapter %d  %s%s\n", step->chapter, step->idea,
                step->exhibit ? " (exhibit: wrong by design, runs only when named)" : "");
    }
}
