// Calls that the runtime refuses, made on purpose: the program sees the error codes and goes on.
#include "check.h"

int main(void) {
    float *x, host[4] = {1, 2, 3, 4};
    CUDA(cudaMalloc((void **)&x, sizeof host));
    EXPECT(cudaMemcpy(host, x, sizeof host, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CUDA(cudaFree(x));
    EXPECT(cudaFree(x) == cudaErrorInvalidValue);
    EXPECT(cudaMemset(x, 0, 4) == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    CUDA(cudaGetLastError());
    printf("every misuse was refused\n");
    return 0;
}
