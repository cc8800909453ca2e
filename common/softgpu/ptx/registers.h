// Private to ptx/: which virtual registers may share a row of the frame.
#ifndef SOFTGPU_REGISTERS_H
#define SOFTGPU_REGISTERS_H

#include "softgpu/machine/code.h"
#include "softgpu/ptx/flow.h"

// The classes of machine/code.h. Rows of different classes never share storage.
typedef enum { CLASS_PREDICATE, CLASS_16, CLASS_32, CLASS_64, CLASS_128, CLASS_COUNT } RowClass;

RowClass row_class(Type type);
// Bits of a lane, and bytes of a row.
unsigned class_width(RowClass class);
unsigned class_bytes(RowClass class);

// An instruction reads or writes a register. Accesses are recorded in the order of instructions.
typedef struct {
    int instruction;
    int reg;
    bool write;
    bool kills; // a write to all lanes that execute: not under a guard
} Access;

typedef struct {
    Row *rows;    // per register; ROW_NONE if nothing uses it
    uint32_t end; // first byte behind the rows, multiple of 64
    uint32_t slots[CLASS_COUNT];
    uint32_t peak; // 32-bit machine registers live at once at the worst place
    int unwritten_count;
    int *unwritten;    // registers that may be read before they are written
    int *first, *last; // live range of each register in instructions; last < first if unused
} Assignment;

// Assigns rows from frame offset `begin` (multiple of 64) on.
void assign_rows(const FlowGraph *graph, const Access *accesses, int access_count, uint32_t begin,
                 Assignment *result);
void assignment_free(Assignment *assignment);

#endif
