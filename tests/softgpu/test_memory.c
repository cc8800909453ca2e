// Loads and stores of every space, width and pattern.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "filled.h"

Suite *suite_memory(void);

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

// Every CTA's shared addresses carry its rank; the cluster here has ranks 0 to 3.
START_TEST(shared_addresses_carry_the_rank) {
    Bench *b = bench_open(".reg .b32 %a, %r; ld.shared::cluster.b32 %r, [%a];", CHECK_MEM);
    const Insn *ld = bench_insn(b, "ld.shared::cluster.b32");
    b->cta.cluster_rank = 3;
    b->cluster.size = 4;
    b->cluster.ctas[3] = &b->cta;
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
    return s;
}
