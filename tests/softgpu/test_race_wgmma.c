// The race check and wgmma: operands in shared memory are read, through the async proxy, from the
// issue to the wait that covers it.
#include "wgmma_kernel.h"

Suite *suite_race_wgmma(void);

#define PRODUCT                                                                                    \
    "wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "               \
    "{%x0, %x1, %x2, %x3}, %desc_a, %desc_b, %on, 1, 1, 0, 0; wgmma.commit_group.sync.aligned;\n"
#define WAIT_FOR(n) "wgmma.wait_group.sync.aligned " n ";\n"
// A word of B.
#define WRITE_B "setp.eq.u32 %p1, %t, 0; mov.u32 %r1, smem; @%p1 st.shared.u32 [%r1 + 0x4000], 0;\n"
// A word of each warp's own rows of A, by one lane.
#define WRITE_A                                                                                    \
    "and.b32 %r2, %t, 31; setp.eq.u32 %p1, %r2, 5; shr.u32 %r3, %t, 5; mov.u32 %r1, smem;"         \
    "mad.lo.u32 %r1, %r3, 2048, %r1; @%p1 st.shared.u32 [%r1], 0;\n"
#define FENCE "fence.proxy.async.shared::cta;\n"

static const struct {
    const char *body, *words; // NULL: no finding
} cases[] = {
    {PRODUCT WAIT_FOR("0") "bar.sync 0;" WRITE_B, NULL},
    {PRODUCT WRITE_B WAIT_FOR("0"), "nothing puts the two in order"},
    {PRODUCT "bar.sync 0;" WRITE_B WAIT_FOR("0"), "which a wgmma may still be reading"},
    // a wait that leaves out the group
    {PRODUCT WAIT_FOR("1") "bar.sync 0;" WRITE_B WAIT_FOR("0"),
     "which a wgmma may still be reading"},
    {PRODUCT WAIT_FOR("0") "bar.sync 0;" WRITE_B FENCE "bar.sync 0;" PRODUCT WAIT_FOR("0"), NULL},
    {PRODUCT WAIT_FOR("0") "bar.sync 0;" WRITE_B "bar.sync 0;" PRODUCT WAIT_FOR("0"),
     "no fence.proxy.async stands in between"},
    // not all warps know that B is there
    {PRODUCT WAIT_FOR("0") "bar.sync 0;" WRITE_B FENCE PRODUCT WAIT_FOR("0"),
     "nothing puts the two in order"},
    // a warp's own rows of A: its lanes must have met, other warps needn't know
    {PRODUCT WAIT_FOR("0") "bar.sync 0;" WRITE_A FENCE
                           "bar.warp.sync 0xffffffff;" PRODUCT WAIT_FOR("0"),
     NULL},
    {PRODUCT WAIT_FOR("0") "bar.sync 0;" WRITE_A FENCE PRODUCT WAIT_FOR("0"),
     "which other lanes of its warp write"},
    // what two products read, they may both read
    {PRODUCT PRODUCT PRODUCT WAIT_FOR("0"), NULL},
};
enum { CASES = sizeof cases / sizeof *cases };

static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};
enum { ORDERS = 4, WAYS = 3 * ORDERS };

START_TEST(one_case) {
    for (int way = 0; way < WAYS; way++) {
        set_up();
        options.checks |= CHECK_RACE;
        options.async = orders[way % ORDERS];
        options.schedule = (uint64_t)(way / ORDERS);
        memset(image, 0, sizeof image);
        desc_a = descriptor(SMEM, 16, 1024, 1);
        desc_b = descriptor(SMEM + 0x4000, 16, 1024, 1);
        run_wgmma(4, cases[_i].body);
        const char *words = cases[_i].words;
        bool found = false;
        const Finding *f;
        for (int k = 0; words && (f = findings_get(k)); k++)
            found |= f->kind == FINDING_RACE && strstr(f->what, words);
        f = findings_get(0);
        ck_assert_msg(words ? found : !f, "case %d, way %d: %s", _i, way, f ? f->what : "none");
    }
}
END_TEST

Suite *suite_race_wgmma(void) {
    Suite *suite = suite_create("race_wgmma");
    TCase *tests = tcase_create("race_wgmma");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, one_case, 0, CASES);
    suite_add_tcase(suite, tests);
    return suite;
}
