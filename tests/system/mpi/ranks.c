/* What an MPI program may do to its launcher: end well, abort, or die before, between and after init and finalize. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void end_as(const char *how)
{
    if (how[0] == 's')
        raise(atoi(how + 1));
    _exit(atoi(how));
}

int main(int argc, char **argv)
{
    const char *when = argc > 1 ? argv[1] : "", *how = argc > 2 ? argv[2] : "0";
    int rank, size, sum, token, shared;
    MPI_Comm node;

    if (!strcmp(when, "before") && atoi(getenv("YOD_RANK")) == 1)
        end_as(how);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    token = rank;
    MPI_Sendrecv_replace(&token, 1, MPI_INT, (rank + 1) % size, 0, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &shared);
    printf("%d of %d: sum %d, token %d, %d share memory\n", rank, size, sum, token, shared);
    fflush(stdout);
    if (!strcmp(when, "abort") && rank == size - 1)
        MPI_Abort(MPI_COMM_WORLD, atoi(how));
    if (!strcmp(when, "in") && rank == 1)
        end_as(how);
    if (!strcmp(when, "publish")) {
        char port[MPI_MAX_PORT_NAME];
        if (rank == size - 1)
            MPI_Publish_name("ocean", MPI_INFO_NULL, "a#port$of$mine");
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Lookup_name("ocean", MPI_INFO_NULL, port);
        if (strcmp(port, "a#port$of$mine"))
            MPI_Abort(MPI_COMM_WORLD, 99);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == size - 1)
            MPI_Unpublish_name("ocean", MPI_INFO_NULL, "a#port$of$mine");
    }
    if (!strcmp(when, "spawn")) {
        MPI_Comm children;
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        if (MPI_Comm_spawn("/bin/true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                           MPI_ERRCODES_IGNORE) == MPI_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, 98);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    if (!strcmp(when, "after") && rank == 1)
        end_as(how);
    return 0;
}
