// Broken: the map is a copy in local memory, for want of __grid_constant__.
#include <cudaTypedefs.h>

#include "tma_map.h"

#include "device/proxy.h"
#include "device/tma.h"

__global__ void load(CUtensorMap map, int row) {
    __shared__ __align__(128) float tile_smem[16][32];
    __shared__ uint64_t full;
    if (row < 0) map.opaque[0] = 1;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect(&full, 16 * 32 * 4);
        tma_load_2d(tile_smem, &map, &full, 0, row);
        mbarrier_wait(&full, 0);
    }
}

int main() {
    float *from;
    CUDA(cudaMallocManaged(&from, 64 * 64 * sizeof(float)));
    CUtensorMap map = matrix_map(from, 64, 64, 16, 32, CU_TENSOR_MAP_SWIZZLE_NONE);
    load<<<1, 32>>>(map, 0);
    cudaDeviceSynchronize();
}
