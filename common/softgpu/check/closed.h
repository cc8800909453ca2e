// The check of closed words (machine/async.h): shared memory that a copy under way will write, and
// live mbarriers, which only their own instructions may touch.
#ifndef SOFTGPU_CLOSED_H
#define SOFTGPU_CLOSED_H

#include "softgpu/check/check.h"
#include "softgpu/machine/async.h"

// An access to shared memory that comes near closed words: if it touches one, records a finding.
// `cta`: whose memory it is. *copied: some bytes are still being copied, so whether they were
// written is no question. false if the finding ends the launch.
bool check_closed(Warp *w, const Insn *i, Cta *cta, const uint32_t address[WARP_SIZE],
                  unsigned size, uint32_t mask, bool write, bool *copied);

#endif
