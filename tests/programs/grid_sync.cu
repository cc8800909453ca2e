// A cooperative launch: a prefix sum over a grid in two phases, with grid.sync() between.
#include <cooperative_groups.h>

#include "check.h"

namespace cg = cooperative_groups;

__global__ void prefix(int *x, int *sums) {
    cg::grid_group grid = cg::this_grid();
    __shared__ int item[128];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    item[t] = x[i];
    __syncthreads();
    for (int offset = 1; offset < (int)blockDim.x; offset *= 2) {
        int add = t >= offset ? item[t - offset] : 0;
        __syncthreads();
        item[t] += add;
        __syncthreads();
    }
    if (t == (int)blockDim.x - 1) sums[blockIdx.x] = item[t];
    grid.sync();
    int before = 0;
    for (int b = 0; b < (int)blockIdx.x; b++) before += sums[b];
    x[i] = item[t] + before;
    grid.sync();
    if (grid.thread_rank() == 0) sums[0] = -1;
}

int main() {
    const int threads = 128;
    int blocks_per_sm = 0, sms = 0, cooperative = 0;
    CUDA(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, 0));
    CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, prefix, threads, 0));
    EXPECT(cooperative == 1 && blocks_per_sm > 0 && sms > 0);
    int blocks = 40, n = blocks * threads;
    int *x, *sums, *host = (int *)malloc(n * sizeof(int));
    for (int i = 0; i < n; i++) host[i] = i % 5;
    CUDA(cudaMalloc(&x, n * sizeof(int)));
    CUDA(cudaMalloc(&sums, blocks * sizeof(int)));
    CUDA(cudaMemcpy(x, host, n * sizeof(int), cudaMemcpyHostToDevice));
    void *arguments[] = {&x, &sums};
    CUDA(cudaLaunchCooperativeKernel((void *)prefix, blocks, threads, arguments, 0, 0));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(host, x, n * sizeof(int), cudaMemcpyDeviceToHost));
    int expected = 0;
    for (int i = 0; i < n; i++) {
        expected += i % 5;
        EXPECT(host[i] == expected);
    }
    // More blocks than fit at once: refused, and nothing breaks.
    cudaError_t error = cudaLaunchCooperativeKernel((void *)prefix, blocks_per_sm * sms + 1,
                                                    threads, arguments, 0, 0);
    EXPECT(error == cudaErrorCooperativeLaunchTooLarge);
    EXPECT(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge);
    printf("grid sync ok\n");
    return 0;
}
