// Chapter 6's steps: right on every kind of problem under every order, and as wrong as their rounding
// and no more; inputs that are odd; what fp8 attention got wrong elsewhere (F53 to F58); and the
// study of errors. Under a minute.
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attend.h"
#include "matrix.h"

static const char *const steps[] = {"per-tensor", "per-block", "hadamard", "two-level"};
enum { STEPS = sizeof steps / sizeof *steps };
static const char all_steps[] = "per-tensor,per-block,hadamard,two-level";

// Cell i: dtype, head_dim, causal. A warpgroup takes 64 rows, a block 128 or 192, a tile of keys 160
// or 224; lengths are shorter and longer than each.
START_TEST(every_length) {
    static const char *const lengths[] = {
        "--seqlen 1",
        "--seqlen-q 200 --seqlen-k 63",
        "--seqlen-q 193 --seqlen-k 449",
    };
    enter_folder();
    check_forward_cell(6, _i, lengths, sizeof lengths / sizeof *lengths);
}
END_TEST

START_TEST(edges) {
    static const char *const problems[] = {
        "--seqlen-q 40 --seqlen-k 0",
        "--seqlen-q 0 --seqlen-k 40",
        "--seqlen-q 300 --seqlen-k 1",
        "--seqlen-q 1 --seqlen-k 400",
        "--seqlen-q 300 --seqlen-k 40 --causal",
        "--seqlen 193 --scale 0 --causal",
        "--seqlen 193 --scale -1 --causal",
        "--seqlen 193 --head-dim 40",
    };
    enter_folder();
    check_problem(6, problems[_i]);
}
END_TEST

START_TEST(real_input) {
    if (_i == 0 && in_full(0, 1)) return; // every_length has no mask, too
    enter_folder();
    char problem[600];
    snprintf(problem, sizeof problem, "--input %s%s",
             in_repository(_i ? "tests/data/minilm_layer5" : "tests/data/minilm_layer0"),
             _i ? " --causal" : "");
    check_problem(6, problem);
}
END_TEST

START_TEST(refused_in_a_sentence) {
    static const struct {
        const char *options, *words;
    } cases[] = {
        {"--dtype fp32", "use --dtype fp16 or bf16"},
        {"--backward", "backward"},
        // Not 192, for which there is no transform.
        {"--head-dim 136", "make chapter-6 HEAD_DIMS=\"64 128 256\""},
    };
    enter_folder();
    for (int c = 0; c < 3; c++) {
        Outcome run = run_chapter(6, "--steps %s --seqlen 10 %s", all_steps, cases[c].options);
        ck_assert_int_eq(run.status, 2);
        ck_assert_msg(strstr(run.err, cases[c].words) != NULL, "%s", run.err);
    }
}
END_TEST

// ---- inputs of the tests' own

static void write_case(const Case *c) {
    mkdir("in", 0700);
    array_write("in/q.npy", &c->q);
    array_write("in/k.npy", &c->k);
    array_write("in/v.npy", &c->v);
}

// Runs a step on the case; it must be ok. The answer from --save.
static Answer run_case(const Case *c, const char *step, const char *options) {
    write_case(c);
    mkdir("saved", 0700);
    Outcome run = run_chapter(6, "--check-only --input in --save saved --steps %s --json - %s",
                              step, options);
    ck_assert_int_eq(every_step_is_ok(&run, outcome_json(&run, 0)), 1);
    return (Answer){.o = array_read("saved/o.npy"), .lse = array_read("saved/lse.npy")};
}

// What is not finite in K or V becomes NaN where a row sees it, and nowhere else.
START_TEST(what_is_not_finite_becomes_nan) {
    static const float values[] = {NAN, INFINITY, -INFINITY};
    enter_folder();
    Case c = case_make(1, 2, 1, 70, 300, 64);
    for (int v = 0; v < 3; v++) {
        c.k.values[at(&c.k, 0, 200, 0, 3)] = values[v];
        c.v.values[at(&c.v, 0, 60, 0, 5)] = values[(v + 1) % 3];
        c.q.values[at(&c.q, 0, 65, 1, 9)] = values[(v + 2) % 3];
        // Row i sees keys i + 190 … i + 230: rows up to 10 see key 200, and none comes near key 60.
        // At last all see all.
        const bool all = v == 2;
        Answer a = run_case(&c, steps[_i], all ? "" : "--window 40,0");
        for (long h = 0; h < 2; h++)
            for (long i = 0; i < 70; i++)
                for (long d = 0; d < 64; d++) {
                    const bool spoiled = all || i <= 10 || (i == 65 && h == 1);
                    ck_assert_int_eq(isnan(a.o.values[at(&a.o, 0, i, h, d)]) != 0, spoiled);
                }
    }
}
END_TEST

START_TEST(value_not_finite_spoils_its_column) {
    enter_folder();
    Case c = case_make(1, 1, 1, 70, 300, 64);
    c.v.values[at(&c.v, 0, 7, 0, 5)] = INFINITY;
    Answer a = run_case(&c, steps[_i], "");
    for (long i = 0; i < 70; i++)
        for (long d = 0; d < 64; d++)
            ck_assert_int_eq(isnan(a.o.values[at(&a.o, 0, i, 0, d)]) != 0, d == 5);
}
END_TEST

// A key that isn't there has a score of 0. Where all others are far below, it would take all the weight:
// one key too many at a tile's end, of rows that see all or all but the first or last, changes O from 1 to 0.
START_TEST(no_key_that_is_not_there) {
    static const long tiles[][2] = {{64, 160}, {128, 224}};
    enter_folder();
    for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++)
        for (long keys = tiles[t][1] - 1; keys <= 2 * tiles[t][1] + 1; keys += tiles[t][1] + 1) {
            Case c = case_make(1, 1, 1, 64, keys, (int)tiles[t][0]);
            fill_with(&c.q, 2);
            fill_with(&c.k, -2);
            fill_with(&c.v, 1);
            static const char *const masks[] = {"", "--causal", "--window 70,0"};
            for (int m = 0; m < 3; m++) {
                Answer a = run_case(&c, steps[_i], masks[m]);
                for (long i = 0; i < a.o.count; i++)
                    ck_assert_msg(fabs(a.o.values[i] - 1) < 0.01, "%ld keys, %s: o is %g", keys,
                                  masks[m], (double)a.o.values[i]);
            }
        }
}
END_TEST

// Zeros give zeros; one huge number, or numbers that fp16 only has as denormals, give finite ones.
START_TEST(odd_but_finite) {
    enter_folder();
    for (int kind = 0; kind < 3; kind++) {
        Case c = case_make(1, 1, 1, 65, 170, 64);
        Array *tensors[] = {&c.q, &c.k, &c.v};
        for (int t = 0; t < 3; t++)
            for (long n = 0; n < tensors[t]->count; n++) {
                float *x = &tensors[t]->values[n];
                if (kind == 0) *x = 0;
                if (kind == 1 && t == 2 && n == 4321) *x = 60000;
                if (kind == 1 && t == 1 && n == 4321) *x = 20000;
                if (kind == 2) *x *= 0x1p-20f;
            }
        Answer a = run_case(&c, steps[_i], "");
        for (long n = 0; n < a.o.count; n++) {
            ck_assert(isfinite(a.o.values[n]));
            if (kind == 0) ck_assert(a.o.values[n] == 0);
        }
        for (long n = 0; n < a.lse.count && kind == 0; n++)
            ck_assert_float_eq_tol(a.lse.values[n], logf(170), 1e-5f);
    }
}
END_TEST

// O is summed in units of the newest block of V: after one that is 10^36 times as large the sum
// overflows, and says so. With one scale for all of V, and the other way round, nothing does.
START_TEST(blocks_of_values_far_apart) {
    enter_folder();
    for (int large_is_first = 0; large_is_first < 2; large_is_first++) {
        Case c = case_make(1, 1, 1, 70, 320, 64); // two blocks of keys; the last is taken first
        c.q.half = c.k.half = c.v.half = false;   // the files': fp32 has what bf16 has
        float *large = c.v.values + (large_is_first ? c.v.count / 2 : 0);
        for (long n = 0; n < c.v.count / 2; n++) large[n] = 1e36f * (1 + fabsf(large[n]));
        Answer a = run_case(&c, steps[_i], "--dtype bf16");
        for (long n = 0; n < a.o.count; n++)
            ck_assert_int_eq(isfinite(a.o.values[n]) != 0, _i == 0 || !large_is_first);
    }
}
END_TEST

// ---- what went wrong elsewhere

// F53: weights beyond e4m3's 448 are cut, and a denominator that sums others does not know. Values
// are 1, so O is too, whatever the weights are.
START_TEST(f53_weights_sum_to_one) {
    static const int lengths[] = {127, 128, 129, 130, 255, 256, 257, 258};
    enter_folder();
    for (int l = 0; l < 8; l++) {
        Case c = case_make(1, 1, 1, 40, lengths[l], 64);
        fill_with(&c.v, 1);
        Answer a = run_case(&c, steps[_i], ""); // scores of deviation 1.3
        for (long n = 0; n < a.o.count; n++) ck_assert_float_eq_tol(a.o.values[n], 1, 0.01f);
    }
}
END_TEST

// F54: weights below e4m3's 2^-9 vanish, and the denominator counts them. One score of 4.5 above
// thousands that are equal: their weights are 1/90 of the largest, and together nearly all. Summed
// in two levels: 13 bits are F55's.
START_TEST(f54_small_weights_are_not_lost) {
    enter_folder();
    Case c = case_make(1, 1, 1, 1, 8192, 64);
    fill_with(&c.q, 1);
    fill_with(&c.k, 0);
    fill_with(&c.v, 1);
    for (long d = 0; d < 64; d++) c.k.values[at(&c.k, 0, 8000, 0, d)] = 4.5f / 8;
    Answer a = run_case(&c, "two-level", "");
    for (long d = 0; d < 64; d++) ck_assert_float_eq_tol(a.o.values[d], 1, 0.01f);
}
END_TEST

// F55: sums of 13 bits over many keys. Equal weights, values 1 or of alternating sign with a mean of
// 1/4: two levels hold, one level loses as much as the rounding model says (every step is ok).
START_TEST(f55_long_sums) {
    enter_folder();
    Case c = case_make(1, 1, 1, 1, 32768, 64);
    fill_with(&c.q, 0);
    for (long j = 0; j < 32768; j++)
        for (long d = 0; d < 64; d++)
            c.v.values[at(&c.v, 0, j, 0, d)] = d % 2 ? 1 : j % 8 < 5 ? 1 : -1;
    for (int s = 2; s < STEPS; s++) {
        Answer a = run_case(&c, steps[s], "");
        for (long d = 0; d < 64; d++) {
            const float o = a.o.values[d], wanted = d % 2 ? 1 : 0.25f;
            if (s == 3)
                ck_assert_float_eq_tol(o, wanted, 0.01f);
            else if (d % 2)
                ck_assert_msg(o < 0.5f, "%g: nothing was lost", o);
        }
    }
}
END_TEST

// F56: scales must reach the result, each head its own.
START_TEST(f56_each_head_has_its_scales) {
    enter_folder();
    Case c = case_make(2, 4, 2, 70, 200, 64);
    for (long b = 0; b < 2; b++)
        for (long h = 0; h < 4; h++)
            for (long i = 0; i < 200; i++)
                for (long d = 0; d < 64; d++) {
                    if (i < 70) c.q.values[at(&c.q, b, i, h, d)] *= 0.25f * (float)(1 + h + 4 * b);
                    if (h >= 2) continue;
                    c.k.values[at(&c.k, b, i, h, d)] *= h ? 0.5f : 2;
                    c.v.values[at(&c.v, b, i, h, d)] *= (float)(1 + 100 * h + 10 * b);
                }
    run_case(&c, steps[_i], "");
}
END_TEST

// F57: V is transposed in the kernel, P in registers. Row i's weights are 1 for key (7 i) mod 300 and
// 0 for all others, and every row of V is another: O must be that row, exactly. (Keys are codes, rows
// of a Hadamard matrix; V's numbers are e4m3 numbers with a scale of a power of two.)
START_TEST(f57_one_hot_weights_return_a_row) {
    enter_folder();
    for (int wide = 0; wide < 2; wide++) {
        const int head_dim = wide ? 128 : 64;
        Case c = case_make(1, 1, 1, 130, 300, head_dim);
        for (long j = 0; j < 300; j++)
            for (long d = 0; d < head_dim; d++) {
                const unsigned bits = (unsigned)(j * 2654435761u ^ d * 40503u * (unsigned)(j + 3));
                c.k.values[at(&c.k, 0, j, 0, d)] = (bits * 2246822519u >> 17 & 1) ? 1 : -1;
                // ±(8 … 14) / 8 times 1, 2, 4 or 8; the largest of each block is 14.
                const float value =
                    (float)(8 + (bits >> 8) % 7) / 8 * (float)(1 << (bits >> 5) % 4);
                c.v.values[at(&c.v, 0, j, 0, d)] = d == 0 ? 14 : bits >> 12 & 1 ? value : -value;
            }
        for (long i = 0; i < 130; i++)
            for (long d = 0; d < head_dim; d++)
                c.q.values[at(&c.q, 0, i, 0, d)] = c.k.values[at(&c.k, 0, 7 * i % 300, 0, d)];
        Answer a = run_case(&c, steps[_i], "--scale 4");
        for (long i = 0; i < 130; i++)
            for (long d = 0; d < head_dim; d++)
                ck_assert_float_eq(a.o.values[at(&a.o, 0, i, 0, d)],
                                   c.v.values[at(&c.v, 0, 7 * i % 300, 0, d)]);
    }
}
END_TEST

// ---- the study of errors

// The CPU's rounding model is the kernel's: their errors agree within 1%, on inputs with outliers
// over several tiles of keys. And there the transform is worth its name.
START_TEST(the_model_is_the_kernel) {
    const char *build = path_of("TEST_BUILD");
    char command[4500];
    enter_folder();
    mkdir("in", 0700);
    snprintf(command, sizeof command, "%.4000s/../fp8_error inputs in 3 64 2048 2 128 64", build);
    ck_assert_int_eq(system(command), 0);
    Outcome run = run_chapter(6, "--check-only --input in --json - --steps %s", all_steps);
    const Json *json = outcome_json(&run, 0);
    ck_assert_int_eq(every_step_is_ok(&run, json), STEPS);
    double errors[STEPS];
    for (int s = 0; s < STEPS; s++) {
        const Json *o = json_at(step_named(json, steps[s]), "errors.o");
        errors[s] = json_number(o, "rms");
        ck_assert_double_eq_tol(errors[s] / json_number(o, "model_rms"), 1, 0.01);
    }
    ck_assert_double_gt(errors[0], 1.3 * errors[2]);
}
END_TEST

// F58: what is called fp8 must be multiplied as fp8: the machine code's wgmma are QGMMA of e4m3, and
// there is no other matrix product. Skipped where there is no disassembler.
START_TEST(f58_machine_code_multiplies_e4m3) {
    static const char *const kernels[] = {"fp8_attention", "two_level_attention"};
    const char *folder = getenv("TEST_DISASSEMBLER"), *build = path_of("TEST_BUILD");
    if (folder == NULL || *folder == 0) return;
    folder = path_of("TEST_DISASSEMBLER");
    enter_folder();
    char command[9000];
    snprintf(
        command, sizeof command,
        "PATH='%.4000s':$PATH cuobjdump -arch sm_90a -sass %.4000s/06_fp8_hadamard/%s.o > sass",
        folder, build, kernels[_i]);
    ck_assert_int_eq(system(command), 0);
    int products = 0;
    for (const char *at = file_text("sass"); (at = strstr(at, "GMMA.")) != NULL; at += 5) {
        ck_assert_msg(at[-1] == 'Q' && strstr(at, ".E4M3.E4M3") - at < 40, "%.60s", at - 1);
        products++;
    }
    ck_assert_int_gt(products, 0);
    ck_assert_ptr_null(strstr(file_text("sass"), "HMMA"));
}
END_TEST

// ---- speed

// The pass that transforms and quantises Q, K and V moves bytes at 80% of a copy's speed at least.
START_TEST(quantising_is_as_fast_as_a_copy) {
    const char *programs = path_of("TEST_PROGRAMS"), *launcher = path_of("TEST_LAUNCHER");
    char command[9000];
    enter_folder();
    snprintf(command, sizeof command,
             "%.4000s --gpu h100 --check none --sample 8 %.4000s/quantise speed 4096 %d > speed",
             launcher, programs, 64 << _i);
    ck_assert_int_eq(system(command), 0);
    const char *text = file_text("speed"), *share = strstr(text, "TB/s = ");
    ck_assert_msg(share != NULL, "%s", text);
    ck_assert_msg(strtod(share + strlen("TB/s = "), NULL) >= 0.8, "%s", text);
}
END_TEST

Suite *suite_fp8(void);
Suite *suite_fp8(void) {
    Suite *suite = suite_create("chapter 6's steps in fp8");
    TCase *problems = tcase_create("problems"), *inputs = tcase_create("inputs");
    TCase *elsewhere = tcase_create("elsewhere"), *study = tcase_create("study");
    TCase *const all[] = {problems, inputs, elsewhere, study};
    tcase_add_loop_test(problems, every_length, 0, FORWARD_CELLS);
    tcase_add_loop_test(problems, edges, 0, 8);
    tcase_add_loop_test(problems, real_input, 0, 2);
    tcase_add_test(problems, refused_in_a_sentence);
    tcase_add_loop_test(inputs, what_is_not_finite_becomes_nan, 0, STEPS);
    tcase_add_loop_test(inputs, value_not_finite_spoils_its_column, 0, STEPS);
    tcase_add_loop_test(inputs, no_key_that_is_not_there, 0, STEPS);
    tcase_add_loop_test(inputs, odd_but_finite, 0, STEPS);
    tcase_add_loop_test(inputs, blocks_of_values_far_apart, 0, STEPS);
    tcase_add_loop_test(elsewhere, f53_weights_sum_to_one, 0, STEPS);
    tcase_add_test(elsewhere, f54_small_weights_are_not_lost);
    tcase_add_test(elsewhere, f55_long_sums);
    tcase_add_loop_test(elsewhere, f56_each_head_has_its_scales, 0, STEPS);
    tcase_add_loop_test(elsewhere, f57_one_hot_weights_return_a_row, 0, STEPS);
    tcase_add_test(study, the_model_is_the_kernel);
    tcase_add_loop_test(study, f58_machine_code_multiplies_e4m3, 0, 2);
    tcase_add_loop_test(study, quantising_is_as_fast_as_a_copy, 0, 3);
    for (int t = 0; t < 4; t++) {
        tcase_set_timeout(all[t], 120);
        suite_add_tcase(suite, all[t]);
    }
    return suite;
}
