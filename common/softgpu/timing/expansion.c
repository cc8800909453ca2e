// Looks instructions up in the expansion table.
#include "softgpu/timing/expansion.h"

#include <string.h>

#include "softgpu/execute/form.h"
#include "softgpu/execute/special.h"

// ---- words of an opcode

// Does the word [word, word + length) stand among the modifiers of `text`?
static bool has(const char *text, const char *word, size_t length) {
    for (const char *dot = strchr(text, '.'); dot; dot = strchr(dot + 1, '.')) {
        if (!strncmp(dot + 1, word, length) && (dot[1 + length] == '.' || !dot[1 + length]))
            return true;
    }
    return false;
}

bool text_has(const char *text, const char *word) {
    return has(text, word, strlen(word));
}

bool text_is(const char *text, const char *opcode) {
    size_t length = strlen(opcode);
    return !strncmp(text, opcode, length) && (text[length] == '.' || !text[length]);
}

// Do all words of a row ("f32 !ftz") fit?
static bool words_fit(const char *words, const char *text) {
    while (*words) {
        bool absent = *words == '!';
        words += absent;
        size_t length = strcspn(words, " ");
        if (has(text, words, length) == absent) return false;
        words += length;
        words += *words == ' ';
    }
    return true;
}

// Compares the opcode of `text` with another.
static int compare_opcode(const char *text, const char *opcode) {
    size_t length = strcspn(text, ".");
    int order = strncmp(text, opcode, length);
    return order ? order : -(opcode[length] != 0);
}

const ExpansionRow *expansion_row(const char *text, int capability) {
    int low = 0, high = expansion_row_count; // the first row of the opcode lies in [low, high]
    while (low < high) {
        int middle = (low + high) / 2;
        if (compare_opcode(text, expansion_rows[middle].opcode) > 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < expansion_row_count; low++) {
        const ExpansionRow *row = &expansion_rows[low];
        if (compare_opcode(text, row->opcode)) break;
        if (capability >= row->since && words_fit(row->words, text)) return row;
    }
    return NULL;
}

// ---- special cases

static const Stage special_stage[STAGES_MAX] = {{OP_SPECIAL, 1}};
static const Stage product_stage[STAGES_MAX] = {{OP_MMA, 1}};
// fp8 on Hopper's mma.sync: A and B are widened to f16 (2 F2FP a register), then two products.
static const Stage widened_stages[STAGES_MAX] = {{OP_ALU, 12}, {OP_MMA, 2}};
static const Stage matrix_stage[STAGES_MAX] = {{OP_MATRIX, 1}};

static int stages_of(const Stage *stages) {
    int count = 0;
    while (count < STAGES_MAX && stages[count].count) count++;
    return count;
}

// mma.sync and wmma.mma: machine products of at most 16 x 8 x 16 in f16, or the same bytes of
// others.
static Expansion product(const Insn *i, const char *text, const GpuFigures *f, const GpuTiming *t) {
    RateKind kind = RATE_F16;
    double flops = (double)i->flops * 32, most = 4096;
    bool fp8 = text_has(text, "e4m3") || text_has(text, "e5m2");
    if (text_has(text, "f64")) {
        kind = RATE_F64;
        most = 512;
    } else if (text_has(text, "tf32")) {
        kind = RATE_TF32;
        most = 2048;
    } else if (text_has(text, "s8") || text_has(text, "u8")) {
        kind = RATE_INT8;
        most = 8192;
    }
    double count = flops <= most ? 1 : flops / most;
    Expansion e = {.stages = fp8 ? widened_stages : product_stage, .repeat = (uint16_t)count};
    e.stage_count = (uint8_t)stages_of(e.stages);
    e.interval = (uint16_t)mma_interval(t, f, kind, flops / count);
    e.latency = (uint16_t)(kind == RATE_F64 ? t->mma_f64_latency : t->mma_latency);
    return e;
}

// ldmatrix, stmatrix: 128 bytes of shared memory for each 8x8 matrix of 16-bit elements.
static Expansion matrices(const char *text, WaitKind wait) {
    int count = text_has(text, "x4") ? 4 : text_has(text, "x2") ? 2 : 1;
    return (Expansion){.stages = matrix_stage,
                       .stage_count = 1,
                       .wait = (uint8_t)wait,
                       .interval = (uint16_t)count};
}

// One machine instruction of the pipe that the form names.
static Expansion by_pipe(uint8_t pipe) {
    static const Stage stages[PIPE_COUNT][STAGES_MAX] = {
        [PIPE_FMA] = {{OP_FMA, 1}},   [PIPE_ALU] = {{OP_ALU, 1}},
        [PIPE_IMAD] = {{OP_IMAD, 1}}, [PIPE_FP64] = {{OP_FP64, 1}},
        [PIPE_MUFU] = {{OP_MUFU, 1}}, [PIPE_CONVERT] = {{OP_CONVERT, 1}},
        [PIPE_LSU] = {{OP_LOAD, 1}},  [PIPE_TENSOR] = {{OP_MMA, 1}},
        [PIPE_TMA] = {{OP_BULK, 1}},  [PIPE_CONTROL] = {{OP_BRANCH, 1}},
    };
    WaitKind wait = pipe == PIPE_LSU ? WAIT_RESULT : pipe == PIPE_TMA ? WAIT_QUEUE : WAIT_NOT;
    return (Expansion){.stages = stages[pipe],
                       .stage_count = (uint8_t)stages_of(stages[pipe]),
                       .wait = (uint8_t)wait};
}

Expansion expand(const Insn *i, const char *text, const GpuFigures *f, const GpuTiming *t) {
    // Hidden instructions carry the text of the one that they stand before.
    // Nothing passes a clock.
    if (i->run && i->run == read_special)
        return (Expansion){
            .stages = special_stage,
            .stage_count = 1,
            .wait = (uint8_t)(special_is_clock((SpecialRegister)i->imm) ? WAIT_HERE : WAIT_NOT)};
    if (i->run && i->run == local_address) return (Expansion){0};
    if (text_is(text, "mma") || (text_is(text, "wmma") && text_has(text, "mma")))
        return product(i, text, f, t);
    if (text_is(text, "ldmatrix")) return matrices(text, WAIT_RESULT);
    if (text_is(text, "stmatrix")) return matrices(text, WAIT_NOT);

    // Fields by constants: the mask is known.
    bool constant = i->b != ROW_NONE && i->b & ROW_CONSTANT;
    if (constant && (text_is(text, "bfe") || text_is(text, "bfi"))) {
        static const Stage field[STAGES_MAX] = {{OP_ALU, 1}, {OP_ALU, 1}};
        return (Expansion){.stages = field, .stage_count = 2};
    }
    // A mov that packs two halves into a register merges them; all others rename.
    if (text_is(text, "mov")) {
        static const Stage merge[STAGES_MAX] = {{OP_ALU, 1}};
        bool packs = i->row_count == 2 && i->imm == 16 && i->d != ROW_NONE && text_has(text, "b32");
        return (Expansion){.stages = merge, .stage_count = packs};
    }
    const ExpansionRow *row = expansion_row(text, 10 * f->capability_major + f->capability_minor);
    if (!row) return by_pipe(i->pipe);
    Expansion e = {
        .stages = row->stages, .stage_count = (uint8_t)stages_of(row->stages), .wait = row->wait};
    bool exponential = text_is(text, "ex2");
    if (e.stage_count && row->stages[e.stage_count - 1].op == OP_MUFU && !exponential)
        e.latency = (uint16_t)t->mufu_other;
    return e;
}
