// Chapter 4's steps: gradients over dtypes, head_dims, masks, lengths, head groups and schedules;
// the deterministic order bit for bit; the edge cases that broke other implementations; and what the
// chapter claims, counted. About a minute in all on two cores.
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

static const char cuda_cores[] = "standard,recompute";
static const char all_steps[] = "standard,standard-tensor-cores,recompute,recompute-tensor-cores";
static const char recomputing[] = "recompute,recompute-tensor-cores";

// Runs the problem: every step named must be right in both passes.
static Json *right(const char *steps, const char *problem) {
    Outcome o = run_chapter(4, "--check-only --json - --steps %s %s", steps, problem);
    Json *json = outcome_json(&o, 0);
    int expected = 2;
    for (const char *c = steps; *c != 0; c++) expected += *c == ',' ? 2 : 0;
    ck_assert_int_eq(every_step_is_ok(&o, json), expected);
    return json;
}

// How many of the shared lists are taken.
enum { LENGTHS = 7, EXTRAS = 7 };

// Cell i: dtype, head_dim, causal or not. The extras move against the lengths from cell to cell.
START_TEST(every_length) {
    static const char *const dtypes[] = {"fp16", "bf16", "fp32"};
    char problem[300];
    enter_folder();
    for (int l = 0; l < LENGTHS; l++) {
        snprintf(problem, sizeof problem, "--batch %d --dtype %s --head-dim %d %s %s%s %s",
                 1 + l % 2, dtypes[_i % 3], _i / 3 % 2 == 0 ? 64 : 128, gradient_lengths[l],
                 gradient_extras[(l + _i) % EXTRAS], _i / 6 ? " --causal" : "",
                 matrix_orders[(l + _i) % 3]);
        right(_i % 3 == 2 ? cuda_cores : all_steps, problem);
    }
}
END_TEST

// F60: the fixed order gives the same bits in every schedule (30 of them for the first problem), also where tiles of keys have to be
// skipped (F61).
static const char *const fixed_orders[] = {
    "--seqlen 200 --heads 2 --head-dim 64",
    "--seqlen-q 150 --seqlen-k 300 --heads 4 --kv-heads 2 --head-dim 64 --causal",
    "--seqlen 300 --heads 2 --kv-heads 1 --head-dim 128 --window 20,10",
};

START_TEST(deterministic_is_bit_identical) {
    static const char *const steps[] = {"recompute", "recompute-tensor-cores"};
    const int runs = _i < 2 ? in_full(30, 9) : 6;
    char problem[300];
    Array first[3];
    enter_folder();
    for (int r = 0; r < runs; r++) {
        snprintf(problem, sizeof problem,
                 "--deterministic --save out --batch 1 %s --schedule %d --async %s",
                 fixed_orders[_i / 2], r,
                 r % 3 == 0   ? "early"
                 : r % 3 == 1 ? "late"
                              : "random");
        right(steps[_i % 2], problem);
        gradients_are_alike(first, r == 0);
    }
}
END_TEST

// F10: (-1, 0) is causal, forward and backward.
START_TEST(f10_window_is_causal) {
    enter_folder();
    right(all_steps, "--batch 1 --heads 2 --seqlen-q 70 --seqlen-k 150 --window -1,0 --save a");
    right(all_steps, "--batch 1 --heads 2 --seqlen-q 70 --seqlen-k 150 --causal --save b");
    Array a = array_read("a/dk.npy"), b = array_read("b/dk.npy");
    arrays_are_equal(&a, &b);
}
END_TEST

// F12: rows that pad the last tile have no part; neither do rows that see no key (lse = -inf).
START_TEST(f12_padded_rows) {
    enter_folder();
    right(all_steps, "--batch 2 --heads 2 --seqlen 33");
    right(all_steps, "--batch 1 --heads 2 --seqlen-q 140 --seqlen-k 20 --causal");
    right(all_steps, "--batch 1 --heads 2 --seqlen-q 140 --seqlen-k 20 --window 3,2");
}
END_TEST

// Writes inputs of the shape (1, queries or keys, 1, head_dim) times `times`.
static void write_inputs(long queries, long keys, float times) {
    static const char *const names[] = {"in/q.npy", "in/k.npy", "in/v.npy", "in/dout.npy"};
    Outcome o = run_program("chapter-4", "--list");
    ck_assert_int_eq(o.status, 0);
    ck_assert_int_eq(system("mkdir -p in"), 0);
    unsigned state = 7;
    for (int t = 0; t < 4; t++) {
        Array a = array_make(1, t == 0 || t == 3 ? queries : keys, 1, 64, true);
        for (long i = 0; i < a.count; i++) {
            state = state * 1664525u + 1013904223u;
            a.values[i] = ((float)(state >> 8) / (1 << 24) * 4 - 2) * (t == 3 ? 1 : times);
        }
        array_write(names[t], &a);
    }
}

// F19: one query, one key: softmax of one key is 1, so dQ = dK = 0 and dV = dO. In fp32 sums of the
// same products in the same order, dQ and dK are exactly 0.
START_TEST(f19_one_key) {
    enter_folder();
    write_inputs(1, 1, 3);
    right(recomputing, "--input in --save out");
    Array dv = array_read("out/dv.npy"), dout = array_read("in/dout.npy");
    for (long i = 0; i < dv.count; i++) ck_assert(dv.values[i] == (float)(_Float16)dout.values[i]);
    right("recompute", "--input in --dtype fp32 --save exact");
    Array dq = array_read("exact/dq.npy"), dk = array_read("exact/dk.npy");
    for (long i = 0; i < dq.count; i++) ck_assert(dq.values[i] == 0 && dk.values[i] == 0);
}
END_TEST

// F20, F21: large inputs: P = e^(S - lse) never exceeds 1, and masked positions are 0 before and
// after the exponential.
START_TEST(f20_large_inputs) {
    enter_folder();
    write_inputs(130, 130, 3);
    right(recomputing, "--input in --causal");
    write_inputs(130, 60, 3);
    right(recomputing, "--input in --causal");
    right(recomputing, "--input in --window 4,0");
}
END_TEST

// Q, K and V of a real transformer, layer 0 with its outlier channels; dO is ours.
START_TEST(real_input) {
    static const char *const folders[] = {"tests/data/minilm_layer0", "tests/data/minilm_layer5"};
    if (_i % 3 != 0 && in_full(0, 1)) return; // both folders, both masks and dtypes
    char command[600], problem[100];
    enter_folder();
    snprintf(command, sizeof command, "mkdir in && cp %s/*.npy in", in_repository(folders[_i / 2]));
    ck_assert_int_eq(system(command), 0);
    Array q = array_read("in/q.npy");
    Array dout = array_make(q.shape[0], q.shape[1], q.shape[2], q.shape[3], false);
    for (long i = 0; i < dout.count; i++) dout.values[i] = (float)(i * 7919 % 2003 - 1001) / 500;
    array_write("in/dout.npy", &dout);
    snprintf(problem, sizeof problem, "--input in%s", _i % 2 ? " --causal --dtype bf16" : "");
    right(all_steps, problem);
}
END_TEST

// F62: what lies in the workspace before must not matter: unwritten (softgpu's init check says so when
// it is read) or, with that check off, full of 0xff. The turns must be zeroed, or blocks wait forever.
START_TEST(f62_poisoned_workspace) {
    char problem[200];
    static const char *const checks[] = {"all", "none"}, *const tensors[] = {"dq", "dk", "dv"};
    enter_folder();
    for (int batch = 1; batch <= 2; batch++)
        for (int c = 0; c < 2; c++) {
            snprintf(problem, sizeof problem,
                     "--deterministic --batch %d --heads 2 --seqlen-q 150 --seqlen-k 200 --causal "
                     "--check %s --save %s",
                     batch, checks[c], checks[c]);
            right(recomputing, problem);
            snprintf(problem, sizeof problem, "--batch %d --heads 2 --seqlen 70 --check %s", batch,
                     checks[c]);
            right(all_steps, problem);
            for (int t = 0; t < 3 && c == 1; t++) {
                char path[64];
                snprintf(path, sizeof path, "all/%s.npy", tensors[t]);
                Array watched = array_read(path);
                snprintf(path, sizeof path, "none/%s.npy", tensors[t]);
                Array poisoned = array_read(path);
                arrays_are_equal(&watched, &poisoned);
            }
        }
}
END_TEST

// F63: races that only delays show. Every schedule but 0 draws which warp goes on, and for how long, at
// random; a slow warp then still reads what a fast one writes. Two tiles of rows and of keys, so that
// every buffer is used again.
START_TEST(f63_delays) {
    char problem[400];
    int used =
        snprintf(problem, sizeof problem,
                 "--batch 1 --heads 2 --kv-heads 1 --seqlen-q 130 --seqlen-k 150 --head-dim %d "
                 "--causal%s --async random --schedule 1",
                 _i < 2 ? 64 : 128, _i % 2 ? " --deterministic" : "");
    for (int s = 2; s <= in_full(24, 8); s++)
        used += snprintf(problem + used, sizeof problem - (size_t)used, ",%d", s + 100 * _i);
    enter_folder();
    right(all_steps, problem);
}
END_TEST

// F67: the loss depends on lse too. With dO = 0 and dlse = w it is Σ w_i lse_i, whose gradients are
// those of a log-sum-exp: dV = 0, dQ_i = scale w_i Σ_j P_ij k_j, dK_j = scale Σ_i w_i P_ij q_i.
START_TEST(f67_gradient_through_lse) {
    enum { QUERIES = 70, KEYS = 100, COLUMNS = 64 };
    static double p[QUERIES][KEYS];
    enter_folder();
    write_inputs(QUERIES, KEYS, 1);
    Array dlse = array_make(1, 1, QUERIES, 1, false);
    dlse.dimensions = 3;
    for (long i = 0; i < QUERIES; i++) dlse.values[i] = (float)(i * 5 % 17 - 8) / 4;
    array_write("in/dlse.npy", &dlse);
    right("naive", "--input in --causal --softcap 5"); // dO and dlse, against the float64 reference
    right(all_steps, "--input in --causal --softcap 5");

    Array dout = array_read("in/dout.npy"), q = array_read("in/q.npy"), k = array_read("in/k.npy");
    for (long i = 0; i < dout.count; i++) dout.values[i] = 0;
    array_write("in/dout.npy", &dout);
    for (int i = 0; i < QUERIES; i++) {
        double sum = 0;
        for (int j = 0; j < KEYS; j++) {
            double dot = 0;
            for (int c = 0; c < COLUMNS; c++)
                dot += (double)q.values[i * COLUMNS + c] * (double)k.values[j * COLUMNS + c];
            sum += p[i][j] = exp(dot / 8);
        }
        for (int j = 0; j < KEYS; j++) p[i][j] *= (double)dlse.values[i] / sum;
    }
    const char *names[] = {"naive", "standard", "standard-tensor-cores", "recompute",
                           "recompute-tensor-cores"};
    for (int s = 0; s < 5; s++) {
        right(names[s], "--input in --save out");
        Array dq = array_read("out/dq.npy"), dk = array_read("out/dk.npy");
        Array dv = array_read("out/dv.npy");
        for (int c = 0; c < COLUMNS; c++) {
            for (int i = 0; i < QUERIES; i++) {
                double expected = 0;
                for (int j = 0; j < KEYS; j++)
                    expected += p[i][j] * (double)k.values[j * COLUMNS + c] / 8;
                ck_assert_double_eq_tol((double)dq.values[i * COLUMNS + c], expected, 1e-3);
            }
            for (int j = 0; j < KEYS; j++) {
                double expected = 0;
                for (int i = 0; i < QUERIES; i++)
                    expected += p[i][j] * (double)q.values[i * COLUMNS + c] / 8;
                ck_assert_double_eq_tol((double)dk.values[j * COLUMNS + c], expected, 1e-3);
                ck_assert_double_eq((double)dv.values[j * COLUMNS + c], 0);
            }
        }
    }
}
END_TEST

START_TEST(f67_dlse_of_another_shape_is_refused) {
    enter_folder();
    write_inputs(20, 20, 1);
    Array dlse = array_make(1, 20, 1, 1, false); // (batch, seqlen_q, heads)
    dlse.dimensions = 3;
    array_write("in/dlse.npy", &dlse);
    Outcome o = run_chapter(4, "--input in");
    ck_assert_int_eq(o.status, 2);
    ck_assert_ptr_nonnull(strstr(o.err, "(batch, heads, seqlen_q)"));
    ck_assert_ptr_eq(strchr(o.err, '\n'), o.err + strlen(o.err) - 1);
}
END_TEST

// F64, F65: dO, O and dV have their own strides: more query heads than K/V heads, and dO given.
START_TEST(f64_strides) {
    enter_folder();
    right(all_steps, "--batch 2 --heads 6 --kv-heads 2 --seqlen-q 40 --seqlen-k 90");
    write_inputs(50, 90, 1);
    right(all_steps, "--input in");
}
END_TEST

// F66: the cap's slope, taken before the mask.
START_TEST(f66_softcap) {
    enter_folder();
    right(all_steps, "--batch 1 --heads 2 --seqlen 100 --softcap 1 --scale 0.5 --causal");
    right(all_steps, "--batch 1 --heads 2 --seqlen 100 --softcap 10 --window 9,3");
    right(all_steps, "--batch 1 --heads 2 --seqlen 100 --softcap 30 --scale 1");
}
END_TEST

// F71: groups of three query heads, two K/V heads.
START_TEST(f71_groups) {
    enter_folder();
    right(all_steps, "--batch 2 --heads 6 --kv-heads 2 --seqlen 70");
    right(recomputing, "--batch 1 --heads 12 --kv-heads 1 --seqlen 70 --deterministic");
}
END_TEST

// F72: the scale counts once in dQ and once in dK, whatever it is.
START_TEST(f72_scale) {
    enter_folder();
    right(all_steps, "--batch 1 --heads 2 --seqlen 100 --scale 1");
    right(all_steps, "--batch 1 --heads 2 --seqlen 100 --scale 0");
    right(all_steps, "--batch 1 --heads 2 --seqlen 100 --scale -0.1 --causal");
    // Scores of thousands: an lse of one float alone would be too coarse even for fp16.
    right(all_steps, "--batch 1 --heads 1 --seqlen 257 --scale 300 --seed 2");
}
END_TEST

// An lse of 40 has its last bit at 4e-6, and e^ makes that a relative error of P: fp32 gradients of
// large scores show it, unless what the rounding of lse took off is kept.
START_TEST(large_scores_in_fp32) {
    static const char *const problems[] = {
        "--batch 1 --heads 2 --seqlen 397 --scale 1",
        "--batch 1 --heads 2 --seqlen 397 --scale 3",
        "--batch 2 --heads 4 --kv-heads 2 --seqlen-q 150 --seqlen-k 230 --scale 2 --causal",
        "--batch 1 --heads 3 --seqlen-q 300 --seqlen-k 260 --scale -1 --causal --deterministic",
    };
    char problem[200];
    enter_folder();
    snprintf(problem, sizeof problem, "--dtype fp32 %s", problems[_i]);
    right(cuda_cores, problem);
}
END_TEST

// Few rows, or few scores, make the whole error: there a right sum may be several times as far off as
// the model's own, and a P that comes from lse would have an exponent that is rounded once more.
START_TEST(few_scores_in_fp32) {
    static const char *const problems[] = {
        "--heads 3 --head-dim 40 --seqlen-q 31 --seqlen-k 177 --window 1,0 --softcap 30 --scale 8",
        "--kv-heads 1 --heads 1 --batch 3 --head-dim 64 --seqlen-q 2 --seqlen-k 129 --causal "
        "--softcap 1",
        "--scale -3 --seqlen-q 200 --seqlen-k 90",
        // one row a head: its lse's error is the error of all that the row gives
        "--batch 2 --heads 4 --kv-heads 2 --head-dim 128 --seqlen-q 1 --seqlen-k 129 --window 33,7",
    };
    char problem[250];
    enter_folder();
    for (int seed = 0; seed < in_full(12, 5); seed++) {
        snprintf(problem, sizeof problem, "--dtype fp32 %s --seed %d", problems[_i], seed);
        right(cuda_cores, problem);
    }
}
END_TEST

// No queries: dK = dV = 0. No keys: dQ = 0. Neither: nothing.
START_TEST(empty_sequences) {
    enter_folder();
    right(all_steps, "--batch 1 --heads 2 --seqlen-q 0 --seqlen-k 70");
    right(all_steps, "--batch 1 --heads 2 --seqlen-q 70 --seqlen-k 0");
    right(all_steps, "--batch 1 --heads 2 --seqlen-q 0 --seqlen-k 0");
    right(recomputing, "--batch 1 --heads 2 --seqlen-q 0 --seqlen-k 70 --deterministic");
    right(recomputing, "--batch 1 --heads 2 --seqlen-q 70 --seqlen-k 0 --deterministic");
}
END_TEST

// FlashAttention's configuration, some heads on as large a part of an A100: 10 to 20% more FLOPs, an
// eighth of the bytes at most, a tenth of the memory at most, all counted.
START_TEST(what_recomputing_costs) {
    enter_folder();
    Outcome o = run_chapter(4, "--json - --gpu a100 --sms 8 --check none --batch 1 --heads 12 "
                               "--seqlen 1024 --head-dim 64 --steps "
                               "standard-tensor-cores,recompute-tensor-cores");
    const Json *json = outcome_json(&o, 0);
    ck_assert_int_eq(every_step_is_ok(&o, json), 4);
    double flops[2] = {0}, bytes[2] = {0}, memory[2] = {0};
    for (const Json *s = json_at(json, "steps")->first; s != NULL; s = s->next) {
        int step = strcmp(json_text(s, "name"), "recompute-tensor-cores") == 0;
        flops[step] += json_number(s, "executed_flops");
        bytes[step] += json_number(s, "hbm_read_bytes") + json_number(s, "hbm_write_bytes");
        memory[step] = fmax(memory[step], json_number(s, "workspace_bytes"));
    }
    ck_assert_double_gt(flops[1] / flops[0], 1.10);
    ck_assert_double_lt(flops[1] / flops[0], 1.20);
    ck_assert_double_gt(bytes[0] / bytes[1], 8);
    ck_assert_double_gt(memory[0] / memory[1], 10);
}
END_TEST

// The default run simulates a sample of the SMs, whose share of the L2 must hold what a head's tiles of
// keys share. Ideally the three kernels read dO twice, each other input and dQ's sums once.
START_TEST(sampled_bytes_are_near_the_ideal) {
    enter_folder();
    Outcome o = run_chapter(4, "--json - --check none --steps %s", recomputing);
    const Json *json = outcome_json(&o, 0), *p = json_at(json, "timed_problem");
    ck_assert_int_eq(every_step_is_ok(&o, json), 4);
    ck_assert(json_number(p, "sample") > 0 && json_number(p, "head_dim") == 64);
    const double tensor =
        json_number(p, "batch") * json_number(p, "heads") * json_number(p, "seqlen_q") * 64 * 2;
    const double read = 6 * tensor + 2 * tensor, written = 3 * tensor + 2 * tensor;
    for (const Json *s = json_at(json, "steps")->first; s != NULL; s = s->next) {
        if (strcmp(json_text(s, "pass"), "backward") != 0) continue;
        ck_assert_double_ge(json_number(s, "hbm_read_bytes"), 0.9 * read);
        ck_assert_double_le(json_number(s, "hbm_read_bytes"), 1.2 * read);
        ck_assert_double_le(json_number(s, "hbm_write_bytes"), 1.2 * written);
    }
}
END_TEST

// What can't be done is said in one line, with status 2.
static const struct {
    const char *arguments, *says;
} refusals[] = {
    {"--steps recompute-tensor-cores --dtype fp32", "fp16 and bf16"},
    {"--steps standard-tensor-cores --dtype fp32", "fp16 and bf16"},
    {"--dtype fp8", "chapters 6"},
    {"--deterministic=1", "takes no value"},
};

START_TEST(refused) {
    enter_folder();
    Outcome o = run_chapter(4, "%s", refusals[_i].arguments);
    ck_assert_msg(o.status == 2, "%s: status %d", o.command, o.status);
    ck_assert_msg(strstr(o.err, refusals[_i].says) != NULL, "%s: %s", o.command, o.err);
    ck_assert_ptr_eq(strchr(o.err, '\n'), o.err + strlen(o.err) - 1);
}
END_TEST

START_TEST(deterministic_comes_with_chapter_4) {
    enter_folder();
    Outcome o = run_chapter(1, "--deterministic");
    ck_assert_int_eq(o.status, 2);
    ck_assert_ptr_nonnull(strstr(o.err, "chapter 4"));
}
END_TEST

Suite *suite_backward(void) {
    Suite *suite = suite_create("chapters: backward");
    TCase *tests = tcase_create("backward");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, every_length, 0, 12);
    tcase_add_loop_test(tests, deterministic_is_bit_identical, 0, 6);
    tcase_add_test(tests, f10_window_is_causal);
    tcase_add_test(tests, f12_padded_rows);
    tcase_add_test(tests, f19_one_key);
    tcase_add_test(tests, f20_large_inputs);
    tcase_add_loop_test(tests, real_input, 0, 4);
    tcase_add_test(tests, f62_poisoned_workspace);
    tcase_add_loop_test(tests, f63_delays, 0, 4);
    tcase_add_test(tests, f64_strides);
    tcase_add_test(tests, f66_softcap);
    tcase_add_test(tests, f67_gradient_through_lse);
    tcase_add_test(tests, f67_dlse_of_another_shape_is_refused);
    tcase_add_test(tests, f71_groups);
    tcase_add_test(tests, f72_scale);
    tcase_add_loop_test(tests, large_scores_in_fp32, 0, 4);
    tcase_add_loop_test(tests, few_scores_in_fp32, 0, 4);
    tcase_add_test(tests, empty_sequences);
    tcase_add_test(tests, what_recomputing_costs);
    tcase_add_test(tests, sampled_bytes_are_near_the_ideal);
    tcase_add_loop_test(tests, refused, 0, sizeof refusals / sizeof *refusals);
    tcase_add_test(tests, deterministic_comes_with_chapter_4);
    suite_add_tcase(suite, tests);
    return suite;
}
