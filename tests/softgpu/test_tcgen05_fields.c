// Descriptors and addresses of tcgen05 of which one field is wrong: for products of all kinds and
// operands of all layouts, every field is given its neighbours, or all its other values. Each must
// be found, or come out in D; where PTX says that a field doesn't count, it must not.
#include "tensor_product.h"

Suite *suite_tcgen05_fields(void);

// In the order of Product; what is 0 is left out.
static const Product products[] = {
    {"f16", "f16", "f16", "f32", 128, 64, 1, .a_code = 2, .b_code = 2},
    {"f16", "bf16", "bf16", "f32", 64, 32, 1, .b_code = 4, .b_mn = true},
    {"f16", "f16", "f16", "f16", 128, 128, 1, .a_code = 6, .b_code = 2, .a_mn = true, .b_mn = true},
    {"f16", "f16", "f16", "f32", 64, 32, 1, .a_mn = true, .b_mn = true},
    {"tf32", "tf32", "tf32", "f32", 128, 64, 1, .a_code = 1, .b_code = 1, .a_mn = true,
     .b_mn = true},
    {"tf32", "tf32", "tf32", "f32", 64, 16, 1, .a_code = 4, .b_code = 6},
    {"f8f6f4", "e4m3", "e5m2", "f32", 128, 32, 1, .a_code = 2},
    {"f8f6f4", "e2m3", "e3m2", "f16", 64, 16, 1, .a_code = 4, .b_code = 6, .a_mn = true,
     .b_mn = true},
    {"i8", "s8", "u8", "s32", 128, 32, 1, .a_code = 2, .b_code = 2},
    {"f16", "f16", "f16", "f32", 128, 64, 1, .a_tensor = true, .b_code = 2},
    {"f16", "f16", "f16", "f32", 64, 64, 1, .ws = true, .a_code = 2, .b_code = 2},
    {"f16", "f16", "f16", "f32", 256, 32, 2, .a_code = 2, .b_code = 2},
    {"f16", "f16", "f16", "f32", 128, 32, 2, .a_code = 2},
    {"mxf8f6f4.block_scale", "e4m3", "e5m2", "f32", 128, 64, 1, .a_code = 2, .b_code = 2,
     .block = 32, .id_a = 1, .id_b = 3, .e8 = true},
    {"mxf4.block_scale", "e2m1p", "e2m1p", "f32", 128, 64, 1, .a_code = 2, .block = 32, .id_a = 2,
     .e8 = true},
    {"mxf4nvf4.block_scale.scale_vec::4X", "e2m1p", "e2m1p", "f32", 128, 64, 1, .a_tensor = true,
     .b_code = 2, .block = 16},
    {"f16", "f16", "f16", "f32", 128, 32, 1, .a_code = 2, .b_code = 4, .sparse = true},
    {"tf32", "tf32", "tf32", "f32", 64, 32, 1, .a_tensor = true, .b_code = 1, .b_mn = true,
     .sparse = true, .selector = 1},
    {"f8f6f4", "e4m3", "e4m3", "f32", 128, 32, 1, .a_mn = true, .sparse = true},
    {"i8", "s8", "s8", "s32", 32, 64, 1, .ws = true, .a_code = 2, .b_code = 2, .sparse = true},
    {"mxf8f6f4.block_scale", "e4m3", "e5m2", "f32", 256, 32, 2, .a_code = 2, .b_code = 2,
     .block = 64, .id_a = 1, .id_b = 3, .e8 = true, .sparse = true},
};
enum { PRODUCTS = sizeof products / sizeof *products };

static void lay_out(const Product *p) {
    set_up();
    fill(p);
}

static void expect_not_silent(const Product *p, const char *what, unsigned long long right,
                              unsigned long long wrong) {
    ck_assert_msg(!is_silent(p), "%s M %d N %d: %s 0x%llx in place of 0x%llx", p->kind, p->m, p->n,
                  what, wrong, right);
}

// ---- instruction descriptors

typedef struct {
    const char *name;
    int first, bits;
} Field;
static const Field plain_fields[] = {
    {"sparsity selector", 0, 2},
    {"sparse", 2, 1},
    {"saturate", 3, 1},
    {"type of D", 4, 2},
    {"bit 6", 6, 1},
    {"type of A", 7, 3},
    {"type of B", 10, 3},
    {"negate A", 13, 1},
    {"negate B", 14, 1},
    {"major A", 15, 1},
    {"major B", 16, 1},
    {"N", 17, 6},
    {"bit 23", 23, 1},
    {"M", 24, 5},
    {"bit 29", 29, 1},
    {"shift", 30, 2},
};
static const Field scaled_fields[] = {
    {"bits 0-1", 0, 2},        {"sparse", 2, 1},    {"bit 3", 3, 1},       {"scale of B", 4, 2},
    {"bit 6", 6, 1},           {"type of A", 7, 3}, {"type of B", 10, 3},  {"negate A", 13, 1},
    {"negate B", 14, 1},       {"major A", 15, 1},  {"major B", 16, 1},    {"N", 17, 6},
    {"type of scales", 23, 1}, {"M", 24, 5},        {"scale of A", 29, 2}, {"bit 31", 31, 1},
};
enum { FIELDS = 16 };

// All bits are in one field.
START_TEST(no_gaps) {
    for (int scaled = 0; scaled < 2; scaled++) {
        const Field *f = scaled ? scaled_fields : plain_fields;
        for (int k = 0, next = 0; k < FIELDS; next += f[k++].bits)
            ck_assert_int_eq(f[k].first, next);
        ck_assert_int_eq(f[FIELDS - 1].first + f[FIELDS - 1].bits, 32);
    }
}
END_TEST

START_TEST(instruction) {
    const Product *p = &products[_i];
    const Field *fields = p->block ? scaled_fields : plain_fields;
    lay_out(p);
    const uint32_t right = number[0];
    ck_assert_msg(is_silent(p), "%s: as it should be", p->kind);
    for (int k = 0; k < FIELDS; k++) {
        const Field *f = &fields[k];
        uint32_t mask = (1u << f->bits) - 1, value = right >> f->first & mask;
        // Integers that don't overflow come out the same: see `saturates`.
        if (!strcmp(f->name, "saturate") && !strcmp(p->kind, "i8")) continue;
        for (uint32_t wrong = 0; wrong <= mask; wrong++) {
            bool next = wrong + 1 == value || wrong == value + 1;
            bool is_number = !strcmp(f->name, "M") || !strcmp(f->name, "N");
            if (wrong == value || (is_number && !next)) continue;
            set_up();
            number[0] = (right & ~(mask << f->first)) | wrong << f->first;
            expect_not_silent(p, f->name, value, wrong);
        }
    }
}
END_TEST

// What the bit does that `instruction` leaves out.
START_TEST(saturates) {
    const Product *p = &products[8];
    for (int bit = 0; bit < 2; bit++) {
        lay_out(p);
        number[0] |= (uint32_t)bit << 3;
        run_product(p,
                    "mov.u32 %x0, 0x7fffffff;\n"
                    "tcgen05.st.sync.aligned.32x32b.x1.b32 [%own], {%x0};\n" WAIT_ST SYNC,
                    "tcgen05.st.sync.aligned.32x32b.x32.b32 [%own], {%x0, %x0, %x0, %x0, %x0, %x0, "
                    "%x0, %x0, %x0, %x0, %x0, %x0, %x0, %x0, %x0, %x0, %x0, %x0, %x0, %x0, %x0, "
                    "%x0, %x0, %x0, %x0, %x0, %x0, %x0, %x0, %x0, %x0, %x0};\n" WAIT_ST SYNC
                    "@%one tcgen05.mma.cta_group::1.kind::i8 [%tm], %a, %b, %i, %on;\n");
        expect_nothing("saturates");
        int over = 0;
        for (int m = 0; m < p->m; m++)
            for (int n = 0; n < p->n; n++) {
                int64_t sum = 0x7fffffff + (int64_t)sum_of(p, m, n);
                uint32_t want = bit && sum > 0x7fffffff ? 0x7fffffff : (uint32_t)sum;
                ck_assert_uint_eq(cells[0][n][m], want);
                over += sum > 0x7fffffff;
            }
        ck_assert_int_gt(over, 100);
    }
}
END_TEST

// ---- descriptors of operands in shared memory

// Does the leading byte offset count? (PTX ISA 9.7.16.3.1: in swizzled K-major layouts it doesn't;
// in MN-major ones from the second line of rows on.)
static bool leading_counts(const Product *p, bool is_a) {
    int code = is_a ? p->a_code : p->b_code, bits = bits_of(is_a ? p->a : p->b);
    bool mn = is_a ? p->a_mn : p->b_mn;
    int rows = (is_a ? p->m : p->n) / p->group;
    if (code == 0) return true;
    return mn && rows * bits / 8 > line_bytes(code);
}

static void try_descriptor(const Product *p, int which, const char *name, uint64_t right,
                           uint64_t wrong) {
    set_up();
    operand[which] = wrong;
    expect_not_silent(p, name, right, wrong);
    operand[which] = right;
}

START_TEST(shared) {
    const Product *p = &products[_i];
    static const struct {
        const char *name;
        int first;
    } numbers[] = {{"start", 0}, {"leading byte offset", 16}, {"stride byte offset", 32}};
    lay_out(p);
    for (int which = p->a_tensor ? 1 : 0; which < 2; which++) {
        const uint64_t right = operand[which];
        for (int k = 0; k < 3; k++)
            for (int by = -1; by <= 1; by += 2) {
                uint64_t value = right >> numbers[k].first & 0x3fff;
                uint64_t mask = 0x3fffull << numbers[k].first;
                uint64_t wrong = (right & ~mask) | ((value + (uint64_t)by) & 0x3fff)
                                                       << numbers[k].first;
                if (k != 1 || leading_counts(p, which == 0)) {
                    try_descriptor(p, which, numbers[k].name, right, wrong);
                    continue;
                }
                set_up();
                operand[which] = wrong;
                ck_assert_msg(is_silent(p), "%s: the leading byte offset of %c counts", p->kind,
                              'A' + which);
                operand[which] = right;
            }
        for (int bit = 14; bit < 61; bit++) { // what is constant, and the base offset
            bool constant = bit == 14 || bit == 15 || bit == 30 || bit == 31 || bit >= 46;
            if (constant) try_descriptor(p, which, "bit", right, right ^ 1ull << bit);
        }
        for (uint64_t code = 0; code < 8; code++)
            if (code != right >> 61)
                try_descriptor(p, which, "swizzle", right, (right & ~(7ull << 61)) | code << 61);
    }
}
END_TEST

// ---- addresses in tensor memory

START_TEST(addresses) {
    const Product *p = &products[_i];
    static const struct {
        const char *name, *move, *back;
    } wrong[] = {
        {"D a column on", "add.u32 %tm, %tm, 1;\n", "sub.u32 %tm, %tm, 1;\n"},
        {"D 16 lanes on", "add.u32 %tm, %tm, 0x100000;\n", "sub.u32 %tm, %tm, 0x100000;\n"},
        {"D 32 lanes on", "add.u32 %tm, %tm, 0x200000;\n", "sub.u32 %tm, %tm, 0x200000;\n"},
        {"A a column on", "add.u32 %r10, %r10, 1;\n", ""},
        {"A a column back", "sub.u32 %r10, %r10, 1;\n", ""},
        {"A a lane on", "add.u32 %r10, %r10, 0x10000;\n", ""},
        {"scales of A a column on", "add.u32 %r11, %r11, 1;\n", ""},
        {"scales of A 32 lanes on", "add.u32 %r11, %r11, 0x200000;\n", ""},
        {"scales of B a column back", "sub.u32 %r12, %r12, 1;\n", ""},
        {"scales of B a lane on", "add.u32 %r12, %r12, 0x10000;\n", ""},
        {"metadata a column on", "add.u32 %r13, %r13, 1;\n", ""},
        {"metadata two columns back", "sub.u32 %r13, %r13, 2;\n", ""},
        {"metadata 16 lanes on", "add.u32 %r13, %r13, 0x100000;\n", ""},
    };
    lay_out(p);
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        char text[1000], why[200];
        const char *name = wrong[k].name;
        if (!p->a_tensor && *name == 'A') continue;
        if (!p->block && *name == 's') continue;
        if (!p->sparse && *name == 'm') continue;
        set_up();
        snprintf(text, sizeof text, "%s%s%s", wrong[k].move, mma(p, "%off"), wrong[k].back);
        run_product(p, text, "");
        ck_assert_msg(findings_get(0) || !is_product(p, 1, why), "%s M %d N %d: %s", p->kind, p->m,
                      p->n, name);
    }
}
END_TEST

Suite *suite_tcgen05_fields(void) {
    Suite *suite = suite_create("tcgen05_fields");
    TCase *tests = tcase_create("tcgen05_fields");
    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, no_gaps);
    tcase_add_loop_test(tests, instruction, 0, PRODUCTS);
    tcase_add_test(tests, saturates);
    tcase_add_loop_test(tests, shared, 0, PRODUCTS);
    tcase_add_loop_test(tests, addresses, 0, PRODUCTS);
    suite_add_tcase(suite, tests);
    return suite;
}
