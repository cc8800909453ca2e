// Host threads for the reference: started for each loop, which is cheap beside what a loop does.
// Iterations are handed out one at a time from a shared counter.
#define _GNU_SOURCE // CPU_COUNT
#include "harness/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MOST_THREADS = 256 };

static int chosen_threads;

void parallel_set_threads(int threads) {
    chosen_threads = threads;
}

int parallel_threads(void) {
    if (chosen_threads > 0) return chosen_threads < MOST_THREADS ? chosen_threads : MOST_THREADS;
    cpu_set_t cores;
    int count = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    if (count < 1) return 1;
    return count < MOST_THREADS ? count : MOST_THREADS;
}

typedef struct {
    _Atomic int64_t next;
    int64_t count;
    void (*work)(void *, int, int64_t);
    void *context;
} Loop;

typedef struct {
    Loop *loop;
    int worker;
} Worker;

// Takes iterations until none is left.
static void *run_worker(void *argument) {
    Worker *worker = argument;
    Loop *loop = worker->loop;
    for (;;) {
        int64_t index = atomic_fetch_add(&loop->next, 1);
        if (index >= loop->count) return NULL;
        loop->work(loop->context, worker->worker, index);
    }
}

void parallel_for(int64_t count, void (*work)(void *context, int worker, int64_t index),
                  void *context) {
    Loop loop = {0, count, work, context};
    int threads = parallel_threads();
    if (threads > count) threads = (int)count;

    pthread_t thread[MOST_THREADS];
    Worker worker[MOST_THREADS];
    int started = 1; // worker 0 is the caller
    while (started < threads) {
        worker[started] = (Worker){&loop, started};
        if (pthread_create(&thread[started], NULL, run_worker, &worker[started]) != 0) break;
        started++;
    }
    worker[0] = (Worker){&loop, 0};
    run_worker(&worker[0]);
    for (int t = 1; t < started; t++) pthread_join(thread[t], NULL);
}
