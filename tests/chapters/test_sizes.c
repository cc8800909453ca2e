// Edge cases that other implementations met, on all of the chapters' steps: sizes, what lies beyond
// the ends, launch limits. Numbers are those of the list of edge cases. About twenty seconds in
// all.
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "attend.h"

START_TEST(f14_lengths_that_no_tile_divides) {
    static const long lengths[][2] = {{1, 1},   {63, 63}, {65, 65},   {127, 127}, {129, 129},
                                      {1, 129}, {129, 1}, {65, 4095}, {4095, 65}};
    const long seqlen_q = lengths[_i][0], seqlen_k = lengths[_i][1];
    const long most_rows = in_full(4095, 1023);
    enter_folder();
    Case c = case_make(1, 1, 1, seqlen_q < most_rows ? seqlen_q : most_rows, seqlen_k, 64);
    all_steps_give_attention(&c, 4e-3);
}
END_TEST

// Every head_dim goes into the smallest built one that holds it; the scale is the true one's.
START_TEST(f85_head_dim_is_padded_and_the_scale_is_the_true_one) {
    static const int head_dims[] = {8, 40, 56, 72, 96, 120};
    enter_folder();
    Case c = case_make(1, 2, 1, 33, 70, head_dims[_i]);
    for (int s = 0; s < own_step_count; s++) {
        c.dtype = own_steps[s].tensor_cores ? "fp16" : "fp32";
        Answer a = answer_of(&c, own_steps[s]);
        answer_is_attention(&c, &a, own_steps[s].tensor_cores ? 4e-3 : 1e-5);
        ck_assert(json_number(a.json, "problem.head_dim") == head_dims[_i]);
        ck_assert(json_number(a.json, "problem.built_head_dim") ==
                  (head_dims[_i] <= 64 ? 64 : 128));
        ck_assert(fabs(json_number(a.json, "problem.scale") * sqrt(head_dims[_i]) - 1) < 1e-6);
        ck_assert(json_number(a.json, "steps.0.errors.o.padding") == 0);
    }
}
END_TEST

START_TEST(f85_head_dims_that_are_no_multiple_of_8_are_refused) {
    enter_folder();
    static const int head_dims[] = {1, 63, 65, 257, 264};
    for (size_t i = 0; i < sizeof head_dims / sizeof *head_dims; i++) {
        Outcome o = run_chapter(1, "--head-dim %d", head_dims[i]);
        ck_assert_int_eq(o.status, 2);
        ck_assert_msg(strstr(o.err, "multiple of 8 up to 256") != NULL, "%s", o.err);
    }
}
END_TEST

// A batch full of NaN before or after leaves the other's outputs as they are, bit for bit: no
// element beyond the ends takes part, not even multiplied by 0.
START_TEST(f15_nan_beyond_the_ends_changes_nothing) {
    if (_i % 3 != 0 && in_full(0, 1)) return;
    enter_folder();
    const int good = _i % 2;
    Case one = case_make(1, 2, 1, 65, 97, 64), two = case_make(2, 2, 1, 65, 97, 64);
    one.causal = two.causal = _i / 2;
    Array *from[] = {&one.q, &one.k, &one.v}, *to[] = {&two.q, &two.k, &two.v};
    for (int t = 0; t < 3; t++) {
        fill_with(to[t], NAN);
        memcpy(to[t]->values + good * from[t]->count, from[t]->values,
               (size_t)from[t]->count * sizeof(float));
    }
    for (int s = 0; s < own_step_count; s++) {
        Answer alone = answer_of(&one, own_steps[s]), both = answer_of(&two, own_steps[s]);
        Array o = alone.o, lse = alone.lse;
        o.values = both.o.values + good * o.count;
        lse.values = both.lse.values + good * lse.count;
        arrays_are_equal(&alone.o, &o);
        arrays_are_equal(&alone.lse, &lse);
        for (long i = 0; i < alone.o.count; i++) ck_assert(isfinite(alone.o.values[i]));
        // The NaN batch itself says so.
        ck_assert(isnan(both.o.values[(1 - good) * o.count]));
    }
}
END_TEST

// The same for the gradients.
START_TEST(f15_nan_in_one_batch_leaves_the_others_gradients) {
    enter_folder();
    const char *const names[] = {"q", "k", "v", "dout"}, *const gradients[] = {"dq", "dk", "dv"};
    Array alone[3];
    for (int batch = 1; batch <= 2; batch++) {
        ck_assert_int_eq(system("rm -rf in out; mkdir in"), 0);
        for (int t = 0; t < 4; t++) {
            char path[32];
            Array one = array_make(1, 70, 2, 64, true), both = array_make(batch, 70, 2, 64, true);
            fill(&one, (unsigned)t);
            fill_with(&both, NAN);
            memcpy(both.values, one.values, (size_t)one.count * sizeof(float));
            snprintf(path, sizeof path, "in/%s.npy", names[t]);
            array_write(path, &both);
        }
        Outcome o = run_chapter(1, "--input in --save out --backward --check-only --json -");
        ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 2);
        for (int g = 0; g < 3; g++) {
            char path[32];
            snprintf(path, sizeof path, "out/%s.npy", gradients[g]);
            Array array = array_read(path);
            if (batch == 1) alone[g] = array;
            if (batch == 2) ck_assert(isnan(array.values[alone[g].count]));
            array.shape[0] = 1;
            array.count = alone[g].count;
            arrays_are_equal(&alone[g], &array);
        }
    }
}
END_TEST

// Without softgpu's checks, guard bytes of NaN stand around every buffer: nobody reads them into a
// result, nobody writes them.
START_TEST(f15_nan_guards_around_the_buffers_change_nothing) {
    enter_folder();
    Case c = case_make(1, 2, 2, 65, 97, 64);
    c.causal = _i;
    for (int s = 0; s < own_step_count; s++) {
        c.options = NULL;
        Answer watched = answer_of(&c, own_steps[s]);
        c.options = "--check none";
        Answer guarded = answer_of(&c, own_steps[s]);
        arrays_are_equal(&watched.o, &guarded.o);
        arrays_are_equal(&watched.lse, &guarded.lse);
    }
}
END_TEST

START_TEST(f19_one_key_has_no_gradient_but_for_v) {
    enter_folder();
    Case c = case_make(1, 2, 2, 1, 1, 64);
    Array dout = array_make(1, 1, 2, 64, true);
    fill(&dout, 4);
    for (long i = 0; i < c.q.count; i++) c.q.values[i] *= 3, c.k.values[i] *= 3;
    ck_assert_int_eq(system("mkdir in"), 0);
    array_write("in/q.npy", &c.q);
    array_write("in/k.npy", &c.k);
    array_write("in/v.npy", &c.v);
    array_write("in/dout.npy", &dout);
    Outcome o = run_chapter(1, "--input in --save out --backward --check-only --json -%s",
                            _i ? " --causal" : "");
    ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 2);
    Array dq = array_read("out/dq.npy"), dk = array_read("out/dk.npy"),
          dv = array_read("out/dv.npy");
    arrays_are_equal(&dv, &dout);
    for (long i = 0; i < dq.count; i++) ck_assert(dq.values[i] == 0 && dk.values[i] == 0);
}
END_TEST

START_TEST(f25_no_keys_give_zero_and_minus_infinity) {
    enter_folder();
    Case c = case_make(1, 2, 2, 70, 0, 64);
    c.causal = _i;
    for (int s = 0; s < own_step_count; s++) {
        Answer a = answer_of(&c, own_steps[s]);
        for (long i = 0; i < a.o.count; i++) ck_assert(a.o.values[i] == 0);
        for (long i = 0; i < a.lse.count; i++) ck_assert(a.lse.values[i] == -INFINITY);
    }
    Outcome o = run_chapter(1, "--backward --seqlen-q 70 --seqlen-k 0 --check-only --json -%s",
                            _i ? " --causal" : "");
    ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 2);
}
END_TEST

// No queries: nothing to compute, nothing to launch, and all is well, timed too.
START_TEST(f29_no_queries_are_fine) {
    enter_folder();
    Case c = case_make(2, 2, 2, 0, 70, 64);
    c.causal = _i;
    for (int s = 0; s < own_step_count; s++) {
        Answer a = answer_of(&c, own_steps[s]);
        ck_assert_int_eq(a.o.count, 0);
        ck_assert_int_eq(a.lse.count, 0);
        if (s > 0 && own_steps[s].chapter == own_steps[s - 1].chapter) continue; // timed already
        Outcome o = run_chapter(own_steps[s].chapter, "--seqlen-q 0 --seqlen-k 70 --json -%s",
                                _i ? " --causal" : "");
        every_step_is_ok(&o, outcome_json(&o, 0));
    }
    Outcome o = run_chapter(1, "--backward --seqlen-q 0 --seqlen-k 70 --check-only --json -");
    ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 2);
}
END_TEST

// One more batch than gridDim.y and .z can count. With one key each, o is v and lse the score.
static void batch_65536(StepName step) {
    const long batch = 65536;
    enter_folder();
    Case c = {.q = array_make(batch, 1, 1, 8, true),
              .k = array_make(batch, 1, 1, 8, true),
              .v = array_make(batch, 1, 1, 8, true),
              .left = -1,
              .right = -1,
              .scale = 1.0 / 1024, // scores up to 64: beyond, an fp32 score's ulp tells in exp
              .dtype = step.tensor_cores ? "fp16" : "fp32"};
    for (long b = 0; b < batch; b++) {
        c.q.values[8 * b] = (float)(b % 256);
        c.k.values[8 * b] = (float)(b / 256);
        c.v.values[8 * b + 3] = (float)(b % 2048);
    }
    Answer a = answer_of(&c, step);
    for (long b = 0; b < batch; b++) {
        ck_assert_msg(a.o.values[8 * b + 3] == (float)(b % 2048), "batch %ld: o %g", b,
                      (double)a.o.values[8 * b + 3]);
        double score = (double)(b % 256) * (double)(b / 256) / 1024;
        ck_assert_msg(fabs((double)a.lse.values[b] - score) < 1e-4, "batch %ld: lse %g", b,
                      (double)a.lse.values[b]);
    }
}

START_TEST(f37_batch_65536) {
    batch_65536(own_steps[0]);
}
END_TEST

// The tiled steps spend a whole tile on each row, a minute in all: here a sample of the SMs, which
// shows that the launch is taken; the outputs are f37_every_batch's, in `make test-long`.
START_TEST(f37_batch_65536_is_launched) {
    // Not those with a block for each SM, whatever the batch: no samples.
    static const int chapters[] = {1, 2, 3, 5, 8, 9};
    const int chapter = chapters[_i];
    enter_folder();
    char names[400] = "";
    for (int s = 0; s < own_step_count; s++)
        if (own_steps[s].chapter == chapter && strcmp(own_steps[s].name, "persistent-lpt") != 0)
            sprintf(names + strlen(names), "%s%s", *names ? "," : "", own_steps[s].name);
    Outcome o = run_chapter(chapter,
                            "--json - --batch 65536 --seqlen 1 --heads 1 --head-dim 64 --sample 1 "
                            "--steps %s",
                            names);
    Json *json = outcome_json(&o, 0);
    for (int s = 0; s < own_step_count; s++) {
        if (own_steps[s].chapter != chapter || strcmp(own_steps[s].name, "persistent-lpt") == 0)
            continue;
        const Json *step = step_named(json, own_steps[s].name);
        ck_assert(json_is_null(step, "device_error") && json_is_null(step, "refused"));
        ck_assert(json_number(step, "time_us") > 0);
    }
}
END_TEST

START_TEST(f37_every_batch) {
    const char *chapter = getenv("TEST_CHAPTER");
    if (chapter == NULL || own_steps[_i].chapter == atoi(chapter)) batch_65536(own_steps[_i]);
}
END_TEST

// The chapters' kernels ask for more shared memory than comes by itself, in every variant. That
// softgpu refuses a kernel which doesn't ask is test_programs' shared_memory_limit.
START_TEST(f39_large_shared_memory_is_asked_for) {
    enter_folder();
    for (int s = 0; s < own_step_count; s++)
        for (int head_dim = 64; head_dim <= 128; head_dim += 64) {
            Outcome o = run_chapter(own_steps[s].chapter,
                                    "--check-only --json - --steps %s --seqlen 130 --heads 1 "
                                    "--head-dim %d --gpu %s",
                                    own_steps[s].name, head_dim,
                                    own_steps[s].chapter == 8           ? "b200"
                                    : s % 2 && own_steps[s].chapter < 5 ? "a100"
                                                                        : "h100");
            ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), 1);
        }
}
END_TEST

// A kernel with 1 KB of its own and 48,840 bytes asked at launch needs the attribute; the program
// checks that it fails without and runs with it.
START_TEST(f39_dynamic_and_static_shared_memory_count_together) {
    const char *launcher = path_of("TEST_LAUNCHER"), *programs = path_of("TEST_PROGRAMS");
    char command[9000];
    enter_folder();
    snprintf(command, sizeof command, "%s %s/shared_memory_limit >said 2>&1", launcher, programs);
    int status = system(command);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d\n%s", status,
                  file_text("said"));
    ck_assert_ptr_nonnull(strstr(file_text("said"), "rotate"));
}
END_TEST

Suite *suite_sizes(void) {
    Suite *suite = suite_create("chapters: edge cases of sizes");
    TCase *tests = tcase_create("sizes");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, f14_lengths_that_no_tile_divides, 0, 9);
    tcase_add_loop_test(tests, f85_head_dim_is_padded_and_the_scale_is_the_true_one, 0, 6);
    tcase_add_test(tests, f85_head_dims_that_are_no_multiple_of_8_are_refused);
    tcase_add_loop_test(tests, f15_nan_beyond_the_ends_changes_nothing, 0, 4);
    tcase_add_test(tests, f15_nan_in_one_batch_leaves_the_others_gradients);
    tcase_add_loop_test(tests, f15_nan_guards_around_the_buffers_change_nothing, 0, 2);
    tcase_add_loop_test(tests, f19_one_key_has_no_gradient_but_for_v, 0, 2);
    tcase_add_loop_test(tests, f25_no_keys_give_zero_and_minus_infinity, 0, 2);
    tcase_add_loop_test(tests, f29_no_queries_are_fine, 0, 2);
    tcase_add_test(tests, f37_batch_65536);
    tcase_add_loop_test(tests, f37_batch_65536_is_launched, 0, 6);
    tcase_add_test(tests, f39_large_shared_memory_is_asked_for);
    tcase_add_test(tests, f39_dynamic_and_static_shared_memory_count_together);
    suite_add_tcase(suite, tests);
    return suite;
}

Suite *suite_long_sizes(void) {
    Suite *suite = suite_create("chapters: edge cases of sizes, in full");
    TCase *tests = tcase_create("long sizes");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, f37_every_batch, 0, own_step_count);
    suite_add_tcase(suite, tests);
    return suite;
}
