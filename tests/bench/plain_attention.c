// The yardstick of `make bench-softgpu`: the attention that chapter 1 computes, as plain C on one
// core, compiled with -O3. Two matrix products and a softmax, loops ordered for the vectoriser.
//
// usage: plain_attention BATCH HEADS SEQLEN HEAD_DIM      prints the CPU seconds of the best of three
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); // other programs don't count
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// o = softmax(q kᵀ / sqrt(head_dim)) v for one head; all (seqlen, head_dim), row-major.
static void attention(const float *q, const float *k_transposed, const float *v, float *o,
                      float *scores, int seqlen, int head_dim) {
    float scale = 1.0f / sqrtf((float)head_dim);
    for (int i = 0; i < seqlen; i++) {
        for (int j = 0; j < seqlen; j++) scores[j] = 0;
        for (int d = 0; d < head_dim; d++) {
            float x = q[i * head_dim + d] * scale;
            for (int j = 0; j < seqlen; j++) scores[j] += x * k_transposed[d * seqlen + j];
        }
        float row_max = -INFINITY;
        for (int j = 0; j < seqlen; j++) row_max = scores[j] > row_max ? scores[j] : row_max;
        float row_sum = 0;
        for (int j = 0; j < seqlen; j++) {
            scores[j] = expf(scores[j] - row_max);
            row_sum += scores[j];
        }
        for (int d = 0; d < head_dim; d++) o[i * head_dim + d] = 0;
        for (int j = 0; j < seqlen; j++) {
            float p = scores[j] / row_sum;
            for (int d = 0; d < head_dim; d++) o[i * head_dim + d] += p * v[j * head_dim + d];
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: %s BATCH HEADS SEQLEN HEAD_DIM\n", argv[0]);
        return 2;
    }
    int heads = atoi(argv[1]) * atoi(argv[2]), seqlen = atoi(argv[3]), head_dim = atoi(argv[4]);
    if (heads <= 0 || seqlen <= 0 || head_dim <= 0) {
        fprintf(stderr, "%s: sizes must be positive\n", argv[0]);
        return 2;
    }
    size_t n = (size_t)seqlen * (size_t)head_dim;
    float *q = malloc(n * sizeof *q), *k = malloc(n * sizeof *k), *v = malloc(n * sizeof *v);
    float *o = malloc(n * sizeof *o), *scores = malloc((size_t)seqlen * sizeof *scores);
    if (!q || !k || !v || !o || !scores) {
        fprintf(stderr, "%s: out of memory\n", argv[0]);
        return 2;
    }
    for (size_t i = 0; i < n; i++) {
        q[i] = (float)((i * 7919) % 2001) / 1000 - 1;
        k[i] = (float)((i * 104729) % 2003) / 1000 - 1;
        v[i] = (float)((i * 1299709) % 2011) / 1000 - 1;
    }
    double best = INFINITY;
    for (int run = 0; run < 3; run++) {
        double begin = now();
        for (int h = 0; h < heads; h++) attention(q, k, v, o, scores, seqlen, head_dim);
        double seconds = now() - begin;
        best = seconds < best ? seconds : best;
    }
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += o[i];
    fprintf(stderr, "checksum %.6f\n", sum);
    printf("%.6f\n", best);
    free(q), free(k), free(v), free(o), free(scores);
    return 0;
}
