// --predict: what is asked, which answers count, and what is said beside the result.
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_steps.h"
#include "harness/predict.h"

static const Step first = {.name = "first"}, show = {.name = "show", .exhibit = true},
                  second = {.name = "second", .idea = "tiles"},
                  third = {.name = "third", .idea = "one pass"};
static const Step *const steps[] = {&first, &show, &second, &third};
static const Chapter test_chapter = {.number = 2, .steps = steps, .step_count = 4};
static const bool all[] = {true, true, true, true};
static char *shown;

// Gives these answers; what was asked stands in `shown`.
static bool ask(const char *answers, const bool *chosen, Prediction *p, Message *message) {
    size_t size;
    FILE *from = fmemopen((void *)answers, strlen(answers), "r"),
         *to = open_memstream(&shown, &size);
    ck_assert(from != NULL && to != NULL);
    const bool done = prediction_ask(p, &test_chapter, chosen, false, from, to, message);
    fclose(from);
    fclose(to);
    return done;
}

START_TEST(asks_for_a_step_and_a_factor) {
    Prediction p;
    Message message;
    ck_assert(ask("third\n1.5\n", all, &p, &message));
    ck_assert_ptr_eq(p.step, &third);
    ck_assert_double_eq(p.factor, 1.5);
    // What can be the answer is listed, with its number in --list; the first step and exhibits aren't.
    ck_assert_ptr_nonnull(strstr(shown, "   3  second"));
    ck_assert_ptr_nonnull(strstr(shown, "tiles"));
    ck_assert_ptr_null(strstr(shown, "  1  "));
    ck_assert_ptr_null(strstr(shown, "show"));
    ck_assert(ask("  3 \r\n2x", all, &p, &message));
    ck_assert_ptr_eq(p.step, &second);
    ck_assert_double_eq(p.factor, 2);
}
END_TEST

START_TEST(asks_again_for_what_is_no_answer) {
    Prediction p;
    Message message;
    ck_assert(ask("first\n2\nnonsense\n4\nmuch\n-1\nnan\n1.2 or so\n3\n", all, &p, &message));
    ck_assert_ptr_eq(p.step, &third);
    ck_assert_double_eq(p.factor, 3);
    ck_assert_ptr_nonnull(strstr(shown, "nonsense: none of these steps"));
    ck_assert_ptr_nonnull(strstr(shown, "1.2 or so: give a number above 0"));
}
END_TEST

START_TEST(refuses_without_answers_or_steps) {
    Prediction p;
    Message message;
    ck_assert(!ask("third\n", all, &p, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "--predict: the answers end"));
    const bool one[] = {false, true, true, false};
    ck_assert(!ask("second\n2\n", one, &p, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "--predict: there is nothing to compare"));
}
END_TEST

static const char *printed(const Prediction *p, const Run *run) {
    size_t size;
    FILE *to = open_memstream(&shown, &size);
    prediction_print(to, p, run);
    fclose(to);
    return shown;
}

START_TEST(says_what_the_run_says) {
    static Run run;
    run.count = 4;
    for (int i = 0; i < 4; i++) run.results[i].step = steps[i];
    run.results[0].speedup_over_previous = NAN;
    run.results[1].speedup_over_previous = 9; // an exhibit
    run.results[2].speedup_over_previous = 1.25;
    run.results[3].speedup_over_previous = 3.5;
    Prediction p = {true, &third, 2};
    ck_assert_str_eq(printed(&p, &run), "\nyour prediction: third gains most, 2.00×\n"
                                        "the run:         third gains most, 3.50×\n");
    p.step = &second;
    ck_assert_ptr_nonnull(
        strstr(printed(&p, &run), "third gains most, 3.50×; second gains 1.25×\n"));
    run.results[2].speedup_over_previous = NAN; // it was refused
    ck_assert_ptr_nonnull(strstr(printed(&p, &run), "3.50×; second was not timed\n"));
    run.results[3].speedup_over_previous = NAN;
    ck_assert_ptr_nonnull(strstr(printed(&p, &run), "no step was timed beside another one"));
    p.asked = false;
    ck_assert_str_eq(printed(&p, &run), "");
}
END_TEST

Suite *suite_predict(void) {
    Suite *suite = suite_create("predict");
    TCase *tests = tcase_create("predict");
    tcase_add_test(tests, asks_for_a_step_and_a_factor);
    tcase_add_test(tests, asks_again_for_what_is_no_answer);
    tcase_add_test(tests, refuses_without_answers_or_steps);
    tcase_add_test(tests, says_what_the_run_says);
    suite_add_tcase(suite, tests);
    return suite;
}
