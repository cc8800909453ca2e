// Launches: from <<<>>> to gpu_launch. A launch is checked as the GPU would check it and refused
// with the GPU's error code, and beside the code a sentence says what is wrong.
#include "softgpu/api/api.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/machine/cluster.h"

enum {
    THREADS_MAX = 1024,
    GRID_YZ_MAX = 65535,
    DYNAMIC_WITHOUT_OPT_IN = 48 << 10,
    CONFIGURATIONS_MAX = 64, // launches nested in the arguments of launches
};

// Explains a refused launch. In a strict run it is a finding, which counts in the exit status;
// otherwise a note: programs may try a launch to see whether it works.
static cudaError_t refuse(const ApiKernel *kernel, cudaError_t error, const char *mend,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));
static cudaError_t refuse(const ApiKernel *kernel, cudaError_t error, const char *mend,
                          const char *format, ...) {
    char what[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (api_gpu()->settings->strict) {
        findings_begin_launch();
        finding_global(FINDING_LAUNCH, kernel->name, mend, "%s", what);
        findings_end_launch();
        return api_result(error);
    }
    char *name = readable_name(kernel->name);
    api_explain(error, "launch of %s refused with error %d (%s): %s%s%s", name, error,
                cudaGetErrorName(error), what, mend ? "; " : "", mend ? mend : "");
    free(name);
    return error;
}

static bool is_zero(dim3 d) {
    return d.x == 0 || d.y == 0 || d.z == 0;
}

// Checks the shape of the grid and the block.
static cudaError_t check_shape(const LaunchRequest *r) {
    dim3 g = r->grid, b = r->block;
    if (is_zero(g) || is_zero(b))
        return refuse(r->kernel, cudaErrorInvalidConfiguration, NULL,
                      "a dimension is 0: grid %u x %u x %u, block %u x %u x %u", g.x, g.y, g.z, b.x,
                      b.y, b.z);
    if (g.x > INT32_MAX || g.y > GRID_YZ_MAX || g.z > GRID_YZ_MAX)
        return refuse(r->kernel, cudaErrorInvalidConfiguration, "put the largest dimension in x",
                      "grid %u x %u x %u; at most 2147483647 x 65535 x 65535", g.x, g.y, g.z);
    uint64_t threads = (uint64_t)b.x * b.y * b.z;
    if (b.x > 1024 || b.y > 1024 || b.z > 64 || threads > THREADS_MAX)
        return refuse(
            r->kernel, cudaErrorInvalidConfiguration, NULL,
            "block %u x %u x %u is %llu threads; at most 1024 x 1024 x 64 and 1024 in all", b.x,
            b.y, b.z, (unsigned long long)threads);
    return cudaSuccess;
}

// Checks the block against what the kernel was compiled for.
static cudaError_t check_bounds(const LaunchRequest *r) {
    const PtxFunction *f = r->kernel->code->ptx;
    const uint32_t block[3] = {r->block.x, r->block.y, r->block.z};
    uint32_t threads = block[0] * block[1] * block[2];
    if (f->maxntid[0]) {
        uint32_t y = f->maxntid[1] ? f->maxntid[1] : 1, z = f->maxntid[2] ? f->maxntid[2] : 1;
        if (threads > f->maxntid[0] * y * z)
            return refuse(r->kernel, cudaErrorLaunchOutOfResources,
                          "launch smaller blocks or raise the bound",
                          "%u threads in a block, but __launch_bounds__ promised at most %u",
                          threads, f->maxntid[0] * y * z);
    }
    for (int d = 0; d < 3 && f->reqntid[0]; d++) {
        uint32_t required = f->reqntid[d] ? f->reqntid[d] : 1;
        if (block[d] != required)
            return refuse(r->kernel, cudaErrorInvalidValue, NULL,
                          "the kernel must be launched with blocks of %u x %u x %u threads, not "
                          "%u x %u x %u",
                          f->reqntid[0], f->reqntid[1] ? f->reqntid[1] : 1,
                          f->reqntid[2] ? f->reqntid[2] : 1, block[0], block[1], block[2]);
    }
    return cudaSuccess;
}

// Checks shared memory: what was asked for, what the program opted in to, what an SM has.
static cudaError_t check_shared_size(const LaunchRequest *r) {
    const Kernel *code = r->kernel->code;
    const GpuFigures *figures = &api_gpu()->figures;
    uint64_t total = (uint64_t)code->shared_static + r->dynamic_shared;
    if (total > figures->shared_per_cta)
        return refuse(r->kernel, cudaErrorInvalidValue, NULL,
                      "%u bytes of static and %zu of dynamic shared memory; a block of %s can have "
                      "at most %u",
                      code->shared_static, r->dynamic_shared, figures->full_name,
                      figures->shared_per_cta);
    uint64_t allowed = r->kernel->dynamic_limit;
    bool over = total > DYNAMIC_WITHOUT_OPT_IN && r->dynamic_shared > allowed;
    if (r->dynamic_shared > 0 && over)
        return refuse(
            r->kernel, cudaErrorInvalidValue,
            "call cudaFuncSetAttribute(kernel, "
            "cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) first",
            "%zu bytes of dynamic shared memory; more than 48 KB in all must be asked for",
            r->dynamic_shared);
    return cudaSuccess;
}

// Checks that a cluster, and of a cooperative launch the whole grid, can be resident at once.
static cudaError_t check_room(const LaunchRequest *r, int per_sm) {
    uint64_t ctas = (uint64_t)r->grid.x * r->grid.y * r->grid.z;
    const GpuFigures *figures = &api_gpu()->figures;
    int size = r->has_cluster ? (int)(r->cluster.x * r->cluster.y * r->cluster.z) : 1;
    uint64_t room = (uint64_t)cluster_capacity(figures, size, per_sm) * (uint64_t)size;
    if (!room)
        return refuse(r->kernel, cudaErrorInvalidClusterSize,
                      "use smaller clusters, or blocks that need less (ask "
                      "cudaOccupancyMaxActiveClusters); or model more SMs",
                      "a cluster of %d blocks must fit on the SMs of one GPC, and an SM holds %d "
                      "of them; no GPC has such room (%d SMs in all)",
                      size, per_sm, figures->sms);
    if (r->cooperative && ctas > room)
        return refuse(r->kernel, cudaErrorCooperativeLaunchTooLarge,
                      "size the grid with cudaOccupancyMaxActiveBlocksPerMultiprocessor",
                      "a cooperative grid of %llu blocks; %llu fit on the GPU at once",
                      (unsigned long long)ctas, (unsigned long long)room);
    return cudaSuccess;
}

// Checks the cluster's shape against the grid and the kernel's own demand.
static cudaError_t check_cluster(const LaunchRequest *r) {
    if (!r->has_cluster) return cudaSuccess;
    dim3 c = r->cluster;
    uint64_t size = (uint64_t)c.x * c.y * c.z;
    if (api_gpu()->figures.capability_major < 9 && size > 1)
        return refuse(r->kernel, cudaErrorInvalidValue, NULL,
                      "clusters need capability 9.0; this is %s", api_gpu()->figures.full_name);
    uint64_t most = r->kernel->non_portable_cluster ? CLUSTER_MAX : 8;
    if (size == 0 || size > most)
        return refuse(r->kernel, cudaErrorInvalidClusterSize,
                      "16 needs cudaFuncAttributeNonPortableClusterSizeAllowed",
                      "a cluster of %u x %u x %u blocks; at most %llu", c.x, c.y, c.z,
                      (unsigned long long)most);
    uint32_t limit = r->kernel->code->ptx->maxclusterrank;
    if (limit && size > limit)
        return refuse(r->kernel, cudaErrorInvalidClusterSize, "launch smaller clusters",
                      "a cluster of %llu blocks, but __launch_bounds__ promised at most %u",
                      (unsigned long long)size, limit);
    if (r->grid.x % c.x || r->grid.y % c.y || r->grid.z % c.z)
        return refuse(r->kernel, cudaErrorInvalidConfiguration, NULL,
                      "the grid %u x %u x %u is no multiple of the cluster %u x %u x %u", r->grid.x,
                      r->grid.y, r->grid.z, c.x, c.y, c.z);
    const uint32_t *q = r->kernel->code->ptx->reqnctapercluster;
    if (q[0] && (q[0] != c.x || (q[1] ? q[1] : 1) != c.y || (q[2] ? q[2] : 1) != c.z))
        return refuse(r->kernel, cudaErrorInvalidClusterSize, NULL,
                      "the kernel was compiled for clusters of %u x %u x %u, not %u x %u x %u",
                      q[0], q[1] ? q[1] : 1, q[2] ? q[2] : 1, c.x, c.y, c.z);
    return cudaSuccess;
}

cudaError_t launch_check(const LaunchRequest *r) {
    cudaError_t error = check_shape(r);
    error = error ? error : check_bounds(r);
    error = error ? error : check_shared_size(r);
    error = error ? error : check_cluster(r);
    if (error) return error;
    char why[240] = "it doesn't fit on an SM";
    uint32_t threads = r->block.x * r->block.y * r->block.z;
    int per_sm = gpu_occupancy(&api_gpu()->figures, r->kernel->code, threads,
                               (uint32_t)r->dynamic_shared, why, sizeof why);
    if (per_sm == 0) return refuse(r->kernel, cudaErrorLaunchOutOfResources, NULL, "%s", why);
    return check_room(r, per_sm);
}

void *launch_pack(const ApiKernel *kernel, void **arguments) {
    const Kernel *code = kernel->code;
    uint8_t *block = calloc(1, code->param_size ? code->param_size : 1);
    if (block == NULL) abort();
    for (int i = 0; i < code->param_count; i++)
        memcpy(block + code->params[i].offset, arguments[i], code->params[i].size);
    return block;
}

// Does an error leave the device unusable until it is reset? A kernel's faults do; a launch that is
// refused doesn't.
static bool is_sticky(int error) {
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout: return true;
    default: return false;
    }
}

cudaError_t launch_now(const LaunchRequest *r, const void *parameters) {
    Gpu *gpu = api_gpu();
    Launch request = {
        .kernel = r->kernel->code,
        .grid = {r->grid.x, r->grid.y, r->grid.z},
        .block = {r->block.x, r->block.y, r->block.z},
        .cluster = {1, 1, 1},
        .dynamic_shared = (uint32_t)r->dynamic_shared,
        .params = parameters,
        .cooperative = r->cooperative,
    };
    if (r->has_cluster) {
        request.cluster[0] = r->cluster.x;
        request.cluster[1] = r->cluster.y;
        request.cluster[2] = r->cluster.z;
    }
    KernelStats stats = {0};
    int error = gpu_launch(gpu, &request, &stats);
    stats_add(&stats);
    if (stats.sms_simulated < stats.sms_total && gpu->settings->checks & CHECK_INIT)
        api_note("only %d of %d SMs are simulated: global memory is not checked for reads of what "
                 "nothing has written, since most blocks write nothing",
                 stats.sms_simulated, stats.sms_total);
    if (is_sticky(error)) api.sticky = error;
    return api_result(error);
}

void launch_complete(LaunchRequest *r) {
    const uint32_t *q = r->kernel->code->ptx->reqnctapercluster;
    const uint32_t *own = r->kernel->required_cluster;
    if (!r->has_cluster && (q[0] || own[0])) {
        const uint32_t *c = q[0] ? q : own;
        r->cluster = (dim3){c[0], c[1] ? c[1] : 1, c[2] ? c[2] : 1};
        r->has_cluster = true;
    }
    if (r->has_cluster && r->kernel->code->ptx->blocks_are_clusters) {
        r->grid.x *= r->cluster.x; // the program counted clusters
        r->grid.y *= r->cluster.y;
        r->grid.z *= r->cluster.z;
    }
}

cudaError_t launch(const LaunchRequest *request, void **arguments, const void *packed,
                   size_t packed_size) {
    LaunchRequest r = *request;
    struct CUstream_st *stream = stream_of(r.stream);
    if (stream == NULL) return api_result(cudaErrorInvalidResourceHandle);
    cudaError_t error = kernel_prepare(r.kernel);
    if (error) return error;
    launch_complete(&r);
    error = launch_check(&r);
    if (error) return error;
    size_t size = r.kernel->code->param_size;
    if (r.kernel->code->param_count && arguments == NULL && (packed == NULL || packed_size < size))
        return api_explain(cudaErrorInvalidValue, "launch of %s without its arguments (%zu bytes)",
                           r.kernel->name, size);
    void *parameters;
    if (arguments) {
        parameters = launch_pack(r.kernel, arguments);
    } else {
        parameters = calloc(1, size ? size : 1);
        if (parameters == NULL) abort();
        if (size) memcpy(parameters, packed, size);
    }
    if (stream->capture) {
        struct CUgraphNode_st *node = capture_append(stream, NODE_KERNEL);
        node->launch = r;
        node->parameters = parameters;
        node->parameters_size = size;
        return cudaSuccess;
    }
    error = launch_now(&r, parameters);
    free(parameters);
    return error;
}

cudaError_t launch_attributes(LaunchRequest *request, const cudaLaunchAttribute *attributes,
                              unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        const cudaLaunchAttributeValue *v = &attributes[i].val;
        switch (attributes[i].id) {
        case cudaLaunchAttributeCooperative: request->cooperative = v->cooperative != 0; break;
        case cudaLaunchAttributeClusterDimension:
            request->cluster = (dim3){v->clusterDim.x, v->clusterDim.y, v->clusterDim.z};
            request->has_cluster = true;
            break;
        // Hints, and orders between kernels that a machine which runs one at a time keeps anyway.
        // Of a preferred cluster size only the least one need be granted, which is that of
        // cudaLaunchAttributeClusterDimension.
        case cudaLaunchAttributeIgnore:
        case cudaLaunchAttributeAccessPolicyWindow:
        case cudaLaunchAttributeSynchronizationPolicy:
        case cudaLaunchAttributeClusterSchedulingPolicyPreference:
        case cudaLaunchAttributeProgrammaticStreamSerialization:
        case cudaLaunchAttributePriority:
        case cudaLaunchAttributeMemSyncDomainMap:
        case cudaLaunchAttributeMemSyncDomain:
        case cudaLaunchAttributePreferredClusterDimension:
        case cudaLaunchAttributePreferredSharedMemoryCarveout: break;
        case cudaLaunchAttributeProgrammaticEvent:
            if (handle_is(v->programmaticEvent.event, HANDLE_EVENT))
                event_record_now(v->programmaticEvent.event);
            break;
        case cudaLaunchAttributeLaunchCompletionEvent:
            if (handle_is(v->launchCompletionEvent.event, HANDLE_EVENT))
                event_record_now(v->launchCompletionEvent.event);
            break;
        default:
            return api_explain(cudaErrorNotSupported,
                               "launch attribute %d is not implemented; the launch of %s returned "
                               "error 801",
                               attributes[i].id, request->kernel->name);
        }
    }
    return cudaSuccess;
}

// ---- <<<>>>

typedef struct {
    dim3 grid, block;
    size_t dynamic_shared;
    cudaStream_t stream;
} Configuration;

static _Thread_local Configuration configurations[CONFIGURATIONS_MAX];
static _Thread_local int configuration_count;

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t dynamic_shared,
                                            struct CUstream_st *stream) {
    if (configuration_count == CONFIGURATIONS_MAX) {
        api_explain(cudaErrorInvalidConfiguration, "more than %d launches nested in arguments",
                    CONFIGURATIONS_MAX);
        return 1;
    }
    configurations[configuration_count++] = (Configuration){grid, block, dynamic_shared, stream};
    return 0;
}

EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *dynamic_shared,
                                              void *stream) {
    if (configuration_count == 0) return api_result(cudaErrorMissingConfiguration);
    Configuration *c = &configurations[--configuration_count];
    *grid = c->grid;
    *block = c->block;
    *dynamic_shared = c->dynamic_shared;
    *(cudaStream_t *)stream = c->stream;
    return cudaSuccess;
}

// Every launch function without attributes ends here.
static cudaError_t launch_function(const void *function, dim3 grid, dim3 block, void **arguments,
                                   size_t dynamic_shared, cudaStream_t stream, bool cooperative) {
    API_BEGIN();
    ApiKernel *kernel = kernel_of(function);
    if (kernel == NULL)
        return api_explain(cudaErrorInvalidDeviceFunction,
                           "%p was launched, but it is no kernel of this program", function);
    LaunchRequest request = {
        .kernel = kernel,
        .grid = grid,
        .block = block,
        .dynamic_shared = dynamic_shared,
        .stream = stream,
        .cooperative = cooperative,
    };
    return launch(&request, arguments, NULL, 0);
}

EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                                      size_t dynamic_shared, cudaStream_t stream) {
    return launch_function(kernel, grid, block, arguments, dynamic_shared, stream, false);
}
TWIN(__cudaLaunchKernel, ptsz);

EXPORT cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                                    size_t dynamic_shared, cudaStream_t stream) {
    return launch_function(function, grid, block, arguments, dynamic_shared, stream, false);
}
TWIN(cudaLaunchKernel, ptsz);

EXPORT cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block,
                                               void **arguments, size_t dynamic_shared,
                                               cudaStream_t stream) {
    return launch_function(function, grid, block, arguments, dynamic_shared, stream, true);
}
TWIN(cudaLaunchCooperativeKernel, ptsz);

EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function,
                                       void **arguments) {
    API_BEGIN();
    ApiKernel *kernel = kernel_of(function);
    if (kernel == NULL)
        return api_explain(cudaErrorInvalidDeviceFunction,
                           "%p was launched, but it is no kernel of this program", function);
    if (config == NULL) return api_result(cudaErrorInvalidValue);
    LaunchRequest request = {
        .kernel = kernel,
        .grid = config->gridDim,
        .block = config->blockDim,
        .dynamic_shared = config->dynamicSmemBytes,
        .stream = config->stream,
    };
    cudaError_t error = launch_attributes(&request, config->attrs, config->numAttrs);
    return error ? error : launch(&request, arguments, NULL, 0);
}
TWIN(cudaLaunchKernelExC, ptsz);
