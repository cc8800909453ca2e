// Calls of every kind on the device: recursion, function pointers, virtual functions, lambdas.
#include "check.h"

__device__ __noinline__ int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

__device__ __noinline__ int twice(int x) {
    return 2 * x;
}
__device__ __noinline__ int square(int x) {
    return x * x;
}
typedef int (*Function)(int);
__device__ Function table[2] = {twice, square};

struct Shape {
    __device__ virtual int corners() const = 0;
    __device__ virtual ~Shape() {}
};
struct Triangle : Shape {
    __device__ int corners() const override { return 3; }
};
struct Square : Shape {
    int extra;
    __device__ Square(int e) : extra(e) {}
    __device__ int corners() const override { return 4 + extra; }
};

__global__ void calls(int *out) {
    int t = threadIdx.x;
    out[t] = ackermann(2, t % 3);
    out[32 + t] = table[t % 2](t); // lanes call different functions
    Shape *shape;
    if (t % 3 == 0)
        shape = new Triangle;
    else
        shape = new Square(t);
    out[64 + t] = shape->corners();
    delete shape;
}

template <typename F> __global__ void apply(F f, int *out) {
    out[threadIdx.x] = f(threadIdx.x);
}

int main() {
    int *out, answer[96];
    CUDA(cudaMalloc(&out, sizeof answer));
    CUDA(cudaDeviceSetLimit(cudaLimitStackSize, 4096));
    calls<<<1, 32>>>(out);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(answer, out, sizeof answer, cudaMemcpyDeviceToHost));
    for (int t = 0; t < 32; t++) {
        EXPECT(answer[t] == 2 * (t % 3) + 3); // ackermann(2, n)
        EXPECT(answer[32 + t] == (t % 2 ? t * t : 2 * t));
        EXPECT(answer[64 + t] == (t % 3 ? 4 + t : 3));
    }
    int offset = 5;
    apply<<<1, 32>>>([=] __device__(int t) { return t + offset; }, out);
    CUDA(cudaMemcpy(answer, out, 32 * sizeof(int), cudaMemcpyDeviceToHost));
    for (int t = 0; t < 32; t++) EXPECT(answer[t] == t + 5);
    printf("calls ok\n");
    return 0;
}
