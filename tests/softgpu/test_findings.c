// Findings: one per line with a count, the frame that a person should see, text and JSON, names.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "said.h"
#include "softgpu/report/findings.h"

Suite *suite_findings(void);

#define BODY ".reg .b64 %a; .reg .b32 %r; ld.global.u32 %r, [%a];\nst.global.u32 [%a], %r;"

// Gives an instruction a source line: inlined from common/device into helper() into the kernel.
static void set_lines(Bench *b, const Insn *i, uint32_t line) {
    static PtxLocation kernel, helper, wrapper;
    kernel = (PtxLocation){.file = "/home/me/kernel.cu", .line = line + 100, .ptx_line = 9};
    helper = (PtxLocation){.file = "/home/me/kernel.cu",
                           .function = "_Z6helperIfEvPT_i",
                           .line = line,
                           .ptx_line = 9,
                           .inlined_at = &kernel};
    wrapper = (PtxLocation){.file = "/home/me/common/device/cp_async.h",
                            .function = "_Z4loadPf",
                            .line = 12,
                            .ptx_line = 9,
                            .inlined_at = &helper};
    b->kernel->locations[i->index] = &wrapper;
}

static char *text_of(const Finding *f) {
    static char text[4096];
    FILE *out = tmpfile();
    finding_print(out, f);
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = 0;
    fclose(out);
    return text;
}

START_TEST(one_per_line_with_a_count) {
    Bench *b = bench_open(BODY, CHECK_MEM);
    const Insn *ld = bench_insn(b, "ld.global.u32"), *st = bench_insn(b, "st.global.u32");
    const Finding *f;
    for (int k = 0; k < 5; k++) finding(&b->warp, ld, k, FINDING_RACE, NULL, "number %d", k);
    finding(&b->warp, ld, 0, FINDING_UNINITIALISED, NULL, "other kind");
    ck_assert_int_eq(bench_findings(b, &f), 2);
    ck_assert_str_eq(findings_get(0)->what, "number 0");
    ck_assert_uint_eq(findings_get(0)->count, 5);
    // Met again in a later round: the same finding.
    finding(&b->warp, ld, 7, FINDING_RACE, NULL, "later");
    ck_assert_int_eq(bench_findings(b, NULL), 2);
    ck_assert_uint_eq(findings_get(0)->count, 6);
    // Another line, and another pair of lines.
    finding(&b->warp, st, 7, FINDING_RACE, NULL, "at the store");
    ck_assert_int_eq(bench_findings(b, NULL), 3);
    finding_pair(&b->warp, st, 7, FINDING_RACE, ld, NULL, "with the load");
    ck_assert_int_eq(bench_findings(b, &f), 4);
    ck_assert_ptr_nonnull(strstr(f->other, "ld.global.u32"));
    ck_assert_int_eq(findings_count(), 4);
    ck_assert_int_eq(findings_launch_count(), 5); // each merge of a line counts
    ck_assert_int_eq(findings_launch_error(), 0);
    ck_assert(!b->sm.faulted);
    bench_close(b);
}
END_TEST

START_TEST(again_counts_without_text) {
    Bench *b = bench_open(BODY, CHECK_MEM);
    const Insn *ld = bench_insn(b, "ld.global.u32");
    ck_assert(!finding_again(&b->warp, ld, FINDING_UNINITIALISED));
    finding(&b->warp, ld, 0, FINDING_UNINITIALISED, NULL, "first");
    ck_assert(finding_again(&b->warp, ld, FINDING_UNINITIALISED));
    ck_assert(!finding_again(&b->warp, ld, FINDING_RACE));
    bench_findings(b, NULL);
    ck_assert_uint_eq(findings_get(0)->count, 2);
    bench_close(b);
}
END_TEST

// Two instructions of one source line are one finding; the same line of two kernels is two.
START_TEST(the_line_is_the_key) {
    Bench *b = bench_open(BODY, CHECK_MEM);
    const Insn *ld = bench_insn(b, "ld.global.u32"), *st = bench_insn(b, "st.global.u32");
    set_lines(b, ld, 40);
    b->kernel->locations[st->index] = b->kernel->locations[ld->index];
    finding(&b->warp, ld, 0, FINDING_RACE, NULL, "a");
    finding(&b->warp, st, 0, FINDING_RACE, NULL, "b");
    ck_assert_int_eq(bench_findings(b, NULL), 1);
    b->kernel->name = "_Z5otherv";
    finding(&b->warp, ld, 0, FINDING_RACE, NULL, "c");
    ck_assert_int_eq(bench_findings(b, NULL), 2);
    bench_close(b);
}
END_TEST

START_TEST(text_for_people) {
    Bench *b = bench_open(BODY, CHECK_MEM);
    const Insn *ld = bench_insn(b, "ld.global.u32");
    set_lines(b, ld, 40);
    for (int k = 0; k < 3; k++)
        finding(&b->warp, ld, 13, FINDING_MISALIGNED, "Align it.", "reads %d bytes", 4);
    const Finding *f;
    ck_assert_int_eq(bench_findings(b, &f), 1);
    ck_assert_str_eq(text_of(f),
                     "softgpu: misaligned access\n"
                     "  reads 4 bytes\n"
                     "      ld.global.u32 at /home/me/kernel.cu:40 in helper<>()\n"
                     "      inlined at /home/me/kernel.cu:140 in bench()\n"
                     "      → Align it.\n"
                     "  block (3,0,0), thread (5,1,0) · kernel bench · 2 more like it\n");
    bench_close(b);
}
END_TEST

// Without line information the PTX is shown, and how to get lines.
// Lines of at most 100 columns, the rest further in; no word is lost, and a place stays whole.
START_TEST(long_lines_are_folded) {
    Bench *b = bench_open(BODY, CHECK_MEM);
    char what[2048] =
        "  warp 0 waits in an.instruction.with.a.very.long.name.as.tensor.copies.have "
        "at some/folder/that/is/deep/kernel.cu:12";
    for (int k = 0; k < 60; k++) sprintf(what + strlen(what), " word%d é", k);
    finding(&b->warp, bench_insn(b, "ld.global.u32"), 0, FINDING_RACE, what, "first\n%s", what);
    const Finding *f;
    bench_findings(b, &f);
    char *text = text_of(f);
    ck_assert_ptr_nonnull(strstr(text, "\n  first\n    warp 0 waits in"));
    ck_assert_ptr_nonnull(strstr(text, "\n      at some/folder/that/is/deep/kernel.cu:12 word0 "));
    int words = 0, lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        int columns = 0;
        for (char *c = line; *c; c++) {
            columns += ((unsigned char)*c & 0xc0) != 0x80;
            words += !strncmp(c, " word", 5);
        }
        ck_assert_msg(columns <= 100, "%d columns: %s", columns, line);
    }
    ck_assert_int_eq(words, 2 * 60); // of what happened, and of the mend
    ck_assert_int_ge(lines, 12);
    bench_close(b);
}
END_TEST

START_TEST(text_without_lines) {
    Bench *b = bench_open(BODY, CHECK_MEM);
    const Insn *st = bench_insn(b, "st.global.u32");
    finding(&b->warp, st, -1, FINDING_DIVERGENT, NULL, "x");
    const Finding *f;
    bench_findings(b, &f);
    const char *text = text_of(f);
    ck_assert_ptr_nonnull(strstr(text, "st.global.u32 (line "));
    ck_assert_ptr_nonnull(strstr(text, "-lineinfo"));
    ck_assert_ptr_nonnull(strstr(text, "block (3,0,0), warp 0 "));
    bench_close(b);
}
END_TEST

START_TEST(lints_are_notes_unless_strict) {
    for (int strict = 0; strict < 2; strict++) {
        Bench *b = bench_open(BODY, CHECK_MEM);
        b->settings.strict = strict;
        findings_configure(&b->settings);
        const Finding *f;
        finding(&b->warp, bench_insn(b, "ld.global.u32"), 0, FINDING_LINT, NULL, "x");
        ck_assert_int_eq(bench_findings(b, &f), 1);
        ck_assert_int_eq(f->note, !strict);
        ck_assert_int_eq(findings_count(), strict);
        ck_assert_int_eq(findings_launch_count(), strict);
        bench_close(b);
    }
}
END_TEST

// The first fatal finding's error is the launch's; at most FINDINGS_KEPT are kept.
START_TEST(errors_and_limits) {
    Bench *b = bench_open(BODY, CHECK_MEM);
    finding_global(FINDING_LINT, NULL, NULL, "not fatal");
    ck_assert_int_eq(findings_launch_error(), 0);
    finding_global(FINDING_MISALIGNED, "_Z1kv", NULL, "first");
    finding_global(FINDING_OUT_OF_BOUNDS, "_Z1kv", NULL, "second");
    ck_assert_int_eq(findings_launch_error(), 716);
    findings_begin_launch();
    ck_assert_int_eq(findings_launch_error(), 0);
    ck_assert_int_eq(findings_count(), 2);
    for (int k = 0; k < 100; k++) finding_global(FINDING_RACE, NULL, NULL, "number %d", k);
    ck_assert_int_eq(findings_count(), 102);
    ck_assert_ptr_nonnull(findings_get(FINDINGS_KEPT - 1));
    ck_assert_ptr_null(findings_get(FINDINGS_KEPT));
    ck_assert_uint_eq(findings_errors_dropped(), 103 - FINDINGS_KEPT);
    ck_assert_uint_eq(findings_notes_dropped(), 0);
    bench_close(b);
}
END_TEST

START_TEST(notes_leave_room_for_errors) {
    Bench *b = bench_open(BODY, CHECK_MEM);
    for (int k = 0; k < 100; k++) finding_global(FINDING_LINT, NULL, NULL, "note %d", k);
    finding_global(FINDING_TRAP, NULL, NULL, "trap");
    ck_assert_int_eq(findings_count(), 1);
    ck_assert_ptr_nonnull(findings_get(NOTES_KEPT));
    ck_assert_int_eq(findings_get(NOTES_KEPT)->kind, FINDING_TRAP);
    ck_assert_uint_eq(findings_notes_dropped(), 100 - NOTES_KEPT);
    ck_assert_uint_eq(findings_errors_dropped(), 0);
    bench_close(b);
}
END_TEST

// What there was no room for is told at the end, errors and notes apart.
START_TEST(tells_what_is_not_shown) {
    Bench *b = bench_open(BODY, CHECK_MEM);
    for (int k = 0; k < NOTES_KEPT + 1; k++) finding_global(FINDING_LINT, NULL, NULL, "note %d", k);
    said_begin();
    findings_finish(&b->settings);
    const char *text = said();
    ck_assert_ptr_nonnull(strstr(text, "\nsoftgpu: 1 more note at another line is not shown\n"));
    ck_assert_ptr_null(strstr(text, "more error"));
    for (int k = 0; k < FINDINGS_KEPT; k++) finding_global(FINDING_RACE, NULL, NULL, "race %d", k);
    findings_finish(&b->settings);
    char expected[100];
    snprintf(expected, sizeof expected, "softgpu: %d more errors at other lines are not shown\n",
             NOTES_KEPT);
    ck_assert_ptr_nonnull(strstr(said(), expected));
    said_end();
    bench_close(b);
}
END_TEST

START_TEST(json) {
    Bench *b = bench_open(BODY, CHECK_MEM);
    const Insn *ld = bench_insn(b, "ld.global.u32");
    set_lines(b, ld, 40);
    ck_assert_str_eq(findings_json(), "[]");
    finding(&b->warp, ld, 13, FINDING_OUT_OF_BOUNDS, NULL, "a \"quoted\"\nline");
    bench_findings(b, NULL);
    ck_assert_str_eq(
        findings_json(),
        "[\n  {\"kind\": \"out-of-bounds\", \"note\": false, \"what\": \"a "
        "\\\"quoted\\\"\\nline\", "
        "\"mend\": null, \"kernel\": \"bench\", \"block\": [3, 0, 0], \"thread\": [5, 1, 0], "
        "\"file\": \"/home/me/kernel.cu\", \"line\": 40, \"frames\": [{\"file\": "
        "\"/home/me/kernel.cu\", \"function\": \"helper<>\", \"line\": 40}, {\"file\": "
        "\"/home/me/kernel.cu\", \"function\": null, \"line\": 140}], \"instruction\": "
        "\"ld.global.u32\", \"ptx_line\": 9, \"other\": null, \"error\": 700, \"count\": 1}\n]");
    ck_assert_str_eq(findings_json(), "[]"); // told once
    bench_close(b);
}
END_TEST

START_TEST(names) {
    static const char *const cases[][2] = {
        {"scale", "scale"},
        {"_Z5scalePff", "scale"},
        {"_ZN4attn7forwardILi64EEEvv", "attn::forward<>"},
        {"_ZN7cutlass13device_kernelINS_4gemm6kernelINS2_ILi3EEEEEEEvNT_6ParamsE",
         "cutlass::device_kernel<>"},
        {"_ZN3BoxIfE3getEv", "Box<>::get"},
        {"_ZN12_GLOBAL__N_14workEv", "{}::work"},
        {"_Z3addILb1EL4Mode2EEvPKf", "add<>"},
        {"_ZN37_INTERNAL_4e9b67d9_8_naive_cu_a7277004workEv", "work"},
        {"_Z999x", "_Z999x"},
        {"_ZN3a", "_ZN3a"},
        {"_Z", "_Z"},
        {"", ""},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char *name = readable_name(cases[k][0]);
        ck_assert_str_eq(name, cases[k][1]);
        free(name);
    }
}
END_TEST

Suite *suite_findings(void) {
    Suite *s = suite_create("findings");
    TCase *c = tcase_create("findings");
    tcase_add_test(c, one_per_line_with_a_count);
    tcase_add_test(c, again_counts_without_text);
    tcase_add_test(c, the_line_is_the_key);
    tcase_add_test(c, text_for_people);
    tcase_add_test(c, text_without_lines);
    tcase_add_test(c, long_lines_are_folded);
    tcase_add_test(c, lints_are_notes_unless_strict);
    tcase_add_test(c, errors_and_limits);
    tcase_add_test(c, notes_leave_room_for_errors);
    tcase_add_test(c, tells_what_is_not_shown);
    tcase_add_test(c, json);
    tcase_add_test(c, names);
    suite_add_tcase(s, c);
    return s;
}
