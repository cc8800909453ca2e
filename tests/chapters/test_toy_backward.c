// The toy examples of chapter 4's lesson, computed as the lesson says.
//
// Two queries, the four keys of chapters 1 to 3 in two blocks, head_dim 1, scale 1:
//
//     q = (1, 0)     k = (0, 0 | ln 4, ln 2)     v = (6, 2 | 1, 4)     dO = (1, 2)
//     row 1: P = (1, 1, 4, 2) / 8, O = 2.5, lse = ln 8
//     row 2: P = (1, 1, 1, 1) / 4, O = 3.25, lse = ln 4
#include <check.h>
#include <math.h>
#include <stdint.h>

enum { QUERIES = 2, KEYS = 4, BLOCK = 2 };

typedef struct {
    double q[QUERIES], k[KEYS], v[KEYS], dout[QUERIES];
    double softcap; // 0: none
} Toy;

typedef struct {
    double o[QUERIES], lse[QUERIES];
} Forward;

typedef struct {
    double dq[QUERIES], dk[KEYS], dv[KEYS];
} Gradients;

static Toy lesson_toy(void) {
    return (Toy){{1, 0}, {0, 0, log(4), log(2)}, {6, 2, 1, 4}, {1, 2}, 0};
}

static double score(const Toy *toy, int i, int j) {
    const double product = toy->q[i] * toy->k[j];
    return toy->softcap > 0 ? toy->softcap * tanh(product / toy->softcap) : product;
}

static Forward forward(const Toy *toy) {
    Forward f;
    for (int i = 0; i < QUERIES; i++) {
        double sum = 0, o = 0;
        for (int j = 0; j < KEYS; j++) {
            sum += exp(score(toy, i, j));
            o += exp(score(toy, i, j)) * toy->v[j];
        }
        f.o[i] = o / sum;
        f.lse[i] = log(sum);
    }
    return f;
}

// The standard way: P saved, D as the sum over the keys that the softmax's derivative has.
static Gradients standard(const Toy *toy) {
    const Forward f = forward(toy);
    Gradients g = {0};
    for (int i = 0; i < QUERIES; i++) {
        double p[KEYS], dp[KEYS], sum = 0;
        for (int j = 0; j < KEYS; j++) {
            p[j] = exp(score(toy, i, j)) / exp(f.lse[i]);
            dp[j] = toy->dout[i] * toy->v[j];
            sum += p[j] * dp[j];
        }
        for (int j = 0; j < KEYS; j++) {
            const double ds = p[j] * (dp[j] - sum);
            g.dv[j] += p[j] * toy->dout[i];
            g.dq[i] += ds * toy->k[j];
            g.dk[j] += ds * toy->q[i];
        }
    }
    return g;
}

// The lesson's way: from O and lse alone, blocks of keys outside, queries inside. `slope`: with the
// cap's 1 - tanh², or, to see what happens, without.
static Gradients recompute(const Toy *toy, int slope) {
    const Forward f = forward(toy);
    Gradients g = {0};
    double d[QUERIES];
    for (int i = 0; i < QUERIES; i++) d[i] = toy->dout[i] * f.o[i];
    for (int first = 0; first < KEYS; first += BLOCK)
        for (int i = 0; i < QUERIES; i++)
            for (int j = first; j < first + BLOCK; j++) {
                const double s = score(toy, i, j), p = exp(s - f.lse[i]);
                const double t = toy->softcap > 0 && slope ? s / toy->softcap : 0;
                const double ds = p * (toy->dout[i] * toy->v[j] - d[i]) * (1 - t * t);
                g.dv[j] += p * toy->dout[i];
                g.dk[j] += ds * toy->q[i];
                g.dq[i] += ds * toy->k[j];
            }
    return g;
}

static double loss(const Toy *toy) {
    const Forward f = forward(toy);
    double sum = 0;
    for (int i = 0; i < QUERIES; i++) sum += toy->dout[i] * f.o[i];
    return sum;
}

static void expect(double got, double expected) {
    ck_assert_double_eq_tol(got, expected, 1e-12);
}

// How far the gradients are from those by differences, at most.
static double distance_from_slope(Toy toy, const Gradients *g) {
    const double step = 1e-5;
    double *const inputs[] = {toy.q, toy.k, toy.v};
    const double *const gradients[] = {g->dq, g->dk, g->dv};
    const int counts[] = {QUERIES, KEYS, KEYS};
    double worst = 0;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < counts[t]; i++) {
            const double was = inputs[t][i];
            inputs[t][i] = was + step;
            const double up = loss(&toy);
            inputs[t][i] = was - step;
            const double down = loss(&toy);
            inputs[t][i] = was;
            worst = fmax(worst, fabs((up - down) / (2 * step) - gradients[t][i]));
        }
    return worst;
}

// P comes back from one number a row, without maximum or sum.
START_TEST(p_from_lse) {
    const Toy toy = lesson_toy();
    const Forward f = forward(&toy);
    expect(f.o[0], 2.5);
    expect(f.o[1], 3.25);
    expect(f.lse[0], log(8));
    expect(f.lse[1], log(4));
    for (int j = 0; j < KEYS; j++) {
        expect(exp(score(&toy, 0, j) - f.lse[0]), (double[]){1, 1, 4, 2}[j] / 8);
        expect(exp(score(&toy, 1, j) - f.lse[1]), 0.25);
    }
}
END_TEST

// The lesson's table.
START_TEST(gradients_by_hand) {
    const Toy toy = lesson_toy();
    const Gradients g = recompute(&toy, 1);
    const double dv[KEYS] = {5.0 / 8, 5.0 / 8, 1, 6.0 / 8};
    const double dk[KEYS] = {3.5 / 8, -0.5 / 8, -6.0 / 8, 3.0 / 8};
    for (int j = 0; j < KEYS; j++) {
        expect(g.dv[j], dv[j]);
        expect(g.dk[j], dk[j]);
    }
    expect(g.dq[0], -9.0 / 8 * log(2));  // (-6 · 2 + 3 · 1) ln 2 / 8
    expect(g.dq[1], -15.0 / 8 * log(2)); // (-9 · 2 + 3 · 1) ln 2 / 8
}
END_TEST

// D_i = Σ_j P_ij dP_ij = dO_i · O_i.
START_TEST(d_is_a_dot_product) {
    const Toy toy = lesson_toy();
    const Forward f = forward(&toy);
    for (int i = 0; i < QUERIES; i++) {
        double sum = 0;
        for (int j = 0; j < KEYS; j++)
            sum += exp(score(&toy, i, j) - f.lse[i]) * toy.dout[i] * toy.v[j];
        expect(sum, toy.dout[i] * f.o[i]);
        expect(sum, (double[]){2.5, 6.5}[i]);
    }
}
END_TEST

START_TEST(recomputed_is_standard) {
    const Toy toy = lesson_toy();
    const Gradients a = standard(&toy), b = recompute(&toy, 1);
    for (int i = 0; i < QUERIES; i++) expect(a.dq[i], b.dq[i]);
    for (int j = 0; j < KEYS; j++) {
        expect(a.dk[j], b.dk[j]);
        expect(a.dv[j], b.dv[j]);
    }
}
END_TEST

START_TEST(gradients_are_the_slope) {
    const Toy toy = lesson_toy();
    const Gradients g = recompute(&toy, 1);
    ck_assert_double_lt(distance_from_slope(toy, &g), 1e-8);
}
END_TEST

// With a cap, dS needs the factor 1 - tanh²; without it the gradients are no slope any more.
START_TEST(softcap_needs_its_slope) {
    Toy toy = lesson_toy();
    toy.softcap = 1;
    const Gradients with = recompute(&toy, 1), without = recompute(&toy, 0);
    ck_assert_double_lt(distance_from_slope(toy, &with), 1e-8);
    ck_assert_double_gt(distance_from_slope(toy, &without), 0.1);
}
END_TEST

// fp32 sums depend on the order: 2^24 + 1 is 2^24 again.
START_TEST(order_changes_a_sum) {
    volatile float big = 16777216, one = 1, first, last;
    first = big + one;
    first = first - big;
    last = big - big;
    last = last + one;
    ck_assert(first == 0);
    ck_assert(last == 1);
}
END_TEST

// The memory table: FlashAttention's configuration, in bytes.
START_TEST(memory_table) {
    const int64_t heads = 64 * 16, seqlen = 1024, head_dim = 64, megabyte = 1 << 20;
    const int64_t matrix = heads * seqlen * seqlen * 2, dq_sums = heads * seqlen * head_dim * 4;
    const int64_t row = heads * seqlen * 4;
    ck_assert_int_eq(matrix, 2048 * megabyte);
    ck_assert_int_eq(dq_sums, 256 * megabyte);
    ck_assert_int_eq(row, 4 * megabyte);
    expect((double)(3 * matrix + row) / (double)(dq_sums + row), 6148.0 / 260);
}
END_TEST

// Products of a forward and a backward: 2 + 4, and one more for S again.
START_TEST(products) {
    const double standard_products = 2 + 4, recompute_products = 2 + 5;
    expect(recompute_products / standard_products, 7.0 / 6);
}
END_TEST

Suite *suite_toy_backward(void) {
    Suite *suite = suite_create("toy: chapter 4");
    TCase *tests = tcase_create("toy_backward");
    tcase_add_test(tests, p_from_lse);
    tcase_add_test(tests, gradients_by_hand);
    tcase_add_test(tests, d_is_a_dot_product);
    tcase_add_test(tests, recomputed_is_standard);
    tcase_add_test(tests, gradients_are_the_slope);
    tcase_add_test(tests, softcap_needs_its_slope);
    tcase_add_test(tests, order_changes_a_sum);
    tcase_add_test(tests, memory_table);
    tcase_add_test(tests, products);
    suite_add_tcase(suite, tests);
    return suite;
}
