// Which keys a query row sees. Masks are aligned to the bottom right: the last query row sits on
// the last key, so that decoding one token at a time and a whole prompt at once agree.
//
// Invariant: 0 <= begin <= end <= seqlen_k, and the row sees exactly the keys begin <= j < end.
#ifndef MASK_H
#define MASK_H

#include "device/index.h"

typedef struct {
    int64_t begin, end;
} KeyRange;

// The keys that one row sees; a negative window side is unlimited, causal is window_right = 0. The
// comparisons come before the sums, so that no window, however large, overflows.
HOST_DEVICE static inline KeyRange visible_keys(int64_t row, int64_t seqlen_q, int64_t seqlen_k,
                                                int64_t window_left, int64_t window_right) {
    const int64_t diagonal = row + seqlen_k - seqlen_q;
    KeyRange keys;
    keys.begin = 0;
    keys.end = seqlen_k;
    if (window_left >= 0 && diagonal > window_left) keys.begin = diagonal - window_left;
    if (window_right >= 0 && window_right < seqlen_k - 1 - diagonal)
        keys.end = diagonal + window_right + 1;
    if (keys.end < 0) keys.end = 0;
    return keys;
}

// The keys that any row of first_row … last_row sees. Both ends grow with the row.
HOST_DEVICE static inline KeyRange keys_seen_by_any(int64_t first_row, int64_t last_row,
                                                    int64_t seqlen_q, int64_t seqlen_k,
                                                    int64_t window_left, int64_t window_right) {
    KeyRange keys = visible_keys(first_row, seqlen_q, seqlen_k, window_left, window_right);
    keys.end = visible_keys(last_row, seqlen_q, seqlen_k, window_left, window_right).end;
    return keys;
}

// The keys that every one of the rows sees; begin > end where there is none.
HOST_DEVICE static inline KeyRange keys_seen_by_all(int64_t first_row, int64_t last_row,
                                                    int64_t seqlen_q, int64_t seqlen_k,
                                                    int64_t window_left, int64_t window_right) {
    KeyRange keys = visible_keys(first_row, seqlen_q, seqlen_k, window_left, window_right);
    keys.begin = visible_keys(last_row, seqlen_q, seqlen_k, window_left, window_right).begin;
    return keys;
}

// The query rows that see a key: the same rule, solved for the row.
HOST_DEVICE static inline KeyRange seeing_rows(int64_t key, int64_t seqlen_q, int64_t seqlen_k,
                                               int64_t window_left, int64_t window_right) {
    return visible_keys(key, seqlen_k, seqlen_q, window_right, window_left);
}

// The query rows that see any key of first_key … last_key.
HOST_DEVICE static inline KeyRange rows_seeing_any(int64_t first_key, int64_t last_key,
                                                   int64_t seqlen_q, int64_t seqlen_k,
                                                   int64_t window_left, int64_t window_right) {
    KeyRange rows = seeing_rows(first_key, seqlen_q, seqlen_k, window_left, window_right);
    rows.end = seeing_rows(last_key, seqlen_q, seqlen_k, window_left, window_right).end;
    return rows;
}

#endif
