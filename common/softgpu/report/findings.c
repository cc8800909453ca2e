// Findings as text and as JSON (report/findings.h).
#define _GNU_SOURCE // vasprintf
#include "softgpu/report/findings.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef unsigned long long ull;

enum { COLUMNS = 100 };

// Where a line that may take `room` columns breaks: at its last blank within them, else at the
// first one beyond; at `end` if it fits or has none.
static const char *line_break(const char *from, const char *end, int room) {
    const char *at = NULL;
    int columns = 0;
    for (const char *c = from; c < end; c++) {
        bool behind_at = c - from >= 3 && !strncmp(c - 3, " at", 3); // "at" goes with its place
        if (*c == ' ' && c > from && c[-1] != ' ' && !behind_at) at = c;
        columns += ((unsigned char)*c & 0xc0) != 0x80; // bytes that go on with a character aside
        if (columns > room && at) return at;
    }
    return end;
}

// Prints a line behind `indent` blanks and a mark (two columns wide, or ""), folded where it is too
// long; what it goes on with stands two columns further in than the line's own beginning.
static void print_line(FILE *out, int indent, const char *mark, const char *from, const char *end) {
    int own = (int)strspn(from, " "), under = indent + (*mark ? 2 : own + 2);
    const char *at = line_break(from + own, end, COLUMNS - indent - (*mark ? 2 : own));
    fprintf(out, "%*s%s%.*s\n", indent, "", mark, (int)(at - from), from);
    while (at < end) {
        from = at + 1;
        at = line_break(from, end, COLUMNS - under);
        fprintf(out, "%*s%.*s\n", under, "", (int)(at - from), from);
    }
}

// Prints text of several lines; the mark stands before the first.
static void print_lines(FILE *out, int indent, const char *mark, const char *text) {
    do {
        const char *end = text + strcspn(text, "\n");
        print_line(out, indent, mark, text, end);
        mark = *mark ? "  " : "";
        text = *end ? end + 1 : end;
    } while (*text);
}

static void print_folded(FILE *out, int indent, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void print_folded(FILE *out, int indent, const char *format, ...) {
    char *line;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&line, format, arguments) < 0) abort();
    va_end(arguments);
    print_lines(out, indent, "", line);
    free(line);
}

static void print_place(FILE *out, const Finding *f) {
    const char *text = f->text ? f->text : "";
    if (!f->frame_count) {
        if (f->text && f->ptx_line)
            print_folded(out, 6,
                         "%s (line %u of the PTX; compile with -lineinfo to see the source)", text,
                         f->ptx_line);
        else if (f->text)
            print_folded(out, 6, "%s", text);
        return;
    }
    for (int k = 0; k < f->frame_count; k++) {
        const FindingFrame *frame = &f->frames[k];
        const char *before = k ? "inlined" : text, *blank = *before ? " " : "";
        bool outermost = k == f->frame_count - 1;
        const char *function = frame->function ? frame->function : outermost ? f->kernel : NULL;
        print_folded(out, 6, "%s%sat %s:%u%s%s%s", before, blank, short_path(frame->file),
                     frame->line, function ? " in " : "", function ? function : "",
                     function ? "()" : "");
    }
}

// The last line: block, thread, kernel, how many more.
static void print_who(FILE *out, const Finding *f) {
    const char *between = "  ";
    if (f->has_block) {
        fprintf(out, "%sblock (%u,%u,%u)", between, f->block[0], f->block[1], f->block[2]);
        between = " · ";
        if (f->has_thread)
            fprintf(out, ", thread (%u,%u,%u)", f->thread[0], f->thread[1], f->thread[2]);
        else
            fprintf(out, ", warp %d", f->warp);
    }
    if (f->kernel) {
        fprintf(out, "%skernel %s", between, f->kernel);
        between = " · ";
    }
    if (f->count > 1) {
        fprintf(out, "%s%llu more like it", between, (ull)f->count - 1);
        between = " · ";
    }
    if (strcmp(between, "  ")) fputc('\n', out);
}

void finding_print(FILE *out, const Finding *f) {
    fprintf(out, "softgpu: %s%s\n", f->note ? "note: " : "", finding_title(f->kind));
    print_lines(out, 2, "", f->what);
    print_place(out, f);
    if (f->other) print_folded(out, 6, "the other: %s", f->other);
    if (f->mend) print_lines(out, 6, "→ ", f->mend);
    print_who(out, f);
    fflush(out);
}

// ---- JSON

static void json_string(FILE *out, const char *s) {
    if (!s) {
        fputs("null", out);
        return;
    }
    fputc('"', out);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", out);
        else if (c < 0x20)
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

static void json_field(FILE *out, const char *name, const char *value) {
    fprintf(out, "\"%s\": ", name);
    json_string(out, value);
    fputs(", ", out);
}

static void json_triple(FILE *out, const char *name, const uint32_t value[3], bool known) {
    if (known)
        fprintf(out, "\"%s\": [%u, %u, %u], ", name, value[0], value[1], value[2]);
    else
        fprintf(out, "\"%s\": null, ", name);
}

static void json_finding(FILE *out, const Finding *f) {
    const FindingFrame *first = f->frame_count ? &f->frames[0] : NULL;
    fputc('{', out);
    json_field(out, "kind", finding_slug(f->kind));
    fprintf(out, "\"note\": %s, ", f->note ? "true" : "false");
    json_field(out, "what", f->what);
    json_field(out, "mend", f->mend);
    json_field(out, "kernel", f->kernel);
    json_triple(out, "block", f->block, f->has_block);
    json_triple(out, "thread", f->thread, f->has_thread);
    json_field(out, "file", first ? first->file : NULL);
    if (first)
        fprintf(out, "\"line\": %u, ", first->line);
    else
        fputs("\"line\": null, ", out);
    fputs("\"frames\": [", out);
    for (int k = 0; k < f->frame_count; k++) {
        fputs(k ? ", {" : "{", out);
        json_field(out, "file", f->frames[k].file);
        json_field(out, "function", f->frames[k].function);
        fprintf(out, "\"line\": %u}", f->frames[k].line);
    }
    fputs("], ", out);
    json_field(out, "instruction", f->text);
    fprintf(out, "\"ptx_line\": %u, ", f->ptx_line);
    json_field(out, "other", f->other);
    fprintf(out, "\"error\": %d, \"count\": %llu}", finding_error(f->kind), (ull)f->count);
}

// Writes the array of all findings, or of those that findings_json has not told yet.
static void json_array(FILE *out, bool only_new) {
    fputc('[', out);
    const char *between = "\n  ";
    Finding *f;
    for (int k = 0; (f = findings_get(k)); k++) {
        if (only_new && f->told) continue;
        if (only_new) f->told = true;
        fputs(between, out);
        json_finding(out, f);
        between = ",\n  ";
    }
    fputs(strcmp(between, "\n  ") ? "\n]" : "]", out);
}

const char *findings_json(void) {
    static char *text;
    static size_t size;
    free(text);
    text = NULL;
    FILE *out = open_memstream(&text, &size);
    if (!out) return "[]";
    json_array(out, true);
    fclose(out);
    return text ? text : "[]";
}

// Writes the report to `path`, or to `temporary` beside it, which takes its place when whole.
static bool write_report_file(const char *path, const char *temporary) {
    FILE *out = fopen(temporary ? temporary : path, "w");
    if (!out) return false;
    json_array(out, false);
    fputc('\n', out);
    bool written = fflush(out) == 0;
    int reason = errno;
    if (fclose(out) != 0 && written) {
        written = false;
        reason = errno;
    }
    if (written && temporary && rename(temporary, path) != 0) {
        written = false;
        reason = errno;
    }
    if (!written && temporary) unlink(temporary);
    errno = reason;
    return written;
}

// The machine-readable report of the whole run.
static bool write_report(const char *path) {
    struct stat status;
    char *temporary = NULL;
    if (!path) {
        json_array(stderr, false);
        fputc('\n', stderr);
        return true;
    }
    if (stat(path, &status) != 0 || S_ISREG(status.st_mode)) // others can't be replaced
        if (asprintf(&temporary, "%s.%ld.part", path, (long)getpid()) < 0) return false;
    bool written = write_report_file(path, temporary);
    if (!written)
        fprintf(stderr, "softgpu: can't write the report to %s: %s\n", path, strerror(errno));
    free(temporary);
    return written;
}

// What there was no room for, errors and notes apart.
static void print_dropped(void) {
    ull errors = findings_errors_dropped(), notes = findings_notes_dropped();
    if (errors)
        fprintf(stderr, "softgpu: %llu more error%s not shown\n", errors,
                errors == 1 ? " at another line is" : "s at other lines are");
    if (notes)
        fprintf(stderr, "softgpu: %llu more note%s not shown\n", notes,
                notes == 1 ? " at another line is" : "s at other lines are");
}

bool findings_finish(const Settings *settings) {
    if (settings->report_json) return write_report(settings->report_file);
    Finding *f;
    for (int k = 0; (f = findings_get(k)); k++) {
        if (!f->printed)
            finding_print(stderr, f);
        else if (f->count > f->printed_count)
            fprintf(stderr, "softgpu: %s at %s:%u: %llu more in later launches\n",
                    finding_title(f->kind), f->frame_count ? short_path(f->frames[0].file) : "PTX",
                    f->frame_count ? f->frames[0].line : f->ptx_line,
                    (ull)(f->count - f->printed_count));
        f->printed = true;
        f->printed_count = f->count;
    }
    print_dropped();
    return true;
}
