/* The OpenMP work of waiting.py: many parallel regions, each followed by serial work.

       waiting BEGIN SECONDS WORK SERIAL

   From the time BEGIN (CLOCK_MONOTONIC, in seconds), it starts regions for SECONDS. In a region, each thread counts to WORK;
   then the initial thread alone counts to SERIAL. It prints the mean microseconds from region to region.

   Without arguments, it prints how far a thread counts in a microsecond. */

#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double read_clock(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static void compute(long steps)
{
    for (volatile long step = 0; step < steps; step++)
        ;
}

int main(int count, char **words)
{
    if (count == 1) {
        const long steps = 100000000;
        double before = read_clock(CLOCK_THREAD_CPUTIME_ID);
        compute(steps);
        printf("%.1f\n", 1e-6 * (double)steps / (read_clock(CLOCK_THREAD_CPUTIME_ID) - before));
        return 0;
    }
    if (count != 5)
        return 2;
    double begin = atof(words[1]), end = begin + atof(words[2]), now;
    long work = atol(words[3]), serial = atol(words[4]), regions = 0;
#pragma omp parallel
    compute(work); /* starts the threads */
    if (read_clock(CLOCK_MONOTONIC) >= begin) {
        fprintf(stderr, "the start took too long\n");
        return 1;
    }
    while (read_clock(CLOCK_MONOTONIC) < begin)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    do {
#pragma omp parallel
        compute(work);
        compute(serial);
        regions++;
        now = read_clock(CLOCK_MONOTONIC);
    } while (now < end);
    printf("%.1f\n", 1e6 * (now - begin) / (double)regions);
    return 0;
}
