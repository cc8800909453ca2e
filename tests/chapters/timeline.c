// Reading timelines in tests (timeline.h).
#include "timeline.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const Json *member(const Json *object, const char *key) {
    for (const Json *c = object->first; c != NULL; c = c->next)
        if (c->key != NULL && strcmp(c->key, key) == 0) return c;
    return NULL;
}

static int number_or(const Json *object, const char *key, int otherwise) {
    const Json *found = member(object, key);
    return found != NULL ? (int)found->number : otherwise;
}

static void read_bar(const Json *event, Bar *bar) {
    bool kernel = strcmp(json_text(event, "cat"), "kernel") == 0;
    *bar = (Bar){.name = json_text(event, "name"),
                 .kind = json_text(event, "cat"),
                 .pid = (int)json_number(event, "pid"),
                 .tid = (int)json_number(event, "tid"),
                 .ts = json_number(event, "ts"),
                 .dur = json_number(event, "dur")};
    const Json *args = json_at(event, "args");
    bar->begin = kernel ? bar->ts : json_number(args, "begin");
    bar->end = bar->begin + (kernel ? bar->dur : json_number(args, "cycles"));
    bar->block = number_or(args, "block", -1);
    bar->warpgroup = number_or(args, "warpgroup", -1);
    bar->warp = number_or(args, "warp", -1);
    bar->busy = number_or(args, "busy", -1);
    ck_assert_double_gt(bar->dur, 0);
    ck_assert_double_gt(bar->end, bar->begin);
}

Timeline timeline_read(const char *path) {
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "there is no %s", path);
    char *text = NULL;
    size_t size = 0;
    ck_assert_int_gt(getdelim(&text, &size, 0, file), 0);
    fclose(file);
    Timeline t = {.json = json_read(text), .bars = calloc(TIMELINE_MOST, sizeof *t.bars)};
    free(text);
    for (const Json *e = json_at(t.json, "traceEvents")->first; e != NULL; e = e->next) {
        const char *kind = json_text(e, "ph");
        if (strcmp(kind, "M") == 0) {
            json_number(e, "pid");
            json_at(e, "args");
            continue;
        }
        ck_assert_str_eq(kind, "X");
        ck_assert_int_lt(t.count, TIMELINE_MOST);
        read_bar(e, &t.bars[t.count]);
        track_name(&t, t.bars[t.count].pid, t.bars[t.count].tid);
        t.count++;
    }
    return t;
}

const char *track_name(const Timeline *t, int pid, int tid) {
    const char *wanted = tid != 0 ? "thread_name" : "process_name";
    for (const Json *e = json_at(t->json, "traceEvents")->first; e != NULL; e = e->next) {
        if (strcmp(json_text(e, "ph"), "M") != 0 || strcmp(json_text(e, "name"), wanted) != 0)
            continue;
        if ((int)json_number(e, "pid") == pid && (tid == 0 || (int)json_number(e, "tid") == tid))
            return json_text(e, "args.name");
    }
    ck_abort_msg("track %d of process %d has no name", tid, pid);
}

void tracks_are_ordered(const Timeline *t) {
    static const double rounding = 2e-4; // microseconds: the file has four digits
    for (int k = 0; k < t->count; k++) {
        const Bar *bar = &t->bars[k], *next = NULL;
        for (int n = k + 1; n < t->count && next == NULL; n++)
            if (t->bars[n].pid == bar->pid && t->bars[n].tid == bar->tid) next = &t->bars[n];
        if (next == NULL) continue;
        double end = bar->ts + bar->dur, next_end = next->ts + next->dur;
        bool behind = next->ts >= end - rounding;
        bool within = next->ts >= bar->ts - rounding && next_end <= end + rounding;
        ck_assert_msg(behind || within, "%s (%g to %g) and %s (%g to %g) overlap on track %d",
                      bar->name, bar->ts, end, next->name, next->ts, next_end, bar->tid);
    }
}

int bars_of(const Timeline *t, const char *kind, const char *name) {
    int count = 0;
    for (int k = 0; k < t->count; k++)
        count += strcmp(t->bars[k].kind, kind) == 0 &&
                 (name == NULL || strcmp(t->bars[k].name, name) == 0);
    return count;
}
