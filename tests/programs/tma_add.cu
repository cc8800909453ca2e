// TMA as kernels use it: a tile comes with its swizzle, threads change it, and it goes out again;
// a ring of tiles, stores that overlap the next loads, sums by bulk reductions, and multicast.
#include <cudaTypedefs.h>

#include "tma_map.h"

#include "device/proxy.h"
#include "device/tma.h"

enum { ROWS = 203, COLUMNS = 100, TILE_ROWS = 64, TILE_COLUMNS = 32, THREADS = 128, STAGES = 2 };
static const uint32_t TILE_BYTES = TILE_ROWS * TILE_COLUMNS * 4;

// Tiles of 32 columns in a row of blocks; each block goes down its column, two tiles ahead.
__global__ void add_one(const __grid_constant__ CUtensorMap from,
                        const __grid_constant__ CUtensorMap to, float *sums) {
    __shared__ __align__(1024) float tile_smem[STAGES][TILE_ROWS][TILE_COLUMNS];
    __shared__ __align__(16) float sum_smem[TILE_COLUMNS];
    __shared__ uint64_t full[STAGES];
    const int tiles = (ROWS + TILE_ROWS - 1) / TILE_ROWS, column = blockIdx.x * TILE_COLUMNS;
    const bool leader = threadIdx.x == 0;
    if (leader) {
        tma_prefetch_map(&from);
        for (int s = 0; s < STAGES; s++) mbarrier_init(&full[s], 1);
        fence_mbarrier_init();
    }
    if (threadIdx.x < TILE_COLUMNS) sum_smem[threadIdx.x] = 0;
    __syncthreads();
    const auto load = [&](int tile) {
        mbarrier_arrive_expect(&full[tile % STAGES], TILE_BYTES);
        tma_load_2d(tile_smem[tile % STAGES], &from, &full[tile % STAGES], column,
                    tile * TILE_ROWS);
    };
    if (leader) load(0);
    for (int tile = 0; tile < tiles; tile++) {
        const int stage = tile % STAGES;
        if (leader && tile + 1 < tiles) {
            tma_wait_read<0>(); // the store of the tile before the last has left this stage
            load(tile + 1);
        }
        mbarrier_wait(&full[stage], tile / STAGES % 2);
        for (int k = threadIdx.x; k < TILE_ROWS * TILE_COLUMNS; k += THREADS) {
            const int r = k / TILE_COLUMNS, c = k % TILE_COLUMNS;
            float *element = &tile_smem[stage][r][4 * (c / 4 ^ r % 8) + c % 4]; // 128-byte swizzle
            atomicAdd(&sum_smem[c], *element);
            *element += 1;
        }
        fence_proxy_async();
        __syncthreads();
        if (leader) {
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group "
                         "[%0, {%2, %3}], [%1];" ::"l"(&to),
                         "r"(shared_address(tile_smem[stage])), "r"(column), "r"(tile * TILE_ROWS)
                         : "memory");
            tma_commit();
        }
    }
    if (leader) {
        bulk_add_fp32(sums + column, sum_smem, TILE_COLUMNS * 4);
        tma_commit();
        tma_wait_written<0>();
    }
}

// Each of the two blocks of a cluster fetches half of a tile for both.
__global__ void __cluster_dims__(2, 1, 1)
    share_tiles(const __grid_constant__ CUtensorMap halves, float *to) {
    __shared__ __align__(1024) float tile_smem[TILE_ROWS][TILE_COLUMNS];
    __shared__ uint64_t full;
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init();
    }
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect(&full, TILE_BYTES);
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile."
                     "mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], "
                     "%5;" ::"r"(shared_address(tile_smem[rank * TILE_ROWS / 2])),
                     "l"(&halves), "r"(shared_address(&full)), "r"(0), "r"(rank * TILE_ROWS / 2),
                     "h"((uint16_t)3)
                     : "memory");
    }
    mbarrier_wait(&full, 0);
    for (int k = threadIdx.x; k < TILE_ROWS * TILE_COLUMNS; k += THREADS)
        to[rank * TILE_ROWS * TILE_COLUMNS + k] = (&tile_smem[0][0])[k];
    // Nobody leaves while the other half may still be on its way here; each has waited for both.
}

int main() {
    float *from, *to, *sums, *tiles;
    const size_t count = ROWS * COLUMNS, tile = TILE_ROWS * TILE_COLUMNS;
    CUDA(cudaMallocManaged(&from, count * sizeof(float)));
    CUDA(cudaMallocManaged(&to, count * sizeof(float)));
    CUDA(cudaMallocManaged(&sums, 4 * TILE_COLUMNS * sizeof(float)));
    CUDA(cudaMallocManaged(&tiles, 2 * tile * sizeof(float)));
    for (size_t k = 0; k < count; k++) from[k] = (float)(k % 251);
    CUtensorMap from_map =
        matrix_map(from, ROWS, COLUMNS, TILE_ROWS, TILE_COLUMNS, CU_TENSOR_MAP_SWIZZLE_128B);
    CUtensorMap to_map =
        matrix_map(to, ROWS, COLUMNS, TILE_ROWS, TILE_COLUMNS, CU_TENSOR_MAP_SWIZZLE_128B);
    CUtensorMap half_map =
        matrix_map(from, ROWS, COLUMNS, TILE_ROWS / 2, TILE_COLUMNS, CU_TENSOR_MAP_SWIZZLE_NONE);
    for (int run = 0; run < 2; run++) {
        add_one<<<4, THREADS>>>(from_map, to_map, sums);
        share_tiles<<<2, THREADS>>>(half_map, tiles);
        CUDA(cudaDeviceSynchronize());
    }
    for (int c = 0; c < COLUMNS; c++) {
        float sum = 0;
        for (int r = 0; r < ROWS; r++) {
            EXPECT(to[r * COLUMNS + c] == from[r * COLUMNS + c] + 1);
            sum += from[r * COLUMNS + c];
        }
        EXPECT(sums[c] == 2 * sum);
    }
    for (size_t k = 0; k < 2 * tile; k++)
        EXPECT(tiles[k] == from[k % tile / TILE_COLUMNS * COLUMNS + k % TILE_COLUMNS]);
    printf("right\n");
}
