// What each instruction does with undefined values: the registers that it reads and writes, and the
// rule by which its results are undefined. The init check follows undefined values by them
// (check/definedness.h).
//
// Registers are noted as the second pass of lowering asks for their rows, so that a form can't
// forget one. Rows of hidden instructions are noted where those are made.
#include <stdlib.h>
#include <string.h>

#include "softgpu/ptx/lowering.h"

// Notes that the instruction being lowered reads or writes a row.
void note_use(Lowering *l, Row row, bool write) {
    if (row == ROW_NONE) return;
    l->pending =
        lowering_grow(l->pending, (size_t)l->pending_count, &l->pending_capacity, sizeof(Use));
    Use kind = write ? USE_WRITE : l->in_address ? USE_ADDRESS : USE_READ;
    l->pending[l->pending_count++] = row | kind;
}

// Gives the last instruction emitted a use of its own: for hidden ones.
void add_use(Lowering *l, Row row, int kind) {
    if (l->surveying || row & ROW_CONSTANT || row == ROW_NONE) return;
    l->touched =
        lowering_grow(l->touched, (size_t)l->touched_count, &l->touched_capacity, sizeof(Use));
    l->touched[l->touched_count++] = row | (Use)kind;
    l->uses[l->code_count - 1].count++;
}

// Bits of the type that an instruction's last modifier names, 1 for predicates; 0 if it is no type.
static uint8_t width_of(const PtxInstruction *p) {
    if (!p->modifier_count) return 0;
    const char *type = p->modifiers[p->modifier_count - 1];
    return !strcmp(type, "pred") ? 1 : strchr("bus", type[0]) ? (uint8_t)atoi(type + 1) : 0;
}

static UsesRule rule_of(const PtxInstruction *p, const Insn *i) {
    static const struct {
        const char *opcode;
        UsesRule rule;
    } rules[] = {
        {"ld", USES_LOAD},          {"ldu", USES_LOAD},
        {"st", USES_STORE},         {"atom", USES_ATOMIC},
        {"red", USES_ATOMIC},       {"bar", USES_SYNC},
        {"barrier", USES_SYNC},     {"mbarrier", USES_SYNC},
        {"cp", USES_SYNC},          {"nanosleep", USES_SYNC},
        {"elect", USES_SYNC},       {"exit", USES_SYNC},
        {"ret", USES_SYNC},         {"trap", USES_SYNC},
        {"fence", USES_SYNC},       {"tensormap", USES_SYNC},
        {"membar", USES_SYNC},      {"shfl", USES_SHUFFLE},
        {"vote", USES_GATHER},      {"match", USES_GATHER},
        {"redux", USES_GATHER},     {"bra", USES_BRANCH},
        {"brx", USES_BRANCH},       {"call", USES_CALL},
        {"mma", USES_MATRIX},       {"wmma", USES_MATRIX},
        {"wgmma", USES_MATRIX},     {"tcgen05", USES_MATRIX},
        {"ldmatrix", USES_MATRIX},  {"stmatrix", USES_MATRIX},
        {"movmatrix", USES_MATRIX}, {"selp", USES_SELECT},
        {"and", USES_AND},          {"or", USES_OR},
    };
    if (ptx_has_modifier(p, "async") || ptx_has_modifier(p, "bulk")) return USES_SYNC;
    bool frame = i->space == SPACE_PARAM && i->a == ROW_NONE;
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
        if (strcmp(p->opcode, rules[k].opcode)) continue;
        if (frame && rules[k].rule == USES_LOAD) return USES_LOAD_PARAM;
        if (frame && rules[k].rule == USES_STORE) return USES_STORE_PARAM;
        if (rules[k].rule == USES_ATOMIC && ptx_has_modifier(p, "exch")) return USES_EXCHANGE;
        return rules[k].rule;
    }
    bool combines = !strcmp(p->opcode, "setp") || !strcmp(p->opcode, "set");
    if (combines && ptx_has_modifier(p, "and")) return USES_COMPARE_AND;
    if (combines && ptx_has_modifier(p, "or")) return USES_COMPARE_OR;
    bool multiplies = !strcmp(p->opcode, "mul") || !strcmp(p->opcode, "mad");
    if (multiplies && width_of(p) && !ptx_has_modifier(p, "cc")) return USES_MULTIPLY;
    return USES_PLAIN;
}

// Gives the last instruction emitted all uses noted, and its rule.
void add_uses(Lowering *l, const Insn *i) {
    const PtxInstruction *p = l->ptx;
    struct KernelUses *uses = &l->uses[l->code_count - 1];
    for (int k = 0; k < l->pending_count && uses->count < UINT16_MAX; k++)
        add_use(l, l->pending[k] & ~(Row)USE_KINDS, (int)(l->pending[k] & USE_KINDS));
    l->pending_count = 0;
    uses->rule = (uint8_t)rule_of(p, i);
    uses->width = width_of(p);
    if (!strcmp(p->opcode, "addc") || !strcmp(p->opcode, "subc") || !strcmp(p->opcode, "madc"))
        uses->carry |= USES_CARRY_IN;
    if (ptx_has_modifier(p, "cc")) uses->carry |= USES_CARRY_OUT;
}
