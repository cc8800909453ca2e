// Which CTAs stand for a grid when only some SMs are simulated.
#include <check.h>

#include "softgpu/machine/sample.h"

Suite *suite_sample(void);

// How many CTAs run, and the sum of `row_length` rows' work of them: 1 … row_length along each row.
static uint64_t count(const Sample *s, uint64_t row_length, uint64_t *work) {
    uint64_t ran = 0;
    *work = 0;
    for (uint64_t k = sample_next(s, 0); k < s->grid; k = sample_next(s, k + 1)) {
        ck_assert_uint_lt(k, s->grid);
        *work += k % row_length + 1;
        ran++;
    }
    return ran;
}

START_TEST(all_sms_run_all_blocks) {
    Sample s;
    uint64_t work;
    sample_choose(&s, 1000, 132, 132);
    ck_assert_uint_eq(count(&s, 10, &work), 1000);
    sample_choose(&s, 3, 4, 132); // fewer blocks than SMs that are simulated
    ck_assert_uint_eq(count(&s, 3, &work), 3);
    ck_assert(!sample_widen(&s, 1, 100));
}
END_TEST

// As many as were asked for, give or take a factor of 1.5, and never none.
START_TEST(a_sample_has_the_share_asked_for) {
    for (uint64_t grid = 5; grid < 5000; grid += 7) {
        for (int sample = 1; sample <= 4; sample++) {
            Sample s;
            uint64_t work, wanted = grid * (uint64_t)sample / 132;
            if (wanted < (uint64_t)sample) wanted = (uint64_t)sample;
            sample_choose(&s, grid, sample, 132);
            uint64_t ran = count(&s, 16, &work);
            ck_assert_msg(ran <= grid && 3 * ran >= 2 * wanted && 2 * ran <= 3 * wanted,
                          "%d of 132 SMs, %llu blocks: %llu run", sample, (unsigned long long)grid,
                          (unsigned long long)ran);
        }
    }
}
END_TEST

// Work that grows along each row of tiles is met exactly, wherever rows begin.
START_TEST(uneven_work_is_met_by_the_mirror_image) {
    for (uint64_t row = 2; row <= 100; row++) {
        for (int sample = 1; sample <= 8; sample++) {
            Sample s;
            uint64_t grid = 40 * row, work;
            sample_choose(&s, grid, sample, 132);
            sample_widen(&s, 1, row);
            uint64_t ran = count(&s, row, &work);
            ck_assert_msg(2 * work == ran * (row + 1), "rows of %llu, %d SMs: %llu blocks do %llu",
                          (unsigned long long)row, sample, (unsigned long long)ran,
                          (unsigned long long)work);
        }
    }
}
END_TEST

START_TEST(even_work_needs_no_mirror_image) {
    Sample s;
    uint64_t work;
    sample_choose(&s, 1280, 2, 132);
    ck_assert_uint_eq(count(&s, 16, &work), 16);
    ck_assert(!sample_widen(&s, 1000, 1100));
    ck_assert_uint_eq(count(&s, 16, &work), 16);
    ck_assert(sample_widen(&s, 1000, 2000));
    ck_assert_uint_eq(count(&s, 16, &work), 32);
    ck_assert(!sample_widen(&s, 1000, 2000));
}
END_TEST

// Sixteen tiles a head: the run is a whole head.
START_TEST(rows_of_tiles_stay_whole) {
    Sample s;
    sample_choose(&s, 1280, 2, 132);
    ck_assert_uint_eq(sample_next(&s, 0) % 16, 0);
    ck_assert_uint_gt(sample_next(&s, 0), 0);
}
END_TEST

START_TEST(counts_are_scaled_to_the_grid) {
    uint64_t executed[2] = {3, 5}, lanes[2] = {96, 160};
    Counters sum = {.executed = executed, .lanes = lanes, .shared_wavefronts = 7};
    CacheTraffic l2 = {.read_bytes = 32}, hbm = {.write_bytes = 64};
    sample_scale(80, 2, &sum, &l2, &hbm);
    ck_assert_uint_eq(executed[0], 240);
    ck_assert_uint_eq(lanes[1], 12800);
    ck_assert_uint_eq(sum.shared_wavefronts, 560);
    ck_assert_uint_eq(l2.read_bytes, 2560);
    ck_assert_uint_eq(hbm.write_bytes, 5120);
}
END_TEST

Suite *suite_sample(void) {
    Suite *s = suite_create("softgpu: sample");
    TCase *c = tcase_create("blocks");
    tcase_add_test(c, all_sms_run_all_blocks);
    tcase_add_test(c, a_sample_has_the_share_asked_for);
    tcase_add_test(c, uneven_work_is_met_by_the_mirror_image);
    tcase_add_test(c, even_work_needs_no_mirror_image);
    tcase_add_test(c, rows_of_tiles_stay_whole);
    tcase_add_test(c, counts_are_scaled_to_the_grid);
    suite_add_tcase(s, c);
    return s;
}
