// Broken on purpose: waits for all groups but the newest, which is the one that it then reads.
#include "check.h"

#include "../../common/device/cp_async.h"

__global__ void add_one(const float *from, float *to) {
    __shared__ __align__(16) float tile[4 * 128];
    const int t = threadIdx.x;
    cp_async16(&tile[4 * t], &from[4 * t]);
    cp_async_commit();
    cp_async_wait<1>(); // 0 would be right
    __syncthreads();
    for (int k = 0; k < 4; k++) to[t + 128 * k] = tile[t + 128 * k] + 1;
}

int main() {
    float *from, *to;
    CUDA(cudaMalloc(&from, 512 * sizeof(float)));
    CUDA(cudaMalloc(&to, 512 * sizeof(float)));
    CUDA(cudaMemset(from, 0, 512 * sizeof(float)));
    add_one<<<1, 128>>>(from, to);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
