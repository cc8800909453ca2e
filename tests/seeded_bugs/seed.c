// Copies a chapter's sources and puts the bugs of bugs.h into them: the line of a bug becomes
//
//     if (SEEDED(7)) { what stands there instead } else { the line }
//
// so that one program has all bugs of a kernel, each when it is asked for ($SEEDED_BUG), and none
// otherwise. Lines keep their numbers.
//
// usage: seed UNIT FOLDER [N]    UNIT: 05_hopper_async/backward; its folder is copied into FOLDER
//
// With N the unit's N-th bug alone is put in, as it would stand in a careless kernel: for the hunts
// (make hunt-5-1). Prints the options with which the chapter's program shows it.
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bugs.h"

enum { LINE_MAX_LENGTH = 1000 };

static void fail(const char *what, const char *about) {
    fprintf(stderr, "seed: %s: %s\n", about, what);
    exit(1);
}

// "folder/name".
static char *join(const char *folder, const char *name) {
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (!path) fail("no memory", name);
    snprintf(path, size, "%s/%s", folder, name);
    return path;
}

static FILE *open_file(const char *path, const char *mode) {
    FILE *file = fopen(path, mode);
    if (!file) fail("can't be opened", path);
    return file;
}

// Copies a line without its end; behind its indentation, several spaces become one: comments are
// aligned.
static void squeeze(char *to, const char *line) {
    while (*line == ' ') *to++ = *line++;
    for (; *line && *line != '\n'; line++)
        if (*line != ' ' || line[1] != ' ') *to++ = *line;
    *to = 0;
}

// Is the text in the line; at its end, if the text ends in $?
static bool holds(const char *line, const char *text) {
    char plain[LINE_MAX_LENGTH];
    squeeze(plain, line);
    size_t length = strlen(text), end = strlen(plain);
    if (text[length - 1] != '$') return strstr(plain, text) != NULL;
    return end >= --length && !strncmp(plain + end - length, text, length);
}

// The bug, of this unit, whose line this is; -1: none.
static int bug_at(const char *unit, const char *path, const char *line) {
    for (int k = 0; k < BUGS; k++)
        if (!strcmp(bugs[k].unit, unit) && !strcmp(seeded_path(unit, bugs[k].file), path) &&
            holds(line, bugs[k].line))
            return k;
    return -1;
}

static void write_seeded(FILE *to, int bug, char *line, bool plain) {
    char *comment = strstr(line, " //");
    if (plain) {
        if (bugs[bug].instead[0])
            fprintf(to, "%.*s%s\n", (int)strspn(line, " "), line, bugs[bug].instead);
        return;
    }
    line[comment ? (size_t)(comment - line) : strcspn(line, "\n")] = 0;
    fprintf(to, "if (SEEDED(%d)) { %s } else { %s }\n", bug + 1, bugs[bug].instead, line);
}

// `only`: the bug that is put in plainly, or -1: all, to be switched on.
static void copy(const char *unit, const char *path, const char *folder, int *seeded, int only) {
    char line[LINE_MAX_LENGTH];
    FILE *from = open_file(path, "r"), *to = open_file(join(folder, path), "w");
    while (fgets(line, sizeof line, from)) {
        if (only >= 0 && strstr(line, "// exercise ")) continue; // a mark would give it away
        int bug = bug_at(unit, path, line);
        if (bug >= 0) seeded[bug]++;
        if (bug >= 0 && (only < 0 || only == bug))
            write_seeded(to, bug, line, only >= 0);
        else
            fputs(line, to);
    }
    fclose(from);
    fclose(to);
}

static bool is_source(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (!strcmp(dot, ".cu") || !strcmp(dot, ".h"));
}

static void make_folders(char *path) {
    for (char *at = path + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = 0;
        mkdir(path, 0777);
        *at = '/';
    }
    mkdir(path, 0777);
}

// The unit's n-th bug, from 1.
static int bug_of(const char *unit, int n) {
    for (int k = 0; k < BUGS; k++)
        if (!strcmp(bugs[k].unit, unit) && --n == 0) return k;
    fail("has not so many bugs", unit);
    return -1;
}

static void print_options(const char *unit) {
    for (int k = 0; k < UNITS; k++)
        if (!strcmp(units[k].name, unit)) printf("%s\n", units[k].arguments);
}

int main(int argc, char **argv) {
    if (argc < 3 || argc > 4 || !strchr(argv[1], '/'))
        fail("usage: seed UNIT FOLDER [N]", "arguments");
    const char *unit = argv[1], *folder = argv[2];
    const int only = argc > 3 ? bug_of(unit, atoi(argv[3])) : -1;
    char *source = join(unit, "");
    source[strrchr(unit, '/') - unit] = 0;
    make_folders(join(folder, source));
    int seeded[BUGS] = {0};
    DIR *entries = opendir(source);
    if (!entries) fail("can't be read", source);
    for (const struct dirent *e; (e = readdir(entries));) {
        if (!is_source(e->d_name)) continue;
        copy(unit, join(source, e->d_name), folder, seeded, only);
    }
    closedir(entries);
    for (int k = 0; k < BUGS; k++)
        if (!strcmp(bugs[k].unit, unit) && seeded[k] != 1)
            fail(seeded[k] ? "more than one line is that of the bug" : "no line is that of the bug",
                 bugs[k].line);
    if (only >= 0) print_options(unit);
    return 0;
}
