// Reads more of shared and local memory than it has filled, and throws the rest away: no finding.
#include "check.h"

// The scan of the warps' sums reads a word for each lane, though there are only eight warps.
__global__ void scan(const int *x, int *y) {
    __shared__ int sums[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = x[threadIdx.x];
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        int total = sums[lane];
        for (int d = 1; d < 32; d *= 2) {
            int other = __shfl_up_sync(~0u, total, d);
            if (lane >= d) total += other;
        }
        sums[lane] = total;
    }
    __syncthreads();
    y[threadIdx.x] = sum + (warp ? sums[warp - 1] : 0);
}

struct Pair {
    int key;
    bool valid;
};

__device__ __noinline__ Pair choose(Pair a, Pair b) {
    return a.valid ? a : b;
}

// A merge looks one element past the end of its run before it knows that this doesn't count. Pairs
// have padding, and go through calls and local memory.
__global__ void merge(const int *x, int *y, int n) {
    extern __shared__ int tile[];
    Pair kept[4];
    for (int i = threadIdx.x; i < n; i += 32) tile[i] = x[i];
    __syncthreads();
    int from = threadIdx.x * n / 32, a = from, b = n - 1 - from, out = 0;
    int left = tile[a], right = tile[b + 32];
    for (int i = 0; i < 4; i++) {
        bool take = b + 32 >= n || left < right;
        out += take ? left : right;
        if (take)
            left = tile[++a];
        else
            right = tile[++b + 32];
        if (a >= n) break;
        kept[i & (n & 3)] = choose({out, take}, {i, true});
    }
    int last = kept[threadIdx.x & 3].key;
    y[threadIdx.x] = out + ((n & 3) == 3 ? last : 0);
}

int main() {
    int *x, *y, host[256];
    CUDA(cudaMalloc(&x, sizeof host));
    CUDA(cudaMalloc(&y, sizeof host));
    for (int i = 0; i < 256; i++) host[i] = i;
    CUDA(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    scan<<<1, 256>>>(x, y);
    CUDA(cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 256; i++) EXPECT(host[i] == i * (i + 1) / 2);
    merge<<<1, 32, 1024>>>(x, y, 64);
    CUDA(cudaMemcpy(host, y, 32 * sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT(host[0] == 0 + 1 + 2 + 3);
    printf("fine\n");
    return 0;
}
