// Running a chapter's program as a person would, and the files that it reads and writes.
#include "program.h"

#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const StepName own_steps[] = {
    {1, "naive", false},
    {2, "tiled-matmul", false},
    {2, "two-pass", false},
    {3, "normalise-every-block", false},
    {3, "normalise-once", false},
    {3, "mma-sync", true},
    {3, "swizzled", true},
    {3, "cp-async", true},
    {5, "wgmma", true},
    {5, "tma-ring", true},
    {5, "warp-specialised", true},
    {5, "pingpong", true},
    {5, "intra-warpgroup", true},
    {7, "persistent", true},
    {7, "overlapped-epilogue", true},
    {7, "lpt", true},
    {7, "l2-order", true},
    {8, "p-in-tmem", true},
    {8, "persistent-lpt", true},
    {9, "split-kv", true},
    {9, "gqa-packed", true},
    {9, "auto-split", true},
    {9, "cluster-combine", true},
    {9, "paged-kv", true},
};
const int own_step_count = sizeof own_steps / sizeof *own_steps;

static char repository[PATH_MAX], build[PATH_MAX], folder[64];

static void leave_folder(void) {
    char command[128];
    if (chdir("/") != 0) return;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0) fprintf(stderr, "%s is left over\n", folder);
}

void enter_folder(void) {
    const char *given = getenv("TEST_BUILD");
    if (repository[0] == 0)
        ck_assert_ptr_nonnull(getcwd(repository, sizeof repository));
    else
        ck_assert_int_eq(chdir(repository), 0);
    ck_assert_msg(realpath(given != NULL ? given : "build/d64-128", build) != NULL,
                  "TEST_BUILD=%s: no such folder; run `make test`", given);
    strcpy(folder, "/tmp/chapter-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
    atexit(leave_folder);
}

const char *in_repository(const char *path) {
    static char absolute[2 * PATH_MAX];
    snprintf(absolute, sizeof absolute, "%s/%s", repository, path);
    return absolute;
}

char *file_text(const char *path) {
    FILE *stream = fopen(path, "rb");
    ck_assert_msg(stream != NULL, "%s is not there", path);
    size_t used = 0, size = 1 << 16;
    char *text = malloc(size);
    for (size_t got; (got = fread(text + used, 1, size - used - 1, stream)) > 0;) {
        used += got;
        if (size - used < 2) text = realloc(text, size *= 2);
    }
    fclose(stream);
    text[used] = 0;
    return text;
}

void write_text(const char *path, const char *text) {
    FILE *stream = fopen(path, "wb");
    ck_assert_msg(stream != NULL, "%s can't be written", path);
    fputs(text, stream);
    ck_assert_int_eq(fclose(stream), 0);
}

void forward_reads_inputs_once(int chapter, const char *step_name, int head_dim) {
    Outcome run =
        run_chapter(chapter,
                    "--steps %s --json - --batch 1 --heads 16 --seqlen 1024 --head-dim %d "
                    "--sms 4 --sample 0 --check none",
                    step_name, head_dim);
    const Json *json = outcome_json(&run, 0);
    every_step_is_ok(&run, json);
    const double tensor = 16.0 * 1024 * head_dim * 2, lse = 16.0 * 1024 * 4;
    const Json *step = step_named(json, step_name);
    const double read = json_number(step, "hbm_read_bytes");
    ck_assert_double_ge(read, 3 * tensor);
    ck_assert_double_le(read, 1.1 * 3 * tensor);
    ck_assert_double_le(json_number(step, "hbm_write_bytes"), 1.1 * (tensor + lse));
    ck_assert_double_eq(json_number(step, "workspace_bytes"), 0);
}

int in_full(int full, int otherwise) {
    return getenv("TEST_FULL") != NULL ? full : otherwise;
}

bool file_exists(const char *path) {
    struct stat status;
    return lstat(path, &status) == 0;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

const char *chapter_path(int chapter) {
    static char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/chapter-%d/run", build, chapter);
    return path;
}

const char *path_of(const char *variable) {
    const char *given = getenv(variable);
    char *path = given != NULL ? realpath(given, NULL) : NULL;
    ck_assert_msg(path != NULL, "%s: not set, or not there; run `make test`", variable);
    return path;
}

// Both streams go to files outside of the test's folder, which so shows only what the program
// wrote.
static Outcome run_words(const char *name, const char *format, va_list arguments) {
    Outcome o = {0};
    char words[900], path[PATH_MAX + 64], out[80], err[80], *argv[80];
    vsnprintf(words, sizeof words, format, arguments);
    snprintf(o.command, sizeof o.command, "%s %s", name, words);
    snprintf(path, sizeof path, "%s/%s/run", build, name);
    snprintf(out, sizeof out, "%s.out", folder);
    snprintf(err, sizeof err, "%s.err", folder);
    int count = 0;
    argv[count++] = path;
    for (char *word = words; *word != 0 && count < 79;) {
        argv[count++] = word;
        word += strcspn(word, " ");
        if (*word == ' ') *word++ = 0;
    }
    argv[count] = NULL;
    double start = now();
    fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        int to = open(out, O_CREAT | O_TRUNC | O_WRONLY, 0600);
        int errors = open(err, O_CREAT | O_TRUNC | O_WRONLY, 0600);
        if (to < 0 || errors < 0 || dup2(to, 1) < 0 || dup2(errors, 2) < 0) _exit(126);
        execv(path, argv);
        _exit(127);
    }
    int status;
    struct rusage usage = {0};
    ck_assert_int_eq(wait4(child, &status, 0, &usage), child);
    o.seconds = now() - start;
    o.cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                    1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    o.out = file_text(out);
    o.err = file_text(err);
    unlink(out);
    unlink(err);
    ck_assert_msg(WIFEXITED(status), "%s: signal %d\n%s", o.command, WTERMSIG(status), o.err);
    o.status = WEXITSTATUS(status);
    ck_assert_msg(o.status != 126 && o.status != 127, "%s can't be started", path);
    return o;
}

Outcome run_program(const char *name, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    Outcome o = run_words(name, format, arguments);
    va_end(arguments);
    return o;
}

Outcome run_chapter(int chapter, const char *format, ...) {
    char name[32];
    va_list arguments;
    snprintf(name, sizeof name, "chapter-%d", chapter);
    va_start(arguments, format);
    Outcome o = run_words(name, format, arguments);
    va_end(arguments);
    return o;
}

// Check takes messages of a few KB only; one that is longer ends the whole runner.
Json *outcome_json(const Outcome *o, int status) {
    ck_assert_msg(o->status == status, "%s: status %d, not %d\n%.3000s%.3000s", o->command,
                  o->status, status, o->out, o->err);
    return json_read(o->out);
}

int every_step_is_ok(const Outcome *o, const Json *json) {
    const Json *steps = json_at(json, "steps");
    ck_assert_msg(steps->count > 0, "%s: no steps", o->command);
    for (const Json *s = steps->first; s != NULL; s = s->next) {
        bool right = json_at(s, "ok")->truth && json_is_null(s, "refused") &&
                     json_is_null(s, "device_error") && !json_bool(s, "overrun") &&
                     json_count(s, "findings") == 0;
        ck_assert_msg(right, "%s: %s is not right\n%.3000s%.3000s", o->command,
                      json_text(s, "name"), o->out, o->err);
        // Something was compared, and written.
        bool backward = strcmp(json_text(s, "pass"), "backward") == 0;
        static const char *const forward_tensors[] = {"errors.o", "errors.lse"};
        static const char *const backward_tensors[] = {"errors.dq", "errors.dk", "errors.dv"};
        for (int t = 0; t < (backward ? 3 : 2); t++) {
            const Json *tensor = json_at(s, backward ? backward_tensors[t] : forward_tensors[t]);
            ck_assert_msg(json_bool(tensor, "ok") && json_number(tensor, "unwritten") == 0,
                          "%s: %s", o->command, o->out);
        }
    }
    return steps->count;
}

const Json *step_named(const Json *json, const char *name) {
    const Json *found = NULL;
    for (const Json *s = json_at(json, "steps")->first; s != NULL; s = s->next)
        if (found == NULL && strcmp(json_text(s, "name"), name) == 0) found = s;
    ck_assert_msg(found != NULL, "no step %s in the JSON", name);
    return found;
}

double cycles_of(const Json *json, const char *step) {
    return json_number(step_named(json, step), "cycles");
}

// ---- .npy

Array array_make(long a, long b, long c, long d, bool half) {
    Array array = {.dimensions = 4, .shape = {a, b, c, d}, .count = a * b * c * d, .half = half};
    array.values = calloc((size_t)array.count + 1, sizeof(float));
    ck_assert_ptr_nonnull(array.values);
    return array;
}

void array_write(const char *path, const Array *a) {
    char header[128];
    int used = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                        a->half ? "<f2" : "<f4");
    for (int d = 0; d < a->dimensions; d++)
        used += snprintf(header + used, sizeof header - (size_t)used, "%s%ld", d > 0 ? ", " : "",
                         a->shape[d]);
    snprintf(header + used, sizeof header - (size_t)used, "), }");
    FILE *stream = fopen(path, "wb");
    ck_assert_msg(stream != NULL, "%s can't be written", path);
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, stream);
    fprintf(stream, "%-117s\n", header); // 128 bytes in all
    for (long i = 0; i < a->count; i++) {
        _Float16 half = (_Float16)a->values[i];
        if (a->half)
            fwrite(&half, 2, 1, stream);
        else
            fwrite(&a->values[i], 4, 1, stream);
    }
    ck_assert_int_eq(fclose(stream), 0);
}

Array array_read(const char *path) {
    Array a = {.count = 1};
    unsigned char start[10];
    FILE *stream = fopen(path, "rb");
    ck_assert_msg(stream != NULL, "%s is not there", path);
    ck_assert_int_eq(fread(start, 1, 10, stream), 10);
    ck_assert_msg(memcmp(start, "\x93NUMPY\x01", 7) == 0, "%s is no .npy file", path);
    int length = start[8] | start[9] << 8;
    char *header = calloc((size_t)length + 1, 1);
    ck_assert_int_eq(fread(header, 1, (size_t)length, stream), length);
    a.half = strstr(header, "'<f2'") != NULL;
    ck_assert_msg(a.half || strstr(header, "'<f4'") != NULL, "%s: %s", path, header);
    const char *shape = strchr(header, '(');
    ck_assert_ptr_nonnull(shape);
    for (char *end; a.dimensions < 4; shape = end) {
        shape += strspn(shape, "(, ");
        if (*shape == ')') break;
        a.shape[a.dimensions] = strtol(shape, &end, 10);
        ck_assert(end != shape);
        a.count *= a.shape[a.dimensions++];
    }
    a.values = calloc((size_t)a.count + 1, sizeof(float));
    for (long i = 0; i < a.count; i++) {
        _Float16 half;
        size_t got = a.half ? fread(&half, 2, 1, stream) : fread(&a.values[i], 4, 1, stream);
        ck_assert_msg(got == 1, "%s is too short", path);
        if (a.half) a.values[i] = (float)half;
    }
    ck_assert_msg(fgetc(stream) == EOF, "%s is too long", path);
    fclose(stream);
    return a;
}

void arrays_are_equal(const Array *a, const Array *b) {
    ck_assert_int_eq(a->dimensions, b->dimensions);
    ck_assert_mem_eq(a->shape, b->shape, sizeof a->shape);
    for (long i = 0; i < a->count; i++)
        ck_assert_msg(memcmp(&a->values[i], &b->values[i], 4) == 0, "element %ld: %g and %g", i,
                      (double)a->values[i], (double)b->values[i]);
}

void gradients_are_alike(Array first[3], bool is_first) {
    static const char *const paths[] = {"out/dq.npy", "out/dk.npy", "out/dv.npy"};
    for (int t = 0; t < 3; t++) {
        Array array = array_read(paths[t]);
        if (is_first)
            first[t] = array;
        else
            arrays_are_equal(&first[t], &array);
    }
}
