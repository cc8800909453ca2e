// The command line of ./run. One table holds every option: its name, what kind of value it takes,
// where the value goes, and its line in --help. Options of later chapters are known by name, so
// that asking for one too early gets a useful answer.
#include "harness/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cache.h"
#include "harness/lengths.h"
#include "harness/mods.h"
#include "harness/study.h"

enum { MOST_COUNT = 1024 }; // of SMs and host threads, in softgpu

typedef enum {
    TAKES_NOTHING, // sets a bool
    TAKES_TEXT,    // a const char *
    TAKES_SIZE,    // an int64_t, 1 … 2^31-1
    TAKES_LENGTH,  // an int64_t, 0 … 2^31-1: a sequence may be empty
    TAKES_SEQLEN,  // both lengths at once, from 1
    TAKES_REAL,    // a double
    TAKES_DTYPE,
    TAKES_WINDOW,
    TAKES_SEED,
    TAKES_SCHEDULES,
    TAKES_SAMPLE,
    TAKES_DEVICE,
    TAKES_SWEEP,
    TAKES_COUNT,     // text that must be a whole number from 1 to MOST_COUNT
    TAKES_CLOCK,     // text that must be a number of GHz
    TAKES_SCORE_MOD, // in chapters that have them; else it belongs to `later`
    TAKES_MASK_MOD,
    WITH_STUDY,    // sets a bool where the chapter has a study; else it belongs to `later`
    STUDY_CYCLES,  // two numbers of cycles, in such a chapter
    TAKES_LENGTHS, // of every sequence of the batch, where a chapter has varlen
    SETS_SINK,     // sets a bool where a chapter has sinks
    OF_CACHE,   // an int64_t, 1 … 2^31-1, where a chapter has a cache; else it belongs to `later`
    SETS_CACHE, // sets a bool in such a chapter
    CACHE_LENGTHS, // of every sequence of the batch, in such a chapter
    FROM_CHAPTER,  // sets a bool in chapter `later` and those after it that have a backward pass
    NOWHERE_YET,   // no chapter has it yet
} Takes;

typedef struct {
    const char *name, *value;
    Takes takes;
    size_t place; // offset in Options
    int later;
    const char *help;
} OptionLine;

#define AT(field) offsetof(Options, field)

static const OptionLine lines[] = {
    {"batch", "B", TAKES_SIZE, AT(batch), 0, "sequences"},
    {"heads", "H", TAKES_SIZE, AT(heads), 0, "query heads"},
    {"kv-heads", "H", TAKES_SIZE, AT(kv_heads), 0, "key and value heads; divides --heads"},
    {"seqlen", "N", TAKES_SEQLEN, 0, 0, "queries and keys alike"},
    {"seqlen-q", "N", TAKES_LENGTH, AT(seqlen_q), 0, "queries"},
    {"seqlen-k", "N", TAKES_LENGTH, AT(seqlen_k), 0, "keys"},
    {"varlen", "N,Q:K,…", TAKES_LENGTHS, 0, 0,
     "a batch of these lengths, or queries:keys (chapters 1 and 7)"},
    {"cache-seqlens", "N,…", CACHE_LENGTHS, 0, 9,
     "a batch with so many keys in its cache (chapter 9)"},
    {"page-size", "P", OF_CACHE, AT(page_size), 9, "the cache in pages of P keys (chapter 9)"},
    {"append", "N", OF_CACHE, AT(new_keys), 9,
     "the last N keys are new: written into the cache (chapter 9)"},
    {"rotary", "D", OF_CACHE, AT(rotary_dim), 9,
     "turn D columns of queries and new keys (chapter 9)"},
    {"rotary-interleaved", NULL, SETS_CACHE, AT(rotary_interleaved), 9,
     "neighbours are a pair, else the halves' columns (chapter 9)"},
    {"fp8-cache", NULL, SETS_CACHE, AT(fp8_cache), 9, "a cache of e4m3 numbers (chapter 9)"},
    {"splits", "N", OF_CACHE, AT(splits), 9, "of the keys, by steps that split (chapter 9)"},
    {"head-dim", "D", TAKES_SIZE, AT(head_dim), 0, "a multiple of 8 up to 256"},
    {"dtype", "T", TAKES_DTYPE, AT(dtype), 0, "fp32, fp16, bf16; fp8 (chapter 7)"},
    {"causal", NULL, TAKES_NOTHING, AT(causal), 0, "no key after the query (bottom right)"},
    {"window", "L,R", TAKES_WINDOW, 0, 0, "L keys before, R after the query; -1: no limit"},
    {"softcap", "X", TAKES_REAL, AT(softcap), 0, "score = X * tanh(score / X)"},
    {"score-mod", "NAME", TAKES_SCORE_MOD, 0, 8,
     "none, alibi or softcap[:X]: a function of the scores (chapter 8)"},
    {"mask-mod", "NAME", TAKES_MASK_MOD, 0, 8,
     "none, causal, window[:N], document[:N] or prefix-lm[:N] (chapter 8)"},
    {"sink", NULL, SETS_SINK, AT(sink), 0, "one more score in each softmax (chapters 1, 7, 9)"},
    {"scale", "X", TAKES_REAL, AT(scale), 0, "of the scores; else 1/sqrt(head_dim)"},
    {"backward", NULL, TAKES_NOTHING, AT(backward), 0, "gradients too (chapters 1, 4, 5 and 8)"},
    {"deterministic", NULL, FROM_CHAPTER, AT(deterministic), 4,
     "gradients summed in a fixed order (from chapter 4 on)"},
    {"input", "DIR", TAKES_TEXT, AT(input), 0,
     "q, k, v.npy (dout, dlse, sink, cu_seqlens_q/k, …) instead of random"},
    {"save", "DIR", TAKES_TEXT, AT(save), 0, "write o.npy, lse.npy (dq, dk, dv) of the last step"},
    {"seed", "S", TAKES_SEED, AT(seed), 0, "of the random data"},
    {"steps", "LIST", TAKES_TEXT, AT(steps), 0, "by number or name, or all (see --list)"},
    {"list", NULL, TAKES_NOTHING, AT(list), 0, "print the chapter's steps and stop"},
    {"check-only", NULL, TAKES_NOTHING, AT(check_only), 0, "check only, no timing"},
    {"launches", "N", TAKES_SIZE, AT(launches), 0,
     "of each pass, on one workspace; each is checked"},
    {"explain", NULL, TAKES_NOTHING, AT(explain), 0, "where the time went: units, waits of warps"},
    {"predict", NULL, TAKES_NOTHING, AT(predict), 0,
     "asks before the run which step gains most, and how much"},
    {"schedule-study", NULL, WITH_STUDY, AT(schedule_study), 7,
     "who computes which tile when, without attention (chapter 7)"},
    {"study-cycles", "TILE,BLOCK", STUDY_CYCLES, 0, 7,
     "what the study counts for a tile and a block of keys; else 0,1"},
    {"sweep", "NAME=A,B,…", TAKES_SWEEP, AT(sweep), 0, "a size option, one run for each value"},
    {"device", "WHERE", TAKES_DEVICE, AT(device), 0, "auto, gpu or softgpu"},
    {"gpu", "NAME", TAKES_TEXT, AT(gpu), 0, "softgpu models a100, a100-40gb, h100, h200 or b200"},
    {"clock", "GHZ", TAKES_CLOCK, AT(clock), 0, "the modelled clock; else what the GPU sustains"},
    {"sms", "N", TAKES_COUNT, AT(sms), 0, "model a GPU with N SMs, the rest in proportion"},
    {"sample", "N", TAKES_SAMPLE, AT(sample), 0,
     "simulate N of its SMs and scale; 0: all; auto: few"},
    {"schedule", "S[,S…]", TAKES_SCHEDULES, 0, 0,
     "another order of warps (a list: each is checked)"},
    {"check", "LIST", TAKES_TEXT, AT(check), 0, "mem,init,race,sync,all,none"},
    {"async", "ORDER", TAKES_TEXT, AT(async), 0, "early, late or random completion of async work"},
    {"numerics", "KIND", TAKES_TEXT, AT(numerics), 0, "fast or hardware: tensor core arithmetic"},
    {"threads", "N", TAKES_COUNT, AT(threads), 0, "host threads"},
    {"strict", NULL, TAKES_NOTHING, AT(strict), 0, "PTX's letter counts (the default)"},
    {"no-strict", NULL, TAKES_NOTHING, AT(no_strict), 0,
     "what only PTX's letter demands is a note"},
    {"stats", NULL, TAKES_NOTHING, AT(stats), 0, "every kernel's counters on standard error"},
    {"json", "FILE", TAKES_TEXT, AT(json), 0, "results as JSON; - is standard output"},
    {"csv", "FILE", TAKES_TEXT, AT(csv), 0, "results; else results/chapter-N.csv"},
    {"plot", "FILE", TAKES_TEXT, AT(plot), 0, "the picture; else results/chapter-N.png"},
    {"trace", "FILE", TAKES_TEXT, AT(trace), 0,
     "a timeline of the timed runs (softgpu), for ui.perfetto.dev"},
    {"report", "FILE", TAKES_TEXT, AT(report), 0, "softgpu's findings as JSON"},
    {"help", NULL, TAKES_NOTHING, AT(help), 0, "this text"},
    {"head-dim-v", "D", NOWHERE_YET, 0, 0, NULL},
};
enum { LINES = sizeof lines / sizeof *lines };

// Headings of --help, each above the option that begins its part.
static const struct {
    const char *before, *text;
} headings[] = {
    {"batch", "the problem (without sizes: a small one is checked, a large one timed)"},
    {"steps", "what is run"},
    {"device", "where"},
    {"schedule", "softgpu (as its own options)"},
    {"json", "results"},
};

static const int64_t largest_size = 0x7fffffff;

// Reads a whole number that takes all of the text.
static bool whole_number(const char *text, int64_t *value) {
    char *end;
    if (text[0] == 0 || strchr("+-0123456789", text[0]) == NULL) return false;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return end != text && *end == 0 && errno == 0;
}

static bool real_number(const char *text, double *value) {
    char *end;
    if (text[0] == 0 || strchr("+-.0123456789", text[0]) == NULL) return false;
    *value = strtod(text, &end);
    return end != text && *end == 0 && isfinite(*value);
}

static bool size_in_range(const char *name, const char *text, int64_t least, int64_t *value,
                          Message *message) {
    if (!whole_number(text, value) || *value < least || *value > largest_size) {
        return refuse(message, "--%s %s: give a whole number from %lld to %lld", name, text,
                      (long long)least, (long long)largest_size);
    }
    return true;
}

// One number for queries and keys. With 0 nothing would be left to compute, which is a slip; what an
// empty side does is asked for by --seqlen-q 0 or --seqlen-k 0.
static bool seqlen_in_range(const char *text, int64_t *value, Message *message) {
    if (whole_number(text, value) && *value == 0) {
        return refuse(message,
                      "--seqlen %s: nothing to compute; give a whole number from 1 to %lld, or for "
                      "an empty side --seqlen-q 0 or --seqlen-k 0",
                      text, (long long)largest_size);
    }
    return size_in_range("seqlen", text, 1, value, message);
}

// Calls `each` for the parts of a list between commas. The parts are copied to `part`.
static const char *next_part(const char *text, char *part, size_t size) {
    size_t length = strcspn(text, ",");
    if (length >= size) length = size - 1;
    memcpy(part, text, length);
    part[length] = 0;
    text += strcspn(text, ",");
    return *text == ',' ? text + 1 : NULL;
}

static bool read_window(const char *text, Options *o, Message *message) {
    char left[32];
    const char *comma = strchr(text, ',');
    size_t length = comma == NULL ? 0 : (size_t)(comma - text);
    if (length == 0 || length >= sizeof left) {
        return refuse(message,
                      "--window %s: give two numbers, keys before and after: --window 128,0", text);
    }
    memcpy(left, text, length);
    left[length] = 0;
    if (!whole_number(left, &o->window_left) || !whole_number(comma + 1, &o->window_right)) {
        return refuse(message, "--window %s: give two whole numbers: --window 128,0", text);
    }
    if (o->window_left < -1 || o->window_right < -1) {
        return refuse(message, "--window %s: a side is -1 (no limit) or more", text);
    }
    if (o->window_left > largest_size || o->window_right > largest_size) {
        return refuse(message, "--window %s: a side is at most %lld", text,
                      (long long)largest_size);
    }
    return true;
}

static bool read_study_cycles(const char *text, Options *o, Message *message) {
    char tile[32];
    const char *block = next_part(text, tile, sizeof tile);
    if (block == NULL || !whole_number(tile, &o->study_tile_cycles) ||
        !whole_number(block, &o->study_block_cycles) || o->study_tile_cycles < 0 ||
        o->study_block_cycles < 1 || o->study_tile_cycles > largest_size ||
        o->study_block_cycles > largest_size) {
        return refuse(
            message,
            "--study-cycles %s: give the cycles of a tile, from 0 to %lld, and of a block "
            "of keys, from 1: --study-cycles 500,2600",
            text, (long long)largest_size);
    }
    return true;
}

static bool read_dtype(const char *text, Options *o, Message *message) {
    static const char *const names[] = {"fp32", "fp16", "bf16", "fp8"};
    for (int d = 0; d < 4; d++) {
        if (strcmp(text, names[d]) != 0) continue;
        o->dtype = d;
        return true;
    }
    return refuse(message, "--dtype %s: one of fp32, fp16, bf16, fp8", text);
}

static bool read_device(const char *text, Options *o, Message *message) {
    static const char *const names[] = {"auto", "gpu", "softgpu"};
    for (int d = 0; d < 3; d++) {
        if (strcmp(text, names[d]) != 0) continue;
        o->device = (DeviceChoice)d;
        return true;
    }
    return refuse(message, "--device %s: one of auto, gpu, softgpu", text);
}

static bool read_seed(const char *option, const char *text, uint64_t *seed, Message *message) {
    char *end;
    errno = 0;
    if (text[0] >= '0' && text[0] <= '9') {
        *seed = strtoull(text, &end, 10);
        if (*end == 0 && errno == 0) return true;
    }
    return refuse(message, "--%s %s: give a whole number from 0 on", option, text);
}

static bool read_schedules(const char *text, Options *o, Message *message) {
    char part[32];
    o->schedule_count = 0;
    for (const char *rest = text; rest != NULL;) {
        rest = next_part(rest, part, sizeof part);
        if (o->schedule_count == MOST_SCHEDULES) {
            return refuse(message, "--schedule: at most %d at a time", MOST_SCHEDULES);
        }
        if (!read_seed("schedule", part, &o->schedules[o->schedule_count++], message)) return false;
    }
    return true;
}

bool options_set_size(Options *o, const char *name, int64_t value) {
    if (strcmp(name, "seqlen") == 0) {
        o->seqlen_q = o->seqlen_k = value;
        return true;
    }
    for (int i = 0; i < LINES; i++) {
        if (strcmp(lines[i].name, name) != 0) continue;
        if (lines[i].takes != TAKES_SIZE && lines[i].takes != TAKES_LENGTH &&
            lines[i].takes != OF_CACHE)
            return false;
        *(int64_t *)((char *)o + lines[i].place) = value;
        return true;
    }
    return false;
}

// Does the option belong to chapters with a cache?
static bool is_of_cache(const char *name) {
    for (int i = 0; i < LINES; i++) {
        if (strcmp(lines[i].name, name) == 0) return lines[i].takes == OF_CACHE;
    }
    return false;
}

static bool read_sweep(const char *text, const Chapter *chapter, Options *o, Message *message) {
    static char name[32];
    const char *equals = strchr(text, '=');
    size_t length = equals == NULL ? sizeof name : (size_t)(equals - text);
    if (length >= sizeof name) {
        return refuse(message,
                      "--sweep %s: give an option and its values: --sweep "
                      "seqlen=512,1024,2048",
                      text);
    }
    memcpy(name, text, length);
    name[length] = 0;
    Options probe = *o;
    if (!options_set_size(&probe, name, 1) || (is_of_cache(name) && !chapter->has_cache)) {
        return refuse(message,
                      "--sweep %s: can sweep seqlen, seqlen-q, seqlen-k, batch, heads, kv-heads, "
                      "head-dim%s",
                      name, chapter->has_cache ? ", splits, page-size, append" : "");
    }
    o->sweep = name;
    o->swept_count = 0;
    for (const char *rest = equals + 1; rest != NULL;) {
        char part[32];
        rest = next_part(rest, part, sizeof part);
        if (o->swept_count == MOST_SWEPT) {
            return refuse(message, "--sweep: at most %d values", MOST_SWEPT);
        }
        int64_t *value = &o->swept[o->swept_count++];
        int64_t least = strcmp(name, "seqlen-q") == 0 || strcmp(name, "seqlen-k") == 0 ? 0 : 1;
        bool right = strcmp(name, "seqlen") == 0 ? seqlen_in_range(part, value, message)
                                                 : size_in_range(name, part, least, value, message);
        if (!right) return false;
    }
    return true;
}

// One option with its value (NULL if it takes none).
static bool read_option(const OptionLine *line, const char *value, const Chapter *chapter,
                        Options *o, Message *message) {
    void *place = (char *)o + line->place;
    int64_t number;
    double real;
    switch (line->takes) {
    case TAKES_NOTHING: *(bool *)place = true; return true;
    case TAKES_TEXT:
        if (value[0] == 0) return refuse(message, "--%s: the value is empty", line->name);
        *(const char **)place = value;
        return true;
    case TAKES_SIZE: return size_in_range(line->name, value, 1, place, message);
    case TAKES_LENGTH: return size_in_range(line->name, value, 0, place, message);
    case TAKES_SEQLEN:
        if (!seqlen_in_range(value, &number, message)) return false;
        o->seqlen_q = o->seqlen_k = number;
        return true;
    case TAKES_SAMPLE:
        if (strcmp(value, "auto") == 0) {
            o->sample = SAMPLE_AUTO;
            return true;
        }
        if (!size_in_range(line->name, value, 0, &number, message)) return false;
        if (number > MOST_COUNT)
            return refuse(message, "--%s %s: at most %d", line->name, value, MOST_COUNT);
        o->sample = (int)number;
        return true;
    case TAKES_COUNT:
        if (!size_in_range(line->name, value, 1, &number, message)) return false;
        if (number > MOST_COUNT)
            return refuse(message, "--%s %s: at most %d", line->name, value, MOST_COUNT);
        *(const char **)place = value;
        return true;
    case TAKES_REAL:
        if (!real_number(value, place)) {
            return refuse(message, "--%s %s: give a finite number", line->name, value);
        }
        if (strcmp(line->name, "softcap") == 0 && o->softcap < 0) {
            return refuse(message, "--softcap %s: give 0 (none) or more", value);
        }
        return true;
    case TAKES_CLOCK:
        if (!real_number(value, &real) || real < 0.1 || real > 10) {
            return refuse(message, "--%s %s: give GHz, from 0.1 to 10", line->name, value);
        }
        *(const char **)place = value;
        return true;
    case TAKES_DTYPE: return read_dtype(value, o, message);
    case TAKES_WINDOW: return read_window(value, o, message);
    case TAKES_SEED: return read_seed(line->name, value, &o->seed, message);
    case TAKES_SCHEDULES: return read_schedules(value, o, message);
    case TAKES_DEVICE: return read_device(value, o, message);
    case TAKES_SWEEP: return read_sweep(value, chapter, o, message);
    case WITH_STUDY:
    case STUDY_CYCLES:
        if (chapter->study == NULL) {
            return refuse(message, "--%s: chapter %d does not have it; it comes with chapter %d",
                          line->name, chapter->number, line->later);
        }
        if (line->takes == STUDY_CYCLES) return read_study_cycles(value, o, message);
        *(bool *)place = true;
        return true;
    case TAKES_LENGTHS:
        if (chapter->has_varlen) return lengths_read(value, o, message);
        return refuse(message,
                      "--varlen: chapter %d's steps take sequences of one length; chapters 1 and 7 "
                      "take any",
                      chapter->number);
    case SETS_SINK:
        *(bool *)place = chapter->has_sinks;
        if (chapter->has_sinks) return true;
        return refuse(message, "--sink: chapter %d does not have it; chapters 1, 7 and 9 do",
                      chapter->number);
    case OF_CACHE:
    case SETS_CACHE:
    case CACHE_LENGTHS:
        if (!chapter->has_cache) {
            return refuse(message, "--%s: chapter %d does not have it; it comes with chapter %d",
                          line->name, chapter->number, line->later);
        }
        if (line->takes == CACHE_LENGTHS) return cache_read_lengths(value, o, message);
        if (line->takes == OF_CACHE) return size_in_range(line->name, value, 1, place, message);
        *(bool *)place = true;
        return true;
    case FROM_CHAPTER:
        if (chapter->number >= line->later && chapter->has_backward) {
            *(bool *)place = true;
            return true;
        }
        return refuse(message, "--%s: chapter %d does not have it; it comes with chapter %d",
                      line->name, chapter->number, line->later);
    case TAKES_SCORE_MOD:
    case TAKES_MASK_MOD:
        if (!chapter->has_mods)
            return refuse(message, "--%s: chapter %d does not have it; it comes with chapter %d",
                          line->name, chapter->number, line->later);
        if (line->takes == TAKES_SCORE_MOD)
            return score_mod_read(value, &o->score_mod, &o->score_number, message);
        return mask_mod_read(value, &o->mask_mod, &o->mask_number, message);
    case NOWHERE_YET: return refuse(message, "--%s: no chapter has it yet", line->name);
    }
    return false;
}

// Is the value (or, of a list, each part) one of the names?
static bool names_known(const char *option, const char *value, const char *names, bool list,
                        Message *message) {
    char part[32], padded[64], wanted[40];
    snprintf(padded, sizeof padded, " %s ", names);
    for (const char *rest = value; rest != NULL;) {
        const char *start = rest;
        rest = next_part(rest, part, sizeof part);
        snprintf(wanted, sizeof wanted, " %s ", part);
        bool whole = list || rest == NULL;
        if (whole && part[0] != 0 && strcspn(start, ",") < sizeof part &&
            strchr(part, ' ') == NULL && strstr(padded, wanted) != NULL)
            continue;
        return refuse(message, "--%s %s: %s %s", option, value, list ? "a list of" : "one of",
                      names);
    }
    return true;
}

bool options_trace_fits(const Options *o, Message *message) {
    const char *untimed = o->check_only      ? "--check-only"
                          : o->async != NULL ? "--async"
                          : o->schedule_count > 0 && o->schedules[0] != 0
                              ? "a --schedule that doesn't begin with 0"
                              : NULL;
    if (o->trace == NULL) return true;
    if (o->device == DEVICE_GPU) {
        return refuse(message, "--trace: only softgpu draws timelines; leave out --device gpu");
    }
    if (untimed == NULL) return true;
    return refuse(message, "--trace: with %s nothing is timed; leave one of them out", untimed);
}

bool options_read(int argc, char **argv, const Chapter *chapter, Options *o, Message *message) {
    *o = (Options){.batch = NOT_GIVEN,
                   .heads = NOT_GIVEN,
                   .kv_heads = NOT_GIVEN,
                   .seqlen_q = NOT_GIVEN,
                   .seqlen_k = NOT_GIVEN,
                   .head_dim = NOT_GIVEN,
                   .dtype = NOT_GIVEN,
                   .window_left = -1,
                   .window_right = -1,
                   .scale = NAN,
                   .sample = NOT_GIVEN,
                   .launches = 1};
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (strcmp(argument, "-h") == 0) argument = "--help";
        if (strncmp(argument, "--", 2) != 0 || argument[2] == 0) {
            return refuse(message, "%s: not an option; see --help", argument);
        }
        const char *name = argument + 2, *value = strchr(name, '=');
        size_t length = value == NULL ? strlen(name) : (size_t)(value - name);
        const OptionLine *line = NULL;
        for (int k = 0; k < LINES && line == NULL; k++) {
            if (strlen(lines[k].name) == length && memcmp(lines[k].name, name, length) == 0) {
                line = &lines[k];
            }
        }
        if (line == NULL) {
            return refuse(message, "--%.*s: unknown option; see --help", (int)length, name);
        }
        bool of_mods = line->takes == TAKES_SCORE_MOD || line->takes == TAKES_MASK_MOD;
        if (line->takes == NOWHERE_YET || (of_mods && !chapter->has_mods)) {
            return read_option(line, NULL, chapter, o, message);
        }
        if (value != NULL) value++;
        if (line->value == NULL && value != NULL) {
            return refuse(message, "--%s takes no value", line->name);
        }
        if (line->value != NULL && value == NULL) {
            if (i + 1 == argc) {
                return refuse(message, "--%s needs a value: --%s %s", line->name, line->name,
                              line->value);
            }
            value = argv[++i];
        }
        if (!read_option(line, value, chapter, o, message)) return false;
        if (!study_takes(line->name)) o->no_study = line->name;
    }
    if (o->study_block_cycles > 0 && !o->schedule_study)
        return refuse(message, "--study-cycles: only --schedule-study counts with them; add it");
    if (o->check_only && o->plot != NULL)
        return refuse(message, "--plot: a picture is of times, and with --check-only nothing is "
                               "timed; leave one of them out");
    if (o->backward && !chapter->has_backward) {
        return refuse(message,
                      "--backward: chapter %d has no backward pass; chapters 1, 4, 5 and 8 do",
                      chapter->number);
    }
    if (o->strict && o->no_strict) {
        return refuse(message, "--strict and --no-strict: only one of them");
    }
    if (!options_trace_fits(o, message)) return false;
    if (!names_known("gpu", o->gpu, "a100 a100-40gb h100 h200 b200", false, message) ||
        !names_known("async", o->async, "early late random", false, message) ||
        !names_known("numerics", o->numerics, "fast hardware", false, message) ||
        !names_known("check", o->check, "mem init race sync all none", true, message)) {
        return false;
    }
    if (o->explain && o->check_only) {
        return refuse(message, "--explain: needs times; leave --check-only out");
    }
    if (o->predict && (o->check_only || o->sweep != NULL)) {
        return refuse(message, "--predict: needs the times of one run; leave --%s out",
                      o->check_only ? "check-only" : "sweep");
    }
    if (o->softcap > 0 && o->score_mod != SCORE_NONE) {
        return refuse(message, "--softcap and --score-mod: only one of them; a cap is a score mod, "
                               "too: --score-mod softcap:20");
    }
    if (o->cu_seqlens_q != NULL && !lengths_fit(o, message)) return false;
    if (o->cache_seqlens != NULL && !cache_lengths_fit(o, message)) return false;
    if (o->input != NULL && (options_size_given(o) || o->sweep != NULL)) {
        return refuse(message, "--input: the files say the sizes; leave the size options out");
    }
    const char *last = NULL, *const outputs[] = {o->json, o->csv, o->trace};
    static const char *const output_names[] = {"json", "csv", "trace"};
    for (int k = 0; k < 3; k++) {
        if (outputs[k] == NULL || strcmp(outputs[k], "-") != 0) continue;
        if (last != NULL) {
            return refuse(message, "--%s - and --%s -: only one can have standard output", last,
                          output_names[k]);
        }
        last = output_names[k];
    }
    return true;
}

void options_help(FILE *to, const Chapter *chapter) {
    fprintf(to,
            "usage: ./run [options]\n"
            "Chapter %d, %s: checks every step against a float64 reference and times it.\n\n",
            chapter->number, chapter->title);
    for (int i = 0; i < LINES; i++) {
        if (lines[i].help == NULL) continue;
        for (size_t h = 0; h < sizeof headings / sizeof *headings; h++) {
            if (strcmp(headings[h].before, lines[i].name) != 0) continue;
            fprintf(to, "%s%s\n", i > 0 ? "\n" : "", headings[h].text);
        }
        char left[64];
        snprintf(left, sizeof left, "--%s %s", lines[i].name,
                 lines[i].value != NULL ? lines[i].value : "");
        int width = 0; // columns, not bytes: the ellipsis is three bytes wide
        for (const char *c = left; *c != 0; c++) width += (*c & 0xc0) != 0x80;
        fprintf(to, "  %s%*s%s\n", left, width < 22 ? 22 - width : 1, "", lines[i].help);
    }
    fprintf(to, "\nexit status: 0 every step right, 1 a step wrong, 2 bad usage or input, 3 the "
                "device\nreported an error\n");
}

bool options_size_given(const Options *o) {
    return o->batch != NOT_GIVEN || o->heads != NOT_GIVEN || o->kv_heads != NOT_GIVEN ||
           o->seqlen_q != NOT_GIVEN || o->seqlen_k != NOT_GIVEN || o->head_dim != NOT_GIVEN;
}
