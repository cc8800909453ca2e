// A cache from files: with pages and without, and every way in which a table or a length would have
// a kernel read where nothing is.
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_steps.h"
#include "harness/cache.h"
#include "harness/input.h"
#include "harness/npy.h"
#include "harness/run.h"
#include "write_npy.h"

static const Step *const steps[] = {&fake_naive};
static const Chapter chapter_9 = {.number = 9,
                                  .title = "test",
                                  .gpu = "h200",
                                  .has_cache = true,
                                  .steps = steps,
                                  .step_count = 1,
                                  .check = {1, 2, 1, 3, 63, 64, DTYPE_FP16, false, 0}};
static const int built[] = {64, 0};
static Options options;
static char folder[32];

// Three sequences of 5, 0 and 3 keys, two query heads, one K/V head. With pages: five of four keys,
// number 2 of which is nobody's; else room for six keys each. Number i of a tensor is i / 16.
static const int table[] = {4, 1, 99, -7, 0, -1};
static void make_folder(bool pages) {
    enum { MOST = 20 * 64 };
    static float numbers[MOST];
    static const int64_t q[] = {3, 1, 2, 64}, three = 3, places[] = {3, 2};
    const int64_t k[] = {pages ? 5 : 3, pages ? 4 : 6, 1, 64};
    static const int lengths[] = {5, 0, 3};
    strcpy(folder, "/tmp/test_cache_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (int i = 0; i < MOST; i++) numbers[i] = (float)i / 16;
    write_npy(folder, "q", NPY_FLOAT32, 4, q, numbers);
    write_npy(folder, "k", NPY_FLOAT32, 4, k, numbers);
    write_npy(folder, "v", NPY_FLOAT32, 4, k, numbers);
    write_npy(folder, "cache_seqlens", NPY_INT32, 1, &three, lengths);
    if (pages) write_npy(folder, "block_table", NPY_INT32, 2, places, table);
}

static void remove_folder(void) {
    static const char *const names[] = {
        "q", "k", "v", "cache_seqlens", "block_table", "cu_seqlens_q", "cu_seqlens_k"};
    char path[64];
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        snprintf(path, sizeof path, "%s/%s.npy", folder, names[n]);
        unlink(path);
    }
    ck_assert_int_eq(rmdir(folder), 0);
}

static bool read_folder(const char *more, Inputs *in, Message *message) {
    char input[] = "--input", fp32[] = "--dtype=fp32", words[64];
    char *argv[8] = {"run", input, folder, fp32};
    int argc = 4;
    snprintf(words, sizeof words, "%s", more);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    ck_assert_msg(options_read(argc, argv, &chapter_9, &options, message), "%s", message->text);
    return input_read(folder, false, &options, in, message);
}

// The keys come in order, wherever their pages are.
START_TEST(files_make_a_cache) {
    for (int pages = 0; pages < 2; pages++) {
        Run run;
        bool chosen[1];
        Message message;
        make_folder(pages);
        run = (Run){.chapter = &chapter_9,
                    .options = &options,
                    .device = &fake_gpu,
                    .chosen = chosen,
                    .same = true};
        ck_assert_msg(read_folder("", &run.saved_inputs, &message), "%s", message.text);
        ck_assert_msg(
            problem_make(&options, &chapter_9, &chapter_9.check, built, &run.checked, &message),
            "%s", message.text);
        const Problem *p = &run.checked;
        const float *k = run.saved_inputs.k;
        ck_assert_int_eq(p->batch, 3);
        ck_assert_int_eq(p->seqlen_k, 5);
        ck_assert_int_eq(p->cache.page_size, pages ? 4 : 0);
        ck_assert_int_eq(cache_rows(p), pages ? 20 : 18);
        ck_assert_int_eq(p->cache.rows, pages ? 8 : 6);
        const int rows[][3] = {{0, 3, 3}, {0, 16 + 3, 4 * 4 + 3}};
        ck_assert_float_eq(k[3 * 64 + 1], (float)(rows[pages][1] * 64 + 1) / 16);
        ck_assert_float_eq(k[4 * 64 + 1], (float)((pages ? 1 * 4 : 4) * 64 + 1) / 16);
        ck_assert_float_eq(k[(2 * 5 + 2) * 64], (float)((pages ? 2 : 12 + 2) * 64) / 16);
        run.timed = run.checked;
        ck_assert(steps_choose(&chapter_9, "naive", false, chosen, &message));
        ck_assert(run_steps(&run, &message));
        ck_assert_msg(run.results[0].ok == 1, "%s", run.results[0].tensors[TENSOR_O].report);
        inputs_free(&run.saved_inputs);
        run_free(&run);
        remove_folder();
    }
}
END_TEST

START_TEST(bad_lengths_are_refused) {
    static const struct {
        bool pages;
        int64_t count;
        int lengths[3];
        const char *words;
    } files[] = {
        {false, 3, {5, 0, 7}, "sequence 2 has 7 keys, and its cache room for 6; lengths beyond"},
        {true, 3, {9, 0, 3}, "sequence 0 has 9 keys, and its cache room for 8"},
        {false, 3, {5, -1, 3}, "sequence 1 has -1 keys"},
        {true, 2, {5, 0}, "2 sequences, and q.npy has 3"},
        {true, 3, {5, 0, 5}, "page -1 of sequence 2 (column 1) is not one of the 5 pages"},
        {true, 3, {5, 1, 3}, "page 99 of sequence 1 (column 0)"},
    };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        Message message = {""};
        Inputs in;
        make_folder(files[f].pages);
        write_npy(folder, "cache_seqlens", NPY_INT32, 1, &files[f].count, files[f].lengths);
        ck_assert(!read_folder("", &in, &message));
        ck_assert_msg(strstr(message.text, files[f].words) != NULL, "%s", message.text);
        ck_assert_ptr_nonnull(strstr(message.text, folder));
        remove_folder();
    }
}
END_TEST

// F47
START_TEST(f47_bad_tables_are_refused) {
    static const struct {
        int64_t shape[2];
        int pages[6];
        const char *words;
    } files[] = {
        {{3, 2}, {4, 5, 0, 0, 0, 0}, "page 5 of sequence 0 (column 1) is not one of the 5 pages"},
        {{3, 2}, {-2, 1, 0, 0, 0, 0}, "page -2 of sequence 0 (column 0)"},
        {{3, 2},
         {4, 1, 0, 0, 1, 0},
         "page 1 belongs to sequence 0 (column 1) and to sequence 2 (column 0)"},
        {{3, 2}, {4, 4, 0, 0, 1, 0}, "page 4 belongs to sequence 0 (column 0) and to sequence 0"},
        {{2, 3}, {4, 1, 0, 0, 1, 0}, "2 sequences, and q.npy has 3"},
        {{3, 1}, {4, 1, 0}, "sequence 0 has 5 keys, and its cache room for 4"},
    };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        Message message = {""};
        Inputs in;
        make_folder(true);
        write_npy(folder, "block_table", NPY_INT32, 2, files[f].shape, files[f].pages);
        ck_assert(!read_folder("", &in, &message));
        ck_assert_msg(strstr(message.text, files[f].words) != NULL, "%s", message.text);
        remove_folder();
    }
}
END_TEST

START_TEST(other_bad_files) {
    static const char *const more[] = {"--append 1", "--page-size 4", "--fp8-cache"};
    static const int64_t shape[] = {3, 2}, four = 4;
    static const float numbers[6];
    static const int starts[] = {0, 1, 2, 3};
    Message message = {""};
    Inputs in;
    char path[64];
    for (int m = 0; m < 3; m++) {
        make_folder(true);
        ck_assert(!read_folder(more[m], &in, &message));
        ck_assert_ptr_nonnull(strstr(message.text, "its cache is as the files have it"));
        remove_folder();
    }
    make_folder(true);
    write_npy(folder, "block_table", NPY_FLOAT32, 2, shape, numbers);
    ck_assert(!read_folder("", &in, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "must hold int32, of shape (batch, pages of"));
    remove_folder();
    make_folder(true);
    snprintf(path, sizeof path, "%s/cache_seqlens.npy", folder);
    unlink(path);
    ck_assert(!read_folder("", &in, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "cache_seqlens.npy"));
    remove_folder();
    make_folder(false);
    write_npy(folder, "cu_seqlens_q", NPY_INT32, 1, &four, starts);
    static const int64_t packed[] = {3, 2, 64};
    static const float q[3 * 2 * 64];
    write_npy(folder, "q", NPY_FLOAT32, 3, packed, q);
    write_npy(folder, "k", NPY_FLOAT32, 3, packed, q);
    write_npy(folder, "v", NPY_FLOAT32, 3, packed, q);
    ck_assert(!read_folder("", &in, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "cu_seqlens or a cache"));
    remove_folder();
}
END_TEST

Suite *suite_cache_files(void);
Suite *suite_cache_files(void) {
    Suite *suite = suite_create("harness: a cache from files");
    TCase *all = tcase_create("files");
    tcase_add_test(all, files_make_a_cache);
    tcase_add_test(all, bad_lengths_are_refused);
    tcase_add_test(all, f47_bad_tables_are_refused);
    tcase_add_test(all, other_bad_files);
    suite_add_tcase(suite, all);
    return suite;
}
