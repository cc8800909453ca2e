// Non-bulk asynchronous copies (PTX ISA 9.7.9.25.3): cp.async from global to shared memory, its
// groups and waits, and arrivals at an mbarrier when copies are done. What is asynchronous about
// them is in machine/async.c; here are the checks and the counting at the issue.
#include "softgpu/machine/async.h"

#include "softgpu/check/check.h"
#include "softgpu/execute/execute.h"
#include "softgpu/execute/mbarrier.h"
#include "softgpu/execute/memory_access.h"
#include "softgpu/machine/mbarrier.h"

// The operands of a copy, in Insn.extra.
typedef struct {
    Insn to, from;  // as instructions of one address each
    Row size;       // src-size, or ROW_NONE
    Row ignore;     // the predicate that turns the source into zeros, or ROW_NONE
    bool bypass_l1; // .cg
} CopyOperands;

// How many bytes each lane reads. false after a finding.
static bool source_sizes(Warp *w, const Insn *i, uint32_t mask, Copy *c) {
    const CopyOperands *o = i->extra;
    memset(c->size, c->bytes, sizeof c->size);
    if (o->ignore != ROW_NONE) {
        uint32_t ignored = predicate(w, o->ignore);
        for (int l = 0; l < WARP_SIZE; l++)
            if (ignored >> l & 1) c->size[l] = 0;
    } else if (o->size != ROW_NONE) {
        const Lane32 *size = row(w, o->size);
        for (uint32_t rest = mask; rest; rest &= rest - 1) {
            int l = __builtin_ctz(rest);
            if (size[l] > c->bytes) {
                finding(w, i, l, FINDING_OUT_OF_BOUNDS, "Clamp it: 0 to the size of the copy.",
                        "the src-size %u is more than the %u bytes that are copied", size[l],
                        c->bytes);
                return false;
            }
            c->size[l] = (uint8_t)size[l];
        }
    }
    return true;
}

// The sources of lanes that read fewer bytes than they write: checked piece by piece.
static bool place_parts(Warp *w, const Insn *i, const uint64_t from[WARP_SIZE], uint32_t part,
                        Copy *c) {
    const struct GlobalMemory *m = w->sm->gpu->memory;
    for (; part; part &= part - 1) {
        int l = __builtin_ctz(part);
        if (from[l] & (c->bytes - 1u)) {
            finding(w, i, l, FINDING_MISALIGNED, "Align the source to the size of the copy.",
                    "copies %u bytes from global memory at 0x%llx, which is %llu bytes past a "
                    "multiple of %u",
                    c->bytes, (unsigned long long)from[l],
                    (unsigned long long)(from[l] & (c->bytes - 1u)), c->bytes);
            return false;
        }
        for (unsigned done = 0; done < c->size[l];) {
            unsigned piece = 8;
            while (piece > c->size[l] - done) piece /= 2;
            uint64_t at[WARP_SIZE] = {0};
            at[l] = from[l] + done;
            Places places;
            Access access = {
                .bytes = piece, .kind = ACCESS_READ, .no_traffic = true, .copies = true};
            if (!place_global(w, i, at, 1u << l, access, &places)) return false;
            done += piece;
        }
        c->from[l] = global_pointer(m, from[l]);
    }
    return true;
}

// Checks the sources and finds where they are.
static bool place_sources(Warp *w, const Insn *i, uint32_t mask, Copy *c) {
    const CopyOperands *o = i->extra;
    uint64_t from[WARP_SIZE];
    uint32_t whole = 0, part = 0;
    for (int l = 0; l < WARP_SIZE; l++) {
        whole |= (uint32_t)(c->size[l] == c->bytes) << l;
        part |= (uint32_t)(c->size[l] && c->size[l] != c->bytes) << l;
    }
    whole &= mask;
    part &= mask;
    c->whole = whole == mask;
    if (!(whole | part)) return true; // nothing is read
    wide_addresses(w, &o->from, from);
    if (whole) {
        Places places;
        Access access = {.bytes = c->bytes,
                         .kind = ACCESS_READ,
                         .bypass_l1 = o->bypass_l1,
                         .no_traffic = part != 0,
                         .copies = true};
        if (!place_global(w, i, from, whole, access, &places)) return false;
        places_spread(&places, c->bytes);
        for (int l = 0; l < WARP_SIZE; l++) c->from[l] = places.at[l];
    }
    if (!part) return true;
    if (!place_parts(w, i, from, part, c)) return false;
    // A copy lies in one sector, so reading part of it costs as much as all.
    traffic_global(w, i, from, c->bytes, whole | part, TRAFFIC_READ, o->bypass_l1);
    return true;
}

static Flow copy(Warp *w, const Insn *i, uint32_t mask) {
    const CopyOperands *o = i->extra;
    Copy c;
    c.bytes = i->size;
    if (!narrow_addresses(w, &o->to, mask, c.to)) return FLOW_FAULT;
    uint32_t home = w->cta->cluster_rank << RANK_SHIFT;
    for (int l = 0; l < WARP_SIZE; l++) c.to[l] -= home;
    if (!check_shared(w, i, c.to, c.bytes, mask, true)) return FLOW_FAULT;
    if (!source_sizes(w, i, mask, &c) || !place_sources(w, i, mask, &c)) return FLOW_FAULT;
    traffic_shared(w, i, c.to, c.bytes, mask, TRAFFIC_WRITE);
    async_copy(w, i, mask, &c);
    w->stores++;
    w->sm->changes++;
    return FLOW_NEXT;
}

static Flow commit_group(Warp *w, const Insn *i, uint32_t mask) {
    (void)i;
    async_commit(w, mask);
    return FLOW_NEXT;
}
static Flow wait_group(Warp *w, const Insn *i, uint32_t mask) {
    return async_wait(w, mask, (uint32_t)i->imm) ? FLOW_NEXT : FLOW_RETRY;
}
static Flow wait_all(Warp *w, const Insn *i, uint32_t mask) {
    (void)i;
    return async_wait(w, mask, ASYNC_NONE) ? FLOW_NEXT : FLOW_RETRY;
}

static Flow arrive(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t address[WARP_SIZE];
    bool counted = i->choice[3] == 0; // no .noinc
    if (!mbarrier_addresses(w, i, mask, i->choice[4] == 0, address)) return FLOW_FAULT;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        if (!mbarrier_expect_async(w, i, l, w->cta, address[l], counted)) return FLOW_FAULT;
    }
    async_arrive(w, i, mask, address);
    w->stores++;
    w->sm->changes++;
    return w->sm->faulted ? FLOW_FAULT : FLOW_NEXT;
}

// ---- lowering

// cp.async.… [to], [from], size {, src-size or ignore-src} {, cache-policy}
static const char *lower_copy(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    const PtxOperand *operand = p->operands;
    bool has_policy = m->choice[4] != 0;
    int count = p->operand_count - has_policy;
    if (count != 3 && count != 4)
        return "cp.async takes a destination, a source, a size, and a source size or a predicate";
    if (operand[0].kind != OPERAND_ADDRESS || operand[1].kind != OPERAND_ADDRESS)
        return "cp.async copies between two addresses";
    if (operand[2].kind != OPERAND_INTEGER) return "the size of a copy must be a number";
    uint64_t bytes = operand[2].bits;
    if (bytes != 16 && ((bytes != 4 && bytes != 8) || m->choice[1] == 2))
        return "cp.async.ca copies 4, 8 or 16 bytes, cp.async.cg 16";

    CopyOperands *o = kernel_alloc(l, sizeof *o);
    *o = (CopyOperands){.to = *i, .from = *i, .size = ROW_NONE, .ignore = ROW_NONE};
    o->bypass_l1 = m->choice[1] == 2;
    o->to.space = SPACE_SHARED;
    o->from.space = SPACE_GLOBAL;
    const char *why = address_operand(l, &operand[0], &o->to);
    if (!why) why = address_operand(l, &operand[1], &o->from);
    if (why) return why;
    const PtxOperand *fourth = &operand[3];
    if (count == 4 && operand_width(l, fourth) == 1)
        o->ignore = source_row(l, fourth, 1, &why);
    else if (count == 4 && !(fourth->kind == OPERAND_INTEGER && fourth->bits == bytes))
        o->size = source_row(l, fourth, 32, &why);
    if (!why && has_policy) source_row(l, &operand[count], 64, &why);
    i->size = (uint8_t)bytes;
    i->space = SPACE_SHARED;
    i->extra = o;
    i->run = copy;
    return why;
}

const Form cp_async_forms[] = {
    {"cp", "async ca|cg shared|shared::cta global L2::cache_hint? L2::64B|L2::128B|L2::256B?", NULL,
     NULL, PIPE_LSU, 0, 0, lower_copy},
    {"cp", "async commit_group", "", commit_group, PIPE_LSU},
    {"cp", "async wait_group", "i", wait_group, PIPE_LSU},
    {"cp", "async wait_all", "", wait_all, PIPE_LSU},
    {"cp", "async mbarrier arrive noinc? shared|shared::cta? b64", "m", arrive, PIPE_LSU},
    {0},
};
