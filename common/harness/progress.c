// The progress bar. A thread redraws it, since what it reports on blocks the main thread.
#include "harness/progress.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { QUIET_SECONDS = 2, BAR_COLUMNS = 24 };

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool running, drawn;
    int units, begun;
    char doing[64];
    struct timespec start;
} bar = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static double seconds_since(struct timespec start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) * 1e-9;
}

static void draw(double seconds) {
    int done = bar.begun > 0 ? bar.begun - 1 : 0;
    int filled = bar.units > 0 ? done * BAR_COLUMNS / bar.units : 0;
    char columns[BAR_COLUMNS + 1];
    memset(columns, '.', BAR_COLUMNS);
    memset(columns, '#', (size_t)(filled < BAR_COLUMNS ? filled : BAR_COLUMNS));
    columns[BAR_COLUMNS] = 0;
    fprintf(stderr, "\r\033[K[%s] %d of %d · %s · %.0f s", columns, done, bar.units, bar.doing,
            seconds);
    fflush(stderr);
    bar.drawn = true;
}

// Redraws five times a second once the quiet time is over.
static void *draw_until_stopped(void *unused) {
    (void)unused;
    pthread_mutex_lock(&bar.lock);
    while (bar.running) {
        double seconds = seconds_since(bar.start);
        if (seconds >= QUIET_SECONDS) draw(seconds);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 200000000;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&bar.changed, &bar.lock, &until);
    }
    pthread_mutex_unlock(&bar.lock);
    return NULL;
}

void progress_start(int units) {
    if (!isatty(STDERR_FILENO)) return;
    bar.units = units;
    bar.begun = 0;
    bar.drawn = false;
    bar.doing[0] = 0;
    clock_gettime(CLOCK_MONOTONIC, &bar.start);
    bar.running = true;
    if (pthread_create(&bar.thread, NULL, draw_until_stopped, NULL) != 0) bar.running = false;
}

void progress_next(const char *doing) {
    pthread_mutex_lock(&bar.lock);
    bar.begun++;
    snprintf(bar.doing, sizeof bar.doing, "%s", doing);
    pthread_mutex_unlock(&bar.lock);
}

void progress_pause(void) {
    pthread_mutex_lock(&bar.lock);
    if (bar.running && bar.drawn) fprintf(stderr, "\r\033[K");
    bar.drawn = false;
}

void progress_resume(void) {
    pthread_mutex_unlock(&bar.lock);
}

void progress_stop(void) {
    if (!bar.running) return;
    pthread_mutex_lock(&bar.lock);
    bar.running = false;
    pthread_cond_signal(&bar.changed);
    pthread_mutex_unlock(&bar.lock);
    pthread_join(bar.thread, NULL);
    if (bar.drawn) fprintf(stderr, "\r\033[K");
}
