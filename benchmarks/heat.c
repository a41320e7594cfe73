/* Heat spreads through a plate: each step makes every cell the mean of its four neighbours, in a parallel loop.

       gcc -O2 -fopenmp heat.c -o heat
       ./heat [STEPS [SIDE]]

   The program prints the time of its loops, the updated cells per second, and a cell near the hot edge as a check. */

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    long steps = argc > 1 ? atol(argv[1]) : 2000, side = argc > 2 ? atol(argv[2]) : 256;
    double *old = calloc(side * side, sizeof *old), *new = calloc(side * side, sizeof *new);
    for (long i = 0; i < side; i++)
        old[i] = new[i] = 1.0; /* one edge stays hot */

    double begun = omp_get_wtime();
    for (long step = 0; step < steps; step++) {
#pragma omp parallel for schedule(static)
        for (long i = side; i < side * side - side; i++)
            new[i] = 0.25 * (old[i - side] + old[i + side] + old[i - 1] + old[i + 1]);
        double *swapped = old;
        old = new;
        new = swapped;
    }
    double seconds = omp_get_wtime() - begun;
    printf("%d threads, %.4f s, %.1f million cells/s, a cell %.6f\n", omp_get_max_threads(), seconds,
           1e-6 * steps * side * (side - 2) / seconds, old[side + side / 2]);
}
