// Chapter 7's steps: right on every kind of problem under every order, with several tiles a thread
// block; l2-order's groups of heads and its fp8; and what the lesson says of their times and bytes
// holds. Two minutes on two cores.
//
// Blocks stay and take one tile after the other, so the GPU must be small: --sms 2, or as few as
// make a block loop. (Variable lengths: test_varlen. The order of the tiles: test_schedule.)
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../07_persistent_lpt/schedule_study.h"
#include "matrix.h"

static const char *const steps[] = {"persistent", "overlapped-epilogue", "lpt", "l2-order"};
enum { STEPS = sizeof steps / sizeof *steps };

// Cell i: dtype, head_dim, causal; each with every length, the other options taking turns.
START_TEST(every_length) {
    static const char *const lengths[] = {
        "--seqlen 1",
        "--seqlen 63",
        "--seqlen 65",
        "--seqlen 200",
        "--seqlen-q 65 --seqlen-k 200",
        "--seqlen-q 200 --seqlen-k 65",
        "--seqlen-q 193 --seqlen-k 530",
        "--seqlen 400",
    };
    static const char *const extras[] = {
        "--heads 3",
        "--heads 4 --kv-heads 2",
        "--heads 2 --window 16,0",
        "--heads 3 --kv-heads 1 --softcap 5",
        "--heads 2 --window 33,7 --sink",
        "--heads 2 --kv-heads 1 --window 0,40 --softcap 2",
        "--heads 6 --kv-heads 3 --sink",
    };
    enter_folder();
    for (int l = 0; l < 8; l++) {
        char problem[300];
        snprintf(problem, sizeof problem, "--sms %d --batch %d --dtype %s --head-dim %d %s %s%s",
                 1 + l % 3, 2 - l % 2, matrix_dtypes[1 + _i % 2], matrix_head_dims[_i / 2 % 2],
                 lengths[l], extras[(l + _i) % 7], _i / 4 ? " --causal" : "");
        check_problem(7, problem);
    }
}
END_TEST

// Tiles without keys between others, only such tiles, one key, one row, no row at all.
START_TEST(edges) {
    static const char *const problems[] = {
        "--heads 5 --seqlen-q 40 --seqlen-k 0",
        "--heads 5 --seqlen-q 0 --seqlen-k 40",
        "--heads 5 --seqlen-q 300 --seqlen-k 1",
        "--heads 5 --seqlen-q 1 --seqlen-k 400",
        "--heads 2 --seqlen-q 500 --seqlen-k 140 --causal",
        "--heads 2 --seqlen-q 900 --seqlen-k 40 --causal --head-dim 128",
        "--heads 3 --seqlen 193 --scale -2 --softcap 5",
    };
    char problem[200];
    enter_folder();
    snprintf(problem, sizeof problem, "--sms 2 %s", problems[_i]);
    check_problem(7, problem);
}
END_TEST

// Tiles without keys between others are done at once, and nobody may run ahead of them by two
// phases of a barrier: many orders.
START_TEST(tiles_without_keys) {
    static const char *const lengths[] = {"100,0:7,300:77,5:0,65,200:400",
                                          "5:0,5:0,100,5:0,7:0,65:1,200:40"};
    enter_folder();
    Outcome run =
        run_chapter(7,
                    "--check-only --json - --steps %s --sms %d --heads 10 --varlen %s "
                    "--head-dim %d --async random --schedule 1,2,3,4,5,6,7,8",
                    steps_of(7, ""), 1 + _i / 4, lengths[_i % 2], matrix_head_dims[_i / 2 % 2]);
    ck_assert_int_eq(every_step_is_ok(&run, outcome_json(&run, 0)), STEPS);
}
END_TEST

// Every head_dim that is built has a tile with a mask and one without; wide heads take no turns and
// keep O where V comes next.
START_TEST(every_head_dim) {
    char problem[200];
    enter_folder();
    for (int masked = 0; masked < 2; masked++) {
        snprintf(problem, sizeof problem,
                 "--sms 2 --heads 3 --seqlen-q 300 --seqlen-k 420 --head-dim %d%s",
                 built_head_dims()[_i], masked ? " --causal" : "");
        check_problem(7, problem);
    }
}
END_TEST

// More blocks than tiles: those that find nothing to do end.
START_TEST(fewer_tiles_than_sms) {
    enter_folder();
    check_problem(7, "--sms 50 --heads 2 --seqlen 250 --causal");
}
END_TEST

// A tile's numbers don't depend on who computes it when: all steps, on any number of SMs, give the
// same bits.
START_TEST(order_does_not_change_the_bits) {
    Array first_o = {0}, first_lse = {0};
    enter_folder();
    for (int s = 0; s < STEPS; s++)
        for (int sms = 1; sms <= 5; sms += 2) {
            Outcome run =
                run_chapter(7,
                            "--check-only --json - --save out --steps %s --sms %d --batch 2 "
                            "--heads 3 --seqlen 410 --head-dim 64 --causal",
                            steps[s], sms);
            every_step_is_ok(&run, outcome_json(&run, 0));
            const Array o = array_read("out/o.npy"), lse = array_read("out/lse.npy");
            if (s == 0 && sms == 1) {
                first_o = o;
                first_lse = lse;
            }
            arrays_are_equal(&first_o, &o);
            arrays_are_equal(&first_lse, &lse);
        }
}
END_TEST

// ---- grouped queries: l2-order takes all heads of a group together where queries are few

// F52: groups that divide no tile, and those that do; 65 heads have no room in a warpgroup's rows.
static const int groups[] = {2, 3, 4, 5, 7, 8, 12, 16, 33, 64, 65};
enum { GROUPS = sizeof groups / sizeof *groups };

START_TEST(f52_groups) {
    static const char *const extras[] = {
        "--seqlen-q 1 --seqlen-k 300",
        "--seqlen-q 17 --seqlen-k 130 --causal --sink",
        "--seqlen-q 40 --seqlen-k 200 --window 20,3 --softcap 5 --batch 2 --dtype bf16",
        "--seqlen-q 9 --seqlen-k 5 --causal",
        "--varlen 5,0:7,3:77,5:0,65,20:400 --causal --sink",
        "--varlen 1:200,0,1,2:65,127:64 --window 33,7",
    };
    static const char *const async[] = {"early", "late", "random"};
    enter_folder();
    for (int e = 0; e < 6; e++) {
        const int kv_heads = groups[_i] <= 8 ? 2 : 1;
        Outcome run =
            run_chapter(7,
                        "--check-only --json - --steps l2-order --sms %d --heads %d --kv-heads %d "
                        "--head-dim %d %s --async %s --schedule 1,2,3",
                        1 + e % 3, groups[_i] * kv_heads, kv_heads, matrix_head_dims[(_i + e) % 2],
                        extras[e], async[e % 3]);
        ck_assert_int_eq(every_step_is_ok(&run, outcome_json(&run, 0)), 1);
    }
}
END_TEST

// A row's numbers don't depend on the rows beside it: with its group's heads the same bits as lpt's,
// which takes a head by itself.
START_TEST(groups_give_the_same_bits) {
    static const char *const problems[] = {
        "--heads 6 --kv-heads 2 --seqlen-q 30 --seqlen-k 333 --causal --sink --head-dim 64",
        "--heads 8 --kv-heads 1 --seqlen-q 20 --seqlen-k 400 --window 70,9 --head-dim 128",
        "--heads 5 --kv-heads 1 --varlen 5,0:7,3:77,5:0,65:70 --softcap 3 --head-dim 128",
    };
    enter_folder();
    Array o[2], lse[2];
    for (int s = 0; s < 2; s++) {
        Outcome run = run_chapter(7, "--check-only --json - --save out --steps %s --sms 2 %s",
                                  s ? "l2-order" : "lpt", problems[_i]);
        every_step_is_ok(&run, outcome_json(&run, 0));
        o[s] = array_read("out/o.npy");
        lse[s] = array_read("out/lse.npy");
    }
    arrays_are_equal(&o[0], &o[1]);
    arrays_are_equal(&lse[0], &lse[1]);
}
END_TEST

// F33: K and V of one head are more than the L2 may hold of them; a section is one head then.
START_TEST(f33_a_group_larger_than_the_l2) {
    enter_folder();
    Outcome run =
        run_chapter(7, "--check-only --json - --steps l2-order --sms 1 --heads 12 "
                       "--kv-heads 3 --seqlen-q 70 --seqlen-k 1100 --causal --head-dim 128");
    ck_assert_int_eq(every_step_is_ok(&run, outcome_json(&run, 0)), 1);
}
END_TEST

// F43: the counter begins anew with each launch, whatever the workspace held.
START_TEST(f43_the_counter_begins_anew) {
    enter_folder();
    Outcome run = run_chapter(7, "--check-only --json - --steps lpt,l2-order --sms 2 --heads 3 "
                                 "--seqlen 300 --causal --schedule 0,0,0");
    ck_assert_int_eq(every_step_is_ok(&run, outcome_json(&run, 0)), 2);
}
END_TEST

START_TEST(a_sample_is_refused_in_a_sentence) {
    enter_folder();
    Outcome run = run_chapter(7, "--steps %s --seqlen 2048 --sample 4", steps[_i]);
    ck_assert_int_eq(run.status, 2);
    ck_assert_ptr_nonnull(strstr(run.err, "use --sample 0, or --sms 12"));
}
END_TEST

START_TEST(fp32_and_backward_are_refused_in_a_sentence) {
    enter_folder();
    fp32_is_refused(7, steps[_i]);
}
END_TEST

// ---- fp8: chapter 6's numbers in l2-order's blocks

// Runs l2-order in fp8 under three orders: it must be ok, with no finding.
static void check_fp8(const char *problem) {
    for (int p = 0; p < MATRIX_PAIRS; p++) {
        Outcome run = run_chapter(7, "--check-only --json - --dtype fp8 --steps l2-order %s %s",
                                  matrix_orders[p], problem);
        const Json *json = outcome_json(&run, 0);
        ck_assert_int_eq(every_step_is_ok(&run, json), 1);
        ck_assert_str_eq(json_text(json, "problem.dtype"), "fp8");
    }
}

// Cell i: head_dim, causal. Tiles of keys are 160 and 224 long.
START_TEST(fp8_every_length) {
    static const char *const problems[] = {
        "--sms 1 --heads 3 --seqlen 1",
        "--sms 2 --heads 4 --kv-heads 2 --seqlen-q 200 --seqlen-k 63 --sink",
        "--sms 2 --heads 3 --seqlen-q 193 --seqlen-k 449 --window 33,7",
        "--sms 1 --batch 2 --heads 2 --kv-heads 1 --seqlen-q 65 --seqlen-k 700 --softcap 5",
        "--sms 3 --heads 5 --seqlen 400",
    };
    char problem[200];
    enter_folder();
    for (int p = 0; p < 5; p++) {
        snprintf(problem, sizeof problem, "%s --head-dim %d%s", problems[p],
                 matrix_head_dims[_i % 2], _i / 2 ? " --causal" : "");
        check_fp8(problem);
    }
}
END_TEST

START_TEST(fp8_edges) {
    static const char *const problems[] = {
        "--sms 2 --heads 5 --seqlen-q 40 --seqlen-k 0 --sink",
        "--sms 2 --heads 5 --seqlen-q 0 --seqlen-k 40",
        "--sms 2 --heads 5 --seqlen-q 300 --seqlen-k 1",
        "--sms 2 --heads 2 --seqlen-q 900 --seqlen-k 40 --causal",
        "--sms 50 --heads 2 --seqlen 250 --causal",
        "--sms 2 --heads 3 --seqlen 193 --scale -2 --head-dim 40",
        "--sms 1 --heads 2 --seqlen-q 1 --seqlen-k 3000",
    };
    enter_folder();
    check_fp8(problems[_i]);
}
END_TEST

// The same blocks, scales and sums as chapter 6's hadamard has, so the same bits.
START_TEST(fp8_gives_chapter_6s_bits) {
    static const char *const problems[] = {
        "--heads 4 --kv-heads 2 --seqlen-q 300 --seqlen-k 700 --head-dim 128",
        "--heads 3 --seqlen-q 410 --seqlen-k 333 --head-dim 64 --causal --softcap 4",
    };
    Array o[2], lse[2];
    enter_folder();
    for (int c = 0; c < 2; c++) {
        Outcome run =
            run_chapter(6 + c, "--check-only --json - --save out --steps %s --sms 2 %s",
                        c ? "l2-order --dtype fp8" : "hadamard --dtype bf16", problems[_i]);
        every_step_is_ok(&run, outcome_json(&run, 0));
        o[c] = array_read("out/o.npy");
        lse[c] = array_read("out/lse.npy");
    }
    arrays_are_equal(&o[0], &o[1]);
    arrays_are_equal(&lse[0], &lse[1]);
}
END_TEST

START_TEST(fp8_refuses_in_a_sentence) {
    static const char *const lines[][2] = {
        {"--steps lpt", "step l2-order has --dtype fp8"},
        {"--steps naive,intra-warpgroup", "use --dtype fp16 or bf16"},
        {"--steps l2-order --varlen 100,3", "sequences of one length only"},
        {"--steps l2-order --backward", "--backward"},
    };
    enter_folder();
    for (int l = 0; l < 4; l++) {
        Outcome run = run_chapter(7, "--dtype fp8 --sms 2 --heads 2 %s", lines[l][0]);
        ck_assert_int_eq(run.status, 2);
        ck_assert_msg(strstr(run.err, lines[l][1]) != NULL, "%s", run.err);
    }
}
END_TEST

// ---- times and bytes, modelled

static Json *timed(const char *steps_wanted, const char *problem) {
    Outcome run =
        run_chapter(7, "--json - --dtype bf16 --head-dim 128 --steps %s %s", steps_wanted, problem);
    Json *json = outcome_json(&run, 0);
    every_step_is_ok(&run, json);
    return json;
}

// Eight tiles of 1024 keys on each of two SMs: a block that stays saves its start, and the overlap
// of the epilogue more.
START_TEST(staying_saves_2000_cycles_a_tile) {
    enter_folder();
    const Json *json =
        timed("intra-warpgroup,persistent,overlapped-epilogue", "--sms 2 --heads 2 --seqlen 1024");
    const double chapter_5 = cycles_of(json, "intra-warpgroup");
    const double persistent = cycles_of(json, "persistent");
    const double overlapped = cycles_of(json, "overlapped-epilogue");
    ck_assert_msg(persistent < chapter_5 && overlapped < persistent, "%g, %g, %g cycles", chapter_5,
                  persistent, overlapped);
    ck_assert_msg((chapter_5 - overlapped) / 8 >= 2000, "%g cycles a tile",
                  (chapter_5 - overlapped) / 8);
    ck_assert_msg(chapter_5 / overlapped >= 1.06, "%g", chapter_5 / overlapped);
}
END_TEST

// Longest first, each tile to whoever is ready, against every gridDim.x-th in order: 48 causal tiles
// on five SMs. (The heads share K and V, which stay in the L2.)
static const char *const causal_problem = "--sms 5 --heads 3 --kv-heads 1 --seqlen 2048 --causal";

START_TEST(longest_first_ends_earlier) {
    enter_folder();
    const Json *json = timed("overlapped-epilogue,lpt,l2-order", causal_problem);
    const double in_order = cycles_of(json, "overlapped-epilogue");
    ck_assert_msg(in_order / cycles_of(json, "lpt") >= 1.05, "%g cycles in order, %g", in_order,
                  cycles_of(json, "lpt"));
    ck_assert_msg(in_order / cycles_of(json, "l2-order") >= 1.05, "%g cycles in order, %g",
                  in_order, cycles_of(json, "l2-order"));
}
END_TEST

// The L2 of two SMs, 0.76 MB, holds K and V of one head of 1024 keys, and not of sixteen.
START_TEST(l2_order_reads_less) {
    enter_folder();
    const Json *json = timed("lpt,l2-order", "--sms 2 --heads 16 --seqlen 1024 --causal");
    const double lpt = json_number(step_named(json, "lpt"), "hbm_read_bytes");
    const double l2_order = json_number(step_named(json, "l2-order"), "hbm_read_bytes");
    ck_assert_msg(lpt >= 2 * l2_order, "%g bytes, %g in L2 order", lpt, l2_order);
    ck_assert_msg(cycles_of(json, "l2-order") <= 1.005 * cycles_of(json, "lpt"), "%g, %g",
                  cycles_of(json, "l2-order"), cycles_of(json, "lpt"));
}
END_TEST

// Sixteen queries of eight heads are one tile, not eight: K and V come once, and are multiplied once.
// With rows enough for tiles of their own, heads stay apart.
START_TEST(groups_read_keys_once) {
    static const struct {
        int queries;
        bool packed;
    } cases[] = {{16, true}, {128, false}};
    enter_folder();
    for (int c = 0; c < 2; c++) {
        char problem[150];
        snprintf(problem, sizeof problem,
                 "--sms 2 --heads 16 --kv-heads 2 --seqlen-q %d --seqlen-k 1408", cases[c].queries);
        const Json *json = timed("lpt,l2-order", problem);
        const double apart = json_number(step_named(json, "lpt"), "l2_read_bytes");
        const double together = json_number(step_named(json, "l2-order"), "l2_read_bytes");
        const double faster = cycles_of(json, "lpt") / cycles_of(json, "l2-order");
        if (cases[c].packed)
            ck_assert_msg(apart >= 6 * together && faster >= 3,
                          "%g bytes of the L2, together %g; %g times as fast", apart, together,
                          faster);
        else
            ck_assert_msg(together == apart && fabs(faster - 1) < 0.05,
                          "%g bytes of the L2, together %g; %g times as fast", apart, together,
                          faster);
    }
}
END_TEST

// Blocks that stay win over chapter 6's in fp8 as well, under a causal mask most.
START_TEST(fp8_is_faster_than_chapter_6) {
    enter_folder();
    for (int causal = 0; causal < 2; causal++) {
        double cycles[2];
        for (int c = 0; c < 2; c++) {
            Outcome run = run_chapter(
                6 + c, "--json - --steps %s --sms 2 --heads 4 --seqlen 1024 --head-dim 128%s",
                c ? "l2-order --dtype fp8" : "hadamard --dtype bf16", causal ? " --causal" : "");
            const Json *json = outcome_json(&run, 0);
            every_step_is_ok(&run, json);
            cycles[c] = cycles_of(json, c ? "l2-order" : "hadamard");
        }
        ck_assert_msg(cycles[0] / cycles[1] >= (causal ? 1.1 : 1.03), "%g cycles, here %g",
                      cycles[0], cycles[1]);
    }
}
END_TEST

// The study knows a tile's cost and a block's, here from two runs with tiles of equal length, and
// from these how long any schedule takes.
START_TEST(study_and_kernel_agree) {
    static const struct {
        const char *step;
        StudySchedule schedule;
    } pairs[] = {{"overlapped-epilogue", STUDY_STATIC},
                 {"lpt", STUDY_LONGEST_FIRST},
                 {"l2-order", STUDY_L2_SECTIONS}};
    enter_folder();
    // Four tiles on each SM, of 4 blocks of keys each, and of 12.
    static const char *const equal = "--sms 4 --heads 16 --kv-heads 1 --causal --seqlen-q 128";
    double cycles[2];
    for (int i = 0; i < 2; i++) {
        char problem[150];
        snprintf(problem, sizeof problem, "%s --seqlen-k %d", equal, i ? 1536 : 512);
        cycles[i] = cycles_of(timed("lpt", problem), "lpt") / 4;
    }
    const double block = (cycles[1] - cycles[0]) / 8, tile = cycles[0] - 4 * block;
    ck_assert_msg(block > 1000 && tile > 0, "%g cycles a tile, %g a block", tile, block);
    const StudyProblem p = {.batch = 1,
                            .heads = 3,
                            .kv_heads = 1,
                            .seqlen_q = 2048,
                            .seqlen_k = 2048,
                            .window_left = -1,
                            .window_right = 0,
                            .rows = 128,
                            .keys = 128,
                            .workers = 5,
                            .tile_cycles = (int64_t)tile,
                            .block_cycles = (int64_t)block,
                            .row_bytes = 256,
                            .l2_bytes = (50 << 20) / 132 * 5};
    const Json *json = timed("overlapped-epilogue,lpt,l2-order", causal_problem);
    for (int i = 0; i < 3; i++) {
        const double predicted = (double)study_run(&p, pairs[i].schedule, NULL).makespan;
        const double modelled = cycles_of(json, pairs[i].step);
        ck_assert_msg(fabs(modelled / predicted - 1) <= 0.1, "%s: %g cycles, the study says %g",
                      pairs[i].step, modelled, predicted);
    }
}
END_TEST

Suite *suite_persistent(void);
Suite *suite_persistent(void) {
    Suite *suite = suite_create("chapter 7's steps");
    TCase *tests = tcase_create("steps");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, every_length, 0, 8);
    tcase_add_loop_test(tests, edges, 0, 7);
    tcase_add_loop_test(tests, tiles_without_keys, 0, 8);
    tcase_add_loop_test(tests, every_head_dim, 0, built_head_dim_count());
    tcase_add_test(tests, fewer_tiles_than_sms);
    tcase_add_test(tests, order_does_not_change_the_bits);
    tcase_add_loop_test(tests, f52_groups, 0, GROUPS);
    tcase_add_loop_test(tests, groups_give_the_same_bits, 0, 3);
    tcase_add_test(tests, f33_a_group_larger_than_the_l2);
    tcase_add_test(tests, f43_the_counter_begins_anew);
    tcase_add_loop_test(tests, a_sample_is_refused_in_a_sentence, 0, STEPS);
    tcase_add_loop_test(tests, fp32_and_backward_are_refused_in_a_sentence, 0, STEPS);
    tcase_add_test(tests, staying_saves_2000_cycles_a_tile);
    tcase_add_test(tests, longest_first_ends_earlier);
    tcase_add_test(tests, l2_order_reads_less);
    tcase_add_loop_test(tests, fp8_every_length, 0, 4);
    tcase_add_loop_test(tests, fp8_edges, 0, 7);
    tcase_add_loop_test(tests, fp8_gives_chapter_6s_bits, 0, 2);
    tcase_add_test(tests, fp8_refuses_in_a_sentence);
    tcase_add_test(tests, fp8_is_faster_than_chapter_6);
    tcase_add_test(tests, groups_read_keys_once);
    tcase_add_test(tests, study_and_kernel_agree);
    suite_add_tcase(suite, tests);
    return suite;
}
