/* Each OpenMP thread prints the CPU that it runs on. */

#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdio.h>

int main(void)
{
#pragma omp parallel
    printf("thread %d of %d runs on CPU %d\n", omp_get_thread_num(), omp_get_num_threads(), sched_getcpu());
}
