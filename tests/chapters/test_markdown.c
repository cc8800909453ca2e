// Every Markdown file: its links lead somewhere (files, and headings in them), every target of `make`
// that it names exists, and so does every option of ./run. What stands in code is looked at for
// commands, the rest for links. Takes seconds.
#define _GNU_SOURCE // nftw that can skip folders
#include <check.h>
#include <ctype.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

enum { MOST_FILES = 200, LINE_LENGTH = 4000 };

static char *files[MOST_FILES];
static int file_count;
static size_t root_length;

static int visit(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status;
    const char *name = path + place->base;
    if (kind == FTW_D && place->level > 0 &&
        (name[0] == '.' || strcmp(name, "build") == 0 || strcmp(name, "results") == 0))
        return FTW_SKIP_SUBTREE;
    const size_t length = strlen(name);
    if (kind != FTW_F || length < 3 || strcmp(name + length - 3, ".md") != 0) return FTW_CONTINUE;
    ck_assert_int_lt(file_count, MOST_FILES);
    files[file_count++] = strdup(path);
    return FTW_CONTINUE;
}

// Fills `files` with all Markdown files of the repository.
static void find_files(void) {
    enter_folder();
    char root[2000];
    snprintf(root, sizeof root, "%s", in_repository("."));
    root_length = strlen(root) + 1;
    ck_assert_int_eq(nftw(root, visit, 16, FTW_PHYS | FTW_ACTIONRETVAL), 0);
    ck_assert_int_gt(file_count, 15);
}

// ---- lines: which are code

typedef struct {
    char *rest;  // of the text, or NULL at its end
    bool fenced; // between ``` and ```
    bool code;   // this line is: fenced, or indented by four
    int number;  // from 1
    char text[LINE_LENGTH];
} Line;

static bool next_line(Line *line) {
    if (line->rest == NULL || *line->rest == 0) return false;
    const size_t length = strcspn(line->rest, "\n");
    ck_assert_uint_lt(length, LINE_LENGTH);
    memcpy(line->text, line->rest, length);
    line->text[length] = 0;
    line->rest += length + (line->rest[length] == '\n');
    line->number++;
    const bool fence = strncmp(line->text, "```", 3) == 0;
    if (fence) line->fenced = !line->fenced;
    line->code = fence || line->fenced || strncmp(line->text, "    ", 4) == 0;
    return true;
}

// Blanks what stands in `code`, or all but that: `inverse`.
static void keep_code(char *text, bool inverse) {
    bool inside = false;
    for (char *c = text; *c != 0; c++) {
        if (*c == '`') {
            inside = !inside;
            *c = inverse ? ' ' : '\n'; // one span ends before the next begins
        } else if (inside == inverse) {
            *c = inverse ? ' ' : '\n';
        }
    }
}

// ---- links

// A heading's anchor, as GitHub makes it: lower case, punctuation dropped, spaces to hyphens.
static void anchor_of(char *anchor, const char *heading) {
    for (const char *c = heading; *c != 0; c++) {
        const unsigned char byte = (unsigned char)*c;
        if (*c == ' ' || *c == '-') {
            *anchor++ = '-';
        } else if (isalnum(byte) || *c == '_') {
            *anchor++ = (char)tolower(byte);
        } else if (byte == 0xc2 || byte == 0xe2) { // · × and the like; … → — and the like
            c += byte == 0xc2 ? 1 : 2;
        } else if (byte >= 0x80) {
            *anchor++ = *c;
        }
    }
    *anchor = 0;
}

static bool has_anchor(const char *path, const char *wanted) {
    static Line line; // large
    line = (Line){.rest = file_text(path)};
    char anchor[LINE_LENGTH];
    while (next_line(&line)) {
        if (line.code || line.text[0] != '#') continue;
        const char *heading = line.text + strspn(line.text, "#");
        anchor_of(anchor, heading + strspn(heading, " "));
        if (strcmp(anchor, wanted) == 0) return true;
    }
    return false;
}

// A link of a file: "other.md#part", "#part", "folder/file" or an address elsewhere.
static void check_link(const char *file, int number, char *target) {
    char path[3000];
    if (strncmp(target, "https://", 8) == 0) return;
    char *anchor = strchr(target, '#');
    if (anchor != NULL) *anchor++ = 0;
    if (*target == 0)
        snprintf(path, sizeof path, "%s", file);
    else
        snprintf(path, sizeof path, "%.*s%s", (int)(strrchr(file, '/') + 1 - file), file, target);
    ck_assert_msg(target[0] != '/' && file_exists(path), "%s:%d: there is no %s",
                  file + root_length, number, target);
    if (anchor != NULL)
        ck_assert_msg(has_anchor(path, anchor), "%s:%d: %s has no heading #%s", file + root_length,
                      number, *target ? target : "the file itself", anchor);
}

static int check_links(const char *file) {
    static Line line;
    line = (Line){.rest = file_text(file)};
    int count = 0;
    while (next_line(&line)) {
        if (line.code) continue;
        keep_code(line.text, true);
        for (char *at = line.text; (at = strstr(at, "](")) != NULL;) {
            char target[1000];
            at += 2;
            const int length = (int)strcspn(at, ")");
            snprintf(target, sizeof target, "%.*s", length, at);
            check_link(file, line.number, target);
            count++;
        }
    }
    return count;
}

START_TEST(links_lead_somewhere) {
    find_files();
    int count = 0;
    for (int f = 0; f < file_count; f++) count += check_links(files[f]);
    ck_assert_int_gt(count, 60);
}
END_TEST

// ---- commands

// Is the word in a list, each between two spaces?
static bool listed(const char *list, const char *word, size_t length) {
    for (const char *at = list; (at = strstr(at, word)) != NULL; at++)
        if (at > list && at[-1] == ' ' && at[length] == ' ') return true;
    return false;
}

// All targets that the Makefile has, between spaces.
static char *make_targets(void) {
    char command[3000];
    unsetenv("MAKEFLAGS");
    unsetenv("MAKELEVEL");
    snprintf(command, sizeof command,
             "mkdir b && make -C '%s' -qpr BUILD=\"$PWD/b\" 2>/dev/null | "
             "sed -n 's/^\\([a-z][a-z0-9-]*\\):.*/\\1/p' | sort -u | tr '\\n' ' ' >targets",
             in_repository("."));
    ck_assert_int_eq(system(command), 0);
    char *targets = file_text("targets"), *padded = malloc(strlen(targets) + 2);
    sprintf(padded, " %s", targets);
    return padded;
}

// The options that a text of help has, between spaces.
static char *options_of(const char *help) {
    char *options = calloc(strlen(help) + 3, 1), *to = options;
    *to++ = ' ';
    for (const char *at = help; (at = strstr(at, "  --")) != NULL; at++) {
        const char *name = at + 2;
        const size_t length = strspn(name, "-abcdefghijklmnopqrstuvwxyz0123456789");
        memcpy(to, name, length);
        to += length;
        *to++ = ' ';
    }
    *to = 0;
    return options;
}

// "chapter-N" stands for chapter-1, "diff-M-N" for diff-1-2, "hunt-N-K" for hunt-5-1.
static void fill_in(char *word) {
    char *at;
    if ((at = strstr(word, "M-N")) != NULL) memcpy(at, "1-2", 3);
    if ((at = strstr(word, "N-K")) != NULL) memcpy(at, "5-1", 3);
    if ((at = strstr(word, "-N")) != NULL) memcpy(at, "-2", 2);
}

// A command's next word, without quotes around it; NULL at the command's end: two spaces (a remark
// follows), a line's end, or what ends a command in a shell.
static const char *next_word(const char *at, char *word, size_t size) {
    size_t length = 0;
    char quote = 0;
    if (*at == ' ') at++;
    if (*at == 0 || strchr(" \n;&|#>…", *at) != NULL) return NULL;
    for (; *at != 0 && *at != '\n' && (quote != 0 || strchr(" ;&|", *at) == NULL); at++) {
        if (*at == '"' || *at == '\'')
            quote = quote == 0 ? *at : quote == *at ? 0 : quote;
        else if (length + 1 < size)
            word[length++] = *at;
    }
    word[length] = 0;
    return at;
}

// A command begins where its name does: behind nothing, a space or a bracket.
static const char *find_command(const char *text, const char *name) {
    const char *at = text;
    while ((at = strstr(at, name)) != NULL) {
        const char before = at > text ? at[-1] : '\n', after = at[strlen(name)];
        if (strchr(" \n(", before) != NULL && (after == ' ' || after == '\n' || after == 0))
            return at + strlen(name);
        at += strlen(name);
    }
    return NULL;
}

static int check_make(const char *place, const char *text, const char *targets) {
    int count = 0;
    for (const char *at = text; (at = find_command(at, "make")) != NULL;) {
        char word[500];
        const char *next = at;
        while ((next = next_word(next, word, sizeof word)) != NULL) {
            at = next;
            if (strchr(word, '=') != NULL || word[0] == '-' || !islower((unsigned char)word[0]))
                continue;
            fill_in(word);
            ck_assert_msg(listed(targets, word, strlen(word)), "%s: make %s: no such target", place,
                          word);
            count++;
        }
    }
    return count;
}

static int check_run(const char *place, const char *text, const char *options) {
    int count = 0;
    for (const char *at = text; (at = find_command(at, "./run")) != NULL;) {
        char word[500];
        const char *next = at;
        while ((next = next_word(next, word, sizeof word)) != NULL) {
            at = next;
            if (strncmp(word, "--", 2) != 0) continue;
            const size_t length = strcspn(word, "=");
            word[length] = 0;
            ck_assert_msg(listed(options, word, length), "%s: ./run %s: no such option", place,
                          word);
            count++;
        }
    }
    return count;
}

START_TEST(commands_exist) {
    find_files();
    const char *targets = make_targets(), *options = options_of(run_chapter(1, "--help").out);
    ck_assert_msg(listed(targets, "chapter-9", 9) && listed(options, "--seqlen", 8), "%s\n%s",
                  targets, options);
    int made = 0, run = 0;
    for (int f = 0; f < file_count; f++) {
        static Line line;
        line = (Line){.rest = file_text(files[f])};
        while (next_line(&line)) {
            char place[3000];
            snprintf(place, sizeof place, "%s:%d", files[f] + root_length, line.number);
            if (!line.code) keep_code(line.text, false);
            made += check_make(place, line.text, targets);
            run += check_run(place, line.text, options);
        }
    }
    ck_assert_msg(made > 50 && run > 150, "%d targets and %d options were found", made, run);
}
END_TEST

Suite *suite_markdown(void) {
    Suite *suite = suite_create("markdown");
    TCase *tests = tcase_create("markdown");
    tcase_add_test(tests, links_lead_somewhere);
    tcase_add_test(tests, commands_exist);
    suite_add_tcase(suite, tests);
    return suite;
}
