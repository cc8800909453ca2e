// Broken: a tile that begins where it happens to.
#include <cudaTypedefs.h>

#include "tma_map.h"

#include "device/proxy.h"
#include "device/tma.h"

__global__ void load(const __grid_constant__ CUtensorMap map) {
    __shared__ __align__(128) char memory[4096];
    float *tile_smem = (float *)(memory + 32);
    __shared__ uint64_t full;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect(&full, 16 * 32 * 4);
        tma_load_2d(tile_smem, &map, &full, 0, 0);
        mbarrier_wait(&full, 0);
    }
}

int main() {
    float *from;
    CUDA(cudaMallocManaged(&from, 64 * 64 * sizeof(float)));
    CUtensorMap map = matrix_map(from, 64, 64, 16, 32, CU_TENSOR_MAP_SWIZZLE_NONE);
    load<<<1, 32>>>(map);
    cudaDeviceSynchronize();
}
