// The names of the special registers (execute/special.h).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/execute/special.h"

static const struct {
    const char *name;
    int value;
} names[] = {
    {"WARP_SZ", SPECIAL_WARP_SZ},
    {"cluster_ctarank", SPECIAL_CLUSTER_CTARANK},
    {"cluster_nctarank", SPECIAL_CLUSTER_NCTARANK},
    {"is_explicit_cluster", SPECIAL_IS_EXPLICIT_CLUSTER},
    {"laneid", SPECIAL_LANEID},
    {"warpid", SPECIAL_WARPID},
    {"nwarpid", SPECIAL_NWARPID},
    {"smid", SPECIAL_SMID},
    {"nsmid", SPECIAL_NSMID},
    {"gridid", SPECIAL_GRIDID},
    {"lanemask_eq", SPECIAL_LANEMASK_EQ},
    {"lanemask_le", SPECIAL_LANEMASK_LE},
    {"lanemask_lt", SPECIAL_LANEMASK_LT},
    {"lanemask_ge", SPECIAL_LANEMASK_GE},
    {"lanemask_gt", SPECIAL_LANEMASK_GT},
    {"clock", SPECIAL_CLOCK},
    {"clock_hi", SPECIAL_CLOCK_HI},
    {"clock64", SPECIAL_CLOCK64},
    {"globaltimer", SPECIAL_GLOBALTIMER},
    {"globaltimer_lo", SPECIAL_GLOBALTIMER_LO},
    {"globaltimer_hi", SPECIAL_GLOBALTIMER_HI},
    {"reserved_smem_offset_begin", SPECIAL_RESERVED_SMEM_BEGIN},
    {"reserved_smem_offset_end", SPECIAL_RESERVED_SMEM_END},
    {"reserved_smem_offset_cap", SPECIAL_RESERVED_SMEM_CAP},
    {"reserved_smem_offset_0", SPECIAL_RESERVED_SMEM_0},
    {"reserved_smem_offset_1", SPECIAL_RESERVED_SMEM_1},
    {"total_smem_size", SPECIAL_TOTAL_SMEM_SIZE},
    {"aggr_smem_size", SPECIAL_AGGR_SMEM_SIZE},
    {"dynamic_smem_size", SPECIAL_DYNAMIC_SMEM_SIZE},
    {"current_graph_exec", SPECIAL_CURRENT_GRAPH_EXEC},
};

// Families of three: the name is followed by .x, .y or .z.
static const struct {
    const char *name;
    int value;
} triples[] = {
    {"tid", SPECIAL_TID_X},
    {"ntid", SPECIAL_NTID_X},
    {"ctaid", SPECIAL_CTAID_X},
    {"nctaid", SPECIAL_NCTAID_X},
    {"clusterid", SPECIAL_CLUSTERID_X},
    {"nclusterid", SPECIAL_NCLUSTERID_X},
    {"cluster_ctaid", SPECIAL_CLUSTER_CTAID_X},
    {"cluster_nctaid", SPECIAL_CLUSTER_NCTAID_X},
};

// The number that `text` spells, if it is one below `limit` without leading zeros; else -1.
static int small_number(const char *text, int limit) {
    char *end;
    if (*text < '0' || *text > '9' || (*text == '0' && text[1])) return -1;
    long value = strtol(text, &end, 10);
    return (*end == 0 && value < limit) ? (int)value : -1;
}

// The special register that a PTX name means, -1 if there is none.
int special_from_name(const char *name) {
    if (*name == '%') name++;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i].name)) return names[i].value;

    const char *dot = strrchr(name, '.');
    if (dot && dot[1] >= 'x' && dot[1] <= 'z' && !dot[2])
        for (size_t i = 0; i < sizeof triples / sizeof *triples; i++)
            if (strlen(triples[i].name) == (size_t)(dot - name) &&
                !strncmp(name, triples[i].name, (size_t)(dot - name)))
                return triples[i].value + (dot[1] - 'x');

    if (!strncmp(name, "envreg", 6)) {
        int n = small_number(name + 6, 32);
        return n < 0 ? -1 : SPECIAL_ENVREG0 + n;
    }
    if (!strncmp(name, "pm", 2) && name[2] >= '0' && name[2] <= '7') {
        int n = name[2] - '0';
        if (!name[3]) return SPECIAL_PM0 + n;
        if (!strcmp(name + 3, "_64")) return SPECIAL_PM0_64 + n;
    }
    return -1;
}
