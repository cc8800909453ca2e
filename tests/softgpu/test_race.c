// The race check: each finding by a smallest kernel, beside a right twin that has none, under
// several schedules and orders of completion.
#include "thread_kernel.h"

#include "softgpu/check/race_parts.h"

Suite *suite_race(void);

// Two warps. %r1: this thread's word of shared memory, %r2 that of the opposite thread, in the
// other warp; %p1: in warp 0; %p7: thread 0. %d1: 16 bytes of global memory for each thread.
#define SET_UP                                                                                     \
    ".shared .align 128 .b8 s[4096]; .shared .align 8 .b8 b[64];\n"                                \
    "mov.u32 %r0, s; mad.lo.u32 %r1, %t, 4, %r0; xor.b32 %r2, %t, 63; mad.lo.u32 %r2, %r2, 4, "    \
    "%r0; setp.lt.u32 %p1, %t, 32; setp.eq.u32 %p7, %t, 0; mov.u32 %out, 0;"                       \
    "ld.param.u64 %d0, [result]; mad.wide.u32 %d1, %t, 16, %d0;\n"
// An mbarrier at b and b + 8 for so many arrivals, ready for all uses.
#define MBARRIERS(count)                                                                           \
    "@%p7 mbarrier.init.shared.b64 [b], " count "; @%p7 mbarrier.init.shared.b64 [b+8], " count    \
    "; fence.mbarrier_init.release.cluster; bar.sync 0;\n"
#define ARRIVE(at) "mbarrier.arrive.shared.b64 %d3, [" at "];"
#define WAIT(label, at, parity)                                                                    \
    label ": mbarrier.try_wait.parity.shared.b64 %p0, [" at "], " parity "; @!%p0 bra " label ";"  \
          "\n"
#define WRITE "st.shared.u32 [%r1], %t;\n"
#define TAKE  "ld.shared.u32 %out, [%r2];\n"
// Thread 0 copies 512 bytes to s, and says so at the mbarrier b.
#define LOAD LOAD_BY("b")
#define LOAD_BY(at)                                                                                \
    "@%p7 mbarrier.arrive.expect_tx.shared.b64 %d3, [" at "], 512;"                                \
    "@%p7 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d0], 512, "     \
    "[" at "];\n"
// Thread 0 copies 512 bytes from s to global memory.
#define STORE                                                                                      \
    "@%p7 cp.async.bulk.global.shared::cta.bulk_group [%d0], [s], 512;"                            \
    "@%p7 cp.async.bulk.commit_group;\n"
// A flag at s + 2048, not set yet.
#define FLAG  "@%p7 st.shared.u32 [s+2048], 0; bar.sync 0;\n"
#define FENCE "fence.proxy.async.shared::cta;\n"

// A thread of each warp initialises b, and the warps meet.
#define INIT_TWICE(count)                                                                          \
    "and.b32 %r3, %t, 31; setp.eq.u32 %p2, %r3, 0;"                                                \
    "@%p2 mbarrier.init.shared.b64 [b], " count "; bar.sync 0;"

enum { THREADS = 64 };

typedef struct {
    const char *body;
    const char *words; // of the one kind of finding; NULL: there is none
    FindingKind kind;
    bool strict;
} Case;

static const Case cases[] = {
    // ---- barriers
    {WRITE "bar.sync 0;" TAKE, NULL, 0, true},
    {WRITE TAKE, "which warp", FINDING_RACE, false},
    {WRITE "bar.sync 0;" TAKE "bar.sync 0;" WRITE, NULL, 0, true},
    {WRITE "bar.sync 0;" TAKE WRITE, "which warp", FINDING_RACE, false},
    // long runs: what is no longer needed is forgotten, the rest is not
    {"st.shared.u32 [%r1 + 1024], %t; mov.u32 %r3, 0; LOOP:" WRITE "bar.sync 0;" TAKE
     "bar.sync 0; add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, 3000; @%p0 bra LOOP;"
     "ld.shared.u32 %out, [%r2 + 1024];",
     NULL, 0, true},
    {"mov.u32 %r3, 0; LOOP: st.shared.u32 [%r1], %r3; bar.sync 0;" TAKE
     "bar.sync 0; add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, 3000; @%p0 bra LOOP;"
     "@!%p1 st.shared.u32 [s+1024], 1; @%p1 ld.shared.u32 %out, [s+1024];",
     "which warp", FINDING_RACE, false},
    {"@%p1 st.shared.u32 [s+1024], 1; mov.u32 %r3, 0; @!%p1 bra OTHER;"
     "LOOP: st.shared.u32 [%r1], %r3; bar.sync 1, 32; add.u32 %r3, %r3, 1;"
     "setp.lt.u32 %p0, %r3, 6000; @%p0 bra LOOP; bra DONE;"
     "OTHER: st.shared.u32 [%r1], %r3; bar.sync 2, 32; add.u32 %r3, %r3, 1;"
     "setp.lt.u32 %p0, %r3, 6000; @%p0 bra OTHER; st.shared.u32 [s+1024], 2; DONE: bar.sync 0;",
     "writes to shared memory", FINDING_RACE, false},
    // two writes, of the same value even
    {"@%p1 st.shared.u32 [s], 1; bar.sync 0; @!%p1 st.shared.u32 [s], 1;", NULL, 0, true},
    {"st.shared.u32 [s], 1;", "writes to shared memory", FINDING_RACE, false},
    // neighbouring bytes and halves of a word are apart
    {"and.b32 %r3, %t, 31; shr.u32 %r4, %t, 5; mad.lo.u32 %r3, %r3, 2, %r4; add.u32 %r3, %r3, %r0;"
     "st.shared.u8 [%r3], %t; ld.shared.u8 %out, [%r3];",
     NULL, 0, true},
    {"@%p1 st.shared.u16 [s], 1; @!%p1 ld.shared.u16 %out, [s+2];", NULL, 0, true},
    {"@%p1 st.shared.u16 [s], 1; @!%p1 ld.shared.u16 %out, [s];", "which warp", FINDING_RACE,
     false},
    {"@%p1 st.shared.u16 [s], 1; @!%p1 ld.shared.u32 %out, [s];", "which warp", FINDING_RACE,
     false},
    {"@%p1 st.shared.u8 [s+3], 1; @!%p1 ld.shared.v2.u32 {%out, %r3}, [s];", "which warp",
     FINDING_RACE, false},
    // producers arrive, consumers wait
    {"@%p1 st.shared.u32 [%r1], %t; @%p1 bar.arrive 1, 64; @!%p1 bar.sync 1, 64; @!%p1 " TAKE, NULL,
     0, true},
    {"@!%p1 bar.sync 1, 64; @%p1 st.shared.u32 [%r1], %t; @%p1 bar.sync 1, 64; @!%p1 " TAKE, NULL,
     0, true},
    {"@%p1 bar.arrive 1, 64; @%p1 st.shared.u32 [%r1], %t; @!%p1 bar.sync 1, 64; @!%p1 " TAKE,
     "which warp", FINDING_RACE, false},
    // a barrier of other warps orders nothing; those that have exited count as arrived
    {"@%p1 st.shared.u32 [%r1], %t; @%p1 bar.sync 1, 32; @!%p1 bar.sync 2, 32; @!%p1 " TAKE,
     "which warp", FINDING_RACE, false},
    {"@!%p1 st.shared.u32 [%r1], %t; @!%p1 ret; bar.sync 0; @%p1 " TAKE, NULL, 0, false},

    // initialising alike is the same as once, unless strict; otherwise it isn't
    {INIT_TWICE("64") WRITE ARRIVE("b") WAIT("W0", "b", "0") TAKE, NULL, 0, false},
    {INIT_TWICE("64") WRITE ARRIVE("b") WAIT("W0", "b", "0") TAKE, "writes to shared memory",
     FINDING_RACE, true},
    {"shr.u32 %r5, %t, 5; add.u32 %r5, %r5, 1;" INIT_TWICE("%r5"), "writes to shared memory",
     FINDING_RACE, false},

    // ---- flags
    {FLAG
     "@!%p1 bra OTHER; st.shared.u32 [%r1], %t; membar.cta; st.volatile.shared.u32 [s+2048], 1;"
     "bra DONE; OTHER: ld.volatile.shared.u32 %r3, [s+2048]; setp.ne.u32 %p0, %r3, 1;"
     "@%p0 bra OTHER; membar.cta;" TAKE "DONE: bar.sync 0;",
     NULL, 0, true},
    {FLAG "@!%p1 bra OTHER; st.shared.u32 [%r1], %t; st.volatile.shared.u32 [s+2048], 1;"
          "bra DONE; OTHER: ld.volatile.shared.u32 %r3, [s+2048]; setp.ne.u32 %p0, %r3, 1;"
          "@%p0 bra OTHER; membar.cta;" TAKE "DONE: bar.sync 0;",
     "which warp", FINDING_RACE, false},
    {FLAG "@!%p1 bra OTHER; st.shared.u32 [%r1], %t; st.release.cta.shared.u32 [s+2048], 1;"
          "bra DONE; OTHER: ld.acquire.cta.shared.u32 %r3, [s+2048]; setp.ne.u32 %p0, %r3, 1;"
          "@%p0 bra OTHER;" TAKE "DONE: bar.sync 0;",
     NULL, 0, true},
    {FLAG "@!%p1 bra OTHER; st.shared.u32 [%r1], %t; st.release.cta.shared.u32 [s+2048], 1;"
          "bra DONE; OTHER: ld.relaxed.cta.shared.u32 %r3, [s+2048]; setp.ne.u32 %p0, %r3, 1;"
          "@%p0 bra OTHER;" TAKE "DONE: bar.sync 0;",
     "which warp", FINDING_RACE, false},
    {FLAG
     "@!%p1 bra OTHER; st.shared.u32 [%r1], %t; fence.acq_rel.cta; red.shared.add.u32 [s+2048], 1;"
     "bra DONE; OTHER: atom.shared.or.b32 %r3, [s+2048], 0; setp.ne.u32 %p0, %r3, 32;"
     "@%p0 bra OTHER; fence.acq_rel.cta;" TAKE "DONE: bar.sync 0;",
     NULL, 0, true},
    // atomics don't race with each other, but with plain accesses
    {"atom.shared.add.u32 %out, [s], 1; red.shared.max.u32 [s], 7;", NULL, 0, true},
    {"@%p1 red.shared.add.u32 [s], 1; @!%p1 ld.shared.u32 %out, [s];", "which warp", FINDING_RACE,
     false},

    // ---- mbarriers
    {MBARRIERS("64") WRITE ARRIVE("b") WAIT("W", "b", "0") TAKE, NULL, 0, true},
    {MBARRIERS("64") WRITE ARRIVE("b") TAKE, "which warp", FINDING_RACE, false},
    {MBARRIERS("64") WRITE "mbarrier.arrive.relaxed.cta.shared.b64 %d3, [b];" WAIT("W", "b", "0")
         TAKE,
     "which warp", FINDING_RACE, false},
    {MBARRIERS("64") WRITE ARRIVE("b") "W: mbarrier.try_wait.parity.relaxed.cta.shared.b64 %p0, "
                                       "[b], 0; @!%p0 bra W; fence.acq_rel.cta;" TAKE,
     NULL, 0, true},
    {"@%p7 mbarrier.init.shared.b64 [b], 64; @%p1 bra GO; nanosleep.u32 5000; GO:" ARRIVE("b")
         WAIT("W", "b", "0"),
     "uses the mbarrier", FINDING_RACE, false},
    // warp 1 looks at phase 1, and could not know that phase 0 is over
    {MBARRIERS("32") "@!%p1 bra OTHER;" ARRIVE("b") WAIT("W", "b", "0") ARRIVE("b")
         WAIT("X", "b", "1") "bar.sync 1, 64; bra DONE; OTHER: bar.sync 1, 64;" WAIT(
             "Y", "b", "1") "DONE: bar.sync 0;",
     NULL, 0, true},
    {MBARRIERS("32") "@!%p1 bra OTHER;" ARRIVE("b") WAIT("W", "b", "0") ARRIVE("b")
         WAIT("X", "b", "1") "bra DONE; OTHER: nanosleep.u32 9000;" WAIT("Y", "b",
                                                                         "1") "DONE: bar.sync 0;",
     "waits by parity", FINDING_RACE, false},

    // ---- cp.async: its stage must be free
    {"cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.wait_all; bar.sync 0;" TAKE
     "bar.sync 0; cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.wait_all;",
     NULL, 0, true},
    {"cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.wait_all; bar.sync 0;" TAKE
     "cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.wait_all;",
     "copies to shared memory", FINDING_RACE, false},
    // tracked by an mbarrier
    {MBARRIERS("64") "cp.async.ca.shared.global [%r1], [%d1], 4;"
                     "cp.async.mbarrier.arrive.noinc.shared.b64 [b];" WAIT("W", "b", "0") TAKE,
     NULL, 0, true},

    // ---- bulk copies into shared memory
    {MBARRIERS("1") LOAD WAIT("W", "b", "0") TAKE, NULL, 0, true},
    {MBARRIERS("1") LOAD "@%p1 bra GO; bra NOT;\nGO:" WAIT("W", "b", "0") "NOT:" TAKE "bar.sync 0;",
     "nothing puts the two in order", FINDING_RACE, false},
    {MBARRIERS("1") LOAD "@!%p1 bra NOT;" WAIT("W", "b", "0") "NOT: bar.sync 0;" TAKE, NULL, 0,
     true},
    // again into the same bytes: the readers must be done, and have said so with a proxy fence
    {MBARRIERS("1") LOAD WAIT("W", "b", "0") TAKE FENCE "bar.sync 0;" LOAD WAIT("X", "b", "1"),
     NULL, 0, true},
    {MBARRIERS("1") LOAD WAIT("W", "b", "0") TAKE "bar.sync 0;" LOAD WAIT("X", "b", "1"),
     "no fence.proxy.async stands in between", FINDING_RACE, true},
    {MBARRIERS("1") LOAD WAIT("W", "b", "0") TAKE "bar.sync 0;" LOAD WAIT("X", "b", "1"),
     "no fence.proxy.async stands in between", FINDING_LINT, false},
    {MBARRIERS("1") LOAD WAIT("W", "b", "0") TAKE LOAD_BY("b+8") WAIT("X", "b+8", "0"),
     "nothing puts the two in order", FINDING_RACE, false},
    // the fence behind the barrier, by the issuer
    {MBARRIERS("1") LOAD WAIT("W", "b", "0") TAKE
     "bar.sync 0; @%p7 " FENCE LOAD WAIT("X", "b", "1"),
     "is another thread's", FINDING_RACE, true},
    // two copies into the same bytes
    {MBARRIERS("1") LOAD WAIT("W", "b", "0") "bar.sync 0;" LOAD WAIT("X", "b", "1") TAKE, NULL, 0,
     true},
    {MBARRIERS("2") LOAD LOAD WAIT("W", "b", "0") TAKE, "which a bulk copy writes", FINDING_RACE,
     false},
    // the mbarrier's initialisation
    {"@%p7 mbarrier.init.shared.b64 [b], 1; bar.sync 0;" LOAD WAIT("W", "b", "0"),
     "no fence.mbarrier_init", FINDING_RACE, true},

    // ---- bulk stores from shared memory
    {WRITE FENCE "bar.sync 0;" STORE "@%p7 cp.async.bulk.wait_group.read 0; bar.sync 0;" WRITE,
     NULL, 0, true},
    {WRITE "bar.sync 0;" STORE "@%p7 cp.async.bulk.wait_group.read 0; bar.sync 0;",
     "no fence.proxy.async stands in between", FINDING_RACE, false},
    {WRITE FENCE STORE "@%p7 cp.async.bulk.wait_group.read 0; bar.sync 0;",
     "nothing puts the two in order", FINDING_RACE, false},
    {WRITE FENCE "bar.sync 0;" STORE "bar.sync 0;" WRITE
                 "@%p7 cp.async.bulk.wait_group.read 0; bar.sync 0;",
     "which a bulk store may still be reading", FINDING_RACE, false},
    {WRITE FENCE "bar.sync 0;" STORE "@%p7 cp.async.bulk.wait_group.read 0;" WRITE "bar.sync 0;",
     "nothing puts the two in order", FINDING_RACE, false},
    // bytes that cp.async has copied
    {"cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.wait_all;" FENCE "bar.sync 0;" STORE
     "@%p7 cp.async.bulk.wait_group.read 0; bar.sync 0;",
     NULL, 0, true},
    {"cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.wait_all; bar.sync 0;" STORE
     "@%p7 cp.async.bulk.wait_group.read 0; bar.sync 0;",
     "has copied to", FINDING_LINT, false},
    {"cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.wait_all; bar.sync 0;" STORE
     "@%p7 cp.async.bulk.wait_group.read 0; bar.sync 0;",
     "has copied to", FINDING_RACE, true},
};
enum { CASES = sizeof cases / sizeof *cases };

// Clusters of two blocks: %r5 is the peer's rank, %r6 this thread's word and %r7 the mbarrier
// there.
#define PEER                                                                                       \
    "mov.u32 %r5, %cluster_ctarank; xor.b32 %r5, %r5, 1; mapa.shared::cluster.u32 %r6, %r1, %r5; " \
    "mov.u32 %r7, b; mapa.shared::cluster.u32 %r7, %r7, %r5;\n"
#define MEET    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
#define RELAXED "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;\n"
#define SEND    "st.shared::cluster.u32 [%r6], %t;\n"
#define TELL    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];\n"
#define HEAR                                                                                       \
    "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [b], 0; @!%p0 bra W;\n"
#define OWN  "ld.shared.u32 %out, [%r1];\n"
#define INIT "@%p7 mbarrier.init.shared.b64 [b], 64;\n"

static const Case in_cluster[] = {
    {PEER MEET SEND MEET OWN, NULL, 0, true},
    {PEER MEET SEND OWN MEET, "of block rank", FINDING_RACE, true},
    {PEER MEET SEND RELAXED OWN MEET, "of block rank", FINDING_RACE, true},
    {PEER MEET SEND "fence.acq_rel.cluster;" RELAXED OWN MEET, NULL, 0, true},
    {PEER INIT "fence.mbarrier_init.release.cluster;" RELAXED SEND TELL HEAR OWN MEET, NULL, 0,
     true},
    {PEER INIT RELAXED SEND TELL HEAR OWN MEET, "uses the mbarrier", FINDING_RACE, true},
    {PEER INIT MEET SEND TELL HEAR OWN MEET, "no fence.mbarrier_init", FINDING_RACE, true},
    {PEER INIT MEET SEND TELL HEAR OWN MEET, "no fence.mbarrier_init", FINDING_LINT, false},
    // the other block's barrier says nothing about its own
    {PEER INIT "fence.mbarrier_init.release.cluster;" MEET SEND TELL "bar.sync 0;" OWN MEET,
     "of block rank", FINDING_RACE, true},
};
enum { IN_CLUSTER = sizeof in_cluster / sizeof *in_cluster };

static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};
enum { ORDERS = 4, SCHEDULES = 3, WAYS = ORDERS * SCHEDULES };

static void run_case(const Case *c, int way, uint32_t size) {
    char body[6000];
    set_up();
    apart = true;
    blocks = size;
    options.async = orders[way % ORDERS];
    options.schedule = (uint64_t)(way / ORDERS);
    options.checks = CHECK_RACE;
    options.strict = c->strict;
    snprintf(body, sizeof body, "%s%s", SET_UP, c->body);
    ck_assert_msg(run(THREADS, body) == 0, "way %d: %s\n%s", way,
                  findings_get(0) ? findings_get(0)->what : "", c->body);
}

START_TEST(one_case) {
    const Case *c = _i < CASES ? &cases[_i] : &in_cluster[_i - CASES];
    for (int way = 0; way < WAYS; way++) {
        run_case(c, way, _i < CASES ? 1 : 2);
        const Finding *f = findings_get(0);
        if (!c->words) {
            ck_assert_msg(f == NULL, "case %d, way %d: %s", _i, way, f ? f->what : "");
            continue;
        }
        bool found = false;
        for (int k = 0; (f = findings_get(k)); k++) {
            found |= f->kind == c->kind && strstr(f->what, c->words) && f->mend;
            ck_assert_msg(f->kind == c->kind || f->note, "case %d, way %d: %s\n%s", _i, way,
                          f->what, c->body);
        }
        f = findings_get(0);
        ck_assert_msg(found, "case %d, way %d: %s\n%s", _i, way, f ? f->what : "no finding",
                      c->body);
    }
}
END_TEST

Suite *suite_race(void) {
    Suite *suite = suite_create("race");
    TCase *tests = tcase_create("race");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, one_case, 0, CASES + IN_CLUSTER);
    suite_add_tcase(suite, tests);
    return suite;
}
