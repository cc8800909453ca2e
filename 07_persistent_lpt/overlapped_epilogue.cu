// Chapter 7, step overlapped-epilogue: nobody who computes waits for a store. O goes where V is
// needed latest, a warp beside the producer hands it to TMA, and the next tile's Q comes during this
// one's last products.
#include "overlapped_epilogue.h"

#include "schedule.h"

#define FORWARD_KERNEL overlapped_epilogue
static const OrderKind ORDER = ORDER_AS_IT_COMES;
static const bool DYNAMIC = false;
static const bool OVERLAPPED = true;
static const bool PACKED = false;
#include "forward.h"

const Step overlapped_epilogue_step = {
    .chapter = 7,
    .name = "overlapped-epilogue",
    .idea = "O is stored by warps of their own, under the next tile's products",
    .exhibit = false,
    .refuses = refuses_forward,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
    .varlen = true,
    .sinks = true,
    .whole_gpu = true,
};
