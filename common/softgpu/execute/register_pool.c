// setmaxnreg (PTX ISA 9.7.19.5): warpgroups hand registers to each other.
//
// A block begins with its threads' registers, all given out. .dec gives some of a warp's back to
// the block's pool; .inc takes some, and waits until the pool has them. The request of a warp that
// waits is kept in Warp.registers_wanted; who gives registers back serves the requests, in the
// order of the warps.
//
// Registers of PTX are not those of the machine, so what a thread loses or gains can't be told: the
// compiler keeps no value in a register that is given away, and none is read from one gained before
// it is written. ptxas ignores setmaxnreg where the count at entry is not fixed; so does this.
//
// Invariant: Cta.pool.free + the registers of all warps = those at the start.
#include "softgpu/check/findings.h"
#include "softgpu/execute/execute.h"
#include "softgpu/machine/wgmma.h"

enum { LEAST = 24, MOST = 256, UNIT = 8, REGISTERS_OF_SM = 65536 };

static bool is_fixed(const PtxFunction *f) {
    return f->maxnreg || (f->minnctapersm && (f->maxntid[0] || f->reqntid[0]));
}

// ptxas gives a kernel with setmaxnreg all that its launch bounds leave it; without machine code,
// that is known from them.
uint32_t registers_at_entry(const Kernel *kernel) {
    const PtxFunction *f = kernel->ptx;
    uint32_t registers = kernel->registers;
    if (kernel->registers_estimated && f && f->maxnreg) {
        registers = f->maxnreg;
    } else if (kernel->registers_estimated && f && is_fixed(f)) {
        const uint32_t *block = f->maxntid[0] ? f->maxntid : f->reqntid;
        uint64_t threads = (uint64_t)block[0] * (block[1] ? block[1] : 1);
        threads *= block[2] ? block[2] : 1;
        if (threads && threads <= REGISTERS_OF_SM)
            registers = (uint32_t)(REGISTERS_OF_SM / (threads * f->minnctapersm)) / UNIT * UNIT;
    }
    registers = (registers + UNIT - 1) / UNIT * UNIT;
    return registers < MOST ? registers : MOST;
}

// Gives waiting warps what the pool has for them.
static void serve(Cta *cta) {
    for (int k = 0; k < cta->warp_count; k++) {
        Warp *w = &cta->warps[k];
        if (!w->registers_wanted) continue;
        uint32_t more = (w->registers_wanted - w->registers) * WARP_SIZE;
        if (more > cta->pool.free) continue;
        cta->pool.free -= more;
        w->registers = w->registers_wanted;
        w->registers_wanted = 0;
        w->sm->changes++;
        warp_wake(w, BLOCK_REGISTERS, 0);
    }
}

// All warps of a warpgroup must execute the same instruction, and each one before any goes on to
// the next.
static bool check_warpgroup(Warp *w, const Insn *i) {
    struct RegisterUse *use = &w->cta->pool.uses[w->id / WARPGROUP];
    uint32_t bit = 1u << w->id % WARPGROUP, all = 0;
    for (int k = 0; k < WARPGROUP; k++) {
        int warp = w->id / WARPGROUP * WARPGROUP + k;
        if (warp < w->cta->warp_count) all |= 1u << k;
    }
    if (use->done && use->insn != i) {
        finding_pair(w, i, -1, FINDING_DIVERGENT, use->insn,
                     "Let all four warps of the warpgroup execute the same setmaxnreg.",
                     "changes its number of registers here, while other warps of its warpgroup do "
                     "so elsewhere");
        return false;
    }
    if (use->done & bit) {
        finding(w, i, -1, FINDING_DIVERGENT,
                "Let the warps of the warpgroup meet (bar.sync) between two setmaxnreg.",
                "executes setmaxnreg again before the other warps of its warpgroup have executed "
                "it once");
        return false;
    }
    use->insn = i;
    use->done |= bit;
    if (!(all & ~use->done)) use->done = 0;
    return true;
}

void registers_end(Cta *cta) {
    for (int k = 0; k * WARPGROUP < cta->warp_count; k++) {
        const struct RegisterUse *use = &cta->pool.uses[k];
        if (!use->done) continue;
        int warp = k * WARPGROUP + __builtin_ctz(use->done);
        finding(&cta->warps[warp], use->insn, -1, FINDING_DIVERGENT,
                "Let all four warps of the warpgroup execute it.",
                "the block has ended, and only %d of the warps of this warpgroup have executed "
                "this setmaxnreg",
                __builtin_popcount(use->done));
    }
}

// Without a fixed number of registers at entry ptxas leaves setmaxnreg out.
static bool is_ignored(Warp *w, const Insn *i) {
    const PtxFunction *f = w->kernel->ptx;
    if (!f || is_fixed(f)) return false;
    if (!finding_again(w, i, FINDING_LINT))
        finding(w, i, -1, FINDING_LINT,
                "Fix it: __launch_bounds__(threads, blocks per SM), or __maxnreg__.",
                "setmaxnreg has no effect: the number of registers at the kernel's entry is not "
                "fixed, so ptxas ignores it (C7508)");
    return true;
}

static Flow set_registers(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all, wanted = (uint32_t)i->imm;
    bool increases = i->choice[0] == 1;
    if (!warp_gather(w, i, mask, w->live, &all)) return FLOW_RETRY;
    if (is_ignored(w, i)) return FLOW_NEXT;
    if (w->exists & ~all) {
        finding(w, i, __builtin_ctz(w->exists & ~all), FINDING_DIVERGENT,
                "Let all threads of the warpgroup execute it, before any of them returns.",
                "%d lanes of the warp have exited and don't execute it (.aligned)",
                __builtin_popcount(w->exists & ~all));
        return FLOW_FAULT;
    }
    if (increases ? wanted < w->registers : wanted > w->registers) {
        finding(w, i, -1, FINDING_BARRIER,
                "Decrease below what the warp has, or increase above it: all threads start with "
                "the number that the kernel was compiled for.",
                "%s to %u registers a thread, and the warp has %u",
                increases ? "increases" : "decreases", wanted, w->registers);
        return FLOW_FAULT;
    }
    if (!check_warpgroup(w, i)) return FLOW_FAULT;
    Cta *cta = w->cta;
    w->stores++;
    w->sm->changes++;
    if (!increases) {
        cta->pool.free += (w->registers - wanted) * WARP_SIZE;
        w->registers = wanted;
        serve(cta);
        return FLOW_NEXT;
    }
    uint32_t more = (wanted - w->registers) * WARP_SIZE;
    if (more <= cta->pool.free) {
        cta->pool.free -= more;
        w->registers = wanted;
        return FLOW_NEXT;
    }
    w->registers_wanted = wanted;
    warp_block(w, BLOCK_REGISTERS, 0, 0);
    return FLOW_WAIT;
}

static const char *lower_set(Lowering *l, const Match *m, Insn *i) {
    const PtxOperand *o = m->ptx->operands;
    (void)l;
    if (m->ptx->operand_count != 1 || o[0].kind != OPERAND_INTEGER)
        return "setmaxnreg takes an immediate";
    if (o[0].bits < LEAST || o[0].bits > MOST || o[0].bits % UNIT)
        return "the number of registers must be a multiple of 8 from 24 to 256";
    i->imm = o[0].bits;
    i->run = set_registers;
    return NULL;
}

const Form register_forms[] = {
    {"setmaxnreg", "inc|dec sync aligned u32", "i", NULL, PIPE_CONTROL, 0, INSN_ALIGNED, lower_set},
    {0},
};
