// wmma: fragments between memory and registers, and their product (PTX ISA 9.7.14.4).
//
// PTX leaves open which lane holds what; here it is the layout of fragment.h, whatever the layout in
// memory. A load goes through a *tile*, the matrix as its lines lie in memory (rows or columns), one
// behind the other. Lines are read in pieces of up to 16 bytes, one per lane, eight lines side by
// side, as the hardware's ldmatrix does; so bounds, bank conflicts and sectors are those of the
// matrix, not of a layout that nobody knows.
#include "softgpu/execute/fragment.h"
#include "softgpu/execute/memory_access.h"

enum { TILE_BYTES = 1024, PIECE = 16 };

typedef struct {
    MatrixShape shape;
    Role role;
    Element type;
    bool by_columns; // layout in memory
    bool store;
    uint8_t registers; // in the program
    uint8_t used;      // the rest repeat these
    uint16_t lines, line_bytes, piece;
    uint16_t fragment_bytes; // of one lane
    bool has_stride;         // Insn.b: elements from line to line
} FragmentMover;

// ---- between tile and registers

// Copies the registers of a fragment from the tile or to it. Neighbours in a register are neighbours
// in a line, or lie a line apart.
static void move_register(const FragmentMover *op, int reg, uint8_t *lanes, uint8_t *tile) {
    int bits = element_bits(op->type), packed = elements_packed(op->type);
    bool along_rows = op->role != ROLE_B; // neighbours follow each other in a row
    bool together = packed == 1 || along_rows != op->by_columns;
    int bytes = bits > 32 ? 8 : 4, parts = together ? 1 : packed, part = bytes / parts;
    for (int l = 0; l < WARP_SIZE; l++) {
        Place at = fragment_place(op->role, op->shape, op->type, reg, l);
        int line = op->by_columns ? at.column : at.row;
        int position = op->by_columns ? at.row : at.column;
        uint8_t *in_tile = tile + line * op->line_bytes + position * bits / 8;
        uint8_t *in_lane = lanes + l * bytes;
        for (int p = 0; p < parts; p++) {
            if (op->store)
                memcpy(in_tile + p * op->line_bytes, in_lane + p * part, (size_t)part);
            else
                memcpy(in_lane + p * part, in_tile + p * op->line_bytes, (size_t)part);
        }
    }
}

// ---- memory

// Finds the address of the fragment and the bytes from line to line, the same in all lanes.
static bool find_lines(Warp *w, const Insn *i, uint32_t all, uint64_t *address, int64_t *stride) {
    const FragmentMover *op = i->extra;
    uint64_t base[WARP_SIZE];
    int32_t elements = op->line_bytes * 8 / element_bits(op->type);
    const LaneS32 *strides = op->has_stride ? row(w, i->b) : NULL;
    int first = __builtin_ctz(all);
    wide_addresses(w, i, base);
    if (strides) elements = strides[first];
    *address = base[first];
    *stride = (int64_t)elements * element_bits(op->type) / 8;
    for (int l = 0; l < WARP_SIZE; l++) {
        if (!(all >> l & 1) || (base[l] == *address && (!strides || strides[l] == elements)))
            continue;
        finding(w, i, l, FINDING_DIVERGENT, "give every lane of the warp the same matrix",
                "lanes of one warp come with different addresses or strides of a fragment");
        return false;
    }
    uint64_t both = *address | (uint64_t)*stride;
    if (both & (op->piece - 1u)) {
        finding(w, i, first, FINDING_MISALIGNED, "pad the leading dimension, align the array",
                "a line of the matrix begins at an address that is no multiple of %u bytes: the "
                "matrix is at 0x%llx, and its lines are %lld bytes apart",
                op->piece, (unsigned long long)*address, (long long)*stride);
        return false;
    }
    // PTX wants the matrix aligned to the whole fragment, 32 bytes at most; pieces of 16 do on GPUs.
    if (*address & (op->fragment_bytes - 1u))
        finding(w, i, first, FINDING_LINT, "align the array to 32 bytes",
                "the matrix is at 0x%llx, but PTX asks for a multiple of %u bytes",
                (unsigned long long)*address, op->fragment_bytes);
    return true;
}

// The space of the address, which becomes one in that space; SPACE_NONE after a finding.
static Space space_at(Warp *w, const Insn *i, uint64_t *address) {
    if (i->space == SPACE_GLOBAL || (i->space == SPACE_SHARED && !(*address >> 32)))
        return (Space)i->space;
    if (i->space == SPACE_SHARED) {
        finding(w, i, -1, FINDING_WRONG_SPACE,
                "Convert generic addresses first (cvta.to, __cvta_generic_to_shared).",
                "uses 0x%llx, which is no shared-memory address", (unsigned long long)*address);
        return SPACE_NONE;
    }
    if (*address - SHARED_WINDOW < SHARED_WINDOW_SIZE) {
        *address -= SHARED_WINDOW;
        return SPACE_SHARED;
    }
    if (*address - LOCAL_WINDOW >= LOCAL_WINDOW_SIZE &&
        *address - PARAM_WINDOW >= PARAM_WINDOW_SIZE)
        return SPACE_GLOBAL;
    finding(w, i, -1, FINDING_WRONG_SPACE, "keep the matrix in shared or global memory",
            "uses 0x%llx, an address of local memory or of a parameter",
            (unsigned long long)*address);
    return SPACE_NONE;
}

// Copies the matrix between memory and the tile, a piece per lane.
static bool move_tile(Warp *w, const Insn *i, uint64_t address, int64_t stride, uint8_t *tile) {
    const FragmentMover *op = i->extra;
    Space space = space_at(w, i, &address);
    if (space == SPACE_NONE) return false;
    Access access = {
        .bytes = op->piece, .kind = op->store ? ACCESS_WRITE : ACCESS_READ, .together = true};
    int pieces = op->lines * (op->line_bytes / op->piece);
    for (int from = 0; from < pieces; from += WARP_SIZE) {
        int count = pieces - from < WARP_SIZE ? pieces - from : WARP_SIZE;
        uint32_t mask = FULL_MASK >> (WARP_SIZE - count), narrow[WARP_SIZE];
        uint64_t wide[WARP_SIZE];
        int in_tile[WARP_SIZE];
        for (int l = 0; l < WARP_SIZE; l++) {
            int piece = l < count ? from + l : from, line = piece % op->lines;
            int at = piece / op->lines * op->piece;
            in_tile[l] = line * op->line_bytes + at;
            wide[l] = address + (uint64_t)(line * stride + at);
            narrow[l] = (uint32_t)wide[l];
        }
        Places places;
        if (!(space == SPACE_SHARED ? place_shared(w, i, narrow, mask, access, &places)
                                    : place_global(w, i, wide, mask, access, &places)))
            return false;
        places_spread(&places, op->piece);
        for (int l = 0; l < count; l++) {
            if (op->store)
                memcpy(places.at[l], tile + in_tile[l], op->piece);
            else
                memcpy(tile + in_tile[l], places.at[l], op->piece);
        }
    }
    return true;
}

static Flow move_fragment(Warp *w, const Insn *i, uint32_t mask) {
    const FragmentMover *op = i->extra;
    uint32_t all;
    Flow flow = gather_warp(w, i, mask, &all);
    if (flow != FLOW_NEXT) return flow;
    uint8_t tile[TILE_BYTES] __attribute__((aligned(16)));
    uint64_t lanes[WARP_SIZE], address;
    int64_t stride;
    if (!find_lines(w, i, all, &address, &stride)) return FLOW_FAULT;
    if (op->store) {
        for (int r = 0; r < op->used; r++) move_register(op, r, row(w, i->rows[r]), tile);
        if (!move_tile(w, i, address, stride, tile)) return FLOW_FAULT;
        w->stores++;
        w->sm->changes++;
        return FLOW_NEXT;
    }
    if (!move_tile(w, i, address, stride, tile)) return FLOW_FAULT;
    for (int r = 0; r < op->registers; r++) {
        move_register(op, r % op->used, (uint8_t *)lanes, tile);
        if (op->type == ELEMENT_F64)
            put64(w, i->rows[r], lanes, all);
        else
            put32(w, i->rows[r], lanes, all);
    }
    return FLOW_NEXT;
}

// ---- lowering

// Registers of a fragment in a program: f16's A and B always have eight.
static int program_registers(Role role, MatrixShape s, Element type) {
    if (type == ELEMENT_F16 && role != ROLE_C) return 8;
    return fragment_registers(role, s, type);
}

static const char *lower_move(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    FragmentMover *op = kernel_alloc(l, sizeof *op);
    *op = (FragmentMover){.role = ROLE_C};
    for (int k = 0; k < p->modifier_count; k++) {
        const char *name = p->modifiers[k];
        shape_named(name, &op->shape);
        if (element_named(name)) op->type = element_named(name);
        if (!strcmp(name, "store")) op->store = true;
        if (!strcmp(name, "a")) op->role = ROLE_A;
        if (!strcmp(name, "b")) op->role = ROLE_B;
        if (!strcmp(name, "col")) op->by_columns = true;
        if (!strcmp(name, "global")) i->space = SPACE_GLOBAL;
        if (!strncmp(name, "shared", 6)) i->space = SPACE_SHARED;
    }
    MatrixShape s = op->shape;
    int rows_of = op->role == ROLE_B ? s.k : s.m, columns_of = op->role == ROLE_A ? s.k : s.n;
    int length = op->by_columns ? rows_of : columns_of;
    op->lines = (uint16_t)(op->by_columns ? columns_of : rows_of);
    op->line_bytes = (uint16_t)(length * element_bits(op->type) / 8);
    op->registers = (uint8_t)program_registers(op->role, s, op->type);
    op->used = (uint8_t)fragment_registers(op->role, s, op->type);
    int width = op->type == ELEMENT_F64 ? 64 : 32, bytes = op->registers * width / 8;
    op->fragment_bytes = (uint16_t)bytes;
    op->piece = (uint16_t)(bytes < PIECE ? bytes : PIECE);

    Row *rows = kernel_alloc(l, op->registers * sizeof *rows);
    const char *why =
        fragment_rows(l, &p->operands[op->store ? 1 : 0], op->registers, width, !op->store, rows);
    if (why) return why;
    i->rows = rows;
    i->row_count = op->registers;
    i->extra = op;
    i->size = (uint8_t)op->piece;
    op->has_stride = p->operand_count == 3;
    if (op->has_stride) {
        i->b = source_row(l, &p->operands[2], 32, &why);
        if (i->b == ROW_NONE) return why;
    }
    return address_operand(l, &p->operands[op->store ? 0 : 1], i);
}

static const char *lower_product(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    MatrixOp *op = kernel_alloc(l, sizeof *op);
    *op = (MatrixOp){0};
    Element types[4] = {ELEMENT_NONE};
    int count = 0;
    for (int k = 0; k < p->modifier_count; k++) {
        const char *name = p->modifiers[k];
        shape_named(name, &op->shape);
        if (element_named(name) && count < 4) types[count++] = element_named(name);
        op->saturate |= !strcmp(name, "satfinite");
        op->and |= !strcmp(name, "and");
    }
    bool halves = count == 2; // .dtype.ctype; A and B are f16
    op->d = types[0];
    op->a = halves ? ELEMENT_F16 : types[1];
    op->b = halves ? ELEMENT_F16 : types[2];
    op->c = halves ? types[1] : types[3];

    const Role roles[] = {ROLE_C, ROLE_A, ROLE_B, ROLE_C};
    const Element elements[] = {op->d, op->a, op->b, op->c};
    uint8_t *at[] = {&op->d_at, &op->a_at, &op->b_at, &op->c_at};
    Row *rows = kernel_alloc(l, 4 * 8 * sizeof *rows);
    int used = 0;
    for (int k = 0; k < 4; k++) {
        int registers = program_registers(roles[k], op->shape, elements[k]);
        const char *why = fragment_rows(l, &p->operands[k], registers,
                                        op->a == ELEMENT_F64 ? 64 : 32, k == 0, rows + used);
        if (why) return why;
        *at[k] = (uint8_t)used;
        used += registers;
    }
    i->rows = rows;
    i->row_count = (uint16_t)used;
    i->extra = op;
    i->run = op->a == ELEMENT_F64 ? multiply_doubles : multiply_matrices;
    i->flops = (uint16_t)(2 * op->shape.m * op->shape.n * op->shape.k / WARP_SIZE);
    return NULL;
}

#define LOAD(which, shapes, types)                                                                 \
    {                                                                                              \
        .name = "wmma",                                                                            \
        .modifiers =                                                                               \
            "load " which " sync aligned row|col " shapes " global|shared|shared::cta? " types,    \
        .operands = "v m c32?", .run = move_fragment, .pipe = PIPE_LSU, .flags = INSN_ALIGNED,     \
        .lower = lower_move                                                                        \
    }
#define STORE(shapes, types)                                                                       \
    {                                                                                              \
        .name = "wmma",                                                                            \
        .modifiers = "store d sync aligned row|col " shapes " global|shared|shared::cta? " types,  \
        .operands = "m v c32?", .run = move_fragment, .pipe = PIPE_LSU, .flags = INSN_ALIGNED,     \
        .lower = lower_move                                                                        \
    }
#define PRODUCT(layouts, shapes, types)                                                            \
    {                                                                                              \
        .name = "wmma", .modifiers = "mma sync aligned " layouts " " shapes " " types,             \
        .operands = "v v v v", .pipe = PIPE_TENSOR, .flags = INSN_ALIGNED, .lower = lower_product  \
    }
#define SHAPES "m16n16k16|m32n8k16|m8n32k16"

const Form wmma_forms[] = {
    LOAD("a|b", SHAPES, "f16|bf16|s8|u8"),
    LOAD("a|b", "m16n16k8", "tf32"),
    LOAD("a|b", "m8n8k4", "f64"),
    LOAD("c", SHAPES, "f16|f32|s32"),
    LOAD("c", "m16n16k8", "f32"),
    LOAD("c", "m8n8k4", "f64"),
    STORE(SHAPES, "f16|f32|s32"),
    STORE("m16n16k8", "f32"),
    STORE("m8n8k4", "f64"),
    PRODUCT("row|col row|col", SHAPES, "f16|f32 f16|f32"),
    PRODUCT("row|col row|col", SHAPES, "f32 bf16 bf16 f32"),
    PRODUCT("row|col row|col", "m16n16k8", "f32 tf32 tf32 f32"),
    PRODUCT("row|col row|col", SHAPES, "satfinite? s32 s8 s8 s32"),
    PRODUCT("row|col row|col", SHAPES, "satfinite? s32 u8 u8 s32"),
    PRODUCT("row|col row|col", "m8n8k4", "rn? f64 f64 f64 f64"),
    {0},
};
