// NumPy's .npy files. A file is a magic string, the version, the length of a header, the header (a
// Python dictionary with 'descr', 'fortran_order' and 'shape'), then the elements. Files come from
// outside: every length is checked against the bytes that are there before it is used.
#include "harness/npy.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/convert.h"
#include "harness/files.h"

static const struct {
    const char *description, *name;
    size_t size;
} types[] = {
    [NPY_FLOAT16] = {"<f2", "float16", 2},
    [NPY_FLOAT32] = {"<f4", "float32", 4},
    [NPY_INT32] = {"<i4", "int32", 4},
};

// The header's text and how far it has been read.
typedef struct {
    const char *at, *end;
    const char *name;
    Message *message;
} Header;

static void skip_spaces(Header *h) {
    while (h->at < h->end && strchr(" \t\n", *h->at) != NULL && *h->at != 0) h->at++;
}

// Takes the character if it comes next.
static bool take(Header *h, char wanted) {
    skip_spaces(h);
    if (h->at == h->end || *h->at != wanted) return false;
    h->at++;
    return true;
}

static bool malformed(Header *h) {
    return refuse(h->message, "%s: the header is not one that NumPy writes", h->name);
}

// Reads a quoted string of at most size-1 characters.
static bool read_string(Header *h, char *to, size_t size) {
    skip_spaces(h);
    if (h->at == h->end || (*h->at != '\'' && *h->at != '"')) return malformed(h);
    char quote = *h->at++;
    size_t length = 0;
    while (h->at < h->end && *h->at != quote) {
        if (length + 1 == size) return malformed(h);
        to[length++] = *h->at++;
    }
    to[length] = 0;
    return take(h, quote) || malformed(h);
}

// Reads (2, 3, 4) into the shape and multiplies the count.
static bool read_shape(Header *h, Npy *array) {
    if (!take(h, '(')) return malformed(h);
    array->dimensions = 0;
    array->count = 1;
    while (!take(h, ')')) {
        int64_t length = 0;
        skip_spaces(h);
        if (h->at == h->end || *h->at < '0' || *h->at > '9') return malformed(h);
        while (h->at < h->end && *h->at >= '0' && *h->at <= '9') {
            int digit = *h->at++ - '0';
            if (length > (INT64_MAX - digit) / 10) return malformed(h);
            length = length * 10 + digit;
        }
        if (array->dimensions == NPY_MOST_DIMENSIONS) {
            return refuse(h->message, "%s: more than %d dimensions", h->name, NPY_MOST_DIMENSIONS);
        }
        // The bound leaves room for the size in bytes.
        if (length != 0 && array->count > INT64_MAX / 8 / length) {
            return refuse(h->message, "%s: the shape is larger than any file", h->name);
        }
        array->shape[array->dimensions++] = length;
        array->count *= length;
        if (!take(h, ',')) {
            if (!take(h, ')')) return malformed(h);
            break;
        }
    }
    return true;
}

// Reads the dictionary; its keys may come in any order, each once.
static bool read_dictionary(Header *h, Npy *array) {
    bool have_type = false, have_order = false, have_shape = false;
    if (!take(h, '{')) return malformed(h);
    while (!take(h, '}')) {
        char key[32], description[32];
        if (!read_string(h, key, sizeof key)) return false;
        if (!take(h, ':')) return malformed(h);
        skip_spaces(h);
        if (strcmp(key, "descr") == 0 && !have_type) {
            if (h->at < h->end && *h->at == '[') {
                return refuse(h->message,
                              "%s: structured elements; save a float16 or float32 array", h->name);
            }
            if (!read_string(h, description, sizeof description)) return false;
            for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
                if (strcmp(description, types[t].description) != 0) continue;
                array->type = (NpyType)t;
                have_type = true;
            }
            if (!have_type) {
                return refuse(h->message,
                              "%s: elements of type %s; save it as float16 or float32 (int32 for "
                              "lengths), little-endian",
                              h->name, description);
            }
        } else if (strcmp(key, "fortran_order") == 0 && !have_order) {
            if (h->end - h->at >= 4 && memcmp(h->at, "True", 4) == 0) {
                return refuse(h->message,
                              "%s: in Fortran order; save numpy.ascontiguousarray(x) instead",
                              h->name);
            }
            if (h->end - h->at < 5 || memcmp(h->at, "False", 5) != 0) return malformed(h);
            h->at += 5;
            have_order = true;
        } else if (strcmp(key, "shape") == 0 && !have_shape) {
            if (!read_shape(h, array)) return false;
            have_shape = true;
        } else {
            return malformed(h);
        }
        if (!take(h, ',')) {
            if (!take(h, '}')) return malformed(h);
            break;
        }
    }
    return (have_type && have_order && have_shape) || malformed(h);
}

bool npy_parse(const char *name, const void *bytes, size_t size, Npy *array, Message *message) {
    *array = (Npy){0};
    const unsigned char *b = bytes;
    if (size < 10 || memcmp(b, "\x93NUMPY", 6) != 0) {
        return refuse(message, "%s: not a .npy file", name);
    }
    if (b[6] != 1 && b[6] != 2) {
        return refuse(message, "%s: .npy format %d; formats 1 and 2 are read", name, b[6]);
    }
    size_t start = b[6] == 1 ? 10 : 12;
    if (size < start) return refuse(message, "%s: the file ends inside its header", name);
    size_t length = b[8] | (size_t)b[9] << 8;
    if (b[6] == 2) length |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (length > size - start) return refuse(message, "%s: the file ends inside its header", name);

    const char *text = (const char *)b + start;
    Header header = {text, text + length, name, message};
    if (!read_dictionary(&header, array)) return false;

    size_t wanted = (size_t)array->count * types[array->type].size;
    size_t there = size - start - length;
    if (there < wanted) {
        return refuse(message, "%s: truncated: the shape needs %zu bytes, the file has %zu", name,
                      wanted, there);
    }
    if (there > wanted) {
        return refuse(message, "%s: %zu bytes too many behind the elements", name, there - wanted);
    }
    array->elements = malloc(wanted > 0 ? wanted : 1);
    if (array->elements == NULL) return refuse(message, "%s: not enough memory", name);
    memcpy(array->elements, text + length, wanted);
    return true;
}

bool npy_read(const char *path, Npy *array, Message *message) {
    *array = (Npy){0};
    struct stat status;
    if (stat(path, &status) != 0) return refuse(message, "%s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode)) return refuse(message, "%s: not a file", path);
    FILE *stream = fopen(path, "rb");
    if (stream == NULL) return refuse(message, "%s: %s", path, strerror(errno));
    size_t size = (size_t)status.st_size;
    void *bytes = malloc(size > 0 ? size : 1);
    bool done;
    if (bytes == NULL) {
        done = refuse(message, "%s: not enough memory", path);
    } else if (fread(bytes, 1, size, stream) != size) {
        done = refuse(message, "%s: can't read it", path);
    } else {
        done = npy_parse(path, bytes, size, array, message);
    }
    free(bytes);
    fclose(stream);
    return done;
}

bool npy_write(const char *path, const Npy *array, Message *message) {
    char shape[256] = "", header[512];
    int length = 0;
    for (int i = 0; i < array->dimensions; i++) {
        length += snprintf(shape + length, sizeof shape - (size_t)length, "%s%lld",
                           i > 0 ? ", " : "", (long long)array->shape[i]);
    }
    int text = snprintf(header, sizeof header,
                        "{'descr': '%s', 'fortran_order': False, "
                        "'shape': (%s%s), }",
                        types[array->type].description, shape, array->dimensions == 1 ? "," : "");
    // Spaces and a newline fill the header up to a multiple of 64 bytes, as NumPy does.
    int padded = (10 + text + 1 + 63) / 64 * 64 - 10;
    memset(header + text, ' ', (size_t)(padded - text));
    header[padded - 1] = '\n';

    OutputFile file;
    if (!file_open(&file, path, message)) return false;
    const unsigned char start[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)padded, (unsigned char)(padded >> 8)};
    fwrite(start, 1, sizeof start, file.stream);
    fwrite(header, 1, (size_t)padded, file.stream);
    fwrite(array->elements, types[array->type].size, (size_t)array->count, file.stream);
    return file_commit(&file, message);
}

float npy_float(const Npy *array, int64_t index) {
    if (array->type == NPY_FLOAT16) return load_dtype(array->elements, index, DTYPE_FP16);
    return load_dtype(array->elements, index, DTYPE_FP32);
}
