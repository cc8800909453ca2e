// --varlen, --sink and their files: what is read, what is refused, and what a run makes of it, on
// a runtime that executes on the CPU (fake_runtime.c).
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_steps.h"
#include "harness/input.h"
#include "harness/npy.h"
#include "harness/report.h"
#include "harness/run.h"
#include "write_npy.h"

static const Step *const steps[] = {&fake_naive, &fake_forward_only, &fake_unwritten,
                                    &fake_overruns};
static const Chapter with = {.number = 7,
                             .title = "test",
                             .gpu = "h100",
                             .min_capability = 80,
                             .has_backward = true,
                             .has_varlen = true,
                             .has_sinks = true,
                             .steps = steps,
                             .step_count = 4,
                             .check = {1, 2, 1, 65, 63, 64, DTYPE_FP16, false, 0}};
static const Chapter without = {
    .number = 3, .title = "test", .gpu = "h100", .steps = steps, .step_count = 4, .check = {0}};
static const int built[] = {64, 0};
static Options options;
static Run run;
static bool chosen[4];

static bool read_line(const char *line, const Chapter *chapter, Message *message) {
    static char words[256];
    char *argv[16] = {"run"};
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    return options_read(argc, argv, chapter, &options, message);
}

START_TEST(lengths_make_a_problem) {
    Problem p;
    Message message;
    ck_assert(read_line("--varlen 5,0,3:7,0:2 --heads 4 --sink", &with, &message));
    ck_assert(options_size_given(&options));
    ck_assert(problem_make(&options, &with, &with.check, built, &p, &message));
    ck_assert_int_eq(p.batch, 4);
    ck_assert_int_eq(p.seqlen_q, 5);
    ck_assert_int_eq(p.seqlen_k, 7);
    ck_assert(p.has_sink);
    static const int queries[] = {0, 5, 5, 8, 8}, keys[] = {0, 5, 5, 12, 14};
    ck_assert_int_eq(memcmp(p.cu_seqlens_q, queries, sizeof queries), 0);
    ck_assert_int_eq(memcmp(p.cu_seqlens_k, keys, sizeof keys), 0);
    ck_assert_double_eq(problem_flops(&p, false), 4.0 * 4 * (25 + 21) * 64);
    ck_assert(read_line("--varlen 1 --sweep heads=1,2", &with, &message)); // not a size of --varlen
}
END_TEST

START_TEST(bad_lengths_are_refused) {
    static const char *const lines[][2] = {
        {"--varlen ,", "queries:keys"},
        {"--varlen 5,", "queries:keys"},
        {"--varlen 5,x", "queries:keys"},
        {"--varlen 5,-1", "queries:keys"},
        {"--varlen 1:2:3", "queries:keys"},
        {"--varlen 1:,2", "queries:keys"},
        {"--varlen 2147483648", "queries:keys"},
        {"--varlen 2147483647,1", "more than 2147483647 rows"},
        {"--varlen 5,6 --seqlen 7", "--varlen: says the batch"},
        {"--seqlen-k 7 --varlen 5,6", "--varlen: says the batch"},
        {"--varlen 5,6 --batch 2", "--varlen: says the batch"},
        {"--varlen 5,6 --sweep seqlen-q=1,2", "--varlen: says the batch"},
        {"--varlen 5,6 --input x", "--input: the files say the sizes"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        Message message = {""};
        ck_assert_msg(!read_line(lines[i][0], &with, &message), "accepted: %s", lines[i][0]);
        ck_assert_msg(strstr(message.text, lines[i][1]) != NULL, "%s", message.text);
    }
    Message message;
    ck_assert(!read_line("--varlen 5,6", &without, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "--varlen: chapter 3's steps"));
    ck_assert_ptr_nonnull(strstr(message.text, "chapters 1 and 7"));
    ck_assert(!read_line("--sink", &without, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "--sink: chapter 3 does not have it; chapters 1"));
}
END_TEST

// ---- runs

static bool run_line(const char *line, const char *step_list, bool backward, Message *message) {
    fake_steps_reset();
    ck_assert(read_line(line, &with, message));
    run = (Run){.chapter = &with, .options = &options, .device = &fake_gpu, .chosen = chosen};
    run.backward = backward;
    run.same = true;
    ck_assert(steps_choose(&with, step_list, false, chosen, message));
    ck_assert(problem_make(&options, &with, &with.check, built, &run.checked, message));
    run.timed = run.checked;
    return run_steps(&run, message);
}

START_TEST(a_right_step_passes) {
    static const char *const lines[] = {
        "--varlen 30:20,0,1,7:0,0:3,12 --causal --sink --heads 4 --kv-heads 2",
        "--varlen 9,1,1 --window 2,1 --dtype fp32", "--varlen 0,0", "--seqlen 20 --sink"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        Message message;
        ck_assert_msg(run_line(lines[i], "naive", true, &message), "%s", message.text);
        for (int r = 0; r < 2; r++)
            ck_assert_msg(run.results[r].ok == 1, "%s: %s", lines[i],
                          run.results[r].tensors[r == 0 ? TENSOR_O : TENSOR_DQ].report);
        ck_assert_int_eq(run.status, 0);
        run_free(&run);
    }
}
END_TEST

START_TEST(wrong_ones_do_not) {
    Message message;
    ck_assert(run_line("--varlen 9,0,4", "unwritten,overruns", false, &message));
    ck_assert_int_eq(run.results[0].tensors[TENSOR_O].unwritten, 64);
    ck_assert(run.results[1].overrun);
    ck_assert_int_eq(run.status, 1);
    run_free(&run);
}
END_TEST

// A step says whether it takes them; nobody asks one that doesn't say so.
START_TEST(others_are_not_asked) {
    Message message;
    ck_assert(run_line("--varlen 9,0,4", "naive,forward-only", false, &message));
    ck_assert_ptr_nonnull(strstr(run.results[1].refused, "sequences of one length only"));
    ck_assert_ptr_nonnull(strstr(run.results[1].refused, "chapter 7"));
    ck_assert_int_eq(run.results[0].ok, 1);
    run_free(&run);
    ck_assert(!run_line("--varlen 4 --sink", "forward-only", false, &message));
    ck_assert(run_line("--seqlen 4 --sink", "naive,unwritten", false, &message));
    ck_assert_ptr_nonnull(strstr(run.results[1].refused, "no attention sinks"));
    ck_assert_ptr_nonnull(strstr(run.results[1].refused, "chapter 7"));
    run_free(&run);
}
END_TEST

START_TEST(json_has_the_lengths) {
    Message message;
    char *text;
    size_t size;
    ck_assert(run_line("--varlen 9:5,0,4 --sink", "naive", false, &message));
    FILE *stream = open_memstream(&text, &size);
    write_json(stream, &run);
    fclose(stream);
    ck_assert_ptr_nonnull(
        strstr(text, "\"sink\": true, \"varlen\": [[9, 5], [0, 0], [4, 4]], \"input\""));
    free(text);
    run_free(&run);
    ck_assert(run_line("--seqlen 4", "naive", false, &message));
    stream = open_memstream(&text, &size);
    write_json(stream, &run);
    fclose(stream);
    ck_assert_ptr_nonnull(strstr(text, "\"sink\": false, \"varlen\": null"));
    free(text);
    run_free(&run);
}
END_TEST

// ---- files

static char folder[32];

static void write_lengths(const char *name, int64_t count, const int *starts) {
    write_npy(folder, name, NPY_INT32, 1, &count, starts);
}

// A folder with two query heads, one K/V head: 6 rows of q, 5 of k, in three sequences.
static void make_folder(void) {
    static float numbers[6 * 2 * 64];
    static const int64_t q[] = {6, 2, 64}, k[] = {5, 1, 64}, heads = 2;
    strcpy(folder, "/tmp/test_lengths_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (int i = 0; i < 6 * 2 * 64; i++) numbers[i] = (float)(i % 97) / 16;
    write_npy(folder, "q", NPY_FLOAT32, 3, q, numbers);
    write_npy(folder, "k", NPY_FLOAT32, 3, k, numbers);
    write_npy(folder, "v", NPY_FLOAT32, 3, k, numbers);
    write_npy(folder, "sink", NPY_FLOAT32, 1, &heads, numbers + 3);
    write_lengths("cu_seqlens_q", 4, (const int[]){0, 4, 4, 6});
    write_lengths("cu_seqlens_k", 4, (const int[]){0, 0, 3, 5});
}

static void remove_folder(void) {
    static const char *const names[] = {
        "q", "k", "v", "o", "lse", "dlse", "sink", "cu_seqlens_q", "cu_seqlens_k"};
    char path[64];
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        snprintf(path, sizeof path, "%s/%s.npy", folder, names[n]);
        unlink(path);
    }
    ck_assert_int_eq(rmdir(folder), 0);
}

// Padded to the longest on the host, and saved without the padding.
START_TEST(files_make_a_problem) {
    Message message;
    char line[128], path[64];
    make_folder();
    snprintf(line, sizeof line, "--input %s --save %s --dtype fp32", folder, folder);
    ck_assert(read_line(line, &with, &message));
    run = (Run){.chapter = &with, .options = &options, .device = &fake_gpu, .chosen = chosen};
    ck_assert_msg(input_read(folder, false, &options, &run.saved_inputs, &message), "%s",
                  message.text);
    const Inputs *in = &run.saved_inputs;
    ck_assert(problem_make(&options, &with, &with.check, built, &run.checked, &message));
    ck_assert_int_eq(run.checked.batch, 3);
    ck_assert_int_eq(run.checked.seqlen_q, 4);
    ck_assert_int_eq(run.checked.seqlen_k, 3);
    ck_assert(run.checked.has_sink);
    ck_assert_float_eq(in->sink[1], 4.0f / 16);
    ck_assert_float_eq(in->q[8 * 2 * 64 + 1], (float)((4 * 2 * 64 + 1) % 97) / 16);
    ck_assert_float_eq(in->k[6 * 64 + 1], (float)((3 * 64 + 1) % 97) / 16);
    run.same = true;
    run.timed = run.checked;
    ck_assert(steps_choose(&with, "naive", false, chosen, &message));
    ck_assert(run_steps(&run, &message));
    ck_assert_int_eq(run.results[0].ok, 1);
    Npy array;
    snprintf(path, sizeof path, "%s/o.npy", folder);
    ck_assert_msg(npy_read(path, &array, &message), "%s", message.text);
    ck_assert_int_eq(array.dimensions, 3);
    ck_assert_int_eq(array.shape[0], 6);
    ck_assert_int_eq(array.shape[1], 2);
    ck_assert_int_eq(array.shape[2], 64);
    free(array.elements);
    snprintf(path, sizeof path, "%s/lse.npy", folder);
    ck_assert(npy_read(path, &array, &message));
    ck_assert_int_eq(array.dimensions, 2);
    ck_assert_int_eq(array.shape[0], 2);
    ck_assert_int_eq(array.shape[1], 6);
    // The first sequence has queries and no keys: what they see is the sink.
    ck_assert_float_eq(npy_float(&array, 0), in->sink[0]);
    ck_assert_float_eq(npy_float(&array, 6), in->sink[1]);
    free(array.elements);
    inputs_free(&run.saved_inputs);
    run_free(&run);
    remove_folder();
}
END_TEST

// Lengths that don't fit the rows (F17), that fall, and the like.
START_TEST(bad_files_are_refused) {
    static const struct {
        const char *name;
        int64_t count;
        int starts[4];
        const char *words;
    } files[] = {
        {"cu_seqlens_q", 4, {0, 4, 4, 5}, "ends at 5, and q.npy has 6 rows"},
        {"cu_seqlens_k", 4, {0, 0, 3, 9}, "ends at 9, and k.npy has 5 rows"},
        {"cu_seqlens_q", 4, {1, 4, 4, 6}, "must begin with 0 and never fall"},
        {"cu_seqlens_q", 4, {0, 4, 3, 6}, "must begin with 0 and never fall"},
        {"cu_seqlens_q", 3, {0, 4, 6}, "cu_seqlens_q.npy has 2 sequences, cu_seqlens_k.npy 3"},
        {"cu_seqlens_k", 1, {0}, "must hold int32"},
    };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        Message message = {""};
        Inputs in;
        make_folder();
        write_lengths(files[f].name, files[f].count, files[f].starts);
        ck_assert(read_line("", &with, &message));
        ck_assert(!input_read(folder, false, &options, &in, &message));
        ck_assert_msg(strstr(message.text, files[f].words) != NULL, "%s", message.text);
        remove_folder();
    }
}
END_TEST

START_TEST(other_bad_files) {
    Message message = {""};
    Inputs in;
    static const int64_t three = 3, four[] = {1, 6, 2, 64};
    static const float numbers[6 * 2 * 64];
    char path[64];
    ck_assert(read_line("", &with, &message));
    make_folder();
    write_npy(folder, "sink", NPY_FLOAT32, 1, &three, numbers);
    ck_assert(!input_read(folder, false, &options, &in, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "3 numbers for the 2 heads"));
    remove_folder();
    make_folder();
    write_npy(folder, "q", NPY_FLOAT32, 4, four, numbers);
    ck_assert(!input_read(folder, false, &options, &in, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "(rows of all sequences, heads, head_dim)"));
    remove_folder();
    make_folder();
    snprintf(path, sizeof path, "%s/cu_seqlens_k.npy", folder);
    unlink(path);
    ck_assert(!input_read(folder, false, &options, &in, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "cu_seqlens_k.npy"));
    remove_folder();
    make_folder();
    snprintf(path, sizeof path, "%s/sink.npy", folder);
    unlink(path);
    ck_assert(read_line("--sink", &with, &message));
    ck_assert(!input_read(folder, false, &options, &in, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "sink.npy"));
    remove_folder();
}
END_TEST

Suite *suite_lengths(void);
Suite *suite_lengths(void) {
    Suite *suite = suite_create("harness: --varlen, --sink and their files");
    TCase *all = tcase_create("lengths");
    tcase_add_test(all, lengths_make_a_problem);
    tcase_add_test(all, bad_lengths_are_refused);
    tcase_add_test(all, a_right_step_passes);
    tcase_add_test(all, wrong_ones_do_not);
    tcase_add_test(all, others_are_not_asked);
    tcase_add_test(all, json_has_the_lengths);
    tcase_add_test(all, files_make_a_problem);
    tcase_add_test(all, bad_files_are_refused);
    tcase_add_test(all, other_bad_files);
    suite_add_tcase(suite, all);
    return suite;
}
