// Matrix instructions: where mma.sync's elements live, by the formulas of the PTX ISA (written out
// here shape by shape), and what the instructions compute. ldmatrix and its kin are in
// test_matrix_move.c.
#include <stdlib.h>

#include "lanes.h"

#include "softgpu/execute/formats.h"

Suite *suite_matrix(void);

// ---- the layouts, as PTX states them: element i of a lane

typedef struct {
    int row, column;
} Position;

enum { KIND_16, KIND_TF32, KIND_8, KIND_4, KIND_1, KIND_64 };

// A of 16 rows whose lanes hold `run` neighbours in k at a time; k goes on at `half` with the second
// half of the elements.
static Position a_by_runs(int lane, int i, int run, int half) {
    int group = lane >> 2, thread = lane % 4;
    bool upper = (i < run) || (i >= 2 * run && i < 3 * run);
    return (Position){upper ? group : group + 8,
                      thread * run + i % run + (i >= 2 * run ? half : 0)};
}

static Position a_position(int kind, int m, int k, int lane, int i) {
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

static Position b_position(int kind, int lane, int i) {
    int group = lane >> 2, thread = lane % 4;
    static const int runs[] = {2, 1, 4, 8, 32, 1};
    int run = runs[kind];
    return (Position){thread * run + i % run + i / run * 4 * run, group};
}

static Position c_position(int lane, int i) {
    return (Position){i < 2 ? lane >> 2 : (lane >> 2) + 8, (lane % 4) * 2 + (i & 1)};
}

// ---- numbers in registers

// Reads or writes element i of a fragment whose registers begin at rows[at].
static uint64_t element_get(Bench *b, const Insn *insn, int at, int i, int bits, int lane) {
    if (bits == 64) return lane_get(b, insn->rows[at + i], 8, lane);
    int per = 32 / bits;
    uint64_t word = lane_get(b, insn->rows[at + i / per], 4, lane);
    return word >> i % per * bits & ((1ull << bits) - 1);
}
static void element_set(Bench *b, const Insn *insn, int at, int i, int bits, int lane,
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

static uint64_t encode(const char *type, double x) {
    if (!strcmp(type, "f16")) return round_to_format(x, &FORMAT_F16, ROUND_NEAREST, false);
    if (!strcmp(type, "bf16")) return round_to_format(x, &FORMAT_BF16, ROUND_NEAREST, false);
    if (!strcmp(type, "e4m3")) return round_to_format(x, &FORMAT_E4M3, ROUND_NEAREST, false);
    if (!strcmp(type, "e5m2")) return round_to_format(x, &FORMAT_E5M2, ROUND_NEAREST, false);
    if (!strcmp(type, "tf32") || !strcmp(type, "f32")) return float_bits((float)x);
    if (!strcmp(type, "f64")) return double_bits(x);
    return (uint64_t)(int64_t)x;
}

static double decode(const char *type, uint64_t code) {
    if (!strcmp(type, "f16")) return format_value((uint32_t)code, &FORMAT_F16);
    if (!strcmp(type, "f32")) return bits_float((uint32_t)code);
    if (!strcmp(type, "f64")) return bits_double(code);
    return (int32_t)code;
}

static int bits_of(const char *type) {
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
static double small(const char *type) {
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
static int list(char *text, const char *name, int count) {
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

static Mma open_mma(const MmaForm *f, unsigned checks) {
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

static void put_matrices(Mma *x, const MmaForm *f, const Matrices *in) {
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

static void get_result(Mma *x, const MmaForm *f, Matrices *out) {
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < x->c_count; i++) {
            Position at = c_position(l, i);
            out->d[at.row][at.column] =
                decode(f->d, element_get(x->bench, x->insn, 0, i, bits_of(f->d), l));
        }
}

// Small integers: every way of summing gives the same, so only the layout is tested.
START_TEST(mma_multiplies) {
    const MmaForm *f = &forms[_i];
    static Matrices x;
    for (int numerics = NUMERICS_DEFAULT; numerics <= NUMERICS_HARDWARE; numerics++) {
        Mma mma = open_mma(f, CHECK_SYNC);
        mma.bench->settings.numerics = (Numerics)numerics;
        mma.bench->gpu.figures.capability_major = 8 + _i % 2;
        for (int r = 0; r < 16; r++)
            for (int k = 0; k < 256; k++) x.a[r][k] = small(f->a);
        for (int k = 0; k < 256; k++)
            for (int n = 0; n < 8; n++) x.b[k][n] = small(f->b);
        for (int r = 0; r < 16; r++)
            for (int n = 0; n < 8; n++) x.c[r][n] = small("s8");
        put_matrices(&mma, f, &x);
        ck_assert_int_eq(bench_run(mma.bench, mma.insn, FULL_MASK), FLOW_NEXT);
        get_result(&mma, f, &x);
        for (int r = 0; r < f->m; r++)
            for (int n = 0; n < 8; n++) {
                double want = x.c[r][n];
                for (int k = 0; k < f->k; k++) {
                    if (f->kind != KIND_1)
                        want += x.a[r][k] * x.b[k][n];
                    else if (strstr(f->after, "and"))
                        want += (int)x.a[r][k] & (int)x.b[k][n];
                    else
                        want += (int)x.a[r][k] ^ (int)x.b[k][n];
                }
                ck_assert_msg(x.d[r][n] == want, "row %d column %d: %g, not %g", r, n, x.d[r][n],
                              want);
            }
        ck_assert_int_eq(mma.insn->flops, 2 * f->m * 8 * f->k / 32);
        ck_assert_int_eq(mma.insn->pipe, PIPE_TENSOR);
        bench_close(mma.bench);
    }
}
END_TEST

// The fixed points of the layout, lane 13: one element of A is 1, B tells k, the row tells itself.
START_TEST(golden_positions) {
    static const struct {
        int form, element, row, k;
    } golden[] = {{0, 0, 3, 2},  {0, 1, 3, 3},   {0, 2, 11, 2},  {0, 3, 11, 3},  {0, 4, 3, 10},
                  {0, 5, 3, 11}, {0, 6, 11, 10}, {0, 7, 11, 11}, {13, 9, 3, 21}, {13, 14, 11, 22}};
    static Matrices x;
    for (size_t g = 0; g < sizeof golden / sizeof *golden; g++) {
        const MmaForm *f = &forms[golden[g].form];
        memset(&x, 0, sizeof x);
        for (int k = 0; k < 32; k++)
            for (int n = 0; n < 8; n++) x.b[k][n] = k + 1;
        Mma mma = open_mma(f, 0);
        put_matrices(&mma, f, &x);
        element_set(mma.bench, mma.insn, mma.a_at, golden[g].element, bits_of(f->a), 13,
                    encode(f->a, 1));
        bench_run(mma.bench, mma.insn, FULL_MASK);
        get_result(&mma, f, &x);
        for (int r = 0; r < 16; r++)
            for (int n = 0; n < 8; n++)
                ck_assert_double_eq(x.d[r][n], r == golden[g].row ? golden[g].k + 1 : 0);
        bench_close(mma.bench);
    }
}
END_TEST

// Registers may stand for several operands, and immediates for sources.
START_TEST(shared_registers) {
    const char *text = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32";
    char body[512];
    snprintf(body, sizeof body,
             ".reg .b32 %%x<4>; %s {%%x0, %%x1, %%x2, %%x3}, "
             "{%%x0, %%x1, %%x2, %%x3}, {%%x0, %%x1}, {%%x0, %%x1, %%x2, 0f3f800000};",
             text);
    Bench *b = bench_open(body, 0);
    const Insn *i = bench_insn(b, text);
    for (int r = 0; r < 4; r++)
        for (int l = 0; l < 32; l++) lane_set(b, i->rows[r], 4, l, float_bits(1));
    bench_run(b, i, FULL_MASK);
    for (int r = 0; r < 4; r++)
        for (int l = 0; l < 32; l++)
            ck_assert_uint_eq(lane_get(b, i->rows[r], 4, l), float_bits(9));
    bench_close(b);
}
END_TEST

// ---- arithmetic

// Runs a form on one product row: all rows of A and all columns of B the same.
static double dot(const MmaForm *f, int capability, Numerics numerics, const double *a,
                  const double *b, double c) {
    static Matrices x;
    memset(&x, 0, sizeof x);
    for (int k = 0; k < f->k; k++) {
        for (int r = 0; r < 16; r++) x.a[r][k] = a[k];
        for (int n = 0; n < 8; n++) x.b[k][n] = b[k];
    }
    for (int r = 0; r < 16; r++)
        for (int n = 0; n < 8; n++) x.c[r][n] = c;
    Mma mma = open_mma(f, 0);
    mma.bench->gpu.figures.capability_major = capability;
    mma.bench->settings.numerics = numerics;
    put_matrices(&mma, f, &x);
    bench_run(mma.bench, mma.insn, FULL_MASK);
    get_result(&mma, f, &x);
    bench_close(mma.bench);
    for (int r = 1; r < 16; r++)
        for (int n = 0; n < 8; n++)
            ck_assert(x.d[r][n] == x.d[0][0] || (isnan(x.d[r][n]) && isnan(x.d[0][0])));
    return x.d[0][0];
}

static double ones[64];

START_TEST(model_keeps_its_bits) {
    const MmaForm *f = &forms[0]; // m16n8k16, f16, f32
    for (int k = 0; k < 64; k++) ones[k] = 1;
    // 1 + 2^-n - 1 in the accumulator, a product, and a product of the second step
    for (int n = 23; n <= 27; n++) {
        double a[16] = {0}, b[16] = {0}, tiny = ldexp(1, -n);
        a[0] = 1, b[0] = 1;
        a[1] = ldexp(1, -n / 2), b[1] = ldexp(1, -(n - n / 2));
        ck_assert_double_eq(dot(f, 8, NUMERICS_HARDWARE, a, b, -1), n <= 24 ? tiny : 0);
        ck_assert_double_eq(dot(f, 9, NUMERICS_HARDWARE, a, b, -1), n <= 25 ? tiny : 0);
        // k = 8 belongs to Ampere's second step: by then 1 + 2^-n has been cut to fp32.
        a[8] = -1, b[8] = 1;
        ck_assert_double_eq(dot(f, 8, NUMERICS_HARDWARE, a, b, 0), n <= 23 ? tiny : 0);
        ck_assert_double_eq(dot(f, 9, NUMERICS_HARDWARE, a, b, 0), n <= 25 ? tiny : 0);
    }
    // Toward zero, not to nearest: 1 + 3 * 2^-25 would round up to 1 + 2^-23.
    double a[16] = {1, ldexp(3, -13)}, b[16] = {1, ldexp(1, -12)};
    ck_assert_double_eq(dot(f, 9, NUMERICS_HARDWARE, a, b, 0), 1);
    ck_assert_double_eq(dot(f, 9, NUMERICS_FAST, a, b, 0), 1 + 0x1p-23);
    ck_assert_double_eq(dot(f, 9, NUMERICS_DEFAULT, a, b, 0), 1 + 0x1p-23);
    // Subnormal numbers and zeros count with the format's smallest exponent, here -14 + 15 = 1: the
    // accumulator is lost below 2^(1 - 25).
    double low[16] = {0x1p-24}, high[16] = {0x1p15};
    ck_assert_double_eq(dot(f, 9, NUMERICS_HARDWARE, low, high, 0x1p-25), 0x1p-9);
    ck_assert_double_eq(dot(f, 9, NUMERICS_HARDWARE, low, high, 0x1p-24), 0x1p-9 + 0x1p-24);
    low[0] = 0;
    ck_assert_double_eq(dot(f, 9, NUMERICS_HARDWARE, low, high, 0x1p-25), 0);
    // f16 accumulators round to nearest even.
    const MmaForm *h = &forms[1];
    double c[16] = {0x1p-11, 0x1p-12};
    ck_assert_double_eq(dot(h, 9, NUMERICS_HARDWARE, c, ones, 1), 1 + 0x1p-10);
    c[1] = 0;
    ck_assert_double_eq(dot(h, 9, NUMERICS_HARDWARE, c, ones, 1), 1);
    ck_assert_double_eq(dot(h, 9, NUMERICS_FAST, c, ones, 1), 1);
}
END_TEST

START_TEST(special_values) {
    double inf = HUGE_VAL, nan = NAN;
    double a[16] = {1, 2, 3}, b[16] = {1, 1, 1};
    for (int numerics = NUMERICS_FAST; numerics <= NUMERICS_HARDWARE; numerics++) {
        for (int form = 0; form < 3; form++) {
            const MmaForm *f = &forms[form];
            double x[16] = {inf, 1}, y[16] = {inf, -inf}, z[16] = {nan};
            ck_assert_double_eq(dot(f, 9, numerics, x, b, 5), inf);
            ck_assert(isnan(dot(f, 9, numerics, y, b, 5)));
            ck_assert(isnan(dot(f, 9, numerics, x, b, -inf)));
            ck_assert(isnan(dot(f, 9, numerics, z, b, 0)));
            ck_assert_double_eq(dot(f, 9, numerics, a, b, -inf), -inf);
            double zero[16] = {0};
            ck_assert(isnan(dot(f, 9, numerics, x, zero, 0)));
            ck_assert_double_eq(dot(f, 9, numerics, zero, zero, 0), 0);
        }
        double big[16] = {60000, 60000};
        ck_assert_double_eq(dot(&forms[1], 9, numerics, big, b, 0), inf);
        ck_assert_double_eq(dot(&forms[0], 9, numerics, big, b, 0), 120000);
    }
}
END_TEST

START_TEST(nan_results_are_canonical) {
    static Matrices x;
    memset(&x, 0, sizeof x);
    x.a[0][0] = NAN;
    for (int form = 0; form < 2; form++) {
        Mma mma = open_mma(&forms[form], 0);
        put_matrices(&mma, &forms[form], &x);
        bench_run(mma.bench, mma.insn, FULL_MASK);
        uint64_t d = element_get(mma.bench, mma.insn, 0, 0, bits_of(forms[form].d), 0);
        ck_assert_uint_eq(d, form ? 0x7fff : 0x7fffffff);
        bench_close(mma.bench);
    }
}
END_TEST

// ---- the model against itself in floating point: each term divided by its unit and truncated

static int exponent_of(double x, const Format *f) {
    int e;
    if (x == 0) return 1 - f->bias;
    frexp(x, &e);
    return e - 1 < 1 - f->bias ? 1 - f->bias : e - 1;
}

static double toward_zero(double x) {
    float y = (float)x;
    return fabs((double)y) > fabs(x) ? nextafterf(y, 0) : y;
}

static double model_step(const double *a, const double *b, int from, int to, double c,
                         const Format *fa, const Format *fb, int bits, bool half) {
    int most = exponent_of(c, half ? &FORMAT_F16 : &FORMAT_F32);
    for (int k = from; k < to; k++) {
        int e = exponent_of(a[k], fa) + exponent_of(b[k], fb);
        most = e > most ? e : most;
    }
    double unit = ldexp(1, most - bits), sum = trunc(c / unit);
    for (int k = from; k < to; k++) sum += trunc(a[k] * b[k] / unit);
    if (!half) return toward_zero(sum * unit);
    return format_value(round_to_format(sum * unit, &FORMAT_F16, ROUND_NEAREST, false),
                        &FORMAT_F16);
}

static double random_of(const Format *f) {
    for (;;) {
        uint32_t code = (uint32_t)noise() & ((2u << (f->exponent + f->mantissa)) - 1);
        if (noise() % 8 == 0) code &= (1u << f->mantissa) - 1; // subnormal or zero
        double x = format_value(code, f);
        if (isfinite(x)) return x;
    }
}

START_TEST(model_on_random_numbers) {
    static const struct {
        int form, capability, step, bits;
        const Format *a, *b;
    } cases[] = {
        {0, 8, 8, 24, &FORMAT_F16, &FORMAT_F16},   {0, 9, 16, 25, &FORMAT_F16, &FORMAT_F16},
        {1, 8, 8, 24, &FORMAT_F16, &FORMAT_F16},   {1, 10, 16, 25, &FORMAT_F16, &FORMAT_F16},
        {2, 8, 8, 24, &FORMAT_BF16, &FORMAT_BF16}, {2, 9, 16, 25, &FORMAT_BF16, &FORMAT_BF16},
        {7, 8, 4, 24, &FORMAT_TF32, &FORMAT_TF32}, {7, 9, 8, 25, &FORMAT_TF32, &FORMAT_TF32},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const MmaForm *f = &forms[cases[n].form];
        bool half = !strcmp(f->d, "f16");
        for (int round = 0; round < 40; round++) {
            double a[16], b[16], c;
            for (int k = 0; k < f->k; k++) {
                // bf16 and tf32 reach far; kept where neither fp32 nor the reference overflows
                do a[k] = random_of(cases[n].a);
                while (fabs(a[k]) > 1e15);
                do b[k] = random_of(cases[n].b);
                while (fabs(b[k]) > 1e15);
            }
            c = half ? random_of(&FORMAT_F16) : (float)(random_of(&FORMAT_F16) * 1.2345678);
            double want = c;
            for (int from = 0; from < f->k; from += cases[n].step)
                want = model_step(a, b, from, from + cases[n].step, want, cases[n].a, cases[n].b,
                                  cases[n].bits, half);
            if (!isfinite(want)) continue;
            double got = dot(f, cases[n].capability, NUMERICS_HARDWARE, a, b, c);
            ck_assert_msg(got == want, "case %zu: %a, not %a", n, got, want);
        }
    }
}
END_TEST

// fp8: two f16 products from zero, for k % 4 < 2 and the rest, then one fp32 addition.
START_TEST(fp8_runs_as_f16) {
    for (int form = 8; form <= 10; form++) {
        const MmaForm *f = &forms[form];
        const Format *fa = !strcmp(f->a, "e4m3") ? &FORMAT_E4M3 : &FORMAT_E5M2;
        const Format *fb = !strcmp(f->b, "e4m3") ? &FORMAT_E4M3 : &FORMAT_E5M2;
        bool half = !strcmp(f->d, "f16");
        for (int round = 0; round < 40; round++) {
            double a[32], b[32], first[2][32], second[2][32];
            for (int k = 0; k < f->k; k++) a[k] = random_of(fa), b[k] = random_of(fb);
            int n = 0, m = 0;
            for (int k = 0; k < f->k; k++) {
                if (k % 4 < 2)
                    first[0][n] = a[k], first[1][n++] = b[k];
                else
                    second[0][m] = a[k], second[1][m++] = b[k];
            }
            double c = half ? random_of(&FORMAT_E4M3) : (float)(random_of(fa) * 1.2345678);
            double sum =
                model_step(first[0], first[1], 0, n, 0, &FORMAT_F16, &FORMAT_F16, 25, half);
            sum = model_step(second[0], second[1], 0, m, sum, &FORMAT_F16, &FORMAT_F16, 25, half);
            if (!isfinite(sum)) continue;
            double want =
                half ? format_value(round_to_format(sum + c, &FORMAT_F16, ROUND_NEAREST, false),
                                    &FORMAT_F16)
                     : (float)((float)sum + (float)c);
            if (!isfinite(want)) continue;
            double got = dot(f, 9, NUMERICS_DEFAULT, a, b, c);
            ck_assert_msg(got == want, "%a, not %a", got, want);
        }
    }
}
END_TEST

START_TEST(integers_wrap_or_saturate) {
    double a[32] = {1, 1}, b[32] = {100, 27};
    const MmaForm *wraps = &forms[14], *saturates = &forms[13];
    double most = 2147483647;
    ck_assert_double_eq(dot(saturates, 9, 0, a, b, most - 100), most);
    ck_assert_double_eq(dot(saturates, 9, 0, a, b, most - 127), most);
    ck_assert_double_eq(dot(wraps, 9, 0, a, b, most - 126), -most - 1);
    a[0] = a[1] = -1;
    ck_assert_double_eq(dot(saturates, 9, 0, a, b, -most), -most - 1);
}
END_TEST

// The lowest 13 bits of a tf32 operand don't matter.
START_TEST(tf32_ignores_low_bits) {
    double a[8] = {bits_float(0x3f801fff), bits_float(0x3f803fff)},
           b[8] = {1, bits_float(0x3f801fff)};
    ck_assert_double_eq(dot(&forms[7], 9, NUMERICS_FAST, a, b, 0), 2 + 0x1p-10);
    ck_assert_double_eq(dot(&forms[7], 9, NUMERICS_HARDWARE, a, b, 0), 2 + 0x1p-10);
}
END_TEST

// ---- Volta's m8n8k4

START_TEST(volta_multiplies) {
    bool a_column = _i & 1, b_column = _i & 2, d_half = _i & 4, c_half = _i & 8;
    if (d_half && !c_half) return; // no such instruction
    char text[96], body[512];
    snprintf(text, sizeof text, "mma.sync.aligned.m8n8k4.%s.%s.%s.f16.f16.%s",
             a_column ? "col" : "row", b_column ? "col" : "row", d_half ? "f16" : "f32",
             c_half ? "f16" : "f32");
    int at = sprintf(body, ".reg .b32 %%d<8>, %%a<2>, %%b<2>, %%c<8>; %s ", text);
    at += list(body + at, "%d", d_half ? 4 : 8);
    at += sprintf(body + at, ", {%%a0, %%a1}, {%%b0, %%b1}, ");
    at += list(body + at, "%c", c_half ? 4 : 8);
    sprintf(body + at, ";");
    Bench *b = bench_open(body, CHECK_SYNC);
    const Insn *i = bench_insn(b, text);
    ck_assert(i->run != trap_unsupported);
    int a_at = d_half ? 4 : 8, b_at = a_at + 2, c_at = b_at + 2;
    double x[4][8][4], y[4][4][8], z[4][8][8];
    for (int q = 0; q < 4; q++)
        for (int r = 0; r < 8; r++) {
            for (int k = 0; k < 4; k++) x[q][r][k] = small("f16"), y[q][k][r] = small("f16");
            for (int n = 0; n < 8; n++) z[q][r][n] = small("f16");
        }
    for (int l = 0; l < 32; l++) {
        int q = (l % 16) / 4, low = l < 16 ? 0 : 4;
        for (int e = 0; e < 4; e++) {
            double a = a_column ? x[q][e % 4 + low][l % 4] : x[q][l % 4 + low][e];
            double bb = b_column ? y[q][e][l % 4 + low] : y[q][l % 4][e + low];
            element_set(b, i, a_at, e, 16, l, encode("f16", a));
            element_set(b, i, b_at, e, 16, l, encode("f16", bb));
        }
        for (int e = 0; e < 8; e++) {
            if (c_half)
                element_set(b, i, c_at, e, 16, l, encode("f16", z[q][l % 4 + low][e]));
            else
                element_set(
                    b, i, c_at, e, 32, l,
                    encode("f32", z[q][(l & 1) + (e & 2) + low][(e & 4) + (l & 2) + (e & 1)]));
        }
    }
    bench_run(b, i, FULL_MASK);
    for (int l = 0; l < 32; l++)
        for (int e = 0; e < 8; e++) {
            int q = (l % 16) / 4, low = l < 16 ? 0 : 4;
            int r = d_half ? l % 4 + low : (l & 1) + (e & 2) + low;
            int n = d_half ? e : (e & 4) + (l & 2) + (e & 1);
            double want = z[q][r][n];
            for (int k = 0; k < 4; k++) want += x[q][r][k] * y[q][k][n];
            uint64_t got = element_get(b, i, 0, e, d_half ? 16 : 32, l);
            ck_assert_double_eq(decode(d_half ? "f16" : "f32", got), want);
        }
    bench_close(b);
}
END_TEST

// ---- refusals and checks

START_TEST(refused_by_name) {
    static const char *const bodies[][3] = {
        {".reg .b32 %r<16>; ", "mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
         " {%r0,%r1}, {%r2,%r3}, {%r4,%r5}, {%r6,%r7}, %r8, 0;"},
        {".reg .b32 %r<16>; ", "mma.sync.aligned.m16n8k16.row.row.f16.f16.f16.f16",
         " {%r0,%r1}, {%r2,%r3,%r4,%r5}, {%r6,%r7}, {%r0,%r1};"},
        {".reg .b32 %r<16>; ", "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
         " {%r0,%r1}, {%r2,%r3}, {%r6,%r7}, {%r0,%r1};"},
        {".reg .b32 %r<16>; ", "wmma.load.a.sync.aligned.row.m8n8k128.b1", " {%r0}, [%r1];"},
    };
    for (size_t k = 0; k < sizeof bodies / sizeof *bodies; k++) {
        char body[512];
        snprintf(body, sizeof body, "%s%s%s", bodies[k][0], bodies[k][1], bodies[k][2]);
        Bench *b = bench_open(body, 0);
        ck_assert(bench_insn(b, bodies[k][1])->run == trap_unsupported);
        bench_close(b);
    }
}
END_TEST

START_TEST(needs_the_whole_warp) {
    Mma mma = open_mma(&forms[0], CHECK_SYNC);
    mma.bench->warp.live = mma.bench->warp.active = 0xffff;
    ck_assert_int_eq(bench_run(mma.bench, mma.insn, 0xffff), FLOW_FAULT);
    const Finding *found;
    ck_assert_int_eq(bench_findings(mma.bench, &found), 1);
    ck_assert_int_eq(found->kind, FINDING_DIVERGENT);
    ck_assert_ptr_nonnull(strstr(found->what, "0x0000ffff"));
    bench_close(mma.bench);
}
END_TEST

Suite *suite_matrix(void) {
    Suite *s = suite_create("matrix instructions");
    TCase *t = tcase_create("mma");
    tcase_add_loop_test(t, mma_multiplies, 0, FORM_COUNT);
    tcase_add_test(t, golden_positions);
    tcase_add_test(t, shared_registers);
    tcase_add_test(t, model_keeps_its_bits);
    tcase_add_test(t, special_values);
    tcase_add_test(t, nan_results_are_canonical);
    tcase_add_test(t, model_on_random_numbers);
    tcase_add_test(t, fp8_runs_as_f16);
    tcase_add_test(t, integers_wrap_or_saturate);
    tcase_add_test(t, tf32_ignores_low_bits);
    tcase_add_loop_test(t, volta_multiplies, 0, 16);
    tcase_add_test(t, refused_by_name);
    tcase_add_test(t, needs_the_whole_warp);
    suite_add_tcase(s, t);
    return s;
}
