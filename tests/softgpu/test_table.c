// The matcher: sets of modifiers, operand patterns, and why an instruction is refused.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/execute/special.h"
#include "softgpu/ptx/table.h"

// An instruction from its opcode as written and `kinds` of its operands: r register, i integer,
// m address, v vector, p a pair d|p, _ sink.
typedef struct {
    PtxInstruction ptx;
    char text[128];
    const char *modifiers[32];
    PtxOperand operands[8];
} Instruction;

static PtxInstruction *instruction(Instruction *made, const char *full, const char *kinds) {
    *made = (Instruction){.ptx = {.full = full, .guard = -1}};
    strcpy(made->text, full);
    char *rest = made->text;
    made->ptx.opcode = strsep(&rest, ".");
    for (char *part; (part = strsep(&rest, "."));)
        made->modifiers[made->ptx.modifier_count++] = part;
    made->ptx.modifiers = made->modifiers;
    for (; kinds[made->ptx.operand_count]; made->ptx.operand_count++) {
        PtxOperand *o = &made->operands[made->ptx.operand_count];
        o->pair = -1;
        switch (kinds[made->ptx.operand_count]) {
        case 'i': o->kind = OPERAND_INTEGER; break;
        case 'm': o->kind = OPERAND_ADDRESS; break;
        case 'v': o->kind = OPERAND_VECTOR; break;
        case '_': o->kind = OPERAND_SINK; break;
        case 'p': o->pair = 1; // fall through
        default: o->kind = OPERAND_REGISTER;
        }
    }
    made->ptx.operands = made->operands;
    return &made->ptx;
}

static bool takes(const char *set, const char *full, uint8_t choice[16]) {
    Instruction made;
    return modifiers_match(set, instruction(&made, full, ""), choice);
}

START_TEST(modifiers_are_a_set) {
    uint8_t choice[16];
    const char *set = "sync any|all|ballot b32|pred";
    ck_assert(takes(set, "vote.sync.ballot.b32", choice));
    ck_assert_int_eq(choice[0], 1);
    ck_assert_int_eq(choice[1], 3);
    ck_assert_int_eq(choice[2], 1);
    ck_assert(takes(set, "vote.ballot.sync.b32", choice));
    ck_assert_int_eq(choice[1], 3);
    ck_assert(!takes(set, "vote.ballot.b32", choice));
    ck_assert(!takes(set, "vote.sync.sync.ballot.b32", choice));
    ck_assert(!takes(set, "vote.sync.ballot.any.b32", choice));
    ck_assert(!takes(set, "vote.sync.ballot.b32.more", choice));
    ck_assert(takes("", "exit", choice));
    ck_assert(!takes("", "exit.now", choice));
    // The rest, whatever it is.
    ck_assert(takes("*", "tex", choice));
    ck_assert(takes("*", "tex.2d.v4.f32.f32", choice));
    ck_assert(takes("a|b *", "x.some.b.more", choice));
    ck_assert(!takes("a|b *", "x.some.more", choice));
}
END_TEST

START_TEST(optional_groups) {
    uint8_t choice[16];
    const char *set = "rn|rz|rm|rp? ftz? sat? f32";
    ck_assert(takes(set, "add.f32", choice));
    ck_assert_int_eq(choice[0], 0);
    ck_assert_int_eq(choice[3], 1);
    ck_assert(takes(set, "add.rm.ftz.f32", choice));
    ck_assert_int_eq(choice[0], 3);
    ck_assert_int_eq(choice[1], 1);
    ck_assert_int_eq(choice[2], 0);
    ck_assert(!takes(set, "add.rn.rz.f32", choice));
    ck_assert(!takes(set, "add.ftz", choice));
}
END_TEST

START_TEST(types_that_stand_twice) {
    uint8_t choice[16];
    const char *set = "rn|rz? f16|f32 f16|f32";
    ck_assert(takes(set, "cvt.f32.f16", choice));
    ck_assert_int_eq(choice[1], 2);
    ck_assert_int_eq(choice[2], 1);
    ck_assert(takes(set, "cvt.rn.f16.f32", choice));
    ck_assert_int_eq(choice[1], 1);
    ck_assert_int_eq(choice[2], 2);
    ck_assert(takes(set, "cvt.f32.f32", choice));
    ck_assert(!takes(set, "cvt.f32", choice));
    ck_assert(!takes(set, "cvt.f32.f32.f32", choice));
    ck_assert(takes("sync aligned m16n8k16 row col f16|f32 f16 f16 f16|f32",
                    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", choice));
    // A modifier that is only the beginning of an alternative is another one.
    ck_assert(!takes("f16x2", "add.f16", choice));
    ck_assert(!takes("f16", "add.f16x2", choice));
}
END_TEST

static bool fits(const char *pattern, const char *kinds) {
    Instruction made;
    return operands_match(pattern, instruction(&made, "x", kinds));
}

START_TEST(operand_patterns) {
    ck_assert(fits("d32 a32 b32", "rri"));
    ck_assert(fits("d32 a32 b32", "_rr"));
    ck_assert(!fits("d32 a32 b32", "rr"));
    ck_assert(!fits("d32 a32 b32", "rrrr"));
    ck_assert(!fits("d32 a32 b32", "irr"));
    ck_assert(!fits("d32 a32 b32", "rrm"));
    ck_assert(fits("d32|p a32", "pr"));
    ck_assert(fits("d32|p a32", "rr"));
    ck_assert(!fits("d32 a32", "pr"));
    ck_assert(fits("a32 b32?", "i"));
    ck_assert(fits("a32 b32?", "ii"));
    ck_assert(!fits("a32 b32?", ""));
    ck_assert(fits("m v", "mv"));
    ck_assert(fits("m v", "mr"));
    ck_assert(!fits("m v", "rv"));
    ck_assert(fits("d64 m a64?", "rmr"));
    ck_assert(fits("", ""));
    ck_assert(!fits("", "r"));
    ck_assert(fits("d32 i", "ri"));
    ck_assert(!fits("d32 i", "rr"));
}
END_TEST

START_TEST(reads_patterns) {
    OperandPattern pattern;
    const char *s = next_operand("d32|p a128 bp c16?", &pattern);
    ck_assert(pattern.field == 'd' && pattern.width == 32 && pattern.pair && !pattern.optional);
    s = next_operand(s, &pattern);
    ck_assert(pattern.field == 'a' && pattern.width == 128 && !pattern.pair);
    s = next_operand(s, &pattern);
    ck_assert(pattern.field == 'b' && pattern.width == 1 && !pattern.pair);
    s = next_operand(s, &pattern);
    ck_assert(pattern.field == 'c' && pattern.width == 16 && pattern.optional);
    ck_assert_ptr_null(next_operand(s, &pattern));
}
END_TEST

// Against the real tables.
START_TEST(finds_forms) {
    Instruction made;
    Match m;
    char why[200];
    const Form *form = form_match(instruction(&made, "add.s32", "rrr"), &m, why, sizeof why);
    ck_assert_msg(form != NULL, "%s", why);
    ck_assert_str_eq(form->name, "add");
    ck_assert_ptr_eq(m.form, form);
    form = form_match(instruction(&made, "ret", ""), &m, why, sizeof why);
    ck_assert_msg(form != NULL, "%s", why);
    ck_assert_str_eq(form->name, "ret");
}
END_TEST

START_TEST(says_why_not) {
    Instruction made;
    Match m;
    char why[200];
    ck_assert_ptr_null(form_match(instruction(&made, "frobnicate.b32", "r"), &m, why, sizeof why));
    ck_assert_str_eq(why, "there is no form of 'frobnicate'");
    ck_assert_ptr_null(form_match(instruction(&made, "add.s32.shiny", "rrr"), &m, why, sizeof why));
    ck_assert_str_eq(why, "no form of 'add' takes .shiny");
    ck_assert_ptr_null(form_match(instruction(&made, "add.s32", "r"), &m, why, sizeof why));
    ck_assert_str_eq(why, "no form of 'add.s32' takes these operands");
    ck_assert_ptr_null(form_match(instruction(&made, "add.s32.f32", "rrr"), &m, why, sizeof why));
    ck_assert_str_eq(why, "no form of 'add' takes these modifiers together");
    ck_assert_ptr_null(form_match(instruction(&made, "tex.2d.v4", "v"), &m, why, sizeof why));
    ck_assert_str_eq(why, "textures and surfaces are not built");
    ck_assert_ptr_null(form_match(instruction(&made, "<unparsed>", ""), &m, why, sizeof why));
    ck_assert_str_eq(why, "its operands could not be read");
}
END_TEST

// A form is done or refused, not both; each refused one has a reason, and those of a name and a
// reason stand together, as the printed table wants it.
START_TEST(refused_forms_are_others) {
    int rows = 0;
    for (const RefusedForm *f = refused_forms; f->name; f++, rows++) {
        ck_assert_msg(f->why && *f->why, "%s .%s", f->name, f->modifiers);
        for (int t = 0; form_table(t); t++)
            for (const Form *done = form_table(t); done->name; done++)
                ck_assert_msg(strcmp(done->name, f->name) ||
                                  (strcmp(f->modifiers, "*") &&
                                   (!done->modifiers || strcmp(done->modifiers, f->modifiers))),
                              "'%s' of %s is done", f->modifiers, f->name);
        for (const RefusedForm *g = refused_forms; g < f; g++)
            if (!strcmp(g->name, f->name) && !strcmp(g->why, f->why))
                ck_assert_msg(!strcmp(f[-1].name, f->name) && !strcmp(f[-1].why, f->why), "%s .%s",
                              f->name, f->modifiers);
    }
    ck_assert_int_gt(rows, 50);
}
END_TEST

// The table in the README is what `make forms` would write there.
START_TEST(readme_has_the_table) {
    char *table = NULL, readme[1 << 17];
    size_t size = 0;
    FILE *out = open_memstream(&table, &size);
    softgpu_forms(out);
    fclose(out);
    FILE *in = fopen("common/softgpu/README.md", "r");
    ck_assert_ptr_nonnull(in);
    readme[fread(readme, 1, sizeof readme - 1, in)] = 0;
    fclose(in);
    const char *begin = strstr(readme, "<!-- forms:begin");
    ck_assert_ptr_nonnull(begin);
    begin = strchr(begin, '\n') + 1;
    ck_assert_msg(!strncmp(begin, table, size) && !strncmp(begin + size, "<!-- forms:end", 14),
                  "the README's table of instructions is out of date: run `make forms`");
    free(table);
}
END_TEST

START_TEST(special_registers) {
    ck_assert_int_eq(special_from_name("%tid.x"), SPECIAL_TID_X);
    ck_assert_int_eq(special_from_name("%cluster_nctaid.z"), SPECIAL_CLUSTER_NCTAID_Z);
    ck_assert_int_eq(special_from_name("%lanemask_lt"), SPECIAL_LANEMASK_LT);
    ck_assert_int_eq(special_from_name("%clock64"), SPECIAL_CLOCK64);
    ck_assert_int_eq(special_from_name("%envreg0"), SPECIAL_ENVREG0);
    ck_assert_int_eq(special_from_name("%envreg31"), SPECIAL_ENVREG31);
    ck_assert_int_eq(special_from_name("%pm3"), SPECIAL_PM0 + 3);
    ck_assert_int_eq(special_from_name("%pm7_64"), SPECIAL_PM7_64);
    ck_assert_int_eq(special_from_name("%reserved_smem_offset_1"), SPECIAL_RESERVED_SMEM_1);
    ck_assert_int_eq(special_from_name("WARP_SZ"), SPECIAL_WARP_SZ);
    const char *const wrong[] = {"%tid", "%tid.w",  "%envreg32", "%envreg", "%envreg01",
                                 "%pm8", "%pm0_32", "%ctaid.xy", "",        "%"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(special_from_name(wrong[i]) == -1, "'%s' is no special register", wrong[i]);
}
END_TEST

Suite *suite_table(void) {
    Suite *s = suite_create("table");
    TCase *t = tcase_create("matching");
    tcase_add_test(t, modifiers_are_a_set);
    tcase_add_test(t, optional_groups);
    tcase_add_test(t, types_that_stand_twice);
    tcase_add_test(t, operand_patterns);
    tcase_add_test(t, reads_patterns);
    tcase_add_test(t, finds_forms);
    tcase_add_test(t, says_why_not);
    tcase_add_test(t, refused_forms_are_others);
    tcase_add_test(t, readme_has_the_table);
    tcase_add_test(t, special_registers);
    suite_add_tcase(s, t);
    return s;
}
