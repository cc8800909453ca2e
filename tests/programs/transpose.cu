// A matrix transposed through padded tiles in shared memory, as a template; pitched memory.
#include "check.h"

template <typename T, int tile>
__global__ void transpose(const T *in, size_t in_pitch, T *out, int rows, int columns) {
    __shared__ T cell[tile][tile + 1];
    int x = blockIdx.x * tile + threadIdx.x;
    for (int y = blockIdx.y * tile + threadIdx.y, r = threadIdx.y; r < tile; r += 8, y += 8)
        if (x < columns && y < rows)
            cell[r][threadIdx.x] = ((const T *)((const char *)in + y * in_pitch))[x];
    __syncthreads();
    x = blockIdx.y * tile + threadIdx.x;
    for (int y = blockIdx.x * tile + threadIdx.y, r = threadIdx.y; r < tile; r += 8, y += 8)
        if (x < rows && y < columns) out[(size_t)y * rows + x] = cell[threadIdx.x][r];
}

template <typename T> static void run(int rows, int columns) {
    T *host = (T *)malloc(sizeof(T) * rows * columns);
    T *back = (T *)malloc(sizeof(T) * rows * columns);
    for (int i = 0; i < rows * columns; i++) host[i] = (T)i;
    T *in, *out;
    size_t pitch;
    CUDA(cudaMallocPitch(&in, &pitch, columns * sizeof(T), rows));
    CUDA(cudaMalloc(&out, sizeof(T) * rows * columns));
    CUDA(cudaMemcpy2D(in, pitch, host, columns * sizeof(T), columns * sizeof(T), rows,
                      cudaMemcpyHostToDevice));
    dim3 grid((columns + 31) / 32, (rows + 31) / 32), block(32, 8);
    transpose<T, 32><<<grid, block>>>(in, pitch, out, rows, columns);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(back, out, sizeof(T) * rows * columns, cudaMemcpyDeviceToHost));
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) EXPECT(back[c * rows + r] == (T)(r * columns + c));
    CUDA(cudaFree(in));
    CUDA(cudaFree(out));
    free(host);
    free(back);
}

int main() {
    run<float>(97, 130);
    run<double>(64, 33);
    run<short>(31, 65);
    printf("transposed\n");
    return 0;
}
