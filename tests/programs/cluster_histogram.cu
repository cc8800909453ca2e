// A histogram whose bins are spread over the shared memories of a cluster, by cooperative groups;
// and what a launch with clusters promises: ranks, indices, occupancy, refusals.
#include "check.h"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

enum { BINS = 256, COUNT = 1 << 14, THREADS = 128 };

// Each block of the cluster keeps its share of the bins; all blocks count into all of them.
__global__ void histogram(const unsigned char *values, int count, unsigned *bins) {
    extern __shared__ unsigned share[];
    cg::cluster_group cluster = cg::this_cluster();
    const unsigned size = cluster.num_blocks(), own = BINS / size;
    for (unsigned k = threadIdx.x; k < own; k += blockDim.x) share[k] = 0;
    cluster.sync(); // all bins are zero, and all blocks have started
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x) {
        unsigned bin = values[k];
        unsigned *there = cluster.map_shared_rank(share, bin / own);
        atomicAdd(&there[bin % own], 1u);
    }
    cluster.sync(); // nobody counts here any more
    for (unsigned k = threadIdx.x; k < own; k += blockDim.x)
        atomicAdd(&bins[cluster.block_rank() * own + k], share[k]);
}

// What each block knows of its cluster, and the sum over the cluster of the peers' numbers.
__global__ void __cluster_dims__(2, 2, 1) places(int *out) {
    __shared__ int number[2];
    cg::cluster_group cluster = cg::this_cluster();
    const int block = blockIdx.x + gridDim.x * blockIdx.y;
    if (threadIdx.x == 0) number[1] = block;
    cluster.sync();
    int sum = 0;
    for (unsigned rank = 0; rank < cluster.num_blocks(); rank++) {
        const int *there = cluster.map_shared_rank(number, rank);
        sum += there[1];
        if (cluster.query_shared_rank(there) != rank) sum += 1000;
    }
    cluster.barrier_arrive();
    const dim3 at = cluster.block_index();
    if (threadIdx.x == 0) {
        out[4 * block] = cluster.block_rank();
        out[4 * block + 1] = at.x + 10 * at.y + 100 * cluster.dim_blocks().y;
        out[4 * block + 2] = sum;
        out[4 * block + 3] = cluster.thread_rank() + 10000 * cluster.num_threads();
    }
    cluster.barrier_wait();
}

static void count_with(int size, const unsigned char *values, unsigned *bins,
                       const unsigned *want) {
    CUDA(cudaMemset(bins, 0, BINS * sizeof *bins));
    cudaLaunchConfig_t config = {};
    config.gridDim = 16;
    config.blockDim = THREADS;
    config.dynamicSmemBytes = BINS / size * sizeof(unsigned);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = size;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    CUDA(cudaOccupancyMaxActiveClusters(&clusters, histogram, &config));
    EXPECT(clusters >= 1);
    CUDA(cudaLaunchKernelEx(&config, histogram, values, (int)COUNT, bins));
    unsigned got[BINS];
    CUDA(cudaMemcpy(got, bins, sizeof got, cudaMemcpyDeviceToHost));
    for (int k = 0; k < BINS; k++) EXPECT(got[k] == want[k]);
}

int main() {
    static unsigned char values[COUNT];
    unsigned want[BINS] = {};
    unsigned state = 1;
    for (int k = 0; k < COUNT; k++) {
        state = state * 1664525 + 1013904223;
        values[k] = (state >> 24) * (state >> 16 & 255) >> 8;
        want[values[k]]++;
    }
    unsigned char *on_device;
    unsigned *bins;
    CUDA(cudaMalloc(&on_device, COUNT));
    CUDA(cudaMalloc(&bins, BINS * sizeof *bins));
    CUDA(cudaMemcpy(on_device, values, COUNT, cudaMemcpyHostToDevice));
    for (int size = 1; size <= 8; size *= 2) count_with(size, on_device, bins, want);

    cudaFuncAttributes attributes;
    CUDA(cudaFuncSetAttribute(histogram, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    CUDA(cudaFuncGetAttributes(&attributes, histogram));
    EXPECT(attributes.nonPortableClusterSizeAllowed == 1);
    count_with(16, on_device, bins, want);

    int *out, got[4 * 16];
    CUDA(cudaMalloc(&out, sizeof got));
    places<<<dim3(4, 4), 32>>>(out);
    CUDA(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 4; x++) {
            const int *g = &got[4 * (x + 4 * y)], first = x / 2 * 2 + y / 2 * 2 * 4;
            EXPECT(g[0] == x % 2 + 2 * (y % 2));
            EXPECT(g[1] == x % 2 + 10 * (y % 2) + 200);
            EXPECT(g[2] == 4 * first + 10); // first, +1, +4, +5
            EXPECT(g[3] == 32 * g[0] + 10000 * 128);
        }
    places<<<dim3(3, 4), 32>>>(out); // no multiple of the cluster
    EXPECT(cudaGetLastError() != cudaSuccess);
    printf("all bins are right\n");
    return 0;
}
