// Which targets take which instructions (PTX ISA, "Target ISA Notes"; each rule as ptxas 13.0 has
// it). A module whose .target lacks what one of its instructions needs would not assemble, so the
// instruction is refused when it is reached.
//
// A rule that doesn't name an instruction lets it pass: the rules err towards that side, except for
// what they name.
#include <string.h>

#include "softgpu/ptx/lowering.h"

// The targets of a feature, from the architecture `sm` on.
typedef enum {
    PLAIN,  // any suffix or none
    OWN,    // those with a suffix: sm_90a, sm_100a, sm_100f, sm_120a …
    HOPPER, // sm_90a alone
    TENSOR, // those with tensor memory: sm_100a, sm_100f, sm_103a, sm_110a …
    ALONE,  // of those the ones with an a: sm_100a …
} Targets;

typedef struct {
    const char *opcode;    // NULL: every one
    const char *modifiers; // words that must all be there; a bar between alternatives
    int operands;          // at least so many
    int sm;
    Targets targets;
} Rule;

static const Rule rules[] = {
    {"wgmma", "", 0, 90, HOPPER},
    {"setmaxnreg", "", 0, 90, OWN},
    {"tensormap", "replace swizzle_atomicity", 0, 100, OWN},
    {"tensormap", "replace", 0, 90, OWN},
    {"tcgen05", "kind::i8|shift|scale_vec::1X|scale_vec::2X|scale_vec::4X", 0, 100, ALONE},
    {"tcgen05", "sp kind::mxf4|kind::mxf4nvf4", 0, 100, ALONE},
    {"tcgen05", "", 0, 100, TENSOR},
    {"redux", "f32", 0, 100, TENSOR},
    {"cp", "cta_group::1|cta_group::2|tile::scatter4", 0, 100, TENSOR},
    {"cp", "tile::gather4 shared::cluster|prefetch", 0, 100, TENSOR},
    {"ldmatrix", "m16n16|m8n16", 0, 100, OWN},
    {"stmatrix", "m16n8", 0, 100, OWN},
    {"cvt", "ue8m0x2|e2m1x2|e2m3x2|e3m2x2", 0, 100, OWN},

    {"mma", "kind::f8f6f4|kind::mxf8f6f4|kind::mxf4|kind::mxf4nvf4", 0, 120, OWN},

    {"cp", "tile::gather4|cp_mask", 0, 100, PLAIN},
    {"add|sub|mul|fma", "f32x2", 0, 100, PLAIN},
    {"add|sub|fma", "f32 f16|bf16", 0, 100, PLAIN},
    {"min|max", "f32", 4, 100, PLAIN},
    {"ld|st", "v8", 0, 100, PLAIN},
    {"ld|st", "v4 b64|u64|s64|f64", 0, 100, PLAIN},
    {"st", "bulk", 0, 100, PLAIN},
    {"st|red", "async global", 0, 100, PLAIN},
    {"clusterlaunchcontrol", "multicast::cluster::all", 0, 100, OWN},
    {"clusterlaunchcontrol", "", 0, 100, PLAIN},

    {"cp", "bulk", 0, 90, PLAIN},
    {"prefetch", "tensormap", 0, 90, PLAIN},
    {"tensormap", "", 0, 90, PLAIN},
    {"fence", "proxy async|async::generic", 0, 90, PLAIN},
    {"fence", "proxy tensormap::generic", 0, 90, PLAIN},
    {"fence", "mbarrier_init", 0, 90, PLAIN},
    {"mapa|getctarank|elect|griddepcontrol|multimem|stmatrix", "", 0, 90, PLAIN},
    {"st|red", "async", 0, 90, PLAIN},
    {NULL, "cluster|shared::cluster", 0, 90, PLAIN},
    {"mbarrier", "try_wait|expect_tx|complete_tx|relaxed", 0, 90, PLAIN},
    {"red|atom", "v2|v4|v8|bf16|bf16x2|b128", 0, 90, PLAIN},
    {"add|sub|mul|ex2|tanh|set|setp", "bf16|bf16x2", 0, 90, PLAIN},
    {"fma", "oob", 0, 90, PLAIN},
    {"cvt", "tf32 rn|rz", 0, 90, PLAIN},
    {"cvt", "bf16 f16|f64|s16|u16|s32|u32|s64|u64", 0, 90, PLAIN},

    {"mma|cvt", "e4m3|e5m2|e4m3x2|e5m2x2", 0, 89, PLAIN},

    {"cp", "async", 0, 80, PLAIN},
    {"mbarrier|redux|createpolicy|discard", "", 0, 80, PLAIN},
    {"mma|wmma", "bf16|tf32|f64", 0, 80, PLAIN},
};

// Is the word one of the list [begin, end), between bars?
static bool listed(const char *begin, const char *end, const char *word) {
    size_t length = strlen(word);
    for (const char *at = begin; at < end;) {
        const char *bar = memchr(at, '|', (size_t)(end - at));
        const char *stop = bar ? bar : end;
        if ((size_t)(stop - at) == length && !memcmp(at, word, length)) return true;
        at = stop + 1;
    }
    return false;
}

static bool has_modifiers(const PtxInstruction *p, const char *words) {
    while (*words) {
        const char *end = words + strcspn(words, " ");
        bool found = false;
        for (int k = 0; k < p->modifier_count && !found; k++)
            found = listed(words, end, p->modifiers[k]);
        if (!found) return false;
        words = end + (*end == ' ');
    }
    return true;
}

static bool applies(const Rule *r, const PtxInstruction *p) {
    if (r->opcode && !listed(r->opcode, r->opcode + strlen(r->opcode), p->opcode)) return false;
    return p->operand_count >= r->operands && has_modifiers(p, r->modifiers);
}

// mbarrier.arrive has had a count since sm_90, except that of .noComplete.
static bool counts_arrivals(const PtxInstruction *p) {
    return !strcmp(p->opcode, "mbarrier") && p->operand_count == 3 &&
           has_modifiers(p, "arrive|arrive_drop") && !has_modifiers(p, "noComplete");
}

// Special registers that came with clusters.
static bool names_cluster(const PtxInstruction *p) {
    static const char *const names[] = {"%cluster", "%ncluster", "%is_explicit_cluster",
                                        "%aggr_smem_size"};
    for (int k = 0; k < p->operand_count; k++)
        for (size_t n = 0; n < sizeof names / sizeof *names; n++)
            if (p->operands[k].kind == OPERAND_SPECIAL &&
                !strncmp(p->operands[k].name, names[n], strlen(names[n])))
                return true;
    return false;
}

static bool takes(const PtxModule *m, int sm, Targets targets) {
    if (m->target_sm < sm) return false;
    switch (targets) {
    case PLAIN: return true;
    case OWN: return m->target_suffix != 0;
    case HOPPER: return m->target_sm == 90 && m->target_suffix == 'a';
    case TENSOR: return m->target_suffix != 0 && m->target_sm < 120;
    case ALONE: return m->target_suffix == 'a' && m->target_sm < 120;
    }
    return false;
}

static const char *refused(Lowering *l, const PtxModule *m, int sm, Targets targets) {
    static const char *const which[] = {
        [PLAIN] = " or newer",
        [OWN] = "a, or a newer one with a suffix",
        [HOPPER] = "a",
        [TENSOR] = "a or another of its family with a suffix",
        [ALONE] = "a or another of its family with an a",
    };
    char suffix[2] = {m->target_suffix, 0};
    return refusal(l, "it needs .target sm_%d%s, and this module's is sm_%d%s", sm, which[targets],
                   m->target_sm, suffix);
}

// Why the module's target has no such instruction; NULL if it has.
const char *target_fault(Lowering *l) {
    const PtxInstruction *p = l->ptx;
    const PtxModule *m = l->body->ptx->module;
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
        if (!takes(m, rules[k].sm, rules[k].targets) && applies(&rules[k], p))
            return refused(l, m, rules[k].sm, rules[k].targets);
    if (m->target_sm < 90 && (counts_arrivals(p) || names_cluster(p)))
        return refused(l, m, 90, PLAIN);
    return NULL;
}
