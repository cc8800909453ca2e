// The metadata of tcgen05.mma.sp (PTX ISA 9.7.16.10.8): which elements of A are there.
//
// A row of A is k long, half of which is stored. It falls into chunks of 4 elements (tf32: 2; mxf4
// and mxf4nvf4: 8) of which 2 (1; 2 pairs) are stored, and each chunk has 4 bits of metadata: the
// places of the first and the second one, 2 bits each, the first below. tf32 writes 0b0100 for the
// first of its two and 0b1110 for the second.
//
// The metadata lies in tensor memory, in lanes as D does, 16 rows in 16 lanes. Chunk q of row r of
// the 16 is
//
//     f16, tf32     8 chunks     lane r % 8 + 8 (q / 4), bits 16 (r / 8) + 4 (q % 4)
//     others        16 chunks    lane r, column q / 8, bits 4 (q % 8)
//
// where the address names a pair of columns, and the sparsity selector of the instruction
// descriptor the one of them that f16 and tf32 read. So CUTLASS has it for 128 rows and for .ws
// (tmem_e_frg, tmem_e_frg_ws in cute/atom/mma_traits_sm100_frag.hpp), and JAX
// (format_tcgen05_sparse_metadata). For the 64 rows that take half of the lanes, which PTX only
// draws, it is derived from its rule that D, A and metadata then take the same ones. .ws with 32 or
// 64 rows has copies of the metadata, as of A.
#include <string.h>

#include "softgpu/execute/tcgen05.h"
#include "softgpu/execute/tensor.h"

enum { CHUNK_BITS = 4 };

static bool takes_one_column(const MmaForm *f) {
    return f->kind == KIND_F16 || f->kind == KIND_TF32;
}

uint32_t metadata_first(const MmaShape *s, uint32_t column) {
    return column + s->selector;
}

int metadata_columns(const MmaForm *f) {
    return takes_one_column(f) ? 1 : 2;
}

// Where a chunk's stored elements stand, counted from its first: how many come to `k`. 0 if the
// bits mean nothing.
static int chunk_places(const MmaForm *f, uint32_t bits, uint8_t k[4]) {
    uint32_t first = bits & 3, second = bits >> 2;
    if (f->kind == KIND_TF32) {
        k[0] = bits == 0xe;
        return bits == 0x4 || bits == 0xe;
    }
    // In order, and 0b0110 besides, which PTX has among the meaningful ones.
    if (first >= second && bits != 0x6) return 0;
    int each = f->kind == KIND_MXF4 || f->kind == KIND_MXF4NVF4 ? 2 : 1;
    for (int n = 0; n < each; n++) {
        k[n] = (uint8_t)((int)first * each + n);
        k[each + n] = (uint8_t)((int)second * each + n);
    }
    return 2 * each;
}

bool metadata_places(const MmaForm *f, const MmaShape *s, const Tmem *t, uint32_t column, int lane,
                     Places16 *places, uint32_t *wrong, int *at) {
    bool one = takes_one_column(f);
    int chunks = one ? 8 : 16, stored = s->a_k / chunks;
    for (int r = 0; r < PANEL_ROWS; r++)
        for (int q = 0; q < chunks; q++) {
            int l = lane + (one ? r % 8 + q / 4 * 8 : r);
            int bit = one ? r / 8 * 16 + q % 4 * CHUNK_BITS : q % 8 * CHUNK_BITS;
            uint32_t c = column + (one ? 0 : (uint32_t)q / 8), bits = t->cell[c][l] >> bit & 0xf;
            uint8_t k[4];
            if (chunk_places(f, bits, k) != stored) {
                *wrong = bits;
                *at = l;
                return false;
            }
            for (int n = 0; n < stored; n++)
                places->k[r][q * stored + n] = (uint8_t)(q * s->k / chunks + k[n]);
        }
    return true;
}

void sparse_expand(const MmaShape *s, const Places16 *places, const uint32_t *stored, uint32_t *a) {
    memset(a, 0, (size_t)s->k * PANEL_ROWS * sizeof *a);
    for (int r = 0; r < PANEL_ROWS; r++)
        for (int j = 0; j < s->a_k; j++)
            a[places->k[r][j] * PANEL_ROWS + r] = stored[j * PANEL_ROWS + r];
}

void sparse_gather(const MmaShape *s, const Places16 *places, int r, const uint32_t *a,
                   const uint32_t *b, uint32_t *row_a, uint32_t *columns_b) {
    memset(row_a, 0, (size_t)s->a_k * PANEL_ROWS * sizeof *row_a);
    for (int j = 0; j < s->a_k; j++) {
        int k = places->k[r][j];
        row_a[j * PANEL_ROWS + r] = a[k * PANEL_ROWS + r];
        for (int n = 0; n < PANEL_COLUMNS; n++) columns_b[j * PANEL_COLUMNS + n] = b[k * s->n + n];
    }
}
