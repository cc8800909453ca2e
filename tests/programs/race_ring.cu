// A ring of two stages: one warp has rows copied into them (bulk copies), the other adds them up.
// Right, unless it is called with an argument: then the consumer gives a stage back before it has
// read it.
#include "check.h"

#include "device/mbarrier.h"
#include "device/proxy.h"
#include "device/tma.h"

enum { STAGES = 2, ROWS = 8, COLUMNS = 32 };

__global__ void column_sums(const float *from, float *to, bool early) {
    __shared__ __align__(128) float stage_smem[STAGES][COLUMNS];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            mbarrier_init(&full[s], 1);
            mbarrier_init(&empty[s], COLUMNS);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x >= COLUMNS) {
        if (threadIdx.x != COLUMNS) return;
        for (int row = 0; row < ROWS; row++) {
            const int s = row % STAGES, use = row / STAGES;
            mbarrier_wait(&empty[s], (use & 1) ^ 1);
            mbarrier_arrive_expect(&full[s], COLUMNS * sizeof(float));
            bulk_load(stage_smem[s], from + row * COLUMNS, COLUMNS * sizeof(float), &full[s]);
        }
        return;
    }
    float sum = 0;
    for (int row = 0; row < ROWS; row++) {
        const int s = row % STAGES, use = row / STAGES;
        mbarrier_wait(&full[s], use & 1);
        if (early) mbarrier_arrive(&empty[s]);
        sum += *(volatile float *)&stage_smem[s][threadIdx.x];
        fence_proxy_async(); // the next copy must not overtake this read
        if (!early) mbarrier_arrive(&empty[s]);
    }
    to[threadIdx.x] = sum;
}

int main(int argc, char **) {
    float *from, *to;
    CUDA(cudaMallocManaged(&from, ROWS * COLUMNS * sizeof(float)));
    CUDA(cudaMallocManaged(&to, COLUMNS * sizeof(float)));
    for (int k = 0; k < ROWS * COLUMNS; k++) from[k] = (float)k;
    column_sums<<<1, 2 * COLUMNS>>>(from, to, argc > 1);
    CUDA(cudaDeviceSynchronize());
    for (int c = 0; c < COLUMNS && argc == 1; c++)
        EXPECT(to[c] == ROWS * c + COLUMNS * ROWS * (ROWS - 1) / 2);
    return 0;
}
