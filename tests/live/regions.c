/* A program with every kind of thread and child that a program with OpenMP can have.

   gcc compiles its parallel region to GOMP_parallel, which every OpenMP runtime has, so that it can be
   linked with any of them. Each thread tells what the kernel lets it run on, one line of JSON each:
       {"rank":0,"case":"none","kind":"region","thread":1,"cpus":"0,1"}
   Arguments are cases: "none", "before PATH" or "after PATH", where PATH is a second runtime (or another
   library with threads of its own) that is loaded before or after the first region. The first case is what
   this very process does. The others are done by copies of it afterwards, one after the other, which get
   the CPUs in OMPBIND_CPUS and OMPBIND_SERVICE_CPUS, and so start as this one did. */

#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SETS = 8, CPUS = SETS * CPU_SETSIZE, TEXT = 3000, PLAIN = 3, TASKS = 512, PATIENCE_S = 10 };

extern char **environ;
static const char *name = "";
static int (*second_number)(void);

/* Lines are shorter than what a pipe takes as a whole, so lines of two ranks never mix. */
static void tell(const char *kind, int thread, const char *cpus) {
    const char *rank = getenv("OMPBIND_RANK");
    char line[TEXT + 300];
    int length = snprintf(line, sizeof line,
                          "{\"rank\":%s,\"case\":\"%s\",\"kind\":\"%s\",\"thread\":%d,\"cpus\":\"%s\"}\n",
                          rank ? rank : "null", name, kind, thread, cpus);
    if (write(1, line, length) != length) abort();
}

static void look(const char *kind, int thread) {
    cpu_set_t set[SETS];
    char text[TEXT] = "";
    int at = 0;
    CPU_ZERO_S(sizeof set, set);
    if (sched_getaffinity(0, sizeof set, set)) abort();
    for (int cpu = 0; cpu < CPUS && at < TEXT - 8; cpu++)
        if (CPU_ISSET_S(cpu, sizeof set, set)) at += sprintf(text + at, at ? ",%d" : "%d", cpu);
    tell(kind, thread, text);
}

static void run_region(const char *kind) {
#pragma omp parallel
    look(kind, omp_get_thread_num());
}

static void second_body(void *unused) {
    (void)unused;
    look("second", second_number());
}

/* "Cpus_allowed_list" in the status of a task of this process, or of the process itself. */
static void tell_status(const char *kind, int thread, const char *path) {
    char line[TEXT];
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "Cpus_allowed_list:", 18)) {
            line[strcspn(line, "\n")] = 0;
            tell(kind, thread, line + 18 + strspn(line + 18, " \t"));
        }
    if (file) fclose(file);
}

static int list_tasks(int *tasks) {
    DIR *folder = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder)) && count < TASKS;)
        if (isdigit((unsigned char)entry->d_name[0])) tasks[count++] = atoi(entry->d_name);
    if (folder) closedir(folder);
    return count;
}

/* Tell of all tasks of this process but those that are known. */
static void look_at_tasks(const char *kind, const int *known, int known_count) {
    int tasks[TASKS], count = list_tasks(tasks), told = 0;
    for (int i = 0; i < count; i++) {
        int is_known = 0;
        char path[64];
        for (int k = 0; k < known_count; k++) is_known |= known[k] == tasks[i];
        snprintf(path, sizeof path, "/proc/self/task/%d/status", tasks[i]);
        if (!is_known) tell_status(kind, told++, path);
    }
}

static void run_second(const char *path) {
    int before[TASKS], count = list_tasks(before);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned) = dlsym(library, "GOMP_parallel");
    second_number = dlsym(library, "omp_get_thread_num");
    if (parallel && second_number)
        parallel(second_body, NULL, 0, 0);
    else
        look_at_tasks("second", before, count);
}

struct plain {
    const char *kind;
    int number;
};

static void *run_plain(void *thread) {
    look(((struct plain *)thread)->kind, ((struct plain *)thread)->number);
    return NULL;
}

static void make_plain_threads(const char *kind) {
    for (int i = 0; i < PLAIN; i++) {
        struct plain plain = {kind, i};
        pthread_t thread;
        if (pthread_create(&thread, NULL, run_plain, &plain)) abort();
        pthread_join(thread, NULL);
    }
}

/* popen() starts programs as most others do, without handlers of fork() being called. */
static void spawn_child(void) {
    char line[TEXT];
    FILE *pipe = popen("exec grep Cpus_allowed_list /proc/self/status", "r");
    if (!pipe || !fgets(line, sizeof line, pipe)) abort();
    line[strcspn(line, "\n")] = 0;
    tell("spawned", 0, line + 18 + strspn(line + 18, " \t"));
    pclose(pipe);
}

/* Runtimes that crash leave a file behind, named after the process. */
static int reap(pid_t child) {
    char file[64];
    int status = 0;
    waitpid(child, &status, 0);
    snprintf(file, sizeof file, "/dev/shm/__KMP_REGISTERED_LIB_%d_%d", child, getuid());
    if (WIFSIGNALED(status)) unlink(file);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void fork_child(void) {
    pid_t child = fork();
    if (child == 0) {
        look("forked", 0);
        _exit(0);
    }
    int code = reap(child);
    if (code) tell("fork died", code, "");
}

static void do_case(const char *text) {
    const char *path = strchr(text, ' ');
    int known = 0;
    name = text;
    look("start", 0);
    make_plain_threads("early");
    if (path && !strncmp(text, "before", 6)) run_second(path + 1);
    run_region("region");
    look("initial", 0);
    if (path && !strncmp(text, "after", 5)) run_second(path + 1);
    look("then", 0);
    make_plain_threads("plain");
    spawn_child();
    fork_child();
    run_region("again");
    look_at_tasks("task", &known, 0);
    tell("end", 0, "");
}

static void add_cpus(cpu_set_t set[SETS], const char *text) {
    for (char *at = (char *)text; at && *at;) {
        long first = strtol(at, &at, 10), last = *at == '-' ? strtol(at + 1, &at, 10) : first;
        for (; first <= last; first++) CPU_SET_S(first, SETS * sizeof *set, set);
        at += *at == ',';
    }
}

static void take_cpus(void) {
    cpu_set_t set[SETS];
    CPU_ZERO_S(sizeof set, set);
    add_cpus(set, getenv("OMPBIND_CPUS"));
    add_cpus(set, getenv("OMPBIND_SERVICE_CPUS"));
    if (sched_setaffinity(0, sizeof set, set)) abort();
}

int main(int count, char **cases) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    const char *patience = getenv("REGIONS_PATIENCE_S");
    alarm(patience ? atoi(patience) : PATIENCE_S);
    do_case(cases[1]);
    alarm(0);
    if (count > 2) take_cpus();
    for (int i = 2; i < count; i++) {
        char *arguments[] = {cases[0], cases[i], NULL};
        pid_t child;
        if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ)) abort();
        int code = reap(child);
        name = cases[i];
        if (code) tell("died", code, "");
    }
    return 0;
}
