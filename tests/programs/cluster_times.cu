// What a timed run must get right at the begins and ends of blocks. usage: cluster_times starts |
// stores | few; test_programs.c says what is asked of each.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { CLUSTERS = 100, SPIN = 20000, STORE = 64 * 1024, BLOCKS = 50 };

__device__ static long long now() {
    long long cycles;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
    return cycles;
}

// Rank 0 of each cluster keeps its SM busy for long, rank 1 ends at once. One block fits on an SM, so
// later clusters find one SM free early and the other late.
__global__ void __cluster_dims__(2, 1, 1) begin_together(long long *begins) {
    const long long begin = now();
    if (threadIdx.x == 0) begins[blockIdx.x] = begin;
    while (blockIdx.x % 2 == 0 && now() < begin + SPIN) continue;
}

// Stores its shared memory and ends as soon as that has been read.
__global__ void store_and_end(uint8_t *out) {
    extern __shared__ __align__(128) uint8_t smem[];
    for (int k = threadIdx.x; k < STORE / 4; k += blockDim.x) ((unsigned *)smem)[k] = k;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x != 0) return;
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
                 "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::"l"(
                     out + (size_t)blockIdx.x * STORE),
                 "r"((unsigned)__cvta_generic_to_shared(smem)), "r"(STORE)
                 : "memory");
}

__global__ void spin() {
    const long long begin = now();
    while (now() < begin + SPIN) continue;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "starts") == 0) {
        static long long begins[2 * CLUSTERS];
        long long *device, most = 0;
        CUDA(cudaMalloc((void **)&device, sizeof begins));
        CUDA(cudaFuncSetAttribute(begin_together, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  120 * 1024));
        begin_together<<<2 * CLUSTERS, 32, 120 * 1024>>>(device);
        CUDA(cudaMemcpy(begins, device, sizeof begins, cudaMemcpyDeviceToHost));
        for (int k = 0; k < CLUSTERS; k++) {
            const long long apart = llabs(begins[2 * k] - begins[2 * k + 1]);
            if (apart > most) most = apart;
        }
        printf("the blocks of a cluster begin %lld cycles apart at most\n", most);
        return most > 100;
    }
    if (strcmp(what, "stores") == 0) {
        uint8_t *device;
        CUDA(cudaMalloc((void **)&device, (size_t)BLOCKS * STORE));
        CUDA(cudaFuncSetAttribute(store_and_end, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  STORE));
        store_and_end<<<BLOCKS, 256, STORE>>>(device);
        CUDA(cudaDeviceSynchronize());
        return 0;
    }
    spin<<<4, 32>>>();
    CUDA(cudaDeviceSynchronize());
    return 0;
}
