// ldmatrix, stmatrix, movmatrix and wmma: which byte goes where, bank conflicts, and the checks.
#include <stdlib.h>

#include "lanes.h"

#include "softgpu/execute/formats.h"
#include "softgpu/timing/traffic.h"

Suite *suite_matrix_move(void);

static uint8_t *shared(Bench *b) {
    return b->cta.shared + SHARED_RESERVED;
}

static void fill_shared(Bench *b) {
    for (int k = 0; k < BENCH_SHARED; k++) shared(b)[k] = (uint8_t)noise();
    if (b->cta.shared_written) memset(b->cta.shared_written + SHARED_RESERVED, 1, BENCH_SHARED);
}

// A bench with one instruction on registers %r0… and the address %p, or the generic one %q.
static Bench *open_move(const char *text, int registers, bool store, unsigned checks,
                        const Insn **i) {
    char body[512], list[64];
    int at = sprintf(list, "{");
    for (int k = 0; k < registers; k++) at += sprintf(list + at, "%s%%r%d", k ? ", " : "", k);
    sprintf(list + at, "}");
    const char *address = strstr(text, ".shared") ? "[%p]" : "[%q]";
    snprintf(body, sizeof body, ".reg .b32 %%r<8>, %%p; .reg .b64 %%q; %s %s, %s;", text,
             store ? address : list, store ? list : address);
    Bench *b = bench_open(body, checks);
    *i = bench_insn(b, text);
    ck_assert_msg((*i)->run != trap_unsupported, "%s: %s", text, (const char *)(*i)->extra);
    fill_shared(b);
    return b;
}

// Row addresses in an order of their own; lanes beyond `count` give nonsense, which must not matter.
static void scatter_rows(Bench *b, const Insn *i, int count, uint32_t offset[32]) {
    uint64_t address[32];
    for (int l = 0; l < 32; l++) {
        offset[l] = (uint32_t)((l * 37 + 11) % 64) * 16;
        bool wide = i->flags & INSN_WIDE_BASE;
        address[l] = (wide ? SHARED_WINDOW : 0) + SHARED_RESERVED + offset[l];
        if (l >= count) address[l] = 7;
    }
    bench_addresses(b, i, address);
}

// ---- 8 x 8 of 16 bits

static uint32_t half_at(Bench *b, uint32_t row_offset, int column) {
    const uint8_t *at = shared(b) + row_offset + 2 * column;
    return at[0] | (uint32_t)at[1] << 8;
}

START_TEST(ldmatrix_loads) {
    int count = 1 << _i % 3;
    bool trans = _i / 3 % 2, generic = _i / 6;
    char text[96];
    snprintf(text, sizeof text, "ldmatrix.sync.aligned.m8n8.x%d%s%s.b16", count,
             trans ? ".trans" : "", generic ? "" : ".shared");
    const Insn *i;
    Bench *b = open_move(text, count, false, CHECK_MEM | CHECK_INIT | CHECK_SYNC, &i);
    uint32_t offset[32];
    scatter_rows(b, i, 8 * count, offset);
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_NEXT);
    for (int j = 0; j < count; j++)
        for (int l = 0; l < 32; l++) {
            int g = l >> 2, t = l & 3;
            uint32_t low =
                trans ? half_at(b, offset[8 * j + 2 * t], g) : half_at(b, offset[8 * j + g], 2 * t);
            uint32_t high = trans ? half_at(b, offset[8 * j + 2 * t + 1], g)
                                  : half_at(b, offset[8 * j + g], 2 * t + 1);
            ck_assert_uint_eq(lane_get(b, i->rows[j], 4, l), low | high << 16);
        }
    ck_assert_int_eq(bench_findings(b, NULL), 0);
    bench_close(b);
}
END_TEST

START_TEST(stmatrix_stores) {
    int count = 1 << _i % 3;
    bool trans = _i / 3;
    char text[96];
    snprintf(text, sizeof text, "stmatrix.sync.aligned.m8n8.x%d%s.shared.b16", count,
             trans ? ".trans" : "");
    const Insn *i;
    Bench *b = open_move(text, count, true, CHECK_MEM | CHECK_INIT | CHECK_SYNC, &i);
    memset(b->cta.shared_written, 0, b->cta.shared_size);
    uint8_t before[BENCH_SHARED];
    memcpy(before, shared(b), BENCH_SHARED);
    for (int j = 0; j < count; j++)
        for (int l = 0; l < 32; l++) lane_set(b, i->rows[j], 4, l, noise());
    uint32_t offset[32];
    scatter_rows(b, i, 8 * count, offset);
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_NEXT);
    for (int j = 0; j < count; j++)
        for (int l = 0; l < 32; l++) {
            int g = l >> 2, t = l & 3;
            for (int e = 0; e < 2; e++) {
                uint32_t row = offset[8 * j + (trans ? 2 * t + e : g)];
                int column = trans ? g : 2 * t + e;
                ck_assert_uint_eq(half_at(b, row, column),
                                  lane_get(b, i->rows[j], 4, l) >> 16 * e & 0xffff);
                memset(before + row, 0, 16);
            }
        }
    // Nothing else changed, and what was written is known as written.
    int written = 0;
    for (int k = 0; k < BENCH_SHARED; k++) {
        bool marked = b->cta.shared_written[SHARED_RESERVED + k];
        written += marked;
        if (!marked) ck_assert_uint_eq(shared(b)[k], before[k]);
    }
    ck_assert_int_eq(written, 16 * 8 * count);
    bench_close(b);
}
END_TEST

START_TEST(movmatrix_transposes) {
    const char *text = "movmatrix.sync.aligned.m8n8.trans.b16";
    char body[128];
    snprintf(body, sizeof body, ".reg .b32 %%r<2>; %s %%r0, %%r1;", text);
    Bench *b = bench_open(body, CHECK_SYNC);
    const Insn *i = bench_insn(b, text);
    // element (row, column) is 16 row + column
    for (int l = 0; l < 32; l++) {
        uint32_t first = (uint32_t)(16 * (l >> 2) + 2 * (l & 3));
        lane_set(b, i->a, 4, l, first | (first + 1) << 16);
    }
    bench_run(b, i, FULL_MASK);
    for (int l = 0; l < 32; l++) {
        uint32_t g = l >> 2, t = l & 3, low = 16 * (2 * t) + g, high = 16 * (2 * t + 1) + g;
        ck_assert_uint_eq(lane_get(b, i->d, 4, l), low | high << 16);
    }
    bench_close(b);
}
END_TEST

// ---- bytes

// Element c of a row of 16 as memory holds it with `bits` bits, in its container of 8.
static uint32_t container(const uint8_t *row, int c, int bits) {
    if (bits == 8) return row[c];
    uint32_t value = 0;
    for (int k = 0; k < bits; k++) {
        int at = c * bits + k;
        value |= (uint32_t)(row[at / 8] >> at % 8 & 1) << k;
    }
    return bits == 4 ? value << 2 : value;
}

static const struct ByteLoad {
    const char *text;
    int registers, rows, bits;
    bool trans;
} byte_loads[] = {
    {"ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8", 2, 16, 8, true},
    {"ldmatrix.sync.aligned.m16n16.x2.trans.shared::cta.b8", 4, 32, 8, true},
    {"ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8x16.b4x16_p64", 4, 32, 4, true},
    {"ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8x16.b6x16_p32", 2, 16, 6, true},
    {"ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b6x16_p32", 1, 8, 6, false},
    {"ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.b4x16_p64", 2, 16, 4, false},
    {"ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b4x16_p64", 4, 32, 4, false},
};

START_TEST(ldmatrix_loads_bytes) {
    const struct ByteLoad *c = &byte_loads[_i];
    const Insn *i;
    Bench *b = open_move(c->text, c->registers, false, CHECK_MEM | CHECK_INIT, &i);
    uint32_t offset[32];
    scatter_rows(b, i, c->rows, offset);
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_NEXT);
    for (int r = 0; r < c->registers; r++)
        for (int l = 0; l < 32; l++)
            for (int e = 0; e < 4; e++) {
                int g = l >> 2, t = l & 3;
                int lane = c->trans ? 16 * (r / 2) + 4 * t + e : 8 * r + g;
                int column = c->trans ? g + 8 * (r % 2) : 4 * t + e;
                ck_assert_uint_eq(lane_get(b, i->rows[r], 4, l) >> 8 * e & 0xff,
                                  container(shared(b) + offset[lane], column, c->bits));
            }
    ck_assert_int_eq(bench_findings(b, NULL), 0);
    bench_close(b);
}
END_TEST

START_TEST(stmatrix_stores_bytes) {
    int count = 1 << _i;
    char text[96];
    snprintf(text, sizeof text, "stmatrix.sync.aligned.m16n8.x%d.trans.shared.b8", count);
    const Insn *i;
    Bench *b = open_move(text, count, true, CHECK_MEM | CHECK_INIT, &i);
    for (int j = 0; j < count; j++)
        for (int l = 0; l < 32; l++) lane_set(b, i->rows[j], 4, l, noise());
    uint32_t offset[32];
    scatter_rows(b, i, 8 * count, offset);
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_NEXT);
    for (int j = 0; j < count; j++)
        for (int l = 0; l < 32; l++) {
            int g = l >> 2, t = l & 3;
            uint32_t bytes = (uint32_t)lane_get(b, i->rows[j], 4, l);
            const uint8_t *n0 = shared(b) + offset[8 * j + 2 * t];
            const uint8_t *n1 = shared(b) + offset[8 * j + 2 * t + 1];
            ck_assert_uint_eq(bytes, n0[g] | (uint32_t)n1[g] << 8 | (uint32_t)n0[g + 8] << 16 |
                                         (uint32_t)n1[g + 8] << 24);
        }
    bench_close(b);
}
END_TEST

// ---- wavefronts: one per matrix where the eight rows lie in different banks

// Factor for rows `stride` bytes apart, their 16-byte chunks exchanged by (row & mask).
static double conflict_factor(int stride, int mask, int count) {
    char text[64];
    snprintf(text, sizeof text, "ldmatrix.sync.aligned.m8n8.x%d.shared.b16", count);
    const Insn *i;
    Bench *b = open_move(text, count, false, 0, &i);
    Counters counters = {0};
    b->settings.timing = true;
    b->sm.counters = &counters;
    uint64_t address[32];
    for (int l = 0; l < 32; l++) {
        int row = l % 16, chunk = l / 16; // four matrices of a 16 x 16 tile
        address[l] = SHARED_RESERVED + (uint64_t)(row * stride + (chunk ^ (row & mask)) * 16);
    }
    bench_addresses(b, i, address);
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_NEXT);
    ck_assert_uint_eq(counters.shared_ideal, (unsigned)count);
    double factor = (double)counters.shared_wavefronts / (double)counters.shared_ideal;
    bench_close(b);
    return factor;
}

START_TEST(bank_conflicts) {
    for (int count = 1; count <= 4; count *= 2) {
        ck_assert_double_eq(conflict_factor(16, 0, count), 1);
        ck_assert_double_eq(conflict_factor(128, 7, count), 1); // the 128-byte swizzle
        ck_assert_double_eq(conflict_factor(144, 0, count), 1); // rows padded by 16 bytes
        ck_assert_double_eq(conflict_factor(128, 0, count), 8);
        ck_assert_double_eq(conflict_factor(128, 3, count), 2);
        ck_assert_double_eq(conflict_factor(64, 0, count), 4);
        ck_assert_double_eq(conflict_factor(32, 0, count), 2);
    }
}
END_TEST

// ---- checks

START_TEST(rows_are_checked) {
    const char *text = "ldmatrix.sync.aligned.m8n8.x4.shared.b16";
    static const struct {
        int lane;
        uint32_t address;
        FindingKind kind;
    } cases[] = {{5, SHARED_RESERVED + 8, FINDING_MISALIGNED},
                 {31, SHARED_RESERVED + BENCH_SHARED, FINDING_OUT_OF_BOUNDS},
                 {17, 0, FINDING_OUT_OF_BOUNDS}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const Insn *i;
        Bench *b = open_move(text, 4, false, CHECK_MEM, &i);
        uint64_t address[32];
        for (int l = 0; l < 32; l++) address[l] = SHARED_RESERVED + 16 * (uint64_t)l;
        address[cases[k].lane] = cases[k].address;
        bench_addresses(b, i, address);
        ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_FAULT);
        const Finding *found;
        ck_assert_int_eq(bench_findings(b, &found), 1);
        ck_assert_int_eq(found->kind, cases[k].kind);
        bench_close(b);
    }
}
END_TEST

START_TEST(unwritten_rows_are_found) {
    const Insn *i;
    Bench *b = open_move("ldmatrix.sync.aligned.m8n8.x2.shared.b16", 2, false, CHECK_INIT, &i);
    b->settings.strict = true; // else a note
    b->settings.strict = true;
    bench_stride(b, i, SHARED_RESERVED, 16);
    memset(&b->cta.shared_written[SHARED_RESERVED + 16 * 16], 0, 16); // lane 16's: not read by x2
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_NEXT);
    ck_assert_int_eq(bench_findings(b, NULL), 0);
    memset(&b->cta.shared_written[SHARED_RESERVED + 16 * 15], 0, 16);
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_NEXT);
    const Finding *found;
    ck_assert_int_eq(bench_findings(b, &found), 1);
    ck_assert_int_eq(found->kind, FINDING_UNINITIALISED);
    bench_close(b);
}
END_TEST

START_TEST(generic_rows_must_be_shared) {
    const Insn *i;
    Bench *b = open_move("ldmatrix.sync.aligned.m8n8.x1.b16", 1, false, CHECK_MEM, &i);
    uint64_t global = global_alloc(b->gpu.memory, 4096, MEMORY_DEVICE, NULL);
    bench_stride(b, i, global, 16);
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_FAULT);
    const Finding *found;
    ck_assert_int_eq(bench_findings(b, &found), 1);
    ck_assert_int_eq(found->kind, FINDING_WRONG_SPACE);
    bench_close(b);
}
END_TEST

// ---- wmma

typedef struct {
    int m, n, k;
    const char *ab, *c, *d, *product; // types; how wmma.mma names them
    int a_registers, b_registers, c_registers, d_registers;
} WmmaForm;

static const WmmaForm wmma_shapes[] = {
    {16, 16, 16, "f16", "f32", "f32", "f32.f32", 8, 8, 8, 8},
    {16, 16, 16, "f16", "f16", "f16", "f16.f16", 8, 8, 4, 4},
    {16, 16, 16, "f16", "f32", "f16", "f16.f32", 8, 8, 8, 4},
    {16, 16, 16, "f16", "f16", "f32", "f32.f16", 8, 8, 4, 8},
    {32, 8, 16, "f16", "f32", "f32", "f32.f32", 8, 8, 8, 8},
    {32, 8, 16, "f16", "f16", "f16", "f16.f16", 8, 8, 4, 4},
    {8, 32, 16, "f16", "f32", "f32", "f32.f32", 8, 8, 8, 8},
    {8, 32, 16, "f16", "f16", "f16", "f16.f16", 8, 8, 4, 4},
    {16, 16, 16, "bf16", "f32", "f32", "f32.bf16.bf16.f32", 4, 4, 8, 8},
    {32, 8, 16, "bf16", "f32", "f32", "f32.bf16.bf16.f32", 8, 2, 8, 8},
    {8, 32, 16, "bf16", "f32", "f32", "f32.bf16.bf16.f32", 2, 8, 8, 8},
    {16, 16, 16, "s8", "s32", "s32", "s32.s8.s8.s32", 2, 2, 8, 8},
    {32, 8, 16, "u8", "s32", "s32", "s32.u8.u8.s32.satfinite", 4, 1, 8, 8},
    {8, 32, 16, "s8", "s32", "s32", "s32.s8.s8.s32", 1, 4, 8, 8},
    {16, 16, 8, "tf32", "f32", "f32", "f32.tf32.tf32.f32", 4, 4, 8, 8},
    {8, 8, 4, "f64", "f64", "f64", "f64.f64.f64.f64", 1, 1, 2, 2},
};
enum { WMMA_COUNT = sizeof wmma_shapes / sizeof *wmma_shapes };

static unsigned type_bytes(const char *type) {
    if (!strcmp(type, "f64")) return 8;
    if (!strcmp(type, "f16") || !strcmp(type, "bf16")) return 2;
    return type[1] == '8' ? 1 : 4;
}

static uint64_t to_memory(const char *type, double x) {
    if (!strcmp(type, "f16")) return round_to_format(x, &FORMAT_F16, ROUND_NEAREST, false);
    if (!strcmp(type, "bf16")) return round_to_format(x, &FORMAT_BF16, ROUND_NEAREST, false);
    if (!strcmp(type, "f64")) return double_bits(x);
    if (!strcmp(type, "f32") || !strcmp(type, "tf32")) return float_bits((float)x);
    return (uint64_t)(int64_t)x;
}

static double from_memory(const char *type, const uint8_t *at) {
    uint64_t code = 0;
    memcpy(&code, at, type_bytes(type));
    if (!strcmp(type, "f16")) return format_value((uint32_t)code, &FORMAT_F16);
    if (!strcmp(type, "f64")) return bits_double(code);
    if (!strcmp(type, "f32")) return bits_float((uint32_t)code);
    return (int32_t)code;
}

// Where element (row, column) of a matrix with lines `stride` elements apart lies.
static uint8_t *at_place(uint8_t *matrix, const char *type, bool columns, int stride, int row,
                         int column) {
    return matrix +
           (size_t)(columns ? column * stride + row : row * stride + column) * type_bytes(type);
}

static int registers_text(char *text, const char *name, int count) {
    int at = sprintf(text, "{");
    for (int k = 0; k < count; k++) at += sprintf(text + at, "%s%s%d", k ? ", " : "", name, k);
    return at + sprintf(text + at, "}");
}

// One operand's load or store as PTX; `name` of its registers, and of its address.
static int move_text(char *body, char *opcode, const WmmaForm *f, const char *what, bool columns,
                     const char *space, const char *type, const char *name, int count, int stride,
                     bool store) {
    sprintf(opcode, "wmma.%s.sync.aligned.%s.m%dn%dk%d%s.%s", what, columns ? "col" : "row", f->m,
            f->n, f->k, space, type);
    char list[128];
    registers_text(list, name, count);
    return store ? sprintf(body, "%s [%s_at], %s, %d; ", opcode, name, list, stride)
                 : sprintf(body, "%s %s, [%s_at], %d; ", opcode, list, name, stride);
}

// All shapes and types, all layouts, in shared and in global memory and through generic addresses.
START_TEST(wmma_multiplies) {
    const WmmaForm *f = &wmma_shapes[_i % WMMA_COUNT];
    int variant = _i / WMMA_COUNT;
    bool a_columns = variant & 1, b_columns = variant & 2, c_columns = (variant + _i) & 1;
    const char *space = variant % 3 == 0 ? ".shared" : variant % 3 == 1 ? ".global" : "";
    bool in_shared = variant % 3 != 1;
    int a_stride = (a_columns ? f->m : f->k) + 16, b_stride = (b_columns ? f->k : f->n) + 16;
    int c_stride = (c_columns ? f->m : f->n) + 8;

    char body[2048], opcode[5][96];
    int at = sprintf(body,
                     ".reg .%s %%a<8>, %%b<8>, %%c<8>, %%d<8>; .reg .%s %%a_at, %%b_at, "
                     "%%c_at, %%d_at; ",
                     f->ab[1] == '6' ? "b64" : "b32", variant % 3 ? "b64" : "b32");
    at += move_text(body + at, opcode[0], f, "load.a", a_columns, space, f->ab, "%a",
                    f->a_registers, a_stride, false);
    at += move_text(body + at, opcode[1], f, "load.b", b_columns, space, f->ab, "%b",
                    f->b_registers, b_stride, false);
    at += move_text(body + at, opcode[2], f, "load.c", c_columns, space, f->c, "%c", f->c_registers,
                    c_stride, false);
    sprintf(opcode[3], "wmma.mma.sync.aligned.%s.%s.m%dn%dk%d.%s", a_columns ? "col" : "row",
            b_columns ? "col" : "row", f->m, f->n, f->k, f->product);
    char d[128], a[128], b_text[128], c[128];
    registers_text(d, "%d", f->d_registers);
    registers_text(a, "%a", f->a_registers);
    registers_text(b_text, "%b", f->b_registers);
    registers_text(c, "%c", f->c_registers);
    at += sprintf(body + at, "%s %s, %s, %s, %s; ", opcode[3], d, a, b_text, c);
    move_text(body + at, opcode[4], f, "store.d", c_columns, space, f->d, "%d", f->d_registers,
              c_stride, true);

    Bench *b = bench_open(body, CHECK_MEM | CHECK_INIT | CHECK_SYNC);
    const Insn *insns[5];
    for (int k = 0; k < 5; k++) {
        insns[k] = bench_insn(b, opcode[k]);
        ck_assert_msg(insns[k]->run != trap_unsupported, "%s: %s", opcode[k],
                      (const char *)insns[k]->extra);
    }
    enum { PART = 4096 };
    uint8_t *memory[4];
    uint64_t address[4];
    static const int part[] = {0, 1, 2, 3};
    if (in_shared) { // a larger one than the bench's
        b->cta.shared_size = SHARED_RESERVED + 4 * PART;
        free(b->cta.shared), free(b->cta.shared_written);
        b->cta.shared = aligned_alloc(64, b->cta.shared_size);
        b->cta.shared_written = calloc(1, b->cta.shared_size);
    }
    for (int k = 0; k < 4; k++) {
        if (in_shared) {
            memory[k] = b->cta.shared + SHARED_RESERVED + part[k] * PART;
            address[k] =
                (variant % 3 ? SHARED_WINDOW : 0) + SHARED_RESERVED + (uint64_t)part[k] * PART;
        } else {
            address[k] = global_alloc(b->gpu.memory, PART, MEMORY_DEVICE, NULL);
            memory[k] = global_pointer(b->gpu.memory, address[k]);
        }
        memset(memory[k], 0xee, PART);
    }
    // Only the matrices themselves are written: padding that is read would be found.
    double x[32][16], y[16][32], z[32][32];
    bool is_unsigned = f->ab[0] == 'u';
#define PUT(k, type, columns, stride, row, column, value)                                          \
    do {                                                                                           \
        uint64_t code = to_memory(type, value);                                                    \
        uint8_t *to = at_place(memory[k], type, columns, stride, row, column);                     \
        memcpy(to, &code, type_bytes(type));                                                       \
        if (in_shared)                                                                             \
            memset(b->cta.shared_written + (to - b->cta.shared), 1, type_bytes(type));             \
        else                                                                                       \
            global_mark_written(b->gpu.memory, address[k] + (uint64_t)(to - memory[k]),            \
                                type_bytes(type));                                                 \
    } while (0)
    for (int r = 0; r < f->m; r++)
        for (int k = 0; k < f->k; k++) {
            x[r][k] = (double)(noise() % 15) - (is_unsigned ? 0 : 7);
            PUT(0, f->ab, a_columns, a_stride, r, k, x[r][k]);
        }
    for (int k = 0; k < f->k; k++)
        for (int n = 0; n < f->n; n++) {
            y[k][n] = (double)(noise() % 15) - (is_unsigned ? 0 : 7);
            PUT(1, f->ab, b_columns, b_stride, k, n, y[k][n]);
        }
    for (int r = 0; r < f->m; r++)
        for (int n = 0; n < f->n; n++) {
            z[r][n] = (double)(noise() % 15) - 7;
            PUT(2, f->c, c_columns, c_stride, r, n, z[r][n]);
        }
    for (int k = 0; k < 5; k++) {
        static const int operand[] = {0, 1, 2, -1, 3};
        if (k != 3) bench_stride(b, insns[k], address[operand[k]], 0);
        ck_assert_int_eq(bench_run(b, insns[k], FULL_MASK), FLOW_NEXT);
    }
    // Where there are more registers than elements, they repeat.
    int a_used = f->m * f->k * (int)type_bytes(f->ab) / (f->ab[1] == '6' ? 256 : 128);
    for (int r = a_used; r < f->a_registers; r++)
        for (int l = 0; l < 32; l++)
            ck_assert_uint_eq(lane_get(b, insns[0]->rows[r], 4, l),
                              lane_get(b, insns[0]->rows[r % a_used], 4, l));
    ck_assert_int_eq(bench_findings(b, NULL), 0);
    for (int r = 0; r < f->m; r++)
        for (int n = 0; n < f->n; n++) {
            double want = z[r][n];
            for (int k = 0; k < f->k; k++) want += x[r][k] * y[k][n];
            const uint8_t *from = at_place(memory[3], f->d, c_columns, c_stride, r, n);
            ck_assert_msg(from_memory(f->d, from) == want, "row %d column %d: %g, not %g", r, n,
                          from_memory(f->d, from), want);
        }
    // The padding between the lines is as it was.
    int untouched = 0, bytes = (int)type_bytes(f->d);
    for (int k = 0; k < PART; k++) untouched += memory[3][k] == 0xee;
    ck_assert_int_ge(untouched, PART - f->m * f->n * bytes);
    ck_assert_int_eq(insns[3]->flops, 2 * f->m * f->n * f->k / 32);
    bench_close(b);
}
END_TEST

static const char *const LOAD_C = "wmma.load.c.sync.aligned.row.m16n16k16.shared.f32";

// A bench with a load of C whose stride is in a register.
static Bench *open_load_c(const Insn **i) {
    char body[512];
    snprintf(body, sizeof body,
             ".reg .b32 %%r<8>, %%p, %%s; %s "
             "{%%r0, %%r1, %%r2, %%r3, %%r4, %%r5, %%r6, %%r7}, [%%p], %%s;",
             LOAD_C);
    Bench *b = bench_open(body, CHECK_MEM | CHECK_SYNC);
    *i = bench_insn(b, LOAD_C);
    return b;
}

START_TEST(wmma_checks) {
    static const struct {
        uint64_t address;
        int64_t lane_step;
        uint32_t stride;
        FindingKind kind;
    } cases[] = {{SHARED_RESERVED + 8, 0, 16, FINDING_MISALIGNED},
                 {SHARED_RESERVED, 0, 18, FINDING_MISALIGNED},
                 {SHARED_RESERVED, 64, 16, FINDING_DIVERGENT},
                 {SHARED_RESERVED, 0, 68, FINDING_OUT_OF_BOUNDS}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const Insn *i;
        Bench *b = open_load_c(&i);
        bench_stride(b, i, cases[k].address, cases[k].lane_step);
        for (int l = 0; l < 32; l++) lane_set(b, i->b, 4, l, cases[k].stride);
        ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_FAULT);
        const Finding *found;
        ck_assert_int_eq(bench_findings(b, &found), 1);
        ck_assert_int_eq(found->kind, cases[k].kind);
        bench_close(b);
    }
}
END_TEST

// PTX's alignment, which GPUs don't insist on: a note, and the matrix is loaded.
START_TEST(wmma_alignment_is_a_note) {
    const Insn *i;
    Bench *b = open_load_c(&i);
    bench_stride(b, i, SHARED_RESERVED + 16, 0);
    for (int l = 0; l < 32; l++) lane_set(b, i->b, 4, l, 20);
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_NEXT);
    const Finding *found;
    ck_assert_int_eq(bench_findings(b, &found), 1);
    ck_assert_int_eq(found->kind, FINDING_LINT);
    bench_close(b);
}
END_TEST

Suite *suite_matrix_move(void) {
    Suite *s = suite_create("matrix data movers");
    TCase *t = tcase_create("ldmatrix");
    tcase_add_loop_test(t, ldmatrix_loads, 0, 12);
    tcase_add_loop_test(t, stmatrix_stores, 0, 6);
    tcase_add_test(t, movmatrix_transposes);
    tcase_add_loop_test(t, ldmatrix_loads_bytes, 0, sizeof byte_loads / sizeof *byte_loads);
    tcase_add_loop_test(t, stmatrix_stores_bytes, 0, 3);
    tcase_add_test(t, bank_conflicts);
    tcase_add_test(t, rows_are_checked);
    tcase_add_test(t, unwritten_rows_are_found);
    tcase_add_test(t, generic_rows_must_be_shared);
    suite_add_tcase(s, t);
    t = tcase_create("wmma");
    tcase_add_loop_test(t, wmma_multiplies, 0, 12 * WMMA_COUNT);
    tcase_add_test(t, wmma_checks);
    tcase_add_test(t, wmma_alignment_is_a_note);
    suite_add_tcase(s, t);
    return s;
}
