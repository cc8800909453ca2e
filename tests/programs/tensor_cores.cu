// Matrix products on tensor cores: by ldmatrix and mma.sync in inline PTX, and by nvcuda::wmma in all
// its types and layouts. Small whole numbers, so that every way of summing gives the same.
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include "check.h"

using namespace nvcuda;

// A small whole number for an element of a matrix.
static int number(int matrix, int row, int column) {
    return (row * 7 + column * 5 + row * column + matrix * 3) % 9 - 4;
}

// ---- mma.sync: C (m x n) = A (m x k, rows) B (k x n, columns), a warp per 16 x 8

__device__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

__global__ void by_mma(const __half *a, const __half *b, float *c, int n, int k) {
    __shared__ __align__(128) __half a_tile[16 * 16], b_tile[8 * 16];
    int lane = threadIdx.x, row = blockIdx.y * 16, column = blockIdx.x * 8;
    float d[4] = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
        // 32 pieces of 16 bytes of A, 16 of B
        *(uint4 *)&a_tile[lane * 8] = *(const uint4 *)&a[(row + lane / 2) * k + k0 + lane % 2 * 8];
        if (lane < 16)
            *(uint4 *)&b_tile[lane * 8] =
                *(const uint4 *)&b[(column + lane / 2) * k + k0 + lane % 2 * 8];
        __syncwarp();
        uint32_t x[4], y[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(shared_address(&a_tile[lane % 16 * 16 + lane / 16 * 8])));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(y[0]), "=r"(y[1])
                     : "r"(shared_address(&b_tile[lane % 8 * 16 + lane / 8 % 2 * 8])));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
        __syncwarp();
    }
    for (int i = 0; i < 4; i++)
        c[(row + lane / 4 + i / 2 * 8) * n + column + lane % 4 * 2 + i % 2] = d[i];
}

static void check_mma() {
    const int m = 32, n = 24, k = 48;
    __half *a, *b;
    float *c;
    CUDA(cudaMallocManaged(&a, m * k * sizeof *a));
    CUDA(cudaMallocManaged(&b, n * k * sizeof *b));
    CUDA(cudaMallocManaged(&c, m * n * sizeof *c));
    for (int i = 0; i < m * k; i++) a[i] = __float2half((float)number(0, i / k, i % k));
    for (int i = 0; i < n * k; i++) b[i] = __float2half((float)number(1, i % k, i / k));
    by_mma<<<dim3(n / 8, m / 16), 32>>>(a, b, c, n, k);
    CUDA(cudaGetLastError());
    CUDA(cudaDeviceSynchronize());
    for (int r = 0; r < m; r++)
        for (int s = 0; s < n; s++) {
            int want = 0;
            for (int i = 0; i < k; i++) want += number(0, r, i) * number(1, i, s);
            EXPECT(c[r * n + s] == (float)want);
        }
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
    CUDA(cudaFree(c));
}

// ---- wmma

template <int M, int N, int K, typename T, typename Fragment, typename Sum, typename LayoutA,
          typename LayoutB>
__global__ void by_wmma(const T *a, const T *b, const Sum *c, Sum *d, bool through_shared) {
    __shared__ __align__(32) T tile[M * K];
    wmma::fragment<wmma::matrix_a, M, N, K, Fragment, LayoutA> x;
    wmma::fragment<wmma::matrix_b, M, N, K, Fragment, LayoutB> y;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> z;
    const bool a_rows = std::is_same<LayoutA, wmma::row_major>::value;
    const bool b_rows = std::is_same<LayoutB, wmma::row_major>::value;
    for (int i = threadIdx.x; i < M * K; i += 32) tile[i] = a[i];
    __syncwarp();
    if (through_shared)
        wmma::load_matrix_sync(x, tile, a_rows ? K : M);
    else
        wmma::load_matrix_sync(x, a, a_rows ? K : M);
    wmma::load_matrix_sync(y, b, b_rows ? N : K);
    wmma::load_matrix_sync(z, c, N, wmma::mem_row_major);
    for (int i = 0; i < z.num_elements; i++) z.x[i] = z.x[i] + z.x[i]; // each element alike
    wmma::mma_sync(z, x, y, z);
    wmma::store_matrix_sync(d, z, M, wmma::mem_col_major);
}

template <int M, int N, int K, typename T, typename Fragment, typename Sum, typename LayoutA,
          typename LayoutB>
static void check_wmma() {
    const bool a_rows = std::is_same<LayoutA, wmma::row_major>::value;
    const bool b_rows = std::is_same<LayoutB, wmma::row_major>::value;
    const int up = std::is_same<T, unsigned char>::value ? 4 : 0; // no negative numbers
    T *a, *b;
    Sum *c, *d;
    CUDA(cudaMallocManaged(&a, M * K * sizeof *a));
    CUDA(cudaMallocManaged(&b, N * K * sizeof *b));
    CUDA(cudaMallocManaged(&c, M * N * sizeof *c));
    CUDA(cudaMallocManaged(&d, M * N * sizeof *d));
    for (int r = 0; r < M; r++)
        for (int i = 0; i < K; i++)
            a[a_rows ? r * K + i : i * M + r] = (T)(float)(number(0, r, i) + up);
    for (int i = 0; i < K; i++)
        for (int s = 0; s < N; s++)
            b[b_rows ? i * N + s : s * K + i] = (T)(float)(number(1, i, s) + up);
    for (int r = 0; r < M; r++)
        for (int s = 0; s < N; s++) c[r * N + s] = (Sum)(float)number(2, r, s);
    for (int through_shared = 0; through_shared < 2; through_shared++) {
        by_wmma<M, N, K, T, Fragment, Sum, LayoutA, LayoutB><<<1, 32>>>(a, b, c, d, through_shared);
        CUDA(cudaGetLastError());
        CUDA(cudaDeviceSynchronize());
        for (int r = 0; r < M; r++)
            for (int s = 0; s < N; s++) {
                int want = 2 * number(2, r, s);
                for (int i = 0; i < K; i++) want += (number(0, r, i) + up) * (number(1, i, s) + up);
                EXPECT((double)(float)d[s * M + r] == want);
            }
    }
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
    CUDA(cudaFree(c));
    CUDA(cudaFree(d));
}

template <int M, int N, int K, typename T, typename Sum, typename Fragment = T>
static void check_layouts() {
    check_wmma<M, N, K, T, Fragment, Sum, wmma::row_major, wmma::col_major>();
    check_wmma<M, N, K, T, Fragment, Sum, wmma::col_major, wmma::row_major>();
    check_wmma<M, N, K, T, Fragment, Sum, wmma::row_major, wmma::row_major>();
    check_wmma<M, N, K, T, Fragment, Sum, wmma::col_major, wmma::col_major>();
}

int main() {
    check_mma();
    check_layouts<16, 16, 16, __half, float>();
    check_layouts<32, 8, 16, __half, float>();
    check_layouts<8, 32, 16, __half, __half>();
    check_layouts<16, 16, 16, __nv_bfloat16, float>();
    check_layouts<32, 8, 16, __nv_bfloat16, float>();
    check_layouts<16, 16, 16, signed char, int>();
    check_layouts<8, 32, 16, unsigned char, int>();
    check_layouts<16, 16, 8, float, float, wmma::precision::tf32>();
    check_layouts<8, 8, 4, double, double>();
    printf("multiplied\n");
    return 0;
}
