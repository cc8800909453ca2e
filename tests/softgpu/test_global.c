// Device memory and the settings.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "softgpu/machine/global.h"
#include "softgpu/machine/machine.h"
#include "softgpu/settings.h"

Suite *suite_global(void);
Suite *suite_settings(void);

static const uint64_t MB = 1 << 20, GB = 1 << 30;

// Pages of this range that are in memory.
static size_t resident(const void *begin, uint64_t size) {
    size_t page = sysconf(_SC_PAGESIZE), pages = size / page, count = 0;
    unsigned char *map = malloc(pages);
    ck_assert_int_eq(mincore((void *)((uintptr_t)begin / page * page), pages * page, map), 0);
    for (size_t i = 0; i < pages; i++) count += map[i] & 1;
    free(map);
    return count;
}

START_TEST(placement) {
    struct GlobalMemory *m = global_new(80 * GB, true);
    ck_assert_ptr_nonnull(m);
    uint64_t a = global_alloc(m, 1, MEMORY_DEVICE, NULL);
    uint64_t b = global_alloc(m, 1000, MEMORY_DEVICE, NULL);
    uint64_t c = global_alloc(m, 0, MEMORY_DEVICE, NULL);
    ck_assert_uint_eq(a % 256, 0);
    ck_assert_uint_eq(b % 256, 0);
    ck_assert_uint_ge(b - a, 256 + 256);
    ck_assert_uint_ge(c - b, 1024 + 256);
    ck_assert_uint_ge(a, m->device_base + 256);
    ck_assert_ptr_eq(global_pointer(m, a), m->device_bytes + (a - m->device_base));
    ck_assert_ptr_ne(global_pointer(m, a), (void *)(uintptr_t)a);
    // Managed and pinned memory: the address is the pointer, and it is zero.
    uint64_t h = global_alloc(m, 64, MEMORY_MANAGED, NULL);
    ck_assert_uint_lt(h - m->host_base, m->host_size);
    ck_assert_ptr_eq(global_pointer(m, h), (void *)(uintptr_t)h);
    ck_assert_int_eq(*global_pointer(m, h), 0);
    ck_assert(global_all_written(m, h, 64));
    global_delete(m);
}
END_TEST

// Reports name addresses: they are the same in every run, wherever the system puts the rest.
START_TEST(addresses_repeat) {
    struct GlobalMemory *m = global_new(80 * GB, true);
    uint64_t base = m->device_base, host = m->host_base;
    global_delete(m);
    ck_assert_uint_eq(base, 0x300000000000);
    ck_assert_uint_eq(host, 0x400000000000);
    // What is taken is left alone.
    void *taken = mmap((void *)(uintptr_t)base, 4096, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    ck_assert_ptr_eq(taken, (void *)(uintptr_t)base);
    *(int *)taken = 5;
    m = global_new(80 * GB, true);
    ck_assert_ptr_nonnull(m);
    ck_assert_uint_ne(m->device_base, base);
    ck_assert_int_eq(*(int *)taken, 5);
    global_delete(m);
    munmap(taken, 4096);
}
END_TEST

// Addresses aren't used again, pages of the memory chips are, in the same order: what a program
// allocates after it has freed everything lies where the first lay.
START_TEST(pages_are_used_again) {
    struct GlobalMemory *m = global_new(GB, false);
    static const uint64_t sizes[] = {3 * GLOBAL_PAGE, 100, GLOBAL_PAGE + 1, 256};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    uint64_t first[COUNT], address[COUNT];
    uint64_t stays = global_alloc(m, 1000, MEMORY_MODULE, "stays");
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < COUNT; i++) {
            address[i] = global_alloc(m, sizes[i], MEMORY_DEVICE, NULL);
            for (uint64_t at = 0; at < sizes[i]; at += 100) {
                uint64_t place = global_physical(m, address[i] + at - m->device_base);
                ck_assert_uint_ne(place / GLOBAL_PAGE,
                                  global_physical(m, stays - m->device_base) / GLOBAL_PAGE);
                if (at == 0 && turn == 0) first[i] = place;
                if (at == 0) ck_assert_uint_eq(place, first[i]);
            }
        }
        for (int i = 0; i < COUNT; i++) ck_assert(global_free(m, address[i]));
    }
    global_delete(m);
}
END_TEST

// Memory of the program itself, made known to kernels.
START_TEST(registered_memory) {
    static char buffer[4096];
    struct GlobalMemory *m = global_new(GB, true);
    uint64_t at = (uint64_t)(uintptr_t)buffer;
    buffer[7] = 7;
    ck_assert_ptr_null(global_find(m, at));
    ck_assert(global_register(m, at, 4096));
    ck_assert_int_eq(global_find(m, at + 4095)->kind, MEMORY_REGISTERED);
    ck_assert_ptr_eq(global_pointer(m, at + 7), buffer + 7);
    ck_assert(global_all_written(m, at, 4096));
    // Not twice, not in part, not what is device memory anyway.
    ck_assert(!global_register(m, at + 100, 10));
    ck_assert(!global_register(m, at - 100, 101));
    ck_assert(!global_register(m, at - 100, 10000));
    ck_assert(!global_register(m, m->device_base, 4096));
    ck_assert(!global_register(m, UINT64_MAX - 10, 100));
    ck_assert(!global_free(m, at));
    ck_assert(!global_unregister(m, at + 1));
    ck_assert(global_unregister(m, at));
    ck_assert(!global_unregister(m, at));
    ck_assert_ptr_null(global_find(m, at));
    ck_assert_int_eq(buffer[7], 7);
    ck_assert(global_register(m, at, 4096)); // again
    global_delete(m);
}
END_TEST

START_TEST(finding) {
    struct GlobalMemory *m = global_new(GB, false);
    uint64_t a = global_alloc(m, 100, MEMORY_DEVICE, NULL);
    uint64_t b = global_alloc(m, 100, MEMORY_CONSTANT, "coefficients");
    ck_assert_uint_eq(global_find(m, a)->address, a);
    ck_assert_uint_eq(global_find(m, a + 99)->address, a);
    ck_assert_ptr_null(global_find(m, a + 100));
    ck_assert_ptr_null(global_find(m, a - 1));
    ck_assert_ptr_null(global_find(m, 0));
    ck_assert_ptr_null(global_find(m, UINT64_MAX));
    ck_assert_str_eq(global_find(m, b + 5)->name, "coefficients");
    ck_assert_int_eq(global_find(m, b)->kind, MEMORY_CONSTANT);
    ck_assert_uint_lt(global_find(m, a)->serial, global_find(m, b)->serial);
    ck_assert_uint_eq(global_nearest(m, a + 104)->address, a);
    ck_assert_uint_eq(global_nearest(m, b - 4)->address, b);
    ck_assert_uint_eq(global_nearest(m, 0)->address, a);
    ck_assert_uint_eq(global_nearest(m, UINT64_MAX)->address, b);
    global_delete(m);
    m = global_new(GB, false);
    ck_assert_ptr_null(global_nearest(m, 1234));
    global_delete(m);
}
END_TEST

START_TEST(freeing) {
    struct GlobalMemory *m = global_new(GB, true);
    uint64_t a = global_alloc(m, 4096, MEMORY_DEVICE, NULL);
    ck_assert(!global_free(m, a + 256));
    ck_assert(!global_free(m, 0));
    ck_assert(global_free(m, a));
    ck_assert(!global_free(m, a));
    ck_assert_ptr_null(global_find(m, a));
    const Allocation *gone = global_nearest(m, a + 10);
    ck_assert(gone && gone->freed);
    ck_assert_uint_eq(gone->address, a);
    uint64_t b = global_alloc(m, 4096, MEMORY_DEVICE, NULL);
    ck_assert_uint_ne(b, a); // a stale pointer must not hit the next allocation
    ck_assert(global_nearest(m, a + 4000)->freed);
    ck_assert(!global_nearest(m, b)->freed);
    global_delete(m);
}
END_TEST

START_TEST(out_of_memory) {
    struct GlobalMemory *m = global_new(GB, false);
    uint64_t used, peak, total;
    global_usage(m, &used, &peak, &total);
    ck_assert_uint_eq(total, GB);
    ck_assert_uint_eq(used, 0);
    ck_assert_uint_eq(global_alloc(m, GB + 1, MEMORY_DEVICE, NULL), 0);
    ck_assert_uint_eq(global_alloc(m, UINT64_MAX, MEMORY_DEVICE, NULL), 0);
    uint64_t a = global_alloc(m, 700 * MB, MEMORY_DEVICE, NULL);
    ck_assert_uint_ne(a, 0);
    ck_assert_uint_eq(global_alloc(m, 400 * MB, MEMORY_DEVICE, NULL), 0);
    uint64_t b = global_alloc(m, 300 * MB, MEMORY_DEVICE, NULL);
    ck_assert_uint_ne(b, 0);
    global_usage(m, &used, &peak, &total);
    ck_assert_uint_eq(used, 1000 * MB);
    ck_assert(global_free(m, a));
    global_usage(m, &used, &peak, &total);
    ck_assert_uint_eq(used, 300 * MB);
    ck_assert_uint_eq(peak, 1000 * MB);
    // Fresh addresses are used up by now: the gap serves again.
    for (int i = 0; i < 50; i++) {
        uint64_t c = global_alloc(m, 500 * MB, MEMORY_DEVICE, NULL);
        ck_assert_uint_ne(c, 0);
        ck_assert(c + 500 * MB + 256 <= b || c >= b + 300 * MB + 256);
        ck_assert_uint_le(c + 500 * MB, m->device_base + m->device_size);
        ck_assert(global_free(m, c));
    }
    global_delete(m);
}
END_TEST

START_TEST(many) {
    struct GlobalMemory *m = global_new(GB, false);
    enum { N = 20000 };
    static uint64_t addresses[N];
    for (int i = 0; i < N; i++) {
        addresses[i] = global_alloc(m, 100 + i % 999, MEMORY_DEVICE, NULL);
        ck_assert_uint_ne(addresses[i], 0);
    }
    for (int i = 0; i < N; i += 2) ck_assert(global_free(m, addresses[i]));
    for (int i = 0; i < N; i++) {
        const Allocation *a = global_find(m, addresses[i] + 50);
        if (i % 2) {
            ck_assert(a && a->address == addresses[i] && a->size == 100u + i % 999);
        } else {
            ck_assert_ptr_null(a);
        }
    }
    global_delete(m);
}
END_TEST

START_TEST(written_marks) {
    struct GlobalMemory *m = global_new(GB, true);
    uint64_t a = global_alloc(m, 4096, MEMORY_DEVICE, NULL);
    ck_assert(!global_all_written(m, a, 1));
    // Every range, against a plain array of flags.
    for (unsigned begin = 0; begin < 17; begin++) {
        for (unsigned size = 0; size < 150; size += 1 + size / 20) {
            ck_assert(global_free(m, a));
            a = global_alloc(m, 4096, MEMORY_DEVICE, NULL);
            uint64_t at = a + 1024;
            global_mark_written(m, at + begin, size);
            for (unsigned k = 0; k < 200; k++) {
                bool want = k >= begin && k < begin + size;
                ck_assert_int_eq(global_all_written(m, at + k, 1), want);
            }
            ck_assert(global_all_written(m, at + begin, size));
            ck_assert(!global_all_written(m, at + begin, size + 1));
            if (begin) ck_assert(!global_all_written(m, at + begin - 1, size + 1));
        }
    }
    uint64_t c = global_alloc(m, 1001, MEMORY_MODULE, "table");
    ck_assert(global_all_written(m, c, 1001));
    ck_assert(!global_all_written(m, c, 1002));
    ck_assert(!global_all_written(m, global_alloc(m, 8, MEMORY_HEAP, NULL), 1));
    global_delete(m);
    m = global_new(GB, false);
    ck_assert_ptr_null(m->written);
    ck_assert(global_all_written(m, global_alloc(m, 8, MEMORY_DEVICE, NULL), 8));
    global_delete(m);
}
END_TEST

START_TEST(memory_follows_use) {
    struct GlobalMemory *m = global_new(80 * GB, true);
    uint64_t a = global_alloc(m, 60 * GB, MEMORY_DEVICE, NULL);
    ck_assert_uint_ne(a, 0);
    uint8_t *bytes = global_pointer(m, a + GB);
    ck_assert_uint_eq(resident(bytes, 64 * MB), 0);
    memset(bytes, 1, MB);
    size_t touched = resident(bytes, 64 * MB);
    ck_assert_uint_ge(touched, MB / sysconf(_SC_PAGESIZE));
    ck_assert_uint_le(touched, 5 * MB / sysconf(_SC_PAGESIZE)); // large pages may round up
    ck_assert(global_free(m, a));
    ck_assert_uint_eq(resident(bytes, 64 * MB), 0);
    global_delete(m);
}
END_TEST

START_TEST(windows_are_taken) {
    global_delete(global_new(GB, false));
    static const uint64_t windows[] = {SHARED_WINDOW, LOCAL_WINDOW, PARAM_WINDOW, FUNCTION_WINDOW};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        void *want = (void *)(uintptr_t)windows[i];
        void *got = mmap(want, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(got, want); // without MAP_FIXED a taken place is never given out
        if (got != MAP_FAILED) munmap(got, 4096);
    }
}
END_TEST

// Sets the environment to one variable and reads it.
static const char *read_with(const char *variable, const char *value, Settings *settings) {
    static const char *const all[] = {
        "GPU",     "CHECK",  "SCHEDULE", "ASYNC", "NUMERICS", "CLOCK",       "SMS",   "SAMPLE",
        "THREADS", "STRICT", "TIMING",   "STATS", "REPORT",   "REPORT_FILE", "TRACE", "TRACE_SMS"};
    char name[40];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        snprintf(name, sizeof name, "SOFTGPU_%s", all[i]);
        unsetenv(name);
    }
    if (variable) setenv(variable, value, 1);
    return settings_read(settings);
}

START_TEST(defaults) {
    Settings s;
    ck_assert_ptr_null(read_with(NULL, NULL, &s));
    ck_assert_ptr_null(s.gpu);
    ck_assert_uint_eq(s.checks, CHECK_MEM | CHECK_INIT | CHECK_RACE | CHECK_SYNC);
    ck_assert_uint_eq(s.schedule, 0);
    ck_assert_int_eq(s.async, ASYNC_TIMED);
    ck_assert_int_eq(s.numerics, NUMERICS_DEFAULT);
    ck_assert(s.clock_ghz == 0 && s.sms == 0 && s.sample == 0);
    ck_assert_int_ge(s.threads, 1);
    ck_assert(s.timing && !s.strict && !s.stats && !s.report_json);
    ck_assert(!s.report_file && !s.trace);
}
END_TEST

START_TEST(values) {
    Settings s;
    ck_assert_ptr_null(read_with("SOFTGPU_GPU", "b200", &s));
    ck_assert_str_eq(s.gpu, "b200");
    ck_assert_ptr_null(read_with("SOFTGPU_CHECK", "init,mem", &s));
    ck_assert_uint_eq(s.checks, CHECK_INIT | CHECK_MEM);
    ck_assert_ptr_null(read_with("SOFTGPU_CHECK", "none", &s));
    ck_assert_uint_eq(s.checks, 0);
    ck_assert_ptr_null(read_with("SOFTGPU_SCHEDULE", "18446744073709551615", &s));
    ck_assert_uint_eq(s.schedule, UINT64_MAX);
    ck_assert_ptr_null(read_with("SOFTGPU_ASYNC", "late", &s));
    ck_assert_int_eq(s.async, ASYNC_LATE);
    ck_assert_ptr_null(read_with("SOFTGPU_NUMERICS", "hardware", &s));
    ck_assert_int_eq(s.numerics, NUMERICS_HARDWARE);
    ck_assert_ptr_null(read_with("SOFTGPU_CLOCK", "1.5", &s));
    ck_assert_double_eq(s.clock_ghz, 1.5);
    ck_assert_ptr_null(read_with("SOFTGPU_SMS", "4", &s));
    ck_assert_int_eq(s.sms, 4);
    ck_assert_ptr_null(read_with("SOFTGPU_TIMING", "0", &s));
    ck_assert(!s.timing);
    ck_assert_ptr_null(read_with("SOFTGPU_STRICT", "1", &s));
    ck_assert(s.strict);
    ck_assert_ptr_null(read_with("SOFTGPU_REPORT", "json", &s));
    ck_assert(s.report_json);
    ck_assert_ptr_null(read_with("SOFTGPU_REPORT_FILE", "x.json", &s));
    ck_assert_str_eq(s.report_file, "x.json");
    ck_assert_ptr_null(read_with("SOFTGPU_GPU", "", &s)); // empty is unset
    ck_assert_ptr_null(s.gpu);
}
END_TEST

START_TEST(refusals) {
    static const struct {
        const char *variable, *value, *part;
    } cases[] = {
        {"SOFTGPU_GPU", "h101",
         "SOFTGPU_GPU=h101: unknown GPU; one of a100, a100-40gb, h100, h200, b200"},
        {"SOFTGPU_CHECK", "mem,rase", "unknown check 'rase'"},
        {"SOFTGPU_CHECK", "mem,,init", "unknown check ''"},
        {"SOFTGPU_SCHEDULE", "-1", "expected a number"},
        {"SOFTGPU_SCHEDULE", "12x", "expected a number"},
        {"SOFTGPU_SCHEDULE", "18446744073709551616", "expected a number"},
        {"SOFTGPU_ASYNC", "soon", "one of timed, early, late, random"},
        {"SOFTGPU_NUMERICS", "slow", "one of default, fast, hardware"},
        {"SOFTGPU_CLOCK", "0", "GHz"},
        {"SOFTGPU_CLOCK", "nan", "GHz"},
        {"SOFTGPU_CLOCK", "1.5GHz", "GHz"},
        {"SOFTGPU_SMS", "2000", "from 0 to 1024"},
        {"SOFTGPU_THREADS", "0", "from 1 to 1024"},
        {"SOFTGPU_TRACE_SMS", "0", "from 1 to 256"},
        {"SOFTGPU_STRICT", "yes", "expected 0 or 1"},
        {"SOFTGPU_REPORT", "xml", "one of text, json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Settings s;
        const char *message = read_with(cases[i].variable, cases[i].value, &s);
        ck_assert_msg(message, "%s=%s was accepted", cases[i].variable, cases[i].value);
        ck_assert_msg(strstr(message, cases[i].part), "%s", message);
        ck_assert_msg(strstr(message, cases[i].variable), "%s", message);
    }
}
END_TEST

Suite *suite_global(void) {
    Suite *suite = suite_create("device memory");
    TCase *tests = tcase_create("memory");
    tcase_add_test(tests, placement);
    tcase_add_test(tests, finding);
    tcase_add_test(tests, addresses_repeat);
    tcase_add_test(tests, pages_are_used_again);
    tcase_add_test(tests, registered_memory);
    tcase_add_test(tests, freeing);
    tcase_add_test(tests, out_of_memory);
    tcase_add_test(tests, many);
    tcase_add_test(tests, written_marks);
    tcase_add_test(tests, memory_follows_use);
    tcase_add_test(tests, windows_are_taken);
    suite_add_tcase(suite, tests);
    return suite;
}

Suite *suite_settings(void) {
    Suite *suite = suite_create("settings");
    TCase *tests = tcase_create("environment");
    tcase_add_test(tests, defaults);
    tcase_add_test(tests, values);
    tcase_add_test(tests, refusals);
    suite_add_tcase(suite, tests);
    return suite;
}
