// Atomics: every operation and type against a model in plain C, lane order, contention; and the
// functions of the device runtime (printf, malloc, free, assert).
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

Suite *suite_atomic(void);

static uint32_t bits_of(float f) {
    uint32_t b;
    memcpy(&b, &f, 4);
    return b;
}

static float float_of(uint32_t b) {
    float f;
    memcpy(&f, &b, 4);
    return f;
}

static uint64_t row_lane(Bench *b, Row r, unsigned width, int lane) {
    uint64_t value = 0;
    memcpy(&value, (uint8_t *)row(&b->warp, r) + (size_t)lane * width, width);
    return value;
}

static void set_row(Bench *b, Row r, unsigned width, const uint64_t value[32]) {
    for (int l = 0; l < 32; l++)
        memcpy((uint8_t *)row(&b->warp, r) + (size_t)l * width, &value[l], width);
}

// ---- one operation on one value: old, operand (and new) → what memory must hold

static const struct OneCase {
    const char *name; // after atom.shared. or atom.global.
    unsigned size;
    uint64_t old, operand, replacement, want;
} ones[] = {
    {"add.u32", 4, 0xffffffff, 2, 0, 1},
    {"add.s32", 4, 0x7fffffff, 1, 0, 0x80000000},
    {"add.u64", 8, 0xffffffff, 1, 0, 0x100000000},
    {"min.s32", 4, 5, 0xfffffffe, 0, 0xfffffffe},
    {"min.u32", 4, 5, 0xfffffffe, 0, 5},
    {"max.s32", 4, 5, 0xfffffffe, 0, 5},
    {"max.u32", 4, 5, 0xfffffffe, 0, 0xfffffffe},
    {"min.s64", 8, 5, ~0ull, 0, ~0ull},
    {"max.u64", 8, 5, ~0ull, 0, ~0ull},
    {"inc.u32", 4, 4, 5, 0, 5},
    {"inc.u32", 4, 5, 5, 0, 0},
    {"inc.u32", 4, 9, 5, 0, 0},
    {"dec.u32", 4, 4, 5, 0, 3},
    {"dec.u32", 4, 0, 5, 0, 5},
    {"dec.u32", 4, 9, 5, 0, 5},
    {"and.b32", 4, 0xff00ff00, 0x0ff00ff0, 0, 0x0f000f00},
    {"or.b32", 4, 0xff00ff00, 0x0ff00ff0, 0, 0xfff0fff0},
    {"xor.b64", 8, 0xff00ff00ff, 0x0ff00ff00f, 0, 0xf0f0f0f0f0},
    {"exch.b32", 4, 1, 2, 0, 2},
    {"exch.b64", 8, 1, 2ull << 40, 0, 2ull << 40},
    {"cas.b32", 4, 7, 7, 9, 9},
    {"cas.b32", 4, 7, 8, 9, 7},
    {"cas.b64", 8, 7ull << 33, 7ull << 33, 9, 9},
    {"cas.b16", 2, 0x1234, 0x1234, 0xabcd, 0xabcd},
    {"cas.b16", 2, 0x1234, 0x1235, 0xabcd, 0x1234},
    {"add.f32", 4, 0x3f800000, 0x40000000, 0, 0x40400000},
    {"add.f64", 8, 0x3ff0000000000000, 0x4000000000000000, 0, 0x4008000000000000},
    {"add.noftz.f16", 2, 0x3c00, 0x4000, 0, 0x4200},  // 1 + 2
    {"add.noftz.f16", 2, 0x0001, 0x0001, 0, 0x0002},  // subnormals stay
    {"add.noftz.f16", 2, 0x7bff, 0x7bff, 0, 0x7c00},  // overflow
    {"add.noftz.f16", 2, 0x6800, 0x3c00, 0, 0x6800},  // 2048 + 1: to even
    {"add.noftz.bf16", 2, 0x3f80, 0x4000, 0, 0x4040}, // 1 + 2
    {"add.noftz.bf16", 2, 0x4380, 0x3f80, 0, 0x4380}, // 256 + 1: to even
    {"add.noftz.f16x2", 4, 0x3c004000, 0x40003c00, 0, 0x42004200},
    {"add.noftz.bf16x2", 4, 0x3f804000, 0x40003f80, 0, 0x40404040},
};

START_TEST(operations) {
    const struct OneCase *c = &ones[_i];
    for (int global = 0; global < 2; global++) {
        char text[80], body[400];
        bool cas = c->size && !strncmp(c->name, "cas", 3);
        snprintf(text, sizeof text, "atom.%s.%s", global ? "global" : "shared", c->name);
        snprintf(body, sizeof body, ".reg .b64 %%a; .reg .b%u %%d, %%b, %%c; %s %%d, [%%a], %%b%s;",
                 8 * c->size, text, cas ? ", %c" : "");
        Bench *b = bench_open(body, CHECK_MEM);
        const Insn *i = bench_insn(b, text);
        uint64_t at =
            global ? global_alloc(b->gpu.memory, 64, MEMORY_DEVICE, NULL) : SHARED_RESERVED + 16;
        uint8_t *place = global ? global_pointer(b->gpu.memory, at) : b->cta.shared + at;
        memcpy(place, &c->old, 8);
        uint64_t operands[32], news[32];
        for (int l = 0; l < 32; l++) operands[l] = c->operand, news[l] = c->replacement;
        bench_stride(b, i, at, 0);
        set_row(b, i->rows[1], c->size, operands);
        if (cas) set_row(b, i->rows[2], c->size, news);
        ck_assert_int_ne(bench_run(b, i, 1u << 11), FLOW_FAULT);
        uint64_t after = 0, before = c->old;
        memcpy(&after, place, c->size);
        ck_assert_msg(after == c->want, "%s: %llx, not %llx", text, (unsigned long long)after,
                      (unsigned long long)c->want);
        ck_assert_uint_eq(row_lane(b, i->rows[0], c->size, 11), before);
        // Bytes beside the value stand.
        if (c->size < 8)
            ck_assert_mem_eq(place + c->size, (uint8_t *)&before + c->size, 8 - c->size);
        ck_assert_uint_eq(b->warp.stores, c->want != c->old);
        bench_close(b);
    }
}
END_TEST

// All lanes count on one address: each gets a different old value, in lane order under schedule 0.
START_TEST(contention) {
    Bench *b = bench_open(".reg .b32 %a, %d; atom.shared.add.u32 %d, [%a], 3;", CHECK_MEM);
    const Insn *i = bench_insn(b, "atom.shared.add.u32");
    uint32_t *place = (uint32_t *)(b->cta.shared + SHARED_RESERVED);
    *place = 100;
    bench_stride(b, i, SHARED_RESERVED, 0);
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_NEXT);
    ck_assert_uint_eq(*place, 100 + 32 * 3);
    for (uint32_t l = 0; l < 32; l++)
        ck_assert_uint_eq(row_lane(b, i->rows[0], 4, (int)l), 100 + 3 * l);

    // Under another schedule: some other order, and every value once.
    b->settings.schedule = 7;
    *place = 0;
    bench_run(b, i, FULL_MASK);
    uint32_t seen = 0, in_order = 0;
    for (uint32_t l = 0; l < 32; l++) {
        uint64_t old = row_lane(b, i->rows[0], 4, (int)l);
        ck_assert_uint_eq(old % 3, 0);
        seen |= 1u << old / 3;
        in_order += old == 3 * l;
    }
    ck_assert_uint_eq(seen, FULL_MASK);
    ck_assert_uint_lt(in_order, 32);
    bench_close(b);
}
END_TEST

// PTX: f32 sums flush subnormals in global memory and keep them in shared memory.
START_TEST(subnormal_sums) {
    for (int shared = 0; shared < 2; shared++) {
        Bench *b =
            bench_open(".reg .b64 %a; .reg .f32 %v; red.relaxed.gpu.add.f32 [%a], %v;", CHECK_MEM);
        const Insn *i = bench_insn(b, "red.relaxed.gpu.add.f32");
        uint64_t at = global_alloc(b->gpu.memory, 64, MEMORY_DEVICE, NULL);
        uint8_t *place = global_pointer(b->gpu.memory, at);
        if (shared) {
            at = SHARED_WINDOW + SHARED_RESERVED;
            place = b->cta.shared + SHARED_RESERVED;
        }
        uint32_t tiny = 1, sum;
        uint64_t operands[32];
        for (int l = 0; l < 32; l++) operands[l] = 1;
        memcpy(place, &tiny, 4);
        bench_stride(b, i, at, 0);
        set_row(b, i->rows[1], 4, operands);
        bench_run(b, i, 7);
        memcpy(&sum, place, 4);
        ck_assert_uint_eq(sum, shared ? 4 : 0);
        bench_close(b);
    }
}
END_TEST

START_TEST(vectors) {
    Bench *b = bench_open(".reg .b64 %a; .reg .f32 %d<4>, %v<4>;\n"
                          "atom.global.v4.f32.add {%d0,%d1,%d2,%d3}, [%a], {%v0,%v1,%v2,%v3};\n"
                          ".reg .b32 %h<2>; red.global.gpu.max.noftz.v2.f16x2 [%a], {%h0,%h1};",
                          CHECK_MEM);
    const Insn *i = bench_insn(b, "atom.global.v4.f32.add");
    uint64_t at = global_alloc(b->gpu.memory, 1024, MEMORY_DEVICE, NULL), operands[32];
    float *place = (float *)global_pointer(b->gpu.memory, at);
    for (int k = 0; k < 128; k++) place[k] = (float)k;
    bench_stride(b, i, at, 16);
    for (unsigned k = 0; k < 4; k++) {
        for (uint32_t l = 0; l < 32; l++) operands[l] = bits_of((float)(l * 10 + k));
        set_row(b, i->rows[4 + k], 4, operands);
    }
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_NEXT);
    for (int l = 0; l < 32; l++)
        for (int k = 0; k < 4; k++) {
            ck_assert_float_eq(place[4 * l + k], (float)(4 * l + k + l * 10 + k));
            ck_assert_float_eq(float_of((uint32_t)row_lane(b, i->rows[k], 4, l)),
                               (float)(4 * l + k));
        }

    const Insn *max = bench_insn(b, "red.global.gpu.max.noftz.v2.f16x2");
    uint32_t *halves = (uint32_t *)place;
    for (int k = 0; k < 64; k++) halves[k] = 0x3c00c000; // 1, -2
    bench_stride(b, max, at, 8);
    for (int l = 0; l < 32; l++) operands[l] = 0x4000bc00; // 2, -1
    set_row(b, max->rows[2], 4, operands);
    for (int l = 0; l < 32; l++) operands[l] = 0x00007e00; // 0, NaN: the number wins
    set_row(b, max->rows[3], 4, operands);
    bench_run(b, max, FULL_MASK);
    ck_assert_uint_eq(halves[62], 0x4000bc00);
    ck_assert_uint_eq(halves[63], 0x3c00c000);
    bench_close(b);
}
END_TEST

START_TEST(wide_exchange) {
    Bench *b = bench_open(".reg .b32 %a; .reg .b128 %d, %b, %c;\n"
                          "atom.shared.cas.b128 %d, [%a], %b, %c;\n"
                          "atom.shared.exch.b128 %d, [%a], %b;",
                          CHECK_MEM);
    const Insn *cas = bench_insn(b, "atom.shared.cas.b128");
    const Insn *exch = bench_insn(b, "atom.shared.exch.b128");
    uint64_t *place = (uint64_t *)(b->cta.shared + SHARED_RESERVED);
    place[0] = 1, place[1] = 2;
    uint64_t *operand = row(&b->warp, cas->rows[1]), *next = row(&b->warp, cas->rows[2]);
    operand[0] = 1, operand[1] = 3, next[0] = 10, next[1] = 20;
    bench_stride(b, cas, SHARED_RESERVED, 0);
    ck_assert_int_eq(bench_run(b, cas, 1), FLOW_YIELD); // the high halves differ
    ck_assert_uint_eq(place[0], 1);
    operand[1] = 2;
    ck_assert_int_eq(bench_run(b, cas, 1), FLOW_NEXT);
    ck_assert_uint_eq(place[0], 10);
    ck_assert_uint_eq(place[1], 20);
    operand = row(&b->warp, exch->rows[1]);
    operand[0] = 5, operand[1] = 6;
    bench_stride(b, exch, SHARED_RESERVED, 0);
    bench_run(b, exch, 1);
    ck_assert_uint_eq(place[1], 6);
    ck_assert_uint_eq(((uint64_t *)row(&b->warp, exch->rows[0]))[1], 20);
    bench_close(b);
}
END_TEST

START_TEST(atomics_need_global_or_shared_memory) {
    Bench *b = bench_open(".reg .b64 %a; .reg .b32 %d; atom.add.u32 %d, [%a], 1;", CHECK_MEM);
    const Insn *i = bench_insn(b, "atom.add.u32");
    bench_stride(b, i, LOCAL_WINDOW, 0);
    ck_assert_int_eq(bench_run(b, i, FULL_MASK), FLOW_FAULT);
    const Finding *f;
    bench_findings(b, &f);
    ck_assert_int_eq(f->kind, FINDING_WRONG_SPACE);
    bench_close(b);
}
END_TEST

// ---- the device runtime

// A call as lowering makes it: arguments of 8 bytes each at frame offset 0, 512, …
typedef struct {
    Bench *bench;
    Insn insn;
    Call call;
    struct CallArgument arguments[5];
    uint8_t frame[32 * 8 * 6];
} RuntimeCall;

static void runtime_call(RuntimeCall *c, Handler *handler, int count) {
    memset(c, 0, sizeof *c);
    c->bench = bench_open("", CHECK_MEM | CHECK_INIT);
    free(c->bench->warp.frame);
    c->bench->warp.frame = c->frame;
    for (int k = 0; k < count; k++)
        c->arguments[k] =
            (struct CallArgument){.from = 256 * (uint32_t)k, .from_stride = 8, .size = 8};
    c->call = (Call){.builtin = handler, .argument_count = count, .arguments = c->arguments};
    c->call.result = (struct CallArgument){.to = 256 * 5, .to_stride = 8, .size = 8};
    c->insn.extra = &c->call;
    c->insn.run = handler;
}

static void runtime_close(RuntimeCall *c) {
    c->bench->warp.frame = NULL;
    bench_close(c->bench);
}

static void set_argument(RuntimeCall *c, int k, int lane, uint64_t value) {
    memcpy(c->frame + 256 * k + 8 * lane, &value, 8);
}

static uint64_t result_of(RuntimeCall *c, int lane) {
    uint64_t value;
    memcpy(&value, c->frame + 256 * 5 + 8 * lane, 8);
    return value;
}

static uint64_t device_string(Bench *b, const char *text) {
    uint64_t address = global_alloc(b->gpu.memory, strlen(text) + 1, MEMORY_MODULE, NULL);
    memcpy(global_pointer(b->gpu.memory, address), text, strlen(text) + 1);
    return address;
}

// Runs a handler with standard output in a file; returns what it printed.
static char *printed_by(RuntimeCall *c, uint32_t mask, Flow *flow) {
    static char text[4096];
    FILE *file = tmpfile();
    fflush(stdout);
    int saved = dup(1);
    dup2(fileno(file), 1);
    *flow = bench_run(c->bench, &c->insn, mask);
    fflush(stdout);
    dup2(saved, 1);
    close(saved);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

START_TEST(printf_formats) {
    RuntimeCall c;
    Flow flow;
    runtime_call(&c, builtin_vprintf, 2);
    Bench *b = c.bench;
    uint64_t format = device_string(b, "%d %5.2f|%-4s|%c %llx %% %u %hhd %*d %p %q\n");
    uint64_t name = device_string(b, "ab");
    struct __attribute__((packed)) {
        int32_t d, pad;
        double f;
        uint64_t s;
        int32_t c, pad2;
        uint64_t x;
        uint32_t u;
        int32_t hh, width, star;
        uint64_t p;
    } packed = {-7, 0, 2.5, name, 'x', 0, 0x123456789aull, 4000000000u, 0x1ff, 4, 42, 0x10};
    for (int l = 0; l < 32; l++) {
        memcpy(b->warp.local + l * BENCH_LOCAL, &packed, sizeof packed);
        *(int32_t *)(b->warp.local + l * BENCH_LOCAL) = -7 - l;
        set_argument(&c, 0, l, format);
        set_argument(&c, 1, l, LOCAL_WINDOW);
    }
    const char *text = printed_by(&c, 5, &flow);
    ck_assert_int_eq(flow, FLOW_NEXT);
    ck_assert_str_eq(text, "-7  2.50|ab  |x 123456789a % 4000000000 -1   42 0x10 %q\n"
                           "-9  2.50|ab  |x 123456789a % 4000000000 -1   42 0x10 %q\n");
    ck_assert_int_eq((int)result_of(&c, 2), 10); // arguments, as CUDA's printf counts
    runtime_close(&c);

    runtime_call(&c, builtin_vprintf, 2);
    set_argument(&c, 0, 0, device_string(c.bench, "%s"));
    set_argument(&c, 1, 0, LOCAL_WINDOW);
    *(uint64_t *)c.bench->warp.local = 0x1234; // no string there
    printed_by(&c, 1, &flow);
    ck_assert_int_eq(flow, FLOW_FAULT);
    ck_assert_int_eq(bench_findings(c.bench, NULL), 1);
    runtime_close(&c);
}
END_TEST

START_TEST(device_heap) {
    RuntimeCall c;
    runtime_call(&c, builtin_malloc, 1);
    Bench *b = c.bench;
    for (int l = 0; l < 32; l++) set_argument(&c, 0, l, l == 3 ? 0 : 16 + (uint64_t)l);
    ck_assert_int_eq(bench_run(b, &c.insn, FULL_MASK), FLOW_NEXT);
    ck_assert_uint_eq(result_of(&c, 3), 0);
    for (int l = 0; l < 32; l++) {
        if (l == 3) continue;
        const Allocation *a = global_find(b->gpu.memory, result_of(&c, l));
        ck_assert_ptr_nonnull(a);
        ck_assert_uint_eq(a->size, 16 + (uint64_t)l);
        ck_assert_int_eq(a->kind, MEMORY_HEAP);
    }
    // Freed twice: the second time is a finding.
    for (int l = 0; l < 32; l++) set_argument(&c, 0, l, result_of(&c, l));
    c.insn.run = builtin_free;
    ck_assert_int_eq(bench_run(b, &c.insn, FULL_MASK), FLOW_NEXT);
    ck_assert_int_eq(bench_run(b, &c.insn, 2), FLOW_FAULT);
    const Finding *f;
    ck_assert_int_eq(bench_findings(b, &f), 1);
    ck_assert_int_eq(f->kind, FINDING_USE_AFTER_FREE);
    runtime_close(&c);
}
END_TEST

START_TEST(assertions) {
    RuntimeCall c;
    runtime_call(&c, builtin_assertfail, 5);
    set_argument(&c, 0, 4, device_string(c.bench, "i < n"));
    set_argument(&c, 1, 4, device_string(c.bench, "sum.cu"));
    set_argument(&c, 2, 4, 42);
    set_argument(&c, 3, 4, device_string(c.bench, "void sum(int)"));
    ck_assert_int_eq(bench_run(c.bench, &c.insn, 1u << 4), FLOW_FAULT);
    const Finding *f;
    ck_assert_int_eq(bench_findings(c.bench, &f), 1);
    ck_assert_str_eq(f->what, "sum.cu:42: void sum(int): assertion `i < n' failed");
    ck_assert_int_eq(findings_launch_error(), 710);
    runtime_close(&c);
}
END_TEST

Suite *suite_atomic(void) {
    Suite *s = suite_create("atomics and the device runtime");
    TCase *c = tcase_create("atomics");
    tcase_add_loop_test(c, operations, 0, sizeof ones / sizeof *ones);
    tcase_add_test(c, contention);
    tcase_add_test(c, subnormal_sums);
    tcase_add_test(c, vectors);
    tcase_add_test(c, wide_exchange);
    tcase_add_test(c, atomics_need_global_or_shared_memory);
    suite_add_tcase(s, c);
    c = tcase_create("runtime");
    tcase_add_test(c, printf_formats);
    tcase_add_test(c, device_heap);
    tcase_add_test(c, assertions);
    suite_add_tcase(s, c);
    return s;
}
