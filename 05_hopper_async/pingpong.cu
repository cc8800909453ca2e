// Chapter 5, step pingpong: an exponential costs a GPU far more than a product's multiply-add, and
// while all warpgroups do their softmax the tensor cores stand still. Named barriers keep the
// warpgroups out of step: P V and the next Q Kᵀ of one run while the others do their softmax.
#include "pingpong.h"

#define FORWARD_KERNEL pingpong
static const int STAGES = 2;
static const bool SPECIALISED = true;
static const bool PINGPONG = true;
static const bool OVERLAP = false;
static const bool SOFTMAX = true;
#include "forward.h"

const Step pingpong_step = {
    .chapter = 5,
    .name = "pingpong",
    .idea = "warpgroups take turns on the tensor cores: one multiplies, the others do softmax",
    .exhibit = false,
    .refuses = refuses_forward,
    .forward_workspace = no_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
