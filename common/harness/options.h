// What the person asked ./run for.
#ifndef OPTIONS_H
#define OPTIONS_H

#include "harness/chapter.h"
#include "harness/message.h"
#include "harness/problem.h"

typedef enum { DEVICE_AUTO, DEVICE_GPU, DEVICE_SOFTGPU } DeviceChoice;

enum { NOT_GIVEN = -1, SAMPLE_AUTO = -2, MOST_SWEPT = 64, MOST_SCHEDULES = 256 };

typedef struct {
    // the problem; NOT_GIVEN: the chapter's default
    int64_t batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim;
    int dtype;
    bool causal, backward, deterministic, sink;
    // where sequences of varying lengths begin, and the end of the last; NULL: equally long
    const int *cu_seqlens_q, *cu_seqlens_k;
    int64_t sequences; // of these
    // a cache (problem.h); numbers are 0 where not given
    const int *cache_seqlens; // keys of each sequence in it; NULL: equally many
    int64_t cached_sequences; // of these
    int64_t splits, page_size, new_keys, rotary_dim;
    bool rotary_interleaved, fp8_cache;
    const int *block_table; // of --input: (batch, table_columns), into `pages` pages
    int64_t pages, table_columns;
    int64_t room;                      // of --input: a sequence's, where there are no pages
    int64_t window_left, window_right; // -1 = unlimited
    double softcap, scale;             // scale NAN = 1/sqrt(head_dim)
    ScoreMod score_mod;                // harness/mods.h
    MaskMod mask_mod;
    double score_number;
    int64_t mask_number;
    uint64_t seed;
    const char *input, *save;

    const char *steps; // NULL = all
    DeviceChoice device;
    bool check_only, list, help, explain, predict, schedule_study;
    int64_t study_tile_cycles, study_block_cycles; // both 0: not given
    const char *no_study; // an option that --schedule-study has no use for; NULL: none was given
    const char *sweep;    // the swept option's name without dashes; NULL = none
    int64_t swept[MOST_SWEPT];
    int swept_count;
    uint64_t schedules[MOST_SCHEDULES];
    int schedule_count; // 0 = schedule 0, or what the environment says
    int64_t launches;   // of each pass that is checked, all on one workspace
    // SMs to simulate, 0 = all. NOT_GIVEN: the chapter's, or all if a size was given. SAMPLE_AUTO:
    // a few, the same number in every chapter; more where their share of the L2 is too small.
    int sample;

    // for softgpu, as text; NULL = not given
    const char *gpu, *clock, *sms, *check, *async, *numerics, *threads;
    bool strict, no_strict; // neither: the environment's word, else strict
    bool stats;

    const char *json, *csv, *plot, *trace, *report;
} Options;

// Reads the command line. False: the message names the option and the mend.
bool options_read(int argc, char **argv, const Chapter *chapter, Options *options,
                  Message *message);
// Does --trace go together with the other options?
bool options_trace_fits(const Options *options, Message *message);
void options_help(FILE *to, const Chapter *chapter);

// Sets a size by its option's name ("seqlen"), as --sweep does. False if there is none such.
bool options_set_size(Options *options, const char *name, int64_t value);
// Was any size given (then the checked and the timed problem are the same)?
bool options_size_given(const Options *options);

// The problem that a chapter's default and the options make. `built` lists the built head_dims, 0
// at its end, in rising order. False: the message says what is impossible and what to do.
bool problem_make(const Options *options, const Chapter *chapter, const DefaultProblem *base,
                  const int *built, Problem *problem, Message *message);

#endif
