// Recording findings, and merging those of all SMs into one list (findings.h).
#include "softgpu/check/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "softgpu/report/findings.h"

// What one SM has recorded since the last merge.
typedef struct {
    Finding finding;
    const Insn *insn, *other;
} Record;
struct FindingList {
    Record *records;
    int count, capacity;
};

// The process's list. Only touched while no SM runs.
static struct {
    Finding *items;
    int count, errors, notes;
    uint64_t errors_dropped, notes_dropped;
    int launch_error, launch_count;
    bool strict, quiet;
} all;

// ---- words

static const struct {
    const char *title, *slug;
    int error;
} kinds[] = {
    [FINDING_OUT_OF_BOUNDS] = {"access out of bounds", "out-of-bounds", 700},
    [FINDING_MISALIGNED] = {"misaligned access", "misaligned", 716},
    [FINDING_WRONG_SPACE] = {"wrong state space", "wrong-space", 717},
    [FINDING_USE_AFTER_FREE] = {"use after free", "use-after-free", 700},
    [FINDING_STACK_OVERFLOW] = {"stack overflow", "stack-overflow", 700},
    [FINDING_UNINITIALISED] = {"uninitialised read", "uninitialised", 0},
    [FINDING_RACE] = {"race", "race", 0},
    [FINDING_DIVERGENT] = {"divergent threads", "divergent", 719},
    [FINDING_BARRIER] = {"misused barrier", "barrier", 719},
    [FINDING_DEADLOCK] = {"deadlock: nothing can run any more", "deadlock", 719},
    [FINDING_UNSUPPORTED] = {"unsupported instruction", "unsupported", 719},
    [FINDING_TRAP] = {"trap", "trap", 719},
    [FINDING_ASSERT] = {"assertion failed", "assert", 710},
    [FINDING_LAUNCH] = {"impossible launch", "launch", 1},
    [FINDING_BULK] = {"misused bulk copy", "bulk-copy", 719},
    [FINDING_TENSOR] = {"misused tensor memory", "tensor-memory", 719},
    [FINDING_LINT] = {"relies on what PTX does not promise", "lint", 0},
    [FINDING_NOTE] = {"worth a look", "note", 0},
};

static bool is_note(FindingKind kind, bool strict) {
    return kind == FINDING_NOTE || (kind == FINDING_LINT && !strict);
}

const char *finding_title(FindingKind kind) {
    return kinds[kind].title;
}

const char *finding_slug(FindingKind kind) {
    return kinds[kind].slug;
}

int finding_error(FindingKind kind) {
    return kinds[kind].error;
}

const char *short_path(const char *path) {
    char here[4096];
    if (!getcwd(here, sizeof here)) return path;
    size_t length = strlen(here);
    if (!strncmp(path, here, length) && path[length] == '/') return path + length + 1;
    return path;
}

// ---- making a finding

static void *allocate(void *old, size_t size) {
    void *p = realloc(old, size);
    if (!p) {
        fprintf(stderr, "softgpu: out of memory while recording a finding\n");
        abort();
    }
    return p;
}

static char *copy(const char *s) {
    size_t size = strlen(s) + 1;
    return memcpy(allocate(NULL, size), s, size);
}

static char *format(const char *what, va_list arguments) {
    if (!what) return copy("");
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, what, again);
    va_end(again);
    char *text = allocate(NULL, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, what, arguments);
    return text;
}

// Code that wraps instructions: a finding belongs to the line that called it.
static bool is_wrapper(const char *file) {
    return strstr(file, "common/device/") || strstr(file, "/cuda/include/") ||
           strstr(file, "/include/crt/") || strstr(file, "/targets/x86_64-linux/include/") ||
           strstr(file, "/include/cuda_") || strstr(file, "/include/cccl/");
}

const PtxLocation *first_frame(const PtxLocation *location) {
    for (const PtxLocation *l = location; l; l = l->inlined_at)
        if (l->file && !is_wrapper(l->file)) return l;
    return location;
}

// Fills in the place of instruction `insn`, as frames.
static void set_place(Finding *f, const Kernel *kernel, const Insn *insn) {
    if (insn->index >= kernel->code_count) return;
    if (kernel->texts && kernel->texts[insn->index]) f->text = copy(kernel->texts[insn->index]);
    const PtxLocation *l = kernel->locations ? kernel->locations[insn->index] : NULL;
    if (!l) return;
    f->ptx_line = l->ptx_line;
    for (l = first_frame(l); l && f->frame_count < FINDING_FRAMES; l = l->inlined_at) {
        if (!l->file) continue;
        FindingFrame *frame = &f->frames[f->frame_count++];
        frame->file = copy(l->file);
        frame->line = l->line;
        frame->function = l->function ? readable_name(l->function) : NULL;
    }
}

// "st.shared.f32 at kernel.cu:40", of the other instruction involved.
static char *other_place(const Kernel *kernel, const Insn *other) {
    Finding f = {0};
    set_place(&f, kernel, other);
    const char *text = f.text ? f.text : "an instruction";
    size_t size = strlen(text) + (f.frame_count ? strlen(f.frames[0].file) : 0) + 48;
    char *place = allocate(NULL, size);
    if (f.frame_count)
        snprintf(place, size, "%s at %s:%u", text, short_path(f.frames[0].file), f.frames[0].line);
    else
        snprintf(place, size, "%s (PTX line %u)", text, f.ptx_line);
    free(f.text);
    for (int k = 0; k < f.frame_count; k++) {
        free(f.frames[k].file);
        free(f.frames[k].function);
    }
    return place;
}

// Fills in block and thread; lane -1 is the warp.
static void set_thread(Finding *f, const Warp *w, int lane) {
    if (!w->cta) return;
    memcpy(f->block, w->cta->index, sizeof f->block);
    f->has_block = true;
    f->warp = w->id;
    const LaunchState *launch = w->sm->launch;
    if (lane < 0 || !launch || !launch->launch) return;
    const uint32_t *size = launch->launch->block;
    uint32_t linear = (uint32_t)w->id * WARP_SIZE + (uint32_t)lane;
    if (!size[0] || !size[1]) return;
    f->thread[0] = linear % size[0];
    f->thread[1] = linear / size[0] % size[1];
    f->thread[2] = linear / size[0] / size[1];
    f->has_thread = true;
}

static void free_finding(Finding *f) {
    free(f->what);
    free(f->mend);
    free(f->kernel);
    free(f->text);
    free(f->other);
    for (int k = 0; k < f->frame_count; k++) {
        free(f->frames[k].file);
        free(f->frames[k].function);
    }
}

// ---- recording, per SM

static Record *find_record(Sm *sm, const Insn *i, const Insn *other, FindingKind kind) {
    struct FindingList *list = sm->findings;
    if (!list) return NULL;
    for (int k = 0; k < list->count; k++) {
        Record *r = &list->records[k];
        if (r->insn == i && r->finding.kind == kind && (r->other == other)) return r;
    }
    return NULL;
}

bool finding_again(Warp *w, const Insn *i, FindingKind kind) {
    Record *r = find_record(w->sm, i, NULL, kind);
    if (r) r->finding.count++;
    return r != NULL;
}

static void record(Warp *w, const Insn *i, int lane, FindingKind kind, const Insn *other,
                   const char *mend, const char *what, va_list arguments) {
    Sm *sm = w->sm;
    bool fatal = finding_error(kind) != 0;
    if (fatal) sm->faulted = true;
    Record *again = find_record(sm, i, other, kind);
    if (again) {
        again->finding.count++;
        return;
    }
    if (!sm->findings) {
        sm->findings = allocate(NULL, sizeof *sm->findings);
        memset(sm->findings, 0, sizeof *sm->findings);
    }
    struct FindingList *list = sm->findings;
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 4;
        list->records = allocate(list->records, (size_t)list->capacity * sizeof *list->records);
    }
    Record *r = &list->records[list->count++];
    *r = (Record){.insn = i, .other = other};
    Finding *f = &r->finding;
    f->kind = kind;
    f->note = is_note(kind, sm->gpu->settings->strict);
    f->what = format(what, arguments);
    f->mend = mend ? copy(mend) : NULL;
    f->count = 1;
    set_thread(f, w, lane);
    if (!w->kernel) return;
    f->kernel = readable_name(w->kernel->name);
    set_place(f, w->kernel, i);
    if (other) f->other = other_place(w->kernel, other);
}

void finding(Warp *w, const Insn *i, int lane, FindingKind kind, const char *mend, const char *what,
             ...) {
    va_list arguments;
    va_start(arguments, what);
    record(w, i, lane, kind, NULL, mend, what, arguments);
    va_end(arguments);
}

void finding_pair(Warp *w, const Insn *i, int lane, FindingKind kind, const Insn *other,
                  const char *mend, const char *what, ...) {
    va_list arguments;
    va_start(arguments, what);
    record(w, i, lane, kind, other, mend, what, arguments);
    va_end(arguments);
}

// ---- the process's list

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && !strcmp(a, b));
}

// Are these one finding to a person: the same kind at the same line (or pair of lines)?
static bool same_finding(const Finding *a, const Finding *b) {
    if (a->kind != b->kind || a->note != b->note || !same_text(a->other, b->other)) return false;
    if (!same_text(a->kernel, b->kernel)) return false;
    if (a->frame_count && b->frame_count)
        return a->frames[0].line == b->frames[0].line &&
               same_text(a->frames[0].file, b->frames[0].file);
    if (a->frame_count || b->frame_count) return false;
    if (a->ptx_line || b->ptx_line) return a->ptx_line == b->ptx_line;
    return same_text(a->text, b->text) && (a->text || same_text(a->what, b->what));
}

// Takes ownership of what *f holds.
static void add(Finding *f) {
    int error = finding_error(f->kind);
    if (error && !all.launch_error) all.launch_error = error;
    if (!f->note) all.launch_count++;
    for (int k = 0; k < all.count; k++) {
        if (!same_finding(&all.items[k], f)) continue;
        all.items[k].count += f->count;
        free_finding(f);
        return;
    }
    if (f->note)
        all.notes++;
    else
        all.errors++;
    if (all.count == FINDINGS_KEPT || (f->note && all.notes > NOTES_KEPT)) {
        if (f->note)
            all.notes_dropped++;
        else
            all.errors_dropped++;
        free_finding(f);
        return;
    }
    if (!all.items) all.items = allocate(NULL, FINDINGS_KEPT * sizeof *all.items);
    all.items[all.count++] = *f;
}

void finding_global(FindingKind kind, const char *kernel, const char *mend, const char *what, ...) {
    Finding f = {.kind = kind, .count = 1};
    va_list arguments;
    va_start(arguments, what);
    f.what = format(what, arguments);
    va_end(arguments);
    f.mend = mend ? copy(mend) : NULL;
    f.kernel = kernel ? readable_name(kernel) : NULL;
    f.note = is_note(kind, all.strict);
    add(&f);
}

void findings_configure(const Settings *settings) {
    all.strict = settings->strict;
    all.quiet = settings->report_json;
}

void findings_begin_launch(void) {
    all.launch_error = 0;
    all.launch_count = 0;
}

void findings_merge(Sm *sm) {
    struct FindingList *list = sm->findings;
    if (!list) return;
    for (int k = 0; k < list->count; k++) add(&list->records[k].finding);
    free(list->records);
    free(list);
    sm->findings = NULL;
}

int findings_launch_error(void) {
    return all.launch_error;
}

int findings_launch_count(void) {
    return all.launch_count;
}

void findings_end_launch(void) {
    fflush(stdout); // what the kernel printed comes before what is wrong with it
    if (all.quiet) return;
    for (int k = 0; k < all.count; k++) {
        Finding *f = &all.items[k];
        if (f->printed) continue;
        finding_print(stderr, f);
        f->printed = true;
        f->printed_count = f->count;
    }
}

int findings_count(void) {
    return all.errors;
}

Finding *findings_get(int index) {
    return index >= 0 && index < all.count ? &all.items[index] : NULL;
}

uint64_t findings_errors_dropped(void) {
    return all.errors_dropped;
}

uint64_t findings_notes_dropped(void) {
    return all.notes_dropped;
}

void findings_reset(void) {
    for (int k = 0; k < all.count; k++) free_finding(&all.items[k]);
    free(all.items);
    memset(&all, 0, sizeof all);
}
