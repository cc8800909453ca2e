// Broken on purpose: block 1 of a cluster exits while block 0 still reads its shared memory.
#include "check.h"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

__global__ void __cluster_dims__(2, 1, 1) gather(int *out) {
    __shared__ int mine[32];
    cg::cluster_group cluster = cg::this_cluster();
    mine[threadIdx.x] = 32 * cluster.block_rank() + threadIdx.x;
    cluster.sync();
    if (cluster.block_rank() == 1) return; // a cluster.sync() of both should stand at the end
    __nanosleep(100000);
    out[threadIdx.x] = cluster.map_shared_rank(mine, 1)[threadIdx.x];
}

int main() {
    int *out;
    CUDA(cudaMalloc(&out, 32 * sizeof *out));
    gather<<<2, 32>>>(out);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
