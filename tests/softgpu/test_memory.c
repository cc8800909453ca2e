// Loads and stores of every space, width and pattern; and the mem and init checks.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/definedness.h"
#include "bench.h"

Suite *suite_memory(void);

static uint8_t *device(Bench *b, uint64_t address) {
    return global_pointer(b->gpu.memory, address);
}

// A device buffer whose byte k is (uint8_t)(7 * k + 1), and marked as written.
static uint64_t filled(Bench *b, uint64_t size) {
    uint64_t address = global_alloc(b->gpu.memory, size, MEMORY_DEVICE, NULL);
    ck_assert_uint_ne(address, 0);
    for (uint64_t k = 0; k < size; k++) device(b, address)[k] = (uint8_t)(7 * k + 1);
    global_mark_written(b->gpu.memory, address, size);
    return address;
}

// What memory of `filled` holds at a byte offset, as a little-endian number.
static uint64_t expected(uint64_t offset, unsigned size) {
    uint64_t value = 0;
    for (unsigned k = 0; k < size && k < 8; k++)
        value |= (uint64_t)(uint8_t)(7 * (offset + k) + 1) << 8 * k;
    return value;
}

// The load under test and what it must give.
static const struct LoadCase {
    const char *body, *text;
    unsigned element, count, width; // bytes in memory, elements, bytes of the register
    bool is_signed;
} loads[] = {
    {".reg .u16 %r; .reg .b64 %a; ld.global.u8 %r, [%a];", "ld.global.u8", 1, 1, 2, false},
    {".reg .s16 %r; .reg .b64 %a; ld.global.s8 %r, [%a];", "ld.global.s8", 1, 1, 2, true},
    {".reg .s32 %r; .reg .b64 %a; ld.global.s8 %r, [%a];", "ld.global.s8", 1, 1, 4, true},
    {".reg .s64 %r; .reg .b64 %a; ld.global.s8 %r, [%a];", "ld.global.s8", 1, 1, 8, true},
    {".reg .u64 %r; .reg .b64 %a; ld.global.nc.u8 %r, [%a];", "ld.global.nc.u8", 1, 1, 8, false},
    {".reg .u32 %r; .reg .b64 %a; ld.global.u16 %r, [%a];", "ld.global.u16", 2, 1, 4, false},
    {".reg .s32 %r; .reg .b64 %a; ld.global.s16 %r, [%a];", "ld.global.s16", 2, 1, 4, true},
    {".reg .b16 %r; .reg .b64 %a; ld.global.b16 %r, [%a];", "ld.global.b16", 2, 1, 2, false},
    {".reg .s64 %r; .reg .b64 %a; ld.global.s32 %r, [%a];", "ld.global.s32", 4, 1, 8, true},
    {".reg .u64 %r; .reg .b64 %a; ld.global.u32 %r, [%a];", "ld.global.u32", 4, 1, 8, false},
    {".reg .f32 %r; .reg .b64 %a; ld.global.f32 %r, [%a];", "ld.global.f32", 4, 1, 4, false},
    {".reg .f64 %r; .reg .b64 %a; ld.global.cs.f64 %r, [%a];", "ld.global.cs.f64", 8, 1, 8, false},
    {".reg .b128 %r; .reg .b64 %a; ld.global.b128 %r, [%a];", "ld.global.b128", 16, 1, 16, false},
    {".reg .b32 %r<4>; .reg .b64 %a; ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%a];", "ld.global.v4.u32",
     4, 4, 4, false},
    {".reg .f32 %r<2>; .reg .b64 %a; ld.volatile.global.v2.f32 {%r0,%r1}, [%a];",
     "ld.volatile.global.v2.f32", 4, 2, 4, false},
    {".reg .b64 %r<4>; .reg .b64 %a; ld.global.nc.L1::no_allocate.L2::256B.v4.u64 "
     "{%r0,%r1,%r2,%r3}, [%a];",
     "ld.global.nc.L1::no_allocate.L2::256B.v4.u64", 8, 4, 8, false},
    {".reg .b32 %r<8>; .reg .b64 %a; ld.global.relaxed.cta.L1::no_allocate.L2::evict_first.v8.b32 "
     "{%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, [%a];",
     "ld.global.relaxed.cta.L1::no_allocate.L2::evict_first.v8.b32", 4, 8, 4, false},
    {".reg .b16 %r<4>; .reg .b64 %a; ld.global.v4.u8 {%r0,%r1,%r2,%r3}, [%a];", "ld.global.v4.u8",
     1, 4, 2, false},
    {".reg .u32 %r; .reg .b64 %a; ld.u32 %r, [%a];", "ld.u32", 4, 1, 4, false},
    {".reg .u32 %r; .reg .b64 %a; ld.acquire.gpu.u32 %r, [%a];", "ld.acquire.gpu.u32", 4, 1, 4,
     false},
};

// Lane `lane` of a destination row as a number; for 16 bytes the low half.
static uint64_t lane_value(Bench *b, const Insn *i, unsigned k, unsigned width, int lane) {
    uint64_t value = 0;
    const uint8_t *r = row(&b->warp, i->rows[k]);
    memcpy(&value, r + (size_t)lane * width, width > 8 ? 8 : width);
    return value;
}

static uint64_t extended(uint64_t value, unsigned from, unsigned to, bool is_signed) {
    if (is_signed && from < 8 && value >> (8 * from - 1)) value |= ~0ull << 8 * from;
    return to >= 8 ? value : value & ((1ull << 8 * to) - 1);
}

START_TEST(loads_give_memory) {
    const struct LoadCase *c = &loads[_i];
    static const uint32_t masks[] = {FULL_MASK, 0x0000fff0, 0x80000001, 0xaaaaaaaa};
    for (int pattern = 0; pattern < 4; pattern++) {
        for (int m = 0; m < 4; m++) {
            Bench *b = bench_open(c->body, CHECK_MEM | CHECK_INIT);
            const Insn *i = bench_insn(b, c->text);
            unsigned bytes = c->element * c->count;
            uint64_t buffer = filled(b, 4096), address[32];
            for (int l = 0; l < 32; l++) {
                // consecutive, uniform, backwards, mixed
                int at[] = {l, 5, 31 - l, (l * 13 + 3) % 64};
                address[l] = buffer + (uint64_t)at[pattern] * bytes;
            }
            bench_addresses(b, i, address);
            for (unsigned k = 0; k < c->count; k++)
                memset(row(&b->warp, i->rows[k]), 0xee, 32 * c->width);
            bench_run(b, i, masks[m]);
            for (int l = 0; l < 32; l++) {
                for (unsigned k = 0; k < c->count; k++) {
                    uint64_t want =
                        extended(expected(address[l] - buffer + k * c->element, c->element),
                                 c->element, c->width, c->is_signed);
                    if (!(masks[m] >> l & 1)) want = extended(0xeeeeeeeeeeeeeeee, 8, c->width, 0);
                    ck_assert_uint_eq(lane_value(b, i, k, c->width, l), want);
                }
            }
            ck_assert_int_eq(bench_findings(b, NULL), 0);
            bench_close(b);
        }
    }
}
END_TEST

static const struct StoreCase {
    const char *body, *text;
    unsigned element, count, width;
} stores[] = {
    {".reg .b16 %r; .reg .b64 %a; st.global.u8 [%a], %r;", "st.global.u8", 1, 1, 2},
    {".reg .b32 %r; .reg .b64 %a; st.global.u8 [%a], %r;", "st.global.u8", 1, 1, 4},
    {".reg .b64 %r; .reg .b64 %a; st.global.wt.b16 [%a], %r;", "st.global.wt.b16", 2, 1, 8},
    {".reg .f32 %r; .reg .b64 %a; st.global.f32 [%a], %r;", "st.global.f32", 4, 1, 4},
    {".reg .f64 %r; .reg .b64 %a; st.f64 [%a], %r;", "st.f64", 8, 1, 8},
    {".reg .s32 %r; .reg .b64 %a; st.global.s32 [%a], %r;", "st.global.s32", 4, 1, 4},
    {".reg .s64 %r<2>; .reg .b64 %a; st.global.cs.v2.s64 [%a], {%r0,%r1};", "st.global.cs.v2.s64",
     8, 2, 8},
    {".reg .b128 %r; .reg .b64 %a; st.weak.global.b128 [%a], %r;", "st.weak.global.b128", 16, 1,
     16},
    {".reg .b32 %r<4>; .reg .b64 %a; st.global.v4.u32 [%a], {%r0,%r1,%r2,%r3};", "st.global.v4.u32",
     4, 4, 4},
    {".reg .b32 %r<8>; .reg .b64 %a; st.relaxed.cta.global.L1::no_allocate.v8.b32 [%a], "
     "{%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7};",
     "st.relaxed.cta.global.L1::no_allocate.v8.b32", 4, 8, 4},
    {".reg .b32 %r; .reg .b64 %a; st.global.release.gpu.b32 [%a], %r;", "st.global.release.gpu.b32",
     4, 1, 4},
};

START_TEST(stores_change_only_their_bytes) {
    const struct StoreCase *c = &stores[_i];
    static const uint32_t masks[] = {FULL_MASK, 0x0000fff0, 0x80000001};
    for (int spread = 1; spread <= 2; spread++) {
        for (int m = 0; m < 3; m++) {
            Bench *b = bench_open(c->body, CHECK_MEM | CHECK_INIT);
            const Insn *i = bench_insn(b, c->text);
            unsigned bytes = c->element * c->count;
            uint64_t buffer = filled(b, 4096);
            bench_stride(b, i, buffer + 64, (int64_t)bytes * spread);
            for (unsigned k = 0; k < c->count; k++)
                for (unsigned n = 0; n < 32 * c->width; n++)
                    ((uint8_t *)row(&b->warp, i->rows[k]))[n] = (uint8_t)(3 * n + 50 * k);
            bench_run(b, i, masks[m]);
            uint8_t want[4096];
            for (int n = 0; n < 4096; n++) want[n] = (uint8_t)(7 * n + 1);
            for (unsigned l = 0; l < 32; l++)
                for (unsigned k = 0; k < c->count && masks[m] >> l & 1; k++)
                    for (unsigned n = 0; n < c->element; n++)
                        want[64 + l * bytes * (unsigned)spread + k * c->element + n] =
                            (uint8_t)(3 * (l * c->width + n) + 50 * k);
            ck_assert_mem_eq(device(b, buffer), want, 4096);
            ck_assert_uint_gt(b->warp.stores, 0);
            bench_close(b);
        }
    }
}
END_TEST

START_TEST(shared_memory_round_trip) {
    Bench *b = bench_open(".reg .b32 %a, %r<4>; st.shared.v2.b32 [%a+8], {%r0,%r1};\n"
                          "ld.shared::cta.v2.b32 {%r2,%r3}, [%a+8];",
                          CHECK_MEM | CHECK_INIT);
    const Insn *st = bench_insn(b, "st.shared.v2.b32");
    const Insn *ld = bench_insn(b, "ld.shared::cta.v2.b32");
    for (int stride = 8; stride <= 24; stride += 8) {
        bench_stride(b, st, SHARED_RESERVED, stride);
        for (uint32_t l = 0; l < 32; l++) {
            ((uint32_t *)row(&b->warp, st->rows[0]))[l] = 1000 + l;
            ((uint32_t *)row(&b->warp, st->rows[1]))[l] = 2000 + l;
        }
        ck_assert_int_eq(bench_run(b, st, FULL_MASK), FLOW_NEXT);
        bench_stride(b, ld, SHARED_RESERVED, stride);
        ck_assert_int_eq(bench_run(b, ld, FULL_MASK), FLOW_NEXT);
        for (uint32_t l = 0; l < 32; l++) {
            ck_assert_uint_eq(((uint32_t *)row(&b->warp, ld->rows[0]))[l], 1000 + l);
            ck_assert_uint_eq(((uint32_t *)row(&b->warp, ld->rows[1]))[l], 2000 + l);
        }
    }
    ck_assert_int_eq(bench_findings(b, NULL), 0);
    bench_close(b);
}
END_TEST

// Every CTA's shared addresses carry its rank; the own rank is the only one there is.
START_TEST(shared_addresses_carry_the_rank) {
    Bench *b = bench_open(".reg .b32 %a, %r; ld.shared::cluster.b32 %r, [%a];", CHECK_MEM);
    const Insn *ld = bench_insn(b, "ld.shared::cluster.b32");
    b->cta.cluster_rank = 3;
    memset(b->cta.shared + SHARED_RESERVED, 0x5a, 128);
    bench_stride(b, ld, 3u << RANK_SHIFT | SHARED_RESERVED, 4);
    ck_assert_int_eq(bench_run(b, ld, FULL_MASK), FLOW_NEXT);
    ck_assert_uint_eq(((uint32_t *)row(&b->warp, ld->rows[0]))[31], 0x5a5a5a5a);
    bench_stride(b, ld, 4u << RANK_SHIFT | SHARED_RESERVED, 4);
    ck_assert_int_eq(bench_run(b, ld, FULL_MASK), FLOW_FAULT);
    const Finding *f;
    ck_assert_int_eq(bench_findings(b, &f), 1);
    ck_assert_int_eq(f->kind, FINDING_WRONG_SPACE);
    bench_close(b);
}
END_TEST

START_TEST(generic_addresses_of_all_spaces_at_once) {
    Bench *b = bench_open(".reg .b64 %a; .reg .b32 %r; st.u32 [%a], %r;\nld.u32 %r, [%a];",
                          CHECK_MEM | CHECK_INIT);
    const Insn *st = bench_insn(b, "st.u32"), *ld = bench_insn(b, "ld.u32");
    uint64_t buffer = global_alloc(b->gpu.memory, 256, MEMORY_DEVICE, NULL), address[32];
    for (uint64_t l = 0; l < 32; l++) {
        uint64_t places[] = {buffer + 4 * l, SHARED_WINDOW + SHARED_RESERVED + 4 * l,
                             LOCAL_WINDOW + 4 * l};
        address[l] = places[l % 3];
    }
    bench_addresses(b, st, address);
    for (uint32_t l = 0; l < 32; l++) ((uint32_t *)row(&b->warp, st->rows[0]))[l] = 77 * l;
    ck_assert_int_eq(bench_run(b, st, FULL_MASK), FLOW_NEXT);
    ck_assert_uint_eq(*(uint32_t *)device(b, buffer + 12), 77 * 3);
    ck_assert_uint_eq(*(uint32_t *)(b->cta.shared + SHARED_RESERVED + 16), 77 * 4);
    ck_assert_uint_eq(*(uint32_t *)(b->warp.local + 5 * BENCH_LOCAL + 20), 77 * 5);
    bench_addresses(b, ld, address);
    ck_assert_int_eq(bench_run(b, ld, FULL_MASK), FLOW_NEXT);
    for (uint32_t l = 0; l < 32; l++)
        ck_assert_uint_eq(((uint32_t *)row(&b->warp, ld->rows[0]))[l], 77 * l);
    ck_assert_int_eq(bench_findings(b, NULL), 0);
    bench_close(b);
}
END_TEST

START_TEST(parameters_of_the_kernel) {
    Bench *b = bench_open(".reg .b64 %a, %p; .reg .b32 %r<6>; .param .b32 unused;\n"
                          "ld.param.v2.u32 {%r0,%r1}, [bench_param_0+8];\n"
                          "ld.param.u32 %r2, [%p+4];\nld.u32 %r3, [%a];\n"
                          "st.param.b32 [unused], %r3;\nld.param.b32 %r4, [unused];",
                          CHECK_MEM);
    for (int k = 0; k < BENCH_PARAMS; k++) b->params[k] = (uint8_t)(k + 1);
    const Insn *direct = bench_insn(b, "ld.param.v2.u32");
    const Insn *indirect = bench_insn(b, "ld.param.u32"), *generic = bench_insn(b, "ld.u32");
    ck_assert_int_eq(bench_run(b, direct, FULL_MASK), FLOW_NEXT);
    ck_assert_uint_eq(((uint32_t *)row(&b->warp, direct->rows[1]))[17], 0x100f0e0d);
    bench_stride(b, indirect, 12, 0);
    ck_assert_int_eq(bench_run(b, indirect, 0xff00), FLOW_NEXT);
    ck_assert_uint_eq(((uint32_t *)row(&b->warp, indirect->rows[0]))[8], 0x14131211);
    bench_stride(b, generic, PARAM_WINDOW + 4, 0);
    ck_assert_int_eq(bench_run(b, generic, FULL_MASK), FLOW_NEXT);
    ck_assert_uint_eq(((uint32_t *)row(&b->warp, generic->rows[0]))[9], 0x08070605);

    // .param storage of a call is the lane's own.
    const Insn *st = bench_insn(b, "st.param.b32"), *ld = bench_insn(b, "ld.param.b32");
    for (uint32_t l = 0; l < 32; l++) ((uint32_t *)row(&b->warp, st->rows[0]))[l] = l * l;
    ck_assert_int_eq(bench_run(b, st, FULL_MASK), FLOW_NEXT);
    ck_assert_int_eq(bench_run(b, ld, FULL_MASK), FLOW_NEXT);
    for (uint32_t l = 0; l < 32; l++)
        ck_assert_uint_eq(((uint32_t *)row(&b->warp, ld->rows[0]))[l], l * l);

    bench_stride(b, indirect, BENCH_PARAMS - 4, 0);
    ck_assert_int_eq(bench_run(b, indirect, FULL_MASK), FLOW_FAULT);
    bench_close(b);
}
END_TEST

// Ordered accesses to global memory wait for the serial phase, others and other spaces don't.
START_TEST(ordered_accesses_are_deferred) {
    static const struct {
        const char *body, *text;
        bool deferred;
    } cases[] = {
        {".reg .b64 %a; .reg .b32 %r; ld.acquire.gpu.global.u32 %r, [%a];",
         "ld.acquire.gpu.global.u32", true},
        {".reg .b64 %a; .reg .b32 %r; ld.volatile.u32 %r, [%a];", "ld.volatile.u32", true},
        {".reg .b64 %a; .reg .b32 %r; st.release.sys.u32 [%a], %r;", "st.release.sys.u32", true},
        {".reg .b64 %a; .reg .b32 %r; atom.global.add.u32 %r, [%a], 1;", "atom.global.add.u32",
         true},
        {".reg .b64 %a; .reg .b32 %r; red.add.u32 [%a], 1;", "red.add.u32", true},
        {".reg .b64 %a; .reg .b32 %r; ld.global.u32 %r, [%a];", "ld.global.u32", false},
        {".reg .b64 %a; .reg .b32 %r; ld.relaxed.cta.global.u32 %r, [%a];",
         "ld.relaxed.cta.global.u32", false},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        Bench *b = bench_open(cases[k].body, CHECK_MEM);
        const Insn *i = bench_insn(b, cases[k].text);
        bench_stride(b, i, filled(b, 256), 4);
        b->state.many_sms = true;
        Flow flow = bench_run(b, i, FULL_MASK);
        ck_assert_msg((flow == FLOW_DEFER) == cases[k].deferred, "%s", cases[k].text);
        b->sm.serial = true;
        ck_assert_int_ne(bench_run(b, i, FULL_MASK), FLOW_DEFER);
        b->sm.serial = false;
        if (!strchr(cases[k].text, 'g') || strstr(cases[k].text, "global") == NULL) {
            bench_stride(b, i, SHARED_WINDOW + SHARED_RESERVED, 4);
            ck_assert_int_ne(bench_run(b, i, FULL_MASK), FLOW_DEFER);
        }
        bench_close(b);
    }
}
END_TEST

// ---- the mem check

#define LOAD_4       ".reg .b64 %a; .reg .b32 %r; ld.global.u32 %r, [%a];"
#define STORE_4      ".reg .b64 %a; .reg .b32 %r; st.global.u32 [%a], %r;"
#define STORE_4_MORE "\nst.global.u32 [%a], %r;"

// Runs one access at `address` from lane 9 (others are fine) and returns its one finding.
static const Finding *fault_at(Bench *b, const Insn *i, uint64_t good, uint64_t address) {
    const Finding *f;
    uint64_t all[32];
    for (int l = 0; l < 32; l++) all[l] = l == 9 ? address : good;
    bench_addresses(b, i, all);
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_FAULT);
    ck_assert(b->sm.faulted);
    ck_assert_int_eq(bench_findings(b, &f), 1);
    ck_assert_int_eq(f->thread[0] + 8 * f->thread[1], 9);
    return f;
}

START_TEST(out_of_bounds_says_what_is_near) {
    Bench *b = bench_open(LOAD_4, CHECK_MEM);
    const Insn *i = bench_insn(b, "ld.global.u32");
    uint64_t good = filled(b, 4096);
    const Finding *f = fault_at(b, i, good, good + 4100);
    ck_assert_int_eq(f->kind, FINDING_OUT_OF_BOUNDS);
    ck_assert_ptr_nonnull(strstr(f->what, "4 bytes past the end of the 4096-byte allocation #"));
    ck_assert_int_eq(findings_launch_error(), 700);
    bench_close(b);

    b = bench_open(LOAD_4, CHECK_MEM);
    i = bench_insn(b, "ld.global.u32");
    good = filled(b, 4094);
    f = fault_at(b, i, good, good + 4092);
    ck_assert_ptr_nonnull(strstr(f->what, "the last 2 of them lie past the end"));
    bench_close(b);

    b = bench_open(LOAD_4, CHECK_MEM);
    i = bench_insn(b, "ld.global.u32");
    good = filled(b, 4096);
    f = fault_at(b, i, good, good - 8);
    ck_assert_ptr_nonnull(strstr(f->what, "8 bytes before the start of the 4096-byte allocation"));
    bench_close(b);

    b = bench_open(LOAD_4, CHECK_MEM);
    i = bench_insn(b, "ld.global.u32");
    f = fault_at(b, i, filled(b, 64), 16);
    ck_assert_ptr_nonnull(strstr(f->what, "null pointer"));
    bench_close(b);

    b = bench_open(LOAD_4, CHECK_MEM);
    i = bench_insn(b, "ld.global.u32");
    uint32_t on_the_stack = 0;
    f = fault_at(b, i, filled(b, 64), (uint64_t)(uintptr_t)&on_the_stack);
    ck_assert_ptr_nonnull(strstr(f->what, "no address of device memory"));
    bench_close(b);
}
END_TEST

START_TEST(misalignment_constness_and_lifetime) {
    Bench *b = bench_open(LOAD_4, CHECK_MEM);
    const Insn *i = bench_insn(b, "ld.global.u32");
    uint64_t good = filled(b, 4096);
    const Finding *f = fault_at(b, i, good, good + 6);
    ck_assert_int_eq(f->kind, FINDING_MISALIGNED);
    ck_assert_ptr_nonnull(strstr(f->what, "2 bytes past a multiple of 4"));
    ck_assert_int_eq(findings_launch_error(), 716);
    bench_close(b);

    // All lanes consecutive, all misaligned.
    b = bench_open(LOAD_4, CHECK_MEM);
    i = bench_insn(b, "ld.global.u32");
    bench_stride(b, i, filled(b, 4096), 4);
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_NEXT);
    bench_stride(b, i, filled(b, 4096) + 2, 4);
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_FAULT);
    bench_close(b);

    b = bench_open(STORE_4, CHECK_MEM);
    i = bench_insn(b, "st.global.u32");
    uint64_t constant = global_alloc(b->gpu.memory, 64, MEMORY_CONSTANT, "table");
    f = fault_at(b, i, filled(b, 64), constant);
    ck_assert_int_eq(f->kind, FINDING_WRONG_SPACE);
    ck_assert_ptr_nonnull(strstr(f->what, "table"));
    bench_close(b);

    b = bench_open(LOAD_4, CHECK_MEM);
    i = bench_insn(b, "ld.global.u32");
    good = filled(b, 64);
    uint64_t freed = filled(b, 512);
    ck_assert(global_free(b->gpu.memory, freed));
    f = fault_at(b, i, good, freed + 8);
    ck_assert_int_eq(f->kind, FINDING_USE_AFTER_FREE);
    bench_close(b);

    b = bench_open(LOAD_4, CHECK_MEM);
    i = bench_insn(b, "ld.global.u32");
    f = fault_at(b, i, filled(b, 64), SHARED_WINDOW + SHARED_RESERVED);
    ck_assert_int_eq(f->kind, FINDING_WRONG_SPACE);
    ck_assert_ptr_nonnull(strstr(f->what, "shared memory"));
    bench_close(b);
}
END_TEST

// What a constant may be: read.
START_TEST(constants_can_be_read) {
    Bench *b = bench_open(".reg .b64 %a; .reg .b32 %r; ld.const.u32 %r, [%a];", CHECK_MEM);
    const Insn *i = bench_insn(b, "ld.const.u32");
    uint64_t constant = global_alloc(b->gpu.memory, 64, MEMORY_CONSTANT, "table");
    bench_stride(b, i, constant, 0);
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_NEXT);
    bench_close(b);
}
END_TEST

START_TEST(shared_and_local_bounds) {
    Bench *b = bench_open(".reg .b32 %a, %r; ld.shared.u32 %r, [%a];", CHECK_MEM);
    const Insn *i = bench_insn(b, "ld.shared.u32");
    b->launch.dynamic_shared = BENCH_SHARED;
    const Finding *f = fault_at(b, i, SHARED_RESERVED, SHARED_RESERVED + BENCH_SHARED + 8);
    ck_assert_ptr_nonnull(strstr(f->what, "8 bytes past the end"));
    ck_assert_ptr_nonnull(strstr(f->what, "4096 of dynamic"));
    bench_close(b);

    b = bench_open(".reg .b32 %a, %r; ld.shared.u32 %r, [%a];", CHECK_MEM);
    i = bench_insn(b, "ld.shared.u32");
    f = fault_at(b, i, SHARED_RESERVED, 0);
    ck_assert_int_eq(f->kind, FINDING_OUT_OF_BOUNDS);
    bench_close(b);

    // Schedules above 0 begin the kernel's memory later; what lies before it isn't the kernel's.
    b = bench_open(".reg .b32 %a, %r; ld.shared.u32 %r, [%a];", CHECK_MEM);
    i = bench_insn(b, "ld.shared.u32");
    b->kernel->shared_base = SHARED_RESERVED + 0x40;
    f = fault_at(b, i, SHARED_RESERVED + 0x40, SHARED_RESERVED + 0x3c);
    ck_assert_ptr_nonnull(strstr(f->what, "below the CTA's memory (it begins at 0x440)"));
    bench_close(b);

    b = bench_open(".reg .b64 %a; .reg .b32 %r; ld.shared.u32 %r, [%a];", CHECK_MEM);
    i = bench_insn(b, "ld.shared.u32");
    f = fault_at(b, i, SHARED_RESERVED, SHARED_WINDOW + SHARED_RESERVED);
    ck_assert_int_eq(f->kind, FINDING_WRONG_SPACE);
    bench_close(b);

    b = bench_open(".reg .b64 %a; .reg .b32 %r; st.local.u32 [%a], %r;", CHECK_MEM);
    i = bench_insn(b, "st.local.u32");
    f = fault_at(b, i, 0, BENCH_LOCAL);
    ck_assert_int_eq(f->kind, FINDING_OUT_OF_BOUNDS);
    bench_close(b);
}
END_TEST

// With the mem check off nothing but the crash itself is told, and nothing crashes.
// The end of an access at the last addresses is 0: it must not count as inside of an allocation.
START_TEST(addresses_that_wrap_are_no_memory) {
    for (int check = 0; check < 2; check++) {
        for (int both = 0; both < 2; both++) {
            Bench *b = bench_open(LOAD_4, check ? CHECK_MEM : 0);
            const Insn *i = bench_insn(b, "ld.global.u32");
            uint64_t address[32], good = filled(b, 4096);
            bench_stride(b, i, good, 4); // so that the allocation is remembered
            ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_NEXT);
            for (int l = 0; l < 32; l++) address[l] = good + (uint64_t)l * 8;
            address[9] = (uint64_t)-4;
            if (both) address[10] = 0; // goes on where lane 9 ends
            bench_addresses(b, i, address);
            ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_FAULT);
            ck_assert_int_eq(bench_findings(b, NULL), 1);
            bench_close(b);
        }
    }
}
END_TEST

START_TEST(without_the_mem_check) {
    Bench *b = bench_open(LOAD_4, 0);
    const Insn *i = bench_insn(b, "ld.global.u32");
    uint64_t good = filled(b, 4096);
    bench_stride(b, i, good + 4096, 4); // past the end, but memory
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_NEXT);
    const Finding *f = fault_at(b, i, good, 64);
    ck_assert_ptr_nonnull(strstr(f->what, "illegal address"));
    ck_assert_int_eq(findings_launch_error(), 700);
    bench_close(b);
}
END_TEST

// ---- the init check

START_TEST(reads_of_unwritten_global_memory) {
    Bench *b = bench_open(LOAD_4 "st.global.u16 [%a], %r;", CHECK_MEM | CHECK_INIT);
    const Insn *ld = bench_insn(b, "ld.global.u32"), *st = bench_insn(b, "st.global.u16");
    uint64_t buffer = global_alloc(b->gpu.memory, 1024, MEMORY_DEVICE, NULL);
    const Finding *f;
    // Half of each word is written: not enough when strict.
    b->settings.strict = true;
    bench_stride(b, st, buffer, 4);
    bench_run(b, st, FULL_MASK);
    bench_stride(b, ld, buffer, 4);
    ck_assert_int_eq(bench_run(b, ld, FULL_MASK), FLOW_NEXT);
    ck_assert_int_eq(bench_findings(b, &f), 1);
    ck_assert_int_eq(f->kind, FINDING_UNINITIALISED);
    ck_assert_ptr_nonnull(strstr(f->what, "some of them"));
    ck_assert_int_eq(findings_launch_error(), 0);
    // The other half too: fine, and so the count stays.
    bench_stride(b, st, buffer + 2, 4);
    bench_run(b, st, FULL_MASK);
    bench_stride(b, ld, buffer, 4);
    bench_run(b, ld, FULL_MASK);
    ck_assert_int_eq(bench_findings(b, &f), 1);
    ck_assert_uint_eq(f->count, 1);
    // Only the lanes that are on count.
    bench_stride(b, ld, buffer + 64, 4);
    bench_run(b, ld, 0x0000ffff);
    bench_findings(b, &f);
    ck_assert_uint_eq(f->count, 1);
    bench_run(b, ld, 0x0001ffff);
    bench_findings(b, &f);
    ck_assert_uint_eq(f->count, 2);
    bench_close(b);
}
END_TEST

// Stores of a launch without the check are known to a later launch with it.
START_TEST(writes_are_marked_while_the_check_is_off) {
    Bench *b = bench_open(LOAD_4 STORE_4_MORE, CHECK_MEM | CHECK_INIT);
    const Insn *ld = bench_insn(b, "ld.global.u32"), *st = bench_insn(b, "st.global.u32");
    uint64_t buffer = global_alloc(b->gpu.memory, 1024, MEMORY_DEVICE, NULL);
    b->settings.checks = 0;
    bench_stride(b, ld, buffer, 8);
    bench_run(b, ld, FULL_MASK);
    ck_assert_int_eq(bench_findings(b, NULL), 0);
    bench_stride(b, st, buffer, 8);
    bench_run(b, st, FULL_MASK);
    b->settings.checks = CHECK_MEM | CHECK_INIT;
    bench_stride(b, ld, buffer, 8);
    bench_run(b, ld, FULL_MASK);
    ck_assert_int_eq(bench_findings(b, NULL), 0);
    bench_stride(b, ld, buffer + 4, 8);
    bench_run(b, ld, FULL_MASK);
    ck_assert_int_eq(bench_findings(b, NULL), 1);
    bench_close(b);
}
END_TEST

// Structs are copied with their padding: not an error of a program that isn't ours.
START_TEST(partly_written_is_a_note_unless_strict) {
    Bench *b = bench_open(LOAD_4 "\nst.global.u16 [%a], %r;", CHECK_MEM | CHECK_INIT);
    const Insn *ld = bench_insn(b, "ld.global.u32"), *st = bench_insn(b, "st.global.u16");
    uint64_t buffer = global_alloc(b->gpu.memory, 1024, MEMORY_DEVICE, NULL);
    const Finding *f;
    bench_stride(b, st, buffer, 4);
    bench_run(b, st, FULL_MASK);
    bench_stride(b, ld, buffer, 4);
    bench_run(b, ld, FULL_MASK);
    ck_assert_int_eq(bench_findings(b, &f), 1);
    ck_assert(f->note);
    ck_assert_int_eq(findings_count(), 0);
    bench_stride(b, ld, buffer + 128, 4); // nothing at all is written there
    bench_run(b, ld, FULL_MASK);
    ck_assert_int_eq(bench_findings(b, &f), 2);
    ck_assert_int_eq(f->kind, FINDING_UNINITIALISED);
    ck_assert_int_eq(findings_count(), 1);
    bench_close(b);
}
END_TEST

// Nor is a read of shared or local memory whose value may be thrown away: it makes the register
// undefined (test_definedness.c).
START_TEST(unwritten_shared_and_local_is_followed_unless_strict) {
    Bench *b = bench_open(".reg .b32 %a, %r; ld.shared.u32 %r, [%a];\n"
                          ".reg .b64 %d; ld.local.u32 %r, [%d];",
                          CHECK_MEM | CHECK_INIT);
    const Insn *shared = bench_insn(b, "ld.shared.u32"), *local = bench_insn(b, "ld.local.u32");
    const Finding *f;
    for (int strict = 0; strict < 2; strict++) {
        b->settings.strict = strict;
        definedness_start(&b->warp);
        bench_stride(b, shared, SHARED_RESERVED, 4);
        bench_run(b, shared, FULL_MASK);
        ck_assert_int_eq(bench_findings(b, &f), strict);
        ck_assert_uint_eq(definedness_lanes(&b->warp, shared->rows[0]), strict ? 0 : FULL_MASK);
        definedness_start(&b->warp);
        bench_stride(b, local, 8, 0);
        bench_run(b, local, 0xff);
        ck_assert_int_eq(bench_findings(b, &f), 2 * strict);
        ck_assert_uint_eq(definedness_lanes(&b->warp, local->rows[0]), strict ? 0 : 0xff);
        ck_assert_int_eq(findings_count(), 2 * strict);
        if (strict) ck_assert(!f->note);
    }
    bench_close(b);
}
END_TEST

// nvcc widens loads and says which of their bytes it uses: only those need to be written.
START_TEST(used_bytes_mask) {
    Bench *b = bench_open(".reg .b64 %a; .reg .b32 %r, %x, %y, %z, %w;\nst.global.u32 [%a], %r;\n"
                          ".pragma \"used_bytes_mask 0x0f0f\";\n"
                          "ld.global.v4.u32 {%x, %y, %z, %w}, [%a];\n"
                          ".pragma \"used_bytes_mask 65535\";\n"
                          "ld.global.v2.u64 {%a, %a}, [%a];",
                          CHECK_MEM | CHECK_INIT);
    const Insn *st = bench_insn(b, "st.global.u32"), *ld = bench_insn(b, "ld.global.v4.u32");
    const Insn *all = bench_insn(b, "ld.global.v2.u64");
    b->settings.strict = true;
    uint64_t buffer = global_alloc(b->gpu.memory, 4096, MEMORY_DEVICE, NULL);
    bench_stride(b, st, buffer, 8); // every other word
    bench_run(b, st, FULL_MASK);
    bench_stride(b, ld, buffer, 16);
    bench_run(b, ld, 0xffff);
    ck_assert_int_eq(bench_findings(b, NULL), 0);
    bench_stride(b, ld, buffer + 256, 16); // beyond
    bench_run(b, ld, FULL_MASK);
    ck_assert_int_eq(bench_findings(b, NULL), 1);
    bench_stride(b, all, buffer, 16);
    bench_run(b, all, 0xff);
    ck_assert_int_eq(bench_findings(b, NULL), 2);
    bench_close(b);
}
END_TEST

// While only some blocks of a grid run, and for what they leave, nobody knows what is written.
START_TEST(samples_are_not_checked_for_unwritten_global_memory) {
    Bench *b = bench_open(LOAD_4, CHECK_MEM | CHECK_INIT);
    const Insn *ld = bench_insn(b, "ld.global.u32");
    uint64_t before = global_alloc(b->gpu.memory, 1024, MEMORY_DEVICE, NULL);
    b->state.sampled = true;
    bench_stride(b, ld, before, 4);
    bench_run(b, ld, FULL_MASK);
    global_sampled(b->gpu.memory);
    b->state.sampled = false;
    bench_run(b, ld, FULL_MASK);
    ck_assert_int_eq(bench_findings(b, NULL), 0);
    uint64_t after = global_alloc(b->gpu.memory, 1024, MEMORY_DEVICE, NULL);
    bench_stride(b, ld, after, 4);
    bench_run(b, ld, FULL_MASK);
    ck_assert_int_eq(bench_findings(b, NULL), 1);
    bench_close(b);
}
END_TEST

START_TEST(reads_of_unwritten_shared_and_local_memory) {
    Bench *b = bench_open(".reg .b32 %a, %r; st.shared.u16 [%a], %r;\nld.shared.u32 %r, [%a];\n"
                          ".reg .b64 %d; st.local.u16 [%d], %r;\nld.local.u32 %r, [%d];",
                          CHECK_MEM | CHECK_INIT);
    const Insn *st = bench_insn(b, "st.shared.u16"), *ld = bench_insn(b, "ld.shared.u32");
    b->settings.strict = true;
    for (int odd = 0; odd < 2; odd++) {
        bench_stride(b, st, SHARED_RESERVED + 2 * (uint64_t)odd, 4);
        bench_run(b, st, FULL_MASK);
        bench_stride(b, ld, SHARED_RESERVED, 4);
        bench_run(b, ld, FULL_MASK);
        ck_assert_int_eq(bench_findings(b, NULL), 1); // after the first half only
    }
    bench_stride(b, ld, SHARED_RESERVED + 4, 8); // beyond what was written
    bench_run(b, ld, FULL_MASK);
    const Finding *f;
    bench_findings(b, &f);
    ck_assert_uint_eq(f->count, 2);

    // Padding: a half-written word of local memory is fine, an unwritten one isn't.
    const Insn *st_local = bench_insn(b, "st.local.u16"), *ld_local = bench_insn(b, "ld.local.u32");
    bench_stride(b, st_local, 8, 0);
    bench_run(b, st_local, FULL_MASK);
    bench_stride(b, ld_local, 8, 0);
    bench_run(b, ld_local, FULL_MASK);
    ck_assert_int_eq(bench_findings(b, NULL), 1);
    bench_stride(b, ld_local, 12, 0);
    bench_run(b, ld_local, FULL_MASK);
    ck_assert_int_eq(bench_findings(b, NULL), 2);
    bench_close(b);
}
END_TEST

// What PTX doesn't have is refused when it is lowered, so that it traps by name.
START_TEST(wrong_forms_are_refused) {
    static const char *const bodies[] = {
        ".reg .b64 %a; .reg .b16 %r; ld.global.u32 %r, [%a];",         // too narrow
        ".reg .b64 %a; .reg .b32 %r; ld.relaxed.global.u32 %r, [%a];", // no scope
        ".reg .b64 %a; .reg .b32 %r<2>; ld.global.v4.u32 {%r0,%r1}, [%a];",
        ".reg .b32 %a; .reg .b32 %r<8>; ld.shared.v8.u32 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, [%a];",
        ".reg .b64 %a; .reg .b32 %r; st.global.nc.u32 [%a], %r;",
        ".reg .b64 %a; .reg .b32 %r; atom.global.add.b32 %r, [%a], %r;",
        ".reg .b64 %a; .reg .b16 %r; atom.global.add.f16 %r, [%a], %r;", // no .noftz
    };
    for (size_t k = 0; k < sizeof bodies / sizeof *bodies; k++) {
        Bench *b = bench_open(bodies[k], 0);
        ck_assert_msg(b->kernel->code[0].run == trap_unsupported, "%s", bodies[k]);
        bench_close(b);
    }
}
END_TEST

Suite *suite_memory(void) {
    Suite *s = suite_create("memory");
    TCase *c = tcase_create("data");
    tcase_add_loop_test(c, loads_give_memory, 0, sizeof loads / sizeof *loads);
    tcase_add_loop_test(c, stores_change_only_their_bytes, 0, sizeof stores / sizeof *stores);
    tcase_add_test(c, shared_memory_round_trip);
    tcase_add_test(c, shared_addresses_carry_the_rank);
    tcase_add_test(c, generic_addresses_of_all_spaces_at_once);
    tcase_add_test(c, parameters_of_the_kernel);
    tcase_add_test(c, ordered_accesses_are_deferred);
    tcase_add_test(c, wrong_forms_are_refused);
    suite_add_tcase(s, c);
    c = tcase_create("checks");
    tcase_add_test(c, out_of_bounds_says_what_is_near);
    tcase_add_test(c, misalignment_constness_and_lifetime);
    tcase_add_test(c, constants_can_be_read);
    tcase_add_test(c, shared_and_local_bounds);
    tcase_add_test(c, addresses_that_wrap_are_no_memory);
    tcase_add_test(c, without_the_mem_check);
    tcase_add_test(c, reads_of_unwritten_global_memory);
    tcase_add_test(c, partly_written_is_a_note_unless_strict);
    tcase_add_test(c, writes_are_marked_while_the_check_is_off);
    tcase_add_test(c, reads_of_unwritten_shared_and_local_memory);
    tcase_add_test(c, unwritten_shared_and_local_is_followed_unless_strict);
    tcase_add_test(c, used_bytes_mask);
    tcase_add_test(c, samples_are_not_checked_for_unwritten_global_memory);
    suite_add_tcase(s, c);
    return s;
}
