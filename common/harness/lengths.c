// Batches of sequences of varying lengths: what --varlen says, and what follows for the sizes.
#include "harness/lengths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const int64_t most_rows = 0x7fffffff; // cu_seqlens are 32-bit

// One length at the beginning of the text; returns what is behind it, or NULL.
static const char *read_length(const char *text, int64_t *length) {
    char *end;
    if (*text < '0' || *text > '9') return NULL;
    errno = 0;
    *length = strtoll(text, &end, 10);
    return errno == 0 && *length <= most_rows ? end : NULL;
}

// One sequence, "5" or "3:7".
static const char *read_sequence(const char *text, int64_t length[2]) {
    const char *rest = read_length(text, &length[0]);
    if (rest != NULL && *rest == ':') return read_length(rest + 1, &length[1]);
    length[1] = length[0];
    return rest;
}

bool lengths_read(const char *text, Options *o, Message *message) {
    int64_t sequences = 1, b = 0, length[2];
    for (const char *c = text; *c != 0; c++) sequences += *c == ',';
    // Never freed: options are read once, and problems go on pointing here.
    int *cu_seqlens_q = allocate((sequences + 1) * (int64_t)sizeof(int));
    int *cu_seqlens_k = allocate((sequences + 1) * (int64_t)sizeof(int));
    cu_seqlens_q[0] = cu_seqlens_k[0] = 0;
    for (const char *rest = text;; rest++, b++) {
        rest = read_sequence(rest, length);
        if (rest == NULL || (*rest != ',' && *rest != 0)) {
            return refuse(message,
                          "--varlen %.80s: give the lengths of the sequences, or queries:keys, "
                          "between commas: --varlen 5,0,3:7",
                          text);
        }
        if (cu_seqlens_q[b] + length[0] > most_rows || cu_seqlens_k[b] + length[1] > most_rows) {
            return refuse(message, "--varlen %.80s: more than %lld rows in all", text,
                          (long long)most_rows);
        }
        cu_seqlens_q[b + 1] = cu_seqlens_q[b] + (int)length[0];
        cu_seqlens_k[b + 1] = cu_seqlens_k[b] + (int)length[1];
        if (*rest == 0) break;
    }
    o->cu_seqlens_q = cu_seqlens_q;
    o->cu_seqlens_k = cu_seqlens_k;
    o->sequences = sequences;
    return true;
}

bool lengths_fit(Options *o, Message *message) {
    bool swept =
        o->sweep != NULL && (strcmp(o->sweep, "batch") == 0 || strncmp(o->sweep, "seqlen", 6) == 0);
    if (o->batch != NOT_GIVEN || o->seqlen_q != NOT_GIVEN || o->seqlen_k != NOT_GIVEN || swept) {
        return refuse(message, "--varlen: says the batch and all lengths; leave out --batch, "
                               "--seqlen, --seqlen-q, --seqlen-k and a --sweep of them");
    }
    lengths_set(o, o->cu_seqlens_q, o->cu_seqlens_k, o->sequences);
    return true;
}

void lengths_set(Options *o, const int *cu_seqlens_q, const int *cu_seqlens_k, int64_t sequences) {
    o->cu_seqlens_q = cu_seqlens_q;
    o->cu_seqlens_k = cu_seqlens_k;
    o->batch = o->sequences = sequences;
    o->seqlen_q = o->seqlen_k = 0;
    for (int64_t b = 0; b < sequences; b++) {
        int64_t queries = cu_seqlens_q[b + 1] - cu_seqlens_q[b];
        int64_t keys = cu_seqlens_k[b + 1] - cu_seqlens_k[b];
        if (queries > o->seqlen_q) o->seqlen_q = queries;
        if (keys > o->seqlen_k) o->seqlen_k = keys;
    }
}
