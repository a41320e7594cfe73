/* Heat spreads through a plate: each step makes every cell the mean of its four neighbours.

       gcc -O2 -fopenmp heat.c -o heat
       ./heat [STEPS [SIDE]]

   The program prints the time of its loops, the updated cells per second, and the sum of all cells as a check. */

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    long steps = argc > 1 ? atol(argv[1]) : 2000, side = argc > 2 ? atol(argv[2]) : 256;
    double *old = calloc(side * side, sizeof *old), *new = calloc(side * side, sizeof *new), sum = 0.0;
    if (!old || !new)
        return 1;
    for (long i = 0; i < side; i++)
        old[i] = new[i] = 1.0; /* one edge stays hot, the others stay cold */

    double begun = omp_get_wtime();
    for (long step = 0; step < steps; step++) {
#pragma omp parallel for schedule(static)
        for (long y = 1; y < side - 1; y++)
            for (long x = 1; x < side - 1; x++) {
                long i = y * side + x;
                new[i] = 0.25 * (old[i - side] + old[i + side] + old[i - 1] + old[i + 1]);
            }
        double *swapped = old;
        old = new;
        new = swapped;
    }
    double seconds = omp_get_wtime() - begun;

    for (long i = 0; i < side * side; i++)
        sum += old[i];
    printf("%d threads, %.4f s, %.1f million cells/s, sum %.6f\n", omp_get_max_threads(), seconds,
           1e-6 * steps * (side - 2) * (side - 2) / seconds, sum);
    return 0;
}
