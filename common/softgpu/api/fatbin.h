// Reading the fat binaries that nvcc puts into programs: which PTX and machine code they hold,
// which of it to take for the modelled GPU, and how to unpack it. Everything is bounds-checked: a
// fat binary may come from a file.
#ifndef SOFTGPU_FATBIN_H
#define SOFTGPU_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FATBIN_MAGIC         0xba55ed50u
#define FATBIN_WRAPPER_MAGIC 0x466243b1u

typedef enum { FATBIN_PTX = 1, FATBIN_CUBIN = 2 } FatbinKind;
typedef enum { PACKED_NOT, PACKED_LZ4, PACKED_ZSTD } Packing;

typedef struct {
    FatbinKind kind;
    int sm;      // 80, 90, 100, …
    char suffix; // 'a' (this GPU only), 'f' (its family), or 0
    Packing packing;
    const uint8_t *payload; // inside the fat binary
    size_t payload_size;    // stored bytes
    size_t unpacked_size;   // payload_size when it is not packed
} FatbinEntry;

typedef struct {
    FatbinEntry *entries;
    int count;
} Fatbin;

// Why reading failed, in a sentence.
typedef struct {
    char message[256];
} FatbinError;

// What nvcc's start-up code registers: a pointer to a fat binary, or (rdc) to several.
typedef struct {
    uint32_t magic, version; // version 1: plain; 2: linked
    const void *data;
    const void *const *objects; // version 2: one fat binary per object file, ended by NULL
} FatbinWrapper;

// Reads the entries of the fat binary at `data`, of which `limit` bytes may be read (SIZE_MAX: as
// much as its header says). Entries of unknown kinds are left out. Payloads stay where they are.
bool fatbin_read(const void *data, size_t limit, Fatbin *fatbin, FatbinError *error);
void fatbin_free(Fatbin *fatbin);

// The PTX for a GPU of capability `sm`: its own 'a' PTX, else that of its family, else the newest
// plain PTX that isn't newer than the GPU. NULL if there is none.
const FatbinEntry *fatbin_choose_ptx(const Fatbin *fatbin, int sm);
// The machine code that a GPU of capability `sm` would run, or NULL.
const FatbinEntry *fatbin_choose_cubin(const Fatbin *fatbin, int sm);
// The newest PTX's capability, whatever its suffix; 0 if there is no PTX.
int fatbin_newest_ptx(const Fatbin *fatbin);

// Unpacks an entry into memory that the caller frees; a NUL follows its *size bytes.
uint8_t *fatbin_unpack(const FatbinEntry *entry, size_t *size, FatbinError *error);

// Reads the register counts of kernels from machine code (an ELF file) and calls `visit` for each.
// false if it isn't a readable ELF.
bool cubin_registers(const uint8_t *elf, size_t size,
                     void (*visit)(void *context, const char *kernel, uint32_t registers),
                     void *context);

#endif
