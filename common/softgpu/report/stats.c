// The table of kernels: one block of lines for each, in the order of their first launches.
#include "softgpu/report/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "softgpu/check/findings.h"
#include "softgpu/timing/latencies.h"
#include "softgpu/timing/roofline.h"

typedef struct {
    char *name;
    uint64_t launches;
    KernelStats sum; // times and counts added up; shapes and bound of the longest launch
    double longest_us;
} Entry;

static Entry *entries;
static size_t entry_count, entry_capacity;

// The entry of a kernel.
static Entry *find_entry(const char *name) {
    for (size_t i = 0; i < entry_count; i++) {
        if (!strcmp(entries[i].name, name)) return &entries[i];
    }
    if (entry_count == entry_capacity) {
        entry_capacity = entry_capacity ? 2 * entry_capacity : 16;
        entries = realloc(entries, entry_capacity * sizeof *entries);
        if (!entries) abort();
    }
    Entry *entry = &entries[entry_count++];
    memset(entry, 0, sizeof *entry);
    entry->name = strdup(name);
    return entry;
}

void stats_record(const KernelStats *launch) {
    Entry *entry = find_entry(launch->kernel ? launch->kernel : "?");
    KernelStats *sum = &entry->sum;
    entry->launches++;
    for (int p = 0; p < PIPE_COUNT; p++) {
        sum->warp_instructions[p] += launch->warp_instructions[p];
        sum->thread_instructions[p] += launch->thread_instructions[p];
        sum->pipe_us[p] += launch->pipe_us[p];
    }
    sum->flops_f32 += launch->flops_f32;
    sum->flops_f64 += launch->flops_f64;
    sum->flops_tensor += launch->flops_tensor;
    sum->hbm_read_bytes += launch->hbm_read_bytes;
    sum->hbm_write_bytes += launch->hbm_write_bytes;
    sum->l2_read_bytes += launch->l2_read_bytes;
    sum->l2_write_bytes += launch->l2_write_bytes;
    sum->shared_wavefronts += launch->shared_wavefronts;
    sum->shared_ideal_wavefronts += launch->shared_ideal_wavefronts;
    sum->issue_us += launch->issue_us;
    sum->shared_us += launch->shared_us;
    sum->l2_us += launch->l2_us;
    sum->hbm_us += launch->hbm_us;
    sum->time_us += launch->time_us;
    // Shares of the cycles become cycles, until they are printed.
    sum->cycles += launch->cycles;
    for (int u = 0; u < UNIT_COUNT; u++) sum->unit_busy[u] += launch->unit_busy[u] * launch->cycles;
    sum->tensor_busy += launch->tensor_busy * launch->cycles;
    sum->shared_busy += launch->shared_busy * launch->cycles;
    sum->l2_busy += launch->l2_busy * launch->cycles;
    sum->hbm_busy += launch->hbm_busy * launch->cycles;
    sum->host_seconds += launch->host_seconds;
    sum->cpu_seconds += launch->cpu_seconds;
    if (entry->launches > 1 && launch->time_us < entry->longest_us) return;
    entry->longest_us = launch->time_us;
    memcpy(sum->grid, launch->grid, sizeof sum->grid);
    memcpy(sum->block, launch->block, sizeof sum->block);
    sum->registers = launch->registers;
    sum->shared_bytes = launch->shared_bytes;
    sum->ctas_per_sm = launch->ctas_per_sm;
    sum->bound = launch->bound;
    sum->sms_simulated = launch->sms_simulated;
    sum->sms_total = launch->sms_total;
}

// Bytes with a unit that fits.
static void print_bytes(double bytes) {
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    int unit = 0;
    while (bytes >= 1000 && unit < 4) {
        bytes /= 1000;
        unit++;
    }
    fprintf(stderr, "%.*f %s", unit ? 2 : 0, bytes, units[unit]);
}

// A share of the kernel's time, if it is worth a word.
static void print_busy(const char *name, double us, double total_us) {
    if (total_us > 0 && us / total_us >= 0.005) {
        fprintf(stderr, "  %s %.0f%%", name, 100 * us / total_us);
    }
}

static void print_roofline(const KernelStats *s) {
    for (int p = 0; p < PIPE_COUNT; p++) print_busy(pipe_name(p), s->pipe_us[p], s->time_us);
    print_busy("issue", s->issue_us, s->time_us);
    print_busy("shared", s->shared_us, s->time_us);
    print_busy("l2", s->l2_us, s->time_us);
    print_busy("hbm", s->hbm_us, s->time_us);
}

static void print_modelled(const KernelStats *s) {
    for (int u = 0; u < UNIT_COUNT; u++)
        if (u != UNIT_TENSOR) print_busy(unit_name((Unit)u), s->unit_busy[u], s->cycles);
    print_busy("tensor", s->tensor_busy, s->cycles);
    print_busy("shared", s->shared_busy, s->cycles);
    print_busy("l2", s->l2_busy, s->cycles);
    print_busy("hbm", s->hbm_busy, s->cycles);
}

// Prints the lines of one kernel.
static void print_entry(const Entry *entry, const GpuFigures *figures) {
    const KernelStats *s = &entry->sum;
    double threads = 0, warps = 0;
    for (int p = 0; p < PIPE_COUNT; p++) {
        threads += s->thread_instructions[p];
        warps += s->warp_instructions[p];
    }
    unsigned block = s->block[0] * s->block[1] * s->block[2];
    double occupancy = (double)s->ctas_per_sm * ((block + 31) / 32 * 32) / figures->threads_per_sm;
    char *name = readable_name(entry->name);
    fprintf(stderr, "%s\n", name ? name : entry->name);
    free(name);
    fprintf(stderr, "  launches %llu  grid %u,%u,%u  block %u,%u,%u",
            (unsigned long long)entry->launches, s->grid[0], s->grid[1], s->grid[2], s->block[0],
            s->block[1], s->block[2]);
    fprintf(stderr, "  registers %u  shared %u B  blocks per SM %u (occupancy %.0f%%)\n",
            s->registers, s->shared_bytes, s->ctas_per_sm, 100 * occupancy);
    if (s->sms_simulated < s->sms_total) {
        fprintf(stderr, "  simulated %d of %d SMs; counts are scaled to all of them\n",
                s->sms_simulated, s->sms_total);
    }
    if (s->time_us > 0) {
        fprintf(stderr, "  time %.2f us at %.3f GHz (%s), bound by %s; busy:", s->time_us,
                figures->clock_ghz, s->cycles > 0 ? "modelled" : "roofline", s->bound);
        if (s->cycles > 0)
            print_modelled(s);
        else
            print_roofline(s);
        fprintf(stderr, "\n  HBM read ");
        print_bytes(s->hbm_read_bytes);
        fprintf(stderr, "  written ");
        print_bytes(s->hbm_write_bytes);
        fprintf(stderr, "   L2 read ");
        print_bytes(s->l2_read_bytes);
        fprintf(stderr, "  written ");
        print_bytes(s->l2_write_bytes);
        if (s->shared_ideal_wavefronts > 0) {
            fprintf(stderr, "   shared wavefronts %.4g (%.2f x the ideal)", s->shared_wavefronts,
                    s->shared_wavefronts / s->shared_ideal_wavefronts);
        }
        fprintf(stderr, "\n");
    }
    fprintf(stderr, "  flops: fp32 %.4g  fp64 %.4g  tensor %.4g\n", s->flops_f32, s->flops_f64,
            s->flops_tensor);
    fprintf(stderr, "  warp instructions %.4g:", warps);
    for (int p = 0; p < PIPE_COUNT; p++) {
        if (s->warp_instructions[p] > 0) {
            fprintf(stderr, "  %s %.4g", pipe_name(p), s->warp_instructions[p]);
        }
    }
    // Per second of CPU time: so neither the number of host threads nor what else runs counts.
    double rate = s->cpu_seconds > 0 ? threads / s->cpu_seconds * 1e-6 : 0;
    fprintf(stderr,
            "\n  host %.3f s, CPU %.3f s: %.1f M thread instructions/s per core, %.1f of 32 lanes "
            "active\n",
            s->host_seconds, s->cpu_seconds, rate, warps > 0 ? threads / warps : 0);
}

// The most memory that the process had at any time: the program's own and softgpu's together, for
// they share it.
static void print_peak_memory(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return;
    fprintf(stderr, "peak memory of the process (the program and softgpu) ");
    print_bytes((double)usage.ru_maxrss * 1024);
    fprintf(stderr, "\n");
}

void stats_print(const GpuFigures *figures) {
    if (entry_count) fprintf(stderr, "softgpu: kernels on %s\n", figures->full_name);
    for (size_t i = 0; i < entry_count; i++) {
        print_entry(&entries[i], figures);
        free(entries[i].name);
    }
    if (entry_count) print_peak_memory();
    free(entries);
    entries = NULL;
    entry_count = entry_capacity = 0;
}
