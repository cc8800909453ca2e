// O is stored under the next tile's products.
#ifndef OVERLAPPED_EPILOGUE_STEP_H
#define OVERLAPPED_EPILOGUE_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step overlapped_epilogue_step;

#ifdef __cplusplus
}
#endif

#endif
