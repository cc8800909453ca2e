// The .npy reader and writer, and the element types' conversions.
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/convert.h"
#include "harness/npy.h"

// A version 1 file in memory with this header text and `bytes` zero bytes behind it.
static size_t make_file(char *to, const char *header, size_t bytes) {
    size_t length = strlen(header);
    memcpy(to, "\x93NUMPY\x01\x00", 8);
    to[8] = (char)length;
    to[9] = (char)(length >> 8);
    memcpy(to + 10, header, length);
    memset(to + 10 + length, 0, bytes);
    return 10 + length + bytes;
}

static void expect_refused(const char *header, size_t bytes, const char *words) {
    char file[1024];
    Npy array;
    Message message = {""};
    size_t size = make_file(file, header, bytes);
    ck_assert(!npy_parse("x.npy", file, size, &array, &message));
    ck_assert_msg(strstr(message.text, words) != NULL, "%s: %s", header, message.text);
    ck_assert_ptr_null(array.elements);
}

START_TEST(writes_what_it_reads) {
    static const NpyType types[] = {NPY_FLOAT16, NPY_FLOAT32, NPY_INT32};
    char path[] = "/tmp/test_npy_XXXXXX";
    close(mkstemp(path));
    for (int t = 0; t < 3; t++) {
        for (int dimensions = 0; dimensions <= 4; dimensions++) {
            Npy array = {
                .type = types[t], .dimensions = dimensions, .shape = {2, 3, 1, 5}, .count = 1};
            for (int d = 0; d < dimensions; d++) array.count *= array.shape[d];
            char elements[120];
            for (int i = 0; i < 120; i++) elements[i] = (char)(i * 7);
            array.elements = elements;
            Message message;
            Npy back;
            ck_assert(npy_write(path, &array, &message));
            ck_assert_msg(npy_read(path, &back, &message), "%s", message.text);
            ck_assert_int_eq(back.type, array.type);
            ck_assert_int_eq(back.dimensions, dimensions);
            ck_assert_int_eq(back.count, array.count);
            for (int d = 0; d < dimensions; d++) ck_assert_int_eq(back.shape[d], array.shape[d]);
            size_t size = t == 0 ? 2 : 4;
            ck_assert_int_eq(memcmp(back.elements, elements, (size_t)array.count * size), 0);
            free(back.elements);
        }
    }
    unlink(path);
}
END_TEST

START_TEST(reads_what_numpy_writes) {
    char file[512];
    Npy array;
    Message message;
    // Byte for byte what numpy.save writes for numpy.arange(6, dtype="<f2").reshape(2, 3).
    size_t size = make_file(file,
                            "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), }"
                            "                                                           \n",
                            12);
    static const uint16_t values[] = {0x0000, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500};
    memcpy(file + size - 12, values, 12);
    ck_assert_msg(npy_parse("x", file, size, &array, &message), "%s", message.text);
    ck_assert_int_eq(array.dimensions, 2);
    for (int i = 0; i < 6; i++) ck_assert_float_eq(npy_float(&array, i), (float)i);
    free(array.elements);
    // Version 2: four bytes of length.
    char second[512];
    memcpy(second, "\x93NUMPY\x02\x00\x00\x00\x00\x00", 12);
    const char *header = "{'shape': (), 'fortran_order': False, 'descr': '<f4'}\n";
    second[8] = (char)strlen(header);
    memcpy(second + 12, header, strlen(header));
    memset(second + 12 + strlen(header), 0, 4);
    ck_assert(npy_parse("x", second, 12 + strlen(header) + 4, &array, &message));
    ck_assert_int_eq(array.count, 1);
    free(array.elements);
}
END_TEST

START_TEST(refuses_bad_files) {
    expect_refused("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", 8, "float16");
    expect_refused("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", 4, "little-endian");
    expect_refused("{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", 4, "Fortran");
    expect_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", 15, "truncated");
    expect_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", 17, "too many");
    expect_refused("{'descr': '<f4', 'fortran_order': False, }", 4, "header");
    expect_refused("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4,
                   "header");
    expect_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", 4, "header");
    expect_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 4,
                   "dimensions");
    expect_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,4294967296)}", 4,
                   "larger");
    expect_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 4,
                   "header");
    expect_refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4,
                   "structured");
    expect_refused("", 0, "header");
    Npy array;
    Message message;
    ck_assert(!npy_parse("x", "\x93NUMPY", 6, &array, &message));
    ck_assert(!npy_parse("x", "PK\x03\x04 a zip file", 16, &array, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "not a .npy"));
    ck_assert(!npy_parse("x", "\x93NUMPY\x01\x00\xff\x7f", 10, &array, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "ends inside"));
    ck_assert(!npy_read("/nowhere/x.npy", &array, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "/nowhere/x.npy"));
    ck_assert(!npy_read("/tmp", &array, &message));
}
END_TEST

START_TEST(failed_write_leaves_nothing) {
    float value = 1;
    Npy array = {.type = NPY_FLOAT32, .dimensions = 0, .count = 1, .elements = &value};
    Message message;
    ck_assert(!npy_write("/nowhere/x.npy", &array, &message));
    ck_assert_ptr_nonnull(strstr(message.text, "/nowhere/x.npy"));
}
END_TEST

// The nearest value by search over all of a type's values, ties to the even pattern.
static double nearest(double value, int patterns, double (*decode)(int)) {
    double best = 0, distance = INFINITY;
    int chosen = 0;
    for (int bits = 0; bits < patterns; bits++) {
        double candidate = decode(bits);
        if (!isfinite(candidate)) continue;
        double d = fabs(candidate - value);
        if (d < distance || (d == distance && bits % 2 == 0 && chosen % 2 == 1)) {
            best = candidate;
            distance = d;
            chosen = bits;
        }
    }
    return best;
}

// The formats from their definition: sign, exponent, mantissa.
static double decode_half(int bits) {
    int exponent = bits >> 10, mantissa = bits & 0x3ff;
    if (exponent == 31) return NAN;
    return exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
}
static double decode_e4m3(int bits) {
    int exponent = bits >> 3, mantissa = bits & 7;
    if (bits == 0x7f) return NAN;
    return exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
}

START_TEST(rounds_to_the_nearest) {
    for (int bits = 0; bits < 0x7c00; bits++) {
        ck_assert_double_eq(float_from_half((uint16_t)bits), decode_half(bits));
        ck_assert_int_eq(half_from_float((float)decode_half(bits)), bits);
    }
    for (int bits = 0; bits < 0x7f; bits++) {
        ck_assert_double_eq(float_from_e4m3((uint8_t)bits), decode_e4m3(bits));
        ck_assert_int_eq(e4m3_from_float((float)decode_e4m3(bits)), bits);
        // halfway to the next: to the even one
        if (bits + 1 < 0x7f) {
            double middle = (decode_e4m3(bits) + decode_e4m3(bits + 1)) / 2;
            ck_assert_double_eq(round_to_dtype((float)middle, DTYPE_FP8),
                                nearest(middle, 0x7f, decode_e4m3));
        }
    }
    static const float values[] = {1e-9f,          3e-8f,    6.1e-5f, 0.1f,     1.00048828125f,
                                   1.00146484375f, 3.14159f, 2047.5f, 65503.9f, 65519.9f};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        ck_assert_double_eq(round_to_dtype(values[i], DTYPE_FP16),
                            nearest(values[i], 0x7c00, decode_half));
        ck_assert_double_eq(round_to_dtype(-values[i], DTYPE_FP16),
                            -nearest(values[i], 0x7c00, decode_half));
    }
    ck_assert(isinf(round_to_dtype(65520, DTYPE_FP16)));
    ck_assert(isnan(round_to_dtype(NAN, DTYPE_FP16)));
    ck_assert(isnan(round_to_dtype(NAN, DTYPE_BF16)));
    ck_assert(isnan(round_to_dtype(NAN, DTYPE_FP8)));
    ck_assert_float_eq(round_to_dtype(1e9f, DTYPE_FP8), 448);
    ck_assert_float_eq(round_to_dtype(0x1.01p0f, DTYPE_BF16), 1);         // a tie: even
    ck_assert_float_eq(round_to_dtype(0x1.03p0f, DTYPE_BF16), 0x1.04p0f); // a tie: even
    ck_assert_float_eq(round_to_dtype(0x1.010002p0f, DTYPE_BF16), 0x1.02p0f);
    ck_assert(isinf(round_to_dtype(0x1.ffp127f, DTYPE_BF16)));
    ck_assert_double_eq(half_ulp(1, DTYPE_FP16), 0x1p-11);
    ck_assert_double_eq(half_ulp(0.75, DTYPE_BF16), 0x1p-9);
    ck_assert_double_eq(half_ulp(0, DTYPE_FP16), 0x1p-25);
}
END_TEST

Suite *suite_npy(void);
Suite *suite_npy(void) {
    Suite *suite = suite_create("harness: npy");
    TCase *files = tcase_create("files");
    tcase_add_test(files, writes_what_it_reads);
    tcase_add_test(files, reads_what_numpy_writes);
    tcase_add_test(files, refuses_bad_files);
    tcase_add_test(files, failed_write_leaves_nothing);
    tcase_add_test(files, rounds_to_the_nearest);
    suite_add_tcase(suite, files);
    return suite;
}
