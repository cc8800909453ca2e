// Broken on purpose: the sum takes in a word of shared memory that nothing wrote.
#include "check.h"

__global__ void neighbours(const int *x, int *y) {
    __shared__ int tile[257]; // the last word is for the next block's first element
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    int next = tile[threadIdx.x + 1];
    y[threadIdx.x] = tile[threadIdx.x] + next;
}

int main() {
    int *x, *y;
    CUDA(cudaMalloc(&x, 256 * sizeof(int)));
    CUDA(cudaMalloc(&y, 256 * sizeof(int)));
    CUDA(cudaMemset(x, 1, 256 * sizeof(int)));
    neighbours<<<1, 256>>>(x, y);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
