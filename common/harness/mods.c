// Score mods and mask mods on the host.
#include "harness/mods.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/random.h"

// A mod's name, what its number is if none is given, and the least that it may be; NAN: it takes none.
typedef struct {
    const char *name;
    double number, least;
} ModLine;

static const ModLine score_mods[] = {
    [SCORE_NONE] = {"none", NAN, NAN},
    [SCORE_ALIBI] = {"alibi", NAN, NAN},
    [SCORE_SOFTCAP] = {"softcap", 20, 1e-6},
};
static const ModLine mask_mods[] = {
    [MASK_NONE] = {"none", NAN, NAN},         [MASK_CAUSAL] = {"causal", NAN, NAN},
    [MASK_WINDOW] = {"window", 1024, 0},      [MASK_DOCUMENT] = {"document", 8, 1},
    [MASK_PREFIX_LM] = {"prefix-lm", 256, 0},
};
enum {
    SCORE_MODS = sizeof score_mods / sizeof *score_mods,
    MASK_MODS = sizeof mask_mods / sizeof *mask_mods,
    MOST_NUMBER = 0x7fffffff
};
static const uint64_t stream_cuts = UINT64_C(1) << 62; // above those of the rows, below the sinks'

// ---- names

// The line of "name" or "name:number", or -1.
static int read_mod(const char *option, const char *text, const ModLine *lines, int count,
                    bool whole, double *number, Message *message) {
    const char *colon = strchr(text, ':');
    size_t length = colon == NULL ? strlen(text) : (size_t)(colon - text);
    char names[200] = "";
    for (int i = 0; i < count; i++) {
        const ModLine *line = &lines[i];
        bool takes = !isnan(line->number);
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s%s", i > 0 ? ", " : "",
                 line->name, takes ? whole ? "[:N]" : "[:X]" : "");
        if (strlen(line->name) != length || memcmp(line->name, text, length) != 0) continue;
        *number = takes ? line->number : 0;
        if (colon == NULL) return i;
        char *end;
        errno = 0;
        *number = strtod(colon + 1, &end);
        bool digits = strchr("0123456789.", colon[1]) != NULL && colon[1] != 0 && *end == 0;
        if (takes && digits && errno == 0 && *number >= line->least && *number <= MOST_NUMBER &&
            (!whole || *number == floor(*number)))
            return i;
        if (!takes)
            refuse(message, "--%s %.80s: %s takes no number", option, text, line->name);
        else
            refuse(message, "--%s %.80s: give a %snumber from %g to %d behind the colon, as %s:%g",
                   option, text, whole ? "whole " : "", line->least, MOST_NUMBER, line->name,
                   line->number);
        return -1;
    }
    refuse(message, "--%s %.80s: one of %s", option, text, names);
    return -1;
}

bool score_mod_read(const char *text, ScoreMod *mod, double *number, Message *message) {
    int line = read_mod("score-mod", text, score_mods, SCORE_MODS, false, number, message);
    if (line >= 0) *mod = (ScoreMod)line;
    return line >= 0;
}

bool mask_mod_read(const char *text, MaskMod *mod, int64_t *number, Message *message) {
    double real = 0;
    int line = read_mod("mask-mod", text, mask_mods, MASK_MODS, true, &real, message);
    if (line >= 0) *mod = (MaskMod)line;
    *number = (int64_t)real;
    return line >= 0;
}

static const char *mod_text(const ModLine *line, double number, char *text, size_t size) {
    if (isnan(line->number))
        snprintf(text, size, "%s", line->name);
    else
        snprintf(text, size, "%s:%.10g", line->name, number);
    return text;
}

const char *score_mod_text(const Problem *p, char *text, size_t size) {
    return mod_text(&score_mods[p->score_mod], p->score_number, text, size);
}

const char *mask_mod_text(const Problem *p, char *text, size_t size) {
    return mod_text(&mask_mods[p->mask_mod], (double)p->mask_number, text, size);
}

// ---- documents: N of them are cut apart at N - 1 places, which may coincide

static int64_t document_cut(const Problem *p, int64_t batch, int64_t k) {
    uint64_t bits = random_bits(p->seed, stream_cuts + (uint64_t)batch, (uint64_t)k);
    return (int64_t)(bits % (uint64_t)(p->seqlen_k + 1));
}

int document_of(const Problem *p, int64_t batch, int64_t j) {
    int before = 0;
    for (int64_t k = 0; k + 1 < p->mask_number; k++) before += document_cut(p, batch, k) <= j;
    return before;
}

// The document's first position, and the one behind its last.
static void document_range(const Problem *p, int64_t batch, int64_t j, int64_t *from, int64_t *to) {
    *from = 0;
    *to = p->seqlen_k;
    for (int64_t k = 0; k + 1 < p->mask_number; k++) {
        int64_t cut = document_cut(p, batch, k);
        if (cut <= j && cut > *from) *from = cut;
        if (cut > j && cut < *to) *to = cut;
    }
}

// ---- masks

static void narrow(int64_t *from, int64_t *to, int64_t first, int64_t end) {
    if (first > *from) *from = first;
    if (end < *to) *to = end;
    if (*to <= *from) *from = *to = 0;
}

void mask_mod_keys(const Problem *p, int64_t batch, int64_t i, int64_t *from, int64_t *to) {
    int64_t position = i + p->seqlen_k - p->seqlen_q, first, end, n = p->mask_number;
    switch (p->mask_mod) {
    case MASK_NONE: return;
    case MASK_CAUSAL: narrow(from, to, 0, position + 1); return;
    case MASK_WINDOW: narrow(from, to, position - n, position + 1); return;
    case MASK_PREFIX_LM: narrow(from, to, 0, position + 1 > n ? position + 1 : n); return;
    case MASK_DOCUMENT:
        first = end = 0; // a row before the first key is in no document
        if (position >= 0) document_range(p, batch, position, &first, &end);
        narrow(from, to, first, end);
        return;
    }
}

void mask_mod_rows(const Problem *p, int64_t batch, int64_t j, int64_t *from, int64_t *to) {
    int64_t shift = p->seqlen_k - p->seqlen_q, last = p->seqlen_q, first, end, n = p->mask_number;
    switch (p->mask_mod) {
    case MASK_NONE: return;
    case MASK_CAUSAL: narrow(from, to, j - shift, last); return;
    case MASK_WINDOW: narrow(from, to, j - shift, j + n + 1 - shift); return;
    case MASK_PREFIX_LM: narrow(from, to, j < n ? 0 : j - shift, last); return;
    case MASK_DOCUMENT:
        document_range(p, batch, j, &first, &end);
        narrow(from, to, first - shift, end - shift);
        return;
    }
}

// ---- scores

double alibi_slope(const Problem *p, int head) {
    if (p->score_mod != SCORE_ALIBI) return 0;
    return exp2(-8.0 * (head + 1) / p->heads);
}

double score_cap(const Problem *p) {
    return p->score_mod == SCORE_SOFTCAP ? p->score_number : p->softcap;
}
