// Prints, as CSV, what the pictures of chapter 5 are drawn from: softgpu's own address functions
// and figures, so that no picture has a second formula.
//
//   dump_layouts layouts      layout,step,row,column,address,bank   of each 16-bit number of a tile
//   dump_layouts rates GPU    name,value                            per clock and SM
//
// The tile is ROWS rows of COLUMNS numbers, at shared address 0: a box as TMA writes it, without
// and with the 128-byte swizzle, and the same tile as wgmma's descriptors name it, read 16 of the
// summed dimension at a time (`step`). Invariant: where a descriptor finds a number, TMA has put
// it; otherwise nothing more is printed, and the exit status is 1.
#include <stdio.h>
#include <string.h>

#include "softgpu/execute/descriptor.h"
#include "softgpu/timing/figures.h"

enum { ROWS = 32, COLUMNS = 64, NUMBER = 2, LINE = COLUMNS * NUMBER, DEPTH = 16 };

// Where TMA puts a number of the box.
static uint32_t tma_address(SwizzleMode mode, int row, int column) {
    return swizzle(mode, (uint32_t)(row * LINE + column * NUMBER));
}

static void print_number(const char *layout, int step, int row, int column, uint32_t address) {
    printf("%s,%d,%d,%d,%u,%u\n", layout, step, row, column, address, address / 4 % 32);
}

static void print_box(const char *layout, SwizzleMode mode) {
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++)
            print_number(layout, 0, row, column, tma_address(mode, row, column));
}

// A descriptor as device/wgmma.h makes it: swizzle 128B, 1024 bytes from pattern to pattern.
static SharedOperand operand(uint32_t start, bool mn_major, uint16_t rows) {
    const uint64_t bits = 1ull << 62 | (uint64_t)(8 * LINE / CHUNK) << 32 |
                          (uint64_t)(ROWS * LINE / CHUNK) << 16 | start / CHUNK;
    return (SharedOperand){.descriptor = descriptor_hopper(bits),
                           .mn_major = mn_major,
                           .element = NUMBER,
                           .rows = rows,
                           .depth = DEPTH};
}

// The tile as one operand after the other; false if the two units disagree. K-major: a row of the
// operand is a row of the tile, and k runs along it. MN-major: k runs down the tile.
static bool print_operands(const char *layout, bool mn_major) {
    const int steps = (mn_major ? ROWS : COLUMNS) / DEPTH;
    for (int step = 0; step < steps; step++) {
        const int start = step * DEPTH * (mn_major ? LINE : NUMBER),
                  rows = mn_major ? COLUMNS : ROWS;
        const SharedOperand o = operand((uint32_t)start, mn_major, (uint16_t)rows);
        for (int r = 0; r < rows; r++)
            for (int k = 0; k < DEPTH; k++) {
                const int row = mn_major ? step * DEPTH + k : r;
                const int column = mn_major ? r : step * DEPTH + k;
                const uint32_t address = descriptor_element(&o, (unsigned)r, (unsigned)k);
                if (address != tma_address(SWIZZLE_128B, row, column)) {
                    fprintf(stderr, "dump_layouts: %s: wgmma and TMA disagree about (%d, %d)\n",
                            layout, row, column);
                    return false;
                }
                print_number(layout, step, row, column, address);
            }
    }
    return true;
}

static int print_layouts(void) {
    printf("layout,step,row,column,address,bank\n");
    print_box("plain", SWIZZLE_NONE);
    print_box("swizzled", SWIZZLE_128B);
    return print_operands("k_major", false) && print_operands("mn_major", true) ? 0 : 1;
}

static int print_rates(const char *gpu) {
    const GpuFigures *figures = figures_find(gpu);
    if (figures == NULL) {
        fprintf(stderr, "dump_layouts: no figures of a GPU named %s\n", gpu);
        return 2;
    }
    printf("name,value\n");
    printf("gpu,%s\n", figures->full_name);
    printf("tensor_flops,%.17g\n", figures->tensor_flops_f16);
    printf("exponentials,%.17g\n", figures->mufu_lanes);
    printf("shared_bytes,%.17g\n", figures->shared_bytes_per_clk);
    return 0;
}

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "layouts") == 0) return print_layouts();
    if (count == 3 && strcmp(arguments[1], "rates") == 0) return print_rates(arguments[2]);
    fprintf(stderr, "usage: dump_layouts layouts | dump_layouts rates GPU\n");
    return 2;
}
