// Many warps in the machine: scheduling, sleep, deadlock, the order of deferred instructions,
// determinism, launches.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/event.h"
#include "softgpu/machine/parts.h"
#include "small_kernel.h"

Suite *suite_run(void);

// ---- warps

START_TEST(barriers) {
    kernel_begin();
    emit(set_warp, R(0), ROW_NONE, 0);
    for (int k = 0; k < 10; k++) {
        emit(wait_all, ROW_NONE, ROW_NONE, 0);
        emit(note, ROW_NONE, ROW_NONE, (uint64_t)k);
    }
    emit_exit();
    for (options.schedule = 0; options.schedule < 4; options.schedule++) {
        logged = 0;
        ck_assert_int_eq(run(1, 256), 0);
        ck_assert_int_eq(logged, 80);
        // Nobody passes barrier k + 1 before all have passed barrier k.
        for (int k = 0; k < 80; k++) ck_assert_uint_eq(log_tag[k], (uint32_t)k / 8);
    }
}
END_TEST

START_TEST(sleeping) {
    kernel_begin();
    emit(set, R(0), ROW_NONE, 0);
    emit(sleep_for, ROW_NONE, ROW_NONE, 1000000); // 1: far longer than a round
    emit(add, R(0), R(0), 1);
    emit(less, P(0), R(0), 3);
    guarded(emit_branch(1, 5), P(0), false);
    emit(store, ROW_NONE, R(0), 0);
    emit_exit();
    ck_assert_int_eq(run(8, 64), 0);
    for (int t = 0; t < 512; t++) ck_assert_uint_eq(memory[t], 3);
}
END_TEST

// ---- deadlock

START_TEST(deadlock_at_barrier) {
    kernel_begin();
    emit(set_warp, R(0), ROW_NONE, 0);
    emit(less, P(0), R(0), 1);
    guarded(emit_branch(4, 4), P(0), false); // warp 0 leaves
    emit(wait_all, ROW_NONE, ROW_NONE, 0);
    emit_exit();
    ck_assert_int_eq(run(1, 128), 719);
    ck_assert_int_eq(findings_count(), 1);
    const Finding *f = findings_get(0);
    ck_assert_int_eq(f->kind, FINDING_DEADLOCK);
    ck_assert_ptr_nonnull(strstr(f->what, "warps 1-3 wait in"));
    ck_assert_ptr_nonnull(strstr(f->what, "barrier 15: 3 of 4"));
}
END_TEST

// Every warp waits for a word that nobody writes.
START_TEST(deadlock_by_spinning) {
    kernel_begin();
    emit(load_at, R(0), ROW_NONE, 9);
    emit(less, P(0), R(0), 1);
    guarded(emit_branch(0, 3), P(0), false);
    emit_exit();
    ck_assert_int_eq(run(1, 64), 719);
    ck_assert_int_eq(findings_count(), 1);
    ck_assert_int_eq(findings_get(0)->kind, FINDING_DEADLOCK);
    ck_assert_int_eq(run(6, 64), 719); // deferred polls
}
END_TEST

// A long loop without stores is no deadlock, and neither is one that sleeps.
START_TEST(no_deadlock) {
    kernel_begin();
    emit(set, R(0), ROW_NONE, 0);
    emit(add, R(0), R(0), 1);
    emit(less, P(0), R(0), 3000000);
    guarded(emit_branch(1, 4), P(0), false);
    emit(store, ROW_NONE, R(0), 0);
    emit_exit();
    ck_assert_int_eq(run(1, 32), 0);
    ck_assert_uint_eq(memory[0], 3000000);
    ck_assert_int_eq(findings_count(), 0);
}
END_TEST

// The last block releases the first ones, which spin: order of start and fairness.
START_TEST(spin_for_another_block) {
    kernel_begin();
    emit(set_warp, R(0), ROW_NONE, 0);
    emit(less, P(0), R(0), 7000);
    guarded(emit_branch(5, 8), P(0), false);
    emit(store_at, ROW_NONE, R(0), 9);
    emit_branch(8, -1);
    emit(load_at, R(1), ROW_NONE, 9); // 5
    emit(less, P(1), R(1), 1);
    guarded(emit_branch(5, 8), P(1), false);
    emit_exit(); // 8
    for (options.schedule = 0; options.schedule < 3; options.schedule++) {
        memory[9] = 0;
        ck_assert_int_eq(run(8, 32), 0);
    }
}
END_TEST

// Lane 0 computes for long while the others of its warp poll for its store: in a turn of theirs the
// warp comes back to the state it was in, but lane 0 has not had its turn.
START_TEST(spin_for_a_lane_that_computes) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(set, R(1), ROW_NONE, 0);
    emit(less, P(0), R(0), 1);
    guarded(emit_branch(8, 12), P(0), false);
    emit(load_at, R(2), ROW_NONE, 9); // 4
    emit(less, P(1), R(2), 1);
    guarded(emit_branch(4, 7), P(1), false);
    emit_branch(12, -1);
    emit(add, R(1), R(1), 1); // 8
    emit(less, P(1), R(1), 1000000);
    guarded(emit_branch(8, 11), P(1), false);
    emit(store_at, ROW_NONE, R(1), 9);
    emit_exit(); // 12
    for (options.schedule = 0; options.schedule < 3; options.schedule++) {
        memory[9] = 0;
        ck_assert_int_eq(run(1, 32), 0);
        ck_assert_uint_eq(memory[9], 1000000);
        ck_assert_int_eq(findings_count(), 0);
    }
}
END_TEST

// ---- order and determinism

static uint32_t order[4096];
static int ordered;
static Flow append(Warp *w, const Insn *i, uint32_t mask) {
    (void)i;
    (void)mask;
    if (must_defer(w)) return FLOW_DEFER;
    order[ordered++] =
        (uint32_t)w->sm->id * 100000 + (uint32_t)w->cta->linear * 100 + (uint32_t)w->id;
    w->sm->changes++;
    return FLOW_NEXT;
}

// Five times: `delay` turns of a loop, then an instruction that is put off.
static void append_kernel(uint32_t delay) {
    kernel_begin();
    emit(set, R(0), ROW_NONE, 0);
    emit(set, R(1), ROW_NONE, 0); // 1
    emit(add, R(1), R(1), 1);     // 2
    emit(less, P(1), R(1), delay);
    guarded(emit_branch(2, 5), P(1), false);
    emit(append, ROW_NONE, ROW_NONE, 0); // 5
    emit(add, R(0), R(0), 1);
    emit(less, P(0), R(0), 5);
    guarded(emit_branch(1, 9), P(0), false);
    emit_exit();
}

START_TEST(deferral_order) {
    append_kernel(1);
    ordered = 0;
    figures.sms = 3;
    ck_assert_int_eq(run(3, 64), 0);
    ck_assert_int_eq(ordered, 3 * 2 * 5);
    // Equal times: SM 0, 1, 2; the first warp of each before the second.
    const uint32_t first[] = {0, 100100, 200200, 1, 100101, 200201};
    for (int k = 0; k < 6; k++) ck_assert_uint_eq(order[k], first[k]);
}
END_TEST

START_TEST(same_for_any_threads) {
    static uint32_t before[4096];
    for (uint64_t schedule = 0; schedule < 3; schedule++) {
        int count = 0;
        double instructions = 0;
        for (int threads = 1; threads <= 3; threads++) {
            append_kernel(100); // enough work for several host threads
            options.schedule = schedule;
            options.threads = threads;
            ordered = 0;
            ck_assert_int_eq(run(40, 96), 0);
            if (threads > 1) {
                ck_assert_int_eq(ordered, count);
                ck_assert_int_eq(memcmp(order, before, sizeof order[0] * (size_t)count), 0);
                ck_assert(stats.warp_instructions[PIPE_ALU] == instructions);
            }
            count = ordered;
            instructions = stats.warp_instructions[PIPE_ALU];
            memcpy(before, order, sizeof order[0] * (size_t)count);
        }
    }
}
END_TEST

START_TEST(schedules_differ) {
    static uint32_t before[4096];
    append_kernel(1);
    options.schedule = 1;
    ordered = 0;
    ck_assert_int_eq(run(1, 512), 0);
    memcpy(before, order, sizeof order);
    options.schedule = 2;
    ordered = 0;
    ck_assert_int_eq(run(1, 512), 0);
    ck_assert_int_ne(memcmp(order, before, sizeof order[0] * (size_t)ordered), 0);
}
END_TEST

// ---- parts

static uint64_t happened[400];
static int happened_count;
static void happen(Sm *sm, void *subject, uint64_t data) {
    (void)sm;
    ck_assert_ptr_eq(subject, happened);
    happened[happened_count++] = data;
}

// Events come by time, and equal times in the order in which they were added.
START_TEST(events) {
    static Sm sm;
    struct Random random;
    random_seed(&random, 1, 2);
    for (uint64_t k = 0; k < 400; k++) {
        uint64_t time = random_below(&random, 40);
        event_add(&sm, time, happen, happened, time << 32 | k);
    }
    sm.time = 19;
    events_run(&sm);
    ck_assert_uint_gt(events_next(&sm), 19);
    for (int k = 0; k < happened_count; k++) ck_assert_uint_le(happened[k] >> 32, 19);
    sm.time = 40;
    events_run(&sm);
    ck_assert_int_eq(happened_count, 400);
    for (int k = 1; k < 400; k++) ck_assert_uint_lt(happened[k - 1], happened[k]);
    ck_assert(events_next(&sm) == UINT64_MAX);
    events_free(&sm);
}
END_TEST

static atomic_int visits[1000];
static void visit(void *context, int index, int thread) {
    (void)context;
    ck_assert_int_lt(thread, 3);
    atomic_fetch_add(&visits[index], 1);
}

// Each index once, however many jobs follow each other and however many workers there are.
START_TEST(workers) {
    for (int job = 0; job < 300; job++) workers_run(1 + job % 3, 1000, visit, NULL);
    for (int k = 0; k < 1000; k++) ck_assert_int_eq(visits[k], 300);
}
END_TEST

// ---- launches

START_TEST(sampling) {
    kernel_begin();
    emit(set, R(0), ROW_NONE, 1);
    emit(store, ROW_NONE, R(0), 0);
    emit_exit();
    options.sample = 2; // of 4
    ck_assert_int_eq(run(16, 32), 0);
    ck_assert_int_eq(stats.sms_simulated, 2);
    // Half of the blocks ran, and they are neighbours: those share what they read in L2.
    uint32_t first = 0, ran = 0;
    while (first < 16 && memory[first * 32] == 0) first++;
    for (uint32_t block = 0; block < 16; block++) {
        ran += memory[block * 32];
        ck_assert_uint_eq(memory[block * 32], block >= first && block < first + 8);
    }
    ck_assert_uint_eq(ran, 8);
    ck_assert(stats.warp_instructions[PIPE_ALU] == 16 * 3);
}
END_TEST

// R(d) = the block's place in its row of `imm` blocks, from 1 on.
static Flow place(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t *d = row(w, i->d);
    for (int l = 0; l < WARP_SIZE; l++)
        if (mask >> l & 1) d[l] = (uint32_t)(w->cta->linear % i->imm) + 1;
    return FLOW_NEXT;
}

// Work that grows along rows of blocks: a sample counts what the whole grid does.
START_TEST(sampling_uneven_blocks) {
    kernel_begin();
    emit(place, R(0), ROW_NONE, 10);
    emit(add, R(0), R(0), UINT32_MAX);
    emit(less, P(0), R(0), 1);
    guarded(emit_branch(1, 4), P(0), true);
    emit_exit();
    for (options.sample = 1; options.sample <= 4; options.sample++) { // of 4
        ck_assert_int_eq(run(60, 32), 0);
        ck_assert_int_eq(stats.sms_simulated, options.sample);
        // 60 blocks: one instruction, three for each place, 5.5 on average, and exit.
        ck_assert_double_eq(stats.warp_instructions[PIPE_ALU], 60 * (1 + 3 * 5.5 + 1));
    }
}
END_TEST

START_TEST(occupancy) {
    char why[200];
    kernel_begin();
    kernel.registers = 128;
    ck_assert_int_eq(gpu_occupancy(&figures, &kernel, 128, 0, why, sizeof why), 4);
    kernel.registers = 40; // 1280 registers a warp: 12 warps in each part of 16384
    ck_assert_int_eq(gpu_occupancy(&figures, &kernel, 256, 0, why, sizeof why), 6);
    ck_assert_int_eq(gpu_occupancy(&figures, &kernel, 32, 0, why, sizeof why), 32);
    ck_assert_int_eq(gpu_occupancy(&figures, &kernel, 64, 100 << 10, why, sizeof why), 2);
    ck_assert_int_eq(gpu_occupancy(&figures, &kernel, 64, 228 << 10, why, sizeof why), 0);
    ck_assert_ptr_nonnull(strstr(why, "shared memory"));
    kernel.registers = 255;
    ck_assert_int_eq(gpu_occupancy(&figures, &kernel, 1024, 0, why, sizeof why), 0);
    ck_assert_ptr_nonnull(strstr(why, "registers"));
}
END_TEST

START_TEST(refused) {
    kernel_begin();
    emit_exit();
    ck_assert_int_eq(run(1, 2000), 701);
    Gpu *gpu = gpu_new(&options, &figures);
    Launch launch = {.kernel = &kernel,
                     .grid = {4 * 32 + 1, 1, 1},
                     .block = {64, 1, 1},
                     .cluster = {1, 1, 1},
                     .cooperative = true};
    ck_assert_int_eq(gpu_launch(gpu, &launch, &stats), 720);
    launch.grid[0] = 4 * 32;
    ck_assert_int_eq(gpu_launch(gpu, &launch, &stats), 0);
    gpu_delete(gpu);
}
END_TEST

START_TEST(traps) {
    kernel_begin();
    emit(set_warp, R(0), ROW_NONE, 0);
    emit(trap_unsupported, ROW_NONE, ROW_NONE, 0)->extra = "there is no form for it";
    emit_exit();
    ck_assert_int_ne(run(5, 64), 0);
    ck_assert_int_eq(findings_get(0)->kind, FINDING_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(findings_get(0)->what, "test.instruction"));
}
END_TEST

Suite *suite_run(void) {
    Suite *suite = suite_create("run");
    TCase *c = tcase_create("run");
    tcase_add_checked_fixture(c, set_up, NULL);
    tcase_add_test(c, barriers);
    tcase_add_test(c, sleeping);
    tcase_add_test(c, deadlock_at_barrier);
    tcase_add_test(c, deadlock_by_spinning);
    tcase_add_test(c, no_deadlock);
    tcase_add_test(c, spin_for_another_block);
    tcase_add_test(c, spin_for_a_lane_that_computes);
    tcase_add_test(c, deferral_order);
    tcase_add_test(c, same_for_any_threads);
    tcase_add_test(c, schedules_differ);
    tcase_add_test(c, events);
    tcase_add_test(c, workers);
    tcase_add_test(c, sampling);
    tcase_add_test(c, sampling_uneven_blocks);
    tcase_add_test(c, occupancy);
    tcase_add_test(c, refused);
    tcase_add_test(c, traps);
    suite_add_tcase(suite, c);
    return suite;
}
