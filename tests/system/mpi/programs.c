/* Point-to-point and collective MPI, one line a rank for each: what a launcher must not change. */
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static void say(const char *format, ...) /* in one write: no launcher can mix it with another rank's */
{
    char line[256];
    va_list values;
    va_start(values, format);
    if (write(1, line, vsnprintf(line, sizeof line, format, values)) < 0)
        exit(99);
    va_end(values);
}

static void ring(void)
{
    int token = rank, step;
    for (step = 0; step < size; step++)
        MPI_Sendrecv_replace(&token, 1, MPI_INT, (rank + 1) % size, 1, (rank + size - 1) % size, 1, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
    say("ring %d: %d\n", rank, token);
}

static void any(void)
{
    int number, from, sum = 0;
    MPI_Status status;
    if (rank) {
        number = rank * rank;
        MPI_Ssend(&number, 1, MPI_INT, 0, rank, MPI_COMM_WORLD);
        return;
    }
    for (from = 1; from < size; from++) {
        MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        sum += number * (status.MPI_SOURCE == status.MPI_TAG);
    }
    say("any: %d\n", sum);
}

static void large(void)
{
    int count = 1 << 18, at, peer = rank ^ 1, wrong = 0, *out, *in;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    if (peer >= size)
        return;
    out = malloc(count * sizeof *out);
    in = malloc(count * sizeof *in);
    for (at = 0; at < count; at++)
        out[at] = rank * 7 + at;
    MPI_Irecv(in, count, MPI_INT, peer, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, count, MPI_INT, peer, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, statuses);
    for (at = 0; at < count; at++)
        wrong += in[at] != peer * 7 + at;
    say("large %d: %d wrong\n", rank, wrong);
}

static void collectives(void)
{
    int sum, most, prefix, at, root = size - 1, word = rank == root ? 4242 : 0, mine = rank + 1;
    int *all = calloc(size, sizeof *all), *back = calloc(size, sizeof *back);
    double total, part = 1.0 / (rank + 1);
    MPI_Comm half;
    MPI_Bcast(&word, 1, MPI_INT, root, MPI_COMM_WORLD);
    MPI_Reduce(&part, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&mine, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Scan(&mine, &prefix, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allgather(&mine, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    for (at = 0; at < size; at++)
        all[at] = rank * 100 + at;
    MPI_Alltoall(all, 1, MPI_INT, back, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, half);
    MPI_Barrier(MPI_COMM_WORLD);
    say("collectives %d: %d %d %d %d %d\n", rank, word, most, prefix, back[size - 1], sum);
    if (!rank)
        say("total %.6f\n", total);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    ring();
    any();
    MPI_Barrier(MPI_COMM_WORLD); /* any tag would be one of these too */
    large();
    collectives();
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 1 && !strcmp(argv[1], "abort") && rank == size - 1)
        MPI_Abort(MPI_COMM_WORLD, 7);
    if (argc > 1 && !strcmp(argv[1], "abort"))
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return argc > 1 && !strcmp(argv[1], "exit") ? rank + 1 : 0;
}
