// One warp in the machine: divergence, joins, collectives, exits, calls.
//
// Kernels are small arrays of instructions built by hand (small_kernel.h), so that nothing else of
// softgpu has to be right.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "small_kernel.h"

Suite *suite_machine(void);

// ---- divergence

START_TEST(together) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(add, R(0), R(0), 5);
    emit(store, ROW_NONE, R(0), 0);
    emit_exit();
    ck_assert_int_eq(run(3, 70), 0);
    for (uint32_t block = 0; block < 3; block++)
        for (uint32_t t = 0; t < 70; t++) ck_assert_uint_eq(memory[block * 70 + t], t % 32 + 5);
}
END_TEST

// if (lane < 10) x = 1 else x = 2; all meet again.
START_TEST(if_else) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(less, P(0), R(0), 10);
    guarded(emit_branch(5, 6), P(0), false);
    emit(set, R(1), ROW_NONE, 2);
    emit_branch(6, -1);
    emit(set, R(1), ROW_NONE, 1);
    emit(note, ROW_NONE, ROW_NONE, 7); // 6: the join
    emit(store, ROW_NONE, R(1), 0);
    emit_exit();
    ck_assert_int_eq(run(1, 32), 0);
    ck_assert_int_eq(logged, 1);
    ck_assert_uint_eq(log_mask[0], FULL_MASK);
    for (int l = 0; l < 32; l++) ck_assert_uint_eq(memory[l], l < 10 ? 1 : 2);
}
END_TEST

// Nested: the inner join first, then the outer; both at one place in the second half.
START_TEST(nested) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(less, P(0), R(0), 16);
    emit(less, P(1), R(0), 4);
    emit(less, P(2), R(0), 20);
    guarded(emit_branch(8, 10), P(0), true);
    guarded(emit_branch(7, 7), P(1), false); // inner of the first half: lanes 0-3 go straight to 7
    emit(note, ROW_NONE, ROW_NONE, 1);       // lanes 4-15
    guarded(emit_branch(10, -1), P(0), false);
    guarded(emit_branch(10, 10), P(2), false); // 8: lanes 16-19 straight to the outer join
    emit(note, ROW_NONE, ROW_NONE, 2);         // lanes 20-31
    emit(note, ROW_NONE, ROW_NONE, 3);         // 10
    emit_exit();
    for (options.schedule = 0; options.schedule < 8; options.schedule++) {
        logged = 0;
        ck_assert_int_eq(run(1, 32), 0);
        ck_assert_int_eq(logged, 3);
        for (int k = 0; k < 3; k++)
            ck_assert_uint_eq(log_mask[k], log_tag[k] == 1   ? 0xfff0u
                                           : log_tag[k] == 2 ? 0xfff00000u
                                                             : FULL_MASK);
        ck_assert_uint_eq(log_tag[2], 3);
    }
}
END_TEST

// for (n = 0; n < lane; n++) sum += lane;
START_TEST(trip_counts) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(set, R(1), ROW_NONE, 0);
    emit(set, R(2), ROW_NONE, 0);
    emit(less_row, P(0), R(1), 0)->b = R(0); // 3
    guarded(emit_branch(8, 8), P(0), true);
    emit(add_row, R(2), R(0), 0);
    emit(add, R(1), R(1), 1);
    emit_branch(3, -1);
    emit(note, ROW_NONE, ROW_NONE, 0); // 8
    emit(store, ROW_NONE, R(2), 0);
    emit_exit();
    ck_assert_int_eq(run(1, 32), 0);
    ck_assert_int_eq(logged, 1);
    ck_assert_uint_eq(log_mask[0], FULL_MASK);
    for (uint32_t l = 0; l < 32; l++) ck_assert_uint_eq(memory[l], l * l);
    ck_assert(stats.host_seconds > 0);
}
END_TEST

// Early exits leave the others together, also when the branch's join is the end.
START_TEST(early_exit) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(less, P(0), R(0), 5);
    guarded(emit_branch(6, 6), P(0), false);
    emit(gather, R(1), ROW_NONE, FULL_MASK);
    emit(store, ROW_NONE, R(1), 0);
    emit(note, ROW_NONE, ROW_NONE, 0);
    emit_exit(); // 6
    ck_assert_int_eq(run(1, 32), 0);
    ck_assert_int_eq(logged, 1);
    ck_assert_uint_eq(log_mask[0], ~0x1fu);
    ck_assert_uint_eq(memory[31], ~0x1fu);
}
END_TEST

START_TEST(guarded_exit) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(less, P(0), R(0), 31);
    guarded(emit(control("exit"), ROW_NONE, ROW_NONE, 0), P(0), false);
    emit(note, ROW_NONE, ROW_NONE, 0);
    emit_exit();
    ck_assert_int_eq(run(1, 32), 0);
    ck_assert_int_eq(logged, 1);
    ck_assert_uint_eq(log_mask[0], 1u << 31);
}
END_TEST

// ---- lanes of one warp that wait for each other

// while (!take_lock()) ; count++; lock = 0: the loop's exit is the join, so the winner waits there
// with the lock, until the machine lets it go on.
START_TEST(lock_hand_over) {
    kernel_begin();
    emit(take_lock, R(0), ROW_NONE, 0); // 0
    emit(less, P(0), R(0), 1);
    guarded(emit_branch(0, 3), P(0), true);
    emit(load_at, R(1), ROW_NONE, 1); // 3
    emit(add, R(1), R(1), 1);
    emit(store_at, ROW_NONE, R(1), 1);
    emit(set, R(2), ROW_NONE, 0);
    emit(store_at, ROW_NONE, R(2), 0);
    emit_exit();
    for (options.schedule = 0; options.schedule < 3; options.schedule++) {
        memset(memory, 0, sizeof memory);
        ck_assert_int_eq(run(1, 64), 0);
        ck_assert_uint_eq(memory[1], 64);
        memory[1] = 0;
        ck_assert_int_eq(run(6, 32), 0);
        ck_assert_uint_eq(memory[1], 6 * 32);
    }
}
END_TEST

// Lanes 1-31 spin until lane 0 has stored; lane 0 stands at the join behind the loop.
START_TEST(flag_of_a_lane_behind_the_join) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(set, R(3), ROW_NONE, 1);
    emit(less, P(0), R(0), 1);
    guarded(emit_branch(7, 7), P(0), false);
    emit(load_at, R(1), ROW_NONE, 5); // 4
    emit(less, P(1), R(1), 1);
    guarded(emit_branch(4, 7), P(1), false);
    guarded(emit(store_at, ROW_NONE, R(3), 5), P(0), false); // 7
    emit(gather, R(2), ROW_NONE, FULL_MASK);
    emit(store, ROW_NONE, R(2), 0);
    emit_exit();
    for (options.schedule = 0; options.schedule < 4; options.schedule++) {
        memset(memory, 0, sizeof memory);
        ck_assert_int_eq(run(1, 32), 0);
        ck_assert_uint_eq(memory[20], FULL_MASK); // they gathered again
    }
}
END_TEST

// The same while the loop's lanes part, store and meet each time round: no sign that it gets on.
START_TEST(flag_waited_for_in_a_parting_loop) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(set, R(3), ROW_NONE, 1);
    emit(less, P(0), R(0), 1);
    guarded(emit_branch(10, 10), P(0), false);
    emit(less, P(1), R(0), 16); // 4
    guarded(emit_branch(7, 7), P(1), false);
    emit(store, ROW_NONE, R(0), 0);
    emit(load_at, R(1), ROW_NONE, 100); // 7
    emit(less, P(1), R(1), 1);
    guarded(emit_branch(4, 10), P(1), false);
    guarded(emit(store_at, ROW_NONE, R(3), 100), P(0), false); // 10
    emit_exit();
    for (options.schedule = 0; options.schedule < 4; options.schedule++) {
        memset(memory, 0, sizeof memory);
        ck_assert_int_eq(run(1, 32), 0);
        ck_assert_uint_eq(memory[100], 1);
    }
}
END_TEST

// ---- collectives

// Lanes come to one collective at different times; it runs once, for all.
START_TEST(gather_parts) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(less, P(0), R(0), 7);
    guarded(emit_branch(4, -1), P(0), false); // no join: they stay apart
    emit(add, R(1), R(0), 0);
    emit(gather, R(2), ROW_NONE, FULL_MASK); // 4
    emit(note, ROW_NONE, ROW_NONE, 0);
    emit(store, ROW_NONE, R(2), 0);
    emit_exit();
    ck_assert_int_eq(run(1, 32), 0);
    for (int l = 0; l < 32; l++) ck_assert_uint_eq(memory[l], FULL_MASK);
    ck_assert_int_eq(logged, 1); // and they are together afterwards
    ck_assert_uint_eq(log_mask[0], FULL_MASK);
}
END_TEST

// A collective of lanes 0-15 only, inside a branch, doesn't wait for the rest.
START_TEST(gather_half) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(set, R(2), ROW_NONE, 0);
    emit(less, P(0), R(0), 16);
    guarded(emit_branch(5, 5), P(0), true);
    emit(gather, R(2), ROW_NONE, 0xffff);
    emit(store, ROW_NONE, R(2), 0); // 5
    emit_exit();
    ck_assert_int_eq(run(1, 32), 0);
    for (int l = 0; l < 32; l++) ck_assert_uint_eq(memory[l], l < 16 ? 0xffff : 0);
}
END_TEST

// bar.warp.sync at two places, one in each branch.
START_TEST(gather_anywhere) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(less, P(0), R(0), 16);
    guarded(emit_branch(5, 6), P(0), false);
    emit(gather, R(2), ROW_NONE, FULL_MASK)->flags |= INSN_ANYWHERE;
    emit_branch(6, -1);
    emit(gather, R(2), ROW_NONE, FULL_MASK)->flags |= INSN_ANYWHERE; // 5
    emit(note, ROW_NONE, ROW_NONE, 0);                               // 6
    emit_exit();
    ck_assert_int_eq(run(1, 32), 0);
    ck_assert_int_eq(logged, 1);
    ck_assert_uint_eq(log_mask[0], FULL_MASK);
}
END_TEST

// The same with a collective that must be one instruction: a finding.
START_TEST(gather_divergent) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(less, P(0), R(0), 16);
    guarded(emit_branch(5, 6), P(0), false);
    emit(gather, R(2), ROW_NONE, FULL_MASK);
    emit_branch(6, -1);
    emit(gather, R(2), ROW_NONE, FULL_MASK); // 5
    emit_exit();                             // 6
    ck_assert_int_ne(run(1, 32), 0);
    ck_assert_int_eq(findings_count(), 1);
    const Finding *f = findings_get(0);
    ck_assert_int_eq(f->kind, FINDING_DIVERGENT);
    ck_assert_ptr_nonnull(strstr(f->what, "lanes 0-15 wait"));
    ck_assert_ptr_nonnull(strstr(f->what, "lanes 16-31 wait"));
}
END_TEST

// A guard that switches lanes off at a collective that needs them, which come to it later.
START_TEST(gather_guarded) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(less, P(0), R(0), 3);
    guarded(emit(gather, R(1), ROW_NONE, FULL_MASK), P(0), false)->flags |= INSN_ANYWHERE;
    guarded(emit(gather, R(1), ROW_NONE, FULL_MASK), P(0), true)->flags |= INSN_ANYWHERE;
    emit(note, ROW_NONE, ROW_NONE, 0);
    emit_exit();
    ck_assert_int_eq(run(1, 32), 0);
    uint32_t seen = 0;
    for (int k = 0; k < logged; k++) seen |= log_mask[k];
    ck_assert_uint_eq(seen, FULL_MASK);
}
END_TEST

// ---- calls

// A function at instruction `entry` with one argument (row 0 of its frame, as 4 bytes a lane) and
// the same row as its result.
static void add_function(int number, int entry, uint64_t id) {
    functions[number] =
        (CodeFunction){.entry = &code[entry], .frame_size = FRAME, .local_size = 16, .id = id};
    kernel.function_count = number + 1;
}
static struct CallArgument argument = {.from_stride = 4, .to_stride = 4, .size = 4};
static Insn *emit_call(int function, Row from, Row to) {
    Insn *i = emit(control("call"), ROW_NONE, ROW_NONE, 0);
    Call *c = &calls[i->index];
    static struct CallArgument arguments[CODE_MAX];
    arguments[i->index] = argument;
    arguments[i->index].from = from;
    *c = (Call){.callee = function < 0 ? NULL : &functions[function],
                .argument_count = 1,
                .arguments = &arguments[i->index],
                .result = argument};
    c->result.to = to;
    i->extra = c;
    return i;
}

START_TEST(call_and_return) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(less, P(0), R(0), 9);
    guarded(emit_call(1, R(0), R(1)), P(0), false);
    guarded(emit(add, R(1), R(0), 1), P(0), true);
    emit(note, ROW_NONE, ROW_NONE, 0);
    emit(store, ROW_NONE, R(1), 0);
    emit_exit();
    add_function(1, 7, 0);
    emit(add, R(0), R(0), 100); // 7
    emit(control("ret"), ROW_NONE, ROW_NONE, 0);
    ck_assert_int_eq(run(2, 64), 0);
    ck_assert_int_eq(logged, 4);
    ck_assert_uint_eq(log_mask[0], FULL_MASK);
    for (uint32_t t = 0; t < 128; t++)
        ck_assert_uint_eq(memory[t], t % 32 < 9 ? t % 32 + 100 : t % 32 + 1);
}
END_TEST

// sum(n) = n ? n + sum(n - 1) : 0, with another n in each lane.
static void recursive_kernel(uint32_t offset) {
    kernel_begin();
    kernel.recursive = true;
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(add, R(0), R(0), offset);
    emit_call(1, R(0), R(1));
    emit(note, ROW_NONE, ROW_NONE, 0);
    emit(store, ROW_NONE, R(1), 0);
    emit_exit();
    add_function(1, 6, 0);
    emit(less, P(0), R(0), 1); // 6
    guarded(emit_branch(11, 11), P(0), false);
    emit(add, R(2), R(0), (uint64_t)-1);
    emit_call(1, R(2), R(3));
    emit(add_row, R(0), R(3), 0);
    emit(control("ret"), ROW_NONE, ROW_NONE, 0); // 11
}

START_TEST(recursion) {
    for (options.schedule = 0; options.schedule < 4; options.schedule++) {
        logged = 0;
        recursive_kernel(0);
        ck_assert_int_eq(run(1, 32), 0);
        ck_assert_int_eq(logged, 1);
        ck_assert_uint_eq(log_mask[0], FULL_MASK);
        for (uint32_t l = 0; l < 32; l++) ck_assert_uint_eq(memory[l], l * (l + 1) / 2);
    }
}
END_TEST

START_TEST(stack_overflow) {
    recursive_kernel(1000);
    ck_assert_int_ne(run(1, 32), 0);
    ck_assert_int_eq(findings_count(), 1);
    ck_assert_int_eq(findings_get(0)->kind, FINDING_STACK_OVERFLOW);
}
END_TEST

// Even lanes call one function, odd ones another; a collective inside each sees its own lanes.
static Flow choose_function(Warp *w, const Insn *i, uint32_t mask) {
    uint64_t *d = row(w, i->d);
    EACH(mask) d[l] = l % 2 ? 0x20 : 0x10;
    return FLOW_NEXT;
}
START_TEST(indirect) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(choose_function, R(4), ROW_NONE, 0);
    emit_call(-1, R(0), R(1))->a = R(4);
    emit(note, ROW_NONE, ROW_NONE, 0);
    emit(store, ROW_NONE, R(1), 0);
    emit_exit();
    add_function(1, 6, 0x10);
    add_function(2, 8, 0x20);
    emit(add, R(0), R(0), 100);
    emit(control("ret"), ROW_NONE, ROW_NONE, 0);
    emit(add, R(0), R(0), 200);
    emit(control("ret"), ROW_NONE, ROW_NONE, 0);
    ck_assert_int_eq(run(1, 32), 0);
    ck_assert_int_eq(logged, 1);
    ck_assert_uint_eq(log_mask[0], FULL_MASK);
    for (uint32_t l = 0; l < 32; l++) ck_assert_uint_eq(memory[l], l + (l % 2 ? 200 : 100));
}
END_TEST

// Two call sites of one function; its lanes meet in a collective inside.
START_TEST(gather_across_call_sites) {
    kernel_begin();
    emit(set_lane, R(0), ROW_NONE, 0);
    emit(less, P(0), R(0), 8);
    guarded(emit_branch(5, 6), P(0), false);
    emit_call(1, R(0), R(1));
    emit_branch(6, -1);
    emit_call(1, R(0), R(1));          // 5
    emit(note, ROW_NONE, ROW_NONE, 0); // 6
    emit(store, ROW_NONE, R(1), 0);
    emit_exit();
    add_function(1, 9, 0);
    emit(gather, R(0), ROW_NONE, FULL_MASK); // 9
    emit(control("ret"), ROW_NONE, ROW_NONE, 0);
    ck_assert_int_eq(run(1, 32), 0);
    for (int l = 0; l < 32; l++) ck_assert_uint_eq(memory[l], FULL_MASK);
    ck_assert_int_eq(logged, 1);
    ck_assert_uint_eq(log_mask[0], FULL_MASK);
}
END_TEST

Suite *suite_machine(void) {
    Suite *suite = suite_create("machine");
    TCase *c = tcase_create("machine");
    tcase_add_checked_fixture(c, set_up, NULL);
    tcase_add_test(c, together);
    tcase_add_test(c, if_else);
    tcase_add_test(c, nested);
    tcase_add_test(c, trip_counts);
    tcase_add_test(c, early_exit);
    tcase_add_test(c, guarded_exit);
    tcase_add_test(c, lock_hand_over);
    tcase_add_test(c, flag_of_a_lane_behind_the_join);
    tcase_add_test(c, flag_waited_for_in_a_parting_loop);
    tcase_add_test(c, gather_parts);
    tcase_add_test(c, gather_half);
    tcase_add_test(c, gather_anywhere);
    tcase_add_test(c, gather_divergent);
    tcase_add_test(c, gather_guarded);
    tcase_add_test(c, call_and_return);
    tcase_add_test(c, recursion);
    tcase_add_test(c, stack_overflow);
    tcase_add_test(c, indirect);
    tcase_add_test(c, gather_across_call_sites);
    suite_add_tcase(suite, c);
    return suite;
}
