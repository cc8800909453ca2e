// Between float and the kernels' element types, rounding to nearest even.
#ifndef CONVERT_H
#define CONVERT_H

#include <stddef.h>
#include <stdint.h>

#include "harness/attention.h"

const char *dtype_name(Dtype dtype);  // "fp16"
size_t dtype_size(Dtype dtype);       // bytes of an element
int dtype_mantissa_bits(Dtype dtype); // stored ones: 23, 10, 7, 3
double dtype_largest(Dtype dtype);    // largest finite value

uint16_t half_from_float(float value);
float float_from_half(uint16_t bits);
uint16_t bfloat16_from_float(float value);
float float_from_bfloat16(uint16_t bits);
uint8_t e4m3_from_float(float value); // saturates at 448, as cvt.satfinite does
float float_from_e4m3(uint8_t bits);

// The nearest value of the type, as a float.
float round_to_dtype(float value, Dtype dtype);

// Whole arrays.
void store_as_dtype(void *to, const float *from, int64_t count, Dtype dtype);
float load_dtype(const void *from, int64_t index, Dtype dtype);

// Half a unit in the last place of the type's values around `value`.
double half_ulp(double value, Dtype dtype);

#endif
