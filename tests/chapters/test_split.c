// How chapter 9 shares out its work (09_decode/split.h), and into how many splits (heuristic.h), as
// integers. Names with f24 and the like are the edge cases that other implementations met.
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

#include "../../09_decode/heuristic.h"
#include "../../09_decode/split.h"

// ---- splits of keys

START_TEST(f24_every_block_of_keys_in_one_split) {
    int wrong = 0, empty = 0;
    for (int blocks = 0; blocks <= 60; blocks++)
        for (int splits = 1; splits <= blocks + 3 || splits <= 5; splits++) {
            int next = 0, least = blocks, most = 0;
            for (int split = 0; split < splits; split++) {
                const BlockRange range = split_blocks(blocks, split, splits);
                const int count = range.end - range.first;
                wrong += range.first != next || count < 0;
                next = range.end;
                empty += count == 0;
                if (count < least) least = count;
                if (count > most) most = count;
            }
            wrong += next != blocks || most > least + 1;
        }
    ck_assert_int_eq(wrong, 0);
    ck_assert_int_gt(empty, 100); // more splits than blocks
}
END_TEST

// The last key of the longest cache is in the last split's last block, and no number overflows.
START_TEST(splits_of_the_longest_cache) {
    const int keys = 64, seqlen_k = (int)MAX_DECODE_SEQLEN;
    int next = 0;
    for (int split = 0; split < MAX_SPLITS; split++) {
        const SplitKeys k = split_keys(0, 0, 1, seqlen_k, -1, 0, keys, split, MAX_SPLITS);
        ck_assert_int_eq(k.first, next);
        ck_assert_int_gt(k.end, k.first);
        next = k.end;
    }
    ck_assert_int_ge(next, seqlen_k);
    ck_assert_int_lt(next - keys, seqlen_k);
}
END_TEST

// Against each row's own keys: what any row sees is in some split, what is unmasked all rows see.
static int wrong_split_keys(int first, int last, int seqlen_q, int seqlen_k, int left, int right,
                            int keys, int splits) {
    int seen_by[80] = {0}, in_splits[160] = {0}, wrong = 0;
    for (int row = first; row <= last; row++) {
        const KeyRange seen = visible_keys(row, seqlen_q, seqlen_k, left, right);
        for (int64_t j = seen.begin; j < seen.end; j++) seen_by[j]++;
    }
    for (int split = 0; split < splits; split++) {
        const SplitKeys k =
            split_keys(first, last, seqlen_q, seqlen_k, left, right, keys, split, splits);
        wrong += k.first % keys != 0 || k.end < k.first;
        for (int j = k.first; j < k.end; j++) in_splits[j]++;
        for (int j = k.unmasked_from; j < k.unmasked_to; j++)
            wrong += seen_by[j] != last - first + 1;
    }
    for (int j = 0; j < seqlen_k; j++) wrong += in_splits[j] > 1 || (seen_by[j] && !in_splits[j]);
    for (int j = seqlen_k; j < 160; j++) wrong += in_splits[j] > 1;
    return wrong;
}

START_TEST(f50_splits_hold_what_the_rows_see) {
    static const int lengths[] = {0, 1, 7, 8, 9, 31, 64}, windows[] = {-1, 0, 3, 20, 70};
    int wrong = 0, tried = 0;
    for (int q = 1; q <= 6; q++)
        for (int k = 0; k < 7; k++)
            for (int left = 0; left < 5; left++)
                for (int right = 0; right < 5; right++)
                    for (int first = 0; first < q; first++)
                        for (int splits = 1; splits <= 9; splits += 2, tried++)
                            wrong += wrong_split_keys(first, q - 1, q, lengths[k], windows[left],
                                                      windows[right], 8, splits);
    ck_assert_int_eq(wrong, 0);
    ck_assert_int_eq(tried, 21 * 7 * 25 * 5);
}
END_TEST

// ---- packed rows

// Every (token, head) of a group in one row of one tile.
static int wrong_packing(int tokens, int group) {
    const int rows = decode_rows((int64_t)tokens * group);
    const int tiles = (int)packed_tiles(tokens, group, rows);
    int *count = calloc((size_t)tokens * group, sizeof *count), wrong = 0;
    ck_assert_ptr_nonnull(count);
    for (int tile = 0; tile < tiles; tile++)
        for (int row = tile * rows; row < (tile + 1) * rows && row < tokens * group; row++)
            count[row / group * group + row % group]++;
    for (int i = 0; i < tokens * group; i++) wrong += count[i] != 1;
    wrong += tiles > 1 && (tiles - 1) * rows >= tokens * group; // an empty tile
    free(count);
    return wrong;
}

START_TEST(f52_every_row_in_one_tile) {
    static const int groups[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 96};
    static const int tokens[] = {1, 2, 3, 4, 5, 16, 17, 64, 127};
    for (int g = 0; g < 11; g++)
        for (int t = 0; t < 9; t++) ck_assert_int_eq(wrong_packing(tokens[t], groups[g]), 0);
}
END_TEST

// The lecture's: 4 tokens of each of 16 query heads. Alone a head's fill a sixteenth of a
// wgmma's 64 rows; packed they fill a tile.
START_TEST(the_lectures_heads_fill_a_tile) {
    const int tokens = 4, group = 16, wgmma_rows = 64;
    ck_assert_double_eq((double)tokens / wgmma_rows, 0.0625);
    ck_assert_int_eq(decode_rows(tokens * group), 64);
    ck_assert_int_eq(packed_tiles(tokens, group, 64), 1); // all 64 rows of it
    ck_assert_int_eq(packed_tiles(tokens, group, 64) * 64, tokens * group);
}
END_TEST

START_TEST(blocks_count_splits_first) {
    const Plan plan = {.group = 4, .tiles = 3, .splits = 5};
    const int head_groups = 2, batch = 3;
    uint32_t block = 0;
    for (int b = 0; b < batch; b++)
        for (int h = 0; h < head_groups; h++)
            for (int tile = 0; tile < plan.tiles; tile++)
                for (int split = 0; split < plan.splits; split++, block++) {
                    const SplitPlace place = split_place(block, &plan, head_groups);
                    ck_assert(place.batch == b && place.head_group == h && place.tile == tile &&
                              place.split == split);
                }
}
END_TEST

// f37: the largest grid's last block, of more sequences than a gridDim.y or .z could count.
START_TEST(f37_the_last_block_of_the_largest_grid) {
    const Plan plan = {.group = 1, .tiles = 1, .splits = 1};
    const SplitPlace place = split_place(INT32_MAX - 1u, &plan, 8);
    ck_assert_int_eq(place.batch, (INT32_MAX - 1) / 8);
    ck_assert_int_eq(place.head_group, (INT32_MAX - 1) % 8);
}
END_TEST

// ---- the number of splits

// FlashAttention-3's rule (hopper/heuristics.h) in exact fractions, worked out apart from
// heuristic.h.
static const struct {
    SplitShape shape;
    int splits;
} table[] = {
    // tiles, tiles of a head, key blocks, bytes of a K/V head, slots, most, masked
    {{8, 1, 2048, 64 << 20, 132, 128, false}, 15}, // 128k keys, 8 K/V heads
    {{4, 1, 256, 8 << 20, 132, 128, false}, 29},   // 16k, batch 4, multi-query
    {{1, 1, 2048, 64 << 20, 132, 128, false}, 109},
    {{1, 1, 5, 1 << 18, 132, 128, false}, 5},
    {{1, 1, 4, 1 << 18, 132, 128, false}, 1}, // four blocks aren't worth it
    {{1, 1, 40, 1 << 21, 132, 128, false}, 34},
    {{64, 1, 512, 1 << 25, 132, 128, false}, 2},
    {{105, 1, 512, 1 << 25, 132, 128, false}, 5},
    {{106, 1, 512, 1 << 25, 132, 128, false}, 1}, // 80% of the slots are full already
    {{67, 1, 512, 1 << 25, 132, 128, false}, 7},
    {{66, 1, 512, 1 << 25, 132, 128, false}, 2},
    {{44, 1, 512, 1 << 25, 132, 128, false}, 3},
    {{53, 1, 64, 1 << 22, 132, 128, false}, 7},
    {{2, 1, 64, 1 << 22, 108, 128, false}, 46},
    {{16, 1, 64, 1 << 22, 108, 128, false}, 6},
    {{3, 1, 17, 1 << 22, 148, 128, false}, 15},
    {{8, 1, 2048, 1 << 26, 264, 128, false}, 29},
    {{1, 1, 100000, 1 << 30, 264, 128, false}, 109},
    // many tiles over a head that no L2 holds
    {{264, 264, 2048, 60 << 20, 132, 128, false}, 2},
    {{264, 264, 2048, 60 << 20, 132, 128, true}, 1},
    {{264, 264, 2048, 50 << 20, 132, 128, false}, 1},
    {{263, 263, 2048, 60 << 20, 132, 128, false}, 1},
    {{300, 300, 100000, (int64_t)5 << 30, 132, 128, false}, 103}, // f36: bytes beyond 32 bits
    {{300, 300, 1000000, (int64_t)20 << 30, 132, 128, false}, 128},
    // a cluster's 16
    {{8, 1, 2048, 64 << 20, 132, 16, false}, 14},
    {{1, 1, 2048, 64 << 20, 132, 16, false}, 14},
    {{0, 0, 100, 1 << 20, 132, 128, false}, 1}, // f29: no queries
    {{8, 0, 0, 0, 132, 128, false}, 1},         // no keys
};

START_TEST(f51_split_counts) {
    ck_assert_int_eq(choose_splits(&table[_i].shape), table[_i].splits);
}
END_TEST

// What the rule promises: within 15% of the best efficiency, and no smaller number is.
START_TEST(the_fewest_splits_near_the_best) {
    int wrong = 0, split = 0;
    for (int slots = 8; slots <= 264; slots += 31)
        for (int64_t tiles = 1; tiles <= 300; tiles++)
            for (int64_t blocks = 1; blocks <= 2048; blocks *= 2) {
                const SplitShape shape = {tiles, 1, blocks, 1 << 20, slots, MAX_SPLITS, false};
                const int splits = choose_splits(&shape);
                double best = 0;
                for (int s = 1; s <= MAX_SPLITS && s <= blocks && s <= slots; s++) {
                    const double efficiency = wave_efficiency(tiles, s, slots);
                    if (efficiency > best) best = efficiency;
                }
                wrong += splits < 1 || splits > MAX_SPLITS || splits > blocks;
                if (splits == 1) continue;
                split++;
                wrong += wave_efficiency(tiles, splits, slots) < 0.85 * best;
                for (int s = 1; s < splits; s++)
                    wrong += wave_efficiency(tiles, s, slots) >= 0.85 * best;
            }
    ck_assert_int_eq(wrong, 0);
    ck_assert_int_gt(split, 1000);
}
END_TEST

START_TEST(wave_efficiency_by_hand) {
    ck_assert_double_eq(wave_efficiency(8, 8, 132), 64. / 132);
    ck_assert_double_eq(wave_efficiency(8, 17, 132), 136. / 264);
    ck_assert_double_eq(wave_efficiency(8, 33, 132), 1);
    ck_assert_double_eq(wave_efficiency(132, 1, 132), 1);
    ck_assert_double_eq(wave_efficiency(133, 1, 132), 133. / 264);
}
END_TEST

// A launch takes as long as a few blocks of keys: where less is saved, one split it is. And three
// quarters of the slots are as fast as all.
START_TEST(few_keys_are_not_worth_a_merge) {
    // 8 tiles for 12 slots walk over 16 blocks, three splits of each, in two waves, over 12;
    // HBM brings all in the time of 11
    SplitShape shape = {8, 1, 16, 1 << 20, 12, MAX_SPLITS, false};
    ck_assert_int_eq(choose_splits(&shape), 3);
    ck_assert_int_eq(blocks_walked(&shape, 1), 16);
    ck_assert_int_eq(blocks_walked(&shape, 3), 12);
    ck_assert(!worth_merging(&shape, 3));
    shape.key_blocks = 64; // 48, three quarters of 64, and HBM brings them in 43
    ck_assert(worth_merging(&shape, 3));
    shape.tiles = 10; // ten slots ask for all that there is
    ck_assert(!worth_merging(&shape, 6));
    shape.key_blocks = 512;
    ck_assert(!worth_merging(&shape, 6));
    shape.key_blocks = 16;
    shape.tiles = 1; // 11 splits: 2 of 16
    ck_assert(worth_merging(&shape, choose_splits(&shape)));
}
END_TEST

// 28 splits of 32 blocks have two blocks each, or one: 32 end in half the time, and take no wave more.
START_TEST(no_split_longer_than_need_be) {
    static const struct {
        int64_t tiles, key_blocks;
        int slots, max_splits, chosen, splits;
    } rows[] = {
        {1, 32, 33, 128, 28, 32},    // one block each
        {8, 2048, 132, 128, 15, 16}, // 128 blocks, not 137
        {8, 2048, 132, 15, 13, 15},  // as many as there may be
        {2, 256, 33, 128, 15, 16},   // 16 blocks, not 18
        {1, 8, 33, 128, 7, 8},       //
        {4, 32, 33, 128, 7, 8},      // 4, not 5; 9 would be a second wave
        {1, 40, 132, 128, 34, 40},   //
        {16, 64, 108, 128, 6, 6},    // 7 would be a second wave
        {1, 100, 33, 128, 29, 29},   // 4 blocks; 33 splits have 4, too
        {5, 200, 33, 128, 6, 6},     // the wave is full
        {44, 512, 132, 128, 3, 3},   //
        {106, 512, 132, 128, 1, 1},  // full without
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const SplitShape shape = {
            rows[r].tiles,      1,    rows[r].key_blocks, 1 << 20, rows[r].slots,
            rows[r].max_splits, false};
        ck_assert_int_eq(choose_splits(&shape), rows[r].chosen);
        ck_assert_int_eq(shorten_longest(&shape, rows[r].chosen), rows[r].splits);
    }
}
END_TEST

// What the steps take: where it splits, the efficiency is within 15% of the best, no number of as many
// waves has shorter splits, and none between the rule's and this one has as short ones. Where it
// doesn't, the tiles fill the GPU, keys are few, or no more than a merge's time is saved.
START_TEST(splits_for_any_shape) {
    int wrong = 0, split = 0, whole = 0;
    for (int slots = 8; slots <= 264; slots += 16)
        for (int64_t tiles = 1; tiles <= slots + 3; tiles += 1 + tiles / 8)
            for (int64_t blocks = 1; blocks <= 2500; blocks += 1 + blocks / 3) {
                const SplitShape shape = {tiles, 1, blocks, 1 << 20, slots, MAX_SPLITS, false};
                const int chosen = choose_splits(&shape), splits = splits_for(&shape);
                if (splits == 1) {
                    whole++;
                    wrong += tiles < 0.8 * slots && blocks > 4 && chosen > 1 &&
                             worth_merging(&shape, shorten_longest(&shape, chosen));
                    continue;
                }
                split++;
                double best = 0;
                for (int s = 1; s <= MAX_SPLITS && s <= blocks && s <= slots; s++)
                    if (wave_efficiency(tiles, s, slots) > best)
                        best = wave_efficiency(tiles, s, slots);
                wrong += wave_efficiency(tiles, splits, slots) < 0.85 * best;
                const int64_t waves = (tiles * splits + slots - 1) / slots;
                wrong += waves != (tiles * chosen + slots - 1) / slots || splits < chosen;
                wrong += splits > blocks || splits > MAX_SPLITS;
                for (int s = chosen; s <= MAX_SPLITS && s <= blocks; s++) {
                    if (tiles * s > waves * slots) break;
                    wrong += blocks_walked(&shape, s) < blocks_walked(&shape, splits);
                    wrong +=
                        s < splits && blocks_walked(&shape, s) == blocks_walked(&shape, splits);
                }
            }
    ck_assert_int_eq(wrong, 0);
    ck_assert_int_gt(split, 1000);
    ck_assert_int_gt(whole, 1000);
}
END_TEST

// A window shows few keys of a long cache; without both sides it shows them all.
START_TEST(f51_a_window_is_what_is_split) {
    ck_assert_int_eq(keys_to_split(131072, -1, -1, 4), 131072);
    ck_assert_int_eq(keys_to_split(131072, -1, 0, 4), 131072);
    ck_assert_int_eq(keys_to_split(131072, 511, 0, 4), 516);
    ck_assert_int_eq(keys_to_split(300, 511, 0, 4), 300);
    ck_assert_int_eq(keys_to_split(300, INT64_MAX, 0, 4), 300);
}
END_TEST

Suite *suite_split(void) {
    Suite *suite = suite_create("split");
    TCase *keys = tcase_create("keys");
    tcase_add_test(keys, f24_every_block_of_keys_in_one_split);
    tcase_add_test(keys, splits_of_the_longest_cache);
    tcase_add_test(keys, f50_splits_hold_what_the_rows_see);
    suite_add_tcase(suite, keys);
    TCase *rows = tcase_create("rows");
    tcase_add_test(rows, f52_every_row_in_one_tile);
    tcase_add_test(rows, the_lectures_heads_fill_a_tile);
    tcase_add_test(rows, blocks_count_splits_first);
    tcase_add_test(rows, f37_the_last_block_of_the_largest_grid);
    suite_add_tcase(suite, rows);
    TCase *number = tcase_create("number");
    tcase_add_loop_test(number, f51_split_counts, 0, sizeof table / sizeof *table);
    tcase_add_test(number, the_fewest_splits_near_the_best);
    tcase_add_test(number, wave_efficiency_by_hand);
    tcase_add_test(number, few_keys_are_not_worth_a_merge);
    tcase_add_test(number, no_split_longer_than_need_be);
    tcase_add_test(number, splits_for_any_shape);
    tcase_add_test(number, f51_a_window_is_what_is_split);
    suite_add_tcase(suite, number);
    return suite;
}
