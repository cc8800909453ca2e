// Broken on purpose: block 0 waits for a flag that block 1 sets only after block 0 has answered.
#include "check.h"

__global__ void wait(volatile int *flag) {
    if (threadIdx.x == 0) {
        int other = 1 - blockIdx.x;
        while (flag[other] == 0) {
        }
        flag[blockIdx.x] = 1;
    }
}

int main() {
    int *flag;
    CUDA(cudaMalloc(&flag, 2 * sizeof(int)));
    CUDA(cudaMemset(flag, 0, 2 * sizeof(int)));
    wait<<<2, 32>>>(flag);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
