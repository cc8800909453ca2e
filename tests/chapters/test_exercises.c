// Exercises: what a learner is given can't pass, says why, and neither crashes nor hangs; with any one
// part left open it still can't; filled, it is right. $TEST_EXERCISES lists the chapters whose programs
// were built (make test: a few, make test-long CHAPTER=exercises: all). The tool that writes them, on a
// toy; that a learner's file is never written over. And the hunts that $TEST_HUNTS lists: ./run shows
// the bug, in the file that it has been put into, and it is one line.
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

enum { CHAPTERS = 9, FILLED = 10, VARIANTS = 11, MOST_SECONDS = 60 };

// The chapter's folder in the repository, "02_tiled"; NULL: there is none.
static const char *folder_of(int chapter) {
    static char name[300];
    const char first[] = {'0', (char)('0' + chapter), '_', 0};
    DIR *folder = opendir(in_repository("."));
    ck_assert_ptr_nonnull(folder);
    bool found = false;
    for (struct dirent *e; !found && (e = readdir(folder)) != NULL;) {
        found = strncmp(e->d_name, first, 3) == 0;
        snprintf(name, sizeof name, "%s", e->d_name);
    }
    closedir(folder);
    return found ? name : NULL;
}

static char *exercise_text(int chapter) {
    char path[400];
    snprintf(path, sizeof path, "%s/exercise.md", folder_of(chapter));
    return file_text(in_repository(path));
}

// How many parts it has, and the name of its step.
static int parts_of(const char *text, char *step, size_t size) {
    const char *name = strstr(text, "step: `");
    ck_assert_msg(name != NULL, "exercise.md names no step");
    name += strlen("step: `");
    snprintf(step, size, "%.*s", (int)strcspn(name, "`"), name);
    int parts = 0;
    for (const char *at = text; (at = strstr(at, "\n## ")) != NULL; at++) parts++;
    return parts;
}

// A program of an exercise must end as it should: 0 if filled, else 1 or 3 and with an explanation.
static void runs_as_it_should(int chapter, int variant) {
    char step_name[64], name[100], part[12];
    const int parts = parts_of(exercise_text(chapter), step_name, sizeof step_name);
    ck_assert_msg(3 <= parts && parts <= 6, "chapter %d's exercise has %d parts", chapter, parts);
    if (variant != FILLED && variant > parts) return;
    snprintf(part, sizeof part, "%d", variant);
    snprintf(name, sizeof name, "../tests/exercises/%d/%s", chapter,
             variant == 0        ? "given"
             : variant == FILLED ? "filled"
                                 : part);
    Outcome o = run_program(name, "--check-only --json - --steps %s", step_name);
    const bool filled = variant == FILLED;
    ck_assert_msg(filled ? o.status == 0 : o.status == 1 || o.status == 3,
                  "%s ends with status %d:\n%s", o.command, o.status, o.err);
    ck_assert_msg(o.seconds < MOST_SECONDS, "%s took %.0f s", o.command, o.seconds);
    const Json *json = outcome_json(&o, o.status);
    ck_assert_msg(strstr(o.err, "is yours") != NULL, "%s", o.err);
    bool right = true;
    int findings = 0;
    for (const Json *pass = json_at(json, "steps")->first; pass != NULL; pass = pass->next) {
        ck_assert_str_eq(json_text(pass, "name"), step_name); // forward; chapter 4: backward, too
        right &= json_bool(pass, "ok");
        findings += json_count(pass, "findings");
    }
    ck_assert_msg(right == filled, "%s:\n%s", o.command, o.err);
    if (filled) ck_assert_msg(findings == 0, "%s:\n%s", o.command, o.err);
    if (o.status == 3)
        ck_assert_msg(findings > 0 && strstr(o.err, "softgpu: ") != NULL &&
                          (strstr(o.err, ".cu:") != NULL || strstr(o.err, ".h:") != NULL),
                      "%s: no finding with its line:\n%s", o.command, o.err);
    if (o.status == 1)
        ck_assert_msg(strstr(o.err, "WRONG") != NULL && strstr(o.err, "first at") != NULL,
                      "%s: nothing says what is wrong:\n%s", o.command, o.err);
}

START_TEST(exercise_can_fail_and_pass) {
    const int chapter = 1 + _i / VARIANTS, variant = _i % VARIANTS;
    const char *listed = getenv("TEST_EXERCISES");
    ck_assert_msg(listed != NULL, "`make test` sets what this needs");
    if (strchr(listed, '0' + chapter) == NULL) return;
    enter_folder();
    runs_as_it_should(chapter, variant);
}
END_TEST

// ---- hunts

enum { MOST_HUNTS = 12 };

// Number `index` of $TEST_HUNTS ("5-1 5-2 …"); false: there are fewer.
static bool hunt_at(int index, char *name, size_t size) {
    const char *listed = getenv("TEST_HUNTS");
    ck_assert_msg(listed != NULL, "`make test` sets what this needs");
    for (; *(listed += strspn(listed, " ")) != 0; listed += strcspn(listed, " "))
        if (index-- == 0) {
            snprintf(name, size, "%.*s", (int)strcspn(listed, " "), listed);
            return true;
        }
    return false;
}

// A folder of the build folder, absolute.
static const char *built(const char *name) {
    static char path[1000];
    const char *build = getenv("TEST_BUILD");
    snprintf(path, sizeof path, "%s/../%s", build[0] == '/' ? build : in_repository(build), name);
    return path;
}

// The hunt's copy of the chapter lacks marks of exercises, and one line; another may stand there.
static void one_line_differs(const char *folder, const char *hunt) {
    char command[4000];
    snprintf(command, sizeof command,
             "for f in %s/%s/*; do sed '/\\/\\/ exercise [0-9]: /d' '%s'/%s/$(basename $f) | "
             "diff - $f; done >differences; "
             "test $(grep -c '^<' differences) = 1 && test $(grep -c '^>' differences) -le 1",
             built(hunt), folder, in_repository("."), folder);
    ck_assert_msg(system(command) == 0, "%s: more than a line differs:\n%s", hunt,
                  file_text("differences"));
}

START_TEST(hunt_shows_its_bug) {
    char hunt[12], name[40], place[60];
    if (!hunt_at(_i, hunt, sizeof hunt)) return;
    enter_folder();
    const char *folder = folder_of(hunt[0] - '0');
    snprintf(name, sizeof name, "../hunt-%s", hunt);
    snprintf(place, sizeof place, "hunt-%s/%s/", hunt, folder);
    Outcome o = run_program(name, "--json -");
    outcome_json(&o, 3);
    ck_assert_msg(o.seconds < MOST_SECONDS, "hunt %s took %.0f s", hunt, o.seconds);
    ck_assert_msg(strstr(o.err, "softgpu: ") != NULL && strstr(o.err, place) != NULL,
                  "hunt %s: no finding names a line of it:\n%s", hunt, o.err);

    snprintf(name, sizeof name, "hunt-%s", hunt);
    one_line_differs(folder, name);
}
END_TEST

// ---- the tool, on a toy

static const char toy_kernel[] = "// A toy.\n"
                                 "#include \"toy.h\"\n"
                                 "int twice(int x) {\n"
                                 "    // exercise 2: begin\n"
                                 "    x = 2 * x;\n"
                                 "    x += 0;\n"
                                 "    // exercise 2: end\n"
                                 "    return x;\n"
                                 "}\n";
static const char toy_header[] = "int once(int x) {\n"
                                 "    // exercise 1: begin\n"
                                 "    return x;\n"
                                 "    // exercise 1: end\n"
                                 "}\n";
static const char toy_exercise[] =
    "# Exercise 0: a toy\n\nkernel: `toy.cu`, `toy.h` · step: `toy`\n\nWhat it is about.\n\n"
    "## 1 · Once\n\nKeep: the number.\n\n```c\nreturn -1;\n```\n\n"
    "<details><summary>Hint 1</summary>\n\none-one\n\n</details>\n"
    "<details><summary>Hint 2</summary>\n\none-two\n\n</details>\n"
    "<details><summary>Hint 3</summary>\n\none-three\n\n</details>\n\n"
    "## 2 · Twice\n\nKeep: its double.\n\n"
    "<details><summary>Hint 1</summary>\n\ntwo-one\n\n</details>\n"
    "<details><summary>Hint 2</summary>\n\ntwo-two\n\n</details>\n"
    "<details><summary>Hint 3</summary>\n\ntwo-three\n\n</details>\n";

static void make_toy(void) {
    enter_folder();
    ck_assert_int_eq(system("mkdir toy"), 0);
    write_text("toy/toy.cu", toy_kernel);
    write_text("toy/toy.h", toy_header);
    write_text("toy/exercise.md", toy_exercise);
}

// What the tool prints; it must end with that status.
static char *tool(int status, const char *arguments) {
    char command[2000];
    snprintf(command, sizeof command, "%s %s >out 2>&1", built("exercise"), arguments);
    const int ended = system(command);
    char *text = file_text("out");
    ck_assert_msg(ended == status << 8, "%s:\n%s", command, text);
    return text;
}

START_TEST(filled_toy_is_the_kernel) {
    make_toy();
    const char *text = tool(0, "write toy 0");
    ck_assert_msg(strstr(text, "exercise 1: begin") == NULL && strstr(text, "// End of") == NULL,
                  "%s", text);
    ck_assert_msg(strstr(text, "#include \"toy.h\"") == NULL, "the header isn't in it:\n%s", text);
    ck_assert_ptr_nonnull(strstr(text, "int once(int x) {\n    return x;\n}\nint twice(int x) {\n"
                                       "    x = 2 * x;\n    x += 0;\n    return x;\n}\n"));
    ck_assert_str_eq(tool(0, "kernels toy"), "toy.cu toy.h\n");
}
END_TEST

START_TEST(open_parts_lose_their_lines) {
    make_toy();
    const char *text = tool(0, "write toy");
    ck_assert_ptr_null(strstr(text, "return x;\n}\nint twice"));
    ck_assert_ptr_null(strstr(text, "2 * x"));
    ck_assert_ptr_nonnull(strstr(text,
                                 "    // Exercise 1 · Once (1 line)\n    // Keep: the number.\n"
                                 "    return -1;\n    // End of exercise 1\n"));
    ck_assert_ptr_nonnull(strstr(text, "    // Exercise 2 · Twice (2 lines)\n"
                                       "    // Keep: its double.\n    // End of exercise 2\n"));
    text = tool(0, "write toy 2");
    ck_assert_ptr_nonnull(strstr(text, "int once(int x) {\n    return x;\n}\n"));
    ck_assert_ptr_null(strstr(text, "2 * x"));
    tool(2, "write toy 3"); // no such part
}
END_TEST

// A part is open while nothing but its stub stands there, however it is indented.
START_TEST(hints_are_for_the_first_open_part) {
    make_toy();
    write_text("mine.cu", tool(0, "write toy"));
    ck_assert_str_eq(tool(0, "open toy mine.cu"), "1 2 ");
    const char *text = tool(0, "hint toy mine.cu 1");
    ck_assert_msg(strstr(text, "one-one") != NULL && strstr(text, "one-two") == NULL, "%s", text);
    ck_assert_msg(strstr(text, "Keep: the number.") != NULL && strstr(text, "TIER=2"), "%s", text);
    text = tool(0, "hint toy mine.cu 3");
    ck_assert_msg(strstr(text, "one-one") && strstr(text, "one-two") && strstr(text, "one-three"),
                  "%s", text);
    ck_assert_msg(strstr(text, "TIER=") == NULL && strstr(text, "two-") == NULL, "%s", text);

    char *mine = file_text("mine.cu"), *stub = strstr(mine, "return -1;");
    memcpy(stub, "return +x;", strlen("return +x;"));
    write_text("mine.cu", mine);
    ck_assert_str_eq(tool(0, "open toy mine.cu"), "2 ");
    text = tool(0, "hint toy mine.cu 2");
    ck_assert_msg(strstr(text, "two-two") != NULL && strstr(text, "one-") == NULL, "%s", text);

    write_text("mine.cu", tool(0, "write toy 0"));
    ck_assert_str_eq(tool(0, "open toy mine.cu"), "");
    ck_assert_ptr_nonnull(strstr(tool(0, "hint toy mine.cu 1"), "nothing is open"));
    tool(2, "hint toy mine.cu 4");
}
END_TEST

START_TEST(mistakes_of_an_author_are_named) {
    make_toy();
    write_text("toy/toy.h", "int once(int x);\n"); // marks of part 1 are missing
    ck_assert_ptr_nonnull(strstr(tool(2, "write toy"), "Once: the kernel has no marks"));
    write_text("toy/toy.h", "// exercise 1: begin\n"); // never ends
    ck_assert_ptr_nonnull(strstr(tool(2, "write toy"), "toy.h: an exercise without its end"));
    write_text("toy/toy.h", toy_header);
    char *text = strdup(toy_exercise);
    memcpy(strstr(text, "Hint 3"), "Hint 2", strlen("Hint 2")); // one is missing
    write_text("toy/exercise.md", text);
    ck_assert_ptr_nonnull(strstr(tool(2, "write toy"), "Once: has no three hints"));
}
END_TEST

// ---- the learner's file

// Runs make in this folder, which holds a copy of chapter 2 beside links to the rest.
static char *make(const char *arguments) {
    char command[1000];
    snprintf(command, sizeof command, "make -s BUILD=build %s >out 2>&1", arguments);
    const int ended = system(command);
    char *text = file_text("out");
    ck_assert_msg(ended == 0, "make %s:\n%s", arguments, text);
    return text;
}

START_TEST(a_learners_file_is_never_overwritten) {
    enter_folder();
    char command[2000];
    snprintf(command, sizeof command,
             "ln -s '%1$s/Makefile' '%1$s/common' . && cp -r '%1$s/02_tiled' . && "
             "rm -f 02_tiled/exercise.cu",
             in_repository("."));
    ck_assert_int_eq(system(command), 0);
    unsetenv("MAKEFLAGS");
    unsetenv("MAKELEVEL");
    ck_assert_ptr_nonnull(strstr(make("02_tiled/exercise.cu"), "is yours"));
    char *given = file_text("02_tiled/exercise.cu");
    ck_assert_ptr_nonnull(strstr(given, "// Exercise 1 · "));
    ck_assert_ptr_nonnull(strstr(make("hint-2"), "Hint 1 of 3"));
    ck_assert_ptr_nonnull(strstr(make("hint-2 TIER=3"), "Hint 3 of 3"));

    write_text("02_tiled/exercise.cu", "mine\n");
    ck_assert_int_eq(system("sleep 0.02 && touch 02_tiled/*.cu 02_tiled/*.md build/exercise && "
                            "touch -d '1 hour ago' 02_tiled/exercise.cu"),
                     0);
    make("02_tiled/exercise.cu hint-2");
    ck_assert_str_eq(file_text("02_tiled/exercise.cu"), "mine\n");
}
END_TEST

// ---- make diff-M-N

static int shell(const char *format, const char *argument) {
    char command[3000];
    snprintf(command, sizeof command, format, in_repository("."), argument);
    return system(command);
}

// Files of the table exist; each pair shows what has been added and taken away, and no marks.
START_TEST(diffs_show_what_changed) {
    enter_folder();
    char *table = file_text(in_repository("common/course/diff.txt"));
    int rows = 0;
    for (char *line = strtok(table, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char pair[8], before[200], after[200];
        if (line[0] == '#') continue;
        ck_assert_int_eq(sscanf(line, "%7s %199s %199s", pair, before, after), 3);
        ck_assert_msg(file_exists(in_repository(before)), "%s", line);
        ck_assert_msg(file_exists(in_repository(after)), "%s", line);
        rows++;
    }
    ck_assert_int_ge(rows, 8);
    char *here = realpath(".", NULL);
    char arguments[2000];
    snprintf(arguments, sizeof arguments, "2-3 >'%s/out'", here);
    ck_assert_int_eq(shell("cd '%s' && sh common/course/diff.sh %s", arguments), 0);
    const char *text = file_text("out");
    ck_assert_ptr_nonnull(
        strstr(text, "02_tiled/two_pass.cu → 03_online_softmax/normalise_once.cu"));
    ck_assert_ptr_nonnull(strstr(text, "\n-    // pass 1: maximum and denominator\n"));
    ck_assert_ptr_nonnull(strstr(text, "\n+"));
    ck_assert_ptr_null(strstr(text, "exercise 1: begin"));
    snprintf(arguments, sizeof arguments, "1-9 2>'%s/out'", here);
    ck_assert_int_eq(shell("cd '%s' && sh common/course/diff.sh %s", arguments), 2 << 8);
    ck_assert_ptr_nonnull(
        strstr(file_text("out"), "diff-1-9: no such pair of chapters; there are:"));
}
END_TEST

Suite *suite_exercises(void) {
    Suite *suite = suite_create("exercises");
    TCase *tool_case = tcase_create("tool");
    tcase_add_test(tool_case, filled_toy_is_the_kernel);
    tcase_add_test(tool_case, open_parts_lose_their_lines);
    tcase_add_test(tool_case, hints_are_for_the_first_open_part);
    tcase_add_test(tool_case, mistakes_of_an_author_are_named);
    tcase_add_test(tool_case, a_learners_file_is_never_overwritten);
    tcase_add_test(tool_case, diffs_show_what_changed);
    suite_add_tcase(suite, tool_case);
    TCase *kernels = tcase_create("kernels");
    tcase_set_timeout(kernels, 2 * MOST_SECONDS);
    tcase_add_loop_test(kernels, exercise_can_fail_and_pass, 0, CHAPTERS * VARIANTS);
    tcase_add_loop_test(kernels, hunt_shows_its_bug, 0, MOST_HUNTS);
    suite_add_tcase(suite, kernels);
    return suite;
}
