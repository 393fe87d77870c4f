/* The first line of a load file (see load): solves on a communicator of its own, and tells the watcher how far it is. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int world, size, rank, *line, given;
    MPI_Comm ours;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &line, &given); /* which line of the load file we are */
    MPI_Comm_split(MPI_COMM_WORLD, given ? *line : 0, world, &ours);
    MPI_Comm_rank(ours, &rank);
    double guess = 1.0 + rank, mean = 0;
    for (int step = 1; step <= 20; step++) { /* the square root of 2, each rank from a start of its own */
        guess = 0.5 * (guess + 2.0 / guess);
        MPI_Allreduce(&guess, &mean, 1, MPI_DOUBLE, MPI_SUM, ours);
        if (rank == 0 && step % 5 == 0)
            MPI_Send(&mean, 1, MPI_DOUBLE, size - 1, step, MPI_COMM_WORLD);
    }
    MPI_Comm_free(&ours);
    MPI_Finalize();
    return fabs(guess - sqrt(2.0)) < 1e-12 ? 0 : 1;
}
