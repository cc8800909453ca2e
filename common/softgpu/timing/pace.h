// The pace of warps: what the time model adds to a launch that is *timed*.
//
// A timed launch has cycles for SM time. Each warp has a clock of its own (WarpPace.now). What it
// executes is a *part* of its code at a time, in program order and at one moment: up to the next
// *stop*, which is a block's begin, or an instruction whose moment others can see (a wait, an
// arrival, the issue of an asynchronous operation, a clock). Then the part's time is *played back*
// by the segments of its block (block.h), in chunks of some cycles, so that the warps of an SM
// contend for its units in the order of time; only then comes the next part. Loads and copies leave
// at their place in the playback, and the segments that need their results wait for them.
//
// What an SM has is here (units, shared memory's data path, the wgmma queue in tensor_time.c); what
// all SMs share, L2 and HBM, is memory_time.c's: requests are served at the end of the round, in
// the order of time, and answers come back as the times at which results are there. A round is
// shorter than the way to L2, so nobody could have needed them earlier.
#ifndef SOFTGPU_PACE_H
#define SOFTGPU_PACE_H

#include "softgpu/machine/machine.h"
#include "softgpu/timing/block.h"
#include "softgpu/timing/traffic.h"

enum { PACE_QUANTUM = 192 }; // cycles of a round

// ---- what is known of a kernel's code

typedef struct KernelPace {
    KernelSchedule *schedule;
    const GpuTiming *timing;
    uint8_t *stops;         // per instruction: PACE_STOP…
    uint16_t *after;        // per instruction: cycles until its warp goes on, beyond its segment
    uint32_t *loads;        // per instruction (and one more): first of its entries in `results`
    uint16_t *results;      // rows that loads write, as numbers
    uint16_t *rows;         // per entry of schedule->rows: its number
    uint32_t *load_numbers; // per instruction that loads: its number, its own in its block
    uint32_t result_rows;   // how many numbers there are
    char gpu[16];
} KernelPace;
enum {
    PACE_STOP = 1,  // the part before ends here
    PACE_LOAD = 2,  // its result comes from memory
    PACE_FENCE = 4, // waits until the warp's stores to other SMs have arrived
    PACE_PROXY = 8, // fence.proxy.async: … until those to its own shared memory are performed
};

// Those of a kernel on the launch's GPU; made once and kept with it. NULL when out of memory.
const KernelPace *kernel_pace(Kernel *kernel, const GpuFigures *f);

// ---- a warp

// Something of a part that goes to memory, to be played back.
typedef struct {
    uint32_t insn, segment, at;
    uint32_t wavefronts;        // on shared memory's data path
    uint32_t first_line, lines; // in WarpPace.lines
    bool done, shared, l1;
    uint32_t remote; // bytes of another SM's shared memory
    Sm *peer;        // that SM
    void *copy;      // cp.async: its operation (machine/async.c), and its generation
    uint64_t generation;
} PaceOp;

typedef struct WarpPace {
    uint64_t now;
    uint64_t drained;               // when results of known latency are all there
    uint32_t block;                 // that the playback is in; UINT32_MAX for none
    uint32_t segment, offset;       // where it stands
    uint32_t to_segment, to_offset; // and has to come
    bool playing, parked;           // parked: waits for an answer from memory
    bool blocked;                   // at an instruction, for `why`
    const Insn *current;            // the running instruction
    uint32_t to_insn;
    uint32_t epoch;       // CTAs that its memory has served
    bool watched;         // an event will wake it if it waits at an mbarrier for long
    bool fresh;           // no instruction of the part has been executed yet
    uint64_t steps;       // instructions executed
    bool entered;         // the segment's rows have been waited for
    uint64_t order;       // among warps with equal clocks
    int scheduler, place; // place: in Sm.ready
    uint32_t extra;       // cycles to go when it is woken
    uint64_t since;       // when it blocked
    uint64_t born;
    uint64_t stored_far;    // when its last store to another SM left
    uint64_t stored_shared; // when shared memory took its last store to it
    Stall why;
    uint64_t *ready; // per result row: from when on; PACE_UNKNOWN
    uint32_t ready_count;
    PaceOp *ops;
    uint32_t op_count, op_capacity, first_op; // those before first_op have left
    uint64_t next_place;                      // of the first that has not left (pace.c)
    L2Request *lines;
    uint32_t line_count, line_capacity;
} WarpPace;
#define PACE_UNKNOWN UINT64_MAX

void pace_warp_start(Warp *w, uint64_t time);
void pace_warp_free(Warp *w);

// Where a warp stands before it executes `i`, the first instruction of a part.
void pace_begin_part(Warp *w, const Insn *i);
// It has executed up to before `next` (NULL: an end of the warp or of the group's block).
void pace_end_part(Warp *w, const Insn *next);
// Plays one chunk. False: nothing is left to play, the next part can be executed.
// The warp may be parked then (WarpPace.parked).
bool pace_play(Warp *w);
// A load begins: what the traffic functions tell next is its.
void pace_op(Warp *w, const Insn *i);
// The instruction has not simply been executed: it will be again (FLOW_RETRY, FLOW_DEFER), or has
// blocked or yielded.
void pace_put_off(Warp *w, const Insn *i, Flow flow);

// Told by timing/traffic.c: lines for L2, hits in L1, wavefronts of shared memory.
void pace_line(Warp *w, uint64_t line, unsigned sectors, unsigned write, uint32_t bytes);
void pace_l1_hit(Warp *w);
void pace_shared(Warp *w, unsigned wavefronts);
void pace_bulk_shared(Sm *sm, uint64_t bytes);
// The access is to another SM's shared memory.
void pace_remote(Warp *w, Sm *peer, int bytes);

// The warp arrives at a barrier that has admitted the one before at `last`: the SM's time becomes the
// moment of this one, which is returned.
uint64_t pace_admit(Warp *w, uint64_t last);
// The warp's groups have blocked; some have been woken at the SM's time.
void pace_blocked(Warp *w);
void pace_woken(Warp *w);

// ---- tickets: requests that someone waits for

// Called when all requests of a ticket are served; `ready`: when the last of them is there.
typedef void TicketDone(Sm *sm, void *subject, uint64_t data, uint64_t ready);
uint32_t ticket_new(Sm *sm, TicketDone *done, void *subject, uint64_t data);
// No more requests will be added: it is done when those are served (at once: at `ready`).
void ticket_close(Sm *sm, uint32_t ticket, uint64_t ready);
// One of its requests has been served.
void ticket_served(Sm *sm, uint32_t ticket, uint64_t ready);
enum { TICKET_NONE = 0 };

// The lines that the running instruction has logged leave now, for a bulk copy: they are its
// ticket's. `peer_bytes`: it copies so many to another SM instead, without L2.
void pace_send_bulk(Warp *w, TicketDone *done, void *subject, uint64_t data, uint64_t peer_bytes);

// ---- an SM

typedef struct {
    TicketDone *done;
    void *subject;
    uint64_t data, ready;
    uint32_t outstanding;
    uint32_t next; // list of free ones
} Ticket;

// Bytes that a bulk copy writes to shared memory: evenly from `begin` to `end`.
typedef struct {
    uint64_t begin, end, bytes;
} Fill;
enum { FILLS = 16 }; // the latest of an SM

// Who goes before whom: the warp whose clock is behind; of equals the older one.
typedef struct {
    uint64_t now, order;
} ReadyClock;

typedef struct SmPace {
    ReadyClock *clocks; // of Sm.ready (machine/ready.c)
    int clock_capacity;
    Warp *last[4];                // who issued last, by scheduler
    uint64_t free[4][UNIT_COUNT]; // units of the schedulers; [0][…] those of the SM
    uint64_t shared_free;         // shared memory's data path
    uint64_t registers_free;      // what the register files can read
    uint64_t tma_free;
    uint64_t tcgen05_free;   // the tensor core, as machine/tcgen05.c uses it
    uint64_t tcgen05_issued; // operations
    bool tcgen05_waits;      // an event will let it take the next one
    double cluster_free;     // this SM's way to other SMs' shared memory
    uint64_t last_answer;    // when the last request is answered
    uint64_t last_end;       // of a CTA
    uint64_t busy[UNIT_COUNT], shared_busy, tensor_busy, tma_busy;
    uint64_t stall[STALL_COUNT], issued, resident; // of warps
    Ticket *tickets;
    uint32_t ticket_count, ticket_capacity, ticket_free;
    uint64_t vacated[64]; // times at which CTAs left room, first in first out
    uint32_t vacated_first, vacated_count;
    Fill fills[FILLS];
    uint32_t fill_next;
    uint64_t started;           // CTAs, in this launch
    bool products;              // a wgmma has been issued
    struct TensorQueue *tensor; // tensor_time.c
} SmPace;

// When a bulk store that is issued now will have read its bytes from shared memory: the engine takes
// one copy after the other.
uint64_t pace_bulk_read(const Sm *sm, uint64_t bytes);
// A bulk copy's bytes reach this SM's shared memory, the last at `end`; known before they do.
void pace_fill(Sm *sm, uint64_t end, uint64_t bytes);
// Cycles that fills take shared memory's 128 bytes a clock for, between two moments.
uint64_t pace_fill_cycles(const SmPace *s, uint64_t from, uint64_t to);

void pace_sm_start(Sm *sm);
void pace_sm_free(Sm *sm);
// When a CTA that is placed now executes its first instruction.
uint64_t pace_cta_start(Sm *sm);
void pace_cta_end(Sm *sm);
// The CTAs of a cluster, just placed, begin when there is room for all of them.
void pace_start_together(struct Cluster *cluster);

#endif
