// From the options and a chapter's defaults to a problem.
#include <math.h>
#include <string.h>

#include "harness/cache.h"

enum { FEWEST_SAMPLED = 4 }; // SMs of --sample auto

static int64_t given_or(int64_t given, int64_t otherwise) {
    return given != NOT_GIVEN ? given : otherwise;
}

// Has the chapter kernels for this head_dim? NULL: for all.
static bool is_offered(const Chapter *chapter, int head_dim) {
    const int *offered = chapter->head_dims;
    for (; offered != NULL && *offered != 0; offered++)
        if (*offered == head_dim) return true;
    return chapter->head_dims == NULL;
}

// Chooses the built variant that holds head_dim, or says which command builds one.
static bool choose_variant(const Chapter *chapter, int64_t head_dim, const int *built, int *variant,
                           Message *message) {
    static const int tiles[] = {64, 96, 128, 192, 256};
    if (head_dim > 256 || head_dim % 8 != 0) {
        return refuse(message, "--head-dim %lld: give a multiple of 8 up to 256",
                      (long long)head_dim);
    }
    for (int i = 0; built[i] != 0; i++) {
        if (built[i] < head_dim || !is_offered(chapter, built[i])) continue;
        *variant = built[i];
        return true;
    }
    char list[64] = "";
    for (int i = 0; built[i] != 0; i++) {
        snprintf(list + strlen(list), sizeof list - strlen(list), "%d ", built[i]);
    }
    int wanted = 0, largest = 0;
    for (int t = 4; t >= 0; t--) {
        if (!is_offered(chapter, tiles[t])) continue;
        if (largest == 0) largest = tiles[t];
        if (tiles[t] >= head_dim) wanted = tiles[t];
    }
    if (wanted == 0) {
        return refuse(message, "--head-dim %lld: chapter %d's kernels go up to %d",
                      (long long)head_dim, chapter->number, largest);
    }
    return refuse(message, "--head-dim %lld: not built; make chapter-%d HEAD_DIMS=\"%s%d\"",
                  (long long)head_dim, chapter->number, list, wanted);
}

bool problem_make(const Options *o, const Chapter *chapter, const DefaultProblem *base,
                  const int *built, Problem *p, Message *message) {
    int64_t heads = given_or(o->heads, base->heads);
    // A number of heads without one of K/V heads: as many of these.
    int64_t kv_heads = given_or(o->kv_heads, o->heads != NOT_GIVEN ? heads : base->kv_heads);
    int64_t head_dim = given_or(o->head_dim, base->head_dim);
    *p = (Problem){.dtype = o->dtype != NOT_GIVEN ? (Dtype)o->dtype : base->dtype,
                   .batch = (int)given_or(o->batch, base->batch),
                   .heads = (int)heads,
                   .kv_heads = (int)kv_heads,
                   .seqlen_q = given_or(o->seqlen_q, base->seqlen_q),
                   .seqlen_k = given_or(o->seqlen_k, base->seqlen_k),
                   .head_dim = (int)head_dim,
                   .window_left = o->window_left,
                   .window_right = o->window_right,
                   .causal = o->causal || base->causal,
                   .deterministic = o->deterministic,
                   .softcap = (float)o->softcap,
                   .score_mod = o->score_mod,
                   .score_number = o->score_number,
                   .mask_mod = o->mask_mod,
                   .mask_number = o->mask_number,
                   .seed = o->seed,
                   .has_sink = o->sink,
                   .cu_seqlens_q = o->cu_seqlens_q,
                   .cu_seqlens_k = o->cu_seqlens_k};
    if (heads % kv_heads != 0) {
        return refuse(message,
                      "--heads %lld --kv-heads %lld: the query heads must be a multiple of "
                      "the K/V heads",
                      (long long)heads, (long long)kv_heads);
    }
    if (!choose_variant(chapter, head_dim, built, &p->built_head_dim, message)) return false;
    if (p->dtype == DTYPE_FP8 && chapter->number < 6) {
        return refuse(message,
                      "--dtype fp8: chapters 6 and 7 compute in fp8, of bf16 inputs; here fp16, "
                      "bf16%s",
                      chapter->number <= 3 ? ", fp32" : "");
    }
    p->fp8 = p->dtype == DTYPE_FP8;
    if (p->fp8) p->dtype = DTYPE_BF16;
    if (p->causal) p->window_right = 0;
    p->scale = isnan(o->scale) ? (float)(1 / sqrt((double)head_dim)) : (float)o->scale;
    if (!isfinite(p->scale)) return refuse(message, "--scale: beyond float's range");
    // Any size option makes the problem the person's own, and then all of it is simulated.
    p->sample = o->sample == SAMPLE_AUTO ? FEWEST_SAMPLED : o->sample != NOT_GIVEN ? o->sample : 0;
    if (o->sample == NOT_GIVEN && !options_size_given(o) && o->input == NULL) {
        p->sample = base->sample;
    }
    // What the host holds beside the device's copy: more than 2^44 bytes fits no machine.
    double elements = (double)p->batch * p->built_head_dim *
                      ((double)p->heads * (double)p->seqlen_q * 2 +
                       (double)p->kv_heads * (double)p->seqlen_k * 2);
    if (elements > 0x1p41 || (double)p->batch * p->heads * (double)p->seqlen_q > 0x1p40) {
        return refuse(message, "the problem has %.3g elements: too many for any memory", elements);
    }
    return cache_make(o, p, message);
}
