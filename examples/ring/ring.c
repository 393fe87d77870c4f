/* A token goes once around all ranks; each adds its number. mpicc -o ring ring.c && yod -sz 4 ./ring */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, token = 0, back = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank > 0) {
        MPI_Recv(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        token += rank;
    }
    MPI_Request sent; /* not MPI_Send: with one rank it would wait for itself */
    MPI_Isend(&token, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD, &sent);
    if (rank == 0) {
        MPI_Recv(&back, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* token is still being sent */
        printf("the token went around %d ranks: %d\n", size, back);
    }
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
