// Bulk copies: plain ones, reductions, copies within a cluster, groups and waits, edited tensor
// maps; and what is found out about broken ones. Right kernels run under every order of completion.
#include "bulk_kernel.h"

Suite *suite_bulk(void);

static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};
enum { ORDERS = 4, SCHEDULES = 2, WAYS = ORDERS * SCHEDULES };

static void choose(int way) {
    options.async = orders[way % ORDERS];
    options.schedule = 3 * (uint64_t)(way / ORDERS);
}

#define SIGNAL     ".mbarrier::complete_tx::bytes"
#define GROUP      "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
#define GROUP_READ "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;"
#define LOAD_2D    "cp.async.bulk.tensor.2d.shared::cta.global.tile" SIGNAL
#define STORE_2D   "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"

// A map of 64 x 64 values of 32 bits without padding, boxes of 32 x 4.
static uint64_t dims[5] = {64, 64}, strides[4] = {256};
static uint32_t box[5] = {32, 4}, steps[5] = {1, 1, 1, 1, 1};
static void use_map(unsigned type, unsigned swizzle) {
    map = (TensorMapArguments){.type = type,
                               .rank = 2,
                               .swizzle = swizzle,
                               .dims = dims,
                               .strides = strides,
                               .box = box,
                               .element_strides = steps};
    encode = true;
    tensor_size = 16384;
}

static uint32_t word(const uint8_t *bytes, uint32_t at) {
    uint32_t value;
    memcpy(&value, bytes + at, 4);
    return value;
}
static uint32_t image_word(uint32_t at) {
    uint8_t bytes[4] = {image_byte(at), image_byte(at + 1), image_byte(at + 2), image_byte(at + 3)};
    return word(bytes, 0);
}

// ---- plain copies

START_TEST(plain_load) {
    choose(_i);
    expect_right(run(ONE(EXPECT("4096") "cp.async.bulk.shared::cluster.global" SIGNAL
                                        " [%r7+256], [%d7], 1024, [bar];"
                                        "cp.async.bulk.shared::cta.global" SIGNAL
                                        " [%r7+4096], [%d7+1024], 3072, [bar];") WAIT("0")));
    ck_assert_mem_eq(dumped + 256, tensor, 1024);
    ck_assert_mem_eq(dumped + 4096, tensor + 1024, 3072);
    ck_assert_uint_eq(dumped[255], image_byte(255));
    ck_assert_uint_eq(dumped[1280], image_byte(1280));
}
END_TEST

START_TEST(plain_store) {
    choose(_i);
    uint8_t before = tensor[15], behind = tensor[16 + 512];
    expect_right(
        run(ONE("cp.async.bulk.global.shared::cta.bulk_group [%d7+16], [%r7+32], 512;" GROUP)));
    for (uint32_t k = 0; k < 512; k++) ck_assert_uint_eq(tensor[16 + k], image_byte(32 + k));
    ck_assert_uint_eq(tensor[15], before);
    ck_assert_uint_eq(tensor[16 + 512], behind);
}
END_TEST

// .cp_mask: of each 16 bytes only those of the mask.
START_TEST(masked_store) {
    static uint8_t before[512];
    choose(_i);
    memcpy(before, tensor, sizeof before);
    expect_right(run(ONE("mov.b16 %h0, 0x80f1; cp.async.bulk.global.shared::cta.bulk_group.cp_mask "
                         "[%d7], [%r7], 512, %h0;" GROUP)));
    for (uint32_t k = 0; k < 512; k++)
        ck_assert_uint_eq(tensor[k], 0x80f1 >> k % 16 & 1 ? image_byte(k) : before[k]);
}
END_TEST

// The data of an earlier store may be overwritten once its source has been read: .read.
START_TEST(read_then_reuse) {
    choose(_i);
    expect_right(
        run(ONE("cp.async.bulk.global.shared::cta.bulk_group [%d7], [%r7], 64;" GROUP_READ
                "mov.u32 %r0, 7; st.shared.u32 [%r7], %r0; fence.proxy.async;"
                "cp.async.bulk.global.shared::cta.bulk_group [%d7+64], [%r7], 64;" GROUP)));
    ck_assert_uint_eq(word(tensor, 0), image_word(0));
    ck_assert_uint_eq(word(tensor, 64), 7);
    ck_assert_uint_eq(word(tensor, 68), image_word(4));
}
END_TEST

// A ring of two sources: wait_group.read 1 leaves the newest group alone. Empty groups count.
START_TEST(ring_of_stores) {
    choose(_i);
    expect_right(run(ONE(
        "mov.u32 %r0, 0; mov.u64 %d0, %d7; mov.u32 %r1, %r7;"
        "LOOP: st.shared.u32 [%r1], %r0; fence.proxy.async;"
        "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 16; cp.async.bulk.commit_group;"
        "cp.async.bulk.wait_group.read 1; add.u64 %d0, %d0, 16; xor.b32 %r1, %r1, 128;"
        "add.u32 %r0, %r0, 1; setp.lt.u32 %p0, %r0, 20; @%p0 bra LOOP;"
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;")));
    for (uint32_t k = 0; k < 20; k++) ck_assert_uint_eq(word(tensor, 16 * k), k);
}
END_TEST

// ---- reductions

#define REDUCE(op, type)                                                                           \
    ONE("cp.reduce.async.bulk.global.shared::cta.bulk_group." op "." type                          \
        " [%d7], [%r7], 256;" GROUP)

static uint64_t old_value(unsigned width, uint32_t k) {
    uint64_t value = 0;
    for (unsigned b = 0; b < width; b++)
        value |= (uint64_t)(uint8_t)((k + b) * 101 + (k + b) / 251) << 8 * b;
    return value;
}
static uint64_t new_value(unsigned width, uint32_t k) {
    uint64_t value = 0;
    for (unsigned b = 0; b < width; b++) value |= (uint64_t)image_byte(k + b) << 8 * b;
    return value;
}

static uint64_t add(uint64_t a, uint64_t b) {
    return a + b;
}
static uint64_t and (uint64_t a, uint64_t b) {
    return a & b;
}
static uint64_t or (uint64_t a, uint64_t b) {
    return a | b;
}
static uint64_t xor (uint64_t a, uint64_t b) { return a ^ b; } static uint64_t
    min_u(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}
static uint64_t max_s32(uint64_t a, uint64_t b) {
    return (int32_t)a > (int32_t)b ? a : b;
}
static uint64_t min_s64(uint64_t a, uint64_t b) {
    return (int64_t)a < (int64_t)b ? a : b;
}
static uint64_t inc(uint64_t a, uint64_t b) {
    return a >= b ? 0 : a + 1;
}
static uint64_t dec(uint64_t a, uint64_t b) {
    return a == 0 || a > b ? b : a - 1;
}
static uint64_t add_f32(uint64_t a, uint64_t b) {
    float x = bits_float((uint32_t)a), y = bits_float((uint32_t)b);
    if (fabsf(x) < 1.17549435e-38f) x = copysignf(0, x);
    if (fabsf(y) < 1.17549435e-38f) y = copysignf(0, y);
    float sum = x + y;
    if (isnan(sum)) return 0x7fffffff;
    if (fabsf(sum) < 1.17549435e-38f) sum = copysignf(0, sum);
    return float_bits(sum);
}

static const struct {
    const char *body;
    unsigned width;
    uint64_t (*combine)(uint64_t old, uint64_t operand);
} reductions[] = {
    {REDUCE("add", "u32"), 4, add},     {REDUCE("add", "s32"), 4, add},
    {REDUCE("add", "u64"), 8, add},     {REDUCE("and", "b32"), 4, and},
    {REDUCE("or", "b64"), 8, or },      {REDUCE("xor", "b32"), 4, xor},
    {REDUCE("min", "u32"), 4, min_u},   {REDUCE("max", "s32"), 4, max_s32},
    {REDUCE("min", "s64"), 8, min_s64}, {REDUCE("inc", "u32"), 4, inc},
    {REDUCE("dec", "u32"), 4, dec},     {REDUCE("add", "f32"), 4, add_f32},
};
enum { REDUCTIONS = sizeof reductions / sizeof *reductions };

START_TEST(plain_reductions) {
    options.async = orders[_i % ORDERS];
    unsigned width = reductions[_i].width;
    uint64_t mask = width == 8 ? ~0ull : (1ull << 8 * width) - 1;
    expect_right(run(reductions[_i].body));
    for (uint32_t k = 0; k < 256; k += width) {
        uint64_t found = 0;
        memcpy(&found, tensor + k, width);
        uint64_t right = reductions[_i].combine(old_value(width, k), new_value(width, k)) & mask;
        ck_assert_msg(found == right, "%d, byte %u: %llx, not %llx", _i, k,
                      (unsigned long long)found, (unsigned long long)right);
    }
}
END_TEST

// Blocks on many SMs add to the same numbers: nothing is lost, and every order gives the sum.
START_TEST(many_blocks_add) {
    choose(_i);
    blocks = 50;
    options.threads = 2;
    options.checks &= ~(unsigned)CHECK_RACE;
    uint32_t before = word(tensor, 0), last = word(tensor, 252);
    static const char body[] = "@!%p7 bra OVER; mov.u32 %r0, 1; st.shared.u32 [%r7], %r0;"
                               "fence.proxy.async; cp.reduce.async.bulk.global.shared::cta."
                               "bulk_group.add.u32 [%d7], [%r7], 256; " GROUP " OVER:\n"
                               // the dump is for one cluster
                               "mov.u32 %r0, %ctaid.x; setp.ne.u32 %p0, %r0, 0; @%p0 ret;\n";
    int code = run(body);
    ck_assert_int_eq(code, 0);
    ck_assert_ptr_null(findings_get(0));
    ck_assert_uint_eq(word(tensor, 0), before + 50);
    ck_assert_uint_eq(word(tensor, 252), last + 50 * image_word(252));
}
END_TEST

// A launch that fails forgets the reductions that it has not applied.
START_TEST(failed_launch) {
    blocks = 50;
    options.async = orders[_i];
    options.checks &= ~(unsigned)CHECK_RACE;
    static const char body[] = "mov.u32 %r0, %ctaid.x; setp.eq.u32 %p0, %r0, 7; @%p0 trap;" ONE(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d7], [%r7], "
        "256;" GROUP) "ret;\n";
    ck_assert_int_eq(run(body), 719);
    expect_finding(FINDING_TRAP, "");
}
END_TEST

START_TEST(half_sums) {
    choose(_i);
    for (uint32_t k = 0; k < 128; k++) { // bf16: k in memory
        uint32_t bits = float_bits((float)k);
        tensor[2 * k] = (uint8_t)(bits >> 16);
        tensor[2 * k + 1] = (uint8_t)(bits >> 24);
    }
    // 2.0, twice in a word
    expect_right(run(ONE("mov.u32 %r0, 0; LOOP: add.u32 %r1, %r7, %r0; mov.u32 %r2, 0x40004000;"
                         "st.shared.u32 [%r1], %r2; add.u32 %r0, %r0, 4; setp.lt.u32 %p0, %r0, 256;"
                         "@%p0 bra LOOP; fence.proxy.async;"
                         "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 "
                         "[%d7], [%r7], 256;" GROUP)));
    for (uint32_t k = 0; k < 128; k++)
        ck_assert_uint_eq(word(tensor, 2 * k) & 0xffff, float_bits((float)(k + 2)) >> 16);
}
END_TEST

START_TEST(tensor_reduction) {
    choose(_i);
    use_map(TENSOR_U32, SWIZZLE_128B);
    static uint8_t before[16384];
    memcpy(before, tensor, sizeof before);
    expect_right(run(ONE("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group "
                         "[%d5, {48, -2}], [%r7+1024];" GROUP)));
    for (uint32_t y = 0; y < 64; y++)
        for (uint32_t x = 0; x < 64; x++) {
            uint32_t at = 256 * y + 4 * x, column = (x - 48) / 4, r = y + 2;
            uint32_t source = 1024 + 128 * r + 16 * (column ^ r) + 4 * (x % 4);
            uint32_t sum = word(before, at) + (y < 2 && x >= 48 ? image_word(source) : 0);
            ck_assert_uint_eq(word(tensor, at), sum);
        }
}
END_TEST

// ---- clusters

// CTA 1 copies to CTA 0's shared memory and signals its mbarrier.
START_TEST(copy_to_peer) {
    choose(_i);
    cluster = 2;
    expect_right(run(
        "mov.u32 %r6, %cluster_ctarank; setp.eq.u32 %p1, %r6, 0; mov.u32 %r1, 0;"
        "mapa.shared::cluster.u32 %r2, %r7, %r1; mov.u32 %r4, bar; "
        "mapa.shared::cluster.u32 %r3, %r4, %r1; and.pred %p2, %p1, %p7;\n"
        "@!%p2 bra OTHER; " EXPECT("512") "OTHER: @%p1 bra AWAIT;\n"
                                          "@%p7 cp.async.bulk.shared::cluster.shared::cta" SIGNAL
                                          " [%r2+64], [%r7+2048], 512, [%r3];"
                                          "bra.uni DONE;\nAWAIT:" WAIT("0") "DONE:\n"));
    for (uint32_t k = 0; k < 512; k++) ck_assert_uint_eq(dumped[64 + k], image_byte(2048 + k));
    ck_assert_uint_eq(dumped[64 + 512], image_byte(64 + 512));
    for (uint32_t k = 0; k < IMAGE; k++) ck_assert_uint_eq(dumped[IMAGE + k], image_byte(k));
}
END_TEST

// Each of four CTAs fetches a quarter and multicasts it to all: every mbarrier gets all bytes.
START_TEST(multicast) {
    choose(_i);
    cluster = 4;
    use_map(TENSOR_F32, SWIZZLE_128B);
    expect_right(run(ONE(EXPECT("2048") "mov.u32 %r6, %cluster_ctarank; mul.lo.u32 %r5, %r6, 4;"
                                        "mad.lo.u32 %r4, %r6, 512, %r7; mov.b16 %h0, 15;"
                                        "cp.async.bulk.tensor.2d.shared::cluster.global.tile" SIGNAL
                                        ".multicast::cluster [%r4], [%d5, {32, %r5}], [bar], %h0;")
                         WAIT("0")));
    for (uint32_t rank = 0; rank < 4; rank++)
        for (uint32_t y = 0; y < 16; y++)
            for (uint32_t chunk = 0; chunk < 8; chunk++)
                ck_assert_mem_eq(dumped + rank * IMAGE + 128 * y + 16 * (chunk ^ y % 8),
                                 tensor + 256 * y + 128 + 16 * chunk, 16);
}
END_TEST

// What is multicast crosses L2 once.
START_TEST(multicast_traffic) {
    cluster = 4;
    options.timing = true;
    use_map(TENSOR_F32, 0);
    static const char body[] = ONE(
        EXPECT("512") "mov.u32 %r6, %cluster_ctarank; setp.ne.u32 %p0, %r6, 0; @%p0 bra NOT_ONE;"
                      "mov.b16 %h0, 15; cp.async.bulk.tensor.2d.shared::cluster.global" SIGNAL
                      ".multicast::cluster [%r7], [%d5, {0, 0}], [bar], %h0;") WAIT("0");
    expect_right(run(body));
    double once = stats.l2_read_bytes;
    ck_assert(once == 512);
    static const char alone[] =
        ONE(EXPECT("512") LOAD_2D " [%r7], [%d5, {0, 0}], [bar];") WAIT("0");
    expect_right(run(alone));
    ck_assert(stats.l2_read_bytes == 4 * once);
    ck_assert(stats.warp_instructions[PIPE_TMA] > 0);
}
END_TEST

// A prefetch brings lines from HBM to L2, and no byte further.
START_TEST(prefetch_traffic) {
    options.timing = true;
    use_map(TENSOR_F32, 0);
    expect_right(run(ONE("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%d5, {0, 0}];"
                         "cp.async.bulk.prefetch.L2.global [%d7+8192], 1024;")));
    ck_assert(stats.l2_read_bytes == 0);
    ck_assert(stats.hbm_read_bytes == 512 + 1024);
}
END_TEST

// ---- gather and scatter

START_TEST(gather_and_scatter) {
    choose(_i);
    use_map(TENSOR_F32, SWIZZLE_128B);
    box[1] = 1;
    expect_right(run(ONE(EXPECT(
        "512") "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4" SIGNAL
               " [%r7+1024], [%d5, {32, 7, 63, 64, 1}], [bar];\n" WAIT(
                   "0") "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group "
                        "[%d5, {0, 20, 22, 24, -1}], [%r7+1024];" GROUP)));
    static const uint32_t rows[] = {7, 63, 64, 1};
    for (uint32_t r = 0; r < 4; r++)
        for (uint32_t chunk = 0; chunk < 8; chunk++) {
            const uint8_t *found = dumped + 1024 + 128 * r + 16 * (chunk ^ r);
            static const uint8_t zeros[16];
            ck_assert_mem_eq(found,
                             rows[r] < 64 ? tensor + 256 * rows[r] + 128 + 16 * chunk : zeros, 16);
        }
    ck_assert_mem_eq(tensor + 256 * 20, tensor + 256 * 7 + 128, 128);
    ck_assert_mem_eq(tensor + 256 * 22, tensor + 256 * 63 + 128, 128);
    box[1] = 4;
}
END_TEST

// A map whose address lies before the memory: coordinates bring it back (modulo 2^64).
START_TEST(shifted_base) {
    choose(_i);
    use_map(TENSOR_F32, 0);
    uint64_t wide[5] = {64, 1ull << 30};
    map.dims = wide;
    map_offset = (uint64_t)0 - (256ull << 20);
    expect_right(run("mov.u32 %r5, 1048586;\n" // 2^20 + 10
                     ONE(EXPECT("512") LOAD_2D " [%r7], [%d5, {0, %r5}], [bar];") WAIT("0")));
    for (uint32_t y = 0; y < 4; y++)
        ck_assert_mem_eq(dumped + 128 * y, tensor + 256 * (10 + y), 128);
}
END_TEST

// ---- edited maps

// Copies the map of the parameter to the shared address %r4 + 8192.
#define COPY_MAP                                                                                   \
    "mov.u32 %r0, 0; CM: add.u32 %r1, %r7, %r0; cvt.u64.u32 %d0, %r0; add.u64 %d0, %d0, %d5;"      \
    "ld.u32 %r2, [%d0]; st.shared.u32 [%r1+8192], %r2; add.u32 %r0, %r0, 4;"                       \
    "setp.lt.u32 %p0, %r0, 128; @%p0 bra CM;\n"
// Thread 0 moves the map to row 8 of the tensor; the first warp puts it at the tensor's byte 8192.
#define EDIT_MAP                                                                                   \
    "setp.gt.u32 %p1, %t, 31; @%p1 bra EDITED; @!%p7 bra CP;\n" COPY_MAP                           \
    "add.u64 %d1, %d7, 2048; add.u32 %r4, %r7, 8192;"                                              \
    "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r4], %d1;"                      \
    "mov.u32 %r1, 2; tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r4], 1, %r1;\n"        \
    "CP: bar.warp.sync 0xffffffff; add.u64 %d2, %d7, 8192; add.u32 %r4, %r7, 8192;"                \
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "      \
    "[%d2], [%r4], 128;\n EDITED: bar.sync 0; add.u64 %d2, %d7, 8192;\n"
#define ACQUIRE "fence.proxy.tensormap::generic.acquire.gpu [%d2], 128;"

START_TEST(edited_map) {
    choose(_i);
    use_map(TENSOR_F32, 0);
    expect_right(
        run(EDIT_MAP ONE(ACQUIRE EXPECT("256") LOAD_2D " [%r7], [%d2, {0, 0}], [bar];") WAIT("0")));
    ck_assert_mem_eq(dumped, tensor + 2048, 128);
    ck_assert_mem_eq(dumped + 128, tensor + 2048 + 256, 128);
    ck_assert_uint_eq(dumped[256], image_byte(256));
}
END_TEST

// ---- what is found

typedef struct {
    const char *body;
    FindingKind kind;
    const char *words;
    int code;
} Broken;
static const Broken broken[] = {
    {ONE(EXPECT("512") LOAD_2D " [%r7+64], [%d5, {0, 0}], [bar];"), FINDING_MISALIGNED,
     "multiple of 128", 716},
    {ONE(EXPECT("512") LOAD_2D " [%r7+32640], [%d5, {0, 0}], [bar];"), FINDING_OUT_OF_BOUNDS,
     "shared memory", 700},
    {ONE(EXPECT("512") LOAD_2D " [%r7], [%d5, {0, 0}], [bar+4];"), FINDING_MISALIGNED,
     "address of the mbarrier", 716},
    {ONE(LOAD_2D " [%r7], [%d5, {0, 0}], [bar+8];"), FINDING_BARRIER, "there is none", 719},
    {ONE(LOAD_2D " [%r7], [%d5+16, {0, 0}], [bar];"), FINDING_MISALIGNED, "tensor map", 716},
    {ONE(LOAD_2D " [%r7], [%d7, {0, 0}], [bar];"), FINDING_BULK, "no tensor map", 719},
    {ONE("cvt.u64.u32 %d0, %r7; cvta.shared.u64 %d0, %d0; " LOAD_2D
         " [%r7], [%d0, {0, 0}], [bar];"),
     FINDING_WRONG_SPACE, "lies in shared memory", 717},
    {".local .align 64 .b8 mine[128]; mov.u64 %d0, mine; cvta.local.u64 %d0, %d0; " ONE(
         LOAD_2D " [%r7], [%d0, {0, 0}], [bar];"),
     FINDING_WRONG_SPACE, "local memory", 717},
    {ONE("cp.async.bulk.tensor.3d.shared::cta.global" SIGNAL " [%r7], [%d5, {0, 0, 0}], [bar];"),
     FINDING_BULK, "box of 3 dimensions; the tensor map has 2", 719},
    {ONE("cp.reduce.async.bulk.tensor.2d.global.shared::cta.min.bulk_group [%d5, {0, 0}], [%r7];"),
     FINDING_BULK, "no .min of elements of type FLOAT32", 719},
    // the box is right and the tensor is longer than its memory
    {ONE(LOAD_2D " [%r7], [%d5, {32, 61}], [bar];"), FINDING_OUT_OF_BOUNDS,
     "reads 128 bytes of global memory", 700},
    {ONE(STORE_2D " [%d5, {0, 63}], [%r7];"), FINDING_OUT_OF_BOUNDS,
     "writes 128 bytes of global memory", 700},
    {ONE("mov.u32 %r0, 24; cp.async.bulk.shared::cta.global" SIGNAL " [%r7], [%d7], %r0, [bar];"),
     FINDING_BULK, "24 bytes", 719},
    {ONE("cp.async.bulk.shared::cta.global" SIGNAL " [%r7], [%d7+8], 16, [bar];"),
     FINDING_MISALIGNED, "global address", 716},
    {ONE("cp.async.bulk.shared::cta.global" SIGNAL " [%r7+8], [%d7], 16, [bar];"),
     FINDING_MISALIGNED, "shared address", 716},
    {ONE("cp.async.bulk.global.shared::cta.bulk_group [%d7+16128], [%r7], 32;"),
     FINDING_OUT_OF_BOUNDS, "writes 32 bytes of global memory", 700},
    {ONE("cp.async.bulk.shared::cluster.global" SIGNAL
         ".multicast::cluster [%r7], [%d7], 16, [bar], %h0;"),
     FINDING_BULK, "multicasts to the CTAs of the mask", 719},
    // more bytes than a phase can owe; fewer than came
    {ONE("mov.u32 %r6, 0; LOOP: " EXPECT("512") LOAD_2D
         " [%r7], [%d5, {0, 0}], [bar];" LOAD_2D
         " [%r7+512], [%d5, {0, 4}], [bar];\nLATER: mbarrier.try_wait.parity.shared::cta.b64 %p0, "
         "[bar], 0; @!%p0 bra LATER;"),
     FINDING_BARRIER, "has got", 719},
    // over its own mbarrier
    {ONE(EXPECT("64") "mov.u32 %r0, bar; and.b32 %r0, %r0, 0xfffffff0;"
                      "cp.async.bulk.shared::cta.global" SIGNAL " [%r0], [%d7], 16, [bar];"),
     FINDING_BARRIER, "where there is a live mbarrier", 719},
    // im2col by name
    {ONE("cp.async.bulk.tensor.3d.shared::cta.global.im2col" SIGNAL
         " [%r7], [%d5, {0, 0, 0}], [bar], {%h0};"),
     FINDING_UNSUPPORTED, "im2col", 719},
    {ONE("cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f32 [%d7], [%r7], 16;"),
     FINDING_UNSUPPORTED, "no such reduction", 719},
    // races
    {ONE("cp.async.bulk.global.shared::cta.bulk_group [%d7], [%r7], 16; cp.async.bulk.commit_group;"
         "st.shared.u32 [%r7], %r0; cp.async.bulk.wait_group 0;"),
     FINDING_RACE, "", 0},
    {ONE("cp.async.bulk.global.shared::cta.bulk_group [%d7], [%r7], 16; cp.async.bulk.commit_group;"
         "cp.async.bulk.wait_group.read 1; st.shared.u32 [%r7], %r0; cp.async.bulk.wait_group 0;"),
     FINDING_RACE, "", 0},
    // written without fence.proxy.async
    {ONE("mov.u32 %r0, 1; st.shared.u32 [%r7], %r0; cp.async.bulk.global.shared::cta.bulk_group "
         "[%d7], [%r7], 16;" GROUP),
     FINDING_RACE, "", 0},
    // read before the mbarrier has been waited for
    {ONE(EXPECT("16") "cp.async.bulk.shared::cta.global" SIGNAL
                      " [%r7], [%d7], 16, [bar]; ld.shared.u32 %r0, [%r7];\n" WAIT("0")),
     FINDING_RACE, "", 0},
    // two copies to one place
    {ONE(EXPECT("32") "cp.async.bulk.shared::cta.global" SIGNAL " [%r7], [%d7], 16, [bar];"
                      "cp.async.bulk.shared::cta.global" SIGNAL " [%r7], [%d7+16], 16, [bar];\n")
         WAIT("0"),
     FINDING_RACE, "", 0},
    // a map that was edited and not acquired; edited in global memory and not released
    {EDIT_MAP ONE(EXPECT("256") LOAD_2D " [%r7], [%d2, {0, 0}], [bar];") WAIT("0"), FINDING_RACE,
     "has not acquired it", 0},
    // exits
    {ONE("cp.async.bulk.global.shared::cta.bulk_group [%d7], [%r7], 16;"), FINDING_LINT,
     "the block ends before this copy is known to have read", 0},
    {ONE("cp.async.bulk.global.shared::cta.bulk_group [%d7], [%r7], 16; "
         "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 1;"),
     FINDING_LINT, "the block ends before this copy is known to have read", 0},
};
enum { BROKEN = sizeof broken / sizeof *broken };

START_TEST(broken_copies) {
    const Broken *b = &broken[_i % BROKEN];
    use_map(TENSOR_F32, 0);
    tensor_size = 16144; // rows 62 and 63 are not all there
    options.async = _i < BROKEN ? ASYNC_TIMED : ASYNC_LATE;
    int code = run(b->body);
    expect_finding(b->kind, b->words);
    ck_assert_int_eq(code, b->code);
}
END_TEST

// Who waits for bytes that nobody sends is told how many came.
START_TEST(deadlock_counts_bytes) {
    use_map(TENSOR_F32, 0);
    options.async = _i ? ASYNC_LATE : ASYNC_TIMED;
    options.checks = CHECK_SYNC;
    ck_assert_int_eq(run(ONE(EXPECT("1024") LOAD_2D " [%r7], [%d5, {0, 0}], [bar];") WAIT("0")),
                     719);
    expect_finding(FINDING_DEADLOCK, "it expects 1024 bytes, and 512 have come");
}
END_TEST

// Shared memory that nothing wrote: what is loaded counts as written, and what is stored is asked.
// (The image is all written; below it lies memory that is not.)
START_TEST(unwritten_source) {
    options.async = orders[_i];
    static const char body[] = ".shared .align 128 .b8 fresh[256];\n" ONE(
        "mov.u32 %r0, fresh; cp.async.bulk.global.shared::cta.bulk_group [%d7], [%r0], 64;" GROUP);
    ck_assert_int_eq(run(body), 0);
    expect_finding(FINDING_UNINITIALISED, "stores 64 bytes of shared memory");
}
END_TEST

// Global memory that nothing wrote: found at the load when strict; else the bytes stay unwritten.
START_TEST(unwritten_global) {
    options.async = orders[_i % ORDERS];
    options.strict = _i < ORDERS;
    // the dump has not been written yet
    static const char body[] = ONE(EXPECT("64") "cp.async.bulk.shared::cta.global" SIGNAL
                                                " [%r7], [%d6], 64, [bar];") WAIT("0");
    ck_assert_int_eq(run(body), 0);
    expect_finding(FINDING_UNINITIALISED,
                   options.strict ? "reads 64 bytes of global memory" : "shared memory");
}
END_TEST

// Without checks right copies are right.
START_TEST(unchecked) {
    options.checks = 0;
    options.async = orders[_i];
    expect_right(run(ONE(EXPECT("512") "cp.async.bulk.shared::cta.global" SIGNAL
                                       " [%r7], [%d7], 512, [bar];") WAIT("0")));
    ck_assert_mem_eq(dumped, tensor, 512);
}
END_TEST

// In which order copies land is left to the seed: both orders occur.
START_TEST(random_orders) {
    bool seen[2] = {false, false};
    options.async = ASYNC_RANDOM;
    options.checks = CHECK_MEM;
    for (uint64_t schedule = 1; schedule < 10; schedule++) {
        options.schedule = schedule;
        run(ONE(EXPECT("32") "cp.async.bulk.shared::cta.global" SIGNAL " [%r7], [%d7], 16, [bar];"
                             "cp.async.bulk.shared::cta.global" SIGNAL
                             " [%r7], [%d7+16], 16, [bar];\n") WAIT("0"));
        ck_assert(!memcmp(dumped, tensor, 16) || !memcmp(dumped, tensor + 16, 16));
        seen[memcmp(dumped, tensor, 16) != 0] = true;
    }
    ck_assert(seen[0] && seen[1]);
}
END_TEST

Suite *suite_bulk(void) {
    Suite *suite = suite_create("bulk");
    TCase *tests = tcase_create("copies");
    tcase_set_timeout(tests, 30);
    tcase_add_checked_fixture(tests, set_up, NULL);
    tcase_add_loop_test(tests, plain_load, 0, WAYS);
    tcase_add_loop_test(tests, plain_store, 0, WAYS);
    tcase_add_loop_test(tests, masked_store, 0, ORDERS);
    tcase_add_loop_test(tests, read_then_reuse, 0, WAYS);
    tcase_add_loop_test(tests, ring_of_stores, 0, WAYS);
    tcase_add_loop_test(tests, plain_reductions, 0, REDUCTIONS);
    tcase_add_loop_test(tests, many_blocks_add, 0, ORDERS);
    tcase_add_loop_test(tests, failed_launch, 0, ORDERS);
    tcase_add_loop_test(tests, half_sums, 0, ORDERS);
    tcase_add_loop_test(tests, tensor_reduction, 0, ORDERS);
    tcase_add_loop_test(tests, copy_to_peer, 0, WAYS);
    tcase_add_loop_test(tests, multicast, 0, WAYS);
    tcase_add_test(tests, multicast_traffic);
    tcase_add_test(tests, prefetch_traffic);
    tcase_add_loop_test(tests, gather_and_scatter, 0, ORDERS);
    tcase_add_loop_test(tests, shifted_base, 0, ORDERS);
    tcase_add_loop_test(tests, edited_map, 0, ORDERS);
    tcase_add_loop_test(tests, broken_copies, 0, 2 * BROKEN);
    tcase_add_loop_test(tests, deadlock_counts_bytes, 0, 2);
    tcase_add_loop_test(tests, unwritten_source, 0, ORDERS);
    tcase_add_loop_test(tests, unwritten_global, 0, 2 * ORDERS);
    tcase_add_loop_test(tests, unchecked, 0, ORDERS);
    tcase_add_test(tests, random_orders);
    suite_add_tcase(suite, tests);
    return suite;
}
