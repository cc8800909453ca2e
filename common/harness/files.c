// Files that appear whole or not at all. A temporary file is in the target's own folder, since a
// rename is atomic only inside one file system.
#include "harness/files.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- what a signal removes

// Written by the main thread, read by a signal's handler: a line counts once `used` says so.
enum { MOST_TEMPORARY = 8 };
static char temporary[MOST_TEMPORARY][4096];
static atomic_bool used[MOST_TEMPORARY];

void temporary_made(const char *path) {
    for (int i = 0; i < MOST_TEMPORARY; i++) {
        if (used[i]) continue;
        snprintf(temporary[i], sizeof temporary[i], "%.4095s", path);
        used[i] = true;
        return;
    }
}

void temporary_gone(const char *path) {
    for (int i = 0; i < MOST_TEMPORARY; i++)
        if (used[i] && strcmp(temporary[i], path) == 0) used[i] = false;
}

void file_temporary(const char *path, char *text, size_t size) {
    snprintf(text, size, "%.4000s.%ld.part", path, (long)getpid());
}

// Calls only what a handler may call, and ends as the signal would have.
static void remove_and_end(int number) {
    for (int i = 0; i < MOST_TEMPORARY; i++)
        if (used[i]) unlink(temporary[i]);
    folders_abandon();
    signal(number, SIG_DFL);
    raise(number);
}

void files_mind_signals(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction before, action = {.sa_handler = remove_and_end};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        if (sigaction(numbers[n], NULL, &before) != 0 || before.sa_handler == SIG_IGN) continue;
        sigaction(numbers[n], &action, NULL);
    }
}

// ---- files

bool file_open(OutputFile *file, const char *path, Message *message) {
    file->stream = NULL;
    file->temporary[0] = 0;
    if (strlen(path) + 32 > sizeof file->path)
        return refuse(message, "%.80s…: name too long", path);
    strcpy(file->path, path);
    if (strcmp(path, "-") == 0) {
        file->stream = stdout;
        return true;
    }
    struct stat status;
    bool exists = stat(path, &status) == 0;
    if (exists && S_ISDIR(status.st_mode)) {
        return refuse(message, "%s is a folder; give the name of a file", path);
    }
    if (exists && !S_ISREG(status.st_mode)) { // /dev/null and pipes can't be replaced: write there
        file->stream = fopen(path, "w");
    } else {
        file_temporary(path, file->temporary, sizeof file->temporary);
        temporary_made(file->temporary);
        file->stream = fopen(file->temporary, "w");
    }
    if (file->stream == NULL) {
        int reason = errno;
        temporary_gone(file->temporary);
        file->temporary[0] = 0;
        return refuse(message, "can't write %s: %s", path, strerror(reason));
    }
    return true;
}

void file_abandon(OutputFile *file) {
    if (file->stream != NULL && file->stream != stdout) fclose(file->stream);
    if (file->temporary[0] != 0) {
        unlink(file->temporary);
        temporary_gone(file->temporary);
    }
    file->stream = NULL;
    file->temporary[0] = 0;
}

bool file_commit(OutputFile *file, Message *message) {
    bool written = ferror(file->stream) == 0 && fflush(file->stream) == 0;
    int reason = errno;
    if (file->stream != stdout && fclose(file->stream) != 0 && written) {
        written = false;
        reason = errno;
    }
    file->stream = NULL;
    if (written && file->temporary[0] != 0 && rename(file->temporary, file->path) != 0) {
        written = false;
        reason = errno;
    }
    if (written) temporary_gone(file->temporary);
    if (!written) {
        file_abandon(file);
        return refuse(message, "can't write %s: %s", file->path, strerror(reason));
    }
    return true;
}

// The folders that folder_prepare made: results/ and --save's.
static char made[2][4096];
static int made_count;

void folders_abandon(void) {
    while (made_count > 0) rmdir(made[--made_count]); // one that holds something stays
}

bool folder_prepare(const char *path, Message *message) {
    struct stat status;
    bool new_folder = mkdir(path, 0777) == 0;
    if (!new_folder && errno != EEXIST) {
        return refuse(message, "can't make the folder %s: %s", path, strerror(errno));
    }
    if (new_folder && made_count < 2) {
        snprintf(made[made_count++], sizeof made[0], "%.4095s", path);
    }
    if (stat(path, &status) != 0) return refuse(message, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(status.st_mode)) return refuse(message, "%s is not a folder", path);
    if (strlen(path) > 4000) return refuse(message, "%.80s…: name too long", path);
    char probe[4096];
    snprintf(probe, sizeof probe, "%.4000s/.probe", path);
    return file_probe(probe, message);
}

bool file_probe(const char *path, Message *message) {
    OutputFile file;
    if (!file_open(&file, path, message)) return false;
    file_abandon(&file);
    return true;
}
