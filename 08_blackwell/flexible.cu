// Chapter 8, step flexible: FlexAttention on FlashAttention-4's kernel. A score mod changes scores, a
// mask mod leaves keys out (mods.h), and blocks of keys in which all are left out are never visited:
// which ones, a kernel finds out beforehand (block_mask.h).
#include "flexible.h"

#include "block_mask.h"
#include "maps.h"

static cudaError_t forward(const Attention *a) {
    switch (a->score_mod) {
    case SCORE_NONE: return forward_none(a);
    case SCORE_ALIBI: return forward_alibi(a);
    case SCORE_SOFTCAP: return forward_softcap(a);
    }
    return cudaErrorInvalidValue;
}

static size_t forward_workspace(const Attention *a) {
    return block_mask_at(a) + block_mask_bytes(a);
}

static const char *refuses(const Attention *a, bool backward) {
    if (a->seqlen_k > ((int64_t)INT32_MAX >> ENTRY_SHIFT) * KEYS)
        return "the block mask's entries are 32-bit; use a smaller --seqlen-k";
    return refuses_forward(a, backward);
}

const Step flexible_step = {
    .chapter = 8,
    .name = "flexible",
    .idea = "--score-mod, --mask-mod: blocks of keys that nobody sees are never visited",
    .exhibit = false,
    .refuses = refuses,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
    .mods = true,
    .whole_gpu = true,
    .prepare = make_block_mask,
};
