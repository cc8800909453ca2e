// ./run --schedule-study: the tables, the CSV files (a line for each tile of each schedule) and the
// JSON. common/plot/schedule.py draws a CSV file.
#include "schedule_report.h"

#include <inttypes.h>
#include <stdlib.h>

#include "../06_fp8_hadamard/quantised.h"
#include "harness/convert.h"
#include "harness/report.h"
#include "schedule_study.h"
#include "tile_sizes.h"

static StudyProblem problem_of(const StudyRequest *r) {
    const Problem *p = &r->problem;
    const bool masked = p->window_left >= 0 || p->window_right >= 0;
    return (StudyProblem){.batch = p->batch,
                          .heads = p->heads,
                          .kv_heads = p->kv_heads,
                          .seqlen_q = p->seqlen_q,
                          .seqlen_k = p->seqlen_k,
                          .window_left = p->window_left,
                          .window_right = p->window_right,
                          .rows = FORWARD_ROWS(p->built_head_dim),
                          .keys = p->fp8 ? key_block(p->built_head_dim)
                                         : FORWARD_KEYS(p->built_head_dim, masked),
                          .workers = r->device->sms,
                          .tile_cycles = r->tile_cycles,
                          .block_cycles = r->block_cycles,
                          .row_bytes = (int64_t)p->head_dim * (p->fp8 ? 1 : dtype_size(p->dtype)),
                          .l2_bytes = (int64_t)r->device->l2_bytes};
}

static bool counts_blocks(const StudyProblem *p) {
    return p->tile_cycles == 0 && p->block_cycles == 1;
}

// Three digits, in the unit that suits.
static const char *bytes_text(char *cell, size_t size, double bytes) {
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    int u = 0;
    for (; u < 4 && bytes >= 999.5; u++) bytes /= 1000;
    const int digits = u == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
    snprintf(cell, size, "%.*f %s", digits, bytes, units[u]);
    return cell;
}

// ---- the table

static void print_mask(FILE *to, const StudyProblem *p) {
    if (p->window_left < 0 && p->window_right < 0) return;
    if (p->window_left < 0 && p->window_right == 0)
        fputs(" · causal", to);
    else
        fprintf(to, " · window %" PRId64 ",%" PRId64, p->window_left, p->window_right);
}

static void print_heading(FILE *to, const char *title, const StudyProblem *p,
                          const StudyResult *any) {
    fprintf(to, "%s: batch %d · heads %d", title, p->batch, p->heads);
    if (p->kv_heads != p->heads) fprintf(to, " (of K and V: %d)", p->kv_heads);
    fprintf(to, " · seqlen %" PRId64, p->seqlen_q);
    if (p->seqlen_k != p->seqlen_q) fprintf(to, " × %" PRId64, p->seqlen_k);
    print_mask(to, p);
    fprintf(to,
            "\n%" PRId64 " tiles of %d query rows, %" PRId64 " blocks of %d keys, on %d workers; ",
            any->tiles, p->rows, any->blocks, p->keys, p->workers);
    if (counts_blocks(p))
        fprintf(to, "a unit is a block\n\n");
    else
        fprintf(to, "%" PRId64 " cycles a tile and %" PRId64 " a block\n\n", p->tile_cycles,
                p->block_cycles);
}

static void print_row(FILE *to, const StudyProblem *p, StudySchedule schedule,
                      const StudyResult *r) {
    char set[32], kv[32], read[32], rate[32] = "";
    const double shared = (double)r->work / p->workers, over = (double)study_bound(p, r);
    if (!counts_blocks(p))
        snprintf(rate, sizeof rate, " %9.0f B", (double)r->read_bytes / (double)r->makespan);
    fprintf(to, "  %-18s %12" PRId64 " %10.1f%% %8.1f%% %12s %12s %12s%s\n", study_name(schedule),
            r->makespan, 100 * ((double)r->makespan / over - 1),
            100 * (1 - shared / (double)r->makespan),
            bytes_text(set, sizeof set, (double)r->working_set),
            bytes_text(kv, sizeof kv, (double)r->kv_bytes),
            bytes_text(read, sizeof read, (double)r->read_bytes), rate);
}

// Graham's two bounds beside what the schedules took. False: one is broken, so the study is.
static bool print_bounds(FILE *to, const StudyProblem *p, const StudyResult *results,
                         Message *message) {
    const StudyResult *lpt = &results[STUDY_LONGEST_FIRST];
    const double any = graham_any_order(p, lpt);
    const int64_t bound = study_bound(p, lpt);
    fprintf(to,
            "\n  no schedule ends before      %12" PRId64
            "   all work over all workers, or the longest tile\n"
            "  any order ends by            %14.1f   Graham: work / workers + (1 - 1/workers) · "
            "longest\n"
            "  LPT takes at most            %14.3f   times the best (Graham: 4/3 - 1/(3 workers)); "
            "here %.3f times the first line\n",
            bound, any, graham_longest_first(p, 1), (double)lpt->makespan / (double)bound);
    for (int s = STUDY_IN_ORDER; s < STUDY_SCHEDULES; s++)
        if ((double)results[s].makespan > any + 0.5)
            return refuse(message, "the study is wrong: %s ends after Graham's bound",
                          study_name((StudySchedule)s));
    return true;
}

// ---- files

static void write_tiles(FILE *to, const StudyProblem *p, StudySchedule schedule,
                        const StudyResult *r, const StudyTile *tiles) {
    for (int64_t i = 0; i < r->tiles; i++)
        fprintf(to, "%s,%d,%s,%" PRId64 ",%d,%" PRId64 ",%" PRId64 ",%d,%d,%d,%" PRId64 "\n",
                study_key(schedule), p->workers, counts_blocks(p) ? "blocks" : "cycles",
                study_bound(p, r), tiles[i].worker, tiles[i].begin, tiles[i].end, tiles[i].batch,
                tiles[i].head, tiles[i].tile, tiles[i].blocks);
}

static void write_result(FILE *to, const StudyProblem *p, StudySchedule schedule,
                         const StudyResult *r) {
    fprintf(to,
            "{\"name\": \"%s\", \"makespan\": %" PRId64 ", \"bound\": %" PRId64
            ", \"graham\": %.9g, \"tiles\": %" PRId64 ", \"blocks\": %" PRId64
            ", \"work\": %" PRId64 ", \"longest\": %" PRId64 ", \"working_set_bytes\": %" PRId64
            ", \"kv_read_bytes\": %" PRId64 ", \"hbm_read_bytes\": %" PRId64 "}",
            study_key(schedule), r->makespan, study_bound(p, r), graham_any_order(p, r), r->tiles,
            r->blocks, r->work, r->longest, r->working_set, r->kv_bytes, r->read_bytes);
}

static void write_problem(FILE *to, const StudyProblem *p) {
    fprintf(to,
            "{\"batch\": %d, \"heads\": %d, \"kv_heads\": %d, \"seqlen_q\": %" PRId64
            ", \"seqlen_k\": %" PRId64 ", \"window\": [%" PRId64 ", %" PRId64
            "], \"rows\": %d, \"keys\": %d, \"workers\": %d, \"tile_cycles\": %" PRId64
            ", \"block_cycles\": %" PRId64 ", \"l2_bytes\": %" PRId64 "}",
            p->batch, p->heads, p->kv_heads, p->seqlen_q, p->seqlen_k, p->window_left,
            p->window_right, p->rows, p->keys, p->workers, p->tile_cycles, p->block_cycles,
            p->l2_bytes);
}

// All schedules of one problem: table, CSV, picture, and JSON where there is a stream for it.
static bool study(const StudyProblem *p, const char *title, FILE *table, const char *csv_path,
                  const char *png, FILE *json, Message *message) {
    const char *why;
    if (!study_possible(p, &why)) return refuse(message, "--schedule-study: %s", why);
    if (study_tiles(p) == 0)
        return refuse(message, "--schedule-study: no query rows, so nothing to schedule");
    OutputFile csv;
    if (!file_open(&csv, csv_path, message)) return false;
    StudyTile *tiles = allocate(study_tiles(p) * (int64_t)sizeof *tiles);
    StudyResult results[STUDY_SCHEDULES];
    fprintf(csv.stream, "schedule,workers,unit,bound,worker,begin,end,batch,head,tile,blocks\n");
    for (int s = 0; s < STUDY_SCHEDULES; s++) {
        results[s] = study_run(p, (StudySchedule)s, tiles);
        write_tiles(csv.stream, p, (StudySchedule)s, &results[s], tiles);
    }
    free(tiles);
    if (!file_commit(&csv, message)) return false;

    print_heading(table, title, p, &results[0]);
    fprintf(table, "  %-18s %12s %11s %9s %12s %12s %12s%s\n", "schedule", "makespan", "over bound",
            "idle", "working set", "K, V read", "all reads",
            counts_blocks(p) ? "" : "     a cycle");
    for (int s = 0; s < STUDY_SCHEDULES; s++) print_row(table, p, (StudySchedule)s, &results[s]);
    if (!print_bounds(table, p, results, message)) return false;
    if (json != NULL) {
        fputs("{\"problem\": ", json);
        write_problem(json, p);
        fputs(", \"schedules\": [", json);
        for (int s = 0; s < STUDY_SCHEDULES; s++) {
            if (s > 0) fputs(", ", json);
            write_result(json, p, (StudySchedule)s, &results[s]);
        }
        fputs("]}\n", json);
    }
    Message no_picture;
    const bool drawn = png != NULL && draw_plot("schedule.py", csv_path, png, &no_picture);
    fprintf(table, "\n%s%s%s\n", csv_path, drawn ? "  " : "", drawn ? png : "");
    if (png != NULL && !drawn) fprintf(stderr, "run: %s\n", no_picture.text);
    return true;
}

bool schedule_report(const StudyRequest *r, Message *message) {
    const StudyProblem problem = problem_of(r), example = lecture_example();
    char title[320];
    if (!r->chosen) {
        if (!study(&example, "the lecture's example", r->table, r->example_csv, r->example_png,
                   NULL, message))
            return false;
        fputc('\n', r->table);
    }
    char l2[32];
    snprintf(title, sizeof title, "%s, L2 of %s", r->device->name,
             bytes_text(l2, sizeof l2, (double)problem.l2_bytes));
    if (!study(&problem, title, r->table, r->csv, r->png, r->json, message)) return false;
    fputs(
        "\nworking set: K and V read in the time of the longest tile, on average. K, V read: what "
        "of them\ncomes from HBM if the L2 forgets what was used longest ago; all reads: and Q. No "
        "time is counted for\nthem: what HBM can't read in a cycle makes a schedule take longer.\n",
        r->table);
    return true;
}
