// Every step against PyTorch: attention and its gradients in float64, kept in tests/data/torch
// (README.md there says how they were made). Not the harness's reference, and not our own formula.
#include <check.h>
#include <math.h>
#include <string.h>
#include <stdio.h>

#include "program.h"

// The inputs and, in a folder of theirs, what PyTorch makes of them under the mask of the options.
static const struct {
    const char *inputs, *expected, *options;
} cases[] = {
    {"more_keys", "none", ""},
    {"more_keys", "causal", "--causal"},
    {"more_keys", "window", "--window 9,3"},
    {"more_queries", "causal_bottom_right", "--causal"},
    // PyTorch's is_causal: row i sees keys 0 … i. From the bottom right, 50 rows longer, that is:
    {"more_queries", "causal_top_left", "--window -1,50"},
    {"square", "causal_square", "--causal"}, // where the two are one
    {"square", "softcap", "--softcap 2"},
};
enum { CASES = sizeof cases / sizeof *cases };

// |difference| <= tolerance · (1 + |value|). fp32 sums of at most 140 products stay below 1e-5; fp16
// rounds S and P at worst to 2^-11 of values below 8.
static const struct {
    const char *dtype;
    double tolerance;
} dtypes[] = {{"fp32", 1e-5}, {"fp16", 4e-3}};

static const struct {
    int chapter;
    const char *name;
    bool backward, tensor_cores; // these have no fp32
} steps[] = {
    {1, "naive", true, false},
    {2, "tiled-matmul", false, false},
    {2, "two-pass", false, false},
    {3, "normalise-every-block", false, false},
    {3, "normalise-once", false, false},
    {3, "mma-sync", false, true},
    {3, "swizzled", false, true},
    {3, "cp-async", false, true},
    {4, "standard", true, false},
    {4, "standard-tensor-cores", true, true},
    {4, "recompute", true, false},
    {4, "recompute-tensor-cores", true, true},
    {5, "wgmma", false, true},
    {5, "tma-ring", false, true},
    {5, "warp-specialised", false, true},
    {5, "pingpong", false, true},
    {5, "intra-warpgroup", true, true},
    {8, "one-cta", true, true},
    {8, "two-cta", true, true},
};
enum { STEPS = sizeof steps / sizeof *steps };

static void compare(const Outcome *o, const char *tensor, const char *folder, double tolerance) {
    char path[500];
    snprintf(path, sizeof path, "out/%s.npy", tensor);
    const Array got = array_read(path);
    snprintf(path, sizeof path, "%s/%s.npy", folder, tensor);
    const Array expected = array_read(in_repository(path));
    ck_assert_int_eq(got.dimensions, expected.dimensions);
    ck_assert_mem_eq(got.shape, expected.shape, sizeof got.shape);
    for (long i = 0; i < got.count; i++) {
        const double x = (double)got.values[i], y = (double)expected.values[i];
        const bool same = isinf(y) ? x == y : fabs(x - y) <= tolerance * (1 + fabs(y));
        ck_assert_msg(same, "%s: %s, element %ld: %.9g, PyTorch has %.9g", o->command, tensor, i, x,
                      y);
    }
}

// Loop: the step.
START_TEST(every_step_agrees_with_pytorch) {
    static const char *const tensors[] = {"o", "lse", "dq", "dk", "dv"};
    const bool backward = steps[_i].backward;
    char inputs[200], folder[400];
    enter_folder();
    for (int c = 0; c < CASES; c++) {
        for (int d = steps[_i].tensor_cores ? 1 : 0; d < 2; d++) {
            snprintf(inputs, sizeof inputs, "tests/data/torch/%s", cases[c].inputs);
            snprintf(folder, sizeof folder, "%s/%s", inputs, cases[c].expected);
            Outcome o = run_chapter(steps[_i].chapter,
                                    "--input %s --save out --check-only --json - --steps %s "
                                    "--dtype %s%s%s%s",
                                    in_repository(inputs), steps[_i].name, dtypes[d].dtype,
                                    backward && steps[_i].chapter != 4 ? " --backward" : "",
                                    *cases[c].options != 0 ? " " : "", cases[c].options);
            // The run must say ok, too.
            ck_assert_int_eq(every_step_is_ok(&o, outcome_json(&o, 0)), backward ? 2 : 1);
            for (int t = 0; t < (backward ? 5 : 2); t++)
                compare(&o, tensors[t], folder, dtypes[d].tolerance);
        }
    }
}
END_TEST

Suite *suite_torch(void) {
    Suite *suite = suite_create("chapters: PyTorch's results");
    TCase *tests = tcase_create("torch");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, every_step_agrees_with_pytorch, 0, STEPS);
    suite_add_tcase(suite, tests);
    return suite;
}
