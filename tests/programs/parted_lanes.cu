// A branch that one lane of a warp takes costs what it does itself, and not what stands behind it once
// more: there the lanes are together again. The same loop with and without such a branch, and with
// lanes that go two ways, timed by the GPU's own clock.
#include "check.h"

enum { TURNS = 64, CHAINS = 4, LENGTH = 32 };
enum Kind { TOGETHER, ONE_LANE, TWO_WAYS };

template <int KIND> __global__ void work(float *out, int *cycles) {
    __shared__ int met[2];
    float x[CHAINS];
    const int lane = threadIdx.x % 32;
    for (int c = 0; c < CHAINS; c++) x[c] = (float)(lane + c);
    if (threadIdx.x < 2) met[threadIdx.x] = 0;
    __syncthreads();
    const long long begin = clock64();
    for (int turn = 0; turn < TURNS; turn++) {
        if (KIND == ONE_LANE) {
            if (lane == 0) atomicAdd(&met[0], 1);
        } else if (KIND == TWO_WAYS) {
            if (lane < 7)
                atomicAdd(&met[0], 1);
            else
                atomicAdd(&met[1], 1);
        }
#pragma unroll
        for (int i = 0; i < LENGTH; i++)
#pragma unroll
            for (int c = 0; c < CHAINS; c++) x[c] = x[c] * 0.5f + 1;
    }
    const long long end = clock64();
    out[threadIdx.x] = x[0] + x[1] + x[2] + x[3];
    if (threadIdx.x == 0) *cycles = (int)(end - begin);
}

template <int KIND> static double cycles_of(void) {
    float *out;
    int *cycles, host;
    CUDA(cudaMalloc(&out, 32 * sizeof *out));
    CUDA(cudaMalloc(&cycles, sizeof *cycles));
    for (int warm = 0; warm < 2; warm++) work<KIND><<<1, 32>>>(out, cycles);
    CUDA(cudaMemcpy(&host, cycles, sizeof host, cudaMemcpyDeviceToHost));
    CUDA(cudaFree(out));
    CUDA(cudaFree(cycles));
    return (double)host / TURNS;
}

int main() {
    const double together = cycles_of<TOGETHER>(), one = cycles_of<ONE_LANE>(),
                 two = cycles_of<TWO_WAYS>();
    printf("a turn: %.0f cycles, with a branch for one lane %.0f, with two ways %.0f\n", together,
           one, two);
    // The 128 multiplications of a turn are the most of it.
    return together < CHAINS * LENGTH || one - together > CHAINS * LENGTH / 2 ||
           two - together > CHAINS * LENGTH;
}
