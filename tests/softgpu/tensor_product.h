// Products of tcgen05.mma for tests: what a Product says is laid out in shared and tensor memory by
// the PTX ISA's figures, written down once more, run by tensor_kernel.h, and compared with sums of
// small whole numbers, element by element.
//
// A sparse A has metadata of its own for each row and chunk, by all bits that mean something. They
// lie as CUTLASS's strides have it (tmem_e_frg and tmem_e_frg_ws in its
// cute/atom/mma_traits_sm100_frag.hpp), which are copied here as numbers.
#ifndef SOFTGPU_TEST_TENSOR_PRODUCT_H
#define SOFTGPU_TEST_TENSOR_PRODUCT_H

#include "tensor_kernel.h"

#include "softgpu/execute/formats.h"

typedef struct {
    const char *kind; // and its scales: "mxf4.block_scale.scale_vec::2X"
    const char *a, *b, *d;
    int m, n, group;
    bool ws, a_tensor;
    int a_code, b_code; // swizzles, as in bits 61-63
    bool a_mn, b_mn;
    int block;      // elements of k with one scale; 0: none
    int id_a, id_b; // of scales
    bool e8;        // scales are UE8M0
    int negate;     // 1 A, 2 B
    bool sparse;
    int selector; // of metadata
} Product;

enum { A_AT = SMEM, B_AT = SMEM + 0x4000, A_COLUMN = 256, DEPTH_MOST = 128 };
enum { PRODUCT_REGISTERS = 22 }; // of A 8, of scales 4 and 8, of metadata 2

// ---- numbers

static inline int bits_of(const char *type) {
    if (!strcmp(type, "e2m1p")) return 4;
    if (strstr(type, "16")) return 16;
    return strstr(type, "32") ? 32 : 8;
}

static inline uint32_t code_of(const char *type, double x) {
    static const struct {
        const char *name;
        const Format *format;
    } formats[] = {{"f16", &FORMAT_F16},   {"bf16", &FORMAT_BF16}, {"e4m3", &FORMAT_E4M3},
                   {"e5m2", &FORMAT_E5M2}, {"e2m3", &FORMAT_E2M3}, {"e3m2", &FORMAT_E3M2},
                   {"e2m1", &FORMAT_E2M1}, {"e2m1p", &FORMAT_E2M1}};
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++)
        if (!strcmp(type, formats[k].name))
            return round_to_format(x, formats[k].format, ROUND_NEAREST, true);
    if (!strcmp(type, "s8") || !strcmp(type, "u8")) return (uint32_t)(int)x & 0xff;
    if (!strcmp(type, "s32")) return (uint32_t)(int)x;
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static inline uint32_t type_code(const char *type) {
    static const struct {
        const char *name;
        uint32_t code;
    } codes[] = {{"f16", 0},  {"bf16", 1}, {"tf32", 2}, {"e4m3", 0}, {"e5m2", 1}, {"e2m3", 3},
                 {"e3m2", 4}, {"e2m1", 5}, {"u8", 0},   {"s8", 1},   {"e2m1p", 1}};
    for (size_t k = 0; k < sizeof codes / sizeof *codes; k++)
        if (!strcmp(type, codes[k].name)) return codes[k].code;
    return 0;
}

static inline int stored_of(const Product *p) { // elements of a row of A
    return 256 / bits_of(p->a);                 // 32 bytes
}
static inline int depth_of(const Product *p) {
    return stored_of(p) * (p->sparse ? 2 : 1);
}

static inline int number_at(const char *type, int r, int k, int salt) {
    int x = (r * 7 + k * 5 + r * k + 3 * salt + r / 32) % 5;
    return strcmp(type, "u8") ? x - 2 : 60 * x; // those of 8 bits without a sign use all of them
}

// Elements of A in a chunk of metadata: 2 for tf32, 8 of mxf4, else 4.
static inline int chunk_of(const Product *p) {
    int bits = bits_of(p->a);
    return bits == 32 ? 2 : bits == 4 ? 8 : 4;
}
static inline uint32_t metadata_at(const Product *p, int m, int chunk) {
    static const uint8_t pairs[] = {0x4, 0x8, 0xc, 0x9, 0xd, 0x6, 0xe};
    int pick = m * 3 + chunk * 5 + m / 32;
    return bits_of(p->a) == 32 ? (pick % 7 % 2 ? 0xe : 0x4) : pairs[pick % 7];
}
// Where in k the element number `at` of those of row m that are stored belongs.
static inline int place_of(const Product *p, int m, int at) {
    if (!p->sparse) return at;
    int chunk = chunk_of(p), stored = chunk / 2, q = at / stored, in = at % stored;
    uint32_t bits = metadata_at(p, m, q);
    if (chunk == 2) return 2 * q + (bits == 0xe);
    int run = stored / 2; // elements that stay together
    return chunk * q + (int)(in < run ? bits & 3 : bits >> 2) * run + in % run;
}
static inline int a_stored(const Product *p, int m, int at) {
    return number_at(p->a, m, place_of(p, m, at), 1);
}
static inline int b_at(const Product *p, int n, int k) {
    return number_at(p->b, n, k, 2);
}
// Scales are 1/2, 1 and 2.
static inline int scale_log(const Product *p, int r, int k, int salt) {
    return p->block ? (r + r / 32 + k / p->block + salt) % 3 - 1 : 0;
}
static inline uint32_t scale_code(const Product *p, int log) {
    return p->e8 ? (uint32_t)(127 + log) : (uint32_t)(0x38 + 8 * log);
}

// ---- operands in shared memory

// B of a sparse product, K-major without a swizzle, has four pieces of 16 bytes of k: further apart
// than describe() puts two.
enum { PIECE = 0x2000, ROWS_8 = 128 };
static inline bool is_wide(const Product *p) {
    return p->sparse && p->b_code == 0 && !p->b_mn;
}
static inline uint64_t describe_b(const Product *p) {
    uint64_t usual = describe(B_AT, p->b_code, p->b_mn);
    if (!is_wide(p)) return usual;
    return (usual & ~(0x3fffull << 16 | 0x3fffull << 32)) | (uint64_t)PIECE >> 4 << 16 |
           (uint64_t)ROWS_8 >> 4 << 32;
}

static inline void put(const Product *p, int block, uint32_t start, int code, bool mn,
                       const char *type, int r, int k, int value) {
    int bits = !strcmp(type, "e2m1")                            ? 4
               : !strcmp(type, "e2m3") || !strcmp(type, "e3m2") ? 6
                                                                : bits_of(type);
    int small = !strcmp(type, "e2m1") || bits == 6, bit;
    uint32_t code_bits = code_of(type, value), at;
    if (small) { // packed at the start of 16 bytes that stand for 16 elements
        int inner = mn ? r : k, first = inner / 16 * 16;
        at = address_of(start, code, mn, 8, mn ? first : r, mn ? k : first, &bit);
        bit = inner % 16 * bits;
        at += (uint32_t)bit / 8;
        bit %= 8;
    } else {
        at = address_of(start, code, mn, bits, r, k, &bit);
    }
    if (is_wide(p) && start == B_AT) { // pieces and groups of rows where describe_b says
        int piece = k * (small ? 8 : bits) / 128;
        at = B_AT + (at - B_AT) % 16 + (uint32_t)(piece * PIECE + r / 8 * ROWS_8 + r % 8 * 16);
    }
    ck_assert_uint_lt(at - SMEM + 4, IMAGE);
    uint8_t *to = &image[block][at - SMEM];
    for (int b = 0; b < bits; b++) {
        int n = bit + b;
        to[n / 8] = (uint8_t)((to[n / 8] & ~(1 << n % 8)) | (code_bits >> b & 1) << n % 8);
    }
}

// ---- where things lie in tensor memory

// Of D: block, lane and column.
static inline void place_d(const Product *p, int m, int n, int *block, int *lane, int *column) {
    *block = 0, *lane = m, *column = n; // D
    if (p->group == 2 && p->m == 256) { // A
        *block = m / 128, *lane = m % 128;
    } else if (p->group == 2 && p->sparse) { // C
        *block = m / 64, *lane = 32 * (m % 64 / 16) + m % 16;
    } else if (p->group == 2) { // B
        *block = m / 64, *lane = m % 64 + 64 * (n / (p->n / 2)), *column = n % (p->n / 2);
    } else if (p->ws && p->m == 64) { // E
        *lane = m + 64 * (n / (p->n / 2)), *column = n % (p->n / 2);
    } else if (p->ws && p->m == 32) { // G
        *lane = m + 32 * (n / (p->n / 4)), *column = n % (p->n / 4);
    } else if (p->m == 64) { // F
        *lane = 32 * (m / 16) + m % 16;
    }
}

// The row of a block's A that stands in a lane, -1 if none.
static inline int row_in_lane(const Product *p, int lane) {
    int rows = p->m / p->group;
    if (!p->ws && rows == 64 && (p->group == 1 || p->sparse))
        return lane % 32 < 16 ? lane / 32 * 16 + lane % 32 : -1;
    return lane % rows;
}

// The metadata of chunk q of a block's row r: the lane, if rows take all lanes, and the bit of 64.
// (CUTLASS counts elements of k, of which a lane's next one comes 128 further.)
static inline void place_metadata(const Product *p, int r, int q, int *lane, int *bit) {
    int bits = bits_of(p->a), k = q * chunk_of(p), v;
    if (bits == 16)
        v = r % 8 + 2048 * (r / 8 % 2) + 16 * (r / 16) + 128 * (k % 16) + 8 * (k / 16);
    else if (bits == 32)
        v = r % 8 + 1024 * (r / 8 % 2) + 16 * (r / 16) + 128 * (k % 8) + 8 * (k / 8);
    else
        v = r + 128 * k;
    *lane = v % 128;
    *bit = bits == 32 ? 2 * (v / 128) : bits == 4 ? v / 128 / 2 : v / 128;
    if (bits >= 16) *bit += 32 * p->selector;
}

// Into the registers of all threads that bring it: of 64 rows in half of the lanes to 16 threads of
// every 32; with .ws in copies.
static inline void fill_metadata(const Product *p) {
    int rows = p->m / p->group;
    bool half = !p->ws && rows == 64;
    for (int block = 0; block < p->group; block++)
        for (int r = 0; r < rows; r++)
            for (int q = 0; q < depth_of(p) / chunk_of(p); q++) {
                int lane, bit;
                place_metadata(p, r, q, &lane, &bit);
                if (half) lane = lane / 16 * 32 + lane % 16;
                for (int t = lane; t < THREADS; t += p->ws ? rows : THREADS)
                    in[block][t][20 + bit / 32] |= metadata_at(p, block * rows + r, q) << bit % 32;
            }
}

static inline void fill_tensor(const Product *p) {
    int depth = depth_of(p), bits = bits_of(p->a);
    for (int block = 0; block < p->group; block++)
        for (int t = 0; t < THREADS; t++) {
            uint32_t *words = in[block][t];
            int row = row_in_lane(p, t);
            for (int k = 0; k < stored_of(p) && row >= 0; k++) {
                uint32_t code = code_of(p->a, a_stored(p, block * p->m / p->group + row, k));
                // Smaller ones stand in the middle of 8 bits.
                if (!strcmp(p->a, "e2m1")) code <<= 2;
                if (!strcmp(p->a, "e2m3") || !strcmp(p->a, "e3m2")) code <<= 1;
                words[k * bits / 32] |= code << k * bits % 32;
            }
            for (int j = 0; j < 8; j++)
                for (int b = 0; p->block && b < depth / p->block; b++) {
                    int r = 32 * j + t % 32;
                    uint32_t a =
                        scale_code(p, scale_log(p, block * p->m / p->group + r, b * p->block, 0));
                    uint32_t c = scale_code(p, scale_log(p, r, b * p->block, 1));
                    if (j < 4) words[8 + j] |= a << 8 * (p->id_a + b);
                    words[12 + j] |= c << 8 * (p->id_b + b);
                }
        }
}

static inline uint32_t instruction_of(const Product *p) {
    uint32_t bits = type_code(p->a) << 7 | type_code(p->b) << 10 | (uint32_t)p->negate << 13 |
                    (uint32_t)p->a_mn << 15 | (uint32_t)p->b_mn << 16 | (uint32_t)p->n >> 3 << 17 |
                    (uint32_t)p->m >> 4 << 24 | (uint32_t)p->sparse << 2 | (uint32_t)p->selector;
    if (p->block)
        return bits | (uint32_t)p->id_b << 4 | (uint32_t)p->id_a << 29 | (uint32_t)p->e8 << 23;
    return bits | (!strcmp(p->d, "f16") ? 0 : !strcmp(p->d, "f32") ? 1 : 2) << 4;
}

static inline void fill(const Product *p) {
    memset(image, 0xff, sizeof image);
    memset(in, 0, sizeof in);
    operand[0] = describe(A_AT, p->a_code, p->a_mn);
    operand[1] = describe_b(p);
    number[0] = instruction_of(p);
    int rows = p->m / p->group, columns_each = p->n / p->group;
    for (int block = 0; block < p->group; block++)
        for (int k = 0; k < depth_of(p); k++) {
            for (int m = 0; m < rows && !p->a_tensor && k < stored_of(p); m++)
                put(p, block, A_AT, p->a_code, p->a_mn, p->a, m, k,
                    a_stored(p, block * rows + m, k));
            for (int n = 0; n < columns_each; n++)
                put(p, block, B_AT, p->b_code, p->b_mn, p->b, n, k,
                    b_at(p, block * columns_each + n, k));
        }
    fill_tensor(p);
    if (p->sparse) fill_metadata(p);
}

// ---- running one

// The product, under a predicate, to be followed by enable-input-d.
static inline const char *mma(const Product *p, const char *more) {
    static char text[4][400];
    static int next;
    char *to = text[next = (next + 1) % 4];
    sprintf(to, "@%%lead tcgen05.mma%s%s.cta_group::%d.kind::%s [%%tm], %s, %%b%s, %%i%s, %s;\n",
            p->ws ? ".ws" : "", p->sparse ? ".sp" : "", p->group, p->kind,
            p->a_tensor ? "[%r10]" : "%a", p->sparse ? ", [%r13]" : "",
            p->block ? ", [%r11], [%r12]" : "", more);
    return to;
}

// Brings A and scales to tensor memory, and lets thread 0 of the first block go on.
#define BRING                                                                                      \
    "add.u32 %r10, %tm, 256; add.u32 %r11, %tm, 300; add.u32 %r12, %tm, 310; add.u32 %r13, %tm, "  \
    "330;\n"                                                                                       \
    "tcgen05.st.sync.aligned.32x32b.x8.b32 [%own + 256], {%x0, %x1, %x2, %x3, %x4, %x5, %x6, "     \
    "%x7};\n"                                                                                      \
    "tcgen05.st.sync.aligned.32x32b.x4.b32 [%own + 300], {%x8, %x9, %x10, %x11};\n"                \
    "tcgen05.st.sync.aligned.32x32b.x8.b32 [%own + 310], {%x12, %x13, %x14, %x15, %x16, %x17, "    \
    "%x18, %x19};\n"                                                                               \
    "tcgen05.st.sync.aligned.32x32b.x2.b32 [%own + 330], {%x20, %x21};\n" WAIT_ST BEFORE           \
    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n" AFTER

static inline const char *finish(const Product *p) {
    return p->group == 1
               ? COMMIT("0") AWAIT("W", "0", "0")
               : "mov.b16 %h0, 3; @%lead tcgen05.commit.cta_group::2.mbarrier::arrive::one."
                 "shared::cluster.multicast::cluster.b64 [bar], %h0;\n" AWAIT("W", "0", "0");
}

static inline int run_product(const Product *p, const char *first, const char *second) {
    static char body[1 << 16];
    blocks = p->group;
    snprintf(body, sizeof body, "%s%s%s%s", BRING, first, second, finish(p));
    return run_tensor(PRODUCT_REGISTERS, body);
}

static inline double sum_of(const Product *p, int m, int n) {
    static int row[DEPTH_MOST];
    double sum = 0;
    memset(row, 0, sizeof row);
    for (int at = 0; at < stored_of(p); at++) row[place_of(p, m, at)] = a_stored(p, m, at);
    for (int k = 0; k < depth_of(p); k++) {
        int log = scale_log(p, m, k, 0) + scale_log(p, n, k, 1);
        sum += row[k] * b_at(p, n, k) * (log < 0 ? 1.0 / (1 << -log) : 1 << log);
    }
    return p->negate == 1 || p->negate == 2 ? -sum : sum;
}

// Is D `times` the product everywhere, and nothing else written?
static inline bool is_product(const Product *p, double times, char *why) {
    static bool mine[BLOCKS][TMEM_COLUMNS][TMEM_LANES];
    memset(mine, 0, sizeof mine);
    for (int m = 0; m < p->m; m++)
        for (int n = 0; n < p->n; n++) {
            int block, lane, column;
            place_d(p, m, n, &block, &lane, &column);
            uint32_t want = code_of(p->d, times * sum_of(p, m, n)),
                     got = cells[block][column][lane];
            if (!strcmp(p->d, "f16")) got &= 0xffff;
            bool zeros = strcmp(p->d, "s32") && !(want & 0x7fff7fff) && !(got & 0x7fff7fff);
            mine[block][column][lane] = true;
            if (got == want || zeros) continue;
            sprintf(why, "%s M %d N %d (%d, %d), block %d, lane %d, column %d: %08x, not %08x",
                    p->kind, p->m, p->n, m, n, block, lane, column, got, want);
            return false;
        }
    for (int block = 0; block < p->group; block++)
        for (int c = 0; c < A_COLUMN; c++)
            for (int l = 0; l < TMEM_LANES; l++)
                if ((written[block][c][l / 32] >> l % 32 & 1) != mine[block][c][l]) {
                    sprintf(why, "%s M %d N %d: written is block %d, lane %d, column %d", p->kind,
                            p->m, p->n, block, l, c);
                    return false;
                }
    return true;
}

static const AsyncOrder orders[] = {ASYNC_TIMED, ASYNC_EARLY, ASYNC_LATE, ASYNC_RANDOM};

// Is it right in all orders, first without what is in D, then on top of it?
static inline void check_product(const Product *p, int number) {
    char why[200];
    for (int way = 0; way < 4; way++) {
        set_up();
        options.async = orders[(number + way) % 4];
        if (way == 1) options.numerics = NUMERICS_HARDWARE;
        if (way == 2) options.checks = 0;
        fill(p);
        ck_assert_int_eq(run_product(p, mma(p, "%off"), way % 2 ? mma(p, "%on") : ""), 0);
        expect_nothing(p->kind);
        ck_assert_msg(is_product(p, way % 2 ? 2 : 1, why), "%s", why);
    }
}

// Neither a finding, nor anything wrong?
static inline bool is_silent(const Product *p) {
    char why[200];
    run_product(p, mma(p, "%off"), "");
    return !findings_get(0) && is_product(p, 1, why);
}

// The cycles of a kernel of so many products, one behind the other.
static inline double product_cycles(const Product *p, int count) {
    static char many[1 << 15];
    many[0] = 0;
    for (int k = 0; k < count; k++) strcat(many, mma(p, "%off"));
    set_up();
    options.timing = true;
    fill(p);
    run_product(p, many, "");
    expect_nothing(p->kind);
    return stats.cycles;
}

#endif
