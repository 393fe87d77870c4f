/* Heat in a square plate, by Jacobi's method: rows are dealt to the ranks, neighbours trade their edges each step.
 *
 *   mpicc.mpich -O2 -o heat heat.c && yod -sz 8 ./heat 256 500
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int n = argc > 1 ? atoi(argv[1]) : 256, steps = argc > 2 ? atoi(argv[2]) : 500;
    if (n < size) {
        if (rank == 0) {
            fprintf(stderr, "heat: %d rows are not enough for %d ranks\n", n, size);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        MPI_Barrier(MPI_COMM_WORLD); /* an abort of theirs could be quicker than the words of rank 0 */
    }
    int first = (int)((long)n * rank / size), rows = (int)((long)n * (rank + 1) / size) - first;
    int above = rank ? rank - 1 : MPI_PROC_NULL, below = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    size_t width = (size_t)n + 2;
    double *now = calloc((rows + 2) * width, sizeof *now), *next = calloc((rows + 2) * width, sizeof *next);

    if (rank == 0) /* the upper edge of the plate is hot, the others are cold */
        for (size_t x = 0; x < width; x++)
            now[x] = next[x] = 100.0;
    for (int step = 1; step <= steps; step++) {
        MPI_Sendrecv(now + width, (int)width, MPI_DOUBLE, above, 0, now + (rows + 1) * width, (int)width, MPI_DOUBLE,
                     below, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(now + rows * width, (int)width, MPI_DOUBLE, below, 1, now, (int)width, MPI_DOUBLE, above, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int y = 1; y <= rows; y++)
            for (size_t x = 1; x <= (size_t)n; x++) {
                double *at = now + y * width + x;
                next[y * width + x] = 0.25 * (at[-1] + at[1] + *(at - width) + at[width]);
            }
        double *old = now;
        now = next;
        next = old;
    }
    double mine = 0, total;
    for (int y = 1; y <= rows; y++)
        for (size_t x = 1; x <= (size_t)n; x++)
            mine += now[y * width + x];
    MPI_Reduce(&mine, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d x %d plate on %d ranks: mean temperature %.6f after %d steps\n", n, n, size, total / n / n, steps);
    free(now);
    free(next);
    MPI_Finalize();
    return 0;
}
