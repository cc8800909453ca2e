// Reading the SOFTGPU_* environment. A value that makes no sense is refused, never guessed at: a
// check that was misspelt and so not made would be worse than no check.
#include "softgpu/settings.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "softgpu/timing/figures.h"
#include "softgpu/timing/trace.h"

static char message[400];

// Makes the message that settings_read returns.
__attribute__((format(printf, 1, 2))) static const char *refuse(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return message;
}

// The value of a variable; NULL if it is not set or empty.
static const char *value_of(const char *variable) {
    const char *value = getenv(variable);
    return value && *value ? value : NULL;
}

// A number between two limits.
static const char *read_integer(const char *variable, uint64_t low, uint64_t high,
                                uint64_t *number) {
    const char *value = value_of(variable);
    if (!value) return NULL;
    char *end;
    errno = 0;
    unsigned long long parsed = strtoull(value, &end, 0);
    bool digits = *value >= '0' && *value <= '9';
    if (!digits || *end || errno || parsed < low || parsed > high) {
        if (high == UINT64_MAX) return refuse("%s=%s: expected a number", variable, value);
        return refuse("%s=%s: expected a number from %llu to %llu", variable, value,
                      (unsigned long long)low, (unsigned long long)high);
    }
    *number = parsed;
    return NULL;
}

// A number that fits an int.
static const char *read_int(const char *variable, int low, int high, int *number) {
    uint64_t wide = *number;
    const char *bad = read_integer(variable, low, high, &wide);
    *number = wide;
    return bad;
}

// A switch: 0 or 1.
static const char *read_switch(const char *variable, bool *on) {
    const char *value = value_of(variable);
    if (!value) return NULL;
    if (strcmp(value, "0") && strcmp(value, "1")) {
        return refuse("%s=%s: expected 0 or 1", variable, value);
    }
    *on = *value == '1';
    return NULL;
}

// One of a few words; *choice is its position.
static const char *read_word(const char *variable, const char *const *words, int count,
                             int *choice) {
    const char *value = value_of(variable);
    if (!value) return NULL;
    for (int i = 0; i < count; i++) {
        if (!strcmp(value, words[i])) {
            *choice = i;
            return NULL;
        }
    }
    char list[200] = "";
    for (int i = 0; i < count; i++) {
        size_t length = strlen(list);
        snprintf(list + length, sizeof list - length, "%s%s", i ? ", " : "", words[i]);
    }
    return refuse("%s=%s: expected one of %s", variable, value, list);
}

// SOFTGPU_GPU.
static const char *read_gpu(const char **gpu) {
    const char *value = value_of("SOFTGPU_GPU");
    if (!value) return NULL;
    const GpuFigures *figures = figures_find(value);
    if (figures) {
        *gpu = figures->name;
        return NULL;
    }
    int count;
    const GpuFigures *all = figures_all(&count);
    char list[200] = "";
    for (int i = 0; i < count; i++) {
        size_t length = strlen(list);
        snprintf(list + length, sizeof list - length, "%s%s", i ? ", " : "", all[i].name);
    }
    return refuse("SOFTGPU_GPU=%s: unknown GPU; one of %s", value, list);
}

// SOFTGPU_CHECK: a list of checks.
static const char *read_checks(unsigned *checks) {
    static const struct {
        const char *name;
        unsigned bits;
    } known[] = {{"mem", CHECK_MEM},   {"init", CHECK_INIT},
                 {"race", CHECK_RACE}, {"sync", CHECK_SYNC},
                 {"none", 0},          {"all", CHECK_MEM | CHECK_INIT | CHECK_RACE | CHECK_SYNC}};
    enum { KNOWN = sizeof known / sizeof *known };
    const char *value = value_of("SOFTGPU_CHECK");
    if (!value) return NULL;
    *checks = 0;
    for (const char *p = value; *p;) {
        size_t length = strcspn(p, ",");
        size_t i = 0;
        while (i < KNOWN && (strlen(known[i].name) != length || memcmp(p, known[i].name, length)))
            i++;
        if (i == KNOWN) {
            return refuse(
                "SOFTGPU_CHECK=%s: unknown check '%.*s'; a list of mem, init, race, sync, "
                "or all, or none",
                value, (int)length, p);
        }
        *checks |= known[i].bits;
        p += length + (p[length] == ',');
    }
    return NULL;
}

// SOFTGPU_CLOCK, in GHz.
static const char *read_clock(double *clock) {
    const char *value = value_of("SOFTGPU_CLOCK");
    if (!value) return NULL;
    char *end;
    double ghz = strtod(value, &end);
    if (*end || !isfinite(ghz) || ghz < 0.1 || ghz > 10) {
        return refuse("SOFTGPU_CLOCK=%s: expected a clock in GHz, such as 1.755", value);
    }
    *clock = ghz;
    return NULL;
}

// A copy of a text that outlives changes of the environment; equal texts share one.
static const char *keep(const char *text) {
    static struct Kept {
        struct Kept *next;
        char text[];
    } * all;
    if (!text) return NULL;
    for (struct Kept *kept = all; kept; kept = kept->next) {
        if (!strcmp(kept->text, text)) return kept->text;
    }
    struct Kept *kept = malloc(sizeof *kept + strlen(text) + 1);
    if (!kept) abort();
    strcpy(kept->text, text);
    kept->next = all;
    all = kept;
    return kept->text;
}

// SOFTGPU_TRACE, once all others are read: a file that can be written, of a run that is timed.
static const char *read_trace(Settings *settings) {
    const char *path = value_of("SOFTGPU_TRACE");
    if (!path) return NULL;
    const char *untimed = !settings->timing                ? "SOFTGPU_TIMING=0"
                          : settings->async != ASYNC_TIMED ? "SOFTGPU_ASYNC"
                          : settings->schedule             ? "SOFTGPU_SCHEDULE"
                                                           : NULL;
    if (untimed) {
        return refuse("SOFTGPU_TRACE=%.200s: with %s nothing is timed; leave one of them out", path,
                      untimed);
    }
    const char *why = trace_probe(path);
    if (why) return refuse("SOFTGPU_TRACE=%.200s: can't write it: %s", path, why);
    settings->trace = keep(path);
    return NULL;
}

const char *settings_read(Settings *settings) {
    static const char *const asyncs[] = {"timed", "early", "late", "random"};
    static const char *const numerics[] = {"default", "fast", "hardware"};
    static const char *const reports[] = {"text", "json"};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int async = ASYNC_TIMED, numeric = NUMERICS_DEFAULT, report = 0;
    const char *bad = NULL;

    *settings = (Settings){.checks = CHECK_MEM | CHECK_INIT | CHECK_RACE | CHECK_SYNC};
    settings->timing = true;
    settings->trace_sms = TRACE_SMS;
    settings->threads = cores > 0 ? cores : 1;
    if (!bad) bad = read_gpu(&settings->gpu);
    if (!bad) bad = read_checks(&settings->checks);
    if (!bad) bad = read_integer("SOFTGPU_SCHEDULE", 0, UINT64_MAX, &settings->schedule);
    if (!bad) bad = read_word("SOFTGPU_ASYNC", asyncs, 4, &async);
    if (!bad) bad = read_word("SOFTGPU_NUMERICS", numerics, 3, &numeric);
    if (!bad) bad = read_clock(&settings->clock_ghz);
    if (!bad) bad = read_int("SOFTGPU_SMS", 0, 1024, &settings->sms);
    if (!bad) bad = read_int("SOFTGPU_SAMPLE", 0, 1024, &settings->sample);
    if (!bad) bad = read_int("SOFTGPU_TRACE_SMS", 1, TRACE_SMS_MOST, &settings->trace_sms);
    if (!bad) bad = read_int("SOFTGPU_THREADS", 1, 1024, &settings->threads);
    if (!bad) bad = read_switch("SOFTGPU_STRICT", &settings->strict);
    if (!bad) bad = read_switch("SOFTGPU_TIMING", &settings->timing);
    if (!bad) bad = read_switch("SOFTGPU_STATS", &settings->stats);
    if (!bad) bad = read_word("SOFTGPU_REPORT", reports, 2, &report);
    if (bad) return bad;
    settings->async = async;
    settings->numerics = numeric;
    settings->report_json = report == 1;
    settings->report_file = keep(value_of("SOFTGPU_REPORT_FILE"));
    return read_trace(settings);
}
