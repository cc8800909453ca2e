// The toy examples of chapter 3's tensor-core lessons, computed as the lessons say: fragments, the
// swizzle, the softmax in base 2, the tiles that a device has room for.
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "device/swizzle.h"
#include "device/tile_choice.h"

enum { LANES = 32 };
static const int head_dims[] = {64, 96, 128, 192, 256};
enum { HEAD_DIMS = sizeof head_dims / sizeof head_dims[0] };

// ---- fragments of mma.sync m16n8k16, by the rules that PTX states

typedef struct {
    int row, column;
} Place;

// Number i (0 or 1) of register r of operand A, 16 x 16.
static Place place_in_a(int lane, int r, int i) {
    return (Place){lane / 4 + r % 2 * 8, lane % 4 * 2 + i + r / 2 * 8};
}

// Number i of register r of operand B, 16 x 8.
static Place place_in_b(int lane, int r, int i) {
    return (Place){lane % 4 * 2 + i + r * 8, lane / 4};
}

// Number i (0 to 3) of the result D, 16 x 8.
static Place place_in_d(int lane, int i) {
    return (Place){lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2};
}

// The lesson's question: where do row 9's columns 4 and 5 of S live?
START_TEST(test_lesson_places) {
    const Place first = place_in_d(6, 2), second = place_in_d(6, 3);
    ck_assert_int_eq(first.row, 9);
    ck_assert_int_eq(first.column, 4);
    ck_assert_int_eq(second.row, 9);
    ck_assert_int_eq(second.column, 5);
}
END_TEST

// Every element of every operand has one lane, and one only.
START_TEST(test_fragments_cover) {
    int a[16][16] = {{0}}, b[16][8] = {{0}}, d[16][8] = {{0}};
    for (int lane = 0; lane < LANES; lane++) {
        for (int n = 0; n < 8; n++) {
            const Place p = place_in_a(lane, n / 2, n % 2);
            a[p.row][p.column]++;
        }
        for (int n = 0; n < 4; n++) {
            const Place p = place_in_b(lane, n / 2, n % 2), q = place_in_d(lane, n);
            b[p.row][p.column]++;
            d[q.row][q.column]++;
        }
    }
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 16; column++) {
            ck_assert_int_eq(a[row][column], 1);
            if (column < 8) ck_assert_int_eq(b[row][column], 1);
            if (column < 8) ck_assert_int_eq(d[row][column], 1);
        }
}
END_TEST

// Two pieces of S, packed as weights_operand packs them, are an operand A: same lane, same place.
START_TEST(test_p_stays_in_registers) {
    for (int lane = 0; lane < LANES; lane++)
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < 2; i++) {
                const int piece = r / 2, number = r % 2 * 2 + i; // left[0 1 2 3], right[0 1 2 3]
                const Place s = place_in_d(lane, number), p = place_in_a(lane, r, i);
                ck_assert_int_eq(s.row, p.row);
                ck_assert_int_eq(s.column + piece * 8, p.column);
            }
}
END_TEST

// ldmatrix hands lane L of matrix j the numbers 2 (L % 4), 2 (L % 4) + 1 of row L / 4; transposed,
// of column L / 4. With the rows that the kernel names these are the operands of mma.sync.
START_TEST(test_rows_that_ldmatrix_is_given) {
    for (int lane = 0; lane < LANES; lane++)
        for (int j = 0; j < 4; j++)
            for (int i = 0; i < 2; i++) {
                // Row `at` of matrix j is named by lane 8 j + at.
                const int source = 8 * j + lane / 4, number = lane % 4 * 2 + i;
                const int q_row = source % 16, q_column = source / 16 * 8 + number;
                const Place a = place_in_a(lane, j, i);
                ck_assert_int_eq(q_row, a.row);
                ck_assert_int_eq(q_column, a.column);

                const int key = source / 16 * 8 + source % 8;
                const int k_column = source / 8 % 2 * 8 + number;
                const Place k = place_in_b(lane, j % 2, i);
                ck_assert_int_eq(key, k.column + j / 2 * 8); // a column of Kᵀ is a key
                ck_assert_int_eq(k_column, k.row);

                const int v_source = 8 * j + number; // transposed: the number picks the row
                const int v_key = v_source % 16, v_column = v_source / 16 * 8 + lane / 4;
                const Place v = place_in_b(lane, j % 2, i);
                ck_assert_int_eq(v_key, v.row);
                ck_assert_int_eq(v_column, v.column + j / 2 * 8);
            }
}
END_TEST

// ---- the swizzle

// Which of the eight groups of four banks a piece of 16 bytes lies in.
static int bank_group(int head_dim, int row, int place) {
    return (row * (head_dim / 8) + place) % 8;
}

// How many of eight pieces lie in the same group of banks at most: 1 is no conflict.
static int most_in_a_group(const int groups[8]) {
    int count[8] = {0}, most = 0;
    for (int i = 0; i < 8; i++) most = ++count[groups[i]] > most ? count[groups[i]] : most;
    return most;
}

// The lesson's 8 x 8 table: piece p of row r stands at p ^ r.
START_TEST(test_lesson_swizzle) {
    static const int third_row[8] = {3, 2, 1, 0, 7, 6, 5, 4};
    for (int piece = 0; piece < 8; piece++) {
        ck_assert_int_eq(swizzled_piece(64, 0, piece), piece);
        ck_assert_int_eq(swizzled_piece(64, 3, piece), third_row[piece]);
    }
    int down[8], down_plain[8];
    for (int row = 0; row < 8; row++) {
        down[row] = swizzled_piece(64, row, 2);
        down_plain[row] = 2;
        ck_assert_int_eq(down[row], 2 ^ row);
    }
    ck_assert_int_eq(most_in_a_group(down), 1);
    ck_assert_int_eq(most_in_a_group(down_plain), 8);
}
END_TEST

START_TEST(test_swizzle_stays_in_its_row) {
    for (int h = 0; h < HEAD_DIMS; h++)
        for (int row = 0; row < 128; row++)
            for (int piece = 0; piece < head_dims[h] / 8; piece++) {
                const int place = swizzled_piece(head_dims[h], row, piece);
                ck_assert_int_ge(place, 0);
                ck_assert_int_lt(place, head_dims[h] / 8);
                ck_assert_int_eq(swizzled_piece(head_dims[h], row, place), piece);
            }
}
END_TEST

// Eight rows of one piece (ldmatrix) and eight pieces side by side (the copy) meet all banks.
START_TEST(test_swizzle_has_no_conflicts) {
    for (int h = 0; h < HEAD_DIMS; h++) {
        const int d = head_dims[h], pieces = d / 8;
        for (int row = 0; row < 128; row += 8)
            for (int piece = 0; piece < pieces; piece++) {
                int groups[8], plain[8];
                for (int r = 0; r < 8; r++) {
                    groups[r] = bank_group(d, row + r, swizzled_piece(d, row + r, piece));
                    plain[r] = bank_group(d, row + r, piece);
                }
                ck_assert_int_eq(most_in_a_group(groups), 1);
                ck_assert_int_eq(most_in_a_group(plain), d == 96 ? 4 : 8);
            }
        for (int first = 0; first < 128 * pieces; first += 8) {
            int groups[8];
            for (int i = 0; i < 8; i++) {
                const int row = (first + i) / pieces, piece = (first + i) % pieces;
                groups[i] = bank_group(d, row, swizzled_piece(d, row, piece));
            }
            ck_assert_int_eq(most_in_a_group(groups), 1);
        }
    }
}
END_TEST

// A lane's row moved by whole operands is the row named afresh.
START_TEST(test_lane_rows_move) {
    for (int h = 0; h < HEAD_DIMS; h++)
        for (int row = 0; row < 16; row++)
            for (int column = 0; column <= 8; column += 8) {
                const int lane = lane_row(head_dims[h], row, column);
                for (int down = 0; down < 64; down += 8)
                    for (int right = 0; right < head_dims[h]; right += 16)
                        ck_assert_int_eq(lane_row_at(head_dims[h], lane, down, right),
                                         swizzled_offset(head_dims[h], row + down, column + right));
            }
}
END_TEST

// ---- the softmax in base 2

// The lesson's toy with c = log2(e): c x = (0, 0 | 2, 1), weights 1/4, 1/4, 1, 1/2.
START_TEST(test_lesson_base_2) {
    const double x[4] = {0, 0, log(4), log(2)}, v[4] = {6, 2, 1, 4}, c = 1 / log(2);
    double row_max = -INFINITY, row_sum = 0, o = 0;
    for (int first = 0; first < 4; first += 2) {
        const double new_max = fmax(row_max, c * fmax(x[first], x[first + 1]));
        const double rescale = exp2(row_max - new_max);
        row_sum *= rescale;
        o *= rescale;
        for (int j = first; j < first + 2; j++) {
            row_sum += exp2(c * x[j] - new_max);
            o += exp2(c * x[j] - new_max) * v[j];
        }
        row_max = new_max;
        if (first == 0) ck_assert_double_eq_tol(row_sum, 2, 1e-12);
    }
    ck_assert_double_eq_tol(row_max, 2, 1e-12);
    ck_assert_double_eq_tol(row_sum, 2, 1e-12);
    ck_assert_double_eq_tol(o / row_sum, 2.5, 1e-12);
    ck_assert_double_eq_tol((row_max + log2(row_sum)) * log(2), log(8), 1e-12);
}
END_TEST

// A lane's part of l may wait for the others until the end: rescaling is linear.
START_TEST(test_lesson_late_sum) {
    const double x[4] = {0, 0, 2,
                         1}; // c x; lane 0 holds the first of each block, lane 1 the second
    double lane_sum[2] = {0, 0}, row_max = -INFINITY;
    for (int first = 0; first < 4; first += 2) {
        const double new_max = fmax(row_max, fmax(x[first], x[first + 1]));
        for (int lane = 0; lane < 2; lane++)
            lane_sum[lane] =
                lane_sum[lane] * exp2(row_max - new_max) + exp2(x[first + lane] - new_max);
        row_max = new_max;
    }
    ck_assert_double_eq_tol(lane_sum[0], 1.25, 1e-12);
    ck_assert_double_eq_tol(lane_sum[1], 0.75, 1e-12);
    ck_assert_double_eq_tol(lane_sum[0] + lane_sum[1], 2, 1e-12);
}
END_TEST

// With a scale below zero the largest product is the smallest score: the scale's sign must come
// before the maximum, its size may come after. Products (1, 300), scale -1: scores (-1, -300).
START_TEST(test_lesson_negative_scale) {
    const float product[2] = {1, 300}, factor = 1.44269504f;
    const float careless = exp2f(product[0] * -factor - fmaxf(product[0], product[1]) * -factor);
    ck_assert(isinf(careless));
    const float careful = exp2f(-product[0] * factor - fmaxf(-product[0], -product[1]) * factor);
    ck_assert_float_eq(careful, 1);
}
END_TEST

// 1 - 2 / (1 + e^2x) is tanh x within 2e-7, at the ends too.
START_TEST(test_tanh_by_exp2) {
    for (int i = -4000; i <= 4000; i++) {
        const float x = (float)i * 0.05f, e = exp2f(x * 2.88539008f);
        ck_assert_float_eq_tol(fmaf(-2, 1 / (1 + e), 1), tanhf(x), 2e-7f);
    }
}
END_TEST

// ---- tiles

// Shared memory that a block may have, by capability: 8.6 and 8.9, 8.0, 9.0 and 10.0.
START_TEST(test_tiles_fit_every_device) {
    static const int limits[] = {99 * 1024, 163 * 1024, 227 * 1024};
    for (int l = 0; l < 3; l++)
        for (int h = 0; h < HEAD_DIMS; h++) {
            const int d = head_dims[h], buffers = d <= 128 ? 2 : 1;
            const int keys = keys_that_fit(d, buffers, limits[l]);
            ck_assert_int_ge(keys, 32);
            ck_assert_int_le(TENSOR_TILE_BYTES(d, keys, buffers), limits[l]);
            // Only head_dim 256 on the smallest must do with fewer keys.
            ck_assert_int_eq(keys, d == 256 && l == 0 ? 32 : 64);
            // What the launch takes for granted, it need not ask the device.
            if (TENSOR_TILE_BYTES(d, 64, buffers) <= LEAST_SHARED_BYTES)
                ck_assert_int_eq(keys_that_fit(d, buffers, LEAST_SHARED_BYTES), 64);
        }
    ck_assert_int_eq(keys_that_fit(256, 2, 99 * 1024), 0);
    ck_assert_int_eq(TENSOR_TILE_BYTES(128, 64, 2), 96 * 1024);
}
END_TEST

Suite *suite_toy_tensor_cores(void);
Suite *suite_toy_tensor_cores(void) {
    Suite *suite = suite_create("chapter 3's tensor-core toys");
    TCase *fragments = tcase_create("fragments");
    tcase_add_test(fragments, test_lesson_places);
    tcase_add_test(fragments, test_fragments_cover);
    tcase_add_test(fragments, test_p_stays_in_registers);
    tcase_add_test(fragments, test_rows_that_ldmatrix_is_given);
    suite_add_tcase(suite, fragments);
    TCase *swizzle = tcase_create("swizzle");
    tcase_add_test(swizzle, test_lesson_swizzle);
    tcase_add_test(swizzle, test_swizzle_stays_in_its_row);
    tcase_add_test(swizzle, test_swizzle_has_no_conflicts);
    tcase_add_test(swizzle, test_lane_rows_move);
    suite_add_tcase(suite, swizzle);
    TCase *softmax = tcase_create("base 2");
    tcase_add_test(softmax, test_lesson_base_2);
    tcase_add_test(softmax, test_lesson_late_sum);
    tcase_add_test(softmax, test_lesson_negative_scale);
    tcase_add_test(softmax, test_tanh_by_exp2);
    suite_add_tcase(suite, softmax);
    TCase *tiles = tcase_create("tiles");
    tcase_add_test(tiles, test_tiles_fit_every_device);
    suite_add_tcase(suite, tiles);
    return suite;
}
