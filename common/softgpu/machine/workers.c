// Host threads that run SMs. They are started when first needed and stay until the process ends,
// since a launch may have thousands of short rounds: between rounds they watch a counter for a
// moment, then sleep.
//
// Invariant: a worker touches the job only between seeing its number and counting itself out, and
// workers_run returns only when all have.
#include "softgpu/machine/parts.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS_MAX = 256, WATCH = 2000 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int started;                 // workers, the caller not among them
    atomic_uint_fast64_t number; // of the job; rises by one for each
    atomic_int next;             // index to claim
    atomic_int busy;             // workers that have not counted themselves out
    int count, threads;
    uint64_t born[THREADS_MAX + 1]; // the last job before each worker started
    void (*run)(void *context, int index, int thread);
    void *context;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static void work(int thread) {
    for (;;) {
        int index = atomic_fetch_add(&pool.next, 1);
        if (index >= pool.count) return;
        pool.run(pool.context, index, thread);
    }
}

// Waits until the job's number is no longer `seen`.
static uint64_t wait_for_job(uint64_t seen) {
    for (int k = 0; k < WATCH; k++) {
        uint64_t number = atomic_load(&pool.number);
        if (number != seen) return number;
        __builtin_ia32_pause();
    }
    pthread_mutex_lock(&pool.lock);
    while (atomic_load(&pool.number) == seen) pthread_cond_wait(&pool.wake, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
    return atomic_load(&pool.number);
}

static void *worker(void *argument) {
    int thread = (int)(intptr_t)argument;
    uint64_t seen = pool.born[thread];
    for (;;) {
        seen = wait_for_job(seen);
        if (thread < pool.threads) work(thread);
        atomic_fetch_sub(&pool.busy, 1);
    }
    return NULL;
}

// Starts workers until there are `wanted`. Fewer, if the system gives no more.
static void start(int wanted) {
    if (wanted > THREADS_MAX) wanted = THREADS_MAX;
    while (pool.started < wanted) {
        pthread_t thread;
        int number = pool.started + 1;
        pool.born[number] = atomic_load(&pool.number);
        if (pthread_create(&thread, NULL, worker, (void *)(intptr_t)number)) return;
        pthread_detach(thread);
        pool.started++;
    }
}

void workers_run(int threads, int count, void (*run)(void *context, int index, int thread),
                 void *context) {
    if (threads > count) threads = count;
    if (threads > 1) start(threads - 1);
    if (threads <= 1 || !pool.started) {
        for (int index = 0; index < count; index++) run(context, index, 0);
        return;
    }
    pool.run = run;
    pool.context = context;
    pool.count = count;
    pool.threads = threads;
    atomic_store(&pool.next, 0);
    atomic_store(&pool.busy, pool.started);
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.number, 1);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
    work(0);
    for (int k = 0; atomic_load(&pool.busy); k++) {
        if (k < WATCH)
            __builtin_ia32_pause();
        else
            sched_yield();
    }
}
