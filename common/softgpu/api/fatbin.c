// Reading fat binaries. Layout: a 16-byte header (magic, version, header size, size of all
// entries), then entries back to back, each a header of at least 64 bytes and a payload.
// Invariant: nothing is read beyond min(limit, what the header claims).
#include "softgpu/api/fatbin.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEADER_SIZE = 16,
    ENTRY_SIZE = 64,
    FLAG_LZ4 = 0x2000,
    FLAG_ZSTD = 0x8000,
    FLAG_ARCH = 0x100000,
    FLAG_FAMILY = 0x200000,
    ENTRIES_MAX = 4096,
};
// More than any program's PTX: a bound for what a damaged file can make us allocate.
#define UNPACKED_MAX ((size_t)1 << 31)

static bool fail(FatbinError *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(FatbinError *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return false;
}

// Little-endian loads from bytes of any alignment (we only run on little-endian hosts).
static uint16_t load16(const uint8_t *p) {
    uint16_t x;
    memcpy(&x, p, sizeof x);
    return x;
}
static uint32_t load32(const uint8_t *p) {
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}
static uint64_t load64(const uint8_t *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

// Fills an entry from its header at `p`; its sizes have been checked against the fat binary.
static bool read_entry(const uint8_t *p, uint32_t header, uint64_t payload, FatbinEntry *e,
                       FatbinError *error) {
    uint64_t flags = load64(p + 0x28);
    uint32_t packed = load32(p + 0x10);
    uint64_t unpacked = load64(p + 0x38);
    *e = (FatbinEntry){
        .kind = (FatbinKind)load16(p),
        .sm = (int)load32(p + 0x1c),
        .suffix = flags & FLAG_ARCH     ? 'a'
                  : flags & FLAG_FAMILY ? 'f'
                                        : 0,
        .payload = p + header,
        .payload_size = payload,
        .unpacked_size = payload,
    };
    if (!(flags & (FLAG_LZ4 | FLAG_ZSTD))) return true;
    e->packing = flags & FLAG_ZSTD ? PACKED_ZSTD : PACKED_LZ4;
    if (packed > payload)
        return fail(error, "the fat binary is damaged: an entry's packed size is %u, it has %llu",
                    packed, (unsigned long long)payload);
    if (unpacked == 0 || unpacked > UNPACKED_MAX)
        return fail(error, "the fat binary is damaged: an entry's unpacked size is %llu bytes",
                    (unsigned long long)unpacked);
    e->payload_size = packed;
    e->unpacked_size = unpacked;
    return true;
}

bool fatbin_read(const void *data, size_t limit, Fatbin *fatbin, FatbinError *error) {
    *fatbin = (Fatbin){0};
    const uint8_t *p = data;
    if (p == NULL || limit < HEADER_SIZE || load32(p) != FATBIN_MAGIC)
        return fail(error, "this is no fat binary (it doesn't start with 50 ed 55 ba)");
    if (load16(p + 4) != 1 || load16(p + 6) < HEADER_SIZE || load16(p + 6) > limit)
        return fail(error,
                    "fat binary of version %u: only version 1 is known (is the toolkit newer "
                    "than 13.0?)",
                    load16(p + 4));
    uint32_t header = load16(p + 6);
    uint64_t size = load64(p + 8);
    if (size > limit - header)
        return fail(error, "the fat binary is cut off: it says %llu bytes, there are %zu",
                    (unsigned long long)size, limit - header);
    p += header;
    int capacity = 0;
    while (size > 0 && fatbin->count < ENTRIES_MAX) {
        if (size < ENTRY_SIZE)
            return fatbin_free(fatbin), fail(error, "the fat binary's last entry is cut off");
        uint32_t entry_header = load32(p + 4);
        uint64_t payload = load64(p + 8);
        if (entry_header < ENTRY_SIZE || entry_header > size || payload > size - entry_header)
            return fatbin_free(fatbin), fail(error, "the fat binary is damaged: an entry reaches "
                                                    "beyond its end");
        uint16_t kind = load16(p);
        if (kind == FATBIN_PTX || kind == FATBIN_CUBIN) {
            if (fatbin->count == capacity) {
                capacity = capacity ? 2 * capacity : 4;
                FatbinEntry *entries = realloc(fatbin->entries, capacity * sizeof *entries);
                if (entries == NULL) return fatbin_free(fatbin), fail(error, "out of memory");
                fatbin->entries = entries;
            }
            if (!read_entry(p, entry_header, payload, &fatbin->entries[fatbin->count], error))
                return fatbin_free(fatbin), false;
            fatbin->count++;
        }
        p += entry_header + payload;
        size -= entry_header + payload;
    }
    return true;
}

void fatbin_free(Fatbin *fatbin) {
    free(fatbin->entries);
    *fatbin = (Fatbin){0};
}

// How well an entry suits a GPU of capability `sm`; 0 = not at all. An 'a' entry runs on its own
// GPU only. It comes before the plain one of the same number: `-arch=sm_90a` compiles twice, and
// the plain PTX then holds the code for "feature absent".
static int suitability(const FatbinEntry *e, int sm) {
    if (e->suffix == 'a') return e->sm == sm ? 3000 : 0;
    if (e->suffix == 'f') return e->sm <= sm && e->sm / 10 == sm / 10 ? 2000 + e->sm : 0;
    return e->sm <= sm && e->sm > 0 ? 1 + e->sm : 0;
}

const FatbinEntry *fatbin_choose_ptx(const Fatbin *fatbin, int sm) {
    const FatbinEntry *best = NULL;
    int best_suitability = 0;
    for (int i = 0; i < fatbin->count; i++) {
        const FatbinEntry *e = &fatbin->entries[i];
        int s = e->kind == FATBIN_PTX ? suitability(e, sm) : 0;
        if (s > best_suitability) {
            best = e;
            best_suitability = s;
        }
    }
    return best;
}

const FatbinEntry *fatbin_choose_cubin(const Fatbin *fatbin, int sm) {
    const FatbinEntry *best = NULL;
    int best_suitability = 0;
    for (int i = 0; i < fatbin->count; i++) {
        const FatbinEntry *e = &fatbin->entries[i];
        // Plain machine code runs on GPUs of the same major version only.
        bool fits = e->kind == FATBIN_CUBIN && (e->suffix || e->sm / 10 == sm / 10);
        int s = fits ? suitability(e, sm) : 0;
        if (s > best_suitability) {
            best = e;
            best_suitability = s;
        }
    }
    return best;
}

int fatbin_newest_ptx(const Fatbin *fatbin) {
    int newest = 0;
    for (int i = 0; i < fatbin->count; i++)
        if (fatbin->entries[i].kind == FATBIN_PTX && fatbin->entries[i].sm > newest)
            newest = fatbin->entries[i].sm;
    return newest;
}

// Opens a compression library when the first packed entry is met; programs of this course are built
// with --no-compress and never need it.
static void *library_function(const char *library, const char *package, const char *name,
                              FatbinError *error) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *function = handle ? dlsym(handle, name) : NULL;
    if (function == NULL)
        fail(error,
             "the program's PTX is compressed and %s is not installed: install the package "
             "%s, or build with nvcc --no-compress",
             library, package);
    return function;
}

// Unpacks a Zstandard frame (nvcc's default).
static bool unpack_zstd(const FatbinEntry *e, uint8_t *out, FatbinError *error) {
    size_t (*decompress)(void *, size_t, const void *, size_t);
    *(void **)&decompress = library_function("libzstd.so.1", "libzstd1", "ZSTD_decompress", error);
    if (decompress == NULL) return false;
    size_t n = decompress(out, e->unpacked_size, e->payload, e->payload_size);
    if (n != e->unpacked_size) // error codes are huge, so they differ too
        return fail(error, "the fat binary is damaged: its Zstandard data can't be unpacked");
    return true;
}

// Unpacks a raw LZ4 block (nvcc --compress-mode=speed).
static bool unpack_lz4(const FatbinEntry *e, uint8_t *out, FatbinError *error) {
    int (*decompress)(const char *, char *, int, int);
    *(void **)&decompress =
        library_function("liblz4.so.1", "liblz4-1", "LZ4_decompress_safe", error);
    if (decompress == NULL) return false;
    if (e->payload_size > INT32_MAX || e->unpacked_size > INT32_MAX)
        return fail(error, "the fat binary is damaged: an LZ4 entry of %zu bytes", e->payload_size);
    int n = decompress((const char *)e->payload, (char *)out, (int)e->payload_size,
                       (int)e->unpacked_size);
    if (n < 0 || (size_t)n != e->unpacked_size)
        return fail(error, "the fat binary is damaged: its LZ4 data can't be unpacked");
    return true;
}

uint8_t *fatbin_unpack(const FatbinEntry *entry, size_t *size, FatbinError *error) {
    uint8_t *out = malloc(entry->unpacked_size + 1);
    if (out == NULL) {
        fail(error, "out of memory for %zu bytes of PTX", entry->unpacked_size);
        return NULL;
    }
    bool good = true;
    if (entry->packing == PACKED_ZSTD)
        good = unpack_zstd(entry, out, error);
    else if (entry->packing == PACKED_LZ4)
        good = unpack_lz4(entry, out, error);
    else
        memcpy(out, entry->payload, entry->payload_size);
    if (!good) {
        free(out);
        return NULL;
    }
    *size = entry->unpacked_size;
    if (entry->kind == FATBIN_PTX) // NULs that pad the text are no part of it
        while (*size > 0 && out[*size - 1] == 0) (*size)--;
    out[*size] = 0;
    return out;
}
