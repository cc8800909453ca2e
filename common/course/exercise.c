// Exercises: a chapter's kernel with its idea taken out. The kernel marks the lines to take out,
//
//     // exercise 1: begin
//     …
//     // exercise 1: end
//
// and the chapter's exercise.md says of each what to keep, what stands there until then, and three
// hints. So the exercise and its solution are one text, and can't drift apart.
//
// usage: exercise kernels FOLDER          the files that it is made of, the step's .cu file first
//        exercise write FOLDER [K…]       the exercise, with the numbers K open, or with all
//        exercise open FOLDER FILE        the numbers that are still open in a learner's FILE
//        exercise hint FOLDER FILE TIER   hints 1 to TIER for the first one that is open there
//
// Prints to standard output. Further kernel files are headers that the first one, or one of them,
// includes: each takes the place of that line. What includes such a header, too, must come behind it,
// or its own text would be compiled in place of the exercise's.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HOLES = 9, MOST_HINTS = 3, MOST_FILES = 6, LINE_LENGTH = 1000, TEXT_LENGTH = 4000 };

typedef struct {
    char title[LINE_LENGTH];
    char keep[TEXT_LENGTH]; // the invariant, lines as they stand
    char stub[TEXT_LENGTH]; // what keeps the rest compiling
    char hints[MOST_HINTS][TEXT_LENGTH];
    bool marked; // its marks have been seen in the kernel
} Hole;

typedef struct {
    const char *folder;
    char kernels[MOST_FILES][LINE_LENGTH]; // file names; behind the last one empty
    char title[LINE_LENGTH], about[TEXT_LENGTH];
    Hole holes[MOST_HOLES + 1]; // from 1
    int count;
} Exercise;

static void fail(const char *about, const char *what) {
    fprintf(stderr, "exercise: %s: %s\n", about, what);
    exit(2);
}

static FILE *open_in(const char *folder, const char *name) {
    char path[2 * LINE_LENGTH + 2];
    snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", name);
    FILE *file = fopen(path, "r");
    if (file == NULL) fail(path, "can't be opened");
    return file;
}

static bool begins_with(const char *line, const char *text) {
    return strncmp(line, text, strlen(text)) == 0;
}

static void append(char *text, const char *line) {
    const size_t used = strlen(text);
    if (used + strlen(line) + 1 > TEXT_LENGTH) fail(line, "a text of exercise.md is too long");
    strcpy(text + used, line);
}

// ---- exercise.md

// kernel: `two_pass.cu`, and names of headers; then · step: its name
static void read_kernels(Exercise *e, const char *line) {
    const char *step = strstr(line, "step:");
    for (int k = 0; k < MOST_FILES; k++) {
        const char *begin = strchr(line, '`'), *end = begin ? strchr(begin + 1, '`') : NULL;
        if (end == NULL || (step != NULL && begin > step)) break;
        snprintf(e->kernels[k], LINE_LENGTH, "%.*s", (int)(end - begin - 1), begin + 1);
        line = end + 1;
    }
    if (e->kernels[0][0] == 0) fail(e->folder, "exercise.md names no kernel");
}

// A paragraph belongs to what was begun last: the exercise, a hole's invariant, a hint. Code between
// fences is a hole's stub.
static void read_exercise(Exercise *e, const char *folder) {
    char line[LINE_LENGTH];
    memset(e, 0, sizeof *e);
    e->folder = folder;
    FILE *file = open_in(folder, "exercise.md");
    char *paragraph = e->about;
    bool code = false;
    while (fgets(line, sizeof line, file) != NULL) {
        Hole *hole = &e->holes[e->count];
        if (begins_with(line, "```")) {
            code = !code;
        } else if (code) {
            append(hole->stub, line);
        } else if (begins_with(line, "# ")) {
            snprintf(e->title, sizeof e->title, "%.*s", (int)strcspn(line + 2, "\n"), line + 2);
        } else if (begins_with(line, "kernel: ")) {
            read_kernels(e, line);
        } else if (begins_with(line, "## ")) {
            const char *title = strstr(line, " · ");
            if (title == NULL || e->count == MOST_HOLES || atoi(line + 3) != e->count + 1)
                fail(line,
                     "a part is called \"## 1 · Its title\", and the numbers are 1, 2, … to 9");
            title += strlen(" · ");
            hole = &e->holes[++e->count];
            snprintf(hole->title, sizeof hole->title, "%.*s", (int)strcspn(title, "\n"), title);
            paragraph = NULL;
        } else if (begins_with(line, "Keep: ")) {
            paragraph = hole->keep;
            append(paragraph, line);
        } else if (begins_with(line, "<details><summary>Hint ")) {
            const int number = atoi(line + strlen("<details><summary>Hint "));
            if (number < 1 || number > MOST_HINTS) fail(line, "there are hints 1 to 3");
            paragraph = hole->hints[number - 1];
        } else if (begins_with(line, "</details>")) {
            paragraph = NULL;
        } else if (*line != '\n' && paragraph != NULL) {
            append(paragraph, line);
        }
    }
    fclose(file);
    if (e->count == 0) fail(folder, "exercise.md has no part (## 1 …)");
    for (int h = 1; h <= e->count; h++) {
        if (e->holes[h].keep[0] == 0) fail(e->holes[h].title, "has no line \"Keep: …\"");
        for (int k = 0; k < MOST_HINTS; k++)
            if (e->holes[h].hints[k][0] == 0) fail(e->holes[h].title, "has no three hints");
    }
}

// ---- writing

static void print_lines(const char *text, int indent) {
    while (*text != 0) {
        const int length = (int)strcspn(text, "\n");
        printf("%*s%.*s\n", length > 0 ? indent : 0, "", length, text);
        text += length + (text[length] == '\n');
    }
}

// The words of a text as a comment, in lines of up to 100 columns.
static void print_comment(const char *text, int indent) {
    int column = 0;
    while (*(text += strspn(text, " \n")) != 0) {
        const int length = (int)strcspn(text, " \n");
        if (column > 0 && column + 1 + length > 100) {
            putchar('\n');
            column = 0;
        }
        if (column == 0) column = printf("%*s//", indent, "");
        column += printf(" %.*s", length, text);
        text += length;
    }
    if (column > 0) putchar('\n');
}

// The number of "// exercise 3: begin" or "… end"; 0: another line.
static int mark_of(const char *line, const char *what) {
    int number = 0, length = 0;
    char word[8];
    line += strspn(line, " ");
    if (sscanf(line, "// exercise %d: %7[a-z]%n", &number, word, &length) != 2) return 0;
    return length > 0 && line[length] == '\n' && strcmp(word, what) == 0 ? number : 0;
}

static void write_hole(const Hole *hole, int number, int indent, int lines) {
    printf("%*s// Exercise %d · %s (%d line%s)\n", indent, "", number, hole->title, lines,
           lines > 1 ? "s" : "");
    print_comment(hole->keep, indent);
    print_lines(hole->stub, indent);
    printf("%*s// End of exercise %d\n", indent, "", number);
}

// The header of the exercise that a line includes; NULL: another line.
static const char *included(const Exercise *e, const char *line) {
    char include[LINE_LENGTH + 16];
    for (int k = 1; k < MOST_FILES && e->kernels[k][0] != 0; k++) {
        snprintf(include, sizeof include, "#include \"%s\"\n", e->kernels[k]);
        if (strcmp(line, include) == 0) return e->kernels[k];
    }
    return NULL;
}

// Copies a file of the kernel, with the holes of `open` instead of their lines.
static void write_file(Exercise *e, const char *name, const bool *open) {
    char line[LINE_LENGTH];
    FILE *file = open_in(e->folder, name);
    int inside = 0, lines = 0, indent = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        const int begins = mark_of(line, "begin"), ends = mark_of(line, "end");
        if (begins > 0) {
            if (inside > 0 || begins > e->count)
                fail(name, "a mark of an exercise is out of place");
            inside = begins;
            lines = -1; // this one
            indent = (int)strspn(line, " ");
            e->holes[inside].marked = true;
        } else if (ends > 0) {
            if (ends != inside) fail(name, "the end of an exercise without its begin");
            if (open[inside]) write_hole(&e->holes[inside], inside, indent, lines);
            inside = 0;
        } else if (included(e, line) != NULL) {
            write_file(e, included(e, line), open);
        } else if (inside == 0 || !open[inside]) {
            fputs(line, stdout);
        }
        lines++;
    }
    fclose(file);
    if (inside > 0) fail(name, "an exercise without its end");
}

static void write_exercise(Exercise *e, const bool *open) {
    printf("// %s\n//\n", e->title);
    print_comment(e->about, 0);
    printf("//\n// The rest is %s as it stands in the chapter, from here on:\n//\n", e->kernels[0]);
    write_file(e, e->kernels[0], open);
    for (int h = 1; h <= e->count; h++)
        if (!e->holes[h].marked) fail(e->holes[h].title, "the kernel has no marks of this part");
}

// ---- a learner's file

// Squeezed of all space: another indentation is no answer.
static void squeeze(char *to, const char *text) {
    for (; *text != 0; text++)
        if (strchr(" \t\r\n", *text) == NULL) *to++ = *text;
    *to = 0;
}

// Which parts have still nothing but what stood there at first. Marks that are gone: not open.
static void find_open(const Exercise *e, const char *path, bool *open) {
    char line[LINE_LENGTH], answer[TEXT_LENGTH] = "", given[TEXT_LENGTH], stub[TEXT_LENGTH];
    FILE *file = open_in("", path);
    int inside = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        const char *text = line + strspn(line, " ");
        int number = 0;
        if (sscanf(text, "// Exercise %d", &number) == 1 && number >= 1 && number <= e->count) {
            inside = number;
            answer[0] = 0;
        } else if (sscanf(text, "// End of exercise %d", &number) == 1 && number == inside) {
            squeeze(given, answer);
            squeeze(stub, e->holes[inside].stub);
            open[inside] = strcmp(given, stub) == 0;
            inside = 0;
        } else if (inside > 0 && !begins_with(text, "//")) {
            if (strlen(answer) + strlen(line) < sizeof answer) strcat(answer, line);
        }
    }
    fclose(file);
}

static void print_hints(const Exercise *e, const bool *open, int tier) {
    int h = 1;
    while (h <= e->count && !open[h]) h++;
    if (h > e->count) {
        printf("%s: nothing is open any more. If ./run still finds it wrong, compare with %s/%s.\n",
               e->title, e->folder, e->kernels[0]);
        return;
    }
    printf("%s\n\nPart %d · %s\n", e->title, h, e->holes[h].title);
    print_lines(e->holes[h].keep, 0);
    for (int k = 0; k < tier; k++) {
        printf("\nHint %d of %d\n", k + 1, MOST_HINTS);
        print_lines(e->holes[h].hints[k], 4);
    }
    if (tier < MOST_HINTS) printf("\nThe next hint: the same command with TIER=%d\n", tier + 1);
}

int main(int argc, char **argv) {
    static Exercise exercise;
    bool open[MOST_HOLES + 1] = {false};
    if (argc < 3) fail("usage", "exercise kernels|write|open|hint FOLDER …");
    const char *verb = argv[1];
    read_exercise(&exercise, argv[2]);
    if (strcmp(verb, "kernels") == 0) {
        for (int k = 0; k < MOST_FILES && exercise.kernels[k][0] != 0; k++)
            printf("%s%s", k > 0 ? " " : "", exercise.kernels[k]);
        printf("\n");
    } else if (strcmp(verb, "write") == 0) {
        for (int h = 1; h <= exercise.count; h++) open[h] = argc == 3;
        for (int k = 3; k < argc; k++) {
            const int number = atoi(argv[k]);
            if (number < 0 || number > exercise.count) fail(argv[k], "no part has this number");
            open[number] = true; // 0: none
        }
        write_exercise(&exercise, open);
    } else if (argc == 4 && strcmp(verb, "open") == 0) {
        find_open(&exercise, argv[3], open);
        for (int h = 1; h <= exercise.count; h++)
            if (open[h]) printf("%d ", h);
    } else if (argc == 5 && strcmp(verb, "hint") == 0) {
        const int tier = atoi(argv[4]);
        if (tier < 1 || tier > MOST_HINTS) fail(argv[4], "TIER is 1, 2 or 3");
        find_open(&exercise, argv[3], open);
        print_hints(&exercise, open, tier);
    } else {
        fail(verb, "kernels, write, open or hint");
    }
    return 0;
}
