// ./run --schedule-study: reads the problem, asks the device for its SMs and its L2, and hands both
// to the chapter's study. Nothing is computed on the device.
#include "harness/study.h"

#include <string.h>

// What is studied without sizes: FlashAttention-3's problem of batch 4 and 16 heads, causal.
static const DefaultProblem studied = {.batch = 4,
                                       .heads = 16,
                                       .kv_heads = 16,
                                       .seqlen_q = 8192,
                                       .seqlen_k = 8192,
                                       .head_dim = 128,
                                       .dtype = DTYPE_BF16};

bool study_takes(const char *option) {
    static const char *const taken[] = {
        "schedule-study", "study-cycles", "batch", "heads",  "kv-heads", "seqlen", "seqlen-q",
        "seqlen-k",       "head-dim",     "dtype", "causal", "window",   "gpu",    "sms",
        "device",         "json",         "csv",   "plot",   "list",     "help"};
    for (size_t t = 0; t < sizeof taken / sizeof *taken; t++)
        if (strcmp(option, taken[t]) == 0) return true;
    return false;
}

static bool fits(const Options *o, Message *message) {
    if (o->no_study == NULL) return true;
    return refuse(message,
                  "--schedule-study: looks at one problem's schedules and runs no step; leave "
                  "--%s out",
                  o->no_study);
}

static bool is_standard_output(const char *path) {
    return path != NULL && strcmp(path, "-") == 0;
}

// Where things are written: results/, unless the options say otherwise.
static bool choose_files(const Options *o, StudyRequest *r, Message *message) {
    r->table = is_standard_output(o->json) || is_standard_output(o->csv) ? stderr : stdout;
    if (is_standard_output(o->plot))
        return refuse(message, "--plot -: give the name of a .png file");
    r->csv = o->csv != NULL ? o->csv : "results/schedule.csv";
    // The picture is drawn from the CSV, which must then be a file.
    r->png = o->plot != NULL ? o->plot : "results/schedule.png";
    if (is_standard_output(o->csv)) r->png = NULL;
    r->example_csv = "results/schedule-example.csv";
    r->example_png = "results/schedule-example.png";
    const bool in_results = o->csv == NULL || (r->png != NULL && o->plot == NULL) || !r->chosen;
    if (in_results && !folder_prepare("results", message)) return false;
    if (!is_standard_output(r->csv) && !file_probe(r->csv, message)) return false;
    return r->png == NULL || file_probe(r->png, message);
}

bool study_run_option(const Options *o, const Chapter *chapter, char **argv, Message *message) {
    static const int any_head_dim[] = {64, 96, 128, 192, 256, 0}; // no kernel needs to be built
    static Device device;
    OutputFile json = {0};
    StudyRequest request = {.device = &device, .block_cycles = 1};
    const bool masked = o->causal || o->window_left >= 0 || o->window_right >= 0;
    DefaultProblem base = studied;
    Chapter whole = *chapter; // the whole GPU, unless --sms says otherwise
    whole.sms = 0;
    request.chosen = options_size_given(o) || masked || o->dtype != NOT_GIVEN;
    base.causal = !request.chosen;
    if (o->study_block_cycles > 0) {
        request.tile_cycles = o->study_tile_cycles;
        request.block_cycles = o->study_block_cycles;
    }
    if (!fits(o, message) ||
        !problem_make(o, chapter, &base, any_head_dim, &request.problem, message) ||
        !choose_files(o, &request, message) || !device_open(o, &whole, argv, &device, message) ||
        (o->json != NULL && !file_open(&json, o->json, message)))
        return false;
    request.json = json.stream;
    if (!chapter->study(&request, message)) {
        file_abandon(&json);
        return false;
    }
    if (o->json != NULL && !file_commit(&json, message)) return false;
    return true;
}
