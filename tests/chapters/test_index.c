// The kernels' index arithmetic and masks (common/device/index.h, mask.h), at sizes that no memory
// holds. Names with f34 and the like are the edge cases that other implementations met.
#include <check.h>
#include <stdbool.h>

#include "device/index.h"
#include "device/mask.h"

// The definition, key by key.
static bool sees(int64_t i, int64_t j, int64_t seqlen_q, int64_t seqlen_k, int64_t left,
                 int64_t right) {
    const int64_t diagonal = i + seqlen_k - seqlen_q;
    return (left < 0 || j >= diagonal - left) && (right < 0 || j <= diagonal + right);
}

START_TEST(mask_is_its_definition) {
    int wrong = 0;
    for (int64_t seqlen_q = 1; seqlen_q <= 9; seqlen_q++)
        for (int64_t seqlen_k = 0; seqlen_k <= 9; seqlen_k++)
            for (int64_t left = -1; left <= 10; left++)
                for (int64_t right = -1; right <= 10; right++)
                    for (int64_t i = 0; i < seqlen_q; i++) {
                        const KeyRange keys = visible_keys(i, seqlen_q, seqlen_k, left, right);
                        wrong += keys.begin < 0 || keys.begin > keys.end || keys.end > seqlen_k;
                        for (int64_t j = 0; j < seqlen_k; j++)
                            wrong += (keys.begin <= j && j < keys.end) !=
                                     sees(i, j, seqlen_q, seqlen_k, left, right);
                    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

START_TEST(f1_causal_is_aligned_to_the_bottom_right) {
    for (int64_t i = 0; i < 3; i++) ck_assert_int_eq(visible_keys(i, 5, 2, -1, 0).end, 0);
    ck_assert_int_eq(visible_keys(3, 5, 2, -1, 0).end, 1);
    ck_assert_int_eq(visible_keys(0, 2, 5, -1, 0).end, 4);
    ck_assert_int_eq(visible_keys(1, 2, 5, -1, 0).end, 5);
}
END_TEST

START_TEST(f6_window_of_all_but_one_is_causal) {
    const int64_t seqlen = 33;
    for (int64_t i = 0; i < seqlen; i++)
        for (int64_t left = seqlen - 1; left <= seqlen; left++) {
            const KeyRange window = visible_keys(i, seqlen, seqlen, left, 0);
            const KeyRange causal = visible_keys(i, seqlen, seqlen, -1, 0);
            ck_assert(window.begin == causal.begin && window.end == causal.end);
        }
}
END_TEST

START_TEST(windows_too_large_to_add_do_not_overflow) {
    const KeyRange keys =
        visible_keys(INT64_C(1) << 40, INT64_C(1) << 41, 1 << 20, INT64_MAX, INT64_MAX);
    ck_assert(keys.begin == 0 && keys.end == 1 << 20);
    ck_assert_int_eq(visible_keys(0, INT32_MAX, 1, INT64_MAX, 0).end, 0);
}
END_TEST

START_TEST(tile_ranges_cover_their_rows) {
    const int64_t seqlen_q = 13, seqlen_k = 11;
    int wrong = 0;
    for (int64_t left = -1; left <= 14; left++)
        for (int64_t right = -1; right <= 14; right++)
            for (int64_t first = 0; first < seqlen_q; first++)
                for (int64_t last = first; last < seqlen_q; last++) {
                    const KeyRange any =
                        keys_seen_by_any(first, last, seqlen_q, seqlen_k, left, right);
                    const KeyRange all =
                        keys_seen_by_all(first, last, seqlen_q, seqlen_k, left, right);
                    for (int64_t j = 0; j < seqlen_k; j++) {
                        int count = 0;
                        for (int64_t i = first; i <= last; i++)
                            count += sees(i, j, seqlen_q, seqlen_k, left, right);
                        const bool in_any = any.begin <= j && j < any.end;
                        const bool in_all = all.begin <= j && j < all.end;
                        wrong += count > 0 && !in_any;
                        wrong += in_all != (count == last - first + 1);
                    }
                }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

START_TEST(f34_offsets_past_2_to_the_31) {
    // batch 15,000, 8 heads, 129 rows padded to 256, head_dim 64
    ck_assert(row_offset(14999, 255, 7, 256, 8, 64) == (INT64_C(14999) * 256 + 255) * 512 + 448);
    ck_assert(vector_offset(65535, 63, 1023, 64, 1024) == (INT64_C(1) << 32) - 1);
}
END_TEST

START_TEST(f35_long_and_many) {
    ck_assert(row_offset(1599, 728, 15, 729, 16, 72) == INT64_C(1600) * 729 * 16 * 72 - 72);
    ck_assert(row_offset(0, (INT64_C(1) << 30), 0, INT64_C(1) << 31, 1, 64) == INT64_C(1) << 36);
    ck_assert(row_offset(31, 349999, 31, 350000, 32, 128) == INT64_C(32) * 350000 * 32 * 128 - 128);
    ck_assert(matrix_offset(0, 1, 0, 2, 262144, 262144) == INT64_C(1) << 36);
}
END_TEST

START_TEST(f36_tiles_of_huge_lengths) {
    ck_assert(tiles_of(INT64_MAX, 64) == INT64_MAX / 64 + 1);
    ck_assert(tiles_of(0, 64) == 0 && tiles_of(1, 64) == 1);
    ck_assert(tiles_of(64, 64) == 1 && tiles_of(65, 64) == 2);
}
END_TEST

// 65,536 batches of one head don't fit in gridDim.y; in gridDim.x they do, each block once.
START_TEST(f37_batch_and_heads_beyond_65535) {
    const int batch = 65536, heads = 3;
    const int64_t tiles = 2;
    uint32_t block = 0;
    for (int b = 0; b < batch; b++)
        for (int h = 0; h < heads; h++)
            for (int64_t t = 0; t < tiles; t++, block++) {
                const BlockWork work = block_work(block, tiles, heads);
                if (work.batch != b || work.head != h || work.tile != t)
                    ck_abort_msg("block %u is batch %d, head %d, tile %ld", block, work.batch,
                                 work.head, (long)work.tile);
            }
    const BlockWork last = block_work(MAX_GRID_BLOCKS - 1, MAX_GRID_BLOCKS, 1);
    ck_assert(last.tile == MAX_GRID_BLOCKS - 1 && last.head == 0 && last.batch == 0);
}
END_TEST

START_TEST(f13_neighbouring_query_heads_share_a_kv_head) {
    const int expected[6] = {0, 0, 0, 1, 1, 1};
    for (int head = 0; head < 6; head++) ck_assert_int_eq(kv_head_of(head, 6, 2), expected[head]);
    for (int head = 0; head < 6; head++) ck_assert_int_eq(kv_head_of(head, 6, 6), head);
}
END_TEST

Suite *suite_index(void) {
    Suite *suite = suite_create("index arithmetic of the kernels");
    TCase *tests = tcase_create("index");
    tcase_add_test(tests, mask_is_its_definition);
    tcase_add_test(tests, f1_causal_is_aligned_to_the_bottom_right);
    tcase_add_test(tests, f6_window_of_all_but_one_is_causal);
    tcase_add_test(tests, windows_too_large_to_add_do_not_overflow);
    tcase_add_test(tests, tile_ranges_cover_their_rows);
    tcase_add_test(tests, f34_offsets_past_2_to_the_31);
    tcase_add_test(tests, f35_long_and_many);
    tcase_add_test(tests, f36_tiles_of_huge_lengths);
    tcase_add_test(tests, f37_batch_and_heads_beyond_65535);
    tcase_add_test(tests, f13_neighbouring_query_heads_share_a_kv_head);
    suite_add_tcase(suite, tests);
    return suite;
}
