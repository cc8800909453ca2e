// Which device answers the CUDA runtime. Looking for a GPU is done in a child process, so that a
// driver that crashes or hangs on to state can't hurt this one.
#define _GNU_SOURCE // dladdr, RTLD_DEFAULT
#include "harness/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// The toolkit that the program was built with; the Makefile says.
#ifndef TOOLKIT_LIBRARIES
#define TOOLKIT_LIBRARIES ""
#endif
#define SECOND_START "HARNESS_GPU" // set to the GPU's number in the re-executed program

// ---- finding libraries

typedef struct {
    char softgpu_folder[PATH_MAX]; // never looked into
    const char *file;              // "libcuda.so.1"
    char found[PATH_MAX];          // "" = not yet
} Search;

// Looks for the file in a folder, unless that is softgpu's.
static void try_folder(Search *s, const char *folder, size_t length) {
    char path[PATH_MAX], real[PATH_MAX];
    if (s->found[0] != 0 || length == 0 || length + strlen(s->file) + 2 > sizeof path) return;
    snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, s->file);
    if (access(path, R_OK) != 0 || realpath(path, real) == NULL) return;
    size_t own = strlen(s->softgpu_folder);
    if (own > 0 && strncmp(real, s->softgpu_folder, own) == 0 && real[own] == '/') return;
    strcpy(s->found, path);
}

// The folders of a list like LD_LIBRARY_PATH's.
static void try_list(Search *s, const char *list) {
    while (list != NULL && *list != 0) {
        size_t length = strcspn(list, ":");
        try_folder(s, list, length);
        list += length + (list[length] == ':');
    }
}

// The folders of the loader's configuration; `include` lines name more files by patterns.
static void try_configuration(Search *s, const char *path, int depth) {
    FILE *stream = fopen(path, "r");
    if (stream == NULL) return;
    char line[PATH_MAX];
    while (s->found[0] == 0 && fgets(line, sizeof line, stream) != NULL) {
        line[strcspn(line, "#\n")] = 0;
        char *start = line + strspn(line, " \t");
        for (char *end = start + strlen(start); end > start && strchr(" \t", end[-1]);) *--end = 0;
        if (strncmp(start, "include", 7) != 0) {
            try_folder(s, start, strlen(start));
            continue;
        }
        char *pattern = start + 7 + strspn(start + 7, " \t"), absolute[PATH_MAX + 8];
        snprintf(absolute, sizeof absolute, "%s%s", pattern[0] == '/' ? "" : "/etc/", pattern);
        glob_t files;
        if (depth > 4 || glob(absolute, 0, NULL, &files) != 0) continue;
        for (size_t f = 0; f < files.gl_pathc; f++) {
            try_configuration(s, files.gl_pathv[f], depth + 1);
        }
        globfree(&files);
    }
    fclose(stream);
}

static void try_loader(Search *s) {
    try_list(s, getenv("LD_LIBRARY_PATH"));
    try_configuration(s, "/etc/ld.so.conf", 0);
    try_list(s, "/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib64:/usr/lib64:/lib:/usr/lib:"
                "/usr/lib/wsl/lib:/usr/local/nvidia/lib64");
}

// The toolkit's runtime: of CUDA_HOME, the toolkit that built the program, the usual place, the one
// installed beside softgpu, or any that the loader knows.
static void try_toolkit(Search *s) {
    char beside[PATH_MAX + 32], path[3 * PATH_MAX];
    snprintf(beside, sizeof beside, "%s/../../toolkit/nvidia/cu13", s->softgpu_folder);
    const char *const homes[] = {getenv("CUDA_HOME"), TOOLKIT_LIBRARIES, "/usr/local/cuda", beside};
    for (size_t h = 0; h < sizeof homes / sizeof *homes; h++) {
        if (homes[h] == NULL || homes[h][0] == 0) continue;
        snprintf(path, sizeof path, "%.4000s/lib64:%.4000s/targets/x86_64-linux/lib:%.4000s/lib",
                 homes[h], homes[h], homes[h]);
        try_list(s, path);
    }
    try_loader(s);
}

// The folder of softgpu's library, which answers now.
static void find_softgpu_folder(const void *symbol, char *folder) {
    Dl_info info;
    folder[0] = 0;
    if (dladdr(symbol, &info) == 0 || realpath(info.dli_fname, folder) == NULL) return;
    char *slash = strrchr(folder, '/');
    if (slash != NULL) *slash = 0;
}

// ---- asking the driver

typedef struct {
    int index, capability; // -1: no usable GPU
    char name[128];
} FoundGpu;

static bool can_run(const Chapter *chapter, int capability) {
    if (capability / 10 == 12) return chapter->min_capability <= 80; // no wgmma, no tcgen05
    if (!chapter->arch_specific) return capability >= chapter->min_capability;
    return capability / 10 == chapter->min_capability / 10;
}

// In the child: the first GPU that can run the chapter, else the first one at all.
static FoundGpu ask_driver(const char *libcuda, const Chapter *chapter) {
    FoundGpu found = {.index = -1, .capability = -1};
    void *library = dlopen(libcuda, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return found;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int (*count)(int *) = (int (*)(int *))dlsym(library, "cuDeviceGetCount");
    int (*get)(int *, int) = (int (*)(int *, int))dlsym(library, "cuDeviceGet");
    int (*name)(char *, int, int) = (int (*)(char *, int, int))dlsym(library, "cuDeviceGetName");
    int (*attribute)(int *, int, int) =
        (int (*)(int *, int, int))dlsym(library, "cuDeviceGetAttribute");
    int gpus = 0;
    if (!init || !count || !get || !name || !attribute) return found;
    if (init(0) != 0 || count(&gpus) != 0) return found;
    for (int g = 0; g < gpus; g++) {
        enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 }; // CUdevice_attribute
        int device, major, minor;
        if (get(&device, g) != 0 || attribute(&major, CAPABILITY_MAJOR, device) != 0 ||
            attribute(&minor, CAPABILITY_MINOR, device) != 0) {
            continue;
        }
        int capability = major * 10 + minor;
        bool better = found.index < 0 ||
                      (!can_run(chapter, found.capability) && can_run(chapter, capability));
        if (!better) continue;
        found.index = g;
        found.capability = capability;
        if (name(found.name, sizeof found.name - 1, device) != 0) strcpy(found.name, "GPU");
    }
    return found;
}

static FoundGpu find_gpu(const char *libcuda, const Chapter *chapter) {
    FoundGpu found = {.index = -1, .capability = -1};
    int ends[2];
    if (libcuda[0] == 0 || pipe(ends) != 0) return found;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        FoundGpu answer = ask_driver(libcuda, chapter);
        ssize_t sent = write(ends[1], &answer, sizeof answer);
        _exit(sent == sizeof answer ? 0 : 1);
    }
    close(ends[1]);
    FoundGpu answer;
    if (child > 0 && read(ends[0], &answer, sizeof answer) == sizeof answer) {
        answer.name[sizeof answer.name - 1] = 0;
        found = answer;
    }
    close(ends[0]);
    if (child > 0) waitpid(child, NULL, 0);
    return found;
}

// Starts the program again on the real libraries. Returns only if that fails.
static void start_again(const char *libcudart, const char *libcuda, int gpu, char **argv) {
    char preload[3 * PATH_MAX], number[16];
    const char *before = getenv("LD_PRELOAD");
    // libcuda too: the runtime opens it by name, and our run path would find softgpu's.
    snprintf(preload, sizeof preload, "%s:%s%s%.4000s", libcudart, libcuda,
             before != NULL && before[0] != 0 ? ":" : "", before != NULL ? before : "");
    snprintf(number, sizeof number, "%d", gpu);
    setenv("LD_PRELOAD", preload, 1);
    setenv(SECOND_START, number, 1);
    fflush(NULL);
    execv("/proc/self/exe", argv);
}

// ---- opening

// softgpu's options travel through its environment: there is one way in. An option wins over the
// environment, which wins over the chapter's default.
static void set_environment(const Options *o, const Chapter *chapter) {
    const char *const given[][2] = {
        {"SOFTGPU_GPU", o->gpu},
        {"SOFTGPU_CLOCK", o->clock},
        {"SOFTGPU_SMS", o->sms},
        {"SOFTGPU_CHECK", o->check},
        {"SOFTGPU_ASYNC", o->async},
        {"SOFTGPU_NUMERICS", o->numerics},
        {"SOFTGPU_THREADS", o->threads},
        {"SOFTGPU_STATS", o->stats ? "1" : NULL},
        {"SOFTGPU_REPORT_FILE", o->report},
    };
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (given[i][1] != NULL) setenv(given[i][0], given[i][1], 1);
    }
    if (o->report != NULL) setenv("SOFTGPU_REPORT", "json", 1);
    if (o->report != NULL && strcmp(o->report, "-") == 0) {
        setenv("SOFTGPU_REPORT_FILE", "/dev/stdout", 1);
    }
    if (o->strict || o->no_strict) setenv("SOFTGPU_STRICT", o->strict ? "1" : "0", 1);
    setenv("SOFTGPU_STRICT", "1", 0);
    setenv("SOFTGPU_GPU", chapter->gpu, 0);
    if (chapter->sms > 0 && !options_size_given(o) && o->input == NULL) {
        char sms[16];
        snprintf(sms, sizeof sms, "%d", chapter->sms);
        setenv("SOFTGPU_SMS", sms, 0);
    }
    if (o->schedule_count > 0) {
        char first[32];
        snprintf(first, sizeof first, "%llu", (unsigned long long)o->schedules[0]);
        setenv("SOFTGPU_SCHEDULE", first, 1);
    }
}

// Which checks are on in softgpu, and what that means for the buffers.
static void read_checks(Device *d) {
    const char *list = getenv("SOFTGPU_CHECK");
    if (list == NULL || list[0] == 0) list = "all";
    static const char *const names[] = {"mem", "race", "sync"};
    bool all = strstr(list, "all") != NULL;
    snprintf(d->checks, sizeof d->checks, "%s", list);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        if (!all && strstr(list, names[n]) == NULL) continue;
        size_t used = strlen(d->checks_but_init);
        snprintf(d->checks_but_init + used, sizeof d->checks_but_init - used, "%s%s",
                 used > 0 ? "," : "", names[n]);
    }
    if (d->checks_but_init[0] == 0) strcpy(d->checks_but_init, "none");
    d->init_check = all || strstr(list, "init") != NULL;
    d->guards = !all && strstr(list, "mem") == NULL;
    d->poisoned_workspace = !d->init_check;
}

static bool describe(Device *d, int index, Message *message) {
    struct cudaDeviceProp properties;
    cudaError_t error = cudaSetDevice(index);
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, index);
    if (error != cudaSuccess) {
        return refuse(message, "the device doesn't open: %s", cudaGetErrorString(error));
    }
    d->capability = properties.major * 10 + properties.minor;
    d->sms = properties.multiProcessorCount;
    d->l2_bytes = (size_t)properties.l2CacheSize;
    int memory_kilohertz = 0, bus_bits = 0; // of a double-data-rate bus
    if (cudaDeviceGetAttribute(&memory_kilohertz, cudaDevAttrMemoryClockRate, index) ==
            cudaSuccess &&
        cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, index) == cudaSuccess)
        d->hbm_bytes_per_s = 2.0 * memory_kilohertz * 1e3 * (bus_bits / 8.0);
    if (d->softgpu != NULL) {
        snprintf(d->name, sizeof d->name, "%s", d->softgpu->gpu_name());
        snprintf(d->full_name, sizeof d->full_name, "%s", d->softgpu->gpu_full_name());
        if (d->sms != d->softgpu->gpu_sms()) // fewer
            snprintf(d->full_name, sizeof d->full_name, "%.200s with %d SMs",
                     d->softgpu->gpu_full_name(), d->sms);
        d->clock_ghz = d->softgpu->clock_ghz();
        return true;
    }
    int kilohertz = 0;
    if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, index) == cudaSuccess) {
        d->clock_ghz = kilohertz * 1e-6;
    }
    snprintf(d->full_name, sizeof d->full_name, "%.255s", properties.name);
    snprintf(d->name, sizeof d->name, "%.63s", properties.name);
    return true;
}

// Looks for a GPU and moves to it. Returns when softgpu is to be used (a note may say why), or false
// when --device gpu can't be had.
static bool look_for_gpu(const Options *o, const Chapter *chapter, char **argv, Device *d,
                         Message *message) {
    Search cuda = {.file = "libcuda.so.1"}, runtime = {.file = "libcudart.so.13"};
    find_softgpu_folder((const void *)d->softgpu->stats, cuda.softgpu_folder);
    strcpy(runtime.softgpu_folder, cuda.softgpu_folder);
    try_loader(&cuda);
    FoundGpu gpu = find_gpu(cuda.found, chapter);
    if (gpu.index < 0) {
        snprintf(d->note, sizeof d->note, "no GPU found");
        if (o->device != DEVICE_GPU) return true;
        return refuse(message,
                      "--device gpu: no usable GPU found (%s); leave the option out to run "
                      "on softgpu",
                      cuda.found[0] != 0 ? "the driver reports none" : "there is no libcuda.so.1");
    }
    if (!can_run(chapter, gpu.capability)) {
        snprintf(d->note, sizeof d->note,
                 "the GPU found, %s, has compute capability %d.%d; chapter %d needs %s%d.%d",
                 gpu.name, gpu.capability / 10, gpu.capability % 10, chapter->number,
                 chapter->arch_specific ? "exactly " : "", chapter->min_capability / 10,
                 chapter->min_capability % 10);
        if (o->device != DEVICE_GPU) return true;
        return refuse(message, "--device gpu: %s", d->note);
    }
    try_toolkit(&runtime);
    if (runtime.found[0] == 0) {
        snprintf(d->note, sizeof d->note,
                 "a GPU is there, but no libcudart.so.13 of a CUDA toolkit");
        if (o->device != DEVICE_GPU) return true;
        return refuse(message, "--device gpu: %s; set CUDA_HOME to one", d->note);
    }
    start_again(runtime.found, cuda.found, gpu.index, argv);
    return refuse(message, "can't start again on the GPU: %s", strerror(errno));
}

bool device_open(const Options *o, const Chapter *chapter, char **argv, Device *d,
                 Message *message) {
    *d = (Device){0};
    const char *second_start = getenv(SECOND_START);
    const SoftgpuInterface *(*interface)(void) =
        (const SoftgpuInterface *(*)(void))dlsym(RTLD_DEFAULT, SOFTGPU_INTERFACE_SYMBOL);

    if (interface == NULL) { // a real runtime: after our second start, or the person's own doing
        if (o->device == DEVICE_SOFTGPU) {
            return refuse(message,
                          "--device softgpu: another libcudart answers; unset LD_PRELOAD and "
                          "LD_LIBRARY_PATH");
        }
        if (o->trace != NULL) {
            return refuse(message, "--trace: only softgpu draws timelines, and a GPU answers here");
        }
        unsetenv("LD_PRELOAD"); // for the plots' Python
        unsetenv(SECOND_START);
        d->guards = d->poisoned_workspace = true;
        if (!describe(d, second_start != NULL ? atoi(second_start) : 0, message)) return false;
        if (can_run(chapter, d->capability)) return true;
        return refuse(message,
                      "%s (%d.%d) can't run chapter %d, which needs %d.%d; use --device "
                      "softgpu",
                      d->full_name, d->capability / 10, d->capability % 10, chapter->number,
                      chapter->min_capability / 10, chapter->min_capability % 10);
    }
    d->softgpu = interface();
    if (second_start != NULL && o->device != DEVICE_SOFTGPU) {
        return refuse(message,
                      "started again for a GPU, yet softgpu answers: unset %s and LD_PRELOAD, "
                      "or use --device softgpu",
                      SECOND_START);
    }
    bool wants_softgpu = o->device == DEVICE_SOFTGPU ||
                         (o->device == DEVICE_AUTO && (o->gpu != NULL || o->trace != NULL));
    if (!wants_softgpu && !look_for_gpu(o, chapter, argv, d, message)) return false;

    set_environment(o, chapter);
    read_checks(d);
    if (!describe(d, 0, message)) return false;
    if (can_run(chapter, d->capability)) return true;
    return refuse(message, "--gpu %s: chapter %d needs compute capability %d.%d, %s has %d.%d",
                  d->name, chapter->number, chapter->min_capability / 10,
                  chapter->min_capability % 10, d->name, d->capability / 10, d->capability % 10);
}

double device_peak(const Device *d, Dtype dtype) {
    // FLOP per clock and SM of the datasheets: fp32 on CUDA cores, fp16/bf16 and fp8 dense on the
    // tensor units.
    static const struct {
        int capability;
        double fp32, fp16, fp8;
    } rates[] = {{80, 128, 2048, 0}, {90, 256, 4096, 8192}, {100, 256, 8192, 16384}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        if (rates[i].capability != d->capability) continue;
        double rate = dtype == DTYPE_FP32  ? rates[i].fp32
                      : dtype == DTYPE_FP8 ? rates[i].fp8
                                           : rates[i].fp16;
        return rate * d->sms * d->clock_ghz * 1e9;
    }
    return 0;
}
