// Broken: what threads wrote with ordinary stores goes out by TMA, without fence.proxy.async.
#include <cudaTypedefs.h>

#include "tma_map.h"

#include "device/tma.h"

__global__ void put(float *to) {
    __shared__ __align__(128) float tile_smem[64];
    tile_smem[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(to),
                     "r"(shared_address(tile_smem))
                     : "memory");
        tma_commit();
        tma_wait_read<0>();
    }
}

int main() {
    float *to;
    CUDA(cudaMalloc(&to, 64 * sizeof(float)));
    put<<<1, 64>>>(to);
    cudaDeviceSynchronize();
}
