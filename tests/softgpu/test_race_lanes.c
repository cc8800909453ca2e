// The race check between lanes of one warp: each finding by a smallest kernel, beside a right twin
// that has none, under several schedules and orders of completion.
#include "thread_kernel.h"

Suite *suite_race_lanes(void);

// Two warps. %r1: this thread's word of shared memory, %r2 that of the lane 31 - l of the same
// warp, %r3 that of the opposite thread in the other warp; %p1: in warp 0; %p2: lane 0; %p3: lanes
// 0 to 15; %p7: thread 0. %x8: this row of 16 bytes, one for each lane. %d1: 16 bytes of global
// memory for each thread.
#define SET_UP                                                                                     \
    ".reg .b32 %x<14>; .shared .align 128 .b8 s[4096]; .shared .align 8 .b8 b[64];\n"              \
    "mov.u32 %r0, s; mad.lo.u32 %r1, %t, 4, %r0; xor.b32 %r2, %t, 31; mad.lo.u32 %r2, %r2, 4, "    \
    "%r0; xor.b32 %r3, %t, 63; mad.lo.u32 %r3, %r3, 4, %r0; mad.lo.u32 %x8, %t, 16, %r0;"          \
    "and.b32 %x9, %t, 31; setp.lt.u32 %p1, %t, 32; setp.eq.u32 %p2, %x9, 0;"                       \
    "setp.lt.u32 %p3, %x9, 16; setp.eq.u32 %p7, %t, 0; mov.u32 %out, 0;"                           \
    "ld.param.u64 %d0, [result]; mad.wide.u32 %d1, %t, 16, %d0;\n"
#define MBARRIERS(count)                                                                           \
    "@%p7 mbarrier.init.shared.b64 [b], " count "; @%p7 mbarrier.init.shared.b64 [b+8], " count    \
    "; fence.mbarrier_init.release.cluster; bar.sync 0;\n"
#define ARRIVE(at) "mbarrier.arrive.shared.b64 %d3, [" at "];"
#define WAIT(label, at, parity)                                                                    \
    label ": mbarrier.try_wait.parity.shared.b64 %p0, [" at "], " parity "; @!%p0 bra " label ";"  \
          "\n"
// Lane 0 of each warp does it.
#define ONE_WAITS(label, at, parity)                                                               \
    "@!%p2 bra " label "_OUT;" WAIT(label, at, parity) label "_OUT:"
#define WRITE  "st.shared.u32 [%r1], %t;\n"
#define TAKE   "ld.shared.u32 %out, [%r2];\n"
#define ACROSS "ld.shared.u32 %out, [%r3];\n"
#define SYNC   "bar.warp.sync 0xffffffff;\n"
#define HALVES "@%p3 bra L; bar.warp.sync 0xffff0000; bra M; L: bar.warp.sync 0xffff; M:\n"
#define FENCE  "fence.proxy.async.shared::cta;\n"
#define COPY   "cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.commit_group;\n"
#define LOAD                                                                                       \
    "@%p7 mbarrier.arrive.expect_tx.shared.b64 %d3, [b], 512;"                                     \
    "@%p7 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d0], 512, "     \
    "[b];\n"
#define STORE                                                                                      \
    "@%p7 cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], 128;"                            \
    "@%p7 cp.async.bulk.commit_group;\n"
#define READ_DONE "@%p7 cp.async.bulk.wait_group.read 0;\n"
#define TILE      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%x10, %x11, %x12, %x13}, [%x8];\n"

// A thread changes words of its own, by turns.
#define PRIVATE_LOOP(label)                                                                        \
    "mov.u32 %r5, 0; " label ": and.b32 %r6, %r5, 7; mad.lo.u32 %r6, %r6, 256, %r1;"               \
    "ld.shared.u32 %r7, [%r6]; add.u32 %r7, %r7, 1; st.shared.u32 [%r6], %r7;"                     \
    "add.u32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, 300; @%p0 bra " label ";"
#define PRIVATE       PRIVATE_LOOP("P")
#define PRIVATE_AGAIN PRIVATE_LOOP("Q")

enum { THREADS = 64 };

typedef struct {
    const char *body;
    const char *words; // of every finding; NULL: there is none
} Case;

static const char one_warp[] = "of the same warp", its_warp[] = "other lanes of its warp",
                  two_warps[] = "which warp", unfenced[] = "no fence.proxy.async";

static const Case cases[] = {
    // ---- what orders lanes, and what doesn't
    {WRITE SYNC TAKE, NULL},
    {WRITE TAKE, one_warp},
    {WRITE "ld.shared.u32 %out, [%r1];", NULL},
    {WRITE SYNC TAKE WRITE, one_warp},
    {WRITE SYNC TAKE SYNC WRITE, NULL},
    {WRITE "bar.sync 0;" TAKE, NULL},
    {WRITE "@%p1 bar.sync 1, 32; @!%p1 bar.sync 2, 32;" TAKE, NULL},
    {WRITE "shfl.sync.idx.b32 %r5, %t, 0, 31, 0xffffffff;" TAKE, one_warp},
    {WRITE "vote.sync.ballot.b32 %r5, %p1, 0xffffffff;" TAKE, one_warp},
    {WRITE "redux.sync.add.u32 %r5, %t, 0xffffffff;" TAKE, one_warp},
    {WRITE "membar.cta;" TAKE, one_warp},
    {WRITE "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" TAKE, NULL},
    {WRITE "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" TAKE, one_warp},
    // a long way later, and many times
    {WRITE "mov.u32 %r5, 0; LOOP: ld.shared.u32 %out, [%r1]; add.u32 %r5, %r5, 1;"
           "setp.lt.u32 %p0, %r5, 60; @%p0 bra LOOP;" TAKE,
     one_warp},
    {"mov.u32 %r5, 0; LOOP:" WRITE SYNC TAKE SYNC "add.u32 %r5, %r5, 1;"
     "setp.lt.u32 %p0, %r5, 2000; @%p0 bra LOOP;",
     NULL},
    {"mov.u32 %r5, 0; LOOP: st.shared.u32 [%r1], %r5; ld.shared.u32 %out, [%r1];"
     "add.u32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, 2000; @%p0 bra LOOP;",
     NULL},
    {WRITE "and.b32 %r5, %r1, -16; ld.shared.v4.u32 {%out, %r4, %r6, %r7}, [%r5];", one_warp},
    {"st.shared.v4.u32 [%x8], {%t, %t, %t, %t}; ld.shared.u32 %out, [%x8+4];", NULL},
    // lanes that keep to themselves, and one that then doesn't
    {PRIVATE, NULL},
    {PRIVATE "ld.shared.u32 %out, [%r2 + 768];", one_warp},
    {PRIVATE SYNC "ld.shared.u32 %out, [%r2 + 768];" PRIVATE_AGAIN, one_warp},
    // lanes that part
    {"@%p3 st.shared.u32 [%r1], %t; @!%p3 ld.shared.u32 %out, [%r2];", one_warp},
    {"@%p3 st.shared.u32 [%r1], %t;" SYNC "@!%p3 ld.shared.u32 %out, [%r2];", NULL},
    {"@%p3 ld.shared.u32 %out, [%r2]; @!%p3 st.shared.u32 [%r1], %t;", one_warp},
    {"@%p7 st.shared.u32 [s+1024], 1;" SYNC "@%p1 ld.shared.u32 %out, [s+1024];", NULL},
    {"@%p2 bra ONE; bra ALL; ONE: st.shared.u32 [%r1+1024], 1; ALL: ld.shared.u32 %out, "
     "[%r1+1024];",
     NULL},

    // ---- neighbours, and one value by all
    {"mad.lo.u32 %r5, %t, 2, %r0; st.shared.u16 [%r5], %t; ld.shared.u16 %out, [%r5];", NULL},
    {"mad.lo.u32 %r5, %t, 2, %r0; @%p1 st.shared.u16 [%r5], %t; @%p1 ld.shared.u32 %out, [%r1];",
     one_warp},
    {"@%p1 st.shared.u32 [s+1024], 1; @%p1 ld.shared.u32 %out, [s+1024];", NULL},
    {"@%p1 st.shared.u32 [s+1024], 1; @%p1 st.shared.u32 [s+1024], 2;", NULL},
    {"@%p2 st.shared.u32 [%r1+1024], 1; st.shared.u32 [%r2+1024], 2;", one_warp},
    // strong accesses don't race with each other
    {"st.volatile.shared.u32 [%r1], %t; ld.volatile.shared.u32 %out, [%r2];", NULL},
    {"st.volatile.shared.u32 [%r1], %t;" TAKE, one_warp},
    {"@%p1 red.shared.add.u32 [s+1024], 1; @%p1 atom.shared.add.u32 %out, [s+1024], 1;", NULL},
    {"@%p1 red.shared.add.u32 [s+1024], 1; @%p1 ld.shared.u32 %out, [s+1024];", NULL}, // its own
    {"@%p7 red.shared.add.u32 [s+1024], 1; @%p1 ld.shared.u32 %out, [s+1024];", one_warp},
    // a lane tells another by a flag
    {"@%p2 st.volatile.shared.u32 [%r1+1024], 0; bar.sync 0; and.b32 %r5, %t, 32;"
     "mad.lo.u32 %r5, %r5, 4, %r0; @%p2 bra ONE;"
     "SPIN: ld.acquire.cta.shared.u32 %r6, [%r5+1024]; setp.eq.u32 %p0, %r6, 0; @%p0 bra SPIN;"
     "ld.shared.u32 %out, [%r5]; bra DONE;"
     "ONE:" WRITE "st.release.cta.shared.u32 [%r1+1024], 1; DONE:",
     NULL},
    {"@%p2 st.volatile.shared.u32 [%r1+1024], 0; bar.sync 0; and.b32 %r5, %t, 32;"
     "mad.lo.u32 %r5, %r5, 4, %r0; @%p2 bra ONE;"
     "SPIN: ld.acquire.cta.shared.u32 %r6, [%r5+1024]; setp.eq.u32 %p0, %r6, 0; @%p0 bra SPIN;"
     "ld.shared.u32 %out, [%r5]; bra DONE;"
     "ONE:" WRITE "st.relaxed.cta.shared.u32 [%r1+1024], 1; DONE:",
     one_warp},

    // ---- parts of a warp
    {WRITE "xor.b32 %r5, %t, 15; mad.lo.u32 %r5, %r5, 4, %r0;" HALVES "ld.shared.u32 %out, [%r5];",
     NULL},
    {WRITE "xor.b32 %r5, %t, 15; mad.lo.u32 %r5, %r5, 4, %r0; ld.shared.u32 %out, [%r5];",
     one_warp},
    {WRITE HALVES TAKE, one_warp},
    {WRITE HALVES SYNC TAKE, NULL},
    // … that know of each other by way of a third
    {WRITE "and.b32 %r5, %x9, 12; setp.ge.u32 %p4, %x9, 24; setp.ge.u32 %p5, %x9, 8;"
           "@%p3 bra A; bra B; A: bar.warp.sync 0xffff; B:"
           "@!%p5 bra C; @%p4 bra C; bar.warp.sync 0x00ffff00; C:"
           "@%p3 bra D; @%p4 bra D; and.b32 %r6, %t, 7; and.b32 %r7, %t, 32; add.u32 %r6, %r6, %r7;"
           "mad.lo.u32 %r6, %r6, 4, %r0; ld.shared.u32 %out, [%r6]; D:",
     NULL},

    // ---- tiles: any lane may read any row
    {"st.shared.v4.u32 [%x8], {%t, %t, %t, %t};" SYNC TILE, NULL},
    {"st.shared.v4.u32 [%x8], {%t, %t, %t, %t};" TILE, one_warp},
    {"st.shared.v4.u32 [%x8], {%t, %t, %t, %t};" SYNC TILE
     "st.shared.v4.u32 [%x8], {%t, %t, %t, %t};",
     one_warp},
    {"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%x8], {%r0, %r0, %r0, %r0};"
     "ld.shared.u32 %out, [%x8];",
     one_warp},
    {"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%x8], {%r0, %r0, %r0, %r0};" SYNC
     "ld.shared.u32 %out, [%x8];",
     NULL},

    // ---- cp.async: its wait speaks of the lane's own copies
    {COPY "cp.async.wait_group 0;" SYNC TAKE, NULL},
    {COPY "cp.async.wait_group 0;" TAKE, one_warp},
    {COPY "cp.async.wait_group 0; ld.shared.u32 %out, [%r1];", NULL},
    {COPY SYNC "cp.async.wait_group 0;" TAKE, one_warp},
    {"cp.async.ca.shared.global [%x8], [%d1], 16; cp.async.wait_all;" TILE, one_warp},
    {"cp.async.ca.shared.global [%x8], [%d1], 16; cp.async.wait_all;" SYNC TILE, NULL},
    {"ld.shared.u32 %out, [%r2];" COPY "cp.async.wait_group 0;", one_warp},

    // … and the arrival behind it, too, whatever else one lane arrives at
    {MBARRIERS("64") COPY "cp.async.mbarrier.arrive.noinc.shared.b64 [b]; @%p2 " ARRIVE("b+8")
         WAIT("W", "b", "0") ACROSS,
     NULL},
    {MBARRIERS("2") COPY "@%p2 cp.async.mbarrier.arrive.noinc.shared.b64 [b];" WAIT(
         "W", "b", "0") "cp.async.wait_all;" ACROSS,
     two_warps},

    // ---- what one lane releases
    {MBARRIERS("2") WRITE SYNC "@%p2 " ARRIVE("b") WAIT("W", "b", "0") ACROSS, NULL},
    {MBARRIERS("2") WRITE "@%p2 " ARRIVE("b") WAIT("W", "b", "0") ACROSS, two_warps},
    {MBARRIERS("2") "@%p2 st.shared.u32 [%r1], 1; @%p2 " ARRIVE("b") WAIT(
         "W", "b",
         "0") "xor.b32 %r5, %t, 32; mad.lo.u32 %r5, %r5, 4, %r0; @%p2 ld.shared.u32 %out, [%r5];",
     NULL},
    // what others did before is theirs to release, and they do
    {MBARRIERS("64") WRITE ARRIVE("b") "@%p2 fence.acq_rel.cta;" WAIT("W", "b", "0") ACROSS, NULL},
    {MBARRIERS("2") "@%p2 " ARRIVE("b") WRITE WAIT("W", "b", "0") ACROSS, two_warps},
    {MBARRIERS("2") WRITE "@%p2 " ARRIVE("b+8") SYNC "@%p2 " ARRIVE("b") WAIT("W", "b", "0") ACROSS,
     NULL},
    {MBARRIERS("32") WRITE "@%p1 " ARRIVE("b") "@!%p1 bra N;" WAIT("W", "b", "0") TAKE "N:", NULL},
    {MBARRIERS("16") "@!%p1 bra N; @!%p3 bra N;" WRITE ARRIVE(
         "b") "N: @%p3 bra E; @!%p1 bra E;" WAIT("W", "b", "0") TAKE "E: bar.sync 0;",
     NULL},
    {MBARRIERS("16") "@!%p1 bra N; @!%p3 bra N;" ARRIVE("b") WRITE
     "N: @%p3 bra E; @!%p1 bra E;" WAIT("W", "b", "0") TAKE "E: bar.sync 0;",
     one_warp},
    // the reads of a stage, before it is filled again
    {MBARRIERS("2") ACROSS SYNC "@%p2 " ARRIVE("b") WAIT("W", "b", "0") WRITE, NULL},
    {MBARRIERS("2") ACROSS "@%p2 " ARRIVE("b") WAIT("W", "b", "0") WRITE, two_warps},

    // ---- what one lane learns
    {MBARRIERS("64") WRITE ARRIVE("b") ONE_WAITS("W", "b", "0") SYNC ACROSS, NULL},
    {MBARRIERS("64") WRITE ARRIVE("b") ONE_WAITS("W", "b", "0") ACROSS, two_warps},
    {MBARRIERS("64") WRITE ARRIVE("b") ONE_WAITS("W", "b", "0") "@%p2 " ACROSS, NULL},
    {MBARRIERS("64") WRITE ARRIVE("b") ONE_WAITS("W", "b", "0") "bar.sync 0;" ACROSS, NULL},
    {MBARRIERS("1") LOAD ONE_WAITS("W", "b", "0") SYNC TAKE, NULL},
    {MBARRIERS("1") LOAD ONE_WAITS("W", "b", "0") TAKE, "which a bulk copy writes"},
    // each lane by itself, in its own time
    {MBARRIERS("64") WRITE ARRIVE("b") "mov.u32 %r5, 0; EACH: setp.ne.u32 %p4, %r5, %x9;"
                                       "@%p4 bra NEXT;" WAIT("W", "b", "0") ACROSS
     "NEXT: add.u32 %r5, %r5, 1; setp.lt.u32 %p5, %r5, 32; @%p5 bra EACH;",
     NULL},

    // ---- bulk stores of one lane
    {WRITE FENCE SYNC STORE READ_DONE "bar.sync 0;" WRITE, NULL},
    {"@%p1 st.shared.u32 [%r1], %t;" FENCE STORE READ_DONE, its_warp},
    {"@%p7 st.shared.v4.u32 [s], {%r0, %r0, %r0, %r0}; @%p7 " FENCE
     "@%p7 cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], 16;"
     "@%p7 cp.async.bulk.commit_group;" READ_DONE,
     NULL},
    {"@%p1 st.shared.u32 [%r1], %t;" SYNC FENCE STORE READ_DONE SYNC "@%p1 " WRITE, NULL},
    {"@%p1 st.shared.u32 [%r1], %t;" FENCE SYNC STORE READ_DONE "@%p1 " WRITE,
     "which a bulk store may still be reading"},
    // a fence speaks of what its own lane has done
    {"@%p1 st.shared.u32 [%r1], %t; @%p7 " FENCE SYNC STORE READ_DONE, unfenced},
    {"@%p1 st.shared.u32 [%r1], %t;" FENCE "@%p7 fence.acq_rel.cta;" SYNC STORE READ_DONE, NULL},

    // ---- an mbarrier's initialisation
    {"@%p2 mbarrier.init.shared.b64 [%r1+1024], 32;" SYNC "and.b32 %r5, %t, 32;"
     "mad.lo.u32 %r5, %r5, 4, %r0; mbarrier.arrive.shared.b64 %d3, [%r5+1024];",
     NULL},
    {"@%p2 mbarrier.init.shared.b64 [%r1+1024], 32; and.b32 %r5, %t, 32;"
     "mad.lo.u32 %r5, %r5, 4, %r0; @!%p2 mbarrier.arrive.shared.b64 %d3, [%r5+1024];",
     "uses the mbarrier"},
};
enum { CASES = sizeof cases / sizeof *cases };

static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};
enum { ORDERS = 4, SCHEDULES = 4, WAYS = ORDERS * SCHEDULES };

START_TEST(one_case) {
    const Case *c = &cases[_i];
    for (int way = 0; way < WAYS; way++) {
        char body[6000];
        set_up();
        apart = true;
        options.async = orders[way % ORDERS];
        options.schedule = (uint64_t)(way / ORDERS);
        options.checks = CHECK_RACE;
        options.strict = true;
        snprintf(body, sizeof body, "%s%s", SET_UP, c->body);
        ck_assert_msg(run(THREADS, body) == 0, "case %d, way %d: %s\n%s", _i, way,
                      findings_get(0) ? findings_get(0)->what : "", c->body);
        const Finding *f = findings_get(0);
        ck_assert_msg(c->words || !f, "case %d, way %d: %s\n%s", _i, way, f ? f->what : "",
                      c->body);
        ck_assert_msg(!c->words || f, "case %d, way %d: no finding\n%s", _i, way, c->body);
        for (int k = 0; (f = findings_get(k)); k++)
            ck_assert_msg(f->kind == FINDING_RACE && strstr(f->what, c->words) && f->mend,
                          "case %d, way %d: %s\n%s", _i, way, f->what, c->body);
    }
}
END_TEST

// What one lane has waited for a shuffle passes on, but by the letter of PTX it doesn't; what lanes
// have written it doesn't in any case.
START_TEST(shuffle) {
    static const char waits[] = SET_UP MBARRIERS("64") WRITE ARRIVE("b")
        ONE_WAITS("W", "b", "0") "shfl.sync.idx.b32 %r5, %t, 0, 31, 0xffffffff;" ACROSS;
    static const char writes[] = SET_UP WRITE "shfl.sync.idx.b32 %r5, %t, 0, 31, 0xffffffff;" TAKE;
    for (int strict = 0; strict < 2; strict++) {
        set_up();
        apart = true;
        options.checks = CHECK_RACE;
        options.strict = strict;
        ck_assert_int_eq(run(THREADS, waits), 0);
        ck_assert(strict == (findings_get(0) != NULL));
        if (strict) expect_finding(FINDING_RACE, two_warps);
        set_up();
        apart = true;
        options.checks = CHECK_RACE;
        options.strict = strict;
        ck_assert_int_eq(run(THREADS, writes), 0);
        expect_finding(FINDING_RACE, one_warp);
    }
}
END_TEST

Suite *suite_race_lanes(void) {
    Suite *suite = suite_create("race between lanes");
    TCase *tests = tcase_create("lanes");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, one_case, 0, CASES);
    tcase_add_test(tests, shuffle);
    suite_add_tcase(suite, tests);
    return suite;
}
