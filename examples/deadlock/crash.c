/* A crash: rank 3 writes behind the end of its strip. `yod -bt` says where, `-kill` ends the others.
 *   mpicc -g -o crash crash.c && yod -bt -kill -sz 4 ./crash
 */
#include <mpi.h>
#include <stdlib.h>

static void fill(double *strip, long cells)
{
    for (long cell = 0; cell < cells; cell++)
        strip[cell] = 1.0;
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fill(malloc(1000 * sizeof(double)), rank == 3 ? 1L << 40 : 1000);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
