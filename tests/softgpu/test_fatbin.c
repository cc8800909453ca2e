// Reading fat binaries: layout, damage, the choice of PTX, unpacking, register counts.
#include <check.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/api/fatbin.h"
#include "softgpu/api/pointer_map.h"

enum {
    PTX_FLAGS = 0x11,
    FLAG_LZ4 = 0x2000,
    FLAG_ZSTD = 0x8000,
    FLAG_A = 0x100000,
    FLAG_F = 0x200000
};

// A fat binary that a test puts together.
static struct {
    uint8_t bytes[65536];
    size_t size;
} made;

static void put(size_t at, uint64_t value, int bytes) {
    memcpy(made.bytes + at, &value, (size_t)bytes);
}

static void begin(void) {
    memset(&made, 0, sizeof made);
    put(0, FATBIN_MAGIC, 4);
    put(4, 1, 2);
    put(6, 16, 2);
    made.size = 16;
}

// Appends an entry; `unpacked` is 0 for a payload that isn't packed.
static void add(int kind, int sm, uint64_t flags, const void *payload, size_t size,
                size_t unpacked) {
    size_t at = made.size, padded = (size + 7) / 8 * 8;
    put(at, (uint64_t)kind, 2);
    put(at + 4, 64, 4);
    put(at + 8, padded, 8);
    put(at + 0x10, unpacked ? size : 0, 4);
    put(at + 0x1c, (uint64_t)sm, 4);
    put(at + 0x28, flags, 8);
    put(at + 0x38, unpacked, 8);
    memcpy(made.bytes + at + 64, payload, size);
    made.size += 64 + padded;
    put(8, made.size - 16, 8);
}

static void add_text(int sm, uint64_t flags, const char *text) {
    add(FATBIN_PTX, sm, PTX_FLAGS | flags, text, strlen(text) + 1, 0);
}

// The text of the PTX that is chosen for a capability, "" if none is.
static const char *chosen(int sm) {
    static char text[256];
    Fatbin fatbin;
    FatbinError error;
    ck_assert(fatbin_read(made.bytes, made.size, &fatbin, &error));
    const FatbinEntry *entry = fatbin_choose_ptx(&fatbin, sm);
    text[0] = 0;
    if (entry) {
        size_t size;
        char *unpacked = (char *)fatbin_unpack(entry, &size, &error);
        ck_assert_ptr_nonnull(unpacked);
        ck_assert_uint_eq(size, strlen(unpacked)); // padding is no part of the text
        snprintf(text, sizeof text, "%s", unpacked);
        free(unpacked);
    }
    fatbin_free(&fatbin);
    return text;
}

// -arch=sm_90a puts a plain PTX without the special code first.
START_TEST(own_ptx_comes_before_plain) {
    begin();
    add_text(90, 0, "plain 90");
    add(FATBIN_CUBIN, 90, FLAG_A, "cubin", 6, 0);
    add_text(90, FLAG_A, "90a");
    ck_assert_str_eq(chosen(90), "90a");
    ck_assert_str_eq(chosen(100), "plain 90");
    ck_assert_str_eq(chosen(80), "");
}
END_TEST

START_TEST(newest_that_fits_wins) {
    begin();
    add_text(75, 0, "75");
    add_text(120, 0, "120");
    add_text(80, 0, "80");
    add_text(100, FLAG_F, "100f");
    add_text(90, FLAG_A, "90a");
    ck_assert_str_eq(chosen(80), "80");
    ck_assert_str_eq(chosen(90), "90a");
    ck_assert_str_eq(chosen(89), "80");
    ck_assert_str_eq(chosen(100), "100f");
    ck_assert_str_eq(chosen(103), "100f"); // the same family
    ck_assert_str_eq(chosen(110), "80");   // another family; 90a is for 9.0 only
    ck_assert_str_eq(chosen(120), "120");
    Fatbin fatbin;
    FatbinError error;
    ck_assert(fatbin_read(made.bytes, made.size, &fatbin, &error));
    ck_assert_int_eq(fatbin_newest_ptx(&fatbin), 120);
    fatbin_free(&fatbin);
}
END_TEST

START_TEST(cubin_of_same_major) {
    begin();
    add(FATBIN_CUBIN, 80, 0, "cubin80", 8, 0);
    Fatbin fatbin;
    FatbinError error;
    ck_assert(fatbin_read(made.bytes, made.size, &fatbin, &error));
    ck_assert_ptr_nonnull(fatbin_choose_cubin(&fatbin, 86));
    ck_assert_ptr_null(fatbin_choose_cubin(&fatbin, 90));
    fatbin_free(&fatbin);
}
END_TEST

START_TEST(empty_is_legal) {
    begin();
    Fatbin fatbin;
    FatbinError error;
    ck_assert(fatbin_read(made.bytes, made.size, &fatbin, &error));
    ck_assert_int_eq(fatbin.count, 0);
    fatbin_free(&fatbin);
}
END_TEST

START_TEST(unknown_kinds_are_left_out) {
    begin();
    add(7, 90, 0, "something", 10, 0);
    add_text(80, 0, "80");
    ck_assert_str_eq(chosen(90), "80");
}
END_TEST

// Each prefix of a good fat binary is refused, without a read beyond its end (ASan sees those).
START_TEST(cut_off_is_refused) {
    begin();
    add_text(80, 0, "some text that is long enough");
    for (size_t size = 0; size < made.size; size++) {
        uint8_t *copy = malloc(size ? size : 1);
        memcpy(copy, made.bytes, size);
        Fatbin fatbin;
        FatbinError error = {""};
        ck_assert(!fatbin_read(copy, size, &fatbin, &error));
        ck_assert(error.message[0]);
        free(copy);
    }
}
END_TEST

START_TEST(hostile_sizes_are_refused) {
    static const struct {
        size_t at;
        uint64_t value;
        int bytes;
    } damage[] = {
        {0, 1, 4},                    // magic
        {4, 2, 2},                    // version
        {6, 8, 2},                    // header size
        {8, UINT64_MAX, 8},           // size of all entries
        {16 + 4, 8, 4},               // entry header too small
        {16 + 4, 0xffffffff, 4},      // too large
        {16 + 8, UINT64_MAX - 63, 8}, // a payload that wraps around
        {16 + 0x10, 0xffffffff, 4},   // packed size larger than the payload
        {16 + 0x38, 1ull << 60, 8},   // unpacked size
        {16 + 0x38, 0, 8},
    };
    for (size_t d = 0; d < sizeof damage / sizeof *damage; d++) {
        begin();
        add(FATBIN_PTX, 80, PTX_FLAGS | FLAG_ZSTD, "packed?", 8, 100);
        put(damage[d].at, damage[d].value, damage[d].bytes);
        Fatbin fatbin;
        FatbinError error = {""};
        ck_assert_msg(!fatbin_read(made.bytes, made.size, &fatbin, &error), "case %zu", d);
        ck_assert(error.message[0]);
    }
}
END_TEST

static const char long_text[] =
    ".version 9.0\n.target sm_80\n.target sm_80\n.target sm_80\n.target sm_80\n.target sm_80\n";

START_TEST(unpacks_zstandard) {
    void *library = dlopen("libzstd.so.1", RTLD_NOW);
    ck_assert_msg(library != NULL, "libzstd.so.1 is missing: install libzstd1");
    size_t (*compress)(void *, size_t, const void *, size_t, int);
    *(void **)&compress = dlsym(library, "ZSTD_compress");
    uint8_t packed[512];
    size_t n = compress(packed, sizeof packed, long_text, sizeof long_text, 3);
    ck_assert_uint_lt(n, sizeof packed);
    begin();
    add(FATBIN_PTX, 80, PTX_FLAGS | FLAG_ZSTD, packed, n, sizeof long_text);
    ck_assert_str_eq(chosen(80), long_text);
}
END_TEST

START_TEST(unpacks_lz4) {
    void *library = dlopen("liblz4.so.1", RTLD_NOW);
    ck_assert_msg(library != NULL, "liblz4.so.1 is missing: install liblz4-1");
    int (*compress)(const char *, char *, int, int);
    *(void **)&compress = dlsym(library, "LZ4_compress_default");
    char packed[512];
    int n = compress(long_text, packed, sizeof long_text, sizeof packed);
    ck_assert_int_gt(n, 0);
    begin();
    add(FATBIN_PTX, 80, PTX_FLAGS | FLAG_LZ4, packed, (size_t)n, sizeof long_text);
    ck_assert_str_eq(chosen(80), long_text);
}
END_TEST

START_TEST(damaged_payload_is_refused) {
    for (int k = 0; k < 2; k++) {
        begin();
        add(FATBIN_PTX, 80, PTX_FLAGS | (k ? FLAG_LZ4 : FLAG_ZSTD), "this is not packed", 19, 4000);
        Fatbin fatbin;
        FatbinError error = {""};
        size_t size;
        ck_assert(fatbin_read(made.bytes, made.size, &fatbin, &error));
        ck_assert_ptr_null(fatbin_unpack(&fatbin.entries[0], &size, &error));
        ck_assert(strstr(error.message, "damaged") != NULL);
        fatbin_free(&fatbin);
    }
}
END_TEST

// ---- a cubin put together: null, .shstrtab, .strtab, .symtab, .nv.info

static size_t make_cubin(uint8_t *out) {
    static const char names[] = "\0.shstrtab\0.strtab\0.symtab\0.nv.info";
    static const char strings[] = "\0kernel_one\0kernel_two";
    Elf64_Sym symbols[3] = {{0}, {.st_name = 1}, {.st_name = 12}};
    uint8_t info[36] = {0};
    // stack size of symbol 1 (skipped), then registers of symbols 1 and 2
    const uint32_t words[] = {0x00081104, 1, 99, 0x00082f04, 1, 40, 0x00082f04, 2, 168};
    memcpy(info, words, sizeof words);
    const void *content[] = {NULL, names, strings, symbols, info};
    const size_t sizes[] = {0, sizeof names, sizeof strings, sizeof symbols, sizeof info};
    const uint32_t name_at[] = {0, 1, 11, 19, 27};
    const uint32_t types[] = {SHT_NULL, SHT_STRTAB, SHT_STRTAB, SHT_SYMTAB, 0x70000000};
    Elf64_Ehdr header = {.e_shnum = 5, .e_shstrndx = 1, .e_shentsize = sizeof(Elf64_Shdr)};
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    Elf64_Shdr sections[5] = {{0}};
    size_t at = sizeof header;
    for (int i = 1; i < 5; i++) {
        memcpy(out + at, content[i], sizes[i]);
        sections[i] = (Elf64_Shdr){
            .sh_name = name_at[i], .sh_type = types[i], .sh_offset = at, .sh_size = sizes[i]};
        at += (sizes[i] + 7) / 8 * 8;
    }
    header.e_shoff = at;
    memcpy(out + at, sections, sizeof sections);
    memcpy(out, &header, sizeof header);
    return at + sizeof sections;
}

static void collect(void *context, const char *kernel, uint32_t registers) {
    char *text = context;
    sprintf(text + strlen(text), "%s=%u ", kernel, registers);
}

START_TEST(register_counts) {
    uint8_t cubin[2048] = {0};
    char text[256] = "";
    size_t size = make_cubin(cubin);
    ck_assert(cubin_registers(cubin, size, collect, text));
    ck_assert_str_eq(text, "kernel_one=40 kernel_two=168 ");
    for (size_t cut = 0; cut < size; cut++) { // never beyond its end
        uint8_t *copy = malloc(cut ? cut : 1);
        memcpy(copy, cubin, cut);
        char ignored[4096] = "";
        cubin_registers(copy, cut, collect, ignored);
        ck_assert_str_eq(ignored, "");
        free(copy);
    }
}
END_TEST

// ---- the map of handles

START_TEST(pointer_map) {
    enum { COUNT = 5000 };
    PointerMap map = {0};
    char *keys = malloc(COUNT * 16);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) pointer_map_put(&map, keys + 16 * i, keys + i);
        for (int i = 0; i < COUNT; i++)
            ck_assert_ptr_eq(pointer_map_get(&map, keys + 16 * i), keys + i);
        ck_assert_ptr_null(pointer_map_get(&map, keys + 1));
        ck_assert_ptr_null(pointer_map_get(&map, NULL));
        for (int i = 0; i < COUNT; i++)
            ck_assert_ptr_eq(pointer_map_take(&map, keys + 16 * i), keys + i);
        ck_assert_ptr_null(pointer_map_take(&map, keys));
    }
    ck_assert_uint_le(map.capacity, 65536); // deleted entries are used again
    free(map.entries);
    free(keys);
}
END_TEST

Suite *suite_fatbin(void) {
    Suite *suite = suite_create("fatbin");
    TCase *tests = tcase_create("reading");
    tcase_add_test(tests, own_ptx_comes_before_plain);
    tcase_add_test(tests, newest_that_fits_wins);
    tcase_add_test(tests, cubin_of_same_major);
    tcase_add_test(tests, empty_is_legal);
    tcase_add_test(tests, unknown_kinds_are_left_out);
    tcase_add_test(tests, cut_off_is_refused);
    tcase_add_test(tests, hostile_sizes_are_refused);
    tcase_add_test(tests, unpacks_zstandard);
    tcase_add_test(tests, unpacks_lz4);
    tcase_add_test(tests, damaged_payload_is_refused);
    tcase_add_test(tests, register_counts);
    tcase_add_test(tests, pointer_map);
    suite_add_tcase(suite, tests);
    return suite;
}
