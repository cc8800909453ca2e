// Instruction descriptors of tcgen05.mma (PTX ISA 9.7.16.4.2): bit by bit, and what follows from
// them: shapes, the places of accumulators, operands.
//
//   bits    f16 tf32 f8f6f4 i8      mxf8f6f4               mxf4 mxf4nvf4
//   0-1     which metadata          0                      0
//   2       sparse A                the same               the same
//   3       saturate (i8)           0                      0
//   4-5     D: f16 f32 s32          which scale of B       which scale of B
//   6       0                       0                      0
//   7-9     type of A               type of A              1 (E2M1)
//   10-12   type of B               type of B              1 (E2M1)
//   13, 14  negate A, B             the same               the same
//   15, 16  A, B MN-major           the same               0
//   17-22   N / 8                   the same               the same
//   23      0                       scales: 1 UE8M0        1 UE8M0, 0 UE4M3
//   24-28   M / 16                  the same               the same
//   29-31   0; .ws: 30-31 shift     29-30 scale of A       29-30 scale of A; 31 K = 96 (sm_103)
#include <stdarg.h>
#include <stdio.h>

#include "softgpu/execute/tcgen05.h"

typedef struct {
    char *text;
    size_t size;
} Why;

static bool no(const Why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool no(const Why *why, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, why->size, format, arguments);
    va_end(arguments);
    return false;
}

static bool is_scaled(MmaKind k) {
    return k >= KIND_MXF8F6F4;
}
static bool is_fp4(MmaKind k) {
    return k >= KIND_MXF4;
}

// The element type that a code means. False if none.
static bool type_of(MmaKind kind, uint32_t code, MmaElement *e) {
    static const MmaElement floats8[] = {MMA_E4M3, MMA_E5M2, MMA_F16 /* none */,
                                         MMA_E2M3, MMA_E3M2, MMA_E2M1};
    switch (kind) {
    case KIND_F16: *e = code ? MMA_BF16 : MMA_F16; return code <= 1;
    case KIND_TF32: *e = MMA_TF32; return code == 2;
    case KIND_I8: *e = code ? MMA_S8 : MMA_U8; return code <= 1;
    case KIND_F8F6F4:
    case KIND_MXF8F6F4:
        if (code > 5 || code == 2) return false;
        *e = floats8[code];
        return true;
    case KIND_MXF4:
    case KIND_MXF4NVF4: break;
    }
    *e = MMA_E2M1_PACKED;
    return code == 1;
}

static const char *types_of(MmaKind kind) {
    switch (kind) {
    case KIND_F16: return "0 f16, 1 bf16";
    case KIND_TF32: return "2 tf32";
    case KIND_I8: return "0 u8, 1 s8";
    case KIND_MXF4:
    case KIND_MXF4NVF4: return "1 e2m1";
    default: return "0 e4m3, 1 e5m2, 3 e2m3, 4 e3m2, 5 e2m1";
    }
}

static bool result_of(const MmaForm *f, uint32_t code, MmaShape *s, const Why *why) {
    s->d = (MmaResult)code;
    switch (f->kind) {
    case KIND_F16:
        if (s->d == RESULT_F16 && (s->a == MMA_BF16 || s->b == MMA_BF16))
            return no(why, "bits 4-5 (type of D) are 0, f16, which bf16 operands can't have");
        break;
    case KIND_F8F6F4: break;
    case KIND_TF32:
        if (s->d != RESULT_F32)
            return no(why, "bits 4-5 (type of D) are %u: tf32 has 1, f32", code);
        return true;
    case KIND_I8:
        if (s->d != RESULT_S32) return no(why, "bits 4-5 (type of D) are %u: i8 has 2, s32", code);
        return true;
    default: return true;
    }
    if (code > 1) return no(why, "bits 4-5 (type of D) are %u: 0 is f16, 1 f32", code);
    return true;
}

static bool check_sparsity(const MmaForm *f, uint32_t bits, MmaShape *s, const Why *why) {
    s->selector = bits & 3;
    if (!f->sparse && bits & 7)
        return no(why, "bits 0-2 (sparsity) are %u, but it is no .sp instruction", bits & 7);
    if (f->sparse && !(bits >> 2 & 1))
        return no(why, "bit 2 (sparse) is 0, but it is an .sp instruction");
    bool selects = f->kind == KIND_F16 || f->kind == KIND_TF32;
    if (s->selector && !selects)
        return no(why, "bits 0-1 (sparsity selector) are %u, which only f16 and tf32 have",
                  s->selector);
    if (s->selector > 1)
        return no(why,
                  "bits 0-1 (sparsity selector) are %u: what 2 and 3 select is not known; 0 and 1 "
                  "are the columns of the pair that the metadata's address names",
                  s->selector);
    return true;
}

// Bits that must be zero, and the fields of scales.
static bool check_rest(const MmaForm *f, uint32_t bits, MmaShape *s, const Why *why) {
    if (!check_sparsity(f, bits, s, why)) return false;
    if (bits >> 6 & 1) return no(why, "bit 6 is set, which must be 0");
    s->saturate = bits >> 3 & 1;
    if (s->saturate && f->kind != KIND_I8)
        return no(why, "bit 3 (saturate) is set, which only integers have");
    if (f->kind == KIND_I8 && (s->negate_a || s->negate_b))
        return no(why, "bits 13-14 (negate) are set, which only floats have");
    if (!is_scaled(f->kind)) {
        if (bits >> 23 & 1) return no(why, "bit 23 is set, which must be 0");
        if (bits >> 29 & 1) return no(why, "bit 29 is set, which must be 0");
        if (bits >> 30 && !f->stationary)
            return no(why, "bits 30-31 (shift) are %u, which only .ws has", bits >> 30);
        if (bits >> 30)
            return no(why, "bits 30-31 (shift) are %u: shifts are not built", bits >> 30);
        return true;
    }
    if (bits >> 31)
        return no(why, is_fp4(f->kind) ? "bit 31 (K = 96) is set, which sm_100 doesn't have"
                                       : "bit 31 is set, which must be 0");
    if (is_fp4(f->kind) && (s->a_mn_major || s->b_mn_major))
        return no(why, "bits 15-16 (MN-major) are set: 4-bit operands are K-major");
    s->scales_e8 = bits >> 23 & 1;
    s->id_b = bits >> 4 & 3;
    s->id_a = bits >> 29 & 3;
    if (!s->scales_e8 && f->kind != KIND_MXF4NVF4)
        return no(why, "bit 23 (type of the scales) is 0, UE4M3, which only mxf4nvf4 has");
    if (!s->scales_e8 && f->block == 32)
        return no(why, "bit 23 (type of the scales) is 0, UE4M3, but with blocks of 32 they are "
                       "UE8M0");
    int scales = s->k / s->scale_block, last = 4 - scales;
    if (s->id_a > last || s->id_a % scales || s->id_b > last || s->id_b % scales)
        return no(why,
                  "the scales' ids (bits 29-30: %u, bits 4-5: %u) don't leave room for the %d "
                  "bytes that a row needs",
                  s->id_a, s->id_b, scales);
    return true;
}

// What M is instead, or NULL.
static const char *rows_fault(const MmaForm *f, int m) {
    if (f->stationary) return m == 32 || m == 64 || m == 128 ? NULL : ".ws has 32, 64, 128";
    if (f->group == 2 && m == 128 && f->sparse && is_scaled(f->kind))
        return "with scales and a sparse A .cta_group::2 has 256";
    if (f->group == 2 && m == 128 && f->sparse && f->shifts_a)
        return "which lanes .ashift moves of a sparse A that takes half of them is not known";
    if (f->group == 2) return m == 128 || m == 256 ? NULL : ".cta_group::2 has 128, 256";
    if (m == 128) return NULL;
    if (is_scaled(f->kind)) return "with scales it is 128";
    if (f->shifts_a) return "with .ashift it is 128";
    return m == 64 ? NULL : ".cta_group::1 has 64, 128";
}

static bool check_size(const MmaForm *f, const MmaShape *s, const Why *why) {
    bool n_fits;
    int step = f->group == 2 ? 16 : 8;
    if (f->stationary) {
        n_fits = s->n == 64 || s->n == 128 || (s->n == 256 && !f->sparse);
    } else {
        if (f->kind == KIND_I8) step = f->group == 2 ? 32 : s->n > 32 ? 16 : 8;
        bool bytes = mma_bits(s->b) == 8 && s->b_mn_major;
        if (bytes && step < (f->group == 2 ? 32 : 16)) step = f->group == 2 ? 32 : 16;
        n_fits = s->n >= step && s->n <= 256 && s->n % step == 0;
    }
    const char *fault = rows_fault(f, s->m);
    if (fault) return no(why, "M = %d (bits 24-28): %s", s->m, fault);
    if (!n_fits && f->stationary)
        return no(why, "N = %d (bits 17-22): .ws has 64, 128%s", s->n,
                  f->sparse ? ", and with .sp no more" : ", 256");
    if (!n_fits)
        return no(why, "N = %d (bits 17-22): it goes up to 256 in steps of %d here", s->n, step);
    return true;
}

bool mma_shape(const MmaForm *f, uint32_t bits, MmaShape *s, char *text, size_t size) {
    static const uint8_t depth[] = {16, 8, 32, 32, 32, 64, 64};
    const Why why = {text, size};
    uint32_t a = bits >> 7 & 7, b = bits >> 10 & 7;
    int times = f->sparse ? 2 : 1;
    *s = (MmaShape){.m = (int)(bits >> 24 & 31) * 16,
                    .n = (int)(bits >> 17 & 63) * 8,
                    .k = times * depth[f->kind],
                    .a_k = depth[f->kind],
                    .scale_block = times * f->block,
                    .d = RESULT_F32,
                    .negate_a = bits >> 13 & 1,
                    .negate_b = bits >> 14 & 1,
                    .a_mn_major = bits >> 15 & 1,
                    .b_mn_major = bits >> 16 & 1};
    if (!type_of(f->kind, a, &s->a))
        return no(&why, "bits 7-9 (type of A) are %u; this kind has %s", a, types_of(f->kind));
    if (!type_of(f->kind, b, &s->b))
        return no(&why, "bits 10-12 (type of B) are %u; this kind has %s", b, types_of(f->kind));
    if (f->a_tensor && s->a_mn_major)
        return no(&why, "bit 15 (A MN-major) is set, but A in tensor memory is K-major");
    if (!is_scaled(f->kind) && !result_of(f, bits >> 4 & 3, s, &why)) return false;
    return check_rest(f, bits, s, &why) && check_size(f, s, &why);
}

Accumulator mma_accumulator(const MmaForm *f, const MmaShape *s, uint32_t address) {
    Accumulator d = {.rows = s->m / f->group, .row_lanes = 16, .fold = s->n, .copies = 1};
    if (f->stationary && s->m < 128) {
        d.copies = 128 / s->m;
        d.fold_lanes = s->m;
    } else if (f->group == 2 && s->m == 128 && !f->sparse) {
        d.copies = 2;
        d.fold_lanes = 64;
    } else if (d.rows == 64) {
        d.row_lanes = 32;
        d.first = (int)tmem_lane(address);
    }
    d.fold = s->n / d.copies;
    return d;
}

SharedOperand mma_operand(const MmaForm *f, const MmaShape *s, bool is_a, uint64_t descriptor) {
    int bits = mma_bits(is_a ? s->a : s->b), depth = is_a ? s->a_k : s->k;
    return (SharedOperand){.descriptor = descriptor_blackwell(descriptor),
                           .mn_major = is_a ? s->a_mn_major : s->b_mn_major,
                           .element = (uint8_t)(bits < 8 ? 1 : bits / 8),
                           .rows = (uint16_t)((is_a ? s->m : s->n) / f->group),
                           .depth = (uint8_t)(bits < 8 ? depth / 2 : depth)};
}
