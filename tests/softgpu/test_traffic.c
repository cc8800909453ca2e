// What an access asks of the memory system: coalescing into sectors, bank conflicts in shared memory,
// against numbers worked out by hand and against their definitions.
#include "timing_bench.h"

Suite *suite_traffic(void);

START_TEST(coalescing) {
    static const struct {
        uint64_t first;
        int64_t stride;
        unsigned size;
        uint32_t mask;
        size_t lines;
        int sectors;
    } cases[] = {
        {0, 4, 4, FULL_MASK, 1, 4},                                    // 128 bytes
        {4, 4, 4, FULL_MASK, 2, 5},                                    // misaligned by one word
        {0, 2, 2, FULL_MASK, 1, 2},                                    // halves
        {0, 16, 16, FULL_MASK, 4, 16},                                 // float4
        {0, 32, 32, FULL_MASK, 8, 32},                                 // 32 bytes each
        {0, 0, 4, FULL_MASK, 1, 1},                                    // broadcast
        {124, 0, 4, FULL_MASK, 1, 1},  {0, 128, 4, FULL_MASK, 32, 32}, // a column
        {0, 8, 4, FULL_MASK, 2, 8},                                    // every second word
        {0, -4, 4, FULL_MASK, 2, 5}, // backwards: 0 and the 31 words before it
        {0, 4, 4, 0x000000ff, 1, 1}, // eight lanes
        {0, 4, 4, 0x80000001, 1, 2}, // the first and the last
        {96, 4, 4, 0x0000ffff, 2, 2},
    };
    Bench *b = open_bench(false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t first = 1 << 20;
        size_t lines = access_global(b, first + cases[i].first, cases[i].stride, cases[i].size,
                                     cases[i].mask, TRAFFIC_READ);
        ck_assert_msg(lines == cases[i].lines, "case %zu: %zu lines", i, lines);
        ck_assert_msg(sectors(b, 0) == cases[i].sectors, "case %zu: %d sectors", i, sectors(b, 0));
        ck_assert_uint_eq(b->sm.requests[0].line, ((first + cases[i].first) / 128));
    }
    close_bench(b);
}
END_TEST

// Random accesses against a count by the definition: sectors with a byte of any active lane.
START_TEST(coalescing_by_definition) {
    enum { RANGE = 8192 };
    Bench *b = open_bench(false);
    struct Random random;
    random_seed(&random, 3, 0);
    for (int n = 0; n < 2000; n++) {
        unsigned size = 1u << random_below(&random, 6);
        uint32_t range = RANGE >> random_below(&random, 8);
        uint32_t mask = random_below(&random, 3) ? FULL_MASK : (uint32_t)random_next(&random) | 1;
        bool write = random_below(&random, 2);
        uint64_t address[32];
        bool touched[RANGE] = {false};
        for (int lane = 0; lane < 32; lane++) {
            uint32_t offset = random_below(&random, range / size ? range / size : 1) * size;
            address[lane] = b->memory.device_base + offset;
            if (mask >> lane & 1) memset(touched + offset, true, size);
        }
        int expected = 0, full = 0;
        uint32_t touched_bytes[RANGE / 32] = {0};
        for (int sector = 0; sector < RANGE / 32; sector++) {
            int bytes = 0;
            for (int k = 0; k < 32; k++) {
                bytes += touched[32 * sector + k];
                touched_bytes[sector] |= (uint32_t)touched[32 * sector + k] << k;
            }
            expected += bytes > 0;
            full += bytes == 32;
        }
        b->sm.request_count = 0;
        traffic_global(&b->warp, &b->insn, address, size, mask,
                       write ? TRAFFIC_WRITE : TRAFFIC_READ, false);
        if (write) {
            ck_assert_int_eq(sectors(b, 1), full);
            ck_assert_int_eq(sectors(b, 2), expected - full);
        } else {
            ck_assert_int_eq(sectors(b, 0), expected);
        }
        for (size_t i = 0; i < b->sm.request_count; i++) {
            const L2Request *q = &b->sm.requests[i];
            if (q->write == 2) {
                ck_assert_int_eq(__builtin_popcount(q->sectors), 1);
                ck_assert_uint_eq(q->bytes,
                                  touched_bytes[q->line * 4 + (uint64_t)__builtin_ctz(q->sectors)]);
            }
            for (size_t k = 0; k < i; k++) { // a sector is asked for once
                ck_assert(q->line != b->sm.requests[k].line ||
                          !(q->sectors & b->sm.requests[k].sectors));
            }
        }
    }
    close_bench(b);
}
END_TEST

// Ranges hold the bytes that the lanes touch and no others, and unbroken runs are one range.
START_TEST(ranges_by_definition) {
    enum { RANGE = 4096 };
    struct Random random;
    random_seed(&random, 4, 0);
    for (int n = 0; n < 4000; n++) {
        unsigned size = 1u << random_below(&random, 6);
        unsigned run = 1u << random_below(&random, 6), repeat = 1 + random_below(&random, 2);
        uint32_t mask = random_below(&random, 2) ? FULL_MASK : (uint32_t)random_next(&random) | 1;
        uint64_t address[32], start = 0, last = 0;
        uint8_t touched[RANGE] = {0}, covered[RANGE] = {0};
        int breaks = 0;
        for (unsigned lane = 0; lane < 32; lane++) {
            if (lane % run == 0) start = random_below(&random, RANGE / 2 / size) * size;
            address[lane] = start + lane % run / repeat * size;
            if (!(mask >> lane & 1)) continue;
            memset(touched + address[lane], 1, size);
            breaks += !(mask & ((1u << lane) - 1)) ||
                      (address[lane] != last && address[lane] != last + size);
            last = address[lane];
        }
        Ranges ranges;
        ranges_of(&ranges, address, size, mask);
        ck_assert_int_eq(ranges.count, breaks);
        for (int k = 0; k < ranges.count; k++) {
            ck_assert_uint_le(ranges.range[k].begin + ranges.range[k].bytes, RANGE);
            memset(covered + ranges.range[k].begin, 1, ranges.range[k].bytes);
        }
        ck_assert_mem_eq(touched, covered, RANGE);
    }
}
END_TEST

START_TEST(writes_and_atomics) {
    Bench *b = open_bench(true);
    access_global(b, 0, 4, 4, FULL_MASK, TRAFFIC_WRITE);
    ck_assert_int_eq(sectors(b, 1), 4);
    ck_assert_int_eq(sectors(b, 2), 0);
    access_global(b, 4, 4, 4, FULL_MASK, TRAFFIC_WRITE); // the first and last sector in part
    ck_assert_int_eq(sectors(b, 1), 3);
    ck_assert_int_eq(sectors(b, 2), 2);
    access_global(b, 0, 8, 4, FULL_MASK, TRAFFIC_WRITE);
    ck_assert_int_eq(sectors(b, 1), 0);
    ck_assert_int_eq(sectors(b, 2), 8);
    access_global(b, 0, 0, 4, FULL_MASK, TRAFFIC_ATOMIC);
    ck_assert_int_eq(sectors(b, 3), 1);
    // Reads: L1 catches the second one, unless it is told to be passed by.
    ck_assert_uint_eq(access_global(b, 4096, 4, 4, FULL_MASK, TRAFFIC_READ), 1);
    ck_assert_uint_eq(access_global(b, 4096, 4, 4, FULL_MASK, TRAFFIC_READ), 0);
    ck_assert_uint_eq(b->counters.l1_hits, 4);
    ck_assert_uint_eq(b->counters.l1_misses, 4);
    uint64_t address[32];
    for (int lane = 0; lane < 32; lane++) address[lane] = b->memory.device_base + 4096;
    traffic_global(&b->warp, &b->insn, address, 4, FULL_MASK, TRAFFIC_READ, true);
    ck_assert_uint_eq(b->sm.request_count, 1);
    b->settings.timing = false;
    ck_assert_uint_eq(access_global(b, 8192, 4, 4, FULL_MASK, TRAFFIC_READ), 0);
    close_bench(b);
}
END_TEST

// Neighbouring pages may lie anywhere in the memory chips; an access or a copy goes to both.
START_TEST(pages_need_not_be_neighbours) {
    Bench *b = open_bench(false);
    const uint64_t lines = GLOBAL_PAGE / 128, end = 2 * GLOBAL_PAGE;
    b->memory.frames[1] = 7;
    b->memory.frames[2] = 4;
    access_global(b, end - 64, 4, 4, FULL_MASK, TRAFFIC_READ);
    ck_assert_uint_eq(b->sm.request_count, 2);
    b->sm.request_count = 0;
    traffic_bulk(&b->warp, b->memory.device_base + end - 64, 256, TRAFFIC_WRITE);
    ck_assert_uint_eq(b->sm.request_count, 3);
    const uint64_t line[] = {8 * lines - 1, 4 * lines, 4 * lines + 1};
    const unsigned sectors[] = {0xc, 0xf, 0x3};
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(b->sm.requests[i].line, line[i]);
        ck_assert_uint_eq(b->sm.requests[i].sectors, sectors[i]);
    }
    close_bench(b);
}
END_TEST

START_TEST(lines_do_not_depend_on_the_host) {
    Bench *b = open_bench(false);
    access_global(b, 256, 4, 4, FULL_MASK, TRAFFIC_READ);
    ck_assert_uint_eq(b->sm.requests[0].line, 2);
    uint64_t device = b->sm.requests[0].line;
    b->memory.device_base = 3ull << 40;
    access_global(b, 256, 4, 4, FULL_MASK, TRAFFIC_READ);
    ck_assert_uint_eq(b->sm.requests[0].line, device);
    uint64_t address[32];
    for (int lane = 0; lane < 32; lane++) address[lane] = b->memory.host_base + 256;
    b->sm.request_count = 0;
    traffic_global(&b->warp, &b->insn, address, 4, FULL_MASK, TRAFFIC_READ, false);
    ck_assert_uint_ne(b->sm.requests[0].line, device);
    close_bench(b);
}
END_TEST

START_TEST(local_memory_interleaves) {
    Bench *b = open_bench(false);
    uint32_t offset[32];
    for (int lane = 0; lane < 32; lane++) offset[lane] = 8;
    traffic_local(&b->warp, &b->insn, offset, 4, FULL_MASK, TRAFFIC_WRITE);
    ck_assert_uint_eq(b->sm.request_count, 1); // one full line
    ck_assert_int_eq(sectors(b, 1), 4);
    b->sm.request_count = 0;
    traffic_local(&b->warp, &b->insn, offset, 16, FULL_MASK, TRAFFIC_READ);
    ck_assert_uint_eq(b->sm.request_count, 4);
    ck_assert_int_eq(sectors(b, 0), 16);
    uint64_t mine = b->sm.requests[0].line;
    b->sm.request_count = 0;
    b->warp.id = 1; // another warp, other lines
    traffic_local(&b->warp, &b->insn, offset, 16, FULL_MASK, TRAFFIC_READ);
    ck_assert_uint_eq(b->sm.requests[0].line - mine, 64 * 32 / 128);
    b->sm.request_count = 0;
    for (int lane = 0; lane < 32; lane++) offset[lane] = 4 * (lane % 16);
    traffic_local(&b->warp, &b->insn, offset, 4, FULL_MASK, TRAFFIC_READ);
    ck_assert_uint_eq(b->sm.request_count, 16);
    close_bench(b);
}
END_TEST

// Wavefronts of an access with these addresses; asked twice, as the second answer is remembered.
static unsigned wavefronts(Bench *b, const uint32_t address[32], unsigned size, uint32_t mask,
                           TrafficKind kind) {
    uint64_t before = b->counters.shared_wavefronts;
    traffic_shared(&b->warp, &b->insn, address, size, mask, kind);
    uint64_t once = b->counters.shared_wavefronts - before;
    traffic_shared(&b->warp, &b->insn, address, size, mask, kind);
    ck_assert_uint_eq(b->counters.shared_wavefronts - before, 2 * once);
    return once;
}

START_TEST(bank_conflicts) {
    static const struct {
        uint32_t first, stride;
        unsigned size;
        uint32_t mask;
        unsigned wavefronts, ideal;
    } cases[] = {
        {1024, 4, 4, FULL_MASK, 1, 1},     {1024, 0, 4, FULL_MASK, 1, 1}, // broadcast
        {1024, 8, 4, FULL_MASK, 2, 1},    // every second bank, twice
        {1024, 128, 4, FULL_MASK, 32, 1}, // one bank
        {1024, 132, 4, FULL_MASK, 1, 1},  // padded by a word
        {1024, 2, 2, FULL_MASK, 1, 1},    // two lanes a word
        {1025, 1, 1, FULL_MASK, 1, 1},     {1024, 8, 8, FULL_MASK, 2, 2},
        {1024, 16, 8, FULL_MASK, 4, 2}, // each half meets every bank pair twice
        {1024, 16, 16, FULL_MASK, 4, 4},   {1024, 32, 16, FULL_MASK, 8, 4},
        {1024, 128, 16, FULL_MASK, 32, 4}, // a column of 16-byte pieces: 8 lanes, 8 ways
        {1024, 144, 16, FULL_MASK, 4, 4},  // padded by 16 bytes
        {1024, 16, 16, 0x000000ff, 1, 1},  // one quarter only
        {1024, 16, 16, 0x01000001, 2, 2},  {1024, 128, 4, 0x0000000f, 4, 1},
        {1024, 0, 16, FULL_MASK, 4, 4}, // one row for all, a phase for each quarter
    };
    Bench *b = open_bench(false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t address[32];
        for (uint32_t lane = 0; lane < 32; lane++) {
            bool active = cases[i].mask >> lane & 1;
            address[lane] = active ? cases[i].first + lane * cases[i].stride : 0xdeadbeef;
        }
        uint64_t ideal = b->counters.shared_ideal;
        unsigned n = wavefronts(b, address, cases[i].size, cases[i].mask, TRAFFIC_READ);
        ck_assert_msg(n == cases[i].wavefronts, "case %zu: %u wavefronts", i, n);
        ck_assert_uint_eq(b->counters.shared_ideal - ideal, 2 * cases[i].ideal);
    }
    // Four words, eight lanes each: one wavefront for a read, eight for an atomic.
    uint32_t address[32];
    for (uint32_t lane = 0; lane < 32; lane++) address[lane] = 2048 + lane % 4 * 4;
    ck_assert_uint_eq(wavefronts(b, address, 4, FULL_MASK, TRAFFIC_READ), 1);
    ck_assert_uint_eq(wavefronts(b, address, 4, FULL_MASK, TRAFFIC_ATOMIC), 8);
    // The eight rows of an ldmatrix-like read, swizzled: no conflict.
    for (uint32_t lane = 0; lane < 32; lane++) {
        address[lane] = 4096 + lane * 128 + (lane % 8 ^ 3) * 16;
    }
    ck_assert_uint_eq(wavefronts(b, address, 16, FULL_MASK, TRAFFIC_READ), 4);
    close_bench(b);
}
END_TEST

// Random patterns against a count by the definition.
START_TEST(bank_conflicts_by_definition) {
    Bench *b = open_bench(false);
    struct Random random;
    random_seed(&random, 7, 0);
    for (int n = 0; n < 2000; n++) {
        unsigned size = 1u << random_below(&random, 5);
        uint32_t range = 1u << (4 + random_below(&random, 9));
        uint32_t mask = random_below(&random, 3) ? FULL_MASK : (uint32_t)random_next(&random) | 1;
        uint32_t address[32];
        for (int lane = 0; lane < 32; lane++) {
            address[lane] = 1024 + random_below(&random, range) * size;
        }
        int phases = size <= 4 ? 1 : size / 4, lanes = 32 / phases;
        unsigned expected = 0;
        for (int phase = 0; phase < phases; phase++) {
            static bool word[1 << 18];
            memset(word, 0, sizeof word);
            unsigned busy[32] = {0}, most = 0;
            for (int lane = phase * lanes; lane < (phase + 1) * lanes; lane++) {
                if (!(mask >> lane & 1)) continue;
                for (unsigned k = 0; k < (size + 3) / 4; k++) {
                    uint32_t w = address[lane] / 4 + k;
                    if (word[w]) continue;
                    word[w] = true;
                    if (++busy[w % 32] > most) most = busy[w % 32];
                }
            }
            expected += most;
        }
        ck_assert_uint_eq(wavefronts(b, address, size, mask, TRAFFIC_READ), expected);
    }
    close_bench(b);
}
END_TEST

Suite *suite_traffic(void) {
    Suite *suite = suite_create("traffic");
    TCase *tests = tcase_create("traffic");
    tcase_add_test(tests, coalescing);
    tcase_add_test(tests, coalescing_by_definition);
    tcase_add_test(tests, ranges_by_definition);
    tcase_add_test(tests, writes_and_atomics);
    tcase_add_test(tests, pages_need_not_be_neighbours);
    tcase_add_test(tests, lines_do_not_depend_on_the_host);
    tcase_add_test(tests, local_memory_interleaves);
    tcase_add_test(tests, bank_conflicts);
    tcase_add_test(tests, bank_conflicts_by_definition);
    suite_add_tcase(suite, tests);
    return suite;
}
