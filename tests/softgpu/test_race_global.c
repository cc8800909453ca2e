// The race check of global memory: each finding by a smallest kernel, beside a right twin that has
// none, under several schedules, and on one SM or several.
#include <stdlib.h>

#include "built_kernel.h"
#include "lanes.h"

Suite *suite_race_global(void);

// Blocks of two warps. %t, %b: the thread and its block; %d0: global memory, zeros, of which the
// first 4 KiB are flags and the rest data; %d1: this thread's word of data, %d2 that of the same
// thread in the other block, %d3 that of the opposite thread in the other warp of its block. %p1:
// block 0; %p2: warp 0; %p7: thread 0. Each thread's %out goes to a place of its own.
enum { THREADS = 64, MEMORY = 1 << 16, RESULTS = 1 << 15 };

typedef struct {
    const char *body;
    const char *words; // of the findings; NULL: there is none
    uint32_t blocks;
    uint32_t cluster;
} Case;

#define WRITE "st.global.u32 [%d1], %t;\n"
#define TAKE  "ld.global.u32 %out, [%d2];\n"
#define CROSS "ld.global.u32 %out, [%d3];\n"
#define SYNC  "bar.sync 0;\n"
#define FENCE "fence.acq_rel.gpu;\n"
#define TELL  "@%p7 st.relaxed.gpu.global.u32 [%d0], 1;\n"
// Thread 0 spins until the flag is set.
#define HEAR HEAR_BY("ld.relaxed.gpu")
#define HEAR_BY(load)                                                                              \
    "@!%p7 bra HEARD; LISTEN: " load                                                               \
    ".global.u32 %r3, [%d0]; setp.eq.u32 %p0, %r3, 0; @%p0 bra LISTEN; HEARD:\n"
// Block 0 does the one, the others the other.
#define BLOCKS(first, other) "@!%p1 bra OTHER;\n" first "bra DONE;\nOTHER:\n" other "DONE:\n"
// The two warps of a block likewise.
#define WARPS(first, other)                                                                        \
    "@!%p2 bra OTHER;\n" first "bra DONE;\nOTHER:\n" other "DONE: bar.sync 0;\n"
#define MBARRIER                                                                                   \
    ".shared .align 128 .b8 s[1024]; .shared .align 8 .b8 m[8];\n"                                 \
    "@%p7 mbarrier.init.shared.b64 [m], 1; @%p7 fence.mbarrier_init.release.cluster; bar.sync "    \
    "0;\n"
// Thread 0 copies 256 bytes of data (of block 0) in, and all wait; and out.
#define LOAD                                                                                       \
    "@%p7 mbarrier.arrive.expect_tx.shared.b64 %d4, [m], 256;\n"                                   \
    "@%p7 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d0+4096], "     \
    "256, [m];\n"
#define LANDED "W: mbarrier.try_wait.parity.shared.b64 %p0, [m], 0; @!%p0 bra W;\n"
#define STORE                                                                                      \
    "fence.proxy.async.shared::cta; bar.sync 0;\n"                                                 \
    "@%p7 cp.async.bulk.global.shared::cta.bulk_group [%d0+4096], [s], 256;"                       \
    "@%p7 cp.async.bulk.commit_group;\n"
#define FILL      "shl.b32 %r4, %t, 2; mov.u32 %r5, s; add.u32 %r4, %r4, %r5; st.shared.u32 [%r4], %t;\n"
#define WRITTEN   "@%p7 cp.async.bulk.wait_group 0;\n"
#define BEEN_READ "@%p7 cp.async.bulk.wait_group.read 0;\n"

#define THIRD       "setp.eq.u32 %p4, %t, 3;"
#define AGAIN(type) "@%p7 ld.acquire.gpu.global." type " %r3, [%d0];"
// Blocks 0 and 1 set a flag each; two lanes of block 2 wait for one each, and read that block's
// data, or the other's (%r4).
#define TWO_HEAR(block, between)                                                                   \
    "setp.eq.u32 %p4, %b, 2; @%p4 bra OTHER; mad.wide.u32 %d5, %b, 4, %d0;\n" WRITE SYNC           \
    "@%p7 st.release.gpu.global.u32 [%d5], 1; bra DONE;\n"                                         \
    "OTHER: setp.gt.u32 %p4, %t, 1; @%p4 bra DONE; mad.wide.u32 %d5, %t, 4, %d0;\n"                \
    "LISTEN: ld.acquire.gpu.global.u32 %r3, [%d5]; setp.eq.u32 %p0, %r3, 0; @%p0 bra LISTEN;\n"    \
    "xor.b32 %r4, %t, 1; mad.wide.u32 %d4, " block ", 256, %d0;" between                           \
    "ld.global.u32 %out, [%d4+4096]; DONE:\n"
// The other warp says that it is done, and has released nothing.
#define WARP_1_TELLS SYNC "setp.eq.u32 %p4, %t, 32; @%p4 st.relaxed.gpu.global.u32 [%d0+64], 1;\n"
#define HEAR_WARP_1  HEAR_AT("64")
#define HEAR_AT(offset)                                                                            \
    "@!%p7 bra HEARD; LISTEN: ld.relaxed.gpu.global.u32 %r3, [%d0+" offset                         \
    "]; setp.eq.u32 %p0, %r3, 0; @%p0 bra LISTEN; HEARD:\n"
#define LAST_OF_3(before, behind)                                                                  \
    SYNC "@!%p7 bra OUT; " before "atom.global.add.u32 %r3, [%d0], 1;" behind                      \
         "setp.ne.u32 %p0, %r3, 2; @%p0 bra OUT;\n"
#define COPY ".shared .align 16 .b8 c[16]; @%p7 cp.async.ca.shared.global [c], [%d0+4096], 16;\n"

#define BOTH "nothing puts the two in order"

static const Case cases[] = {
    // ---- between blocks: plain accesses
    {WRITE, NULL, 4, 1},
    {WRITE TAKE, "of block", 2, 1},
    {TAKE WRITE, "of block", 2, 1},
    {"@%p7 st.global.u32 [%d0+4096], 1;", "this block has acquired nothing", 2, 1},
    {"ld.global.u32 %out, [%d0+4096];", NULL, 4, 1},
    // a fence or a barrier alone is none between blocks
    {WRITE FENCE SYNC TAKE, "of block", 2, 1},
    // halves of a word are apart
    {"mad.lo.u32 %r3, %t, 2, %b; cvt.u64.u32 %d4, %r3; add.u64 %d4, %d4, %d0;"
     "mad.wide.u32 %d5, %t, 2, %d0; mad.wide.u32 %d5, %b, 1, %d5; mul.wide.u32 %d4, %t, 2;"
     "add.u64 %d4, %d4, %d5; st.global.u8 [%d4+4096], %t;",
     NULL, 2, 1},
    {"mad.wide.u32 %d4, %t, 4, %d0; mad.wide.u32 %d4, %b, 2, %d4; st.global.u16 [%d4+4096], %t;",
     NULL, 2, 1},
    {"mad.wide.u32 %d4, %t, 4, %d0; mad.wide.u32 %d4, %b, 2, %d4; st.global.u16 [%d4+4096], %t;"
     "ld.global.u16 %r3, [%d4+4096];",
     NULL, 2, 1},
    {"mad.wide.u32 %d4, %t, 4, %d0; mad.wide.u32 %d4, %b, 2, %d4; st.global.u16 [%d4+4096], %t;"
     "mad.wide.u32 %d4, %t, 4, %d0; ld.global.u32 %r3, [%d4+4096];",
     "of block", 2, 1},

    // ---- flags
    {BLOCKS(WRITE SYNC "@%p7 " FENCE TELL, HEAR "@%p7 " FENCE SYNC TAKE), NULL, 2, 1},
    {BLOCKS(WRITE "@%p7 " FENCE TELL SYNC, HEAR "@%p7 " FENCE SYNC TAKE), "is earlier", 2, 1},
    {BLOCKS(WRITE FENCE TELL SYNC, HEAR "@%p7 " FENCE SYNC TAKE), "is earlier", 2, 1},
    {BLOCKS(WRITE SYNC TELL, HEAR "@%p7 " FENCE SYNC TAKE), "acquired nothing", 2, 1},
    {BLOCKS(WRITE SYNC "@%p7 " FENCE TELL, HEAR SYNC TAKE), "acquired nothing", 2, 1},
    {BLOCKS(WRITE SYNC "@%p7 " FENCE TELL, HEAR "@%p7 " FENCE TAKE SYNC), "of block", 2, 1},
    {BLOCKS(WRITE SYNC "@%p7 fence.acq_rel.cta;" TELL, HEAR "@%p7 " FENCE SYNC TAKE), "of block", 2,
     1},
    {BLOCKS(WRITE SYNC "@%p7 " FENCE TELL, HEAR "@%p7 membar.cta;" SYNC TAKE), "of block", 2, 1},
    {BLOCKS(WRITE SYNC "@%p7 membar.gl; @%p7 st.volatile.global.u32 [%d0], 1;",
            HEAR_BY("ld.volatile") "@%p7 membar.gl;" SYNC TAKE),
     NULL, 2, 1},
    // a plain flag is a race itself
    {BLOCKS(WRITE SYNC "@%p7 membar.gl; @%p7 st.global.u32 [%d0], 1;",
            HEAR_BY("ld.volatile") "@%p7 membar.gl;" SYNC TAKE),
     BOTH, 2, 1},
    // release and acquire
    {BLOCKS(WRITE SYNC "@%p7 st.release.gpu.global.u32 [%d0], 1;",
            HEAR_BY("ld.acquire.gpu") SYNC TAKE),
     NULL, 2, 1},
    {BLOCKS(WRITE SYNC "@%p7 st.release.cta.global.u32 [%d0], 1;",
            HEAR_BY("ld.acquire.gpu") SYNC TAKE),
     BOTH, 2, 1},
    {BLOCKS(WRITE SYNC "@%p7 st.release.gpu.global.u32 [%d0], 1;",
            HEAR_BY("ld.relaxed.gpu") SYNC TAKE),
     "of block", 2, 1},
    // what is written behind the release
    {BLOCKS(SYNC "@%p7 st.release.gpu.global.u32 [%d0], 1;" WRITE,
            HEAR_BY("ld.acquire.gpu") SYNC TAKE),
     "of block", 2, 1},
    // the reader's lanes must meet: one alone has waited
    {BLOCKS(WRITE SYNC "@%p7 st.release.gpu.global.u32 [%d0], 1;",
            HEAR_BY("ld.acquire.gpu") "bar.warp.sync 0xffffffff; @%p2 " TAKE),
     NULL, 2, 1},
    {BLOCKS(WRITE SYNC "@%p7 st.release.gpu.global.u32 [%d0], 1;",
            HEAR_BY("ld.acquire.gpu") "@%p2 " TAKE),
     "of block", 2, 1},
    // and so must the writer's
    {BLOCKS("@%p2 " WRITE "bar.warp.sync 0xffffffff; @%p7 st.release.gpu.global.u32 [%d0], 1;",
            HEAR_BY("ld.acquire.gpu") SYNC "@%p2 " TAKE),
     NULL, 2, 1},
    {BLOCKS("@%p2 " WRITE "@%p7 st.release.gpu.global.u32 [%d0], 1;",
            HEAR_BY("ld.acquire.gpu") SYNC "@%p2 " TAKE),
     "of block", 2, 1},

    // by PTX's letter a thread's own fence counts
    {BLOCKS(WRITE FENCE SYNC TELL, HEAR SYNC FENCE TAKE), "of block", 2, 1},

    // ---- atomics
    {"atom.global.add.u32 %out, [%d0+4096], 1; red.global.add.u32 [%d0+4100], 1;", NULL, 4, 1},
    {"atom.global.cta.add.u32 %out, [%d0+4096], 1;", "of block", 2, 1},
    {BLOCKS("red.global.add.u32 [%d0+4096], 1;", "ld.global.u32 %out, [%d0+4096];"), "of block", 2,
     1},
    {BLOCKS("red.global.add.u32 [%d0+4096], 1;", "ld.volatile.global.u32 %out, [%d0+4096];"), NULL,
     2, 1},
    // the last block of three reads what all have written: all counts are on the way
    {WRITE SYNC "@!%p7 bra OUT; fence.acq_rel.gpu; atom.global.add.u32 %r3, [%d0], 1;"
                "fence.acq_rel.gpu; setp.ne.u32 %p0, %r3, 2; @%p0 bra OUT;"
                "ld.global.u32 %r4, [%d0+4096]; ld.global.u32 %r5, [%d0+4352];"
                "ld.global.u32 %out, [%d0+4608]; OUT:",
     NULL, 3, 1},
    {WRITE SYNC "@!%p7 bra OUT; atom.global.add.u32 %r3, [%d0], 1;"
                "fence.acq_rel.gpu; setp.ne.u32 %p0, %r3, 2; @%p0 bra OUT;"
                "ld.global.u32 %r4, [%d0+4096]; ld.global.u32 %r5, [%d0+4352];"
                "ld.global.u32 %out, [%d0+4608]; OUT:",
     "of block", 3, 1},
    {WRITE "@!%p7 bra OUT; fence.acq_rel.gpu; atom.global.add.u32 %r3, [%d0], 1;"
           "fence.acq_rel.gpu; setp.ne.u32 %p0, %r3, 2; @%p0 bra OUT;"
           "ld.global.u32 %r4, [%d0+4224]; ld.global.u32 %r5, [%d0+4480];"
           "ld.global.u32 %out, [%d0+4736]; OUT:",
     BOTH, 3, 1},
    {WRITE SYNC "@!%p7 bra OUT; atom.acq_rel.gpu.global.add.u32 %r3, [%d0], 1;"
                "setp.ne.u32 %p0, %r3, 2; @%p0 bra OUT;"
                "ld.global.u32 %r4, [%d0+4096]; ld.global.u32 %r5, [%d0+4352];"
                "ld.global.u32 %out, [%d0+4608]; OUT:",
     NULL, 3, 1},
    {WRITE SYNC "@!%p7 bra OUT; atom.release.gpu.global.add.u32 %r3, [%d0], 1;"
                "setp.ne.u32 %p0, %r3, 2; @%p0 bra OUT;"
                "ld.global.u32 %r4, [%d0+4096]; ld.global.u32 %r5, [%d0+4352];"
                "ld.global.u32 %out, [%d0+4608]; OUT:",
     "of block", 3, 1},
    // a lock: all threads 0 add to a word
    {"@!%p7 bra OUT; LOCK: atom.global.cas.b32 %r3, [%d0], 0, 1; setp.ne.u32 %p0, %r3, 0;"
     "@%p0 bra LOCK; fence.acq_rel.gpu; ld.global.u32 %r4, [%d0+4096]; add.u32 %r4, %r4, 1;"
     "st.global.u32 [%d0+4096], %r4; fence.acq_rel.gpu; atom.global.exch.b32 %r3, [%d0], 0; OUT:",
     NULL, 6, 1},
    {"@!%p7 bra OUT; LOCK: atom.global.cas.b32 %r3, [%d0], 0, 1; setp.ne.u32 %p0, %r3, 0;"
     "@%p0 bra LOCK; fence.acq_rel.gpu; ld.global.u32 %r4, [%d0+4096]; add.u32 %r4, %r4, 1;"
     "st.global.u32 [%d0+4096], %r4; atom.global.exch.b32 %r3, [%d0], 0; OUT:",
     "of block", 6, 1},
    // turns: each waits for the one before
    {"@!%p7 bra OUT; TURN: ld.acquire.gpu.global.u32 %r3, [%d0]; setp.ne.u32 %p0, %r3, %b;"
     "@%p0 bra TURN; ld.global.u32 %r4, [%d0+4096]; add.u32 %r4, %r4, 1;"
     "st.global.u32 [%d0+4096], %r4; add.u32 %r3, %b, 1; st.release.gpu.global.u32 [%d0], %r3; "
     "OUT:",
     NULL, 6, 1},
    {"@!%p7 bra OUT; TURN: ld.acquire.gpu.global.u32 %r3, [%d0]; setp.ne.u32 %p0, %r3, %b;"
     "@%p0 bra TURN; ld.global.u32 %r4, [%d0+4096]; add.u32 %r4, %r4, 1;"
     "add.u32 %r3, %b, 1; st.release.gpu.global.u32 [%d0], %r3; st.global.u32 [%d0+4096], %r4; "
     "OUT:",
     "of block", 6, 1},

    // who takes turns at a word: an atomic leaves there what was released before, a store doesn't
    {BLOCKS(WRITE SYNC "@%p7 st.release.gpu.global.u32 [%d0], 1;",
            HEAR "@%p7 atom.relaxed.gpu.global.exch.b32 %r3, [%d0], 2;" AGAIN("u32") SYNC TAKE),
     NULL, 2, 1},
    {BLOCKS(WRITE SYNC "@%p7 st.release.gpu.global.u32 [%d0], 1;",
            HEAR "@%p7 st.relaxed.gpu.global.u32 [%d0], 2;" AGAIN("u32") SYNC TAKE),
     "of block", 2, 1},
    // … one to the other half of the word neither
    {BLOCKS(WRITE SYNC "@%p7 st.release.gpu.global.u16 [%d0], 1;",
            HEAR "@%p7 st.relaxed.gpu.global.u16 [%d0+2], 2;" AGAIN("u16") SYNC TAKE),
     NULL, 2, 1},
    // elements of a vector are accesses of their own
    {BLOCKS(WRITE SYNC "@%p7 " FENCE "@%p7 st.relaxed.gpu.global.v2.u32 [%d0+64], {%t, 1};",
            HEAR_AT("68") "@%p7 " FENCE SYNC TAKE),
     NULL, 2, 1},
    {BLOCKS(WRITE SYNC "@%p7 st.relaxed.gpu.global.v2.u32 [%d0+64], {%t, 1};",
            HEAR_AT("68") "@%p7 " FENCE SYNC TAKE),
     "of block", 2, 1},
    // a fence is for what its own thread then writes, or has read
    {BLOCKS(WRITE SYNC THIRD "@%p4 " FENCE TELL, HEAR "@%p7 " FENCE SYNC TAKE), "of block", 2, 1},
    {BLOCKS(WRITE SYNC "@%p7 " FENCE TELL, HEAR THIRD "@%p4 " FENCE SYNC TAKE), "of block", 2, 1},
    // each of two lanes hears of one block
    {TWO_HEAR("%t", ""), NULL, 3, 1},
    {TWO_HEAR("%r4", ""), "of block", 3, 1},
    {TWO_HEAR("%r4", "bar.warp.sync 3;"), NULL, 3, 1},
    // a cas that fails doesn't write
    {BLOCKS(WRITE SYNC "@%p7 " FENCE "@%p7 atom.global.cas.b32 %r3, [%d0], 0, 5;" WARP_1_TELLS,
            HEAR_WARP_1 "@%p7 ld.acquire.gpu.global.u32 %r3, [%d0];" SYNC TAKE),
     NULL, 2, 1},
    {BLOCKS(WRITE SYNC "@%p7 " FENCE "@%p7 atom.global.cas.b32 %r3, [%d0], 4, 5;" WARP_1_TELLS,
            HEAR_WARP_1 "@%p7 ld.acquire.gpu.global.u32 %r3, [%d0];" SYNC TAKE),
     "of block", 2, 1},
    {BLOCKS(WRITE SYNC "@%p7 " FENCE ".reg .b128 %w<3>; mov.b64 %d4, 0; mov.b128 %w0, {%d4, %d4};"
                       "mov.b128 %w1, {%d4, %d4};"
                       "@%p7 atom.relaxed.gpu.global.cas.b128 %w2, [%d0], %w1, %w0;" WARP_1_TELLS,
            HEAR_WARP_1 "@%p7 ld.acquire.gpu.global.u32 %r3, [%d0];" SYNC TAKE),
     NULL, 2, 1},
    // red doesn't read
    {BLOCKS(WRITE SYNC "@%p7 " FENCE "@%p7 red.global.add.u32 [%d0], 1;" WARP_1_TELLS,
            HEAR_WARP_1 "@%p7 atom.global.add.u32 %r3, [%d0], 1; @%p7 " FENCE SYNC TAKE),
     NULL, 2, 1},
    {BLOCKS(WRITE SYNC "@%p7 " FENCE "@%p7 red.global.add.u32 [%d0], 1;" WARP_1_TELLS,
            HEAR_WARP_1 "@%p7 red.global.add.u32 [%d0], 1; @%p7 " FENCE SYNC TAKE),
     "of block", 2, 1},

    // who reads a sum plainly must know of all that was added, not of what was added last only; an
    // atomic that reads has found what was added before it
    {"@%p7 red.global.add.u32 [%d0+4096], 1;" LAST_OF_3(
         FENCE, FENCE) "ld.global.u32 %out, [%d0+4096]; OUT:",
     NULL, 3, 1},
    {"@%p7 red.global.add.u32 [%d0+4096], 1;" LAST_OF_3(
         "", FENCE) "ld.global.u32 %out, [%d0+4096]; OUT:",
     "of block", 3, 1},
    {"@%p7 red.global.add.u32 [%d0+4096], 1;" LAST_OF_3(
         "", FENCE) "ld.relaxed.gpu.global.u32 %out, [%d0+4096]; OUT:",
     NULL, 3, 1},
    {"@%p7 red.global.add.u32 [%d0+4096], 1;" LAST_OF_3(
         "", FENCE) "atom.global.add.u32 %r3, [%d0+4096], 1; ld.global.u32 %out, [%d0+4096]; OUT:",
     NULL, 3, 1},
    // the last one to count may set the counter to 0, and who has found a flag may take it away
    {LAST_OF_3("", "") "st.global.u32 [%d0], 0; OUT:", NULL, 3, 1},
    {BLOCKS(TELL, HEAR "@%p7 st.global.u32 [%d0], 0;"), NULL, 2, 1},
    {BLOCKS(TELL, HEAR SYNC THIRD "@%p4 st.global.u32 [%d0], 0;"), NULL, 2, 1},
    {BLOCKS(TELL, HEAR THIRD "@%p4 st.global.u32 [%d0], 0;"), "lane 0 of the same warp", 2, 1},
    {BLOCKS(TELL, "@%p7 st.global.u32 [%d0], 0;"), "of block", 2, 1},

    // ---- between the warps of a block
    {WRITE CROSS, "warp", 1, 1},
    {WRITE SYNC CROSS, NULL, 1, 1},
    {WRITE SYNC CROSS WRITE, "reads", 1, 1},
    {WRITE SYNC CROSS SYNC WRITE, NULL, 1, 1},
    {WRITE "bar.warp.sync 0xffffffff;" CROSS, "warp", 3, 1},
    {WARPS(WRITE "bar.arrive 1, 64;", "bar.sync 1, 64;" CROSS), NULL, 2, 1},
    {WARPS("bar.arrive 1, 64;" WRITE, "bar.sync 1, 64;" CROSS), "warp", 2, 1},
    {"atom.global.cta.add.u32 %out, [%d0+4096], 1;", NULL, 1, 1},
    // a flag of a block's own
    {"setp.eq.u32 %p4, %t, 32;" WARPS(WRITE "bar.warp.sync 0xffffffff;"
                                            "@%p7 st.release.cta.global.u32 [%d0], 1;",
                                      "@!%p4 bra HEARD; LISTEN: ld.acquire.cta.global.u32 %r3, "
                                      "[%d0]; setp.eq.u32 %p0, %r3, 0; @%p0 bra LISTEN; HEARD:"
                                      "bar.warp.sync 0xffffffff;" CROSS),
     NULL, 1, 1},
    {"setp.eq.u32 %p4, %t, 32;" WARPS(WRITE "bar.warp.sync 0xffffffff;"
                                            "@%p7 st.relaxed.cta.global.u32 [%d0], 1;",
                                      "@!%p4 bra HEARD; LISTEN: ld.acquire.cta.global.u32 %r3, "
                                      "[%d0]; setp.eq.u32 %p0, %r3, 0; @%p0 bra LISTEN; HEARD:"
                                      "bar.warp.sync 0xffffffff;" CROSS),
     "warp", 1, 1},

    // ---- between the lanes of a warp
    {"xor.b32 %r3, %t, 1; mad.wide.u32 %d4, %r3, 4, %d0;" WRITE "ld.global.u32 %out, [%d4+4096];",
     "of the same warp", 1, 1},
    {"xor.b32 %r3, %t, 1; mad.wide.u32 %d4, %r3, 4, %d0;" WRITE
     "bar.warp.sync 0xffffffff; ld.global.u32 %out, [%d4+4096];",
     NULL, 1, 1},
    {WRITE "ld.global.u32 %out, [%d1];" WRITE, NULL, 4, 1},

    // ---- blocks of a cluster meet at its barrier
    {WRITE "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" TAKE, NULL, 2, 2},
    {WRITE TAKE "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", "of block (", 2,
     2},
    {WRITE "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" TAKE, NULL, 4, 2},
    {WRITE "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; xor.b32 %r3, %b, 2;"
           "mad.wide.u32 %d4, %r3, 256, %d0; mad.wide.u32 %d4, %t, 4, %d4;"
           "ld.global.u32 %out, [%d4+4096];",
     "of block", 4, 2},
    {BLOCKS(WRITE SYNC "@%p7 st.release.cluster.global.u32 [%d0], 1;",
            HEAR_BY("ld.acquire.cluster") SYNC TAKE),
     NULL, 2, 2},

    // ---- copies
    {"ld.global.u32 %out, [%d0+4096]; .shared .align 16 .b8 c[16]; @%p7 cp.async.ca.shared.global "
     "[c], [%d0+4096], 16; cp.async.wait_all;",
     NULL, 3, 1},
    {"@%p1 st.global.u32 [%d1], 1; .shared .align 16 .b8 c[16]; @%p7 cp.async.ca.shared.global "
     "[c], [%d0+4096], 16; cp.async.wait_all;",
     BOTH, 2, 1},
    // … which read until they are waited for
    {COPY "cp.async.wait_all;" SYNC WRITE, NULL, 1, 1},
    {COPY SYNC WRITE "cp.async.wait_all;", "a cp.async of block", 1, 1},
    {COPY "cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 1;" SYNC WRITE, NULL,
     1, 1},
    {COPY "cp.async.commit_group; cp.async.wait_group 1;" SYNC WRITE "cp.async.wait_group 0;",
     "a cp.async of block", 1, 1},
    {BLOCKS(COPY "cp.async.wait_all;" SYNC "@%p7 " FENCE TELL,
            HEAR "@%p7 " FENCE SYNC "st.global.u32 [%d2], 1;"),
     NULL, 2, 1},
    {BLOCKS(COPY SYNC "@%p7 " FENCE TELL "cp.async.wait_all;",
            HEAR "@%p7 " FENCE SYNC "st.global.u32 [%d2], 1;"),
     "a cp.async of block", 2, 1},
    {MBARRIER COPY "@%p7 cp.async.mbarrier.arrive.noinc.shared.b64 [m];" LANDED WRITE, NULL, 1, 1},
    {MBARRIER COPY "@%p7 mbarrier.arrive.shared.b64 %d4, [m];" LANDED WRITE "cp.async.wait_all;",
     "a cp.async of block", 1, 1},
    {MBARRIER LOAD LANDED, NULL, 3, 1},
    {MBARRIER LOAD LANDED "@%p1 " WRITE, BOTH, 2, 1},
    {MBARRIER LOAD LANDED WRITE, NULL, 1, 1},
    {MBARRIER LOAD WRITE LANDED, "bulk copy", 1, 1},
    // written, and then read by a copy of the same block: a proxy fence between
    {MBARRIER WRITE "fence.proxy.async;" SYNC LOAD LANDED, NULL, 1, 1},
    {MBARRIER WRITE "fence.proxy.async.global;" SYNC LOAD LANDED, NULL, 1, 1},
    {MBARRIER WRITE SYNC "@%p7 fence.proxy.async.global;" LOAD LANDED, NULL, 1, 1},
    {MBARRIER WRITE SYNC LOAD LANDED, "no fence.proxy.async stands in between", 1, 1},
    {MBARRIER WRITE "fence.proxy.async;" LOAD LANDED, "nothing puts", 1, 1},
    // … by one of another block: the fence of either
    {MBARRIER BLOCKS(WRITE "fence.proxy.async;" SYNC "@%p7 " FENCE TELL,
                     HEAR "@%p7 " FENCE LOAD LANDED),
     NULL, 2, 1},
    {MBARRIER BLOCKS(WRITE SYNC "@%p7 " FENCE TELL,
                     HEAR "@%p7 " FENCE "@%p7 fence.proxy.async;" LOAD LANDED),
     NULL, 2, 1},
    {MBARRIER BLOCKS(WRITE SYNC "@%p7 " FENCE TELL, HEAR "@%p7 " FENCE LOAD LANDED),
     "no fence.proxy.async stands in between", 2, 1},
    // bulk stores
    {MBARRIER FILL STORE BEEN_READ, NULL, 1, 1},
    {MBARRIER FILL STORE BEEN_READ, "a bulk store of block", 2, 1},
    {MBARRIER FILL STORE WRITTEN SYNC "ld.global.u32 %out, [%d1];", NULL, 1, 1},
    {MBARRIER FILL STORE BEEN_READ SYNC "ld.global.u32 %out, [%d1];", "a bulk store of block", 1,
     1},
    {MBARRIER FILL STORE BEEN_READ WRITTEN SYNC "ld.global.u32 %out, [%d1];", NULL, 1, 1},
    {MBARRIER FILL STORE WRITTEN "ld.global.u32 %out, [%d1];", "a bulk store of block", 1, 1},
    {MBARRIER FILL BLOCKS(STORE WRITTEN "@%p7 " FENCE TELL, HEAR "@%p7 " FENCE SYNC TAKE), NULL, 2,
     1},
    {MBARRIER FILL BLOCKS(STORE BEEN_READ "@%p7 " FENCE TELL, HEAR "@%p7 " FENCE SYNC TAKE),
     "a bulk store of block", 2, 1},
    {MBARRIER FILL "fence.proxy.async.shared::cta; bar.sync 0;"
                   "@%p7 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d0+4096], "
                   "[s], 256; @%p7 cp.async.bulk.commit_group; @%p7 cp.async.bulk.wait_group 0;",
     NULL, 3, 1},
};
enum { CASES = sizeof cases / sizeof *cases };

// Not strict: the fences of all threads, and one's write and read, beside a barrier.
static const Case loose[] = {
    {BLOCKS(WRITE FENCE SYNC TELL, HEAR SYNC FENCE TAKE), NULL, 2, 1},
    {BLOCKS(WRITE FENCE SYNC TELL, HEAR SYNC TAKE), "of block", 2, 1},
    {BLOCKS(WRITE SYNC TELL FENCE, HEAR SYNC FENCE TAKE), "of block", 2, 1},
    {BLOCKS(WRITE FENCE TELL SYNC, HEAR SYNC FENCE TAKE), "of block", 2, 1},
    {BLOCKS(WRITE FENCE SYNC TELL, HEAR FENCE SYNC TAKE), NULL, 2, 1},
    {BLOCKS(FENCE WRITE SYNC TELL, HEAR SYNC FENCE TAKE), "of block", 2, 1},
};
enum { LOOSE = sizeof loose / sizeof *loose };

// Not strict: an atomic without a fence behind it, which is worth a note.
#define LAST(fence, reads)                                                                         \
    WRITE SYNC "@!%p7 bra OUT; fence.acq_rel.gpu;" reads fence                                     \
               "setp.ne.u32 %p0, %r3, 1; @%p0 bra OUT;"                                            \
               "ld.global.u32 %r4, [%d0+4096]; ld.global.u32 %out, [%d0+4352]; OUT:"
static const Case notes[] = {
    {LAST("", "atom.global.add.u32 %r3, [%d0], 1;"), "only an atomic without a fence", 2, 1},
    {LAST(FENCE, "atom.global.add.u32 %r3, [%d0], 1;"), NULL, 2, 1},
    {WRITE SYNC "@!%p7 bra OUT; LOCK: atom.global.cas.b32 %r3, [%d0], 0, 1; setp.ne.u32 %p0, %r3, "
                "0; @%p0 bra LOCK; st.global.u32 [%d0+16384], %b; fence.acq_rel.gpu;"
                "atom.global.exch.b32 %r3, [%d0], 0; OUT:",
     "only an atomic without a fence", 3, 1},
};
enum { NOTES = sizeof notes / sizeof *notes };

static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};
enum { ORDERS = 4, SCHEDULES = 3, SMS = 2, WAYS = ORDERS * SCHEDULES * SMS };

static int run(const Case *c, int way, int threads, bool strict) {
    Settings options = {.threads = threads,
                        .schedule = (uint64_t)(way / ORDERS % SCHEDULES),
                        .async = orders[way % ORDERS],
                        .report_json = true,
                        .checks = CHECK_RACE,
                        .strict = strict};
    findings_reset();
    char text[8192];
    int length = snprintf(
        text, sizeof text,
        ".version 9.0\n.target sm_100a\n.address_size 64\n"
        ".visible .entry k(.param .u64 memory)\n{\n.reg .b32 %%t, %%b, %%out;\n%s"
        "mov.u32 %%t, %%tid.x; mov.u32 %%b, %%ctaid.x; mov.u32 %%out, 0;\n"
        "ld.param.u64 %%d0, [memory]; mad.wide.u32 %%d1, %%t, 4, %%d0; add.u64 %%d1, %%d1, 4096;"
        "xor.b32 %%r1, %%b, 1; mad.wide.u32 %%d2, %%r1, 256, %%d1;"
        "mad.wide.u32 %%d1, %%b, 256, %%d1; xor.b32 %%r1, %%t, 32; mul.wide.u32 %%d3, %%r1, 4;"
        "mad.wide.u32 %%d3, %%b, 256, %%d3; add.u64 %%d3, %%d3, %%d0; add.u64 %%d3, %%d3, 4096;"
        "setp.eq.u32 %%p1, %%b, 0; setp.lt.u32 %%p2, %%t, 32; setp.eq.u32 %%p7, %%t, 0;\n%s\n"
        "mad.lo.u32 %%r1, %%b, 64, %%t; mad.wide.u32 %%d1, %%r1, 4, %%d0;"
        "st.global.u32 [%%d1+32768], %%out;\nret;\n}\n",
        REGISTERS, c->body);
    ck_assert_int_lt(length, (int)sizeof text);
    GpuFigures figures = *figures_find("h100");
    // All blocks on one SM, or each on its own.
    if (way / ORDERS / SCHEDULES && c->cluster == 1) figures.sms = 1;
    BuiltKernel b = kernel_built(text, &options, &figures, 32);
    Gpu *gpu = b.gpu;
    uint64_t memory = global_alloc(gpu->memory, MEMORY, MEMORY_DEVICE, NULL);
    memset(global_pointer(gpu->memory, memory), 0, MEMORY);
    Launch launch = {.kernel = b.kernel,
                     .grid = {c->blocks, 1, 1},
                     .block = {THREADS, 1, 1},
                     .cluster = {c->cluster, 1, 1},
                     .params = &memory};
    KernelStats stats;
    int code = gpu_launch(gpu, &launch, &stats);
    built_free(b);
    return code;
}

START_TEST(one_case) {
    const Case *c = _i < CASES ? &cases[_i] : &loose[_i - CASES];
    for (int way = 0; way < WAYS; way++) {
        int code = run(c, way, 1 + way % 2, _i < CASES);
        const Finding *f = findings_get(0);
        ck_assert_msg(code == 0, "case %d, way %d: %s\n%s", _i, way, f ? f->what : "", c->body);
        if (!c->words) {
            ck_assert_msg(f == NULL, "case %d, way %d: %s\n%s", _i, way, f ? f->what : "", c->body);
            continue;
        }
        bool found = false;
        for (int k = 0; (f = findings_get(k)); k++) {
            found |= f->kind == FINDING_RACE && strstr(f->what, c->words) && f->mend && f->other;
            ck_assert_msg(f->kind == FINDING_RACE, "case %d, way %d: %s\n%s", _i, way, f->what,
                          c->body);
        }
        f = findings_get(0);
        ck_assert_msg(found, "case %d, way %d: %s\n%s", _i, way, f ? f->what : "no finding",
                      c->body);
    }
}
END_TEST

START_TEST(noted) {
    const Case *c = &notes[_i];
    for (int way = 0; way < WAYS; way++) {
        ck_assert_int_eq(run(c, way, 1 + way % 2, false), 0);
        const Finding *f = findings_get(0);
        ck_assert_msg(c->words ? f && f->note && strstr(f->what, c->words) : !f, "way %d: %s\n%s",
                      way, f ? f->what : "no note", c->body);
        for (int k = 0; (f = findings_get(k)); k++) ck_assert_msg(f->note, "%s", f->what);
        if (!c->words) continue;
        ck_assert_int_eq(run(c, way, 1 + way % 2, true), 0);
        f = findings_get(0);
        ck_assert_msg(f && !f->note && f->kind == FINDING_RACE, "strict, way %d\n%s", way, c->body);
    }
}
END_TEST

Suite *suite_race_global(void) {
    Suite *suite = suite_create("race_global");
    TCase *tests = tcase_create("race_global");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, one_case, 0, CASES + LOOSE);
    tcase_add_loop_test(tests, noted, 0, NOTES);
    suite_add_tcase(suite, tests);
    return suite;
}
