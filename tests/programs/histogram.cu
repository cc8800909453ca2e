// A histogram of bytes: atomics in shared memory, then in global memory.
#include "check.h"

__global__ void histogram(const unsigned char *bytes, int n, unsigned *bins) {
    __shared__ unsigned mine[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) mine[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[bytes[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], mine[i]);
}

int main() {
    const int n = 200000;
    static unsigned char host[n];
    unsigned expected[256] = {}, answer[256];
    unsigned state = 1;
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        host[i] = (state >> 24) & (state >> 16); // far from uniform
        expected[host[i]]++;
    }
    unsigned char *bytes;
    unsigned *bins;
    CUDA(cudaMalloc(&bytes, n));
    CUDA(cudaMalloc(&bins, sizeof answer));
    CUDA(cudaMemcpy(bytes, host, n, cudaMemcpyHostToDevice));
    CUDA(cudaMemset(bins, 0, sizeof answer));
    histogram<<<24, 192>>>(bytes, n, bins);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(answer, bins, sizeof answer, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 256; i++) EXPECT(answer[i] == expected[i]);
    printf("histogram of %d bytes ok\n", n);
    return 0;
}
