// The life of findings after a handler has recorded them (check.h: finding()).
//
//   handlers ──finding()──► Sm.findings ──findings_merge()──► the list ──► report/
//
// Handlers of several SMs run at once, so each SM keeps a list of its own; the machine merges the
// lists in SM order after every round. That order, and so the report, doesn't depend on the number
// of host threads. In the process's list each (kind, line, other line) stands once, with a count.
#ifndef SOFTGPU_FINDINGS_H
#define SOFTGPU_FINDINGS_H

#include "softgpu/check/check.h"

enum {
    FINDINGS_KEPT = 50, // distinct ones that are kept and printed; the rest are only counted
    NOTES_KEPT = 20,    // of those that are notes, so that errors find room
    FINDING_FRAMES = 16 // frames of an inlined chain that are kept
};

// A place in the program. `file` is NULL where the program has no line information.
typedef struct {
    char *file;
    char *function; // readable name of the function that the line stands in, or NULL
    uint32_t line;
} FindingFrame;

// A finding, with copies of all that a report shows.
typedef struct Finding Finding;
struct Finding {
    FindingKind kind;
    bool note;         // a lint of a program that isn't ours: doesn't count as an error
    char *what, *mend; // mend may be NULL
    char *kernel;      // readable name, or NULL
    bool has_block, has_thread;
    uint32_t block[3], thread[3];
    int warp;
    int frame_count; // frames[0]: the first one outside common/device, then outwards
    FindingFrame frames[FINDING_FRAMES];
    char *text;             // the PTX instruction's opcode, or NULL
    uint32_t ptx_line;      // in the PTX text, 0 = unknown
    char *other;            // the other place involved, as a person reads it, or NULL
    uint64_t count;         // how often it was met
    bool printed;           // on stderr
    uint64_t printed_count; // value of `count` then
    bool told;              // in an answer of findings_json
};

// ---- for those who record

// Has this finding just been recorded for this instruction? Then counts it once more and answers
// true: for findings that a loop may meet millions of times, so that no text is made for each.
bool finding_again(Warp *w, const Insn *i, FindingKind kind);
// As finding(), about two instructions (a race): `other` is the earlier one, NULL if unknown.
void finding_pair(Warp *w, const Insn *i, int lane, FindingKind kind, const Insn *other,
                  const char *mend, const char *what, ...) __attribute__((format(printf, 7, 8)));
// A finding without an instruction: an impossible launch, a deadlock. `kernel` (mangled) may be
// NULL; the text may have several lines. Only while no SM runs (the serial phase, the API).
void finding_global(FindingKind kind, const char *kernel, const char *mend, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

// ---- for the machine

// Which settings (strict, report) apply; once, when the GPU is made.
void findings_configure(const Settings *settings);
void findings_begin_launch(void);
// Moves an SM's findings to the process's list. Called in SM order, by one thread.
void findings_merge(Sm *sm);
// The cudaError code that the running launch's findings leave behind; the first fatal one counts.
int findings_launch_error(void);
// Errors (not notes) that the running launch added, repeats of known ones included.
int findings_launch_count(void);
// Flushes what the kernel printed, then prints what is new on stderr (unless the report is JSON).
void findings_end_launch(void);

// ---- for the API

// Distinct errors (not notes) since the process started, those beyond FINDINGS_KEPT too.
int findings_count(void);
// The finding number `index` of the process's list, NULL past the end.
Finding *findings_get(int index);
// Errors and notes for which there was no room; one of several launches counts in each.
uint64_t findings_errors_dropped(void);
uint64_t findings_notes_dropped(void);
// Forgets everything (tests).
void findings_reset(void);

// ---- words

// "out of bounds"
const char *finding_title(FindingKind kind);
// "out-of-bounds": the kind in JSON.
const char *finding_slug(FindingKind kind);
// The name of a function as its author wrote it, without parameters: _Z5scalePff → scale.
// Allocated.
char *readable_name(const char *mangled);
// A path as it is shortest to read: relative, if it lies below the working directory.
const char *short_path(const char *path);
// The frame that a person should look at first: the innermost one that is no wrapper's, else the
// innermost of all; NULL only for NULL.
const PtxLocation *first_frame(const PtxLocation *location);

#endif
