// Chapter 7's orders of tiles (07_persistent_lpt/schedule.h): every tile exactly once, for any shape
// and at sizes that no memory holds. Names with f33 and the like are the edge cases that other
// implementations met.
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

#include "../../07_persistent_lpt/schedule.h"

static const OrderKind kinds[] = {ORDER_AS_IT_COMES, ORDER_LONGEST_FIRST, ORDER_L2};
static const LongestTile longests[] = {ALL_EQUAL, LAST_IS_LONGEST, FIRST_IS_LONGEST};

// ---- sequences of one length

// The order as nested loops, the way schedule.h draws it.
static int differs_from_loops(const TileOrder *order, int batch, int heads, int64_t tiles,
                              int64_t section, bool backwards) {
    const int64_t all = (int64_t)batch * heads;
    int64_t place = 0;
    int wrong = 0;
    for (int64_t first = 0; first < all; first += section)
        for (int64_t t = 0; t < tiles; t++)
            for (int64_t h = first; h < first + section && h < all; h++, place++) {
                const TileWork work = tile_of(order, place);
                wrong += work.batch != h / heads || work.head != h % heads ||
                         work.tile != (backwards ? tiles - 1 - t : t);
            }
    return wrong + (place != places_of(order));
}

// Heads of a section by its definition: double them while they fit.
static int64_t section_by_definition(int64_t all, int64_t kv_heads, int64_t bytes, int64_t l2) {
    int64_t fit = 1;
    while (fit < kv_heads && 2 * fit * bytes <= l2) fit *= 2;
    return fit * (all / kv_heads) < all ? fit * (all / kv_heads) : all;
}

START_TEST(every_tile_once_in_every_order) {
    int wrong = 0, tried = 0, with_rest = 0;
    for (int batch = 1; batch <= 5; batch++)
        for (int kv_heads = 1; kv_heads <= 4; kv_heads++)
            for (int ratio = 1; ratio <= 3; ratio++)
                for (int64_t tiles = 1; tiles <= 6; tiles++)
                    for (int64_t bytes = 0; bytes <= 9; bytes++)
                        for (int k = 0; k < 9; k++) {
                            const int heads = kv_heads * ratio;
                            const LongestTile longest = longests[k / 3];
                            const TileOrder order = make_tile_order(
                                kinds[k % 3], batch, heads, kv_heads, tiles, bytes, 16, longest);
                            int64_t section = 1;
                            if (longest != ALL_EQUAL && k % 3 == 1) section = batch * heads;
                            if (longest != ALL_EQUAL && k % 3 == 2)
                                section = section_by_definition(batch * heads, batch * kv_heads,
                                                                bytes, 16);
                            const bool backwards = longest == LAST_IS_LONGEST && k % 3 != 0;
                            wrong +=
                                differs_from_loops(&order, batch, heads, tiles, section, backwards);
                            with_rest += batch * heads % section > 0;
                            tried++;
                        }
    ck_assert_int_eq(wrong, 0);
    ck_assert_int_eq(tried, 5 * 4 * 3 * 6 * 10 * 9);
    ck_assert_int_gt(with_rest, 100); // sections that don't divide the heads
}
END_TEST

START_TEST(in_order_is_the_order_of_a_plain_grid) {
    const TileOrder order =
        make_tile_order(ORDER_AS_IT_COMES, 3, 5, 5, 7, 1 << 20, 32 << 20, LAST_IS_LONGEST);
    for (uint32_t place = 0; place < 3 * 5 * 7; place++) {
        const TileWork work = tile_of(&order, place);
        const BlockWork block = block_work(place, 7, 5);
        ck_assert(work.batch == block.batch && work.head == block.head && work.tile == block.tile);
    }
}
END_TEST

// FlashAttention-3's causal order of 64 heads of 8k on an H100: sections of 8 heads, 32 MB.
START_TEST(l2_sections_of_an_h100) {
    const int64_t bytes = 8192 * 256 * 2, l2 = l2_budget(50 << 20);
    ck_assert_int_eq(l2, 32 << 20);
    const TileOrder order = make_tile_order(ORDER_L2, 4, 16, 16, 64, bytes, l2, LAST_IS_LONGEST);
    ck_assert_int_eq(order.section, 8);
    ck_assert_int_eq(order.whole_sections, 8);
    const TileOrder grouped = make_tile_order(ORDER_L2, 4, 16, 4, 64, bytes, l2, LAST_IS_LONGEST);
    ck_assert_int_eq(grouped.section, 32); // four query heads share each K and V
}
END_TEST

START_TEST(f25_nothing_to_do_divides_nothing) {
    for (int k = 0; k < 9; k++)
        for (int zero = 0; zero < 5; zero++) {
            const TileOrder order = make_tile_order(
                kinds[k % 3], zero == 0 ? 0 : 2, zero == 1 ? 0 : 4, zero == 1 ? 0 : 2,
                zero == 2 ? 0 : 3, zero == 3 ? 0 : 100, zero == 4 ? 0 : 1000, longests[k / 3]);
            ck_assert_int_eq(places_of(&order), zero < 3 ? 0 : 24);
            for (int64_t place = 0; place < places_of(&order); place++) {
                const TileWork work = tile_of(&order, place);
                ck_assert(work.batch < 2 && work.head < 4 && work.tile >= 0 && work.tile < 3);
            }
        }
}
END_TEST

START_TEST(f33_a_head_larger_than_the_l2) {
    const int64_t budget = 32 << 20;
    for (int64_t seqlen = 1 << 10; seqlen <= 1 << 24; seqlen *= 2) {
        const int64_t bytes = seqlen * 256 * 2;
        const TileOrder order = make_tile_order(ORDER_L2, 1, 16, 16, tiles_of(seqlen, 128), bytes,
                                                budget, LAST_IS_LONGEST);
        ck_assert_int_eq(order.section, section_by_definition(16, 16, bytes, budget));
        if (bytes > budget) ck_assert_int_eq(order.section, 1);
    }
    // Multi-query: the heads of the one K and V all belong to a section, however long they are.
    const TileOrder shared =
        make_tile_order(ORDER_L2, 2, 8, 1, 9, INT64_C(1) << 40, budget, LAST_IS_LONGEST);
    ck_assert_int_eq(shared.section, 8);
}
END_TEST

// 16M keys, and places beyond 2^32: the places of a section's corners, solved for.
START_TEST(f36_sixteen_million_keys) {
    const int64_t seqlen = INT64_C(1) << 24, tiles = tiles_of(seqlen, 128),
                  bytes = seqlen * 512 * 2;
    const int batch = 640, heads = 128;
    ck_assert_int_eq(heads_in_l2(heads, heads, bytes, INT64_MAX), heads);
    ck_assert_int_eq(heads_in_l2(heads, heads, INT64_MAX, 50 << 20), 1);
    for (int64_t l2 = 32 << 20; l2 <= INT64_C(1) << 42; l2 *= 8) {
        const TileOrder order =
            make_tile_order(ORDER_L2, batch, heads, heads, tiles, bytes, l2, LAST_IS_LONGEST);
        const int64_t all = (int64_t)batch * heads, section = order.section;
        ck_assert_int_eq(places_of(&order), all * tiles);
        ck_assert(places_of(&order) > INT64_C(1) << 32);
        for (int64_t first = 0; first < all; first += section * 7) {
            const int64_t width = all - first < section ? all - first : section;
            for (int corner = 0; corner < 4; corner++) {
                const int64_t h = corner % 2 ? width - 1 : 0, t = corner / 2 ? tiles - 1 : 0;
                const TileWork work = tile_of(&order, first * tiles + t * width + h);
                ck_assert_int_eq(work.batch, (first + h) / heads);
                ck_assert_int_eq(work.head, (first + h) % heads);
                ck_assert_int_eq(work.tile, tiles - 1 - t);
            }
        }
    }
}
END_TEST

START_TEST(f37_batches_beyond_65535) {
    const TileOrder order =
        make_tile_order(ORDER_L2, 65536, 3, 3, 1, 512, 32 << 20, LAST_IS_LONGEST);
    ck_assert_int_eq(differs_from_loops(&order, 65536, 3, 1, order.section, true), 0);
}
END_TEST

START_TEST(divisions_of_both_widths) {
    static const int64_t numbers[] = {
        0, 1, 2, 5, UINT32_MAX, 1l << 32, 1l << 40, (1l << 32) + 7, INT64_MAX, 12345678901};
    for (int i = 0; i < 10; i++)
        for (int j = 1; j < 10; j++) {
            const Division d = divide(numbers[i], numbers[j]);
            ck_assert_int_eq(d.quotient, numbers[i] / numbers[j]);
            ck_assert_int_eq(d.remainder, numbers[i] % numbers[j]);
        }
}
END_TEST

// ---- what a tile has to do

// Blocks of a tile, key by key.
START_TEST(blocks_of_a_tile_are_those_with_keys_that_it_sees) {
    int wrong = 0;
    for (int64_t seqlen_q = 1; seqlen_q <= 9; seqlen_q++)
        for (int64_t seqlen_k = 0; seqlen_k <= 9; seqlen_k++)
            for (int64_t left = -1; left <= 9; left++)
                for (int64_t right = -1; right <= 9; right++)
                    for (int64_t tile = 0; tile < tiles_of(seqlen_q, 4); tile++) {
                        int64_t first = seqlen_k, last = -1;
                        for (int64_t i = tile * 4; i < tile * 4 + 4 && i < seqlen_q; i++)
                            for (int64_t j = 0; j < seqlen_k; j++) {
                                const int64_t diagonal = i + seqlen_k - seqlen_q;
                                if ((left >= 0 && j < diagonal - left) ||
                                    (right >= 0 && j > diagonal + right))
                                    continue;
                                if (j < first) first = j;
                                if (j > last) last = j;
                            }
                        const int64_t blocks = last < 0 ? 0 : last / 3 - first / 3 + 1;
                        const int64_t keys = last < 0 ? 0 : last - first + 1;
                        wrong += key_blocks_of_tile(tile, 4, 3, seqlen_q, seqlen_k, left, right) !=
                                 blocks;
                        wrong += keys_of_tile(tile, 4, seqlen_q, seqlen_k, left, right) != keys;
                    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

// Backwards never goes from short to long, where one side is without limit.
START_TEST(the_longest_tile_comes_first) {
    int wrong = 0;
    for (int64_t seqlen_q = 1; seqlen_q <= 12; seqlen_q++)
        for (int64_t seqlen_k = 0; seqlen_k <= 12; seqlen_k++)
            for (int64_t limit = 0; limit <= 12; limit++)
                for (int side = 0; side < 2; side++) {
                    const int64_t left = side ? limit : -1, right = side ? -1 : limit;
                    const int64_t tiles = tiles_of(seqlen_q, 2);
                    const TileOrder order = make_tile_order(ORDER_LONGEST_FIRST, 1, 1, 1, tiles, 1,
                                                            1, longest_tile(left, right));
                    int64_t before = INT64_MAX;
                    for (int64_t place = 0; place < tiles; place++) {
                        const int64_t keys = keys_of_tile(tile_of(&order, place).tile, 2, seqlen_q,
                                                          seqlen_k, left, right);
                        wrong += keys > before;
                        before = keys;
                    }
                }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

// ---- several lengths

typedef struct {
    int64_t q, k;
} Lengths;

// Entries as the chapter's kernel makes them: each thread its sequence, chunk after chunk.
static SequenceEntry *make_entries(const Lengths *lengths, int sequences, OrderKind kind,
                                   int64_t rows, int heads, int kv_heads, int64_t left,
                                   int64_t right) {
    static SequenceSize sizes[SORTED_SEQUENCES];
    SequenceEntry *entries = calloc((size_t)sequences + 1, sizeof *entries);
    int64_t before = 0;
    for (int chunk = 0; chunk < sequences; chunk += SORTED_SEQUENCES) {
        const int left_over = sequences - chunk;
        const int count = left_over < SORTED_SEQUENCES ? left_over : SORTED_SEQUENCES;
        for (int i = 0; i < count; i++)
            sizes[i] =
                size_of_sequence(rows, lengths[chunk + i].q, lengths[chunk + i].k, left, right);
        int64_t all = 0;
        for (int i = 0; i < count; i++) {
            const SequencePlace place =
                place_of_sequence(sizes, count, i, kind != ORDER_AS_IT_COMES);
            entries[chunk + place.before] = (SequenceEntry){
                .first_tile = before + place.tiles,
                .sequence = chunk + i,
                .section = section_of_sequence(kind, heads, kv_heads, lengths[chunk + i].k * 512,
                                               32 << 20, longest_tile(left, right))};
            all = place.all_tiles;
        }
        before += all;
    }
    entries[sequences].first_tile = before;
    return entries;
}

// Counts each tile of each sequence; 0 if all come exactly once.
static int tiles_missed(const Lengths *lengths, int sequences, OrderKind kind, int64_t rows,
                        int heads, int kv_heads, int64_t left, int64_t right) {
    SequenceEntry *entries =
        make_entries(lengths, sequences, kind, rows, heads, kv_heads, left, right);
    const TileOrder order =
        make_entries_order(kind, sequences, heads, entries, longest_tile(left, right));
    int64_t *first = calloc((size_t)sequences + 1, sizeof *first);
    for (int s = 0; s < sequences; s++)
        first[s + 1] = first[s] + tiles_of(lengths[s].q, rows) * heads;
    unsigned char *seen = calloc((size_t)first[sequences] + 1, 1);
    int wrong = places_of(&order) != first[sequences];
    for (int64_t place = 0; wrong == 0 && place < places_of(&order); place++) {
        const TileWork work = tile_of(&order, place);
        const int64_t tiles =
            work.batch >= 0 && work.batch < sequences ? tiles_of(lengths[work.batch].q, rows) : 0;
        const bool inside =
            work.tile >= 0 && work.tile < tiles && work.head >= 0 && work.head < heads;
        if (!inside || seen[first[work.batch] + work.tile * heads + work.head]++ != 0) wrong++;
    }
    free(entries);
    free(first);
    free(seen);
    return wrong;
}

static int missed_in_any_order(const Lengths *lengths, int sequences, int64_t rows) {
    int wrong = 0;
    for (int k = 0; k < 3; k++)
        for (int ratio = 1; ratio <= 3; ratio += 2)
            for (int causal = 0; causal < 2; causal++)
                wrong +=
                    tiles_missed(lengths, sequences, kinds[k], rows, 6, 6 / ratio, -1, causal - 1);
    return wrong;
}

START_TEST(every_tile_of_several_lengths_once) {
    uint32_t random = 1;
    for (int round = 0; round < 200; round++) {
        Lengths lengths[12];
        const int sequences = 1 + round % 12;
        for (int s = 0; s < sequences; s++) {
            random = random * 1664525u + 1013904223u;
            lengths[s] = (Lengths){random >> 16 & 15, random >> 24};
            if (random % 5 == 0) lengths[s].q = 0;
        }
        ck_assert_int_eq(missed_in_any_order(lengths, sequences, 4), 0);
    }
}
END_TEST

START_TEST(f26_f27_f30_empty_sequences_have_no_place) {
    static const Lengths f26[] = {{5, 0}, {0, 5}, {0, 0}, {130, 0}};
    static const Lengths f27[] = {{0, 2538}, {1208, 1742}, {840, 840}, {0, 3072}};
    static const Lengths f30[] = {{0, 0}, {0, 1}, {1023, 2044}};
    ck_assert_int_eq(missed_in_any_order(f26, 4, 128), 0);
    ck_assert_int_eq(missed_in_any_order(f27, 4, 128), 0);
    ck_assert_int_eq(missed_in_any_order(f30, 3, 128), 0);
}
END_TEST

START_TEST(f28_single_queries_among_empty_ones) {
    static const Lengths lengths[] = {{0, 3}, {1, 9}, {0, 0}, {1, 1}};
    ck_assert_int_eq(missed_in_any_order(lengths, 4, 128), 0);
}
END_TEST

START_TEST(f22_lengths_around_a_tile) {
    Lengths lengths[130];
    for (int s = 0; s < 130; s++) lengths[s] = (Lengths){s, 129 - s};
    ck_assert_int_eq(missed_in_any_order(lengths, 130, 128), 0);
}
END_TEST

START_TEST(more_sequences_than_are_sorted_at_once) {
    const int sequences = 5 * SORTED_SEQUENCES / 2;
    Lengths *lengths = calloc((size_t)sequences, sizeof *lengths);
    for (int s = 0; s < sequences; s++) lengths[s] = (Lengths){s * 7 % 5, s * 11 % 13};
    ck_assert_int_eq(tiles_missed(lengths, sequences, ORDER_L2, 2, 2, 1, -1, 0), 0);
    ck_assert_int_eq(tiles_missed(lengths, sequences, ORDER_AS_IT_COMES, 2, 2, 2, -1, -1), 0);
    free(lengths);
}
END_TEST

// 2^24 keys and queries in some of 3 sequences, too many tiles to try each: the corners of each.
START_TEST(f36_long_sequences_among_short_ones) {
    const int64_t long_one = INT64_C(1) << 24;
    const Lengths lengths[] = {{7, 7}, {long_one, long_one}, {long_one, 5}};
    const int heads = 40000; // places beyond 2^32
    SequenceEntry *entries = make_entries(lengths, 3, ORDER_L2, 128, heads, heads, -1, 0);
    const TileOrder order = make_entries_order(ORDER_L2, 3, heads, entries, LAST_IS_LONGEST);
    const int64_t tiles = tiles_of(long_one, 128);
    ck_assert_int_eq(places_of(&order), (2 * tiles + 1) * heads);
    const TileWork first = tile_of(&order, 0), last = tile_of(&order, places_of(&order) - 1);
    ck_assert(first.batch == 1 && first.head == 0 && first.tile == tiles - 1);
    ck_assert(last.batch == 2 && last.head == heads - 1 && last.tile == 0);
    const TileWork middle = tile_of(&order, tiles * heads - 1);
    ck_assert(middle.batch == 1 && middle.head == heads - 1 && middle.tile == 0);
    free(entries);
}
END_TEST

START_TEST(sequences_with_the_longest_tiles_come_first) {
    static const Lengths lengths[] = {{10, 3}, {4, 90}, {100, 90}, {0, 200}, {5, 120}};
    static const int order[] = {4, 1, 2, 0, 3};
    SequenceEntry *entries = make_entries(lengths, 5, ORDER_LONGEST_FIRST, 4, 1, 1, -1, 0);
    for (int e = 0; e < 5; e++) ck_assert_int_eq(entries[e].sequence, order[e]);
    free(entries);
    entries = make_entries(lengths, 5, ORDER_AS_IT_COMES, 4, 1, 1, -1, 0);
    for (int e = 0; e < 5; e++) ck_assert_int_eq(entries[e].sequence, e);
    free(entries);
}
END_TEST

Suite *suite_schedule(void) {
    Suite *suite = suite_create("orders of tiles");
    TCase *orders = tcase_create("orders");
    tcase_add_test(orders, every_tile_once_in_every_order);
    tcase_add_test(orders, in_order_is_the_order_of_a_plain_grid);
    tcase_add_test(orders, l2_sections_of_an_h100);
    tcase_add_test(orders, f25_nothing_to_do_divides_nothing);
    tcase_add_test(orders, f33_a_head_larger_than_the_l2);
    tcase_add_test(orders, f36_sixteen_million_keys);
    tcase_add_test(orders, f37_batches_beyond_65535);
    tcase_add_test(orders, divisions_of_both_widths);
    tcase_add_test(orders, blocks_of_a_tile_are_those_with_keys_that_it_sees);
    tcase_add_test(orders, the_longest_tile_comes_first);
    suite_add_tcase(suite, orders);
    TCase *lengths = tcase_create("several lengths");
    tcase_add_test(lengths, every_tile_of_several_lengths_once);
    tcase_add_test(lengths, f26_f27_f30_empty_sequences_have_no_place);
    tcase_add_test(lengths, f28_single_queries_among_empty_ones);
    tcase_add_test(lengths, f22_lengths_around_a_tile);
    tcase_add_test(lengths, more_sequences_than_are_sorted_at_once);
    tcase_add_test(lengths, f36_long_sequences_among_short_ones);
    tcase_add_test(lengths, sequences_with_the_longest_tiles_come_first);
    suite_add_tcase(suite, lengths);
    return suite;
}
