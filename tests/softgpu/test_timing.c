// Figures, caches, coalescing, bank conflicts and the roofline, against numbers worked out by hand.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/global.h"
#include "softgpu/report/stats.h"
#include "softgpu/timing/roofline.h"
#include "softgpu/timing/traffic.h"

Suite *suite_timing(void);

// A warp on an SM, with nothing around it that these tests don't need.
typedef struct {
    Settings settings;
    struct GlobalMemory memory;
    Gpu gpu;
    Sm sm;
    Cta cta;
    Warp warp;
    Counters counters;
    Insn insn;
} Bench;

static Bench *open_bench(bool with_l1) {
    Bench *b = calloc(1, sizeof *b);
    b->settings.timing = true;
    b->memory = (struct GlobalMemory){.device_base = 1ull << 40,
                                      .device_size = 1ull << 30,
                                      .host_base = 1ull << 41,
                                      .host_size = 1ull << 30};
    b->gpu.settings = &b->settings;
    b->gpu.memory = &b->memory;
    b->gpu.figures = *figures_find("h100");
    b->sm.gpu = &b->gpu;
    b->sm.counters = &b->counters;
    b->sm.l1 = with_l1 ? cache_new(32768, 4) : NULL;
    b->cta.sm = &b->sm;
    b->warp.sm = &b->sm;
    b->warp.cta = &b->cta;
    b->warp.local_stride = 64;
    return b;
}

static void close_bench(Bench *b) {
    free(b->sm.requests);
    cache_free(b->sm.l1);
    free(b);
}

// Sectors in the log with this kind of write.
static int sectors(const Bench *b, int write) {
    int count = 0;
    for (size_t i = 0; i < b->sm.request_count; i++) {
        if (b->sm.requests[i].write == write)
            count += __builtin_popcount(b->sm.requests[i].sectors);
    }
    return count;
}

// Requests that an access of addresses first + lane * stride leaves in the log.
static size_t access_global(Bench *b, uint64_t first, int64_t stride, unsigned size, uint32_t mask,
                            TrafficKind kind) {
    uint64_t address[32];
    for (int lane = 0; lane < 32; lane++) {
        address[lane] = mask >> lane & 1 ? b->memory.device_base + first + lane * stride : ~7ull;
    }
    b->sm.request_count = 0;
    traffic_global(&b->warp, &b->insn, address, size, mask, kind, false);
    return b->sm.request_count;
}

START_TEST(figures_make_sense) {
    int count;
    const GpuFigures *all = figures_all(&count);
    ck_assert_int_eq(count, 4);
    for (int i = 0; i < count; i++) {
        const GpuFigures *f = &all[i];
        int sms = 0;
        for (int g = 0; g < f->gpcs; g++) sms += f->gpc_sizes[g];
        ck_assert_int_eq(sms, f->sms);
        ck_assert_ptr_eq(figures_find(f->name), f);
        ck_assert(f->clock_ghz <= f->boost_ghz);
        ck_assert_uint_eq(f->shared_per_sm, f->shared_per_cta + f->shared_reserved);
        ck_assert_uint_lt(f->shared_per_sm, f->l1_bytes);
    }
    // The data sheets' dense 16-bit peaks, in TFLOP/s.
    const GpuFigures *f = figures_find("h100");
    ck_assert_double_eq_tol(f->sms * f->tensor_flops_f16 * f->boost_ghz * 1e-3, 989, 2);
    f = figures_find("a100");
    ck_assert_double_eq_tol(f->sms * f->tensor_flops_f16 * f->boost_ghz * 1e-3, 312, 1);
    ck_assert_double_eq_tol(f->sms * f->fma_lanes * 2 * f->boost_ghz * 1e-3, 19.5, 0.1);
    ck_assert_ptr_null(figures_find("h101"));
    ck_assert_str_eq(figures_for_sm(80)->name, "h100");
    ck_assert_str_eq(figures_for_sm(90)->name, "h100");
    ck_assert_str_eq(figures_for_sm(100)->name, "b200");
    // Clusters of 8 find 120 of the H100's SMs.
    int in_clusters = 0;
    f = figures_find("h100");
    for (int g = 0; g < f->gpcs; g++) in_clusters += f->gpc_sizes[g] / 8 * 8;
    ck_assert_int_eq(in_clusters, 120);
}
END_TEST

START_TEST(l2_counts_memory_bytes) {
    Cache *c = cache_new(128 * 4, 4); // one set of four lines
    CacheTraffic t = {0};
    cache_l2_access(c, 1, 0x3, 0, &t); // two sectors come in
    ck_assert_uint_eq(t.read_bytes, 64);
    cache_l2_access(c, 1, 0xf, 0, &t); // the other two
    ck_assert_uint_eq(t.read_bytes, 128);
    cache_l2_access(c, 1, 0xf, 0, &t); // all there
    ck_assert_uint_eq(t.read_bytes, 128);
    cache_l2_access(c, 2, 0xf, 1, &t); // a full write fetches nothing
    ck_assert_uint_eq(t.read_bytes, 128);
    cache_l2_write_part(c, 3, 0, 0x0000ffff, &t); // nor does a write of half a sector
    ck_assert_uint_eq(t.read_bytes, 128);
    cache_l2_access(c, 3, 0x1, 3, &t); // but an atomic on it needs the other half
    ck_assert_uint_eq(t.read_bytes, 160);
    cache_l2_access(c, 3, 0x1, 3, &t); // an atomic on what is there
    ck_assert_uint_eq(t.read_bytes, 160);
    cache_l2_access(c, 0, 0x8, 3, &t); // line 0 is a line like any other
    ck_assert_uint_eq(t.read_bytes, 192);
    ck_assert_uint_eq(t.write_bytes, 0); // dirty lines stay
    cache_l2_access(c, 1, 0x1, 0, &t);   // line 1 is used again, line 2 is now the oldest
    cache_l2_access(c, 9, 0x1, 0, &t);
    ck_assert_uint_eq(t.write_bytes, 128);
    cache_l2_access(c, 10, 0x1, 0, &t); // then 3, with one dirty sector
    ck_assert_uint_eq(t.write_bytes, 160);
    cache_l2_access(c, 11, 0x1, 0, &t); // then 0
    ck_assert_uint_eq(t.write_bytes, 192);
    cache_l2_access(c, 12, 0x1, 0, &t); // then 1, which is clean
    ck_assert_uint_eq(t.write_bytes, 192);
    cache_free(c);
}
END_TEST

START_TEST(l2_puts_parts_together) {
    Cache *c = cache_new(128 * 2, 2); // one set of two lines
    CacheTraffic t = {0};
    cache_l2_write_part(c, 1, 2, 0x0000ffff, &t);
    cache_l2_write_part(c, 1, 2, 0xffff0000, &t);
    cache_l2_access(c, 1, 0x4, 0, &t); // both halves were written: nothing to fetch
    ck_assert_uint_eq(t.read_bytes, 0);
    cache_l2_write_part(c, 2, 3, 0x7fffffff, &t); // one byte is missing
    cache_l2_access(c, 3, 0x1, 1, &t);            // line 1 makes room
    ck_assert_uint_eq(t.read_bytes, 0);
    ck_assert_uint_eq(t.write_bytes, 32);
    cache_l2_access(c, 4, 0x1, 1, &t); // line 2 too: its sector is read to be written whole
    ck_assert_uint_eq(t.read_bytes, 32);
    ck_assert_uint_eq(t.write_bytes, 64);
    cache_l2_write_part(c, 5, 3, 0x80000000, &t); // a new line in line 2's place starts afresh
    cache_l2_access(c, 5, 0x8, 0, &t);
    ck_assert_uint_eq(t.read_bytes, 64);
    cache_free(c);
}
END_TEST

START_TEST(l2_holds_its_capacity) {
    Cache *c = cache_new(1 << 20, 16);
    CacheTraffic t = {0};
    enum { LINES = (1 << 20) / 128 };
    for (int pass = 0; pass < 4; pass++) {
        for (int line = 0; line < LINES / 2; line++) cache_l2_access(c, line, 0xf, 0, &t);
    }
    // Half of the capacity stays but for the few sets that the hash overfills.
    ck_assert_uint_ge(t.read_bytes, 1 << 19);
    ck_assert_uint_le(t.read_bytes, (1 << 19) * 1.1);
    t = (CacheTraffic){0};
    for (int pass = 0; pass < 4; pass++) { // four times the capacity in turn: LRU never hits
        for (int line = 0; line < 4 * LINES; line++) cache_l2_access(c, line, 0xf, 0, &t);
    }
    ck_assert_uint_ge(t.read_bytes, 16u * LINES * 128 - (1 << 20));
    cache_free(c);
}
END_TEST

START_TEST(l1_reads_and_writes) {
    Cache *c = cache_new(1024, 4);
    ck_assert_uint_eq(cache_l1_read(c, 5, 0x3), 0x3);
    ck_assert_uint_eq(cache_l1_read(c, 5, 0x7), 0x4);
    ck_assert_uint_eq(cache_l1_read(c, 5, 0x7), 0);
    cache_l1_write(c, 6, 0xf); // no allocation
    ck_assert_uint_eq(cache_l1_read(c, 6, 0x1), 0x1);
    cache_invalidate(c);
    ck_assert_uint_eq(cache_l1_read(c, 5, 0x1), 0x1);
    cache_free(c);
    c = cache_new(0, 4); // shared memory has taken all of it
    ck_assert_uint_eq(cache_l1_read(c, 5, 0x3), 0x3);
    ck_assert_uint_eq(cache_l1_read(c, 5, 0x3), 0x3);
    cache_free(c);
}
END_TEST

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

// A kernel of a few instructions that have been executed so often.
typedef struct {
    Insn code[4];
    const char *texts[4];
    uint64_t executed[4], lanes[4];
    Kernel kernel;
    Launch launch;
    Counters counters;
} Executed;

static void prepare(Executed *e, uint32_t grid) {
    memset(e, 0, sizeof *e);
    e->kernel = (Kernel){.name = "k", .code = e->code, .code_count = 4, .texts = e->texts};
    e->launch = (Launch){.kernel = &e->kernel, .grid = {grid, 1, 1}, .block = {128, 1, 1}};
    e->counters = (Counters){.executed = e->executed, .lanes = e->lanes};
}

static void set(Executed *e, int k, Pipe pipe, unsigned flops, uint64_t warps, const char *text) {
    e->code[k].pipe = pipe;
    e->code[k].flops = flops;
    e->texts[k] = text;
    e->executed[k] = warps;
    e->lanes[k] = 32 * warps;
}

START_TEST(roofline_of_a_pipe) {
    Bench *b = open_bench(false);
    b->gpu.figures.clock_ghz = 1; // 1000 cycles a microsecond
    Executed e;
    prepare(&e, 132);
    // 132 SMs x 128 lanes: 132,000 warps x 32 lanes take 250 cycles of FMA each.
    set(&e, 0, PIPE_FMA, 2, 132000, "fma.rn.f32");
    set(&e, 1, PIPE_MUFU, 1, 13200, "ex2.approx.f32");
    CacheTraffic hbm = {0};
    KernelStats s = {0};
    roofline(&e.launch, &b->gpu, &e.counters, &hbm, &s);
    ck_assert_double_eq_tol(s.pipe_us[PIPE_FMA], 0.25, 1e-9);
    ck_assert_double_eq_tol(s.pipe_us[PIPE_MUFU], 0.2, 1e-9);
    ck_assert_double_eq_tol(s.issue_us, 145200 / 132 / 4 * 1e-3, 1e-9);
    ck_assert_double_eq_tol(s.time_us, b->gpu.figures.launch_us + 0.275, 1e-9);
    ck_assert_str_eq(s.bound, "launch");
    ck_assert_double_eq(s.flops_f32, 132000. * 64 + 13200. * 32);
    ck_assert_double_eq(s.thread_instructions[PIPE_FMA], 132000 * 32);
    ck_assert_str_eq(s.kernel, "k");
    // One CTA more: the busiest SM has two, twice the work of a mean one.
    e.launch.grid[0] = 133;
    s = (KernelStats){0};
    roofline(&e.launch, &b->gpu, &e.counters, &hbm, &s);
    ck_assert_double_eq_tol(s.pipe_us[PIPE_FMA], 0.25 * 132 * 2 / 133, 1e-9);
    // One CTA in all: one SM does everything.
    e.launch.grid[0] = 1;
    s = (KernelStats){0};
    roofline(&e.launch, &b->gpu, &e.counters, &hbm, &s);
    ck_assert_double_eq_tol(s.pipe_us[PIPE_FMA], 0.25 * 132, 1e-6);
    ck_assert_str_eq(s.bound, "issue");
    close_bench(b);
}
END_TEST

START_TEST(roofline_of_memory) {
    Bench *b = open_bench(false);
    b->gpu.figures.clock_ghz = 1;
    Executed e;
    prepare(&e, 132 * 4);
    set(&e, 0, PIPE_LSU, 0, 132 * 1000, "ld.shared.u32");
    e.counters.shared_wavefronts = 132 * 8000;
    e.counters.shared_ideal = 132 * 1000;
    CacheTraffic hbm = {.read_bytes = 3050000000, .write_bytes = 3050000000};
    KernelStats s = {.l2_read_bytes = 5120e4};
    roofline(&e.launch, &b->gpu, &e.counters, &hbm, &s);
    ck_assert_double_eq_tol(s.pipe_us[PIPE_LSU], 1, 1e-9);
    ck_assert_double_eq_tol(s.shared_us, 8, 1e-9);
    ck_assert_double_eq_tol(s.hbm_us, 2000, 1e-6); // 6.1 GB at 3.05 TB/s
    ck_assert_double_eq_tol(s.l2_us, 10, 1e-9);    // 10,000 clocks at 5120 bytes
    ck_assert_str_eq(s.bound, "hbm");
    ck_assert_double_eq_tol(s.time_us, b->gpu.figures.launch_us + 2000, 1e-6);
    ck_assert_double_eq(s.shared_wavefronts / s.shared_ideal_wavefronts, 8);
    b->settings.timing = false;
    s = (KernelStats){0};
    roofline(&e.launch, &b->gpu, &e.counters, &hbm, &s);
    ck_assert_double_eq(s.time_us, 0);
    close_bench(b);
}
END_TEST

START_TEST(roofline_of_tensor_cores) {
    Bench *b = open_bench(false);
    b->gpu.figures.clock_ghz = 1;
    Executed e;
    prepare(&e, 132);
    // m16n8k16: 4096 FLOPs, one clock of an SM at 4096 FLOPs per clock; tf32 and f64 are slower.
    set(&e, 0, PIPE_TENSOR, 128, 132 * 1000, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32");
    set(&e, 1, PIPE_TENSOR, 64, 132 * 1000, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32");
    e.lanes[1] = 1; // the mask says nothing about a matrix instruction's work
    CacheTraffic hbm = {0};
    KernelStats s = {0};
    roofline(&e.launch, &b->gpu, &e.counters, &hbm, &s);
    ck_assert_double_eq_tol(s.pipe_us[PIPE_TENSOR], 1 + 1, 1e-9);
    ck_assert_double_eq(s.flops_tensor, 132e3 * 4096 + 132e3 * 2048);
    ck_assert_double_eq(s.flops_f32, 0);
    close_bench(b);
}
END_TEST

START_TEST(table_of_kernels) {
    KernelStats s = {.kernel = "attention",
                     .grid = {4, 2, 1},
                     .block = {128, 1, 1},
                     .ctas_per_sm = 8,
                     .time_us = 10,
                     .bound = "hbm",
                     .hbm_us = 5,
                     .hbm_read_bytes = 2.5e6,
                     .shared_wavefronts = 300,
                     .shared_ideal_wavefronts = 100,
                     .registers = 40,
                     .sms_simulated = 2,
                     .sms_total = 132,
                     .host_seconds = 0.7,
                     .cpu_seconds = 0.5};
    s.warp_instructions[PIPE_FMA] = 1e6;
    s.thread_instructions[PIPE_FMA] = 16e6;
    char *text = NULL;
    size_t size = 0;
    FILE *before = stderr;
    stderr = open_memstream(&text, &size);
    stats_print(figures_find("h100")); // nothing recorded: nothing printed
    fflush(stderr);
    ck_assert_uint_eq(size, 0);
    stats_record(&s);
    stats_record(&s);
    stats_print(figures_find("h100"));
    stats_print(figures_find("h100")); // and once only
    fclose(stderr);
    stderr = before;
    static const char *const parts[] = {"attention\n",
                                        "launches 2 ",
                                        "grid 4,2,1",
                                        "registers 40",
                                        "occupancy 50%",
                                        "simulated 2 of 132 SMs",
                                        "time 20.00 us at 1.560 GHz",
                                        "bound by hbm",
                                        "hbm 50%",
                                        "HBM read 5.00 MB",
                                        "3.00 x the ideal",
                                        "fma 2e+06",
                                        "32.0 M thread instructions/s per core",
                                        "16.0 of 32 lanes"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *found = strstr(text, parts[i]);
        ck_assert_msg(found, "'%s' is not in:\n%s", parts[i], text);
        ck_assert_msg(i > 0 || !strstr(found + 1, parts[i]), "twice in:\n%s", text);
    }
    free(text);
}
END_TEST

Suite *suite_timing(void) {
    Suite *suite = suite_create("timing");
    TCase *tests = tcase_create("timing");
    tcase_add_test(tests, figures_make_sense);
    tcase_add_test(tests, l2_counts_memory_bytes);
    tcase_add_test(tests, l2_puts_parts_together);
    tcase_add_test(tests, l2_holds_its_capacity);
    tcase_add_test(tests, l1_reads_and_writes);
    tcase_add_test(tests, coalescing);
    tcase_add_test(tests, coalescing_by_definition);
    tcase_add_test(tests, ranges_by_definition);
    tcase_add_test(tests, writes_and_atomics);
    tcase_add_test(tests, lines_do_not_depend_on_the_host);
    tcase_add_test(tests, local_memory_interleaves);
    tcase_add_test(tests, bank_conflicts);
    tcase_add_test(tests, bank_conflicts_by_definition);
    tcase_add_test(tests, roofline_of_a_pipe);
    tcase_add_test(tests, roofline_of_memory);
    tcase_add_test(tests, roofline_of_tensor_cores);
    tcase_add_test(tests, table_of_kernels);
    suite_add_tcase(suite, tests);
    return suite;
}
