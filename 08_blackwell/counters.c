// What lazy-rescale and the block mask have skipped, for ./run's remarks.
#include "counters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say_rescales(const Step *step, const Attention *a, char *sentence, size_t size) {
    Counters counters;
    if (step->chapter != 8 || step->exhibit || step->backward != NULL)
        return; // of another chapter; meant to be wrong; with another step's forward
    if (step->forward_workspace(a) <= sizeof counters)
        return; // it counts nothing, or had no query rows
    if (cudaMemcpy(&counters, a->workspace, sizeof counters, cudaMemcpyDeviceToHost) != cudaSuccess)
        return;
    const size_t warps = (size_t)counters.blocks * COUNTING_WARPS;
    WarpCount *counts = calloc(warps, sizeof *counts);
    if (counts == NULL) return;
    uint64_t decisions = 0, rescales = 0;
    if (cudaMemcpy(counts, (const Counters *)a->workspace + 1, warps * sizeof *counts,
                   cudaMemcpyDeviceToHost) == cudaSuccess)
        for (size_t w = 0; w < warps; w++) {
            decisions += counts[w].decisions;
            rescales += counts[w].rescales;
        }
    free(counts);
    if (decisions > 0)
        snprintf(sentence, size, "rescaled O %llu times of %llu (32 rows each): %.1f%% skipped",
                 (unsigned long long)rescales, (unsigned long long)decisions,
                 100 - 100. * (double)rescales / (double)decisions);
}

// Nothing where every block is full: there is no mask.
static void say_blocks(const Attention *a, char *sentence, size_t size) {
    BlockCounts counts;
    if (count_block_mask(a, &counts) != cudaSuccess || counts.blocks == 0) return;
    if (counts.visited == counts.blocks && counts.partial == 0) return;
    snprintf(sentence, size,
             "visits %lld of %lld blocks of 256 rows × 128 keys (%.1f%%), asks the mask again in "
             "%lld of them",
             (long long)counts.visited, (long long)counts.blocks,
             100. * (double)counts.visited / (double)counts.blocks, (long long)counts.partial);
}

void say_counts(const Step *step, const Attention *a, char *sentence, size_t size) {
    char rescales[160] = "";
    sentence[0] = 0; // an earlier launch may have left one
    if (step->prepare != NULL) say_blocks(a, sentence, size);
    say_rescales(step, a, rescales, sizeof rescales);
    const size_t length = strlen(sentence);
    snprintf(sentence + length, size - length, "%s%s", length > 0 && rescales[0] != 0 ? "; " : "",
             rescales);
}
