// The matrix of problems that every step is checked on.
#include "matrix.h"

#include <check.h>

const char *const matrix_dtypes[3] = {"fp32", "fp16", "bf16"};
const int matrix_head_dims[2] = {64, 128};

const char *steps_of(int chapter) {
    static const char *const lists[] = {"naive", "tiled-matmul,two-pass",
                                        "normalise-every-block,normalise-once"};
    return lists[chapter - 1];
}

void check_problem(int chapter, const char *problem) {
    static const char *const pairs[MATRIX_PAIRS] = {
        "--schedule 0 --async early", "--schedule 7 --async late", "--schedule 23 --async random"};
    for (int p = 0; p < MATRIX_PAIRS; p++) {
        Outcome o = run_chapter(chapter, "--check-only --json - --steps %s %s %s",
                                steps_of(chapter), pairs[p], problem);
        int steps = every_step_is_ok(&o, outcome_json(&o, 0));
        ck_assert_int_ge(steps, chapter == 1 ? 1 : 2);
    }
}
