// Shared by the files that implement the driver API on top of the runtime API.
#ifndef SOFTGPU_DRIVER_H
#define SOFTGPU_DRIVER_H

#include "softgpu/api/api.h"

// Runs a call of the runtime and returns its code as the driver's: the numbers are the same. An
// error of the driver API must not show up in the program's next cudaGetLastError.
#define DRIVER(call)                                                                               \
    do {                                                                                           \
        cudaError_t kept_error = api_keep_error();                                                 \
        cudaError_t driver_error = (call);                                                         \
        api_restore_error(kept_error);                                                             \
        return (CUresult)driver_error;                                                             \
    } while (0)

static inline void *pointer_of(CUdeviceptr address) {
    return (void *)(uintptr_t)address;
}

#endif
