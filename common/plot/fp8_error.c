// What `make table-fp8` needs beside ./run: inputs with outliers, the errors of chapter 6's rounding
// worked out on the CPU, and a channel's values before and after the transform.
//
//   fp8_error inputs FOLDER SEED SEQLEN_Q SEQLEN_K HEADS HEAD_DIM ROWS
//       writes q.npy, k.npy, v.npy: N(0, 1) + N(0, 100) · Bernoulli(0.001), rounded to fp16; of Q's
//       rows only ROWS, in blocks of 64 that lie evenly apart
//   fp8_error errors FOLDER WAY…
//       a JSON object: the rms error of O on these inputs by way of rounding. "standard" is standard
//       attention in fp16, "per-tensor", "per-block", "hadamard" and "two-level" are chapter 6's
//       steps, "per-tensor-hadamard" has one scale a tensor after the transform
//   fp8_error ones SEQLEN_K HEAD_DIM
//       a JSON object: O where all scores are equal and all values 1, with one level and with two
//   fp8_error channel FOLDER
//       CSV, stage,value: the widest channel of Q among the heads of FOLDER, before and after the
//       transform (padded to 64 columns if need be), in units of the rms of its head
//
// The rounding is that of common/harness/model_fp8.c, the same that ./run takes its limits from.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../06_fp8_hadamard/hadamard.h"
#include "../../06_fp8_hadamard/quantised.h"
#include "harness/convert.h"
#include "harness/input.h"
#include "harness/model_fp8.h"
#include "harness/npy.h"
#include "harness/random.h"

static const double outlier_share = 0.001, outlier_deviation = 10;

static int hadamard_sign(int head_dim, int column) {
    return sign_of_column(head_dim, column);
}

static const struct {
    const char *name;
    Fp8 fp8;
} ways[] = {
    {"per-tensor", {true, QUERY_BLOCK, key_block, NULL, false}},
    {"per-block", {false, QUERY_BLOCK, key_block, NULL, false}},
    {"per-tensor-hadamard", {true, QUERY_BLOCK, key_block, hadamard_sign, false}},
    {"hadamard", {false, QUERY_BLOCK, key_block, hadamard_sign, false}},
    {"two-level", {false, QUERY_BLOCK, key_block, hadamard_sign, true}},
};
enum { WAYS = sizeof ways / sizeof *ways };

// Normal numbers, of which one in a thousand has a normal number of deviation 10 added. The streams
// of random.h: three of each tensor.
static float *outliers(int64_t count, uint64_t seed, uint64_t tensor) {
    float *x = allocate(count * (int64_t)sizeof *x),
          *more = allocate(count * (int64_t)sizeof *more);
    random_normal(x, count, seed, 100 + 3 * tensor);
    random_normal(more, count, seed, 101 + 3 * tensor);
    for (int64_t i = 0; i < count; i++) {
        double draw = (double)random_bits(seed, 102 + 3 * tensor, (uint64_t)i) * 0x1p-64;
        if (draw < outlier_share) x[i] += (float)outlier_deviation * more[i];
        x[i] = round_to_dtype(x[i], DTYPE_FP16);
    }
    free(more);
    return x;
}

static int built_head_dim(int head_dim) {
    return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

static Problem problem_of(int64_t seqlen_q, int64_t seqlen_k, int heads, int kv_heads,
                          int head_dim) {
    return (Problem){.dtype = DTYPE_FP16,
                     .batch = 1,
                     .seqlen_q = seqlen_q,
                     .seqlen_k = seqlen_k,
                     .heads = heads,
                     .kv_heads = kv_heads,
                     .head_dim = head_dim,
                     .built_head_dim = built_head_dim(head_dim),
                     .window_left = -1,
                     .window_right = -1,
                     .scale = 1 / sqrtf((float)head_dim)};
}

static int complain(const Message *message) {
    fprintf(stderr, "fp8_error: %s\n", message->text);
    return 1;
}

static int write_tensor(const char *folder, const char *name, const Problem *p, const float *values,
                        int64_t rows) {
    Npy array = {.type = NPY_FLOAT16, .dimensions = 4, .shape = {1, rows, p->heads, p->head_dim}};
    array.count = rows * p->heads * p->head_dim;
    array.elements = allocate(array.count * 2);
    store_as_dtype(array.elements, values, array.count, DTYPE_FP16);
    char path[4096];
    Message message;
    snprintf(path, sizeof path, "%.4000s/%s.npy", folder, name);
    bool written = npy_write(path, &array, &message);
    free(array.elements);
    return written ? 0 : complain(&message);
}

// Moves every so many'th block of 64 rows to the front, `rows` in all.
static void choose_rows(float *q, const Problem *p, int64_t rows) {
    int64_t columns = (int64_t)p->heads * p->head_dim, apart = p->seqlen_q / rows;
    for (int64_t r = 0; r < rows; r++) {
        int64_t from = r / QUERY_BLOCK * apart * QUERY_BLOCK + r % QUERY_BLOCK;
        memmove(q + r * columns, q + from * columns, (size_t)columns * sizeof *q);
    }
}

static int write_inputs(const char *folder, uint64_t seed, const Problem *p, int64_t rows) {
    float *q = outliers(query_elements(p), seed, 0), *k = outliers(key_elements(p), seed, 1);
    float *v = outliers(key_elements(p), seed, 2);
    choose_rows(q, p, rows);
    int status = write_tensor(folder, "q", p, q, rows);
    if (status == 0) status = write_tensor(folder, "k", p, k, p->seqlen_k);
    if (status == 0) status = write_tensor(folder, "v", p, v, p->seqlen_k);
    free(q);
    free(k);
    free(v);
    return status;
}

// The rms of got - exact.
static double rms_error(const double *got, const double *exact, int64_t count) {
    double squares = 0;
    for (int64_t i = 0; i < count; i++) squares += (got[i] - exact[i]) * (got[i] - exact[i]);
    return sqrt(squares / (double)count);
}

static int print_errors(const char *folder, char **names, int count) {
    Options o = {0};
    Inputs in;
    Message message;
    if (!input_read(folder, false, &o, &in, &message)) return complain(&message);
    Problem p = problem_of(o.seqlen_q, o.seqlen_k, o.heads, o.kv_heads, o.head_dim);
    p.batch = o.batch;
    if (!input_round(&p, &in, &message)) return complain(&message);
    Selection rows = {p.seqlen_q, p.seqlen_q, NULL};
    Results exact, rounded;
    reference_attention(&p, &in, &rows, &rows, false, &exact);
    for (int i = 0; i < count; i++) {
        int way = 0;
        while (way < WAYS && strcmp(ways[way].name, names[i]) != 0) way++;
        if (way < WAYS)
            model_fp8(&p, &in, &rows, &ways[way].fp8, &rounded);
        else
            model_attention(&p, &in, &rows, &rows, false, &rounded);
        printf("%s\"%s\": %.6g", i > 0 ? ", " : "{", names[i],
               rms_error(rounded.o, exact.o, query_elements(&p)));
        results_free(&rounded);
    }
    printf("}\n");
    results_free(&exact);
    inputs_free(&in);
    return 0;
}

static double output_of_ones(const Problem *p, const Inputs *in, const Fp8 *fp8) {
    Selection rows = {1, 1, NULL};
    Results results;
    model_fp8(p, in, &rows, fp8, &results);
    double o = results.o[0];
    results_free(&results);
    return o;
}

static int print_ones(int64_t seqlen_k, int head_dim) {
    Problem p = problem_of(1, seqlen_k, 1, 1, head_dim);
    Inputs in = {.q = allocate(query_elements(&p) * (int64_t)sizeof(float)),
                 .k = allocate(key_elements(&p) * (int64_t)sizeof(float)),
                 .v = allocate(key_elements(&p) * (int64_t)sizeof(float))};
    for (int64_t i = 0; i < query_elements(&p); i++) in.q[i] = 0;
    for (int64_t i = 0; i < key_elements(&p); i++) in.k[i] = 0, in.v[i] = 1;
    printf("{\"hadamard\": %.6g, ", output_of_ones(&p, &in, &ways[WAYS - 2].fp8));
    printf("\"two-level\": %.6g}\n", output_of_ones(&p, &in, &ways[WAYS - 1].fp8));
    inputs_free(&in);
    return 0;
}

// A row's columns, with zeros behind them, times D H / √columns.
static void transform(const float *from, int head_dim, int columns, float *to) {
    for (int c = 0; c < columns; c++) {
        double sum = 0;
        for (int k = 0; k < head_dim; k++) {
            double x = from[k] * sign_of_column(columns, k);
            sum += __builtin_popcount((unsigned)(k & c)) % 2 ? -x : x;
        }
        to[c] = (float)(sum / sqrt(columns));
    }
}

static int print_channel(const char *folder) {
    Options o = {0};
    Inputs in;
    Message message;
    if (!input_read(folder, false, &o, &in, &message)) return complain(&message);
    int head_dim = o.head_dim, columns = built_head_dim(head_dim), channel = 0, head = 0;
    int64_t rows = (int64_t)o.batch * o.seqlen_q;
    double widest = 0, unit = 1;
    for (int h = 0; h < o.heads; h++) {
        double all = 0, of_head_widest = 0;
        int at = 0;
        for (int c = 0; c < head_dim; c++) {
            double squares = 0;
            for (int64_t r = 0; r < rows; r++) {
                double x = in.q[(r * o.heads + h) * head_dim + c];
                squares += x * x;
            }
            all += squares;
            if (squares > of_head_widest) of_head_widest = squares, at = c;
        }
        double share = of_head_widest / all;
        if (share <= widest) continue;
        widest = share;
        head = h;
        channel = at;
        unit = sqrt(all / (double)rows / head_dim);
    }
    printf("stage,head,channel,value\n");
    float *row = allocate(columns * (int64_t)sizeof *row);
    for (int64_t r = 0; r < rows; r++) {
        const float *from = in.q + (r * o.heads + head) * head_dim;
        printf("before,%d,%d,%.6g\n", head, channel, from[channel] / unit);
        transform(from, head_dim, columns, row);
        printf("after,%d,%d,%.6g\n", head, channel, row[channel] / unit);
    }
    free(row);
    inputs_free(&in);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 9 && strcmp(argv[1], "inputs") == 0) {
        int heads = atoi(argv[6]);
        int64_t rows = atoll(argv[8]);
        Problem p = problem_of(atoll(argv[4]), atoll(argv[5]), heads, heads, atoi(argv[7]));
        if (rows >= 1 && rows <= p.seqlen_q && (rows == p.seqlen_q || rows % QUERY_BLOCK == 0))
            return write_inputs(argv[2], strtoull(argv[3], NULL, 10), &p, rows);
    }
    if (argc >= 4 && strcmp(argv[1], "errors") == 0)
        return print_errors(argv[2], argv + 3, argc - 3);
    if (argc == 4 && strcmp(argv[1], "ones") == 0) return print_ones(atoll(argv[2]), atoi(argv[3]));
    if (argc == 3 && strcmp(argv[1], "channel") == 0) return print_channel(argv[2]);
    fprintf(stderr,
            "usage: fp8_error inputs|errors|ones|channel …, as the top of fp8_error.c says\n");
    return 2;
}
