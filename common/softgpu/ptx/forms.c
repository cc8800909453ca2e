// Prints the table of instruction forms for people: a row of Markdown for each instruction, with all
// the modifier sets that it is known with (execute/form.h states the grammar).
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
            fprintf(to, "%s%.*s", separator, (int)length, c);
            separator = "/";
        }
        c += length;
        if (*c == '?' || *c == ' ') fputc(*c, to), separator = "";
        if (*c) c++;
    }
    fputc('`', to);
}

void softgpu_forms(FILE *to) {
    const Form **forms = NULL;
    size_t count = 0, names = 0;
    for (int t = 0; form_table(t); t++)
        for (const Form *f = form_table(t); f->name; f++) {
            forms = realloc(forms, (count + 1) * sizeof *forms);
            if (!forms) abort();
            forms[count++] = f;
        }
    qsort(forms, count, sizeof *forms, by_name);
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
