// A chapter: its table of steps and its default problems. Each 0N_…/chapter.c defines `chapter`.
#ifndef CHAPTER_H
#define CHAPTER_H

#include "harness/attention.h"
#include "harness/message.h"

struct StudyRequest; // harness/study.h

typedef struct {
    int batch, heads, kv_heads;
    int64_t seqlen_q, seqlen_k;
    int head_dim;
    Dtype dtype;
    bool causal;
    int sample; // SMs simulated on softgpu; 0 = all
} DefaultProblem;

typedef struct {
    int number;           // 3
    const char *folder;   // "03_online_softmax"
    const char *title;    // "online softmax"
    const char *gpu;      // softgpu models this one unless --gpu says otherwise
    int min_capability;   // 80, 90, 100: a real GPU older than this can't run it
    bool arch_specific;   // needs exactly that capability (wgmma 9.0, tcgen05 10.x)
    const int *head_dims; // that its kernels can be built for, ended by 0; NULL: all of them
    bool has_backward, default_backward;
    // Its steps with a backward are there for it alone, naive apart: `all` are they with --backward,
    // the others without.
    bool backward_apart;
    bool has_varlen, has_sinks; // some step beside naive takes these; chapter 1: naive does
    bool has_cache;             // some step takes a cache, splits and new keys
    bool has_mods;              // some step takes score mods and mask mods
    bool memory_bound;          // the table says what share of the HBM's bandwidth a step reaches
    const Step *const *steps;   // naive first, then the chapter before's last step, then its own
    int step_count;
    DefaultProblem check, timing;
    int sms; // softgpu models so many SMs, the rest in proportion, for these; 0: all of the GPU's
    // What a step's forward has counted while it ran, as a sentence; "" if nothing. Called behind it,
    // with its workspace, where all blocks have run. NULL: no step counts.
    void (*remark)(const Step *step, const Attention *a, char *sentence, size_t size);
    // ./run --schedule-study: prints, and writes files. NULL: the chapter has none.
    bool (*study)(const struct StudyRequest *request, Message *message);
} Chapter;

extern const Chapter chapter;

#endif
