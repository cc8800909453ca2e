// Running a chapter's steps: first every step is checked, on each schedule that was asked for, then
// every one is timed. On softgpu a run is both when the two problems are the same.
#include "harness/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cache.h"
#include "harness/model_fp8.h"
#include "harness/pass.h"
#include "harness/progress.h"

// The position of a step named by number or name, or -1.
static int find_step(const Chapter *chapter, const char *word) {
    char *end;
    long number = strtol(word, &end, 10);
    if (*word >= '0' && *word <= '9' && *end == 0) {
        return number >= 1 && number <= chapter->step_count ? (int)number - 1 : -1;
    }
    for (int s = 0; s < chapter->step_count; s++) {
        if (strcmp(chapter->steps[s]->name, word) == 0) return s;
    }
    return -1;
}

// Is the step among a chapter's "all"?
static bool is_usual(const Chapter *chapter, int s, bool backward) {
    const Step *step = chapter->steps[s];
    if (step->exhibit) return false;
    return !chapter->backward_apart || s == 0 || (step->backward != NULL) == backward;
}

bool steps_choose(const Chapter *chapter, const char *list, bool backward, bool *chosen,
                  Message *message) {
    for (int s = 0; s < chapter->step_count; s++) chosen[s] = false;
    for (const char *rest = list != NULL ? list : "all"; rest != NULL;) {
        char word[64];
        size_t length = strcspn(rest, ",");
        snprintf(word, sizeof word, "%.*s", (int)(length < 63 ? length : 63), rest);
        rest = rest[length] == ',' ? rest + length + 1 : NULL;
        if (strcmp(word, "all") == 0) {
            for (int s = 0; s < chapter->step_count; s++) {
                if (is_usual(chapter, s, backward)) chosen[s] = true;
            }
            continue;
        }
        int step = find_step(chapter, word);
        if (step < 0) {
            return refuse(message, "--steps %s: chapter %d has no such step; --list prints them",
                          word, chapter->number);
        }
        chosen[step] = true;
    }
    return true;
}

static StepResult *add_result(Run *run, int step, bool backward) {
    StepResult *r = &run->results[run->count++];
    *r = (StepResult){.step = run->chapter->steps[step],
                      .number = step + 1,
                      .backward = backward,
                      .ok = -1,
                      .time_us = NAN,
                      .prepare_us = NAN,
                      .flops = NAN,
                      .tflops = NAN,
                      .peak_fraction = NAN,
                      .hbm_fraction = NAN,
                      .hbm_read_bytes = NAN,
                      .hbm_write_bytes = NAN,
                      .l2_read_bytes = NAN,
                      .workspace_bytes = NAN,
                      .speedup_over_naive = NAN,
                      .speedup_over_previous = NAN};
    return r;
}

static bool failed(const StepResult *r) {
    return r->error[0] != 0;
}

// Asks softgpu for an option; it applies from the next launch on.
static void tell_softgpu(const Run *run, const char *name, uint64_t value) {
    char text[32];
    if (run->device->softgpu == NULL) return;
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    run->device->softgpu->set(name, text);
}

// Simulates a sample of the SMs, or all. What the others would have written is then missing, and
// reading it is no finding: the init check rests.
static void tell_sample(const Run *run, int sample) {
    tell_softgpu(run, "sample", (uint64_t)sample);
    if (run->device->softgpu == NULL || !run->device->init_check) return;
    run->device->softgpu->set("check",
                              sample == 0 ? run->device->checks : run->device->checks_but_init);
}

static void make_inputs(const Run *run, const Problem *p, Inputs *in) {
    if (run->saved_inputs.q != NULL)
        *in = run->saved_inputs;
    else
        inputs_random(p, run->backward, in);
}

static void drop_inputs(const Run *run, Inputs *in) {
    if (run->saved_inputs.q == NULL) inputs_free(in);
}

// How the step rounds e4m3 numbers on this problem, or NULL: it computes in the dtype.
static const Fp8 *rounding_of(const Step *step, const Problem *p) {
    return p->fp8 || !step->fp8_if_asked ? step->fp8 : NULL;
}

// What follows from the times so far, and the exit status.
static void conclude(Run *run) {
    for (int backward = 0; backward <= 1; backward++) {
        double naive = NAN, previous = NAN;
        for (int i = 0; i < run->count; i++) {
            StepResult *r = &run->results[i];
            if (r->backward != backward || r->refused[0] != 0) continue;
            Dtype multiplied = rounding_of(r->step, &run->timed) ? DTYPE_FP8 : run->timed.dtype;
            double peak = device_peak(run->device, multiplied);
            if (isfinite(r->time_us) && r->time_us > 0) {
                r->tflops = r->flops / r->time_us * 1e-6;
                if (peak > 0) r->peak_fraction = r->tflops * 1e12 / peak;
                if (run->device->hbm_bytes_per_s > 0 && !backward)
                    r->hbm_fraction = problem_bytes(&run->timed) / (r->time_us * 1e-6) /
                                      run->device->hbm_bytes_per_s;
                if (strcmp(r->step->name, "naive") == 0) naive = r->time_us;
                r->speedup_over_naive = naive / r->time_us;
                r->speedup_over_previous = previous / r->time_us;
                if (!r->step->exhibit) previous = r->time_us;
            }
            if (r->step->exhibit) continue;
            if (failed(r) || r->findings != NULL)
                run->status = 3;
            else if (r->ok == 0 && run->status == 0)
                run->status = 1;
        }
    }
}

// The results before `end` will not change any more.
static void show(Run *run, int end) {
    conclude(run);
    if (run->show == NULL) return;
    progress_pause();
    run->show(run, end, run->show_to);
    progress_resume();
}

// Every result's step on one problem. The results of a step follow each other: forward, backward.
// `last_problem`: no other follows. False: the problem is too large for its dtype, nothing ran.
static bool run_problem(Run *run, const Problem *p, bool check, bool time, bool last_problem,
                        Message *message) {
    Inputs in;
    Reference reference;
    make_inputs(run, p, &in);
    if (check) {
        progress_next("computing the reference");
        reference_make(p, &in, run->backward, &reference);
        if (!reference_fits(p, &reference, message)) {
            reference_free(&reference);
            drop_inputs(run, &in);
            return false;
        }
    }
    tell_sample(run, p->sample);
    int last = -1;
    for (int i = 0; i < run->count; i++) {
        if (!run->results[i].backward && run->results[i].refused[0] == 0) last = i;
    }
    int schedules = check && run->device->softgpu != NULL ? run->options->schedule_count : 0;
    for (int i = 0; i < run->count; i++) {
        StepResult *forward = &run->results[i];
        if (forward->backward || forward->refused[0] != 0) continue;
        StepResult *backward =
            i + 1 < run->count && run->results[i + 1].backward ? forward + 1 : NULL;
        if (backward != NULL && backward->refused[0] != 0) backward = NULL;
        const Fp8 *fp8 = rounding_of(forward->step, p);
        Reference rounded; // a step in fp8 has its own
        if (check && fp8 != NULL) reference_fp8(p, &in, &reference, fp8, &rounded);
        for (int s = 0; s < (schedules > 0 ? schedules : 1); s++) {
            if (failed(forward)) break; // a step that failed on the device is not run again
            if (schedules > 0) tell_softgpu(run, "schedule", run->options->schedules[s]);
            char doing[64];
            snprintf(doing, sizeof doing, "%s %s", check ? "checking" : "timing",
                     forward->step->name);
            progress_next(doing);
            Problem own = cache_for_step(p, forward->step);
            Pass pass = {.device = run->device,
                         .chapter = run->chapter,
                         .step = forward->step,
                         .p = &own,
                         .in = &in,
                         .reference = !check        ? NULL
                                      : fp8 != NULL ? &rounded
                                                    : &reference,
                         .timed = time && s == 0,
                         .launches = run->options->launches,
                         .save = check && i == last ? run->options->save : NULL,
                         .trace = run->options->trace,
                         .forward = forward,
                         .backward = backward};
            pass_run(&pass);
        }
        if (check && fp8 != NULL) reference_fp8_free(&rounded);
        if (last_problem) show(run, i + (backward != NULL ? 2 : 1));
    }
    if (check) reference_free(&reference);
    drop_inputs(run, &in);
    return true;
}

bool run_plan(Run *run, Message *message) {
    const char *reason = NULL;
    int able = 0;
    run->count = run->status = 0;
    run->time_kind = run->device->softgpu != NULL ? run->device->softgpu->time_kind() : "measured";
    for (int s = 0; s < run->chapter->step_count && run->count + 2 <= MOST_RESULTS; s++) {
        if (!run->chosen[s]) continue;
        for (int backward = 0; backward <= (run->backward ? 1 : 0); backward++) {
            StepResult *r = add_result(run, s, backward);
            const Step *step = r->step;
            bool refused = pass_refused(run->chapter, step, &run->checked, run->device, backward,
                                        r->refused, sizeof r->refused);
            if (!refused && !run->same && !run->options->check_only) {
                refused = pass_refused(run->chapter, step, &run->timed, run->device, backward,
                                       r->refused, sizeof r->refused);
            }
            if (refused && reason == NULL) reason = r->refused;
            if (!refused && (!backward || r[-1].refused[0] == 0)) able++;
        }
    }
    if (run->count == 0) return refuse(message, "--steps: nothing to run");
    if (able == 0) return refuse(message, "%s", reason);
    return true;
}

bool run_steps(Run *run, Message *message) {
    if (!run_plan(run, message)) return false;

    bool softgpu = run->device->softgpu != NULL, time = !run->options->check_only;
    // A sampled run has no complete outputs: with one problem for both there is then no check.
    bool check_first = !(softgpu && run->checked.sample != 0);
    bool check_timed = !(softgpu && run->timed.sample != 0);
    int steps = 0;
    for (int i = 0; i < run->count; i++) {
        steps += !run->results[i].backward && run->results[i].refused[0] == 0;
    }
    int orders = check_first && softgpu && run->options->schedule_count > 0
                     ? run->options->schedule_count
                     : 1;
    progress_start(check_first + steps * orders + (time && !run->same ? check_timed + steps : 0));
    const bool one = run->same || !time;
    bool ran = run_problem(run, &run->checked, check_first, time && run->same, one, message);
    if (ran && !one) {
        if (run->options->schedule_count > 0)
            tell_softgpu(run, "schedule", run->options->schedules[0]);
        ran = run_problem(run, &run->timed, check_timed, true, true, message);
    }
    progress_stop();
    if (!ran) return false;
    conclude(run);
    return true;
}

void run_free(Run *run) {
    for (int i = 0; i < run->count; i++) free(run->results[i].findings);
    run->count = 0;
}
