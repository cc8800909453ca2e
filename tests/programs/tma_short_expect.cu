// Broken: the barrier is told of the elements, not of the bytes.
#include <cudaTypedefs.h>

#include "tma_map.h"

#include "device/proxy.h"
#include "device/tma.h"

__global__ void first_row(const __grid_constant__ CUtensorMap map, float *to) {
    __shared__ __align__(128) float tile_smem[16][32];
    __shared__ uint64_t full;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect(&full, 16 * 32);
        tma_load_2d(tile_smem, &map, &full, 0, 0);
    }
    mbarrier_wait(&full, 0);
    to[threadIdx.x] = tile_smem[0][threadIdx.x];
}

int main() {
    float *from, *to;
    CUDA(cudaMallocManaged(&from, 64 * 64 * sizeof(float)));
    CUDA(cudaMallocManaged(&to, 32 * sizeof(float)));
    CUtensorMap map = matrix_map(from, 64, 64, 16, 32, CU_TENSOR_MAP_SWIZZLE_NONE);
    first_row<<<1, 32>>>(map, to);
    cudaDeviceSynchronize();
}
