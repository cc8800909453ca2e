// A kernel that marks its phases: for each step one warpgroup fills shared memory and the other adds
// it up. For the timeline, and for the machine code: marks leave nothing in it.
#include <cstdio>

#include "device/phase.h"

static const int THREADS = 256, STEPS = 3, BLOCKS = 5;

__global__ void phases(const float *in, float *out) {
    __shared__ float buffer[THREADS / 2];
    const int lane = threadIdx.x % (THREADS / 2);
    const bool fills = threadIdx.x < THREADS / 2;
    float sum = 0;
    for (int step = 0; step < STEPS; step++) {
        if (fills) {
            PHASE("fill");
            buffer[lane] = in[step * THREADS / 2 + lane];
        }
        PHASE("wait");
        __syncthreads();
        if (!fills) {
            PHASE("add");
            for (int k = 0; k < THREADS / 2; k++) sum += buffer[k] * (float)(k + lane);
        }
        PHASE("wait");
        __syncthreads();
    }
    PHASE_END();
    if (!fills) out[blockIdx.x * THREADS / 2 + lane] = sum;
}

int main() {
    float *in, *out, sums[BLOCKS * THREADS / 2];
    const size_t bytes = STEPS * THREADS / 2 * sizeof(float);
    cudaMalloc(&in, bytes);
    cudaMalloc(&out, sizeof sums);
    float ones[STEPS * THREADS / 2];
    for (float &x : ones) x = 1;
    cudaMemcpy(in, ones, bytes, cudaMemcpyHostToDevice);
    for (int launch = 0; launch < 2; launch++) phases<<<BLOCKS, THREADS>>>(in, out);
    cudaError_t error = cudaMemcpy(sums, out, sizeof sums, cudaMemcpyDeviceToHost);
    const int n = THREADS / 2;
    for (int k = 0; k < BLOCKS * n; k++) {
        const int expected = STEPS * (n * (n - 1) / 2 + n * (k % n));
        if (sums[k] == (float)expected) continue;
        printf("sum %d is %g, not %d\n", k, sums[k], expected);
        return 1;
    }
    printf("%s\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}
