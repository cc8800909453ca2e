// What is known of a kernel's code beforehand (pace.h): stops, costs, and the rows of loads.
#include <stdlib.h>
#include <string.h>

#include "softgpu/execute/form.h"
#include "softgpu/execute/phase.h"
#include "softgpu/timing/expansion.h"
#include "softgpu/timing/pace.h"

// cp.async leaves in the playback, as loads do.
static bool is_copy(const char *text) {
    return !strncmp(text, "cp.async", 8) && !text_has(text, "bulk") &&
           !text_has(text, "commit_group") && !text_has(text, "wait_group") &&
           !text_has(text, "wait_all") && !text_has(text, "mbarrier");
}

// Is this one whose moment others can see, or that tells the time?
static bool is_stop(const Insn *i, const char *text, WaitKind wait) {
    if (wait == WAIT_HERE || wait == WAIT_QUEUE || i->flags & INSN_LEADER) return true;
    if (is_copy(text)) return false;
    return insn_is_phase(i) || text_is(text, "mbarrier") || text_is(text, "bar") ||
           text_is(text, "barrier") || text_is(text, "exit") || text_is(text, "ret") ||
           text_is(text, "trap") || text_has(text, "async") || text_is(text, "griddepcontrol");
}

// Cycles from the moment at which an instruction takes effect until its warp issues again.
static int cost_after(const GpuTiming *t, const char *text) {
    if (text_is(text, "wgmma")) return text_has(text, "mma_async") ? t->wgmma_issue : 0;
    if (text_is(text, "mbarrier"))
        return text_has(text, "try_wait") || text_has(text, "test_wait") ? t->mbarrier_try_wait : 0;
    if (text_is(text, "barrier") && text_has(text, "cluster"))
        return text_has(text, "wait") ? t->cluster_barrier : 0;
    if (text_is(text, "bar") && text_has(text, "warp")) return 0;
    if (text_is(text, "bar") || text_is(text, "barrier"))
        return text_has(text, "arrive") ? 0 : t->barrier_release;
    if (text_is(text, "cp") && text_has(text, "bulk")) return 0;
    if (text_is(text, "cp") && text_has(text, "commit_group")) return t->copy_commit;
    if (text_is(text, "cp") && (text_has(text, "wait_group") || text_has(text, "wait_all")))
        return t->copy_wait;
    return 0;
}

// Cycles that its own machine instructions take one after the other: they are in its segment.
static int chain_of(const Expansion *e, const GpuTiming *t) {
    int sum = 0;
    for (int s = 0; s < e->stage_count; s++)
        sum +=
            e->stages[s].count + (s + 1 < e->stage_count ? t->op[e->stages[s].op].latency - 1 : 0);
    return sum;
}

// Numbers rows in the order met: numbers[row / 4] is 1 + the number.
static uint16_t number_of(KernelPace *p, uint16_t *numbers, Row row) {
    if (!numbers[row / 4]) numbers[row / 4] = (uint16_t)(1 + p->result_rows++);
    return (uint16_t)(numbers[row / 4] - 1);
}

static uint32_t highest_row(const Kernel *k, const KernelSchedule *s) {
    uint32_t most = 0;
    for (uint32_t i = 0; k->uses && i < k->code_count; i++)
        for (int n = 0; n < k->uses[i].count; n++) {
            Use use = k->touched[k->uses[i].first + (uint32_t)n] & ~(Use)USE_KINDS;
            if (!(use & ROW_CONSTANT) && use > most) most = use;
        }
    for (uint32_t n = 0; n < s->row_count; n++)
        if (s->rows[n].row > most) most = s->rows[n].row;
    return most;
}

// The rows that instruction `i` writes, as numbers; `to` may be NULL, to count them.
static uint32_t results_of(KernelPace *p, const Kernel *k, uint32_t i, uint16_t *numbers,
                           uint16_t *to) {
    uint32_t count = 0;
    for (int n = 0; k->uses && n < k->uses[i].count; n++) {
        Use use = k->touched[k->uses[i].first + (uint32_t)n];
        if ((use & USE_KINDS) != USE_WRITE || use & ROW_CONSTANT) continue;
        if (to) to[count] = number_of(p, numbers, use & ~(Use)USE_KINDS);
        count++;
    }
    return count;
}

// A fence that other SMs are to see stores behind.
static bool fences_memory(const char *text) {
    if (!strncmp(text, "membar", 6)) return !strstr(text, ".cta");
    return !strncmp(text, "fence", 5) && !strstr(text, ".proxy") && !strstr(text, ".cta") &&
           !strstr(text, "mbarrier_init");
}

static bool fill(KernelPace *p, const Kernel *k, const GpuFigures *f) {
    uint32_t count = k->code_count, results = 0;
    p->schedule = kernel_schedule(k, f, p->timing);
    if (!p->schedule) return false;
    uint16_t *numbers = calloc(highest_row(k, p->schedule) / 4 + 2, sizeof *numbers);
    p->stops = calloc(count + 1, 1);
    p->after = calloc(count + 1, sizeof *p->after);
    p->loads = calloc(count + 2, sizeof *p->loads);
    p->rows = calloc(p->schedule->row_count + 1, sizeof *p->rows);
    bool ok = numbers && p->stops && p->after && p->loads && p->rows;
    for (uint32_t i = 0; i < count && ok; i++) {
        const char *text = k->texts && k->texts[i] ? k->texts[i] : "";
        Expansion e = expand(&k->code[i], text, f, p->timing);
        bool load = e.wait == WAIT_RESULT;
        bool stop = is_stop(&k->code[i], text, (WaitKind)e.wait);
        bool fence = e.wait == WAIT_HERE && fences_memory(text);
        bool proxy = !strncmp(text, "fence.proxy.async", 17);
        p->stops[i] = (uint8_t)((stop ? PACE_STOP : 0) | (load ? PACE_LOAD : 0) |
                                (fence ? PACE_FENCE : 0) | (proxy ? PACE_PROXY : 0));
        int after = cost_after(p->timing, text) - chain_of(&e, p->timing);
        p->after[i] = (uint16_t)(after > 0 ? after : 0);
        p->loads[i] = results;
        if (load) results += results_of(p, k, i, numbers, NULL);
    }
    if (ok) p->loads[count] = results;
    p->results = calloc(results + 1, sizeof *p->results);
    ok &= p->results != NULL;
    for (uint32_t i = 0; i < count && ok; i++)
        if (p->stops[i] & PACE_LOAD) results_of(p, k, i, numbers, p->results + p->loads[i]);
    for (uint32_t n = 0; n < p->schedule->row_count && ok; n++)
        p->rows[n] = number_of(p, numbers, p->schedule->rows[n].row);
    // The answers of a block's loads are numbered behind those of rows.
    p->load_numbers = calloc(count + 1, sizeof *p->load_numbers);
    ok &= p->load_numbers != NULL;
    uint32_t rows = p->result_rows;
    for (uint32_t i = 0, next = rows; i < count && ok; i++) {
        if (k->code[i].flags & INSN_LEADER) next = rows;
        if (p->stops[i] & PACE_LOAD) p->load_numbers[i] = next++;
        if (next > p->result_rows) p->result_rows = next;
    }
    free(numbers);
    return ok;
}

static void release(void *pace) {
    KernelPace *p = pace;
    if (!p) return;
    kernel_schedule_free(p->schedule);
    free(p->stops);
    free(p->after);
    free(p->loads);
    free(p->results);
    free(p->rows);
    free(p->load_numbers);
    free(p);
}

const KernelPace *kernel_pace(Kernel *kernel, const GpuFigures *f) {
    KernelPace *p = kernel->pace;
    if (p && !strcmp(p->gpu, f->name)) return p;
    release(p);
    kernel->pace = NULL;
    p = calloc(1, sizeof *p);
    if (!p) return NULL;
    strncpy(p->gpu, f->name, sizeof p->gpu - 1);
    p->timing = timing_of(f->name);
    if (!fill(p, kernel, f)) {
        release(p);
        return NULL;
    }
    kernel->pace = p;
    kernel->pace_free = release;
    return p;
}
