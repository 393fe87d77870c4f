/* Deliberately wrong: rank 1 waits for a message that nobody sends, the others for rank 1, in a barrier. It never ends.
 *
 *   mpicc.mpich -g -o deadlock deadlock.c && yod -sz 4 -time 5s ./deadlock
 */
#include <mpi.h>
#include <stdio.h>

static void wait_for_news(void)
{
    int news;
    MPI_Recv(&news, 1, MPI_INT, 0, 42, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void wait_for_everybody(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    printf("rank %d %s\n", rank, rank == 1 ? "waits for news" : "waits for everybody");
    fflush(stdout);
    if (rank == 1)
        wait_for_news();
    else
        wait_for_everybody();
    MPI_Finalize();
    return 0;
}
