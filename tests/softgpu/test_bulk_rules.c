// What a bulk copy's waits promise, and no more; boxes outside of their tensors; traffic.
#include "bulk_kernel.h"

Suite *suite_bulk_rules(void);

static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};
enum { ORDERS = 4 };

#define SIGNAL        ".mbarrier::complete_tx::bytes"
#define COMMIT        "cp.async.bulk.commit_group;"
#define GROUP         COMMIT "cp.async.bulk.wait_group 0;"
#define GROUP_READ    COMMIT "cp.async.bulk.wait_group.read 0;"
#define EXPECT(bytes) "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [bar], " bytes ";\n"
#define STORE         "cp.async.bulk.global.shared::cta.bulk_group [%d7], [%r7], 64;"
#define ADD           "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d7], [%r7], 64;"
// A while later: what stands where the copy goes, kept in the image.
#define LOOK                                                                                       \
    "mov.u32 %r1, 0; LATER: add.u32 %r1, %r1, 1; setp.lt.u32 %p0, %r1, 120; @%p0 bra LATER;\n"     \
    "ld.global.u32 %r0, [%d7]; st.shared.u32 [%r7+1024], %r0;"

static uint32_t word(const uint8_t *bytes, uint32_t at) {
    uint32_t value;
    memcpy(&value, bytes + at, 4);
    return value;
}
static uint32_t image_word(uint32_t at) {
    uint8_t bytes[4] = {image_byte(at), image_byte(at + 1), image_byte(at + 2), image_byte(at + 3)};
    return word(bytes, 0);
}

// ---- .read says that the source has been read, not that the destination is written

static const struct {
    const char *read, *whole;
    bool adds;
} waits[] = {
    {ONE(STORE GROUP_READ LOOK GROUP), ONE(STORE GROUP LOOK), false},
    {ONE(ADD GROUP_READ LOOK GROUP), ONE(ADD GROUP LOOK), true},
    // of two groups
    {ONE(STORE COMMIT "cp.async.bulk.global.shared::cta.bulk_group [%d7+64], [%r7], 64;" COMMIT
                      "cp.async.bulk.wait_group.read 0;" LOOK GROUP),
     ONE(STORE COMMIT "cp.async.bulk.global.shared::cta.bulk_group [%d7+64], [%r7], 64;" COMMIT
                      "cp.async.bulk.wait_group 1;" LOOK GROUP),
     false},
};
enum { WAITS = sizeof waits / sizeof *waits };

START_TEST(read_is_not_written) {
    options.async = orders[_i % ORDERS];
    const char *body = waits[_i / ORDERS].read;
    uint32_t before = word(tensor, 0);
    uint32_t after = waits[_i / ORDERS].adds ? before + image_word(0) : image_word(0);
    bool stale = false, fresh = false;
    for (uint64_t schedule = 0; schedule < 40; schedule++) {
        set_up();
        options.checks &= ~CHECK_RACE; // which finds it
        options.async = orders[_i % ORDERS];
        options.schedule = schedule;
        expect_right(run(body));
        uint32_t seen = word(dumped, 1024);
        ck_assert(seen == before || seen == after);
        stale |= seen == before;
        fresh |= seen == after;
        ck_assert_uint_eq(word(tensor, 0), after); // at the end it is there
    }
    ck_assert(stale == (options.async != ASYNC_EARLY));
    ck_assert(fresh == (options.async == ASYNC_EARLY || options.async == ASYNC_RANDOM));
}
END_TEST

START_TEST(wait_is_written) {
    options.async = orders[_i % ORDERS];
    uint32_t after = image_word(0) + (waits[_i / ORDERS].adds ? word(tensor, 0) : 0);
    expect_right(run(waits[_i / ORDERS].whole));
    ck_assert_uint_eq(word(dumped, 1024), after);
}
END_TEST

// Another block is told that the data is there: after .read it is stale, after a whole wait not.
// tensor + 1024: the flag; + 1028: the answer that lets the first block go on.
#define SPIN(label, at)                                                                            \
    label ": ld.acquire.gpu.global.u32 %r0, [%d7+" at                                              \
          "]; setp.eq.u32 %p0, %r0, 0; @%p0 bra " label ";\n"
#define TELL(at) "st.release.gpu.global.u32 [%d7+" at "], 1;"
#define OTHER_BLOCK(wait)                                                                          \
    "mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra SECOND;\n" ONE(                      \
        STORE wait TELL("1024") SPIN("ANSWER", "1028")                                             \
            GROUP) "bra.uni BOTH;\nSECOND: @!%p7 bra "                                             \
                   "BOTH;\n" SPIN("FLAG",                                                          \
                                  "1024") "ld.global.u32 %r2, [%d7]; st.global.u32 [%d7+1032], "   \
                                          "%r2;" TELL("1028") "BOTH: @%p1 ret;\n"

START_TEST(other_block) {
    bool whole = _i / ORDERS;
    options.async = orders[_i % ORDERS];
    options.threads = 2;
    blocks = 2;
    memset(tensor + 1024, 0, 16);
    uint32_t before = word(tensor, 0);
    ck_assert_int_eq(run(whole ? OTHER_BLOCK(GROUP) : OTHER_BLOCK(GROUP_READ)), 0);
    ck_assert_uint_eq(word(tensor, 0), image_word(0));
    uint32_t seen = word(tensor, 1032);
    if (whole || options.async == ASYNC_EARLY) ck_assert_uint_eq(seen, image_word(0));
    if (!whole && options.async == ASYNC_LATE) ck_assert_uint_eq(seen, before);
}
END_TEST

// ---- boxes

static uint64_t dims[5] = {64, 64}, strides[4] = {256};
static uint32_t box[5] = {32, 4}, steps[5] = {1, 1, 1, 1, 1};
static void use_map(void) {
    map = (TensorMapArguments){.type = TENSOR_F32,
                               .rank = 2,
                               .dims = dims,
                               .strides = strides,
                               .box = box,
                               .element_strides = steps};
    encode = true;
    tensor_size = 16384;
}
#define LOAD(x, y)                                                                                 \
    ONE(EXPECT("512") "cp.async.bulk.tensor.2d.shared::cta.global" SIGNAL " [%r7], [%d5, {" x      \
                      ", " y "}], [bar];")                                                         \
    "W: mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0; @!%p0 bra W;\n"

// A load of nothing but padding is worth a note, never an error.
START_TEST(outside) {
    static const struct {
        const char *body, *words;
    } cases[] = {
        {LOAD("0", "0"), NULL},
        {LOAD("48", "62"), NULL}, // a part of it
        {LOAD("-31", "-3"), NULL},
        {LOAD("0", "64"), "a box at {0, 64} that lies outside of its tensor of 64 x 64 elements"},
        {LOAD("128", "0"), "a box at {128, 0}"}, // in bytes
        {LOAD("-32", "0"), "a box at {-32, 0}"},
    };
    use_map();
    options.strict = _i % 2;
    ck_assert_int_eq(run(cases[_i / 2].body), 0);
    ck_assert_int_eq(findings_count(), 0);
    const Finding *f = findings_get(0);
    if (!cases[_i / 2].words) {
        ck_assert_ptr_null(f);
        return;
    }
    expect_finding(FINDING_NOTE, cases[_i / 2].words);
    ck_assert(f->note);
    for (uint32_t k = 0; k < 512; k++) ck_assert_uint_eq(dumped[k], 0);
}
END_TEST

// ---- traffic of shared memory

// Wavefronts of a kernel whose first block multicasts a box to all four.
static double wavefronts(const char *body) {
    expect_right(run(body));
    return stats.shared_wavefronts;
}
#define MULTICAST(bytes)                                                                           \
    ONE(EXPECT(bytes) "mov.u32 %r6, %cluster_ctarank; setp.ne.u32 %p0, %r6, 0; mov.b16 %h0, 15;"   \
                      "@!%p0 cp.async.bulk.tensor.2d.shared::cluster.global" SIGNAL                \
                      ".multicast::cluster [%r7], [%d5, {0, 0}], [bar], %h0;")                     \
    "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [bar], 0; @!%p0 bra W;\n"

// What is multicast is written at each block that gets it.
START_TEST(multicast_wavefronts) {
    options.timing = true;
    cluster = 4;
    use_map();
    double once = wavefronts(MULTICAST("512"));
    box[1] = 8;
    double twice = wavefronts(MULTICAST("1024"));
    box[1] = 4;
    ck_assert_msg(twice - once == 4 * 512 / 128, "%g and %g", once, twice);
}
END_TEST

// A block stores, and another one that it tells so by a flag in global memory reads. The wait for
// the write is all that makes it right, and some orders show it.
static bool reads_new(const char *wait, uint64_t schedule) {
    char body[1024];
    snprintf(body, sizeof body,
             "mov.u32 %%r0, %%ctaid.x; setp.ne.u32 %%p1, %%r0, 0; @!%%p7 bra END; @%%p1 bra READ;\n"
             "cp.async.bulk.global.shared::cta.bulk_group [%%d7], [%%r7], 16;\n"
             "cp.async.bulk.commit_group; %s mov.u32 %%r1, 7777;\n"
             "st.release.gpu.global.u32 [%%d7+2048], %%r1; cp.async.bulk.wait_group 0; bra END;\n"
             "READ: ld.acquire.gpu.global.u32 %%r1, [%%d7+2048]; setp.ne.u32 %%p2, %%r1, 7777;\n"
             "@%%p2 bra READ; ld.global.u32 %%r2, [%%d7]; st.global.u32 [%%d7+1024], %%r2;\nEND:\n",
             wait);
    set_up();
    options.checks &= ~CHECK_RACE; // which finds it
    options.async = ASYNC_RANDOM;
    options.schedule = schedule;
    blocks = 2;
    expect_right(run(body));
    const uint8_t stored[4] = {image_byte(0), image_byte(1), image_byte(2), image_byte(3)};
    return !memcmp(tensor + 1024, stored, 4);
}

START_TEST(slow_writes) {
    int stale = 0;
    for (uint64_t schedule = 1; schedule <= 40; schedule++) {
        ck_assert(reads_new("cp.async.bulk.wait_group 0;", schedule));
        stale += !reads_new("cp.async.bulk.wait_group.read 0;", schedule);
    }
    ck_assert_int_gt(stale, 0);
}
END_TEST

Suite *suite_bulk_rules(void) {
    Suite *suite = suite_create("bulk_rules");
    TCase *tests = tcase_create("promises");
    tcase_set_timeout(tests, 30);
    tcase_add_checked_fixture(tests, set_up, NULL);
    tcase_add_loop_test(tests, read_is_not_written, 0, WAITS * ORDERS);
    tcase_add_loop_test(tests, wait_is_written, 0, WAITS * ORDERS);
    tcase_add_loop_test(tests, other_block, 0, 2 * ORDERS);
    tcase_add_loop_test(tests, outside, 0, 12);
    tcase_add_test(tests, multicast_wavefronts);
    tcase_add_test(tests, slow_writes);
    suite_add_tcase(suite, tests);
    return suite;
}
