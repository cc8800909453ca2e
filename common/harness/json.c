// The run as one JSON object. What was not measured is null; JSON has no NaN or infinity, so those
// are null too.
#include "harness/report.h"

#include <math.h>
#include <string.h>

#include "harness/cache.h"
#include "harness/convert.h"
#include "harness/mods.h"

static void number(FILE *to, const char *name, double value) {
    if (isfinite(value))
        // Counts in full: a whole number has no rounding to hide.
        fprintf(to, value == floor(value) && fabs(value) < 1e15 ? "\"%s\": %.0f" : "\"%s\": %.9g",
                name, value);
    else
        fprintf(to, "\"%s\": null", name);
}

// A string with the characters escaped that JSON wants escaped; NULL is null.
static void string(FILE *to, const char *text) {
    if (text == NULL) {
        fputs("null", to);
        return;
    }
    fputc('"', to);
    for (const unsigned char *c = (const unsigned char *)text; *c != 0; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(to, "\\%c", *c);
        else if (*c == '\n')
            fputs("\\n", to);
        else if (*c < 0x20)
            fprintf(to, "\\u%04x", *c);
        else
            fputc(*c, to);
    }
    fputc('"', to);
}

static void named_string(FILE *to, const char *name, const char *text) {
    fprintf(to, "\"%s\": ", name);
    string(to, text);
}

// Queries and keys of each sequence; null where all are equally long.
static void write_lengths(FILE *to, const Problem *p) {
    if (p->cu_seqlens_q == NULL) {
        fputs("null", to);
        return;
    }
    for (int64_t b = 0; b < p->batch; b++) {
        fprintf(to, "%s[%lld, %lld]", b > 0 ? ", " : "[", (long long)query_length(p, b),
                (long long)key_length(p, b));
    }
    fputs("]", to);
}

// The keys in each sequence's cache before the step, and how they stand there; null without one.
static void write_cache(FILE *to, const Problem *p) {
    const Cache *c = &p->cache;
    if (!c->there) {
        fputs("null", to);
        return;
    }
    fputs("{\"seqlens\": [", to);
    for (int64_t b = 0; b < p->batch; b++)
        fprintf(to, "%s%lld", b > 0 ? ", " : "", (long long)cached_keys(p, b));
    fprintf(to,
            "], \"rows\": %lld, \"page_size\": %d, \"pages\": %d, \"new_keys\": %d, "
            "\"rotary_dim\": %d, \"rotary_interleaved\": %s, \"fp8\": %s}",
            (long long)c->rows, c->page_size, c->pages, c->new_keys, c->rotary_dim,
            c->rotary_interleaved ? "true" : "false", c->fp8 ? "true" : "false");
}

static void write_problem(FILE *to, const Run *run, const Problem *p) {
    const Options *o = run->options;
    fprintf(to,
            "{\"batch\": %d, \"heads\": %d, \"kv_heads\": %d, \"seqlen_q\": %lld, "
            "\"seqlen_k\": %lld, \"head_dim\": %d, \"dtype\": \"%s\", \"causal\": %s, "
            "\"window\": [%lld, %lld], ",
            p->batch, p->heads, p->kv_heads, (long long)p->seqlen_q, (long long)p->seqlen_k,
            p->head_dim, problem_dtype(p), p->causal ? "true" : "false", (long long)p->window_left,
            (long long)p->window_right);
    number(to, "softcap", p->softcap);
    fputs(", ", to);
    number(to, "scale", p->scale);
    fprintf(to, ", \"backward\": %s, \"deterministic\": %s, \"seed\": %llu, ",
            run->backward ? "true" : "false", p->deterministic ? "true" : "false",
            (unsigned long long)p->seed);
    char text[64];
    named_string(to, "score_mod", score_mod_text(p, text, sizeof text));
    fputs(", ", to);
    named_string(to, "mask_mod", mask_mod_text(p, text, sizeof text));
    fprintf(to, ", \"sink\": %s, \"varlen\": ", p->has_sink ? "true" : "false");
    write_lengths(to, p);
    fputs(", ", to);
    named_string(to, "input", o->input);
    fprintf(to, ", \"splits\": %d, \"cache\": ", p->splits);
    write_cache(to, p);
    fprintf(to, ", \"built_head_dim\": %d, \"sample\": %d, \"sms\": %d, \"schedules\": [",
            p->built_head_dim, p->sample, run->device->sms);
    for (int s = 0; s < o->schedule_count; s++) {
        fprintf(to, "%s%llu", s > 0 ? ", " : "", (unsigned long long)o->schedules[s]);
    }
    fputs("]}", to);
}

static void write_errors(FILE *to, const StepResult *r) {
    fputs("{", to);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        const TensorCheck *c = &r->tensors[t];
        fprintf(to, "%s\"%s\": ", t > 0 ? ", " : "", tensor_name((TensorName)t));
        if (!c->measured) {
            fputs("null", to);
            continue;
        }
        fputs("{", to);
        number(to, "max", c->max);
        fputs(", ", to);
        number(to, "rms", c->rms);
        fputs(", ", to);
        number(to, "limit", c->limit);
        fputs(", ", to);
        number(to, "rms_limit", c->rms_limit);
        fputs(", ", to);
        number(to, "model_max", c->model_max);
        fputs(", ", to);
        number(to, "model_rms", c->model_rms);
        fprintf(to,
                ", \"compared\": %lld, \"wrong\": %lld, \"nonfinite\": %lld, \"unwritten\": %lld, "
                "\"padding\": %lld, \"ok\": %s, ",
                (long long)c->compared, (long long)c->wrong, (long long)c->nonfinite,
                (long long)c->unwritten, (long long)c->padding, c->ok ? "true" : "false");
        named_string(to, "report", c->report[0] != 0 ? c->report : NULL);
        fputs("}", to);
    }
    fputs("}", to);
}

// The share of the time that each unit of the modelled GPU was busy.
static void write_busy(FILE *to, const StepResult *r) {
    if (!busy_known(r)) {
        fputs("null", to);
        return;
    }
    for (int u = 0; u < BUSY_UNITS; u++) {
        fputs(u == 0 ? "{" : ", ", to);
        number(to, busy_unit_name(u), busy_share(r, u));
    }
    fputs("}", to);
}

// What the resident warps did, of their cycles; null where the timing model did not time the step.
static void write_waits(FILE *to, const StepResult *r) {
    if (!model_timed(r)) {
        fputs("null", to);
        return;
    }
    fputs("{", to);
    number(to, "issue", issue_share(r));
    for (int w = 0; w < WAIT_REASONS; w++) {
        fputs(", ", to);
        number(to, wait_name(w), wait_share(r, w));
    }
    fputs("}", to);
}

// Cycles of all SMs together that the work alone takes each unit.
static void write_work(FILE *to, const StepResult *r) {
    if (!r->has_stats) {
        fputs("null", to);
        return;
    }
    for (int u = 0; u < WORK_UNITS; u++) {
        fputs(u == 0 ? "{" : ", ", to);
        number(to, work_unit_name(u), work_cycles(r, u));
    }
    fputs("}", to);
}

static void write_step(FILE *to, const Run *run, const StepResult *r) {
    fputs("{", to);
    named_string(to, "name", r->step->name);
    fprintf(to, ", \"number\": %d, \"chapter\": %d, \"pass\": \"%s\", \"exhibit\": %s, \"ok\": %s",
            r->number, r->step->chapter, r->backward ? "backward" : "forward",
            r->step->exhibit ? "true" : "false",
            r->error[0] != 0 || r->findings != NULL ? "false"
            : r->ok < 0                             ? "null"
            : r->ok == 1                            ? "true"
                                                    : "false");
    fputs(", \"errors\": ", to);
    write_errors(to, r);
    fputs(", ", to);
    const struct {
        const char *name;
        double value;
    } figures[] = {{"time_us", r->time_us},
                   {"tflops", r->tflops},
                   {"peak_fraction", r->peak_fraction},
                   {"hbm_fraction", r->hbm_fraction},
                   {"flops", r->flops},
                   {"executed_flops", r->has_stats ? r->stats.flops : NAN},
                   {"hbm_read_bytes", r->hbm_read_bytes},
                   {"hbm_write_bytes", r->hbm_write_bytes},
                   {"l2_read_bytes", r->l2_read_bytes},
                   {"workspace_bytes", r->workspace_bytes},
                   {"speedup_over_naive", r->speedup_over_naive},
                   {"speedup_over_previous", r->speedup_over_previous}};
    for (size_t f = 0; f < sizeof figures / sizeof *figures; f++) {
        number(to, figures[f].name, figures[f].value);
        fputs(", ", to);
    }
    named_string(to, "time_kind", isnan(r->time_us) ? NULL : run->time_kind);
    fputs(", \"busy\": ", to);
    write_busy(to, r);
    fputs(", ", to);
    number(to, "cycles", model_timed(r) ? r->stats.cycles : NAN);
    fputs(", \"waits\": ", to);
    write_waits(to, r);
    fputs(", \"work_cycles\": ", to);
    write_work(to, r);
    fputs(", ", to);
    named_string(to, "refused", r->refused[0] != 0 ? r->refused : NULL);
    fputs(", ", to);
    named_string(to, "device_error", r->error[0] != 0 ? r->error : NULL);
    fputs(", ", to);
    named_string(to, "cache_report", r->cache_report[0] != 0 ? r->cache_report : NULL);
    fputs(", ", to);
    named_string(to, "remark", r->remark[0] != 0 ? r->remark : NULL);
    fputs(", ", to);
    number(to, "prepare_us", r->prepare_us);
    fprintf(to, ", \"overrun\": %s", r->overrun ? "true" : "false");
    fprintf(to, ", \"findings\": %s}", r->findings != NULL ? r->findings : "[]");
}

void write_json(FILE *to, const Run *run) {
    const Device *d = run->device;
    fprintf(to, "{\"chapter\": %d, \"device\": {\"kind\": \"%s\", ", run->chapter->number,
            d->softgpu != NULL ? "softgpu" : "gpu");
    named_string(to, "gpu", d->name);
    fputs(", ", to);
    named_string(to, "name", d->full_name);
    fputs(", ", to);
    number(to, "clock_ghz", d->clock_ghz > 0 ? d->clock_ghz : NAN);
    fprintf(to, ", \"sms\": %d}, \"problem\": ", d->sms);
    write_problem(to, run, &run->checked);
    fputs(", \"timed_problem\": ", to);
    if (run->options->check_only)
        fputs("null", to);
    else
        write_problem(to, run, &run->timed);
    fputs(", \"steps\": [", to);
    for (int i = 0; i < run->count; i++) {
        if (i > 0) fputs(", ", to);
        fputs("\n  ", to);
        write_step(to, run, &run->results[i]);
    }
    fputs("]}", to);
}
