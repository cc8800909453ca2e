// Broken on purpose, the README's example: each block of 256 threads sums a row of 200 numbers.
#include "check.h"

__global__ void row_sums(const float *x, float *sums, int columns) {
    __shared__ float part[256];
    part[threadIdx.x] = x[blockIdx.x * columns + threadIdx.x];
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

int main() {
    const int rows = 64, columns = 200;
    float *x, *sums;
    CUDA(cudaMalloc(&x, rows * columns * sizeof(float)));
    CUDA(cudaMalloc(&sums, rows * sizeof(float)));
    CUDA(cudaMemset(x, 0, rows * columns * sizeof(float)));
    row_sums<<<rows, 256>>>(x, sums, columns);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
