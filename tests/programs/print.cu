// printf on the device, assertions that hold, and integers of every width in varied formats.
#include <cassert>

#include "check.h"

__global__ void print(const char *word, int *count) {
    int n = threadIdx.x;
    assert(n < 4);
    if (n % 2 == 0)
        *count = printf("thread %d: %5.2f|%-4d|%04x|%s|%c|%lld%%\n", n, n * 0.5, n, n + 160, word,
                        'a' + n, 1ll << 40);
}

int main() {
    char *word;
    int *count, answer;
    CUDA(cudaMalloc(&word, 8));
    CUDA(cudaMalloc(&count, sizeof(int)));
    CUDA(cudaMemcpy(word, "hello", 6, cudaMemcpyHostToDevice));
    print<<<1, 4>>>(word, count);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(&answer, count, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT(answer == 7); // the number of arguments
    printf("host\n");
    return 0;
}
