// The toy examples of the lessons of chapters 1 to 3, computed as the lessons say.
//
// One query, four keys in two blocks, head_dim 1, scale 1:
//
//     q = 1     k = (0, 0 | ln 4, ln 2)     v = (6, 2 | 1, 4)
//     e^s = (1, 1 | 4, 2)     denominator 8     o = 20 / 8 = 2.5     lse = ln 8
#include <check.h>
#include <math.h>
#include <stdint.h>

enum { KEYS = 4, BLOCK = 2 };

typedef struct {
    double s[KEYS], v[KEYS];
} Toy;

// What a way to compute attention gives; row_max and row_sum are its m and l.
typedef struct {
    double o, row_max, row_sum;
} Answer;

static Toy lesson_toy(void) {
    return (Toy){{0, 0, log(4), log(2)}, {6, 2, 1, 4}};
}

// Chapter 1: the whole row at once.
static Answer standard(const Toy *toy) {
    Answer a = {0, -INFINITY, 0};
    for (int j = 0; j < KEYS; j++) a.row_max = fmax(a.row_max, toy->s[j]);
    for (int j = 0; j < KEYS; j++) a.row_sum += exp(toy->s[j] - a.row_max);
    for (int j = 0; j < KEYS; j++) a.o += exp(toy->s[j] - a.row_max) / a.row_sum * toy->v[j];
    return a;
}

// Softmax over one block alone: its maximum, denominator and normalised output.
static Answer one_block(const Toy *toy, int first) {
    Answer a = {0, -INFINITY, 0};
    for (int j = first; j < first + BLOCK; j++) a.row_max = fmax(a.row_max, toy->s[j]);
    for (int j = first; j < first + BLOCK; j++) {
        a.row_sum += exp(toy->s[j] - a.row_max);
        a.o += exp(toy->s[j] - a.row_max) * toy->v[j];
    }
    a.o /= a.row_sum;
    return a;
}

// Chapter 2, wrong: the average of the blocks' own softmaxes.
static double first_attempt(const Toy *toy) {
    return (one_block(toy, 0).o + one_block(toy, BLOCK).o) / 2;
}

// Chapter 2: maximum and denominator in a first pass, the output in a second.
static Answer two_pass(const Toy *toy) {
    Answer a = {0, -INFINITY, 0};
    for (int first = 0; first < KEYS; first += BLOCK) {
        const Answer block = one_block(toy, first);
        const double new_max = fmax(a.row_max, block.row_max);
        a.row_sum =
            a.row_sum * exp(a.row_max - new_max) + block.row_sum * exp(block.row_max - new_max);
        a.row_max = new_max;
    }
    for (int j = 0; j < KEYS; j++) a.o += exp(toy->s[j] - a.row_max) / a.row_sum * toy->v[j];
    return a;
}

// What a later block does to the output so far.
typedef enum {
    NORMALISED,         // o is normalised,   alpha = l e^(m - m_new) / l_new
    UNNORMALISED,       // o is unnormalised, alpha = e^(m - m_new), divided at the end
    MIXTURE,            // o starts unnormalised, yet alpha is the normalised form's
    WITHOUT_MAX_FACTOR, // the normalised form without e^(m - m_new), in alpha and in l_new
} Form;

// Chapter 3: one pass. The first block starts the sums, the second corrects them.
static Answer one_pass(const Toy *toy, Form form) {
    Answer a = {0, -INFINITY, 0};
    for (int first = 0; first < KEYS; first += BLOCK) {
        double new_max = a.row_max, block_sum = 0, block_o = 0;
        for (int j = first; j < first + BLOCK; j++) new_max = fmax(new_max, toy->s[j]);
        for (int j = first; j < first + BLOCK; j++) {
            block_sum += exp(toy->s[j] - new_max);
            block_o += exp(toy->s[j] - new_max) * toy->v[j];
        }
        const double max_factor =
            form == WITHOUT_MAX_FACTOR && first > 0 ? 1 : exp(a.row_max - new_max);
        const double new_sum = a.row_sum * max_factor + block_sum;
        if (form == UNNORMALISED) {
            a.o = a.o * max_factor + block_o;
        } else if (form == MIXTURE && first == 0) {
            a.o = block_o;
        } else {
            a.o = a.o * (a.row_sum * max_factor / new_sum) + block_o / new_sum;
        }
        a.row_max = new_max;
        a.row_sum = new_sum;
    }
    if (form == UNNORMALISED) a.o /= a.row_sum;
    return a;
}

static void expect(double got, double expected) {
    ck_assert_double_eq_tol(got, expected, 1e-12);
}

START_TEST(chapter_1_forward) {
    const Toy toy = lesson_toy();
    const Answer a = standard(&toy);
    expect(a.o, 2.5);
    expect(a.row_sum, 2);
    expect(a.row_max + log(a.row_sum), log(8));
}
END_TEST

// dO = 1: dV = P, dP = v, D = o, and dS = P (v - 2.5), whose sum is 0.
START_TEST(chapter_1_backward) {
    const Toy toy = lesson_toy();
    const double expected[KEYS] = {3.5 / 8, -0.5 / 8, -6.0 / 8, 3.0 / 8};
    const Answer a = standard(&toy);
    double sum = 0, row_dot = 0;
    for (int j = 0; j < KEYS; j++) {
        const double p = exp(toy.s[j] - a.row_max) / a.row_sum;
        expect(p, (double[]){1, 1, 4, 2}[j] / 8);
        expect(p * (toy.v[j] - a.o), expected[j]);
        sum += p * (toy.v[j] - a.o);
        row_dot += p * toy.v[j];
    }
    expect(sum, 0);
    expect(row_dot, a.o); // Σ P dP = dO · O
}
END_TEST

// The derivative by differences says the same.
START_TEST(chapter_1_backward_is_the_slope) {
    const double expected[KEYS] = {3.5 / 8, -0.5 / 8, -6.0 / 8, 3.0 / 8};
    for (int j = 0; j < KEYS; j++) {
        Toy up = lesson_toy(), down = lesson_toy();
        up.s[j] += 1e-5;
        down.s[j] -= 1e-5;
        ck_assert_double_eq_tol((standard(&up).o - standard(&down).o) / 2e-5, expected[j], 1e-8);
    }
}
END_TEST

// "S is 8 MB where Q is 0.5 MB": heads 4, seqlen 1024, head_dim 64, fp16.
START_TEST(chapter_1_bytes) {
    const int64_t heads = 4, seqlen = 1024, head_dim = 64, fp16 = 2, megabyte = 1 << 20;
    ck_assert_int_eq(heads * seqlen * seqlen * fp16, 8 * megabyte);
    ck_assert_int_eq(2 * heads * seqlen * head_dim * fp16, megabyte);
}
END_TEST

START_TEST(chapter_2_first_attempt_is_wrong) {
    const Toy toy = lesson_toy();
    expect(one_block(&toy, 0).o, 4);
    expect(one_block(&toy, BLOCK).o, 2);
    expect(first_attempt(&toy), 3);
    expect((2 * 4 + 6 * 2) / 8.0, 2.5); // the blocks weighted by their denominators
}
END_TEST

START_TEST(chapter_2_two_pass) {
    const Toy toy = lesson_toy();
    const Answer a = two_pass(&toy);
    expect(a.o, 2.5);
    expect(a.row_max, log(4));
    expect(a.row_sum, 2); // 2 · 1/4 + 1.5
}
END_TEST

// Reads from shared memory per multiply-add: 2 alone, 16 for 64 in an 8 x 8 piece; and a clock's 32
// numbers feed an SM's 128 multiply-adds just so.
START_TEST(chapter_2_reuse) {
    const double piece = 8;
    expect((piece + piece) / (piece * piece), 0.25);
    expect(32.0 / 128, 0.25);
}
END_TEST

START_TEST(chapter_3_normalised) {
    const Toy toy = lesson_toy();
    const Answer a = one_pass(&toy, NORMALISED);
    expect(a.o, 2.5);
    expect(a.row_sum, 2);
    const double alpha = 2 * exp(0 - log(4)) / 2; // l e^(m - m_new) / l_new
    expect(alpha, 0.25);
    expect(4 * alpha + (1 * 1 + 0.5 * 4) / 2, 2.5);
}
END_TEST

START_TEST(chapter_3_unnormalised) {
    const Toy toy = lesson_toy();
    expect(one_pass(&toy, UNNORMALISED).o, 2.5);
    expect((8 * 0.25 + 3) / 2, 2.5);
}
END_TEST

// The normalised form's factor on an unnormalised output: 8 · 1/4 + 3/2.
START_TEST(chapter_3_mixture_is_wrong) {
    const Toy toy = lesson_toy();
    expect(one_pass(&toy, MIXTURE).o, 3.5);
}
END_TEST

// l_new = 2 + 1.5 = 3.5, o = 4 · 2/3.5 + 3/3.5
START_TEST(chapter_3_denominator_needs_the_factor_too) {
    const Toy toy = lesson_toy();
    const Answer a = one_pass(&toy, WITHOUT_MAX_FACTOR);
    expect(a.row_sum, 3.5);
    expect(a.o, 11 / 3.5);
}
END_TEST

// Both forms agree with the whole row for any scores, the mixture does not.
START_TEST(chapter_3_forms_agree_everywhere) {
    uint32_t state = 1;
    int mixture_wrong = 0;
    for (int round = 0; round < 1000; round++) {
        Toy toy;
        for (int j = 0; j < KEYS; j++) {
            state = state * 1664525u + 1013904223u;
            toy.s[j] = (state >> 8) % 2001 / 100.0 - 10;
            toy.v[j] = (state >> 20) % 101 / 10.0 - 5;
        }
        const Answer whole = standard(&toy);
        expect(two_pass(&toy).o, whole.o);
        expect(one_pass(&toy, NORMALISED).o, whole.o);
        expect(one_pass(&toy, UNNORMALISED).o, whole.o);
        mixture_wrong += fabs(one_pass(&toy, MIXTURE).o - whole.o) > 1e-6;
    }
    ck_assert_int_gt(mixture_wrong, 500);
}
END_TEST

Suite *suite_toy(void) {
    Suite *suite = suite_create("toy examples of the lessons");
    TCase *tests = tcase_create("toy");
    tcase_add_test(tests, chapter_1_forward);
    tcase_add_test(tests, chapter_1_backward);
    tcase_add_test(tests, chapter_1_backward_is_the_slope);
    tcase_add_test(tests, chapter_1_bytes);
    tcase_add_test(tests, chapter_2_first_attempt_is_wrong);
    tcase_add_test(tests, chapter_2_two_pass);
    tcase_add_test(tests, chapter_2_reuse);
    tcase_add_test(tests, chapter_3_normalised);
    tcase_add_test(tests, chapter_3_unnormalised);
    tcase_add_test(tests, chapter_3_mixture_is_wrong);
    tcase_add_test(tests, chapter_3_denominator_needs_the_factor_too);
    tcase_add_test(tests, chapter_3_forms_agree_everywhere);
    suite_add_tcase(suite, tests);
    return suite;
}
