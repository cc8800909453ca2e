// The numbers that chapter 5's lesson works out by hand: the parities of a ring of two buffers, and
// one descriptor with the address of one number.
#include "thread_kernel.h"

#include "softgpu/execute/descriptor.h"

Suite *suite_toy_hopper(void);

// A ring of two buffers, walked for six blocks by one thread. Bit 2 j of the result: the buffer was
// empty at the parity that the lesson's table has for block j, and not at the other one; bit 2 j +
// 1: the same for full, after an arrival there.
static const char ring[] =
    ".shared .align 8 .b8 b[32]; mov.u32 %r0, b; mov.u32 %out, 0; mov.u32 %r1, 0;\n"
    "mbarrier.init.shared.b64 [%r0], 1; mbarrier.init.shared.b64 [%r0+8], 1;"
    "mbarrier.init.shared.b64 [%r0+16], 1; mbarrier.init.shared.b64 [%r0+24], 1;\n"
    // r2: the parity of the use; r3: empty, r4: full
    "LOOP: shr.u32 %r2, %r1, 1; and.b32 %r2, %r2, 1; xor.b32 %r5, %r2, 1;"
    "and.b32 %r3, %r1, 1; shl.b32 %r3, %r3, 3; add.u32 %r3, %r3, %r0; add.u32 %r4, %r3, 16;\n"
    "mbarrier.test_wait.parity.shared.b64 %p0, [%r3], %r5;"
    "mbarrier.test_wait.parity.shared.b64 %p1, [%r3], %r2;"
    "mbarrier.arrive.shared.b64 _, [%r4];\n"
    "mbarrier.test_wait.parity.shared.b64 %p2, [%r4], %r2;"
    "mbarrier.test_wait.parity.shared.b64 %p3, [%r4], %r5;"
    "mbarrier.arrive.shared.b64 _, [%r3];\n"
    "not.pred %p1, %p1; and.pred %p0, %p0, %p1; not.pred %p3, %p3; and.pred %p2, %p2, %p3;"
    "selp.u32 %r5, 1, 0, %p0; selp.u32 %r6, 2, 0, %p2; add.u32 %r5, %r5, %r6;"
    "shl.b32 %r6, %r1, 1; shl.b32 %r5, %r5, %r6; or.b32 %out, %out, %r5;"
    "add.u32 %r1, %r1, 1; setp.lt.u32 %p0, %r1, 6; @%p0 bra LOOP;";

START_TEST(parities_of_a_ring) {
    ck_assert_int_eq(run(1, ring), 0);
    ck_assert_uint_eq(results[0], (1u << 12) - 1);
}
END_TEST

// K's tile at 0x6400: row 5, column 20.
START_TEST(descriptor_by_hand) {
    const SharedOperand k = {.descriptor = descriptor_hopper(0x4000004000010642ull),
                             .element = 2,
                             .rows = 128,
                             .depth = 16};
    ck_assert_uint_eq(k.descriptor.start, 0x6420);
    ck_assert_uint_eq(k.descriptor.stride, 1024);
    ck_assert_int_eq(k.descriptor.swizzle, SWIZZLE_128B);
    ck_assert_uint_eq(descriptor_element(&k, 5, 20 - 16), 0x66f8);
    ck_assert_uint_eq(swizzle(SWIZZLE_128B, 0x6400 + 5 * 128 + 20 * 2), 0x66f8);
}
END_TEST

Suite *suite_toy_hopper(void) {
    Suite *suite = suite_create("toy_hopper");
    TCase *tests = tcase_create("toy_hopper");
    tcase_add_checked_fixture(tests, set_up, NULL);
    tcase_add_test(tests, parities_of_a_ring);
    tcase_add_test(tests, descriptor_by_hand);
    suite_add_tcase(suite, tests);
    return suite;
}
