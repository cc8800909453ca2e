// The arithmetic of matrix instructions (tensor.h).
//
// NVIDIA documents none of it. The model of `hardware` is what others measured: exact products, a
// common exponent, truncation, one exact sum, truncation again. A product's significand is that of
// its factors multiplied and not normalised, its exponent the sum of theirs; zeros and subnormal
// numbers count with the smallest exponent of their format.
#include "softgpu/execute/tensor.h"

#include <math.h>
#include <string.h>

#if defined __AVX512F__ || defined __FMA__
#include <immintrin.h>
#endif

// The widest vector of floats that the machine has: a column of a panel, or a part of one.
#ifdef __AVX512F__
enum { LANES = 16 };
typedef float Vector __attribute__((vector_size(64)));
#elif defined __AVX__
enum { LANES = 8 };
typedef float Vector __attribute__((vector_size(32)));
#else
enum { LANES = 4 };
typedef float Vector __attribute__((vector_size(16)));
#endif

// x * y + z, rounded once.
static inline Vector fused(Vector x, float y, Vector z) {
#if defined __AVX512F__
    return (Vector)_mm512_fmadd_ps((__m512)x, _mm512_set1_ps(y), (__m512)z);
#elif defined __FMA__ && defined __AVX__
    return (Vector)_mm256_fmadd_ps((__m256)x, _mm256_set1_ps(y), (__m256)z);
#else
    for (int m = 0; m < LANES; m++) z[m] = fmaf(x[m], y, z[m]);
    return z;
#endif
}

static inline Vector load(const float *from) {
    Vector v;
    memcpy(&v, from, sizeof v);
    return v;
}

void tensor_multiply_fast(float *c, const float *a, const float *b, int stride, int depth) {
    for (int m = 0; m < PANEL_ROWS; m += LANES) {
        Vector sum[PANEL_COLUMNS];
        for (int n = 0; n < PANEL_COLUMNS; n++) sum[n] = load(c + n * PANEL_ROWS + m);
        for (int k = 0; k < depth; k++) {
            Vector x = load(a + k * PANEL_ROWS + m);
            for (int n = 0; n < PANEL_COLUMNS; n++) sum[n] = fused(x, b[k * stride + n], sum[n]);
        }
        for (int n = 0; n < PANEL_COLUMNS; n++)
            memcpy(c + n * PANEL_ROWS + m, &sum[n], sizeof(Vector));
    }
}

// ---- the model

enum { DEPTH_MAX = 64, FIXED = 40 }; // bits below the point of terms before they are cut

// Takes a number of a format with `mantissa` bits and this smallest exponent apart:
// x = significand * 2^(exponent - mantissa), the significand at most mantissa + 1 bits.
static inline void take_apart(float x, int mantissa, int smallest, int32_t *significand,
                              int32_t *exponent) {
    uint32_t u;
    memcpy(&u, &x, 4);
    int32_t biased = (int32_t)(u >> 23 & 0xff);
    int32_t whole = (int32_t)(u & 0x7fffff) | (biased ? 1 << 23 : 0);
    int32_t own = (biased ? biased : 1) - 127;
    *exponent = own > smallest ? own : smallest;
    // What is cut off here is zero: the number is one of the format.
    int32_t down = 23 - mantissa + (*exponent - own);
    whole = down > 31 ? 0 : whole >> down;
    *significand = u >> 31 ? -whole : whole;
}

typedef struct {
    int32_t significand[DEPTH_MAX][PANEL_ROWS];
    int32_t exponent[DEPTH_MAX][PANEL_ROWS];
} Parts;

static void take_all_apart(Parts *parts, const float *x, int stride, int count, int depth,
                           const Format *format) {
    for (int k = 0; k < depth; k++)
        for (int l = 0; l < count; l++)
            take_apart(x[k * stride + l], format->mantissa, 1 - format->bias,
                       &parts->significand[k][l], &parts->exponent[k][l]);
}

// Cuts `sum` * 2^(exponent - fraction_bits) to fp32. What is too large becomes infinite.
static inline float cut(int64_t sum, int exponent, const TensorModel *model) {
    uint64_t bits = (uint64_t)(exponent - model->fraction_bits + 1023) << 52;
    double scale, exact;
    memcpy(&scale, &bits, 8);
    exact = (double)sum * scale; // the sum has fewer than 53 bits
    float x = (float)exact;
    uint32_t u;
    memcpy(&u, &x, 4);
    u -= fabs((double)x) > fabs(exact) && fabs(exact) < 0x1p128;
    u &= ~0u << (23 - model->result_bits);
    memcpy(&x, &u, 4);
    return x;
}

// The same, rounded to nearest even to fp16.
static inline float round_to_half(int64_t sum, int exponent, const TensorModel *model) {
    double exact = ldexp((double)sum, exponent - model->fraction_bits);
    uint32_t code = round_to_format(exact, &FORMAT_F16, ROUND_NEAREST, false);
    return (float)format_value(code, &FORMAT_F16);
}

// One term, significand * 2^(exponent - bits), cut to the fraction below the largest exponent.
static inline int64_t align(int64_t significand, int bits, int32_t below, int fraction_bits) {
    int64_t magnitude = (significand < 0 ? -significand : significand) << (FIXED - bits);
    int64_t down = (int64_t)below + FIXED - fraction_bits;
    magnitude >>= down < 63 ? down : 63;
    return significand < 0 ? -magnitude : magnitude;
}

// One step for one column of the panel.
static void step(float *c, const Parts *a, const Parts *b, int n, int from, int product_bits,
                 const TensorModel *model) {
    int32_t c_significand[PANEL_ROWS], c_exponent[PANEL_ROWS], largest[PANEL_ROWS];
    int64_t sum[PANEL_ROWS];
    for (int m = 0; m < PANEL_ROWS; m++) {
        take_apart(c[m], 23, model->half ? -14 : -126, &c_significand[m], &c_exponent[m]);
        largest[m] = c_exponent[m];
    }
    for (int k = from; k < from + model->step; k++)
        for (int m = 0; m < PANEL_ROWS; m++) {
            int32_t e = a->exponent[k][m] + b->exponent[k][n];
            largest[m] = e > largest[m] ? e : largest[m];
        }
    for (int m = 0; m < PANEL_ROWS; m++)
        sum[m] = align(c_significand[m], 23, largest[m] - c_exponent[m], model->fraction_bits);
    for (int k = from; k < from + model->step; k++)
        for (int m = 0; m < PANEL_ROWS; m++) {
            int64_t product = (int64_t)a->significand[k][m] * b->significand[k][n];
            int32_t e = a->exponent[k][m] + b->exponent[k][n];
            sum[m] += align(product, product_bits, largest[m] - e, model->fraction_bits);
        }
    for (int m = 0; m < PANEL_ROWS; m++)
        c[m] =
            model->half ? round_to_half(sum[m], largest[m], model) : cut(sum[m], largest[m], model);
}

static bool all_finite(const float *x, int stride, int count, int depth) {
    uint32_t special = 0;
    for (int k = 0; k < depth; k++)
        for (int l = 0; l < count; l++) {
            uint32_t u;
            memcpy(&u, &x[k * stride + l], 4);
            special |= (u & 0x7f800000) == 0x7f800000;
        }
    return !special;
}

// Infinities and NaN come out as in any sum. In fp64 no finite term of ours is lost or overflows
// into them.
static void special_results(const float *old, float *c, const float *a, const float *b, int stride,
                            int depth) {
    for (int n = 0; n < PANEL_COLUMNS; n++)
        for (int m = 0; m < PANEL_ROWS; m++) {
            double sum = old[n * PANEL_ROWS + m];
            for (int k = 0; k < depth; k++)
                sum += (double)a[k * PANEL_ROWS + m] * b[k * stride + n];
            if (!isfinite(sum)) c[n * PANEL_ROWS + m] = (float)sum;
        }
}

void tensor_multiply_model(float *c, const float *a, const float *b, int stride, int depth,
                           const Format *a_format, const Format *b_format,
                           const TensorModel *model) {
    float old[PANEL_COLUMNS * PANEL_ROWS];
    bool finite = all_finite(a, PANEL_ROWS, PANEL_ROWS, depth) &&
                  all_finite(b, stride, PANEL_COLUMNS, depth) &&
                  all_finite(c, PANEL_ROWS, PANEL_ROWS, PANEL_COLUMNS);
    if (!finite) memcpy(old, c, sizeof old);
    Parts a_parts, b_parts;
    take_all_apart(&a_parts, a, PANEL_ROWS, PANEL_ROWS, depth, a_format);
    take_all_apart(&b_parts, b, stride, PANEL_COLUMNS, depth, b_format);
    int product_bits = a_format->mantissa + b_format->mantissa;
    for (int from = 0; from < depth; from += model->step)
        for (int n = 0; n < PANEL_COLUMNS; n++)
            step(c + n * PANEL_ROWS, &a_parts, &b_parts, n, from, product_bits, model);
    if (!finite) special_results(old, c, a, b, stride, depth);
}

// ---- integers and doubles

void tensor_multiply_integers(int32_t *c, const int32_t *a, const int32_t *b, int stride, int depth,
                              bool saturate) {
    for (int n = 0; n < PANEL_COLUMNS; n++) {
        int32_t sum[PANEL_ROWS] = {0}; // far from overflow: 64 products of 16 bits
        for (int k = 0; k < depth; k++)
            for (int m = 0; m < PANEL_ROWS; m++)
                sum[m] += a[k * PANEL_ROWS + m] * b[k * stride + n];
        for (int m = 0; m < PANEL_ROWS; m++) {
            int64_t whole = (int64_t)c[n * PANEL_ROWS + m] + sum[m];
            if (saturate) {
                whole = whole > INT32_MAX ? INT32_MAX : whole;
                whole = whole < INT32_MIN ? INT32_MIN : whole;
            }
            c[n * PANEL_ROWS + m] = (int32_t)(uint32_t)(uint64_t)whole;
        }
    }
}

void tensor_multiply_bits(int32_t *c, const int32_t *a, const int32_t *b, int stride, int depth,
                          bool and) {
    for (int n = 0; n < PANEL_COLUMNS; n++)
        for (int m = 0; m < PANEL_ROWS; m++) {
            uint32_t sum = (uint32_t)c[n * PANEL_ROWS + m];
            for (int k = 0; k < depth; k++) {
                uint32_t x = (uint32_t)a[k * PANEL_ROWS + m], y = (uint32_t)b[k * stride + n];
                sum += (uint32_t)__builtin_popcount(and? x & y : x ^ y);
            }
            c[n * PANEL_ROWS + m] = (int32_t)sum;
        }
}

void tensor_multiply_doubles(double *c, const double *a, const double *b, int stride, int depth) {
    for (int n = 0; n < PANEL_COLUMNS; n++)
        for (int k = 0; k < depth; k++)
            for (int m = 0; m < PANEL_ROWS; m++)
                c[n * PANEL_ROWS + m] =
                    fma(a[k * PANEL_ROWS + m], b[k * stride + n], c[n * PANEL_ROWS + m]);
}
