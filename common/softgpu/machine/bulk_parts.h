// Private to bulk copies (bulk.h): bulk.c, which issues and lands them, and bulk_end.c, which ends
// those that a block leaves behind.
#ifndef SOFTGPU_BULK_PARTS_H
#define SOFTGPU_BULK_PARTS_H

#include "softgpu/machine/bulk.h"

typedef struct BulkOp BulkOp;
struct BulkOp {
    BulkOp *next;
    const Insn *insn;
    Warp *warp;
    int lane;
    uint32_t group; // of the lane; for stores and reductions
    uint64_t issued;
    uint64_t read_due, due; // when it has read its source; when it has landed or written
    bool read, written;
    bool awaited; // a wait_group has let its thread go on: its source may change
    bool queued;  // a reduction that has read, and is in BulkPool.reductions
    bool listed;  // in a list of its CTA; not any more when that has ended before it is applied
    uint64_t generation;
    RaceAgent agent;
    uint8_t *kept; // what it has read: byte x of shared memory is kept[x - move.shared]
    uint32_t kept_size;
    BulkOp *next_reduction;
    BulkMove move;
};

// What a CTA has under way.
typedef struct BulkCta {
    BulkOp *incoming, *outgoing; // in the order of issue
    uint32_t *committed;         // groups that each thread has closed; NULL before the first
} BulkCta;

// Memory that operations hand on, and reductions to be applied in the serial phase.
struct BulkPool {
    BulkOp *spare;
    BulkOp *reductions, **last;
};

// What the CTA has under way; made when it is first asked for.
BulkCta *bulk_of(Cta *cta);
// A load or a copy to a peer moves its bytes, and the mbarrier learns of it. The operation is over.
void bulk_op_land(BulkOp *op);
// A store or a reduction writes, which ends it; or a reduction is queued for the serial phase.
void bulk_op_write(BulkOp *op);
// It stands in no list of its CTA any more; it is over.
void bulk_op_unlist(BulkOp *op);
void bulk_op_finish(BulkOp *op);

#endif
