// The rounding model of steps in fp8: right where its rounding can be worked out by hand, and its
// limits refuse what a step in fp8 may get wrong.
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check.h"
#include "harness/convert.h"
#include "harness/model_fp8.h"
#include "harness/random.h"

static int keys_of_block(int head_dim) {
    (void)head_dim;
    return 96;
}

// Signs by the bits of a hash: another D than chapter 6's.
static int sign(int head_dim, int column) {
    (void)head_dim;
    return random_bits(77, 1, (uint64_t)column) & 1 ? -1 : 1;
}

static const Fp8 per_tensor = {true, 64, keys_of_block, NULL, false};
static const Fp8 per_block = {false, 64, keys_of_block, NULL, false};
static const Fp8 hadamard = {false, 64, keys_of_block, sign, false};
static const Fp8 two_level = {false, 64, keys_of_block, sign, true};
static const Fp8 *const ways[] = {&per_tensor, &per_block, &hadamard, &two_level};

static Problem usual(void) {
    return (Problem){.dtype = DTYPE_FP16,
                     .batch = 1,
                     .heads = 2,
                     .kv_heads = 1,
                     .seqlen_q = 70,
                     .seqlen_k = 300,
                     .head_dim = 40,
                     .built_head_dim = 64,
                     .window_left = -1,
                     .window_right = -1,
                     .scale = 0.158f,
                     .seed = 11};
}

typedef struct {
    Problem p;
    Inputs in;
    Reference exact, fp8;
} Case;

static void references_make(Case *t, const Fp8 *way) {
    reference_make(&t->p, &t->in, false, &t->exact);
    reference_fp8(&t->p, &t->in, &t->exact, way, &t->fp8);
}

static void case_make(Case *t, Problem p, const Fp8 *way) {
    t->p = p;
    inputs_random(&t->p, false, &t->in);
    references_make(t, way);
}

static void references_free(Case *t) {
    reference_fp8_free(&t->fp8);
    reference_free(&t->exact);
}

static void case_free(Case *t) {
    references_free(t);
    inputs_free(&t->in);
}

// Checks a device's buffer that holds `results` as O.
static TensorCheck check_results(const Case *t, const double *o) {
    const Problem *p = &t->p;
    uint16_t *bytes = calloc((size_t)tensor_elements(p, TENSOR_O), sizeof *bytes);
    for (int h = 0; h < p->heads; h++)
        for (int64_t i = 0; i < p->seqlen_q; i++)
            for (int c = 0; c < p->head_dim; c++) {
                float value = (float)o[(h * p->seqlen_q + i) * p->head_dim + c];
                store_as_dtype(&bytes[tensor_index(p, TENSOR_O, 0, h, i, c)], &value, 1, p->dtype);
            }
    TensorCheck check;
    check_tensor(p, &t->in, &t->fp8, TENSOR_O, bytes, &check);
    free(bytes);
    return check;
}

static double rms_error(const Case *t) {
    double squares = 0;
    int64_t count = results_count(&t->p, &t->exact, TENSOR_O);
    for (int64_t i = 0; i < count; i++) {
        double error = t->fp8.model.o[i] - t->exact.exact.o[i];
        squares += error * error;
    }
    return sqrt(squares / (double)count);
}

// Numbers that e4m3 holds with any scale of a power of two: nothing but P is rounded, and where all
// scores are equal not even that. Values of a column are equal, so each sum is a multiple of one.
START_TEST(what_e4m3_holds_is_exact) {
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        Case t = {.p = usual()};
        inputs_random(&t.p, false, &t.in);
        for (int64_t i = 0; i < query_elements(&t.p); i++) t.in.q[i] = 0;
        for (int64_t i = 0; i < key_elements(&t.p); i++) {
            int column = (int)(i % t.p.head_dim);
            t.in.v[i] = column % 3 == 0 ? 1 : column % 3 == 1 ? -1.75f : 0;
        }
        references_make(&t, ways[w]);
        for (int64_t i = 0; i < results_count(&t.p, &t.fp8, TENSOR_O); i++)
            ck_assert_double_eq_tol(t.fp8.model.o[i], t.exact.exact.o[i], 2e-3);
        for (int64_t i = 0; i < results_count(&t.p, &t.fp8, TENSOR_LSE); i++)
            ck_assert_double_eq_tol(t.fp8.model.lse[i], log(300), 1e-5);
        case_free(&t);
    }
}
END_TEST

// e4m3 keeps 4 bits, a relative error of 1/16 at most; P and sums add to that, averages take off.
START_TEST(errors_are_those_of_four_bits) {
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        Case t;
        case_make(&t, usual(), ways[w]);
        double rms = rms_error(&t), size = 0;
        for (int64_t i = 0; i < results_count(&t.p, &t.exact, TENSOR_O); i++)
            size += t.exact.exact.o[i] * t.exact.exact.o[i];
        size = sqrt(size / (double)results_count(&t.p, &t.exact, TENSOR_O));
        ck_assert_msg(rms > 0.01 * size && rms < 0.125 * size, "way %zu: %g of %g", w, rms, size);
        TensorCheck check = check_results(&t, t.fp8.model.o);
        ck_assert_msg(check.ok, "%s", check.report);
        check = check_results(&t, t.exact.exact.o);
        ck_assert_msg(check.ok, "%s", check.report);
        case_free(&t);
    }
}
END_TEST

// Large numbers in the first block of keys, which no row sees, take the others' bits only where they
// share a scale. In e4m3, a floating-point format, that needs a factor beyond 2^14.
START_TEST(a_scale_of_its_own_saves_a_block) {
    double errors[2];
    for (int w = 0; w < 2; w++) {
        Case t = {.p = usual()};
        t.p.window_left = t.p.window_right = 60;
        inputs_random(&t.p, false, &t.in);
        for (int64_t i = 0; i < key_elements(&t.p); i++)
            t.in.v[i] *= i < 96 * t.p.head_dim ? 10000 : 0.01f;
        references_make(&t, ways[w]);
        errors[w] = rms_error(&t);
        case_free(&t);
    }
    ck_assert_double_gt(errors[0], 3 * errors[1]);
}
END_TEST

// Adds outliers to column 7 of some rows of Q and of K: where both have one their product is as large
// as the rest of the sum, and so is its error.
static void add_outliers(const Problem *p, Inputs *in) {
    for (int64_t r = 0; r < p->seqlen_q * p->heads; r += 3) in->q[r * p->head_dim + 7] += 12;
    for (int64_t r = 0; r < p->seqlen_k * p->kv_heads; r += 10) in->k[r * p->head_dim + 7] += 12;
}

// The transform leaves scores without outliers as they are, and scores with outliers better.
START_TEST(the_transform_spreads_outliers) {
    double errors[2][2];
    for (int outliers = 0; outliers < 2; outliers++)
        for (int w = 0; w < 2; w++) {
            Case t = {.p = usual()};
            t.p.head_dim = t.p.built_head_dim = 128;
            t.p.scale = 0.08838835f;
            inputs_random(&t.p, false, &t.in);
            if (outliers) add_outliers(&t.p, &t.in);
            references_make(&t, ways[1 + w]);
            errors[outliers][w] = rms_error(&t);
            case_free(&t);
        }
    ck_assert_double_eq_tol(errors[0][1] / errors[0][0], 1, 0.1);
    ck_assert_double_lt(errors[1][1], 0.8 * errors[1][0]);
}
END_TEST

// 16384 equal weights: a sum that keeps 13 bits stops growing, one that is cleared each block and
// added in fp32 doesn't.
START_TEST(long_sums_need_two_levels) {
    double lost[2];
    for (int w = 0; w < 2; w++) {
        Case t = {.p = usual()};
        t.p.seqlen_k = 16384;
        t.p.seqlen_q = 2;
        inputs_random(&t.p, false, &t.in);
        for (int64_t i = 0; i < query_elements(&t.p); i++) t.in.q[i] = 0;
        for (int64_t i = 0; i < key_elements(&t.p); i++) t.in.v[i] = 1;
        references_make(&t, ways[2 + w]);
        lost[w] = 1 - t.fp8.model.o[0];
        case_free(&t);
    }
    ck_assert_double_gt(lost[0], 0.2);
    ck_assert_double_lt(fabs(lost[1]), 1e-3);
}
END_TEST

// A number that is not finite becomes NaN, whatever it was, in the rows that see it and in no other.
START_TEST(what_is_not_finite_becomes_nan) {
    static const float values[] = {NAN, INFINITY, -INFINITY};
    for (int v = 0; v < 3; v++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            Case t = {.p = usual()};
            t.p.window_right = 0, t.p.window_left = 100; // row i sees keys i + 130 … i + 230
            inputs_random(&t.p, false, &t.in);
            t.in.k[200 * t.p.head_dim + 3] = values[v]; // rows from 0 on see it: up to 70
            t.in.v[160 * t.p.head_dim + 5] = values[v]; // rows up to 30
            references_make(&t, ways[w]);
            for (int h = 0; h < t.p.heads; h++)
                for (int64_t i = 0; i < t.p.seqlen_q; i++)
                    for (int c = 0; c < t.p.head_dim; c++) {
                        int64_t from, to;
                        visible_keys(&t.p, 0, i, &from, &to);
                        bool meets =
                            (from <= 200 && 200 < to) || (from <= 160 && 160 < to && c == 5);
                        double o = t.fp8.model.o[(h * t.p.seqlen_q + i) * t.p.head_dim + c];
                        double wanted = t.fp8.exact.o[(h * t.p.seqlen_q + i) * t.p.head_dim + c];
                        ck_assert_int_eq(isnan(o) != 0, meets);
                        ck_assert_int_eq(isnan(wanted) != 0, meets);
                    }
            case_free(&t);
        }
}
END_TEST

// A sink is a key without a value. Weights are 2^8 at most and powers of two, so all is exact: a row
// of 300 equal keys has its values' mean, times 300 of 300 + e^sink.
START_TEST(a_sink_takes_its_share) {
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        Case t = {.p = usual()};
        t.p.has_sink = true;
        inputs_random(&t.p, false, &t.in);
        t.in.sink[0] = 0, t.in.sink[1] = logf(8);
        for (int64_t i = 0; i < query_elements(&t.p); i++) t.in.q[i] = 0;
        for (int64_t i = 0; i < key_elements(&t.p); i++) t.in.v[i] = 1;
        references_make(&t, ways[w]);
        for (int h = 0; h < 2; h++)
            for (int64_t i = 0; i < t.p.seqlen_q; i++) {
                const int64_t row = h * t.p.seqlen_q + i;
                const double all = 300 + (h == 0 ? 1 : 8);
                ck_assert_double_eq_tol(t.fp8.model.lse[row], log(all), 1e-5);
                for (int c = 0; c < t.p.head_dim; c++)
                    ck_assert_double_eq_tol(t.fp8.model.o[row * t.p.head_dim + c], 300 / all, 2e-3);
            }
        case_free(&t);
    }
}
END_TEST

START_TEST(rows_without_keys) {
    Case t = {.p = usual()};
    t.p.seqlen_k = 30, t.p.window_right = 0;
    inputs_random(&t.p, false, &t.in);
    references_make(&t, &hadamard);
    for (int64_t i = 0; i < 40; i++) {
        ck_assert(t.fp8.model.lse[i] == -INFINITY);
        for (int c = 0; c < t.p.head_dim; c++) ck_assert(t.fp8.model.o[i * t.p.head_dim + c] == 0);
    }
    case_free(&t);
}
END_TEST

// The limits refuse: numbers times another block's scale; a block of keys left out; sums that start
// from nothing in the last block; weights cut at 448 of 2^12; outliers that no transform spread.
typedef enum { SCALE, LEFT_OUT, LAST_BLOCK, SATURATED, NOT_TRANSFORMED, MISTAKES } Mistake;

static void make_mistake(Case *t, Mistake mistake, Results *results) {
    Problem p = t->p;
    Inputs in = t->in, other = {0};
    int64_t keys = key_elements(&p);
    other.k = malloc((size_t)keys * sizeof(float));
    other.v = malloc((size_t)keys * sizeof(float));
    memcpy(other.k, in.k, (size_t)keys * sizeof(float));
    memcpy(other.v, in.v, (size_t)keys * sizeof(float));
    in.k = other.k, in.v = other.v;
    for (int64_t i = 0; i < keys; i++) {
        bool in_block = i / p.head_dim >= 96 && i / p.head_dim < 192;
        if (mistake == SCALE && in_block) in.v[i] *= 1.5f;
        if (mistake == LEFT_OUT && in_block) in.v[i] = 0;
        if (mistake == SATURATED) in.v[i] *= 0.8f;
    }
    if (mistake == LAST_BLOCK) p.window_left = 95, p.window_right = 0;
    model_fp8(&p, &in, &t->exact.rows, mistake == NOT_TRANSFORMED ? &per_block : &hadamard,
              results);
    free(other.k);
    free(other.v);
}

START_TEST(mistakes_are_refused) {
    for (int m = 0; m < MISTAKES; m++) {
        Case t = {.p = usual()};
        t.p.head_dim = t.p.built_head_dim = 128;
        t.p.scale = 0.08838835f;
        inputs_random(&t.p, false, &t.in);
        if (m == NOT_TRANSFORMED) add_outliers(&t.p, &t.in);
        references_make(&t, &hadamard);
        Results results;
        make_mistake(&t, (Mistake)m, &results);
        TensorCheck check = check_results(&t, results.o);
        ck_assert_msg(!check.ok, "mistake %d passes: rms %g of %g", m, check.rms, check.rms_limit);
        results_free(&results);
        case_free(&t);
    }
}
END_TEST

Suite *suite_model_fp8(void);
Suite *suite_model_fp8(void) {
    Suite *suite = suite_create("the rounding model of fp8");
    TCase *tests = tcase_create("model");
    tcase_add_test(tests, what_e4m3_holds_is_exact);
    tcase_add_test(tests, errors_are_those_of_four_bits);
    tcase_add_test(tests, a_scale_of_its_own_saves_a_block);
    tcase_add_test(tests, the_transform_spreads_outliers);
    tcase_add_test(tests, long_sums_need_two_levels);
    tcase_add_test(tests, what_is_not_finite_becomes_nan);
    tcase_add_test(tests, a_sink_takes_its_share);
    tcase_add_test(tests, rows_without_keys);
    tcase_add_test(tests, mistakes_are_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
