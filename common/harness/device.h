// Which device answers the CUDA runtime: a GPU, or softgpu.
//
// The program is linked so that softgpu's libcudart is found first. If a GPU that can run the
// chapter is there, the program re-executes itself once with the toolkit's libcudart and the real
// libcuda preloaded; HARNESS_GPU in the environment marks that second start.
#ifndef DEVICE_H
#define DEVICE_H

#include "harness/options.h"
#include "softgpu/softgpu.h"

typedef struct {
    const SoftgpuInterface *softgpu; // NULL: a real GPU
    char name[64];                   // "h100", or what a real GPU calls itself
    char full_name[256];
    int capability; // 90
    int sms;
    double clock_ghz; // that times are given at; 0 = unknown
    size_t l2_bytes;
    double hbm_bytes_per_s; // softgpu's: what copies reach; a GPU's: the data sheet's. 0 = unknown
    bool guards; // buffers get guard bytes (softgpu's memory check watches exact bounds itself)
    bool poisoned_workspace; // softgpu's init check knows never-written memory by itself
    bool init_check;         // softgpu's is on
    char checks[64], checks_but_init[64]; // softgpu's checks, and those without init
    char note[512];                       // why not a GPU, for the heading; "" = nothing to say
} Device;

// Decides, opens and describes the device; may not return (re-execution). Before the first CUDA
// call. False: the message says why there is none, and what to do.
bool device_open(const Options *options, const Chapter *chapter, char **argv, Device *device,
                 Message *message);

// The dense peak of the dtype in FLOP/s on this device at its clock: the tensor units', for fp32 the
// CUDA cores'. 0 = unknown.
double device_peak(const Device *device, Dtype dtype);

#endif
