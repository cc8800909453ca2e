// Registration, and modules: from what nvcc's start-up code says to kernels that can be launched.
//
//   registered (names only) ──first use──► PTX chosen, unpacked, indexed, linked, placed
//                                             ──first launch of a kernel──► lowered
//
// A kernel's name is looked up in the fat binary of its own handle: two shared libraries may each
// have a kernel of that name.
#include "softgpu/api/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Grows an array of pointers by one.
static void append(void *array, int *count, void *item) {
    void ***items = array;
    *items = realloc(*items, (size_t)(*count + 1) * sizeof **items);
    if (*items == NULL) abort();
    (*items)[(*count)++] = item;
}

static Module *module_new(void) {
    Module *module = calloc(1, sizeof *module);
    if (module == NULL) abort();
    module->image_size = SIZE_MAX;
    append(&api.modules, &api.module_count, module);
    handle_add(module, HANDLE_MODULE);
    return module;
}

// Records why a module can't be loaded, and says it on stderr.
static cudaError_t refuse(Module *module, cudaError_t error) {
    module->state = MODULE_FAILED;
    module->error = error;
    return api_explain(error, "%s", module->message);
}

static ApiKernel *add_kernel(Module *module, const char *name) {
    ApiKernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL) abort();
    kernel->module = module;
    kernel->name = strdup(name);
    kernel->carveout = -1;
    append(&module->kernels, &module->kernel_count, kernel);
    handle_add(kernel, HANDLE_KERNEL);
    return kernel;
}

// ---- registration: called by constructors, before main

EXPORT void **__cudaRegisterFatBinary(void *wrapper) {
    API_ENTER();
    Module *module = module_new();
    module->wrapper = wrapper;
    return (void **)module;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **handle) {
    (void)handle;
}

// Called by atexit: the state is kept, for destructors of the program that still use the device.
EXPORT void __cudaUnregisterFatBinary(void **handle) {
    (void)handle;
}

EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                                   int thread_limit, uint3 *tid, uint3 *bid, dim3 *block,
                                   dim3 *grid, int *warp_size) {
    (void)device, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid;
    (void)warp_size;
    API_ENTER();
    if (handle_is(handle, HANDLE_MODULE))
        pointer_map_put(&api.functions, host, add_kernel((Module *)handle, name));
}

static ApiVariable *add_variable(void **handle, const void *host, const char *name, size_t size,
                                 bool constant) {
    if (!handle_is(handle, HANDLE_MODULE)) return NULL;
    Module *module = (Module *)handle;
    ApiVariable *variable = calloc(1, sizeof *variable);
    if (variable == NULL) abort();
    *variable =
        (ApiVariable){.module = module, .name = strdup(name), .size = size, .constant = constant};
    append(&module->variables, &module->variable_count, variable);
    pointer_map_put(&api.symbols, host, variable);
    return variable;
}

EXPORT void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext,
                              size_t size, int constant, int global) {
    (void)device, (void)ext, (void)global;
    API_ENTER();
    add_variable(handle, host, name, size, constant);
}

EXPORT void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name,
                                     int ext, size_t size, int constant, int global) {
    (void)device, (void)ext, (void)global;
    API_ENTER();
    ApiVariable *variable = add_variable(handle, host, name, size, constant);
    if (variable) variable->managed = host;
}

EXPORT void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t size) {
    (void)handle, (void)host, (void)size;
    api_note("the variable %s is registered as a host variable of device code, which is not "
             "implemented; kernels that use it will fail",
             name);
}

EXPORT void __cudaRegisterUnifiedTable(void **handle, void *table) {
    (void)handle, (void)table;
    api_note("unified function tables are not implemented; kernels that use them will fail");
}

// Called before the first touch of a __managed__ variable by the host.
EXPORT char __cudaInitModule(void **handle) {
    API_ENTER();
    if (!handle_is(handle, HANDLE_MODULE)) return 0;
    return module_load((Module *)handle) == cudaSuccess;
}

// ---- loading

static void note_registers(void *context, const char *kernel, uint32_t registers) {
    Module *module = context;
    struct RegisterCount *r =
        realloc(module->registers, (size_t)(module->register_count + 1) * sizeof *r);
    if (r == NULL) abort();
    module->registers = r;
    r[module->register_count++] = (struct RegisterCount){strdup(kernel), registers};
}

// The bytes of an entry where they are, or unpacked into *unpacked, which the caller frees.
static const uint8_t *bytes_of(const FatbinEntry *entry, size_t *size, uint8_t **unpacked,
                               FatbinError *error) {
    *unpacked = NULL;
    *size = entry->payload_size;
    if (entry->packing == PACKED_NOT) return entry->payload;
    return *unpacked = fatbin_unpack(entry, size, error);
}

// Reads the register counts from the machine code beside the PTX, where there is any.
static void read_cubin(Module *module, const Fatbin *fatbin) {
    const FatbinEntry *entry = fatbin_choose_cubin(fatbin, api_capability());
    FatbinError error;
    size_t size;
    uint8_t *unpacked = NULL;
    const uint8_t *elf = entry ? bytes_of(entry, &size, &unpacked, &error) : NULL;
    if (elf) cubin_registers(elf, size, note_registers, module);
    free(unpacked);
}

// Says which GPU the program's code is for, when it has no PTX for the modelled one.
static void describe_missing(Module *module) {
    char found[160] = "";
    size_t at = 0;
    for (int f = 0; f < module->fatbin_count; f++) {
        for (int i = 0; i < module->fatbins[f].count && at + 24 < sizeof found; i++) {
            const FatbinEntry *e = &module->fatbins[f].entries[i];
            int n = snprintf(found + at, sizeof found - at, "%s%s_%d%.1s", at ? ", " : "",
                             e->kind == FATBIN_PTX ? "compute" : "sm", e->sm, &e->suffix);
            at += (size_t)n;
        }
    }
    int sm = api_capability();
    const char *suffix = sm >= 90 ? "a" : "";
    snprintf(module->message, sizeof module->message,
             "the program holds no PTX that the modelled %s (capability %d.%d) can run; it holds: "
             "%s. Build it with -gencode arch=compute_%d%s,code=compute_%d%s, or choose another "
             "GPU (--gpu)",
             api_gpu()->figures.full_name, sm / 10, sm % 10, at ? found : "nothing", sm, suffix, sm,
             suffix);
}

// Can the modelled GPU run PTX for this target? A fat binary's entries were chosen so; text that a
// program loads itself may be for any.
static bool target_fits(const PtxModule *ptx) {
    int sm = api_capability();
    if (ptx->target_suffix == 'a') return ptx->target_sm == sm;
    if (ptx->target_suffix == 'f') return ptx->target_sm <= sm && ptx->target_sm / 10 == sm / 10;
    return ptx->target_sm <= sm;
}

static bool add_text(Module *module, const char *text, size_t length) {
    PtxError error = {0};
    PtxModule *ptx = ptx_index(text, length, &error);
    if (ptx && !target_fits(ptx)) {
        snprintf(module->message, sizeof module->message,
                 "PTX for sm_%d%.1s can't run on the modelled %s; choose another GPU (--gpu)",
                 ptx->target_sm, &ptx->target_suffix, api_gpu()->figures.full_name);
        ptx_free(ptx);
        return false;
    }
    if (ptx == NULL || !program_add(module->program, ptx, &error)) {
        snprintf(module->message, sizeof module->message, "PTX, line %u: %s", error.line,
                 error.message);
        return false;
    }
    return true;
}

// Adds the PTX of one fat binary. `*added` counts those that had some.
static bool add_fatbin(Module *module, const void *data, size_t limit, int *added) {
    Fatbin fatbin;
    FatbinError error;
    if (!fatbin_read(data, limit, &fatbin, &error)) {
        snprintf(module->message, sizeof module->message, "%s", error.message);
        return false;
    }
    Fatbin *fatbins =
        realloc(module->fatbins, (size_t)(module->fatbin_count + 1) * sizeof *fatbins);
    if (fatbins == NULL) abort();
    module->fatbins = fatbins;
    fatbins[module->fatbin_count++] = fatbin;
    read_cubin(module, &fatbin);
    const FatbinEntry *entry = fatbin_choose_ptx(&fatbin, api_capability());
    if (entry == NULL) return true;
    size_t size;
    uint8_t *unpacked;
    const char *text = (const char *)bytes_of(entry, &size, &unpacked, &error);
    if (text == NULL) {
        snprintf(module->message, sizeof module->message, "%s", error.message);
        return false;
    }
    bool good = add_text(module, text, size);
    free(unpacked);
    (*added)++;
    return good;
}

// Adds everything that a wrapper (version 1 or 2) leads to.
static bool add_wrapper(Module *module, const FatbinWrapper *w, int *added) {
    if (w->magic != FATBIN_WRAPPER_MAGIC || w->version < 1 || w->version > 2) {
        snprintf(module->message, sizeof module->message,
                 "the fat binary's wrapper has version %u; only 1 and 2 are known", w->version);
        return false;
    }
    if (w->version == 1) return add_fatbin(module, w->data, SIZE_MAX, added);
    // Linked: the blob of the device linker has the register counts, the objects have the PTX.
    int linked = 0;
    if (w->data && !add_fatbin(module, w->data, SIZE_MAX, &linked)) return false;
    *added += linked;
    for (const void *const *o = w->objects; o && *o && linked == 0; o++)
        if (!add_fatbin(module, *o, SIZE_MAX, added)) return false;
    return true;
}

// Adds an image that a program loads itself: PTX text, a fat binary, a wrapper or machine code.
static cudaError_t add_image(Module *module, int *added) {
    uint32_t magic = 0;
    size_t size = module->image_size;
    memcpy(&magic, module->image, size < 4 ? size : 4);
    bool good;
    if (magic == FATBIN_MAGIC) {
        good = add_fatbin(module, module->image, size, added);
    } else if (magic == FATBIN_WRAPPER_MAGIC) {
        good = add_wrapper(module, module->image, added);
    } else if (magic == 0x464c457f) {
        snprintf(module->message, sizeof module->message,
                 "the program loads machine code (a cubin) at run time; softgpu needs PTX: make a "
                 "fat binary with nvcc -fatbin -gencode arch=compute_XX,code=compute_XX");
        return cudaErrorNoKernelImageForDevice;
    } else {
        size_t length = size == SIZE_MAX ? strlen(module->image) : strnlen(module->image, size);
        good = add_text(module, module->image, length);
        *added += good;
        if (!good) return cudaErrorInvalidPtx;
    }
    return good ? cudaSuccess : cudaErrorInvalidKernelImage;
}

cudaError_t module_load(Module *module) {
    if (module->state == MODULE_LOADED) return cudaSuccess;
    if (module->state == MODULE_FAILED) return api_result(module->error);
    Gpu *gpu = api_gpu();
    module->program = program_new();
    int added = 0;
    if (module->wrapper) {
        if (!add_wrapper(module, module->wrapper, &added))
            return refuse(module, cudaErrorInvalidKernelImage);
    } else {
        cudaError_t error = add_image(module, &added);
        if (error) return refuse(module, error);
    }
    if (added == 0) {
        describe_missing(module);
        return refuse(module, cudaErrorNoKernelImageForDevice);
    }
    PtxError error = {0};
    if (!program_place(module->program, gpu->memory, &error)) {
        snprintf(module->message, sizeof module->message, "the program can't be linked: %s",
                 error.message);
        return refuse(module, cudaErrorInvalidPtx);
    }
    module->state = MODULE_LOADED;
    for (int i = 0; i < module->variable_count; i++) {
        ApiVariable *v = module->variables[i];
        uint64_t size;
        if (v->managed)
            *v->managed =
                (void *)(uintptr_t)program_variable_address(module->program, v->name, &size);
    }
    return cudaSuccess;
}

// How many bytes an image has, where it says so itself; else SIZE_MAX.
static size_t image_extent(const void *image) {
    uint32_t magic = 0;
    uint64_t entries;
    memcpy(&magic, image, 1); // PTX may be shorter than the magic number
    bool text = (magic & 0xff) != (FATBIN_MAGIC & 0xff) && (magic & 0xff) != 0x7f &&
                (magic & 0xff) != (FATBIN_WRAPPER_MAGIC & 0xff);
    if (text) return strlen(image);
    memcpy(&magic, image, sizeof magic);
    if (magic != FATBIN_MAGIC) return SIZE_MAX;
    memcpy(&entries, (const uint8_t *)image + 8, sizeof entries);
    return entries < 1ull << 40 ? entries + 16 : SIZE_MAX;
}

Module *module_from_image(const void *image, size_t size, bool copy, cudaError_t *error) {
    *error = cudaSuccess;
    if (image == NULL) {
        *error = cudaErrorInvalidValue;
        return NULL;
    }
    Module *module = module_new();
    module->image = (void *)image;
    module->image_size = size;
    if (!copy && size == SIZE_MAX) { // the program may free it, and the module be loaded again
        size = image_extent(image);
        copy = size != SIZE_MAX;
        if (copy) module->image_size = size;
    }
    if (copy) {
        module->image = malloc(size + 1);
        if (module->image == NULL) abort();
        memcpy(module->image, image, size);
        ((char *)module->image)[size] = 0;
    }
    *error = module_load(module);
    return module;
}

// Gives up a module that the program unloads. Its kernels' records and its variables' memory stay:
// another part of the program may still hold their addresses.
void module_free(Module *module) {
    handle_remove(module);
    for (int i = 0; i < module->kernel_count; i++) handle_remove(module->kernels[i]);
}

// ---- kernels and symbols

ApiKernel *module_kernel(Module *module, const char *name) {
    for (int i = 0; i < module->kernel_count; i++)
        if (!strcmp(module->kernels[i]->name, name)) return module->kernels[i];
    PtxFunction *function = program_function(module->program, name);
    if (function == NULL || !function->is_entry) return NULL;
    return add_kernel(module, name);
}

ApiKernel *kernel_of(const void *function) {
    if (handle_is(function, HANDLE_KERNEL)) return (ApiKernel *)function;
    return pointer_map_get(&api.functions, function);
}

cudaError_t kernel_prepare(ApiKernel *kernel) {
    uint64_t schedule = api_gpu()->settings->schedule;
    if (kernel->code && kernel->code->schedule != schedule) { // shared memory lies elsewhere then
        kernel_free(kernel->code);
        kernel->code = NULL;
    }
    if (kernel->code) return cudaSuccess;
    if (kernel->error) return api_result(kernel->error);
    Module *module = kernel->module;
    cudaError_t failed = module_load(module);
    if (failed) return failed;
    PtxFunction *function = program_function(module->program, kernel->name);
    if (function == NULL) {
        kernel->error = cudaErrorInvalidDeviceFunction;
        return api_explain(kernel->error, "the kernel %s is not in the program's PTX for this GPU",
                           kernel->name);
    }
    uint32_t registers = 0;
    for (int i = 0; i < module->register_count; i++)
        if (!strcmp(module->registers[i].kernel, kernel->name))
            registers = module->registers[i].registers;
    PtxError error = {0};
    Linker *linker = program_linker(module->program);
    linker->schedule = schedule;
    linker->usual_alignment = !api_gpu()->settings->strict;
    kernel->code = kernel_lower(function, linker, registers, &error);
    if (kernel->code) return cudaSuccess;
    kernel->error = cudaErrorInvalidPtx;
    return api_explain(kernel->error, "the PTX of kernel %s, line %u: %s", kernel->name, error.line,
                       error.message);
}

cudaError_t symbol_find(const void *symbol, uint64_t *address, size_t *size, bool *constant) {
    ApiVariable *variable = pointer_map_get(&api.symbols, symbol);
    if (variable == NULL)
        return api_explain(cudaErrorInvalidSymbol,
                           "%p is not the address of a __device__ or __constant__ variable",
                           symbol);
    cudaError_t error = module_load(variable->module);
    if (error) return error;
    uint64_t placed_size;
    *address = program_variable_address(variable->module->program, variable->name, &placed_size);
    if (*address == 0)
        return api_explain(cudaErrorInvalidSymbol, "the variable %s is not in the program's PTX",
                           variable->name);
    *size = placed_size;
    if (constant) *constant = variable->constant;
    return cudaSuccess;
}

void modules_reset(void) {
    for (int m = 0; m < api.module_count; m++) {
        Module *module = api.modules[m];
        for (int k = 0; k < module->kernel_count; k++) {
            ApiKernel *kernel = module->kernels[k];
            if (kernel->code) kernel_free(kernel->code);
            kernel->code = NULL;
            kernel->dynamic_limit = 0;
        }
        if (module->state != MODULE_LOADED) continue;
        for (int v = 0; v < module->variable_count; v++) {
            uint64_t size, address = program_variable_address(module->program,
                                                              module->variables[v]->name, &size);
            if (address) global_free(api.gpu->memory, address);
        }
        module->state = MODULE_NEW;
        program_free(module->program);
        module->program = NULL;
        for (int f = 0; f < module->fatbin_count; f++) fatbin_free(&module->fatbins[f]);
        module->fatbin_count = 0;
        module->register_count = 0;
    }
}

EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
    API_ENTER();
    ApiKernel *k = kernel_of(host);
    if (k == NULL) return api_result(cudaErrorInvalidDeviceFunction);
    *kernel = (cudaKernel_t)k;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetKernel(cudaKernel_t *kernel, const void *host) {
    if (kernel == NULL) return api_result(cudaErrorInvalidValue);
    return __cudaGetKernel(kernel, host);
}

EXPORT cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function, const void *host) {
    return cudaGetKernel((cudaKernel_t *)function, host);
}

EXPORT cudaError_t cudaFuncGetName(const char **name, const void *function) {
    API_ENTER();
    ApiKernel *kernel = kernel_of(function);
    if (kernel == NULL || name == NULL)
        return api_result(kernel ? cudaErrorInvalidValue : cudaErrorInvalidDeviceFunction);
    *name = kernel->name;
    return cudaSuccess;
}

EXPORT cudaError_t cudaFuncGetParamInfo(const void *function, size_t index, size_t *offset,
                                        size_t *size) {
    API_BEGIN();
    ApiKernel *kernel = kernel_of(function);
    if (kernel == NULL) return api_result(cudaErrorInvalidDeviceFunction);
    cudaError_t error = kernel_prepare(kernel);
    if (error) return error;
    if (index >= (size_t)kernel->code->param_count || offset == NULL)
        return api_result(cudaErrorInvalidValue);
    *offset = kernel->code->params[index].offset;
    if (size) *size = kernel->code->params[index].size;
    return cudaSuccess;
}
