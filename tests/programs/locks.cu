// A spin lock that the lanes of a warp, warps and blocks contend for. The lane that has the lock stands
// behind the wait loop, where the others of its warp would meet it: it must not wait for them.
#include "check.h"

__device__ int lock, counter;

__global__ void count(int turns) {
    for (int k = 0; k < turns; k++) {
        while (atomicCAS(&lock, 0, 1) != 0) continue;
        __threadfence();
        counter++;
        __threadfence();
        atomicExch(&lock, 0);
    }
}

int main(void) {
    const int blocks = 2, threads = 32, turns = 2;
    int counted;
    count<<<blocks, threads>>>(turns);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpyFromSymbol(&counted, counter, sizeof counted));
    EXPECT(counted == blocks * threads * turns);
    printf("each thread had the lock %d times\n", turns);
    return 0;
}
