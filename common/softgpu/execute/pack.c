// cvt to and from packed and small formats (PTX ISA 9.7.9.21, 9.7.9.22): f16x2, bf16x2, tf32, fp8,
// fp6, fp4, ue8m0, and cvt.pack. In d, a, b the first source goes to the upper part.
#include "softgpu/execute/execute.h"
#include "softgpu/execute/formats.h"

// ---- f32 pairs to f16x2 and bf16x2

static Flow f16x2_f32(Warp *w, const Insn *i, uint32_t mask) {
    uint16_t upper[WARP_SIZE], lower[WARP_SIZE];
    floats_to_halves(upper, row(w, i->a), WARP_SIZE);
    floats_to_halves(lower, row(w, i->b), WARP_SIZE);
    Lane32 *d = row(w, i->d);
    EACH_LANE(uint32_t, d, mask, lower[l] | (uint32_t)upper[l] << 16);
    return FLOW_NEXT;
}
BINARY(bf16x2_f32, Lane32, LaneF32, LaneF32, float_to_bf16(b) | (uint32_t)float_to_bf16(a) << 16)

// One value. .relu: negative numbers become +0 and NaN stays.
static uint32_t narrow(float x, const Format *f, Rounding rounding, bool relu, bool finite) {
    if (relu && (x < 0 || (x == 0 && signbit(x)))) x = 0;
    return round_to_format(x, f, rounding, finite);
}

// choice: [0] 1 = rn, 2 = rz; [1] relu; [2] satfinite; [3] 1 = f16…, 2 = bf16….
static Flow pair_f32(Warp *w, const Insn *i, uint32_t mask) {
    const LaneF32 *a = row(w, i->a), *b = row(w, i->b);
    const Format *f = i->choice[3] == 2 ? &FORMAT_BF16 : &FORMAT_F16;
    Rounding rounding = i->choice[0] == 2 ? ROUND_ZERO : ROUND_NEAREST;
    bool relu = i->choice[1], finite = i->choice[2];
    uint32_t r[WARP_SIZE];
    for (int l = 0; l < WARP_SIZE; l++)
        r[l] = narrow(b[l], f, rounding, relu, finite) | narrow(a[l], f, rounding, relu, finite)
                                                             << 16;
    put32(w, i->d, r, mask);
    return FLOW_NEXT;
}
static Flow single_f32(Warp *w, const Insn *i, uint32_t mask) {
    const LaneF32 *a = row(w, i->a);
    const Format *f = i->choice[3] == 2 ? &FORMAT_BF16 : &FORMAT_F16;
    Rounding rounding = i->choice[0] == 2 ? ROUND_ZERO : ROUND_NEAREST;
    uint16_t r[WARP_SIZE];
    for (int l = 0; l < WARP_SIZE; l++)
        r[l] = (uint16_t)narrow(a[l], f, rounding, i->choice[1], i->choice[2]);
    put16(w, i->d, r, mask);
    return FLOW_NEXT;
}

// tf32 is an f32 whose lower 13 bits are zero. choice: [0] rn, rz, rna; [1] relu; [2] satfinite.
static Flow tf32(Warp *w, const Insn *i, uint32_t mask) {
    static const Rounding roundings[] = {ROUND_NEAREST, ROUND_NEAREST, ROUND_ZERO, ROUND_AWAY};
    const LaneF32 *a = row(w, i->a);
    uint32_t r[WARP_SIZE];
    for (int l = 0; l < WARP_SIZE; l++)
        r[l] = narrow(a[l], &FORMAT_TF32, roundings[i->choice[0]], i->choice[1], i->choice[2])
               << 13;
    put32(w, i->d, r, mask);
    return FLOW_NEXT;
}
// The common one: to nearest, ties away, which is an addition of half before cutting.
static inline uint32_t tf32_away(uint32_t x) {
    bool number = (x & 0x7fffffffu) < 0x7f800000u;
    bool nan = (x & 0x7fffffffu) > 0x7f800000u;
    return nan ? 0x7fffe000u : number ? (x + 0x1000u) & ~0x1fffu : x;
}
UNARY(tf32_rna, Lane32, Lane32, tf32_away(a))

// ---- the small formats

typedef struct {
    const Format *format;
    uint8_t bits; // that an element takes: 8, or 4 for e2m1
} Small;
static const Small smalls[] = {
    {0},
    {&FORMAT_E4M3, 8}, // in the order of SMALL
    {&FORMAT_E5M2, 8},
    {&FORMAT_E2M1, 4},
    {&FORMAT_E2M3, 8},
    {&FORMAT_E3M2, 8},
};
#define SMALL "e4m3x2|e5m2x2|e2m1x2|e2m3x2|e3m2x2"

static inline uint16_t small_pair(float upper, float lower, const Small *s, bool relu) {
    uint32_t u = narrow(upper, s->format, ROUND_NEAREST, relu, true);
    uint32_t v = narrow(lower, s->format, ROUND_NEAREST, relu, true);
    return (uint16_t)(u << s->bits | v);
}
// From two f32. choice: [0] rn, [1] satfinite, [2] relu, [3] format.
static Flow small_f32(Warp *w, const Insn *i, uint32_t mask) {
    const LaneF32 *a = row(w, i->a), *b = row(w, i->b);
    const Small *s = &smalls[i->choice[3]];
    uint16_t r[WARP_SIZE];
    for (int l = 0; l < WARP_SIZE; l++) r[l] = small_pair(a[l], b[l], s, i->choice[2]);
    put16(w, i->d, r, mask);
    return FLOW_NEXT;
}
// From f16x2 or bf16x2 (choice[4]).
static Flow small_halves(Warp *w, const Insn *i, uint32_t mask) {
    const Lane16 *a = row(w, i->a);
    const Small *s = &smalls[i->choice[3]];
    bool bf16 = i->choice[4] == 2;
    uint16_t r[WARP_SIZE];
    for (int l = 0; l < WARP_SIZE; l++) {
        uint16_t lower = a[2 * l], upper = a[2 * l + 1];
        r[l] = bf16 ? small_pair(bf16_to_float(upper), bf16_to_float(lower), s, i->choice[2])
                    : small_pair(half_to_float(upper), half_to_float(lower), s, i->choice[2]);
    }
    put16(w, i->d, r, mask);
    return FLOW_NEXT;
}
// To f16x2: exact. choice: [0] rn, [1] relu, [2] f16x2, [3] format.
static Flow halves_small(Warp *w, const Insn *i, uint32_t mask) {
    const Lane16 *a = row(w, i->a);
    const Small *s = &smalls[i->choice[3]];
    uint32_t r[WARP_SIZE], element = s->bits == 4 ? 0xf : 0xff;
    for (int l = 0; l < WARP_SIZE; l++) {
        float lower = (float)format_value(a[l] & element, s->format);
        float upper = (float)format_value(a[l] >> s->bits & element, s->format);
        r[l] = narrow(lower, &FORMAT_F16, ROUND_NEAREST, i->choice[1], false) |
               narrow(upper, &FORMAT_F16, ROUND_NEAREST, i->choice[1], false) << 16;
    }
    put32(w, i->d, r, mask);
    return FLOW_NEXT;
}

// ---- ue8m0: the exponent alone. Code e means 2^(e - 127); 255 is NaN.

static uint32_t ue8m0_of(float x, bool up, bool finite) {
    uint32_t magnitude = float_bits(x) & 0x7fffffffu, exponent = magnitude >> 23;
    if (magnitude > 0x7f800000u) return 0xff;
    if (magnitude == 0x7f800000u) return finite ? 0xfe : 0xff;
    // a subnormal rounds up to 2^-126 only above 2^-127, which is code 0
    bool more = exponent ? magnitude & 0x7fffffu : magnitude > 0x400000u;
    exponent += up && more;
    return exponent == 255 && finite ? 254 : exponent;
}
// choice: [0] 1 = rz, 2 = rp; [1] satfinite.
static Flow ue8m0_f32(Warp *w, const Insn *i, uint32_t mask) {
    const LaneF32 *a = row(w, i->a), *b = row(w, i->b);
    bool up = i->choice[0] == 2, finite = i->choice[1];
    uint16_t r[WARP_SIZE];
    for (int l = 0; l < WARP_SIZE; l++)
        r[l] = (uint16_t)(ue8m0_of(a[l], up, finite) << 8 | ue8m0_of(b[l], up, finite));
    put16(w, i->d, r, mask);
    return FLOW_NEXT;
}
static Flow ue8m0_bf16x2(Warp *w, const Insn *i, uint32_t mask) {
    const Lane16 *a = row(w, i->a);
    bool up = i->choice[0] == 2, finite = i->choice[1];
    uint16_t r[WARP_SIZE];
    for (int l = 0; l < WARP_SIZE; l++)
        r[l] = (uint16_t)(ue8m0_of(bf16_to_float(a[2 * l + 1]), up, finite) << 8 |
                          ue8m0_of(bf16_to_float(a[2 * l]), up, finite));
    put16(w, i->d, r, mask);
    return FLOW_NEXT;
}
static inline uint32_t bf16_of_ue8m0(uint32_t code) {
    if (code == 255) return 0x7fff;
    return code ? code << 7 : 0x40; // 2^-127 is a subnormal bf16
}
UNARY(bf16x2_ue8m0, Lane32, Lane16, bf16_of_ue8m0(a & 0xff) | bf16_of_ue8m0(a >> 8) << 16)

// ---- cvt.pack: saturated integers side by side

typedef enum {
    PACK_U16 = 1,
    PACK_S16,
    PACK_U8,
    PACK_S8,
    PACK_U4,
    PACK_S4,
    PACK_U2,
    PACK_S2
} PackType;
static inline uint32_t pack_one(int32_t x, int bits, bool is_signed) {
    int32_t low = is_signed ? -(1 << (bits - 1)) : 0;
    int32_t high = is_signed ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
    int32_t v = x < low ? low : x > high ? high : x;
    return (uint32_t)v & ((1u << bits) - 1);
}
// choice: [0] pack, [1] sat, [2] type. With c, the old content moves up by two elements.
static Flow pack(Warp *w, const Insn *i, uint32_t mask) {
    static const uint8_t sizes[] = {0, 16, 16, 8, 8, 4, 4, 2, 2};
    const LaneS32 *a = row(w, i->a), *b = row(w, i->b);
    const Lane32 *c = i->c == ROW_NONE ? NULL : row(w, i->c);
    int bits = sizes[i->choice[2]];
    bool is_signed = i->choice[2] % 2 == 0;
    uint32_t r[WARP_SIZE];
    for (int l = 0; l < WARP_SIZE; l++)
        r[l] = (c ? c[l] << (2 * bits) : 0) | pack_one(a[l], bits, is_signed) << bits |
               pack_one(b[l], bits, is_signed);
    put32(w, i->d, r, mask);
    return FLOW_NEXT;
}

const Form pack_forms[] = {
    {"cvt", "rn f16x2 f32", "d32 a32 b32", f16x2_f32, PIPE_CONVERT},
    {"cvt", "rn bf16x2 f32", "d32 a32 b32", bf16x2_f32, PIPE_CONVERT},
    {"cvt", "rn|rz relu? satfinite? f16x2|bf16x2 f32", "d32 a32 b32", pair_f32, PIPE_CONVERT},
    {"cvt", "rn|rz relu? satfinite? f16|bf16 f32", "d16 a32", single_f32, PIPE_CONVERT},
    {"cvt", "rna tf32 f32", "d32 a32", tf32_rna, PIPE_CONVERT},
    {"cvt", "rn|rz|rna relu? satfinite? tf32 f32", "d32 a32", tf32, PIPE_CONVERT},
    {"cvt", "rn satfinite relu? " SMALL " f32", "d16 a32 b32", small_f32, PIPE_CONVERT},
    {"cvt", "rn satfinite relu? " SMALL " f16x2|bf16x2", "d16 a32", small_halves, PIPE_CONVERT},
    {"cvt", "rn relu? f16x2 " SMALL, "d32 a16", halves_small, PIPE_CONVERT},
    {"cvt", "rz|rp satfinite? ue8m0x2 f32", "d16 a32 b32", ue8m0_f32, PIPE_CONVERT},
    {"cvt", "rz|rp satfinite? ue8m0x2 bf16x2", "d16 a32", ue8m0_bf16x2, PIPE_CONVERT},
    {"cvt", "rn bf16x2 ue8m0x2", "d32 a16", bf16x2_ue8m0, PIPE_CONVERT},
    {"cvt", "pack sat u16|s16 s32", "d32 a32 b32", pack, PIPE_CONVERT},
    {"cvt", "pack sat _|__|u8|s8|u4|s4|u2|s2 s32 b32", "d32 a32 b32 c32", pack, PIPE_CONVERT},
    {0},
};
