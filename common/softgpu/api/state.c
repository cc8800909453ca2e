// The state of the process, its lock, and the sentences that softgpu prints. Nothing here works
// before the first call that needs it.
#include "softgpu/api/api.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Api api = {.stack_limit = 1024, .heap_limit = 8 << 20, .printf_limit = 1 << 20};

static pthread_mutex_t lock;
static pthread_once_t lock_once = PTHREAD_ONCE_INIT;

// Recursive: a host function that a stream runs may ask for the device's properties.
static void make_lock(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &attributes);
}

ApiLock api_lock(void) {
    pthread_once(&lock_once, make_lock);
    pthread_mutex_lock(&lock);
    return (ApiLock){1};
}

void api_unlock(ApiLock *held) {
    if (held->held) pthread_mutex_unlock(&lock);
}

// Prints a sentence unless the same was printed before: a launch in a loop that is refused each
// time explains itself once.
static void print_once(const char *text) {
    static char **printed;
    static int count;
    enum { PRINTED_MAX = 256 };
    for (int i = 0; i < count; i++)
        if (!strcmp(printed[i], text)) return;
    if (count == PRINTED_MAX) return;
    printed = realloc(printed, (size_t)(count + 1) * sizeof *printed);
    printed[count++] = strdup(text);
    fflush(stdout); // so that the sentence stands after what the program printed before
    fprintf(stderr, "softgpu: %s\n", text);
}

void api_note(const char *format, ...) {
    char text[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    API_ENTER();
    print_once(text);
}

cudaError_t api_explain(cudaError_t error, const char *format, ...) {
    char text[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    API_ENTER();
    print_once(text);
    return api_result(error);
}

cudaError_t api_unsupported(const char *function) {
    api_note("%s is not implemented; it returned error 801 (cudaErrorNotSupported)", function);
    bool runtime = strstr(function, "cuda") != NULL; // the driver's errors are not the runtime's
    return runtime ? api_result(cudaErrorNotSupported) : cudaErrorNotSupported;
}

// The capability of the newest PTX that the program has registered: it decides which GPU is
// modelled when the person didn't say.
static int newest_ptx(void) {
    int newest = 0;
    for (int m = 0; m < api.module_count; m++) {
        const FatbinWrapper *w = api.modules[m]->wrapper;
        if (w == NULL) continue;
        const void *single[2] = {w->data, NULL};
        const void *const *objects = w->version == 2 && w->objects ? w->objects : single;
        for (; *objects; objects++) {
            Fatbin fatbin;
            FatbinError error;
            if (!fatbin_read(*objects, SIZE_MAX, &fatbin, &error))
                continue; // module_load says what is wrong with it
            int sm = fatbin_newest_ptx(&fatbin);
            if (sm > newest) newest = sm;
            fatbin_free(&fatbin);
        }
    }
    return newest;
}

Gpu *api_gpu(void) {
    if (api.gpu == NULL) {
        int sm = newest_ptx();
        if (sm) gpu_choose(sm);
        api.gpu = gpu_get();
        api.gpu->stack_limit = api.stack_limit;
    }
    return api.gpu;
}

void handle_add(const void *handle, HandleKind kind) {
    pointer_map_put(&api.handles, handle, (void *)(uintptr_t)kind);
}

bool handle_is(const void *handle, HandleKind kind) {
    return handle && (HandleKind)(uintptr_t)pointer_map_get(&api.handles, handle) == kind;
}

void handle_remove(const void *handle) {
    pointer_map_take(&api.handles, handle);
}
