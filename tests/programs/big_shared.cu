// More than 48 KB of dynamic shared memory: refused until it is asked for; launch attributes;
// device properties.
#include "check.h"

__global__ void __launch_bounds__(256) reverse(int *x, int n) {
    extern __shared__ int item[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) item[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = item[n - 1 - i];
}

int main() {
    const int n = 20000; // 80,000 bytes
    cudaDeviceProp p;
    CUDA(cudaGetDeviceProperties(&p, 0));
    EXPECT(p.warpSize == 32 && p.major >= 8 && p.sharedMemPerBlockOptin >= n * sizeof(int));
    static int host[n];
    for (int i = 0; i < n; i++) host[i] = i;
    int *x;
    CUDA(cudaMalloc(&x, sizeof host));
    CUDA(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    reverse<<<1, 256, sizeof host>>>(x, n);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    reverse<<<1, 512>>>(x, 0); // over the launch bounds
    EXPECT(cudaGetLastError() != cudaSuccess);
    reverse<<<0, 256>>>(x, 0);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    EXPECT(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20) ==
           cudaErrorInvalidValue);
    cudaGetLastError();
    CUDA(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof host));
    cudaFuncAttributes f;
    CUDA(cudaFuncGetAttributes(&f, reverse));
    EXPECT(f.maxDynamicSharedSizeBytes == (int)sizeof host && f.maxThreadsPerBlock == 256);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(256);
    config.dynamicSmemBytes = sizeof host;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributePriority;
    attribute[0].val.priority = 0;
    config.attrs = attribute;
    config.numAttrs = 1;
    CUDA(cudaLaunchKernelEx(&config, reverse, x, n));
    CUDA(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) EXPECT(host[i] == n - 1 - i);
    printf("reversed in %zu bytes of shared memory\n", sizeof host);
    return 0;
}
