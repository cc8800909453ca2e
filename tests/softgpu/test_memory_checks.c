// The mem and init checks: what they report of a load or store, and what they let pass.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/definedness.h"
#include "bench.h"
#include "filled.h"

Suite *suite_memory_checks(void);

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

Suite *suite_memory_checks(void) {
    Suite *s = suite_create("memory checks");
    TCase *c = tcase_create("checks");
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
