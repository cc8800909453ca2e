#include "slope.h"

double slope(const Problem *p, const Inputs *in, float *element, Loss loss) {
    // A power of two, which floats hold exactly.
    float value = *element, step = 0x1p-10f;
    volatile float up = value + step, down = value - step;
    *element = up;
    double above = loss(p, in);
    *element = down;
    double below = loss(p, in);
    *element = value;
    return (above - below) / ((double)up - (double)down);
}
