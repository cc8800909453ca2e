// Broken: each thread reads what a thread of another warp wrote, without a barrier in between. With
// the usual order of warps the result is right.
#include "check.h"

__global__ void shift(float *to) {
    __shared__ float row[128];
    const int t = threadIdx.x;
    row[t] = (float)t;
    to[t] = row[t >= 32 ? t - 32 : t];
}

int main() {
    float *to;
    CUDA(cudaMalloc(&to, 128 * sizeof(float)));
    shift<<<1, 128>>>(to);
    CUDA(cudaDeviceSynchronize());
    return 0;
}
