// A bench for instruction handlers: one warp on one SM, with memory, but no machine around it.
//
// bench_open lowers a kernel body; bench_insn finds an instruction in it; the test puts addresses
// and operands into its rows, calls the handler, and looks at rows and memory.
#ifndef SOFTGPU_TEST_BENCH_H
#define SOFTGPU_TEST_BENCH_H

#include "softgpu/check/findings.h"
#include "softgpu/machine/global.h"
#include "softgpu/execute/form.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/machine.h"

enum { BENCH_SHARED = 4096, BENCH_LOCAL = 256, BENCH_PARAMS = 64 };

typedef struct {
    Gpu gpu;
    Settings settings;
    Sm sm;
    Cta cta;
    Cluster cluster; // of this CTA alone
    Warp warp;
    Launch launch;
    LaunchState state;
    PtxModule *module;
    Kernel *kernel;
    uint8_t params[BENCH_PARAMS];
} Bench;

// Lowers an entry with this body (declarations and instructions, without braces and ret) and makes
// a warp of 32 lanes for it. Fails the test if it can't. `checks`: CHECK_… bits.
Bench *bench_open(const char *body, unsigned checks);
void bench_close(Bench *b);

// The first instruction whose full opcode is `text`; fails the test if there is none.
const Insn *bench_insn(Bench *b, const char *text);
// Runs it for the lanes of `mask`.
Flow bench_run(Bench *b, const Insn *i, uint32_t mask);
// Gives the lanes' base addresses.
void bench_addresses(Bench *b, const Insn *i, const uint64_t address[32]);
// first + lane * stride
void bench_stride(Bench *b, const Insn *i, uint64_t first, int64_t stride);

// Merges what was found; the number of findings in the list since bench_open, of which the last is
// *last.
int bench_findings(Bench *b, const Finding **last);

#endif
