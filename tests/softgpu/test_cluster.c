// Clusters: where they run, addresses of peers, the cluster's barrier, stores and arrivals at
// peers, and what is found out about misuse. And setmaxnreg, which needs blocks of several
// warpgroups.
#include "thread_kernel.h"

#include "softgpu/machine/cluster.h"

Suite *suite_cluster(void);

static GpuFigures gpu_figures;
static uint64_t executed; // warp instructions of the last run

static void set_up_cluster(void) {
    set_up();
    gpu_figures = *figures_find("h100");
}

// Runs `body` in a grid of clusters of `size` blocks; %out goes to results[%ctaid.x * threads +
// %t]. %rank and %peer are the block's rank and that of its neighbour (rank ^ 1).
static int run_grid(uint32_t blocks, uint32_t size, uint32_t threads, const char *bounds,
                    const char *body) {
    static char text[16384];
    int length = snprintf(
        text, sizeof text,
        ".version 9.0\n.target sm_100a\n.address_size 64\n"
        ".visible .entry k(.param .u64 result) %s\n{\n"
        ".reg .b32 %%t, %%out, %%rank, %%peer; .reg .b64 %%to<3>;\n%smov.u32 %%t, %%tid.x;\n"
        "mov.u32 %%rank, %%cluster_ctarank; xor.b32 %%peer, %%rank, 1; mov.u32 %%out, 0;\n%s\n"
        "STORE:\nld.param.u64 %%to0, [result]; mov.u32 %%r7, %%ctaid.x; mov.u32 %%r6, %%ntid.x;\n"
        "mad.lo.u32 %%r6, %%r7, %%r6, %%t; mad.wide.u32 %%to1, %%r6, 4, %%to0;\n"
        "st.global.u32 [%%to1], %%out;\nret;\n}\n",
        bounds, REGISTERS, body);
    ck_assert_int_lt(length, (int)sizeof text);
    PtxError error = {0};
    PtxModule *module = ptx_index(text, (size_t)length, &error);
    ck_assert_msg(module != NULL, "line %u: %s", error.line, error.message);
    Program *program = program_new();
    ck_assert(program_add(program, module, &error));
    Gpu *gpu = gpu_new(&options, &gpu_figures);
    ck_assert(program_place(program, gpu->memory, &error));
    Linker *linker = program_linker(program);
    linker->schedule = options.schedule;
    Kernel *kernel = kernel_lower(program_function(program, "k"), linker, 0, &error);
    ck_assert_msg(kernel != NULL, "line %u: %s", error.line, error.message);
    uint64_t out = global_alloc(gpu->memory, sizeof results, MEMORY_DEVICE, NULL);
    memset(results, 0xee, sizeof results);
    memcpy(global_pointer(gpu->memory, out), results, sizeof results);
    Launch launch = {.kernel = kernel,
                     .grid = {blocks, 1, 1},
                     .block = {threads, 1, 1},
                     .cluster = {size, 1, 1},
                     .params = &out};
    int code = gpu_launch(gpu, &launch, &stats);
    executed = 0;
    for (int p = 0; p < PIPE_COUNT; p++) executed += (uint64_t)stats.warp_instructions[p];
    memcpy(results, global_pointer(gpu->memory, out), sizeof results);
    kernel_free(kernel);
    program_free(program);
    gpu_delete(gpu);
    return code;
}

#define SYNC   "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
#define SHARED ".shared .align 16 .b8 s[1024];\n"
// %r0: this thread's word of s; %r1: the peer's.
#define WORDS SHARED "mad.lo.u32 %r0, %t, 4, s; mapa.shared::cluster.u32 %r1, %r0, %peer;\n"

// ---- places

START_TEST(capacity) {
    // H100: three GPCs of 18 SMs, four of 16, one of 14.
    const GpuFigures *f = figures_find("h100");
    ck_assert_int_eq(cluster_capacity(f, 1, 1), 132);
    ck_assert_int_eq(cluster_capacity(f, 2, 1), 66);
    ck_assert_int_eq(cluster_capacity(f, 8, 1), 15);
    ck_assert_int_eq(cluster_capacity(f, 16, 1), 7);
    ck_assert_int_eq(cluster_capacity(f, 8, 2), 3 * 4 + 4 * 4 + 3);
    GpuFigures small = *f;
    small.sms = 4, small.gpcs = 1, small.gpc_sizes[0] = 4;
    ck_assert_int_eq(cluster_capacity(&small, 8, 1), 0);
    ck_assert_int_eq(cluster_capacity(&small, 8, 2), 1);
    ck_assert_int_eq(cluster_capacity(&small, 3, 1), 1);
}
END_TEST

START_TEST(groups_lie_in_gpcs) {
    SmGroup groups[132];
    int count = cluster_groups(figures_find("h100"), 40, 4, 1, groups);
    ck_assert_int_eq(count, 4 + 4 + 1); // 18, 18 and 4 SMs
    ck_assert_int_eq(groups[3].first, 12);
    ck_assert_int_eq(groups[4].first, 18);
    ck_assert_int_eq(groups[8].first, 36);
    count = cluster_groups(figures_find("h100"), 18, 4, 2, groups);
    ck_assert_int_eq(count, 5); // the last two SMs hold a cluster, two blocks each
    ck_assert_int_eq(groups[4].count, 2);
    ck_assert_int_eq(groups[4].capacity, 1);
    ck_assert_int_eq(groups[0].capacity, 2);
}
END_TEST

START_TEST(numbers_of_ctas) {
    Launch l = {.grid = {6, 4, 4}, .cluster = {3, 2, 2}};
    bool seen[6 * 4 * 4] = {false};
    for (uint64_t c = 0; c < 8; c++)
        for (uint32_t r = 0; r < 12; r++) {
            uint64_t at = cluster_cta(&l, c, r);
            ck_assert_uint_lt(at, 96);
            ck_assert(!seen[at]);
            seen[at] = true;
        }
    ck_assert_uint_eq(cluster_cta(&l, 0, 4), 1 + 6); // rank: x first
    ck_assert_uint_eq(cluster_cta(&l, 1, 0), 3);
    ck_assert_uint_eq(cluster_cta(&l, 2, 6), 6 * 2 + 24);
}
END_TEST

// Fewer SMs than blocks of a cluster: several on an SM. And a launch that fits nowhere.
START_TEST(few_sms) {
    options.sms = 3;
    ck_assert_int_eq(run_grid(8, 8, 32, "", SYNC "mov.u32 %out, %smid;"), 0);
    int on[3] = {0};
    for (int b = 0; b < 8; b++) on[results[32 * b]]++;
    for (int s = 0; s < 3; s++) ck_assert_int_ge(on[s], 2);
    options.sms = 2;
    ck_assert_int_eq(run_grid(16, 16, 1024, "", SYNC), 912);
    expect_finding(FINDING_LAUNCH, "a cluster of 16 blocks must fit on the SMs of one GPC");
}
END_TEST

START_TEST(impossible) {
    ck_assert_int_eq(run_grid(3, 2, 32, "", ""), 9);
    expect_finding(FINDING_LAUNCH, "no multiple of the cluster 2 x 1 x 1");
}
END_TEST

// ---- right kernels, under every schedule and order of completion

// An mbarrier at b for one arrival, and the same in the peer: %r2, %r3. All blocks have met.
#define BARRIER                                                                                    \
    ".shared .align 8 .b8 b[16]; mov.u32 %r2, b; mapa.shared::cluster.u32 %r3, %r2, %peer;\n"      \
    "setp.eq.u32 %p7, %t, 0; @%p7 mbarrier.init.shared::cta.b64 [%r2], 1;"                         \
    "fence.mbarrier_init.release.cluster; " SYNC
#define WAIT(label)                                                                                \
    label ": mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [%r2], 0;"              \
          "@!%p0 bra " label ";\n"
#define ASYNC(op) op ".mbarrier::complete_tx::bytes"

static uint32_t peers_number(uint32_t block, uint32_t t) {
    return 1000 * (block ^ 1) + t;
}
static uint32_t rank_and_more(uint32_t block, uint32_t t) {
    (void)t;
    return 100 * (block % 4) + 10 * 4 + block / 4;
}
static uint32_t sum_of_four(uint32_t block, uint32_t t) {
    return 4 * t + 6 + 16 * (block / 4);
}
static uint32_t eleven(uint32_t block, uint32_t t) {
    (void)block, (void)t;
    return 11;
}
static uint32_t one_more(uint32_t block, uint32_t t) {
    return (block ^ 1) + t + 1;
}
static uint32_t zero(uint32_t block, uint32_t t) {
    (void)block, (void)t;
    return 0;
}
static uint32_t flags(uint32_t block, uint32_t t) {
    (void)t;
    return 2 + 4 + 8 * (block % 2);
}

static const struct {
    uint32_t size;
    const char *body;
    uint32_t (*value)(uint32_t block, uint32_t t);
} right[] = {
    {4,
     "mad.lo.u32 %out, %rank, 100, 0; mov.u32 %r0, %cluster_nctaid.x; mad.lo.u32 %out, %r0, 10, "
     "%out; mov.u32 %r0, %clusterid.x; add.u32 %out, %out, %r0;",
     rank_and_more},
    // A word read from the peer, by shared and by generic address.
    {2,
     WORDS "mad.lo.u32 %r2, %ctaid.x, 1000, %t; st.shared.u32 [%r0], %r2; " SYNC
           "ld.shared::cluster.u32 %out, [%r1];" SYNC,
     peers_number},
    {2,
     SHARED "mad.wide.u32 %d0, %t, 4, 0; mov.u64 %d1, s; cvta.shared.u64 %d1, %d1; add.u64 %d0, "
            "%d0, %d1; mapa.u64 %d2, %d0, %peer; mad.lo.u32 %r2, %ctaid.x, 1000, %t; st.u32 "
            "[%d0], %r2;" SYNC "ld.u32 %out, [%d2];" SYNC,
     peers_number},
    // Written into the peer; a variable by name is the CTA's own.
    {2,
     WORDS SYNC "mad.lo.u32 %r2, %ctaid.x, 1000, %t; st.shared::cluster.u32 [%r1], %r2;" SYNC
                "ld.shared.u32 %out, [%r0]; ld.shared.u32 %r2, [s]; setp.eq.u32 %p0, %t, 0; "
                "@%p0 mov.u32 %out, %r2;",
     peers_number},
    // Every block adds to every block's word.
    {4,
     SHARED "mad.lo.u32 %r0, %t, 4, s; st.shared.u32 [%r0], 0;" SYNC
            "mov.u32 %r3, 0; ADD: mapa.shared::cluster.u32 %r1, %r0, %r3; add.u32 %r2, %t, "
            "%ctaid.x; atom.shared::cluster.add.u32 %r2, [%r1], %r2; add.u32 %r3, %r3, 1; "
            "setp.lt.u32 %p0, %r3, 4; @%p0 bra ADD;" SYNC "ld.shared.u32 %out, [%r0];",
     sum_of_four},
    // isspacep, getctarank: own and peer's.
    {2,
     SHARED "mov.u64 %d1, s; cvta.shared.u64 %d1, %d1; mapa.u64 %d2, %d1, %peer; mov.u32 %out, "
            "0; isspacep.shared::cta %p0, %d2; @%p0 add.u32 %out, %out, 1;"
            "isspacep.shared::cluster %p0, %d2; @%p0 add.u32 %out, %out, 2; isspacep.shared %p0, "
            "%d1; @%p0 add.u32 %out, %out, 4; getctarank.u64 %r0, %d2; xor.b32 %r0, %r0, 1;"
            "mad.lo.u32 %out, %r0, 8, %out;",
     flags},
    // An arrival at the peer's mbarrier ends its phase; its bytes count.
    {2,
     BARRIER "@%p7 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];" WAIT(
         "W") "mov.u32 %out, 11;" SYNC,
     eleven},
    {2,
     BARRIER "@%p7 mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%r3], 64;"
             "@%p7 mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r3], 64;" WAIT(
                 "W") "mov.u32 %out, 11;" SYNC,
     eleven},
    // … and who has waited for the last one may exit.
    {2,
     BARRIER "@%p7 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];" WAIT(
         "W") "mov.u32 %out, 11;",
     eleven},
    // st.async from every lane; red.async on top of what is there.
    {2,
     WORDS BARRIER
     "@%p7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;"
     "mad.lo.u32 %r4, %ctaid.x, 1000, %t;" ASYNC(
         "st.async.weak.shared::cluster") ".u32 [%r1], %r4, [%r3];" WAIT("W") "ld.shared.u32 %out, "
                                                                              "[%r0];" SYNC,
     peers_number},
    {2,
     WORDS
     "add.u32 %r4, %t, 1; st.shared.u32 [%r0], %r4;" BARRIER
     "@%p7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128; mov.u32 %r5, "
     "%ctaid.x;" ASYNC("red.async.relaxed.cluster.shared::cluster") ".add.u32 [%r1], %r5, "
                                                                    "[%r3];" WAIT(
                                                                        "W") "ld.shared.u32 %out, "
                                                                             "[%r0];" SYNC,
     one_more},
    // A wait in two halves, lane by lane; half of the threads leave before the second barrier.
    {2,
     WORDS "mad.lo.u32 %r2, %ctaid.x, 1000, %t; st.shared.u32 [%r0], %r2; setp.lt.u32 %p0, %t, "
           "7; @%p0 barrier.cluster.arrive; @!%p0 barrier.cluster.arrive.release; "
           "barrier.cluster.wait; ld.shared::cluster.u32 %out, [%r1]; barrier.cluster.arrive; "
           "@%p0 bra STORE; barrier.cluster.wait;",
     peers_number},
    {1,
     SHARED "mad.lo.u32 %r0, %t, 4, s; st.shared.u32 [%r0], 5; mov.u64 %d0, 128; bar.sync 0;"
            "setp.eq.u32 %p0, %t, 0; @%p0 st.bulk.weak.shared::cta [s], %d0, 0; bar.sync 0;"
            "ld.shared.u32 %out, [%r0];",
     zero},
};
enum { RIGHT = sizeof right / sizeof *right, WAYS = 8, BLOCKS = 16, THREADS = 32 };

START_TEST(right_clusters) {
    static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};
    int k = _i / WAYS;
    options.async = orders[_i % 4];
    options.schedule = _i % WAYS / 4 * 7;
    options.strict = true;
    options.checks |= CHECK_INIT | CHECK_RACE;
    int code = run_grid(BLOCKS, right[k].size, THREADS, "", right[k].body);
    const Finding *f = findings_get(0);
    ck_assert_msg(!code && !f, "body %d: %d %s", k, code, f ? f->what : "");
    for (uint32_t n = 0; n < BLOCKS * THREADS; n++)
        ck_assert_msg(results[n] == right[k].value(n / THREADS, n % THREADS),
                      "body %d, block %u, thread %u: %u", k, n / THREADS, n % THREADS, results[n]);
}
END_TEST

// Neither results nor counters depend on the number of host threads; a sample runs whole clusters.
START_TEST(threads_and_samples) {
    options.timing = true;
    options.schedule = 3;
    ck_assert_int_eq(run_grid(BLOCKS, 4, THREADS, "", right[4].body), 0);
    uint64_t once = executed;
    options.threads = 3;
    ck_assert_int_eq(run_grid(BLOCKS, 4, THREADS, "", right[4].body), 0);
    ck_assert_uint_eq(executed, once);
    options.sms = 12;
    options.sample = 1; // no cluster fits there: as many as one needs
    ck_assert_int_eq(run_grid(BLOCKS, 4, THREADS, "", right[4].body), 0);
    ck_assert_uint_eq(executed, once);
    for (uint32_t n = 0; n < BLOCKS * THREADS; n += 4 * THREADS)
        for (uint32_t m = 1; m < 4 * THREADS; m++) // a cluster ran, or it didn't
            ck_assert((results[n] == 0xeeeeeeee) == (results[n + m] == 0xeeeeeeee));
}
END_TEST

// ---- broken kernels

static const struct {
    uint32_t size;
    const char *body;
    FindingKind kind;
    const char *words;
} broken[] = {
    {2, SHARED "mov.u32 %r0, 2; mapa.shared::cluster.u32 %r1, s, %r0;", FINDING_WRONG_SPACE,
     "asks for the address in CTA 2 of a cluster of 2"},
    {2, "mov.u64 %d0, 64; mapa.u64 %d1, %d0, %peer;", FINDING_WRONG_SPACE,
     "gets 0x40, which is no address of shared memory"},
    {2, WORDS SYNC "ld.shared.u32 %out, [%r1];", FINDING_WRONG_SPACE,
     "only reaches the CTA's own (.shared::cta)"},
    {2, WORDS "add.u32 %r1, %r0, 0x2000000; " SYNC "st.shared::cluster.u32 [%r1], %t;",
     FINDING_WRONG_SPACE, "(ranks 0 to 1)"},
    {2, WORDS SYNC "add.u32 %r1, %r1, 2048; ld.shared::cluster.u32 %out, [%r1];",
     FINDING_OUT_OF_BOUNDS, "past the end"},
    {2, WORDS "st.shared::cluster.u32 [%r1], %t;" SYNC, FINDING_RACE,
     "before any barrier of the cluster"},
    {2, "barrier.cluster.arrive; barrier.cluster.arrive;", FINDING_BARRIER,
     "a second time without having waited"},
    {2, "barrier.cluster.wait;", FINDING_BARRIER, "without having arrived"},
    {2, "setp.eq.u32 %p0, %t, 5; @%p0 ret;" SYNC, FINDING_LINT, "1 lanes of the warp have exited"},
    {2,
     "setp.eq.u32 %p0, %rank, 1; @%p0 bra STORE;" SYNC SYNC
     "LOOP: setp.eq.u32 %p0, %rank, 0; barrier.cluster.arrive.aligned; @!%p0 bra STORE;"
     "barrier.cluster.wait; setp.eq.u32 %p0, %t, 77; @%p0 bra LOOP; " WORDS
     "ld.shared::cluster.u32 %out, [%r1];",
     FINDING_USE_AFTER_FREE, "block (1,0,0), which has exited"},
    {2, BARRIER "@%p7 mbarrier.arrive.shared::cluster.b64 %d0, [%r3];", FINDING_UNSUPPORTED,
     "write _"},
    {2,
     BARRIER "cvt.u64.u32 %d0, %r3; cvta.shared.u64 %d0, %d0; @%p7 mbarrier.arrive.b64 %d1, "
             "[%d0];",
     FINDING_WRONG_SPACE, "only the CTA's own mbarriers give tokens"},
    {2, BARRIER "@%p7 mbarrier.arrive.shared::cluster.b64 _, [%r3];" SYNC, FINDING_LINT,
     "with the scope of its own CTA"},
    {2, WORDS BARRIER ASYNC("st.async.shared::cluster") ".u32 [%r1], %t, [%r2];",
     FINDING_WRONG_SPACE, "but its mbarrier is in CTA"},
    {2,
     WORDS BARRIER "setp.eq.u32 %p0, %rank, 1; @%p0 bra STORE;" ASYNC(
         "st.async.shared::cluster") ".u32 [%r1], %t, [%r3];",
     FINDING_USE_AFTER_FREE, "exit"},
    {2,
     WORDS BARRIER "@%p7 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;" ASYNC(
         "red.async.relaxed.cluster.shared::cluster") ".add.u32 [%r1], %t, [%r3];" WAIT("W") SYNC,
     FINDING_UNINITIALISED, "reduces into 4 bytes"},
};
enum { BROKEN = sizeof broken / sizeof *broken };

START_TEST(broken_clusters) {
    options.strict = true;
    options.checks |= CHECK_INIT;
    run_grid(2, broken[_i].size, THREADS, "", broken[_i].body);
    expect_finding(broken[_i].kind, broken[_i].words);
}
END_TEST

#define LINGER "setp.eq.u32 %p1, %rank, 1; @%p1 nanosleep.u32 20000;"
// Block 1 exits after the last access to its memory, but only by the order of this run.
static const char *const too_early[] = {
    WORDS SYNC "setp.eq.u32 %p0, %rank, 0; @%p0 st.shared::cluster.u32 [%r1], %t;" LINGER,
    BARRIER "setp.eq.and.u32 %p0, %rank, 0, %p7;"
            "@%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];" LINGER,
    // It waits for the store before, not for this one.
    WORDS BARRIER "setp.eq.u32 %p0, %rank, 0; @%p0 st.shared::cluster.u32 [%r1], %t;"
                  "@%p7 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];"
                  "@%p0 ld.shared::cluster.u32 %out, [%r1];" WAIT("W"),
};

START_TEST(exits_too_early) {
    options.strict = _i % 2;
    options.checks |= CHECK_RACE;
    run_grid(2, 2, THREADS, "", too_early[_i / 2]);
    expect_finding(_i % 2 ? FINDING_RACE : FINDING_LINT,
                   "nothing puts that before the end of that block");
}
END_TEST

START_TEST(cluster_deadlock) {
    ck_assert_int_eq(run_grid(4, 4, 64, "",
                              "setp.eq.u32 %p0, %rank, 2; barrier.cluster.arrive.aligned;"
                              "@!%p0 bra GO; setp.ge.u32 %p1, %t, 32; @%p1 bar.sync 1, 64;\n"
                              "GO: barrier.cluster.wait.aligned; " SYNC),
                     719);
    expect_finding(FINDING_DEADLOCK,
                   "the cluster's barrier: 224 of the 256 threads that run have arrived");
    ck_assert_ptr_nonnull(strstr(findings_get(0)->what, "block (2,0,0), rank 2: warp 1 has not"));
}
END_TEST

// ---- setmaxnreg: 384 threads at 168 registers

#define BOUNDS ".maxntid 384, 1, 1 .minnctapersm 1"

// The body with two numbers put in.
static const char *roles(int give, int take) {
    static char body[400];
    snprintf(body, sizeof body,
             "setp.lt.u32 %%p0, %%t, 128; @!%%p0 bra CONSUMER; setmaxnreg.dec.sync.aligned.u32 %d; "
             "bra STORE; CONSUMER: setmaxnreg.inc.sync.aligned.u32 %d; bra STORE;",
             give, take);
    return body;
}

START_TEST(registers_go_round) {
    options.schedule = (uint64_t)_i;
    options.strict = true;
    ck_assert_int_eq(run_grid(2, 1, 384, BOUNDS, roles(24, 240)), 0);
    ck_assert_int_eq(findings_count(), 0);
}
END_TEST

START_TEST(registers_run_out) {
    ck_assert_int_eq(run_grid(1, 1, 384, BOUNDS, roles(32, 240)), 719);
    expect_finding(FINDING_DEADLOCK, "for 240 registers a thread (it has 168)");
    const char *what = findings_get(0)->what;
    ck_assert_msg(strstr(what, "warp 11 waits in setmaxnreg.inc.sync.aligned.u32") != NULL, "%s",
                  what);
    ck_assert_msg(
        strstr(what, "began with 168 a thread, 64512 in all; 1280 are free, and 2304 more") != NULL,
        "%s", what);
}
END_TEST

static const struct {
    const char *bounds, *body;
    FindingKind kind;
    const char *words;
} broken_registers[] = {
    {BOUNDS, "setmaxnreg.dec.sync.aligned.u32 176;", FINDING_BARRIER,
     "decreases to 176 registers a thread, and the warp has 168"},
    {BOUNDS, "setmaxnreg.inc.sync.aligned.u32 160;", FINDING_BARRIER, "increases to 160"},
    {BOUNDS,
     "setp.lt.u32 %p0, %t, 64; @%p0 bra A; setmaxnreg.dec.sync.aligned.u32 40; bra STORE;"
     "A: setmaxnreg.dec.sync.aligned.u32 24;",
     FINDING_DIVERGENT, "while other warps of its warpgroup"},
    {BOUNDS,
     "setp.lt.u32 %p0, %t, 32; @%p0 setmaxnreg.dec.sync.aligned.u32 40; bar.sync 0; @%p0 "
     "setmaxnreg.dec.sync.aligned.u32 24;",
     FINDING_DIVERGENT, "while other warps of its warpgroup"},
    {BOUNDS, "setp.lt.u32 %p0, %t, 96; @%p0 setmaxnreg.dec.sync.aligned.u32 40;", FINDING_DIVERGENT,
     "only 3 of the warps of this warpgroup"},
    {".maxntid 384, 1, 1", "setmaxnreg.dec.sync.aligned.u32 24;", FINDING_LINT, "C7508"},
    {BOUNDS, "setmaxnreg.dec.sync.aligned.u32 20;", FINDING_UNSUPPORTED, "multiple of 8"},
    {BOUNDS, "setp.eq.u32 %p0, %t, 5; @!%p0 setmaxnreg.dec.sync.aligned.u32 40;", FINDING_DIVERGENT,
     "1 lanes of the warp have exited"},
};
enum { BROKEN_REGISTERS = sizeof broken_registers / sizeof *broken_registers };

START_TEST(registers_misused) {
    options.strict = true;
    run_grid(1, 1, 384, broken_registers[_i].bounds, broken_registers[_i].body);
    expect_finding(broken_registers[_i].kind, broken_registers[_i].words);
}
END_TEST

Suite *suite_cluster(void) {
    Suite *suite = suite_create("cluster");
    TCase *tests = tcase_create("cluster");
    tcase_add_checked_fixture(tests, set_up_cluster, NULL);
    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, capacity);
    tcase_add_test(tests, groups_lie_in_gpcs);
    tcase_add_test(tests, numbers_of_ctas);
    tcase_add_test(tests, few_sms);
    tcase_add_test(tests, impossible);
    tcase_add_loop_test(tests, right_clusters, 0, RIGHT * WAYS);
    tcase_add_test(tests, threads_and_samples);
    tcase_add_loop_test(tests, broken_clusters, 0, BROKEN);
    tcase_add_loop_test(tests, exits_too_early, 0, 6);
    tcase_add_test(tests, cluster_deadlock);
    tcase_add_loop_test(tests, registers_go_round, 0, 4);
    tcase_add_test(tests, registers_run_out);
    tcase_add_loop_test(tests, registers_misused, 0, BROKEN_REGISTERS);
    suite_add_tcase(suite, tests);
    return suite;
}
