// softgpu [options] PROGRAM [ARGS]: runs a program built with `nvcc -cudart shared` on softgpu.
//
// The options become SOFTGPU_* environment variables and our libcudart.so.13 is loaded first, so
// that it wins over any path in the program. The launcher waits, and its exit status is the
// program's, or 99 if softgpu found an error in it, or 2 if the report or the timeline could not be
// written: the program says so in a page that both share.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "softgpu/api/launcher.h"

enum { STATUS_USAGE = 2, STATUS_FOUND = 99 };

static const char usage[] =
    "usage: softgpu [options] PROGRAM [ARGS]\n"
    "Runs a CUDA program (built with nvcc -cudart shared, holding PTX) on the CPU, checking it.\n"
    "\n"
    "  --gpu NAME        models a100, a100-40gb, h100, h200 or b200 (default: by the program)\n"
    "  --check LIST      mem, init, race, sync, all or none (default all)\n"
    "  --schedule SEED   another order of warps and completions (default 0)\n"
    "  --async ORDER     early, late or random: when asynchronous work completes\n"
    "  --numerics KIND   fast or hardware: arithmetic of the tensor cores\n"
    "  --clock GHZ       the modelled clock\n"
    "  --sms N           model a GPU with only N SMs, the rest in proportion\n"
    "  --sample N        simulate N of its SMs and scale\n"
    "  --report KIND     text or json: how findings are written (on standard error)\n"
    "  --report-file F   write the report to a file\n"
    "  --trace FILE      write a timeline for ui.perfetto.dev: the first SMs' warps and units\n"
    "  --trace-sms N     of how many SMs (default 2)\n"
    "  --stats           counters per kernel at the end\n"
    "  --no-timing       no caches and no modelled time: faster\n"
    "  --threads N       host threads (default: the cores)\n"
    "  --strict          what PTX's letter demands counts as an error too\n"
    "  --forms           print the instructions that softgpu executes and refuses\n"
    "\n"
    "Exit status: the program's, or 99 if softgpu found an error in it; 2 for bad usage, or a\n"
    "report or timeline that can't be written.\n";

// Options with a value, and the variable that carries it.
static const struct {
    const char *name, *variable;
} valued[] = {
    {"--gpu", "SOFTGPU_GPU"},           {"--check", "SOFTGPU_CHECK"},
    {"--schedule", "SOFTGPU_SCHEDULE"}, {"--async", "SOFTGPU_ASYNC"},
    {"--numerics", "SOFTGPU_NUMERICS"}, {"--clock", "SOFTGPU_CLOCK"},
    {"--sms", "SOFTGPU_SMS"},           {"--sample", "SOFTGPU_SAMPLE"},
    {"--report", "SOFTGPU_REPORT"},     {"--report-file", "SOFTGPU_REPORT_FILE"},
    {"--trace", "SOFTGPU_TRACE"},       {"--trace-sms", "SOFTGPU_TRACE_SMS"},
    {"--threads", "SOFTGPU_THREADS"},
};

// Options without one.
static const struct {
    const char *name, *variable, *value;
} switches[] = {
    {"--stats", "SOFTGPU_STATS", "1"},
    {"--no-timing", "SOFTGPU_TIMING", "0"},
    {"--strict", "SOFTGPU_STRICT", "1"},
};

// Prints one line and ends with the status for bad usage.
static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("softgpu: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(STATUS_USAGE);
}

// Refuses a timeline that can't be written, before the program runs.
static void check_writable(const char *path) {
    struct stat status;
    char probe[PATH_MAX];
    if (!strcmp(path, "-")) return;
    bool exists = stat(path, &status) == 0;
    if (*path == 0 || (exists && S_ISDIR(status.st_mode)))
        die("--trace '%s': give the name of a file", path);
    bool special = exists && !S_ISREG(status.st_mode);
    snprintf(probe, sizeof probe, "%.4000s%s", path, special ? "" : ".probe");
    int fd = open(probe, O_WRONLY | O_CLOEXEC | (special ? 0 : O_CREAT), 0666);
    if (fd < 0) die("--trace %s: can't write it: %s", path, strerror(errno));
    close(fd);
    if (!special) unlink(probe);
}

// Takes the option at argv[i]; returns how many arguments it used.
static int take_option(char **argv, int i) {
    const char *option = argv[i];
    const char *equals = strchr(option, '=');
    size_t length = equals ? (size_t)(equals - option) : strlen(option);
    for (size_t s = 0; s < sizeof switches / sizeof *switches; s++) {
        if (!strcmp(option, switches[s].name)) {
            setenv(switches[s].variable, switches[s].value, 1);
            return 1;
        }
    }
    for (size_t v = 0; v < sizeof valued / sizeof *valued; v++) {
        if (strlen(valued[v].name) != length || strncmp(option, valued[v].name, length)) continue;
        const char *value = equals ? equals + 1 : argv[i + 1];
        if (value == NULL) die("%s needs a value; see softgpu --help", valued[v].name);
        if (!strcmp(valued[v].name, "--trace")) check_writable(value);
        setenv(valued[v].variable, value, 1);
        return equals ? 1 : 2;
    }
    die("unknown option %s; see softgpu --help", option);
}

// ---- the program

// The whole path of the program, looked up in PATH where the name has no slash.
static char *find_program(const char *name) {
    if (strchr(name, '/')) return strdup(name);
    const char *path = getenv("PATH");
    for (const char *at = path; at && *at;) {
        size_t n = strcspn(at, ":");
        char *full;
        if (asprintf(&full, "%.*s/%s", (int)n, at, name) < 0) abort();
        if (access(full, X_OK) == 0) return full;
        free(full);
        at += n + (at[n] == ':');
    }
    return strdup(name);
}

// What a program file says about its CUDA runtime.
typedef struct {
    bool has_kernels; // a section of fat binaries
    char cudart[64];  // the libcudart that it needs, or ""
    bool driver;      // it needs libcuda: it talks to the driver, with or without a runtime
} ProgramFacts;

// The section header of index i, or NULL where the file doesn't hold it.
static const Elf64_Shdr *section(const uint8_t *file, size_t size, int i) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)file;
    uint64_t at = header->e_shoff + (uint64_t)i * sizeof(Elf64_Shdr);
    if (header->e_shoff > size || at % 8 || at > size || size - at < sizeof(Elf64_Shdr))
        return NULL;
    return (const Elf64_Shdr *)(file + at);
}

// A string of a string table, or "" where the file doesn't hold it whole.
static const char *string(const uint8_t *file, size_t size, const Elf64_Shdr *table, uint64_t at) {
    if (table == NULL || table->sh_offset > size || table->sh_size > size - table->sh_offset ||
        at >= table->sh_size)
        return "";
    const char *s = (const char *)file + table->sh_offset + at;
    return memchr(s, 0, table->sh_size - at) ? s : "";
}

// Reads an ELF program's sections: fat binaries, and which libcudart it needs.
static void read_facts(const uint8_t *file, size_t size, ProgramFacts *facts) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)file;
    const Elf64_Shdr *names = section(file, size, header->e_shstrndx);
    for (int i = 0; i < header->e_shnum; i++) {
        const Elf64_Shdr *s = section(file, size, i);
        if (s == NULL) return;
        if (!strcmp(string(file, size, names, s->sh_name), ".nv_fatbin")) facts->has_kernels = true;
        if (s->sh_type != SHT_DYNAMIC || s->sh_offset > size || s->sh_size > size - s->sh_offset ||
            s->sh_offset % 8)
            continue;
        const Elf64_Shdr *strings = section(file, size, (int)s->sh_link);
        const Elf64_Dyn *entries = (const Elf64_Dyn *)(file + s->sh_offset);
        for (uint64_t d = 0; d < s->sh_size / sizeof *entries; d++) {
            if (entries[d].d_tag != DT_NEEDED) continue;
            const char *needed = string(file, size, strings, entries[d].d_un.d_val);
            if (!strcmp(needed, "libcuda.so.1")) facts->driver = true;
            if (!strncmp(needed, "libcudart.so", strlen("libcudart.so")))
                snprintf(facts->cudart, sizeof facts->cudart, "%s", needed);
        }
    }
}

// Refuses what can't work: no such file, not executable, a runtime that is linked in or too old.
static void check_program(const char *path, const char *name) {
    struct stat status;
    if (stat(path, &status) != 0) die("%s: %s", name, strerror(errno));
    if (S_ISDIR(status.st_mode)) die("%s is a directory, not a program", name);
    if (access(path, X_OK) != 0) die("%s is not executable", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return; // executable but not readable: run it and see
    size_t size = (size_t)status.st_size;
    void *file = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (file == MAP_FAILED) return;
    ProgramFacts facts = {0};
    const unsigned char *bytes = file;
    if (size >= sizeof(Elf64_Ehdr) && !memcmp(bytes, ELFMAG, SELFMAG) &&
        bytes[EI_CLASS] == ELFCLASS64)
        read_facts(file, size, &facts);
    munmap(file, size);
    if (facts.has_kernels && facts.cudart[0] == 0 && !facts.driver)
        die("%s has the CUDA runtime linked into it, so softgpu can't take its place; rebuild it "
            "with nvcc -cudart shared",
            name);
    if (facts.cudart[0] && strcmp(facts.cudart, "libcudart.so.13"))
        die("%s needs %s; softgpu is libcudart.so.13: rebuild it with a CUDA 13 toolkit", name,
            facts.cudart);
}

// The folder of this program, and our library in it: build/softgpu has build/softgpu/lib.
static void find_library(char self[PATH_MAX], char library[PATH_MAX + 32]) {
    ssize_t n = readlink("/proc/self/exe", self, PATH_MAX - 1);
    if (n < 0) die("/proc is needed to find softgpu's libraries: %s", strerror(errno));
    self[n] = 0;
    *strrchr(self, '/') = 0;
    snprintf(library, PATH_MAX + 32, "%s/lib/libcudart.so.13", self);
    if (access(library, R_OK) != 0) die("%s is missing: run make softgpu", library);
}

// The instructions that softgpu knows, as Markdown; the library has the table.
static void print_forms(void) {
    char self[PATH_MAX], library[PATH_MAX + 32];
    find_library(self, library);
    void *handle = dlopen(library, RTLD_NOW);
    void (*forms)(FILE *) = handle ? (void (*)(FILE *))dlsym(handle, "softgpu_forms") : NULL;
    if (forms == NULL) die("%s: %s", library, dlerror());
    forms(stdout);
}

// Puts our libraries before all others.
static void set_library(void) {
    char self[PATH_MAX], library[PATH_MAX + 32];
    find_library(self, library);
    const char *preload = getenv("LD_PRELOAD"), *path = getenv("LD_LIBRARY_PATH");
    char *value;
    bool more = preload && *preload;
    if (asprintf(&value, "%s%s%s", library, more ? ":" : "", more ? preload : "") < 0) abort();
    setenv("LD_PRELOAD", value, 1);
    free(value);
    more = path && *path;
    if (asprintf(&value, "%s/lib%s%s", self, more ? ":" : "", more ? path : "") < 0) abort();
    setenv("LD_LIBRARY_PATH", value, 1);
    free(value);
}

// A page that the program's softgpu writes into; the program inherits its descriptor.
static LauncherPage *make_page(void) {
    int fd = memfd_create("softgpu-findings", 0);
    if (fd < 0 || ftruncate(fd, sizeof(LauncherPage)) != 0)
        die("can't make the shared page: %s", strerror(errno));
    void *page = mmap(NULL, sizeof(LauncherPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) die("can't map the shared page: %s", strerror(errno));
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    setenv("SOFTGPU_LAUNCHER", number, 1);
    return page;
}

// A program that a signal ended leaves the timeline or the report under a temporary name (softgpu.h).
static void remove_unfinished(pid_t pid) {
    static const char *const variables[] = {"SOFTGPU_TRACE", "SOFTGPU_REPORT_FILE"};
    for (int v = 0; v < 2; v++) {
        const char *path = getenv(variables[v]);
        char *part;
        if (path == NULL || asprintf(&part, "%s.%ld.part", path, (long)pid) < 0) continue;
        unlink(part);
        free(part);
    }
}

static volatile sig_atomic_t child;

// Passes a signal on; a terminal sends its own to both of us.
static void pass_on(int number) {
    if (child > 0) kill((pid_t)child, number);
}

int main(int argc, char **argv) {
    int i = 1;
    while (i < argc && argv[i][0] == '-') {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            fputs(usage, stdout);
            return 0;
        }
        if (!strcmp(argv[i], "--forms")) {
            print_forms();
            return 0;
        }
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        i += take_option(argv, i);
    }
    if (i >= argc) die("no program given; usage: softgpu [options] PROGRAM [ARGS]");
    char *program = find_program(argv[i]);
    check_program(program, argv[i]);
    set_library();
    LauncherPage *page = make_page();

    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) die("can't start a process: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); // SIGKILL can't be passed on
        execv(program, argv + i);
        fprintf(stderr, "softgpu: %s: %s\n", argv[i], strerror(errno));
        _exit(STATUS_USAGE);
    }
    child = pid;
    signal(SIGTERM, pass_on);
    signal(SIGHUP, pass_on);
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) die("lost the program: %s", strerror(errno));
    if (WIFSIGNALED(status)) remove_unfinished(pid);
    int found = atomic_load(&page->found);
    if (found > 0) {
        fprintf(stderr, "softgpu: %d error%s found\n", found, found == 1 ? "" : "s");
        return STATUS_FOUND;
    }
    if (WIFSIGNALED(status)) return 128 + WTERMSIG(status); // as a shell reports it
    if (WEXITSTATUS(status) == 0 && atomic_load(&page->unwritten)) return STATUS_USAGE;
    return WEXITSTATUS(status);
}
