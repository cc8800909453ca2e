// Broken on purpose: prints a variable that got a value in some threads only.
#include "check.h"

__global__ void tell(int n) {
    __shared__ float sum[2];
    if (threadIdx.x == 0 && n > 3) sum[0] = 1.0f;
    __syncthreads();
    printf("%d %.1f\n", threadIdx.x, sum[threadIdx.x]);
}

int main() {
    tell<<<1, 2>>>(4);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
