// Chapter 8's exponentials by polynomials of degree 3, 4 and 5, as the GPU computes them: errors no
// larger than those that FlashAttention-4's paper has for its own, exact at whole numbers, and with
// degree 3 no more than a unit of bf16 away from the right rounding, rarely.
#include <cuda_bf16.h>

#include <cmath>
#include <cstring>

#include "check.h"

#include "../../08_blackwell/exp2_polynomial.h"

static const int VALUES = 1 << 16;

template <int DEGREE> __global__ void exponentials(const float *x, float *power) {
    const int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    float first = x[i], second = x[i + 1];
    exp2_polynomial<DEGREE>(&first, &second);
    power[i] = first;
    power[i + 1] = second;
}

// Rounded to bf16, as the bits of the upper half.
static int bf16_bits(double value) {
    const float x = (float)value;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// published: the paper's largest relative error. `least`: ours is not so small; so the fit is what
// it says.
template <int DEGREE> static void check(float *x, float *power, double published, double least) {
    for (int i = 0; i < VALUES; i++) x[i] = -20.f * i / VALUES; // 0 … -20
    exponentials<DEGREE><<<VALUES / 512, 256>>>(x, power);
    CUDA(cudaDeviceSynchronize());
    double largest = 0;
    int other = 0; // bf16 numbers than the right ones
    for (int i = 0; i < VALUES; i++) {
        const double right = exp2((double)x[i]);
        largest = fmax(largest, fabs(power[i] / right - 1));
        const int away = bf16_bits(power[i]) - bf16_bits(right);
        EXPECT(abs(away) <= 1);
        other += away != 0;
        EXPECT(i == 0 || power[i] <= power[i - 1]); // monotone
    }
    EXPECT(largest <= published && largest > least);
    EXPECT(other < (DEGREE == 3 ? 0.011 : 0.001) * VALUES);
    EXPECT(DEGREE > 3 || other > 0.005 * VALUES);

    // Whole numbers; what is 0; -inf, a masked score.
    for (int i = 0; i < VALUES; i++)
        x[i] = i < 256 ? 127 - i : i < 512 ? -127.f * (i - 254) : -INFINITY;
    x[512] = -2.75f; // the lesson's example
    exponentials<DEGREE><<<VALUES / 512, 256>>>(x, power);
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < VALUES; i++)
        EXPECT(i == 512 || power[i] == (x[i] <= -127 ? 0 : exp2f(x[i])));
    EXPECT(floor(power[512] * 1e4) == 1486);
}

int main() {
    float *x, *power;
    CUDA(cudaMallocManaged(&x, VALUES * sizeof *x));
    CUDA(cudaMallocManaged(&power, VALUES * sizeof *power));
    check<3>(x, power, 8.77e-5, 8.4e-5);
    check<4>(x, power, 3.05e-6, 2.8e-6);
    check<5>(x, power, 1.52e-7, 0.9e-7);
    printf("ok\n");
    return 0;
}
