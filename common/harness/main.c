// ./run: checks and times one chapter's steps. Everything that can be refused is refused before
// anything runs or is written.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "harness/built.h"
#include "harness/files.h"
#include "harness/input.h"
#include "harness/parallel.h"
#include "harness/predict.h"
#include "harness/report.h"
#include "harness/sample.h"
#include "harness/study.h"

enum { EXIT_USAGE = 2 };

static int refused(const Message *message) {
    fprintf(stderr, "run: %s\n", message->text);
    folders_abandon();
    return EXIT_USAGE;
}

// Where results go, decided before the run.
typedef struct {
    FILE *table;
    char csv[4096], png[4096];
    OutputFile json_file, csv_file;
    bool draw;
} Outputs;

static bool is_standard_output(const char *path) {
    return path != NULL && strcmp(path, "-") == 0;
}

// Names the files and makes sure that they can be written. Without options results go to results/.
static bool prepare_outputs(const Options *o, const Chapter *c, Outputs *out, Message *message) {
    *out = (Outputs){.table = stdout, .draw = !o->check_only};
    if (is_standard_output(o->json) || is_standard_output(o->csv) ||
        is_standard_output(o->report) || is_standard_output(o->trace)) {
        out->table = stderr;
    }
    if (is_standard_output(o->plot))
        return refuse(message, "--plot -: give the name of a .png file");
    snprintf(out->csv, sizeof out->csv, "results/chapter-%d.csv", c->number);
    snprintf(out->png, sizeof out->png, "results/chapter-%d.png", c->number);
    const bool in_results = o->csv == NULL || (out->draw && o->plot == NULL);
    if (in_results && !folder_prepare("results", message)) return false;
    if (o->csv != NULL && !is_standard_output(o->csv)) {
        snprintf(out->csv, sizeof out->csv, "%.4000s", o->csv);
    }
    if (o->plot != NULL) snprintf(out->png, sizeof out->png, "%.4000s", o->plot);
    if (!is_standard_output(o->csv) && !file_probe(out->csv, message)) return false;
    if (out->draw && !file_probe(out->png, message)) return false;
    const char *const files[] = {o->json, o->report, o->trace};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        if (files[f] == NULL || is_standard_output(files[f])) continue;
        if (!file_probe(files[f], message)) return false;
    }
    for (size_t f = 1; f < sizeof files / sizeof *files; f++) { // softgpu's own
        char part[4096 + 32];
        if (files[f] == NULL || is_standard_output(files[f])) continue;
        file_temporary(files[f], part, sizeof part);
        temporary_made(part);
    }
    return o->save == NULL || folder_prepare(o->save, message);
}

// SOFTGPU_TRACE and SOFTGPU_SAMPLE count where the options weren't given, as the rest of softgpu's
// environment does. Only the timed runs are traced, so softgpu mustn't see SOFTGPU_TRACE by itself.
static bool read_environment(Options *o, Message *message) {
    const char *trace = getenv("SOFTGPU_TRACE");
    if (o->trace == NULL && trace != NULL && trace[0] != 0 && !o->check_only) {
        o->trace = strdup(trace);
        if (!options_trace_fits(o, message)) return false;
    }
    unsetenv("SOFTGPU_TRACE");
    const char *text = getenv("SOFTGPU_SAMPLE");
    if (o->sample != NOT_GIVEN || text == NULL || text[0] == 0) return true;
    char *end;
    long sample = strtol(text, &end, 10);
    if (*end != 0 || sample < 0 || sample > 100000) {
        return refuse(message, "SOFTGPU_SAMPLE=%s: give a number of SMs, 0 for all", text);
    }
    o->sample = (int)sample;
    return true;
}

// Sets up one run: its problems and data.
static bool make_run(Run *run, const Options *o, const Device *device, const bool *chosen,
                     Options *sized, Message *message) {
    *run = (Run){.chapter = &chapter, .options = o, .device = device, .chosen = chosen};
    run->backward = o->backward || chapter.default_backward;
    *sized = *o;
    if (o->input != NULL &&
        !input_read(o->input, run->backward, sized, &run->saved_inputs, message)) {
        return false;
    }
    if (o->input != NULL && sized->cu_seqlens_q != NULL && !chapter.has_varlen) {
        return refuse(message,
                      "--input %s: cu_seqlens_q.npy: chapter %d's steps take sequences of one "
                      "length; chapters 1 and 7 take any",
                      o->input, chapter.number);
    }
    if (o->input != NULL && sized->cache_seqlens != NULL && !chapter.has_cache) {
        return refuse(
            message,
            "--input %s: cache_seqlens.npy: chapter %d's steps read no cache; chapter 9's "
            "do",
            o->input, chapter.number);
    }
    if (o->input != NULL && sized->sink && !chapter.has_sinks) {
        return refuse(message,
                      "--input %s: sink.npy: chapter %d has no sinks; chapters 1, 7 and 9 do",
                      o->input, chapter.number);
    }
    run->same = options_size_given(sized);
    // What is only checked need not be built for the timing problem.
    const bool one = run->same || o->check_only;
    const DefaultProblem *timing = one ? &chapter.check : &chapter.timing;
    if (!problem_make(sized, &chapter, &chapter.check, built_head_dims, &run->checked, message) ||
        !problem_make(sized, &chapter, timing, built_head_dims, &run->timed, message)) {
        return false;
    }
    // --sample is about the timing: the check runs on all SMs, unless both are one.
    if (!run->same) run->checked.sample = 0;
    if (!sample_fit(run, message)) return false;
    return run->saved_inputs.q == NULL || input_round(&run->checked, &run->saved_inputs, message);
}

// softgpu takes milliseconds for a thread block, however few of its tile's rows there are. Many heads
// of short sequences are as many blocks: who asks for them learns that it takes long.
static void warn_of_many_blocks(const Run *run) {
    enum { MANY = 16384 };
    const Problem *p = &run->timed;
    const int64_t pairs = (int64_t)p->batch * p->heads;
    if (run->device->softgpu == NULL || p->sample != 0 || pairs < MANY || total_queries(p) == 0)
        return;
    fprintf(
        stderr,
        "run: %lld pairs of a sequence and a head are as many thread blocks at least, and softgpu "
        "takes milliseconds for each: a step takes minutes\n",
        (long long)pairs);
}

static void show_rows(const Run *run, int end, void *table) {
    table_rows(table, run, end);
}

static Prediction prediction; // with --predict

// What emulation costs here. The host's own data count too: the process is one.
static void print_peak_memory(FILE *to) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return;
    fprintf(to, "\nmemory of this process at its peak (softgpu, data, reference): %.0f MB\n",
            (double)usage.ru_maxrss * 1024e-6);
}

// One run, or one for each value of a sweep; returns the exit status.
static int run_all(const Options *options, const Device *device, const bool *chosen, Outputs *out) {
    Message message;
    int status = 0, runs = options->sweep != NULL ? options->swept_count : 1;
    OutputFile csv = {0}, json = {0};
    bool to_stdout = is_standard_output(options->csv);
    if (!file_open(&csv, to_stdout ? "-" : out->csv, &message)) return refused(&message);
    if (options->json != NULL && !file_open(&json, options->json, &message)) {
        file_abandon(&csv);
        return refused(&message);
    }
    write_csv_header(csv.stream);
    if (json.stream != NULL && options->sweep != NULL) {
        fprintf(json.stream, "{\"chapter\": %d, \"sweep\": \"%s\", \"runs\": [", chapter.number,
                options->sweep);
    }
    static Run run;
    for (int i = 0; i < runs; i++) {
        Options o = *options, sized;
        if (options->sweep != NULL) options_set_size(&o, options->sweep, options->swept[i]);
        Table table = {.to = out->table};
        bool done = make_run(&run, &o, device, chosen, &sized, &message);
        if (done) warn_of_many_blocks(&run);
        if (done && i > 0) fputc('\n', out->table);
        run.show = show_rows;
        run.show_to = &table;
        done = done && run_steps(&run, &message);
        if (done) {
            table_end(&table, &run);
            write_csv(csv.stream, &run);
            if (json.stream != NULL && i > 0) fputs(",\n", json.stream);
            if (json.stream != NULL) write_json(json.stream, &run);
            if (run.status > status) status = run.status;
            prediction_print(out->table, &prediction, &run);
        }
        inputs_free(&run.saved_inputs);
        run_free(&run);
        if (done) continue;
        file_abandon(&csv);
        if (json.stream != NULL) file_abandon(&json);
        return refused(&message);
    }
    if (json.stream != NULL) fputs(options->sweep != NULL ? "]}\n" : "\n", json.stream);
    if (json.stream != NULL && !file_commit(&json, &message)) {
        file_abandon(&csv);
        return refused(&message);
    }
    if (!file_commit(&csv, &message)) return refused(&message);
    if (device->softgpu != NULL) print_peak_memory(out->table);
    if (fflush(out->table) != 0 || ferror(out->table)) {
        refuse(&message, "can't write the table: %s", strerror(errno));
        return refused(&message);
    }
    // The timeline and the report: softgpu says itself what it can't write.
    if (device->softgpu != NULL && device->softgpu->finish() != 0) return EXIT_USAGE;

    if (to_stdout) {
        if (options->plot != NULL) fprintf(stderr, "run: no picture: it needs the CSV in a file\n");
        return status;
    }
    bool drawn = out->draw && draw_plot("chapter.py", out->csv, out->png, &message);
    fprintf(out->table, "\n%s%s%s\n", out->csv, drawn ? "  " : "", drawn ? out->png : "");
    if (options->save != NULL) fprintf(out->table, "%s/*.npy\n", options->save);
    if (options->trace != NULL && device->softgpu != NULL)
        fprintf(out->table, "%s: open it in ui.perfetto.dev\n", options->trace);
    if (out->draw && !drawn) fprintf(stderr, "run: %s\n", message.text);
    return status;
}

// An exercise is run beside naive, unless steps are named.
static void choose_exercise(Options *o) {
    static char steps[100];
    if (built_exercise == NULL || o->steps != NULL) return;
    const bool first = strcmp(built_exercise, chapter.steps[0]->name) == 0;
    snprintf(steps, sizeof steps, "%s%s%s", chapter.steps[0]->name, first ? "" : ",",
             first ? "" : built_exercise);
    o->steps = steps;
}

// Reads the command line, and before it what an exercise is checked with: a person's options count.
static bool read_options(int argc, char **argv, Options *options, Message *message) {
    enum { MOST_WORDS = 20 };
    char words[200];
    char **all = allocate((size_t)(argc + MOST_WORDS) * sizeof *all);
    int count = 0;
    snprintf(words, sizeof words, "%s", built_exercise_options);
    all[count++] = argv[0];
    for (char *word = strtok(words, " "); word != NULL && count < MOST_WORDS;
         word = strtok(NULL, " "))
        all[count++] = strdup(word); // an option's text may stay in `options`
    for (int i = 1; i < argc; i++) all[count++] = argv[i];
    const bool done = options_read(count, all, &chapter, options, message);
    free(all);
    return done;
}

int main(int argc, char **argv) {
    static Options options;
    static Device device;
    static Outputs outputs;
    Message message;
    if (!read_options(argc, argv, &options, &message) || !read_environment(&options, &message)) {
        return refused(&message);
    }
    choose_exercise(&options);
    if (options.help) {
        options_help(stdout, &chapter);
        return 0;
    }
    if (options.list) {
        print_list(stdout, &chapter);
        return 0;
    }
    files_mind_signals();
    if (options.schedule_study)
        return study_run_option(&options, &chapter, argv, &message) ? 0 : refused(&message);
    bool *chosen = allocate(chapter.step_count);
    const bool backward = options.backward || chapter.default_backward;
    if (!steps_choose(&chapter, options.steps, backward, chosen, &message))
        return refused(&message);
    if (options.threads != NULL) parallel_set_threads(atoi(options.threads));

    // The sizes and the data, before a device is looked for: each value of a sweep.
    for (int i = 0; i < (options.sweep != NULL ? options.swept_count : 1); i++) {
        static Run probe;
        Options o = options, sized;
        if (options.sweep != NULL) options_set_size(&o, options.sweep, options.swept[i]);
        if (!make_run(&probe, &o, &device, chosen, &sized, &message)) return refused(&message);
        inputs_free(&probe.saved_inputs);
    }
    if (!prepare_outputs(&options, &chapter, &outputs, &message)) return refused(&message);
    if (!device_open(&options, &chapter, argv, &device, &message)) return refused(&message);
    // What the steps refuse of a sweep's later values, before the first one runs.
    for (int i = 0; options.sweep != NULL && i < options.swept_count; i++) {
        static Run probe;
        Options o = options, sized;
        options_set_size(&o, options.sweep, options.swept[i]);
        if (!make_run(&probe, &o, &device, chosen, &sized, &message) ||
            !run_plan(&probe, &message)) {
            return refused(&message);
        }
        run_free(&probe);
    }
    if (built_exercise != NULL)
        fprintf(outputs.table, "exercise: the step %s is yours, %s/exercise.cu\n\n", built_exercise,
                chapter.folder);
    if (options.predict &&
        !prediction_ask(&prediction, &chapter, chosen, options.backward || chapter.default_backward,
                        stdin, outputs.table, &message)) {
        return refused(&message);
    }
    int status = run_all(&options, &device, chosen, &outputs);
    free(chosen);
    return status;
}
