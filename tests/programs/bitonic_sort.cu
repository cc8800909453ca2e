// A bitonic sort: blocks sort in dynamic shared memory, then merge steps over global memory.
#include "check.h"

const int block_items = 1024;

__device__ void order(int &a, int &b, bool ascending) {
    if ((a > b) == ascending) {
        int t = a;
        a = b;
        b = t;
    }
}

__global__ void sort_blocks(int *x) {
    extern __shared__ int item[];
    int base = blockIdx.x * block_items;
    for (int i = threadIdx.x; i < block_items; i += blockDim.x) item[i] = x[base + i];
    for (int size = 2; size <= block_items; size *= 2) {
        for (int stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            int i = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
            order(item[i], item[i + stride], ((base + i) & size) == 0);
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < block_items; i += blockDim.x) x[base + i] = item[i];
}

__global__ void merge(int *x, int size, int stride) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int i = 2 * t - (t & (stride - 1));
    order(x[i], x[i + stride], (i & size) == 0);
}

int main() {
    const int n = 8 * block_items;
    static int host[n];
    unsigned state = 7;
    long long before = 0, after = 0;
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        host[i] = (int)state;
        before += host[i];
    }
    int *x;
    CUDA(cudaMalloc(&x, sizeof host));
    CUDA(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    sort_blocks<<<n / block_items, block_items / 2, block_items * sizeof(int)>>>(x);
    for (int size = 2 * block_items; size <= n; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2)
            merge<<<n / 512, 256>>>(x, size, stride);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        after += host[i];
        EXPECT(i == 0 || host[i - 1] <= host[i]);
    }
    EXPECT(before == after);
    printf("%d items sorted\n", n);
    return 0;
}
