// Chapter 6's quantise kernels beside the definition, worked out in double: each block's scale is
// its largest magnitude / 448, each number is the e4m3 number nearest to value / scale, and the
// transform is the sum Σ x_k D_k H_kc / √d with H_kc = -1 to the number of bits that k and c share.
//
//     quantise            all of that, on odd lengths, all dtypes and head_dims, and odd inputs
//     quantise speed      quantise_hadamard's bytes per second beside those of a copy
#define BUILT_64  1
#define BUILT_128 1
#define BUILT_256 1
#include "../../06_fp8_hadamard/quantise.cu"

#include "check.h"

#include <math.h>
#include <string.h>

#include <vector>

template <typename T> static bool is_half() {
    return (float)(T)70000.f > 1e30f; // fp16 ends at 65504
}

enum Fill { NORMAL, ZEROS, DENORMALS, HUGE_ONE, NAN_AND_INF, FILLS };

static uint32_t random_state = 1;
static uint32_t random_bits() {
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8; // 24 bits
}

static float random_value() { // near normal, with outliers
    float sum = 0;
    for (int i = 0; i < 6; i++) sum += (float)random_bits() / (1 << 24) - 0.5f;
    return random_bits() % 1000 == 0 ? sum * 20 : sum;
}

template <typename T> static T value_of(Fill fill, size_t index) {
    const float largest = is_half<T>() ? 65504.f : 1e38f;
    switch (fill) {
    case ZEROS: return (T)0.f;
    case DENORMALS: return (T)(random_value() * (is_half<T>() ? 1e-6f : 1e-39f));
    case HUGE_ONE: return (T)(index == 1234 ? largest : random_value());
    case NAN_AND_INF:
        if (index % 5003 == 17) return (T)NAN;
        if (index % 4001 == 18) return (T)(index % 2 ? INFINITY : -INFINITY);
        return (T)random_value();
    default: return (T)random_value();
    }
}

static double e4m3(uint8_t bits) {
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    if ((bits & 0x7f) == 0x7f) return NAN;
    const double magnitude =
        exponent == 0 ? ldexp(fraction, -9) : ldexp(8 + fraction, exponent - 10);
    return bits & 0x80 ? -magnitude : magnitude;
}

// Half the distance of e4m3's numbers around x.
static double half_step(double x) {
    int exponent = x == 0 ? -6 : ilogb(x);
    if (exponent < -6) exponent = -6;
    if (exponent > 8) exponent = 8;
    return ldexp(0.5, exponent - 3);
}

struct Problem {
    Attention a;
    Quantised out;
    void *in[3];
};

// x D H / √head_dim by the definition.
static void transform(const double *x, double *y, int head_dim) {
    static double matrix[256 * 256]; // D H, for the head_dim of the last call
    static int made = 0;
    for (int k = 0; k < head_dim && made != head_dim; k++)
        for (int c = 0; c < head_dim; c++)
            matrix[k * head_dim + c] =
                sign_of_column(head_dim, k) * (__builtin_popcount(k & c) % 2 ? -1 : 1);
    made = head_dim;
    for (int c = 0; c < head_dim; c++) y[c] = 0;
    for (int k = 0; k < head_dim; k++) {
        const double *row = matrix + k * head_dim, factor = x[k];
        for (int c = 0; c < head_dim; c++) y[c] += factor * row[c];
    }
    for (int c = 0; c < head_dim; c++) y[c] /= sqrt(head_dim);
}

// What one tensor should have become.
template <typename T>
static void check_tensor(const char *what, const std::vector<T> &in, const uint8_t *numbers,
                         const float *scales, int batch, int64_t seqlen, int heads, int head_dim,
                         int size, bool transformed, bool per_tensor) {
    const int64_t blocks = tiles_of(seqlen, size);
    std::vector<double> y(in.size());
    double tensor_largest = 0, row_in[256], row_out[256];
    for (size_t row = 0; row < in.size(); row += head_dim) {
        for (int c = 0; c < head_dim; c++) row_in[c] = (float)in[row + c];
        if (transformed) transform(row_in, row_out, head_dim);
        for (int c = 0; c < head_dim; c++) {
            const double value = transformed ? row_out[c] : row_in[c];
            y[row + c] = value;
            if (isfinite(value)) tensor_largest = fmax(tensor_largest, fabs(value));
        }
    }
    for (int b = 0; b < batch; b++)
        for (int h = 0; h < heads; h++)
            for (int64_t block = 0; block < blocks; block++) {
                const int64_t end = (block + 1) * size < seqlen ? (block + 1) * size : seqlen;
                double largest = 0;
                for (int64_t r = block * size; r < end; r++)
                    for (int c = 0; c < head_dim; c++) {
                        const double x = y[row_offset(b, r, h, seqlen, heads, head_dim) + c];
                        if (isfinite(x)) largest = fmax(largest, fabs(x));
                    }
                if (per_tensor) largest = tensor_largest;
                const double expected = largest == 0 ? 1 : fmax(largest / 448, 0x1p-60);
                const double scale = scales[scale_offset(b, h, block, heads, blocks)];
                if (!(fabs(scale - expected) <= 2e-6 * expected)) {
                    printf("%s: scale of batch %d, head %d, block %lld is %g, not %g\n", what, b, h,
                           (long long)block, scale, expected);
                    exit(1);
                }
                for (int64_t r = block * size; r < end; r++)
                    for (int c = 0; c < head_dim; c++) {
                        const size_t at = row_offset(b, r, h, seqlen, heads, head_dim) + c;
                        const double exact = y[at] / scale, got = e4m3(numbers[at]);
                        const bool right = isfinite(exact)
                                               ? fabs(got - exact) <= half_step(exact) + 3e-4
                                               : isnan(got);
                        if (right) continue;
                        printf("%s: row %lld, column %d is %g, not the one nearest to %g\n", what,
                               (long long)r, c, got, exact);
                        exit(1);
                    }
            }
}

template <typename T>
static void make(Problem *p, int batch, int heads, int kv_heads, int64_t seqlen_q, int64_t seqlen_k,
                 int head_dim) {
    p->a = Attention();
    p->a.dtype = is_half<T>() ? DTYPE_FP16 : DTYPE_BF16;
    p->a.batch = batch;
    p->a.heads = heads;
    p->a.kv_heads = kv_heads;
    p->a.seqlen_q = seqlen_q;
    p->a.seqlen_k = seqlen_k;
    p->a.head_dim = head_dim;
    CUDA(cudaMalloc(&p->in[0], batch * seqlen_q * heads * head_dim * sizeof(T)));
    CUDA(cudaMalloc(&p->in[1], batch * seqlen_k * kv_heads * head_dim * sizeof(T)));
    CUDA(cudaMalloc(&p->in[2], batch * seqlen_k * kv_heads * head_dim * sizeof(T)));
    p->a.q = p->in[0];
    p->a.k = p->in[1];
    p->a.v = p->in[2];
    CUDA(cudaMalloc(&p->a.workspace, quantised_workspace(&p->a)));
    p->out = quantised_of(&p->a);
}

static void drop(Problem *p) {
    for (int i = 0; i < 3; i++) CUDA(cudaFree(p->in[i]));
    CUDA(cudaFree(p->a.workspace));
}

template <typename T>
static void check(Fill fill, int batch, int heads, int kv_heads, int64_t seqlen_q, int64_t seqlen_k,
                  int head_dim) {
    Problem p;
    make<T>(&p, batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim);
    std::vector<T> in[3];
    for (int i = 0; i < 3; i++) {
        in[i].resize((size_t)batch * (i ? seqlen_k * kv_heads : seqlen_q * heads) * head_dim);
        for (size_t n = 0; n < in[i].size(); n++) in[i][n] = value_of<T>(fill, n);
        CUDA(cudaMemcpy(p.in[i], in[i].data(), in[i].size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    for (int way = 0; way < 3; way++) {
        CUDA(way == 0   ? quantise_per_tensor(&p.a)
             : way == 1 ? quantise_per_block(&p.a)
                        : quantise_hadamard(&p.a));
        CUDA(cudaDeviceSynchronize());
        for (int i = 0; i < 3; i++) {
            const int64_t seqlen = i ? seqlen_k : seqlen_q,
                          blocks = i ? key_blocks(&p.a) : query_blocks(&p.a);
            const int tensor_heads = i ? kv_heads : heads;
            std::vector<uint8_t> numbers(in[i].size());
            std::vector<float> scales(batch * tensor_heads * blocks);
            const uint8_t *from[3] = {p.out.q, p.out.k, p.out.v};
            const float *from_scales[3] = {p.out.q_scale, p.out.k_scale, p.out.v_scale};
            CUDA(cudaMemcpy(numbers.data(), from[i], numbers.size(), cudaMemcpyDeviceToHost));
            CUDA(cudaMemcpy(scales.data(), from_scales[i], scales.size() * 4,
                            cudaMemcpyDeviceToHost));
            char what[100];
            snprintf(what, sizeof what, "%c, way %d, %s, fill %d, head_dim %d, %lld rows", "QKV"[i],
                     way, is_half<T>() ? "fp16" : "bf16", fill, head_dim, (long long)seqlen);
            check_tensor<T>(what, in[i], numbers.data(), scales.data(), batch, seqlen, tensor_heads,
                            head_dim, i ? key_block(head_dim) : QUERY_BLOCK, way == 2 && i < 2,
                            way == 0);
        }
    }
    drop(&p);
}

// F59: D H is orthogonal up to the factor √head_dim, so that (Q D H)(K D H)ᵀ = head_dim · Q Kᵀ. Rows
// of it are the transforms of unit vectors.
static void check_orthogonal(int head_dim) {
    std::vector<double> rows(head_dim * head_dim);
    double unit[256] = {};
    int negative = 0;
    for (int k = 0; k < head_dim; k++) {
        unit[k] = 1;
        transform(unit, &rows[k * head_dim], head_dim);
        unit[k] = 0;
        negative += rows[k * head_dim] < 0;
    }
    for (int k = 0; k < head_dim; k++)
        for (int l = 0; l <= k; l += 7) {
            const double *left = &rows[k * head_dim], *right = &rows[l * head_dim];
            double sum = 0;
            for (int c = 0; c < head_dim; c++) sum += left[c] * right[c];
            EXPECT(fabs(sum - (k == l)) < 1e-12);
        }
    EXPECT(negative > head_dim / 3 && negative < head_dim - head_dim / 3); // as good as random
}

// ---- speed

__global__ void copy(uint4 *to, const uint4 *from, size_t pieces) {
    for (size_t i = (size_t)blockIdx.x * blockDim.x * 4 + threadIdx.x; i < pieces;
         i += blockDim.x) {
        if (i >= ((size_t)blockIdx.x + 1) * blockDim.x * 4) break;
        to[i] = from[i];
    }
}

template <typename Launch> static double seconds(Launch launch) {
    cudaEvent_t start, stop;
    float ms = 0;
    CUDA(cudaEventCreate(&start));
    CUDA(cudaEventCreate(&stop));
    CUDA(cudaEventRecord(start));
    launch();
    CUDA(cudaEventRecord(stop));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaEventElapsedTime(&ms, start, stop));
    return ms * 1e-3;
}

static void speed(int seqlen, int head_dim) {
    Problem p;
    const int batch = 2, heads = 16;
    make<__half>(&p, batch, heads, heads, seqlen, seqlen, head_dim);
    const size_t numbers = (size_t)batch * heads * seqlen * head_dim;
    for (int i = 0; i < 3; i++) CUDA(cudaMemset(p.in[i], 0x3c, numbers * 2));
    // As many bytes: 2 read and 1 written of each number; a copy reads half of what it moves.
    const size_t bytes = 3 * numbers * 3, pieces = bytes / 2 / 16;
    uint4 *from, *to;
    CUDA(cudaMalloc(&from, pieces * 16));
    CUDA(cudaMalloc(&to, pieces * 16));
    CUDA(cudaMemset(from, 1, pieces * 16));
    // Each twice: what the first leaves dirty in the L2 the second writes, and leaves as much.
    seconds([&] { copy<<<(unsigned)(pieces / 2048 + 1), 512>>>(to, from, pieces); });
    const double copied =
        seconds([&] { copy<<<(unsigned)(pieces / 2048 + 1), 512>>>(to, from, pieces); });
    CUDA(cudaGetLastError());
    const double block = seconds([&] { CUDA(quantise_per_block(&p.a)); });
    seconds([&] { CUDA(quantise_hadamard(&p.a)); });
    const double hadamard = seconds([&] { CUDA(quantise_hadamard(&p.a)); });
    const double tensor = seconds([&] { CUDA(quantise_per_tensor(&p.a)); });
    printf(
        "seqlen %d head_dim %d: copy %.3f TB/s; hadamard %.3f TB/s = %.3f of it; per-block %.3f; "
        "per-tensor %.3f\n",
        seqlen, head_dim, bytes / copied * 1e-12, bytes / hadamard * 1e-12, copied / hadamard,
        copied / block, copied / tensor);
    CUDA(cudaFree(from));
    CUDA(cudaFree(to));
    drop(&p);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "speed") == 0) {
        for (int head_dim = 64; head_dim <= 256; head_dim *= 2)
            if (argc < 4 || atoi(argv[3]) == head_dim)
                speed(argc > 2 ? atoi(argv[2]) : 8192, head_dim);
        return 0;
    }
    for (int head_dim = 64; head_dim <= 256; head_dim *= 2) {
        check_orthogonal(head_dim);
        check<__half>(NORMAL, 2, 2, 1, 250, 2 * key_block(head_dim) + 1, head_dim);
        check<__nv_bfloat16>(NORMAL, 1, 4, 2, 64, 96, head_dim);
        check<__half>(NORMAL, 1, 1, 1, 1, 1, head_dim);
        check<__half>(NORMAL, 2, 48, 48, 3, 2, head_dim); // 288 items: more than thread blocks
        for (int fill = NORMAL + 1; fill < FILLS; fill++) {
            check<__half>((Fill)fill, 1, 1, 1, 70, 130, head_dim);
            check<__nv_bfloat16>((Fill)fill, 1, 1, 1, 65, 33, head_dim);
        }
    }
    printf("e4m3 and scales are what the definition says\n");
    return 0;
}
