// Broken on purpose: half of a warp waits at one __syncthreads and half at another.
#include "check.h"

__global__ void divide(int *x) {
    if (threadIdx.x < 16) {
        x[threadIdx.x] = 1;
        __syncthreads();
        x[threadIdx.x] += x[31 - threadIdx.x];
    } else {
        x[threadIdx.x] = 2;
        __syncthreads();
        x[threadIdx.x] *= 3;
    }
}

int main() {
    int *x;
    CUDA(cudaMalloc(&x, 64 * sizeof(int)));
    divide<<<1, 64>>>(x);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
