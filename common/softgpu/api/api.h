// What the files of api/ share: the process's one state, modules and kernels, and small helpers.
//
// Rules that hold everywhere in api/:
//   - Before main only bookkeeping: registrations are noted; the GPU, the PTX and everything else
//     come to life at the first call that needs them (api_gpu, module_load).
//   - One lock (API_ENTER) around all of it; work runs at once, inside the call that asks for it.
//   - A handle from the program is looked up in api.handles before it is used.
#ifndef SOFTGPU_API_H
#define SOFTGPU_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "softgpu/api/fatbin.h"
#include "softgpu/api/pointer_map.h"
#include "softgpu/machine/global.h"
#include "softgpu/machine/machine.h"
#include "softgpu/ptx/link.h"

#define EXPORT __attribute__((visibility("default")))
// The twin of a function for programs built with --default-stream per-thread: work is done in order
// whatever the stream, so it is the same function.
#define TWIN(name, suffix)                                                                         \
    extern EXPORT __typeof(name) name##_##suffix __attribute__((alias(#name)))

typedef struct Module Module;

// A kernel: what cudaKernel_t, cudaFunction_t, CUfunction and CUkernel point to.
typedef struct ApiKernel {
    Module *module;
    const char *name;       // mangled, as in the PTX
    Kernel *code;           // lowered at the first use, or NULL
    cudaError_t error;      // why that failed
    uint32_t dynamic_limit; // dynamic shared memory that the program has opted in to
    int carveout, cache_config, cluster_policy;
    bool non_portable_cluster, cluster_must_be_set;
    uint32_t required_cluster[3];
} ApiKernel;

// A __device__, __constant__ or __managed__ variable.
typedef struct {
    Module *module;
    const char *name;
    size_t size;
    bool constant;
    void **managed; // where the program keeps its pointer to the variable, or NULL
} ApiVariable;

typedef enum { MODULE_NEW, MODULE_LOADED, MODULE_FAILED } ModuleState;

// The code of one fat binary handle, of a library, or of a driver module.
struct Module {
    ModuleState state;
    cudaError_t error;
    char message[400]; // why loading failed; printed once
    bool told;
    const FatbinWrapper *wrapper; // registered by start-up code; or:
    void *image;                  // a copy of what cudaLibraryLoadData got
    size_t image_size;            // SIZE_MAX: unknown
    Fatbin *fatbins;
    int fatbin_count;
    Program *program;
    ApiKernel **kernels;
    int kernel_count;
    ApiVariable **variables;
    int variable_count;
    struct RegisterCount {
        char *kernel;
        uint32_t registers;
    } * registers;
    int register_count;
};

typedef enum {
    HANDLE_NONE,
    HANDLE_KERNEL,
    HANDLE_MODULE,
    HANDLE_STREAM,
    HANDLE_EVENT,
    HANDLE_GRAPH,
    HANDLE_GRAPH_NODE,
    HANDLE_GRAPH_EXEC,
    HANDLE_POOL,
    HANDLE_CONTEXT,
    HANDLE_LINK,
} HandleKind;

// The state of this process.
typedef struct {
    Gpu *gpu;             // NULL until something needs it: use api_gpu()
    cudaError_t sticky;   // a kernel's fault
    PointerMap handles;   // handle → its kind
    PointerMap functions; // host stub → ApiKernel
    PointerMap symbols;   // host shadow → ApiVariable
    Module **modules;
    int module_count;
    size_t stack_limit, heap_limit, printf_limit;
} Api;
extern Api api;

// ---- the lock

typedef struct {
    char held;
} ApiLock;
ApiLock api_lock(void);
void api_unlock(ApiLock *lock);
#define API_ENTER() ApiLock api_held __attribute__((cleanup(api_unlock), unused)) = api_lock()
// For calls that fail while a kernel's fault stands.
#define API_BEGIN()                                                                                \
    API_ENTER();                                                                                   \
    if (api.sticky) return api_result(api.sticky)

// ---- errors

// Remembers an error for cudaGetLastError and returns it.
cudaError_t api_result(cudaError_t error);
// The same, with a sentence for the person on stderr ("softgpu: …"); the same sentence only once.
cudaError_t api_explain(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Prints a sentence once, as api_explain does.
void api_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *api_error_name(int code, bool driver);
const char *api_error_text(int code);
void api_forget_error(void);
cudaError_t api_keep_error(void);
void api_restore_error(cudaError_t error);
// Prints that a function is not implemented, and returns cudaErrorNotSupported.
cudaError_t api_unsupported(const char *function);

// ---- the device

// The modelled GPU; made at the first call.
Gpu *api_gpu(void);
static inline int api_capability(void) {
    GpuFigures *f = &api_gpu()->figures;
    return 10 * f->capability_major + f->capability_minor;
}

// ---- handles

void handle_add(const void *handle, HandleKind kind);
bool handle_is(const void *handle, HandleKind kind);
void handle_remove(const void *handle);

// ---- modules and kernels (module.c)

// Reads, links and places a module's PTX if that has not been done.
cudaError_t module_load(Module *module);
// A module from PTX text, a fat binary, a wrapper or an ELF; not yet loaded.
Module *module_from_image(const void *image, size_t size, bool copy, cudaError_t *error);
void module_free(Module *module);
// The kernel of a module by name, or NULL.
ApiKernel *module_kernel(Module *module, const char *name);
// The kernel that a host stub's address or a kernel handle means, or NULL.
ApiKernel *kernel_of(const void *function);
// Lowers a kernel if that has not been done.
cudaError_t kernel_prepare(ApiKernel *kernel);
// The address and size of the variable whose host shadow this is.
cudaError_t symbol_find(const void *symbol, uint64_t *address, size_t *size, bool *constant);
// Forgets loaded modules' device state, after cudaDeviceReset; they are loaded anew at next use.
void modules_reset(void);

// ---- launches (launch.c)

typedef struct {
    ApiKernel *kernel;
    dim3 grid, block, cluster;
    bool has_cluster, cooperative;
    size_t dynamic_shared;
    cudaStream_t stream;
} LaunchRequest;

// Checks and runs a launch, or records it when its stream is being captured. `arguments` points to
// each argument, as the program has them; or `packed` is the parameter block.
cudaError_t launch(const LaunchRequest *request, void **arguments, const void *packed,
                   size_t packed_size);
// Completes a request from the kernel's own directives: clusters that it was compiled for.
void launch_complete(LaunchRequest *request);
// Checks a launch as the GPU would; explains what is wrong.
cudaError_t launch_check(const LaunchRequest *request);
// Runs a checked launch now. `parameters` is the kernel's parameter block.
cudaError_t launch_now(const LaunchRequest *request, const void *parameters);
// Copies arguments into a new parameter block; the caller frees it.
void *launch_pack(const ApiKernel *kernel, void **arguments);
// Reads a list of launch attributes into a request.
cudaError_t launch_attributes(LaunchRequest *request, const cudaLaunchAttribute *attributes,
                              unsigned count);

// ---- the device (device.c)

// Frees memory, unloads modules, forgets a fault.
void device_reset(void);
// A driver function by its plain name, from softgpu's libcuda.so.1; NULL if there is none.
void *driver_function(const char *name);

// ---- memory (memory.c, copy.c)

// Frees every allocation, for cudaDeviceReset.
void memory_free_all(void);

typedef enum { PLACE_HOST, PLACE_DEVICE, PLACE_MANAGED, PLACE_PINNED, PLACE_NOWHERE } Place;
// Where an address lies. PLACE_NOWHERE: in device address space, but in no live allocation, or the
// range leaves its allocation.
Place memory_place(const void *address, size_t size);
// Explains an address of PLACE_NOWHERE: "… 16 bytes past the end of …".
cudaError_t memory_complain(const char *call, const char *what, const void *address, size_t size);

// A copy of depth × height rows of width bytes; every copy function comes down to one.
typedef struct {
    void *to;
    const void *from;
    size_t width, height, depth;
    size_t to_pitch, from_pitch; // bytes between rows
    size_t to_slice, from_slice; // bytes between planes
    enum cudaMemcpyKind kind;
} Copy;
cudaError_t copy_check(const char *call, const Copy *copy);
void copy_now(const Copy *copy);
// Checks and runs a copy, or records it when the stream is being captured.
// A Copy from the parameters of cudaMemcpy3D; CUDA arrays are refused.
cudaError_t copy_from_3d(const char *call, const struct cudaMemcpy3DParms *p, Copy *copy);
cudaError_t copy_on_stream(const char *call, const Copy *copy, cudaStream_t stream);

// A fill of depth × height rows of width elements.
typedef struct {
    void *to;
    size_t width, height, depth, pitch, slice; // width in elements
    unsigned element, value;                   // element size: 1, 2, 4
} Fill;
cudaError_t fill_check(const char *call, const Fill *fill);
void fill_now(const Fill *fill);
cudaError_t fill_on_stream(const char *call, const Fill *fill, cudaStream_t stream);

// ---- streams and graphs (stream.c, graph.c, capture.c)

typedef struct Capture Capture;
typedef struct {
    struct CUgraphNode_st **nodes;
    int count;
} NodeSet;
struct CUstream_st {
    unsigned flags;
    int priority;
    unsigned long long id;
    Capture *capture; // NULL: not being captured
};
struct CUevent_st {
    unsigned flags;
    bool recorded;
    double at_us;
    Capture *capture; // recorded in a stream that was being captured
    NodeSet after;    // the nodes that it follows
};

// The stream record of a handle: legacy and per-thread default streams included. NULL if unknown.
struct CUstream_st *stream_of(cudaStream_t stream);

typedef enum {
    NODE_KERNEL,
    NODE_COPY,
    NODE_FILL,
    NODE_HOST,
    NODE_EMPTY,
    NODE_GRAPH,
    NODE_RECORD,
    NODE_WAIT,
} NodeKind;

struct CUgraphNode_st {
    NodeKind kind;
    bool disabled;
    struct CUgraph_st *graph;
    struct CUgraphNode_st **before; // the nodes that must run before this one
    int before_count;
    struct CUgraphNode_st *origin; // the node that this one was copied from (clone, instantiate)
    LaunchRequest launch;          // NODE_KERNEL
    void *parameters;
    size_t parameters_size;
    Copy copy;         // NODE_COPY
    Fill fill;         // NODE_FILL
    cudaHostFn_t host; // NODE_HOST
    void *host_data;
    struct CUgraph_st *child; // NODE_GRAPH
    cudaEvent_t event;        // NODE_RECORD, NODE_WAIT
    bool done;                // while the graph runs
};

struct CUgraph_st {
    struct CUgraphNode_st **nodes;
    int node_count;
};

// Appends a node that depends on `before`. The node is zeroed but for that.
struct CUgraphNode_st *graph_append(struct CUgraph_st *graph, NodeKind kind,
                                    struct CUgraphNode_st *const *before, size_t before_count);
// Appends a node to a stream's capture, after what the stream has recorded.
struct CUgraphNode_st *capture_append(struct CUstream_st *stream, NodeKind kind);
void event_record_now(struct CUevent_st *event);

// ---- the interface beside the CUDA API (interface.c)

void stats_add(const KernelStats *stats);
void stats_add_copy(double microseconds);

#endif
