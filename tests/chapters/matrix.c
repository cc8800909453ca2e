// The matrix of problems that every step is checked on.
#include "matrix.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const matrix_orders[MATRIX_PAIRS] = {
    "--schedule 0 --async early", "--schedule 7 --async late", "--schedule 23 --async random"};
const char *const matrix_dtypes[3] = {"fp32", "fp16", "bf16"};
const int matrix_head_dims[2] = {64, 128};
const char *const gradient_lengths[GRADIENT_LENGTHS] = {
    "--seqlen 1",
    "--seqlen 63",
    "--seqlen 65",
    "--seqlen 127",
    "--seqlen 200",
    "--seqlen-q 65 --seqlen-k 200",
    "--seqlen-q 200 --seqlen-k 65",
    "--seqlen-q 1 --seqlen-k 300",
    "--seqlen-q 129 --seqlen-k 1",
};
const char *const gradient_extras[GRADIENT_EXTRAS] = {
    "--heads 2",
    "--heads 4 --kv-heads 2",
    "--heads 2 --window 16,0",
    "--heads 3 --kv-heads 1 --softcap 5",
    "--heads 2 --window 33,7 --deterministic",
    "--heads 2 --kv-heads 1 --window 0,40 --softcap 2 --deterministic",
    "--heads 4 --kv-heads 2 --deterministic",
    "--heads 2 --scale -0.2",
};

enum { HEAD_DIMS_MAX = 8 };

const int *built_head_dims(void) {
    static int head_dims[HEAD_DIMS_MAX];
    const char *text = getenv("TEST_HEAD_DIMS");
    if (text == NULL || *text == 0) text = "64 128";
    for (int k = 0; k < HEAD_DIMS_MAX - 1; k++) {
        char *end;
        head_dims[k] = (int)strtol(text, &end, 10); // 0 at the end
        text = end;
    }
    return head_dims;
}

int built_head_dim_count(void) {
    int count = 0;
    while (built_head_dims()[count] != 0) count++;
    return count;
}

static bool is_fp32(const char *problem) {
    return strstr(problem, "--dtype fp32") != NULL;
}

const char *steps_of(int chapter, const char *problem) {
    static const char *const lists[] = {
        "naive",
        "tiled-matmul,two-pass",
        "normalise-every-block,normalise-once,mma-sync,swizzled,cp-async",
        "standard,standard-tensor-cores,recompute,recompute-tensor-cores",
        "wgmma,tma-ring,warp-specialised,pingpong,intra-warpgroup",
        "per-tensor,per-block,hadamard,two-level",
        "persistent,overlapped-epilogue,lpt,l2-order",
        "tcgen05,p-in-tmem,pingpong,exp2-emulation,lazy-rescale,persistent-lpt",
        "split-kv,gqa-packed,auto-split,cluster-combine,paged-kv"};
    const bool backward = strstr(problem, "--backward") != NULL;
    if (backward && chapter == 5) return "intra-warpgroup";
    if (backward && chapter == 8) return "one-cta,two-cta";
    const bool pages =
        strstr(problem, "--page-size") != NULL || strstr(problem, "--append") != NULL;
    if (pages && chapter == 9) return "cluster-combine,paged-kv";
    if (is_fp32(problem) && chapter == 3) return "normalise-every-block,normalise-once";
    if (is_fp32(problem) && chapter == 4) return "standard,recompute";
    return lists[chapter - 1];
}

int results_of(int chapter, const char *problem) {
    int results = 1;
    for (const char *c = steps_of(chapter, problem); *c != 0; c++) results += *c == ',';
    return chapter == 4 || strstr(problem, "--backward") != NULL ? 2 * results : results;
}

void check_problem(int chapter, const char *problem) {
    for (int p = 0; p < MATRIX_PAIRS; p++) {
        Outcome o = run_chapter(chapter, "--check-only --json - --steps %s %s %s",
                                steps_of(chapter, problem), matrix_orders[p], problem);
        Json *json = outcome_json(&o, 0);
        ck_assert_int_eq(every_step_is_ok(&o, json), results_of(chapter, problem));
        // Thousands of problems in one process: what they leave would be copied with each fork.
        json_free(json);
        free(o.out);
        free(o.err);
    }
}

void check_forward_cell(int chapter, int cell, const char *const lengths[], int count) {
    static const char *const extras[] = {
        "--heads 2",
        "--heads 4 --kv-heads 2",
        "--heads 2 --window 16,0",
        "--heads 3 --kv-heads 1 --softcap 5",
        "--heads 2 --window 33,7",
        "--heads 2 --kv-heads 1 --window 0,40 --softcap 2",
        "--heads 6 --kv-heads 3",
    };
    const int extras_count = sizeof extras / sizeof *extras;
    for (int l = 0; l < count; l++) {
        char problem[300];
        snprintf(problem, sizeof problem, "--batch %d --dtype %s --head-dim %d %s %s%s", 1 + l % 2,
                 matrix_dtypes[1 + cell % 2], matrix_head_dims[cell / 2 % 2], lengths[l],
                 extras[(l + cell) % extras_count], cell / 4 ? " --causal" : "");
        check_problem(chapter, problem);
    }
}

void fp32_is_refused(int chapter, const char *step) {
    Outcome run = run_chapter(chapter, "--steps %s --dtype fp32 --seqlen 10", step);
    ck_assert_int_eq(run.status, 2);
    ck_assert_ptr_nonnull(strstr(run.err, "use --dtype fp16 or bf16"));
}
