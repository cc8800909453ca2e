// What tcgen05 instructions may follow what, through tensor memory and shared memory: each rule by
// a smallest kernel that keeps it and one that doesn't, under all orders of completion.
#include "tensor_kernel.h"

Suite *suite_tcgen05_order(void);

// f16, M 128, N 64 and 32; A and B K-major with 128B swizzle, 16 KB apart.
enum { N64 = 0x08100010, N32 = 0x08080010 };
#define A_DESCRIPTOR (2ull << 61 | 1ull << 46 | 64ull << 32 | 1ull << 16 | SMEM >> 4)
#define B_DESCRIPTOR (A_DESCRIPTOR + 0x400)

#define EIGHT "{%t, %t, %t, %t, %t, %t, %t, %t};\n"
#define ONE_MMA(who, d, a, i, on)                                                                  \
    "@" who " tcgen05.mma.cta_group::1.kind::f16 [" d "], " a ", %b, " i ", " on ";\n"
#define MMA(on)    ONE_MMA("%one", "%tm", "%a", "%i", on)
#define MMA_TS     ONE_MMA("%one", "%tm", "[%r10]", "%i", "%off") // A: 8 columns from 256 on
#define LD         "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%x0}, [%own];\n"
#define ST         "tcgen05.st.sync.aligned.32x32b.x8.b32 [%own + 256], " EIGHT
#define SCALES     "tcgen05.st.sync.aligned.32x32b.x8.b32 [%own + 300], " EIGHT
#define P          "add.u32 %r10, %tm, 256;\n"
#define DONE       COMMIT("0") AWAIT("DONE", "0", "0")
#define WRITE_A    "mov.u32 %r11, smem; @%one st.shared.u32 [%r11], 7;\n"
#define BAR        "bar.sync 0;\n"
#define OTHER      "setp.eq.u32 %p5, %t, 33;\n" // a thread of another warp
#define FIRST_LANE "and.b32 %r14, %t, 31; setp.ne.u32 %p4, %r14, 0; @%p4 bra OVER;\n"
#define BY_SECOND                                                                                  \
    "setp.eq.u32 %p5, %t, 1;\n" ONE_MMA(                                                           \
        "%p5", "%tm", "%a", "%i",                                                                  \
        "%on") "@%p5 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar "  \
               "+ 8];\n"
#define WRITE_AND_TELL                                                                             \
    "mov.u32 %r11, smem; @%p5 st.shared.u32 [%r11], 7; fence.proxy.async.shared::cta;\n"           \
    "@%p5 mbarrier.arrive.shared::cta.b64 _, [bar + 8];\n"
#define PROXY  "fence.proxy.async.shared::cta;\n"
#define CP(to) "add.u32 %r12, %tm, " to "; @%one tcgen05.cp.cta_group::1.128x128b [%r12], %a;\n"
#define MX_I   "mov.u32 %r13, 0x08900000;\n" // mxf8f6f4 of e4m3, M 128, N 64, UE8M0
#define MX                                                                                         \
    "add.u32 %r12, %tm, 300; @%one tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%tm], %a," \
    " %b, %r13, [%r12], [%r12], %off;\n"

#define SHIFT(at) "add.u32 %r12, %tm, " at "; @%one tcgen05.shift.cta_group::1.down [%r12];\n"
#define CP_4(to)  "add.u32 %r12, %tm, " to "; @%one tcgen05.cp.cta_group::1.4x256b [%r12], %a;\n"
#define LD_A      "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%x0}, [%own + 256];\n"
#define ASHIFT(i, on)                                                                              \
    "@%one tcgen05.mma.cta_group::1.kind::f16.ashift [%tm], [%r10], %b, " i ", " on ";\n"
#define READY P ST WAIT_ST SYNC // A at column 256

// By the other thread, with its commit; the first one commits what it has copied.
#define MX_BY_OTHER                                                                                \
    "add.u32 %r12, %tm, 300; @%p5 tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%tm], %a, " \
    "%b, %r13, [%r12], [%r12], %off;\n@%p5 tcgen05.commit.cta_group::1.mbarrier::arrive::one."     \
    "shared::cluster.b64 [bar];\n" AWAIT("W", "0", "0") COMMIT("8") AWAIT("V", "8", "0")

static const char skipped[] = "waits by parity";
static const struct {
    const char *body;
    FindingKind kind;
    const char *words; // NULL: no finding
} cases[] = {
    // products, then loads
    {MMA("%off") DONE LD WAIT_LD, 0, NULL},
    {MMA("%off") MMA("%on") MMA("%on") DONE LD WAIT_LD, 0, NULL},
    {MMA("%off") COMMIT("0") AWAIT_ONLY("W", "0", "0") LD WAIT_LD, FINDING_RACE, "tcgen05 fences"},
    {MMA("%off") COMMIT("0") "W: mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %p7, "
                             "[bar], 0; @!%p7 bra W;\n" AFTER LD WAIT_LD,
     0, NULL},
    {MMA("%off") SYNC LD WAIT_LD DONE, FINDING_RACE, "a tcgen05.mma writes: nothing"},
    {MMA("%off") COMMIT("0") LD WAIT_LD AWAIT("W", "0", "0"), FINDING_RACE, "nothing puts"},
    {MMA("%off") OTHER "@%p5 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 "
                       "[bar];\n" AWAIT("W", "0", "0") LD WAIT_LD,
     FINDING_RACE, "nothing puts the two in order"},
    // a wait for the wrong barrier's phase, which completes by itself
    {MMA("%off") COMMIT("0") "@%one mbarrier.arrive.shared::cta.b64 _, [bar + 8];\n" AWAIT(
         "W", "8", "0") LD WAIT_LD AWAIT("V", "0", "0"),
     FINDING_RACE, "nothing puts"},
    // one warp waits, the others meet it
    {MMA("%off") COMMIT("0") "@!%p6 bra OVER;" AWAIT("W", "0", "0") BEFORE
     "OVER: bar.sync 0;\n" AFTER LD WAIT_LD,
     0, NULL},
    {MMA("%off") COMMIT("0") "@!%p6 bra OVER;" AWAIT_ONLY(
         "W", "0", "0") "OVER: bar.sync 0;\n" AFTER LD WAIT_LD,
     0, NULL}, // a commit stands for a fence in front of it
    {MMA("%off") COMMIT("0") "@!%p6 bra OVER;" AWAIT("W", "0", "0") BEFORE
     "OVER: bar.sync 0;\n" LD WAIT_LD,
     FINDING_RACE, "tcgen05 fences"},
    // one lane of each warp waits: for the others only behind a meeting
    {MMA("%off") COMMIT("0") FIRST_LANE AWAIT("W", "0", "0") "OVER: bar.warp.sync -1;\n" LD WAIT_LD,
     0, NULL},
    {MMA("%off") COMMIT("0") FIRST_LANE AWAIT("W", "0", "0") "OVER:" LD WAIT_LD, FINDING_RACE,
     "nothing puts the two in order"},
    {MMA("%off") COMMIT("0")
         FIRST_LANE AWAIT_ONLY("W", "0", "0") "OVER: bar.warp.sync -1;\n" LD WAIT_LD,
     FINDING_RACE, "tcgen05 fences"},
    {MMA("%off") COMMIT("0")
         FIRST_LANE AWAIT("W", "0", "0") "OVER: bar.warp.sync -1;\n" BY_SECOND AWAIT("V", "8", "0"),
     0, NULL},
    {MMA("%off") COMMIT("0") FIRST_LANE AWAIT("W", "0", "0") "OVER:" BY_SECOND AWAIT("V", "8", "0"),
     FINDING_RACE, "a tcgen05.mma writes: nothing"},
    // all have waited, another lane goes on
    {MMA("%off") COMMIT("0") AWAIT("W", "0", "0") BY_SECOND AWAIT("V", "8", "0") LD WAIT_LD, 0,
     NULL},
    // loads, then the next product
    {MMA("%off") DONE LD WAIT_LD SYNC MMA("%off") COMMIT("8") AWAIT("W", "8", "0"), 0, NULL},
    {MMA("%off") DONE LD SYNC MMA("%off") WAIT_LD COMMIT("8") AWAIT("W", "8", "0"), FINDING_RACE,
     "a tcgen05.ld may still be reading: nothing"},
    {MMA("%off") DONE LD WAIT_LD BAR MMA("%off") COMMIT("8") AWAIT("W", "8", "0"), FINDING_RACE,
     "tcgen05 fences"},
    {MMA("%off") DONE LD WAIT_LD BAR AFTER MMA("%off") COMMIT("8") AWAIT("W", "8", "0"),
     FINDING_RACE, "tcgen05 fences"},
    {MMA("%off") DONE LD WAIT_LD BEFORE BAR MMA("%off") COMMIT("8") AWAIT("W", "8", "0"),
     FINDING_RACE, "tcgen05 fences"},
    {MMA("%off") DONE LD WAIT_LD MMA("%off") COMMIT("8") AWAIT("W", "8", "0"), FINDING_RACE,
     "nothing puts the two in order"},
    {MMA("%off") DONE LD WAIT_LD BEFORE
     "@%one mbarrier.init.shared::cta.b64 [bar + 32], 128; bar.sync 0;"
     "mbarrier.arrive.relaxed.cluster.shared::cta.b64 _, [bar + 32];\n"
     "V: mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %p7, [bar + 32], 0; @!%p7 bra "
     "V;" AFTER MMA("%off") COMMIT("8") AWAIT("W", "8", "0"),
     0, NULL},
    // stores, then products that read them
    {P ST WAIT_ST SYNC MMA_TS DONE LD WAIT_LD, 0, NULL},
    {P ST SYNC MMA_TS WAIT_ST DONE, FINDING_RACE, "a tcgen05.st writes: nothing"},
    {P ST WAIT_ST BAR MMA_TS DONE, FINDING_RACE, "tcgen05 fences"},
    {P ST WAIT_ST MMA_TS DONE, FINDING_RACE, "nothing puts the two in order"},
    {P ST WAIT_ST SYNC MMA_TS ST WAIT_ST DONE, FINDING_RACE, "a tcgen05.mma may still be reading"},
    {P ST WAIT_ST SYNC MMA_TS DONE ST WAIT_ST, 0, NULL},
    // stores on an accumulator, and on from there
    {MMA("%off") DONE LD WAIT_LD
     "tcgen05.st.sync.aligned.32x32b.x1.b32 [%own], {%x0};\n" WAIT_ST SYNC MMA("%on") COMMIT("8")
         AWAIT("W", "8", "0") LD WAIT_LD,
     0, NULL},
    {MMA("%off") DONE LD WAIT_LD "tcgen05.st.sync.aligned.32x32b.x1.b32 [%own], {%x0};\n" SYNC MMA(
         "%on") WAIT_ST COMMIT("8") AWAIT("W", "8", "0"),
     FINDING_RACE, "a tcgen05.st writes"},
    // products among themselves
    {MMA("%off") ONE_MMA("%one", "%tm", "%a", "%j", "%on") DONE, FINDING_RACE,
     "a tcgen05.mma writes"},
    {MMA("%off") ONE_MMA("%one", "%tm", "%a", "%j", "%off") DONE, FINDING_RACE,
     "a tcgen05.mma writes"},
    {"add.u32 %r10, %tm, 64;\n" MMA("%off") ONE_MMA("%one", "%r10", "%a", "%j", "%off") DONE, 0,
     NULL},
    {"add.u32 %r10, %tm, 64;\n" MMA("%off") ONE_MMA("%one", "%r10", "[%tm]", "%j", "%off") DONE,
     FINDING_RACE, "a tcgen05.mma writes"},
    {"add.u32 %r10, %tm, 64;\n" MMA("%off") COMMIT("8") "@%p6 bra GO; bra OVER; GO:" AWAIT(
         "W", "8", "0") "OVER:" ONE_MMA("%one", "%r10", "[%tm]", "%j", "%off") DONE,
     0, NULL},
    {MMA("%off") OTHER ONE_MMA("%p5", "%tm", "%a", "%i", "%on") DONE, FINDING_RACE,
     "a tcgen05.mma writes"},
    // the pipe keeps reads of one thread before later writes (P, and the next S on top of it)
    {P ST WAIT_ST SYNC MMA_TS ONE_MMA("%one", "%r10", "%a", "%i", "%off") DONE, 0, NULL},
    // copies
    {CP("300") MX_I MX DONE, 0, NULL},
    {CP("300") BEFORE BAR AFTER OTHER MX_I MX_BY_OTHER, 0, NULL},
    {CP("300") BAR OTHER MX_I MX_BY_OTHER, FINDING_RACE, "a tcgen05.cp writes"},
    {SCALES WAIT_ST SYNC MX_I MX CP("300") DONE, FINDING_RACE,
     "a tcgen05.mma may still be reading"},
    {CP("300") COMMIT("0") AWAIT("W", "0", "0") "tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r0, %r1, "
                                                "%r2, %r3}, [%own + 300];\n" WAIT_LD,
     0, NULL},
    {CP("300") "tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r0, %r1, %r2, %r3}, [%own + 300];\n" WAIT_LD
         COMMIT("0") AWAIT("W", "0", "0"),
     FINDING_RACE, "a tcgen05.cp writes"},
    {CP("0") MMA("%off") DONE, 0, NULL}, // D where a copy wrote
    {CP("0") OTHER ONE_MMA("%p5", "%tm", "%a", "%i", "%off") DONE, FINDING_RACE,
     "a tcgen05.cp writes"},
    // shifts: in the pipe with products, both ways, and before a copy of 4x256b
    {READY SHIFT("256") MMA_TS DONE, 0, NULL},
    {READY MMA_TS SHIFT("256") MMA_TS DONE LD WAIT_LD, 0, NULL},
    {READY MMA_TS SHIFT("256") MMA_TS SHIFT("256") MMA_TS DONE, 0, NULL},
    {READY SHIFT("256") SHIFT("256") DONE, FINDING_RACE, "a tcgen05.shift writes"},
    {READY SHIFT("256") CP_4("256") MMA_TS DONE, 0, NULL},
    {READY SHIFT("256") CP("256") MMA_TS DONE, FINDING_RACE, "a tcgen05.shift writes"},
    {READY CP("256") SHIFT("256") DONE, FINDING_RACE, "a tcgen05.cp writes"},
    {READY CP("256") MMA_TS SHIFT("256") DONE, 0, NULL},
    {READY MMA_TS OTHER "add.u32 %r12, %tm, 256; @%p5 tcgen05.shift.cta_group::1.down [%r12];\n"
                        "@%p5 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster."
                        "b64 [bar + 8];\n" DONE AWAIT("V", "8", "0"),
     FINDING_RACE, "tensor memory at column 256"}, // whichever comes first
    {MMA("%off") SHIFT("0") DONE LD WAIT_LD, 0, NULL},
    {MMA("%off") SHIFT("0") MMA("%on") DONE LD WAIT_LD, 0, NULL},
    {P ST SYNC SHIFT("256") WAIT_ST DONE, FINDING_RACE, "a tcgen05.st writes: nothing"},
    {READY SHIFT("256") LD_A WAIT_LD DONE, FINDING_RACE, "a tcgen05.shift writes: nothing"},
    {READY SHIFT("256") DONE LD_A WAIT_LD, 0, NULL},
    {READY LD_A WAIT_LD BAR SHIFT("0x200100") DONE, FINDING_RACE, "tcgen05 fences"},
    {READY LD_A WAIT_LD SYNC SHIFT("0x200100") DONE, 0, NULL},
    {READY SHIFT("256"), FINDING_RACE, "frees tensor memory"},
    {READY SHIFT("508"), FINDING_OUT_OF_BOUNDS, "shifts columns 508 to 515"},
    {READY SHIFT("0x100100"), FINDING_TENSOR, "from lane 16 on, which is no multiple of 32"},
    {"add.u32 %r12, %tm, 256; @%one tcgen05.shift.cta_group::2.down [%r12];", FINDING_TENSOR,
     "has .cta_group::2"},
    // what .ashift moves is a part of its product
    {READY ASHIFT("%i", "%off") MMA_TS DONE LD WAIT_LD, 0, NULL},
    {READY ASHIFT("%i", "%off") ASHIFT("%i", "%on") MMA_TS DONE, 0, NULL},
    {READY ASHIFT("%i", "%off") COMMIT("8") "@%p6 bra GO; bra OVER; GO:" AWAIT(
         "W", "8", "0") "OVER:" ONE_MMA("%one", "%tm", "[%r10]", "%j", "%off") DONE,
     0, NULL},
    {READY "add.u32 %r11, %tm, 64;" ASHIFT("%i", "%off")
         ONE_MMA("%one", "%r11", "[%r10]", "%i", "%off") DONE,
     FINDING_RACE, "reads tensor memory at column 256"},
    {READY "add.u32 %r11, %tm, 64;" ONE_MMA("%one", "%r11", "[%r10]", "%i", "%off")
         ASHIFT("%i", "%off") DONE,
     0, NULL}, // as with other cells that an earlier product reads
    {READY ASHIFT("%i", "%off") LD_A WAIT_LD DONE, FINDING_RACE, "a tcgen05.mma writes: nothing"},
    {READY ASHIFT("%i", "%off") SHIFT("256") MMA_TS DONE, 0, NULL},
    {READY "mov.u32 %i, 0x04100010;" ASHIFT("%i", "%off") DONE, FINDING_TENSOR,
     "with .ashift it is 128"},
    // shared memory
    {MMA("%off") DONE BAR WRITE_A, 0, NULL},
    {MMA("%off") COMMIT("0") WRITE_A AWAIT("W", "0", "0"), FINDING_RACE,
     "a tcgen05.mma or .cp may still be reading"},
    {WRITE_A PROXY MMA("%off") DONE, 0, NULL},
    {WRITE_A MMA("%off") DONE, FINDING_RACE, "no fence.proxy.async stands in between"},
    {OTHER "mov.u32 %r11, smem; @%p5 st.shared.u32 [%r11], 7;\n" PROXY MMA("%off") DONE,
     FINDING_RACE, "nothing puts the two in order"},
    {OTHER WRITE_AND_TELL AWAIT("V", "8", "0") MMA("%off") DONE, 0, NULL},
    {OTHER WRITE_AND_TELL MMA("%off") AWAIT("V", "8", "0") DONE, FINDING_RACE, // before the commit
     "nothing puts the two in order"},
    {CP("300") COMMIT("0") WRITE_A AWAIT("W", "0", "0"), FINDING_RACE,
     "a tcgen05.mma or .cp may still be reading"},
    // never written, never waited for, another group
    {MMA("%on") DONE, FINDING_UNINITIALISED, "adds to D"},
    {P MMA_TS DONE, FINDING_UNINITIALISED, "takes A from"},
    {MX_I MX DONE, FINDING_UNINITIALISED, "takes scales from"},
    {MMA("%off"), FINDING_RACE, "frees tensor memory"},
    {MMA("%off") DONE LD, FINDING_RACE, "a tcgen05.ld may still be reading"},
    {"add.u32 %own, %own, 8388608;\n" MMA("%off") DONE LD WAIT_LD, FINDING_LINT,
     "of tensor memory, which has 128 in each block"},
    {"@%one tcgen05.mma.cta_group::2.kind::f16 [%tm], %a, %b, %i, %off;", FINDING_TENSOR,
     "has .cta_group::2"},
    {"add.u32 %r10, %tm, 480;" ONE_MMA("%one", "%r10", "%a", "%i", "%off"), FINDING_OUT_OF_BOUNDS,
     "has D in columns"},
    {"add.u32 %r10, %tm, 1048576;" ONE_MMA("%one", "%r10", "%a", "%i", "%off"), FINDING_TENSOR,
     "begins at lane 16"},
    {MMA("%off") "@%one tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 "
                 "[bar + 128];",
     FINDING_BARRIER, "there is no mbarrier"},
    {MMA("%off") COMMIT("0") COMMIT("8") AWAIT("W", "0", "0") AWAIT("V", "8", "0"), 0, NULL},
    {MMA("%off") COMMIT("0") COMMIT("0") AWAIT("W", "0", "0"), FINDING_RACE, skipped},
    {COMMIT("0") AWAIT("W", "0", "0"), 0, NULL}, // nothing before it: arrives at once
    {MMA("%off") AWAIT("W", "0", "0"), FINDING_DEADLOCK, "nobody has arrived"},
};
enum { CASES = sizeof cases / sizeof *cases };

static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};

static void operands(void) {
    memset(image, 0, sizeof image);
    memset(in, 0, sizeof in);
    operand[0] = A_DESCRIPTOR;
    operand[1] = B_DESCRIPTOR;
    number[0] = N64;
    number[1] = N32;
}

static void expect(const char *name, FindingKind kind, const char *words) {
    if (words)
        expect_finding(kind, words);
    else
        expect_nothing(name);
}

START_TEST(one_case) {
    for (int way = 0; way < 12; way++) {
        char name[40];
        set_up();
        options.async = orders[way % 4];
        options.schedule = (uint64_t)(way / 4);
        // Who waits in vain is found by his spinning: that takes long, once is enough.
        bool spins = cases[_i].kind == FINDING_DEADLOCK || cases[_i].words == skipped;
        if (spins && way) continue;
        operands();
        snprintf(name, sizeof name, "case %d, way %d", _i, way);
        run_tensor(1, cases[_i].body);
        expect(name, cases[_i].kind, cases[_i].words);
    }
}
END_TEST

// ---- pairs

#define PAIR_MMA "@%lead tcgen05.mma.cta_group::2.kind::f16 [%tm], %a, %b, %i, %off;\n"
#define TO_BOTH                                                                                    \
    "mov.b16 %h0, 3; @%lead tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster."    \
    "multicast::cluster.b64 [bar], %h0;\n"
#define MEET "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
#define MEET_RELAXED                                                                               \
    "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;\n"
#define MEET_ALL BEFORE MEET AFTER

static const struct {
    const char *body;
    FindingKind kind;
    const char *words;
} pair_cases[] = {
    {PAIR_MMA TO_BOTH AWAIT("W", "0", "0") LD WAIT_LD, 0, NULL},
    {PAIR_MMA TO_BOTH AWAIT_ONLY("W", "0", "0") LD WAIT_LD, FINDING_RACE, "tcgen05 fences"},
    {PAIR_MMA TO_BOTH LD WAIT_LD AWAIT("W", "0", "0"), FINDING_RACE, "nothing puts"},
    // the commit tells the own block alone
    {PAIR_MMA "@%lead tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [bar];"
              "\n" AWAIT("W", "0", "0") LD WAIT_LD,
     FINDING_DEADLOCK, "cluster's barrier"},
    // the next product waits for the readers of both
    {PAIR_MMA TO_BOTH AWAIT("W", "0", "0") LD WAIT_LD MEET_ALL PAIR_MMA TO_BOTH AWAIT("V", "0", "1")
         LD WAIT_LD,
     0, NULL},
    {PAIR_MMA TO_BOTH AWAIT("W", "0", "0") LD WAIT_LD SYNC PAIR_MMA TO_BOTH AWAIT("V", "0", "1"),
     FINDING_RACE, ""}, // which of the two is found first depends on the order,
    // operands of the other block
    {PAIR_MMA TO_BOTH AWAIT("W", "0", "0") BAR WRITE_A, 0, NULL},
    {PAIR_MMA TO_BOTH WRITE_A AWAIT("W", "0", "0"), FINDING_RACE, "may still be reading"},
    {WRITE_A PROXY MEET PAIR_MMA TO_BOTH AWAIT("W", "0", "0"), 0, NULL},
    {WRITE_A PROXY BAR PAIR_MMA TO_BOTH AWAIT("W", "0", "0"), FINDING_RACE, "nothing puts"},
    // a relaxed barrier of the cluster orders by its fences only
    {PAIR_MMA TO_BOTH AWAIT("W", "0", "0")
         LD WAIT_LD BEFORE MEET_RELAXED AFTER PAIR_MMA TO_BOTH AWAIT("V", "0", "1") LD WAIT_LD,
     0, NULL},
    {PAIR_MMA TO_BOTH AWAIT("W", "0", "0")
         LD WAIT_LD MEET_RELAXED AFTER PAIR_MMA TO_BOTH AWAIT("V", "0", "1") LD WAIT_LD,
     FINDING_RACE, "tcgen05 fences"},
    // both issue
    {"@%one tcgen05.mma.cta_group::2.kind::f16 [%tm], %a, %b, %i, %off;\n" TO_BOTH AWAIT(
         "W", "0", "0") LD WAIT_LD,
     FINDING_RACE, "a tcgen05.mma writes"},
    // a mask beyond the cluster
    {PAIR_MMA "mov.b16 %h0, 7; @%lead tcgen05.commit.cta_group::2.mbarrier::arrive::one."
              "shared::cluster.multicast::cluster.b64 [bar], %h0;\n",
     FINDING_TENSOR, "mask 0x0007"},
};
enum { PAIR_CASES = sizeof pair_cases / sizeof *pair_cases };

START_TEST(one_pair) {
    for (int way = 0; way < 12; way++) {
        char name[40];
        set_up();
        blocks = 2;
        options.async = orders[way % 4];
        options.schedule = (uint64_t)(way / 4);
        if (pair_cases[_i].kind == FINDING_DEADLOCK && way) continue;
        operands();
        number[0] = 0x10100010; // M 256, N 64
        snprintf(name, sizeof name, "pair %d, way %d", _i, way);
        run_tensor(1, pair_cases[_i].body);
        expect(name, pair_cases[_i].kind, pair_cases[_i].words);
    }
}
END_TEST

// Who uses what a load brings, and doesn't wait, is told so; unless strict that counts as the wait.
START_TEST(use_is_a_wait) {
    for (int strict = 0; strict < 2; strict++) {
        set_up();
        options.strict = strict;
        operands();
        run_tensor(1, MMA("%off") DONE LD);
        bool race = false, freed = false;
        const Finding *f;
        for (int k = 0; (f = findings_get(k)); k++) {
            race |= f->kind == FINDING_RACE;
            freed |= strstr(f->what, "frees tensor memory") != NULL;
        }
        ck_assert_msg(findings_get(0) && strstr(findings_get(0)->what, "no tcgen05.wait::ld"),
                      "not told");
        ck_assert_int_eq(race, strict);
        ck_assert_msg(strict || !freed, "the wait isn't known");
    }
}
END_TEST

Suite *suite_tcgen05_order(void) {
    Suite *suite = suite_create("tcgen05_order");
    TCase *tests = tcase_create("tcgen05_order");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, one_case, 0, CASES);
    tcase_add_loop_test(tests, one_pair, 0, PAIR_CASES);
    tcase_add_test(tests, use_is_a_wait);
    suite_add_tcase(suite, tests);
    return suite;
}
