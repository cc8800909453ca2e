// Tensor maps: the rules of cuTensorMapEncodeTiled, their opaque form, and boxes of tensors between
// global and shared memory, placed where an independent formula says.
#include "bulk_kernel.h"

#include <cuda.h>
#include <math.h>
#include <unistd.h>

#include "softgpu/machine/swizzle.h"

Suite *suite_tensor_map(void);

// ---- encoding

typedef struct {
    TensorMapArguments a;
    uint64_t dims[5], strides[4];
    uint32_t box[5], steps[5];
} Shape;

// A right map of bf16: 3 x 40 x 192, box 2 x 8 x 64, 128-byte swizzle.
static Shape right_shape(void) {
    Shape s = {.a = {.type = TENSOR_BF16, .rank = 3, .swizzle = SWIZZLE_128B, .address = 0x1000},
               .dims = {192, 40, 3, 1, 1},
               .strides = {384, 15360, 16, 16},
               .box = {64, 8, 2, 1, 1},
               .steps = {1, 1, 1, 1, 1}};
    return s;
}

static TensorMapVerdict encode_shape(Shape *s, char *why) {
    static uint8_t bytes[TENSOR_MAP_BYTES];
    s->a.dims = s->dims;
    s->a.strides = s->strides;
    s->a.box = s->box;
    s->a.element_strides = s->steps;
    why[0] = 0;
    return tensor_map_encode(&s->a, bytes, why, 200);
}

START_TEST(encode_right) {
    char why[200];
    Shape s = right_shape();
    uint8_t bytes[TENSOR_MAP_BYTES];
    TensorMap m;
    ck_assert_int_eq(encode_shape(&s, why), TENSOR_MAP_FINE);
    ck_assert_int_eq(tensor_map_encode(&s.a, bytes, why, sizeof why), TENSOR_MAP_FINE);
    ck_assert(tensor_map_read(bytes, &m, why, sizeof why));
    ck_assert_uint_eq(m.address, 0x1000);
    ck_assert_uint_eq(m.rank, 3);
    ck_assert_uint_eq(tensor_box_bytes(&m), 64 * 8 * 2 * 2);
    // the address alone can be changed
    ck_assert(tensor_map_replace_address(bytes, 0x2000, why, sizeof why));
    ck_assert(tensor_map_read(bytes, &m, why, sizeof why));
    ck_assert_uint_eq(m.address, 0x2000);
    ck_assert(!tensor_map_replace_address(bytes, 0x2008, why, sizeof why));
    ck_assert_ptr_nonnull(strstr(why, "0x2008"));
}
END_TEST

// Every single changed byte of the fields is noticed.
START_TEST(damage_is_noticed) {
    char why[200];
    Shape s = right_shape();
    uint8_t bytes[TENSOR_MAP_BYTES];
    TensorMap m;
    encode_shape(&s, why);
    ck_assert_int_eq(tensor_map_encode(&s.a, bytes, why, sizeof why), TENSOR_MAP_FINE);
    for (size_t k = 0; k < sizeof(TensorMap); k++) {
        bytes[k] ^= 0x40;
        ck_assert_msg(!tensor_map_read(bytes, &m, why, sizeof why), "byte %zu", k);
        bytes[k] ^= 0x40;
    }
    memset(bytes, 0, sizeof bytes);
    ck_assert(!tensor_map_read(bytes, &m, why, sizeof why));
    ck_assert_ptr_nonnull(strstr(why, "no tensor map"));
}
END_TEST

#define RULE(name, change, verdict, words)                                                         \
    static void name(Shape *s) {                                                                   \
        change;                                                                                    \
    }
#define RULES(X)                                                                                   \
    X(bad_type, s->a.type = 16, INVALID, "tensorDataType is 16")                                   \
    X(rank_0, s->a.rank = 0, INVALID, "tensorRank is 0")                                           \
    X(rank_6, s->a.rank = 6, INVALID, "tensorRank is 6")                                           \
    X(bad_interleave, s->a.interleave = 3, INVALID, "interleave is 3")                             \
    X(interleave_rank, s->a.interleave = 1; s->a.rank = 2, INVALID, "at least 3")                  \
    X(bad_swizzle, s->a.swizzle = 7, INVALID, "swizzle is 7")                                      \
    X(bad_promotion, s->a.promotion = 4, INVALID, "l2Promotion is 4")                              \
    X(bad_fill, s->a.fill = 2, INVALID, "oobFill is 2")                                            \
    X(nan_of_integer, s->a.fill = 1; s->a.type = TENSOR_U16, INVALID, "oobFill asks for NaN")      \
    X(address_8, s->a.address = 0x1008, INVALID, "globalAddress is 0x1008")                        \
    X(address_16, s->a.address = 0x1010; s->a.type = TENSOR_16U6_ALIGN16, INVALID, "of 32")        \
    X(dim_0, s->dims[1] = 0, INVALID, "globalDim[1] is 0")                                         \
    X(dim_large, s->dims[2] = (1ull << 32) + 1, INVALID, "globalDim[2] is 4294967297")             \
    X(dim_128, s->a.type = TENSOR_16U4_ALIGN16, INVALID, "multiple of 128")                        \
    X(dim_2, s->a.type = TENSOR_16U4_ALIGN8; s->dims[0] = 191, INVALID, "multiple of 2")           \
    X(stride_8, s->strides[0] = 392, INVALID, "globalStrides[0] is 392")                           \
    X(stride_large, s->strides[1] = 1ull << 40, INVALID, "below 2^40")                             \
    X(box_0, s->box[1] = 0, INVALID, "boxDim[1] is 0")                                             \
    X(box_257, s->box[1] = 257, INVALID, "boxDim[1] is 257")                                       \
    X(step_0, s->steps[1] = 0, INVALID, "elementStrides[1] is 0")                                  \
    X(step_9, s->steps[2] = 9, INVALID, "elementStrides[2] is 9")                                  \
    X(box_packed, s->a.type = TENSOR_16U6_ALIGN16; s->dims[0] = 256, INVALID, "must be 128")       \
    X(inner_16, s->box[0] = 60, INVALID, "multiple of 16")                                         \
    X(span_128, s->box[0] = 72, INVALID, "spans 128")                                              \
    X(span_64, s->a.swizzle = SWIZZLE_64B, INVALID, "spans 64")                                    \
    X(span_32, s->a.swizzle = SWIZZLE_32B, INVALID, "spans 32")                                    \
    X(interleave_swizzle, s->a.interleave = 2, INVALID, "needs SWIZZLE_32B")                       \
    X(interleave_step, s->a.interleave = 1; s->steps[0] = 0, INVALID, "elementStrides[0] is 0")    \
    X(interleaved, s->a.interleave = 1, NOT_MODELLED, "interleaved layouts")                       \
    X(ftz, s->a.type = TENSOR_F32_FTZ; s->box[0] = 32, NOT_MODELLED, "type FLOAT32_FTZ")           \
    X(tf32_ftz, s->a.type = TENSOR_TF32_FTZ; s->box[0] = 32, NOT_MODELLED, "TFLOAT32_FTZ")         \
    X(packed, s->a.type = TENSOR_16U4_ALIGN8; s->box[0] = 32, NOT_MODELLED, "16U4_ALIGN8B")        \
    X(tf32, s->a.type = TENSOR_TF32; s->box[0] = 32, FINE, "")                                     \
    X(flip, s->a.swizzle = SWIZZLE_128B_ATOM_32B_FLIP_8B, NOT_MODELLED, "FLIP_8B")                 \
    X(step_ignored, s->steps[0] = 0, FINE, "")                                                     \
    X(dim_largest, s->dims[2] = 1ull << 32, FINE, "")                                              \
    X(box_256, s->box[1] = 256, FINE, "")                                                          \
    X(atom_32, s->a.swizzle = SWIZZLE_128B_ATOM_32B, FINE, "")                                     \
    X(nan_of_float, s->a.fill = 1, FINE, "")
RULES(RULE)
#define ROW(name, change, verdict, words) {#name, name, TENSOR_MAP_##verdict, words},
static const struct {
    const char *name;
    void (*change)(Shape *s);
    TensorMapVerdict verdict;
    const char *words;
} rules[] = {RULES(ROW)};
enum { RULE_COUNT = sizeof rules / sizeof *rules };

START_TEST(encode_rules) {
    char why[200];
    Shape s = right_shape();
    rules[_i].change(&s);
    ck_assert_msg(encode_shape(&s, why) == rules[_i].verdict, "%s: %s", rules[_i].name, why);
    ck_assert_msg(strstr(why, rules[_i].words) != NULL, "%s: %s", rules[_i].name, why);
}
END_TEST

// ---- the driver's functions

static char printed[1000]; // on stderr by the last call

static CUresult call_encode(CUtensorMap *to, const Shape *s, const cuuint64_t *sizes) {
    int ends[2], kept = dup(2);
    ck_assert_int_eq(pipe(ends), 0);
    fflush(stderr);
    dup2(ends[1], 2);
    CUresult result =
        cuTensorMapEncodeTiled(to, s->a.type, s->a.rank, (void *)(uintptr_t)s->a.address, sizes,
                               (const cuuint64_t *)s->strides, s->box, s->steps, s->a.interleave,
                               s->a.swizzle, s->a.promotion, s->a.fill);
    fflush(stderr);
    dup2(kept, 2);
    close(ends[1]);
    ssize_t length = read(ends[0], printed, sizeof printed - 1);
    printed[length > 0 ? length : 0] = 0;
    close(ends[0]);
    close(kept);
    return result;
}

// A refusal is one line that names the function, the rule and the value.
static void expect_refusal(CUresult result, CUresult expected, const char *words) {
    ck_assert_int_eq(result, expected);
    ck_assert_msg(strstr(printed, "cuTensorMapEncodeTiled: ") && strstr(printed, words), "%s",
                  printed);
    ck_assert_ptr_eq(strchr(printed, '\n'), printed + strlen(printed) - 1);
}

START_TEST(driver_functions) {
    static _Alignas(128) CUtensorMap maps[2];
    Shape s = right_shape();
    const cuuint64_t *sizes = (const cuuint64_t *)s.dims;
    ck_assert_int_eq(call_encode(maps, &s, sizes), CUDA_SUCCESS);
    ck_assert_str_eq(printed, "");
    ck_assert_int_eq(cuTensorMapReplaceAddress(maps, (void *)0x3000), CUDA_SUCCESS);
    ck_assert_int_eq(cuTensorMapReplaceAddress(maps, (void *)0x3001), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuTensorMapReplaceAddress(maps + 1, (void *)0x3000), CUDA_ERROR_INVALID_VALUE);
    char why[200];
    TensorMap m;
    ck_assert(tensor_map_read(maps, &m, why, sizeof why));
    ck_assert_uint_eq(m.address, 0x3000);

    expect_refusal(call_encode(NULL, &s, sizes), CUDA_ERROR_INVALID_VALUE, "tensorMap is NULL");
    expect_refusal(call_encode((CUtensorMap *)((char *)maps + 8), &s, sizes),
                   CUDA_ERROR_INVALID_VALUE, "aligned to 64");
    expect_refusal(call_encode(maps, &s, NULL), CUDA_ERROR_INVALID_VALUE, "globalDim is NULL");
    s.box[1] = 300;
    expect_refusal(call_encode(maps, &s, sizes), CUDA_ERROR_INVALID_VALUE, "boxDim[1] is 300");
    s.box[1] = 8;
    s.a.interleave = 1;
    expect_refusal(call_encode(maps, &s, sizes), CUDA_ERROR_NOT_SUPPORTED, "interleaved");
}
END_TEST

// ---- swizzles, as the programming guide draws them: chunks of a row change places

static uint32_t drawn(unsigned mode, uint32_t address) {
    uint32_t line = address / 128, in_line = address % 128;
    uint32_t chunk = in_line / 16, byte = in_line % 16;
    switch (mode) {
    case SWIZZLE_32B: chunk = chunk / 2 * 2 + (chunk % 2 + line) % 2; break;
    case SWIZZLE_64B: chunk = chunk / 4 * 4 + ((chunk % 4) ^ (line % 4)); break;
    case SWIZZLE_128B: chunk ^= line % 8; break;
    case SWIZZLE_128B_ATOM_32B: chunk = 2 * ((chunk / 2) ^ (line % 4)) + chunk % 2; break;
    case SWIZZLE_128B_ATOM_64B: chunk = (chunk + 4 * (line % 2)) % 8; break;
    default: break;
    }
    return line * 128 + chunk * 16 + byte;
}

START_TEST(swizzles) {
    for (unsigned mode = 0; mode < SWIZZLE_MODES; mode++) {
        if (!swizzle_known(mode)) continue;
        for (uint32_t address = 0; address < 4096; address++) {
            ck_assert_uint_eq(swizzle(mode, address), drawn(mode, address));
            ck_assert_uint_eq(swizzle(mode, swizzle(mode, address)), address);
            ck_assert_uint_eq(swizzle(mode, address + swizzle_period(mode)),
                              swizzle(mode, address) + swizzle_period(mode));
        }
    }
}
END_TEST

// ---- boxes

static Shape shape;
static int32_t at[5];
static uint32_t base; // of the tile in the image

static uint32_t pick(uint32_t n) {
    return (uint32_t)(noise() >> 20) % n;
}

// Draws a tensor and a box that may lean out of it on every side.
static void draw(void) {
    static const unsigned types[] = {TENSOR_U8,  TENSOR_U16, TENSOR_U32, TENSOR_S64,
                                     TENSOR_F16, TENSOR_F32, TENSOR_F64, TENSOR_BF16};
    static const unsigned modes[] = {0, 0, 0, 1, 2, 3, 3, 4, 6};
    shape = right_shape();
    shape.a.rank = 1 + pick(5);
    shape.a.type = types[pick(8)];
    shape.a.swizzle = modes[pick(9)];
    unsigned element = tensor_element_size(shape.a.type);
    shape.a.fill = (shape.a.type == TENSOR_F16 || shape.a.type >= TENSOR_F32) && pick(2);
    shape.box[0] = (shape.a.swizzle ? swizzle_span(shape.a.swizzle) : 16 * (1 + pick(8))) / element;
    uint64_t bytes = 0;
    do {
        bytes = shape.box[0] * element;
        shape.dims[0] = 1 + pick(3 * shape.box[0]);
        uint64_t extent = shape.dims[0] * element;
        for (unsigned d = 1; d < shape.a.rank; d++) {
            shape.box[d] = 1 + pick(9);
            shape.dims[d] = 1 + pick(7);
            shape.steps[d] = pick(3) ? 1 : 1 + pick(3);
            shape.strides[d - 1] = (extent + 15) / 16 * 16 + 16 * pick(3);
            extent = shape.strides[d - 1] * (shape.dims[d] - 1) + extent;
            bytes *= (shape.box[d] + shape.steps[d] - 1) / shape.steps[d];
        }
        tensor_size = (uint32_t)extent;
    } while (bytes > 16384 || tensor_size > 65536);
    for (unsigned d = 0; d < 5; d++) {
        int32_t reach = (int32_t)(shape.dims[d] + shape.box[d]);
        at[d] = (int32_t)pick((uint32_t)reach + 1) - (int32_t)shape.box[d];
        if (pick(3) == 0) at[d] = 0;
    }
    base = 128 * pick(16);
    char why[200];
    shape.a.address = 0;
    ck_assert_msg(encode_shape(&shape, why) == TENSOR_MAP_FINE, "%s", why);
    map = shape.a;
    encode = true;
}

static uint32_t box_bytes;

// Calls visit(byte of the image, byte of the tensor or -1) for each byte of the box.
static void each_byte(void (*visit)(uint32_t image, int64_t in_tensor, unsigned byte)) {
    unsigned element = tensor_element_size(shape.a.type);
    uint32_t n[5] = {1, 1, 1, 1, 1}, i[5];
    for (unsigned d = 0; d < shape.a.rank; d++)
        n[d] = d ? (shape.box[d] + shape.steps[d] - 1) / shape.steps[d] : shape.box[0];
    uint32_t count = 0;
    for (i[4] = 0; i[4] < n[4]; i[4]++)
        for (i[3] = 0; i[3] < n[3]; i[3]++)
            for (i[2] = 0; i[2] < n[2]; i[2]++)
                for (i[1] = 0; i[1] < n[1]; i[1]++)
                    for (i[0] = 0; i[0] < n[0]; i[0]++, count++) {
                        int64_t offset = 0;
                        for (unsigned d = 0; d < shape.a.rank; d++) {
                            int64_t x = at[d] + (int64_t)i[d] * (d ? shape.steps[d] : 1);
                            if (x < 0 || x >= (int64_t)shape.dims[d]) offset = INT64_MIN / 2;
                            offset += x * (int64_t)(d ? shape.strides[d - 1] : element);
                        }
                        for (unsigned k = 0; k < element; k++)
                            visit(drawn(shape.a.swizzle, base + count * element + k),
                                  offset < 0 ? -1 : offset + k, k);
                    }
    box_bytes = count * element;
}

static uint8_t expected[IMAGE], wanted[TENSOR_MAX];

static void expect_load(uint32_t image, int64_t in_tensor, unsigned byte) {
    unsigned last = tensor_element_size(shape.a.type) - 1;
    uint8_t outside = !shape.a.fill ? 0 : byte == last ? 0x7f : 0xff;
    expected[image] = in_tensor < 0 ? outside : tensor[in_tensor];
}
static void expect_store(uint32_t image, int64_t in_tensor, unsigned byte) {
    (void)byte;
    if (in_tensor >= 0) wanted[in_tensor] = image_byte(image);
}

// "{c0, c1, …}"
static const char *coordinates(void) {
    static char text[200];
    int length = snprintf(text, sizeof text, "{%d", at[0]);
    for (unsigned d = 1; d < shape.a.rank; d++)
        length += snprintf(text + length, sizeof text - (size_t)length, ", %d", at[d]);
    strcat(text, "}");
    return text;
}

static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};

START_TEST(loads) {
    char body[1000];
    for (int k = 0; k < 1000 * _i; k++) noise(); // other shapes in each process
    for (int round = 0; round < 8; round++) {
        draw();
        options.async = orders[round % 4];
        options.schedule = (uint64_t)round;
        for (uint32_t k = 0; k < IMAGE; k++) expected[k] = image_byte(k);
        each_byte(expect_load);
        snprintf(body, sizeof body,
                 "@!%%p7 bra W0; " EXPECT("%u") "cp.async.bulk.tensor.%ud.shared::cluster.global."
                                                "tile.mbarrier::complete_tx::bytes "
                                                "[%%r7+%u], [%%d5, %s], [bar];\n"
                                                "W0: mbarrier.try_wait.parity.shared::cta.b64 "
                                                "%%p0, [bar], 0; @!%%p0 bra W0;\n",
                 box_bytes, shape.a.rank, base, coordinates());
        expect_right(run(body));
        for (uint32_t k = 0; k < IMAGE; k++)
            ck_assert_msg(dumped[k] == expected[k], "round %d, byte %u: %u, not %u\n%s", round, k,
                          dumped[k], expected[k], body);
    }
}
END_TEST

START_TEST(stores) {
    char body[1000];
    for (int k = 0; k < 1000 * _i; k++) noise(); // other shapes in each process
    for (int round = 0; round < 8; round++) {
        draw();
        options.async = orders[round % 4];
        options.schedule = (uint64_t)round;
        memcpy(wanted, tensor, tensor_size);
        each_byte(expect_store);
        snprintf(body, sizeof body,
                 "@!%%p7 bra OVER;\n"
                 "cp.async.bulk.tensor.%ud.global.shared::cta.tile.bulk_group [%%d5, %s], "
                 "[%%r7+%u]; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nOVER:\n",
                 shape.a.rank, coordinates(), base);
        expect_right(run(body));
        for (uint32_t k = 0; k < tensor_size; k++)
            ck_assert_msg(tensor[k] == wanted[k], "round %d, byte %u of the tensor: %u, not %u\n%s",
                          round, k, tensor[k], wanted[k], body);
        for (uint32_t k = 0; k < IMAGE; k++) ck_assert_uint_eq(dumped[k], image_byte(k));
    }
}
END_TEST

// Loads and stores are each other's inverse, whatever the swizzle: a tile goes to another place of
// the tensor. (The two boxes of 64 x 8 bf16 don't meet.)
START_TEST(there_and_back) {
    shape = right_shape();
    char why[200];
    encode_shape(&shape, why);
    map = shape.a;
    encode = true;
    tensor_size = 3 * 15360;
    options.async = orders[_i];
    expect_right(
        run(ONE(EXPECT("2048") "cp.async.bulk.tensor.3d.shared::cta.global.mbarrier::"
                               "complete_tx::bytes [%r7], [%d5, {64, 3, 1}], [bar];"
                               "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], "
                               "0; @!%p0 bra WAIT;"
                               "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group "
                               "[%d5, {0, 20, 0}], [%r7]; cp.async.bulk.commit_group;"
                               "cp.async.bulk.wait_group.read 0;")));
    for (uint32_t z = 0; z < 2; z++)
        for (uint32_t y = 0; y < 8; y++)
            ck_assert_mem_eq(tensor + z * 15360 + (20 + y) * 384,
                             tensor + (1 + z) * 15360 + (3 + y) * 384 + 128, 128);
}
END_TEST

// ---- TFLOAT32: loads round

// To 11 significant bits, ties to even: by arithmetic, not by bits.
static float rounded(float x) {
    if (!isfinite(x) || x == 0) return x;
    int exponent;
    frexpf(x, &exponent);
    if (exponent < -125) exponent = -125; // subnormal numbers have fewer bits
    return (float)ldexp(rint(ldexp(x, 11 - exponent)), exponent - 11);
}

// Boxes of 32 x 4 of a tensor of 40 x 6: ties, carries into the exponent, subnormal numbers,
// infinities, NaNs, and what lies outside.
START_TEST(tf32_loads) {
    static const uint32_t special[] = {
        0x00000000, 0x80000000, 0x3f800fff, 0x3f801000, 0x3f801001, 0x3f803000, 0x3f802fff,
        0x3fffffff, 0x3ffff000, 0xbfffefff, 0x7f7fffff, 0xff7fefff, 0x00001000, 0x00003000,
        0x007fffff, 0x807ff000, 0x7f800000, 0xff800000, 0x7fc00001, 0xff812345,
    };
    enum { SPECIAL = sizeof special / sizeof *special, WIDE = 40, HIGH = 6 };
    shape = right_shape();
    shape.a.type = TENSOR_TF32;
    shape.a.rank = 2;
    shape.dims[0] = WIDE;
    shape.dims[1] = HIGH;
    shape.strides[0] = WIDE * 4;
    shape.box[0] = 32;
    shape.box[1] = 4;
    char why[200];
    ck_assert_msg(encode_shape(&shape, why) == TENSOR_MAP_FINE, "%s", why);
    map = shape.a;
    encode = true;
    tensor_size = WIDE * HIGH * 4;
    for (uint32_t k = 0; k < WIDE * HIGH; k++) {
        uint32_t bits = k < SPECIAL ? special[k] : (uint32_t)noise();
        memcpy(tensor + 4 * k, &bits, 4);
    }
    options.async = orders[_i];
    const int32_t column = 16 * (_i % 2), row = _i / 2 * 4;
    char body[600];
    snprintf(body, sizeof body,
             "mov.u32 %%r1, %d; mov.u32 %%r2, %d;\n"
             "%s",
             column, row,
             ONE(EXPECT("512") "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::"
                               "complete_tx::bytes [%r7], [%d5, {%r1, %r2}], [bar];") WAIT("0"));
    expect_right(run(body));
    for (int32_t y = 0; y < 4; y++)
        for (int32_t x = 0; x < 32; x++) {
            bool inside = column + x < WIDE && row + y < HIGH;
            float value = 0, found;
            if (inside) memcpy(&value, tensor + 4 * ((row + y) * WIDE + column + x), 4);
            float want = rounded(value);
            memcpy(&found, dumped + swizzle(SWIZZLE_128B, (uint32_t)(128 * y + 4 * x)), 4);
            ck_assert_msg(!memcmp(&want, &found, 4), "%a: %a, not %a", (double)value, (double)found,
                          (double)want);
        }
}
END_TEST

// What a store would do isn't known.
START_TEST(tf32_store) {
    shape = right_shape();
    shape.a.type = TENSOR_TF32;
    shape.box[0] = 32;
    char why[200];
    ck_assert_msg(encode_shape(&shape, why) == TENSOR_MAP_FINE, "%s", why);
    map = shape.a;
    encode = true;
    tensor_size = 3 * 15360;
    int code = run(ONE("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%d5, {0, 0, 0}], "
                       "[%r7]; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"));
    expect_finding(FINDING_UNSUPPORTED, "stores through a tensor map of type TFLOAT32");
    ck_assert_int_eq(code, finding_error(FINDING_UNSUPPORTED));
}
END_TEST

// A fence for a map that isn't there: a note, or an error if strict.
START_TEST(fence_without_map) {
    options.strict = _i;
    int code = run("mov.u64 %d2, 0; fence.proxy.tensormap::generic.acquire.gpu [%d2], 128;");
    ck_assert_int_eq(code, _i ? 700 : 0);
    expect_finding(_i ? FINDING_OUT_OF_BOUNDS : FINDING_LINT, "null pointer");
}
END_TEST

Suite *suite_tensor_map(void) {
    Suite *suite = suite_create("tensor_map");
    TCase *tests = tcase_create("maps");
    tcase_set_timeout(tests, 30);
    tcase_add_checked_fixture(tests, set_up, NULL);
    tcase_add_test(tests, encode_right);
    tcase_add_test(tests, damage_is_noticed);
    tcase_add_loop_test(tests, encode_rules, 0, RULE_COUNT);
    tcase_add_test(tests, driver_functions);
    tcase_add_test(tests, swizzles);
    tcase_add_loop_test(tests, loads, 0, 3);
    tcase_add_loop_test(tests, stores, 0, 3);
    tcase_add_loop_test(tests, there_and_back, 0, 4);
    tcase_add_loop_test(tests, tf32_loads, 0, 4);
    tcase_add_test(tests, tf32_store);
    tcase_add_loop_test(tests, fence_without_map, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
