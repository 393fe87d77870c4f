/* The second line of the load file: one rank, the last of all, that only listens. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int world, size, *line, given;
    MPI_Comm ours;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &line, &given);
    MPI_Comm_split(MPI_COMM_WORLD, given ? *line : 1, world, &ours);
    for (int told = 0; told < 4; told++) {
        double sum;
        MPI_Status from;
        MPI_Recv(&sum, 1, MPI_DOUBLE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &from);
        printf("step %d of %d solvers: mean %.9f\n", from.MPI_TAG, size - 1, sum / (size - 1));
    }
    MPI_Comm_free(&ours);
    MPI_Finalize();
    return 0;
}
