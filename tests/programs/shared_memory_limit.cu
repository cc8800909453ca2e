// Static and dynamic shared memory count together: 1 KB of its own and 48,840 bytes at launch are
// more than the 48 KB that come without asking, though neither is by itself.
#include "check.h"

__global__ void rotate(int *x, int n) {
    __shared__ int turn[256];
    extern __shared__ int item[];
    turn[threadIdx.x] = threadIdx.x + 1;
    for (int i = threadIdx.x; i < n; i += blockDim.x) item[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = item[(i + turn[0]) % n];
}

int main() {
    const int n = 48840 / sizeof(int);
    static int host[n];
    for (int i = 0; i < n; i++) host[i] = i;
    int *x;
    CUDA(cudaMalloc(&x, sizeof host));
    CUDA(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    rotate<<<1, 256, sizeof host>>>(x, n);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    rotate<<<1, 256, 48 * 1024 - 1024>>>(x, 0); // both together 48 KB exactly
    CUDA(cudaGetLastError());
    CUDA(cudaFuncSetAttribute(rotate, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof host));
    rotate<<<1, 256, sizeof host>>>(x, n);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) EXPECT(host[i] == (i + 1) % n);
    return 0;
}
