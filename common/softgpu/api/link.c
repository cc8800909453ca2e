// The driver's linker (cuLink…): PTX that a program links at run time.
//
// Nothing is compiled here. What was added is kept as fat binaries, and the "cubin" that
// cuLinkComplete returns is a wrapper around them, like the one that nvcc puts into a program with
// several objects: loading it (module.c) does the linking.
//
// An image outlives its linker: a module that was loaded from it may be loaded anew after a reset.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/api/driver.h"

enum { HEADER = 16, ENTRY = 64, OBJECTS_MAX = 256 };

struct CUlinkState_st {
    FatbinWrapper image;
    const void *objects[OBJECTS_MAX + 1]; // fat binaries
    int count;
    bool complete;
};

// Answers the options that have answers: the logs are empty, and it took no time.
static void answer(unsigned count, const CUjit_option *options, void **values) {
    uintptr_t info = 0, error = 0;
    char *info_log = NULL, *error_log = NULL;
    for (unsigned i = 0; i < count && options && values; i++) {
        switch (options[i]) {
        case CU_JIT_INFO_LOG_BUFFER: info_log = values[i]; break;
        case CU_JIT_ERROR_LOG_BUFFER: error_log = values[i]; break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            info = (uintptr_t)values[i];
            values[i] = NULL;
            break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            error = (uintptr_t)values[i];
            values[i] = NULL;
            break;
        case CU_JIT_WALL_TIME: values[i] = NULL; break; // the float 0
        default: break;
        }
    }
    if (info_log && info) *info_log = 0;
    if (error_log && error) *error_log = 0;
}

EXPORT CUresult cuLinkCreate(unsigned count, CUjit_option *options, void **values,
                             CUlinkState *state) {
    API_ENTER();
    if (state == NULL || (count && (options == NULL || values == NULL)))
        return CUDA_ERROR_INVALID_VALUE;
    CUlinkState made = calloc(1, sizeof *made);
    if (made == NULL) abort();
    made->image = (FatbinWrapper){.magic = FATBIN_WRAPPER_MAGIC, .version = 2};
    made->image.objects = made->objects;
    handle_add(made, HANDLE_LINK);
    answer(count, options, values);
    *state = made;
    return CUDA_SUCCESS;
}

// The number and suffix of ".target sm_90a" in PTX. false if there is none.
static bool find_target(const char *text, size_t size, unsigned *sm, char *suffix) {
    static const char word[] = ".target";
    const char *at = memmem(text, size, word, strlen(word));
    const char *end = text + size;
    if (at == NULL) return false;
    for (at += strlen(word); at < end && (*at == ' ' || *at == '\t'); at++) continue;
    if (end - at < 4 || strncmp(at, "sm_", 3)) return false;
    for (at += 3, *sm = 0; at < end && *at >= '0' && *at <= '9' && *sm < 10000; at++)
        *sm = 10 * *sm + (unsigned)(*at - '0');
    *suffix = at < end && (*at == 'a' || *at == 'f') ? *at : 0;
    return *sm > 0;
}

// A fat binary around PTX text (fatbin.c reads it).
static void *wrap_text(const char *text, size_t size) {
    unsigned sm;
    char suffix;
    if (!find_target(text, size, &sm, &suffix)) return NULL;
    uint64_t padded = (size + 8) / 8 * 8, all = ENTRY + padded;
    uint64_t flags = 1 | (suffix == 'a' ? 0x100000 : 0) | (suffix == 'f' ? 0x200000 : 0);
    uint32_t magic = FATBIN_MAGIC, entry_size = ENTRY;
    uint16_t version = 1, header = HEADER, kind = FATBIN_PTX, entry_version = 0x0101;
    uint8_t *b = calloc(1, HEADER + all);
    if (b == NULL) abort();
    memcpy(b, &magic, 4);
    memcpy(b + 4, &version, 2);
    memcpy(b + 6, &header, 2);
    memcpy(b + 8, &all, 8);
    uint8_t *e = b + HEADER;
    memcpy(e, &kind, 2);
    memcpy(e + 2, &entry_version, 2);
    memcpy(e + 4, &entry_size, 4);
    memcpy(e + 8, &padded, 8);
    memcpy(e + 0x1c, &sm, 4);
    memcpy(e + 0x28, &flags, 8);
    memcpy(e + ENTRY, text, size);
    return b;
}

EXPORT CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size,
                              const char *name, unsigned count, CUjit_option *options,
                              void **values) {
    API_ENTER();
    (void)name, (void)count, (void)options, (void)values;
    if (!handle_is(state, HANDLE_LINK)) return CUDA_ERROR_INVALID_HANDLE;
    if (data == NULL || size == 0 || state->complete) return CUDA_ERROR_INVALID_VALUE;
    if (state->count == OBJECTS_MAX) return CUDA_ERROR_OUT_OF_MEMORY;
    void *object = NULL;
    if (type == CU_JIT_INPUT_PTX) {
        object = wrap_text(data, strnlen(data, size));
        if (object == NULL) return CUDA_ERROR_INVALID_PTX;
    } else if (type == CU_JIT_INPUT_FATBINARY) {
        Fatbin fatbin;
        FatbinError error;
        if (!fatbin_read(data, size, &fatbin, &error)) return CUDA_ERROR_INVALID_IMAGE;
        fatbin_free(&fatbin);
        object = malloc(size);
        if (object == NULL) abort();
        memcpy(object, data, size);
    } else {
        api_note("cuLinkAddData: only PTX and fat binaries with PTX can be linked, not machine "
                 "code, objects or libraries");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    state->objects[state->count++] = object;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path,
                              unsigned count, CUjit_option *options, void **values) {
    if (path == NULL) return CUDA_ERROR_INVALID_VALUE;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return CUDA_ERROR_FILE_NOT_FOUND;
    char *bytes = NULL;
    size_t size = 0, got;
    do {
        bytes = realloc(bytes, size + 65537);
        if (bytes == NULL) abort();
        got = fread(bytes + size, 1, 65536, file);
        size += got;
    } while (got > 0);
    fclose(file);
    bytes[size] = 0;
    CUresult result = cuLinkAddData(state, type, bytes, size, path, count, options, values);
    free(bytes);
    return result;
}

EXPORT CUresult cuLinkComplete(CUlinkState state, void **image, size_t *size) {
    API_ENTER();
    if (!handle_is(state, HANDLE_LINK)) return CUDA_ERROR_INVALID_HANDLE;
    if (image == NULL || state->count == 0) return CUDA_ERROR_INVALID_VALUE;
    state->complete = true;
    *image = &state->image;
    if (size) *size = sizeof state->image;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkDestroy(CUlinkState state) {
    API_ENTER();
    if (!handle_is(state, HANDLE_LINK)) return CUDA_ERROR_INVALID_HANDLE;
    handle_remove(state);
    if (state->complete) return CUDA_SUCCESS; // the image stays
    for (int i = 0; i < state->count; i++) free((void *)state->objects[i]);
    free(state);
    return CUDA_SUCCESS;
}
