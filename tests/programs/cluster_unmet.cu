// Broken on purpose: writes to the other block's shared memory before anything says that it runs.
#include "check.h"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

__global__ void __cluster_dims__(2, 1, 1) swap(int *out) {
    __shared__ int from_other[32];
    cg::cluster_group cluster = cg::this_cluster();
    const unsigned other = cluster.block_rank() ^ 1;
    cluster.map_shared_rank(from_other, other)[threadIdx.x] = 100 * other + threadIdx.x;
    cluster.sync(); // one should stand before the write, too
    out[32 * cluster.block_rank() + threadIdx.x] = from_other[threadIdx.x];
}

int main() {
    int *out;
    CUDA(cudaMalloc(&out, 64 * sizeof *out));
    swap<<<2, 32>>>(out);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
