// Chapter 5's kernels, and chapter 7's, as the GPU gets them: ptxas's machine code for sm_90a,
// disassembled. What the lessons say about it must be there, and no spills. A few seconds; skipped
// where there is no disassembler ($TEST_DISASSEMBLER: the folder of cuobjdump and nvdisasm).
#include <check.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

// Instructions that are counted, by how they begin.
enum {
    HGMMA,     // wgmma
    UTMALDG,   // TMA load by a map
    UTMASTG,   // TMA store by a map
    UBLKRED,   // bulk reduction without a map
    SYNCS,     // mbarriers
    STSM,      // stmatrix
    BAR_ARV,   // a named barrier's arrive
    REGISTERS, // setmaxnreg
    EX2,       //
    SPILLS,    // stores to, and loads from, local memory
    RELOADS,   //
    COUNTED
};
static const char *const mnemonics[COUNTED] = {"HGMMA",    "UTMALDG", "UTMASTG", "UBLKRED",
                                               "SYNCS",    "STSM",    "BAR.ARV", "USETMAXREG",
                                               "MUFU.EX2", "STL",     "LDL"};

typedef struct {
    char name[200];
    int count[COUNTED];
    int waits_for_all, waits_for_older; // wgmma.wait_group 0, and 1
    int overlapped;                     // EX2 behind the last wait for older ones, before the next
    int between;                        // … the wait for all that came then
    bool open;
} Function;

enum { FUNCTIONS_MAX = 64 };
static Function functions[FUNCTIONS_MAX];
static int function_count;

// "        /*0a90*/  @!P0 SYNCS.ARRIVE …" → where the instruction begins, without its predicate;
// NULL for other lines.
static const char *instruction_of(const char *line) {
    const char *at = line + strspn(line, " \t");
    if (strncmp(at, "/*", 2) != 0 || strncmp(at, "/* 0x", 5) == 0) return NULL;
    at = strstr(at, "*/");
    if (at == NULL) return NULL;
    at += 2;
    at += strspn(at, " \t");
    if (*at == '@') at += strcspn(at, " "), at += strspn(at, " ");
    return at;
}

static void count_instruction(Function *f, const char *at) {
    for (int k = 0; k < COUNTED; k++)
        f->count[k] += strncmp(at, mnemonics[k], strlen(mnemonics[k])) == 0;
    f->overlapped += f->open && strncmp(at, "MUFU.EX2", 8) == 0;
    if (strncmp(at, "WARPGROUP.DEPBAR", 16) != 0) return;
    if (strstr(at, ", 0x0") != NULL) {
        f->waits_for_all++;
        if (f->open) f->between = f->overlapped;
        f->open = false;
    } else {
        f->waits_for_older++;
        f->open = true;
        f->overlapped = 0;
    }
}

// Disassembles a step's object. False, with a word, where nothing can.
static bool disassemble(const char *step) {
    const char *folder = getenv("TEST_DISASSEMBLER"), *build = getenv("TEST_BUILD");
    if (folder == NULL || *folder == 0) {
        printf("machine code of %s: not tested, there is no cuobjdump\n", step);
        return false;
    }
    char command[3 * PATH_MAX], line[1024];
    snprintf(command, sizeof command, "PATH='%s':$PATH cuobjdump -arch sm_90a -sass %s/%s.o",
             folder, build != NULL ? build : "build/d64-128", step);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    Function *f = NULL;
    function_count = 0;
    while (fgets(line, sizeof line, pipe) != NULL) {
        const char *name = strstr(line, "Function : ");
        if (name != NULL) {
            ck_assert_int_lt(function_count, FUNCTIONS_MAX);
            f = &functions[function_count++];
            *f = (Function){0};
            sscanf(name, "Function : %199s", f->name);
        }
        const char *at = instruction_of(line);
        if (f != NULL && at != NULL) count_instruction(f, at);
    }
    const int status = pclose(pipe);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: status %d", command, status);
    ck_assert_msg(function_count > 0, "%s: no machine code", command);
    return true;
}

static void has(const Function *f, int what, bool wanted) {
    ck_assert_msg((f->count[what] > 0) == wanted, "%s: %d times %s", f->name, f->count[what],
                  mnemonics[what]);
}

static const struct {
    const char *object;
    bool specialised, turns, softmax;
} steps[] = {
    {"05_hopper_async/wgmma", false, false, true},
    {"05_hopper_async/tma_ring", false, false, true},
    {"05_hopper_async/warp_specialised", true, false, true},
    {"05_hopper_async/pingpong", true, true, true},
    {"05_hopper_async/intra_warpgroup", true, true, true},
    {"05_hopper_async/gemm_only", true, true, false},
};
enum { STEPS = sizeof steps / sizeof *steps };

// Head_dims wider than 128 take no turns in intra-warpgroup: their products outlast the softmax.
static bool is_wide(const Function *f) {
    return strstr(f->name, "Li192E") != NULL || strstr(f->name, "Li256E") != NULL;
}

START_TEST(forward_uses_what_the_lesson_says) {
    if (!disassemble(steps[_i].object)) return;
    for (int k = 0; k < function_count; k++) {
        const Function *f = &functions[k];
        has(f, HGMMA, true);
        has(f, UTMALDG, true);
        has(f, UTMASTG, true);
        has(f, SYNCS, true);
        has(f, STSM, true);
        has(f, REGISTERS, steps[_i].specialised);
        has(f, EX2, steps[_i].softmax);
        if (!is_wide(f)) has(f, BAR_ARV, steps[_i].turns);
        has(f, SPILLS, false);
        has(f, RELOADS, false);
    }
}
END_TEST

// The softmax of one block must run while P V of the one before does: between the two waits of the
// loop. The first block's has nothing to run beside, so half of all exponentials are the loop's.
// Where ptxas moves the wait up, all seems right, and the overlap is gone.
START_TEST(exponentials_stand_between_the_waits) {
    static const char *const overlapped[] = {
        "05_hopper_async/intra_warpgroup", "07_persistent_lpt/persistent",
        "07_persistent_lpt/overlapped_epilogue", "07_persistent_lpt/l2_order"};
    if (!disassemble(overlapped[_i])) return;
    for (int k = 0; k < function_count; k++) {
        const Function *f = &functions[k];
        has(f, SPILLS, false);
        has(f, RELOADS, false);
        if (strstr(f->name, "sort_sequences") != NULL) continue; // no attention
        ck_assert_msg(f->waits_for_older == 1 && f->waits_for_all >= 2, "%s: waits %d and %d",
                      f->name, f->waits_for_older, f->waits_for_all);
        ck_assert_msg(f->between >= 0.9 * f->count[EX2] / 2, "%s: %d of %d exponentials", f->name,
                      f->between, f->count[EX2] / 2);
    }
}
END_TEST

START_TEST(backward_uses_what_the_lesson_says) {
    if (!disassemble("05_hopper_async/backward")) return;
    int kernels = 0;
    for (int k = 0; k < function_count; k++) {
        const Function *f = &functions[k];
        has(f, SPILLS, false);
        has(f, RELOADS, false);
        if (strstr(f->name, "backward_hopper") == NULL) continue; // what comes before and behind
        kernels++;
        has(f, HGMMA, true);
        has(f, UTMALDG, true);
        has(f, UTMASTG, true);
        has(f, UBLKRED, true);
        has(f, SYNCS, true);
        has(f, STSM, true);
        has(f, REGISTERS, true);
        has(f, EX2, true);
    }
    ck_assert_int_gt(kernels, 0);
}
END_TEST

Suite *suite_machine_code(void);
Suite *suite_machine_code(void) {
    Suite *suite = suite_create("chapter 5's machine code");
    TCase *tests = tcase_create("sm_90a");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, forward_uses_what_the_lesson_says, 0, STEPS);
    tcase_add_loop_test(tests, exponentials_stand_between_the_waits, 0, 4);
    tcase_add_test(tests, backward_uses_what_the_lesson_says);
    suite_add_tcase(suite, tests);
    return suite;
}
