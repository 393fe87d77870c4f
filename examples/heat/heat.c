/* Heat in a square plate, by Jacobi's method: rows are dealt to the ranks, neighbours trade their edges each step.
 *
 *   mpicc.mpich -O2 -o heat heat.c && yod -sz 8 ./heat 256 500 [CHECKPOINT EVERY]
 *
 * With CHECKPOINT the plate is written there every EVERY steps; a program that finds the file continues from it.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The file has the size of the plate, the step, then the inner rows; beside the last one first, then in its place. */
static void save(const char *file, const double *now, int n, int first, int rows, int step)
{
    char aside[4096];
    MPI_File out;
    int rank, head[2] = {n, step};
    size_t width = (size_t)n + 2;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(aside, sizeof aside, "%s.new", file);
    if (MPI_File_open(MPI_COMM_WORLD, aside, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &out) != MPI_SUCCESS) {
        fprintf(stderr, "heat: cannot write %s\n", aside);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    if (rank == 0)
        MPI_File_write_at(out, 0, head, 2, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_write_at_all(out, (MPI_Offset)(sizeof head + first * width * sizeof *now), now + width,
                          (int)(rows * width), MPI_DOUBLE, MPI_STATUS_IGNORE);
    MPI_File_sync(out);
    MPI_File_close(&out);
    if (rank == 0 && rename(aside, file)) {
        perror("heat: checkpoint");
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The step that the file was written after, with its rows in `now`; 0 without a file. */
static int resume(const char *file, double *now, int n, int first, int rows)
{
    MPI_File in;
    int rank, head[2] = {0, 0};
    size_t width = (size_t)n + 2;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (MPI_File_open(MPI_COMM_WORLD, file, MPI_MODE_RDONLY, MPI_INFO_NULL, &in) != MPI_SUCCESS)
        return 0;
    MPI_File_read_at_all(in, 0, head, 2, MPI_INT, MPI_STATUS_IGNORE);
    if (head[0] != n) {
        if (rank == 0)
            fprintf(stderr, "heat: %s is of a plate of %d x %d\n", file, head[0], head[0]);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_File_read_at_all(in, (MPI_Offset)(sizeof head + first * width * sizeof *now), now + width, (int)(rows * width),
                         MPI_DOUBLE, MPI_STATUS_IGNORE);
    MPI_File_close(&in);
    if (rank == 0)
        printf("heat: continues after step %d\n", head[1]);
    return head[1];
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int n = argc > 1 ? atoi(argv[1]) : 256, steps = argc > 2 ? atoi(argv[2]) : 500;
    const char *file = argc > 3 ? argv[3] : NULL;
    int every = argc > 4 ? atoi(argv[4]) : 100;
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
    int done = file ? resume(file, now, n, first, rows) : 0;
    for (int step = done + 1; step <= steps; step++) {
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
        if (file && every > 0 && step % every == 0)
            save(file, now, n, first, rows, step);
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
