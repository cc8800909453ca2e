// The table. What was not measured is a dash, never 0.
#include "harness/report.h"

#include <math.h>
#include <string.h>

#include "harness/convert.h"
#include "harness/mods.h"
#include "harness/sample.h"

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
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    scaled(cell, bytes, 1, units, 5);
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

// A share of 0 … 1. Below a hundredth of a percent its digits say nothing.
static void percent_cell(char *cell, double share) {
    if (share > 0 && share < 0.95e-4)
        snprintf(cell, CELL, "<0.01%%");
    else
        number_cell(cell, share * 100, "%");
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

static void error_cells(char *error, char *limit, const StepResult *r) {
    const TensorCheck *c = decisive(r);
    snprintf(error, CELL, "%s", dash);
    snprintf(limit, CELL, "%s", dash);
    if (c == NULL) return;
    if (c->nonfinite > 0)
        snprintf(error, CELL, "NaN or Inf");
    else
        snprintf(error, CELL, "%.1e", c->max);
    snprintf(limit, CELL, "%.1e", c->limit);
}

static void problem_text(char *text, size_t size, const Problem *p) {
    int at = snprintf(text, size, "batch %d · heads %d", p->batch, p->heads);
    if (p->kv_heads != p->heads) {
        at += snprintf(text + at, size - (size_t)at, " (%d K/V)", p->kv_heads);
    }
    const char *up_to = "";
    if (p->cu_seqlens_q != NULL) {
        at += snprintf(text + at, size - (size_t)at, " · %lld queries, %lld keys in all",
                       (long long)total_queries(p), (long long)total_keys(p));
        up_to = "up to ";
    }
    if (p->cache.seqlens != NULL) {
        at +=
            snprintf(text + at, size - (size_t)at, " · %lld keys in all", (long long)total_keys(p));
        up_to = "up to ";
    }
    snprintf(text + at, size - (size_t)at, " · seqlen %s%lld × %lld", up_to, (long long)p->seqlen_q,
             (long long)p->seqlen_k);
}

static void print_cache(FILE *to, const Problem *p) {
    const Cache *c = &p->cache;
    if (p->splits > 0) fprintf(to, " · %d splits", p->splits);
    if (c->page_size > 0) fprintf(to, " · %d pages of %d keys", c->pages, c->page_size);
    if (c->new_keys > 0) fprintf(to, " · %d new keys", c->new_keys);
    if (c->rotary_dim > 0) {
        fprintf(to, " · rotary %d%s", c->rotary_dim, c->rotary_interleaved ? ", interleaved" : "");
    }
    if (c->fp8) fprintf(to, " · cache in fp8");
}

static void print_heading(FILE *to, const Run *run) {
    const Problem *p = &run->checked;
    const Device *d = run->device;
    char text[256];
    fprintf(to, "%02d %s · %s · %s · head_dim %d", run->chapter->number, run->chapter->title,
            run->backward ? "forward and backward" : "forward", problem_dtype(p), p->head_dim);
    if (p->built_head_dim != p->head_dim) fprintf(to, " (padded to %d)", p->built_head_dim);
    if (p->causal) fprintf(to, " · causal");
    if (p->window_left >= 0 || (!p->causal && p->window_right >= 0)) {
        fprintf(to, " · window %lld,%lld", (long long)p->window_left, (long long)p->window_right);
    }
    if (p->softcap > 0) fprintf(to, " · softcap %g", (double)p->softcap);
    if (p->score_mod != SCORE_NONE)
        fprintf(to, " · score mod %s", score_mod_text(p, text, sizeof text));
    if (p->mask_mod != MASK_NONE)
        fprintf(to, " · mask mod %s", mask_mod_text(p, text, sizeof text));
    if (p->has_sink) fprintf(to, " · sinks");
    print_cache(to, &run->timed);
    if (run->options->input != NULL) fprintf(to, " · input %s", run->options->input);

    problem_text(text, sizeof text, p);
    bool timed = !run->options->check_only;
    bool sampled = timed && d->softgpu != NULL && run->timed.sample != 0;
    const char *done = !timed || !run->same ? "checked" : sampled ? "timed" : "checked and timed";
    fprintf(to, "\n%s: %s", done, text);
    if (timed && !run->same) {
        problem_text(text, sizeof text, &run->timed);
        fprintf(to, "\ntimed:   %s", text);
        if (run->timed.head_dim != p->head_dim) fprintf(to, " · head_dim %d", run->timed.head_dim);
    }
    if (sampled) {
        fprintf(to, ", %d of %d SMs simulated", run->timed.sample, d->sms);
    }
    if (d->softgpu != NULL)
        fprintf(to, "\ndevice: softgpu, modelling %s", d->full_name);
    else
        fprintf(to, "\ndevice: %s", d->full_name);
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

// The columns. Rows are printed as the steps finish, before anybody knows the later ones, so each
// column has its width from the start; a cell that needs more takes it.
enum { COLUMNS = 13, FIRST_TIMED = 1, LAST_TIMED = 9, OF_BANDWIDTH = 4 };
static const struct {
    const char *title;
    int width;
} columns[COLUMNS] = {{"step", 4},    {"time", 7},        {"TFLOP/s", 7},   {"% peak", 6},
                      {"% HBM", 6},   {"HBM read", 8},    {"written", 7},   {"workspace", 9},
                      {"÷ naive", 7}, {"÷ previous", 10}, {"max error", 9}, {"limit", 7},
                      {"", 0}};

static void step_cell(char *cell, const StepResult *r) {
    snprintf(cell, CELL, "%d %.32s", r->step->chapter, r->step->name);
}

static void row_cells(char (*cell)[CELL], const StepResult *r) {
    step_cell(cell[0], r);
    time_cell(cell[1], r->time_us);
    number_cell(cell[2], r->tflops, "");
    percent_cell(cell[3], r->peak_fraction);
    percent_cell(cell[OF_BANDWIDTH], r->hbm_fraction);
    bytes_cell(cell[5], r->hbm_read_bytes);
    bytes_cell(cell[6], r->hbm_write_bytes);
    bytes_cell(cell[7], r->workspace_bytes);
    number_cell(cell[8], r->speedup_over_naive, "×");
    number_cell(cell[9], r->speedup_over_previous, "×");
    error_cells(cell[10], cell[11], r);
    snprintf(cell[12], CELL, "%s", verdict(r));
}

static void print_cells(FILE *to, const Run *run, char (*cell)[CELL]) {
    char step[CELL];
    int widest = columns[0].width;
    for (int i = 0; i < run->count; i++) {
        step_cell(step, &run->results[i]);
        if (text_columns(step) > widest) widest = text_columns(step);
    }
    for (int c = 0; c < COLUMNS; c++) {
        bool last = c == COLUMNS - 1;
        if (cell[c][0] == 0) continue;
        // Without timing there is nothing in these columns.
        if (run->options->check_only && c >= FIRST_TIMED && c <= LAST_TIMED) continue;
        if (c == OF_BANDWIDTH && !run->chapter->memory_bound) continue;
        fputs("  ", to);
        print_padded(to, cell[c], c == 0 ? widest : columns[c].width, c > 0 && !last);
    }
    fputc('\n', to);
}

static void print_titles(FILE *to, const Run *run) {
    char cell[COLUMNS][CELL];
    for (int c = 0; c < COLUMNS; c++) snprintf(cell[c], CELL, "%s", columns[c].title);
    print_cells(to, run, cell);
}

// The rows of a pass, of the results from `first` on to the one before `end`.
static void print_rows(FILE *to, const Run *run, bool backward, int first, int end) {
    char cell[COLUMNS][CELL];
    for (int i = first; i < end; i++) {
        if (run->results[i].backward != backward) continue;
        row_cells(cell, &run->results[i]);
        print_cells(to, run, cell);
    }
}

// Is this refusal one that a row above has already? A step refuses both passes for one reason.
static bool refused_before(const Run *run, int index) {
    const StepResult *r = &run->results[index];
    for (int i = 0; i < index; i++) {
        const StepResult *earlier = &run->results[i];
        if (earlier->backward != r->backward && earlier->step != r->step) continue;
        if (strcmp(earlier->refused, r->refused) == 0) return true;
    }
    return false;
}

// What did not run, a line for each reason: the steps that have it, then the reason.
static void print_refusals(FILE *to, const Run *run) {
    for (int i = 0; i < run->count; i++) {
        const StepResult *first = &run->results[i];
        if (first->refused[0] == 0 || refused_before(run, i)) continue;
        fprintf(to, "\n%s %s",
                first->backward ? "backward not run:" : "not run:", first->step->name);
        for (int j = i + 1; j < run->count; j++) {
            const StepResult *r = &run->results[j];
            if (r->backward != first->backward || strcmp(r->refused, first->refused) != 0) continue;
            fprintf(to, ", %s", r->step->name);
        }
        fprintf(to, ": %s\n", first->refused);
    }
}

// Errors, refusals and mismatches, in words.
static void print_trouble(FILE *to, const Run *run) {
    print_refusals(to, run);
    for (int i = 0; i < run->count; i++) {
        const StepResult *r = &run->results[i];
        char name[96];
        snprintf(name, sizeof name, "%02d.%d %.40s%s", run->chapter->number, r->number,
                 r->step->name, r->backward ? ", backward" : "");
        if (r->error[0] != 0) fprintf(to, "\n%s: %s\n", name, r->error);
        if (r->overrun) {
            fprintf(to,
                    "\n%s: bytes outside a buffer were overwritten: look for an index past its "
                    "end\n",
                    name);
        }
        if (r->cache_report[0] != 0) fprintf(to, "\n%s: %s\n", name, r->cache_report);
        if (r->findings != NULL) fprintf(to, "\n%s: softgpu has findings (see above)\n", name);
        for (int t = 0; t < TENSOR_COUNT; t++) {
            if (!r->tensors[t].measured || r->tensors[t].ok) continue;
            fprintf(to, "\n%s: %s", name, r->tensors[t].report);
        }
    }
}

// A step that is slower than the one before it says so.
static void print_slower(FILE *to, const Run *run) {
    bool any = false;
    for (int i = 0; i < run->count; i++) {
        const StepResult *r = &run->results[i];
        if (!(r->speedup_over_previous < 0.995) || r->step->exhibit) continue;
        fprintf(to, "%s%s%s is %.2f times slower than the step before it\n", any ? "" : "\n",
                r->step->name, r->backward ? " (backward)" : "", 1 / r->speedup_over_previous);
        any = true;
    }
}

// What steps have counted.
static void print_remarks(FILE *to, const Run *run) {
    bool any = false;
    for (int i = 0; i < run->count; i++) {
        const StepResult *r = &run->results[i];
        if (r->remark[0] != 0) fprintf(to, "%s%s: %s\n", any ? "" : "\n", r->step->name, r->remark);
        any = any || r->remark[0] != 0;
        if (!isfinite(r->prepare_us)) continue;
        char cell[CELL];
        time_cell(cell, r->prepare_us);
        fprintf(to, "%s%s: prepared in %s, once for all launches: not in its time\n",
                any ? "" : "\n", r->step->name, cell);
        any = true;
    }
}

// What a sample of the SMs gets wrong.
static void print_small_sample(FILE *to, const Run *run) {
    double share, needed;
    int enough;
    char share_cell[CELL], needed_cell[CELL];
    if (run->options->check_only || !sample_too_small(run, &share, &needed, &enough)) return;
    bytes_cell(share_cell, share);
    bytes_cell(needed_cell, needed);
    fprintf(
        to,
        "\n--sample %d: its share of the L2, %s, doesn't hold the %s that the blocks of one head "
        "share:\nHBM bytes come out too high. --sample %d is enough.\n",
        run->timed.sample, share_cell, needed_cell, enough);
}

// The units of the modelled GPU that a step keeps busiest: the first bounds it.
static void print_busiest(FILE *to, const Run *run) {
    enum { SHOWN = 4 };
    bool any = false;
    int width = 24;
    for (int i = 0; i < run->count; i++) {
        const StepResult *r = &run->results[i];
        const int length = (int)strlen(r->step->name) + (r->backward ? 13 : 2); // " (backward)"
        if (busy_known(r) && length > width) width = length;
    }
    for (int i = 0; i < run->count; i++) {
        const StepResult *r = &run->results[i];
        if (!busy_known(r)) continue;
        char name[64];
        snprintf(name, sizeof name, "%.40s%s", r->step->name, r->backward ? " (backward)" : "");
        fprintf(to, "%s  ", any ? "" : "\nbusiest units, % of the time\n");
        any = true;
        print_padded(to, name, width, false);
        bool shown[BUSY_UNITS] = {false};
        for (int s = 0; s < SHOWN; s++) {
            int most = -1;
            for (int u = 0; u < BUSY_UNITS; u++) {
                if (shown[u] || !(busy_share(r, u) >= 0.005)) continue;
                if (most < 0 || busy_share(r, u) > busy_share(r, most)) most = u;
            }
            if (most < 0) break;
            shown[most] = true;
            fprintf(to, "%s%s %.0f", s > 0 ? " · " : "", busy_unit_name(most),
                    busy_share(r, most) * 100);
        }
        fputc('\n', to);
    }
}

void table_rows(Table *t, const Run *run, int end) {
    if (t->shown == 0) {
        print_heading(t->to, run);
        print_titles(t->to, run);
    }
    print_rows(t->to, run, false, t->shown, end);
    t->shown = end;
    fflush(t->to);
}

void table_end(Table *t, const Run *run) {
    FILE *to = t->to;
    table_rows(t, run, run->count);
    if (run->backward) {
        fprintf(to, "\nbackward\n");
        print_titles(to, run);
        print_rows(to, run, true, 0, run->count);
    }
    print_trouble(to, run);
    print_slower(to, run);
    print_remarks(to, run);
    print_small_sample(to, run);
    print_busiest(to, run);
    if (run->options->explain) print_explanation(to, run);
    fflush(to);
}

void print_table(FILE *to, const Run *run) {
    Table table = {.to = to};
    table_end(&table, run);
}

void print_list(FILE *to, const Chapter *chapter) {
    for (int s = 0; s < chapter->step_count; s++) {
        const Step *step = chapter->steps[s];
        const bool apart = chapter->backward_apart && s > 0 && step->backward != NULL;
        fprintf(to, "%2d  ", s + 1);
        print_padded(to, step->name, 24, false);
        fprintf(to, "chapter %d  %s%s\n", step->chapter, step->idea,
                step->exhibit ? " (exhibit: runs only when named)"
                : apart       ? " (with --backward)"
                              : "");
    }
}
