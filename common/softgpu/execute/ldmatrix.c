// Data movers of matrix instructions: ldmatrix, stmatrix, movmatrix (PTX ISA 9.7.14.5.15-17).
//
// Memory holds the rows of small matrices, 16 bytes each, at addresses that lanes name: lane 8 j + i
// row i of matrix j (16 j + i where matrices have 16 rows). Without .trans lane 4 i + t gets bytes
// 4 t to 4 t + 3 of row i: so the eight rows, one behind the other, are just the register's 32
// lanes. All the rest is a transposition in front of that, or behind it.
#include "softgpu/execute/fragment.h"
#include "softgpu/execute/memory_access.h"

enum { ROW_BYTES = 16, MATRICES_MAX = 4 };

typedef enum {
    SHAPE_M8N8, // 8 x 8 of 16 bits
    SHAPE_M8N8_TRANS,
    SHAPE_M16N16,      // 16 x 16 of 8 bits, transposed
    SHAPE_M8N16,       // 8 x 16, unpacked from 4 or 6 bits
    SHAPE_M16N8_TRANS, // stmatrix: 16 x 8 of 8 bits, stored transposed
} MoverShape;

typedef struct {
    MoverShape shape;
    uint8_t matrices;
    uint8_t packed_bits; // 4 or 6: what elements have in memory; 0: as in registers
} MatrixMover;

// ---- eight rows of eight 16-bit elements

typedef uint16_t Eight __attribute__((vector_size(16)));

// x[i][j] = x[j][i], by exchanging ever larger blocks.
static inline void transpose16(Eight x[8]) {
    Eight y[8], z[8];
    for (int k = 0; k < 4; k++) {
        y[2 * k] = __builtin_shuffle(x[2 * k], x[2 * k + 1], (Eight){0, 8, 2, 10, 4, 12, 6, 14});
        y[2 * k + 1] =
            __builtin_shuffle(x[2 * k], x[2 * k + 1], (Eight){1, 9, 3, 11, 5, 13, 7, 15});
    }
    for (int k = 0; k < 8; k++) {
        int other = k ^ 2;
        z[k] = k & 2 ? __builtin_shuffle(y[other], y[k], (Eight){2, 3, 10, 11, 6, 7, 14, 15})
                     : __builtin_shuffle(y[k], y[other], (Eight){0, 1, 8, 9, 4, 5, 12, 13});
    }
    for (int k = 0; k < 4; k++) {
        x[k] = __builtin_shuffle(z[k], z[k + 4], (Eight){0, 1, 2, 3, 8, 9, 10, 11});
        x[k + 4] = __builtin_shuffle(z[k], z[k + 4], (Eight){4, 5, 6, 7, 12, 13, 14, 15});
    }
}

// ---- addresses

// Finds the rows that the first `count` lanes name in shared memory. false after a finding.
static bool place_rows(Warp *w, const Insn *i, int count, AccessKind kind, Places *places) {
    uint32_t address[WARP_SIZE], mask = FULL_MASK >> (WARP_SIZE - count);
    if (i->space == SPACE_NONE) {
        uint64_t generic[WARP_SIZE];
        wide_addresses(w, i, generic);
        uint32_t elsewhere = mask & ~generic_spaces(generic, mask).shared;
        if (elsewhere) {
            int l = __builtin_ctz(elsewhere);
            finding(w, i, l, FINDING_WRONG_SPACE, "Pass the address of a __shared__ variable.",
                    "uses 0x%llx, which is no shared-memory address",
                    (unsigned long long)generic[l]);
            return false;
        }
        window_addresses(generic, address);
    } else if (!narrow_addresses(w, i, mask, address)) {
        return false;
    }
    // Packed rows end in padding, which nobody has to write.
    unsigned bytes = ((const MatrixMover *)i->extra)->packed_bits ? ROW_BYTES / 2 : ROW_BYTES;
    Access access = {.bytes = bytes, .kind = kind, .together = true};
    if (bytes < ROW_BYTES && !check_shared(w, i, address, ROW_BYTES, mask, false)) return false;
    if (!place_shared(w, i, address, mask, access, places)) return false;
    places_spread(places, bytes);
    return true;
}

// ---- loads

// Element `column` of a row whose elements have `bits` bits in memory, in the container of 8 bits
// that matrix instructions expect: 4-bit numbers stand in bits 2 to 5.
static uint8_t unpacked(const uint8_t *row, int column, int bits) {
    if (!bits) return row[column];
    if (bits == 4) return (uint8_t)((row[column / 2] >> 4 * (column % 2) & 0xf) << 2);
    int at = 6 * column;
    unsigned two = row[at / 8] | (unsigned)row[at / 8 + 1] << 8; // 12 bytes are used, 16 are there
    return two >> at % 8 & 0x3f;
}

// A matrix of bytes: register `half` of a transposed 16 x 16, or an 8 x 16 as it stands.
static void load_bytes(const MatrixMover *op, uint8_t *const *rows, int half, uint32_t *out) {
    bool transposed = op->shape == SHAPE_M16N16;
    for (int l = 0; l < WARP_SIZE; l++) {
        int g = l / 4, t = l % 4;
        out[l] = 0;
        for (int e = 0; e < 4; e++) {
            int r = transposed ? 4 * t + e : g, c = transposed ? g + 8 * half : 4 * t + e;
            out[l] |= (uint32_t)unpacked(rows[r], c, op->packed_bits) << 8 * e;
        }
    }
}

static Flow load_matrix(Warp *w, const Insn *i, uint32_t mask) {
    const MatrixMover *op = i->extra;
    uint32_t all;
    Flow flow = gather_warp(w, i, mask, &all);
    if (flow != FLOW_NEXT) return flow;
    int rows = op->shape == SHAPE_M16N16 ? 16 : 8;
    Places places;
    if (!place_rows(w, i, rows * op->matrices, ACCESS_READ, &places)) return FLOW_FAULT;
    // All rows are read before anything is written: the address may be a destination too.
    Eight x[MATRICES_MAX][8];
    if (op->shape == SHAPE_M16N16 || op->shape == SHAPE_M8N16) {
        int halves = rows / 8;
        for (int k = 0; k < op->matrices * halves; k++)
            load_bytes(op, &places.at[rows * (k / halves)], k % halves, (uint32_t *)x[k]);
    } else {
        for (int j = 0; j < op->matrices; j++) {
            for (int k = 0; k < 8; k++) memcpy(&x[j][k], places.at[8 * j + k], ROW_BYTES);
            if (op->shape == SHAPE_M8N8_TRANS) transpose16(x[j]);
        }
    }
    for (unsigned r = 0; r < i->row_count; r++) put32(w, i->rows[r], x[r], all);
    return FLOW_NEXT;
}

// ---- stores

static Flow store_matrix(Warp *w, const Insn *i, uint32_t mask) {
    const MatrixMover *op = i->extra;
    uint32_t all;
    Flow flow = gather_warp(w, i, mask, &all);
    if (flow != FLOW_NEXT) return flow;
    Places places;
    if (!place_rows(w, i, 8 * op->matrices, ACCESS_WRITE, &places)) return FLOW_FAULT;
    for (int j = 0; j < op->matrices; j++) {
        Eight x[8];
        const uint8_t *bytes = row(w, i->rows[j]);
        memcpy(x, bytes, sizeof x);
        if (op->shape == SHAPE_M16N8_TRANS) {
            // Byte 2 h + e of lane (g, t) is row g + 8 h, column 2 t + e.
            uint8_t stored[8][ROW_BYTES];
            for (int l = 0; l < WARP_SIZE; l++)
                for (int b = 0; b < 4; b++)
                    stored[2 * (l % 4) + b % 2][l / 4 + 8 * (b / 2)] = bytes[4 * l + b];
            memcpy(x, stored, sizeof x);
        } else if (op->shape == SHAPE_M8N8_TRANS) {
            transpose16(x);
        }
        for (int k = 0; k < 8; k++) memcpy(places.at[8 * j + k], &x[k], ROW_BYTES);
    }
    w->stores++;
    w->sm->changes++;
    return FLOW_NEXT;
}

static Flow transpose_registers(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all;
    Flow flow = gather_warp(w, i, mask, &all);
    if (flow != FLOW_NEXT) return flow;
    Eight x[8];
    memcpy(x, row(w, i->a), sizeof x);
    transpose16(x);
    put32(w, i->d, x, all);
    return FLOW_NEXT;
}

// ---- lowering

static const char *lower_mover(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    MatrixMover *op = kernel_alloc(l, sizeof *op);
    bool store = p->opcode[0] == 's', trans = false, wide = false;
    *op = (MatrixMover){.matrices = 1};
    for (int k = 0; k < p->modifier_count; k++) {
        const char *name = p->modifiers[k];
        trans |= !strcmp(name, "trans");
        wide |= !strcmp(name, "m16n16") || !strcmp(name, "m8n16") || !strcmp(name, "m16n8");
        if (!strcmp(name, "m16n16")) op->shape = SHAPE_M16N16;
        if (!strcmp(name, "m8n16")) op->shape = SHAPE_M8N16;
        if (!strcmp(name, "m16n8")) op->shape = SHAPE_M16N8_TRANS;
        if (name[0] == 'x' && !name[2]) op->matrices = (uint8_t)(name[1] - '0');
        if (!strcmp(name, "b4x16_p64")) op->packed_bits = 4;
        if (!strcmp(name, "b6x16_p32")) op->packed_bits = 6;
        if (!strncmp(name, "shared", 6)) i->space = SPACE_SHARED;
    }
    if (trans && !wide) op->shape = SHAPE_M8N8_TRANS;
    i->extra = op;
    i->run = store ? store_matrix : load_matrix;
    i->size = ROW_BYTES;
    int registers = op->matrices * (op->shape == SHAPE_M16N16 ? 2 : 1);
    Row *rows = kernel_alloc(l, (size_t)registers * sizeof *rows);
    const char *why = fragment_rows(l, &p->operands[store ? 1 : 0], registers, 32, !store, rows);
    if (why) return why;
    i->rows = rows;
    i->row_count = (uint16_t)registers;
    return address_operand(l, &p->operands[store ? 0 : 1], i);
}

#define LOAD(mods)                                                                                 \
    {                                                                                              \
        .name = "ldmatrix", .modifiers = "sync aligned shared|shared::cta? " mods,                 \
        .operands = "v m", .pipe = PIPE_LSU, .flags = INSN_ALIGNED, .lower = lower_mover           \
    }
#define STORE(mods)                                                                                \
    {                                                                                              \
        .name = "stmatrix", .modifiers = "sync aligned shared|shared::cta? " mods,                 \
        .operands = "m v", .pipe = PIPE_LSU, .flags = INSN_ALIGNED, .lower = lower_mover           \
    }

const Form matrix_move_forms[] = {
    LOAD("m8n8 x1|x2|x4 trans? b16"),
    LOAD("m16n16 x1|x2 trans b8"),
    LOAD("m16n16 x1|x2 trans b8x16 b4x16_p64|b6x16_p32"),
    LOAD("m8n16 x1|x2|x4 b8x16 b4x16_p64|b6x16_p32"),
    STORE("m8n8 x1|x2|x4 trans? b16"),
    STORE("m16n8 x1|x2|x4 trans b8"),
    {"movmatrix", "sync aligned m8n8 trans b16", "d32 a32", transpose_registers, PIPE_ALU, 0,
     INSN_ALIGNED},
    {0},
};
