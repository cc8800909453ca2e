// Chapter 9, step cluster-combine: the second kernel costs its launch, and the way of the
// partial results through memory. On Hopper the splits of a tile can be a cluster, whose blocks
// read each other's shared memory: they merge their parts themselves. A cluster has 16 blocks
// at most, and so has a tile splits.
#include "cluster_combine.h"

#define DECODE_KERNEL cluster_combine
#define PAGED         true
#define CLUSTER       1
#define CACHE_FP8     0
#include "decode.h"

#include "append.h"

static Plan plan_of(const Attention *a) {
    return make_plan(a, true, splits_chosen(a, MAX_CLUSTER));
}

// Has the GPU room for clusters of so many blocks? NULL: yes; else what to do.
static const char *refuses_clusters(const Attention *a) {
    static char sentence[160];
    Plan plan = plan_of(a);
    const int asked = plan.splits;
    while (plan.splits > 0 && clusters_at_once(a, plan) == 0) plan.splits--;
    if (plan.splits == asked) return NULL;
    snprintf(sentence, sizeof sentence,
             "%d splits are a cluster of %d thread blocks, and no GPC of this GPU has room for it; "
             "use --splits up to %d, or another step",
             asked, asked, plan.splits);
    return sentence;
}

static const char *refuses(const Attention *a, bool backward) {
    if (a->kv_dtype != a->dtype)
        return "this step multiplies keys and values as they stand in the cache; use step paged-kv "
               "for "
               "--fp8-cache";
    if (a->splits > MAX_CLUSTER)
        return "a cluster has 16 thread blocks at most; use --splits up to 16, or another step";
    const char *refusal = refuses_paged(a, backward);
    return refusal != NULL ? refusal : refuses_clusters(a);
}

static size_t forward_workspace(const Attention *) {
    return 0;
}

static cudaError_t forward(const Attention *a) {
    const cudaError_t error = launch_append(a);
    return error == cudaSuccess ? decode(a, plan_of(a)) : error;
}

const Step cluster_combine_step = {
    .chapter = 9,
    .name = "cluster-combine",
    .idea = "the splits of a tile are a cluster, and merge their parts through shared memory",
    .exhibit = false,
    .refuses = refuses,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
    .varlen = false,
    .sinks = true,
    .cache = true,
    .page_size = 16,
};
