/* The OpenMP work of effect.py's ranks: STREAM's triad, one parallel region per repetition.

       ranks BYTES

   BYTES is the size of each of three arrays. Small arrays give many small regions, large arrays measure memory.
   The rank connects to the Unix socket named by EFFECT_SOCKET. It reads lines with a number, repeats its work
   this many times, and answers with the seconds taken. It exits when the socket is closed. */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

static double *a, *b, *c;
static long length;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static double *make_array(void)
{
    void *made = NULL;
    if (posix_memalign(&made, 4096, length * sizeof(double)))
        exit(3);
    return made;
}

/* Each thread first touches the memory that it uses later, so that the memory is on its NUMA node. */
static void touch(void)
{
#pragma omp parallel for schedule(static)
    for (long i = 0; i < length; i++) {
        a[i] = 0.0;
        b[i] = 1.0;
        c[i] = 2.0;
    }
}

static void triad(void)
{
#pragma omp parallel for schedule(static)
    for (long i = 0; i < length; i++)
        a[i] = b[i] + 3.0 * c[i];
}

static int connect_barrier(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("EFFECT_SOCKET");
    int barrier = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (path == NULL || strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path);
    return connect(barrier, (struct sockaddr *)&address, sizeof address) ? -1 : barrier;
}

int main(int argc, char **argv)
{
    long times;
    int barrier;
    FILE *lines;
    if (argc != 2 || (length = atol(argv[1]) / (long)sizeof(double)) < 1)
        return 2;
    a = make_array();
    b = make_array();
    c = make_array();
    touch();
    triad();
    barrier = connect_barrier();
    lines = barrier < 0 ? NULL : fdopen(barrier, "r");
    if (lines == NULL) {
        perror("EFFECT_SOCKET");
        return 1;
    }
    while (fscanf(lines, "%ld", &times) == 1) {
        double begin = now();
        for (long i = 0; i < times; i++)
            triad();
        dprintf(barrier, "%.9f\n", now() - begin);
    }
    return a[length - 1] == 7.0 ? 0 : 4;
}
