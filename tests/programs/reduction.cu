// A sum of a million numbers: warp shuffles, then shared memory, then one atomic per block.
#include "check.h"

__global__ void sum(const float *x, int n, float *total) {
    __shared__ float warps[32];
    float mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        mine += x[i];
    for (int offset = 16; offset > 0; offset /= 2)
        mine += __shfl_down_sync(0xffffffff, mine, offset);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x < 32) {
        mine = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0;
        for (int offset = 16; offset > 0; offset /= 2)
            mine += __shfl_down_sync(0xffffffff, mine, offset);
        if (threadIdx.x == 0) atomicAdd(total, mine);
    }
}

int main() {
    const int n = 1 << 20;
    float *host = (float *)malloc(n * sizeof(float)), *x, *total, answer;
    double expected = 0;
    for (int i = 0; i < n; i++) {
        host[i] = (float)(i % 7);
        expected += host[i];
    }
    CUDA(cudaMalloc(&x, n * sizeof(float)));
    CUDA(cudaMalloc(&total, sizeof(float)));
    CUDA(cudaMemcpy(x, host, n * sizeof(float), cudaMemcpyHostToDevice));
    CUDA(cudaMemset(total, 0, sizeof(float)));
    sum<<<64, 256>>>(x, n, total);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(&answer, total, sizeof(float), cudaMemcpyDeviceToHost));
    printf("sum %.0f, expected %.0f\n", answer, expected);
    EXPECT(answer == expected); // whole numbers below 2^24: exact in any order
    CUDA(cudaFree(x));
    CUDA(cudaFree(total));
    return 0;
}
