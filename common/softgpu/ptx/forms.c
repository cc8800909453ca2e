// Prints the tables of instruction forms for people, as Markdown: a row for each instruction, with
// all the modifier sets that it is known with (execute/form.h states the grammar), then a row for
// each that is refused, with the reason (refused.c).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/ptx/table.h"

// By name; forms of one name keep the order of the table.
static int by_name(const void *a, const void *b) {
    const Form *x = *(const Form *const *)a, *y = *(const Form *const *)b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x > y) - (x < y);
}

// A modifier set, its alternatives between slashes: a bar would end the cell. Alternatives of
// underscores only hold places for handlers; no program can write them.
static void print_set(FILE *to, const char *modifiers) {
    fputc('`', to);
    const char *separator = "";
    for (const char *c = modifiers; *c;) {
        size_t length = strcspn(c, "|? ");
        if (strspn(c, "_") < length) {
            fputs(separator, to);
            for (size_t k = 0; k < length; k++)
                fputs(c[k] == '*' ? "…" : (char[]){c[k] == '#' ? 'N' : c[k], 0}, to);
            separator = "/";
        }
        c += length;
        if (*c == '?' || (*c == ' ' && c[1])) fputc(*c, to), separator = "";
        if (*c) c++;
    }
    fputc('`', to);
}

// Every form of the tables, sorted by name.
static const Form **sorted_forms(size_t *count) {
    const Form **forms = NULL;
    *count = 0;
    for (int t = 0; form_table(t); t++)
        for (const Form *f = form_table(t); f->name; f++) {
            if (f->name[0] == '<') continue; // no program can write it: a phase's marker
            forms = realloc(forms, (*count + 1) * sizeof *forms);
            if (!forms) {
                fprintf(stderr, "softgpu: out of memory while listing forms\n");
                exit(2);
            }
            forms[(*count)++] = f;
        }
    qsort(forms, *count, sizeof *forms, by_name);
    return forms;
}

static void print_done(FILE *to) {
    size_t count, names = 0;
    const Form **forms = sorted_forms(&count);
    for (size_t k = 0; k < count; k++) names += !k || strcmp(forms[k]->name, forms[k - 1]->name);
    fprintf(to, "%zu instructions in %zu forms.\n\n", names, count);
    fprintf(to, "| instruction | with these modifiers |\n| --- | --- |\n");
    for (size_t k = 0; k < count; k++) {
        bool first = !k || strcmp(forms[k]->name, forms[k - 1]->name);
        const char *set = forms[k]->modifiers ? forms[k]->modifiers : "";
        const char *before = !first && forms[k - 1]->modifiers ? forms[k - 1]->modifiers : "";
        if (first) fprintf(to, "%s| `%s` |", k ? " |\n" : "", forms[k]->name);
        if (!first && !strcmp(set, before)) continue; // differs in its operands only
        if (set[0] == 0) continue;
        fputs(first ? " " : " · ", to);
        print_set(to, set);
    }
    fputs(" |\n", to);
    free(forms);
}

// Rows of one name and reason are together in the table.
static void print_refused(FILE *to) {
    size_t count = 0;
    for (const RefusedForm *f = refused_forms; f->name; f++) count++;
    fprintf(to, "\nRefused by name, in %zu forms and families:\n\n", count);
    fprintf(to, "| instruction | with these modifiers | because |\n| --- | --- | --- |\n");
    for (const RefusedForm *f = refused_forms; f->name; f++) {
        bool first = f == refused_forms || strcmp(f[-1].name, f->name) || strcmp(f[-1].why, f->why);
        if (first) fprintf(to, "| `%s` | ", f->name);
        print_set(to, f->modifiers);
        bool last = !f[1].name || strcmp(f[1].name, f->name) || strcmp(f[1].why, f->why);
        if (last)
            fprintf(to, " | %s |\n", f->why);
        else
            fputs(" · ", to);
    }
}

void softgpu_forms(FILE *to) {
    print_done(to);
    print_refused(to);
}
