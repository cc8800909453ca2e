// What is left of bulk copies when a block ends (bulk.h): each should have been waited for.
#include "softgpu/machine/bulk_parts.h"

#include <stdlib.h>
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/mbarrier.h"
#include "softgpu/machine/parts.h"

// A store that its thread has not waited for may read shared memory that belongs to another block.
static void end_outgoing(BulkOp *op, bool report) {
    if (!op->awaited && report)
        finding(op->warp, op->insn, op->lane, FINDING_LINT,
                "Before the kernel ends let the thread that stores wait: "
                "cp.async.bulk.commit_group, then cp.async.bulk.wait_group.read 0.",
                "the block ends before this copy is known to have read its shared memory, which "
                "another block may get");
    race_agent_close(&op->agent);
    op->awaited = true;
    if (op->written || (!report && !op->queued)) {
        bulk_op_finish(op);
        return;
    }
    bulk_op_write(op);                  // which finishes it, or queues it
    if (op->queued) bulk_op_unlist(op); // bulk_apply or bulk_forget finishes it
}

static void end_incoming(BulkOp *op, const Cta *cta, bool report) {
    bool own = op->warp->cta == cta;
    if (report && own)
        finding(op->warp, op->insn, op->lane, FINDING_LINT,
                "Wait for all copies before the kernel ends.",
                "the block ends before this copy into its shared memory has landed");
    else if (report)
        finding(op->warp, op->insn, op->lane, FINDING_RACE,
                "Let the block wait for all copies into its memory, or meet its peers at a "
                "barrier of the cluster, before it ends.",
                "block (%u,%u,%u) ends before this copy into its shared memory has landed",
                cta->index[0], cta->index[1], cta->index[2]);
    bulk_op_finish(op);
}

// Copies to peers that read this CTA's memory.
static void end_sources(const Cta *cta, bool report) {
    const Cluster *cluster = cta->cluster;
    for (int rank = 0; cluster && rank < cluster->size; rank++) {
        const Cta *peer = cluster->ctas[rank];
        if (!peer || peer == cta || !peer->bulk) continue;
        for (BulkOp *op = peer->bulk->incoming, *next; op; op = next) {
            next = op->next;
            if (op->move.source != cta) continue;
            if (!report) {
                bulk_op_finish(op);
                continue;
            }
            finding(op->warp, op->insn, op->lane, FINDING_LINT,
                    "Let the peer say that it has the bytes before the block ends (a barrier "
                    "of the cluster).",
                    "the block ends before this copy to a peer has read its shared memory");
            bulk_op_land(op); // the memory is still there
        }
    }
}

// Bytes that came and were never announced have ended phases too early.
static void end_barriers(Cta *cta) {
    const Mbarrier *b;
    for (int k = 0; (b = mbarrier_get(cta, k)); k++) {
        int32_t tx = mbarrier_state(cta, b->address).tx;
        if (tx >= 0) continue;
        finding(
            &cta->warps[0], b->init, -1, FINDING_BARRIER,
            "Expect (expect_tx) all bytes of all copies that signal it: whole boxes, and what "
            "peers send too.",
            "the mbarrier at 0x%x has got %d bytes more than it was told to expect: a phase has "
            "ended before its data had come",
            b->address, -tx);
    }
}

void bulk_cta_finish(Cta *cta, bool report) {
    BulkCta *bulk = cta->bulk;
    end_sources(cta, report);
    bulk_maps_forget(cta);
    if (!bulk) return;
    if (report && cta->sm->gpu->settings->checks & CHECK_SYNC) end_barriers(cta);
    for (BulkOp *op = bulk->outgoing, *next; op; op = next) {
        next = op->next;
        end_outgoing(op, report);
    }
    while (bulk->incoming) end_incoming(bulk->incoming, cta, report);
    if (bulk->committed)
        memset(bulk->committed, 0, (size_t)cta->warp_count * WARP_SIZE * sizeof *bulk->committed);
}

void bulk_cta_free(Cta *cta) {
    bulk_maps_free(cta);
    if (!cta->bulk) return;
    free(cta->bulk->committed);
    free(cta->bulk);
    cta->bulk = NULL;
}

void bulk_free(Sm *sm) {
    struct BulkPool *pool = sm->bulk;
    if (!pool) return;
    while (pool->spare) {
        BulkOp *next = pool->spare->next;
        free(pool->spare->kept);
        free(pool->spare);
        pool->spare = next;
    }
    free(pool);
    sm->bulk = NULL;
}
