// Broken on purpose: the last block writes past the end. softgpu must say where (exit status 99).
#include "check.h"

__global__ void fill(int *x) {
    x[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

int main() {
    int *x;
    CUDA(cudaMalloc(&x, 1000 * sizeof(int)));
    fill<<<4, 256>>>(x); // 1024 threads, 1000 elements
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
