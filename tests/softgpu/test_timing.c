// Figures, caches and the roofline, against numbers worked out by hand. Coalescing and bank conflicts
// are in test_traffic.c.
#include <stdio.h>

#include "softgpu/report/stats.h"
#include "softgpu/timing/roofline.h"
#include "timing_bench.h"

Suite *suite_timing(void);

START_TEST(figures_make_sense) {
    int count;
    const GpuFigures *all = figures_all(&count);
    ck_assert_int_eq(count, 5);
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
    tcase_add_test(tests, roofline_of_a_pipe);
    tcase_add_test(tests, roofline_of_memory);
    tcase_add_test(tests, roofline_of_tensor_cores);
    tcase_add_test(tests, table_of_kernels);
    suite_add_tcase(suite, tests);
    return suite;
}
