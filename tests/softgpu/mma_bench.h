// For tests of mma.sync: where its elements live, by the formulas of the PTX ISA (written out here
// shape by shape), the forms, and a bench with one instruction.
#ifndef SOFTGPU_TEST_MMA_BENCH_H
#define SOFTGPU_TEST_MMA_BENCH_H

#include <stdlib.h>

#include "lanes.h"

#include "softgpu/execute/formats.h"

// ---- the layouts, as PTX states them: element i of a lane

typedef struct {
    int row, column;
} Position;

enum { KIND_16, KIND_TF32, KIND_8, KIND_4, KIND_1, KIND_64 };

// A of 16 rows whose lanes hold `run` neighbours in k at a time; k goes on at `half` with the second
// half of the elements.
static inline Position a_by_runs(int lane, int i, int run, int half) {
    int group = lane >> 2, thread = lane % 4;
    bool upper = (i < run) || (i >= 2 * run && i < 3 * run);
    return (Position){upper ? group : group + 8,
                      thread * run + i % run + (i >= 2 * run ? half : 0)};
}

static inline Position a_position(int kind, int m, int k, int lane, int i) {
    int group = lane >> 2, thread = lane % 4;
    switch (kind) {
    case KIND_16: return a_by_runs(lane, i, 2, 8);
    case KIND_TF32:
        if (k == 4) return (Position){i == 0 ? group : group + 8, thread};
        return (Position){i == 0 || i == 2 ? group : group + 8, i < 2 ? thread : thread + 4};
    case KIND_8:
        if (m == 8) return (Position){group, thread * 4 + i};
        return a_by_runs(lane, i, 4, 16);
    case KIND_4:
        if (m == 8) return (Position){group, thread * 8 + i};
        return a_by_runs(lane, i, 8, 32);
    case KIND_1:
        if (m == 8) return (Position){group, thread * 32 + i};
        return a_by_runs(lane, i, 32, 128);
    default:
        if (m == 8) return (Position){group, thread};
        return (Position){i % 2 == 0 ? group : group + 8, thread + (i >> 1) * 4};
    }
}

static inline Position b_position(int kind, int lane, int i) {
    int group = lane >> 2, thread = lane % 4;
    static const int runs[] = {2, 1, 4, 8, 32, 1};
    int run = runs[kind];
    return (Position){thread * run + i % run + i / run * 4 * run, group};
}

static inline Position c_position(int lane, int i) {
    return (Position){i < 2 ? lane >> 2 : (lane >> 2) + 8, (lane % 4) * 2 + (i & 1)};
}

// ---- numbers in registers

// Reads or writes element i of a fragment whose registers begin at rows[at].
static inline uint64_t element_get(Bench *b, const Insn *insn, int at, int i, int bits, int lane) {
    if (bits == 64) return lane_get(b, insn->rows[at + i], 8, lane);
    int per = 32 / bits;
    uint64_t word = lane_get(b, insn->rows[at + i / per], 4, lane);
    return word >> i % per * bits & ((1ull << bits) - 1);
}
static inline void element_set(Bench *b, const Insn *insn, int at, int i, int bits, int lane,
                               uint64_t value) {
    if (bits == 64) {
        lane_set(b, insn->rows[at + i], 8, lane, value);
        return;
    }
    int per = 32 / bits;
    uint64_t mask = ((1ull << bits) - 1) << i % per * bits;
    uint64_t word = lane_get(b, insn->rows[at + i / per], 4, lane);
    word = (word & ~mask) | (value << i % per * bits & mask);
    lane_set(b, insn->rows[at + i / per], 4, lane, word);
}

static inline uint64_t encode(const char *type, double x) {
    if (!strcmp(type, "f16")) return round_to_format(x, &FORMAT_F16, ROUND_NEAREST, false);
    if (!strcmp(type, "bf16")) return round_to_format(x, &FORMAT_BF16, ROUND_NEAREST, false);
    if (!strcmp(type, "e4m3")) return round_to_format(x, &FORMAT_E4M3, ROUND_NEAREST, false);
    if (!strcmp(type, "e5m2")) return round_to_format(x, &FORMAT_E5M2, ROUND_NEAREST, false);
    if (!strcmp(type, "tf32") || !strcmp(type, "f32")) return float_bits((float)x);
    if (!strcmp(type, "f64")) return double_bits(x);
    return (uint64_t)(int64_t)x;
}

static inline double decode(const char *type, uint64_t code) {
    if (!strcmp(type, "f16")) return format_value((uint32_t)code, &FORMAT_F16);
    if (!strcmp(type, "f32")) return bits_float((uint32_t)code);
    if (!strcmp(type, "f64")) return bits_double(code);
    return (int32_t)code;
}

static inline int bits_of(const char *type) {
    static const struct {
        const char *name;
        int bits;
    } types[] = {{"f16", 16}, {"bf16", 16}, {"tf32", 32}, {"e4m3", 8}, {"e5m2", 8},
                 {"s8", 8},   {"u8", 8},    {"s4", 4},    {"u4", 4},   {"b1", 1},
                 {"f32", 32}, {"s32", 32},  {"f64", 64}};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (!strcmp(types[k].name, type)) return types[k].bits;
    ck_abort_msg("no type %s", type);
    return 0;
}

// A small number that the type holds exactly.
static inline double small(const char *type) {
    int range = !strcmp(type, "b1") ? 2 : strchr(type, '4') == type + 1 ? 8 : 15;
    double x = (double)(noise() % (uint64_t)range);
    if (type[0] == 'u' || type[0] == 'b') return type[0] == 'u' && range == 8 ? x * 2 : x;
    return x - range / 2;
}

// ---- mma.sync

typedef struct {
    int kind, m, k;
    const char *before, *d, *a, *b, *c, *after;
} MmaForm;

static const MmaForm forms[] = {
    {KIND_16, 16, 16, "", "f32", "f16", "f16", "f32", ""},
    {KIND_16, 16, 16, "", "f16", "f16", "f16", "f16", ""},
    {KIND_16, 16, 16, "", "f32", "bf16", "bf16", "f32", ""},
    {KIND_16, 16, 8, "", "f32", "f16", "f16", "f32", ""},
    {KIND_16, 16, 8, "", "f16", "f16", "f16", "f16", ""},
    {KIND_16, 16, 8, "", "f32", "bf16", "bf16", "f32", ""},
    {KIND_TF32, 16, 4, "", "f32", "tf32", "tf32", "f32", ""},
    {KIND_TF32, 16, 8, "", "f32", "tf32", "tf32", "f32", ""},
    {KIND_8, 16, 16, "", "f32", "e4m3", "e5m2", "f32", ""},
    {KIND_8, 16, 32, "", "f32", "e5m2", "e4m3", "f32", ""},
    {KIND_8, 16, 32, "", "f16", "e4m3", "e4m3", "f16", ""},
    {KIND_8, 8, 16, "", "s32", "s8", "u8", "s32", ""},
    {KIND_8, 16, 16, "", "s32", "u8", "s8", "s32", ""},
    {KIND_8, 16, 32, "satfinite.", "s32", "s8", "s8", "s32", ""},
    {KIND_8, 16, 32, "", "s32", "u8", "u8", "s32", ""},
    {KIND_4, 8, 32, "", "s32", "s4", "u4", "s32", ""},
    {KIND_4, 16, 32, "", "s32", "u4", "s4", "s32", ""},
    {KIND_4, 16, 64, "satfinite.", "s32", "s4", "s4", "s32", ""},
    {KIND_1, 8, 128, "", "s32", "b1", "b1", "s32", ".xor.popc"},
    {KIND_1, 16, 128, "", "s32", "b1", "b1", "s32", ".and.popc"},
    {KIND_1, 16, 256, "", "s32", "b1", "b1", "s32", ".xor.popc"},
    {KIND_64, 8, 4, "", "f64", "f64", "f64", "f64", ""},
    {KIND_64, 16, 4, "", "f64", "f64", "f64", "f64", ""},
    {KIND_64, 16, 8, "", "f64", "f64", "f64", "f64", ""},
    {KIND_64, 16, 16, "", "f64", "f64", "f64", "f64", ""},
};
enum { FORM_COUNT = sizeof forms / sizeof *forms };

// "{%x0, %x1, …}"
static inline int list(char *text, const char *name, int count) {
    int at = sprintf(text, "{");
    for (int k = 0; k < count; k++) at += sprintf(text + at, "%s%s%d", k ? ", " : "", name, k);
    return at + sprintf(text + at, "}");
}

// A bench with one mma instruction: element counts per lane, and where each operand's registers are.
typedef struct {
    Bench *bench;
    const Insn *insn;
    int a_count, b_count, c_count, a_at, b_at, c_at, d_registers;
} Mma;

static inline Mma open_mma(const MmaForm *f, unsigned checks) {
    Mma x = {.a_count = f->m * f->k / 32, .b_count = f->k * 8 / 32, .c_count = f->m * 8 / 32};
    bool wide = f->kind == KIND_64;
    int a = x.a_count * bits_of(f->a) / (wide ? 64 : 32);
    int b = x.b_count * bits_of(f->b) / (wide ? 64 : 32);
    int c = x.c_count * bits_of(f->c) / (wide ? 64 : 32);
    char text[128], body[1024];
    snprintf(text, sizeof text, "mma.sync.aligned.m%dn8k%d.row.col.%s%s.%s.%s.%s%s", f->m, f->k,
             f->before, f->d, f->a, f->b, f->c, f->after);
    const char *size = wide ? "b64" : "b32";
    int at = sprintf(body, ".reg .%s %%d<8>, %%a<8>, %%b<8>, %%c<8>; %s ", size, text);
    at += list(body + at, "%d", c);
    at += sprintf(body + at, ", ");
    at += list(body + at, "%a", a);
    at += sprintf(body + at, ", ");
    at += list(body + at, "%b", b);
    at += sprintf(body + at, ", ");
    at += list(body + at, "%c", c);
    sprintf(body + at, ";");
    x.bench = bench_open(body, checks);
    x.insn = bench_insn(x.bench, text);
    ck_assert_msg(x.insn->run != trap_unsupported, "%s: %s", text, (const char *)x.insn->extra);
    ck_assert_int_eq(x.insn->row_count, a + b + 2 * c);
    x.a_at = c, x.b_at = c + a, x.c_at = c + a + b, x.d_registers = c;
    return x;
}

typedef struct {
    double a[16][256], b[256][8], c[16][8], d[16][8];
} Matrices;

static inline void put_matrices(Mma *x, const MmaForm *f, const Matrices *in) {
    for (int l = 0; l < 32; l++) {
        for (int i = 0; i < x->a_count; i++) {
            Position at = a_position(f->kind, f->m, f->k, l, i);
            element_set(x->bench, x->insn, x->a_at, i, bits_of(f->a), l,
                        encode(f->a, in->a[at.row][at.column]));
        }
        for (int i = 0; i < x->b_count; i++) {
            Position at = b_position(f->kind, l, i);
            element_set(x->bench, x->insn, x->b_at, i, bits_of(f->b), l,
                        encode(f->b, in->b[at.row][at.column]));
        }
        for (int i = 0; i < x->c_count; i++) {
            Position at = c_position(l, i);
            element_set(x->bench, x->insn, x->c_at, i, bits_of(f->c), l,
                        encode(f->c, in->c[at.row][at.column]));
        }
    }
}

static inline void get_result(Mma *x, const MmaForm *f, Matrices *out) {
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < x->c_count; i++) {
            Position at = c_position(l, i);
            out->d[at.row][at.column] =
                decode(f->d, element_get(x->bench, x->insn, 0, i, bits_of(f->d), l));
        }
}

#endif
