// Graphs of the runtime API: captured from streams, and put together node by node.
#include "api_program.h"

Suite *suite_graph(void);

START_TEST(capture_and_replay) {
    cudaStream_t a, b;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned *x, host = 0;
    size_t count = 0;
    OK(cudaMalloc((void **)&x, 8));
    OK(cudaMemset(x, 0, 8));
    OK(cudaStreamCreate(&a));
    OK(cudaStreamCreate(&b));
    OK(cudaEventCreate(&fork));
    OK(cudaEventCreate(&join));
    FAILS("make one with cudaStreamCreate", cudaErrorStreamCaptureUnsupported,
          cudaStreamBeginCapture(NULL, cudaStreamCaptureModeGlobal));
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    OK(launch_add(x, 1, 1, one, one, 0, a));
    OK(cudaEventRecord(fork, a));
    OK(cudaStreamWaitEvent(b, fork, 0));
    OK(cudaMemcpyAsync(x + 1, x, 4, cudaMemcpyDeviceToDevice, b));
    OK(cudaEventRecord(join, b));
    OK(cudaStreamWaitEvent(a, join, 0));
    OK(launch_add(x, 1, 10, one, one, 0, a));
    FAILS("", cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(a));
    FAILS("", cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(b, &graph));
    OK(cudaStreamEndCapture(a, &graph));
    OK(cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(host, 0); // recorded, not run
    OK(cudaGraphGetNodes(graph, NULL, &count));
    ck_assert_uint_eq(count, 3);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph)); // the executable graph is a copy
    OK(cudaGraphLaunch(exec, a));
    OK(cudaGraphLaunch(exec, a));
    OK(cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(host, 22);
    OK(cudaMemcpy(&host, x + 1, 4, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(host, 12); // copied before the second addition
    OK(cudaGraphExecDestroy(exec));
    FAILS("", cudaErrorInvalidValue, cudaGraphLaunch(exec, a));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
    FAILS("", cudaErrorInvalidResourceHandle, cudaStreamSynchronize(a));
}
END_TEST

// Nodes added in an order that is not the order of their dependencies.
START_TEST(graph_order) {
    cudaGraph_t graph;
    cudaGraphNode_t add, fill;
    cudaGraphExec_t exec;
    unsigned *x, n = 1, by = 5, host;
    OK(cudaMalloc((void **)&x, 4));
    void *arguments[] = {&x, &n, &by};
    struct cudaKernelNodeParams kernel = {
        .func = &stub_add, .gridDim = one, .blockDim = one, .kernelParams = arguments};
    struct cudaMemsetParams zero = {
        .dst = x, .elementSize = 4, .width = 1, .height = 1, .value = 2};
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddKernelNode(&add, graph, NULL, 0, &kernel));
    OK(cudaGraphAddMemsetNode(&fill, graph, NULL, 0, &zero));
    OK(cudaGraphAddDependencies(graph, &fill, &add, NULL, 1));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, NULL));
    OK(cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(host, 7);
    by = 6;
    OK(cudaGraphExecKernelNodeSetParams(exec, add, &kernel));
    OK(cudaGraphLaunch(exec, NULL));
    OK(cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(host, 8);
    OK(cudaGraphAddDependencies(graph, &add, &fill, NULL, 1)); // a cycle
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    FAILS("form a cycle", cudaErrorInvalidValue, cudaGraphLaunch(exec, NULL));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaFree(x));
}
END_TEST

Suite *suite_graph(void) {
    Suite *suite = suite_create("graphs");
    TCase *tests = tcase_create("graph");
    tcase_add_checked_fixture(tests, setup, said_end); // in the test's own process
    tcase_add_test(tests, capture_and_replay);
    tcase_add_test(tests, graph_order);
    suite_add_tcase(suite, tests);
    return suite;
}
