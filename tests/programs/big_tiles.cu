// Cooperative groups: tiles of more than a warp, which talk through a scratch area that the system
// keeps in shared memory; coalesced groups; a reduction over a whole grid.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include "check.h"

namespace cg = cooperative_groups;

enum { THREADS = 256, BLOCKS = 4 };

// Each thread's sum over its tile, and its place in the tile's running sum.
template <int SIZE> __global__ void tile_sums(const int *in, int *sums, int *scans) {
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<SIZE>(block);
    int i = blockIdx.x * THREADS + threadIdx.x;
    sums[i] = cg::reduce(tile, in[i], cg::plus<int>());
    tile.sync();
    scans[i] = cg::inclusive_scan(tile, in[i]);
}

template <int SIZE> __global__ void tile_values(const int *in, int *out) {
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<SIZE>(block);
    int i = blockIdx.x * THREADS + threadIdx.x;
    int any = tile.any(in[i] == 7), from = tile.shfl(in[i], SIZE - 1);
    out[i] = 10000 * tile.meta_group_rank() + 1000 * any + from;
}

// The odd threads only, as a group of their own.
__global__ void coalesced(int *out) {
    if (threadIdx.x % 2 == 0) return;
    cg::coalesced_group group = cg::coalesced_threads();
    out[threadIdx.x] = 100 * group.size() + group.thread_rank();
}

__global__ void grid_sum(const int *in, int *partial, int *total) {
    cg::grid_group grid = cg::this_grid();
    cg::thread_block block = cg::this_thread_block();
    int sum =
        cg::reduce(cg::tiled_partition<THREADS>(block), in[grid.thread_rank()], cg::plus<int>());
    if (block.thread_rank() == 0) partial[blockIdx.x] = sum;
    grid.sync();
    if (grid.thread_rank() == 0)
        for (int b = 0; b < BLOCKS; b++) *total += partial[b];
}

static int *in, *out, *more;

template <int SIZE> static void test_size() {
    tile_sums<SIZE><<<BLOCKS, THREADS>>>(in, out, more);
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < BLOCKS * THREADS; i++) {
        int sum = 0, scan = 0;
        for (int k = i / SIZE * SIZE; k < i / SIZE * SIZE + SIZE; k++) {
            sum += in[k];
            if (k <= i) scan += in[k];
        }
        EXPECT(out[i] == sum && more[i] == scan);
    }
    tile_values<SIZE><<<BLOCKS, THREADS>>>(in, out);
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < BLOCKS * THREADS; i++) {
        int first = i / SIZE * SIZE, any = 0;
        for (int k = first; k < first + SIZE; k++) any |= in[k] == 7;
        EXPECT(out[i] == i % THREADS / SIZE * 10000 + 1000 * any + in[first + SIZE - 1]);
    }
}

int main() {
    CUDA(cudaMallocManaged(&in, BLOCKS * THREADS * sizeof(int)));
    CUDA(cudaMallocManaged(&out, BLOCKS * THREADS * sizeof(int)));
    CUDA(cudaMallocManaged(&more, BLOCKS * THREADS * sizeof(int)));
    for (int i = 0; i < BLOCKS * THREADS; i++) in[i] = i * 37 % 101;
    test_size<8>();
    test_size<32>();
    test_size<64>();
    test_size<128>();
    test_size<256>();

    coalesced<<<1, 64>>>(out);
    CUDA(cudaDeviceSynchronize());
    for (int t = 1; t < 64; t += 2) EXPECT(out[t] == 1600 + t % 32 / 2);

    int *total = more + BLOCKS;
    *total = 0;
    void *arguments[] = {&in, &more, &total};
    CUDA(cudaLaunchCooperativeKernel((void *)grid_sum, BLOCKS, THREADS, arguments, 0, 0));
    CUDA(cudaDeviceSynchronize());
    int want = 0;
    for (int i = 0; i < BLOCKS * THREADS; i++) want += in[i];
    EXPECT(*total == want);
    return 0;
}
