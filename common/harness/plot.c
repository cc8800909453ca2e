// Pictures are drawn by Python and matplotlib. A machine without them only misses the picture.
#include "harness/report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/files.h"

// The scripts are found from where the program is: its folder, or one above, holds common/plot.
static bool find_script(const char *script, char *path, size_t size) {
    char folder[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[length > 0 ? length : 0] = 0;
    for (char *slash = strrchr(folder, '/'); slash != NULL; slash = strrchr(folder, '/')) {
        *slash = 0;
        snprintf(path, size, "%.4000s/common/plot/%s", folder, script);
        if (access(path, R_OK) == 0) return true;
    }
    return false;
}

// The virtual environment that set-up made beside the program, if it is there.
static const char *find_python(void) {
    static char venv[PATH_MAX + 32];
    const char *named = getenv("PLOT_PYTHON");
    if (named != NULL && named[0] != 0) return named;
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = 0;
    for (char *slash = strrchr(program, '/'); slash != NULL; slash = strrchr(program, '/')) {
        *slash = 0;
        snprintf(venv, sizeof venv, "%s/build/venv/bin/python", program);
        if (access(venv, X_OK) == 0) return venv;
    }
    return "python3";
}

// Runs the script with its standard error in a pipe and keeps the last line of that.
static int run_script(const char *python, const char *script, const char *csv, const char *png,
                      char *last_line, size_t size) {
    int ends[2];
    last_line[0] = 0;
    if (pipe(ends) != 0) return -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); // a signal that ends ./run ends this, too
        dup2(ends[1], STDERR_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execlp(python, python, script, csv, png, (char *)NULL);
        fprintf(stderr, "%s: %s\n", python, strerror(errno));
        _exit(127);
    }
    close(ends[1]);
    FILE *stream = fdopen(ends[0], "r");
    char line[512];
    while (stream != NULL && fgets(line, sizeof line, stream) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] != 0) snprintf(last_line, size, "%s", line);
    }
    if (stream != NULL) fclose(stream);
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

bool draw_plot(const char *script, const char *csv, const char *png, Message *message) {
    char path[PATH_MAX], line[512], part[PATH_MAX];
    if (!find_script(script, path, sizeof path)) {
        return refuse(message, "no picture: common/plot/%s is not there", script);
    }
    snprintf(part, sizeof part, "%.4000s.%ld.part.png", png, (long)getpid());
    temporary_made(part);
    int status = run_script(find_python(), path, csv, part, line, sizeof line);
    bool drawn = status == 0 && rename(part, png) == 0;
    if (!drawn) unlink(part);
    temporary_gone(part);
    if (drawn) return true;
    return refuse(message, "no picture: %s", line[0] != 0 ? line : "python3 failed");
}
