/* One slow rank: all wait in a barrier for rank 2, which has ten thousand times as much to do.
 *   mpicc -g -o slow slow.c && yod -sz 4 ./slow
 *   mesh stacks LAUNCHER
 */
#include <mpi.h>

static double sum;

static void relax(long cells)
{
    for (long cell = 1; cell <= cells; cell++)
        sum += 1.0 / cell;
}

static void step(int rank)
{
    relax(rank == 2 ? 4000000000000L : 400000000L);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    step(rank);
    MPI_Finalize();
    return 0;
}
