// Streams, events, host functions, asynchronous copies; then the same work captured as a graph.
#include "check.h"

__global__ void scale(float *x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}

static void count(void *data) {
    ++*(int *)data;
}

int main() {
    const int n = 4096;
    const size_t bytes = n * sizeof(float);
    float *host, *x, *y;
    int calls = 0;
    cudaStream_t a, b;
    cudaEvent_t start, fork, join, stop;
    CUDA(cudaMallocHost(&host, bytes));
    CUDA(cudaMallocAsync(&x, bytes, 0));
    CUDA(cudaMalloc(&y, bytes));
    CUDA(cudaStreamCreate(&a));
    CUDA(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    for (cudaEvent_t *e : {&start, &fork, &join, &stop}) CUDA(cudaEventCreate(e));

    for (int i = 0; i < n; i++) host[i] = (float)i;
    CUDA(cudaEventRecord(start, a));
    CUDA(cudaMemcpyAsync(x, host, bytes, cudaMemcpyHostToDevice, a));
    scale<<<n / 256, 256, 0, a>>>(x, 3.0f, n);
    CUDA(cudaLaunchHostFunc(a, count, &calls));
    CUDA(cudaEventRecord(stop, a));
    CUDA(cudaEventSynchronize(stop));
    float ms = -1;
    CUDA(cudaEventElapsedTime(&ms, start, stop));
    EXPECT(ms > 0 && ms < 1000);
    EXPECT(calls == 1);
    CUDA(cudaStreamQuery(a));

    // The graph: x doubled in stream a, copied to y in stream b, both joined in a.
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    scale<<<n / 256, 256, 0, a>>>(x, 2.0f, n);
    CUDA(cudaEventRecord(fork, a));
    CUDA(cudaStreamWaitEvent(b, fork, 0));
    CUDA(cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice, b));
    CUDA(cudaEventRecord(join, b));
    CUDA(cudaLaunchHostFunc(a, count, &calls));
    CUDA(cudaStreamWaitEvent(a, join, 0));
    CUDA(cudaStreamEndCapture(a, &graph));
    EXPECT(calls == 1); // recorded, not run
    size_t nodes = 0;
    CUDA(cudaGraphGetNodes(graph, NULL, &nodes));
    EXPECT(nodes >= 3);
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) CUDA(cudaGraphLaunch(exec, a));
    CUDA(cudaStreamSynchronize(a));
    EXPECT(calls == 4);
    CUDA(cudaMemcpy(host, y, bytes, cudaMemcpyDefault));
    for (int i = 0; i < n; i++) EXPECT(host[i] == 24.0f * i);

    // A stale handle is an error, not a crash.
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaStreamDestroy(b));
    EXPECT(cudaStreamSynchronize(b) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    EXPECT(cudaGetLastError() == cudaSuccess);
    CUDA(cudaFreeAsync(x, a));
    CUDA(cudaStreamDestroy(a));
    CUDA(cudaFree(y));
    CUDA(cudaFreeHost(host));
    printf("streams ok\n");
    return 0;
}
