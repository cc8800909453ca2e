// Managed memory, __constant__ and __device__ variables with initial values, and their symbols.
#include "check.h"

__constant__ float weights[4] = {1, 2, 3, 4};
__device__ int counter = 5;
__device__ float results[64];
__managed__ int shared_count = 7;
namespace {
__device__ const char *message = "device";
}

__global__ void work(float *in) {
    int i = threadIdx.x;
    results[i] = in[i] * weights[i % 4];
    atomicAdd(&counter, 1);
    if (i == 0) {
        shared_count += 1;
        in[0] = message[3]; // 'i'
    }
}

int main() {
    EXPECT(shared_count == 7);
    float *in, host[64];
    CUDA(cudaMallocManaged(&in, sizeof host));
    for (int i = 0; i < 64; i++) in[i] = (float)i;
    work<<<1, 64>>>(in);
    CUDA(cudaDeviceSynchronize());
    EXPECT(shared_count == 8);
    EXPECT(in[0] == 'i');
    int count;
    CUDA(cudaMemcpyFromSymbol(&count, counter, sizeof count));
    EXPECT(count == 5 + 64);
    CUDA(cudaMemcpyFromSymbol(host, results, sizeof host));
    for (int i = 1; i < 64; i++) EXPECT(host[i] == (float)i * (i % 4 + 1));

    float other[2] = {10, 20};
    CUDA(cudaMemcpyToSymbol(weights, other, sizeof other, sizeof(float)));
    work<<<1, 64>>>(in);
    CUDA(cudaMemcpyFromSymbol(host, results, sizeof host));
    EXPECT(host[1] == 10 && host[2] == 40 && host[3] == 12);

    size_t size;
    void *address;
    CUDA(cudaGetSymbolSize(&size, results));
    CUDA(cudaGetSymbolAddress(&address, results));
    EXPECT(size == sizeof host);
    CUDA(cudaMemset(address, 0, size));
    cudaPointerAttributes a;
    CUDA(cudaPointerGetAttributes(&a, in));
    EXPECT(a.type == cudaMemoryTypeManaged && a.hostPointer == in);
    CUDA(cudaPointerGetAttributes(&a, host));
    EXPECT(a.type == cudaMemoryTypeUnregistered);
    // Past the end of a symbol: refused.
    EXPECT(cudaMemcpyToSymbol(weights, host, sizeof host) == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    printf("variables ok\n");
    return 0;
}
