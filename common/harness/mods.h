// Flexible attention on the host: score mods and mask mods by name, and what they say of a problem.
// A score mod changes each score; a mask mod says which keys a row sees. The kernels have them as
// functions of a row and a key (08_blackwell/mods.h). Here masks are said another way, as the range
// of keys that a row sees, so that the reference shares no mistake with them.
//
//   position of row i = i + seqlen_k - seqlen_q: the bottom right is aligned, as for other masks
//
//   --score-mod alibi         score - 2^(-8 (head + 1) / heads) · |position - key|
//               softcap:X     X · tanh(score / X)
//   --mask-mod  causal        key <= position
//               window:N      and position - key <= N
//               document:N    key and position are in one of N documents, cut at random by the seed
//               prefix-lm:N   key <= position, or key < N
#ifndef MODS_H
#define MODS_H

#include "harness/message.h"
#include "harness/problem.h"

// "alibi", "softcap:20", "none": the mod and its number (the default one where none is given).
// False: the message lists the names.
bool score_mod_read(const char *text, ScoreMod *mod, double *number, Message *message);
bool mask_mod_read(const char *text, MaskMod *mod, int64_t *number, Message *message);

// As they would be given: "softcap:20". Into `text`; returns it.
const char *score_mod_text(const Problem *p, char *text, size_t size);
const char *mask_mod_text(const Problem *p, char *text, size_t size);

// ALiBi's slope of a head; 0 without ALiBi.
double alibi_slope(const Problem *p, int head);
// The cap of the scores, by --softcap or by a score mod; 0: none.
double score_cap(const Problem *p);

// Which document key j of a sequence is in, counted from 0.
int document_of(const Problem *p, int64_t batch, int64_t j);

#endif
